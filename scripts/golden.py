"""golden.py: runs a ztstream program over every file of tests/data with many sets of options, one line for each run.

  scripts/golden.sh PROGRAM > LINES              scripts/golden.sh PROGRAM --only 'verify.*corpus'
  diff <(scripts/golden.sh OLD) <(scripts/golden.sh NEW)

A line holds the exit status, then the first 12 digits of the SHA-256 of the output file or folder, of standard output and
of standard error, then the command; `-` stands for an empty or missing one. Times and rates are taken out of the texts first,
and all paths are relative, so equal programs give equal lines on every machine. With --keep FOLDER the texts and the
outputs are kept there under the line's number, for a look at what differs.
"""
import argparse
import concurrent.futures
import hashlib
import itertools
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PATIENCE = 120  # seconds after which a run counts as hanging

# Sets of options of `convert`. "{in}" and "{out}" are implied, unless the set says "stdin" or "stdout" first.
CONVERT = [
    "-T1", "-T3", "-v -T2", "--json -T2", "--dry-run", "--dry-run --json", "stdin", "stdout -T2", "stdin stdout --zstd",
    "--zstd -T1", "--zstd=19 -T3 --chunk 64KiB", "--zstd=huffman -T2 --min-gain 0", "--zstd=-3 --chunk 4KiB --memory 1MiB",
    "--spec 1.1", "--spec 1.1 --zstd --digest sha256 -T2", "--spec 0.1", "--spec 0.1 --zstd --digest sha256",
    "--digest sha256 --zstd -T3", "--digest xxh3 -T2", "--digest none --memory 1MiB",
    "--dtype bf16 --on-overflow inf -T2", "--dtype f16 --on-overflow saturate --zstd", "--dtype f32", "--dtype f64 --digest xxh3",
    "--dtype f8_e4m3fn", "--dtype i32 --on-overflow saturate --allow-loss --json",
    "--dequantize f32 -T2", "--dequantize bf16 --zstd --spec 1.1", "--quant group -T2", "--quant group --spec 1.1 --zstd",
    "--spec 2.0 -T2", "--spec 2.0 --zstd --chunk 64KiB -T3", "--spec 2.0 --zstd=planes --digest sha256 --align 4KiB",
    "--spec 2.0 --digest none --quant group", "--spec 2.0 --dtype bf16 --on-overflow inf --dequantize f32",
    "stdin stdout --spec 2.0 --zstd=huffman", "--spec 2.0 --dry-run", "--canonical -T2", "stdin --canonical",
    "--canonical --no-metadata --dtype f32 --rename s/^/model./", "--zstd=planes -T2", "--zstd=planes --chunk 4KiB --min-gain 0",
    "--include [ae] --exclude 1 --rename s/[.]/_/", "-T3 --memory 1MiB --zstd --dtype .*[w2]=f32 --digest sha256",
]
# The same for outputs of several files, each set in a folder of its own; what JOIN says is written a shard at a time.
CUT = ["--shards 2 -T2", "--shard-size 4KiB --zstd --json", "--shards 3 --dry-run", "--shards 2 --spec 2.0 -T2",
       "--shard-size 64KiB --spec 2.0 --zstd=planes --digest sha256", "--shards 2 --canonical", "--shards 2 --spec 0.1"]
JOIN = ["", "--spec 2.0 --zstd"]
SUFFIXES = {"safetensors": ".safetensors", "npz": ".npz", "gguf": ".gguf", "npy": "/"}
# How the .zt files that extract, verify, diff and inspect are tried on are made of each input.
MADE = {"plain": "-T1", "packed": "--zstd --chunk 64KiB --digest sha256", "old": "--spec 0.1", "groups": "--quant group --zstd",
        "arrays": "--digest xxh3",
        "two": "--spec 2.0 --zstd --chunk 64KiB", "canonical": "--canonical", "planes": "--zstd=planes --digest sha256",
        "cut": "--shards 2 --zstd", "cut2": "--shards 2 --spec 2.0"}
UNSYNCED = ("inspect", "verify", "diff", "id")  # commands that write no file
LARGEST = 4 << 20  # of what is unpacked: larger files of tests/data are left out


