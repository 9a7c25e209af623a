"""Random input files of every format, each with the tensors that a right conversion finds in it.

Used by combinations.py. Every function takes the random generator, a folder and a prefix that keeps names apart, and
returns an Input. The files are written by hand or by numpy, h5py and zipfile, never by the program under test.
"""
import dataclasses
import io
import json
import math
import os
import random
import struct
import zipfile

import h5py
import numpy
import zstandard

import dcp_assembler as dcp
import make_safetensors
import make_zt
import number_formats
import onnx_assembler as onnx
import pickle_assembler as pickles
import ztread

LONG = {short: long for long, short in ztread.LONG.items()}


@dataclasses.dataclass
class Tensor:
    """What the .zt file must hold: components as role -> (dtype, type or None, little-endian bytes)."""
    shape: list
    parts: dict
    format: str = "dense"
    attributes: dict = dataclasses.field(default_factory=dict)

    def element(self, role="data"):
        dtype, kind, _ = self.parts[role]
        return kind or dtype

    def size(self):
        return sum(len(part[2]) for part in self.parts.values())


@dataclasses.dataclass
class Input:
    path: object
    tensors: dict
    attributes: dict = dataclasses.field(default_factory=dict)
    pipe: bool = False  # can be read from one
    kind: str = ""
    quant: bool = False  # a checkpoint whose modules --quant group puts together
    files: dict = dataclasses.field(default_factory=dict)  # of a folder, those that go along: path -> bytes
    numbers: dict = dataclasses.field(default_factory=dict)  # of quantized tensors: name -> (array of f32, names of its parts)


def dense(shape, dtype, data, kind=None, attributes=None):
    return Tensor(list(shape), {"data": (dtype, kind, data)}, attributes=attributes or {})


def random_shape(rng, most=3000):
    rank = rng.choice([0, 1, 1, 1, 2, 2, 2, 3, 4])
    if rng.random() < 0.06 and rank:
        return [rng.choice([0, 1, 3]) if at else 0 for at in range(rank)]
    count = math.exp(rng.uniform(0, math.log(most)))
    shape = [max(1, int(count ** (1 / rank) * rng.uniform(0.5, 1.6))) for _ in range(rank)]
    while math.prod(shape) > most:
        shape[shape.index(max(shape))] //= 2
    return shape


def random_size(rng):
    """The largest number of elements of a tensor: mostly small, now and then several chunks."""
    return rng.choice([40, 400, 400, 3000, 3000, 20000] if rng.random() < 0.97 else [150000])


def random_data(rng, name, count):
    """Bytes of `count` elements of a logical type: tame numbers, repeating ones, or any pattern."""
    source = numpy.random.default_rng(rng.getrandbits(32))
    mode = rng.random()
    if name == "bool":
        return source.integers(0, 2, count, numpy.uint8).tobytes()
    if name in number_formats.COMPLEX:
        return random_data(rng, number_formats.COMPLEX[name], 2 * count)
    if name in number_formats.FLOATS and mode < 0.8:
        values = source.normal(0, 1, count) if mode < 0.6 else source.integers(-8, 9, count).astype(float)
        return (values.astype("<f8").tobytes() if name == "f64" else
                number_formats.encode(name, values, True)[0].astype(f"<u{number_formats.width(name)}").tobytes())
    if name in number_formats.INTEGERS and mode < 0.6:
        return source.integers(0, 100, count).astype(number_formats.INTEGERS[name]).tobytes()
    if mode < 0.7:
        return bytes(count * number_formats.width(name))
    return source.integers(0, 256, count * number_formats.width(name), numpy.uint8).tobytes()


def random_name(rng, prefix, at):
    if prefix == "t0_" and at == 0 and rng.random() < 0.05:
        return ""
    return prefix + rng.choice(["{}", "layers.{}.weight", "a/b{}", "b{} c", "é{}", "W_{}-x", "{}.bias"]).format(at)


# ---- safetensors ---------------------------------------------------------------------------------------------

ST_TYPES = [name for name in make_safetensors.BITS if name[:2] not in ("F4", "F6")]


def random_st(rng, prefix, count):
    tensors, model = {}, {}
    for at in range(count):
        dtype = rng.choice(ST_TYPES + ["F32", "F16", "BF16"] * 4)
        shape = random_shape(rng, random_size(rng))
        storage, kind = make_safetensors.ZTENSOR[dtype]
        data = random_data(rng, kind or storage, math.prod(shape))
        name = random_name(rng, prefix, at)
        tensors[name] = (dtype, shape, data)
        model[name] = dense(shape, storage, data, kind)
    return tensors, model


def random_metadata(rng, prefix):
    return None if rng.random() < 0.6 else {prefix + "note": "é\"x", "format": rng.choice(["pt", "np"])}


