#!/usr/bin/python3
"""delta.py - makes a model of a delta (docs/DELTA.md) and its base with numpy, zstandard, cbor2 and xxhash alone. Both are .zt files
of version 1.2 with dense tensors; a base may be a delta again.

usage: delta.py DELTA BASE [BASE OF BASE...]    lists the tensors and their digests
as a module: load(path, bases) -> {name: (dtype, shape, bytes)}
"""
import pathlib
import sys

import cbor2
import numpy as np
import xxhash
import zstandard

WIDTH = {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4, "f16": 2, "bf16": 2, "i16": 2, "u16": 2}
KEYS = {"bf16": (7, 255), "f16": (10, 31), "f32": (23, 255), "f64": (55, 255), "f8_e4m3fn": (3, 15), "f8_e4m3fnuz": (3, 15),
        "f8_e5m2": (2, 31), "f8_e5m2fnuz": (2, 31)}  # by which elements are ordered: shift and mask
EQUAL, DIFFERENCES, PLANES = range(3)
CHUNK = np.dtype([("kind", "u1"), ("frame", "<u4"), ("content", "<u4"), ("result", "<u8"), ("base", "<u8")])


def merge(content, width):
    """Elements from their byte planes, the most significant byte first."""
    planes = np.frombuffer(content, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes[::-1].T).view(f"<u{width}").ravel()


def tensor_of_planes(content, width, rotate):
    """The chunk itself, in groups of 128 Ki elements (docs/PLANES.md)."""
    groups = [merge(content[at:at + width * 131072], width) for at in range(0, len(content), width * 131072)]
    elements = np.concatenate(groups)
    return (elements >> 1 | elements << (8 * width - 1) if rotate else elements).tobytes()


def unzigzag(values):
    return values >> 1 ^ (0 - (values & 1)).astype(values.dtype)


def add_differences(content, old, key):
    """The chunk: the base's elements, and differences of each group of them."""
    width, shift, mask = old.itemsize, *key
    count = content[0] + 1
    heads = np.frombuffer(content, np.dtype([("last", "u1"), ("changed", "<u4"), ("gaps", "<u4")]), count, 1)
    keys = (old >> shift & mask).astype(np.int64)
    group_of = np.searchsorted(heads["last"], np.arange(256))[keys]
    new, at = old.copy(), 1 + 9 * count
    for g, (_, changed, gap_bytes) in enumerate(heads):
        where = np.flatnonzero(group_of == g)  # in the order of the chunk
        changed, gap_bytes = int(changed), int(gap_bytes)
        if gap_bytes:
            gaps = np.frombuffer(content, np.uint8, gap_bytes, at).astype(np.int64)
            ends = gaps != 255  # 255: as many that did not change, and none that did
            where = where[np.cumsum(gaps)[ends] + np.arange(changed)]
        elif not changed:
            where = where[:0]
        at += gap_bytes
        new[where] += unzigzag(merge(content[at:at + len(where) * width], width))
        at += len(where) * width
    assert at == len(content), "bytes follow the last group"
    return new.tobytes()


def make(part, stored, old):
    """The bytes of a part from its frames and the bytes of the base."""
    name = part.get("type") or part["dtype"]
    width = WIDTH.get(part["dtype"], 1)
    out, at, decoder = [], 0, zstandard.ZstdDecompressor()
    for k, chunk in enumerate(np.frombuffer(part["chunks"], CHUNK)):
        begin = k * part["chunk"]
        size = min(part["chunk"], part["bytes"] - begin)
        base = old[begin:begin + size]
        content = decoder.decompress(stored[at:at + int(chunk["frame"])]) if chunk["frame"] else b""
        at += int(chunk["frame"])
        if chunk["kind"] == EQUAL:
            made = base
        elif chunk["kind"] == PLANES:
            made = content if width == 1 else tensor_of_planes(content, width, part["dtype"] in ("f64", "f32", "f16", "bf16"))
        else:
            key = KEYS.get(name, KEYS.get(part["dtype"], (0, 0)))
            made = add_differences(content, np.frombuffer(base, f"<u{width}"), key)
        assert xxhash.xxh3_64_intdigest(made) == chunk["result"], "another base, or damage"
        out.append(made)
    return b"".join(out)


def load(path, bases=()):
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == data[-8:] == b"ZTEN1000", "no .zt file of version 1.2"
    manifest = cbor2.loads(data[-16 - int.from_bytes(data[-16:-8], "little"):-16])
    base = load(bases[0], bases[1:]) if "ztstream.delta" in manifest.get("attributes", {}) else {}
    out = {}
    for name, entry in manifest["objects"].items():
        stored = {role: data[c["offset"]:c["offset"] + c["length"]] for role, c in entry["components"].items()}
        if entry["format"] == "dense" and entry["components"]["data"].get("encoding", "raw") == "raw":
            c = entry["components"]["data"]
            out[name] = c.get("type") or c["dtype"], entry["shape"], stored["data"]
        elif entry["format"] == "ztstream.delta/1" and "format" not in entry["attributes"]["delta"]:
            delta = entry["attributes"]["delta"]
            part = delta["parts"][0]
            old = base.get(delta.get("from", name), (None, None, b""))[2]
            content = None if "same_as" in part else make(part, stored["delta.data"], old)
            out[name] = part.get("type") or part["dtype"], entry["shape"], content or part.get("same_as", [b""])[0]
    return {name: (dtype, shape, out[content][2] if isinstance(content, str) else content)
            for name, (dtype, shape, content) in out.items()}


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for key, (dtype, shape, content) in load(sys.argv[1], sys.argv[2:]).items():
        print(key, dtype, shape, f"xxh3:{xxhash.xxh3_64_hexdigest(content)}")
