"""Ctrl-C at any moment: of what saves, loads, verifies and converts nothing is left, nothing hangs, nothing ends the process.

Needs no numpy, so that any Python tries it. ZT_INTERRUPTS sets how often each way is interrupted: scripts/try-interrupts.sh.
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "lib"))
from crowd import crowd

if not os.environ.get("ZT_INSTALLED"):
    sys.path[:0] = [str(ROOT / "python")]
    os.environ.setdefault("ZTSTREAM_LIBRARY", str(ROOT / "build/release/capi/libztstream.so.0"))
    os.environ.setdefault("ZTSTREAM_PROGRAM", str(ROOT / "build/release/bin/ztstream"))
    os.environ["PYTHONPATH"] = str(ROOT / "python")
COUNT = int(os.environ.get("ZT_INTERRUPTS", "24"))

# Each way is a function that takes milliseconds. What it leaves behind when it is interrupted is what is looked for.
WAYS = '''
import ctypes, io, os, random, signal, sys, threading, time
way, times, size = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, sys.argv[5])
import ztstream
from crowd import crowd
from late_device import LateDevice
from ztstream import _interrupt, _ring, safetensors_compat as compat
_ring.SIZE = size // 6
os.chdir(sys.argv[1])
random.seed(1)
data = random.randbytes(size) if hasattr(random, "randbytes") else os.urandom(size)
shape = (len(data) // 4,)

def fill(out):
    for i in range(2):
        out.add("large%d" % i, data, dtype="f32", shape=shape)
        out.add("small%d" % i, data[:5000], dtype="u8")
    with out.begin("stream", "u8", (None, 1000)) as rows:
        rows.write(data[:size // 9000 * 1000])
        rows.write(data[:size // 20000 * 1000])

def writer():
    with ztstream.Writer("out.zt", compress="planes", overwrite=True, sync=False, attributes={"a": 1}) as out:
        fill(out)

def save():
    ztstream.save_file({"a": {"b": [1, (2.5, None)], 3: "x" * 10000}}, "out.zt", overwrite=True, sync=False)

def background():
    state = {"a": {str(i): i for i in range(2000)}}
    ztstream.save_file(state, "out.zt", background=True, overwrite=True, sync=False).wait()

def safetensors():
    held = (ctypes.c_char * len(data)).from_buffer_copy(data)
    spec = compat.TensorSpec(dtype="float32", shape=shape, data_ptr=ctypes.addressof(held), data_len=len(data))
    compat.serialize_file({"a": spec, "b": spec}, "out.zt")

def object():
    with ztstream.Writer(io.BytesIO(), compress="zstd") as out:
        fill(out)

def load():
    with ztstream.open("in.zt") as file:
        assert file.attributes == {"a": 1}
        assert file["large1"].tobytes() == data and len(file) == 5

def load_object():
    with open("in.zt", "rb") as source, ztstream.open(source) as file:
        assert file["large1"].tobytes() == data
        assert file["small1"].tobytes() == data[:5000]

def read():
    out = {"large0": bytearray(len(data)), "small0": bytearray(5000)}
    with ztstream.open("in.zt") as file:
        file.read(out=out)
    assert out["large0"] == data

def ring():
    with ztstream.open("in.zt") as file:
        device, targets = LateDevice(), {tensor.name: bytearray(tensor.nbytes) for tensor in file.values()}
        _ring.fill(file, [(file[name], 1, target) for name, target in targets.items()], device)
    assert targets["large1"] == data and device.finished == 1

def verify():
    with ztstream.open("in.zt") as file:
        assert file.verify().verified

def convert():
    ztstream.convert("in.zt", "out.zt", zstd="planes", force=True, no_sync=True)

def inspect():
    ztstream.inspect("in.zt")

with ztstream.Writer("in.zt", compress="planes", min_gain=-1, overwrite=True, attributes={"a": 1}) as out:
    fill(out)
work = globals()[way]
work()
files, left = len(os.listdir("/proc/self/fd")), set()

def rest():
    """What goes on, or is interrupted again while it ends, ends by itself."""
    end = time.monotonic() + 5
    while (_interrupt._running or set(os.listdir(".")) - {"in.zt", "out.zt"}) and time.monotonic() < end:
        time.sleep(0.01)
    left.update(os.listdir("."))

def done(*said):
    end = time.monotonic() + 5  # a thread may have just ended its work
    while len(os.listdir("/proc/self/fd")) > files and time.monotonic() < end:
        time.sleep(0.01)
    print(*said, ",".join(sorted(left - {"in.zt", "out.zt"})) or "-", len(os.listdir("/proc/self/fd")) - files)
'''

# At random moments, `most` times each.
MOMENTS = WAYS + '''
def handler(*_):
    global more
    if more:
        more -= 1
        raise KeyboardInterrupt

more, most = 0, int(sys.argv[6])
signal.signal(signal.SIGALRM, handler)
usual, interrupted, late, long = 10, 0, 0, 0
for i in range(times):
    after = random.uniform(1e-5, usual)
    begin = time.monotonic()
    try:
        try:
            more = most
            signal.setitimer(signal.ITIMER_REAL, after, 0.001 if most > 1 else 0)
            work()
        finally:
            more = 0
        usual = min(usual, time.monotonic() - begin)
    except KeyboardInterrupt:
        took = (time.monotonic() - begin - after) / crowd()
        late, long, interrupted = max(late, took), long + (took > 0.2), interrupted + 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    if most > 1 or work is background:
        rest()
    left.update(os.listdir("."))
done(interrupted, late, long)
'''

# At about `times` of the steps that Python takes in the package in the main thread, all calls of which are long ones.
STEPS = WAYS + '''
from ztstream import _file, _output, _writer
_file._LONG = _writer._LONG = _output._LONG = _output._LONG_OF_OBJECT = 1
inside, main = os.path.dirname(ztstream.__file__), threading.get_ident()
wanted, count, late, lost = None, 0, 0, []

def step(code):
    global count, wanted
    if wanted is not None and threading.get_ident() == main and code.co_filename.startswith(inside):
        count += 1
        if count == wanted:
            wanted = None
            raise KeyboardInterrupt

def trace(frame, event, arg):
    if not frame.f_code.co_filename.startswith(inside):
        return None
    frame.f_trace_opcodes = True
    if event == "opcode":
        step(frame.f_code)
    return trace

if hasattr(sys, "monitoring"):
    sys.monitoring.use_tool_id(3, "steps")
    sys.monitoring.register_callback(3, sys.monitoring.events.INSTRUCTION, lambda code, _: step(code))
    sys.monitoring.set_events(3, sys.monitoring.events.INSTRUCTION)

def interrupted(at):
    """Whether it came to that step."""
    global wanted, count, late
    wanted, count = at, 0
    begin = time.monotonic()
    if not hasattr(sys, "monitoring"):
        sys.settrace(trace)
    try:
        try:
            work()
        finally:
            sys.settrace(None)
        if wanted is None:
            lost.append(at)
    except KeyboardInterrupt:
        late = max(late, (time.monotonic() - begin) / crowd())
    reached, wanted = wanted is None, None
    rest()
    return reached

interrupted(0)
last = count
tried = sum(map(interrupted, range(1, last + 1, max(1, last // times))))
print(tried, late, len(lost), end=" ")
done()
'''


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)


    def said(self, code, way, times, size, *more):
        """The words that it prints."""
        done = subprocess.run([sys.executable, "-B", "-c", code, self.folder, way, str(times), str(size), str(HERE.parent / "lib"),
                               *map(str, more)], capture_output=True, text=True, timeout=3600, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), way)
        return done.stdout.split()


class Steps(Case):
    def test_every_step(self):
        """An interrupt between any two steps is raised, whatever the package does there. ZT_INTERRUPTS=5000 tries all of most."""
        for way in ("writer", "save", "background", "object", "safetensors", "load", "load_object", "ring", "read", "verify", "inspect"):
            with self.subTest(way):
                tried, late, lost, left, files = self.said(STEPS, way, COUNT, 200000)
                if COUNT > 100:
                    print(f"{way}: interrupted at {tried} steps, {float(late) * 1000:.0f} ms at most, {lost} lost", flush=True)
                self.assertGreater(int(tried), 2, way)
                self.assertEqual((lost, left, files), ("0", "-", "0"), way)
                self.assertLess(float(late), 2.0, way)


class Moments(Case):
    def interrupt(self, way, count, times=1, patience=1.0):
        interrupted, late, long, left, files = self.said(MOMENTS, way, count, 6 << 20, times)
        if COUNT > 100:
            print(f"{way}: {interrupted} of {count} interrupted, {float(late) * 1000:.0f} ms late at most, {long} by more than 200 ms",
                  flush=True)
        self.assertGreater(int(interrupted), count // 4, way)
        self.assertEqual((left, files), ("-", "0"), way)
        self.assertLess(float(late), patience, way)

    def test_writing(self):
        for way in ("writer", "save", "background", "object", "safetensors"):
            with self.subTest(way):
                self.interrupt(way, COUNT)

    def test_reading(self):
        for way in ("load", "load_object", "ring", "read", "verify"):
            with self.subTest(way):
                self.interrupt(way, COUNT)

    def test_several(self):
        """Keys that are pressed again and again."""
        for way in ("writer", "object", "load", "convert"):
            with self.subTest(way):
                self.interrupt(way, COUNT // 4, times=4)

    def test_programs(self):
        """They end by themselves, with what they have begun to write."""
        for way in ("convert", "inspect"):
            with self.subTest(way):
                self.interrupt(way, COUNT // 4, patience=5.0)


# A file object whose calls take Slow.slow seconds.
SLOW = '''
import io, time
class Slow(io.BytesIO):
    slow = 0
    def read(self, count=-1):
        time.sleep(self.slow)
        return super().read(count)
    def write(self, data):
        time.sleep(self.slow)
        return super().write(data)
'''


class Ends(Case):
    def test_exit(self):
        """A program that ends at once when Ctrl-C came while a slow file object was read, or written to, ends as it says."""
        code = SLOW + '''
import signal, sys
import ztstream
source = Slow(ztstream.save({}))
with ztstream.Writer(source, digest="none") as out:
    out.add("w", bytes(5 << 20), dtype="u8")
def write():
    with ztstream.Writer(Slow(), digest="none") as out:
        Slow.slow = 0.4
        out.add("w", bytes(5 << 20), dtype="u8")
file = ztstream.open(source)
work = {"read": file["w"].tobytes, "write": write, "close": lambda: ztstream.Writer(Slow()).close()}[sys.argv[1]]
Slow.slow = 0.4 if sys.argv[1] == "read" else 0
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
begin = time.monotonic()
try:
    work()
    time.sleep(1)
except KeyboardInterrupt:
    print(time.monotonic() - begin - float(sys.argv[2]), flush=True)
sys.exit(7)
'''
        for way in ("read", "write", "close"):
            for after in (0.1, 0.3):
                with self.subTest(way=way, after=after):
                    done = subprocess.run([sys.executable, "-B", "-c", code, way, str(after)], capture_output=True, text=True,
                                          timeout=60, check=False)
                    self.assertEqual((done.returncode, done.stderr), (7, ""))
                    self.assertLess(float(done.stdout), 2.0 * crowd())

    def test_what_goes_on(self):
        """The interpreter ends while threads of the library call Python: for an output that nobody ended, for calls in the caller's
        own threads, and for one that an interrupt has left. It ends as it says, whatever signals come meanwhile."""
        code = SLOW + '''
import _signal, atexit, os, signal, sys, threading
atexit.register(_signal.signal, signal.SIGALRM, _signal.SIG_IGN)  # after what the package does there
import ztstream
way, path = sys.argv[1:]
def thread(work):
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
def again():
    while True:
        file["small"].tobytes()
def late(*_):
    raise SystemExit(8)
if way in ("output", "cycle"):
    Slow.slow = 0.02
    out = ztstream.Writer(Slow(), digest="none", threads=2)
    for i in range(30):
        out.add("w%d" % i, bytes(50000), dtype="u8")
    if way == "cycle":
        out.itself = out
        del out
elif way in ("read", "verify"):
    file = ztstream.open(path)
    out = {"large": bytearray(file["large"].nbytes)}
    thread(file.verify if way == "verify" else lambda: file.read(out=out))
elif way == "left":
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    file = ztstream.open(path)
    from ztstream import _interrupt
    _interrupt._PATIENCE = 0.001
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    try:
        file.verify()
    except KeyboardInterrupt:
        pass
else:
    with open(path, "rb") as source:
        file = ztstream.open(Slow(source.read()))
    Slow.slow = 0.01
    thread(again if way == "again" else file["large"].tobytes)
signal.signal(signal.SIGALRM, late)
atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.01, 0.01)
sys.exit(7)
'''
        path = os.path.join(self.folder, "in.zt")
        subprocess.run([sys.executable, "-B", "-c", "import os, sys, ztstream\n"
                        "with ztstream.Writer(sys.argv[1], compress='planes', min_gain=-1) as out:\n"
                        "    out.add('large', os.urandom(96 << 20), dtype='f32', shape=(24 << 20,))\n"
                        "    out.add('small', b'12345678', dtype='u8')\n", path], timeout=60, check=True)
        for way in ("output", "cycle", "read", "verify", "left", "object", "again"):
            for _ in range(3):
                with self.subTest(way):
                    done = subprocess.run([sys.executable, "-B", "-c", code, way, path], capture_output=True, text=True, timeout=60,
                                          check=False)
                    self.assertEqual(done.returncode, 7, done.stderr)


if __name__ == "__main__":
    unittest.main()
