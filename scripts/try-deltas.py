#!/usr/bin/python3
"""try-deltas.py - what deltas take (docs/DELTA.md): sizes beside the exclusive or under zstd -1, which other programs ship, and
bounds; then speeds beside `diff`, `cp`, a raw conversion and a folder of exclusive ors applied with numpy and zstandard, and of
chains; memory with checkpoints of holes. scripts/delta-trial.sh tries that values are right.

usage: try-deltas.py [--mib N] [--speed-mib N] [--threads N] [--folder DIR] [--runs N] [--only sizes|speeds|chain|holes] [--holes-gb N]
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import zstandard

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("ZTSTREAM") or ROOT / "build/release/bin/ztstream"
STEPS = (3e-7, 7.5e-7, 3e-6, 3e-5, 1e-4, 1e-3)
CHUNK = 4 << 20


def bf16(values):
    """Rounded to nearest, ties to even."""
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def floats(patterns):
    return (patterns.astype("<u4") << 16).view("<f4")


def weights(rng, count, width=4096):
    """Rows of their own scales."""
    rows = -(-count // width)
    return bf16((rng.standard_normal((rows, width), "<f4") * np.exp(rng.normal(0, 0.5, (rows, 1)).astype("<f4")) * 0.02).ravel()[:count])


def update(rng, old, step):
    return bf16(floats(old) + rng.standard_normal(len(old), "<f4") * np.float32(step))


def bound(old, new):
    """Entropy of the difference, its distribution known for each exponent of the base: bytes of a chunk."""
    bits = 0.0
    for at in range(0, len(old), CHUNK // 2):
        was, now = old[at:at + CHUNK // 2], new[at:at + CHUNK // 2]
        pairs = (was >> 7 & 255).astype("<u4") << 16 | (now - was)
        order = np.sort(pairs)
        starts = np.flatnonzero(np.concatenate([[True], order[1:] != order[:-1]]))
        counts = np.diff(np.append(starts, len(order)))
        totals = np.bincount(order[starts] >> 16, counts, 256)
        bits += float((counts * -np.log2(counts / totals[order[starts] >> 16])).sum())
    return bits / 8


def shipped(old, new):
    """Bytes of the exclusive or, by zstd -1."""
    data = (old ^ new).tobytes()
    return sum(len(zstandard.ZstdCompressor(level=1).compress(data[at:at + CHUNK])) for at in range(0, len(data), CHUNK))


def safetensors(path, dtype, tensors):
    import json
    header, at = {}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": dtype, "shape": [len(data)], "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for data in tensors.values():
            out.write(data.tobytes())


def run(*arguments):
    started = time.perf_counter()
    subprocess.run([PROGRAM, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def sizes(folder, mib):
    rng = np.random.default_rng(1)
    old = weights(rng, mib << 19)
    safetensors(folder / "old.safetensors", "BF16", {"w": old})
    print("| step | changed | `--base` | bound given exponents | of it | xor + zstd -1 | of it |\n|---|---|---|---|---|---|---|")
    for step in STEPS:
        new = update(rng, old, step)
        safetensors(folder / "new.safetensors", "BF16", {"w": new})
        run("convert", folder / "new.safetensors", "--base", folder / "old.safetensors", "-o", folder / "d.zt", "-f", "--no-sync")
        made, least, theirs = (folder / "d.zt").stat().st_size, bound(old, new), shipped(old, new)
        changed = np.count_nonzero(old != new) / len(old)
        print(f"| {step:g} | {changed:.1%} | {made / new.nbytes:.2%} | {least / new.nbytes:.2%} | {made / least:.2f} | "
              f"{theirs / new.nbytes:.2%} | {made / theirs:.2f} |", flush=True)


def theirs_apply(base, folder, out):
    """The exclusive or applied by numpy and zstandard, a tensor at a time."""
    started = time.perf_counter()
    data = np.fromfile(base, "u1")
    for name in sorted(folder.iterdir()):
        at = int(name.name)
        difference = np.frombuffer(zstandard.ZstdDecompressor().decompress(name.read_bytes()), "u1")
        data[at:at + len(difference)] ^= difference
    data.tofile(out)
    return time.perf_counter() - started


def speeds(folder, mib, threads, runs):
    rng = np.random.default_rng(2)
    old = {f"layer.{i}.w": weights(rng, 16 << 20) for i in range(mib // 32)}
    new = {name: update(rng, data, 7.5e-7) for name, data in old.items()}
    size = sum(data.nbytes for data in old.values())
    for name, model in (("old", old), ("new", new)):
        safetensors(folder / f"{name}.safetensors", "BF16", model)
    xors = folder / "xors"
    xors.mkdir()
    begin = (folder / "old.safetensors").stat().st_size - size
    for name, data in old.items():
        packed = zstandard.ZstdCompressor(level=1).compress((data ^ new[name]).tobytes())
        (xors / str(begin)).write_bytes(packed)
        begin += data.nbytes
    path, t = folder / "d.zt", ("-T", threads, "--no-sync", "-f", "-q")
    cases = {
        "cp": lambda: subprocess.run(["cp", folder / "new.safetensors", folder / "copy"], check=True),
        "raw conversion": lambda: run("convert", folder / "new.safetensors", "-o", folder / "raw.zt", *t),
        "diff": lambda: subprocess.run([PROGRAM, "diff", "-q", "-T", str(threads), folder / "old.safetensors", folder / "new.safetensors"],
                                       check=False, stdout=subprocess.DEVNULL),
        "encode": lambda: run("convert", folder / "new.safetensors", "--base", folder / "old.safetensors", "-o", path, *t),
        "apply": lambda: run("convert", path, "-o", folder / "made.zt", *t),
        "xor applied by numpy and zstandard": lambda: theirs_apply(folder / "old.safetensors", xors, folder / "theirs"),
    }
    print(f"\n{size >> 20} MiB of bf16, step 7.5e-7, {threads} threads, median of {runs}\n\n| way | seconds | GB/s |\n|---|---|---|")
    for name, case in cases.items():
        seconds = []
        for _ in range(runs):
            for stale in ("copy", "raw.zt", "made.zt", "theirs"):
                (folder / stale).unlink(missing_ok=True)
            started = time.perf_counter()
            case()
            seconds.append(time.perf_counter() - started)
        median = statistics.median(seconds)
        print(f"| {name} | {median:.2f} | {size / median / 1e9:.2f} |", flush=True)


def chain(folder, mib, threads, runs, deltas=64):
    """A chain of deltas, each after a step of 7.5e-7, beside the last one alone."""
    rng = np.random.default_rng(3)
    model, t = weights(rng, mib << 19), ("-T", threads, "--no-sync", "-f", "-q")
    safetensors(folder / "c0.safetensors", "BF16", {"w": model})
    before = folder / "c0.safetensors"
    for i in range(1, deltas + 1):
        model = update(rng, model, 7.5e-7)
        safetensors(folder / "step.safetensors", "BF16", {"w": model})
        if i == deltas:
            run("convert", before, "-o", folder / "last.zt", *t)
        run("convert", folder / "step.safetensors", "--base", before, "-o", folder / f"c{i}.zt", *t)
        before = folder / f"c{i}.zt"
    run("convert", folder / "step.safetensors", "--base", folder / "last.zt", "-o", folder / "one.zt", *t)
    medians = [statistics.median(run("convert", path, "-o", folder / "made.zt", *t) for _ in range(runs))
               for path in (folder / "one.zt", before)]
    print(f"\n{mib} MiB of bf16, {threads} threads: one delta {medians[0]:.2f} s, a chain of {deltas} {medians[1]:.2f} s: "
          f"{medians[0] / medians[1]:.2f} of its speed", flush=True)


def holes(folder, gigabytes, threads):
    """Two checkpoints of holes, of which one value differs: the delta, and what it makes, in how much memory?"""
    import json
    each, count = 4_000_000_000, max(1, gigabytes // 4)
    names = {f"layers.{i}.weight": {"dtype": "BF16", "shape": [each // 2], "data_offsets": [i * each, (i + 1) * each]} for i in range(count)}
    text = json.dumps(names).encode()
    text += b" " * (-len(text) % 8)
    for name in ("h0", "h1"):
        with open(folder / f"{name}.safetensors", "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + count * each)
            if name == "h1":
                out.seek(8 + len(text) + count * each // 2)
                out.write(b"\1\1")
    for what, words in (("made", ("convert", folder / "h1.safetensors", "--base", folder / "h0.safetensors", "-o", folder / "h.zt")),
                        ("read", ("verify", folder / "h.zt", "--base", folder / "h0.safetensors")),
                        ("applied where it lies", ("apply", folder / "h.zt", folder / "h0.safetensors"))):
        starter = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, " \
            "stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
        started = time.perf_counter()
        peak = float(subprocess.run([sys.executable, "-c", starter, PROGRAM, *map(str, words), "-T", str(threads)], check=True,
                                    capture_output=True).stdout)
        print(f"{gigabytes} GB of holes, {threads} threads: {what} in {time.perf_counter() - started:.0f} s and {peak:.0f} MiB", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--speed-mib", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder")
    parser.add_argument("--only", choices=("sizes", "speeds", "chain", "holes"))
    parser.add_argument("--holes-gb", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        if options.only in (None, "sizes"):
            sizes(folder, options.mib)
        if options.only in (None, "speeds"):
            speeds(folder, options.speed_mib, options.threads, options.runs)
        if options.only in (None, "chain"):
            chain(folder, options.mib, options.threads, options.runs)
        if options.only in (None, "holes"):
            holes(folder, options.holes_gb, options.threads)


if __name__ == "__main__":
    sys.exit(main())
