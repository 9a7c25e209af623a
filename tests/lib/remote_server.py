"""A server that plays a web server, S3 and the Hugging Face Hub, and every fault that a test asks for.

Signatures of S3 are computed here anew from what came in (HMAC, as AWS describes it), and a request whose signature differs is
refused. A test looks at `requests`, and sets `fault`: a function that is given each Request and returns None or an Answer, or
changes what happens to the answer (see Cut, Drop).
"""
import base64
import dataclasses
import datetime
import functools
import hashlib
import hmac
import html
import http.server
import io
import itertools
import json
import os
import pathlib
import re
import socket
import struct
import threading
import time
import urllib.parse
import zlib

import numpy

import make_safetensors
import support

ACCESS, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/token=="
HUB_TOKEN = "hf_verysecrettoken"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclasses.dataclass
class Request:
    method: str
    path: str       # as it came, without the query
    query: str      # as it came
    headers: dict   # names in lower case
    body: bytes
    number: int     # of all requests, from 0
    came: float     # when its head had come, in seconds since 1970

    @property
    def arguments(self):
        return dict(urllib.parse.parse_qsl(self.query, keep_blank_values=True))


@dataclasses.dataclass
class Answer:
    status: int = 200
    headers: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    length: int | None = None   # Content-Length, where it is to be another than the body's
    cut: int | None = None      # the connection is closed after so many bytes of the body
    drop: bool = False          # the connection is closed without an answer
    pause: float = 0


class Cut:
    """Answers as usual, and closes the connection after `bytes` of the body."""
    def __init__(self, length):
        self.length = length


class Drop:
    """Does what was asked, and closes the connection without an answer."""


class Change:
    """Answers as usual, after `change` was given the answer to change."""
    def __init__(self, change):
        self.change = change


LANE = 4096  # bytes that are passed at once, many lanes beside each other


@functools.lru_cache(None)
def crc_table():
    values = numpy.arange(256, dtype=numpy.uint32)
    for _ in range(8):
        values = values >> 1 ^ numpy.where(values & 1, numpy.uint32(0x82f63b78), numpy.uint32(0))
    return values


def crc_passed(lanes, columns):
    for column in columns:
        lanes = crc_table()[(lanes ^ column) & 0xff] ^ lanes >> 8
    return lanes


@functools.lru_cache(None)
def crc_shifts():
    """What a lane of zeros makes of each byte of a sum."""
    values = (numpy.arange(256, dtype=numpy.uint32)[None] << (8 * numpy.arange(4, dtype=numpy.uint32))[:, None]).reshape(-1)
    return crc_passed(values, itertools.repeat(0, LANE)).reshape(4, 256).tolist()


def crc32c(data):
    count = len(data) // LANE
    lanes = numpy.frombuffer(data, numpy.uint8, count * LANE).reshape(count, LANE)
    crc, shifts = 0xffffffff, crc_shifts()
    for each in crc_passed(numpy.zeros(count, numpy.uint32), numpy.ascontiguousarray(lanes.T)).tolist():
        crc = shifts[0][crc & 0xff] ^ shifts[1][crc >> 8 & 0xff] ^ shifts[2][crc >> 16 & 0xff] ^ shifts[3][crc >> 24] ^ each
    table = crc_table().tolist()
    for byte in data[count * LANE:]:
        crc = table[(crc ^ byte) & 0xff] ^ crc >> 8
    return crc ^ 0xffffffff


def crc32c_field(data):
    return base64.b64encode(struct.pack(">I", crc32c(data))).decode()


def signature(request, secret, signed, date, region, service, stamp):
    """The signature of AWS, version 4, of a request as it came in."""
    pairs = []
    for part in request.query.split("&") if request.query else []:
        name, _, value = part.partition("=")
        pairs.append((urllib.parse.quote(urllib.parse.unquote(name), safe="-_.~"),
                      urllib.parse.quote(urllib.parse.unquote(value), safe="-_.~")))
    query = "&".join(f"{name}={value}" for name, value in sorted(pairs))
    headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in signed)
    canonical = "\n".join([request.method, request.path, query, headers, ";".join(signed), request.headers["x-amz-content-sha256"]])
    scope = f"{date}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def error(status, code, message="", **headers):
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Answer(status, {"Content-Type": "application/xml", **headers}, body.encode())


