#!/usr/bin/python3
"""ztread.py - an independent reader and verifier of .zt files, for the tests; written from the specs alone.

usage: ztread.py FILE    prints JSON: every object and component with the SHA-256 of its decoded bytes;
                         exits 1 with the broken rule on standard error where the file departs from its spec.
As a module: read(path) -> {name: {"shape", "format", "attributes", "components": {role: {"dtype", "type",
"encoding", "digest", "offset", "length", "bytes"}}}}, bytes decoded and little-endian.

Versions 0.1.0, 1.0 (the dialect between 0.1 and 1.1), 1.1 and 1.2. Needs cbor2, zstandard and numpy.
"""
import hashlib
import io
import json
import sys

import cbor2
import numpy as np
import zstandard

HEADER_01, HEADER_1 = b"ZTEN0001", b"ZTEN1000"
ALIGNMENT = 64
MAX_MANIFEST = 1 << 30
U64 = 1 << 64

WIDTHS = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1,
          "u64": 8, "u32": 4, "u16": 2, "u8": 1, "bool": 1}
LONG = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
        "int32": "i32", "int16": "i16", "int8": "i8", "uint64": "u64", "uint32": "u32",
        "uint16": "u16", "uint8": "u8", "bool": "bool"}
# Logical types whose size follows from the shape: storage dtype and elements for each logical one.
TYPES = {"f8_e4m3fn": ("u8", 1), "f8_e5m2": ("u8", 1), "f8_e4m3fnuz": ("u8", 1),
         "f8_e5m2fnuz": ("u8", 1), "complex64": ("f32", 2), "complex128": ("f64", 2)}
DTYPES_11 = {"f8_e4m3": ("u8", "f8_e4m3fn"), "f8_e5m2": ("u8", "f8_e5m2"),
             "complex64": ("f32", "complex64"), "complex128": ("f64", "complex128")}
NUMPY = {"u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "u1", "i64": "<i8", "i32": "<i4",
         "i16": "<i2", "i8": "i1"}
ROLES = {"dense": {"data"}, "sparse_csr": {"values", "indices", "indptr"},
         "sparse_coo": {"values", "coords"}}


class Broken(Exception):
    """A rule of the spec that the file does not keep."""


def rule(kept, text):
    if not kept:
        raise Broken(text)


# ---- CBOR -------------------------------------------------------------------------------------------------

def errors(custom):
    """How text is decoded: a custom field of 0.1 may hold anything, and what no reader keeps is passed over."""
    return "replace" if custom else "strict"


class _UniqueKeys:
    """cbor2 lets the last of two equal keys win, so keys are counted on the bytes themselves."""

    def __init__(self, data, any_keys):
        self.data, self.at, self.any_keys = data, 0, any_keys

    def head(self):
        rule(self.at < len(self.data), "the CBOR ends early")
        first = self.data[self.at]
        self.at += 1
        major, low = first >> 5, first & 31
        if low < 24:
            return major, low
        if low == 31:
            return major, None
        rule(low < 28, "the CBOR is malformed")
        size = 1 << (low - 24)
        rule(self.at + size <= len(self.data), "the CBOR ends early")
        value = int.from_bytes(self.data[self.at:self.at + size], "big")
        self.at += size
        return major, value

    def at_break(self):
        rule(self.at < len(self.data), "the CBOR ends early")
        return self.data[self.at] == 0xFF

    def times(self, count):
        if count is not None:
            yield from range(count)
            return
        while not self.at_break():
            yield
        self.at += 1

    def walk(self, depth=0):
        rule(depth <= 64, "the CBOR nests deeper than 64 levels")
        start = self.at
        major, value = self.head()
        if major in (2, 3):
            if value is None:
                for _ in self.times(None):
                    self.walk(depth)
            else:
                self.at += value
                rule(self.at <= len(self.data), "the CBOR ends early")
        elif major == 4:
            for _ in self.times(value):
                self.walk(depth + 1)
        elif major == 5:
            seen = set()
            for _ in self.times(value):
                begin = self.at
                self.walk(depth + 1)
                key = cbor2.loads(self.data[begin:self.at], str_errors=errors(self.any_keys))
                rule(isinstance(key, str) or self.any_keys, "a map key is no text")
                rule(str(key) not in seen, f"key {key!r} twice")
                seen.add(str(key))
                self.walk(depth + 1)
        elif major == 6:
            self.walk(depth + 1)
        return self.data[start:self.at]


