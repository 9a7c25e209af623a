"""Floats as byte planes (docs/PLANES.md): --zstd=planes, files of others, and every command on both."""
import hashlib
import json
import pathlib
import sys

import numpy

import support
from support import DATA, DIFFERS, INVALID, USAGE, read_zt

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
import planes as example

PLANES = DATA / "planes"
EXPECTED = json.loads((PLANES / "expected.json").read_text())
GOOD = sorted(name for name, tensors in EXPECTED.items() if tensors)
# What the message says of the rule that is broken.
RULES = {"bad_chunk_big.zt": "'chunk' is 33554432, more than 16 MiB", "bad_chunk_negative.zt": "'chunk' is not a whole number",
         "bad_chunk_not_groups.zt": "not a multiple of 'group'", "bad_component_f32.zt": "the component is f32, not u8",
         "bad_component_type.zt": "not u8 without a type", "bad_dtype_text.zt": "is not one of f16, bf16,",
         "bad_dtype_u8.zt": "dtype 'u8' is not one of", "bad_extra_component.zt": "one component, 'data'",
         "bad_frames_not_chunks.zt": "bytes of content, 'chunk' is 800", "bad_group_0.zt": "'group' is 0, not a multiple",
         "bad_group_odd.zt": "'group' is 6, not a multiple", "bad_length.zt": "t", "bad_no_chunk.zt": "has no 'chunk'",
         "bad_no_dtype.zt": "has no 'dtype'", "bad_no_group.zt": "has no 'group'",
         "bad_no_planes.zt": "the attribute 'planes' is missing", "bad_no_rotate.zt": "has no 'rotate'",
         "bad_raw.zt": "the component is raw, not zstd", "bad_role.zt": "one component, 'data'",
         "bad_rotate_2.zt": "'rotate' is 2, neither 0 nor 1", "bad_rotate_int.zt": "'rotate' is 1, which integers",
         "bad_shape.zt": "t", "bad_type_wrong_storage.zt": "is stored as u8, not as f32"}


def bf16(values):
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")


def weights(count, seed=1):
    return numpy.random.default_rng(seed).normal(0, 0.02, count)


