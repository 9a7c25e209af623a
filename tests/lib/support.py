"""What the end-to-end tests share: the program under test, a folder for each test, and what a failure looks like.

The program is named by the environment variable ZTSTREAM, the data folder by ZT_TEST_DATA (ctest sets both).
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import make_safetensors
import ztread

try:
    import jsonschema
except ImportError:
    jsonschema = None  # results are then not compared with their schema

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = os.path.abspath(os.environ.get("ZTSTREAM") or HERE.parents[1] / "build/release/bin/ztstream")
DATA = pathlib.Path(os.environ.get("ZT_TEST_DATA") or HERE.parent / "data").absolute()

# Seconds after which what has not ended is called hanging: no measure of speed, for machines are busy and sanitizers slow.
PATIENCE = 400

# Exit statuses of the program.
DONE, DIFFERS, USAGE, EXISTS, INVALID, UNSUPPORTED, IO, NUMERIC, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 7, 130


def read_zt(path):
    """A .zt file as the independent reader finds it, which fails where the file breaks a rule of its spec. The files that go with
    a model, and the attribute that keeps how its weights lay in theirs, are apart from tensors and other attributes."""
    version, attributes, objects = ztread.read_file(str(path))
    files = {name: entry for name, entry in objects.items() if entry["format"] == "ztstream.file/1"}
    attributes = dict(attributes or {})
    folder = attributes.pop("ztstream.folder", None)
    return {"version": version, "attributes": attributes, "folder": folder, "files": files,
            "objects": {name: entry for name, entry in objects.items() if name not in files}}


@functools.cache
def schema():
    """What --json prints."""
    return jsonschema.Draft202012Validator(json.loads((HERE.parents[1] / "docs/output.schema.json").read_bytes()))


OLD = b"an older output"


def shell_status(process):
    """Its exit status as a shell has it: 130 where SIGINT ended it."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


# A program of its own starts the one that is measured: the memory of its parent counts as the child's at first.
STARTER = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdin=0, stdout=subprocess.DEVNULL, timeout=300, check=False).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


SHIM = os.environ.get("ZT_FAULT_SHIM")


def shim(calls, kind, at, log, **more):
    """The environment in which the preloaded library (fault_shim.c) lets the `at`th of these system calls meet `kind`."""
    return dict(os.environ, LD_PRELOAD=SHIM, FAULT_CALLS="," + ",".join(calls) + ",", FAULT_KIND=kind, FAULT_AT=str(at),
                FAULT_LOG=str(log), **{key: str(value) for key, value in more.items()})


