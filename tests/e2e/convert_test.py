"""A conversion keeps every byte, says what it did, and gives the same file every time."""
import hashlib
import itertools
import json
import os
import pathlib
import shutil

import support
from support import DATA, EXISTS, USAGE, read_zt

import dcp_assembler
import make_safetensors

SINGLE_FILES = [
    "safetensors/zoo.safetensors", "safetensors/library.safetensors", "real/ppocr-cls.safetensors",
]
ALIGNMENT = 64


def expected(relative):
    """{tensor: {"dtype", "shape", "bytes", "sha256"}} of a file of tests/data, or of a sharded folder."""
    path = DATA / relative
    if path.is_dir():
        return json.loads((path / "expected.json").read_text())
    return json.loads((path.parent / "expected.json").read_text())[path.name]


class Bytes(support.EndToEnd):

    def check_against(self, output, tensors):
        """Every object of the .zt file `output` is as `tensors` says, and there is no other."""
        content = read_zt(output)
        self.assertEqual(sorted(content["objects"]), sorted(tensors))
        for name, want in tensors.items():
            got = content["objects"][name]
            self.assertEqual(got["format"], "dense", name)
            self.assertEqual(list(got["shape"]), want["shape"], name)
            self.assertEqual(list(got["components"]), ["data"], name)
            data = got["components"]["data"]
            self.assertEqual(data.get("type") or data["dtype"], want["dtype"], name)
            self.assertEqual(len(data["bytes"]), want["bytes"], name)
            self.assertEqual(hashlib.sha256(data["bytes"]).hexdigest(), want["sha256"], name)
        return content

    def test_every_byte_is_kept(self):
        """Of files, of a folder of shards, its index, and its shards given by hand."""
        shards = sorted((DATA / "hf-sharded").glob("*.safetensors"))
        self.assertEqual(len(shards), 3)
        inputs = [(relative, [DATA / relative]) for relative in (*SINGLE_FILES, "hf-sharded")]
        inputs += [("hf-sharded", [DATA / "hf-sharded/model.safetensors.index.json"]), ("hf-sharded", shards)]
        for (relative, given), options in itertools.product(inputs, ([], ["--zstd"], *(["--digest", each] for each in ("none", "sha256")))):
            with self.subTest(relative, given=len(given), options=options):
                self.succeed("convert", *options, "-f", *given, "-o", self.path("o.zt"))
                content = self.check_against(self.path("o.zt"), expected(relative))
                self.assertTrue(content["version"].startswith("1.2"))
                self.succeed("verify", self.path("o.zt"))

    def test_every_dtype_of_the_format(self):
        tensors = {}
        for seed, dtype in enumerate(make_safetensors.BITS):
            shape = (4, 8)
            data = make_safetensors.pattern(make_safetensors.byte_count(dtype, shape), seed)
            if dtype == "BOOL":
                data = bytes(byte & 1 for byte in data)
            tensors[dtype.lower()] = (dtype, shape, data)
        self.assertEqual(len(tensors), 22)
        self.safetensors("all.safetensors", tensors)
        self.succeed("convert", self.path("all.safetensors"), "-o", self.path("all.zt"))
        self.succeed("verify", self.path("all.zt"))
        objects = read_zt(self.path("all.zt"))["objects"]
        self.assertEqual(sorted(objects), sorted(tensors))
        for name, (dtype, shape, data) in tensors.items():
            storage, logical = make_safetensors.ZTENSOR[dtype]
            component = objects[name]["components"]["data"]
            self.assertEqual((component["dtype"], component.get("type")), (storage, logical), name)
            self.assertEqual(component["bytes"], data, name)
            if make_safetensors.BITS[dtype] >= 8:
                self.assertEqual(list(objects[name]["shape"]), list(shape), name)

    def test_scalars_empty_tensors_metadata_and_names(self):
        tensors = {
            "scalar": ("F64", [], make_safetensors.pattern(8)),
            "empty": ("BF16", [3, 0, 5], b""),
            "also empty": ("I64", [0], b""),
            "ünïcødé/路径 \"q\"\n": ("U8", [3], b"abc"),
            "n" * 65536: ("U8", [1], b"x"),
        }
        metadata = {"format": "pt", "note": "käse \"x\"", "json": "{\"a\": [1, 2]}"}
        self.safetensors("i.safetensors", tensors, metadata)
        self.succeed("convert", self.path("i.safetensors"), "-o", self.path("o.zt"))
        content = read_zt(self.path("o.zt"))
        for name, (_, shape, data) in tensors.items():
            self.assertEqual(content["objects"][name]["components"]["data"]["bytes"], data)
            self.assertEqual(list(content["objects"][name]["shape"]), list(shape))
        kept = json.dumps(content["attributes"], ensure_ascii=False)
        for value in metadata.values():
            self.assertIn(json.dumps(value, ensure_ascii=False)[1:-1], kept)

    def test_header_order_need_not_be_file_order(self):
        data = make_safetensors.pattern(48)
        header = {
            "last": {"dtype": "U8", "shape": [16], "data_offsets": [32, 48]},
            "first": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16]},
            "none": {"dtype": "U8", "shape": [0], "data_offsets": [32, 32]},
            "middle": {"dtype": "U8", "shape": [16], "data_offsets": [16, 32]},
        }
        self.put("i.safetensors", make_safetensors.raw(header, data))
        self.succeed("convert", self.path("i.safetensors"), "-o", self.path("o.zt"))
        objects = read_zt(self.path("o.zt"))["objects"]
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            self.assertEqual(objects[name]["components"]["data"]["bytes"], data[begin:end], name)

    def test_space_around_the_header(self):
        header, data = make_safetensors.layout(make_safetensors.sample())
        padded = json.dumps(header) + " " * 13
        self.put("i.safetensors", make_safetensors.raw(padded, data))
        self.succeed("convert", self.path("i.safetensors"), "-o", self.path("o.zt"))
        self.assertEqual(len(read_zt(self.path("o.zt"))["objects"]), 3)

    def test_content_decides_not_the_extension(self):
        self.safetensors("weights.gguf", make_safetensors.sample())
        self.succeed("convert", self.path("weights.gguf"), "-o", self.path("o.zt"))
        self.assertEqual(sorted(read_zt(self.path("o.zt"))["objects"]), ["a", "b", "c"])


