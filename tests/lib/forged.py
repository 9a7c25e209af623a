"""Small .zt files that were forged against one reader or another: what each is, its version and its verdict.

rows() yields them as agreement.py takes them; a verdict of None leaves it open, but for all commands it is one. Most were found by
trying a release from outside; the others are variations of them.
"""
import hashlib
import struct

import zstandard

import make_zt
import make_zt2
from agreement import BAD, DAMAGED, GOOD, MALFORMED, OPAQUE, REFUSED
from make_zt2 import File, csr, u64s
from zt2read import encode_cbor

ZSTD = "zt.zstd-seekable/1"


def u32s(*values):
    return struct.pack(f"<{len(values)}I", *values)


def entry_01(data, dtype="uint8", shape=None, **fields):
    return {"name": "a", "dtype": dtype, "shape": [len(data)] if shape is None else shape, "data": data, **fields}


def files_0_1():
    two = [entry_01(bytes(12), "int32", [3]), entry_01(bytes(12), "int32", [3]) | {"name": "b"}]
    plain = bytearray(make_zt.encode_01(two))
    plain[8:64] = b"\xaa" * 56
    yield "padding of any value", GOOD, bytes(plain)
    yield "a bool of 2", GOOD, make_zt.encode_01([entry_01(b"\0\1\2", "bool")])
    for name, value in (("tag", make_zt.cbor2.CBORTag(1, 1363896240)), ("integer key", {1: 2}), ("nested empty key", {"": 1})):
        yield f"custom field with a {name}", GOOD, make_zt.encode_01([entry_01(b"\0\1\2", extra=value)])
    yield "unknown encoding", REFUSED, make_zt.encode_01([entry_01(b"\0\1\2", encoding="lz4")]), "encoding 'lz4' is neither 'raw' nor 'zstd'"
    yield "unknown dtype", REFUSED, make_zt.encode_01([entry_01(b"\0\1\2", "float4")]), "dtype 'float4' is not a dtype of version 0.1.0"
    yield "unknown layout", None, make_zt.encode_01([entry_01(b"\0\1\2", layout="tiled")])
    yield ("a part of an element in an unknown layout", DAMAGED, make_zt.encode_01([entry_01(b"\0\1\2", "int16", layout="tiled")]),
           "has 3 bytes, not a whole number of i16 elements")
    yield "a bool of 2 in an unknown layout", None, make_zt.encode_01([entry_01(b"\0\1\2", "bool", layout="tiled")])
    big, no = {"data_endianness": "big"}, "it is sparse with data_endianness 'big'"
    for name, kind, data, fields, says in (
            ("", GOOD, struct.pack("<QQfQQf", 0, 1, 1.0, 1, 0, 2.0), {}, ""),
            ("index beyond", DAMAGED, struct.pack("<QQf", 9, 9, 1.0), {}, "index 0 is 9, beyond the dimension of 2"),
            ("second index beyond", DAMAGED, struct.pack("<QQf", 0, 2, 1.0), {}, "index 1 is 2, beyond the dimension of 2"),
            ("no whole entries", DAMAGED, struct.pack("<QQf", 0, 1, 1.0) + bytes(3), {},
             "the blob of 23 bytes is not a whole number of entries of 20 bytes"),
            ("cell twice", GOOD, struct.pack("<QQfQQf", 0, 1, 1.0, 0, 1, 2.0), {}, ""),
            ("big-endian", OPAQUE, struct.pack(">QQf", 0, 1, 1.5), big, no),
            ("big-endian with indices that are not", OPAQUE, struct.pack("<QQf", 0, 1, 1.5), big, no),
            ("big-endian index beyond", OPAQUE, struct.pack(">QQf", 0, 2, 1.5), big, no),
            ("empty", GOOD, b"", {}, "")):
        yield f"sparsecoo {name}", kind, make_zt.encode_01([entry_01(data, "float32", [2, 2], layout="sparsecoo", **fields)]), says
    yield "sparsecoo of a bool of 2", GOOD, make_zt.encode_01([entry_01(struct.pack("<QQB", 1, 0, 2), "bool", [2, 2], layout="sparsecoo")])
    both = [{"name": name, "dtype": "float32", "shape": shape, "layout": "sparsecoo", "data": struct.pack("<QQf", 1, 2, 1.5)}
            for name, shape in (("a", [2, 3]), ("b", [2, 2]))]  # one look at one blob, a verdict for each
    yield "sparsecoo of two shapes", DAMAGED, make_zt.encode_01([both[0], both[1] | {"data": b"", "offset": 64, "size": 20}]), "tensor 'b'"
    rows = u64s(0, 1, 2) + u64s(0, 1) + bytes(8)
    for name, kind, data, says in (
            ("", GOOD, rows, ""), ("pointers fall", DAMAGED, rows[:8] + u64s(3) + rows[16:], "row pointer 2 is 2, less than"),
            ("last pointer", DAMAGED, rows[:16] + u64s(1) + rows[24:], "the last row pointer is 1, there are 2 indices"),
            ("no whole entries", DAMAGED, rows + b"abc", "has 27 bytes, not a whole number of indices and values of 4 bytes")):
        yield f"sparsecsr {name}", kind, make_zt.encode_01([entry_01(data, "float32", [2, 2], layout="sparsecsr")]), says
    yield ("sparse", OPAQUE, make_zt.encode_01([entry_01(bytes(8), "float32", [2, 2], layout="sparse")]),
           "does not say where its indices lie")
    mixed = struct.pack("<Q", 1) + struct.pack(">f", 1.5)
    yield "sparsecoo of both byte orders", None, make_zt.encode_01([
        entry_01(mixed, "float32", [1 << 25], layout="sparsecoo", data_endianness="big")])
    yield "big-endian", GOOD, make_zt.encode_01([entry_01(bytes(range(8)), "float32", [2], data_endianness="big")])
    yield "name twice", BAD, make_zt.encode_01([entry_01(b"a"), entry_01(b"b")])