def other_byte(rng, dtype, data):
    """Another type whose elements the same bytes may be, or None."""
    able = {"u8", "i8", "bool"} if data and max(data) < 2 else {"u8", "i8"}
    return rng.choice(sorted(able - {dtype})) if dtype in ("u8", "i8", "bool") and data else None


def safetensors_file(rng, folder, prefix):
    tensors, model = random_st(rng, prefix, rng.randint(1, 12))
    metadata = random_metadata(rng, prefix)
    path = folder / f"{prefix}.safetensors"
    header, content = make_safetensors.layout(tensors, metadata)
    views = {}
    for name, (dtype, shape, data) in tensors.items():
        other = other_byte(rng, dtype.lower(), data)
        if other and rng.random() < 0.4:  # the same bytes as numbers of another type
            views[name + ".view"] = header[name] | {"dtype": other.upper()}
            model[name + ".view"] = dense(shape, other, data)
    header = views | header if rng.random() < 0.5 else header | views
    path.write_bytes(make_safetensors.raw(header, content))
    return Input(path, model, dict(metadata or {}), not views, "safetensors")


def safetensors_folder(rng, folder, prefix):
    path = folder / f"{prefix}folder"
    path.mkdir()
    shards, model, index = rng.randint(1, 4), {}, {}
    for shard in range(shards):
        tensors, part = random_st(rng, f"{prefix}s{shard}.", rng.randint(1, 5))
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        make_safetensors.write(path / name, tensors)
        model.update(part)
        index.update({tensor: name for tensor in tensors})
    if rng.random() < 0.7:
        (path / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": sum(t.size() for t in model.values())}, "weight_map": index}))
    return Input(path, model, kind="safetensors folder", files=random_files(rng, path))


def pipeline_folder(rng, folder, prefix):
    """Of diffusers: models in folders of their own, whose tensors have the same names."""
    path, model, seed = folder / f"{prefix}pipeline", {}, rng.getrandbits(32)
    path.mkdir()
    (path / "model_index.json").write_text("{}")
    for name in ("text_encoder", "unet", "vae")[:rng.randint(1, 3)]:
        (path / name).mkdir()
        tensors, part = random_st(random.Random(seed), prefix, 3)
        make_safetensors.write(path / name / "diffusion_pytorch_model.safetensors", tensors)
        model |= {f"{name}/{tensor}": held for tensor, held in part.items()}
    return Input(path, model, kind="safetensors folder", files=random_files(rng, path))


def random_files(rng, path):
    """Puts files beside the weights of a folder; those that go along: path -> bytes."""
    for name in ("config.json", "tokenizer.json", "LICENSE", "sub/notes é.txt", "sub/deep/x.json", "empty"):
        if rng.random() < 0.4 and not (path / name).exists():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            size = 0 if name == "empty" else rng.choice([2, 300, 300, 70_000])
            plain = name == "config.json"  # it is read: what does it say of quantization?
            (path / name).write_bytes(b"{}" if plain else rng.randbytes(size) if rng.random() < 0.5 else b"{}" * (size // 2))
    if rng.random() < 0.3:
        (path / ".hidden").write_bytes(b"left out")
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*")
            if file.is_file() and file.suffix != ".safetensors" and file.name != ".hidden"}


def gptq_folder(rng, folder, prefix):
    """A checkpoint of a few GPTQ modules beside plain tensors."""
    path = folder / f"{prefix}gptq"
    path.mkdir()
    tensors, model, group, numbers = {}, {}, 32, {}
    for at in range(rng.randint(1, 3)):
        rows, columns = 32 * rng.randint(1, 3), 8 * rng.randint(1, 4)
        source = numpy.random.default_rng(rng.getrandbits(32))
        for role, dtype, shape in (("qweight", "I32", [rows // 8, columns]), ("qzeros", "I32", [rows // group, columns // 8]),
                                   ("scales", "F16", [rows // group, columns]), ("g_idx", "I32", [rows])):
            if role == "g_idx":
                data = (numpy.arange(rows) // group).astype("<i4").tobytes()
            elif role == "scales":
                data = source.normal(0, 1, shape).astype("<f2").tobytes()
            else:
                data = source.integers(0, 256, 4 * math.prod(shape), numpy.uint8).tobytes()
            name = f"{prefix}layers.{at}.{role}"
            tensors[name] = (dtype, shape, data)
            model[name] = dense(shape, make_safetensors.ZTENSOR[dtype][0], data)
        parts = [f"{prefix}layers.{at}.{role}" for role in ("qweight", "qzeros", "scales", "g_idx")]
        weight, zeros = (numpy.frombuffer(tensors[name][2], "<u4").reshape(tensors[name][1]) for name in parts[:2])
        nibbles = numpy.arange(8, dtype="u4") * 4
        codes = (weight[:, None, :] >> nibbles[:, None] & 15).reshape(rows, columns).astype("i4")
        zeros = ((zeros[:, :, None] >> nibbles & 15) + 1 & 15).reshape(-1, columns).astype("i4").repeat(group, 0)
        scales = numpy.frombuffer(tensors[parts[2]][2], "<f2").reshape(-1, columns).astype("f4").repeat(group, 0)
        numbers[f"{prefix}layers.{at}.weight"] = ((codes - zeros).astype("f4") * scales).T, parts
    more, plain = random_st(rng, f"{prefix}plain.", rng.randint(0, 3))
    tensors.update(more), model.update(plain)
    make_safetensors.write(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps({"quantization_config": {
        "quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": False, "sym": False}}))
    return Input(path, model, kind="gptq folder", quant=True, files=random_files(rng, path), numbers=numbers)


# ---- numpy -----------------------------------------------------------------------------------------------------

NPY = {"?": ("bool", None), "i1": ("i8", None), "u1": ("u8", None), "i2": ("i16", None), "u2": ("u16", None),
       "i4": ("i32", None), "u4": ("u32", None), "i8": ("i64", None), "u8": ("u64", None), "f2": ("f16", None),
       "f4": ("f32", None), "f8": ("f64", None), "c8": ("f32", "complex64"), "c16": ("f64", "complex128")}


def random_array(rng, most=None):
    """(array as it is stored, its tensor): either byte order, C or Fortran order."""
    descr = rng.choice(list(NPY) + ["f4"] * 6 + ["i4"] * 2)
    dtype, kind = NPY[descr]
    shape = random_shape(rng, most or random_size(rng))
    data = random_data(rng, kind or dtype, math.prod(shape))
    array = numpy.frombuffer(data, descr if descr == "?" else "<" + descr).reshape(shape)
    if rng.random() < 0.2:
        array = array.astype(array.dtype.newbyteorder(">"))
    if rng.random() < 0.2:
        array = numpy.asfortranarray(array) if array.ndim > 1 else array
    return array, dense(shape, dtype, data, kind)


def npy_file(rng, folder, prefix):
    array, tensor = random_array(rng)
    path = folder / f"{prefix}.npy"
    numpy.save(path, array)
    in_order = array.ndim < 2 or array.flags.c_contiguous
    return Input(path, {prefix: tensor}, pipe=in_order, kind="npy")


def npy_folder(rng, folder, prefix):
    path, model = folder / f"{prefix}arrays", {}
    path.mkdir()
    for at in range(rng.randint(1, 5)):
        array, model[f"{prefix}n{at}"] = random_array(rng)
        numpy.save(path / f"{prefix}n{at}.npy", array)
    return Input(path, model, kind="npy folder")


def put_entry(rng, archive, name, array, deflated):
    content = io.BytesIO()
    numpy.lib.format.write_array(content, array, version=rng.choice([None, (2, 0)]))
    entry = zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with archive.open(entry, "w", force_zip64=rng.random() < 0.2) as out:
        out.write(content.getvalue())


def npz_file(rng, folder, prefix):
    path, model = folder / f"{prefix}.npz", {}
    share = rng.choice([0, 0.5, 0.5, 0.2, 1])  # of deflated entries
    with zipfile.ZipFile(path, "w") as archive:
        for at in range(rng.randint(1, 12)):
            name = random_name(rng, prefix, at)
            array, model[name] = random_array(rng)
            put_entry(rng, archive, name, array, rng.random() < share)
    return Input(path, model, kind="npz")


def scipy_file(rng, folder, prefix):
    """A csr, csc or coo matrix as scipy.sparse.save_npz stores it."""
    path, kind = folder / f"{prefix}.npz", rng.choice(["csr", "csc", "coo"])
    rows, columns = rng.randint(1, 40), rng.randint(1, 40)
    source = numpy.random.default_rng(rng.getrandbits(32))
    mask = source.random((rows, columns)) < rng.choice([0, 0.1, 0.5])
    dtype = rng.choice(["<f4", "<f8", "<f2", "<i4", "<c8"])
    r, c = numpy.nonzero(mask)
    descr = NPY[dtype[1:]]
    values = numpy.frombuffer(random_data(rng, descr[1] or descr[0], len(r)), dtype)
    index = rng.choice(["<i4", "<i8"])
    arrays = {"format": numpy.array(kind.encode()), "shape": numpy.array([rows, columns])}
    if kind == "coo":
        arrays |= {"row": r.astype(index), "col": c.astype(index), "data": values}
    elif kind == "csr":
        arrays |= {"indices": c.astype(index), "data": values,
                   "indptr": numpy.concatenate([[0], numpy.cumsum(mask.sum(1))]).astype(index)}
    else:
        order = numpy.lexsort((r, c))
        arrays |= {"indices": r[order].astype(index), "data": values[order],
                   "indptr": numpy.concatenate([[0], numpy.cumsum(mask.sum(0))]).astype(index)}
    deflated = rng.random() < 0.7
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            put_entry(rng, archive, name, array, deflated if rng.random() < 0.8 else not deflated)
    parts = {"values": (*descr, values.tobytes())}
    if kind == "coo":
        parts["coords"] = ("u64", None, numpy.concatenate([r, c]).astype("<u8").tobytes())
    else:
        parts["indices"] = ("u64", None, c.astype("<u8").tobytes())
        parts["indptr"] = ("u64", None, numpy.concatenate([[0], numpy.cumsum(mask.sum(1))]).astype("<u8").tobytes())
    tensor = Tensor([rows, columns], parts, "sparse_coo" if kind == "coo" else "sparse_csr")
    return Input(path, {prefix: tensor}, kind="scipy " + kind)


def _storage(array):
    dtype, kind = NPY[array.dtype.str[1:]]
    return dtype, array.tobytes(), kind


# ---- GGUF ------------------------------------------------------------------------------------------------------

GGUF_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "i8": 24, "i16": 25, "i32": 26, "i64": 27, "f64": 28, "bf16": 30}
BLOCK_BYTES = {"q4_0": 18, "q8_0": 34}


def gguf_text(text, order):
    return struct.pack(order + "Q", len(text.encode())) + text.encode()


def gguf_file(rng, folder, prefix):
    big = rng.random() < 0.15
    order, alignment = ">" if big else "<", rng.choice([32, 32, 64, 8])
    pairs = [gguf_text("general.architecture", order) + struct.pack(order + "I", 8) + gguf_text("llama", order)]
    if alignment != 32:
        pairs.append(gguf_text("general.alignment", order) + struct.pack(order + "II", 4, alignment))
    if rng.random() < 0.5:
        pairs.append(gguf_text("x.list", order) + struct.pack(order + "IIQ3i", 9, 5, 3, 1, -2, 3))
    infos, data, model = [], bytearray(), {}
    for at in range(rng.randint(1, 6)):
        kind = rng.choice([name for name in GGUF_TYPES if not (big and name[0] == "q")])
        name, shape = random_name(rng, prefix, at) or f"{prefix}{at}", random_shape(rng, random_size(rng)) or [1]
        if kind in BLOCK_BYTES:
            shape = [max(1, n) for n in shape[:-1]] + [32 * rng.randint(1, 8)]
            count = math.prod(shape) // 32
            blocks = numpy.random.default_rng(rng.getrandbits(32)).integers(0, 256, (count, BLOCK_BYTES[kind]), numpy.uint8)
            scales = numpy.random.default_rng(rng.getrandbits(32)).normal(0, 0.1, count).astype("<f2")
            blocks[:, :2] = scales.view("u1").reshape(-1, 2)
            content = blocks.tobytes()
            model[name] = Tensor(shape, {"data": ("u8", None, content)}, f"gguf.{kind}/1")
        else:
            shape = [max(1, n) for n in shape]
            content = random_data(rng, kind, math.prod(shape))
            model[name] = dense(shape, kind, content)
        data += bytes(-len(data) % alignment)
        infos.append(gguf_text(name, order) + struct.pack(order + f"I{len(shape)}QIQ", len(shape), *reversed(shape),
                                                         GGUF_TYPES[kind], len(data)))
        wide = number_formats.width(kind) if kind not in BLOCK_BYTES else 1
        data += numpy.frombuffer(content, f"<u{wide}").astype(f"{order}u{wide}").tobytes()
    data += bytes(-len(data) % alignment)
    head = b"GGUF" + struct.pack(order + "IQQ", 3, len(infos), len(pairs)) + b"".join(pairs) + b"".join(infos)
    path = folder / f"{prefix}.gguf"
    path.write_bytes(head + bytes(-len(head) % alignment) + data)
    return Input(path, model, {"gguf": None}, True, "gguf big-endian" if big else "gguf")


def dequantized(kind, content):
    """float32 of ggml's blocks, by the definition of their type; kind is "q4_0" or "q8_0"."""
    blocks = numpy.frombuffer(content, "u1").reshape(-1, BLOCK_BYTES[kind])
    scales = blocks[:, :2].copy().view("<f2").astype("<f4")
    if kind == "q8_0":
        return (blocks[:, 2:].copy().view("i1").astype("<f4") * scales).ravel()
    low, high = blocks[:, 2:] & 15, blocks[:, 2:] >> 4
    return ((numpy.concatenate([low, high], 1).astype("<f4") - 8) * scales).ravel()


# ---- PyTorch ---------------------------------------------------------------------------------------------------

STORAGES = {"f64": "Double", "f32": "Float", "f16": "Half", "bf16": "BFloat16", "i64": "Long", "i32": "Int", "i16": "Short",
            "i8": "Char", "u8": "Byte", "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble"}
DTYPES = {"u16": "uint16", "u32": "uint32", "u64": "uint64", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2",
          "f8_e4m3fnuz": "float8_e4m3fnuz", "f8_e5m2fnuz": "float8_e5m2fnuz"}
STORED = {"complex64": "f32", "complex128": "f64"} | {name: "u8" for name in DTYPES if name[:2] == "f8"}


def swapped(data, width):
    return numpy.frombuffer(data, f"<u{width}").astype(f">u{width}").tobytes()


def random_view(rng, shape):
    """(offset, strides, elements of the storage): dimensions in any order, with gaps, repeated."""
    order, strides, stride = list(range(len(shape))), [0] * len(shape), 1
    if rng.random() < 0.4:
        rng.shuffle(order)
    for at in reversed(order):
        if rng.random() < 0.05:
            continue  # expanded: every index is the same element
        stride *= rng.choice([1] * 9 + [2])
        strides[at] = stride
        stride *= max(1, shape[at])
    offset = rng.choice([0, 0, 0, 5])
    last = sum((dim - 1) * step for dim, step in zip(shape, strides)) if math.prod(shape) else 0
    return offset, strides, offset + last + 1 + rng.choice([0, 0, 7])


def torch_file(rng, folder, prefix):
    legacy, big, nested = rng.random() < 0.3, rng.random() < 0.15, rng.random() < 0.5
    members, stored, model = {}, {}, {}
    for at in range(rng.randint(1, 8)):
        kind, shape = rng.choice([*STORAGES, *DTYPES] + ["f32", "bf16"] * 4), random_shape(rng, random_size(rng))
        offset, strides, count = random_view(rng, shape)
        data, width, key = random_data(rng, kind, count), number_formats.width(kind), str(at)
        array = numpy.ndarray(shape, f"V{width}", data, offset * width, [step * width for step in strides])
        name = random_name(rng, prefix, at) or f"{prefix}{at}"
        narrow = number_formats.width(STORED.get(kind, kind))
        where = {"kind": STORAGES[kind] + "Storage"} if kind in STORAGES else {"kind": "UntypedStorage", "module": "torch.storage"}
        where |= {"key": key, "count": count if kind in STORAGES else count * width}
        of = pickles.stream_storage(**where) if legacy else pickles.storage(**where)
        more = () if kind in STORAGES else (pickles.glob("torch", DTYPES[kind]),)
        members[name] = pickles.tensor(shape, strides, offset, of=of, more=more,
                                       rebuild="_rebuild_tensor_v2" if kind in STORAGES else "_rebuild_tensor_v3")
        stored[key] = (where["count"], swapped(data, narrow) if big and not legacy else data)
        model[name] = dense(shape, STORED.get(kind, kind), array.tobytes(), kind if kind in STORED else None)
        if rng.random() < 0.1:  # tied
            members[name + ".tied"], model[name + ".tied"] = members[name], model[name]
    attributes = {prefix + "epoch": rng.randrange(1000), prefix + "note": "é"} if rng.random() < 0.4 else {}
    members |= {name: pickles.number(value) if isinstance(value, int) else pickles.text(value)
                for name, value in attributes.items()}
    body = pickles.dictionary(**members)
    if nested:
        body = pickles.dictionary(**{prefix + "state": body})
        model = {f"{prefix}state.{name}": tensor for name, tensor in model.items()}
        attributes = {f"{prefix}state.{name}": value for name, value in attributes.items()}
    path = folder / f"{prefix}.pt"
    if legacy:
        # The flag is of the machine; a legacy stream's storages are little-endian on any.
        system = pickles.pickled(pickles.dictionary(protocol_version=pickles.number(1001),
                                                    little_endian=b"\x89" if big else b"\x88"))
        keys = b"](" + b"".join(map(pickles.text, stored)) + b"e"
        path.write_bytes(pickles.stream(body, keys, b"".join(pickles.u64(count) + data for count, data in stored.values()),
                                        system=system))
    else:
        deflated = rng.random() < 0.2 and max(len(data) for _, data in stored.values()) < 200000
        path.write_bytes(pickles.archive(body, {key: data for key, (_, data) in stored.items()}, root=prefix + "/",
                                         entries=[(prefix + "/byteorder", b"big")] if big else [],
                                         method=zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED))
    return Input(path, model, attributes, kind="torch legacy" if legacy else "torch")


def dcp_folder(rng, folder, prefix):
    """A distributed checkpoint: each tensor is cut along each of its dimensions, chunks are stored or deflated."""
    checkpoint, model = dcp.Checkpoint(folder / f"{prefix}dcp"), {}
    for at in range(rng.randint(1, 6)):
        shape = random_shape(rng, random_size(rng))
        data = random_data(rng, "f32", math.prod(shape))
        name = random_name(rng, prefix, at) or f"{prefix}{at}"
        cuts = [sorted({0, dim} | {rng.randint(0, dim) for _ in range(rng.choice([0, 0, 1, 2]))}) for dim in shape]
        boxes = dcp.grid(cuts) if all(shape) else []
        for box in boxes:
            checkpoint.add(name, shape, [box], data, file=f"__{rng.randrange(3)}_0.distcp", describe=False,
                           transposed=rng.random() < 0.2, method=rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
        checkpoint.describe(name, shape, boxes)
        model[name] = dense(shape, "f32", data)
    return Input(checkpoint.write(), model, kind="dcp")


# ---- ONNX --------------------------------------------------------------------------------------------------------

# The number of a type, and the field that its elements have when they are not raw.
ONNX = {"f32": (1, 4), "u8": (2, 5), "i8": (3, 5), "u16": (4, 5), "i16": (5, 5), "i32": (6, 5), "i64": (7, 7), "bool": (9, 5),
        "f16": (10, 5), "f64": (11, 10), "u32": (12, 11), "u64": (13, 11), "complex64": (14, 4), "complex128": (15, 10),
        "bf16": (16, 5), "f8_e4m3fn": (17, 5), "f8_e4m3fnuz": (18, 5), "f8_e5m2": (19, 5), "f8_e5m2fnuz": (20, 5)}


def onnx_typed(kind, data):
    """The field of elements that are not raw: floats one after the other, integers and narrow floats as varints."""
    number, fields = ONNX[kind][1], []
    if number in (4, 10):
        return onnx.field(number, data)
    signed = kind in ("i8", "i16", "i32", "i64")
    for value in numpy.frombuffer(data, f"<{'i' if signed else 'u'}{number_formats.width(kind)}").tolist():
        fields.append(onnx.varint(value))
    return onnx.field(number, b"".join(fields))


def onnx_file(rng, folder, prefix):
    path, external, ways, tensors, model = folder / f"{prefix}.onnx", bytearray(), set(), [], {}
    for at in range(rng.randint(1, 8)):
        kind, shape = rng.choice([*ONNX] + ["f32"] * 6 + ["i64"] * 2), random_shape(rng, random_size(rng))
        data = random_data(rng, kind, math.prod(shape))
        name = random_name(rng, prefix, at) or f"{prefix}{at}"
        way = rng.choice(["raw", "raw", "typed", "external"] if len(data) < 20000 else ["raw", "external"])
        ways.add(way)
        if way == "raw":
            held = onnx.field(9, data)
        elif way == "typed":
            held = onnx_typed(kind, data)
        else:
            external += bytes(-len(external) % 64)
            held = onnx.external(location=f"{prefix}.data", offset=len(external), length=len(data))
            external += data
        tensors.append(onnx.tensor(name, ONNX[kind][0], shape, held))
        model[name] = dense(shape, STORED.get(kind, kind), data, kind if kind in STORED else None)
    attributes = {prefix + "author": "é"} if rng.random() < 0.4 else {}
    more = b"".join(onnx.field(14, onnx.field(1, key) + onnx.field(2, value)) for key, value in attributes.items())
    path.write_bytes(onnx.model(*tensors, more=more))
    if "external" in ways:
        (folder / f"{prefix}.data").write_bytes(external)
    return Input(path, model, attributes, kind="onnx")


# ---- HDF5 --------------------------------------------------------------------------------------------------------


def hdf5_file(rng, folder, prefix):
    """Datasets in any layout and byte order; in a third of all cases as a Keras archive."""
    keras, model = rng.random() < 0.3, {}
    path = folder / f"{prefix}.h5"
    with h5py.File(path, "w", libver=rng.choice(["earliest", "latest"]),
                   userblock_size=0 if keras else rng.choice([0, 0, 512, 4096])) as file:
        for at in range(rng.randint(1, 8)):
            array, tensor = random_array(rng)
            name, options = random_name(rng, prefix, at) or f"{prefix}{at}", {}
            if array.size and array.ndim and rng.random() < 0.6:
                chunks = [rng.randint(max(1, dim // 8), dim) for dim in array.shape]
                while math.prod(chunks) * array.itemsize > 100000:
                    chunks[chunks.index(max(chunks))] //= 2
                options = {"chunks": tuple(chunks), "shuffle": rng.random() < 0.5, "fletcher32": rng.random() < 0.3}
                options |= {"compression": "gzip", "compression_opts": rng.randint(1, 9)} if rng.random() < 0.7 else {}
            if rng.random() < 0.15:  # never written: the fill value, or zeros
                fill = rng.choice([None, array.flat[0] if array.size else None])
                dataset = file.create_dataset(name, array.shape, array.dtype, fillvalue=fill, **options)
                filled = numpy.full(array.shape, 0 if fill is None else fill, array.dtype)
                tensor = dense(array.shape, *tensor.parts["data"][:1], filled.astype(array.dtype.newbyteorder("<")).tobytes(),
                               tensor.parts["data"][1])
            else:
                dataset = file.create_dataset(name, data=array, **options)
            if rng.random() < 0.2:
                dataset.attrs["units"] = "é"
                tensor.attributes["units"] = "é"
            model[name] = tensor
            if rng.random() < 0.1:
                file[name + ".tied"], model[name + ".tied"] = dataset, tensor
        attributes = {prefix + "epoch": rng.randrange(1000), prefix + "names": ["a", "é"]} if rng.random() < 0.4 else {}
        file.attrs.update(attributes)
    if keras:
        content, path = path.read_bytes(), folder / f"{prefix}.keras"
        with zipfile.ZipFile(path, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
            archive.writestr("config.json", "{}")
            archive.writestr("model.weights.h5", content)
        if len(content) <= 1000000:
            attributes["model_config"] = "{}"
        else:  # must fit the least memory limit where it is deflated
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("model.weights.h5", content)
    return Input(path, model, attributes, kind="keras" if keras else "hdf5")


# ---- .zt of every version ----------------------------------------------------------------------------------------

PLAIN = ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"]
TYPED_11 = ztread.DTYPES_11
TYPED_12 = list(ztread.TYPES)


def stored(rng, data, whole):
    """(fields, blob): raw, or as zstd frames that end anywhere, or at elements of `whole` bytes."""
    if rng.random() < 0.5 or not data:
        return {}, data
    cuts = sorted({rng.randrange(len(data)) // whole * whole for _ in range(rng.choice([0, 0, 1, 3]))} | {0, len(data)})
    pieces = []
    for begin, end in zip(cuts, cuts[1:]):
        if rng.random() < 0.5:
            pieces.append(zstandard.ZstdCompressor(level=rng.choice([1, 5]), write_checksum=rng.random() < 0.5)
                          .compress(data[begin:end]))
        else:
            pieces.append(make_zt.zstd(data[begin:end]))
    if rng.random() < 0.2:
        pieces.append(struct.pack("<II", 0x184D2A53, 5) + b"skip!")
    return {"encoding": "zstd"}, b"".join(pieces)


def random_digest(rng, algorithm, blob):
    if algorithm is None:
        return None
    text = make_zt.digest(algorithm, blob)
    name, _, value = text.partition(":")
    value = value.removeprefix("0x")
    return f"{name}:{rng.choice(['', '0x'])}{rng.choice([value, value.lower(), value.upper()])}"


def zt_file(rng, folder, prefix):
    version = rng.choice(["0.1", "1.0", "1.1", "1.2", "1.2", "1.2"])
    algorithms = rng.choice([[None], ["crc32c"], ["sha256"], ["xxh3"], [None, "crc32c", "sha256", "xxh3"]])
    model, rows = {}, []
    for at in range(rng.randint(1, 8)):
        name, tensor = random_name(rng, prefix, at), None
        if version not in ("0.1", "1.0") and rng.random() < 0.15:
            tensor = random_sparse(rng)
        else:
            typed = {"1.1": list(TYPED_11), "1.2": TYPED_12}.get(version, [])
            kind = rng.choice(PLAIN * 3 + ["f32"] * 6 + typed)
            shape = random_shape(rng, random_size(rng))
            dtype, logical = TYPED_11.get(kind, (kind, None))
            if kind in TYPED_12:
                dtype, logical = ztread.TYPES[kind][0], kind
            tensor = dense(shape, dtype, random_data(rng, logical or dtype, math.prod(shape)), logical)
        attributes = {"k": [1, None, "x"], "deep": {"a": 1.5, "b": b"\0\xff"}} if version[0] == "1" and rng.random() < 0.2 else {}
        tensor.attributes = attributes
        model[name] = tensor
        rows.append((name, tensor, algorithms))
    path = folder / f"{prefix}.zt"
    if version == "0.1":
        path.write_bytes(make_zt.encode_01([entry_01(rng, *row) for row in rows]))
        return Input(path, model, kind="zt 0.1")
    attributes = {prefix + "root": {"n": 1}} if rng.random() < 0.3 else {}
    objects = {name: entry_1(rng, version, tensor, algorithms) for name, tensor, algorithms in rows}
    aliases = {}
    for name, entry in objects.items():
        if len(entry["components"]) != 1 or not entry["components"]["data"]["data"]:
            continue
        dtype, _, data = model[name].parts["data"]
        if rng.random() < 0.15:
            aliases[name + ".tied"] = (name, None)
        other = None if model[name].element() != dtype else other_byte(rng, dtype, data)
        if other and rng.random() < 0.4:
            aliases[name + ".view"] = (name, other)
    content = encode_1(objects, version, attributes, aliases)
    for alias, (name, dtype) in aliases.items():
        tensor = model[name]
        model[alias] = tensor if dtype is None else Tensor(tensor.shape, {"data": (dtype, None, tensor.parts["data"][2])},
                                                           tensor.format, tensor.attributes)
    path.write_bytes(content)
    return Input(path, model, attributes, kind="zt " + version)


def random_sparse(rng):
    rows, columns, count = rng.randint(1, 30), rng.randint(1, 30), rng.randint(0, 60)
    dtype = rng.choice(["f32", "f64", "f16", "i32"])
    r, c = (numpy.array(sorted(rng.randrange(rows) for _ in range(count)), "<u8"),
            numpy.array([rng.randrange(columns) for _ in range(count)], "<u8"))
    values = (dtype, None, random_data(rng, dtype, count))
    if rng.random() < 0.5:
        return Tensor([rows, columns], {"values": values, "coords": ("u64", None, r.tobytes() + c.tobytes())}, "sparse_coo")
    pointers = numpy.searchsorted(r, numpy.arange(rows + 1)).astype("<u8")
    return Tensor([rows, columns], {"values": values, "indices": ("u64", None, c.tobytes()),
                                    "indptr": ("u64", None, pointers.tobytes())}, "sparse_csr")


def zt2_says(name, tensor):
    """Whether 2.0 can: names have 1 to 1,024 bytes, no two elements one cell, and the indices of a row ascend."""
    if not 0 < len(name.encode()) <= 1024:
        return False
    if tensor.format == "sparse_coo":
        cells = numpy.frombuffer(tensor.parts["coords"][2], "<u8").reshape(len(tensor.shape), -1)
        return len(set(map(tuple, cells.T.tolist()))) == cells.shape[1]
    if tensor.format == "sparse_csr":
        indptr, indices = (numpy.frombuffer(tensor.parts[role][2], "<u8") for role in ("indptr", "indices"))
        return all((numpy.diff(indices[begin:end].astype("i8")) > 0).all() for begin, end in zip(indptr, indptr[1:]))
    return True


def entry_01(rng, name, tensor, algorithms):
    dtype, _, data = tensor.parts["data"]
    entry = {"name": name, "dtype": LONG[dtype], "shape": tensor.shape}
    wide = number_formats.width(dtype)
    if rng.random() < 0.2:
        entry["data_endianness"] = "big"
        data = numpy.frombuffer(data, f"<u{wide}").astype(f">u{wide}").tobytes()
        entry["data"] = data
        fields = {}
    else:
        fields, entry["data"] = stored(rng, data, wide)
    entry |= fields
    digest = random_digest(rng, rng.choice(algorithms), entry["data"])
    return entry | ({"checksum": digest} if digest else {})


def entry_1(rng, version, tensor, algorithms):
    components = {}
    for role, (dtype, kind, data) in tensor.parts.items():
        fields, blob = stored(rng, data, 1 if rng.random() < 0.3 else number_formats.width(kind or dtype))
        component = {"data": blob, "dtype": dtype, **fields}
        if version == "1.1" and kind:
            component["dtype"] = {logical: name for name, (_, logical) in TYPED_11.items()}[kind]
        elif version == "1.2":
            component |= {"type": kind} if kind else {}
            component |= {"uncompressed_length": len(data)} if fields else {}
        digest = random_digest(rng, rng.choice(algorithms), blob)
        components[role] = component | ({"digest": digest} if digest else {})
    entry = {"shape": tensor.shape, "format": tensor.format, "components": components}
    return entry | ({"attributes": tensor.attributes} if tensor.attributes else {})


def encode_1(objects, version, attributes, aliases):
    """As make_zt.encode_1, with aliases (other names of an object's blob, as another dtype or its own) and the dialect 1.0."""
    out, listed = bytearray(make_zt.HEADER_1), {}
    for name, entry in objects.items():
        components = {}
        for role, component in entry["components"].items():
            component = dict(component)
            blob = component.pop("data")
            components[role] = component | {"offset": make_zt.place(out, blob), "length": len(blob)}
        listed[name] = entry | {"components": components}
        if version == "1.0":
            listed[name]["dtype"] = LONG[components["data"].pop("dtype")]
    for alias, (name, dtype) in aliases.items():
        listed[alias] = entry = listed[name]
        if dtype is not None and version == "1.0":
            listed[alias] = entry | {"dtype": LONG[dtype]}
        elif dtype is not None:
            listed[alias] = entry | {"components": {"data": entry["components"]["data"] | {"dtype": dtype}}}
    root = {"version": version if version == "1.0" else version + ".0",
            "tensors" if version == "1.0" else "objects": listed}
    return make_zt.finish(out, root | ({"attributes": attributes} if attributes else {}), b"" if version == "1.0" else make_zt.HEADER_1)


MAKERS = [safetensors_file] * 3 + [npz_file] * 4 + [zt_file] * 4 + [torch_file] * 3 + [onnx_file] * 2 + [hdf5_file] * 2 + [dcp_folder] * 2 + [
    npy_file, npy_folder, scipy_file, gguf_file, gguf_file, safetensors_folder, gptq_folder]
FOLDERS = [safetensors_folder, pipeline_folder, gptq_folder]
if os.environ.get("ZT_HDF5") == "OFF":  # the build's option; ctest says so
    MAKERS = [maker for maker in MAKERS if maker is not hdf5_file]
