"""zTensor 2.0 as an output, held to the independent reader and to the reference's own canonical files."""
import lzma
import os
import pathlib
import struct
import subprocess
import sys

import zstandard

import make_zt
import support
import zt2_goldens
import zt2read
from support import DATA, PROGRAM, UNSUPPORTED, USAGE
from zt2_goldens import GOLDENS

IDS = dict(line.split() for line in (GOLDENS / "ids.txt").read_text().splitlines())
# Which input each golden was made of; those of GGUF files have other attributes of the file, see below.
INPUTS = {
    "hf-sharded-model-00001-of-00003.safetensors.zt": DATA / "hf-sharded/model-00001-of-00003.safetensors",
    "safetensors-library.safetensors.zt": DATA / "safetensors/library.safetensors",
    "gguf-little.gguf.zt": DATA / "gguf/little.gguf",
}


def golden(name):
    packed = GOLDENS / (name + ".xz")
    return lzma.decompress(packed.read_bytes()) if packed.exists() else (GOLDENS / name).read_bytes()


class Writing(support.EndToEnd):

    def convert(self, *arguments, name="out.zt", spec="2.0"):
        """The file that convert writes, which keeps every rule, and its path."""
        output = self.path(name)
        self.succeed("convert", "-f", "-q", "--spec", spec, "-o", output, *arguments)
        file = zt2read.open_file(output)
        file.verify()
        self.assertFalse(file.unreferenced())
        return file

    def input_of(self, name):
        """What the golden file of this name was made of."""
        stem = name.removesuffix(".zt")
        if stem not in zt2_goldens.INPUTS:
            return INPUTS.get(name) or GOLDENS / f"{stem}.safetensors"
        return self.put(f"in/{stem}{zt2_goldens.INPUTS[stem]}", zt2_goldens.encode(stem))

    def sample(self, *sizes, name="in.safetensors"):
        """A safetensors file of f32 tensors with so many elements, and the bytes of each."""
        tensors, content = {}, {}
        for i, size in enumerate(sizes):
            content[f"t{i}"] = struct.pack(f"<{size}f", *((7 * i + j % 251) / 8 for j in range(size)))
            tensors[f"t{i}"] = ("F32", [size], content[f"t{i}"])
        path = self.safetensors(name, tensors)
        return path, content


