"""Folders on servers: those of make_folders.py, in a bucket and on the Hub, give the file, the words and the folder that they give here."""
import json
import os
import shutil

import numpy

import make_folders
import make_safetensors
import remote_server
import support
from make_folders import HIDDEN
from remote_server import Change


def read(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Folders(remote_server.Remote):
    def setUp(self):
        super().setUp()
        self.server.store.buckets["b"] = {}
        self.hub = self.server.hub
        self.weights = make_safetensors.encode({"t": ("U8", [3], b"abc")})

    def put(self, files):
        """The URLs of a folder with these files, on the Hub and in a bucket."""
        self.hub.repositories["org/name"] = files
        bucket = self.server.store.buckets["b"]
        bucket.clear()
        for path, content in files.items():
            bucket["deep/" + path] = (content, f'"{len(bucket)}"', {})
        return "hf://org/name", "s3://b/deep/"

    def take(self, given, *options):
        """The .zt file of a folder, and what was said to be left out of it: path -> why."""
        process = self.run_program("convert", given, "-o", self.path("out.zt"), "--no-sync", "-f", "-v", *options)
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        lines = [line.removeprefix("ztstream: ").split(": left out: ") for line in process.stderr.decode().splitlines() if ": left out: " in line]
        return self.path("out.zt").read_bytes(), dict(lines)

    def back(self):
        """The folder that comes out of it again."""
        self.succeed("extract", self.path("out.zt"), "-o", f"{self.path('back')}/", "--to", "safetensors", "--no-sync")
        files = read(self.path("back"))
        shutil.rmtree(self.path("back"))
        return files

    def local(self, name):
        """A folder of make_folders.py without links, modes and empty folders, which a server does not know."""
        made, folder = self.path("made"), self.path("folder")
        for path in (made, folder):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        make_folders.FOLDERS[name](made)
        for path, content in read(made).items():
            make_folders.put(folder, path, content)
        return folder

    def test_quantized_folders(self):
        """--dequantize, where scales lie in another shard than their codes, and of one file beside its config.json; of every scheme."""
        kinds, pairs = ("bf16", "f16", "f32"), sorted((support.DATA / "quantized").glob("*.in.safetensors"))
        for number, path in enumerate(pairs):
            for kind in kinds if int(os.environ.get("ZT_COUNT", 0)) > 300 else [kinds[number % 3]]:
                with self.subTest(path.name, kind=kind):
                    self.compare_quantized(*make_safetensors.read(path), kind)

    def compare_quantized(self, tensors, metadata, kind):
        names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
        weight_map = {name: names["scale" in name] for name in tensors}
        files = {"config.json": metadata["config"].encode(),
                 "model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": weight_map}).encode()}
        for file in names:
            files[file] = make_safetensors.encode({name: tensors[name] for name in tensors if weight_map[name] == file})
        whole = {"config.json": files["config.json"], "model.safetensors": make_safetensors.encode(tensors)}
        for content, tail in ((files, ""), (whole, "model.safetensors")):
            folder = self.path("quantized")
            shutil.rmtree(folder, ignore_errors=True)
            for path, each in content.items():
                make_folders.put(folder, path, each)
            want, _ = self.take(folder / tail, "--dequantize", kind)
            for url in self.put(content):
                self.assertEqual(self.take(f"{url.rstrip('/')}/{tail}", "--dequantize", kind)[0], want, url)

    def test_every_folder(self):
        self.hub.page = self.server.store.page = 3
        for name in make_folders.FOLDERS:
            folder = self.local(name)
            want, left_out = self.take(folder)
            files = self.back()
            for url in self.put(read(folder)):
                with self.subTest(name, url=url):
                    self.assertEqual(self.take(url), (want, left_out))
                    self.assertEqual(self.back(), files)

    def test_options(self):
        folder = self.local("llama")
        for options in (["--files", "none"], ["--files", "*.json"], ["--files", "all"], ["--spec", "1.1"], ["--spec", "2.0"]):
            with self.subTest(options):
                want = self.take(folder, *options)
                for url in self.put(read(folder)):
                    self.assertEqual(self.take(url, *options), want)

    def test_from_server_to_server(self):
        folder = self.local("llama")
        want, _ = self.take(folder)
        for number, url in enumerate(self.put(read(folder))):
            self.succeed("convert", url, "-o", f"s3://b/{number}.zt")
            self.assertEqual(self.server.store.buckets["b"][f"{number}.zt"][0], want)

    def test_the_cache_offline(self):
        folder = self.local("llama")
        want = self.take(folder)
        cache = self.path("cache")
        repository = cache / "models--org--name"
        shutil.copytree(folder, repository / "snapshots" / remote_server.COMMIT)
        make_folders.put(repository, "refs/main", remote_server.COMMIT)
        self.environment.update({"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"})
        self.assertEqual(self.take("hf://org/name"), want)
        self.assertEqual(self.server.requests, [])

    def test_hostile_listings(self):
        """Each path is told with the rule that it breaks, and none is repaired."""
        paths = {"../out": ("../", HIDDEN), "a/../b": ("a/../", HIDDEN), ".git/config": (".git/", HIDDEN), ".git/b/c": (".git/", HIDDEN), "sub/.x/y": ("sub/.x/", HIDDEN),
                 ".env": (".env", HIDDEN), "/etc/x": ("/etc/x", "path '/etc/x': it is absolute"), "a//b": ("a//b", "path 'a//b': a segment is empty"),
                 "a\\b": ("a\\b", "path 'a\\\\b': it holds '\\\\'"), "a\x1b[2J": ("a\\x1b[2J", "path 'a\\x1b[2J': it holds a control character"),
                 "CON": ("CON", "path 'CON': a segment is the name of a device on Windows"), "sub/": ("sub/", "path 'sub/': it ends in '/'"),
                 "config.json/x": ("config.json/x", "path 'config.json/x': it lies below 'config.json', which is a file"),
                 "config.jsoN": ("config.json", "path 'config.json': it differs from 'config.jsoN' only in case")}
        files = {"model.safetensors": self.weights, "config.json": b"{}", "é": b"1", **{path: b"2" for path in paths}, "other.bin": b"3"}
        for url in self.put(files):
            with self.subTest(url):
                _, said = self.take(url)
                expected = dict(paths.values())
                del expected["config.json/x"]
                self.assertRegex(said.pop("config.json/x"), "^path 'config.json/x': it lies below '.*', which is a file$")
                self.assertEqual(said, expected)
                self.assertEqual(sorted(self.back()), ["config.jsoN", "model.safetensors", "other.bin", "é"])

    def test_keys_that_look_encoded(self):
        """Whether they are is what the listing says of them, not what they look like."""
        files = {"a+b.safetensors": self.weights, "c%20d.json": b"1", "e f&<.json": b"2", "ü%.json": b"3"}
        make = self.path("keys")
        for path, content in files.items():
            make_folders.put(make, path, content)
        want = self.take(make)
        others = {"deep/a b.safetensors": (make_safetensors.encode({"t": ("U8", [3], b"bad")}), '"x"', {}), "deep/c d.json": (b"4", '"x"', {})}
        for encodes in (True, False):
            self.server.store.encodes = encodes
            url = self.put(files)[1]
            self.assertEqual(self.take(url), want)
            # What a wrong name would find is there, and not listed.
            self.server.store.hidden = set(others)
            self.server.store.buckets["b"].update(others)
            self.assertEqual(self.take(url), want)

    def test_a_path_twice(self):
        url = self.put({"model.safetensors": self.weights, "config.json": b"{}"})[0]
        self.server.fault = lambda request: remote_server.Change(
            lambda answer: setattr(answer, "body", json.dumps([row for row in json.loads(answer.body) for _ in range(1 + (row["path"] == "config.json"))]).encode())) if "/tree/" in request.path else None
        self.fail_with(support.INVALID, "convert", url, "-o", self.path("none.zt"), says="listing names 'config.json' twice")

    def test_wrong_sizes_without_ranges(self):
        """Of weights that are read to their end, whose answer does not say how many there are."""
        weights = make_safetensors.encode({"t": ("U8", [400_000], bytes(400_000))})
        url = self.put({"model.safetensors": weights})[1]

        def all_of_it(answer):
            answer.status, answer.headers["Transfer-Encoding"] = 200, "chunked"
            answer.body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(weights), weights)
        self.server.fault = lambda request: Change(all_of_it) if request.path.endswith("model.safetensors") else None
        self.assertEqual(self.run_program("convert", url, "-o", self.path("out.zt")).returncode, support.DONE)
        for size in (-1, 1):
            self.server.store.sizes = {"deep/model.safetensors": len(weights) + size}
            self.fail_with(support.INVALID, "convert", "-q", url, "-f", "-o", self.path("out.zt"),
                           says=f"it had {len(weights) + size} bytes and has {len(weights)}")

    def test_wrong_sizes(self):
        """Of weights and of other files."""
        files = {"model.safetensors": self.weights, "config.json": b"{}"}
        for name, content in files.items():
            for url in self.put(files):
                self.server.store.sizes = {"deep/" + name: len(content) + 1}
                old, new = (f'"path": "{name}", "size": {len(content) + more},'.encode() for more in (0, 1))
                self.server.fault = lambda request, old=old, new=new: remote_server.Change(
                    lambda answer: setattr(answer, "body", answer.body.replace(old, new))) if "/tree/" in request.path else None
                self.fail_with(support.INVALID, "convert", url, "-o", self.path("none.zt"),
                               says=[name, f"its server listed it with {len(content) + 1} bytes, and it has {len(content)}"])
                self.assertFalse(self.path("none.zt").exists())

    def array(self, name, values):
        numpy.save(self.path("array.npy"), values)
        return {f"{name}.npy": self.path("array.npy").read_bytes()}

    def test_an_object_is_pinned_as_long_as_the_run(self):
        """Among more than stay open: what replaces it after its header was read is refused, whatever else was opened meanwhile."""
        files = {}
        for number in range(80):
            files |= self.array(f"t{number:02}", numpy.full(75_000, 1, "f4"))
        other, = self.array("t00", numpy.full(75_000, 7, "i4")).values()
        for url, (path, content) in zip(self.put(files), (("/org/name/", other), ("/b/deep/", other))):
            asked = []

            def fault(request, path=path):
                if request.method == "GET" and "t00.npy" in request.path and path in request.path:
                    asked.append(request)
                    if len(asked) == 2:
                        self.hub.repositories["org/name"]["t00.npy"] = other
                        self.server.store.buckets["b"]["deep/t00.npy"] = (other, '"new"', {})
                return None
            self.server.fault = fault
            self.fail_with(support.INVALID, "convert", url, "-o", self.path("none.zt"), says=["t00.npy", "changed while it was read"])
            self.assertFalse(self.path("none.zt").exists())
            self.put(files)

    def test_few_requests(self):
        """One for each object that is small, and one to list them; no more for those that are read as weights and as files."""
        arrays, shards = {}, {}
        for number in range(1000):
            arrays |= self.array(f"t{number:03}", numpy.full(100, number, "i4"))
        names = {f"t{number}": f"model-{number:05}-of-00080.safetensors" for number in range(1, 81)}
        for name, file in names.items():
            shards[file] = make_safetensors.encode({name: ("U8", [1000], bytes(1000))})
        shards["model.safetensors.index.json"] = json.dumps({"weight_map": names}).encode()
        shards["config.json"] = b"{}"
        for files in (arrays, shards):
            for url, most in zip(self.put(files), (3, 2)):
                self.server.requests.clear()
                self.succeed("convert", url, "-o", self.path("out.zt"), "-f", "--no-sync")
                self.assertLessEqual(len(self.server.requests), len(files) + most)

    def test_a_large_folder(self):
        """More first bytes than are held: an object is asked for twice at most, and no byte of it."""
        files = {}
        for number in range(200):
            files |= self.array(f"t{number:03}", numpy.full(50_000, number, "i4"))
        url = self.put(files)[1]
        self.succeed("convert", url, "-o", self.path("out.zt"), "--no-sync")
        sent = [request.headers["range"].removeprefix("bytes=").split("-") for request in self.server.requests if "range" in request.headers]
        self.assertLess(len(sent), 2 * len(files))
        size = len(files["t000.npy"])
        self.assertEqual(sum(min(int(last) + 1, size) - int(first) for first, last in sent), size * len(files))

    def test_sizes_that_are_none(self):
        url = self.put({"model.safetensors": self.weights, "config.json": b"{}"})[1]
        for size in ("", "-1", "1e3", str(1 << 64), "two"):
            self.server.store.sizes["deep/config.json"] = size
            self.fail_with(support.INVALID, "convert", url, "-o", self.path("none.zt"), says="no size of 'config.json'")

    def test_a_file_that_is_gone(self):
        urls = self.put({"model.safetensors": self.weights, "config.json": b"{}"})
        self.server.fault = lambda request: remote_server.Answer(404, {}, b"") if request.path.endswith("config.json") and request.method == "GET" else None
        for url in urls:
            self.fail_with(support.IO, "convert", url, "-o", self.path("none.zt"), says="config.json")
