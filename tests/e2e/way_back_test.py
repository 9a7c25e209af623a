"""There and back: every fixture through a .zt file and out again, and verify --against what it was made of."""
import json
import pathlib
import struct

import numpy

import make_safetensors
import support
from support import DATA, DIFFERS

from extract_test import GGUF_FILES, read_safetensors, written_metadata

SAFETENSORS = ["safetensors/zoo.safetensors", "safetensors/library.safetensors", "real/ppocr-cls.safetensors"]
GROUPED = ["gptq", "awq"]
OPTIONS = [[], ["--zstd"], ["--spec", "1.1"]]


class WayBack(support.EndToEnd):

    def test_safetensors(self):
        for relative in SAFETENSORS:
            for options in OPTIONS[:2]:
                with self.subTest(relative, options=options):
                    zt, out = self.path("a.zt"), self.path("b.safetensors")
                    self.succeed("convert", "-f", *options, DATA / relative, "-o", zt)
                    self.succeed("extract", "-f", zt, "-o", out)
                    (want, metadata), got = make_safetensors.read(DATA / relative), read_safetensors(out)
                    self.assertEqual(got[:2], (written_metadata(metadata), want))
                    self.succeed("verify", zt, "--against", DATA / relative)
                    self.succeed("diff", zt, DATA / relative)

    def test_an_empty_name_and_empty_metadata(self):
        tensors = {"": ("F32", [3], bytes(range(12))), "other": ("F32", [2], bytes(8))}
        for metadata in ({}, None, {"": "empty key"}):
            for options in [[], ["--spec", "1.1"], ["--spec", "0.1", "--no-metadata"]]:
                with self.subTest(metadata=metadata, options=options):
                    source = self.safetensors("a.safetensors", tensors, metadata)
                    self.succeed("convert", "-f", *options, source, "-o", self.path("a.zt"))
                    self.succeed("verify", self.path("a.zt"), "--against", source)
                    self.succeed("extract", "-f", self.path("a.zt"), "-o", self.path("b.safetensors"))
                    kept = None if "--no-metadata" in options else metadata
                    self.assertEqual(make_safetensors.read(self.path("b.safetensors")),
                                     (make_safetensors.read(source)[0], written_metadata(kept)))
                    text = self.path("b.safetensors").read_bytes()
                    self.assertEqual(b'"__metadata__":{}' in text, kept == {})
        self.succeed("extract", self.path("a.zt"), "-o", "b.npz")
        self.assertEqual(sorted(numpy.load(self.path("b.npz")).files), ["", "other"])

    def test_gguf_from_a_pipe_gives_the_same_bytes(self):
        for name in ("little.gguf", "big.gguf", "quants.gguf", "kinds.gguf"):
            with self.subTest(name):
                data = (DATA / "gguf" / name).read_bytes()
                data += bytes(-len(data) % 32)  # the padding that llama.cpp writes
                source = self.put("m.gguf", data)
                self.succeed("convert", "-f", source, "-o", self.path("file.zt"))
                self.succeed("convert", "-f", "-", "-o", self.path("pipe.zt"), stdin=data)
                self.assertEqual(self.path("file.zt").read_bytes(), self.path("pipe.zt").read_bytes())
                self.succeed("extract", "-f", self.path("file.zt"), "-o", self.path("back.gguf"))
                self.assertEqual(self.path("back.gguf").read_bytes(), data)

    def test_version_0_1_without_the_attributes_it_cannot_hold(self):
        tensors = {"w": ("F32", [1], b"abcd")}
        source = self.safetensors("hub.safetensors", tensors, {"format": "pt"})
        self.fail_with(support.USAGE, "convert", "--spec", "0.1", source, "-o", self.path("o.zt"),
                       says=("there is 'format'", "--no-metadata"))
        self.succeed("convert", "--spec", "0.1", "--no-metadata", source, "-o", self.path("o.zt"))
        self.succeed("verify", self.path("o.zt"), "--against", source)

    def test_sharded_folder(self):
        self.succeed("convert", DATA / "hf-sharded", "-o", self.path("a.zt"))
        want = {}
        for shard in sorted((DATA / "hf-sharded").glob("*.safetensors")):
            want.update(make_safetensors.read(shard)[0])
        for source in (self.path("a.zt"), DATA / "hf-sharded"):
            self.succeed("extract", "-f", source, "-o", self.path("b.safetensors"))
            self.assertEqual(read_safetensors(self.path("b.safetensors"))[1], want)
        self.succeed("verify", self.path("a.zt"), "--against", *sorted((DATA / "hf-sharded").glob("*.safetensors")))

    def test_grouped_modules_become_their_tensors_again(self):
        for name in GROUPED:
            with self.subTest(name):
                zt, out = self.path(f"{name}.zt"), self.path(f"{name}.safetensors")
                self.succeed("convert", "--quant", "group", DATA / name, "-o", zt)
                formats = {o["format"] for o in json.loads(self.succeed("inspect", "--json", zt))["objects"]}
                self.assertIn("quantized_group", formats)
                self.succeed("extract", zt, "-o", out)
                self.assertEqual(read_safetensors(out)[1::-1], make_safetensors.read(DATA / name / "model.safetensors"))
                self.succeed("verify", zt, "--against", DATA / name)
                self.succeed("diff", zt, DATA / name)

    def test_gguf_to_the_byte(self):
        for relative in GGUF_FILES:
            for options in OPTIONS[:2]:
                with self.subTest(relative, options=options):
                    zt, out = self.path("a.zt"), self.path("b.gguf")
                    self.succeed("convert", "-f", *options, DATA / relative, "-o", zt)
                    for source in (zt, DATA / relative):
                        self.succeed("extract", "-f", source, "-o", out)
                        self.assertEqual(out.read_bytes(), (DATA / relative).read_bytes())
                    self.succeed("verify", zt, "--against", DATA / relative)

    def test_numpy(self):
        for relative in ["npz/stored.npz", "npz/deflated.npz", "scipy/csr.npz", "scipy/csc.npz", "scipy/coo.npz"]:
            with self.subTest(relative):
                zt, out = self.path("a.zt"), self.path("b.npz")
                self.succeed("convert", "-f", DATA / relative, "-o", zt)
                self.succeed("extract", "-f", zt, "-o", out)
                self.succeed("verify", zt, "--against", DATA / relative)
                name = pathlib.Path(relative).stem
                renamed = self.path(f"{name}.npz")  # a sparse matrix is named by its file
                out.rename(renamed)
                self.succeed("diff", DATA / relative, renamed)

    def test_verify_against_names_what_differs(self):
        f = lambda *v: struct.pack(f"<{len(v)}f", *v)
        tensors = {"same": ("F32", [2], f(1, 2)), "value": ("F32", [2], f(1, 2)), "type": ("F32", [1], f(1)),
                   "missing": ("U8", [1], b"x")}
        source = self.safetensors("a.safetensors", tensors)
        self.succeed("convert", source, "--dtype", "type=bf16", "--exclude", "missing", "-o", self.path("a.zt"))
        tensors["value"] = ("F32", [2], f(1, 2.5))
        other = self.safetensors("b.safetensors", tensors)
        process = self.run_program("verify", self.path("a.zt"), "--against", other)
        self.assertEqual((process.returncode, process.stdout), (DIFFERS, b""))
        prefix = f"ztstream: {self.path('a.zt')}: "
        self.assertEqual(sorted(process.stderr.decode().splitlines()), sorted([
            prefix + "tensor 'value': 1 of 2 elements differ, by at most 0.5, relatively 0.2, RMS 0.353553391; first at [1]: "
            "2 in the file, 2.5 in the source",
            prefix + "tensor 'type': dtype bf16 in the file, f32 in the source; the values do not differ",
            prefix + "tensor 'missing': only in the source",
            prefix + "if it was converted with --dtype, --rename, --exclude, --files or the like, give verify the same options"]))
        result = json.loads(self.run_program("verify", "--json", self.path("a.zt"), "--against", other).stdout)
        self.assertEqual((result["ok"], result["compared"], len(result["differences"])), (False, 3, 3))
