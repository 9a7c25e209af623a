"""zTensor 2.0 files made by hand, good and bad: what a strict reader must take, and what it must refuse by which rule.

hostile() lists the bad ones, each of which breaks one rule; `rule` is spelled as in the conformance corpus.
"""
import copy
import struct

import zstandard
import zt2read
from zt2read import FOOTER, MAGIC, digest_of, encode_cbor

FLOOR = 4096


class File:
    """Blobs at multiples of 4096, then a manifest and a footer; each can be given instead of made."""

    def __init__(self):
        self.heap = bytearray(MAGIC)
        self.root = {"objects": {}}

    def blob(self, content):
        """Appends a blob; returns [offset, length]."""
        self.heap += bytes(-len(self.heap) % FLOOR)
        self.heap += content
        return [len(self.heap) - len(content), len(content)]

    def part(self, content, dtype="u8", digest="xxh3", **fields):
        part = {"dtype": dtype, "blob": self.blob(content)}
        if digest:
            part["digest"] = digest_of(digest, content)
        part.update(fields)
        return part

    def zstd(self, content, dtype="u8", frame=None, checksum=True, **fields):
        frames = [content[i:i + frame] for i in range(0, len(content), frame)] if frame else [content]
        part = {"dtype": dtype, "blob": self.blob(seekable(frames, checksum)), "encoding": "zt.zstd-seekable/1",
                "decoded_length": len(content), "digest": digest_of("xxh3", content)}
        part.update(fields)
        return part

    def add(self, name, shape, layout="dense", attributes=None, **parts):
        entry = {"shape": shape, "layout": layout, "parts": parts}
        if attributes is not None:
            entry["attributes"] = attributes
        self.root["objects"][name] = entry
        return entry

    def finish(self, manifest=None, **footer):
        """The file's bytes. `footer` takes offset, length, hash, version, magic in place of the right ones."""
        manifest = encode_cbor(self.root) if manifest is None else manifest
        offset, length = self.blob(manifest)
        values = {"offset": offset, "length": length, "hash": zt2read.xxhash.xxh3_64_intdigest(manifest), "version": 2,
                  "reserved": 0, "magic": MAGIC}
        values.update(footer)
        return bytes(self.heap) + FOOTER.pack(*(values[key] for key in
                                                ("offset", "length", "hash", "version", "reserved", "magic")))


def seekable(frames, checksum=True, table=True):
    """Contents as a stream of zt.zstd-seekable/1."""
    compressed = [zstandard.ZstdCompressor(level=1, write_checksum=checksum).compress(each) for each in frames]
    out = b"".join(compressed)
    if not table:
        return out
    entries = b"".join(struct.pack("<II", len(c), len(f)) for c, f in zip(compressed, frames))
    return out + struct.pack("<II", 0x184D2A5E, len(entries) + 9) + entries + struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)


def shard_file(*contents):
    """A data shard, and the blobs in it."""
    file = File()
    blobs = [file.blob(each) for each in contents]
    return bytes(file.heap) + FOOTER.pack(0, 0, 0, 2, 0, MAGIC), blobs


