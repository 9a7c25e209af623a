#!/usr/bin/python3
"""Peak memory of conversions of generated checkpoints, against the limit of 96 MiB at 2 threads.

  memory.py [--program P] [--folder DIR] [--size 4GiB] [--threads 1,2] [--huge]

Each checkpoint is made in DIR (default: a temporary folder), converted with each option set, and removed. Raw output
of real weights goes to a file in DIR, so DIR needs twice SIZE. --huge adds a sparse checkpoint of 1 TiB, compressed.
Peak memory is the kernel's maximum resident set of the process. The index column is what a dry run takes beyond a
run that reads nothing: names, shapes and places of all tensors, which no conversion can do without. The limit holds
for the peak less the index. Exit status 1 if any exceeds it.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 96 << 20


def measure(command):
    """(seconds, peak bytes) of a process, which must succeed."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"memory.py: {' '.join(map(str, command))}: status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - start, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/bin/ztstream")
    parser.add_argument("--folder")
    parser.add_argument("--size", default="4GiB")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--huge", action="store_true")
    options = parser.parse_args()

    checkpoints = [
        ("weights", [options.size], [[], ["--zstd"]]),
        ("10 KB tensors", ["500MB", "--tensor-bytes", "10KB"], [[], ["--zstd"]]),
        ("sparse", [options.size, "--sparse"], [["--zstd"]]),
    ]
    if options.huge:
        checkpoints.append(("sparse 1 TiB", ["1TiB", "--sparse"], [["--zstd"]]))
    worst = 0
    _, idle = measure([options.program, "--version"])
    print(f"{'checkpoint':<16}{'options':<12}{'threads':>8}{'seconds':>10}{'peak MiB':>10}{'index MiB':>11}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        source, output = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.zt")
        for name, arguments, option_sets in checkpoints:
            subprocess.run([sys.executable, ROOT / "bench/make_checkpoint.py", arguments[0], source, *arguments[1:]],
                           check=True)
            _, dry = measure([options.program, "convert", "-q", "-n", source, "-o", output])
            index = max(0, dry - idle)
            for option_set in option_sets:
                for threads in options.threads.split(","):
                    seconds, peak = measure([options.program, "convert", "-q", "-f", "-T", threads, *option_set,
                                             source, "-o", output])
                    worst = max(worst, peak - index)
                    print(f"{name:<16}{' '.join(option_set) or 'raw':<12}{threads:>8}{seconds:>10.2f}"
                          f"{peak / (1 << 20):>10.1f}{index / (1 << 20):>11.1f}", flush=True)
                    os.unlink(output)
            os.unlink(source)
    print(f"worst without the index {worst / (1 << 20):.1f} MiB, limit {LIMIT >> 20} MiB")
    return 1 if worst > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
