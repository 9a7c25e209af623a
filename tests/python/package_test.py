"""The package beside values: reading, lifetimes, errors, threads, processes, Ctrl-C, memory and file objects, the program, torch."""
import array as array_module
import copy
import gc
import io
import json
import mmap
import multiprocessing
import os
import pathlib
import pickle
import random as random_module
import struct
import subprocess
import sys
import threading
import time
import unittest
import zipfile

import numpy
import xxhash
from package_support import DATA, SLOW, Case, npy, of_zt, resident, run, torch_or_skip, ztstream
import disk_delta
import make_safetensors
import make_zt
import onnx_assembler as onnx
import pickle_assembler as pickles
import quantized

try:
    import torch
except ImportError:
    torch = None


def sums(path, names, results):
    """In another process: the sum of each tensor, of a file that it was given."""
    results.put({name: float(path[name].numpy().sum()) for name in names})


class Reading(Case):
    def setUp(self):
        super().setUp()
        self.values = {"a": numpy.arange(60, dtype="f4").reshape(20, 3), "b": numpy.arange(7), "n\0ul": numpy.float64(2.5)}
        self.raw, self.packed = self.path("raw.zt"), self.path("packed.zt")
        ztstream.save_file(self.values, self.raw, attributes={"step": 3})
        ztstream.save_file(self.values, self.packed, compress="planes", min_gain=-1)

    def test_mapping(self):
        with ztstream.open(self.raw) as file:
            self.assertEqual(list(file), ["a", "b", "n\0ul"])
            self.assertEqual((len(file), "a" in file, "c" in file, 3 in file), (3, True, False, False))
            self.assertIsNone(file.get("c"))
            self.assertEqual([name for name, _ in file.items()], [tensor.name for tensor in file.values()])
            self.assertEqual((file.format, file.version, file.attributes, file.warnings), ("zt", "1.2.0", {"step": 3}, []))

    def test_order(self):
        """As written, of every version, compressed or not, in shards, of several files; and so do states come back."""
        values = {name: numpy.full(500, i, "f4") for i, name in enumerate(("z", "layers.10.w", "layers.9.w", "a", "m"))}
        path = self.path("order.zt")
        for options in ({}, {"compress": "zstd", "min_gain": -1}, {"spec": "2.0"}, {"spec": "1.1"}, {"spec": "0.1"}):
            ztstream.save_file(values, path, overwrite=True, **options)
            with ztstream.open(path) as file:
                for names in (list(file), [t.name for t in file.values()], [n for n, _ in file.items()], list(file.numpy())):
                    self.assertEqual(names, list(values), options)
                self.assertTrue(all(file.numpy()[name][0] == value[0] and file[name][0] == value[0] for name, value in values.items()))
        self.assertEqual(list(ztstream.load(path)), list(values))
        ztstream.save_file({"empty": numpy.empty(0), "c": numpy.ones(3), "b": numpy.ones(2)}, self.path("other.zt"))
        with ztstream.open(path, self.path("other.zt")) as file:
            self.assertEqual([name for name in file if name != "empty"], [*values, "c", "b"])
        for spec in ("1.2", "2.0"):
            ztstream.save_file(values, path, overwrite=True)
            ztstream.convert(path, self.path(f"shards{spec}.zt"), spec=spec, shards=3)
            with ztstream.open(self.path(f"shards{spec}.zt" + ".index.json" * (spec == "1.2"))) as file:
                self.assertEqual([float(t[0]) for t in file.values()], [float(values[name][0]) for name in file])
                self.assertEqual(list(file), list(values))
                for tensor in file.values():  # the file, also of a shard
                    path, offset, length = tensor.location
                    self.assertEqual(pathlib.Path(path).read_bytes()[offset:offset + length], values[tensor.name].tobytes())

    def test_delta(self):
        """What differs from a base is the model, with the base beside it or named."""
        values, delta, moved = dict(self.values, a=self.values["a"] + 1), self.path("delta.zt"), self.path("moved.zt")
        ztstream.save_file(values, self.path("new.zt"))
        ztstream.convert(self.path("new.zt"), delta, base=self.raw)
        with ztstream.open(delta) as file:
            self.assertEqual({name: tensor.numpy().tolist() for name, tensor in file.items()},
                             {name: numpy.asarray(value).tolist() for name, value in values.items()})
            self.assertTrue(file.verify().good)
        os.rename(self.raw, moved)
        with self.assertRaisesRegex(ztstream.ArgumentError, "'raw.zt'.*was not found"):
            ztstream.open(delta)
        with self.assertRaisesRegex(ztstream.ArgumentError, "it is a delta of 'raw.zt' .*, which is its base and was not found; "):
            ztstream.open(pathlib.Path(delta).read_bytes())
        for base in (moved, [moved], (str(moved),)):
            with ztstream.open(delta, base=base) as file:
                self.assertEqual(file["a"].numpy().tolist(), values["a"].tolist())
                self.assertEqual(pickle.loads(pickle.dumps(file))["a"].numpy().tolist(), values["a"].tolist())

    def versions(self):
        """Three steps: the tensors of each, and their files; the second and third are deltas."""
        random = numpy.random.default_rng(1)
        steps = [{"w": random.standard_normal((900, 1000)).astype("f4"), "h": random.standard_normal(70).astype("f2"),
                  "n": numpy.arange(5), "s": numpy.float64(1)}]
        for _ in range(2):
            fresh = {name: numpy.array(value) for name, value in steps[-1].items()}
            fresh["w"].reshape(-1)[::997] += 1
            fresh["h"][3] = 7
            steps.append(fresh)
        for i, tensors in enumerate(steps):
            ztstream.save_file(tensors, self.path(f"whole{i}.zt"))
            ztstream.convert(self.path(f"whole{i}.zt"), self.path(f"{i}.zt"), **({"base": self.path(f"{i - 1}.zt")} if i else {}))
        return steps

    def test_update_in_memory(self):
        """Arrays that hold a version become the next, where they lie; what they hold is compared."""
        steps = self.versions()

        def same(state, step):
            return all(state[name].tobytes() == numpy.asarray(value).tobytes() for name, value in steps[step].items())

        state = {name: numpy.array(value) for name, value in steps[0].items()}
        addresses = [value.ctypes.data for value in state.values()]
        with ztstream.open(self.path("1.zt"), base=None) as file:
            for _ in range(2):  # again does nothing
                file.update_(state)
                self.assertTrue(same(state, 1))
            with self.assertRaisesRegex(ztstream.MisuseError, "its base is in memory"):
                file["w"].numpy()
            self.assertEqual((file["w"].shape, file["w"].dtype), ((900, 1000), "f32"))
            # What holds neither version: nothing is changed.
            other = {name: numpy.array(value) for name, value in steps[0].items()}
            other["w"][899, 999] = 5
            with self.assertRaisesRegex(ztstream.ArgumentError, "'w'.*neither the bytes of the base"):
                file.update_(other)
            other["w"][899, 999] = steps[0]["w"][899, 999]
            self.assertTrue(same(other, 0))
            # Names, types and shapes.
            for name, value, kind, says in (("w", other["w"].astype("f8"), ztstream.ArgumentError, "f64"),
                                            ("w", other["w"].reshape(1000, 900), ztstream.ArgumentError, "another shape"),
                                            ("w", other["w"][:10], ztstream.ArgumentError, "another shape"),
                                            ("more", other["h"], ztstream.NotFoundError, "there is no tensor 'more'")):
                with self.assertRaisesRegex(kind, says):
                    file.update_({**other, name: value})
            read_only = numpy.array(other["w"])
            read_only.flags.writeable = False
            for value in (numpy.asfortranarray(other["w"]), read_only, other["w"].astype("f8")):
                with self.assertRaisesRegex(ztstream.ArgumentError, "^what is filled with 'w'") as wrong:
                    file.update_({**other, "w": value})
                self.assertEqual((wrong.exception.file, wrong.exception.tensor), (self.path("1.zt"), "w"))
            with self.assertRaisesRegex(ztstream.ArgumentError, "there is no 'h' among"):
                file.update_({name: value for name, value in other.items() if name != "h"})
            self.assertTrue(same(other, 0))
        self.assertEqual(addresses, [value.ctypes.data for value in state.values()])
        with ztstream.open(self.path("2.zt"), base=None) as file:
            file.update_(state, threads=3)
        self.assertTrue(same(state, 2))
        for begin in (0, 1):  # of any version, with the bases; of none
            state = {name: numpy.array(value) for name, value in steps[begin].items()}
            with ztstream.open(self.path("2.zt")) as file:
                file.update_(state)
            self.assertTrue(same(state, 2), begin)
        state["w"][:] = 3
        for path in ("2.zt", "whole2.zt"):
            with ztstream.open(self.path(path)) as file:
                file.update_(state)
            self.assertTrue(same(state, 2), path)

    def test_update_of_small_chunks(self):
        """Others may cut tensors so finely that a call has several chunks."""
        value = numpy.arange(1000, dtype="f4")
        ztstream.save_file({"w": value}, self.path("old.zt"))
        ztstream.convert(self.path("old.zt"), self.path("d.zt"), base=self.path("old.zt"))
        rows = b""
        for piece in value.reshape(10, 100):
            digest = xxhash.xxh3_64_intdigest(piece.tobytes())
            rows += struct.pack("<BIIQQ", 0, 0, 0, digest, digest)
        make_zt.forge(pathlib.Path(self.path("d.zt")), lambda m: m["objects"]["w"]["attributes"]["delta"]["parts"][0].update(chunk=400, chunks=rows))
        with ztstream.open(self.path("d.zt"), base=None) as file:
            file.update_({"w": value})
            with self.assertRaisesRegex(ztstream.ArgumentError, "neither the bytes of the base"):
                file.update_({"w": value[::-1].copy()})

    def test_update_of_names_that_share_memory(self):
        old = numpy.arange(50_000, dtype="f4")
        ztstream.save_file({"a": old, "b": old}, self.path("0.zt"))
        ztstream.save_file({"a": old + 1, "b": old + 1}, self.path("same.zt"))
        ztstream.save_file({"a": old + 1, "b": old + 2}, self.path("apart.zt"))
        for name in ("same", "apart"):
            ztstream.convert(self.path(f"{name}.zt"), self.path(f"{name}d.zt"), base=self.path("0.zt"))
            for base in ({}, {"base": None}):
                state = old.copy()
                with ztstream.open(self.path(f"{name}d.zt"), **base) as file:
                    if name == "same":
                        file.update_({"a": state, "b": state})
                    else:
                        with self.assertRaises(ztstream.ArgumentError) as caught:
                            file.update_({"a": state, "b": state})
                        self.assertIn("'b' shares its memory with another tensor, and not its values", str(caught.exception))
                self.assertEqual(state.tolist(), (old + (name == "same")).tolist())
        # A part of the memory alone.
        state = numpy.concatenate([old, old[:100]])
        before = state.tolist()
        with ztstream.open(self.path("samed.zt"), base=None) as file, self.assertRaises(ztstream.ArgumentError) as caught:
            file.update_({"a": state[:50_000], "b": state[100:]})
        self.assertIn("shares a part of its memory with another tensor", str(caught.exception))
        self.assertEqual(state.tolist(), before)

    def test_update_of_names_that_a_delta_ties(self):
        """One of them has to hold a version that the delta knows, whatever the others hold."""
        old = {name: numpy.arange(at, at + 1_500_000, dtype="f4") for at, name in enumerate("abcd")}
        new = {"a": -old["a"], "d": old["d"]}
        ztstream.save_file({**new, "b": new["a"], "c": new["a"]}, self.path("new.zt"))
        ztstream.save_file(old, self.path("old.zt"))
        ztstream.convert(self.path("new.zt"), self.path("d.zt"), base=self.path("old.zt"))

        def check(base, **held):
            state = {name: numpy.array(value) for name, value in {**old, **held}.items()}
            with ztstream.open(self.path("d.zt"), base=base) as file:
                file.update_(state)
            for name, value in state.items():
                self.assertTrue(numpy.array_equal(value, new["d" if name == "d" else "a"]), name)

        for base in (None, self.path("old.zt")):
            check(base)
            check(base, b=new["a"], c=old["a"])
            check(base, a=old["d"], c=new["a"])
        with self.assertRaisesRegex(ztstream.ArgumentError, "'a'.*neither the bytes of the base"):
            check(None, a=old["d"])
        check(self.path("old.zt"), a=old["d"])

    def test_damaged_differences_stay_an_error(self):
        """What follows them is no value, however often it is read."""
        old = {"w": numpy.zeros(200_000, "u1"), "small": numpy.zeros(4, "u1")}
        new = {"w": old["w"], "small": old["small"] + 1}
        ztstream.save_file(old, self.path("old.zt"))
        places = numpy.array([16387, *range(0, 2 * 16384, 2), 5, 6, 7], "<u4").tobytes()
        entries = {"w": places + bytes(16387), "small": disk_delta.encoded("overwrite", old["small"], new["small"])}
        sums = {name: disk_delta.checksum("adler32", data.tobytes()) for name, data in new.items()}
        disk_delta.put(self.path("v1"), [(entries, sums)], disk_delta.metadata("1", "0", "overwrite", "none", "adler32"))
        with ztstream.open(self.path("v1"), base=self.path("old.zt")) as file:
            self.assertEqual(file["small"].numpy().tolist(), [1, 1, 1, 1])
            for part in (slice(None), slice(199_000, 199_004), slice(None), slice(40_000, 40_010)):
                with self.assertRaisesRegex(ztstream.FormatError, "'w': position 5 of its differences is not above"):
                    file["w"][part]

    def test_handle(self):
        with ztstream.open(self.raw) as file:
            tensor = file["a"]
            self.assertEqual((tensor.name, tensor.shape, tensor.dtype, tensor.type, tensor.format, tensor.encoding),
                             ("a", (20, 3), "f32", "f32", "dense", "raw"))
            self.assertEqual((tensor.nbytes, tensor.ndim, tensor.size, len(tensor)), (240, 2, 60, 20))
            self.assertEqual((tensor.digest[:7], tensor.attributes, list(tensor.parts)), ("crc32c:", {}, ["data"]))
            path, offset, length = tensor.location
            self.assertEqual(pathlib.Path(path).read_bytes()[offset:offset + length], self.values["a"].tobytes())
            self.assertEqual(repr(tensor), "<Tensor 'a' f32 20x3 raw>")
            self.assertTrue(tensor.verify().verified)
            self.assertEqual(numpy.asarray(tensor).sum(), self.values["a"].sum())
            self.assertEqual([row.tolist() for row in tensor], self.values["a"].tolist())
            for scalar in (len, list, iter):
                with self.assertRaises(TypeError):
                    scalar(file["n\0ul"])
            with self.assertRaises(IndexError):
                tensor[20]

    def test_arrays_outlive_their_file(self):
        for path in (self.raw, self.packed):
            file = ztstream.open(path)
            arrays, rows, view = file.numpy(), file["a"][3:5], file["b"].buffer()
            file.close()
            del file
            gc.collect()
            os.remove(path)
            for name, value in self.values.items():
                self.assertTrue((arrays[name] == value).all())
            self.assertEqual(rows.tolist(), self.values["a"][3:5].tolist())
            self.assertEqual(bytes(view), self.values["b"].tobytes())

    def test_closed(self):
        file = ztstream.open(self.raw)
        tensor = file["a"]
        file.close()
        file.close()
        for call in (lambda: file["a"], lambda: tensor.numpy(), lambda: tensor.shape, lambda: list(file), lambda: "a" in file,
                     lambda: file.attributes, lambda: file.verify(), lambda: file.__enter__(),
                     lambda: file.numpy(dequantize="f32")):
            with self.assertRaisesRegex(ztstream.MisuseError, "raw.zt: the file is closed"):
                call()

    def test_handles_elsewhere(self):
        """A handle goes to other processes as its file and name, and is copied: its places in memory stay here."""
        with ztstream.open(self.packed) as file:
            for copied in (pickle.loads(pickle.dumps(file["a"])), copy.copy(file["a"]), copy.deepcopy(file["a"])):
                self.assertEqual((copied.role, copied.dtype, copied.numpy().tolist()), ("data", "f32", self.values["a"].tolist()))
            with self.assertRaises(TypeError):
                pickle.dumps(file["a"].parts["data"])

    def test_memory_of_the_caller(self):
        with ztstream.open(self.packed) as file:
            out = {"a": numpy.empty((20, 3), "f4"), "b": bytearray(56)}
            file.read(out=out)
            self.assertTrue((out["a"] == self.values["a"]).all() and bytes(out["b"]) == self.values["b"].tobytes())
            for offset, size in ((-1, 8), (240, 1), (236, 8), (1 << 64, 1), (0, 241)):
                with self.subTest(offset=offset), self.assertRaises(ztstream.ArgumentError):
                    file["a"].read_into(bytearray(size), offset)
            for wrong in (bytes(8), numpy.empty((4, 4), "f4").T[:, :2], memoryview(bytearray(8)).toreadonly()):
                with self.subTest(type(wrong)), self.assertRaises(ztstream.ArgumentError):
                    file["a"].read_into(wrong)
            with self.assertRaisesRegex(ztstream.ArgumentError, "^what is filled with 'a' has 3 bytes, not 240$"):
                file.read(out={"a": bytearray(3)})

    def test_memory_of_another_type(self):
        """Numbers are never taken for those of another type; bytes are bytes."""
        path = self.path("t.zt")
        with ztstream.Writer(path) as out:
            for dtype, spelled in (("f32", "f4"), ("f16", "f2"), ("bf16", "u2"), ("f8_e5m2", "u1"), ("i64", "i8"), ("bool", "?")):
                out.add(dtype, numpy.ones(4, spelled), dtype=dtype)
        kinds = ("f4", ">f4", "f2", "u2", "i2", "u1", "i1", "i8", "u8", "u4", "?", "V2", "c8", "M8[s]")
        fits = {"f32": {"f4"}, "f16": {"f2"}, "bf16": {"u2", "V2"}, "f8_e5m2": {"u1"}, "i64": {"i8"}, "bool": {"?"}}
        with ztstream.open(path) as file:
            for name, wanted in fits.items():
                for kind in kinds:
                    array = numpy.zeros(file[name].nbytes // numpy.dtype(kind).itemsize, kind)
                    for call in (lambda: file.read(out={name: array}), lambda: file[name].read_into(array)):
                        with self.subTest(name=name, kind=kind):
                            if kind in wanted or kind == "u1":
                                call()
                                self.assertEqual(array.tobytes(), file[name].tobytes())
                                continue
                            with self.assertRaisesRegex(ztstream.ArgumentError, f"^what is filled with '{name}' has elements of .*, and "
                                                        f"the tensor those of {name}; give such, or bytes$"):
                                call()
                            self.assertFalse(array.view("u1").any())
            floats, doubles = array_module.array("f", bytes(16)), array_module.array("d", bytes(16))
            file["f32"].read_into(floats)
            self.assertEqual(floats.tolist(), [1] * 4)
            with self.assertRaisesRegex(ztstream.ArgumentError, "elements of f64"):
                file["f32"].read_into(doubles)
            with self.assertRaisesRegex(ztstream.ArgumentError, "^no element of 'f32' begins at byte 3$"):
                file["f32"].read_into(numpy.zeros(2, "f4"), 3)
            file["f32"].read_into(bytearray(8), 3)

    def test_read_only(self):
        """Arrays in the pages of a file cannot be written to; copies can, and the file stays."""
        before = pathlib.Path(self.raw).read_bytes()
        with ztstream.open(self.raw) as file:
            with self.assertRaises(ValueError):
                file["a"].numpy()[0] = 1
            for array in (file["a"].numpy(), file.numpy()["a"], file["a"][3:], file["a"].view_bits()):
                with self.assertRaises(ValueError):
                    array.setflags(write=True)
            with self.assertRaises(TypeError):
                file["a"].buffer()[0] = 1
            file["a"].numpy(copy=True)[0] = 1
        self.assertEqual(pathlib.Path(self.raw).read_bytes(), before)

    def test_no_copy(self):
        """A raw tensor is not read: of 256 MiB of holes next to none is in memory."""
        path = self.path("large.zt")
        with ztstream.Writer(path, digest="none", sync=False) as out:
            with out.begin("w", "u8", (1 << 28,)) as stream:
                for _ in range(64):
                    stream.write(bytes(1 << 22))
        before = resident()
        with ztstream.open(path) as file:
            self.assertEqual(file["w"].numpy()[:: 1 << 24].sum(), 0)
            self.assertEqual(file["w"][1 << 27], 0)
            self.assertLess(resident() - before, 64 << 20)

    def test_rows_of_compressed(self):
        """Of the first dimension only the frames are decoded that are asked for."""
        path = self.path("large.zt")
        values = numpy.random.default_rng(1).standard_normal((1 << 14, 1 << 10)).astype("f4")  # 64 MiB
        ztstream.save_file({"w": values}, path, compress="zstd", min_gain=-1, digest="none")
        data = bytearray(pathlib.Path(path).read_bytes())
        with ztstream.open(path) as file:
            _, offset, length = file["w"].location
        data[offset + length // 2:offset + length - 4096] = bytes(length - 4096 - length // 2)  # nothing to decode there
        pathlib.Path(path).write_bytes(data)
        with ztstream.open(path) as file:
            self.assertTrue((file["w"][100:200] == values[100:200]).all())
            with self.assertRaises(ztstream.FormatError) as raised:
                file["w"].numpy()
            self.assertEqual((raised.exception.file, raised.exception.tensor), (path, "w"))

    def indices(self, random, shape):
        """A random index of numpy."""
        out = []
        for size in shape[:random.randrange(len(shape) + 1)]:
            ends = [random.choice([None, random.randrange(-size - 2, size + 3)]) for _ in range(2)]
            out.append(random.choice([slice(*ends), slice(*ends, random.choice([1, 2, 5, -1, -3])),
                                      random.randrange(-size, size) if size else slice(None)]))
        if random.random() < 0.2:
            out.append(...)
        if random.random() < 0.2:
            out.insert(random.randrange(len(out) + 1), None)
        return tuple(out) if len(out) != 1 or random.random() < 0.5 else out[0]

    def test_slices(self):
        """numpy's own, whatever is asked for; with few calls for those of many tensors."""
        random = random_module.Random(1)
        tensors = {f"t{i}": numpy.arange(numpy.prod(shape), dtype=("f4", "u1", "c16")[i % 3]).reshape(shape)
                   for i, shape in enumerate([(), (7,), (0, 3), (5, 6), (4, 5, 6), (3, 4, 5, 2), (1, 9, 1), (2, 3, 1 << 19)])}
        out = io.BytesIO()
        for target in (self.path("raw.zt"), self.path("planes.zt"), out):
            ztstream.save_file(tensors, target, compress="planes" if "planes" in str(target) else None, min_gain=-1, overwrite=True)
        for source in (self.path("raw.zt"), self.path("planes.zt"), out):
            with ztstream.open(source) as file:
                for _ in range(60):
                    wanted = {name: self.indices(random, array.shape) for name, array in tensors.items() if random.random() < 0.7}
                    for copy in (False, True):
                        for name, part in file.numpy(wanted, copy=copy).items():
                            self.assertTrue(numpy.array_equal(part, tensors[name][wanted[name]]), (name, wanted[name]))
                            self.assertEqual(part.shape, tensors[name][wanted[name]].shape)
                for name, array in tensors.items():
                    index = self.indices(random, array.shape)
                    self.assertTrue(numpy.array_equal(file[name][index], array[index]), (name, index))
                odd = tensors["t4"] % 2 == 0
                for index in (([0, 2],), (slice(1, 3), [1, 2]), (odd,), (1, odd[1]), (..., numpy.array(2)), (2, [0, 1], 3), True):
                    self.assertTrue(numpy.array_equal(file["t4"][index], tensors["t4"][index]), index)
                for name, index in (("t3", 5), ("t3", (0, -7)), ("t3", (0, 0, 0)), ("t0", 0)):
                    with self.assertRaises(IndexError):
                        file[name][index]

    def test_slices_are_read_once(self):
        """Columns of many tensors by one call, which decodes each byte once; of long rows no more than is asked for."""
        path = self.path("m.zt")
        values = numpy.random.default_rng(1).standard_normal((4, 1 << 20)).astype("f4")
        tensors = {f"w{i}": numpy.full((256, 512), i, "f4") for i in range(6)}
        ztstream.save_file({**tensors, "long": values}, path, compress="zstd", min_gain=-1)
        with ztstream.open(path) as file:
            calls, read = [], file._read
            file._read = lambda wanted, threads: (calls.append(sum(each[3] for each in wanted)), read(wanted, threads))
            parts = file.numpy({name: numpy.s_[:, 128:256] for name in tensors})
            self.assertEqual([part[0, 0] for part in parts.values()], list(range(6)))
            self.assertEqual(len(calls), 1)
            self.assertLess(calls[0], sum(array.nbytes for array in tensors.values()))
            self.assertTrue((file["long"][1:3, 1000:2000] == values[1:3, 1000:2000]).all())
            self.assertEqual(calls[1:], [8000])

    def test_memory_and_file_objects(self):
        data = pathlib.Path(self.packed).read_bytes()
        with open(self.packed, "rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for source in (data, bytearray(data), memoryview(data), io.BytesIO(data), open(self.packed, "rb"), numpy.frombuffer(data, "u1"),
                       numpy.frombuffer(data, "u1").copy(), array_module.array("B", data), memoryview(data[:1] + data)[1:]):
            with self.subTest(type(source)), ztstream.open(source) as file:
                self.assertEqual(file["a"].numpy().tolist(), self.values["a"].tolist())
                self.assertTrue(file.verify().verified)
                with self.assertRaises(TypeError):
                    pickle.dumps(file)
            if hasattr(source, "close"):
                source.close()
        with self.assertRaises(ztstream.FormatError):
            ztstream.open(b"nothing")
        with self.assertRaises(ztstream.FormatError):
            ztstream.open(b"")
        with ztstream.open(pages) as file:  # which has read and seek
            self.assertEqual(file["a"].numpy().tolist(), self.values["a"].tolist())
        with self.assertRaises(TypeError):
            ztstream.open(3)

    def test_failing_file_object(self):
        class Failing(io.BytesIO):
            def read(self, count=-1):
                raise OSError(28, "no space")

        with self.assertRaisesRegex(ztstream.InputOutputError, "No space"):
            ztstream.open(Failing(b"x" * 100))

        class Strange(io.BytesIO):
            answer = None

            def read(self, count=-1):
                return self.answer

        source = Strange(pathlib.Path(self.raw).read_bytes())
        for answer, said in ((None, "None"), (b"", "0 bytes"), (bytes(1000), "1000 bytes")):
            source.answer = answer
            with self.assertRaisesRegex(ztstream.InputOutputError, rf"^file object: read\(\d+\) has returned {said}; a file object that "
                                        "is opened returns what there is, at least one byte before its end$"):
                ztstream.open(source)

    def test_exceptions_of_file_objects(self):
        """What a file object raises, Ctrl-C too, comes out of the call that has asked it; no bytes are made up."""
        class Raising(io.BytesIO):
            error, more = None, b""

            def read(self, count=-1):
                if self.error is not None:
                    raise self.error
                return super().read(count) + self.more

        for path in (self.raw, self.packed):
            source = Raising(pathlib.Path(path).read_bytes())
            with ztstream.open(source) as file:
                tensor, strange = file["a"], OSError("strange")
                strange.errno = "text"
                for error, kind in ((KeyboardInterrupt(), KeyboardInterrupt), (ValueError("mine"), ValueError),
                                    (OSError(28, "no space"), ztstream.InputOutputError),
                                    (OSError(-3, "negative"), ztstream.InputOutputError),
                                    (strange, ztstream.InputOutputError)):
                    source.error = error
                    for call in (tensor.numpy, file.verify, lambda: file["b"].tobytes(), lambda: ztstream.open(source)):
                        with self.subTest(error=error), self.assertRaises(kind):
                            call()
                source.error, source.more = None, b"more"
                with self.assertRaises(ztstream.InputOutputError):
                    tensor.numpy()
                source.more = b""
                self.assertEqual(tensor.numpy().tolist(), self.values["a"].tolist())

    def test_names_of_other_files(self):
        """Bytes that were not read from a file by its name have nothing to do with a file of that name."""
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        numpy.save("memory", numpy.arange(8))
        os.rename("memory.npy", "memory")
        numpy.save("w.npy", numpy.arange(8))
        ztstream.save_file({"w": numpy.arange(8)}, "w.zt")
        wanted = numpy.arange(100, 108)
        with zipfile.ZipFile("z.zip", "w") as archive:
            archive.writestr("w.npy", npy(wanted))
            archive.writestr("w.zt", ztstream.save({"w": wanted}))
        numpy.savez("w.npz", w=wanted)
        with zipfile.ZipFile("z.zip") as archive:
            for source in (npy(wanted), archive.open("w.npy"), archive.open("w.zt"), "w.npz"):
                with self.subTest(source=source), ztstream.open(source) as file:
                    tensor, = file.values()
                    self.assertEqual(tensor.numpy().tolist(), wanted.tolist())
                    self.assertEqual(tensor.numpy(copy=True).tolist(), wanted.tolist())

    def test_replaced(self):
        """Where another file has got the name, the tensors are those of the file that was opened."""
        old, new = numpy.arange(8), numpy.arange(100, 108)
        for name, save in (("w.npy", numpy.save),
                           ("w.zt", lambda path, array: ztstream.save_file({"w": array}, path, overwrite=True))):
            path = self.path(name)
            save(path, old)
            with self.subTest(name), ztstream.open(path) as file:
                save(self.path("other-" + name), new)
                os.replace(self.path("other-" + name), path)
                tensor, = file.values()
                self.assertFalse(tensor.numpy().flags.writeable)  # mapped
                self.assertEqual(tensor.numpy().tolist(), old.tolist())
                self.assertEqual(tensor.numpy(copy=True).tolist(), old.tolist())
                if name == "w.zt":
                    self.assertTrue(tensor.verify().verified)

    def test_shrunk(self):
        """A file that is shorter now is not mapped, and reading it is an error."""
        path = self.path("w.zt")
        ztstream.save_file({"w": numpy.arange(10000)}, path)
        with ztstream.open(path) as file:
            os.truncate(path, 5000)
            for call in (file["w"].numpy, lambda: file["w"].numpy(copy=True), lambda: file["w"][9000:]):
                with self.assertRaisesRegex(ztstream.FormatError, "w.zt"):
                    call()

    def test_mapped_stays(self):
        """What was mapped before stays what it was, and .npy files and .zt files are mapped."""
        for name in ("w.npy", "w.zt"):
            path, old = self.path(name), numpy.arange(8)
            numpy.save(path, old) if name == "w.npy" else ztstream.save_file({"w": old}, path)
            with self.subTest(name), ztstream.open(path) as file:
                tensor, = file.values()
                array = tensor.numpy()
                self.assertFalse(array.flags.writeable)
                pathlib.Path(self.path("other")).write_bytes(b"other")
                os.replace(self.path("other"), path)
                self.assertEqual((array.tolist(), tensor.numpy().tolist()), (old.tolist(), old.tolist()))

    def test_location(self):
        """What lies in an archive has no place in the file that is named."""
        numpy.savez(self.path("w.npz"), w=numpy.arange(8))
        numpy.save(self.path("w.npy"), numpy.arange(8))
        with ztstream.open(self.path("w.npz")) as file:
            self.assertIsNone(file["w"].location)
        with ztstream.open(self.path("w.npy")) as file:
            path, offset, length = file["w"].location
            self.assertEqual(pathlib.Path(path).read_bytes()[offset:offset + length], numpy.arange(8).tobytes())

    def test_files(self):
        """What goes with the weights is no tensor: it is in no state_dict, and readable by its path."""
        ztstream.convert(DATA / "hf-sharded", self.path("m.zt"))
        config = (DATA / "hf-sharded/config.json").read_bytes()
        for source in (DATA / "hf-sharded", self.path("m.zt"), pathlib.Path(self.path("m.zt")).read_bytes()):
            with self.subTest(source=str(source)[:80]), ztstream.open(source) as file:
                files = file.files()
                self.assertEqual(files["config.json"].tobytes(), config)
                self.assertEqual((files["config.json"].nbytes, files["config.json"].dtype), (len(config), "u8"))
                names = list(file)
                self.assertFalse([name for name in names if "config" in name])
                self.assertEqual((len(file), len(file.values()), len(file.items()), set(file.keys())),
                                 (len(names), len(names), len(names), set(names)))
                self.assertFalse("__meta__/files/config.json" in file)
                with self.assertRaises(KeyError):
                    file["__meta__/files/config.json"]
        with ztstream.open(self.raw) as file:
            self.assertEqual(file.files(), {})

    def test_numbers_of_quantized_tensors(self):
        """dequantize= of open() and of one call: the numbers, without scales; by paths, bytes and file objects."""
        for scheme in ("fp8_blocks", "gptq", "bnb_int8"):
            config, add = quantized.SCHEMES[scheme](numpy.random.default_rng(9))
            tensors = {"norm": ("F32", [2], bytes(8))}
            numbers = add(tensors, "a") | add(tensors, "b")
            model = self.path(scheme)
            os.mkdir(model)
            (pathlib.Path(model) / "config.json").write_text(json.dumps({"quantization_config": config}))
            make_safetensors.write(f"{model}/model.safetensors", tensors)
            with ztstream.open(model) as file, ztstream.open(model, dequantize="f32") as dense:
                self.assertEqual(set(file), set(tensors))
                self.assertEqual(set(dense), {"norm", *numbers, *(name for name in tensors if name.endswith(".bias"))})
                for name, want in numbers.items():
                    self.assertEqual((dense[name].type, dense[name].shape), ("f32", want.shape))
                    numpy.testing.assert_array_equal(dense[name].numpy(), want)
                    numpy.testing.assert_array_equal(dense[name][1:], want[1:])
                    numpy.testing.assert_array_equal(file.numpy([name], dequantize="f32")[name], want)
                    out = bytearray(2 * want.size)
                    file.read(out={name: out}, dequantize="bf16")
                    given = [numpy.frombuffer(out, "<u2")]
                    if torch is not None:
                        found = file.torch([name], dequantize="bf16")[name]
                        self.assertEqual((found.dtype, tuple(found.shape)), (torch.bfloat16, want.shape))
                        given.append(found.reshape(-1).view(torch.int16).numpy().view("u2"))
                    want = quantized.to_bf16(want).reshape(-1)
                    for bits in given:
                        nan = (bits & 0x7fff) > 0x7f80
                        numpy.testing.assert_array_equal(numpy.where(nan, 0, bits), numpy.where((want & 0x7fff) > 0x7f80, 0, want))
            whole = self.path(scheme + ".zt")
            ztstream.convert(model, whole)
            data = pathlib.Path(whole).read_bytes()
            for given in (whole, data, io.BytesIO(data)):
                with ztstream.open(given, dequantize="f16") as dense:
                    self.assertEqual({dense[name].type for name in numbers}, {"f16"})
                    self.assertEqual(dense[min(numbers)].shape, numbers[min(numbers)].shape)
        with self.assertRaisesRegex(ztstream.ArgumentError, "dequantize: 'i8' is not f32, f16 or bf16"):
            ztstream.open(self.raw, dequantize="i8")

    def test_shards(self):
        """By their index and by their folder; raw tensors lie in the pages of the shards."""
        values = {name: numpy.full((300, 100), i, "f4") for i, name in enumerate("abcdef")}
        ztstream.save_file(values, self.path("w.zt"))
        folder = self.folder / "shards"
        folder.mkdir()
        for spec, root in (("1.2", "m.zt.index.json"), ("2.0", "m.zt")):
            for old in folder.iterdir():
                old.unlink()
            ztstream.convert(self.path("w.zt"), folder / "m.zt", shards=3, spec=spec, raw=True)
            for source in (folder / root, folder):
                with self.subTest(source=source), ztstream.open(source) as file:
                    self.assertEqual(sorted(file), list("abcdef"))
                    self.assertTrue(all((file[name].numpy() == value).all() for name, value in values.items()))
                    self.assertEqual(file["a"].numpy().flags.writeable, spec == "2.0")
                    self.assertTrue(file.verify().good)
            shard = folder / "m-00002-of-00003.zt"
            data = bytearray(shard.read_bytes())
            data[70000] ^= 1
            shard.write_bytes(data)
            for source in (folder / root, folder):
                with self.subTest(source=source), ztstream.open(source) as file:
                    self.assertFalse(file.verify().good)
                    # d lies in the same shard, of which a root states a digest.
                    self.assertEqual([name for name in "abcef" if not file[name].verify().good], ["c"])

    def test_views_of_one_deflated_storage(self):
        """They share a stream, whatever threads read them."""
        elements = 50_000
        numbers = numpy.arange(8 * elements, dtype="<f4") % 50
        views = {f"w{i}": pickles.tensor((elements,), offset=i * elements, count=numbers.size) for i in range(8)}
        packed = self.path("packed.pt")
        pathlib.Path(packed).write_bytes(pickles.archive(pickles.dictionary(**views), {"0": numbers.tobytes()},
                                                         method=zipfile.ZIP_DEFLATED))
        for _ in range(20):
            with ztstream.open(packed, threads=8) as file:
                for name, array in file.numpy(copy=True).items():
                    begin = int(name[1:]) * elements
                    self.assertTrue((array == numbers[begin:begin + elements]).all())

    def test_several(self):
        other = self.path("other.zt")
        ztstream.save_file({"z": numpy.zeros(3)}, other)
        with ztstream.open(self.raw, other) as file:
            self.assertEqual(sorted(file), ["a", "b", "n\0ul", "z"])
        with self.assertRaisesRegex(ztstream.FormatError, "'a'"):
            ztstream.open(self.raw, self.packed)

    def test_parts(self):
        path = self.path("sparse.zt")
        parts = {"values": numpy.array([1.0, 2.0]), "indices": numpy.array([0, 2], "u8"), "indptr": numpy.array([0, 1, 2], "u8")}
        with ztstream.Writer(path) as out:
            out.add_object("s", "sparse_csr", (2, 3), parts, attributes={"k": [1, None]})
        with self.assertRaisesRegex(ztstream.ArgumentError, "needs a component 'indices'"):
            with ztstream.Writer(self.path("none.zt")) as out:
                out.add_object("t", "sparse_csr", (2, 3), {"values": numpy.zeros(2)})
        with ztstream.open(path) as file:
            self.assertEqual(file["s"].attributes, {"k": [1, None]})
            self.assertEqual({role: part.numpy().tolist() for role, part in file["s"].parts.items()},
                             {role: part.tolist() for role, part in parts.items()})
            self.assertEqual(set(file.numpy()["s"]), set(parts))
            with self.assertRaisesRegex(ztstream.UnsupportedError, "parts: "):
                file["s"].numpy()

    def test_verify(self):
        with ztstream.open(self.raw) as file:
            self.assertTrue(file.verify().verified)
        data = bytearray(pathlib.Path(self.raw).read_bytes())
        data[64] ^= 1
        pathlib.Path(self.raw).write_bytes(data)
        with ztstream.open(self.raw) as file:
            report = file.verify()
            self.assertEqual([(name, role) for name, role, _ in report.problems], [("a", "data")])
            self.assertFalse(report.good)
            self.assertTrue(file["b"].verify().verified)
            self.assertEqual(file["a"].verify().problems, report.problems)
        # One tensor is judged as all are: a damaged frame has a wrong digest, too.
        ztstream.save_file(self.values, self.raw, compress="zstd", min_gain=-1, overwrite=True)
        data = bytearray(pathlib.Path(self.raw).read_bytes())
        data[70] ^= 255
        pathlib.Path(self.raw).write_bytes(data)
        with ztstream.open(self.raw) as file:
            report = file.verify()
            self.assertEqual({name for name, _, _ in report.problems}, {"a"})
            self.assertEqual(file["a"].verify().problems, report.problems)
        ztstream.save_file(self.values, self.raw, digest="none", overwrite=True)
        with ztstream.open(self.raw) as file:
            report = file.verify()
            self.assertEqual((report.good, report.verified, report.unhashed), (True, False, 3))

    def test_many_opens(self):
        before = resident()
        for _ in range(300 if SLOW else 10000):
            with ztstream.open(self.raw) as file:
                file["a"].numpy()
        gc.collect()
        self.assertLess(resident() - before, 32 << 20)
        self.assertLess(len(os.listdir("/proc/self/fd")), 100)

    def test_threads(self):
        failed = []

        def work(file):
            for _ in range(20):
                for name, value in self.values.items():
                    if not (file[name].numpy() == value).all() or file[name].name != name:
                        failed.append(name)

        with ztstream.open(self.packed) as file:
            threads = [threading.Thread(target=work, args=(file,)) for _ in range(8)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        self.assertEqual(failed, [])

    def test_close_while_reading(self):
        """A file that one thread closes while another reads it is open until that has ended."""
        code = """
import io, threading
entered, closed, ended = threading.Event(), threading.Event(), []
values = []
class Slow(io.BytesIO):
    slow = False
    def read(self, count=-1):
        if self.slow:
            entered.set()
            closed.wait(60)
            ended.append("read")
        return super().read(count)
def read():
    values.append(tensor.numpy().sum())
source = Slow(open(sys.argv[1], "rb").read())
file = ztstream.open(source)
tensor, close = file["a"], file._held.close
file._held.close = lambda: (ended.append("closed"), close())
source.slow = True
thread = threading.Thread(target=read)
thread.start()
entered.wait(60)
file.close()
closed.set()
thread.join()
assert (values, ended) == ([1770.0], ["read"] * (len(ended) - 1) + ["closed"]), (values, ended)
"""
        done = run(code, self.packed)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_processes(self):
        """An open file goes to other processes as its path; a forked one may use it as it is."""
        with ztstream.open(self.packed) as file:
            copy = pickle.loads(pickle.dumps(file))
            self.assertEqual(copy["b"].numpy().tolist(), self.values["b"].tolist())
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                results = context.Queue()
                child = context.Process(target=sums, args=(file, ["a", "b"], results))
                child.start()
                self.assertEqual(results.get(timeout=60), {"a": 1770.0, "b": 21.0})
                child.join()
                self.assertEqual(child.exitcode, 0)


class Only:
    """An array of another library, which has DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Surroundings(Case):
    """What other libraries, notebooks and people at a prompt expect."""

    def setUp(self):
        super().setUp()
        self.path_of = self.path("m.zt")
        self.values = {"layers.0.weight": numpy.arange(6, dtype="f4").reshape(2, 3), "layers.0.bias": numpy.ones(2, "f4"),
                       "<scale>": numpy.array(2.5)}
        ztstream.save_file(self.values, self.path_of)

    def test_dlpack(self):
        with ztstream.open(self.path_of) as file:
            for name, array in self.values.items():
                self.assertEqual(numpy.from_dlpack(file[name]).tolist(), array.tolist())
        data = ztstream.save({"a": Only(numpy.arange(6).reshape(2, 3)), "b": Only(numpy.arange(6)[::2])})
        self.assertEqual({name: array.tolist() for name, array in ztstream.load(data).items()}, {"a": [[0, 1, 2], [3, 4, 5]], "b": [0, 2, 4]})

    def test_types(self):
        """Names, and dtypes of numpy."""
        bits = numpy.arange(4, dtype="u2")
        with ztstream.Writer(self.path("t.zt")) as out:
            for i, kind in enumerate((numpy.float16, numpy.dtype("f2"), "f16", "float16", "half")):
                out.add(f"a{i}", bits, dtype=kind)
            out.add("bytes", bytes(16), dtype=float)
            out.add_object("parts", "example.pair/1", (2,), {"first": (bits, numpy.int16), "second": (bytes(2), numpy.bool_)})
            with out.begin("rows", numpy.int32, (None, 2)) as rows:
                rows.write(numpy.zeros((3, 2), "i4"))
            for wrong in (5, object(), [1]):
                with self.assertRaisesRegex(ztstream.ArgumentError, "a type is a text such as 'f32' or a dtype"):
                    out.add("x", bits, dtype=wrong)
        with ztstream.open(self.path("t.zt")) as file:
            self.assertEqual({file[f"a{i}"].dtype for i in range(5)}, {"f16"})
            self.assertEqual((file["bytes"].dtype, file["bytes"].shape, file["rows"].dtype), ("f64", (2,), "i32"))
            self.assertEqual([part.dtype for part in file["parts"].parts.values()], ["i16", "bool"])
        ztstream.convert(self.path_of, self.path("half.zt"), dtype=numpy.float16)
        self.assertEqual(ztstream.open(self.path("half.zt"))["layers.0.weight"].dtype, "f16")

    def test_prompts(self):
        file = ztstream.open(self.path_of)
        self.assertEqual(repr(file), f"<File '{self.path_of}' zt 1.2.0, 3 tensors>")
        page = file._repr_html_()
        self.assertIn("<td>layers.0.weight</td><td>f32</td><td>[2, 3]</td><td>raw</td><td>24</td>", page)
        self.assertIn("&lt;scale&gt;", page)
        self.assertNotIn("<scale>", page)
        self.assertEqual(file._ipython_key_completions_(), list(file))
        for name, near in (("layers.0.wieght", "near it: 'layers.0.weight'"), ("layers.0", "near it: 'layers.0.weight', 'layers.0.bias'"),
                           ("zzz", None)):
            for call in (lambda: file[name], lambda: file.numpy([name])):
                with self.subTest(name), self.assertRaises(KeyError) as raised:
                    call()
                self.assertEqual(str(raised.exception), f"{self.path_of}: there is no tensor {name!r}" + (f"; {near}" if near else ""))
        scale, bias = file["<scale>"], file["layers.0.bias"]
        self.assertEqual((float(scale), int(scale), bool(scale), scale.item(), bias.tolist(), bool(bias)), (2.5, 2, True, 2.5, [1, 1], True))
        with self.assertRaises((ValueError, TypeError)):
            float(bias)
        file.close()
        self.assertIn("closed", repr(file) + file._repr_html_())
        many = ztstream.save({f"t{i}": numpy.array(i) for i in range(300)})
        self.assertIn("<p>and 100 more</p>", ztstream.open(many)._repr_html_())

    def test_sources(self):
        """A path in bytes is none; fsspec's files are opened, and its URLs where it is installed."""
        with self.assertRaisesRegex(ztstream.ArgumentError, f"^bytes are the content of a file; the path is '{self.path_of}'$"):
            ztstream.open(os.fsencode(self.path_of))
        opened = type("OpenFile", (), {"fs": None, "open": lambda _: io.BytesIO(pathlib.Path(self.path_of).read_bytes())})
        for source in (opened(), pathlib.Path(self.path_of)):
            self.assertEqual(ztstream.load(source)["layers.0.bias"].tolist(), [1, 1])
        with self.assertRaises(ztstream.Error):
            ztstream.open("nope://m.zt")
        try:
            import fsspec
        except ImportError:
            return
        with fsspec.open("memory://m.zt", "wb") as out:
            ztstream.save_file(self.values, out)
        for source in ("memory://m.zt", fsspec.open("memory://m.zt"), fsspec.open("memory://m.zt").open()):
            with ztstream.open(source) as file:
                self.assertTrue(file.verify().verified)
                self.assertEqual(file["layers.0.bias"].tolist(), [1, 1])

    def test_more_of_the_program(self):
        out = self.path("s/m.zt")
        os.mkdir(self.path("s"))
        ztstream.convert(self.path_of, out, shards=2)
        joined = ztstream.join(sorted(pathlib.Path(self.path("s")).glob("m-*.zt")), out, force=True)
        self.assertTrue(joined["ok"])
        self.assertEqual(ztstream.id(out + ".index.json"), ztstream.id(self.path_of))
        self.assertRegex(ztstream.id(self.path_of, digest="xxh3"), "^xxh3:")
        self.assertEqual(ztstream.show(self.path_of, "layers.0.weight[1,:2]")["values"], [3, 4])
        with self.assertRaises(ztstream.ArgumentError):
            ztstream.show(self.path_of)


class Errors(Case):
    def test_what_they_advise(self):
        """Slips of somebody who is new: each message says what to write instead."""
        path, w = self.path("x.zt"), {"w": numpy.zeros(3)}
        ztstream.save_file(w, path)
        exists = f"{path}: the output exists already; "
        module = type("Module", (), {"state_dict": lambda self: {}})()
        for call, message in (
                (lambda: ztstream.save_file(w, path), exists + "overwrite=True replaces it"),
                (lambda: ztstream.convert(path, path), exists + "force=True replaces it"),
                (lambda: ztstream.save_file(w, "w.safetensors"),
                 "w.safetensors: .zt files are written, and this name ends like another format's"),
                (lambda: ztstream.Writer(pathlib.Path("w.npz")),
                 "w.npz: .zt files are written, and this name ends like another format's"),
                (lambda: ztstream.save_file(module, self.path("m.zt")),
                 "tensors are a dict of names and arrays; that of a module is its state_dict()"),
                (lambda: ztstream.save_file({"m": {0.5: w}}, self.path("m.zt")), "a key of 'm' is 0.5; keys are texts and whole numbers"),
                (lambda: ztstream.load_file(path, "w"), "names are a list: ['w']; one tensor is file['w']"),
                (lambda: ztstream.open(DATA / "gguf/little.gguf")["q8"].numpy(), None)):
            with self.subTest(message), self.assertRaises(ztstream.Error) as raised:
                call()
            if message is None:
                self.assertTrue(str(raised.exception).endswith("convert(..., dequantize='f32') makes numbers of it"))
            else:
                self.assertEqual(str(raised.exception), message)
        self.assertFalse(pathlib.Path(self.path("m.zt")).exists())

    def test_reads_after_one_that_fails(self):
        """Numbers that are decoded front to back: what follows the damage is never what lies before it."""
        values, path = numpy.arange(300_000) % 251, self.path("m.onnx")
        numbers = b"".join(map(onnx.varint, values[:200_000].tolist())) + b"\xff" * 11 + b"\1" * 99_999
        pathlib.Path(path).write_bytes(onnx.model(onnx.tensor("w", 2, (300_000,), onnx.field(5, numbers))))
        with ztstream.open(path) as file:
            for low, high in ((0, 100_000), (100_000, 250_000), (200_000, 200_010), (199_000, 200_000), (50, 90)):
                if high <= 200_000:
                    numpy.testing.assert_array_equal(file["w"][low:high], values[low:high])
                    continue
                with self.assertRaisesRegex(ztstream.FormatError, "more than ten bytes"):
                    file["w"][low:high]

    def test_kinds(self):
        """Standard kinds, with file and tensor, that survive pickling."""
        path = self.path("x.zt")
        ztstream.save_file({"w": numpy.zeros(3)}, path)
        pathlib.Path(self.path("x.gz")).write_bytes(b"\x1f\x8b" + bytes(20))
        nested = []
        for _ in range(5000):
            nested = [nested]

        class Size:  # like those of torch's nested tensors
            def __index__(self):
                raise AttributeError

        cases = [
            (lambda: ztstream.open(self.path("none.zt")), FileNotFoundError, self.path("none.zt"), None),
            (lambda: ztstream.open(self.path("none.zt")), OSError, self.path("none.zt"), None),
            (lambda: ztstream.open(path)["q"], KeyError, path, "q"),
            (lambda: ztstream.save_file({}, path), FileExistsError, path, None),
            (lambda: ztstream.open(DATA / "README.md"), ValueError, str(DATA / "README.md"), None),
            (lambda: ztstream.open(self.path("x.gz")), NotImplementedError, self.path("x.gz"), None),
            (lambda: ztstream.save_file({"s": numpy.array(["x"])}, self.path("y.zt")), ValueError, None, "s"),
            (lambda: ztstream.save_file({"s": numpy.zeros(2)}, self.path("y.zt"), spec="7"), ValueError, None, None),
            (lambda: ztstream.save_file({}, self.path("y.zt"), compress="gzip"), ValueError, None, None),
            (lambda: ztstream.save_file({}, self.path("no/y.zt")), OSError, self.path("no/y.zt"), None),
            (lambda: ztstream.save_file({}, "a\0b"), ValueError, None, None),
            (lambda: ztstream.load_file(path, framework="jax"), ValueError, None, None),
            (lambda: ztstream.open(path, format="xyz"), ValueError, None, None),
            (lambda: ztstream.convert(self.path("none.zt"), self.path("y.zt")), FileNotFoundError, self.path("none.zt"), None),
            (lambda: ztstream.save_file({"\ud800": numpy.zeros(2)}, self.path("y.zt")), ValueError, None, "\ud800"),
            (lambda: ztstream.save_file({}, self.path("y.zt"), attributes={"a": nested}), ValueError, None, None),
            (lambda: ztstream.open(path)["\ud800"], KeyError, path, "\ud800"),
            *((lambda threads=threads: ztstream.open(path, threads=threads), ValueError, None, None)
              for threads in (-1, 1025, 1 << 32, "x", 1.5)),
            (lambda: ztstream.open(path)["w"].read_into(bytearray(8), threads=-1), ValueError, None, None),
            (lambda: ztstream.open(path).verify(threads=1 << 32), ValueError, None, None),
            (lambda: ztstream.save_file({}, self.path("y.zt"), threads=-1), ValueError, None, None),
            (lambda: ztstream.save_file({}, self.path("y.zt"), memory=1 << 64), ValueError, None, None),
            *((lambda option=option: ztstream.open(path, **option), ValueError, None, None)
              for option in ({"format": 5}, {"format": "zt\0"}, {"variant": 5}, {"profile": b"x"}, {"s3_headers": [1]}, {"region": "\ud800"})),
            *((lambda option=option: ztstream.save_file({}, self.path("y.zt"), **option), ValueError, None, None)
              for option in ({"digest": 5}, {"spec": 2.0}, {"spec": "1.2\0"}, {"s3_headers": "x"})),
            (lambda: ztstream.Writer(self.path("y.zt")).add("x", [1, [2]]), ValueError, None, "x"),
            (lambda: ztstream.open(path).read(["w"], out={}), ValueError, None, "w"),
            (lambda: ztstream.Writer(self.path("y.zt")).add("x", b"abcd", dtype="f32\0"), ValueError, None, None),
            (lambda: ztstream.Writer(self.path("y.zt")).begin("x", "f32", (None, Size())), ValueError, None, "x"),
        ]
        for call, kind, file, tensor in cases:
            with self.subTest(kind), self.assertRaises(kind) as raised:
                call()
            error = raised.exception
            self.assertIsInstance(error, ztstream.Error)
            self.assertEqual((error.file, error.tensor), (file, tensor))
            if isinstance(error, OSError) and not isinstance(error, FileExistsError):
                self.assertIn((error.errno, error.filename), ((2, file), (None, file)))
                self.assertEqual(error.errno == 2, isinstance(error, FileNotFoundError))
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), str(copy), copy.file, copy.tensor), (type(error), str(error), file, tensor))

    def test_interrupt(self):
        """Ctrl-C ends a long call soon, and a file that was being written is not there."""
        path = self.path("long.zt")
        ztstream.save_file({"w": numpy.random.default_rng(1).standard_normal((1 << 25,)).astype("f4")}, path, compress="zstd",
                           level=1, min_gain=-1, digest="none", sync=False)
        code = """
import os, signal, threading, time
def soon():
    time.sleep(0.4)
    soon.at = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
out = {"w": bytearray(1 << 27)} if sys.argv[2] == "read" else None
with ztstream.open(sys.argv[1]) as file:
    values = None if out else file["w"].numpy()
    threading.Thread(target=soon).start()
    try:
        while True:
            if out:
                file.read(out=out, threads=1)
            else:
                ztstream.save_file({"w": values}, sys.argv[3], compress="zstd", level=15, threads=1)
    except KeyboardInterrupt:
        print(time.monotonic() - soon.at)
"""
        for what in ("read", "write"):
            done = run(code, path, what, self.path("out.zt"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            # One frame of level 15 may be under way.
            self.assertLess(float(done.stdout), 100 if SLOW else 2.0 if what == "write" else 0.5)
        self.assertEqual(sorted(os.listdir(self.folder)), ["long.zt"])

    def test_optional_packages(self):
        """The package neither needs numpy to open and copy bytes nor imports it, and is imported soon."""
        path = self.path("x.zt")
        ztstream.save_file({"w": numpy.arange(4)}, path)
        code = """
with ztstream.open(sys.argv[1]) as file:
    print(file["w"].tobytes()[8], file["w"].shape, file["w"].dtype, "torch" in sys.modules)
"""
        done = run(code, path, before="import sys\nsys.modules['numpy'] = None\nimport ztstream\n")
        self.assertEqual((done.stdout, done.stderr), ("1 (4,) i64 False\n", ""))


class Program(Case):
    def test_commands(self):
        source, out = DATA / "real/ppocr-cls.safetensors", self.path("x.zt")
        done = ztstream.convert(os.fsencode(source), os.fsencode(out), zstd="planes", dtype=["norm=f32", "bf16"], include=[".*_0$"])
        self.assertTrue(done["ok"])
        self.assertTrue(ztstream.verify(out)["ok"])
        self.assertFalse(ztstream.diff(source, out)["ok"])
        self.assertTrue(ztstream.diff(out, out)["ok"])
        with ztstream.open(out) as file:
            self.assertEqual(len(ztstream.inspect(out)["objects"]), len(file))
        with self.assertRaises(ztstream.ExistsError) as raised:
            ztstream.convert([source], out)
        self.assertEqual(raised.exception.file, out)
        with self.assertRaises(ValueError):
            ztstream.convert(source, out, no_such_option=1)
        done = subprocess.run([sys.executable, "-m", "ztstream", "--version"], cwd=self.folder, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.stdout.split()[:2], ["ztstream", ztstream.__version__])

    def test_extract_runs_the_program(self):
        out = self.path("e.zt")
        ztstream.save_file({"a": numpy.arange(3.0), "b": numpy.arange(4)}, out)
        said = ztstream.extract(out, self.path("a.npz"), "a", dtype="f32")
        self.assertEqual(said["tensors"], 1)
        self.assertEqual(ztstream.load_file(self.path("a.npz"))["a"].dtype, "float32")
        ztstream.extract(out, self.path("both.safetensors"), ["a", "b"])
        self.assertEqual(sorted(ztstream.load_file(self.path("both.safetensors"))), ["a", "b"])
        ztstream.extract(out, self.path("folder"), to="safetensors")
        ztstream.convert(self.path("folder"), self.path("again.zt"))
        with ztstream.open(self.path("again.zt")) as file:
            self.assertEqual(file.attributes, {"format": "pt"})  # without which Hugging Face's libraries refuse safetensors
        ztstream.save_file({"-w": numpy.arange(3.0), "a": numpy.arange(4)}, out, overwrite=True)
        ztstream.extract(out, self.path("dash.safetensors"), ["-w"])
        self.assertEqual(list(ztstream.load_file(self.path("dash.safetensors"))), ["-w"])


class Torch(Case):
    """Where torch is installed."""

    def setUp(self):
        super().setUp()
        self.torch = torch_or_skip()

    def test_update(self):
        """A state_dict in place: the parameters of the module are those tensors."""
        torch = self.torch
        model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 3)).bfloat16()
        ztstream.save_file(model.state_dict(), self.path("0.zt"))
        fresh = {name: value.clone() for name, value in model.state_dict().items()}
        fresh["0.weight"].view(-1)[::97] += 1
        ztstream.save_file(fresh, self.path("whole.zt"))
        ztstream.convert(self.path("whole.zt"), self.path("1.zt"), base=self.path("0.zt"))
        with ztstream.open(self.path("1.zt"), base=None) as file:
            file.update_(model.state_dict())
            for name, value in model.state_dict().items():
                self.assertTrue(torch.equal(value, fresh[name]), name)
            with self.assertRaises(ztstream.ArgumentError):
                file.update_({name: value.float() for name, value in fresh.items()})

    def test_tensors(self):
        torch = self.torch
        tensors = {"f": torch.randn(4, 5), "bf": torch.randn(1000, 7).bfloat16(), "i": torch.arange(5), "e": torch.empty(0, 3),
                   "t": torch.randn(6, 4).t(), "s": torch.tensor(2.5), "b": torch.tensor([True, False])}
        tensors["tied"] = tensors["f"]
        for compress in (None, "planes"):
            path = self.path(f"{compress}.zt")
            ztstream.save_file(tensors, path, compress=compress, min_gain=-1)
            of_zt(pathlib.Path(path))
            for copy in (False, True):
                with ztstream.open(path) as file:
                    state = file.torch(copy=copy)
                    self.assertEqual(file["f"].location, file["tied"].location)
                for name, tensor in tensors.items():
                    self.assertEqual(state[name].dtype, tensor.dtype)
                    self.assertTrue(torch.equal(state[name], tensor), name)
                state["f"][0] = 7  # of one's own, or copied when it is written to

    def test_pages_of_their_own(self):
        """What is written to tensors of one call, by an optimizer say, is seen in nothing that another call gives."""
        torch, path = self.torch, self.path("m.zt")
        model = torch.nn.Sequential(torch.nn.Linear(512, 700), torch.nn.Linear(700, 3))
        state = model.state_dict()
        ztstream.save_file({**state, "tied": state["0.weight"]}, path)
        before = pathlib.Path(path).read_bytes()
        for source in (path, DATA / "hf-sharded"):
            with ztstream.open(source) as file:
                wanted = {name: tensor.clone() for name, tensor in file.torch(copy=True).items()}
                trained, alone = file.torch(), {name: tensor.torch() for name, tensor in file.items()}
                arrays = {name: tensor.view_bits() for name, tensor in file.items()}
                for tensor in (*trained.values(), *alone.values()):
                    tensor.fill_(7)
                again, again_alone = file.torch(), {name: tensor.torch() for name, tensor in file.items()}
            for name, tensor in wanted.items():
                self.assertTrue(torch.equal(again[name], tensor) and torch.equal(again_alone[name], tensor), name)
                self.assertEqual(arrays[name].tobytes(), bytes(tensor.reshape(-1).view(torch.uint8).numpy()), name)
                self.assertTrue((trained[name] == 7).all())
        self.assertEqual(pathlib.Path(path).read_bytes(), before)
        with ztstream.open(path) as file:
            state = file.torch()
            self.assertEqual(state["tied"].data_ptr(), state["0.weight"].data_ptr())
            model.load_state_dict({name: tensor for name, tensor in state.items() if name != "tied"}, assign=True)
            model(torch.ones(2, 512)).sum().backward()
            torch.optim.SGD(model.parameters(), 0.1).step()
            fresh = file.torch()
            self.assertFalse(torch.equal(model[0].weight, fresh["0.weight"]))
            self.assertEqual(bytes(fresh["0.weight"].reshape(-1).view(torch.uint8).numpy()), file["0.weight"].tobytes())

    def test_module(self):
        torch = self.torch
        from ztstream.safetensors_compat import safe_open
        from ztstream.safetensors_compat import torch as compat
        model, path = torch.nn.Linear(3, 4), self.path("m.zt")
        compat.save_model(model, path)
        other = torch.nn.Linear(3, 4)
        compat.load_model(other, path)
        self.assertTrue(torch.equal(model.weight, other.weight))
        with safe_open(path, framework="pt") as file:
            self.assertTrue(torch.equal(file.get_slice("weight")[1:3], model.weight[1:3]))
            self.assertTrue(torch.equal(file.get_slice("weight")[-1], model.weight[-1]))
        ztstream.save_file({"w": model.weight}, path, compress="zstd", min_gain=-1, overwrite=True)
        with safe_open(path, framework="pt") as file:
            for index in (True, False, None, ..., (True, 0), (slice(1), True)):
                self.assertTrue(torch.equal(file.get_slice("w")[index], model.weight[index]), index)

    def test_slices(self):
        torch, path = self.torch, self.path("m.zt")
        tensors = {"bf": torch.randn(300, 70).bfloat16(), "b": torch.rand(5, 8) > 0.5, "s": torch.tensor(2), "f": torch.randn(600, 700)}
        wanted = {"bf": numpy.s_[:, 10:20], "b": (slice(1, 4), 3), "s": ..., "f": numpy.s_[100:, ::7]}
        for compress in (None, "planes"):
            ztstream.save_file(tensors, path, compress=compress, min_gain=-1, overwrite=True)
            with ztstream.open(path) as file:
                for copy in (False, True):
                    for name, part in file.torch(wanted, copy=copy).items():
                        self.assertTrue(torch.equal(part, tensors[name][wanted[name]]), name)
                        part.fill_(1)
                for index in (3, None, True, (..., 2), numpy.s_[2:4, 1]):
                    self.assertTrue(torch.equal(file["b"].torch(index=index), tensors["b"][index]), index)

    def test_dlpack_and_types(self):
        torch, path = self.torch, self.path("m.zt")
        with ztstream.Writer(path) as out:
            out.add("w", Only(torch.arange(6).bfloat16().reshape(2, 3).t()))
            out.add("bits", numpy.arange(3, dtype="u2"), dtype=torch.bfloat16)
        with ztstream.open(path) as file:
            self.assertEqual((file["w"].dtype, file["bits"].dtype), ("bf16", "bf16"))
            for made in (torch.as_tensor(file["w"]), torch.from_dlpack(file["w"])):
                self.assertEqual((made.dtype, made.tolist()), (torch.bfloat16, [[0, 3], [1, 4], [2, 5]]))
            with torch.device("meta"):
                self.assertEqual(file.torch()["w"].device.type, "cpu")
        values = numpy.zeros((1 << 12, 1 << 10), "f4")
        ztstream.save_file({"large": values}, path, overwrite=True)
        begin = time.monotonic()
        self.assertEqual(torch.as_tensor(ztstream.open(path)["large"]).shape, values.shape)
        self.assertLess(time.monotonic() - begin, 1 if not SLOW else 60)

    def without_values(self):
        """{what it is: a tensor of torch of which this process has no values}, and what is said of each."""
        torch = self.torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        class Wrapper(torch.Tensor):  # like the quantized ones of torchao
            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return Wrapper(torch.ones(3))

        def freed(size, kept, part=slice(None)):
            tensor = torch.ones(size)
            view = tensor[part]
            tensor.untyped_storage().resize_(kept)
            return view

        memory = "it is a {} without memory of its own: its storage was freed, or it stands for other tensors; add what has the values"
        yield "meta", torch.zeros(3, device="meta"), "it is on the device 'meta', where tensors have no values"
        with FakeTensorMode():
            yield "fake", torch.zeros(4), "it is a FakeTensor, which has a shape and no values"
        yield "functional", torch._to_functional_tensor(torch.ones(4)), memory.format("Tensor")
        for name, tensor in (("freed", freed(1000, 0)), ("freed large", freed(1 << 20, 0)), ("freed in part", freed(1000, 400)),
                             ("view of freed", freed(1000, 400, slice(500, 510)))):
            yield name, tensor, memory.format("Tensor")
        yield "wrapper", Wrapper(torch.ones(3)), memory.format("Wrapper")
        yield ("lazy", torch.nn.LazyLinear(3).weight, "it is an UninitializedParameter: a forward pass gives it a shape and values")
        seen = []
        torch.vmap(lambda x: (seen.append(x), x)[1])(torch.arange(6.0).reshape(2, 3))
        yield ("vmap", seen[0], "it is a Tensor, of which torch does not give the memory: Cannot access data pointer of Tensor that "
               "doesn't have storage")
        yield "sparse", torch.eye(3).to_sparse(), "only dense tensors are added so; add_object takes the parts of others"
        yield "complex32", torch.zeros(3, dtype=torch.complex32), "torch.complex32 has no type in a file"

    def test_without_values(self):
        """What has no values here is refused by name, and nothing is made up."""
        path = self.path("x.zt")
        for what, tensor, said in self.without_values():
            with self.subTest(what):
                with self.assertRaises(ztstream.ArgumentError) as raised, ztstream.Writer(path) as out:
                    out.add("w", tensor)
                self.assertEqual((str(raised.exception), raised.exception.tensor), (f"tensor 'w': {said}", "w"))
                with self.assertRaises(ztstream.ArgumentError):
                    ztstream.save_file({"w": tensor}, path)
        self.assertEqual(os.listdir(self.folder), [])
        ztstream.save_file({"w": numpy.zeros(1000, "f4")}, path)
        with ztstream.open(path) as file:
            for what, tensor, _ in self.without_values():
                with self.subTest("read into " + what), self.assertRaises(ztstream.ArgumentError):
                    file["w"].read_into(tensor)
        zeros = self.torch._efficientzerotensor(5)
        ztstream.save_file({"w": zeros}, path, overwrite=True)
        self.assertEqual(ztstream.load_file(path)["w"].tolist(), [0] * 5)

    def test_memory_of_another_type(self):
        torch, path = self.torch, self.path("x.zt")
        ztstream.save_file({"w": torch.ones(4).bfloat16()}, path)
        with ztstream.open(path) as file:
            for dtype in ("bfloat16", "float16", "int16", "float32", "uint8", "int8", "complex64"):
                size = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
                out = torch.zeros(8 // size, dtype=getattr(torch, dtype))
                if dtype in ("bfloat16", "uint8"):
                    file.read(out={"w": out})
                    self.assertTrue(torch.equal(out.view(torch.bfloat16), torch.ones(4).bfloat16()))
                    continue
                with self.subTest(dtype), self.assertRaisesRegex(ztstream.ArgumentError, "the tensor those of bf16"):
                    file.read(out={"w": out})

    def test_distributed(self):
        """A DTensor is a part of a tensor."""
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        tensor = distribute_tensor(self.torch.full((8,), 7.0), init_device_mesh("cpu", (1,)), [Shard(0)])
        path = self.path("x.zt")
        with self.assertRaisesRegex(ztstream.ArgumentError, r"^tensor 'w': it is a DTensor, of which each process has a part: "
                                    r"full_tensor\(\) gives the whole, to_local\(\) this part$"):
            ztstream.save_file({"w": tensor}, path)
        ztstream.save_file({"w": tensor.full_tensor()}, path)
        self.assertEqual(ztstream.load_file(path)["w"].tolist(), [7] * 8)

    def test_added_twice(self):
        """One tensor whose memory is written to through numpy: each name has what was there when it was added."""
        buffer, path = numpy.zeros(300, "f4"), self.path("x.zt")
        w = self.torch.from_numpy(buffer)
        with self.torch.inference_mode(), ztstream.Writer(path) as out:
            for i in range(3):
                buffer[...] = i
                out.add(f"{i}", w)
            out.add("inference", w * 2)
        with ztstream.open(path) as file:
            self.assertEqual([tensor[299] for tensor in file.values()], [0, 1, 2, 4])


if __name__ == "__main__":
    unittest.main()
