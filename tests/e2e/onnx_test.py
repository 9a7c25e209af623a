"""ONNX models through the program: initializers raw, typed and in other files, and what must not be followed."""
import hashlib
import json
import os
import resource
import struct
import subprocess

import numpy

from onnx_assembler import attribute, constant, external, field, graph, model, node, tensor, varint, whole, within
from support import DATA, DONE, INVALID, PATIENCE, PROGRAM, UNSUPPORTED, EndToEnd, read_zt

MODELS = DATA / "onnx"
EXPECTED = json.loads((MODELS / "expected.json").read_text())

RAW = field(9, struct.pack("<2f", 1, 2))


class Onnx(EndToEnd):

    def data(self, *tensors, **options):
        source = self.put("m.onnx", model(*tensors, **options))
        return {name: entry["components"]["data"]["bytes"] for name, entry in self.converted(source)["objects"].items()}

    def test_every_fixture(self):
        for name, expected in EXPECTED.items():
            with self.subTest(name):
                objects = self.converted(MODELS / name)["objects"]
                self.assertEqual(sorted(objects), sorted(expected))
                for tensor_name, (element, shape, sha256) in expected.items():
                    got = objects[tensor_name]["components"]["data"]
                    self.assertEqual([got.get("type") or got["dtype"], list(objects[tensor_name]["shape"])],
                                     [element, shape])
                    self.assertEqual(hashlib.sha256(got["bytes"]).hexdigest(), sha256, tensor_name)

    def test_typed_fields_packed_or_not(self):
        floats = struct.pack("<2f", 3, 4)
        unpacked = b"".join(varint(4 << 3 | 5) + floats[i:i + 4] for i in (0, 4))
        self.assertEqual(self.data(
            tensor("packed", 1, (2,), field(4, floats)), tensor("unpacked", 1, (2,), unpacked),
            tensor("i8", 3, (3,), field(5, varint(-1) + varint(5) + varint(-128))),
            tensor("one by one", 7, (2,), field(7, -3), field(7, 1 << 40)),
            tensor("bf16", 16, (2,), field(5, varint(0x3f80) + varint(0x4000))),
            tensor("empty", 1, (0, 5))),
            {"packed": floats, "unpacked": floats, "i8": b"\xff\x05\x80", "one by one": struct.pack("<2q", -3, 1 << 40),
             "bf16": b"\x80\x3f\x00\x40", "empty": b""})

    def test_typed_numbers_of_any_size_are_decoded_as_they_are_read(self):
        """Of more elements than a chunk, packed, one by one and both, through little memory, in any order."""
        dice = numpy.random.default_rng(5)
        arrays = {"i64": (7, dice.integers(-1 << 63, 1 << 63, 300_000)), "u8": (2, dice.integers(0, 256, 3_000_000, "u1")),
                  "f16": (10, dice.standard_normal(1_000_000).astype("f2")), "bool": (9, dice.integers(0, 2, 500_000) > 0)}
        tensors, floats = [], dice.standard_normal(400_000).astype("<f4")
        for name, (kind, array) in arrays.items():
            numbers = array.view("u2") if kind == 10 else array
            packed = b"".join(map(varint, numbers.tolist()))
            tensors.append(tensor(name, kind, array.shape, field(7 if kind == 7 else 5, packed)))
        one_by_one = b"".join(b"\x25" + struct.pack("<f", one) for one in floats[:1000])
        tensors.append(tensor("f32", 1, floats.shape, field(4, floats[1000:200_000].tobytes()), one_by_one,
                              field(4, floats[200_000:].tobytes())))
        arrays["f32"] = (1, numpy.concatenate([floats[1000:200_000], floats[:1000], floats[200_000:]]))
        source = self.put("m.onnx", model(*tensors))
        for options in ([], ["-T", "1", "--memory", "2MiB"], ["-T", "8", "--zstd", "--chunk", "64KiB"]):
            objects = self.converted(source, *options)["objects"]
            for name, (_, array) in arrays.items():
                self.assertEqual(objects[name]["components"]["data"]["bytes"], array.tobytes(), name)
        shown = self.json("show", "--json", source, "u8[2999990:]")
        self.assertEqual(shown["values"], arrays["u8"][1][2_999_990:].tolist())
        self.succeed("diff", source, self.path("out.zt"))

    def test_metadata_becomes_attributes(self):
        def entries(*pairs):
            return b"".join(field(14, field(1, key) + field(2, text)) for key, text in pairs)

        long = "x" * (3 << 20)
        source = self.put("m.onnx", model(tensor("w", 1, (2,), RAW), more=entries(("author", "me"), ("tokenizer", long))))
        self.assertEqual(self.converted(source)["attributes"], {"author": "me", "tokenizer": long})
        source = self.put("m.onnx", model(tensor("w", 1, (2,), RAW),
                                          more=entries(("a", "1"), ("a", "2"), ("", "3"), ("b", b"\xff"))))
        said = self.expect(DONE, "convert", "-f", source, "-o", self.path("out.zt")).stderr.decode()
        self.assertIn("are left out: 'a', '', 'b'\n", said)
        self.assertEqual(read_zt(self.path("out.zt"))["attributes"], {"a": "1"})

    def test_unsupported_tensors_are_listed_and_can_be_excluded(self):
        for number, says in ((8, "strings"), (0, "no type"), (27, "the number 27"), (1 << 30, "the number 1073741824")):
            source = self.put("m.onnx", model(tensor("w", 1, (2,), RAW), tensor("strange", number, (7,), field(6, "text"))))
            rows = {row["name"]: row for row in self.json("inspect", "--json", source)["objects"]}
            self.assertEqual((rows["strange"]["format"], rows["strange"]["shape"]), ("onnx.other", [7]))
            self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("x.zt"),
                           says=("tensor 'strange'", says, "--exclude"))
            self.succeed("convert", "-f", source, "--exclude", "strange", "-o", self.path("y.zt"))

    def test_a_location_that_is_said_to_be_the_model_itself(self):
        source = self.put("m.onnx", model(tensor("w", 1, (2,), RAW, field(14, 0))))
        self.assertEqual(sorted(self.converted(source)["objects"]), ["w"])

    def test_one_bad_tensor_does_not_condemn_the_model(self):
        bad = {"missing": tensor("", 1, (2,), external(location="none")), "negative": tensor("", 1, (-2,), RAW),
               "rank": tensor("", 1, (1,) * 65, RAW), "short": tensor("", 1, (3,), RAW),
               "huge": tensor("", 1, (1 << 40, 1 << 40), RAW), "offset": tensor("", 1, (2,), external(offset="x"))}
        source = self.put("m.onnx", model(tensor("w", 1, (2,), RAW), *(
            each + field(8, name) for name, each in bad.items()), tensor("", 1, (2,), RAW) + field(8, b"caf\xe9")))
        rows = {row["name"]: row for row in self.json("inspect", "--json", source)["objects"]}
        self.assertEqual(sorted(rows), sorted({"w", r"caf\xe9", *bad}))
        for name in [*bad, r"caf\xe9"]:
            self.fail_with((INVALID, UNSUPPORTED), "convert", source, "--include", "^" + name.replace("\\", "."), "-o",
                           self.path("x.zt"), says=("tensor '" + name.replace("\\", r"\\"), "--exclude leaves it out"))
        self.assertEqual(sorted(self.converted(source, "--include", "^w$")["objects"]), ["w"])

    def test_elements_of_less_than_a_byte_keep_their_bytes(self):
        kinds = {"uint4": 21, "int4": 22, "float4e2m1": 23, "uint2": 25, "int2": 26}
        tensors, want = [], {}
        for name, kind in kinds.items():
            size = 3 if name[-1] in "41" else 2
            tensors += [tensor(name, kind, (5, 1), field(9, bytes(range(size)))),
                        tensor(name + "/typed", kind, (5,), field(5, b"".join(map(varint, [200, 1, 255][:size]))))]
            want[name] = (f"onnx.{name}/1", (5, 1), bytes(range(size)))
            want[name + "/typed"] = (f"onnx.{name}/1", (5,), bytes([200, 1, 255][:size]))
        source = self.put("m.onnx", model(*tensors, tensor("none", 22, (0,))))
        want["none"] = ("onnx.int4/1", (0,), b"")
        for spec in ("1.2", "1.1"):
            objects = self.converted(source, "--spec", spec)["objects"]
            self.assertEqual({name: (entry["format"], tuple(entry["shape"]), entry["components"]["data"]["bytes"])
                              for name, entry in objects.items()}, want)
        self.succeed("convert", "-f", source, "--spec", "2.0", "-o", self.path("2.zt"))
        self.succeed("diff", source, self.path("2.zt"))
        self.fail_with(INVALID, "convert", self.put("m.onnx", model(tensor("w", 22, (5,), field(9, bytes(2))))), "-o",
                       self.path("x.zt"), says=("tensor 'w'", "2 bytes, its shape needs 3"))

    def test_weights_in_nodes_and_in_graphs_within_them(self):
        one, two, three = (field(9, struct.pack("<2f", n, n)) for n in (1, 2, 3))
        inner = graph(constant("deep", tensor("x", 1, (2,), one)), tensors=[tensor("inner", 1, (2,), two)])
        body = graph(within(inner), tensors=[tensor("outer", 1, (2,), three)])
        main = graph(constant("c", tensor("own name", 1, (2,), one)), constant("d", tensor("", 1, (2,), two), "ai.onnx"),
                     within(body, graph(tensors=[tensor("else", 1, (2,), one)])), tensors=[tensor("w", 1, (2,), RAW)])
        function = field(1, "F") + field(7, constant("c", tensor("", 1, (2,), three))) + field(7, within(inner))
        training = field(2, graph(tensors=[tensor("momentum", 1, (2,), two)]))
        source = self.put("m.onnx", whole(main, field(25, function) + field(20, training)))
        objects = {name: struct.unpack("<2f", entry["components"]["data"]["bytes"])[0]
                   for name, entry in self.converted(source)["objects"].items()}
        self.assertEqual(objects, {"c": 1, "d": 2, "deep": 1, "inner": 2, "outer": 3, "else": 1, "w": 1, "F/c": 3,
                                   "F/deep": 1, "F/inner": 2, "momentum": 2})

    def test_numbers_and_tensors_among_the_attributes_of_nodes(self):
        """Weights of ai.onnx.ml and values of Constants; hyperparameters of other operators are none."""
        floats, ints = struct.pack("<3f", 1, 2, 3), varint(-1) + varint(1 << 40)
        ones = b"".join(b"\x3d" + floats[i:i + 4] for i in (0, 4, 8))  # of floats, not packed
        learning = node("LinearRegressor", "y", attribute("coefficients", 6, field(7, floats)), attribute("intercepts", 6, ones),
                        attribute("targets", 2, field(3, 5)), attribute("post_transform", 3, field(4, "NONE")),
                        attribute("treeids", 7, field(8, ints)), attribute("labels", 8, field(9, "a") + field(9, "b")),
                        attribute("empty", 7), attribute("as_tensor", 4, field(5, tensor("own", 1, (2,), RAW))),
                        attribute("tables", 9, field(10, tensor("", 1, (2,), RAW)) + field(10, tensor("", 1, (2,), RAW))),
                        domain="ai.onnx.ml")
        constants = [node("Constant", "f", attribute("value_float", 1, b"\x15" + floats[4:8])),
                     node("Constant", "zero", attribute("value_float", 1)), node("Constant", "i", attribute("value_int", 2, field(3, -7))),
                     node("Constant", "fs", attribute("value_floats", 6, field(7, floats))),
                     node("Constant", "is", attribute("value_ints", 7, field(8, 3) + field(8, 1 << 50))),
                     node("Constant", "ref", attribute("value_floats", 6, field(21, "alpha"))),
                     node("Constant", "s", attribute("value_strings", 8, field(9, "x")))]
        other = node("Conv", "o", attribute("pads", 7, field(8, ints)), attribute("scales", 6, field(7, floats)))
        custom = node("Mine", "m", attribute("w", 4, field(5, tensor("own", 1, (2,), RAW))), domain="mine")
        source = self.put("m.onnx", whole(graph(learning, *constants, other, custom, node("ConstantOfShape", "c", attribute(
            "value", 4, field(5, tensor("", 1, (1,), field(9, bytes(4)))))))))
        process = self.expect(DONE, "convert", source, "-o", self.path("out.zt"))
        self.assertIn("texts among the attributes of nodes are left out: 'y/labels', 's'\n", process.stderr.decode())
        whole_numbers = struct.pack("<2q", -1, 1 << 40)
        self.assertEqual({name: (entry["components"]["data"]["dtype"], list(entry["shape"]), entry["components"]["data"]["bytes"])
                          for name, entry in read_zt(self.path("out.zt"))["objects"].items()}, {
            "y/coefficients": ("f32", [3], floats), "y/intercepts": ("f32", [3], floats), "y/treeids": ("i64", [2], whole_numbers),
            "y/empty": ("i64", [0], b""), "y/as_tensor": ("f32", [2], RAW[2:]), "y/tables/0": ("f32", [2], RAW[2:]),
            "y/tables/1": ("f32", [2], RAW[2:]), "f": ("f32", [], floats[4:8]), "zero": ("f32", [], bytes(4)),
            "i": ("i64", [], struct.pack("<q", -7)), "fs": ("f32", [3], floats), "is": ("i64", [2], struct.pack("<2q", 3, 1 << 50)),
            "m/w": ("f32", [2], RAW[2:])})

    def test_functions_of_one_name(self):
        def function(value, *more):
            return field(25, field(1, "F") + b"".join(more) + field(
                7, constant("c", tensor("", 1, (1,), field(9, struct.pack("<f", value))))))

        source = self.put("m.onnx", whole(graph(), function(1, field(10, "a")) + function(2, field(10, "b")) +
                                          function(3, field(10, "b"), field(13, "v2"))))
        self.assertEqual({name: struct.unpack("<f", entry["components"]["data"]["bytes"])[0]
                          for name, entry in self.converted(source)["objects"].items()}, {"F/c": 1, "b.F/c": 2, "b.F.v2/c": 3})

    def test_a_name_in_two_graphs(self):
        other = field(9, struct.pack("<2f", 9, 9))
        alike, apart = graph(tensors=[tensor("w", 1, (2,), RAW)]), graph(tensors=[tensor("w", 1, (2,), other)])
        longer = graph(tensors=[tensor("w", 1, (1, 2), RAW)])
        source = self.put("m.onnx", whole(graph(within(alike, alike), tensors=[tensor("v", 1, (2,), RAW)])))
        self.assertEqual(sorted(self.converted(source)["objects"]), ["v", "w"])
        for second in (apart, longer):
            source = self.put("m.onnx", whole(graph(within(alike, second), tensors=[tensor("v", 1, (2,), RAW)])))
            self.fail_with(UNSUPPORTED, "convert", "-f", source, "-o", self.path("x.zt"),
                           says=("tensor 'w (2)'", "another of the model's graphs holds a tensor named 'w'", "--exclude"))
            self.assertEqual(sorted(self.converted(source, "--exclude", "^w")["objects"]), ["v"])
            objects = self.converted(source, "--exclude", "2")["objects"]
            self.assertEqual({name: entry["components"]["data"]["bytes"] for name, entry in objects.items()},
                             dict.fromkeys("vw", struct.pack("<2f", 1, 2)))

    def test_names_that_are_alike_once_they_are_escaped(self):
        """Each is listed by a name of its own: nothing goes because something else is left out."""
        source = self.put("m.onnx", model(*(tensor(name, 1, (2,), RAW) for name in (b"a\xff", "a\\xff", "a\\xff", "ok"))))
        rows = [row["name"] for row in self.json("inspect", "--json", source)["objects"]]
        self.assertEqual(rows, ["a\\xff", "a\\xff (2)", "a\\xff (3)", "ok"])
        for left_out in (r"xff$", r"\)$", r"xff$|3"):
            self.fail_with(INVALID, "convert", "-f", source, "--exclude", left_out, "-o", self.path("x.zt"), says="--exclude leaves it out")
        self.assertEqual(sorted(self.converted(source, "--exclude", "xff")["objects"]), ["ok"])

    def test_floats_that_end_within_one(self):
        numbers = struct.pack("<2f", 1, 2)
        for parts in ((numbers[:6], numbers[6:]), (numbers[:3], numbers[3:])):
            body = b"".join(field(4, part) for part in parts)
            self.fail_with(INVALID, "convert", "-f", self.put("m.onnx", model(tensor("w", 1, (2,), body))), "-o", self.path("x.zt"),
                           says=("tensor 'w'", "a field of its numbers ends within a number"))
        body = field(4, numbers[:4]) + field(4, numbers[4:])
        self.assertEqual(self.data(tensor("w", 1, (2,), body)), {"w": numbers})

    def test_sparse_tensors_become_coordinates(self):
        def sparse(values, indices, dims, name="s"):
            numbers = b"".join(map(varint, numpy.ravel(indices).tolist()))
            raw = field(9, numpy.asarray(indices, "<i8").tobytes())
            return [field(1, tensor(name, 1, (len(values),), field(9, numpy.asarray(values, "<f4").tobytes()))) +
                    field(2, tensor("", 7, numpy.shape(indices), data)) + b"".join(field(3, dim) for dim in dims)
                    for data in (field(7, numbers), raw)]

        cells = [[0, 2, 1], [1, 0, 3], [4, 1, 0]]
        for indices, dims, coords in [([1, 4], (5,), [1, 4]), ([[1], [4]], (5,), [1, 4]),
                                      (cells, (5, 3, 4), numpy.transpose(cells)),
                                      ([0 * 12 + 2 * 4 + 1, 12 + 3, 4 * 12 + 4], (5, 3, 4), numpy.transpose(cells)),
                                      ([1, 5], (2, *(1,) * 6, 3), [0, 1] + [0] * 12 + [1, 2]),
                                      (numpy.zeros((0, 2), "i8"), (3, 4), [])]:
            values = numpy.arange(len(indices)) + 1
            for one in sparse(values, indices, dims):
                for main, name in [(graph(sparse=[one]), "s"),
                                   (graph(node("Constant", "k", attribute("sparse_value", 11, field(22, one)))), "k")]:
                    entry = self.converted(self.put("m.onnx", whole(main)))["objects"][name]
                    self.assertEqual((entry["format"], tuple(entry["shape"])), ("sparse_coo", dims))
                    self.assertEqual(entry["components"]["values"]["bytes"], values.astype("<f4").tobytes())
                    self.assertEqual(entry["components"]["coords"]["bytes"], numpy.asarray(coords, "<u8").tobytes())
        for values, indices, dims, says in [([1, 2], [1, 20], (3, 4), "20"), ([1, 2], [1, -1], (3, 4), "tensor 's'"), ([1], [1, 2], (3, 4), "save it dense"),
                                            ([1, 2], [[1], [2]], (3, 4), "save it dense"), ([1], [[1] * 9], (2,) * 9, "save it dense")]:
            for one in sparse(values, indices, dims):
                source = self.put("m.onnx", whole(graph(tensors=[tensor("w", 1, (2,), RAW)], sparse=[one])))
                self.fail_with((INVALID, UNSUPPORTED), "convert", "-f", source, "-o", self.path("x.zt"), says=("tensor 's'", says))
                self.succeed("convert", "-f", source, "--exclude", "s", "-o", self.path("x.zt"))

    def test_models_of_every_version(self):
        rest = model(tensor("w", 1, (2,), RAW))[2:]
        for version in range(1, 32):
            for between in (b"", field(5, 3)):  # the producer's name or the model's version comes second
                source = self.put("m", field(1, version) + between + rest)
                self.assertEqual(self.converted(source)["objects"]["w"]["components"]["data"]["bytes"], RAW[2:])
        for begin in (b"\x08\x01\x12\x05\x0a\x03abc", b"\x08\x01\x12\x85\x80\x04\x0a\x03abc"):
            self.fail_with(UNSUPPORTED, "convert", self.put("m", begin), "-o", self.path("x.zt"), says="a TensorFlow SavedModel")

    def test_names_that_are_many_times_the_file(self):
        several = (attribute(f"a{i}", 6, field(7, bytes(4))) for i in range(350))
        source = self.put("m.onnx", whole(graph(node("LinearRegressor", "\x01" * 22000, *several, domain="ai.onnx.ml"))))
        self.fail_with(UNSUPPORTED, "inspect", source, says="would take more than 256 KiB and 4 times its size")

    def test_a_first_version_without_a_producer(self):
        source = self.put("m", field(1, 1) + field(2, "") + field(7, graph(tensors=[tensor("w", 1, (2,), RAW)])))
        self.assertEqual(self.converted(source)["objects"]["w"]["components"]["data"]["bytes"], RAW[2:])

    def test_a_model_of_onnx_runtime(self):
        self.fail_with(UNSUPPORTED, "inspect", self.put("m.ort", b"\x20\0\0\0ORTM" + bytes(64)), says="an ONNX Runtime model (.ort)")

    def test_a_model_that_is_cut_off(self):
        whole_model = field(1, 8) + field(2, "test") + field(7, graph(tensors=[tensor("w", 1, (2,), RAW)]))
        for cut in range(9, len(whole_model)):  # from within the graph's field on
            self.fail_with(INVALID, "inspect", self.put("m.onnx", whole_model[:cut]), says="the file is truncated")

    def test_a_model_without_weights(self):
        process = self.expect(DONE, "convert", self.put("m.onnx", whole(graph(node("Identity", "y")))), "-o", self.path("x.zt"))
        self.assertIn("the model holds no weights", process.stderr.decode())

    def test_an_attribute_twice(self):
        value = attribute("value", 4, field(5, tensor("", 1, (2,), RAW)))
        source = self.put("m.onnx", whole(graph(node("Constant", "y", value, value), constant("z", tensor("", 1, (2,), RAW)))))
        self.fail_with(INVALID, "convert", source, "-o", self.path("x.zt"), says=("tensor 'y (2)'", "named 'y'", "--exclude"))
        self.assertEqual(list(self.converted(source, "--exclude", "^y")["objects"]), ["z"])

    def test_numbers_in_the_wrong_place_are_not_taken(self):
        """Protobuf ignores a field of another wire type, and an attribute's type says which of its fields counts."""
        floats, doubles = struct.pack("<2f", 1, 2), struct.pack("<2d", 1, 2)
        one, eight = varint(2 << 3 | 5) + floats[:4], b"".join(varint(10 << 3 | 1) + doubles[i:i + 8] for i in (0, 8))
        self.assertEqual(self.data(tensor("d", 11, (2,), eight)), {"d": doubles})
        for main in (graph(tensors=[tensor("x", 1, (2,), varint(4 << 3 | 1) + floats)]),
                     graph(tensors=[tensor("x", 11, (1,), varint(10 << 3 | 5) + floats[:4] + varint(10 << 3 | 5) + floats[4:])]),
                     graph(node("Constant", "x", attribute("value_floats", 6, one))),
                     graph(node("Constant", "x", attribute("value_float", 1, field(7, floats[:4])))),
                     graph(node("Constant", "x", attribute("value_int", 2, field(8, 3)))),
                     graph(node("Constant", "x", attribute("value_ints", 7, field(3, 3))))):
            self.fail_with(INVALID, "convert", self.put("m.onnx", whole(main)), "-o", self.path("x.zt"),
                           says=("tensor 'x'", "data", "--exclude"))

    def test_deep_graphs_are_refused(self):
        def nested(levels):
            inside = graph(tensors=[tensor("w", 1, (2,), RAW)])
            for _ in range(levels):
                inside = graph(within(inside))
            return self.put("m.onnx", whole(inside))

        self.assertEqual(sorted(self.converted(nested(64))["objects"]), ["w"])
        self.fail_with(UNSUPPORTED, "convert", nested(65), "-o", self.path("y.zt"), says="deeper than 64 levels")
        self.fail_with(UNSUPPORTED, "convert", nested(2000), "-o", self.path("y.zt"), says="deeper than 64 levels")
        long = field(25, field(1, "f" * 257) + field(7, constant("c", tensor("", 1, (2,), RAW))))
        self.fail_with(UNSUPPORTED, "convert", self.put("m.onnx", whole(graph(), long)), "-o", self.path("y.zt"),
                       says="longer than 256 bytes")

    def test_many_small_fields_take_little_memory(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))

        for body, says in ((field(7, b"\x2a\0" * 5000000), "more than 262144 tensors"),
                           # A long name, which each of the values gets.
                           (field(7, field(1, node("Constant", "n" * (1 << 20)) + b"\x2a\x02\x2a\0" * 400000)),
                            "names of its tensors"),
                           (field(7, field(5, field(8, "w") + b"\x6a\0" * 5000000)), ""),
                           (field(7, field(5, field(8, "w") + b"\x25\0\0\0\0" * 5000000)), ""),
                           (b"\x72\0" * 5000000 + field(7, b""), "")):
            source = self.put("m.onnx", field(1, 8) + field(2, "test") + body)
            done = subprocess.run([PROGRAM, "inspect", source], capture_output=True, timeout=PATIENCE, preexec_fn=limit)
            if b"Sanitizer" in done.stderr:
                self.skipTest("the sanitizers need more address space than the limit leaves")
            self.assertEqual(done.returncode, UNSUPPORTED if says else DONE, (says, done.stderr[:500]))
            self.assertIn(says, done.stderr.decode())

    def test_a_file_for_each_tensor(self):
        """More files than a process may open unless it asks for more."""
        tensors = []
        for i in range(300):
            self.put(f"w{i}", struct.pack("<2f", i, 0))
            tensors.append(tensor(f"w{i}", 1, (2,), external(location=f"w{i}")))
        source = self.put("m.onnx", model(*tensors))
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        done = subprocess.run([PROGRAM, "convert", source, "-o", self.path("o.zt")], capture_output=True, timeout=PATIENCE,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, most)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(read_zt(self.path("o.zt"))["objects"]), 300)

    def test_external_data_stays_in_the_folder(self):
        secret = self.put("secret", bytes(64))
        self.put("m/weights", bytes(64))
        self.put("m/below/weights", bytes(64))
        (self.path("m") / "link").symlink_to(secret)
        (self.path("m") / "inner").symlink_to("weights")
        (self.path("m") / "up").symlink_to("..")
        os.mkfifo(self.path("m") / "pipe")

        def attempt(status, says=(), dims=(2,), follow=False, **entries):
            source = self.put("m/m.onnx", model(tensor("w", 1, dims, external(**entries))))
            options = ["--follow-links"] if follow else []
            if status == 0:
                return self.succeed("convert", "-f", source, *options, "-o", self.path("x.zt"))
            return self.fail_with(status, "convert", "-f", source, *options, "-o", self.path("y.zt"), says=says)

        attempt(0, location="weights")
        attempt(0, location="below/weights", offset=56, length=8)
        attempt(0, location="inner")  # a link that stays inside
        for location in ("../secret", "/etc/passwd", str(secret), "below/../../secret"):
            with self.subTest(location):
                attempt(INVALID, "is not followed", location=location)
                attempt(INVALID, "is not followed", follow=True, location=location)
        for location in ("link", "up/secret"):
            with self.subTest(location):
                attempt(INVALID, "--follow-links", location=location)
                attempt(0, follow=True, location=location)
        attempt(INVALID, "is missing; put it into the model's folder; --exclude leaves it out", location="none")
        attempt(INVALID, "regular file", location="below")
        attempt(INVALID, "regular file", location="pipe")
        attempt(INVALID, "without a name", location="")
        attempt(INVALID, "ends at byte 65, the file 'weights' at byte 64", location="weights", offset=57)
        attempt(INVALID, f"ends at byte {1 << 63}, the file", location="weights", offset=(1 << 63) - 8)
        attempt(INVALID, "ends at byte 2^64 or beyond it", location="weights", offset=(1 << 64) - 8)
        attempt(INVALID, "offset", location="weights", offset=-1)
        attempt(INVALID, "offset", location="weights", offset="x")
        attempt(INVALID, "9 bytes", location="weights", length=9)
        attempt(INVALID, "ends at byte", dims=(1 << 40,), location="weights")
        data = model(tensor("w", 1, (2,), external(location="weights")))
        source = self.put("m/m.onnx", data)
        with open(source, "rb") as file:
            process = self.run_program("convert", "-", "-o", self.path("z.zt"), stdin=file.read())
        self.assertEqual(process.returncode, UNSUPPORTED)

    def test_hostile_models(self):
        good = tensor("w", 1, (2,), RAW)
        for name, status, data in [
                ("no graph", INVALID, field(1, 8) + field(2, "test")),
                ("cut off", INVALID, model(good)[:-1]),
                ("a field beyond its message", INVALID, field(1, 8) + field(2, "x") + field(7, varint(5 << 3 | 2) + varint(99))),
                ("a length of 2^63", INVALID, field(1, 8) + b"\x12\x01x" + varint(7 << 3 | 2) + varint(1 << 63)),
                ("a number of eleven bytes", INVALID, field(1, 8) + b"\x12\x01x" + b"\x38" + b"\xff" * 11),
                ("field 0", INVALID, field(1, 8) + b"\x12\x01x\x00\x00"),
                ("a group", INVALID, field(1, 8) + b"\x12\x01x" + varint(7 << 3 | 3)),
                ("a name twice", INVALID, model(good, good)),
                ("a negative dimension", INVALID, model(tensor("w", 1, (-2,), RAW))),
                ("a size that overflows", INVALID, model(tensor("w", 1, (1 << 40, 1 << 40), RAW))),
                ("raw data too short", INVALID, model(tensor("w", 1, (3,), RAW))),
                ("raw data too long", INVALID, model(tensor("w", 1, (1,), RAW))),
                ("no data", INVALID, model(tensor("w", 1, (2,)))),
                ("raw and typed data", INVALID, model(tensor("w", 1, (2,), RAW, field(4, bytes(8))))),
                ("data of two types", INVALID, model(tensor("w", 1, (2,), field(4, bytes(8)), field(10, bytes(8))))),
                ("data of another type", INVALID, model(tensor("w", 1, (2,), field(7, b"\1\2")))),
                ("floats cut off", INVALID, model(tensor("w", 1, (2,), field(4, bytes(7))))),
                ("too few numbers", INVALID, model(tensor("w", 7, (1 << 40,), field(7, b"\1\2")))),
                ("one number too few", INVALID, model(tensor("w", 7, (3,), field(7, b"\x81\1\2")))),
                ("one number too many", INVALID, model(tensor("w", 7, (1,), field(7, b"\1\2")))),
                ("a number cut off", INVALID, model(tensor("w", 7, (2,), field(7, b"\1\x82")))),
                ("an unknown type", UNSUPPORTED, model(tensor("w", 99, (2,), RAW))),
                ("65 dimensions", UNSUPPORTED, model(tensor("w", 1, (1,) * 65, RAW)))]:
            with self.subTest(name):
                source = self.put("h.onnx", data)
                self.fail_with(status, "convert", "--from", "onnx", source, "-o", self.path("h.zt"))
                self.assertFalse(self.path("h.zt").exists())
