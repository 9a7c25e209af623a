"""The bytes of the local conversion, from every format by https, s3 and hf, into a file, a pipe and a bucket, by any number of
threads and with little memory. ZT_MATRIX=all tries each of them, else a sample of each format and way.
"""
import itertools
import os
import random
import shutil
import ssl
import subprocess
import unittest

import numpy

import remote_server
import support

# What is not made from one file of some MiB: fixtures, with what lies beside them.
FIXTURES = {"scipy": "scipy/csr.npz", "torch": "torch/dtypes.pt", "torch, legacy": "torch/dtypes_legacy.pt", "onnx": "onnx/model.onnx",
            "hdf5": "hdf5/a.h5", "zt 0.1": "zt/w010.zt"}


@unittest.skipUnless(shutil.which("openssl"), "openssl makes the certificate")
class Matrix(remote_server.Remote):
    def setUp(self):
        super().setUp()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], cwd=self.folder, capture_output=True, check=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("cert.pem"), self.path("key.pem"))
        self.secure = remote_server.Server(tls=context)
        self.secure.__enter__()
        self.addCleanup(self.secure.__exit__, None, None, None)
        self.environment["SSL_CERT_FILE"] = str(self.path("cert.pem"))
        self.objects = {}
        self.server.store.buckets.update({"in": {}, "out": self.objects})
        self.server.hub.repositories["org/name"] = {}

    def formats(self):
        """{name: a file}, of twelve formats; each with its files beside it in a folder of its own."""
        big = remote_server.big_file(self.path("big.safetensors"))
        numpy.save(self.path("big.npy"), numpy.random.default_rng(1).random((1500, 700)))
        self.convert(big, "big.zt", "--zstd=1", "--min-gain=-100")
        self.convert(big, "big2.zt", "--spec", "2.0", "--zstd=planes")
        for to in ("npz", "gguf"):
            self.succeed("extract", self.path("big.zt"), "-o", self.path(f"big.{to}"), "--no-sync")
        found = {"safetensors": big, "npy": self.path("big.npy"), "npz": self.path("big.npz"), "gguf": self.path("big.gguf"),
                 "zt 1.2": self.path("big.zt"), "zt 2.0": self.path("big2.zt")}
        return found | {name: support.DATA / file for name, file in FIXTURES.items()}

    def serve_everywhere(self, file):
        """{scheme: URL}."""
        for beside in file.parent.iterdir():
            if beside.is_file() and (beside == file or file.parent != self.folder):
                content = beside.read_bytes()
                self.secure.files[beside.name] = content
                self.server.store.buckets["in"][beside.name] = (content, '"etag"', {})
                self.server.hub.repositories["org/name"][beside.name] = content
        return {"https": self.secure.url(file.name), "s3": f"s3://in/{file.name}", "hf": f"hf://org/name/{file.name}"}

    def into(self, sink, url, *options):
        """The output of a run, as bytes."""
        place = {"file": self.path("out.zt"), "pipe": "-", "s3": "s3://out/m.zt"}[sink]
        done = self.run_program("convert", "-q", "-f", url, "-o", place, "--no-sync", *options, *["--part-size", "5MiB"] * (sink == "s3"))
        self.assertEqual(done.returncode, support.DONE, done.stderr)
        return {"file": lambda: self.path("out.zt").read_bytes(), "pipe": lambda: done.stdout, "s3": lambda: self.objects.pop("m.zt")[0]}[sink]()

    def test_every_byte(self):
        tried, threads = 0, itertools.cycle("128")
        for name, file in self.formats().items():
            rules = ["--exclude", "^text$"] if name == "hdf5" else []  # texts are not converted
            local = self.run_program("convert", "-f", file, "-o", self.path("local.zt"), "--no-sync", *rules)
            if name == "hdf5" and local.returncode == support.UNSUPPORTED:
                continue
            self.assertEqual(local.returncode, support.DONE, local.stderr)
            want, urls = self.path("local.zt").read_bytes(), self.serve_everywhere(file)
            ways = list(itertools.product(urls, ("file", "pipe", "s3"), "128", ([], ["--memory", "64MiB"])))
            if os.environ.get("ZT_MATRIX") != "all":
                sample = random.Random(name).sample(["file", "pipe", "s3"], 3)
                ways = [(scheme, sink, next(threads), random.Random(name + scheme).choice(([], ["--memory", "64MiB"])))
                        for scheme, sink in zip(urls, sample)]
            for scheme, sink, count, memory in ways:
                with self.subTest(name, scheme=scheme, sink=sink, threads=count, memory=memory):
                    self.assertEqual(self.into(sink, urls[scheme], "-T", count, *memory, *rules), want)
                    tried += 1
        print(f"{tried} conversions, each the bytes of the local one")


if __name__ == "__main__":
    unittest.main()
