"""Models with files of paths that no file may have, in every form that files have: rows of agreement.py."""
import os
import struct

import make_safetensors
import make_zt
import make_zt2
from agreement import MALFORMED
from zt2read import digest_of


OUTSIDE = f"/tmp/ztstream-hostile-{os.getpid()}"
SUPERSCRIPTS = "\u00b9\u00b2\u00b3"
# Path -> what the message says of it.
HOSTILE = {
    "": "it is empty", "/etc/passwd": "it is absolute", "/": "it is absolute", "//host/share": "it is absolute",
    "..": "a segment is '..'", "../x": "a segment is '..'", "a/../../x": "a segment is '..'", "a/..": "a segment is '..'",
    f"../../../../../..{OUTSIDE}": "a segment is '..'", ".": "a segment is '.'", "./x": "a segment is '.'", "a/./b": "a segment is '.'",
    "a//b": "a segment is empty", "a/": "it ends in '/'", "a/b/": "it ends in '/'",
    "..\\x": "it holds '\\\\'", "a\\b": "it holds '\\\\'", "\\\\host\\share": "it holds '\\\\'", "C:\\x": "it holds ':'", "C:x": "it holds ':'",
    "c:/x": "it holds ':'", "x:stream": "it holds ':'", "x::$DATA": "it holds ':'", "a<b": "it holds '<'", "a>b": "it holds '>'",
    'a"b': "it holds '\"'", "a|b": "it holds '|'", "a?b": "it holds '?'", "a*b": "it holds '*'",
    "a\0b": "it holds a control character", "a\nb": "it holds a control character", "a\rb": "it holds a control character",
    "\x1b[2J": "it holds a control character", "a\x7fb": "it holds a control character", "a\u0085b": "it holds a control character",
    "a\u009bb": "it holds a control character", "a\tb": "it holds a control character",
    **dict.fromkeys(["a\u202egpj.exe", "a\u2066b", "a\u200bb", "\ufeffa", "a\u061cb", "a\U000e0041b"], "it holds a control character"), "\x01": "it holds a control character",
    "end.": "ends in a dot or a blank", "end ": "ends in a dot or a blank", "a./b": "ends in a dot or a blank", "a /b": "ends in a dot or a blank",
    "...": "ends in a dot or a blank", ".. ": "ends in a dot or a blank", "a/... /b": "ends in a dot or a blank",
    "e\u0301.txt": "Normalization Form C", "\u212b": "Normalization Form C", "A\u030a/x": "Normalization Form C",
    "x" * 256: "more than 255 bytes", "\u00e9" * 128: "more than 255 bytes", "a/" + "y" * 300: "more than 255 bytes",
    "/".join(["d" * 100] * 10) + "e": "more than 1009 bytes", "/".join("a" * 17): "more than 16 segments",
    "/".join(["ab"] * 200): "more than 16 segments",
}
DEVICES = ["CON", "con", "PRN", "aux", "NUL", "nul.txt", "Con.tar.gz", "CONIN$", "conout$.x", "COM0", "COM1", "com9.log", "LPT0", "LPT5", "lpt9 .txt",
           "a/NUL", "nul/x", "NUL  .txt", "a/b/aux.json", "COM" + SUPERSCRIPTS[0], "com" + SUPERSCRIPTS[1] + ".x", "LPT" + SUPERSCRIPTS[2]]
HOSTILE |= dict.fromkeys(DEVICES, "the name of a device on Windows")
# Two paths that do not go together, and what is said of the second.
PAIRS = {("a", "a"): "it occurs twice", ("a", "A"): "differs from 'a' only in case",
         ("Stra\u00dfe", "STRASSE"): "only in case", ("\u00c9", "\u00e9"): "only in case", ("\ufb01le", "file"): "only in case",
         ("\u017fet", "SET"): "only in case", ("gro\u1e9e", "gross/a"): "it lies below 'gro\u1e9e'", ("a", "a/b"): "it lies below 'a'",
         ("a/b", "a"): "it is a folder of 'a/b'", ("a/b/c", "A/B"): "it is a folder of 'a/b/c'", ("A", "a/b"): "it lies below 'A'"}
GOOD = ["a", "a/b/c", ".hidden", "..a", "a..b", "console", "com", "com10", "com1x", "lpt", "nulls.txt", "e\u0301".encode().decode().replace("e\u0301", "\u00e9"),
        "x" * 255, "/".join("a" * 16), "\u65e5\u672c/\u8a9e.txt", " leading", "a b", "-rf", "~", "$HOME", "%2e%2e", "#", "'", "aux-1", "CONIN"]
def file_1(path, content=b"owned", name=None, **fields):
    attributes = {} if path is None else {"path": path}
    return name or f"__meta__/files/{path}", {"format": "ztstream.file/1", "shape": [len(content)], "attributes": attributes,
                                              "components": {"data": {"dtype": "u8", "data": content,
                                                                      "digest": make_zt.digest("crc32c", content)}}, **fields}


