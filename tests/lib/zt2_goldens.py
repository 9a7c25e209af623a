"""The inputs of the golden files in tests/data/zt2 that have no input beside them: small, and each with something hard in it.

INPUTS names them; encode(name) gives the bytes, for every machine the same but for the zstd frames of one of them.
  zt2_goldens.py ZT FOLDER   writes the inputs to FOLDER, has ZT, the reference's program, convert them to its canonical
                             form, and writes NAME.zt.xz and ids.txt to tests/data/zt2
"""
import hashlib
import lzma
import pathlib
import subprocess
import sys

import make_safetensors
import make_zt2
from support import DATA

GOLDENS = DATA / "zt2"
# The dtypes of safetensors that the reference reads.
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "F8_E4M3", "F8_E5M2",
          "F8_E8M0")


def content(seed, count):
    """Bytes that no version of a library changes."""
    return hashlib.shake_128(str(seed).encode()).digest(count)


def tensor(dtype, shape, seed=0):
    data = content(seed, make_safetensors.byte_count(dtype, shape))
    return dtype, shape, bytes(b & 1 for b in data) if dtype == "BOOL" else data


def named(names, dtype="U8", shape=(3,)):
    """Tensors in an order that is neither that of their names nor its reverse."""
    names = sorted(names, key=lambda name: content(name, 8))
    return {name: tensor(dtype, list(shape), name) for name in names}


def near():
    """Equal but for the first, a middle or the last byte, and one that is the beginning of another."""
    same = bytes(range(256)) * 3
    changed = {f"at {at}": same[:at] + b"\xff" + same[at + 1:] for at in (0, 1, 300, 384, 766)}
    return {name: ("U8", [len(data)], data) for name, data in
            {"z": same, "same": same, "short": same[:-1], "x": same, **changed}.items()}


SAFETENSORS = {
    "dtypes": lambda: {dtype.lower(): tensor(dtype, [2, 3], dtype) for dtype in DTYPES},
    "scalars": lambda: {dtype: tensor(dtype, [], dtype) for dtype in DTYPES},
    "empties": lambda: {f"{dtype}.{number}": tensor(dtype, shape) for dtype in ("F32", "BOOL", "U8", "BF16")
                        for number, shape in enumerate([[0], [3, 0], [0, 1 << 40], [1]])},
    "ties": lambda: {"z": ("F32", [2, 2], bytes(range(16))), "b": ("I16", [8], bytes(range(16))),
                     "m": ("U8", [16], bytes(range(1, 17))), "a.2": ("U8", [4, 4], bytes(range(1, 17))),
                     "a": ("F64", [2], bytes(range(16))), "a-": ("I8", [16], bytes(16)), "B": ("BOOL", [16], bytes(16))},
    "near-ties": near,
    # Bytewise "aa" is before "b"; as keys of deterministic CBOR the shorter name is first.
    "name-lengths": lambda: named("x" * size for size in (1, 2, 23, 24, 255, 256, 1023, 1024)) | named(["aa", "b", "ab", "Z"]),
    "names": lambda: named(["ö.größe", "层.0.权重", "한국어", "ελληνικά", "מפתח", "emoji 🦓", "\uff5e", "𐀀", "\u007f", " ", "\t\n",
                            "\"quoted\\\"", "../../etc/passwd", "ﬃ", "\u2028", "ß", "e"]),
    "nothing": dict,
    "many": lambda: named([f"model.layers.{n}.weight" for n in range(300)], "I16", (2,)),
    "ranks": lambda: {f"{n}": tensor("F16", [1] * n, n) for n in (1, 2, 23, 24, 31, 32, 64)},
    "numbers": lambda: {f"{n}": ("U8", [n], content(0, 1) * n) for n in (1, 23, 24, 255, 256, 65535, 65536, 65537)}
    | {"none": ("U8", [0, (1 << 32) - 1, 1 << 32, (1 << 53) - 1], b"")},
    "metadata": lambda: {"t": tensor("F32", [3])},
    "metadata-alone": dict,
}
METADATA = {
    "metadata": {f"key {n}": "v" * n for n in (0, 1, 23, 24, 255, 256, 65536)} | {"größe": "層\n\"", "format": "pt"}
    | {"k" * n: "" for n in range(1, 25)},
    "metadata-alone": {"format": "pt", "made": "of nothing"},
}


# Files of 2.0 that are not canonical, written by make_zt2.py.

