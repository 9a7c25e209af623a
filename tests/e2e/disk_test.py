"""Checkpoints as they lie on people's disks: names of shards and indices, what is no second copy, pipelines, what a folder lacks.

ZT_REMOVALS sets how many random removals from a folder or a file are tried (30).
"""
import hashlib
import json
import os
import random
import shutil
import struct

import numpy

import make_folders
import make_safetensors
import pickle_assembler
import support
import ztread
from support import DATA, DIFFERS, DONE, INVALID, IO, UNSUPPORTED, USAGE

REMOVALS = int(os.environ.get("ZT_REMOVALS", "30"))
MORE = (64 << 20) + 1  # bytes of a file that is not taken along
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 499723\n"
NOT_READ = "warning: other variants of the weights are not read: "
LARGE = "more than 64 MiB; --files all takes all of them"

# Names of a part of two or three, of which another is missing.
PARTS = ("model-00001-of-00002.safetensors", "model-00001-of-00002.fp16.safetensors", "model.fp16-00001-of-00002.safetensors",
         "diffusion_pytorch_model-00001-of-00003.bf16.safetensors", "diffusion_pytorch_model-00001-of-00003.safetensors",
         "model-00001-of-00002.bf16.safetensors", "model-1-of-2.safetensors", "model_00001-of-00002.safetensors",
         "model_00001_of_00002.safetensors", "model-00001-of-00002-fp8.safetensors", "MODEL-00001-OF-00002.safetensors",
         "model-000001-of-000002.safetensors", "model-00001-of-00002.SAFETENSORS", "pytorch_model-00001-of-00002.bin",
         "pytorch_model-00001-of-00002.fp16.bin", "pytorch_model.fp16-00001-of-00002.bin",
         # and more of them
         "00001-of-00002.safetensors", "model.00001-of-00002.safetensors", "model-00001-of-00002_int8.safetensors",
         "a-00001-of-00009-00001-of-00002.safetensors", "adapter_model-00001-of-00002.ema.safetensors", "pytorch_model_00001_of_00002.bin")
INDICES = (None, "model.safetensors.index.fp16.json", "model.fp16.safetensors.index.json",
           "diffusion_pytorch_model.safetensors.index.bf16.json", "pytorch_model.bin.index.fp16.json")


def weights(name, value=1.0):
    return {name: ("F32", [2], struct.pack("<2f", value, value))}


class Disk(support.EndToEnd):

    def save(self, path, tensors, metadata=None):
        """Tensors in the format that the name says."""
        return self.put(path, pickle_assembler.checkpoint(tensors) if path.endswith((".bin", ".pt", ".pth"))
                        else make_safetensors.encode(tensors, metadata))

    def text(self, path, value):
        return self.put(path, value if isinstance(value, bytes) else json.dumps(value).encode())

    def hole(self, path, size=MORE):
        """A file of zeros that takes no place on the disk."""
        with open(self.put(path, b""), "r+b") as file:
            file.truncate(size)

    def index(self, path, **shards):
        self.text(path, {"metadata": {}, "weight_map": shards})

    def convert(self, folder, *options):
        process = self.expect(DONE, "convert", self.path(folder), "-o", self.path("m.zt"), "-f", *options)
        return process.stderr.decode()

    def types(self, *words):
        """{name: type} of what is listed, and what is said."""
        done = self.expect(DONE, "inspect", "--json", *words)
        return {each["name"]: each["kind"] for each in json.loads(done.stdout)["objects"]}, done.stderr.decode()

    def back(self, *options):
        """The folder that comes out of m.zt, as path -> bytes, and what was said."""
        out = self.path("back")
        shutil.rmtree(out, ignore_errors=True)
        process = self.expect(DONE, "extract", self.path("m.zt"), "-o", f"{out}/", "--to", "safetensors", *options)
        return self.read(out), process.stderr.decode()

    def read(self, folder):
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    def parts(self, path):
        """(metadata, names of the tensors) of a file that came back."""
        data = (self.path("back") / path).read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        return header.pop("__metadata__", None), header


