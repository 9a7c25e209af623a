"""s3:// as input and output: signatures, credentials, parts, publication, and what is left where a store fails."""
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
import unittest

import make_safetensors
import remote_server
import support
from remote_server import ACCESS, Answer, Change, SECRET, TOKEN

MIB = 1 << 20


class S3(remote_server.Remote):
    def setUp(self):
        super().setUp()
        self.store = self.server.store
        self.store.buckets.update({"in": {}, "out": {}})
        self.objects = self.store.buckets["out"]
        self.file = remote_server.big_file(self.path("big.safetensors"))
        self.want = self.convert(self.file, "local.zt")

    def put_object(self, name, path):
        self.store.buckets["in"][name] = (pathlib.Path(path).read_bytes(), '"etag"', {})
        return f"s3://in/{name}"

    def upload(self, *options, name="m.zt", given=None, env=None):
        size = [] if "--part-size" in options else ["--part-size", "5MiB"]
        return self.run_program("convert", given or self.file, "-o", f"s3://out/{name}", *size, *options, env=env)

    def content(self, name="m.zt"):
        return self.objects[name][0] if name in self.objects else None

    def nothing_left(self):
        self.assertEqual(self.store.uploads, {})

    def calls(self, method, query=""):
        return [request for request in self.server.requests if request.method == method and query in request.query]


class Source(S3):
    def test_objects(self):
        url = self.put_object("a b+c=d/модель.safetensors", self.file)
        self.assertEqual(self.convert(url, "remote.zt"), self.want)
        self.assertTrue(all("authorization" in request.headers for request in self.server.requests))

    def test_folders(self):
        tensors = {}
        for number in (1, 2):
            name = f"model-0000{number}-of-00002.safetensors"
            make_safetensors.write(self.path(name), {f"t{number}": ("F32", [2], bytes([number] * 8))})
            tensors[f"t{number}"] = name
        self.path("model.safetensors.index.json").write_text(json.dumps({"weight_map": tensors}))
        os.mkdir(self.path("folder"))
        for name in [*tensors.values(), "model.safetensors.index.json"]:
            os.rename(self.path(name), self.path(f"folder/{name}"))
            self.put_object(f"some/check point/{name}", self.path(f"folder/{name}"))
        self.put_object("some/check point/more/other.safetensors", self.file)
        self.put_object("some/check point/", "/dev/null")
        want = self.convert(self.path("folder"), "folder.zt", "--files", "none")
        for page in (1000, 2):
            self.store.page = page
            for url in ("s3://in/some/check point/", "s3://in/some/check point"):
                self.assertEqual(self.convert(url, "remote.zt", "-f", "--files", "none"), want)
        self.assertEqual(self.convert("s3://in/some/check point/model.safetensors.index.json", "remote.zt", "-f"), want)
        self.fail_with(support.USAGE, "convert", "s3://in/some/", "-o", self.path("x.zt"), says="no checkpoint")

    def test_refusals(self):
        url = self.put_object("m.safetensors", self.file)
        cases = (
            ({"AWS_SECRET_ACCESS_KEY": "wrong"}, url, "SignatureDoesNotMatch"),
            ({"AWS_ACCESS_KEY_ID": "wrong"}, url, "InvalidAccessKeyId"),
            ({}, "s3://in/none.safetensors", "no such object"),
            ({}, "s3://none/m.safetensors", "NoSuchBucket"),
            ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, url, "no credentials"))
        for environment, name, says in cases:
            with self.subTest(says):
                process = self.run_program("inspect", name, env=environment)
                self.assertEqual(process.returncode, support.IO, process.stderr)
                self.assertIn(says.encode(), process.stderr)
                self.assertNotIn(SECRET.encode(), process.stderr)
        for name in ("s3://", "s3:///x", "s3://a b/x", "s3://in/none/"):
            self.assertIn(self.run_program("inspect", name).returncode, (support.USAGE, support.IO), name)

    def test_an_endpoint_of_another_scheme(self):
        process = self.run_program("inspect", "s3://in/m.safetensors", env={"AWS_ENDPOINT_URL": "ftp://store.example"})
        self.assertEqual(process.returncode, support.IO, process.stderr)
        self.assertNotIn(b"over http", process.stderr)

    def test_public_buckets(self):
        url = self.put_object("m.safetensors", self.file)
        self.store.public = True
        process = self.run_program("convert", url, "-o", self.path("x.zt"), "--no-sign-request", env={"AWS_ACCESS_KEY_ID": ""})
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.assertTrue(all("authorization" not in request.headers for request in self.server.requests))

    def test_a_shard_that_is_refused(self):
        """What would help is said of it, too, and not of the root alone."""
        self.succeed("convert", self.file, "-o", self.path("m.zt"), "--spec", "2.0", "--shards", 2)
        urls = [self.put_object(path.name, path) for path in sorted(self.folder.glob("m*.zt"))]
        for refused in ("/m.zt", "00002.zt"):
            self.server.fault = lambda request, refused=refused: remote_server.error(403, "AccessDenied") if request.path.endswith(refused) else None
            self.fail_with(support.IO, "convert", urls[-1], "-o", self.path("x.zt"), says=["AccessDenied", "--no-sign-request"])

    def test_another_region(self):
        url = self.put_object("m.safetensors", self.file)
        self.store.region = "eu-central-1"
        self.assertEqual(self.convert(url, "remote.zt"), self.want)
        self.environment["AWS_REGION"] = "eu-central-1"
        self.server.requests.clear()
        self.assertEqual(self.convert(url, "remote.zt", "-f"), self.want)
        self.assertTrue(all("/eu-central-1/" in request.headers["authorization"] for request in self.server.requests))


