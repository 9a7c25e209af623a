"""Fails, cuts short or interrupts every system call of a conversion in turn, by a preloaded library (fault_shim.c).

After each: the output is right, or there is none, an older one is intact, no temporary file is left, and one line
names the file, and the tensor where its data was being read. Where the folder cannot be synced, the output is there,
and the line says so. Prints how many faults were injected.

ZT_FAULT_SHIM names the library. ZT_FAULTS=all tries every format with every option set and number of threads; by
default each format gets two of them, and every other call meets what does no harm. ZT_FAULTS_JOBS runs at a time (default 2).
"""
import collections
import concurrent.futures
import errno
import itertools
import json
import os
import re
import shutil
import subprocess
import unittest

import numpy

import support
from support import DATA, DONE, EXISTS, INVALID, IO, OLD, PATIENCE, PROGRAM, SHIM, shim

import make_safetensors

ALL = os.environ.get("ZT_FAULTS") == "all"

READS, WRITES = ("pread", "preadv", "read"), ("pwrite", "pwritev", "write", "writev")
OTHERS = ("open", "close", "fsync", "ftruncate", "fallocate", "flock", "renameat2")
# What may go wrong with which calls.
FAULTS = [
    (READS, str(errno.EIO)), (READS, str(errno.EINTR)), (READS, "short"), (READS, "end"),
    (WRITES, str(errno.EIO)), (WRITES, str(errno.ENOSPC)), (WRITES, str(errno.EINTR)), (WRITES, "short"),
    (OTHERS, str(errno.EIO)), (OTHERS, str(errno.EINTR)), (("fallocate",), str(errno.ENOSPC)),
    (("mmap",), str(errno.ENOMEM)), (("pthread_create",), str(errno.EAGAIN)),
]
HARMLESS = {str(errno.EINTR), "short"}
OPTIONS = [(), ("--zstd",), ("--zstd=huffman",), ("--dtype", "f32"), ("--digest", "sha256"), ("--spec", "2.0"),
           ("--spec", "2.0", "--zstd"), ("--spec", "2.0", "--zstd=planes"), ("--canonical",)]


class Input:
    """A conversion's input: what is given, the files it reads, and for safetensors where each tensor's data lies."""

    def __init__(self, argument, files, stdin=None, options=(), ranges=None):
        self.argument, self.files, self.stdin, self.options, self.ranges = argument, files, stdin, options, ranges or {}


