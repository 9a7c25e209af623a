#!/usr/bin/python3
"""zt2read.py - an independent, strict reader of zTensor 2.0 files, for the tests; written from the spec alone.

usage: zt2read.py [--data] FILE   prints JSON: every object and part with the SHA-256 of its decoded bytes, and the
                                  content digest (6.4); exits 1 with the broken rule on standard error.
As a module: open_file(path) -> File, which checks what an opening reader must (3.6); File.verify() checks digests and
data rules too; File.decode(name, part) gives decoded bytes. Broken says which rule a file breaks, Refused what this
reader must not interpret. `rule` is spelled as in the conformance corpus of the reference.

Its own walk over the CBOR; needs xxhash and zstandard.
"""
import hashlib
import json
import math
import pathlib
import re
import struct
import sys

import xxhash
import zstandard

MAGIC = b"\x89ZT2\r\n\x1a\n"
FOOTER = struct.Struct("<QQQII8s")
FLOOR, CANONICAL = 4096, 65536
MAX_MANIFEST, MAX_DEPTH, MAX_NAME, MAX_RANK = 1 << 30, 32, 1024, 64
U64 = 1 << 64

WIDTHS = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1,
          "u64": 8, "u32": 4, "u16": 2, "u8": 1}
# Appendix A: the dtype a logical type is stored as, and its size for n elements.
TYPES = {"bool": ("u8", lambda n: n), "f8_e4m3fn": ("u8", lambda n: n), "f8_e5m2": ("u8", lambda n: n),
         "f8_e4m3fnuz": ("u8", lambda n: n), "f8_e5m2fnuz": ("u8", lambda n: n), "f8_e8m0": ("u8", lambda n: n),
         "f4_e2m1": ("u8", lambda n: (n + 1) // 2), "complex64": ("f32", lambda n: 8 * n),
         "complex128": ("f64", lambda n: 16 * n)}
ZSTD = "zt.zstd-seekable/1"
PLANES = "ztstream.planes/1"


class Broken(Exception):
    """A rule of the spec that the file does not keep."""

    def __init__(self, rule, text):
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Refused(Exception):
    """What a reader that does not know a layout, a type or an encoding must not interpret."""


def need(kept, rule, text):
    if not kept:
        raise Broken(rule, text)


# ---- deterministic CBOR (3.1) ----------------------------------------------------------------------------------

class Cbor:
    """One value and nothing after it. Maps become dicts; a key that is no text becomes (kind, encoded bytes)."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        need(self.at + size <= len(self.data), "CborSyntax", "the CBOR ends early")
        self.at += size
        return self.data[self.at - size:self.at]

    def head(self, low):
        if low < 24:
            return low
        need(low < 28, "CborSyntax", "an indefinite length or a reserved head")
        size = 1 << (low - 24)
        value = int.from_bytes(self.take(size), "big")
        need(value >= (24 if size == 1 else 1 << (4 * size)), "CborDeterminism", "a head is not the shortest")
        return value

    def number(self, low):
        raw = self.take(1 << (low - 24))
        value = struct.unpack({25: ">e", 26: ">f", 27: ">d"}[low], raw)[0]
        if math.isnan(value):
            need(raw == b"\x7e\x00", "CborDeterminism", "a NaN other than 0x7e00")
            return value
        for shorter in (">e", ">f")[:low - 25]:
            try:
                same = struct.unpack(shorter, struct.pack(shorter, value))[0] == value
            except OverflowError:
                same = False
            need(not same, "CborDeterminism", "a float is wider than its value")
        return value

    def value(self, depth=0):
        need(depth <= MAX_DEPTH, "CborDepth", "nested deeper than 32 levels")
        first = self.take(1)[0]
        major, low = first >> 5, first & 31
        if major == 7:
            if low in (20, 21, 22):
                return {20: False, 21: True, 22: None}[low]
            need(low in (25, 26, 27), "CborSyntax", "a simple value that is neither a boolean, null nor a float")
            return self.number(low)
        need(major != 6, "CborSyntax", "a tag")
        value = self.head(low)
        if major < 2:
            return value if major == 0 else -1 - value
        need(value <= len(self.data) - self.at, "CborSyntax", "a length beyond the input")
        if major == 2:
            return self.take(value)
        if major == 3:
            try:
                return self.take(value).decode("utf-8")
            except UnicodeDecodeError:
                raise Broken("CborSyntax", "text that is not UTF-8") from None
        if major == 4:
            return [self.value(depth + 1) for _ in range(value)]
        out, before = {}, None
        for _ in range(value):
            start = self.at
            key = self.value(depth + 1)
            encoded = self.data[start:self.at]
            need(encoded != before, "CborDuplicateKey", f"key {key!r} twice")
            need(before is None or before < encoded, "CborDeterminism", "map keys out of order")
            before = encoded
            out[key if isinstance(key, str) else (type(key).__name__, encoded)] = self.value(depth + 1)
        return out


def decode_cbor(data):
    walker = Cbor(data)
    value = walker.value()
    need(walker.at == len(data), "CborSyntax", "bytes follow the value")
    return value


def encode_cbor(value):
    """Deterministic, of the kinds a manifest holds."""
    def head(major, number):
        if number < 24:
            return bytes([major << 5 | number])
        size = next(s for s in (1, 2, 4, 8) if number < 1 << (8 * s))
        return bytes([major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[size]]) + number.to_bytes(size, "big")
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, float):
        if math.isnan(value):
            return b"\xf9\x7e\x00"
        for kind, first in ((">e", b"\xf9"), (">f", b"\xfa")):
            try:
                raw = struct.pack(kind, value)
            except OverflowError:
                continue
            if struct.unpack(kind, raw)[0] == value:
                return first + raw
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, (list, tuple)):
        return head(4, len(value)) + b"".join(map(encode_cbor, value))
    pairs = sorted((encode_cbor(key), encode_cbor(each)) for key, each in value.items())
    return head(5, len(pairs)) + b"".join(key + each for key, each in pairs)


# ---- the schema (3.2 to 3.5) -----------------------------------------------------------------------------------

def is_uint(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < U64


def field(holder, name, kind, where, required=True):
    if name not in holder:
        need(not required, "Schema", f"{where}: {name!r} is missing")
        return None
    value = holder[name]
    fits = is_uint(value) if kind is int else isinstance(value, kind)
    need(fits, "Schema", f"{where}: {name!r} is of the wrong kind")
    return value


def check_name(name, what):
    need(isinstance(name, str), "Schema", f"{what} is no text")
    need(name and "\0" not in name and len(name.encode()) <= MAX_NAME, "Name", f"{what} {name[:40]!r}")


def check_attributes(holder, where):
    attributes = field(holder, "attributes", dict, where, required=False)
    for key in attributes or {}:
        check_name(key, f"{where}: attribute key")
    return attributes


def check_digest(text, where):
    need(re.fullmatch(r"[!-9;-@[-~]+:[0-9a-f]+", text), "Schema", f"{where}: digest {text!r}")
    algorithm, digits = text.split(":")
    sizes = {"xxh3": 16, "sha256": 64}
    need(len(digits) == sizes.get(algorithm, len(digits)), "Schema", f"{where}: digest {text!r}")


class Part:
    def __init__(self, holder, where):
        need(isinstance(holder, dict), "Schema", f"{where}: no map")
        self.where = where
        self.dtype = field(holder, "dtype", str, where)
        need(self.dtype in WIDTHS, "Schema", f"{where}: dtype {self.dtype!r}")
        self.type = field(holder, "type", str, where, required=False)
        if self.type in TYPES:
            need(TYPES[self.type][0] == self.dtype, "Schema", f"{where}: {self.type} on {self.dtype}")
        blob = field(holder, "blob", list, where)
        need(len(blob) == 2 and all(map(is_uint, blob)), "Schema", f"{where}: blob {blob!r}")
        self.offset, self.length = blob
        self.shard = field(holder, "shard", str, where, required=False)
        self.encoding = field(holder, "encoding", str, where, required=False)
        declared = field(holder, "decoded_length", int, where, required=False)
        need((self.encoding is None) == (declared is None), "Schema", f"{where}: 'encoding' and 'decoded_length'")
        self.size = self.length if self.encoding is None else declared
        self.digest = field(holder, "digest", str, where, required=False)
        self.planes = field(holder, "planes", dict, where, required=False) if self.encoding == PLANES else None
        need(not self.planes or self.planes.get("rotate", 0) in (0, 1) and self.planes.get("chunk") != 0, "Encoding", f"{where}: planes")
        if self.digest is not None:
            check_digest(self.digest, where)

    def known(self):
        """A logical type is absent, or the dtype again, or registered."""
        return self.type is None or self.type == self.dtype or self.type in TYPES

    def size_of(self, count):
        if self.type in TYPES:
            return TYPES[self.type][1](count)
        return count * WIDTHS[self.dtype]

    def plain(self, *dtypes):
        return self.dtype in dtypes and self.type in (None, self.dtype)


class Object:
    def __init__(self, name, holder):
        need(isinstance(holder, dict), "Schema", f"{name}: no map")
        self.name = name
        self.shape = field(holder, "shape", list, name)
        need(all(map(is_uint, self.shape)), "Schema", f"{name}: shape {self.shape!r}")
        need(len(self.shape) <= MAX_RANK, "Shape", f"{name}: rank {len(self.shape)}")
        self.count = math.prod(self.shape)
        need(self.count < U64, "Shape", f"{name}: the product of the shape overflows")
        self.layout = field(holder, "layout", str, name)
        self.attributes = check_attributes(holder, name)
        parts = field(holder, "parts", dict, name)
        need(parts, "Schema", f"{name}: no parts")
        for role in parts:
            check_name(role, f"{name}: part name")
        self.parts = {role: Part(part, f"{name}/{role}") for role, part in parts.items()}


# ---- layouts (5) -----------------------------------------------------------------------------------------------

def parts_are(o, *names):
    need(set(o.parts) == set(names), "LayoutRule", f"{o.name}: {o.layout} with parts {sorted(o.parts)}")


def sized(part, size, rule="LayoutRule"):
    need(part.size == size, rule, f"{part.where}: {part.size} bytes, {size} are needed")


def check_dense(o):
    parts_are(o, "data")
    data = o.parts["data"]
    if data.known():
        sized(data, data.size_of(o.count), "DenseSize")


def check_csr(o):
    parts_are(o, "values", "indices", "indptr")
    need(len(o.shape) == 2, "LayoutRule", f"{o.name}: rank {len(o.shape)}")
    values, indices, indptr = (o.parts[p] for p in ("values", "indices", "indptr"))
    need(indices.plain("u32", "u64"), "LayoutRule", f"{indices.where}: {indices.dtype}")
    need(indptr.plain(indices.dtype), "LayoutRule", f"{indptr.where}: {indptr.dtype}")
    width = WIDTHS[indices.dtype]
    need(indices.size % width == 0, "LayoutRule", f"{indices.where}: half an index")
    sized(indptr, (o.shape[0] + 1) * width)
    if values.known():
        sized(values, values.size_of(indices.size // width))


def check_coo(o):
    parts_are(o, "values", "coords")
    need(o.shape, "LayoutRule", f"{o.name}: rank 0")
    values, coords = o.parts["values"], o.parts["coords"]
    need(coords.plain("u32", "u64"), "LayoutRule", f"{coords.where}: {coords.dtype}")
    entry = WIDTHS[coords.dtype] * len(o.shape)
    need(coords.size % entry == 0, "LayoutRule", f"{coords.where}: half a coordinate")
    if values.known():
        sized(values, values.size_of(coords.size // entry))


def attribute(holder, key, kind, where):
    value = holder.get(key) if isinstance(holder, dict) else None
    fits = is_uint(value) if kind is int else isinstance(value, kind)
    need(fits, "LayoutRule", f"{where}: attribute {key!r} is missing or of the wrong kind")
    return value


def check_gguf(o):
    parts_are(o, "data")
    data = o.parts["data"]
    need(data.plain("u8"), "LayoutRule", f"{data.where}: {data.dtype}")
    elements = attribute(o.attributes, "elems_per_block", int, o.name)
    block = attribute(o.attributes, "block_bytes", int, o.name)
    need(elements >= 1 and o.count % elements == 0, "LayoutRule", f"{o.name}: elems_per_block {elements}")
    need(block >= 1, "LayoutRule", f"{o.name}: block_bytes {block}")
    sized(data, o.count // elements * block)


def check_mx(o):
    parts_are(o, "data", "scales")
    data, scales = o.parts["data"], o.parts["scales"]
    need((scales.dtype, scales.type) == ("u8", "f8_e8m0"), "LayoutRule", f"{scales.where}: {scales.type}")
    need(attribute(o.attributes, "scale_form", str, o.name) == "e8m0_exponent", "LayoutRule", f"{o.name}: scale_form")
    block = attribute(o.attributes, "block_size", int, o.name)
    axis = len(o.shape) - 1
    if "axis" in o.attributes:
        axis = attribute(o.attributes, "axis", int, o.name)
    need(0 <= axis < len(o.shape), "LayoutRule", f"{o.name}: axis {axis}")
    need(block >= 2 and o.shape[axis] % block == 0, "LayoutRule", f"{o.name}: block_size {block}")
    sized(scales, o.count // block)
    if data.known():
        need(data.type in ("f4_e2m1", "f8_e4m3fn", "f8_e5m2") or data.plain("i8"), "LayoutRule",
             f"{data.where}: {data.type or data.dtype}")
        sized(data, data.size_of(o.count))


def check_quant(o):
    a, where = o.attributes, o.name
    bits, group, axis = (attribute(a, key, int, where) for key in ("bits", "group_size", "axis"))
    packing, zero = (attribute(a, key, dict, where) for key in ("packing", "zero_point"))
    word, order = (attribute(packing, key, str, where) for key in ("word", "order"))
    per_word = attribute(packing, "per_word", int, where)
    scale_form, form = attribute(a, "scale_form", str, where), attribute(zero, "form", str, where)
    need(form in ("none", "implied", "tensor"), "LayoutRule", f"{where}: zero_point {form!r}")
    parts_are(o, *(("data", "scales", "zeros") if form == "tensor" else ("data", "scales")))
    data, scales = o.parts["data"], o.parts["scales"]
    need(word in ("u8", "u16", "u32", "u64") and data.plain(word, "i" + word[1:]), "LayoutRule",
         f"{data.where}: {data.dtype} with words {word!r}")
    width = WIDTHS[word]
    need(order in ("lsb_first", "msb_first"), "LayoutRule", f"{where}: order {order!r}")
    need(bits in (2, 3, 4, 5, 6, 8) and 8 * width % bits == 0, "LayoutRule", f"{where}: bits {bits}")
    need(per_word == 8 * width // bits, "LayoutRule", f"{where}: per_word {per_word}")
    floats = ("f64", "f32", "f16", "bf16")
    fits = {"f32_factors": scales.plain(*floats), "f16_factors": scales.plain(*floats),
            "e8m0_exponent": (scales.dtype, scales.type) == ("u8", "f8_e8m0")}
    need(fits.get(scale_form), "LayoutRule", f"{scales.where}: {scales.dtype} as {scale_form!r}")
    need(axis < len(o.shape), "LayoutRule", f"{where}: axis {axis}")
    along = o.shape[axis]
    need(group == 0 or along % group == 0, "LayoutRule", f"{where}: group_size {group}")
    groups = along if group == 0 else along // group
    lanes = o.count // along if along else 0
    need(o.count % per_word == 0, "LayoutRule", f"{where}: half a word")
    sized(data, o.count // per_word * width)
    sized(scales, groups * lanes * scales.size_of(1))
    if form == "implied":
        value = zero.get("value")
        need(isinstance(value, int) and not isinstance(value, bool), "LayoutRule", f"{where}: zero_point value")
    if form == "tensor":
        zeros, kind = o.parts["zeros"], attribute(zero, "packing", str, where)
        need(kind in ("plain", "same_as_data"), "LayoutRule", f"{where}: zeros {kind!r}")
        if kind == "plain":
            if zeros.known():
                sized(zeros, groups * lanes * zeros.size_of(1))
        else:
            need(groups * lanes % per_word == 0, "LayoutRule", f"{where}: half a word of zeros")
            sized(zeros, groups * lanes // per_word * width)


LAYOUTS = {"dense": check_dense, "zt.sparse_csr/1": check_csr, "zt.sparse_coo/1": check_coo, "zt.mx/1": check_mx,
           "zt.quant_group/1": check_quant}
GGUF = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", "iq1_s",
        "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4"}


def layout_check(layout):
    gguf = re.fullmatch(r"gguf\.(.*)/1", layout)
    return check_gguf if gguf and gguf[1] in GGUF else LAYOUTS.get(layout)


# ---- encodings (5.3) -------------------------------------------------------------------------------------------

def unzstd(stored, size, where):
    """zt.zstd-seekable/1: frames, all with a checksum, all but the last of one size; then a seek table."""
    def broken(kept, text):
        need(kept, "Encoding", f"{where}: {text}")
    broken(len(stored) >= 17 and stored[-4:] == b"\xb1\xea\x92\x8f", "no seek table")
    count, flags = struct.unpack("<IB", stored[-9:-4])
    broken(flags & 0x7c == 0, "reserved bits of the seek table")
    wide = 12 if flags & 0x80 else 8
    table = len(stored) - 9 - count * wide
    broken(table >= 8 and stored[table - 8:table] == struct.pack("<II", 0x184D2A5E, count * wide + 9),
           "the seek table's frame")
    entries = [struct.unpack_from("<II", stored, table + i * wide) for i in range(count)]
    broken(sum(each for each, _ in entries) == table - 8, "the frames of the seek table do not fill the stream")
    contents = [each for _, each in entries]
    broken(all(each == contents[0] for each in contents[:-1]) and all(each <= 16 << 20 for each in contents),
           "frames of unequal size, or beyond 16 MiB")
    broken(sum(contents) == size, f"{sum(contents)} bytes in the frames, {size} declared")
    out, at = [], 0
    for stored_bytes, content in entries:
        frame = stored[at:at + stored_bytes]
        broken(len(frame) >= 5 and frame[:4] == b"\x28\xb5\x2f\xfd" and frame[4] & 4, "a frame without a checksum")
        try:
            decoder = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
            part = decoder.decompress(frame)
        except zstandard.ZstdError as error:
            raise Broken("Encoding", f"{where}: {error}") from None
        broken(decoder.eof and not decoder.unused_data, "a frame's length is not the seek table's")
        broken(len(part) == content, f"a frame of {len(part)} bytes where {content} are promised")
        out.append(part)
        at += stored_bytes
    return b"".join(out)


# ---- the container (2, 7, 8) -----------------------------------------------------------------------------------

def read_footer(data):
    need(len(data) >= 48, "FileTooSmall", f"{len(data)} bytes")
    need(data[:8] == MAGIC, "HeaderMagic", data[:8].hex())
    offset, length, digest, version, _, magic = FOOTER.unpack(data[-40:])
    need(magic == MAGIC, "FooterMagic", magic.hex())
    need(version == 2, "Version", str(version))
    return offset, length, digest


class File:
    """A root, or a data shard (`objects` is None)."""

    def __init__(self, data, path=None):
        self.data, self.path = data, path
        self.objects, self.shards, self.attributes, self.opened = None, {}, None, {}
        offset, length, digest = read_footer(data)
        if length == 0:
            need(offset == 0 and digest == 0, "ManifestBounds", "a manifest without bytes at an offset")
            return
        need(length <= MAX_MANIFEST, "ManifestTooLarge", str(length))
        need(offset % FLOOR == 0 and offset >= FLOOR, "BlobAlignment", f"manifest at {offset}")
        need(offset + length <= len(data) - 40, "ManifestBounds", f"{offset} + {length}")
        self.manifest = (offset, length)
        encoded = data[offset:offset + length]
        need(xxhash.xxh3_64_intdigest(encoded) == digest, "ManifestHash", f"{digest:016x}")
        root = decode_cbor(encoded)
        need(isinstance(root, dict), "Schema", "the manifest is no map")
        self.attributes = check_attributes(root, "manifest")
        self.read_shards(root)
        objects = field(root, "objects", dict, "manifest")
        for name in objects:
            check_name(name, "object name")
        self.objects = {name: Object(name, o) for name, o in objects.items()}
        self.check_blobs()
        for o in self.objects.values():
            check = layout_check(o.layout)
            if check is not None:
                check(o)

    def read_shards(self, root):
        for name, entry in (field(root, "shards", dict, "manifest", required=False) or {}).items():
            need(isinstance(name, str), "Schema", "a shard name is no text")
            need(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", name), "ShardName", repr(name[:80]))
            need(isinstance(entry, dict), "Schema", f"shard {name}: no map")
            size, digest = field(entry, "size", int, name), field(entry, "digest", str, name)
            check_digest(digest, name)
            self.shards[name] = (size, digest)

    def check_blobs(self):
        spans = {None: {self.manifest}}
        for o in self.objects.values():
            for part in o.parts.values():
                need(part.shard is None or part.shard in self.shards, "ShardRef", f"{part.where}: {part.shard!r}")
                need(part.offset % FLOOR == 0 and part.offset >= FLOOR, "BlobAlignment", f"{part.where}: {part.offset}")
                size = len(self.data) if part.shard is None else self.shards[part.shard][0]
                need(part.offset + part.length <= size - 40, "BlobBounds", f"{part.where}: {part.offset}")
                if part.length:
                    spans.setdefault(part.shard, set()).add((part.offset, part.length))
        for group in spans.values():
            end = 0
            for offset, length in sorted(group):
                need(offset >= end, "BlobOverlap", f"the blob at {offset} begins before {end}")
                end = offset + length

    def shard(self, name):
        """The bytes of a shard: beside the root by its name, else what has its size and digest."""
        if name is None:
            return self.data
        if name not in self.opened:
            size, digest = self.shards[name]
            named = self.path.with_name(f"{self.path.stem}-{name}.zt")
            found = [named] if named.exists() else []
            found += [each for each in sorted(self.path.parent.iterdir()) if each not in (named, self.path)]
            for path in found:
                if path.is_file() and path.stat().st_size == size:
                    data = path.read_bytes()
                    if digest_of(digest.split(":")[0], data) == digest:
                        read_footer(data)
                        self.opened[name] = data
                        break
            else:
                raise Broken("ShardRef", f"no file for shard {name!r}")
        return self.opened[name]

    def stored(self, name, role):
        part = self.objects[name].parts[role]
        return self.shard(part.shard)[part.offset:part.offset + part.length]

    def decode(self, name, role):
        o = self.objects[name]
        part = o.parts[role]
        if layout_check(o.layout) is None:
            raise Refused(f"{name}: layout {o.layout!r}")
        if not part.known():
            raise Refused(f"{part.where}: type {part.type!r}")
        return self.bytes_of(part, self.stored(name, role), o)

    def bytes_of(self, part, stored, o):
        if part.encoding is None:
            return stored
        if part.encoding == ZSTD:
            return unzstd(stored, part.size, part.where)
        if part.encoding == PLANES:
            import ztread
            width, floats = WIDTHS[part.dtype], part.dtype in ("f64", "f32", "f16", "bf16")
            need(WIDTHS[part.dtype] > 1, "Profile", f"{part.where}: byte planes of {part.dtype}")
            planes = {"rotate": int(floats), "group": width << 17, "chunk": 4 << 20, **(part.planes or {})}
            laid = unzstd(stored, part.size, part.where)
            return ztread.merge_planes(laid, WIDTHS[part.dtype], planes)
        raise Refused(f"{part.where}: encoding {part.encoding!r}")

    def verify(self):
        """Every digest and data rule of what this reader may decode; returns the names of what it may not."""
        refused = []
        for o in self.objects.values():
            content = {}
            for role, part in o.parts.items():
                try:
                    content[role] = self.decode(o.name, role)
                except Refused as why:
                    refused.append(str(why))
                    if part.encoding is not None:
                        continue
                    content_of = self.stored(o.name, role)
                else:
                    content_of = content[role]
                if part.digest is not None and digest_of(part.digest.split(":")[0], content_of) is not None:
                    need(digest_of(part.digest.split(":")[0], content_of) == part.digest, "Digest", part.where)
            if len(content) == len(o.parts):
                check_data(o, content)
        return refused

    def unreferenced(self):
        """Bytes between blobs, from the first to the last that is not zero of each gap: padding that is not zero, or what
        earlier generations left."""
        spans = {(p.offset, p.length) for o in self.objects.values() for p in o.parts.values() if p.shard is None and p.length}
        at, found = 8, 0
        for begin, length in sorted(spans | {self.manifest}) + [(len(self.data) - 40, 0)]:
            found += len(self.data[at:begin].strip(b"\0")) if begin > at else 0
            at = max(at, begin + length)
        return found

    def content_digest(self, algorithm="sha256"):
        """6.4, or None where a part has no digest."""
        objects = {}
        for o in self.objects.values():
            parts = {}
            for role, part in o.parts.items():
                if part.digest is None:
                    return None
                parts[role] = {"dtype": part.dtype, "digest": part.digest}
                if part.type is not None:
                    parts[role]["type"] = part.type
            objects[o.name] = {"shape": o.shape, "layout": o.layout, "parts": parts}
            if o.attributes is not None:
                objects[o.name]["attributes"] = o.attributes
        return digest_of(algorithm, encode_cbor(["zt.content/1", objects]))

    def check_canonical(self):
        """6.3, but for rule 5 where the names are NFC already by unicodedata."""
        import unicodedata
        need(not self.shards, "Canonical", "a shard table")
        order, seen = [], set()
        for o in sorted(self.objects.values(), key=lambda each: each.name.encode()):
            for role, part in sorted(o.parts.items(), key=lambda each: each[0].encode()):
                need(unicodedata.is_normalized("NFC", o.name) and unicodedata.is_normalized("NFC", role),
                     "Canonical", f"{part.where}: not NFC")
                need(part.encoding is None and (part.digest or "").startswith("xxh3:"), "Canonical", part.where)
                if (part.offset, part.length) not in seen:
                    seen.add((part.offset, part.length))
                    order.append(part)
        at, contents = CANONICAL, {}
        for part in order:
            need(part.offset == at, "Canonical", f"{part.where}: at {part.offset}, not {at}")
            content = self.data[part.offset:part.offset + part.length]
            need(content not in contents, "Canonical", f"{part.where}: the bytes of {contents.get(content)} again")
            contents[content] = part.where
            at += -(-part.length // CANONICAL) * CANONICAL
        need(self.manifest[0] == at, "Canonical", f"the manifest at {self.manifest[0]}, not {at}")
        need(sum(self.manifest) == len(self.data) - 40, "Canonical", "bytes after the manifest")
        need(self.unreferenced() == 0, "Canonical", "bytes that no blob covers")


def digest_of(algorithm, data):
    if algorithm == "xxh3":
        return f"xxh3:{xxhash.xxh3_64_intdigest(data):016x}"
    if algorithm == "sha256":
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    return None


def uints(content, dtype):
    width = WIDTHS[dtype]
    return [int.from_bytes(content[i:i + width], "little") for i in range(0, len(content), width)]


def check_data(o, content):
    for role, part in o.parts.items():
        if part.type == "bool":
            need(set(content[role]) <= {0, 1}, "LayoutData", f"{part.where}: a bool that is neither 0 nor 1")
        count = o.count if o.layout == "dense" else len(content.get("indices", content.get("coords", b"")))
        if o.layout.startswith("zt.sparse"):
            index = o.parts["indices" if "indices" in o.parts else "coords"]
            count //= WIDTHS[index.dtype] * (len(o.shape) if o.layout == "zt.sparse_coo/1" else 1)
        if o.layout == "zt.mx/1":
            count = o.count if role == "data" else 0
        if part.type == "f4_e2m1" and count % 2:
            need(content[role][-1] >> 4 == 0, "LayoutData", f"{part.where}: the odd nibble is not zero")
    if o.layout == "zt.sparse_csr/1":
        dtype = o.parts["indices"].dtype
        indices, indptr = uints(content["indices"], dtype), uints(content["indptr"], dtype)
        need(indptr[0] == 0 and indptr[-1] == len(indices) and indptr == sorted(indptr), "LayoutData",
             f"{o.name}: row pointers")
        for begin, end in zip(indptr, indptr[1:]):
            row = indices[begin:end]
            need(all(a < b for a, b in zip(row, row[1:])), "LayoutData", f"{o.name}: a row does not ascend")
        need(all(index < o.shape[1] for index in indices), "LayoutData", f"{o.name}: an index beyond the columns")
    if o.layout == "zt.sparse_coo/1":
        coords = uints(content["coords"], o.parts["coords"].dtype)
        count = len(coords) // len(o.shape)
        for d, dim in enumerate(o.shape):
            need(all(index < dim for index in coords[d * count:(d + 1) * count]), "LayoutData",
                 f"{o.name}: a coordinate beyond dimension {d}")
        cells = set(zip(*(coords[d * count:(d + 1) * count] for d in range(len(o.shape)))))
        need(len(cells) == count, "LayoutData", f"{o.name}: two elements name one cell")


def open_file(path):
    path = pathlib.Path(path)
    return File(path.read_bytes(), path)


def main(arguments):
    file = open_file(arguments[-1])
    if file.objects is None:
        print(json.dumps({"data_shard": True}))
        return 0
    refused = file.verify()
    objects = {}
    for o in file.objects.values():
        parts = objects[o.name] = {}
        for role, part in o.parts.items():
            parts[role] = {"dtype": part.dtype, "type": part.type, "offset": part.offset, "length": part.length,
                           "encoding": part.encoding, "digest": part.digest}
            try:
                parts[role]["sha256"] = hashlib.sha256(file.decode(o.name, role)).hexdigest()
            except Refused:
                pass
    print(json.dumps({"objects": objects, "unreferenced": file.unreferenced(), "refused": refused,
                      "content": file.content_digest()}, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Broken as broken:
        print(broken, file=sys.stderr)
        sys.exit(1)
