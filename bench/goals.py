"""The goals: what the program is measured against, each a ratio with its bound. bench/compare.py runs them.

A step returns {"rows": [...], "goals": [{"what", "value", "bound", "at_most", "unit", "note"}]}; a goal that cannot be
measured has "missing", why, in place of "value".
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

from measure import CPUS, HERE, Failed, medians


def goal(what, value, bound, at_most=True, unit="", note=""):
    met = value <= bound if at_most else value >= bound
    print(f"  {'met   ' if met else 'MISSED'} {what}: {value:.3f}{unit} ({'<=' if at_most else '>='} {bound}{unit}) {note}",
          flush=True)
    return {"what": what, "value": value, "bound": bound, "at_most": at_most, "unit": unit, "note": note}


def missing(what, bound, why, at_most=True):
    print(f"  not measured: {what}: {why}", flush=True)
    return {"what": what, "bound": bound, "at_most": at_most, "missing": why}


def rate(row):
    return row["input"] / row["median"]


def in_turn(bench, contenders, runs):
    """A row for each of {name: (input, command)}; they take turns, each with its own input."""
    found = {name: [] for name in contenders}
    for _ in range(runs):
        for name, (source, command) in contenders.items():
            found[name].append(bench.once(command, source))
    rows = []
    for name, values in found.items():
        seconds, cpu, peak = zip(*values)
        rows.append({"name": name, "median": statistics.median(seconds), "low": min(seconds), "high": max(seconds),
                     "cpu": statistics.median(cpu), "peak": max(peak), "input": os.path.getsize(contenders[name][0]),
                     "output": os.path.getsize(bench.output)})
        print(f"  {name:40} {rows[-1]['median']:8.3f} s  ({min(seconds):.3f} to {max(seconds):.3f})", flush=True)
    return rows


def raw(bench, options):
    """Raw conversion beside `cp`: nobody waits for the disk, then both do. {size: (not synced, synced)} are the bounds."""
    large = options.goal_size
    bounds = {400_000_000: {"-T2": (0.75, 0.6)}, 1_000_000_000: {"-T2": (0.75, 0.6), "-T1": (1.2, 0.7)},
              large: {"-T2": (0.5, 0.4), "-T1": (0.9, 0.7)}}
    if options.quick:
        bounds = {large: bounds[large]}
    plain = pathlib.Path(bench.program).with_name("plain_copy")
    rows, goals = [], []
    for size, by_threads in bounds.items():
        source, label = bench.make(size), f"{size / 1e9:.1f} GB"
        # What neither program can beat: two threads that only copy and check, and the disk without the page cache.
        floors = [{f"{label}: plain_copy, 2 threads": [plain, "2", "262144", source, bench.output]} if plain.exists() else {},
                  {f"{label}: dd past the page cache, synced": ["dd", f"if={source}", f"of={bench.output}", "bs=4M",
                                                                "oflag=direct", "status=none"]}]
        for sync in (False, True):
            how = ", synced" if sync else ""
            found = bench.compare(source, {f"{label}: cp{how}": ["cp", source, bench.output],
                                           **{f"{label}: ztstream {threads}{how}": bench.convert(source, threads)
                                              for threads in by_threads}, **floors[sync]},
                                  options.runs, sync=sync)
            rows += found
            cp = medians(found, f"{label}: cp{how}")[0]
            for threads, allowed in by_threads.items():
                ours = medians(found, f"{label}: ztstream {threads}{how}")[0]
                goals.append(goal(f"raw conversion of {label} {threads}, of `cp`{' and `sync`' if sync else ''}", ours / cp,
                                  allowed[sync]))
    return {"rows": rows, "goals": goals}


def extract(bench, options):
    """The way back, to each format, and from .zt to .zt, beside `cp` of the input."""
    size = options.goal_size if options.quick else 1_000_000_000
    source, packed = bench.make(size), bench.path("packed.zt")
    bench.once(bench.convert(source, out=packed))
    ways = {"safetensors": bench.extract(packed, "-T2"), "npz": bench.extract(packed, "-T2", to="npz"),
            "gguf": bench.extract(packed, "-T2", to="gguf"), "zt": bench.convert(packed, "-T2")}
    rows, goals = [], []
    for sync in (False, True):
        how = ", synced" if sync else ""
        found = bench.compare(packed, {f"cp{how}": ["cp", packed, bench.output],
                                       **{f"from .zt to {way}{how}": command for way, command in ways.items()}},
                              options.runs, sync=sync)
        rows += found
        cp = medians(found, f"cp{how}")[0]
        goals += [goal(f"from .zt to {way} with 2 threads, of `cp`{' and `sync`' if sync else ''}",
                       medians(found, f"from .zt to {way}{how}")[0] / cp, 0.65 if sync else 0.85) for way in ways]
    os.unlink(packed)
    return {"rows": rows, "goals": goals}


def million(bench, options):
    count = 10_000 if options.quick else 1_000_000
    source = bench.make(count * 64, "--sparse", "--tensor-bytes", 64)
    rows = bench.compare(source, {f"{count:,} tensors of 64 bytes, -T2": bench.convert(source, "-T2")}, options.runs)
    return {"rows": rows, "goals": [goal(f"{count:,} tensors", rows[0]["median"], 1.0, unit=" s"),
                                    goal(f"memory for {count:,} tensors", rows[0]["peak"] / 2**20, 400, unit=" MiB")]}


def start(bench, options):
    """What a run takes that does next to nothing: many are started, one after the other."""
    contenders = {"ztstream --version": [bench.program, "--version"], "zstd --version": ["zstd", "--version"],
                  "python3, import numpy": [sys.executable, "-c", "import numpy"]}
    rows = bench.compare(None, contenders, 5 if options.quick else 101)
    return {"rows": rows, "goals": [goal("`ztstream --version`", 1000 * rows[0]["median"], 6, unit=" ms",
                                         note=f"zstd: {1000 * rows[1].get('median', 0):.1f} ms")]}


def workers(bench, options):
    """Workers kept busy, by a simulation in which what costs time sleeps (bench/scaling.cc)."""
    program = pathlib.Path(bench.program).with_name("scaling")
    if not program.exists():
        raise Failed("not built: cmake --build --preset release --target scaling")
    counts = ["4"] if options.quick else ["1", "2", "4", "8", "16", "32", "64", "128"]
    lines = subprocess.run([program, *counts], check=True, capture_output=True, text=True).stdout.splitlines()[1:]
    rows = []
    for line in lines:
        print("  " + line, flush=True)
        name, tensors, *figures = re.split(r"  +", line.strip())
        rows.append({"name": name, "tensors": tensors} | dict(zip(("workers", "seconds", "busy", "feeds"), map(float, figures))))
    found = {(row["name"], row["tensors"], row["workers"]): row["busy"] for row in rows}
    wanted = [("--zstd", 16, 13), ("--zstd=planes", 16, 13), ("verify of zstd", 16, 10), ("verify of planes", 16, 10),
              ("extract of zstd", 16, 10), ("extract of planes", 16, 10), ("raw, 8 files", 16, 8), ("--zstd", 64, 48)]
    return {"rows": rows, "goals": [] if options.quick else [
        goal(f"`{name}`, {'one tensor' if tensors == 'one' else 'tensors ' + tensors}: of {count} simulated workers, busy",
             found[name, tensors, count], bound, False) for name, count, bound in wanted for tensors in ("one", "of 1 MB")]}


def dtype(bench, options):
    source = bench.make(options.goal_size, "--kind", "f32")
    rows = bench.compare(source, {"cp of the f32 file": ["cp", source, bench.output],
                                  "ztstream --dtype bf16 -T1": bench.convert(source, "--dtype", "bf16", "-T1"),
                                  "ztstream --dtype bf16 -T2": bench.convert(source, "--dtype", "bf16", "-T2")}, options.runs)
    cp, one, two = medians(rows, *(row["name"] for row in rows))
    return {"rows": rows, "goals": [goal("f32 to bf16 with 1 thread, of `cp` of what is read", one / cp, 1.1),
                                    goal("f32 to bf16 with 2 threads, of `cp` of what is read", two / cp, 1.1)]}


def zstd(bench, options):
    source = bench.make(options.goal_size)
    rows = bench.compare(source, {"zstd -1 -T2": bench.zstd(source, threads=2),
                                  "ztstream --zstd -T1": bench.convert(source, "--zstd", "-T1"),
                                  "ztstream --zstd -T2": bench.convert(source, "--zstd", "-T2"),
                                  "ztstream --zstd=huffman -T2": bench.convert(source, "--zstd=huffman", "-T2")},
                         options.runs)
    base, one, two, huffman = medians(rows, "zstd -1 -T2", "ztstream --zstd -T1", "ztstream --zstd -T2",
                                      "ztstream --zstd=huffman -T2")
    size = {row["name"]: row["output"] for row in rows}
    level_1 = size["ztstream --zstd -T2"] - size["zstd -1 -T2"]
    huffman_only = size["ztstream --zstd=huffman -T2"] - size["zstd -1 -T2"]
    return {"rows": rows, "goals": [
        goal("`--zstd` with 2 threads, of `zstd -1 -T2`", two / base, 0.75),
        goal("`--zstd=huffman` with 2 threads, of `zstd -1 -T2`", huffman / base, 0.6),
        goal("`--zstd`: 1 thread, of 2 threads", one / two, 1.8, at_most=False),
        goal("size with `--zstd`, of `zstd -1`", size["ztstream --zstd -T2"] / size["zstd -1 -T2"], 1.0,
             note=f"{level_1:+,} bytes"),
        goal("size with `--zstd=huffman`, of `zstd -1`",
             size["ztstream --zstd=huffman -T2"] / size["zstd -1 -T2"], 1.0, note=f"{huffman_only:+,} bytes")]}


def planes(bench, options):
    """Byte planes beside what else there is: sizes, time with two threads, writing and decoding to nowhere."""
    source, packed, theirs = bench.make(options.goal_size), {}, bench.path("packed.zst")
    rows = bench.compare(source, {"zstd -1 -T2": bench.zstd(source, threads=2),
                                  "ztstream --zstd -T2": bench.convert(source, "--zstd", "-T2"),
                                  "ztstream --zstd=planes -T2": bench.convert(source, "--zstd=planes", "-T2")},
                         options.runs)
    base, level_1, ours = medians(rows, *(row["name"] for row in rows))
    goals = [goal("size of bf16 with `--zstd=planes`", rows[2]["output"] / rows[2]["input"], 0.668),
             goal("`--zstd=planes` with 2 threads, of `zstd -1 -T2`", ours / base, 0.3),
             goal("`--zstd=planes` with 2 threads, of `--zstd`", ours / level_1, 0.6)]
    nowhere = bench.compare(source, {f"ztstream {level} -T2, to nowhere": bench.convert(source, level, "-T2", out="/dev/null")
                                     for level in ("--zstd", "--zstd=planes")}, options.runs)
    level_1, ours = medians(nowhere, *(row["name"] for row in nowhere))
    goals.append(goal("`--zstd=planes` to nowhere, times as fast as `--zstd`", level_1 / ours, 1.9, False))
    for level in ("--zstd", "--zstd=planes"):
        packed[level] = bench.path(f"packed{level}.zt")
        bench.once(bench.convert(source, level, out=packed[level]))
    bench.once(["zstd", "-q", "-f", "-1", f"-T{CPUS}", source, "-o", theirs])
    decoded = bench.compare(None, {
        "zstd -d, to nowhere": ["zstd", "-q", "-f", "-d", theirs, "-o", "/dev/null"],
        **{f"ztstream {threads} from {level}, to nowhere": bench.extract(path, threads, out="/dev/null")
           for threads in ("-T1", "-T2") for level, path in packed.items()}}, options.runs)
    for row in decoded:
        row["input"] = os.path.getsize(source)  # rates are of decoded bytes
    base, _, alone, level_1, ours = medians(decoded, *(row["name"] for row in decoded))
    goals += [goal("decoding byte planes, times as fast as `--zstd`'s file", level_1 / ours, 2.2, False),
              goal("decoding byte planes, times as fast as `zstd -d`: 1 thread each", base / alone, 2, False),
              goal("decoding byte planes with 2 threads, times as fast as `zstd -d`, which has one", base / ours, 4, False)]
    for path in (*packed.values(), theirs):
        os.unlink(path)
    synced = bench.compare(source, {"cp, synced": ["cp", source, bench.output],
                                    "ztstream --zstd=planes -T2, synced": bench.convert(source, "--zstd=planes", "-T2")},
                           options.runs, sync=True)
    cp, ours = medians(synced, *(row["name"] for row in synced))
    goals.append(goal("`--zstd=planes` with 2 threads, of `cp`, both synced", ours / cp, 0.9))
    sizes = []
    for kind, bound in (("f32", 0.838), ("f16", 0.855)):
        other = bench.make(min(options.goal_size, 256_000_000), "--kind", kind)
        sizes += bench.compare(other, {f"ztstream --zstd=planes, {kind}": bench.convert(other, "--zstd=planes", "-T2")}, 1)
        goals.append(goal(f"size of {kind} with `--zstd=planes`", sizes[-1]["output"] / sizes[-1]["input"], bound))
    return {"rows": rows + nowhere + decoded + synced + sizes, "goals": goals}


def frames(bench, path):
    """{(object, role): SHA-256 of the stored bytes} of a .zt file, or of the shards in a folder."""
    found = {}
    parts = sorted(path.glob("m-*.zt")) if path.is_dir() else [path]
    for part in parts:
        listed = json.loads(subprocess.run([bench.program, "inspect", "--json", part], check=True, capture_output=True).stdout)
        with open(part, "rb") as file:
            for entry in listed["objects"]:
                for each in entry["components"]:
                    file.seek(each["offset"])
                    digest, left = hashlib.sha256(), each["length"]
                    while left:
                        piece = file.read(min(left, 1 << 20))
                        digest.update(piece)
                        left -= len(piece)
                    found[entry["name"], each["role"]] = digest.hexdigest()
    return found


def check_kept(bench, packed, outputs):
    """Raises Failed where an output has other frames than `packed`, or damage goes unnoticed. {path: how names were changed}."""
    held = frames(bench, pathlib.Path(packed))
    for path, renamed in outputs.items():
        if frames(bench, path) != {(renamed + name, role): digest for (name, role), digest in held.items()}:
            raise Failed(f"{path}: other frames")
    with open(packed, "rb+") as file:
        at = os.path.getsize(packed) // 2
        for what, expected in (("a damaged frame", 4), ("the good file again", 0)):
            file.seek(at)
            byte = file.read(1)[0] ^ 16
            file.seek(at)
            file.write(bytes([byte]))
            file.flush()
            status = subprocess.run(bench.convert(packed, "--rename", "s/^/x./"), capture_output=True, check=False).returncode
            if status != expected:
                raise Failed(f"{what}: status {status}")


def keep(bench, options):
    """Byte planes from .zt to .zt: renamed, cut into shards, cut anew; beside `cp`. Every frame must stay as it is."""
    source = bench.make(options.goal_size * 3 // 2)
    rows, goals, files = [], [], {spec: bench.path(f"packed-{spec}.zt") for spec in ("1.2", "2.0")}
    for spec, packed in files.items():
        bench.once(bench.convert(source, "--zstd=planes", "--spec", spec, out=packed))
    os.unlink(source)
    bench.inputs.clear()
    for spec, packed in files.items():
        folders = [pathlib.Path(bench.path(name)) for name in ("renamed", "four", "two")]
        renamed, four, two = (folder / "m.zt" for folder in folders)
        whole = four if spec == "2.0" else four.with_name("m.zt.index.json")
        ways = {"cp": ["cp", packed, bench.output],
                "renamed": bench.convert(packed, "-T2", "--spec", spec, "--rename", "s/^/x./", out=renamed),
                "cut into 4 shards": bench.convert(packed, "-T2", "--spec", spec, "--shards", "4", out=four),
                "cut anew, 4 shards into 2": bench.convert(whole, "-T2", "--spec", spec, "--shards", "2", out=two)}
        taken = {way: [] for way in ways}
        for _ in range(options.runs):
            for (way, command), folder in zip(ways.items(), (None, *folders)):
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir()
                os.sync()  # what the one before has left to be written must not slow this one
                taken[way].append(bench.once(command, packed))
        for way, values in taken.items():
            seconds, cpu, peak = zip(*values)
            rows.append({"name": f"planes of {spec}, {way}", "median": statistics.median(seconds), "low": min(seconds),
                         "high": max(seconds), "cpu": statistics.median(cpu), "peak": max(peak),
                         "input": os.path.getsize(packed), "output": os.path.getsize(packed)})
        cp, *ours = rows[-len(ways):]
        goals += [goal(f"{row['name']}, with 2 threads, of `cp`", row["median"] / cp["median"], 1.2) for row in ours]
        goals.append(goal(f"planes of {spec}: peak resident memory", max(row["peak"] for row in ours) / 2**20, 96, unit=" MiB"))
        check_kept(bench, packed, {renamed: "x.", four.parent: "", two.parent: ""})
        os.unlink(packed)
        for folder in folders:
            shutil.rmtree(folder)
    return {"rows": rows, "goals": goals}


def reference(bench, options):
    if not bench.reference:
        return {"rows": [], "goals": [
            missing("raw conversion with 2 threads, times as fast as the reference", 4, "--reference was not given", False),
            missing("compressed with 2 threads, times as fast as the reference", 2, "--reference was not given", False)]}
    source = bench.make(options.size)
    rows = bench.compare(source, {
        "reference": bench.reference_convert(source),
        "ztstream -T2": bench.convert(source, "-T2"),
        "reference --compress": bench.reference_convert(source, "--compress"),
        "ztstream --zstd -T2": bench.convert(source, "--zstd", "-T2"),
        "ztstream --zstd=3 -T2": bench.convert(source, "--zstd=3", "-T2")}, options.runs)
    theirs, ours, their_zstd, our_zstd, same_level = medians(rows, "reference", "ztstream -T2", "reference --compress",
                                                             "ztstream --zstd -T2", "ztstream --zstd=3 -T2")
    return {"rows": rows, "goals": [
        goal("raw conversion with 2 threads, times as fast as the reference", theirs / ours, 4, False,
             note="the reference writes no digest by default, ztstream does"),
        goal("compressed with 2 threads, times as fast as the reference", their_zstd / our_zstd, 2, False,
             note=f"defaults of both: levels 3 and 1; {their_zstd / same_level:.2f} with level 3 for both")]}


def zt2(bench, options):
    """2.0 beside 1.2, each with its own digest, and the canonical form beside the reference's, whose program syncs."""
    bound, faster = "2.0 raw with xxh3 with 2 threads, of 1.2 raw with crc32c", "canonical with 2 threads, times as fast as the reference 2.x"
    source = bench.make(options.size)
    rows = bench.compare(source, {"1.2 raw -T2": bench.convert(source, "-T2"),
                                  "2.0 raw -T2": bench.convert(source, "--spec", "2.0", "-T2"),
                                  "--canonical -T2": bench.convert(source, "--canonical", "-T2")}, options.runs)
    before, now, alone = medians(rows, "1.2 raw -T2", "2.0 raw -T2", "--canonical -T2")
    goals = [goal(bound, now / before, 1.1)]
    if not bench.reference_2:
        return {"rows": rows, "goals": [*goals, missing(faster, 5, "--reference-2 was not given", False)]}
    synced = bench.compare(source, {"--canonical -T2, synced": bench.convert(source, "--canonical", "-T2"),
                                    "reference 2.x, synced": [bench.reference_2, "convert", source, bench.output]},
                           options.runs, sync=True)
    ours, theirs = medians(synced, "--canonical -T2, synced", "reference 2.x, synced")
    return {"rows": rows + synced, "goals": [*goals, goal(faster, theirs / ours, 5, False,
                                                          note=f"both synced; {theirs / alone:.2f} where ztstream is not")]}


