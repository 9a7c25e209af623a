"""What verify finds in a file, convert and extract find; what they write, every command accepts.

Each file here was forged against that: blobs that several tensors share; names, sizes and digests that two readers take in two
ways. verdict_test.py has many more, of which each has one verdict.
"""
import struct

import numpy
import zstandard

import make_safetensors
import make_zt
import support
import zt2read
from make_zt2 import File, seekable, u64s
from pickle_assembler import archive, dictionary, tensor
from support import DIFFERS, DONE, INVALID, NUMERIC, UNSUPPORTED, USAGE
from zt2read import digest_of

NO_SIZE = (1 << 64) - 1


def data(dtype, content, **fields):
    return {"components": {"data": {"dtype": dtype, "data": content, **fields}}}


def sharing(entries):
    """A 1.2 file in which equal contents lie in one blob."""
    out, offsets, listed = bytearray(make_zt.HEADER_1), {}, {}
    for name, entry in entries.items():
        components = {}
        for role, component in entry["components"].items():
            content = component["data"]
            if content not in offsets:
                offsets[content] = make_zt.place(out, content)
            components[role] = {"dtype": component["dtype"], "offset": offsets[content], "length": len(content)}
        listed[name] = {"format": "dense", **entry, "components": components}
    return make_zt.finish_1(out, listed)


def coo(shape, coords, values=None):
    count = len(coords) // len(shape)
    return {"shape": list(shape), "format": "sparse_coo", "components": {
        "values": {"dtype": "f32", "data": struct.pack(f"<{count}f", *(values or range(1, count + 1)))},
        "coords": {"dtype": "u64", "data": u64s(*coords)}}}


def csr(shape, indptr, indices):
    return {"shape": list(shape), "format": "sparse_csr", "components": {
        "values": {"dtype": "f32", "data": struct.pack(f"<{len(indices)}f", *indices)},
        "indices": {"dtype": "u64", "data": u64s(*indices)}, "indptr": {"dtype": "u64", "data": u64s(*indptr)}}}


class Agreement(support.EndToEnd):

    def refused(self, path, *options, status=INVALID, says=()):
        out = self.path("out.zt")
        out.unlink(missing_ok=True)
        line = self.fail_with(status, "convert", path, "-o", out, "-f", "--no-sync", *options, says=says)
        self.assertFalse(out.exists())
        return line

    def wrong(self, content, says, *options, verified=None):
        """verify refuses the file by name of what is wrong, and so do diff and convert."""
        path = self.put("in.zt", content)
        self.expect((DIFFERS, INVALID), "verify", path, says=verified or says)
        self.fail_with(INVALID, "diff", path, path, says=says)
        return self.refused(path, *options, says=says)

    def converts(self, path, *options):
        """The output is one that verify and the independent reader accept, and that holds the same."""
        out = self.path("out.zt")
        self.succeed("convert", path, "-o", out, "-f", "--no-sync", *options)
        self.succeed("verify", out)
        self.succeed("diff", path, out)
        if "2.0" in options or "--canonical" in options:
            file = zt2read.open_file(out)
            file.verify()
            return {(name, role): part.offset for name, o in file.objects.items() for role, part in o.parts.items()}
        return {(name, role): part["offset"] for name, o in support.read_zt(out)["objects"].items()
                for role, part in o["components"].items()}


