"""Whole checkpoints: the folders of make_folders.py in one .zt file and back, byte for byte, each through five storages, in turn.

ZT_WAYS=all tries all of them. ZT_SCALE multiplies the sizes of the weights (60 KB a tensor): 1000 and more show the memory that large ones take.
"""
import json
import os
import pathlib
import random
import shutil

import make_folders
import make_safetensors
import support
from support import DIFFERS, DONE, INVALID, UNSUPPORTED, USAGE

SCALE = int(os.environ.get("ZT_SCALE", "1"))
MIB = 96  # the most that a run may take
# How the model is stored between the two folders.
WAYS = {"raw": [["--raw"]], "zstd": [["--zstd"]], "planes": [["--zstd=planes"]], "2.0": [["--spec", "2.0"]],
        "2.0 planes": [["--spec", "2.0", "--zstd=planes"]], "canonical": [["--canonical"]],
        "shards": [["--shards", "2", "--zstd"]], "shards of 2.0": [["--shards", "2", "--spec", "2.0"]], "pipe": [["-o", "-"]],
        "kept, then 2.0, then canonical": [["--zstd=planes"], ["--exclude", "^$"], ["--spec", "2.0"], ["--canonical"]],
        "shards cut anew": [["--shards", "2", "--zstd=planes"], ["--shards", "1"], ["--shards", "2", "--spec", "2.0"]]}
SHARDS = ("shards", "shards of 2.0", "shards cut anew")


