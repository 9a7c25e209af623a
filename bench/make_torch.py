#!/usr/bin/python3
"""Writes the tensors of a safetensors file as a PyTorch checkpoint, an uncompressed archive as torch.save makes them.

  make_torch.py IN.safetensors OUT.pt                 each tensor a storage of its own
  make_torch.py IN.safetensors OUT.pt --transposed    matrices lie in their storages column by column

Needs no torch. Transposed storages are those of other matrices: the values are the same, in another order.
"""
import argparse
import json
import pathlib
import struct
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/lib"))

import pickle_assembler as pickles

STORAGES = {"BF16": ("BFloat16", 2), "F32": ("Float", 4), "F16": ("Half", 2), "U8": ("Byte", 1)}


def strides(shape, transposed):
    out, stride = [0] * len(shape), 1
    order = range(len(shape)) if transposed else reversed(range(len(shape)))
    for at in order:
        out[at] = stride
        stride *= shape[at]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--transposed", action="store_true")
    options = parser.parse_args()
    with open(options.source, "rb") as source:
        header = json.loads(source.read(struct.unpack("<Q", source.read(8))[0]))
        start = source.tell()
        header.pop("__metadata__", None)
        members = {}
        for key, (name, entry) in enumerate(header.items()):
            kind, width = STORAGES[entry["dtype"]]
            begin, end = entry["data_offsets"]
            members[name] = pickles.tensor(entry["shape"], strides(entry["shape"], options.transposed), key=str(key),
                                           kind=kind + "Storage", count=(end - begin) // width)
        with zipfile.ZipFile(options.out, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("archive/data.pkl", pickles.pickled(pickles.dictionary(**members)))
            for key, entry in enumerate(header.values()):
                begin, end = entry["data_offsets"]
                source.seek(start + begin)
                with archive.open(f"archive/data/{key}", "w", force_zip64=True) as storage:
                    for at in range(begin, end, 1 << 24):
                        storage.write(source.read(min(1 << 24, end - at)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
