#!/usr/bin/python3
"""Measures ztstream beside its contenders and draws the result: docs/BENCHMARKS.md, docs/benchmarks/*.svg, *.json.

  compare.py [--program build/release/bin/ztstream] [--reference PATH] [--folder DIR] [--docs docs] [--runs 5]
             [--size BYTES] [--quick]

Makes its own data in DIR and removes it. Contenders run in turn, so that all meet the same machine; what is given is
the median, with the fastest and slowest run. Warm: the input was read just before. Cold: its pages were dropped from
the page cache. Synced: the time includes getting the output to the disk (cp and others are followed by `sync FILE`).
--reference is the reference zTensor converter, called as `PATH convert INPUT -o OUTPUT [--compress]`.
SIZE defaults to what the machine bears: at most 4 GiB, a tenth of the free disk, a quarter of the memory. --quick: a
smoke run of small sizes. Needs python3-numpy; contenders and pictures whose packages are absent are left out, saying
so (zstd, python3-matplotlib, the safetensors package).
"""
import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = 1 << 22  # values made at once
WIDTH = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "F16": 2}


# ---- data --------------------------------------------------------------------------------------------------------

def bf16(numpy, values):
    bits = values.view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def block_of(numpy, kind, random, count):
    """`count` bytes of that kind."""
    if kind == "int4":
        nibbles = numpy.clip(numpy.rint(random.standard_normal(2 * count, dtype=numpy.float32) * 2.5) + 8, 0, 15)
        nibbles = nibbles.astype(numpy.uint8)
        return (nibbles[::2] | nibbles[1::2] << 4).tobytes()
    values = random.standard_normal(count // {"f32": 4, "fp8": 1}.get(kind, 2), dtype=numpy.float32)
    if kind == "f32":
        return (values * numpy.float32(0.02)).tobytes()
    if kind == "fp8":  # weights of about one, with the mantissa of f8_e4m3 cut from f32
        bits = values.view(numpy.uint32)
        exponent = numpy.clip((bits >> 23 & 0xFF).astype(numpy.int32) - 120, 0, 14).astype(numpy.uint8)
        return ((bits >> 24 & 0x80).astype(numpy.uint8) | exponent << 3 | (bits >> 20 & 7).astype(numpy.uint8)).tobytes()
    if kind == "ternary":
        values = numpy.sign(values) * (numpy.abs(values) > 0.67) * numpy.float32(0.02)
        return bf16(numpy, values.astype(numpy.float32)).tobytes()
    values *= numpy.float32(0.02)
    if kind == "pruned":
        values[random.random(values.size, dtype=numpy.float32) < 0.8] = 0
    return bf16(numpy, values).tobytes()


def llama_shapes():
    """Llama-3.2-1B: [(name, shape)] of bf16."""
    yield "model.embed_tokens.weight", (128256, 2048)
    for layer in range(16):
        for name, shape in (("self_attn.q_proj", (2048, 2048)), ("self_attn.k_proj", (512, 2048)),
                            ("self_attn.v_proj", (512, 2048)), ("self_attn.o_proj", (2048, 2048)),
                            ("mlp.gate_proj", (8192, 2048)), ("mlp.up_proj", (8192, 2048)),
                            ("mlp.down_proj", (2048, 8192)), ("input_layernorm", (2048,)),
                            ("post_attention_layernorm", (2048,))):
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", (2048,)


def write_safetensors(*arguments, **options):
    """In a process of its own: a contender's peak memory is counted from this one's size when it is started."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            make_safetensors(*arguments, **options)
            status = 0
        except BaseException as error:  # noqa: BLE001, reported here, as the child must not return
            print(f"compare.py: {error!r}", file=sys.stderr)
        os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("compare.py: cannot make the data")


def make_safetensors(path, dtype, shapes, kind, seed=1, sparse=False):
    header, at = {}, 0
    for name, shape in shapes:
        size = WIDTH[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            out.truncate(8 + len(text) + at)
            return
        import numpy
        random = numpy.random.default_rng(seed)
        pool = block_of(numpy, kind, random, 2 * BLOCK)
        left = at
        while left > 0:  # cuts at varying places: no cut repeats where a compressor would see it
            begin = int(random.integers(0, len(pool) // 8)) * 4
            piece = pool[begin:begin + min(left, len(pool) - begin)]
            out.write(piece)
            left -= len(piece)


def equal_shapes(count, values):
    return [(f"blocks.{i}.weight", (values,)) for i in range(count)]


def workloads(size, quick):
    """{name: (dtype, shapes, kind)}"""
    def large(width):
        each = max(1024, min(size // width // 16, 1 << 26))
        return equal_shapes(max(1, size // width // each), each)
    small = 2000 if quick else 50000
    out = {"bf16": ("BF16", large(2), "bf16"), "f32": ("F32", large(4), "f32"), "fp8": ("F8_E4M3", large(1), "fp8"),
           "int4 packed": ("U8", large(1), "int4"), "pruned 80 %": ("BF16", large(2), "pruned"),
           "ternary": ("BF16", large(2), "ternary"),
           f"{small:,} tensors of 10 KB": ("BF16", equal_shapes(small, 5120), "bf16")}
    llama = list(llama_shapes())
    if 2 * sum(math.prod(shape) for _, shape in llama) <= size:
        out["Llama-3.2-1B shapes"] = ("BF16", llama, "bf16")
    else:
        print("left out: Llama-3.2-1B shapes need --size 2.5e9 or more", flush=True)
    return out


# ---- running -----------------------------------------------------------------------------------------------------

NUMPY_COPY = """
import json, struct, sys, numpy, os
f = open(sys.argv[1], "rb")
header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
start = f.tell()
kinds = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F8_E4M3": "u1", "U8": "u1"}
with open(sys.argv[2], "wb") as out:
    for entry in header.values():
        begin, end = entry["data_offsets"]
        f.seek(start + begin)
        kind = numpy.dtype(kinds[entry["dtype"]])
        numpy.save(out, numpy.fromfile(f, kind, (end - begin) // kind.itemsize).reshape(entry["shape"]))
"""
SAFETENSORS_COPY = """
import sys
from safetensors.numpy import load_file, save_file
save_file(load_file(sys.argv[1]), sys.argv[2])
"""


class Bench:
    def __init__(self, options):
        self.options = options
        self.program = str(options.program.resolve())
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ztstream-compare-", dir=options.folder))
        self.output = str(self.folder / "out")

    def convert(self, source, *extra, out=None):
        return [self.program, "convert", "-q", "-f", str(source), "-o", out or self.output, *extra]

    def contenders(self, source, dtype):
        threads = f"-T{os.cpu_count()}"
        out = {"ztstream": self.convert(source), "ztstream --zstd": self.convert(source, "--zstd"),
               "ztstream --zstd=huffman": self.convert(source, "--zstd=huffman"), "cp": ["cp", str(source), self.output]}
        if shutil.which("zstd"):
            out[f"zstd -1 {threads}"] = ["zstd", "-q", "-f", "-1", threads, str(source), "-o", self.output]
        out["numpy.save"] = [sys.executable, "-c", NUMPY_COPY, str(source), self.output]
        if importlib.util.find_spec("safetensors") and dtype in ("F32", "F16", "U8"):  # numpy has no name for others
            out["safetensors (Python)"] = [sys.executable, "-c", SAFETENSORS_COPY, str(source), self.output]
        if self.options.reference:
            for name, extra in (("reference", []), ("reference --compress", ["--compress"])):
                out[name] = [str(self.options.reference), "convert", str(source), "-o", self.output, *extra]
        return out

    def once(self, command, source=None, cold=False, sync=False):
        """(seconds, peak resident bytes) of one run that must succeed."""
        if os.path.exists(self.output):
            os.unlink(self.output)
        os.sync()
        if source is not None:
            with open(source, "rb") as f:
                if cold:
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                else:
                    while f.read(1 << 24):
                        pass
        ours = command[0] == self.program
        if ours and not sync:
            command = [*command, "--no-sync"]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status == 0 and sync and not ours:
            with open(self.output, "rb+") as f:
                os.fsync(f.fileno())
        seconds = time.perf_counter() - begin
        if status != 0:
            raise RuntimeError(f"status {os.waitstatus_to_exitcode(status)}: {' '.join(command[:4])} ...")
        return seconds, usage.ru_maxrss * 1024

    def compare(self, source, contenders, **how):
        """[{name, median, low, high, peak, output}], contenders run in turn."""
        times, peaks, sizes = {}, {}, {}
        absent = set()
        for _ in range(self.options.runs):
            for name, command in contenders.items():
                if name in absent:
                    continue
                try:
                    seconds, peak = self.once(command, source, **how)
                except RuntimeError as error:
                    print(f"  left out: {name}: {error}", flush=True)
                    absent.add(name)
                    continue
                times.setdefault(name, []).append(seconds)
                peaks[name] = max(peaks.get(name, 0), peak)
                sizes[name] = os.path.getsize(self.output) if os.path.exists(self.output) else 0
        return [{"name": name, "median": statistics.median(values), "low": min(values), "high": max(values),
                 "peak": peaks[name], "output": sizes[name]} for name, values in times.items() if name not in absent]

    # ---- sections ------------------------------------------------------------------------------------------------

    def throughput(self):
        rows = []
        for name, (dtype, shapes, kind) in workloads(self.options.size, self.options.quick).items():
            source = self.folder / "in.safetensors"
            write_safetensors(source, dtype, shapes, kind)
            size = source.stat().st_size
            for cold in (False, True):
                for sync in (False, True):
                    print(f"{name}: {'cold' if cold else 'warm'}{', synced' if sync else ''}", flush=True)
                    for row in self.compare(source, self.contenders(source, dtype), cold=cold, sync=sync):
                        rows.append({"workload": name, "cold": cold, "sync": sync, "input": size, **row})
            source.unlink()
        return rows

    def settings(self):
        """bf16 with each thread count, and each zstd setting, to nowhere."""
        source = self.folder / "in.safetensors"
        _, (dtype, shapes, kind) = next(iter(workloads(self.options.size, self.options.quick).items()))
        write_safetensors(source, dtype, shapes, kind)
        size = source.stat().st_size
        counts = sorted({1, 2, os.cpu_count()} | {1 << k for k in range(8) if 1 << k <= os.cpu_count()})
        threads, levels = [], []
        for extra in ([], ["--zstd"], ["--zstd=huffman"]):
            commands = {str(n): self.convert(source, f"-T{n}", *extra, out="/dev/null") for n in counts}
            for row in self.compare(source, commands):
                threads.append({"setting": " ".join(extra) or "raw", "threads": int(row.pop("name")), "input": size, **row})
        settings = ["huffman", "-5", "-1", "1", "3"] + ([] if self.options.quick else ["6", "9"])
        for row in self.compare(source, {s: self.convert(source, f"--zstd={s}") for s in settings}):
            levels.append({"input": size, **row})
        source.unlink()
        return threads, levels

    def growth(self):
        """Seconds and memory by input size (sparse, to nowhere) and by tensor count (1 KB each)."""
        sizes, counts = [], []
        source = self.folder / "in.safetensors"
        top = 28 if self.options.quick else 36
        for power in range(20, top + 1, 2):
            shapes = equal_shapes(16, (1 << power) // 32)
            write_safetensors(source, "BF16", shapes, None, sparse=True)
            for extra in ([], ["--zstd"]):
                seconds, peak = self.once(self.convert(source, *extra, out="/dev/null"))
                sizes.append({"setting": " ".join(extra) or "raw", "input": 1 << power, "seconds": seconds, "peak": peak})
                print(f"{1 << power} bytes {' '.join(extra)}: {seconds:.3f} s, {peak >> 20} MiB", flush=True)
        # Beyond some 700,000 tensors one header is above safetensors' limit: a million come in two files.
        for count in [1, 10, 100, 1000, 10000] + ([] if self.options.quick else [100000, 1000000]):
            parts = [source] if count < 500000 else [source, self.folder / "in2.safetensors"]
            for n, part in enumerate(parts):
                shapes = [(f"part{n}.{name}", shape) for name, shape in equal_shapes(count // len(parts), 512)]
                write_safetensors(part, "BF16", shapes, None, sparse=True)
            command = self.convert(parts[0], *map(str, parts[1:]), out="/dev/null")
            seconds, peak = self.once(command)
            counts.append({"tensors": count, "seconds": seconds, "peak": peak})
            print(f"{count} tensors: {seconds:.3f} s, {peak >> 20} MiB", flush=True)
        return sizes, counts


def worse_than_linear(points, key):
    """Steps whose cost grew more than 1.5 times as much as `key`; below a tenth of a second start-up is the cost."""
    return [f"{a[key]:,} to {b[key]:,}" for a, b in zip(points, points[1:])
            if a["seconds"] > 0.1 and b["seconds"] / a["seconds"] > 1.5 * b[key] / a[key]]


# ---- the report --------------------------------------------------------------------------------------------------

def machine(bench):
    def said(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            return "absent"
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
               platform.machine())
    out = {"date": datetime.date.today().isoformat(), "cpu": cpu, "cpus": os.cpu_count(),
           "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "kernel": platform.release(),
           "filesystem": said("stat", "-f", "-c", "%T", str(bench.folder)), "load": round(os.getloadavg()[0], 1),
           "ztstream": said(bench.program, "--version"), "cp": said("cp", "--version"),
           "zstd": said("zstd", "--version"), "numpy": importlib.metadata.version("numpy")}
    if bench.options.reference:
        out["reference"] = said(str(bench.options.reference), "--version")
    return out


def rate(row):
    return row["input"] / row["median"] / 1e6


def table(results):
    out = ["# Benchmarks", "", "Written by `bench/compare.py`; the figures are those of one machine in one sitting. "
           "Medians; ratios below 1 are faster than `cp`.", ""]
    out += [f"- {key}: {value}" for key, value in results["machine"].items()]
    out += [f"- runs: {results['runs']}", ""]
    out += [f"![{name}](benchmarks/{name}.svg)" for name in results.get("pictures", [])] + [""]
    for cold in (False, True):
        for sync in (False, True):
            out += [f"## {'Cold' if cold else 'Warm'} page cache, {'synced' if sync else 'not synced'}", "",
                    "| workload | contender | s | fastest to slowest | MB/s | / cp | size | resident MiB |",
                    "|---|---|---|---|---|---|---|---|"]
            rows = [r for r in results["throughput"] if r["cold"] == cold and r["sync"] == sync]
            base = {r["workload"]: r["median"] for r in rows if r["name"] == "cp"}
            for r in rows:
                to_cp = f"{r['median'] / base[r['workload']]:.2f}" if r["workload"] in base else ""
                out.append(f"| {r['workload']} | {r['name']} | {r['median']:.3f} | {r['low']:.3f} to {r['high']:.3f} | "
                           f"{rate(r):.0f} | {to_cp} | {100 * r['output'] / r['input']:.1f} % | {r['peak'] / 2**20:.0f} |")
            out.append("")
    out += ["## Threads, bf16, to nowhere", "", "| setting | threads | s | MB/s |", "|---|---|---|---|"]
    out += [f"| {r['setting']} | {r['threads']} | {r['median']:.3f} | {rate(r):.0f} |" for r in results["threads"]]
    out += ["", "## Compression, bf16", "", "| --zstd= | s | MB/s | size |", "|---|---|---|---|"]
    out += [f"| {r['name']} | {r['median']:.3f} | {rate(r):.0f} | {100 * r['output'] / r['input']:.1f} % |"
            for r in results["levels"]]
    out += ["", "## How cost grows", "", "Sparse inputs to `/dev/null`.", "",
            "| bytes | setting | s | resident MiB |", "|---|---|---|---|"]
    out += [f"| {r['input']:,} | {r['setting']} | {r['seconds']:.3f} | {r['peak'] / 2**20:.0f} |" for r in results["sizes"]]
    out += ["", "| tensors of 1 KB | s | resident MiB |", "|---|---|---|"]
    out += [f"| {r['tensors']:,} | {r['seconds']:.3f} | {r['peak'] / 2**20:.0f} |" for r in results["counts"]]
    out += ["", "Steps that cost more than linear growth would: " + ("; ".join(results["worse_than_linear"]) or "none") +
            ".", ""]
    return "\n".join(out)


def draw(results, folder):
    """The pictures' names; none without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("no pictures: python3-matplotlib is not installed")
        return []
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ztstream"
    from matplotlib import pyplot
    names = []

    def save(name, axes, x, y, log=""):
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if "x" in log:
            axes.set_xscale("log")
        if "y" in log:
            axes.set_yscale("log")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
        axes.figure.tight_layout()
        axes.figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        pyplot.close(axes.figure)
        names.append(name)

    rows = [r for r in results["throughput"] if not r["cold"] and not r["sync"]]
    works, who = list(dict.fromkeys(r["workload"] for r in rows)), list(dict.fromkeys(r["name"] for r in rows))
    axes = pyplot.subplots(figsize=(12, 5))[1]
    for i, name in enumerate(who):
        mine = {r["workload"]: rate(r) for r in rows if r["name"] == name}
        axes.bar([w + i * 0.8 / len(who) for w in range(len(works))], [mine.get(w, 0) for w in works],
                 0.8 / len(who), label=name)
    axes.set_xticks([w + 0.4 for w in range(len(works))], works, rotation=15)
    save("throughput", axes, "", "MB/s, warm, not synced")

    axes = pyplot.subplots()[1]
    for setting in dict.fromkeys(r["setting"] for r in results["threads"]):
        mine = [r for r in results["threads"] if r["setting"] == setting]
        axes.plot([r["threads"] for r in mine], [rate(r) for r in mine], "o-", label=setting)
    save("threads", axes, "threads", "MB/s")

    axes = pyplot.subplots()[1]
    for r in results["levels"]:
        axes.plot(rate(r), 100 * r["output"] / r["input"], "o")
        axes.annotate(r["name"], (rate(r), 100 * r["output"] / r["input"]))
    save("ratio", axes, "MB/s", "size, % of the input")

    for name, key, y, log in (("memory", "peak", "resident bytes", "x"), ("growth-bytes", "seconds", "seconds", "xy")):
        axes = pyplot.subplots()[1]
        for setting in dict.fromkeys(r["setting"] for r in results["sizes"]):
            mine = [r for r in results["sizes"] if r["setting"] == setting]
            axes.plot([r["input"] for r in mine], [r[key] for r in mine], "o-", label=setting)
        if name == "memory":
            axes.set_ylim(bottom=0)
        save(name, axes, "bytes of input", y, log)
    axes = pyplot.subplots()[1]
    axes.plot([r["tensors"] for r in results["counts"]], [r["seconds"] for r in results["counts"]], "o-")
    save("growth-tensors", axes, "tensors of 1 KB", "seconds", "xy")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/bin/ztstream")
    parser.add_argument("--reference", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--size", type=lambda text: int(float(text)))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fits = min(4 << 30, shutil.disk_usage(options.folder).free // 10, memory // 4)
    options.size = options.size or (16 << 20 if options.quick else fits)
    options.runs = options.runs or (1 if options.quick else 5)

    bench = Bench(options)
    try:
        results = {"machine": machine(bench), "runs": options.runs, "size": options.size}
        for key, value in results["machine"].items():
            print(f"{key}: {value}", flush=True)
        for program in ("zstd",):
            if not shutil.which(program):
                print(f"left out: {program} is not installed")
        if not importlib.util.find_spec("safetensors"):
            print("left out: Python's safetensors is not installed")
        if not options.reference:
            print("left out: the reference converter (--reference)")
        results["throughput"] = bench.throughput()
        results["threads"], results["levels"] = bench.settings()
        results["sizes"], results["counts"] = bench.growth()
    finally:
        shutil.rmtree(bench.folder)
    raw = [r for r in results["sizes"] if r["setting"] == "raw"]
    packed = [r for r in results["sizes"] if r["setting"] != "raw"]
    results["worse_than_linear"] = [f"{step} bytes" for points in (raw, packed) for step in
                                    worse_than_linear(points, "input")]
    results["worse_than_linear"] += [f"{step} tensors" for step in worse_than_linear(results["counts"], "tensors")]
    pictures = options.docs / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    results["pictures"] = draw(results, pictures)
    (pictures / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.docs / "BENCHMARKS.md").write_text(table(results))
    print(f"wrote {options.docs / 'BENCHMARKS.md'} and {pictures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