def one(entry, version="1.2.0", attributes=None):
    return make_zt.encode_1({"a": entry}, version, attributes)


def data_1(content, dtype="u8", shape=None, attributes=None, form="dense", **fields):
    entry = {"shape": [len(content)] if shape is None else shape, "format": form,
             "components": {"data": {"dtype": dtype, "data": content, **fields}}}
    return entry if attributes is None else entry | {"attributes": attributes}


def sparse_1(form, shape, values, dtype="f32", index="u64", **indices):
    pack = u64s if index == "u64" else u32s
    return {"shape": shape, "format": form, "components": {
        "values": {"dtype": dtype, "data": values}, **{
            role: {"dtype": index, "data": pack(*numbers)} for role, numbers in indices.items()}}}


def files_1():
    """(name, version, verdict, bytes) of 1.1 and 1.2."""
    for shape in ([], [8], [3]):
        yield f"logical_shape {shape} of f4", "1.2", None if shape else GOOD, one(
            data_1(b"\xff" * 4, type="f4_e2m1", attributes={"logical_shape": shape}))
    for number, digest in enumerate(("xxh3:12", "sha256:12", "XXH3:0123456789abcdef", "crc32c:0x00000000", "foo-bar:12", "foo:xyz")):
        yield f"digest {digest}", "1.2", None, one(data_1(bytes(8), digest=digest))
    yield "zero byte in names", "1.2", None, make_zt.encode_1({"a\0b": data_1(bytes(4)), "a": data_1(bytes(4), type="x\0y")})
    nothing = make_zt.zstd(b"")
    yield "stream of nothing", "1.2", BAD, one(data_1(nothing, shape=[8], encoding="zstd", uncompressed_length=8,
                                                      digest="sha256:" + hashlib.sha256(nothing).hexdigest()))
    yield "2^64 - 1 bytes in eight", "1.2", BAD, one(data_1(make_zt.zstd(bytes(8)), shape=[8], encoding="zstd",
                                                            uncompressed_length=(1 << 64) - 1))
    yield "unknown encoding", "1.2", None, one(data_1(bytes(8), encoding="lz4"))
    yield "unknown dtype", "1.2", None, one(data_1(bytes(8), "f8"))
    yield "unknown type", "1.2", GOOD, one(data_1(bytes(8), type="foo"))
    yield "a bool of 2", "1.2", DAMAGED, one(data_1(b"\0\1\2", "bool")), "element 2 of bool is 2, neither 0 nor 1"
    yield "nested empty key", "1.2", GOOD, one(data_1(b"a", attributes={"m": {"": 1}}))
    yield "empty attributes", "1.2", GOOD, one(data_1(b"a", attributes={}), attributes={})
    yield "type that is the dtype", "1.2", GOOD, one(data_1(bytes(8), "f32", [2], type="f32"))
    yield "f6 on i8", "1.2", None, one(data_1(bytes(3), "i8", [4], type="f6_e2m3"))
    for index in ("u32", "u64"):
        yield f"csr of {index}", "1.1", GOOD, one(sparse_1(
            "sparse_csr", [2, 3], bytes(12), index=index, indices=(0, 2, 1), indptr=(0, 2, 3)), "1.1.0")
    yield "csr of u32", "1.2", BAD, one(sparse_1("sparse_csr", [2, 3], bytes(12), index="u32", indices=(0, 2, 1), indptr=(0, 2, 3)))
    for version in ("1.1", "1.2"):
        def coo(*coords, version=version):
            return one(sparse_1("sparse_coo", [2, 2], bytes(2 * len(coords)), coords=coords), version + ".0")

        yield "coo cell twice", version, GOOD, coo(0, 0, 1, 1)
        yield "coo index beyond", version, BAD, coo(0, 2, 1, 1)
        yield "csr columns fall", version, GOOD, one(sparse_1(
            "sparse_csr", [2, 3], bytes(12), indices=(2, 0, 1), indptr=(0, 2, 3)), version + ".0")
        yield "csr last pointer", version, BAD, one(sparse_1(
            "sparse_csr", [2, 3], bytes(12), indices=(0, 1, 2), indptr=(0, 2, 2)), version + ".0")
    yield "shape that overflows before its 0", "1.2", None, one(data_1(b"", shape=[1 << 63, 4, 0]))
    yield "format ztstream.planes/1 of nothing", "1.2", BAD, one(data_1(bytes(8), form="ztstream.planes/1"))


