"""Folders of "disk delta" by their description alone (docs/DELTA.md, "The form that others share"): a writer, and a reader that applies
one to a folder of safetensors in place. Shares nothing with ztstream."""
import json
import pathlib
import zlib

import numpy
import xxhash
import zstandard

INDEX = "model.safetensors.index.json"


def checksum(kind, data):
    return f"{zlib.adler32(data):08x}" if kind == "adler32" else xxhash.xxh3_128(data).hexdigest()


def encoded(encoding, old, new):
    """What an entry decodes to: arrays of bytes to bytes."""
    if encoding == "xor":
        return (old ^ new).tobytes()
    places = numpy.flatnonzero(old != new)
    return b"".join(part.astype("<u4").tobytes() for part in (numpy.array([len(places)]), places)) + new[places].tobytes()


def shard(entries, checksums):
    """A file of safetensors."""
    header, at = {"__metadata__": checksums}, 0
    for name, data in entries.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(entries.values())


def put(folder, shards, metadata):
    """Writes a folder of shards, each a pair of entries and checksums."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    weights = {}
    for number, (entries, checksums) in enumerate(shards):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        (folder / name).write_bytes(shard(entries, checksums))
        weights.update(dict.fromkeys(entries, name))
    (folder / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": weights}))


def metadata(version, base, encoding="xor", compression="zstd", sums="xxh3-128"):
    return {"version": version, "base_version": base, "delta_encoding": encoding, "compression_format": compression,
            "checksum_format": sums}


def write(folder, old, new, shards=1, **form):
    """The folder by which `old` becomes `new`: arrays of bytes by name, of the same names and sizes."""
    form = metadata(form.pop("version", "000001"), form.pop("base", "000000"), **form)
    files = [({}, {}) for _ in range(shards)]
    changed = [name for name in new if not numpy.array_equal(old[name], new[name])]
    for number, name in enumerate(changed):
        data = encoded(form["delta_encoding"], old[name], new[name])
        if form["compression_format"] == "zstd":
            data = zstandard.ZstdCompressor(level=1).compress(data)
        entries, checksums = files[number % shards]
        entries[name] = data
        checksums[name] = checksum(form["checksum_format"], new[name].tobytes())
    put(folder, [file for file in files if file[0]], form)


def header_of(blob):
    size = int.from_bytes(blob[:8], "little")
    return json.loads(blob[8:8 + size]), 8 + size


def apply(folder, checkpoint):
    """Changes the .safetensors files of `checkpoint` in place; returns the index's metadata."""
    folder = pathlib.Path(folder)
    index = json.loads((folder / INDEX).read_text())
    form = index["metadata"]
    places = {}
    for path in pathlib.Path(checkpoint).glob("*.safetensors"):
        header, begin = header_of(path.read_bytes())
        places.update({name: (path, begin + each["data_offsets"][0], begin + each["data_offsets"][1])
                       for name, each in header.items() if name != "__metadata__"})
    for file in sorted(set(index["weight_map"].values())):
        blob = (folder / file).read_bytes()
        header, begin = header_of(blob)
        sums = header.pop("__metadata__")
        assert set(header) == {name for name, where in index["weight_map"].items() if where == file}
        at = 0
        for name, each in header.items():
            first, last = each["data_offsets"]
            assert (each["dtype"], each["shape"], first) == ("U8", [last - first], at)
            at = last
            path, low, high = places[name]
            whole = bytearray(path.read_bytes())
            tensor = numpy.frombuffer(whole, "u1")[low:high]
            data = blob[begin + first:begin + last]
            if form["compression_format"] == "zstd":  # one frame, which says its size
                size = zstandard.frame_content_size(data)
                data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
                assert len(data) == size
            data = numpy.frombuffer(data, "u1")
            if form["delta_encoding"] == "xor":
                tensor ^= data
            else:
                count = int(data[:4].view("<u4")[0])
                positions = data[4:4 + 4 * count].view("<u4")
                assert len(data) == 4 + 5 * count
                tensor[positions] = data[4 + 4 * count:]
            assert checksum(form["checksum_format"], tensor.tobytes()) == sums[name], name
            path.write_bytes(whole)
        assert begin + at == len(blob)
    return form
