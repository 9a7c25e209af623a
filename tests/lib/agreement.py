"""agreement.py: gives one input after another to every command and to the C interface, which must say the same of it.

  scripts/agreement.sh N [SEED] [--program PROGRAM] [--library LIBRARY] [--keep FOLDER] [--files FILE...]

Tries N random and N mutated files of each version (random_manifests.py), beginning with SEED, or the files. `verify` reads
everything, so its verdict is that of a .zt file, and diff's that of any other: good, opaque (good, but a part is in an
encoding that nobody here knows), bad or unknown (well formed, of a kind that is not supported), of the last two whether a
listing shows it already. The rules below say what follows for everybody else. Whoever fails says it in one line, leaves nothing
behind and takes little memory.

The rows are those of the forged*.py beside this, which e2e/verdict_test.py tries: (label, version or format, what the input is,
what its verdict must begin with, what must be said of it). An input is a path, bytes, what random_file takes, or {path: bytes}
for several files, of which the first is given (a folder where there are no bytes).
"""
import argparse
import collections
import concurrent.futures
import ctypes
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile

import random_manifests
import zt2read
import ztread
from support import DIFFERS, DONE, HERE, INVALID, PROGRAM, UNSUPPORTED, USAGE

LIBRARY = os.environ.get("ZT_LIBRARY")
PATIENCE = 60
UNVERIFIED = 8  # of the C interface: good, as far as could be checked
MEMORY = 256  # MiB that any run may take
# A row says BAD where it leaves open which of the two it is, and so UNKNOWN.
GOOD, OPAQUE, BAD, UNKNOWN = "good", "opaque", "bad", "unknown"
DAMAGED, MALFORMED, REFUSED = "bad data", "bad header", "unknown header"
ONE_LINE = re.compile(r"(ztstream: warning: [^\n]+\n)*ztstream: (?!warning)[^\n]+\n?")
# Formats that may come through a pipe, and how their files are named.
PIPED = ("safetensors", "torch-stream")
NAMES = {"safetensors": "in.safetensors", "safetensors-file": "in.safetensors", "torch": "in.pt", "torch-stream": "in.pt"}

# What each command may answer to a file of each verdict where a listing shows nothing: bad data look well if none is read.
ANSWERS = {
    "inspect": {GOOD: {DONE}, OPAQUE: {DONE}, BAD: {DONE}, UNKNOWN: {DONE}},
    # What it skips it says; a digest that nobody knows is no error.
    "stats": {GOOD: {DONE}, OPAQUE: {DONE}, BAD: {DONE, INVALID}, UNKNOWN: {DONE, UNSUPPORTED}},
    # The digests of a 2.0 file are its identity, so that no data is read.
    "id": {GOOD: {DONE}, OPAQUE: {DONE, UNSUPPORTED}, BAD: {DONE, INVALID}, UNKNOWN: {UNSUPPORTED}},
    **{command: {GOOD: {DONE}, OPAQUE: {UNSUPPORTED}, BAD: {INVALID}, UNKNOWN: {UNSUPPORTED}}
       for command in ("diff", "convert", "extract", "extract DIR/", "convert -")},
    "C open": {GOOD: {DONE}, OPAQUE: {DONE}, BAD: {DONE}, UNKNOWN: {DONE}},
    "C verify": {GOOD: {DONE, UNVERIFIED}, OPAQUE: {UNVERIFIED}, BAD: {INVALID}, UNKNOWN: {UNSUPPORTED}},
    "C read": {GOOD: {DONE}, OPAQUE: {DONE, UNSUPPORTED}, BAD: {DONE, INVALID}, UNKNOWN: {UNSUPPORTED}},
}
# To what a listing shows everybody answers the same.
OF_HEADERS = {MALFORMED: {INVALID}, REFUSED: {UNSUPPORTED}}

# Conversions tried; the first word of the label is the version written. To its own version a good file always converts.
CONVERSIONS = {"1.2": ["--spec", "1.2"], "1.2 zstd": ["--spec", "1.2", "--zstd", "--min-gain", "0"], "2.0": ["--spec", "2.0"],
               "2.0 zstd": ["--spec", "2.0", "--zstd", "--min-gain", "0"], "canonical": ["--canonical"]}

