"""combinations.py: random sets of inputs and random options of every command, each value compared with an independent computation.

  scripts/combinations.sh N [SEED]     or: combinations.py N [SEED] [--keep FOLDER] [--program PROGRAM]

A trial makes one to three files or folders of any format (random_inputs.py), converts them in one call with random options,
and computes with numpy (number_formats.py) what the output must hold. The output is read by ztread.py, verified, compared with
its inputs, written again with other threads, diffed with a file written by hand, extracted and converted back. The same inputs
are converted to 2.0, canonical too, which zt2read.py reads, and to shards, all at once and one at a time.
A seed names a trial for good; a failing one prints its commands, and --keep leaves its files.
"""
import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

import numpy

import make_safetensors
import number_formats
import random_inputs
import zt2read
from support import DIFFERS, DONE, NUMERIC, PROGRAM, UNSUPPORTED, USAGE, read_zt
from random_inputs import Tensor

PATIENCE = 120
REFUSED = (USAGE, 4, UNSUPPORTED)
ST_OF = {(dtype, kind): name for name, (dtype, kind) in make_safetensors.ZTENSOR.items()}


class Fault(Exception):
    """What the program did differs from what it must do."""


def check(kept, *what):
    if not kept:
        raise Fault(" ".join(str(part) for part in what))


# ---- what the options make of the inputs' tensors ------------------------------------------------------------

MODULE = r"(.*layers\.\d+)(\.(?:qweight|qzeros|scales|g_idx))"  # of random_inputs.gptq_folder


def convertible(source, target):
    if source == target:
        return True
    if source in number_formats.COMPLEX or target in number_formats.COMPLEX:
        return source in number_formats.COMPLEX and target in number_formats.COMPLEX
    numbers = {*number_formats.FLOATS, *number_formats.INTEGERS}
    return source in numbers | {"bool"} and target in numbers


def element_role(tensor):
    if tensor.format == "dense":
        return "data"
    return "values" if tensor.format.startswith("sparse_") else None


def is_plain_float(tensor):
    role = element_role(tensor)
    return role is not None and tensor.element(role) in number_formats.FLOATS


