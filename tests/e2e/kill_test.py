"""kill -9 at random moments of real conversions: the output is absent, old or complete, never partial.

ZT_KILLS sets how many conversions are killed (default 40), ZT_SEED the moments. Prints what was found. Complete
outputs equal an undisturbed run's, which the independent reader and verify have found good.
scripts/kill-trial.sh runs hundreds.
"""
import os
import random
import signal
import subprocess
import time

import support
import zt2read
from support import DONE, OLD, PROGRAM

import make_safetensors


class Kill(support.Output):

    def convert(self, options):
        return subprocess.Popen([PROGRAM, "convert", "-f", *options, self.source, "-o", self.output],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def setUp(self):
        super().setUp()
        self.source = self.safetensors(
            "i.safetensors", make_safetensors.sample([f"t{number}" for number in range(48)], "BF16", (512, 512)))

    def test_kills_at_random_moments(self):
        kills = int(os.environ.get("ZT_KILLS", "40"))
        moments = random.Random(int(os.environ.get("ZT_SEED", "1")))
        want, duration = {}, {}
        option_sets = [("-T", "2"), ("--zstd", "-T", "2"), ("--zstd", "-T", "1"), ("--spec", "2.0", "-T", "2"),
                       ("--spec", "2.0", "--zstd", "-T", "2"), ("--spec", "2.0", "--zstd=planes", "-T", "2"),
                       ("--canonical", "-T", "2")]
        for options in option_sets:
            start = time.monotonic()
            self.assertEqual(self.convert(options).wait(), DONE)
            duration[options] = time.monotonic() - start
            want[options] = self.output.read_bytes()
            is_2_0 = "2.0" in options or "--canonical" in options
            of = zt2read.open_file(self.output).objects if is_2_0 else support.read_zt(self.output)["objects"]
            self.assertEqual(len(of), 48)
            self.succeed("verify", "-q", self.output)
            self.output.unlink()
        found = {"absent": 0, "old": 0, "complete": 0}
        leftovers, known = 0, set()
        for number in range(kills):
            options = option_sets[number % len(option_sets)]
            older = number % 2 == 1
            if older:
                self.output.write_bytes(OLD)
            process = self.convert(options)
            time.sleep(moments.uniform(0, 1.1 * duration[options]))
            process.kill()
            status = process.wait()
            self.assertIn(status, (DONE, -signal.SIGKILL))
            content = self.output.read_bytes() if self.output.exists() else None
            if content is None:
                self.assertFalse(older, "an older output was lost")
                self.assertNotEqual(status, DONE)
                found["absent"] += 1
            elif content == OLD:
                self.assertNotEqual(status, DONE)
                found["old"] += 1
            else:
                self.assertEqual(content, want[options], "a partial output")
                found["complete"] += 1
            left = set(self.entries(self.out)) - {"o.zt"}
            for name in left:
                self.assertRegex(name, r"\A\.o\.zt\.[0-9]+-[0-9]+\.ztstream-tmp\Z")
            leftovers += len(left - known)
            known |= left
            # The next conversion to the same place removes what the killed one left.
            if number % 8 == 7:
                self.assertEqual(self.convert(options).wait(), DONE)
                self.assertEqual(self.entries(self.out), ["o.zt"])
                self.assertEqual(self.output.read_bytes(), want[options])
            self.output.unlink(missing_ok=True)
        print(f"{kills} kills: {found}, {leftovers} temporary files found after them")
