#!/usr/bin/python3
"""What the exporter in examples/exporter reads, and what it has to write of it.

usage: vectors.py make FILE.fvecs          1000 vectors of 24 numbers, subnormals and rows of another length among them
       vectors.py check OUT.zt             exits 1 with the difference where the exporter's file is not what it must be
"""
import pathlib
import struct
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import ztread  # noqa: E402

ROWS, COLUMNS = 1000, 24


def make():
    vectors = numpy.random.default_rng(11).standard_normal((ROWS, COLUMNS)).astype("<f4")
    vectors /= numpy.sqrt((vectors.astype("f8") ** 2).sum(axis=1))[:, None]
    vectors[::7, 3] = 1e-40
    vectors[5::90] *= 2
    return vectors


def check(path):
    vectors = make()
    lengths = numpy.sqrt((vectors.astype("f8") ** 2).sum(axis=1))
    subnormal = (vectors != 0) & (numpy.abs(vectors) < numpy.finfo("f4").tiny)
    _, attributes, objects = ztread.read_file(path)
    parts = {name: {role: part["bytes"] for role, part in entry["components"].items()}
             for name, entry in objects.items()}
    expected = {"vectors": {"data": numpy.where(subnormal, numpy.float32(0), vectors).astype("<f4").tobytes()},
                "outliers": {"rows": numpy.nonzero(abs(lengths - 1) > 1e-3)[0].astype("<u8").tobytes()}}
    assert len(expected["outliers"]["rows"]) > 8 * 11, "the rows of another length are missing"
    assert parts == expected, "the tensors differ"
    assert list(objects["vectors"]["shape"]) == [ROWS, COLUMNS]
    assert attributes == {"flushed": int(subnormal.sum())}, attributes


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        head = struct.pack("<i", COLUMNS)
        pathlib.Path(sys.argv[2]).write_bytes(b"".join(head + row.tobytes() for row in make()))
    elif sys.argv[1:2] == ["check"]:
        check(sys.argv[2])
    else:
        sys.exit(__doc__)
