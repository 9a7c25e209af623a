"""Who asks S3: every way that the AWS tools know, and no other identity in place of one that cannot be had; and renewals."""
import calendar
import email.utils
import hashlib
import json
import re
import threading
import time
import unittest
import urllib.parse

import make_safetensors
import remote_server
import s3_test
import support
from remote_server import ACCESS, Answer, Change, SECRET, TOKEN, error

ROLE = "arn:aws:iam::1:role/r"
KEYS = f"aws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\n"
# The identity of the container, which no test asks for, and those of the services below.
NODE, STS, SSO, IMDS = "NODEROLE", "ASIASTS", "ASIASSO", "ASIAIMDS"


def document(identity, **more):
    return json.dumps({"AccessKeyId": identity, "SecretAccessKey": SECRET, "Token": TOKEN, "Expiration": remote_server.stamp(3600), **more}).encode()


class Identity(s3_test.S3):
    def setUp(self):
        super().setUp()
        self.url = self.put_object("m.safetensors", support.DATA / "safetensors/zoo.safetensors")
        self.home = self.put("home/.aws/sso/cache/.keep", b"").parents[3]
        self.asked = []     # forms and paths of the services
        self.faults = []    # answers in place of theirs
        self.server.fault = self.services
        there = self.server.origin
        self.environment.update(HOME=str(self.home), AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_CONFIG_FILE="", AWS_SHARED_CREDENTIALS_FILE="",
                                AWS_REGION="us-east-1", AWS_ENDPOINT_URL_STS=there + "/sts", AWS_ENDPOINT_URL_SSO=there + "/sso",
                                AWS_CONTAINER_CREDENTIALS_FULL_URI=there + "/credentials/node")

    def services(self, request):
        if request.path in ("/sts", "/sso/federation/credentials") or request.path.startswith(("/credentials/", "/latest/")):
            if self.faults:
                return self.faults.pop(0)
        if request.path == "/sts":
            form = dict(urllib.parse.parse_qsl(request.body.decode()))
            self.asked.append(form)
            given = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/us-east-1/sts/aws4_request, SignedHeaders=([^,]+), Signature=(\w+)",
                                 request.headers.get("authorization", ""))
            if form["Action"] == "AssumeRoleWithWebIdentity" and form["WebIdentityToken"] == "jwt+/=" and not given:
                return self.role(STS)
            if form["Action"] != "AssumeRole" or not given or given[4] != remote_server.signature(
                    request, SECRET, given[3].split(";"), given[2], "us-east-1", "sts", request.headers["x-amz-date"]):
                return error(403, "InvalidIdentityToken", "who are you")
            form["by"] = given[1]
            return self.role(STS)
        if request.path == "/sso/federation/credentials":
            self.asked.append(request.arguments)
            if request.headers.get("x-amz-sso_bearer_token") != "bearer":
                return Answer(401, {}, b'{"message": "Session token not found or invalid"}')
            return Answer(200, {}, json.dumps({"roleCredentials": {"accessKeyId": SSO, "secretAccessKey": SECRET, "sessionToken": TOKEN,
                                                                   "expiration": int(time.time() + 3600) * 1000}}).encode())
        if request.path.startswith("/credentials/"):
            return Answer(200, {}, document(NODE))
        if request.path.startswith("/latest/"):
            if request.method == "PUT":
                return Answer(200, {}, b"ticket")
            return Answer(200, {}, b"role" if request.path.endswith("/") else document(IMDS, Code="Success"))
        return None

    def no_secret(self, said):
        super().no_secret(said)
        for secret in (b"verysecret", b"jwt+/=", b"bearer", b"ticket"):
            self.assertNotIn(secret, said)

    def role(self, identity):
        return Answer(200, {}, f"""<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>{identity}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>
            <SessionToken>{TOKEN}</SessionToken><Expiration>{remote_server.stamp(3600)}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>""".encode())

    def set_up(self, config="", credentials="", **environment):
        self.put("home/.aws/config", config.encode())
        self.put("home/.aws/credentials", credentials.encode())
        self.server.requests.clear()
        self.asked.clear()
        return environment

    def signed_as(self, identity, *files, **environment):
        self.store.access = identity
        done = self.run_program("inspect", self.url, env=self.set_up(*files, **environment))
        self.assertEqual(done.returncode, support.DONE, done.stderr)

    def refused(self, says, *files, **environment):
        """With its own words, and without a request that is signed as somebody else."""
        done = self.run_program("inspect", self.url, env=self.set_up(*files, **environment))
        self.assertIn(done.returncode, (support.IO, support.UNSUPPORTED, support.USAGE), done.stderr)
        self.assertIn(says, done.stderr.decode())
        self.assertEqual([r.path for r in self.server.requests if r.path.startswith("/in/") or r.path == "/credentials/node"], [])
        return done.stderr.decode()


