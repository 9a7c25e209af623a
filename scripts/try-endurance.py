#!/usr/bin/python3 -B
"""A bad night: converts s3 to s3 while the server is slow, ends connections, is out, restarts, and credentials expire.

    scripts/try-endurance.py [--minutes N] [--seed N] [--kilobytes N] [--folder DIR]

Of an hour (the default): 20 renewals of credentials, 30 outages of 1 to 120 s, of four kinds (nobody listens, 503, an endless
silence, pages of a proxy), 200 connections that are reset, 5 restarts, at N kB/s (160; four times as much where it is written). Less time has as much of all in
proportion, outages as many and as much shorter. Prints what happened. Exit status 1 if the object is not, byte for byte, what the same
conversion writes here, if parts are left, or if the run shows a secret. The program is that of build/release, or ZTSTREAM.
"""
import argparse
import datetime
import json
import mmap
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("ZTSTREAM") or str(ROOT / "build/release/bin/ztstream")
sys.path.insert(0, str(ROOT / "tests/lib"))
import remote_server  # noqa: E402
from remote_server import Answer, SECRET, ACCESS  # noqa: E402

OUTAGES, DROPS, RENEWALS, RESTARTS = 30, 200, 20, 5


class Pace:
    """Lets `rate` bytes a second pass, of all who ask together."""

    def __init__(self, rate):
        self.rate, self.next, self.lock = rate, time.monotonic(), threading.Lock()

    def __call__(self, length):
        with self.lock:
            now = time.monotonic()
            self.next = max(self.next, now) + length / self.rate
            wait = self.next - now
        time.sleep(wait)


