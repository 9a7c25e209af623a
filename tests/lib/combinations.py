"""combinations.py: random sets of inputs and random options of every command, each value compared with an independent computation.

  scripts/combinations.sh N [SEED]     or: combinations.py N [SEED] [--keep FOLDER] [--program PROGRAM]

A trial makes one to three files or folders of any format (random_inputs.py), converts them in one call with random options,
and computes with numpy (number_formats.py) what the output must hold. The output is read by ztread.py, verified, compared with
its inputs, written again with other threads, diffed with a file written by hand, extracted and converted back. It is of any
version, canonical, or cut into shards, which are made all at once and one at a time. Some inputs are URLs, some outputs go
into a bucket too (remote_trials.py).
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
import remote_trials
import whole_models
import zt2read
import ztread
from support import DIFFERS, DONE, INVALID, NUMERIC, PROGRAM, UNSUPPORTED, USAGE, read_zt
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

    def __init__(self, rng, tensors, quant, codes=False, numbers=()):
        self.words, self.rules, self.dequantize, self.planes = [], [], None, False
        self.storage, self.cut, self.canonical = [], [], False
        self.spec, self.include, self.exclude, self.renames = "1.2", None, None, []
        self.policy, self.group, self.no_metadata = "error", quant and rng.random() < 0.7, rng.random() < 0.1
        self.choose_storage(rng)
        self.words += rng.choice([[], [], ["-q"], ["-v"]])
        self.numbers = bool(numbers) and not self.group and rng.random() < 0.5  # in place of codes
        if not codes:  # of quantized tensors: --dtype refuses them
            self.choose_values(rng, tensors)
        elif self.numbers:
            self.dequantize, self.policy = rng.choice(["f32", "f16", "bf16"]), "inf"
            self.words += ["--dequantize", self.dequantize, "--on-overflow", "inf"]
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
        self.spec = rng.choice(["1.1", "1.1", "0.1", "2.0", "2.0", "2.0", "2.0"]) if rng.random() < 0.45 else "1.2"
        self.canonical = self.spec == "2.0" and rng.random() < 0.3
        if self.canonical:
            self.storage = ["--canonical", *rng.choice([[], ["--spec", "2.0"]])]
            return
        if rng.random() < 0.6:
            how = rng.choice(["--zstd", "--zstd", "--zstd=3", "--zstd=-5", "--zstd=huffman", "--zstd=19", "--zstd=planes"])
            self.planes = how == "--zstd=planes"
            self.storage += [how]
            if rng.random() < 0.5:
                self.storage += ["--min-gain", rng.choice(["0", "50"])]
            if rng.random() < 0.5:
                self.storage += ["--chunk", rng.choice(["4KiB", "64KiB", "1MiB"])]
        if rng.random() < 0.6:
            self.storage += ["--digest", rng.choice(["none", "sha256", "xxh3", *["crc32c"] * (self.spec != "2.0")])]
        if self.spec != "1.2":
            self.storage += ["--spec", self.spec]
        if rng.random() < 0.2:
            self.cut = rng.choice([["--shards", str(rng.randint(1, 5))]] * 2 + [["--shard-size", rng.choice(["4KiB", "64KiB", "1MiB"])]])

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
            self.words.append("--allow-loss")  # tests/e2e/dtype_test.py tries without
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
        if self.spec == "2.0":
            return all(random_inputs.zt2_says(*each) for each in tensors.items())
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
        self.log, self.out, self.remote = [], None, remote_trials.Remote(seed, folder)

    def run(self, *words, status=DONE, stdin=None):
        words = [str(word) for word in words]
        self.log.append(" ".join(f"'{word}'" if re.search(r"[^\w./=-]", word) else word for word in words) +
                        (f" < {stdin}" if stdin else ""))
        source = open(self.folder / stdin, "rb") if stdin else subprocess.DEVNULL
        try:
            done = subprocess.run([self.program, *words], cwd=self.folder, stdin=source, capture_output=True,
                                  timeout=PATIENCE, check=False, env=self.remote.environment and os.environ | self.remote.environment)
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
        makers = [rng.choice(random_inputs.FOLDERS)] if rng.random() < 0.2 else makers
        self.inputs = [make(rng, self.folder, f"t{at}_") for at, make in enumerate(makers)]
        names = [item.path.name for item in self.inputs]
        tensors, attributes = {}, {}
        for item in self.inputs:
            tensors |= item.tensors
            for key, value in item.attributes.items():
                attributes.setdefault(key, value)
        self.codes = any(item.quant for item in self.inputs)
        numbers = {name: made for item in self.inputs for name, made in item.numbers.items()}
        options = Options(rng, tensors, quant=self.codes, codes=self.codes, numbers=numbers)
        self.files = whole_models.Files(rng, self.inputs, options.spec)
        if options.numbers:
            for name, (values, parts) in numbers.items():
                for part in parts:
                    del tensors[part]
                data, _ = number_formats.convert("f32", options.dequantize, values.tobytes(), False)
                tensors[name] = random_inputs.dense(values.shape, options.dequantize, data)
            self.files.forget_quantization(options.dequantize)
        self.words, self.stdin = list(names), None
        piped = [at for at, item in enumerate(self.inputs) if item.pipe and item.kind != "npy"]
        if piped and not options.cut and rng.random() < 0.25:
            at = rng.choice(piped)
            self.words[at], self.stdin = "-", names[at]
        self.words = self.remote.inputs(self.words)
        self.convert(options, tensors, attributes)

    def command(self, options, folder, storage=None):
        """(a conversion of the inputs, its output): the output is a file, or several in a folder."""
        out = f"{folder}/m.zt" if options.cut and storage is None else f"{folder}.zt"
        if options.cut and storage is None:
            (self.folder / folder).mkdir()
        storage = [*options.storage, *options.cut] if storage is None else storage
        files = self.files.words if self.words != [self.out] else []
        return ["convert", *self.words, "-o", out, *options.words, *files, *storage, "--no-sync"], out.removesuffix("/m.zt")

    def convert(self, options, tensors, attributes):
        kept = {name: tensor for name, tensor in tensors.items() if options.keeps(name)}
        model, lost = {}, 0
        for name, tensor in kept.items():
            changed, count = options.apply(name, tensor)
            model[options.rename(name)] = changed
            lost += count
        command, self.out = self.command(options, "out")
        clash, refused = len(model) != len(kept), (USAGE,) if options.cut else ()  # too few tensors for so many shards
        if tensors and not kept:  # the program may say that nothing is left
            allowed = DONE, USAGE
        elif clash or not options.can_say(model, attributes):
            allowed = (*REFUSED, NUMERIC, DONE)
        elif lost and options.policy == "error":
            allowed = NUMERIC, *refused
        else:
            allowed = DONE, *refused
            command += self.rng.choice([[], [], ["--json"]])
        status = self.run(*command, *self.threads(), status=allowed, stdin=self.stdin)
        check(not clash or status != DONE, "two tensors have one name")
        if status != DONE:
            left = any((self.folder / self.out).iterdir()) if options.cut else (self.folder / self.out).exists()
            check(not left or options.cut and status in (NUMERIC, UNSUPPORTED), "an output after a failure")
            return
        self.check_output(options, model, attributes)
        self.check_commands(options, tensors, model, kept)

    def read(self, name):
        """The attributes and objects of a file of any version, or of shards, as ztread.py has them."""
        path = self.folder / name
        if path.is_dir() and not (path / "m.zt").exists():
            parts = [self.read(shard) for shard in sorted(path.glob("*.zt"))]
            check(sum(len(part["objects"]) for part in parts) == len(set().union(*(part["objects"] for part in parts))),
                  "a tensor in two shards")
            return {"attributes": parts[0]["attributes"], "files": parts[0]["files"],
                    "objects": {name: entry for part in parts for name, entry in part["objects"].items()}}
        path = path / "m.zt" if path.is_dir() else path
        with open(path, "rb") as stream:
            is_2_0 = stream.read(8) == zt2read.MAGIC
        if is_2_0:
            file = zt2read.open_file(path)
            file.verify()
            attributes, objects = file.attributes, {name: zt2_entry(file, name) for name in file.objects}
        else:
            _, attributes, objects = ztread.read_file(str(path))
        attributes = {key: value for key, value in (attributes or {}).items() if key != "ztstream.folder"}
        tensors, files = whole_models.split(objects)
        return {"attributes": attributes, "objects": tensors, "files": files}

    def check_output(self, options, model, attributes):
        file = self.read(self.out)
        if options.canonical:
            zt2read.open_file(self.folder / self.out).check_canonical()
        if options.spec == "0.1":
            attributes = {}
        if options.no_metadata:
            check(not set(file["attributes"]) - {"quantization_config", "ztstream.shard"}, "root attributes:", file["attributes"])
            attributes = {}
        for key, value in attributes.items():
            check(key in file["attributes"], f"root attribute {key!r} is gone")
            check(value is None or file["attributes"][key] == value, f"root attribute {key!r} changed")
        objects = file["objects"]
        if options.group:
            objects = ungrouped(objects)
        check_tensors(objects, model)
        check(file["files"] == self.files.expected, "other files:", sorted(file["files"]))

    def check_commands(self, options, tensors, model, kept):
        rng = self.rng
        names = [item.path.name for item in self.inputs]
        self.run("verify", self.out, *self.threads(), *rng.choice([[], ["--json"]]), *["--canonical"] * options.canonical)
        unchanged = not options.rules and not options.renames and not (
            options.dequantize and (options.numbers or any(tensor.format.startswith("gguf.") for tensor in tensors.values())))
        files = self.files.compared
        rules = [word for word in options.words if word not in ("-q", "-v")]
        self.run("verify", self.out, *self.threads(), *files, *rules, "--against", *names)
        if unchanged and len(kept) == len(tensors) and len(names) == 1:
            self.run("diff", self.out, names[0], *self.threads(), *files)
        self.check_again(options)
        if rng.random() < 0.4:
            self.check_diff(options, model)
        if rng.random() < 0.8:
            self.check_extract(options, model)
        if model and rng.random() < 0.5:
            whole_models.check_extract(self, check, Options(rng, model, quant=False, codes=self.codes), model, ST_OF, self.files.expected)
        if rng.random() < 0.7:
            self.check_second(options, model)
        if rng.random() < 0.4 and not options.cut:
            self.check_delta(all(random_inputs.zt2_says(*each) for each in model.items()))
        if rng.random() < 0.5 and model and not options.group:
            self.check_inspect(model)
        if rng.random() < 0.5 and not options.group:
            self.check_show(model)
        lost = options.spec == "0.1" or options.spec == "1.1" and any(item.path.is_dir() for item in self.inputs)
        if rng.random() < 0.3 and not lost and all(random_inputs.zt2_says(*each) for each in model.items()):
            self.check_canonical(options)

    def check_delta(self, zt2_says):
        """The output as what differs from a copy with other bytes here and there, and back."""
        rng, spec = self.rng, ["--spec", self.rng.choice(["1.2", "2.0"] if zt2_says else ["1.2"])]
        self.run("convert", self.out, "-o", "old.zt", "--raw", "--digest", "none")
        given = (self.folder / "old.zt").read_bytes()
        data = bytearray(given)
        end = len(data) - 16 - int.from_bytes(data[-16:-8], "little")
        for _ in range(rng.choice([0, 1, 20, 500]) if end > 64 else 0):
            data[rng.randrange(64, end)] ^= 1 << rng.randrange(8)
        (self.folder / "old.zt").write_bytes(data)
        # Bools of 2 and indices out of order are no base.
        if self.run("convert", "old.zt", "-o", "copy.zt", "--raw", status=(DONE, INVALID)) != DONE:
            (self.folder / "old.zt").write_bytes(given)
        self.run("convert", self.out, "--base", "old.zt", "-o", "delta.zt", *spec, *self.threads())
        self.run("verify", "delta.zt")
        self.run("convert", "delta.zt", "-o", "made.zt", "--raw", *spec, *self.threads())
        self.run("convert", self.out, "-o", "whole.zt", "--raw", *spec)
        check(self.contents("made.zt") == self.contents("whole.zt"), "a delta and its base make other bytes")
        if self.run("apply", "delta.zt", "old.zt", status=(DONE, UNSUPPORTED)) == DONE:
            self.run("diff", "old.zt", "whole.zt", "--attributes", "all")

    def check_inspect(self, model):
        rng = self.rng
        chosen = rng.choice(["", "0", "weight|b", ".", "[13]", "^none$"]), rng.choice(["", "", "7", "bias$", "2"])
        words = [word for option, pattern in zip(("--include", "--exclude"), chosen) if pattern for word in (option, pattern)]
        wanted = sorted(name for name in model if re.search(chosen[0], name) and not (chosen[1] and re.search(chosen[1], name)))
        status = self.run("inspect", "--json", self.out, *words, *["--stats"] * rng.choice([0, 0, 1]),
                          status=USAGE if words and not wanted else DONE)
        if status == DONE:
            listed = [entry["name"] for entry in json.loads(self.last.stdout)["objects"]]
            check(sorted(listed) == wanted, "inspect lists other names:", listed)

    def check_show(self, model):
        """Without a name it is that of the one tensor."""
        if len(model) != 1:
            self.run("show", self.out, status=USAGE)
            return
        status = self.run("show", "--json", self.out, status=(DONE, UNSUPPORTED))
        shown = self.last.stdout
        self.run("show", "--json", self.out, "--", *model, status=status)
        check(self.last.stdout == shown, "show without the name, other values")

    def check_again(self, options):
        """The same bytes from another run, to another place, with other threads, or a shard at a time."""
        place = None if options.cut else self.remote.bucket()
        if place:
            command, _ = self.command(options, "again")
            command[command.index("-o") + 1] = place[0]
            self.run(*command, *self.threads(), stdin=self.stdin)
            check(place[1]() == (self.folder / self.out).read_bytes(), "a bucket gets other bytes")
        if not options.cut and self.rng.random() < 0.5:
            command, _ = self.command(options, "again")
            command[command.index("-o") + 1] = "-"
            self.run(*command, *self.threads(), stdin=self.stdin)
            check(self.last.stdout == (self.folder / self.out).read_bytes(), "standard output gets other bytes")
            return
        command, again = self.command(options, "again")
        if "--shards" in options.cut and self.rng.random() < 0.7:
            count = int(options.cut[1])
            numbers = self.rng.sample(range(1, count + 1), count)
            at = command.index("--shards")
            for number in numbers:
                self.run(*command[:at], "--shard", f"{number}/{count}", *command[at + 2:], *self.threads())
            self.run("join", *(f"again/m-{number:05}-of-{count:05}.zt" for number in numbers), "-o", "again/m.zt")
        else:
            self.run(*command, *self.threads(), stdin=self.stdin)
        check(self.contents(again) == self.contents(self.out), "another run, other bytes")

    def contents(self, name):
        path = self.folder / name
        return {each.name: each.read_bytes() for each in path.iterdir()} if path.is_dir() else path.read_bytes()

    def check_second(self, options, model):
        """The output, converted again, to another version or other shards."""
        second = Options(self.rng, {}, quant=False)
        second.rules, second.words, second.include, second.exclude, second.no_metadata = [], [], None, None, False
        if not options.canonical and self.rng.random() < 0.4:  # what is compressed stays so, or not
            second.spec, second.canonical, second.planes = options.spec, False, False
            second.storage = ["--spec", second.spec, *self.rng.choice([[], [], ["--raw"]])]
        second.words = ["--no-metadata"] * (second.spec == "0.1")
        if not second.can_say(model, {}) or options.group:
            return
        self.words, words = [self.out], self.words
        command, out = self.command(second, "second")
        self.words = words
        status = self.run(*command, *self.threads(), status=(DONE, USAGE) if second.cut else DONE)
        if status == DONE:
            held, without = self.read(out), second.spec in whole_models.NO_FILES
            check_tensors(held["objects"], model, attributes=second.spec != "0.1")
            check(held["files"] == ({} if without else self.files.expected), "other files:", sorted(held["files"]))
            whole_models.check_kept(self, check, options.spec, second, out)
            files = ["--files", "none"] * without
            self.run("verify", out, *files, "--against", self.out, *["--canonical"] * second.canonical)
            self.run("diff", out, self.out, *files)

    def check_canonical(self, options):
        """The canonical file of the inputs is that of the output."""
        command, made = self.command(options, "one", ["--canonical"])
        self.run(*command, *self.threads(), stdin=self.stdin)
        self.run("convert", self.out, "-o", "two.zt", "--canonical", "--no-sync", *self.threads())
        check(self.contents(made) == self.contents("two.zt"), "the output's canonical form has other bytes")

    def check_diff(self, options, model):
        """With a file written by hand of what the output must hold, and with one that differs in an element."""
        held = self.read(self.out)["objects"]  # for the bits of NaN, which the model leaves open
        if options.group:
            held = ungrouped(held)
        model = {name: Tensor(tensor.shape, {role: (*part[:2], held[name]["components"][role]["bytes"])
                                             for role, part in tensor.parts.items()}, tensor.format, held[name]["attributes"])
                 for name, tensor in model.items()}
        plain = {name: random_inputs.entry_1(self.rng, "1.2", tensor, [None, "crc32c", "sha256"]) for name, tensor in model.items()}
        (self.folder / "hand.zt").write_bytes(random_inputs.encode_1(plain, "1.2", {}, {}))
        self.run("diff", self.out, "hand.zt", "--files", "none", *self.threads())
        self.run("diff", "--json", "hand.zt", self.out, "--files", "none", *self.threads())
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
        self.run("diff", self.out, "other.zt", *self.threads(), status=DIFFERS)
        self.run("verify", self.out, "--against", "other.zt", *self.threads(), status=DIFFERS)
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
            self.run("extract", self.out, "-o", "back.npz", "--no-sync", *self.threads())
            with numpy.load(self.folder / "back.npz") as got:
                check(sorted(got.files) == sorted(model), "other names:", got.files)
                for name, tensor in model.items():
                    check_array(name, got[name], tensor)
            if not any(array_is_void(tensor) for tensor in model.values()):
                self.run("diff", self.out, "back.npz", *self.threads())
                self.back("back.npz", model)
        elif way == "folder" and "" in model:
            self.run("extract", self.out, "-o", "back/", *self.threads(), status=UNSUPPORTED)
        elif way == "folder" and model:
            self.run("extract", "--json", self.out, "-o", "back/", "--no-sync", *self.threads())
            files = {row["tensor"]: row["path"] for row in json.loads(self.last.stdout)["output"]["files"]}
            check(sorted(files) == sorted(model), "other names:", files)
            for name, tensor in model.items():
                check_array(name, numpy.load(self.folder / "back" / files[name]), tensor)

    def extract_safetensors(self, model):
        if self.rng.random() < 0.5:
            self.run("extract", self.out, "-o", "back.safetensors", "--no-sync", *self.threads())
        else:
            self.run("extract", self.out, "--to", "safetensors", "-o", "-", *self.threads())
            (self.folder / "back.safetensors").write_bytes(self.last.stdout)
        got, _ = make_safetensors.read(self.folder / "back.safetensors")
        check(sorted(got) == sorted(model), "other names:", sorted(got))
        for name, tensor in model.items():
            dtype, kind, data = tensor.parts["data"]
            check(got[name][:2] == (ST_OF[dtype, kind], list(tensor.shape)), f"{name}: {got[name][:2]}")
            check(number_formats.same(kind or dtype, got[name][2], data), f"{name}: other values extracted")
        self.run("diff", "back.safetensors", self.out, *self.threads())
        self.back("back.safetensors", model)

    def extract_gguf(self, options):
        only = self.inputs[0]
        whole = len(self.inputs) == 1 and only.kind.startswith("gguf") and not (options.no_metadata or
            options.rules or options.renames or options.dequantize or options.include or options.exclude)
        status = self.run("extract", self.out, "-o", "back.gguf", "--no-sync", *self.threads(),
                          status=DONE if whole else (DONE, *REFUSED))
        if whole:
            check((self.folder / "back.gguf").read_bytes() == only.path.read_bytes(), "the GGUF came back with other bytes")
        if status == DONE:
            self.run("diff", self.out, "back.gguf", *self.threads())

    def back(self, name, model):
        """What was extracted, converted again, holds the same."""
        self.run("convert", name, "-o", "back.zt", "--no-sync", *self.rng.choice([[], ["--zstd"], ["--digest", "sha256"]]),
                 *self.threads())
        check_tensors(read_zt(self.folder / "back.zt")["objects"], model, attributes=False)
        held = any(entry["attributes"] for entry in self.read(self.out)["objects"].values())
        self.run("verify", "back.zt", "--json", "--files", "none", "--against", self.out, status=(DONE, DIFFERS))
        wrong = [each for each in json.loads(self.last.stdout)["differences"] if each["kind"] not in ["file_attribute"] + ["attribute"] * held]
        check(not wrong, "more than attributes went astray:", wrong)


def zt2_entry(file, name):
    """An object of 2.0 with the names that 1.2 has for its layout and its types."""
    got = file.objects[name]
    ours = got.layout.startswith("ztstream.") and got.layout != whole_models.PROFILE
    layout = got.layout.removeprefix("ztstream.").removesuffix("/1") if ours else got.layout
    layout = {"zt.sparse_coo/1": "sparse_coo", "zt.sparse_csr/1": "sparse_csr"}.get(layout, layout)
    components = {role: {"dtype": "bool" if part.type == "bool" else part.dtype,
                         "type": None if part.type == "bool" else part.type, "bytes": file.bytes_of(part, file.stored(name, role), got)} for role, part in got.parts.items()}
    return {"shape": got.shape, "format": layout, "attributes": got.attributes or {}, "components": components}


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