class SharedBlobs(Agreement):
    """A component that shares a blob has a rule of its own."""

    BAD, FINE = bytes([0, 1, 5, 1]), bytes([0, 1, 1, 0])
    SAYS = "element 2 of bool is 5, neither 0 nor 1"

    def test_bool_and_numbers(self):
        for names in ("ab", "ba"):
            numbers, truths = names
            for spec in ("1.2", "1.1", "2.0"):
                line = self.wrong(sharing({numbers: {"shape": [4], **data("u8", self.BAD)},
                                           truths: {"shape": [4], **data("bool", self.BAD)}}), self.SAYS, "--spec", spec)
                self.assertIn(f"tensor '{truths}'", line)
                offsets = self.converts(self.put("in.zt", sharing({
                    numbers: {"shape": [4], **data("u8", self.FINE)}, truths: {"shape": [2, 2], **data("bool", self.FINE)}})),
                    "--spec", spec)
                self.assertEqual(len(set(offsets.values())), 1)

    def test_bool_and_numbers_of_other_formats(self):
        for content, bad in ((self.BAD, True), (self.FINE, False)):
            def entry(dtype, at):
                return {"dtype": dtype, "shape": [4], "data_offsets": [at, at + 4]}

            one = make_safetensors.raw({"a": entry("U8", 0), "b": entry("BOOL", 0)}, content)
            two = make_safetensors.raw({"a": entry("U8", 0), "b": entry("BOOL", 4)}, content * 2)
            torch = archive(dictionary(a=tensor(kind="ByteStorage"), b=tensor(kind="BoolStorage")), {"0": content})
            for name, made in (("one.safetensors", one), ("two.safetensors", two), ("c.pt", torch)):
                for options in ((), ("--spec", "2.0"), ("--canonical",), ("--zstd",)):
                    path = self.put(name, made)
                    with self.subTest(name, options=options, bad=bad):
                        if bad:
                            self.assertIn("tensor 'b'", self.refused(path, *options, says=self.SAYS))
                        else:
                            offsets = self.converts(path, *options)
                            if name != "two.safetensors" or options == ("--canonical",):
                                self.assertEqual(len(set(offsets.values())), 1)

    def test_coordinates_and_numbers(self):
        for coords, spec, status, says in (((0, 1, 2, 9), "1.2", INVALID, "index 3 is 9, beyond the dimension of 4"),
                                           ((0, 1, 2, 9), "2.0", (INVALID, UNSUPPORTED), ""),
                                           ((1, 1, 2, 2), "2.0", UNSUPPORTED, "two elements name cell 6 in C order"),
                                           ((1, 1, 2, 2), "canonical", UNSUPPORTED, "two elements name cell 6 in C order")):
            for name in ("a", "z"):  # before and behind the sparse tensor
                path = self.put("in.zt", sharing({name: {"shape": [4], **data("u64", u64s(*coords))}, "m": coo((3, 4), coords)}))
                options = ("--canonical",) if spec == "canonical" else ("--spec", spec)
                with self.subTest(coords=coords, spec=spec, name=name):
                    self.refused(path, *options, status=status, says=says)
                    self.assertEqual(self.run_program("verify", path).returncode, DIFFERS if 9 in coords else DONE)
        fine = self.put("in.zt", sharing({"a": {"shape": [4], **data("u64", u64s(0, 1, 2, 0))}, "m": coo((3, 4), (0, 1, 2, 0))}))
        self.converts(fine)
        self.converts(fine, "--spec", "2.0")
        offsets = self.converts(fine, "--canonical")
        self.assertEqual(offsets["a", "data"], offsets["m", "coords"])

    def test_coordinates_of_two_tensors(self):
        coords = (0, 8, 3, 1)
        says = "beyond the dimension of 2"
        line = self.wrong(sharing({"a": coo((9, 9), coords), "b": coo((2, 2), coords)}), says)
        self.assertIn("tensor 'b'", line)
        fine = self.put("in.zt", sharing({"a": coo((9, 9), coords), "b": coo((9, 9), coords, (7, 8)), "c": coo((10, 5), coords),
                                          "d": coo((9,), coords)}))
        for options in ((), ("--spec", "2.0"), ("--canonical",)):
            offsets = self.converts(fine, *options)
            self.assertEqual(offsets["a", "coords"], offsets["b", "coords"])
            self.assertEqual(offsets["a", "coords"], offsets["c", "coords"])
            self.assertEqual(offsets["a", "coords"], offsets["d", "coords"])
        # One tensor's cells may be another's twice: cell 5 of both elements.
        twice = self.put("in.zt", sharing({"a": coo((9, 9), (0, 0, 5, 6)), "b": coo((1, 9), (0, 0, 5, 6))}))
        self.converts(twice, "--canonical")

    def test_columns_of_two_matrices(self):
        """The columns ascend in the rows of one, not in those of the other."""
        a, b = csr((2, 4), (0, 2, 4), (1, 3, 0, 2)), csr((2, 4), (0, 3, 4), (1, 3, 0, 2))
        path = self.put("in.zt", sharing({"a": a, "b": b}))
        self.converts(path)
        for options in (("--spec", "2.0"), ("--canonical",)):
            self.assertIn("tensor 'b'", self.refused(path, *options, status=UNSUPPORTED, says="is not more than the one before in its row"))
        path = self.put("in.zt", sharing({"a": a, "b": a, "c": csr((4, 4), (0, 1, 2, 3, 4), (1, 3, 0, 2))}))
        offsets = self.converts(path, "--spec", "2.0")
        self.assertEqual({role: offsets["a", role] == offsets["b", role] for role in ("indices", "indptr")},
                         {"indices": True, "indptr": True})
        offsets = self.converts(path, "--canonical")
        self.assertEqual(offsets["a", "indices"], offsets["c", "indices"])
        self.assertNotEqual(offsets["a", "indptr"], offsets["c", "indptr"])
        # Row pointers must end at the number of indices, even if another tensor shares them.
        self.wrong(sharing({"a": {"shape": [3], **data("u64", u64s(0, 3, 3))}, "m": csr((2, 4), (0, 3, 3), (0, 1))}),
                   "the last row pointer is 3, there are 2 indices")

    def test_digests_of_one_encoded_blob(self):
        """2.0: a digest of decoded bytes stands for every component of the blob."""
        true, changed = bytes(range(200)), bytes(range(1, 201))

        def made(a, b, other=None):
            file = File()
            part = file.zstd(changed, digest=a)
            parts = [dict(part, digest=digest) for digest in (a, b)]
            for name, each in zip("ab", parts):
                file.add(name, [200], data={key: value for key, value in each.items() if value})
            if other:
                other(file)
            return file.finish()

        says = "the digest is " + digest_of("xxh3", changed)
        for digests in ((None, digest_of("xxh3", true)), (digest_of("xxh3", true), None),
                        (digest_of("sha256", changed), digest_of("xxh3", true))):
            self.wrong(made(*digests), says)
            for name in "ab":
                self.fail_with(INVALID, "extract", self.path("in.zt"), name, "-o", self.path("o.safetensors"), says=says)
        self.wrong(made(digest_of("xxh3", changed), digest_of("xxh3", true)), "is not that of another tensor with the same bytes",
                   verified=says)
        self.converts(self.put("in.zt", made(None, digest_of("xxh3", changed))))


    def test_numbers_that_become_the_same(self):
        """What a conversion loses is lost in a tensor that shares another's blob, too."""
        large = make_safetensors.encode({name: ("F32", [2], struct.pack("<2f", *values)) for name, values in
                                         (("a", (1.0, float("inf"))), ("b", (1.0, 1e9)))})
        path = self.put("in.safetensors", large)
        for options in (("--spec", "2.0"), ("--canonical",)):
            self.refused(path, *options, "--dtype", "f16", status=NUMERIC, says=("tensor 'b'", "1 value does not fit f16"))
        out = self.path("out.zt")
        self.succeed("convert", path, "-o", out, "--canonical", "--dtype", "f16", "--on-overflow", "inf")
        zt2read.open_file(out).check_canonical()


