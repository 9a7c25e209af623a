"""What the tests of the Python package share: the package of this tree, judges that read files without it, a folder each.

ctest sets ZTSTREAM_LIBRARY, ZTSTREAM_PROGRAM and ZT_TEST_DATA; run by hand, the release build's are taken. With ZT_INSTALLED=1
it is the installed package that is tried.
"""
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "lib")]
INSTALLED = bool(os.environ.get("ZT_INSTALLED"))  # what is tried is the package that this Python has: scripts/try-wheel.sh
if not INSTALLED:
    sys.path[:0] = [str(ROOT / "python")]
    os.environ["PYTHONPATH"] = str(ROOT / "python")  # of what tests run
    os.environ.setdefault("ZTSTREAM_LIBRARY", str(ROOT / "build/release/capi/libztstream.so.0"))
    os.environ.setdefault("ZTSTREAM_PROGRAM", str(ROOT / "build/release/bin/ztstream"))
SLOW = bool(os.environ.get("ZT_SLOW"))  # under valgrind: fewer turns, and no clocks
# What every system has; x86-64, aarch64 and s390x have loaders of their own.
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
          "ld64.so.1", "libstdc++.so.6", "libgcc_s.so.1"}
DATA = pathlib.Path(os.environ.get("ZT_TEST_DATA") or HERE.parent / "data")

import numpy

import zt2read
import ztread
import ztstream


def newest_symbols(binaries):
    """{library: version} of the newest symbols that these take from glibc and from libstdc++."""
    said = "".join(subprocess.run(["readelf", "--wide", "--dyn-syms", path], check=True, capture_output=True, text=True).stdout
                   for path in binaries)
    return {name: max(tuple(map(int, version.split("."))) for version in re.findall(rf" UND .*@{name}_([0-9.]+)", said))
            for name in ("GLIBC", "GLIBCXX")}


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return str(self.folder / name)


def torch_or_skip():
    """torch, where it is installed; elsewhere the test is skipped."""
    try:
        import torch
    except ImportError:
        raise unittest.SkipTest("torch is not installed") from None
    return torch


def run(code, *arguments, before="import sys, numpy, ztstream\n", **options):
    """In an interpreter of its own."""
    return subprocess.run([sys.executable, "-B", "-c", before + code, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, check=False, **options)


def npy(array):
    """The bytes of an .npy file."""
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def resident():
    """Bytes of memory that this process has."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sha(data):
    return hashlib.sha256(data).hexdigest()


def of_safetensors(path):
    """{name: (type, shape, bytes)} of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def of_zt(path):
    """{(name, role): bytes} and {name: shape} of a .zt file, by the independent readers. Their own exceptions."""
    if path.read_bytes()[:4] == b"ZTEN" and path.read_bytes()[:8] in (ztread.HEADER_01, ztread.HEADER_1):
        objects = ztread.read(str(path))
        return ({(name, role): part["bytes"] for name, o in objects.items() for role, part in o["components"].items()},
                {name: tuple(o["shape"]) for name, o in objects.items()})
    file = zt2read.open_file(path)
    if file.objects is None:
        raise zt2read.Refused("a data shard")
    refused = file.verify()
    if refused:
        raise zt2read.Refused(str(refused))
    return ({(o.name, role): file.decode(o.name, role) for o in file.objects.values() for role in o.parts},
            {o.name: tuple(o.shape) for o in file.objects.values()})


JUDGES_REFUSE = (ztread.Broken, zt2read.Broken, zt2read.Refused)


def parts_of(file):
    """{(name, role): bytes} of an open file, as the package reads it."""
    return {(name, role): part.tobytes() for name, tensor in file.items() for role, part in tensor.parts.items()}


# Types that hold any bits, and how numpy makes them.
TYPES = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2", "i64": "<i8", "i32": "<i4", "i16": "<i2", "i8": "i1",
         "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "u1", "complex64": "<c8", "complex128": "<c16",
         "f8_e4m3fn": "u1", "f8_e5m2": "u1"}


def random_tensors(random, count, most=1 << 12):
    """{name: (type, array)} with names of all kinds, shapes with empty and long dimensions, strides and byte orders."""
    out = {}
    letters = "abcxyz._/ äé中\U0001f600"
    while len(out) < count:
        name = "".join(random.choice(letters) for _ in range(random.randrange(1, 12))) + str(len(out))
        dtype = random.choice(list(TYPES))
        shape = tuple(random.choice([0, 1, 1, 2, 3, 5, 8, 17]) for _ in range(random.randrange(0, 5)))
        while numpy.prod(shape, dtype="i8") > most:
            shape = shape[1:]
        size = int(numpy.prod(shape, dtype="i8")) * numpy.dtype(TYPES[dtype]).itemsize
        array = numpy.frombuffer(random.randbytes(size), TYPES[dtype]).reshape(shape)
        if random.random() < 0.2 and array.ndim > 1:
            array = array.T
        if random.random() < 0.2 and array.dtype.itemsize > 1 and dtype == numpy_name(array.dtype):
            array = array.astype(array.dtype.newbyteorder(">"))
        out[name] = dtype, array
    return out


def numpy_name(dtype):
    """The type of a file that is numpy's own for a dtype."""
    return {spelled: name for name, spelled in TYPES.items() if name not in ("bf16", "f8_e4m3fn", "f8_e5m2")}.get(
        dtype.newbyteorder("<").str.lstrip("|").replace("<u1", "u1"), None)


def little(array):
    """The bytes that a file has for an array."""
    return numpy.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