class Shards(Disk):

    def test_a_missing_part_is_noticed_whatever_the_names(self):
        for name in PARTS:
            for index in INDICES:
                with self.subTest(name, index=index):
                    shutil.rmtree(self.path("f"), ignore_errors=True)
                    self.text("f/config.json", {})
                    self.save(f"f/{name}", weights("a"))
                    if index:
                        self.index(f"f/{index}", a=name, b=name.replace("00001-", "00002-").replace("_00001", "_00002"))
                    self.fail_with((INVALID, USAGE), "convert", self.path("f"), "-o", self.path("m.zt"))
        self.assertEqual(self.entries(), ["f"])

    def test_a_variant_is_checked_both_ways(self):
        shards = [f"model-0000{i}-of-00002.fp16.safetensors" for i in (1, 2)]
        for i, name in enumerate(shards):
            self.save(f"f/{name}", weights(f"t{i}"))
        for index in INDICES[1:3]:
            self.index(f"f/{index}", t0=shards[0], t1=shards[1])
            self.convert("f")
            self.assertIn(index, self.back()[0])
            self.index(f"f/{index}", t0=shards[0], t1=shards[0])
            self.fail_with(INVALID, "convert", self.path("f"), "-o", self.path("n.zt"), says=f"{index}: it leaves out shards 00002 of 'model-*-of-00002.fp16.safetensors'")
            self.index(f"f/{index}", t0=shards[0], t1=shards[1], t2=shards[1])
            self.fail_with(INVALID, "convert", self.path("f"), "-o", self.path("n.zt"), says=["tensor 't2': it is not in", index])
            self.path(f"f/{index}").unlink()

    def test_the_index_without_a_variant_is_meant(self):
        for variant in ("", ".fp16"):
            names = [f"model-0000{i}-of-00002{variant}.safetensors" for i in (1, 2)]
            for i, name in enumerate(names):
                self.save(f"f/{name}", {f"t{i}": ("F16", [2], b"12" * 2)} if variant else weights(f"t{i}"))
            self.index(f"f/model.safetensors.index{variant}.json", t0=names[0], t1=names[1])
        said = self.convert("f")
        self.assertIn(NOT_READ + "model-00001-of-00002.fp16.safetensors, model-00002-of-00002.fp16.safetensors; --variant chooses one\n", said)
        self.assertEqual(self.back()[0], self.read(self.path("f")))
        self.succeed("diff", self.path("m.zt"), self.path("f/model.safetensors.index.json"), "--files", "none")
        self.expect(DIFFERS, "diff", self.path("m.zt"), self.path("f/model.safetensors.index.fp16.json"), "--files", "none")

    def test_a_variant_beside_the_file_is_a_file(self):
        """diffusers' and Whisper's repositories; the index of a variant counts no more than its shards."""
        half = {"a": ("F16", [2], b"1234"), "b": ("F16", [2], b"5678")}
        parts = [f"model.fp32-0000{i}-of-00002.safetensors" for i in (1, 2)]
        parts_behind = [f"model-0000{i}-of-00002.fp32.safetensors" for i in (1, 2)]
        cases = {"one": ["model.fp16.safetensors"], "two": ["model.fp16.safetensors", "model.non_ema.safetensors"],
                 "shards": parts, "indexed": parts, "third form": parts, "behind": parts_behind, "bin": ["model.fp16.bin"]}
        for case, variants in cases.items():
            with self.subTest(case):
                shutil.rmtree(self.path("f"), ignore_errors=True)
                base = "model.bin" if case == "bin" else "model.safetensors"
                self.save(f"f/{base}", half)
                for name, tensors in zip(variants, ({**weights("a")}, {**weights("b")}), strict=False):
                    self.save(f"f/{name}", tensors)
                if case in ("indexed", "third form"):
                    self.index("f/model.safetensors.index.fp32.json" if case == "indexed" else "f/model.fp32.safetensors.index.json", a=parts[0], b=parts[1])
                said = self.convert("f", *(["--from", "torch"] if case == "bin" else []))
                self.assertIn(NOT_READ + ", ".join(variants) + "; --variant chooses one\n", said)
                self.succeed("diff", self.path("m.zt"), self.path(f"f/{base}"), "--files", "none")
                was = self.read(self.path("f"))
                found = self.back()[0]
                self.assertEqual({name: found[name] for name in was if name != "model.bin"}, {name: data for name, data in was.items() if name != "model.bin"})
        # Other tensors, and another version, are no variant.
        shutil.rmtree(self.path("f"))
        self.save("f/model.safetensors", half)
        self.save("f/model.vision.safetensors", weights("c"))
        self.assertNotIn("warning", self.convert("f"))
        self.assertEqual(self.back()[0], self.read(self.path("f")))
        self.save("f/model.1.safetensors", half)
        self.fail_with(INVALID, "convert", self.path("f"), "-o", self.path("n.zt"), says="it is in both model.1.safetensors and model.safetensors")

    def test_two_sets_without_an_index_are_no_model(self):
        for stem in ("model", "consolidated"):
            for i in (1, 2):
                self.save(f"f/{stem}-0000{i}-of-00002.safetensors", weights(f"{stem}{i}"))
        says = ["no index, and several sets of shards, 'consolidated-*-of-00002.safetensors' and 'model-*-of-00002.safetensors'"]
        self.fail_with(USAGE, "convert", self.path("f"), "-o", self.path("m.zt"), says=says)
        self.index("f/model.safetensors.index.json", model1="model-00001-of-00002.safetensors", model2="model-00002-of-00002.safetensors")
        self.assertIn("warning: consolidated-00001-of-00002.safetensors is not in model.safetensors.index.json", self.convert("f"))

    def test_a_shard_without_tensors_needs_no_place_in_the_index(self):
        names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
        for i, name in enumerate(names):
            self.save(f"f/{name}", weights(f"t{i}") if i < 2 else {})
        self.index("f/model.safetensors.index.json", t0=names[0], t1=names[1])
        self.assertNotIn("warning", self.convert("f"))
        self.assertEqual(self.back()[0], self.read(self.path("f")))
        self.save(f"f/{names[2]}", weights("t2"))
        self.fail_with(INVALID, "convert", self.path("f"), "-o", self.path("n.zt"), says="it leaves out shards 00003")


