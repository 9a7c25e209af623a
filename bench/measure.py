"""What the measurements share: data made on demand, contenders run in turn, medians with their spread."""
import importlib.util
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CPUS = len(os.sched_getaffinity(0))

# safetensors in, one .npy after the other out, a tensor at a time.
NUMPY_SAVE = """
import json, struct, sys, numpy
f = open(sys.argv[1], "rb")
header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
start = f.tell()
kinds = {"BF16": "<u2", "F32": "<f4", "F8_E4M3": "u1", "U8": "u1"}
header.pop("__metadata__", None)
with open(sys.argv[2], "wb") as out:
    for entry in header.values():
        begin, end = entry["data_offsets"]
        f.seek(start + begin)
        kind = numpy.dtype(kinds[entry["dtype"]])
        numpy.save(out, numpy.fromfile(f, kind, (end - begin) // kind.itemsize).reshape(entry["shape"]))
"""
SAFETENSORS_SAVE = """
import sys
from safetensors.numpy import load_file, save_file
save_file(load_file(sys.argv[1]), sys.argv[2])
"""
# Starts a program, waits for it, and says on file descriptor N how it went. A process of its own, as small as one of
# Python's can be: a child's peak resident size starts from that of its parent.
LAUNCH = """
import posix, sys, time
begin = time.perf_counter()
_, status, usage = posix.wait4(posix.posix_spawnp(sys.argv[2], sys.argv[2:], posix.environ), 0)
seconds = time.perf_counter() - begin
posix.write(int(sys.argv[1]), b"%f %f %d %d" % (seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, status))
"""


class Failed(Exception):
    """A contender or a step that could not be measured, and why."""


def filesystem(folder):
    """The type of the file system that holds `folder`."""
    best, kind = "", "unknown"
    try:
        for line in pathlib.Path("/proc/mounts").read_text().splitlines():
            _, point, fstype, *_ = line.split()
            if folder.resolve().is_relative_to(point) and len(point) >= len(best):
                best, kind = point, fstype
    except OSError:
        pass
    return kind