def small(bench, options):
    count, size = (2000, 2000 * 10240) if options.quick else (50000, 512_000_000)
    many, few = bench.make(size, "--tensor-bytes", 10240), bench.make(size)
    rows, goals = [], []
    for threads in (1, 2):
        rows += in_turn(bench, {
            f"{count:,} tensors of 10 KB, -T{threads}": (many, bench.convert(many, f"-T{threads}")),
            f"the same bytes in large ones, -T{threads}": (few, bench.convert(few, f"-T{threads}"))}, options.runs)
        goals.append(goal(f"{count:,} tensors of 10 KB with {threads} thread{'s' * (threads > 1)}, of the throughput of "
                          "large ones", rate(rows[-2]) / rate(rows[-1]), 0.8, False))
    return {"rows": rows, "goals": goals}


def decode(bench, options):
    source = bench.make(options.goal_size)
    packed, theirs = bench.path("packed.zt"), bench.path("packed.zst")
    bench.once(bench.convert(source, "--zstd", out=packed))
    bench.once(["zstd", "-q", "-f", "-1", f"-T{CPUS}", source, "-o", theirs])
    rows = bench.compare(None, {
        "zstd -d, to nowhere": ["zstd", "-q", "-f", "-d", theirs, "-o", "/dev/null"],
        "ztstream -T1 from compressed, to nowhere": bench.extract(packed, "-T1", out="/dev/null"),
        "ztstream -T2 from compressed, to nowhere": bench.extract(packed, "-T2", out="/dev/null")},
        options.runs)
    for row in rows:
        row["input"] = os.path.getsize(source)  # rates are of decoded bytes
    base, one, two = medians(rows, *(row["name"] for row in rows))
    for path in (packed, theirs):
        os.unlink(path)
    return {"rows": rows, "goals": [goal("decoding: 1 thread, of 2 threads", one / two, 1.8, False),
                                    goal("decoding, times as fast as `zstd -d`: 1 thread each", base / one, 0.9, False),
                                    goal("decoding with 2 threads, times as fast as `zstd -d`, which has one", base / two, 1, False)]}


