"""PyTorch checkpoints that hold more than tensors in dicts: numpy's arrays, objects, keys of one name, expanded tensors.

What cannot be converted is listed and can be excluded; what is left out is named.
"""
import random
import struct
import zipfile

import numpy
from pickle_assembler import (FLOATS, ORDERED, archive, call, dictionary, glob, number, numbers, pickled, storage, stream,
                              stream_storage, tensor, text, tup)
from support import DATA, DONE, INVALID, UNSUPPORTED, EndToEnd, read_zt

MINUS = b"J" + struct.pack("<i", -1)
HALF = struct.pack("<e", 1.5)


def encoded(data):
    """Bytes as a pickle of protocol 2 has them."""
    if not data:
        return call("__builtin__", "bytes")
    return call("_codecs", "encode", text(data.decode("latin1")), text("latin1"))


def short_bytes(data):
    return b"C" + bytes([len(data)]) + data


def dtype(name="f4", order="<", of=None):
    made = call("numpy", "dtype", of or text(name), b"\x89", b"\x88")
    return made + tup(number(3), text(order), b"N", b"N", b"N", MINUS, MINUS, number(0)) + b"b"


def array(data, shape, kind=None, fortran=False, core="numpy.core", of=("numpy", "ndarray"), form=encoded):
    made = call(core + ".multiarray", "_reconstruct", glob(*of), numbers((0,)), encoded(b"b"))
    flag = b"\x88" if fortran else b"\x89"
    return made + tup(number(1), numbers(shape), kind or dtype(), flag, form(data)) + b"b"


def buffer(data, shape, order="C", core="numpy._core", more=()):
    return call(core + ".numeric", "_frombuffer", b"\x96" + struct.pack("<Q", len(data)) + data, dtype(),
                numbers(shape), text(order), *more)


def scalar(name, data, core="numpy.core", order="<"):
    return call(core + ".multiarray", "scalar", dtype(name, order), encoded(data))


def named(name, *items):
    """A namedtuple or another class that is made of its items."""
    return glob("__main__", name) + tup(*items) + b"\x81"


