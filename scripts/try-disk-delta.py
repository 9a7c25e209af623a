#!/usr/bin/python3
"""try-disk-delta.py - folders of "disk delta" (docs/DELTA.md) with another program's own code: sglang's local_checkpoint.py, which
applies what convert --to disk-delta wrote, and is timed beside ztstream. It needs numpy, zstandard and xxhash.

usage: try-disk-delta.py PATH/local_checkpoint.py [--mib N] [--tensors N] [--share X] [--runs N] [--folder DIR]
"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("ZTSTREAM") or ROOT / "build/release/bin/ztstream"
sys.path.insert(0, str(ROOT / "tests/lib"))
import disk_delta


def save(path, tensors):
    """A checkpoint of bf16."""
    header, at = {}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [len(data)], "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir()
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for data in tensors.values():
            out.write(data.tobytes())


def processor():
    """Seconds of processors that this process and its children took."""
    return sum(os.times()[:4])


def timed(what):
    """Seconds by the clock, and of processors."""
    started, used = time.perf_counter(), processor()
    what()
    return time.perf_counter() - started, processor() - used


def run(*arguments):
    return timed(lambda: subprocess.run([PROGRAM, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL))


def median(runs, measure):
    return tuple(statistics.median(column) for column in zip(*(measure() for _ in range(runs))))


def theirs(module, base, versions, new, runs):
    """Seconds of their own application in place, which must give `new`."""
    def once():
        local = versions.parent / "local"
        shutil.rmtree(local, ignore_errors=True)
        module.pull(str(local), str(base), str(versions), 0)
        seconds = timed(lambda: module.pull(str(local), str(base), str(versions), 1))
        assert (local / "model.safetensors").read_bytes() == new.read_bytes()
        return seconds
    return median(runs, once)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", type=pathlib.Path)
    for name, kind, default in (("mib", int, 1024), ("tensors", int, 16), ("share", float, 0.01), ("runs", int, 3), ("folder", str, None)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("local_checkpoint", args.module)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        rng = np.random.default_rng(1)
        count = args.mib * 2**19 // args.tensors
        old = {f"layer.{i}": (rng.normal(0, 0.02, count).astype("<f4").view("<u4") >> 16).astype("<u2") for i in range(args.tensors)}
        new = {key: data + (rng.random(count) < args.share) for key, data in old.items()}
        base, after = folder / "base/model.safetensors", folder / "new/model.safetensors"
        save(base, old)
        save(after, new)
        rows = []
        for way, sums in (("disk-delta", "xxh3"), ("disk-delta", ""), ("disk-delta-overwrite", "xxh3")):
            versions = folder / f"{way}{sums}"
            versions.mkdir()
            to = versions / "weight_v000001"
            made = run("convert", after, "--base", base, "--to", way, "-o", f"{to}/", "-q", *(["--digest", sums] if sums else []))
            size = sum(file.stat().st_size for file in to.iterdir())
            label = f"{way}, {'xxh3-128' if sums else 'adler32'}: {100 * size / after.stat().st_size:.2f} %"
            rows.append((f"{label}: written", made))
            rows.append((f"{label}: applied by {args.module.name}", theirs(module, base.parent, versions, after, args.runs)))
            rows.append((f"{label}: converted to .zt", median(args.runs, lambda to=to: run(
                "convert", to, "--base", base, "-o", folder / "out.zt", "-fq", "--no-sync"))))
        disk_delta.write(folder / "weight_v000001", {k: v.view("u1") for k, v in old.items()}, {k: v.view("u1") for k, v in new.items()})
        run("extract", folder / "weight_v000001", "--base", base, "-o", folder / "again.safetensors", "-q")
        assert disk_delta.header_of((folder / "again.safetensors").read_bytes()[:1 << 16])[0].keys() >= new.keys()
        rows.append((".zt delta: written", run("convert", after, "--base", base, "-o", folder / "d.zt", "-q", "--no-sync")))
        size = (folder / "d.zt").stat().st_size
        for threads in (1, 0):
            rows.append((f".zt delta, {100 * size / after.stat().st_size:.2f} %: converted to .zt, {threads or 'all'} threads", median(
                args.runs, lambda threads=threads: run("convert", folder / "d.zt", "--base", base, "-o", folder / "out.zt", "-fq", "--no-sync",
                                                       "-T", threads))))
        print("seconds  of processors")
        for label, (clock, used) in rows:
            print(f"{clock:7.3f}  {used:7.3f}  {label}")


if __name__ == "__main__":
    main()
