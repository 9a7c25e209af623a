#!/usr/bin/python3
"""Measures what docs/QUANTIZED.md says of large quantized models.

  quantized.py layout [--folder DIR]      one shard of a model of 671 B parameters in 163 shards, as DeepSeek V3 lies: all of its
                                          names and shapes, holes instead of numbers. The plan of all, then the conversion of a shard
  quantized.py folder [--folder DIR] [--size 4] [--vendor fp8_cast_bf16.py]
                                          an FP8 model of SIZE GB to a folder of bf16, beside a script on the CPU: that of the vendor,
                                          given as a file, with torch for its kernel; without torch the same steps in numpy
  quantized.py speed [--folder DIR]       bytes of output a second of each scheme with one thread, beside bf16 to f16

DIR is a temporary folder otherwise; for `speed` and `layout` one in memory says most. Prints seconds and MiB of memory of each run;
ZTSTREAM names the program, build/release/bin/ztstream otherwise.
"""
import argparse
import json
import math
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy

from measure import LAUNCH

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("ZTSTREAM") or str(ROOT / "build/release/bin/ztstream")
BYTES = {"BF16": 2, "F8_E4M3": 1, "F32": 4, "F16": 2, "I32": 4, "U8": 1}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}

# The vendor's script needs a GPU for its kernel alone. Its own text runs, with `cpu` for `cuda` and the kernel's product in torch.
KERNEL = """
import torch
def weight_dequant(x, s, block_size=128):
    spread = s.repeat_interleave(block_size, 0)[:x.shape[0]].repeat_interleave(block_size, 1)[:, :x.shape[1]]
    return (x.to(torch.float32) * spread).to(torch.get_default_dtype())
"""
NUMPY = """
import json, pathlib, struct, sys, numpy
source, out = map(pathlib.Path, sys.argv[1:3])
table = numpy.arange(256, dtype=numpy.uint8)
exponent, mantissa = (table >> 3 & 15).astype(int), (table & 7).astype(float)
table = numpy.where(exponent == 0, mantissa * 2.0 ** -9, (8 + mantissa) * 2.0 ** (exponent - 10.0)) * numpy.where(table & 128, -1, 1)
table = table.astype(numpy.float32)
for path in sorted(source.glob("*.safetensors")):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    parts, entries, at = [], {}, 0
    for name, entry in header.items():
        if name.endswith("_scale_inv"):
            continue
        begin, end = (each + 8 + size for each in entry["data_offsets"])
        data, dtype = raw[begin:end], entry["dtype"]
        if dtype == "F8_E4M3":
            scales = header[name + "_scale_inv"]
            begin, end = (each + 8 + size for each in scales["data_offsets"])
            s = numpy.frombuffer(raw[begin:end], "<f4").reshape(scales["shape"])
            x = table[numpy.frombuffer(data, "u1").reshape(entry["shape"])]
            x *= s.repeat(128, 0)[:x.shape[0]].repeat(128, 1)[:, :x.shape[1]]
            bits = x.view("<u4")
            data, dtype = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes(), "BF16"
        entries[name] = {"dtype": dtype, "shape": entry["shape"], "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(entries).encode()
    with open(out / path.name, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)
"""


def run(label, command):
    """(seconds, MiB)."""
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as said:
        subprocess.run([sys.executable, "-ISc", LAUNCH, str(report.fileno()), *map(str, command)], stdout=said, stderr=said,
                       pass_fds=[report.fileno()], check=False)
        report.seek(0)
        said.seek(0)
        told = report.read().split()
        if not told or int(told[3]):
            sys.exit(f"{label}: {said.read()[-2000:].decode(errors='replace')}")
    seconds, memory = float(told[0]), int(told[2]) / 1024
    print(f"{label:44} {seconds:8.2f} s {memory:8.0f} MiB", flush=True)
    return seconds, memory


def write(path, tensors, fill=None):
    """Writes {name: (dtype, shape)}; `fill` gives a tensor's bytes, holes otherwise."""
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in tensors if fill else ():
            file.write(fill(*tensors[name]))
        file.truncate(8 + len(text) + at)


