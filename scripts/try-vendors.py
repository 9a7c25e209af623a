#!/usr/bin/env python3
"""Quantizes small models by the vendors' own Python, and compares the numbers of --dequantize with those of the vendors.

    scripts/try-vendors.py [--only REGEX] [--sources FOLDER]

Prints a line for each scheme and type: how many numbers are equal, and by how many units in the last place others differ, which only
those may that docs/QUANTIZED.md explains. Models of transformers are loaded from the folder that the program wrote, too: their tensors
and logits must be those of the quantized model that transformers dequantizes itself. Exit status 1 if anything differs otherwise.

Runs where these libraries are: Debian sid with python3-torch, -safetensors, -transformers, -accelerate and -compressed-tensors.
FOLDER has the sources of what Debian has not, as their repositories have them: bitsandbytes/, gptqmodel/, awq/ (AutoAWQ) and
modelopt/ (TensorRT-Model-Optimizer); what is absent is left out. ZTSTREAM names the program, build/release/bin/ztstream otherwise.
"""
import argparse
import ast
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # it would ask for a compiler

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file
from transformers.integrations import finegrained_fp8, mxfp4

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ.get("ZTSTREAM") or str(HERE.parent / "build/release/bin/ztstream")
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Model:
    """Tensors and a configuration, and what a vendor makes of them: {name: function of a type}."""

    def __init__(self, config):
        self.config, self.tensors, self.numbers = config, {}, {}


def write(folder, model):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"quantization_config": model.config}))
    save_file({name: tensor.contiguous() for name, tensor in model.tensors.items()}, folder / "model.safetensors")


def dequantize(folder, out, kind):
    subprocess.run([PROGRAM, "convert", folder, "--dequantize", kind, "--to", "safetensors", "-q", "-o", f"{out}/"], check=True)


def distance(ours, theirs):
    """Units in the last place of the type, at most; NaN equals NaN."""
    ours, theirs = ours.contiguous(), theirs.contiguous()
    bits = torch.int32 if ours.element_size() == 4 else torch.int16

    def order(tensor):
        number = tensor.view(bits).to(torch.int64)
        return torch.where(number < 0, -(number & (2 ** (8 * ours.element_size() - 1) - 1)), number)
    both_nan = ours.isnan() & theirs.isnan()
    return torch.where(both_nan, 0, (order(ours) - order(theirs)).abs())


def compare(name, model, folder, may_differ):
    """The number of faults. `may_differ` has the types whose numbers the vendor rounds otherwise, and by how much they then differ."""
    write(folder / "in", model)
    faults = 0
    for kind, dtype in TYPES.items():
        dequantize(folder / "in", folder / kind, kind)
        ours = load_file(folder / kind / "model.safetensors")
        left = set(ours) - set(model.numbers)
        apart, most, count = 0, 0, 0
        for weight, make in model.numbers.items():
            theirs = make(dtype).to(dtype)
            if ours[weight].shape != theirs.shape or ours[weight].dtype != dtype:
                print(f"{name} {kind}: {weight} is {ours[weight].dtype} {list(ours[weight].shape)}, not {dtype} {list(theirs.shape)}")
                faults += 1
                continue
            ulps = distance(ours[weight], theirs)
            apart, most, count = apart + int((ulps > 0).sum()), max(most, int(ulps.max())), count + ulps.numel()
        wrong = bool(left) or most > may_differ.get(kind, 0)
        faults += wrong
        print(f"{name:24} {kind:5} {count - apart:8} of {count} equal" + (f", others by at most {most} units" if apart else "") +
              (f", left over: {sorted(left)}" if left else "") + ("  WRONG" if wrong else ""), flush=True)
    return faults


# ---- compressed-tensors -------------------------------------------------------------------------------------------------

