"""Several stores of one process. Argument: the program remote_answers_test, whose tests of stores ask the server of this one."""
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).parent / "lib")]

import remote_server

count = itertools.count()


def answer(request):
    is_signed = "authorization" in request.headers
    if request.path.startswith("/echo/"):
        return remote_server.Answer(200, {}, request.query.encode())
    if request.path.startswith("/status"):
        status = int(re.search(r"\d{3}", request.path + request.query)[0])
        return None if status == 200 and "list-type" in request.query else remote_server.Answer(status, {"ETag": '"1"'})
    if request.path == "/closed/counts":
        return remote_server.Answer(200, {"ETag": f'"{next(count)}"'}, b"%d" % next(count))
    if is_signed == request.path.startswith("/open/"):
        return remote_server.error(403, "AccessDenied")
    return None


with remote_server.Server() as server, tempfile.TemporaryDirectory() as home:
    server.fault = answer
    server.store.public = True
    server.store.buckets["status"] = {}
    for bucket in ("open", "closed"):
        server.store.buckets[bucket] = {f"m{i}": (b"content/m%d" % i, f'"{i}"', {}) for i in range(4)}
    os.mkdir(home + "/.aws")
    keys = f"aws_secret_access_key = {remote_server.SECRET}\n"
    pathlib.Path(home, ".aws/credentials").write_text(
        f"[good]\naws_access_key_id = {remote_server.ACCESS}\n{keys}[bad]\naws_access_key_id = AKIAOTHER\n{keys}", encoding="ascii")
    environment = server.environment(ZT_STORE=server.origin, AWS_ENDPOINT_URL="http://127.0.0.1:1", HOME=home, AWS_CONFIG_FILE="",
                                     AWS_SHARED_CREDENTIALS_FILE="")
    done = subprocess.run([sys.argv[1], "--gtest_filter=Stores.*"], env={**os.environ, **environment}, check=False)
sys.exit(done.returncode)
