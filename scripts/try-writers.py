#!/usr/bin/env python3
"""Converts what other programs write: real-shaped files of torch, numpy, scipy and safetensors (writers.py), repositories as they
lie on disks (writers_layouts.py), onnx, h5py and llama.cpp (writers_more.py), each by the library itself.

    scripts/try-writers.py [--only REGEX] [--folder FOLDER]

Every tensor that a writer expects must come through with its type, shape and bytes, as the tests' own reader of .zt finds them, and
no other. What may be refused must be refused as unsupported, never as damaged, with a message that names the tensor and says what to
do; without the tensors that are named so, the rest must come through. Prints what failed, and counts. Exit status 1 if anything did.

Runs where these libraries are: Debian sid with python3-torch, -safetensors, -scipy, -onnx, -h5py, -gguf, -ml-dtypes, -cbor2 and
-zstandard. ZTSTREAM names the program, build/release/bin/ztstream otherwise. --folder keeps the files that failed.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/lib"))

import writers  # noqa: E402
import writers_layouts  # noqa: E402
import ztread  # noqa: E402

try:
    import writers_more
except ImportError:
    writers_more = None

PROGRAM = os.environ.get("ZTSTREAM") or str(HERE.parent / "build/release/bin/ztstream")
UNSUPPORTED = 5
MOST_REFUSED = 20
# What a message says that tells what to do.
ADVICE = re.compile(r"save|load|--[a-z]|view|read|name|repack|unpack|rename|convert|point|leave")
# ztread's names of types by numpy's.
TYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "bool", "float8_e4m3fn": "f8_e4m3fn",
         "float8_e5m2": "f8_e5m2", "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz", "complex64": "complex64",
         "complex128": "complex128"} | {f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


class Wrong(Exception):
    """What a conversion did that it must not."""


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, timeout=600, check=False)
    return done.returncode, done.stderr.decode(errors="replace").strip()


def dense(entry):
    """The array of an object: its shape, the name of its type, and its bytes in C order."""
    parts = entry["components"]
    values = parts.get("data") or parts["values"]
    element, shape = values.get("type") or values["dtype"], tuple(entry["shape"])
    if "data" in parts:
        return shape, element, values["bytes"]
    numbers = {name: numpy.frombuffer(part["bytes"], "<u8" if part["dtype"] == "u64" else "<u4") for name, part in parts.items()
               if name != "values"}
    raw = numpy.frombuffer(values["bytes"], next(name for name, known in TYPES.items() if known == element))
    whole = numpy.zeros(shape, raw.dtype)
    if "coords" in numbers:
        places = tuple(numbers["coords"].reshape(len(shape), -1))
    else:
        rows = numpy.diff(numbers["indptr"].astype("i8"))
        places = numpy.repeat(numpy.arange(shape[0]), rows), numbers["indices"]
    numpy.add.at(whole, places, raw) if raw.dtype != bool else whole.__setitem__(places, raw)
    return shape, element, whole.tobytes()


def compare(output, expected):
    _, _, objects = ztread.read_file(str(output))
    objects = {name: entry for name, entry in objects.items() if entry["format"] != "ztstream.file/1"}
    if sorted(objects) != sorted(expected):
        raise Wrong(f"holds {sorted(objects)}, expected were {sorted(expected)}")
    for name, array in expected.items():
        array = numpy.asarray(array)
        shape, element, data = dense(objects[name])
        want = array.shape, TYPES.get(array.dtype.name, element), array.astype(array.dtype.newbyteorder("<")).tobytes()
        if (shape, element) != want[:2]:
            raise Wrong(f"{name!r} is {element} {shape}, expected was {want[1]} {want[0]}")
        if data != want[2]:
            raise Wrong(f"{name!r} has other bytes")


def refused(path, output, status, said):
    """Whether a refusal is as it must be; the tensors it names are left out until nothing is refused."""
    out = []
    while status != 0:
        if status != UNSUPPORTED or "damaged" in said:
            raise Wrong(f"exit status {status}: {said}")
        if not ADVICE.search(said):
            raise Wrong(f"does not say what to do: {said}")
        named = re.search(r"tensor '((?:[^'\\]|\\.)*)'", said)
        if not named or len(out) == MOST_REFUSED:
            return
        name = re.sub(r"\\(.)", r"\1", named[1])
        options = [word for each in (*out, name) for word in ("--exclude", "^" + re.escape(each) + "$")]
        if name in out and name != pathlib.Path(path).stem:  # which is all that the file holds
            raise Wrong(f"cannot be left out: {said}")
        if name in out:
            return
        out.append(name)
        status, said = run("convert", "-f", "-q", "--no-sync", path, "-o", output, *options)
        if "leave no tensor" in said:
            return


def attempt(path, expected, output):
    status, said = run("convert", "-f", "-q", "--no-sync", path, "-o", output)
    if expected is None:
        refused(path, output, status, said)
        if status != 0 and (listed := run("inspect", path))[0] not in (0, UNSUPPORTED):
            raise Wrong(f"inspect: {listed[1]}")
        return "came through" if status == 0 else "refused with advice"
    if status != 0:
        raise Wrong(f"exit status {status}: {said}")
    compare(output, expected)
    status, said = run("verify", output)
    if status != 0:
        raise Wrong(f"verify: {said}")
    return "came through"


def inputs(folder):
    """(name, path, expected) of every writer; a writer that fails is an input that says so."""
    for writer in writers.WRITERS + writers_layouts.WRITERS + (writers_more.WRITERS if writers_more else []):
        below = folder / writer.__name__
        below.mkdir(parents=True, exist_ok=True)
        made = writer(below)
        while True:
            try:
                yield next(made)
            except StopIteration:
                break
            except Exception as error:  # pylint: disable=broad-exception-caught
                yield f"{writer.__name__}: {type(error).__name__}: {error}", None, None
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="the inputs whose names match")
    parser.add_argument("--folder", metavar="FOLDER", help="where the files are written, and kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = pathlib.Path(options.folder or tempfile.mkdtemp(prefix="try-writers-"))
    counts, failures = {}, []
    try:
        for name, path, expected in inputs(folder):
            if not re.search(options.only, name):
                continue
            try:
                if path is None:
                    raise Wrong("its writer failed")
                what = attempt(path, expected, folder / "out.zt")
            except (Wrong, ztread.Broken, subprocess.TimeoutExpired, OSError) as error:
                what = "FAILED"
                failures.append(f"{name}: {error}")
            counts[what] = counts.get(what, 0) + 1
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    for line in failures:
        print(line)
    print(f"{sum(counts.values())} inputs: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