class TorchObjects(EndToEnd):

    def converted(self, body, *options, storages=None, stdin=False):
        """The file's objects and attributes, and what was said on the way. `body` may be a whole file."""
        data = body if body[:1] in (b"\x80", b"P") else archive(body, storages)
        source = "-" if stdin else self.put("m.pt", data)
        process = self.expect(DONE, "convert", "-f", source, *options, "-o", self.path("m.zt"),
                              stdin=data if stdin else None)
        file = read_zt(self.path("m.zt"))
        self.state = (file["attributes"] or {}).pop("ztstream.state", None)  # see test_how_a_state_is_nested
        return file["objects"], file["attributes"], process.stderr.decode()

    def refused(self, body, says, status=UNSUPPORTED, storages=None):
        source = self.put("m.pt", archive(body, storages))
        self.fail_with(status, "convert", "-f", source, "-o", self.path("m.zt"), says=says)

    def data(self, objects):
        return {name: entry["components"]["data"]["bytes"] for name, entry in objects.items()}

    def test_keys_of_one_name(self):
        both = b"}(" + number(1) + tensor() + text("1") + tensor() + b"u"
        self.refused(both, ("tensor '1 (2)': another tensor is named '1'", "--exclude"))
        self.assertEqual(list(self.converted(both, "--exclude", r"\(2\)$")[0]), ["1"])
        self.refused(dictionary(w=both), "tensor 'w.1 (2)': another tensor is named 'w.1'")
        nested = b"}(" + text("a.b") + tensor(size=(1,)) + text("a") + dictionary(b=tensor()) + text("a.b (2)") + tensor() + b"u"
        listed = [entry["name"] for entry in self.json("inspect", "--json", self.put("m.pt", archive(nested)))["objects"]]
        self.assertEqual(sorted(listed), ["a.b", "a.b (2)", "a.b (2) (2)"])
        one = b"}(" + number(1) + tensor() + number(1) + tensor(size=(2,)) + b"u"
        self.assertEqual(self.data(self.converted(one)[0]), {"1": FLOATS[:8]})  # the last of equal keys counts
        apart = b"}(" + number(1) + dictionary(a=tensor()) + text("1") + dictionary(b=tensor()) + b"u"
        self.assertEqual(sorted(self.converted(apart)[0]), ["1.a", "1.b"])
        values = b"}(" + number(1) + text("epoch") + text("1") + text("other") + text("w") + tensor() + b"u"
        objects, attributes, said = self.converted(values)
        self.assertEqual((sorted(objects), attributes), (["w"], {"1": "epoch"}))
        self.assertIn("'1' (a second value has the same path)", said)

    def test_a_name_that_is_not_utf8_is_one_tensors_problem(self):
        body = b"}(" + text(b"a\xed\xa0\x80b") + tensor() + text(b"\xff\xc3\xa9") + tensor() + text("w") + tensor() + b"u"
        source = self.put("m.pt", archive(body))
        self.assertEqual([entry["name"] for entry in self.json("inspect", "--json", source)["objects"]],
                         ["w", "a\\ud800b", "\\xff\u00e9"])
        self.refused(body, ("tensor 'a\\\\ud800b': its name is not valid UTF-8", "--exclude"))
        self.assertEqual(list(self.converted(body, "--exclude", "ud800", "--exclude", "xff")[0]), ["w"])

    def test_arrays_of_numpy(self):
        high = struct.pack("<4f", -1, -2.5, 1e30, 0)  # bytes above 127 take two in the pickle
        grid = struct.pack("<6f", *range(6))
        turned = struct.pack("<6f", 0, 2, 4, 1, 3, 5)
        big = struct.pack(">2f", 1, -2)
        objects, _, _ = self.converted(dictionary(
            old=array(high, (4,)), new=array(high, (4,), core="numpy._core"), short=array(high, (4,), form=short_bytes),
            fortran=array(grid, (3, 2), fortran=True), buffer=buffer(grid, (2, 3)), order=buffer(grid, (3, 2), "F"),
            big=array(big, (2,), dtype(order=">")), scalar=array(high[:4], ()), empty=array(b"", (0, 1 << 40)),
            flags=array(b"\1\0", (2,), dtype("b1", "|")), complex=array(FLOATS, (2,), dtype("c8")),
            bf16=array(b"\x80\x3f", (1,), dtype(of=glob("ml_dtypes", "bfloat16")))))
        self.assertEqual(self.data(objects), {
            "old": high, "new": high, "short": high, "fortran": turned[:4] + grid[12:16] + grid[4:8] + grid[16:20] +
            grid[8:12] + grid[20:], "buffer": grid, "order": turned[:4] + grid[12:16] + grid[4:8] + grid[16:20] +
            grid[8:12] + grid[20:], "big": struct.pack("<2f", 1, -2), "scalar": high[:4], "empty": b"",
            "flags": b"\1\0", "complex": FLOATS, "bf16": b"\x80\x3f"})
        self.assertEqual({name: objects[name]["components"]["data"]["dtype"] for name in ("big", "flags", "bf16")},
                         {"big": "f32", "flags": "bool", "bf16": "bf16"})
        self.assertEqual(self.data(self.converted(array(grid, (6,)))[0]), {"m": grid})

    def test_a_large_transposed_array_as_text(self):
        """It is read in short runs, each of which begins within the text: a column for each row."""
        values = numpy.random.default_rng(3).integers(0, 256, (2048, 8192), "u1").view("<f4")
        source = self.put("m.pt", archive(dictionary(w=array(values.tobytes(), values.shape, fortran=True))))
        status, seconds, _ = self.costs("convert", "-f", "--memory", "8MiB", source, "-o", self.path("m.zt"))
        self.assertEqual(status, DONE)
        self.assertLess(seconds, 60 if self.sanitized() else 5)
        self.assertEqual(self.data(read_zt(self.path("m.zt"))["objects"]),
                         {"w": values.reshape(-1).reshape(values.shape, order="F").tobytes()})

    def test_arrays_are_lost_nowhere(self):
        pair = b"}" + tup(number(0), number(1)) + array(FLOATS, (4,)) + b"s"
        self.refused(dictionary(w=tensor(), d=pair), ("tensor 'd.(key 0)'", "neither text, a whole number nor a class"))
        self.refused(dictionary(w=tensor(), o=named("Pair", array(FLOATS, (4,)))), ("tensor 'o'", "holds tensors"))
        self.refused(dictionary(v=array(bytes(8), (1,), dtype("V8", "|"))), ("tensor 'v'", "dtype 'V8'"))
        objects, _, _ = self.converted(dictionary(b=buffer(FLOATS, (4,), more=(b"N",))))  # numpy 2.3
        self.assertEqual(self.data(objects), {"b": FLOATS})

    def test_texts_that_are_shared_too_often_are_left_out(self):
        body = dictionary(w=tensor(), t=text("a" * 3_000_000) + b"q\1", l=b"](" + b"h\1" * 200 + b"e")
        objects, metadata, said = self.converted(body)
        self.assertEqual((set(objects), set(metadata)), ({"w"}, {"t"}))
        self.assertIn("left out: 'l' (it is too long, written out, or takes too much memory)", said)

    def test_names_that_are_visited_often_are_bounded(self):
        """A long name for each of many members that have none: their paths count as work, and as printed where they hold tensors."""
        for members, says in ((b"NN" * 5000, "64 bytes for each byte"), (b"N" + tensor() + b"q\x09" + b"Nh\x09" * 5000, "12 times its size")):
            self.refused(b"}(" + text("w") + tensor() + text("k" * 100000) + b"}(" + members + b"uu", says)

    def test_what_holds_itself_or_nests_too_deep_is_its_own_problem(self):
        def nested(levels, value):
            for _ in range(levels):
                value = dictionary(k=value)
            return value
        cycle = b"]q\x09(" + tensor() + b"h\x09]h\x09ae"
        objects, _, said = self.converted(dictionary(w=tensor(), l=cycle, d=nested(99, dictionary(b=b"C\1z"))))
        self.assertEqual(set(objects), {"w", "l.0"})
        self.assertIn("'l.1' (it holds itself), 'l.2.0' (it holds itself), 'd.k", said)
        self.assertIn("k.b' (it nests deeper than 100 levels)", said)
        self.refused(dictionary(w=tensor(), d=nested(99, dictionary(w=tensor()))), ("tensor 'd.k", "k.w': it nests deeper than 100 levels"))
        self.succeed("convert", "-f", self.path("m.pt"), "--exclude", "^d", "-o", self.path("m.zt"))
        self.assertEqual(set(read_zt(self.path("m.zt"))["objects"]), {"w"})

    def test_classes_of_modules_in_a_legacy_stream(self):
        """There they are objects outside the pickle, with their source."""
        def module(name, **members):
            kept = tup(text("module"), glob("torch.nn", name), text("f.py"), text("class " + name)) + b"Q"
            return kept + b")\x81" + dictionary(**members) + b"b" if members else kept
        w = tensor(of=stream_storage())
        objects, _, said = self.converted(stream(dictionary(w=w, act=module("ReLU", inplace=b"\x89"), c=module("Linear"))))
        self.assertEqual(set(objects), {"w"})
        self.assertIn("left out: 'act' (torch.nn.ReLU), 'c'\n", said)
        self.put("m.pt", stream(dictionary(net=module("Linear", weight=w), w=w)))
        self.fail_with(UNSUPPORTED, "convert", "-f", self.path("m.pt"), "-o", self.path("m.zt"),
                       says="tensor 'net': it is an object of 'torch.nn.Linear' and holds tensors")

    def test_what_is_printed_is_bounded_by_the_size(self):
        """A long key of many tensors or numbers, a long text and a long list of many keys."""
        numbers = b"](" + b"K\1" * 1000 + b"e"
        again = lambda first: b"}(" + text("a") + first + b"q\x09" + b"".join(
            text(str(i)) + b"h\x09" for i in range(1000)) + text("w") + tensor() + b"u"
        self.refused(dictionary(**{"k" * 20000: dictionary(**{str(i): tensor() for i in range(200)})}),
                     "its names, written out, would take more than 12 times its size")
        # values are left out
        for body in (dictionary(**{"k" * 20000: dictionary(**{str(i): number(i) for i in range(2000)})}, w=tensor()),
                     again(text("t" * 20000)), again(numbers)):
            objects, metadata, said = self.converted(body)
            self.assertEqual(set(objects), {"w"})
            self.assertIn("(it is too long, written out, or takes too much memory)", said)
            self.assertTrue(0 < len(str(metadata)) < 70000 + 13 * len(self.path("m.pt").read_bytes()))
        # what fits is kept, whatever comes before it
        objects, metadata, said = self.converted(dictionary(l=b"](" + text("t" * 9000) + b"q\x09" + b"h\x09" * 100 + b"e", e=number(3), w=tensor()))
        self.assertEqual((set(objects), metadata), ({"w"}, {"e": 3}))

    def test_arrays_in_a_legacy_stream_from_a_pipe(self):
        body = dictionary(a=array(FLOATS, (4,)), w=tensor(of=stream_storage()), b=array(FLOATS[:8], (2,)))
        objects, _, _ = self.converted(stream(body), stdin=True)
        self.assertEqual(self.data(objects), {"a": FLOATS, "b": FLOATS[:8], "w": FLOATS})

    def test_arrays_that_are_held_take_no_more_memory_than_they_may(self):
        body = dictionary(w=tensor(), large=array(bytes(3 << 20), (3 << 18,)))
        source = self.put("m.pt", archive(body, method=zipfile.ZIP_DEFLATED))
        self.fail_with(UNSUPPORTED, "convert", "--memory", "4MiB", source, "-o", self.path("m.zt"),
                       says=("tensor 'large'", "--memory"))
        self.succeed("convert", "--memory", "4MiB", source, "--exclude", "large", "-o", self.path("m.zt"))
        self.succeed("convert", "-f", "--memory", "8MiB", source, "-o", self.path("m.zt"))

    def test_large_arrays_are_served_where_they_lie(self):
        """Of both forms, whole and in another order; between them, what is small and is read with the pickle."""
        count = 5 << 18
        values = random.Random(7).randbytes(4 * count)
        grid = numpy.frombuffer(values, "<f4").reshape(5, 512, 512)
        turned = numpy.frombuffer(values, "<f4").reshape((512, 512, 5), order="F")
        want = {"latin": values, "small": FLOATS, "raw": values, "fortran": turned.tobytes(),
                "axes": grid.transpose(2, 0, 1).tobytes(), "last": FLOATS[::-1]}
        raw = lambda data: b"\x8e" + struct.pack("<Q", len(data)) + data
        body = dictionary(
            latin=array(values, (count,)), small=array(FLOATS, (4,)), raw=array(values, (5, 512, 512), form=raw),
            fortran=array(values, (512, 512, 5), fortran=True), axes=buffer(values, (5, 512, 512), "K", more=(numbers((2, 0, 1)),)),
            last=array(FLOATS[::-1], (4,)), w=tensor(of=stream_storage()))
        for name, data in (("archive", archive(body)), ("stream", stream(body))):
            source = self.put(name + ".pt", data)
            for options in (["-T", "1"], ["-T", "8"], ["--memory", "4MiB"]):
                with self.subTest(name, options=options):
                    self.succeed("convert", "-f", source, *options, "-o", self.path("m.zt"))
                    self.assertTrue(self.data(read_zt(self.path("m.zt"))["objects"]) == want | {"w": FLOATS})
            self.assertIn(b"axes", self.succeed("inspect", source))
            status, _, memory = self.costs("convert", "-f", "--memory", "4MiB", source, "-o", self.path("m.zt"))
            self.assertEqual(status, DONE)
            if not self.sanitized():
                self.assertLess(memory, 40)
            self.succeed("verify", self.path("m.zt"), "--against", source)
        damaged = bytearray(archive(body))
        damaged[damaged.index(values[99000:99040])] ^= 1
        self.put("archive.pt", damaged)
        for options in ([], ["--exclude", "axes|raw|fortran|latin"]):
            self.fail_with(INVALID, "convert", "-f", self.path("archive.pt"), *options, "-o", self.path("m.zt"), says="CRC")

    def test_large_arrays_of_the_wrong_size(self):
        high = "\u00ff" * 100000
        encode = lambda data: (lambda _: call("_codecs", "encode", text(data), text("latin1")))
        for name, shape, form in [("short", (200000,), encode(high + "a" * 99999)), ("long", (200000,), encode(high + "a" * 100001)),
                                  ("no byte", (200000,), encode(high + "\u0100" * 50000 + "a" * 50000)),
                                  ("far too long", (1000,), encode(high)), ("cut", (100001,), encode("a" * 99999 + "\u00ff"))]:
            with self.subTest(name):
                self.refused(dictionary(x=array(b"", shape, dtype("u1", "|"), form=form)), "tensor 'x'", INVALID)
        used = encode(high)(b"")
        objects, attributes, _ = self.converted(dictionary(w=tensor(), v=used))
        self.assertEqual((list(objects), attributes or {}), (["w"], {}))

    def test_an_order_of_axes_that_is_none(self):
        for axes in (numbers((0, 0)), numbers((0,)), numbers((0, 2)), numbers((0, 1, 2)), number(0)):
            self.refused(dictionary(x=buffer(FLOATS, (2, 2), "K", more=(axes,))), "tensor 'x'", INVALID)
        objects, _, _ = self.converted(dictionary(x=buffer(FLOATS, (2, 2), "K", more=(numbers((1, 0)),))))
        self.assertEqual(self.data(objects), {"x": FLOATS[:4] + FLOATS[8:12] + FLOATS[4:8] + FLOATS[12:]})

    def test_arrays_that_cannot_be(self):
        for name, says, body in [
                ("long double", "dtype 'f16'", array(bytes(16), (1,), dtype("f16"))),
                ("a derived class", "numpy.asarray()", array(FLOATS, (4,), of=("numpy", "matrix"))),
                ("no state", "unknown form", call("numpy.core.multiarray", "_reconstruct", glob("numpy", "ndarray"))),
                ("objects that hold a tensor", "holds tensors",
                 array(b"", (1,), dtype("O8", "|"), form=lambda _: b"](" + tensor() + b"e"))]:
            with self.subTest(name):
                self.refused(dictionary(x=body), ("tensor 'x'", says))
        for name, body in [("too short", array(FLOATS, (5,))), ("too long", array(FLOATS, (3,))),
                           ("too long, in latin-1", array(b"\xff" * 9, (2,))),
                           ("no latin-1", array(b"", (1,), form=lambda _: call("_codecs", "encode", text("\u20ac1"),
                                                                             text("latin1")))),
                           ("a size that overflows", array(FLOATS, (1 << 40, 1 << 40))),
                           ("a negative size", array(FLOATS, (-1,)))]:
            with self.subTest(name):
                self.refused(dictionary(x=body), "tensor 'x'", INVALID)
        _, _, said = self.converted(dictionary(w=tensor(), t=array(bytes(4), (1,), dtype("U1"))))
        self.assertIn("'t' (numpy.core.multiarray._reconstruct)", said)

    def test_numbers_of_numpy_become_attributes(self):
        _, attributes, said = self.converted(dictionary(
            w=tensor(), f=scalar("f8", struct.pack("<d", 2.5)), i=scalar("i2", struct.pack("<h", -3)),
            u=scalar("u8", b"\xff" * 8, core="numpy._core"), b=scalar("b1", b"\1"), g=scalar("f4", struct.pack(">f", 1.5), order=">"),
            list=b"](" + scalar("i8", struct.pack("<q", 7)) + number(8) + b"e", half=scalar("f2", HALF)))
        self.assertEqual(attributes, {"f": 2.5, "i": -3, "u": (1 << 64) - 1, "b": True, "g": 1.5, "list": [7, 8], "half": 1.5})
        self.assertNotIn("left out", said)

    def test_whole_numbers_of_64_bits_become_attributes(self):
        _, attributes, said = self.converted(dictionary(
            w=tensor(), seed=number(2**63), most=number(2**64 - 1), beyond=number(2**64), below=number(-2**63 - 1),
            old=b"I3000000000\n", minus=b"I-5\n", yes=b"I01\n", no=b"I00\n"))
        self.assertEqual(attributes, {"seed": 2**63, "most": 2**64 - 1, "old": 3000000000, "minus": -5, "yes": True,
                                      "no": False})
        self.assertIn("'beyond' (a number of more than 64 bits), 'below' (a number of more than 64 bits)", said)
        for line in (b"I9223372036854775808\n", b"I1.5\n", b"I\n", b"I 1\n", b"I5"):
            self.refused(dictionary(w=line), "damaged", INVALID)

    def test_attributes_of_tensors(self):
        """What was set on a tensor (t.scale = 0.5) or a Parameter is an attribute of that tensor."""
        held = dictionary(scale=scalar("f8", struct.pack("<d", 0.5)), axes=b"](" + number(0) + number(1) + b"e", blob=short_bytes(b"z"))
        args = tup(storage(), number(0), numbers((4,)), numbers((1,)), b"\x89", ORDERED)
        typed = lambda kind, state: call("torch._tensor", "_rebuild_from_type_v2", glob("torch._utils", "_rebuild_tensor_v2"),
                                         glob(*kind), args, state)
        parameter = call("torch._utils", "_rebuild_parameter_with_state", tensor(), b"\x88", ORDERED, held)
        objects, _, said = self.converted(dictionary(
            t=typed(("torch", "Tensor"), held), p=parameter, s=typed(("torch", "Tensor"), tup(b"N", dictionary(slot=text("x")))),
            plain=tensor(), twice=typed(("torch.nn.parameter", "Buffer"), b"}(" + text("a") + number(1) + text("a") + number(2) + b"u")))
        self.assertEqual({name: entry.get("attributes") or {} for name, entry in objects.items()}, {
            "t": {"scale": 0.5, "axes": [0, 1]}, "p": {"scale": 0.5, "axes": [0, 1]}, "s": {"slot": "x"}, "plain": {}, "twice": {"a": 2}})
        self.assertIn("left out: 't.blob', 'p.blob'", said)
        for body in (typed(("torch", "Tensor"), dictionary(m=tensor())),
                     call("torch._utils", "_rebuild_parameter_with_state", tensor(), b"\x88", ORDERED, dictionary(m=tensor()))):
            self.refused(dictionary(q=body), ("tensor 'q'", "attributes that were set on it hold tensors", "--exclude"))

    def test_millions_of_small_values_take_no_more_than_their_share(self):
        """60 MB of lists of None took 7.5 GB, and half a MB that had been deflated as much."""
        for name, body, method in [
                ("lists", b"(" + b"]Na" * 2000000 + b"t", zipfile.ZIP_STORED), ("empty lists", b"(" + b"]" * 4000000 + b"t", zipfile.ZIP_STORED),
                ("deflated", b"(" + b"]Na" * 4000000 + b"t", zipfile.ZIP_DEFLATED),
                ("a tensor again and again", tensor() + b"q\x010](" + b"h\x01" * 2000000 + b"e", zipfile.ZIP_STORED)]:
            with self.subTest(name):
                data = archive(body, method=method)
                source = self.put("m.pt", data)
                if name == "lists":  # half a million of them fit
                    self.expect(DONE, "inspect", source, says="(it is too long, written out, or takes too much memory)")
                else:
                    self.fail_with(UNSUPPORTED, "inspect", source, says="64 bytes for each byte")
                if not self.sanitized():
                    self.assertLess(self.costs("inspect", source)[2], 12 + 64 + 64 * len(data) / 2**20)

    def test_lists_beside_what_is_no_value_cost_no_more_than_alone(self):
        """Lists of numbers in lists with a dict: each was charged once for every list around it, and refused."""
        for levels in (1, 3, 60):
            with self.subTest(levels=levels):
                body = b"](" + b"](" + b"K\x07" * 300000 + b"e" + dictionary(a=number(1)) + b"e"
                for _ in range(levels - 1):
                    body = b"](" + body + dictionary(b=number(2)) + b"e"
                _, attributes, said = self.converted(dictionary(w=tensor(), h=body))
                path = "h" + ".0" * (levels - 1)
                self.assertEqual(attributes.pop(path + ".0"), [7] * 300000)
                self.assertEqual(attributes.pop(path + ".1.a"), 1)
                self.assertEqual(sorted(attributes.items()), sorted(("h" + ".0" * i + ".1.b", 2) for i in range(levels - 1)))
                self.assertNotIn("left out", said)

    def test_values_within_lists_are_told_from_others(self):
        """Around an object, a text that is not UTF-8 or a whole number of more than 64 bits, its siblings are kept one by one."""
        size = call("torch", "Size", numbers((2, 3)))
        odd = call("torch", "Size", numbers((2,)), numbers((3,)))
        _, attributes, said = self.converted(dictionary(
            w=tensor(), kept=b"](" + size + scalar("f8", struct.pack("<d", 2.5)) + number(2**64 - 1) + b"e",
            size=b"](" + call("torch", "Size", b"](" + number(1) + ORDERED + b"e") + number(5) + b"e",
            odd=b"](" + odd + number(6) + b"e", text=b"](" + text(b"\xff") + number(7) + b"e",
            big=b"](" + number(2**64) + number(8) + b"e", name=b"](" + glob("a", "b") + number(9) + b"e"))
        self.assertEqual(attributes, {"kept": [[2, 3], 2.5, 2**64 - 1], "size.0.0": 1, "size.1": 5, "odd.1": 6, "text.1": 7,
                                      "big.1": 8, "name.1": 9})
        self.assertEqual(said.count("'odd.0'"), 1)
        self.assertIn("'text.0'", said)
        self.assertIn("'big.0' (a number of more than 64 bits)", said)
        self.assertIn("'name.0'", said)

    def test_how_a_state_is_nested(self):
        """What lies at the paths between is told, so that a reader makes the same of it; unless names do not tell it."""
        one = tensor()
        module = lambda **modules: glob("torch.nn", "Any") + b")\x81" + dictionary(
            _parameters=dictionary(w=one), _buffers=dictionary(), _modules=dictionary(**modules)) + b"b"
        for body, state in (
                # a whole module is one dict, as its state_dict() is
                (dictionary(net=module(a=module(), b=module())), {"net": "dict"}),
                (module(a=module()), None),
                (dictionary(w=one), None),
                (dictionary(w=one, n=number(1)), {}),
                (dictionary(w=one, a=dictionary(w=one, b=tup(number(1), number(2))), e=dictionary()),
                 {"a": "dict", "a.b": "tuple", "e": "dict"}),
                (b"](" + one + dictionary(w=one) + b"e", {"": "list", "1": "dict"}),
                (b"}(" + number(3) + one + text("k") + b"}(" + number(0) + one + text("x") + one + b"uu", {"": [3], "k": [0]}),
                (tup(one, b"](" + one + tup(one) + b"e"), {"": "tuple", "1": "list", "1.1": "tuple"}),
                # the names of two, or of none, are the same
                (b"}(" + text("a") + b"}(" + text("b.c") + one + text("b") + dictionary(d=one) + b"uu", None),
                (b"}(" + number(1) + dictionary(w=one) + text("1") + dictionary(v=one) + b"u", None),
                (dictionary(a=dictionary(w=one), **{"ztstream.state": number(1)}), 1)):
            with self.subTest(state=state):
                self.converted(body)
                self.assertEqual(self.state, {"containers": state} if isinstance(state, dict) else state)

    def test_containers_made_from_the_stack(self):
        """As protocol 0 makes dicts and lists: of all that lies above a mark."""
        _, attributes, _ = self.converted(b"(" + text("w") + tensor() + text("l") + b"(" + number(1) + number(2) + b"l" +
                                          text("d") + b"(" + text("k") + number(3) + b"dd")
        self.assertEqual(attributes, {"l": [1, 2], "d.k": 3})
        self.refused(b"(" + text("w") + tensor() + text("x") + b"d", "damaged", INVALID)

    def test_values_that_nest_too_deep_are_left_out(self):
        """Attributes of .zt nest 64 levels: what is deeper was listed, and then refused the whole file."""
        deep = lambda levels: b"]" * levels + number(1) + b"a" * levels
        held = [1]
        for _ in range(59):
            held = [held]
        _, attributes, said = self.converted(dictionary(w=tensor(), most=deep(60), beyond=deep(61), far=deep(90), n=number(3)))
        self.assertEqual(attributes, {"most": held, "n": 3})
        self.assertIn("'beyond' (it nests deeper than 60 levels, or holds itself), 'far' (it nests", said)

    def test_objects_that_hold_tensors_can_be_excluded(self):
        ten = tensor(kind="Storage2")
        conj = tensor(more=[dictionary(conj=b"\x88")])
        for name, says, body in [
                ("a namedtuple", "'__main__.NT'", named("NT", tensor(), tensor())),
                ("a namespace", "'types.SimpleNamespace'", call("types", "SimpleNamespace") + dictionary(w=tensor()) + b"b"),
                ("a dict with tensors as attributes", "'collections.OrderedDict'", ORDERED + dictionary(hidden=tensor()) + b"b"),
                ("a class that wraps tensors", "its class '__main__.Sub' computes its values of other tensors", call(
                    "torch._tensor", "_rebuild_from_type_v2", glob("torch._utils", "_rebuild_wrapper_subclass"),
                    glob("__main__", "Sub"), tup(glob("__main__", "Sub")), dictionary(scale=tensor()))),
                ("a parameter that wraps tensors", "save its dequantize(), or full_tensor()", call(
                    "torch._utils", "_rebuild_parameter", call(
                        "torch._tensor", "_rebuild_from_type_v2", glob("a.b", "make"), glob("torchao.dtypes", "Quantized"), tup(),
                        dictionary(data=tensor())), b"\x89", ORDERED)),
                ("a storage", "a storage without a tensor", storage()),
                ("a storage of an unknown class", "unknown class", ten),
                ("a key that is a tuple", "neither text, a whole number nor a class", b"}" + tup(number(1)) + tensor() + b"s"),
                ("a conj bit", "resolve_conj", conj)]:
            with self.subTest(name):
                body = dictionary(w=tensor(), ema=body)
                self.refused(body, ("tensor 'ema", says))
                source = self.path("m.pt")
                self.assertRegex(self.succeed("inspect", source).decode(), "ema.*\n    cannot be read: it")
                listed = self.json("inspect", "--json", source)["objects"]
                self.assertEqual(["undecodable" in each["components"][0] for each in listed], [False, True])
                self.assertEqual(sorted(self.converted(body, "--exclude", "ema")[0]), ["w"])

    def test_keys_that_are_classes(self):
        """Lightning keeps the state of a callback under its class; the class and its name are two keys."""
        entry = lambda key, value: b"}" + key + value + b"s"
        objects, attributes, _ = self.converted(dictionary(
            callbacks=entry(glob("a.b", "Check"), dictionary(best=tensor(), name=text("x"))), kinds=entry(glob("torch", "float16"), number(3))))
        self.assertEqual(self.data(objects), {"callbacks.a.b.Check.best": FLOATS})
        self.assertEqual(attributes, {"callbacks.a.b.Check.name": "x", "kinds.torch.float16": 3})
        both = b"}(" + glob("a", "B") + tensor() + text("a.B") + tensor() + b"u"
        self.refused(both, ("tensor 'a.B (2)'", "another tensor is named 'a.B'"))

    def test_bytes_kept_as_files(self):
        """Transformer Engine's _extra_state: an io.BytesIO, whatever the container."""
        data = bytes(range(256)) + b"scales"
        made = {"latin": encoded(data), "bytes": short_bytes(data[:200]), "none": encoded(b"")}  # of protocols 2 and 3
        files = {name: glob("_io", "BytesIO") + b")\x81" + tup(held, number(3), b"N") + b"b" for name, held in made.items()}
        body = dictionary(w=tensor(), **files)
        old = stream(dictionary(w=tensor(of=stream_storage()), **files))
        wanted = {"w": FLOATS, "latin": data, "bytes": data[:200], "none": b""}
        for each in (body, old):
            objects, _, said = self.converted(each)
            self.assertEqual(self.data(objects), wanted)
            self.assertEqual(objects["latin"]["components"]["data"]["dtype"], "u8")
            self.assertNotIn("warning", said)
        self.assertEqual(self.data(self.converted(old, stdin=True)[0]), wanted)

    def test_plain_pickles_of_arrays(self):
        """detectron2's and Paddle's files: no container around a pickle of numpy arrays."""
        body = dictionary(model=dictionary(w=array(FLOATS, (4,)), n=scalar("i8", struct.pack("<q", 7))), author=text("d2"),
                          pair=call("builtins", "tuple", tup(text("name"), array(FLOATS, (2, 2)))))
        for stdin in (False, True):
            for protocol in (2, 4):
                objects, attributes, _ = self.converted(pickled(body, protocol), stdin=stdin)
                self.assertEqual(self.data(objects), {"model.w": FLOATS, "pair.1": FLOATS})
                self.assertEqual(attributes, {"model.n": 7, "author": "d2", "pair.0": "name"})
        for without, says in ((dictionary(a=number(1)), "a Python pickle without arrays of numpy"),
                              (dictionary(w=tensor()), "storage '0' is not in the file")):
            self.put("p.pkl", pickled(without))
            self.fail_with((UNSUPPORTED, INVALID), "convert", "p.pkl", "-o", "x.zt", says=says)
        self.put("p.pkl", pickled(body) + b"more")
        self.fail_with(INVALID, "convert", "p.pkl", "-o", "x.zt", says="bytes follow")

    def test_modules(self):
        """Names and tensors are those of tests/data/torch/expected.json; here what a module has beside them."""
        _, attributes, said = self.converted((DATA / "torch/module.pt").read_bytes())
        self.assertEqual(attributes, {})
        self.assertIn("its tensors are kept as its state_dict() names them, and nothing else of it", said)
        self.assertIn("left out: 'stride' (an attribute of a module)\n", said)
        self.put("m.pt", archive(dictionary(code=text("x")), entries=[("a/constants.pkl", b"\x80\x02).")]))
        self.fail_with(UNSUPPORTED, "convert", "m.pt", "-o", "x.zt", says="or a frozen one; save it unfrozen")

    def test_what_a_module_keeps_beside_its_tensors_is_refused_or_named(self):
        """Quantized layers keep their weights packed, in objects of TorchScript whose state is no dict."""
        made = lambda module, name, state: glob(module, name) + b")\x81" + state + b"b"
        layer = made("__torch__.torch.nn.modules.linear", "Linear", dictionary(weight=tensor()))
        script = lambda **members: made("__torch__", "Net", dictionary(layer=layer, **members))
        module = lambda **more: made("m", "Net", dictionary(**{
            "_parameters": dictionary(w=tensor()), "_buffers": dictionary(), "_modules": dictionary(), **more}))
        linear = made("__torch__.torch.ao.nn.quantized.modules.linear", "LinearPackedParams", tup(tensor(), tensor(), b"\x89", number(12)))
        conv = made("__torch__.torch.classes.quantized", "Conv2dPackedParamsBase", tup(tup(text("2"), b"]" + tensor() + b"a")))
        object_ = made("torch._C", "ScriptObject", tup(tup(tensor(), tensor()), text("quantized.LinearPackedParamsBase")))
        state = made("__torch__.torch.ao.nn.quantized.modules.conv", "Conv2d", tup(number(1), tensor()))
        quantized = lambda packed: made("__torch__.torch.ao.nn.quantized.modules.linear", "Linear", dictionary(_packed_params=packed))
        packed = "the packed weights of a quantized layer; save the model as it was before it was quantized"
        for body, name, says in ((script(fc=quantized(linear)), "fc._packed_params", packed), (script(fc=quantized(conv)), "fc._packed_params", packed),
                                 (script(conv=state), "conv", "no code is run"), (module(_packed_params=object_), "_packed_params", packed)):
            with self.subTest(name=name, says=says):
                self.refused(body, (f"tensor '{name}'", says))
                self.assertEqual(len(self.converted(body, "--exclude", name)[0]), 1)
        listed = b"]" + tensor() + b"a"
        for body in (script(_cache=listed), module(_cache=listed)):
            self.assertIn("left out: '_cache' (an attribute of a module)\n", self.converted(body)[2])
        for part in ("_parameters", "_buffers", "_modules"):
            self.refused(dictionary(v=tensor(), m=module(**{part: listed})), ("'m' has parts of which one is no dict",), INVALID)

    def test_dicts_and_lists_of_other_classes(self):
        deque = call("collections", "deque", b")") + b"(" + tensor() + tensor(size=(1,)) + b"e"
        mine = glob("__main__", "Dict") + b")\x81" + b"(" + text("a") + tensor(size=(2,)) + b"u" + dictionary(n=number(1)) + b"b"
        objects, _, said = self.converted(dictionary(deque=deque, mine=mine))
        self.assertEqual(self.data(objects), {"deque.0": FLOATS, "deque.1": FLOATS[:4], "mine.a": FLOATS[:8]})
        self.assertIn("attributes of 'mine' ('n')", said)

    def test_expanded_tensors_are_named_and_can_be_excluded(self):
        body = dictionary(mask=tensor(size=(1 << 16, 1 << 16), stride=(0, 0)), w=tensor(),
                          some=tensor(size=(4, 4), stride=(0, 1)))
        self.refused(body, ("tensor 'mask'", "17179869184 bytes of a storage of 16"))
        self.assertIn(b"mask", self.succeed("inspect", self.path("m.pt")))
        objects, _, _ = self.converted(body, "--exclude", "mask")
        self.assertEqual(self.data(objects), {"w": FLOATS, "some": FLOATS * 4})

    def test_many_expanded_tensors_are_bounded_together(self):
        each = {f"m{i}": tensor(size=((1 << 27) + 1,), stride=(0,), offset=i) for i in range(4)}
        self.refused(dictionary(w=tensor(), **each), "tensor 'm1'")

    def test_what_repeats_nothing_is_not_blamed_for_what_does(self):
        body = dictionary(mask=tensor(size=(1 << 28,), stride=(0,)), w=tensor(), again=tensor(size=(3,), offset=1))
        self.refused(body, ("tensor 'again'", "other tensors view the same bytes"))
        self.assertEqual(self.data(self.converted(body, "--exclude", "mask", "--exclude", "again")[0]), {"w": FLOATS})

    def test_what_is_left_out_is_named(self):
        state = ORDERED + b"(" + text("w") + tensor() + b"u" + dictionary(extra=dictionary(version=number(1))) + b"b"
        versions = ORDERED + b"(" + text("w") + tensor() + b"u" + dictionary(_metadata=dictionary(version=number(1))) + b"b"
        self.assertNotIn("left out", self.converted(versions)[2])
        for body, says in [(dictionary(model=state), "attributes of 'model' ('extra')"),
                           (state, "attributes of the whole ('extra')"),
                           (dictionary(w=tensor(), state=b"}"), "'state' (an empty dict)"),
                           (dictionary(w=tensor(), state=ORDERED), "'state' (an empty dict)")]:
            with self.subTest(says):
                self.assertIn(says, self.converted(body)[2])
        for body, kind in ((number(5), "a number"), (text("x"), "a text"), (b"N", "None"), (b"\x88", "a flag")):
            with self.subTest(kind):
                objects, attributes, said = self.converted(body)
                self.assertEqual((objects, attributes or {}), ({}, {}))
                self.assertIn(f"it holds {kind}, neither a tensor nor", said)

    def test_what_zip_cannot_unpack_is_named(self):
        source = self.put("m.pt", archive(dictionary(w=tensor()), method=zipfile.ZIP_BZIP2))
        self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("m.zt"), says=("entry 'a/data.pkl'", "bzip2"))

    def test_old_protocols_are_refused_with_a_word(self):
        source = self.put("m.pt", b"L119547037146038801333356L\n.I1001\n.(dp0\n.")
        self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("m.zt"), says="protocol 0 or 1")
