"""Checks the filter of the process of libhdf5 on a host that is emulated: it must allow each system call that is made there.

    worker_calls.py PROGRAM EMULATOR...      EMULATOR: qemu-s390x-static -L SYSROOT, of qemu-user

qemu-user runs no filters, so that what a kernel would refuse is seen in its trace alone. scripts/try-host.sh runs it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

UNSUPPORTED = 5
ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(program, emulator):
    allowed = set(re.findall(r"__NR_(\w+)", (ROOT / "converters/hdf5/confine.cc").read_text()))
    files = sorted((ROOT / "tests/data/hdf5").glob("*.h5"))
    made, refused = 0, set()
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            # Into a pipe: the process may write no file.
            done = subprocess.run([*emulator, "-strace", "-D", "/dev/stdout", program, "convert", "-q", "-f", "--exclude", "text",
                                   file, "-o", f"{folder}/out.zt"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            if done.returncode not in (0, UNSUPPORTED):  # the sysroot's libhdf5 is older than what wrote one of the files
                raise RuntimeError(f"{file}: status {done.returncode}")
            confined = set()
            for line in done.stdout.decode(errors="replace").splitlines():
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
