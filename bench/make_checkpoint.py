#!/usr/bin/python3
"""Writes a safetensors checkpoint of any size to measure with: bf16 weights laid out as a decoder's are.

  make_checkpoint.py SIZE OUT                 Gaussian weights (sigma 0.02), unlike from tensor to tensor
  make_checkpoint.py SIZE OUT --random        uniform random bytes, which no compressor shrinks
  make_checkpoint.py SIZE OUT --sparse        holes: any size at once, no disk; every byte reads as zero
  --tensor-bytes N    equal tensors of about N bytes each instead of a decoder's (e.g. 10KB for many small ones)
  --shards N          a folder OUT with N shards and their index.json
  --seed N            default 1; equal arguments give equal files

SIZE and N take K, M, G, T (powers of 1000) or Ki, Mi, Gi, Ti. Memory stays below 200 MiB.
"""
import argparse
import json
import os
import pathlib
import re
import struct
import sys

import numpy

POOL_VALUES = 1 << 24     # distinct Gaussian weights made; tensors are cut from them at varying places
CHUNK = 8 << 20           # bytes written at once


def parse_size(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?)B?|B)?", text, re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    number, unit, binary = match.groups()
    factor = (1024 if binary else 1000) ** (" KMGT".index(unit.upper()) if unit else 0)
    return int(float(number) * factor)


def decoder_tensors(size):
    """[(name, shape)] of about `size` bytes of bf16: an embedding, then layers of attention, MLP and norms."""
    hidden = 4096
    while hidden > 64 and 32000 * hidden * 2 + 12 * hidden * hidden * 2 > size:
        hidden //= 2
    inner = hidden * 11 // 4
    vocabulary = min(32000, max(16, size // 8 // (2 * hidden)))
    layer = [
        ("self_attn.q_proj.weight", (hidden, hidden)), ("self_attn.k_proj.weight", (hidden // 4, hidden)),
        ("self_attn.v_proj.weight", (hidden // 4, hidden)), ("self_attn.o_proj.weight", (hidden, hidden)),
        ("mlp.gate_proj.weight", (inner, hidden)), ("mlp.up_proj.weight", (inner, hidden)),
        ("mlp.down_proj.weight", (hidden, inner)), ("input_layernorm.weight", (hidden,)),
        ("post_attention_layernorm.weight", (hidden,)),
    ]
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    left = size - 2 * vocabulary * hidden
    number = 0
    while left >= 2:
        for name, shape in layer:
            count = int(numpy.prod(shape))
            if 2 * count > left:        # the last tensor takes what is left
                shape, count = (left // 2,), left // 2
            if count == 0:
                return
            yield f"model.layers.{number}.{name}", shape
            left -= 2 * count
        number += 1


def equal_tensors(size, tensor_bytes):
    count = max(1, tensor_bytes // 2)
    for number in range(max(1, size // (2 * count))):
        yield f"blocks.{number}.weight", (count,)


class Weights:
    """Streams of bf16 values, as little-endian bytes."""

    def __init__(self, kind, seed):
        self.kind = kind
        self.random = numpy.random.default_rng(seed)
        if kind == "gaussian":
            self.pool = numpy.empty(POOL_VALUES, "<u2")
            for at in range(0, POOL_VALUES, 1 << 20):
                values = self.random.standard_normal(1 << 20, dtype=numpy.float32) * numpy.float32(0.02)
                bits = values.view(numpy.uint32)
                self.pool[at:at + (1 << 20)] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest even

    def chunks(self, count):
        """`count` bytes in pieces."""
        while count:
            size = min(count, CHUNK)
            if self.kind == "random":
                yield self.random.bytes(size)
            else:
                # A cut of the pool at a random place, its signs and last bits mixed so that no cut repeats another.
                values = size // 2
                start = int(self.random.integers(0, POOL_VALUES - values + 1))
                mix = numpy.uint16(self.random.integers(0, 8)) | numpy.uint16(self.random.integers(0, 2) << 15)
                yield (self.pool[start:start + values] ^ mix).tobytes()
            count -= size


def write_file(path, tensors, weights):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > 100_000_000:
        sys.exit(f"make_checkpoint.py: {len(tensors)} tensors need a header above the format's limit; use --shards")
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        if weights is None:
            out.truncate(8 + len(text) + at)
        else:
            for _, shape in tensors:
                for chunk in weights.chunks(2 * int(numpy.prod(shape))):
                    out.write(chunk)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", type=parse_size)
    parser.add_argument("out", type=pathlib.Path)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--random", dest="kind", action="store_const", const="random", default="gaussian")
    kind.add_argument("--sparse", dest="kind", action="store_const", const="sparse")
    parser.add_argument("--tensor-bytes", type=parse_size)
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    tensors = list(equal_tensors(options.size, options.tensor_bytes) if options.tensor_bytes
                   else decoder_tensors(options.size))
    weights = None if options.kind == "sparse" else Weights(options.kind, options.seed)
    if not options.shards:
        write_file(options.out, tensors, weights)
        return 0

    os.makedirs(options.out, exist_ok=True)
    total, weight_map = 0, {}
    per_shard = -(-len(tensors) // options.shards)
    for number in range(options.shards):
        part = tensors[number * per_shard:(number + 1) * per_shard]
        name = f"model-{number + 1:05}-of-{options.shards:05}.safetensors"
        total += write_file(options.out / name, part, weights)
        weight_map.update((tensor, name) for tensor, _ in part)
    with open(options.out / "model.safetensors.index.json", "w") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=2)
        out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
