"""Signals at every step of every command, and inputs that are written to while they are read.

A preloaded library (fault_shim.c) sends the program a signal at its Nth system call, and makes that call slow. After
it the output is as it was, with 130 (SIGINT then ends the program), or complete, with 0; nothing else is left; with --json there is one object.
After kill -9 what is left has a known name, and the next run removes it.

ZT_FAULT_SHIM names the library. ZT_SIGNALS sets how many steps of each command are tried (default 8; "all"), ZT_SEED
which. ZT_FAULTS_JOBS runs at a time (default 12, which mostly sleep).
"""
import collections
import concurrent.futures
import fcntl
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy

import support
from support import DONE, EXISTS, INTERRUPTED, INVALID, OLD, PATIENCE, PROGRAM, SHIM, shim

import make_safetensors

STEPS = os.environ.get("ZT_SIGNALS", "8")
CALLS = ("read", "pread", "preadv", "write", "writev", "pwrite", "pwritev", "open", "close", "fsync", "syncfs", "ftruncate",
         "flock", "renameat2")
SLOW = ("flock", "fsync", "syncfs", "renameat2")  # locks take their time on NFS
BEYOND = 2600  # milliseconds: the program ends itself two seconds after a signal
LEFT = re.compile(r"(.*/)?\.[^/]+\.[0-9]+-[0-9]+\.ztstream-tmp(/.*)?")