# What a target cannot say of a good file, and of one that is bad in its data alone: target, message, status, reason.
CANNOT = [
    ("npz", "is not an array|one sparse matrix and nothing else|scipy has no matrices of|scipy's (dimensions|indices) are below|"
     "numpy could not read its bytes", UNSUPPORTED,
     "numpy's arrays and scipy's matrices are what an .npz holds"),
    ("npz", "a zip archive's names", UNSUPPORTED, "names in a zip archive end at a zero"),
    ("npz", "would be unpacked outside its folder", UNSUPPORTED, "an archive must not write outside its folder"),
    ("safetensors", "cannot be written to safetensors|safetensors has no type|ends within a byte", UNSUPPORTED, "safetensors are dense, and of its own types"),
    *((where, text, answer, why) for where, answer in (("2.0|canonical", USAGE), ("id", UNSUPPORTED)) for text, why in (
        ("§3[.]5|has no empty names|names of at most 1024|holds U.0000", "names of 2.0 have 1 to 1,024 bytes and no zero"),
        ("has no bool of type", "a bool of 2.0 is u8 of type bool, and a part has one type"),
        ("overflows 64 bits .zTensor 2[.]0 §3[.]3", "the elements of a tensor of 2.0 can be counted"))),
    ("1[.]2", "keeps the format .* for itself", USAGE, "1.2 keeps byte planes under a format of that name"),
    ("2.0|canonical|id", "two elements name cell|is not more than the one before in its row", UNSUPPORTED,
     "a cell is named once, and the columns of a row ascend"),
]
# What only `verify` reads: the rest may take a file that is bad in nothing else.
UNREAD = "padding byte"


class Disagreement(Exception):
    pass


class Component(ctypes.Structure):
    _fields_ = [("object", ctypes.c_size_t),
                *((name, ctypes.c_char_p) for name in ("role", "dtype", "storage", "encoding", "digest", "file")),
                *((name, ctypes.c_uint64) for name in ("offset", "length", "bytes")),
                ("unreadable", ctypes.c_char_p), ("mappable", ctypes.c_int)]


class Call(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_uint), ("progress", ctypes.c_void_p),
                ("user", ctypes.c_void_p)]


class Library:
    """The C interface: what it answers to a file, as {call: (status, message)}."""

    LARGEST = 1 << 24  # of a component that is read

    def __init__(self, path):
        self.c = ctypes.CDLL(str(path))
        self.c.zts_last_error.restype = ctypes.c_char_p
        self.c.zts_reader_component_count.restype = ctypes.c_size_t

    def message(self, status):
        return (status, self.c.zts_last_error().decode(errors="replace") if status else "")

    def answers(self, path):
        reader, size = ctypes.c_void_p(), ctypes.c_size_t
        status = self.c.zts_reader_open(str(path).encode(), None, ctypes.byref(reader))
        if status:
            return {call: self.message(status) for call in ("C open", "C verify", "C read")}
        out = {"C open": (DONE, ""), "C read": (DONE, "")}
        count = self.c.zts_reader_component_count(reader)
        parts = (Component * count)()
        self.c.zts_reader_components(reader, size(0), size(count), parts, size(ctypes.sizeof(Component)))
        for index, part in enumerate(parts):
            number = sum(each.object == part.object for each in parts[:index])
            known = part.bytes != ctypes.c_uint64(-1).value
            if part.bytes <= self.LARGEST or not known:
                buffer = ctypes.create_string_buffer(part.bytes or 1 if known else 1)
                status = self.c.zts_reader_read(reader, size(part.object), size(number), ctypes.c_uint64(0),
                                                buffer, ctypes.c_uint64(part.bytes if known else 1))
                if status and not out["C read"][0]:
                    out["C read"] = self.message(status)
        call = Call()
        self.c.zts_call_init(ctypes.byref(call), size(ctypes.sizeof(Call)))
        call.threads = 1
        out["C verify"] = self.message(self.c.zts_reader_verify(reader, size(-1), None, None, None, size(0),
                                                                ctypes.byref(call)))
        self.c.zts_reader_free(reader)
        return out


