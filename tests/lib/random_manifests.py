"""Random small .zt files of every version, most of them valid, and the same with a value or two replaced: see agreement.py.

files(rng, version, mutate) -> bytes. A file has one to three objects of every layout; their components have random types,
encodings and digests, and some share a blob. A mutant's manifest has other values, or its bytes are changed.
"""
import math
import struct

import make_zt
import make_zt2
import ztread
from zt2read import TYPES, WIDTHS, digest_of, encode_cbor

VERSIONS = ("0.1", "1.1", "1.2", "2.0")
LONG = {short: long for long, short in ztread.LONG.items()}
STRANGE = ("foo", "ztstream.foo/1", "x.y/1", "u8", "f32", "f6_e2m3", "ztstream.f6_e2m3/1")
TYPED_11 = {logical: dtype for dtype, (_, logical) in ztread.DTYPES_11.items()}
ATTRIBUTES = (1, -5, "x", None, True, [1, {"a": b"z"}], 1.5, {"": 1}, "", {}, b"", 1 << 63)


class Part:
    def __init__(self, dtype, data, kind=None):
        self.dtype, self.data, self.kind = dtype, data, kind


def size_of(dtype, kind, count):
    return TYPES[kind][1](count) if kind in TYPES else count * WIDTHS.get(dtype, 1)


def element(rng, version):
    """(dtype, type) of an element, which the version has; seldom a strange one."""
    kind = rng.choice((None, None, *TYPES))
    if version == "0.1" or version == "1.1" and kind not in TYPED_11 or version == "1.2" and kind == "bool":
        kind = None
    if kind is None:
        return rng.choice((*WIDTHS, "bool") if version != "2.0" else (*WIDTHS,)), None
    return TYPES[kind][0], kind


def content(rng, dtype, kind, count):
    """Bytes that keep the rules of their type, all but one time in twenty."""
    size = size_of(dtype, kind, count)
    if "bool" in (dtype, kind):
        return bytes(rng.choice((0, 1)) if rng.random() < 0.99 else 2 for _ in range(size))
    data = bytearray(rng.choice((rng.randbytes(size), bytes(size))))
    if kind == "f4_e2m1" and count % 2 and rng.random() < 0.9:
        data[-1] &= 15
    return bytes(data)


def integers(rng, dtype, values):
    return b"".join(value.to_bytes(WIDTHS[dtype], "little") for value in values)


def sparse(rng, version, layout):
    index = rng.choice(("u64", "u64", "u32") if version in ("1.1", "2.0") else ("u64",)) if rng.random() < 0.95 else rng.choice(
        ("i64", "u16", "f32"))
    dtype, kind = element(rng, version)
    shape = [rng.randint(1, 4) for _ in range(2 if layout == "sparse_csr" else rng.randint(1, 3))]
    wild = rng.random() < 0.1  # cells twice, columns that fall, indices beyond
    cells = sorted(rng.sample(range(math.prod(shape)), rng.randint(0, min(4, math.prod(shape)))))
    indices = []
    for cell in cells:
        at = []
        for dimension in reversed(shape):
            at.insert(0, cell % dimension)
            cell //= dimension
        indices.append(at)
    if wild and indices:
        indices[rng.randrange(len(indices))] = [rng.randint(0, 4) for _ in shape]
    parts = {"values": Part(dtype, content(rng, dtype, kind, len(indices)), kind)}
    if layout == "sparse_coo":
        rng.shuffle(indices)
        parts["coords"] = Part(index, integers(rng, index, [at[d] for d in range(len(shape)) for at in indices]))
    else:
        pointers = [sum(at[0] < row for at in indices) for row in range(shape[0] + 1)]
        parts["indices"] = Part(index, integers(rng, index, [at[1] for at in indices]))
        parts["indptr"] = Part(index, integers(rng, index, pointers))
    return layout, shape, {}, parts


