"""Distributed checkpoints through the program: tensors put together from chunks of rows, of columns and of both."""
import hashlib
import json
import shutil
import struct
import unittest

from pickle_assembler import archive, call, glob, number, numbers, pickled, tensor, text, tup
from support import DATA, INVALID, UNSUPPORTED, EndToEnd, read_zt

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
            shift=0):
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
            chunk = archive(tensor(box, strides, count=count), {"0": values})
            before = self.files.get(file, b"")
            self.files[file] = before + chunk
            info = dict(relative_path=text(path or file), offset=number(len(before) + shift), length=number(len(chunk)))
            if descriptors is not None:
                info["transform_descriptors"] = descriptors
            self.places.append(
                instance(METADATA, "MetadataIndex", members(fqn=text(name), offset=sizes(offsets), index=b"N")) +
                instance("torch.distributed.checkpoint.filesystem", "_StorageInfo", members(**info)))
        chunks = [instance(METADATA, "ChunkStorageMetadata", members(offsets=sizes(offsets), sizes=sizes(box)))
                  for offsets, box in boxes]
        properties = instance(METADATA, "TensorProperties", tup(glob("torch", element), b"N", b"\x89", b"N", b"\x89"))
        self.tensors.append(text(name) + instance(METADATA, "TensorStorageMetadata", members(
            properties=properties, size=sizes(shape), chunks=listed(chunks))))

    @staticmethod
    def cut(data, shape, offsets, box):
        if not shape:
            return data
        inner = 4
        for size in shape[1:]:
            inner *= size
        return b"".join(
            Checkpoint.cut(data[(offsets[0] + row) * inner:(offsets[0] + row + 1) * inner], shape[1:], offsets[1:], box[1:])
            for row in range(box[0]))

    def write(self):
        for name, data in self.files.items():
            (self.folder / name).write_bytes(data)
        (self.folder / ".metadata").write_bytes(pickled(instance(METADATA, "Metadata", members(
            state_dict_metadata=b"}(" + b"".join(self.tensors) + b"u",
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


class Dcp(EndToEnd):

    def converted(self, folder):
        self.succeed("convert", "-f", folder, "-o", self.path("out.zt"))
        return read_zt(self.path("out.zt"))["objects"]

    def test_the_fixture(self):
        expected = json.loads((DATA / "dcp/expected.json").read_text())
        objects = self.converted(DATA / "dcp")
        self.assertEqual(sorted(objects), sorted(expected))
        for name, (element, shape, sha256) in expected.items():
            got = objects[name]["components"]["data"]
            self.assertEqual([got["dtype"], list(objects[name]["shape"])], [element, shape])
            self.assertEqual(hashlib.sha256(got["bytes"]).hexdigest(), sha256)

    def test_rows_columns_and_boxes(self):
        checkpoint = Checkpoint(self.path("dcp"))
        for name, shape, cuts in [
                ("rows", (7, 9), [(0, 3, 7), (0, 9)]), ("columns", (7, 9), [(0, 7), (0, 2, 6, 9)]),
                ("boxes", (7, 9), [(0, 3, 7), (0, 2, 6, 9)]), ("deep", (4, 5, 6), [(0, 1, 4), (0, 2, 5), (0, 6)]),
                ("inner", (4, 5, 6), [(0, 4), (0, 3, 5), (0, 1, 6)]), ("line", (10,), [(0, 4, 5, 10)]),
                ("large", (700, 600), [(0, 350, 700), (0, 100, 600)]), ("wide", (3, 200000), [(0, 3), (0, 7, 200000)])]:
            count = 1
            for size in shape:
                count *= size
            checkpoint.add(name, shape, grid(cuts), floats(count), file=f"__{name}.distcp")
        checkpoint.add("scalar", (), [((), ())], floats(1))
        checkpoint.add("empty", (0, 3), [], b"")
        objects = self.converted(checkpoint.write())
        self.assertEqual(len(objects), 10)
        for name, entry in objects.items():
            data = entry["components"]["data"]["bytes"]
            self.assertEqual(data, floats(len(data) // 4), name)

    def refuse(self, status, says, boxes=(((0, 0), (2, 3)),), shape=(2, 3), change=None, **options):
        shutil.rmtree(self.path("bad"), ignore_errors=True)
        checkpoint = Checkpoint(self.path("bad"))
        checkpoint.add("w", shape, list(boxes), floats(10000), **options)
        folder = checkpoint.write()
        if change:
            change(folder)
        self.fail_with(status, "convert", folder, "-o", self.path("x.zt"), says=says)

    def test_hostile_checkpoints(self):
        self.put("outside.distcp", b"x")
        self.refuse(INVALID, "of 6 elements", boxes=[((0, 0), (1, 3))])
        self.refuse(INVALID, "overlap", boxes=[((0, 0), (2, 3)), ((0, 1), (1, 1))])
        self.refuse(INVALID, "overlap", boxes=[((0, 0), (1, 2)), ((0, 1), (1, 2)), ((1, 0), (1, 2))])
        self.refuse(INVALID, "outside shape", boxes=[((0, 0), (2, 4))])
        self.refuse(INVALID, "outside shape", boxes=[((1, 0), (2, 3))])
        self.refuse(INVALID, "another rank", boxes=[((0,), (2,))])
        self.refuse(INVALID, "was expected", element="float64")
        self.refuse(UNSUPPORTED, "not supported", element="qint8")
        self.refuse(INVALID, "only files of the folder", path="../outside.distcp")
        self.refuse(INVALID, "only files of the folder", path=str(self.path("outside.distcp")))
        self.refuse(6, "cannot open", path="missing.distcp")
        self.refuse(INVALID, "truncated", shift=1 << 40)
        self.refuse(INVALID, "zip", shift=-0 + 8, change=lambda folder: (folder / "__0_0.distcp").write_bytes(
            (folder / "__0_0.distcp").read_bytes() + bytes(8)))
        self.refuse(UNSUPPORTED, "transformed", descriptors=listed([number(1), number(2)]))
        self.refuse(INVALID, "link", change=lambda folder: (
            (folder / "__0_0.distcp").rename(self.path("moved")),
            (folder / "__0_0.distcp").symlink_to(self.path("moved"))))
        self.refuse(UNSUPPORTED, "no metadata", change=lambda folder: (folder / ".metadata").write_bytes(pickled(b"}")))
        self.refuse(INVALID, "pickle", change=lambda folder: (folder / ".metadata").write_bytes(b"\x80\x02}"))

    def test_chunks_do_not_share_their_bytes(self):
        """Each chunk's archive is read: one of many entries that stands for many chunks would take for ever."""
        checkpoint = Checkpoint(self.path("shared"))
        for i in range(10):
            before = len(checkpoint.files.get("__0_0.distcp", b""))
            checkpoint.add(f"w{i}", (2, 3), [((0, 0), (2, 3))], floats(6), shift=-before)
        checkpoint.files["__0_0.distcp"] = checkpoint.files["__0_0.distcp"][:before // 9]
        self.fail_with(INVALID, "convert", checkpoint.write(), "-o", self.path("x.zt"), says="chunks share the bytes")


if __name__ == "__main__":
    unittest.main()
