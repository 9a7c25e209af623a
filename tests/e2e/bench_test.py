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

WORKS = ["read", "convert", "convert --zstd", "convert --zstd=huffman"]
OPTIONS = ["", "--zstd", "--zstd=huffman"]


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

    def test_json(self):
        report = self.json("bench", "--json", "-T", "2", "--runs", "2", self.source)
        self.assertEqual(list(report), ["schema", "cmd", "ok", "inputs", "bytes_in", "measurements", "suggestions"])
        self.assertEqual((report["bytes_in"], report["cmd"], report["inputs"], report["ok"], report["schema"]),
                         (self.total, "bench", [str(self.source)], True, "ztstream/1"))
        rows = report["measurements"]
        self.assertEqual([(row["work"], row["threads"], row["runs"]) for row in rows],
                         [("read, first time", 2, 1), *((work, n, 2) for work in WORKS for n in (1, 2)),
                          ("write and sync", 1, 2)])
        for row in rows:
            self.assertEqual(list(row), ["work", "threads", "bytes", "runs", "seconds", "seconds_min", "seconds_max",
                                         "bytes_per_second", "ratio"])
            self.assertEqual(row["bytes"], self.total)
            self.assertGreater(row["seconds_min"], 0)
            self.assertLessEqual(row["seconds_min"], row["seconds"])
            self.assertLessEqual(row["seconds"], row["seconds_max"])
            self.assertAlmostEqual(row["bytes_per_second"], row["bytes"] / row["seconds"], delta=1)
        self.assertEqual(rows[-1]["ratio"], 1)

        # What it says of sizes is what conversions with those options give.
        sizes = {}
        for option in OPTIONS:
            self.succeed("convert", "-q", "-f", self.source, "-o", "o.zt", *option.split())
            sizes[option] = os.path.getsize(self.path("o.zt"))
        for row in rows:
            if row["work"].startswith("convert"):
                size = sizes[row["work"].removeprefix("convert").strip()]
                self.assertAlmostEqual(row["ratio"], size / self.total, places=12)
        self.assertLess(sizes["--zstd"], 0.6 * self.total)

        suggestions = report["suggestions"]
        self.assertEqual(sorted(each["options"].removesuffix("--threads 1").strip() for each in suggestions), OPTIONS)
        for each in suggestions:
            self.assertEqual(list(each), ["options", "seconds", "bytes"])
            self.assertEqual(each["bytes"], sizes[each["options"].removesuffix("--threads 1").strip()])
        seconds = [each["seconds"] for each in suggestions]
        self.assertEqual(seconds, sorted(seconds))
        # Reading, working and writing overlap: no estimate is below what writing or working takes.
        for each in suggestions:
            work = f"convert {each['options'].removesuffix('--threads 1').strip()}".strip()
            fastest = min(row["seconds"] for row in rows if row["work"] == work)
            self.assertGreaterEqual(each["seconds"] * 1.000001, fastest)
            self.assertGreaterEqual(each["seconds"] * 1.000001,
                                    each["bytes"] / rows[-1]["bytes_per_second"] * (1 - 1 / self.total))

    def test_text(self):
        lines = self.succeed("bench", "-T", "1", self.source).decode().splitlines()
        self.assertEqual(lines[0], "3.00 MiB of 3.00 MiB a run; medians of 3 runs in turn")
        self.assertEqual(lines[1].split(), "work threads seconds fastest to slowest MB/s size".split())
        number = r" +\d+\.\d{3}"
        for line, work in zip(lines[2:], ["read, first time", *WORKS, "write and sync"]):
            self.assertRegex(line, rf"\A{re.escape(work)} +1{number}{number} to {number.replace(' +', '')} +\d+\.\d +\d+\.\d%\Z")
        self.assertEqual(lines[8], "estimated for all of it, fastest first")
        self.assertEqual(len(lines), 12)
        for line in lines[9:]:
            self.assertRegex(line, r"\A  ztstream convert(| --zstd| --zstd=huffman) +\d+\.\d s   \d+\.\d\d MiB\Z")
        self.assertEqual(len({line.split(" s ")[0].rsplit(" ", 1)[0].strip() for line in lines[9:]}), 3)
        self.assertEqual(len({len(line) for line in lines[1:8]}), 1, "columns in line")

    def test_floats_are_measured_as_planes(self):
        source = self.safetensors("floats.safetensors", make_safetensors.sample(["w", "v"], "BF16", (500, 100)))
        report = self.json("bench", "--json", "-T", "1", "--runs", "1", source)
        works = [*WORKS, "convert --zstd=planes"]
        self.assertEqual([row["work"] for row in report["measurements"]], ["read, first time", *works, "write and sync"])
        self.assertEqual(sorted(each["options"] for each in report["suggestions"]), [*OPTIONS, "--zstd=planes"])
        self.succeed("convert", "-q", source, "-o", "o.zt", "--zstd=planes")
        (row,) = [row for row in report["measurements"] if row["work"].endswith("planes")]
        self.assertAlmostEqual(row["ratio"], os.path.getsize(self.path("o.zt")) / 200_000, places=12)
        self.assertIn("\n  ztstream convert --zstd=planes ", self.succeed("bench", "-T", "1", "--runs", "1", source).decode())

    def test_a_compressed_file_is_decompressed_by_raw(self):
        self.succeed("convert", "-q", "--zstd", self.source, "-o", "z.zt")
        report = self.json("bench", "--json", "-T", "1", "--runs", "1", self.path("z.zt"))
        self.assertEqual([row["work"] for row in report["measurements"]],
                         ["read, first time", "read", "convert --raw", *WORKS[2:], "write and sync"])
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
        self.succeed("bench", "--runs", "1", "--folder", scratch, self.source)
        self.succeed("bench", "--runs", "1", self.source)
        self.assertEqual(self.entries(), ["scratch", "weights.safetensors"])
        self.assertEqual(self.entries(scratch), [])
        self.assertEqual(self.source.read_bytes(), before)

    def test_limit(self):
        def bytes_of(limit):
            rows = self.json("bench", "--json", "-T1", "--runs", "1", "--limit", limit, self.source)["measurements"]
            return {row["bytes"] for row in rows}
        self.assertEqual(bytes_of("3MiB"), {self.total})
        self.assertEqual(bytes_of("2MiB"), {2 << 20})  # a and b
        self.assertEqual(bytes_of("1536KiB"), {3 << 19})  # a and c: b would be too much
        self.assertEqual(bytes_of("1"), {1 << 19})  # none fits: the smallest

    def test_what_cannot_be_read_is_not_measured(self):
        path = self.path("t.npz")
        numpy.savez(path, a=numpy.zeros(1000, "<f4"), s=numpy.array(["x"]))
        self.put("ztstream-bench", b"a name like the one of what bench writes")
        found = self.json("bench", "--json", "--runs", "1", path)
        self.assertEqual((found["bytes_in"], {row["bytes"] for row in found["measurements"]}), (4000, {4000}))

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
        self.fail_with(USAGE, "bench", empty, says=("empty.safetensors", "no tensor to measure with"))
        self.fail_with(INVALID, "bench", garbage, says="garbage.bin")
        self.fail_with(IO, "bench", self.path("absent.safetensors"), says="absent.safetensors")
        self.fail_with(IO, "bench", "--folder", self.path("nowhere"), "--runs", "1", self.source, says="nowhere")
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
