"""A checkpoint's folder in one .zt file, and back: what is taken, chosen, refused, said. whole_test has the table of folders."""
import ctypes
import errno
import fcntl
import glob
import json
import os
import pathlib
import shutil
import signal
import stat
import struct
import subprocess
import time

import numpy

import make_folders
import make_safetensors
import make_zt2
import support
import ztread
from support import DIFFERS, DONE, EXISTS, INTERRUPTED, INVALID, UNSUPPORTED, USAGE


def refuse_openat2():
    """From here on the kernel has no openat2(2), as before 5.6 and in some sandboxes: a filter for seccomp(2)."""
    openat2, allow, refuse = 437, 0x7fff0000, 0x00050000 | errno.ENOSYS
    steps = ((0x20, 0, 0, 0), (0x15, 0, 1, openat2), (0x06, 0, 0, refuse), (0x06, 0, 0, allow))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, by_filter = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) != 0 or libc.prctl(seccomp, by_filter, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Folders(support.EndToEnd):

    def made(self, name, make):
        self.path(name).mkdir()
        make(self.path(name))
        return self.path(name)

    def put_sharded(self, name):
        return self.made(name, make_folders.sharded)

    def put_single(self, name):
        return self.made(name, make_folders.single)

    def there_and_back(self, folder, *options, model=None, extract=()):
        model = model or self.path("m.zt")
        out = self.path("back")
        shutil.rmtree(out, ignore_errors=True)
        self.succeed("convert", folder, "-o", model, "-f", *options)
        self.succeed("extract", model, "-o", f"{out}/", "--to", "safetensors", *extract)
        self.same_folders(folder, out)
        self.assertEqual([e for e in self.entries() if e.startswith(".")], [])

    # ---- there and back ----

    def test_executables_and_modes(self):
        folder = self.put_single("f")
        run = self.put("f/run.sh", b"#!/bin/sh\n")
        run.chmod(0o755)
        self.there_and_back(folder)
        modes = {name: stat.S_IMODE(self.path(f"back/{name}").stat().st_mode) & 0o700 for name in ("run.sh", "LICENSE")}
        self.assertEqual(modes, {"run.sh": 0o700, "LICENSE": 0o600})

    def test_kernels_without_openat2(self):
        folder = self.put_sharded("f")
        self.put("f/a/b/notes.txt", b"notes")
        self.succeed("convert", "-q", folder, "-o", "m.zt")
        out = self.path("back")
        subprocess.run([support.PROGRAM, "extract", "-q", self.path("m.zt"), "-o", f"{out}/", "--to", "safetensors"],
                       preexec_fn=refuse_openat2, check=True)
        self.same_folders(folder, out)

    def test_links(self):
        """As the hub's cache has them: every file is a link to a blob outside of the folder."""
        plain = self.put_sharded("plain")
        blobs, snapshot = self.path("hub/blobs"), self.path("hub/snapshots/abc")
        blobs.mkdir(parents=True)
        snapshot.mkdir(parents=True)
        for i, file in enumerate(sorted(plain.iterdir())):
            shutil.copy(file, blobs / str(i))
            (snapshot / file.name).symlink_to(pathlib.Path("../../blobs") / str(i))
        self.there_and_back(snapshot)
        # But no link to anything else: below the blobs, beside them, or where the folders have other names.
        for target, linked in (("blobs/sub/x", "blobs/sub/x"), ("other/x", "other/x"), ("../x", "../x")):
            (self.path("hub") / target).parent.mkdir(exist_ok=True)
            shutil.copy(plain / "config.json", self.path("hub") / target)
            (snapshot / "more.json").symlink_to(pathlib.Path("../..") / linked)
            self.assertEqual(self.left_out(snapshot), {"more.json": "leaves the folder"})
            (snapshot / "more.json").unlink()
        self.path("hub/blobs").rename(self.path("hub/elsewhere"))
        self.path("hub/blobs").symlink_to("elsewhere")
        self.fail_with(INVALID, "convert", "-f", snapshot, "-o", self.path("m.zt"), says="--follow-links")
        self.there_and_back(snapshot, "--follow-links")
        shutil.copytree(self.path("hub/elsewhere"), self.path("plain2/blobs"))
        shutil.copytree(snapshot, self.path("plain2/revisions/abc"), symlinks=True)
        self.fail_with(INVALID, "convert", "-f", self.path("plain2/revisions/abc"), "-o", self.path("m.zt"), says="--follow-links")
        # A link within the folder is a file like others; one that leaves it is left out, as one to a folder is.
        (plain / "inside.json").symlink_to("config.json")
        self.there_and_back(plain)
        outside = self.put("secret", b"secret")
        (plain / "leaves").symlink_to(outside)
        (plain / "folder").symlink_to(blobs)
        self.assertEqual(self.left_out(plain), {"folder": "leaves the folder", "leaves": "leaves the folder"})

    def test_the_same_weights_in_other_formats(self):
        """bert-base and gpt2 on the hub: what cannot be a checkpoint folder does not compete with what is one."""
        folder = self.put_sharded("m")
        for name in ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "model.onnx", "onnx/model.onnx", "onnx/model.onnx_data",
                     "pytorch_model.bin", "coreml/model.mlpackage/Data/weights.bin", "tf_model.keras", "vocab.npz"):
            self.put(f"m/{name}", b"no weights that are read")
        tensors = self.json("inspect", "--json", folder)["objects"]
        self.assertEqual([t["name"] for t in tensors if t["format"] == "dense"],
                         [t["name"] for t in self.json("inspect", "--json", self.put_sharded("n"))["objects"] if t["format"] == "dense"])
        for file in folder.glob("*.safetensors*"):
            file.unlink()
        self.fail_with(UNSUPPORTED, "convert", folder, "-o", self.path("m.zt"), says="pytorch_model.bin")
        (folder / "pytorch_model.bin").unlink()
        self.fail_with(USAGE, "convert", folder, "-o", self.path("m.zt"), says="name the files in it")

    def left_out(self, folder, *options):
        plan = json.loads(self.succeed("convert", folder, "--dry-run", "--json", "--from", "safetensors", *options))
        found = {}
        for each in plan.get("left_out", []):
            found[each["path"]] = each["why"]
            for rule in ("leaves the folder",):
                if rule in each["why"]:
                    found[each["path"]] = rule
        return found

    def test_what_is_left_out(self):
        folder = self.put_sharded("f")
        for name in (".gitattributes", ".cache/x", "sub/.hidden", "pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                     "flax_model.msgpack", "model.onnx", "onnx/model.onnx_data", "m.gguf", "old.zt", "CON.txt", "a\\b", "x:y", "end.",
                     "Config.json"):
            self.put(f"f/{name}", b"{}")
        with open(self.put("f/large.txt", b""), "wb") as large:
            large.truncate((64 << 20) + 1)
        os.mkfifo(folder / "pipe")
        expected = {".cache/": "its name begins with a dot", ".gitattributes": "its name begins with a dot", "sub/.hidden": "its name begins with a dot",
                    "pipe": "it is not a regular file", "large.txt": "it has 64.00 MiB, more than 64 MiB",
                    "CON.txt": "path 'CON.txt': a segment is the name of a device on Windows",
                    "x:y": "path 'x:y': it holds ':'", "end.": "path 'end.': a segment ends in a dot or a blank, which Windows drops",
                    "config.json": "path 'config.json': it differs from 'Config.json' only in case"}
        expected["old.zt"] = made = "it is a .zt file, which is made of a folder"
        found = self.left_out(folder)
        self.assertIn("it holds", found.pop("a\\b"))
        self.assertEqual(found, expected)
        process = self.run_program("convert", folder, "-o", self.path("m.zt"), "--from", "safetensors")
        self.assertIn(f"{len(expected) + 1} files are left out; -v tells which and why".encode(), process.stderr)
        process = self.run_program("convert", folder, "-o", self.path("m.zt"), "-f", "-v", "--from", "safetensors")
        self.assertIn(b"old.zt: left out: " + made.encode(), process.stderr)
        # A folder that is written at once lacks the same files, of several inputs all.
        more = self.put("more.safetensors", make_safetensors.encode({"more": ("U8", [1], b"m")}))
        for inputs, command, count in (([folder], "convert", len(expected) + 1), ([folder], "extract", len(expected) + 1),
                                       ([folder, more], "convert", len(expected) + 1 + len(self.paths(self.path("m.zt"))))):
            shutil.rmtree(self.path("out"), ignore_errors=True)
            process = self.expect(DONE, command, *inputs, "--from", "safetensors", "--to", "safetensors", "-o", f"{self.path('out')}/")
            self.assertIn(f"ztstream: {count} files are left out; -v tells which and why".encode(), process.stderr)

    def paths(self, model):
        return [each["attributes"]["path"] for each in json.loads(self.succeed("inspect", "--json", model)).get("files", [])]

    def test_choice(self):
        folder = self.put_single("f")
        self.put("f/.gitattributes", b"x")
        model = self.path("m.zt")
        for choice, expected in ((("none",), []), (("*.json",), ["config.json", "generation_config.json", "special_tokens_map.json",
                                                                 "tokenizer.json", "tokenizer_config.json"]),
                                 (("LICENSE", "READ*"), ["LICENSE", "README.md"]), ((".git*",), [".gitattributes"])):
            options = [word for each in choice for word in ("--files", each)]
            self.succeed("convert", folder, "-o", model, "-f", *options)
            self.assertEqual(self.paths(model), expected)
        # Of a .zt file the same; in place of it they stay.
        self.succeed("convert", folder, "-o", model, "-f")
        self.assertEqual(len(self.paths(model)), 7)
        self.succeed("convert", model, "-o", self.path("n.zt"), "--rename", "s/^/x./", "--exclude", "v")
        self.assertEqual(self.paths(self.path("n.zt")), self.paths(model))
        self.succeed("convert", model, "-o", self.path("n.zt"), "-f", "--files", "conf*")
        self.assertEqual(self.paths(self.path("n.zt")), ["config.json"])
        self.fail_with(USAGE, "convert", model, "-o", self.path("n.zt"), "-f", "--files", "none", "--files", "all")
        # Versions without the profile, and several inputs, have none.
        for spec in ("1.1", "0.1"):
            for source, count in ((model, b"7"), (folder, b"8")):  # .gitattributes as well
                words = ("convert", source, "-o", self.path("n.zt"), "-f", "--spec", spec, "--no-metadata")
                process = self.run_program(*words, "-v")
                self.assertEqual(process.returncode, 0, process.stderr)
                self.assertEqual(self.paths(self.path("n.zt")), [])
                why = f"config.json: left out: version {spec} cannot hold it; --spec 1.2 and 2.0 can\n"
                self.assertIn(why.encode(), process.stderr)
                self.assertIn(count + b" files are left out; -v tells", self.run_program(*words).stderr)
        self.put("g/model.safetensors", make_safetensors.encode(make_safetensors.sample()))
        self.put("g/config.json", b"{}")
        process = self.run_program("convert", folder, self.path("g"), "-o", self.path("n.zt"), "-f", "-v")
        self.assertEqual(self.paths(self.path("n.zt")), [])
        self.assertIn(b"config.json: left out: there are several inputs; --files all takes all of them\n", process.stderr)
        self.succeed("convert", self.path("g"), "-o", self.path("g.zt"))
        self.succeed("convert", model, self.path("g.zt"), "-o", self.path("n.zt"), "-f")
        self.assertEqual(self.paths(self.path("n.zt")), [])
        # but what is asked for, of folders as of .zt files
        tensors = self.put("t.safetensors", make_safetensors.encode({"other": ("U8", [1], b"a")}))
        self.succeed("convert", self.put_single("k"), "-o", self.path("k.zt"), "-q")
        for inputs in ((self.path("k"), tensors), (self.path("k.zt"), tensors)):
            for words, expected in (("all",), 7), (("LICENSE", "READ*"), 2), (("none",), 0):
                files = [f"--files={word}" for word in words]
                self.succeed("convert", *inputs, "-o", self.path("n.zt"), "-f", "-q", *files)
                self.assertEqual(len(self.paths(self.path("n.zt"))), expected)
                self.succeed("verify", self.path("n.zt"), "--against", *inputs, *files)
        self.succeed("extract", self.path("n.zt"), "-o", str(self.path("back")) + "/")

    def test_shards(self):
        folder = self.put_sharded("f")
        for spec in ("1.2", "2.0"):
            self.path(spec).mkdir()
            self.succeed("convert", folder, "-o", self.path(f"{spec}/m.zt"), "--shards", "3", "--spec", spec)
            parts = sorted(self.path(spec).glob("m-*.zt"))
            self.assertEqual([len(self.paths(part)) for part in parts], [8, 0, 0])
            whole = self.path(f"{spec}/m.zt" if spec == "2.0" else spec)
            shutil.rmtree(self.path("back"), ignore_errors=True)
            self.succeed("extract", whole, "-o", str(self.path("back")) + "/", "--to", "safetensors")
            self.same_folders(folder, self.path("back"))
            self.assertEqual(len(self.paths(whole)), 8)

    def test_a_pipe_brings_no_files(self):
        single = self.put_single("g") / "model.safetensors"
        self.put("n.zt", self.succeed("convert", "-", "-o", "-", stdin=single.read_bytes()))
        self.assertEqual(self.paths(self.path("n.zt")), [])

    # ---- anew ----

    def test_changed_attributes_make_new_files(self):
        folder = self.put_sharded("f")
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        process = self.expect(DONE, "convert", folder, "--set", "k=v", "-o", self.path("set.zt"))
        self.assertIn(b"attributes are changed, so 'ztstream extract' will write new files of weights", process.stderr)
        for words in (["convert", folder, "--set", "k=v"], ["extract", self.path("m.zt"), "--set", "k=v"], ["extract", self.path("set.zt")]):
            shutil.rmtree(self.path("back"), ignore_errors=True)
            self.assertIn(b"the files of weights are not those that the model had",
                          self.expect(DONE, *words, "--to", "safetensors", "-o", f"{self.path('back')}/").stderr)
            tensors, metadata = make_safetensors.read(self.path("back/model.safetensors"))
            self.assertEqual(metadata, {"format": "pt", "k": "v"})
            self.succeed("diff", self.path("back"), self.path("m.zt"), "--files", "none")

    def test_changed_tensors_make_new_files(self):
        folder = self.put_sharded("f")
        for how, options in (("changed", ("--dtype", "f32")), ("left out", ("--exclude", "lm_head")),
                             ("renamed", ("--rename", "s/^model//")),
                             ("left out, renamed or changed", ("--include", "model", "--rename", "s/^model//", "--dtype", "f32")),
                             ("renamed", ("--include", ".", "--rename", "s/^model//"))):
            process = self.run_program("convert", folder, "-o", self.path("m.zt"), "-f", *options)
            self.assertEqual(process.returncode, DONE, process.stderr)
            self.assertIn(f"tensors are {how}, so ".encode(), process.stderr)
            shutil.rmtree(self.path("back"), ignore_errors=True)
            self.succeed("extract", self.path("m.zt"), "-o", str(self.path("back")) + "/", "--to", "safetensors")
            names = self.entries(self.path("back"))
            self.assertIn("model.safetensors", names)
            self.assertNotIn("model.safetensors.index.json", names)
            self.assertEqual(self.path("back/config.json").read_bytes(), (folder / "config.json").read_bytes())
            self.succeed("diff", self.path("back/model.safetensors"), self.path("m.zt"), "--files", "none")

    def test_no_tensor_is_left(self):
        """The error and its reason stand alone."""
        folder = self.put_sharded("f")
        process = self.run_program("convert", folder, "-o", self.path("m.zt"), "--include", "nosuch")
        self.assertEqual(process.returncode, USAGE)
        self.assertNotIn(b"tensors are ", process.stderr)
        self.assertIn(b"leave no tensor of ", process.stderr)
        self.succeed("convert", folder, "-o", self.path("m.zt"), "-q")
        for words in (["diff", self.path("m.zt"), folder], ["verify", self.path("m.zt"), "--against", folder],
                      ["extract", self.path("m.zt"), "-o", f"{self.path('x')}/", "--to", "safetensors"]):
            process = self.run_program(*words, "--include", "nosuch")
            self.assertEqual((process.returncode, process.stdout), (USAGE, b""), words)
            self.assertIn(b"leave no tensor of ", process.stderr)

    def test_the_plan_of_raw_tensors_has_no_estimate(self):
        """Small files are compressed all the same."""
        self.assertRegex(self.succeed("convert", self.put_sharded("f"), "-n").decode().splitlines()[-1],
                         r"^plan: zTensor 1\.2, \d+ of \d+ tensors, \d+ files, [\d.]+ \w+ in, [\d.]+ \w+ out$")

    def test_one_model_twice(self):
        folder = self.put_sharded("f")
        self.fail_with(INVALID, "convert", folder, folder, "-o", self.path("m.zt"),
                       says=" and " + str(folder) + "; several inputs are taken as one model")

    def test_shard_size(self):
        folder = self.put_sharded("f")
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        process = self.run_program("extract", self.path("m.zt"), "-o", str(self.path("back")) + "/", "--to", "safetensors", "--shard-size", "100kB")
        self.assertEqual(process.returncode, DONE, process.stderr)
        self.assertIn(b"not those that the model had: --shard-size cuts them anew", process.stderr)
        parts = [f"model-0000{i}-of-00004.safetensors" for i in range(1, 5)]
        self.assertEqual([n for n in self.entries(self.path("back")) if "safetensors" in n], parts + ["model.safetensors.index.json"])
        index = json.loads(self.path("back/model.safetensors.index.json").read_text())
        self.assertEqual(index, {"metadata": {"total_size": 240_000}, "weight_map": {
            "model.a": parts[0], "model.b": parts[1], "model.c": parts[2], "lm_head.weight": parts[3]}})
        self.succeed("diff", self.path("back"), folder, "--files", "none")
        self.fail_with(USAGE, "extract", self.path("m.zt"), "-o", self.path("x.safetensors"), "--shard-size", "1MB",
                       says="--shard-size cuts the weights of a folder")

    def test_some_tensors(self):
        folder = self.put_sharded("f")
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        self.succeed("extract", self.path("m.zt"), "model.a", "-o", str(self.path("back")) + "/", "--to", "safetensors", "-q")
        self.assertEqual(list(make_safetensors.read(self.path("back/model.safetensors"))[0]), ["model.a"])

    # ---- the output ----

    def test_existing_output(self):
        folder = self.put_single("f")
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        self.put("there/file", b"mine")
        for force in ((), ("-f",)):
            self.fail_with(EXISTS, "extract", self.path("m.zt"), "-o", f"{self.path('there')}/", "--to", "safetensors", *force)
        self.assertEqual(self.path("there/file").read_bytes(), b"mine")
        self.path("empty").mkdir()
        self.succeed("extract", self.path("m.zt"), "-o", f"{self.path('empty')}/", "--to", "safetensors")
        self.same_folders(folder, self.path("empty"))
        (self.folder / "link").symlink_to("empty2")
        self.fail_with(EXISTS, "extract", self.path("m.zt"), "-o", str(self.path("link")) + "/", "--to", "safetensors")
        self.assertNotIn("empty2", self.entries())

    def test_damage_leaves_nothing(self):
        folder = self.put_sharded("f")
        for spec in ("1.2", "2.0"):
            for option in ((), ("--zstd",)):
                model = self.path("m.zt")
                self.succeed("convert", folder, "-o", model, "-f", "--spec", spec, *option)
                content = bytearray(model.read_bytes())
                for what in ("__meta__/files/tokenizer.json", "model.c"):
                    listed = json.loads(self.succeed("inspect", "--json", model))
                    c = next(o["components"][0] for o in listed["objects"] + listed["files"] if o["name"] == what)
                    at = c["offset"] + c["length"] // 2
                    damaged = bytearray(content)
                    damaged[at] ^= 4
                    self.put("d.zt", bytes(damaged))
                    self.fail_with(INVALID, "extract", self.path("d.zt"), "-o", str(self.path("back")) + "/", "--to", "safetensors", says=f"tensor '{what}'")
                    self.assertEqual(self.run_program("verify", self.path("d.zt")).returncode, DIFFERS)
                    self.assertEqual(self.entries(), ["d.zt", "f", "m.zt"])

    def test_interrupted(self):
        """A signal leaves nothing; what a killed run leaves, the next one removes."""
        folder = self.put_single("f")
        make_safetensors.write_hole(folder / "model.safetensors", 1 << 28)
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        before = self.entries()
        command = [support.PROGRAM, "extract", self.path("m.zt"), "-o", f"{self.path('back')}/", "--to", "safetensors", "-T", "1", "-q"]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while self.entries() == before and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(number)
            process.wait()
            left = [entry for entry in self.entries() if entry not in before]
            if number == signal.SIGKILL:
                self.assertEqual(left, [f".back.{process.pid}-0.ztstream-tmp"])
            else:
                self.assertEqual((support.shell_status(process), left), (INTERRUPTED, []))
        # Folders of other outputs, of a run that lives, or with other names stay.
        others = [".back.1.x.ztstream-tmp", ".backup.1.ztstream-tmp", ".back.2.ztstream-tmp"]
        for name in others:
            self.path(name).mkdir()
        self.put(".back.3.ztstream-tmp", b"what a run left that wrote a file of this name")
        live = os.open(self.path(others[-1]), os.O_RDONLY)
        fcntl.flock(live, fcntl.LOCK_EX)
        self.succeed(*command[1:])
        os.close(live)
        self.assertEqual(self.entries(), sorted([*before, *others, "back"]))
        self.same_folders(folder, self.path("back"))

    def test_what_is_not_read_is_told(self):
        """Shards without the others, archives among arrays, and weights of PyTorch beside other formats."""
        floats = ("F32", [2], bytes(8))
        names = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
        for i, name in enumerate(names):
            self.put(f"s/{name}", make_safetensors.encode({f"w{i}": floats}))
        for given, says in ((names[:1], "00002, 00003"), ((names[0], names[2]), "00002"), (names, None)):
            done = self.expect(DONE, "convert", *(self.path("s") / name for name in given), "-o", self.path("s.zt"), "-f")
            warnings = [line for line in done.stderr.decode().splitlines() if "warning" in line]
            self.assertEqual(warnings, [] if says is None else [
                f"ztstream: warning: the inputs leave out shards {says} of 'model-*-of-00003.safetensors'; the checkpoint is not whole"])
        # Whatever the output, and in other formats: a shard of .zt files, and a GGUF that does not say that it is split.
        self.succeed("convert", self.path("s"), "--shards", "3", "-o", self.path("s/m.zt"), "-q")
        self.succeed("extract", self.path("s") / names[0], "-o", self.path("s/m-00001-of-00003.gguf"), "-q")
        told = b"warning: the inputs leave out shards 00002, 00003 of 'm"
        for name in (names[0], "m-00001-of-00003.zt", "m-00001-of-00003.gguf"):
            for words, warns in ((["convert", "-o", "x.zt"], True), (["convert", "--to", "safetensors", "-o", "x/"], True),
                                 (["extract", "-o", "x.npz"], True), (["extract", "w0", "-o", "x.npz"], False)):
                shutil.rmtree(self.path("x"), ignore_errors=True)
                done = self.expect(DONE, words[0], f"s/{name}", "-f", *words[1:])
                self.assertEqual(told in done.stderr, warns, (name, words))
        for whole in (["s/m.zt.index.json"], [f"s/m-{i:05}-of-00003.zt" for i in (1, 2, 3)]):
            self.assertNotIn(b"leave out", self.expect(DONE, "convert", *whole, "-f", "-o", "x.zt").stderr)
        arrays = self.path("a")
        arrays.mkdir()
        numpy.save(arrays / "x.npy", numpy.zeros(2, "<f4"))
        numpy.savez(arrays / "y.npz", z=numpy.zeros(2, "<f4"))
        self.assertIn(b"warning: the tensors of y.npz are not read, for a folder of .npy files is; name the files that are meant\n",
                      self.expect(DONE, "convert", arrays, "-o", self.path("a.zt")).stderr)
        shutil.copy(support.DATA / "torch/dtypes.pt", arrays / "training_args.bin")
        self.expect(DONE, "convert", arrays, "-o", self.path("a.zt"), "-f")
        shutil.copy(support.DATA / "torch/dtypes.pt", arrays / "pytorch_model.bin")
        self.fail_with(USAGE, "convert", arrays, "-o", self.path("a.zt"), "-f", says="several formats: 'x.npy' and 'pytorch_model.bin'")
        self.put("a/model.safetensors", make_safetensors.encode({"w": floats}))
        (arrays / "x.npy").unlink()
        self.succeed("convert", arrays, "-o", self.path("a.zt"), "-f", "-q")
        self.assertEqual([each["name"] for each in self.json("inspect", "--json", self.path("a.zt"))["objects"]], ["w"])

    def test_the_id_of_some_tensors(self):
        both = self.safetensors("b.safetensors", {"a": ("F32", [2], bytes(8)), "b.x": ("U8", [1], b"1")})
        one = self.safetensors("a.safetensors", {"a": ("F32", [2], bytes(8))})
        of = lambda *words: self.succeed("id", *words)
        self.assertEqual(of(both, "--exclude", "glob:b.*"), of(one))
        self.assertEqual(of(both, "--include", "a"), of(one))
        self.assertNotEqual(of(both), of(one))
        self.succeed("convert", both, "--spec", "2.0", "-o", self.path("b2.zt"), "-q")
        self.assertEqual(of(self.path("b2.zt"), "--include", "a"), of(one))
        # the digests of the tensors as the file has them
        self.succeed("convert", both, "--spec", "2.0", "--digest", "sha256", "-o", self.path("s2.zt"), "-q")
        self.succeed("convert", one, "--spec", "2.0", "--digest", "sha256", "-o", self.path("s1.zt"), "-q")
        self.assertEqual(of(self.path("s2.zt"), "--include", "a"), of(self.path("s1.zt")))
        self.assertEqual(of(self.path("s2.zt"), "--include", "."), of(self.path("s2.zt")))
        self.assertNotEqual(of(self.path("s1.zt")), of(one))
        # each its own
        mixed = make_zt2.File()
        for name, kind in ("a", "sha256"), ("c", "xxh3"):
            mixed.add(name, [8], data=mixed.part(name.encode() * 8, digest=kind))
        self.put("mixed.zt", mixed.finish())
        for name, kind in ("a", "sha256"), ("c", "xxh3"):
            alone = make_zt2.File()
            alone.add(name, [8], data=alone.part(name.encode() * 8, digest=kind))
            self.put("alone.zt", alone.finish())
            self.assertEqual(of(self.path("mixed.zt"), "--include", name), of(self.path("alone.zt")))
        # those of others do not matter
        lacking = make_zt2.File()
        lacking.add("a", [8], data=lacking.part(b"a" * 8, digest="sha256"))
        lacking.add("c", [8], data=lacking.part(b"c" * 8, digest=None))
        self.put("lacking.zt", lacking.finish())
        self.assertEqual(of(self.path("lacking.zt"), "--include", "a"), of(self.path("mixed.zt"), "--include", "a"))
        # a folder is its root
        shards = self.path("s2")
        shards.mkdir()
        self.succeed("convert", both, "--spec", "2.0", "--digest", "sha256", "--shards", "2", "-o", shards / "m.zt", "-q")
        for more in [], ["--include", "a"]:
            self.assertEqual(of(shards, *more), of(self.path("s2.zt"), *more))
        self.expect(USAGE, "id", both, "--include", "c", says="leave no tensor of 2")
        text = self.path("t.npz")
        numpy.savez(text, a=numpy.zeros(2, "<f4"), s=numpy.array(["x"]))
        self.fail_with(UNSUPPORTED, "id", text, says="tensor 's'")
        self.assertEqual(of(text, "--exclude", "s"), of(one))

    # ---- single files, other formats ----

    def test_one_file(self):
        folder = self.put_single("f")
        self.put("f/sub/x.txt", b"below")
        model = self.path("m.zt")
        self.succeed("convert", folder, "-o", model, "--zstd")
        self.assertEqual(self.succeed("extract", model, "config.json", "-o", "-"), (folder / "config.json").read_bytes())
        self.assertEqual(self.succeed("extract", model, "sub/x.txt", "-o", "-"), b"below")
        self.succeed("extract", model, "tokenizer.json", "-o", self.path("t.json"))
        self.assertEqual(self.path("t.json").read_bytes(), (folder / "tokenizer.json").read_bytes())
        self.fail_with(EXISTS, "extract", model, "tokenizer.json", "-o", self.path("t.json"))
        self.assertIn(b": 0 tensors, 1 file, ", self.expect(DONE, "extract", model, "tokenizer.json", "-o", self.path("u.json")).stderr)
        result = json.loads(self.succeed("extract", model, "tokenizer.json", "-o", self.path("v.json"), "--json"))
        size = (folder / "tokenizer.json").stat().st_size
        self.assertEqual((result["output"], result["tensors"], result["bytes_in"], result["warnings"]),
                         ({"path": str(self.path("v.json")), "format": "file", "bytes": size}, 0, size, []))
        self.fail_with(USAGE, "extract", model, "tokenizer.json", "-o", f"{self.path('new')}/", says="the output is a folder; name a file")
        self.fail_with(USAGE, "extract", model, "nothing.json", "-o", "-")
        self.fail_with(USAGE, "extract", model, "config.json", "w", "-o", self.path("x.npz"), says="'config.json' is a file of the model")

    def test_formats_without_files(self):
        folder = self.put_single("f")
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        for name in ("x.safetensors", "x.gguf", "npy/"):
            process = self.run_program("extract", self.path("m.zt"), "-o", str(self.folder) + "/" + name)
            self.assertEqual(process.returncode, DONE, process.stderr)
            self.assertIn(b"7 files of the model are left out; -o DIR/ --to safetensors writes the whole folder", process.stderr)
            self.assertEqual(b"llama.cpp cannot load the output" in process.stderr, name == "x.gguf")
        expected = make_safetensors.read(folder / "model.safetensors")
        self.assertEqual(make_safetensors.read(self.path("x.safetensors")), expected)
        # Weights that are files of the model are no tensors of it.
        sentences = self.made("sentences", make_folders.sentences)
        told = b"warning: 2_Dense/model.safetensors is left out, whether or not it holds weights; name it, or write the whole folder with "
        for words, warns in ((["x.safetensors"], True), (["npy2/"], True), (["x.npz"], True), (["x.npz", "--files", "none"], False),
                             (["both/", "--to", "safetensors"], False)):
            process = self.expect(DONE, "extract", sentences, "-f", "-o", str(self.folder) + "/" + words[0], *words[1:])
            self.assertEqual(told in process.stderr, warns, words)

    # ---- everywhere ----

    def test_inspect(self):
        folder = self.put_single("f")
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        for tree in ((), ("--tree",)):
            text = self.succeed("inspect", self.path("m.zt"), *tree).decode()
            self.assertIn("2 tensors, 60,000 parameters", text.splitlines()[0])
            self.assertIn("7 files of", text.splitlines()[0])
            self.assertNotIn("ztstream.folder", text)
            lines = text.split("files:\n")[1].splitlines()
            self.assertEqual([line.split()[0] for line in lines],
                             ["LICENSE", "README.md", "config.json", "generation_config.json", "special_tokens_map.json",
                              "tokenizer.json", "tokenizer_config.json"])
        listed = json.loads(self.succeed("inspect", "--json", self.path("m.zt")))
        self.assertEqual([o["name"] for o in listed["objects"]], ["v", "w"] if listed["objects"][0]["name"] == "v" else ["w", "v"])

    def test_however_a_file_is_given_its_manifest_is_listed(self):
        folder = self.put_single("f")
        for options in (["--spec", "1.2"], ["--spec", "2.0", "--zstd"], ["--shards", "2"]):
            self.succeed("convert", folder, "-o", self.path("m.zt"), "-f", *options)
            model = self.path("m.zt" if "--spec" in options else "m-00001-of-00002.zt")
            listed = self.json("inspect", "--json", model)
            self.assertIn("digest", listed["objects"][0]["components"][0])
            with open(model, "rb") as file:
                done = subprocess.run([support.PROGRAM, "inspect", "--json", "-"], stdin=file, capture_output=True, check=True)
            self.assertEqual({**json.loads(done.stdout), "file": listed["file"]}, listed)
            self.assertIn("config.json", [each["attributes"]["path"] for each in listed["files"]])
            without = {key: value for key, value in listed.items() if key != "files"}
            self.assertEqual(self.json("inspect", "--json", model, "--files", "none"), without)
            one = self.json("inspect", "--json", model, "--files", "config.json")
            self.assertEqual([each["attributes"]["path"] for each in one["files"]], ["config.json"])

    def test_diff_verify_id(self):
        folder = self.put_single("f")
        model = self.path("m.zt")
        self.succeed("convert", folder, "-o", model, "--zstd=planes")
        ids = {self.succeed("id", *arguments) for arguments in ((folder,), (model,))}
        self.succeed("convert", folder, "-o", self.path("2.zt"), "--spec", "2.0")
        ids.add(self.succeed("id", self.path("2.zt")))
        self.assertEqual(len(ids), 1)
        without = {self.succeed("id", each, "--files", "none") for each in (folder, model, self.path("2.zt"), folder / "model.safetensors")}
        self.assertEqual(len(without), 1)
        self.assertNotEqual(ids, without)
        was = self.path("f/config.json").stat().st_size
        self.put("f/config.json", b"{}")
        self.assertEqual(self.run_program("diff", model, folder).returncode, DIFFERS)
        self.succeed("diff", model, folder, "--files", "none")
        process = self.run_program("verify", model, "--against", folder)
        self.assertEqual(process.returncode, DIFFERS)
        self.assertEqual(process.stderr.decode(), f"ztstream: {model}: file 'config.json': shape [{was}] in the file, [2] in the source\n")

    def test_a_side_without_files(self):
        """One rule of diff for what has none: of verify they are what convert would have taken along."""
        folder = self.put_single("f")
        self.put("f/new.txt", b"x")
        bare, some, whole = (self.path(f"{name}.zt") for name in ("bare", "some", "whole"))
        for model, words in ((bare, ["none"]), (some, ["config.json", "LICENSE"]), (whole, ["all"])):
            self.succeed("convert", folder, "-o", model, "-q", "--files", words[0], *(["--files", words[1]] if words[1:] else []))
        count = self.count(whole)
        for pair in ((bare, folder), (folder, bare), (bare, whole), (folder / "model.safetensors", folder), (whole, folder / "model.safetensors")):
            process = self.run_program("diff", *pair)
            self.assertEqual((process.returncode, process.stderr.decode()),
                             (DONE, f"ztstream: {count} files of the model are not compared: the other side has none\n"), pair)
            self.assertEqual(json.loads(self.succeed("diff", *pair, "--json"))["files_not_compared"], count)
        self.assertNotIn("files_not_compared", json.loads(self.succeed("diff", whole, folder, "--json")))
        result = json.loads(self.succeed("verify", whole, "--against", folder / "model.safetensors", "--json"))
        self.assertEqual(result["files_not_compared"], count)
        process = self.run_program("diff", some, folder)
        self.assertEqual(process.returncode, DIFFERS)
        lines = process.stdout.decode().splitlines()
        self.assertIn(f"file 'new.txt': only in {folder}", lines)
        self.assertRegex(lines[-1], rf"^0 of 2 tensors differ, 0 of 2 files differ; {count - 2} files are only in {folder}; ")
        self.assertNotIn("__meta__", "".join(lines))
        # verify
        process = self.run_program("verify", bare, "--against", folder)
        said = process.stderr.decode()
        self.assertEqual((process.returncode, said.count(": only in the source\n")), (DIFFERS, count))
        self.assertIn(f"ztstream: {bare}: file 'new.txt': only in the source\n", said)
        self.assertTrue(said.splitlines()[-1].endswith("--files or the like, give verify the same options"), said)
        result = json.loads(self.run_program("verify", bare, "--against", folder, "--json").stdout)
        self.assertIn({"file": "new.txt", "kind": "only_second"}, result["differences"])
        self.succeed("verify", bare, "--against", folder, "--files", "none")
        self.succeed("verify", some, "--against", folder, "--files", "config.json", "--files", "LICENSE")
        # Files that were asked for are missing on the side that has none.
        for words in ((bare, folder), (whole, folder / "model.safetensors")):
            self.expect(DIFFERS, "diff", *words, "--files", "all", "-q")
        # names that mean more to a shell or as patterns
        odd = self.put("o/model.safetensors", make_safetensors.encode(make_safetensors.sample())).parent
        names = ["it's.txt", "it_s.txt", "d[e]", "f g", "none"]
        for name in names:
            self.put(f"o/{name}", b"x")
        for chosen in ([name for name in names if name != "it_s.txt"], ["it's.txt", "none"]):
            words = [f"--files={glob.escape(name) if name != 'none' else '[n]one'}" for name in chosen]
            self.succeed("convert", odd, "-o", self.path("o.zt"), "-f", "-q", *words)
            self.assertEqual(sorted(self.paths(self.path("o.zt"))), sorted(chosen))
            self.succeed("verify", self.path("o.zt"), "--against", odd, *words)
        # a file that is executable on one side, of every pair of formats
        self.path("f/new.txt").chmod(0o755)
        for words in (["verify", whole, "--against", folder], ["diff", whole, folder], ["diff", folder, whole]):
            process = self.run_program(*words)
            self.assertEqual(process.returncode, DIFFERS, words)
            self.assertIn(b"file 'new.txt': attribute 'executable' ", process.stdout + process.stderr)
        self.succeed("diff", whole, folder, "--attributes", "none")
        self.path("f/new.txt").chmod(0o644)
        self.succeed("verify", whole, "--against", folder)
        # what has files that such a convert would not have written is not good
        for words, left in (("none",), 0), (("config.json",), 1):
            process = self.run_program("verify", whole, "--against", folder, *(f"--files={each}" for each in words))
            self.assertEqual((process.returncode, process.stderr.decode().count(": only in the file\n")), (DIFFERS, count - left))
        # versions that hold no files
        for spec, rules in (("1.1", ()), ("1.1", ("--rename", "s/^/x./")), ("0.1", ("--no-metadata",)), ("0.1", ("--no-metadata", "--files", "all"))):
            self.succeed("convert", folder, "-o", self.path("old.zt"), "-q", "-f", "--spec", spec, *rules)
            self.succeed("verify", self.path("old.zt"), "--against", folder, *rules)
        # what differs is counted apart
        self.put("f/new.txt", b"y")
        process = self.run_program("diff", whole, folder)
        self.assertRegex(process.stdout.decode(), rf"^file 'new.txt': 1 of 1 elements differ; first at \[0\]\n"
                         rf"0 of 2 tensors differ, 1 of {count} files differs; \S+ \w+ compared\n$")

    def count(self, model):
        return len(json.loads(self.succeed("inspect", "--json", model))["files"])

    def test_dry_run(self):
        folder = self.put_single("f")
        self.put("f/.hidden", b"x")
        text = self.succeed("convert", folder, "--dry-run", "-v").decode()
        self.assertIn("config.json  file  ", text)
        self.assertIn("2 of 2 tensors, 7 files, ", text)
        plan = json.loads(self.succeed("convert", folder, "--dry-run", "--json"))
        self.assertEqual((plan["tensors_in"], plan["tensors"]), (2, 2))
        self.assertEqual(len(plan["files"]), 7)
        self.assertEqual([each["path"] for each in plan["left_out"]], [".hidden"])

    def test_what_is_written(self):
        folder = self.put_single("f")
        self.put("f/empty", b"")
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        version, attributes, objects = ztread.read_file(str(self.path("m.zt")))
        entry = objects["__meta__/files/LICENSE"]
        content = (folder / "LICENSE").read_bytes()
        self.assertEqual((entry["format"], list(entry["shape"]), entry["attributes"]),
                         ("ztstream.file/1", [len(content)], {"path": "LICENSE"}))
        self.assertEqual(entry["components"]["data"]["bytes"], content)
        self.assertEqual(objects["__meta__/files/tokenizer.json"]["components"]["data"]["encoding"], "zstd")
        self.assertEqual(objects["__meta__/files/empty"]["components"]["data"]["bytes"], b"")
        self.assertEqual(objects["w"]["components"]["data"]["encoding"], "raw")
        kept = attributes["ztstream.folder"]
        whole = (folder / "model.safetensors").read_bytes()
        self.assertEqual([(each["path"], each["kind"]) for each in kept], [("model.safetensors", "safetensors")])
        self.assertTrue(whole.startswith(kept[0]["header"]) and len(whole) == len(kept[0]["header"]) + 120_000)