class Canonical(Writing):

    def test_files_are_the_references_byte_for_byte(self):
        equal = 0
        for name in sorted(IDS):
            if name.startswith(("gguf", "input/")):
                continue
            with self.subTest(name):
                self.succeed("convert", "-f", "-q", "--canonical", self.input_of(name), "-o", self.path("out.zt"))
                self.assertTrue((self.folder / "out.zt").read_bytes() == golden(name), "the bytes differ")
                equal += 1
        self.assertEqual(equal, 32)

    def test_goldens_read_back_canonical(self):
        """From one file of 2.0 to another nothing changes, u32 indices and logical types among it."""
        for name in zt2_goldens.INPUTS:
            with self.subTest(name):
                path = self.put("golden.zt", golden(name + ".zt"))
                self.succeed("verify", "-q", "--canonical", path)
                self.succeed("convert", "-f", "-q", "--canonical", path, "-o", self.path("out.zt"))
                self.assertTrue((self.folder / "out.zt").read_bytes() == path.read_bytes(), "the bytes differ")

    def test_gguf_differs_in_the_attributes_of_the_file_alone(self):
        """2.0 leaves them to the writer (3.2; gguf.md: "metadata is preserved separately as file attributes"). The reference has
        the values of the header, one attribute a key; ztstream has one attribute `gguf`, with what writes the header back."""
        ours = self.convert("--canonical", INPUTS["gguf-little.gguf.zt"])
        theirs = zt2read.open_file(GOLDENS / "gguf-little.gguf.zt")
        end = theirs.manifest[0]
        self.assertEqual(ours.manifest[0], end)
        self.assertEqual(ours.data[:end], theirs.data[:end])
        self.assertEqual(ours.content_digest(), theirs.content_digest())
        roots = [zt2read.Cbor(file.data[end:end + file.manifest[1]]).value() for file in (ours, theirs)]
        self.assertEqual([sorted(root) for root in roots], [["attributes", "objects"]] * 2)
        self.assertEqual(roots[0]["objects"], roots[1]["objects"])
        self.assertEqual(list(roots[0]["attributes"]), ["gguf"])
        header = roots[0]["attributes"]["gguf"]
        self.assertEqual(sorted(header), ["alignment", "byte_order", "kv", "tensors", "version"])
        values = {key: value[1] if kind == "array" else value for key, kind, value in header["kv"]}
        self.assertEqual(values, roots[1]["attributes"])

    def test_equal_contents_share_a_blob_whatever_their_types_names_and_order(self):
        a, b = struct.pack("<8f", *range(8)), struct.pack("<8f", *range(1, 9))
        entries = [("z", "F32", [8], a), ("b", "I32", [2, 4], a), ("é", "F32", [8], b), ("a", "U8", [32], b),
                   ("empty", "F32", [0], b""), ("none", "I8", [3, 0], b"")]
        files = []
        for order in (entries, entries[::-1]):
            self.safetensors("in.safetensors", {n: (t, s, c) for n, t, s, c in order})
            file = self.convert("--canonical", self.path("in.safetensors"))
            file.check_canonical()
            files.append(file.data)
        self.assertEqual(files[0], files[1])
        offsets = {name: o.parts["data"].offset for name, o in file.objects.items()}
        self.assertEqual(offsets, {"a": 65536, "b": 131072, "empty": 196608, "none": 196608, "z": 131072, "é": 65536})

    def test_what_is_alike_in_its_samples_alone_is_not_shared(self):
        size = 1 << 20
        first = bytes(size)
        other = bytearray(first)
        other[100_000] = 1  # between the samples of beginning and middle
        self.safetensors("in.safetensors", {
            "a": ("U8", [size], first), "b": ("U8", [size], bytes(other)), "c": ("U8", [size], first)})
        file = self.convert("--canonical", self.path("in.safetensors"))
        file.check_canonical()
        self.assertEqual([file.objects[n].parts["data"].offset - 65536 for n in "abc"], [0, size, 0])

    def test_what_is_equal_is_found_in_streams_and_after_conversions(self):
        """Compressed without a seek table, so that they are read in order only, beside raw ones with the same bytes."""
        for name in ("w010.zt", "w101.zt", "w111.zt", "w123.zt"):
            with self.subTest(name):
                self.convert("--canonical", DATA / "zt" / name).check_canonical()
        single = struct.pack("<20000f", *range(20000))
        self.safetensors("in.safetensors", {"a": ("F64", [20000], struct.pack(
            "<20000d", *range(20000))), "b": ("F32", [20000], single), "c": ("U8", [80000], single)})
        file = self.convert("--canonical", "--dtype", "a=f32", self.path("in.safetensors"))
        file.check_canonical()
        self.assertEqual(len({o.parts["data"].offset for o in file.objects.values()}), 1)

    def test_conversions_are_looked_at_after_they_were_made(self):
        half, single = struct.pack("<4e", 1, 2, 3, 4), struct.pack("<4f", 1, 2, 3, 4)
        self.safetensors("in.safetensors", {"a": ("F16", [4], half), "b": ("F32", [4], single)})
        file = self.convert("--canonical", "--dtype", "a=f32", self.path("in.safetensors"))
        file.check_canonical()
        self.assertEqual(file.objects["a"].parts["data"].offset, file.objects["b"].parts["data"].offset)
        self.assertEqual(file.decode("a", "data"), single)

    def test_refusals(self):
        path, _ = self.sample(4)
        out = self.path("out.zt")
        for options, says in [(("--spec", "1.2"), "--spec asks for 1.2"), (("--zstd",), "raw"),
                              (("--digest", "sha256"), "xxh3"), (("--align", "4096"), "64 KiB"),
                              (("--shards", "2"), "one file")]:
            self.fail_with(USAGE, "convert", "--canonical", *options, path, "-o", out, says=says)
        self.fail_with(USAGE, "convert", "--canonical", "-", "-o", out, stdin=pathlib.Path(path).read_bytes(), says="a pipe cannot")
        self.safetensors("nfd.safetensors", {"e\u0301": ("U8", [1], b"x")})
        self.fail_with(USAGE, "convert", "--canonical", self.path("nfd.safetensors"), "-o", out,
                       says="Unicode Normalization Form C")
        self.assertFalse(os.path.exists(out))