def sparse_2(layout, shape, indices, values=bytes(8), **fields):
    file = File()
    file.add("a", shape, layout, values=file.part(values, **({"dtype": "f32"} | fields)),
             **{role: file.part(u32s(*numbers), "u32") for role, numbers in indices.items()})
    return file.finish()


def only(content=bytes(8), shape=(8,), layout="dense", attributes=None, **fields):
    file = File()
    file.add("a", list(shape), layout, attributes, data=file.part(content, **fields))
    return file.finish()


def itself():
    """A tensor whose bytes are the manifest that declares it."""
    length = 0
    while True:
        manifest = encode_cbor({"objects": {"a": {"shape": [length], "layout": "dense", "parts": {
            "data": {"dtype": "u8", "blob": [4096, length]}}}}})
        if len(manifest) == length:
            return File().finish(manifest)
        length = len(manifest)


def encoded(stream, decoded, shape, layout="dense", encoding=ZSTD, raw=False):
    file = File()
    blob = file.blob(stream)
    file.add("b", shape, layout, data={"dtype": "u8", "blob": blob, "encoding": encoding, "decoded_length": decoded})
    if raw:
        file.add("a", [len(stream)], data={"dtype": "u8", "blob": blob})
    return file.finish()


def files_2_0():
    file = File()  # the values come first, and are looked at before the coordinates
    values = file.zstd(bytes(8), "f32")
    file.add("s", [2, 0], "zt.sparse_coo/1", values=values, coords=file.part(struct.pack("<4Q", 0, 0, 0, 0), "u64"))
    yield "coo of no cell, one twice", BAD, file.finish()
    for kind in ("ztstream.foo/1", "ztstream.foo/2", "ztstream.foo", "ztstream.", "x.y/1", "x.y/2"):
        yield f"type {kind} beyond its bytes", None, only(shape=(1000,), dtype="f32", type=kind)
        yield f"type {kind}", None, only(shape=(2,), dtype="f32", type=kind)
    yield "type of ours", GOOD, only(shape=(1000,), dtype="f32", type="ztstream.foo/1")
    for kind in ("ztstream.foo/2", "ztstream.", "ztstream./1", "ztstream.f8_e5m2/1", "ztstream.u8/1"):
        yield f"type {kind} of u8", OPAQUE, only(type=kind), f"type '{kind}' is not known"
    for layout in ("ztstream./1", "ztstream.foo/2"):
        yield f"layout {layout} of u8", OPAQUE, only(bytes(7), (8,), layout), f"layout '{layout}' is not known"
    for layout in ("ztstream./1", "ztstream.foo/1", "ztstream.foo/2", "ztstream.ztstream.foo/1/1", "x.y/1"):
        yield f"layout {layout}", None, only(bytes(7), (1000,), layout, dtype="f32")
    for kind in ("bool", "f4_e2m1"):
        yield f"{kind} in an unknown layout", None, only(b"\xf2", (1,), "x.y/1", type=kind)
    yield "type of no name", OPAQUE, only(dtype="u8", type="")
    yield "type of no name beside one that is known", OPAQUE, sparse_2("zt.sparse_coo/1", [4], {"coords": (0, 1)}, type="")
    yield "a bool of 2", DAMAGED, only(b"\0\1\2", (3,), type="bool"), "element 2 of bool is 2, neither 0 nor 1"
    yield ("f4 of odd count, high nibble", DAMAGED, only(b"\x11\xf1", (3,), type="f4_e2m1"),
           "the last byte of an odd number of f4_e2m1 is 241, its high half is not 0")
    yield "f4 of odd count", GOOD, only(b"\x11\x01", (3,), type="f4_e2m1")
    for name, kind, nibbles in (("high nibble", BAD, b"\xf1"), ("", GOOD, b"\x01")):
        yield f"coo of one f4, {name}", kind, sparse_2("zt.sparse_coo/1", [4], {"coords": (0,)}, nibbles, dtype="u8", type="f4_e2m1")
        yield f"csr of one f4, {name}", kind, sparse_2("zt.sparse_csr/1", [1, 4], {"indices": (0,), "indptr": (0, 1)}, nibbles,
                                                      dtype="u8", type="f4_e2m1")
        file = File()
        file.add("a", [3], "zt.mx/1", {"block_size": 3, "scale_form": "e8m0_exponent"},
                 data=file.part(b"\x11" + nibbles, type="f4_e2m1"), scales=file.part(b"\x7f", type="f8_e8m0"))
        yield f"mx of three f4, {name}", None, file.finish()
    yield "coo of four f4", GOOD, sparse_2("zt.sparse_coo/1", [4], {"coords": (0, 1, 2, 3)}, b"\x11\x11", dtype="u8", type="f4_e2m1")
    yield "shape that overflows before its 0", GOOD, only(b"", (1 << 63, 4, 0))
    yield "nested empty key", GOOD, only(attributes={"m": {"": 1}})
    yield "empty key", BAD, only(attributes={"": 1})
    for name in ("planes", "planez"):
        yield f"unknown field {name}", GOOD, only(**{name: {1: 2}})
    for kind, dtype, size in (("f6_e2m3", "u8", 3), ("i8", "u8", 4), ("foo", "u8", 4)):
        yield f"type {kind} on {dtype}", None, only(bytes(size), (4,), dtype=dtype, type=kind)
    yield "type f6_e2m3 on i8", OPAQUE, only(bytes(3), (4,), dtype="i8", type="f6_e2m3"), "type 'f6_e2m3' is not known"
    yield "type f8_e5m2 on i8", MALFORMED, only(bytes(4), (4,), dtype="i8", type="f8_e5m2"), "type 'f8_e5m2' is stored as u8, not as i8"
    for algorithm in ("foo-bar", "x.y/1", "a@b"):
        yield f"digest {algorithm}", GOOD, only_digest(f"{algorithm}:12"), algorithm
    for algorithm in ("a\tb", "a b", "\x7f", "\u00e9", "fOo"):
        yield f"digest {algorithm!r}", MALFORMED, only_digest(f"{algorithm}:12"), "is not an algorithm, ':'"
    for text in ("xxh3:12", "XXH3:0123456789abcdef", "foo:xyz", "foo", ":12", "foo:"):
        yield f"digest {text}", MALFORMED, only_digest(text), f"digest '{text}' is not an algorithm"
    for digest in ("sha256:12", "crc32c:0x00000000", "crc32c:00000000", "foo-bar:12", "foo:12", "blake3:abcd"):
        yield f"digest {digest}", None, only_digest(digest)
    for vendor in ("zt", "ztstream"):
        for name, kind, file, says in (
                ("coo cell twice", DAMAGED, make_zt2.coo(coords=(0, 0, 1, 1)), "two elements name cell 1 in C order"),
                ("csr columns fall", DAMAGED, make_zt2.csr(indices=(2, 0, 1)), "index 1 is not more than the one before in its row"),
                ("coo in no order", GOOD, make_zt2.coo(coords=(2, 1, 2, 0)), ""),
                ("coo index beyond", DAMAGED, make_zt2.coo(coords=(0, 1, 2, 4)), "index 3 is 4, beyond the dimension of 4"),
                ("coo of no cell", DAMAGED, make_zt2.coo(coords=(1, 0, 2, 1), shape=(3, 0)), "tensor 'm': ")):
            entry = file.root["objects"]["m"]
            entry["layout"] = entry["layout"].replace("zt.", vendor + ".", 1)
            yield f"{vendor} {name}", kind, file.finish(), says
    for names in (("a", "b"), ("b", "a")):
        for coords, kind in (((0, 0, 2), DAMAGED), ((0, 1, 2), GOOD)):
            file = File()
            shared = file.part(u64s(*coords), "u64")
            file.add(names[0], [2, 3], "zt.sparse_csr/1", values=file.part(bytes(8), "f32"), indptr=shared,
                     indices=file.part(u64s(*(0, 2) if coords[1] == 0 else (2, 0)), "u64"))
            file.add(names[1], [3], "zt.sparse_coo/1", values=file.part(bytes(12), "f32"), coords=shared)
            yield f"row pointers that are coordinates {coords} of {names[1]}", kind, file.finish(), (
                "two elements name cell 0 in C order" if kind == DAMAGED else "")
    yield "csr of more equal columns than rows", BAD, sparse_2("zt.sparse_csr/1", [1, 9], {"indices": (5,) * 9, "indptr": (0, 9)}, bytes(36))
    yield "csr", GOOD, csr().finish()
    yield "blob that is the manifest", None, itself()
    for layout in ("dense", "x.y/1"):
        yield f"zstd of no bytes, {layout}", MALFORMED, encoded(b"", 0, [0], layout), "§5.3"
        yield f"zstd of 2^62 bytes, {layout}", MALFORMED, encoded(bytes(8), 1 << 62, [1 << 62], layout), "§5.3"
    for raw in (False, True):
        yield "garbage zstd of no content" + ", raw as well" * raw, DAMAGED, encoded(b"garbage!", 0, [0], raw=raw), "tensor 'b': "
    yield "zstd of 2^62 bytes", BAD, encoded(bytes(8), 1 << 62, [0], "x.y/1")
    yield "unknown encoding", None, encoded(bytes(8), 8, [8], encoding="x.y/1")
    yield "unknown encoding, raw as well", None, encoded(bytes(8), 8, [8], encoding="x.y/1", raw=True)
    yield "unknown encoding of 2^62 bytes", None, encoded(bytes(8), 1 << 62, [0], "x.y/1", "x.y/1")