def types():
    file = make_zt2.File()
    for number, (name, dtype, size) in enumerate([
            ("f8_e4m3fn", "u8", 5), ("f8_e5m2", "u8", 5), ("f8_e4m3fnuz", "u8", 5), ("f8_e5m2fnuz", "u8", 5),
            ("f8_e8m0", "u8", 5), ("complex64", "f32", 40), ("complex128", "f64", 80)]):
        file.add(name, [5], data=file.part(content(number, size), dtype, type=name))
    file.add("bool", [5], data=file.part(b"\0\1\1\0\1", type="bool"))
    file.add("odd", [5], data=file.part(b"\x21\x43\x05", type="f4_e2m1"))
    file.add("even", [2, 2, 3], data=file.part(content("f4", 6), type="f4_e2m1"))
    file.add("no digest", [4], data=file.part(b"none", digest=None))
    file.add("sha256", [4], data=file.part(b"sha2", digest="sha256"))
    return file


def encoded():
    """Parts in frames of zstd beside raw ones with the same bytes; what lies first comes last by its name."""
    file = make_zt2.File()
    same = bytes(range(200)) * 50
    file.add("z", [10000], data=file.part(same))
    file.add("y", [2500], data=file.zstd(same, "f32", 4096))
    file.add("x", [100, 50], data=file.zstd(same, "u16", digest=make_zt2.digest_of("sha256", same)))
    file.add("b", [5000], data=file.zstd(same[:5000]))
    file.add("empty", [0], data=file.part(b""))
    file.add("a", [10000], data=file.root["objects"]["z"]["parts"]["data"])
    return file


def joined(**files):
    """The one object of each file, under the name given."""
    out = make_zt2.File()
    for name, each in files.items():
        (entry,) = each.root["objects"].values()
        parts = {}
        for role, part in entry["parts"].items():
            at, size = part["blob"]
            parts[role] = dict(part, blob=out.blob(bytes(each.heap[at:at + size])))
        out.add(name, entry["shape"], entry["layout"], entry.get("attributes"), **parts)
    return out


def sparse():
    """Indices of both widths, and some that two tensors have."""
    file = joined(m=make_zt2.csr(), c=make_zt2.coo(), w=make_zt2.csr(index="u32"), v=make_zt2.coo(index="u32"))
    parts = file.root["objects"]["m"]["parts"]
    file.add("a", [2, 3], "zt.sparse_csr/1", indices=parts["indices"], indptr=parts["indptr"],
             values=file.part(bytes(range(6)), "bf16"))
    return file


def attributes():
    file = make_zt2.dense()
    values = {"zero": 0, "negative": -1, "least": -(1 << 63), "most": (1 << 64) - 1, "half": 0.5,
              "single": 3.4028234663852886e38, "double": 0.1, "minus zero": -0.0, "infinite": float("inf"), "no number": float("nan"), "subnormal": 6e-8,
              "yes": True, "no": False, "null": None, "text": "größe", "bytes": bytes(range(24)), "list": [1, [2, []], {}],
              "map": {"b": 1, "aa": {"z": 2, "a": 3}}, "deep": make_zt2.nested(20)}
    values |= {str(number): number for number in (23, 24, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32)}
    file.root["attributes"] = values
    file.root["objects"]["t"]["attributes"] = dict(values)
    file.add("none", [0], attributes={}, data=file.part(b""))
    return file


ZT = {"types": types, "encoded": encoded, "sparse": sparse, "attributes": attributes,
      "grouped": lambda: joined(q=make_zt2.quant(), x=make_zt2.mx(), g=make_zt2.gguf())}
INPUTS = {**{name: ".safetensors" for name in SAFETENSORS}, **{name: ".zt" for name in ZT}}


def encode(name):
    if name in ZT:
        return ZT[name]().finish()
    return make_safetensors.encode(SAFETENSORS[name](), METADATA.get(name))


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    ids = dict(line.split() for line in (GOLDENS / "ids.txt").read_text().splitlines())

    def identify(path, name):
        done = subprocess.run([program, "id", path], capture_output=True, text=True)
        if done.returncode == 0:
            ids[name] = done.stdout.strip()

    for name, suffix in INPUTS.items():
        path, golden = folder / f"{name}{suffix}", folder / f"{name}.golden.zt"
        path.write_bytes(encode(name))
        subprocess.run([program, "convert", path, golden], check=True, stdout=subprocess.DEVNULL)
        identify(golden, f"{name}.zt")
        if name in ZT:  # which has other digests; the reference has no id for what lacks one, or is no file of 2.0
            identify(path, f"input/{name}.zt")
        (GOLDENS / f"{name}.zt.xz").write_bytes(lzma.compress(golden.read_bytes(), preset=9))
    (GOLDENS / "ids.txt").write_text("".join(f"{name} {each}\n" for name, each in sorted(ids.items())))


if __name__ == "__main__":
    main()
