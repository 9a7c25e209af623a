"""Every fault of a server, as a table: which request it strikes and how often, and what the run then does, says and leaves.

Prints a line for each: the exit status, what became of the output, what is left in the store, the message.
"""
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import resource
import subprocess
import time
import unittest
import urllib.parse

import make_safetensors
import remote_server
import support
from remote_server import Answer, Change, Cut, Drop, error
from remote_server import HUB_TOKEN, TOKEN
from support import DONE, EXISTS, INVALID, IO

MIB = 1 << 20
ALWAYS = 10**6
PASSWORD = "proxypassword"
OLDER = (b"older", '"x"', {})
PAGE = b"<!DOCTYPE html>\n<html><body>Sign in to the guest network</body></html>"
SIGN_IN, TAGGED, ACCEPTED = Answer(200, {}, PAGE), Answer(200, {"ETag": '"page"'}, PAGE), Answer(202, {"ETag": '"x"'}, b"<Accepted/>")
REFUSED = Answer(200, {}, b'<?xml version="1.0"?>\n <Error><Code>InternalError</Code><Message>try again</Message></Error>')

# Which requests a fault strikes, by the way that the run goes.
OPEN = ("read", lambda request: request.headers.get("range", "").startswith("bytes=0-"))
RANGE = ("read", lambda request: not OPEN[1](request))
OBJECT = ("object", lambda request: request.method == "GET")
LIST = ("folder", lambda request: "list-type" in request.query)
SHARD = ("folder", lambda request: request.path.endswith("00002.safetensors") and request.method == "GET")
HEAD = ("write", lambda request: request.method == "HEAD")
BEGIN = ("write", lambda request: "uploads=" in request.query)
PART = ("write", lambda request: "partNumber=2" in request.query)
COMPLETE = ("write", lambda request: request.method == "POST" and "uploadId" in request.query)
UPLOADS = ("resume", lambda request: "uploads=" in request.query and request.method == "GET")
PARTS = ("resume", lambda request: "part-number-marker" in request.query)
MISSING = ("resume", lambda request: "partNumber=2" in request.query)
RESUMED = ("resume", COMPLETE[1])
PUT = ("small", lambda request: request.method == "PUT")
ALL = ("write", lambda request: True)
ALL_SMALL = ("small", lambda request: True)
REVISION = ("hub", lambda request: "/revision/" in request.path)
TREE = ("hub", lambda request: "/tree/" in request.path)
RESOLVE = ("hub", lambda request: "/resolve/" in request.path)
CDN = ("hub", lambda request: "/cdn/" in request.path)


@dataclasses.dataclass
class Row:
    name: str
    place: tuple
    fault: object           # an Answer, or a function that is given the test and the request
    times: int = 1
    status: int = DONE
    says: str = ""
    output: str = "whole"   # whole, older or absent
    left: int = 0           # uploads
    before: bool = False    # an older object is there, and -f is given
    environment: dict = dataclasses.field(default_factory=dict)


def fails(name, place, fault, status, says, times=ALWAYS, **more):
    return Row(name, place, fault, times, status, says, more.pop("output", "absent"), **more)


def changed(how):
    """The answer as usual, after `how` has changed it."""
    return lambda test, request: Change(how)


def header(**fields):
    return changed(lambda answer: answer.headers.update({name.replace("_", "-"): value for name, value in fields.items()}))


def without(name):
    return changed(lambda answer: answer.headers.pop(name, None))


def shifted(answer):
    first, rest = answer.headers["Content-Range"].removeprefix("bytes ").split("-")
    last, size = rest.split("/")
    answer.headers["Content-Range"] = f"bytes {int(first) - 1}-{int(last) - 1}/{size}"


def larger(answer):
    answer.headers["Content-Range"] = answer.headers["Content-Range"].replace("/", "/1")


def whole(answer):
    answer.status = 200
    answer.headers.pop("Content-Range")


def longer(answer):
    answer.body += b"x"


def replaced(test, request):
    test.server.files["big.safetensors"] = bytes(len(test.server.files["big.safetensors"]))


