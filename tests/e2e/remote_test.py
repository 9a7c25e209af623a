"""Inputs over HTTP: the same bytes as from a file, and what happens where a server fails, changes its mind or lies."""
import base64
import dataclasses
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import unittest

import numpy

import make_safetensors
import onnx_assembler
import pickle_assembler
import quantized
import remote_server
import support
from remote_server import Answer, Change, Cut

SHARD = "model-0000{}-of-00002.safetensors"


class Reading(remote_server.Remote):
    def test_a_large_file(self):
        file = remote_server.big_file(self.path("big.safetensors"))
        url = self.serve("big.safetensors", file)
        want = self.convert(file, "local.zt")
        for options in ([], ["-T", "1"], ["-T", "8"], ["--memory", "64MiB"]):
            self.server.requests.clear()
            self.assertEqual(self.convert(url, "out.zt", "-f", *options), want)
            sent = sum(int(last) + 1 - int(first) for first, last in (r.removeprefix("bytes=").split("-") for r in self.ranges()))
            self.assertLess(sent, 1.05 * len(self.server.files["big.safetensors"]))

    def test_numbers_of_quantized_models(self):
        """Scales in another shard than their codes, and the configuration, from the server; and of the .zt file with both."""
        for name in ("fp8_blocks", "gptq", "gpt_oss", "bnb_4bit"):
            config, add = quantized.SCHEMES[name](numpy.random.default_rng(4))
            tensors = {}
            for i in range(3):
                add(tensors, f"l.{i}.m")
            folder = self.path(name)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
            weight_map = {}
            for shard in (1, 2):
                part = {key: tensors[key] for key in sorted(tensors)[shard - 1::2]}
                make_safetensors.write(folder / SHARD.format(shard), part)
                weight_map |= dict.fromkeys(part, SHARD.format(shard))
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
            for path in folder.iterdir():
                self.serve(f"{name}/{path.name}", path)
            index = folder / "model.safetensors.index.json"
            rule = "--dequantize", "bf16", "--on-overflow", "inf"
            want = self.convert(index, "local.zt", "-f", *rule)
            self.assertEqual(self.convert(self.server.url(f"{name}/{index.name}"), "out.zt", "-f", *rule), want)
            self.convert(folder, "whole.zt", "-f")
            want = self.convert(self.path("whole.zt"), "local.zt", "-f", *rule)
            self.assertEqual(self.convert(self.serve("whole.zt", self.path("whole.zt")), "out.zt", "-f", *rule), want)

    def test_hdf5_that_libhdf5_reads_in_a_process_of_its_own(self):
        """Chunked, so that it is not read by ranges of contiguous data; larger than what opening asks for."""
        try:
            import h5py
        except ImportError:
            self.skipTest("no h5py")
        with h5py.File(self.path("m.h5"), "w") as file:
            for number in range(6):
                values = numpy.random.default_rng(number).random((400, 500)).astype("f4")
                file.create_dataset(f"t{number}", data=values, chunks=(40, 50), compression="gzip" if number % 2 else None)
        url = self.serve("m.h5", self.path("m.h5"))
        want = self.run_program("convert", self.path("m.h5"), "-o", self.path("local.zt"))
        if want.returncode == support.UNSUPPORTED:
            self.skipTest("a build without HDF5")
        self.assertEqual(self.convert(url, "remote.zt"), self.path("local.zt").read_bytes())

    def test_inspect_asks_three_times_at_most(self):
        file = remote_server.big_file(self.path("big.safetensors"))
        url = self.serve("big.zt", self.path("x.zt") if self.convert(file, "x.zt") else None)
        listed = self.json("inspect", "--json", url)
        self.assertEqual(listed["objects"], self.json("inspect", "--json", self.path("x.zt"))["objects"])
        self.assertLessEqual(len(self.server.requests), 3, self.ranges())

    def test_extract_reads_what_it_needs(self):
        file = remote_server.big_file(self.path("big.safetensors"), tensors=20)
        self.convert(file, "x.zt", "--zstd=1", "--min-gain=-100")
        for name in ("x.zt", "big.safetensors"):
            url = self.serve(name, self.path(name))
            self.server.requests.clear()
            self.succeed("extract", url, "layer.7.*", "-o", self.path("l.safetensors"), "-f")
            self.succeed("extract", self.path(name), "layer.7.*", "-o", self.path("m.safetensors"), "-f")
            self.assertEqual(self.path("l.safetensors").read_bytes(), self.path("m.safetensors").read_bytes())
            read = sum(int(last) + 1 - int(first) for first, last in (r.removeprefix("bytes=").split("-") for r in self.ranges()))
            self.assertLess(read, 600 * 600 * 4 * 1.1 + (1 << 20), (name, self.ranges()))

    def test_an_output_in_another_order_reads_nothing_twice(self):
        """safetensors are sorted by name: layer.10 before layer.2. More bytes than are held at once; and many small tensors."""
        small = {f"t{number}": ("U8", [2000], os.urandom(2000)) for number in range(3000)}
        for file, most in ((remote_server.big_file(self.path("big.safetensors"), tensors=32), 40), (self.safetensors("small.safetensors", small), 8)):
            self.convert(file, "x.zt", "-f")
            url = self.serve("x.zt", self.path("x.zt"))
            self.server.requests.clear()
            for memory in ("16MiB", "64MiB"):
                self.server.requests.clear()
                self.succeed("extract", url, "-o", self.path("back.safetensors"), "-f", "--memory", memory)
                read = sum(int(last) + 1 - int(first) for first, last in (r.removeprefix("bytes=").split("-") for r in self.ranges()))
                self.assertLess(read, 1.05 * len(self.server.files["x.zt"]), self.ranges())
                self.assertLess(len(self.server.requests), most, self.ranges())
            self.succeed("diff", self.path("back.safetensors"), file)

    def test_every_command(self):
        file = remote_server.big_file(self.path("big.safetensors"), tensors=2)
        url = self.serve("big.safetensors", file)
        self.convert(file, "x.zt")
        zt = self.serve("x.zt", self.path("x.zt"))
        self.succeed("verify", zt, "--against", url)
        self.succeed("diff", zt, url)
        self.assertEqual(self.succeed("id", zt), self.succeed("id", self.path("x.zt")))
        self.succeed("extract", zt, "-o", self.path("back.safetensors"))
        self.succeed("diff", self.path("back.safetensors"), url)
        self.assertEqual(self.json("inspect", "--json", url)["objects"], self.json("inspect", "--json", file)["objects"])

    def test_shards_by_their_index(self):
        tensors = {}
        for number in (1, 2):
            make_safetensors.write(self.path(SHARD.format(number)), {f"t{number}": ("F32", [2], bytes([number] * 8))})
            tensors[f"t{number}"] = SHARD.format(number)
        self.path("model.safetensors.index.json").write_text(json.dumps({"weight_map": tensors}))
        for name in [*tensors.values(), "model.safetensors.index.json"]:
            url = self.serve("checkpoint/" + name, self.path(name))
        self.assertEqual(self.convert(url, "remote.zt"), self.convert(self.path("model.safetensors.index.json"), "local.zt"))
        del self.server.files["checkpoint/" + SHARD.format(2)]
        self.fail_with(support.INVALID, "convert", url, "-o", self.path("x.zt"), says=[SHARD.format(2), "missing"])

    def test_a_part_of_an_entry_is_read_alone(self):
        """Its checksum would take all of it: 8 MB for two numbers."""
        values = numpy.arange(1 << 21, dtype="<f4")
        self.put("a.pt", pickle_assembler.checkpoint({"a": ("F32", [1 << 21], values.tobytes())}))
        numpy.savez(self.path("a.npz"), a=values)
        for name in ("a.pt", "a.npz"):
            url = self.serve(name, self.path(name))
            self.server.requests.clear()
            self.assertEqual(self.succeed("show", url, "a[5:7]"), b"[5.0 6.0]\n")
            ranges = [each.removeprefix("bytes=").split("-") for each in self.ranges() if each]
            self.assertLess(sum(int(last) + 1 - int(first) for first, last in ranges if first), 1 << 21)
            # Damage is noticed where all is read, and a part that is whole is shown.
            data = bytearray(self.server.files[name])
            place = data.index(values[1000:1004].tobytes())
            data[place] ^= 1
            self.put(f"bad-{name}", bytes(data))
            self.assertEqual(self.succeed("show", f"bad-{name}", "a[5:7]"), b"[5.0 6.0]\n")
            self.fail_with(support.INVALID, "convert", f"bad-{name}", "-o", self.path("x.zt"), says="CRC-32")

    def test_a_server_without_ranges_is_a_pipe(self):
        self.server.ranges = False
        file = remote_server.big_file(self.path("big.safetensors"))
        url = self.serve("big.safetensors", file)
        process = self.run_program("convert", url, "-o", self.path("out.zt"))
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.assertIn(b"pipe", process.stderr)
        self.assertEqual(self.path("out.zt").read_bytes(), self.convert(file, "local.zt"))
        self.serve("out.zt", self.path("out.zt"))
        self.fail_with(support.UNSUPPORTED, "convert", "-q", self.server.url("out.zt"), "-o", self.path("x.zt"), says="server without ranges")
        # A small file needs no ranges.
        small = make_safetensors.encode({"t": ("F32", [2], bytes(8))})
        self.server.files["small.safetensors"] = small
        self.convert(self.server.url("small.safetensors"), "small.zt")

    def test_what_needs_ranges_is_refused_alike_by_all(self):
        """As of python3 -m http.server: one message, one status, one warning for a file."""
        self.server.ranges = False
        file = remote_server.big_file(self.path("big.safetensors"), tensors=3)
        self.convert(file, "x.zt")
        self.succeed("extract", self.path("x.zt"), "-o", self.path("x.npz"))
        for name, what in (("x.zt", "a .zt file"), ("x.npz", "a zip archive")):
            url = self.serve(name, self.path(name))
            for command in (["inspect", url], ["verify", url], ["show", url, "t"], ["extract", url, "-o", self.path("e.safetensors")],
                            ["convert", url, "-o", self.path("c.zt")], ["diff", url, file], ["id", url]):
                if command[0] != "verify" or name == "x.zt":
                    self.refused(command, url, what, [url])
        for spec, index in (("1.2", "model.zt.index.json"), ("2.0", "model.zt")):
            folder = self.path(spec)
            folder.mkdir()
            self.succeed("convert", file, "-o", folder / "model.zt", "--shards", "3", "--spec", spec)
            shards = sorted(self.serve(f"{spec}/{each.name}", each) for each in folder.iterdir() if each.suffix == ".zt" and each.name != index)
            url = self.serve(f"{spec}/{index}", folder / index)
            for command in (["inspect", url], ["verify", url], ["extract", url, "-o", self.path("e.safetensors")], ["convert", url, "-o", self.path("c.zt")]):
                if command[0] == "verify" and spec == "2.0":
                    for more in [], ["-T", "1"]:
                        self.fail_with(support.UNSUPPORTED, *command, *more, "-q", says=[shards[0], "a server without ranges; download it\n"])
                elif spec == "1.2":
                    self.refused(command, shards[0], "a .zt file", shards)
                elif command[0] in ("extract", "convert"):
                    self.fail_with(support.UNSUPPORTED, *command, "-q", says=[shards[0], "a .zt file cannot be read from a server without ranges; download it\n"])

    def refused(self, command, url, what, warned):
        process = self.run_program(*command)
        warnings = [f"ztstream: warning: {each}: its server does not support ranges, so it is read as a pipe, from its first byte on" for each in warned]
        said = [*warnings, f"ztstream: {url}: {what} cannot be read from a server without ranges; download it"]
        self.assertEqual((process.returncode, process.stderr.decode().splitlines(), process.stdout), (support.UNSUPPORTED, said, b""), command)

    def test_external_data_of_a_model_needs_ranges(self):
        """Its parts are read by several threads, in any order."""
        self.server.ranges = False
        entries = {"location": "w.bin", "offset": 0, "length": 400_000}
        model = onnx_assembler.model(onnx_assembler.tensor("w", 1, (100_000,), onnx_assembler.external(**entries)))
        url = self.serve("m/m.onnx", self.put("m/m.onnx", model))
        self.serve("m/w.bin", self.put("m/w.bin", os.urandom(400_000)))
        for threads in "1", "4":
            self.fail_with(support.UNSUPPORTED, "convert", "-q", url, "-o", self.path("out.zt"), "-T", threads,
                           says="tensor 'w': its external data 'w.bin' cannot be read from a server without ranges; download it")
            self.assertFalse(self.path("out.zt").exists())
        self.server.ranges = True
        self.assertEqual(self.convert(url, "remote.zt"), self.convert(self.path("m/m.onnx"), "local.zt"))

    def test_a_large_index_without_ranges(self):
        """It is larger than what the first request asks for, and its size is not known."""
        self.server.ranges = False
        tensors = {f"{'a long name ' * 20}{number}": ("U8", [1], bytes([number % 251])) for number in range(2000)}
        self.serve("m/x.safetensors", self.safetensors("x.safetensors", tensors))
        index = json.dumps({"weight_map": dict.fromkeys(tensors, "x.safetensors")}).encode()
        self.assertGreater(len(index), 300_000)
        url = self.serve("m/model.safetensors.index.json", self.put("model.safetensors.index.json", index))
        self.assertEqual(self.convert(url, "remote.zt"), self.convert(self.path("x.safetensors"), "local.zt"))

    def test_an_answer_without_a_range_that_is_compressed(self):
        """Small, and so long that it would be read as a pipe."""
        self.server.ranges = False
        self.server.fault = lambda _: Change(lambda answer: answer.headers.update({"Content-Encoding": "gzip"}))
        for size in (8, 1 << 20):
            self.server.files["x.safetensors"] = make_safetensors.encode({"t": ("U8", [size], bytes(size))})
            self.fail_with(support.INVALID, "convert", self.server.url("x.safetensors"), "-o", self.path("x.zt"), says="compressed, which was not asked for")

    def test_tls_is_verified(self):
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj",
             "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], cwd=self.folder, capture_output=True, check=False)
        if made.returncode != 0:
            self.skipTest("openssl makes no certificate here")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("cert.pem"), self.path("key.pem"))
        file = remote_server.big_file(self.path("big.safetensors"))
        with remote_server.Server(tls=context) as server:
            server.files["big.safetensors"] = file.read_bytes()
            url = server.url("big.safetensors")
            self.fail_with(support.IO, "convert", url, "-o", self.path("out.zt"), says="certificate")
            self.environment["SSL_CERT_FILE"] = str(self.path("cert.pem"))
            self.assertEqual(self.convert(url), self.convert(file, "local.zt"))
            # Not from https to http.
            server.fault = lambda request: Answer(302, {"Location": self.serve("big.safetensors", file)})
            self.fail_with(support.IO, "convert", url, "-o", self.path("x.zt"), says="not secure")
            self.assertEqual(self.server.requests, [])


