"""One conversion as several files: cut, written in any order, kept, refused, mended, joined, and read as one.

ZT_SHARD_KILLS sets how many runs over eight shards are killed at a random moment (default 20), ZT_SEED the moments;
scripts/kill-trial.sh runs hundreds.
"""
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

import support
from support import DATA, DIFFERS, DONE, EXISTS, INTERRUPTED, INVALID, NUMERIC, PROGRAM, UNSUPPORTED, USAGE

import make_safetensors
import make_zt
import zt2read

NAMES = [f"layers.{n}.weight" for n in range(70)]


def shard_name(number, count, stem="model"):
    return f"{stem}-{number:05}-of-{count:05}.zt"


class Shards(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.source = self.safetensors("in.safetensors", make_safetensors.sample(NAMES, "BF16", (16, 32)),
                                       {"from": "a test"})
        self.out = self.path("out")
        self.out.mkdir()
        self.model = self.out / "model.zt"
        self.index = self.out / "model.zt.index.json"

    def convert(self, *options, source=None):
        return self.json("convert", source or self.source, "-o", self.model, "--json", *options)

    def shard(self, number, count):
        return self.out / shard_name(number, count)

    def contents(self):
        return {entry.name: entry.read_bytes() for entry in self.out.iterdir()}

    def join(self, count, *options):
        return self.json("join", *(self.shard(n, count) for n in range(1, count + 1)), "-o", self.model, "--json",
                         *options)


class Cut(Shards):

    def test_any_number_of_shards_made_in_any_order(self):
        whole = self.path("whole.zt")
        self.succeed("convert", "-q", self.source, "-o", whole)
        want = support.read_zt(whole)["objects"]
        for count in (1, 2, 7, 64):
            with self.subTest(count=count):
                result = self.convert("--shards", str(count))
                together = self.contents()
                self.assertEqual(result["shards"], count)
                self.assertEqual(sorted(together), sorted(
                    [self.index.name, *(shard_name(n, count) for n in range(1, count + 1)),
                     *(shard_name(n, count) + ".xxh3" for n in range(1, count + 1))]))
                found, order = {}, []
                for number in range(1, count + 1):
                    file = support.read_zt(self.shard(number, count))
                    stamp = file["attributes"].pop("ztstream.shard")
                    self.assertEqual(stamp, {"plan": result["plan_digest"], "shard": number, "shards": count})
                    self.assertEqual(file["attributes"], {"from": "a test"})
                    offset = {name: min(c["offset"] for c in o["components"].values())
                              for name, o in file["objects"].items()}
                    order += sorted(file["objects"], key=offset.get)
                    found.update(file["objects"])
                self.assertEqual(order, NAMES)
                self.assertEqual({name: o["components"]["data"]["bytes"] for name, o in found.items()},
                                 {name: o["components"]["data"]["bytes"] for name, o in want.items()})
                # Merged, the shards are the file that one conversion writes.
                self.succeed("convert", "-q", self.index, "-o", self.path("merged.zt"), "-f")
                self.assertEqual(self.path("merged.zt").read_bytes(), whole.read_bytes())
                # One by one, in another order, with other threads: the same bytes.
                shutil.rmtree(self.out)
                self.out.mkdir()
                numbers = list(range(1, count + 1))
                random.Random(count).shuffle(numbers)
                for number in numbers:
                    self.convert("--shard", f"{number}/{count}", "-T", str(1 + number % 3), "--memory", "1MiB")
                self.join(count)
                self.assertEqual(self.contents(), together)
                shutil.rmtree(self.out)
                self.out.mkdir()

    def test_by_size(self):
        # 1 KiB each; one is larger than a shard may be and gets one of its own.
        sizes = [1, 1, 1, 10, 1, 1, 1, 1, 1]
        source = self.path("sizes.safetensors")
        tensors = {f"t{n}": ("U8", (1024 * size,), make_safetensors.pattern(1024 * size, n))
                   for n, size in enumerate(sizes)}
        make_safetensors.write(source, tensors)
        result = self.convert("--shard-size", "4KiB", source=source)
        self.assertEqual([row["tensors"] for row in result["output"]["files"]], [3, 1, 4, 1])
        self.assertEqual([row["bytes_decoded"] for row in result["output"]["files"]], [3072, 10240, 4096, 1024])
        listed = self.json("convert", source, "--shard-size", "4KiB", "-n", "--json")
        self.assertEqual(listed["shards"], 4)
        self.assertEqual(listed["plan_digest"], result["plan_digest"])
        self.fail_with(USAGE, "convert", source, "-o", self.model, "--shard-size", "4KiB", "--shard", "1/3",
                       says="--shard 1/3: this plan has 4 shards")
        self.fail_with(USAGE, "convert", source, "-o", self.model, "--shards", "10",
                       says="must stay together make 9 groups")

    def test_what_belongs_together_stays_together(self):
        # Of each module one part lies at the start and the others at the end; all are of one size.
        part = make_safetensors.pattern(1000, 1)
        for parts in (["weight", "weight_scale_inv", "bias"], ["weight", "scale", "input_zero_point"], ["qweight", "scales", "weight_format"],
                      ["w_blocks", "w_scales", "w_bias"], ["weight", "weight_scale", "pre_quant_scale"], ["weight._data", "weight._scale", "output_scale"],
                      ["W_q", "scale", "zero"]):
            names = [f"m{n}.{parts[0]}" for n in range(4)] + [f"m{n}.{name}" for n in range(4) for name in parts[1:]]
            source = self.safetensors("modules.safetensors", {name: ("U8", (1000,), part) for name in names})
            self.convert("--shards", "4", "-f", source=source)
            held = [set(support.read_zt(self.shard(n, 4))["objects"]) for n in range(1, 5)]
            self.assertEqual(held, [{f"m{n}.{name}" for name in parts} for n in range(4)])
        # Norms have no codes, whatever their parameters are called.
        source = self.safetensors("norms.safetensors", {f"m.{name}": ("F16", (500,), part) for name in ("scale", "weight", "bias", "other")})
        self.convert("--shards", "4", "-f", source=source)

    def test_tied_tensors_share_a_blob_in_one_shard(self):
        source = DATA / "torch/tied.pt"  # embed, head and again are one storage; part lies between them
        self.convert("--shards", "2", source=source)
        objects = support.read_zt(self.shard(1, 2))["objects"]
        self.assertEqual(sorted(objects), ["again", "embed", "head"])
        self.assertEqual(len({o["components"]["data"]["offset"] for o in objects.values()}), 1)
        self.assertEqual(list(support.read_zt(self.shard(2, 2))["objects"]), ["part"])
        self.succeed("diff", self.index, source)
        self.assertEqual(json.loads(self.index.read_text())["metadata"]["total_size"], 96 + 48)
        self.fail_with(USAGE, "convert", source, "-o", self.model, "--shards", "3", says="3 shards are too many: tensors that must stay together make 2 groups")

    def test_a_pipe_and_wrong_words(self):
        self.fail_with(UNSUPPORTED, "convert", "-", "-o", self.model, "--shards", "2",
                       stdin=self.source.read_bytes(), says="name a file")
        for options, says in ((("--shards", "2", "--shard-size", "1MiB"), "leave it or --shard-size out"),
                              (("--shard", "3"), "such as 3/8"), (("--shard", "0/8"), "such as 3/8"),
                              (("--shard", "9/8"), "such as 3/8"), (("--shard", "x/8"), "such as 3/8"),
                              (("--shards", "4", "--shard", "1/3"), "contradicts --shards 4")):
            self.fail_with(USAGE, "convert", self.source, "-o", self.model, *options, says=says)
        self.fail_with(USAGE, "convert", self.source, "-o", self.out / "model", "--shards", "2", says="must end in .zt")
        self.fail_with(USAGE, "convert", self.source, "-o", "-", "--shards", "2", says="must end in .zt")
        self.fail_with(USAGE, "convert", self.source, "-o", os.fsdecode(os.fsencode(self.out) + b"/m\xff.zt"), "--shards", "2",
                       says="UTF-8")
        self.assertEqual(self.entries(self.out), [])

    def test_a_version_without_attributes_is_refused_before_anything_is_written(self):
        self.fail_with(USAGE, "convert", self.source, "-o", self.model, "--shards", "2", "--spec", "0.1",
                       "--no-metadata")
        self.assertEqual(self.entries(self.out), [])

    def test_sources_that_are_computed(self):
        """Deflated archives and dtype conversion: each shard reads only its own."""
        import numpy
        archive = self.path("a.npz")
        arrays = {f"a{n}": numpy.arange(500, dtype="f4") * n for n in range(9)}
        numpy.savez_compressed(archive, **arrays)
        self.convert("--shards", "3", "--dtype", "f16", "--zstd", source=archive)
        self.succeed("convert", "-q", archive, "-o", self.path("whole.zt"), "--dtype", "f16", "--zstd")
        self.succeed("diff", self.index, self.path("whole.zt"))


class Together(Shards):
    """Index, root and the folder that holds either are one input of every command."""

    def check(self, folder, text):
        plain = self.path("plain.zt")
        self.succeed("convert", "-q", "-f", self.source, "-o", plain)
        self.assertIn(f"{folder}: {text}, 70 tensors, 35,840 parameters, 70.00 KiB\n".encode(), self.succeed("inspect", folder))
        self.assertIn(b"(70 of components and 4 of shards)", self.succeed("verify", folder, "--against", self.source))
        self.assertEqual(self.succeed("id", folder), self.succeed("id", self.source))
        self.succeed("diff", folder, self.source)
        self.succeed("extract", "-q", "-f", folder, "-o", self.path("back.safetensors"))
        self.succeed("diff", self.path("back.safetensors"), self.source)
        self.succeed("convert", "-q", "-f", folder, "-o", self.path("merged.zt"))
        self.assertEqual(self.path("merged.zt").read_bytes(), plain.read_bytes())
        listing = self.json("inspect", "--json", folder)
        self.assertEqual(len(listing["shard_files"]), 4)
        self.assertEqual([row["name"] for row in listing["objects"]], NAMES)
        self.assertEqual({len(row["components"][0]["file"]) > 0 for row in listing["objects"]}, {True})
        return listing

    def test_index(self):
        process = self.run_program("convert", self.source, "-o", self.model, "--shards", "4")
        self.assertTrue(process.stderr.startswith(f"ztstream: {self.index}: 4 shards written".encode()), process.stderr)
        self.assertEqual(self.check(self.out, "zTensor 1.2.0 in 4 shards")["version"], "1.2.0")
        row = self.check(self.index, "zTensor 1.2.0 in 4 shards")["objects"][0]["components"][0]
        whole = support.read_zt(self.shard(1, 4))["objects"][NAMES[0]]["components"]["data"]
        self.assertEqual((row["file"], row["offset"], row["encoding"]), (shard_name(1, 4), whole["offset"], "raw"))
        for command in ("inspect", "verify", "id"):
            self.fail_with(support.IO, command, self.model, says=f"{self.model}: cannot open: No such file or directory; its "
                           "shards are there: name their index, model.zt.index.json")

    def test_a_file_that_is_there_is_not_looked_for_in_shards(self):
        with socket.socket(socket.AF_UNIX) as server:  # a file that nobody can open
            server.bind(str(self.model))
            self.path("model.zt.index.json").write_text("{}")
            for command in ("inspect", "verify", "id"):
                self.fail_with(support.IO, command, self.model, says=f"{self.model}: cannot open: No such device or address\n")
        self.fail_with(support.IO, "inspect", self.path("other.zt"), says="other.zt: cannot open: No such file or directory\n")

    def test_root(self):
        self.convert("--shards", "4", "--spec", "2.0")
        self.assertEqual(self.check(self.out, "zTensor 2.0 in 4 shards")["version"], "2.0")
        self.check(self.model, "zTensor 2.0 in 4 shards")
        shutil.copy(self.model, self.out / "other.zt")  # no root of shards that are named so
        self.succeed("verify", self.out)
        for number in range(1, 5):
            shutil.copy(self.shard(number, 4), self.out / shard_name(number, 4, "other"))
        for command in ("inspect", "verify"):
            self.fail_with(USAGE, command, self.out, says=f"{self.out}: the folder has several checkpoints in shards, "
                           "'model.zt' and 'other.zt'")

    def test_in_the_folder_of_the_model(self):
        """The digests of shards, which lie there by then, are no files of the model."""
        model = self.path("model")
        model.mkdir()
        (model / "model.safetensors").write_bytes(make_safetensors.encode(make_safetensors.sample("ab", "F32", (8, 8))))
        (model / "config.json").write_text("{}")
        for number in "1/2", "2/2":
            self.succeed("convert", "-q", model, "--shard", number, "-o", model / "model.zt")
        said = self.expect(0, "join", *sorted(model.glob("model-*.zt")), "-o", model / "model.zt").stderr.decode()
        self.assertIn(": 2 shards, 2 tensors and 1 file, ", said)
        for more in [], ["-f"]:
            said = self.expect(0, "convert", model, "--shards", "2", "-o", model / "model.zt", *more).stderr.decode()
            self.assertIn(": 0 shards written, 2 kept\n", said)  # and no rate of nothing
        self.succeed("verify", model / "model.zt.index.json")

    def test_shards_that_are_not_joined(self):
        for spec in ("1.2", "2.0"):
            for number in (1, 3):
                self.convert("--shard", f"{number}/3", "--spec", spec)
            for command in ("inspect", "verify", "id"):
                self.fail_with(USAGE, command, self.out,
                               says=f"{self.out}: 2 shards of model.zt are there; 'ztstream join' writes their index")
            self.fail_with(USAGE, "join", self.out / "model-*-of-00009.zt", "-o", self.model,
                           says="model-*-of-00009.zt: no file matches this pattern; the shards are not written yet, or are in another folder")
            shutil.rmtree(self.out)
            self.out.mkdir()

    def test_one_shard_tells_of_itself_alone(self):
        rows = self.convert("--shards", "4")["output"]["files"]
        own = self.convert("--shard", "2/4", "-f")
        self.assertEqual((own["tensors_in"], own["tensors"], own["bytes_in"], own["bytes_decoded"]),
                         (70, rows[1]["tensors"], rows[1]["bytes_decoded"], rows[1]["bytes_decoded"]))
        self.assertLess(own["tensors"], 70)

    def test_a_dry_run_takes_any_name(self):
        for name in ("foobar", "foobar.zt"):
            text = self.succeed("convert", self.source, "-n", "-o", name, "--shards", "2").decode()
            self.assertTrue(text.startswith("foobar-00001-of-00002.zt: 35 tensors"), text)

    def test_a_dry_run_says_what_would_fail(self):
        self.convert("--shards", "2")
        self.assertEqual(self.convert("--shards", "2", "-n")["warnings"], [])
        process = self.run_program("convert", self.source, "-n", "-o", self.model, "--shards", "3")
        self.assertEqual(process.returncode, 0)
        self.assertRegex(process.stderr.decode(), r"\Aztstream: warning: without --dry-run this fails: \S+/model-0000[12]-of-00002\.zt: "
                         r"shards of this name with another count, 2, exist already; remove them first\n\Z")
        line = (f"without --dry-run this fails: {self.index}: the index exists already and belongs to other shards; "
                "use -f to replace it")
        self.assertEqual(self.convert("--shards", "2", "-n", "--zstd")["warnings"], [line])
        self.assertEqual(self.convert("--shards", "2", "-n", "-f", "--zstd")["warnings"], [])


class Again(Shards):

    def test_what_is_there_is_kept(self):
        self.convert("--shards", "4")
        before = self.contents()
        stamps = {name: (self.out / name).stat().st_mtime_ns for name in before}
        self.shard(3, 4).unlink()
        result = self.convert("--shards", "4")
        self.assertEqual([row["kept"] for row in result["output"]["files"]], [True, True, False, True])
        self.assertEqual(self.contents(), before)
        kept = [name for name in before if "00003" not in name]
        self.assertEqual({name: (self.out / name).stat().st_mtime_ns for name in kept},
                         {name: stamps[name] for name in kept})
        lines = self.run_program("convert", self.source, "-o", self.model, "--shard", "2/4").stderr.decode()
        self.assertIn(f"{self.shard(2, 4)}: kept, it is whole and of this plan", lines)

    def test_digests_are_those_of_the_files_and_tools_check_them(self):
        for kind, tool in (("crc32c", "xxhsum"), ("sha256", "sha256sum")):
            self.convert("--shards", "2", "--digest", kind, "-f")
            suffix = "sha256" if kind == "sha256" else "xxh3"
            self.assertEqual(self.entries(self.out), [shard_name(1, 2), shard_name(1, 2) + "." + suffix,
                                                      shard_name(2, 2), shard_name(2, 2) + "." + suffix,
                                                      self.index.name])
            if shutil.which(tool):
                for number in (1, 2):
                    subprocess.run([tool, "-c", shard_name(number, 2) + "." + suffix], check=True, cwd=self.out,
                                   capture_output=True)
        index = json.loads(self.index.read_text())["metadata"]["ztstream"]["shards"]
        for number in (1, 2):
            content = self.shard(number, 2).read_bytes()
            self.assertEqual(index[shard_name(number, 2)],
                             {"size": len(content), "digest": "sha256:" + hashlib.sha256(content).hexdigest()})

    def test_replaced_shards_and_their_digests_keep_their_modes(self):
        self.convert("--shards", "2")
        for entry in self.out.iterdir():
            entry.chmod(0o600)
        self.convert("--shards", "2", "--zstd", "-f")
        modes = {entry.name: entry.stat().st_mode & 0o777 for entry in self.out.iterdir()}
        self.assertEqual(modes, dict.fromkeys(self.entries(self.out), 0o600))

    def test_a_shard_that_is_damaged_or_of_another_plan_is_refused_and_mended_with_force(self):
        self.convert("--shards", "2")
        good = self.contents()
        shard = self.shard(1, 2)
        content = shard.read_bytes()
        flipped = bytearray(content)
        flipped[200] ^= 1
        other = self.path("other")
        other.mkdir()
        self.succeed("convert", "-q", self.source, "-o", other / "model.zt", "--shards", "2", "--zstd")
        whole = self.path("whole.zt")
        self.succeed("convert", "-q", self.source, "-o", whole)
        for bad, says in ((bytes(flipped), "is damaged: its digest is xxh3:"), (content[:-5], "is damaged"),
                          (b"", "is damaged"), (whole.read_bytes(), "it is not a shard"),
                          ((other / shard.name).read_bytes(), "a shard of another plan"),
                          (self.shard(2, 2).read_bytes(), "it is shard 2")):
            for options in (("--shard", "1/2"), ("--shards", "2")):
                shard.write_bytes(bad)
                self.fail_with(EXISTS, "convert", self.source, "-o", self.model, *options,
                               says=(f"{shard}: ", says, "use -f"))
                self.assertEqual(shard.read_bytes(), bad)
                self.convert(*options, "-f")
                self.assertEqual(self.contents(), good)

    def test_a_shard_without_its_digest_is_written_again(self):
        """As a task leaves it that is killed between the two. The digests in a shard cover no names: it vouches for nothing."""
        self.convert("--shards", "2")
        good = self.contents()
        beside, shard = self.out / (shard_name(1, 2) + ".xxh3"), self.shard(1, 2)
        beside.unlink()
        line = self.fail_with(INVALID, "join", shard, self.shard(2, 2), "-o", self.model)
        self.assertIn("convert this shard again", line)
        content = shard.read_bytes()
        name = content.rindex(b"layers.")
        flipped = bytearray(content)
        flipped[200] ^= 1
        renamed = content[:name] + b"lovers" + content[name + 6:]
        for held in (content, bytes(flipped), renamed):
            shard.write_bytes(held)
            beside.unlink(missing_ok=True)
            result = self.convert("--shards", "2")
            self.assertEqual([row["kept"] for row in result["output"]["files"]], [False, True])
            self.assertEqual(self.contents(), good)

    def test_another_plan_where_inputs_or_options_are_others(self):
        plans = set()
        larger = self.safetensors("larger.safetensors", make_safetensors.sample(NAMES, "BF16", (16, 33)))
        for options in ((), ("--zstd",), ("--zstd=3",), ("--zstd=huffman",), ("--zstd=planes",), ("--digest", "xxh3"),
                        ("--chunk", "1MiB", "--zstd"), ("--dtype", "f32"), ("--rename", "s/layers/l/"),
                        ("--min-gain", "5", "--zstd"), ("--no-metadata",), ("--spec", "1.1"), ("--exclude", "69"),
                        ("--on-overflow", "inf", "--dtype", "keep")):
            plans.add(self.json("convert", self.source, "-n", "--json", "--shards", "3", *options)["plan_digest"])
        for options in ((self.source, "--shards", "4"), (larger, "--shards", "3")):
            plans.add(self.json("convert", *options, "-n", "--json")["plan_digest"])
        self.assertEqual(len(plans), 16)
        first = self.json("convert", self.source, "-n", "--json", "--shards", "3")["plan_digest"]
        copy = self.path("elsewhere.safetensors")
        shutil.copy(self.source, copy)
        for options in ((self.source, "-T", "1", "--memory", "1MiB"), (copy, "--no-sync"),
                        (self.source, "--shard", "2/3")):
            again = self.json("convert", *options, "-n", "--json", "--shards", "3")["plan_digest"]
            self.assertEqual(again, first, options)

    def test_shards_older_than_an_input_are_not_kept(self):
        """What the sample of the inputs' bytes does not see, their times do."""
        tensors = {name: ("U8", (16 << 20,), make_safetensors.pattern(16 << 20, seed)) for seed, name in enumerate("ab")}
        make_safetensors.write(self.source, tensors)
        plan = self.convert("--shards", "2")["plan_digest"]
        before = self.contents()
        content = bytearray(self.source.read_bytes())
        content[5000] ^= 1  # samples of 4096 bytes begin each 32 KiB
        self.source.write_bytes(bytes(content))
        self.assertEqual(self.convert("--shards", "2", "-n")["plan_digest"], plan)
        for number in 1, 2:  # what was made of the older file was made before it was written
            os.utime(self.shard(number, 2), (1, 1))
        error = self.fail_with(EXISTS, "convert", self.source, "-o", self.model, "--shards", "2")
        self.assertIn("older than its inputs; use -f", error)
        result = self.convert("--shards", "2", "-f")
        self.assertEqual([row["kept"] for row in result["output"]["files"]], [False, False])
        self.succeed("verify", self.index, "--against", self.source)
        self.assertNotEqual(self.contents(), before)

    def test_neither_inputs_nor_shards_of_another_count_are_in_the_way(self):
        self.convert("--shards", "3")
        before = self.contents()
        error = self.fail_with(EXISTS, "convert", self.source, "-o", self.model, "--shards", "2", "-f")
        self.assertIn("shards of this name with another count, 3, exist already; remove them first", error)
        error = self.fail_with(USAGE, "convert", self.index, "-o", self.model, "--shards", "3", "--zstd", "-f")
        self.assertIn("it is an input", error)
        self.assertEqual(self.contents(), before)

    def test_sigterm_leaves_whole_shards_alone(self):
        process = subprocess.Popen([PROGRAM, "convert", self.source, "-o", self.model, "--shards", "64"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and not any(entry.suffix == ".zt" for entry in self.out.iterdir()):
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=support.PATIENCE)[1].decode()
        self.assertIn(process.returncode, (INTERRUPTED, DONE), errors)
        self.assertFalse([name for name in self.entries(self.out) if name.endswith("-tmp")])
        for entry in self.out.glob("*.zt"):
            self.succeed("verify", "-q", entry)
        result = self.convert("--shards", "64")
        self.assertEqual(len(result["output"]["files"]), 64)

    def test_kills_at_random_moments(self):
        """Killed runs over eight shards, each run again: what is there is whole, and the end is as undisturbed."""
        moments = random.Random(int(os.environ.get("ZT_SEED", "1")))
        options = ("--shards", "8", "--zstd", "--no-sync", "-T", "8")
        start = time.monotonic()
        self.convert(*options)
        duration = time.monotonic() - start
        want = self.contents()
        finished = kept = 0
        shutil.rmtree(self.out)
        self.out.mkdir()
        for kill in range(int(os.environ.get("ZT_SHARD_KILLS", "20"))):
            process = subprocess.Popen([PROGRAM, "convert", self.source, "-o", self.model, *options],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(moments.uniform(0, 1.1 * duration))
            process.kill()
            status = process.wait()
            self.assertIn(status, (DONE, -signal.SIGKILL))
            for name, content in self.contents().items():
                if name.endswith("-tmp"):
                    self.assertTrue(name.startswith("."), name)
                else:
                    self.assertEqual(content, want[name], f"{name} is partial")
                    kept += name.endswith(".zt")
            if status == DONE or kill % 4 == 3:
                self.convert(*options)
                self.assertEqual(self.contents(), want)
                finished += 1
                shutil.rmtree(self.out)
                self.out.mkdir()
        self.convert(*options)
        self.assertEqual(self.contents(), want)
        print(f"{kill + 1} kills: {kept} whole shards found after them, {finished + 1} times finished as undisturbed")


class Join(Shards):

    def test_the_index_is_what_the_field_knows(self):
        self.convert("--shards", "3")
        index = json.loads(self.index.read_text())
        self.assertEqual(index["metadata"]["total_size"], 70 * 16 * 32 * 2)
        self.assertEqual(list(index["weight_map"]), sorted(NAMES))
        for number in range(1, 4):
            inside = set(support.read_zt(self.shard(number, 3))["objects"])
            self.assertEqual({name for name, file in index["weight_map"].items() if file == shard_name(number, 3)},
                             inside)

    def test_again_is_nothing_and_another_needs_force(self):
        self.convert("--shards", "3")
        before = self.index.stat().st_mtime_ns
        self.join(3)
        self.assertEqual(self.index.stat().st_mtime_ns, before)
        self.index.write_text("{}")
        shards = [self.shard(n, 3) for n in (1, 2, 3)]
        self.fail_with(EXISTS, "join", *shards, "-o", self.model, says=f"{self.index}: the index exists already")
        self.fail_with(EXISTS, "convert", self.source, "-o", self.model, "--shards", "3",
                       says=f"{self.index}: the index exists already")
        self.join(3, "-f")
        self.assertEqual(len(json.loads(self.index.read_text())["weight_map"]), 70)

    def test_gaps_and_missing(self):
        self.convert("--shards", "8")
        self.index.unlink()
        there = [self.shard(n, 8) for n in (1, 3, 4, 8)]
        self.fail_with(INVALID, "join", *there, "-o", self.model,
                       says="shards 00002, 00005 to 00007 of 00008 are missing")
        self.assertEqual(self.succeed("join", "--missing", *there), b"2,5-7\n")
        result = self.json("join", "--missing", *there, "--json")
        self.assertEqual((result["missing"], result["array"], result["shards"]), ([2, 5, 6, 7], "2,5-7", 8))
        self.assertEqual(self.succeed("join", "--missing", *(self.shard(n, 8) for n in range(1, 9))), b"")
        self.assertFalse(self.index.exists())

    def test_what_is_not_of_the_set_is_named(self):
        self.convert("--shards", "2")
        one, two = self.shard(1, 2), self.shard(2, 2)
        other = self.path("other")
        other.mkdir()
        self.succeed("convert", "-q", self.source, "-o", other / "model.zt", "--shards", "2", "--zstd")
        whole = self.path("whole.zt")
        self.succeed("convert", "-q", self.source, "-o", whole)
        copy = self.out / "copy.zt"
        for bad, says in ((other / two.name, "its plan is not that of"), (whole, "it is not a shard"),
                          (self.source, "it is safetensors, not .zt"), (one, "it is shard 00001, like"), (self.path("absent.zt"), "")):
            self.fail_with((INVALID, UNSUPPORTED, support.IO), "join", one, bad, "-o", self.model, says=(f"{bad}: ", says))
        shutil.copy(two, copy)
        self.fail_with(INVALID, "join", one, copy, "-o", self.model, says=f"{copy}: it is shard 00002 of 00002, and its name is not that of this shard")
        elsewhere = self.path("elsewhere")
        elsewhere.mkdir()
        shutil.copy(two, elsewhere / two.name)
        self.fail_with(INVALID, "join", one, elsewhere / two.name, "-o", self.model, says=f"{elsewhere / two.name}: ")
        self.succeed("join", "-q", one, f"{self.folder}/./out/../out/{two.name}", "-o", f"{self.folder}/out/./model.zt")
        self.fail_with(USAGE, "join", one, two, says="-o OUT is missing")
        for stamp in ({}, {"plan": "x", "shard": 1, "shards": 1 << 60}, {"plan": 1, "shard": 1, "shards": 2},
                      {"plan": "x", "shard": 3, "shards": 2}, {"plan": "x", "shard": 0, "shards": 2}, 7):
            forged = self.put("out/forged-00001-of-00002.zt", make_zt.encode_1(
                {"a": {"shape": [1], "components": {"data": {"dtype": "u8", "data": b"x"}}}},
                attributes={"ztstream.shard": stamp}))
            self.fail_with(INVALID, "join", forged, "-o", self.out / "forged.zt", says=f"{forged}: it is not a shard")
        two.write_bytes(two.read_bytes()[:-9])
        self.fail_with(INVALID, "join", one, two, "-o", self.model, "-f", says=f"{two}: ")

    def test_it_reads_ends_and_manifests_alone(self):
        strace = shutil.which("strace")
        if strace is None:
            self.skipTest("strace is not installed")
        source = self.safetensors(
            "large.safetensors", make_safetensors.sample(["a.weight", "b.weight"], "U8", (1 << 22,)))
        self.convert("--shards", "2", source=source)
        log = self.path("log")

        def read_by(*command):
            # The leak sanitizer, where the program has it, cannot run in a traced process.
            subprocess.run([strace, "-f", "-o", log, "-e", "trace=pread64,preadv,read,readv", PROGRAM, *command],
                           env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"), check=True, capture_output=True)
            return sum(int(count) for count in re.findall(r"pread(?:64|v)\(.* = (\d+)$", log.read_text(), re.M))

        self.assertLess(read_by("join", self.shard(1, 2), self.shard(2, 2), "-o", self.model), 8192)
        # A head of 16 KiB tells the format: HDF5 may begin that far in.
        # The sample of the data: 1024 places of the file, and its end.
        sample = 1024 * 4096 + 65536
        self.assertLess(read_by("convert", source, "-o", self.model, "--shards", "2", "-n"), 20_000 + sample)


class AsOne(Shards):

    def setUp(self):
        super().setUp()
        self.convert("--shards", "5")

    def test_a_shard_alone_is_a_file_like_others(self):
        single = self.path("single.zt")
        self.succeed("convert", "-q", self.shard(2, 5), "-o", single)
        self.assertEqual(support.read_zt(single)["attributes"], {"from": "a test"})
        self.succeed("verify", self.shard(2, 5))

    def test_what_does_not_fit_the_index_is_named(self):
        good = self.contents()

        def restore():
            for name, content in good.items():
                (self.out / name).write_bytes(content)

        def refused(says):
            for command in (("inspect", self.index), ("convert", self.index, "-o", self.path("x.zt")),
                            ("diff", self.index, self.source)):
                self.fail_with(INVALID, *command, says=says)
            self.fail_with(DIFFERS, "verify", self.index, says=says)
            restore()

        self.shard(4, 5).unlink()
        refused(f"shard {shard_name(4, 5)} is missing")
        shutil.copy(self.shard(3, 5), self.shard(2, 5))
        refused(shard_name(2, 5))
        self.shard(2, 5).write_bytes(self.shard(2, 5).read_bytes()[:-1])
        refused(f"{shard_name(2, 5)}: it has ")
        other = self.path("other")
        other.mkdir()
        options = ("--shards", "5", "--zstd")
        self.succeed("convert", "-q", self.source, "-o", other / "model.zt", *options)
        shutil.copy(other / shard_name(2, 5), self.shard(2, 5))
        refused(f"{shard_name(2, 5)}: its plan is not that of the index")
        extra = self.out / shard_name(6, 6)
        shutil.copy(self.shard(1, 5), extra)
        refused(f"{extra.name} is not in")
        extra.unlink()
        for name in ("another.zt", shard_name(1, 1, "another")):
            shutil.copy(self.shard(1, 5), self.out / name)
        self.assertEqual(self.run_program("inspect", self.index).stderr, b"")
        for name in ("another.zt", shard_name(1, 1, "another")):
            (self.out / name).unlink()
        # A byte of data: only verify reads those.
        flipped = bytearray(good[shard_name(2, 5)])
        flipped[200] ^= 1
        self.shard(2, 5).write_bytes(bytes(flipped))
        self.expect(DIFFERS, "verify", self.index, says=(f"{self.shard(2, 5)}: tensor '", "the index says"))

    def test_indexes_of_others(self):
        """An index that says nothing of plans or sizes is checked by its names alone."""
        index = json.loads(self.index.read_text())
        index["metadata"] = {"total_size": 1}
        self.index.write_text(json.dumps(index))
        self.succeed("diff", self.index, self.source)
        index["weight_map"][NAMES[0]] = shard_name(5, 5)
        self.index.write_text(json.dumps(index))
        self.fail_with(INVALID, "inspect", self.index, says=f"tensor '{NAMES[0]}'")
        for metadata in ({"ztstream": {}}, {"ztstream": {"plan": 1, "shards": {}}},
                         {"ztstream": {"plan": "x", "shards": {"a": {}}}},
                         {"ztstream": {"plan": "x", "shards": {"../a": {"size": 1, "digest": "x"}}}}):
            index["metadata"] = metadata
            self.index.write_text(json.dumps(index))
            self.fail_with(INVALID, "inspect", self.index)


class Identity(Shards):
    """Two fine-tunes of one base have equal names, shapes and sizes; a shard of one is never taken for the other's."""

    def setUp(self):
        super().setUp()
        self.other = self.safetensors("other.safetensors", {name: (dtype, shape, data[::-1]) for name, (
            dtype, shape, data) in make_safetensors.sample(NAMES, "BF16", (16, 32)).items()}, {"from": "a test"})

    def beside(self, *options):
        """Shards of the other model, in a folder of their own."""
        folder = self.path("beside")
        folder.mkdir(exist_ok=True)
        self.succeed("convert", "-q", "-f", self.other, "-o", folder / "model.zt", "--shards", "2", *options)
        return folder

    def check_refused(self, model, says):
        out = self.path("x.safetensors")
        for command in (("convert", model, "-o", self.path("x.zt")),
                        ("convert", model, "-o", self.path("x.zt"), "--include", f"^{NAMES[69]}$"),
                        ("convert", model, "-o", self.path("new.zt"), "--shards", "3"),
                        ("extract", "-q", model, "-o", out), ("extract", "-q", model, NAMES[69], "-o", out),
                        ("diff", model, self.source), ("diff", model, model), ("id", model)):
            self.fail_with(INVALID, *command, says=says)
        for name in ("x.zt", "x.safetensors", "new.zt.index.json"):
            self.assertFalse(self.path(name).exists())
        self.assertFalse(self.path(shard_name(3, 3, "new")).exists())
        for left in self.folder.glob("new-*"):  # of the shard that is right
            left.unlink()
        self.expect(DIFFERS, "verify", model, says="the digest")
        # Listing reads headers alone, and what lies in the right shard can be had.
        self.succeed("inspect", model)
        self.succeed("extract", "-q", model, NAMES[0], "-o", out)
        out.unlink()

    def test_a_shard_of_another_model_is_refused_by_its_digest(self):
        for options in ((), ("--digest", "none"), ("--digest", "sha256")):
            with self.subTest(options):
                plan = self.convert("--shards", "2", "-f", *options)["plan_digest"]
                wrong = (self.beside(*options) / shard_name(2, 2)).read_bytes()
                theirs = support.read_zt(self.path("beside") / shard_name(2, 2))["attributes"]["ztstream.shard"]["plan"]
                self.shard(2, 2).write_bytes(wrong)
                self.fail_with(INVALID, "inspect", self.index, says="its plan is not that of the index")
                self.shard(2, 2).write_bytes(wrong.replace(theirs.encode(), plan.encode()))
                kind = "sha256" if "sha256" in options else "xxh3"
                self.check_refused(self.index, (f"{self.shard(2, 2)}: the digest of the file is {kind}:",
                                                f", the index says {kind}:"))

    def test_so_it_is_below_a_root(self):
        for options in (("--digest", "none"), ("--digest", "none", "-T", "1")):
            with self.subTest(options):
                self.convert("--shards", "2", "--spec", "2.0", "-f", *options)
                shutil.copy(self.beside("--spec", "2.0", *options) / shard_name(2, 2), self.shard(2, 2))
                self.check_refused(self.model, (f"{self.model}: shard '00002-of-00002': the digest of the file is xxh3:",
                                                ", the root says xxh3:"))

    def test_large_shards_in_any_order(self):
        """Ranges of several threads, frames that are read ahead, names in another order: the digest is the file's."""
        tensors = {f"t{n}": ("F32", (1 << 20,), make_safetensors.pattern(4 << 20, n)) for n in (5, 1, 3, 2, 0, 4)}
        make_safetensors.write(self.source, tensors)
        for options in ((), ("--zstd", "--chunk", "64KiB"), ("--spec", "2.0", "--zstd=planes")):
            model = self.model if "2.0" in options else self.index
            self.convert("--shards", "2", "-f", *options)
            for more in ((), ("-T", "1"), ("-T", "8", "--memory", "4MiB"), ("--spec", "2.0", "--canonical"), ("--shards", "5")):
                self.succeed("convert", "-q", "-f", model, "-o", self.path("merged.zt"), *more)
                for file in self.folder.glob("merged*"):
                    file.unlink()
            self.assertIn(b"equal: 6 tensors", self.succeed("diff", model, self.source))
            shutil.rmtree(self.out)
            self.out.mkdir()

    def test_join_refuses_shards_of_two_fine_tunes(self):
        for options in ((), ("--spec", "2.0")):
            self.convert("--shard", "1/2", *options)
            self.succeed("convert", "-q", self.other, "-o", self.model, "--shard", "2/2", *options)
            self.fail_with(INVALID, "join", self.shard(1, 2), self.shard(2, 2), "-o", self.model,
                           says=f"{self.shard(2, 2)}: its plan is not that of {self.shard(1, 2)}")
            for number in 1, 2:
                self.shard(number, 2).unlink()

    def test_an_input_that_is_put_in_place_of_another_is_noticed_whatever_its_time(self):
        self.convert("--shards", "2")
        before = self.contents()
        os.utime(self.other, (1, 1))
        self.other.rename(self.source)  # as mv, cp -p, rsync -a and tar do it
        self.fail_with(EXISTS, "convert", self.source, "-o", self.model, "--shards", "2", says="belongs to other shards; use -f")
        self.fail_with(EXISTS, "convert", self.source, "-o", self.model, "--shard", "1/2", says="a shard of another plan")
        self.assertEqual(self.contents(), before)

    def test_an_input_is_the_same_elsewhere(self):
        self.convert("--shards", "2")
        copy = self.path("sub/copy.safetensors")
        copy.parent.mkdir()
        shutil.copy(self.source, copy)
        os.utime(copy, (1, 1))
        result = self.convert("--shards", "2", source=copy)
        self.assertEqual([row["kept"] for row in result["output"]["files"]], [True, True])

    def test_one_changed_tensor_makes_another_plan(self):
        """Wherever it lies: each is looked at where it begins, and archives and manifests at their ends."""
        plan = self.convert("--shards", "2", "-n")["plan_digest"]
        tensors = make_safetensors.sample(NAMES, "BF16", (16, 32))
        for name in (NAMES[0], NAMES[35], NAMES[69]):
            dtype, shape, data = tensors[name]
            changed = dict(tensors, **{name: (dtype, shape, bytes([data[0] ^ 1]) + data[1:])})
            make_safetensors.write(self.other, changed, {"from": "a test"})
            self.assertNotEqual(self.convert("--shards", "2", "-n", source=self.other)["plan_digest"], plan, name)
            plans = set()
            for source in (self.source, self.other):  # compressed: no tensor lies in the file as it is
                self.succeed("convert", "-q", "-f", source, "-o", self.path("z.zt"), "--zstd", "--min-gain", "-1000")
                plans.add(self.convert("--shards", "2", "-n", source=self.path("z.zt"))["plan_digest"])
            self.assertEqual(len(plans), 2)

    def test_a_run_that_fails_leaves_shard_and_digest_as_they_were(self):
        tensors = {"a": ("F32", (4,), bytes(16)), "b": ("F32", (1,), struct.pack("<f", 1e30))}
        make_safetensors.write(self.source, tensors)
        self.convert("--shards", "1")
        before = self.contents()
        error = self.fail_with(NUMERIC, "convert", self.source, "-o", self.model, "--shards", "1", "-f", "--dtype", "f16")
        self.assertIn("tensor 'b'", error)
        self.assertEqual(self.contents(), before)
        self.index.unlink()
        self.join(1)
        self.assertEqual(self.contents(), before)


class Links(Shards):
    """--follow-links means every opener: shards of an index and of a root, in every command."""

    def test_shards_that_are_links_out_of_the_folder(self):
        for options in ((), ("--spec", "2.0")):
            with self.subTest(options):
                self.convert("--shards", "2", *options)
                model = self.model if options else self.index
                store = self.path("store")
                store.mkdir()
                shutil.copy(DATA / "npy/c8.npy", self.path("b.npy"))  # with it, id reads more than a root's manifest
                self.shard(2, 2).rename(store / "blob")
                self.shard(2, 2).symlink_to(store / "blob")
                out = self.path("x.zt")
                for command in (("convert", model, "-o", out), ("diff", model, self.source), ("id", model, self.path("b.npy")),
                                ("extract", "-q", model, "-o", self.path("x.npz"))):
                    self.fail_with((INVALID, USAGE, UNSUPPORTED), *command, says="--follow-links")
                    self.succeed(*command, "--follow-links", "-q")
                self.assertNotEqual(self.run_program("verify", model).returncode, DONE)
                for command in (("verify", model), ("verify", self.out), ("inspect", model),
                                ("verify", model, "--against", self.source), ("verify", model, "--against", model),
                                ("verify", out, "--against", model)):
                    self.succeed(*command, "--follow-links", "-q")
                for path in (self.out, store):
                    shutil.rmtree(path)
                self.out.mkdir()
                out.unlink()
                self.path("x.npz").unlink()

    def test_a_root_or_an_index_that_is_a_link_out_of_the_folder(self):
        for options in ((), ("--spec", "2.0")):
            with self.subTest(options):
                self.convert("--shards", "2", *options)
                model, elsewhere = self.model if options else self.index, self.path("elsewhere")
                model.rename(elsewhere)
                model.symlink_to(elsewhere)
                out = self.path("x.zt")
                for command in (("convert", self.out, "-o", out), ("diff", self.out, self.source), ("id", self.out),
                                ("extract", self.out, "-o", self.path("x.npz")), ("inspect", self.out), ("verify", self.out)):
                    self.fail_with(INVALID, *command, says=(f"{self.out}: {model.name}: ", "--follow-links"))
                    self.succeed(*command, "--follow-links", "-q")
                shutil.rmtree(self.out)
                self.out.mkdir()
                for file in (out, self.path("x.npz"), elsewhere):
                    file.unlink()


class Root(Shards):
    """Version 2.0, where a .zt file of its own names the shards: what join writes in place of the index."""

    def test_a_root_over_any_number_of_shards(self):
        for count, options in ((1, ()), (3, ("--zstd",)), (7, ("--zstd=planes", "-T", "1")), (4, ("--digest", "sha256"))):
            with self.subTest(count=count, options=options):
                options = ("--spec", "2.0", *options)
                result = self.convert("--shards", str(count), *options)
                self.assertEqual(result["output"]["path"], str(self.model))
                together = self.contents()
                suffix = "sha256" if "sha256" in options else "xxh3"
                self.assertEqual(sorted(together), sorted(
                    [self.model.name, *(shard_name(n, count) for n in range(1, count + 1)),
                     *(f"{shard_name(n, count)}.{suffix}" for n in range(1, count + 1))]))
                root = zt2read.open_file(self.model)
                root.verify()
                self.assertEqual(root.attributes, {"from": "a test", "ztstream.shard": {
                    "plan": result["plan_digest"], "shards": count}})
                for number in range(1, count + 1):
                    content = together[shard_name(number, count)]
                    size, digest = root.shards[f"{number:05}-of-{count:05}"]
                    self.assertEqual((size, digest), (len(content), zt2read.digest_of(suffix, content)))
                tensors, _ = make_safetensors.read(self.source)
                self.assertEqual({name: root.decode(name, "data") for name in root.objects},
                                 {name: data for name, (_, _, data) in tensors.items()})
                # One by one, then joined: the same bytes, and nothing of the root in its shards.
                whole = self.path("whole.zt")
                self.succeed("convert", "-q", self.source, "-o", whole, "-f", *options)
                for number in range(count, 0, -1):
                    self.shard(number, count).unlink()
                self.model.unlink()
                for number in range(count, 0, -1):
                    self.convert("--shard", f"{number}/{count}", *options)
                self.join(count)
                self.assertEqual(self.contents(), together)
                self.assertEqual(self.join(count)["output"]["path"], str(self.model))
                # What the tensors are does not depend on how many files hold them.
                ids = {self.succeed("id", file) for file in (self.model, whole)}
                self.assertEqual(len(ids), 1)
                self.succeed("verify", self.model, "--against", self.source)
                self.succeed("convert", "-q", self.model, "-o", self.path("merged.zt"), "-f", *options)
                self.assertEqual(self.path("merged.zt").read_bytes(), whole.read_bytes())
                shutil.rmtree(self.out)
                self.out.mkdir()

    def test_what_does_not_fit_the_root_is_named(self):
        options = ("--shards", "3", "--spec", "2.0")
        self.convert(*options)
        good = self.contents()
        shard = self.shard(2, 3)
        flipped = bytearray(good[shard.name])
        flipped[65536] ^= 1
        shard.write_bytes(bytes(flipped))
        self.expect(DIFFERS, "verify", self.model)
        self.fail_with(EXISTS, "convert", self.source, "-o", self.model, "--shard", "2/3", "--spec", "2.0",
                       says=f"{shard}: ")
        self.convert(*options, "-f")
        self.assertEqual(self.contents(), good)
        shard.unlink()
        self.fail_with((INVALID, support.IO), "convert", self.model, "-o", self.path("x.zt"), says="00002-of-00003")
        self.fail_with(EXISTS, "convert", self.source, "-o", self.model, *options, "--zstd",
                       says=f"{self.model}: the index exists already")
        self.fail_with(INVALID, "join", self.model, "-o", self.model, says=f"{self.model}: it is not a shard")

    def test_align_is_in_the_plan_and_canonical_is_for_one_file(self):
        plans = {self.json("convert", self.source, "-n", "--json", "--shards", "3", "--spec", "2.0", *options)["plan_digest"]
                 for options in ((), ("--align", "4096"), ("--digest", "none"))}
        self.assertEqual(len(plans), 3)
        self.fail_with(USAGE, "convert", self.source, "-o", self.model, "--shards", "2", "--canonical",
                       says="--canonical writes one file")

    def test_tied_and_sparse_objects(self):
        source = DATA / "torch/tied.pt"
        self.convert("--shards", "2", "--spec", "2.0", source=source)
        zt2read.open_file(self.model).verify()
        self.succeed("diff", self.model, source)