class Kept(Disk):

    STATES = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "optimizer.bin", "random_states_0.pkl", "scaler.pt",
              "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step5/mp_rank_00_model_states.pt",
              "pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_0/.metadata")

    def test_the_state_of_a_training_goes_along_whatever_its_size(self):
        """transformers' Trainer, accelerate, DeepSpeed, FSDP."""
        self.save("f/model.safetensors", weights("w"))
        for state in self.STATES:
            self.put(f"f/{state}", b"state")
        self.save("f/optimizer.pt", weights("state.0.exp_avg"))
        self.save("f/rng_state.pth", weights("cpu"))
        self.assertNotIn("left out", self.convert("f"))
        self.assertEqual(self.back()[0], self.read(self.path("f")))
        for state in ("optimizer.pt", "optimizer.bin", "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt"):
            self.hole(f"f/{state}")
        self.assertNotIn("left out", self.convert("f", "--zstd"))
        self.succeed("verify", self.path("m.zt"), "--against", self.path("f"))

    def test_what_is_optimized_is_no_state_of_a_training(self):
        self.save("f/model.safetensors", weights("w"))
        for name in ("onnx/model_optimized.onnx", "optimum/model.bin"):
            self.hole(f"f/{name}")
            self.assertIn(name, self.convert("f"))
        self.assertIn("(64.00 MiB) are left out: they have " + LARGE, self.convert("f"))

    def test_a_copy_has_the_same_names_shapes_and_types(self):
        tied = struct.pack("<2f", 1, 2)
        ours = {"embed": ("F32", [2], tied), "n": ("F32", [1], bytes(4))}
        cases = {"the same": (ours, True), "a part": ({"n": ours["n"]}, True), "tied": ({**ours, "head": ("F32", [2], tied)}, True),
                 "more": ({**ours, "head": ("F32", [2], bytes(8))}, False), "another shape": ({**ours, "n": ("F32", [2], bytes(8))}, False),
                 "another type": ({**ours, "n": ("F16", [1], bytes(2))}, False), "others": (weights("x"), False)}
        self.save("f/model.safetensors", ours)
        for case, (tensors, copy) in cases.items():
            with self.subTest(case):
                self.save("f/pytorch_model.bin", tensors)
                self.index("f/pytorch_model.bin.index.json", **dict.fromkeys(tensors, "pytorch_model.bin"))
                plan = self.json("convert", self.path("f"), "-n", "--json")
                left = {each["path"]: each["why"] for each in plan.get("left_out", [])}
                self.assertEqual(left, {"pytorch_model.bin": make_folders.COPY, "pytorch_model.bin.index.json": make_folders.INDEX} if copy else {})
        # Another file than the one that is read, with the same tensors, holds other values.
        for name in ("model.non_ema.bin", "consolidated.pt"):
            self.save(f"f/{name}", ours)
        # In a folder below they are those of another step of the training.
        self.save("f/pytorch_model.bin", ours)
        self.save("f/checkpoint-5/model.safetensors", ours)
        folder = ("--to", "safetensors", "-o", "g/")
        for words in (("convert", "f"), ("convert", "f", *folder), ("extract", "f", *folder)):
            self.assertEqual([each["path"] for each in self.json(*words, "-n", "--json")["left_out"]],
                             ["pytorch_model.bin", "pytorch_model.bin.index.json"])

    def test_what_is_left_out_is_named_and_counted(self):
        self.save("f/model.safetensors", weights("w"))
        self.text("f/config.json", {})
        for name in ("speech_tokenizer/model.safetensors", "vocoder.pt"):
            self.hole(f"f/{name}")
        warning = "speech_tokenizer/model.safetensors (64.00 MiB), vocoder.pt (64.00 MiB) are left out: they have " + LARGE
        for words in (["convert", "f", "-o", "m.zt"], ["convert", "f", "-n"], ["inspect", "f"], ["id", "f"], ["extract", "f", "-o", "x.safetensors"]):
            self.assertIn(f"ztstream: warning: {warning}\n", self.expect(DONE, *words).stderr.decode(), words)
        self.assertEqual(self.json("convert", "f", "-n", "--json")["warnings"], [warning])
        said = self.expect(DIFFERS, "verify", "m.zt", "--against", "f").stderr.decode()
        for name in ("speech_tokenizer/model.safetensors", "vocoder.pt"):
            self.assertIn(f"m.zt: file '{name}': only in the source\n", said)
        for pair, side in (("m.zt", "f"), "only_second"), (("f", "m.zt"), "only_first"):
            found = json.loads(self.expect(DIFFERS, "diff", *pair, "--json").stdout)
            self.assertEqual((found["equal"], found[side], [each["kind"] for each in found["differences"]]), (False, 2, [side] * 2))
        self.convert("f", "--files", "all", "--zstd")
        self.succeed("verify", "m.zt", "--against", "f")
        # Two folders are compared whatever the sizes.
        shutil.copytree(self.path("f"), self.path("g"))
        with open(self.path("g/vocoder.pt"), "r+b") as file:
            file.write(b"x")
        self.assertIn(b"file 'vocoder.pt': 1 of 67108865 elements differ", self.expect(DIFFERS, "diff", "f", "g").stdout)

    def test_files_with_weights_are_compared_with_what_has_no_files(self):
        self.save("f/model.safetensors", weights("w"))
        self.text("f/config.json", {})
        self.convert("f")
        self.succeed("diff", "m.zt", "f/model.safetensors")
        self.save("f/optimizer.pt", weights("state"))
        self.convert("f")
        for pair in (("m.zt", "f/model.safetensors"), ("f/model.safetensors", "f")):
            found = json.loads(self.expect(DIFFERS, "diff", *pair, "--json").stdout)
            self.assertEqual((found["files_not_compared"], [each["file"] for each in found["differences"]]), (1, ["optimizer.pt"]))
        # A folder could have files.
        self.save("g/model.safetensors", weights("w"))
        for pair in (("f", "g"), ("m.zt", "g")):
            self.expect(DIFFERS, "diff", *pair)
        self.expect(DIFFERS, "verify", "m.zt", "--against", "g")

    def test_glob_means_what_it_means_elsewhere(self):
        self.save("f/model.safetensors", weights("w"))
        self.text("f/sub/config.json", {})
        self.put("f/.hidden", b"x")
        for words, want in ((["glob:*"], [".hidden", "sub/config.json"]), (["*"], ["sub/config.json"]), (["glob:*.json"], ["sub/config.json"])):
            self.convert("f", *(f"--files={word}" for word in words))
            listed = self.json("inspect", "--json", "m.zt")["files"]
            self.assertEqual([each["attributes"]["path"] for each in listed], want)
            self.succeed("verify", "m.zt", "--against", "f", *(f"--files={word}" for word in words))

    def test_several_inputs_name_the_weights_that_they_leave_out(self):
        for name in "fg":
            self.save(f"{name}/model.safetensors", weights(name))
            self.save(f"{name}/optimizer.pt", weights(name + ".state"))
        said = self.expect(DONE, "convert", "f", "g", "-o", "m.zt").stderr.decode()
        self.assertEqual(said.count("warning: left out: optimizer.pt: there are several inputs; --files all takes all of them\n"), 2, said)

    def test_pointers_of_git_lfs(self):
        self.save("f/model.safetensors", weights("w"))
        for name in ("tokenizer.json", "sub/tokenizer.model"):
            self.put(f"f/{name}", POINTER)
        self.assertIn("warning: sub/tokenizer.model, tokenizer.json are Git LFS pointers instead of the files; run 'git lfs pull' in the clone\n", self.convert("f"))
        self.put("f/tokenizer.json", b"{}")
        self.assertIn("warning: sub/tokenizer.model is a Git LFS pointer instead of the file; ", self.expect(DONE, "inspect", "f").stderr.decode())

    def test_a_configuration_that_is_read_is_not_replaced(self):
        shutil.copytree(DATA / "gptq", self.path("f"))
        before = self.path("f/config.json").read_bytes()
        for given in ["f/model.safetensors"], ["f/model.safetensors", "--files", "none"], ["f"]:
            self.expect(USAGE, "convert", *given, "--quant", "group", "-o", "f/config.json", "-f", says="it is an input, and would be replaced")
            self.assertEqual(self.path("f/config.json").read_bytes(), before)

    def test_safetensors_without_tensors(self):
        empty = make_safetensors.encode({})
        self.put("f/model.safetensors", empty)
        self.text("f/config.json", {})
        self.convert("f")
        self.assertEqual(self.back()[0], {"config.json": b"{}", "model.safetensors": empty})
        # Beside weights of PyTorch those are meant.
        self.save("f/pytorch_model.bin", weights("w"))
        self.convert("f")
        self.assertEqual(sorted(self.back()[0]), ["config.json", "model.safetensors", "pytorch_model.safetensors"])
        self.succeed("diff", self.path("back/pytorch_model.safetensors"), "m.zt", "--files", "none")
        # New weights get a name that no file has.
        self.save("f/model.bin", weights("x"))
        self.convert("f")
        self.assertEqual(sorted(self.back()[0]), ["config.json", "model-weights.safetensors", "model.safetensors"])
        self.assertEqual(sorted(self.parts("model-weights.safetensors")[1]), ["w", "x"])
        shutil.copy(DATA / "gguf/little.gguf", self.path("f"))
        floats = [each["name"] for each in self.json("inspect", "--json", "f/little.gguf")["objects"] if each["format"] == "dense"]
        self.succeed("convert", "f", "-o", "m.zt", "-f", "--from", "gguf", *(f"--include={name}" for name in floats))
        self.assertLessEqual({"model-weights.safetensors", "model.safetensors"}, set(self.back()[0]))
        # A file of PyTorch without tensors gets no weights that never were.
        self.put("g/training_args.bin", pickle_assembler.archive(pickle_assembler.dictionary(lr=pickle_assembler.number(1)), {}))
        self.convert("g")
        self.assertEqual(list(self.back()[0]), ["training_args.bin"])