def tensor_data(seed, count):
    """Half of it compresses."""
    half = numpy.random.default_rng(seed).integers(0, 1 << 14, count // 2, dtype=numpy.uint16)
    return numpy.concatenate([half, numpy.full(count - count // 2, seed, numpy.uint16)])


def tensors():
    sizes = {"large": 300_000, "small.a": 100, "small.b": 3, "empty": 0, "last": 150_000}
    return {name: ("F16", (count,), tensor_data(seed, count).tobytes())
            for seed, (name, count) in enumerate(sizes.items())}


def ranges_of(path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    return {name: [8 + size + offset for offset in entry["data_offsets"]] for name, entry in header.items()}


@unittest.skipUnless(SHIM, "no fault shim was built")
class Faults(support.EndToEnd):

    def inputs(self):
        arrays = {name: numpy.frombuffer(data, numpy.float16).reshape(shape)
                  for name, (_, shape, data) in tensors().items()}
        plain = self.safetensors("i.safetensors", tensors())
        yield "safetensors", Input(plain, [plain], ranges={plain: ranges_of(plain)})
        yield "pipe", Input("-", ["standard input"], stdin=plain.read_bytes())
        folder = self.path("shards")
        folder.mkdir()
        shards, weights = [], {}
        for number, part in enumerate([("large", "small.a"), ("small.b", "empty", "last")]):
            shard = folder / f"model-{number}.safetensors"
            make_safetensors.write(shard, {name: tensors()[name] for name in part})
            shards.append(shard)
            weights.update(dict.fromkeys(part, shard.name))
        index = self.put("shards/model.safetensors.index.json", json.dumps({"weight_map": weights}).encode())
        yield "folder", Input(folder, [*shards, index])
        one = self.path("large.npy")
        numpy.save(one, arrays["large"])
        yield "npy", Input(one, [one])
        fortran = self.path("fortran.npy")
        numpy.save(fortran, numpy.asfortranarray(arrays["large"].reshape(600, 500)))
        yield "fortran", Input(fortran, [fortran])
        stored = self.path("stored.npz")
        numpy.savez(stored, **arrays)
        yield "npz", Input(stored, [stored])
        deflated = self.path("deflated.npz")
        numpy.savez_compressed(deflated, **arrays)
        yield "deflated", Input(deflated, [deflated])
        for kind in ("csr", "csc"):
            sparse = self.path(f"{kind}.npz")
            count = 5000
            numpy.savez(sparse, format=kind.encode(), shape=numpy.array([100, 100]),
                        data=numpy.arange(count, dtype=numpy.float32),
                        indices=numpy.tile(numpy.arange(50, dtype=numpy.int32), 100),
                        indptr=numpy.arange(0, count + 1, 50, dtype=numpy.int32))
            yield kind, Input(sparse, [sparse])
        gguf = self.path("i.gguf")
        shutil.copy(DATA / "gguf" / "kquants.gguf", gguf)
        yield "gguf", Input(gguf, [gguf])
        yield "dequantized", Input(gguf, [gguf], options=("--dequantize", "f32"))
        for kind, options in (("zt", ()), ("compressed zt", ("--zstd", "--chunk", "256KiB"))):
            zt = self.path(f"{kind.replace(' ', '-')}.zt")
            self.succeed("convert", "-q", *options, plain, "-o", zt)
            yield kind, Input(zt, [zt])

    def run_with_fault(self, number, given, options, calls, kind, at, older, to_stdout):
        """One run in a folder of its own. (process, fault, count, folder): fault is (call, offset, path) or None."""
        out = self.path(f"out-{number}")
        out.mkdir()
        output, log = out / "o.zt", self.path(f"log-{number}")
        if older:
            output.write_bytes(OLD)
        environment = shim(calls, kind, at, log)
        process = subprocess.run(
            [PROGRAM, "convert", "-q", *(["-f"] if older else []), *options, *given.options, str(given.argument), "-o",
             "-" if to_stdout else str(output)],
            input=given.stdin if given.stdin is not None else b"", capture_output=True, timeout=PATIENCE, env=environment)
        lines = log.read_text().splitlines()
        log.unlink()
        count = next(int(line.split()[1]) for line in lines if line.startswith("calls "))
        fault = next((line.split(" ", 2) for line in lines if not line.startswith("calls ")), None)
        return process, fault, count, out

    def judge(self, given, want, kind, older, to_stdout, process, fault, out):
        """What became of one run; raises where it is not what it has to be."""
        output = out / "o.zt"
        errors = process.stderr.decode(errors="replace")
        entries = self.entries(out)
        content = process.stdout if to_stdout else output.read_bytes() if output.exists() else None
        shutil.rmtree(out)
        if process.returncode == DONE:
            self.assertEqual(content, want, "a wrong output")
            self.assertEqual(entries, ["o.zt"] if older or not to_stdout else [])
            self.assertEqual(errors, "")
            return "survived"
        self.assertNotIn(kind, HARMLESS, errors)
        self.assertIsNotNone(fault, errors)
        if fault[0] == "fsync" and fault[2] == str(out):
            self.assertEqual((process.returncode, content, entries), (IO, want, ["o.zt"]), errors)
            self.assertIn("o.zt: it is complete and has its name", errors)
            return "published"
        self.assertEqual(entries, ["o.zt"] if older else [], "something is left")
        if older:
            self.assertEqual(content if not to_stdout else OLD, OLD, "the older output is lost")
        self.assertIn(process.returncode, (INVALID, IO) if kind == "end" else (IO,), errors)
        self.check_line(given, fault, errors, output, to_stdout)
        return "failed"

    def check_line(self, given, fault, errors, output, to_stdout):
        """`ztstream: FILE: tensor 'NAME': what`: each part once, FILE the one whose call failed."""
        call, offset, path = fault[0], int(fault[1]), fault[2] if len(fault) > 2 else ""
        self.assertRegex(errors, r"\Aztstream: [^\n]+\n\Z")
        if call in ("mmap", "pthread_create"):
            self.assertIn("memory", errors)
            return
        line = errors[len("ztstream: "):-1]
        if "/proc/" in line or path.startswith("pipe:") or not path:
            path = "standard output" if call in WRITES else "standard input"
        names = {str(output): str(output), str(output.parent): str(output)}
        if path.startswith(f"{output.parent}/."):
            names[path] = str(output)
        for file in map(str, given.files):
            names[file] = file
        name = names.get(path, path)
        self.assertIn(name.rsplit("/", 1)[-1], line, f"{fault}")
        self.assertEqual(line.count("tensor '"), min(line.count("tensor '"), 1), line)
        parts = line.split(": ")
        self.assertEqual(len(parts), len(set(parts)), f"a part comes twice: {line}")
        if name in map(str, given.files) or name == str(output):
            base = name.rsplit("/", 1)[-1]
            plain = re.sub("tensor '[^']*'", "", line)  # a file of a model is a tensor of its path
            self.assertEqual(plain.count(base) - plain.count("." + base), 1, f"the file comes twice: {line}")
        for file, ranges in given.ranges.items():
            if call in READS and path == str(file):
                inside = [tensor for tensor, (begin, end) in ranges.items() if begin <= offset < end]
                for tensor in inside:
                    self.assertTrue(re.match(rf"{re.escape(path)}: tensor '{re.escape(tensor)}': \S", line), line)

    def run_extract(self, model, folder, calls, at):
        """extract -f -o FOLDER/ with that call failing: the process, the lines of the log and what is in the folder."""
        log = self.path("log")
        environment = shim(calls, str(errno.EIO), at, log)
        process = subprocess.run([PROGRAM, "extract", "-q", "-f", "-T", "1", model, "-o", f"{folder}/"],
                                 capture_output=True, timeout=PATIENCE, env=environment, check=False)
        found = {each.name: each.read_bytes() for each in folder.iterdir()} if folder.exists() else None
        lines = log.read_text().splitlines()
        log.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        return process, lines, found

    def test_a_folder_of_files(self):
        """extract -o DIR/: whatever fails, the folder has all new files, or is as it was; into a folder that is there each file
        is moved by itself, and the error says how many are there."""
        source, model = self.path("i.safetensors"), self.path("i.zt")
        make_safetensors.write(source, {name: ("U8", [3], name.encode() * 3) for name in "abcd"})
        self.succeed("convert", "-q", source, "-o", model)
        calls = ("open", "close", "fsync", "syncfs", "renameat2", *WRITES)
        failed = collections.Counter()
        folder = self.path("back")
        _, _, new = self.run_extract(model, folder, calls, 0)
        self.assertEqual(sorted(new), ["a.npy", "b.npy", "c.npy", "d.npy"])
        for older in (None, {f"{name}.npy": OLD for name in "abc"}):
            steps = 1
            for at in itertools.count():
                if at > steps:
                    break
                if older:
                    folder.mkdir()
                    for name, content in older.items():
                        (folder / name).write_bytes(content)
                process, lines, found = self.run_extract(model, folder, calls, at)
                steps = next(int(line.split()[1]) for line in lines if line.startswith("calls ")) if at == 0 else steps
                errors = process.stderr.decode()
                with self.subTest(older=older is not None, at=at, lines=lines[0], errors=errors):
                    self.assertIn(process.returncode, (DONE, IO))
                    if process.returncode == DONE:
                        self.assertEqual(found, new)
                        continue
                    self.assertRegex(errors, r"\Aztstream: [^\n]+\n\Z")
                    call, _, path = lines[0].split(" ", 2)
                    failed[call] += 1
                    moved = re.search(r"([0-9]) of 4 are there", errors)
                    if call == "fsync":
                        self.assertEqual(found, new)
                        self.assertIn("it is complete and in place", errors)
                    elif moved:
                        there = sorted(new)[:int(moved[1])]
                        self.assertEqual(found, dict(older, **{name: new[name] for name in there}))
                        self.assertIn(sorted(new)[int(moved[1])], errors)
                    else:
                        self.assertEqual(found, older, path)
        # Of each folder one sync fails; of the new one its one rename, of the other the moves of four files; and each
        # file's own rename in the hidden folder.
        self.assertEqual((failed["syncfs"], failed["fsync"], failed["renameat2"]), (2, 2, 4 + 1 + 4 + 4))
        # What cannot be replaced is found before anything is.
        (folder / "c.npy").mkdir(parents=True)
        (folder / "a.npy").write_bytes(OLD)
        self.fail_with(EXISTS, "extract", "-f", model, "-o", f"{folder}/", says=("c.npy", "a folder has the name"))
        self.assertEqual(self.entries(folder), ["a.npy", "c.npy"])
        self.assertEqual((folder / "a.npy").read_bytes(), OLD)

    def test_every_call(self):
        jobs = int(os.environ.get("ZT_FAULTS_JOBS", "2"))
        found, by_call, runs = collections.Counter(), collections.Counter(), itertools.count()
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for number, (name, given) in enumerate(self.inputs()):
                sets = [(options, threads) for options in OPTIONS for threads in (1, 2, 3)]
                if not ALL:
                    sets = [sets[(2 * number) % len(sets)], sets[(2 * number + 7) % len(sets)]]
                for (options, threads), to_stdout in itertools.product(sets, (False, True)):
                    if to_stdout and (number + threads) % 3 or "--canonical" in options and given.stdin is not None:
                        continue
                    options = [*options, "-T", str(threads)]
                    process, _, _, out = self.run_with_fault(next(runs), given, options, (), "0", 0, False, to_stdout)
                    self.assertEqual(process.returncode, DONE, process.stderr)
                    want = process.stdout if to_stdout else (out / "o.zt").read_bytes()
                    shutil.rmtree(out)
                    for calls, kind in FAULTS:
                        process, _, count, out = self.run_with_fault(next(runs), given, options, calls, kind, 0, False,
                                                                     to_stdout)
                        shutil.rmtree(out)
                        futures = {}
                        every_other = kind in HARMLESS and not ALL
                        for at in range(1 + number % 2, count + 1, 2) if every_other else range(1, count + 1):
                            # Half of the runs replace an older output; what publishes is tried both ways.
                            for older in ((False, True) if calls is OTHERS else (at % 2 == 1,)):
                                futures[pool.submit(self.run_with_fault, next(runs), given, options, calls, kind, at,
                                                    older, to_stdout)] = (at, older)
                        for future, (at, older) in futures.items():
                            process, fault, _, out = future.result()
                            with self.subTest(input=name, options=" ".join(options), calls=calls, kind=kind, at=at,
                                              older=older, stdout=to_stdout, fault=fault):
                                what = self.judge(given, want, kind, older, to_stdout, process, fault, out)
                                if fault is not None:
                                    found[what] += 1
                                    by_call[fault[0]] += 1
        print(f"{found.total()} faults injected: {dict(found)}; by call {dict(sorted(by_call.items()))}")
        self.assertGreater(found["failed"], 100)
        self.assertGreater(found["survived"], 100)
