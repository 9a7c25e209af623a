"""A fault of every request in turn: a run that a server fails says so, and nothing is read as not being there."""
import hashlib
import itertools
import json
import re
import shutil
import unittest

import numpy

import delta_test
import make_safetensors
import onnx_assembler
import pickle_assembler
import remote_server
import support
from remote_server import Answer
from support import DONE, IO

INDEX = "model.safetensors.index.json"
BUSY, REFUSED, GONE = Answer(503, {}, b"busy"), Answer(403), Answer(drop=True)


class Turns(remote_server.Remote):
    def setUp(self):
        super().setUp()
        self.environment["ZTSTREAM_RETRY_SECONDS"] = "0"
        self.buckets = self.server.store.buckets
        self.objects = self.buckets["in"] = {}
        self.folders = self.server.hub.repositories

    def serve(self, below, files):
        """These files in a bucket, on the web and on the Hub."""
        for name, content in files.items():
            self.objects[f"{below}/{name}"] = (content, f'"{len(content)}"', {})
            self.server.files[f"{below}/{name}"] = content
        self.folders[f"org/{below}"] = files

    def serve_folder(self, below, folder):
        self.serve(below, {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()})

    def places(self, name):
        """The URLs of a file."""
        return f"s3://in/{name}", self.server.url(name), f"hf://org/{name}"

    def outcome(self, words, before):
        """The exit status, all that was made, and what was said."""
        self.buckets["out"] = dict(before)
        made = self.path("made")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        self.server.requests.clear()
        run = self.run_program(*words)
        files = {path.name: path.read_bytes() for path in made.rglob("*") if path.is_file()}
        files |= {key: content for key, (content, *_) in self.buckets["out"].items()}
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        return run.returncode, (re.sub(rb'"wall_s":[^,}]*', b"", run.stdout), digests), run.stderr.decode()

    def in_turn(self, *words, before=None):
        """Runs the command once for each request that it makes, which fails, from then on or that once. Then the command fails by what
        the server said, or has made all that it makes. Of a file that the server refuses, as it may do with one that is not there, it may go on without, and says so."""
        before = before or {}
        done, want, said = self.outcome(words, before)
        self.assertEqual(done, DONE, said)
        keys = dict.fromkeys((request.method, request.path, re.sub("&?X-Amz[^&]*", "", request.query)) for request in self.server.requests)
        always = 1000
        for key, (fault, first, last) in itertools.product(keys, ((BUSY, 0, always), (BUSY, 1, always), (BUSY, 0, 0), (REFUSED, 0, always))):
            seen = itertools.count()
            struck = []

            def strike(request):
                same = (request.method, request.path, re.sub("&?X-Amz[^&]*", "", request.query)) == key
                if not same or not first <= next(seen) <= last:
                    return None
                struck.append(request)
                return fault
            self.server.fault = strike
            got, made, said = self.outcome(words, before)
            self.server.fault = None
            what = f"{' '.join(map(str, words))}\n{key} {fault.status} from {first} to {last}: {got}\n{said}"
            if not struck:
                continue
            if (got, made) == (DONE, want) or fault is REFUSED and got != DONE:
                continue
            if got == DONE and (fault is REFUSED or words[0] == "inspect"):  # of a root, whose shards it does not need
                self.assertRegex(said, "warning: .* the server answered (403|503)", what)
                continue
            self.assertEqual(got, IO, what)
            self.assertLessEqual(made[1].items(), want[1].items(), what)  # shards that are whole, of several
            self.assertIn("the server answered 503", said.splitlines()[-1], what)

    def made(self, name="m.zt"):
        return "-o", self.path("made") / name, "--no-sync"

    def quantized(self, scheme="deepseek_fp8_1"):
        tensors, metadata = make_safetensors.read(support.DATA / "quantized" / f"{scheme}.in.safetensors")
        names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
        weight_map = {name: names["scale" in name] for name in tensors}
        return {"config.json": metadata["config"].encode(), "one.safetensors": make_safetensors.encode(tensors), "vocab.txt": b"a b",
                INDEX: json.dumps({"metadata": {}, "weight_map": weight_map}).encode(),
                **{file: make_safetensors.encode({name: tensors[name] for name in tensors if weight_map[name] == file}) for file in names}}

    def test_quantized_models(self):
        for scheme in "deepseek_fp8_1", "gptq4_1":
            self.serve("q", self.quantized(scheme))
            for url in self.places("q/one.safetensors"):
                self.in_turn("inspect", "--json", url)
                self.in_turn("convert", url, *self.made(), "--dequantize", "f32")
        for url in self.places(f"q/{INDEX}"):
            self.in_turn("convert", url, *self.made())

    def test_folders(self):
        files = self.quantized()
        del files["one.safetensors"]
        self.serve("f", files)
        for url in "s3://in/f/", "s3://in/f", "hf://org/f":
            self.in_turn("convert", url, *self.made(), "--dequantize", "bf16")
            self.in_turn("convert", url, *self.made(), "--files", "all")
            self.in_turn("inspect", "--json", url)

    def pair(self):
        rng = numpy.random.default_rng(7)
        old = {name: (dtype, [2000], delta_test.values(rng, dtype, 2000)) for name, dtype in (("a", "BF16"), ("b", "F32"))}
        return old, {name: (dtype, shape, delta_test.updated(rng, dtype, data)) for name, (dtype, shape, data) in old.items()}

    def test_deltas(self):
        old, new = map(delta_test.encode, self.pair())
        for name, content in (("old.safetensors", old), ("new.safetensors", new), ("o/model.safetensors", old)):
            self.put(name, content)
        self.succeed("convert", self.path("new.safetensors"), "--base", self.path("old.safetensors"), "-o", self.path("d.zt"), "-q")
        self.succeed("convert", self.path("new.safetensors"), "--base", self.path("o"), "-o", self.path("e.zt"), "-q")
        self.serve("d", {"old.safetensors": old, "new.safetensors": new, "d.zt": self.path("d.zt").read_bytes(),
                         "e.zt": self.path("e.zt").read_bytes(), "o/model.safetensors": old})
        for url in self.places("d/d.zt"):
            self.in_turn("convert", url, *self.made())
            self.in_turn("verify", "--json", url, "--base", url.replace("d.zt", "old.safetensors"))
            self.in_turn("diff", url, self.path("new.safetensors"))
        for url in "s3://in/d/e.zt", "hf://org/d/e.zt":
            self.in_turn("convert", url, *self.made())
        self.in_turn("convert", "s3://in/d/new.safetensors", "--base", "s3://in/d/old.safetensors", *self.made())
        for name in "old", "new":
            self.succeed("convert", self.path(f"{name}.safetensors"), "-o", self.path("base.zt"), "--spec", "2.0", "-q", "-f")
            self.serve("d", {f"base_{name}.zt": self.path("base.zt").read_bytes()})
        self.in_turn("convert", "s3://in/d/d.zt", "--base", "s3://in/d/base_new.zt", "--base", "s3://in/d/base_old.zt", *self.made())

    def test_the_base_is_said_to_be_missing_only_if_it_is(self):
        self.serve("d", {"d.zt": b""})
        old, new = map(delta_test.encode, self.pair())
        self.put("old.safetensors", old), self.put("new.safetensors", new)
        self.succeed("convert", self.path("new.safetensors"), "--base", self.path("old.safetensors"), "-o", self.path("d.zt"), "-q")
        self.serve("d", {"d.zt": self.path("d.zt").read_bytes()})
        for url in self.places("d/d.zt"):
            base = url.replace("d.zt", "old.safetensors")
            self.fail_with(support.USAGE, "inspect", "--stats", url, says=f"is its base and was not found: there is no {base}")
            for fault, says in (BUSY, "the server answered 503"), (REFUSED, "the server answered 403"), (GONE, "Empty reply from server"):
                def beside(request):
                    return fault if "old.safetensors" in request.path or "/tree/" in request.path else None
                self.server.fault = beside
                self.fail_with(IO, "inspect", "--stats", url, says=says)
                self.server.fault = None

    def test_false_answers(self):
        """Of servers that do not know HEAD, of a listing without files, and of a configuration that is none."""
        self.serve("q", self.quantized("gptq4_1"))
        for url in self.places("q/one.safetensors"):
            command = "inspect", "--json", url
            want = self.succeed(*command)
            self.assertIn(b'"quantized"', want)
            for status in 405, 501:
                self.server.fault = lambda request, status=status: Answer(status) if request.method == "HEAD" else None
                self.assertEqual(self.succeed(*command), want)
            config = url.replace("one.safetensors", "config.json")
            self.server.fault = lambda request: Answer(200, {}, b"<html>") if "config.json" in request.path and request.method == "GET" else None
            done = self.run_program(*command)
            self.assertEqual(done.returncode, DONE)
            self.assertIn(f"warning: its quantized tensors are not known: {config}: it is not JSON", done.stderr.decode())
            self.server.fault = lambda request: Answer(200, {}, b"[]") if "/tree/" in request.path else None
            none = "the Hub lists no file of the repository"
            if url.startswith("hf"):
                self.assertIn(f"warning: its quantized tensors are not known: {config}: {none}", self.run_program(*command).stderr.decode())
                self.fail_with(support.INVALID, "convert", url, "-o", self.path("m.zt"), "--dequantize", "f32", says=none)
            self.server.fault = None

    def test_disk_deltas(self):
        old, new = map(delta_test.encode, self.pair())
        self.put("v0/model.safetensors", old), self.put("new.safetensors", new)
        self.succeed("convert", self.path("new.safetensors"), "--base", self.path("v0"), "--to", "disk-delta", "-o", f"{self.path('w_v000001')}/", "-q")
        self.serve_folder("k/w_v000001", self.path("w_v000001"))
        self.serve_folder("k/v0", self.path("v0"))
        self.serve_folder("k/other", self.path("v0"))
        bases = "--base", "s3://in/k/v0", "--base", "s3://in/k/other"
        self.in_turn("convert", "s3://in/k/w_v000001", *bases[:2], *self.made())
        self.in_turn("convert", "s3://in/k/w_v000001", *bases, *self.made())
        self.in_turn("verify", "--json", "s3://in/k/w_v000001/", *bases[:2])
        # The base of v10 is v09, and v9 if that is not there.
        self.put("w_v09/model.safetensors", old)
        self.succeed("convert", self.path("new.safetensors"), "--base", self.path("w_v09"), "--to", "disk-delta", "-o", f"{self.path('w_v10')}/", "-q")
        for name in "w_v09", "w_v10":
            self.serve_folder(f"n/{name}", self.path(name))
        self.serve("n/w_v9", {"model.safetensors": new})
        self.in_turn("convert", "s3://in/n/w_v10", *self.made())

    def test_shards(self):
        self.serve("q", self.quantized())
        for spec in "1.2", "2.0":
            words = "convert", "s3://in/q/one.safetensors", "-o", "s3://out/m.zt", "--shards", "2", "--spec", spec, "--json"
            self.in_turn("convert", "s3://in/q/one.safetensors", *self.made(), "--shards", "2", "--spec", spec)
            self.buckets["out"] = {}
            self.succeed(*words)
            there = self.buckets["out"]
            self.in_turn(*words, before=there)
            self.in_turn(*words[:3], "s3://out/n.zt", *words[4:], before=there)
            self.in_turn("join", *(f"s3://out/m-0000{number}-of-00002.zt" for number in (1, 2)), "-o", "s3://out/m.zt", before=there)
            self.objects.update({f"{spec}/{key}": value for key, value in there.items()})
            root = f"s3://in/{spec}/m.zt" + (".index.json" if spec == "1.2" else "")
            shard = f"s3://in/{spec}/m-00001-of-00002.zt"
            for command in (("verify", "--json", root), ("verify", "--json", f"s3://in/{spec}/"), ("inspect", "--json", root), ("convert", root, *self.made()),
                            ("convert", root, *self.made(), "--shards", "2", "--json"), ("convert", shard, *self.made()), ("inspect", "--json", shard)):
                self.in_turn(*command)

    def test_other_formats(self):
        self.serve_folder("dcp", support.DATA / "dcp")
        self.in_turn("convert", "s3://in/dcp/", *self.made())
        self.in_turn("inspect", "--json", "hf://org/dcp")
        entries = {"location": "w.bin", "offset": 0, "length": 400}
        self.serve("o", {"m.onnx": onnx_assembler.model(onnx_assembler.tensor("w", 1, (100,), onnx_assembler.external(**entries))),
                         "w.bin": bytes(range(200)) * 2})
        for url in self.places("o/m.onnx"):
            self.in_turn("convert", url, *self.made())
        self.serve("g", {path.name: path.read_bytes() for path in (support.DATA / "gguf").glob("split*")})
        for url in self.places("g/split-00001-of-00003.gguf"):
            self.in_turn("inspect", "--json", url)
            self.in_turn("convert", url, url.replace("00001", "00002"), *self.made())
        for url in "s3://in/g/", "hf://org/g":
            self.in_turn("convert", url, *self.made())

    def test_what_lies_beside_the_weights(self):
        """Second copies, older ones, variants, indices of others, and what is no checkpoint."""
        array = numpy.arange(4000, dtype=numpy.float32)
        weights = make_safetensors.encode({"a": ("F32", [4000], array.tobytes())})
        numpy.savez(self.path("model.npz"), a=array)
        self.put("model.safetensors", weights)
        self.succeed("convert", self.path("model.safetensors"), "-o", self.path("model.zt"), "-q")
        beside = {name: self.path(name).read_bytes() for name in ("model.npz", "model.zt")}
        index = json.dumps({"metadata": {}, "weight_map": {"a": "model-00001-of-00001.safetensors"}}).encode()
        self.serve("c", {"model.safetensors": weights, **beside, f"old/{INDEX}": index})
        self.serve("v", {"model.safetensors": weights, "model.fp16.safetensors": weights})
        self.serve("t", {"pytorch_model.bin": pickle_assembler.checkpoint({"a": ("F32", [4000], array.tobytes())}), "vocab.bin": b"no checkpoint, but text"})
        for url in "s3://in/c/", "hf://org/c", "s3://in/v/", "hf://org/v", "s3://in/t/", "hf://org/t":
            self.in_turn("convert", url, *self.made(), "--json")

    def test_ids(self):
        self.put("m.safetensors", make_safetensors.encode({"a": ("F32", [4000], bytes(16000))}))
        self.succeed("convert", self.path("m.safetensors"), "-o", self.path("m.zt"), "--digest", "sha256", "--spec", "2.0", "-q")
        self.serve("i", {"m.zt": self.path("m.zt").read_bytes()})
        for url in self.places("i/m.zt"):
            self.in_turn("id", url)


if __name__ == "__main__":
    unittest.main()