def decode_cbor(data, any_keys=False):
    walker = _UniqueKeys(data, any_keys)
    walker.walk()
    rule(walker.at == len(data), "bytes follow the CBOR value")
    return cbor2.CBORDecoder(io.BytesIO(data), str_errors=errors(any_keys)).decode()


# ---- the manifest, any version, as one list of objects ----------------------------------------------------------

def field(holder, name, kind, where, default=Broken):
    if name not in holder:
        rule(default is not Broken, f"{where}: field {name!r} is missing")
        return default
    value = holder[name]
    if value is None and default is None:
        return None
    rule(isinstance(value, kind) and not (kind is int and isinstance(value, bool)),
         f"{where}: field {name!r} is of the wrong kind")
    if kind is int:
        rule(0 <= value < U64, f"{where}: field {name!r} is no u64")
    return value


def shape_of(holder, where):
    shape = field(holder, "shape", list, where)
    rule(len(shape) <= 64, f"{where}: rank over 64")
    for dim in shape:
        rule(isinstance(dim, int) and not isinstance(dim, bool) and 0 <= dim < U64,
             f"{where}: a dimension is no u64")
    return shape


def load_01(data):
    rule(len(data) >= 17, "shorter than the smallest file")
    size = int.from_bytes(data[-8:], "little")
    rule(1 <= size <= MAX_MANIFEST and size <= len(data) - 16, "index size")
    end = len(data) - 8 - size
    entries = decode_cbor(data[end:-8], any_keys=True)  # of custom fields
    rule(isinstance(entries, list), "the index is no array")
    known = {"name", "offset", "size", "dtype", "shape", "encoding", "layout", "data_endianness",
             "checksum"}
    objects = []
    for entry in entries:
        rule(isinstance(entry, dict), "an entry is no map")
        name = field(entry, "name", str, "entry")
        dtype = field(entry, "dtype", str, name)
        rule(dtype in LONG, f"{name}: dtype {dtype!r}")
        endian = field(entry, "data_endianness", str, name, None) or "little"
        rule(endian in ("little", "big"), f"{name}: data_endianness {endian!r}")
        component = {"dtype": LONG[dtype], "type": None, "offset": field(entry, "offset", int, name),
                     "length": field(entry, "size", int, name),
                     "encoding": field(entry, "encoding", str, name),
                     "digest": field(entry, "checksum", str, name, None), "declared": None,
                     "big": endian == "big", "sparse": entry.get("layout", "dense") != "dense"}
        objects.append({"name": name, "shape": shape_of(entry, name),
                        "format": field(entry, "layout", str, name, "dense"),
                        "attributes": {k: v for k, v in entry.items() if k not in known},
                        "components": {"data": component}})
    return "0.1.0", {}, objects, end


