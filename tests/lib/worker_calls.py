"""Checks the filter of the process of libhdf5 on a host that is emulated: it must allow each system call that is made there.

    worker_calls.py PROGRAM EMULATOR...      EMULATOR: qemu-s390x-static -L SYSROOT, of qemu-user

qemu-user runs no filters, so that what a kernel would refuse is seen in its trace alone. scripts/try-host.sh runs it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(program, emulator):
    allowed = set(re.findall(r"__NR_(\w+)", (ROOT / "converters/hdf5/confine.cc").read_text()))
    files = sorted((ROOT / "tests/data/hdf5").glob("*.h5"))
    made, refused = 0, set()
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            log = pathlib.Path(folder) / f"log{number}"
            subprocess.run([*emulator, "-strace", "-D", log, program, "convert", "-q", "--exclude", "text", file, "-o",
                            f"{folder}/{number}.zt"], check=True, stdin=subprocess.DEVNULL)
            confined = set()
            for line in log.read_text(errors="replace").splitlines():
                if not (found := re.match(r"(\d+) (\w+)\(", line)):
                    continue
                process, call = found.groups()
                if process in confined:
                    made += 1
                    refused |= {call} - allowed
                elif re.match(r"\d+ prctl\((22|PR_SET_SECCOMP),", line):
                    confined.add(process)
    print(f"{made} system calls of {len(files)} files' processes: {', '.join(sorted(refused)) or 'none'} refused")
    return 1 if refused or not made else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