def quantized(rng, version):
    kind = rng.choice(("gguf", "mx", "group") if version == "2.0" else ("gguf", "1.x group"))
    if kind == "gguf":
        shape = [rng.randint(0, 2), 32]
        attributes = {"elems_per_block": 32, "block_bytes": 18} if version == "2.0" else {}
        return "gguf.q4_0/1", shape, attributes, {"data": Part("u8", rng.randbytes(shape[0] * 18))}
    if kind == "mx":
        rows, block, kind = rng.choice((1, 2)), rng.choice((2, 4)), rng.choice(("f8_e5m2", "f8_e4m3fn", "f4_e2m1"))
        data = Part("u8", rng.randbytes(size_of("u8", kind, rows * 4)), kind)
        return "zt.mx/1", [rows, 4], {"block_size": block, "scale_form": "e8m0_exponent"}, {
            "data": data, "scales": Part("u8", rng.randbytes(rows * 4 // block), "f8_e8m0")}
    if kind == "group":
        form = rng.choice(({"form": "none"}, {"form": "implied", "value": 8}, {"form": "tensor", "packing": "plain"}))
        parts = {"data": Part("u32", rng.randbytes(8)), "scales": Part("f32", rng.randbytes(8))}
        if form["form"] == "tensor":
            parts["zeros"] = Part("u8", rng.randbytes(2))
        return "zt.quant_group/1", [8, 2], {
            "bits": 4, "group_size": 8, "axis": 0, "packing": {"word": "u32", "order": "lsb_first", "per_word": 8},
            "scale_form": "f32_factors", "zero_point": form}, parts
    return "quantized_group", [8, 2], {"bits": 4, "group_size": 8}, {
        "packed_weight": Part("u32", rng.randbytes(8)), "scales": Part("f32", rng.randbytes(8)), "zeros": Part("u8", rng.randbytes(2))}


def dense(rng, version):
    dtype, kind = element(rng, version)
    shape = [rng.choice((0, 1, 2, 3, 4, 7)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    attributes = {}
    if kind == "f4_e2m1" and version == "1.2":  # of 1.2: its bytes are the shape
        attributes = {"logical_shape": [shape[-1] * 2] if len(shape) == 1 else []}
        data = Part("u8", rng.randbytes(math.prod(shape)), kind)
        return "dense", shape, attributes if rng.random() < 0.5 else {}, {"data": data}
    return "dense", shape, {}, {"data": Part(dtype, content(rng, dtype, kind, math.prod(shape)), kind)}


def random_object(rng, version):
    """(layout, shape, attributes, parts)."""
    choice = rng.random()
    if choice < 0.5 or version == "0.1" and choice < 0.9:
        made = dense(rng, version)
    elif choice < 0.75 or version == "0.1":
        made = sparse(rng, version, rng.choice(("sparse_csr", "sparse_coo") if version != "0.1" else ("sparse_coo",)))
    elif choice < 0.9:
        made = quantized(rng, version)
    else:
        dtype, kind = element(rng, version)
        shape = [rng.randint(0, 3) for _ in range(rng.randint(0, 2))]
        made = rng.choice(("x", "x.y/1", "ztstream.x/1")), shape, {}, {
            role: Part(dtype, rng.randbytes(size_of(dtype, kind, rng.randint(0, 3))), kind)
            for role in rng.sample(("data", "values", "scales", "a"), rng.randint(1, 2))}
    for part in made[3].values():
        if rng.random() < 0.02:
            part.kind = rng.choice(STRANGE)
        if rng.random() < 0.01:
            part.dtype = rng.choice(tuple(WIDTHS))
        if rng.random() < 0.01:
            part.data += b"\0"
    for _ in range(rng.choice((0, 0, 0, 0, 1, 2))):
        rare = ("logical_shape", "rare", "", "x" * 1025)
        made[2][rng.choice(rare if rng.random() < 0.1 else ("k", "scale"))] = rng.choice(ATTRIBUTES)
    return made


class Writer:
    """Blobs at their places, and the fields that say so."""

    def __init__(self, rng, version):
        self.rng, self.version, self.placed = rng, version, []
        self.file = make_zt2.File() if version == "2.0" else None
        self.heap = self.file.heap if self.file else bytearray(make_zt.HEADER_01 if version == "0.1" else make_zt.HEADER_1)

    def place(self, stored):
        for offset, content in self.placed:
            if content == stored and self.rng.random() < 0.5:
                return offset
        if self.file:
            offset = self.file.blob(stored)[0]
        else:
            offset = make_zt.place(self.heap, stored)
        self.placed.append((offset, stored))
        return offset

    def encoded(self, data):
        """(stored bytes, fields)."""
        if self.rng.random() < 0.7:
            return data, {"encoding": "raw"} if self.rng.random() < 0.1 and self.version != "2.0" else {}
        if self.rng.random() < 0.04:
            return data, {"encoding": "x.y/1"} | ({} if self.version == "0.1" else {
                "decoded_length" if self.version == "2.0" else "uncompressed_length": len(data)})
        if self.version == "2.0":
            half = len(data) // 2 + 1
            frames = [data] if self.rng.random() < 0.5 else [data[:half], data[half:]]
            return make_zt2.seekable([frame for frame in frames if frame]), {
                "encoding": "zt.zstd-seekable/1", "decoded_length": len(data)}
        fields = {"encoding": "zstd"}
        if self.version == "1.2" or self.version == "1.1" and self.rng.random() < 0.5:
            fields["uncompressed_length"] = len(data)
        return make_zt.zstd(data), fields

    def digest(self, stored, data):
        if self.rng.random() < 0.5:
            return {}
        name = "checksum" if self.version == "0.1" else "digest"
        text = digest_of(self.rng.choice(("xxh3", "sha256")), data if self.version == "2.0" else stored)
        if self.version != "2.0" and self.rng.random() < 0.5:
            text = make_zt.digest("crc32c", stored)
        if self.rng.random() < 0.03:
            text = self.rng.choice((text[:-1] + ("1" if text[-1] == "0" else "0"), "foo:12", "foo-bar:12", text.upper()))
        return {name: text}

    def entry_01(self, name, made):
        layout, shape, attributes, parts = made
        if layout == "dense":
            data, dtype = parts["data"].data, parts["data"].dtype
            layout = {"layout": "dense"} if self.rng.random() < 0.8 else {}
        else:  # one blob: of each entry its indices, and then its value
            coords, values, dtype, rank = parts["coords"].data, parts["values"].data, parts["values"].dtype, len(shape)
            width, count = WIDTHS.get(dtype, 1), len(coords) // 8 // rank
            data = b"".join(b"".join(coords[8 * (d * count + at):][:8] for d in range(rank)) + values[at * width:][:width]
                            for at in range(count))
            layout = {"layout": "sparsecoo"}
        big = {}
        if self.rng.random() < 0.1:
            big = {"data_endianness": self.rng.choice(("big", "little"))}
        stored, fields = self.encoded(data)
        fields = {"encoding": "raw"} | fields
        fields.pop("uncompressed_length", None)
        extra = {"when": self.rng.choice(ATTRIBUTES)} if self.rng.random() < 0.1 else {}
        return {"name": name, "offset": self.place(stored), "size": len(stored), "dtype": LONG.get(dtype, dtype), "shape": shape,
                **fields, **layout, **big, **extra, **self.digest(stored, data)}

    def entry(self, name, made):
        if self.version == "0.1":
            return self.entry_01(name, made)
        layout, shape, attributes, parts = made
        two, listed = self.version == "2.0", {}
        for role, part in parts.items():
            stored, fields = self.encoded(part.data)
            offset = self.place(stored)
            where = {"blob": [offset, len(stored)]} if two else {"offset": offset, "length": len(stored)}
            kind = {"type": part.kind} if part.kind else {}
            dtype = part.dtype
            if self.version == "1.1" and part.kind:
                kind, dtype = {}, TYPED_11.get(part.kind, part.kind)
            listed[role] = {"dtype": dtype, **kind, **where, **fields, **self.digest(stored, part.data)}
        layout = {"sparse_csr": "zt.sparse_csr/1", "sparse_coo": "zt.sparse_coo/1"}.get(layout, layout) if two else layout
        return {"shape": shape, "layout" if two else "format": layout, "parts" if two else "components": listed,
                **({"attributes": attributes} if attributes or self.rng.random() < 0.05 else {})}


def make(rng, version, mutate):
    """The bytes of a random file; with `mutate`, of one in which a value or two, or a byte or two, are others."""
    writer = Writer(rng, version)
    entries = {name: writer.entry(name, random_object(rng, version)) for name in rng.sample("abcd", rng.choice((1, 1, 2, 3)))}
    attributes = {"k": rng.choice(ATTRIBUTES)} if rng.random() < 0.1 else None
    if version == "0.1":
        root = list(entries.values())
    else:
        root = {"objects": entries} | ({"attributes": attributes} if attributes else {})
        if version != "2.0":
            root["version"] = version + ".0"
    how = rng.random() if mutate else 1
    if how < 0.8:
        make_zt2.change(rng, root, ("format", "components", "offset", "length", "uncompressed_length", "size", "name", "checksum",
                                    "data_endianness"))
    if how < 0.9 and how > 0.7 and writer.placed:
        for _ in range(2):
            offset, stored = rng.choice(writer.placed)
            if stored:
                writer.heap[offset + rng.randrange(len(stored))] = rng.choice((0, 1, 2, 255))
    manifest = bytearray(encode_cbor(root) if writer.file else make_zt.cbor2.dumps(root))
    if 0.9 < how < 1 and manifest:
        manifest[rng.randrange(len(manifest))] = rng.randrange(256)
    if writer.file:
        return writer.file.finish(bytes(manifest))
    return make_zt.finish(writer.heap, manifest, make_zt.HEADER_1 if version != "0.1" else b"")