def load_1(data):
    footer = data[-8:] == HEADER_1
    tail = 16 if footer else 8
    rule(len(data) > 8 + tail, "shorter than the smallest file")
    size = int.from_bytes(data[len(data) - tail:len(data) - tail + 8], "little")
    rule(1 <= size <= MAX_MANIFEST and size <= len(data) - 8 - tail,
         "manifest size" if footer else "no ZTEN1000 at the end")
    end = len(data) - tail - size
    root = decode_cbor(data[end:end + size])
    rule(isinstance(root, dict), "the manifest is no map")
    version = field(root, "version", str, "manifest")
    parts = version.split(".")
    rule(len(parts) >= 2 and all(p.isdigit() for p in parts[:2]), f"version {version!r}")
    rule(parts[0] == "1", f"version {version!r} is of another major version")
    minor = int(parts[1])
    rule(footer or minor == 0, "no ZTEN1000 at the end")
    attributes = field(root, "attributes", dict, "manifest", None) or {}
    named = field(root, "objects" if minor else "tensors", dict, "manifest")
    objects = []
    for name, entry in named.items():
        rule(isinstance(entry, dict), f"{name}: no map")
        fmt = field(entry, "format", str, name)
        shared = None
        if minor == 0:
            shared = LONG.get(field(entry, "dtype", str, name))
            rule(shared, f"{name}: dtype {entry['dtype']!r}")
        components = {}
        for role, c in field(entry, "components", dict, name).items():
            where = f"{name}/{role}"
            rule(isinstance(c, dict), f"{where}: no map")
            if minor == 0:
                index = fmt in ROLES and role in ("indices", "indptr", "coords")
                dtype, kind = ("u64" if index else shared), None
            else:
                dtype, kind = field(c, "dtype", str, where), field(c, "type", str, where, None)
                if minor == 1 and dtype in DTYPES_11:
                    dtype, kind = DTYPES_11[dtype]
            rule(dtype in WIDTHS, f"{where}: dtype {dtype!r}")
            if kind in TYPES:
                rule(TYPES[kind][0] == dtype, f"{where}: type {kind} on dtype {dtype}")
            declared = field(c, "uncompressed_length", int, where, None)
            encoding = field(c, "encoding", str, where, "raw")
            if encoding == "zstd" and minor >= 2:
                rule(declared is not None, f"{where}: zstd without uncompressed_length")
            if minor >= 2 and fmt in ROLES and role in ("indices", "indptr", "coords"):
                rule(dtype == "u64", f"{where}: indices of dtype {dtype}")
            components[role] = {"dtype": dtype, "type": kind,
                                "offset": field(c, "offset", int, where),
                                "length": field(c, "length", int, where), "encoding": encoding,
                                "digest": field(c, "digest", str, where, None),
                                "declared": declared if encoding == "zstd" else None, "big": False}
        objects.append({"name": name, "shape": shape_of(entry, name), "format": fmt,
                        "attributes": field(entry, "attributes", dict, name, None) or {},
                        "components": components})
        if minor >= 2 and fmt == PLANES:
            from_planes(objects[-1])
    return version, attributes, objects, end


# ---- byte planes ------------------------------------------------------------------------------------------

PLANES = "ztstream.planes/1"


def from_planes(o):
    """An object of byte planes as the dense tensor it stands for (docs/PLANES.md)."""
    name = o["name"]
    rule(list(o["components"]) == ["data"], f"{name}: planes have one component, data")
    c = o["components"]["data"]
    rule((c["dtype"], c["type"], c["encoding"]) == ("u8", None, "zstd"), f"{name}: planes are u8 and zstd")
    rule("planes" in o["attributes"], f"{name}: no attribute planes")
    planes = field(o["attributes"], "planes", dict, name)
    dtype, kind = field(planes, "dtype", str, name), field(planes, "type", str, name, None)
    rule(dtype in WIDTHS and WIDTHS[dtype] >= 2, f"{name}: planes of {dtype}")
    rule(kind not in TYPES or TYPES[kind][0] == dtype, f"{name}: planes of type {kind} on {dtype}")
    rotate, group, chunk = (field(planes, key, int, name) for key in ("rotate", "group", "chunk"))
    rule(rotate in (0, 1) and (rotate == 0 or dtype[0] in "fb"), f"{name}: rotate {rotate} of {dtype}")
    rule(group > 0 and group % WIDTHS[dtype] == 0, f"{name}: group {group} of {dtype}")
    rule(chunk > 0 and chunk % group == 0 and chunk <= 16 << 20, f"{name}: chunk {chunk}")
    elements = TYPES[kind][1] if kind in TYPES else 1
    for dim in o["shape"]:
        elements *= dim
    rule(c["declared"] == elements * WIDTHS[dtype], f"{name}: {c['declared']} bytes of planes for the shape")
    c.update(dtype=dtype, type=kind, planes={"rotate": rotate, "group": group, "chunk": chunk})
    o["format"] = "dense"
    o["attributes"] = {key: value for key, value in o["attributes"].items() if key != "planes"}


