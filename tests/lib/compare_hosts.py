"""Compares two builds of ztstream: the same commands on the same fixtures must give the same bytes.

    compare_hosts.py NATIVE FOREIGN [--every N] [KIND...]

FOREIGN is a build for another host, or a command that emulates it. KIND is a folder of tests/data, or one that is made:
"folders" (make_folders.py), "schemes" (quantized.py), "pairs" (a model and the next step of it), "made". All of them by
default. --every takes each Nth job of a kind alone.

For every fixture and every option set: exit status, standard error, standard output and every file written. Prints
counts; exit status 1 on any difference. scripts/try-host.sh runs it.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy

import make_folders
import make_safetensors
import quantized

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"

# What `convert` is tried with, for every fixture.
OPTIONS = [
    (),
    ("--zstd", "--min-gain", "-1000", "-T", "2"),
    ("--zstd=9", "--chunk", "64KiB", "--digest", "sha256"),
    ("--spec", "1.1"),
    ("--spec", "1.1", "--zstd", "--digest", "none"),
    ("--spec", "0.1"),
    ("--digest", "xxh3", "-T", "2"),
    ("--spec", "2.0", "--zstd=planes"),
]
# Those that change values, for formats that hold numbers.
CONVERSIONS = [("--dtype", dtype, "--on-overflow", "saturate")
               for dtype in ("f16", "bf16", "f32", "f64", "f8_e4m3", "f8_e5m2")]
CONVERSIONS += [("--dtype", dtype, "--on-overflow", "saturate", "--allow-loss") for dtype in ("i8", "u64")]
# What is tried with one kind alone.
SPECIAL = {
    "gguf": [("--dequantize", "f32"), ("--dequantize", "f16"), ("--dequantize", "bf16")],
    "gptq": [("--quant", "group")],
    "awq": [("--quant", "group")],
    "hdf5": [("--exclude", "text")],
    "schemes": [*(("--dequantize", to, "--on-overflow", "inf") for to in ("f32", "f16", "bf16")), ("--quant", "group")],
}
# Figures of numbers, whose last digits tell how each was rounded.
STATS = ("inspect", "--stats", "--json")


# Kinds of which every file is an input, whatever its suffix, and those of which one is.
WHOLE = ("torch", "torch-streams", "torch-pickles", "onnx", "hdf5")
ARCHIVES = (".safetensors", ".npy", ".npz", ".gguf", ".zt")


def make(folder):
    """Inputs that no file of tests/data holds."""
    for name, fill in make_folders.FOLDERS.items():
        (folder / "folders" / name).mkdir(parents=True)
        fill(folder / "folders" / name)
    (folder / "made").mkdir()
    for bits, signaling, quiet in ((16, 0x7c01, 0x7e00), (32, 0x7f800001, 0x7fc00000), (64, 0x7ff << 52 | 1, 0x7ff8 << 48)):
        patterns = [signaling, quiet, signaling | 1 << (bits - 1), 0, 1] * 100
        numpy.save(folder / f"made/nan{bits}.npy", numpy.array(patterns, f"<u{bits // 8}").view(f"<f{bits // 8}"))
    rng = numpy.random.default_rng(1)
    for name, scheme in quantized.SCHEMES.items():
        config, add = scheme(rng)
        tensors = {}
        for layer in range(6):
            add(tensors, f"model.layers.{layer}.m")
        (folder / "schemes" / name).mkdir(parents=True)
        (folder / "schemes" / name / "config.json").write_text(json.dumps({"quantization_config": config}))
        make_safetensors.write(folder / "schemes" / name / "model.safetensors", tensors)
    make_pairs(folder / "pairs", rng)


def make_pairs(folder, rng):
    """A model of every type and the next step of it, of which each hundredth number moved a little."""
    old, new = {}, {}
    for dtype, kind in (("BF16", "<u2"), ("F16", "<f2"), ("F32", "<f4"), ("F64", "<f8"), ("C64", "<c8"), ("I64", "<i8"), ("U16", "<u2"),
                        ("I8", "i1"), ("F8_E4M3", "u1"), ("BOOL", "u1")):
        for size in (1, 999, 70_000):
            values = rng.normal(0, 0.02, size) + (1j * rng.normal(0, 0.02, size) if dtype == "C64" else 0)
            moved = values * numpy.where(rng.random(size) < 0.01, 1.01, 1)
            for tensors, now in ((old, values), (new, moved)):
                if dtype == "BF16":
                    now = now.astype("<f4").view("<u4") >> 16
                elif kind[-2] != "f" and dtype != "C64":
                    now = numpy.abs(now * 1000)
                tensors[f"{dtype}.{size}"] = dtype, [size], (now > 20 if dtype == "BOOL" else now).astype(kind).tobytes()
    old["gone"], new["come"], new["shape"], old["shape"] = ("U8", [1], b"1"), ("U8", [1], b"2"), ("U8", [2], b"12"), ("U8", [1], b"1")
    for name, tensors in (("old", old), ("new", new)):
        (folder / "pair" / name).mkdir(parents=True)
        make_safetensors.write(folder / "pair" / name / "model.safetensors", tensors)


def fixtures(made):
    """(kind, input): every fixture of every format that is read."""
    for path in sorted(DATA.glob("*/*")):
        kind = path.parent.name
        if kind in ("gptq", "awq", "manifests", "hf-sharded"):
            continue
        if path.name.startswith("split-"):
            continue
        if path.suffix in ARCHIVES or kind in WHOLE and path.is_file() and path.name != "expected.json":
            yield kind, path
    yield "onnx", DATA / "onnx/ext/m.onnx"
    yield "gguf", DATA / "gguf/split-00001-of-00003.gguf"
    for folder in ("gptq", "awq", "hf-sharded", "dcp"):
        yield folder, DATA / folder
    for path in sorted(made.glob("*/*")):
        yield path.parent.name, path


def delta_jobs(old, new):
    back = [("convert", "d.zt", "-o", "whole.zt"), ("verify", "--json", "d.zt"), ("verify", "--json", "d.zt", "--base", "old.zt"),
            ("diff", "--json", "d.zt", new), ("extract", "d.zt", "-o", "back.safetensors"), ("id", "d.zt"), ("show", "d.zt", "F32.999[:9]")]
    for options in ((), ("--zstd",), ("--zstd=planes",), ("--spec", "1.2"), ("--digest", "sha256", "-T", "2")):
        make = [("convert", old, "-o", "old.zt"), ("convert", new, "--base", "old.zt", "-o", "d.zt", *options)]
        yield "pairs", [*make, *back]
        same = "--include", "glob:*.*"  # the tensors that both have
        yield "pairs", [("convert", old, "-o", "now.zt", *same), ("extract", "now.zt", "-o", "now.safetensors"),
                        ("convert", new, "--base", "now.zt", "-o", "d.zt", *same, *options), ("apply", "d.zt", "now.safetensors"),
                        ("apply", "d.zt", "now.zt"), ("diff", "--json", "now.zt", "now.safetensors")]
        yield "pairs", [*make, ("convert", old, "--base", "d.zt", "-o", "e.zt", *options), ("convert", "e.zt", "-o", "again.zt")]
    for options in ((), ("--rtol", "0.01"), ("--atol", "1e-4", "--rtol", "1e-3")):
        yield "pairs", [("diff", "--json", *options, old, new), ("diff", *options, new, old)]


def jobs(made):
    """(kind, commands): commands run one after the other in one folder."""
    yield from delta_jobs(made / "pairs/pair/old", made / "pairs/pair/new")
    number = collections.Counter()
    for kind, path in fixtures(made):
        if kind == "pairs":
            continue
        number[kind] += 1
        yield kind, [("inspect", "--json", path), ("verify", "--json", path), (*STATS, path)]
        options = [*OPTIONS, *SPECIAL.get(kind, []), *CONVERSIONS]
        if kind == "convert":  # the same few values in many types
            options = [(), *CONVERSIONS]
        elif kind in ("corpus", "npy-reject", "torch-pickles"):  # most of these are refused
            options = OPTIONS[:2]
        elif kind in ("quantized", "schemes"):
            options = [*OPTIONS[:1], *SPECIAL.get(kind, [])]
        elif kind in ("planes", "zt2", "zt", "torch", "npy", "gguf"):  # there are many of these, which share what is tried
            options = options[number[kind] % 2::2]
        for option_set in options:
            yield kind, [("convert", path, "-o", "out.zt", *option_set), ("verify", "--json", "out.zt")]
        if kind not in ("convert", "corpus", "npy-reject", "torch-pickles"):
            back = [("extract", "out.zt", "-o", name)
                    for name in ("back.safetensors", "back.npz", "back.gguf", "folder")]
            yield kind, [("convert", path, "-o", "out.zt"), *back, ("diff", path, "out.zt")]


def run(program, commands):
    """What the commands left: their results, and every file below the folder they ran in."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ztstream-hosts-"))
    try:
        results = []
        for command in commands:
            process = subprocess.run([program, *map(str, command), "--progress", "never"], stdin=subprocess.DEVNULL, capture_output=True,
                                     cwd=folder, timeout=600)
            results.append((process.returncode, process.stdout, without_time(process.stderr)))
        files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
                 if path.is_file()}
        return results, files
    finally:
        shutil.rmtree(folder)