def u64s(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def dense(content=b"abcdefgh", shape=(8,), **fields):
    file = File()
    file.add("t", list(shape), data=file.part(content, **fields))
    return file


def csr(indptr=(0, 2, 3), indices=(0, 2, 1), shape=(2, 3), index="u64", values=12):
    file = File()
    width = zt2read.WIDTHS[index]
    pack = lambda numbers: b"".join(n.to_bytes(width, "little") for n in numbers)
    file.add("m", list(shape), "zt.sparse_csr/1", values=file.part(bytes(range(values)), "f32"),
             indices=file.part(pack(indices), index), indptr=file.part(pack(indptr), index))
    return file


def coo(coords=(0, 1, 2, 0), shape=(3, 4), values=8, index="u64"):
    file = File()
    width = zt2read.WIDTHS[index]
    file.add("m", list(shape), "zt.sparse_coo/1", values=file.part(bytes(range(values)), "f32"),
             coords=file.part(b"".join(n.to_bytes(width, "little") for n in coords), index))
    return file


def mx(shape=(2, 64), scales=4, scales_type="f8_e8m0", data=64, data_type="f4_e2m1", attributes=None):
    file = File()
    entry = file.add("m", list(shape), "zt.mx/1", {"block_size": 32, "scale_form": "e8m0_exponent"},
                     data=file.part(bytes(range(data)), type=data_type),
                     scales=file.part(bytes([127] * scales), type=scales_type))
    entry["attributes"].update(attributes or {})
    return file


def quant(change=None, packing=None, zero=None, zeros=None, dtype="u32", data=64, scales=8, scales_dtype="f16"):
    """16 x 8 codes of 4 bits, groups of 8 along axis 0."""
    file = File()
    parts = {"data": file.part(bytes(range(data)), dtype), "scales": file.part(bytes(range(scales * 2 * 2)), scales_dtype)}
    if zeros is not None:
        parts["zeros"] = file.part(bytes(range(zeros)), "u32")
    entry = file.add("q", [16, 8], "zt.quant_group/1", {
        "bits": 4, "group_size": 8, "axis": 0, "scale_form": "f16_factors",
        "packing": {"word": "u32", "order": "lsb_first", "per_word": 8, **(packing or {})},
        "zero_point": zero or {"form": "none"}}, **parts)
    for key, value in (change or {}).items():
        entry["attributes"][key] = value
    return file


def gguf(elems=32, block=34, data=68, dtype="u8", shape=(2, 32), layout="gguf.q8_0/1"):
    file = File()
    file.add("g", list(shape), layout, {"elems_per_block": elems, "block_bytes": block},
             data=file.part(bytes(range(data)), dtype))
    return file


def nested(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


def with_attribute(encoded):
    """A manifest whose attribute `a` is the given bytes of CBOR."""
    return b"\xa2\x67objects\xa0\x6aattributes\xa1\x61a" + encoded


def hostile():
    """Yields (name, rule, bytes): files that break one rule each. Rules below `verify` show in the data alone."""
    def made(name, rule, file, **footer):
        return name, rule, file.finish(**footer)

    def manifest(name, rule, encoded):
        file = File()
        file.blob(b"abcdefgh")
        return name, rule, file.finish(encoded)

    def changed(name, rule, change):
        """A dense tensor whose manifest `change` gets: (root, object, part)."""
        file = dense()
        entry = file.root["objects"]["t"]
        change(file.root, entry, entry["parts"]["data"])
        return name, rule, file.finish()

    def put(holder, key, value):
        holder[key] = value

    good = dense().finish()
    size = len(good)
    # §2: the container
    yield "short", "FileTooSmall", good[:8] + good[-39:]
    yield "header-magic", "HeaderMagic", b"\x89ZT2\n\n\x1a\n" + good[8:]
    yield "appended", "FooterMagic", good + b"\0"
    yield "cut", "FooterMagic", good[:-1]
    yield made("version-1", "Version", dense(), version=1)
    yield made("version-3", "Version", dense(), version=3)
    yield made("manifest-misaligned", "BlobAlignment", dense(), offset=2 * FLOOR - 8)
    yield made("manifest-at-0", "BlobAlignment", dense(), offset=0)
    yield made("manifest-past-the-end", "ManifestBounds", dense(), length=size - 40 - 2 * FLOOR + 1)
    yield made("manifest-overflow", "ManifestBounds", dense(), offset=(1 << 64) - FLOOR)
    yield made("manifest-2-gib", "ManifestTooLarge", dense(), length=1 << 31)
    yield made("manifest-hash", "ManifestHash", dense(), hash=1)
    yield made("no-length-but-offset", "ManifestBounds", dense(), length=0, hash=0)
    yield made("no-length-but-hash", "ManifestBounds", dense(), length=0, offset=0)
    # §3.1: deterministic CBOR
    yield manifest("tag-around-the-root", "CborSyntax", b"\xd9\xd9\xf7\xa1\x67objects\xa0")
    yield manifest("tag-in-an-attribute", "CborSyntax", with_attribute(b"\xc1\x00"))
    yield manifest("tag-in-an-unknown-field", "CborSyntax", b"\xa2\x61z\xc1\x00\x67objects\xa0")
    yield manifest("indefinite-map", "CborSyntax", b"\xbf\x67objects\xa0\xff")
    yield manifest("indefinite-array", "CborSyntax", with_attribute(b"\x9f\x01\xff"))
    yield manifest("indefinite-text", "CborSyntax", with_attribute(b"\x7f\x61a\xff"))
    yield manifest("indefinite-bytes", "CborSyntax", with_attribute(b"\x5f\x41a\xff"))
    yield manifest("reserved-head", "CborSyntax", with_attribute(b"\x1c"))
    yield manifest("undefined", "CborSyntax", with_attribute(b"\xf7"))
    yield manifest("simple-value", "CborSyntax", with_attribute(b"\xe0"))
    yield manifest("break", "CborSyntax", with_attribute(b"\xff"))
    yield manifest("text-not-utf-8", "CborSyntax", with_attribute(b"\x61\xff"))
    yield manifest("ends-early", "CborSyntax", with_attribute(b"\x44ab"))
    yield manifest("array-beyond-the-input", "CborSyntax", with_attribute(b"\x9b" + b"\x7f" * 8))
    yield manifest("trailing", "CborSyntax", b"\xa1\x67objects\xa0\x00")
    yield manifest("long-integer", "CborDeterminism", with_attribute(b"\x18\x17"))
    yield manifest("long-negative", "CborDeterminism", with_attribute(b"\x39\x00\x20"))
    yield manifest("long-text-head", "CborDeterminism", with_attribute(b"\x78\x01a"))
    yield manifest("long-bytes-head", "CborDeterminism", with_attribute(b"\x59\x00\x01a"))
    yield manifest("long-array-head", "CborDeterminism", with_attribute(b"\x98\x01\x01"))
    yield manifest("long-map-head", "CborDeterminism", with_attribute(b"\xb8\x01\x61b\x01"))
    yield manifest("wide-float", "CborDeterminism", with_attribute(b"\xfa\x3f\x00\x00\x00"))
    yield manifest("wide-double", "CborDeterminism", with_attribute(b"\xfb\x3f\xf8" + bytes(6)))
    yield manifest("wide-infinity", "CborDeterminism", with_attribute(b"\xfa\x7f\x80\x00\x00"))
    yield manifest("nan-with-payload", "CborDeterminism", with_attribute(b"\xf9\x7e\x01"))
    yield manifest("wide-nan", "CborDeterminism", with_attribute(b"\xfa\x7f\xc0\x00\x00"))
    yield manifest("unsorted-root", "CborDeterminism", b"\xa2\x6aattributes\xa0\x67objects\xa0")
    yield manifest("unsorted-in-an-attribute", "CborDeterminism", with_attribute(b"\xa2\x61c\x01\x61b\x01"))
    yield manifest("unsorted-by-length", "CborDeterminism", with_attribute(b"\xa2\x62aa\x01\x61b\x01"))
    yield manifest("object-twice", "CborDuplicateKey", b"\xa1\x67objects\xa2\x61t\xa0\x61t\xa0")
    yield manifest("attribute-twice", "CborDuplicateKey", with_attribute(b"\xa2\x61b\x01\x61b\x02"))
    yield manifest("nan-key-twice", "CborDuplicateKey", with_attribute(b"\xa2\xf9\x7e\x00\x01\xf9\x7e\x00\x02"))
    yield manifest("33-levels", "CborDepth", with_attribute(encode_cbor(nested(31))))
    # §3.2 to §3.5: the schema
    yield manifest("root-no-map", "Schema", b"\x81\x00")
    yield manifest("no-objects", "Schema", b"\xa0")
    yield manifest("objects-no-map", "Schema", b"\xa1\x67objects\x80")
    yield manifest("object-no-map", "Schema", b"\xa1\x67objects\xa1\x61t\x80")
    yield manifest("object-name-no-text", "Schema", b"\xa1\x67objects\xa1\x01\xa0")
    for key in ("shape", "layout", "parts"):
        yield changed(f"no-{key}", "Schema", lambda r, o, p, key=key: o.pop(key))
    for key in ("dtype", "blob"):
        yield changed(f"no-{key}", "Schema", lambda r, o, p, key=key: p.pop(key))
    for holder, key, value in (
            (1, "shape", 8), (1, "shape", [-8]), (1, "shape", [8.0]), (1, "shape", [True]), (1, "shape", None),
            (1, "layout", 1), (1, "layout", None), (1, "parts", []), (1, "parts", {}), (1, "parts", {"data": 1}),
            (1, "attributes", None), (1, "attributes", []), (0, "attributes", 1), (0, "shards", []),
            (2, "dtype", 1), (2, "dtype", "bool"), (2, "dtype", "float32"), (2, "dtype", "f8_e4m3fn"), (2, "type", 1),
            (2, "type", None), (2, "type", "complex64"), (2, "blob", 1), (2, "blob", [FLOOR]), (2, "blob", [FLOOR, 8, 0]),
            (2, "blob", [FLOOR, -8]), (2, "blob", {"offset": FLOOR}), (2, "encoding", 1), (2, "decoded_length", 8),
            (2, "encoding", "x.y/1"), (2, "shard", 1), (2, "digest", 1), (2, "digest", "0123456789abcdef"),
            (2, "digest", "xxh3:"), (2, "digest", "xxh3:0x23456789abcdef"), (2, "digest", "xxh3:ABCDEF0123456789"),
            (2, "digest", "xxh3:123"), (2, "digest", "sha256:00"), (2, "digest", "XXH3:0123456789abcdef")):
        yield changed(f"{('root', 'object', 'part')[holder]}-{key}-{str(value)[:24]}", "Schema",
                      lambda *all, h=holder, k=key, v=value: put(all[h], k, v))
    for name, text in (("empty", ""), ("zero", "a\0b"), ("long", "x" * 1025), ("long-utf-8", "\u00e9" * 513)):
        yield changed(f"object-name-{name}", "Name", lambda r, o, p, t=text: put(r, "objects", {t: o}))
        yield changed(f"part-name-{name}", "Name", lambda r, o, p, t=text: put(o, "parts", {t: p}))
        yield changed(f"attribute-{name}", "Name", lambda r, o, p, t=text: put(r, "attributes", {t: 1}))
        yield changed(f"object-attribute-{name}", "Name", lambda r, o, p, t=text: put(o, "attributes", {t: 1}))
    yield changed("rank-65", "Shape", lambda r, o, p: put(o, "shape", [1] * 64 + [8]))
    yield changed("shape-overflow", "Shape", lambda r, o, p: put(o, "shape", [1 << 32, 1 << 32]))
    # §7.1: the shard table
    entry = {"size": 1 << 20, "digest": "xxh3:0123456789abcdef"}
    for name, text in (("traversal", ".."), ("separator", "a/b"), ("empty", ""), ("dot", ".a"), ("long", "a" * 65),
                       ("space", "a b"), ("non-ascii", "\u00e9"), ("zero", "a\0")):
        yield changed(f"shard-name-{name}", "ShardName", lambda r, o, p, t=text: put(r, "shards", {t: entry}))
    for name, broken in (("no-size", {"digest": entry["digest"]}), ("no-digest", {"size": 1}), ("no-map", 1),
                         ("digest", {"size": 1, "digest": "xxh3:XY"}), ("negative", {"size": -1, "digest": entry["digest"]})):
        yield changed(f"shard-{name}", "Schema", lambda r, o, p, b=broken: put(r, "shards", {"s": b}))
    yield changed("shard-undeclared", "ShardRef", lambda r, o, p: (put(p, "shard", "x"), put(r, "shards", {"s": entry})))
    yield changed("shard-without-a-table", "ShardRef", lambda r, o, p: put(p, "shard", "s"))
    yield changed("shard-bounds", "BlobBounds", lambda r, o, p: (
        put(p, "shard", "s"), put(p, "blob", [(1 << 20) - FLOOR, FLOOR - 39]), put(o, "shape", [FLOOR - 39]),
        put(r, "shards", {"s": entry})))
    yield changed("shard-smaller-than-a-footer", "BlobBounds", lambda r, o, p: (
        put(p, "shard", "s"), put(p, "blob", [FLOOR, 8]), put(r, "shards", {"s": {**entry, "size": 8}})))
    # §2.4: blobs
    yield changed("blob-at-8", "BlobAlignment", lambda r, o, p: put(p, "blob", [8, 8]))
    yield changed("blob-at-0", "BlobAlignment", lambda r, o, p: put(p, "blob", [0, 8]))
    yield changed("empty-blob-misaligned", "BlobAlignment", lambda r, o, p: (put(p, "blob", [4097, 0]), put(o, "shape", [0])))
    yield changed("blob-beyond", "BlobBounds", lambda r, o, p: put(p, "blob", [1 << 40, 8]))
    yield changed("blob-in-the-footer", "BlobBounds",
                  lambda r, o, p: (put(p, "blob", [2 * FLOOR, 999]), put(o, "shape", [999])))
    yield changed("blob-overflow", "BlobBounds", lambda r, o, p: put(p, "blob", [(1 << 64) - FLOOR, (1 << 64) - 1]))
    yield changed("blob-over-the-manifest", "BlobOverlap", lambda r, o, p: put(p, "blob", [2 * FLOOR, 8]))
    file = dense(bytes(3 * FLOOR), (3 * FLOOR,))
    file.add("u", [8], data={"dtype": "u8", "blob": [2 * FLOOR, 8]})
    yield made("overlap", "BlobOverlap", file)
    file = dense()
    for name, blob in (("a", [FLOOR, 9000]), ("b", [FLOOR, 100])):
        file.add(name, [blob[1]], data={"dtype": "u8", "blob": blob, "shard": "s"})
    file.root["shards"] = {"s": entry}
    yield made("overlap-in-a-shard", "BlobOverlap", file)
    # §5.1: dense
    yield made("dense-too-short", "DenseSize", dense(b"1234567"))
    yield made("dense-too-long", "DenseSize", dense(b"123456789"))
    yield made("dense-scalar", "DenseSize", dense(b"12345678", (), dtype="f32"))
    yield made("dense-complex", "DenseSize", dense(bytes(8), (2,), dtype="f32", type="complex64"))
    yield made("dense-f4", "DenseSize", dense(bytes(2), (5,), type="f4_e2m1"))
    yield changed("dense-other-part", "LayoutRule", lambda r, o, p: put(o, "parts", {"values": p}))
    yield changed("dense-two-parts", "LayoutRule", lambda r, o, p: put(o, "parts", {"data": p, "more": p}))
    # §5.2: the profiles
    yield made("csr-rank-1", "LayoutRule", csr(shape=(2,)))
    yield made("csr-u16", "LayoutRule", csr(index="u16"))
    yield made("csr-i64", "LayoutRule", csr(index="i64"))
    yield made("csr-rows", "LayoutRule", csr(indptr=(0, 3)))
    yield made("csr-values", "LayoutRule", csr(values=8))
    file = csr()
    file.root["objects"]["m"]["parts"]["indices"]["type"] = "x.y/1"
    yield made("csr-typed-indices", "LayoutRule", file)
    file = csr()
    file.root["objects"]["m"]["parts"].pop("indptr")
    yield made("csr-no-indptr", "LayoutRule", file)
    yield made("coo-scalar", "LayoutRule", coo(shape=()))
    yield made("coo-u16", "LayoutRule", coo(index="u16"))
    yield made("coo-half", "LayoutRule", coo(coords=(0, 1, 2)))
    yield made("coo-values", "LayoutRule", coo(values=12))
    yield made("mx-scales-type", "LayoutRule", mx(scales_type="f8_e4m3fn"))
    yield made("mx-scales-size", "LayoutRule", mx(scales=5))
    yield made("mx-data-size", "LayoutRule", mx(data=63))
    yield made("mx-data-type", "LayoutRule", mx(data_type="bool"))
    yield made("mx-block-1", "LayoutRule", mx(attributes={"block_size": 1}))
    yield made("mx-block-48", "LayoutRule", mx(attributes={"block_size": 48}))
    yield made("mx-block-text", "LayoutRule", mx(attributes={"block_size": "32"}))
    yield made("mx-axis", "LayoutRule", mx(attributes={"axis": 2}))
    yield made("mx-scale-form", "LayoutRule", mx(attributes={"scale_form": "f32_factors"}))
    yield made("quant-bits-7", "LayoutRule", quant({"bits": 7}))
    yield made("quant-bits-3", "LayoutRule", quant({"bits": 3}, {"per_word": 10}))
    yield made("quant-per-word", "LayoutRule", quant(packing={"per_word": 4}))
    yield made("quant-order", "LayoutRule", quant(packing={"order": "awq"}))
    yield made("quant-word", "LayoutRule", quant(packing={"word": "u16"}))
    yield made("quant-float-words", "LayoutRule", quant(dtype="f32"))
    yield made("quant-group", "LayoutRule", quant({"group_size": 5}))
    yield made("quant-axis", "LayoutRule", quant({"axis": 2}))
    yield made("quant-scale-form", "LayoutRule", quant({"scale_form": "log2"}))
    yield made("quant-scales-dtype", "LayoutRule", quant(scales_dtype="i16"))
    yield made("quant-data-size", "LayoutRule", quant(data=60))
    yield made("quant-scales-size", "LayoutRule", quant(scales=7))
    yield made("quant-zero-form", "LayoutRule", quant(zero={"form": "maybe"}))
    yield made("quant-no-zeros", "LayoutRule", quant(zero={"form": "tensor", "packing": "plain"}))
    yield made("quant-zeros", "LayoutRule", quant(zeros=8))
    yield made("quant-zeros-size", "LayoutRule", quant(zero={"form": "tensor", "packing": "same_as_data"}, zeros=12))
    yield made("quant-zeros-packing", "LayoutRule", quant(zero={"form": "tensor", "packing": "dense"}, zeros=8))
    yield made("quant-implied", "LayoutRule", quant(zero={"form": "implied"}))
    yield made("quant-no-bits", "LayoutRule", quant({"bits": None}))
    yield made("gguf-elems-0", "LayoutRule", gguf(elems=0))
    yield made("gguf-block-0", "LayoutRule", gguf(block=0, data=0))
    yield made("gguf-blocks", "LayoutRule", gguf(shape=(2, 33)))
    yield made("gguf-size", "LayoutRule", gguf(data=67))
    yield made("gguf-dtype", "LayoutRule", gguf(dtype="i8"))
    # what only the data shows
    yield made("bool-2", "LayoutData", dense(b"\0\1\2\1", (4,), type="bool"))
    yield made("f4-odd-nibble", "LayoutData", dense(b"\x11\x11\x11", (5,), type="f4_e2m1"))
    yield made("csr-first-pointer", "LayoutData", csr(indptr=(1, 2, 3)))
    yield made("csr-falling", "LayoutData", csr(indptr=(0, 4, 3)))
    yield made("csr-last-pointer", "LayoutData", csr(indptr=(0, 2, 2)))
    yield made("csr-column", "LayoutData", csr(indices=(0, 3, 1)))
    yield made("csr-row-falls", "LayoutData", csr(indices=(2, 0, 1)))
    yield made("csr-column-twice", "LayoutData", csr(indices=(1, 1, 1)))
    yield made("csr-u32-row-falls", "LayoutData", csr(indices=(2, 0, 1), index="u32"))
    yield made("coo-range", "LayoutData", coo(coords=(0, 3, 2, 0)))
    yield made("coo-cell-twice", "LayoutData", coo(coords=(1, 1, 2, 2)))
    yield made("coo-cell-twice-apart", "LayoutData", coo(coords=(1, 0, 1, 2, 0, 2), values=12))
    yield made("digest", "Digest", changed_digest(dense()))
    file = File()
    file.add("t", [3000], data=file.zstd(bytes(3000), frame=1024))
    yield made("digest-of-zstd", "Digest", changed_digest(file))
    content = bytes(range(256)) * 16
    for name, stream in (("no-seek-table", seekable([content], table=False)),
                         ("no-checksum", seekable([content], checksum=False)),
                         ("unequal-frames", seekable([content[:1000], content[1000:3000], content[3000:]])),
                         ("garbage", b"x" * 100),
                         ("short", seekable([content[:-1]])),
                         ("long", seekable([content, b"x"]))):
        file = File()
        part = {"dtype": "u8", "blob": file.blob(stream), "encoding": "zt.zstd-seekable/1", "decoded_length": len(content),
                "digest": digest_of("xxh3", content)}
        file.add("t", [len(content)], data=part)
        yield made(f"zstd-{name}", "Encoding", file)
    file = File()
    part = file.zstd(content, frame=1024)
    file.add("t", [len(content)], data=part)
    file.heap[part["blob"][0] + 20] ^= 1
    yield made("zstd-damaged", "Encoding", file)

# What change() puts where something else was.
VALUES = (0, 1, 2, 3, 4, 8, 31, 32, FLOOR - 1, FLOOR, 2 * FLOOR, 1 << 32, 1 << 63, (1 << 64) - 1, -1, None, True, 0.5, "", "dense",
          "u8", "f32", "i8", "u64", "f4_e2m1", "bool", "f8_e8m0", "zt.sparse_csr/1", "zt.sparse_coo/1", "zt.mx/1", "gguf.q8_0/1",
          "ztstream.planes/1", "ztstream.x/1", "ztstream.sparse_coo/1", "ztstream.dense/1", "ztstream.i64/1", "ztstream.f8_e5m2/1",
          "x.y/1", "zt.zstd-seekable/1", "xxh3:0123456789abcdef", "crc32c:123456789a", b"x", [], {},
          [FLOOR, 8], [1], [2, 3], {"a": 1})
KEYS = ("shape", "layout", "parts", "data", "scales", "zeros", "type", "dtype", "blob", "encoding", "decoded_length", "digest",
        "attributes", "shard", "shards", "objects", "values", "indices", "indptr", "coords", "bits", "axis", "size")


def holders(value, found):
    if isinstance(value, (dict, list)):
        found.append(value)
        for each in value.values() if isinstance(value, dict) else value:
            holders(each, found)
    return found


def change(random, root, more=()):
    """Replaces, adds or removes one or two values."""
    for _ in range(random.randint(1, 2)):
        holder, value = random.choice(holders(root, [])), copy.deepcopy(random.choice(VALUES))
        if isinstance(holder, dict):
            key = random.choice([*holder, *KEYS, *more])
            if key in holder and random.random() < 0.2:
                del holder[key]
            else:
                holder[key] = value
        elif holder and random.random() < 0.7:
            holder[random.randrange(len(holder))] = value
        else:
            holder.append(value)


def changed_digest(file):
    for entry in file.root["objects"].values():
        for part in entry["parts"].values():
            part["digest"] = part["digest"][:-1] + ("1" if part["digest"][-1] == "0" else "0")
    return file
