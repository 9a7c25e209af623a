"""Reads and writes safetensors files without the safetensors package, including files no correct writer makes.

As a library: encode(), write(), read(), raw(). As a program it makes small example files:
  make_safetensors.py FILE [--tensors N] [--shape AxB] [--dtype BF16]
or prints the expected.json of one that is there:
  make_safetensors.py FILE --expect
"""
import argparse
import hashlib
import json
import struct
import sys

import numpy

# Bits of one element of every dtype of the safetensors library.
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}
# What zTensor 1.2 calls them: storage dtype and logical type (None where they are the same).
ZTENSOR = {
    "BOOL": ("bool", None), "U8": ("u8", None), "I8": ("i8", None), "I16": ("i16", None),
    "U16": ("u16", None), "F16": ("f16", None), "BF16": ("bf16", None), "I32": ("i32", None),
    "U32": ("u32", None), "F32": ("f32", None), "F64": ("f64", None), "I64": ("i64", None),
    "U64": ("u64", None), "C64": ("f32", "complex64"), "F8_E4M3": ("u8", "f8_e4m3fn"),
    "F8_E5M2": ("u8", "f8_e5m2"), "F8_E4M3FNUZ": ("u8", "f8_e4m3fnuz"),
    "F8_E5M2FNUZ": ("u8", "f8_e5m2fnuz"), "F8_E8M0": ("u8", "f8_e8m0"), "F4": ("u8", "f4_e2m1"),
    "F6_E2M3": ("u8", "f6_e2m3"), "F6_E3M2": ("u8", "f6_e3m2"),
}


def element_count(shape):
    count = 1
    for dimension in shape:
        count *= dimension
    return count


def byte_count(dtype, shape):
    bits = element_count(shape) * BITS[dtype]
    assert bits % 8 == 0, (dtype, shape)
    return bits // 8


def pattern(count, seed=0):
    """`count` bytes that differ from their neighbours and between seeds."""
    return numpy.random.default_rng(seed).integers(0, 256, count, dtype=numpy.uint8).tobytes()


def raw(header, data=b"", length=None):
    """A file from a header given as text, bytes or a JSON value; `length` may lie about the header's size."""
    if not isinstance(header, (str, bytes)):
        header = json.dumps(header, ensure_ascii=False)
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def layout(tensors, metadata=None, ties=None):
    """(header, data) of `tensors`: {name: (dtype, shape, bytes)}, stored in the order given, without padding. `ties` are more
    names: {name: of which tensor it has the bytes}."""
    header = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    chunks = []
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        chunks.append(data)
        at += len(data)
    return header | {name: header[of] for name, of in (ties or {}).items()}, b"".join(chunks)


def encode(tensors, metadata=None, ties=None):
    return raw(*layout(tensors, metadata, ties))


def write(path, tensors, metadata=None):
    with open(path, "wb") as out:
        out.write(encode(tensors, metadata))


def write_hole(path, size):
    """A file of one tensor of `size` zeros that takes no place on the disk."""
    header = raw({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    with open(path, "wb") as out:
        out.write(header)
        out.truncate(len(header) + size)


def sample(names=("a", "b", "c"), dtype="BF16", shape=(16, 8)):
    """A few tensors of patterned bytes, each different."""
    return {name: (dtype, shape, pattern(byte_count(dtype, shape), seed))
            for seed, name in enumerate(names)}


def read(path):
    """({name: (dtype, shape, bytes)}, metadata) of a well-formed file."""
    with open(path, "rb") as stream:
        content = stream.read()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", None)
    base = 8 + length
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], content[base + begin:base + end])
    return tensors, metadata


def expectation(path):
    """What expected.json says of a file: logical dtype, shape, size and SHA-256 of every tensor."""
    tensors, _ = read(path)
    return {name: {"dtype": ZTENSOR[dtype][1] or ZTENSOR[dtype][0], "shape": shape, "bytes": len(data),
                   "sha256": hashlib.sha256(data).hexdigest()}
            for name, (dtype, shape, data) in tensors.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--tensors", type=int, default=4)
    parser.add_argument("--shape", default="64x32")
    parser.add_argument("--dtype", default="BF16", choices=sorted(BITS))
    parser.add_argument("--expect", action="store_true", help="print what a correct reader finds in FILE")
    options = parser.parse_args()
    if options.expect:
        name = options.file.rpartition("/")[2]
        print(json.dumps({name: expectation(options.file)}, indent=1, ensure_ascii=False))
        return 0
    shape = [int(dimension) for dimension in options.shape.split("x")]
    write(options.file, sample([f"tensor.{i}" for i in range(options.tensors)], options.dtype, shape))
    return 0


if __name__ == "__main__":
    sys.exit(main())
