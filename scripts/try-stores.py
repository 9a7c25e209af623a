#!/usr/bin/python3 -B
"""Tries s3:// with servers that are not ours, each that is found here: what each does, row by row.

    scripts/try-stores.py [STORE...]

  s3rver    of npm: `npm install --prefix DIR s3rver`, and DIR/node_modules/.bin in PATH, or S3RVER=COMMAND
  moto      moto_server (Debian sid: python3-moto, python3-flask-cors), or MOTO=COMMAND
  radosgw   Ceph's, alone, with its store in a file (Debian sid: radosgw), or RADOSGW=COMMAND. Of 20.2.4 that store gives wrong bytes
            for a range, which is seen beforehand; a gateway of a cluster is tried as `endpoint`
  endpoint  any other: TRY_ENDPOINT=URL with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the empty bucket TRY_BUCKET

A COMMAND may be words, `chroot ROOT moto_server`. Exit status 1 if a store fails a row. The program is that of
build/release, or ZTSTREAM; curl signs what the rows ask of a store directly.
"""
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("ZTSTREAM") or str(ROOT / "build/release/bin/ztstream")
sys.path.insert(0, str(ROOT / "tests/lib"))
import remote_server  # noqa: E402

BUCKET = os.environ.get("TRY_BUCKET", "tried")
PARTS = ["--part-size", "5MiB"]


class Failed(Exception):
    pass


class Store:
    """A server that runs while this is in use as a context."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.access, self.secret, self.process, self.before, self.outside = "S3RVER", "S3RVER", None, None, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"

    def command(self):
        """The words that start it; None where it is not installed."""
        found = os.environ.get(self.name.upper()) or shutil.which({"moto": "moto_server"}.get(self.name, self.name))
        if not found:
            return None
        words = shlex.split(found)
        # What runs in another root sees the folder there.
        inside = self.folder
        if words[0] == "chroot":
            inside = pathlib.Path("/tmp") / f"try-stores-{os.getpid()}-{self.name}"
            self.outside = pathlib.Path(words[1] + str(inside))
            self.outside.mkdir(parents=True, exist_ok=True)
        if self.name == "s3rver":
            return [*words, "-d", inside, "-a", "127.0.0.1", "-p", self.port, "--silent"]
        if self.name == "moto":
            return [*words, "-H", "127.0.0.1", "-p", self.port]
        return self.radosgw(words, inside)

    def radosgw(self, words, inside):
        (self.outside or self.folder).joinpath("ceph.conf").write_text(f"""[global]
  run dir = {inside}
  rgw data = {inside}
  rgw backend store = dbstore
  rgw config store = dbstore
  dbstore db dir = {inside}
  dbstore config uri = file:{inside}/config.db
  rgw frontends = beast endpoint=127.0.0.1:{self.port}
  log file = {inside}/log
  rgw enable static website = false
  auth supported = none
