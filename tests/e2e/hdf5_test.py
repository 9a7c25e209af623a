"""HDF5 and Keras files through the program: every dataset has the bytes that h5py reads, whatever its layout.

Files are written by h5py here; tests/data/hdf5 has one of a later version of it.
"""
import collections
import errno
import hashlib
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import time
import unittest
import zipfile

import h5py
import numpy

from support import DATA, DONE, INVALID, IO, PATIENCE, PROGRAM, SHIM, UNSUPPORTED, EndToEnd, read_zt, shim

FILES = DATA / "hdf5"
EXPECTED = json.loads((FILES / "expected.json").read_text())
NAMES = {"float16": "f16", "float32": "f32", "float64": "f64", "int8": "i8", "int16": "i16", "int32": "i32",
         "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool",
         "complex64": "complex64", "complex128": "complex128"}


def little_endian(array):
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def values(generator, dtype, shape):
    count = int(numpy.prod(shape, dtype=numpy.int64))
    if dtype == numpy.dtype("bool"):
        return generator.integers(0, 2, size=shape).astype(bool)
    if dtype.kind in "fc":
        parts = generator.standard_normal(count * (2 if dtype.kind == "c" else 1))
        array = parts[0::2] + 1j * parts[1::2] if dtype.kind == "c" else parts
        return array.astype(dtype).reshape(shape)
    return numpy.frombuffer(generator.bytes(count * dtype.itemsize), dtype).reshape(shape)