class Ways(Identity):
    def token(self, text=b"jwt+/=\n"):
        return str(self.put("home/jwt", text))

    def login(self, name, seconds=3600, token="bearer"):
        cached = {"startUrl": "https://x", "accessToken": token, "expiresAt": remote_server.stamp(seconds)}
        return self.put(f"home/.aws/sso/cache/{hashlib.sha1(name.encode()).hexdigest()}.json", json.dumps(cached).encode())

    def test_files(self):
        self.signed_as(ACCESS, '[profile "x y"]\n' + KEYS, AWS_PROFILE="x y")
        self.signed_as(ACCESS, "\ufeff[default]\n" + KEYS)
        self.signed_as(ACCESS, "[default]\r\naws_access_key_id\t=\t" + KEYS.split("=", 1)[1].replace("\n", "\r\n"))
        self.signed_as(ACCESS, "[profile x]\naws_access_key_id=other\naws_secret_access_key=other\n", "[x]\n" + KEYS, AWS_PROFILE="x")
        self.signed_as(ACCESS, "[profile x]\nregion=us-east-1\n", "[x]\n" + KEYS, AWS_DEFAULT_PROFILE="x", AWS_PROFILE="y")
        self.signed_as(ACCESS, "[default]\n" + KEYS.replace("=", ": ", 2))
        self.signed_as(NODE)
        self.signed_as(IMDS, AWS_CONTAINER_CREDENTIALS_FULL_URI="", AWS_EC2_METADATA_DISABLED="", AWS_EC2_METADATA_SERVICE_ENDPOINT=self.server.origin)
        # Tried again: a service that hesitates is not another identity.
        self.faults = [Answer(503), Answer(drop=True)]
        self.signed_as(IMDS, AWS_CONTAINER_CREDENTIALS_FULL_URI="", AWS_EC2_METADATA_DISABLED="", AWS_EC2_METADATA_SERVICE_ENDPOINT=self.server.origin)

    def test_what_is_not_there_is_refused(self):
        self.refused("there is no profile 'nope', which AWS_PROFILE names", "[default]\n" + KEYS, AWS_PROFILE="nope")
        self.refused("there is no profile 'x'", "[x]\n" + KEYS, AWS_PROFILE="x")
        self.refused("there is no profile 'nope'", AWS_PROFILE="nope", AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET)
        for half in ("aws_access_key_id=HALF", "aws_secret_access_key=HALF"):
            self.refused("profile 'default' has half a pair of keys", f"[default]\n{half}\n")
            self.refused("profile 'default' has half a pair of keys", "[default]\n" + KEYS, f"[default]\n{half}\n")
        self.refused("the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) has half a pair of keys: the secret key", AWS_ACCESS_KEY_ID="HALF")
        self.refused("has half a pair of keys: the access key", AWS_SECRET_ACCESS_KEY="HALF")
        self.refused("--profile x", "[profile x]\nlogin_session=arn:aws:iam::1:user/u\n", AWS_PROFILE="x")
        self.refused("are not the JSON", "[default]\ncredential_process = echo\n")
        self.refused("no time: 'soon'", f"[default]\ncredential_process = echo '{document(ACCESS, Expiration='soon').decode()}'\n")
        instance = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.server.origin}
        for answers, says in (([Answer(403)], "the server answered 403"), ([Answer(200, {}, b"t"), Answer(404)], "the server answered 404"),
                              ([Answer(200, {}, b"t\r\nX-Evil: 1")], "the value for the header X-aws-ec2-metadata-token"),
                              ([Answer(200, {}, b"t"), Answer(200, {}, b"r"), Answer(200, {}, b'{"Code": "AssumeRoleUnauthorizedAccess", "Message": "no"}')],
                               "there are no credentials: AssumeRoleUnauthorizedAccess no")):
            self.faults = answers
            self.refused("there are no credentials for S3 (the instance's metadata: " + says, **instance)
        self.refused("none.jwt", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(self.home / "none.jwt"))
        self.put("home/.aws/folder/x", b"")
        self.refused("folder", AWS_SHARED_CREDENTIALS_FILE=str(self.home / ".aws/folder"))
        loop = self.home / "loop"
        loop.symlink_to(loop)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            self.refused("home/loop", **{name: str(loop)})
            self.refused(f"{name} names '/nonexistent', and there is no such file", "[default]\n" + KEYS, **{name: "/nonexistent"})
        for region in ("x.evil.example/", "eu west", "\u00fc"):
            self.refused("the region is no name: '" + region, "[default]\n" + KEYS, AWS_REGION=region, AWS_ENDPOINT_URL_S3="", AWS_ENDPOINT_URL="")
        self.refused("credential_process has not ended in 5 s", "[default]\ncredential_process = exec sleep 60\n", ZTSTREAM_RETRY_SECONDS="0")
        self.refused("credential_process ended with status 128", "[default]\ncredential_process = kill $$\n")

    def test_files_that_are_not_there(self):
        """Who has keys in the environment needs none; nor does a file that is empty on purpose count as missing."""
        for file in ("/nonexistent", "/dev/null"):
            self.signed_as(ACCESS, AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET, AWS_CONFIG_FILE=file, AWS_SHARED_CREDENTIALS_FILE=file)
        self.signed_as(NODE, AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null")

    def test_services(self):
        """An endpoint that is not read is not passed over; one of another service is."""
        config = "[default]\nservices = mine\n" + KEYS + "[services mine]\n{} =\n  endpoint_url = http://127.0.0.1:1\n"
        self.refused("takes the endpoint of S3 from services 'mine'", config.format("s3"), AWS_ENDPOINT_URL="")
        self.signed_as(ACCESS, config.format("s3"), AWS_ENDPOINT_URL="", AWS_ENDPOINT_URL_S3=self.server.origin)
        self.signed_as(ACCESS, config.format("dynamodb"))

    def test_a_wrong_clock(self):
        """The store's is taken, at once for all requests."""
        for hours in (-5, 26):
            def refuse(request):
                theirs = time.time() + 3600 * hours
                given = request.headers.get("x-amz-date")
                if given and abs(calendar.timegm(time.strptime(given, "%Y%m%dT%H%M%SZ")) - theirs) > 900:
                    return error(403, "RequestTimeTooSkewed", Date=email.utils.formatdate(theirs, usegmt=True))
                return None

            self.server.fault = refuse
            self.server.requests.clear()
            process = self.run_program("inspect", self.url, env={"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET})
            self.assertEqual(process.returncode, support.DONE, process.stderr)
            self.assertRegex(process.stderr, rb"the clock of this machine is \d+ s (behind|ahead of) that of the store")
            self.assertEqual(len(self.server.requests), 2)

    def test_options(self):
        """They come before the environment; keys of the environment are not those of a profile that is named."""
        keys = {"AWS_ACCESS_KEY_ID": "AKIAWRONG", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
        self.put("home/.aws/config", ("[profile mine]\n" + KEYS).encode())
        self.store.region = "eu-west-9"
        options = ["--profile", "mine", "--region", "eu-west-9", "--endpoint-url", self.server.origin + "/"]
        process = self.run_program("inspect", self.url, *options, env=keys)
        self.assertEqual(process.returncode, support.DONE, process.stderr)
        process = self.run_program("inspect", self.url, "--profile", "none", *options[2:], env=keys)
        self.assertEqual(process.returncode, support.IO)
        self.assertIn(b"there is no profile 'none' in ~/.aws/config or ~/.aws/credentials", process.stderr)
        for rest in ("/?k=secret", "#secret"):
            process = self.run_program("inspect", self.url, "--endpoint-url", self.server.origin + rest, env=keys)
            self.assertIn(b"the endpoint of S3 has a query or a fragment; leave it out", process.stderr)
            self.assertNotIn(b"secret", process.stderr)

    def test_web_identity(self):
        environment = {"AWS_WEB_IDENTITY_TOKEN_FILE": self.token(), "AWS_ROLE_ARN": ROLE}
        self.signed_as(STS, "", "[default]\n" + KEYS, **environment)
        self.assertEqual(self.asked, [{"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": ROLE, "RoleSessionName": "ztstream",
                                       "WebIdentityToken": "jwt+/="}])
        self.signed_as(STS, AWS_ROLE_SESSION_NAME="me", **environment)
        self.assertEqual(self.asked[0]["RoleSessionName"], "me")
        self.signed_as(STS, f"[profile x]\nweb_identity_token_file={self.token()}\nrole_arn={ROLE}\n", AWS_PROFILE="x")
        self.signed_as(ACCESS, AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET, **environment)
        self.refused("without a role", AWS_WEB_IDENTITY_TOKEN_FILE=self.token())
        self.refused("none.jwt", AWS_WEB_IDENTITY_TOKEN_FILE=str(self.home / "none.jwt"), AWS_ROLE_ARN=ROLE)
        self.refused("the role of profile 'default': the server answered 403: InvalidIdentityToken: who are you",
                     AWS_WEB_IDENTITY_TOKEN_FILE=self.token(b"verysecret"), AWS_ROLE_ARN=ROLE)
        self.token()
        self.refused("http://sts.example: a token is not sent over http", AWS_ENDPOINT_URL_STS="http://sts.example", **environment)

    def test_roles(self):
        base = "[profile base]\n" + KEYS
        role = f"[profile x]\nrole_arn={ROLE}\n"
        self.signed_as(STS, role + "source_profile=base\nexternal_id=e&=\nrole_session_name=me\nduration_seconds=900\n" + base, AWS_PROFILE="x")
        self.assertEqual(self.asked, [{"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": ROLE, "RoleSessionName": "me", "ExternalId": "e&=",
                                       "DurationSeconds": "900", "by": ACCESS}])
        self.signed_as(STS, role + "source_profile=x\n" + KEYS, AWS_PROFILE="x")
        self.signed_as(STS, role + "source_profile=y\n[profile y]\nrole_arn=other\nsource_profile=base\n" + base, AWS_PROFILE="x")
        self.assertEqual([form["by"] for form in self.asked], [ACCESS, STS])
        self.signed_as(STS, role + f"source_profile=base\n[profile base]\ncredential_process=echo '{document(ACCESS).decode()}'\n", AWS_PROFILE="x")
        self.signed_as(STS, role + "credential_source=EcsContainer\n", AWS_PROFILE="x")
        self.assertEqual(self.asked[0]["by"], NODE)
        self.signed_as(STS, role + "credential_source=Ec2InstanceMetadata\n", AWS_PROFILE="x", AWS_EC2_METADATA_SERVICE_ENDPOINT=self.server.origin)
        self.signed_as(ACCESS, role + "credential_source=Environment\n", AWS_PROFILE="x", AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET)
        self.refused("neither of source_profile and credential_source", role + KEYS, AWS_PROFILE="x")
        self.refused("both of source_profile and", role + "source_profile=base\ncredential_source=Environment\n" + base, AWS_PROFILE="x")
        self.refused("no credential_source is named 'Elsewhere'", role + "credential_source=Elsewhere\n", AWS_PROFILE="x")
        self.refused("has no credentials", role + "credential_source=Environment\n", AWS_PROFILE="x")
        self.refused("there is no profile 'none'", role + "source_profile=none\n", AWS_PROFILE="x")
        self.refused("has no credentials", role + "source_profile=y\n[profile y]\nregion=us-east-1\n", AWS_PROFILE="x")
        self.refused("leads to itself", role + "source_profile=y\n[profile y]\nrole_arn=other\nsource_profile=x\n", AWS_PROFILE="x")
        self.refused("mfa_serial", role + "source_profile=base\nmfa_serial=arn:aws:iam::1:mfa/u\n" + base, AWS_PROFILE="x")
        self.refused("InvalidIdentityToken: who are you", role + "source_profile=base\n" + base.replace(SECRET, "other"), AWS_PROFILE="x")

    def test_sso(self):
        old = "[profile x]\nsso_start_url=https://x\nsso_region=eu-west-1\nsso_account_id=1\nsso_role_name=r\n"
        new = "[profile x]\nsso_session=s\nsso_account_id=1\nsso_role_name=r\n"
        session = "[sso-session s]\nsso_start_url=https://x\nsso_region=eu-west-1\n"
        self.refused("is one of SSO and lacks sso_start_url sso_region", new, AWS_PROFILE="x")
        for name, config in (("https://x", old), ("s", new + session)):
            self.refused("the SSO login of profile 'x' is missing; run 'aws sso login --profile x'", config, AWS_PROFILE="x")
            self.login(name, -1)
            self.refused("the SSO login of profile 'x' has expired", config, AWS_PROFILE="x")
            self.login(name, token="verysecret")
            self.refused("the SSO of profile 'x': the server answered 401: Session token not found", config, AWS_PROFILE="x")
            self.login(name)
            self.signed_as(SSO, config, AWS_PROFILE="x")
            self.assertEqual(self.asked, [{"account_id": "1", "role_name": "r"}])
        self.signed_as(STS, f"[profile y]\nrole_arn={ROLE}\nsource_profile=x\n" + new + session, AWS_PROFILE="y")
        self.assertEqual(self.asked[1]["by"], SSO)


class Renewals(Identity):
    def setUp(self):
        super().setUp()
        self.counter, self.document = self.path("counter"), self.path("document.json")
        self.give = self.put("give.sh", f"echo x >> {self.counter}\ncat {self.document}\n".encode())
        self.set_up(f"[default]\ncredential_process = sh {self.give}\n")
        self.environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = ""

    def rotate(self, number, **more):
        """The process gives the next token at once, and from then on the store takes no other."""
        self.put("next", document(ACCESS, Token=f"{TOKEN}{number}", **more)).replace(self.document)
        self.store.token = f"{TOKEN}{number}"

    def runs(self):
        return self.counter.read_text().count("x") if self.counter.exists() else 0

    def checkpoint(self, shards):
        names = {f"t{number}": f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)}
        for number, (name, file) in enumerate(names.items()):
            self.store.buckets["in"]["f/" + file] = (make_safetensors.encode({name: ("F32", [10], bytes([number]) * 40)}), '"x"', {})
        self.store.buckets["in"]["f/model.safetensors.index.json"] = (json.dumps({"weight_map": names}).encode(), '"x"', {})
        return "s3://in/f/"

    def test_twenty_expiries(self):
        """While requests are in flight, of a folder and of the parts of an upload: each is renewed once."""
        large = self.put_object("large.safetensors", remote_server.big_file(self.path("large.safetensors"), tensors=40))
        want = self.convert(self.path("large.safetensors"), "want.zt")
        lock, expired = threading.Lock(), []

        def expire(answer):
            with lock:
                if answer.status < 400:
                    taken.append(answer)
                    if len(taken) % every == 0 and len(expired) < 20:
                        expired.append(answer)
                        self.rotate(len(expired))
        self.server.fault = lambda _: Change(expire)
        for every, least, words in ((2, 20, (self.checkpoint(40), "--files", "none")), (10, 2, (large, "--part-size", "5MiB"))):
            taken, runs = [], self.runs()
            expired.clear()
            self.rotate(0)
            self.objects.clear()
            done = self.run_program("convert", *words, "-o", "s3://out/m.zt")
            self.assertEqual(done.returncode, support.DONE, done.stderr)
            self.assertGreaterEqual(len(expired), least)
            self.assertLessEqual(self.runs() - runs, len(expired) + 1)
        self.assertEqual(self.content(), want)

    def test_short_lives(self):
        """Four minutes are enough for a run of seconds, however slow the process."""
        self.rotate(1, Expiration=remote_server.stamp(240))
        self.give.write_text(f"echo x >> {self.counter}\nsleep 0.3\ncat {self.document}\n")
        self.convert(self.checkpoint(20), "x.zt", "--files", "none")
        self.assertEqual(self.runs(), 1)

    def test_a_renewal_that_fails_ends_nothing(self):
        """While the credentials are valid; and the one after it succeeds."""
        self.give.write_text(f"""echo x >> {self.counter}
[ $(wc -l < {self.counter}) = 2 ] && exit 1
cat {self.document}
echo '{document(ACCESS).decode()}' > {self.document}
""")
        self.document.write_bytes(document(ACCESS, Expiration=remote_server.stamp(5)))
        self.server.fault = lambda request: time.sleep(0.8)  # shards are opened eight at a time
        done = self.run_program("convert", self.checkpoint(60), "-o", self.path("x.zt"), "--files", "none")
        self.assertEqual(done.returncode, support.DONE, done.stderr)
        self.assertIn(b"cannot be renewed, and are used until they expire: credential_process ended with status 1", done.stderr)
        self.assertEqual(self.runs(), 3)

    def test_a_renewal_that_never_succeeds(self):
        self.rotate(1)
        self.give.write_text(f"echo x >> {self.counter}\n[ $(wc -l < {self.counter}) -gt 1 ] && exit 1\ncat {self.document}\n")
        self.store.token = "another"
        done = self.run_program("inspect", self.url)
        self.assertEqual(done.returncode, support.IO)
        self.assertIn(b"log in again (they cannot be renewed: credential_process ended with status 1)", done.stderr)

    def test_no_other_identity(self):
        """Where the file of the profile is empty for a moment, as while another program writes it."""
        self.environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = self.server.origin + "/credentials/node"
        for twice, after in ((f"[default]\n{KEYS}aws_session_token={TOKEN}2\n", support.DONE), ("", support.IO)):
            self.set_up("", f"[default]\n{KEYS}aws_session_token={TOKEN}1\n")
            self.store.token = f"{TOKEN}2"
            emptied = []

            def empty(request):
                if not emptied:
                    emptied.append(self.put("home/.aws/credentials", b""))
                elif request.path == "/credentials/node":
                    emptied[0].write_text(twice)
                return self.services(request)
            self.server.fault = empty
            done = self.run_program("inspect", self.url)
            self.assertEqual(done.returncode, after, done.stderr)
        self.assertIn(b"they came from profile 'default', and would now come from the container", done.stderr)
        self.assertNotIn(NODE.encode(), b"".join(r.headers.get("authorization", "").encode() for r in self.server.requests))

    def test_files_that_are_renewed(self):
        """By another program, while the run goes on; also where the answer is one to HEAD, which says nothing."""
        def write(number):
            self.put("home/.aws/next", f"[default]\n{KEYS}aws_session_token={TOKEN}{number}\n".encode()).replace(self.home / ".aws/credentials")
            self.store.token = f"{TOKEN}{number}"
        self.set_up()
        write(0)
        expired = []

        def expire(request):
            if (request.method == "HEAD" or "f/model-00003" in request.path) and request.path not in expired:
                expired.append(request.path)
                write(len(expired))
        self.server.fault = expire
        done = self.run_program("convert", self.checkpoint(4), "-o", "s3://out/m.zt", "--files", "none")
        self.assertEqual(done.returncode, support.DONE, done.stderr)
        self.assertIn("/out/m.zt", expired)
        self.assertGreater(len(expired), 1)


if __name__ == "__main__":
    unittest.main()
