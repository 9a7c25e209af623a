"""Several files of one output at a time: nothing but the time tells. The same bytes, rows, warnings and errors as one after
another, memory within the limit of one, and a slow disk is not waited for eight times.
"""
import json
import shutil
import subprocess
import time
import unittest

import numpy

import make_safetensors
import support
from support import INVALID, PROGRAM

MIB = 1 << 20
# Of eleven files at a time: 1, 2, all of them with threads of their own, all with one or two, 3 for want of memory, 8.
WAYS = (("-T", "1"), ("-T", "2"), ("-T", "64"), ("-T", "16"), ("-T", "16", "--memory", "48MiB"), ("-T", "8"))
NAMES = [f"layers.{n}.weight" for n in range(33)]


class AtOnce(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.source = self.safetensors("in.safetensors", make_safetensors.sample(NAMES, "F32", (64, 64)))
        self.out = self.path("out")

    def empty(self):
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()

    def contents(self):
        return {str(path.relative_to(self.out)): path.read_bytes() for path in self.out.rglob("*") if path.is_file()}

    def each_way(self, *words):
        """What every way says and writes; it is always the same."""
        first = None
        for way in WAYS:
            self.empty()
            process = self.run_program(*words, *way, "--json")
            self.assertEqual(process.returncode, 0, process.stderr)
            result = json.loads(process.stdout)
            del result["timing"]
            told = result, process.stderr, self.contents()
            first = first or told
            self.assertEqual(told, first, (words, way))
        return first

    def in_shards(self, source, *options):
        result, errors, files = self.each_way("convert", source, "-o", self.out / "model.zt", "--shards", "11", *options)
        self.assertEqual([row["shard"] for row in result["output"]["files"]], list(range(1, 12)))
        self.assertEqual(len(files), 23)
        return result, errors.decode()

    def test_shards_are_the_same(self):
        for options in (), ("--zstd=planes", "--digest", "sha256"), ("--spec", "2.0", "--zstd"):
            self.in_shards(self.source, *options)

    def test_shards_of_every_kind_of_input(self):
        arrays = {f"a{n}": numpy.arange(4000, dtype="f4") * n for n in range(12)}
        numpy.savez(self.path("stored.npz"), **arrays)
        numpy.savez_compressed(self.path("deflated.npz"), **arrays)
        for name, options in (("xxh3.zt", ("--digest", "xxh3")), ("two.zt", ("--spec", "2.0")), ("planes.zt", ("--zstd=planes",))):
            self.succeed("convert", "-q", self.source, "-o", self.path(name), *options)
        self.path("shards").mkdir()
        self.succeed("convert", "-q", self.source, "-o", self.path("shards/in.zt"), "--shards", "3", "--spec", "2.0")
        for name in "stored.npz", "deflated.npz", "xxh3.zt", "two.zt", "planes.zt", "shards":
            with self.subTest(name):
                self.in_shards(self.path(name))

    def test_warnings_come_in_the_order_of_shards(self):
        values = numpy.ones((33, 64, 64), dtype="f4")
        values[:, 3, 5] = 1e30
        tensors = {name: ("F32", (64, 64), values[n].tobytes()) for n, name in enumerate(NAMES)}
        make_safetensors.write(self.source, tensors)
        result, errors = self.in_shards(self.source, "--dtype", "f16", "--on-overflow", "saturate")
        self.assertEqual([row["tensor"] for row in result["numeric"]], NAMES)
        self.assertEqual([line.split("'")[1] for line in errors.splitlines()], NAMES)

    def test_folders_are_the_same(self):
        packed = self.path("packed.zt")
        for options in (), ("--zstd",), ("--spec", "2.0"):
            self.succeed("convert", "-q", "-f", self.source, "-o", packed, *options)
            for words in (("--to", "safetensors", "--shard-size", "48KiB"), ("--to", "npy")):
                _, _, files = self.each_way("extract", packed, "-o", f"{self.out}/", *words)
                self.assertEqual(len(files), 33 if "npy" in words else 12)
            self.each_way("convert", packed, "-o", f"{self.out}/", "--to", "safetensors", "--shard-size", "48KiB")

    def test_the_earliest_error_counts_and_what_is_there_is_whole(self):
        tensors = make_safetensors.sample(NAMES, "BOOL", (64, 64))
        tensors = {name: (dtype, shape, bytes(len(data))) for name, (dtype, shape, data) in tensors.items()}
        for n in 10, 16, 31:  # in shards 4, 6 and 11
            tensors[NAMES[n]] = ("BOOL", (64, 64), bytes(4095) + b"\2")
        make_safetensors.write(self.source, tensors)
        for way in WAYS:
            self.empty()
            self.fail_with(INVALID, "convert", self.source, "-o", self.out / "model.zt", "--shards", "11", *way, says=f"tensor '{NAMES[10]}'")
            files = sorted(self.entries(self.out))
            self.assertEqual(files[:6], [f"model-0000{n}-of-00011.zt{end}" for n in (1, 2, 3) for end in ("", ".xxh3")])
            self.assertFalse([name for name in files if name.endswith("-tmp") or "-00004-" in name])
            for name in files:
                if name.endswith(".zt"):
                    self.succeed("verify", "-q", self.out / name)

    def test_an_error_leaves_no_folder(self):
        packed = self.path("packed.zt")
        self.succeed("convert", "-q", self.source, "-o", packed)
        content = bytearray(packed.read_bytes())
        content[20_000] ^= 1
        packed.write_bytes(bytes(content))
        lines = set()
        for way in WAYS:
            for words in (("--to", "safetensors", "--shard-size", "48KiB"), ("--to", "npy")):
                shutil.rmtree(self.out, ignore_errors=True)
                lines.add(self.fail_with(INVALID, "extract", packed, "-o", f"{self.out}/", *words, *way, says="tensor 'layers.1.weight'"))
                self.assertEqual(sorted(self.entries(self.folder)), ["in.safetensors", "packed.zt"])
        self.assertEqual(len(lines), 1, lines)

    def test_memory_is_that_of_one(self):
        make_safetensors.write(self.source, {f"t{n}": ("U8", (2 * MIB,), bytes(2 * MIB)) for n in range(128)})
        for options in (), ("--zstd=planes",):
            taken = []
            for shards in "1", "64":
                self.empty()
                status, _, memory = self.costs("convert", "-q", self.source, "-o", self.out / "model.zt", "--shards", shards, "--no-sync",
                                               "-T", "16", "--memory", "128MiB", *options)
                self.assertEqual(status, 0)
                taken.append(memory)
            if not self.sanitized():
                self.assertLess(max(taken), 128 + 40, taken)

    @unittest.skipUnless(support.SHIM, "the preloaded library is not built")
    def test_a_slow_disk_is_waited_for_once(self):
        """Each write takes 20 ms longer; eight files are written in little more than the time of one."""
        make_safetensors.write(self.source, {f"t{n}": ("U8", (MIB,), bytes(MIB)) for n in range(8)})
        for words in (("convert", "-o", self.out / "model.zt", "--shards", "8"), ("extract", "-o", f"{self.out}/", "--to", "npy"),
                      ("convert", "-o", f"{self.out}/", "--to", "safetensors", "--shard-size", "1MiB")):
            seconds = {}
            for threads in "1", "16":
                self.empty()
                begin = time.monotonic()
                subprocess.run([PROGRAM, words[0], "-q", self.source, *words[1:], "--no-sync", "-T", threads], check=True,
                               env=support.shim(["pwritev"], "slow", 20, self.path("log")))
                seconds[threads] = time.monotonic() - begin
            self.assertLess(seconds["16"], seconds["1"] / 2, words)