class SameBytes(support.EndToEnd):
    """Equal inputs give equal files, whatever the threads and whichever way the bytes come and go."""

    OPTION_SETS = [[], ["--digest", "sha256"], ["--dtype", "bf16=f32"], ["--zstd"], ["--zstd=3", "--chunk", "64KiB", "--digest", "sha256"], ["--zstd=planes"], ["--spec", "2.0"],
                   ["--spec", "2.0", "--zstd", "--digest", "sha256"], ["--spec", "2.0", "--zstd=planes", "--chunk", "64KiB"]]

    def setUp(self):
        super().setUp()
        tensors = make_safetensors.sample([f"small.{i:03}" for i in range(200)], "F32", (5, 7))
        big = (numpy_weights(1 << 20), numpy_weights(3 << 19))
        for number, data in enumerate(big):
            tensors[f"big.{number}"] = ("BF16", (len(data) // 2,), data)
        self.safetensors("i.safetensors", tensors, {"k": "v", "a": "b"})

    def test_twice_and_for_any_number_of_threads_and_any_memory(self):
        output = self.path("o.zt")
        for options in [*self.OPTION_SETS, ["--canonical"]]:
            with self.subTest(options):
                outputs = []
                for threads, memory in [("1", "64MiB"), ("1", "1MiB"), ("2", "16MiB"), ("16", "64MiB"), ("64", "1MiB")]:
                    self.succeed("convert", *options, "-f", "-T", threads, "--memory", memory,
                                 self.path("i.safetensors"), "-o", output)
                    outputs.append(output.read_bytes())
                self.assertEqual(len(set(outputs)), 1)

    def test_file_pipe_and_standard_input(self):
        source = self.path("i.safetensors")
        for options in self.OPTION_SETS:
            with self.subTest(options):
                self.succeed("convert", *options, "-f", source, "-o", self.path("o.zt"))
                want = self.path("o.zt").read_bytes()
                self.assertEqual(self.succeed("convert", *options, source, "-o", "-"), want)
                content = source.read_bytes()
                self.assertEqual(self.succeed("convert", *options, "-", "-o", "-", stdin=content), want)
                self.succeed("convert", *options, "-f", "-", "-o", self.path("p.zt"), stdin=content)
                self.assertEqual(self.path("p.zt").read_bytes(), want)

    def test_the_order_of_the_index_does_not_matter(self):
        shutil.copytree(DATA / "hf-sharded", self.path("m"))
        index_path = self.path("m/model.safetensors.index.json")
        os.chmod(index_path, 0o644)
        self.succeed("convert", self.path("m"), "-o", self.path("1.zt"), "--files", "none")
        index = json.loads(index_path.read_text())
        index["weight_map"] = dict(reversed(index["weight_map"].items()))
        index_path.write_text(json.dumps(index))
        self.succeed("convert", self.path("m"), "-o", self.path("2.zt"), "--files", "none")
        self.assertEqual(self.path("1.zt").read_bytes(), self.path("2.zt").read_bytes())


def numpy_weights(count):
    """`count` bf16 weights as a trained network has them."""
    import numpy
    values = numpy.random.default_rng(7).standard_normal(count, dtype=numpy.float32) * 0.02
    return (values.view(numpy.uint32) >> 16).astype("<u2").tobytes()


class Command(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.source = self.safetensors("i.safetensors", make_safetensors.sample())
        self.output = self.path("o.zt")

    def test_existing_output_is_kept_without_force(self):
        self.output.write_bytes(b"precious")
        self.fail_with(EXISTS, "convert", self.source, "-o", self.output, says="o.zt")
        self.assertEqual(self.output.read_bytes(), b"precious")
        self.assertEqual(self.entries(), ["i.safetensors", "o.zt"])
        link = self.path("link.zt")
        link.symlink_to(self.source)
        for words in ["convert"], ["extract", "--to", "npz"]:
            self.fail_with(USAGE, *words, "-f", self.source, "-o", link, says="link.zt: it is an input, and would be replaced")
        said = self.expect(0, "convert", "-nf", self.source, "-o", link).stderr.decode()
        self.assertIn("without --dry-run this fails: ", said)
        index = self.path("link.zt.index.json")
        index.symlink_to(self.source)
        self.fail_with(USAGE, "convert", "-f", self.source, "--shards", "2", "-o", link, says="link.zt.index.json: it is an input")
        index.unlink()
        self.assertEqual(self.entries(), ["i.safetensors", "link.zt", "o.zt"])
        # a shard of an index or a folder, by its name or a link
        shards = self.path("shards")
        shards.mkdir()
        self.succeed("convert", "-q", "--spec", "2.0", "--shards", "2", self.source, "-o", shards / "m.zt")
        (shards / "link.zt").symlink_to("m-00002-of-00002.zt")
        for name in "m-00001-of-00002.zt", "link.zt":
            for words in ["convert"], ["extract", "--to", "npz"], ["inspect", "--html"]:
                output = [shards / name] if words[0] == "inspect" else ["-o", shards / name]
                self.fail_with(USAGE, words[0], "-f", shards / "m.zt", *words[1:], *output, says=f"{name}: it is an input, and would be replaced")
        self.succeed("verify", shards / "m.zt")
        # an index, a file of a distributed checkpoint, arrays of a folder that are left out
        old = self.path("old")
        old.mkdir()
        self.succeed("convert", "-q", "--shards", "2", self.source, "-o", old / "m.zt")
        self.fail_with(USAGE, "inspect", "-f", old, "--html", old / "m.zt.index.json", says="m.zt.index.json: it is an input")
        checkpoint = dcp_assembler.Checkpoint(self.path("dcp"))
        checkpoint.add("w", (2,), [((0,), (1,))], bytes(4), describe=False)
        checkpoint.add("w", (2,), [((1,), (1,))], bytes(4), file="__1_0.distcp", describe=False)
        checkpoint.describe("w", (2,), [((0,), (1,)), ((1,), (1,))])
        checkpoint.write()
        for name in "__0_0.distcp", "__1_0.distcp", ".metadata":
            self.fail_with(USAGE, "inspect", "-f", self.path("dcp"), "--html", self.path("dcp") / name, says=f"{name}: it is an input")
        arrays = self.path("arrays")
        self.succeed("extract", "-q", "--to", "npy", self.safetensors("f.safetensors", make_safetensors.sample("ab", "F32", (2,))), "-o", f"{arrays}/")
        self.expect(USAGE, "extract", "-f", "--to", "npy", arrays, "--include", "a", "--rename", "s/a/b/", "-o", f"{arrays}/", says="it is an input")
        self.expect(USAGE, "extract", "-f", "--to", "npy", arrays, "-o", f"{arrays}/", says="it is an input")
        empty = old / "empty.safetensors"
        empty.write_bytes(make_safetensors.encode({}))
        parts = self.path("parts")
        parts.mkdir()
        (parts / "model-00001-of-00002.safetensors").write_bytes(self.source.read_bytes())
        empty.rename(parts / "model-00002-of-00002.safetensors")
        self.fail_with(USAGE, "inspect", "-f", parts, "--html", parts / "model-00002-of-00002.safetensors", "--files", "none", says="it is an input")
        # nor the input itself, however the name is spelled
        self.succeed("convert", "-q", self.source, "-o", "m.zt")
        was = self.path("m.zt").read_bytes()
        for name in "m.zt", "./m.zt", shards / "../m.zt":
            for words in ["convert"], ["convert", "--zstd"], ["extract", "--to", "npz"]:
                self.fail_with(USAGE, words[0], "-f", name, *words[1:], "-o", "m.zt", says="m.zt: it is an input, and would be replaced; name another file")
        self.assertEqual(self.path("m.zt").read_bytes(), was)
        for each in old / "m.zt.index.json", shards / "m.zt":
            self.fail_with(USAGE, "convert", "-qf", each, "-o", each, says="it is an input, and would be replaced")
            self.succeed("verify", each)
        nowhere = self.path("nowhere.zt")
        nowhere.symlink_to("gone/o.zt")
        for words in ["convert"], ["convert", "-f"], ["extract", "-f", "--to", "safetensors"]:
            self.fail_with(EXISTS, *words, self.source, "-o", nowhere, says="nowhere.zt: it is a link that leads nowhere; remove it, or name another output")
        self.assertTrue(nowhere.is_symlink())
        nowhere.unlink()
        link.unlink()
        self.succeed("convert", self.source, "-f", "-o", self.output)
        self.succeed("verify", self.output)

    def test_a_folder_is_no_output(self):
        self.path("d").mkdir()
        for output, example in (("d", "d/model.zt"), ("d/", "d/model.zt"), ("new/", "new/model.zt")):
            for more in [], ["-n"], ["--shards", "1"], ["-f"]:
                self.assertEqual(self.fail_with(USAGE, "convert", self.source, "-o", output, *more),
                                 f"ztstream: {output}: the output is a folder; name a file in it, such as {example}\n")
        self.assertFalse(self.path("new").exists())

    def test_dry_run_writes_nothing_and_finds_the_same_faults(self):
        plan = self.succeed("convert", "-n", self.source, "-o", self.output).decode()
        for name in "abc":
            self.assertRegex(plan, rf"\b{name}\b")
        self.assertEqual(self.entries(), ["i.safetensors"])
        self.assertIsInstance(self.json("convert", "--dry-run", "--json", self.source, "-o", self.output), dict)
        self.assertEqual(self.entries(), ["i.safetensors"])
        self.output.write_bytes(b"precious")
        process = self.run_program("convert", "-n", self.source, "-o", self.output)  # a plan needs no room
        self.assertEqual((process.returncode, process.stdout.decode()), (0, plan))
        line = f"without --dry-run this fails: {self.output}: the output exists already; use -f to replace it"
        self.assertEqual(process.stderr.decode(), f"ztstream: warning: {line}\n")
        self.assertEqual(self.json("convert", "-nq", "--json", self.source, "-o", self.output)["warnings"], [line])
        self.assertEqual(self.run_program("convert", "-n", "-f", self.source, "-o", self.output).stderr, b"")
        self.assertEqual(self.output.read_bytes(), b"precious")
        absent = self.path("no") / "o.zt"
        for options in ([], ["-f"], ["--shards", "1"]):
            process = self.run_program("convert", "-n", self.source, "-o", absent, *options)
            self.assertEqual(process.returncode, 0)
            self.assertIn(f"without --dry-run this fails: {absent}: there is no folder {absent.parent}; make the folder first",
                          process.stderr.decode())
        inside = self.source / "o.zt"  # a file is no folder
        process = self.run_program("convert", "-n", self.source, "-o", inside)
        self.assertIn(f"without --dry-run this fails: {inside}: {self.source} is not a folder", process.stderr.decode())

    def test_standard_output_carries_the_product_alone(self):
        process = self.run_program("convert", self.source, "-o", self.output)
        self.assertEqual((process.returncode, process.stdout), (0, b""))
        process = self.run_program("convert", "-q", "-f", self.source, "-o", self.output)
        self.assertEqual((process.returncode, process.stdout, process.stderr), (0, b"", b""))

    def test_inspect_json(self):
        self.succeed("convert", self.source, "-o", self.output)
        listing = self.json("inspect", "--json", self.output)
        self.assertEqual(set(listing) - {"attributes"},
                         {"schema", "cmd", "ok", "file", "format", "version", "objects"})
        self.assertEqual((listing["format"], listing["version"]), ("zt", "1.2.0"))
        self.assertEqual([entry["name"] for entry in listing["objects"]], ["a", "b", "c"])
        for entry in listing["objects"]:
            self.assertEqual((entry["shape"], entry["format"]), ([16, 8], "dense"))
            (component,) = entry["components"]
            self.assertEqual((component["role"], component["dtype"], component["length"]), ("data", "bf16", 256))
            self.assertEqual(component["offset"] % ALIGNMENT, 0)
            self.assertRegex(component["digest"], r"\Acrc32c:0x[0-9A-F]{8}\Z")
            self.assertLessEqual(set(component), {"role", "dtype", "type", "offset", "length", "encoding",
                                                  "uncompressed_length", "digest"})