def without_time(errors):
    """The line that sums up a conversion, without how long it took."""
    return re.sub(rb", [0-9.]+ s, [0-9.]+ [KMGT]?i?B/s$", b"", errors, flags=re.MULTILINE)


def first_difference(one, other):
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return f"{len(one)} and {len(other)} bytes, different from byte {at}"


def differences(commands, native, foreign):
    for command, one, other in zip(commands, native[0], foreign[0]):
        for what, a, b in zip(("exit status", "standard output", "standard error"), one, other):
            if a != b:
                # from a little before the first byte that differs
                at = 0 if isinstance(a, int) else max(0, len(os.path.commonprefix([a, b])) - 100)
                a, b = (each if isinstance(each, int) else each[at:] for each in (a, b))
                yield f"{' '.join(map(str, command))}: {what}\n  here:  {a!r:.300}\n  there: {b!r:.300}"
    for name in sorted(set(native[1]) | set(foreign[1])):
        a, b = native[1].get(name), foreign[1].get(name)
        if a is None or b is None:
            yield f"{commands}: {name} was written {'there' if a is None else 'here'} alone"
        elif a != b:
            yield f"{commands}: {name}: {first_difference(a, b)}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs=2, type=os.path.abspath)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("kinds", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(pathlib.Path(folder))
        of_kinds = collections.defaultdict(list)
        for job in jobs(pathlib.Path(folder)):
            of_kinds[job[0]].append(job)
        work = [job for kind, all_of in of_kinds.items() if not options.kinds or kind in options.kinds
                for job in all_of[::options.every]]
        return compare(*options.programs, work)


def compare(native, foreign, work):
    ran, files, written, different = collections.Counter(), collections.Counter(), 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        pairs = pool.map(lambda job: (job, run(native, job[1]), run(foreign, job[1])), work)
        for (kind, commands), here, there in pairs:
            for line in differences(commands, here, there):
                print(f"DIFFERENT: {kind}: {line}", flush=True)
                different += 1
            ran[kind] += len(commands)
            files[kind] += len(here[1])
            written += sum(map(len, here[1].values()))
    for kind in sorted(ran):
        print(f"  {kind:12} {ran[kind]:5} commands, {files[kind]:4} files")
    print(f"compared {ran.total()} commands and {files.total()} files ({written} bytes): {different} differences")
    return 1 if different or not files.total() else 0


if __name__ == "__main__":
    sys.exit(main())