class Options(Writing):

    def test_raw_files_for_each_digest_and_number_of_threads(self):
        path, content = self.sample(3, 70_000, 0, 1_000_000)
        for digest in ("xxh3", "sha256", "none"):
            seen = set()
            for threads in ("1", "4"):
                file = self.convert(path, "--digest", digest, "-T", threads)
                seen.add(file.data)
                for name, data in content.items():
                    self.assertEqual(file.decode(name, "data"), data)
                    found = file.objects[name].parts["data"].digest
                    self.assertEqual(found, zt2read.digest_of(digest, data))
            self.assertEqual(len(seen), 1, digest)
        default = self.convert(path)
        self.assertTrue(default.objects["t0"].parts["data"].digest.startswith("xxh3:"))

    def test_alignment(self):
        path, _ = self.sample(3, 70_000, 5)
        for option, align in [((), 65536), (("--align", "4096"), 4096), (("--align", "1MiB"), 1 << 20)]:
            file = self.convert(path, *option)
            offsets = [file.objects[n].parts["data"].offset for n in ("t0", "t1", "t2")] + [file.manifest[0]]
            self.assertEqual(offsets[0], align)
            self.assertTrue(all(offset % align == 0 for offset in offsets), offsets)
        self.fail_with(USAGE, "convert", "--spec", "2.0", "--align", "1000", path, "-o", self.path("no.zt"),
                       says="not a multiple of 4096")
        self.succeed("convert", "--align", "4096", path, "-o", self.path("one.zt"))
        self.assertEqual(support.read_zt(self.path("one.zt"))["version"], "1.2.0")

    def test_compressed_parts_keep_their_digests(self):
        path, content = self.sample(70_000, 1_000_000)
        raw = self.convert(path)
        for option, encoding in (("--zstd", zt2read.ZSTD), ("--zstd=planes", zt2read.PLANES)):
            file = self.convert(path, option, "--chunk", "64KiB")
            self.assertLess(len(file.data), len(raw.data))
            for name, data in content.items():
                part = file.objects[name].parts["data"]
                self.assertEqual((part.encoding, part.size, part.digest),
                                 (encoding, len(data), raw.objects[name].parts["data"].digest))
                self.assertEqual(file.decode(name, "data"), data)
            self.assertEqual(file.content_digest(), raw.content_digest())

    def test_what_the_version_cannot_say_is_refused_before_anything_is_written(self):
        path, _ = self.sample(3)
        out = self.path("no.zt")
        self.fail_with(USAGE, "convert", "--spec", "2.0", "--digest", "crc32c", path, "-o", out,
                       says="version 2.0 has no digest crc32c")
        self.fail_with(USAGE, "convert", "--spec", "2.0", "--zstd", "--chunk", "17MiB", path, "-o", out,
                       says="choose smaller ones; --chunk sets their size")
        for name, says in (("n" * 1025, "more than 1024"), ("a\0b", "U+0000")):
            self.safetensors("names.safetensors", {name: ("U8", [1], b"x")})
            self.fail_with(USAGE, "convert", "--spec", "2.0", self.path("names.safetensors"), "-o", out, says=says)
        self.assertFalse(os.path.exists(out))

    def test_attributes_nest_as_deep_as_readers_allow(self):
        for of_file, levels in ((True, 30), (False, 28)):  # inside root and attributes; objects and object besides
            for more in (0, 1):
                value = 0
                for _ in range(levels + more):
                    value = [value]
                entry = {"shape": [1], "components": {"data": {"dtype": "u8", "data": b"x"}}}
                if not of_file:
                    entry["attributes"] = {"k": value}
                path = self.folder / "deep.zt"
                path.write_bytes(make_zt.encode_1({"t": entry}, attributes={"k": value} if of_file else None))
                if more == 0:
                    self.convert(path)
                else:
                    self.fail_with(USAGE, "convert", "--spec", "2.0", path, "-o", self.path("no.zt"), says="32 levels")


