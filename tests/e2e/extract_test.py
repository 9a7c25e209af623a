"""The way back: extract writes files that other readers take for their own, and equal to what they came from."""
import io
import json
import os
import pathlib
import resource
import shutil
import struct
import unittest
import zipfile

import numpy

import make_safetensors
import make_zt
import support
from support import DATA, DONE, EXISTS, INVALID, UNSUPPORTED, USAGE

try:
    import scipy.sparse
except ImportError:
    scipy = None

REFERENCE_SAFETENSORS = ["safetensors/zoo.safetensors", "safetensors/library.safetensors",
                         "real/ppocr-cls.safetensors"]
GGUF_FILES = ["gguf/little.gguf", "gguf/quants.gguf", "gguf/kquants.gguf", "gguf/kinds.gguf",
              "gguf/big.gguf", "gguf/kinds_big.gguf"]


def read_safetensors(path):
    """(metadata, {name: (dtype, shape, bytes)}, names in the order of their bytes); checks the layout's rules."""
    content = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    assert size % 8 == 0
    header = json.loads(content[8:8 + size])
    metadata = header.pop("__metadata__", None)
    data = content[8 + size:]
    at = 0
    order = sorted(header, key=lambda name: tuple(header[name]["data_offsets"]))
    tensors = {}
    for name in order:
        begin, end = header[name]["data_offsets"]
        assert begin == at, name
        at = end
        tensors[name] = (header[name]["dtype"], header[name]["shape"], data[begin:end])
    assert at == len(data)
    return metadata, tensors, order


def written_metadata(metadata):
    """What `extract` makes of metadata: Hugging Face's libraries refuse any that has no format, and some a file without."""
    return metadata if metadata == {} else {"format": "pt", **(metadata or {})}


def make_npy(data):
    out = io.BytesIO()
    numpy.save(out, numpy.frombuffer(data, "?"))
    return out.getvalue()


