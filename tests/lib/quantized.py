"""Quantized checkpoints of every scheme, made at random, and their numbers, one step after the other in numpy.

Written from the descriptions of the schemes (docs/QUANTIZED.md), sharing nothing with the program. A scheme is a function
of a random generator that returns a configuration and a function that adds tensors: add(tensors, name) -> numbers, where
`tensors` maps names to (dtype, shape, bytes) and `numbers` names to float32 arrays.
"""
import json

import numpy

E2M1 = numpy.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], numpy.float32)
NF4 = numpy.array([-1, -.6961928, -.5250731, -.3949175, -.2844414, -.1847734, -.0910500, 0, .0795803, .1609302,
                   .2461123, .3379152, .4407098, .5626170, .7229568, 1], numpy.float32)
AWQ_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]  # of the nibbles of a word, the lowest first


def e4m3_table():
    table = numpy.zeros(256, numpy.float32)
    for code in range(256):
        exponent, mantissa = code >> 3 & 15, code & 7
        value = mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
        table[code] = numpy.nan if code & 127 == 127 else -value if code & 128 else value
    return table


E4M3 = e4m3_table()


def e8m0(codes):
    with numpy.errstate(over="ignore"):
        values = numpy.ldexp(1.0, codes.astype(int) - 127).astype(numpy.float32)
    return numpy.where(codes == 255, numpy.float32(numpy.nan), values)


def to_bf16(values):
    """The bits, rounded once to nearest, ties to even."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    rounded = ((bits.astype(numpy.uint64) + 0x7fff + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)
    return numpy.where(numpy.isnan(values), numpy.uint16(0x7fc0), rounded)


def from_bf16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


HUGE = 0.  # the probability that some scales of a tensor are so large that products do not fit f32, or f16


def stored_floats(rng, shape, kind):
    """(tensor, values) of scales, most of them ordinary, a few 0, negative or tiny."""
    values = (rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 4, shape)).astype(numpy.float32)
    values = numpy.where(rng.random(shape) < .02, numpy.float32(0), values)
    if HUGE and rng.random() < HUGE:
        most = numpy.float32(60000 if kind == "F16" else 3e38)
        huge = numpy.clip(values.astype(numpy.float64) * most, -most, most).astype(numpy.float32)
        values = numpy.where(rng.random(shape) < .1, huge, values)
    if kind == "F32":
        return (kind, list(shape), values.tobytes()), values
    if kind == "F16":
        halves = values.astype(numpy.float16)
        return (kind, list(shape), halves.tobytes()), halves.astype(numpy.float32)
    bits = to_bf16(values).astype(numpy.uint16)
    return ("BF16", list(shape), bits.tobytes()), from_bf16(bits)


def random_bytes(rng, shape, most=256):
    return rng.integers(0, most, shape, dtype=numpy.uint8)


def tensor(dtype, array):
    return dtype, list(array.shape), numpy.ascontiguousarray(array).tobytes()


def blocks(scales, block, shape):
    rows, columns = numpy.arange(shape[-2]) // block[0], numpy.arange(shape[-1]) // block[1]
    return scales[..., rows[:, None], columns[None, :]]


def low_first(codes, bits):
    """Bytes of a row's codes, dense, the lowest bits first, in whole words of 32 bits."""
    each = (codes[..., None].astype(numpy.uint32) >> numpy.arange(bits, dtype=numpy.uint32) & 1).astype(numpy.uint8)
    flat = each.reshape(*codes.shape[:-1], -1)
    pad = -flat.shape[-1] % 32
    flat = numpy.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, pad)])
    return numpy.ascontiguousarray(numpy.packbits(flat, axis=-1, bitorder="little")).view("<i4")


def by_words(codes, bits):
    """[n, m] codes as words of 32 bits, the lowest first, as many whole ones as a word holds."""
    each = 32 // bits
    codes = numpy.pad(codes, [(0, 0), (0, -codes.shape[1] % each)]).reshape(codes.shape[0], -1, each).astype(numpy.uint32)
    return (codes << (bits * numpy.arange(each, dtype=numpy.uint32))).sum(-1, dtype=numpy.uint32).view("<i4")


def nibbles(codes, high_first=False):
    a, b = codes[..., ::2], codes[..., 1::2]
    return (a << 4 | b if high_first else a | b << 4).astype(numpy.uint8)


def multiply(values, scales):
    with numpy.errstate(all="ignore"):
        return values.astype(numpy.float32) * scales.astype(numpy.float32)


