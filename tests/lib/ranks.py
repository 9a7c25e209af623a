"""Files that several ranks wrote, each with its parts of tensors: safetensors of torch.distributed.checkpoint, and torch.save of DTensor."""
import json
import math

import numpy

from dcp_assembler import instance, listed, members, sizes
from make_safetensors import encode
from pickle_assembler import archive, call, dictionary, glob, number, numbers, tensor, text, tup

PLACEMENTS = "torch.distributed.tensor.placement_types"
TYPES = {"float32": ("F32", "FloatStorage", "float32"), "int16": ("I16", "ShortStorage", "int16"),
         "float64": ("F64", "DoubleStorage", "float64")}


def boxes(shape, mesh, placements):
    """{coordinate: (offsets, sizes)} of a tensor that is placed on a mesh: for each of its dimensions the dimension of the tensor
    that is cut along it, or None."""
    found = {}
    for place in numpy.ndindex(*mesh):
        offsets, box = [0] * len(shape), list(shape)
        for size, at, dim in zip(mesh, place, placements):
            if dim is None:
                continue
            chunk = math.ceil(box[dim] / size)
            begin = min(box[dim], chunk * at)
            offsets[dim] += begin
            box[dim] = min(chunk, box[dim] - begin)
        found[place] = tuple(offsets), tuple(box)
    return found


def part_of(array, offsets, box):
    return array[tuple(slice(low, low + size) for low, size in zip(offsets, box))]


def safetensors(parts, more=None):
    """A rank's file of HuggingFaceStorageWriter: `parts` are {name: (offsets, array)}."""
    info = {name: {"saved_offsets": list(offsets)} for name, (offsets, _) in parts.items()}
    return encode({name: (TYPES[str(array.dtype)][0], array.shape, array.tobytes()) for name, (_, array) in parts.items()},
                  {"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0", "format": "pt"} | (more or {}))


def placement(name, **fields):
    return instance(PLACEMENTS, name, members(**fields) if fields else b"}")


def device_mesh(mesh, place, version):
    """A DeviceMesh as torch 2.14, 2.10 ("layout") or 2.4 ("mesh") pickles it, without what is not read."""
    if version == "axes":
        axes = [instance("torch.distributed._mesh_layout", "_FlatLayout", members(shape=numbers([size]), stride=numbers([1])))
                for size in mesh]
        where = dict(_layout=instance("torch.distributed._mesh_layout", "_MeshLayout", members(axes=tup(*axes))))
    elif version == "layout":
        where = dict(_layout=instance("torch.distributed._mesh_layout", "_MeshLayout", members(
            shape=numbers(mesh) if len(mesh) > 1 else number(mesh[0]), stride=numbers(mesh))))
    else:
        where = dict(mesh=tensor(mesh, [math.prod(mesh[at + 1:]) for at in range(len(mesh))], key="mesh", kind="IntStorage",
                                 count=math.prod(mesh)))
    return instance("torch.distributed.device_mesh", "DeviceMesh", members(
        device_type=text("cpu"), **where, _coordinate_on_dim=b"N" if place is None else listed(map(number, place))))


def dtensor(key, array, shape, mesh, place, placements, version="axes", order=None):
    """The pickle of a DTensor whose local tensor is storage `key`; `placements` are dimensions, None or pickles; `order` are
    (dimension of the tensor, dimensions of the mesh), as torch 2.10 says it."""
    _, storage, name = TYPES[str(array.dtype)]
    strides = [math.prod(array.shape[at + 1:]) for at in range(array.ndim)]
    placed = [each if isinstance(each, bytes) else placement("Replicate") if each is None else placement("Shard", dim=number(each))
              for each in placements]
    spec = instance("torch.distributed.tensor._dtensor_spec", "DTensorSpec", members(
        mesh=device_mesh(mesh, place, version), placements=tup(*placed),
        tensor_meta=glob("torch.distributed.tensor._dtensor_spec", "TensorMeta") +
        tup(sizes(shape), numbers(strides), glob("torch", name)) + b"\x81", **({} if order is None else dict(shard_order=tup(*(
            glob("torch.distributed.tensor._dtensor_spec", "ShardOrderEntry") + tup(number(dim), numbers(cuts)) + b"\x81"
            for dim, cuts in order))))))
    return call("torch._tensor", "_rebuild_from_type_v2", glob("torch._utils", "_rebuild_wrapper_subclass"),
                glob("torch.distributed.tensor", "DTensor"), tup(glob("torch", name)),
                tup(b"N", members(_local_tensor=tensor(array.shape, strides, key=key, kind=storage, count=array.size), _spec=spec)))


def sharded_tensor(shape, offsets=None, array=None, key="0"):
    """The pickle of a ShardedTensor of float32: of a rank that has a shard, or of one that has none."""
    module = "torch.distributed._shard.sharded_tensor"
    shards = [] if array is None else [instance(f"{module}.shard", "Shard", members(
        tensor=tensor(array.shape, [math.prod(array.shape[at + 1:]) for at in range(array.ndim)], key=key, count=array.size),
        metadata=instance("torch.distributed._shard.metadata", "ShardMetadata", members(
            shard_offsets=listed(map(number, offsets)), shard_sizes=listed(map(number, array.shape))))))]
    metadata = instance(f"{module}.metadata", "ShardedTensorMetadata", members(
        size=sizes(shape), tensor_properties=instance(f"{module}.metadata", "TensorProperties", tup(glob("torch", "float32")))))
    return call("torch._tensor", "_rebuild_from_type_v2", glob("torch._utils", "_rebuild_wrapper_subclass"),
                glob(f"{module}.api", "ShardedTensor"), tup(glob("torch", "float32")), tup(listed(shards), metadata, b"N", b"N"))


def torch_file(tensors, more=None):
    """A file of torch.save: `tensors` are {name: (dtensor's arguments after the key)}, `more` are {name: pickle}."""
    bodies, storages = dict(more or {}), {"mesh": b"\0" * 4096}
    for at, (name, arguments) in enumerate(tensors.items()):
        storages[str(at)] = arguments[0].tobytes()
        bodies[name] = dtensor(str(at), *arguments)
    if not any("mesh" in arguments[5:] for arguments in tensors.values()):
        del storages["mesh"]
    return archive(dictionary(**bodies), storages)