def memory(bench, options):
    """The worst of many inputs. What a dry run takes beyond a run that reads nothing is the source's index: names,
    shapes and places, set aside by the goal, and shown in the note."""
    _, _, idle = bench.once([bench.program, "--version"])
    inputs = [("weights", [options.goal_size], [[], ["--zstd"], ["--zstd=huffman"], ["--zstd=planes"], ["--spec", "2.0"],
                                                ["--spec", "2.0", "--zstd"], ["--canonical"]]),
              ("tensors of 10 KB", [512_000_000, "--tensor-bytes", 10240], [[], ["--zstd"]]),
              ("holes", ["1GB" if options.quick else "1TB", "--sparse"], [[]]),
              ("holes", ["1GB" if options.quick else "64GB", "--sparse"], [["--zstd"]])]
    rows, worst = [], {}
    for name, arguments, option_sets in inputs:
        source = bench.make(*arguments)
        _, _, dry = bench.once([bench.program, "convert", "-q", "-f", "-n", source, "-o", bench.output])
        index = max(0, dry - idle)
        for extra in option_sets:
            out = "/dev/null" if "--sparse" in arguments else None
            what = f"{os.path.getsize(source) / 1e9:,.1f} GB of {name}, {' '.join(extra) or 'raw'}"
            seconds, cpu, peak = bench.once(bench.convert(source, "-T2", *extra, out=out))
            rows.append({"name": what, "median": seconds, "low": seconds, "high": seconds, "cpu": cpu, "peak": peak,
                         "index": index, "input": os.path.getsize(source), "output": 0})
            worst[what] = (peak - index) / 2**20
            print(f"  {what:28} {peak / 2**20:.1f} MiB, {index / 2**20:.1f} of it the index  {seconds:.1f} s", flush=True)
    name = max(worst, key=worst.get)
    return {"rows": rows, "goals": [goal("peak resident memory with 2 threads, any input", worst[name], 96, unit=" MiB",
                                         note=f"the worst: {name}")]}