class Checker:
    """Gives inputs to everybody; check() returns what disagrees, as (rule, what was said)."""

    def __init__(self, program, folder, library=LIBRARY, each=None):
        self.program, self.folder = str(program), pathlib.Path(folder)
        self.each, self.turn = each or len(CONVERSIONS), 0
        self.out = self.folder / "out"  # empty before each command
        self.out.mkdir()
        self.library = Library(library) if library else None
        with open(self.program, "rb") as file:
            self.bounded = b"san_init" not in file.read()  # sanitizers take memory of their own

    def run(self, *words, stdin=None):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, timeout=PATIENCE, check=False,
                              input=stdin or b"", cwd=self.folder)
        return done.returncode, done.stderr.decode(errors="replace").strip(), done.stdout

    def verdict(self):
        if self.native:
            status, said, out = self.run("verify", "--json", "-T1", self.path)
        else:
            status, said, _ = self.run("diff", "-T1", *self.given, self.path)
            out = b"{}"
        if status not in (DONE, DIFFERS, INVALID, UNSUPPORTED):
            raise Disagreement(f"exit status {status}: {said}")
        report = json.loads(out or b"{}")
        problems = [f"tensor '{each.get('object')}': {each['message']}" for each in report.get("problems", [])]
        self.padded = status == DIFFERS and all(UNREAD in problem for problem in problems)
        self.undecodable = bool(report.get("undecodable"))
        if status == DONE:
            return OPAQUE if report.get("undecodable") else GOOD, " ".join(report.get("undecodable", []) + [said])
        return UNKNOWN if status == UNSUPPORTED else BAD, "; ".join(problems) or said

    def check(self, path, version=None, want="", says=()):
        """`want`: what the verdict must begin with. `says`: what all must say who find fault; of a good file, verify."""
        before = self.files()
        self.path, self.wrong, self.says = path, [], (says,) if isinstance(says, str) else says
        self.given = ["--from", "torch", path] if (version or "").startswith("torch") else [path]
        self.native = version is None or version[0] in "012"
        self.kind, self.several = GOOD, version == "folder"
        try:
            self.kind, self.why = self.verdict()
        except Disagreement as fault:
            return GOOD, [("verify", str(fault))]
        self.plain = self.kind in (GOOD, OPAQUE)
        status, said, out = self.run("inspect", "--json", *self.given)
        if json.loads(out or b"{}").get("ok") != (status == DONE):
            self.disagree("inspect --json", status, out[:300])
        if not self.plain and status != DONE:
            self.kind = MALFORMED if self.kind == BAD else REFUSED
        elif self.kind == BAD:
            self.kind = DAMAGED
        self.inspect = self.answer("inspect", status, said)
        if want and not self.kind.startswith(want):
            self.disagree("the table of forged files", want, "")
        for text in self.says:
            if text not in self.why and (not self.plain or self.native):
                self.disagree("verify", "another message", f"not: {text}")
        if "manifest: " in self.why and self.inspect == DONE:
            self.disagree("inspect", DONE, "accepts what the manifest shows")
        if self.native:
            self.independent()
        for way in self.ways(version):
            way()
            self.clear()
        answers = self.library.answers(path) if self.library and len(self.given) == 1 else {}
        for call, (status, said) in answers.items():
            self.answer(call, status, said)
        if self.files() != before:
            self.disagree("somebody", "leaves", sorted(self.files() - before))
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        if self.bounded and used > MEMORY:
            self.disagree("one of these or of those before", f"takes {used} MiB", "")
        return self.kind, self.wrong

    def ways(self, version):
        """What is asked of an input. Where a listing shows already what is wrong, all open it alike: some of them, in turn."""
        self.turn += self.each
        commands = [lambda: self.ask("diff", "diff", "-T1", self.path, self.path)] * self.native
        commands += [lambda: self.ask("stats", "inspect", "--stats", "-T1", *self.given), lambda: self.convert_all(version),
                     lambda: self.ask("extract", "extract", "-q", "-T1", "--no-sync", *self.given, "-o", "out/o.npz", target="npz")]
        if not self.plain:
            commands.append(lambda: self.ask("extract DIR/", "extract", "-q", "-T1", "--no-sync", *self.given, "--to", "safetensors",
                                             "-o", "out/d/", target="safetensors"))
            if version in PIPED:
                commands.append(lambda: self.ask("convert -", "convert", "-q", *self.given[:-1], "-", "-o", "out/o.zt",
                                                 stdin=self.path.read_bytes()))
        return commands if self.inspect == DONE else self.some(commands)

    def some(self, rows):
        """`each` of the rows, in turn, or all."""
        return rows if self.each >= len(CONVERSIONS) else [rows[at % len(rows)] for at in range(self.turn, self.turn + self.each)]

    def convert_all(self, version):
        """What is not .zt, and what no command opens, is opened or refused alike by all conversions."""
        status, said, identity = self.run("id", "-T1", *self.given)
        self.answer("id", status, said, target="")
        labels = [*CONVERSIONS]
        for label in self.some(labels) if self.native and self.inspect == DONE else labels[:1]:
            self.convert(label, CONVERSIONS[label], identity, version)

    def has_identity(self, label):
        """Whether a conversion keeps the identity (2.0, 6.4): it is made of the digests that a file has, whatever their algorithm,
        of its attributes, also where they are an empty map, of layouts, also where 2.0 has a name for one of ours, and of the dtypes
        of indices, which 1.2 widens."""
        content = self.path.read_bytes() if self.native else b""
        if content[:4] != b"\x89ZT2":
            return True
        other = re.search(rb"(?<!xxh3):[0-9a-f]{2}|jattributes\xa0|ztstream[.]sparse", content)
        return not other and not (label.startswith("1") and b"zt.sparse" in content and b"u32" in content)

    def independent(self):
        """What is good can be read by the tests' own readers, and a bad 2.0 file cannot, where all of it can be looked at."""
        content, accepted, whole, said = self.path.read_bytes(), True, False, ""
        if b"ztstream.file" in content and not self.plain:  # of the paths of a model's files they know nothing
            return
        try:
            if content[:8] == zt2read.MAGIC:
                whole = not zt2read.open_file(self.path).verify() and b"crc32c" not in content
            else:
                ztread.read_file(self.path)
        except Exception as fault:  # it reads hostile files without care
            accepted, said = False, repr(fault)
        if not accepted and self.plain or accepted and whole and self.kind in (DAMAGED, MALFORMED):
            self.disagree("an independent reader", DONE if accepted else INVALID, said)

    def disagree(self, who, status, said):
        self.wrong.append((f"{self.kind}, {who} {status}", f"verify: {self.why[:300]}\n{str(said)[-300:]}"))

    def files(self):
        return {os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names}

    def clear(self):
        for path in self.out.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def ask(self, who, *words, target=None, own=False, stdin=None):
        """Runs a command and judges its answer. A failure is told in one line and leaves nothing."""
        status, said, out = self.run(*words, stdin=stdin)
        left = os.listdir(self.out)
        named = self.several or ("standard input" if "-" in words else self.path.name) in said
        if status != DONE and (left or out or not named or not ONE_LINE.fullmatch(said)):
            self.disagree(who, status, f"leaves {left}, prints {out[:100]!r}, says {said}")
        return self.answer(who, status, said, target, own)

    def answer(self, who, status, said, target=None, own=False):
        allowed = OF_HEADERS.get(self.kind) or ANSWERS[who][self.kind.split()[0]]
        if self.undecodable and self.kind == DAMAGED:
            allowed = allowed | {UNSUPPORTED}
        if self.padded:
            allowed = allowed | ANSWERS[who][GOOD]
        cannot = target is not None and not own and self.cannot(target or who, status, said)
        if status not in allowed and not cannot:
            self.disagree(f"{who} {target}" if target else who, status, said)
        if status in (INVALID, UNSUPPORTED) and self.kind != GOOD and not cannot:
            for text in self.says:
                if text not in said:
                    self.disagree(who, "another message", said)
        return status

    def cannot(self, who, status, said):
        return (self.plain or self.inspect == DONE) and any(
            re.search(where, who) and status == answer and re.search(text, said) for where, text, answer, _ in CANNOT)

    def convert(self, label, options, identity, version):
        out = self.out / "o.zt"
        status = self.ask("convert", "convert", "-q", "-T1", "--no-sync", *options, *self.given, "-o", out, target=label,
                          own=version is not None and label.split()[0] == version)
        if status == DONE and self.kind == GOOD:
            asked = [["diff", "-T1", self.path, out]]
            if label == "canonical" or not self.library:
                asked.append(["verify", "-T1", *["--canonical"] * (label == "canonical"), out])
            elif (verified := self.library.answers(out)["C verify"])[0] not in (DONE, UNVERIFIED):
                self.disagree(f"C verify of convert {label}", *verified)
            for command in asked:
                status, said, text = self.run(*command)
                if status != DONE:
                    self.disagree(f"{command[0]} of convert {label}", status, said or text.decode(errors="replace"))
            status, said, other = self.run("id", "-T1", out)
            if identity and self.has_identity(label) and (status, other.split()[:1]) != (DONE, identity.split()[:1]):
                self.disagree(f"id of convert {label}", status, said or f"{other.decode().strip()}, not {identity.decode().strip()}")
        self.clear()