class Safetensors(support.EndToEnd):

    def test_reference_files_come_back(self):
        for relative in REFERENCE_SAFETENSORS:
            with self.subTest(relative):
                output = self.path("out.safetensors")
                self.succeed("extract", "-f", DATA / relative, "-o", output)
                (want, metadata), got = make_safetensors.read(DATA / relative), read_safetensors(output)
                self.assertEqual(got[0], written_metadata(metadata))
                self.assertEqual(got[1], want)
                # Once more gives the same bytes: the order is a fixed one.
                self.succeed("extract", "-f", output, "-o", self.path("again.safetensors"))
                self.assertEqual(self.path("again.safetensors").read_bytes(), output.read_bytes())

    def test_a_file_of_the_reference_writer_is_equal_to_the_byte(self):
        source = DATA / "safetensors/library.safetensors"
        self.succeed("extract", source, "-o", self.path("out.safetensors"))
        self.assertEqual(self.path("out.safetensors").read_bytes(), source.read_bytes())

    def test_order_is_widest_type_first_then_name(self):
        source = self.safetensors("in.safetensors", {"b": ("U8", [1], b"\1"), "a": (
            "U8", [1], b"\2"), "z": ("F64", [1], bytes(8)), "m": ("BF16", [2], bytes(4)), "n": ("I64", [0], b"")})
        self.succeed("extract", source, "-o", self.path("out.safetensors"))
        _, tensors, order = read_safetensors(self.path("out.safetensors"))
        self.assertEqual(order, ["n", "z", "m", "a", "b"])
        self.assertEqual(tensors["a"][2], b"\2")

    def test_metadata_and_names_of_all_kinds(self):
        metadata = {"quote\"d": "back\\slash", "control": "\0\1\b\t\n\v\f\r\x1f\x7f", "é": "日本 \U0001f600", "": ""}
        source = self.safetensors("in.safetensors", {"a/../b \"c\"\n": ("F32", [], bytes(4))}, metadata)
        self.succeed("extract", source, "-o", self.path("out.safetensors"))
        got = read_safetensors(self.path("out.safetensors"))
        self.assertEqual(got[0], {"format": "pt", **metadata})
        self.assertEqual(list(got[1]), ["a/../b \"c\"\n"])

    def test_entries_of_npz_stay_in_their_folder(self):
        for name in "../x", "a\\..\\x", "/abs", "C:\\x", "c:x", "\\\\srv\\x":
            source = self.safetensors("in.safetensors", {name: ("F32", [], bytes(4))})
            self.fail_with(UNSUPPORTED, "extract", source, "-o", self.path("out.npz"), says="with this name would be unpacked outside its folder; --rename gives it another name")
        self.assertEqual(self.entries(), ["in.safetensors"])
        self.succeed("extract", self.safetensors("in.safetensors", {name: ("F32", [], bytes(4)) for name in ("ab:c", "a/b", "C", ":")}), "-o", self.path("out.npz"))

    def test_metadata_says_for_whom_it_is(self):
        """transformers and huggingface_hub refuse metadata whose format is not pt, tf, flax or mlx."""
        tensors = {"w": ("F32", [], bytes(4))}
        for metadata, want in [({"epoch": "3"}, {"epoch": "3", "format": "pt"}), ({"format": "mlx", "a": "b"},) * 2,
                               (None, {"format": "pt"}), ({},) * 2]:
            with self.subTest(metadata):
                source = self.safetensors("in.safetensors", tensors, metadata)
                process = self.run_program("extract", "-f", source, "-o", self.path("out.safetensors"))
                self.assertEqual(process.returncode, DONE, process.stderr)
                self.assertEqual(b"warning: added \"format\": \"pt\" to its metadata; Hugging Face refuses files without it" in process.stderr, metadata is not None and metadata != want)
                self.assertEqual(read_safetensors(self.path("out.safetensors"))[0], want)
                # A folder comes back byte for byte.
                self.path("m").mkdir(exist_ok=True)
                shutil.copy(source, self.path("m") / "model.safetensors")
                self.put("m/config.json", b"{}")
                self.succeed("convert", "-f", self.path("m"), "-o", self.path("m.zt"))
                shutil.rmtree(self.path("out"), ignore_errors=True)
                self.succeed("extract", "-f", self.path("m.zt"), "-o", f"{self.path('out')}/", "--to", "safetensors")
                self.assertEqual((self.path("out") / "model.safetensors").read_bytes(), source.read_bytes())

    def test_what_it_cannot_say_is_refused_by_name(self):
        for source, says in [(DATA / "scipy/csr.npz", "sparse_csr"), (DATA / "npy/c16_big.npy", "complex128"),
                             (DATA / "gguf/quants.gguf", "gguf.")]:
            self.fail_with(UNSUPPORTED, "extract", "-q", source, "-o", self.path("out.safetensors"),
                           says=("tensor '", says))
        self.assertEqual(self.entries(), [])

    def test_selection(self):
        source = DATA / "safetensors/zoo.safetensors"
        names = sorted(make_safetensors.read(source)[0])[:2]
        self.succeed("extract", source, *names, "-o", self.path("out.safetensors"))
        self.assertEqual(sorted(read_safetensors(self.path("out.safetensors"))[1]), names)
        self.fail_with(USAGE, "extract", source, "no such", "-o", self.path("x.npz"), says="'no such'")

    def test_pipes(self):
        source = self.safetensors("in.safetensors", {"w": ("F32", [2], b"abcdefgh"), "u": ("U8", [1], b"x")})
        out = self.succeed("extract", "-q", "-", "--to", "safetensors", "-o", "-", stdin=source.read_bytes())
        self.put("out.safetensors", out)
        self.assertEqual(read_safetensors(self.path("out.safetensors"))[1]["w"][2], b"abcdefgh")
        unordered = make_safetensors.encode({"u": ("U8", [1], b"x"), "w": ("F32", [2], b"abcdefgh")})
        self.fail_with(UNSUPPORTED, "extract", "-q", "-", "-o", self.path("x.safetensors"), stdin=unordered,
                       says="out of order")
        self.succeed("extract", "-q", "-", "-o", self.path("x.npz"), stdin=unordered)
        self.assertEqual(numpy.load(self.path("x.npz"))["w"].tobytes(), b"abcdefgh")

    def test_bytes_after_the_end_of_a_pipe_are_an_error(self):
        source = make_safetensors.encode({"w": ("F32", [2], b"abcdefgh"), "u": ("U8", [1], b"x")}) + b"more"
        for output in ("x.npz", "x.safetensors", "folder/"):
            self.fail_with(INVALID, "extract", "-q", "-", "-o", f"{self.folder}/{output}", stdin=source,
                           says="standard input: there are bytes after the last tensor")
        self.assertEqual(self.entries(), [])

    def test_bools_are_0_or_1(self):
        """The verdict is convert's, of whatever is written."""
        values = bytearray(300_000)
        values[290_001] = 2
        sources = (self.safetensors("in.safetensors", {"b": ("BOOL", [300_000], bytes(values))}),
                   self.put("in.npy", make_npy(bytes(values))))
        for source in sources:
            says = f"tensor '{'b' if source.suffix == '.safetensors' else 'in'}': element 290001 of bool is 2, neither 0 nor 1"
            self.fail_with(INVALID, "convert", source, "-o", "x.zt", says=says)
            for output in ("x.npz", "x.safetensors", "folder/"):
                self.fail_with(INVALID, "extract", source, "-o", output, says=says)
            self.fail_with(INVALID, "convert", source, "--to", "safetensors", "-o", "folder/", says=says)
        self.assertEqual(self.entries(), ["in.npy", "in.safetensors"])

    def test_a_type_we_do_not_know_is_refused_where_its_bytes_cannot_be_described(self):
        source = self.put("in.zt", make_zt.encode_1({
            "w": {"shape": [8], "components": {"data": {"dtype": "u8", "type": "int4", "data": b"\1\2\3\4"}}}}))
        for output in ("x.npy", "x.npz", "x.safetensors", "x.gguf", "folder/"):
            self.fail_with(UNSUPPORTED, "extract", "-q", source, "-o", f"{self.folder}/{output}",
                           says=("in.zt: tensor 'w': ", "int4"))
        self.assertEqual(self.entries(), ["in.zt"])

    def test_a_file_is_what_a_pipe_gets(self):
        # Into a file, ranges are placed by several threads; into a pipe, they go one after another.
        rows = {"large": ("F32", [2_250_001], os.urandom(9_000_004)), "empty": ("F32", [0, 3], b"")}
        rows.update({f"small.{i}": ("U8", [i * 7], os.urandom(i * 7)) for i in range(1500)})
        source = self.safetensors("in.safetensors", rows)
        self.succeed("convert", source, "-o", self.path("z.zt"), "--zstd", "--chunk", "1MiB")
        floats = self.safetensors("floats.safetensors", {name: row for name, row in rows.items() if row[0] == "F32"})
        for origin, target in ((source, "safetensors"), (source, "npz"), (self.path("z.zt"), "npz"),
                               (floats, "gguf")):
            with self.subTest(target):
                out = self.succeed("extract", "-q", origin, "--to", target, "-o", "-", "-T", "1")
                for threads in ("1", "4"):
                    self.succeed("extract", "-f", "-q", origin, "--to", target, "-o", self.path("out"), "-T", threads)
                    self.assertEqual(self.path("out").read_bytes(), out)
        self.succeed("extract", "-f", "-q", source, "--to", "npz", "-o", self.path("out.npz"), "-T", "4")
        with numpy.load(self.path("out.npz")) as got:
            for name, (_, shape, content) in rows.items():
                self.assertEqual((got[name].tobytes(), list(got[name].shape)), (content, shape))

    def test_existing_outputs_and_failures(self):
        source = DATA / "safetensors/library.safetensors"
        output = self.put("out.safetensors", b"old")
        self.fail_with(EXISTS, "extract", "-q", source, "-o", output, says="-f")
        self.assertEqual(output.read_bytes(), b"old")
        truncated = self.put("bad.npz", (DATA / "npz/stored.npz").read_bytes()[:-30])
        self.fail_with(INVALID, "extract", "-q", truncated, "-f", "-o", output)
        self.assertEqual(output.read_bytes(), b"old")
        self.fail_with(USAGE, "extract", source, "-o", self.path("out.bin"), says="--to")
        self.fail_with(USAGE, "extract", source, "-o", self.path("out.zt"), says="convert")
        self.assertEqual(self.entries(), ["bad.npz", "out.safetensors"])


