"""Every version of .zt as an input: upgraded, downgraded, merged, filtered, compressed, and refused where it must be."""
import hashlib
import json
import struct

import make_safetensors
import make_zt
import support
from support import DATA, DIFFERS, DONE, INVALID, UNSUPPORTED, USAGE, read_zt

REFERENCE = DATA / "zt"
CORPUS = DATA / "corpus"
# Rules that say nothing about a tensor's bytes being what was written: only verify checks them.
UNCHECKED = {"padding is zero", "bool is 0 or 1"}


def u64(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def f32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def tensors(path):
    """What a file says, whatever its version, order, encodings and digests."""
    content = read_zt(path)
    return {
        name: {"shape": list(entry["shape"]), "format": entry["format"], "attributes": entry["attributes"],
               "components": {role: (c["dtype"], c["type"], c["bytes"])
                              for role, c in entry["components"].items()}}
        for name, entry in content["objects"].items()}


class Versions(support.EndToEnd):

    def convert(self, source, *options, name="out.zt"):
        output = self.path(name)
        self.succeed("convert", "-f", source, "-o", output, *options)
        return output

    def refuse(self, status, source, *options, says):
        """The conversion fails with one line, and nothing is left in the folder."""
        before = self.entries()
        line = self.fail_with(status, "convert", source, "-o", self.path("refused.zt"), *options, says=says)
        self.assertEqual(self.entries(), before)
        return line


class Reference(Versions):

    def test_every_file_of_the_reference_writers_by_its_expected_values(self):
        expected = json.loads((REFERENCE / "expected.json").read_text())
        self.assertEqual({path.name for path in REFERENCE.glob("*.zt")} - set(expected), {"w101.zt"} - set(expected))
        components = 0
        for name, objects in expected.items():
            for options in [(), ("--zstd", "--min-gain", "-1000"), ("-T", "1"), ("--digest", "none")]:
                with self.subTest(name, options=options):
                    found = tensors(self.convert(REFERENCE / name, *options))
                    for key, want in objects.items():
                        self.assertEqual(found[key]["shape"], want["shape"], key)
                        self.assertEqual(found[key]["format"], want["format"], key)
                        self.assertEqual(set(found[key]["components"]), set(want["components"]), key)
                        for role, component in want["components"].items():
                            dtype, logical, data = found[key]["components"][role]
                            self.assertEqual((dtype, logical), (component["dtype"], component.get("type")), key)
                            self.assertEqual(len(data), component["bytes"], key)
                            self.assertEqual(hashlib.sha256(data).hexdigest(), component["sha256"], key)
                            components += 1
        self.assertGreater(components, 150)

    def test_every_file_verifies(self):
        for path in sorted(REFERENCE.glob("*.zt")):
            with self.subTest(path.name):
                self.succeed("verify", path)

    def test_inspect_names_the_version_and_no_size_that_is_unknown(self):
        versions = {"w010.zt": "0.1.0", "w101.zt": "1.0", "w111.zt": "1.1.0", "w123.zt": "1.2.0"}
        for name, version in versions.items():
            with self.subTest(name):
                listing = self.json("inspect", "--json", REFERENCE / name)
                self.assertEqual(listing["version"], version)
                for entry in listing["objects"]:
                    for component in entry["components"]:
                        self.assertLess(component.get("uncompressed_length", 0), 1 << 20, entry["name"])
                self.assertIn(f"zTensor {version}", self.succeed("inspect", REFERENCE / name).decode())

    def test_0_1_to_1_2_and_back_keeps_every_value_and_attribute(self):
        for name in ("w010.zt", "w010_empty.zt"):
            with self.subTest(name):
                new = self.convert(REFERENCE / name, name="new.zt")
                self.assertEqual(read_zt(new)["version"], "1.2.0")
                old = self.convert(new, "--spec", "0.1", name="old.zt")
                self.assertEqual(read_zt(old)["version"], "0.1.0")
                self.assertEqual(tensors(old), tensors(REFERENCE / name))
                self.assertEqual(tensors(new), tensors(REFERENCE / name))

    def test_1_1_to_1_2_and_back_keeps_every_value_and_attribute(self):
        for name in ("w111.zt", "w111_empty.zt"):
            with self.subTest(name):
                new = self.convert(REFERENCE / name, name="new.zt")
                old = self.convert(new, "--spec", "1.1", name="old.zt")
                self.assertEqual(read_zt(old)["version"], "1.1.0")
                for path in (new, old):
                    self.assertEqual(tensors(path), tensors(REFERENCE / name))
                    self.assertEqual(read_zt(path)["attributes"], read_zt(REFERENCE / name)["attributes"])

    def test_logical_types_of_1_1_become_types_and_dtypes_again(self):
        objects = {}
        for number, (old, dtype, logical, width) in enumerate(
                [("f8_e4m3", "u8", "f8_e4m3fn", 1), ("f8_e5m2", "u8", "f8_e5m2", 1),
                 ("complex64", "f32", "complex64", 8), ("complex128", "f64", "complex128", 16)]):
            objects[old] = {"shape": [3], "attributes": {"n": number, "nested": {"list": [1, -2, 0.5, None, b"x"]}},
                            "components": {"data": {"dtype": old, "data": bytes(range(3 * width))}}}
        old = self.put("old.zt", make_zt.encode_1(objects, "1.1.0", {"who": "me"}))
        new = self.convert(old, name="new.zt")
        self.assertEqual({name: entry["components"]["data"][:2] for name, entry in tensors(new).items()},
                         {"f8_e4m3": ("u8", "f8_e4m3fn"), "f8_e5m2": ("u8", "f8_e5m2"),
                          "complex64": ("f32", "complex64"), "complex128": ("f64", "complex128")})
        back = self.convert(new, "--spec", "1.1", "--zstd", "--min-gain", "-1000", name="back.zt")
        self.assertEqual(tensors(back), tensors(old))
        self.assertEqual(read_zt(back)["attributes"], {"who": "me"})

    def test_a_conversion_to_the_same_is_the_same_file(self):
        first = self.convert(REFERENCE / "w123.zt", name="first.zt")
        self.assertEqual(self.convert(first, name="second.zt").read_bytes(), first.read_bytes())
        packed = self.convert(DATA / "real/ppocr-cls.safetensors", "--zstd", "--chunk", "64KiB", name="packed.zt")
        again = self.convert(packed, "--zstd", "--chunk", "64KiB", name="again.zt")
        self.assertEqual(again.read_bytes(), packed.read_bytes())
        plain = self.convert(DATA / "real/ppocr-cls.safetensors", name="plain.zt")
        for threads in (1, 4):
            self.assertEqual(self.convert(packed, "--raw", "-T", threads, name="unpacked.zt").read_bytes(), plain.read_bytes())


class Corpus(Versions):

    def test_what_keeps_the_rules_converts_and_what_breaks_them_does_not(self):
        verdicts = json.loads((CORPUS / "corpus.json").read_text())
        accepted = refused = 0
        for name, entry in sorted(verdicts.items()):
            with self.subTest(name, rule=entry.get("rule")):
                if entry["verdict"] == "accept":
                    self.assertEqual(tensors(self.convert(CORPUS / name)), tensors(CORPUS / name))
                    self.path("out.zt").unlink()
                    accepted += 1
                elif entry["rule"] not in UNCHECKED:
                    self.refuse((INVALID, UNSUPPORTED), CORPUS / name, says=name)
                    refused += 1
        self.assertEqual((accepted, refused), (24, 50))


class Targets(Versions):
    """What a version cannot hold is an error before output."""

    def put_one(self, component, **more):
        entry = {"shape": [4], "components": {"data": component}, **more}
        return self.put("in.zt", make_zt.encode_1({"w": entry}))

    def test_0_1_has_neither_types_nor_composites_nor_attributes_of_the_file(self):
        typed = self.put_one({"dtype": "u8", "type": "f8_e5m2", "data": b"abcd"})
        self.refuse(USAGE, typed, "--spec", "0.1", says=("tensor 'w'", "f8_e5m2"))
        sparse = self.put("sparse.zt", make_zt.encode_1({"s": {
            "shape": [2, 2], "format": "sparse_coo",
            "components": {"coords": {"dtype": "u64", "data": u64(0, 1)}, "values": {"dtype": "f32", "data": f32(1)}}}}))
        self.refuse(USAGE, sparse, "--spec", "0.1", says=("tensor 's'", "sparse_coo"))
        self.refuse(USAGE, REFERENCE / "w111.zt", "--spec", "0.1", says="license")
        plain = self.put_one({"dtype": "u8", "data": b"abcd"}, attributes={"offset": 1})
        self.refuse(USAGE, plain, "--spec", "0.1", says=("tensor 'w'", "offset"))

    def test_1_1_has_four_types(self):
        for logical in ("f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0", "f4_e2m1", "of_my_own"):
            with self.subTest(logical):
                source = self.put_one({"dtype": "u8", "type": logical, "data": b"abcd"})
                self.refuse(USAGE, source, "--spec", "1.1", says=("tensor 'w'", logical))
                self.assertEqual(tensors(self.convert(source)), tensors(source))
                self.path("out.zt").unlink()


class Uses(Versions):

    def test_files_of_three_versions_become_one(self):
        for number, spec in enumerate(("0.1", "1.1", "1.2")):
            source = self.safetensors(
                f"{number}.safetensors", make_safetensors.sample((f"{number}.a", f"{number}.b"), "F32", (5, 7)))
            self.convert(source, "--spec", spec, name=f"{number}.zt")
        inputs = [self.path(f"{number}.zt") for number in range(3)]
        self.succeed("convert", *inputs, "-o", self.path("all.zt"), "--rename", r"s/^(\d)\./part\1./")
        want = {f"part{name}": entry for path in inputs for name, entry in tensors(path).items()}
        self.assertEqual(tensors(self.path("all.zt")), want)
        self.fail_with(INVALID, "convert", inputs[0], inputs[0], "-o", self.path("twice.zt"), says="tensor '0.a'")

    def test_filter_and_dtype(self):
        out = self.convert(REFERENCE / "w123.zt", "--include", "^raw", "--dtype", "^raw$=f64")
        found = tensors(out)
        self.assertTrue(found)
        self.assertTrue(all(name.startswith("raw") for name in found))
        self.assertEqual(found["raw"]["components"]["data"][0], "f64")

    def test_tied_weights_stay_one_blob(self):
        data = bytes(range(256)) * 16
        packed = make_zt.zstd(data)
        entry = {"dtype": "u8", "data": packed, "encoding": "zstd", "uncompressed_length": len(data)}
        objects = {"a": {"shape": [4096], "components": {"data": entry}},
                   "b": {"shape": [64, 64], "components": {"data": {**entry, "offset": 64}}},
                   "as_stored": {"shape": [len(packed)],
                                 "components": {"data": {"dtype": "u8", "data": packed, "offset": 64}}}}
        source = self.put("in.zt", make_zt.encode_1(objects))
        for options in ((), ("--zstd",), ("--dtype", "^[ab]$=f32")):
            with self.subTest(options=options):
                content = read_zt(self.convert(source, *options))["objects"]
                offsets = {name: content[name]["components"]["data"]["offset"] for name in objects}
                self.assertEqual(offsets["a"], offsets["b"])
                self.assertNotEqual(offsets["a"], offsets["as_stored"])
                self.assertEqual(content["as_stored"]["components"]["data"]["bytes"], packed)

    def test_another_element_type_of_tied_bytes_is_converted_for_itself(self):
        data = struct.pack("<4H", 0x3C00, 0x4000, 0x4200, 0x3F80)
        objects = {"half": {"shape": [4], "components": {"data": {"dtype": "f16", "data": data}}},
                   "brain": {"shape": [4], "components": {"data": {"dtype": "bf16", "data": data, "offset": 64}}}}
        source = self.put("in.zt", make_zt.encode_1(objects))
        found = tensors(self.convert(source, "--dtype", "f32"))
        half, brain = (struct.unpack("<4f", found[name]["components"]["data"][2]) for name in ("half", "brain"))
        self.assertEqual(half[:3], (1.0, 2.0, 3.0))
        self.assertEqual(brain[3], 1.0)
        self.assertNotEqual(half, brain)


class Damage(Versions):
    """Data that does not match its digest never becomes data with a good digest."""

    def test_any_changed_byte_of_any_blob_is_found(self):
        data = make_safetensors.pattern(150_000)
        for algorithm in ("crc32c", "sha256", "xxh3"):
            for packing in ((), ("--zstd", "--min-gain", "-1000", "--chunk", "64KiB")):
                source = self.safetensors("in.safetensors", {"before": (
                    "U8", (64,), data[:64]), "w": ("U8", (150_000,), data), "after": ("U8", (64,), data[-64:])})
                good = self.convert(source, "--digest", algorithm, *packing, name="good.zt")
                want = tensors(good)
                listing = self.json("inspect", "--json", good)["objects"]
                (w,) = [entry["components"][0] for entry in listing if entry["name"] == "w"]
                content = good.read_bytes()
                for threads in (1, 3):
                    self.assertEqual(tensors(self.convert(good, "-T", threads)), want)
                    self.path("out.zt").unlink()
                    for at in (0, 1, 70_000, w["length"] // 2, w["length"] - 1):
                        with self.subTest(algorithm, packing=packing, threads=threads, at=at):
                            changed = bytearray(content)
                            changed[w["offset"] + at] ^= 0x10
                            self.put("bad.zt", bytes(changed))
                            self.refuse(INVALID, self.path("bad.zt"), "-T", threads, says=("bad.zt", "tensor 'w'"))

    def test_small_neighbours_read_together_are_checked_one_by_one(self):
        names = [f"t{number:03}" for number in range(300)]
        source = self.safetensors("in.safetensors", make_safetensors.sample(names, "U8", (64,)))
        good = self.convert(source, name="good.zt")
        changed = bytearray(good.read_bytes())
        (entry,) = [e for e in self.json("inspect", "--json", good)["objects"] if e["name"] == "t123"]
        changed[entry["components"][0]["offset"] + 63] ^= 1
        self.put("bad.zt", bytes(changed))
        self.refuse(INVALID, self.path("bad.zt"), says=("bad.zt: tensor 't123': the digest is crc32c:0x",))
        self.assertEqual(len(tensors(self.convert(self.path("bad.zt"), "--exclude", "t123"))), 299)

    def test_an_unknown_algorithm_is_a_warning(self):
        source = self.put("in.zt", make_zt.encode_1(
            {"w": {"shape": [2], "components": {"data": {"dtype": "u8", "data": b"ab", "digest": "md9:00"}}}}))
        self.expect(DONE, "convert", source, "-o", self.path("out.zt"), says=("md9", "tensor 'w'"))


class Sparse(Versions):

    def entry(self, layout, data, shape=(3, 4), **more):
        return {"name": "s", "layout": layout, "dtype": "float32", "shape": list(shape), "data": data, **more}

    def components(self, path, name="s"):
        entry = tensors(path)[name]
        return entry["format"], {role: c[2] for role, c in entry["components"].items()}

    def test_coo_and_csr_as_the_0_1_readers_took_them_apart(self):
        coo = b"".join(u64(row, column) + f32(value) for row, column, value in [(0, 1, 1), (2, 3, 2), (2, 0, 3)])
        csr = u64(0, 1, 1, 3) + u64(1, 3, 0) + f32(1, 2, 3)
        want = {"sparsecoo": ("sparse_coo", {"coords": u64(0, 2, 2, 1, 3, 0), "values": f32(1, 2, 3)}),
                "sparsecsr": ("sparse_csr", {"indptr": u64(0, 1, 1, 3), "indices": u64(1, 3, 0),
                                             "values": f32(1, 2, 3)})}
        for layout, data in (("sparsecoo", coo), ("sparsecsr", csr)):
            for packed in (False, True):
                stored = make_zt.zstd(data) if packed else data
                entry = self.entry(layout, stored, encoding="zstd" if packed else "raw", note="kept",
                                   checksum=make_zt.digest("crc32c", stored))
                source = self.put("in.zt", make_zt.encode_01([entry]))
                with self.subTest(layout, packed=packed):
                    self.succeed("verify", source)
                    for role in want[layout][1]:
                        self.json("show", "--json", source, f"s/{role}")
                    self.assertEqual(self.json("show", "--json", source, "s/values")["values"], [1, 2, 3])
                    output = self.convert(source)
                    self.succeed("verify", output)
                    self.assertEqual(self.components(output), want[layout])
                    self.assertEqual(tensors(output)["s"]["attributes"], {"note": "kept"})

    def test_big_endian_is_refused(self):
        """The 0.1 writer swapped units of the dtype, indices too; the text says nothing of indices: no reading is safe."""
        coo = u64(0, 1) + f32(1) + u64(2, 3) + f32(2)
        swapped = b"".join(coo[at:at + 4][::-1] for at in range(0, len(coo), 4))
        source = self.put("in.zt", make_zt.encode_01([self.entry("sparsecoo", swapped, data_endianness="big")]))
        self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("out.zt"), says="data_endianness 'big'")

    def test_a_listing_says_big_endian(self):
        numbers = {"name": "t", "dtype": "float32", "shape": [2], "data": bytes(8)}
        source = self.put("in.zt", make_zt.encode_01([{**numbers, "data_endianness": "big"}, {**numbers, "name": "u"}]))
        for files in ([source], [source, source]):
            lines = self.succeed("inspect", "-v", *files).decode().splitlines()
            self.assertEqual(["big-endian" in line for line in lines if "raw" in line], [True, False] * len(files), lines)

    def test_indices_that_tensors_of_two_shapes_share(self):
        """They are held to the shape of each."""
        def both(*shapes):
            return self.put("in.zt", make_zt.encode_1({str(at): {"shape": list(shape), "format": "sparse_coo", "components": {
                "coords": {"dtype": "u64", "data": u64(1, 3), "offset": 64} if at else {"dtype": "u64", "data": u64(1, 3)},
                "values": {"dtype": "f32", "data": f32(5, 6)}}} for at, shape in enumerate(shapes)}))

        self.assertEqual(len(tensors(self.convert(both((5,), (4,))))), 2)
        for options in ([], ["--spec", "2.0"], ["--spec", "2.0", "--canonical"]):
            self.refuse(INVALID, both((5,), (2,)), *options, says=("tensor '1'", "index 1 is 3, beyond the dimension of 2"))

    def test_the_sparse_entry_of_the_reference_writer(self):
        self.assertEqual(self.components(self.convert(REFERENCE / "w010_sparse.zt"), "coo_lucky"),
                         ("sparse_coo", {"coords": u64(0, 1, 3, 4, 1, 2, 0, 3), "values": f32(1, 2, 3, 4)}))

    def test_many_entries(self):
        """More than are read at once, in several chunks, from a stream and raw."""
        count = 200_000
        coo = b"".join(struct.pack("<QQf", i // 500, i % 500, i) for i in range(count))
        for data, encoding in ((coo, "raw"), (make_zt.zstd(coo), "zstd")):
            source = self.put("in.zt", make_zt.encode_01(
                [self.entry("sparsecoo", data, (400, 500), encoding=encoding,
                            checksum=make_zt.digest("sha256", data))]))
            _, found = self.components(self.convert(source))
            self.assertEqual(found["coords"], u64(*(i // 500 for i in range(count)), *(i % 500 for i in range(count))))
            self.assertEqual(found["values"], f32(*range(count)))

    def test_what_nothing_describes_is_refused_by_name_and_the_rest_can_be_had(self):
        dense = {"name": "d", "dtype": "uint8", "shape": [2], "data": b"ab"}
        cases = [
            ({}, UNSUPPORTED, "where its indices lie"),
            ({"sparse_format": "csr", "indptr": [0, 1, 1, 3], "indices": [1, 3, 0]}, UNSUPPORTED, "where its indices lie"),
            ({"layout": "sparsecoo", "data": bytes(41)}, INVALID, "41 bytes"),
            ({"layout": "sparsecoo", "data": u64(3, 0) + f32(1)}, INVALID, "index 0 is 3, beyond the dimension of 3"),
            ({"layout": "sparsecsr", "data": u64(0, 1, 1, 9) + u64(1, 3, 0) + f32(1, 2, 3)}, INVALID, "row pointer is 9"),
            ({"layout": "sparsecsr", "data": u64(0, 1)}, INVALID, "3 rows"),
            ({"layout": "sparsecsr", "shape": [12], "data": u64(0, 1)}, INVALID, "[12]"),
            ({"layout": "sparsecsr", "shape": [2**64 - 1, 1], "data": u64(0, 1)}, INVALID, "rows"),
        ]
        for more, status, says in cases:
            with self.subTest(more):
                entry = {**self.entry("sparse", f32(1, 2, 3)), **more}
                source = self.put("in.zt", make_zt.encode_01([entry, dense]))
                self.refuse(status, source, says=("in.zt", "tensor 's'", says))
                self.assertEqual(list(tensors(self.convert(source, "--exclude", "^s$"))), ["d"])
                self.path("out.zt").unlink()

    def test_indices_of_1_1_become_u64(self):
        codes = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
        for dtype, code in codes.items():
            for packed in (False, True):
                with self.subTest(dtype, packed=packed):
                    def component(kind, data):
                        if not packed:
                            return {"dtype": kind, "data": data}
                        return {"dtype": kind, "data": make_zt.zstd(data), "encoding": "zstd"}
                    source = self.put("in.zt", make_zt.encode_1({"s": {
                        "shape": [2, 120], "format": "sparse_csr", "components": {
                            "indptr": component(dtype, struct.pack(f"<3{code}", 0, 1, 3)),
                            "indices": component(dtype, struct.pack(f"<3{code}", 119, 0, 7)),
                            "values": component("f32", f32(1, 2, 3))}}}, "1.1.0"))
                    self.succeed("verify", source)
                    for spec in ("1.2", "1.1"):
                        entry = tensors(self.convert(source, "--spec", spec))["s"]["components"]
                        self.assertEqual(entry, {"indptr": ("u64", None, u64(0, 1, 3)),
                                                 "indices": ("u64", None, u64(119, 0, 7)),
                                                 "values": ("f32", None, f32(1, 2, 3))})

    def test_a_negative_index_is_refused_by_name(self):
        source = self.put("in.zt", make_zt.encode_1({"s": {
            "shape": [4], "format": "sparse_coo", "components": {
                "coords": {"dtype": "i32", "data": struct.pack("<2i", 1, -1)},
                "values": {"dtype": "f32", "data": f32(1, 2)}}}}, "1.1.0"))
        self.refuse(INVALID, source, says=("in.zt: tensor 's'", "index 1 is negative"))

    def test_sizes_1_1_leaves_open_are_found_and_checked(self):
        def sparse(values, coords):
            return make_zt.encode_1({"s": {"shape": [4, 4], "format": "sparse_coo", "components": {
                "values": {"dtype": "f32", "data": values, "encoding": "zstd"},
                "coords": {"dtype": "u64", "data": coords, "encoding": "zstd"}}}}, "1.1.0")
        values, coords = make_zt.zstd(f32(1, 2)), make_zt.zstd(u64(0, 3, 1, 2))
        self.assertEqual(self.components(self.convert(self.put("in.zt", sparse(values, coords)))),
                         ("sparse_coo", {"coords": u64(0, 3, 1, 2), "values": f32(1, 2)}))
        self.path("out.zt").unlink()
        for bad, says in ((sparse(values[:-2], coords), "cut short"), (sparse(values, coords[:-2]), "cut short"),
                          (sparse(values, make_zt.zstd(u64(0, 3, 1))), "coords")):
            source = self.put("bad.zt", bad)
            self.refuse(INVALID, source, says=("bad.zt: tensor 's'", says))
            self.expect(DIFFERS, "verify", source, says="tensor 's'")
        # What this program writes as 1.1 has a seek table, which tells the size.
        old = self.convert(self.path("in.zt"), "--spec", "1.1", "--zstd", "--min-gain", "-1000", name="old.zt")
        self.succeed("verify", old)
        self.assertEqual(tensors(self.convert(old)), tensors(self.path("in.zt")))