class Mapping(Writing):

    def test_types_of_one_byte_and_less_are_logical_types(self):
        self.safetensors("in.safetensors", {"b": ("BOOL", [3], b"\0\1\1"), "e4": ("F8_E4M3", [2], b"\1\2"),
                                            "e8": ("F8_E8M0", [2], b"\1\2"), "f4": ("F4", [2, 4], b"\x21\x43\x65\x07"),
                                            "f6": ("F6_E2M3", [4], b"\1\2\3"), "c": ("C64", [1], bytes(8))})
        file = self.convert(self.path("in.safetensors"))
        said = {n: (o.layout, o.shape, o.parts["data"].dtype, o.parts["data"].type, o.attributes)
                for n, o in file.objects.items()}
        self.assertEqual(said["b"], ("dense", [3], "u8", "bool", None))
        self.assertEqual(said["e4"], ("dense", [2], "u8", "f8_e4m3fn", None))
        self.assertEqual(said["e8"], ("dense", [2], "u8", "f8_e8m0", None))
        self.assertEqual(said["f4"], ("dense", [2, 4], "u8", "f4_e2m1", None))
        self.assertEqual(said["f6"], ("dense", [3], "u8", "ztstream.f6_e2m3/1", {"logical_shape": [4]}))
        self.assertEqual(said["c"], ("dense", [1], "f32", "complex64", None))

    def test_sparse_and_grouped_objects(self):
        file = self.convert(DATA / "zt/w123.zt")
        layouts = {o.layout for o in file.objects.values()}
        self.assertIn("zt.sparse_csr/1", layouts)
        self.assertIn("zt.sparse_coo/1", layouts)
        grouped = self.convert("--quant", "group", DATA / "gptq")
        self.assertIn("ztstream.quantized_group/1", {o.layout for o in grouped.objects.values()})

    def test_blocks_of_gguf_keep_their_name(self):
        file = self.convert(DATA / "gguf/little.gguf")
        self.assertEqual(file.objects["q8"].layout, "gguf.q8_0/1")
        self.assertEqual(file.objects["q8"].attributes, {"block_bytes": 34, "elems_per_block": 32})


