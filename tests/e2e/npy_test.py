"""numpy's and scipy's files through the program: every fixture gives the bytes its expected.json says, or is refused.

The tests of the modules do the same piece by piece; here it is what a user runs, checked by the independent reader.
"""
import hashlib
import json
import zipfile

import numpy

from support import DATA, INVALID, UNSUPPORTED, EndToEnd

EXPECTED = json.loads((DATA / "npy/expected.json").read_text())

# numpy's types that are no tensors: what the program says of each.
REFUSED = {
    "datetime": "date and time arrays (dtype '<M8[s]') are not supported; view them as int64",
    "longdouble": "long double (dtype '<f16') differs from machine to machine; save it as float64",
    "object": "object arrays (dtype '|O') are pickles, which run code when they are loaded; save numbers",
    "structured": "structured arrays are not supported; save each field as an array",
    "unicode": "string arrays (dtype '<U1') are not supported",
}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Numpy(EndToEnd):

    def check(self, got, want):
        self.assertEqual(got["format"], "dense")
        data = got["components"]["data"]
        self.assertEqual(list(got["shape"]), want["shape"])
        self.assertEqual(data.get("type") or data["dtype"], want["dtype"])
        self.assertEqual(len(data["bytes"]), want["bytes"])
        self.assertEqual(sha256(data["bytes"]), want["sha256"])

    def test_every_npy_and_npz(self):
        names = [name for name in EXPECTED if not name.startswith("scipy/")]
        self.assertEqual(len(names), 16)
        for name in names:
            with self.subTest(name):
                objects, tensors = self.converted(DATA / name)["objects"], EXPECTED[name]
                self.assertEqual(sorted(objects), sorted(tensors))
                for tensor, want in tensors.items():
                    self.check(objects[tensor], want)

    def test_an_array_of_fields_is_one_arrays_problem(self):
        """Names of fields that numpy escapes, and headers that it does not read itself."""
        kept = numpy.arange(3, dtype="<f4")
        for name, fields in [("nbsp", ["a\xa0b"]), ("newline", ["a\nb"]), ("tab", ["a\tb"]), ("quotes", ["a'\"b"]), ("wide", ["\u20ac"]),
                             ("control", ["\x01\x7f"]), ("many", [f"field_number_{i}" for i in range(400)])]:
            with self.subTest(name):
                source = self.path("s.npz")
                numpy.savez(source, s=numpy.zeros(2, [(field, "<f4") for field in fields] + [("last", "<i2")]), kept=kept)
                self.assertEqual({each["name"] for each in self.json("inspect", "--json", source)["objects"]}, {"s", "kept"})
                self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("x.zt"), says=("tensor 's'", "save each field as an array"))
                objects = self.converted(source, "--exclude", "s")["objects"]
                self.assertEqual({name: entry["components"]["data"]["bytes"] for name, entry in objects.items()}, {"kept": kept.tobytes()})

    def test_arrays_that_are_only_named_as_those_of_a_matrix(self):
        source = self.path("k.npz")
        arrays = {"shape": numpy.array([2, 3]), "data": numpy.ones(3), "weights": numpy.ones(4)}
        numpy.savez(source, format="csr", **arrays)
        self.assertIn(b"lacks entry 'indices'; the arrays of the archive stay as they are",
                      self.run_program("convert", source, "-o", self.path("x.zt")).stderr)
        objects = self.converted(source)["objects"]
        self.assertEqual({name: entry["components"]["data"]["bytes"] for name, entry in objects.items()},
                         {name: array.tobytes() for name, array in arrays.items()})

    def test_a_format_that_is_none_of_a_matrix(self):
        for name in ("abc", "png", "csr2"):
            source = self.path("m.npz")
            numpy.savez(source, format=name.encode(), shape=numpy.array([2, 2]), data=numpy.arange(3), row=numpy.arange(3),
                        col=numpy.arange(3), indices=numpy.arange(3), indptr=numpy.arange(3))
            self.assertEqual(sorted(self.converted(source, "--exclude", "format")["objects"]), ["col", "data", "indices", "indptr", "row", "shape"])

    def test_a_folder_of_npy_is_one_file(self):
        folder = self.path("arrays")
        folder.mkdir()
        want = {}
        for source in (DATA / "npy").glob("*.npy"):
            (folder / source.name).write_bytes(source.read_bytes())
            want.update(EXPECTED["npy/" + source.name])
        objects = self.converted(folder)["objects"]
        self.assertEqual(sorted(objects), sorted(want))
        for name, tensor in want.items():
            self.check(objects[name], tensor)

    def test_a_folder_reads_nothing_outside_itself(self):
        folder = self.path("arrays")
        folder.mkdir()
        outside = self.path("outside.npy")
        (source,) = (DATA / "npy").glob("f4.npy")
        outside.write_bytes(source.read_bytes())
        (folder / "a.npy").symlink_to(outside)
        self.fail_with(INVALID, "convert", folder, "-o", self.path("o.zt"), says=("a.npy", "leaves the folder"))
        self.assertEqual(sorted(self.converted(folder, "--follow-links")["objects"]), ["a"])

    def test_what_is_no_tensor_is_listed_and_can_be_excluded(self):
        good = (DATA / "npy/f4.npy").read_bytes()
        folder = self.path("arrays")
        folder.mkdir()
        with zipfile.ZipFile(self.path("mixed.npz"), "w") as archive:
            for name in ["good", *REFUSED]:
                content = (DATA / f"npy-reject/{name}.npy").read_bytes() if name != "good" else good
                archive.writestr(f"{name}.npy", content)
                (folder / f"{name}.npy").write_bytes(content)
        for source in (self.path("mixed.npz"), folder):
            listed = {item["name"]: item for item in self.json("inspect", "--json", source)["objects"]}
            self.assertEqual(sorted(listed), sorted(["good", *REFUSED]))
            self.assertEqual(listed["good"]["format"], "dense")
            for name, message in REFUSED.items():
                self.assertTrue(listed[name]["format"].startswith("npy."), listed[name])
                self.fail_with(UNSUPPORTED, "convert", source, "--include", name, "-o", self.path("o.zt"),
                               says=(f"tensor '{name}'", message))
            self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("o.zt"))
            self.assertEqual(list(self.converted(source, "--include", "good")["objects"]), ["good"])
            excluded = [word for name in REFUSED for word in ("--exclude", name)]
            self.assertEqual(list(self.converted(source, *excluded)["objects"]), ["good"])

    def test_an_archive_without_arrays(self):
        with zipfile.ZipFile(self.path("none.npz"), "w"):
            pass
        self.assertEqual(self.json("inspect", "--json", self.path("none.npz"))["objects"], [])
        self.assertEqual(self.converted(self.path("none.npz"))["objects"], {})
        with zipfile.ZipFile(self.path("model.keras"), "w") as archive:
            archive.writestr("config.json", b"{}")
        for command in (["inspect"], ["convert", "-o", self.path("o.zt")]):
            self.fail_with(UNSUPPORTED, *command, self.path("model.keras"), says="no .npy array, but 'config.json'")

    def test_sparse_matrices(self):
        want = EXPECTED["scipy/csr.npz"]
        for form in ["csr", "csc", "coo"]:
            with self.subTest(form):
                (matrix,) = self.converted(DATA / f"scipy/{form}.npz")["objects"].values()
                self.assertEqual(matrix["format"], "sparse_coo" if form == "coo" else "sparse_csr")
                self.assertEqual(sha256(self.dense(matrix)), want["dense_equivalent"]["sha256"])
                if matrix["format"] == "sparse_csr":
                    for part, name in [("values", "values"), ("indices", "indices_u64"), ("indptr", "indptr_u64")]:
                        self.assertEqual(sha256(matrix["components"][part]["bytes"]), want["csr." + name]["sha256"])

    def test_a_sparse_array_comes_back_as_one(self):
        for is_array in (True, False):
            numpy.savez(self.path("m.npz"), data=numpy.ones(2, numpy.float32), indices=numpy.array([0, 2]),
                        indptr=numpy.array([0, 1, 2]), shape=numpy.array([2, 3]), format=numpy.array(b"csr"),
                        _is_array=numpy.array(is_array))
            (matrix,) = self.converted(self.path("m.npz"))["objects"].values()
            self.assertEqual(matrix.get("attributes", {}), {"scipy_is_array": True} if is_array else {})
            self.succeed("extract", "-f", self.path("out.zt"), "-o", self.path("back.npz"))
            back = numpy.load(self.path("back.npz"))
            self.assertEqual("_is_array" in back.files, is_array)
            self.assertEqual(back["indices"].tolist(), [0, 2])

    @staticmethod
    def dense(matrix):
        """The bytes of the dense matrix that a sparse one of 4-byte values stands for."""
        rows, cols = matrix["shape"]
        parts = {name: part["bytes"] for name, part in matrix["components"].items()}
        integers = {name: [int.from_bytes(data[i:i + 8], "little") for i in range(0, len(data), 8)]
                    for name, data in parts.items() if name != "values"}
        out = bytearray(rows * cols * 4)
        count = len(parts["values"]) // 4
        if matrix["format"] == "sparse_csr":
            starts = integers["indptr"]
            row_of = [row for row in range(rows) for _ in range(starts[row], starts[row + 1])]
            places = list(zip(row_of, integers["indices"]))
        else:
            coordinates = integers["coords"]
            places = list(zip(coordinates[:count], coordinates[count:]))
        for i, (row, col) in enumerate(places):
            at = (row * cols + col) * 4
            out[at:at + 4] = parts["values"][4 * i:4 * i + 4]
        return bytes(out)

    def test_types_that_numpy_lacks_come_back(self):
        """What extract writes names them in a comment of each entry, which numpy does not read."""
        tensors = {"w": ("F8_E4M3", [2], b"\x3c\x40"), "e": ("F8_E5M2", [1], b"\x3c"), "s": ("BF16", [1], b"\x80\x3f"),
                   "f": ("F32", [1], bytes(4)), "scale": ("F8_E8M0", [3], b"\x7f\x80\x81")}
        model = self.path("m.zt")
        self.succeed("convert", self.safetensors("a.safetensors", tensors), "-o", model)
        self.succeed("extract", model, "-o", "a.npz")
        self.succeed("diff", model, "a.npz")
        self.succeed("diff", model, "a.npz", "--npy-void", "f8_e5m2")  # what was written counts
        self.succeed("verify", model, "--against", "a.npz")
        with numpy.load(self.path("a.npz")) as arrays:
            self.assertEqual({name: arrays[name].dtype.str for name in arrays}, {"w": "|V1", "e": "|V1", "s": "|V2", "f": "<f4", "scale": "|V1"})
        with zipfile.ZipFile(self.path("a.npz")) as archive:
            self.assertIsNone(archive.testzip())
            names = {each.filename: each.comment for each in archive.infolist()}
            self.assertEqual((names["s.npy"], names["f.npy"]), (b"dtype: bf16", b""))
            rest = {each.filename: archive.read(each) for each in archive.infolist()}
        for comment in (b"", b"dtype: nothing", b"a" * 65):
            with zipfile.ZipFile(self.path("b.npz"), "w") as archive:
                for name, data in rest.items():
                    info = zipfile.ZipInfo(name)
                    info.comment = comment
                    archive.writestr(info, data)
            self.fail_with(UNSUPPORTED, "convert", "b.npz", "-o", "x.zt", says="--npy-void")

    def test_every_conversion(self):
        pairs = json.loads((DATA / "convert/expected.json").read_text())
        self.assertEqual(len(pairs), 21)
        for pair, want in pairs.items():
            with self.subTest(pair):
                objects = self.converted(DATA / f"convert/{pair}.npy", "-T1", "--dtype", want["dtype"])["objects"]
                (converted,) = objects.values()
                data = converted["components"]["data"]
                self.assertEqual(data.get("type") or data["dtype"], want["dtype"])
                content = bytearray(data["bytes"])
                if pair == "f64_to_bf16":  # rounded twice there: see tests/data/convert/README.md
                    self.assertEqual(content[1124:1126], b"\xc7\xc2")
                    content[1124] = 0xc8
                self.assertEqual(sha256(content), want["sha256"])

    def test_what_is_no_tensor_is_refused_with_its_reason(self):
        files = sorted((DATA / "npy-reject").glob("*.npy"))
        self.assertEqual([file.stem for file in files], sorted(REFUSED))
        for file in files:
            with self.subTest(file.stem):
                output = self.path(file.stem + ".zt")
                self.fail_with(UNSUPPORTED, "convert", file, "-o", output,
                               says=[f"{file}: tensor '{file.stem}': ", REFUSED[file.stem]])
                self.assertEqual(self.entries(), [])
