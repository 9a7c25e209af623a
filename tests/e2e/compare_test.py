"""bench/compare.py: a smoke run of some steps, what it keeps, and how it takes failures."""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import support
from support import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipUnless(importlib.util.find_spec("numpy"), "the data are made with numpy")
class Compare(support.EndToEnd):

    def compare(self, *arguments, status=0):
        process = subprocess.run([sys.executable, "-B", ROOT / "bench/compare.py", "--quick", "--program", PROGRAM,
                                  "--docs", self.folder, "--folder", self.folder, *arguments],
                                 capture_output=True, text=True, timeout=300)
        self.assertEqual(process.returncode, status, process.stdout + process.stderr)
        return process.stdout

    def results(self):
        return json.loads(self.path("benchmarks/results.json").read_text())["steps"]

    def page(self):
        return self.path("BENCHMARKS.md").read_text() + self.path("benchmarks/details.md").read_text()

    def test_steps_are_kept_and_joined(self):
        steps = self.compare("--list").split()
        self.assertIn("goals/raw", steps)
        self.assertEqual(self.entries(), [])
        notes = self.put("benchmarks/notes.md", b"## By hand\n\nA person's words.\n")
        self.compare("throughput/bf16/warm")
        rows = self.results()["throughput/bf16/warm"]["rows"]
        self.assertEqual([row["name"] for row in rows][:5],
                         ["cp", "numpy.save", "ztstream", "ztstream --zstd", "ztstream --zstd=planes"])
        for row in rows:
            self.assertLessEqual(row["low"], row["median"])
            self.assertLessEqual(row["median"], row["high"])
        sizes = {row["name"]: row["output"] / row["input"] for row in rows}
        self.assertEqual(sizes["cp"], 1)
        self.assertLess(sizes["ztstream --zstd"], 0.8)
        self.compare("goals/inspect")
        self.assertEqual(list(self.results()), ["throughput/bf16/warm", "goals/inspect"])
        self.assertEqual(self.results()["throughput/bf16/warm"]["rows"], rows)
        for text in ("| `inspect` of 2,000 objects | at most 0.5 s |", "| bf16, warm | ", "A person's words."):
            self.assertIn(text, self.page())
        self.assertTrue(notes.exists())
        before = self.page()
        self.assertNotIn("[1/", self.compare("goals/inspect", "--resume"))
        self.compare("--draw")
        self.assertEqual(self.page(), before)
        self.assertEqual([name for name in self.entries() if name.startswith("ztstream-compare-")], [])

    def test_the_page_is_what_is_made_of_the_results(self):
        shutil.copytree(ROOT / "docs/benchmarks", self.path("benchmarks"))
        self.compare("--draw")
        self.assertEqual(self.page(), (ROOT / "docs/BENCHMARKS.md").read_text() + (ROOT / "docs/benchmarks/details.md").read_text(),
                         "not current: run bench/compare.py --draw")

    def test_failures_are_reported_and_the_rest_goes_on(self):
        wrong = self.put("wrong", b"#!/bin/sh\necho 'Error: out of luck' >&2\nexit 3\n")
        os.chmod(wrong, 0o755)
        self.compare("goals/reference", "goals/inspect", "--reference", wrong, status=1)
        found = self.results()
        self.assertEqual(found["goals/reference"]["error"], "reference: status 3: Error: out of luck")
        self.assertEqual(len(found["goals/inspect"]["rows"]), 2)
        self.assertIn("- goals/reference: reference: status 3: Error: out of luck\n", self.page())
        self.compare("--resume", "goals/reference")  # without one: not measured, because
        self.assertIn("not measured: --reference was not given", self.page())
        self.assertNotIn("out of luck", self.page())

    def test_the_canonical_form_beside_the_references(self):
        """Its own program stands in for the reference's: the goal is missed, and told."""
        other = self.put("other", f'#!/bin/sh\nexec "{PROGRAM}" "$1" -q -f --canonical "$2" -o "$3"\n'.encode())
        os.chmod(other, 0o755)
        self.compare("goals/zt2")
        self.assertIn("| at least 5 |  | not measured: --reference-2 was not given |", self.page())
        self.compare("goals/zt2", "--reference-2", other)
        found = self.results()["goals/zt2"]
        self.assertEqual([row["name"] for row in found["rows"]], ["1.2 raw -T2", "2.0 raw -T2", "--canonical -T2",
                                                                  "--canonical -T2, synced", "reference 2.x, synced"])
        self.assertEqual(len({row["output"] for row in found["rows"][2:]}), 1)
        self.assertEqual([goal["bound"] for goal in found["goals"]], [1.1, 5])