def checkpoint(count=300_001):
    values = weights(count)
    integers = numpy.random.default_rng(2).integers(0, 1 << 15, 30_000)
    return {"bf16": ("BF16", [count], bf16(values).tobytes()),
            "f16": ("F16", [count], values.astype("<f2").tobytes()),
            "f32": ("F32", [count], values.astype("<f4").tobytes()),
            "f64": ("F64", [count // 4], values[:count // 4].tobytes()),
            "held": ("F32", [count], (bf16(values).astype("<u4") << 16).astype("<u4").tobytes()),
            "i64": ("I64", [30_000], integers.astype("<i8").tobytes()),
            "u8": ("U8", [30_000], integers.astype("u1").tobytes()),
            "none": ("F32", [0, 4], b""), "one": ("BF16", [], b"\x80\x3f")}


class Planes(support.EndToEnd):

    def data(self, path):
        return {name: o["components"]["data"] for name, o in read_zt(path)["objects"].items()}

    def test_files_of_others(self):
        for name in GOOD:
            path = PLANES / name
            listed = {o["name"]: o for o in self.json("inspect", "--json", path)["objects"]}
            self.succeed("verify", path)
            for spec in ("1.2", "1.1", "0.1"):
                self.succeed("convert", path, "-o", self.path("raw.zt"), "-f", "--raw", "--spec", spec)
                objects = read_zt(self.path("raw.zt"))["objects"]
                for tensor, (dtype, shape, digest) in EXPECTED[name].items():
                    c = objects[tensor]["components"]["data"]
                    self.assertEqual((c["dtype"], list(objects[tensor]["shape"]), c["encoding"]), (dtype, shape, "raw"))
                    self.assertEqual(hashlib.sha256(c["bytes"]).hexdigest(), digest, (name, tensor))
                    self.assertEqual(listed[tensor]["format"], "dense")
                    self.assertEqual(listed[tensor]["components"][0]["encoding"], "ztstream.planes/1")
                self.succeed("verify", self.path("raw.zt"), "--against", path)
                self.succeed("diff", self.path("raw.zt"), path)
            self.succeed("extract", path, "-o", self.path("out.safetensors"), "-f")
            process = self.run_program("diff", "--json", self.path("out.safetensors"), self.path("raw.zt"))
            kinds = {each["kind"] for each in json.loads(process.stdout)["differences"]}
            self.assertLessEqual(kinds, {"attribute"}, name)  # which safetensors does not keep
            self.succeed("convert", path, "-o", self.path("again.zt"), "-f", "--zstd=planes", "--min-gain", "-100")
            self.succeed("diff", self.path("again.zt"), path)

    def test_what_the_profile_forbids_is_refused(self):
        self.assertEqual(set(RULES), {name for name, tensors in EXPECTED.items() if not tensors})
        for name, rule in RULES.items():
            self.fail_with(INVALID, "convert", PLANES / name, "-o", self.path("out.zt"), says=("tensor 't'", rule))
            self.assertFalse(self.path("out.zt").exists())
            process = self.expect((DIFFERS, INVALID), "verify", PLANES / name)
            self.assertIn(rule, (process.stdout + process.stderr).decode(), name)

    def test_written_and_read_by_all(self):
        source = self.safetensors("in.safetensors", checkpoint())
        self.succeed("convert", source, "-o", self.path("planes.zt"), "--zstd=planes", "--digest", "sha256")
        stored = self.data(self.path("planes.zt"))
        share = {name: c["length"] / max(1, len(c["bytes"])) for name, c in stored.items()}
        for name, most in [("bf16", 0.668), ("f32", 0.838), ("f16", 0.855), ("f64", 0.93), ("held", 0.335)]:
            self.assertIn("planes", stored[name], name)
            self.assertLess(share[name], most, name)
        self.assertEqual({name for name, c in stored.items() if "planes" not in c}, {"i64", "u8", "none", "one"})
        loaded = example.load(self.path("planes.zt"))
        for name, (dtype, shape, data) in checkpoint().items():
            self.assertEqual(stored[name]["bytes"], data, name)
            values = loaded[name]
            self.assertEqual(list(values.shape), shape)
            self.assertEqual((values.view("<u4") >> 16).astype("<u2").tobytes() if dtype == "BF16" else values.tobytes(), data)
        # What has no planes is as --zstd=huffman stores it.
        self.succeed("convert", source, "-o", self.path("huffman.zt"), "--zstd=huffman", "--digest", "sha256")
        huffman = self.data(self.path("huffman.zt"))
        for name in ("i64", "u8", "none", "one"):
            self.assertEqual({key: stored[name][key] for key in ("encoding", "digest", "length")},
                             {key: huffman[name][key] for key in ("encoding", "digest", "length")})
        self.succeed("verify", self.path("planes.zt"), "--against", source)
        self.succeed("diff", self.path("planes.zt"), self.path("huffman.zt"))
        self.succeed("extract", self.path("planes.zt"), "-o", self.path("back.safetensors"))
        self.succeed("diff", self.path("back.safetensors"), source)
        text = self.succeed("inspect", self.path("planes.zt")).decode()
        self.assertRegex(text, r"bf16 +bf16 +\[300001\] +dense .*byte planes of 585\.94 KiB \(-34 %\)")

    def test_chunks_of_any_size(self):
        source = self.safetensors("in.safetensors", checkpoint(1_000_001))
        for chunk in ("4KiB", "100001", "3MiB"):
            self.succeed("convert", source, "-o", self.path("out.zt"), "-f", "--zstd=planes", "--chunk", chunk, "--digest", "sha256")
            self.succeed("verify", self.path("out.zt"), "--against", source)
            self.data(self.path("out.zt"))  # the independent reader finds no rule broken

    def test_after_conversion(self):
        values = weights(300_000).astype("<f4")
        source = self.safetensors("in.safetensors", {"t": ("F32", [300, 1000], values.tobytes())})
        self.succeed("convert", source, "-o", self.path("out.zt"), "--zstd=planes", "--dtype", "f16", "--digest", "sha256")
        stored = self.data(self.path("out.zt"))["t"]
        self.assertEqual((stored["dtype"], "planes" in stored), ("f16", True))
        self.assertEqual(stored["bytes"], values.astype("<f2").tobytes())
        self.succeed("convert", DATA / "gguf/little.gguf", "-o", self.path("a.zt"), "--zstd=planes", "--dequantize", "f32",
                     "--min-gain", "-100")
        self.succeed("convert", DATA / "gguf/little.gguf", "-o", self.path("b.zt"), "--dequantize", "f32")
        self.succeed("diff", self.path("a.zt"), self.path("b.zt"))
        self.assertTrue(any("planes" in c for c in self.data(self.path("a.zt")).values()))

    def test_what_does_not_gain_is_raw(self):
        noise = numpy.random.default_rng(3).bytes(1 << 20)
        source = self.safetensors("in.safetensors", {"t": ("BF16", [1 << 19], noise)})
        self.succeed("convert", source, "-o", self.path("out.zt"), "--zstd=planes", "--digest", "sha256")
        self.assertEqual(self.data(self.path("out.zt"))["t"]["encoding"], "raw")
        self.succeed("convert", source, "-o", self.path("out.zt"), "-f", "--zstd=planes", "--min-gain", "-1", "--digest", "sha256")
        stored = self.data(self.path("out.zt"))["t"]
        self.assertLess(stored["length"], len(noise) + 100)  # a few bytes for each block, not a search
        self.assertEqual(stored["bytes"], noise)

    def test_other_versions_refuse_it_by_name(self):
        source = self.safetensors("in.safetensors", {"t": ("I8", [3], b"abc")})
        for spec in ("1.1", "0.1"):
            self.fail_with(USAGE, "convert", source, "-o", self.path("out.zt"), "--zstd=planes", "--spec", spec,
                           says=("ztstream.planes/1", spec))
        self.fail_with(USAGE, "convert", source, "-o", self.path("out.zt"), "--zstd=plane", says="huffman or planes")
