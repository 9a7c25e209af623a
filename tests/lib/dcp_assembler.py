"""Assembles distributed checkpoints (torch.distributed.checkpoint): a .metadata, and files of one archive for each chunk."""
import math
import struct
import zipfile

import numpy

from pickle_assembler import archive, call, glob, number, numbers, pickled, tensor, text, tup

METADATA = "torch.distributed.checkpoint.metadata"


def instance(module, name, state):
    return glob(module, name) + b")\x81" + state + b"b"


def members(**fields):
    return b"}(" + b"".join(text(key) + value for key, value in fields.items()) + b"u"


def sizes(values):
    return call("torch", "Size", numbers(values))


def listed(items):
    return b"](" + b"".join(items) + b"e"


class Checkpoint:
    """Writes a checkpoint of float32 tensors, each cut into boxes given as (offsets, sizes)."""

    def __init__(self, folder):
        self.folder = folder
        self.tensors, self.places, self.files = [], [], {}
        folder.mkdir()

    def add(self, name, shape, boxes, data, file="__0_0.distcp", element="float32", path=None, descriptors=None,
            shift=0, method=zipfile.ZIP_STORED, describe=True, transposed=False, body=None):
        for offsets, box in boxes:
            count = 1
            for size in box:
                count *= size
            values = self.cut(data, shape, offsets, box) if len(box) == len(shape) else b""
            values = values.ljust(4 * count, b"\0")
            strides, stride = [], 1
            for size in reversed(box):
                strides.insert(0, stride)
                stride *= size
            if transposed:  # the archive has the first dimension adjacent
                values = numpy.frombuffer(values, "<u4").reshape(box).tobytes("F")
                strides = [math.prod(box[:at]) for at in range(len(box))]
            chunk = archive(body or tensor(box, strides, count=count), {"0": values}, method=method)
            before = self.files.get(file, b"")
            self.files[file] = before + chunk
            info = dict(relative_path=text(path or file), offset=number(len(before) + shift), length=number(len(chunk)))
            if descriptors is not None:
                info["transform_descriptors"] = descriptors
            self.places.append(
                instance(METADATA, "MetadataIndex", members(fqn=text(name), offset=sizes(offsets), index=b"N")) +
                instance("torch.distributed.checkpoint.filesystem", "_StorageInfo", members(**info)))
        if describe:
            self.describe(name, shape, boxes, element)

    def value(self, name, body, file="__0_0.distcp", storages=None, **info):
        """A member of the tree that is not one tensor: an archive of its own."""
        data, before = archive(body, storages or {}), self.files.get(file, b"")
        self.files[file] = before + data
        self.places.append(
            instance(METADATA, "MetadataIndex", members(fqn=text(name), offset=b"N", index=b"N")) +
            instance("torch.distributed.checkpoint.filesystem", "_StorageInfo", members(
                relative_path=text(file), offset=number(len(before)), length=number(len(data)), **info)))
        self.tensors.append(text(name) + instance(METADATA, "BytesStorageMetadata", b"}"))

    def describe(self, name, shape, boxes, element="float32"):
        """What the metadata says of a tensor whose chunks have places."""
        chunks = [instance(METADATA, "ChunkStorageMetadata", members(offsets=sizes(offsets), sizes=sizes(box)))
                  for offsets, box in boxes]
        properties = instance(METADATA, "TensorProperties", tup(glob("torch", element), b"N", b"\x89", b"N", b"\x89"))
        self.tensors.append(text(name) + instance(METADATA, "TensorStorageMetadata", members(
            properties=properties, size=sizes(shape), chunks=listed(chunks))))

    @staticmethod
    def cut(data, shape, offsets, box):
        if tuple(box) == tuple(shape):
            return data[:4 * math.prod(shape)]
        inner = 4
        for size in shape[1:]:
            inner *= size
        return b"".join(
            Checkpoint.cut(data[(offsets[0] + row) * inner:(offsets[0] + row + 1) * inner], shape[1:], offsets[1:], box[1:])
            for row in range(box[0]))

    def write(self, more=b""):
        """`more`: members of state_dict_metadata that are no tensors of this class."""
        for name, data in self.files.items():
            (self.folder / name).write_bytes(data)
        (self.folder / ".metadata").write_bytes(pickled(instance(METADATA, "Metadata", members(
            state_dict_metadata=b"}(" + b"".join(self.tensors) + more + b"u",
            storage_data=b"}(" + b"".join(self.places) + b"u"))))
        return self.folder


def floats(count):
    return struct.pack(f"<{count}f", *range(count))


def grid(cuts):
    """Boxes of a tensor whose dimensions are cut at these places."""
    boxes = [((), ())]
    for places in cuts:
        boxes = [(offsets + (low,), box + (high - low,)) for offsets, box in boxes
                 for low, high in zip(places, places[1:])]
    return boxes