def contents(folder):
    """Of all files below it, and None for empty folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
        elif not any(path.iterdir()):
            found[str(path.relative_to(folder))] = None
    return found


class Command:
    """`words` with OUT for the folder of outputs. `older`: what is in that folder before. `parts`: outputs that appear one
    after another. `once`: an output that is there is never replaced."""

    def __init__(self, words, older=None, stdin=None, parts=False, once=False, product=False):
        self.words, self.older, self.stdin, self.parts, self.once, self.product = words, older or {}, stdin, parts, once, product


@unittest.skipUnless(SHIM, "no fault shim was built")
class Signals(support.EndToEnd):

    def commands(self):
        tensors = make_safetensors.sample("abcd", "BF16", (200, 300))
        source = self.safetensors("i.safetensors", tensors)
        model = self.path("i.zt")
        self.succeed("convert", "-q", source, "-o", model)
        shards = self.path("shards")
        shards.mkdir()
        self.succeed("convert", "-q", source, "-o", shards / "m.zt", "--shards", "2")
        (shards / "m.zt.index.json").unlink()
        parts = {path.name: path.read_bytes() for path in shards.iterdir()}
        old = {"o.zt": OLD}
        arrays = {f"d/{name}.npy": OLD for name in "abc"}
        yield "convert", Command(["convert", source, "-o", "OUT/o.zt"])
        yield "convert -f", Command(["convert", "-f", "--zstd", source, "-o", "OUT/o.zt"], old)
        yield "convert --no-sync", Command(["convert", "-f", "--no-sync", source, "-o", "OUT/o.zt"], old)
        for options in (["--spec", "2.0"], ["--spec", "2.0", "--zstd=planes"], ["--canonical"]):
            yield " ".join(["convert", *options]), Command(["convert", "-f", *options, source, "-o", "OUT/o.zt"], old)
        yield "convert -", Command(["convert", "-", "-o", "OUT/o.zt"], stdin=source.read_bytes())
        yield "convert -o -", Command(["convert", source, "-o", "-"], product=True)
        yield "convert --shards", Command(["convert", "-f", source, "-o", "OUT/o.zt", "--shards", "2"], parts=True)
        yield "extract", Command(["extract", model, "-o", "OUT/o.safetensors"])
        yield "extract npz", Command(["extract", "-f", model, "-o", "OUT/o.npz"], {"o.npz": OLD})
        yield "extract DIR/", Command(["extract", model, "-o", "OUT/d/"])
        yield "extract -f DIR/", Command(["extract", "-f", model, "-o", "OUT/d/"], dict(arrays, **{"d/other": OLD}))
        yield "extract --to", Command(["extract", model, "-o", "OUT/d/", "--to", "safetensors"], once=True)
        yield "join", Command(["join", "-f", "OUT/m-00001-of-00002.zt", "OUT/m-00002-of-00002.zt", "-o", "OUT/m.zt"], parts)
        fresh = self.safetensors("n.safetensors", {name: (*tensor[:2], tensor[2][::-1]) for name, tensor in tensors.items()})
        delta = self.path("d.zt")
        self.succeed("convert", "-q", fresh, "--base", source, "-o", delta)
        yield "convert --base", Command(["convert", "-f", fresh, "--base", source, "-o", "OUT/o.zt"], old)
        yield "convert a delta", Command(["convert", "-f", delta, "-o", "OUT/o.zt"], old)
        yield "convert --to", Command(["convert", fresh, "--base", source, "--to", "disk-delta", "-o", "OUT/d_1/"], once=True)
        yield "apply", Command(["apply", delta, "OUT/i.safetensors"], {"i.safetensors": source.read_bytes()})
        yield "inspect --html", Command(["inspect", "-f", model, "--html", "OUT/o.html"], {"o.html": OLD})
        for words in (["verify", model], ["verify", model, "--against", source], ["diff", model, source], ["inspect", source],
                      ["inspect", model, "--stats"], ["show", model, "b[3]"], ["id", source]):
            yield " ".join(word for word in words if isinstance(word, str)), Command(words)

    def test_the_object_of_show_has_an_end(self):
        source = self.safetensors("i.safetensors", {"w": ("U8", [10000, 2, 1000], bytes(20_000_000))})
        with subprocess.Popen([PROGRAM, "show", source, "w[...]", "--json"], bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            begun = process.stdout.read(100_000)
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=support.PATIENCE)
        self.assertEqual((support.shell_status(process), errors), (INTERRUPTED, b"ztstream: interrupted\n"))
        whole = json.loads(begun + said)
        self.assertEqual((whole["ok"], whole["error"]["exit_status"]), (False, INTERRUPTED))
        self.assertLess(len(whole["values"]), 10000)

    def test_a_pipeline_is_interrupted_as_a_whole(self):
        """Ctrl-C ends the program that writes the input, too: what is cut so is no truncated file."""
        source = self.safetensors("i.safetensors", make_safetensors.sample("abcd", "BF16", (2000, 300)))
        model = self.path("i.zt")
        self.succeed("convert", "-q", source, "-o", model)
        begin = source.read_bytes()[:3_000_000]
        for words in (["convert", "-", "-o", "o.zt"], ["extract", "-", "-o", "o.npz"], ["extract", "-", "-o", "d/"], ["diff", "-", model],
                      ["extract", "-", "-o", "d/", "--to", "safetensors"], ["verify", model, "--against", "-"], ["inspect", "-", "--stats"],
                      ["show", "-", "d"], ["id", "-"], ["inspect", "-"]):
            with self.subTest(words):
                here = self.path("here")
                here.mkdir()
                with subprocess.Popen([PROGRAM, *words, "--json"], cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE) as process:
                    piece = begin if words != ["inspect", "-"] else begin[:100]
                    process.stdin.write(piece)
                    process.stdin.flush()
                    time.sleep(0.1)
                    process.send_signal(signal.SIGINT)
                    output, errors = process.communicate(timeout=PATIENCE)
                errors = [line for line in errors.decode().splitlines() if not line.startswith("ztstream: warning: ")]
                self.assertEqual((process.returncode, errors), (-signal.SIGINT, ["ztstream: interrupted"]))
                told = json.loads(output)
                self.assertEqual((told["ok"], told["error"]["exit_status"]), (False, INTERRUPTED))
                self.assertEqual(list(here.iterdir()), [])
                here.rmdir()

    def test_a_signal_that_is_ignored_and_waits(self):
        """The program gets it ignored, blocked and sent: it stays pending."""
        source = self.safetensors("i.safetensors", make_safetensors.sample("ab", "F32", (2, 3)))
        launcher = ("import os, signal, sys\n"
                    "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
                    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})\n"
                    "os.kill(os.getpid(), signal.SIGHUP)\n"
                    "os.execv(sys.argv[1], sys.argv[1:])\n")
        for words in (["inspect", source], ["inspect", self.path("absent")]):
            told = subprocess.run([sys.executable, "-c", launcher, PROGRAM, *words], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE)
            self.assertEqual(told.returncode, self.run_program(*words).returncode)

    def start(self, number, command):
        out = self.path(f"out-{number}")
        out.mkdir()
        for name, content in command.older.items():
            self.put(f"{out.name}/{name}", content)
        threads = ["-T", "2"] if command.words[0] not in ("join",) else []
        words = [str(word).replace("OUT", str(out)) for word in command.words]
        return out, [PROGRAM, words[0], *threads, "--json", *words[1:]]

    def run_signalled(self, number, command, calls, at, signal_number, sleep):
        """One run in a folder of its own: the process, the count of calls, and what is in the folder."""
        out, words = self.start(number, command)
        log = self.path(f"log-{number}")
        environment = shim(calls, "signal", at, log, FAULT_SIGNAL=signal_number, FAULT_SLEEP=sleep)
        process = subprocess.run(words, input=command.stdin if command.stdin is not None else b"", capture_output=True,
                                 timeout=PATIENCE, env=environment, check=False)
        counts = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("calls ")]
        return process, counts[0] if counts else 0, out

    def check_one_object(self, command, process):
        text = process.stderr if command.product else process.stdout
        lines = [line for line in text.decode(errors="replace").splitlines() if line.startswith("{")]
        self.assertEqual(len(lines), 1, process)
        told = json.loads(lines[0])
        self.assertEqual(told["ok"], process.returncode == DONE, told)
        if process.returncode != DONE:
            self.assertEqual(told["error"]["exit_status"], INTERRUPTED)
            self.assertIn("interrupted", told["error"]["message"])
            self.assertEqual(process.stderr.decode().count("interrupted"), 2 if command.product else 1, process.stderr)

    def judge(self, command, want, sent, process, out):
        found, older = contents(out), command.older
        if process.stdout + process.stderr == b"":  # before the program has begun
            self.assertEqual((found, process.returncode), (older, -sent))
            return "at once"
        self.assertIn(process.returncode, (DONE, -signal.SIGINT if sent == signal.SIGINT else INTERRUPTED), process.stderr)
        self.check_one_object(command, process)
        if command.parts and process.returncode != DONE:
            self.assertEqual(found, {name: want[name] for name in found})
        else:
            self.assertEqual(found, want if process.returncode == DONE else older, process.stderr)
        return "complete" if process.returncode == DONE else "as it was"

    def judge_killed(self, command, want, number, process, out):
        if process.returncode != DONE:
            self.assertEqual(process.returncode, -signal.SIGKILL)
        found = contents(out)
        left = [name for name in found if LEFT.fullmatch(name)]
        is_in_part = any(name.endswith(".ztstream-journal") for name in found)  # a part of each version
        for name in set(found) - set(left) if not is_in_part else ():
            self.assertIn(found[name], (want.get(name), command.older.get(name)), name)
        _, words = self.start(f"{number}-again", command)
        again = [word.replace(f"out-{number}-again", out.name) for word in words]
        if "-f" not in again and not command.once:
            again.insert(2, "-f") if command.words[0] in ("convert", "extract", "join") else None
        done = subprocess.run(again, input=command.stdin if command.stdin is not None else b"", capture_output=True,
                              timeout=PATIENCE, check=False)
        self.assertIn(done.returncode, (DONE, EXISTS) if command.once else (DONE,), done.stderr)
        self.assertEqual(contents(out), want, "what the killed run left")
        return "left something" if left else "left nothing"

    def test_every_step_of_every_command(self):
        chosen = random.Random(int(os.environ.get("ZT_SEED", "1")))
        numbers, found = itertools.count(), collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("ZT_FAULTS_JOBS", "12"))) as pool:
            runs = []
            for name, command in self.commands():
                process, steps, out = self.run_signalled(next(numbers), command, CALLS, 0, 0, 0)
                self.assertEqual(process.returncode, DONE, process.stderr)
                want = contents(out)
                _, slow, _ = self.run_signalled(next(numbers), command, SLOW, 0, 0, 0)
                _, closed, _ = self.run_signalled(next(numbers), command, ("close",), 0, 0, 0)
                every = range(1, steps + 1)
                few = every if STEPS == "all" else sorted(chosen.sample(every, min(int(STEPS), steps)))
                tried = [(CALLS, at, signal.SIGINT, 30) for at in few]
                tried += [(CALLS, at, signal.SIGKILL, 0) for at in (every if STEPS == "all" else few[::2])]
                tried += [(SLOW, at, signal.SIGTERM, BEYOND) for at in range(1, slow + 1)]
                if any("OUT" in str(word) for word in command.words):  # what is closed after the output is complete
                    tried += [(("close",), at, signal.SIGTERM, BEYOND) for at in range(max(1, closed - 2), closed + 1)]
                for what in tried:
                    number = next(numbers)
                    runs.append((name, command, want, what, number, pool.submit(self.run_signalled, number, command, *what)))
            for name, command, want, what, number, run in runs:
                process, _, out = run.result()
                with self.subTest(name, calls=len(what[0]), at=what[1], signal=what[2], number=number):
                    if what[2] == signal.SIGKILL:
                        found[self.judge_killed(command, want, number, process, out)] += 1
                    else:
                        found[self.judge(command, want, what[2], process, out)] += 1
                shutil.rmtree(out)
        print(f"{found.total()} signals: {dict(found)}")
        for what in ("as it was", "complete", "left something", "left nothing"):
            self.assertGreater(found[what], 3, what)

    def test_the_loop_of_a_shell_ends(self):
        """SIGINT to all of a terminal's processes: a shell ends its loop where the program died of it."""
        source = self.safetensors("i.safetensors", {"a": ("U8", (4 << 20,), bytes(4 << 20))})
        self.succeed("convert", "-q", source, "-o", self.path("i.zt"))
        for words in ("verify i.zt", "convert -f i.safetensors -o o.zt", "convert -f - -o o.zt"):
            script = f"for i in 1 2 3; do {PROGRAM} {words}; echo went on; done"
            shell = subprocess.Popen(["bash", "-c", script], start_new_session=True, cwd=self.folder, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=shim(("pread", "preadv", "read"), "slow", 200, self.path("log")))
            time.sleep(1)
            os.killpg(shell.pid, signal.SIGINT)
            shell.wait(timeout=PATIENCE)  # before its standard input is closed, so that its end is no reason to stop
            output, errors = shell.communicate()
            self.assertEqual((output, shell.returncode), (b"", -signal.SIGINT), errors)

    def full_pipe(self):
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETFL, os.O_NONBLOCK)
        try:
            while True:
                os.write(writing, bytes(4096))
        except BlockingIOError:
            pass
        fcntl.fcntl(writing, fcntl.F_SETFL, 0)
        return reading, writing

    def test_a_shard_is_whole_before_its_warnings_wait_for_a_reader(self):
        data = numpy.full(4, 1e30, "<f4").tobytes()
        source = self.safetensors("i.safetensors", {"a": ("F32", (4,), data)})
        reading, writing = self.full_pipe()
        process = subprocess.Popen([PROGRAM, "convert", source, "-o", self.path("s.zt"), "--shards", "1", "--dtype", "f16",
                                    "--on-overflow", "inf"], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, stderr=writing)
        digest = self.path("s-00001-of-00001.zt.xxh3")
        before = time.monotonic()
        while not digest.exists() and time.monotonic() < before + PATIENCE:
            time.sleep(0.01)
        time.sleep(0.5)
        self.assertIsNone(process.poll())
        before = time.monotonic()
        while process.poll() is None and time.monotonic() < before + 5:
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        self.assertEqual(process.poll(), -signal.SIGINT)
        os.close(reading)
        os.close(writing)

    def test_a_complete_output_stays_where_nobody_reads_the_report(self):
        """130 says that nothing changed; who waits for a reader is ended by a second signal."""
        source, output = self.safetensors("i.safetensors"), self.path("o.zt")
        reading, writing = self.full_pipe()
        process = subprocess.Popen([PROGRAM, "convert", "--json", source, "-o", output], stdout=writing,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not output.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        time.sleep(3)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.communicate(timeout=PATIENCE)[1], process.returncode), (b"", -signal.SIGINT))
        os.close(reading)
        os.close(writing)
        self.succeed("verify", "-q", output)