class Numpy(support.EndToEnd):

    def test_npz_reads_in_numpy(self):
        for relative in ["npz/stored.npz", "npz/deflated.npz"]:
            output = self.path("out.npz")
            self.succeed("extract", "-f", DATA / relative, "-o", output)
            want, got = numpy.load(DATA / relative), numpy.load(output)
            self.assertEqual(sorted(got.files), sorted(want.files))
            for name in want.files:
                self.assertEqual(got[name].shape, want[name].shape, name)
                self.assertEqual(got[name].dtype, want[name].dtype.newbyteorder("<"), name)
                self.assertEqual(got[name].tobytes(), want[name].astype(want[name].dtype.newbyteorder("<")).tobytes())
            self.assertIsNone(zipfile.ZipFile(output).testzip())

    def test_npy_is_what_numpy_saves(self):
        for source in sorted((DATA / "npy").glob("*.npy")):
            output, want = self.path("out.npy"), self.path("want.npy")
            self.succeed("extract", "-f", source, "-o", output)
            array = numpy.load(source)
            numpy.save(want, numpy.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C"))
            self.assertEqual(output.read_bytes(), want.read_bytes(), source.name)

    def test_types_without_a_name_are_void_with_a_warning(self):
        source = self.safetensors("in.safetensors", {
            "b": ("BF16", [2], b"\x80\x3f\0\x40"), "q": ("F8_E4M3", [3], b"\1\2\3"), "f": ("F32", [], bytes(4))})
        process = self.expect(DONE, "extract", source, "-o", self.path("out.npz"))
        warnings = [line for line in process.stderr.decode().splitlines() if "warning" in line]
        self.assertEqual(len(warnings), 1)
        self.assertIn("bf16, f8_e4m3fn: 2 arrays are written as '|V'", warnings[0])
        self.assertTrue(warnings[0].endswith("; as f32 they are numbers; in numpy: .view('<u2') or "
                                             ".view('u1') is the bits"), warnings[0])
        got = numpy.load(self.path("out.npz"))
        # docs/INPUTS.md says how bf16 becomes float32.
        self.assertEqual((got["b"].view("<u2").astype("<u4") << 16).view("<f4").tolist(), [1, 2])
        self.assertEqual((got["b"].dtype.str, got["q"].dtype.str), ("|V2", "|V1"))
        self.assertEqual(got["b"].tobytes(), b"\x80\x3f\0\x40")

    def test_coo_matrices_that_scipy_does_not_load_are_written_with_a_warning(self):
        row = numpy.arange(2, dtype="<i4")
        for data, kind, more in (("<f2", "coo", {"row": row, "col": row}), ("<f4", "coo", {"row": row, "col": row}),
                                 ("<f2", "csr", {"indices": row, "indptr": numpy.arange(3, dtype="<i4")})):
            numpy.savez(self.path("in.npz"), format=numpy.array(kind.encode()), shape=numpy.array([2, 2]), data=numpy.ones(2, data), **more)
            said = self.expect(DONE, "extract", "-f", self.path("in.npz"), "-o", self.path("out.npz")).stderr.decode()
            self.assertEqual("scipy does not load coo matrices of f16, but does of f32" in said, (data, kind) == ("<f2", "coo"))

    def test_one_array_for_one_npy(self):
        source = DATA / "npz/stored.npz"
        self.fail_with(USAGE, "extract", source, "-o", self.path("out.npy"), says="one tensor")
        name = numpy.load(source).files[0]
        self.succeed("extract", source, name, "-o", self.path("out.npy"))
        self.assertEqual(numpy.load(self.path("out.npy")).tobytes(), numpy.load(source)[name].tobytes())


@unittest.skipIf(scipy is None, "scipy is not installed")
class Scipy(support.EndToEnd):

    def test_matrices_come_back(self):
        for name in ["csr", "csc", "coo"]:
            with self.subTest(name):
                output = self.path(f"{name}.npz")
                self.succeed("extract", DATA / f"scipy/{name}.npz", "-o", output)
                want, got = scipy.sparse.load_npz(DATA / f"scipy/{name}.npz"), scipy.sparse.load_npz(output)
                self.assertEqual(got.format, "csr" if name == "csc" else name)
                self.assertEqual(got.shape, want.shape)
                self.assertEqual(got.dtype, want.dtype)
                numpy.testing.assert_array_equal(got.toarray(), want.toarray())
                self.assertIsNone(zipfile.ZipFile(output).testzip())

    def test_archives_kept_as_arrays_come_back_as_what_they_were(self):
        rows, columns = numpy.array([0, 1, 3]), numpy.array([2, 0, 1])
        dense = numpy.zeros((4, 4))
        dense[rows, columns] = [1.5, 2, 3]
        for kind in ("bsr", "dia"):
            with self.subTest(kind):
                source, zt, output = (self.path(f"{kind}{end}") for end in (".npz", ".zt", "-back.npz"))
                scipy.sparse.save_npz(source, scipy.sparse.coo_matrix(dense).asformat(kind))
                self.succeed("convert", "-q", source, "-o", zt)
                process = self.run_program("extract", zt, "-o", output)
                self.assertNotIn(b"attributes", process.stderr)
                back = scipy.sparse.load_npz(output)
                self.assertEqual(back.format, kind)
                numpy.testing.assert_array_equal(back.toarray(), dense)
                # A part of the arrays is not a matrix.
                self.succeed("extract", "-q", zt, "data", "-o", self.path(f"{kind}-part.npz"))
                self.assertEqual(numpy.load(self.path(f"{kind}-part.npz")).files, ["data"])
                index = {"dia": "offsets"}.get(kind, "indptr")
                part, others = self.path(f"{kind}-all-but-one.npz"), set(numpy.load(source).files) - {index, "format"}
                self.succeed("extract", "-q", zt, *sorted(others), "-o", part)
                self.assertEqual(set(numpy.load(part).files), others)
                self.succeed("inspect", part)


class Folder(support.EndToEnd):

    def test_names_are_safe_and_can_be_undone(self):
        names = ["../../escape", "/abs", "..", ".hidden", "a/b", "a\\b", "%2F", "Case", "case", "dot.", "nul\1", "日本", "w\u202e", "\u200b\u2066z", "e\u0301"]
        source = self.safetensors("in.safetensors", {name: ("U8", [1], bytes([i])) for i, name in enumerate(names)})
        result = self.json("extract", "--json", "-q", source, "-o", str(self.path("out")) + "/")
        self.assertEqual(self.entries(), ["in.safetensors", "out"])
        self.assertEqual(self.entries(self.path("out")), sorted([
            "%2E%2E.npy", "%2E.%2F..%2Fescape.npy", "%2Fabs.npy", "%2Ehidden.npy", "a%2Fb.npy", "a%5Cb.npy",
            "%252F.npy", "Case.npy", "case.npy", "dot%2E.npy", "nul%01.npy", "日本.npy", "w%E2%80%AE.npy",
            "%E2%80%8B%E2%81%A6z.npy", "e\u0301.npy"]))
        from urllib.parse import unquote
        files = {row["path"]: row["tensor"] for row in result["output"]["files"]}
        for i, name in enumerate(names):
            file = next(file for file, tensor in files.items() if tensor == name)
            self.assertEqual(unquote(file[:-4]), name)
            self.assertEqual(numpy.load(self.path("out") / file).tobytes(), bytes([i]))

    def test_the_longest_name(self):
        most = "x" * 200
        source = self.safetensors("in.safetensors", {most: ("U8", [1], b"x")})
        self.succeed("extract", "-q", source, "-o", str(self.path("out")) + "/")
        self.assertEqual(self.entries(self.path("out")), [most + ".npy"])
        source = self.safetensors("in.safetensors", {most + "y": ("U8", [1], b"x")})
        self.fail_with(UNSUPPORTED, "extract", source, "-o", str(self.path("more")) + "/", says="would have 201 bytes, the limit is 200")

    def test_all_or_nothing(self):
        source = self.safetensors("in.safetensors", {"a": ("U8", [1], b"a"), "b": ("U8", [1], b"b")})
        folder = self.path("out")
        folder.mkdir()
        self.put("out/other", b"other")
        self.put("out/b.npy", b"old").chmod(0o600)
        self.fail_with(EXISTS, "extract", source, "-o", folder, says="b.npy: the output exists already")
        self.assertEqual(self.entries(folder), ["b.npy", "other"])
        self.assertEqual((folder / "b.npy").read_bytes(), b"old")
        self.succeed("extract", "-f", source, "-o", folder)
        self.assertEqual(self.entries(folder), ["a.npy", "b.npy", "other"])
        self.assertEqual(numpy.load(folder / "b.npy").tobytes(), b"b")
        self.assertEqual((folder / "b.npy").stat().st_mode & 0o777, 0o600)

    def test_a_tensor_without_a_name_goes_where_it_can_be_named(self):
        source = self.safetensors("in.safetensors", {"": ("F32", [1], b"abcd"), "b": ("F32", [1], b"efgh")})
        for output in ("out/", "out.gguf"):
            self.fail_with(UNSUPPORTED, "extract", source, "-o", f"{self.folder}/{output}", says="tensor '': ")
        for output in ("out.npz", "out.safetensors"):
            self.succeed("extract", source, "-o", self.path(output))
            self.succeed("diff", source, self.path(output))


class Gguf(support.EndToEnd):

    def test_options_are_checked_before_the_output(self):
        source, output = DATA / "npy/f4.npy", self.put("o.npy", b"precious")
        self.fail_with(support.EXISTS, "extract", source, "-o", output)
        for options in (["--dtype", "fp8"], ["--rename", "s/(/x/"], ["--shard-size", "1MiB"]):
            self.fail_with(support.USAGE, "extract", source, "-o", output, *options)
        self.assertEqual(output.read_bytes(), b"precious")

    def test_all_shards_of_a_set_are_the_set(self):
        shards = sorted((DATA / "gguf").glob("split-*.gguf"))
        self.succeed("convert", shards[1], "-o", self.path("one.zt"))
        self.succeed("convert", *shards, "-o", self.path("all.zt"))
        self.assertEqual(self.path("all.zt").read_bytes(), self.path("one.zt").read_bytes())
        self.succeed("convert", f"{DATA}/gguf/./split-00003-of-00003.gguf", shards[0], DATA / "npy/f4.npy",
                     "-o", self.path("more.zt"))
        self.assertEqual(len(support.read_zt(self.path("more.zt"))["objects"]), 6)

    def test_shards_that_are_missing_or_links(self):
        shards = sorted((DATA / "gguf").glob("split-*.gguf"))
        (self.path("set")).mkdir()
        for shard in shards:
            shutil.copy(shard, self.path("set"))
        first, second = (self.path("set") / shard.name for shard in shards[:2])
        second.rename(self.path("moved"))
        self.fail_with(INVALID, "convert", first, "-o", self.path("x.zt"), says=("shard 2 of 3", second.name, "is missing"))
        second.symlink_to(self.path("moved"))
        self.fail_with(INVALID, "convert", first, "-o", self.path("x.zt"), says=(second.name, "--follow-links"))
        self.succeed("convert", first, "--follow-links", "-o", self.path("all.zt"))
        for name in ("one", "zt"):
            self.path(name).mkdir()
        (self.path("one") / "m.gguf").symlink_to(DATA / GGUF_FILES[0])
        (self.path("zt") / "m.zt").symlink_to(self.path("all.zt"))
        for name in ("one", "set"):
            self.fail_with(INVALID, "convert", self.path(name), "-o", self.path("x.zt"), says="--follow-links")
            self.succeed("convert", "-f", self.path(name), "--follow-links", "-o", self.path("y.zt"))

    def test_safetensors_to_gguf_and_back(self):
        source = self.safetensors(
            "in.safetensors", {"w": ("F32", [2, 3], bytes(range(24))), "h": ("BF16", [5], bytes(range(10)))})
        self.succeed("extract", source, "-o", self.path("out.gguf"))
        self.succeed("diff", source, self.path("out.gguf"))

    def test_bytes_after_the_last_tensor_by_a_pipe(self):
        """More than padding is told as it is of a file, once the pipe has ended."""
        whole = self.make_gguf([("a", [8], 0, bytes(range(32))), ("b", [8], 0, bytes(32))])
        self.put("whole.gguf", whole)
        for more, told in ((31, 0), (32, 1)):
            content = whole + bytes(more)
            for words in (("convert", "-", "-fo", "m.zt"), ("convert", "-", "--include", "a", "-fo", "m.zt"), ("extract", "-", "-fo", "m.npz"),
                          ("extract", "-", "--rename", "s/^/m./", "-fo", "m.npz"), ("id", "-"), ("inspect", "-", "--stats"), ("diff", "whole.gguf", "-")):
                said = self.expect(DONE, *words, stdin=content).stderr
                self.assertEqual(said.count(b"bytes after the last tensor are ignored"), told, words)
            for words in (("convert", "-", "-fo", "m.zt"), ("extract", "-", "-fo", "m.npz")):
                result = json.loads(self.succeed(*words, "--json", "-q", stdin=content))
                self.assertEqual(sum("bytes after the last" in line for line in result["warnings"]), told)
        self.put("m.gguf", content)
        self.assertIn(b"32 bytes after the last tensor are ignored", self.expect(DONE, "convert", "m.gguf", "-fo", "m.zt").stderr)
        for cut in ("m.gguf", "-"):  # in a tensor that is not taken
            self.put("m.gguf", whole[:-1])
            self.expect(INVALID, "convert", cut, "--include", "a", "-fo", "m.zt", stdin=whole[:-1])

    def test_names_in_metadata_of_safetensors_follow_a_rename(self):
        tensors = [("b", [4], 0, b"abcd" * 4), ("a", [2], 0, b"efgh" * 2)]
        source = self.put("in.gguf", self.make_gguf(tensors))
        self.succeed("extract", source, "-o", "m.safetensors")
        self.succeed("extract", "m.safetensors", "--rename", "s/^/m./", "-o", "r.safetensors")
        self.succeed("convert", "m.safetensors", "--rename", "s/^/m./", "-o", "r.zt")
        for given in ("r.safetensors", "r.zt"):
            record = json.loads(self.json("inspect", "--json", given)["attributes"]["gguf"])
            self.assertEqual(record["tensors"], [["m.b", "f32"], ["m.a", "f32"]])
            self.succeed("extract", "-f", given, "-o", "r.gguf")
            self.assertEqual(self.path("r.gguf").read_bytes(), self.make_gguf([("m." + name, *rest) for name, *rest in tensors]))

    def make_gguf(self, tensors, gap=0, order=None):
        """Bytes of a little-endian file; `tensors` are (name, dimensions, ggml type, bytes). `order`: of the infos."""
        infos, data = [], bytearray()
        for name, dimensions, kind, content in tensors:
            infos.append(struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(dimensions)) +
                         b"".join(struct.pack("<Q", size) for size in dimensions) + struct.pack("<IQ", kind, len(data)))
            data += content + bytes(-len(content) % 32 + gap)
        infos = b"".join(infos[i] for i in order or range(len(infos)))
        header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0) + infos
        return header + bytes(-len(header) % 32) + data

    def test_what_llama_cpp_refuses_is_not_written(self):
        """llama.cpp asks that tensors follow one another in the order of the header, and for names of up to 63 bytes."""
        tensors = [("a", [4], 0, b"abcd" * 4), ("b", [2], 0, b"efgh" * 2)]
        usual = self.make_gguf(tensors)
        for name, unusual, want in [("gaps", self.make_gguf(tensors, gap=64), usual),
                                    ("order", self.make_gguf(tensors, order=[1, 0]), self.make_gguf(tensors[::-1])),
                                    ("magic", b"FUGG" + usual[4:], usual)]:
            with self.subTest(name):
                source = self.put("in.gguf", unusual)
                said = self.expect(support.DONE, "convert", "-f", source, "-o", self.path("a.zt")).stderr.decode()
                self.assertIn("llama.cpp does not load it", said)
                for given in (source, self.path("a.zt")):
                    self.succeed("extract", "-f", given, "-o", self.path("out.gguf"))
                    self.assertEqual(self.path("out.gguf").read_bytes(), want)
        # An empty tensor lies nowhere, wherever its header says.
        empty = self.make_gguf([("a", [4], 0, b"abcd" * 4), ("e", [0], 0, b"")])
        for place in (1 << 40, (1 << 64) - 32):
            info = struct.pack("<IQ", 0, 32)
            self.assertEqual(empty.count(info), 1)
            source = self.put("in.gguf", empty.replace(info, struct.pack("<IQ", 0, place)))
            self.succeed("convert", "-f", source, "-o", self.path("a.zt"))

    def test_beyond_llama_cpps_limits(self):
        """Builds for images and video have longer names and more dimensions: a GGUF comes back as it was, others are refused."""
        tensors = [("n" * 63, [2], 0, bytes(8)), ("m" * 64, [2], 0, bytes(8)), ("w", [2, 2, 1, 3, 2], 0, bytes(96)), ("z", [1] * 8, 0, bytes(4))]
        source = self.put("in.gguf", self.make_gguf(tensors))
        self.succeed("convert", source, "-o", "m.zt")
        for given in (source, "m.zt"):
            said = self.expect(support.DONE, "extract", "-f", given, "-o", "out.gguf").stderr.decode()
            self.assertIn(f"nor more than 4 dimensions: '{'m' * 64}', 'w', 'z'\n", said)
            self.assertEqual(self.path("out.gguf").read_bytes(), source.read_bytes())
        self.succeed("extract", "m.zt", "-o", "m.npz")
        with numpy.load(self.path("m.npz")) as arrays:
            self.assertEqual(arrays["w"].shape, (2, 3, 1, 2, 2))
        for name, says in (("m" * 64, "1 to 63 bytes; --rename"), ("w", "has more than 4 dimensions")):
            self.fail_with(UNSUPPORTED, "extract", "m.npz", name, "-o", "x.gguf", says=(f"tensor '{name}", says))
        self.succeed("extract", "m.zt", "--rename", "s/^m+$/m/", "--exclude", "w", "--exclude", "z", "-o", "x.gguf")

    def test_shapes_that_gguf_could_not_hold(self):
        """ComfyUI's tools reshape tensors and note their shapes; names that are not there and other sizes change nothing."""
        def shape(name, sizes):
            key = b"comfy.gguf.orig_shape." + name
            return struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 5, len(sizes)) + struct.pack(f"<{len(sizes)}i", *sizes)
        keys = shape(b"a", [1, 2, 1, 2, 2]) + shape(b"b", [9]) + shape(b"none", [1]) + shape(b"c", [])
        plain = self.make_gguf([("a", [4, 2], 0, bytes(32)), ("b", [2], 0, bytes(8)), ("c", [1], 0, bytes(4)), ("d", [3], 0, bytes(12))])
        end = plain.index(struct.pack("<Q", 1) + b"d") + 8 + 1 + 4 + 8 + 12
        head = plain[:16] + struct.pack("<Q", 4) + keys + plain[24:end]
        source = self.put("in.gguf", head + bytes(-len(head) % 32) + plain[end + -end % 32:])
        want = {"a": (1, 2, 1, 2, 2), "b": (2,), "c": (), "d": (3,)}
        self.succeed("convert", source, "-o", "m.zt")
        for given in (source, "m.zt"):
            self.succeed("extract", "-f", given, "-o", "m.npz")
            with numpy.load(self.path("m.npz")) as arrays:
                self.assertEqual({name: arrays[name].shape for name in arrays}, want)
            self.succeed("extract", "-f", given, "-o", "arrays/")
            self.assertEqual({name: numpy.load(self.path(f"arrays/{name}.npy")).shape for name in want}, want)
            self.succeed("extract", "-f", given, "-o", "m.safetensors")
            listed = self.json("inspect", "--json", "m.safetensors")["objects"]
            self.assertEqual({each["name"]: tuple(each["shape"]) for each in listed}, want)
            self.succeed("extract", "-f", given, "-o", "out.gguf")
            self.assertEqual(self.path("out.gguf").read_bytes(), source.read_bytes())
        # With other names, also those of others, in whichever run; and without the metadata.
        self.succeed("convert", source, "--rename", "s/^/m./", "-o", "renamed.zt")
        self.succeed("extract", "renamed.zt", "-o", "renamed.gguf")
        swap = ("--rename", "s/a/t/", "--rename", "s/b/a/", "--rename", "s/t/b/")
        swapped = {"b": want["a"], "a": want["b"], "c": (), "d": (3,)}
        for given, options, shapes in [(source, ("--rename", "s/^/m./"), {f"m.{name}": size for name, size in want.items()}),
                                       ("renamed.zt", (), {f"m.{name}": size for name, size in want.items()}),
                                       ("renamed.gguf", ("--rename", "s/^m.//"), want), (source, swap, swapped),
                                       (source, ("--exclude", "b", "--rename", "s/a/b/"), {"b": want["a"], "c": (), "d": (3,)}),
                                       (source, ("--unset", "gguf"), want)]:
            with self.subTest(given=given, options=options):
                self.succeed("extract", "-f", given, *options, "-o", "m.npz")
                with numpy.load(self.path("m.npz")) as arrays:
                    self.assertEqual({name: arrays[name].shape for name in arrays}, shapes)
        self.succeed("convert", source, "--to", "safetensors", "--no-metadata", "-o", "plain/")
        listed = self.json("inspect", "--json", "plain/")["objects"]
        self.assertEqual({each["name"]: tuple(each["shape"]) for each in listed}, want)

    def test_the_type_of_most_tensors_once_they_have_other_names(self):
        """general.file_type is corrected, as it is for tensors that keep their names."""
        key = struct.pack("<Q", 17) + b"general.file_type" + struct.pack("<I", 4)
        plain = self.make_gguf([("a", [32], 2, bytes(18))])
        head = plain[:16] + struct.pack("<Q", 1) + key + struct.pack("<I", 2) + plain[24:24 + 8 + 1 + 4 + 8 + 12]
        source = self.put("in.gguf", head + bytes(-len(head) % 32) + plain[-32:])
        for options in ((), ("--rename", "s/a/b/")):
            self.succeed("extract", "-f", source, "--dequantize", "f16", *options, "-o", "out.gguf")
            self.assertIn(key + struct.pack("<I", 1), self.path("out.gguf").read_bytes())

    def test_a_tensor_of_unknown_type_is_listed_and_can_be_left_out(self):
        source = self.put("in.gguf", self.make_gguf([
            ("a", [4], 0, b"abcd" * 4), ("new", [8], 99, bytes(40)), ("b", [2], 0, b"efgh" * 2)]))
        rows = {row["name"]: row for row in self.json("inspect", "--json", source)["objects"]}
        self.assertEqual(list(rows), ["a", "new", "b"])
        self.assertEqual(rows["new"]["format"], "gguf.type_99/1")
        for command in (["convert", source, "-o", self.path("out.zt")],
                        ["extract", source, "-o", self.path("out.gguf")],
                        ["extract", source, "new", "-o", self.path("out.npy")]):
            self.fail_with(UNSUPPORTED, *command, says="in.gguf: tensor 'new': ggml type 99 is not known")
        for options in (["--exclude", "new"], ["--include", "^[ab]$"]):
            self.succeed("convert", "-f", source, "-o", self.path("out.zt"), *options)
            self.assertEqual(sorted(support.read_zt(self.path("out.zt"))["objects"]), ["a", "b"])
        self.succeed("extract", source, "a", "b", "-o", self.path("out.gguf"))
        self.succeed("diff", self.path("out.zt"), self.path("out.gguf"))

    def test_metadata_that_would_give_another_reading_is_refused(self):
        record = {"version": 3, "byte_order": "little", "alignment": 64, "tensors": [],
                  "kv": [["general.alignment", "u32", 32]]}
        source = self.put("in.zt", make_zt.encode_1(
            {"a": {"shape": [16], "components": {"data": {"dtype": "f32", "data": bytes(range(64))}}}},
            attributes={"gguf": record}))
        self.succeed("verify", "-q", source)
        self.fail_with(INVALID, "extract", source, "-o", self.path("out.gguf"), says="alignment is 64")
        self.assertEqual(self.entries(), ["in.zt"])

    def test_dequantization_keeps_attributes_that_are_not_the_blocks(self):
        source = self.put("in.zt", make_zt.encode_1({"w": {
            "shape": [32], "format": "gguf.q8_0/1",
            "attributes": {"elems_per_block": 32, "block_bytes": 34, "note": "kept"},
            "components": {"data": {"dtype": "u8", "data": b"\0\x3c" + bytes(32)}}}}))
        self.succeed("convert", source, "-o", self.path("out.zt"), "--dequantize", "f32")
        self.assertEqual(support.read_zt(self.path("out.zt"))["objects"]["w"]["attributes"], {"note": "kept"})

    def test_a_large_header_from_a_pipe_costs_no_more_than_its_size(self):
        # 16 MiB that are read ahead with the header, then many small reads.
        count = 40_000
        source = self.make_gguf([(f"t{i:05}", [8], 24, bytes([i % 251] * 8)) for i in range(count)])
        pad = struct.pack("<Q", 3) + b"pad" + struct.pack("<IQ", 8, 17 << 20) + b"x" * (17 << 20)
        infos = source[24:24 + 38 * count]
        header = source[:16] + struct.pack("<Q", 1) + pad + infos
        source = header + bytes(-len(header) % 32) + source[-32 * count:]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.succeed("extract", "-q", "-", "--to", "npz", "-o", self.path("out.npz"), stdin=source)
        took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        self.assertEqual(numpy.load(self.path("out.npz"))["t00300"].tobytes(), bytes([300 % 251] * 8))
        self.assertLess(took, 20)  # it took minutes, and takes less than one second


