#!/usr/bin/python3
"""Measures ztstream beside its contenders, and writes docs/BENCHMARKS.md with its pictures (docs/benchmarks/).

  compare.py [--folder DIR] [--reference PATH]     all of it: some 30 minutes, 15 GB of DIR
  compare.py --quick --docs DIR                    a smoke run of small sizes, some minutes; its verdicts mean nothing
  compare.py throughput goals/raw ...              these sections or steps alone; the others' results are kept
  compare.py --docs DIR threads goals/workers      how it scales here, with 1, 2, 4 threads and so on to all there are
  compare.py --docs DIR --folder /dev/shm --before OLD threads
                                                   the same beside an earlier program; files are written to memory
  compare.py --resume                              what has no result yet, e.g. after an interruption
  compare.py --draw                                measures nothing: tables and pictures from the results there are
  compare.py --list                                the steps

Sections: throughput, threads, levels, growth, goals. Every step's result is kept in docs/benchmarks/results.json as
soon as it is there; a contender or step that fails is reported in its place and the rest goes on.

It makes its own data in DIR (a folder of its own there, removed at the end). Contenders run in turn, so that all meet
the same machine; what is given is the median, with the fastest and slowest run. Warm: the input was read just before.
Cold: its pages were dropped from the page cache. Synced: the time includes getting the output to the disk (other
programs' output is followed by fsync). --every-variant measures cold and synced with all workloads, not two alone.
--reference is the reference zTensor converter, called as `PATH convert INPUT -o OUTPUT [--compress]`; --reference-2 that of
2.0, called as `PATH convert INPUT OUTPUT`. --before is an earlier build of the program, which goals/before runs beside this one.
SIZE of a workload is 1 GB and of the goals 4 GiB, unless the disk or the memory is too small for that.

Needs python3-numpy; what else is absent is left out: zstd, python3-matplotlib (pictures), Python's safetensors.
"""
import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import time

import goals
import report
from make_checkpoint import DTYPES, parse_size
from measure import CPUS, Bench, Failed, filesystem

ROOT = pathlib.Path(__file__).resolve().parents[1]
VARIANTS = {"warm": {}, "warm, synced": {"sync": True}, "cold": {"cold": True},
            "cold, synced": {"cold": True, "sync": True}}


# ---- the steps ---------------------------------------------------------------------------------------------------