class Hdf5(EndToEnd):

    def test_shards_of_keras(self):
        """model.weights.json names the file, or the files, of each group of variables."""
        files = {"model_00000.weights.h5": ["layers/dense/vars/0", "optimizer/vars/0"], "model_00001.weights.h5": ["layers/big/vars/0", "layers/big/vars/1"],
                 "model_00002.weights.h5": ["layers/big/vars/2"]}
        self.path("f").mkdir()
        for file, names in files.items():
            with h5py.File(self.path("f") / file, "w") as out:
                for name in names:
                    out[name] = numpy.full((2,), len(name), "f4")
        index = {"/layers/dense/vars": "model_00000.weights.h5", "layers/big/vars": ["model_00001.weights.h5", "model_00002.weights.h5"]}

        def put(weight_map):
            self.put("f/model.weights.json", json.dumps({"metadata": {"total_size": 32}, "weight_map": weight_map}).encode())
        put(index)
        wanted = sorted(name for names in files.values() for name in names)
        for given in ("f", "f/model.weights.json"):
            self.assertEqual(sorted(self.converted(self.path(given))["objects"]), wanted)
        self.succeed("verify", "out.zt", "--against", "f/model.weights.json")
        put(index | {"layers/none/vars": "model_00002.weights.h5"})
        self.expect(DONE, "inspect", "f", says="puts 'layers/none/vars' into model_00002.weights.h5, which has no variables of it")
        for wrong, says in (({"a": "model_00009.weights.h5"}, "shard model_00009.weights.h5 is missing"), ({"a": "../x.weights.h5"}, "no file of the folder itself"),
                            ({"a": 1}, "no file of the folder itself"), ({}, "it names no file"), ([], "it has no weight_map")):
            put(wrong)
            self.fail_with(INVALID, "inspect", "f", says=says)

    def test_types_that_hdf5_lacks(self):
        """Keras's bf16 and f8: opaque bytes, whose type an attribute names."""
        bits = {"layers/dense/vars/0": ([[0x3F80, 0x4000], [0x4040, 0xBF00]], "<u2", "bfloat16", "bf16"),
                "layers/q/vars/0": ([1, 0x7E, 0x80], "u1", "float8_e4m3fn", "f8_e4m3fn"),
                "layers/q/vars/1": ([0x3C, 2], "u1", "float8_e5m2", "f8_e5m2"),
                "unnamed": ([1, 2], "<u2", None, None), "too wide": ([1, 2], "<u4", "bfloat16", None), "other": ([1], "<u2", "float16", None)}
        with h5py.File(self.path("a.h5"), "w") as file:
            for name, (values, kind, stated, _) in bits.items():
                array = numpy.array(values, kind)
                made = file.create_dataset(name, data=array.view(f"V{array.itemsize}"), chunks=(2,) * array.ndim if "dense" in name else None)
                if stated:
                    made.attrs["dtype"] = stated
        self.expect(UNSUPPORTED, "convert", "a.h5", "-o", "m.zt", says="opaque bytes, whose type no attribute 'dtype' names")
        without = [word for name, (*_, element) in bits.items() if not element for word in ("--exclude", name)]
        objects = self.converted(self.path("a.h5"), *without)["objects"]
        self.assertEqual({name: entry["components"]["data"]["bytes"] for name, entry in objects.items()},
                         {name: numpy.array(values, kind).tobytes() for name, (values, kind, _, element) in bits.items() if element})
        self.assertEqual({name: entry["components"]["data"].get("type") or entry["components"]["data"]["dtype"] for name, entry in objects.items()},
                         {name: element for name, (*_, element) in bits.items() if element})

    def check(self, source, *options):
        """Converts `source` and compares every tensor with what h5py reads; the datasets it has."""
        objects = self.converted(source, *options)["objects"]
        with h5py.File(source, "r") as file:
            names = []
            file.visit(names.append)
            found = {name: file[name] for name in names if isinstance(file[name], h5py.Dataset)}
            self.assertEqual(sorted(objects), sorted(found))
            for name, dataset in found.items():
                array = numpy.asarray(dataset[()])
                got = objects[name]["components"]["data"]
                self.assertEqual([got.get("type") or got["dtype"], list(objects[name]["shape"])],
                                 [NAMES[array.dtype.newbyteorder("=").name], list(array.shape)], name)
                self.assertEqual(hashlib.sha256(got["bytes"]).hexdigest(),
                                 hashlib.sha256(little_endian(array)).hexdigest(), name)
        return objects

    def test_the_fixture_of_a_later_h5py(self):
        for name, expected in EXPECTED.items():
            self.assertIn(b"text", self.succeed("inspect", FILES / name))
            self.fail_with(UNSUPPORTED, "convert", FILES / name, "-o", self.path("x.zt"),
                           says=("tensor 'text'", "its elements are texts"))
            objects = self.converted(FILES / name, "--exclude", "text")["objects"]
            self.assertEqual(sorted(objects), sorted(expected))
            for tensor, (element, shape, sha256) in expected.items():
                got = objects[tensor]["components"]["data"]
                self.assertEqual([got["dtype"], list(objects[tensor]["shape"])], [element, shape])
                self.assertEqual(hashlib.sha256(got["bytes"]).hexdigest(), sha256, tensor)

    def test_every_type_layout_and_byte_order(self):
        generator = numpy.random.default_rng(7)
        layouts = {"contiguous": {}, "chunked": {"chunks": True}, "deflated": {"compression": "gzip"},
                   "shuffled": {"compression": "gzip", "shuffle": True}, "summed": {"fletcher32": True, "chunks": True}}
        for version in ("earliest", "latest"):
            source = self.path(f"{version}.h5")
            with h5py.File(source, "w", libver=version) as file:
                for name in NAMES:
                    for order in "<>":
                        dtype = numpy.dtype(name).newbyteorder(order)
                        for layout, options in layouts.items():
                            file.create_dataset(f"{name}/{'little' if order == '<' else 'big'}/{layout}",
                                                data=values(generator, dtype, (37, 5)), **options)
                        file[f"{name}/{order}scalar"] = values(generator, dtype, ())
                        file[f"{name}/{order}empty"] = values(generator, dtype, (0, 3))
            self.assertEqual(len(self.check(source)), len(NAMES) * 2 * 7)

    def test_chunks_of_any_shape_in_blocks_of_any_size(self):
        generator = numpy.random.default_rng(11)
        source = self.path("chunks.h5")
        cases = [((1000, 300), (7, 300)), ((1000, 300), (1000, 1)), ((1000, 300), (333, 77)), ((300000,), (1000,)),
                 ((40, 50, 60), (40, 5, 6)), ((40, 50, 60), (3, 50, 7)), ((3, 5, 7, 11, 13), (2, 2, 2, 2, 2)),
                 ((1, 200000), (1, 999))]
        with h5py.File(source, "w") as file:
            for i, (shape, chunks) in enumerate(cases):
                for dtype in ("<f4", ">i2", ">c16"):
                    file.create_dataset(f"{i}{dtype}", data=values(generator, numpy.dtype(dtype), shape), chunks=chunks,
                                        maxshape=tuple(None for _ in shape), compression=1)
        for memory in ("2M", "64M"):
            self.check(source, "--memory", memory)

    def test_what_was_never_written_is_the_fill_value(self):
        source = self.path("fill.h5")
        with h5py.File(source, "w") as file:
            file.create_dataset("contiguous", (50, 3), "f4", fillvalue=2.5)
            file.create_dataset("scalar", (), ">f8", fillvalue=2.5)
            file.create_dataset("chunked", (50, 3), ">i4", chunks=(7, 2), fillvalue=-3)
            partly = file.create_dataset("partly", (50, 3), ">f8", chunks=(7, 2), compression=4, fillvalue=1.5)
            partly[10:20, 1] = 9
            compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            compact.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple((5,))
            dataset = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I16BE, space, dcpl=compact)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, numpy.arange(5, dtype=">i2"))
        self.check(source)

    def test_bytes_of_another_program_come_first(self):
        for size in (512, 1024, 2048, 4096, 16384, 65536, 1 << 20):
            source = self.path(f"{size}.mat")
            with h5py.File(source, "w", userblock_size=size) as file:
                file["a"] = numpy.arange(12, dtype="f4").reshape(3, 4)
                file.create_dataset("z", data=numpy.arange(99), compression="gzip")
                file.create_dataset("never", (4,), "<i4", fillvalue=7)
                file.create_dataset("never chunked", (4, 5), ">i4", chunks=(2, 2), fillvalue=7)
                file.create_dataset("partly", (4, 5), "<i4", chunks=(2, 2), fillvalue=7)[0, 0] = 1
                file.create_dataset("empty", (0, 5), "<i4")
                file["large"] = numpy.arange(5000)
            self.assertEqual(len(self.check(source, *(["--from", "hdf5"] if size > 16384 else []))), 7)
        self.put("none.h5", bytes(100000))
        self.fail_with(INVALID, "convert", "--from", "hdf5", self.path("none.h5"), "-o", self.path("x.zt"), says="not an HDF5 file")

    def test_a_tensor_of_a_zt_file_may_be_a_file_of_this_format(self):
        with h5py.File(self.path("in.h5"), "w") as file:
            file["a"] = numpy.arange(12)
        for size in (448, 960, 1984, 4032, 8128):  # of the tensor before it, which begins at byte 64
            folder = self.path(f"arrays{size}")
            folder.mkdir()
            numpy.save(folder / "a.npy", numpy.zeros(size, "u1"))
            numpy.save(folder / "b.npy", numpy.frombuffer(self.path("in.h5").read_bytes(), "u1"))
            self.succeed("convert", "--spec", "1.2", folder, "-o", self.path(f"{size}.zt"))
            self.assertIn(b"HDF", self.path(f"{size}.zt").read_bytes()[64 + size:72 + size])
            self.assertEqual(sorted(self.converted(self.path(f"{size}.zt"))["objects"]), ["a", "b"])

    def test_many_and_deep_names(self):
        source = self.path("names.h5")
        with h5py.File(source, "w", track_order=True) as file:
            for i in range(2000):
                file[f"layer/{i}/w"] = numpy.float32(i)
            file["/".join("abcdefgh" * 8)] = numpy.arange(3)
            file["größe/重み"] = numpy.arange(3)
        self.assertEqual(len(self.check(source)), 2002)

    def test_links(self):
        source = self.path("links.h5")
        data = numpy.arange(5000, dtype="f8")
        with h5py.File(self.path("other.h5"), "w") as other:
            other["secret"] = data
        with h5py.File(source, "w") as file:
            file["a/first"] = data
            file["a/loop"] = file["a"]
            file["b"] = file["a"]
            file["hard"] = file["a/first"]
            file["soft"] = h5py.SoftLink("/a/first")
            file["through"] = h5py.SoftLink("/b/first")
            file["group"] = h5py.SoftLink("/a")
            file["nowhere"] = h5py.SoftLink("/missing")
            file["self"] = h5py.SoftLink("/self")
            file["outside"] = h5py.SoftLink("/external/nothing")
            file["external"] = h5py.ExternalLink("other.h5", "secret")
        self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("x.zt"),
                       says=("tensor 'external'", "it is a link to another file"))
        process = self.expect(DONE, "convert", source, "--exclude", "external", "-o", self.path("x.zt"))
        for name, count in (("nowhere", 1), ("self", 1), ("outside", 1), ("loop", 1), ("group", 1)):
            self.assertEqual(process.stderr.decode().count(f"{name}'"), count, process.stderr)
        objects = read_zt(self.path("x.zt"))["objects"]
        self.assertEqual(len(objects), 4)
        for entry in objects.values():
            self.assertEqual(entry["components"]["data"]["bytes"], data.tobytes())
        self.assertLess(self.path("x.zt").stat().st_size, 2 * data.nbytes)  # tied

    def test_other_files_are_not_read(self):
        source = self.path("m.h5")
        self.put("raw", bytes(64))
        with h5py.File(self.path("part.h5"), "w") as part:
            part["x"] = numpy.arange(4)
        with h5py.File(source, "w") as file:
            file.create_dataset("raw", (16,), "f4", external=[("raw", 0, 64)])
            layout = h5py.VirtualLayout((4,), "i8")
            layout[:] = h5py.VirtualSource("part.h5", "x", (4,))
            file.create_virtual_dataset("virtual", layout)
        for name, words in (("raw", "external storage"), ("virtual", "put together from other files")):
            self.fail_with(UNSUPPORTED, "convert", source, "--include", name, "-o", self.path("x.zt"),
                           says=(f"tensor '{name}'", words))

    def test_what_is_no_number_is_listed_and_refused(self):
        source = self.path("kinds.h5")
        with h5py.File(source, "w") as file:
            file["good"] = numpy.arange(3)
            file["text"] = "abc"
            file["texts"] = numpy.array([b"ab", b"c"])
            file["record"] = numpy.zeros(3, [("a", "f4"), ("b", "i4")])
            file["array"] = numpy.zeros(3, [("r", "f4", 2), ("i", "f4", 2)])
            file["lists"] = numpy.array([numpy.arange(2), numpy.arange(3)], dtype=h5py.vlen_dtype("i4"))
            file["null"] = h5py.Empty("f4")
            file["reference"] = file.ref
            file["void"] = numpy.void(b"abc")
            file.create_dataset("lzf", data=numpy.arange(1000), compression="lzf")
            file.create_dataset("large", (1 << 28,), "f4", chunks=(1 << 25,))
        shown = {entry["name"]: entry for entry in self.json("inspect", "--json", source)["objects"]}
        listed = set(shown)
        with h5py.File(source, "r") as file:
            self.assertEqual(listed, set(file))
        for name, entry in shown.items():
            dtype = {"good": "i64", "lzf": "i64", "large": "f32"}.get(name)
            self.assertEqual(entry["format"], "dense" if dtype else "hdf5.other", name)
            if dtype:
                self.assertEqual(entry["components"][0]["dtype"], dtype)
        words = {"text": "texts", "texts": "texts", "record": "records", "array": "records", "lists": "lists",
                 "null": "no shape", "reference": "references", "void": "opaque", "lzf": "copy the file first with h5py",
                 "large": "--memory raises the limit"}
        self.assertEqual(listed, {"good", *words})
        for name, word in words.items():
            self.fail_with(UNSUPPORTED, "convert", source, "--include", name, "-o", self.path("x.zt"),
                           says=(f"tensor '{name}'", word))
        self.assertEqual(list(self.converted(source, "--include", "good")["objects"]), ["good"])

    def test_floats_of_4_bits_of_exponent(self):
        """libhdf5 converts them as IEEE 754 has them: f8_e4m3fn has numbers where they are infinite."""
        source = self.path("m.h5")
        kind = h5py.h5t.IEEE_F32LE.copy()
        kind.set_fields(7, 3, 4, 0, 3)
        kind.set_size(1)
        kind.set_ebias(7)
        kind.set_precision(8)
        with h5py.File(source, "w") as file:
            space = h5py.h5s.create_simple((4,))
            h5py.h5d.create(file.id, b"w", kind, space).write(h5py.h5s.ALL, h5py.h5s.ALL,
                                                              numpy.array([0x38, 0x77, 0x78, 0x7e], "u1"), mtype=kind)
        with h5py.File(source) as file:
            self.assertEqual(str(file["w"][()]), "[  1. 240.  inf  nan]")
        self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("x.zt"),
                       says=("tensor 'w'", "with an infinity, which f8_e4m3fn does not have; save them as float16"))

    def test_files_of_a_driver(self):
        for version in "earliest", "latest":
            with h5py.File(self.path("part%d.h5"), "w", driver="family", memb_size=5000, libver=version) as file:
                file["w"] = numpy.ones((50, 30), "f4")
            with h5py.File(self.path("s"), "w", driver="split", libver=version) as file:
                file["w"] = numpy.ones(3)
            for name, driver, how in (("part0.h5", "family", "'NAME%d.h5', driver='family', memb_size=0"),
                                      ("s-m.h5", "split", "NAME without -m.h5, driver='split'")):
                self.fail_with(UNSUPPORTED, "convert", self.path(name), "-o", self.path("x.zt"),
                               says=(f"one of the files that HDF5's driver '{driver}' makes of one", f"copy what they hold into one file: h5py.File({how})"))
            # as the message says
            with h5py.File(self.path("part%d.h5"), driver="family", memb_size=0) as file:
                self.assertEqual(file["w"][0, 0], 1)
            with h5py.File(self.path("s"), driver="split") as file:
                self.assertEqual(file["w"][0], 1)

    def test_a_dataset_of_a_newer_library(self):
        """Appended by h5py 3.16 with libver="latest" to a file that older libraries read."""
        source = FILES / "newer.h5"
        rows = {row["name"]: row["format"] for row in self.json("inspect", "--json", source)["objects"]}
        if rows["newer"] == "dense":
            self.skipTest("libhdf5 here reads it")
        self.assertEqual(rows, {"old": "dense", "newer": "hdf5.other", "z": rows["z"]})
        self.fail_with(UNSUPPORTED, "convert", source, "--include", "newer", "-o", self.path("x.zt"),
                       says=("tensor 'newer'", "a newer library wrote it; copy what it holds with an h5py", "--exclude leaves it out"))
        objects = self.converted(source, "--include", "old")["objects"]
        self.assertEqual(objects["old"]["components"]["data"]["bytes"], numpy.arange(5.).tobytes())

    def test_one_bad_dataset_does_not_condemn_the_file(self):
        source = self.path("m.h5")
        with h5py.File(source, "w") as file:
            file["good"] = numpy.arange(3)
            file["text"] = "abc"
            file.create_dataset("never", (1 << 40,), "f4", chunks=(1 << 20,))
            file.create_dataset("never either", (1 << 40,), "f4")
            file.create_dataset("overflow", (1 << 40, 1 << 40), "u1", chunks=(1, 1024))
            file[b"caf\xe9"] = numpy.arange(2)
            file.create_group(b"gr\xfcn")["x"] = numpy.arange(2)
        # A dataset whose header says that it is of a version that is not there.
        with h5py.File(source, "a") as file:
            file["broken"] = numpy.arange(7, dtype="f8")
            at = h5py.h5o.get_info(file["broken"].id).addr
        damaged = bytearray(source.read_bytes())
        damaged[at:at + 8] = bytes([99]) * 8
        source.write_bytes(damaged)
        words = {"overflow": "overflows 64 bits", "text": "texts", "never": "more than 1 GiB, and more than 2048 times", "never either": "2048 times", r"caf\xe9": "not UTF-8",
                 r"gr\xfcn/x": "not UTF-8", "broken": "its header cannot be read"}
        rows = {row["name"] for row in self.json("inspect", "--json", source)["objects"]}
        self.assertEqual(rows, {"good", *words})
        self.assertEqual(len(self.json("inspect", "--json", source)["objects"]), 1 + len(words))
        for name, word in words.items():
            self.fail_with((UNSUPPORTED, INVALID), "convert", source, "--include", "^" + name.replace("\\", "."), "-o", self.path("x.zt"),
                           says=("tensor '" + name.replace("\\", r"\\"), word, "--exclude leaves it out"))
        self.assertEqual(list(self.converted(source, "--include", "good")["objects"]), ["good"])

    def test_names_that_are_many_times_the_file(self):
        source = self.path("m.h5")
        with h5py.File(source, "w", libver="latest") as file:
            group = file.create_group("\x01" * 8000)
            for i in range(1000):
                group[f"{i}"] = numpy.int32(1)
        self.fail_with(UNSUPPORTED, "inspect", source, says="would take more than 256 KiB and 4 times its size")

    def test_names_that_are_alike_once_they_are_escaped(self):
        """Short ones too: each is listed by a name of its own, and neither goes when the other is left out."""
        source = self.path("m.h5")
        with h5py.File(source, "w") as file:
            file[b"a\xff"] = numpy.arange(2)
            file["a\\xff"] = numpy.arange(3)
            file["ok"] = numpy.arange(4)
        rows = [row["name"] for row in self.json("inspect", "--json", source)["objects"]]
        self.assertEqual(sorted(rows), ["a\\xff", "a\\xff (2)", "ok"])
        for left_out in (r"^a.xff$", r"^a.xff \(2\)$"):
            self.fail_with((UNSUPPORTED, INVALID), "convert", source, "--exclude", left_out, "-o", self.path("x.zt"),
                           says=("tensor 'a\\\\xff", "--exclude leaves it out"))
        self.assertEqual(list(self.converted(source, "--exclude", "xff")["objects"]), ["ok"])

    def test_the_process_is_confined(self):
        """It may gain no privileges, make few system calls, and ends with the program."""
        source = self.path("m.h5")
        with h5py.File(source, "w") as file:
            file.create_dataset("w", (1 << 25,), "i4", chunks=(1 << 18,), compression="gzip")[:] = 7
        with subprocess.Popen([PROGRAM, "convert", "-q", source, "-o", self.path("x.zt")], stderr=subprocess.PIPE) as program:
            children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children")
            status, until = {}, time.monotonic() + PATIENCE
            while status.get("NoNewPrivs") != "1" and time.monotonic() < until:  # until it has retired
                found = children.read_text().split()
                if found:
                    lines = pathlib.Path(f"/proc/{found[0]}/status").read_text().splitlines()
                    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            limits = pathlib.Path(f"/proc/{found[0]}/limits").read_text()
            time.sleep(0.05)
            lines = pathlib.Path(f"/proc/{found[0]}/status").read_text().splitlines()
            os.kill(program.pid, signal.SIGKILL)
        self.assertEqual(status["NoNewPrivs"], "1")
        if not self.sanitized():
            self.assertRegex(limits, r"Max open files +0 +0")
            self.assertRegex(limits, r"Max address space +\d+ +\d+")
            self.assertIn("Seccomp:\t2", lines)
        while pathlib.Path(f"/proc/{found[0]}").exists() and time.monotonic() < until:
            time.sleep(0.01)
        self.assertFalse(pathlib.Path(f"/proc/{found[0]}").exists())

    @unittest.skipUnless(SHIM, "no fault shim was built")
    def test_the_process_reaches_no_other(self):
        """Its filter lets it send signals to itself alone, and map no file: what libhdf5 was made to do stays in it."""
        source, log = self.path("m.h5"), self.path("log")
        with h5py.File(source, "w") as file:
            file.create_dataset("w", data=numpy.arange(100), compression="gzip")
        environment = shim(("none",), "confined", 0, log)
        subprocess.run([PROGRAM, "convert", "-q", source, "-o", self.path("x.zt")], env=environment, check=True)
        line = next(line for line in log.read_text().splitlines() if line.startswith("confined"))
        self.assertEqual(line.split(), ["confined", "1", str(errno.EPERM), str(errno.EPERM), "0"])

    def test_attributes(self):
        source = self.path("m.h5")
        with h5py.File(source, "w") as file:
            file["g/w"] = numpy.arange(3)
            file.attrs.update(version="2.15", names=["a", "b"], fixed=numpy.array([b"ab", b"c"]), epoch=7, rate=0.5,
                              below=numpy.int8(-3), shape=numpy.array([2, 3], ">u2"), flag=True, half=numpy.float16(1.5),
                              long="x" * 100000)
            file.attrs["matrix"] = numpy.zeros((2, 2))
            file.attrs["padded"] = numpy.bytes_(b"ab\0cd")  # NULs pad it; one that is within stays
            terminated = h5py.h5t.C_S1.copy()
            terminated.set_size(6)
            h5py.h5a.create(file.id, b"terminated", terminated, h5py.h5s.create(h5py.h5s.SCALAR)).write(
                numpy.array(b"ab\0cd", "S6"), mtype=terminated)
            file.attrs.create("kind", -3, dtype=h5py.enum_dtype({"A": -3}, basetype=">i2"))
            file.attrs["kinds"] = numpy.array([0, 200], dtype=h5py.enum_dtype({"A": 0, "B": 200}, basetype="u1"))
            file["g"].attrs["weight_names"] = numpy.array([b"w:0"])
            file["g/w"].attrs["units"] = "m"
        process = self.run_program("convert", source, "-o", self.path("out.zt"))
        self.assertIn("of several dimensions, or too large, are left out: 'matrix'\n", process.stderr.decode())
        read = read_zt(self.path("out.zt"))
        self.assertEqual({key: read["attributes"].get(key) for key in
                          ("version", "names", "fixed", "epoch", "rate", "below", "shape", "flag", "half", "g/weight_names", "kind",
                           "kinds", "padded", "terminated")},
                         {"version": "2.15", "names": ["a", "b"], "fixed": ["ab", "c"], "epoch": 7, "rate": 0.5, "below": -3,
                          "shape": [2, 3], "flag": True, "half": 1.5, "g/weight_names": ["w:0"], "kind": -3, "kinds": [0, 200],
                          "padded": "ab\0cd", "terminated": "ab"})
        self.assertEqual(len(read["attributes"]["long"]), 100000)
        self.assertEqual(read["objects"]["g/w"]["attributes"]["units"], "m")

    def test_labels_of_an_enumeration(self):
        source = self.path("m.h5")
        with h5py.File(source, "w") as file:
            for base in ("<i2", ">i4", "<u8", "|i1"):
                values = {"A": 0, "B": 5, "ü": 100 if base[1] == "u" else -100}
                file.create_dataset(base, data=numpy.array([0, 5, 5], base), dtype=h5py.enum_dtype(values, basetype=base))
            file.create_dataset("flag", data=numpy.array([True, False]))
            file.create_dataset("own", data=numpy.array([0]), dtype=h5py.enum_dtype({"A": 0}, basetype="i8"))
            file["own"].attrs["enum_names"] = "mine"
        process = self.expect(DONE, "convert", source, "-o", self.path("out.zt"))
        self.assertIn("the labels of 'own'\n", process.stderr.decode())
        objects = read_zt(self.path("out.zt"))["objects"]
        for base in ("<i2", ">i4", "<u8", "|i1"):
            attributes = objects[base]["attributes"]
            self.assertEqual(dict(zip(attributes["enum_names"], attributes["enum_values"])),
                             {"A": 0, "B": 5, "ü": 100 if base[1] == "u" else -100})
        self.assertFalse(objects["flag"].get("attributes"))
        self.assertEqual(objects["own"]["attributes"], {"enum_names": "mine"})

    def test_empty_lists_among_attributes(self):
        """Keras writes them for layers without weights."""
        source = self.path("m.h5")
        with h5py.File(source, "w") as file:
            file["w"] = numpy.arange(3)
            for name, value in (("text", numpy.zeros(0, "S1")), ("floats", []), ("ints", numpy.zeros(0, "i4"))):
                file.attrs[name] = value
        process = self.expect(DONE, "convert", source, "-o", self.path("out.zt"))
        self.assertNotIn("left out", process.stderr.decode())
        self.assertEqual(read_zt(self.path("out.zt"))["attributes"], {"text": [], "floats": [], "ints": []})

    def test_keras(self):
        weights = self.path("model.weights.h5")
        with h5py.File(weights, "w") as file:
            file["layers/dense/vars/0"] = numpy.random.default_rng(3).standard_normal((64, 32)).astype("f4")
            file.create_dataset("layers/dense/vars/1", data=numpy.arange(32, dtype="f4"), compression="gzip")
        expected = self.check(weights)
        content = weights.read_bytes()
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with self.subTest(method=method):
                source = self.path(f"{method}.keras")
                with zipfile.ZipFile(source, "w", method) as archive:
                    archive.writestr("metadata.json", "{}")
                    archive.writestr("config.json", '{"a": 1}')
                    archive.writestr("model.weights.h5", content)
                    archive.writestr("assets/", b"")
                    archive.writestr("assets/words.txt", b"a")
                read = self.converted(source)
                self.assertEqual(read["attributes"]["model_config"], '{"a": 1}')
                said = self.run_program("convert", "-f", source, "-o", self.path("out.zt")).stderr.decode()
                self.assertIn("left out: 'metadata.json', 'assets/words.txt'\n", said)
                objects = read["objects"]
                self.assertEqual({name: entry["components"]["data"]["bytes"] for name, entry in objects.items()},
                                 {name: entry["components"]["data"]["bytes"] for name, entry in expected.items()})
                self.assertEqual(self.converted(source, "--from", "hdf5")["objects"].keys(), expected.keys())
                # A flipped bit, of a byte that HDF5 itself does not check.
                damaged = bytearray(source.read_bytes())
                if method == zipfile.ZIP_STORED:
                    with h5py.File(weights, "r") as file:
                        at = damaged.find(content[:8]) + file["layers/dense/vars/0"].id.get_offset()
                else:
                    at = damaged.find(b"model.weights.h5") + 5000
                damaged[at] ^= 1
                self.expect(INVALID, "convert", self.put("bad.keras", bytes(damaged)), "-o", self.path("y.zt"),
                            says="CRC")
        self.put("2000000", os.urandom(1 << 21))
        big = self.path("big.keras")
        with zipfile.ZipFile(big, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("model.weights.h5", content + os.urandom(1 << 21))
        self.fail_with(UNSUPPORTED, "convert", big, "--memory", "1M", "-o", self.path("y.zt"), says="unpack the archive")
        with zipfile.ZipFile(big, "w") as archive:
            archive.writestr("config.json", b" " * ((1 << 20) + 1))
            archive.writestr("model.weights.h5", content)
        process = self.run_program("convert", big, "-o", self.path("big.zt"))
        self.assertIn("left out: 'config.json'\n", process.stderr.decode())
        self.assertNotIn("model_config", read_zt(self.path("big.zt"))["attributes"] or {})
        with zipfile.ZipFile(big, "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("model.weights.h5", content)
        self.fail_with(UNSUPPORTED, "convert", big, "-o", self.path("y.zt"), says=("entry 'model.weights.h5'", "bzip2"))
        none = self.path("none.keras")
        with zipfile.ZipFile(none, "w") as archive:
            archive.writestr("model.weights.h5", b"none")
        self.fail_with(INVALID, "convert", none, "-o", self.path("y.zt"), says="is not an HDF5 file")

    def test_other_commands(self):
        source = self.path("m.h5")
        with h5py.File(source, "w") as file:
            file["w"] = numpy.arange(1000, dtype=">f4").reshape(10, 100)
            file.create_dataset("z", data=numpy.arange(100000, dtype="i4").reshape(1000, 100), compression="gzip")
        self.converted(source)
        self.succeed("verify", self.path("out.zt"), "--against", source)
        self.succeed("diff", self.path("out.zt"), source)
        self.succeed("extract", source, "-o", self.path("out.npz"))
        arrays = numpy.load(self.path("out.npz"))
        self.assertEqual(arrays["z"].tobytes(), numpy.arange(100000, dtype="i4").tobytes())
        self.fail_with(UNSUPPORTED, "convert", "-", "-o", self.path("x.zt"), stdin=source.read_bytes(),
                       says="cannot be read from a pipe")
        with open(source, "rb") as file:  # no pipe: any of its bytes can be read
            done = subprocess.run([PROGRAM, "convert", "-q", "-f", "-", "-o", self.path("in.zt")], stdin=file, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0)
        self.succeed("diff", self.path("in.zt"), self.path("out.zt"))
        self.fail_with(INVALID, "convert", "--from", "hdf5", self.put("none", bytes(100)), "-o", self.path("x.zt"),
                       says="it is not an HDF5 file")

    def test_sums_stop_at_64_bits(self):
        source = self.path("sums.h5")
        with h5py.File(source, "w") as file:
            for i in range(5):
                file.create_dataset(f"d{i}", shape=(1 << 62,), dtype="u1", chunks=(1 << 20,), compression="lzf")
        heading = self.succeed("inspect", source).decode().partition("\n")[0]
        self.assertTrue(heading.endswith(": hdf5, 5 tensors, 18,446,744,073,709,551,615 parameters, 16.00 EiB"), heading)

    def test_little_that_would_become_much_is_refused(self):
        source = self.path("much.h5")
        with h5py.File(source, "w") as file:
            file.create_dataset("w", (1 << 40,), "f4", chunks=(1 << 20,))
        self.fail_with(UNSUPPORTED, "convert", source, "-o", self.path("x.zt"), says=("tensor 'w'", "2048 times"))
        with h5py.File(source, "w") as file:
            file.create_dataset("w", (1 << 14, 1 << 14), "u1", chunks=(1 << 14, 1))
        self.fail_with(UNSUPPORTED, "convert", "--memory", "1M", source, "-o", self.path("x.zt"),
                       says=("tensor 'w'", "repack it"))

    def test_a_crash_of_libhdf5_is_an_error(self):
        source = self.path("m.h5")
        with h5py.File(source, "w") as file:
            file.create_dataset("w", (1 << 25,), "i4", chunks=(1 << 18,), compression="gzip")[:] = 7
        for deadly, status, says in ((signal.SIGSEGV, INVALID, "libhdf5 failed on it"), (signal.SIGKILL, IO, "was killed")):
            with subprocess.Popen([PROGRAM, "convert", "-q", source, "-o", self.path("x.zt")], stderr=subprocess.PIPE) as program:
                children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children")
                until = time.monotonic() + PATIENCE
                while not (found := children.read_text().split()) and time.monotonic() < until:
                    time.sleep(0.001)
                os.kill(int(found[0]), deadly)
                said = program.stderr.read().decode()
            self.assertEqual(program.returncode, status, said)
            self.assertIn(says, said)
            self.assertEqual(self.entries(), ["m.h5"])

    def every_structure(self, version, track_order):
        """A file with as many kinds of structures as a small one can have."""
        source = self.path("whole.h5")
        with h5py.File(source, "w", libver=version, track_order=track_order) as file:
            file["a/w"] = numpy.arange(40, dtype="f4")
            file.create_dataset("a/z", data=numpy.arange(4000).reshape(40, 100), compression="gzip", shuffle=True,
                                fletcher32=True, chunks=(7, 30), maxshape=(None, None))
            file.create_dataset("one", data=numpy.arange(400), maxshape=(None,), chunks=(10,))
            file.create_dataset("fixed", data=numpy.arange(400).reshape(20, 20), chunks=(3, 7), compression=1)
            for i in range(20):
                file[f"many/{i}"] = numpy.arange(i)
                file["a"].attrs[f"k{i}"] = ["x" * i, "y"]
            file.attrs.update(text="text", numbers=numpy.arange(10))
            file["s"], file["c"], file["b"] = h5py.SoftLink("/a/w"), numpy.zeros(5, "c8"), numpy.zeros(5, bool)
            file["many"].attrs["r"] = file["a"].ref
        return source.read_bytes()

    def test_damage(self):
        """Bytes of the structures changed at random: an error or a file, never a crash, a hang or a leftover."""
        wholes = [self.every_structure(version, tracked) for version in ("earliest", "latest") for tracked in (False, True)]
        for whole in wholes:
            for cut in (0, 7, 8, 100, 800, len(whole) // 2, len(whole) - 1):
                self.fail_with((INVALID, UNSUPPORTED), "convert", "--from", "hdf5", self.put("cut.h5", whole[:cut]), "-o",
                               self.path("x.zt"), says="the superblock cannot be read" if cut == 100 else "")
        dice = random.Random(int(os.environ.get("ZT_SEED", "2")))
        counts = collections.Counter()
        for _ in range(int(os.environ.get("ZT_RUNS", "150"))):
            whole = dice.choice(wholes)
            damaged = bytearray(whole)
            for _ in range(dice.choice((1, 1, 2, 4, 16))):
                at = dice.randrange(len(damaged))
                width = min(dice.choice((1, 1, 2, 4, 8)), len(damaged) - at)
                damaged[at:at + width] = dice.choice((bytes(width), b"\xff" * width, dice.randbytes(width),
                                                      struct.pack("<Q", dice.randrange(len(whole)))[:width]))
            process = self.run_program("convert", "-f", "--no-sync", self.put("damaged.h5", bytes(damaged)), "-o",
                                       self.path("x.zt"))
            said = process.stderr.decode()
            self.assertIn(process.returncode, (0, INVALID, UNSUPPORTED), said)
            if process.returncode:
                self.assertRegex(said, r"ztstream: [^\n]*damaged\.h5: [^\n]+\n\Z")
            counts[process.returncode] += 1
            counts["crashes of libhdf5"] += "libhdf5 failed on it" in said
            counts["without an end"] += "took more processor time" in said
        print("damaged files by exit status:", dict(counts))
        self.assertGreater(counts[INVALID], 5)
        self.assertEqual(self.entries(), sorted({"cut.h5", "damaged.h5", "whole.h5", "x.zt"} & set(self.entries())))