class Store(remote_server.Store):
    """One that takes each session token until it expires."""

    def __init__(self, lifetime):
        super().__init__()
        self.lifetime, self.tokens, self.refused = lifetime, {}, 0

    def give(self):
        """Credentials, as an agent of a container does."""
        now = time.time()
        token = f"token-that-nobody-may-see-{len(self.tokens)}"
        self.tokens[token] = now + self.lifetime
        expires = datetime.datetime.fromtimestamp(now + self.lifetime, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Answer(200, {}, json.dumps({"AccessKeyId": ACCESS, "SecretAccessKey": SECRET, "Token": token, "Expiration": expires}).encode())

    def check(self, request):
        if self.tokens.get(request.headers.get("x-amz-security-token"), 0) < request.came:
            self.refused += 1
            return remote_server.error(400, "ExpiredToken", "The provided token has expired.")
        return super().check(request)


class Night(remote_server.Server):
    def __init__(self, seconds, rate, seed):
        super().__init__()
        self.store = Store(1.4 * seconds / RENEWALS)  # a program renews what lives so short from half of its life on
        self.store.buckets = {"in": {}, "out": {}}
        self.seconds, self.random, self.over = seconds, random.Random(seed), threading.Event()
        self.pace, self.incoming = Pace(rate), Pace(4 * rate)
        self.outage, self.count = None, dict.fromkeys(("outages", "seconds of them", "connections reset", "restarts"), 0)
        self.fault = self.strike

    def pieces(self, read, length):
        # What is written passes beside what is read.
        pace = self.incoming if getattr(read, "__self__", None).__class__.__name__ == "BufferedReader" else self.pace
        while length > 0 and (piece := read(min(length, 8192))):
            pace(len(piece))
            length -= len(piece)
            yield piece

    def strike(self, request):
        with self.lock:
            self.requests.clear()
        if request.path.startswith("/credentials"):
            return self.store.give()
        if self.outage == "silence":
            self.over.wait(200)
            return Answer(drop=True)
        return {"busy": remote_server.error(503, "SlowDown"), "page": Answer(502, {}, b"<html>Bad gateway</html>")}.get(self.outage)

    def close(self):
        """Nobody listens, and all connections end."""
        self.listener.shutdown()
        self.listener.server_close()
        self.reset_all()

    def reset_all(self):
        with self.lock:
            live = list(self.live)
        for connection in live:
            self.reset(connection)

    def open_again(self):
        self.listen()
        self.__enter__()

    def be_out(self, seconds, kind):
        self.over.clear()
        if kind == "nobody":
            self.close()
        else:
            self.outage = kind
            self.reset_all()
        time.sleep(seconds)
        self.outage = None
        self.over.set()
        if kind == "nobody":
            self.open_again()
        self.count["outages"] += 1
        self.count["seconds of them"] += seconds

    def restart(self):
        self.close()
        time.sleep(min(3, self.seconds / 200))
        self.open_again()
        self.count["restarts"] += 1

    def reset_one(self):
        for _ in range(100):
            with self.lock:
                chosen = self.random.choice(self.live) if self.live else None
            if chosen:
                self.reset(chosen)
                self.count["connections reset"] += 1
                return
            time.sleep(0.1)

    def plan(self):
        """(when, what) of the night, and how long the server is out in all."""
        scale = self.seconds / 3600
        lengths = [scale * 120 ** (number / (OUTAGES - 1)) for number in range(OUTAGES)]
        self.random.shuffle(lengths)
        kinds = [("nobody", "busy", "silence", "page")[number % 4] for number in range(OUTAGES)]
        events = [(lambda length=length, kind=kind: self.be_out(length, kind)) for length, kind in zip(lengths, kinds)]
        events += [self.reset_one] * DROPS + [self.restart] * RESTARTS
        self.random.shuffle(events)
        # The time between them, in which bytes pass, is shared out evenly; an end is left for what was lost.
        gap = (self.seconds - sum(lengths)) * 0.9 / len(events)
        return gap, events, sum(lengths)

    def run(self, gap, events, ended):
        for event in events:
            if ended.wait(self.random.uniform(0, 2 * gap)):
                return
            event()


def make(path, size):
    """A file of safetensors that nothing repeats in."""
    rows = max(1, size // 4096 // 16)
    header = json.dumps({f"layer.{number}": {"dtype": "F32", "shape": [rows, 1024], "data_offsets": [number * rows * 4096, (number + 1) * rows * 4096]}
                         for number in range(16)}).encode()
    generator = random.Random(7)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(16):
            file.write(generator.randbytes(rows * 4096))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kilobytes", type=float, default=160)
    parser.add_argument("--folder")
    given = parser.parse_args()
    seconds, rate = 60 * given.minutes, 1000 * given.kilobytes
    with tempfile.TemporaryDirectory(prefix="try-endurance-", dir=given.folder) as folder:
        folder = pathlib.Path(folder)
        night = Night(seconds, rate, given.seed)
        gap, events, out = night.plan()
        source = folder / "m.safetensors"
        make(source, int(rate * (seconds - out) * 0.9))
        subprocess.run([PROGRAM, "convert", source, "-o", folder / "want.zt"], check=True)
        with open(source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            night.store.buckets["in"]["m.safetensors"] = (content, '"etag"', {})
            return watch(night, gap, events, folder, seconds)


def watch(night, gap, events, folder, seconds):
    with night:
        environment = night.environment(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_CONTAINER_CREDENTIALS_FULL_URI=night.origin + "/credentials")
        del environment["ZTSTREAM_RETRY_SECONDS"]
        ended = threading.Event()
        begin = time.monotonic()
        with open(folder / "said", "wb") as said:
            started = subprocess.Popen([PROGRAM, "convert", "s3://in/m.safetensors", "-o", "s3://out/m.zt", "--part-size", "5MiB"],
                                       stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=dict(os.environ, **environment))
            events = threading.Thread(target=night.run, args=(gap, events, ended), daemon=True)
            events.start()
            words = pathlib.Path(f"/proc/{started.pid}/cmdline").read_bytes()
            try:
                status = started.wait(3 * seconds + 600)
            except subprocess.TimeoutExpired:
                started.kill()
                status = started.wait()
        took = time.monotonic() - begin
        ended.set()
        events.join()
    text = (folder / "said").read_bytes()
    print(text.decode(errors="replace").strip())
    renewed = len(night.store.tokens) - 1
    print(f"{took:.0f} s, exit status {status}: {renewed} renewals, {night.store.refused} requests with expired credentials, "
          + ", ".join(f"{count:.0f} {what}" for what, count in night.count.items()))
    wrong = []
    found = night.store.buckets["out"].get("m.zt", (b"",))[0]
    if status != 0 or found != (folder / "want.zt").read_bytes():
        wrong.append(f"the object has {len(found)} bytes, and is not what is written here")
    if night.store.uploads:
        wrong.append(f"{len(night.store.uploads)} uploads are left")
    if any(secret.encode() in text + words for secret in (SECRET, *night.store.tokens)):
        wrong.append("a secret is shown")
    least = {"outages": OUTAGES, "connections reset": DROPS, "restarts": RESTARTS}
    if renewed < RENEWALS or any(night.count[what] < count for what, count in least.items()):
        wrong.append("the night was shorter than it should be")
    print("\n".join(wrong or [f"the same {len(found)} bytes as here"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