class CredentialTests(S3):
    def setUp(self):
        super().setUp()
        self.url = self.put_object("m.safetensors", self.file)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self.environment[name] = ""

    def reads(self, **environment):
        process = self.run_program("inspect", "-v", "--json", self.url, env=environment)
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        for secret in (SECRET, TOKEN, remote_server.HUB_TOKEN):
            self.assertNotIn(secret.encode(), process.stdout + process.stderr)

    def test_profiles(self):
        credentials = self.put("credentials", f"[default]\naws_access_key_id=x\naws_secret_access_key=y\n\n[ work ]\naws_access_key_id = {ACCESS}\n"
                               f"aws_secret_access_key = {SECRET}\naws_session_token={TOKEN}\n".encode())
        config = self.put("config", f"# comment\n[profile work]\nregion = eu-west-1\nendpoint_url = {self.server.origin}/\ns3 =\n  addressing_style = path\n".encode())
        self.store.region, self.store.token = "eu-west-1", TOKEN
        self.reads(AWS_SHARED_CREDENTIALS_FILE=str(credentials), AWS_CONFIG_FILE=str(config), AWS_PROFILE="work", AWS_ENDPOINT_URL="")

    def test_a_process(self):
        document = ('{"Version": 1, "AccessKeyId": "%s", "SecretAccessKey": "%s", "SessionToken": "%s", "Expiration": "%s"}'
                    % (ACCESS, SECRET, TOKEN, remote_server.stamp(3600)))
        self.put("document.json", document.encode())
        config = self.put("config", f"[default]\ncredential_process = cat {self.path('document.json')}\n".encode())
        self.store.token = TOKEN
        self.reads(AWS_CONFIG_FILE=str(config))
        config.write_text("[default]\ncredential_process = exit 3\n")
        self.fail_with_environment({"AWS_CONFIG_FILE": str(config)}, "status 3")
        config.write_text("[default]\ncredential_process = echo nonsense\n")
        self.fail_with_environment({"AWS_CONFIG_FILE": str(config)}, "JSON")

    def test_no_proxy_is_told_of_credentials(self):
        """The container's are asked of its own address, whatever proxy the rest goes through."""
        document = json.dumps({"AccessKeyId": ACCESS, "SecretAccessKey": SECRET, "Expiration": remote_server.stamp(3600)})
        self.server.fault = lambda request: Answer(200, {}, document.encode()) if request.path == "/credentials" else None
        with remote_server.Server() as proxy:
            self.run_program("inspect", self.url, env={
                "http_proxy": proxy.origin, "no_proxy": "", "AWS_ENDPOINT_URL": "http://store.example", "AWS_CONTAINER_CREDENTIALS_FULL_URI": self.server.origin + "/credentials",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN": "ticket"})
            self.assertEqual([request.headers["authorization"] for request in self.server.requests], ["ticket"])
            self.assertGreater(len(proxy.requests), 0)
            self.assertTrue(all(request.path.endswith("/in/m.safetensors") for request in proxy.requests))

    def test_what_would_be_a_header_of_its_own(self):
        """Line breaks in tokens and names of keys; names with a colon, which libcurl once took for the end."""
        keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
        before = len(self.server.requests)
        for name, header in (("AWS_SESSION_TOKEN", "x-amz-security-token"), ("AWS_ACCESS_KEY_ID", "Authorization")):
            for more in ("\r\nX-Evil: 1", "\n", "\x01", "\x7f"):
                self.fail_with_environment({**keys, name: keys[name] + more}, f"the value for the header {header} has a line break")
        self.assertEqual(len(self.server.requests), before)
        self.store.access = "a:b:c"
        self.reads(AWS_ACCESS_KEY_ID="a:b:c", AWS_SECRET_ACCESS_KEY=SECRET)

    def fail_with_environment(self, environment, says):
        process = self.run_program("inspect", self.url, env=environment)
        self.assertIn(process.returncode, (support.IO, support.USAGE))
        self.assertIn(says.encode(), process.stderr)

    def document(self):
        return ('{"AccessKeyId": "%s", "SecretAccessKey": "%s", "Token": "%s", "Expiration": "%s"}' % (ACCESS, SECRET, TOKEN, remote_server.stamp(3600))).encode()

    def test_a_container(self):
        self.store.token = TOKEN

        def answer(request):
            if request.path == "/credentials/x":
                return Answer(200, {}, self.document()) if request.headers.get("authorization") == "Bearer abc" else Answer(401)
            return None

        self.server.fault = answer
        token = self.put("token", b"Bearer abc\n")
        self.reads(AWS_CONTAINER_CREDENTIALS_FULL_URI=self.server.origin + "/credentials/x", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(token))
        self.fail_with_environment({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/x"}, "another machine")

    def test_an_instance(self):
        self.store.token = TOKEN
        roles = "/latest/meta-data/iam/security-credentials/"

        def answer(request):
            if request.path == "/latest/api/token":
                return Answer(200, {}, b"ticket") if request.method == "PUT" else Answer(405)
            if request.path.startswith(roles):
                if request.headers.get("x-aws-ec2-metadata-token") != "ticket":
                    return Answer(401)
                return Answer(200, {}, b"role" if request.path == roles else self.document())
            return None

        self.server.fault = answer
        self.reads(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=self.server.origin)

    def test_credentials_that_expire(self):
        """The process gives others by then."""
        counter = self.path("counter")
        script = self.put("give.sh", f"""echo x >> {counter}
token=$([ $(wc -l < {counter}) -gt 1 ] && echo new || echo old)
echo '{{"AccessKeyId": "{ACCESS}", "SecretAccessKey": "{SECRET}", "SessionToken": "'$token'"}}'
""".encode())
        config = self.put("config", f"[default]\ncredential_process = sh {script}\n".encode())
        self.store.token = "new"
        self.reads(AWS_CONFIG_FILE=str(config))
        self.assertEqual(counter.read_text(), "x\nx\n")


class Sink(S3):
    def test_parts(self):
        for threads in (1, 2, 8):
            self.server.requests.clear()
            process = self.upload("-f", "-T", threads)
            self.assertEqual(process.returncode, support.DONE, process.stderr)
            self.assertEqual(self.content(), self.want)
            sizes = [len(request.body) for request in self.calls("PUT", "partNumber")]
            self.assertEqual(sorted(sizes, reverse=True), [5 * MIB] * (len(self.want) // (5 * MIB)) + [len(self.want) % (5 * MIB)])
            self.nothing_left()
        self.assertEqual(self.run_program("verify", "s3://out/m.zt", "--against", self.file).returncode, support.DONE)

    def test_small_objects_are_one_request(self):
        small = self.put_object("s.safetensors", support.DATA / "safetensors/zoo.safetensors")
        self.server.requests.clear()
        process = self.run_program("convert", small, "-o", "s3://out/s.zt")
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.assertEqual([request.query for request in self.calls("PUT")], [""])
        self.assertEqual(self.calls("POST"), [])
        self.convert(support.DATA / "safetensors/zoo.safetensors", "zoo.zt")
        self.assertEqual(self.content("s.zt"), self.path("zoo.zt").read_bytes())

    def test_every_way(self):
        """s3 to s3, a pipe to s3, compressed, other versions, extract to s3: the bytes of the local run."""
        url = self.put_object("m.safetensors", self.file)
        for options in (["--zstd=1"], ["--zstd=planes"], ["--spec", "2.0"], ["--spec", "0.1"], ["--dtype", "bf16", "--on-overflow", "inf"]):
            want = self.convert(self.file, "want.zt", "-f", *options)
            process = self.upload("-f", *options, given=url)
            self.assertEqual(process.returncode, support.DONE, process.stderr)
            self.assertEqual(self.content(), want)
        process = self.run_program("convert", "-", "-o", "s3://out/pipe.zt", "--part-size", "5MiB", stdin=self.file.read_bytes())
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.assertEqual(self.content("pipe.zt"), self.want)
        process = self.run_program("extract", "s3://out/pipe.zt", "-o", "s3://out/back.safetensors")
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.succeed("extract", self.path("local.zt"), "-o", self.path("back.safetensors"))
        self.assertEqual(self.content("back.safetensors"), self.path("back.safetensors").read_bytes())

    def test_shards(self):
        """As in a folder: what is there is kept, whatever was lost is written again, and the index is one input."""
        url = self.put_object("m.safetensors", self.file)
        self.succeed("convert", self.file, "-o", self.path("shards.zt"), "--shards", "3")
        options = ["--shards", "3", "--part-size", "5MiB"]
        process = self.upload(*options, name="shards.zt")
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        names = sorted(name for name in self.entries() if name.startswith("shards"))
        self.assertEqual(len(names), 7)
        for name in names:
            self.assertEqual(self.content(name), self.path(name).read_bytes(), name)
        del self.objects["shards-00002-of-00003.zt"]
        process = self.upload(*options, name="shards.zt")
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.assertIn(b"1 shard written, 2 kept", process.stderr)
        self.assertEqual(self.run_program("verify", "s3://out/shards.zt.index.json").returncode, support.DONE)
        self.assertEqual(self.run_program("diff", "s3://out/", self.file).returncode, support.DONE)
        # Tasks of their own, from a bucket to a bucket, and joined.
        for number in (3, 1, 2):
            process = self.upload("--shard", f"{number}/3", name="tasks.zt", given=url)
            self.assertEqual(process.returncode, support.DONE, process.stderr)
        shards = [f"s3://out/tasks-0000{number}-of-00003.zt" for number in (1, 2, 3)]
        process = self.run_program("join", *shards, "-o", "s3://out/tasks.zt")
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        # A shell leaves a pattern of a bucket as it is: scripts/slurm/join.sbatch works there, too.
        of_all = self.content("tasks.zt.index.json")
        del self.objects["tasks.zt.index.json"], self.objects["tasks-00002-of-00003.zt"]
        process = self.run_program("join", "--missing", "s3://out/tasks-*-of-*.zt")
        self.assertEqual((process.returncode, process.stdout), (support.DONE, b"2\n"), process.stderr)
        self.upload("--shard", "2/3", name="tasks.zt", given=url)
        process = subprocess.run([support.HERE.parents[1] / "scripts/slurm/join.sbatch", "3", "s3://out/tasks.zt"], capture_output=True,
                                 check=False, timeout=support.PATIENCE,
                                 env={**os.environ, **self.environment, "ZTSTREAM": support.PROGRAM})
        self.assertEqual((process.returncode, self.content("tasks.zt.index.json")), (support.DONE, of_all), process.stderr)
        process = self.run_program("join", "s3://out/other-*-of-00003.zt", "-o", "s3://out/other.zt")
        self.assertEqual(process.returncode, support.USAGE)
        self.assertIn(b"s3://out/other-*-of-00003.zt: no file matches this pattern", process.stderr)
        self.assertEqual(self.run_program("diff", "s3://out/tasks.zt.index.json", self.file).returncode, support.DONE)

    def test_an_object_that_exists(self):
        self.objects["m.zt"] = (b"older", '"x"', {})
        process = self.upload()
        self.assertEqual(process.returncode, support.EXISTS, process.stderr)
        self.assertIn(b"m.zt: the output exists already; use -f to replace it", process.stderr)
        self.assertEqual((self.content(), self.calls("PUT"), self.calls("POST")), (b"older", [], []))
        self.assertEqual(self.upload("-f").returncode, support.DONE)
        self.assertEqual(self.content(), self.want)

    def strike(self, method, query, fault, times=1):
        left = [times]

        def planned(request):
            if request.method != method or query not in request.query or left[0] == 0:
                return None
            left[0] -= 1
            return fault(request)
        self.server.fault = planned

    def test_a_refusal_from_the_right_region(self):
        """A HEAD of an absent object is refused without the right to list. That teaches no other region."""
        self.store.region = "eu-central-1"
        self.server.fault = lambda request: Answer(403, {"x-amz-bucket-region": "eu-central-1"}) if (
            request.method == "HEAD" and "m.zt" not in self.objects) else None
        process = self.upload(env={"AWS_REGION": "eu-central-1"})
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.assertEqual(self.content(), self.want)
        self.assertTrue(all("/eu-central-1/" in request.headers["authorization"] for request in self.server.requests))
        # What is no region's name would become part of a host's.
        self.server.fault = lambda request: Answer(403, {"x-amz-bucket-region": "host.example/x"})
        self.server.requests.clear()
        process = self.run_program("inspect", "s3://out/m.zt")
        self.assertEqual((process.returncode, len(self.server.requests)), (support.IO, 1), process.stderr)

    def test_a_completion_that_never_says_what_came_of_it(self):
        self.strike("POST", "uploadId", lambda _: Answer(200), -1)
        process = self.upload(name="it's.zt")
        self.assertEqual(process.returncode, support.IO, process.stderr)
        self.assertIsNone(self.content("it's.zt"))
        upload, = self.store.uploads
        self.assertIn(b"is not known", process.stderr)
        command = process.stderr.decode().split("remove them with: ")[1]
        self.assertEqual(shlex.split(command), ["aws", "s3api", "abort-multipart-upload", "--bucket", "out", "--key", "it's.zt", "--upload-id", upload])

    def test_an_abort_that_fails_is_told(self):
        denied = remote_server.error(403, "AccessDenied")
        for answer in (denied, Answer(200, {}, b"<!doctype html><HTML><body>Sign in</body></HTML>")):
            def fault(request, answer=answer):
                return answer if request.method == "DELETE" else denied if "partNumber=2" in request.query else None
            self.server.fault = fault
            self.store.uploads.clear()
            process = self.upload()
            self.assertEqual(process.returncode, support.IO)
            upload, = self.store.uploads
            self.assertIn(f"aws s3api abort-multipart-upload --bucket out --key 'm.zt' --upload-id '{upload}'".encode(), process.stderr)

    def test_a_bad_input_leaves_nothing(self):
        broken = bytearray(self.convert(self.file, "x.zt", "--zstd=1", "--min-gain=-100"))
        broken[6 * MIB] ^= 1
        self.put("broken.zt", bytes(broken))
        process = self.upload(given=self.path("broken.zt"))
        self.assertEqual(process.returncode, support.INVALID, process.stderr)
        self.nothing_left()
        self.assertIsNone(self.content())

    def test_other_stores(self):
        """R2's equal parts; checksums and conditions that a store does not know."""
        self.store.equal_parts = True
        self.assertEqual(self.upload().returncode, support.DONE)
        self.store.checksums = False
        self.assertEqual(self.upload("-f").returncode, support.DONE)
        self.assertFalse([r for r in self.server.requests if any(name.startswith("x-amz-checksum") for name in r.headers)])
        self.store.conditions = False
        for options in ([], ["--part-size", "1GiB"]):
            self.objects.clear()
            process = self.upload(*options)
            self.assertEqual(process.returncode, support.DONE, process.stderr)
            self.assertIn(b"If-None-Match", process.stderr)
            self.assertEqual(self.content(), self.want)
        self.assertEqual(self.upload().returncode, support.EXISTS)

    def test_checksums(self):
        process = self.upload(env={"AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported"})
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        parts = self.calls("PUT", "partNumber")
        self.assertTrue(all("x-amz-checksum-crc32c" in request.headers for request in parts))
        begin, = self.calls("POST", "uploads")
        self.assertEqual((begin.headers["x-amz-checksum-algorithm"], begin.headers["x-amz-checksum-type"]), ("CRC32C", "COMPOSITE"))
        process = self.upload("--part-size", "1GiB", name="whole.zt", env={"AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported"})
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        self.assertIn("x-amz-checksum-crc32c", self.calls("PUT")[-1].headers)

    def test_what_the_store_has_is_read_back(self):
        def spoil(request):
            if request.method == "POST" and "uploadId" in request.query:
                def change(answer):
                    content, etag, meta = self.objects["m.zt"]
                    self.objects["m.zt"] = (content[:-1] + b"x", etag, meta)
                return Change(change)
            return None
        self.server.fault = spoil
        process = self.upload()
        self.assertEqual(process.returncode, support.INVALID, process.stderr)
        self.assertIn(b"other bytes than were sent", process.stderr)

    def test_parts_of_one_size(self):
        """As some stores want them: of what is converted, of a shard, and of what is extracted, whose sizes are known."""
        self.store.equal_parts = True
        large = remote_server.big_file(self.path("large.safetensors"), tensors=30)
        for words in (["convert", large, "-o", "s3://out/a.zt"], ["convert", large, "--shards", "1", "-o", "s3://out/b.zt"],
                      ["extract", large, "-o", "s3://out/c.safetensors"]):
            with self.subTest(words[0]):
                self.objects.clear()
                self.server.requests.clear()
                self.succeed(*words)
                parts = {request.arguments["partNumber"]: len(request.body) for request in self.calls("PUT", "partNumber")}
                self.assertEqual([parts["1"], parts["2"], len(parts)], [16 * MIB, 16 * MIB, 3])

    def test_signals(self):
        """While parts are sent; and while the last of them takes longer than a run may after a signal."""
        self.at_once(Sink.signalled, [(signal.SIGINT, 0.3, 1.5), (signal.SIGTERM, 0.6, 1.5), (signal.SIGINT, 0.1, 8)])

    def signalled(self, case):
        number, wait, pause = case
        large = remote_server.big_file(self.path("large.safetensors"), tensors=30)
        self.server.fault = lambda request: time.sleep(pause) if "partNumber" in request.query else None
        started = subprocess.Popen([support.PROGRAM, "convert", large, "-o", "s3://out/m.zt", "--part-size", "5MiB"],
                                   env=dict(os.environ, **self.environment), stderr=subprocess.PIPE)
        until = time.monotonic() + 20
        while not self.store.uploads and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(wait)
        started.send_signal(number)
        _, errors = started.communicate(timeout=60)
        self.assertEqual(support.shell_status(started), support.INTERRUPTED, (case, errors))
        self.nothing_left()
        self.assertIsNone(self.content(), case)

    def test_a_signal_while_it_is_published(self):
        """The store has done it, and its answer comes after the signal: the object is the run's output. Or the answer does not come."""
        ways = (([], lambda request: request.method == "PUT"),
                (["--part-size", "5MiB"], lambda request: request.method == "POST" and "uploadId" in request.query))
        endings = ((signal.SIGINT, 4, support.DONE), (signal.SIGTERM, 20, support.INTERRUPTED))
        self.at_once(Sink.published_late, list(itertools.product(ways, endings)))

    def published_late(self, case):
        (options, publishes), (number, pause, status) = case
        late, asked = threading.Event(), threading.Event()

        def answer_late(answer):
            asked.set()
            late.wait(pause)

        self.server.fault = lambda request: Change(answer_late) if publishes(request) else None
        started = subprocess.Popen([support.PROGRAM, "convert", self.file, "-f", "-o", "s3://out/m.zt", *options],
                                   env=dict(os.environ, **self.environment), stderr=subprocess.PIPE)
        self.assertTrue(asked.wait(20), case)
        started.send_signal(number)
        _, errors = started.communicate(timeout=60)
        late.set()
        self.assertEqual(support.shell_status(started), status, (case, errors))
        self.assertEqual(self.content(), self.want, case)
        if status == support.INTERRUPTED:
            self.assertIn(b"whether it was published is not known; look at the object", errors, case)
            self.assertEqual(b"abort-multipart-upload" in errors, bool(options), case)

    def test_a_signal_while_the_store_refuses_a_condition(self):
        """The warning waits until the signal's thread has let go of the lines."""
        asked = threading.Event()

        def refuse(request):
            if request.method != "PUT" or "if-none-match" not in {name.lower() for name in request.headers}:
                return None
            asked.set()
            time.sleep(4)
            return Answer(501, {}, b"<Error><Code>NotImplemented</Code></Error>")

        self.server.fault = refuse
        started = subprocess.Popen([support.PROGRAM, "convert", self.file, "-o", "s3://out/m.zt"],
                                   env=dict(os.environ, **self.environment), stderr=subprocess.PIPE)
        self.assertTrue(asked.wait(20))
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=support.PATIENCE)
        self.assertEqual(support.shell_status(started), support.DONE, errors)  # waiting in vain, it would be 130
        self.assertIn(b"does not know If-None-Match", errors)
        self.assertEqual(self.content(), self.want)

    def test_a_signal_while_the_upload_begins(self):
        """The store's answer, which has its id, comes after the signal."""
        self.server.fault = lambda request: time.sleep(1) if "uploads" in request.query else None
        started = subprocess.Popen([support.PROGRAM, "convert", self.file, "-o", "s3://out/m.zt", "--part-size", "5MiB"],
                                   env=dict(os.environ, **self.environment), stderr=subprocess.PIPE)
        until = time.monotonic() + 20
        while not self.calls("POST", "uploads") and time.monotonic() < until:
            time.sleep(0.02)
        started.send_signal(signal.SIGTERM)
        _, errors = started.communicate(timeout=60)
        self.assertEqual(started.returncode, support.INTERRUPTED, errors)
        self.assertEqual(len(self.store.aborted), 1)
        self.nothing_left()

    @unittest.skipUnless(shutil.which("strace"), "strace is not installed")
    def test_no_file_is_written(self):
        """Nor opened to be, renamed, linked or removed, from the first system call to the last."""
        if self.sanitized():
            self.skipTest("sanitizers do not run under strace")
        url = self.put_object("m.safetensors", self.file)
        process = subprocess.run(["strace", "-f", "-qq", "-o", self.path("calls"), "-e", "trace=file,ftruncate,memfd_create", support.PROGRAM,
                                  "convert", url, "-o", "s3://out/m.zt", "--part-size", "5MiB"],
                                 env=dict(os.environ, **self.environment), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        calls = self.path("calls").read_text().splitlines()
        self.assertGreater(len(calls), 10)
        self.assertEqual([line for line in calls if re.search(r"O_CREAT|O_TMPFILE|O_WRONLY|O_RDWR|(creat|rename|link|unlink|mkdir|mknod|truncate|memfd)\w*\(", line)
                          and "readlink" not in line], [])
        self.assertEqual(self.content(), self.want)

    def test_memory(self):
        """96 MiB; five parts more where an object is written. 180 MB pass, which is more than any of it."""
        if self.sanitized():
            self.skipTest("sanitizers take memory of their own")
        large = remote_server.big_file(self.path("large.safetensors"), tensors=45, side=1000)
        url = self.put_object("large.safetensors", large)
        for given, output, options, most in ((url, "/dev/null", [], 96), (self.serve("large.safetensors", large), "/dev/null", ["--zstd=planes"], 96),
                                             (url, "s3://out/large.zt", [], 96 + 5 * 16), (large, "s3://out/l.zt", ["--part-size", "8MiB"], 96 + 5 * 8)):
            with self.subTest(given=given, output=output):
                status, _, memory = self.costs("convert", "-q", "-f", "-T", 2, given, "-o", output, *options, env=self.environment)
                self.assertEqual(status, support.DONE)
                self.assertLess(memory, most)
                self.objects.clear()

    def test_parts_that_take_more_memory_are_told_before(self):
        """200 GB, of which nothing is read: the plan tells the size of the parts."""
        side = 1 << 18
        text = json.dumps({"t": {"dtype": "F32", "shape": [side, side - 4096], "data_offsets": [0, 4 * side * (side - 4096)]}}).encode()
        header = len(text).to_bytes(8, "little") + text
        with open(self.path("holes.safetensors"), "wb") as file:
            file.write(header)
            file.truncate(len(header) + 4 * side * (side - 4096))
        self.server.fault = lambda request: remote_server.error(403, "AccessDenied") if request.method == "POST" else None
        process = self.run_program("convert", self.path("holes.safetensors"), "-o", "s3://out/h.zt")
        self.assertEqual(process.returncode, support.IO, process.stderr)
        self.assertRegex(process.stderr, rb"in parts of 2\d+ MiB, which take 1\d\d MiB of memory|in parts of 3\d MiB")

    def test_too_many_parts(self):
        """Said before the first of them."""
        text = json.dumps({"x": {"dtype": "U8", "shape": [60 << 30], "data_offsets": [0, 60 << 30]}}).encode()
        with open(self.path("holes.safetensors"), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + (60 << 30))
        process = self.run_program("convert", self.path("holes.safetensors"), "-o", "s3://out/h.zt", "--part-size", "5MiB", "--files", "none")
        self.assertEqual(process.returncode, support.USAGE, process.stderr)
        self.assertIn(b"more than 10000 parts of the size that was given; it takes 7MiB or more; --part-size sets its size", process.stderr)
        self.assertEqual([request.method for request in self.server.requests], ["HEAD"])

    def test_parts_that_are_too_small(self):
        for size in ("1MiB", "5119KiB", "6GiB"):
            process = self.upload("--part-size", size)
            self.assertEqual(process.returncode, support.USAGE, process.stderr)
            self.assertIn(b"from 5MiB to 5GiB; --part-size sets its size", process.stderr)
        self.assertEqual(self.server.requests, [])
        self.store.least_part = 8 << 20
        process = self.upload("--part-size", "5MiB")
        self.assertEqual(process.returncode, support.IO, process.stderr)
        self.assertIn(b"EntityTooSmall", process.stderr)
        self.nothing_left()


class Kills(S3):
    """kill -9 at random moments of uploads and shards, in turn, and the same run again. ZT_KILLS sets how many, ZT_SEED the moments."""

    def start(self, *words):
        return subprocess.Popen([support.PROGRAM, "convert", "-v", *words], env=dict(os.environ, **self.environment), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def finish(self, words):
        started = self.start(*words)
        self.no_secret(started.communicate()[0])
        self.assertEqual(started.returncode, support.DONE)

    def test_kills_at_random_moments(self):
        url, moments = self.put_object("m.safetensors", self.file), random.Random(int(os.environ.get("ZT_SEED", "1")))
        self.environment["AWS_SESSION_TOKEN"] = self.store.token = TOKEN
        ways = [(url, "-o", "s3://out/m.zt", "--part-size", "5MiB", "-f"), (url, "-o", "s3://out/s.zt", "--part-size", "5MiB", "--shards", "3"),
                (url, "-o", "s3://out/m.zt", "-f", "--zstd=1", "--min-gain=-100"), (url, "-o", "s3://out/s.zt", "--shards", "3", "--zstd=planes")]
        want, took = {}, {}
        for words in ways:
            begin = time.monotonic()
            self.finish(words)
            took[words] = time.monotonic() - begin
            want[words] = {name: content for name, (content, _, _) in self.objects.items()}
            self.objects.clear()
        found = {"killed": 0, "absent": 0, "older": 0, "complete": 0, "whole shards": 0, "parts left": 0}
        for number in range(int(os.environ.get("ZT_KILLS", "16"))):
            words, older = ways[number % len(ways)], number % 3 == 0
            if older and "-f" in words:
                self.objects["m.zt"] = (support.OLD, '"old"', {})
            started = self.start(*words)
            time.sleep(moments.uniform(0, took[words]))
            try:
                self.no_secret(pathlib.Path(f"/proc/{started.pid}/cmdline").read_bytes())
            except OSError:
                pass
            started.kill()
            self.no_secret(started.communicate()[0])
            found["killed"] += started.returncode == -signal.SIGKILL
            time.sleep(0.1)  # the server ends what it was about
            for name, (content, _, _) in self.objects.items():
                if content == support.OLD:
                    found["older"] += 1
                    continue
                self.assertEqual(content, want[words][name], f"{name} is partial")
                found["whole shards" if "--shards" in words else "complete"] += 1
            found["absent"] += "-f" in words and "m.zt" not in self.objects
            found["parts left"] += bool(self.store.uploads)
            self.finish(words)
            self.assertEqual({name: content for name, (content, _, _) in self.objects.items()}, want[words])
            self.objects.clear()
            self.store.uploads.clear()
        print(f"{number + 1} runs: {found}; each again, the same objects")


if __name__ == "__main__":
    unittest.main()
