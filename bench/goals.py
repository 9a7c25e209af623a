#!/usr/bin/env python3
"""Measures the pipeline's goals: contenders interleaved in one sitting, medians and ratios.

  goals.py [--program build/release/bin/ztstream] [--folder DIR] [--size 4GiB] [--runs 5] [SECTION...]

Sections: raw zstd small decode memory sparse same (all by default). DIR wants about three times the size free. Each
run begins with `sync`; inputs are read once beforehand, so they come from the page cache; outputs are removed between
runs, and the order changes from round to round: what ran before decides which memory the page cache finds. Nothing
here waits for the disk (cp does not either, so ztstream runs with --no-sync): section `raw` adds rows with the disk's
share, `cp` and `sync` against ztstream as it is. Needs python3-numpy and the zstd program.
"""
import argparse
import filecmp
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SECTIONS = ["raw", "zstd", "small", "decode", "memory", "sparse", "same"]


class Bench:
    def __init__(self, options):
        self.program = str(options.program.resolve())
        self.folder = options.folder
        self.size = options.size
        self.runs = options.runs
        self.failed = False
        self.random = random.Random(1)

    def path(self, name):
        return str(self.folder / name)

    def make(self, name, size, *extra):
        out = self.path(name)
        if not os.path.exists(out):
            subprocess.run([sys.executable, str(HERE / "make_checkpoint.py"), size, out, *extra], check=True,
                           stdout=subprocess.DEVNULL)
        with open(out, "rb") as f:  # into the page cache
            if "--sparse" not in extra:
                while f.read(1 << 24):
                    pass
        return out

    def convert(self, source, *options, out="out.zt", sync=False):
        target = out if out.startswith("/") else self.path(out)
        return [self.program, "convert", "-q", "-f", source, "-o", target, *options, *([] if sync else ["--no-sync"])]

    def once(self, command):
        """Seconds and peak resident bytes of one run."""
        for left in self.folder.glob("out*"):
            left.unlink()
        os.sync()
        time.sleep(0.3)
        begin = time.perf_counter()
        process = subprocess.Popen(command, shell=isinstance(command, str), stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        if status != 0:
            sys.exit(f"failed with status {status}: {command}")
        return seconds, usage.ru_maxrss * 1024

    def compare(self, contenders):
        """Runs every contender in turn, `runs` times over; median seconds and largest resident size by name."""
        times = {name: [] for name in contenders}
        peaks = {name: 0 for name in contenders}
        order = list(contenders.items())
        for _ in range(self.runs):
            self.random.shuffle(order)
            for name, command in order:
                seconds, peak = self.once(command)
                times[name].append(seconds)
                peaks[name] = max(peaks[name], peak)
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name in contenders:
            low, high = min(times[name]), max(times[name])
            print(f"  {name:34} {medians[name]:8.3f} s   ({low:.3f} to {high:.3f})   {peaks[name] / 2**20:6.1f} MiB resident")
        return medians, peaks

    def goal(self, what, value, bound, at_most=True):
        met = value <= bound if at_most else value >= bound
        self.failed |= not met
        sign = "<=" if at_most else ">="
        print(f"  {'met   ' if met else 'MISSED'} {what}: {value:.3f} (goal {sign} {bound})")

    # ---- sections --------------------------------------------------------------------------------------------

    def raw(self):
        w = self.make("weights.safetensors", self.size)
        medians, _ = self.compare({
            "cp": ["cp", w, self.path("out.cp")],
            "ztstream -T1": self.convert(w, "-T1"),
            "ztstream -T2": self.convert(w, "-T2"),
            "cp, then sync": f"cp {w} {self.path('out.cp')} && sync {self.path('out.cp')}",
            "ztstream -T1, synced": self.convert(w, "-T1", sync=True),
            "ztstream -T2, synced": self.convert(w, "-T2", sync=True),
        })
        self.goal("raw, 1 thread / cp", medians["ztstream -T1"] / medians["cp"], 0.9)
        self.goal("raw, 2 threads / cp", medians["ztstream -T2"] / medians["cp"], 0.6)
        for threads in "12":
            synced = medians[f"ztstream -T{threads}, synced"]
            print(f"         synced, {threads} threads / cp, then sync: {synced / medians['cp, then sync']:.3f}; "
                  f"/ cp alone: {synced / medians['cp']:.3f}")

    def zstd(self):
        w = self.make("weights.safetensors", self.size)
        medians, _ = self.compare({
            "zstd -1 -T2": ["zstd", "-q", "-f", "-1", "-T2", w, "-o", self.path("out.zst")],
            "ztstream --zstd -T1": self.convert(w, "--zstd", "-T1"),
            "ztstream --zstd -T2": self.convert(w, "--zstd", "-T2"),
            "ztstream --zstd=huffman -T2": self.convert(w, "--zstd=huffman", "-T2"),
        })
        sizes = {}
        for name, command in {"zstd": ["zstd", "-q", "-f", "-1", "-T2", w, "-o", self.path("keep.size")],
                              "level 1": self.convert(w, "--zstd", out="keep.size"),
                              "huffman": self.convert(w, "--zstd=huffman", out="keep.size")}.items():
            subprocess.run(command, check=True)
            sizes[name] = os.path.getsize(self.path("keep.size"))
            os.unlink(self.path("keep.size"))
        base = medians["zstd -1 -T2"]
        self.goal("zstd, 2 threads / zstd -1 -T2", medians["ztstream --zstd -T2"] / base, 0.75)
        self.goal("huffman, 2 threads / zstd -1 -T2", medians["ztstream --zstd=huffman -T2"] / base, 0.6)
        self.goal("1 thread / 2 threads", medians["ztstream --zstd -T1"] / medians["ztstream --zstd -T2"], 1.8, False)
        self.goal("size, level 1 / zstd -1", sizes["level 1"] / sizes["zstd"], 1.0)
        self.goal("size, huffman / zstd -1", sizes["huffman"] / sizes["zstd"], 1.0)

    def small(self):
        small = self.make("small.safetensors", "512MB", "--tensor-bytes", "10240")
        large = self.make("large.safetensors", "512MB")
        for threads in ("1", "2"):
            medians, _ = self.compare({
                f"50,000 tensors of 10 KB, -T{threads}": self.convert(small, "-T" + threads),
                f"the same bytes, large, -T{threads}": self.convert(large, "-T" + threads),
            })
            low, high = medians.values()
            rates = os.path.getsize(small) / low, os.path.getsize(large) / high
            self.goal(f"throughput, small / large, {threads} threads", rates[0] / rates[1], 0.6, False)

    def decode(self):
        w = self.make("weights.safetensors", self.size)
        subprocess.run(self.convert(w, "--zstd", out="keep.zt"), check=True)
        subprocess.run(["zstd", "-q", "-f", "-1", "-T2", w, "-o", self.path("keep.zst")], check=True)
        z = self.path("keep.zt")
        medians, _ = self.compare({
            "zstd -d to nowhere": ["zstd", "-q", "-f", "-d", self.path("keep.zst"), "-o", "/dev/null"],
            "ztstream -T1 to nowhere": self.convert(z, "-T1", "--digest", "none", out="/dev/null"),
            "ztstream -T2 to nowhere": self.convert(z, "-T2", "--digest", "none", out="/dev/null"),
        })
        one, two = medians["ztstream -T1 to nowhere"], medians["ztstream -T2 to nowhere"]
        self.goal("decode, 1 thread / 2 threads", one / two, 1.8, False)
        self.goal("decode, 2 threads / zstd -d", two / medians["zstd -d to nowhere"], 1.0)
        for left in ("keep.zt", "keep.zst"):
            os.unlink(self.path(left))

    def memory(self):
        w = self.make("weights.safetensors", self.size)
        for options in (["-T2"], ["-T2", "--zstd"], ["-T2", "--zstd=huffman"]):
            _, peak = self.once(self.convert(w, *options))
            self.goal(f"resident MiB, {' '.join(options)}", peak / 2**20, 96)

    def sparse(self):
        hole = self.make("hole.safetensors", "1TB", "--sparse")
        for options in (["-T2"], ["-T2", "--zstd"]):
            if "--zstd" in options:
                hole = self.make("hole64.safetensors", "64GB", "--sparse")
            seconds, peak = self.once(self.convert(hole, *options, out="/dev/null"))
            print(f"  {os.path.getsize(hole) / 1e9:.0f} GB of holes, {' '.join(options)}: {seconds:.1f} s")
            self.goal(f"resident MiB, {' '.join(options)}", peak / 2**20, 96)

    def same(self):
        w = self.make("small-weights.safetensors", "96MB")
        for options in ([], ["--zstd"], ["--zstd=huffman", "--digest", "sha256"]):
            reference = self.path("keep.zt")
            subprocess.run(self.convert(w, "-T1", *options, out="keep.zt"), check=True)
            count = 0
            for threads in ("1", "2", "3", "8"):
                for memory in ("1MiB", "16MiB", "64MiB"):
                    common = ["-T" + threads, "--memory", memory, *options]
                    runs = [" ".join(self.convert(w, *common)),
                            f"{self.program} convert -q - -o {self.path('out.zt')} {' '.join(common)} < {w}",
                            f"cat {w} | {self.program} convert -q - -o - {' '.join(common)} | cat > {self.path('out.zt')}"]
                    for run in runs:
                        subprocess.run("rm -f " + self.path("out.zt") + "; " + run, shell=True, check=True)
                        count += 1
                        if not filecmp.cmp(reference, self.path("out.zt"), shallow=False):
                            self.failed = True
                            print(f"  DIFFERENT BYTES: {run}")
            os.unlink(reference)
            print(f"  {' '.join(options) or 'raw'}: {count} runs compared with -T1 from a file to a file")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build/release/bin/ztstream")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/bench"))
    parser.add_argument("--size", default="4GiB")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f}, {options.size}, medians of {options.runs}")
    for section in options.sections or SECTIONS:
        print(section)
        getattr(bench, section)()
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
