#!/usr/bin/python3
"""Measures files on servers: the program beside what the link allows, `curl -Z` and `aws s3 cp`.

  bench/remote.py [--size SIZE] [--runs N] [--program PROGRAM] [STEP...]

  latency     50 ms of round trip and 40 MB/s a connection (bench/link.py): reading, writing, s3 to s3. Not bound by the processor
  loopback    without limits, beside curl -Z and aws s3 cp
  memory      the most memory of each way
  inspect     a .zt file of 1 TB and 100,000 tensors, of holes: requests, bytes, seconds; extract of one layer

nginx serves what is read over http, the bucket of bench/link.py what is s3://. What the connections in flight allow is what
curl -Z reaches with as many connections and requests of the same bytes, over the same link; beside it the rate by arithmetic: a
request costs a round trip and its bytes at the link's rate.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import link
from goals import goal
from make_checkpoint import parse_size
from measure import HERE, LAUNCH

ROOT = HERE.parent
ROUND_TRIP, RATE = 0.05, 40e6
SEGMENT, PART = 4 << 20, 16 << 20  # of a request that reads, of a part (docs/REMOTE.md)


class Remote:
    def __init__(self, options):
        self.program, self.runs = str(options.program.resolve()), options.runs
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ztstream-remote-", dir=options.folder))
        self.big, self.size = self.folder / "big.safetensors", options.size
        subprocess.run([sys.executable, HERE / "make_checkpoint.py", str(self.size), self.big], check=True)
        self.size = self.big.stat().st_size
        self.bucket = link.bucket(self.folder)
        self.web = self.nginx()

    def close(self):
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.folder)

    def nginx(self):
        with link.listen() as free:
            port = free.getsockname()[1]
        temporary = " ".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config = self.folder / "nginx.conf"
        config.write_text(f"""{"user root;" if os.geteuid() == 0 else ""} daemon off; worker_processes 2; pid {self.folder}/pid; error_log {self.folder}/errors;