def linear(out, name, rows, columns):
    out[name] = "F8_E4M3", [rows, columns]
    out[name + "_scale_inv"] = "F32", [-(-rows // 128), -(-columns // 128)]


def deepseek_v3():
    """The names and shapes of DeepSeek V3: 671 B parameters."""
    out = {"model.embed_tokens.weight": ("BF16", [129280, 7168])}
    for layer in range(61):
        at = f"model.layers.{layer}."
        out[at + "input_layernorm.weight"] = out[at + "post_attention_layernorm.weight"] = "BF16", [7168]
        out[at + "self_attn.q_a_layernorm.weight"], out[at + "self_attn.kv_a_layernorm.weight"] = ("BF16", [1536]), ("BF16", [512])
        for name, rows, columns in (("q_a_proj", 1536, 7168), ("q_b_proj", 24576, 1536), ("kv_a_proj_with_mqa", 576, 7168),
                                    ("kv_b_proj", 32768, 512), ("o_proj", 7168, 16384)):
            linear(out, f"{at}self_attn.{name}.weight", rows, columns)
        experts = [("mlp.", 18432)] if layer < 3 else [(f"mlp.experts.{i}.", 2048) for i in range(256)] + [("mlp.shared_experts.", 2048)]
        if layer >= 3:
            out[at + "mlp.gate.weight"], out[at + "mlp.gate.e_score_correction_bias"] = ("BF16", [256, 7168]), ("F32", [256])
        for name, width in experts:
            for part, rows, columns in (("gate_proj", width, 7168), ("up_proj", width, 7168), ("down_proj", 7168, width)):
                linear(out, f"{at}{name}{part}.weight", rows, columns)
    out["model.norm.weight"], out["lm_head.weight"] = ("BF16", [7168]), ("BF16", [129280, 7168])
    return out


def write_folder(folder, tensors, shards, fill=None):
    """Cut into shards of about equal size, with index and configuration."""
    size = sum(math.prod(shape) * BYTES[dtype] for dtype, shape in tensors.values())
    parts, done = [{} for _ in range(shards)], 0
    for name, (dtype, shape) in tensors.items():
        parts[min(done * shards // size, shards - 1)][name] = dtype, shape
        done += math.prod(shape) * BYTES[dtype]
    weight_map = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05}-of-{shards:06}.safetensors"
        write(folder / file, part, fill)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "quantization_config": FP8}))
    return size


