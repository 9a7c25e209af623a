"""--dtype and --dequantize through the program: the values, what else of an object changes, and what does not."""
import hashlib
import json
import struct

import numpy

import make_zt
from support import DATA, DONE, NUMERIC, EndToEnd, read_zt

GGUF = DATA / "gguf"
EXPECTED = {"quants.gguf": json.loads((GGUF / "expected.json").read_text())["quants.gguf"],
            "kquants.gguf": json.loads((GGUF / "kquants.expected.json").read_text())}


def bf16(values):
    """float32 to the nearest bfloat16, ties to even; no NaN."""
    bits = values.view(numpy.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2")


NARROWER = {"f16": lambda values: values.astype("<f2"), "bf16": bf16}


class Dtype(EndToEnd):

    def test_blocks_become_the_values_that_gguf_py_finds_in_them(self):
        seen = 0
        for name, expected in EXPECTED.items():
            kept = self.converted(GGUF / name)["objects"]
            for tensor, want in expected.items():
                got, kind = kept[tensor], want["ggml_type"].lower()
                plain, data = kind in ("f32", "f16", "bf16"), got["components"]["data"]
                self.assertEqual((got["format"], data["dtype"]), ("dense", kind) if plain else (f"gguf.{kind}/1", "u8"))
                self.assertEqual((list(got["shape"]), hashlib.sha256(data["bytes"]).hexdigest()), (want["shape"], want["stored_sha256"]))
            for threads in "1", "3":
                wide = self.converted(GGUF / name, "--dequantize", "f32", "-T", threads)["objects"]
                self.assertEqual(list(wide), list(kept))
                for tensor, got in wide.items():
                    if not kept[tensor]["format"].startswith("gguf."):
                        self.assertEqual(got["components"]["data"]["bytes"], kept[tensor]["components"]["data"]["bytes"])
                        continue
                    self.assertEqual((got["format"], got["shape"], got["attributes"]), ("dense", kept[tensor]["shape"], {}))
                    data = got["components"]["data"]
                    self.assertEqual(data["dtype"], "f32")
                    if "dequantized_f32_sha256" in expected.get(tensor, {}):
                        seen += 1
                        self.assertEqual(hashlib.sha256(data["bytes"]).hexdigest(),
                                         expected[tensor]["dequantized_f32_sha256"], tensor)
            for dtype, narrow in NARROWER.items():
                for tensor, got in self.converted(GGUF / name, "--dequantize", dtype, "--zstd")["objects"].items():
                    if not kept[tensor]["format"].startswith("gguf."):
                        continue
                    values = numpy.frombuffer(wide[tensor]["components"]["data"]["bytes"], "<f4")
                    self.assertEqual(got["components"]["data"]["dtype"], dtype)
                    self.assertEqual(got["components"]["data"]["bytes"], narrow(values).tobytes(), (tensor, dtype))
        self.assertEqual(seen, 40)

    def test_blocks_that_stay_are_named(self):
        """--dtype makes no numbers of them."""
        blocks = sum(each["format"].startswith("gguf.") for each in self.converted(GGUF / "quants.gguf")["objects"].values())
        says = f"{blocks} tensors stay block types of GGUF, which --dtype does not convert; --dequantize makes numbers of them"
        for options, warnings in ((["--dtype", "f32"], [says]), (["--dtype", "nothing=f32"], None), ([], []),
                                  (["--dequantize", "f32"], []), (["--dequantize", "f32", "--dtype", "bf16"], [])):
            found = self.json("convert", GGUF / "quants.gguf", *options, "-n", "--json")["warnings"]
            if warnings is None:
                self.assertNotIn(says, found)
            else:
                self.assertEqual(found, warnings, options)
        self.expect(DONE, "extract", GGUF / "quants.gguf", "--dtype", "f32", "-o", self.path("x.gguf"), "-n", says=says)

    def test_scales_beside_blocks_are_named(self):
        """llama.cpp multiplies by them what it computes with nvfp4; GGUF says nothing of it."""
        def info(name, size, kind, at):
            return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQIQ", 1, size, kind, at)
        for name in "blk.0.up.weight", "blk.0.up.other":
            header = b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + info(name, 64, 40, 0) + info("blk.0.up.scale", 1, 0, 64)
            source = self.put("in.gguf", header + bytes(-len(header) % 32) + bytes(64) + struct.pack("<f", 2) + bytes(28))
            for command in ["convert", source, "-o", self.path("m.zt")], ["extract", source, "-o", self.path("m.safetensors")]:
                for rule in (["--dequantize", "f32"], []) if command[0] == "convert" else (["--dequantize", "f32"],):
                    said = self.expect(DONE, *command, *rule, "-f").stderr.decode()
                    want = ("ztstream: warning: the numbers of 1 tensor are yet to be multiplied by what lies beside: "
                            "'blk.0.up' has 'blk.0.up.scale'\n")
                    self.assertEqual(want in said, name.endswith("weight") and bool(rule), said)

    def test_sparse_values_change_and_indices_do_not(self):
        for name in "csr.npz", "csc.npz", "coo.npz":
            with self.subTest(name):
                kept = self.converted(DATA / "scipy" / name)["objects"]
                self.assertEqual(len(kept), 1)
                for tensor, got in self.converted(DATA / "scipy" / name, "--dtype", "f16")["objects"].items():
                    want = kept[tensor]
                    self.assertRegex(want["format"], "^sparse_")
                    self.assertEqual((got["format"], got["shape"]), (want["format"], want["shape"]))
                    for role, part in got["components"].items():
                        was = want["components"][role]
                        if role != "values":
                            self.assertEqual((part["dtype"], part["bytes"]), (was["dtype"], was["bytes"]), role)
                            continue
                        values = numpy.frombuffer(was["bytes"], {"f32": "<f4", "f64": "<f8"}[was["dtype"]])
                        self.assertEqual(part["dtype"], "f16")
                        self.assertEqual(part["bytes"], values.astype("<f2").tobytes())

    def test_components_of_other_formats_are_no_elements(self):
        """What is called data or values in a format that is neither dense nor sparse keeps its type."""
        part = {"dtype": "f32", "data": numpy.arange(2, dtype="<f4").tobytes()}
        source = self.put("in.zt", make_zt.encode_1({
            "mine": {"format": "mine/1", "shape": [2], "components": {"values": part, "data": part}},
            "d": {"format": "dense", "shape": [2], "components": {"data": part}}}))
        self.succeed("convert", "-q", "--dtype", "f16", source, "-o", self.path("o.zt"))
        objects = read_zt(self.path("o.zt"))["objects"]
        self.assertEqual({name: {role: each["dtype"] for role, each in entry["components"].items()} for name, entry in objects.items()},
                         {"mine": {"values": "f32", "data": "f32"}, "d": {"data": "f16"}})

    def test_what_a_number_became_is_said_for_each_type(self):
        source = self.safetensors("in.safetensors", {"w": ("F32", [2], numpy.array([1e30, 1], "<f4").tobytes())})
        for element, became in [("f8_e5m2", "infinity"), ("f16", "infinity"), ("f8_e4m3fn", "NaN, for the type has no infinity"),
                                ("f8_e5m2fnuz", "NaN, for the type has no infinity"), ("i8", "the nearest value of its type")]:
            said = self.expect(DONE, "convert", "-f", "--dtype", element, "--on-overflow", "inf", source, "-o", self.path("o.zt")).stderr
            self.assertIn(f"tensor 'w': 1 value did not fit and became {became}\n", said.decode())
        part = {"dtype": "f32", "data": numpy.array([1e30, 1], "<f4").tobytes()}
        index = {"dtype": "u64", "data": numpy.array([0, 1], "<u8").tobytes()}
        sparse = self.put("sparse.zt", make_zt.encode_1(
            {"s": {"format": "sparse_coo", "shape": [2], "components": {"coords": index, "values": part}}}))
        said = self.expect(DONE, "convert", "-f", "--dtype", "f16", "--on-overflow", "inf", sparse, "-o", self.path("o.zt")).stderr
        self.assertIn("tensor 's': 1 value did not fit and became infinity\n", said.decode())

    def test_what_a_type_cannot_hold_is_counted_and_named(self):
        values = numpy.array([1, 1e6, -1e6, numpy.nan, 2], "<f4")
        source, output = self.path("w.npy"), self.path("out.zt")
        numpy.save(source, values)
        self.fail_with(NUMERIC, "convert", "--dtype", "f8_e4m3fn", source, "-o", output,
                       says=("tensor 'w'", "2 values do not fit f8_e4m3fn"))
        self.fail_with(NUMERIC, "convert", "--dtype", "i32", source, "-o", output,
                       says=("tensor 'w'", "1 NaN has no counterpart in i32"))
        self.assertFalse(output.exists())
        (got,) = self.converted(source, "--dtype", "i32", "--on-overflow", "saturate")["objects"].values()
        self.assertEqual(numpy.frombuffer(got["components"]["data"]["bytes"], "<i4").tolist(), [1, 10**6, -10**6, 0, 2])

    def test_a_fraction_is_an_error_of_an_integer_type(self):
        source, output = self.path("w.npy"), self.path("o.zt")
        for values, what in (([0.25, 1, 2.5], "2 values have fractions"), ([1, 2.5], "1 value has a fraction")):
            numpy.save(source, numpy.array(values, "<f4"))
            line = (f"{source}: tensor 'w': {what}, which i8 cannot hold; a change of type does not quantize; --allow-loss drops fractions")
            for options in ([], ["--on-overflow", "saturate"], ["--shards", "1"], ["--canonical"]):
                with self.subTest(options):
                    self.assertEqual(self.fail_with(NUMERIC, "convert", source, "-o", output, "--dtype", "int8", *options),
                                     f"ztstream: {line}\n")
                    self.assertEqual(list(self.folder.glob("o*")), [])
            self.assertEqual(self.fail_with(NUMERIC, "extract", source, "-o", self.path("o.npy"), "--dtype", "int8"),
                             f"ztstream: {line}\n")
        self.succeed("extract", source, "-q", "-o", self.path("o.npy"), "--dtype", "int8", "--allow-loss")
        self.assertEqual(numpy.load(self.path("o.npy")).tolist(), [1, 2])

    def test_what_becomes_zero_in_a_small_float_is_counted(self):
        numpy.save(self.path("w.npy"), numpy.array([0, -0.0, 1e-3, -9e-4, 1e-9, -1, 2.0 ** -10], "<f4"))
        numpy.save(self.path("v.npy"), numpy.array([1e-30, 4], "<f8"))
        for dtype, lost in (("f8_e4m3fn", 3), ("f8_e4m3fnuz", 1), ("f8_e5m2", 1)):
            for threads in "1", "3":
                process = self.run_program("convert", self.path("w.npy"), "-o", self.path("o.zt"), "-f", "--dtype", dtype,
                                           "--json", "-T", threads)
                line = f"tensor 'w': {lost} of 7 values became 0, too small for a float of 8 bits"
                self.assertEqual((process.returncode, process.stderr.decode()), (0, f"ztstream: warning: {line}\n"))
                result = json.loads(process.stdout)
                self.assertEqual(result["numeric"], [{"tensor": "w", "overflow": 0, "nan_lost": 0, "fraction_lost": 0,
                                                      "underflow": lost}])
        error = self.run_program("convert", self.path("w.npy"), self.path("v.npy"), "-o", self.path("o.zt"), "-f", "--dtype",
                                 "f8_e4m3fn").stderr.decode()
        self.assertIn("warning: 2 tensors, 'w' the first: 4 of 9 values became 0, too small for a float of 8 bits\n", error)
        # Wider floats, and zeros, lose nothing.
        for dtype in "f16", "bf16", "f64":
            self.assertEqual(self.json("convert", self.path("w.npy"), "-o", self.path("o.zt"), "-f", "--dtype", dtype, "-q",
                                       "--json")["numeric"], [])

    def test_fractions_that_integers_drop_are_counted(self):
        rows = {"w": numpy.array([0.25, -0.5, 1, 2.5, -128.5, 127.5], "<f4"), "v": numpy.arange(5, dtype="<f8"),
                "u": numpy.array([0.5], "<f8")}
        for name, values in rows.items():
            numpy.save(self.path(name + ".npy"), values)
        line = "tensor 'w': 5 of 6 values lost their fraction in an integer type; --dtype does not quantize"
        process = self.run_program("convert", self.path("w.npy"), self.path("v.npy"), "-o", self.path("o.zt"),
                                   "--dtype", "int8", "--allow-loss", "--json")
        self.assertEqual((process.returncode, process.stderr.decode()), (0, f"ztstream: warning: {line}\n"))
        result = json.loads(process.stdout)
        self.assertEqual(result["warnings"], [line])
        self.assertEqual(result["numeric"], [{"tensor": "w", "overflow": 0, "nan_lost": 0, "fraction_lost": 5,
                                              "underflow": 0}])
        got = read_zt(self.path("o.zt"))["objects"]["w"]["components"]["data"]
        self.assertEqual(numpy.frombuffer(got["bytes"], "i1").tolist(), [0, 0, 1, 2, -128, 127])
        for threads in "1", "3":
            process = self.run_program("convert", *(self.path(name + ".npy") for name in rows), "-o",
                                       self.path(f"{threads}.zt"), "--dtype", "int16", "--allow-loss", "-T", threads, "-q", "--json",
                                       "--shards", "1")
            self.assertEqual(process.stderr, b"")
            self.assertEqual(json.loads(process.stdout)["warnings"],
                             ["2 tensors, 'w' the first: 6 of 7 values lost their fraction in an integer type; "
                              "--dtype does not quantize"])
        # Whole numbers lose nothing, and what does not fit is counted as that alone.
        self.assertEqual(self.json("convert", self.path("v.npy"), "-o", self.path("o.zt"), "-f", "--dtype", "u8",
                                   "--json")["numeric"], [])
        numpy.save(self.path("x.npy"), numpy.array([300.5, -300.5, numpy.nan, numpy.inf, 1.5], "<f4"))
        self.assertEqual(self.json("convert", self.path("x.npy"), "-o", self.path("o.zt"), "-f", "--dtype", "i8", "-q",
                                   "--on-overflow", "saturate", "--allow-loss", "--json")["numeric"],
                         [{"tensor": "x", "overflow": 3, "nan_lost": 1, "fraction_lost": 1, "underflow": 0}])