def inspect(bench, options):
    count = 2000 if options.quick else 100000
    packed = bench.path("packed.zt")
    bench.once(bench.convert(bench.make(count * 64, "--sparse", "--tensor-bytes", 64), out=packed))
    rows = bench.compare(None, {"inspect": [bench.program, "inspect", packed],
                                "inspect --json": [bench.program, "inspect", "--json", packed]}, options.runs)
    text, machine = medians(rows, "inspect", "inspect --json")
    os.unlink(packed)
    return {"rows": rows, "goals": [goal(f"`inspect` of {count:,} objects", text, 0.5, unit=" s"),
                                    goal(f"`inspect --json` of {count:,} objects", machine, 0.5, unit=" s")]}


def benchmark_program(bench, name, *arguments):
    program = pathlib.Path(bench.program).with_name(name)
    if not program.exists():
        raise Failed(f"not built: cmake --build --preset release --target {name}")
    return json.loads(subprocess.run([program, "--benchmark_format=json", *arguments], check=True, capture_output=True,
                                     text=True).stdout)["benchmarks"]


def kernels(bench, options):
    filters = ["--benchmark_filter=f32_to_bf16|swap/"] if options.quick else []
    rows = [{"name": row["name"].removesuffix("/manual_time").rpartition("/iterations")[0], "of_memcpy": row["of_memcpy"],
             "of_traffic": row["of_traffic"], "bytes_per_second": row["GB/s"] * 1e9}
            for row in benchmark_program(bench, "kernels_bench", *filters) if "of_memcpy" in row]
    # Ratio to memcpy, and to what moves as many bytes each way as the kernel does.
    conversions = {row["name"].split("/")[1]: (row["of_memcpy"], row["of_traffic"]) for row in rows
                   if row["name"].startswith("convert/") and row["name"].endswith("/out_of_cache")}
    below = sorted((value, traffic, name) for name, (value, traffic) in conversions.items() if value < 0.9)
    note = f"the slowest of {len(conversions)}; below the goal: " + (
        ", ".join(f"{name} {value:.2f} ({traffic:.2f} of what moves as many bytes each way)"
                  for value, traffic, name in below) or "none")
    return {"rows": rows, "goals": [goal("dtype kernels out of cache, of the bandwidth of `memcpy`",
                                         min(conversions.values())[0], 0.9, False, note=note)]}