def frames_1():
    """(name, verdict, bytes, what must be said) of 1.2: streams of frames and a seek table, whose stored bytes have the digest stated."""
    content = bytes(range(250)) * 36
    cut = lambda *sizes: [content[sum(sizes[:i]):sum(sizes[:i + 1])] for i in range(len(sizes))]
    frame = lambda piece, **fields: zstandard.ZstdCompressor(write_checksum=True, **fields).compress(piece)
    pieces, others = cut(4096, 4096, 808), cut(5000, 3192, 808)
    good, empty, skipped = [frame(piece) for piece in pieces], frame(b""), struct.pack("<II4x", 0x184D2A50, 4)
    silent = [frame(piece, write_content_size=False) for piece in pieces]
    # A frame whose header names dictionary 7: a bit of the descriptor, and a byte behind it.
    foreign = [each[:4] + bytes([each[4] | 1]) + (b"\7" if each[4] & 32 else each[5:6] + b"\7") + each[6 - bool(each[4] & 32):] for each in good]
    window = bytearray(silent[0])
    window[5] = 18 << 3  # 2^28

    def made(frames, sizes, entries=None):
        table = b"".join(struct.pack("<II", *entry) for entry in entries or zip(map(len, frames), sizes))
        stream = b"".join(frames) + struct.pack("<II", 0x184D2A5E, len(table) + 9) + table + struct.pack("<IBI", len(table) // 8, 0, 0x8F92EAB1)
        algorithm = ("crc32c", "sha256")[len(stream) % 2]
        return one(data_1(stream, shape=[sum(sizes)], encoding="zstd", uncompressed_length=sum(sizes), digest=make_zt.digest(algorithm, stream)))

    sizes = [len(piece) for piece in pieces]
    lengths = [len(each) for each in good]
    apart = "the zstd seek table does not match the frames"
    yield "frames", GOOD, made(good, sizes), ""
    yield "frames of any size", GOOD, made([frame(piece) for piece in others], [5000, 3192, 808]), ""
    yield "frames that do not say their size", GOOD, made(silent, sizes), ""
    yield "frames with an empty one", GOOD, made([good[0], empty, *good[1:]], [4096, 0, 4096, 808]), ""
    yield "frames with a skippable one", GOOD, made([good[0], skipped, *good[1:]], [4096, 0, 4096, 808]), ""
    yield "frames of other sizes", DAMAGED, made([frame(piece) for piece in others], sizes), "a zstd frame yields 5000 bytes, 4096 were declared"
    yield "frames that hold less", DAMAGED, made([*silent[:2], frame(pieces[2][:-1], write_content_size=False)], sizes), (
        "a zstd frame yields 807 bytes, 808 were declared")
    yield "frames of garbage", DAMAGED, made([bytes(100)] * 3, sizes), "the zstd stream is damaged"
    yield "frames elsewhere", DAMAGED, made(good, sizes, [(lengths[0] - 1, 4096), (lengths[1] + 1, 4096), (lengths[2], 808)]), "the zstd stream is damaged"
    yield "frames in one entry", DAMAGED, made(good, sizes, [(lengths[0] + lengths[1], 8192), (lengths[2], 808)]), apart
    yield "frames behind a skippable one", DAMAGED, made([skipped + good[0], *good[1:]], sizes), apart
    yield "frames of no bytes", DAMAGED, made(good, sizes, [(0, 0), *zip(lengths, sizes)]), "the zstd stream is damaged"
    yield "frames of a dictionary", DAMAGED, made(foreign, sizes), "the zstd stream needs a dictionary"
    yield "frames of a window of 256 MiB", DAMAGED, made([bytes(window), *silent[1:]], sizes), "its window has 268435456 bytes"


def only_digest(digest):
    file = File()
    file.add("a", [8], data=file.part(bytes(8), digest=None) | {"digest": digest})
    return file.finish()


def canonical_and_not():
    """(name, what must be said, bytes): the first is in canonical form; the others hold the same tensor and are not."""
    def file(change=lambda file: None, **footer):
        made, step = File(), 1 << 16
        made.heap += bytes(step - len(made.heap))
        made.add("t", [2], data=made.part(bytes(8), "f32"))
        made.heap += bytes(2 * step - len(made.heap))
        change(made)
        return made.finish(**footer)

    yield "canonical", "", file()
    yield "reserved footer word", "the footer is not that of the canonical form", file(reserved=7)
    for field in ("shards", "attributes", "x"):
        yield f"root field {field}", "of the manifest is not that of the canonical form", file(lambda f, field=field: f.root.update({field: {}}))
    entry = lambda f: f.root["objects"]["t"]
    for name, change in (("empty attributes of a tensor", lambda f: entry(f).update(attributes={})), ("unknown field", lambda f: entry(f).update(x=1)),
                         ("type that is the dtype", lambda f: entry(f)["parts"]["data"].update(type="f32")),
                         ("unknown field of a part", lambda f: entry(f)["parts"]["data"].update(x=1))):
        yield name, "tensor 't': the manifest encodes it differently from the canonical form (zTensor 2.0 §6.3)", file(change)


def rows():
    for version, made in (("0.1", files_0_1()), ("2.0", files_2_0())):
        for name, kind, content, *says in made:
            yield f"{version} {name}", version, content, kind or "", *says
    frames = ((name, "1.2", kind, content, says) for name, kind, content, says in frames_1())
    for name, version, kind, content, *says in (*files_1(), *frames):
        yield f"{version} {name}", version, content, kind or "", *says