class Sparse(Writing):

    def write(self, layout, shape, **components):
        """A 1.2 file with one sparse object; components are lists of u64, values are numbered."""
        count = len(components.get("indices") or components["coords"]) // (1 if layout == "sparse_csr" else len(shape))
        parts = {"values": {"dtype": "f32", "data": struct.pack(f"<{count}f", *range(count))}}
        for role, numbers in components.items():
            parts[role] = {"dtype": "u64", "data": struct.pack(f"<{len(numbers)}Q", *numbers)}
        path = self.folder / "sparse.zt"
        path.write_bytes(make_zt.encode_1({"m": {"format": layout, "shape": shape, "components": parts}}))
        return path

    def test_a_cell_is_named_once_and_the_columns_of_a_row_ascend(self):
        out = self.path("no.zt")
        good = [dict(indices=[0, 2, 1, 0, 3], indptr=[0, 2, 3, 3, 5]), dict(indptr=[0, 2, 3, 3, 5], indices=[0, 2, 1, 0, 3])]
        for components in good:
            file = self.convert(self.write("sparse_csr", [4, 4], **components))
            self.assertEqual(file.objects["m"].layout, "zt.sparse_csr/1")
        for indices in ([0, 2, 1, 3, 0], [0, 0, 1, 0, 3], [2, 0, 1, 0, 3]):
            for components in (dict(indices=indices, indptr=[0, 2, 3, 3, 5]), dict(indptr=[0, 2, 3, 3, 5], indices=indices)):
                self.fail_with(UNSUPPORTED, "convert", "--spec", "2.0", self.write("sparse_csr", [4, 4], **components), "-o", out,
                               says=("tensor 'm'", "is not more than the one before in its row"))
        file = self.convert(self.write("sparse_coo", [2, 3], coords=[1, 0, 1, 2, 2, 0]))
        self.assertEqual(file.objects["m"].layout, "zt.sparse_coo/1")
        self.fail_with(UNSUPPORTED, "convert", "--spec", "2.0", self.write("sparse_coo", [2, 3], coords=[1, 0, 1, 2, 2, 2]),
                       "-o", out, says="two elements name cell 5 in C order")

    def measured(self, *arguments):
        """(exit status, MiB at most, what it said)."""
        done = subprocess.run([sys.executable, "-SEc", support.STARTER, PROGRAM, *map(str, arguments)], capture_output=True,
                              stdin=subprocess.DEVNULL, check=True)
        status, _, memory = done.stdout.split()
        return int(status), float(memory), done.stderr.decode()

    def huge(self, layout, shape, **components):
        """A 1.2 file of zstd streams: each component is (dtype, elements, how each 8 MiB of it begin)."""
        compressor, parts = zstandard.ZstdCompressor(level=1), {}
        for role, (dtype, elements, damage) in components.items():
            width = int(dtype[1:]) // 8
            size, step = elements * width, 8 << 20
            pieces = [compressor.compress(bytes(min(step, size - at))) for at in range(0, max(size, 1), step)]
            if damage:
                pieces[1:] = [b"junk" * 8]
            parts[role] = {"dtype": dtype, "data": b"".join(pieces), "encoding": "zstd", "uncompressed_length": size}
        path = self.folder / "huge.zt"
        path.write_bytes(make_zt.encode_1({"m": {"format": layout, "shape": shape, "components": parts}}))
        return path

    def test_what_sparse_tensors_declare_takes_no_memory(self):
        if self.sanitized():
            self.skipTest("the sanitizers take memory of their own")
        out = self.path("out.zt")
        coords = 1 << 27  # 1 GiB, 8 MiB of which are there
        path = self.huge("sparse_coo", [1 << 20, 1 << 20], coords=("u64", coords, True), values=("u8", coords // 2, False))
        status, memory, errors = self.measured("convert", "--spec", "2.0", "--memory", "8MiB", path, "-o", out)
        self.assertNotEqual(status, 0)
        self.assertIn("tensor 'm'", errors)
        self.assertLess(memory, 100)
        rows = 1 << 24  # empty ones
        path = self.huge("sparse_csr", [rows, 8], indptr=("u64", rows + 1, False), indices=("u64", 0, False),
                         values=("u8", 0, False))
        status, memory, errors = self.measured("convert", "--spec", "2.0", "--memory", "8MiB", path, "-o", out)
        self.assertEqual(status, 0, errors)
        self.assertLess(memory, 100)

    def test_elements_that_memory_cannot_hold(self):
        """Ascending ones need next to none; what cannot be found out is refused, with what helps."""
        count, out = 300_000, self.path("no.zt")
        rows, columns = [i // 100 for i in range(count)], [i % 100 * 3 for i in range(count)]
        file = self.convert(self.write("sparse_coo", [3000, 300], coords=rows + columns), "--memory", "1MiB")
        self.assertEqual(file.objects["m"].layout, "zt.sparse_coo/1")
        columns[77777] = columns[77776]
        self.fail_with(UNSUPPORTED, "convert", "--spec", "2.0", "--memory", "1MiB", "-o", out,
                       self.write("sparse_coo", [3000, 300], coords=rows + columns), says="two elements name cell 233328 in C order")
        columns[77777], columns[77776] = 77777 % 100 * 3, 77777 % 100 * 3 + 1
        path = self.write("sparse_coo", [3000, 300], coords=rows + columns)
        self.fail_with(UNSUPPORTED, "convert", "--spec", "2.0", "--memory", "1MiB", "-o", out, path,
                       says=("its 300000 elements are not in C order", "takes more than 1048576 bytes of memory; allow more"))
        self.convert(path, "--memory", "4MiB")

    def test_formats_of_ones_own_are_kept_unchanged(self):
        objects = {name: {"format": name, "shape": [5], "attributes": {"k": [1, {"x": None}]}, "components": {
            "a": {"dtype": "u8", "data": b"abc"}, "b": {"dtype": "f16", "type": "odd", "data": b"xy"}}}
            for name in ("mine", "example.growing/1", "ztstream.mine/1", "zt.mx/1", "gguf.q8_0/1")}
        path = self.folder / "own.zt"
        path.write_bytes(make_zt.encode_1(objects))
        file = self.convert(path)
        for name in objects:
            o = file.objects[name]
            self.assertEqual((o.layout, o.shape, o.attributes), (f"ztstream.{name}/1", [5], {"k": [1, {"x": None}]}))
            self.assertEqual({r: (p.dtype, p.type) for r, p in o.parts.items()},
                             {"a": ("u8", None), "b": ("f16", "ztstream.odd/1")})
            self.assertEqual(file.stored(name, "a"), b"abc")


class Id(Writing):

    def test_ids_are_the_references(self):
        for name, want in IDS.items():
            with self.subTest(name):
                given = name.removeprefix("input/")
                if given.removesuffix(".zt") in zt2_goldens.ZT and given == name:
                    path = self.put(given, golden(given))  # the input has digests of its own
                else:
                    path = self.input_of(given)
                self.assertEqual(self.succeed("id", path).decode(), want + "\n")

    def test_id_is_the_same_however_the_tensors_are_stored(self):
        path, _ = self.sample(70_000, 3)
        want = self.succeed("id", path)
        for options in ((), ("--zstd",), ("--zstd=planes",), ("--canonical",), ("--align", "4096")):
            self.convert(path, *options)
            self.assertEqual(self.succeed("id", self.path("out.zt")), want, options)
        self.convert(path, "--digest", "none")
        self.assertEqual(self.succeed("id", self.path("out.zt")), want)
        self.succeed("convert", path, "-o", self.path("old.zt"))
        self.assertEqual(self.succeed("id", self.path("old.zt")), want)
        self.assertEqual(self.json("id", "--json", path)["id"], want.decode().strip())
        self.assertRegex(self.succeed("id", "--digest", "xxh3", path), rb"^xxh3:[0-9a-f]{16}\n$")
        self.safetensors("other.safetensors", {"t": ("U8", [1], b"x")})
        self.assertNotEqual(self.succeed("id", self.path("other.safetensors")), want)

    def test_id_takes_the_digests_as_they_are(self):
        """§6.4 has them in what is hashed, whatever their kind: the reference prints the same."""
        path, _ = self.sample(70_000, 3)
        found = set()
        for options in (("--digest", "sha256"), ("--digest", "sha256", "--zstd"), ("--digest", "sha256", "--align", "4096")):
            self.convert(path, *options)
            found.add(self.succeed("id", self.path("out.zt")))
        self.assertEqual(len(found), 1)
        self.assertNotIn(self.succeed("id", path), found)
