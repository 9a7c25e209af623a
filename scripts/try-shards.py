#!/usr/bin/python3 -B
"""What shards cost: a checkpoint of holes, as large as asked for, converted to one file and in shards.

    scripts/try-shards.py [--gib N] [--shards N] [--files N] [--folder DIR] [--once | --runs N]

Prints the time and the peak memory of both, and what a task reads to plan and the join to join (as strace counts it). The
checkpoint takes no room on the disk, and with --zstd=huffman what comes of it takes little. --once leaves the one file out;
--runs N converts both N times in turn, after a run that nobody counts, and compares the medians (three of 16 GiB will do).
Defaults: 1024 GiB, 200 shards, 163 input files. The program is that of build/release, or ZTSTREAM.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("ZTSTREAM") or str(ROOT / "build/release/bin/ztstream")
PER_FILE = 564  # tensors: those of the largest public checkpoint, 91,991 in 163 files


def make(folder, total, files):
    """A checkpoint of `files` files with an index; every tensor is a hole."""
    weights, each = {}, total // (files * PER_FILE) // 4096 * 4096
    for number in range(1, files + 1):
        name = f"model-{number:05}-of-{files:06}.safetensors"
        tensors = [f"model.layers.{number}.mlp.experts.{expert}.down_proj.weight" for expert in range(PER_FILE)]
        header = {tensor: {"dtype": "BF16", "shape": [each // 4096, 2048], "data_offsets": [at * each, (at + 1) * each]}
                  for at, tensor in enumerate(tensors)}
        text = json.dumps(header).encode()
        with open(folder / name, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + PER_FILE * each)
        weights.update(dict.fromkeys(tensors, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    return sum(1 for _ in weights)


def run(*command):
    """Seconds, seconds of processors, and the peak memory in KiB, of a command."""
    start = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{command}: {status}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def reads(folder, *command):
    """The bytes that a command reads of files below `folder`, and in how many calls."""
    log = folder.parent / "strace.log"
    subprocess.run(["strace", "-f", "-y", "-o", log, "-e", "trace=pread64,preadv,read,readv", *map(str, command)],
                   check=True, stdout=subprocess.DEVNULL)
    calls = re.findall(rf"(?:pread64|preadv|read|readv)\(\d+<{re.escape(str(folder))}/[^>]*>.* = (\d+)$", log.read_text(), re.M)
    return sum(map(int, calls)), len(calls)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=1024)
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--files", type=int, default=163)
    parser.add_argument("--folder", help="where to write; else the system's temporary folder")
    parser.add_argument("--once", action="store_true", help="shards alone")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ztstream-shards-", dir=options.folder) as top:
        checkpoint, out = pathlib.Path(top) / "in", pathlib.Path(top) / "out"
        checkpoint.mkdir(), out.mkdir()
        tensors = make(checkpoint, options.gib << 30, options.files)
        print(f"{options.gib} GiB of holes: {tensors} tensors in {options.files} files")
        how = ["--zstd=huffman", "-q"]
        if shutil.which("strace"):
            task = ["--shard", "500/1000"] if options.files * PER_FILE >= 1000 else ["--shard", f"1/{options.shards}"]
            count, calls = reads(checkpoint, PROGRAM, "convert", checkpoint, "-o", out / "m.zt", *task, *how, "-n")
            print(f"to plan, a task reads {count} bytes of the input in {calls} calls; 1000 tasks {count * 1000 / 2**30:.2f} GiB")
        ways = {"one file": ["-o", out / "one.zt", "-f"],
                f"{options.shards} shards": ["-o", out / "model.zt", "--shards", options.shards]}
        if options.once:
            del ways["one file"]
        elif options.runs > 1:
            run(PROGRAM, "convert", checkpoint, *ways["one file"], *how)  # what is read then lies in memory
        taken = {name: [] for name in ways}
        for number in range(options.runs):
            for name in sorted(ways):
                for file in out.glob("model*") if "shards" in name else ():
                    file.unlink()  # a shard that is there would be kept
                taken[name].append(run(PROGRAM, "convert", checkpoint, *ways[name], *how))
        median = {name: [statistics.median(each) for each in zip(*runs)] for name, runs in taken.items()}
        for name, (seconds, work, _) in median.items():
            peak = max(each[2] for each in taken[name])
            print(f"{name}: {seconds:.2f} s, {work:.2f} s of processors, {peak} KiB at most")
        if not options.once:
            (one, least, _), (shards, work, _) = median.values()
            print(f"shards take {(shards / one - 1) * 100:+.1f} % of time, {(work / least - 1) * 100:+.1f} % of processors")
        if shutil.which("strace"):
            index = out / "model.zt.index.json"
            index.unlink()
            files = sorted(out.glob("model-*-of-*.zt"))
            count, calls = reads(out, PROGRAM, "join", *files, "-o", out / "model.zt", "-q")
            whole = sum(file.stat().st_size for file in files)
            print(f"the join reads {count} bytes of {whole} in {calls} calls")


if __name__ == "__main__":
    main()