class Names(Agreement):
    """A type that has the name of a dtype, and names of ours in 2.0 that hold what we would not write."""

    def test_a_type_is_no_other_dtype(self):
        content = bytes(range(256)) * 16
        for dtype, kind in (("u8", "i64"), ("f16", "f32"), ("u8", "f32"), ("u8", "bool"), ("i64", "u8")):
            count = len(content) // {"u8": 1, "f16": 2, "i64": 8}[dtype]
            path = self.put("in.zt", make_zt.encode_1({"w": {"shape": [count], **data(dtype, content, type=kind)}}))
            says = f"type {kind} is stored as {kind}, not as {dtype}"
            for command in (("verify", path), ("inspect", path), ("convert", path, "-o", self.path("o.zt")),
                            ("convert", path, "-o", self.path("o.zt"), "--dtype", "w=f64"), ("diff", path, path),
                            ("extract", path, "-o", self.path("o.safetensors"))):
                self.expect((DIFFERS, INVALID), *command, says=says)
                self.assertFalse(self.path("o.zt").exists() or self.path("o.safetensors").exists())
        sparse = coo((3, 4), (0, 1, 2, 0))
        sparse["components"]["values"] |= {"dtype": "u8", "type": "f32", "data": b"ab"}
        self.wrong(make_zt.encode_1({"w": sparse}), "type f32 is stored as f32, not as u8", "--dtype", "w=f64")
        # Its own dtype says nothing.
        path = self.put("in.zt", make_zt.encode_1({"w": {"shape": [4096], **data("u8", content, type="u8")}}))
        self.succeed("convert", path, "-o", self.path("out.zt"), "--dtype", "w=f64")

    def test_names_of_ours_in_2_0(self):
        def dense(size, shape, dtype="u8", **fields):
            return lambda file: file.add("t", shape, data=file.part(bytes(size), dtype, **fields))

        def layout(name, shape, *roles):
            return lambda file: file.add("t", shape, f"ztstream.{name}/1", **{role: file.part(bytes(8)) for role in roles})

        for add, says in (
                (dense(8, [8], type="ztstream.i64/1"), "type i64 is stored as i64, not as u8"),
                (dense(8, [8], type="ztstream.bool/1"), "type bool is stored as bool, not as u8"),
                (dense(7, [4], "u16", type="ztstream.x/1"), "not a whole number of u16"),
                (layout("dense", [8], "data", "more"), "dense has no component 'more'"),
                (layout("sparse_csr", [2, 2], "values"), "sparse_csr needs a component 'indices'")):
            file = File()
            add(file)
            path = self.put("in.zt", file.finish())
            zt2read.open_file(path).verify()  # it is a file of 2.0
            report = self.json("verify", "--json", path)
            self.assertEqual(report["ok"], True)
            for text in ("t", "it breaks the rules of the names that begin with 'ztstream.'", says):
                self.assertIn(text, report["undecodable"][0])
            for command in (("convert", path, "-o", self.path("o.zt")),
                            ("extract", path, "-o", self.path("o.safetensors")), ("diff", path, path)):
                self.fail_with(UNSUPPORTED, *command, says=("tensor 't'", says))
            self.json("inspect", "--json", path)
        # What has a name of 2.0's own, or is a dtype's, never stands under one of ours: it would come back as something else.
        for add, name in ((dense(3, [3], type="ztstream.f8_e5m2/1"), "f8_e5m2"), (dense(3, [3], type="ztstream.u8/1"), "u8"),
                          (dense(24, [3], "f64", type="ztstream.f8_e4m3fn/1"), "f8_e4m3fn")):
            file = File()
            add(file)
            self.fail_with(UNSUPPORTED, "convert", self.put("in.zt", file.finish()), "-o", self.path("o.zt"),
                           says=f"type 'ztstream.{name}/1' is not known")

    def test_a_scalar_in_coordinates(self):
        """1.2 has such tensors, 2.0 has them under a name of ours."""
        path = self.put("in.zt", make_zt.encode_1({"s": {"shape": [], "format": "sparse_coo", "components": {
            "values": {"dtype": "f32", "data": b"abcd"}, "coords": {"dtype": "u64", "data": b""}}}}))
        self.converts(path)
        self.converts(path, "--spec", "2.0")
        file = File()
        file.add("s", [], "ztstream.sparse_coo/1", values=file.part(b"abcd", "f32"), coords=file.part(b"", "u64"))
        self.converts(self.put("in.zt", file.finish()))

    def test_the_format_of_planes(self):
        """1.2 has it for tensors stored so, and for no others."""
        entry = {"shape": [8], "format": "ztstream.planes/1", "components": {"data": {"dtype": "u8", "data": bytes(8)}}}
        first = make_zt.encode_1({"t": entry}, version="1.1.0")
        file = File()
        file.add("t", [8], "ztstream.ztstream.planes/1/1", data=file.part(bytes(8)))
        for content in (first, file.finish()):
            path = self.put("in.zt", content)
            self.succeed("verify", path)
            self.refused(path, "--spec", "1.2", status=USAGE,
                         says=("tensor 't'", "keeps the format 'ztstream.planes/1' for itself"))
            for spec in ("1.1", "2.0"):
                self.converts(path, "--spec", spec)


