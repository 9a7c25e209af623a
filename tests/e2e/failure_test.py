"""Pipes and devices for what is read, written and said. What fails midway is fault_test.py's and
signal_test.py's."""
import fcntl
import json
import os
import stat
import subprocess
import time

import support
from support import EXISTS, INVALID, IO, PATIENCE, PROGRAM

import make_safetensors


class Streams(support.EndToEnd):
    """Pipes as inputs, outputs and for what is said."""

    def tied(self):
        """Weights under two names, and their bytes as numbers under a third."""
        header = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "y": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                  "z": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]}, "last": {"dtype": "I8", "shape": [3], "data_offsets": [8, 11]}}
        return self.put("tied.safetensors", make_safetensors.raw(header, bytes(range(11))))

    def test_tied_tensors_in_a_pipe(self):
        source = self.tied()
        content = source.read_bytes()
        self.succeed("convert", "-q", source, "-o", self.path("m.zt"))
        for output in ("o.npz", "o.safetensors", "o.gguf"):
            self.succeed("extract", "-q", "-", "-o", self.path(output), stdin=content)
            self.succeed("diff", "--attributes", "none", source, self.path(output))
        for words in (["extract", "-", "-o", f"{self.path('d')}/"], ["diff", "-", source],
                      ["verify", self.path("m.zt"), "--against", "-"], ["convert", "-", "--dtype", "x=bf16", "-o", self.path("o.zt")]):
            with self.subTest(words[0]):
                self.fail_with(support.UNSUPPORTED, *words, stdin=content,
                               says=("standard input: tensor '", "a pipe cannot go back from byte ", "; save it as a file, and name that"))
        self.assertEqual(self.entries(), ["m.zt", "o.gguf", "o.npz", "o.safetensors", "tied.safetensors"])

    def test_ends_that_do_not_block(self):
        source = self.safetensors("i.safetensors", make_safetensors.sample("abcd", "U8", (1 << 18,)))
        self.succeed("convert", "-q", source, "-o", self.path("m.zt"))
        for words, stdin, want in ((["convert", source, "-o", "-"], None, self.path("m.zt").read_bytes()),
                                   (["convert", "-q", "-", "-o", self.path("n.zt")], source.read_bytes(), b""),
                                   (["inspect", "--json", *[self.path("m.zt")] * 200], None, None)):
            reading, writing = os.pipe()
            giving, taken = os.pipe()
            for end in (writing, giving):
                fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK)
            process = subprocess.Popen([PROGRAM, *map(str, words)], stdin=giving, stdout=writing, stderr=subprocess.PIPE)
            os.close(writing)
            os.close(giving)
            time.sleep(0.2)
            with os.fdopen(taken, "wb") as to:
                to.write(stdin or b"")
            with os.fdopen(reading, "rb") as back:
                output = back.read()
            errors = process.communicate(timeout=PATIENCE)[1]
            self.assertEqual(process.returncode, support.DONE, errors)
            self.assertEqual(output, want if want is not None else self.succeed(*words))
        self.succeed("diff", "-q", source, self.path("n.zt"))

    def test_other_names_of_standard_output(self):
        source = self.safetensors("i.safetensors")
        self.succeed("convert", "-q", source, "-o", self.path("m.zt"))
        self.path("link").symlink_to("/dev/stdout")
        for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/./stdout", "//dev/stdout", self.path("link")):
            done = self.expect(support.DONE, "convert", "--json", source, "-o", name)
            self.assertEqual(done.stdout, self.path("m.zt").read_bytes())
            self.assertTrue(json.loads(done.stderr)["ok"])

    def test_errors_are_where_the_product_is_not(self):
        """With -o - they go to standard error, whatever is wrong; else to standard output."""
        for words, place in ((["convert", "none", "-o", "-"], "stderr"), (["convert", "none", "--bogus", "-o-"], "stderr"),
                             (["extract", "none", "--output=/dev/stdout", "-T", "x"], "stderr"),
                             (["convert", "none", "-o", "o.zt"], "stdout"), (["convert", "none", "-o", "o.zt", "--bogus"], "stdout")):
            done = self.run_program(*words, "--json")
            lines = {name: [json.loads(line) for line in getattr(done, name).decode().splitlines() if line.startswith("{")]
                     for name in ("stdout", "stderr")}
            self.assertEqual([row["ok"] for row in lines.pop(place)], [False], done)
            self.assertEqual(list(lines.values()), [[]], done)

    def test_a_full_device_is_told(self):
        model, bad = self.path("m.zt"), self.path("bad.zt")
        self.succeed("convert", "-q", self.safetensors("i.safetensors"), "-o", model)
        content = model.read_bytes()
        self.put("flipped.zt", bytes([*content[:70], content[70] ^ 1, *content[71:]]))
        bad.write_bytes(content[:-9])
        for words in (["verify", "--json", model], ["verify", "--json", bad], ["verify", "--json", self.path("flipped.zt")],
                      ["verify", model], ["inspect", model], ["id", model], ["show", "--json", model, "a"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                                      timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, IO, done)
            self.assertRegex(done.stderr, rb"ztstream: standard output: (tensor 'a': )?cannot write: No space left on device\n")

    def test_a_name_that_is_too_long_is_told_before_the_work(self):
        """The input is not read: it ends midway, and nobody says so."""
        source = self.safetensors("i.safetensors")
        cut = self.put("cut.safetensors", source.read_bytes()[:-1])
        self.fail_with(INVALID, "convert", cut, "-o", self.path("o.zt"))
        model = self.path("m.zt")
        self.succeed("convert", "-q", source, "-o", model)
        long = "a" * 253
        for words in (["convert", source, "-o", self.path(long + ".zt")], ["convert", source, "-f", "-o", self.path(long + ".zt")],
                      ["extract", model, "-o", self.path(long + ".npz")], ["extract", model, "-o", f"{self.path('b' * 260)}/"]):
            self.expect(IO, *words, says=" of this name: File name too long")

    def test_a_block_device_is_written_over_with_f_alone(self):
        device = self.path("device")
        try:
            os.mknod(device, stat.S_IFBLK | 0o600, os.makedev(7, 1 << 19))  # a loop device that is not there
        except PermissionError:
            self.skipTest("block devices are made by root")
        source = self.safetensors("i.safetensors")
        self.fail_with(EXISTS, "convert", source, "-o", device, says="the output is a block device; use -f to replace it")

    def test_errors_name_the_shard_and_the_tensor(self):
        """As data too, where the input is an index or a folder."""
        first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
        self.put(f"f/{first}", make_safetensors.encode({"a": ("U8", (8,), bytes(8))}))
        self.put(f"f/{second}", make_safetensors.encode({"b": ("U8", (8,), bytes(8))})[:-1])
        index = self.put("f/model.safetensors.index.json", json.dumps({"weight_map": {"a": first, "b": second}}).encode())
        for given in (index, self.path("f")):
            for words in (["convert", given, "-o", self.path("o.zt")], ["inspect", given], ["id", given], ["diff", given, given]):
                error = json.loads(self.expect(INVALID, *words, "--json").stdout)["error"]
                self.assertEqual(error["file"], str(self.path("f") / second))
                self.assertTrue(error["message"].startswith(f"{error['file']}: the tensors take 8 bytes"), error)
