"""Writing by the package: what is added, ties, streams, attributes, file objects, and that nothing is left after an exception."""
import collections
import gc
import io
import math
import os
import pathlib
import threading
import time
import types
import unittest
from unittest import mock

import numpy
from package_support import Case, little, run, ztstream
from ztstream import _writer


class Writing(Case):
    def test_nothing_after_an_exception(self):
        path = self.path("x.zt")
        with self.assertRaises(ZeroDivisionError), ztstream.Writer(path) as out:
            out.add("a", numpy.zeros(3))
            1 / 0
        self.assertEqual(os.listdir(self.folder), [])

    def test_reused_buffer(self):
        """What was added may be changed when add returns, large or small."""
        path = self.path("x.zt")
        for size in (10, 1 << 20):
            buffer = numpy.empty(size, "u4")
            with ztstream.Writer(path, overwrite=True) as out:
                for i in range(20):
                    buffer[:] = i
                    out.add(f"{i:02}", buffer)
            with ztstream.open(path) as file:
                self.assertEqual([tensor[size - 1] for tensor in file.values()], list(range(20)))

    def test_close_while_compressing(self):
        """What is being compressed stays until the threads that read it have ended."""
        path = self.path("x.zt")
        kept = []
        out = ztstream.Writer(path, compress="planes", threads=2)
        output = out._output
        close = output.close
        output.close = lambda: (kept.append(len(output._kept)), close())
        for name in "abc":
            out._put(name, _writer._bytes_of(name, numpy.random.default_rng(1).random((300, 2500)).T), hold=True)
        out.close()
        self.assertEqual((kept, output._kept, os.listdir(self.folder)), ([3], [], []))

    def test_ties(self):
        path, w = self.path("x.zt"), numpy.arange(12.0).reshape(3, 4)
        ztstream.save_file({"a": w, "b": w, "c": w.T, "d": w[:2], "e": w.copy()}, path)
        with ztstream.open(path) as file:
            places = {name: tensor.location[1] for name, tensor in file.items()}
            self.assertEqual(places["a"], places["b"])
            self.assertEqual(len(set(places.values())), 4)
        with ztstream.Writer(path, overwrite=True) as out:
            out.add("a", w)
            out.alias("b", "a")
        with ztstream.open(path) as file:
            self.assertEqual(file["b"].numpy().tolist(), w.tolist())

    def test_ties_of_compressed(self):
        """Names that share their bytes share the memory that these are decoded to, and stay tied when they are saved again."""
        path, again, w = self.path("x.zt"), self.path("y.zt"), numpy.arange(1 << 16).reshape(256, 256)
        ztstream.save_file({"a": w, "b": w, "c": w.copy()}, path, compress="zstd")
        with ztstream.open(path) as file:
            arrays, copies = file.numpy(), file.numpy(copy=True)
            self.assertIs(arrays["a"], arrays["b"])
            for one, other in ((arrays["a"], arrays["c"]), (copies["a"], copies["b"])):
                self.assertFalse(numpy.shares_memory(one, other))
            self.assertTrue(all((array == w).all() for array in (*arrays.values(), *copies.values())))
            for source in (arrays, file):
                ztstream.save_file(source, again, compress="zstd", overwrite=True)
                with ztstream.open(again) as saved:
                    self.assertEqual(saved["a"].location, saved["b"].location)
                    self.assertNotEqual(saved["a"].location, saved["c"].location)

    def test_add_does_not_tie(self):
        """An array that counts its changes, as torch's do, may have been changed where that does not count."""
        class Counting(numpy.ndarray):
            _version = 0

        path, buffer = self.path("x.zt"), numpy.zeros(5, "f4").view(Counting)
        with ztstream.Writer(path) as out:
            for i in range(3):
                buffer[...] = i
                out.add(f"{i}", buffer)
        with ztstream.open(path) as file:
            self.assertEqual([tensor[4] for tensor in file.values()], [0, 1, 2])

    def test_ties_of_converted(self):
        """What was converted for the writer has memory that the next one may get: it is no name of the first."""
        path, other, size = self.path("x.zt"), self.path("y.zt"), 9 << 17
        ztstream.save_file({name: numpy.full(size, i, "f8") for i, name in enumerate("abcd")}, other, compress="zstd")
        swapped = [numpy.full(size, i, ">f8") for i in range(4)]
        both = {"l": swapped[1].view("<f8"), "b": swapped[1]}
        with mock.patch.object(_writer, "_KEPT", 1 << 20), ztstream.open(other) as file:
            for values in (dict(zip("abcd", swapped)), dict(file), both,
                           {name: array.reshape(-1, 2).T for name, array in zip("abcd", swapped)}):
                ztstream.save_file(values, path, overwrite=True)
                with ztstream.open(path) as written:
                    for name, value in values.items():
                        self.assertEqual(written[name].numpy().tobytes(), little(numpy.asarray(value)), name)

    def test_stream_that_lacks_bytes(self):
        """It can be told so, and the rest be written."""
        with ztstream.Writer(self.path("x.zt")) as out:
            rows = out.begin("w", "i16", (None, 2))
            rows.write(bytes(3))
            for _ in range(2):
                with self.assertRaisesRegex(ztstream.ArgumentError, "^tensor 'w': 3 bytes are no whole number of rows; write the rest of the l"):
                    rows.close()
            rows.write(bytes(5))
            rows.close()
            rows.close()
            out.add("b", numpy.ones(2))
        self.assertEqual({name: array.shape for name, array in ztstream.load(self.path("x.zt")).items()}, {"b": (2,), "w": (2, 2)})

    STATE = {"model": {"0.weight": numpy.arange(6.0).reshape(2, 3), "0.bias": numpy.ones(2, "f4")},
             "optimizer": {"state": {0: {"step": numpy.array(3.0), "exp_avg": numpy.zeros((2, 3))}, 12: {}, -1: {"x": None}},
                           "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "foreach": None, "params": [0, 1], "fused": True}]},
             "epoch": 7, "name": "é\0", "bytes": b"\0\xff", "rng": (3, [numpy.arange(4, dtype="u4"), "x"], ()), "nan": float("inf"),
             "nothing": {}, "none": [], "mixed": {"a": 1, 5: [(1, 2), [3]]}, "most": 2**64 - 1, "$bytes": {"$bytes": "00"}}

    def same(self, first, second, at=""):
        """Also of the same types."""
        if isinstance(first, numpy.ndarray):
            self.assertTrue(numpy.array_equal(first, second) and first.dtype == second.dtype, at)
            return
        self.assertIs(type(first), type(second), at)
        if isinstance(first, dict):
            self.assertEqual({*first}, {*second}, at)
            for key, value in first.items():
                self.same(value, second[key], f"{at}.{key}")
        elif isinstance(first, (list, tuple)):
            self.assertEqual(len(first), len(second), at)
            for number, value in enumerate(first):
                self.same(value, second[number], f"{at}.{number}")
        else:
            self.assertEqual(first, second, at)

    def test_states(self):
        """Nested ones come back as they were."""
        path = self.path("x.zt")
        for state in (self.STATE, [numpy.ones(2), {"a": numpy.zeros(3)}], (numpy.ones(1), 5), {"w": numpy.ones(2), "epoch": 3}, {},
                      {3: numpy.ones(2)}, {"w": numpy.ones(2)}, {"deep": [[[[{"w": (numpy.ones(1),)}]]]]}):
            for options in ({}, {"attributes": {"format": "pt"}, "compress": "planes"}, {"spec": "2.0"}):
                ztstream.save_file(state, path, overwrite=True, **options)
                self.same(ztstream.load(path), state)
            self.same(ztstream.load(ztstream.save(state)), state)
        with ztstream.open(ztstream.save(self.STATE)) as file:
            self.assertEqual(file["optimizer.state.0.step"].numpy(), 3)
            self.assertEqual((file.attributes["epoch"], file.attributes["optimizer.param_groups.0.lr"]), (7, 1e-3))
        ztstream.save_file({"w": numpy.ones(2)}, path, attributes={"format": "pt"}, overwrite=True)
        self.assertEqual(list(ztstream.load(path)), ["w"])
        tied = numpy.ones(1000)
        self.assertLess(len(ztstream.save({"a": {"x": tied}, "b": [tied]})), 12000)
        ztstream.save_file({"l": [numpy.ones(1), numpy.ones(2)], "d": {"k": numpy.ones(3)}}, path, overwrite=True)
        ztstream.convert(path, path + ".part.zt", exclude="l.0")
        self.same(ztstream.load(path + ".part.zt"), {"l": {1: numpy.ones(2)}, "d": {"k": numpy.ones(3)}})

    def test_states_that_are_refused(self):
        one, holds = numpy.ones(1), {}
        holds["itself"] = holds
        for state, says in (({1: one, "1": one}, "the state' has '1' as a text and as a number"), ({"a": {2.5: 1}}, "a key of 'a' is 2.5"),
                            ({"a": {True: 1}}, "a key of 'a' is True"), ({"": one}, "a key without a name"), (holds, "holds itself"),
                            ({"a": {"b.c": one, "b": {"d": one}}}, "'a.b.c' is a key 'b.c' of 'a', and would be taken for one of 'a.b'"),
                            ({"a.b": one, "a": {"b": one}}, "two values of the state have the name 'a.b'"),
                            ({"a": {1, 2}}, "elements of object are no numbers"), ({"a": {"b": 1 << 64}}, "does not fit 64 bits"),
                            ({"format": "x"}, "'format' is a value of the state, and an attribute"),
                            (numpy.ones(3), "tensors are a dict"), ("x", "tensors are a dict")):
            with self.subTest(says), self.assertRaises(ztstream.ArgumentError) as raised:
                ztstream.save_file(state, self.path("x.zt"), attributes={"format": "pt"})
            self.assertIn(says, str(raised.exception))
        self.assertEqual(os.listdir(self.folder), [])
        for kinds in (5, {"containers": 5}, {"containers": {"a": "set"}}, {"containers": {"a": 5}}, {"containers": {"a": [[1]]}}, {"others": []}, None):
            data = ztstream.save({"w": one}, attributes={"ztstream.state": kinds})
            with self.subTest(kinds), self.assertRaisesRegex(ztstream.FormatError, "'ztstream.state'.* is malformed"):
                ztstream.load(data)
        for state in {"ztstream": {"state": 3}}, {"ztstream.state": 4}:
            with self.assertRaisesRegex(ztstream.ArgumentError, "'ztstream.state' is a name that ztstream uses"):
                ztstream.save(state)

    def test_background(self):
        """It returns when the tensors are copied; one at a time is written."""
        path, values = self.path("x.zt"), numpy.zeros(1 << 20)
        begun, go = threading.Event(), threading.Event()

        class Slow(io.BytesIO):
            def write(self, data):
                begun.set()
                go.wait(30)
                return super().write(data)

        slow = Slow()
        pending = ztstream.save_file({"w": values, "tied": values, "epoch": 3}, slow, background=True)
        values[:] = 1
        self.assertTrue(begun.wait(30))
        self.assertEqual((pending.done(), pending.wait(0.01)), (False, False))
        self.assertIn("being written", repr(pending))
        threading.Timer(0.1, go.set).start()
        with ztstream.save_file({"w": values}, path, background=True) as second:  # which waits for the first
            self.assertTrue(pending.done() and pending.wait())
        self.assertTrue(second.done())
        self.assertEqual((ztstream.load(slow)["w"].sum(), ztstream.load(slow)["epoch"], ztstream.load(path)["w"].sum()), (0, 3, 1 << 20))
        self.assertLess(len(slow.getvalue()), 9 << 20)

        class Looked:  # numpy looks at its memory
            __array__ = lambda self, *_, **__: values

        class Shared:  # without __array__: by DLPack
            __dlpack__ = lambda self, **_: values.__dlpack__()
            __dlpack_device__ = lambda self: values.__dlpack_device__()

        for tensors in {"w": Looked()}, {"w": Shared()}, collections.UserDict(w=values), types.MappingProxyType({"w": values}):
            with self.subTest(tensors):
                begun.clear(), go.clear()
                values[:], said, slow = 1, {"loss": [1.0]}, Slow()
                pending = ztstream.save_file(tensors, slow, attributes={"m": said}, background=True)
                values[:] = 2
                said["loss"].append(99.0)
                go.set()
                self.assertTrue(pending.wait())
                with ztstream.open(slow) as f:
                    self.assertEqual((f["w"].numpy().max(), f.attributes["m"]), (1, {"loss": [1.0]}))
        values[:] = 1
        failed = ztstream.save_file({"w": values}, path, background=True)
        for _ in range(2):
            with self.assertRaises(ztstream.ExistsError):
                failed.wait()
        with self.assertWarnsRegex(RuntimeWarning, "x.zt was not written, and nobody waited for it: .*there already|exists"):
            failed = ztstream.save_file({"w": values}, path, background=True)
            failed._call.wait()
            failed = None
            gc.collect()
        done = run("import os\nztstream.save_file({'w': numpy.ones(1 << 20)}, sys.argv[1], background=True)", self.path("exit.zt"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(ztstream.load(self.path("exit.zt"))["w"].sum(), 1 << 20)

    def test_background_of_threads(self):
        """One copy at a time, whoever asks for it: also after one that could not be copied, and where one is made by another."""
        begun, go, asked = threading.Event(), threading.Event(), []

        class Slow(io.BytesIO):
            def write(self, data):
                begun.set()
                go.wait(30)
                return super().write(data)

        class Asks(collections.UserDict):
            def items(self):
                asked.append(threading.get_ident())
                if "nested" in self.data:
                    ztstream.save_file({"a": 1}, io.BytesIO(), background=True).wait()
                if "fails" in self.data:
                    raise KeyError("mine")
                return self.data.items()

        def save(**tensors):
            with ztstream.save_file(Asks(tensors), io.BytesIO(), background=True):
                pass

        self.addCleanup(go.set)
        first = ztstream.save_file({"w": numpy.ones(300000)}, Slow(), background=True)
        self.assertTrue(begun.wait(30))
        threads = [threading.Thread(target=save, kwargs={"w": numpy.ones(9)}) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        self.assertEqual((asked, len(_writer.Pending._line)), ([], 5))
        go.set()
        for thread in threads:
            thread.join(30)
        self.assertTrue(first.wait())
        with self.assertRaisesRegex(KeyError, "mine"):
            save(fails=numpy.ones(9))
        save(nested=numpy.ones(9))
        self.assertEqual((len(asked), _writer.Pending._line), (6, {}))

    def test_ties_of_mappings(self):
        """Handles of a raw file share what they share there; what a mapping makes for each name shares nothing."""
        class Making(dict):
            def items(self):
                return ((name, numpy.full(9 << 17, value, "f8")) for name, value in super().items())

        path, other, w = self.path("x.zt"), self.path("y.zt"), numpy.arange(12.0)
        ztstream.save_file({"a": w, "b": w}, other)
        with ztstream.open(other) as file:
            ztstream.save_file(file, path)
        with ztstream.open(path) as file:
            self.assertEqual(file["a"].location, file["b"].location)
        with mock.patch.object(_writer, "_KEPT", 1 << 20):
            ztstream.save_file(Making(zip("abcd", range(4))), path, overwrite=True)
        with ztstream.open(path) as file:
            self.assertEqual([file[name][-1] for name in "abcd"], [0, 1, 2, 3])

    def test_handles_are_kept_briefly(self):
        """Of handles of a compressed file no more is in memory than the writer may keep."""
        path, other = self.path("x.zt"), self.path("y.zt")
        with ztstream.Writer(other, compress="zstd") as out:
            for i in range(48):
                out.add(f"{i:02}", numpy.full(1 << 20, i, "f8"))
        code = ("with ztstream.open(sys.argv[1]) as file: ztstream.save_file(file, sys.argv[2], sync=False)\n"
                "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])")
        ended = run(code, other, path)
        self.assertEqual(ended.stderr, "")
        self.assertLess(int(ended.stdout) >> 10, 300)

    def test_lazy_mappings(self):
        """Of a mapping that makes its arrays when it is asked for, few are in memory, whatever it is and makes."""
        code = """
import collections.abc
class Lazy(collections.abc.Mapping):
    def __getitem__(self, name): return numpy.full(1 << 20, int(name), "f8")
    def __iter__(self): return map(str, range(64))
    def __len__(self): return 64
class Swapped(Lazy):
    def __getitem__(self, name): return numpy.full(1 << 20, int(name), ">f8")
class Subclass(dict):
    def items(self): return Lazy().items()
ztstream.save_file({"lazy": Lazy, "swapped": Swapped, "subclass": Subclass}[sys.argv[1]](), sys.argv[2], sync=False, threads=2)
print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])
"""
        for kind in ("lazy", "swapped", "subclass"):
            with self.subTest(kind):
                path = self.path(kind + ".zt")
                ended = run(code, kind, path)
                self.assertEqual(ended.stderr, "")
                self.assertLess(int(ended.stdout) >> 10, 300)
                with ztstream.open(path) as file:
                    self.assertEqual({name: int(tensor[9]) for name, tensor in file.items()}, {str(i): i for i in range(64)})
                os.remove(path)

    def test_attributes(self):
        given = {"text": "ä\0b", "int": -(1 << 63), "big": (1 << 64) - 1, "real": 0.1, "nan": math.nan, "inf": -math.inf,
                 "yes": True, "none": None, "bytes": b"\0\xff", "list": [1, [2.5, "x"]], "map": {"k": {"d": []}, "": 1},
                 "numpy": numpy.float32(1.5)}
        path = self.path("x.zt")
        ztstream.save_file({"w": numpy.zeros(1)}, path, attributes=given)
        with ztstream.open(path) as file:
            found = file.attributes
        self.assertTrue(math.isnan(found.pop("nan")))
        given.pop("nan")
        self.assertEqual(found, {**given, "numpy": 1.5})
        self.assertIs(found["yes"], True)
        for strange in ({"$bytes": "no number"}, {"$double": "x"}, {"$bytes": "00"}, {"$double": "nan"}, {"$$bytes": "00"}, {"$bytes": 5},
                        {"$$$double": [{"$bytes": "ff"}]}, {"$bytes": "00", "b": 1}, {"$": 1}, {"$text": "00"}, {"$bytes": b"\0"}, {}):
            for attributes in (strange, {"a": strange}, {"$bytes": strange}, {"a": [{"b": strange}, b"\0"], "c": strange}):
                with ztstream.open(ztstream.save({"w": numpy.zeros(1)}, attributes=attributes)) as file:
                    self.assertEqual(file.attributes, attributes)
        for wrong in ({"x": 1 << 64}, {"x": object()}, {1: 2}, {"x": {1: 2}}):
            with self.subTest(wrong), self.assertRaises(ztstream.ArgumentError):
                ztstream.save_file({}, self.path("y.zt"), attributes=wrong)

    def test_stream(self):
        path = self.path("x.zt")
        with self.assertRaisesRegex(ztstream.ArgumentError, "whole number of rows"), ztstream.Writer(path) as out:
            with out.begin("rest", "f32", (None, 3)) as stream:
                stream.write(bytes(16))
        self.assertFalse(os.path.exists(path))
        with ztstream.Writer(path) as out:
            with out.begin("open", "bf16", (None, 3), attributes={"q": 1}) as stream:
                for i in range(5):
                    stream.write(numpy.full((i, 3), i, "u2"))
        with ztstream.open(path) as file:
            self.assertEqual((file["open"].shape, file["open"].dtype, file["open"].attributes), ((10, 3), "bf16", {"q": 1}))

    def test_types(self):
        """Types go by every name that the program takes. Bits are unsigned integers; nothing else becomes another type."""
        path = self.path("x.zt")
        with ztstream.Writer(path) as out:
            out.add("a", numpy.arange(3, dtype="f4"), dtype="torch.float32")
            out.add("b", bytes(8), dtype="Float32")
            out.add("c", numpy.zeros(3, "V2"), dtype="bfloat16")
            with out.begin("d", "numpy.float64", (None, 2)) as rows:
                rows.write(numpy.arange(4.0))
                rows.write(memoryview(bytes(16)))
            with out.begin("e", "complex64", (None,)) as rows:
                rows.write(numpy.ones(3, "c8"))
        with ztstream.open(path) as file:
            self.assertEqual({name: (t.dtype, t.shape) for name, t in file.items()},
                             {"a": ("f32", (3,)), "b": ("f32", (2,)), "c": ("bf16", (3,)), "d": ("f64", (3, 2)),
                              "e": ("complex64", (3,))})
        for given, dtype in (("i4", "f32"), ("f4", "i32"), ("f2", "bf16"), ("f4", "u32"), ("i1", "u8"), ("c8", "f64")):
            with self.subTest(given=given, dtype=dtype), ztstream.Writer(self.path("y.zt"), overwrite=True) as out:
                with self.assertRaisesRegex(ztstream.ArgumentError, f"is not {dtype}"):
                    out.add("w", numpy.zeros(2, given), dtype=dtype)
                with out.begin("s", dtype, (None,)) as rows, self.assertRaisesRegex(ztstream.ArgumentError, f"is not {dtype}"):
                    rows.write(numpy.zeros(2, given))

    def test_other_arrays(self):
        path = self.path("x.zt")
        with ztstream.Writer(path) as out:
            out.add("list", [[1, 2], [3, 4]])
            out.add("scalar", 2.5)
            out.add("bytes", b"\0\0\x80?" * 2, dtype="f32", shape=(2, 1))
            out.add("big", numpy.arange(4, dtype=">i2")[::-2])
        with ztstream.open(path) as file:
            self.assertEqual({name: tensor.numpy().tolist() for name, tensor in file.items()},
                             {"list": [[1, 2], [3, 4]], "scalar": 2.5, "bytes": [[1.0], [1.0]], "big": [3, 1]})
        for wrong in ({"array": b"1234"}, {"array": b"1234", "dtype": "f32", "shape": (2,)}, {"array": numpy.zeros(2, "S3")},
                      {"array": numpy.zeros(2), "dtype": "f32"}, {"array": numpy.zeros(2), "dtype": "x"}):
            with self.subTest(wrong), self.assertRaises(ztstream.ArgumentError) as raised:
                with ztstream.Writer(self.path("none.zt")) as out:
                    out.add("w", **wrong)
            self.assertEqual(raised.exception.tensor, "w")
        for wrong, said in ((numpy.ma.array([1.0, 2.0], mask=[0, 1]), "it is masked, and a file has no masks; filled() gives its values"),
                            (numpy.zeros(2, numpy.longdouble), "numpy's float128 has no type in a file")):
            with self.assertRaises(ztstream.ArgumentError) as raised:
                ztstream.save_file({"w": wrong}, self.path("none.zt"))
            self.assertEqual((str(raised.exception), raised.exception.tensor), (f"tensor 'w': {said}", "w"))
        self.assertEqual(ztstream.open(ztstream.save({"w": numpy.ma.array([1.0, 2.0])}))["w"].numpy().tolist(), [1, 2])
        for shape in ((-1,), (1 << 64,), (2, -2)):
            with self.assertRaisesRegex(ztstream.ArgumentError, "is no shape"), ztstream.Writer(self.path("none.zt")) as out:
                out.add("w", b"", dtype="f32", shape=shape)
        with self.assertRaisesRegex(ztstream.ArgumentError, "w"), ztstream.Writer(self.path("none.zt")) as out:
            out.add("w", 1)
            out.add("w", 1)
        self.assertEqual(os.listdir(self.folder), ["x.zt"])

    def test_one_thread_at_a_time(self):
        """Others are refused while a call is under way; nothing is lost of what was added."""
        path, added, refused = self.path("x.zt"), [], []
        with ztstream.Writer(path, compress="planes") as out:
            def work(number):
                for i in range(100):
                    try:
                        out.add(f"{number}.{i}", numpy.full(3000, i, "f4"))
                        added.append((f"{number}.{i}", i))
                    except ztstream.MisuseError:
                        refused.append(i)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        self.assertEqual(len(added) + len(refused), 400)
        with ztstream.open(path) as file:
            self.assertTrue(file.verify().verified)
            self.assertEqual({name: int(tensor[2999]) for name, tensor in file.items()}, dict(added))

    def test_file_objects(self):
        tensors = {"w": numpy.arange(1 << 16)}
        data = ztstream.save(tensors, compress="zstd")
        with ztstream.open(data) as file:
            self.assertEqual(file["w"].numpy().tolist(), tensors["w"].tolist())
        ztstream.save_file(tensors, self.path("x.zt"), compress="zstd")
        self.assertEqual(data, pathlib.Path(self.path("x.zt")).read_bytes())

    def test_failing_file_objects(self):
        """A file object says how many bytes it has taken; none is made up, none waited for without an end."""
        class Sink:
            def __init__(self, answer, at=1):
                self.answer, self.at, self.calls, self.data = answer, at, 0, b""

            def write(self, data):
                self.calls += 1
                if self.calls < self.at:
                    self.data += data
                    return len(data)
                if isinstance(self.answer, BaseException):
                    raise self.answer
                return self.answer(self, data)

            def short(self, data):
                self.data += data[:700]
                return min(700, len(data))

        tensors = {"w": numpy.random.default_rng(1).random(1 << 15)}
        sink = Sink(Sink.short)
        ztstream.save_file(tensors, sink)
        self.assertEqual(sink.data, ztstream.save(tensors))
        for at in (1, 2, 3):
            for answer in (0, -1, None, "x", 1.0, 1 << 40, [8]):
                with self.subTest(answer=answer, at=at), self.assertRaisesRegex(
                        ztstream.InputOutputError, r"^file object: write\(\) of \d+ bytes has returned .*; a file object returns how "
                        "many it has taken, at least one$") as raised:
                    ztstream.save_file(tensors, Sink(lambda sink, data, answer=answer: answer, at))
                self.assertIn(repr(answer), str(raised.exception))
            for error in (OSError(28, "no space"), RuntimeError("mine"), KeyboardInterrupt(), SystemExit(3)):
                with self.subTest(error=error, at=at), self.assertRaises(type(error)) as raised:
                    ztstream.save_file(tensors, Sink(error, at))
                self.assertIs(raised.exception, error)

        class Buffered(io.BytesIO):
            def flush(self):
                raise OSError(28, "no space")

        with self.assertRaisesRegex(OSError, "no space"):
            ztstream.save_file(tensors, Buffered())
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with io.FileIO(reader), io.FileIO(writer, "wb") as pipe, self.assertRaisesRegex(OSError, "has returned None"):
            ztstream.save_file(tensors, pipe)

    def test_fork(self):
        """A child may not use its parent's writer, and does not harm it."""
        path = self.path("x.zt")
        with ztstream.Writer(path) as out:
            out.add("a", numpy.arange(3))
            child = os.fork()
            if child == 0:
                try:
                    out.add("b", numpy.arange(3))
                except ztstream.MisuseError as error:
                    os._exit(0 if "process" in str(error) else 1)
                os._exit(2)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        with ztstream.open(path) as file:
            self.assertEqual(list(file), ["a"])

    def test_fork_of_background(self):
        """A child cannot wait for what its parent writes, and says so; what it writes itself is whole. The parent's is, too."""
        go, path = threading.Event(), self.path("child.zt")

        class Slow(io.BytesIO):
            def write(self, data):
                go.wait(30)
                return super().write(data)

        slow = Slow()
        pending = ztstream.save_file({"w": numpy.ones(9)}, slow, background=True)
        child = os.fork()
        if child == 0:
            said = []
            for call in (pending.wait, pending.done):
                try:
                    call()
                except ztstream.MisuseError as error:
                    said.append("by the process that began it, which alone can wait for it" in str(error))
            with ztstream.save_file({"w": numpy.zeros(9)}, path, background=True):
                pass
            os._exit(0 if said == [True, True] and "another process" in repr(pending) else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        go.set()
        pending.wait()
        self.assertEqual((ztstream.load(path)["w"].sum(), ztstream.load(slow)["w"].sum()), (0, 9))

    def test_memory(self):
        """Writing half a gigabyte in pieces takes a small part of it."""
        code = """
values = numpy.arange(1 << 22, dtype="u4")
with ztstream.Writer(sys.argv[1], compress="zstd", sync=False, threads=2) as out:
    for i in range(32):
        out.add(str(i), values + i)
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""
        done = run(code, self.path("x.zt"))
        self.assertEqual(done.stderr, "")
        self.assertLess(int(done.stdout) >> 10, 200)


if __name__ == "__main__":
    unittest.main()