class Bench:
    """A folder of its own, which close() removes, and the program under test."""

    def __init__(self, program, folder, reference=None, before=None, reference_2=None):
        self.program = str(program.resolve())
        self.before = str(before.resolve()) if before else None
        self.reference = str(reference.resolve()) if reference else None
        self.reference_2 = str(reference_2.resolve()) if reference_2 else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ztstream-compare-", dir=folder))
        # Holes are read from memory where it can be: a file on a disk would fill the page cache with zeros.
        shared = pathlib.Path("/dev/shm")
        self.holes = pathlib.Path(tempfile.mkdtemp(prefix="ztstream-compare-", dir=shared)) if (
            os.access(shared, os.W_OK) and filesystem(shared) == "tmpfs") else self.folder
        self.output = str(self.folder / "out")
        self.outputs = self.folder / "outputs"  # for outputs of several files, empty before each run
        self.outputs.mkdir()
        self.inputs = {}  # arguments of make_checkpoint: path

    def close(self):
        shutil.rmtree(self.folder)
        shutil.rmtree(self.holes, ignore_errors=True)

    def path(self, name):
        return str(self.folder / name)

    # ---- data ----------------------------------------------------------------------------------------------------

    def make(self, *arguments):
        """The path of the checkpoint with these arguments (make_checkpoint.py's), made once."""
        arguments = tuple(map(str, arguments))
        if arguments not in self.inputs:
            folder = self.holes if "--sparse" in arguments else self.folder
            path = str(folder / f"in{len(self.inputs)}.safetensors")
            subprocess.run([sys.executable, str(HERE / "make_checkpoint.py"), arguments[0], path, *arguments[1:]],
                           check=True)
            self.inputs[arguments] = path
        return self.inputs[arguments]

    def drop(self):
        """Removes the inputs made so far, and whatever a step left."""
        for entry in {*self.folder.iterdir(), *self.holes.iterdir()}:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.outputs.mkdir()
        self.inputs.clear()

    # ---- contenders ----------------------------------------------------------------------------------------------

    def convert(self, source, *extra, out=None):
        return [self.program, "convert", "-q", "-f", str(source), "-o", str(out or self.output), *extra]

    def extract(self, source, *extra, to="safetensors", out=None):
        """What decodes: a conversion takes the frames of a .zt file as they are."""
        return [self.program, "extract", "-q", "-f", "--to", to, str(source), "-o", str(out or self.output), *extra]

    def zstd(self, source, level="-1", threads=CPUS):
        return ["zstd", "-q", "-f", level, f"-T{threads}", str(source), "-o", self.output]

    def reference_convert(self, source, *extra):
        return [self.reference, "convert", str(source), "-o", self.output, *extra]

    def contenders(self, source, dtype):
        """{name: command} of all that is installed, for an input of that safetensors dtype."""
        out = {"cp": ["cp", source, self.output], "numpy.save": [sys.executable, "-c", NUMPY_SAVE, source, self.output],
               "ztstream": self.convert(source), "ztstream --zstd": self.convert(source, "--zstd"),
               "ztstream --zstd=planes": self.convert(source, "--zstd=planes")}
        if shutil.which("zstd"):
            out["zstd -1"] = self.zstd(source)
        if importlib.util.find_spec("safetensors") and dtype in ("F32", "U8"):  # numpy has no name for the others
            out["safetensors (Python)"] = [sys.executable, "-c", SAFETENSORS_SAVE, source, self.output]
        if self.reference:
            out["reference"] = self.reference_convert(source)
            out["reference --compress"] = self.reference_convert(source, "--compress")
        return out

    # ---- running -------------------------------------------------------------------------------------------------

    def once(self, command, source=None, cold=False, sync=False, prepare=True):
        """(seconds, processor seconds, peak resident bytes) of one run. Before it the last output is removed, all is
        on the disk, and `source` is read (or, cold, dropped from the page cache). Nobody waits for the disk unless
        `sync`: then the output is on it when the time ends."""
        if os.path.exists(self.output):
            os.unlink(self.output)
        shutil.rmtree(self.outputs)
        self.outputs.mkdir()
        os.sync()
        time.sleep(0.2)
        if source is not None and prepare:
            with open(source, "rb") as f:
                if cold:
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                else:
                    while f.read(1 << 24):
                        pass
        ours = command[0] in (self.program, self.before) and command[1] in ("convert", "extract")
        if ours and not sync:
            command = [*command, "--no-sync"]
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as report:
            subprocess.run([sys.executable, "-ISc", LAUNCH, str(report.fileno()), *command], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=errors, pass_fds=[report.fileno()])
            report.seek(0)
            errors.seek(0)
            told = report.read().split()
            said = errors.read(2000).decode(errors="replace").strip().splitlines() or ["said nothing"]
        if not told:
            raise Failed(f"cannot be started: {said[-1]}")
        seconds, cpu, peak, status = float(told[0]), float(told[1]), int(told[2]) * 1024, int(told[3])
        if status != 0:
            raise Failed(f"status {os.waitstatus_to_exitcode(status)}: {said[-1].replace(str(self.folder), 'DIR')}")
        if sync and not ours:
            begin = time.perf_counter()
            with open(self.output, "rb+") as f:
                os.fsync(f.fileno())
            seconds += time.perf_counter() - begin
        return seconds, cpu, peak

    def compare(self, source, contenders, runs, **how):
        """[{name, median, low, high, cpu, peak, input, output}]. Contenders run in turn, `runs` times over, in an order
        that changes: what ran before decides which memory the page cache finds. One that fails is {name, error}, and
        the others go on."""
        taken, sizes, errors = {name: [] for name in contenders}, {}, {}
        for run in range(runs):
            for name in random.Random(run).sample(list(contenders), len(contenders)):
                if name in errors:
                    continue
                try:
                    taken[name].append(self.once(contenders[name], source, **how))
                    sizes[name] = os.path.getsize(self.output) if os.path.exists(self.output) else 0
                except (Failed, OSError) as error:
                    errors[name] = str(error)
                    print(f"  {name}: failed: {error}", flush=True)
        rows = []
        for name, values in taken.items():
            if name in errors:
                rows.append({"name": name, "error": errors[name]})
                continue
            seconds, cpu, peak = zip(*values)
            rows.append({"name": name, "median": statistics.median(seconds), "low": min(seconds), "high": max(seconds),
                         "cpu": statistics.median(cpu), "peak": max(peak), "output": sizes[name],
                         "input": os.path.getsize(source) if source else 0})
            print(f"  {name:28} {rows[-1]['median']:8.3f} s  ({min(seconds):.3f} to {max(seconds):.3f})"
                  f"  {max(peak) / 2**20:5.0f} MiB", flush=True)
        return rows


def medians(rows, *names):
    """The medians of these rows; raises Failed where one has none."""
    found = {row["name"]: row for row in rows}
    for name in names:
        if "median" not in found.get(name, {}):
            raise Failed(f"{name}: {found.get(name, {}).get('error', 'not installed')}")
    return [found[name]["median"] for name in names]