def compressed(form, scale_type=torch.float32, block=None, group=None, bits=8, kind="float", symmetric=True, order=False):
    strategy = "block" if block else "group" if group else "channel"
    if form == "nvfp4-pack-quantized":
        strategy = "tensor_group"
    fields = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": symmetric}
    fields |= {"block_structure": block} if block else {}
    fields |= {"group_size": group} if group else {}
    fields |= {"actorder": "group"} if order else {}
    args = QuantizationArgs(**fields)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=form)
    compressor = BaseCompressor.get_value_from_registry(form)
    model = Model({"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "format": form, "weights": fields}}})
    for i, shape in enumerate(((64, 256), (96, 128))):
        weight = torch.randn(shape) * .05
        grid = (-(-shape[0] // block[0]), -(-shape[1] // block[1])) if block else (shape[0], shape[1] // group if group else 1)
        spread = (block if block else (1, shape[1] // grid[1]))
        blocks = weight.reshape(grid[0], spread[0], grid[1], spread[1])
        most = {("float", 8): 448, ("float", 4): 6}.get((kind, bits), 2 ** (bits - 1) - 1)
        scale = blocks.abs().amax((1, 3)).clamp(min=1e-6) / most
        state = {"weight": weight, "weight_scale": scale.to(scale_type)}
        if form.startswith("mx"):
            state["weight_scale"] = torch.exp2(torch.ceil(torch.log2(scale))).to(scale_type)
        if form == "nvfp4-pack-quantized":
            state["weight_global_scale"] = torch.tensor([448 * 6 / float(weight.abs().max())])
            state["weight_scale"] = (scale * state["weight_global_scale"]).clamp(max=448)
        if not symmetric:
            state["weight_zero_point"] = torch.randint(-2 ** (bits - 1), 2 ** (bits - 1), grid, dtype=torch.int8)
        if order:
            state["weight_g_idx"] = (torch.arange(shape[1]) // group)[torch.randperm(shape[1])].to(torch.int32)
        stored = compressor.compress(state, scheme)
        name = f"model.layers.{i}.proj"
        model.tensors |= {f"{name}.{key}": value for key, value in stored.items()}

        def numbers(dtype, stored=stored):
            return compressor.decompress(dict(stored), scheme)["weight"]
        model.numbers[f"{name}.weight"] = numbers
    return model


def ct(name, may_differ=None, **arguments):
    CASES["compressed-tensors " + name] = lambda sources: (compressed(**arguments), may_differ or {})


# Where scales are of bf16, and for nvfp4, the vendor multiplies in bf16: f32 and f16 then have no more than its precision.
HALF_WAY = {"f32": 2 ** 15, "f16": 4}
ct("fp8 rows", form="float-quantized")
ct("fp8 rows bf16", form="float-quantized", scale_type=torch.bfloat16, may_differ=HALF_WAY)
ct("fp8 blocks", form="float-quantized", block=[32, 64])
ct("int8", form="int-quantized", kind="int")
ct("int8 asymmetric", form="int-quantized", kind="int", symmetric=False)
ct("int8 groups", form="int-quantized", kind="int", group=32)
for size in (2, 3, 4, 5, 8):
    ct(f"pack {size} bits", form="pack-quantized", kind="int", bits=size, group=32)
ct("pack asymmetric", form="pack-quantized", kind="int", bits=4, group=64, symmetric=False)
ct("pack act-order", form="pack-quantized", kind="int", bits=4, group=64, order=True)
ct("nvfp4", form="nvfp4-pack-quantized", bits=4, group=16, may_differ=HALF_WAY)
ct("mxfp4", form="mxfp4-pack-quantized", bits=4, group=32, scale_type=torch.bfloat16)
ct("mxfp8", form="mxfp8-quantized", bits=8, group=32, scale_type=torch.bfloat16)


# ---- transformers -------------------------------------------------------------------------------------------------------

@case
def transformers_fp8_blocks(sources):
    model = Model({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})
    vendor = finegrained_fp8.Fp8Dequantize(None)
    for name, scale_type in (("a", torch.float32), ("b", torch.bfloat16), ("c", torch.float8_e8m0fnu)):
        weight = torch.randn(256, 384).mul(200).to(torch.float8_e4m3fn)
        scale = torch.exp2(torch.randint(-9, 2, (2, 3)).float()) if name == "c" else torch.rand(2, 3) * .01
        model.tensors |= {f"{name}.weight": weight, f"{name}.weight_scale_inv": scale.to(scale_type)}
        model.numbers[f"{name}.weight"] = lambda dtype, w=weight, s=scale.to(scale_type): vendor._dequantize_one(w, s, dtype)
    return model, {}


@case
def transformers_fp4(sources):
    model = Model({"quant_method": "fp8", "weight_block_size": [128, 128]})
    vendor = finegrained_fp8.Fp8Dequantize(None)
    weight = torch.randint(-128, 128, (64, 64), dtype=torch.int8)
    scale = torch.exp2(torch.randint(-9, 2, (64, 4)).float()).to(torch.float8_e8m0fnu)
    model.tensors = {"e.w1.weight": weight, "e.w1.scale": scale}
    model.numbers["e.w1.weight"] = lambda dtype: vendor._dequantize_one(weight, scale, dtype)
    return model, {}


@case
def transformers_mxfp4(sources):
    model = Model({"quant_method": "mxfp4", "modules_to_not_convert": []})
    blocks = torch.randint(0, 256, (3, 64, 4, 16), dtype=torch.uint8)
    scales = torch.randint(110, 130, (3, 64, 4), dtype=torch.uint8)
    model.tensors = {"experts.gate_up_proj_blocks": blocks, "experts.gate_up_proj_scales": scales}
    model.numbers["experts.gate_up_proj"] = lambda dtype: mxfp4.convert_moe_packed_tensors(blocks, scales, dtype=dtype)
    return model, {}


# ---- sources ------------------------------------------------------------------------------------------------------------

def bitsandbytes(sources):
    if not (sources and (sources / "bitsandbytes").exists()):
        return None
    sys.path.insert(0, str(sources))
    from bitsandbytes import functional
    return functional


def bits4(sources, kind, nested):
    functional = bitsandbytes(sources)
    if functional is None:
        return None
    model = Model({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind})
    for i, shape in enumerate(((96, 160), (64, 64))):
        codes, state = functional.quantize_4bit(torch.randn(shape) * .02, quant_type=kind, compress_statistics=nested)
        name = f"model.layers.{i}.proj.weight"
        model.tensors |= {name: codes} | {f"{name}.{key}": value for key, value in state.as_dict(packed=True).items()}

        def numbers(dtype, codes=codes, state=state):
            state.dtype = dtype
            return functional.dequantize_4bit(codes, state)
        model.numbers[name] = numbers
    return model, {}


for four in ("nf4", "fp4"):
    for double in (False, True):
        CASES[f"bitsandbytes {four}{' double' if double else ''}"] = lambda sources, a=four, b=double: bits4(sources, a, b)


@case
def bitsandbytes_int8(sources):
    functional = bitsandbytes(sources)
    if functional is None:
        return None
    model = Model({"quant_method": "bitsandbytes", "load_in_8bit": True})
    codes, scales, _ = functional.int8_vectorwise_quant(torch.randn(64, 160).half())
    model.tensors = {"a.weight": codes, "a.SCB": scales, "a.weight_format": torch.tensor(0, dtype=torch.uint8)}
    model.numbers["a.weight"] = lambda dtype: functional.int8_vectorwise_dequant(codes, scales)
    return model, {}


def cut(sources, file, names, space):
    """Functions, classes and variables of a source file, cut from it: all of it needs what is not here. They see `space`, which then has
    them. None without the file."""
    path = sources / file if sources else pathlib.Path("none")
    if not path.exists():
        return None
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        name = node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else getattr(node, "name", None)
        if name in names and isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Assign)):
            found.setdefault(name, node)
    exec(compile(ast.Module([found[name] for name in names], []), str(path), "exec"), space)
    return space


def gptq_class(sources):
    """The part of GPTQModel's layer that dequantizes."""
    names = ["dequantize_weight", "_dequantize_from_codes"]
    space = cut(sources, "gptqmodel/nn_modules/qlinear/__init__.py", names, {
        "t": torch, "_torch_right_shift": lambda a, b: torch.bitwise_right_shift(a, b),
        "_torch_left_shift": lambda a, b: torch.bitwise_left_shift(a, b)})
    return space and type("Layer", (), {name: space[name] for name in names} | {
        "planar": False, "_init_wf_unsqueeze_buffers": lambda self: None})


def pack_rows(codes, bits):
    """[n, m] codes as [n * bits / 32, m] words, the lowest bits first, without a gap."""
    n, m = codes.shape
    flat = (codes.T.reshape(m, n, 1).to(torch.int64) >> torch.arange(bits)) & 1
    words = (flat.reshape(m, -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32).T.contiguous()


def gptq(sources, bits, second, order):
    layer_of = gptq_class(sources)
    if layer_of is None:
        return None
    model = Model({"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": order, "checkpoint_format": "gptq_v2" if second else "gptq"})
    rows, columns, groups = 64, 128, 4
    # Zero points of v1 are stored less one; of 0 readers differ, so none is here (docs/QUANTIZED.md).
    codes, zeros = torch.randint(0, 2 ** bits, (columns, rows)), torch.randint(1, 2 ** bits, (groups, rows))
    scales = (torch.rand(groups, rows) * .01).half()
    g_idx = torch.arange(columns) // 32
    g_idx = (g_idx[torch.randperm(columns)] if order else g_idx).to(torch.int32)
    qweight, plain = pack_rows(codes, bits), pack_rows(zeros.T, bits).T.contiguous()
    stored = plain if second else pack_rows((zeros - 1).T, bits).T.contiguous()
    model.tensors = {"a.qweight": qweight, "a.qzeros": stored, "a.scales": scales, "a.g_idx": g_idx}
    if bits == 3:
        wf = torch.tensor([[0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0], [0, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31],
                           [0, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0]], dtype=torch.int32).reshape(1, 3, 12)
        across, along = wf.unsqueeze(0), wf.reshape(1, 3, 12, 1)
    else:
        wf = torch.arange(0, 32, bits, dtype=torch.int32).unsqueeze(0)
        across, along = wf.unsqueeze(0), wf.unsqueeze(-1)
    # The vendor's loader makes v2 of v1: its layer has the zero points as they are.
    layer = layer_of()
    layer.__dict__ |= {"bits": bits, "maxq": 2 ** bits - 1, "pack_factor": 32 // bits, "dequant_dtype": torch.int16, "qweight": qweight,
                       "qzeros": plain, "scales": scales, "g_idx": g_idx, "wf_unsqueeze_zero": across, "wf_unsqueeze_neg_one": along}
    model.numbers["a.weight"] = lambda dtype: layer.dequantize_weight().T
    # It multiplies in f16, the type of its scales.
    return model, {"f32": 2 ** 12, "bf16": 1}


for size in (2, 3, 4, 8):
    for v2 in (False, True):
        CASES[f"gptqmodel {size} bits{' v2' if v2 else ''}"] = lambda sources, a=size, b=v2: gptq(sources, a, b, False)
CASES["gptqmodel act-order"] = lambda sources: gptq(sources, 4, False, True)


@case
def autoawq(sources):
    space = cut(sources, "awq/utils/packing_utils.py", ["AWQ_REVERSE_ORDER", "unpack_awq", "reverse_awq_order", "dequantize_gemm"], {"torch": torch})
    space = space and cut(sources, "awq/modules/linear/gemm.py", ["WQLinear_GEMM"], space | {"nn": torch.nn, "get_best_device": lambda: "cpu"})
    if space is None:
        return None
    model = Model({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True})
    for i, (rows, columns) in enumerate(((64, 128), (96, 64))):
        groups = columns // 32
        codes, zeros = torch.randint(0, 16, (columns, rows)), torch.randint(0, 16, (groups, rows))
        scales = (torch.rand(groups, rows) * .01 + .001).half()
        linear = torch.nn.Linear(columns, rows, bias=False)
        linear.weight.data = ((codes - zeros.repeat_interleave(32, 0)) * scales.float().repeat_interleave(32, 0)).T.contiguous()
        layer = space["WQLinear_GEMM"].from_linear(linear, 4, 32, scales=scales.float(), zeros=zeros)
        model.tensors |= {f"{i}.proj.{key}": getattr(layer, key) for key in ("qweight", "qzeros", "scales")}
        model.numbers[f"{i}.proj.weight"] = lambda dtype, a=layer: space["dequantize_gemm"](a.qweight, a.qzeros, a.scales, 4, 32).T
    # It multiplies in f16, the type of its scales.
    return model, {"f32": 2 ** 12, "bf16": 1}


def modelopt(sources, kind):
    folder, space = "modelopt/torch/quantization/", {"torch": torch, "fp4_compatible": lambda: False, "math": math, "F": torch.nn.functional}
    for file, names in (("utils.py", ["reduce_block_amax", "reduce_block_padding", "reduce_amax", "convert_quantization_axis_to_reduce_axis"]),
                        ("qtensor/base_qtensor.py", ["BaseQuantizedTensor"]), ("qtensor/fp8_tensor.py", ["FP8QTensor"]),
                        ("qtensor/nvfp4_tensor.py", ["e2m1_bounds", "e2m1_values", "NVFP4QTensor"])):
        space = space and cut(sources, folder + file, names, space)
    if space is None:
        return None
    model = Model({"quant_method": "modelopt", "quant_algo": kind, "group_size": 16, "exclude_modules": ["lm_head"]})
    for i, shape in enumerate(((64, 256), (96, 128))):
        weight, name = torch.randn(shape) * .05, f"model.layers.{i}.proj"
        if kind == "NVFP4":
            stored, scale, second = space["NVFP4QTensor"].quantize(weight, 16)
            model.tensors |= {f"{name}.weight": stored._quantized_data, f"{name}.weight_scale": scale, f"{name}.weight_scale_2": second}
            how = {"scale": scale, "double_scale": second, "block_sizes": {-1: 16}}
        else:
            stored, scale = space["FP8QTensor"].quantize(weight)
            model.tensors |= {f"{name}.weight": stored._quantized_data, f"{name}.weight_scale": scale.reshape(())}
            how = {"scale": scale}
        model.numbers[f"{name}.weight"] = lambda dtype, stored=stored, how=how: stored.dequantize(dtype, **how)
    # Of FP8 it rounds the scale to the type of the numbers first.
    return model, {} if kind == "NVFP4" else {"bf16": 2, "f16": 2}


for algorithm in ("NVFP4", "FP8"):
    CASES[f"modelopt {algorithm}"] = lambda sources, a=algorithm: modelopt(sources, a)


# ---- whole models -------------------------------------------------------------------------------------------------------

def fp8_llama(folder):
    config = transformers.LlamaConfig(hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, vocab_size=320,
                                      num_key_value_heads=2, head_dim=64, max_position_embeddings=64, dtype="bfloat16")
    plain = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    plain.save_pretrained(folder)
    tensors = {}
    for name, tensor in plain.state_dict().items():
        if not name.endswith("_proj.weight"):
            tensors[name] = tensor
            continue
        blocks = tensor.float().reshape(tensor.shape[0] // 128, 128, -1, 128)
        scale = blocks.abs().amax((1, 3)) / 448
        tensors[name] = (blocks / scale[:, None, :, None]).reshape(tensor.shape).to(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = scale
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    text = json.loads((folder / "config.json").read_text())
    text["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic",
                                   "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(text))
    return transformers.FineGrainedFP8Config(weight_block_size=(128, 128), modules_to_not_convert=["lm_head"], dequantize=True)


def mxfp4_gpt_oss(folder):
    config = transformers.GptOssConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_local_experts=4, vocab_size=128,
                                       num_attention_heads=2, num_key_value_heads=2, head_dim=32, dtype="bfloat16")
    plain = transformers.GptOssForCausalLM(config).to(torch.bfloat16)
    plain.save_pretrained(folder)
    tensors = {}
    for name, tensor in plain.state_dict().items():
        if not re.search(r"experts\.(gate_up|down)_proj$", name):
            tensors[name] = tensor.contiguous()
            continue
        shape = [tensor.shape[0], tensor.shape[2], tensor.shape[1] // 32]
        tensors[name + "_blocks"] = torch.randint(0, 256, [*shape, 16], dtype=torch.uint8)
        tensors[name + "_scales"] = torch.randint(115, 122, shape, dtype=torch.uint8)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    text = json.loads((folder / "config.json").read_text())
    text["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(text))
    return transformers.Mxfp4Config(dequantize=True)


def whole(name, make, folder):
    """Both models have equal tensors and logits."""
    quantization = make(folder / "in")
    dequantize(folder / "in", folder / "out", "bf16")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder / "in", quantization_config=quantization, dtype=torch.bfloat16)
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder / "out")
    a, b = ours.state_dict(), theirs.state_dict()
    wrong = sorted(set(a) ^ set(b)) + [key for key in set(a) & set(b) if not torch.equal(a[key], b[key]) or a[key].dtype != b[key].dtype]
    with torch.no_grad():
        words = torch.arange(16).reshape(1, 16)
        same = torch.equal(ours(words).logits, theirs(words).logits)
    print(f"{name:30} {len(set(a) & set(b)) - len(wrong)} of {len(a)} tensors equal, logits {'equal' if same else 'DIFFER'}"
          + (f", WRONG: {wrong[:4]}" if wrong else ""), flush=True)
    return len(wrong) + (not same)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", type=re.compile, default=re.compile(""))
    parser.add_argument("--sources", type=lambda text: pathlib.Path(text).resolve())
    options = parser.parse_args()
    torch.manual_seed(7)
    faults = tried = 0
    with tempfile.TemporaryDirectory() as home:
        for number, (name, make) in enumerate(CASES.items()):
            if not options.only.search(name):
                continue
            made = make(options.sources)
            if made is None:
                print(f"{name:24} left out: no sources")
                continue
            tried += 1
            faults += compare(name, made[0], pathlib.Path(home) / str(number), made[1])
        for name, make in (("a llama of fp8", fp8_llama), ("a gpt-oss of mxfp4", mxfp4_gpt_oss)):
            if options.only.search(name):
                tried += 1
                faults += whole(name, make, pathlib.Path(home) / name.split()[-1])
    print(f"{tried} tried, {faults} wrong")
    sys.exit(faults > 0 or tried == 0)


if __name__ == "__main__":
    main()
