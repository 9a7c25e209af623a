#!/usr/bin/env python3
"""What tensors cost that many ranks wrote, beside one safetensors file of the same bytes.

    scripts/try-ranks.py [--ranks N] [--tensors N] [--kib N] [--runs N] [--folder FOLDER]

Writes N tensors of N KiB once as one file, and as each rank's files of torch.distributed.checkpoint: split by rows, and by columns.
Converts each several times in turns and prints medians of the time, and the most memory; compares the tensors. ZTSTREAM names the
program, build/release/bin/ztstream otherwise.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy

PROGRAM = os.environ.get("ZTSTREAM") or str(pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/ztstream")
COLUMNS = 1024


def write(path, shapes, offsets, data):
    """A safetensors file; `data(name)` is called for each tensor in turn."""
    header, at = {}, 0
    if offsets is not None:
        header["__metadata__"] = {"DCP_SHARDING_INFO": json.dumps({name: {"saved_offsets": each} for name, each in offsets.items()})}
    for name, shape in shapes.items():
        size = 4 * shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in shapes:
            file.write(data(name))


def measure(*command):
    begin = time.monotonic()
    process = subprocess.Popen([PROGRAM, *map(str, command)])
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{command} ended with {status}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--kib", type=int, default=2048)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", help="where to write; else the system's temporary folder")
    options = parser.parse_args()
    rows = options.kib * 1024 // 4 // COLUMNS
    names = [f"layer.{i}.weight" for i in range(options.tensors)]
    random = numpy.random.default_rng(1)
    block = random.integers(0, 2**32, (rows, COLUMNS), dtype=numpy.uint32)

    def values(name):
        return block ^ numpy.uint32(names.index(name))

    with tempfile.TemporaryDirectory(prefix="ztstream-ranks-", dir=options.folder) as top:
        top = pathlib.Path(top)
        write(top / "one.safetensors", {name: [rows, COLUMNS] for name in names}, None, lambda name: values(name).tobytes())
        ways = {"one file": top / "one.safetensors"}
        for way in ("rows", "columns"):
            folder = ways[way] = top / way
            folder.mkdir()
            length = rows if way == "rows" else COLUMNS
            step = -(-length // options.ranks)
            for rank in range(options.ranks):
                low, high = min(length, rank * step), min(length, (rank + 1) * step)
                cut = (slice(low, high), slice(None)) if way == "rows" else (slice(None), slice(low, high))
                shape = [high - low, COLUMNS] if way == "rows" else [rows, high - low]
                offset = [low, 0] if way == "rows" else [0, low]
                write(folder / f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors", {name: shape for name in names},
                      {name: offset for name in names}, lambda name, cut=cut: values(name)[cut].tobytes())
        taken = {way: [] for way in ways}
        for _ in range(options.runs):
            for way, path in ways.items():
                taken[way].append(measure("convert", path, "-o", top / "out.zt", "-f", "-q", "--files", "none"))
        first = statistics.median(each[0] for each in taken["one file"])
        size = options.tensors * options.kib / 2**20
        for way, runs in taken.items():
            seconds, work = (statistics.median(each[i] for each in runs) for i in (0, 1))
            print(f"{way}: {seconds:.2f} s, {size / seconds:.2f} GiB/s, {first / seconds:.2f} of one file's speed, "
                  f"{work:.2f} s of processors, {max(each[2] for each in runs) // 1024} MiB at most")
            if way != "one file":
                measure("diff", ways["one file"], ways[way], "-q")


if __name__ == "__main__":
    main()