class Rules(support.EndToEnd):
    """--dtype, --include, --exclude, --rename and --dequantize, as convert has them."""

    def setUp(self):
        super().setUp()
        values = numpy.random.default_rng(1).normal(0, 1, 300_000).astype("<f4")
        bits = (values.view("<u4") >> 16).astype("<u2")
        self.floats = (bits.astype("<u4") << 16).view("<f4")
        tensors = {"model.a": ("BF16", [300_000], bits.tobytes()), "model.b": ("F32", [4], numpy.array([1, 2, 3, 1e6], "<f4").tobytes()),
                   "step": ("I64", [1], bytes(8))}
        self.source = self.put("in.safetensors", make_safetensors.encode(tensors))

    def test_a_usable_npz_is_one_command(self):
        for options in ((), ("--zstd",), ("--zstd=planes",), ("--spec", "2.0", "--zstd=planes")):
            self.succeed("convert", self.source, "-o", self.path("m.zt"), "-f", *options)
            for threads in ("1", "4"):
                self.succeed("extract", self.path("m.zt"), "-o", self.path("o.npz"), "-f", "--dtype", "f32", "-T", threads)
                arrays = numpy.load(self.path("o.npz"))
                self.assertEqual({name: arrays[name].dtype.name for name in arrays}, {"model.a": "float32", "model.b": "float32", "step": "int64"})
                self.assertEqual(arrays["model.a"].tobytes(), self.floats.tobytes())
        self.succeed("extract", self.source, "model.a", "-o", self.path("a.npy"), "--dtype", "f64")
        self.assertEqual(numpy.load(self.path("a.npy")).tobytes(), self.floats.astype("<f8").tobytes())

    def test_the_same_as_converting_first(self):
        rules = ("--dtype", "a$=f16", "--dtype", "b$=f64", "--exclude", "step", "--rename", "s/model/m/")
        self.succeed("convert", self.source, "-o", self.path("m.zt"), *rules)
        for name in ("x.safetensors", "x.npz"):
            self.succeed("extract", self.path("m.zt"), "-o", self.path("1" + name))
            self.succeed("extract", self.source, "-o", self.path("2" + name), *rules)
            self.assertEqual(self.path("1" + name).read_bytes(), self.path("2" + name).read_bytes())
        gguf = DATA / "gguf/quants.gguf"
        self.succeed("convert", gguf, "-o", self.path("q.zt"), "--dequantize", "f32")
        self.succeed("extract", self.path("q.zt"), "-o", self.path("1.safetensors"))
        self.succeed("extract", gguf, "-o", self.path("2.safetensors"), "--dequantize", "f32")
        first, second = (make_safetensors.read(self.path(name))[0] for name in ("1.safetensors", "2.safetensors"))
        self.assertEqual(first, second)

    def test_numbers_that_do_not_fit(self):
        self.fail_with(support.NUMERIC, "extract", self.source, "-o", self.path("o.npz"), "--dtype", "b$=f16", "-q",
                       says=("tensor 'model.b'", "1 value does not fit f16"))
        self.assertEqual(self.entries(), ["in.safetensors"])
        process = self.run_program("extract", self.source, "-o", self.path("o.npz"), "--dtype", "b$=f16", "--on-overflow", "saturate")
        self.assertEqual(process.returncode, DONE)
        self.assertIn(b"tensor 'model.b': 1 value did not fit and became the nearest value of its type", process.stderr)
        self.assertEqual(numpy.load(self.path("o.npz"))["model.b"].tolist(), [1, 2, 3, 65504])

    def test_a_rule_that_applies_to_nothing(self):
        process = self.run_program("extract", self.source, "-o", self.path("o.npz"), "--exclude", "nothing")
        self.assertIn(b"--exclude 'nothing' matches the name of no tensor", process.stderr)
        self.fail_with(USAGE, "extract", self.source, "-o", self.path("p.npz"), "--include", "^$", "-q", says="leave no tensor")

    def test_a_word_that_is_no_name(self):
        for word, says in (("el.a", "'el.a' means tensor 'model.a'"), ("model", "'model' means 2 tensors, 'model.a' the first")):
            process = self.run_program("extract", self.source, word, "-v", "-f", "-o", self.path("o.npz"))
            self.assertEqual(process.stderr.decode().splitlines()[0], f"ztstream: {says}")
        self.assertNotIn(b"means", self.run_program("extract", self.source, "model.a", "-v", "-f", "-o", self.path("o.npz")).stderr)
        self.fail_with(USAGE, "extract", self.source, "model.aa", "-o", self.path("p.npz"),
                       says="no tensor matches 'model.aa'; did you mean 'model.a'?")

    def test_a_folder_anew(self):
        self.put("f/model.safetensors", self.source.read_bytes())
        self.put("f/config.json", b"{}")
        self.succeed("convert", self.path("f"), "-o", self.path("m.zt"))
        self.succeed("extract", self.path("m.zt"), "-o", f"{self.path('o')}/", "--to", "safetensors", "--dtype", "f32", "-q")
        tensors = make_safetensors.read(self.path("o/model.safetensors"))[0]
        self.assertEqual({name: entry[0] for name, entry in tensors.items()}, {"model.a": "F32", "model.b": "F32", "step": "I64"})
        self.assertEqual(tensors["model.a"][2], self.floats.tobytes())
        self.assertEqual(self.path("o/config.json").read_bytes(), b"{}")
