"""Signatures of S3 beside botocore's, over 10,000 random requests. Argument: the program remote_answers_test."""
import datetime
import os
import random
import subprocess
import sys
import tempfile
import urllib.parse

try:
    import botocore.auth
    import botocore.awsrequest
    import botocore.credentials
except ImportError:
    print("skipped: it compares with botocore, which is not installed (Debian: python3-botocore)")
    sys.exit(77)

COUNT = 10_000
# What a header may hold: no control characters, and of the blanks the one that AWS's rules speak of.
LETTERS = "".join(chr(c) for c in range(0x20, 0x7f)) + "äöüпр日本"


class Signer(botocore.auth.S3SigV4Auth):
    """At the time and with the payload that a case has."""

    def _modify_request_before_signing(self, request):
        request.context["timestamp"] = request.context["moment"]
        request.headers["X-Amz-Date"] = request.context["moment"]
        request.headers["X-Amz-Content-SHA256"] = request.context["payload"]
        if self.credentials.token:
            request.headers["X-Amz-Security-Token"] = self.credentials.token


def word(value):
    return "x:" + (value if isinstance(value, bytes) else value.encode()).hex()


def case(rng):
    def some(most, letters=LETTERS):
        return "".join(rng.choices(letters, k=rng.randrange(most)))

    def some_bytes(most):
        return rng.randbytes(rng.randrange(most)) if rng.random() < 0.7 else some(most).encode()

    method = rng.choice(["GET", "HEAD", "PUT", "POST", "DELETE"])
    host = rng.choice(["b.s3.eu-west-1.amazonaws.com", "127.0.0.1:9000", "[::1]:9000", "store.example"])
    key = some_bytes(40)
    query = [(some_bytes(12), some_bytes(24)) for _ in range(rng.choice([0, 0, 1, 2, 6]))]
    query += rng.choice([[], [(b"uploads", b"")], [(b"list-type", b"2"), (b"prefix", some_bytes(9)), (b"continuation-token", some_bytes(30))]])
    token = some(90).strip() if rng.random() < 0.5 else ""
    payload = rng.choice(["UNSIGNED-PAYLOAD", "%064x" % rng.getrandbits(256)])
    region, secret = rng.choice(["us-east-1", "auto", "eu-central-1"]), some(60)
    identity = some(30, LETTERS.replace("/", "")).strip() or "A"
    seconds = rng.randrange(1 << 32)
    names = rng.sample(["Range", "if-none-match", "If-Match", "content-type", "x-amz-meta-ztstream-upload", "X-Amz-Checksum-CRC32C",
                        "x-amz-acl", "x-amz-server-side-encryption", "x-amz-meta-a"], rng.randrange(5))
    fields = [(name, (some(20) + " ") * rng.randrange(3)) for name in names]
    path = "/" + urllib.parse.quote(key, safe="/~") + "?"
    pairs = [(urllib.parse.quote(name, safe="~"), urllib.parse.quote(value, safe="~")) for name, value in query]
    target = path + "&".join(f"{name}={value}" for name, value in sorted(pairs))
    # botocore puts the query in order by itself.
    request = botocore.awsrequest.AWSRequest(method=method, url=f"https://{host}{path}" + "&".join(f"{name}={value}" for name, value in pairs))
    for name, value in fields:
        request.headers[name] = value
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    request.context.update(moment=moment, payload=payload)
    Signer(botocore.credentials.Credentials(identity, secret, token or None), "s3", region).add_auth(request)
    return [method, host, key, payload, region, "s3", identity, secret, token, str(seconds), str(len(query)), request.headers["Authorization"], target,
            *(part for pair in query for part in pair), *(f"{name}: {value}" for name, value in fields)]


def main():
    rng = random.Random(int(os.environ.get("ZT_SEED", "1")))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cases")
        with open(path, "w", encoding="ascii") as file:
            for _ in range(COUNT):
                print(*map(word, case(rng)), file=file)
        return subprocess.run([sys.argv[1], "--gtest_filter=Signatures.*"], env={**os.environ, "ZT_SIGNATURES": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