# ---- the schemes ------------------------------------------------------------------------------------------------------

def fp8_blocks(rng, plain=False):
    if not plain and rng.random() < .2:
        return fp8_whole(rng)
    block = [128, 128] if rng.random() < .5 else [int(rng.integers(1, 40)), int(rng.integers(1, 40))]
    config = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": block, "activation_scheme": "dynamic"}

    def add(tensors, name):
        shape = [int(rng.integers(1, 300)), int(rng.integers(1, 300))]
        if rng.random() < .2:
            shape.insert(0, int(rng.integers(1, 4)))
        codes = random_bytes(rng, shape)
        grid = [*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1])]
        if plain or rng.random() < .2:
            stored = random_bytes(rng, grid) if rng.random() < .3 else rng.integers(110, 140, grid).astype(numpy.uint8)
            scales = tensor("F8_E8M0", stored), e8m0(stored)
        else:
            scales = stored_floats(rng, grid, str(rng.choice(["F32", "F32", "BF16", "F16"])))
        weight = f"{name}.weight"
        tensors[weight] = tensor("F8_E4M3", codes)
        tensors[f"{name}.scale" if plain else f"{weight}_scale_inv"] = scales[0]
        return {weight: multiply(E4M3[codes], blocks(scales[1], block, shape))}
    return config, add


def fp8_whole(rng):
    """One scale a tensor, as transformers has it where no size of blocks is configured."""
    def add(tensors, name):
        codes, weight = random_bytes(rng, [int(rng.integers(1, 300)), int(rng.integers(1, 300))]), f"{name}.weight"
        tensors[weight] = tensor("F8_E4M3", codes)
        tensors[f"{weight}_scale_inv"], scale = stored_floats(rng, [[], [1], [1, 1]][int(rng.integers(3))], str(rng.choice(["F32", "BF16"])))
        tensors[f"{name}.activation_scale"] = stored_floats(rng, [], "F32")[0]
        return {weight: multiply(E4M3[codes], scale.reshape(1, 1))}
    return {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}, add


