"""A .zt file to a .zt file: what is compressed stays so, and its frames are copied byte for byte."""
import json
import pathlib

import numpy

import make_safetensors
import support
from support import DONE, INVALID, USAGE

CODECS = ("--zstd", "--zstd=19", "--zstd=huffman", "--zstd=planes")


def bf16(values):
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")


def checkpoint(count=100_001):
    values = numpy.random.default_rng(1).normal(0, 0.02, count)
    integers = numpy.random.default_rng(2).integers(0, 99, 70_000)
    return {"bf16": ("BF16", [count], bf16(values).tobytes()),
            "f32": ("F32", [count], (bf16(values).astype("<u4") << 16).astype("<u4").tobytes()),
            "flags": ("BOOL", [60_000], (integers[:60_000] % 2).astype("u1").tobytes()),
            "i64": ("I64", [70_000], integers.astype("<i8").tobytes()),
            "noise": ("U8", [5000], numpy.random.default_rng(3).bytes(5000)),
            "none": ("F32", [0, 4], b""), "one": ("BF16", [], b"\x80\x3f")}


class Keep(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.raw = self.put("in.safetensors", make_safetensors.encode(checkpoint()))

    def make(self, *options, name="in.zt", source=None):
        path = self.path(name)
        self.succeed("convert", source or self.raw, "-o", path, "-f", *options)
        return path

    def stored(self, path):
        """Name -> encoding and bytes as they are stored."""
        content = pathlib.Path(path).read_bytes()
        out = {}
        for o in json.loads(self.succeed("inspect", "--json", path))["objects"]:
            for c in o["components"]:
                out[o["name"], c["role"]] = (c["encoding"], content[c["offset"]:c["offset"] + c["length"]])
        return out

    def check_kept(self, before, after, renamed=lambda name: name):
        expected = {(renamed(name), role): held for (name, role), held in self.stored(before).items()}
        self.assertEqual(self.stored(after), expected)
        self.succeed("verify", after)

    def test_frames_are_copied(self):
        for codec in CODECS:
            for chunk in ("64KiB", "4MiB"):
                before = self.make(codec, "--chunk", chunk)
                self.assertGreater(sum(e != "raw" for e, _ in self.stored(before).values()), 2)
                after = self.make("--rename", "s/^/model./", name="out.zt", source=before)
                self.check_kept(before, after, lambda name: "model." + name)
                again = self.make("--rename", "s/^model.//", name="again.zt", source=after)
                self.assertEqual(again.read_bytes(), before.read_bytes())
                self.succeed("diff", again, self.raw)

    def test_nothing_asked_gives_the_same_file(self):
        for spec in ("2.0", "1.2", "1.1"):
            for codec in CODECS:
                if spec == "1.1" and "planes" in codec:
                    continue
                before = self.make(codec, "--spec", spec, "--chunk", "64KiB")
                after = self.make("--spec", spec, name="out.zt", source=before)
                self.assertEqual(after.read_bytes(), before.read_bytes(), (spec, codec))

    def test_threads_and_pipes_write_the_same(self):
        before = self.make("--zstd=planes", "--chunk", "64KiB")
        for spec in ("1.2", "2.0"):
            expected = self.make("--exclude", "i64", "--spec", spec, name="out.zt", source=before).read_bytes()
            for threads in (1, 2, 5):
                arguments = ("convert", before, "-o", "-", "--exclude", "i64", "--spec", spec, "-T", threads)
                self.assertEqual(self.succeed(*arguments), expected)

    def test_raw_decompresses_and_zstd_encodes_anew(self):
        plain = self.make(name="plain.zt").read_bytes()
        best = self.make("--zstd=19", name="best.zt")
        fast = self.make("--zstd=1", name="fast.zt").read_bytes()
        self.assertNotEqual(best.read_bytes(), fast)
        self.assertEqual(self.make("--raw", name="out.zt", source=best).read_bytes(), plain)
        self.assertEqual(self.make("--zstd=1", name="out.zt", source=best).read_bytes(), fast)
        self.assertEqual(self.make("--zstd=1", name="out.zt", source=self.path("plain.zt")).read_bytes(), fast)
        self.fail_with(USAGE, "convert", best, "-o", self.path("x.zt"), "--raw", "--zstd",
                       says="--zstd and --raw cannot be combined")

    def test_what_changes_is_encoded_anew_in_the_same_encoding(self):
        for codec in ("--zstd", "--zstd=planes"):
            before = self.make(codec)
            expected = self.make(codec, "--dtype", "f32=bf16", name="expected.zt").read_bytes()
            after = self.make("--dtype", "f32=bf16", name="out.zt", source=before)
            self.assertEqual(after.read_bytes(), expected)

    def test_versions(self):
        for codec in CODECS:
            for first in ("1.2", "2.0"):
                before = self.make(codec, "--spec", first, "--chunk", "128KiB")
                for second in ("1.2", "2.0"):
                    after = self.make("--spec", second, name="out.zt", source=before)
                    self.check_kept(before, after)
                    self.succeed("diff", after, self.raw)

    def test_a_version_without_the_encoding(self):
        before = self.make("--zstd=planes")
        process = self.run_program("convert", before, "-o", self.path("out.zt"), "--spec", "1.1")
        self.assertEqual(process.returncode, DONE)
        self.assertIn(b"2 tensors stored as ztstream.planes/1 become zstd: --spec 1.1 does not have that encoding", process.stderr)
        self.assertEqual(self.stored(self.path("out.zt"))["bf16", "data"][0], "zstd")
        self.succeed("diff", self.path("out.zt"), self.raw)

    def test_canonical_is_raw(self):
        before = self.make("--zstd=planes", "--spec", "2.0")
        expected = self.make("--canonical", name="expected.zt").read_bytes()
        self.assertEqual(self.make("--canonical", name="out.zt", source=before).read_bytes(), expected)

    def test_digests(self):
        before = self.make("--zstd=planes")
        for digest in ("sha256", "xxh3", "crc32c", "none"):
            with_digest = self.make("--digest", digest, name=f"{digest}.zt", source=before)
            self.check_kept(before, with_digest)
            self.assertEqual(with_digest.read_bytes(), self.make("--zstd=planes", "--digest", digest, name="new.zt").read_bytes())
            self.assertEqual(self.make(name="back.zt", source=with_digest).read_bytes(), before.read_bytes())

    def test_damage_is_found(self):
        for spec, digest in (("1.2", "crc32c"), ("1.2", "sha256"), ("1.2", "none"), ("2.0", "xxh3"), ("2.0", "none")):
            for codec in ("--zstd", "--zstd=planes"):
                before = self.make(codec, "--spec", spec, "--digest", digest, "--chunk", "64KiB")
                content = bytearray(before.read_bytes())
                components = {o["name"]: o["components"][0]
                              for o in json.loads(self.succeed("inspect", "--json", before))["objects"]}
                c = components["bf16"]
                for at in (c["offset"] + c["length"] // 3, c["offset"] + c["length"] // 2):
                    damaged = bytes(content[:at]) + bytes([content[at] ^ 16]) + bytes(content[at + 1:])
                    self.put("damaged.zt", damaged)
                    for to, threads in (("1.2", "4"), ("2.0", "1")):
                        self.fail_with(INVALID, "convert", self.path("damaged.zt"), "-o", self.path("out.zt"), "-q",
                                       "--spec", to, "-T", threads, says="tensor 'bf16'")
                        self.assertNotIn("out.zt", self.entries())
                    # What is left out is not read.
                    self.succeed("convert", self.path("damaged.zt"), "-o", self.path("out.zt"), "--exclude", "bf16")
                    self.path("out.zt").unlink()

    def test_merging(self):
        one = self.make("--zstd=planes", "--include", "^b|^f", name="one.zt")
        two = self.make("--zstd=9", "--exclude", "^b|^f", name="two.zt")
        self.succeed("convert", one, two, "-o", self.path("both.zt"))
        self.assertEqual(self.stored(self.path("both.zt")), {**self.stored(one), **self.stored(two)})
        self.succeed("verify", self.path("both.zt"))

    def test_sharding_and_resharding(self):
        for spec in ("1.2", "2.0"):
            before = self.make("--zstd=planes", "--spec", spec)
            (self.folder / "three").mkdir(exist_ok=True)
            self.succeed("convert", before, "-o", self.path("three/m.zt"), "--shards", "3", "--spec", spec, "-f")
            whole = self.path("three/m.zt" if spec == "2.0" else "three/m.zt.index.json")
            after = self.make("--spec", spec, name="out.zt", source=whole)
            self.check_kept(before, after)
            (self.folder / "two").mkdir(exist_ok=True)
            self.succeed("convert", whole, "-o", self.path("two/m.zt"), "--shards", "2", "--spec", spec, "-f")
            parts = {}
            for part in sorted(self.path("two").glob("m-*.zt")):
                parts.update(self.stored(part))
            self.assertEqual(parts, self.stored(before))

    def test_sparse(self):
        rows = numpy.arange(0, 30_001, 3, dtype="<i8")
        archive = self.path("s.npz")
        numpy.savez(archive, format=b"csr", shape=numpy.array([10_000, 300]), indptr=rows,
                    indices=numpy.tile(numpy.arange(3, dtype="<i4"), 10_000), data=numpy.ones(30_000, "<f4"))
        for first in ("1.2", "2.0"):
            before = self.make("--zstd", "--spec", first, "--chunk", "16KiB", name="s.zt", source=archive)
            for second in ("1.2", "2.0"):
                after = self.make("--spec", second, "--rename", "s/^/x./", name="out.zt", source=before)
                self.assertTrue(all(encoding == "zstd" for encoding, _ in self.stored(after).values()))
                self.succeed("verify", after)
                if first == second:
                    self.check_kept(before, after, lambda name: "x." + name)

    def test_tied_weights_stay_one_blob(self):
        data = {"a": checkpoint()["bf16"]}
        tied = make_safetensors.encode(data, ties={"b": "a"})
        before = self.make("--zstd=planes", source=self.put("tied.safetensors", tied))
        after = self.make("--rename", "s/^/m./", name="out.zt", source=before)
        places = {(c["offset"], c["length"]) for o in json.loads(self.succeed("inspect", "--json", after))["objects"]
                  for c in o["components"]}
        self.assertEqual(len(places), 1)

    def test_dry_run_says_what_stays(self):
        before = self.make("--zstd=planes")
        text = self.succeed("convert", before, "--dry-run").decode()
        self.assertIn("out before compression, 4 stay compressed", text)
        self.assertNotIn("stay", self.succeed("convert", before, "--dry-run", "--raw").decode())

    def test_memory(self):
        if self.sanitized():
            self.skipTest("sanitizers take memory of their own")
        values = numpy.tile(bf16(numpy.random.default_rng(5).normal(0, 0.02, 1 << 20)), 40)
        big = self.put("big.safetensors", make_safetensors.encode({"w": ("BF16", [40 << 20], values.tobytes())}))
        before = self.make("--zstd=planes", name="big.zt", source=big)
        status, _, memory = self.costs("convert", before, "-o", self.path("out.zt"), "--rename", "s/w/v/", "-T", "2", "-q")
        self.assertEqual(status, DONE)
        self.assertLess(memory, 96)
        self.check_kept(before, self.path("out.zt"), lambda name: "v")