class Sizes(Agreement):

    def test_a_decoded_length_that_stands_for_none(self):
        file = File()
        part = file.part(b"abcdefgh", encoding="x/1", decoded_length=NO_SIZE)
        file.add("t", [8], "x.y/1", data=part)
        path = self.put("in.zt", file.finish())
        for command in ("verify", "inspect", "id"):
            self.expect((DIFFERS, INVALID), command, path, says="is more than any component has")
        self.refused(path, says="is more than any component has")

    def test_frames_longer_than_their_content_takes(self):
        noise = numpy.random.default_rng(3).integers(0, 256, 1 << 17, numpy.uint8).tobytes()

        def made(stream, content):
            file = File()
            file.add("t", [len(content)], data={
                "dtype": "u8", "blob": file.blob(stream), "encoding": "zt.zstd-seekable/1", "decoded_length": len(content),
                "digest": digest_of("xxh3", content)})
            return file.finish()

        for checksum in (True, False):
            for size, lie, says in ((4096, 4096, "the zstd seek table does not match the frames" if checksum else "a frame has no checksum"),
                                    (1 << 16, 4096, "for 4096 of content, more than one frame takes")):
                stream = seekable([noise[:size], noise[size:2 * size]], checksum)
                first, _, second, _ = struct.unpack_from("<IIII", stream, len(stream) - 25)
                table = struct.pack("<IIII", first + second - 20, lie, 20, lie)
                self.wrong(made(stream[:-25] + table + stream[-9:], noise[:2 * lie]), says)
        # An encoder that flushes often makes larger frames than one that is given all at once.
        flushed = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compressobj(size=1 << 16)
        content = noise[:1 << 16]
        frame = b"".join(flushed.compress(content[at:at + 100]) + flushed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
                         for at in range(0, 1 << 16, 100)) + flushed.flush()
        whole = seekable([content])
        one, _ = struct.unpack_from("<II", whole, len(whole) - 17)
        path = self.put("in.zt", made(frame + whole[one:-17] + struct.pack("<II", len(frame), 1 << 16) + whole[-9:],
                                      content))
        self.converts(path)

    def test_planes_with_more_behind_them(self):
        """A stream without a seek table: what lies behind the declared content is no part of its last group."""
        values = numpy.arange(8, dtype="<f4")
        rotated = values.view("<u4") << 1 | values.view("<u4") >> 31
        split = rotated.view("u1").reshape(8, 4).T[::-1]  # a plane a row, the most significant first
        planes, half = split.tobytes(), split[:, :4].tobytes()
        attributes = {"planes": {"dtype": "f32", "rotate": 1, "group": 64, "chunk": 64}}

        def made(content, declared, count):
            part = data("u8", make_zt.zstd(content), encoding="zstd", uncompressed_length=declared)
            return make_zt.encode_1({"t": {"shape": [count], "format": "ztstream.planes/1", "attributes": attributes, **part}})

        for content, declared, count in ((planes, 32, 8), (half, 16, 4)):
            path = self.put("in.zt", made(content, declared, count))
            self.converts(path)
            held = support.read_zt(self.path("out.zt"))["objects"]["t"]["components"]["data"]["bytes"]
            self.assertEqual(held, values[:count].tobytes())
        self.wrong(made(planes, 16, 4), "more than the 16 bytes declared")
        self.wrong(made(planes, 64, 16), "fewer bytes than were declared")

    def test_planes_of_single_elements(self):
        """Groups so small that frames of them may take more than a writer here has room for, and no checksums, which 2.0 wants."""
        content = (bytes(range(250)) * 24)[:6000]
        chunks = [content[at:at + 2000] for at in range(0, 6000, 2000)]
        split = [b"".join(chunk[at:at + 2][::-1] for at in range(0, 2000, 2)) for chunk in chunks]
        part = data("u8", seekable(split, checksum=False), encoding="zstd", uncompressed_length=6000)
        attributes = {"planes": {"dtype": "bf16", "rotate": 0, "group": 2, "chunk": 2000}}
        path = self.put("in.zt", make_zt.encode_1({"t": {"shape": [3000], "format": "ztstream.planes/1",
                                                         "attributes": attributes, **part}}))
        for spec in ("2.0", "1.2", "1.1"):
            self.converts(path, "--spec", spec)
        self.assertEqual(support.read_zt(self.path("out.zt"))["objects"]["t"]["components"]["data"]["bytes"], content)

    def test_a_digest_that_cannot_be_read(self):
        """2.0 leaves algorithms open: one that is no crc32c of ours is one that nobody knows."""
        for text in ("crc32c:123456789a", "md5:00"):
            file = File()
            file.add("t", [8], data=file.part(b"abcdefgh", digest=None) | {"digest": text})
            path = self.put("in.zt", file.finish())
            report = self.json("verify", "--json", path)
            self.assertEqual((report["ok"], report["digests"], len(report["unverified"])), (True, 0, 1))
            for options, times in ((), 1), (("--against", path), 2):  # once for each file
                process = self.expect(support.DONE, "verify", path, *options)
                self.assertEqual(process.stderr.count(b"is not a known digest algorithm; its bytes are not checked\n"), times)
            self.converts(path)

    def test_names_of_a_canonical_file(self):
        """Objects, parts and attributes have names; what lies within an attribute is its value (2.0, 3.1 and 3.5)."""
        for attributes, named in (({"m": {"e\u0301": 1}}, False), ({"e\u0301": 1}, True)):
            file = File()
            file.add("t", [8], data=file.part(b"abcdefgh"), attributes=attributes)
            path = self.put("in.zt", file.finish())
            out = self.path("out.zt")
            if named:
                self.fail_with(USAGE, "convert", "--canonical", path, "-o", out, "-f", says="Normalization Form C")
            else:
                self.succeed("convert", "--canonical", path, "-o", out)
                self.succeed("verify", "--canonical", out)
