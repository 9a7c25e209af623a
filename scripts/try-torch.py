#!/usr/bin/env python3
"""try-torch.py - what the Python package makes of every kind of tensor that torch has: dense ones by any view or subclass, those
without values, sparse, nested and quantized ones, and what torch.distributed shards over four processes (DTensor, FSDP, FSDP2).

Each is saved in every way that takes tensors. It comes back with its type, shape and bits, or is refused by an ArgumentError that
names it, and then nothing is left of the file. Exit status 1 where one of them is otherwise.

  scripts/try-torch.py [--processes 4]

Needs torch 2.4 or later (Debian sid: python3-torch), and the release build, or ZTSTREAM_LIBRARY.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import traceback
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("ZTSTREAM_LIBRARY", str(ROOT / "build/release/capi/libztstream.so.0"))

import numpy
import torch

import ztstream

warnings.filterwarnings("ignore")


class Subclass(torch.Tensor):
    """One with values of its own."""


class Wrapper(torch.Tensor):
    """One that stands for another tensor, like the quantized ones of torchao."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(each.inner if isinstance(each, Wrapper) else each for each in args), **(kwargs or {}))


class Function(torch.Tensor):
    """One whose functions lie."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def freed(size, kept, part=slice(None)):
    tensor = torch.ones(size)
    view = tensor[part]
    tensor.untyped_storage().resize_(kept)
    return view


def in_transform(transform, tensor):
    seen = []
    transform(lambda x: (seen.append(x), x.sum())[1])(tensor)
    return seen[0]


def shared():
    tensor = torch.arange(300.0)
    return tensor.share_memory_()


def from_file(folder):
    path = os.path.join(folder, "bytes")
    pathlib.Path(path).write_bytes(numpy.arange(400, dtype="f4").tobytes())
    return torch.from_file(path, size=400)


def kinds(folder):
    """(what it is, a function that makes it, whether its values come back; None where either is right)."""
    base = torch.randn(6, 8, 10)
    yield "contiguous", lambda: base, True
    yield "transposed", lambda: base.transpose(0, 2), True
    yield "every second", lambda: base[::2, :, 1::3], True
    yield "expanded", lambda: torch.randn(1, 4).expand(1000, 4), True
    yield "as_strided that overlaps", lambda: torch.randn(20).as_strided((8, 5), (2, 1)), True
    yield "unfolded", lambda: torch.randn(40).unfold(0, 8, 3), True
    yield "diagonal", lambda: base[0, :8, :8].diagonal(), True
    yield "flipped", lambda: base.flip(1), True
    yield "narrow with an offset", lambda: torch.arange(1000.0).narrow(0, 501, 37), True
    yield "channels_last", lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), True
    yield "scalar", lambda: torch.tensor(2.5), True
    yield "no elements", lambda: torch.empty(3, 0, 5), True
    yield "one of 70 dimensions", lambda: torch.ones([1] * 60), True
    yield "requires_grad", lambda: torch.randn(5, requires_grad=True), True
    yield "with a graph", lambda: torch.randn(5, requires_grad=True) * 2, True
    yield "Parameter", lambda: torch.nn.Parameter(torch.randn(5)), True
    yield "Buffer", lambda: torch.nn.Buffer(torch.randn(5)) if hasattr(torch.nn, "Buffer") else torch.ones(2), True
    yield "inference", lambda: torch.inference_mode()(lambda: torch.randn(7) * 2)(), True
    yield "conjugated", lambda: torch.randn(5, dtype=torch.complex64).conj(), True
    yield "negated", lambda: torch.randn(5, dtype=torch.complex64).conj().imag, True
    yield "real part", lambda: torch.randn(5, dtype=torch.complex128).real, True
    yield "zero tensor", lambda: torch._efficientzerotensor(5), True
    yield "bits of another type", lambda: torch.randn(8).view(torch.int16), True
    yield "half of a pair of bytes", lambda: torch.arange(64, dtype=torch.uint8)[3:11].clone().view(torch.bfloat16), True
    yield "of numpy", lambda: torch.from_numpy(numpy.arange(6.0).reshape(2, 3)), True
    yield "of a read-only array", lambda: torch.from_numpy(numpy.broadcast_to(numpy.float32(3), (4, 4))), True
    yield "of a bytearray, misaligned", lambda: torch.frombuffer(bytearray(range(41)), dtype=torch.uint8, offset=1).view(torch.float64), True
    yield "shared memory", shared, True
    yield "of a mapped file", lambda: from_file(folder), True
    yield "pinned", lambda: torch.ones(3).pin_memory() if torch.cuda.is_available() else torch.ones(3), True
    yield "subclass", lambda: torch.randn(5).as_subclass(Subclass), True
    yield "subclass with functions", lambda: torch.randn(5).as_subclass(Function), True
    yield "inside vmap", lambda: in_transform(torch.vmap, torch.arange(6.0).reshape(2, 3)), None
    yield "inside grad", lambda: in_transform(torch.func.grad, torch.arange(6.0)), None
    yield "inside functionalize", lambda: in_transform(torch.func.functionalize, torch.arange(6.0)), None
    yield "forward gradient", dual, True
    yield "meta", lambda: torch.zeros(3, device="meta"), False
    yield "meta without elements", lambda: torch.zeros(0, device="meta"), False
    yield "fake", fake, False
    yield "functional", lambda: torch._to_functional_tensor(torch.ones(4)), False
    yield "freed", lambda: freed(1000, 0), False
    yield "freed in part", lambda: freed(1000, 400), False
    yield "view of freed", lambda: freed(1000, 400, slice(500, 510)), False
    yield "view of what is left", lambda: freed(1000, 400, slice(0, 50)), True
    yield "wrapper", lambda: Wrapper(torch.ones(3)), False
    yield "lazy parameter", lambda: torch.nn.LazyLinear(3).weight, False
    yield "sparse coo", lambda: torch.eye(3).to_sparse(), False
    yield "sparse csr", lambda: torch.eye(3).to_sparse_csr(), False
    yield "sparse csc", lambda: torch.eye(3).to_sparse_csc(), False
    yield "sparse bsr", lambda: torch.eye(4).to_sparse_bsr((2, 2)), False
    yield "sparse without elements", lambda: torch.zeros(0, 3).to_sparse(), False
    yield "mkldnn", lambda: torch.randn(4, 4).to_mkldnn() if torch.backends.mkldnn.is_available() else torch.eye(3).to_sparse(), False
    yield "nested", lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), False
    yield "nested, jagged", lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged), False
    yield "masked", masked, None
    yield "quantized", lambda: torch.quantize_per_tensor(torch.randn(5), 0.1, 0, torch.qint8), False
    yield "quantized by channel", lambda: torch.quantize_per_channel(
        torch.randn(2, 5), torch.ones(2), torch.zeros(2, dtype=torch.long), 0, torch.quint8), False
    yield "complex32", lambda: torch.zeros(3, dtype=torch.complex32), False
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
                 "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
                 "float8_e8m0fnu", "float4_e2m1fn_x2"):
        if hasattr(torch, name):
            yield name, lambda name=name: of_bits(getattr(torch, name)), True
    for name in ("bits8", "bits16", "uint4", "int4", "uint1"):
        if hasattr(torch, name):
            yield name, lambda name=name: torch.zeros(4, dtype=torch.uint8).view(getattr(torch, name)), None


def of_bits(dtype):
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    return torch.arange(64, dtype=torch.uint8).view(dtype)


def dual():
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.make_dual(torch.randn(4), torch.randn(4))


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return torch.zeros(4)


def masked():
    from torch.masked import masked_tensor
    return masked_tensor(torch.arange(4.0), torch.tensor([True, False, True, True]))


def bits(tensor):
    """(type, shape, bytes) of what has values, without the package."""
    plain = tensor.detach()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    plain = plain.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.dtype, tuple(plain.shape), bytes(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else b""


def add(path, tensor):
    with ztstream.Writer(path) as out:
        out.add("w", tensor)


def stream(path, tensor):
    try:
        shape = tuple(tensor.shape)
    except RuntimeError:  # nested and lazy ones have none
        shape = None,
    with ztstream.Writer(path) as out, out.begin("w", tensor.dtype, shape) as rows:
        rows.write(tensor)


def compat(path, tensor):
    from ztstream.safetensors_compat.torch import save_file
    save_file({"w": tensor}, path)


WAYS = {
    "save_file": lambda path, tensor: ztstream.save_file({"w": tensor}, path),
    "planes": lambda path, tensor: ztstream.save_file({"w": tensor}, path, compress="planes", min_gain=-1),
    "background": lambda path, tensor: ztstream.save_file({"w": tensor}, path, background=True).wait(),
    "add": add,
    "begin": stream,
    "safetensors": compat,
}


def tried(folder, what, tensor, wanted):
    """What is wrong with how a tensor is saved: lines. Whether it came back."""
    wrong, came = [], False
    for way, save in WAYS.items():
        path = os.path.join(folder, "x.safetensors" if way == "safetensors" else "x.zt")
        try:
            save(path, tensor)
        except ztstream.ArgumentError as error:
            if wanted and not (way == "safetensors" and what not in SAFETENSORS):
                wrong.append(f"{what}, {way}: refused: {error}")
            elif error.tensor != "w" or "'w'" not in str(error) and "`w`" not in str(error):
                wrong.append(f"{what}, {way}: refused without its name: {error}")
        except ztstream.Error as error:
            if way != "safetensors" or "'w'" not in str(error) and "`w`" not in str(error):
                wrong.append(f"{what}, {way}: {error!r}")
        except Exception as error:
            wrong.append(f"{what}, {way}: {error!r}")
        else:
            with ztstream.open(path) as file:
                made = file.torch(copy=True)["w"]
            if wanted is False:
                wrong.append(f"{what}, {way}: it has no values that a file takes, and was saved as {made}")
            elif bits(made) != bits(tensor):
                wrong.append(f"{what}, {way}: another tensor came back: {made}")
            came = True
        left = sorted(set(os.listdir(folder)) - {"bytes", os.path.basename(path)})
        if os.path.exists(path):
            os.unlink(path)
        if left:
            wrong.append(f"{what}, {way}: left {left}")
    return wrong, came


SAFETENSORS = {"contiguous", "scalar", "Parameter"}  # which safetensors' interface has to take; it refuses views


def of_distributed(rank, processes, folder, results):
    """One of several processes: what it has of sharded tensors."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=processes)
    own = os.path.join(folder, str(rank))
    os.mkdir(own)
    try:
        wrong, count = distributed(rank, processes, own, dist, init_device_mesh("cpu", (processes,)))
    except BaseException:
        wrong, count = [f"process {rank}: {traceback.format_exc()}"], 0
    results.put((wrong, count))
    dist.barrier()
    dist.destroy_process_group()


