"""Inputs as torch, numpy, scipy and safetensors write them (Debian: python3-torch, -safetensors, -scipy, -ml-dtypes).
scripts/try-writers.py converts each.

A writer is a generator: given a folder, it yields (name, path, expected). `expected` is a dict of name to numpy array for all that
must come through, each of these with its bytes; None for what may also be refused, with a message that names the tensor and says
what to do.
"""
import collections
import datetime
import enum
import json
import pathlib
import subprocess
import sys
import types
import zipfile

import numpy

DICE = numpy.random.default_rng(37)


def weights(*shape, dtype="f4"):
    return DICE.standard_normal(shape).astype(dtype)


# ---- torch -----------------------------------------------------------------------------------------------------


def host(tensor):
    """A tensor's values as numpy has them."""
    import ml_dtypes
    import torch
    tensor = tensor.detach().resolve_conj().resolve_neg()
    tensor = (tensor.to_dense() if tensor.layout != torch.strided else tensor).contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    if not hasattr(ml_dtypes, name):
        return tensor.numpy()
    bits = torch.int16 if tensor.element_size() == 2 else torch.uint8
    return tensor.view(bits).numpy().view(getattr(ml_dtypes, name))


def flatten(value, path=()):
    """The tensors and arrays of a tree, by their paths."""
    import torch
    if isinstance(value, torch.Tensor):
        return {".".join(path): host(value)}
    if isinstance(value, numpy.ndarray):
        return {".".join(path): value}
    if isinstance(value, dict):
        members = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        members = [(str(place), item) for place, item in enumerate(value)]
    else:
        return {}
    return {key: array for name, item in members for key, array in flatten(item, (*path, name)).items()}


class Saver:
    """Saves trees with torch.save; what is expected is every tensor of them unless said otherwise."""

    def __init__(self, folder, group):
        self.folder, self.group, self.count = pathlib.Path(folder), group, 0

    def __call__(self, name, value, expected="all", suffix=".pt", **options):
        import torch
        self.count += 1
        path = self.folder / f"{self.group}{self.count}{suffix}"
        torch.save(value, path, **options)
        if isinstance(expected, str):
            expected = flatten(value) if not isinstance(value, (torch.Tensor, numpy.ndarray)) else flatten(value, (path.stem,))
        return f"torch {name}", path, expected


def views(torch, dtype):
    """Ways in which a tensor may look at its storage."""
    numbers = torch.arange(120).reshape(4, 5, 6)
    if not dtype.is_floating_point and not dtype.is_complex:
        base = (numbers % 2 == 0) if dtype == torch.bool else numbers.to(dtype)
    else:
        base = (numbers.to(torch.float32) / 8 + 0.5).to(dtype)
    return {"whole": base, "turned": base.permute(2, 0, 1), "cut": base[1:3, ::2, 4], "wide": base[:1].expand(3, 5, 6),
            "one": base[1, 2, 3], "none": base[:0], "again": base}


def torch_dtypes(folder):
    import torch
    save = Saver(folder, "d")
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64",
                 "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        yield save(name, views(torch, getattr(torch, name)))
    for name in ("float8_e8m0fnu", "float4_e2m1fn_x2", "complex32"):
        yield save(name, {"w": torch.zeros(4, dtype=getattr(torch, name)), "x": torch.ones(2)}, None)
    yield save("legacy stream", views(torch, torch.float32), _use_new_zipfile_serialization=False)
    yield save("legacy stream of bf16", views(torch, torch.bfloat16), _use_new_zipfile_serialization=False)