def dequantize(bench, options):
    found = {row["name"]: row["bytes_per_second"]
             for row in benchmark_program(bench, "dequant_bench", "--benchmark_filter=^(memcpy|q4_k/f32|q8_0/f32)$")}
    return {"rows": [{"name": name, "bytes_per_second": value} for name, value in found.items()], "goals": [
        goal(f"{name.partition('/')[0].upper()} to f32 out of cache, of `memcpy` of as many bytes",
             found[name] / found["memcpy"], 0.7, False) for name in ("q4_k/f32", "q8_0/f32")]}


def torch(bench, options):
    """A PyTorch checkpoint beside the safetensors file of the same tensors."""
    rows, goals = [], []
    for kind, extra, title, bound in (("bf16", [], "contiguous bf16", 1.1), ("f32", ["--transposed"], "transposed f32", 2.0)):
        source, checkpoint = bench.make(options.goal_size, "--kind", kind), bench.path(kind + ".pt")
        subprocess.run([sys.executable, str(HERE / "make_torch.py"), source, checkpoint, *extra], check=True)
        for threads in (1, 2):
            names = [f"{kind} safetensors -T{threads}", f"{title} .pt -T{threads}"]
            rows += in_turn(bench, {name: (path, bench.convert(path, f"-T{threads}"))
                                    for name, path in zip(names, (source, checkpoint))}, options.runs)
            plain, taken = medians(rows, *names)
            goals.append(goal(f"{title} as `.pt` with {threads} thread{'s' * (threads > 1)}, of the same as safetensors",
                              taken / plain, bound))
            goals.append(goal(f"its peak resident memory with {threads} thread{'s' * (threads > 1)}",
                              rows[-1]["peak"] / 2**20, 96, unit=" MiB"))
        bench.drop()
    return {"rows": rows, "goals": goals}


