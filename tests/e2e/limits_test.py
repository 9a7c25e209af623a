"""What the machine runs out of: space, memory, file size, a reader of the pipe; inputs that change; large counts.

Where a file system of its own is needed the test mounts one in a namespace of its own, and says so where it may not.
ZT_LIMITS=all adds the manifest of more than 1 GiB, which takes some gigabytes of memory.
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time
import unittest

import support
from support import DONE, INVALID, IO, OLD, PATIENCE, PROGRAM, USAGE

import make_safetensors

ONE_LINE = r"\Aztstream: [^\n]+\n\Z"


class Limits(support.Output):

    def source_of(self, *names, size=1 << 20, name="i.safetensors"):
        source = self.safetensors(name, make_safetensors.sample(names or "abcd", "U8", (size,)))
        return source

    def sparse_source(self, size, name="i.safetensors"):
        source = self.path(name)
        make_safetensors.write_hole(source, size)
        return source

    def shell(self, script, *arguments):
        """Runs bash with $PROGRAM set; `script` sees the arguments as $1..."""
        return subprocess.run(["bash", "-c", script, "bash", *map(str, arguments)], capture_output=True, timeout=PATIENCE,
                              stdin=subprocess.DEVNULL, env=dict(os.environ, PROGRAM=PROGRAM))

    def mounted(self, mount_options, script, *arguments):
        """As shell, with a tmpfs at self.out that nobody else sees."""
        if shutil.which("unshare") is None or self.shell(
                'unshare -m mount -t tmpfs -o size=1m none "$1"', self.out).returncode != 0:
            self.skipTest("mounting a file system needs privileges that are not there")
        return self.shell('out=$1; shift; export out; unshare -m bash -c \'mount -t tmpfs -o "$1" none "$out" && shift && '
                          f'{script}\' bash "$@"', self.out, mount_options, *arguments)

    def test_full_disk(self):
        source = self.source_of()
        for options in (["-T", "1"], ["-T", "2"], ["--zstd", "-T", "1"], ["--zstd", "-T", "3"]):
            for older in (False, True):
                process = self.mounted(
                    "size=2m", ('printf "an older output" > "$out/o.zt"; ' if older else "") +
                    '"$PROGRAM" convert -q -f "$@" -o "$out/o.zt"; echo $?; ls -A "$out"; cat "$out"/* 2>/dev/null',
                    *options, source)
                self.assertEqual(process.stdout, b"6\no.zt\nan older output" if older else b"6\n", process.stderr)
                errors = process.stderr.decode()
                self.assertRegex(errors, ONE_LINE)
                self.assertTrue(errors.startswith(f"ztstream: {self.output}: "), errors)
                self.assertIn("No space left on device", errors)

    def test_disk_with_just_enough_room(self):
        source = self.source_of()
        process = self.mounted("size=5m", '"$PROGRAM" convert -q "$1" -o "$out/o.zt" && "$PROGRAM" verify -q "$out/o.zt"',
                               source)
        self.assertEqual(process.returncode, DONE, process.stderr)

    def test_no_room_for_another_file(self):
        model = self.path("model")
        os.mkdir(model)
        make_safetensors.write(os.path.join(model, "model.safetensors"), {"w": ("U8", [2], b"ab")})
        for i in range(20):
            pathlib.Path(model, f"{i}.json").write_bytes(b"")
        self.succeed("convert", "-q", model, "-o", self.path("model.zt"))
        process = self.mounted("size=5m,nr_inodes=12", '"$PROGRAM" extract -q "$1" --to safetensors -o "$out/model/"; echo $?; ls -A "$out"',
                               self.path("model.zt"))
        self.assertEqual(process.stdout, b"6\n", process.stderr)
        self.assertRegex(process.stderr.decode(), r"\.json: cannot create a file in [^:]*: No space left on device\n\Z")

    def test_read_only_folder(self):
        source = self.source_of()
        process = self.mounted("size=1m,ro", '"$PROGRAM" convert -q "$1" -o "$out/o.zt"; echo $?; ls -A "$out"', source)
        self.assertEqual(process.stdout, b"6\n", process.stderr)
        self.assertRegex(process.stderr.decode(), ONE_LINE)
        self.assertIn("Read-only file system", process.stderr.decode())

    def while_converting(self, change, says, options=("--zstd=huffman", "--min-gain", "-100"), status=INVALID):
        """Calls change(source) once a conversion has begun to write; it must end with one line."""
        source = self.sparse_source(1 << 30)
        for threads in ("1", "2"):
            size = os.path.getsize(source)
            process = subprocess.Popen([PROGRAM, "convert", "-q", *options, "-T", threads, source, "-o", self.output],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            deadline = time.monotonic() + PATIENCE
            while not any(entry.stat().st_size > 1000 for entry in self.out.iterdir()):
                self.assertIsNone(process.poll(), "ended before the input could change")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.001)
            change(source, size)
            output, errors = process.communicate(timeout=PATIENCE)
            os.truncate(source, size)
            self.assertEqual((process.returncode, output), (status, b""), errors)
            self.assertRegex(errors.decode(), ONE_LINE)
            self.assertTrue(errors.decode().startswith(f"ztstream: {source}: "), errors)
            self.assertIn(says, errors.decode())
            self.assertEqual(self.entries(self.out), [])

    def test_input_that_shrinks(self):
        self.while_converting(lambda source, size: os.truncate(source, 1000), "tensor 'a': it ends at byte 1000, ")

    def test_input_that_grows(self):
        self.while_converting(lambda source, size: os.truncate(source, size + 1), "its size has changed")

    def test_closed_pipe(self):
        source = self.source_of(size=4 << 20)
        for options in ("-T 1", "-T 2", "--zstd -T 2"):
            process = self.shell(f'"$PROGRAM" convert -q {options} "$1" -o - | head -c 1000 | wc -c; '
                                 'echo ${PIPESTATUS[0]}', source)
            self.assertEqual(process.stdout.split(), [b"1000", b"6"], process.stderr)
            self.assertEqual(process.stderr, b"ztstream: standard output: tensor 'a': cannot write: Broken pipe\n"
                             if b"tensor" in process.stderr else
                             b"ztstream: standard output: cannot write: Broken pipe\n")
        process = self.shell('"$PROGRAM" inspect "$1" > /dev/full', source)
        self.assertEqual(process.returncode, IO)
        self.assertEqual(process.stderr, b"ztstream: standard output: cannot write: No space left on device\n")

    def test_file_size_limit(self):
        """The signal that comes with the limit is no death."""
        source = self.source_of()
        for options in ("-T 1", "-T 2", "--zstd -T 2"):
            self.output.write_bytes(OLD)
            process = self.shell(f'ulimit -f 1024; exec "$PROGRAM" convert -q -f {options} "$1" -o "$2"', source, self.output)
            self.assertEqual(process.returncode, IO, process.stderr)
            self.assertRegex(process.stderr.decode(), ONE_LINE)
            self.assertIn("File too large", process.stderr.decode())
            self.assertEqual(self.entries(self.out), ["o.zt"])
            self.assertEqual(self.output.read_bytes(), OLD)

    def test_errors_of_a_folder_name_the_file_in_it(self):
        """Not the hidden one that is removed."""
        source = self.source_of()
        for options, file in (("", "a.npy"), ("--to safetensors", "model.safetensors")):
            process = self.shell(f'ulimit -f 1; exec "$PROGRAM" extract {options} "$1" -o "$2/"', source, self.path("new"))
            self.assertEqual(process.returncode, IO, process.stderr)
            self.assertRegex(process.stderr.decode(), rf"\Aztstream: {re.escape(str(self.path('new')))}/{file}: [^\n]*"
                                                      r"File too large\n\Z")
            self.assertFalse(self.path("new").exists())

    def in_memory(self, limits, found, *command):
        """Runs the program in address spaces of `limits` KiB until it has been done in two: done, or one line that says memory,
        and then no output. `found` counts the exit statuses; where the program cannot even start none does."""
        successes = 0
        for limit in limits:
            process = self.shell('ulimit -v "$1"; "$PROGRAM" --version >/dev/null 2>&1 || exit 99; shift; exec "$PROGRAM" "$@"',
                                 limit, *command)
            if process.returncode == 99:
                continue
            errors = process.stderr.decode()
            found[process.returncode] = found.get(process.returncode, 0) + 1
            self.assertIn(process.returncode, (DONE, IO), f"{command}, {limit} KiB: {errors}")
            if process.returncode == IO:
                self.assertRegex(errors, ONE_LINE)
                self.assertRegex(errors, "memory", f"{limit} KiB")
                if "--json" in command:
                    self.assertEqual(json.loads(process.stdout)["error"]["exit_status"], IO)
            else:
                self.output.unlink(missing_ok=True)
                successes += 1
            self.assertEqual(self.entries(self.out), [], f"{command}, {limit} KiB")
            if successes == 2:
                return
        self.fail(f"no memory suffices for {command}")

    def test_memory_limit(self):
        """From too little to start with to enough: done, or one line that says memory; never a crash."""
        if self.sanitized():
            self.skipTest("the sanitizers need more address space than the limits leave")
        source = self.safetensors("i.safetensors", {**make_safetensors.sample("abcd", "U8", (3 << 20,)),
                                                    **make_safetensors.sample([f"n{i}" for i in range(3000)], "U8",
                                                                              (50,))})
        found = {}
        for options in ("-T 1", "-T 3", "--zstd -T 2", "--zstd=19 -T 1", "--dtype f32 -T 2"):
            self.in_memory(range(16_000, 600_000, 6_000), found,
                           "convert", "-q", "-f", *options.split(), source, "-o", self.output)
        print(f"memory limits: exit statuses {found}")
        self.assertIn(IO, found)

    def test_memory_limit_with_many_attributes(self):
        """As above: their copies and their text run out of memory, too."""
        if self.sanitized():
            self.skipTest("the sanitizers need more address space than the limits leave")
        source, count = self.path("s.gguf"), 150_000
        key = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, count)
        content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + bytes(8 * count)
        source.write_bytes(content + bytes(-len(content) % 32))
        found = {}
        for command in (["convert", "-f", "-o", self.output, "-T", "1"], ["inspect"], ["inspect", "--json"],
                        ["extract", "-f", "-o", self.output, "--to", "gguf"], ["diff", source]):
            self.in_memory(range(16_000, 160_000, 3_500), found, command[0], source, *command[1:])
        self.assertGreater(found[IO], 20)

    def test_process_limit(self):
        """Where no threads are to be had the work is done without."""
        if os.geteuid() == 0:
            self.skipTest("the superuser's processes are not limited")
        source = self.source_of()
        process = self.shell('ulimit -u 1; exec "$PROGRAM" convert -q -T 8 "$1" -o "$2"', source, self.output)
        self.assertEqual(process.returncode, DONE, process.stderr)

    def test_100_000_tensors(self):
        names = [f"model.layers.{i}.weight" for i in range(100_000)]
        source = self.safetensors("i.safetensors", {name: ("U8", (3,), struct.pack("<I", i)[:3]) for i,
                                                    name in enumerate(names)})
        self.succeed("convert", "-q", "-T", "2", source, "-o", self.output)
        report = self.json("verify", "--json", self.output)
        self.assertEqual((report["objects_checked"], report["problems"]), (100_000, []))
        objects = self.json("inspect", "--json", self.output)["objects"]
        self.assertEqual(sorted(names), sorted(each["name"] for each in objects))

    def test_names_of_64_kib(self):
        names = [letter * (64 << 10) for letter in "abc"]
        source = self.safetensors("i.safetensors", make_safetensors.sample(names, "U8", (10,)))
        self.succeed("convert", "-q", source, "-o", self.output)
        found = support.read_zt(self.output)
        self.assertEqual(sorted(found["objects"]), names)

    def test_manifest_beyond_1_gib_is_refused_unread(self):
        """The file is a sparse one and has what its footer promises."""
        self.succeed("convert", "-q", self.source_of(size=10), "-o", self.output)
        content = self.output.read_bytes()
        for size, refused in [((1 << 30) + 1, "1 GiB"), (10 << 30, "1 GiB"), ((1 << 63) + 7, ""), ((1 << 64) - 1, "")]:
            path = self.path("huge.zt")
            with open(path, "wb") as out:
                out.write(content[:64])
                out.truncate(min(size, 20 << 30) + 128)
                out.seek(0, os.SEEK_END)
                out.write(struct.pack("<Q", size) + content[-8:])
            for command in ("inspect", "verify"):
                process = self.shell('[ "$3" ] || ulimit -v 500000; exec "$PROGRAM" "$1" "$2"', command, path,
                                     "yes" if self.sanitized() else "")
                self.assertIn(process.returncode, (1, INVALID), process.stderr)
                self.assertRegex(process.stderr.decode(), ONE_LINE)
                self.assertIn(refused, process.stderr.decode())

    @unittest.skipUnless(os.environ.get("ZT_LIMITS") == "all", "takes gigabytes of memory; ZT_LIMITS=all")
    def test_a_manifest_beyond_1_gib_is_not_written(self):
        source = self.safetensors("i.safetensors", {f"t{i}": ("U8", (1,), b"x") for i in range(11_000)})
        self.output.write_bytes(OLD)
        line = self.fail_with((USAGE, INVALID), "convert", "-q", "-f", "--rename", "s/^/" + "n" * 100_000 + "/", source, "-o",
                              self.output, says=(str(self.output), "1 GiB"))
        self.assertLess(len(line), 1000)
        self.assertEqual(self.entries(self.out), ["o.zt"])
        self.assertEqual(self.output.read_bytes(), OLD)