def training(torch):
    """What a loop saves: model, optimizer, scheduler, scaler, generators, and what it counts."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=10)
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    schedule.step()
    state = schedule.state_dict()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": {key: item for key, item in state.items()
            if isinstance(item, (int, float))}, "rng": torch.get_rng_state(), "epoch": 3, "best": 0.5, "seed": 2**63 + 5,
            "numpy": numpy.float16(0.25), "args": {"lr": 1e-3, "betas": (0.9, 0.999), "name": "run", "none": None}}


def torch_containers(folder):
    import torch
    save = Saver(folder, "c")
    tree = training(torch)
    for protocol in (2, 3, 4, 5):
        yield save(f"archive of protocol {protocol}", tree, pickle_protocol=protocol)
        yield save(f"stream of protocol {protocol}", tree, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    name, path, expected = save("zipped again", tree)
    for method, what in ((zipfile.ZIP_DEFLATED, "deflated"), (zipfile.ZIP_STORED, "stored")):
        again = path.with_name(f"{what}.pt")
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(again, "w", method) as new:
            new.comment = b"zipped again"
            for entry in old.namelist():
                new.writestr(entry, old.read(entry))
        yield f"{name}, {what}", again, expected
    torch.serialization.set_crc32_options(False)
    try:
        yield save("archive without CRCs", tree)
    finally:
        torch.serialization.set_crc32_options(True)
    yield save("one tensor", torch.arange(6.).reshape(2, 3).t())
    yield save("one Parameter", torch.nn.Parameter(torch.ones(2, 3)))
    yield save("one array", weights(3, 4))
    yield save("list of tensors", [torch.ones(2), (torch.zeros(3), {"x": torch.ones(1)})])
    yield save("bin", tree["model"], suffix=".bin")
    below = pathlib.Path(folder) / "shards"
    below.mkdir()
    state, index = tree["model"], {}
    for place, key in enumerate(state):
        index[key] = f"pytorch_model-{place + 1:05d}-of-{len(state):05d}.bin"
        torch.save({key: state[key]}, below / index[key])
    (below / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index}))
    yield "torch shards", below, flatten(state)


def torch_models(folder):
    import torch
    import torch.nn.utils.prune
    from torch import nn
    save = Saver(folder, "m")
    torch.manual_seed(3)

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool).tril())

    models = {
        "Transformer": nn.Transformer(8, 2, 1, 1, 16), "LSTM": nn.LSTM(4, 5, 2, bidirectional=True), "GRUCell": nn.GRUCell(3, 4),
        "Conv2d": nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), "ConvTranspose3d": nn.ConvTranspose3d(2, 3, 2),
        "BatchNorm": nn.BatchNorm2d(4), "EmbeddingBag": nn.EmbeddingBag(7, 3), "ParameterDict": nn.ParameterDict(
            {"a": torch.ones(2), "b/c": torch.zeros(1)}), "weight_norm": nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)),
        "spectral_norm": nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)), "tied": Tied(), "half": nn.Linear(3, 4).half(),
        "bfloat16": nn.Linear(3, 4).bfloat16(), "double": nn.Linear(3, 4).double(), "DataParallel": nn.DataParallel(nn.Linear(3, 4)),
        "average": torch.optim.swa_utils.AveragedModel(nn.Linear(3, 4)), "pruned": nn.utils.prune.identity(nn.Linear(3, 4), "weight")}
    for name, model in models.items():
        yield save(f"state of {name}", model.state_dict())
    yield save("parameters of a module", list(models["Transformer"].parameters()))
    for kind, options in {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "RMSprop": {"centered": True}, "LBFGS": {},
                          "Adagrad": {}, "Adafactor": {}, "NAdam": {}}.items():
        model = nn.Linear(3, 2)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01, **options)

        def closure(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 3)).square().sum()
            loss.backward()
            return loss
        optimizer.step(closure)
        yield save(f"state of {kind}", optimizer.state_dict())
    yield save("whole module", nn.Linear(3, 4), None)
    yield save("module in a dict", {"net": nn.Linear(3, 4), "w": torch.ones(2)}, None)
    path = pathlib.Path(folder) / "script.pt"
    torch.jit.script(nn.Linear(3, 4)).save(path)
    yield "torch TorchScript", path, None
    path = pathlib.Path(folder) / "exported.pt2"
    torch.export.save(torch.export.export(nn.Linear(3, 4), (torch.ones(1, 3),)), path)
    yield "torch exported program", path, None


class Color(enum.Enum):
    RED = 1


def torch_objects(folder):
    import torch
    save = Saver(folder, "o")
    one, two = torch.arange(6.).reshape(2, 3), torch.arange(4.)
    for name, value in {
            "OrderedDict": collections.OrderedDict(z=one, a=two), "defaultdict": collections.defaultdict(list, a=[one, two]),
            "Counter": collections.Counter("abca"), "whole numbers as keys": {0: one, -1: two}, "empty key": {"": one},
            "odd keys": {"a b": one, "größe/重み": two, "line\nbreak": one, "x" * 3000: two}, "deep": {"a": {"b": {"c": [[{"d": one}]]}}},
            "tied": {"a": one, "b": one, "c": one.t(), "d": one[1]}, "shared storage": list(torch.arange(100.).split(7)),
            "window of a large storage": {"x": torch.zeros(1 << 18)[5:9]}, "nothing": {}, "only values": {"a": 1, "b": [1.5, "x", None]},
            "sizes": {"x": one, "size": one.size(), "device": torch.device("cpu"), "dtype": torch.float32},
            "others": {"x": one, "when": datetime.datetime(2024, 1, 1), "path": pathlib.PurePosixPath("/x"), "bytes": b"x",
                       "complex": 1 + 2j, "range": range(3), "color": Color.RED, "set": {1, 2}, "space": types.SimpleNamespace(a=1)}}.items():
        yield save(name, value)
    scaled, parameter = torch.ones(2), torch.nn.Parameter(torch.ones(3))
    scaled.scale, parameter.axes, parameter.note = 0.5, [0, 1], "x"
    yield save("attributes of tensors", {"t": scaled, "p": parameter, "b": torch.nn.Buffer(torch.ones(1))})
    held = torch.ones(2)
    held.of = two

    for name, value in {
            "surrogate": {"a\ud800": one, "b": two}, "twins": {"a.b": one, "a": {"b": two}}, "key of two": {(1, 2): one, "x": two},
            "key None": {None: one, "x": two}, "tensor attribute": {"t": held, "x": one}, "conj": {"c": torch.ones(2, dtype=torch.cfloat).conj()},
            "neg": {"n": torch.ones(2, dtype=torch.cfloat).conj().imag, "x": one}, "meta": {"m": torch.empty(3, device="meta"), "x": one},
            "storage": {"s": torch.ones(3).untyped_storage(), "x": one}, "deque": {"q": collections.deque([one, two])},
            "namespace": {"n": types.SimpleNamespace(w=one), "x": two}, "big": {"x": one, "n": 2**70, "m": -2**70},
            "size of torch": torch.nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 1), torch.tensor([3, 2]))}.items():
        yield save(name, value, None)

    dense = torch.tensor([[0., 2, 0, 1], [0, 0, 0, 0], [3, 0, 4, 0], [0, 0, 0, 5]])
    for name in ("to_sparse", "to_sparse_csr", "to_sparse_csc"):
        for kind in (torch.float32, torch.float64, torch.bfloat16):
            yield save(f"{name} of {kind}", {"s": getattr(dense.to(kind), name)()})
    yield save("sparse of three dimensions", {"s": dense.reshape(2, 2, 4).to_sparse()})
    yield save("sparse of i32", {"s": torch.sparse_csr_tensor(torch.tensor([0, 1, 2], dtype=torch.int32),
                                                              torch.tensor([0, 1], dtype=torch.int32), torch.ones(2), (2, 2))})
    yield save("sparse and empty", {"s": torch.zeros(3, 4).to_sparse()})
    for name, value in {"bsr": dense.to_sparse_bsr((2, 2)), "bsc": dense.to_sparse_bsc((2, 2)),
                        "hybrid": dense.to_sparse(1), "batched": torch.stack([dense, dense]).to_sparse_csr(),
                        "uncoalesced": torch.sparse_coo_tensor([[0, 0], [1, 1]], [1., 2.], (2, 2))}.items():
        yield save(f"sparse {name}", {"s": value, "x": two}, None)
    for name, value in {"tensor": torch.quantize_per_tensor(dense, 0.1, 3, torch.qint8),
                        "channel": torch.quantize_per_channel(dense, torch.ones(4), torch.zeros(4), 0, torch.quint8)}.items():
        yield save(f"quantized by {name}", {"q": value, "x": two}, None)


def torch_arrays(folder):
    import torch
    save = Saver(folder, "a")
    grid = weights(4, 5, 6)
    arrays = {kind: (DICE.random((3, 4)) * 100).astype(kind) for kind in ("?", "i1", "u1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", ">c8", "<c16")}
    arrays |= {"fortran": numpy.asfortranarray(grid), "permuted": grid.transpose(1, 2, 0), "cut": grid[::2, 1:4, ::3], "scalar": numpy.array(2.5),
               "empty": grid[:0], "big endian order": numpy.asfortranarray(grid.astype(">f8"))}
    for protocol in (2, 4, 5):
        yield save(f"arrays of protocol {protocol}", {"w": torch.ones(2), **arrays}, pickle_protocol=protocol)
        yield save(f"large arrays of protocol {protocol}", {"raw": weights(700, 600), "turned": weights(500, 300).T, "small": weights(3),
                                                            "w": torch.ones(2)}, pickle_protocol=protocol)
    yield save("arrays in a stream", arrays, _use_new_zipfile_serialization=False)
    for name, value in {"strings": numpy.array(["a", "b"]), "objects": numpy.array([1, "a"], dtype=object), "fields": numpy.zeros(
            2, [("a", "f4")]), "long": numpy.ones(2, "g"), "dates": numpy.zeros(2, "M8[s]"), "masked": numpy.ma.masked_array([1, 2], [0, 1])}.items():
        yield save(f"array of {name}", {"a": value, "w": torch.ones(2)}, None)
    yield save("numbers of numpy", {"w": torch.ones(2), "f": numpy.float32(1.5), "h": numpy.float16(0.1), "i": numpy.int64(-3),
                                    "u": numpy.uint64(2**64 - 1), "b": numpy.bool_(True), "g": numpy.longdouble(1), "c": numpy.complex64(1)})


def torch_distributed(folder):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
    folder, count = pathlib.Path(folder), 0
    one, two = torch.arange(12.).reshape(3, 4), torch.arange(5)

    def save(name, tree, expected="all", **options):
        nonlocal count
        count += 1
        path = folder / f"dcp{count}"
        dcp.save(tree, storage_writer=FileSystemWriter(path, **options), no_dist=True)
        return f"dcp {name}", path, flatten(tree) if isinstance(expected, str) else expected

    for name, tree in {"tensors": {"a": one, "b": two, "c": one.bfloat16(), "d": one.t(), "e": torch.tensor(3.), "f": one[:0]},
                       "tuple of tensors": {"a": one, "x": (one, one + 1)}, "values": {"a": one, "epoch": 3, "lr": 0.1, "name": "x", "l": [1, 2]},
                       "array": {"a": one, "n": numpy.arange(5.)}, "trees": {"a": one, "t": [{"x": one}, [two, 3]]},
                       "odd names": {"a/b": one, "größe": two}, "model": {"m": torch.nn.Linear(3, 4).state_dict()},
                       "training": {key: item for key, item in training(torch).items() if key != "numpy"}}.items():
        yield save(name, tree)
    yield save("threads", {f"l{i}": torch.full((100,), float(i)) for i in range(40)}, thread_count=4)
    yield save("in the form of safetensors", {"a": one}, None, serialization_format=SerializationFormat.SAFETENSORS)
    yield save("a module", {"a": one, "m": torch.nn.Linear(3, 4)}, None)
    try:
        from torch.distributed.checkpoint import HuggingFaceStorageWriter
    except ImportError:
        return
    path = folder / "hub"
    dcp.save({"a": one, "b": two}, storage_writer=HuggingFaceStorageWriter(str(path)), no_dist=True)
    yield "dcp for the hub", path, flatten({"a": one, "b": two})


def sharded(rank, path, store):
    """One of two processes that save a checkpoint together."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(35.).reshape(5, 7)
    dcp.save({"rows": distribute_tensor(whole, mesh, [Shard(0)]), "columns": distribute_tensor(whole, mesh, [Shard(1)]),
              "all": distribute_tensor(whole, mesh, [Replicate()]), "own": torch.ones(3), "epoch": 4}, checkpoint_id=path)
    dist.destroy_process_group()


