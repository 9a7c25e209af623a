#!/usr/bin/python3
"""Compares what `ztstream bench` says that a conversion takes with what it then takes.

  forecast.py PROGRAM INPUT FOLDER [--sittings N] [--limit SIZE]

Each sitting asks for INPUT and writes into FOLDER, then converts with each of the options that were suggested: from the disk if
the estimate is for the disk. It prints taken / estimated, and at the end how many are within 30 %. The machine should be quiet.
"""
import argparse
import json
import os
import pathlib
import subprocess
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("input", type=pathlib.Path)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--sittings", type=int, default=10)
parser.add_argument("--limit", default="1GiB")
args = parser.parse_args()


def evict(path):
    """Takes a file, or all of a folder, out of the page cache."""
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


ratios, output = [], args.folder / "forecast.zt"
for sitting in range(args.sittings):
    if sitting % 2:
        evict(args.input)  # the even ones find in memory what the last one has read
    asked = [args.program, "bench", "--json", "--limit", args.limit, args.input, "-o", args.folder]
    said = json.loads(subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout)
    for each in said["suggestions"]:
        if said["reads_from"] == "disk":
            evict(args.input)
        begin = time.monotonic()
        subprocess.run([args.program, "convert", "-q", args.input, "-o", output, *each["options"].split()], check=True)
        taken = time.monotonic() - begin
        output.unlink()
        ratios.append(taken / each["seconds"])
        print(f"{sitting + 1:2} {said['reads_from']:6} load {said['load']:4.1f}  {each['options'] or 'raw':15} limit {each['limit']:7} "
              f"estimated {each['seconds_min']:6.1f} to {each['seconds_max']:6.1f} s, taken {taken:6.1f}: {ratios[-1]:.2f}", flush=True)
print(f"{sum(1 / 1.3 <= ratio <= 1.3 for ratio in ratios)} of {len(ratios)} within 30 %; "
      f"from {min(ratios):.2f} to {max(ratios):.2f} times the estimate")
