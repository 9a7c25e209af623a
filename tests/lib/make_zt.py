"""Writes small .zt files of every version, including what no released writer wrote: for tests of what is read.

encode_01(entries) and encode_1(objects): blobs are given as bytes under "data" and placed at multiples of 64; every
other field goes into the manifest as it is. An offset that is given is kept (a blob shared with an earlier one).
"""
import hashlib
import struct

import cbor2
import zstandard

import ztread

HEADER_01, HEADER_1 = b"ZTEN0001", b"ZTEN1000"
ALIGNMENT = 64


def place(out, blob):
    """Appends a blob, aligned; its offset."""
    out += bytes(-len(out) % ALIGNMENT)
    offset = len(out)
    out += blob
    return offset


def encode_01(entries):
    """A 0.1.0 file of `entries`: maps with "name", "dtype", "shape", "data" and any other field."""
    out, index = bytearray(HEADER_01), []
    for entry in entries:
        entry = {"encoding": "raw", "layout": "dense", **entry}
        blob = entry.pop("data")
        index.append({"offset": place(out, blob), "size": len(blob), **entry})
    return finish(out, index, b"")


def finish(heap, root, footer=HEADER_1):
    """A file of what begins with a header, and of a manifest, which may be encoded already."""
    manifest = root if isinstance(root, (bytes, bytearray)) else cbor2.dumps(root)
    return bytes(heap) + manifest + struct.pack("<Q", len(manifest)) + footer


def forge(path, change):
    """Gives a file of 1.x another manifest: change(manifest) changes what it is decoded to."""
    data = path.read_bytes()
    begin = len(data) - 16 - int.from_bytes(data[-16:-8], "little")
    manifest = cbor2.loads(data[begin:-16])
    change(manifest)
    path.write_bytes(finish(data[:begin], cbor2.dumps(manifest, canonical=True)))


def finish_1(heap, listed, version="1.2.0", attributes=None):
    """A 1.x file of what begins with a header, and of `listed` as the manifest's objects."""
    root = {"version": version, "objects": listed}
    if attributes is not None:
        root["attributes"] = attributes
    return finish(heap, root)


def encode_1(objects, version="1.2.0", attributes=None):
    """A 1.x file of `objects`: {name: {"shape", "format", "components": {role: {"dtype", "data", ...}}, ...}}."""
    out, listed = bytearray(HEADER_1), {}
    for name, entry in objects.items():
        components = {}
        for role, component in entry["components"].items():
            component = dict(component)
            blob = component.pop("data")
            if "offset" not in component:
                component["offset"] = place(out, blob)
            component["length"] = len(blob)
            components[role] = component
        listed[name] = {"format": "dense", **entry, "components": components}
    return finish_1(out, listed, version, attributes)


def zstd(data):
    """One frame without a content size, as a streaming writer makes it."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


def digest(algorithm, data):
    if algorithm == "crc32c":
        return f"crc32c:0x{ztread.crc32c(data):08X}"
    if algorithm == "sha256":
        return "sha256:" + hashlib.sha256(data).hexdigest()
    import xxhash
    return f"xxh3:{xxhash.xxh3_64_intdigest(data):016x}"
