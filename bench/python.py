"""python.py: the Python package beside safetensors, in one sitting: opening, listing, one tensor, a slice, all to torch, saving.

  bench/python.py [--gib N] [--small N] [--folder DIR] [--runs N] [--json OUT]
  bench/python.py --device cuda:0 [--gib N] [--folder DIR] [--runs N] [--json OUT]

Needs torch, safetensors and ztstream. Prints a table of medians, warm and, as far as the kernel drops pages when it is told to,
cold. Runs of all contenders alternate. With --device it is loading onto that alone: the first time in a process, and again.
"""
import argparse
import gc
import json
import os
import pathlib
import platform
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


LOAD = """
import gc, sys, time, torch
sys.path[:0] = %r
import ztstream, safetensors.torch
path, name, device = sys.argv[1:]
wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
def load():
    if name == "safetensors":
        return safetensors.torch.load_file(path, device)
    with ztstream.open(path) as file:
        return file.torch(device=device, progress=lambda *_: None)
def resident(what):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(what))
torch.zeros(1, device=device), wait()
before, times = resident("VmRSS"), []
for _ in range(2):
    state = None
    gc.collect()
    begin = time.perf_counter()
    state = load()
    wait()
    times.append(time.perf_counter() - begin)
total = sum(int(tensor.view(torch.int16).sum(dtype=torch.int64)) for tensor in state.values())
print(*times, resident("VmHWM") - before, total)
"""


def load(folder, device, gib, runs):
    """Seconds of the first load of a process and of the next, and KiB of its memory, of a program of its own for each."""
    state = weights(gib, 195)
    files = {"safetensors": folder / "a.safetensors", "ztstream raw": folder / "raw.zt", "ztstream planes": folder / "planes.zt"}
    save_safetensors(state, files["safetensors"])
    ztstream.save_file(state, files["ztstream raw"])
    ztstream.save_file(state, files["ztstream planes"], compress="planes")
    size = sum(tensor.nbytes for tensor in state.values())
    del state
    for path in files.values():
        warm(path)
    out, sums = {contender: [] for contender in files}, set()
    for _ in range(runs):
        for contender, path in files.items():
            done = subprocess.run([sys.executable, "-c", LOAD % sys.path, path, contender, device], check=True, capture_output=True, text=True)
            *measured, total = done.stdout.split()
            out[contender].append(tuple(map(float, measured)))
            sums.add(total)
    if len(sums) != 1:
        sys.exit(f"the contenders have loaded different numbers: {sums}")
    cuda = device.startswith("cuda")
    print(f"{time.strftime('%Y-%m-%d')}, {platform.node()}, {len(os.sched_getaffinity(0))} threads, "
          f"{torch.cuda.get_device_name(device) if cuda else device}, torch {torch.__version__}: {size / 1e9:.2f} GB of bf16, 195 tensors")
    medians = {contender: [statistics.median(column) for column in zip(*each)] for contender, each in out.items()}
    for contender, (first, again, memory) in medians.items():
        print(f"{contender:16}{first:8.3f} s first {again:8.3f} s again {size / again / 1e9:8.1f} GB/s {memory / 1024:8.0f} MiB")
    return medians


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
    parser.add_argument("--device")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as made:
        folder, results = pathlib.Path(made), {}
        if args.device:
            results["load"] = load(folder, args.device, args.gib, args.runs)
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
            return
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