class Whole(support.EndToEnd):

    def make(self, name):
        """(folder, options that it needs, the folder as it must come back, what is left out)."""
        folder = self.path(name)
        for old in (folder, self.path(name + ".blobs")):
            shutil.rmtree(old, ignore_errors=True)
        folder.mkdir()
        left_out = {**make_folders.FOLDERS, **make_folders.MORE}[name](folder, SCALE) or {}
        expected = self.path("expected")
        shutil.rmtree(expected, ignore_errors=True)
        shutil.copytree(folder, expected)  # with files in place of links
        for path in left_out:
            if path.endswith("/"):
                shutil.rmtree(expected / path)
            else:
                (expected / path).unlink()
        for path, folders, files in os.walk(expected, topdown=False):
            if not os.listdir(path):
                os.rmdir(path)
        return folder, ["--follow-links"] * (name == "hub"), expected, left_out

    def run_small(self, *arguments, output=None):
        """Runs the program, which must succeed in little memory."""
        if output is not None or self.sanitized():
            content = self.succeed(*arguments)
            if output is not None:
                output.write_bytes(content)
            return
        status, _, memory = self.costs(*arguments, "-q", "-T", "2")
        self.assertEqual(status, DONE, arguments)
        self.assertLess(memory, MIB, arguments)

    def store(self, source, steps, needed):
        """Converts the source step by step; what holds the model in the end."""
        for number, step in enumerate(steps):
            out = self.path(f"model{number}")
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            model = out / "m.zt"
            if step == ["-o", "-"]:
                self.run_small("convert", source, *needed, *step, output=model)
            else:
                self.run_small("convert", source, *needed, *step, "-o", model)
            source, needed = model if model.exists() else out / "m.zt.index.json", []
        return source

    def check(self, name, ways):
        folder, needed, expected, left_out = self.make(name)
        plan = self.json("convert", folder, *needed, "--dry-run", "--json")
        self.assertEqual({each["path"] for each in plan.get("left_out", [])}, set(left_out))
        for each in plan.get("left_out", []):
            self.assertIn(left_out[each["path"]], each["why"])
        several = plan["tensors"] > 1
        for way in ways:
            steps = WAYS[way]
            if way in SHARDS and not several:
                continue
            with self.subTest(folder=name, way=way):
                model, back = self.store(folder, steps, needed), self.path("back")
                shutil.rmtree(back, ignore_errors=True)
                self.run_small("extract", model, "-o", f"{back}/", "--to", "safetensors")
                self.same_folders(expected, back)
                lacks = any("64 MiB" in why for why in left_out.values())
                self.expect(DIFFERS if lacks else DONE, "verify", model, "--against", folder, *needed)
                self.assertEqual([each for each in self.entries() if each.startswith(".")], [])

    def test_torch_only(self):
        """What did not come as safetensors comes back as one file of it, the files byte for byte."""
        folder, _, expected, left_out = self.make("torch_only")
        self.assertEqual(left_out, {})
        (expected / "pytorch_model.bin").unlink()
        for way in ("zstd", "2.0", "pipe"):
            model, back = self.store(folder, WAYS[way], []), self.path("back")
            shutil.rmtree(back, ignore_errors=True)
            self.run_small("extract", model, "-o", f"{back}/", "--to", "safetensors")
            self.succeed("diff", back / "model.safetensors", folder, "--files", "none")
            (back / "model.safetensors").unlink()
            self.same_folders(expected, back)

    # ---- one file, or one tensor, less ----

    def remove(self, rng, folder, kept):
        """Removes one of the files, or a tensor of one; what it was, or None where that cannot be."""
        path = folder / rng.choice(sorted(kept))
        if path.suffix == ".safetensors" and rng.random() < 0.5:
            tensors, metadata = make_safetensors.read(path)
            if not tensors:
                return None
            name = rng.choice(sorted(tensors))
            del tensors[name]
            path.write_bytes(make_safetensors.encode(tensors, metadata=metadata or None))
            return f"tensor {name} of {path.name}"
        path.unlink()
        return path.name

    def test_what_one_side_lacks_is_noticed(self):
        """verify --against and diff, whichever side it is and whichever of all folders. ZT_COUNT removals are tried."""
        rng, folders = random.Random(int(os.environ.get("ZT_SEED", "1"))), {**make_folders.FOLDERS, **make_folders.MORE}
        names = [name for name in folders if name not in ("sizes", "torch_only")]  # large; of another format
        for trial in range(int(os.environ.get("ZT_COUNT", "28"))):
            name = names[trial % len(names)]
            folder, needed, expected, _ = self.make(name)
            kept = {path.relative_to(expected).as_posix() for path in expected.rglob("*") if path.is_file()}
            less = self.path("less")
            shutil.rmtree(less, ignore_errors=True)
            shutil.copytree(folder, less, symlinks=False)
            removed = self.remove(rng, less, kept)
            if removed is None:
                continue
            with self.subTest(trial=trial, folder=name, removed=removed):
                whole, part = self.path("whole.zt"), self.path("part.zt")
                self.succeed("convert", "-f", folder, *needed, "-o", whole)
                self.check_noticed("verify", whole, "--against", less)
                self.check_noticed("diff", whole, less)
                self.check_noticed("diff", less, whole)
                if self.run_program("convert", "-f", less, "-o", part).returncode == DONE:  # an index may name what is gone
                    self.check_noticed("verify", part, "--against", folder, *needed)
                    self.check_noticed("diff", part, folder, *needed)

    def check_noticed(self, *command):
        """An error, a difference, or the warning that one side has no files at all."""
        done = self.run_program(*command)
        if done.returncode == DONE:
            self.assertRegex(done.stderr.decode(), r"of the model (is|are) not compared: the other side has none", command)
        else:
            self.assertIn(done.returncode, (DIFFERS, USAGE, INVALID, UNSUPPORTED), (command, done.stdout, done.stderr))

    # ---- a pipeline, of which some changes ----

    def pipeline(self):
        folder, _, expected, _ = self.make("pipeline")
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        return folder, expected

    def weights(self, folder):
        return {path.relative_to(folder).as_posix(): make_safetensors.read(path)[0] for path in sorted(folder.rglob("*.safetensors"))}

    def test_names_begin_with_the_folders(self):
        folder, _ = self.pipeline()
        listed = self.json("inspect", self.path("m.zt"), "--json")
        self.assertEqual(sorted(each["name"] for each in listed["objects"]),
                         ["text_encoder/model.embed", "unet/conv_in.weight", "unet/conv_out.weight", "vae/conv_in.weight", "vae/conv_out.weight"])
        self.assertEqual(len(listed["files"]), 10)
        self.succeed("diff", self.path("m.zt"), folder)
        self.assertEqual(self.succeed("id", self.path("m.zt")), self.succeed("id", folder))

    def test_changed_weights_go_into_their_folders(self):
        """By convert or by extract: the new files have the old ones' names, and their tensors the names without the folders."""
        folder, expected = self.pipeline()
        self.succeed("convert", folder, "-o", self.path("half.zt"), "--dtype", "f16", "--on-overflow", "inf")
        process = self.run_program("convert", self.path("half.zt"), "-o", self.path("again.zt"), "--exclude", "embed")
        self.assertNotIn(b"tensors are ", process.stderr)
        ways = {"a": ("extract", self.path("half.zt")), "b": ("extract", self.path("m.zt"), "--dtype", "f16", "--on-overflow", "inf")}
        for name, arguments in ways.items():
            process = self.run_program(*arguments, "-o", f"{self.path(name)}/", "--to", "safetensors")
            self.assertEqual(process.returncode, DONE, process.stderr)
            self.assertIn(b"the files of weights are not those that the model had", process.stderr)
        self.same_folders(self.path("a"), self.path("b"))
        found = self.weights(self.path("a"))
        self.assertEqual({path: sorted(held) for path, held in found.items()}, {
            "text_encoder/model.safetensors": ["model.embed"],
            "unet/diffusion_pytorch_model.safetensors": ["conv_in.weight", "conv_out.weight"],
            "vae/diffusion_pytorch_model.safetensors": ["conv_in.weight", "conv_out.weight"]})
        self.assertEqual({dtype for held in found.values() for dtype, _, _ in held.values()}, {"F16"})
        self.assertEqual((self.path("a") / "unet/config.json").read_bytes(), (expected / "unet/config.json").read_bytes())
        self.succeed("diff", self.path("a"), self.path("half.zt"), "--files", "none")

    def test_some_of_it_and_other_shards(self):
        folder, _ = self.pipeline()
        self.succeed("extract", self.path("m.zt"), "-o", f"{self.path('some')}/", "--to", "safetensors", "--include", "^vae/", "-q")
        self.assertEqual(list(self.weights(self.path("some"))), ["vae/diffusion_pytorch_model.safetensors"])
        self.succeed("extract", self.path("m.zt"), "-o", f"{self.path('cut')}/", "--to", "safetensors", "--shard-size", "1", "-q")
        files = self.weights(self.path("cut"))
        self.assertEqual(sorted(files), ["text_encoder/model.safetensors"] + [
            f"{name}/diffusion_pytorch_model-0000{i}-of-00002.safetensors" for name in ("unet", "vae") for i in (1, 2)])
        index = json.loads((self.path("cut") / "vae/diffusion_pytorch_model.safetensors.index.json").read_text())
        self.assertEqual(index["weight_map"], {name: pathlib.PurePath(path).name for path, held in files.items()
                                               if path.startswith("vae/") for name in held})
        self.succeed("diff", self.path("cut"), folder, "--files", "none")

    def test_a_pipeline_without_weights_below(self):
        """Then it is a folder like others."""
        make_folders.single(self.put("f/model_index.json", b"{}").parent)
        self.succeed("convert", self.path("f"), "-o", self.path("m.zt"))
        self.assertEqual(sorted(each["name"] for each in self.json("inspect", "--json", self.path("m.zt"))["objects"]), ["v", "w"])
        self.succeed("extract", self.path("m.zt"), "-o", f"{self.path('back')}/", "--to", "safetensors")
        self.same_folders(self.path("f"), self.path("back"))

    def test_an_adapter_keeps_its_name(self):
        folder, _, _, _ = self.make("adapter")
        self.succeed("convert", folder, "-o", self.path("m.zt"), "--dtype", "f32", "-q")
        self.succeed("extract", self.path("m.zt"), "-o", f"{self.path('back')}/", "--to", "safetensors", "-q")
        self.assertEqual(list(self.weights(self.path("back"))), ["adapter_model.safetensors"])

    def test_memory(self):
        """Weights of 2 x 48 MB, in and out, kept, cut, changed."""
        if self.sanitized():
            self.skipTest("sanitizers take memory of their own")
        folder = self.path("f")
        folder.mkdir()
        make_folders.sharded(folder, 400)
        model, kept, other = self.path("m.zt"), self.path("kept.zt"), self.path("2.zt")
        self.run_small("convert", folder, "-o", model, "--zstd=planes")
        self.run_small("convert", model, "-o", kept, "--rename", "s/^model/m/")
        self.run_small("convert", model, "-o", other, "--spec", "2.0")
        self.run_small("convert", other, "-o", self.path("c.zt"), "--canonical")
        self.run_small("convert", other, "-o", self.path("s.zt"), "--shards", "3", "--spec", "2.0")
        self.run_small("convert", self.path("s.zt"), "-o", self.path("t.zt"), "--shards", "2")
        for name, options in {"a": [], "b": ["--dtype", "f32"], "c": ["--shard-size", "20MB"]}.items():
            self.run_small("extract", model, "-o", f"{self.path(name)}/", "--to", "safetensors", *options)
        self.run_small("extract", model, "-o", self.path("x.npz"), "--dtype", "f32")
        self.run_small("verify", other, "--against", folder)
        self.same_folders(folder, self.path("a"))


def add(name, *ways):
    setattr(Whole, f"test_{name}", lambda self: self.check(name, *ways))


ALL = os.environ.get("ZT_WAYS") == "all"
for number, each in enumerate(make_folders.FOLDERS):
    if each != "torch_only":
        add(each, [*WAYS] if ALL else [[*WAYS][(5 * number + turn) % len(WAYS)] for turn in range(5)])
for each in make_folders.MORE:
    add(each, ("zstd", "shards of 2.0"))