class EndToEnd(unittest.TestCase):
    """Each test gets an empty folder, self.folder."""

    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ztstream-e2e-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def at_once(self, check, cases):
        """check(test, case) of all cases at the same time, for cases that mostly wait. Each has a test of this class, with what its
        setUp makes."""
        def run(case):
            test = type(self)(self._testMethodName)
            try:
                test.setUp()
                check(test, case)
            finally:
                test.doCleanups()

        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            for future in [pool.submit(run, case) for case in cases]:
                future.result()

    def sanitized(self):
        """True where sanitizers take memory of their own."""
        with open(PROGRAM, "rb") as program:
            content = program.read()
        return b"__asan_init" in content or b"__tsan_init" in content

    def run_program(self, *arguments, stdin=None, timeout=PATIENCE, env=None):
        """Runs the program; `stdin` is bytes or nothing. Returns the finished process, output as bytes."""
        environment = dict(os.environ, **(env or {}))
        process = subprocess.run(
            [PROGRAM, *map(str, arguments)], input=stdin if stdin is not None else b"",
            capture_output=True, timeout=timeout, env=environment, cwd=self.folder)
        if "--json" in arguments and jsonschema is not None:
            self.check_schema(process.stdout)
        return process

    def check_schema(self, output):
        """Whole results in the output of --json are as docs/output.schema.json says; long ones would take long."""
        for line in output.splitlines(keepends=True):
            if line.startswith(b'{"schema"') and line.endswith(b"}\n") and len(line) < 1 << 16:
                wrong = [each for error in schema().iter_errors(json.loads(line)) for each in error.context]
                others = {each.schema_path[0] for each in wrong if [*each.path] == ["cmd"]}
                said = [f"{each.json_path}: {each.message}" for each in wrong if each.schema_path[0] not in others]
                self.assertEqual((wrong and "none of docs/output.schema.json", said), ([], []), line[:2000])

    def costs(self, *arguments, stdin=subprocess.DEVNULL, env=None):
        """Runs the program; its exit status, the seconds of processor time and the MiB of memory that it took."""
        done = subprocess.run([sys.executable, "-SEc", STARTER, PROGRAM, *map(str, arguments)], stdin=stdin, capture_output=True,
                              check=True, cwd=self.folder, env=dict(os.environ, **(env or {})))
        status, seconds, memory = done.stdout.split()
        return int(status), float(seconds), float(memory)

    def succeed(self, *arguments, stdin=None):
        """Runs the program, which must exit 0; returns its standard output."""
        return self.expect(DONE, *arguments, stdin=stdin).stdout

    def json(self, *arguments):
        return json.loads(self.succeed(*arguments))

    def expect(self, status, *arguments, stdin=None, says=()):
        """Runs the program, which must exit with `status` (or one of a tuple of them) and say every text in `says` on standard
        error. Returns the finished process."""
        process = self.run_program(*arguments, stdin=stdin)
        errors = process.stderr.decode(errors="replace")
        self.assertIn(process.returncode, status if isinstance(status, tuple) else (status,), f"{arguments}: {errors}")
        for text in (says,) if isinstance(says, str) else says:
            self.assertIn(text, errors)
        return process

    def converted(self, source, *options, stdin=None):
        """What the independent reader finds in the file that convert makes of `source`."""
        output = self.path("out.zt")
        self.succeed("convert", "-f", *options, source, "-o", output, stdin=stdin)
        return read_zt(output)

    def fail_with(self, status, *arguments, stdin=None, says=()):
        """Runs the program, which must exit with `status` (or one of a tuple of them), print nothing on standard
        output and exactly one line, `ztstream: ...`, on standard error. The line holds every text in `says`.
        Returns the line."""
        process = self.expect(status, *arguments, stdin=stdin, says=says)
        errors = process.stderr.decode()
        self.assertEqual(process.stdout, b"", arguments)
        self.assertRegex(errors, r"\Aztstream: [^\n]+\n\Z", f"{arguments}: not one line: {errors!r}")
        self.check_form(errors)
        return errors

    def check_form(self, line):
        """`ztstream: FILE: tensor 'NAME': what`: each part once, the tensor after the file."""
        parts = line.rstrip("\n").split(": ")
        self.assertEqual(len(parts), len(set(parts)), f"a part comes twice: {line}")
        tensors = [place for place, part in enumerate(parts) if re.fullmatch(r"tensor '(?:[^'\\]|\\.)*'", part)]
        self.assertLessEqual(len(tensors), 1, f"two tensors: {line}")

    def same_folders(self, first, second):
        done = subprocess.run(["diff", "-r", first, second], capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stdout.decode(errors="replace")[:2000])

    def entries(self, folder=None):
        return sorted(entry.name for entry in (folder or self.folder).iterdir())

    def path(self, name):
        return self.folder / name

    def put(self, name, content):
        """Writes a file below the test's folder, making folders as needed."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def safetensors(self, name, tensors=None, metadata=None, ties=None):
        """Writes a safetensors file below the test's folder: make_safetensors.sample() where no tensors are given."""
        return self.put(name, make_safetensors.encode(make_safetensors.sample() if tensors is None else tensors, metadata, ties))


class Output(EndToEnd):
    """self.output is to appear in a folder of its own, self.out."""

    def setUp(self):
        super().setUp()
        self.out = self.path("out")
        self.out.mkdir()
        self.output = self.out / "o.zt"
