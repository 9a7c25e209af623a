"""hf:// as input: the files of a repository at one commit, with the Hub's listing, redirects, tokens and cache."""
import json
import os
import unittest

import make_safetensors
import remote_server
import support
from remote_server import COMMIT, HUB_TOKEN

INDEX = "model.safetensors.index.json"


class Hub(remote_server.Remote):
    def setUp(self):
        super().setUp()
        self.hub = self.server.hub
        self.cdn = remote_server.Server()
        self.cdn.__enter__()
        self.addCleanup(self.cdn.__exit__, None, None, None)
        self.cdn.hub.shared = self.hub.shared
        self.hub.cdn = self.cdn.origin
        folder = self.path("local")
        os.mkdir(folder)
        names = {}
        for number in (1, 2):
            name = f"model-0000{number}-of-00002.safetensors"
            make_safetensors.write(folder / name, {f"t{number}": ("F32", [300, 300], os.urandom(360_000))})
            names[f"t{number}"] = name
        (folder / INDEX).write_text(json.dumps({"weight_map": names}))
        (folder / "config.json").write_text("{}")
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        self.hub.repositories["org/name"] = {**files, ".gitattributes": b"", "README.md": b"#", "pytorch_model.bin": b"not looked at",
                                             "onnx/model.onnx": b"x", "sub/a.safetensors": files["model-00001-of-00002.safetensors"]}
        self.want = self.convert(folder, "want.zt")

    def convert(self, given, name="out.zt", *options):
        """The weights alone; remote_folder_test looks at the other files."""
        return super().convert(given, name, "--files", "none", *options)

    def secrets(self):
        """That the token went to the Hub alone."""
        self.assertFalse([request for request in self.cdn.requests if "authorization" in request.headers])

    def test_a_repository(self):
        self.environment["HF_TOKEN"] = HUB_TOKEN
        for page in (1000, 2):
            self.hub.page = page
            for name in ("hf://org/name", "hf://models/org/name", "hf://org/name@main", f"hf://org/name@{COMMIT}", "hf://org/name/" + INDEX, "hf://org/name/"):
                with self.subTest(name=name, page=page):
                    self.assertEqual(self.convert(name, "out.zt", "-f"), self.want)
        resolved = [request for request in self.server.requests if "/resolve/" in request.path]
        self.assertTrue(all(f"/resolve/{COMMIT}/" in request.path for request in resolved))
        self.assertTrue(all(request.headers["authorization"] == f"Bearer {HUB_TOKEN}" for request in self.server.requests))
        self.assertGreater(len(self.cdn.requests), 0)
        self.secrets()

    def test_files_and_folders(self):
        self.convert(self.path("local/model-00001-of-00002.safetensors"), "one.zt")
        for name in ("hf://org/name/model-00001-of-00002.safetensors", "hf://org/name/sub/a.safetensors", "hf://org/name@refs/pr/1/sub/a.safetensors"):
            process = self.run_program("diff", name, self.path("one.zt"))
            self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.convert("hf://org/name/sub", "sub.zt")
        self.assertTrue([request for request in self.server.requests if f"/resolve/{COMMIT[::-1]}/" in request.path])

    def test_a_branch_that_moves_is_read_at_one_commit(self):
        def move(request):
            if "/tree/" in request.path:
                self.hub.revisions["main"] = COMMIT[::-1]
        self.server.fault = move
        self.assertEqual(self.convert("hf://org/name", "out.zt"), self.want)

    def test_refusals(self):
        self.hub.gated.add("org/gated")
        self.hub.repositories["org/gated"] = self.hub.repositories["org/name"]
        for name, says in (("hf://org/none", "private"), ("hf://org/name@none", "no such revision"), ("hf://org/name/none.safetensors", "no such file"),
                           ("hf://org/gated", "gated")):
            with self.subTest(name):
                self.fail_with(support.IO, "inspect", name, says=[name, says])
        for name in ("hf://", "hf:///x", "hf://org/name@", "hf://org/na me"):
            self.fail_with(support.USAGE, "inspect", name, says="hf://ORG/NAME")
        self.environment["HF_TOKEN"] = "hf_othersecret"
        self.assertNotIn("hf_othersecret", self.fail_with(support.IO, "inspect", "hf://org/gated"))
        self.environment["HF_TOKEN"] = HUB_TOKEN
        self.assertEqual(self.convert("hf://org/gated", "out.zt"), self.want)
        self.fail_with(support.UNSUPPORTED, "convert", self.path("local"), "-o", "hf://org/name/x.zt", says="hf upload")

    def test_names_without_an_organisation(self):
        """As the oldest repositories have them; and data sets."""
        files = self.hub.repositories["org/name"]
        self.hub.repositories.update({"gpt2": files, "datasets/squad": files, "datasets/org/set": files, "sub/gpt2": {}})
        for name in ("gpt2", "gpt2/", "gpt2@main", f"gpt2@{COMMIT}/{INDEX}", f"gpt2@main/{INDEX}", "models/gpt2", "datasets/squad", f"datasets/squad@main/{INDEX}",
                     "datasets/org/set", f"datasets/org/set/{INDEX}"):
            with self.subTest(name):
                self.assertEqual(self.convert("hf://" + name, "out.zt", "-f"), self.want)
        self.fail_with(support.IO, "inspect", f"hf://gpt2/{INDEX}", says="if 'gpt2' is a repository without an organisation, write hf://gpt2@main/...")
        self.fail_with(support.IO, "inspect", "hf://org", says="there is no such repository")

    def test_tokens(self):
        self.hub.gated.add("org/name")
        home = self.path("home")
        os.mkdir(home)
        (home / "token").write_text(HUB_TOKEN + "\n")
        cases = (({"HF_HOME": str(home)}, True), ({"HF_TOKEN_PATH": str(home / "token")}, True), ({"HUGGING_FACE_HUB_TOKEN": HUB_TOKEN}, True),
                 ({"HF_TOKEN": HUB_TOKEN}, True), ({"HF_TOKEN": HUB_TOKEN, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, False), ({}, False))
        for environment, good in cases:
            process = self.run_program("inspect", "--json", "hf://org/name", env=environment)
            self.assertEqual(process.returncode, support.DONE if good else support.IO, (environment, process.stderr))
            self.assertNotIn(HUB_TOKEN.encode(), process.stdout + process.stderr)
        self.secrets()
        self.fail_with_token_over_http()

    def fail_with_token_over_http(self):
        process = self.run_program("inspect", "hf://org/name", env={"HF_TOKEN": HUB_TOKEN, "HF_ENDPOINT": "http://hub.example"})
        self.assertEqual(process.returncode, support.USAGE)
        self.assertIn(b"over which a token is not sent", process.stderr)

    def cache(self, commit=COMMIT):
        """As the Hub's own tools lay it out: links into a folder of blobs."""
        home = self.path("cached")
        repository = home / "hub/models--org--name"
        (repository / "blobs").mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "refs/main").write_text(commit)
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True)
        for number, file in enumerate(sorted(self.path("local").iterdir())):
            (repository / f"blobs/{number}").write_bytes(file.read_bytes())
            (snapshot / file.name).symlink_to(f"../../blobs/{number}")
        return home, snapshot

    def test_the_cache_comes_first(self):
        home, snapshot = self.cache()
        self.environment["HF_HOME"] = str(home)
        self.assertEqual(self.convert("hf://org/name", "out.zt"), self.want)
        self.assertFalse([request for request in self.server.requests if "/resolve/" in request.path])
        # A part of it is not all.
        (snapshot / "model-00002-of-00002.safetensors").unlink()
        self.assertEqual(self.convert("hf://org/name", "out.zt", "-f"), self.want)
        self.assertTrue([request for request in self.server.requests if "/resolve/" in request.path])

    def test_offline(self):
        home, snapshot = self.cache()
        self.server.requests.clear()
        for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            self.environment.update({"HF_HOME": str(home), switch: "1"})
            self.assertEqual(self.convert("hf://org/name", "out.zt", "-f"), self.want)
            self.assertEqual(self.convert(f"hf://org/name/{INDEX}", "out.zt", "-f"), self.want)
            self.fail_with(support.IO, "inspect", "hf://org/other", says="the cache does not have")
            self.fail_with(support.IO, "inspect", "hf://org/name/other.safetensors", says="no such file")
            self.fail_with(support.IO, "inspect", "hf://org/name@other/", says="the cache does not have")
            del self.environment[switch]
        self.assertEqual(self.server.requests, [])

    def test_names_that_lead_out_of_the_repository(self):
        home, _ = self.cache()
        self.environment.update({"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"})
        for name in ("hf://org/name/../../../../../want.zt", "hf://org/name/sub/..", "hf://org/..", "hf://../name/a.zt", "hf://org/name@../x.zt",
                     "hf://org/name@%2e%2e%2fmain/x.zt", "hf://org/name/./a.zt"):
            with self.subTest(name=name):
                self.fail_with(support.USAGE, "inspect", name, says=". or ..")


if __name__ == "__main__":
    unittest.main()