class Options:
    """Random options of convert, and what they do to a tensor."""

    def __init__(self, rng, tensors, quant):
        self.words, self.rules, self.dequantize, self.planes = [], [], None, False
        self.spec, self.include, self.exclude, self.renames = "1.2", None, None, []
        self.policy, self.group, self.no_metadata = "error", quant and rng.random() < 0.7, rng.random() < 0.1
        self.choose_storage(rng)
        self.choose_values(rng, tensors)
        if rng.random() < 0.2:
            self.include = rng.choice(["[0-4]", "weight|b", "^t0", "."])
            self.words += ["--include", self.include]
        if rng.random() < 0.15:
            self.exclude = rng.choice(["7", "bias$", "t1_.*3"])
            self.words += ["--exclude", self.exclude]
        if self.group:
            self.words += ["--quant", "group"]
        if self.no_metadata:
            self.words += ["--no-metadata"]
        if rng.random() < 0.2:
            self.renames.append(rng.choice([("^", "model."), (r"layers[.](\d+)", r"h.\1"), ("weight$", "w")]))
            self.words += ["--rename", f"s/{self.renames[0][0]}/{self.renames[0][1]}/"]

    def choose_storage(self, rng):
        if rng.random() < 0.6:
            how = rng.choice(["--zstd", "--zstd", "--zstd=3", "--zstd=-5", "--zstd=huffman", "--zstd=19", "--zstd=planes"])
            self.planes = how == "--zstd=planes"
            self.words += [how]
            if rng.random() < 0.5:
                self.words += ["--min-gain", rng.choice(["0", "50"])]
            if rng.random() < 0.5:
                self.words += ["--chunk", rng.choice(["4KiB", "64KiB", "1MiB"])]
        if rng.random() < 0.6:
            self.words += ["--digest", rng.choice(["none", "crc32c", "sha256", "xxh3"])]
        if rng.random() < 0.2:
            self.spec = rng.choice(["1.1", "1.1", "0.1"])
            self.words += ["--spec", self.spec]
        self.words += rng.choice([[], [], ["-q"], ["-v"]])

    def choose_values(self, rng, tensors):
        if rng.random() < 0.5:
            for _ in range(rng.choice([0, 0, 1])):
                to = rng.choice(["keep", "f32", "i32", "f16", "u8", "f64", "complex128"])
                able = [name for name, tensor in tensors.items() if element_role(tensor) and
                        (to == "keep" or convertible(tensor.element(element_role(tensor)), to))]
                chosen = rng.sample(able, min(len(able), rng.randint(1, 4)))
                if chosen:
                    self.rules.append(("^(" + "|".join(re.escape(name) for name in chosen) + ")$", to))
            if not self.rules or rng.random() < 0.7:
                self.rules.append((None, rng.choice(["bf16", "bf16", "f16", "f32", "f32", "f64", "i32", "f8_e4m3fn", "f8_e5m2",
                                                     "f8_e4m3fnuz", "u8", "i64"])))
            for pattern, to in self.rules:
                self.words += ["--dtype", to if pattern is None else f"{pattern}={to}"]
        if rng.random() < 0.4:
            self.dequantize = rng.choice(["f32", "f16", "bf16"])
            self.words += ["--dequantize", self.dequantize]
        if self.rules and rng.random() < 0.8:
            self.policy = rng.choice(["inf", "saturate"])
            self.words += ["--on-overflow", self.policy]

    def unit(self, name):
        """(name of the object that holds the tensor, what its own name adds): a module that is put together is one."""
        module = re.fullmatch(MODULE, name) if self.group else None
        return (module[1], module[2]) if module else (name, "")

    def keeps(self, name):
        name = self.unit(name)[0]
        return ((self.include is None or re.search(self.include, name)) and
                not (self.exclude and re.search(self.exclude, name)))

    def rename(self, name):
        name, rest = self.unit(name)
        for pattern, text in self.renames:
            name = re.sub(pattern, text, name, count=1)
        return name + rest

    def target(self, name, tensor):
        if self.unit(name)[1]:
            return None  # a part of a module is no tensor of its own
        for pattern, to in self.rules:
            if is_plain_float(tensor) if pattern is None else re.search(pattern, name):
                return None if to == "keep" else to
        return self.dequantize if tensor.format.startswith("gguf.") else None

    def apply(self, name, tensor):
        """(tensor, values lost)."""
        to = self.target(name, tensor)
        if to is None:
            return tensor, 0
        saturate = self.policy == "saturate"
        if tensor.format.startswith("gguf."):
            values = random_inputs.dequantized(tensor.format[5:9], tensor.parts["data"][2])
            data, lost = number_formats.convert("f32", to, values.tobytes(), saturate)
            return random_inputs.dense(tensor.shape, to, data), lost
        role = element_role(tensor)
        data, lost = number_formats.convert(tensor.element(role), to, tensor.parts[role][2], saturate)
        storage = ("f32", to) if to == "complex64" else ("f64", to) if to == "complex128" else ("u8", to) if to[:2] == "f8" else (to, None)
        return Tensor(tensor.shape, tensor.parts | {role: (*storage, data)}, tensor.format, tensor.attributes), lost

    def can_say(self, tensors, attributes):
        if self.spec == "1.2" or self.planes:
            return self.spec == "1.2"
        for tensor in tensors.values():
            for dtype, kind, _ in tensor.parts.values():
                if kind and (self.spec == "0.1" or kind not in ("f8_e4m3fn", "f8_e5m2", "complex64", "complex128")):
                    return False
            if self.spec == "0.1" and (tensor.format != "dense" or tensor.attributes):
                return False
        return self.spec == "1.1" or (not attributes or self.no_metadata) and not self.group


# ---- a trial -------------------------------------------------------------------------------------------------