def distributed(rank, processes, folder, dist, mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    wrong, count = [], 0

    def expect(what, tensor, wanted):
        nonlocal count
        found, _ = tried(folder, f"process {rank}: {what}", tensor, wanted)
        wrong.extend(found)
        count += 1

    torch.manual_seed(0)
    whole = torch.randn(2 * processes + 1, 6)
    for name, placement in (("rows", Shard(0)), ("columns", Shard(1)), ("replicated", Replicate())):
        tensor = distribute_tensor(whole, mesh, [placement])
        expect(f"DTensor by {name}", tensor, False)
        expect(f"Parameter that is a DTensor by {name}", torch.nn.Parameter(tensor), False)
        expect(f"full_tensor of {name}", tensor.full_tensor(), True)
        if not torch.equal(tensor.full_tensor(), whole):
            wrong.append("full_tensor is another tensor")
        expect(f"to_local of {name}", tensor.to_local(), True)

    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

    plain = model().state_dict()
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    sharded = model()
    fully_shard(sharded[0], mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    optimizer = torch.optim.AdamW(sharded.parameters(), 0.0)
    for name, tensor in sharded.state_dict().items():
        expect(f"FSDP2 {name}", tensor, False)
        expect(f"FSDP2 {name} whole", tensor.full_tensor(), True)
        if not torch.equal(tensor.full_tensor(), plain[name]):
            wrong.append(f"FSDP2 {name}: another tensor")
    sharded(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    try:
        ztstream.save_file({"model": sharded.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(folder, "state.zt"))
        wrong.append("the state of FSDP2 was saved as if it were whole")
    except ztstream.ArgumentError as error:
        if "full_tensor()" not in str(error):
            wrong.append(f"FSDP2 without advice: {error}")
    try:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
        state = get_state_dict(sharded, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if rank == 0:  # the whole is there alone
            path = os.path.join(folder, "whole.zt")
            ztstream.save_file({"model": state[0], "optimizer": state[1]}, path)
            again = ztstream.load(path, framework="torch")
            for name, tensor in plain.items():
                if not torch.equal(again["model"][name], tensor):
                    wrong.append(f"get_state_dict {name}: another tensor")
            if set(again["optimizer"]["state"]) != set(state[1]["state"]):
                wrong.append("get_state_dict: another state of the optimizer")
            os.unlink(path)
            count += len(plain)
    except ImportError:
        pass
    # FSDP of torch 1: parameters are views of flat ones, whose memory is freed between uses.
    from torch.distributed.fsdp import FullyShardedDataParallel
    try:
        first = FullyShardedDataParallel(model(), use_orig_params=True)
    except RuntimeError as error:
        if "accelerator" not in str(error):
            raise
        if rank == 0:
            print("FSDP of torch 1: it needs an accelerator, and was not tried")
        return wrong, count
    for name, tensor in first.named_parameters():
        expect(f"FSDP {name}", tensor, None)
    return wrong, count


def main():
    arguments = argparse.ArgumentParser(usage="scripts/try-torch.py [--processes 4]")
    arguments.add_argument("--processes", type=int, default=4)
    processes = arguments.parse_args().processes
    wrong, saved, refused = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for what, make, wanted in kinds(folder):
            try:
                tensor = make()
            except Exception as error:
                print(f"{what}: this torch makes none: {str(error).splitlines()[0]}")
                continue
            found, came = tried(folder, what, tensor, wanted)
            wrong += found
            saved, refused = saved + came, refused + (not came)
    print(f"torch {torch.__version__}: {saved + refused} kinds, {saved} saved, {refused} refused by name, {len(wrong)} faults")
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        torch.multiprocessing.spawn(of_distributed, (processes, folder, results), nprocs=processes)
        count, faults = 0, []
        while not results.empty():
            found, tensors = results.get()
            faults += found
            count += tensors
    print(f"{processes} processes: {count} tensors of DTensor and FSDP tried, {len(faults)} faults")
    for line in wrong + faults:
        print("FAULT", line)
    return bool(wrong or faults)


if __name__ == "__main__":
    sys.exit(main())
