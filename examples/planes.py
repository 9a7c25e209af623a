#!/usr/bin/python3
"""planes.py - loads the tensors of a .zt file of version 1.2 with numpy, zstandard and cbor2 alone: dense ones, raw,
compressed or as byte planes (docs/PLANES.md). bf16 comes as float32, which holds each of its values.

usage: planes.py FILE    lists the tensors; as a module: load(path) -> {name: array}
"""
import pathlib
import sys

import cbor2
import numpy as np
import zstandard

NUMPY = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2", "i64": "<i8", "i32": "<i4", "i16": "<i2", "i8": "i1",
         "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "u1", "bool": "?"}


def decompress(stored):
    """The content of all frames. The seek table behind them is a frame that decoders skip."""
    content = b""
    while stored:
        if 0x184D2A50 <= int.from_bytes(stored[:4], "little") <= 0x184D2A5F:
            stored = stored[8 + int.from_bytes(stored[4:8], "little"):]
            continue
        frame = zstandard.ZstdDecompressor().decompressobj()
        content, stored = content + frame.decompress(stored), frame.unused_data
    return content


def merge(content, width, planes):
    """Elements from their byte planes, group by group, the most significant byte first."""
    out = [np.empty(0, f"<u{width}")]
    for at in range(0, len(content), planes["group"]):
        group = np.frombuffer(content[at:at + planes["group"]], np.uint8).reshape(width, -1)
        elements = np.ascontiguousarray(group[::-1].T).view(f"<u{width}").ravel()
        out.append(elements >> 1 | elements << (8 * width - 1) if planes["rotate"] else elements)
    return np.concatenate(out)


def load(path):
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == data[-8:] == b"ZTEN1000", "no .zt file"
    size, arrays = int.from_bytes(data[-16:-8], "little"), {}
    for name, entry in cbor2.loads(data[-16 - size:-16])["objects"].items():
        c, planes = entry["components"].get("data"), entry.get("attributes", {}).get("planes")
        if entry["format"] not in ("dense", "ztstream.planes/1") or c is None:
            continue
        content = data[c["offset"]:c["offset"] + c["length"]]
        content = decompress(content) if c.get("encoding") == "zstd" else content
        about = planes if entry["format"] == "ztstream.planes/1" else c
        dtype, kind = np.dtype(NUMPY[about["dtype"]]), about.get("type") or ""
        array = merge(content, dtype.itemsize, planes).view(dtype) if about is planes else np.frombuffer(content, dtype)
        array = (array.astype("<u4") << 16).view("<f4") if about["dtype"] == "bf16" else array
        arrays[name] = (array.view(f"<c{2 * dtype.itemsize}") if kind.startswith("complex") else array).reshape(entry["shape"])
    return arrays


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for key, value in load(sys.argv[1]).items():
        print(key, value.dtype, value.shape)