class Trial:
    def __init__(self, program, seed, folder):
        self.program, self.rng, self.folder = program, random.Random(seed), folder
        self.log = []

    def run(self, *words, status=DONE, stdin=None):
        words = [str(word) for word in words]
        self.log.append(" ".join(f"'{word}'" if re.search(r"[^\w./=-]", word) else word for word in words) +
                        (f" < {stdin}" if stdin else ""))
        source = open(self.folder / stdin, "rb") if stdin else subprocess.DEVNULL
        try:
            done = subprocess.run([self.program, *words], cwd=self.folder, stdin=source, capture_output=True,
                                  timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise Fault(f"hangs for {PATIENCE} s") from None
        finally:
            if stdin:
                source.close()
        errors = done.stderr.decode(errors="replace").strip()
        allowed = status if isinstance(status, tuple) else (status,)
        check(done.returncode in allowed, f"exit status {done.returncode}, not {status}: {errors or done.stdout[-500:]}")
        if "--json" in words and done.returncode in (DONE, DIFFERS):
            json.loads(done.stdout)
        self.last = done
        return done.returncode

    def threads(self):
        return ["-T", self.rng.choice("1123"), *self.rng.choice([[], [], ["--memory", "1MiB"]])]

    def go(self):
        rng = self.rng
        makers = [rng.choice(random_inputs.MAKERS) for _ in range(rng.choice([1, 1, 2, 3]))]
        self.inputs = [make(rng, self.folder, f"t{at}_") for at, make in enumerate(makers)]
        names = [item.path.name for item in self.inputs]
        self.keep_sparse = keep_sparse = sum(item.kept is not None for item in self.inputs) == 1 and rng.random() < 0.2
        tensors, attributes = {}, {}
        for item in self.inputs:
            tensors |= item.kept if keep_sparse and item.kept is not None else item.tensors
            for key, value in item.attributes.items():
                attributes.setdefault(key, value)
        options = Options(rng, tensors, quant=any(item.quant for item in self.inputs))
        if keep_sparse:
            options.words += ["--sparse", "keep"]
        words, stdin = list(names), None
        piped = [at for at, item in enumerate(self.inputs) if item.pipe and item.kind != "npy"]
        if piped and rng.random() < 0.25:
            at = rng.choice(piped)
            words[at], stdin = "-", names[at]
        self.convert(options, tensors, attributes, words, stdin, keep_sparse)

    def convert(self, options, tensors, attributes, words, stdin, keep_sparse):
        rng = self.rng
        kept = {name: tensor for name, tensor in tensors.items() if options.keeps(name)}
        model, lost = {}, 0
        for name, tensor in kept.items():
            changed, count = options.apply(name, tensor)
            model[options.rename(name)] = changed
            lost += count
        command = ["convert", *words, "-o", "out.zt", *options.words, "--no-sync"]
        self.words = command
        clash = len(model) != len(kept)
        if tensors and not kept:  # the program may say that nothing is left
            if self.run(*command, *self.threads(), status=(DONE, USAGE), stdin=stdin) != DONE:
                return
        elif clash or not options.can_say(model, attributes):
            status = self.run(*command, *self.threads(), status=(*REFUSED, NUMERIC, DONE), stdin=stdin)
            check(status == DONE or not (self.folder / "out.zt").exists(), "an output after a failure")
            check(not clash or status != DONE, "two tensors have one name")
            if status != DONE:
                return
        elif lost and options.policy == "error":
            self.run(*command, *self.threads(), status=NUMERIC, stdin=stdin)
            check(not (self.folder / "out.zt").exists(), "an output after a failure")
            return
        else:
            self.run(*command, *self.threads(), *rng.choice([[], [], ["--json"]]), stdin=stdin)
        self.check_output(options, model, attributes)
        self.check_commands(options, tensors, model, words, stdin, keep_sparse, kept)

    def check_output(self, options, model, attributes):
        file = read_zt(self.folder / "out.zt")
        if options.spec == "0.1":
            attributes = {}
        if options.no_metadata:
            check(not set(file["attributes"]) - {"quantization_config"}, "root attributes:", file["attributes"])
            attributes = {}
        for key, value in attributes.items():
            check(key in file["attributes"], f"root attribute {key!r} is gone")
            check(value is None or file["attributes"][key] == value, f"root attribute {key!r} changed")
        objects = file["objects"]
        if options.group:
            objects = ungrouped(objects)
        check_tensors(objects, model)

    def check_commands(self, options, tensors, model, words, stdin, keep_sparse, kept):
        rng = self.rng
        names = [item.path.name for item in self.inputs]
        self.run("verify", "out.zt", *self.threads(), *rng.choice([[], ["--json"]]))
        unchanged = not options.rules and not options.renames and not keep_sparse and not (
            options.dequantize and any(tensor.format.startswith("gguf.") for tensor in tensors.values()))
        if unchanged and len(kept) == len(tensors):
            self.run("verify", "out.zt", *self.threads(), "--against", *names)
            if len(names) == 1:
                self.run("diff", "out.zt", names[0], *self.threads())
        if rng.random() < 0.5:
            again = self.words[:self.words.index("-o")] + ["-o", "again.zt"] + self.words[self.words.index("-o") + 2:]
            self.run(*again, *self.threads(), stdin=stdin)
            check((self.folder / "again.zt").read_bytes() == (self.folder / "out.zt").read_bytes(), "another run, other bytes")
        else:
            again = self.words[:self.words.index("-o")] + ["-o", "-"] + self.words[self.words.index("-o") + 2:]
            self.run(*again, *self.threads(), stdin=stdin)
            check(self.last.stdout == (self.folder / "out.zt").read_bytes(), "standard output gets other bytes")
        if rng.random() < 0.4:
            self.check_diff(options, model)
        if rng.random() < 0.8:
            self.check_extract(options, model)
        if rng.random() < 0.4:
            second = Options(rng, {}, quant=False)
            second.rules, second.words = [], []
            second.choose_storage(rng)
            second.include, second.exclude, second.no_metadata = None, None, False
            if second.can_say(model, {"": 0}) and not options.group:
                self.run("convert", "out.zt", "-o", "second.zt", "--no-sync", *second.words, *self.threads())
                check_tensors(read_zt(self.folder / "second.zt")["objects"], model)
                self.run("verify", "second.zt", "--against", "out.zt")
        if rng.random() < 0.3:
            self.run("inspect", "--json", "out.zt")
            listed = json.loads(self.last.stdout)["objects"]
            check(options.group or sorted(entry["name"] for entry in listed) == sorted(model), "inspect lists other names")
        if rng.random() < 0.4:
            self.check_zt2(options, model, names)
        if rng.random() < 0.3:
            self.check_shards(options, model, names)

    def changed(self, *changes):
        """The options of the conversion with other ones: (option, how many words it has, the words instead)."""
        words = self.words[self.words.index("-o") + 2:]
        for option, count, instead in changes:
            while option in words:
                at = words.index(option)
                words[at:at + count] = []
            words += instead
        return words

    def check_zt2(self, options, model, names):
        """The same inputs as a 2.0 file: read by zt2read.py, compared with the output, converted back."""
        rng = self.rng
        if self.keep_sparse or not all(zt2_says(*item) for item in model.items()):
            return
        canonical = rng.random() < 0.4
        words = self.changed(("--spec", 2, ["--spec", "2.0"]),
                             ("--digest", 2, [] if canonical else rng.choice([[], [], ["--digest", "sha256"], ["--digest", "none"]])))
        if canonical:
            words = [word for word in words if not word.startswith("--zstd")] + ["--canonical"]
            for option in ("--min-gain", "--chunk"):
                if option in words:
                    words[words.index(option):words.index(option) + 2] = []
        self.run("convert", *names, "-o", "two.zt", *words, *self.threads())
        file = zt2read.open_file(self.folder / "two.zt")
        file.verify()
        if not options.group:
            check(sorted(file.objects) == sorted(model), "2.0: other names")
            for name, tensor in model.items():
                check_zt2_object(file, name, tensor)
        if canonical:
            file.check_canonical()
            self.run("convert", *names, "-o", "-", *words, *self.threads())
            check(self.last.stdout == (self.folder / "two.zt").read_bytes(), "another canonical run, other bytes")
            if options.spec == "1.2":
                self.run("convert", "out.zt", "-o", "canon.zt", "--canonical", "--no-sync", *self.threads())
                check((self.folder / "canon.zt").read_bytes() == (self.folder / "two.zt").read_bytes(),
                      "the output's canonical form has other bytes")
        self.run("verify", "two.zt", *self.threads())
        self.run("diff", "out.zt", "two.zt", *self.threads())
        self.run("convert", "two.zt", "-o", "from2.zt", "--no-sync", *rng.choice([[], ["--zstd"], ["--zstd=planes"]]), *self.threads())
        objects = read_zt(self.folder / "from2.zt")["objects"]
        check_tensors(ungrouped(objects) if options.group else objects, model)

    def check_shards(self, options, model, names):
        """The same inputs cut into shards, at once and one at a time; each is read, and together they are the output."""
        rng = self.rng
        two = (options.spec == "1.2" and rng.random() < 0.4 and not self.keep_sparse and
               all(zt2_says(*item) for item in model.items()))
        words = self.changed(*([("--spec", 2, ["--spec", "2.0"]), ("--digest", 2, [])] if two else []))
        (self.folder / "cut").mkdir()
        count = rng.randint(1, 5)
        how = ["--shards", count] if rng.random() < 0.7 else ["--shard-size", rng.choice(["4KiB", "64KiB", "1MiB"])]
        status = self.run("convert", *names, "-o", "cut/model.zt", *words, *how, *self.threads(), status=(DONE, USAGE))
        if status != DONE:
            check(options.spec == "0.1" or how[0] == "--shards", "refused:", self.last.stderr)
            check(not any((self.folder / "cut").iterdir()), "files after a refusal")
            return
        made = {path.name: path.read_bytes() for path in (self.folder / "cut").iterdir()}
        self.run("verify", "cut", *self.threads())
        self.run("diff", "out.zt", "cut", *self.threads())
        if not two:
            held, whole = {}, read_zt(self.folder / "out.zt")["objects"]
            for path in sorted((self.folder / "cut").glob("*.zt")):
                part = read_zt(path)["objects"]
                check(not set(part) & set(held), "a tensor in two shards")
                held |= part
            check(sorted(held) == sorted(whole), "the shards hold other names")
            for name, entry in whole.items():
                for role, component in entry["components"].items():
                    check(held[name]["components"][role]["bytes"] == component["bytes"], f"{name}/{role}: other bytes in a shard")
        else:
            root = zt2read.open_file(self.folder / "cut" / "model.zt")
            root.verify()
        if how[0] == "--shards":
            (self.folder / "each").mkdir()
            numbers = list(range(1, count + 1))
            rng.shuffle(numbers)
            for number in numbers:
                self.run("convert", *names, "-o", "each/model.zt", *words, "--shard", f"{number}/{count}", *self.threads())
            parts = [f"each/model-{number:05}-of-{count:05}.zt" for number in numbers]
            self.run("join", *parts, "-o", "each/model.zt")
            alone = {path.name: path.read_bytes() for path in (self.folder / "each").iterdir()}
            check(alone == made, "shards made one at a time are others:", sorted(alone), sorted(made))

    def check_diff(self, options, model):
        """With a file written by hand of what the output must hold, and with one that differs in an element."""
        held = read_zt(self.folder / "out.zt")["objects"]  # for the bits of NaN, which the model leaves open
        if options.group:
            held = ungrouped(held)
        model = {name: Tensor(tensor.shape, {role: (*part[:2], held[name]["components"][role]["bytes"])
                                             for role, part in tensor.parts.items()}, tensor.format, tensor.attributes)
                 for name, tensor in model.items()}
        plain = {name: random_inputs.entry_1(self.rng, "1.2", tensor, [None, "crc32c", "sha256"]) for name, tensor in model.items()}
        (self.folder / "hand.zt").write_bytes(random_inputs.encode_1(plain, "1.2", {}, {}))
        self.run("diff", "out.zt", "hand.zt", *self.threads())
        self.run("diff", "--json", "hand.zt", "out.zt", *self.threads())
        able = [name for name, tensor in model.items()
                if tensor.format == "dense" and tensor.element() in number_formats.INTEGERS and tensor.parts["data"][2]]
        if not able:
            return
        name = self.rng.choice(able)
        dtype, kind, data = model[name].parts["data"]
        at = self.rng.randrange(len(data))
        data = data[:at] + bytes([data[at] ^ 1 << self.rng.randrange(8)]) + data[at + 1:]
        other = Tensor(model[name].shape, {"data": (dtype, kind, data)}, attributes=model[name].attributes)
        plain[name] = random_inputs.entry_1(self.rng, "1.2", other, [None, "sha256"])
        (self.folder / "other.zt").write_bytes(random_inputs.encode_1(plain, "1.2", {}, {}))
        self.run("diff", "out.zt", "other.zt", *self.threads(), status=DIFFERS)
        self.run("verify", "out.zt", "--against", "other.zt", *self.threads(), status=DIFFERS)
        said = self.last.stderr.decode(errors="replace")
        check("1 of " in said or "1 element" in said, "not one element differs:", said)

    def check_extract(self, options, model):
        rng = self.rng
        dense = all(tensor.format == "dense" for tensor in model.values())
        known = dense and all((dtype, kind) in ST_OF for tensor in model.values() for dtype, kind, _ in tensor.parts.values())
        ways = (["safetensors"] if known else []) + (["npz"] if dense else []) + (["folder"] if dense else []) + ["gguf"]
        way = rng.choice(ways)
        if way == "gguf":
            self.extract_gguf(options)
        elif way == "safetensors":
            self.extract_safetensors(model)
        elif way == "npz" and model:
            self.run("extract", "out.zt", "-o", "back.npz", "--no-sync", *self.threads())
            with numpy.load(self.folder / "back.npz") as got:
                added = {"format"} if self.keep_sparse else set()  # makes scipy take the arrays for its matrix again
                check(sorted(set(got.files) - added) == sorted(model), "other names:", got.files)
                for name, tensor in model.items():
                    check_array(name, got[name], tensor)
            if not self.keep_sparse and not any(array_is_void(tensor) for tensor in model.values()):
                self.run("diff", "out.zt", "back.npz", *self.threads())
                self.back("back.npz", model)
        elif way == "folder" and "" in model:
            self.run("extract", "out.zt", "-o", "back/", *self.threads(), status=UNSUPPORTED)
        elif way == "folder" and model:
            self.run("extract", "--json", "out.zt", "-o", "back/", "--no-sync", *self.threads())
            files = {row["tensor"]: row["file"] for row in json.loads(self.last.stdout)["output"]["files"]}
            check(sorted(files) == sorted(model), "other names:", files)
            for name, tensor in model.items():
                check_array(name, numpy.load(self.folder / "back" / files[name]), tensor)

    def extract_safetensors(self, model):
        if self.rng.random() < 0.5:
            self.run("extract", "out.zt", "-o", "back.safetensors", "--no-sync", *self.threads())
        else:
            self.run("extract", "out.zt", "--to", "safetensors", "-o", "-", *self.threads())
            (self.folder / "back.safetensors").write_bytes(self.last.stdout)
        got, _ = make_safetensors.read(self.folder / "back.safetensors")
        check(sorted(got) == sorted(model), "other names:", sorted(got))
        for name, tensor in model.items():
            dtype, kind, data = tensor.parts["data"]
            check(got[name][:2] == (ST_OF[dtype, kind], list(tensor.shape)), f"{name}: {got[name][:2]}")
            check(number_formats.same(kind or dtype, got[name][2], data), f"{name}: other values extracted")
        self.run("diff", "back.safetensors", "out.zt", *self.threads())
        self.back("back.safetensors", model)

    def extract_gguf(self, options):
        only = self.inputs[0]
        whole = len(self.inputs) == 1 and only.kind.startswith("gguf") and not (options.no_metadata or
            options.rules or options.renames or options.dequantize or options.include or options.exclude)
        status = self.run("extract", "out.zt", "-o", "back.gguf", "--no-sync", *self.threads(),
                          status=DONE if whole else (DONE, *REFUSED))
        if whole:
            check((self.folder / "back.gguf").read_bytes() == only.path.read_bytes(), "the GGUF came back with other bytes")
        if status == DONE:
            self.run("diff", "out.zt", "back.gguf", *self.threads())

    def back(self, name, model):
        """What was extracted, converted again, holds the same."""
        self.run("convert", name, "-o", "back.zt", "--no-sync", *self.rng.choice([[], ["--zstd"], ["--digest", "sha256"]]),
                 *self.threads())
        check_tensors(read_zt(self.folder / "back.zt")["objects"], model, attributes=False)
        self.run("verify", "back.zt", "--against", "out.zt")


def zt2_says(name, tensor):
    """Whether 2.0 can: names have 1 to 1,024 bytes, no two elements one cell, and the indices of a row ascend."""
    if not 0 < len(name.encode()) <= zt2read.MAX_NAME:
        return False
    if tensor.format == "sparse_coo":
        cells = numpy.frombuffer(tensor.parts["coords"][2], "<u8").reshape(len(tensor.shape), -1)
        return len(set(map(tuple, cells.T.tolist()))) == cells.shape[1]
    if tensor.format == "sparse_csr":
        indptr, indices = (numpy.frombuffer(tensor.parts[role][2], "<u8") for role in ("indptr", "indices"))
        return all((numpy.diff(indices[begin:end].astype("i8")) > 0).all() for begin, end in zip(indptr, indptr[1:]))
    return True


def check_zt2_object(file, name, tensor):
    got = file.objects[name]
    layout = f"zt.{tensor.format}/1" if tensor.format.startswith("sparse_") else tensor.format
    check((got.layout, got.shape) == (layout, list(tensor.shape)), f"2.0: {name}: {got.layout} {got.shape}")
    check(set(got.parts) == set(tensor.parts), f"2.0: {name}: parts {set(got.parts)}")
    for role, (dtype, kind, data) in tensor.parts.items():
        stored, logical = zt2read.TYPES.get(kind or dtype, (dtype,))[0], kind or dtype
        check((got.parts[role].dtype, got.parts[role].type or got.parts[role].dtype) == (stored, logical),
              f"2.0: {name}/{role}: {got.parts[role].dtype} {got.parts[role].type}, not {stored} {logical}")
        check(number_formats.same(logical, file.decode(name, role), data), f"2.0: {name}/{role}: other values")


def array_is_void(tensor):
    dtype, kind, _ = tensor.parts["data"]
    return dtype == "bf16" or kind is not None and kind not in number_formats.COMPLEX


def check_array(name, array, tensor):
    _, _, data = tensor.parts["data"]
    check(list(array.shape) == list(tensor.shape), f"{name}: shape {array.shape}")
    check(array_is_void(tensor) or random_inputs.NPY[array.dtype.str[1:].replace("b1", "?")] == tensor.parts["data"][:2],
          f"{name}: type {array.dtype}")
    check(number_formats.same(tensor.element(), array.tobytes(), data), f"{name}: other values extracted")


def check_tensors(objects, model, attributes=True):
    check(sorted(objects) == sorted(model), "other names:", sorted(set(objects) ^ set(model)))
    for name, tensor in model.items():
        got = objects[name]
        check(got["format"] == tensor.format and list(got["shape"]) == list(tensor.shape),
              f"{name}: {got['format']} {got['shape']}, not {tensor.format} {tensor.shape}")
        check(set(got["components"]) == set(tensor.parts), f"{name}: components {set(got['components'])}")
        for role, (dtype, kind, data) in tensor.parts.items():
            part = got["components"][role]
            check((part["dtype"], part["type"] or part["dtype"]) == (dtype, kind or dtype),
                  f"{name}/{role}: {part['dtype']} {part['type']}, not {dtype} {kind}")
            check(number_formats.same(kind or dtype, part["bytes"], data), f"{name}/{role}: other values")
        if attributes and tensor.attributes:
            check(got["attributes"] == tensor.attributes, f"{name}: attributes {got['attributes']}")


def ungrouped(objects):
    """The tensors that quantized_group objects were made of, as their attributes say."""
    out = {}
    for name, entry in objects.items():
        if entry["format"] != "quantized_group":
            out[name] = entry
            continue
        for role, origin in entry["attributes"]["source_tensors"].items():
            out[name + "." + origin["name"].rpartition(".")[2]] = {"shape": origin["shape"], "format": "dense", "attributes": {},
                                   "components": {"data": entry["components"][role]}}
    return out


def try_seed(program, seed, keep=None):
    """(what is wrong or None, the commands run)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"combination-{seed}-"))
    trial, wrong = Trial(program, seed, folder), None
    try:
        trial.go()
    except Fault as fault:
        wrong = str(fault)
    except Exception:  # the output breaks a rule of its format, or the trial has a fault of its own
        wrong = traceback.format_exc(limit=-3)
    if wrong and keep:
        shutil.copytree(folder, pathlib.Path(keep) / str(seed), dirs_exist_ok=True)
    shutil.rmtree(folder)
    return wrong, trial.log


def run_seeds(program, seeds, keep=None, jobs=None, report=print):
    """Tries every seed; returns those that failed."""
    failed = []
    # Threads wait for the program most of the time, but the reader and numpy hold the interpreter: processes.
    # They are spawned: one that is forked beside the pool's own thread may wait for a lock for ever.
    spawned = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs or len(os.sched_getaffinity(0)), mp_context=spawned) as pool:
        for seed, job in [(seed, pool.submit(try_seed, program, seed, keep)) for seed in seeds]:
            wrong, commands = job.result()
            if wrong:
                failed.append(seed)
                report(f"seed {seed}: {wrong}\n    " + "\n    ".join(commands), flush=True)
    return failed


numpy.seterr(all="ignore")  # overflow and NaN are what is tried


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1, help="the first of them")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--keep", help="a folder for the files of failing seeds")
    options = parser.parse_args()
    failed = run_seeds(str(pathlib.Path(options.program).resolve()), range(options.seed, options.seed + options.runs), options.keep)
    print(f"{options.runs} combinations from seed {options.seed}: {len(failed)} wrong {failed or ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
