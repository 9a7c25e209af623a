"""Nothing multiplies: twice as much of anything that can be counted costs twice as much, and all of it stays below a multiple
of the input, for every command: processor time, memory, and the bytes that are printed.

Each case makes a file with n and with 2n of one thing. A command fails that takes more than three times the processor time
(the program's own, so a busy machine does not matter), memory or output, and more than a floor that noise does not reach: what
is quadratic shows at these sizes. It fails, too, where memory or output is more than docs/SECURITY.md states for the format,
and where the exit status is not the one of the case: 0, for the inputs are sound. A failure is measured again before it counts.

Each case names the commands that met it once, and some of those that read the format, in turn; ZT_COST=all tries all of these,
with one thread and with eight (half an hour). ZT_COST_TABLE=1 prints all that is measured; ZT_COST_ONLY=NAME tries the cases whose name holds NAME.
"""
import concurrent.futures
import functools
import io
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import typing
import unittest
import zipfile

import h5py
import numpy
import zstandard

import dcp_assembler as dcp
import make_safetensors
import make_zt
import make_zt2
import onnx_assembler as onnx
import pickle_assembler as pickles
from support import HERE, PROGRAM

MOST = 3
TIME_FLOOR = 0.7       # seconds: less is never a failure
MEMORY_FLOOR = 64      # MiB
OUTPUT_FLOOR = 65536   # bytes

# What a command with -T 1 and with -T 8 may take whatever the input: buffers, in MiB. And what it may print, in bytes.
BASE = {1: 96, 8: 224}
OUTPUT_BASE = 2 << 20

# A small program of its own starts those that are measured: the memory of its parent counts as a child's at first. Of each it
# prints the exit status, the seconds of processor time and the MiB.
STARTER = """
import json, os, subprocess, sys
for line in sys.stdin:
    words, folder, stdin, *texts = json.loads(line)
    with open(stdin, "rb") as source, open(texts[0], "wb") as out, open(texts[1], "wb") as err:
        child = subprocess.Popen(words, cwd=folder, stdin=source, stdout=out, stderr=err)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    print(child.returncode, used.ru_utime + float(sys.argv[1]) * used.ru_stime, used.ru_maxrss / 1024, flush=True)
"""
OF_THREAD, STARTED = threading.local(), []

THOROUGH = os.environ.get("ZT_COST") == "all"

# In memory where there is room. Elsewhere the kernel's time is not counted: ext4 takes seconds to make files where many were
# removed just before.
HOME = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 4 << 30 else None


def starter():
    """The starter of this thread."""
    if not hasattr(OF_THREAD, "starter"):
        words = [sys.executable, "-SEc", STARTER, "1" if HOME else "0"]
        OF_THREAD.starter = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        STARTED.append(OF_THREAD.starter)
    return OF_THREAD.starter


# ---- names that collide --------------------------------------------------------------------------------------------

# libstdc++'s hash of a text is MurmurHash64A with a seed that everybody knows, so that names can be chosen which all have
# the same one: at each of some places of 16 bytes one of two texts stands after which the hash is the same.
ALL, MULTIPLIER, SEED = (1 << 64) - 1, 0xc6a4a7935bd1e995, 0xc70f6907
INVERSE = pow(MULTIPLIER, -1, 1 << 64)
LETTERS = bytes(sorted({*range(33, 127)} - {*b'"\\'}))


def mixed(word, factor=MULTIPLIER):
    word = word * factor & ALL
    return (word ^ word >> 47) * factor & ALL


def add_word(state, word):
    return (state ^ mixed(word)) * MULTIPLIER & ALL


def colliding(n):
    """n names, each of the same hash."""
    dice, places = random.Random(1), (n - 1).bit_length()
    word = lambda: int.from_bytes(bytes(dice.choices(LETTERS, k=8)), "little")
    state, pairs = SEED ^ 16 * places * MULTIPLIER & ALL, []
    for _ in range(places):
        first, other = word(), word()
        one, two = add_word(state, first), add_word(state, other)
        last = None
        while last is None or not {*last.to_bytes(8, "little")} <= {*LETTERS}:
            second = word()
            last = mixed(mixed(second) ^ one ^ two, INVERSE)
        pairs.append([struct.pack("<QQ", first, second).decode(), struct.pack("<QQ", other, last).decode()])
        state = add_word(one, second)
    return ["".join(pair[i >> place & 1] for place, pair in enumerate(pairs)) for i in range(n)]


# ---- files of n things -------------------------------------------------------------------------------------------


def colliding_keys(path, n):
    make_safetensors.write(path / "a.safetensors", {"w": ("U8", [1], b"x")}, dict.fromkeys(colliding(n), ""))
    return "a.safetensors"


def colliding_tensors(path, n):
    make_safetensors.write(path / "a.safetensors", {name: ("U8", [1], b"x") for name in colliding(n)})
    return "a.safetensors"


def colliding_objects(path, n):
    return zt(path, {name: dense() for name in colliding(n)})


def logical_shape(path, n):
    return zt(path, {"x": dense(attributes={"logical_shape": [1] * n})})


def cells_of_one_index(path, n):
    """Twice the tensors over indices that are twice as many, each of another shape."""
    file, count = make_zt2.File(), 64 * n
    values = file.part(bytes(count))
    coords = file.part(bytes(8 * count) + numpy.arange(count, dtype="<u8").tobytes(), "u64")
    for i in range(n):
        file.add(f"c{i:06}", [2 + i, 1 << 32], "zt.sparse_coo/1", values=values, coords=coords)
    (path / "a.zt").write_bytes(file.finish())
    return "a.zt"

def metadata(path, n):
    make_safetensors.write(path / "a.safetensors", {"w": ("U8", [1], b"x")}, {f"key {i:07}": f"{i}" for i in range(n)})
    return "a.safetensors"


