"""Writes torch checkpoints of every dtype, layout and container into a folder, with what is in them.

    python3 make_torch.py FOLDER

Run by torch_test.py with a Python that has torch (Debian's python3-torch 1.13 will do). FOLDER/expected.json says for
each file and tensor: element type, shape, SHA-256 of the little-endian bytes in C order, as numpy has them.
"""
import collections
import hashlib
import json
import pathlib
import sys

import numpy
import torch

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
         torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
         torch.bool: "bool", torch.complex64: "complex64", torch.complex128: "complex128"}


def described(tensor):
    tensor = tensor.detach().resolve_conj().contiguous()
    if tensor.dtype == torch.bfloat16:
        data = tensor.view(torch.int16).numpy()
    else:
        data = tensor.numpy()
    return [NAMES[tensor.dtype], list(tensor.shape), hashlib.sha256(data.tobytes()).hexdigest()]


def values(dtype, *shape):
    count = int(numpy.prod(shape)) if shape else 1
    numbers = torch.arange(count, dtype=torch.int64) * 37 % 101
    if dtype == torch.bool:
        return (numbers % 3 == 0).reshape(shape)
    if dtype.is_complex:
        return torch.complex(numbers.to(torch.float64), -numbers.to(torch.float64) / 2).to(dtype).reshape(shape)
    return numbers.to(dtype).reshape(shape)


def layouts(dtype):
    """Every way a tensor may look at its storage."""
    base = values(dtype, 6, 10, 14)
    line = values(dtype, 64)
    yield "contiguous", values(dtype, 5, 7)
    yield "transposed", values(dtype, 37, 23).t()
    yield "permuted", base.permute(2, 0, 1)
    yield "reversed", base.permute(2, 1, 0)
    yield "swapped", base.transpose(0, 1)
    yield "rows", base[2:5]
    yield "columns", base[:, :, 3:9]
    yield "column", base[:, :, 4]
    yield "steps", base[::2, 1::3, ::5]
    yield "element", base[1, 2, 3]
    yield "expanded", line[:7].reshape(7, 1).expand(7, 9)
    yield "expanded_front", line[:7].expand(3, 7)
    yield "expanded_both", line[5].expand(4, 6)
    yield "windows", line.unfold(0, 8, 3)
    yield "scalar", values(dtype)
    yield "empty", values(dtype, 0, 3)
    yield "one", values(dtype, 1, 1, 1)
    yield "large", values(dtype, 300, 700).t()


def nested():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "name": "run", "best": 0.5,
            "done": False, "parameters": list(model.parameters()), "shape": torch.Size([2, 3]),
            "ordered": collections.OrderedDict([("z", values(torch.float32, 3)), ("a", values(torch.float32, 4))]),
            "default": collections.defaultdict(list, {"k": [values(torch.int64, 2), {"deep": values(torch.int8, 3)}]})}


def flatten(value, path, out):
    if isinstance(value, torch.Tensor):
        out[path] = described(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            flatten(item, f"{path}.{key}" if path else str(key), out)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            flatten(item, f"{path}.{place}" if path else str(place), out)


def main(folder):
    folder = pathlib.Path(folder)
    expected = {}

    def save(name, value, **options):
        torch.save(value, folder / name, **options)
        flatten(value, "", expected.setdefault(name, {}))

    trees = {f"layouts_{NAMES[dtype]}": dict(layouts(dtype)) for dtype in NAMES}
    trees["nested"] = nested()
    shared = values(torch.float32, 8, 6)
    trees["tied"] = {"a": shared, "b": shared, "c": shared.t(), "d": shared.t(), "e": shared[2:4],
                     "p": torch.nn.Parameter(shared)}
    trees["list"] = [values(torch.float32, 3), (values(torch.int16, 2), {"x": values(torch.uint8, 5)})]
    for name, tree in trees.items():
        for container in (True, False):
            protocols = (2, 3, 4, 5) if name in ("nested", "tied", "layouts_f32") else (2,)
            for protocol in protocols:
                save(f"{name}_{'zip' if container else 'stream'}_{protocol}.pt", tree,
                     _use_new_zipfile_serialization=container, pickle_protocol=protocol)
    torch.save(values(torch.float32, 3, 4).t(), folder / "alone.pt")
    expected["alone.pt"] = {"alone": described(values(torch.float32, 3, 4).t())}
    (folder / "expected.json").write_text(json.dumps(expected))


main(sys.argv[1])