events {{}}
http {{ access_log {self.folder}/access; log_format bytes "$body_bytes_sent"; access_log {self.folder}/bytes bytes; {temporary} sendfile on;
  keepalive_requests 100000; server {{ listen 127.0.0.1:{port} backlog=256; root {self.folder}; }} }}""")
        self.server = subprocess.Popen(["nginx", "-p", self.folder, "-c", config], stderr=subprocess.DEVNULL)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.02)
        sys.exit("remote.py: nginx does not listen")

    def environment(self, port):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
        return kept | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                       "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "*",
                       "AWS_CONFIG_FILE": str(self.folder / "config")}

    def once(self, command, port):
        """Seconds, processor seconds, peak bytes."""
        with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as errors:
            subprocess.run([sys.executable, "-ISc", LAUNCH, str(report.fileno()), *map(str, command)], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=errors, pass_fds=[report.fileno()], env=self.environment(port), check=False)
            report.seek(0)
            errors.seek(0)
            seconds, cpu, peak, status = report.read().split()
            if int(status) != 0:
                sys.exit(f"remote.py: {' '.join(map(str, command))[:300]}: {errors.read().decode()[:1000]}")
        return float(seconds), float(cpu), int(peak) << 10

    def in_turn(self, contenders):
        """{name: (median seconds, most peak bytes)} of {name: (command, port)}; they take turns."""
        found = {name: [] for name in contenders}
        for _ in range(self.runs):
            for name, (command, port) in contenders.items():
                found[name].append(self.once(command, port))
        for name, values in found.items():
            seconds = [value[0] for value in values]
            print(f"  {name:44} {statistics.median(seconds):8.3f} s  ({min(seconds):.3f} to {max(seconds):.3f})  "
                  f"{self.size / statistics.median(seconds) / 1e6:7.0f} MB/s  cpu {statistics.median(v[1] for v in values):6.2f} s  "
                  f"{max(v[2] for v in values) / 2**20:5.0f} MiB", flush=True)
        return {name: (statistics.median(value[0] for value in values), max(value[2] for value in values)) for name, values in found.items()}

    def read(self, url, out="/dev/null", *more):
        return [self.program, "convert", "-q", "-f", url, "-o", out, "--no-sync", *more]

    def curl(self, port, connections):
        """curl of the ranges that the program asks for, as many at once."""
        config = self.folder / f"curl-{port}-{connections}"
        url = f"http://127.0.0.1:{port}/{self.big.name}"
        config.write_text("next\n".join(f'url = "{url}"\nrange = "{at}-{min(at + SEGMENT, self.size) - 1}"\noutput = "/dev/null"\n'
                                        for at in range(0, self.size, SEGMENT)))
        return ["curl", "-s", "-Z", "--parallel-immediate", "--parallel-max", connections, "-K", config]


    def curl_put(self, port, connections):
        """curl of parts as the program sends them."""
        config, part = self.folder / f"put-{port}", self.folder / "part"
        part.write_bytes(bytes(PART))
        config.write_text("next\n".join(f'url = "http://127.0.0.1:{port}/out/part{at}"\nupload-file = "{part}"\noutput = "/dev/null"\n'
                                        for at in range(-(-self.size // PART))))
        return ["curl", "-s", "-Z", "--parallel-immediate", "--parallel-max", connections, "-K", config]


def share(what, found, curl, remote, connections, request):
    """The goal; and how near to arithmetic both come."""
    seconds, allowed = found[what][0], connections * request / (ROUND_TRIP + request / RATE)
    goal(f"{what}, of what {connections} connections allow", found[curl][0] / seconds, 0.9, at_most=False,
         note=f"({remote.size / seconds / allowed:.3f} by arithmetic, where curl -Z reaches {remote.size / found[curl][0] / allowed:.3f})")


def latency(remote):
    web, store = link.Link(remote.web, ROUND_TRIP, RATE), link.Link(remote.bucket, ROUND_TRIP, RATE)
    reading = remote.read(f"http://127.0.0.1:{web.port}/{remote.big.name}")
    writing = remote.read(remote.big, "s3://out/m.zt")
    remote.once(reading, store.port)
    readers = web.most()
    remote.once(writing, store.port)
    writers = store.most()
    found = remote.in_turn({
        "reading": (reading, store.port), f"curl -Z, {readers} at once": (remote.curl(web.port, readers), 0),
        "writing": (writing, store.port), f"curl -Z -T, {writers} at once": (remote.curl_put(store.port, writers), 0), "reading s3://": (remote.read("s3://in/" + remote.big.name), store.port),
        "s3 to s3": (remote.read("s3://in/" + remote.big.name, "s3://out/n.zt"), store.port)})
    share("reading", found, f"curl -Z, {readers} at once", remote, readers, SEGMENT)
    share("writing", found, f"curl -Z -T, {writers} at once", remote, writers, PART)
    slower = max(found["reading s3://"][0], found["writing"][0])
    goal("s3 to s3, of the slower of the two", found["s3 to s3"][0] / slower, 1.1)


def loopback(remote):
    connections = 10
    url = f"http://127.0.0.1:{remote.web}/{remote.big.name}"
    aws = ["aws", "s3", "cp", "--quiet", "--endpoint-url", f"http://127.0.0.1:{remote.bucket}", remote.big, "s3://out/a"]
    contenders = {"aws s3 cp": (aws, remote.bucket)} if shutil.which("aws") else {}
    found = remote.in_turn(contenders | {
        "reading": (remote.read(url), 0), f"curl -Z, {connections} at once": (remote.curl(remote.web, connections), 0),
        "writing": (remote.read(remote.big, "s3://out/m.zt"), remote.bucket),
        "reading s3://": (remote.read("s3://in/" + remote.big.name), remote.bucket),
        "s3 to s3": (remote.read("s3://in/" + remote.big.name, "s3://out/n.zt"), remote.bucket)})
    seconds = {name: each[0] for name, each in found.items()}
    goal("reading, of the rate of curl -Z", seconds[f"curl -Z, {connections} at once"] / seconds["reading"], 0.9, at_most=False)
    if contenders:
        goal("writing, of the rate of aws s3 cp", seconds["aws s3 cp"] / seconds["writing"], 1, at_most=False)
    else:
        print("  aws s3 cp: not installed (Debian: awscli)", flush=True)
    goal("s3 to s3, of the slower of the two", seconds["s3 to s3"] / max(seconds["reading s3://"], seconds["writing"]), 1.1)


def memory(remote):
    url, s3 = f"http://127.0.0.1:{remote.web}/{remote.big.name}", "s3://in/" + remote.big.name
    ways = {"http to a file": (remote.read(url, remote.folder / "out.zt"), 96), "http to nowhere": (remote.read(url), 96),
            "http to nowhere, --zstd=planes": (remote.read(url, "/dev/null", "--zstd=planes"), 96),
            "http to nowhere, -T8": (remote.read(url, "/dev/null", "-T8"), 288),
            "a file to s3": (remote.read(remote.big, "s3://out/m.zt"), 176), "s3 to s3": (remote.read(s3, "s3://out/n.zt"), 176),
            "s3 to s3, --zstd=planes": (remote.read(s3, "s3://out/p.zt", "--zstd=planes"), 176)}
    found = remote.in_turn({name: (command, remote.bucket) for name, (command, _) in ways.items()})
    for name, (_, most) in ways.items():
        goal(f"memory, {name}", found[name][1] / 2**20, most, unit=" MiB")


def terabyte(path, layers=1000, each=100, side=(2500, 2000)):
    """A .zt file of bf16 zeros, all holes but its manifest. The bytes of a layer and those of the manifest."""
    import cbor2
    at, objects, blob = 64, {}, 2 * side[0] * side[1]
    for number in range(layers * each):
        component = {"dtype": "bf16", "offset": at, "length": blob}
        objects[f"layers.{number // each}.experts.{number % each}.weight"] = {"shape": list(side), "format": "dense", "components": {"data": component}}
        at += (blob + 63) // 64 * 64
    manifest = cbor2.dumps({"version": "1.2.0", "objects": objects})
    with open(path, "wb") as file:
        file.write(b"ZTEN1000")
        file.seek(at)
        file.write(manifest + struct.pack("<Q", len(manifest)) + b"ZTEN1000")
    return each * blob, len(manifest)


def inspect(remote):
    path = remote.folder / "tera.zt"
    layer, manifest = terabyte(path)
    url, log = f"http://127.0.0.1:{remote.web}/{path.name}", remote.folder / "bytes"

    def asked(name, command):
        log.write_text("")
        seconds, cpu, peak = remote.once(command, 0)
        time.sleep(0.2)
        sizes = [int(line) for line in log.read_text().split()]
        print(f"  {name}: {len(sizes)} requests, {sum(sizes):,} bytes, {seconds:.2f} s ({cpu:.2f} s of processor), {peak >> 20} MiB", flush=True)
        return len(sizes), sum(sizes)

    print(f"  a file of {path.stat().st_size:,} bytes, its manifest {manifest:,}", flush=True)
    requests, size = asked("inspect", [remote.program, "inspect", "-q", url])
    goal("inspect of 1 TB and 100,000 tensors, requests for the manifest of 4 MiB each, and", requests - manifest // SEGMENT, 3)
    goal("inspect, bytes read over the manifest", size / manifest, 1.1)
    _, size = asked("extract of a layer", [remote.program, "extract", "-q", "-f", "--no-sync", url, "layers.500.*", "-o", "/dev/null", "--to", "safetensors"])
    goal("extract of a layer, bytes read over the layer's and the manifest's", size / (layer + manifest), 1.05)
    path.unlink()


STEPS = {"latency": latency, "loopback": loopback, "memory": memory, "inspect": inspect}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/bin/ztstream")
    parser.add_argument("--size", type=parse_size, default=10**9)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/dev/shm"))
    parser.add_argument("steps", nargs="*", metavar="STEP")
    options = parser.parse_args()
    remote = Remote(options)
    try:
        for step in options.steps or STEPS:
            print(step, flush=True)
            STEPS[step](remote)
    finally:
        remote.close()


if __name__ == "__main__":
    main()
