#!/usr/bin/python3
"""Writes a safetensors checkpoint of any size to measure with.

  make_checkpoint.py SIZE OUT                 bf16 weights, Gaussian (sigma 0.02), in the shapes of a decoder
  make_checkpoint.py SIZE OUT --kind KIND     bf16, f32, f16, fp8 (e4m3), int4 (two in a byte), pruned (bf16, 80 % zeros),
                                              ternary (bf16 of three values), trained (bf16, drawn from the weights of
                                              tests/data/real) or random (bytes no compressor shrinks)
  make_checkpoint.py SIZE OUT --sparse        holes: any size at once, no disk; every byte reads as zero
  make_checkpoint.py llama-3.2-1b OUT         the shapes of Llama-3.2-1B, 2.5 GB as bf16
  --tensor-bytes N    equal tensors of about N bytes each instead of a decoder's (e.g. 10KB for many small ones)
  --shards N          a folder OUT with N shards and their index.json
  --seed N            default 1; equal arguments give equal files, whatever the number of processors

SIZE and N take K, M, G, T (powers of 1000) or Ki, Mi, Gi, Ti. Every value is drawn anew: no part of a file repeats
another. Memory stays below 200 MiB for each processor.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import struct
import sys

DTYPES = {"bf16": "BF16", "f32": "F32", "f16": "F16", "fp8": "F8_E4M3", "int4": "U8", "pruned": "BF16", "ternary": "BF16",
          "trained": "BF16", "random": "BF16"}
WIDTH = {"BF16": 2, "F32": 4, "F16": 2, "F8_E4M3": 1, "U8": 1}
BLOCK = 8 << 20  # bytes drawn at once, each block from a seed of its own


def parse_size(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?)B?|B)?", text, re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    number, unit, binary = match.groups()
    factor = (1024 if binary else 1000) ** (" KMGT".index(unit.upper()) if unit else 0)
    return int(float(number) * factor)


# ---- shapes ------------------------------------------------------------------------------------------------------

def llama_tensors():
    yield "model.embed_tokens.weight", (128256, 2048)
    for layer in range(16):
        for name, shape in (("self_attn.q_proj", (2048, 2048)), ("self_attn.k_proj", (512, 2048)),
                            ("self_attn.v_proj", (512, 2048)), ("self_attn.o_proj", (2048, 2048)),
                            ("mlp.gate_proj", (8192, 2048)), ("mlp.up_proj", (8192, 2048)),
                            ("mlp.down_proj", (2048, 8192)), ("input_layernorm", (2048,)),
                            ("post_attention_layernorm", (2048,))):
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", (2048,)


def decoder_tensors(size, width):
    """(name, shape) of about `size` bytes: an embedding, then layers of attention, MLP and norms."""
    hidden = 4096
    while hidden > 64 and (32000 * hidden + 12 * hidden * hidden) * width > size:
        hidden //= 2
    inner = hidden * 11 // 4
    vocabulary = min(32000, max(16, size // 8 // (width * hidden)))
    layer = [
        ("self_attn.q_proj.weight", (hidden, hidden)), ("self_attn.k_proj.weight", (hidden // 4, hidden)),
        ("self_attn.v_proj.weight", (hidden // 4, hidden)), ("self_attn.o_proj.weight", (hidden, hidden)),
        ("mlp.gate_proj.weight", (inner, hidden)), ("mlp.up_proj.weight", (inner, hidden)),
        ("mlp.down_proj.weight", (hidden, inner)), ("input_layernorm.weight", (hidden,)),
        ("post_attention_layernorm.weight", (hidden,)),
    ]
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    left = size - width * vocabulary * hidden
    number = 0
    while left >= width:
        for name, shape in layer:
            if width * math.prod(shape) > left:  # the last tensor takes what is left
                shape = (left // width,)
            if math.prod(shape) == 0:
                return
            yield f"model.layers.{number}.{name}", shape
            left -= width * math.prod(shape)
        number += 1


def equal_tensors(size, width, tensor_bytes):
    count = max(1, tensor_bytes // width)
    for number in range(max(1, size // (width * count))):
        yield f"blocks.{number}.weight", (count,)


# ---- values ------------------------------------------------------------------------------------------------------

def to_bf16(numpy, values):
    bits = values.view(numpy.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)  # to nearest even
    return (bits >> 16).astype("<u2")


def table_of(numpy, kind):
    """What 16 random bits become, for the kinds that have few values."""
    normal = statistics.NormalDist()

    def quantiles(count):
        return numpy.array([normal.inv_cdf((i + 0.5) / count) for i in range(count)], numpy.float32)

    if kind == "fp8":
        exponent, mantissa = numpy.divmod(numpy.arange(127), 8)
        finite = numpy.where(exponent == 0, mantissa / 512, (8 + mantissa) * 2.0 ** (exponent - 10))
        weights = quantiles(1 << 16) * 80
        codes = numpy.searchsorted((finite[1:] + finite[:-1]) / 2, numpy.abs(weights))
        return (codes | (weights < 0) * 128).astype(numpy.uint8)
    if kind == "int4":
        nibbles = numpy.clip(numpy.rint(quantiles(256) * 2.5) + 8, 0, 15).astype(numpy.uint8)
        return (nibbles[:, None] << 4 | nibbles).reshape(-1)
    scale = to_bf16(numpy, numpy.array([-0.02, 0.02], numpy.float32))
    return numpy.where(numpy.arange(1 << 16) & 1, scale[numpy.arange(1 << 16) >> 1 & 1], 0).astype("<u2")


def trained_tensors(numpy):
    """The weights of a trained model: a float32 array for each tensor of at least 2,048 values."""
    content = (pathlib.Path(__file__).resolve().parents[1] / "tests/data/real/ppocr-cls.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    data = [numpy.frombuffer(content[start:][slice(*entry["data_offsets"])], "<f4") for entry in header.values()]
    return [values for values in data if values.size >= 2048]


def block(numpy, kind, seed, number, size, table):
    """Bytes [BLOCK * number, BLOCK * number + size) of the values."""
    random = numpy.random.default_rng((seed, number))
    if kind == "random":
        return random.bytes(size)
    if kind == "trained":
        # Each block is of one tensor. Its values are moved by less than a step of bf16, so that none is there twice as it is.
        values = random.choice(table[number % len(table)], BLOCK // 2)
        values *= random.uniform(1 - 2 ** -8, 1 + 2 ** -8, values.size).astype(numpy.float32)
        return to_bf16(numpy, values).tobytes()[:size]
    if table is not None:
        return table[numpy.frombuffer(random.bytes(BLOCK * 2 // table.itemsize), numpy.uint16)].tobytes()[:size]
    values = random.standard_normal(BLOCK // (4 if kind == "f32" else 2), dtype=numpy.float32)
    values *= numpy.float32(0.02)
    if kind == "f32":
        return values.tobytes()[:size]
    if kind == "f16":
        return values.astype("<f2").tobytes()[:size]
    if kind == "pruned":
        values *= numpy.frombuffer(random.bytes(values.size), numpy.uint8) >= 205
    return to_bf16(numpy, values).tobytes()[:size]


def fill(path, start, size, kind, seed):
    """Writes `size` bytes of values at `start`, each processor its share of the blocks."""
    import numpy
    table = (table_of(numpy, kind) if kind in ("fp8", "int4", "ternary") else
             trained_tensors(numpy) if kind == "trained" else None)
    blocks, workers = -(-size // BLOCK), min(len(os.sched_getaffinity(0)), 16)

    def share(worker):
        with open(path, "rb+") as out:
            for number in range(worker, blocks, workers):
                at = BLOCK * number
                out.seek(start + at)
                out.write(block(numpy, kind, seed, number, min(BLOCK, size - at), table))

    children = []
    for worker in range(workers):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                share(worker)
                status = 0
            except BaseException as error:  # noqa: BLE001, the child must not return
                print(f"make_checkpoint.py: {error!r}", file=sys.stderr)
            os._exit(status)
        children.append(child)
    if any([os.waitpid(child, 0)[1] != 0 for child in children]):
        sys.exit("make_checkpoint.py: cannot write the values")


# ---- files -------------------------------------------------------------------------------------------------------

def write_file(path, tensors, kind, seed, sparse):
    dtype = DTYPES[kind]
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        size = WIDTH[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > 100_000_000:
        sys.exit(f"make_checkpoint.py: {len(tensors)} tensors need a header above the format's limit; use --shards")
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + at)
    if not sparse:
        fill(path, 8 + len(text), at, kind, seed)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", type=lambda text: None if text == "llama-3.2-1b" else parse_size(text))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--kind", choices=list(DTYPES), default="bf16")
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--tensor-bytes", type=parse_size)
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    width = WIDTH[DTYPES[options.kind]]
    tensors = list(llama_tensors() if options.size is None else
                   equal_tensors(options.size, width, options.tensor_bytes) if options.tensor_bytes else
                   decoder_tensors(options.size, width))
    if not options.shards:
        write_file(options.out, tensors, options.kind, options.seed, options.sparse)
        return 0

    os.makedirs(options.out, exist_ok=True)
    total, weight_map = 0, {}
    per_shard = -(-len(tensors) // options.shards)
    for number in range(options.shards):
        part = tensors[number * per_shard:(number + 1) * per_shard]
        name = f"model-{number + 1:05}-of-{options.shards:05}.safetensors"
        total += write_file(options.out / name, part, options.kind, options.seed + number, options.sparse)
        weight_map.update((tensor, name) for tensor, _ in part)
    with open(options.out / "model.safetensors.index.json", "w") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=2)
        out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