def shard_replaced(test, request):
    """By one of the same size, after it was listed."""
    objects = test.store.buckets["in"]
    key = request.path.removeprefix("/in/")
    content, etag, meta = objects[key]
    objects[key] = (content[:-1] + b"x", '"y"', meta)


def removed(test, request):
    test.server.files.clear()


def others(test, request):
    test.objects.setdefault("m.zt", OLDER)


def spoiled(test, request):
    def change(answer):
        content, etag, meta = test.objects["m.zt"]
        test.objects["m.zt"] = (content[:-1] + b"x", etag, meta)
    return Change(change)


def said(old, new):
    """The answer as usual, with other words in its body."""
    return changed(lambda answer: setattr(answer, "body", answer.body.replace(old.encode(), new.encode())))


def pages(fault=None, **more):
    """Listings in pages of two, of a store with these attributes, with a fault in each page."""
    def set_up(test, request):
        for name, value in {"page": 2, **more}.items():
            setattr(test.store, name, value)
        test.server.hub.page = 2
        return fault(test, request) if fault else None
    return set_up


def endless(test, request):
    """Pages without a name that go on and on."""
    place = f"{request.number}"
    return Answer(200, {}, f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{place}</NextContinuationToken></ListBucketResult>".encode()
                  ) if "list-type" in request.query else Answer(200, {"Link": f'<{request.path}?cursor={place}>; rel="next"'}, b"[]")


def write_only(what):
    """May be written and not looked at; `what` is the answer to the request that publishes it."""
    def fault(test, request):
        if request.method in ("GET", "HEAD"):
            return Answer(403) if request.path.startswith("/out") else None
        return what() if COMPLETE[1](request) or PUT[1](request) and "partNumber" not in request.query else None
    return fault


def in_turn(*faults):
    left = iter(faults)
    return lambda test, request: next(left)(test, request)


def after_first(fault):
    """Always: what is asked for ahead and fails is asked for again when it is needed."""
    before = itertools.count()
    return lambda test, request: fault(test, request) if next(before) else None


def for_a_second(answer):
    begun = []

    def fault(test, request):
        begun.append(time.monotonic())
        return answer if begun[-1] < begun[0] + 1 else None
    return fault


def cut_whole(answer):
    """All of a small object, which ends early."""
    whole(answer)
    answer.length, answer.cut = 1000, 500


def sizeless(place):
    """The answer to the request that publishes the object is lost, and HEAD does not say how large that is."""
    def fault(test, request):
        if request.method == "HEAD":
            return Change(lambda answer: answer.headers.update({"Transfer-Encoding": "chunked"}))
        return Drop() if place[1](request) and test.objects == {} else None
    return fault


def markless(place, etag=None):
    """The object is published, that is answered 500, and HEAD does not give its mark, or its MD5."""
    def change(answer):
        answer.headers.pop("x-amz-meta-ztstream-upload", None)
        answer.headers["ETag"] = etag or answer.headers.get("ETag", "")

    def fault(test, request):
        if request.method == "HEAD" and test.objects:
            return Change(change)
        return Change(lambda answer: setattr(answer, "status", 500)) if place[1](request) and not test.objects else None
    return fault


def nowhere(test, request):
    return Answer(302, {"Location": request.path})


