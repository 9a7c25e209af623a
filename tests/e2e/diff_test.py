"""diff and verify --against: what differs, by how much, and the exit status that says so."""
import json
import resource
import struct

import numpy

import make_safetensors
import make_zt
import support
from support import DATA, DIFFERS, DONE, INVALID, IO, NUMERIC, UNSUPPORTED, USAGE


def tensor(dtype, array):
    return (dtype, list(array.shape), array.tobytes())


class Diff(support.EndToEnd):

    def put_tensors(self, name, tensors):
        return self.safetensors(name, tensors)

    def timed(self, *arguments):
        """The finished process and the seconds of processor time it took."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = self.run_program(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return process, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def differences(self, a, b):
        process = self.run_program("diff", "--json", a, b)
        result = json.loads(process.stdout)
        self.assertEqual(process.returncode, DONE if result["equal"] else DIFFERS, process.stderr)
        self.assertEqual(result["equal"], not result["differences"])
        return result["differences"]

    def test_equal_across_formats(self):
        source = DATA / "npz/stored.npz"
        self.succeed("extract", source, "-o", self.path("out.npz"))
        self.assertIn(b"equal: ", self.succeed("diff", source, self.path("out.npz")))
        self.assertEqual(self.differences(DATA / "gguf/little.gguf", DATA / "gguf/little.gguf"), [])

    def test_every_kind_of_difference(self):
        base = {"same": ("F32", [2], bytes(8)), "left": ("U8", [1], b"x"), "shape": ("F32", [2, 1], bytes(8)),
                "type": ("F16", [2], bytes(4)), "both": ("F16", [2], bytes(4))}
        other = {"same": ("F32", [2], bytes(8)), "right": ("U8", [1], b"x"), "shape": ("F32", [1, 2], bytes(8)),
                 "type": ("BF16", [2], bytes(4)), "both": ("F32", [3], bytes(12))}
        a, b = self.put_tensors("a.safetensors", base), self.put_tensors("b.safetensors", other)
        self.assertEqual(self.differences(a, b), [
            {"tensor": "left", "kind": "only_first"},
            {"tensor": "shape", "kind": "shape", "first": "[2, 1]", "second": "[1, 2]"},
            {"tensor": "type", "kind": "dtype", "component": "data", "first": "f16", "second": "bf16", "equal_values": True},
            {"tensor": "both", "kind": "shape", "first": "[2]", "second": "[3]"},
            {"tensor": "both", "kind": "dtype", "component": "data", "first": "f16", "second": "f32"},
            {"tensor": "right", "kind": "only_second"}])

    def test_values(self):
        rng = numpy.random.default_rng(1)
        cases = {}
        for dtype, name in [("<f8", "F64"), ("<f4", "F32"), ("<f2", "F16"), ("<i8", "I64"), ("<u8", "U64"),
                            ("|i1", "I8"), ("|u1", "U8"), ("<u2", "U16")]:
            array = rng.integers(0, 100, 3_000_000).astype(dtype)
            changed = array.copy()
            where = rng.choice(array.size, 17, replace=False)
            changed[where] += rng.integers(1, 20, 17).astype(dtype)
            cases[name] = (array, changed)
        a = self.put_tensors("a.safetensors", {k: tensor(k, v[0]) for k, v in cases.items()})
        b = self.put_tensors("b.safetensors", {k: tensor(k, v[1]) for k, v in cases.items()})
        found = {row["tensor"]: row for row in self.differences(a, b)}
        self.assertEqual(sorted(found), sorted(cases))
        for name, (array, changed) in cases.items():
            self.assertEqual(found[name]["elements"], array.size)
            self.assertEqual(found[name]["differing"], 17)
            self.assertEqual(found[name]["largest"],
                             numpy.abs(array.astype("f8") - changed.astype("f8")).max(), name)

    def test_extremes(self):
        nan1, nan2 = struct.pack("<I", 0x7fc00000), struct.pack("<I", 0x7fc00001)
        f = lambda *v: struct.pack(f"<{len(v)}f", *v)
        inf = float("inf")
        rows = {
            "same nan": ("F32", nan1, nan1), "other nan": ("F32", nan1, nan2), "zero": ("F32", f(0.0), f(-0.0)),
            "inf": ("F32", f(inf, 1), f(1, 1)), "i64": ("I64", struct.pack("<q", -2**63), struct.pack("<q", 2**63 - 1)),
            "one": ("U64", struct.pack("<Q", 2**63), struct.pack("<Q", 2**63 + 1)),
            "complex": ("C64", f(3, 4), f(0, 0)), "bool": ("BOOL", b"\0\1", b"\1\1"),
            "bf16": ("BF16", b"\x80\x3f", b"\0\x40"), "f8": ("F8_E4M3", b"\x38", b"\x40")}
        width = {"F32": 4, "I64": 8, "U64": 8, "C64": 8, "BOOL": 1, "BF16": 2, "F8_E4M3": 1}
        files = [self.put_tensors(f"{side}.safetensors", {
            k: (r[0], [len(r[side]) // width[r[0]]], r[side]) for k, r in rows.items()}) for side in (1, 2)]
        found = {row["tensor"]: row for row in self.differences(*files)}
        self.assertNotIn("same nan", found)
        self.assertEqual((found["other nan"]["nan"], found["other nan"].get("largest")), (1, None))
        self.assertEqual(found["zero"]["largest"], 0)
        self.assertEqual((found["inf"]["largest"], found["inf"]["differing"]), ("inf", 1))
        self.assertEqual(found["i64"]["largest"], float(2**64))
        self.assertEqual(found["one"]["largest"], 1)
        self.assertEqual((found["complex"]["largest"], found["complex"]["elements"]), (5, 1))
        self.assertEqual((found["bool"]["differing"], found["bool"].get("largest")), (1, None))
        self.assertEqual(found["bf16"]["largest"], 1)
        self.assertEqual(found["f8"]["largest"], 1)

    def test_packed_elements_have_their_logical_shape(self):
        for dtype, first, second, size in (("F4", [2, 2], [4, 1], 2), ("F4", [4, 1, 1], [4, 1], 2),
                                           ("F6_E2M3", [4, 4], [2, 8], 12)):
            a = self.put_tensors("a.safetensors", {"w": (dtype, first, bytes(size))})
            b = self.put_tensors("b.safetensors", {"w": (dtype, second, bytes(size))})
            self.assertEqual(self.differences(a, b), [
                {"tensor": "w", "kind": "shape", "first": str(first), "second": str(second)}])
            self.assertEqual(self.differences(a, a), [])
            self.succeed("convert", a, "-o", self.path("a.zt"), "-f", "-q")
            self.expect(DIFFERS, "verify", self.path("a.zt"), "--against", b,
                        says=f"shape {first} in the file, {second} in the source")

    def test_a_logical_shape_that_is_no_shape_is_an_attribute(self):
        def model(name, value):
            return self.put(name, make_zt.encode_1({"w": {
                "shape": [2], "components": {"data": {"dtype": "u8", "data": b"xy"}}, "attributes": {"logical_shape": value}}}))
        def row(first, second):
            return [{"tensor": "w", "kind": "attribute", "attribute": "logical_shape", "first": first, "second": second}]
        for first, second, want in (
                ({"x": 1, "y": 2}, {"y": 2, "x": 1}, []), ([1, {"x": 1, "y": 2}], [1, {"y": 2, "x": 1}], []),
                ({"x": 1}, {"x": 2}, row('{"x":1}', '{"x":2}')), ([1, -2], [1, -3], row("[1,-2]", "[1,-3]")),
                ("4", [2], row('"4"', "[2]")), ([float("nan")], [float("nan")], []),
                ([4], [2, 2], [{"tensor": "w", "kind": "shape", "first": "[4]", "second": "[2, 2]"}])):
            self.assertEqual(self.differences(model("a.zt", first), model("b.zt", second)), want, (first, second))

    def test_attributes_of_tensors(self):
        def model(name, attributes, values=b"same"):
            return self.put(name, make_zt.encode_1({"w": {
                "shape": [4], "components": {"data": {"dtype": "u8", "data": values}}, "attributes": attributes}}))
        a = model("a.zt", {"scale": 2.0, "axis": 0, "note": {"x": 1, "y": float("nan")}, "gone": "x", "int": 3})
        b = model("b.zt", {"scale": 3.0, "axis": 0, "note": {"y": float("nan"), "x": 1}, "new": [1], "int": 3.0}, b"sane")
        self.assertEqual(self.differences(a, b), [
            {"tensor": "w", "kind": "attribute", "attribute": "gone", "first": '"x"'},
            {"tensor": "w", "kind": "attribute", "attribute": "int", "first": "3", "second": "3.0"},
            {"tensor": "w", "kind": "attribute", "attribute": "new", "second": "[1]"},
            {"tensor": "w", "kind": "attribute", "attribute": "scale", "first": "2.0", "second": "3.0"},
            {"tensor": "w", "kind": "values", "component": "data", "elements": 4, "differing": 1,
             "at": [2], "first": 109, "second": 110, "largest": 1.0, "relative": 1 / 110, "rms": 0.5}])
        process = self.expect(DIFFERS, "diff", a, b)
        lines = process.stdout.decode().splitlines()
        self.assertEqual(lines[0], f"tensor 'w': attribute 'gone' \"x\" in {a}, none in {b}")
        self.assertEqual(lines[3], f"tensor 'w': attribute 'scale' 2.0 in {a}, 3.0 in {b}")
        self.expect(DIFFERS, "verify", a, "--against", b, says="attribute 'scale' 2.0 in the file, 3.0 in the source")
        self.assertEqual(self.differences(a, a), [])
        # An empty map of them is none.
        self.assertEqual(self.differences(model("a.zt", {}), self.put_tensors("b.safetensors", {"w": ("U8", [4], b"same")})), [])

    def test_many_differences_are_told_in_part(self):
        a, b = (self.put_tensors(f"{side}.safetensors", {f"t{n:03}": ("U8", [1], bytes([side])) for n in range(30)})
                for side in (0, 1))
        self.succeed("convert", a, "-o", self.path("a.zt"), "-q")
        process = self.run_program("verify", self.path("a.zt"), "--against", b)
        lines = process.stderr.decode().splitlines()
        self.assertEqual((process.returncode, len(lines)), (DIFFERS, 21))
        self.assertIn("tensor 't019': 1 of 1 elements differ", lines[19])
        self.assertEqual(lines[20], f"ztstream: {self.path('a.zt')}: and 10 more differences; --json lists all")
        process = self.run_program("verify", self.path("a.zt"), "--against", b, "--json")
        self.assertEqual(len(json.loads(process.stdout)["differences"]), 30)

    def test_a_complex_number_with_a_nan_part(self):
        nan = float("nan")
        rows = {"other part": ((1, nan), (3, nan), 2, None), "nan part": ((1, nan), (1, 2), None, 1),
                "both parts": ((1, nan), (5, 0), 4, 1), "neither": ((1, nan), (1, nan), None, None)}
        files = [self.put_tensors(f"{side}.safetensors", {
            name: ("C64", [1], struct.pack("<2f", *row[side])) for name, row in rows.items()}) for side in (0, 1)]
        found = {row["tensor"]: (row.get("largest"), row.get("nan")) for row in self.differences(*files)}
        self.assertEqual(found, {name: row[2:] for name, row in rows.items() if row[2] or row[3]})

    def test_tied_weights_are_compared_once(self):
        blob = numpy.arange(1 << 18, dtype="<f4")
        changed = blob.copy()
        changed[7] += 2
        count = 20_000
        files = [self.safetensors(f"{name}.safetensors", {"t0": tensor("F32", data)},
                                  ties={f"t{i}": "t0" for i in range(1, count)}) for name,
                 data in (("a", blob), ("b", changed))]
        process, seconds = self.timed("diff", *files, "--json")
        result = json.loads(process.stdout)
        self.assertEqual((result["tensors"], result["bytes_compared"]), (count, count << 20))
        self.assertEqual({(row["differing"], row["largest"]) for row in result["differences"]}, {(1, 2)})
        self.assertEqual(len(result["differences"]), count)
        self.assertLess(seconds, 10, "20 GB of each side, in 1 MiB")

    def test_trailing_bytes_of_a_pipe_are_an_error(self):
        data = make_safetensors.encode({"w": ("F32", [1], bytes(4))})
        a = self.put("a.safetensors", data)
        for order in (("-", a), (a, "-")):
            self.fail_with(INVALID, "diff", *order, stdin=data + b"x", says="standard input")

    def test_many_components_of_one_object(self):
        file = self.put("many.zt", make_zt.encode_1({
            "blob": {"shape": [1], "components": {"data": {"dtype": "u8", "data": b"x"}}},
            "x": {"shape": [1], "format": "some/1", "components": {
                f"c{i:06d}": {"dtype": "u8", "offset": 64, "data": b""} for i in range(80_000)}}}))
        process, seconds = self.timed("diff", file, file)
        self.assertIn(b"equal: 2 tensors", process.stdout, process.stderr)
        self.assertLess(seconds, 10, "more than linear")

    def test_sparse_components(self):
        self.succeed("extract", DATA / "scipy/csr.npz", "-o", self.path("csr.npz"))
        self.assertEqual(self.differences(DATA / "scipy/csr.npz", self.path("csr.npz")), [])

    def test_where_and_how_much(self):
        rng = numpy.random.default_rng(3)
        first = rng.normal(0, 1, (40, 50, 60)).astype("<f4")
        second = first.copy()
        second.flat[rng.choice(first.size, 70, replace=False)] += numpy.float32(0.25)
        second[7, 8, 9] = first[7, 8, 9] + numpy.float32(2)
        a = self.put_tensors("a.safetensors", {"w": tensor("F32", first)})
        b = self.put_tensors("b.safetensors", {"w": tensor("F32", second)})
        places = numpy.argwhere(first != second)
        x, y = first.astype("f8"), second.astype("f8")
        errors = numpy.abs(x - y)
        (row,) = self.differences(a, b)
        rms = row.pop("rms")
        self.assertEqual(row, {
            "tensor": "w", "kind": "values", "component": "data", "elements": first.size, "differing": len(places),
            "at": places[0].tolist(), "first": float(x[tuple(places[0])]), "second": float(y[tuple(places[0])]),
            "largest": errors.max(), "relative": (errors / numpy.abs(y)).max()})
        self.assertAlmostEqual(rms, numpy.sqrt((errors ** 2).mean()), delta=1e-14)
        result = json.loads(self.expect(DIFFERS, "diff", "--json", a, b).stdout)
        self.assertEqual((result["largest_error"], result["relative_error"]), ({"value": row["largest"], "tensor": "w"},
                                                                   {"value": row["relative"], "tensor": "w"}))

    def test_integers_that_no_float_holds(self):
        """They are compared with floats as they are, not rounded to f64."""
        inf, nan = float("inf"), float("nan")
        for code, whole, float_code, other, largest in (
                ("q", 2**53 + 1, "d", 2.0**53, 1), ("q", 2**53, "d", 2.0**53, None), ("q", 2**63 - 1, "d", 2.0**63, 1),
                ("q", -2**63, "d", -2.0**63, None), ("Q", 2**64 - 1, "f", 2.0**64, 1), ("Q", 2**63 + 2**39, "f", 2.0**63, 2.0**39),
                ("q", 3, "d", 3.5, 0.5), ("q", -3, "d", -2.5, 0.5), ("Q", 0, "d", 5e-324, 5e-324), ("q", 7, "d", 1e300, 1e300),
                ("q", 7, "d", -inf, "inf"), ("q", 7, "d", nan, nan), ("q", 0, "d", -0.0, 0), ("Q", 0, "f", 0.0, None)):
            long = ({"q": "I64", "Q": "U64"}[code], [1], struct.pack("<" + code, whole))
            real = ({"d": "F64", "f": "F32"}[float_code], [1], struct.pack("<" + float_code, other))
            for first, second in ((long, real), (real, long)):
                with self.subTest(whole=whole, other=other, first=first[0]):
                    a, b = (self.put_tensors(f"{side}.safetensors", {"w": each}) for side, each in ((1, first), (2, second)))
                    rows = {row["kind"]: row for row in self.differences(a, b)}
                    self.assertEqual("values" not in rows, rows["dtype"].get("equal_values", False))
                    self.assertEqual("values" not in rows, largest is None)
                    if largest is None:
                        continue
                    row = rows["values"]
                    self.assertEqual(row["differing"], 1)
                    self.assertEqual(row[("first", "second")[first is real]], whole)
                    self.assertEqual(row[("second", "first")[first is real]], str(other) if other in (inf, -inf) or other != other else other)
                    self.assertEqual(row.get("largest"), None if other != other else largest)
                    self.assertEqual((row.get("nan", 0), row.get("zeros", 0)), (int(other != other), int(largest == 0)))
                    # A tolerance of 1 takes what is off by 1, and zeros of both signs.
                    within = "values" not in {row["kind"] for row in json.loads(self.expect(
                        DIFFERS, "diff", "--json", "--atol", "1", a, b).stdout)["differences"]}
                    self.assertEqual(within, largest in (0, 0.5, 1, 5e-324))

    def test_nan_and_signs_of_zero_by_name(self):
        nan1, nan2 = struct.pack("<I", 0x7fc00000), struct.pack("<I", 0xffc00001)
        f = lambda *v: struct.pack(f"<{len(v)}f", *v)
        a = self.put_tensors("a.safetensors", {"w": ("F32", [2, 3], nan1 + f(0.0, -0.0, 1, 7, 3))})
        b = self.put_tensors("b.safetensors", {"w": ("F32", [2, 3], nan2 + f(-0.0, 0.0, float("nan"), 7, float("nan")))})
        lines = self.expect(DIFFERS, "diff", a, b).stdout.decode().splitlines()
        self.assertEqual(lines[0], f"tensor 'w': 5 of 6 elements differ, by at most 0, RMS 0; first at [0, 0]: nan in {a}, nan in "
                         f"{b}; 2 are NaN on one side; 1 is NaN on both, with other bits; 2 are -0 against 0")
        (row,) = self.differences(a, b)
        self.assertEqual({key: row[key] for key in ("differing", "nan", "both_nan", "zeros", "largest", "rms", "first")},
                         {"differing": 5, "nan": 3, "both_nan": 1, "zeros": 2, "largest": 0, "rms": 0, "first": "nan"})
        lines = self.expect(DIFFERS, "diff", "--atol", "0", a, b).stdout.decode().splitlines()
        self.assertEqual(lines[0], f"tensor 'w': 2 of 6 elements differ, by at most 0, RMS 0; first at [1, 0]: 1 in {a}, nan in {b}; "
                         "2 are NaN on one side")

    def test_values_of_two_types(self):
        values = numpy.array([[1.5, -2, 0.1], [0, 3, 65504]], "<f4")
        bf16 = ((values.view("<u4") + 0x8000) >> 16).astype("<u2")
        back = (bf16.astype("<u4") << 16).view("<f4").astype("f8")
        half = values.astype("<f2")
        a = self.put_tensors("a.safetensors", {"w": ("BF16", [2, 3], bf16.tobytes()), "i": ("I32", [2], struct.pack("<2i", -1, 7)),
                                               "c": ("C64", [1], bytes(8)), "x": ("I8", [1], b"\1")})
        b = self.put_tensors("b.safetensors", {"w": ("F16", [2, 3], half.tobytes()), "i": ("I64", [2], struct.pack("<2q", -1, 8)),
                                               "c": ("F64", [1], bytes(8)), "x": ("F32", [1], struct.pack("<f", 1))})
        found = {(row.pop("tensor"), row.pop("kind")): row for row in self.differences(a, b)}
        errors = numpy.abs(back - half.astype("f8"))
        self.assertEqual(found.pop(("w", "values")), {
            "component": "data", "elements": 6, "differing": 2, "at": [0, 2], "first": back[0, 2], "second": float(half[0, 2]),
            "largest": errors.max(), "relative": errors[0, 2] / float(half[0, 2]),
            "rms": numpy.sqrt((errors ** 2).sum() / 6)})
        self.assertEqual(found.pop(("i", "values")), {"component": "data", "elements": 2, "differing": 1, "at": [1], "first": 7,
                                                      "second": 8, "largest": 1, "relative": 1 / 8, "rms": numpy.sqrt(0.5)})
        self.assertEqual(found, {
            ("w", "dtype"): {"component": "data", "first": "bf16", "second": "f16"},
            ("i", "dtype"): {"component": "data", "first": "i32", "second": "i64"},
            ("c", "dtype"): {"component": "data", "first": "complex64", "second": "f64"},
            ("x", "dtype"): {"component": "data", "first": "i8", "second": "f32", "equal_values": True}})
        lines = self.expect(DIFFERS, "diff", a, b).stdout.decode().splitlines()
        self.assertIn(f"tensor 'x': dtype i8 in {a}, f32 in {b}; the values do not differ", lines)
        near = {(row["tensor"], row["kind"]): row for row in json.loads(self.expect(
            DIFFERS, "diff", "--json", "--rtol", "0.01", "--atol", "1", a, b).stdout)["differences"]}
        self.assertTrue(near["w", "dtype"]["equal_values"])
        self.assertNotIn(("i", "values"), near)

    def test_blocks_of_gguf_as_numbers(self):
        for name in ("quants", "kquants"):
            source = DATA / f"gguf/{name}.gguf"
            self.succeed("convert", source, "-o", self.path("f32.zt"), "-f", "-q", "--dequantize", "f32")
            rows = self.differences(source, self.path("f32.zt"))
            self.assertEqual({row["kind"] for row in rows}, {"format"})
            self.assertTrue(all(row["equal_values"] for row in rows))
            self.succeed("convert", source, "-o", self.path("f16.zt"), "-f", "-q", "--dequantize", "bf16")
            values = [row for row in self.differences(source, self.path("f16.zt")) if row["kind"] == "values"]
            self.assertTrue(values)
            self.assertTrue(all(0 < row["relative"] <= 2 ** -8 for row in values), values)
            for kind, file in ("f32", "f32.zt"), ("bf16", "f16.zt"):  # --dequantize: of the type that it names
                for pair in (source, self.path(file)), (self.path(file), source), (source, source):
                    self.assertEqual(self.expect(DONE, "diff", *pair, "--dequantize", kind).stderr, b"")
            self.expect(DIFFERS, "diff", source, self.path("f16.zt"), "--dequantize", "f32")
            self.expect(DONE, "diff", source, self.path("f32.zt"), "--dequantize", "f32", "--include", "glob:*0", "--rename", "s/x/y/")

    def test_tolerances(self):
        a = self.put_tensors("a.safetensors", {"w": ("F32", [3], struct.pack("<3f", 1, 100, 0))})
        b = self.put_tensors("b.safetensors", {"w": ("F32", [3], struct.pack("<3f", 1.25, 101, 0.125))})
        for options, differing in (([], 3), (["--atol", "0.125"], 2), (["--atol", "0.25"], 1), (["--atol", "1"], 0),
                                   (["--rtol", "0.01"], 2), (["--rtol", "0.2"], 1), (["--rtol", "1"], 0),
                                   (["--atol", "0.125", "--rtol", "1e-1"], 0), (["--rtol", "0"], 3)):
            process = self.run_program("diff", "--json", *options, a, b)
            result = json.loads(process.stdout)
            self.assertEqual(process.returncode, DIFFERS if differing else DONE)
            self.assertEqual(sum(row["differing"] for row in result["differences"]), differing, options)
            self.assertEqual(result["largest_error"], {"value": 1, "tensor": "w"})  # within the tolerance, too
        self.assertEqual(self.succeed("diff", "--atol", "1", a, b).decode(), "equal within the tolerance: 1 tensor, 12 B; "
                         "largest error 1 in tensor 'w'; largest relative error 1 in tensor 'w'\n")
        for wrong in ("-1", "x", "nan", "inf", "1 "):
            self.fail_with(USAGE, "diff", "--atol", wrong, a, b, says="--atol: '" + wrong + "' is not a number of at least 0")

    def test_a_summary_and_a_limit(self):
        a, b = (self.put_tensors(f"{side}.safetensors", {f"t{n:03}": ("U8", [1], bytes([side])) for n in range(side, 30)})
                for side in (0, 1))
        last = f"29 of 29 tensors differ; 1 is only in {a}; 29 B compared; largest error 1 in tensor 't001'; " \
               "largest relative error 1 in tensor 't001'"
        lines = self.expect(DIFFERS, "diff", a, b).stdout.decode().splitlines()
        self.assertEqual((len(lines), lines[0], lines[20], lines[21]),
                         (22, f"tensor 't000': only in {a}", "and 10 more differences; -v lists all", last))
        lines = self.expect(DIFFERS, "diff", "-v", a, b).stdout.decode().splitlines()
        self.assertEqual((len(lines), lines[30]), (31, last))
        quiet = self.expect(DIFFERS, "diff", "-q", a, b).stdout.decode().splitlines()  # all but the summary
        self.assertEqual((len(quiet), quiet[0], quiet[20]), (21, f"tensor 't000': only in {a}", "and 10 more differences; -v lists all"))
        self.assertEqual(self.expect(DONE, "diff", "-q", a, a).stdout, b"")
        result = json.loads(self.expect(DIFFERS, "diff", "-q", "--json", a, b).stdout)
        self.assertEqual((result["tensors"], result["differing"], result["only_first"], result["only_second"]), (29, 29, 1, 0))
        self.assertEqual(len(result["differences"]), 30)

    def test_a_selection_and_other_names(self):
        a = self.put_tensors("a.safetensors", {"model.w": ("U8", [1], b"x"), "model.b": ("U8", [1], b"y"), "model.g": ("U8", [1], b"z")})
        b = self.put_tensors("b.safetensors", {"w": ("U8", [1], b"x"), "b": ("U8", [1], b"Y")})
        rename = ["--rename", r"s/^model\.//"]
        def kinds(*options):
            rows = json.loads(self.run_program("diff", "--json", *options, a, b).stdout)["differences"]
            return [(row["tensor"], row["kind"]) for row in rows]
        self.assertEqual(len(kinds()), 5)
        self.assertEqual(kinds(*rename), [("b", "values"), ("g", "only_first")])
        self.assertEqual(kinds(*rename, "--exclude", "g"), [("b", "values")])
        self.assertEqual(kinds(*rename, "--include", "w"), [])  # of both sides by the names of B
        self.assertEqual(sorted(kinds("--include", "glob:model.[wg]")), [("model.g", "only_first"), ("model.w", "only_first")])
        process = self.expect(DIFFERS, "diff", *rename, "--exclude", "nothing", a, b)
        self.assertEqual(process.stderr, b"ztstream: warning: --exclude 'nothing' matches the name of no tensor\n")
        self.expect(USAGE, "diff", "--include", "nothing", a, b, says="leave no tensor")
        self.fail_with(USAGE, "diff", "--rename", "s/[wb]$/x/", a, b, says=("tensor 'model.w'", "tensor 'model.b'", "'model.x'"))

    def test_which_attributes(self):
        def model(name, root, of_tensor):
            return self.put(name, make_zt.encode_1({"w": {"shape": [1], "components": {"data": {"dtype": "u8", "data": b"x"}},
                                                          "attributes": of_tensor}}, attributes=root))
        a = model("a.zt", {"step": 1, "same": 2}, {"scale": 1})
        b = model("b.zt", {"same": 2, "epoch": 3}, {"scale": 2})
        tensors = {"tensor": "w", "kind": "attribute", "attribute": "scale", "first": "1", "second": "2"}
        files = [{"kind": "file_attribute", "attribute": "epoch", "second": "3"}, {"kind": "file_attribute", "attribute": "step", "first": "1"}]
        for options, want in (([], [tensors]), (["--attributes", "tensors"], [tensors]), (["--attributes", "none"], []),
                              (["--attributes", "all"], [tensors, *files])):
            process = self.run_program("diff", "--json", *options, a, b)
            self.assertEqual(json.loads(process.stdout)["differences"], want)
            self.assertEqual(process.returncode, DIFFERS if want else DONE)
        lines = self.expect(DIFFERS, "diff", "--attributes", "all", a, b).stdout.decode().splitlines()
        self.assertEqual(lines[1:], [f"attribute of the file 'epoch' none in {a}, 3 in {b}",
                                     f"attribute of the file 'step' 1 in {a}, none in {b}",
                                     "1 of 1 tensor differs; 2 attributes of the files; 1 B compared"])

    def test_attributes_of_files_of_any_format(self):
        tensors = {"w": ("F32", [1], struct.pack("<f", 1.5))}
        files = [self.safetensors(f"{name}.safetensors", tensors, metadata)
                 for name, metadata in (("a", {"by": "me", "same": "x"}), ("b", {"same": "x", "format": "pt"}), ("none", None))]
        for name in ("a", "b"):
            files.append(self.path(f"{name}.zt"))
            self.succeed("convert", self.path(f"{name}.safetensors"), "-o", files[-1], "-q")
        self.succeed("extract", files[0], "-o", self.path("n.npz"), "-q")
        files.append(self.path("n.npz"))
        attributes = [{"by": '"me"', "same": '"x"'}, {"same": '"x"', "format": '"pt"'}, {}] * 2
        attributes = [*attributes[:3], *attributes[:2], {}]
        for first, a in zip(files, attributes):
            for second, b in zip(files, attributes):
                want = [{"kind": "file_attribute", "attribute": key, **({"first": a[key]} if key in a else {}), **({"second": b[key]} if key in b else {})}
                        for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]
                process = self.run_program("diff", "--attributes", "all", "--json", first, second)
                self.assertEqual(json.loads(process.stdout)["differences"], want, (first, second))
                self.assertEqual(process.returncode, DIFFERS if want else DONE)
                self.succeed("diff", first, second)

    def test_text_and_exit_statuses(self):
        a = self.put_tensors("a.safetensors", {"w": ("F32", [1], struct.pack("<f", 1.5))})
        b = self.put_tensors("b.safetensors", {"w": ("F32", [1], struct.pack("<f", 1.0))})
        process = self.run_program("diff", a, b)
        self.assertEqual((process.returncode, process.stderr), (DIFFERS, b""))
        self.assertEqual(process.stdout.decode(), f"tensor 'w': 1 of 1 elements differ, by at most 0.5, relatively 0.5, RMS 0.5; "
                         f"first at [0]: 1.5 in {a}, 1 in {b}\n1 of 1 tensor differs; 4 B compared; largest error 0.5 in tensor "
                         "'w'; largest relative error 0.5 in tensor 'w'\n")
        self.assertEqual(self.run_program("diff", "-q", a, b).stdout.count(b"\n"), 1)
        one, other = (self.put_tensors(f"{n}.safetensors", {"w": ("F64", [1], struct.pack("<d", v))})
                      for n, v in (("c", 1), ("d", 1 + 2 ** -52)))
        self.assertIn(f"[0]: 1.0 in {one}, 1.0000000000000002 in {other}".encode(), self.run_program("diff", one, other).stdout)
        self.fail_with(IO, "diff", a, self.path("missing"), says="missing")
        self.fail_with(INVALID, "diff", a, self.put("bad", b"nothing"), says="bad")


class AgainstWithRules(support.EndToEnd):
    """verify --against with the rules of convert."""

    def setUp(self):
        super().setUp()
        rng = numpy.random.default_rng(5)
        self.source = self.safetensors("m.safetensors", {
            **{f"model.{name}": tensor("F32", rng.normal(0, 1, (5, 7)).astype("<f4")) for name in ("a", "b", "norm")},
            "model.ids": ("I64", [2], bytes(16)), "model.head": tensor("F32", rng.normal(0, 1, 9).astype("<f4"))})

    def convert(self, *rules, spec="1.2"):
        self.succeed("convert", self.source, "-o", self.path("m.zt"), "-f", "-q", "--spec", spec, *rules)
        return self.path("m.zt")

    def test_a_tensor_that_cannot_be_read_is_named_with_its_file(self):
        refused = DATA / "torch/refuse_conj.pt"
        other = self.safetensors("m.safetensors", {"c": ("F32", [1], bytes(4))})
        self.succeed("convert", other, "-o", self.path("m.zt"))
        for command in [("diff", refused, other), ("diff", other, refused), ("verify", self.path("m.zt"), "--against", refused)]:
            self.fail_with(UNSUPPORTED, *command, says="refuse_conj.pt: tensor 'c': its conj bit is set")

    def test_what_convert_would_have_given(self):
        for rules in (["--dtype", "f16"], ["--dtype", "norm=keep", "--dtype", "bf16"], ["--rename", r"s/^model\.//"],
                      ["--exclude", "head"], ["--include", "glob:model.[ab]", "--dtype", "f8_e4m3fn", "--on-overflow", "saturate"],
                      ["--dtype", "ids=i32", "--rename", "s/model/m/", "--exclude", "norm"]):
            for spec in ("1.2", "2.0"):
                file = self.convert(*rules, spec=spec)
                good = self.succeed("verify", file, "--against", self.source, *rules)
                self.assertRegex(good.decode(), r"; \d tensors equal the source\n$")
                self.expect(DIFFERS, "verify", file, "--against", self.source)
        # other rules than those it was made with
        file = self.convert("--dtype", "f16")
        self.expect(DIFFERS, "verify", file, "--against", self.source, "--dtype", "bf16", says="dtype f16 in the file, bf16 in the source")

    def test_attributes_of_the_file(self):
        tensors = {"w": tensor("F32", numpy.array([1, 2], "<f4"))}
        sources = {name: self.safetensors(f"{name}.safetensors", tensors, metadata) for name, metadata in (
            ("own", {"source": "mine", "epoch": "3"}), ("other", {"source": "OTHER", "epoch": "3"}), ("more", {"source": "mine", "epoch": "3", "x": "y"}),
            ("none", None), ("empty", {}))}
        files = {}
        for spec in ("1.2", "1.1", "2.0"):
            for name, options in (("own", ()), ("bare", ("--no-metadata",)), ("f16", ("--dtype", "f16"))):
                files[name] = self.path(f"{name}-{spec}.zt")
                self.succeed("convert", sources["own"], "-o", files[name], "-q", "--spec", spec, *options)
            self.succeed("verify", files["own"], "--against", sources["own"])
            self.succeed("verify", files["f16"], "--against", sources["own"], "--dtype", "f16")
            self.expect(DIFFERS, "verify", files["f16"], "--against", sources["other"], "--dtype", "f16", says="attribute of the file 'source'")
            for name, says in (("other", '"mine" in the file, "OTHER" in the source'), ("more", "'x' none in the file, \"y\" in the source"),
                               ("none", "'epoch' \"3\" in the file, none in the source")):
                self.expect(DIFFERS, "verify", files["own"], "--against", sources[name], says=says)
            result = json.loads(self.expect(DIFFERS, "verify", files["bare"], "--against", sources["own"], "--json").stdout)
            self.assertEqual([each["kind"] for each in result["differences"]], ["file_attribute"] * 2)
            self.succeed("verify", files["bare"], "--against", sources["own"], "--no-metadata")
            self.succeed("verify", files["bare"], "--against", sources["none"])
            self.expect(DIFFERS, "verify", files["own"], "--against", sources["own"], "--no-metadata", says="in the file, none in the source")
        # version 0.1 has no place for them
        self.succeed("convert", sources["own"], "-o", self.path("old.zt"), "-q", "--spec", "0.1", "--no-metadata")
        self.succeed("verify", self.path("old.zt"), "--against", sources["own"])

    def test_a_wrong_value_shows(self):
        source = self.safetensors("x.safetensors", {"w": tensor("F32", numpy.array([1, 2, 3.001], "<f4"))})
        other = self.safetensors("y.safetensors", {"w": tensor("F32", numpy.array([1, 2, 3.01], "<f4"))})
        self.succeed("convert", source, "--dtype", "f16", "-o", self.path("x.zt"), "-q")
        self.succeed("verify", self.path("x.zt"), "--against", source, "--dtype", "f16")
        self.expect(DIFFERS, "verify", self.path("x.zt"), "--against", other, "--dtype", "f16", says="1 of 3 elements differ")

    def test_dequantized(self):
        source = DATA / "gguf/little.gguf"
        self.succeed("convert", source, "--dequantize", "f16", "-o", self.path("g.zt"), "-q")
        self.succeed("verify", self.path("g.zt"), "--against", source, "--dequantize", "f16")

    def test_numbers_that_do_not_fit(self):
        source = self.safetensors("x.safetensors", {"w": ("F32", [1], struct.pack("<f", 1e6))})
        self.succeed("convert", source, "--dtype", "f16", "--on-overflow", "inf", "-o", self.path("x.zt"), "-q")
        self.expect(NUMERIC, "verify", self.path("x.zt"), "--against", source, "--dtype", "f16", says="tensor 'w': 1 value does not fit f16")
        self.succeed("verify", self.path("x.zt"), "--against", source, "--dtype", "f16", "--on-overflow", "inf")

    def test_rules_may_explain_differences(self):
        for rules in (["--dtype", "f16"], ["--rename", "s/^/x./"], ["--exclude", "head"]):
            file = self.convert(*rules)
            process = self.expect(DIFFERS, "verify", file, "--against", self.source)
            self.assertEqual(process.stderr.decode().splitlines()[-1],
                             f"ztstream: {file}: if it was converted with --dtype, --rename, --exclude, --files or the like, "
                             "give verify the same options")
            self.succeed("verify", file, "--against", self.source, *rules)
        # values alone, and rules that were given, are no such case
        other = self.path("v.safetensors")
        content = bytearray(self.source.read_bytes())
        content[-1] ^= 1
        other.write_bytes(content)
        file = self.convert()
        for words in (["--against", other], ["--against", self.source, "--dtype", "bf16"]):
            self.assertNotIn(b"give verify the same", self.expect(DIFFERS, "verify", file, *words).stderr)

    def test_rules_without_a_source(self):
        file = self.convert()
        self.fail_with(USAGE, "verify", file, "--dtype", "f16", says="--dtype does nothing without --against")
        # before a file is read, which may take long
        damaged = self.put("d.zt", b"damaged")
        self.fail_with(USAGE, "verify", damaged, "--against", self.source, "--rename", "x", says="--rename 'x': it does not begin with s/")
        self.fail_with(IO, "verify", damaged, "--against", self.source, "nosuch", says="nosuch: cannot open: No such file or directory")
        for rule in (("--files", "all"), ("--quant", "group"), ("--from", "npz"), ("--include", "x"), ("--no-metadata",),
                     ("--npy-void", "bf16")):
            self.fail_with(USAGE, "verify", file, *rule, says=f"{rule[0]} does nothing without --against")

    def test_rules_that_leave_no_tensor(self):
        file = self.convert("--rename", r"s/^model\.//")
        self.succeed("verify", file, "--against", self.source, "--rename", r"s/^model\.//", "--include", "^model")
        process = self.expect(USAGE, "verify", file, "--against", self.source, "--rename", r"s/^model\.//", "--include", "^a$",
                              says="--include and --exclude leave no tensor of 5; 'ztstream inspect' lists the names")
        self.assertIn(b"--include '^a$' matches the name of no tensor", process.stderr)
        self.assertNotIn(b"--rename", process.stderr, "it was not asked")

    def test_a_model_without_tensors_has_none_to_leave(self):
        empty, out = DATA / "zt/w123_empty.zt", self.path("e.zt")
        self.succeed("convert", empty, "-o", out, "-q", "--exclude", "w")
        self.succeed("verify", out, "--against", empty, "--exclude", "w")
        self.succeed("diff", out, empty, "--include", "w")
        self.succeed("extract", empty, "-o", self.path("e.npz"), "--dtype", "f16")
        self.succeed("extract", empty, "-o", self.path("x.npz"), "--exclude", "w")
        self.expect(USAGE, "diff", self.source, empty, "--include", "nosuch", says="leave no tensor of 5")