def ranged(request, content, etag, **headers):
    """What a server of files answers to a GET or HEAD."""
    headers = {"ETag": etag, "Accept-Ranges": "bytes", **headers} if etag else dict(headers)
    wanted = request.headers.get("if-match")
    if wanted and etag and wanted != etag:
        return Answer(412, headers)
    given = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    if not given:
        return Answer(200, headers, content)
    first, last = int(given[1]), int(given[2] or len(content) - 1)
    if first >= len(content):
        return Answer(416, {**headers, "Content-Range": f"bytes */{len(content)}"})
    last = min(last, len(content) - 1)
    return Answer(206, {**headers, "Content-Range": f"bytes {first}-{last}/{len(content)}"}, content[first:last + 1])


class Store:
    """Buckets with their objects and uploads. Attributes switch what other stores than AWS's do."""

    def __init__(self):
        self.buckets = {}
        self.uploads = {}
        self.aborted, self.completed = [], []
        self.ids = itertools.count(1)
        self.region = "us-east-1"
        self.token = None           # the session token that has to come along
        self.access, self.secret = ACCESS, SECRET
        self.public = False
        self.equal_parts = False    # as R2
        self.checksums = True       # False: 501, as R2 once
        self.conditions = True      # False: 501
        self.least_part = 5 << 20
        self.page = 1000
        self.version = 2            # 1: lists as the first version of the request asks for; 0: always the first page
        self.encodes = True         # False: encoding-type is passed over
        self.hidden = set()         # keys that are not listed
        self.sizes = {}             # of keys, where a listing is to give others
        self.lock = threading.Lock()

    def check(self, request):
        """An Answer where the signature is wrong."""
        given = request.headers.get("authorization")
        if given is None:
            return None if self.public else error(403, "AccessDenied", "no signature")
        parts = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)", given)
        if not parts:
            return error(400, "AuthorizationHeaderMalformed", given)
        access, date, region, signed, sent = parts.groups()
        if access != self.access:
            return error(403, "InvalidAccessKeyId", "unknown")
        if region != self.region:
            return error(400, "AuthorizationHeaderMalformed", f"expecting {self.region}", **{"x-amz-bucket-region": self.region})
        if self.token is not None and request.headers.get("x-amz-security-token") != self.token:
            return error(400, "ExpiredToken", "The provided token has expired.")
        signed = signed.split(";")
        for name in request.headers:
            if (name.startswith("x-amz-") or name in ("host", "if-none-match")) and name not in signed:
                return error(403, "AccessDenied", f"{name} is not signed")
        if any(name not in request.headers for name in signed) or "host" not in signed:
            return error(403, "SignatureDoesNotMatch", "a signed header is missing")
        if signature(request, self.secret, signed, date, region, "s3", request.headers["x-amz-date"]) != sent:
            return error(403, "SignatureDoesNotMatch", "another was expected")
        payload = request.headers["x-amz-content-sha256"]
        if payload != "UNSIGNED-PAYLOAD" and payload != hashlib.sha256(request.body).hexdigest():
            return error(400, "XAmzContentSHA256Mismatch", "the body is another")
        return None

    def answer(self, request):
        refused = self.check(request)
        if refused:
            return refused
        bucket, _, key = urllib.parse.unquote(request.path).lstrip("/").partition("/")
        if bucket not in self.buckets:
            return error(404, "NoSuchBucket", "The specified bucket does not exist")
        objects = self.buckets[bucket]
        arguments = request.arguments
        with self.lock:
            if not key:
                return self.list_uploads(bucket, arguments) if "uploads" in arguments else self.list(objects, arguments)
            if request.method == "GET" and "uploadId" in arguments:
                return self.list_parts(arguments)
            if request.method in ("GET", "HEAD"):
                if key not in objects:
                    return error(404, "NoSuchKey", "The specified key does not exist.")
                content, etag, meta = objects[key]
                return ranged(request, content, etag, **meta)
            if request.method == "POST" and "uploads" in arguments:
                return self.begin(bucket, key, request)
            if request.method == "PUT" and "partNumber" in arguments:
                return self.part(arguments, request)
            if request.method == "POST" and "uploadId" in arguments:
                return self.complete(objects, key, arguments, request)
            if request.method == "DELETE" and "uploadId" in arguments:
                self.aborted.append(arguments["uploadId"])
                gone = self.uploads.pop(arguments["uploadId"], None)
                return Answer(204) if gone else error(404, "NoSuchUpload")
            if request.method == "PUT":
                refused = self.refuse_condition(objects, key, request) or self.refuse_checksum(request)
                if refused:
                    return refused
                return self.put(objects, key, request.body, request)
        return error(405, "MethodNotAllowed")

    def put(self, objects, key, content, request):
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        meta = {name: value for name, value in request.headers.items() if name.startswith("x-amz-meta-")}
        objects[key] = (content, etag, meta)
        return Answer(200, {"ETag": etag})

    def refuse_condition(self, objects, key, request):
        if "if-none-match" not in request.headers:
            return None
        if not self.conditions:
            return error(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
        return error(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold") if key in objects else None

    def refuse_checksum(self, request):
        given = request.headers.get("x-amz-checksum-crc32c")
        if not self.checksums and any(name.startswith("x-amz-checksum") for name in request.headers):
            return error(501, "NotImplemented", "checksums are not implemented")
        if given and given != crc32c_field(request.body):
            return error(400, "BadDigest", "The CRC32C you specified did not match")
        return None

    def begin(self, bucket, key, request):
        refused = self.refuse_checksum(request)
        if refused:
            return refused
        upload = f"upload+{next(self.ids)}/=="
        meta = {name: value for name, value in request.headers.items() if name.startswith("x-amz-meta-")}
        algorithm = request.headers.get("x-amz-checksum-algorithm")
        self.uploads[upload] = {"bucket": bucket, "key": key, "parts": {}, "meta": meta,
                                "algorithm": f"<ChecksumAlgorithm>{algorithm}</ChecksumAlgorithm>" if algorithm else ""}
        return Answer(200, {}, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode())

    def part(self, arguments, request):
        upload = self.uploads.get(arguments["uploadId"])
        if upload is None:
            return error(404, "NoSuchUpload", "The specified upload does not exist.")
        refused = self.refuse_checksum(request)
        if refused:
            return refused
        etag = f'"{hashlib.md5(request.body).hexdigest()}"'
        upload["parts"][int(arguments["partNumber"])] = (request.body, etag, request.headers.get("x-amz-checksum-crc32c"))
        return Answer(200, {"ETag": etag})

    def list_uploads(self, bucket, arguments):
        after = (arguments.get("key-marker", ""), arguments.get("upload-id-marker", ""))
        rows = sorted((upload["key"], order, name) for order, (name, upload) in enumerate(self.uploads.items())
                      if upload["bucket"] == bucket and upload["key"].startswith(arguments.get("prefix", "")))
        passed = [(key, name) for key, _, name in rows].index(after) + 1 if after[0] else 0
        page, more = rows[passed:passed + self.page], len(rows) > passed + self.page
        text = "".join(f"<Upload><Key>{html.escape(key)}</Key><UploadId>{name}</UploadId><Owner><ID>o</ID></Owner>"
                       f"<StorageClass>STANDARD</StorageClass>{self.uploads[name]['algorithm']}</Upload>" for key, _, name in page)
        if more:
            text += f"<NextKeyMarker>{html.escape(page[-1][0])}</NextKeyMarker><NextUploadIdMarker>{page[-1][2]}</NextUploadIdMarker>"
        return Answer(200, {}, f'<?xml version="1.0"?>\n<ListMultipartUploadsResult><Bucket>{bucket}</Bucket><IsTruncated>{str(more).lower()}</IsTruncated>{text}</ListMultipartUploadsResult>'.encode())

    def list_parts(self, arguments):
        upload = self.uploads.get(arguments["uploadId"])
        if upload is None:
            return error(404, "NoSuchUpload", "The specified upload does not exist.")
        after = int(arguments.get("part-number-marker", 0))
        parts = [(number, part) for number, part in sorted(upload["parts"].items()) if number > after]
        rows = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{html.escape(etag)}</ETag><Size>{len(content)}</Size>"
                       + (f"<ChecksumCRC32C>{checksum}</ChecksumCRC32C>" if checksum else "") + "</Part>"
                       for number, (content, etag, checksum) in parts[:self.page])
        return Answer(200, {}, f"<ListPartsResult><Key>{html.escape(upload['key'])}</Key><IsTruncated>{str(len(parts) > self.page).lower()}</IsTruncated>{rows}</ListPartsResult>".encode())

    def complete(self, objects, key, arguments, request):
        upload = self.uploads.get(arguments["uploadId"])
        if upload is None:
            return error(404, "NoSuchUpload", "The specified upload does not exist.")
        refused = self.refuse_condition(objects, key, request)
        if refused:
            return refused
        named = re.findall(rb"<Part><PartNumber>(\d+)</PartNumber><ETag>(.*?)</ETag>(?:<ChecksumCRC32C>(.*?)</ChecksumCRC32C>)?</Part>", request.body)
        parts = []
        for place, (number, etag, checksum) in enumerate(named, 1):
            content, have, sum_ = upload["parts"].get(int(number), (None, None, None))
            if have != etag.decode() or int(number) != place or (sum_ or "") != checksum.decode():
                return error(400, "InvalidPart", "One or more of the specified parts could not be found.")
            parts.append(content)
        if any(len(part) < self.least_part for part in parts[:-1]):
            return error(400, "EntityTooSmall")
        if self.equal_parts and len({len(part) for part in parts[:-1]}) > 1:
            return error(400, "InvalidPart", "All non-trailing parts must have the same length.")
        content = b"".join(parts)
        size = request.headers.get("x-amz-mp-object-size")
        if size and int(size) != len(content):
            return error(400, "InvalidRequest", "the size differs")
        del self.uploads[arguments["uploadId"]]
        self.completed.append(arguments["uploadId"])
        digests = b"".join(hashlib.md5(part).digest() for part in parts)
        objects[key] = (content, f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"', upload["meta"])
        return Answer(200, {}, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")

    def listed(self, key):
        return urllib.parse.quote_plus(key, safe="/") if self.encodes else html.escape(key)

    def list(self, objects, arguments):
        if arguments.get("list-type") != "2":
            return error(400, "InvalidArgument")
        prefix, delimiter = arguments.get("prefix", ""), arguments.get("delimiter", "")
        rows = []
        for key in sorted(objects):
            if not key.startswith(prefix) or key in self.hidden:
                continue
            rest = key[len(prefix):]
            row = ("prefix", prefix + rest[:rest.index(delimiter) + 1]) if delimiter and delimiter in rest else ("key", key)
            if row not in rows:
                rows.append(row)
        if self.version < 2:
            begin = sum(key <= arguments.get("marker", "") for _, key in rows) if self.version else 0
        else:
            begin = int(arguments.get("continuation-token", "token+0").split("+")[1])
        count = min(self.page, int(arguments.get("max-keys", 1000)))
        page = rows[begin:begin + count]
        more = begin + count < len(rows)
        xml = ['<?xml version="1.0" encoding="UTF-8"?>', '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">',
               f"<Name>b</Name><Prefix>{self.listed(prefix)}</Prefix><IsTruncated>{str(more).lower()}</IsTruncated>"]
        if self.encodes:
            xml.append("<EncodingType>url</EncodingType>")
        if more and self.version == 2:
            xml.append(f"<NextContinuationToken>token+{begin + count}</NextContinuationToken>")
        elif more and delimiter:
            xml.append(f"<NextMarker>{self.listed(page[-1][1])}</NextMarker>")
        for kind, key in page:
            name = self.listed(key)
            xml.append(f"<Contents><Key>{name}</Key><ETag>{html.escape(objects[key][1])}</ETag><Size>{self.sizes.get(key, len(objects[key][0]))}</Size></Contents>" if kind == "key" else f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>")
        return Answer(200, {}, "".join(xml + ["</ListBucketResult>"]).encode())


class Hub:
    """Repositories as the Hub shows them: {"org/name": {"path": content}}, those of datasets as "datasets/org/name"; big files are sent
    elsewhere, signed."""

    def __init__(self):
        self.repositories = {}
        self.gated = set()
        self.cdn = None     # the origin of another server, which has the content of `shared`
        self.shared = {}
        self.page = 1000
        self.revisions = {"main": COMMIT, "refs/pr/1": COMMIT[::-1]}
        self.commits = (COMMIT, COMMIT[::-1])

    def refuse(self, name, request):
        if name in self.gated and request.headers.get("authorization") != f"Bearer {HUB_TOKEN}":
            return Answer(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": f"Access to model {name} is restricted."})
        if name not in self.repositories:
            return Answer(404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        return None

    def answer(self, request, origin):
        path = urllib.parse.unquote(request.path)
        if api := re.fullmatch(r"/api/(?:models/|(?=datasets/))(.+)/(revision|tree)/([^/]+(?:/pr/\d+)?)", path):
            name, what, revision = api.groups()
            refused = self.refuse(name, request)
            if refused:
                return refused
            if what == "revision":
                if revision not in self.revisions:
                    return Answer(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
                return Answer(200, {}, json.dumps({"id": name, "sha": self.revisions[revision], "siblings": []}).encode())
            files = self.repositories[name]
            rows = [{"type": "directory", "path": "onnx", "size": 0}] + [
                {"type": "file", "path": path, "size": len(content), "oid": "0"} for path, content in sorted(files.items())]
            begin = int(request.arguments.get("cursor", 0))
            headers = {}
            if begin + self.page < len(rows):
                query = urllib.parse.urlencode({**request.arguments, "cursor": begin + self.page})
                headers["Link"] = f'<{origin}{request.path}?{query}>; rel="next"'
            return Answer(200, headers, json.dumps(rows[begin:begin + self.page]).encode())
        if file := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            name, revision, path = file.groups()
            refused = self.refuse(name, request)
            if refused:
                return refused
            if revision not in self.commits or path not in self.repositories[name]:
                return Answer(404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
            content = self.repositories[name][path]
            if self.cdn is None or len(content) < 1000:
                return ranged(request, content, f'"{hashlib.md5(content).hexdigest()}"', **{"X-Repo-Commit": revision})
            # Signed for this range alone.
            sign = hashlib.sha256(f"{name}{path}{request.headers.get('range')}".encode()).hexdigest()
            self.shared[sign] = (content, request.headers.get("range"))
            return Answer(302, {"Location": f"{self.cdn}/cdn/{sign}?Signature=secretsignature", "X-Repo-Commit": revision})
        return Answer(404, {"X-Error-Code": "RepoNotFound"})

    def content(self, request):
        """What the other server answers."""
        sign = request.path.rsplit("/", 1)[1]
        if sign not in self.shared or self.shared[sign][1] != request.headers.get("range"):
            return Answer(403, {}, b"signed for another range")
        content = self.shared[sign][0]
        return ranged(request, content, f'"{hashlib.md5(content).hexdigest()}"')


class Server:
    """Listens on the loopback while it is in use as a context."""

    def __init__(self, tls=None, host="127.0.0.1"):
        self.tls, self.address = tls, (host, 0)
        self.files = {}         # of the web server: path to content
        self.store, self.hub = Store(), Hub()
        self.fault = None
        self.ranges = True      # False: Range is passed over
        self.pace = None        # is given the length of each piece of a body, and returns when it may pass
        self.requests = []
        self.connections = 0    # all that there were
        self.live = []          # the sockets of those that there are
        self.lock = threading.Lock()
        self.listen()

    def listen(self):
        """Binds the port, that of before if there was one."""
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each body waits 40 ms, until its head is acknowledged

            def setup(self):
                super().setup()
                with server.lock:
                    server.connections += 1
                    server.live.append(self.connection)

            def finish(self):
                try:
                    super().finish()
                finally:
                    with server.lock:
                        server.live.remove(self.connection)

            def log_message(self, *_):
                pass

            def do_GET(self):
                came = time.time()
                length = int(self.headers.get("content-length") or 0)
                body = b"".join(server.pieces(self.rfile.read, length))
                if len(body) < length:
                    self.close_connection = True
                    return
                path, _, query = self.path.partition("?")
                headers = {name.lower(): value for name, value in self.headers.items()}
                with server.lock:
                    request = Request(self.command, path, query, headers, body, len(server.requests), came)
                    server.requests.append(request)
                self.send(server.respond(request), request)

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

            def send(self, answer, request):
                if answer.pause:
                    time.sleep(answer.pause)
                if answer.drop:
                    self.close_connection = True
                    return
                self.send_response_only(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status != 204 and "Transfer-Encoding" not in answer.headers:
                    self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
                self.end_headers()
                if request.method != "HEAD":
                    body = io.BytesIO(answer.body if answer.cut is None else answer.body[:answer.cut])
                    for piece in server.pieces(body.read, len(body.getbuffer())):
                        self.wfile.write(piece)
                if answer.cut is not None:
                    self.close_connection = True

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.listener = Listener(self.address, Handler)
        self.address = self.listener.server_address
        self.scheme = "http"
        if self.tls:
            self.scheme = "https"
            self.listener.socket = self.tls.wrap_socket(self.listener.socket, server_side=True)
        self.origin = f"{self.scheme}://{self.address[0]}:{self.address[1]}"

    def pieces(self, read, length):
        """A body, in pieces where there is a pace; less than its length if it ends before."""
        while length > 0:
            piece = read(min(length, 16384) if self.pace else length)
            if not piece:
                return
            if self.pace:
                self.pace(len(piece))
            length -= len(piece)
            yield piece

    def reset(self, connection):
        """Ends a connection in the midst of what it does."""
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def __enter__(self):
        self.thread = threading.Thread(target=self.listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown()
        self.listener.server_close()

    def respond(self, request):
        planned = self.fault(request) if self.fault else None
        if isinstance(planned, Answer):
            return planned
        answer = self.route(request)
        if isinstance(planned, Cut):
            answer.cut = planned.length
        elif isinstance(planned, Drop):
            answer.drop = True
        elif isinstance(planned, Change):
            planned.change(answer)
        return answer

    def route(self, request):
        if request.path.startswith("/web/"):
            content = self.files.get(request.path[5:])
            if content is None:
                return Answer(404, {}, b"not here")
            if not self.ranges:
                request = dataclasses.replace(request, headers={name: value for name, value in request.headers.items() if name != "range"})
            return ranged(request, content, f'"{zlib.crc32(content):08x}"')
        if request.path.startswith("/cdn/"):
            return self.hub.content(request)
        if request.path.startswith("/hub/"):
            return self.hub.answer(dataclasses.replace(request, path=request.path[4:]), self.origin + "/hub")
        if request.path.startswith("/latest/") or request.path.startswith("/credentials"):
            return Answer(404)
        return self.store.answer(request)

    def url(self, name):
        return f"{self.origin}/web/{name}"

    def environment(self, **more):
        """What the program needs to take this server for S3 and the Hub, and no variable of the user who runs the test."""
        nowhere = "/nonexistent"
        # For the program an empty variable is not set.
        theirs = {name: "" for name in os.environ if name.startswith(("AWS_", "HF_", "HUGGING", "TRANSFORMERS_")) or
                  name.lower().endswith("_proxy") or name == "SSL_CERT_FILE"}
        return {**theirs, "ZTSTREAM_RETRY_SECONDS": "10", "AWS_ENDPOINT_URL": self.origin, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                "HF_ENDPOINT": self.origin + "/hub", "HF_HOME": nowhere, "HF_TOKEN": "", "no_proxy": "*", **more}


def stamp(seconds):
    moment = datetime.datetime.fromtimestamp(time.time() + seconds, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def big_file(path, tensors=6, side=600):
    """A file of some MiB that no run of bytes repeats in."""
    random = numpy.random.default_rng(7)
    path.write_bytes(make_safetensors.encode(
        {f"layer.{i}.weight": ("F32", [side, side], random.integers(0, 2**32, side * side, dtype=numpy.uint32).tobytes())
         for i in range(tensors)}))
    return path


class Remote(support.EndToEnd):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.environment = self.server.environment()

    def settle(self):
        """Waits, for two seconds, until what an ended program has asked for is answered: what a test sets next would strike it."""
        until = time.monotonic() + 2
        while self.server.live and time.monotonic() < until:
            time.sleep(0.01)

    def run_program(self, *arguments, stdin=None, timeout=support.PATIENCE, env=None):
        done = super().run_program(*arguments, stdin=stdin, timeout=timeout, env={**self.environment, **(env or {})})
        self.settle()
        self.no_secret(done.stdout + done.stderr)
        return done

    def no_secret(self, said):
        """In nothing that a run says, whatever else a test looks for."""
        for secret in (SECRET, TOKEN, HUB_TOKEN, "secretsignature"):
            self.assertNotIn(secret.encode(), said)

    def serve(self, name, path):
        self.server.files[name] = pathlib.Path(path).read_bytes()
        return self.server.url(name)

    def convert(self, given, name="out.zt", *options):
        self.succeed("convert", given, "-o", self.path(name), "--no-sync", *options)
        return self.path(name).read_bytes()

    def ranges(self):
        return [request.headers.get("range") for request in self.server.requests]