def merge_planes(content, width, planes):
    out = []
    for at in range(0, len(content), planes["group"]):
        group = np.frombuffer(content[at:at + planes["group"]], np.uint8)
        elements = np.ascontiguousarray(group.reshape(width, -1)[::-1].T).view(f"<u{width}").ravel()
        if planes["rotate"]:
            elements = elements >> 1 | elements << (8 * width - 1)
        out.append(elements.astype(f"<u{width}").tobytes())
    return b"".join(out)


# ---- blobs ------------------------------------------------------------------------------------------------

def check_layout(data, objects, end, padded=True):
    spans = set()
    for o in objects:
        for role, c in o["components"].items():
            where = f"{o['name']}/{role}"
            rule(c["offset"] % ALIGNMENT == 0, f"{where}: offset {c['offset']} is not a multiple of 64")
            rule(c["offset"] + c["length"] <= end, f"{where}: the blob reaches past the data")
            if c["length"]:
                spans.add((c["offset"], c["length"]))
    at = 8
    for offset, length in sorted(spans):
        rule(offset >= at, f"the blob at {offset} overlaps what ends at {at}")
        rule(not padded or not any(data[at:offset]), f"padding before {offset} is not zero")
        at = offset + length
    rule(not padded or not any(data[at:end]), f"padding before the manifest at {end} is not zero")


_CRC = []
for _i in range(256):
    for _ in range(8):
        _i = _i >> 1 ^ (0x82F63B78 if _i & 1 else 0)
    _CRC.append(_i)