def stable(text, home):
    text = text.replace(home.encode(), b"HOME")
    text = re.sub(rb'"wall_s":[-+.0-9e]+', b'"wall_s":0', text)
    text = re.sub(rb"\b[0-9]+(?:\.[0-9]+)? s\b", b"N s", text)
    return re.sub(rb"[0-9]+(?:\.[0-9]+)? [KMGT]?i?B/s", b"N B/s", text)


def short(data):
    return hashlib.sha256(data).hexdigest()[:12] if data else "-"


def sum_of(path):
    """Digest of a file, or of a folder's names and contents."""
    if path.is_dir():
        names = sorted(entry for entry in path.rglob("*") if entry.is_file())
        return short(b"".join(f"{name.relative_to(path)} {sum_of(name)}\n".encode() for name in names) or b"empty folder")
    return short(path.read_bytes()) if path.is_file() else "-"


class Run:
    """One run of the program: a label, its arguments, where its output lies, what goes to standard input, and the arguments
    of runs that come before it."""

    def __init__(self, label, arguments, output=None, stdin=None, before=()):
        self.label, self.arguments, self.output, self.stdin, self.before = label, arguments, output, stdin, before


def inputs(data):
    """Files and folders of tests/data that stand for an input."""
    for path in sorted(data.rglob("*")):
        place = path.relative_to(data)
        if path.is_dir():
            if any(any(path.glob(name)) for name in ("*.index.json", "config.json", ".metadata")) or path.name == "npy":
                yield str(place)
        elif path.suffix in (".zt", ".safetensors", ".npy", ".npz", ".gguf", ".pt", ".pth", ".bin", ".onnx", ".h5"):
            yield str(place)


def made_of(at, kind):
    return f"made/{at}-{kind}" if "cut" in kind else f"made/{at}.{kind}.zt"


def first_runs(names, home):
    """What needs the inputs alone, and makes the .zt files of the second."""
    for at, name in enumerate(names):
        folder = (home / name).is_dir()
        for number, options in enumerate(CONVERT):
            words = options.split()
            piped_in, piped_out = "stdin" in words, "stdout" in words
            if piped_in and folder:
                continue
            words = [word for word in words if word not in ("stdin", "stdout")]
            out = "-" if piped_out else f"out/{at}.{number}.zt"
            yield Run(f"convert {name} {options}", ["convert", *words, "-" if piped_in else name, "-o", out],
                      None if piped_out else out, name if piped_in else None)
        for number, options in enumerate(CUT):
            out = f"out/{at}-cut-{number}"
            yield Run(f"convert {name} {options}", ["convert", *options.split(), name, "-o", out + "/m.zt"], out)
        for number, (options, missing) in enumerate(itertools.product(JOIN, (False, True))):
            out = f"out/{at}-join-{number}"
            parts = [f"{out}/m-0000{i}-of-00002.zt" for i in ((2,) if missing else (1, 2))]
            yield Run(f"join {name} {options}" + " --missing" * missing,
                      ["join", *["--missing"] * missing, *parts, "-o", out + "/m.zt"], out,
                      before=[["convert", *options.split(), "--shard", f"{i}/2", name, "-o", out + "/m.zt"]
                              for i in ((2,) if missing else (1, 2))])
        for kind, options in MADE.items():
            out = made_of(at, kind)
            yield Run(f"convert {name} {options} (kept)",
                      ["convert", *options.split(), name, "-o", out + ("/m.zt" if "cut" in kind else "")], out)
        for options in "", "--json", "-v", "--tree --sort size":
            yield Run(f"inspect {name} {options}", ["inspect", *options.split(), name])
        for options in "-T2", "--json --digest xxh3 -T1":
            yield Run(f"id {name} {options}", ["id", *options.split(), name])
        for to, suffix in SUFFIXES.items():
            out = f"out/{at}.straight{suffix}"
            yield Run(f"extract {name} to {to}", ["extract", "-T2", name, "-o", out], out)
        yield Run(f"extract {name} piped", ["extract", "--to", "safetensors", "-", "-o", "-"], None, None if folder else name)
        for options in "-T1", "--json -T2", "--canonical":
            yield Run(f"verify {name} {options}", ["verify", *options.split(), name])
        other = names[(at + 1) % len(names)]
        for options in "-T2", "--json -T1":
            yield Run(f"diff {name} {other} {options}", ["diff", *options.split(), name, other])
            yield Run(f"diff {name} itself {options}", ["diff", *options.split(), name, name])


