"""python.py: the Python package beside safetensors, in one sitting: opening, listing, one tensor, a slice, all to torch, saving.

  bench/python.py [--gib N] [--small N] [--folder DIR] [--runs N] [--json OUT]

Needs torch, safetensors and ztstream. Prints a table of medians, warm and, as far as the kernel drops pages when it is told to,
cold. Runs of all contenders alternate.
"""
import argparse
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from safetensors import safe_open
from safetensors.torch import save_file as save_safetensors

import ztstream


def weights(gib, tensors=64):
    """bf16 values as weights have them: normal, with a scale for each tensor."""
    generator = torch.Generator().manual_seed(1)
    each = int(gib * (1 << 30)) // 2 // tensors // 4096 * 4096
    block = torch.randn(each, generator=generator)
    return {f"model.layers.{i}.weight": (block.roll(i * 977) * 0.02).bfloat16().reshape(-1, 4096) for i in range(tensors)}


def drop(path):
    """Takes a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def warm(path):
    """Has a file read from front to back: how it was written decides how the kernel keeps its pages, and so what a fault costs."""
    drop(path)
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def touch(state):
    """Every page of every tensor is there."""
    total = 0
    for tensor in state.values():
        flat = tensor.view(torch.uint8).flatten() if tensor.numel() else tensor
        total += int(flat[::4096].sum())
    return total


def open_st(path):
    with safe_open(path, "pt") as f:
        return len(f.keys())


def open_zt(path):
    with ztstream.open(path) as f:
        return len(list(f))


def one_st(path, name):
    with safe_open(path, "pt") as f:
        return touch({"x": f.get_tensor(name)})


def one_zt(path, name):
    with ztstream.open(path) as f:
        return touch({"x": f[name].torch()})


def slice_st(path, name):
    with safe_open(path, "pt") as f:
        return touch({"x": f.get_slice(name)[16:48]})


def slice_zt(path, name):
    from ztstream.safetensors_compat import safe_open as compat
    with compat(path, "pt") as f:
        return touch({"x": f.get_slice(name)[16:48]})


def all_st(path, _):
    with safe_open(path, "pt") as f:
        return touch({name: f.get_tensor(name) for name in f.keys()})


def all_zt(path, _):
    with ztstream.open(path) as f:
        return touch(f.torch())


def into_st(path, there):
    with safe_open(path, "pt") as f:
        for name, tensor in there.items():
            tensor.copy_(f.get_tensor(name))


def into_zt(path, there):
    with ztstream.open(path) as f:
        f.read(out=there)


def clock(function, *arguments):
    gc.collect()
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


def measure(files, name, runs, cold, there=None):
    """{what: {contender: median seconds}}; the contenders take turns. `there`: tensors that are filled, as those of a module are."""
    works = {"open and list": (lambda p, _: open_st(p), lambda p, _: open_zt(p)), "one tensor": (one_st, one_zt),
             "32 rows": (slice_st, slice_zt), "all to torch": (all_st, all_zt)}
    out = {}
    if there:
        works["all into tensors"] = (into_st, into_zt)
    for path in files.values():
        warm(path)
    for what, (with_st, with_zt) in works.items():
        times = {contender: [] for contender in files}
        for _ in range(runs):
            for contender, path in files.items():
                if cold:
                    drop(path)
                times[contender].append(clock(with_st if contender == "safetensors" else with_zt, path,
                                               there if with_zt is into_zt else name))
        out[what] = {contender: statistics.median(each) for contender, each in times.items()}
    return out


SAVE = """
import sys, time, torch
sys.path[:0] = %r
%s
def resident(what):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(what))
state = torch.load(sys.argv[1])
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = resident("VmRSS")
begin = time.perf_counter()
%s
print(time.perf_counter() - begin, resident("VmHWM") - before)
"""


def save(folder, state, runs):
    """Seconds and KiB of memory on top of the tensors, of a program of its own for each."""
    source = folder / "state.pt"
    torch.save(state, source)
    works = {"safetensors": ("from safetensors.torch import save_file", "save_file(state, sys.argv[2])"),
             "ztstream raw": ("import ztstream", "ztstream.save_file(state, sys.argv[2], overwrite=True, sync=False)"),
             "ztstream planes": ("import ztstream",
                                 "ztstream.save_file(state, sys.argv[2], overwrite=True, sync=False, compress='planes')")}
    out = {contender: [] for contender in works}
    for _ in range(runs):
        for contender, (imports, call) in works.items():
            done = subprocess.run([sys.executable, "-c", SAVE % (sys.path, imports, call), source, folder / "saved"], check=True,
                                  capture_output=True, text=True)
            out[contender].append(tuple(map(float, done.stdout.split())))
            (folder / "saved").unlink()
    source.unlink()
    return {contender: [statistics.median(column) for column in zip(*each)] for contender, each in out.items()}


def table(title, rows):
    print(f"\n{title}")
    contenders = list(next(iter(rows.values())))
    print(f"{'':16}" + "".join(f"{each:>18}" for each in contenders))
    for what, times in rows.items():
        print(f"{what:16}" + "".join(f"{times[each] * 1e3:15.1f} ms" for each in contenders))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--folder")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as made:
        folder, results = pathlib.Path(made), {}
        state = weights(args.gib)
        files = {"safetensors": str(folder / "a.safetensors"), "ztstream raw": str(folder / "raw.zt"),
                 "ztstream planes": str(folder / "planes.zt")}
        save_safetensors(state, files["safetensors"])
        ztstream.save_file(state, files["ztstream raw"])
        ztstream.save_file(state, files["ztstream planes"], compress="planes")
        print(f"{args.gib} GiB bf16: " + ", ".join(f"{each} {os.path.getsize(path):,} bytes" for each, path in files.items()))
        name = next(iter(state))
        results["save"] = save(folder, state, max(1, args.runs // 2))
        print("\nsaving, seconds and MiB on top of the tensors")
        for contender, (seconds, memory) in results["save"].items():
            print(f"{contender:16}{seconds:10.2f} s {memory / 1024:10.0f} MiB")
        for cold in (False, True):
            title = f"large tensors, {'cold' if cold else 'warm'}"
            results[title] = measure(files, name, args.runs, cold, state)
            table(title, results[title])
        del state
        gc.collect()
        small = {f"layer.{i}.bias": torch.full((8,), float(i)) for i in range(args.small)}
        few = {"safetensors": str(folder / "s.safetensors"), "ztstream raw": str(folder / "s.zt")}
        save_safetensors(small, few["safetensors"])
        ztstream.save_file(small, few["ztstream raw"])
        title = f"{args.small:,} small tensors, warm"
        results[title] = measure(few, next(iter(small)), args.runs, False)
        table(title, results[title])
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