def crc32c(data):
    crc, lanes = 0xFFFFFFFF, 2048
    many = len(data) // lanes
    if many > 32:
        crc = _crc_of_lanes(np.frombuffer(data, "u1", many * lanes).reshape(lanes, many))
        data = data[many * lanes:]
    for byte in data:
        crc = _CRC[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc_of_lanes(lanes):
    """The state of a CRC-32C after all lanes, 2^k of them, one behind another: computed side by side, then put together."""
    table = np.array(_CRC, "u4")
    state = np.zeros(len(lanes), "u4")
    state[0] = 0xFFFFFFFF
    for column in np.ascontiguousarray(lanes.T):
        state = table[(state ^ column) & 255] ^ state >> 8

    def apply(images, states):  # what zero bytes make of states, of which they make `images` of each bit
        return np.bitwise_xor.reduce([image * (states >> bit & 1) for bit, image in enumerate(images)])

    bits = np.array([1 << bit for bit in range(32)], "u4")
    one, zeros = table[bits & 255] ^ bits >> 8, bits
    for digit in bin(lanes.shape[1])[2:]:
        zeros = apply(zeros, zeros)
        zeros = apply(one, zeros) if digit == "1" else zeros
    while len(state) > 1:
        state = apply(zeros, state[0::2]) ^ state[1::2]
        zeros = apply(zeros, zeros)
    return int(state[0])


def check_digest(text, stored, where):
    algorithm, colon, value = text.partition(":")
    rule(colon, f"{where}: digest {text!r} has no algorithm")
    value = value[2:] if value[:2].lower() == "0x" else value
    if algorithm in ("crc32c", "sha256", "xxh3"):
        rule(value and all(c in "0123456789abcdefABCDEF" for c in value),
             f"{where}: digest {text!r} is not hexadecimal")
    if algorithm == "crc32c":
        rule(int(value, 16) == crc32c(stored), f"{where}: crc32c differs")
    elif algorithm == "sha256":
        rule(value.lower() == hashlib.sha256(stored).hexdigest(), f"{where}: sha256 differs")
    elif algorithm == "xxh3":
        try:
            import xxhash
        except ImportError:
            return
        rule(int(value, 16) == xxhash.xxh3_64_intdigest(stored), f"{where}: xxh3 differs")


def unzstd(stored, limit, where):
    """All frames, skippable ones among them, and nothing else."""
    rule(stored, f"{where}: no zstd frame")
    out, size = [], 0
    while stored:
        if len(stored) >= 8 and 0x184D2A50 <= int.from_bytes(stored[:4], "little") <= 0x184D2A5F:
            skip = 8 + int.from_bytes(stored[4:8], "little")
            rule(skip <= len(stored), f"{where}: a skippable frame is cut short")
            stored = stored[skip:]
            continue
        frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        try:
            part = frame.decompress(stored)
        except zstandard.ZstdError as error:
            raise Broken(f"{where}: {error}") from None
        rule(frame.eof, f"{where}: a zstd frame is cut short")
        out.append(part)
        size += len(part)
        rule(limit is None or size <= limit, f"{where}: zstd yields more than declared")
        stored = frame.unused_data
    return b"".join(out)


def check_chunks(stored, chunk, size, where):
    """Where there is a seek table, every frame has a chunk's content, and the last one what is left."""
    if stored[-4:] != b"\xb1\xea\x92\x8f":
        return
    count, wide = int.from_bytes(stored[-9:-5], "little"), 12 if stored[-5] & 0x80 else 8
    table = np.frombuffer(stored[len(stored) - 9 - wide * count:-9], np.uint8).reshape(count, wide)
    contents = [int.from_bytes(row[4:8].tobytes(), "little") for row in table]
    rule(contents == [chunk] * (size // chunk) + ([size % chunk] if size % chunk or not size else []),
         f"{where}: frames are not chunks of {chunk} bytes")


def decode_component(data, c, where):
    stored = bytes(data[c["offset"]:c["offset"] + c["length"]])
    if c["digest"]:
        check_digest(c["digest"], stored, where)
    rule(c["encoding"] in ("raw", "zstd"), f"{where}: encoding {c['encoding']!r}")
    if c["encoding"] == "zstd":
        declared = c["declared"]
        plain = unzstd(stored, declared, where)
        rule(declared is None or len(plain) == declared,
             f"{where}: zstd yields {len(plain)} bytes, {declared} declared")
        if "planes" in c:
            check_chunks(stored, c["planes"]["chunk"], len(plain), where)
            return merge_planes(plain, WIDTHS[c["dtype"]], c["planes"])
        return plain
    width = WIDTHS[c["dtype"]]
    if c["big"] and width > 1:
        if c["sparse"]:
            return stored
        rule(len(stored) % width == 0, f"{where}: no whole elements")
        return np.frombuffer(stored, np.uint8).reshape(-1, width)[:, ::-1].tobytes()
    return stored


def numbers(c, where):
    rule(c["dtype"] in NUMPY, f"{where}: indices of dtype {c['dtype']}")
    rule(len(c["bytes"]) % WIDTHS[c["dtype"]] == 0, f"{where}: no whole elements")
    return np.frombuffer(c["bytes"], NUMPY[c["dtype"]])


def check_object(o):
    name, fmt, shape, parts = o["name"], o["format"], o["shape"], o["components"]
    rule(parts, f"{name}: no components")
    if fmt in ROLES:
        rule(set(parts) == ROLES[fmt], f"{name}: {fmt} with components {sorted(parts)}")
    if fmt == "quantized_group":
        rule({"packed_weight", "scales"} <= set(parts), f"{name}: {fmt} with {sorted(parts)}")
    for role, c in parts.items():
        if c["dtype"] == "bool" and fmt != "sparsecoo":
            rule(not set(c["bytes"]) - {0, 1}, f"{name}/{role}: a bool is neither 0 nor 1")
    if fmt == "dense":
        c = parts["data"]
        count = 1
        for dim in shape:
            count *= dim
        if c["type"] is None or c["type"] in TYPES or c["type"] == c["dtype"]:
            expected = count * WIDTHS[c["dtype"]] * TYPES.get(c["type"], ("", 1))[1]
            rule(len(c["bytes"]) == expected,
                 f"{name}: {len(c['bytes'])} bytes, the shape asks for {expected}")
    if fmt == "sparsecoo" and not parts["data"]["big"]:  # 0.1: of each entry its indices, then its value
        content, entry = parts["data"]["bytes"], 8 * len(shape) + WIDTHS[parts["data"]["dtype"]]
        rule(len(content) % entry == 0, f"{name}: no whole entries")
        for at in range(0, len(content), entry):
            rule(all(int.from_bytes(content[at + 8 * d:at + 8 * d + 8], "little") < dim for d, dim in enumerate(shape)),
                 f"{name}: an index is out of range")
    if fmt in ("sparse_csr", "sparse_coo"):
        v = parts["values"]
        size = WIDTHS[v["dtype"]] * TYPES.get(v["type"], ("", 1))[1]
        rule(len(v["bytes"]) % size == 0, f"{name}/values: no whole elements")
        count = len(v["bytes"]) // size
        if v["type"] not in (None, v["dtype"], *TYPES):  # several may share a byte: the indices count them
            index = parts["indices" if fmt == "sparse_csr" else "coords"]
            count = len(index["bytes"]) // WIDTHS[index["dtype"]] // (1 if fmt == "sparse_csr" else max(len(shape), 1))
    if fmt == "sparse_csr":
        rule(len(shape) == 2, f"{name}: sparse_csr of rank {len(shape)}")
        indices = numbers(parts["indices"], f"{name}/indices")
        pointers = [int(p) for p in numbers(parts["indptr"], f"{name}/indptr")]
        rule(len(indices) == count, f"{name}: {len(indices)} indices for {count} values")
        rule(len(pointers) == shape[0] + 1, f"{name}: {len(pointers)} row pointers")
        rule(pointers[0] == 0 and pointers[-1] == count and pointers == sorted(pointers),
             f"{name}: indptr does not rise from 0 to {count}")
        rule(count == 0 or (int(indices.min()) >= 0 and int(indices.max()) < shape[1]),
             f"{name}: a column is out of range")
    if fmt == "sparse_coo":
        coords = numbers(parts["coords"], f"{name}/coords")
        rule(len(coords) == count * len(shape), f"{name}: {len(coords)} coordinates")
        for axis, dim in enumerate(shape):
            part = coords[axis * count:(axis + 1) * count]
            rule(count == 0 or (int(part.min()) >= 0 and int(part.max()) < dim),
                 f"{name}: a coordinate is out of range")


def read_file(path):
    """(version, root attributes, {name: object}), checked whole."""
    with open(path, "rb") as f:
        data = f.read()
    rule(data[:8] in (HEADER_01, HEADER_1), "no ZTEN1000 or ZTEN0001 at the start")
    load = load_01 if data[:8] == HEADER_01 else load_1
    version, attributes, objects, end = load(data)
    check_layout(data, objects, end, padded=load is load_1)
    out = {}
    for o in objects:
        rule(o["name"] not in out, f"name {o['name']!r} twice")
        for role, c in o["components"].items():
            c["bytes"] = decode_component(data, c, f"{o['name']}/{role}")
            if load is load_01 and c["dtype"] == "bool" and o["format"] not in ("sparse", "sparsecoo", "sparsecsr"):
                c["bytes"] = bytes(map(bool, c["bytes"]))  # what is not zero is true
        check_object(o)
        out[o.pop("name")] = o
    return version, attributes, out


def read(path):
    return read_file(path)[2]


def _plain(value):
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.hex() if isinstance(value, bytes) else value


def main(path):
    try:
        version, attributes, objects = read_file(path)
    except (Broken, OSError, cbor2.CBORDecodeError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    for o in objects.values():
        for c in o["components"].values():
            plain = c.pop("bytes")
            c.pop("declared"), c.pop("big"), c.pop("sparse", None)
            c["bytes"], c["sha256"] = len(plain), hashlib.sha256(plain).hexdigest()
    print(json.dumps({"version": version, "attributes": _plain(attributes),
                      "objects": _plain(objects)}, ensure_ascii=False, indent=1))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
