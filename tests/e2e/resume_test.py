"""Uploads that ended early and are continued (--resume), and headers that buckets demand (--header)."""
import hashlib
import os
import re
import random
import shlex
import signal
import subprocess
import time
import unittest

import remote_server
import s3_test
import support
from remote_server import Answer, Change, Drop, crc32c_field, error

MIB = 1 << 20
PART = 5 * MIB


class Resume(s3_test.S3):
    def setUp(self):
        super().setUp()
        large = remote_server.big_file(self.path("large.safetensors"), tensors=15)  # of five parts
        self.url = self.put_object("m.safetensors", large)
        self.want = self.convert(large, "large.zt")
        self.count = -(-len(self.want) // PART)
        self.environment["ZTSTREAM_RETRY_SECONDS"] = "5"

    def resume(self, *options, status=support.DONE, env=None):
        size = [] if "--part-size" in options else ["--part-size", "5MiB"]
        done = self.run_program("convert", self.url, "-o", "s3://out/m.zt", *size, "--resume", *options, env=env)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr.decode()

    def sent(self):
        """The numbers of the parts that came since this was asked, whole."""
        numbers = sorted(int(request.arguments["partNumber"]) for request in self.calls("PUT", "partNumber"))
        self.server.requests.clear()
        return numbers

    def whole(self):
        self.assertEqual(self.content(), self.want)
        self.nothing_left()
        self.objects.clear()

    def end_early(self, refused=4, env=None):
        """A run whose part `refused` is denied when those before it are there. Returns the message."""
        def fault(request):
            if f"partNumber={refused}&" not in request.query:
                return None
            until = time.monotonic() + 20
            while sum(map(len, (upload["parts"] for upload in self.store.uploads.values()))) < refused - 1 and time.monotonic() < until:
                time.sleep(0.01)
            return error(403, "AccessDenied")
        self.server.fault = fault
        said = self.resume(status=support.IO, env=env)
        self.server.fault = None
        self.assertEqual(len(self.store.uploads), 1, said)
        self.assertIsNone(self.content())
        (self.upload_id, self.earlier), = self.store.uploads.items()
        self.earlier["parts"].pop(refused, None)
        self.server.requests.clear()
        return said

    def missing(self):
        return [number for number in range(1, self.count + 1) if number not in self.earlier["parts"]]

    def test_what_is_missing_is_sent(self):
        for env in ({}, {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported"}):
            for page in (1000, 1):
                said = self.end_early(env=env)
                self.assertIn("the parts that were sent are kept, which costs money: the same run goes on after them", said)
                words = shlex.split(said.split("remove them with: ")[1].splitlines()[0])
                self.assertEqual(words, ["aws", "s3api", "abort-multipart-upload", "--bucket", "out", "--key", "m.zt", "--upload-id", self.upload_id])
                self.store.page, missing = page, self.missing()
                self.assertIn(1, self.earlier["parts"])
                self.resume(env=env)
                self.assertEqual(self.sent(), missing)
                self.whole()
                self.assertEqual(self.store.completed[-1], self.upload_id)

    def test_the_command_names_the_store_and_who_asks(self):
        """As the options of the run do; the environment says it to either program."""
        endpoint = self.environment.pop("AWS_ENDPOINT_URL")
        self.put("config", f"[profile it's]\naws_access_key_id={remote_server.ACCESS}\naws_secret_access_key={remote_server.SECRET}\n".encode())
        options = ["--endpoint-url", endpoint, "--profile", "it's", "--region", "us-east-1"]
        self.server.fault = lambda request: error(403, "AccessDenied") if "partNumber=2&" in request.query else None
        said = self.resume(*options, status=support.IO, env={"AWS_CONFIG_FILE": str(self.path("config"))})
        words = shlex.split(said.split("remove them with: ")[1].splitlines()[0])
        self.assertEqual(words[-6:], options)

    def test_what_is_said_is_so(self):
        """That the same run goes on, where it does; that one with -f does, once the object exists; nothing once the upload is gone."""
        def exists(request):
            if request.method == "POST" and "uploadId" in request.query:
                self.objects["m.zt"] = (b"other", '"other"', {})
        self.server.fault = exists
        said = self.resume(status=support.EXISTS)
        self.assertIn("a run that replaces the object goes on after them", said)
        self.assertNotIn("the same run", said)
        self.server.fault = None
        self.sent()
        self.resume("-f")
        self.assertEqual(self.sent(), [])
        self.whole()

        def gone(request):
            if "partNumber=5&" in request.query:
                self.store.uploads.clear()
        self.server.fault = gone
        self.assertNotIn("remove them", self.resume(status=support.IO))

    def test_a_small_output(self):
        """It is one request, and what an earlier run left is named."""
        self.end_early()
        small = self.put_object("s.safetensors", support.DATA / "safetensors/zoo.safetensors")
        done = self.run_program("convert", small, "-o", "s3://out/m.zt", "--resume")
        self.assertEqual(done.returncode, support.DONE, done.stderr)
        said = done.stderr.decode()
        self.assertIn("s3://out/m.zt: parts of an earlier upload of it are left, which cost money; remove them with: aws", said)
        self.assertIn(self.upload_id, said)
        self.assertEqual(len(self.store.uploads), 1)
        self.store.uploads.clear()

    def test_a_run_without_it_begins_anew(self):
        self.end_early()
        self.assertEqual(self.upload(given=self.url).returncode, support.DONE)
        self.assertEqual(len(self.store.uploads), 1)
        self.assertNotIn(self.upload_id, self.store.completed)

    def test_parts_that_differ(self):
        """From the first on all are sent: of another content, another size, with an ETag that says nothing, or a checksum."""
        md5 = lambda content: f'"{hashlib.md5(content).hexdigest()}"'
        other = bytes(PART)

        def all_parts(*of):
            self.end_early()
            sums = bool(of and of[2])
            self.earlier["algorithm"] = "<ChecksumAlgorithm>CRC32C</ChecksumAlgorithm>" * sums
            for number in range(1, self.count + 1):
                content = self.want[(number - 1) * PART:number * PART]
                self.earlier["parts"][number] = (content, md5(content), crc32c_field(content) if sums else None)
            self.earlier["parts"][3] = of or self.earlier["parts"][3]
        behind = list(range(3, self.count + 1))
        for part, sent in (((), []), ((other, md5(other), None), behind), ((other[1:], md5(other[1:]), None), behind),
                           ((self.want[2 * PART:3 * PART], '"aws-kms"', None), behind), ((other, md5(other), crc32c_field(other)), behind),
                           ((self.want[2 * PART:3 * PART], '"aws-kms"', crc32c_field(self.want[2 * PART:3 * PART])), [])):
            all_parts(*part)
            self.resume()
            self.assertEqual(self.sent(), sent, part[1:])
            self.whole()
        all_parts()
        self.resume("--part-size", "6MiB")
        self.assertEqual(self.sent(), list(range(1, -(-len(self.want) // (6 * MIB)) + 1)))
        self.whole()

    def test_which_upload_is_continued(self):
        """The last of this very object; none of another one, and a new one where there is none."""
        self.end_early()
        self.store.uploads["older"] = dict(self.earlier, parts={})
        self.store.uploads = {name: self.store.uploads[name] for name in ("older", self.upload_id)}
        for number, key in enumerate(("m.zt2", "m.z", "m.zt/x")):
            self.store.uploads[f"other{number}"] = dict(self.earlier, key=key)
        missing = self.missing()
        self.store.page = 1  # the last is on the last page
        self.resume()
        self.store.page = 1000
        self.assertEqual(self.sent(), missing)
        self.assertEqual(self.store.completed, [self.upload_id])
        self.store.uploads.clear()
        self.objects.clear()
        self.resume()
        self.assertEqual(self.sent(), list(range(1, self.count + 1)))
        self.whole()

    def test_completion_is_lost(self):
        """Whose object is there is known by the digests of its parts; or it is not known."""
        complete = lambda request: request.method == "POST" and "uploadId" in request.query
        for fault, before, status in ((Drop(), None, support.DONE), (Answer(drop=True), None, support.DONE), (Answer(200), None, support.DONE),
                                      (Answer(drop=True), b"another", support.DONE), (Answer(drop=True), self.want, support.IO)):
            self.end_early()
            if before:
                self.objects["m.zt"] = (before, '"other"', {})
            left = iter([fault])
            self.server.fault = lambda request: next(left, None) if complete(request) else None
            said = self.resume(*["-f"] * bool(before), status=status)
            self.server.fault = None
            if status == support.DONE:
                self.whole()
            else:
                self.assertIn("whether it was published is not known", said)
            self.store.uploads.clear()
            self.objects.clear()

    def test_stores_that_list_no_uploads(self):
        page = Answer(200, {}, b"<html><body>Sign in</body></html>")
        for where in ("uploads=&", "part-number-marker"):
            for answer, status, says in ((error(501, "NotImplemented"), support.IO, "NotImplemented"), (page, support.INVALID, "does not list uploads as S3 does"),
                                         (error(403, "AccessDenied"), support.IO, "do not allow it")):
                self.end_early()
                self.server.fault = lambda request: answer if request.method == "GET" and where in request.query + "&" else None
                self.assertIn(says, self.resume(status=status))
                self.server.fault = None
                self.assertIsNone(self.content())
                self.store.uploads.clear()

    def test_stores_that_list_no_checksums(self):
        """The completion names those of the parts that are there, whether the store lists them or not."""
        env = {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported"}
        self.end_early(env=env)
        listed = self.store.list_parts

        def without(arguments):
            answer = listed(arguments)
            answer.body = re.sub(rb"<ChecksumCRC32C>.*?</ChecksumCRC32C>", b"", answer.body)
            return answer
        self.store.list_parts = without
        missing = self.missing()
        self.resume(env=env)
        self.assertEqual(self.sent(), missing)
        self.whole()

    def test_parts_that_no_upload_has(self):
        """A list of parts ends at 10,000, whatever the store says."""
        self.end_early()

        def endless(request):
            marker = request.arguments.get("part-number-marker") if request.method == "GET" else None
            rows = "".join(f'<Part><PartNumber>{int(marker) + i}</PartNumber><ETag>"x"</ETag><Size>1</Size></Part>' for i in range(1, 4001)) if marker else ""
            return Answer(200, {}, f"<ListPartsResult><IsTruncated>true</IsTruncated>{rows}</ListPartsResult>".encode()) if marker else None
        self.server.fault = endless
        self.assertIn("the store lists parts that no upload has", self.resume(status=support.INVALID))
        self.server.fault = None
        self.store.uploads.clear()

    def test_uploads_without_end(self):
        """A list of uploads ends, or the run does."""
        self.end_early()
        page = lambda answer: setattr(answer, "body", answer.body.replace(b"<IsTruncated>false", b"<IsTruncated>true"))
        self.server.fault = lambda request: Change(page) if "uploads=" in request.query and request.method == "GET" else None
        self.assertIn("the server's listing does not end", self.resume(status=support.INVALID))
        self.server.fault = None
        self.store.uploads.clear()

    def test_a_signal_keeps_the_parts(self):
        self.server.fault = lambda request: time.sleep(10) if "partNumber=3&" in request.query else None
        started = subprocess.Popen([support.PROGRAM, "convert", self.url, "-o", "s3://out/m.zt", "--part-size", "5MiB", "--resume"],
                                   env=dict(os.environ, **self.environment), stderr=subprocess.PIPE)
        until = time.monotonic() + 20
        while not any(upload["parts"] for upload in self.store.uploads.values()) and time.monotonic() < until:
            time.sleep(0.02)
        started.send_signal(signal.SIGTERM)
        errors = started.communicate(timeout=60)[1].decode()
        self.assertEqual(support.shell_status(started), support.INTERRUPTED, errors)
        self.assertIn("the parts that were sent are kept", errors)
        self.server.fault = None
        self.settle()
        stored = [number for upload in self.store.uploads.values() for number in upload["parts"]]
        self.server.requests.clear()
        self.resume()
        self.assertEqual(self.sent(), [number for number in range(1, self.count + 1) if number not in stored])
        self.whole()

    def test_other_outputs(self):
        """extract and shards go on, too; where there is nothing to go on with, that is said, or it is one request."""
        self.objects["m.zt"] = (self.want, '"x"', {})
        self.server.fault = lambda request: error(403, "AccessDenied") if "partNumber=2&" in request.query else None
        words = ("extract", "s3://out/m.zt", "-o", "s3://out/m.safetensors", "--resume")
        self.assertEqual(self.run_program(*words).returncode, support.IO)
        self.server.fault = None
        upload, = self.store.uploads.values()
        kept = sorted(upload["parts"])
        self.server.requests.clear()
        self.assertEqual(self.run_program(*words).returncode, support.DONE)
        self.assertFalse(set(self.sent()) & set(kept))
        self.assertEqual(self.run_program("diff", "s3://out/m.safetensors", "s3://out/m.zt").returncode, support.DONE)
        self.nothing_left()
        shards = ("convert", self.url, "-o", "s3://out/s.zt", "--shards", "2", "--part-size", "5MiB", "--resume")
        self.server.fault = lambda request: error(403, "AccessDenied") if "00002" in request.path and "partNumber=2&" in request.query else None
        self.assertEqual(self.run_program(*shards).returncode, support.IO)
        self.server.fault = None
        kept = {(f"/out/{upload['key']}", str(number)) for upload in self.store.uploads.values() for number in upload["parts"]}
        self.server.requests.clear()
        self.assertEqual(self.run_program(*shards).returncode, support.DONE)
        again = {(request.path, request.arguments["partNumber"]) for request in self.calls("PUT", "partNumber")}
        self.assertFalse(again & kept)
        self.nothing_left()
        small = self.put_object("s.safetensors", support.DATA / "safetensors/zoo.safetensors")
        self.server.requests.clear()
        self.assertEqual(self.run_program("convert", small, "-o", "s3://out/s.zt", "--resume", "-f").returncode, support.DONE)
        self.assertEqual(len(self.calls("PUT")), 1)
        self.fail_with(support.USAGE, "convert", self.file, "-o", self.path("x.zt"), "--resume", says="--resume does nothing: the output is not on s3://")

    def test_kills_at_random_moments(self):
        """kill -9 again and again, until a run ends by itself: no part that the store has is sent again. ZT_KILLS sets how many."""
        moments, kills, rounds, again = random.Random(int(os.environ.get("ZT_SEED", "1"))), 0, 0, []
        words = [support.PROGRAM, "convert", self.url, "-o", "s3://out/m.zt", "--part-size", "5MiB", "--resume", "-q"]
        self.server.fault = lambda request: time.sleep(moments.uniform(0, 0.05)) if "partNumber" in request.query else None
        environment = dict(os.environ, **self.environment, AWS_SESSION_TOKEN=remote_server.TOKEN)
        self.store.token = remote_server.TOKEN
        begin = time.monotonic()
        subprocess.run(words, env=environment, check=True)
        took = time.monotonic() - begin
        self.whole()
        most = int(os.environ.get("ZT_KILLS", "20"))
        while kills < most:
            while True:
                had = {number for upload in self.store.uploads.values() for number in upload["parts"]}
                self.server.requests.clear()
                started = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                if kills < most:
                    time.sleep(moments.uniform(0, took))
                    started.kill()
                said = started.communicate()[0]
                self.no_secret(said)
                self.settle()
                numbers = self.sent()
                again.append(sum(len(self.want[(number - 1) * PART:number * PART]) for number in numbers if number in had))
                self.assertLessEqual(again[-1], PART)
                self.assertLessEqual(len(self.store.uploads), 1)
                if started.returncode == support.DONE or self.content() is not None:
                    break
                self.assertEqual(started.returncode, -signal.SIGKILL, said)
                kills += 1
            self.assertEqual(self.content(), self.want)
            self.objects.clear()
            self.store.uploads.clear()
            rounds += 1
        print(f"{kills} kills in {rounds} uploads of {self.count} parts: the same object each time, and at most {max(again)} bytes, "
              f"{sum(again)} in all, sent again of what the store had")


class Headers(s3_test.S3):
    def test_each_goes_where_it_belongs(self):
        creates = {"x-amz-server-side-encryption": "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:us-east-1:1:key/a=b",
                   "x-amz-storage-class": "STANDARD_IA", "x-amz-acl": "bucket-owner-full-control", "x-amz-tagging": "a=1&b=2"}
        always = {"x-amz-request-payer": "requester", "x-amz-expected-bucket-owner": "111122223333"}
        options = [word for name, value in {**creates, **always}.items() for word in ("--header", f"{name}={value}")]
        url = self.put_object("big.safetensors", self.file)
        begins = lambda request: "uploads" in request.query or request.method == "PUT" and "partNumber" not in request.query
        for size in (["--part-size", "5MiB"], []):
            self.server.requests.clear()
            done = self.run_program("convert", url, "-f", "-o", "s3://out/m.zt", *size, *options)
            self.assertEqual(done.returncode, support.DONE, done.stderr)
            self.assertEqual(self.content(), self.want)
            self.assertEqual(sum(map(begins, self.server.requests)), 1)
            for request in self.server.requests:
                given = {name: value for name, value in request.headers.items() if name in creates or name in always}
                self.assertEqual(given, {**creates, **always} if begins(request) else always, (request.method, request.query))
                self.assertIn("authorization", request.headers)

    def test_what_is_refused(self):
        for given, says in (("x-amz-date=now", "'x-amz-date'; these are: x-amz-request-payer"), ("x-amz-storge-class=GLACIER", "x-amz-storage-class"),
                            ("storage-class=GLACIER", "x-amz-storage-class"), ("authorization=x", "these are"), ("x-amz-acl", "needs a value"),
                            ("x-amz-acl=", "needs a value"), ("x-amz-acl=private\r\nx-evil: 1", "needs a value"),
                            ("x-amz-server-side-encryption-customer-key=c2VjcmV0", "these are"), ("x-amz-meta-ztstream-upload=x", "these are")):
            said = self.fail_with(support.USAGE, "convert", self.file, "-o", "s3://out/m.zt", "--header", given, says=says)
            self.assertNotIn("c2VjcmV0", said)
        self.assertEqual(self.server.requests, [])

    def test_refusals_without_one(self):
        self.server.fault = lambda request: error(403, "AccessDenied") if "x-amz-request-payer" not in request.headers else None
        url = self.put_object("big.safetensors", self.file)
        self.fail_with(support.IO, "inspect", url, says="do not allow it")
        self.assertEqual(self.run_program("inspect", url, "--header", "x-amz-request-payer=requester").returncode, support.DONE)


if __name__ == "__main__":
    unittest.main()