def second_runs(names, home):
    """What is done with the .zt files made of the inputs."""
    for at, name in enumerate(names):
        for kind in MADE:
            made, cut = made_of(at, kind), "cut" in kind
            if not (home / made).is_file() and not any((home / made).glob("m*")):
                continue
            label = f"{name}, {kind}"
            if cut:
                yield Run(f"inspect {label}, its first shard", ["inspect", made + "/m-00001-of-00002.zt"])
            for to, suffix in SUFFIXES.items():
                out = f"out/{at}.{kind}{suffix}"
                yield Run(f"extract {label} to {to}", ["extract", "-T2", made, "-o", out], out)
            if not cut:
                yield Run(f"extract {label} piped", ["extract", "--json", "--to", "npz", "-", "-o", f"out/{at}.{kind}.piped.npz"],
                          f"out/{at}.{kind}.piped.npz", made)
            yield Run(f"id {label}", ["id", made])
            for options in "-T1", "-T3 --json", "--canonical", f"-T2 --against {name}":
                yield Run(f"verify {label} {options.replace(name, 'its input')}", ["verify", made, *options.split()])
            yield Run(f"inspect {label}", ["inspect", "--json", made])
            yield Run(f"diff {label} and its input", ["diff", "-T2", name, made])
            out = f"out/{at}.{kind}.again.zt"
            yield Run(f"convert {label} again", ["convert", "-T2", made, "-o", out], out)
            yield Run(f"convert {label} to 2.0", ["convert", "-T2", "--spec", "2.0", made, "-o", out + "3"], out + "3")
            yield Run(f"convert {label} and its input", ["convert", "-T2", made, name, "-o", out + "2"], out + "2")


def execute(program, home, keep, number, run):
    output, out, err, status = home / run.output if run.output else None, b"", b"", 0
    if output and not output.suffix:
        output.mkdir()
    for arguments in (*run.before, run.arguments):
        source = open(home / run.stdin, "rb") if run.stdin else subprocess.DEVNULL
        try:
            done = subprocess.run([program, *arguments, *(["--no-sync"] if arguments[0] not in UNSYNCED else [])], cwd=home,
                                  stdin=source, capture_output=True, timeout=PATIENCE, check=False)
            status, out, err = done.returncode, out + done.stdout, err + done.stderr
        except subprocess.TimeoutExpired:
            status, out, err = "hangs", b"", b""
        finally:
            if run.stdin:
                source.close()
    out, err = (out if out[:4] == b"ZTEN" else stable(out, str(home))), stable(err, str(home))
    line = f"{status:>3} {sum_of(output) if output else '-':12} {short(out):12} {short(err):12} {' '.join(run.label.split())}"
    if keep:
        (keep / f"{number}.command").write_text(" ".join(run.arguments) + "\n")
        (keep / f"{number}.stdout").write_bytes(out)
        (keep / f"{number}.stderr").write_bytes(err)
    if output and output.exists() and not run.output.startswith("made/"):
        if keep:
            shutil.move(output, keep / f"{number}.{output.name}")
        elif output.is_dir():
            shutil.rmtree(output)
        else:
            output.unlink()
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / "tests/data")
    parser.add_argument("--only", help="only the runs whose label matches this expression", default="")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for texts and outputs")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    program = str(options.program.resolve(strict=True))
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    wanted = re.compile(options.only)
    os.nice(10)
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        home = pathlib.Path(folder)
        shutil.copytree(options.data, home, dirs_exist_ok=True)
        for packed in home.rglob("*.zt.xz"):
            content = lzma.decompress(packed.read_bytes())
            if len(content) <= LARGEST:
                packed.with_suffix("").write_bytes(content)
        names = list(inputs(home))
        for made in "out", "made":
            (home / made).mkdir()
        number = 0
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for runs in first_runs, second_runs:
                chosen = [run for run in runs(names, home)
                          if wanted.search(run.label) or (run.output or "").startswith("made/")]
                jobs = [pool.submit(execute, program, home, options.keep, number + at, run) for at, run in enumerate(chosen)]
                for at, (job, run) in enumerate(zip(jobs, chosen)):
                    if wanted.search(run.label):
                        print(job.result() + (f"  [{number + at}]" if options.keep else ""), flush=True)
                    else:
                        job.result()
                number += len(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
