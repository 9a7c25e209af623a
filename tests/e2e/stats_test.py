"""inspect: --stats against numpy, for every type, format and encoding and any number of threads; words that select tensors;
several files."""
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile

import numpy

import figures
import make_safetensors
import number_formats
import random_inputs
import support
from support import DATA, INVALID, IO, USAGE

BLOCKS = " ▁▂▃▄▅▆▇█"


def bits(name, count, seed, special=True):
    """Bytes of elements of any pattern, every seventh a special one."""
    source = numpy.random.default_rng(seed)
    wide = number_formats.width(name)
    if name == "bool":
        return source.integers(0, 2, count, "u1").tobytes()
    data = source.integers(0, 256, (count, wide), "u1")
    part = number_formats.FLOATS.get(name)
    if name == "f64" and count:  # no sum beyond f64
        data = source.normal(0, 3, count).astype("<f8").view("u1").reshape(count, 8).copy()
    if part and special:
        top = ((1 << part[0]) - 1) << part[1]
        sign = 1 << (part[0] + part[1])
        for at in range(0, count, 7):
            value = (0, sign, top, top | 1, sign | top, 1)[at // 7 % 6]
            data[at] = numpy.frombuffer(value.to_bytes(8, "little")[:wide], "u1")
    return data.tobytes()


class Stats(support.EndToEnd):

    def stats(self, *words):
        """{tensor: stats} of inspect --stats."""
        return {entry["name"]: entry["stats"] for entry in self.json("inspect", "--stats", "--json", *words)["objects"]}

    def check(self, found, wanted, what):
        self.assertEqual(found.keys(), wanted.keys(), what)
        for name, array in wanted.items():
            right = figures.figures(array)
            self.assertEqual(figures.differs(found[name], right), [], f"{what}: {name}: {found[name]} is not {right}")

    def every_type(self):
        tensors, wanted = {}, {}
        for dtype, (storage, kind) in make_safetensors.ZTENSOR.items():
            if dtype[:3] in ("F6_", "C64"):
                continue
            name = kind or storage
            for count in (0, 1, 17, 5000, 40000):
                elements = 2 * count if dtype == "F4" else count
                data = bits(name, count, count)
                tensors[f"{name}.{count}"] = (dtype, [elements], data)
                wanted[f"{name}.{count}"] = figures.numbers(name, data)
        return tensors, wanted

    def test_every_type_and_encoding_and_any_number_of_threads(self):
        tensors, wanted = self.every_type()
        source = self.safetensors("a.safetensors", tensors)
        self.check(self.stats(source), wanted, "safetensors")
        for at, options in enumerate((["--raw"], ["--zstd", "--chunk", "64KiB", "--min-gain", "0"], ["--zstd=planes"],
                                      ["--spec", "2.0", "--zstd"], ["--digest", "sha256"])):
            zt = self.path(f"{at}.zt")
            self.succeed("convert", source, "-o", zt, *options)
            texts = {self.succeed("inspect", "--stats", "--json", "-T", threads, zt) for threads in (1, 2, 3, 8)}
            self.assertEqual(len(texts), 1, options)
            self.check(self.stats(zt), wanted, options)

    def test_large_tensors_in_several_ranges(self):
        source = numpy.random.default_rng(5)
        arrays = {"bf16": source.normal(0, 0.02, 3_000_000), "f32": source.normal(1000, 0.02, 1_700_000),
                  "i64": source.integers(-1 << 62, 1 << 62, 700_000)}
        bf16 = (arrays["bf16"].astype("<f4").view("<u4") >> 16).astype("<u2")
        tensors = {"bf16": ("BF16", [3000, 1000], bf16.tobytes()),
                   "f32": ("F32", [1_700_000], arrays["f32"].astype("<f4").tobytes()),
                   "i64": ("I64", [700, 1000], arrays["i64"].astype("<i8").tobytes())}
        wanted = {name: figures.numbers(name, data) for name, (_, _, data) in tensors.items()}
        path = self.safetensors("a.safetensors", tensors)
        texts = {self.succeed("inspect", "--stats", "--json", "-T", threads, path) for threads in (1, 2, 5)}
        self.assertEqual(len(texts), 1)
        self.check(self.stats(path), wanted, "large")
        for name, array in wanted.items():  # numpy's own
            found = self.stats(path)[name]
            self.assertAlmostEqual(found["std"], array.astype("<f8").std(), delta=1e-10 * array.astype("<f8").std())

    def test_random_files_of_every_format(self):
        for seed in range(int(os.environ.get("ZT_COUNT", 40))):
            rng = random.Random(seed)
            with tempfile.TemporaryDirectory() as folder:
                maker = rng.choice(random_inputs.MAKERS)
                made = maker(rng, pathlib.Path(folder), "t")
                words = ["-T", rng.choice((1, 2, 4)), "--files", "none"]
                found = {name: stats for name, stats in self.stats(made.path, *words).items()}
                for name, tensor in made.tensors.items():
                    self.check_tensor(found, name, tensor, f"seed {seed}, {maker.__name__}")

    def check_tensor(self, found, name, tensor, what):
        self.assertIn(name, found, what)
        role = "values" if tensor.format.startswith("sparse") else "data"
        if role not in tensor.parts:
            self.assertIn("skipped", found[name], what)
            return
        kind = tensor.format[5:-2] if tensor.format.startswith("gguf.") else tensor.element(role)
        if kind.startswith("complex") or kind.startswith("f6_"):
            self.assertIn("skipped", found[name], what)
            return
        self.check({name: found[name]}, {name: figures.numbers(kind, tensor.parts[role][2])}, what)

    def test_gguf_blocks_are_dequantized(self):
        for name in ("quants.gguf", "kquants.gguf"):
            self.succeed("convert", "-f", DATA / "gguf" / name, "-o", self.path("f32.zt"), "--dequantize", "f32")
            plain = {name: figures.numbers(entry["components"]["data"]["dtype"], entry["components"]["data"]["bytes"])
                     for name, entry in support.read_zt(self.path("f32.zt"))["objects"].items()}
            self.check(self.stats(DATA / "gguf" / name), plain, name)

    def test_what_has_no_figures_says_why(self):
        path = self.safetensors("a.safetensors", {"c": ("C64", [2], bytes(16)), "f6": ("F6_E2M3", [4], bytes(3))})
        self.assertEqual(self.stats(path), {"c": {"skipped": "complex numbers have no order"},
                                            "f6": {"skipped": "the numbers of f6_e2m3 are not known"}})
        text = self.succeed("inspect", "--stats", path).decode()
        self.assertIn("    no figures: complex numbers have no order\n", text)

    def test_sparse_tensors_are_those_of_stored_values(self):
        rng = random.Random(3)
        while True:
            made = random_inputs.scipy_file(rng, self.folder, f"s{rng.random()}")
            tensor = next(iter(made.tensors.values()))
            if tensor.format == "sparse_csr" and tensor.element("values") == "f32":
                break
        count = len(tensor.parts["values"][2]) // 4
        text = self.succeed("inspect", "--stats", made.path).decode()
        self.assertIn(f"    of the {count} stored value{'s' * (count != 1)} alone\n", text)

    def test_the_table_and_its_histogram(self):
        values = numpy.array([0, 1, 1.5, -2, 3, 3, 3, 0.25, numpy.nan, -numpy.inf], "<f4")
        path = self.safetensors("a.safetensors", {"w": ("F32", [10], values.tobytes())})
        lines = self.succeed("inspect", "--stats", path).decode().splitlines()
        self.assertEqual(lines[1].split(), ["tensor", "type", "shape", "min", "max", "mean", "std", "zeros", "nan", "inf", "exponents"])
        finite = values[:8].astype("<f8")
        self.assertEqual(lines[2].split("  ")[0], "w")
        self.assertEqual([word.strip() for word in lines[2].split("  ") if word][3:],
                         ["-2", "3", "%.6g" % finite.mean(), "%.6g" % finite.std(), "1", "1", "1",
                          # one of 2^-2, none of 2^-1, two of 2^0, four of 2^1
                          f"2^-2 {BLOCKS[2]} {BLOCKS[4]}{BLOCKS[8]} 2^1"])

        for values, ends in (([2.0**-100, 1], ("≤2^-64", "2^0")), ([2.0**-63, 2.0**40], ("2^-63", "≥2^31")), ([2.0**30, 2.0**29], ("2^29", "2^30"))):
            path = self.safetensors("a.safetensors", {"w": ("F32", [2], numpy.array(values, "<f4").tobytes())})
            line = self.succeed("inspect", "--stats", path).decode().splitlines()[2]
            self.assertEqual(tuple(word for word in line.split() if "2^" in word), ends)

    def test_tied_tensors_are_read_once(self):
        data = numpy.arange(1 << 20, dtype="<f4").tobytes()
        names = [f"t{i}" for i in range(50)]
        path = self.safetensors("a.safetensors", {"t0": ("F32", [1 << 20], data)}, ties=dict.fromkeys(names[1:], "t0"))
        found = self.stats(path)
        self.assertEqual(len(found), 50)
        self.assertEqual([*found.values()].count(found["t0"]), 50)
        self.check({"t0": found["t0"]}, {"t0": figures.numbers("f32", data)}, "tied")
        _, seconds, _ = self.costs("inspect", "--stats", path)
        self.assertLess(seconds, 1)

    def test_a_pipe(self):
        tensors, wanted = self.every_type()
        content = self.safetensors("a.safetensors", tensors).read_bytes()
        out = self.run_program("inspect", "--stats", "--json", "-", stdin=content)
        self.assertEqual(out.returncode, 0, out.stderr)
        found = {entry["name"]: entry["stats"] for entry in support.json.loads(out.stdout)["objects"]}
        self.check(found, wanted, "pipe")

    def test_damage_is_an_error(self):
        path = self.path("a.zt")
        self.succeed("convert", self.safetensors("a.safetensors"), "-o", path)
        content = bytearray(path.read_bytes())
        offset = self.json("inspect", "--json", path)["objects"][0]["components"][0]["offset"]
        content[offset] ^= 1
        path.write_bytes(content)
        self.fail_with(INVALID, "inspect", "--stats", path, says="digest")

    def test_stats_and_tree_are_one_or_the_other(self):
        self.fail_with(USAGE, "inspect", "--stats", "--tree", self.safetensors("a.safetensors"), says="--tree folds tensors, as text for people; leave it or --stats out")

    def test_the_tree_is_text(self):
        source = self.safetensors("a.safetensors")
        process = self.run_program("inspect", "--tree", "--json", source)
        self.assertEqual(process.returncode, USAGE)
        self.assertIn(b"leave it or --json out", process.stdout)
        self.fail_with(USAGE, "inspect", "--tree", "--html", self.path("p.html"), source, says="leave it or --html out")


class Selection(support.EndToEnd):

    def setUp(self):
        super().setUp()
        byte = ("U8", [1], b"x")
        self.a = self.safetensors("a.safetensors", {"layers.0.w": byte, "layers.0.b": byte, "layers.1.w": byte, "head": byte})
        self.b = self.safetensors("b.safetensors", {"head": byte, "norm": byte})

    def names(self, listing):
        return [entry["name"] for entry in listing["objects"]]

    def test_words_select_tensors(self):
        for words, wanted in ((["layers.0.*"], ["layers.0.w", "layers.0.b"]), (["head"], ["head"]),
                              (["head", "layers.1.w"], ["layers.1.w", "head"])):
            self.assertEqual(self.names(self.json("inspect", "--json", self.a, *words)), wanted)
        text = self.succeed("inspect", self.a, "head").decode()
        self.assertIn("a.safetensors: safetensors, 1 of 4 tensors, 1 parameter", text)
        self.assertNotIn("layers", text)
        self.assertIn("a.safetensors: safetensors, 0 of 4 tensors, ", self.succeed("inspect", self.a, self.b, "norm").decode())

    def test_words_select_what_is_measured(self):
        path = self.path("a.zt")
        self.succeed("convert", self.safetensors("c.safetensors", {"x": ("U8", [4], b"\1\2\3\4"), "y": ("U8", [1], b"x")}), "-o", path)
        content = bytearray(path.read_bytes())
        listed = {entry["name"]: entry for entry in self.json("inspect", "--json", path)["objects"]}
        content[listed["y"]["components"][0]["offset"]] ^= 1
        path.write_bytes(content)
        self.assertEqual(self.json("inspect", "--stats", "--json", path, "x")["objects"][0]["stats"]["max"], 4)
        self.fail_with(INVALID, "inspect", "--stats", path, "y")

    def test_a_word_that_means_nothing(self):
        self.fail_with(USAGE, "inspect", self.a, "none",
                       says="there is no file 'none', nor a tensor that it matches; ztstream inspect lists them")
        process = self.run_program("inspect", "--json", self.a, "none")
        self.assertEqual(json.loads(process.stdout)["error"]["file"], str(self.a))
        self.fail_with(USAGE, "inspect", self.a, self.b, "none", says="nor a tensor in these files that it matches")
        self.fail_with(USAGE, "inspect", self.a, "layers.0.v", says="that it matches; did you mean 'layers.0.b'?")
        self.fail_with(IO, "inspect", self.path("none.zt"), says="none.zt")

    def test_include_and_exclude(self):
        for options, wanted in ((["--include", "layers"], ["layers.0.w", "layers.0.b", "layers.1.w"]),
                                (["--exclude", "layers", "--quiet"], ["head"]), (["--exclude", "glob:*.b"], ["layers.0.w", "layers.1.w", "head"]),
                                (["--include", "head", "--include", "glob:*.0.*", "--exclude", "w"], ["layers.0.b", "head"]),
                                (["--exclude", "glob:*.1.*", "w"], ["layers.0.w"])):
            self.assertEqual(self.names(self.json("inspect", "--json", self.a, *options)), wanted)
        both = self.json("inspect", "--json", self.a, self.b, "--include", "norm")
        self.assertEqual([self.names(each) for each in both["listings"]], [[], ["norm"]])
        process = self.run_program("inspect", self.a, "--exclude", "norm")
        self.assertEqual((process.returncode, process.stderr),
                         (0, b"ztstream: warning: --exclude 'norm' matches the name of no tensor\n"))
        self.fail_with(USAGE, "inspect", self.a, "-q", "--include", "norm", says=("a.safetensors", "leave no tensor"))
        self.fail_with(USAGE, "inspect", self.a, "--include", "(", says="is not a tensor's name")

    def test_selected_tensors_leave_the_files_of_the_model(self):
        self.put("m/model.safetensors", self.a.read_bytes())
        self.put("m/config.json", b"{}")
        for words, files in ((["--include", "head"], ["config.json"]), (["head"], [])):
            listing = self.json("inspect", "--json", self.path("m"), *words)
            self.assertEqual(self.names(listing), ["head"])
            self.assertEqual([entry["name"].removeprefix("__meta__/files/") for entry in listing.get("files", [])], files)

    def test_many_files_are_not_open_at_once(self):
        for i in range(60):
            numpy.save(self.path(f"{i}.npy"), numpy.arange(i + 1.0))
        files = [self.path(f"{i}.npy") for i in range(60)]
        for words in ([], ["--stats"]):
            done = subprocess.run(["bash", "-c", 'ulimit -n 30; exec "$@"', "bash", support.PROGRAM, "inspect", "--json", *words,
                                   *files], capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            listing = json.loads(done.stdout)
            self.assertEqual([each["objects"][0]["shape"] for each in listing["listings"]], [[i + 1] for i in range(60)])
        self.assertEqual([each["objects"][0]["stats"]["max"] for each in listing["listings"]], list(range(60)))

    def test_several_files(self):
        listing = self.json("inspect", "--json", self.a, self.b)
        self.assertEqual([each["file"] for each in listing["listings"]], [str(self.a), str(self.b)])
        self.assertEqual([self.names(each) for each in listing["listings"]],
                         [["layers.0.w", "layers.0.b", "layers.1.w", "head"], ["head", "norm"]])
        text = self.succeed("inspect", self.a, self.b).decode()
        self.assertEqual(text.count(": safetensors, "), 2)
        self.assertIn("\n\n", text)
        both = self.json("inspect", "--json", self.a, self.b, "norm")
        self.assertEqual([self.names(each) for each in both["listings"]], [[], ["norm"]])
