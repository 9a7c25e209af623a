"""One file, one verdict: inspect, verify, convert, diff and extract accept it, or refuse it with statuses of one class.

What the manifest shows, every command sees; what the data alone show, those that read them.
"""
import struct

import cbor2
import numpy

import make_zt
import make_zt2
import support
import zt2read
from make_zt2 import FLOOR, File
from support import DIFFERS, DONE, INVALID, UNSUPPORTED

# Statuses of inspect, verify, and of what reads the tensors.
GOOD, MALFORMED, DAMAGED = (DONE, DONE, DONE), (INVALID, DIFFERS, INVALID), (DONE, DIFFERS, INVALID)
UNDECODABLE, REFUSED = (DONE, DONE, UNSUPPORTED), (UNSUPPORTED,) * 3


def u32s(*values):
    return struct.pack(f"<{len(values)}I", *values)


def one(name="t", content=b"abcdefgh", shape=(8,), layout="dense", attributes=None, **fields):
    file = File()
    file.add(name, list(shape), layout, attributes, data=file.part(content, **fields))
    return file


def entry_01(data, **fields):
    return make_zt.encode_01([{"name": "t", "dtype": "float32", "shape": [2, 2], "data": data, **fields}])


class Verdicts(support.EndToEnd):

    def agree(self, content, verdict, says=""):
        path, out = self.put("in.zt", content), self.path("out.zt")
        inspected, verified, read = verdict
        commands = {"inspect": (inspected, "inspect", path), "verify": (verified, "verify", path), "diff": (read, "diff", path, path)}
        for spec in ("1.2", "2.0"):
            commands[spec] = (read, "convert", path, "-o", out, "-f", "--no-sync", "--spec", spec)
        for name, (status, *arguments) in commands.items():
            with self.subTest(name, says=says):
                process = self.run_program(*arguments)
                errors = process.stderr.decode()
                self.assertEqual(process.returncode, status, errors)
                if status != DONE or name == "verify":
                    self.assertIn(says, errors)
        return path

    # ---- 0.1 ----

    def test_sparse_entries_of_0_1(self):
        def coo(*indices, layout="sparsecoo", order="<", more=b"", **fields):
            return entry_01(struct.pack(f"{order}{len(indices)}Qf", *indices, 1.5) + more, layout=layout, **fields)

        self.agree(coo(1, 1), GOOD)
        self.agree(coo(1, 2), DAMAGED, "index 1 is 2, beyond the dimension of 2")
        self.agree(coo(1, 1, more=b"abc"), DAMAGED, "the blob of 23 bytes is not a whole number of entries of 20 bytes")
        for order in "<>":
            self.agree(coo(1, 1, order=order, data_endianness="big"), UNDECODABLE, "it is sparse with data_endianness 'big'")
        csr = make_zt2.u64s(0, 1, 2) + make_zt2.u64s(0, 1) + bytes(8)
        self.agree(entry_01(csr, layout="sparsecsr"), GOOD)
        self.agree(entry_01(csr[:8] + make_zt2.u64s(3) + csr[16:], layout="sparsecsr"), DAMAGED, "row pointer 2 is 2, less than")
        self.agree(entry_01(csr[:16] + make_zt2.u64s(1) + csr[24:], layout="sparsecsr"), DAMAGED, "the last row pointer is 1, there are 2 indices")
        self.agree(entry_01(csr + b"abc", layout="sparsecsr"), DAMAGED, "has 27 bytes, not a whole number of indices and values of 4 bytes")
        both = [{"name": name, "dtype": "float32", "shape": shape, "layout": "sparsecoo", "data": struct.pack("<QQf", 1, 2, 1.5)}
                for name, shape in (("a", [2, 3]), ("b", [2, 2]))]  # one look at one blob, a verdict for each
        self.agree(make_zt.encode_01([both[0], both[1] | {"data": b"", "offset": 64, "size": 20}]), DAMAGED, "tensor 'b'")
        self.agree(entry_01(bytes(8), layout="sparse"), UNDECODABLE, "does not say where its indices lie")

    def test_bools_of_0_1_are_true_where_they_are_not_zero(self):
        content = make_zt.encode_01([{"name": "t", "dtype": "bool", "shape": [4], "data": b"\0\1\2\xff"}])
        path = self.agree(content, GOOD)
        shared = make_zt.encode_01([{"name": "t", "dtype": "bool", "shape": [4], "data": b"\0\1\2\xff"},
                                    {"name": "u", "dtype": "uint8", "shape": [4], "data": b"", "offset": 64, "size": 4}])
        for source in (path, self.put("two.zt", shared)):
            self.succeed("convert", source, "-o", self.path("out.zt"), "-f", "--no-sync")
            found = support.read_zt(self.path("out.zt"))["objects"]
            self.assertEqual(found["t"]["components"]["data"]["bytes"], b"\0\1\1\1")
            if "u" in found:
                self.assertEqual(found["u"]["components"]["data"]["bytes"], b"\0\1\2\xff")
        entry = struct.pack("<QQB", 1, 0, 2)
        self.agree(make_zt.encode_01([{"name": "t", "dtype": "bool", "shape": [2, 2], "layout": "sparsecoo", "data": entry}]), GOOD)
        self.succeed("convert", self.path("in.zt"), "-o", self.path("out.zt"), "-f", "--no-sync")
        self.assertEqual(support.read_zt(self.path("out.zt"))["objects"]["t"]["components"]["values"]["bytes"], b"\1")

    def test_padding_of_0_1_is_not_defined(self):
        content = bytearray(make_zt.encode_01([{"name": "t", "dtype": "uint8", "shape": [3], "data": b"abc"}]))
        content[20] = 0xaa
        self.agree(bytes(content), GOOD)
        self.assertEqual(self.json("verify", "--json", self.path("in.zt"))["unreferenced_bytes"], 1)

    def test_custom_fields_that_no_attribute_can_hold(self):
        for value, says in ((cbor2.CBORTag(1, 5), "a value with CBOR tag 1 cannot be kept"),
                            ({1: 2}, "a map key is an integer, only text can be a key"), (cbor2.undefined, "the CBOR value 'undefined' cannot be kept")):
            path = self.agree(entry_01(bytes(16), when=value, kept="yes"), GOOD)
            for command in (("inspect", path), ("convert", path, "-o", self.path("out.zt"), "-f", "--no-sync")):
                self.assertIn(f"tensor 't': a custom field is ignored: 'when': {says}", self.run_program(*command).stderr.decode())
            self.assertEqual(support.read_zt(self.path("out.zt"))["objects"]["t"]["attributes"], {"kept": "yes"})

    def test_unknown_words_of_0_1(self):
        self.agree(entry_01(bytes(16), encoding="lz4"), REFUSED, "encoding 'lz4' is neither 'raw' nor 'zstd'")
        self.agree(entry_01(bytes(16), dtype="float8"), REFUSED, "dtype 'float8' is not a dtype of version 0.1.0")

    # ---- 2.0 ----

    def test_what_a_type_forbids_is_not_shown(self):
        bool_2, nibble = one(content=b"\0\1\2\1", shape=(4,), type="bool").finish(), one(content=b"\x11\xf1", shape=(3,), type="f4_e2m1").finish()
        of_1_2 = make_zt.encode_1({"t": {"shape": [4], "components": {"data": {"dtype": "bool", "data": b"\0\1\2\1"}}}})
        for content, says in ((bool_2, "element 2 of bool is 2, neither 0 nor 1"), (of_1_2, "element 2 of bool is 2, neither 0 nor 1"),
                              (nibble, "the last byte of an odd number of f4_e2m1 is 241, its high half is not 0")):
            path = self.agree(content, DAMAGED, says)
            self.fail_with(INVALID, "show", path, "t", says=says)
        self.assertEqual(self.succeed("show", self.put("b.zt", bool_2), "t[:2]"), b"[False  True]\n")

    def test_rows_that_do_not_ascend_in_any_memory(self):
        """One row of equal columns, far more of them than memory would keep."""
        file, count = File(), 3_000_000
        file.add("m", [1, 4], "zt.sparse_csr/1", values=file.zstd(bytes(count), "u8", frame=1 << 20),
                 indices=file.zstd(bytes(4 * count), "u32", frame=1 << 20), indptr=file.part(u32s(0, count), "u32"))
        path, says = self.put("in.zt", file.finish()), "index 1 is not more than the one before in its row"
        for memory in ((), ("--memory", "2MiB", "-T", "1")):
            self.expect(DIFFERS, "verify", path, *memory, says=says)
            self.fail_with(INVALID, "diff", path, path, *memory, says=says)
            for spec in ("1.2", "2.0"):
                self.fail_with(INVALID, "convert", path, "-o", self.path("o.zt"), "-f", "--spec", spec, *memory, says=says)
            self.fail_with(INVALID, "extract", path, "-o", self.path("o.npz"), "-f", *memory, says=says)

    def test_sparse_indices_of_2_0(self):
        twice, unsorted = make_zt2.coo(coords=(0, 0, 1, 1)), make_zt2.csr(indices=(2, 0, 1))
        for vendor in (False, True):
            for file, says in ((twice, "two elements name cell 1 in C order"), (unsorted, "index 1 is not more than the one before in its row")):
                entry = file.root["objects"]["m"]
                entry["layout"] = entry["layout"].replace("zt.", "ztstream.", 1) if vendor else entry["layout"]
                self.agree(file.finish(), DAMAGED, says)
        coo = make_zt2.coo(coords=(2, 1, 2, 0))  # in no order, but once each
        self.agree(coo.finish(), GOOD)
        self.agree(make_zt2.coo(coords=(0, 1, 2, 4)).finish(), DAMAGED, "index 3 is 4, beyond the dimension of 4")
        self.agree(make_zt2.coo(coords=(1, 0, 2, 1), shape=(3, 0)).finish(), DAMAGED, "tensor 'm': ")

    def test_a_blob_that_is_row_pointers_and_coordinates(self):
        for names in (("a", "b"), ("b", "a")):
            for coords, want in (((0, 0, 2), DAMAGED), ((0, 1, 2), GOOD)):
                file = make_zt2.File()
                shared = file.part(make_zt2.u64s(*coords), "u64")
                file.add(names[0], [2, 3], "zt.sparse_csr/1", values=file.part(bytes(8), "f32"),
                         indices=file.part(make_zt2.u64s(0, 2) if coords[1] == 0 else make_zt2.u64s(2, 0), "u64"), indptr=shared)
                file.add(names[1], [3], "zt.sparse_coo/1", values=file.part(bytes(12), "f32"), coords=shared)
                self.agree(file.finish(), want, *["two elements name cell 0 in C order"] * (want == DAMAGED))

    def test_streams_that_hold_nothing(self):
        file = one(content=b"garbage!")
        raw = file.root["objects"]["t"]["parts"]["data"]
        file.root["objects"]["u"] = {"shape": [0], "layout": "dense", "parts": {"data": {
            "dtype": "u8", "blob": raw["blob"], "encoding": "zt.zstd-seekable/1", "decoded_length": 0}}}
        self.agree(file.finish(), DAMAGED, "tensor 'u': ")
        for layout in ("dense", "x.y/1"):
            for blob, length in (([FLOOR, 0], 0), ([FLOOR, 8], 1 << 62)):
                file = one(shape=(length,), layout=layout)
                file.root["objects"]["t"]["parts"]["data"].update(
                    {"blob": blob, "encoding": "zt.zstd-seekable/1", "decoded_length": length})
                self.agree(file.finish(), MALFORMED, "§5.3")

    def test_vendor_names(self):
        self.agree(one(shape=(1000,), dtype="f32", type="ztstream.foo/1").finish(), GOOD)
        for name in ("ztstream.foo/2", "ztstream.", "ztstream./1", "ztstream.f8_e5m2/1", "ztstream.u8/1"):
            self.agree(one(type=name).finish(), UNDECODABLE, f"type '{name}' is not known")
        for name in ("ztstream./1", "ztstream.foo/2"):
            self.agree(one(content=b"1234567", dtype="u8", layout=name).finish(), UNDECODABLE, f"layout '{name}' is not known")
        path = self.agree(one(layout="ztstream.foo/1", type="ztstream.bar/1").finish(), GOOD)
        self.succeed("convert", path, "-o", self.path("again.zt"), "--spec", "2.0", "--no-sync")
        self.assertEqual(self.succeed("id", path), self.succeed("id", self.path("again.zt")))

    def test_what_2_0_allows(self):
        file = File()
        file.add("t", [1 << 63, 4, 0], data=file.part(b""))
        self.agree(file.finish(), GOOD)
        self.agree(one(attributes={"m": {"": 1}}).finish(), GOOD)
        self.agree(one(planes={1: 2}).finish(), GOOD)
        for algorithm in ("foo-bar", "x.y/1", "a@b"):
            self.agree(self.digest(f"{algorithm}:12"), GOOD, algorithm)
        for algorithm in ("a\tb", "a b", "\x7f", "\u00e9", "fOo"):
            self.agree(self.digest(f"{algorithm}:12"), MALFORMED, "is not an algorithm, ':'")
        for text in ("xxh3:12", "XXH3:0123456789abcdef", "foo:xyz", "foo", ":12", "foo:"):
            self.agree(self.digest(text), MALFORMED, f"digest '{text}' is not an algorithm")

    def digest(self, text):
        file = one()
        file.root["objects"]["t"]["parts"]["data"]["digest"] = text
        return file.finish()

    def test_unknown_types_of_2_0_concern_their_tensor_alone(self):
        file = one("known")
        file.add("f6", [4], data=file.part(b"abc", "i8", type="f6_e2m3"))
        self.agree(file.finish(), UNDECODABLE, "type 'f6_e2m3' is not known")
        self.succeed("convert", self.path("in.zt"), "-o", self.path("some.zt"), "--include", "^known$")
        self.agree(one(dtype="i8", type="f8_e5m2").finish(), MALFORMED, "type 'f8_e5m2' is stored as u8, not as i8")

    # ---- what verify says of content that nothing vouches for ----

    def test_content_without_a_digest(self):
        none = File()
        none.add("t", [3], data=none.part(b"abc", digest=None))
        self.assertIn(b"good: 1 object, 1 component, no digests: content not checked, 3 B", self.succeed("verify", self.put("n.zt", none.finish())))
        none.add("u", [3], data=none.part(b"abd"))
        said = self.succeed("verify", self.put("n.zt", none.finish()))
        self.assertIn(b"2 components, 1 digest matches, content of 1 component not checked, 6 B", said)
        self.assertEqual(self.json("verify", "--json", self.path("n.zt"))["unhashed"], 1)
        self.assertIn(b"no digests: content not checked", self.succeed("verify", self.put("u.zt", self.digest("md5:00"))))
        empty = File()
        empty.add("t", [0], data=empty.part(b"", digest=None))
        self.assertIn(b"0 digests match, 0 B", self.succeed("verify", self.put("e.zt", empty.finish())))

    # ---- byte planes of 2.0 ----

    def test_planes_that_say_nothing_are_the_usual_ones(self):
        values = numpy.random.default_rng(1).normal(0, 0.02, 3_000_000).astype("<f4")
        source = self.safetensors("in.safetensors", {"t": ("F32", [3_000_000], values.tobytes())})
        usual, other = self.path("usual.zt"), self.path("other.zt")
        self.succeed("convert", source, "-o", usual, "--spec", "2.0", "--zstd=planes")
        self.succeed("convert", source, "-o", other, "--spec", "2.0", "--zstd=planes", "--chunk", "1MiB")
        files = [zt2read.open_file(path) for path in (usual, other)]
        self.assertEqual([file.objects["t"].parts["data"].planes for file in files], [None, {"chunk": 1 << 20}])
        self.assertEqual([file.decode("t", "data") for file in files], [values.tobytes()] * 2)
        content = usual.read_bytes()
        offset, length, *_ = zt2read.FOOTER.unpack(content[-40:])
        for planes in ({}, {"rotate": 1}, {"rotate": 1, "group": 4 << 17, "chunk": 4 << 20, "more": None}):
            root = cbor2.loads(content[offset:offset + length])
            root["objects"]["t"]["parts"]["data"]["planes"] = planes
            file = File()
            file.heap = bytearray(content[:offset])
            path = self.agree(file.finish(zt2read.encode_cbor(root)), GOOD)
            self.succeed("diff", path, source)
        for planes, says in ({"chunk": 0}, "'chunk' is 0"), ({"rotate": 2}, "'rotate' is 2"), ([], "'planes' is not a map"):
            root["objects"]["t"]["parts"]["data"]["planes"] = planes
            file.heap = bytearray(content[:offset])
            self.agree(file.finish(zt2read.encode_cbor(root)), MALFORMED, says)

    # ---- the canonical form ----

    def test_one_canonical_form_of_equal_tensors(self):
        def canonical(change=lambda file: None, **footer):
            file = File()
            file.heap += bytes(-len(file.heap) % zt2read.CANONICAL)
            file.add("t", [2], data=file.part(b"abcdefgh", "f32"))
            change(file)
            file.heap += bytes(-len(file.heap) % zt2read.CANONICAL)
            return self.put("c.zt", file.finish(**footer))

        def field(path, value):
            def change(file):
                holder = file.root
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = value
            return change

        self.succeed("verify", "--canonical", canonical())
        part = ("objects", "t", "parts", "data")
        says = "tensor 't': the manifest encodes it differently from the canonical form (zTensor 2.0 §6.3)"
        for path, value, text in ((("shards",), {}, "of the manifest is not that of the canonical form"),
                                  (("attributes",), {}, "of the manifest is not that of the canonical form"),
                                  (("x",), 1, "of the manifest is not that of the canonical form"),
                                  (("objects", "t", "attributes"), {}, says), (part + ("type",), "f32", says),
                                  (part + ("later",), 1, says), (("objects", "t", "later"), 1, says)):
            with self.subTest(path):
                changed = canonical(field(path, value))
                self.succeed("verify", changed)
                self.assertIn(text, self.fail_with(DIFFERS, "verify", "--canonical", changed))
        changed = canonical(reserved=7)
        self.succeed("verify", changed)
        self.fail_with(DIFFERS, "verify", "--canonical", changed, says="the footer is not that of the canonical form")