def torch_sharded(folder):
    path, store = pathlib.Path(folder) / "two", pathlib.Path(folder) / "store"
    both = [subprocess.Popen([sys.executable, __file__, str(rank), path, store]) for rank in range(2)]
    if any([process.wait() for process in both]):
        raise RuntimeError("a process failed")
    whole = numpy.arange(35, dtype="f4").reshape(5, 7)
    yield "dcp of two processes", path, {"rows": whole, "columns": whole, "all": whole, "own": numpy.ones(3, "f4")}


# ---- numpy and scipy -------------------------------------------------------------------------------------------


def numpy_writers(folder):
    folder = pathlib.Path(folder)
    grid = weights(4, 5, 6)
    kinds = {kind: (DICE.random((3, 4)) * 100).astype(kind) for kind in
             ("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16")}
    forms = {"fortran": numpy.asfortranarray(grid), "big": grid.astype(">f4"), "big fortran": numpy.asfortranarray(grid.astype(">c16")),
             "scalar": numpy.array(2.5), "empty": grid[:0], "ones": grid[:1, :1, :1], "cut": grid[::2, :, ::3], "vector": grid[0, 0]}

    def npy(name, array, expected="array", **options):
        path = folder / (name.replace(" ", "_") + ".npy")
        numpy.save(path, array, **options)
        return f"npy {name}", path, {path.stem: numpy.asarray(array)} if isinstance(expected, str) else expected

    def npz(name, arrays, expected="all", save=numpy.savez):
        path = folder / (name.replace(" ", "_") + ".npz")
        save(path, **arrays)
        return f"npz {name}", path, arrays if isinstance(expected, str) else expected

    for name, array in forms.items():
        yield npy(name, array)
    yield npy("matrix", numpy.matrix(grid[0]))
    memory = numpy.lib.format.open_memmap(folder / "mapped.npy", "w+", "<f8", (3, 4))
    memory[:] = kinds["<f8"]
    memory.flush()
    yield "npy of a memmap", folder / "mapped.npy", {"mapped": kinds["<f8"]}
    for version in ((1, 0), (2, 0), (3, 0)):
        path = folder / f"version{version[0]}.npy"
        with open(path, "wb") as out:
            numpy.lib.format.write_array(out, grid, version)
        yield f"npy of version {version[0]}", path, {path.stem: grid}
    yield npz("of every kind", kinds)
    yield npz("of every form", forms)
    yield npz("compressed", {**kinds, **forms}, save=numpy.savez_compressed)
    yield npz("of one", {"arr_0": grid})
    yield npz("of none", {})
    yield npz("odd names", {"a/b": grid, "größe": grid[0], "a.npy": grid[1], "../up": grid[2], "sp ace": grid[3]})
    yield npz("many", {f"layer_{i}/weight": weights(i % 7, 3) for i in range(1200)})
    yield npz("format, shape and data", {"shape": numpy.array([2, 3]), "data": grid, "format": numpy.array("NCHW")}, None)
    yield npz("named as a matrix", {"shape": numpy.array([2, 3]), "data": grid, "format": numpy.array("csr")}, None)
    import ml_dtypes
    refused = {"fields": numpy.zeros(2, [("a", "f4"), ("b", "i2")]), "escaped fields": numpy.zeros(2, [("a\xa0\n", "f4")]),
               "many fields": numpy.zeros(2, [(f"field_number_{i}", "f4") for i in range(500)]), "strings": numpy.array(["a", "bc"]),
               "bytes": numpy.array([b"a", b"bc"]), "objects": numpy.array([1, "a"], dtype=object), "dates": numpy.zeros(2, "M8[ns]"),
               "spans": numpy.zeros(2, "m8[25s]"), "long": numpy.ones(2, "g"), "bf16": numpy.ones(2, ml_dtypes.bfloat16),
               "f8": numpy.ones(2, ml_dtypes.float8_e4m3fn), "void": numpy.zeros(2, "V3"), "records": numpy.rec.array([(1, 2.0)]),
               "texts": numpy.array(["a"], dtype=numpy.dtypes.StringDType())}
    for name, array in refused.items():
        yield npz(f"with {name}", {"x": array, "good": grid}, None)
        yield npy(f"of {name}", array, None)
    below = folder / "folder"
    below.mkdir()
    for name, array in forms.items():
        numpy.save(below / f"{name}.npy", array)
    yield "npy folder", below, forms