@unittest.skipUnless(SHIM, "no fault shim was built")
class Changes(support.EndToEnd):
    """A file that is written to in place while it is read, with as many bytes as before."""

    def inputs(self):
        data = numpy.arange(1 << 21, dtype=numpy.int16)
        plain = self.safetensors("i.safetensors", {"a": ("I16", (1 << 21,), data.tobytes())})
        yield "safetensors", plain, plain
        model = self.path("i.zt")
        self.succeed("convert", "-q", plain, "-o", model)
        yield "zt", model, model
        array = self.path("i.npy")
        numpy.save(array, data)
        yield "npy", array, array
        folder = self.path("arrays")
        folder.mkdir()
        for name in "ab":
            numpy.save(folder / f"{name}.npy", data)
        yield "folder of npy", folder, folder / "a.npy"
        stored = self.path("i.npz")
        numpy.savez(stored, a=data)
        yield "npz", stored, stored
        hub = self.path("hub")
        hub.mkdir()
        make_safetensors.write(hub / "model.safetensors", make_safetensors.sample())
        (hub / "notes.txt").write_bytes(data.tobytes())
        yield "file of a folder", hub, hub / "notes.txt"
        gguf = self.path("i.gguf")
        self.succeed("extract", "-q", plain, "-o", gguf)
        yield "gguf", gguf, gguf

    def change(self, words, changed):
        """Runs the program, slowed, and rewrites the file again and again meanwhile. Returns status, output and errors."""
        log = self.path("log")
        process = subprocess.Popen([PROGRAM, *map(str, words), "-T", "1"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=shim(("pread", "preadv"), "slow", 60, log))
        content = changed.read_bytes()
        while process.poll() is None:
            with open(changed, "r+b") as file:  # as cp, numpy.save and torch.save do
                file.write(content)
            time.sleep(0.05)
        output, errors = process.communicate(timeout=PATIENCE)
        log.unlink()
        return process.returncode, output, errors.decode()

    def test_is_noticed(self):
        commands = {"convert": lambda given: ["convert", "-q", given, "-o", self.path("o.zt")],
                    "extract": lambda given: ["extract", "-q", given, "-o", self.path("o.safetensors")],
                    "id": lambda given: ["id", given], "diff": lambda given: ["diff", given, given]}
        for number, (name, given, changed) in enumerate(self.inputs()):
            for command in commands if number == 0 else ("convert",):
                with self.subTest(name, command=command):
                    before = self.entries()
                    status, output, errors = self.change(commands[command](given), changed)
                    self.assertEqual((status, output), (INVALID, b""), errors)
                    self.assertRegex(errors, rf"\Aztstream: [^\n]*{re.escape(changed.name)}: ([^\n]*: )?it has been written to "
                                             r"since it was opened; wait until it is written\n\Z")
                    self.assertEqual(self.entries(), before)

    def test_is_noticed_by_show(self):
        for name, given, changed in self.inputs():
            if name not in ("safetensors", "zt"):
                continue
            with self.subTest(name):
                status, output, errors = self.change(["show", given, "a[::131072]"], changed)
                self.assertEqual((status, output), (INVALID, b""), errors)
                self.assertRegex(errors, rf"\Aztstream: [^\n]*{re.escape(changed.name)}: tensor 'a': it has been written to since it was "
                                         r"opened; wait until it is written\n\Z")

    def test_by_verify(self):
        source = self.safetensors("i.safetensors", {"a": ("U8", (32 << 20,), bytes(32 << 20))})
        model = self.path("i.zt")
        self.succeed("convert", "-q", "--digest", "none", source, "-o", model)
        status, output, errors = self.change(["verify", "-q", model], model)
        self.assertEqual((status, output), (support.DIFFERS, b""), errors)
        self.assertIn("it has been written to since it was opened", errors)

    def test_links_names_and_permissions_may_change(self):
        source = self.safetensors("i.safetensors", {"a": ("U8", (2 << 20,), bytes(2 << 20))})
        process = subprocess.Popen([PROGRAM, "convert", source, "-o", self.path("o.zt"), "-T", "1"], stdin=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, env=shim(("pread", "preadv"), "slow", 60, self.path("log")))
        time.sleep(0.3)
        self.assertIsNone(process.poll(), "ended before the change")
        os.link(source, self.path("link"))
        source.chmod(0o600)
        source.read_bytes()
        source.rename(self.path("renamed"))
        self.assertEqual(process.wait(timeout=PATIENCE), DONE, process.communicate()[1])
        self.succeed("diff", "-q", self.path("o.zt"), self.path("renamed"))