def layout(options):
    home = options.folder
    model = home / "v3"
    model.mkdir()
    tensors = deepseek_v3()
    print(f"{len(tensors):,} tensors, {write_folder(model, tensors, 163) / 1e9:.0f} GB of holes in 163 shards")
    run("plan of all", [PROGRAM, "convert", model, "--dequantize", "bf16", "-n", "-q", "--json"])
    shard = [PROGRAM, "convert", model, "--shard", "80/163", "-q", "-f", "--no-sync", "-o"]
    for threads in sorted({1, os.cpu_count()}):
        for name, rule in (("as it is", []), ("--dequantize bf16", ["--dequantize", "bf16"])):
            seconds, _ = run(f"one shard of 163, {name}, -T {threads}", [*shard, home / "out.zt", *rule, "-T", threads])
            written = sum(path.stat().st_size for path in home.glob("out*.zt"))
            print(f"  {written / 1e9:.2f} GB, {written / 1e9 / seconds:.2f} GB/s")
            for path in home.glob("out*.zt"):
                path.unlink()
    # As many bytes by the conversion that the rate is compared with.
    write(home / "plain.safetensors", {f"t{i}": ("BF16", [4096, 8192]) for i in range(written // 2 ** 26)})
    for threads in sorted({1, os.cpu_count()}):
        seconds, _ = run(f"bf16 to f16, as many bytes, -T {threads}", [PROGRAM, "convert", home / "plain.safetensors", "--dtype", "f16", "-o",
                                                                      home / "out.zt", "-q", "-f", "--no-sync", "-T", threads])
        print(f"  {written / 1e9 / seconds:.2f} GB/s")
        (home / "out.zt").unlink()


def filler(seed):
    generator = numpy.random.default_rng(seed)

    def fill(dtype, shape):
        count = math.prod(shape)
        if dtype == "F8_E4M3":
            return (numpy.frombuffer(generator.bytes(count), "u1") & 0xf7).tobytes()  # no NaN
        if dtype in ("F32", "F16"):
            return (generator.random(count, "f4") * .01).astype("<f4" if dtype == "F32" else "<f2").tobytes()
        if dtype == "BF16":
            return generator.integers(0x3c00, 0x3f80, count, dtype="<u2").tobytes()
        return generator.integers(0, 256, count * BYTES[dtype], dtype="u1").tobytes()
    return fill


def folder(options):
    home, tensors = options.folder, {}
    for layer in range(max(1, round(options.size * 1e9 / (7 * 4096 * 14336)))):
        for name, rows, columns in (("q_proj", 14336, 4096), ("gate_proj", 14336, 4096), ("up_proj", 14336, 4096), ("down_proj", 4096, 14336)):
            linear(tensors, f"model.layers.{layer}.mlp.{name}.weight", rows, columns)
        for name in ("k_proj", "v_proj", "o_proj"):
            linear(tensors, f"model.layers.{layer}.self_attn.{name}.weight", 4096, 14336)
    model = home / "fp8"
    model.mkdir()
    size = write_folder(model, tensors, max(1, round(options.size)), filler(1))
    print(f"{size / 1e9:.2f} GB of FP8 in {max(1, round(options.size))} shards")
    ours, theirs = home / "ours", home / "theirs"
    a = run("ztstream", [PROGRAM, "convert", model, "--dequantize", "bf16", "--to", "safetensors", "--shard-size", "4GB", "-q", "--no-sync",
                         "-o", f"{ours}/"])
    try:
        if not options.vendor:
            raise ImportError
        import torch  # noqa: F401  pylint: disable=unused-import,import-outside-toplevel
        text = pathlib.Path(options.vendor).read_text().replace('device="cuda"', 'device="cpu"').replace("torch.cuda.empty_cache()", "pass")
        (home / "fp8_cast_bf16.py").write_text(text)
        (home / "kernel.py").write_text(KERNEL)
        (home / "tqdm.py").write_text("def tqdm(each):\n    return each\n")
        b = run("the vendor's script, torch on the CPU", [sys.executable, home / "fp8_cast_bf16.py", "--input-fp8-hf-path", model,
                                                          "--output-bf16-hf-path", theirs])
    except ImportError:
        theirs.mkdir()
        b = run("the same steps in numpy", [sys.executable, "-c", NUMPY, model, theirs])
    print(f"{b[0] / a[0]:.1f} times as fast, 1/{b[1] / a[1]:.0f} of the memory")
    done = subprocess.run([PROGRAM, "diff", ours, theirs, "--files", "none", "-q"], check=False)
    print("equal" if done.returncode == 0 else f"diff: exit status {done.returncode}")
    return done.returncode


def speed(options):
    home, config = options.folder, {}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "checkpoint_format": "gptq"}
    models = {"bf16": {}, "fp8": {}, "gptq": {}, "awq": {}, "gpt_oss": {}}
    for i in range(32):
        models["bf16"][f"m{i}"] = "BF16", [4096, 4096]
        linear(models["fp8"], f"l.{i}.weight", 4096, 4096)
        for name, words in (("gptq", [512, 4096]), ("awq", [4096, 512])):
            models[name] |= {f"l.{i}.qweight": ("I32", words), f"l.{i}.qzeros": ("I32", [32, 512]), f"l.{i}.scales": ("F16", [32, 4096])}
    for i in range(8):
        models["gpt_oss"] |= {f"l.{i}.w_blocks": ("U8", [8, 2880, 90, 16]), f"l.{i}.w_scales": ("U8", [8, 2880, 90])}
    config = {"fp8": FP8, "gptq": gptq, "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
              "gpt_oss": {"quant_method": "mxfp4"}}
    commands, best, sizes = {}, {}, {}
    for name, tensors in models.items():
        (home / name).mkdir()
        fill = filler(2)
        write(home / name / "model.safetensors", tensors,
              lambda dtype, shape, of=name, fill=fill: numpy.full(shape, 120, "u1").tobytes() if of == "gpt_oss" and shape[-1] == 90 else fill(dtype, shape))
        if name in config:
            (home / name / "config.json").write_text(json.dumps({"quantization_config": config[name]}))
        size = sum(math.prod(shape) * BYTES[dtype] for dtype, shape in tensors.values())
        sizes[name] = size * {"bf16": 1, "fp8": 2}.get(name, 4)  # less the scales
        rule = ["--dequantize", "bf16"] if name in config else ["--dtype", "f16"]
        commands[name] = [PROGRAM, "convert", home / name, *rule, "--files", "none", "--on-overflow", "inf", "-T", "1", "-q", "-f",
                          "-o", "/dev/null"]
    for _ in range(options.runs):
        for name, command in commands.items():
            began = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(list(map(str, command)), check=True)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime
            best[name] = min(seconds / sizes[name] * 1e9, best.get(name, 1e9))
    for name, seconds in best.items():
        print(f"{name:10} {1 / seconds:6.2f} GB/s of output, {best['bf16'] / seconds:5.2f} of bf16 to f16")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=["layout", "folder", "speed"])
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--size", type=float, default=4)
    parser.add_argument("--vendor")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    options.folder = pathlib.Path(tempfile.mkdtemp(prefix="quantized-", dir=options.folder))
    try:
        sys.exit({"layout": layout, "folder": folder, "speed": speed}[options.what](options))
    finally:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