def scipy_writers(folder):
    import scipy.sparse
    folder = pathlib.Path(folder)
    cells = DICE.random((30, 20))
    cells[cells < 0.8] = 0

    def save(name, matrix, expected="dense", **options):
        path = folder / (name.replace(" ", "_") + ".npz")
        scipy.sparse.save_npz(path, matrix, **options)
        return f"scipy {name}", path, {path.stem: matrix.toarray()} if isinstance(expected, str) else expected

    for form in ("csr", "csc", "coo"):
        for kind in ("matrix", "array"):
            made = getattr(scipy.sparse, f"{form}_{kind}")
            for dtype in ("f4", "f8", "i4", "c16", "?"):
                yield save(f"{form} {kind} of {dtype.replace('?', 'flags')}", made(cells.astype(dtype)), compressed=dtype == "f4")
    for form in ("bsr", "dia"):
        yield save(form, scipy.sparse.csr_array(cells).asformat(form), None)
    for form in ("csr", "csc", "coo"):
        yield save(f"empty {form}", getattr(scipy.sparse, f"{form}_array")((3, 4), dtype="f4"))
    unsorted = scipy.sparse.csr_array((numpy.arange(4.), numpy.array([2, 0, 1, 0]), numpy.array([0, 2, 4])), shape=(2, 3))
    yield save("unsorted csr", unsorted)
    yield save("coo with duplicates", scipy.sparse.coo_array((numpy.ones(3), ([0, 0, 1], [1, 1, 0])), shape=(2, 2)))
    wide = scipy.sparse.csr_array(cells)
    wide.indices, wide.indptr = wide.indices.astype("i8"), wide.indptr.astype("i8")
    yield save("csr of i8 indices", wide)
    yield save("coo of one dimension", scipy.sparse.coo_array(cells[0]))
    yield save("csr of one dimension", scipy.sparse.csr_array(cells[0]))
    yield save("coo of three dimensions", scipy.sparse.coo_array(cells.reshape(5, 6, 20)))
    yield save("identity", scipy.sparse.eye_array(7, format="csr"))