def random_file(seed, version, mutate):
    return random_manifests.make(random.Random(f"{seed} {version} {mutate}"), version, mutate)


def put(folder, version, source):
    """Writes an input of a row below the folder, and returns the path of what is given to the commands."""
    if isinstance(source, (str, pathlib.Path)):
        return pathlib.Path(source)
    if isinstance(source, tuple):
        source = random_file(*source)
    files = source if isinstance(source, dict) else {NAMES.get(version, "in.zt"): source}
    for name, content in files.items():
        path = folder / name
        (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content)
    return folder / next(iter(files))


def try_files(program, library, rows, keep, each, at):
    """[(label, verdict, what disagrees)] of the rows, of which the last two members may lack."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agreement-"))
    checker, found = Checker(program, folder, library, each), []
    checker.turn = at
    for label, version, source, *wanted in rows:
        path = put(folder / "in", version, source)
        try:
            kind, wrong = checker.check(path, version, *wanted)
        except subprocess.TimeoutExpired as fault:
            kind, wrong = BAD, [("hangs", str(fault))]
        found.append((label, kind, wrong))
        if wrong and keep and isinstance(source, tuple):
            shutil.copy(path, pathlib.Path(keep) / f"{label.replace(' ', '-')}.zt")
        shutil.rmtree(folder / "in", ignore_errors=True)
    shutil.rmtree(folder)
    return found


def run_files(program, library, files, keep=None, each=None):
    """As try_files, by several processes. Of the conversions, or of the commands where all refuse it, each file meets `each`, in turn, or all."""
    jobs = len(os.sched_getaffinity(0))
    forked = multiprocessing.get_context("fork")  # all at once, before the pool has a thread; what is imported is there
    step = max(1, min(50, len(files) // jobs // 4 + 1))
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=forked) as pool:
        parts = [pool.submit(try_files, program, library, files[at:at + step], keep, each, at) for at in range(0, len(files), step)]
        for part in parts:
            yield from part.result()


def random_files(count, seed=1):
    return [(f"{version} {'mutant' if mutate else 'random'} {at}", version, (at, version, mutate))
            for at in range(seed, seed + count) for version in random_manifests.VERSIONS for mutate in (False, True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1, help="the first of them")
    parser.add_argument("--files", nargs="+", default=[], help="these instead")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--library", default=LIBRARY or HERE.parents[1] / "build/release/capi/libztstream.so")
    parser.add_argument("--keep", help="a folder for the files that disagree")
    options = parser.parse_args()
    if not pathlib.Path(options.library).exists():
        parser.error(f"there is no {options.library}; cmake --build --preset release --target ztstream_c makes it")
    files = [(name, None, name) for name in options.files] or random_files(options.runs, options.seed)
    if options.keep:
        pathlib.Path(options.keep).mkdir(parents=True, exist_ok=True)
    causes, kinds, wrong = {}, collections.Counter(), 0
    for label, kind, found in run_files(str(pathlib.Path(options.program).resolve()), str(options.library), files, options.keep):
        kinds[label.split()[0] if not options.files else "", kind] += 1
        wrong += bool(found)
        if found:
            key = tuple(re.sub(r"'[^']*'|\b[0-9a-f]{16,}|x{9,}|\d+", "#", " ".join(each)[:160]) for each in found)
            causes.setdefault(key, []).append((label, found))
    for examples in sorted(causes.values(), key=len):
        label, found = examples[0]
        print(f"{len(examples)} x, the first is {label}: {found[0][1].split(chr(10))[0]}")
        for rule, said in found:
            print(f"    {rule}: {said.partition(': ')[2] if chr(10) not in said else said.partition(chr(10))[2].strip()}"[:240])
    print(f"{len(files)} files, {wrong} of which are disputed;",
          ", ".join(f"{version} {kind} {count}".strip() for (version, kind), count in sorted(kinds.items())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