def version_1(*paths, dense=False):
    objects = {"t": {"format": "dense", "shape": [2], "components": {"data": {"dtype": "u8", "data": b"tt"}}}}
    for i, path in enumerate(paths):
        name, entry = file_1(path, name=f"__meta__/files/{i}")
        if dense:
            entry["format"] = "dense"
            entry["attributes"]["ztstream.file"] = 1
        objects[name] = entry
    return make_zt.encode_1(objects)


def version_2(*paths, dense=False):
    file = make_zt2.dense()
    for i, path in enumerate(paths):
        attributes = {"path": path}
        if dense:
            attributes["ztstream.file"] = 1
        file.add(f"__meta__/files/{i}", [5], "dense" if dense else "ztstream.file/1", attributes, data=file.part(b"owned"))
    return file.finish()


def root_and_shard(*paths):
    """A root of 2.0 whose files lie in a data shard."""
    shard, blobs = make_zt2.shard_file(b"tttttttt", *[b"owned"] * len(paths))
    file = make_zt2.File()
    part = lambda blob, content: {"dtype": "u8", "blob": blob, "shard": "s", "digest": digest_of("xxh3", content)}
    file.add("t", [8], data=part(blobs[0], b"tttttttt"))
    for i, path in enumerate(paths):
        file.add(f"__meta__/files/{i}", [5], "ztstream.file/1", {"path": path}, data=part(blobs[1 + i], b"owned"))
    file.root["shards"] = {"s": {"size": len(shard), "digest": digest_of("xxh3", shard)}}
    return file.finish(), shard


def forms(*paths):
    """(form, input) for each form that a model has whose files have these paths."""
    yield "1.2", version_1(*paths)
    yield "2.0", version_2(*paths)
    yield "1.2 dense", version_1(*paths, dense=True)
    yield "2.0 dense", version_2(*paths, dense=True)
    root, shard = root_and_shard(*paths)
    yield "2.0 root", {"m.zt": root, "m-s.zt": shard}


def profiles():
    """(what must be said, file): what else an object of the profile may not be."""
    def change(**fields):
        name, entry = file_1("a")
        return make_zt.encode_1({name: entry | fields})

    component = {"dtype": "u8", "data": b"owned"}
    for path in ({}, *({"path": path} for path in (7, b"a", ["a"], None))):
        yield "the attribute 'path' is missing, or no text", change(attributes=path)
    yield "its shape is [5, 1], not one number of bytes", change(shape=[5, 1])
    yield "its shape is [4], and it has 5 bytes", change(shape=[4])
    yield "its component is i8, not u8", change(components={"data": {"dtype": "i8", "data": b"owned"}})
    yield "one component, 'data'", change(components={"data": component, "more": component})
    yield "'executable' is neither true nor false", change(attributes={"path": "a", "executable": 1})


def weights():
    """(what must be said, file): the paths in ztstream.folder keep the same rules, and do not meet those of files."""
    whole = make_safetensors.encode(make_safetensors.sample(["t"], "U8", (2,)))
    header = whole[:8 + struct.unpack_from("<Q", whole)[0]]

    def model(*entries, file=None):
        objects = {"t": {"format": "dense", "shape": [2], "components": {"data": {"dtype": "u8", "data": whole[-2:]}}}}
        return make_zt.encode_1(objects | dict([file_1(file)] if file else []), attributes={"ztstream.folder": list(entries)})

    def of(path, **fields):
        return {"path": path, "kind": "safetensors", "header": header, **fields}

    for path, rule in list(HOSTILE.items())[::7]:
        yield rule, model(of(path))
    yield "only in case", model(of("a"), of("A"))
    yield "it occurs twice", model(of("config.json"), file="config.json")
    yield "it lies below 'c'", model(of("c/d"), file="c")
    yield "it is not an array", make_zt.encode_1({}, attributes={"ztstream.folder": {}})
    yield "an entry has no path and kind 'safetensors'", model(of("m", kind="gguf"))
    yield "a header that is no bytes, or a prefix or an origin that is no text", model(of("m", prefix=1))
    yield "or a prefix or an origin that is no text", model(of("m", **{"from": 1}))
    yield "a header that is no bytes", model(of("m", header="text"))
    for prefix in ("unet", "a/b/"):
        yield f"the prefix '{prefix}' does not end in its one '/'", model(of("m", prefix=prefix))


def rows():
    seen = set()
    for paths, rule in [*(((path,), rule) for path, rule in HOSTILE.items()), *PAIRS.items()]:
        for number, (form, content) in enumerate(forms(*paths)):
            # Of a rule that many paths break the other forms try one.
            if number == 0 or rule not in seen:
                yield f"paths {paths} in {form}", form[:3], content, MALFORMED, rule
        seen.add(rule)
    for number, (rule, content) in enumerate((*profiles(), *weights())):
        yield f"a model: {rule}, {number}", "1.2", content, MALFORMED, rule