def deepseek_v4(rng):
    config, add_fp8 = fp8_blocks(rng, plain=True)

    def add(tensors, name):
        if rng.random() < .5:
            return add_fp8(tensors, name)
        rows, columns = int(rng.integers(1, 40)), 32 * int(rng.integers(1, 9))
        codes, stored = random_bytes(rng, [rows, columns], 16), random_bytes(rng, [rows, columns // 32])
        tensors[f"{name}.weight"] = "I8", [rows, columns // 2], nibbles(codes).tobytes()
        tensors[f"{name}.scale"] = tensor("F8_E8M0", stored)
        return {f"{name}.weight": multiply(E2M1[codes], blocks(e8m0(stored), [1, 32], codes.shape))}
    return config, add


def gpt_oss(rng):
    def add(tensors, name):
        experts, rows, groups = int(rng.integers(1, 4)), int(rng.integers(1, 70)), int(rng.integers(1, 7))
        codes = random_bytes(rng, [experts, rows, groups, 32], 16)
        stored = random_bytes(rng, [experts, rows, groups])
        numbers = multiply(E2M1[codes], e8m0(stored)[..., None]).reshape(experts, rows, 32 * groups)
        hub = rng.random() < .5
        mark = "_" if hub else "."
        tensors[f"{name}{mark}blocks"], tensors[f"{name}{mark}scales"] = tensor("U8", nibbles(codes)), tensor("U8", stored)
        tensors[f"{name}_bias"] = "BF16", [experts, rows], bytes(2 * experts * rows)
        return {name: numbers.swapaxes(1, 2) if hub else numbers}
    return {"quant_method": "mxfp4", "modules_to_not_convert": []}, add


def compressed(rng, form, weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def ct_float(rng):
    block = [int(rng.integers(2, 40)), int(rng.integers(2, 40))] if rng.random() < .3 else None
    strategy = "block" if block else "channel"
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True}
    if block:
        weights["block_structure"] = block

    def add(tensors, name):
        rows, columns = int(rng.integers(2, 90)), int(rng.integers(41, 90))
        codes = random_bytes(rng, [rows, columns])
        shapes = [[], [1], [rows, 1], [rows]]
        if block:
            shapes = [[-(-rows // block[0]), -(-columns // block[1])]]
            rows = codes.shape[0]
        shape = shapes[int(rng.integers(len(shapes)))]
        if block and shape[0] == rows:  # as if of rows
            return ct_float_rows(tensors, name)
        stored, scales = stored_floats(rng, shape, str(rng.choice(["F32", "BF16"])))
        tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"] = tensor("F8_E4M3", codes), stored
        tensors[f"{name}.input_scale"] = stored_floats(rng, [1], "F32")[0]
        zeros = numpy.zeros(shape, numpy.float32)
        if rng.random() < .3:
            stored = random_bytes(rng, shape)
            tensors[f"{name}.weight_zero_point"], zeros = tensor("F8_E4M3", stored), E4M3[stored]
        if block:
            scales, zeros = blocks(scales, block, codes.shape), blocks(zeros, block, codes.shape)
        elif shape == [rows]:
            scales, zeros = scales[:, None], zeros[:, None]
        return {f"{name}.weight": multiply(E4M3[codes] - zeros, scales)}

    def ct_float_rows(tensors, name):
        codes = random_bytes(rng, [3, 7])
        stored, scales = stored_floats(rng, [3, 1], "F32")
        tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"] = tensor("F8_E4M3", codes), stored
        return {f"{name}.weight": multiply(E4M3[codes], scales)}
    return compressed(rng, "float-quantized", weights), add


def ct_groups(rng):
    """float-quantized by groups, and mxfp8: groups of 32 with powers of two."""
    power = bool(rng.random() < .5)
    size = 32 if power else int(rng.choice([8, 16, 32, 48, 128]))
    weights = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": size, "symmetric": True}

    def add(tensors, name):
        rows, groups = int(rng.integers(2, 60)), int(rng.integers(2, 9))
        codes = random_bytes(rng, [rows, groups * size])
        if power:
            stored = random_bytes(rng, [rows, groups])
            scales = tensor(str(rng.choice(["U8", "F8_E8M0"])), stored), e8m0(stored)
        else:
            scales = stored_floats(rng, [rows, groups], str(rng.choice(["F32", "BF16", "F16"])))
        tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"] = tensor("F8_E4M3", codes), scales[0]
        return {f"{name}.weight": multiply(E4M3[codes], blocks(scales[1], [1, size], codes.shape))}
    return compressed(rng, "mxfp8-quantized" if power else "float-quantized", weights), add


def ct_int(rng):
    symmetric = bool(rng.random() < .5)
    size = int(rng.choice([0, 8, 32]))
    weights = {"num_bits": 8, "type": "int", "strategy": "group" if size else "channel", "symmetric": symmetric}
    if size:
        weights["group_size"] = size

    def add(tensors, name):
        rows = int(rng.integers(2, 60))
        columns = size * int(rng.integers(2, 6)) if size else int(rng.integers(1, 90))
        codes = random_bytes(rng, [rows, columns]).view(numpy.int8)
        grid = [rows, columns // size if size else 1]
        stored, scales = stored_floats(rng, grid, str(rng.choice(["F32", "BF16"])))
        tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"] = tensor("I8", codes), stored
        zeros = numpy.zeros(grid, numpy.int8)
        if not symmetric:
            zeros = random_bytes(rng, grid).view(numpy.int8)
            tensors[f"{name}.weight_zero_point"] = tensor("I8", zeros)
        spread = [1, size or columns]
        values = codes.astype(numpy.int32) - blocks(zeros.astype(numpy.int32), spread, codes.shape)
        return {f"{name}.weight": multiply(values, blocks(scales, spread, codes.shape))}
    return compressed(rng, "int-quantized", weights), add


def ct_pack(rng):
    bits, size = int(rng.choice([1, 2, 3, 4, 5, 6, 7, 8])), int(rng.choice([0, 8, 32]))
    symmetric, order = bool(rng.random() < .5), bool(size and rng.random() < .4)
    weights = {"num_bits": bits, "type": "int", "strategy": "group" if size else "channel", "symmetric": symmetric,
               "actorder": "group" if order else None}
    if size:
        weights["group_size"] = size

    def add(tensors, name):
        rows = int(rng.integers(2, 70))
        columns = size * int(rng.integers(1, 6)) if size else int(rng.integers(1, 90))
        sets = columns // size if size else 1
        codes = random_bytes(rng, [rows, columns], 1 << bits)
        # Older releases put no code across words. Where the shape does not tell, none is here.
        words = -(-columns * bits // 32), -(-columns // (32 // bits))
        pack = low_first if words[0] == words[1] or rng.random() < .5 else by_words
        if words[0] == words[1] > 1 and 32 % bits:
            return add(tensors, name)
        stored, scales = stored_floats(rng, [rows, sets], str(rng.choice(["F32", "BF16", "F16"])))
        tensors[f"{name}.weight_packed"] = tensor("I32", pack(codes, bits))
        tensors[f"{name}.weight_scale"] = stored
        tensors[f"{name}.weight_shape"] = tensor("I64", numpy.array([rows, columns], "<i8"))
        groups = numpy.arange(columns) // (size or columns)
        if order:
            groups = rng.permutation(groups)
            marked = groups.astype("<i4")
            if rng.random() < .2:  # -1: none is meant
                marked[int(rng.integers(columns))] = -1
                groups = numpy.arange(columns) // size
            tensors[f"{name}.weight_g_idx"] = tensor("I32", marked)
        zeros = numpy.full([rows, sets], 1 << (bits - 1), numpy.uint8)
        if not symmetric:
            zeros = random_bytes(rng, [rows, sets], 1 << bits)
            tensors[f"{name}.weight_zero_point"] = tensor("I32", pack(zeros.T, bits).T)
        values = codes.astype(numpy.int32) - zeros.astype(numpy.int32)[:, groups]
        return {f"{name}.weight": multiply(values, scales[:, groups])}
    return compressed(rng, str(rng.choice(["pack-quantized", "mixed-precision"])), weights), add


def fp4(rng, kind):
    size = 32 if kind == "mxfp4" else 16
    config = compressed(rng, kind + "-pack-quantized",
                        {"num_bits": 4, "type": "float", "strategy": "group", "group_size": size})
    if kind == "modelopt":
        config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head*"]}

    def add(tensors, name):
        rows, columns = int(rng.integers(1, 60)), size * int(rng.integers(1, 9))
        codes, stored = random_bytes(rng, [rows, columns], 16), random_bytes(rng, [rows, columns // size])
        packed = f"{name}.weight" if kind == "modelopt" else f"{name}.weight_packed"
        tensors[packed] = tensor("U8", nibbles(codes))
        tensors[f"{name}.weight_scale"] = tensor("U8" if kind == "mxfp4" else "F8_E4M3", stored)
        if kind == "mxfp4":
            scales = e8m0(stored)
        else:
            tail = "weight_scale_2" if kind == "modelopt" else "weight_global_scale"
            shape = [] if kind == "modelopt" else [1]
            total = numpy.float32(rng.uniform(.01, 900) if rng.random() < .9 else -3)
            tensors[f"{name}.{tail}"] = "F32", shape, total.tobytes()
            with numpy.errstate(all="ignore"):
                scales = E4M3[stored] * total if kind == "modelopt" else E4M3[stored] / total
            tensors[f"{name}.input_global_scale"] = stored_floats(rng, [1], "F32")[0]
        return {f"{name}.weight": multiply(E2M1[codes], blocks(scales, [1, size], codes.shape))}
    return config, add


def gptq(rng):
    bits, order, second = int(rng.choice([2, 3, 4, 8])), bool(rng.random() < .5), bool(rng.random() < .5)
    size = int(rng.choice([-1, 32, 64]))
    config = {"quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": order, "sym": False,
              "checkpoint_format": "gptq_v2" if second else "gptq"}

    def add(tensors, name):
        rows, columns = 32 * int(rng.integers(1, 5)), (size if size > 0 else 32) * int(rng.integers(1, 5))
        sets = columns // size if size > 0 else 1
        codes, stored_zeros = random_bytes(rng, [rows, columns], 1 << bits), random_bytes(rng, [sets, rows], 1 << bits)
        stored, scales = stored_floats(rng, [sets, rows], "F16")
        tensors[f"{name}.qweight"] = tensor("I32", low_first(codes, bits).T)
        tensors[f"{name}.qzeros"], tensors[f"{name}.scales"] = tensor("I32", low_first(stored_zeros, bits)), stored
        groups = numpy.arange(columns) // (size if size > 0 else columns)
        if order:
            groups = rng.permutation(groups)
        if order or rng.random() < .5:
            tensors[f"{name}.g_idx"] = tensor("I32", groups.astype("<i4"))
        zeros = stored_zeros.astype(numpy.int32)
        if not second:
            zeros = zeros + 1 & (1 << bits) - 1
        values = codes.astype(numpy.int32) - zeros.T[:, groups]
        tensors[f"{name}.bias"] = "F16", [rows], bytes(2 * rows)
        return {f"{name}.weight": multiply(values, scales.T[:, groups])}
    return config, add


def awq(rng):
    size = int(rng.choice([-1, 16, 32]))
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm", "zero_point": True}

    def words(codes):
        """[n, columns]: 8 columns a word."""
        eights = codes.reshape(codes.shape[0], -1, 8)[..., AWQ_COLUMNS].astype(numpy.uint32)
        shifted = eights << (4 * numpy.arange(8, dtype=numpy.uint32))
        return tensor("I32", numpy.bitwise_or.reduce(shifted, axis=-1).astype("<u4"))

    def add(tensors, name):
        rows, columns = 8 * int(rng.integers(1, 12)), (size if size > 0 else 16) * int(rng.integers(1, 6))
        sets = columns // size if size > 0 else 1
        codes, zeros = random_bytes(rng, [rows, columns], 16), random_bytes(rng, [sets, rows], 16)
        stored, scales = stored_floats(rng, [sets, rows], "F16")
        tensors[f"{name}.qweight"], tensors[f"{name}.qzeros"], tensors[f"{name}.scales"] = words(codes.T), words(zeros), stored
        groups = numpy.arange(columns) // (size if size > 0 else columns)
        values = codes.astype(numpy.int32) - zeros.astype(numpy.int32).T[:, groups]
        return {f"{name}.weight": multiply(values, scales.T[:, groups])}
    return config, add


def bnb_4bit(rng):
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}

    def add(tensors, name):
        shape = [int(rng.integers(1, 40)), int(rng.integers(1, 90))]
        block, count = int(rng.choice([32, 64, 128])), shape[0] * shape[1]
        codes = random_bytes(rng, [count + count % 2], 16)
        sets = -(-count // block)
        state = {"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": shape}
        weight = f"{name}.weight"
        if rng.random() < .5:
            nested, map_ = int(rng.choice([4, 256])), numpy.sort(rng.uniform(-1, 1, 256)).astype(numpy.float32)
            stored, absmax = random_bytes(rng, [sets]), rng.uniform(.1, 2, -(-sets // nested)).astype(numpy.float32)
            offset = float(numpy.float32(rng.uniform(.01, 1)))
            state |= {"nested_blocksize": nested, "nested_offset": offset, "nested_dtype": "float32"}
            tensors[f"{weight}.absmax"] = tensor("U8", stored)
            tensors[f"{weight}.nested_absmax"], tensors[f"{weight}.nested_quant_map"] = tensor("F32", absmax), tensor("F32", map_)
            scales = map_[stored] * absmax[numpy.arange(sets) // nested] + numpy.float32(offset)
        else:
            tensors[f"{weight}.absmax"], scales = stored_floats(rng, [sets], "F32")
        tensors[weight] = "U8", [len(codes) // 2, 1], nibbles(codes, True).tobytes()
        tensors[f"{weight}.quant_map"] = tensor("F32", NF4)
        text = json.dumps(state).encode()
        tensors[f"{weight}.quant_state.bitsandbytes__nf4"] = "U8", [len(text)], text
        numbers = multiply(NF4[codes[:count]], scales[numpy.arange(count) // block])
        return {weight: numbers.reshape(shape)}
    return config, add


def bnb_int8(rng):
    def add(tensors, name):
        codes = random_bytes(rng, [int(rng.integers(1, 60)), int(rng.integers(1, 90))]).view(numpy.int8)
        stored, scales = stored_floats(rng, [codes.shape[0]], "F32")
        tensors[f"{name}.weight"], tensors[f"{name}.SCB"] = tensor("I8", codes), stored
        tensors[f"{name}.weight_format"] = "U8", [], b"\0"
        return {f"{name}.weight": multiply(multiply(codes, scales[:, None]), numpy.float32(1 / 127))}
    return {"quant_method": "bitsandbytes", "load_in_8bit": True}, add


SCHEMES = {
    "fp8_blocks": fp8_blocks, "deepseek_v4": deepseek_v4, "gpt_oss": gpt_oss, "ct_float": ct_float, "ct_int": ct_int,
    "ct_pack": ct_pack, "ct_nvfp4": lambda rng: fp4(rng, "nvfp4"), "ct_mxfp4": lambda rng: fp4(rng, "mxfp4"),
    "modelopt": lambda rng: fp4(rng, "modelopt"), "gptq": gptq, "awq": awq, "bnb_4bit": bnb_4bit, "bnb_int8": bnb_int8,
    "ct_groups": ct_groups,
}