class Pipelines(Disk):

    def pipeline(self, **components):
        self.text("f/model_index.json", {"_class_name": "P", **{name: ["diffusers", "X"] for name in components}})
        for name, files in components.items():
            self.text(f"f/{name}/config.json", {})
            for file, tensors in files.items():
                self.save(f"f/{name}/{file}", tensors)

    def test_each_component_comes_back_into_its_folder(self):
        encoder = {"model.safetensors": weights("e")}
        shards = {f"diffusion_pytorch_model-0000{i}-of-00002.bin": weights(f"u{i}") for i in (1, 2)}
        cases = {
            "bin": ({"unet": {"diffusion_pytorch_model.bin": weights("w")}, "vae": {"diffusion_pytorch_model.bin": weights("w", 2)}},
                    {"unet/diffusion_pytorch_model.safetensors": ["w"], "vae/diffusion_pytorch_model.safetensors": ["w"]}),
            "mixed": ({"text_encoder": encoder, "unet": {"diffusion_pytorch_model.bin": weights("u")}},
                      {"text_encoder/model.safetensors": None, "unet/diffusion_pytorch_model.safetensors": ["u"]}),
            "shards": ({"text_encoder": encoder, "unet": shards},
                       {"text_encoder/model.safetensors": None, "unet/diffusion_pytorch_model.safetensors": ["u1", "u2"]}),
            "others": ({"safety_checker": {"pytorch_model.fp16.bin": weights("s")}, "lora": {"pytorch_lora_weights.bin": weights("l")},
                        "unet": {"diffusion_pytorch_model.safetensors": weights("u")}, "stage_1-of-2_a": {"model.bin": weights("c")},
                        "stage_1-of-2-b": {"model-00001-of-00001.bin": weights("d")}},
                       {"safety_checker/model.fp16.safetensors": ["s"], "lora/pytorch_lora_weights.safetensors": ["l"],
                        "unet/diffusion_pytorch_model.safetensors": None, "stage_1-of-2_a/model.safetensors": ["c"],
                        "stage_1-of-2-b/model.safetensors": ["d"]})}
        for case, (components, want) in cases.items():
            for spec in ("1.2", "2.0"):
                with self.subTest(case, spec=spec):
                    shutil.rmtree(self.path("f"), ignore_errors=True)
                    self.pipeline(**components)
                    if case == "shards":
                        self.index("f/unet/diffusion_pytorch_model.bin.index.json", **{f"u{i}": f"diffusion_pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)})
                    self.assertNotIn("left out", self.convert("f", "--spec", spec))
                    found, said = self.back()
                    was = self.read(self.path("f"))
                    for path, names in want.items():
                        content = found.pop(path)
                        if names is None:
                            self.assertEqual(content, was[path])
                            continue
                        self.assertIn(path, said)
                        self.assertIn("PyTorch files are not written; their weights are in ", said)
                        metadata, tensors = self.parts(path)
                        self.assertEqual((metadata, sorted(tensors)), ({"format": "pt"}, names))
                    self.assertEqual(found, {path: data for path, data in was.items() if path.endswith(".json") and ".index" not in path})
                    self.succeed("diff", self.path("back"), self.path("f"), "--files", "none")

    def test_a_stale_index_does_not_come_back(self):
        for shards in (True, False):
            shutil.rmtree(self.path("f"), ignore_errors=True)
            self.text("f/config.json", {})
            names = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
            if shards:
                for i, name in enumerate(names):
                    self.save(f"f/{name}", weights(f"t{i}"))
            else:
                self.save("f/model.safetensors", {**weights("t0"), **weights("t1")})
            self.index("f/pytorch_model.bin.index.json", t0=names[0], t1=names[1])
            self.convert("f")
            self.assertEqual(sorted(self.back()[0]), ["config.json", "model.safetensors"])

    def test_an_index_of_what_was_written_anew_does_not_come_back(self):
        """One file with an index, and a variant: what is chosen, renamed or converted is what the folder has."""
        self.save("one/model.safetensors", {**weights("a"), **weights("b")})
        self.index("one/model.safetensors.index.json", a="model.safetensors", b="model.safetensors")
        names = [f"model-0000{i}-of-00002.fp16.safetensors" for i in (1, 2)]
        for i, name in enumerate(names):
            self.save(f"of/{name}", weights(f"t{i}"))
        self.index("of/model.safetensors.index.fp16.json", t0=names[0], t1=names[1])
        for folder, options, want in (("one", ["--include", "a"], ["a"]), ("one", ["--rename", "s/a/c/"], ["c", "b"]),
                                      ("one", ["--dtype", "f16"], ["a", "b"]), ("one", [], ["a", "b"]),
                                      ("of", ["--variant", "fp16", "--shard-size", "3B"], ["t0", "t1"]),
                                      ("of", ["--variant", "fp16", "--rename", "s/t/u/", "--shard-size", "3B"], ["u0", "u1"])):
            for way in ("straight", "by .zt"):
                with self.subTest(folder=folder, options=options, way=way):
                    shutil.rmtree(self.path("out"), ignore_errors=True)
                    if way == "straight":
                        self.succeed("convert", folder, "-o", "out/", "--to", "safetensors", "-q", *options)
                    else:
                        cut = [each for each in options if each not in ("--shard-size", "3B")]
                        self.succeed("convert", folder, "-o", "m.zt", "-fq", *cut)
                        self.succeed("extract", "m.zt", "-o", "out/", "--to", "safetensors", "-q", *options[len(cut):])
                    self.assertEqual(sorted(self.types("out", *(["--variant", "fp16"] if folder == "of" else []))[0]), sorted(want))
                    indices = [path.read_bytes() for path in self.path("out").glob("*.index*.json")]
                    self.assertEqual(len(indices), 1 if folder == "of" or not options else 0)

    def test_a_shard_that_cannot_be_read_is_named(self):
        for i in (1, 2):
            self.save(f"f/model-0000{i}-of-00002.safetensors", weights(f"t{i}"))
        self.index("f/model.safetensors.index.json", t1="model-00001-of-00002.safetensors")
        self.put("f/model-00002-of-00002.safetensors", b"\x05")
        self.fail_with(INVALID, "inspect", "f", says="model-00002-of-00002.safetensors: it ends at byte 1")

    def test_an_adapter_of_pytorch_keeps_its_name(self):
        self.save("f/adapter_model.bin", weights("lora"))
        self.convert("f")
        self.assertEqual(sorted(self.back()[0]), ["adapter_model.safetensors"])

    def test_components_that_are_not_there(self):
        self.pipeline(unet={"diffusion_pytorch_model.safetensors": weights("u")}, vae={"diffusion_pytorch_model.safetensors": weights("v")})
        self.assertNotIn("warning", self.convert("f"))
        shutil.rmtree(self.path("f/vae"))
        self.assertIn("warning: model_index.json names vae, which has no folder\n", self.convert("f"))


class Text(Disk):

    def test_gguf_by_way_of_safetensors(self):
        for name in ("little.gguf", "big.gguf", "kinds.gguf"):
            data = (DATA / "gguf" / name).read_bytes()
            source = self.put(name, data + bytes(-len(data) % 32))
            floats = [each["name"] for each in self.json("inspect", "--json", source)["objects"] if each["format"] == "dense"]
            self.succeed("extract", source, *floats, "-o", "whole.gguf", "-f")
            self.succeed("extract", source, *floats, "-o", "a.safetensors", "-f")
            self.succeed("convert", "a.safetensors", "-o", "a.zt", "-f")
            for middle in ("a.safetensors", "a.zt"):
                with self.subTest(name, middle=middle):
                    self.succeed("extract", middle, "-o", "back.gguf", "-f")
                    self.assertEqual(self.path("back.gguf").read_bytes(), self.path("whole.gguf").read_bytes())
        for text in ("x", "[]", '{"version":3'):
            self.safetensors("b.safetensors", weights("w"), {"gguf": text})
            self.fail_with(INVALID, "extract", "b.safetensors", "-o", "b.gguf", says="root attribute 'gguf': ")

    def test_every_file_that_is_written_says_for_whom_it_is(self):
        numpy.savez(self.path("x.npz"), w=numpy.zeros(2, "<f4"))
        sources = [self.save("x.pt", weights("w")), self.path("x.npz"), self.safetensors("x.safetensors", weights("w"))]
        self.path("back").mkdir()
        for source in sources:
            self.succeed("convert", source, "-o", "m.zt", "-f")
            for given in (source, "m.zt"):
                self.succeed("extract", given, "-o", "back/o.safetensors", "-f")
                self.assertEqual(self.parts("o.safetensors")[0]["format"], "pt")


class Choosing(Disk):

    HALF = {"a": ("F16", [2], b"1234")}

    def test_a_variant_is_chosen(self):
        shards = [f"model-0000{i}-of-00002.fp16.safetensors" for i in (1, 2)]
        folders = {  # files, and whether they are of the variant
            "file": {"model.safetensors": 0, "model.fp16.safetensors": 1, "model.non_ema.safetensors": 0},
            "dash": {"flux.safetensors": 0, "flux-fp16.safetensors": 1}, "bin": {"pytorch_model.bin": 0, "pytorch_model.fp16.bin": 1},
            "of two formats": {"model.safetensors": 0, "pytorch_model.bin": 0, "pytorch_model.fp16.bin": 1},
            "no other": {"model.fp16.safetensors": 1, "model.bf16.safetensors": 0},
            "behind": dict.fromkeys(shards, 1) | {"model.safetensors": 0},
            "indexed": dict.fromkeys(shards, 1) | {f"model-0000{i}-of-00002.safetensors": 0 for i in (1, 2)}}
        for case, files in folders.items():
            with self.subTest(case):
                shutil.rmtree(self.path("f"), ignore_errors=True)
                for name, chosen in files.items():
                    second = "00002-of" in name
                    tensors = self.HALF if chosen else weights("a")
                    self.save(f"f/{name}", {"b" if second else each: value for each, value in tensors.items()})
                if case == "indexed":
                    self.index("f/model.safetensors.index.fp16.json", a=shards[0], b=shards[1])
                    self.index("f/model.safetensors.index.json", a="model-00001-of-00002.safetensors", b="model-00002-of-00002.safetensors")
                names = ["a", "b"] if case in ("behind", "indexed") else ["a"]
                found, said = self.types("f", "--variant", "fp16")
                self.assertEqual(found, dict.fromkeys(names, "f16"))
                for name, chosen in files.items():
                    if case != "of two formats":
                        self.assertEqual(name in said, not chosen, said)
                if case == "no other":
                    self.fail_with(USAGE, "inspect", "f", says="; of the variants 'bf16', 'fp16'; --variant chooses one")
                elif case != "dash":
                    self.assertEqual(set(self.types("f")[0].values()), {"f32"})
                self.succeed("convert", "f", "-o", "m.zt", "-f", "--variant", "fp16")
                self.succeed("verify", "m.zt", "--against", "f", "--variant", "fp16")
                self.assertNotIn(b"no input is a folder", self.expect(DONE, "diff", "m.zt", "f", "--variant", "fp16").stderr)
                self.expect(DONE, "inspect", "m.zt", "--variant", "fp16", says="warning: --variant: no input is a folder\n")
                if case != "no other":
                    self.expect(DIFFERS, "verify", "m.zt", "--against", "f", *(["--variant", "flux"] if case == "dash" else []))                        if case != "dash" else None
        self.fail_with(USAGE, "inspect", "f", "--variant", "int8", says="no weights of the folder are of the variant 'int8'; it has 'fp16'")
        self.fail_with(USAGE, "inspect", "f/model-00001-of-00002.safetensors", "--variant", "fp16", says="it is one file, and a variant is chosen in a folder")

    def test_a_variant_in_one_format_is_not_the_model_in_another(self):
        """Without --variant the names without a variant are meant, whichever format has them."""
        both = weights("a") | weights("b")
        for plain, variant in (("pytorch_model.bin", "model.fp16.safetensors"), ("model.safetensors", "pytorch_model.fp16.bin"),
                               ("diffusion_pytorch_model.bin", "diffusion_pytorch_model.fp16.safetensors")):
            for folder in ("f", "p/unet"):
                with self.subTest(plain=plain, folder=folder):
                    shutil.rmtree(self.path(folder), ignore_errors=True)
                    self.save(f"{folder}/{plain}", both)
                    self.save(f"{folder}/{variant}", self.HALF)
                    root = folder.split("/")[0]
                    if root == "p":
                        self.text("p/model_index.json", {"unet": ["diffusers", "X"]})
                    prefix = "unet/" if root == "p" else ""
                    found, said = self.types(root)
                    self.assertEqual(found, {prefix + "a": "f32", prefix + "b": "f32"})
                    self.assertEqual(said.count(f"other variants of the weights are not read: {variant}; --variant"), 1, said)
                    self.assertEqual(self.types(root, "--variant", "fp16")[0], {prefix + "a": "f16"})
        shutil.rmtree(self.path("f"))
        self.save("f/model.fp16.safetensors", self.HALF)  # alone it is the model, and beside what is no model
        self.save("f/training_args.bin", weights("x"))
        self.assertEqual(self.types("f")[0], {"a": "f16"})

    def test_a_variant_of_a_variant_is_another(self):
        for name, value in (("model.fp16", 1.0), ("model.non_ema.fp16", 2.0), ("other.v1.fp16", 3.0)):
            self.save(f"f/{name}.safetensors", weights("b" if name[0] == "o" else "a", value))
        said = self.convert("f", "--variant", "fp16")
        self.assertIn(NOT_READ + "model.non_ema.fp16.safetensors; --variant", said)
        self.assertEqual(self.succeed("show", self.path("m.zt"), "a").count(b"2"), 0)
        self.assertEqual(self.types("f", "--variant", "non_ema.fp16")[0], {"a": "f32"})

    def test_what_extract_makes_of_files_of_two_contents_is_whole(self):
        """Of shards, of a set beside a file, and in the folders of a pipeline."""
        torch = pickle_assembler.checkpoint(weights("w"))
        cases = [("f", "f", ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")),
                 ("f", "f", ("adapter.bin", "pytorch_model.bin")), ("f", "f", ("pytorch_model-00002-of-00002.bin", "pytorch_model-00001-of-00002.bin")),
                 ("p", "p/unet", ("a.bin", "pytorch_model.bin"))]
        for root, folder, (plain, other) in cases:
            with self.subTest(plain=plain, other=other):
                for each in (root, "back"):
                    shutil.rmtree(self.path(each), ignore_errors=True)
                self.put(f"{folder}/{plain}", make_safetensors.encode(weights("a")))
                self.put(f"{folder}/{other}", torch)
                if root == "p":
                    self.text("p/model_index.json", {"unet": ["diffusers", "X"]})
                self.succeed("convert", root, "-o", "m.zt", "-f")
                self.succeed("extract", "m.zt", "-o", "back/", "--to", "safetensors")
                found = set(self.types("back")[0])
                self.assertEqual({name.split("/")[-1] for name in found}, {"a", "w"})
                self.succeed("convert", "back", "-o", "n.zt", "-f")

    def test_a_variant_of_what_has_none(self):
        self.path("n").mkdir()
        numpy.save(self.path("n/w.npy"), numpy.zeros(2, "<f4"))
        for name in ("mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"):
            self.save(f"r/{name}", weights(name[8:10]))
        for folder in ("n", "r"):
            self.succeed("inspect", folder)
            self.fail_with(USAGE, "inspect", folder, "--variant", "fp16", says="of the variant 'fp16'; it has no variants")

    def test_the_variant_of_a_pipeline(self):
        """As diffusers reads it: folders that lack the variant give what has none."""
        self.text("f/model_index.json", {name: ["diffusers", "X"] for name in ("unet", "vae", "text_encoder")})
        for name in ("unet/diffusion_pytorch_model", "vae/diffusion_pytorch_model", "text_encoder/model"):
            self.save(f"f/{name}.safetensors", weights("a"))
        self.save("f/unet/diffusion_pytorch_model.fp16.safetensors", self.HALF)
        self.save("f/text_encoder/pytorch_model.fp16.bin", self.HALF)
        found, said = self.types("f")
        self.assertEqual(set(found.values()), {"f32"})
        self.assertIn("warning: unet: other variants of the weights are not read: diffusion_pytorch_model.fp16.safetensors; --variant", said)
        found, said = self.types("f", "--variant", "fp16")
        self.assertEqual(found, {"unet/a": "f16", "vae/a": "f32", "text_encoder/a": "f16"})
        self.assertIn("no weights of the variant 'fp16' are in vae, so those without a variant are read", said)
        self.convert("f", "--variant", "fp16")
        self.assertIn("unet/diffusion_pytorch_model.fp16.safetensors", self.back()[0])
        self.fail_with(USAGE, "inspect", "f", "--variant", "ema", says="are of the variant 'ema'; it has 'fp16'")

    def test_of_several_gguf(self):
        for name in ("x-Q4_K_M", "x-Q8_0", "mmproj-x-f16"):
            self.put(f"f/{name}.gguf", (DATA / "gguf/little.gguf").read_bytes())
        self.fail_with(USAGE, "inspect", "f", says="name the file of one; --variant chooses one")
        self.succeed("inspect", "f", "--variant", "Q8_0")
        self.fail_with(USAGE, "inspect", "f", "--variant", "Q9", says="no GGUF file of the folder is of the variant 'Q9', but 'mmproj-x-f16.gguf'")

    def test_the_content_decides(self):
        """Files that others renamed without a conversion."""
        torch, safetensors = pickle_assembler.checkpoint(weights("a")), make_safetensors.encode(weights("a"))
        gguf = (DATA / "gguf/little.gguf").read_bytes()
        for name, content, kind in (("model.safetensors", torch, "torch"), ("pytorch_model.bin", safetensors, "safetensors"),
                                    ("model.safetensors", gguf, "gguf"), ("pytorch_model.bin", gguf, "gguf"),
                                    ("adapter.bin", safetensors, "safetensors"),  # and names that say less
                                    ("x.safetensors", self.npz(), "npz")):
            with self.subTest(name, kind=kind):
                shutil.rmtree(self.path("f"), ignore_errors=True)
                self.put(f"f/{name}", content)
                self.text("f/config.json", {})
                self.assertEqual(self.json("inspect", "f", "--json")["format"], kind)
                self.convert("f")
                self.succeed("verify", "m.zt", "--against", "f")
                if kind == "safetensors":
                    self.assertEqual(self.back()[0], self.read(self.path("f")))
                elif kind == "torch":
                    self.assertEqual(set(self.back()[0]), {name, "config.json"})

    def npz(self):
        numpy.savez(self.path("x.npz"), a=numpy.ones(2))
        return self.path("x.npz").read_bytes()

    def test_models_of_other_programs_are_named(self):
        ctranslate2 = struct.pack("<IH", 6, 16) + b"TransformerSpec\0" + bytes(40)
        whisper = struct.pack("<IH", 6, 12) + b"WhisperSpec\0" + bytes(40)
        for name, content, what in (("model.bin", ctranslate2, "a CTranslate2 model"), ("model.bin", whisper, "a CTranslate2 model"),
                                    ("openvino_model.bin", bytes(12), "the weights of an OpenVINO model"),
                                    ("openvino_decoder_model.bin", b"\1" * 99, "the weights of an OpenVINO model")):
            with self.subTest(name):
                shutil.rmtree(self.path("f"), ignore_errors=True)
                self.put(f"f/{name}", content)
                self.put(f"f/{name[:-4]}.xml", b"<net/>")
                for given in ("f", f"f/{name}"):
                    self.fail_with(UNSUPPORTED, "inspect", given, says=[f"f/{name}: it is {what}", "convert the model that it was made of"])


class Headers(Disk):
    """Headers of safetensors as others write them, and files that are not there."""

    def raw(self, header, data=b"1234"):
        return self.put("a.safetensors", struct.pack("<Q", len(header)) + header + data)

    def test_blobs_of_a_hubs_cache(self):
        """Those of Git LFS have their SHA-256 as name; verify compares it, for a snapshot or for all."""
        cache, snapshot = self.path("models--o--m"), self.path("models--o--m/snapshots/abc")
        weight, config = make_safetensors.encode(weights("a")), b"{}"
        for name, data, blob in (("model.safetensors", weight, hashlib.sha256(weight).hexdigest()), ("sub/config.json", config, "a" * 40)):
            self.put(f"models--o--m/blobs/{blob}", data)
            (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / name).symlink_to(os.path.relpath(cache / "blobs" / blob, (snapshot / name).parent))
        other = self.put("models--o--m/blobs/" + "0" * 64, b"of another revision")
        said = self.succeed("verify", snapshot).decode()
        self.assertRegex(said, r"good: 1 blob has the digest of its name, \d+ B in .*; 1 more have names of Git, which are not checked\n")
        self.assertEqual(self.json("verify", "--json", snapshot)["digests"], 1)
        wrong = self.expect(DIFFERS, "verify", cache).stderr.decode()
        self.assertIn(f"blobs/{'0' * 64}: its content is not that of its name, but has sha256:", wrong)
        self.assertNotIn(hashlib.sha256(weight).hexdigest() + ":", wrong)
        other.unlink()
        self.succeed("verify", cache)
        rest = self.put("models--o--m/blobs/" + "f" * 64 + ".incomplete", b"a part")
        self.assertIn(f"{rest.name}: its download was not finished", self.expect(DIFFERS, "verify", cache).stderr.decode())
        rest.unlink()
        loose = self.put("models--o--m/snapshots/abc/more.safetensors", weight + b"x")
        for given in (cache, snapshot):
            said = self.expect(DONE, "verify", given)
            self.assertIn(b"not checked; 1 file beside the links not checked\n", said.stdout)
            self.assertIn(b"more.safetensors' is no link to a blob, and was not checked", said.stderr)
        loose.unlink()
        loose.symlink_to("../../blobs/" + "e" * 64)
        self.fail_with(IO, "verify", cache, says="more.safetensors: cannot open what the link leads to")
        loose.unlink()
        (cache / "blobs" / hashlib.sha256(weight).hexdigest()).write_bytes(weight[:-1] + b"x")
        found = json.loads(self.run_program("verify", "--json", snapshot).stdout)
        self.assertEqual((found["ok"], len(found["problems"])), (False, 1))
        (cache / "blobs" / hashlib.sha256(weight).hexdigest()).unlink()
        self.fail_with(IO, "verify", snapshot, says="model.safetensors: cannot open what the link leads to")
        (snapshot / "model.safetensors").unlink()
        for given in (cache, snapshot):
            self.fail_with(UNSUPPORTED, "verify", given, says=f"{given}: nothing of it can be checked")
        self.fail_with(USAGE, "verify", self.put("f/a.txt", b"").parent,
                       says=("the folder holds no .zt.index.json", "--base checks a disk delta"))

    def test_what_the_reference_library_takes(self):
        entry = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'
        for header in ('{"__metadata__":null,"a":{%s}}' % entry, '{"a":{%s},"__metadata__":null}' % entry,
                       '{"a":{%s,"note":[1,{"b":null}]}}' % entry, '{"a":{"x":"y",%s}}' % entry):
            self.raw(header.encode())
            self.convert("a.safetensors")
            self.assertEqual(ztread.read_file(str(self.path("m.zt")))[2]["a"]["components"]["data"]["bytes"], b"1234")
        for header, says in (('{"__metadata__":[],"a":{%s}}' % entry, "__metadata__ is not a JSON object"),
                             ('{"__metadata__":{"x":null},"a":{%s}}' % entry, "'x' is not a string"),
                             ('{"a":{%s,"note":[1 2]}}' % entry, "the header is not JSON"), ('{"a":{"x":1 2,%s}}' % entry, "not JSON")):
            self.raw(header.encode())
            self.fail_with(INVALID, "convert", "a.safetensors", "-o", "x.zt", says=says)

    def test_tensors_without_elements(self):
        """A model saved under ZeRO-3: other ranks had the weights."""
        nothing = {name: ("F16", [0], b"") for name in ("a.weight", "b.weight", "c.bias")}
        for tensors, warned in ((nothing, "3 of 3 tensors"), (nothing | weights("d"), "3 of 4 tensors"), ({"a": nothing["a.weight"]}, ""),
                                ({name: ("F16", [0, 3], b"") for name in "abc"}, "")):
            for name in ("a.safetensors", "a.pt", "f/pytorch_model.bin"):
                self.save(name, tensors)
                said = self.convert(name.split("/")[0])
                self.assertEqual((f"warning: {warned} have no elements, as models that are saved under DeepSpeed's ZeRO-3" in said), bool(warned), said)

    def test_a_header_beyond_the_limit(self):
        for claimed in (100_000_001, 1 << 32):
            self.put("a.safetensors", struct.pack("<Q", claimed) + b'{"a":{}}')
            self.fail_with(INVALID, "inspect", "a.safetensors", says=f"its header claims {claimed} bytes, the limit is 100000000")

    def test_zero_bytes_behind_the_header(self):
        header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        for zeros in (1, 2, 7):
            self.raw(header + bytes(zeros))
            self.fail_with(INVALID, "convert", "a.safetensors", "-o", "x.zt", says=f"padded with {zeros} zero bytes, where safetensors has blanks")
        self.raw(header[:-1] + bytes(3))
        self.fail_with(INVALID, "convert", "a.safetensors", "-o", "x.zt", says="the header is not JSON")

    def test_links_to_what_is_not_there(self):
        """A download that was cut short, or a cache that was cleaned."""
        snapshot = self.path("models--o--m/snapshots/abc")
        snapshot.mkdir(parents=True)
        for name in ("model.safetensors", "model-00001-of-00001.safetensors", "pytorch_model.bin", "x.gguf"):
            (snapshot / name).symlink_to("../../blobs/b1")
            for given in (snapshot, snapshot / name):
                self.fail_with(IO, "inspect", given, says=[
                    f"{name}: cannot open what the link leads to, '../../blobs/b1'; in a hub's cache, download the model again"])
            (snapshot / name).unlink()

    def test_links_of_shards_that_lead_nowhere(self):
        """With an index and without one, what is wrong with the link is said, and not that the shard is missing."""
        tensors = {"w": ("F32", [2], bytes(8))}
        for name, index in (("one", None), ("two", "model.safetensors.index.json"), ("three", "model.safetensors.index.fp16.json")):
            middle = ".fp16" if name == "three" else ""
            first, second = (f"model-0000{at}-of-00002{middle}.safetensors" for at in (1, 2))
            self.safetensors(f"{name}/{first}", tensors)
            if index:
                self.put(f"{name}/{index}", json.dumps({"weight_map": {"w": first, "b": second}}).encode())
            link = self.path(name) / second
            for target, says in (("gone", "cannot open what the link leads to, 'gone'; in a hub's cache, download the model again"),
                                 (second, "Too many levels of symbolic links")):
                link.symlink_to(target)
                for command in (["inspect"], ["convert", "-o", self.path("x.zt")]):
                    self.fail_with(IO, *command, self.path(name), says=(second, says))
                link.unlink()
            self.fail_with(INVALID, "inspect", self.path(name), says="00002")

    def test_weights_that_cannot_go_along_are_named(self):
        """Their paths, or what they are, do not allow it: the count of files that are left out would not tell."""
        self.safetensors("f/model.safetensors", weights("a"))
        other = pickle_assembler.checkpoint(weights("b"))
        names = ["a\\b.bin", "sub/c\\d.pt", "gone.bin", "sub/loop.safetensors", "away.pth"]
        self.put("f/a\\b.bin", other)
        self.put("f/sub/c\\d.pt", other)
        self.put("outside.pth", other)
        for name, target in (("gone.bin", "nowhere"), ("sub/loop.safetensors", "loop.safetensors"), ("away.pth", "../outside.pth"),
                             ("notes.txt", "nowhere")):
            (self.path("f") / name).symlink_to(target)
        for words in ([], ["--files", "all"]):
            process = self.expect(DONE, "convert", "f", "-o", "m.zt", "-f", *words)
            warning, = (line for line in process.stderr.decode().splitlines() if "whether or not they hold weights" in line)
            for name in names:
                self.assertIn(name, warning)
            self.assertNotIn("notes.txt", warning)
        self.assertIn(b"left out", self.expect(DONE, "convert", "f", "-o", "m.zt", "-f", "--follow-links").stderr)

    def test_shards_without_tensors_go_along_whatever_files_are_asked_for(self):
        """Without them the folder that comes back would not be whole."""
        for folder, index in (("bare", {}), ("full", {"a": 1, "b": 3})):
            for at, held in ((1, weights("a")), (2, {}), (3, weights("b"))):
                self.safetensors(f"{folder}/model-0000{at}-of-00003.safetensors", held)
            if index:
                self.text(f"{folder}/model.safetensors.index.json", {"weight_map": {
                    name: f"model-0000{at}-of-00003.safetensors" for name, at in index.items()}})
            self.text(f"{folder}/config.json", {})
            for words in (["--files", "*.txt"], ["--files", "none"], [],
                          ["--files", "config.json", *(["--files", "*.index.json"] if index else [])]):
                self.succeed("convert", folder, "-o", "m.zt", "-fq", *words)
                self.succeed("extract", "m.zt", "-o", "back/", "--to", "safetensors", "-fq")
                self.succeed("inspect", "back")
                self.expect(DIFFERS if words[1:] in (["*.txt"], ["none"]) else DONE, "diff", "back", folder)
                shutil.rmtree(self.path("back"))
        # A name that cannot be restored: then none is, and no shard stays alone.
        self.safetensors("bare/a\\b.safetensors", weights("c"))
        self.expect(DONE, "convert", "bare", "-o", "m.zt", "-fv", says="model-00002-of-00003.safetensors: left out: it has no tensors")
        self.succeed("extract", "m.zt", "-o", "back/", "--to", "safetensors", "-fq")
        self.assertEqual(sorted(self.read(self.path("back"))), ["config.json", "model.safetensors"])


class Removals(Disk):
    """What is taken away from a folder, or from the file that was made of it, is noticed."""

    UNET = {**weights("a"), **weights("b")}
    ENCODER = make_folders.tensors(1, ["c", "d", "e"])

    def fill(self, folder, unet, encoder):
        self.text(f"{folder}/model_index.json", {"unet": ["diffusers", "X"], "text_encoder": ["transformers", "X"]})
        self.save(f"{folder}/unet/diffusion_pytorch_model.bin", unet)
        parts = [{name: encoder[name] for name in names if name in encoder} for names in ("cd", "e")]
        make_folders.put_shards(self.path(folder), "text_encoder/model", parts)
        for name in ("unet/config.json", "text_encoder/config.json", "scheduler/scheduler_config.json", "README.md", "optimizer.pt"):
            self.put(f"{folder}/{name}", name.encode())

    def remove(self, side, what, files):
        """Makes the folder g and the file n.zt, of which one lacks something."""
        kept = []
        unet, encoder = ({name: data for name, data in tensors.items() if (side, what) != ("tensor of the folder", name)}
                         for tensors in (self.UNET, self.ENCODER))
        self.fill("g", unet, encoder)
        if side == "file of the folder":
            self.path(f"g/{what}").unlink()
        elif side == "tensor":
            kept = ["--exclude", f"glob:*/{what}"]
        elif side == "file" and what.endswith((".bin", ".safetensors")):
            kept = ["--exclude", f"glob:{what.split('/')[0]}/*"]  # weights are no files
        elif side == "file":
            kept = [word for name in files if name != what for word in ("--files", "glob:" + name)]
        self.succeed("convert", "m.zt", "-o", "n.zt", "-f", "-q", *kept)

    def test_any_file_or_tensor(self):
        chance = random.Random(20)
        self.fill("f", self.UNET, self.ENCODER)
        self.convert("f")
        self.succeed("verify", "m.zt", "--against", "f")
        files, tensors = sorted(self.read(self.path("f"))), "abcde"
        unnoticed = []
        for _ in range(REMOVALS):
            shutil.rmtree(self.path("g"), ignore_errors=True)
            side = chance.choice(("file of the folder", "file", "tensor of the folder", "tensor"))
            what = chance.choice(files if side.startswith("file") else tensors)
            self.remove(side, what, files)
            for words in (["verify", "n.zt", "--against", "g"], ["diff", "n.zt", "g"], ["diff", "g", "n.zt"]):
                if self.run_program(*words).returncode == DONE:
                    unnoticed.append((side, what, words[0]))
        self.assertEqual(unnoticed, [])


if __name__ == "__main__":
    import unittest
    unittest.main()
