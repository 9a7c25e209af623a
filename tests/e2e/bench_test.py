"""`ztstream bench`: what it prints as text and JSON, that sizes are those of real conversions, and that nothing stays."""
import json
import os
import random
import re
import signal
import struct
import subprocess
import time

import support
from support import INTERRUPTED, INVALID, IO, PROGRAM, USAGE

import numpy

import make_safetensors

OPTIONS = ["", "--zstd", "--zstd=huffman", "--zstd=planes"]


def works(options, reads):
    """The names of what is measured, in order."""
    return [f"read from {reads}", "write and sync",
            *(f"convert to {where} {each}".strip() for where in ("nowhere", "a file") for each in options)]


class BenchCommand(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.source = self.path("weights.safetensors")
        # 3 MiB that compress to about half: random nibbles.
        rand = random.Random(1)
        nibbles = bytes(rand.randrange(16) for _ in range(1 << 20))
        half = 1 << 19
        self.source.write_bytes(make_safetensors.encode({
            name: ("U8", [len(data)], data)
            for name, data in (("a", nibbles), ("b", nibbles), ("c", nibbles[:half]), ("d", nibbles[half:]))}))
        self.total = 3 << 20

    def test_the_folder_to_write_to(self):
        for folder in self.path("missing"), "s3://bucket/folder", self.source:
            self.fail_with(IO, "bench", self.source, "-o", folder,
                           says=f"{folder}: it is no folder of this machine; -o names one to write to")

    def test_json(self):
        report = self.json("bench", "--json", "-T", "2", "--runs", "2", self.source)
        self.assertEqual(list(report), ["schema", "cmd", "ok", "inputs", "bytes_in", "bytes_sample", "bytes_estimated", "threads",
                                        "load", "reads_from", "measurements", "suggestions"])
        self.assertEqual((report["bytes_in"], report["bytes_sample"], report["bytes_estimated"], report["threads"]),
                         (self.total, self.total, self.total, 2))
        self.assertGreaterEqual(report["load"], 0)
        rows = report["measurements"]
        self.assertEqual([row["work"] for row in rows], works(OPTIONS, report["reads_from"]))
        for row in rows:
            self.assertEqual(list(row), ["work", "runs", "seconds", "seconds_min", "seconds_max", "bytes_per_second"])
            self.assertEqual(row["runs"], 2)
            self.assertGreater(row["seconds_min"], 0)
            self.assertLessEqual(row["seconds_min"], row["seconds"])
            self.assertLessEqual(row["seconds"], row["seconds_max"])
            self.assertAlmostEqual(row["bytes_per_second"], self.total / row["seconds"], delta=1)

        # Sizes are what conversions with those options give; seconds are those of a file like it that was made.
        suggestions = report["suggestions"]
        self.assertEqual(sorted(each["options"] for each in suggestions), OPTIONS)
        for each in suggestions:
            self.assertEqual(list(each), ["options", "seconds", "seconds_min", "seconds_max", "limit", "bytes"])
            self.succeed("convert", "-q", "-f", self.source, "-o", "o.zt", *each["options"].split())
            self.assertEqual(each["bytes"], os.path.getsize(self.path("o.zt")))
            (row,) = [row for row in rows if row["work"] == f"convert to a file {each['options']}".strip()]
            for member in ("seconds", "seconds_min", "seconds_max"):
                self.assertAlmostEqual(each[member], row[member], places=9)
            self.assertIn(each["limit"], ("reading", "working", "writing"))
        self.assertEqual([each["seconds"] for each in suggestions], sorted(each["seconds"] for each in suggestions))

    def test_for_as_many_bytes(self):
        """Ten times as much is estimated at ten times the seconds and bytes, and is read from the disk."""
        report = self.json("bench", "--json", "--runs", "1", "--for", "30MiB", self.source)
        self.assertEqual((report["bytes_in"], report["bytes_estimated"], report["reads_from"]), (self.total, 10 * self.total, "disk"))
        for each in report["suggestions"]:
            (row,) = [row for row in report["measurements"] if row["work"] == f"convert to a file {each['options']}".strip()]
            self.assertAlmostEqual(each["seconds"], 10 * row["seconds"], places=9)
            self.succeed("convert", "-q", "-f", self.source, "-o", "o.zt", *each["options"].split())
            self.assertAlmostEqual(each["bytes"], 10 * os.path.getsize(self.path("o.zt")), delta=10)

    def test_text(self):
        lines = self.succeed("bench", "-T", "1", "--for", "30MiB", self.source).decode().splitlines()
        self.assertRegex(lines[0], r"\A3\.00 MiB of 3\.00 MiB; medians of 3 runs in turn; 1 thread, load \d+\.\d before\Z")
        self.assertEqual(lines[1].split(), "a run seconds fastest to slowest GB/s".split())
        for line, work in zip(lines[2:], works(OPTIONS, "disk")):
            self.assertRegex(line, rf"\A{re.escape(work)} +\d+\.\d{{3}} +\d+\.\d{{3}} to \d+\.\d{{3}} +\d+\.\d{{3}}\Z")
        self.assertEqual((lines[12], lines[13].split()), ("", "for 30.00 MiB seconds fastest to slowest limit output".split()))
        self.assertEqual(len(lines), 18)
        for line in lines[14:]:
            self.assertRegex(line, r"\Aztstream convert(| --zstd| --zstd=huffman| --zstd=planes) +\d+\.\d +\d+\.\d to \d+\.\d +(reading|working|writing)"
                                   r" +\d+\.\d\d MiB\Z")
        for block in (lines[1:12], lines[13:]):
            self.assertEqual(len({len(line) for line in block}), 1, "columns in line")

    def test_floats_are_measured_as_planes(self):
        source = self.safetensors("floats.safetensors", make_safetensors.sample(["w", "v"], "BF16", (500, 100)))
        report = self.json("bench", "--json", "-T", "1", "--runs", "1", source)
        self.assertEqual([row["work"] for row in report["measurements"]], works(OPTIONS, report["reads_from"]))
        self.assertEqual(sorted(each["options"] for each in report["suggestions"]), OPTIONS)
        self.assertIn("\nztstream convert --zstd=planes ", self.succeed("bench", "-T", "1", "--runs", "1", source).decode())

    def test_a_compressed_file_is_decompressed_by_raw(self):
        self.succeed("convert", "-q", "--zstd", self.source, "-o", "z.zt")
        report = self.json("bench", "--json", "-T", "1", "--runs", "1", self.path("z.zt"))
        self.assertEqual([row["work"] for row in report["measurements"]],
                         works(["--raw", *OPTIONS[1:]], report["reads_from"]))
        (raw,) = [each for each in report["suggestions"] if each["options"] == "--raw"]
        self.succeed("convert", "-q", "--raw", self.path("z.zt"), "-o", "raw.zt")
        self.assertEqual(raw["bytes"], os.path.getsize(self.path("raw.zt")))

    def test_what_a_killed_run_left_goes(self):
        left = []
        while not left:
            process = subprocess.Popen([PROGRAM, "bench", "--runs", "100000", self.source], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, cwd=self.folder)
            while process.poll() is None and self.entries() == ["weights.safetensors"]:
                pass
            process.kill()
            process.wait()
            left = [name for name in self.entries() if name != "weights.safetensors"]
        self.succeed("bench", "--runs", "1", self.source)
        self.assertEqual(self.entries(), ["weights.safetensors"], left)

    def test_nothing_stays(self):
        scratch = self.path("scratch")
        scratch.mkdir()
        before = self.source.read_bytes()
        self.succeed("bench", "--runs", "1", "-o", scratch, self.source)
        self.succeed("bench", "--runs", "1", self.source)
        self.assertEqual(self.entries(), ["scratch", "weights.safetensors"])
        self.assertEqual(self.entries(scratch), [])
        self.assertEqual(self.source.read_bytes(), before)

    def test_limit(self):
        def bytes_of(limit):
            return self.json("bench", "--json", "-T1", "--runs", "1", "--limit", limit, self.source)["bytes_sample"]
        self.assertEqual(bytes_of("3MiB"), self.total)
        self.assertEqual(bytes_of("2MiB"), 2 << 20)  # a and b
        self.assertEqual(bytes_of("1536KiB"), 3 << 19)  # a and c: b would be too much
        self.assertEqual(bytes_of("1"), 1 << 19)  # none fits: the smallest

    def test_what_cannot_be_read_is_not_measured(self):
        path = self.path("t.npz")
        numpy.savez(path, a=numpy.zeros(1000, "<f4"), s=numpy.array(["x"]))
        self.put("ztstream-bench", b"a name like the one of what bench writes")
        found = self.json("bench", "--json", "--runs", "1", path)
        self.assertEqual((found["bytes_in"], found["bytes_sample"]), (4000, 4000))

    def test_folder_of_shards(self):
        shards = self.path("model")
        shards.mkdir()
        for number in (1, 2):
            make_safetensors.write(shards / f"model-{number:05}-of-00002.safetensors",
                                   make_safetensors.sample([f"t{number}"], "F32", (1000,)))
        (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {
            f"t{number}": f"model-{number:05}-of-00002.safetensors" for number in (1, 2)}}))
        before = self.entries(shards)
        self.assertEqual(self.json("bench", "--json", "--runs", "1", shards)["bytes_in"], 8000)
        self.assertEqual(self.entries(shards), before)

    def test_errors(self):
        empty = self.path("empty.safetensors")
        empty.write_bytes(struct.pack("<Q", 2) + b"{}")
        garbage = self.put("garbage.bin", b"not a checkpoint at all")
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        self.fail_with(USAGE, "bench")
        self.fail_with(USAGE, "bench", "-", says="standard input: bench reads its input several times")
        self.fail_with(USAGE, "bench", "--limit", "0", self.source, says="--limit: '0' is not a size")
        self.fail_with(USAGE, "bench", "--limit", "much", self.source, says="much")
        self.fail_with(USAGE, "bench", "--runs", "0", self.source, says="--runs: '0' is not a number from 1 to 1000000")
        self.fail_with(USAGE, "bench", "--runs", "-1", self.source, says="--runs")
        valueless = self.safetensors("valueless.safetensors", {"w": ("F32", [0, 4], b"")})
        for path in (empty, valueless):
            self.fail_with(USAGE, "bench", path, says=(path.name, "no tensor to measure with"))
        valueless.unlink()
        self.fail_with(INVALID, "bench", garbage, says="garbage.bin")
        self.fail_with(IO, "bench", self.path("absent.safetensors"), says="absent.safetensors")
        self.fail_with(IO, "bench", "-o", self.path("nowhere"), "--runs", "1", self.source, says="nowhere")
        self.assertEqual(self.entries(), ["empty.safetensors", "garbage.bin", "pipe", "weights.safetensors"])

    @staticmethod
    def heeds(pid, number):
        with open(f"/proc/{pid}/status") as status:
            return any(line.startswith(("SigCgt:", "SigBlk:")) and int(line.split()[1], 16) >> (number - 1) & 1 for line in status)

    def test_interrupted(self):
        """At whatever moment the signal comes: status 130, one line, no file."""
        for delay in (0, 0.05, 0.2, 0.4, 0.8):
            process = subprocess.Popen([PROGRAM, "bench", "--runs", "100000", self.source], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, cwd=self.folder)
            while process.poll() is None and not self.heeds(process.pid, signal.SIGINT):
                time.sleep(0.001)
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=60)
            self.assertEqual((support.shell_status(process), out), (INTERRUPTED, b""), errors)
            self.assertRegex(errors.decode(), r"\Aztstream: [^\n]*interrupted[^\n]*\n\Z")
            self.assertEqual(self.entries(), ["weights.safetensors"])
