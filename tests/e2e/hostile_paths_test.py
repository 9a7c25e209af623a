"""Paths that no file of a model may have: refused by every command and in every version, and nothing is written outside."""
import os
import struct
import subprocess

import make_safetensors
import make_zt
import make_zt2
import support
from support import DIFFERS, EXISTS, INVALID, IO
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
    "a\u009bb": "it holds a control character", "a\tb": "it holds a control character", "\x01": "it holds a control character",
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
COUNT = 80
FORMS = ("1.2", "2.0", "1.2 dense", "2.0 dense", "shards of 2.0")


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


class HostilePaths(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.inner = self.path("inner")
        self.inner.mkdir()

    def refuse(self, model, rule):
        """Every command refuses the file by the rule, and nothing but the file is there afterwards."""
        before = {str(p.relative_to(self.folder)) for p in self.folder.rglob("*")}
        out = f"{self.inner}/out/"
        self.fail_with(INVALID, "extract", model, "-o", out, "--to", "safetensors", says=rule)
        process = self.run_program("verify", model)
        self.assertEqual(process.returncode, DIFFERS)
        self.assertIn(rule, process.stderr.decode())
        self.fail_with(INVALID, "convert", model, "-o", self.inner / "c.zt", says=rule)
        after = {str(p.relative_to(self.folder)) for p in self.folder.rglob("*")}
        self.assertEqual(after, before)
        self.assertFalse(os.path.exists(OUTSIDE))

    def test_every_path_is_counted(self):
        self.assertGreaterEqual(len(HOSTILE) + len(PAIRS), COUNT)

    def put_model(self, how, paths):
        """A model whose files have these paths, of one of the forms that files have."""
        for old in self.inner.iterdir():
            old.unlink()
        if how == "shards of 2.0":
            root, shard = root_and_shard(*paths)
            self.put("inner/m-s.zt", shard)
            return self.put("inner/m.zt", root)
        make = version_1 if how.startswith("1.2") else version_2
        return self.put("inner/m.zt", make(*paths, dense=how.endswith("dense")))

    def test_each_path_in_each_form(self):
        for path, rule in HOSTILE.items():
            for how in FORMS:
                with self.subTest(path=path, how=how):
                    self.refuse(self.put_model(how, [path]), rule)

    def test_pairs(self):
        for pair, rule in PAIRS.items():
            for how in FORMS:
                with self.subTest(pair=pair, how=how):
                    self.refuse(self.put_model(how, pair), rule)

    def test_the_profile(self):
        """What else an object of the profile may not be."""
        def change(**fields):
            name, entry = file_1("a")
            for key, value in fields.items():
                entry[key] = value
            return make_zt.encode_1({name: entry})
        component = {"dtype": "u8", "data": b"owned"}
        wrong = {"the attribute 'path' is missing, or no text": change(attributes={}),
                 "its shape is [5, 1], not one number of bytes": change(shape=[5, 1]),
                 "its shape is [4], and it has 5 bytes": change(shape=[4]),
                 "its component is i8, not u8": change(components={"data": {"dtype": "i8", "data": b"owned"}}),
                 "one component, 'data'": change(components={"data": component, "more": component}),
                 "'executable' is neither true nor false": change(attributes={"path": "a", "executable": 1})}
        for rule, content in wrong.items():
            with self.subTest(rule=rule):
                self.refuse(self.put("inner/m.zt", content), rule)
        for path in (7, b"a", ["a"], None):
            self.refuse(self.put("inner/m.zt", change(attributes={"path": path})), "the attribute 'path' is missing, or no text")

    def test_weights(self):
        """The paths in ztstream.folder keep the same rules, and do not meet those of files."""
        tensors = make_safetensors.sample(["t"], "U8", (2,))
        whole = make_safetensors.encode(tensors)
        header = whole[:8 + struct.unpack_from("<Q", whole)[0]]
        def model(*paths, file=None):
            objects = {"t": {"format": "dense", "shape": [2], "components": {"data": {"dtype": "u8", "data": whole[-2:]}}}}
            if file:
                objects |= dict([file_1(file)])
            return make_zt.encode_1(objects, attributes={"ztstream.folder": [
                {"path": path, "kind": "safetensors", "header": header} for path in paths]})
        for path, rule in list(HOSTILE.items())[::7]:
            self.refuse_weights(model(path), rule)
        self.refuse_weights(model("a", "A"), "only in case")
        self.refuse_weights(model("config.json", file="config.json"), "it occurs twice")
        self.refuse_weights(model("c/d", file="c"), "it lies below 'c'")

    def refuse_weights(self, content, rule):
        model = self.put("inner/m.zt", content)
        self.fail_with(INVALID, "extract", model, "-o", f"{self.inner}/out/", "--to", "safetensors", says=rule)
        process = self.run_program("verify", model)
        self.assertEqual(process.returncode, DIFFERS)
        self.assertIn(rule, process.stderr.decode())
        self.assertEqual(self.entries(self.inner), ["m.zt"])

    def test_good_paths_come_out(self):
        for make in (version_1, version_2):
            model = self.put("inner/m.zt", make(*[f"{i}/{path}" if path.count("/") < 15 and len(path) < 900 else path
                                                  for i, path in enumerate(GOOD)]))
            self.succeed("verify", model)
            self.succeed("extract", model, "-o", f"{self.inner}/{make.__name__}/", "--to", "safetensors")
            for i, path in enumerate(GOOD):
                path = f"{i}/{path}" if path.count("/") < 15 and len(path) < 900 else path
                self.assertEqual((self.inner / make.__name__ / path).read_bytes(), b"owned", path)

    def test_a_planted_link_changes_nothing(self):
        """Names that the run could use are links to somewhere else: they are not followed."""
        target = self.path("target")
        target.mkdir()
        (self.inner / "out").symlink_to(target)
        model = self.put("m.zt", version_1("config.json", "sub/x"))
        process = self.run_program("extract", model, "-o", f"{self.inner}/out/", "--to", "safetensors")
        self.assertEqual(process.returncode, EXISTS)
        (self.inner / "out").unlink()
        last = subprocess.Popen(["true"])
        last.wait()
        planted = [f".out.{last.pid + i}-0.ztstream-tmp" for i in range(2000)]
        for name in planted:
            (self.inner / name).symlink_to(target)
        self.succeed("extract", model, "-o", f"{self.inner}/out/", "--to", "safetensors")
        self.assertEqual(self.entries(target), [])
        self.assertEqual(self.entries(self.inner / "out"), ["config.json", "model.safetensors", "sub"])
        self.assertEqual(self.entries(self.inner), sorted([*planted, "out"]))
        self.assertFalse((self.inner / "out").is_symlink())

    def test_more_than_the_disk_holds(self):
        """A file of a few MB that names one tensor of a GiB fifty thousand times: nothing is written."""
        count, size = 50_000, 1 << 30
        whole = make_safetensors.raw({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
        data = make_zt.zstd(bytes(size // 16)) * 16
        objects = {"t": {"format": "dense", "shape": [size],
                         "components": {"data": {"dtype": "u8", "data": data, "encoding": "zstd", "uncompressed_length": size}}}}
        entries = [{"path": f"{i}.safetensors", "kind": "safetensors", "header": whole} for i in range(count)]
        model = self.put("inner/m.zt", make_zt.encode_1(objects, attributes={"ztstream.folder": entries}))
        self.fail_with(IO, "extract", model, "-o", f"{self.inner}/out/", "--to", "safetensors", says="bytes are needed")
        self.assertEqual(self.entries(self.inner), ["m.zt"])

    def test_what_keeps_the_weights_files(self):
        """Entries of ztstream.folder that are of another form."""
        good = {"path": "m.safetensors", "kind": "safetensors", "header": b"\2\0\0\0\0\0\0\0{}"}
        wrong = {"it is not an array": {}, "an entry has no path and kind 'safetensors'": [good | {"kind": "gguf"}],
                 "a header that is no bytes, or a prefix or an origin that is no text": [good | {"prefix": 1}],
                 "or a prefix or an origin that is no text": [good | {"from": 1}],
                 "the prefix 'unet' does not end in its one '/'": [good | {"prefix": "unet"}],
                 "the prefix 'a/b/' does not end in its one '/'": [good | {"prefix": "a/b/"}]}
        for rule, value in wrong.items():
            with self.subTest(rule=rule):
                self.refuse_weights(make_zt.encode_1({}, attributes={"ztstream.folder": value}), rule)
        self.refuse_weights(make_zt.encode_1({}, attributes={"ztstream.folder": [good | {"header": "text"}]}), "a header that is no bytes")
