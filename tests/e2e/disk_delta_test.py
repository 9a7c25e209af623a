"""Folders of "disk delta", the form that slime, sglang and others share, as input with a base and as output of convert --to disk-delta."""
import json
import os
import pathlib
import shutil

import numpy
import zstandard

import delta_test
import disk_delta
import make_safetensors
import support
from support import DONE, EXISTS, INVALID, UNSUPPORTED, USAGE

COUNT = int(os.environ.get("ZT_COUNT", "60"))
NEW = "weight_v000001"


def arrays(model):
    return {name: data for name, (_, _, data) in model.items()}


def step(rng, model):
    return {name: (dtype, shape, delta_test.updated(rng, dtype, data)) for name, (dtype, shape, data) in model.items()}


class DiskDelta(support.EndToEnd):

    def model(self, name, model):
        return self.put(name, delta_test.encode(model))

    def same(self, first, second):
        self.assertEqual(pathlib.Path(first).read_bytes(), pathlib.Path(second).read_bytes(), f"{first} {second}")

    def pair(self, count=20_000, seed=3):
        rng = numpy.random.default_rng(seed)
        old = {name: (dtype, [size], delta_test.values(rng, dtype, size))
               for name, dtype, size in (("w", "BF16", count), ("b", "F32", 400), ("same", "F8_E4M3", 50))}
        new = dict(old)
        for name in ("w", "b"):
            data = old[name][2].copy()
            data[::37] ^= 1
            new[name] = (*old[name][:2], data)
        return old, new

    def test_random(self):
        """What we write, a reader of its own applies; what a writer of its own writes, we apply: byte for byte."""
        for seed in range(COUNT):
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            with self.subTest(seed=seed):
                self.random_one(numpy.random.default_rng(seed))

    def random_one(self, rng):
        old = delta_test.tensors(rng)
        new = step(rng, old)
        overwrite, xxh3 = rng.random(2) < 0.5
        before, after = self.model("old/model.safetensors", old), self.model("new.safetensors", new)
        base = before
        if rng.random() < 0.5:
            base = self.path("base.zt")
            self.succeed("convert", before, "-o", base, "-q", "--spec", str(rng.choice(["1.2", "2.0"])),
                         *([], ["--zstd"], ["--zstd=planes"])[rng.integers(0, 3)])
        source = after
        if rng.random() < 0.3:  # from a delta of ours
            source = self.path("d.zt")
            self.succeed("convert", after, "--base", base, "-o", source, "-q")
        self.succeed("convert", source, "--base", base, "--to", "disk-delta-overwrite" if overwrite else "disk-delta", "-o",
                     f"{self.path(NEW)}/", "-q", *(["--digest", "xxh3"] if xxh3 else []), "-T", str(rng.integers(1, 4)),
                     *(["--shard-size", "300"] if rng.random() < 0.5 else []))
        self.check_applied(NEW, base, after)
        form = disk_delta.apply(self.path(NEW), self.path("old"))
        self.assertEqual(form, disk_delta.metadata("000001", "000000", "overwrite" if overwrite else "xor",
                                                   sums="xxh3-128" if xxh3 else "adler32"))
        self.same(before, after)
        self.model("old/model.safetensors", old)
        disk_delta.write(self.path("theirs2"), arrays(old), arrays(new), shards=int(rng.integers(1, 4)), version="2", base="1",
                         encoding=str(rng.choice(["xor", "overwrite"])), compression=str(rng.choice(["zstd", "none"])),
                         sums=str(rng.choice(["adler32", "xxh3-128"])))
        self.check_applied("theirs2", base, after)

    def check_applied(self, folder, base, after):
        whole, made = self.path("whole.zt"), self.path("made.zt")
        self.succeed("convert", after, "-o", whole, "-fq", "--no-metadata")
        self.succeed("convert", self.path(folder), "--base", base, "-o", made, "-fq", "--no-metadata", "--raw")
        self.same(whole, made)

    def test_commands(self):
        """Every command reads folder and base as the model; without a base it lists what is there, or says which is missing."""
        old, new = self.pair()
        base, after = self.model("old.safetensors", old), self.model("new.safetensors", new)
        run = self.json("convert", after, "--base", base, "--to", "disk-delta", "-o", f"{self.path(NEW)}/", "--json")
        files = ["model-000001.safetensors", disk_delta.INDEX]
        self.assertEqual(run["output"], {
            "path": f"{self.path(NEW)}/", "format": "disk-delta", "version": "000001", "base_version": "000000", "differing": 2,
            "bytes": sum((self.path(NEW) / name).stat().st_size for name in files)})
        self.assertEqual(self.entries(self.path(NEW)), files)
        folder = self.path(NEW)
        self.succeed("diff", folder, after, "--base", base, "--attributes", "all")
        self.assertEqual(self.succeed("show", folder, "w", "--base", base), self.succeed("show", after, "w"))
        self.assertIn(b"good: 3 objects, 3 components, 2 digests match", self.succeed("verify", folder, "--base", base))
        listed = {o["name"]: o["components"][0]["dtype"] for o in self.json("inspect", "--json", folder, "--base", base)["objects"]}
        self.assertEqual(listed, {"w": "bf16", "b": "f32", "same": "u8"})
        listed = self.json("inspect", "--json", folder)
        self.assertEqual({o["name"] for o in listed["objects"]}, {"w", "b"})
        self.assertEqual(listed["attributes"]["disk-delta"]["version"], "000001")
        self.fail_with(USAGE, "convert", folder, "-o", self.path("out.zt"), says=(
            "it is 'weight_v000001', a delta of 'weight_v000000', which is its base and was not found", "weight_v000000; --base names it"))
        self.succeed("extract", folder, "--base", base, "-o", self.path("again.safetensors"), "-q")
        self.assertEqual(make_safetensors.read(after)[0], make_safetensors.read(self.path("again.safetensors"))[0])
        # Files of the model are those of the base.
        self.model("hub/model.safetensors", old)
        self.put("hub/config.json", b"{}")
        self.model("next/model.safetensors", new)
        self.put("next/config.json", b"{}")
        self.succeed("convert", folder, "--base", self.path("hub"), "--to", "safetensors", "-o", f"{self.path('made')}/", "-q")
        self.same_folders(self.path("made"), self.path("next"))
        said = self.expect(0, "convert", self.path("next"), "--base", self.path("hub"), "--to", "disk-delta", "-o",
                           f"{self.path('s_2')}/").stderr
        self.assertIn(b"1 file of the model is left out: readers keep those of the base", said)

    def test_numbers_that_do_not_fit_are_counted_once(self):
        """A tensor is read three times for disk-delta-overwrite."""
        old = {"w": ("F16", [3], numpy.zeros(3, "<f2"))}
        new = {"w": ("F32", [3], numpy.array([1e30, 2, -1e30], "<f4"))}
        base, after = self.model("old.safetensors", old), self.model("new.safetensors", new)
        for at, form in enumerate(("disk-delta", "disk-delta-overwrite"), 1):
            said = self.expect(0, "convert", after, "--base", base, "--dtype", "f16", "--on-overflow", "inf", "--to", form, "-o",
                               f"{self.path(f'v_{at}')}/").stderr
            self.assertIn(b"tensor 'w': 2 values did not fit and became infinity\n", said)

    def test_chain(self):
        """Versions beside each other are found by their names. A base that is given counts where its tensors fit."""
        rng = numpy.random.default_rng(5)
        models = [self.pair()[0]]
        for _ in range(3):
            models.append(step(rng, models[-1]))
            models[-1]["w"][2][:] ^= 1
        paths = [self.model(f"m{i}.safetensors", model) for i, model in enumerate(models)]
        for i in range(1, 4):
            self.succeed("convert", paths[i], "--base", paths[i - 1], "--to", "disk-delta", "-o", f"{self.path(f'v{i}')}/", "-q")
        out = self.path("out.zt")
        for given in (paths[0], paths[1], paths[2]):
            self.succeed("convert", self.path("v3"), "--base", given, "-o", out, "-fq", "--no-metadata")
            self.succeed("convert", paths[3], "-o", self.path("ref.zt"), "-fq", "--no-metadata")
            self.same(out, self.path("ref.zt"))
        # The base of an output may be versions, too; that of a delta of ours is its own.
        self.succeed("convert", paths[3], "--base", self.path("v2"), "--base", paths[0], "--to", "disk-delta", "-o",
                     f"{self.path('u3')}/", "-q")
        self.same(self.path("u3/model-000001.safetensors"), self.path("v3/model-000001.safetensors"))
        self.succeed("convert", paths[3], "--base", paths[2], "-o", self.path("d.zt"), "-q")
        self.succeed("convert", self.path("d.zt"), "--to", "disk-delta", "-o", f"{self.path('t3')}/", "-q")
        self.same(self.path("t3/model-000001.safetensors"), self.path("v3/model-000001.safetensors"))
        # Nothing changed: an index alone.
        self.succeed("convert", paths[3], "--base", paths[3], "--to", "disk-delta", "-o", f"{self.path('s4')}/", "-q")
        self.assertEqual(self.entries(self.path("s4")), [disk_delta.INDEX])
        self.succeed("convert", self.path("s4"), "--base", paths[3], "-o", out, "-fq", "--no-metadata")
        self.same(out, self.path("ref.zt"))

    def test_names_of_versions(self):
        """With zeros or without, the base lies beside the folder, however that is named."""
        old = {"w": ("U8", [2], numpy.zeros(2, "u1"))}
        for names in (("s8", "s9", "s10", "s11"), ("s08", "s09", "s10", "s11"), ("8", "9", "10", "11")):
            self.model(f"{names[0]}/model.safetensors", old)
            for number in (1, 2, 3):
                new = self.model("new.safetensors", {"w": ("U8", [2], numpy.full(2, number, "u1"))})
                self.succeed("convert", new, "--base", names[number - 1], "--to", "disk-delta", "-o", f"{names[number]}/", "-q")
            last = names[3]
            for given in (last, f"{last}/", f"{last}/.", f"./{last}", f"{last}/{disk_delta.INDEX}", f"{names[1]}/../{last}"):
                self.assertEqual(self.json("show", "--json", given, "w")["values"], [3, 3], given)
            os.rename(self.path(names[0]), self.path("elsewhere"))
            self.succeed("diff", last, new, "--base", names[2], "--base", "elsewhere", "-q")
            self.fail_with(USAGE, "show", last, "w", says=f"'{names[1]}', a delta of '{names[0]}', which is its base and was not found")
            for name in ("elsewhere", *names[1:]):
                shutil.rmtree(self.path(name))

    def test_what_was_tied_in_the_base_is_written_apart(self):
        """The folder is that of the base; where its file had two tensors once, the new one has both."""
        old = {"a": ("F32", [2], b"a" * 8), "c": ("U8", [1], b"c")}
        self.put("weight_v000000/model.safetensors", make_safetensors.encode(old, ties={"b": "a"}))
        self.put("weight_v000000/config.json", b"{}")
        for again in (b"a" * 8, b"b" * 8):
            new = {**old, "a": ("F32", [2], b"b" * 8), "b": ("F32", [2], again)}
            source = self.put("new.safetensors", make_safetensors.encode(new))
            shutil.rmtree(self.path(NEW), ignore_errors=True)
            self.succeed("convert", source, "--base", "weight_v000000", "--to", "disk-delta", "-o", f"{NEW}/")
            self.succeed("convert", NEW, "-f", "-o", "m.zt")
            for command in (["convert", NEW], ["extract", "m.zt"]):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                said = self.expect(DONE, *command, "--to", "safetensors", "-o", "out/").stderr
                self.assertEqual(b"tensor 'b' no longer has the bytes of tensor 'a'" in said, again == b"a" * 8)
                self.assertEqual(make_safetensors.read(self.path("out/model.safetensors"))[0], make_safetensors.read(source)[0])

    def test_shards_of_another_step_are_not_kept(self):
        """Two steps from one base change the same tensors: shards of the first are no shards of the second."""
        old, new = self.pair()
        base = self.model("old.safetensors", old)
        for number in (1, 2):
            name = f"weight_v00000{number}"
            step = dict(new, w=(*new["w"][:2], new["w"][2] ^ number))
            self.succeed("convert", self.model("new.safetensors", step), "--base", base, "--to", "disk-delta", "-o", f"{self.path(name)}/")
        whole = ("--base", base, "-o", self.path("m.zt"), "--shards", "2")
        self.succeed("convert", self.path("weight_v000001"), *whole)
        self.fail_with(EXISTS, "convert", self.path("weight_v000002"), *whole, says="belongs to other shards")
        self.succeed("convert", self.path("weight_v000002"), *whole, "-f")
        self.succeed("diff", self.path("m.zt.index.json"), self.path("new.safetensors"), "-q")

    def test_versions(self):
        """A version that does not follow, and a base of another version, are refused before a tensor is read."""
        old, new = self.pair()
        base, out = self.model("old.safetensors", old), self.path("out.zt")
        for version, below in (("000002", "000002"), ("000002", "000003"), ("v1", "v1")):
            folder = self.path(f"f{version}{below}")
            disk_delta.write(folder, arrays(old), arrays(new), version=version, base=below)
            self.fail_with(INVALID, "convert", folder, "--base", base, "-o", out, says=(
                f"its version '{version}' does not follow that of its base, '{below}'",))
        folder = self.path("weight_v000012")
        disk_delta.write(folder, arrays(old), arrays(new), version="000012", base="000011")
        self.model("weight_v000010/model.safetensors", old)
        says = "changes of version '000011', and the base, '"
        self.fail_with(USAGE, "convert", folder, "--base", self.path("weight_v000010"), "-o", out, says=(says, "is version '000010'"))
        self.model("local/model.safetensors", old)
        self.put("local/.weight_sync/state.json", b'{"version": "000012"}')
        self.fail_with(USAGE, "convert", folder, "--base", self.path("local"), "-o", out, says=(says, "is version '000012'"))
        self.put("local/.weight_sync/state.json", b'{"version": "000011"}')
        self.succeed("convert", folder, "--base", self.path("local"), "-o", out, "-q")
        # What is written.
        for name, base, status, says in (("model", "old.safetensors", USAGE, "must end with the number of its version"),
                                         ("v0", "old.safetensors", USAGE, "must end with the number"),
                                         ("weight_v000010", "weight_v000010", USAGE, None)):
            if says:
                self.fail_with(status, "convert", base, "--base", base, "--to", "disk-delta", "-o", f"{self.path(name)}/", says=says)
        self.model("step-7.safetensors", old)
        self.succeed("convert", self.path("step-7.safetensors"), "-o", self.path("step-7.zt"), "-q")
        self.fail_with(USAGE, "convert", self.path("step-7.zt"), "--base", self.path("step-7.zt"), "--to", "disk-delta", "-o",
                       f"{self.path('step-7')}/", says="version 000007 does not follow that of the base")
        self.succeed("convert", self.path("step-7.zt"), "--base", self.path("step-7.zt"), "--to", "disk-delta", "-o",
                     f"{self.path('step-9')}/", "-q")
        shutil.copy(self.path("step-7.zt"), self.path("other-7.zt"))
        self.succeed("convert", self.path("step-7.zt"), "--base", self.path("other-7.zt"), "--to", "disk-delta", "-o",
                     f"{self.path('step-10')}/", "-q")
        for name, below in (("step-9", "000007"), ("step-10", "000009")):
            self.assertEqual(json.loads((self.path(name) / disk_delta.INDEX).read_text())["metadata"]["base_version"], below)

    def test_wrong_bases(self):
        """The exclusive or applied twice, and another base, are found by checksums; new bytes at positions may come twice."""
        old, new = self.pair()
        other = {**old, "b": (*old["b"][:2], old["b"][2] ^ 3)}
        paths = {name: self.model(f"{name}.safetensors", model) for name, model in (("old", old), ("new", new), ("other", other))}
        big = {**other, "b": old["b"], "w": (*old["w"][:2], old["w"][2] ^ 3)}
        paths["big"] = self.model("big.safetensors", big)
        out = self.path("out.zt")
        for way in ("xor", "overwrite"):
            disk_delta.write(self.path(way), arrays(old), arrays(new), encoding=way)
            for name, tensor in (("other", "b"), ("big", "w")):
                self.fail_with(INVALID, "convert", self.path(way), "--base", paths[name], "-o", out, says=(
                    f"tensor '{tensor}'", "its checksum is", "that is not version '000000', or one of both is damaged"))
        self.fail_with(USAGE, "convert", self.path("xor"), "--base", paths["new"], "-o", out, says=(
            "has its values of version '000001' already, and xor applied again would undo them",))
        self.succeed("convert", self.path("overwrite"), "--base", paths["new"], "-o", out, "-q", "--no-metadata")
        self.succeed("convert", paths["new"], "-o", self.path("ref.zt"), "-q", "--no-metadata")
        self.same(out, self.path("ref.zt"))

    def test_a_wrong_base_of_large_tensors(self):
        """A part of a tensor is not shown before one was compared, however large they are."""
        old = {"w": ("U8", [65 << 20], numpy.zeros(65 << 20, "u1"))}
        new = {"w": (*old["w"][:2], old["w"][2].copy())}
        new["w"][2][::1 << 20] = 7
        base = self.model("old.safetensors", old)
        disk_delta.write(self.path("d"), arrays(old), arrays(new), encoding="xor")
        self.succeed("inspect", self.path("d"), "--base", base)
        old["w"][2][3] = 1
        base = self.model("other.safetensors", old)
        self.fail_with(INVALID, "show", self.path("d"), "w", "--base", base, says=("tensor 'w'", "its checksum is"))
        self.fail_with(INVALID, "inspect", self.path("d"), "--base", base, says=("tensor 'w'", "its checksum is"))

    def test_hostile(self):
        """What is wrong in a folder is named, and nothing is written."""
        old, new = self.pair()
        base = self.model("old.safetensors", old)
        data, result = old["w"][2], new["w"][2]
        zstd = zstandard.ZstdCompressor().compress
        exclusive, places = disk_delta.encoded("xor", data, result), disk_delta.encoded("overwrite", data, result)
        count = int.from_bytes(places[:4], "little")
        good = disk_delta.checksum("xxh3-128", result.tobytes())

        def number(value):
            return value.to_bytes(4, "little")

        def overwritten(*positions):
            return b"".join(map(number, (len(positions), *positions))) + b"x" * len(positions)

        size = len(data)
        cut = zstd(exclusive)
        raw = {"compression": "none"}
        cases = [  # an entry, its checksum, its form, what is said
            (zstd(exclusive), "0" * 32, {}, "its checksum is " + good),
            (zstd(exclusive), None, {}, "its checksum is missing"),
            (cut[:-3], good, {}, "the zstd stream is cut short"),
            (cut[:len(cut) // 2] + b"?!" + cut[len(cut) // 2 + 2:], good, {}, ""),
            (b"\0" * 9, good, {}, "the zstd stream is damaged"),
            (b"", good, {}, "the zstd stream is cut short"),
            (zstd(exclusive[:-1]), good, {}, f"its differences end after {size - 1} bytes"),
            (zstd(exclusive + b"\0"), good, {}, f"its differences go on after the last, at byte {size}"),
            (exclusive[:-1], good, raw, f"its differences end after {size - 1} bytes"),
            (exclusive + b"\0", good, raw, "its differences go on after the last"),
            (zstd(bytes(1 << 28)), good, {}, "its differences go on after the last"),  # a bomb
            (zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=30)).compress(bytes(1 << 30)), good,
             {}, "too much memory"),
            (b"ab", good, {"encoding": "overwrite", **raw}, "its differences end after 2 bytes"),
            (number(2**32 - 1), good, {"encoding": "overwrite", **raw}, f"it has 4294967295 differences, and {size} bytes"),
            (overwritten(5, 5), good, {"encoding": "overwrite", **raw}, "position 5 of its differences is not above that before"),
            (overwritten(7, 5), good, {"encoding": "overwrite", **raw}, "position 5 of its differences is not above that before"),
            (overwritten(7, size), good, {"encoding": "overwrite", **raw}, f"position {size} of its differences is beyond its {size} bytes"),
            (zstd(places[:-1]), good, {"encoding": "overwrite"}, f"its differences end after {4 + 5 * count - 1} bytes"),
            (zstd(places + b"x"), good, {"encoding": "overwrite"}, "its differences go on after the last"),
            (zstd(exclusive), good, {"sums": "blake3"}, "its checksum_format is 'blake3'; adler32 and xxh3-128 are read"),
            (zstd(exclusive), good, {"compression": "lz4"}, "its compression_format is 'lz4'; none and zstd are read"),
            (zstd(exclusive), good, {"encoding": "sparse"}, "its delta_encoding is 'sparse'; xor and overwrite are read"),
        ]
        out = self.path("out.zt")
        for i, (entry, sums, form, says) in enumerate(cases):
            with self.subTest(case=i):
                disk_delta.put(self.path(f"bad-{i}-"), [({"w": entry}, {"w": sums} if sums else {})], disk_delta.metadata("1", "0", **form))
                self.fail_with((INVALID, UNSUPPORTED), "convert", self.path(f"bad-{i}-"), "--base", base, "-o", out, says=says)
                self.assertFalse(out.exists())
        disk_delta.put(self.path("gone"), [({"other": zstd(exclusive)}, {"other": good})], disk_delta.metadata("1", "0"))
        self.fail_with(USAGE, "convert", self.path("gone"), "--base", base, "-o", out, says=("tensor 'other'", "has no such tensor"))
        for key in ("version", "base_version", "compression_format", "checksum_format", "delta_encoding"):
            form = disk_delta.metadata("1", "0")
            del form[key]
            disk_delta.put(self.path(f"no-{key}"), [({"w": zstd(exclusive)}, {"w": good})], form)
            self.fail_with(INVALID, "convert", self.path(f"no-{key}"), "--base", base, "-o", out, says=f"its index does not say {key}")
        disk_delta.put(self.path("v2"), [({"w": zstd(exclusive)}, {"w": good})], disk_delta.metadata("2", "1"))
        self.fail_with(INVALID, "convert", self.path("v2"), "--base", self.path("no-version"), "-o", out, says=(
            f"ztstream: {self.path('no-version')}: its index does not say version",))
        # Names of files lead nowhere else; what the index and the shards say is the same.
        for shard in ("../bad-0-/model-00000-of-00001.safetensors", "/etc/passwd", ".."):
            index = {"metadata": disk_delta.metadata("1", "0"), "weight_map": {"w": shard}}
            self.put("paths/model.safetensors.index.json", json.dumps(index).encode())
            self.fail_with(INVALID, "convert", self.path("paths"), "--base", base, "-o", out, says="only files of the folder itself are read")
        index["weight_map"] = {"w": "a.safetensors", "b": "a.safetensors"}
        self.put("paths/model.safetensors.index.json", json.dumps(index).encode())
        self.put("paths/a.safetensors", disk_delta.shard({"w": zstd(exclusive)}, {"w": good}))
        self.fail_with(INVALID, "convert", self.path("paths"), "--base", base, "-o", out, says=("tensor 'b'", "it is not in a.safetensors"))

    def test_mutated(self):
        """A folder of which some bytes were changed never gives a wrong value with status 0."""
        old, new = self.pair(3000)
        base, out = self.model("old.safetensors", old), self.path("out.zt")
        self.succeed("convert", self.model("new.safetensors", new), "-o", self.path("ref.zt"), "-q")
        ref = self.path("ref.zt").read_bytes()
        for way, compression in (("xor", "zstd"), ("overwrite", "zstd"), ("xor", "none"), ("overwrite", "none")):
            disk_delta.write(self.path(way + compression), arrays(old), arrays(new), encoding=way, compression=compression)
        folders = [path for path in self.folder.iterdir() if path.is_dir()]
        for seed in range(COUNT):
            rng = numpy.random.default_rng(seed)
            files = [path for path in folders[seed % len(folders)].iterdir() for _ in range(3 if path.suffix == ".safetensors" else 1)]
            file = files[rng.integers(0, len(files))]
            good = file.read_bytes()
            bad = bytearray(good)
            for _ in range(rng.integers(1, 4)):
                bad[rng.integers(0, len(bad))] ^= 1 << rng.integers(0, 8)
            file.write_bytes(bad if rng.random() < 0.8 else bad[:rng.integers(0, len(bad))])
            with self.subTest(seed=seed, file=file):
                process = self.run_program("convert", file.parent, "--base", base, "-o", out, "-fq")
                self.assertIn(process.returncode, (0, USAGE, INVALID, UNSUPPORTED), process.stderr)
                # An index that does not call them differences is that of other weights.
                if process.returncode == 0 and (file.suffix != ".json" or {"delta_encoding", "base_version"} & set(
                        json.loads(file.read_bytes()).get("metadata", {}))):
                    self.assertEqual(out.read_bytes(), ref)
            file.write_bytes(good)

    def test_memory(self):
        """Bombs and large tensors take the memory of small ones."""
        if self.sanitized():
            self.skipTest("sanitizers take memory of their own")
        size = 1 << 27
        base = self.path("hole.safetensors")
        make_safetensors.write_hole(base, size)
        places = size.to_bytes(4, "little") + bytes(4 * size)
        for way, entry in (("xor", bytes(size)), ("overwrite", places)):
            entry = zstandard.ZstdCompressor().compress(entry)
            disk_delta.put(self.path(way), [({"a": entry}, {"a": "0" * 8})], disk_delta.metadata("1", "0", way, sums="adler32"))
            status, _, memory = self.costs("convert", self.path(way), "--base", base, "-o", self.path("out.zt"), "--memory", "32M", "-T", "1")
            self.assertEqual(status, INVALID)
            self.assertLess(memory, 120)

    def test_a_file_that_fails_ends_the_others(self):
        """One of them has a TB, which would take its time."""
        small = make_safetensors.sample("s")
        source = self.safetensors("base/small.safetensors", small)
        hole = self.path("base/hole.safetensors")
        make_safetensors.write_hole(hole, 1 << 40)
        self.put(f"base/{disk_delta.INDEX}", json.dumps({"weight_map": {"s": source.name, "a": hole.name}}).encode())
        self.succeed("convert", source, "-o", "bad.zt", "-q", "--no-metadata", "--files", "none")
        data = small["s"][2]
        self.put("bad.zt", self.path("bad.zt").read_bytes().replace(data, data[::-1]))
        self.fail_with(INVALID, "convert", "bad.zt", hole, "--base", "base", "--to", "disk-delta", "-o", f"{NEW}/", "-T", "2",
                       "--shard-size", "1K", says=("bad.zt", "tensor 's'"))
        self.assertFalse(self.path(NEW).exists())

    def test_output(self):
        """What the form cannot say is an error that names the tensor; what it leaves out is said."""
        old, new = self.pair()
        base, after = self.model("old.safetensors", old), self.model("new.safetensors", new)
        to = ("--to", "disk-delta", "-o", f"{self.path(NEW)}/")
        self.fail_with(USAGE, "convert", after, *to, says="--to disk-delta writes what differs from a model: name it by --base")
        self.fail_with(USAGE, "convert", after, "--base", base, "--to", "disk-delta", "-o", self.path("w1"), says="end its name with /")
        self.fail_with(USAGE, "convert", after, "--base", base, *to, "--zstd", says="--to writes no .zt file; leave it or --zstd out")
        self.fail_with(USAGE, "convert", after, "--base", base, *to, "--digest", "sha256", says="--digest sha256 is not of --to disk-delta")
        for option in (("--set", "k=v"), ("--unset", "k")):
            self.fail_with(USAGE, "convert", after, "--base", base, *to, *option, says=(
                f"{option[0]} is not of --to disk-delta, which has no attributes of a model",))
        extra = self.model("extra.safetensors", {**new, "more": ("I8", [3], numpy.zeros(3, "u1"))})
        self.fail_with(UNSUPPORTED, "convert", extra, "--base", base, *to, says=("tensor 'more'", "the base has no such tensor"))
        shape = self.model("shape.safetensors", {**new, "b": ("F32", [20, 20], new["b"][2])})
        self.fail_with(UNSUPPORTED, "convert", shape, "--base", base, *to, says=("tensor 'b'", "it is f32 [20, 20], in the base f32 [400]"))
        self.assertFalse(self.path(NEW).exists())
        said = self.expect(0, "convert", after, "--base", base, *to, "--exclude", "w").stderr.decode()
        self.assertIn("1 tensor of the base is not in the model, and stays for those who apply it: 'w'", said)
        self.fail_with(EXISTS, "convert", after, "--base", base, *to, says="exists")
        empty = self.model("empty.safetensors", {**old, "none": ("F32", [0], numpy.zeros(0, "u1"))})
        self.assertNotIn(b"warning", self.expect(0, "convert", after, "--base", empty, "--to", "disk-delta", "-o", f"{self.path('e_1')}/").stderr)
        # Types and names are changed before they are compared.
        renamed = self.model("renamed.safetensors", {f"m.{name}": value for name, value in new.items()})
        self.succeed("convert", renamed, "--base", base, "--rename", "s/^m.//", "--to", "disk-delta", "-o", f"{self.path('r_1')}/", "-q")
        self.check_applied("r_1", base, after)
        # Headers end at 100 MB, and have each name twice.
        names = {f"{i:050000}": ("U8", [1], numpy.zeros(1, "u1")) for i in range(1000)}
        names = self.model("names.safetensors", names)
        self.fail_with(UNSUPPORTED, "convert", names, "--base", names, "--to", "disk-delta", "-o", f"{self.path('n_1')}/", says=(
            "a header of 1000 tensors may have 100196256 bytes", "--shard-size"))
        self.succeed("convert", names, "--base", names, "--to", "disk-delta", "-o", f"{self.path('n_1')}/", "-q", "--shard-size", "500")
        # Positions end where tensors of 4 GiB do.
        hole = self.path("hole.safetensors")
        make_safetensors.write_hole(hole, (1 << 32) + 4096)
        self.fail_with(UNSUPPORTED, "convert", hole, "--base", hole, "--to", "disk-delta-overwrite", "-o", f"{self.path('h_1')}/",
                       says="positions of 32 bits do not reach all of its")
        disk_delta.put(self.path("h_2"), [({"a": bytes(4)}, {"a": "0" * 8})], disk_delta.metadata("2", "1", "overwrite", "none", "adler32"))
        self.fail_with(UNSUPPORTED, "convert", self.path("h_2"), "--base", hole, "-o", self.path("out.zt"), says=(
            "tensor 'a'", "positions of 32 bits do not reach all of its"))


if __name__ == "__main__":
    import unittest
    unittest.main()