def before(bench, options):
    """Two programs, --program and --before, on the same inputs in turn: no row may have become slower."""
    if not bench.before:
        return {"rows": [], "goals": [missing("any row, of the time of an earlier program", 1.03, "no --before")]}
    size = 20_000_000 if options.quick else 1_000_000_000
    plain, floats, many = bench.make(size), bench.make(size, "--kind", "f32"), bench.make(size // 4, "--tensor-bytes", 10240)
    raw, packed = bench.path("raw.zt"), bench.path("packed.zt")
    bench.once(bench.convert(plain, out=raw))
    bench.once(bench.convert(plain, "--zstd", out=packed))
    count = 10_000 if options.quick else 1_000_000
    tiny = bench.make(count * 64, "--sparse", "--tensor-bytes", 64)
    ways = {f"raw -T{threads}": bench.convert(plain, f"-T{threads}") for threads in (1, 2)}
    ways |= {"--zstd": bench.convert(plain, "--zstd"), "--zstd=huffman": bench.convert(plain, "--zstd=huffman"),
             "--digest sha256": bench.convert(plain, "--digest", "sha256"), "--digest xxh3": bench.convert(plain, "--digest", "xxh3"),
             "f32 to bf16 -T1": bench.convert(floats, "--dtype", "bf16", "-T1"), "f32 to bf16": bench.convert(floats, "--dtype", "bf16"),
             "tensors of 10 KB": bench.convert(many), f"{count:,} tensors": bench.convert(tiny, "-T2"),
             "from zstd to nowhere": bench.convert(packed, out="/dev/null"),
             "verify of zstd": [bench.program, "verify", "-q", packed], "extract of raw": bench.extract(raw),
             "extract of zstd": bench.extract(packed), "start": [bench.program, "--version"]}
    rows, goals = [], []
    for name, command in ways.items():
        source = next((path for path in (floats, many, tiny, raw, packed) if path in command), plain)
        found = bench.compare(source, {name: command, f"{name}, before": [bench.before, *command[1:]]},
                              options.runs if name != "start" else 20)
        rows += found
        new, old = medians(found, name, f"{name}, before")
        goals.append(goal(f"{name}, of the time of an earlier program", new / old, 1.03))
        if source == tiny:
            peak, earlier = (row["peak"] for row in found)
            goals.append(goal(f"{name}, of the memory of an earlier program", peak / earlier, 1.01))
    for path in (raw, packed):
        os.unlink(path)
    return {"rows": rows, "goals": goals}


STEPS = {"raw": raw, "extract": extract, "dtype": dtype, "zstd": zstd, "planes": planes, "keep": keep, "decode": decode, "memory": memory,
         "reference": reference, "zt2": zt2, "small": small, "million": million, "start": start, "workers": workers, "inspect": inspect,
         "torch": torch, "kernels": kernels, "dequantize": dequantize, "before": before}