def tensors(path, n):
    make_safetensors.write(path / "a.safetensors", {f"t{i:07}": ("U8", [1], b"x") for i in range(n)})
    return "a.safetensors"


def renamed_tensors(path, n):
    """None of which has its counterpart."""
    return tensors(path, n)


def dotted(path, n):
    """Names of many parts, of which a tree makes nodes."""
    make_safetensors.write(path / "a.safetensors", {f"{i:x}" + "." * 31: ("U8", [0], b"") for i in range(n)})
    return "a.safetensors"


def modules_left_alone(path, n):
    """Tensors, and as many entries of modules that are not quantized: names, and globs that share their beginning."""
    (path / "m").mkdir()
    tensors = {f"model.layers.{i}.mlp.gate.weight": ("F8_E4M3", [1, 1], b"x") for i in range(n)}
    tensors |= {"a.weight": ("F8_E4M3", [1, 1], b"x"), "a.weight_scale": ("F32", [1], bytes(4))}
    make_safetensors.write(path / "m/model.safetensors", tensors)
    ignore = [f"model.layers.{i}.mlp.gate" for i in range(n)] + [f"model.layers.{i}.other*" for i in range(n)]
    (path / "m/config.json").write_text(json.dumps({"quantization_config": {"quant_method": "compressed-tensors", "ignore": ignore}}))
    return "m"