# ---- safetensors -----------------------------------------------------------------------------------------------


def safetensors_writers(folder):
    import safetensors.numpy
    import safetensors.torch
    import torch
    folder, count = pathlib.Path(folder), 0

    def save(name, tensors, expected="all", **options):
        nonlocal count
        count += 1
        path = folder / f"s{count}.safetensors"
        safetensors.torch.save_file(tensors, path, **options)
        return f"safetensors {name}", path, (
            {key: host(tensor) for key, tensor in tensors.items()} if isinstance(expected, str) else expected)

    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64",
                 "bool", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        whole = views(torch, getattr(torch, name))["whole"]
        yield save(name, {"w": whole, "one": whole[0, 0, 0].clone(), "none": whole[:0].clone(), "row": whole[1].clone()})
    for name in ("float8_e8m0fnu", "float4_e2m1fn_x2"):
        yield save(name, {"w": torch.zeros(4, 2, dtype=getattr(torch, name)), "x": torch.ones(2)}, None)
    yield save("metadata", {"w": torch.ones(2)}, metadata={"format": "pt", "note": "größe\n", "": ""})
    yield save("no tensors", {})
    yield save("odd names", {"a b": torch.ones(1), "größe/重み": torch.ones(2), "": torch.ones(3), "x" * 3000: torch.ones(4)})
    yield save("odd sizes", {f"t{i}": torch.arange(i, dtype=torch.uint8) for i in range(40)})
    yield save("many", {f"model.layers.{i}.weight": torch.full((3,), float(i)) for i in range(2000)})
    model = torch.nn.Transformer(8, 2, 1, 1, 16)
    safetensors.torch.save_model(model, str(folder / "model.safetensors"))
    yield "safetensors of a model", folder / "model.safetensors", {key: host(tensor) for key, tensor in model.state_dict().items()}
    arrays = {"a": weights(3, 4), "b": numpy.arange(5), "c": weights(2, dtype="f2")}
    safetensors.numpy.save_file(arrays, folder / "numpy.safetensors", metadata={"format": "np"})
    yield "safetensors of numpy", folder / "numpy.safetensors", arrays
    below = folder / "shards"
    below.mkdir()
    index = {}
    for place, (key, tensor) in enumerate(model.state_dict().items()):
        index[key] = f"model-{place + 1:05d}-of-{len(model.state_dict()):05d}.safetensors"
        safetensors.torch.save_file({key: tensor.contiguous()}, below / index[key], metadata={"format": "pt"})
    (below / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index}))
    yield "safetensors shards", below, {key: host(tensor) for key, tensor in model.state_dict().items()}


WRITERS = [torch_dtypes, torch_containers, torch_models, torch_objects, torch_arrays, torch_distributed, torch_sharded, numpy_writers,
           scipy_writers, safetensors_writers]

if __name__ == "__main__":
    sharded(int(sys.argv[1]), *sys.argv[2:])