[client.rgw]
""")
        self.access, self.secret = "tried", "secretoftried"
        common = ["-n", "client.rgw", "-c", inside / "ceph.conf", "--no-mon-config"]
        # The user is made before the store starts, by the program beside it.
        admin = [*words[:-1], words[-1] + "-admin", *common, "user", "create", "--uid", "tried", "--display-name", "tried",
                 "--access-key", self.access, "--secret-key", self.secret]
        self.before = [str(word) for word in admin]
        return [*words, *common, "-f"]

    def __enter__(self):
        if self.name == "endpoint":
            self.origin, self.access, self.secret = (os.environ[name] for name in ("TRY_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
            return self
        command = [str(word) for word in self.command()]
        with open(self.folder / "output", "wb") as output:
            if self.before:
                subprocess.run(self.before, stdout=output, stderr=output, check=False)
            self.process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                                            start_new_session=True)
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        status = self.curl("PUT", BUCKET)[0]
        if status not in (200, 204):
            self.__exit__()
            raise Failed(f"its bucket is not made ({status}): {(self.folder / 'output').read_text(errors='replace')[-300:]}")
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()
        if self.outside:
            shutil.rmtree(self.outside)

    def ranges(self, file):
        """Whether it gives a range of what was put as it was put, curl alone asking."""
        content = file.read_bytes()
        self.curl("PUT", BUCKET + "/ranges", "-T", file)
        self.curl("GET", BUCKET + "/ranges", "-r", "5000000-5009999", "-o", self.folder / "range")
        found = self.folder / "range"
        return found.exists() and found.read_bytes() == content[5_000_000:5_010_000]

    def curl(self, method, place, *more):
        """Status and body of a signed request."""
        done = subprocess.run(["curl", "-s", *more, "-X", method, "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{self.access}:{self.secret}",
                               "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-w", "\n%{http_code}", f"{self.origin}/{place}"],
                              capture_output=True, check=False)
        body, _, status = done.stdout.decode(errors="replace").rpartition("\n")
        return int(status or 0), body

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
        return kept | {"AWS_ENDPOINT_URL": self.origin, "AWS_ACCESS_KEY_ID": self.access, "AWS_SECRET_ACCESS_KEY": self.secret,
                       "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                       **more}

    def run(self, *words, status=0, **environment):
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, stdin=subprocess.DEVNULL, env=self.environment(**environment),
                              cwd=self.folder, timeout=300, check=False)
        if done.returncode not in (status if isinstance(status, tuple) else (status,)):
            raise Failed(f"{' '.join(map(str, words))}: {done.returncode}: {done.stderr.decode(errors='replace').strip()[-400:]}")
        return done


def same(found, wanted, what):
    if found != wanted:
        raise Failed(what)


class Rows:
    """What is tried. Each begins with the objects of those before it."""

    def __init__(self, store, file):
        self.store, self.file, self.folder = store, file, store.folder
        self.there = f"s3://{BUCKET}"
        store.run("convert", file, "-o", "local.zt")
        self.want = (self.folder / "local.zt").read_bytes()

    def read(self, name):
        self.store.run("convert", "-f", f"{self.there}/{name}", "-o", "back.zt")
        return (self.folder / "back.zt").read_bytes()

    def out_in_parts(self):
        self.store.run("convert", self.file, "-o", f"{self.there}/a b/m+1.zt", *PARTS)
        same(self.read("a b/m+1.zt"), self.want, "other bytes")

    def a_small_object(self):
        self.store.run("convert", self.file, "-o", f"{self.there}/small.zt")
        same(self.read("small.zt"), self.want, "other bytes")

    def checksums(self):
        done = self.store.run("convert", "-f", self.file, "-o", f"{self.there}/sums.zt", *PARTS, status=(0, 6), AWS_REQUEST_CHECKSUM_CALCULATION="when_supported")
        return "refused" if done.returncode else same(self.read("sums.zt"), self.want, "other bytes")

    def s3_to_s3(self):
        self.store.run("convert", f"{self.there}/small.zt", "-o", f"{self.there}/packed.zt", "--zstd=1", "--min-gain=-100", *PARTS)
        self.store.run("diff", f"{self.there}/packed.zt", self.file)
        self.store.run("verify", f"{self.there}/packed.zt", "--against", self.file)

    def is_kept_without_f(self):
        for size in (PARTS, []):
            self.store.run("convert", self.file, "-o", f"{self.there}/small.zt", "--zstd=1", *size, status=3)
        same(self.read("small.zt"), self.want, "it was replaced")
        self.store.run("convert", self.file, "-f", "-o", f"{self.there}/small.zt", *PARTS)

    def inspect(self):
        self.store.run("inspect", "--json", f"{self.there}/small.zt")
        self.store.run("inspect", f"{self.there}/none.zt", status=6)

    def extract(self):
        self.store.run("extract", f"{self.there}/packed.zt", "layer.1.*", "-o", "layer.safetensors")
        self.store.run("extract", f"{self.there}/packed.zt", "-o", f"{self.there}/all.safetensors")
        self.store.run("diff", f"{self.there}/all.safetensors", self.file)

    def shards(self):
        for number in (3, 1, 2):
            self.store.run("convert", f"{self.there}/small.zt", "-o", f"{self.there}/shards/m.zt", "--shard", f"{number}/3", *PARTS)
        self.store.run("join", *(f"{self.there}/shards/m-0000{number}-of-00003.zt" for number in (1, 2, 3)), "-o", f"{self.there}/shards/m.zt")
        for name in ("m.zt.index.json", ""):
            self.store.run("diff", f"{self.there}/shards/{name}", self.file)

    def abort(self):
        """A signal in the midst: no object and no upload."""
        started = subprocess.Popen([PROGRAM, "convert", "-", "-o", f"{self.there}/ended.zt", *PARTS], stdin=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=self.store.environment())
        started.stdin.write(self.file.read_bytes()[:12 << 20])
        started.stdin.flush()
        time.sleep(1)
        status, listed = self.store.curl("GET", BUCKET + "?uploads=")
        known = status == 200 and "ListMultipartUploadsResult" in listed
        begun = listed.count("<UploadId>")
        started.send_signal(signal.SIGTERM)
        started.wait(timeout=60)  # its standard input stays open until then
        errors = started.communicate()[1].decode(errors="replace").strip()
        same(started.returncode, 130, f"exit status {started.returncode}: {errors}")
        self.store.run("inspect", f"{self.there}/ended.zt", status=6)
        left = self.store.curl("GET", BUCKET + "?uploads=")[1].count("<UploadId>") if known else 0
        if "remove them with: aws s3api abort-multipart-upload" in errors:
            return "the store refuses to abort, which is told"
        same(left, 0, f"{left} uploads are left; it said: {errors}")
        return f"{begun} upload begun, none left" if known else "done, and the store lists no uploads"

    def _uploads(self, key):
        """How many uploads of a key the store lists; None where it lists none."""
        status, listed = self.store.curl("GET", BUCKET + "?uploads=")
        return listed.count(f"<Key>{key}</Key>") if status == 200 and "ListMultipartUploadsResult" in listed else None

    def continued(self):
        """A run is killed in the midst, and the next one takes its upload, or says that it cannot."""
        killed = subprocess.Popen([PROGRAM, "convert", "-", "-o", f"{self.there}/continued.zt", "--resume", *PARTS], stdin=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=self.store.environment())
        killed.stdin.write(self.file.read_bytes()[:12 << 20])
        killed.stdin.flush()
        time.sleep(2)
        killed.kill()
        killed.communicate()
        if self._uploads("continued.zt") is None:
            self.store.run("convert", self.file, "-o", f"{self.there}/continued.zt", "--resume", *PARTS, status=(4, 6))
            return "the store lists no uploads, which is told"
        same(self._uploads("continued.zt"), 1, "the killed run left no upload")
        self.store.run("convert", self.file, "-o", f"{self.there}/continued.zt", "--resume", *PARTS)
        same(self._uploads("continued.zt"), 0, "the upload was not taken")
        same(self.read("continued.zt"), self.want, "other bytes")

    def a_wrong_secret(self):
        done = self.store.run("inspect", f"{self.there}/small.zt", status=(0, 6), AWS_SECRET_ACCESS_KEY="wrong")
        return "refused" if done.returncode else "taken: it checks no signatures"


def attempt(name, folder, file):
    """Whether all rows of a store were well; None where it is not here."""
    store = Store(name, folder)
    if name == "endpoint" and "TRY_ENDPOINT" not in os.environ or name != "endpoint" and store.command() is None:
        print(f"{name}: not installed here, skipped", flush=True)
        return None
    good = True
    try:
        with store:
            if not store.ranges(file):
                print(f"{name:9} {'ranges':20} it gives other bytes than were put, to curl too: skipped", flush=True)
                return None
            rows = Rows(store, file)
            for row in [row for row in vars(Rows) if not row.startswith("_") and row != "read"]:
                try:
                    said = getattr(rows, row)() or "ok"
                except Failed as failure:
                    good, said = False, f"FAILED: {failure}"
                print(f"{name:9} {row:20} {said}", flush=True)
    except Failed as failure:
        print(f"{name:9} {'start':20} FAILED: {failure}", flush=True)
        return False
    return good


def main():
    with tempfile.TemporaryDirectory(prefix="try-stores-") as folder:
        folder = pathlib.Path(folder)
        file = remote_server.big_file(folder / "model.safetensors", tensors=12)
        found = [attempt(name, folder, file) for name in sys.argv[1:] or ("s3rver", "moto", "radosgw", "endpoint")]
    return 1 if False in found or not any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