def groups_of_a_long_row(path, n):
    """Eight rows of GPTQ, of which little memory holds small parts, with a scale for 32 columns by g_idx."""
    (path / "m").mkdir()
    columns, groups = 32 * n, n
    make_safetensors.write(path / "m/model.safetensors", {
        "a.qweight": ("I32", [columns // 8, 8], bytes(4 * columns)), "a.qzeros": ("I32", [groups, 1], bytes(4 * groups)),
        "a.scales": ("F16", [groups, 8], bytes(16 * groups)),
        "a.g_idx": ("I32", [columns], numpy.repeat(numpy.arange(groups, dtype="<i4"), 32).tobytes())})
    (path / "m/config.json").write_text(json.dumps({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}}))
    return "m"


def shards(path, n):
    (path / "m").mkdir()
    for i in range(n):
        make_safetensors.write(path / "m" / f"model-{i + 1:05}-of-{n:05}.safetensors", {f"t{i}": ("U8", [1], b"x")})
    (path / "m/model.safetensors.index.json").write_text(json.dumps(
        {"weight_map": {f"t{i}": f"model-{i + 1:05}-of-{n:05}.safetensors" for i in range(n)}}))
    return "m"


def zt(path, objects, **root):
    (path / "a.zt").write_bytes(make_zt.encode_1(objects, **root))
    return "a.zt"


def dense(data=b"x", **fields):
    return {"shape": [1], "components": {"data": {"dtype": "u8", "data": data}}, **fields}


def objects(path, n):
    return zt(path, {f"tensor {i:07}": dense() for i in range(n)})


def objects_of_2_0(path, n):
    file = make_zt2.File()
    blobs = [file.part(bytes([i])) for i in range(64)]
    for i in range(n):
        file.add(f"tensor {i:07}", [1], attributes={"a": [i, {"b": i}]}, data=blobs[i % len(blobs)])
    (path / "a.zt").write_bytes(file.finish())
    return "a.zt"


def elements_in_disorder(path, n):
    """Distinct cells that do not ascend, of a shape with too many to mark each."""
    cells = numpy.arange(n, dtype="<u8")[::-1]
    file = make_zt2.File()
    file.add("c", [1 << 20, 1 << 40], "zt.sparse_coo/1", values=file.zstd(bytes(n), "u8", frame=4 << 20),
             coords=file.zstd(bytes(8 * n) + cells.tobytes(), "u64", frame=16 << 20))
    (path / "a.zt").write_bytes(file.finish())
    return "a.zt"


def components(path, n):
    return zt(path, {"x": {"shape": [1], "format": "own/1", "components": {
        f"c{i:06}": {"dtype": "u8", "data": b""} for i in range(n)}}})


def components_of_a_long_name(path, n, character="x", **fields):
    """What repeats the name, or the layout's, for each component multiplies."""
    return zt(path, {character * (32 * n): {"shape": [1], "format": "own/1" + character * n, "components": {
        f"c{i:06}": {"dtype": "u8", "data": b"", "digest": f"own{i % 8}:00"} | fields for i in range(n)}}})


def components_of_an_escaped_name(path, n):
    """JSON takes six bytes for each byte of the name."""
    return components_of_a_long_name(path, n, "\1")


def parts_that_are_not_known(path, n):
    """What is said of each names the tensor and its layout, of which JSON takes twelve bytes for each character of four."""
    file, character = make_zt2.File(), "\U0001f600"
    part = file.part(b"", digest=None)
    file.add(character * 250, [1], "own/1" + character * 200, **{f"c{i:06}": part for i in range(n)})
    (path / "a.zt").write_bytes(file.finish())
    return "a.zt"


def damaged_components_of_a_long_name(path, n):
    return components_of_a_long_name(path, n, digest="crc32c:0x12345678")


def aliases_of_a_long_name(path, n):
    """Every other tensor says whose bytes it shares."""
    return alias(path, b"abcdefgh", {"dtype": "u8"}, 8, n, first="a" * 32 * n)


def shared_components(path, n):
    """Two tensors that share the bytes of each component, one of them with attributes."""
    out = bytearray(make_zt.HEADER_1)
    parts = {f"c{i:05}": {"dtype": "bool", "offset": make_zt.place(out, b"\1"), "length": 1} for i in range(n)}
    listed = {name: {"shape": [1], "format": "own/1", "components": parts} for name in "ab"}
    listed["a"]["attributes"] = {"q": [0] * (400 * n)}
    (path / "a.zt").write_bytes(make_zt.finish_1(out, listed))
    return "a.zt"


def rows_of_one_index(path, n):
    """Twice the matrices over indices that are twice as many, each with row pointers of its own."""
    file, count = make_zt2.File(), 1000 * n
    values = file.part(bytes(count))
    indices = file.part(numpy.arange(count, dtype="<u4").tobytes(), "u32")
    for i in range(n):
        pointers = file.part(numpy.array([0, i, count], "<u4").tobytes(), "u32")
        file.add(f"c{i:06}", [2, count + i], "zt.sparse_csr/1", values=values, indices=indices, indptr=pointers)
    (path / "a.zt").write_bytes(file.finish())
    return "a.zt"


def equal_columns_of_one_index(path, n):
    """Twice the matrices over one row of twice as many equal columns, more than memory keeps: wrong, and found at once."""
    file, count = make_zt2.File(), 100000 * n
    values, indices = (file.zstd(bytes(width * count), dtype, frame=1 << 20) for width, dtype in ((1, "u8"), (8, "u64")))
    for i in range(n):
        pointers = file.part(struct.pack("<QQ", 0, count), "u64")
        file.add(f"c{i:06}", [1, 1 << 40], "zt.sparse_csr/1", values=values, indices=indices, indptr=pointers)
    (path / "a.zt").write_bytes(file.finish())
    return "a.zt"


def contents_of_one_digest(path, n):
    """Contents that differ have one xxh3: where the first bytes are those of its secret, the next eight do not matter."""
    file = make_zt2.File()
    for i in range(n):
        file.add(f"t{i:06}", [32], data=file.part(bytes.fromhex("b8fe6c3923a44bbe") + struct.pack("<Q", i) + bytes(16)))
    (path / "a.zt").write_bytes(file.finish())
    return "a.zt"


def entries_of_one_blob(path, n, layout="sparsecoo", shape=(4,) * 15):
    """Twice the entries of 0.1 over one blob that is twice as large; each has many dimensions."""
    out = bytearray(make_zt.HEADER_01)
    entry = 8 * len(shape) + 4
    blob = zstandard.ZstdCompressor(level=1, write_content_size=True).compress(bytes((n << 20) // (2 * entry) * 2 * entry))
    offset = make_zt.place(out, blob)
    (path / "a.zt").write_bytes(make_zt.finish(out, [
        {"name": f"t{i:06}", "offset": offset, "size": len(blob), "dtype": "float32", "shape": list(shape), "encoding": "zstd",
         "layout": layout} for i in range(n)], b""))
    return "a.zt"


def rows_of_one_blob(path, n):
    """The same of rows without elements, whose pointers are all of the blob."""
    return entries_of_one_blob(path, n, "sparsecsr", [(n << 20) // 40 * 40 // 8 - 1, 4])


def attributes(path, n):
    return zt(path, {"x": dense(attributes={f"k{i:07}": i for i in range(n)})}, attributes={f"r{i:07}": "x" for i in range(n)})


def attribute_numbers(path, n):
    """A byte each in the file, and what memory multiplies most."""
    return zt(path, {"x": {"shape": [1], "components": {"data": {"dtype": "f32", "data": bytes(4)}}}}, attributes={"a": [0] * n})


def attribute_lists(path, n):
    """Two bytes each in the file."""
    return zt(path, {"x": dense(attributes={"a": [[0]] * n})})


def attribute_chains(path, n):
    """Lists in lists, a byte each."""
    chain = 0
    for _ in range(50):
        chain = [chain]
    return zt(path, {"x": dense(attributes={"a": [chain] * (n // 50)})})


def attributed(path, n):
    return zt(path, {f"x{i:06}": dense(attributes={"a": [1, 2, {"b": i}]}) for i in range(n)})


def frames(path, n):
    frame = zstandard.ZstdCompressor(level=1).compress(bytes(8))
    return zt(path, {"x": {"shape": [8 * n], "components": {"data": {
        "dtype": "u8", "data": frame * n, "encoding": "zstd", "uncompressed_length": 8 * n}}}})


def frames_with_table(path, n):
    blob = make_zt2.seekable([bytes(8)] * n, checksum=False)
    return zt(path, {"x": {"shape": [8 * n], "components": {"data": {
        "dtype": "u8", "data": blob, "encoding": "zstd", "uncompressed_length": 8 * n}}}})


def alias(path, blob, fields, shape, n, first="x"):
    out = bytearray(make_zt.HEADER_1)
    part = {"offset": make_zt.place(out, blob), "length": len(blob), **fields}
    listed = {f"x{i:06}" if i else first: {"format": "dense", "shape": [shape], "components": {"data": part}} for i in range(n)}
    (path / "a.zt").write_bytes(make_zt.finish_1(out, listed))
    return "a.zt"


def aliases(path, n):
    return alias(path, b"abcdefgh", {"dtype": "u8", "digest": make_zt.digest("sha256", b"abcdefgh")}, 8, n)


def aliases_of_frames(path, n):
    """Aliases of a blob: the names double, its table of frames does not, so none of it may be kept for each name."""
    count = 20000
    return alias(path, make_zt2.seekable([bytes(1)] * count, checksum=False), {"dtype": "u8", "encoding": "zstd", "uncompressed_length": count}, count, n)


def growing_aliases(path, n):
    """Twice the names of a blob that is twice as large: who reads it for each name takes four times as long."""
    blob = bytes(range(256)) * (n // 2)
    return alias(path, blob, {"dtype": "u8", "digest": make_zt.digest("sha256", blob)}, len(blob), n)


def entries(path, n, compression=zipfile.ZIP_STORED):
    content = io.BytesIO()
    numpy.save(content, numpy.arange(2, dtype="<i4"))
    with zipfile.ZipFile(path / "a.npz", "w", compression) as archive:
        for i in range(n):
            archive.writestr(f"array {i:06}.npy", content.getvalue())
    return "a.npz"


def deflated_entries(path, n):
    return entries(path, n, zipfile.ZIP_DEFLATED)


def columns(path, n):
    """A csc matrix, which is turned into rows."""
    cells = numpy.sort(numpy.random.default_rng(1).choice(n * 64, n, replace=False))
    numpy.savez(path / "a.npz", format=numpy.array(b"csc"), shape=numpy.array([64, n]), data=numpy.ones(n, "<f4"),
                indices=(cells % 64).astype("<i4"), indptr=numpy.searchsorted(cells, numpy.arange(n + 1) * 64).astype("<i4"))
    return "a.npz"


def arrays(path, n):
    (path / "m").mkdir()
    content = io.BytesIO()
    numpy.save(content, numpy.arange(2, dtype="<i4"))
    for i in range(n):
        (path / "m" / f"a{i}.npy").write_bytes(content.getvalue())
    return "m"


def text(content):
    return struct.pack("<Q", len(content)) + content


def gguf(path, pairs, count):
    infos = b"".join(text(b"t%06d" % i) + struct.pack("<IQIQ", 1, 4, 0, 32 * i) for i in range(count))
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(pairs)) + b"".join(pairs) + infos
    (path / "a.gguf").write_bytes(head + bytes(-len(head) % 32) + bytes(32 * count))
    return "a.gguf"


def gguf_tensors(path, n):
    return gguf(path, [], n)


def gguf_keys(path, n):
    return gguf(path, [text(b"key.%06d" % i) + struct.pack("<II", 4, i) for i in range(n)], 1)


def gguf_strings(path, n):
    return gguf(path, [text(b"tokens") + struct.pack("<IIQ", 9, 8, n) + b"".join(text(b"%07d" % i) for i in range(n))], 1)


def gguf_large_header(path, n):
    return gguf(path, [text(b"pad") + struct.pack("<I", 8) + text(b"x" * (64 * n))], n)


def torch_tensors(path, n):
    body = pickles.dictionary(**{f"t{i:06}": pickles.tensor((1,), offset=i, count=n) for i in range(n)})
    (path / "a.pt").write_bytes(pickles.archive(body, {"0": bytes(4 * n)}))
    return "a.pt"


def torch_storages(path, n):
    body = pickles.dictionary(**{f"t{i:06}": pickles.tensor(key=str(i)) for i in range(n)})
    (path / "a.pt").write_bytes(pickles.archive(body, {str(i): bytes(16) for i in range(n)}))
    return "a.pt"


def torch_values(path, n):
    values = {f"v{i:06}": pickles.number(i) for i in range(n)}
    (path / "a.pt").write_bytes(pickles.archive(pickles.dictionary(w=pickles.tensor(), **values)))
    return "a.pt"


def torch_nothings(path, n):
    values = b"](" + b"N" * n + b"e"
    (path / "a.pt").write_bytes(pickles.archive(pickles.dictionary(w=pickles.tensor(), v=values)))
    return "a.pt"


def torch_lists(path, n):
    values = b"](" + b"]Na" * n + b"e"
    (path / "a.pt").write_bytes(pickles.archive(pickles.dictionary(w=pickles.tensor(), v=values)))
    return "a.pt"


def torch_names_of_a_long_key(path, n):
    """A key of which JSON takes six bytes for each is part of all names, as long as it may be."""
    members = pickles.dictionary(**{f"{i}": pickles.tensor((1,)) for i in range(n)})
    key = pickles.text(b"\1" * (2 * len(members) // n))
    (path / "a.pt").write_bytes(pickles.archive(b"}" + key + members + b"s"))
    return "a.pt"


def torch_values_of_a_long_text(path, n):
    """Likewise a text that is the value of all keys."""
    one = pickles.text(b"\1" * 30) + b"r" + struct.pack("<I", 9)
    values = {f"v{i:06}": b"j" + struct.pack("<I", 9) if i else one for i in range(n)}
    (path / "a.pt").write_bytes(pickles.archive(pickles.dictionary(w=pickles.tensor(), **values)))
    return "a.pt"


def torch_columns(path, n, count=1):
    """Twice the csc tensors, each of one entry in the first of twice as many columns, whose pointers they share."""
    columns = 50 * n
    pointers = numpy.ones(columns + 1, "<i4")
    pointers[0], pointers[-1] = 0, count
    def part(key, size, first=0, total=None, kind="IntStorage"):
        return pickles.tensor((size,), (1,), first, key=key, kind=kind, count=total or count * n)
    body = pickles.dictionary(**{f"t{i:06}": pickles.call(
        "torch._utils", "_rebuild_sparse_tensor", pickles.text("torch.sparse_csc"), pickles.tup(
            part("0", columns + 1, total=columns + 1), part("1", count, count * i), part("2", count, count * i, kind="FloatStorage"),
            pickles.numbers((2, columns)))) for i in range(n)})
    (path / "a.pt").write_bytes(pickles.archive(body, {
        "0": pointers.tobytes(), "1": (numpy.arange(count * n, dtype="<i4") % count).tobytes(), "2": bytes(4 * count * n)}))
    return "a.pt"


def torch_columns_far_apart(path, n):
    """Each with an entry in the first and one in the last column."""
    return torch_columns(path, n, 2)


def torch_columns_of_a_wrong_end(path, n):
    """Twice the csc tensors without entries, which the last of the pointers that they share contradicts."""
    return torch_columns(path, n, 0)


def distributed_chunks(path, n):
    checkpoint = dcp.Checkpoint(path / "m")
    checkpoint.add("w", (n,), [((i,), (1,)) for i in range(n)], numpy.arange(n, dtype="<f4").tobytes())
    checkpoint.write()
    return "m"


def torch_tensors_of_one_dict(path, n):
    """Twice the tensors that share metadata of twice as many members."""
    share = pickles.dictionary(**{f"k{i:06}": pickles.number(i) for i in range(n)}) + b"r" + struct.pack("<I", 9)
    first = pickles.tensor((1,), more=(share,))
    others = {f"t{i:06}": pickles.tensor((1,), more=(b"j" + struct.pack("<I", 9),)) for i in range(n)}
    (path / "a.pt").write_bytes(pickles.archive(pickles.dictionary(a=first, **others)))
    return "a.pt"


def onnx_tensors(path, n):
    (path / "a.onnx").write_bytes(onnx.model(*(onnx.tensor(f"t{i:06}", 1, (1,), onnx.field(9, bytes(4))) for i in range(n))))
    return "a.onnx"


def onnx_numbers(path, n):
    """Numbers that are not packed."""
    (path / "a.onnx").write_bytes(onnx.model(onnx.tensor("w", 1, (n,), b"\x25\0\0\0\0" * n)))
    return "a.onnx"


def onnx_external_entries(path, n):
    """Entries that say nothing of where the bytes are."""
    (path / "d.bin").write_bytes(bytes(4))
    more = onnx.external(location="d.bin") + b"\x6a\0" * 60
    (path / "a.onnx").write_bytes(onnx.model(*(onnx.tensor(f"t{i:06}", 1, (1,), more) for i in range(n))))
    return "a.onnx"


def onnx_packed_numbers(path, n):
    (path / "a.onnx").write_bytes(onnx.model(onnx.tensor("w", 7, (n,), onnx.field(7, bytes(n)))))
    return "a.onnx"


def onnx_escaped_functions(path, n):
    """Names of functions, which are part of the names of their tensors, of characters that JSON writes as six."""
    values = [onnx.field(7, onnx.constant(f"c{i}", onnx.tensor("", 1, (1,), onnx.field(9, bytes(4))))) for i in range(11)]
    functions = (onnx.field(25, onnx.field(1, "\x01" * 240 + f"{i:06}") + onnx.field(10, "d") + b"".join(values)) for i in range(n))
    (path / "a.onnx").write_bytes(onnx.whole(onnx.graph(), b"".join(functions)))
    return "a.onnx"


def onnx_escaped_node(path, n):
    """As small a file as has names that long."""
    several = [onnx.field(5, onnx.attribute(f"a{i}", 6, onnx.field(7, bytes(4)))) for i in range(131000 // n)]
    node = onnx.field(2, "\x01" * n) + onnx.field(4, "LinearRegressor") + b"".join(several) + onnx.field(7, "ai.onnx.ml")
    (path / "a.onnx").write_bytes(onnx.whole(onnx.graph(node)))
    return "a.onnx"


def hdf5_escaped_groups(path, n):
    with h5py.File(path / "a.h5", "w", libver="latest") as file:
        for i in range(n):
            group = file.create_group("\x01" * 4000 + f"{i:06}")
            for k in range(4):
                group[f"{k}"] = numpy.int32(k)
    return "a.h5"


def hdf5_datasets(path, n):
    with h5py.File(path / "a.h5", "w") as file:
        for i in range(n):
            file[f"g{i % 10}/t{i:06}"] = numpy.float32(i)
    return "a.h5"


def hdf5_links(path, n):
    with h5py.File(path / "a.h5", "w") as file:
        file["w"] = numpy.arange(4)
        for i in range(n):
            file[f"t{i:06}"] = h5py.SoftLink("/w") if i % 2 else file["w"]
    return "a.h5"


def hdf5_chunks(path, n):
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset("w", data=numpy.arange(8 * n, dtype="<i4"), chunks=(8,), compression=1)
    return "a.h5"


def warnings(path, n):
    """Each digest of an algorithm of its own, which the program cannot check and says so."""
    return zt(path, {f"x{i:06}": {"shape": [1], "components": {"data": {
        "dtype": "u8", "data": b"x", "digest": f"own{i}:00"}}} for i in range(n)})


# ---- commands, and the table -------------------------------------------------------------------------------------

INSPECT, STATS, NAMES = ["inspect", "{}"], ["inspect", "--stats", "{}"], ["inspect", "--names", "{}"]
LISTED, JSON_VERIFY = ["inspect", "--json", "{}"], ["verify", "--json", "{}"]
VERIFY, LITTLE = ["verify", "{}"], ["verify", "{}", "--memory", "4MiB"]
IS_CANONICAL = ["verify", "{}", "--canonical"]
DIFF, AGAINST, ID, SHOW = ["diff", "{}", "{}"], ["verify", "a.zt", "--against", "a.zt"], ["id", "{}"], ["show", "{}", "{tensor}"]


def convert(*options, source="{}"):
    return ["convert", source, *options, "-o", "o.zt", "-f", "--no-sync"]


CONVERT, PACK, AS_2_0, CANONICAL = convert(), convert("--zstd"), convert("--spec", "2.0"), convert("--canonical")
SHARDED, PIPED, JSON = convert("--shards", "1", "--spec", "2.0"), convert(source="-"), convert("--json")
SHARDS = convert("--shard-size", "1")
PLANNED, PLAN, TREE, PAGE = convert("-n", "--json"), convert("-n"), ["inspect", "--tree", "{}"], ["inspect", "{}", "--html", "o.html", "-f"]
SORTED, WORDY = ["inspect", "--sort", "name", "-v", "{}"], ["diff", "-v", "--attributes", "all", "{}", "{}"]
ALL_DIFFER, SHOWN = ["diff", "--json", "--rename", "s/^/zz/", "{}", "{}"], ["show", "--json", "{}", "{tensor}"]
NUMBERS = convert("--dequantize", "bf16", "--memory", "1MiB")
RENAME = convert("--rename", "s/^/a/", "--include", ".", "--dtype", "f16")


def extract(to):
    return ["extract", "{}", "-o", "back." + to, "-f", "--no-sync"]


TO_EXTRACT = [*extract("npz"), "-n"]
FOLDER = ["extract", "{}", "-o", "back/", "-f", "--no-sync"]
INDEXED = ["extract", "{}", "-o", "new/", "--to", "safetensors", "--shard-size", "4KiB", "-n"]


class Some:
    """Three of the commands each time, in turn; all of them with ZT_COST=all."""

    def __init__(self, *commands):
        self.commands, self.at = commands, 0

    def __iter__(self):
        self.at += 3
        return iter(self.commands if THOROUGH else [self.commands[each % len(self.commands)] for each in range(self.at, self.at + 3)])


ZT = Some(INSPECT, STATS, VERIFY, AGAINST, DIFF, CONVERT, PACK, RENAME)
FOREIGN = Some(INSPECT, STATS, DIFF, CONVERT, RENAME)
# What else reads a format, tried where all is.
PRINTED = [LISTED, TREE, PAGE, PLANNED, PLAN, SHOW, NAMES, SORTED, WORDY]
MORE = {"zt": [*PRINTED, JSON_VERIFY, ID, AS_2_0, CANONICAL, SHARDED, FOLDER], None: [*PRINTED, AS_2_0, SHARDED, FOLDER]}

# Commands that do not take a case, sound as it is: the exit status.
REFUSED = {
    # what the tensors share would be written with each of them
    torch_tensors_of_one_dict: {5: [CONVERT, AS_2_0, SHARDED, FOLDER, SHOW]},
    # names of more than 200 bytes
    colliding_tensors: {5: [FOLDER]},
    colliding_objects: {5: [FOLDER]}, torch_names_of_a_long_key: {5: [FOLDER]},
    # several arrays; a name beyond 2.0's limit; formats of others hold no such layout
    elements_in_disorder: {5: [SHOW]}, columns: {5: [SHOW]}, torch_columns: {5: [SHOW]}, torch_columns_far_apart: {5: [SHOW]},
    components: {5: [SHOW, FOLDER]},
    # a row does not ascend; the blobs do not lie where those of a canonical file do
    equal_columns_of_one_index: {1: [VERIFY, LITTLE, JSON_VERIFY], 4: [CONVERT, AS_2_0, CANONICAL, SHARDED, FOLDER, DIFF], 5: [SHOW]},
    contents_of_one_digest: {1: [IS_CANONICAL]}, renamed_tensors: {1: [ALL_DIFFER]},
    components_of_a_long_name: {5: [SHOW, FOLDER, ID], 2: [AS_2_0, CANONICAL, SHARDED]},
    components_of_an_escaped_name: {5: [SHOW, FOLDER, ID], 2: [AS_2_0, CANONICAL, SHARDED]},
    parts_that_are_not_known: {5: [SHOW, ID, AS_2_0, CANONICAL, SHARDED, FOLDER]},
    aliases_of_a_long_name: {5: [FOLDER, ID], 2: [AS_2_0, CANONICAL, SHARDED]},
    shared_components: {5: [SHOW, FOLDER]},
    onnx_escaped_functions: {5: [FOLDER]},
    onnx_escaped_node: {5: [FOLDER], 2: [AS_2_0, SHARDED]},
    hdf5_escaped_groups: {5: [FOLDER], 2: [AS_2_0, SHARDED]},
    # damaged, it is
    torch_columns_of_a_wrong_end: {4: [CONVERT, STATS, AS_2_0, SHARDED, FOLDER], 5: [SHOW]},
    damaged_components_of_a_long_name: {5: [SHOW], 4: [ID, AS_2_0, CANONICAL, SHARDED, FOLDER], 1: [VERIFY, JSON_VERIFY]},
}

# Tensors that share bytes: written or shown one by one, they are as many times larger than the input.
MULTIPLIED = (cells_of_one_index, rows_of_one_index, growing_aliases, aliases_of_frames,
              entries_of_one_blob, rows_of_one_blob)

# What is counted, how many of it, and the commands that met it.
CASES = [
    (colliding_keys, 8192, [*FOREIGN.commands, extract("safetensors")]), (colliding_tensors, 8192, [*FOREIGN.commands, extract("npz")]),
    (colliding_objects, 8192, [*ZT.commands, AS_2_0]), (logical_shape, 100000, [DIFF]),
    (cells_of_one_index, 1000, [VERIFY, AS_2_0, CANONICAL]), (torch_tensors_of_one_dict, 8000, [INSPECT, CONVERT]),
    (elements_in_disorder, 1 << 20, [VERIFY, LITTLE]),
    (metadata, 40000, [*FOREIGN, SHARDED, PIPED, extract("safetensors")]), (tensors, 30000, [*FOREIGN, PIPED, CANONICAL, extract("safetensors"), extract("npz")]),
    (shards, 1000, [*FOREIGN, extract("safetensors")]), (tensors, 1500, [SHARDS, TREE, PAGE]), (tensors, 15000, [NAMES, SORTED, WORDY, TO_EXTRACT, INDEXED]), (renamed_tensors, 8000, [ALL_DIFFER]),
    (objects_of_2_0, 20000, [*ZT, CANONICAL, ID]),
    (objects, 20000, [*ZT, extract("safetensors"), extract("npz")]), (components, 20000, [*ZT]), (attributes, 40000, [*ZT, extract("safetensors")]),
    (attributed, 15000, [*ZT, extract("npz")]), (frames, 300000, [*ZT, extract("npz")]), (frames_with_table, 60000, [*ZT, extract("npz")]),
    (aliases, 20000, [*ZT]), (aliases_of_frames, 40, [INSPECT, STATS, VERIFY, CONVERT]), (growing_aliases, 1500, [INSPECT, STATS, VERIFY, CONVERT]),
    (entries, 15000, [*FOREIGN, extract("npz")]), (deflated_entries, 10000, [*FOREIGN]), (arrays, 1500, [*FOREIGN]),
    (gguf_tensors, 30000, [*FOREIGN, PIPED, extract("gguf")]), (gguf_keys, 60000, [*FOREIGN, extract("gguf")]),
    (gguf_strings, 200000, [*FOREIGN, PIPED, extract("gguf")]), (gguf_large_header, 100000, [CONVERT, PIPED]),
    (torch_tensors, 15000, [*FOREIGN]), (torch_storages, 15000, [*FOREIGN]), (torch_values, 50000, [*FOREIGN]),
    (torch_nothings, 500000, [INSPECT, CONVERT, DIFF]), (torch_lists, 100000, [INSPECT, CONVERT, DIFF]),
    (torch_names_of_a_long_key, 3000, [INSPECT, LISTED, PLANNED, CONVERT, DIFF]),
    (torch_values_of_a_long_text, 10000, [INSPECT, LISTED, CONVERT, DIFF]), (torch_columns, 8000, [CONVERT, STATS]), (torch_columns_far_apart, 8000, [CONVERT, STATS]), (torch_columns_of_a_wrong_end, 8000, [INSPECT, CONVERT, STATS]), (distributed_chunks, 2000, [INSPECT, CONVERT]),
    (columns, 200000, [INSPECT, CONVERT, DIFF]), (onnx_external_entries, 10000, [INSPECT, CONVERT]), (onnx_packed_numbers, 1000000, [*FOREIGN]),
    (onnx_tensors, 30000, [*FOREIGN]), (onnx_numbers, 300000, [*FOREIGN]),
    (onnx_escaped_functions, 2000, [*FOREIGN.commands, LISTED]), (onnx_escaped_node, 4000, [INSPECT, LISTED]), (hdf5_escaped_groups, 500, [*FOREIGN.commands, LISTED]),
    (hdf5_datasets, 5000, [*FOREIGN]), (hdf5_links, 10000, [*FOREIGN]), (hdf5_chunks, 20000, [*FOREIGN]),
    (components_of_a_long_name, 2000, [INSPECT, LISTED, VERIFY, JSON_VERIFY, CONVERT, DIFF]),
    (components_of_an_escaped_name, 2000, [LISTED, VERIFY, JSON_VERIFY, DIFF]),
    (parts_that_are_not_known, 1500, [LISTED, VERIFY, JSON_VERIFY]),
    (damaged_components_of_a_long_name, 2000, [VERIFY, JSON_VERIFY]), (aliases_of_a_long_name, 4000, [INSPECT, LISTED, VERIFY, DIFF, PLANNED, PLAN]),
    (attribute_numbers, 500000, [INSPECT, DIFF, CONVERT, VERIFY, extract("gguf")]), (attribute_lists, 400000, [DIFF, CONVERT, SHARDED]),
    (attribute_chains, 2000000, [INSPECT, DIFF, convert("--shards", "1")]),
    (shared_components, 2000, [INSPECT, VERIFY, CONVERT]), (rows_of_one_index, 300, [VERIFY, AS_2_0, CANONICAL, ID]),
    (equal_columns_of_one_index, 40, [LITTLE, CONVERT]),
    (contents_of_one_digest, 1500, [VERIFY, IS_CANONICAL]), (entries_of_one_blob, 16, [VERIFY]), (rows_of_one_blob, 40, [VERIFY]),
    (dotted, 20000, [TREE]), (modules_left_alone, 10000, [NUMBERS]), (groups_of_a_long_row, 1 << 16, [NUMBERS]),
    (warnings, 8000, [VERIFY, CONVERT, JSON, DIFF, extract("npz")]), (attributed, 5000, [FOLDER]),
]


def promised():
    """{format: (memory, output)}: how often the input's bytes, as docs/SECURITY.md has it."""
    page = (HERE.parents[1] / "docs/SECURITY.md").read_text()
    rows = re.findall(r"^\| ([a-z, 0-9.]+) \| (\d+) × \| (\d+) × \|$", page, re.M)
    return {name: (int(memory), int(output)) for names, memory, output in rows for name in names.split(", ")}


class Measured(typing.NamedTuple):
    status: int
    seconds: float  # of processor time
    memory: float   # MiB at most
    output: int     # bytes of both texts
    said: str       # last


def measure(command, threads, folder, words):
    command = [words.get(word, word) for word in command]
    out, err = folder / "stdout", folder / "stderr"
    source = folder / words["{}"] if "-" in command[1:2] else os.devnull
    asked = [[PROGRAM, *command, "-T", str(threads), "--progress", "never"], *map(str, (folder, source, out, err))]
    process = starter()
    print(json.dumps(asked), file=process.stdin, flush=True)
    status, seconds, memory = process.stdout.readline().split()
    output = out.stat().st_size + err.stat().st_size
    with open(err, "rb") as file:
        file.seek(max(0, err.stat().st_size - 200))
        return Measured(int(status), float(seconds), float(memory), output, file.read().decode(errors="replace"))


def least(measured):
    """The last, with the least that any took: other programs can only add to what one takes."""
    return measured[-1]._replace(seconds=min(each.seconds for each in measured), memory=min(each.memory for each in measured))


def excess(small, large, sizes, multiples, threads):
    """What grew by too much from n to 2n, or is more than promised. Without the smaller: what is above the floors."""
    found = []
    if small is None:  # what is below all floors has not grown by too much, whatever it was before
        small = large._replace(seconds=0, memory=0, output=0)
    if large.seconds > MOST * max(small.seconds, TIME_FLOOR / MOST):
        found.append(f"{small.seconds:.2f} s became {large.seconds:.2f}")
    if large.memory > MOST * max(small.memory, MEMORY_FLOOR / MOST):
        found.append(f"{small.memory:.0f} MiB became {large.memory:.0f}")
    if large.output > MOST * max(small.output, OUTPUT_FLOOR / MOST):
        found.append(f"{small.output} bytes of output became {large.output}")
    for took, size in zip((small, large), sizes):
        if took.memory > BASE[threads] + multiples[0] * size / 2 ** 20:
            found.append(f"{took.memory:.0f} MiB for {size} bytes, {multiples[0]} times are promised")
        if took.output > OUTPUT_BASE + multiples[1] * size:
            found.append(f"{took.output} bytes of output for {size}, {multiples[1]} times are promised")
    return found


def format_of(path):
    """The format of a file, or of what a folder holds."""
    if path.is_dir():
        path = min(each for each in path.iterdir() if each.suffix not in ("", ".json"))
    return {".safetensors": "safetensors", ".zt": "zt", ".npz": "npz", ".npy": "npy", ".gguf": "gguf", ".pt": "torch",
            ".distcp": "torch", ".onnx": "onnx", ".h5": "hdf5"}[path.suffix]


def bytes_of(path):
    return sum(each.stat().st_size for each in (path.rglob("*") if path.is_dir() else [path]) if each.is_file())


class Input(typing.NamedTuple):
    folder: pathlib.Path
    words: dict
    size: int


def try_command(label, command, threads, input_of, multiples, status):
    """What is wrong with a command in a case, a list of texts."""
    tries = [], []
    for _ in range(4):
        tries[1].append(measure(command, threads, *input_of(2)[:2]))
        large = least(tries[1])
        sizes = [0, input_of(2).size]
        if large.status == status and "ZT_COST_TABLE" not in os.environ and not excess(None, large, sizes, multiples, threads):
            return []
        sizes[0] = input_of(1).size
        tries[0].append(measure(command, threads, *input_of(1)[:2]))
        # How much of what several threads hold falls together is chance: the most of the smaller is what may double.
        small = least(tries[0])._replace(memory=max(each.memory for each in tries[0]))
        found = excess(small, large, sizes, multiples, threads)
        if not found or large.seconds > 10 * TIME_FLOOR:  # beyond all noise
            break
    for each in (small, large):
        if each.status != status:
            found.append(f"exit status {each.status}: {each.said}")
    if os.environ.get("ZT_COST_TABLE"):
        times = [took.memory * 2 ** 20 / size for took, size in zip((small, large), sizes)]
        print(f"{label:90} {small.status} {small.seconds:6.2f} s {large.seconds:6.2f} s {small.memory:6.0f} MiB {large.memory:6.0f} MiB"
              f" {times[1]:6.1f} x {large.output / sizes[1]:6.1f} x", flush=True)
    return [f"{label}: {text}" for text in found]


def try_case(make, count, commands):
    """What is wrong in a case, a list of texts."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="ztstream-cost-", dir=HOME))
    wrong = []

    @functools.cache
    def input_of(times):
        """The input of n or of 2n things: the smaller is made where it is asked for."""
        folder = home / f"{times}n"
        folder.mkdir()
        name = make(folder, times * count)
        words = {"{}": name}
        if THOROUGH:
            listed = subprocess.run([PROGRAM, "inspect", "--json", name], cwd=folder, stdout=subprocess.PIPE, check=True).stdout
            words["{tensor}"] = json.loads(listed)["objects"][-1]["name"]
        return Input(folder, words, bytes_of(folder / name))

    try:
        kind = format_of(input_of(2).folder / input_of(2).words["{}"])
        if THOROUGH:
            commands = [*commands, *(each for each in MORE["zt" if kind == "zt" else None] if each not in commands)]
        for command in commands:
            if make in MULTIPLIED and command in (FOLDER, STATS, SHOW):
                continue
            for threads in (1, 8) if THOROUGH or command in (CONVERT, VERIFY) else (1,):
                label = f"{make.__name__}, {' '.join(command)} -T {threads}"
                status = next((each for each, refused in REFUSED.get(make, {}).items() if command in refused), 0)
                wrong += try_command(label, command, threads, input_of, promised()[kind], status)
    finally:
        shutil.rmtree(home)
    return wrong


class Cost(unittest.TestCase):

    @classmethod
    def tearDownClass(cls):
        for process in STARTED:
            process.communicate()

    def test_twice_as_much_costs_about_twice_as_much(self):
        chosen = [case for case in CASES if os.environ.get("ZT_COST_ONLY", "") in case[0].__name__]
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            wrong = sum(pool.map(lambda case: try_case(*case), chosen), [])
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_every_option_that_changes_what_is_printed_is_known(self):
        table = json.loads(subprocess.run([PROGRAM, "--help", "--json"], capture_output=True, check=True).stdout)["options"]
        quiet = {"force", "no-sync", "quiet", "progress", "threads", "help", "version", "null"}  # print less, or end a name otherwise
        printing = {row["name"] for row in table if row["name"] not in quiet and not row["operand"] and
                    ("inspect" in row["commands"] and row["group"] == "Output" or row["group"] == "Every command" and not row["value"] or
                     row["name"] in ("dry-run", "attributes"))}
        self.assertGreaterEqual(printing, {"tree", "html", "stats", "json", "names", "sort", "verbose", "dry-run", "attributes"})
        tried = {word for command in (*PRINTED, STATS, SHOWN, ALL_DIFFER, TO_EXTRACT) for word in command}
        self.assertEqual({name for name in printing if not tried & {f"--{name}", {"dry-run": "-n", "verbose": "-v"}.get(name)}}, set())

    def test_twice_as_many_files_to_inspect_cost_twice_as_much(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ztstream-cost-", dir=HOME))
        self.addCleanup(shutil.rmtree, folder)
        name = tensors(folder, 1)
        files = [5000, 10000]
        size = bytes_of(folder / name)
        small, large = (measure(["inspect", *[name] * n], 1, folder, {"{}": name}) for n in files)
        self.assertEqual(excess(small, large, [n * size for n in files], promised()["safetensors"], 1), [], large.said)
