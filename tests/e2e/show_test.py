"""show: values in numpy's brackets and lines, each in its fewest digits, of every type, format, encoding and slice;
only what is printed is read."""
import json
import math
import os
import pathlib
import random
import subprocess
import tempfile

import numpy

import figures
import make_safetensors
import number_formats
import onnx_assembler as onnx
import random_inputs
import support
from support import DATA, DONE, INVALID, PROGRAM, UNSUPPORTED, USAGE


def tame(name, count, rng):
    """Bytes of elements as checkpoints have them, or of any pattern."""
    return random_inputs.random_data(rng, name, count)


def random_slice(rng, shape):
    """The text of a slice that numpy takes of such a shape, or of none."""
    words = []
    for size in shape[:rng.randint(0, len(shape))]:
        bound = lambda: rng.choice(["", str(rng.randint(-size - 2, size + 2))])
        kind = rng.random()
        if kind < 0.3 and size:
            words.append(str(rng.randrange(-size, size)))
        elif kind < 0.7:
            words.append(bound() + ":" + bound())
        else:
            words.append(bound() + ":" + bound() + ":" + rng.choice(["", "1", "2", "-1", "-3", "7"]))
    if rng.random() < 0.3:
        at = rng.randint(0, len(words))
        words = words[:at] + ["..."] + ([] if at < len(words) else [])
    return ",".join(words)


def sliced(array, text):
    return eval(f"array[{text}]", {}, {"array": array}) if text else array


def plain(value):
    """tolist() as JSON has it."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def float_text(value, sign=False):
    """The fewest digits that mean a float, all digits of a whole number."""
    magnitude = abs(float(value))
    if not math.isfinite(magnitude) or (magnitude and not 1e-4 <= magnitude < 1e16):
        text = numpy.format_float_scientific(value, trim="-", exp_digits=2)
    elif magnitude.is_integer():
        text = ("-" if numpy.signbit(value) else "") + f"{int(magnitude)}.0"
    else:
        text = numpy.format_float_positional(value, trim="0")
    return "+" + text if sign and not numpy.signbit(value) and not numpy.isnan(value) else text


def aligned(texts):
    """The texts by themselves, padded so that points stand below each other."""
    point = lambda text: min([text.index(c) for c in ".e" if c in text], default=len(text))
    left, right = max(map(point, texts)), max(len(text) - point(text) for text in texts)
    return {text: (" " * (left - point(text)) + text).ljust(left + right) for text in texts}


def printed(array):
    """What `show` prints of it: numpy's arrayprint, but for the text of floats."""
    if array.dtype.kind not in "fc":
        return str(array)
    if array.shape == ():
        return float_text(array[()]) if array.dtype.kind == "f" else float_text(array.real[()]) + float_text(array.imag[()], True) + "j"
    real, imaginary = [], []
    def collect(value):
        real.append(float_text(value.real))
        imaginary.append(float_text(value.imag, True) + "j")
        return "-"
    kinds = ("float_kind", "complex_kind")
    numpy.array2string(array, formatter=dict.fromkeys(kinds, collect))
    if not real:
        return "[]"
    real, imaginary = aligned(real), aligned(imaginary)
    both = lambda value: real[float_text(value.real)] + imaginary[float_text(value.imag, True) + "j"]
    return numpy.array2string(array, formatter={"float_kind": lambda value: real[float_text(value)], "complex_kind": both})