TABLE = [
    # what is tried again
    *(Row(f"a range is answered {answer.status}{what}", RANGE, answer, 2) for answer, what in (
        (Answer(503), ""), (Answer(500), ""), (Answer(509), ""), (Answer(520), ""), (Answer(502, {"RateLimit": '"api";r=9;t=200'}), ", with a limit that is not reached"), (Answer(502, {}, b"<html>"), " with a page"), (Answer(504), ""), (Answer(408), ""),
        (Answer(429, {"Retry-After": "1"}), ", to come back in a second"))),
    Row("the connection ends before an answer", RANGE, Answer(drop=True), 2),
    Row("a body ends midway", RANGE, lambda test, request: Cut(300_000), 3),
    Row("a body ends before its first byte", RANGE, lambda test, request: Cut(0), 2),
    Row("opening is answered 503", OPEN, Answer(503), 2),
    fails("503 without an end", RANGE, Answer(503, {}, b"busy"), IO, " s", environment={"ZTSTREAM_RETRY_SECONDS": "2"}),
    fails("no answer without an end", RANGE, Answer(drop=True), IO, " s", environment={"ZTSTREAM_RETRY_SECONDS": "2"}),
    # refusals
    fails("404", OPEN, Answer(404), IO, "no such file"),
    fails("403", OPEN, Answer(403), IO, "may not be read"),
    fails("401", OPEN, Answer(401), IO, "may not be read"),
    fails("an answer is cut, the next is 404", OPEN, in_turn(changed(cut_whole), lambda test, request: Answer(404)), IO, "no such file", 2),
    fails("a status of its own", OPEN, Answer(451), IO, "451"),
    # another object
    fails("another ETag", RANGE, header(ETag='"other"'), INVALID, "changed while it was read"),
    fails("another size", RANGE, changed(larger), INVALID, "changed while it was read"),
    fails("the object is replaced", RANGE, replaced, INVALID, "changed while it was read", 1),
    fails("an object of S3 is replaced", OBJECT, after_first(header(ETag='"other"')), INVALID, "changed while it was read"),
    fails("the object is removed", RANGE, removed, INVALID, "changed while it was read", 1),
    # lies
    fails("all of it in place of a range", RANGE, changed(whole), INVALID, "all of it"),
    fails("another range", RANGE, changed(shifted), INVALID, "were asked for"),
    fails("no Content-Range", RANGE, without("Content-Range"), INVALID, "Content-Range"),
    fails("a byte too many", RANGE, changed(longer), INVALID, "more bytes"),
    fails("a range, compressed", RANGE, header(Content_Encoding="gzip"), INVALID, "compressed"),
    fails("several parts in place of a range", RANGE, header(Content_Type="multipart/byteranges; boundary=x"), INVALID, "several parts"),
    fails("several parts, when it is opened", OPEN, header(Content_Type="Multipart/Byteranges; boundary=x"), INVALID, "several parts"),
    fails("a field of the head of 200 kB", RANGE, header(X_Large="x" * 200_000), IO, "the head of the server's answer is too large"),
    # redirects
    fails("redirects in a circle", OPEN, nowhere, IO, "too many places"),
    fails("a redirect to a file", OPEN, Answer(302, {"Location": "file:///etc/passwd"}), IO, "not an http URL"),
    fails("a redirect that says not where", OPEN, Answer(302), IO, "without saying where"),
    # S3
    Row("the bucket is in another region", OBJECT, error(400, "AuthorizationHeaderMalformed", "", **{"x-amz-bucket-region": "eu-west-1"}),
        environment={"AWS_REGION": "eu-central-1"}),
    fails("expired credentials", OBJECT, error(400, "ExpiredToken"), IO, "log in again"),
    fails("a wrong signature", OBJECT, error(403, "SignatureDoesNotMatch"), IO, "secret key"),
    fails("a wrong clock", OBJECT, error(403, "RequestTimeTooSkewed"), IO, "clock"),
    fails("no bucket", OBJECT, error(404, "NoSuchBucket"), IO, "no such bucket"),
    fails("an archived object", OBJECT, error(403, "InvalidObjectState"), IO, "archived"),
    fails("403 without a word", OBJECT, Answer(403), IO, "do not allow it"),
    Row("a listing is answered 503", LIST, Answer(503), 2),
    fails("a listing that is a page", LIST, Answer(200, {}, b"<html><body>"), INVALID, "listing is not the XML"),
    fails("a listing that is cut", LIST, lambda test, request: Change(lambda answer: setattr(answer, "body", answer.body[:-9])), INVALID, "listing is not the XML"),
    # a listing is whole or an error
    *(Row(f"a listing in pages{what}", LIST, fault, ALWAYS) for what, fault in (
        ("", pages()), (", keys not encoded", pages(encodes=False)), (", of the first version", pages(version=1)),
        (", of the first version, keys not encoded", pages(version=1, encodes=False)),
        (", True", pages(said("true", "True"))), (", a token alone", pages(said("<IsTruncated>true</IsTruncated>", ""))),
        (", in CDATA", pages(lambda test, request: Change(lambda answer: setattr(answer, "body", re.sub(
            b"<Key>(.*?)</Key>", rb"<Key><![CDATA[\1]]></Key>", answer.body))))))),
    *(fails(f"a listing {what}", LIST, fault, INVALID, says) for what, fault, says in (
        ("that says not where it goes on", Answer(200, {}, b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"), "goes on and does not say where"),
        ("that says not whether it ends", changed(lambda answer: setattr(answer, "body", answer.body.replace(b"IsTruncated", b"Truncated"))), "whether it ends"),
        ("in a circle", pages(said("token+2", "token+0")), "twice"), ("whose second page is the first", pages(version=0), "twice"),
        ("without an end", endless, "does not end"), ("with a key twice", said("00002-of", "00001-of"), "names 'f/model-00001-of-00002.safetensors' twice"),
        ("with a key of another folder", said("<Key>f/", "<Key>g/"), "of another folder"), ("without a key", said("Key>", "Kex>"), "listing is not the XML"))),
    fails("a listing is denied", LIST, error(403, "AccessDenied"), IO, "do not allow it"),
    fails("a listing with another size of weights", LIST, changed(lambda answer: setattr(answer, "body", answer.body.replace(b"<Size>36", b"<Size>35"))),
          INVALID, "its server listed it with"),
    fails("a listing of the Hub with another size of weights", TREE, said('"size": 36', '"size": 35'), INVALID, "its server listed it with"),
    fails("weights are replaced after they were listed", SHARD, shard_replaced, INVALID, "it was changed"),
    fails("weights have another ETag than in the listing", SHARD, header(ETag='"other"'), INVALID, "it was changed after it was listed: its ETag is another"),
    fails("weights that were listed are gone", SHARD, Answer(404), IO, "no such object"),
    # writing: before anything is sent
    Row("looking for the object is answered 503", HEAD, Answer(503), 2),
    Row("looking for it is not allowed", HEAD, Answer(403), 1),
    Row("the upload is begun at the second try", BEGIN, error(503, "SlowDown"), 2),
    fails("the upload may not be begun", BEGIN, error(403, "AccessDenied"), IO, "do not allow it"),
    fails("the upload has no id", BEGIN, Answer(200, {}, b"<InitiateMultipartUploadResult/>"), INVALID, "no UploadId"),
    # parts
    Row("a part is answered 503", PART, error(503, "SlowDown", "", **{"Retry-After": "1"}), 2),
    Row("a part is answered 500", PART, error(500, "InternalError"), 2),
    *(Row(f"a part is answered {status} {code}", PART, error(status, code), 2) for status, code in (
        (400, "RequestTimeout"), (409, "OperationAborted"), (400, "BadDigest"))),
    Row("the connection of a part ends", PART, Answer(drop=True), 2),
    Row("a part is stored, its answer is lost", PART, lambda test, request: Drop(), 1),
    fails("a part is stored, its answers are lost for ever", PART, lambda test, request: Drop(), IO, " tries over ", environment={"ZTSTREAM_RETRY_SECONDS": "9"}),
    fails("a part is taken and never answered", PART, Answer(drop=True, pause=45), IO, "the last 30 seconds", environment={"ZTSTREAM_RETRY_SECONDS": "9"}),
    fails("a part is denied", PART, error(403, "AccessDenied"), IO, "do not allow it", output="older", before=True),
    fails("a part has another digest", PART, error(400, "BadDigest"), IO, "BadDigest", output="older", before=True),
    fails("no room for a part", PART, Answer(507), IO, "507", output="older", before=True),
    fails("a part without an ETag", PART, without("ETag"), INVALID, "an ETag"),
    fails("checksums are not known", PART, error(501, "NotImplemented"), IO, "NotImplemented",
          environment={"AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported"}),
    # completion
    Row("200 with an error inside", COMPLETE, REFUSED),
    Row("200 with an error inside, for a second", COMPLETE, for_a_second(REFUSED), ALWAYS),
    fails("200 with an error inside, for ever", COMPLETE, REFUSED, IO, "InternalError"),
    Row("200 and no word", COMPLETE, Answer(200)),
    fails("200 and no word, for ever", COMPLETE, Answer(200), IO, "is not known", left=1),
    Row("200 and blanks", COMPLETE, Answer(200, {}, b'<?xml version="1.0"?>\n \n')),
    Row("the completion is answered 503", COMPLETE, error(503, "SlowDown"), 2),
    fails("the completion is denied", COMPLETE, error(403, "AccessDenied"), IO, "do not allow it"),
    Row("completed, the answer is lost", COMPLETE, lambda test, request: Drop()),
    *(Row(f"{what} is done, the answer is lost, HEAD says no size", place, sizeless(request), ALWAYS) for what, place, request in (
        ("completion", ALL, COMPLETE), ("a PUT", ALL_SMALL, PUT))),
    *(Row(f"{what} is done, answered 500, HEAD gives no mark", place, markless(request), ALWAYS) for what, place, request in (
        ("completion", ALL, COMPLETE), ("a PUT", ALL_SMALL, PUT))),
    *(fails(f"{what} is done, answered 500, HEAD gives no mark and no MD5", place, markless(request, '"kms"'), IO, "is not known", output="whole")
      for what, place, request in (("completion", ALL, COMPLETE), ("a PUT", ALL_SMALL, PUT))),
    Row("not completed, the connection ends", COMPLETE, Answer(drop=True)),
    Row("completed, then the upload is gone", COMPLETE, lambda test, request: Change(lambda answer: (
        setattr(answer, "status", 404), setattr(answer, "body", error(404, "NoSuchUpload").body)))),
    fails("a conflict", COMPLETE, error(409, "ConditionalRequestConflict"), IO, "another run"),
    fails("parts of unequal size", COMPLETE, error(400, "InvalidPart"), IO, "--part-size"),
    fails("the object has come meanwhile", COMPLETE, others, EXISTS, "exists already", output="older"),
    Row("If-None-Match is not known", COMPLETE, error(501, "NotImplemented"), says="If-None-Match"),
    fails("the store has other bytes", COMPLETE, spoiled, INVALID, "other bytes than were sent", output="other"),
    # an upload is done when the answer says so
    fails("looking for it is answered with a page", HEAD, SIGN_IN, INVALID, "to HEAD where S3 answers"),
    *(fails(f"the upload is begun, {what}", BEGIN, fault, INVALID, "no UploadId") for what, fault in (
        ("says a page", SIGN_IN), ("says 202", Answer(202, {}, b"<InitiateMultipartUploadResult><UploadId>x</UploadId></InitiateMultipartUploadResult>")))),
    *(Row(f"{what} is answered {how}", place, fault) for what, place in (("a part", PART), ("completion", COMPLETE), ("a PUT", PUT))
      for how, fault in (("a page", SIGN_IN), ("a page with an ETag", TAGGED), ("202", ACCEPTED))),
    fails("a part is answered a page, for ever", PART, TAGGED, INVALID, "answered 200 to a part where S3 answers 200 with an ETag and no page"),
    fails("completion is answered 202, for ever", COMPLETE, ACCEPTED, IO, "is not known: the server answered 202", left=1),
    fails("a PUT is answered a page, for ever", PUT, SIGN_IN, INVALID, "answered 200 to PUT where S3 answers 200 with an ETag"),
    fails("completion is answered a page, with checksums", COMPLETE, SIGN_IN, IO, "is not known", left=1,
          environment={"AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported"}),
    Row("a PUT is done, its answer has no ETag", PUT, without("ETag")),
    Row("completed, it may not be read back", ALL, write_only(lambda: None), ALWAYS, says="could not be read back to check it: the server answered 403"),
    fails("completed, the answer's head is too large, it may not be looked at", ALL, write_only(lambda: Change(
        lambda answer: answer.headers.update({"X-Large": "x" * 200_000}))), IO, "is not known", output="whole"),
    Row("a PUT where nothing may be looked at", ALL_SMALL, write_only(lambda: None), ALWAYS),
    fails("completed, the answer is lost, it may not be looked at", ALL, write_only(Drop), IO, "is not known", output="whole"),
    fails("completed, the answer is too long, it may not be looked at", ALL, write_only(lambda: Change(
        lambda answer: setattr(answer, "body", b" " * (9 * MIB) + answer.body))), IO, "is not known", output="whole"),
    fails("completed, an error is inside 200, it may not be looked at", ALL, write_only(lambda: Change(
        lambda answer: setattr(answer, "body", REFUSED.body))), IO, "is not known", output="whole"),
    fails("not completed, and it may not be looked at", ALL, write_only(lambda: error(403, "AccessDenied")), IO, "do not allow it"),
    fails("a PUT is done, its answer is lost, it may not be looked at", ALL_SMALL, write_only(Drop), IO, "is not known", output="whole"),
    fails("it exists, and may not be looked at", ALL_SMALL, write_only(lambda: error(412, "PreconditionFailed")), EXISTS, "exists already"),
    # an upload that an earlier run began: one part is there
    Row("uploads are listed at the third try", UPLOADS, Answer(503), 2),
    Row("parts are listed at the third try", PARTS, Answer(drop=True), 2),
    fails("uploads are not listed", UPLOADS, error(501, "NotImplemented"), IO, "NotImplemented", left=1),
    fails("uploads are listed by a page", UPLOADS, SIGN_IN, INVALID, "does not list uploads as S3 does", left=1),
    fails("parts may not be listed", PARTS, error(403, "AccessDenied"), IO, "do not allow it", left=1),
    Row("a listing of parts that is cut", PARTS, changed(lambda answer: setattr(answer, "body", answer.body[:-30]))),
    Row("a listing of parts in a circle", PARTS, said("<IsTruncated>false", "<IsTruncated>true"), ALWAYS),
    Row("no upload is listed", UPLOADS, Answer(200, {}, b"<ListMultipartUploadsResult/>"), left=1),
    Row("the part has other bytes than its ETag says", PARTS, said("&quot;", "&quot;0")),
    fails("the upload is gone meanwhile", MISSING, error(404, "NoSuchUpload"), IO, "NoSuchUpload", left=1),
    fails("what is missing is denied", MISSING, error(403, "AccessDenied"), IO, "do not allow it", left=1),
    Row("it is completed, the answer is lost", RESUMED, lambda test, request: Drop()),
    Row("it is not completed, the connection ends", RESUMED, Answer(drop=True)),
    # a small object
    Row("a PUT is answered 503", PUT, Answer(503), 2),
    Row("a PUT is done, its answer is lost", PUT, lambda test, request: Drop()),
    fails("a PUT finds an object", PUT, others, EXISTS, "exists already", output="older"),
    fails("a PUT is denied", PUT, error(403, "AccessDenied"), IO, "do not allow it"),
    # the Hub
    *(Row(f"the Hub is busy{what}", place, Answer(429, {"RateLimit": '"api";r=0;t=0'}), 2) for what, place in (
        ("", RESOLVE), (" when it is asked for the commit", REVISION), (" when it lists", TREE))),
    fails("the repository is gated", REVISION, Answer(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "restricted"}), IO, "gated"),
    fails("no such revision", REVISION, Answer(404, {"X-Error-Code": "RevisionNotFound"}), IO, "no such revision"),
    fails("a revision without a commit", REVISION, Answer(200, {}, b'{"sha": "../../main"}'), INVALID, "gave no commit for revision 'main'"),
    *(fails(f"a listing of the Hub that is {body}", TREE, Answer(200, {}, body.encode()), INVALID, "not the JSON") for body in (
        "<html>", "{}", '[{"type": "file", "size": 1}]', '[{"type": "file", "path": "a"}]')),
    fails("a listing that goes on elsewhere", TREE, Answer(200, {"Link": '<http://other/x>; rel="next"'}, b"[]"), INVALID, "another server"),
    *(Row(f"a listing of the Hub in pages{what}", TREE, fault, ALWAYS) for what, fault in (
        ("", pages()), (", linked in other words", pages(changed(lambda answer: answer.headers.update(
            {"Link": answer.headers.get("Link", "<x>; rel=first").replace('rel="next"', "REL=next")})))))),
    fails("a listing of the Hub without an end", TREE, endless, INVALID, "does not end"),
    fails("a listing of the Hub in a circle", TREE, pages(said("model-00002", "model-00001")), INVALID, "twice"),
    Row("a signed redirect has expired", CDN, Answer(403, {}, b"expired")),
]


class Faults(remote_server.Remote):
    def setUp(self):
        super().setUp()
        self.store, self.objects = self.server.store, {}
        self.store.buckets.update({"in": {}, "out": self.objects})
        self.file = remote_server.big_file(self.path("big.safetensors"))
        self.content = self.file.read_bytes()
        self.want = self.convert(self.file, "want.zt")
        names = {f"t{number}": f"model-0000{number}-of-00002.safetensors" for number in (1, 2)}
        self.folder_files = {file: make_safetensors.encode({name: ("F32", [300, 300], bytes([number]) * 360_000)})
                             for number, (name, file) in enumerate(names.items())}
        self.folder_files["model.safetensors.index.json"] = json.dumps({"weight_map": names}).encode()
        for name, content in self.folder_files.items():
            self.put("folder/" + name, content)
        self.want_folder = self.convert(self.path("folder"), "folder.zt", "--files", "none")
        self.store.buckets["in"]["big.safetensors"] = (self.content, '"etag"', {})
        self.server.hub.repositories["org/name"] = self.folder_files
        self.cdn = remote_server.Server()
        self.cdn.__enter__()
        self.addCleanup(self.cdn.__exit__, None, None, None)
        self.store.token = TOKEN
        self.proxy = remote_server.Server()
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)
        proxy = self.proxy.origin.replace("//", f"//user:{PASSWORD}@")
        self.environment.update(AWS_SESSION_TOKEN=TOKEN, HF_TOKEN=HUB_TOKEN, no_proxy="", http_proxy=proxy, https_proxy=proxy, all_proxy=proxy)
        self.cdn.hub.shared, self.server.hub.cdn = self.server.hub.shared, self.cdn.origin

    def words(self, way):
        """The arguments of the run, and whether its output is an object."""
        local = ["-o", self.path("out.zt"), "--no-sync", "--files", "none"]
        return {"read": (self.server.url("big.safetensors"), *local), "object": ("s3://in/big.safetensors", *local),
                "folder": ("s3://in/f/", *local), "hub": ("hf://org/name", *local),
                "write": ("s3://in/big.safetensors", "-o", "s3://out/m.zt", "--part-size", "5MiB"),
                "resume": ("s3://in/big.safetensors", "-o", "s3://out/m.zt", "--part-size", "5MiB", "--resume"),
                "small": ("s3://in/big.safetensors", "-o", "s3://out/m.zt")}[way]

    def set_up_row(self, row):
        way, strikes = row.place
        left = itertools.count()

        def fault(request):
            # One of the run before can still arrive: of a file that was opened, the first request is known.
            begun = way != "read" or any(OPEN[1](each) for each in list(self.server.requests))
            if not strikes(request) or not begun or next(left) >= row.times:
                return None
            return row.fault(self, request) if callable(row.fault) else row.fault
        self.server.files["big.safetensors"] = self.content
        self.store.buckets["in"].update({"f/" + name: (content, '"x"', {}) for name, content in self.folder_files.items()})
        self.store.uploads.clear()
        if way == "resume":
            part = self.want[:5 * MIB]
            self.store.uploads["earlier"] = {"bucket": "out", "key": "m.zt", "meta": {}, "algorithm": "",
                                             "parts": {1: (part, f'"{hashlib.md5(part).hexdigest()}"', None)}}
        self.store.page, self.store.version, self.store.encodes, self.server.hub.page = 1000, 2, True, 1000
        self.objects.clear()
        if row.before:
            self.objects["m.zt"] = OLDER
        self.path("out.zt").unlink(missing_ok=True)
        self.server.requests.clear()
        self.cdn.requests.clear()
        (self.cdn if row.place is CDN else self.server).fault = fault

    def outcome(self, way):
        content = self.objects.get("m.zt", (None,))[0] if way in ("write", "small", "resume") else (
            self.path("out.zt").read_bytes() if self.path("out.zt").exists() else None)
        names = {None: "absent", OLDER[0]: "older", self.want_folder if way in ("folder", "hub") else self.want: "whole"}
        return names.get(content, "other")

    def run_row(self, words, environment):
        """Status, and all that was said. Nothing of it has a secret, nor has the list of processes."""
        begun = time.monotonic()
        started = subprocess.Popen([support.PROGRAM, "convert", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, **self.environment, **environment})
        listed = b"".join(pathlib.Path(f"/proc/{started.pid}/{name}").read_bytes() for name in ("cmdline", "comm"))
        out, errors = started.communicate(timeout=support.PATIENCE)
        self.assertLess(time.monotonic() - begun, 75, words)
        self.settle()
        self.no_secret(listed + out + errors)
        for secret in (PASSWORD, urllib.parse.quote(TOKEN, safe="")):
            self.assertNotIn(secret.encode(), listed + out + errors)
        return started.returncode, errors.decode().strip()

    def test_no_core_of_what_has_secrets(self):
        """A run that may sign leaves no core, whatever the shell allows; another does."""
        os.mkfifo(self.path("out"))
        self.path("m.safetensors").write_bytes(self.content)
        most = resource.getrlimit(resource.RLIMIT_CORE)[1:] * 2
        allow = functools.partial(resource.setrlimit, resource.RLIMIT_CORE, most)
        for source, limit in (("s3://in/big.safetensors", (0, 0)), (self.path("m.safetensors"), most)):
            started = subprocess.Popen([support.PROGRAM, "convert", source, "-o", self.path("out"), "-q"], stdin=subprocess.DEVNULL,
                                       env={**os.environ, **self.environment, "ASAN_OPTIONS": "disable_coredump=0"},
                                       preexec_fn=allow)
            with open(self.path("out"), "rb") as out:  # it was opened there: the words were read
                self.assertEqual(resource.prlimit(started.pid, resource.RLIMIT_CORE), limit)
                out.read()
            self.assertEqual(started.wait(), 0)

    def test_table(self):
        self.assertGreaterEqual(len(TABLE), 40)
        self.assertEqual(len({row.name for row in TABLE}), len(TABLE))
        rows = list(enumerate(TABLE, 1))
        self.at_once(Faults.try_rows, [rows[first::6] for first in range(6)])

    def try_rows(self, rows):
        before, wrong = self.entries(), []
        for number, row in rows:
            self.set_up_row(row)
            way = row.place[0]
            status, said = self.run_row((*self.words(way), *["-f"] * row.before), row.environment)
            self.server.fault = self.cdn.fault = None
            print(f"{number:3} {way:6} {row.name:50} {status}  {self.outcome(way):6}  {len(self.store.uploads)} left  {said[-150:]}")
            try:
                self.assertEqual((status, self.outcome(way), len(self.store.uploads)), (row.status, row.output, row.left))
                self.assertIn(row.says, said)
                gone = row.says == "NoSuchUpload"  # then nothing is kept, and no command is of use
                if row.status != DONE:
                    self.assertFalse("9" in row.environment.values() and "over 0 s" in said)
                    self.assertEqual(len(said.splitlines()), 1 + (row.place is MISSING and not gone))
                if row.left and row.place not in (UPLOADS, PARTS) and not gone:
                    self.assertIn("aws s3api abort-multipart-upload --bucket out --key 'm.zt' --upload-id", said)
                self.assertEqual([name for name in self.entries() if name != "out.zt"], before)
                self.assertFalse([request for request in self.cdn.requests if "authorization" in request.headers])
                self.assertEqual(self.proxy.requests, [])
            except AssertionError as fault:
                wrong.append(f"{row.name}: {fault}\n{said}")
        self.assertEqual(wrong, [], "\n".join(wrong))


if __name__ == "__main__":
    unittest.main()
