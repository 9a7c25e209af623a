"""ztstream apply: checkpoints that are changed where they lie, what is refused, and kills (docs/DELTA.md).

ZT_COUNT sets the random pairs (default 40), ZT_KILLS how many steps of each case are killed (default 20; 0: every one)."""
import fcntl
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import time

import numpy

import delta_test
import make_safetensors
import make_zt
import make_zt2
import support
from delta_test import encode, next_step, tensors, updated, values
from support import DONE, INVALID, IO, SHIM, UNSUPPORTED, USAGE, read_zt, shim

COUNT = int(os.environ.get("ZT_COUNT", "40"))
SEED = int(os.environ.get("ZT_SEED", "0"))
KILLS = int(os.environ.get("ZT_KILLS", "20"))
CALLS = ("pwrite", "pwritev", "write", "writev", "open", "close", "fsync", "ftruncate", "flock", "renameat2")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def same_shapes(rng, model):
    return {name: (dtype, shape, updated(rng, dtype, data)) for name, (dtype, shape, data) in model.items()}


class Apply(support.EndToEnd):

    def versions(self, rng=None, model=None):
        """Two models of the same tensors."""
        rng = rng or numpy.random.default_rng(1)
        if model is None:
            model = {"w": ("BF16", [3000], values(rng, "BF16", 3000)), "b": ("F32", [9], values(rng, "F32", 9)),
                     "same": ("I8", [70], values(rng, "I8", 70))}
        fresh = same_shapes(rng, model)
        if "w" in fresh:
            fresh["w"][2].view("<u2")[17::100] += 1
        return model, fresh

    def test_a_name_that_begins_with_a_point_is_refused_before_anything_changes(self):
        """No journal names such a file, so that none could be gone on with."""
        old, new = (self.in_form(name, "safetensors", model) for name, model in zip(("old", "new"), self.versions(), strict=True))
        delta, hidden = self.delta(new, old), self.path(".h.safetensors")
        hidden.write_bytes(old.read_bytes())
        for _ in range(2):
            self.fail_with(UNSUPPORTED, "apply", delta, hidden, says="its name begins with '.'")
        self.assertEqual(hidden.read_bytes(), old.read_bytes())
        self.assertFalse(list(self.folder.glob("*journal*")) + list(self.folder.glob(".*journal*")))
        self.succeed("inspect", hidden)

    def test_a_checkpoint_with_one_tensor_more_is_not_that_version(self):
        old, new = self.versions()
        delta = self.delta(self.in_form("new", "safetensors", new), self.in_form("old", "safetensors", old))
        more = self.in_form("more", "safetensors", new | {"extra": ("F32", [1], values(numpy.random.default_rng(2), "F32", 1))})
        was = more.read_bytes()
        self.fail_with((INVALID, USAGE, UNSUPPORTED), "apply", delta, more)
        self.assertEqual(more.read_bytes(), was)

    def delta(self, new, old, *options):
        self.succeed("convert", new, "--base", old, "-o", self.path("d.zt"), "-fq", *options)
        return self.path("d.zt")

    def in_form(self, name, form, model, ties=None):
        """The model as a file or folder called `name`, of one of the forms that are changed where they lie."""
        path = self.path(name)
        if form == "folder":
            path.mkdir()
            names = sorted(model)
            for i, part in enumerate((names[::2], names[1::2])):
                (path / f"model-{i + 1:05}-of-00002.safetensors").write_bytes(encode({each: model[each] for each in part}))
            index = {each: f"model-{i % 2 + 1:05}-of-00002.safetensors" for i, each in enumerate(names)}
            (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
            (path / "config.json").write_text(json.dumps({"name": name, "n": "x" * len(name)}))
            return path
        source = self.put(name + ".safetensors", encode(model, ties))
        if form == "safetensors":
            return source
        self.succeed("convert", source, "-o", path.with_suffix(".zt"), "-q", "--raw", "--spec", form)
        return path.with_suffix(".zt")

    def same(self, first, second):
        if first.is_dir():
            self.same_folders(first, second)
        else:
            self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_random_pairs(self):
        """What was changed where it lies is byte for byte the new version, in every form."""
        for seed in range(SEED, SEED + COUNT):
            form = ("safetensors", "1.2", "2.0", "folder")[seed % 4]
            with self.subTest(seed=seed, form=form):
                rng = numpy.random.default_rng(seed)
                model = dict(tensors(rng), other=("F16", [7], values(rng, "F16", 7)))
                ties = {"tied": "other"} if seed % 3 == 0 and form != "folder" else None
                old, new = self.versions(rng, model)
                for path in (*self.folder.glob("old*"), *self.folder.glob("the new one*")):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                old, new = self.in_form("old", form, old, ties), self.in_form("the new one", form, new, ties)
                delta = self.delta(new, old, "--spec", str(rng.choice(["1.2", "2.0"])), "--digest", str(rng.choice(["xxh3", "sha256"])))
                inodes = {path.name: path.stat().st_ino for path in (old.iterdir() if old.is_dir() else [old])}
                done = self.json("apply", "--json", "-T", str(rng.integers(1, 4)), delta, old)
                self.assertEqual(done["warnings"], [])
                self.same(old, new)
                self.assertEqual(inodes, {path.name: path.stat().st_ino for path in (old.iterdir() if old.is_dir() else [old])})
                again = self.json("apply", "--json", delta, old)
                self.assertEqual((again["already"], again["tensors"], again["files_changed"]), (True, 0, 0))
                self.same(old, new)

    def test_what_is_said(self):
        old, new = (self.in_form(name, "1.2", model) for name, model in zip(("old", "new"), self.versions()))
        delta = self.delta(new, old)
        self.assertRegex(self.expect(DONE, "apply", delta, old).stderr.decode(), r"old\.zt: \d tensors? changed, .* written twice\n$")
        self.assertIn(": it is that version already", self.expect(DONE, "apply", delta, old).stderr.decode())
        self.assertEqual(self.expect(DONE, "apply", "-q", delta, old).stderr, b"")
        self.succeed("verify", old)
        third = same_shapes(numpy.random.default_rng(5), self.versions()[1])
        third = self.in_form("third", "1.2", third)
        self.delta(third, new)
        self.succeed("apply", self.path("d.zt"), old, "-q")  # the next step, by another name of its base
        self.same(old, third)

    def test_what_is_counted(self):
        """Tensors that are tied, and files of the model in a .zt file."""
        old, new = ({"w": ("U8", [3], numpy.full(3, value, "u1")), "same": ("I8", [1], numpy.zeros(1, "u1"))} for value in (1, 2))
        for number, model in enumerate((old, new)):
            self.put(f"{number}/model.safetensors", encode(model, {"tied": "w"}))
            self.put(f"{number}/config.json", str(number).encode())
        for name, form in (("0", None), ("1.2.zt", "1.2"), ("2.0.zt", "2.0")):
            if form:
                self.succeed("convert", self.path("0"), "-o", self.path(name), "-q", "--raw", "--spec", form)
        for name in ("1.2.zt", "2.0.zt", "0"):
            done = self.json("apply", "--json", self.delta(self.path("1"), self.path("0")), self.path(name))
            self.assertEqual((done["tensors"], done["files_changed"]), (2, 1), name)
            self.succeed("diff", self.path(name), self.path("1"), "-q")

    def test_only_what_changed_is_written(self):
        data = numpy.zeros(8 << 20, "u1")
        old = self.put("old.safetensors", encode({"w": ("U8", [len(data)], data)}))
        data[5_000_000] = 1
        new = self.put("new.safetensors", encode({"w": ("U8", [len(data)], data)}))
        delta = self.delta(new, old)
        size = old.stat().st_size
        with open(old, "wb") as holes:  # pages that are not written stay holes
            holes.write(new.read_bytes()[:size - len(data)])
            holes.truncate(size)
        before = old.stat().st_blocks
        self.succeed("apply", delta, old, "-q")
        self.same(old, new)
        self.assertLess(old.stat().st_blocks - before, 64)

    def refused(self, delta, path, says, status=UNSUPPORTED):
        before = contents(path if path.is_dir() else path.parent)
        self.fail_with(status, "apply", delta, path, says=says)
        self.assertEqual(contents(path if path.is_dir() else path.parent), before)

    def test_what_is_refused(self):
        model, fresh = self.versions()
        old = self.in_form("old", "safetensors", model)
        rng = numpy.random.default_rng(2)
        instead = "'ztstream convert' writes the new version to another place"
        for change, says in (
                (lambda m: m.update(more=m["b"]), ("tensor 'more': the delta adds it", instead)),
                (lambda m: m.pop("b"), ("tensor 'b': the delta removes it", instead)),
                (lambda m: m.update(b=("F32", [3, 3], m["b"][2])), ("tensor 'b': the delta changes its type or shape", instead)),
                (lambda m: m.update(b=("I32", [9], m["b"][2])), ("tensor 'b': the delta changes its type or shape", instead))):
            other = dict(fresh)
            change(other)
            self.refused(self.delta(self.put("n.safetensors", encode(other)), old), old, says)
        new = self.in_form("new", "safetensors", fresh)
        delta = self.delta(new, old)
        self.refused(new, old, "new.safetensors: it is no delta; 'ztstream convert --base' makes one", USAGE)
        self.succeed("convert", new, "--base", old, "--to", "disk-delta", "-o", f"{self.path('v1')}/", "-q")
        self.refused(self.path("v1"), old, "a \"disk delta\" is not applied where a checkpoint lies; 'ztstream convert --base' writes the new version")
        self.refused(delta, self.put("x/o.npy", next((support.DATA / "npy").glob("*.npy")).read_bytes()),
                     "safetensors and whole .zt files are changed")
        for place in (delta, self.put("y/d.zt", delta.read_bytes())):
            self.refused(delta, place, (place.name, "it is a delta, and the second is the checkpoint that is changed"), USAGE)
        self.fail_with(USAGE, "apply", delta, "s3://bucket/old.zt", says="on this machine")
        self.fail_with(IO, "apply", delta, self.path("none.zt"), says="none.zt")
        self.fail_with(USAGE, "apply", delta, says="CHECKPOINT")
        self.fail_with(USAGE, "apply", delta, old, old, says="apply")
        # Compressed, in shards, under several names, elsewhere.
        self.succeed("convert", self.put("z/big.safetensors", encode({"w": ("U8", [90_000], numpy.zeros(90_000, "u1"))})), "-o",
                     self.path("z/old.zt"), "--zstd", "-q")
        big = self.put("z/new.safetensors", encode({"w": ("U8", [90_000], numpy.ones(90_000, "u1"))}))
        self.refused(self.delta(big, self.path("z/old.zt")), self.path("z/old.zt"),
                     ("tensor 'w'", "it is stored as zstd, and only raw bytes are changed where they lie", instead))
        self.path("s").mkdir()
        self.succeed("convert", old, "-o", self.path("s/m.zt"), "--shards", "2", "-q")
        self.succeed("join", *sorted(self.path("s").glob("m-*.zt")), "-o", self.path("s/m.zt"), "-q")
        for path in (self.path("s"), self.path("s/m.zt.index.json")):
            self.refused(self.delta(new, old), path, "one of several .zt files")
        os.link(old, self.path("second.safetensors"))
        self.refused(delta, old, "it has 2 names, and would be changed under the others too", USAGE)
        self.path("second.safetensors").unlink()
        self.path("l").mkdir()
        (self.path("l") / "old.safetensors").symlink_to(old)
        self.refused(delta, self.path("l/old.safetensors"), "it is a link, and would be changed under its other names too", USAGE)
        # Another base, one that was changed, and one of which nothing is left in the new version.
        run = {name: (dtype, shape, values(rng, dtype, numpy.prod(shape))) for name, (dtype, shape, _) in model.items()}
        self.refused(self.delta(self.put("n.safetensors", encode(run)), old), new, "it has neither the bytes of the base", USAGE)
        delta = self.delta(new, old)
        other = self.in_form("other", "safetensors", same_shapes(rng, fresh))
        self.refused(delta, other, ("other.safetensors: tensor", "it has neither the bytes of the base"), USAGE)
        data = bytearray(old.read_bytes())
        data[-300] ^= 1
        old.write_bytes(data)
        self.refused(delta, old, "it has neither the bytes of the base", USAGE)

    def test_what_cannot_be_changed_there_may_stay(self):
        """A file in a folder below, and what a .zt file holds compressed: refused only if the delta changes them."""
        model, fresh = self.versions()
        folders = [self.in_form(name, "folder", each) for name, each in (("old", model), ("new", fresh))]
        for folder in folders:
            self.put(folder / "sub/x.json", b'{"a": 1}')
        delta = self.delta(folders[1], folders[0])
        shutil.copytree(folders[0], self.path("changed"))
        self.succeed("apply", delta, folders[0], "-q")
        self.same_folders(folders[0], folders[1])
        self.put(folders[1] / "sub/x.json", b'{"a": 2}')
        self.refused(self.delta(folders[1], self.path("changed")), self.path("changed"), ("sub/x.json", "it lies elsewhere than"))
        # Of .zt files: the index of a folder, and what compresses; noise stays raw.
        noise = numpy.random.default_rng(3).integers(0, 256, 1 << 16, "u1")
        models = {"a": (noise, 0, b"x"), "b": (noise ^ 1, 0, b"x"), "c": (noise, 0, b"y"), "e": (noise, 1, b"x")}
        for name, (raw, value, letter) in models.items():
            self.path(name).mkdir()
            self.in_form(f"{name}/m", "folder", dict(model, raw=("U8", [raw.size], raw), even=(
                "U8", [1 << 16], numpy.full(1 << 16, value, "u1"))))
            self.put(f"{name}/m/some.json", letter * 100_000)
            self.succeed("convert", self.path(f"{name}/m"), "-o", self.path(f"{name}.zt"), "--zstd", "-q")
        stored = {(each["name"], each["components"][0]["encoding"])
                  for each in self.json("inspect", "--json", self.path("a.zt"))["objects"]}
        self.assertLessEqual({("raw", "raw"), ("even", "zstd")}, stored)
        for name, says in (("c", "some.json"), ("e", "tensor 'even'")):
            self.refused(self.delta(self.path(f"{name}.zt"), self.path("a.zt")), self.path("a.zt"), (says, "it is stored as zstd"))
        delta = self.delta(self.path("b.zt"), self.path("a.zt"))
        self.succeed("apply", delta, self.path("a.zt"), "-q")
        self.same(self.path("a.zt"), self.path("b.zt"))

    def test_tied_tensors(self):
        """Names that share bytes may change together, and not apart."""
        model = {"a": ("U8", [5000], numpy.arange(5000, dtype="u2").astype("u1"))}
        old = self.put("old.safetensors", encode(model, {"b": "a"}))
        apart = dict(model, b=("U8", [5000], model["a"][2] + numpy.uint8(1)))
        self.refused(self.delta(self.put("n.safetensors", encode(apart)), old), old, ("'b'", "it shares its bytes with another tensor"))
        # What the delta holds apart, but equal, and what it ties alone.
        fresh = {"a": ("U8", [5000], model["a"][2] ^ numpy.uint8(1))}
        for before, is_tied, after, will in (
                (model, True, fresh | {"b": fresh["a"]}, False), (model, True, model | {"b": model["a"]}, False), (model, True, fresh, True),
                (model | {"b": fresh["a"]}, False, fresh, True), ({"b": model["a"], "a": fresh["a"]}, False, model, True)):
            for form in ("safetensors", "2.0"):
                old = self.in_form("o", form, before, {"b": "a"} if is_tied else None)
                new = self.in_form("n", form, after, {"b": "a"} if will else None)
                self.succeed("apply", self.delta(new, old), old, "-q")
                self.succeed("diff", old, new, "-q")
                if form == "2.0":
                    self.succeed("verify", old, "-q")
                for path in (old, new):
                    path.unlink()

    def test_tied_tensors_that_are_compressed(self):
        """What a tie changes of them is said to be in the way; what it leaves as it is, is not."""
        noise = numpy.random.default_rng(4).integers(0, 256, 1 << 16, "u1")
        zeros, ones = numpy.zeros(1 << 16, "u1"), numpy.ones(1 << 16, "u1")
        for name, before, after, says in (
                ("changes", (zeros, ones, noise), (zeros, zeros, noise ^ 1), "tensor 'b': it is stored as zstd"),
                ("stays", (zeros, ones, noise), (ones, ones, noise ^ 1), "tensor 'a': it is stored as zstd"),
                ("was equal", (zeros, zeros, noise), (zeros, zeros, noise ^ 1), None)):
            with self.subTest(name):
                old, new = ({key: ("U8", [1 << 16], data) for key, data in zip("abc", model)} for model in (before, after))
                old = self.put("o.safetensors", encode(old))
                del new["b"]
                new = self.put("n.safetensors", encode(new, {"b": "a"}))
                self.succeed("convert", old, "-o", self.path("o.zt"), "-fq", "--zstd")
                delta = self.delta(new, self.path("o.zt"))
                if says is None:
                    self.succeed("apply", delta, self.path("o.zt"), "-q")
                    self.succeed("diff", self.path("o.zt"), new, "-q")
                else:
                    self.refused(delta, self.path("o.zt"), says)

    def test_names_of_one_blob_in_other_words(self):
        """One of them states its digest and the other none, or states another kind; one of them is its bytes, the other what zstd
        makes of them."""
        old, new = (bytes(range(256)) * 40 + last for last in (b"old", b"new"))
        for kinds in itertools.permutations((None, "xxh3", "sha256"), 2):
            for path, content in (("o.zt", old), ("n.zt", new)):
                file = make_zt2.File()
                first = file.part(content, digest=kinds[0])
                second = {key: value for key, value in first.items() if key != "digest"}
                if kinds[1]:
                    second["digest"] = make_zt2.digest_of(kinds[1], content)
                for name, part in (("a", first), ("b", second)):
                    file.add(name, [len(content)], data=part)
                self.put(path, file.finish())
            self.succeed("apply", self.delta(self.path("n.zt"), self.path("o.zt")), self.path("o.zt"), "-q")
            self.succeed("verify", self.path("o.zt"))
            self.same(self.path("o.zt"), self.path("n.zt"))
        file = make_zt2.File()
        unpacked = file.zstd(old)
        packed = bytes(file.heap[unpacked["blob"][0]:])
        for path, content in (("o.zt", packed), ("n.zt", packed[:-1] + b"!")):
            if path == "n.zt":
                file = make_zt2.File()
                unpacked = file.zstd(old)
            raw = {"dtype": "u8", "blob": unpacked["blob"]} if path == "o.zt" else file.part(content)
            file.add("a", [len(content)], data=raw)
            file.add("b", [len(old)], data=unpacked)
            self.put(path, file.finish())
        self.refused(self.delta(self.path("n.zt"), self.path("o.zt")), self.path("o.zt"), ("tensor 'b'", "it is stored as zstd"))

    def test_files_that_the_delta_ties(self):
        """A file becomes equal to another, whatever it was; one grows by more than what is read at once."""
        model, fresh = self.versions()
        for before, after in (({"a.json": b"one", "b.json": b"two"}, {"a.json": b"six", "b.json": b"six"}),
                              ({"a.json": b"seven", "b.json": b"two"}, {"a.json": b"six", "b.json": b"six"}),
                              ({"a.json": b"a", "b.json": b""}, {"a.json": bytes(9_000_000), "b.json": b"b" * 5_000_000}),
                              ({"a.json": bytes(9_000_000), "b.json": b"b"}, {"a.json": b"", "b.json": b"c" * 17_000_000})):
            old, new = self.in_form("old", "folder", model), self.in_form("the new", "folder", fresh)
            for folder, files in ((old, before), (new, after)):
                for name, content in files.items():
                    (folder / name).write_bytes(content)
            self.succeed("convert", new, "-o", self.path("n.zt"), "-fq", "--canonical", "--spec", "2.0")  # equal files share a blob
            self.succeed("apply", self.delta(self.path("n.zt"), old), old, "-q")
            self.same(old, new)
            for folder in (old, new):
                shutil.rmtree(folder)

    def test_the_index_stays_where_the_new_version_is_cut_otherwise(self):
        model, fresh = self.versions()
        old, new = self.in_form("old", "folder", model), self.in_form("the new", "folder", fresh)
        for part, names in (("1", ["b"]), ("2", ["same", "w"])):
            (new / f"model-0000{part}-of-00002.safetensors").write_bytes(encode({name: fresh[name] for name in names}))
        index = {name: f"model-0000{1 + (name != 'b')}-of-00002.safetensors" for name in fresh}
        (new / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
        kept = (old / "model.safetensors.index.json").read_bytes()
        done = self.json("apply", "--json", self.delta(new, old), old)
        self.assertEqual(done["warnings"], ["file 'model.safetensors.index.json' stays as it is, for it says where the weights lie"])
        self.assertEqual((old / "model.safetensors.index.json").read_bytes(), kept)
        self.succeed("diff", old, new, "-q", "--files", "none")

    def test_files_of_the_model(self):
        model, fresh = self.versions()
        old, new = self.in_form("old", "folder", model), self.in_form("the new", "folder", fresh)
        (old / "licence.txt").write_text("old alone")
        (new / "readme.md").write_text("new alone")
        delta = self.delta(new, old)
        done = self.json("apply", "--json", delta, old)
        self.assertEqual(done["warnings"], ["file 'licence.txt' is not in the delta, and stays as it is",
                                            "file 'readme.md' of the delta is not in the checkpoint, and is not written"])
        self.assertEqual(done["files_changed"], 1)
        (new / "readme.md").unlink()
        (old / "licence.txt").unlink()
        self.same(old, new)
        # A file that somebody changed is named.
        edited = self.in_form("edi", "folder", model)
        other = self.delta(self.in_form("neu", "folder", fresh), edited)
        (edited / "config.json").write_text((edited / "config.json").read_text().replace("x", "y"))
        self.refused(other, edited, "edi/config.json: it has neither the bytes of the base", USAGE)
        # Back again: the file gets shorter.
        back = self.in_form("old2", "folder", model)
        (back / "config.json").write_text("{}")
        self.delta(back, new)
        self.succeed("apply", delta, old, "-q")
        self.same(old, back)

    def test_what_the_delta_has_in_full_is_checked(self):
        old, new = (self.in_form(name, "folder", model) for name, model in zip(("old", "a longer name"), self.versions()))
        delta, kept = self.delta(new, old, "--spec", "2.0"), contents(old)
        data = delta.read_bytes()
        at = data.index(b"a longer name")
        delta.write_bytes(data[:at] + b"b" + data[at + 1:])
        self.fail_with(INVALID, "apply", delta, old, says="digest")
        self.assertEqual(contents(old), kept)

    def test_what_no_reader_takes_is_not_written(self):
        """A delta that others made gives a bool of 3, or two elements of one cell."""
        old, new = (numpy.zeros(5000, "u1"), numpy.full(5000, 3, "u1"))
        old, new = (self.put(f"{name}.safetensors", encode({"t": ("U8", [5000], data)})) for name, data in (("old", old), ("new", new)))
        delta = self.delta(new, old)
        make_zt.forge(delta, lambda m: m["objects"]["t"]["attributes"]["delta"]["parts"][0].update(dtype="bool"))
        for form in ("safetensors", "1.2", "2.0"):
            path = self.in_form("live", form, {"t": ("BOOL", [5000], numpy.zeros(5000, "u1"))})
            self.refused(delta, path, ("tensor 't'", "element 0 of bool is 3"), INVALID)
            path.unlink()
        for name, spec, columns in (("one.zt", "2.0", (1, 2)), ("two.zt", "1.2", (2, 2))):
            parts = {"values": ("f32", bytes(8)), "indices": ("u64", make_zt2.u64s(*columns)), "indptr": ("u64", make_zt2.u64s(0, 2))}
            components = {role: {"dtype": dtype, "data": data} for role, (dtype, data) in parts.items()}
            made = make_zt.encode_1({"s": {"shape": [1, 9], "format": "sparse_csr", "components": components}})
            self.succeed("convert", self.put("made.zt", made), "-o", self.path(name), "-q", "--spec", spec)
        self.refused(self.delta(self.path("two.zt"), self.path("one.zt")), self.path("one.zt"), ("tensor 's'", "in its row"), INVALID)

    def test_cells_are_compared_one_object_at_a_time_where_they_change(self):
        count, many = 250_000, 16

        def model(name, value, last):
            objects = {}
            for i in range(many):
                rows = numpy.random.default_rng(i).permutation(count).astype("<u8")
                parts = {"values": ("f32", numpy.full(count, value, "<f4")), "coords": ("u64", numpy.concatenate([rows, 0 * rows[:-1], [last]]))}
                components = {role: {"dtype": dtype, "data": data.tobytes()} for role, (dtype, data) in parts.items()}
                objects[f"s{i}"] = {"shape": [count, 9], "format": "sparse_coo", "components": components}
            made = self.put("made.zt", make_zt.encode_1(objects))
            self.succeed("convert", made, "-o", self.path(name), "-q", "--spec", "2.0")
            return self.path(name)

        one, two, three = (model(f"{i}.zt", *each) for i, each in enumerate([(1, numpy.uint64(0)), (2, numpy.uint64(0)), (2, numpy.uint64(1))]))
        self.succeed("apply", self.delta(two, one), one, "-q", "--memory", "1MiB")  # which is too little to compare them
        self.assertEqual(one.read_bytes(), two.read_bytes())
        delta = self.delta(three, two)
        self.fail_with(UNSUPPORTED, "apply", delta, one, "--memory", "1MiB", says=("tensor 's0'", "allow more"))
        status, _, memory = self.costs("apply", delta, one, "-q", "--memory", "32MiB", "--threads", "2")
        self.assertEqual((status, one.read_bytes()), (DONE, three.read_bytes()))
        if not self.sanitized():
            self.assertLess(memory, 56)

    def test_mutated_deltas(self):
        """Of a delta that was changed, nothing is written but the new version."""
        old, new = (self.in_form(name, "folder", model) for name, model in zip(("old", "a longer name"), self.versions()))
        delta, kept, wanted = self.delta(new, old, "--spec", "2.0"), contents(old), contents(new)
        data, generator, refused = delta.read_bytes(), random.Random(SEED + 9), 0
        places = [at for at, byte in enumerate(data) if byte]  # the others lie between blobs, most of them
        for i in range(COUNT):
            at = generator.choice(places)
            changed = bytes([data[at] ^ 1 << generator.randrange(8)])
            delta.write_bytes(data[:at] + (b"" if i % 4 == 3 else changed + data[at + 1:]))
            run = self.run_program("apply", delta, old, "-q")
            refused += run.returncode != 0
            self.assertIn(run.returncode, (0, USAGE, INVALID, UNSUPPORTED), run.stderr)
            self.assertEqual(contents(old), kept if run.returncode else wanted, (i, at, run.stderr))
            for name, content in kept.items():
                (old / name).write_bytes(content)
        self.assertGreater(refused, COUNT // 2)

    def test_attributes(self):
        model, fresh = self.versions()
        old, new = self.put("o.safetensors", encode(model)), self.path("n.safetensors")
        new.write_bytes(make_safetensors.encode({n: (d, s, v.tobytes()) for n, (d, s, v) in fresh.items()}, {"step": "2"}))
        self.succeed("convert", old, "-o", self.path("o.zt"), "-q")
        delta = self.delta(new, old)
        done = self.json("apply", "--json", delta, old)
        self.assertEqual(done["warnings"], ["the attributes of the file stay those of the base"])
        self.succeed("apply", self.delta(new, self.path("o.zt")), self.path("o.zt"), "-q")
        self.assertEqual(read_zt(self.path("o.zt"))["attributes"], {"step": "2"})
        self.succeed("diff", "--attributes", "all", self.path("o.zt"), new)
        delta = self.delta(self.path("o.zt"), self.path("o.zt"), "--set", "step=3")  # they alone
        for already in (False, True):
            done = self.json("apply", "--json", delta, self.path("o.zt"))
            self.assertEqual((done["already"], done["tensors"], done["bytes_journal"] == 0), (already, 0, already))

    def test_two_at_once(self):
        old, new = (self.in_form(name, "safetensors", model) for name, model in zip(("old", "new"), self.versions()))
        delta = self.delta(new, old)
        with open(old, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.refused(delta, old, "another process changes it at the moment", IO)
        self.succeed("apply", delta, old, "-q")
        # One is given the folder, the other a file of it.
        old, new = (self.in_form(name, "folder", model) for name, model in zip(("old2", "new2"), self.versions()))
        delta = self.delta(new, old)
        with open(old / "model-00002-of-00002.safetensors", "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.refused(delta, old, ("model-00002-of-00002.safetensors", "another process changes it at the moment"), IO)
        self.succeed("apply", delta, old, "-q")
        self.same(old, new)

    def forms(self):
        model, fresh = self.versions()
        for form in ("folder", "2.0", "safetensors"):
            old, new = self.in_form(f"old {form}", form, model), self.in_form(f"the new {form}", form, fresh)
            self.succeed("convert", new, "--base", old, "-o", self.path(f"{form}.zt"), "-q")
            yield form, old, new, self.path(f"{form}.zt")

    def test_kills(self):
        """Killed at any of its system calls: the old version or a journal, and after the next run the new one."""
        if not SHIM:
            self.skipTest("no fault shim was built")
        for form, old, new, delta in self.forms():
            first, second = (path if path.is_dir() else path.parent / f"folder of {path.name}" for path in (old, new))
            for path, folder in ((old, first), (new, second)):
                if folder != path:
                    folder.mkdir()
                    path.rename(folder / old.name)
            at = first if form == "folder" else first / old.name
            kept, wanted = contents(first), contents(second)
            log = self.path("log")
            done = self.run_program("apply", delta, at, "-q", env=shim(CALLS, "signal", 0, log))
            self.assertEqual((done.returncode, contents(first)), (0, wanted), done.stderr)
            steps = range(1, int(log.read_text().split()[-1]) + 1)
            if 0 < KILLS < len(steps):
                steps = random.Random(len(form)).sample(steps, KILLS)
            journals = 0
            for step in steps:
                for name, content in kept.items():
                    (first / name).write_bytes(content)
                killed = self.run_program("apply", delta, at, "-q", env=shim(CALLS, "signal", step, log, FAULT_SIGNAL=signal.SIGKILL,
                                                                             FAULT_SLEEP=0))
                self.assertEqual(killed.returncode, -signal.SIGKILL)
                left = {name: content for name, content in contents(first).items() if not name.endswith(".ztstream-tmp")}
                journal = [name for name in left if name.endswith(".ztstream-journal")]
                if journal:
                    journals += 1
                    for command in (["convert", at, "-o", self.path("x.zt")], ["inspect", at], ["diff", at, new if new.exists() else at]):
                        self.fail_with(IO, *command, says=("a delta is applied to", "'ztstream apply' to it goes on"))
                else:
                    self.assertIn(left, (kept, wanted), step)
                again = self.json("apply", "--json", delta, at)
                self.assertEqual(again["went_on"], bool(journal))
                self.assertEqual(contents(first), wanted, step)
            if len(steps) > 100:
                self.assertGreater(journals, 5)

    def test_kills_at_random_moments(self):
        """Conversions to a delta, of one, and apply, each killed ZT_COUNT times: the output is as it was, or whole, and the next run
        makes it whole."""
        rng, count = numpy.random.default_rng(3), int(os.environ.get("ZT_COUNT", "2"))
        model = {f"w{i}": ("BF16", [400_000], values(rng, "BF16", 400_000)) for i in range(6)}
        old, new = (self.put(f"{name}.safetensors", encode(each)) for name, each in zip(("old", "new"), self.versions(rng, model)))
        kept, wanted = old.read_bytes(), new.read_bytes()
        self.succeed("convert", new, "--base", old, "-o", self.path("d.zt"), "-q")
        self.succeed("convert", new, "-o", self.path("whole.zt"), "-q")
        live = self.path("live.safetensors")
        runs = {"d2.zt": ["convert", new, "--base", old, "-o", self.path("d2.zt"), "-fq"],
                "made.zt": ["convert", self.path("d.zt"), "-o", self.path("made.zt"), "-fq"],
                "live.safetensors": ["apply", "-q", self.path("d.zt"), live]}
        right = {"d2.zt": self.path("d.zt").read_bytes(), "made.zt": self.path("whole.zt").read_bytes(), "live.safetensors": wanted}
        generator = random.Random(SEED + 1)
        for name, words in runs.items():
            before = kept if name == live.name else b"what was there"
            self.path(name).write_bytes(before)
            started = time.monotonic()
            self.succeed(*words)
            seconds, killed, journals = time.monotonic() - started, 0, 0
            for tries in itertools.count(1):
                self.path(name).write_bytes(before)
                process = subprocess.Popen([support.PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(generator.random() * seconds)
                process.kill()
                killed += process.wait() < 0
                journal = self.path(f".{live.name}.ztstream-journal")
                journals += journal.exists()
                if not journal.exists():
                    self.assertIn(self.path(name).read_bytes(), (before, right[name]), name)
                self.succeed(*words)
                self.assertEqual(self.path(name).read_bytes(), right[name], name)
                self.assertFalse(journal.exists())
                if killed >= count or tries > 10 * count:
                    break
            if count > 100:
                print(f"{name}: {killed} of {tries} were killed before their end, {journals} left a journal")

    def interrupted(self, form, old, delta):
        """Kills apply at a checkpoint, as soon as a journal is left; its path."""
        if not SHIM:
            self.skipTest("no fault shim was built")
        log = self.path("log")
        kept = contents(old) if form == "folder" else {old.name: old.read_bytes()}
        folder = old if form == "folder" else old.parent
        journal = self.path(f".{old.name}.ztstream-journal") if form != "folder" else old / ".ztstream-journal"
        for step in itertools.count(1):
            for name, content in kept.items():
                (folder / name).write_bytes(content)
            done = self.run_program("apply", delta, old, "-q", env=shim(CALLS, "signal", step, log, FAULT_SIGNAL=signal.SIGKILL,
                                                                        FAULT_SLEEP=0))
            self.assertNotEqual(done.returncode, 0, "no journal was left")
            if journal.exists():
                return journal

    def test_a_checkpoint_that_is_written_to_meanwhile(self):
        """What was read of it is not what is there: nothing is changed, and no journal left."""
        if not SHIM:
            self.skipTest("no fault shim was built")
        old, new, delta = next(each for form, *each in self.forms() if form == "safetensors")
        edited, log = old.read_bytes().replace(b'"k": "v"', b'"k": "w"'), self.path("log")
        for step in itertools.count(1):
            log.write_bytes(b"")
            environment = shim(("pread", "preadv"), "signal", step, log, FAULT_SIGNAL=signal.SIGSTOP, FAULT_SLEEP=0)
            with subprocess.Popen([support.PROGRAM, "apply", delta, old, "-q"], env=environment, stderr=subprocess.PIPE) as process:
                os.waitpid(process.pid, os.WUNTRACED)
                _, offset, path = log.read_text().splitlines()[0].split(" ", 2)
                are_tensors = path == str(old) and int(offset) > 8
                if are_tensors:
                    old.write_bytes(edited)
                process.send_signal(signal.SIGCONT if are_tensors else signal.SIGKILL)
                errors = process.communicate()[1]
            if are_tensors:
                break
        self.assertEqual((process.returncode, old.read_bytes()), (INVALID, edited), errors)
        self.assertIn(b"it has been written to since it was opened", errors)
        self.assertFalse(self.path(f".{old.name}.ztstream-journal").exists())

    def test_a_journal_of_other_bytes(self):
        """What took a checkpoint's place is not overwritten; what was written in part is written to its end."""
        for form, old, new, delta in self.forms():
            with self.subTest(form=form):
                journal = self.interrupted(form, old, delta)
                kept = journal.read_bytes()
                file = next(old.glob("*1-of*.safetensors")) if form == "folder" else old
                there, wanted = file.read_bytes(), (new / file.name if form == "folder" else new).read_bytes()
                if form == "2.0":
                    self.fail_with(IO, "convert", new, "-o", old, "-f", says="a delta is applied to")
                    self.assertEqual(old.read_bytes(), there)
                for other in (there[:-1], there + b"x", bytes(len(there)), b""):
                    if len(there) <= len(other) <= len(wanted) and form == "2.0" and other != bytes(len(there)):
                        continue  # a file of .zt grows with its manifest
                    file.write_bytes(other)
                    self.fail_with(INVALID, "apply", delta, old,
                                   says=(f"it was made for other bytes than those of '{file.name}', which was replaced meanwhile; remove it",))
                    self.assertEqual((file.read_bytes(), journal.read_bytes()), (other, kept))
                if form == "folder":  # a file of the model that was edited
                    file.write_bytes(there)
                    config = old / "config.json"
                    was = config.read_bytes()
                    for edited in (was.replace(b"old", b"our"), was.replace(b"x", b"y") + b"\n"):
                        config.write_bytes(edited)
                        self.fail_with(INVALID, "apply", delta, old, says="it was made for other bytes than those of 'config.json'")
                        self.assertEqual((config.read_bytes(), file.read_bytes(), journal.read_bytes()), (edited, there, kept))
                    config.write_bytes(was + (new / "config.json").read_bytes()[len(was):])  # written in part
                for part in (there, there[:len(wanted) // 2] + wanted[len(wanted) // 2:len(there)], wanted):
                    file.write_bytes(part)
                    journal.write_bytes(kept)
                    self.assertTrue(self.json("apply", "--json", delta, old)["went_on"])
                    self.same(old, new)
                    self.assertFalse(journal.exists())

    def test_a_journal_is_as_secret_as_the_most_secret_file(self):
        _, old, new, delta = next(each for each in self.forms() if each[0] == "folder")
        for name in ("config.json", "model-00002-of-00002.safetensors"):
            (old / name).chmod(0o600)
            kept = contents(old)
            self.assertEqual(self.interrupted("folder", old, delta).stat().st_mode & 0o777, 0o600)
            self.succeed("apply", delta, old, "-q")
            self.same(old, new)
            for each, content in kept.items():
                (old / each).write_bytes(content)
            (old / name).chmod(0o644)

    def test_who_reads_beside_a_journal(self):
        old, new, delta = next(each for form, *each in self.forms() if form == "safetensors")
        journal = self.interrupted("safetensors", old, delta)
        self.assertEqual(journal.stat().st_mode & 0o777, old.stat().st_mode & 0o777)
        link, second = self.path("links/current.safetensors"), self.path("links/again.safetensors")
        link.parent.mkdir()
        link.symlink_to(old)
        second.symlink_to(link.name)
        for name in (link, second):
            for command in (["convert", name, "-o", "x.zt"], ["inspect", name], ["diff", name, new], ["verify", name]):
                self.fail_with(IO, *command, says="a delta is applied to")
        # A journal of others, or of other files.
        kept = journal.read_bytes()
        journal.rename(self.path("elsewhere"))
        journal.symlink_to(self.path("elsewhere"))
        self.fail_with(INVALID, "apply", delta, old, says="it is a link, or of another owner than the checkpoint")
        journal.unlink()
        other = self.path(f".{new.name}.ztstream-journal")
        other.write_bytes(kept)
        before = new.read_bytes()
        self.fail_with(INVALID, "apply", delta, new, says="it is not a journal of 'ztstream apply', or is damaged")
        self.assertEqual(new.read_bytes(), before)
        other.unlink()
        self.path("elsewhere").rename(journal)
        old.chmod(0o600)
        self.succeed("apply", delta, old, "-q")
        self.same(old, new)

    def test_files_that_do_not_change_are_not_touched(self):
        model, fresh = self.versions()
        fresh["same"] = model["same"]
        names = sorted(model)  # b and w go to one file, "same" to the other
        fresh["b"] = model["b"]
        old, new = self.in_form("old", "folder", model), self.in_form("new", "folder", {name: fresh[name] for name in names})
        (new / "config.json").write_bytes((old / "config.json").read_bytes())
        files = {path.name: path.stat().st_mtime_ns for path in old.iterdir()}
        os.chmod(old / "model-00001-of-00002.safetensors", 0o640)
        delta = self.delta(new, old)
        self.succeed("apply", delta, old, "-q")
        self.same(old, new)
        changed = [name for name, at in files.items() if (old / name).stat().st_mtime_ns != at]
        self.assertEqual(len(changed), 1, changed)

    def test_a_journal_that_was_damaged(self):
        old, new = (self.in_form(name, "safetensors", model) for name, model in zip(("old", "new"), self.versions()))
        delta = self.delta(new, old)
        journal = self.path(".old.safetensors.ztstream-journal")
        for content in (b"", b"ztapply1", b"ztapply1" + bytes(16), b"x" * 100):
            journal.write_bytes(content)
            self.fail_with(INVALID, "apply", delta, old, says="it is not a journal of 'ztstream apply', or is damaged")
        journal.unlink()
        self.succeed("apply", delta, old, "-q")
        self.same(old, new)