class Show(support.EndToEnd):

    def test_an_object_that_fails_is_complete(self):
        """What has been printed, and the error: the values are read piece by piece."""
        array = numpy.arange(3 << 20, dtype="<f4").reshape(3, 1 << 10, 1 << 10)
        source = self.safetensors("a.safetensors", {"w": ("F32", array.shape, array.tobytes())})
        self.succeed("convert", source, "--zstd", "-o", self.path("a.zt"), "-q")
        content = bytearray(self.path("a.zt").read_bytes())
        part = self.json("inspect", "--json", self.path("a.zt"))["objects"][0]["components"][0]
        content[part["offset"] + part["length"] * 9 // 10] ^= 0xff
        bad = self.put("bad.zt", bytes(content))
        for word, want in (("w", array), ("w[1:,:,3:]", array[1:, :, 3:]), ("w[2]", None), ("w[2,1000:]", None), ("w[0,0]", array[0, 0])):
            done = self.run_program("show", "--json", bad, word)
            found = json.loads(done.stdout)
            failed = word != "w[0,0]"
            self.assertEqual((done.returncode, found["ok"]), (support.INVALID if failed else DONE, not failed))
            if failed:
                self.assertEqual((found["error"]["tensor"], found["error"]["file"], found["error"]["exit_status"]), ("w", str(bad), done.returncode))
                self.assertIn("the zstd stream is damaged", found["error"]["message"])
            if want is None:
                self.assertNotIn("values", found)
                continue
            flat = numpy.array([number for layer in found["values"] for row in layer for number in row] if failed else found["values"])
            self.assertTrue(0 < len(flat) <= want.size and (flat == want.ravel()[:len(flat)]).all())
            self.assertEqual(len(flat) == want.size, not failed)

    def check(self, path, name, array, text, *options):
        word = f"{name}[{text}]" if text or random.random() < 0.5 else name
        part = sliced(array, text)
        shown = self.succeed("show", *options, "--", path, word).decode()
        self.assertEqual(shown, printed(numpy.asarray(part)) + "\n", (path, word, array.dtype, array.shape))
        found = self.json("show", "--json", *options, "--", path, word)
        self.assertEqual(found["shape"], list(part.shape), word)
        self.assertEqual(found["values"], plain(part.tolist()), word)

    def test_every_half_float(self):
        halves = numpy.arange(1 << 16, dtype="<u2")
        for seed in range(30):
            numpy.random.default_rng(seed).shuffle(halves)
            part = halves[:900].copy()
            path = self.safetensors("a.safetensors", {"h": ("F16", [30, 30], part.tobytes())})
            self.check(path, "h", part.view("<f2").reshape(30, 30), "")
        part = numpy.arange(0, 1 << 15, 37, dtype="<u2").view("<f2")
        path = self.safetensors("a.safetensors", {"h": ("F16", [len(part)], part.tobytes())})
        for at in range(0, len(part), 9):
            self.assertEqual(self.succeed("show", path, f"h[{at}]").decode(), float_text(part[at]) + "\n")

    def test_every_type_as_numpy_prints_it(self):
        rng = random.Random(1)
        for dtype, (storage, kind) in make_safetensors.ZTENSOR.items():
            name = kind or storage
            if dtype == "F4" or dtype.startswith("F6_"):
                continue
            for shape in ([], [0], [1], [3], [7, 5], [2, 3, 4], [1001], [40, 30], [9, 2, 0], [8, 9, 17], [2, 2, 2, 2, 2]):
                data = tame(name, math.prod(shape), rng)
                path = self.safetensors("a.safetensors", {"w": (dtype, shape, data)})
                array = figures.numbers(name, data).reshape(shape)
                self.check(path, "w", array, random_slice(rng, shape))

    def test_whole_numbers_have_all_their_digits(self):
        rng = numpy.random.default_rng(5)
        for dtype, code, low, high in (("F16", "<f2", 2048, 65504), ("F32", "<f4", 2**24, 1e15), ("F64", "<f8", 2**53, 9.9e15)):
            for _ in range(10):
                values = rng.uniform(low, high, 4).astype(code)
                path = self.safetensors("a.safetensors", {"w": (dtype, [4], values.tobytes())})
                shown = self.succeed("show", path).decode()
                self.assertEqual([float(word) for word in shown.strip("[]\n").split()], values.tolist())
                self.check(path, "w", values, "")

    def test_magnitudes(self):
        rng = numpy.random.default_rng(4)
        for dtype, code in (("F32", "<f4"), ("F64", "<f8")):
            edges = numpy.array([1e-4, 1e16], code)
            edges = numpy.array([each for edge in edges for each in (numpy.nextafter(edge, 0, dtype=code), edge, -edge)], code)
            self.check(self.safetensors("a.safetensors", {"w": (dtype, [6], edges.tobytes())}), "w", edges, "")
            for trial in range(30):
                span = rng.uniform(0, 12)
                values = (rng.normal(0, 1, 24) * 10 ** rng.uniform(-span, span / 2, 24)).astype(code)
                values[rng.random(24) < 0.1] = rng.choice([0.0, -0.0, numpy.nan, numpy.inf, -numpy.inf, 1, 1000, 0.1])
                if trial % 3 == 0:
                    values = numpy.round(values, int(rng.integers(0, 6)))
                path = self.safetensors("a.safetensors", {"w": (dtype, [4, 6], values.tobytes())})
                self.check(path, "w", values.reshape(4, 6), "")
                self.check(path, "w", values.reshape(4, 6), f"{trial % 4},{trial % 6}")

    def test_encodings_and_slices(self):
        rng = random.Random(2)
        shape = [50, 30, 20]
        data = tame("bf16", math.prod(shape), rng)
        array = figures.numbers("bf16", data).reshape(shape)
        source = self.safetensors("a.safetensors", {"x": ("U8", [3], b"abc"), "w": ("BF16", shape, data)})
        for at, options in enumerate((["--raw"], ["--zstd", "--chunk", "4KiB", "--min-gain", "0"], ["--zstd=planes"],
                                      ["--spec", "2.0", "--zstd", "--min-gain", "0"], ["--spec", "0.1"], ["--spec", "1.1", "--zstd"],
                                      ["--shards", "2"], ["--shards", "2", "--spec", "2.0"])):
            (self.path(str(at))).mkdir()
            zt = self.path(str(at)) / "m.zt"
            self.succeed("convert", source, "-o", zt, *options)
            file = self.path(str(at)) if "--shards" in options else zt
            for _ in range(12):
                self.check(file, "w", array, random_slice(rng, shape))

    def test_random_files_of_every_format(self):
        for seed in range(int(os.environ.get("ZT_COUNT", 40))):
            rng = random.Random(seed)
            with tempfile.TemporaryDirectory() as folder:
                made = rng.choice(random_inputs.MAKERS)(rng, pathlib.Path(folder), "t")
                for name, tensor in rng.sample(sorted(made.tensors.items()), min(3, len(made.tensors))):
                    for role, (dtype, kind, data) in tensor.parts.items():
                        block = tensor.format[5:-2] if tensor.format.startswith("gguf.") else None
                        array = figures.numbers(block or kind or dtype, data)
                        one = len(tensor.parts) == 1
                        array = array.reshape(tensor.shape) if one else array
                        word = name if one else f"{name}/{role}"
                        if not word:
                            continue
                        self.check(made.path, word, array, random_slice(rng, array.shape), "--files", "none")

    def test_packed_elements(self):
        data = bytes(range(256))
        array = figures.numbers("f4_e2m1", data).reshape(16, 32)
        path = self.safetensors("a.safetensors", {"w": ("F4", [16, 32], data), "x": ("F6_E2M3", [4], bytes(3))})
        zt = self.path("a.zt")
        self.succeed("convert", path, "-o", zt, "--spec", "2.0")
        for file in (path, zt):
            for text in ("", "3", "1::5,7:20:3", "::-1,::-1", "4,5"):
                self.check(file, "w", array, text)
        self.fail_with(UNSUPPORTED, "show", path, "x", says="the numbers of f6_e2m3 are not known")

    def test_packed_elements_of_onnx(self):
        """The first is in the lowest bits, and the last byte may be half empty."""
        data = bytes(random.Random(3).randrange(256) for _ in range(8))
        codes = {bits: [each >> shift & (1 << bits) - 1 for each in data for shift in range(0, 8, bits)] for bits in (2, 4)}
        signed = lambda bits: [each - (1 << bits if each >> bits - 1 else 0) for each in codes[bits]]
        floats = [float(each) for each in figures.numbers("f4_e2m1", data)]
        kinds = {21: ("uint4", 4, codes[4]), 22: ("int4", 4, signed(4)), 23: ("float4e2m1", 4, floats), 25: ("uint2", 2, codes[2]),
                 26: ("int2", 2, signed(2))}
        for number, (name, bits, expected) in kinds.items():
            count = 64 // bits - 1
            source = self.put("m.onnx", onnx.model(onnx.tensor("w", number, (count,), onnx.field(9, data))))
            self.succeed("convert", "-f", source, "-o", self.path("o.zt"))
            for each in source, self.path("o.zt"):
                shown = self.json("show", "--json", each)
                self.assertEqual((shown["dtype"], shown["shape"], shown["values"]), (name, [count], expected[:-1]))
                self.assertEqual(self.json("show", "--json", each, "w[3:6]")["values"], expected[3:6])
        self.assertEqual(self.succeed("show", DATA / "onnx/packed.onnx", "i4"), b"[ 1 -2  3 -8  7]\n")

    def test_gguf_blocks_are_dequantized(self):
        for name in ("quants.gguf", "kquants.gguf"):
            self.succeed("convert", "-f", DATA / "gguf" / name, "-o", self.path("f32.zt"), "--dequantize", "f32")
            rng = random.Random(3)
            for tensor, entry in support.read_zt(self.path("f32.zt"))["objects"].items():
                part = entry["components"]["data"]
                array = figures.numbers(part["dtype"], part["bytes"]).reshape(entry["shape"])
                self.check(DATA / "gguf" / name, tensor, array, random_slice(rng, array.shape))

    def test_names_with_brackets_and_slashes(self):
        byte = ("U8", [4], b"\1\2\3\4")
        path = self.safetensors("a.safetensors", {"w[0]": ("U8", [2], b"\7\10"), "w": byte, "a/b": byte, "x]": byte})
        for word, wanted in (("w[0]", "[7 8]"), ("w[0][1]", "8"), ("w[1]", "2"), ("a/b[1:3]", "[2 3]"), ("a/b/data[0]", "1"),
                             ("x]", "[1 2 3 4]"), ("w[ 1 : 3 ]", "[2 3]"), ("w[...,0]", "1"), ("w[0,...]", "1"), ("w[0,]", "1")):
            self.assertEqual(self.succeed("show", path, word).decode(), wanted + "\n", word)
        path = self.safetensors("b.safetensors", {"[a]": byte, "": ("U8", [1], b"\5"), "w": byte})
        for word, wanted in (("[a]", "[1 2 3 4]"), ("[a][1]", "2"), ("[a]/data[2:]", "[3 4]"), ("", "[5]")):
            self.assertEqual(self.succeed("show", path, word).decode(), wanted + "\n", word)
        path = self.safetensors("c.safetensors", {"[q]": byte})
        for word, wanted in (("[q][0]", "1"), ("[q]", "[1 2 3 4]"), ("[1]", "2")):
            self.assertEqual(self.succeed("show", path, word).decode(), wanted + "\n", word)

    def test_a_tensor_and_a_file_of_one_name(self):
        folder = self.safetensors("m/model.safetensors", {"w": ("U8", [2], b"\7\10"), "v": ("U8", [1], b"a")}).parent
        for name in "w", "w[1].txt", "x":
            self.put(f"m/{name}", b"text")
        model = self.path("m.zt")
        self.succeed("convert", folder, "-o", model, "-q")
        for where in folder, model:
            for word, wanted in (("w", "[7 8]"), ("w[0]", "7")):
                self.assertEqual(self.succeed("show", where, word).decode(), wanted + "\n", word)
            for word, name in (("w[1].txt", "w[1].txt"), ("x", "x"), ("x[0]", "x")):
                self.fail_with(USAGE, "show", where, word, says=f"'{name}' is a file of the model; ")

    def test_what_is_no_slice(self):
        path = self.safetensors("a.safetensors", {"w": ("U8", [2, 3], bytes(6))})
        for text, says in (("2", "position 2 is not in dimension 0, which has size 2"), ("0,-4", "position -4 is not in dimension 1"),
                           ("0,0,0", "the slice is of 3 dimensions, the shape is [2, 3]"), ("::0", "step"), ("a", "'a' in the slice"),
                           ("1:2:3:4", "more than start, stop and step"), ("...,...", "one '...'"), ("1.5", "'1.5'"), ("0,,", "''"),
                           ("[0,1]", "a slice holds no list of positions")):
            line = self.fail_with(USAGE, "show", path, f"w[{text}]", says=says)
            self.assertIn("a.safetensors: tensor 'w': ", line)

    def test_more_than_a_page_even_without_the_middle(self):
        """Six of each of eight dimensions."""
        shape = [7] * 8
        path = self.safetensors("a.safetensors", {"w": ("U8", shape, bytes(7 ** 8))})
        self.fail_with(UNSUPPORTED, "show", path, "w", says="1,679,616 values would be printed; take a slice, or --json")

    def test_what_is_no_tensor(self):
        path = self.safetensors("a.safetensors")
        self.fail_with(USAGE, "show", path, "none[0,[1,3]]", says="there is no tensor 'none'; ztstream inspect lists them")
        self.fail_with(USAGE, "show", path, "none[0]", says="there is no tensor 'none'; ztstream inspect lists them")
        long = self.safetensors("l.safetensors", {"model.norm.weight": ("U8", [1], b"a"), "other": ("U8", [1], b"a")})
        self.succeed("convert", "-q", long, "-o", self.path("l.zt"))
        for where in (long, self.path("l.zt")):
            self.fail_with(USAGE, "show", where, "model.norm.weigth", says="no tensor 'model.norm.weigth'; did you mean 'model.norm.weight'?")
        layers = self.safetensors("lb.safetensors", {f"layers[{i}].weight": ("U8", [1], b"a") for i in (0, 1)})
        for word in "layers[0].wieght", "layers[0].wieght[0]":
            self.fail_with(USAGE, "show", layers, word, says="there is no tensor 'layers[0].wieght'; did you mean 'layers[0].weight'?")
        two = self.safetensors("b.safetensors", {"v": ("U8", [1], b"a"), "w": ("U8", [2], b"bc")})
        self.fail_with(USAGE, "show", two, "w[0:2,", says="tensor 'w': the slice '[0:2,' does not end with ']'")
        for words in ((), ("[0]",)):
            self.fail_with(USAGE, "show", two, *words, says="NAME is missing, and there is not just one tensor")

    def test_the_only_tensor_needs_no_name(self):
        numpy.save(self.path("w.npy"), numpy.arange(6).reshape(2, 3))
        os.mkdir(self.path("m"))
        pathlib.Path(self.path("m/config.json")).write_text("{}", encoding="utf-8")
        numpy.save(self.path("m/w.npy"), numpy.arange(6).reshape(2, 3))
        self.succeed("convert", self.path("m"), "-o", self.path("w.zt"), "-q")
        for path in map(self.path, ("w.npy", "m", "w.zt")):
            self.assertEqual(self.succeed("show", path), b"[[0 1 2]\n [3 4 5]]\n")
            self.assertEqual(self.succeed("show", path, "[1,:2]"), b"[3 4]\n")
        for path in map(self.path, ("m", "w.zt")):
            for word in ("config.json", "config.json[0]", "config.json[0][1]"):
                self.fail_with(USAGE, "show", path, word,
                               says="'config.json' is a file of the model; ztstream extract FILE NAME -o OUT writes it")

    def test_a_tensor_of_several_arrays(self):
        rng = random.Random(3)
        made = random_inputs.scipy_file(rng, self.folder, "s")
        name = next(iter(made.tensors))
        self.fail_with(UNSUPPORTED, "show", made.path, name, says=f"{name}/values")

    def test_large_lists_come_in_parts(self):
        shape = [3, 1100, 1000]
        array = numpy.arange(math.prod(shape), dtype="<i4").reshape(shape)
        path = self.safetensors("a.safetensors", {"w": ("I32", shape, array.tobytes())})
        for text in ("", "::-1", "1", ":,:,::-1", "0,::-1"):
            found = json.loads(self.succeed("show", "--json", path, f"w[{text}]"))
            self.assertEqual(found["values"], sliced(array, text).tolist(), text)
        flat = self.safetensors("b.safetensors", {"w": ("I32", [array.size], array.tobytes())})
        self.assertEqual(self.json("show", "--json", flat, "w[::-1]")["values"], array.ravel()[::-1].tolist())


class Cost(support.EndToEnd):

    def read_by(self, *words):
        """Bytes that the program read from files."""
        with subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL) as process:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            fields = dict(line.split(": ") for line in pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines())
        self.assertEqual(process.returncode, DONE, words)
        return int(fields["rchar"])

    def test_only_what_is_printed_is_read(self):
        """A file of 4 GiB, most of it a hole: rows, columns and corners, and what opening alone reads."""
        rows, columns = 1 << 19, 4096
        header = make_safetensors.raw({"w": {"dtype": "BF16", "shape": [rows, columns],
                                             "data_offsets": [0, 2 * rows * columns]}})
        path = self.put("a.safetensors", header)
        with open(path, "r+b") as file:
            file.truncate(len(header) + 2 * rows * columns)
        opening = self.read_by("inspect", path)
        for word, most in (("w[123456]", 2 * columns), ("w[7,9]", 2), ("w[:4,:8]", 4 * 16), ("w", 6 * 2 * columns),
                           ("w[::100000,5]", 6 * 2), ("w[-1,::1000]", 2 * columns)):
            self.assertLessEqual(self.read_by("show", path, word) - opening, most + 4096, word)

    def test_a_part_of_what_has_a_checksum(self):
        """The rest of an entry is read for its CRC where it is small; a warning says where it is not."""
        values = numpy.arange(1 << 23, dtype="f4")
        for count, damaged, status in ((4, True, INVALID), (4, False, DONE), (len(values), True, DONE)):
            path = self.path("a.npz")
            numpy.savez(path, x=values[:count])
            data = bytearray(path.read_bytes())
            data[data.index(values[:4].tobytes()) + 4] ^= 0x40 * damaged
            path.write_bytes(data)
            for words in (("x[0:2]",), ("x[0:2]", "--json")):
                said = self.expect(status, "show", path, *words).stderr.decode()
                self.assertEqual("CRC-32 does not match" in said, status == INVALID, said)
                self.assertEqual("only a part was read, and the checksum was not compared" in said, count > 4, said)

    def test_of_what_is_compressed_the_frames_that_are_needed_are_read(self):
        rng = numpy.random.default_rng(1)
        data = rng.integers(0, 4, 1 << 24, "u1").tobytes()
        source = self.safetensors("a.safetensors", {"w": ("U8", [4096, 4096], data)})
        zt = self.path("a.zt")
        self.succeed("convert", source, "-o", zt, "--zstd", "--chunk", "64KiB")
        opening = self.read_by("inspect", zt)
        length = self.json("inspect", "--json", zt)["objects"][0]["components"][0]["length"]
        frame = length / 256
        for word, frames in (("w[5]", 1), ("w[4095,7]", 1), ("w[:16]", 1), ("w[16:48]", 2)):
            table = 256 * 16 + 8192
            self.assertLess(self.read_by("show", zt, word) - opening, 1.3 * frames * frame + table, word)