class Faults(remote_server.Remote):
    def setUp(self):
        super().setUp()
        self.file = remote_server.big_file(self.path("big.safetensors"))
        self.url = self.serve("big.safetensors", self.file)
        self.want = self.convert(self.file, "local.zt")
        self.content = self.server.files["big.safetensors"]

    def after_opening(self, fault, times=1):
        """The fault strikes requests after the one that opens the object, so many times."""
        left = [times]

        def strike(request):
            # Not by its number: one that an ended program sent may still come first.
            if request.headers.get("range", "").startswith("bytes=0-") or left[0] == 0:
                return None
            left[0] -= 1
            return fault(request)
        self.server.fault = strike
        self.server.requests.clear()

    def test_a_body_that_is_cut_goes_on_where_it_ended(self):
        self.after_opening(lambda _: Cut(300_000), 3)
        self.assertEqual(self.convert(self.url, "out.zt"), self.want)
        begins = [int(each.removeprefix("bytes=").split("-")[0]) for each in self.ranges()]
        self.assertIn(True, [begin + 300_000 in begins for begin in begins])

    def test_the_first_try_sent_the_whole_and_the_second_a_range(self):
        self.server.fault = lambda request: Answer(200, {}, bytes(1000), length=200_000, cut=1000) if request.number == 0 else None
        self.server.requests.clear()
        self.assertEqual(self.convert(self.url, "out.zt"), self.want)

    def test_a_refusal_without_an_end(self):
        self.server.fault = lambda _: Answer(404, {}, bytes(1 << 20), length=1 << 40, cut=1 << 20)
        self.server.requests.clear()
        self.fail_with(support.IO, "inspect", self.url, says=[self.url, "no such file", "404"])
        self.assertEqual(len(self.server.requests), 1)

    def test_nobody_listens(self):
        self.server.listener.server_close()
        self.server.listener.shutdown()
        self.fail_with(support.IO, "convert", self.url, "-o", self.path("out.zt"), says=[self.url, "onnect"])

    def test_refusals(self):
        for status, says in ((404, "no such file"), (403, "may not be read"), (401, "may not be read"), (410, "no such file"), (451, "451")):
            self.server.fault = lambda request, status=status: Answer(status, {}, b"a page")
            self.server.requests.clear()
            self.fail_with(support.IO, "inspect", self.url, says=[self.url, says, str(status)])
            self.assertEqual(len(self.server.requests), 1)

    def test_a_weak_etag_leaves_the_date(self):
        dates = iter(["Mon, 01 Jan 2024 00:00:00 GMT"] + ["Tue, 02 Jan 2024 00:00:00 GMT"] * 99)

        def weaken(answer):
            answer.headers.update({"ETag": 'W/"1"', "Last-Modified": next(dates)})

        self.server.fault = lambda _: Change(weaken)
        self.server.requests.clear()
        self.fail_with(support.INVALID, "convert", self.url, "-o", self.path("out.zt"), says="changed while it was read")

    def test_a_date_is_pinned_as_long_as_the_run(self):
        """Of a server without ETags, and of more shards than stay open."""
        shards = {f"t{number}": f"model-{number:05}-of-00080.safetensors" for number in range(1, 81)}
        for name, file in shards.items():
            self.server.files["many/" + file] = make_safetensors.encode({name: ("U8", [1], b"x")})
        self.server.files["many/model.safetensors.index.json"] = json.dumps({"weight_map": shards}).encode()
        first, asked = "many/" + shards["t1"], []
        other = make_safetensors.encode({"t1": ("U8", [1], b"y")})

        def date(request):
            asked.append(request.path)
            again = request.path.endswith(first) and asked.count(request.path) > 1
            if again:
                self.server.files[first] = other

            def change(answer):
                answer.headers.pop("ETag", None)
                answer.headers["Last-Modified"] = f"Mon, 0{1 + again} Jan 2024 00:00:00 GMT"
            return Change(change)
        self.server.fault = date
        self.fail_with(support.INVALID, "convert", self.server.url("many/model.safetensors.index.json"), "-o", self.path("x.zt"),
                       says=[shards["t1"], "changed while it was read"])
        self.assertFalse(self.path("x.zt").exists())

    def test_a_kept_shard_is_of_the_same_object(self):
        """By its ETag, else its date: the sample lacks what is changed."""
        content = bytearray(remote_server.big_file(self.path("big.safetensors")).read_bytes())
        self.server.store.buckets["in"] = {}

        def put(version):
            content[len(content) // 8] ^= 1
            self.server.store.buckets["in"]["m.safetensors"] = bytes(content), f'"{version}"', {}
            self.server.files["m.safetensors"] = bytes(content)
            self.date = f"Mon, 0{version} Jan 2024 00:00:00 GMT"

        def date(answer):
            answer.headers.pop("ETag", None)
            answer.headers["Last-Modified"] = self.date

        put(1)
        url = self.server.url("m.safetensors")
        for number, (given, fault) in enumerate((("s3://in/m.safetensors", None), (url, None), (url, lambda _: Change(date)))):
            self.server.fault = fault
            self.path(f"{number}").mkdir()
            words = "convert", given, "-o", self.path(f"{number}/m.zt"), "--shards", "2", "--no-sync"
            self.succeed(*words)
            self.assertIn("0 shards written, 2 kept", self.run_program(*words).stderr.decode())
            put(number + 2)
            self.fail_with(support.EXISTS, *words, says="the index exists already and belongs to other shards")
            self.path(f"{number}/m.zt.index.json").unlink()
            self.fail_with(support.EXISTS, *words, says="it is a shard of another plan: the inputs or the options were different")
            self.succeed(*words, "-f")

    def test_redirects(self):
        with remote_server.Server() as other:
            other.files["there.safetensors"] = self.content
            self.server.fault = lambda request: Answer(302, {"Location": other.url("there.safetensors") + "?Signature=abc"})
            self.assertEqual(self.convert(self.url, "out.zt"), self.want)
            # Each range goes through the first server.
            self.assertEqual(len(self.server.requests), len(other.requests))
            self.server.fault = lambda request: Answer(302, {"Location": "/web/moved?x=1"})
            self.server.files["moved"] = self.content
            self.server.requests.clear()
            self.server.fault = lambda request: Answer(301, {"Location": "/web/moved"}) if request.path != "/web/moved" else None
            self.assertEqual(self.convert(self.url, "out.zt", "-f"), self.want)
        for place in ("ftp://host/x", "gopher://x"):
            self.server.fault = lambda request, place=place: Answer(302, {"Location": place})
            self.fail_with(support.IO, "inspect", self.url, says="not an http URL")

    def test_redirects_to_this_machine(self):
        """From elsewhere, which a proxy plays: by any spelling of an address, and of the link's, where metadata servers are."""
        self.environment.update(http_proxy=self.server.origin, no_proxy="")
        with remote_server.Server() as near:
            near.files["there.safetensors"] = self.content
            port = near.origin.rsplit(":", 1)[1]
            for host in ("127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001", "0.0.0.0", "localhost", "localhost.", "a.localhost", "[::1]",
                         "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "169.254.169.254",
                         "[::ffff:169.254.169.254]", "[fe80::1]", "192.0.2.77"):
                self.server.fault = lambda request, host=host: Answer(302, {"Location": f"http://{host}:{port}/web/there.safetensors"})
                self.fail_with(support.IO, "inspect", "-q", "http://files.example/m.safetensors", says="the server redirects to an address")
            self.assertEqual(near.requests, [])
        # A proxy of this machine is asked for what it redirects to.
        self.server.files["there.safetensors"], there = self.content, "http://other.example/web/there.safetensors"
        self.server.fault = lambda request: Answer(302, {"Location": there}) if request.path != there else (
            self.server.route(dataclasses.replace(request, path="/web/there.safetensors")))
        for origin in (self.server.origin, self.server.origin + "/", self.server.origin.replace("//", "//user:password@")):
            self.environment["http_proxy"] = origin
            self.succeed("inspect", "http://files.example/m.safetensors")
        # A point at the end of a name does not make an address of it.
        self.server.fault = lambda request: Answer(302, {"Location": there.replace("example", "example.")}) if request.path.endswith("/m.safetensors") else (
            self.server.route(dataclasses.replace(request, path="/web/there.safetensors")))
        self.succeed("inspect", "http://files.example/m.safetensors")

    def test_redirects_to_a_name_of_this_machine(self):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                asked.connect(("192.0.2.1", 9))  # sends nothing
                ours = asked.getsockname()[0]
            name = socket.gethostname()
            if ours.startswith("127.") or not socket.gethostbyname(name).startswith("127."):
                self.skipTest("this machine has no address but the loopback's, or its name leads to another")
        except OSError as error:
            self.skipTest(f"this machine has no network: {error}")
        with remote_server.Server() as near, remote_server.Server(host=ours) as first:
            near.files["there.safetensors"] = first.files["there.safetensors"] = self.content
            there = near.url("there.safetensors").replace("127.0.0.1", name)
            first.fault = lambda request: Answer(302, {"Location": there}) if request.path != "/web/there.safetensors" else None
            self.fail_with(support.IO, "inspect", "-q", first.url("m.safetensors"), says=f"redirects to {there.removesuffix('/web/there.safetensors')}, which is this machine")
            self.assertEqual((len(first.requests), near.requests), (1, []))
            # Nor where there is a proxy, which is not asked for it.
            for proxy, excepted in (("127.0.0.1:9", f"{ours},{name}"), (near.origin, f"{ours}, .{name.upper()}."), (near.origin, "*")):
                self.environment.update(http_proxy=proxy, no_proxy=excepted)
                self.fail_with(support.IO, "inspect", "-q", first.url("m.safetensors"), says="which is this machine")
            self.assertEqual(near.requests, [])
            self.environment.update(http_proxy="", no_proxy="*")
            # From there to itself, and from this machine to this machine, it is followed.
            first.fault = lambda request: Answer(302, {"Location": "/web/there.safetensors"}) if request.path != "/web/there.safetensors" else None
            self.succeed("inspect", first.url("m.safetensors"))
            self.server.fault = lambda request: Answer(302, {"Location": there})
            self.succeed("inspect", self.url)

    def test_proxies_have_secrets(self):
        """Whatever a variable holds, its password is in no message; a proxy is told of it."""
        password = base64.b64encode(b"user:SEC%40RET".replace(b"%40", b"@")).decode()
        with remote_server.Server() as proxy:
            proxy.files["m.safetensors"] = self.content
            host = proxy.origin.removeprefix("http://")
            proxy.fault = lambda request: Answer(407, {"Proxy-Authenticate": "Basic realm=x"}) if (
                request.headers.get("proxy-authorization") != "Basic " + password) else dataclasses.replace(
                    proxy.route(dataclasses.replace(request, path=request.path.removeprefix("http://files.example"))))
            for value in (f"http://user:SEC%40RET@{host}", f"user:SEC%40RET@{host}", f"http://user:SEC@RET@{host}"):
                self.environment.update(http_proxy=value, no_proxy="")
                self.succeed("inspect", "http://files.example/web/m.safetensors")
            self.environment["http_proxy"] = ""
            for variable, value in (("http_proxy", f"http://user:SECx@{host}"),
                                    ("https_proxy", "http://user:SECRET@bad host:1"), ("HTTPS_PROXY", "user:SECRET@127.0.0.1:99999"),
                                    ("all_proxy", "http://user:SECRET@127.0.0.1:abc"), ("ALL_PROXY", "socks9://user:SECRET@127.0.0.1:1"),
                                    ("https_proxy", "http://user:SEC/RET@127.0.0.1:abc"), ("https_proxy", "http://user:SEC@RET@127.0.0.1:abc")):
                url = "http://files.example/m.safetensors" if variable == "http_proxy" else "https://files.example/m.safetensors"
                process = self.run_program("inspect", "--json", url, env={variable: value})
                self.assertEqual(process.returncode, support.IO, (value, process.stderr))
                self.assertNotRegex(process.stdout + process.stderr, b"SEC|RET")

    def test_this_machine_is_asked_without_a_proxy(self):
        with remote_server.Server() as proxy:
            for variable in ("http_proxy", "all_proxy"):
                self.environment.update({variable: proxy.origin, "no_proxy": ""})
                self.succeed("inspect", self.url)
                self.succeed("inspect", self.url.replace("127.0.0.1", "localhost"))
            self.assertEqual(proxy.requests, [])

    def test_queries_are_not_shown(self):
        secret = "X-Amz-Signature=verysecret"
        process = self.run_program("convert", f"{self.url}?{secret}", "-o", self.path("out.zt"), "--json", "-v")
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.assertTrue(all(request.query == secret for request in self.server.requests))
        self.assertNotIn(b"verysecret", process.stdout + process.stderr)
        signed, upper = f"{self.url}?{secret}", f"{self.url}?{secret}".replace("http:", "HTTP:")
        self.server.requests.clear()
        for words in (["inspect", "--json", upper], ["verify", self.path("out.zt"), f"--against={signed}", "--json"],
                      ["verify", self.path("out.zt"), "--against", upper, "--json"]):
            process = self.run_program(*words)
            self.assertEqual(process.returncode, support.DONE, process.stderr)
            self.assertNotIn(b"verysecret", process.stdout + process.stderr)
        self.assertTrue(all(request.query == secret for request in self.server.requests))
        self.server.fault = lambda _: Answer(403)
        for words in (["inspect", signed], ["inspect", upper], ["verify", self.path("out.zt"), f"--against={signed}"],
                      ["convert", self.file, f"-o{signed}"], ["convert", self.file, f"--output={upper}"], [signed]):
            process = self.run_program(*words, "--json")
            self.assertNotEqual(process.returncode, support.DONE)
            self.assertNotIn(b"verysecret", process.stdout + process.stderr)
        for words in (["verify", self.file, signed], [signed, "inspect"], ["help", signed], ["inspect", signed, "--frob"],
                      ["inspect", f"-k{signed}"], ["inspect", f"--frob={signed}"], ["inspect", f"--frob{signed}"],
                      ["convert", signed, "--zstd", signed], ["convert", self.file, f"--zstd={signed}"], ["inspect", "--from", signed],
                      ["convert", self.file, "--align", signed], ["verify", self.file, "--threads", signed, "--against", signed]):
            for more in [], ["--json"]:
                process = self.run_program(*words, *more)
                self.assertEqual(process.returncode, support.USAGE, (words, process.stderr))
                self.assertNotIn(b"verysecret", process.stdout + process.stderr, words)
        self.fail_with(support.USAGE, "diff", f"{self.url}?a=1", f"{self.url}?a=2", says=f"{self.url}: it is named twice with different queries; name each once")
        for words in (["inspect"], ["inspect", self.file], ["convert", self.file, "-o"], []):
            self.assertNotIn("verysecret", self.fail_with(support.USAGE, *words, "https://name:verysecret@host/x.zt"))
        self.fail_with(support.USAGE, "inspect", "https://name:verysecret@host/x.zt", says="name or password")

    def test_a_pattern_that_looks_like_a_url_is_no_url(self):
        tensors = {"https://a": ("U8", [1], b"x"), "http://a?b": ("U8", [1], b"y")}
        source = self.safetensors("names.safetensors", tensors)
        plan = self.json("convert", source, "-n", "--json", "--include", "https?://a$")["plan"]
        self.assertEqual([row["name"] for row in plan], ["https://a"])
        plan = self.json("convert", source, "-n", "--json", "--include=http://a[?]b", "--rename", "s|http://a[?]b|c|")["plan"]
        self.assertEqual([row["name"] for row in plan], ["c"])
        self.succeed("extract", source, "http://a?b", "-o", self.path("one.safetensors"))
        self.assertEqual(list(make_safetensors.read(self.path("one.safetensors"))[0]), ["http://a?b"])

    def test_what_is_no_input(self):
        for url, says in (("ftp://host/x.zt", "https, http, s3 and hf"), ("gs://bucket/x", "storage.googleapis.com"), ("az://container/x", "SAS"), ("abfss://c@a/x", "SAS"), ("r2://b/x", "r2.cloudflarestorage.com"), ("file:///x", "name the path")):
            self.fail_with(support.UNSUPPORTED, "inspect", url, says=says)
        self.fail_with(support.USAGE, "inspect", self.server.origin + "/web/", says="folders are not listed")
        self.fail_with(support.UNSUPPORTED, "convert", self.file, "-o", self.server.url("x.zt"), says="nothing is written over http")


@unittest.skipUnless(shutil.which("nginx"), "nginx is not installed")
class Nginx(support.EndToEnd):
    """A server that is not ours."""

    def setUp(self):
        super().setUp()
        self.file = remote_server.big_file(self.path("big.safetensors"))
        for _ in range(3):  # another process may take the port before nginx does
            if self.listen():
                return
        errors = self.path("errors").read_text()
        self.assertIn("bind()", errors)
        self.skipTest("every port that was free was taken before nginx had it: " + errors)

    def listen(self):
        """Starts nginx on a port that is free; False where it ends."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        user = "user root;" if os.geteuid() == 0 else ""  # which its workers would give up
        self.put("nginx.conf", f"""{user} daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/errors;
events {{}}
http {{
  access_log {self.folder}/access; client_body_temp_path {self.folder}/a; proxy_temp_path {self.folder}/b;
  fastcgi_temp_path {self.folder}/c; uwsgi_temp_path {self.folder}/d; scgi_temp_path {self.folder}/e;
  server {{ listen 127.0.0.1:{port}; root {self.folder}; location /slow/ {{ alias {self.folder}/; limit_rate 4m; }} }}
}}""".encode())
        server = subprocess.Popen(["nginx", "-p", str(self.folder), "-c", str(self.path("nginx.conf"))], stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        self.origin = f"http://127.0.0.1:{port}/"
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if server.poll() is not None:
                return False
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return True
            time.sleep(0.02)
        self.fail("nginx does not listen")

    def test_ranges(self):
        self.succeed("convert", self.file, "-o", self.path("local.zt"))
        for place in ("", "slow/"):
            self.succeed("convert", self.origin + place + "big.safetensors", "-o", self.path("remote.zt"), "-f")
            self.assertEqual(self.path("remote.zt").read_bytes(), self.path("local.zt").read_bytes())
        self.succeed("verify", self.origin + "local.zt", "--against", self.file)
        self.assertNotIn(' 200 ', self.path("access").read_text())
        self.fail_with(support.IO, "inspect", self.origin + "none.zt", says="no such file")


class Library(support.EndToEnd):
    def test_the_program_starts_without_libcurl(self):
        needed = subprocess.run(["ldd", support.PROGRAM], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("curl", needed)

    def test_a_machine_without_libcurl(self):
        """A libcurl.so.4 that is none is found first: libcurl is looked for by that name."""
        for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):
            self.put(f"lib/{name}", b"no library")
        process = self.run_program("inspect", "https://127.0.0.1:9/x.zt", env={"LD_LIBRARY_PATH": str(self.path("lib"))})
        if b"libcurl4" not in process.stderr:
            self.skipTest("the loader passed over the file")
        self.assertEqual(process.returncode, support.IO)


if __name__ == "__main__":
    unittest.main()