def workloads(options):
    """{name: (kind, arguments of make_checkpoint)}"""
    each = max(4096, options.size // 16)
    out = {name: (kind, [options.size, "--kind", kind, "--tensor-bytes", each])
           for name, kind in (("bf16", "bf16"), ("trained bf16", "trained"), ("f32", "f32"), ("fp8", "fp8"),
                              ("int4 packed", "int4"),
                              ("bf16, 80 % zeros", "pruned"), ("ternary in bf16", "ternary"))}
    count = 2000 if options.quick else 50000
    out[f"{count:,} tensors of 10 KB"] = ("bf16", [count * 10240, "--tensor-bytes", 10240])
    return out


def throughput(options, name, kind, arguments, variant):
    def run(bench):
        source = bench.make(*arguments)
        runs = options.runs if variant == "warm" else min(options.runs, 3)
        return {"rows": bench.compare(source, bench.contenders(source, DTYPES[kind]), runs, **VARIANTS[variant])}
    return run


def ways(options):
    """{name: function of Bench that gives a way's input and its command}. To nowhere, where the name does not say files: no
    disk is met."""
    def convert(*extra, kind="bf16", made=()):
        def prepare(bench):
            source = bench.make(options.size, "--kind", kind) if not made else bench.make(*made)
            return source, bench.convert(source, *extra, out="/dev/null")
        return prepare

    def back(command, *packing):
        def prepare(bench):
            plain, packed = bench.make(options.size, "--kind", "bf16"), bench.path("packed" + "".join(packing) + ".zt")
            if not os.path.exists(packed):
                bench.once(bench.convert(plain, *packing, out=packed))
            return packed, {"verify": [bench.program, "verify", "-q", packed],
                            "extract": bench.extract(packed, out="/dev/null"),
                            "diff": [bench.program, "diff", "-q", packed, plain]}[command]
        return prepare

    out = {extra or "raw": convert(*extra.split()) for extra in
           ("", "--zstd", "--zstd=planes", "--digest sha256", "--digest xxh3")}
    out["f32 to bf16"] = convert("--dtype", "bf16", kind="f32")
    out |= {f"{command} of {name}": back(command, *packing) for command in ("verify", "extract", "diff")
            for name, packing in (("raw", []), ("zstd", ["--zstd"]), ("planes", ["--zstd=planes"]))}
    def files(command, *words):
        def prepare(bench):
            plain = bench.make(options.size, "--kind", "bf16")
            if command == "convert":
                return plain, bench.convert(plain, *words, out=bench.outputs / "model.zt")
            packed = bench.path("packed.zt")
            if not os.path.exists(packed):
                bench.once(bench.convert(plain, out=packed))
            size = [f"--shard-size={-(-options.size // 8)}"] if words[0] == "safetensors" and len(words) == 1 else []
            out = bench.outputs / ("one.safetensors" if words[-1] == "one" else "folder/")
            return packed, [bench.program, "extract", "-q", "--to", words[0], packed, "-o", f"{out}{'/' * (words[-1] != 'one')}", *size]
        return prepare

    out |= {"raw, one file": files("convert"), "raw, 8 files": files("convert", "--shards=8"),
            "--zstd=planes, 8 files": files("convert", "--zstd=planes", "--shards=8"),
            "extract of raw, one file": files("extract", "safetensors", "one"),
            "extract of raw, 8 files": files("extract", "safetensors"), "extract of raw, .npy files": files("extract", "npy")}
    few, many = (2000, 10_000) if options.quick else (50_000, 1_000_000)
    out[f"{few:,} tensors of 10 KB"] = convert(made=(few * 10240, "--tensor-bytes", 10240))
    out[f"{many:,} tensors"] = convert(made=(many * 64, "--sparse", "--tensor-bytes", 64))
    return out


def threads(options, prepare):
    counts = sorted({1, 2, CPUS} | {1 << k for k in range(8) if 1 << k <= CPUS})

    def run(bench):
        source, command = prepare(bench)
        contenders = {str(n): [*command, f"-T{n}"] for n in counts}
        if bench.before:
            contenders |= {f"{n}, before": [bench.before, *words[1:]] for n, words in contenders.items()}
        return {"rows": bench.compare(source, contenders, options.runs)}
    return run


def levels(options, kind):
    """Size and speed by setting. Level 19 takes its time, so the input is small."""
    def run(bench):
        size = min(options.size, 200_000_000)
        source = bench.make(size, "--kind", kind)
        commands = {f"ztstream {level}": bench.convert(source, f"--zstd={level}")
                    for level in ("planes", "huffman", "1", "3", "-5", "6")}
        commands |= {f"zstd {level}": bench.zstd(source, f"-{level}") for level in ("1", "3", "19")}
        return {"rows": bench.compare(source, commands, min(options.runs, 3))}
    return run


def growth_bytes(options, extra):
    """Holes to nowhere, in 16 tensors: no disk is met, and no page cache where Bench keeps holes in memory."""
    def run(bench):
        rows = []
        for power in range(20, 29 if options.quick else 37, 2):
            source = bench.make(1 << power, "--sparse", "--tensor-bytes", (1 << power) // 16)
            rows += bench.compare(source, {f"{1 << power:,}": bench.convert(source, *extra, out="/dev/null")}, 3, prepare=False)
            rows[-1]["at"] = 1 << power
            os.unlink(source)
            bench.inputs.clear()
        return {"rows": rows}
    return run


def growth_tensors(options):
    """Tensors of 1 KB, holes, to nowhere: what is left is the cost of names, shapes and the manifest."""
    def run(bench):
        rows = []
        for power in range(0, 5 if options.quick else 7):
            for count in (10 ** power, 3 * 10 ** power) if 3 <= power < (4 if options.quick else 6) else (10 ** power,):
                source = bench.make(1024 * count, "--sparse", "--tensor-bytes", 1024)
                rows += bench.compare(source, {f"{count:,}": bench.convert(source, out="/dev/null")}, 3, prepare=False)
                rows[-1]["at"] = count
                os.unlink(source)
                bench.inputs.clear()
        return {"rows": rows}
    return run


def steps(options):
    """{name: function of Bench}, in the order they run; those of one input follow one another."""
    out = {}
    for number, (name, (kind, arguments)) in enumerate(workloads(options).items()):
        main = number == 0 or "tensors of" in name
        for variant in VARIANTS if main or options.every_variant else ["warm"]:
            out[f"throughput/{name}/{variant}"] = throughput(options, name, kind, arguments, variant)
    out |= {f"threads/{name}": threads(options, prepare) for name, prepare in ways(options).items()}
    for kind in ("bf16", "trained", "f16"):
        out[f"levels/{kind}"] = levels(options, kind)
    for extra in ([], ["--zstd"]):
        out[f"growth/bytes/{' '.join(extra) or 'raw'}"] = growth_bytes(options, extra)
    out["growth/tensors"] = growth_tensors(options)
    out |= {f"goals/{name}": (lambda bench, step=step: step(bench, options)) for name, step in goals.STEPS.items()}
    return out


# ---- the machine -------------------------------------------------------------------------------------------------

def machine(bench):
    def said(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
        except (OSError, subprocess.CalledProcessError):
            return ["absent"]

    def package(name):
        return said(sys.executable, "-c", f"import importlib.metadata as m; print(m.version('{name}'))")[0]

    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
               platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"processor": f"{CPUS} x {cpu}",
            "memory": f"{memory / 2**30:.0f} GiB", "kernel": f"{platform.system()} {platform.release()}",
            "file system": filesystem(bench.folder), "ztstream": "; ".join(said(bench.program, "--version")),
            "cp": said("cp", "--version")[0], "zstd": said("zstd", "--version")[0].strip("* "), "numpy": package("numpy"),
            "safetensors (Python)": package("safetensors"),
            **({"reference": said(bench.reference, "--version")[0]} if bench.reference else {})}


def sizes(options):
    """Fills in what was not given: 1 GB and 4 GiB where the disk and the memory bear it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fits = min(shutil.disk_usage(options.folder).free // 4, memory // 4)
    options.size = options.size or (16 << 20 if options.quick else min(10**9, fits))
    options.goal_size = options.goal_size or (32 << 20 if options.quick else min(4 << 30, fits))
    options.runs = options.runs or (1 if options.quick else 5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/bin/ztstream")
    parser.add_argument("--reference", type=pathlib.Path)
    parser.add_argument("--reference-2", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--size", type=parse_size)
    parser.add_argument("--goal-size", type=parse_size)
    parser.add_argument("--every-variant", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("chosen", nargs="*", metavar="STEP")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes(options)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its data are removed then too
    todo = steps(options)
    if options.list:
        print("\n".join(todo))
        return 0
    for name in options.chosen:
        if not any(step == name or step.startswith(name + "/") for step in todo):
            sys.exit(f"compare.py: no step {name}; --list has them")
    pictures = options.docs / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    kept = pictures / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {"steps": {}}
    if not options.draw:
        results = measure(options, todo, results, kept)
    report.write(results, options.docs)
    print(f"wrote {options.docs / 'BENCHMARKS.md'} and {pictures}")
    return 1 if any("error" in step for step in results["steps"].values()) else 0


def measure(options, todo, results, kept):
    if not options.chosen and not options.resume:
        results = {}
    results.setdefault("steps", {})
    chosen = [step for step in todo
              if (not options.chosen or any(step == name or step.startswith(name + "/") for name in options.chosen))
              and not (options.resume and "error" not in results["steps"].get(step, {"error": ""}))]
    if not importlib.util.find_spec("numpy"):
        sys.exit(f"compare.py: the data are made with numpy, which {sys.executable} has not (Debian: python3-numpy)")
    bench = Bench(options.program, options.folder, options.reference, options.before,
                  options.reference_2)
    try:
        results["machine"] = machine(bench)
        results["settings"] = {"runs": options.runs, "workload bytes": options.size, "goal bytes": options.goal_size}
        for key, value in {**results["machine"], **results["settings"]}.items():
            print(f"{key}: {value}", flush=True)
        for number, step in enumerate(chosen):
            begin = time.monotonic()
            print(f"[{number + 1}/{len(chosen)}] {step}", flush=True)
            try:
                result = todo[step](bench)
            except (Failed, OSError, subprocess.CalledProcessError) as error:
                result = {"error": str(error).replace(str(bench.folder), "DIR")}
                print(f"  failed: {result['error']}", flush=True)
            result["date"] = datetime.date.today().isoformat()
            result["load"] = round(os.getloadavg()[0], 1)
            results["steps"][step] = result
            print(f"  {time.monotonic() - begin:.0f} s", flush=True)
            # In the order of the steps, whatever the order they were measured in.
            results["steps"] = {name: results["steps"][name] for name in todo if name in results["steps"]}
            temporary = kept.with_suffix(".tmp")
            temporary.write_text(json.dumps(results, indent=1) + "\n")
            temporary.replace(kept)
            if number + 1 == len(chosen) or chosen[number + 1].rpartition("/")[0] != step.rpartition("/")[0]:
                bench.drop()
    finally:
        bench.close()
    return results


if __name__ == "__main__":
    sys.exit(main())
