"""Models as what differs from others (docs/DELTA.md): convert --base both ways, chains, wrong bases, damage."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import sys

import numpy

import make_safetensors
import make_zt
import remote_server
import support
from support import DIFFERS, INVALID, USAGE, read_zt

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import delta as example

COUNT = int(os.environ.get("ZT_COUNT", "150"))
SEED = int(os.environ.get("ZT_SEED", "0"))
TYPES = ("BF16", "BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "U8", "I8", "I16", "U16", "I32", "I64", "U64", "BOOL",
         "C64", "F4")


def values(rng, dtype, count):
    """Random little-endian bytes that look like weights where the type has exponents."""
    size = make_safetensors.byte_count(dtype, [count])
    normal = rng.normal(0, 0.02, count).astype("<f4")
    if dtype == "BOOL":
        return rng.integers(0, 2, size, dtype=numpy.uint8)
    as_type = {"BF16": (normal.view("<u4") >> 16).astype("<u2"), "F16": normal.astype("<f2"), "F32": normal,
               "F64": normal.astype("<f8")}.get(dtype)
    return rng.integers(0, 256, size, dtype=numpy.uint8) if as_type is None else numpy.frombuffer(as_type.tobytes(), "u1").copy()


def updated(rng, dtype, old):
    """The same bytes after an update: none, some elements, one part, all, or numbers of another model."""
    new = old.copy()
    kind = rng.integers(0, 7)
    if kind == 0 or len(old) == 0:
        return new
    if kind == 1:
        return values(rng, dtype, len(old) * 8 // make_safetensors.BITS[dtype])
    if dtype == "BOOL":
        return new ^ (rng.random(len(new)) < 0.1).astype("u1")
    width = max(1, make_safetensors.BITS[dtype] // 8)
    elements = new.view(f"<u{min(width, 8)}")
    share = (0, 0, 0.001, 0.01, 0.1, 0.4, 1)[kind]
    mask = rng.random(len(elements)) < share
    if kind == 4:
        mask[: len(mask) // 2] = False
    step = rng.integers(-2, 3, len(elements)).astype("<i8")
    elements += (step * mask).astype(elements.dtype)
    return new


def tensors(rng, most=12, largest=6000):
    out = {}
    for i in range(rng.integers(1, most)):
        dtype = TYPES[rng.integers(0, len(TYPES))]
        shape = [int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 60, rng.integers(0, 3))]
        if rng.random() < 0.1:
            shape = [int(rng.integers(1, largest))]
        if rng.random() < 0.02:
            shape = [150_000]  # of several groups
        if dtype == "F4":
            shape = [*shape, 2 * int(rng.integers(1, 50))]
        out[f"layer.{i}.w"] = (dtype, shape, values(rng, dtype, make_safetensors.element_count(shape)))
    return out


def next_step(rng, model):
    """A model that follows another: most tensors updated, some gone, new, or of another shape."""
    out = {}
    for name, (dtype, shape, data) in model.items():
        fate = rng.random()
        if fate < 0.05:
            continue
        if fate < 0.1:
            shape = [7, 2]
            data = values(rng, dtype, 14)
        out[name] = (dtype, shape, updated(rng, dtype, data))
    if rng.random() < 0.3 or not out:
        out["fresh"] = ("BF16", [5, 5], values(rng, "BF16", 25))
    return out


def encode(model, ties=None):
    return make_safetensors.encode({name: (dtype, shape, data.tobytes()) for name, (dtype, shape, data) in model.items()}, {"k": "v"},
                                   ties)


class Delta(support.EndToEnd):

    def model(self, name, model, ties=None):
        return self.put(name, encode(model, ties))

    def same(self, first, second):
        """The two files are byte for byte the same."""
        self.assertEqual(first.read_bytes(), second.read_bytes(), f"{first.name} {second.name}")

    def pair(self, seed=1, count=200_000, share=0.02):
        rng = numpy.random.default_rng(seed)
        old = {"w": ("BF16", [count], values(rng, "BF16", count)), "same": ("F32", [4000], values(rng, "F32", 4000)),
               "gone": ("I8", [5], values(rng, "I8", 5)), "shape": ("F32", [4], values(rng, "F32", 4))}
        new = {"w": ("BF16", [count], old["w"][2].copy()), "same": old["same"], "shape": ("F32", [2], values(rng, "F32", 2)),
               "new": ("BF16", [9], values(rng, "BF16", 9))}
        elements = new["w"][2].view("<u2")
        elements += (rng.random(count) < share).astype("<u2")
        return self.model("old.safetensors", old), self.model("new.safetensors", new)

    def test_random_pairs(self):
        """Every byte is that of the conversion of the whole, whatever the types, options and formats."""
        for seed in range(SEED, SEED + COUNT):
            rng = numpy.random.default_rng(seed)
            with self.subTest(seed=seed):
                self.random_pair(rng)

    def random_pair(self, rng):
        chain = [tensors(rng)]
        for _ in range(rng.integers(1, 4) if rng.random() < 0.3 else 1):
            chain.append(next_step(rng, chain[-1]))
        spec = ("--spec", str(rng.choice(["1.2", "2.0"])))
        options = [*spec, "-q", "-T", str(rng.integers(1, 4))]
        if rng.random() < 0.2:
            options += ["--rename", "s/layer/block/"]
        if rng.random() < 0.15:
            options += ["--dtype", "f32"]
        if rng.random() < 0.2:
            options += ["--exclude", "glob:*.1.w"]
        ties = {"tied": next(iter(chain[-1]))} if rng.random() < 0.2 else None
        self.folder.mkdir(exist_ok=True)
        base = self.model("step0.safetensors", chain[0])
        kind = rng.integers(0, 4)
        if kind:  # a base of another format, stored and named otherwise
            self.succeed("convert", base, "-o", self.path("base.zt"), "-fq", "--spec", str(rng.choice(["1.2", "2.0"])),
                         *([], [], ["--zstd=planes"], ["--zstd"])[kind])
            base = self.path("base.zt")
        steps = [base]
        for i, model in enumerate(chain[1:], 1):
            last = i == len(chain) - 1
            source = self.model(f"step{i}.safetensors", model, ties if last else None)
            delta = self.path(f"d{i}.zt")
            run = self.run_program("convert", source, "--base", steps[-1], "-o", delta, "-f", *(options if last else ["-q"]))
            if b"leave no tensor of" in run.stderr:
                return
            self.assertEqual(run.returncode, 0, run.stderr)
            steps.append(delta)
        self.succeed("convert", source, "-o", self.path("whole.zt"), "-f", *options)
        again = ("convert", steps[-1], "-fq", *spec, "-T", str(rng.integers(1, 4)), "-o")
        if rng.random() < 0.2:  # through pipes
            self.path("made.zt").write_bytes(self.succeed(*again, "-"))
            piped = self.succeed("convert", "-", "--base", steps[-2], "-o", "-", *options, stdin=source.read_bytes())
            self.assertEqual(piped, steps[-1].read_bytes())
        else:
            self.succeed(*again, self.path("made.zt"))
        self.same(self.path("made.zt"), self.path("whole.zt"))
        if rng.random() < 0.2:
            self.ranks(source, steps[-2], options, spec, int(rng.integers(1, 4)))
        self.succeed("verify", steps[-1], "-q")
        if spec[1] == "2.0":
            self.assertEqual(self.json("id", "--json", steps[-1])["id"], self.json("id", "--json", self.path("whole.zt"))["id"])

    def ranks(self, source, base, options, spec, count):
        """Tasks that know nothing of each other write a delta's shards, and the tensors are those of the whole."""
        folder = self.path("ranks")
        folder.mkdir()
        for number in range(count, 0, -1):
            run = self.run_program("convert", source, "--base", base, "-o", folder / "m.zt", "--shard", f"{number}/{count}", *options)
            if number == count and b"shards" in run.stderr:  # more than there are tensors
                return shutil.rmtree(folder)
            self.assertEqual(run.returncode, 0, run.stderr)
        self.succeed("join", *sorted(folder.glob("m-*.zt")), "-o", folder / "m.zt", "-q")
        joined = folder / ("m.zt.index.json" if spec[1] == "1.2" else "m.zt")
        self.succeed("diff", joined, self.path("whole.zt"), "--base", base, *[word for step in self.bases(base) for word in ("--base", step)])
        return shutil.rmtree(folder)

    def bases(self, base):
        """On which a base stands that lies beside it."""
        number = int(base.stem[1:]) if base.stem[0] == "d" else 0
        return [self.path(f"d{i}.zt") for i in range(number - 1, 0, -1)] + [path for path in [self.path("base.zt"), self.path(
            "step0.safetensors")] if number and path.exists()][:1]

    def test_what_is_stored_how(self):
        old, new = self.pair()
        self.succeed("convert", new, "--base", old, "-o", self.path("d.zt"), "-q")
        objects = read_zt(self.path("d.zt"))["objects"]
        self.assertEqual({name: o["format"] for name, o in objects.items()},
                         {"w": "ztstream.delta/1", "same": "ztstream.delta/1", "shape": "dense", "new": "dense"})
        self.assertEqual(objects["same"]["components"]["delta.data"]["length"], 0)
        self.assertLess(objects["w"]["components"]["delta.data"]["length"], 400_000 * 0.05)
        attributes = read_zt(self.path("d.zt"))["attributes"]["ztstream.delta"]
        self.assertEqual(attributes["base"]["name"], "old.safetensors")
        self.succeed("convert", old, "-o", self.path("old2.zt"), "-q", "--spec", "2.0")
        self.succeed("convert", new, "-o", self.path("new2.zt"), "-q", "--spec", "2.0")
        self.assertNotIn("id", attributes["base"])  # not all of the base was read
        self.succeed("convert", new, "--base", self.path("old2.zt"), "-o", self.path("e.zt"), "-q")
        stated = read_zt(self.path("e.zt"))["attributes"]["ztstream.delta"]
        self.assertEqual(stated["base"]["id"], self.json("id", "--json", self.path("old2.zt"))["id"])
        self.succeed("convert", old, "--base", old, "-o", self.path("f.zt"), "-q")
        self.assertEqual(read_zt(self.path("f.zt"))["attributes"]["ztstream.delta"]["base"]["id"], stated["base"]["id"])
        self.assertEqual(attributes["id"], self.json("id", "--json", self.path("new2.zt"))["id"])
        plan = self.json("convert", new, "--base", old, "-n", "--json")["base"]
        self.assertEqual(plan, {"path": str(old), "differing": 2, "full": 2, "removed": ["gone"]})
        self.assertIn(f"base {old}: 2 objects as differences, 2 in full, 1 of the base left out: 'gone'",
                      self.succeed("convert", new, "--base", old, "-n").decode())
        shards = ("convert", new, "--base", old, "-n", "--shards", "2", "-o", self.path("s.zt"))
        self.assertEqual(self.json(*shards, "--json")["base"], plan)
        said = self.succeed(*shards).decode()
        self.assertIn(f"base {old}: 2 objects as differences", said)
        self.assertNotIn("estimated", said)

    def test_every_command_reads_it(self):
        old, new = self.pair()
        self.succeed("convert", new, "--base", old, "-o", self.path("d.zt"), "-q")
        self.succeed("diff", self.path("d.zt"), new)
        self.succeed("extract", self.path("d.zt"), "-o", self.path("back.safetensors"), "-q")
        self.succeed("diff", self.path("back.safetensors"), new)
        self.assertEqual(self.succeed("show", self.path("d.zt"), "w[0:5]"), self.succeed("show", new, "w[0:5]"))
        self.assertEqual(self.succeed("show", self.path("d.zt"), "w[-3:]"), self.succeed("show", new, "w[-3:]"))
        listed = {o["name"]: o["format"] for o in self.json("inspect", "--json", self.path("d.zt"))["objects"]}
        self.assertEqual(listed["w"], "ztstream.delta/1")
        listed = {o["name"]: o["format"] for o in self.json("inspect", "--json", self.path("d.zt"), "--base", old)["objects"]}
        self.assertEqual(listed["w"], "dense")
        for folder in "ab":  # a file of the model is none of the tensors
            self.safetensors(f"{folder}/model.safetensors", {"w": ("F32", [2], bytes(8))})
            self.put(f"{folder}/config.json", b"{}")
        self.succeed("convert", self.path("b"), "--base", self.path("a"), "-o", self.path("f.zt"), "-q")
        said = self.succeed("inspect", self.path("f.zt")).decode()
        self.assertRegex(said, r"\A\S+: zTensor 1\.2\.0, 1 tensor, 2 parameters, 0 B, 1 file of ")
        self.assertRegex(said, r"\nfiles:\n  config\.json  ")
        self.assertEqual(self.succeed("inspect", self.path("f.zt"), "--names"), b"w\n")
        for words, checked, says in (([], False, r"; what it makes of its base is checked with --base\n\Z"),
                                     (["--base", old], True, r"; what it makes of its base has its digests\n\Z"),
                                     (["--against", new], True, r" in [\d.]+ s; \d+ tensors equal the source\n\Z")):
            self.assertRegex(self.succeed("verify", self.path("d.zt"), *words).decode(), says)
            self.assertEqual(self.json("verify", "--json", self.path("d.zt"), *words)["model_checked"], checked)
        other = self.safetensors("other.safetensors", {"none": ("F32", [2], bytes(8))})
        differs = json.loads(self.expect(DIFFERS, "verify", "--json", self.path("d.zt"), "--against", other).stdout)
        self.assertFalse(differs["model_checked"])
        self.succeed("convert", new, "-o", self.path("whole.zt"), "-q")
        self.assertNotIn("model_checked", self.json("verify", "--json", self.path("whole.zt")))
        self.expect(USAGE, "verify", self.path("d.zt"), "--base", new, says="it is not the base of any delta here")
        for words in (("diff", new, new), ("convert", new, "--to", "safetensors", "-o", f"{self.path('plain')}/")):
            self.assertIn(b"no input is a delta", self.expect(0, *words, "--base", old).stderr)

    def test_the_example_reads_it(self):
        rng = numpy.random.default_rng(8)
        model = {dtype.lower(): (dtype, [30_000], values(rng, dtype, 30_000)) for dtype in sorted({*TYPES} - {"F4"})}
        paths = [self.model("s0.safetensors", model)]
        self.succeed("convert", paths[0], "-o", self.path("s0.zt"), "-q")
        bases = [self.path("s0.zt")]
        for i in (1, 2):
            model = {name: (dtype, shape, updated(rng, dtype, data)) for name, (dtype, shape, data) in model.items()}
            paths.append(self.model(f"s{i}.safetensors", model, {"tied": "bf16"}))
            self.succeed("convert", paths[-1], "--base", bases[0], "-o", self.path(f"d{i}.zt"), "-q")
            bases.insert(0, self.path(f"d{i}.zt"))
            loaded = example.load(bases[0], bases[1:])
            self.assertEqual({name: content for name, (_, _, content) in loaded.items()},
                             dict({name: data.tobytes() for name, (_, _, data) in model.items()}, tied=model["bf16"][2].tobytes()))

    def test_the_same_bytes_however_it_is_run(self):
        old, new = self.pair(count=5_000_001)
        first = None
        for options in (("-T", "1"), ("-T", "4"), ("-T", "3", "--memory", "1MiB")):
            self.succeed("convert", new, "--base", old, "-o", self.path("d.zt"), "-fq", *options)
            first = first or self.path("d.zt").read_bytes()
            self.assertEqual(self.path("d.zt").read_bytes(), first, options)
            self.succeed("convert", self.path("d.zt"), "-o", self.path("made.zt"), "-fq", *options)
        piped = self.succeed("convert", new, "--base", old, "-o", "-", "-q")
        self.assertEqual(piped, first)
        self.succeed("convert", new, "-o", self.path("whole.zt"), "-q")
        self.same(self.path("made.zt"), self.path("whole.zt"))

    def test_bases(self):
        """A base that is wrong, missing, changed or its own is an error that names both ids, and nothing is written."""
        _, other = self.pair(seed=2)
        self.succeed("convert", other, "-o", self.path("other.zt"), "-q", "--spec", "2.0")
        other_id = self.json("id", "--json", self.path("other.zt"))["id"]
        other = other.rename(self.path("other.safetensors"))
        old, new = self.pair()
        self.succeed("convert", old, "-o", self.path("old.zt"), "-q", "--spec", "2.0")
        old_id, out = self.json("id", "--json", self.path("old.zt"))["id"], self.path("out.zt")
        self.succeed("convert", new, "--base", self.path("old.zt"), "-o", self.path("d.zt"), "-q")
        new_id = read_zt(self.path("d.zt"))["attributes"]["ztstream.delta"]["id"]
        shutil.copy(self.path("d.zt"), self.put("own/old.zt", b""))  # a delta of what has its name
        self.fail_with(USAGE, "convert", self.path("own/old.zt"), "-o", out, says=(
            "in the chain of its own bases", f"'old.zt' ({new_id}), a delta of 'old.zt' ({old_id})"))
        self.fail_with(USAGE, "convert", self.path("d.zt"), "--base", new, "-o", out, says=(
            "it is not the base of any delta here, by its name or its id: that is", str(self.path("old.zt"))))
        os.rename(self.path("old.zt"), self.path("elsewhere.zt"))
        self.fail_with(USAGE, "convert", self.path("d.zt"), "-o", out, says=(
            f"'d.zt' ({new_id}), a delta of 'old.zt' ({old_id})", "was not found", str(self.path("old.zt"))))
        self.fail_with(USAGE, "convert", self.path("d.zt"), "--base", self.path("other.zt"), "-o", out,
                       says=(old_id, other_id, "is another"))
        self.fail_with(USAGE, "convert", self.path("d.zt"), "--base", other, "-o", out, says=(old_id, "is another"))
        self.succeed("convert", self.path("d.zt"), "--base", self.path("elsewhere.zt"), "-o", out, "-q")
        # The base changes after the delta was made: one value, which no id tells.
        data = bytearray(old.read_bytes())
        self.succeed("convert", new, "--base", old, "-o", self.path("e.zt"), "-q")
        data[8 + int.from_bytes(data[:8], "little") + 10] ^= 1
        old.write_bytes(data)
        self.fail_with(USAGE, "convert", self.path("e.zt"), "-o", self.path("bad.zt"),
                       says=("'old.safetensors'", "is another: tensor 'w' has other values there"))
        self.assertFalse(self.path("bad.zt").exists())
        # A plan says so, too.
        for options in ((), ("--shards", "2")):
            plan = self.json("convert", self.path("e.zt"), "-o", self.path("bad.zt"), "-n", "--json", *options)
            self.assertEqual(len(plan["warnings"]), 1)
            self.assertRegex(plan["warnings"][0], "^without --dry-run this fails: .*is another: tensor 'w' has other values there")
        data[8 + int.from_bytes(data[:8], "little") + 10] ^= 1
        old.write_bytes(data)
        self.assertEqual(self.json("convert", self.path("e.zt"), "-o", self.path("bad.zt"), "-n", "--json")["warnings"], [])

    def test_a_base_of_another_name(self):
        """A base that is given comes before one beside the delta that has the name and is no delta."""
        old, new = self.pair()
        for base in (old, self.path("base.zt")):
            with self.subTest(base.name):
                if base != old:
                    self.succeed("convert", old, "-o", base, "-q", "--spec", "2.0")
                self.succeed("convert", new, "--base", base, "-o", self.path("d.zt"), "-fq")
                backup = self.path("backup" + base.suffix)
                shutil.copy(base, backup)
                for changed in (False, True):
                    if changed:
                        shutil.copy(new, self.put(f"in/{base.name}", b""))
                        shutil.copy(self.path("d.zt"), self.path("in/d.zt"))
                    delta = self.path("in/d.zt" if changed else "d.zt")
                    self.succeed("convert", delta, "--base", backup, "-o", self.path("made.safetensors.zt"), "-fq")
                    self.succeed("diff", self.path("made.safetensors.zt"), new, "-q")
                # One that does not fit is none.
                self.fail_with(USAGE, "convert", self.path("d.zt"), "--base", new, "-o", self.path("no.zt"),
                               says="it is not the base of any delta here, by its name or its id")
        # The next delta on it, which has the name of its base.
        third = self.model("third.safetensors", {"w": ("BF16", [200_000], values(numpy.random.default_rng(9), "BF16", 200_000))})
        self.succeed("convert", third, "--base", self.path("d.zt"), "-o", self.path("e.zt"), "-q")
        self.succeed("convert", self.path("e.zt"), "--base", self.path("backup.zt"), "-o", self.path("made.zt"), "-q")
        self.succeed("diff", self.path("made.zt"), third, "-q")

    def test_a_delta_in_the_folder_of_the_new_version(self):
        """Files that are left out decide nothing: --base is that of the conversion."""
        old, new = self.pair()
        folder = self.path("new")
        folder.mkdir()
        shutil.copy(new, folder / "model.safetensors")
        (folder / "config.json").write_text("{}")
        delta = folder / "delta.zt"
        for base in (old, self.path("base")):
            for place in (delta, folder / "sub/delta.zt"):
                place.parent.mkdir(exist_ok=True)
                done = self.json("convert", folder, "--base", base, "-o", place, "-f", "--json")
                self.assertEqual([each for each in done["warnings"] if not each.startswith("sub/delta.zt is left out")], [])
                self.assertEqual((done["base"]["differing"], done["base"]["full"]), (2, 3))
                self.assertIn("ztstream.delta", read_zt(place)["attributes"])
            if base == old:
                base = self.path("base")
                base.mkdir()
                shutil.copy(old, base / "model.safetensors")
                shutil.copy(delta, base / "delta.zt")
        self.fail_with(USAGE, "convert", folder, "--base", old, "--canonical", "-o", self.path("c.zt"), says="--canonical")
        self.succeed("convert", folder, "--base", old, "--include", "w", "--to", "disk-delta", "-o", f"{self.path('v1')}/", "-q")

    def test_nothing_as_differences(self):
        """It is said though a file of the model is stored so."""
        old, new = self.pair()
        for name, source in (("a", old), ("b", new)):
            self.path(name).mkdir()
            shutil.copy(source, self.path(name) / "model.safetensors")
            (self.path(name) / "config.json").write_text("{}")
        done = self.json("convert", self.path("b"), "--base", self.path("a"), "--dtype", "f16", "--include", "w", "-o", self.path("d.zt"),
                         "--json")
        self.assertEqual(done["base"]["differing"], 1)
        self.assertIn("no tensor is stored as differences, for none has the name, type and shape", done["warnings"][0])
        plan = self.succeed("convert", self.path("b"), "--base", self.path("a"), "-n")
        self.assertIn(b" out if all were stored in full\n", plan)

    def test_a_base_in_a_folder_is_not_replaced(self):
        old, new = self.pair()
        folder = self.path("base")
        folder.mkdir()
        old.rename(folder / "model.safetensors")
        self.succeed("convert", new, "--base", folder, "-o", self.path("d.zt"), "-q")
        kept = (folder / "model.safetensors").read_bytes()
        self.fail_with(USAGE, "extract", self.path("d.zt"), "--base", folder, "-o", folder / "model.safetensors", "-f",
                       says="it is an input, and would be replaced")
        self.assertEqual((folder / "model.safetensors").read_bytes(), kept)

    def test_a_shard_of_a_base_is_not_replaced(self):
        old, new = self.pair()
        self.path("base").mkdir()
        for spec in ("1.2", "2.0"):
            with self.subTest(spec):
                root = self.path("base/m.zt" + ".index.json" * (spec == "1.2"))
                self.succeed("convert", old, "-o", self.path("base/m.zt"), "--shards", "2", "-q", "--spec", spec)
                self.succeed("convert", new, "--base", root, "-o", self.path("d.zt"), "-fq")
                shard = self.path("base/m-00001-of-00002.zt")
                kept = shard.read_bytes()
                for base in (root, root.parent):
                    for source in (new, self.path("d.zt")):
                        self.fail_with(USAGE, "convert", source, "--base", base, "-o", shard, "-f",
                                       says="it is an input, and would be replaced")
                self.assertEqual(shard.read_bytes(), kept)
                for path in self.path("base").iterdir():
                    path.unlink()

    def test_what_verify_finds(self):
        """Damage that digests do not tell is found without a base; another base is an error."""
        old, new = self.pair()
        self.succeed("convert", new, "--base", old, "-o", self.path("d.zt"), "-q", "--digest", "none")
        data = bytearray(self.path("d.zt").read_bytes())
        place = read_zt(self.path("d.zt"))["objects"]["w"]["components"]["delta.data"]
        data[place["offset"] + place["length"] // 2] ^= 0x10
        self.path("d.zt").write_bytes(data)
        found = self.expect(support.DIFFERS, "verify", "--json", self.path("d.zt"))
        self.assertEqual([each["object"] for each in json.loads(found.stdout)["problems"]], ["w"])

    def test_chains(self):
        rng = numpy.random.default_rng(3)
        model = {"w": ("BF16", [30_000], values(rng, "BF16", 30_000)), "b": ("F32", [9], values(rng, "F32", 9))}
        before = self.model("s0.safetensors", model)
        for i in range(1, 65):
            elements = model["w"][2].copy().view("<u2")
            elements += (rng.random(30_000) < 0.01).astype("<u2")
            model = dict(model, w=("BF16", [30_000], elements.view("u1")))
            after = self.model(f"s{i}.safetensors", model)
            self.succeed("convert", after, "--base", before, "-o", self.path(f"d{i}.zt"), "-q", "--no-sync")
            before = self.path(f"d{i}.zt")
        self.succeed("convert", before, "-o", self.path("made.zt"), "-q")
        self.succeed("diff", self.path("made.zt"), after)
        most = ("d64.zt", "64 deltas stand on each other there", "writes it as a whole model, the next base")
        self.fail_with(USAGE, "convert", after, "--base", before, "-o", self.path("d65.zt"), says=most)
        self.fail_with(USAGE, "convert", after, "--base", before, "--to", "disk-delta", "-o", f"{self.path('v1')}/", says=most)
        # One that an earlier release would have written.
        self.path("whole").mkdir()
        self.succeed("convert", before, "-o", self.path("whole/d64.zt"), "-q")
        self.succeed("convert", after, "--base", self.path("whole/d64.zt"), "-o", self.path("d65.zt"), "-q")
        self.fail_with(USAGE, "convert", self.path("d65.zt"), "-o", self.path("no.zt"), says="more than 64 deltas")
        self.succeed("convert", self.path("d65.zt"), "--base", self.path("whole/d64.zt"), "-o", self.path("made.zt"), "-fq")
        # What is wrong far below is named.
        kept = self.path("d30.zt").read_bytes()
        self.path("d30.zt").write_bytes(kept[:300] + bytes([kept[300] ^ 16]) + kept[301:])
        self.fail_with(INVALID, "convert", before, "-o", self.path("no.zt"), says=("d30.zt", "tensor 'w'"))
        self.path("d30.zt").write_bytes(kept)
        # A base that is far away, and given by its name.
        shutil.move(self.path("s0.safetensors"), self.path("far"))
        self.fail_with(USAGE, "convert", self.path("d2.zt"), "-o", self.path("no.zt"), says="'s0.safetensors'")
        self.succeed("convert", self.path("d2.zt"), "--base", self.path("far"), "-o", self.path("yes.zt"), "-q")
        self.succeed("diff", self.path("yes.zt"), self.path("s2.safetensors"))

    def test_folders_files_and_shards(self):
        rng = numpy.random.default_rng(5)
        for name in ("a", "b"):
            folder = self.path(name)
            folder.mkdir()
            rng = numpy.random.default_rng(5)
            model = {f"layers.{i}.w": ("BF16", [64, 64], values(rng, "BF16", 4096)) for i in range(8)}
            if name == "b":
                for each in model.values():
                    each[2].view("<u2")[::100] += 1
            (folder / "model.safetensors").write_bytes(encode(model))
            (folder / "config.json").write_text(json.dumps({"step": name}))
            (folder / "licence.txt").write_text("the same")
        a, b = self.path("a"), self.path("b")
        self.succeed("convert", b, "--base", a, "-o", self.path("d.zt"), "-q")
        self.succeed("convert", self.path("d.zt"), "-o", self.path("made.zt"), "-q", "--raw")
        self.succeed("convert", b, "-o", self.path("whole.zt"), "-q", "--raw")
        self.same(self.path("made.zt"), self.path("whole.zt"))
        self.succeed("extract", self.path("d.zt"), "-o", str(self.path("back")) + "/", "--to", "safetensors", "-q")
        self.same_folders(self.path("back"), b)
        for spec in ("1.2", "2.0"):
            for shard in ("2/3", "1/3", "3/3"):  # tasks that know nothing of each other
                self.succeed("convert", b, "--base", a, "-o", self.path(f"m{spec}.zt"), "--shards", "3", "--shard", shard, "-q",
                             "--spec", spec)
            self.succeed("join", *sorted(self.folder.glob(f"m{spec}-*.zt")), "-o", self.path(f"m{spec}.zt"), "-q")
            joined = self.path(f"m{spec}.zt" + (".index.json" if spec == "1.2" else ""))
            self.succeed("diff", joined, b)
            self.succeed("convert", joined, "-o", self.path("made.zt"), "-fq", "--raw", "--spec", spec)
            self.succeed("convert", b, "-o", self.path("whole.zt"), "-fq", "--raw", "--spec", spec)
            self.succeed("verify", self.path("made.zt"), "--against", b)

    def test_damage(self):
        """A delta or a base that was changed never gives a wrong value with status 0."""
        old, new = self.pair(count=20_000)
        self.succeed("convert", new, "-o", self.path("whole.zt"), "-q")
        whole = self.path("whole.zt").read_bytes()
        self.succeed("convert", old, "-o", self.path("base.zt"), "-q", "--digest", "none")
        for spec in ("1.2", "2.0"):
            self.succeed("convert", new, "--base", self.path("base.zt"), "-o", self.path("d.zt"), "-fq", "--spec", spec)
            generator = random.Random(SEED + 7)
            files = {name: self.path(name).read_bytes() for name in ("d.zt", "base.zt")}
            for i in range(int(os.environ.get("ZT_COUNT", "100"))):
                name = generator.choice(sorted(files))
                data = bytearray(files[name])
                at = generator.randrange(len(data))
                if i % 4 == 3:
                    del data[at:]
                else:
                    data[at] ^= 1 << generator.randrange(8)
                self.path(name).write_bytes(data)
                run = self.run_program("convert", self.path("d.zt"), "-o", self.path("out.zt"), "-fq")
                self.assertIn(run.returncode, (0, USAGE, INVALID, support.UNSUPPORTED), run.stderr)
                self.path(name).write_bytes(files[name])
                if run.returncode == 0:
                    made, wanted = read_zt(self.path("out.zt"))["objects"], read_zt(self.path("whole.zt"))["objects"]
                    for tensor in made.keys() & wanted.keys():
                        if made[tensor]["format"] != "dense":  # 1.2 has no digest of the manifest: a format that none knows
                            continue
                        self.assertEqual(made[tensor]["components"]["data"]["bytes"], wanted[tensor]["components"]["data"]["bytes"],
                                         (spec, i, name, at))
        self.assertTrue(whole)

    def test_forged_manifests(self):
        old, new = self.pair(count=20_000)
        path = self.path("d.zt")

        def part(manifest):
            return manifest["objects"]["w"]["attributes"]["delta"]["parts"][0]

        def of_chunk(at, value):
            def change(manifest):
                chunks = bytearray(part(manifest)["chunks"])
                chunks[at:at + len(value)] = value
                part(manifest)["chunks"] = bytes(chunks)
            return change

        for change, says in (
                (of_chunk(1, b"\xf0\xff\xff\xff"), "a frame is longer than any of its chunk"),
                (of_chunk(1, b"\1\0\0\0"), "bytes, its chunks have 1"), (of_chunk(0, b"\3"), "a chunk is of an unknown kind"),
                (of_chunk(0, b"\0"), "has a frame"), (of_chunk(5, b"\xff\xff\xff\x7f"), "more content than one has"),
                (of_chunk(9, b"\1"), "another digest"),
                (lambda m: part(m).update(chunk=0), "'chunk' is 0"), (lambda m: part(m).update(chunk=100_000_000), "too large"),
                (lambda m: part(m).update(dtype="f99"), "is not a dtype"), (lambda m: part(m).update(digest="crc32c:0x1"), "sha256 nor"),
                (lambda m: part(m).pop("chunks"), "25 bytes a chunk"), (lambda m: part(m).update(bytes=39_998), "data has 39998 bytes"),
                (lambda m: part(m).update(same_as=["none", "data"]), "which has no such part"),
                (lambda m: m["objects"]["w"]["attributes"]["delta"].update(parts=[part(m)] * 257), "it has more than 256 parts"),
                (lambda m: m["objects"]["w"]["attributes"].pop("delta"), "the attribute 'delta' is missing"),
                (lambda m: m["attributes"].pop("ztstream.delta"), "the file does not say which")):
            self.succeed("convert", new, "--base", old, "-o", path, "-fq")
            make_zt.forge(path, change)
            self.fail_with(INVALID, "convert", path, "-o", self.path("out.zt"), "--base", old, says=says)
            self.assertFalse(self.path("out.zt").exists())
            self.assertIn(self.run_program("show", path, "w").returncode, (USAGE, INVALID), says)
        self.expect(support.DIFFERS, "verify", path, says="does not say from which")
        # What readers of ranges do not compare.
        self.succeed("convert", new, "--base", old, "-o", path, "-fq", "--digest", "sha256")
        self.succeed("verify", path, "--base", old)
        make_zt.forge(path, lambda m: part(m).update(digest="sha256:" + 64 * "0"))
        self.expect(support.DIFFERS, "verify", path, "--base", old, says=("tensor 'w'", "its digest is sha256:", "the delta says sha256:000"))

    def test_bytes_that_no_reader_takes_are_not_written(self):
        model = {"b": ("BOOL", [4000], numpy.zeros(4000, "u1")), "w": ("U8", [4000], numpy.zeros(4000, "u1"))}
        old = self.model("old.safetensors", model)
        model["b"][2][7] = 3
        new = self.model("new.safetensors", model)
        self.fail_with(INVALID, "convert", new, "--base", old, "-o", self.path("d.zt"), says=("tensor 'b'", "element 7", "bool"))
        self.assertFalse(self.path("d.zt").exists())

    def test_chunks_of_a_chain_lie_alike(self):
        """Else a chunk would be made of several of its base's, and each of these of several: twice the work at each step."""
        data = numpy.random.default_rng(4).integers(0, 256, 13_000_000, dtype=numpy.uint8)
        before, sizes = self.model("s0.safetensors", {"w": ("U8", [len(data)], data)}), set()
        for i in range(1, 7):
            data = data.copy()
            data[i::100_003] += 1
            source = self.model(f"s{i}.safetensors", {"w": ("U8", [len(data)], data)})
            if i % 2:
                self.succeed("convert", source, "-o", self.path("s.zt"), "-fq", "--zstd", "--min-gain", "-50", "--chunk", "3MiB")
                source = self.path("s.zt")
            self.succeed("convert", source, "--base", before, "-o", self.path(f"d{i}.zt"), "-q")
            before = self.path(f"d{i}.zt")
            sizes.add(read_zt(before)["objects"]["w"]["attributes"]["delta"]["parts"][0]["chunk"])
        self.assertEqual(len(sizes), 1)
        self.succeed("convert", before, "-o", self.path("made.zt"), "-q")
        self.succeed("diff", self.path("made.zt"), self.path("s6.safetensors"))

    def test_ties_ids_and_names(self):
        rng = numpy.random.default_rng(6)
        old = {"model.embed": ("BF16", [50_000], values(rng, "BF16", 50_000))}
        new = {"lm_head": ("BF16", [50_000], old["model.embed"][2].copy())}
        new["lm_head"][2].view("<u2")[::500] += 1
        folder = self.path("run#2?")
        folder.mkdir()
        base = self.put("run#2?/old#1.safetensors", encode(old))
        self.succeed("convert", self.model("new.safetensors", new, {"model.embed": "lm_head"}), "--base", base,
                     "-o", folder / "d.zt", "-q", "--digest", "sha256")
        self.assertLess((folder / "d.zt").stat().st_size, 10_000)  # the first of the tied names is not in the base
        stated = read_zt(folder / "d.zt")["attributes"]["ztstream.delta"]
        self.assertEqual(stated["base"]["name"], "old#1.safetensors")
        part = read_zt(folder / "d.zt")["objects"]["lm_head"]["attributes"]["delta"]["parts"][0]
        self.assertEqual(part["digest"], "sha256:" + hashlib.sha256(new["lm_head"][2].tobytes()).hexdigest())
        self.succeed("convert", folder / "d.zt", "-o", self.path("made.zt"), "-q", "--spec", "2.0")
        self.assertEqual(stated["id"], self.json("id", "--json", self.path("made.zt"))["id"])
        self.succeed("diff", self.path("made.zt"), self.path("new.safetensors"))
        # With --rename: the new name, or the one before.
        for name in ("lm_head", "head"):
            self.model(f"{name}.safetensors", {name: new["lm_head"]})
            plan = self.json("convert", self.path("lm_head.safetensors"), "--base", self.path(f"{name}.safetensors"), "--rename",
                             "s/lm_//", "-n", "--json")
            self.assertEqual(plan["base"]["differing"], 1)
        # Equal names in other folders: the delta is not its own base.
        for name in ("x", "y"):
            self.path(name).mkdir()
        self.succeed("convert", base, "-o", self.path("x/model.zt"), "-q")
        self.succeed("convert", self.path("new.safetensors"), "--base", self.path("x/model.zt"), "-o", self.path("y/model.zt"), "-q")
        self.succeed("convert", self.path("y/model.zt"), "--base", self.path("x/model.zt"), "-o", self.path("a.zt"), "-q")
        self.path("x/model.zt").rename(self.path("x/renamed.zt"))
        self.succeed("convert", self.path("y/model.zt"), "--base", self.path("x/renamed.zt"), "-o", self.path("b.zt"), "-q")
        self.same(self.path("a.zt"), self.path("b.zt"))
        # Of several that are named, those that are of no use do no harm.
        self.succeed("convert", self.path("y/model.zt"), "--base", self.path("x/renamed.zt"), "--base", self.path("new.safetensors"),
                     "-o", self.path("c.zt"), "-q")
        self.same(self.path("a.zt"), self.path("c.zt"))
        # A delta as the base of another, whose own base lies elsewhere.
        self.succeed("convert", self.path("new.safetensors"), "--base", self.path("y/model.zt"), "--base", self.path("x/renamed.zt"),
                     "-o", self.path("z.zt"), "-q")

    def test_what_is_refused(self):
        old, new = self.pair()
        out = self.path("d.zt")
        self.fail_with(USAGE, "convert", new, "--base", old, "--base", new, "-o", out, says="one base")
        self.fail_with(USAGE, "convert", new, "--base", old, "--canonical", "-o", out, says="--canonical")
        self.fail_with(USAGE, "convert", new, "--base", old, "--spec", "1.1", "-o", out, says="1.2 and 2.0")
        self.succeed("convert", new, "--base", old, "-o", out, "-q")
        self.fail_with(USAGE, "convert", new, "--base", out, "-o", out, "-f", says="it is an input")


class Buckets(remote_server.Remote):
    def test_a_folder_is_found_beside_a_delta(self):
        rng = numpy.random.default_rng(1)
        for name in ("step-1", "step-2"):
            self.put(f"{name}/model.safetensors", encode({"w": ("F32", [9], values(rng, "F32", 9))}))
        self.succeed("convert", self.path("step-2"), "--base", self.path("step-1"), "-o", self.path("d.zt"), "-q")
        self.server.store.buckets["b"] = {key: (self.path(name).read_bytes(), f'"{key}"', {}) for key, name in (
            ("run/step-1/model.safetensors", "step-1/model.safetensors"), ("run/d.zt", "d.zt"))}
        self.succeed("convert", "s3://b/run/d.zt", "-o", self.path("made.zt"), "-q")
        self.succeed("diff", self.path("made.zt"), self.path("step-2"))

    def test_random_pairs(self):
        """Models, bases, deltas and results in a bucket: every byte is that of the conversion here."""
        store = self.server.store.buckets
        for seed in range(SEED, SEED + min(COUNT, max(4, COUNT // 60))):
            rng = numpy.random.default_rng(10**6 + seed)
            chain = [tensors(rng)]
            for _ in range(rng.integers(1, 4)):
                chain.append(next_step(rng, chain[-1]))
            spec = ("--spec", str(rng.choice(["1.2", "2.0"])), "-q")
            with self.subTest(seed=seed):
                store["b"] = {f"step{i}.safetensors": (encode(model), f'"{seed} {i}"', {}) for i, model in enumerate(chain)}
                base, made = "s3://b/step0.safetensors", 0
                for i in range(1, len(chain)):
                    run = self.run_program("convert", f"s3://b/step{i}.safetensors", "--base", base, "-o", f"s3://b/d{i}.zt", *spec)
                    if b"leave no tensor of" in run.stderr:
                        break
                    self.assertEqual(run.returncode, 0, run.stderr)
                    base, made = f"s3://b/d{i}.zt", i
                if not made:
                    continue
                whole = self.put("whole.safetensors", store["b"][f"step{made}.safetensors"][0])
                self.succeed("convert", whole, "-o", self.path("whole.zt"), "-f", *spec)
                for options in ((), ("--base", "s3://b/step0.safetensors", *(w for i in range(1, made) for w in ("--base", f"s3://b/d{i}.zt")))):
                    self.succeed("convert", base, *options, "-o", "s3://b/made.zt", "-f", *spec)
                    self.assertEqual(store["b"]["made.zt"][0], self.path("whole.zt").read_bytes())
                self.succeed("diff", base, whole, "-q")
