"""What `convert -n` says that a file will take: exact of a small input, near of a large one, from a bounded read."""
import json
import os
import re
import subprocess

import numpy

import support
from support import PROGRAM

import make_safetensors

MIB = 1 << 20


def weights(name, dtype, mib, seed):
    """A tensor of normal numbers, {name: (dtype, shape, bytes)}."""
    numbers = numpy.random.default_rng(seed).normal(0, 0.02, mib * MIB // {"BF16": 2, "F32": 4}[dtype]).astype("<f4")
    if dtype == "BF16":
        numbers = (numbers.view("<u4") >> 16).astype("<u2")
    return {name: (dtype, [numbers.size], numbers.tobytes())}


class Estimate(support.EndToEnd):

    def estimated(self, *arguments):
        return self.json("convert", "-n", "--json", *arguments)["output"].get("bytes_estimated")

    def written(self, *arguments):
        self.succeed("convert", "-q", "-f", *arguments, "-o", "o.zt")
        return os.path.getsize(self.path("o.zt"))

    def test_a_small_input_is_estimated_to_the_byte(self):
        source = self.safetensors("m.safetensors", make_safetensors.sample(["a", "b"], "F32", (300, 70))
                                  | make_safetensors.sample(["c"], "U8", (5000,)), {"by": "x"}, {"d": "a"})
        for options in (["--zstd"], ["--zstd=9"], ["--zstd=huffman"], ["--zstd=planes"], ["--zstd=planes", "--dtype", "bf16"],
                        ["--zstd", "--spec", "2.0"], ["--zstd", "--align", "4096"], ["--zstd", "--exclude", "a"]):
            self.assertEqual(self.estimated(source, *options), self.written(source, *options), options)
        self.assertIsNone(self.estimated(source))
        self.assertNotIn("estimated", self.succeed("convert", "-n", source).decode())

    def test_a_large_input_is_estimated_from_a_sample(self):
        tensors = {}
        for i in range(6):
            tensors |= weights(f"layers.{i}.w", "BF16", 12, i) | {f"layers.{i}.norm": ("F32", [256], b"\0\0\x80?" * 256)}
        tensors |= weights("head", "F32", 20, 7) | {"mask": ("U8", [9 * MIB], bytes(9 * MIB))}
        source = self.safetensors("m.safetensors", tensors)
        for options in (["--zstd=planes"], ["--zstd"], ["--zstd=huffman", "--spec", "2.0"], ["--zstd=planes", "--dtype", "bf16"]):
            self.assertAlmostEqual(self.estimated(source, *options) / self.written(source, *options), 1, delta=0.02, msg=options)
        last = self.succeed("convert", "-n", "--zstd=planes", source).decode().splitlines()[-1]
        self.assertRegex(last, r"^plan: zTensor 1\.2, 14 of 14 tensors, 101\.01 MiB in, 101\.01 MiB out before compression; "
                               r"estimated size \d\d\.\d\d MiB$")

    def test_many_small_tensors(self):
        bits = numpy.random.default_rng(1).integers(0, 16, 40 * MIB, dtype=numpy.uint8).tobytes()
        source = self.safetensors("m.safetensors", {f"t{i}": ("U8", [4096], bits[4096 * i:4096 * (i + 1)]) for i in range(10240)})
        for options in (["--zstd"], ["--zstd", "--spec", "2.0"]):
            self.assertAlmostEqual(self.estimated(source, *options) / self.written(source, *options), 1, delta=0.02, msg=options)

    def test_what_is_read_in_order_is_sampled_from_its_beginning(self):
        rng = numpy.random.default_rng(1)
        numpy.savez_compressed(self.path("m.npz"), zeros=numpy.zeros(3 * MIB, "<f4"),
                               **{f"t{i}": rng.normal(0, 0.02, 3 * MIB).astype("<f4") for i in range(3)})
        self.assertAlmostEqual(self.estimated("m.npz", "--zstd=planes") / self.written("m.npz", "--zstd=planes"), 1, delta=0.02)

    def test_what_is_copied_counts_as_it_is(self):
        source = self.safetensors("m.safetensors", weights("w", "BF16", 40, 1))
        self.succeed("convert", "-q", "--zstd=planes", source, "-o", "m.zt")
        self.assertAlmostEqual(self.estimated("m.zt"), os.path.getsize(self.path("m.zt")), delta=1000)
        self.assertAlmostEqual(self.estimated("m.zt", "--zstd") / self.written("m.zt", "--zstd"), 1, delta=0.02)

    def test_shards(self):
        source = self.safetensors("m.safetensors", make_safetensors.sample(["a", "b"], "F32", (300, 70)))
        text = self.succeed("convert", "-n", "--zstd", "--shards", "2", source, "-o", "o.zt").decode()
        self.assertRegex(text.splitlines()[-1], r"^the plan: 2 shards, sha256:[0-9a-f]{64}; estimated size \d+\.\d\d KiB$")

    def test_no_more_is_read_than_the_sample(self):
        header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 32], "data_offsets": [0, 1 << 34]}}).encode()
        source = self.put("holes.safetensors", len(header).to_bytes(8, "little") + header)
        os.truncate(source, 8 + len(header) + (1 << 34))
        process = subprocess.Popen([PROGRAM, "convert", "-n", "--zstd", source], stdout=subprocess.PIPE, cwd=self.folder)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with open(f"/proc/{process.pid}/io") as counts:
            read = int(re.search(r"^rchar: (\d+)$", counts.read(), re.M)[1])
        text = process.communicate()[0].decode()
        self.assertIn("16.00 GiB out before compression; estimated size ", text)
        self.assertGreater(read, 32 * MIB)
        self.assertLess(read, 34 * MIB)

    def test_what_can_be_read_but_once_is_not_estimated(self):
        source = self.safetensors("m.safetensors")
        output = json.loads(self.succeed("convert", "-n", "--json", "--zstd", "-", stdin=source.read_bytes()))["output"]
        self.assertEqual(output, {"spec": "1.2"})

    def test_a_number_that_does_not_fit_is_for_the_conversion_to_find(self):
        source = self.safetensors("m.safetensors", {"w": ("F32", [1000], numpy.full(1000, 1e30, "<f4").tobytes())})
        self.assertIsInstance(self.estimated(source, "--zstd", "--dtype", "f16"), int)
