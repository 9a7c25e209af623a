"""ONNX models through the program: initializers raw, typed and in other files, and what must not be followed."""
import hashlib
import json
import os
import resource
import struct
import subprocess

from onnx_assembler import constant, external, field, graph, model, node, tensor, varint, whole, within
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

    def test_metadata_becomes_attributes(self):
        source = self.put("m.onnx", model(tensor("w", 1, (2,), RAW), more=field(14, field(1, "author") + field(2, "me"))))
        self.assertEqual(self.converted(source)["attributes"]["author"], "me")

    def test_unsupported_tensors_are_listed_and_can_be_excluded(self):
        for number, says in ((8, "strings"), (25, "the number 25"), (1 << 30, "the number 1073741824")):
            source = self.put("m.onnx", model(tensor("w", 1, (2,), RAW), tensor("strange", number, (1,), field(6, "text"))))
            self.assertIn(b"strange", self.succeed("inspect", source))
            self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("x.zt"), says=("tensor 'strange'", says))
            self.succeed("convert", "-f", source, "--exclude", "strange", "-o", self.path("y.zt"))

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

    def test_a_name_in_two_graphs(self):
        other = field(9, struct.pack("<2f", 9, 9))
        alike, apart = graph(tensors=[tensor("w", 1, (2,), RAW)]), graph(tensors=[tensor("w", 1, (2,), other)])
        longer = graph(tensors=[tensor("w", 1, (1, 2), RAW)])
        source = self.put("m.onnx", whole(graph(within(alike, alike), tensors=[tensor("v", 1, (2,), RAW)])))
        self.assertEqual(sorted(self.converted(source)["objects"]), ["v", "w"])
        for second in (apart, longer):
            source = self.put("m.onnx", whole(graph(within(alike, second), tensors=[tensor("v", 1, (2,), RAW)])))
            self.fail_with(UNSUPPORTED, "convert", "-f", source, "-o", self.path("x.zt"),
                           says=("tensor 'w'", "two of the model's graphs"))
            self.succeed("convert", "-f", source, "--exclude", "w", "-o", self.path("x.zt"))

    def test_sparse_tensors_are_listed_and_can_be_excluded(self):
        sparse = field(1, tensor("s", 1, (1,), field(9, bytes(4)))) + field(2, tensor("", 7, (1,), field(7, 3))) + \
            field(3, 3) + field(3, 4)
        weights = [tensor("w", 1, (2,), RAW)]
        for main, name in [(graph(tensors=weights, sparse=[sparse]), "s"),
                           (graph(node("Constant", "k", field(1, "sparse_value") + field(22, sparse)), tensors=weights), "k")]:
            source = self.put("m.onnx", whole(main))
            self.fail_with(UNSUPPORTED, "convert", "-f", source, "-o", self.path("x.zt"),
                           says=(f"tensor '{name}'", "sparse"))
            self.assertIn(b"[3,4]", self.succeed("inspect", source).replace(b" ", b""))
            self.succeed("convert", "-f", source, "--exclude", name, "-o", self.path("x.zt"))

    def test_what_is_left_out_is_said(self):
        def said(main):
            process = self.expect(DONE, "convert", "-f", self.put("m.onnx", whole(main)), "-o", self.path("x.zt"))
            return process.stderr.decode()

        attribute = field(1, "value") + field(5, tensor("", 1, (2,), RAW))
        self.assertIn("the model holds no weights", said(graph(node("Identity", "y"))))
        self.assertIn("1 tensor that a node has", said(graph(node("Table", "y", attribute))))
        self.assertIn("1 tensor that a node has", said(graph(node("Constant", "y", attribute, domain="mine"))))
        self.assertIn("1 tensor that a node has", said(graph(node("Constant", "y", attribute, attribute))))
        self.assertNotIn("that a node has", said(graph(node("ConstantOfShape", "y", attribute))))

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
                           (field(7, field(5, field(8, "w") + b"\x6a\0" * 5000000)), "entries of external data"),
                           (field(7, field(5, field(8, "w") + b"\x25\0\0\0\0" * 5000000)), "stretches of numbers"),
                           (b"\x72\0" * 5000000 + field(7, b""), "entries of metadata"),
                           # A long name, which only the first of the values gets, and more tensors than there may be.
                           (field(7, field(1, node("Constant", "n" * (1 << 20)) + b"\x2a\x02\x2a\0" * 400000) +
                                  b"\x2a\0" * 300000), "more than 262144 tensors")):
            source = self.put("m.onnx", field(1, 8) + field(2, "test") + body)
            done = subprocess.run([PROGRAM, "inspect", source], capture_output=True, timeout=PATIENCE, preexec_fn=limit)
            if b"Sanitizer" in done.stderr:
                self.skipTest("the sanitizers need more address space than the limit leaves")
            self.assertEqual(done.returncode, UNSUPPORTED, (says, done.stderr[:500]))
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
        attempt(INVALID, "is missing", location="none")
        attempt(INVALID, "regular file", location="below")
        attempt(INVALID, "regular file", location="pipe")
        attempt(INVALID, "without a name", location="")
        attempt(INVALID, "ends at byte", location="weights", offset=57)
        attempt(INVALID, "ends at byte", location="weights", offset=(1 << 63) - 8)
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
