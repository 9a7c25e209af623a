"""A conversion that fails or is interrupted leaves no output and no temporary file, and keeps an older output."""
import signal
import subprocess
import time

import support
from support import INTERRUPTED, INVALID, IO, OLD, PATIENCE, PROGRAM

import make_safetensors


class Failure(support.Output):

    def check_nothing_new(self, kept):
        self.assertEqual(self.entries(self.out), ["o.zt"] if kept else [])
        if kept:
            self.assertEqual(self.output.read_bytes(), OLD)

    def both_ways(self):
        """Once without an older output, once with one that may be replaced."""
        for kept in (False, True):
            if kept:
                self.output.write_bytes(OLD)
            yield kept

    def test_bad_input(self):
        source = self.put("bad.safetensors", make_safetensors.encode(make_safetensors.sample())[:-1])
        for kept in self.both_ways():
            self.fail_with(INVALID, "convert", "-f", source, "-o", self.output)
            self.check_nothing_new(kept)

    def test_input_that_ends_midway(self):
        """Standard input cut short after most of the data was written out."""
        content = make_safetensors.encode(make_safetensors.sample("abcdefgh", "U8", (1 << 20,)))
        for options in [[], ["--zstd"]]:
            for kept in self.both_ways():
                self.fail_with(INVALID, "convert", *options, "-f", "-", "-o", self.output, stdin=content[:-1000])
                self.check_nothing_new(kept)
            self.output.unlink(missing_ok=True)

    def test_no_room_for_the_output(self):
        """A file-size limit stands in for a full disk."""
        source = self.safetensors("i.safetensors", make_safetensors.sample("abcd", "U8", (1 << 20,)))
        for kept in self.both_ways():
            process = subprocess.run(
                ["bash", "-c", 'trap "" XFSZ; ulimit -f 1024; exec "$@"', "bash", PROGRAM, "convert", "-f", source,
                 "-o", self.output], capture_output=True, timeout=PATIENCE)
            self.assertEqual(process.returncode, IO, process.stderr)
            self.assertRegex(process.stderr.decode(), r"\Aztstream: [^\n]+\n\Z")
            self.check_nothing_new(kept)

    def test_output_folder_missing(self):
        source = self.safetensors("i.safetensors", make_safetensors.sample())
        self.fail_with(IO, "convert", source, "-o", self.path("none/o.zt"), says="none")
        self.assertEqual(self.entries(), ["i.safetensors", "out"])

    def test_output_is_a_folder(self):
        source = self.safetensors("i.safetensors", make_safetensors.sample())
        self.expect((IO, support.USAGE, support.EXISTS), "convert", "-f", source, "-o", self.out)
        self.assertEqual(self.entries(self.out), [])

    def interrupt(self, process, when, signal_number=signal.SIGINT):
        """Sends the signal once `when()` holds; the process must end with the interrupted status, before its work is done."""
        deadline = time.monotonic() + PATIENCE
        while not when():
            self.assertIsNone(process.poll(), "ended before it could be interrupted")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        process.send_signal(signal_number)
        process.wait(timeout=PATIENCE)    # before its standard input is closed, so that its end is no reason to stop
        output, errors = process.communicate()
        self.assertEqual((process.returncode, output), (INTERRUPTED, b""), errors)
        self.assertRegex(errors.decode(), r"\Aztstream: [^\n]*interrupted[^\n]*\n\Z")

    def test_interrupted_while_waiting_for_standard_input(self):
        header = {"a": {"dtype": "U8", "shape": [8 << 20], "data_offsets": [0, 8 << 20]}}
        begun = make_safetensors.raw(header, bytes(1 << 20))
        for number in (signal.SIGINT, signal.SIGTERM):
            for kept in self.both_ways():
                process = subprocess.Popen([PROGRAM, "convert", "-f", "-", "-o", self.output], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                process.stdin.write(begun)
                process.stdin.flush()
                # The temporary file is the sign that the conversion has begun.
                self.interrupt(process, lambda: len(self.entries(self.out)) > kept, number)
                self.check_nothing_new(kept)
            self.output.unlink(missing_ok=True)

    def test_interrupted_while_converting_a_file(self):
        """A sparse input that takes a while: compressed, so that little is written to the disk."""
        source = self.path("i.safetensors")
        make_safetensors.write_hole(source, 64 << 30)
        for kept in self.both_ways():
            process = subprocess.Popen(
                [PROGRAM, "convert", "--zstd", "-f", source, "-o", self.output], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.interrupt(process, lambda: len(self.entries(self.out)) > kept)
            self.check_nothing_new(kept)

    def test_killed_outright_keeps_the_older_output(self):
        header = {"a": {"dtype": "U8", "shape": [8 << 20], "data_offsets": [0, 8 << 20]}}
        begun = make_safetensors.raw(header, bytes(1 << 20))
        self.output.write_bytes(OLD)
        process = subprocess.Popen([PROGRAM, "convert", "-f", "-", "-o", self.output], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(begun)
        process.stdin.flush()
        while len(self.entries(self.out)) < 2:
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        process.kill()
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertEqual(self.output.read_bytes(), OLD)

    def test_hostile_sizes_fit_a_memory_limit(self):
        """A hostile header does not make the program allocate what the input's size does not justify."""
        for header in ['{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % ((1 << 50), (1 << 50)),
                       '{"a":{"dtype":"F64","shape":[%d],"data_offsets":[0,8]}}' % (1 << 58)]:
            source = self.put("bad.safetensors", make_safetensors.raw(header, bytes(8)))
            process = subprocess.run(
                ["bash", "-c", 'ulimit -v "$1"; shift; exec "$@"', "bash", str(1 << 20), PROGRAM, "convert", source,
                 "-o", self.output], capture_output=True, timeout=PATIENCE)
            if b"AddressSanitizer" in process.stderr or b"ThreadSanitizer" in process.stderr:
                self.skipTest("the sanitizers need more address space than the limit leaves")
            self.assertEqual(process.returncode, INVALID, process.stderr)
            self.check_nothing_new(False)
