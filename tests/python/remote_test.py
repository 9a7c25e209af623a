"""URLs: what a server has is what a file has, and what a server does to a program that stays up: changes, stalls, expires."""
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import unittest
from unittest import mock

import numpy
from package_support import DATA, Case, parts_of, run, ztstream

import remote_server  # package_support says where it is



class Remote(Case):
    def setUp(self):
        super().setUp()
        self.server = remote_server.Server()
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)
        patched = mock.patch.dict(os.environ, self.server.environment())
        patched.start()
        self.addCleanup(patched.stop)

    def serve(self, name, path):
        self.server.files[name] = pathlib.Path(path).read_bytes()
        return self.server.url(name)

    def written(self, name="w.zt", size=1 << 20, **options):
        """A file of two tensors, larger than what opening asks for, and its URL."""
        values = numpy.random.default_rng(1).standard_normal(size).astype("f4")
        ztstream.save_file({"w": values, "z": values[::2]}, self.path(name), overwrite=True, **options)
        return values, self.serve(name, self.path(name))


class Stores(Remote):
    """One process asks in several ways: what a call is given is of that call alone."""

    def setUp(self):
        super().setUp()
        self.values, _ = self.written()
        content = self.server.files["w.zt"]
        self.server.store.public = True
        self.server.store.buckets = {"open": {"w.zt": (content, '"1"', {})}, "closed": {"w.zt": (content, '"1"', {})}}
        self.server.fault = lambda request: (
            remote_server.error(403, "AccessDenied") if ("authorization" in request.headers) == request.path.startswith("/open/") else None)

    def test_signed_and_unsigned(self):
        """At the same time, from two threads."""
        failed = []

        def reads(bucket, **options):
            try:
                for _ in range(5):
                    with ztstream.open(f"s3://{bucket}/w.zt", **options) as file:
                        if (file["w"].numpy() != self.values).any():
                            failed.append(bucket)
            except ztstream.Error as error:
                failed.append(error)

        threads = [threading.Thread(target=reads, args=("open",), kwargs={"no_sign_request": True}), threading.Thread(target=reads, args=("closed",))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        for bucket, options in (("open", {}), ("closed", {"no_sign_request": True})):
            with self.assertRaisesRegex(ztstream.Error, "AccessDenied"):
                ztstream.open(f"s3://{bucket}/w.zt", **options)

    def test_endpoint_region_profile(self):
        self.server.fault = None
        with mock.patch.dict(os.environ, AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="",
                             AWS_SHARED_CREDENTIALS_FILE=self.path("keys")):
            pathlib.Path(self.path("keys")).write_text(
                f"[mine]\naws_access_key_id = {remote_server.ACCESS}\naws_secret_access_key = {remote_server.SECRET}\n", encoding="ascii")
            options = {"endpoint_url": self.server.origin, "region": "eu-west-9", "profile": "mine"}
            self.server.store.public, self.server.store.region = False, "eu-west-9"
            ztstream.save_file({"v": self.values[:9]}, "s3://closed/v.zt", **options)
            self.assertTrue((ztstream.load_file("s3://closed/v.zt", **options)["v"] == self.values[:9]).all())
            self.assertTrue(all("/eu-west-9/" in request.headers["authorization"] for request in self.server.requests))
            with self.assertRaisesRegex(ztstream.Error, "there is no profile 'other'"):
                ztstream.open("s3://closed/v.zt", **{**options, "profile": "other"})

    def test_headers_and_continued_uploads(self):
        """Of 40 MB, which is three parts: the second is denied at first, and the others are not sent again."""
        store, payer = self.server.store, {"s3_headers": {"x-amz-request-payer": "requester", "x-amz-acl": "private"}}
        values = numpy.arange(10_000_000, dtype="f4")
        denied, kept = ["partNumber=2&"], set()

        def fault(request):
            if "part-number-marker" in request.query:
                kept.update(*(upload["parts"] for upload in store.uploads.values()))
            refused = "x-amz-request-payer" not in request.headers or any(each in request.query for each in denied)
            return remote_server.error(403, "AccessDenied") if refused else None
        self.server.fault = fault
        with self.assertRaisesRegex(ztstream.Error, "AccessDenied"):
            ztstream.save_file({"v": values}, "s3://open/v.zt", resume=True, **payer)
        denied.clear()
        self.server.requests.clear()
        ztstream.save_file({"v": values}, "s3://open/v.zt", resume=True, **payer)
        sent = {int(request.arguments["partNumber"]) for request in self.server.requests if "partNumber" in request.query}
        self.assertEqual(sent, {1, 2, 3} - kept)
        self.assertFalse(store.uploads)
        with ztstream.open("s3://open/v.zt", **payer) as file:
            self.assertTrue((file["v"].numpy() == values).all())
        with self.assertRaisesRegex(ztstream.Error, "AccessDenied"):
            ztstream.open("s3://open/v.zt")

    def test_a_commit_of_each(self):
        """A repository is read at one commit from opening on; who opens it again reads the next one."""
        self.server.fault = None
        hub, old, new = self.server.hub, *self.server.hub.commits
        hub.repositories["org/name"] = {"w.zt": self.server.files["w.zt"]}
        hub.revisions["main"] = old
        with ztstream.open("hf://org/name/w.zt") as first:
            hub.revisions["main"] = new
            with ztstream.open("hf://org/name/w.zt") as second:
                for file, commit in ((first, old), (second, new)):
                    self.server.requests.clear()
                    self.assertTrue((file["w"].numpy() == self.values).all())
                    self.assertEqual({request.path.split("/resolve/")[1].split("/")[0] for request in self.server.requests}, {commit})

    def test_queries(self):
        """Of one URL, at the same time: each is sent what it was given."""
        self.server.fault = None
        url = self.server.url("w.zt")
        with ztstream.open(url + "?key=1") as one, ztstream.open(url + "?key=2") as two:
            self.server.requests.clear()
            self.assertTrue((one["w"].numpy() == two["w"].numpy()).all())
            self.assertEqual({request.query for request in self.server.requests}, {"key=1", "key=2"})


class Reading(Remote):
    def test_every_format(self):
        seen = 0
        for folder, pattern in (("zt", "*.zt"), ("zt2", "*.zt"), ("safetensors", "*.safetensors"), ("npy", "*.npy"), ("npz", "*.npz"),
                                ("gguf", "*.gguf"), ("torch", "*.pt"), ("onnx", "*.onnx")):
            for path in sorted((DATA / folder).rglob(pattern))[:3]:
                with self.subTest(path.name):
                    for beside in path.parent.iterdir():
                        if beside.is_file():
                            self.serve(beside.name, beside)
                    try:
                        with ztstream.open(path) as file:
                            wanted = {name: (t.shape, t.type, t.encoding, t.digest) for name, t in file.items()}, parts_of(file)
                            about = file.format, file.version, file.attributes
                    except ztstream.Error as error:
                        with self.assertRaises(type(error)), ztstream.open(self.server.url(path.name)) as file:
                            parts_of(file)
                        continue
                    with ztstream.open(self.server.url(path.name)) as file:
                        found = {name: (t.shape, t.type, t.encoding, t.digest) for name, t in file.items()}, parts_of(file)
                        self.assertEqual((file.format, file.version, file.attributes), about)
                    self.assertEqual(found, wanted)
                    seen += 1
        self.assertGreater(seen, 12)

    def test_large(self):
        """By many threads, in pieces, rows, one tensor verified; each byte is asked for about once."""
        for compress in (None, "zstd"):
            values, url = self.written(compress=compress, min_gain=-1)
            with ztstream.open(url) as file:
                self.server.requests.clear()
                found = file.numpy()
                sent = sum(int(last) + 1 - int(first) for first, last in (
                    request.headers["range"].removeprefix("bytes=").split("-") for request in self.server.requests))
                self.assertLess(sent, 1.05 * len(self.server.files["w.zt"]))
                self.assertTrue((found["w"] == values).all() and (found["z"] == values[::2]).all())
                self.assertTrue((file["w"][1000:2000] == values[1000:2000]).all())
                self.assertTrue(file["z"].verify().verified)
                self.assertTrue(file.verify().verified)
                file.prefetch()
                failed = []
                threads = [threading.Thread(target=lambda: failed.append((file["w"].numpy() != values).any())) for _ in range(6)]
                for each in threads:
                    each.start()
                for each in threads:
                    each.join()
                self.assertEqual(failed, [False] * 6)

    def test_hub_and_bucket(self):
        """Folders there, with the files that go with the weights, and files that are written into a bucket."""
        folder = DATA / "hf-sharded"
        self.server.hub.repositories["org/model"] = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        with ztstream.open(folder) as local, ztstream.open("hf://org/model") as file:
            self.assertEqual(parts_of(file), parts_of(local))
        self.server.store.buckets["b"] = {}
        tensors = {"w": numpy.arange(1000.0)}
        ztstream.save_file(tensors, "s3://b/out/w.zt", compress="zstd")
        with ztstream.open("s3://b/out/w.zt") as file:
            self.assertEqual(file["w"].numpy().tolist(), tensors["w"].tolist())
        with self.assertRaises(ztstream.ExistsError):
            ztstream.save_file(tensors, "s3://b/out/w.zt")
        ztstream.save_file({"v": numpy.arange(3)}, "s3://b/out/w.zt", overwrite=True)
        with ztstream.open("s3://b/out/w.zt") as file:
            self.assertEqual(list(file), ["v"])
        with self.assertRaises(ZeroDivisionError), ztstream.Writer("s3://b/none.zt") as out:
            out.add("w", numpy.zeros(10))
            1 / 0
        self.assertEqual((list(self.server.store.buckets["b"]), self.server.store.uploads), (["out/w.zt"], {}))

    def test_another_identity(self):
        """Who asks, and where, is read again when the variables that say so are others."""
        self.server.store.buckets["b"] = {}
        for identity in ("AKIDFIRST", "AKIDSECOND"):
            self.server.store.access = identity
            with mock.patch.dict(os.environ, AWS_ACCESS_KEY_ID=identity):
                ztstream.save_file({"w": numpy.arange(3)}, f"s3://b/{identity}.zt")
                with ztstream.open(f"s3://b/{identity}.zt") as file:
                    self.assertEqual(list(file), ["w"])
        with mock.patch.dict(os.environ, AWS_ENDPOINT_URL="http://127.0.0.1:1"), self.assertRaises(OSError):
            ztstream.open("s3://b/AKIDSECOND.zt")

    def test_refused(self):
        for url, kind in ((self.server.url("none.zt"), OSError), ("nobody://host/x.zt", NotImplementedError),
                          ("https://user:secret@127.0.0.1/x.zt", ValueError), (self.server.origin + "/web/", ValueError)):
            with self.subTest(url), self.assertRaises(kind) as raised:
                ztstream.open(url)
            self.assertNotIn("secret", str(raised.exception))
        with self.assertRaises(NotImplementedError):
            ztstream.save_file({}, self.server.url("out.zt"))


class Staying(Remote):
    """What a program meets that opens one URL again and again."""

    def test_changed(self):
        _, url = self.written()
        file = ztstream.open(url)
        _, url = self.written(size=1 << 19)
        with ztstream.open(url) as newer:
            self.assertEqual(newer["w"].shape, (1 << 19,))
            self.assertEqual(newer["w"][:3].shape, (3,))
        with self.assertRaisesRegex(ztstream.FormatError, "w.zt: tensor 'w': it was changed while it was read"):
            file["w"].numpy()

    def test_signed(self):
        """A signature is not shown, and a newer one takes its place."""
        values, url = self.written()
        valid = ["first"]
        self.server.fault = lambda request: (None if request.arguments.get("signature") in valid else
                                             remote_server.Answer(403, {}, b"expired"))
        first = ztstream.open(url + "?signature=first")
        valid[:] = ["second"]
        with ztstream.open(url + "?signature=second") as file:
            self.assertTrue((file["w"].numpy() == values).all())
            self.assertEqual((file.path, "signature" in repr(file)), (url, False))
            copy = pickle.loads(pickle.dumps(file))
            self.assertTrue((copy["z"].numpy() == values[::2]).all())
        with self.assertRaises(ztstream.InputOutputError) as raised:
            first["w"].numpy()
        self.assertEqual((raised.exception.file, "signature=" in str(raised.exception)), (url, False))

    def test_many_threads_open(self):
        """Two URLs that differ in their queries alone are two files."""
        _, url = self.written(size=300_000)
        contents = {}
        for version in ("1", "2"):
            ztstream.save_file({"v": numpy.full(100_000, int(version))}, self.path(version), overwrite=True)
            contents[version] = pathlib.Path(self.path(version)).read_bytes()
        self.server.fault = lambda request: (remote_server.ranged(request, contents[request.arguments["version"]], None)
                                             if "version" in request.arguments else None)
        wrong = []

        def work(version):
            for _ in range(10):
                with ztstream.open(f"{url}?version={version}") as file:
                    if not (file["v"].numpy() == int(version)).all():
                        wrong.append(version)

        threads = [threading.Thread(target=work, args=(str(1 + i % 2),)) for i in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(wrong, [])

    def test_fork(self):
        """A child opens a URL again; what its parent has opened it may not read, and may drop."""
        values, url = self.written()
        file = ztstream.open(url)
        child = os.fork()
        if child == 0:
            try:
                file["w"].numpy()
            except ztstream.MisuseError as error:
                good = "open it again here" in str(error)
                file.close()
                del file
                with ztstream.open(url) as again:
                    good = good and bool((again["w"].numpy() == values).all())
                os._exit(0 if good else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertTrue((file["w"].numpy() == values).all())

    def test_interrupt(self):
        """Ctrl-C ends what waits for a server that does not answer."""
        _, url = self.written()
        stall = threading.Event()
        self.addCleanup(stall.set)

        def fault(request):
            if stalls(request):
                stall.wait(20)

        code = """
import os, signal, threading, time
def soon():
    time.sleep(0.5)
    soon.at = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
opened = ztstream.open(sys.argv[1]) if sys.argv[2] == "read" else None
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=soon).start()
try:
    opened["w"].numpy() if opened else ztstream.open(sys.argv[1])
except KeyboardInterrupt:
    print(time.monotonic() - soon.at, flush=True)
os._exit(0)
"""
        for what in ("open", "read"):
            stalls = lambda request: False
            self.server.fault = fault
            with subprocess.Popen([sys.executable, "-B", "-c", "import sys, ztstream\n" + code, url, what], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) as process:
                self.assertEqual(process.stdout.readline(), "ready\n")
                stalls = lambda request: True
                process.stdin.write("\n")
                process.stdin.flush()
                self.assertLess(float(process.stdout.readline()), 0.4, what)

    def test_libcurl(self):
        """It is loaded when the first URL is opened."""
        _, url = self.written()
        code = """
loaded = lambda: "libcurl" in open("/proc/self/maps").read()
before = ztstream.open(sys.argv[1]), loaded()
print(before[1], ztstream.open(sys.argv[2])["w"].shape, loaded())
"""
        done = run(code, self.path("w.zt"), url)
        self.assertEqual((done.stdout, done.stderr), ("False (1048576,) True\n", ""))


if __name__ == "__main__":
    unittest.main()
