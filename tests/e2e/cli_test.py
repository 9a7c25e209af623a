"""The program at the prompt: what it prints, on a terminal and elsewhere, and what it says to a command line."""
import gzip
import http.server
import io
import json
import os
import pickle
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import unicodedata
import unittest
import zipfile

import numpy

import make_safetensors
import make_zt
import support
from support import DATA, DIFFERS, DONE, EXISTS, INTERRUPTED, INVALID, IO, PROGRAM, UNSUPPORTED, USAGE

ONE = {"w": ("F32", [1], bytes(4))}
ESCAPE = "\x1b[2Jevil\nrow\u202e"


class OutputOfTheProgram(support.EndToEnd):

    def check_printable(self, *outputs):
        for output in outputs:
            text = output.decode("utf-8")  # fails where it is not UTF-8
            for character in text:
                self.assertTrue(character == "\n" or (character.isprintable() or character == " "), repr(text))

    def test_closed_descriptors_are_not_given_to_files(self):
        source = self.safetensors("a.safetensors", {"w": ("F32", [1 << 20], bytes(4 << 20))})
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            output = self.path("o.zt")
            process = subprocess.run(["sh", "-c", f'exec "$0" convert "$1" -o "$2" -f --progress always {closed}',
                                      PROGRAM, source, output], timeout=support.PATIENCE, capture_output=True)
            self.assertEqual(process.returncode, DONE, closed)
            self.succeed("verify", output, "--against", source)
        process = subprocess.run(["sh", "-c", 'exec "$0" inspect "$1" >&-', PROGRAM, source], capture_output=True)
        self.assertEqual(process.returncode, IO, process.stderr)
        process = subprocess.run(["sh", "-c", 'exec "$0" convert - -o "$1" <&-', PROGRAM, self.path("n.zt")],
                                 capture_output=True)
        self.assertEqual(process.returncode, IO, process.stderr)

    def test_json_of_names_that_are_not_utf8(self):
        folder = self.path("model")
        for number in (1, 2):  # keys that disagree become a warning, which cuts them inside a character
            self.safetensors(f"model/m{number}.safetensors", {f"t{number}": ("U8", [1], b"x")},
                             {"x" + "é" * 400: str(number)})
        result = self.json("convert", folder, "-o", self.path("s.zt"), "--json", "-q")
        self.assertTrue(result["ok"])
        name = os.fsdecode(b"bad\xffname.safetensors")
        source = self.safetensors(name, ONE)
        for command in (["convert", source, "-o", self.path("o.zt")], ["inspect", source], ["diff", source, source],
                        ["extract", source, "-o", self.path(os.fsdecode(b"\xfe.npz"))]):
            result = self.json(*command, "--json", "-q")
            self.assertEqual((result["schema"], result["cmd"], result["ok"]), ("ztstream/2", command[0], True))

    def test_what_files_say_is_escaped(self):
        source = self.safetensors("e.safetensors", {ESCAPE: ("U8", [1], b"x")}, {ESCAPE: ESCAPE})
        other = self.safetensors("f.safetensors", {ESCAPE: ("U8", [1], b"y")})
        output = self.path("o.zt")
        self.succeed("convert", source, "-o", output)
        runs = [["inspect", source], ["inspect", "--tree", source], ["inspect", "-v", output], ["diff", source, other],
                ["convert", "-n", source], ["verify", output, "--against", other],
                ["extract", source, "no such \x1b\n", "-o", self.path("x.npz")],
                ["inspect", os.fsdecode(b"no\xff\x1bsuch\n")], ["convert", source, "-o", output, "--include", "\x1b\n"],
                ["convert", source, "\x1b[2J", "-o", "\x1b[3J\n.zt"], ["\x1b[2J"], ["inspect", "--\x1b[2J"]]
        data = {"dtype": "u8", "type": ESCAPE, "digest": ESCAPE + ":00", "data": b"x"}
        entry = {"shape": [1], "attributes": {ESCAPE: ESCAPE}, "components": {"data": data}}
        for form in ("dense", ESCAPE + "/1"):
            odd = self.put(f"{len(form)}.zt", make_zt.encode_1({ESCAPE: {"format": form, **entry}}, attributes={ESCAPE: ESCAPE}))
            self.assertIn(rb"\x1b[2Jevil\nrow\u202e  [1]", self.succeed("inspect", odd))
            runs += [["inspect", "-v", odd], ["inspect", "--tree", odd], ["verify", odd], ["diff", odd, output],
                     ["convert", "-n", odd], ["convert", odd, "-o", self.path("n.zt"), "--spec", "1.1"],
                     *(["extract", odd, "-o", self.path("n" + end)] for end in (".npz", ".safetensors", ".gguf"))]
        for arguments in runs:
            for more in ([], ["--json"]):
                process = self.run_program(*arguments, *more)
                self.check_printable(process.stdout, process.stderr)
        self.assertIn(rb"\x1b[2Jevil\nrow\u202e", self.succeed("inspect", source))
        index = {"weight_map": {"a": "x\nztstream: all good\x1b[2K"}}
        self.put("i/model.safetensors.index.json", json.dumps(index).encode())
        self.check_printable(self.fail_with((INVALID, USAGE), "inspect", self.path("i")).encode())

    def test_one_schema_for_results_and_errors(self):
        source = self.safetensors("a.safetensors", ONE)
        broken = self.put("b.safetensors", make_safetensors.encode(ONE)[:-1])
        output = self.path("o.zt")
        self.succeed("convert", source, "-o", output)
        for command in ("inspect", "verify"):
            result = self.json(command, output, "--json")
            self.assertEqual((result["schema"], result["cmd"], result["ok"]), ("ztstream/2", command, True))
        cases = [(INVALID, ["inspect", broken], str(broken)), (IO, ["diff", source, "gone"], "gone"),
                 (EXISTS, ["convert", source, "-o", output], str(output)),
                 (USAGE, ["convert", source], None), (USAGE, ["inspect", "--frob", source], None),
                 (UNSUPPORTED, ["verify", "-"], "standard input")]
        for status, arguments, file in cases:
            process = self.expect(status, *arguments, "--json")
            result = json.loads(process.stdout)
            self.assertEqual((result["schema"], result["cmd"], result["ok"]), ("ztstream/2", arguments[0], False))
            self.assertEqual(result["error"]["exit_status"], status)
            self.assertEqual(result["error"].get("file"), file, arguments)
            self.assertEqual(process.stderr.decode(), f"ztstream: {result['error']['message']}\n")
        # What differs is a result and no error.
        content = bytearray(output.read_bytes())
        content[64] ^= 1
        damaged = self.put("d.zt", bytes(content))
        for arguments, found in ((["verify", damaged], "problems"), (["diff", output, damaged], None),
                                 (["verify", output, "--against", self.put("c.safetensors", make_safetensors.encode(
                                     {"w": ("F32", [1], b"abcd")}))], "differences"),
                                 (["diff", output, "c.safetensors"], "differences")):
            process = self.run_program(*arguments, "--json")
            result = json.loads(process.stdout)
            self.assertEqual((result["ok"], "error" in result), (False, found is None), arguments)
            self.assertEqual(process.returncode, INVALID if found is None else DIFFERS)
            if found is not None:
                self.assertEqual(len(result[found]), 1)
        huge = self.safetensors("huge.safetensors", {"big": ("F32", [1], struct.pack("<f", 1e38))})
        process = self.run_program("convert", huge, "-o", self.path("h.zt"), "--dtype", "f16", "--json")
        error = json.loads(process.stdout)["error"]
        self.assertEqual((error["exit_status"], error["tensor"]), (7, "big"))

    @unittest.skipIf(support.jsonschema is None, "python3-jsonschema is not installed")
    def test_every_result_is_as_the_schema_says(self):
        """What every test prints with --json is, too (support.check_schema)."""
        self.safetensors("m/model.safetensors", {"w": ("F32", [512, 2], struct.pack("<1024f", *range(1024))), "b": ("BF16", [2], bytes(4))}, {"k": "v"})
        self.put("m/config.json", b"{}")
        self.path("s").mkdir()
        new = self.safetensors("n.safetensors", {"w": ("F32", [512, 2], struct.pack("<1024f", 7, *range(1, 1024))), "c": ("BF16", [2], bytes(4))})
        self.succeed("convert", "m", "-o", "m.zt", "--zstd=planes")
        damaged = bytearray(self.path("m.zt").read_bytes())
        damaged[70] ^= 1
        self.put("d.zt", bytes(damaged))
        lines = """convert m -fo o.zt|convert m -n|convert n.safetensors --base m.zt -fo delta.zt|convert m.zt -n --dtype b=f32 --include b --rename s/b/c/
            convert m -o s/x.zt --shards 2|convert m -o s/x.zt --shards 2|convert m -no s/x.zt --shard 1/2|convert --each m n.safetensors -fo e/
            convert m -o safe/ --to safetensors|convert n.safetensors --dtype f16 -fo h.zt|convert n.safetensors -o m.zt|join s/x-00001-of-00002.zt --missing
            join s/x-00001-of-00002.zt s/x-00002-of-00002.zt -fo s/x.zt|inspect m.zt|inspect m.zt n.safetensors|inspect m.zt --stats|inspect m.zt --html p.html
            inspect s/x.zt.index.json|show m.zt w|show m.zt gone|verify m.zt|verify d.zt|verify m.zt --against m|verify m.zt --against n.safetensors --files none
            verify m|extract m.zt -o x.npz|extract m.zt -o npy/|extract m.zt -o back/ --to safetensors|extract m.zt config.json -o c.json|extract m.zt -no y.npz
            diff m.zt m|diff m.zt n.safetensors --atol 9|diff m.zt n.safetensors --attributes all|id m.zt
            inspect --help|--version|frob|convert""".replace("\n", "|").split("|")
        seen = set()
        for line in lines:
            words = line.split()
            process = self.run_program(*words, "--json")
            for result in map(json.loads, process.stdout.splitlines() or self.fail(line)):
                seen |= {words[0]} if result["ok"] else {"error"}
        self.assertEqual(seen - {"--version"} | {"apply"}, {row["name"] for row in self.json("--help", "--json")["commands"]} | {"error"})

    def test_one_name_means_one_thing(self):
        kinds, names = {}, set()

        def walk(node):
            names.update(node.get("properties", {}))
            for each in node.values():
                for inner in each if isinstance(each, list) else [each]:
                    if isinstance(inner, dict):
                        walk(inner)
        schema = json.loads((DATA.parents[1] / "docs/output.schema.json").read_bytes())
        walk(schema)
        for result in schema["anyOf"]:  # what a command prints, without what is within that
            for name, each in schema["$defs"][result["$ref"].rpartition("/")[2]]["properties"].items():
                kinds.setdefault(name, set()).add(each.get("type") or str(each.get("$ref")).replace("#/$defs/paths", "array"))
        self.assertEqual({name: kind for name, kind in kinds.items() if len(kind) > 1 and name not in ("schema", "cmd")}, {})
        page = (DATA.parents[1] / "docs/man/ztstream.1.in").read_text().partition(".SH JSON")[2]
        self.assertEqual([name for name in names if not re.search(rf"\b{name}\b", page)], [])

    def test_json_has_names_as_they_are(self):
        """In what is escaped for a terminal, JSON's own escapes; in errors as in results."""
        for point in (0x3164, 0x115f, 0xffa0, 0x034f, 0xfe0f, 0x17b4, 0x180b, 0x2800, 0xa0, 0x2003, 0x2065, 0xfff0, 0x3000):
            listed = self.succeed("inspect", self.safetensors("u.safetensors", {f"w {chr(point)}é": ("U8", [1], b"x")}))
            self.assertIn(f"w \\u{point:04x}é".encode(), listed)
        for point in (0xe0100, 0xe0000):
            listed = self.succeed("inspect", self.safetensors("u.safetensors", {f"w{chr(point)}é": ("U8", [1], b"x")}))
            self.assertIn(f"w\\U{point:08x}é".encode(), listed)
        for name in ("a\u009b\u202e\x7f\ufeff é路😀", "a\u200b\u200f\u2066\U000e0041b", "it's 'x': \\x41\\",
                     "a\nb\tc\x01", "'", "\\'", "long " * 100):
            with self.subTest(name):
                huge = self.safetensors("huge.safetensors", {name: ("F32", [1], struct.pack("<f", 1e38))})
                listed = self.succeed("inspect", "--json", huge)
                self.check_printable(listed, b"")
                self.assertEqual(json.loads(listed)["objects"][0]["name"], name)
                process = self.run_program("convert", huge, "-o", self.path("h.zt"), "--dtype", "f16", "--json")
                self.check_printable(process.stdout, process.stderr)
                self.assertEqual(json.loads(process.stdout)["error"]["tensor"], name)
        self.assertIn(rb"\u009b\u202e\u007f\ufeff", self.succeed(
            "inspect", "--json", self.safetensors("n.safetensors", {"\u009b\u202e\x7f\ufeff": ("U8", [1], b"x")})))
        # An attribute that is not whole is cut after a character; text is what it was in the file.
        for shift in range(4):
            text = "x" * shift + "é路" * 200
            shown = self.succeed("inspect", self.put("t.zt", make_zt.encode_1({}, attributes={"t": text}))).decode()
            self.assertRegex(shown, r'  t: "x*(é路)+é?\.\.\.\n')
        value = {"n": None, "b": [True, False], "i": [0, -1, 2**64 - 1, -2**63, 1.5, 1e300], "s": "\u202e\"\\",
                 "y": b"\x00\xff", "e": [{}, [], ""]}
        file = self.put("v.zt", make_zt.encode_1({"t": {"shape": [1], "attributes": value, "components": {
            "data": {"dtype": "u8", "data": b"x"}}}}, attributes=value))
        want = dict(value, y={"$bytes": "00ff"})
        listed = self.json("inspect", "--json", file)
        self.assertEqual((listed["attributes"], listed["objects"][0]["attributes"]), (want, want))

    def test_metadata_of_gguf_is_listed_a_key_a_line(self):
        model = self.path("m.zt")
        self.succeed("convert", DATA / "gguf/little.gguf", "-o", model)
        for file in (DATA / "gguf/little.gguf", model):
            lines = self.succeed("inspect", file).decode().splitlines()
            self.assertEqual(lines[1:5], ["  gguf: 7 keys", '    general.architecture: "llama"', '    general.name: "tiny"',
                                          "    tiny.block_count: 3"])
            self.assertEqual(lines[7], '    tiny.list: ["string",["a","bb","ccc"]]')
        # Attributes that only look like it are listed as others are.
        for value in (1, {"kv": 1}, {"kv": [["a"]]}, {"kv": [[1, 2, 3]]}):
            file = self.put("v.zt", make_zt.encode_1({}, attributes={"gguf": value}))
            self.assertIn("  gguf: " + json.dumps(value, separators=(",", ":")), self.succeed("inspect", file).decode())

    def test_a_reader_that_goes_away_is_no_error(self):
        tensors = {f"tensor.{i:06d}": ("U8", [0], b"") for i in range(20_000)}
        source = self.safetensors("many.safetensors", tensors)
        for option in ("--quiet", "--json", "--tree"):
            process = subprocess.run(["bash", "-c", '"$0" inspect "$1" "$2" | head -n 1 >/dev/null; '
                                      'echo "${PIPESTATUS[0]}"', PROGRAM, source, option], capture_output=True)
            self.assertEqual((process.stdout, process.stderr), (b"0\n", b""), option)


class NotAModel(support.EndToEnd):

    def zip(self, *names):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in names:
                archive.writestr(name, b"x")
        return buffer.getvalue()

    def test_kinds_are_named(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
        cases = [
            (pointer, "git lfs pull"), (b"\n<!DOCTYPE html><html><head>", "HTML page"),
            (b"Entry not found", "server's error message"), (gzip.compress(b"x" * 99), "gzip"),
            (b"\x28\xb5\x2f\xfd" + bytes(20), "zstd"),
            (self.zip("m/data.pkl", "m/archive_format"), "exported program"),
            (self.zip("readme"), "no .npy array"),
            (b'{"a": [1, 2]}', "JSON"),
            (b"\x08\x01\x12\xa3\xc2\x0c\x0a" + bytes(50), "TensorFlow"),
            (b"\x82\xa6params\x81\xa5dense" + bytes(20), "msgpack"), (bytes(257) + b"ustar\0" + bytes(300), "tar"),
            (b"tjgg" + bytes(50), "GGML"), (b'ir_version: 13\ngraph {\n  name: "g"\n', "text of an ONNX model"),
            (b"<\n   ir_version: 13,\n>\ng () => ()", "text of an ONNX model")]
        cases += [(pickle.dumps({"a": [1.0]}, protocol), "pickle") for protocol in (2, 3, 4, 5)]
        for content, says in cases:
            file = self.put("model.safetensors", content)
            line = self.fail_with(UNSUPPORTED, "inspect", file, says=says)
            self.assertNotIn("damaged", line)
            if "zip" not in says and content[:2] != b"PK":
                self.fail_with(UNSUPPORTED, "convert", "-", "-o", self.path("o.zt"), stdin=content, says=says)
        self.fail_with(INVALID, "inspect", self.put("x", b"no format at all, just text that goes on"), says="its format is not recognised")
        self.fail_with(INVALID, "inspect", self.put("x", b""), says="empty")

    def test_a_pointer_in_a_folder(self):
        self.put("m/model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
        self.fail_with(UNSUPPORTED, "convert", self.path("m"), "-o", self.path("o.zt"), says=("git lfs pull", "model.s"))

    def test_what_is_read_from_its_end(self):
        for content, what in ((self.zip("a.npy"), "a zip archive cannot be read from a pipe; name a file"),
                              ((DATA / "zt/w123.zt").read_bytes(), "a .zt file cannot be read from a pipe; name a file")):
            for arguments in (["convert", "-", "-o", self.path("o.zt")], ["inspect", "-"], ["diff", "-"],
                              ["extract", "-", "-o", self.path("o.npz")]):
                arguments += [self.safetensors("a.safetensors", ONE)] if arguments[0] == "diff" else []
                line = self.fail_with(UNSUPPORTED, *arguments, stdin=content, says=what)
                self.assertNotIn("npz is", line)

    def test_folders_of_several_models(self):
        gguf = (DATA / "gguf/little.gguf").read_bytes()
        self.put("m/b.gguf", gguf)
        self.put("m/a.gguf", gguf)
        self.fail_with(USAGE, "convert", self.path("m"), "-o", self.path("o.zt"), says=("a.gguf", "b.gguf"))
        self.safetensors("m/c.safetensors", ONE)
        self.fail_with(USAGE, "convert", self.path("m"), "-o", self.path("o.zt"), says=("a.gguf", "c.safetensors"))
        self.succeed("convert", self.path("m"), "--from", "safetensors", "-o", self.path("o.zt"))
        self.fail_with(USAGE, "verify", self.path("o.zt"), "--against", self.path("m"), says="several formats")
        self.put("n/a.npy", b"")
        self.safetensors("n/x.safetensors", ONE)
        self.fail_with(USAGE, "inspect", self.path("n"), says=("a.npy", "x.safetensors"))
        self.safetensors("o/m.safetensors", ONE)
        self.succeed("convert", self.path("o"), "-o", self.path("o/m.zt"))  # which is no part of the checkpoint
        self.succeed("verify", self.path("o/m.zt"), "--against", self.path("o"))


class Rules(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.names = ["a.b", "a|b", "a", "b", "a/b", "$c^", "x1"]
        self.source = self.safetensors("r.safetensors", {**{name: ("F32", [1], bytes(4)) for name in self.names},
                                                         "ints": ("I64", [1], bytes(8))})

    def renamed(self, *rules):
        result = self.json("convert", "-n", "-q", "--json", self.source, *[x for r in rules for x in ("--rename", r)])
        return {row["source_name"]: row["name"] for row in result["plan"] if "source_name" in row}

    def test_rename_with_an_escaped_delimiter(self):
        self.assertEqual(self.renamed(r"s|a\|b|Z|"), {"a|b": "Z"})
        self.assertEqual(self.renamed(r"s.a\.b.Z."), {"a.b": "Z"})
        self.assertEqual(self.renamed(r"s/a\/b/c\/d/"), {"a/b": "c/d"})
        self.assertEqual(self.renamed(r"s$\$c$Z\$$"), {"$c^": "Z$^"})
        self.assertEqual(self.renamed(r"s1x\11Z1"), {"x1": "Z"})
        self.assertEqual(self.renamed(r"s/(x)(1)/\2\1/"), {"x1": "1x"})
        self.assertEqual(self.renamed(r"s/[a|]/Z/g"), {"a.b": "Z.b", "a|b": "ZZb", "a": "Z", "a/b": "Z/b"})
        self.fail_with(USAGE, "convert", "-n", self.source, "--rename", "s/a/b/i", says="unknown flag 'i'")
        self.fail_with(USAGE, "convert", "-n", self.source, "--rename", "s\\a\\b\\", says="backslash")

    def test_a_rule_that_touches_nothing_is_warned_about(self):
        cases = [(["--include", ".", "--exclude", "nope"], "--exclude 'nope' matches the name of no tensor"),
                 (["--rename", "s/nope/x/"], "--rename 's/nope/x/' matches"), (["--dtype", "nope=f16"], "no name matches"),
                 (["--dequantize", "f16"], "no tensor has GGUF blocks")]
        for options, says in cases:
            process = self.expect(DONE, "convert", self.source, "-o", self.path("o.zt"), "-f", *options)
            self.assertEqual(process.stderr.count(b"warning"), 1, process.stderr)
            self.assertIn(says.encode(), process.stderr)
            self.assertIn(says, self.json("convert", self.source, "-n", "-q", "--json", *options)["warnings"][0])
        ints = self.safetensors("i.safetensors", {"i": ("I64", [1], bytes(8))})
        process = self.run_program("convert", ints, "-o", self.path("o.zt"), "-f", "--dtype", "i32")
        self.assertIn(b"--dtype 'i32' applies to no tensor: without a pattern", process.stderr)
        for rules, unused in ((("w=keep", "w=f16"), "w=f16"), ((".=keep", "f32"), "f32"), (("f32", "w=f16", "f64"), None)):
            options = [word for rule in rules for word in ("--dtype", rule)]
            lines = self.json("convert", self.safetensors("w.safetensors", {"w": ("F32", [1], bytes(4))}), "-nq", "--json",
                              *options)["warnings"]
            self.assertEqual(lines, [f"--dtype '{rule}' applies to no tensor: an earlier rule applies to all that match"
                                     for rule in ([unused] if unused else rules[1:])])
        plan = self.json("convert", ints, "-n", "--json", "--dtype", ".=i32")["plan"]
        self.assertEqual(plan[0]["components"][0]["to"], "i32")
        process = self.run_program("convert", self.source, "-n", "-v", "--dtype", "bf16", "--exclude", "^a")
        self.assertIn(b"--dtype 'bf16': 3 tensors", process.stderr)
        self.assertIn(b"--exclude '^a': 4 tensors", process.stderr)
        process = self.run_program("convert", self.source, "-n", "-v", "--exclude", r"a\.b")
        self.assertIn(rb"--exclude 'a\.b': 1 tensor", process.stderr)  # as it was typed

    def test_a_selection_that_leaves_nothing_is_an_error(self):
        for options in (["--include", "nope"], ["--exclude", "."]):
            self.expect(USAGE, "convert", self.source, "-o", self.path("o.zt"), *options,
                        says="--include and --exclude leave no tensor of 8; 'ztstream inspect' lists the names")
            self.assertFalse(self.path("o.zt").exists())
        empty = self.safetensors("e.safetensors", {})
        self.succeed("convert", empty, "-o", self.path("e.zt"))

    def test_other_names_of_types(self):
        for theirs, ours in (("float16", "f16"), ("fp16", "f16"), ("half", "f16"), ("bfloat16", "bf16"),
                             ("torch.bfloat16", "bf16"), ("float", "f32"), ("double", "f64"), ("FP32", "f32")):
            plan = self.json("convert", self.source, "-n", "--json", "--dtype", theirs)["plan"]
            self.assertEqual(plan[0]["components"][0]["to"], ours)
        self.fail_with(USAGE, "convert", self.source, "-n", "--dtype", "flaot", says=("'flaot'", "bf16", "f8_e5m2"))

    def test_what_became_of_overflows(self):
        source = self.safetensors("o.safetensors", {"w": ("F32", [2], struct.pack("<2f", 1e6, 1))})
        for dtype, policy, says in (("f8_e4m3fn", "inf", "became NaN"), ("f8_e5m2", "inf", "became infinity"),
                                    ("f16", "inf", "became infinity"), ("f16", "saturate", "became the nearest value of its type")):
            process = self.run_program("convert", source, "-o", self.path("o.zt"), "-f", "--dtype", dtype,
                                       "--on-overflow", policy)
            self.assertIn(f"tensor 'w': 1 value did not fit and {says}".encode(), process.stderr)

    def test_arrays_of_no_matrix_in_every_command(self):
        source = self.path("bsr.npz")
        numpy.savez(source, format=b"bsr", data=numpy.ones((1, 2, 2)), indices=numpy.zeros(1, "i4"), indptr=numpy.array([0, 1]),
                    shape=numpy.array([2, 2]))
        warning = b"scipy's sparse format 'bsr' is not supported (csr, csc and coo are); the arrays of the archive stay as they are"
        self.assertIn(warning, self.run_program("convert", source, "-o", self.path("k.zt")).stderr)
        self.succeed("verify", self.path("k.zt"), "--against", source)
        self.succeed("diff", self.path("k.zt"), source)
        names = {row["name"] for row in self.json("inspect", source, "--json")["objects"]}
        self.assertEqual(names, {"data", "indices", "indptr", "shape"})
        self.succeed("extract", source, "indptr", "-o", self.path("i.npy"))
        self.assertEqual(numpy.load(self.path("i.npy")).ndim, 1)

    def taken(self, command, *words):
        """The tensors of layers.safetensors that a command takes, by --include or as operands of extract."""
        if command == "extract":
            process = self.expect(DONE, "extract", self.layers, *words, "-o", self.path("o.npz"), "-f", "-q")
            return sorted(numpy.load(self.path("o.npz")).files), process.stderr
        included = [word for each in words for word in ("--include", each)]
        process = self.expect(DONE, "convert", self.layers, "-n", "--json", *included)
        return sorted(row["name"] for row in json.loads(process.stdout)["plan"]), process.stderr

    def test_patterns_are_of_one_language(self):
        names = ["a*", "ab", "bias", "h.1.bias", "h.1.w", "h.10.bias", "h.10.w", "h.2.w", "w[0", "x.bias.y"]
        self.layers = self.safetensors("layers.safetensors", {name: ("U8", [1], b"x") for name in names})
        cases = [(["h.1.w"], ["h.1.w"]), (["bias"], ["bias"]),  # a name is a name, whatever else it matches
                 (["a*"], ["a*"]), (["w[0"], ["w[0"]),  # also where it is no regular expression
                 (["glob:a*"], ["a*", "ab"]), (["glob:*.bias"], ["h.1.bias", "h.10.bias"]),
                 (["glob:h.[12].?"], ["h.1.w", "h.2.w"]), (["glob:a[*]"], ["a*"]),
                 ([r"\.bias"], ["h.1.bias", "h.10.bias", "x.bias.y"]), ([r"^h\.1\."], ["h.1.bias", "h.1.w"]),
                 (["h.2.*"], ["h.2.w"]), (["bia"], ["bias", "h.1.bias", "h.10.bias", "x.bias.y"]),
                 ([".*"], names), (["glob:*"], names), (["bias", "glob:h.2.*", "ab"], ["ab", "bias", "h.2.w"])]
        for words, want in cases:
            for command in ("convert", "extract"):
                self.assertEqual(self.taken(command, *words), (sorted(want), b""), (command, words))
        got, errors = self.taken("convert", "h.1.*")
        self.assertEqual(got, ["h.1.bias", "h.1.w", "h.10.bias", "h.10.w"])
        self.assertEqual(errors, b"ztstream: warning: --include 'h.1.*' is a regular expression and matches 4 tensors; a "
                         b"shell pattern, 'glob:h.1.*', matches 2\n")
        process = self.expect(DONE, "extract", self.layers, "h.1.*", "-o", self.path("o.npz"), "-f")
        self.assertIn(b"warning: 'h.1.*' is a regular expression and matches 4 tensors", process.stderr)

    def test_patterns_that_mean_nothing(self):
        self.layers = self.safetensors("layers.safetensors", {"ab": ("U8", [1], b"x"), "b": ("U8", [1], b"y")})
        for word, says in (("q", "no tensor matches 'q'; ztstream inspect lists them"), ("glob:q*", "no tensor matches 'glob:q*'"),
                           ("q*", "'q*' matches every name as a regular expression; a shell pattern is written 'glob:q*'"),
                           ("*.bias", "'*.bias' is not a tensor's name, and as a regular expression: no argument for repetition "
                            "operator, at '*'; a shell pattern is written 'glob:*.bias'"), ("(", "missing ), at '('\n")):
            self.fail_with(USAGE, "extract", self.layers, word, "-o", self.path("o.npz"), says=says)
            if word[-1] != "q" and ":" not in word:
                self.fail_with(USAGE, "convert", self.layers, "--include", word, "-o", self.path("o.zt"), says=says)
                self.fail_with(USAGE, "convert", self.layers, "--dtype", word + "=keep", "-o", self.path("o.zt"), says=says)
        self.fail_with(USAGE, "extract", self.layers, "b", "ab", "--exclude", "^a", "-o", self.path("o.npz"),
                       says="no tensor of those that --include and --exclude leave matches 'ab'; ztstream inspect lists them")
        plan = self.json("convert", self.layers, "-n", "--json", "--dtype", "b=i32", "--dtype", "glob:a?=u16")["plan"]
        self.assertEqual({row["name"]: row["components"][0]["to"] for row in plan}, {"ab": "u16", "b": "i32"})


class NamesAndRules(support.EndToEnd):
    """Names given back, attributes set, rules of compression, several outputs, plans of extract."""

    def listed(self, *words):
        return self.succeed("inspect", "--names", "-0", *words).decode().split("\0")[:-1]

    def test_names_are_given_back(self):
        names = ["a\nb", "a.*", "glob:a*", "w\u202e", "x y", "a", "ab"]
        source = self.safetensors("n.safetensors", {name: ("U8", [1], b"x") for name in names})
        self.assertEqual(self.succeed("inspect", "--names", source).decode(), "".join(name + "\n" for name in names))
        self.assertEqual(self.listed(source, "--exclude", "x y"), [name for name in names if name != "x y"])
        for chosen in names[:4], names[1:3], names[5:]:
            for end in ["\0"] if "a\nb" in chosen else ["\0", "\n"]:
                listed = self.put("list", end.join(chosen).encode() + end.encode())
                self.assertEqual(self.listed(source, "--include-from", listed), chosen)
                self.succeed("extract", "-fq", source, "--include-from", listed, "-o", "x.npz")
                self.assertEqual(self.listed("x.npz"), chosen)
                self.expect(DONE, "convert", source, "-fqo", "x.zt", "--include-from", "-", stdin=listed.read_bytes())
                self.assertEqual(self.listed("x.zt"), chosen)
        for options in (["--json"], ["--tree"], ["--stats"], ["--html", "x"]):
            self.expect(USAGE, "inspect", source, "--names", *options, says="--names prints nothing else")
        self.fail_with(USAGE, "inspect", source, "-0", says="--null does nothing without --names")
        self.fail_with(USAGE, "convert", source, "-o", "x.zt", "--include-from", self.put("list", b"\n"), says="list: it has no line")
        self.fail_with(IO, "convert", source, "-o", "x.zt", "--include-from", "gone", says="gone: cannot open")
        self.fail_with(USAGE, "convert", source, "-o", "x.zt", "--include-from", self.folder, says="it is a folder, a file is needed")

    def test_a_name_of_a_list_is_no_regular_expression(self):
        source = self.safetensors("n.safetensors", {name: ("U8", [1], b"x") for name in ("l.1.w", "l.1.w_g", "lx1.w", "a+")})
        listed = self.put("list", b"l.1.w\n" * 1000 + b"glob:a*\n")
        self.assertEqual(self.listed(source, "--include-from", listed), ["l.1.w", "a+"])
        self.expect(USAGE, "convert", source, "-o", "x.zt", "--include-from", self.put("list", b"l.1\nx1\n"), says="leave no tensor of 4")

    def test_misspelt_names_are_told_from_the_nearest(self):
        source = self.safetensors("n.safetensors", {name: ("F32", [1], bytes(4)) for name in ("block.weight", "block.bias")})
        meant = "; did you mean 'block.weight'?"
        for words in (["extract", source, "blokc.weight", "-o", "x.npz"], ["show", source, "block.wieght"], ["inspect", source, "blck.weight"]):
            self.fail_with(USAGE, *words, says=meant)
        for words in (["convert", source, "-n"], ["diff", source, source], ["id", source], ["inspect", source]):
            for option in ("--exclude", "--include"):
                process = self.run_program(*words, option, "blokc.weight")
                self.assertIn(f"{option} 'blokc.weight' matches the name of no tensor{meant}", process.stderr.decode(), words)
        self.assertIn(meant, self.run_program("convert", source, "-n", "--dtype", "blokc.weight=f16").stderr.decode())
        self.assertNotIn("mean", self.run_program("convert", source, "-n", "--exclude", "elsewhere").stderr.decode())

    def test_attributes_are_set_and_left_out(self):
        source = self.safetensors("a.safetensors", ONE, {"by": "me", "format": "pt"})
        options = ["--set", "n=3", "--set", "name=a=b", "--set", 'text="3"', "--set", "by=you", "--set", "on=true", "--set", 'm={"k":[1,null]}',
                   "--set", 'odd=1,"x":2', "--unset", "format"]
        self.succeed("convert", source, "-o", "a.zt", *options)
        self.assertEqual(self.json("inspect", "a.zt", "--json")["attributes"],
                         {"by": "you", "n": 3, "name": "a=b", "text": "3", "on": True, "m": {"k": [1, None]}, "odd": '1,"x":2'})
        self.succeed("verify", "a.zt", "--against", source, *options)
        self.expect(DIFFERS, "verify", "a.zt", "--against", source, says="attribute of the file 'by'")
        self.succeed("extract", "a.zt", "-o", "b.safetensors", "--unset", "m", "--unset", "on", "--unset", "n", "--set", "by=us")
        self.assertEqual(self.json("inspect", "b.safetensors", "--json")["attributes"],
                         {"by": "us", "format": "pt", "name": "a=b", "text": "3", "odd": '1,"x":2'})  # which extract adds
        self.assertIn(b"--unset 'gone' names no attribute of the file", self.run_program("convert", source, "-n", "--unset", "gone").stderr)
        for word, says in (("=x", "write KEY=VALUE"), ("x", "write KEY=VALUE"), ("ztstream.folder=x", "attributes of ztstream are its own")):
            self.fail_with(USAGE, "convert", source, "-n", "--set", word, says=says)
        self.fail_with(USAGE, "convert", "a.zt", "-fo", "a.zt", "--unset", "by", says="it is an input")
        said = self.fail_with(USAGE, "convert", source, "-o", "old.zt", "--spec", "0.1", "--set", "n=3", "--no-metadata", says="; leave out --set")
        self.assertNotIn("--no-metadata", said)

    def test_rules_of_compression(self):
        weights = numpy.random.default_rng(1).normal(0, 0.02, 1 << 14).astype("<f4").tobytes()
        source = self.safetensors("a.safetensors", {name: ("F32", [1 << 14], weights[at:] + weights[:at])
                                                    for at, name in enumerate(("embed", "h.0", "h.1", "norm"))} |
                                  {"zero": ("U8", [1 << 16], bytes(1 << 16))})

        def encodings(*options, of=source):
            self.succeed("convert", "-fq", of, "-o", "o.zt", *options)
            self.succeed("verify", "o.zt", "--against", source)
            return {row["name"]: row["components"][0]["encoding"].split(".")[-1].split("/")[0] for row in self.json("inspect", "--json", "o.zt")["objects"]}
        self.assertEqual(encodings("--zstd=h=planes", "--zstd=zero=9"),
                         {"embed": "raw", "h.0": "planes", "h.1": "planes", "norm": "raw", "zero": "zstd"})
        self.succeed("convert", source, "-o", "p.zt", "--zstd=planes")
        self.assertEqual(encodings("--zstd=embed=raw", of="p.zt"),  # the others stay as they are
                         {"embed": "raw", "h.0": "planes", "h.1": "planes", "norm": "planes", "zero": "zstd"})
        self.assertEqual(encodings("--zstd=embed=raw", "--zstd=e=planes", "--zstd"),  # the first that applies
                         {"embed": "raw", "h.0": "zstd", "h.1": "zstd", "norm": "zstd", "zero": "planes"} | {"zero": "zstd"})
        for options, says in ((["--zstd=a=3", "--zstd=b=4"], "--zstd: a file has one level, and these are 3 and 4"),
                              (["--zstd", "--zstd=3"], "--zstd is given twice for all tensors"), (["--zstd=a=x"], "'x' is not a level, huffman or planes"),
                              (["--zstd=raw"], "'raw' is not a level"), (["--zstd==3"], "no word is before '='"),
                              (["--zstd=h=planes", "--spec=1.1"], "which --spec 1.1 does not have")):
            self.fail_with(USAGE, "convert", source, "-n", *options, says=says)
        for options, says in ((["--zstd=hx=3"], "--zstd 'hx=3' applies to no tensor: no name matches"),
                              (["--zstd=.=3", "--zstd=h=raw"], "--zstd 'h=raw' applies to no tensor: an earlier rule applies to all that match")):
            self.expect(DONE, "convert", source, "-n", *options, says=says)

    def test_each_input_has_its_output(self):
        first, second = (self.safetensors(f"{name}.safetensors", ONE | {name: ("U8", [1], b"x")}) for name in "ab")
        folder = self.safetensors("m/model.safetensors", ONE).parent
        self.succeed("convert", "--each", first, second, folder, "-qo", "out/new/")
        self.assertEqual(self.entries(self.path("out/new")), ["a.zt", "b.zt", "m.zt"])
        for name in "ab":
            self.succeed("diff", f"{name}.safetensors", f"out/new/{name}.zt")
        self.expect(EXISTS, "convert", "--each", first, second, "-o", "out/new", says=("out/new/a.zt: ", "out/new/b.zt: "))
        process = self.expect(IO, "convert", "--each", "gone", second, "-fo", "out", "--json", says="gone")
        self.assertEqual([json.loads(line)["ok"] for line in process.stdout.splitlines()], [False, True])
        self.assertEqual(self.entries(self.path("out")), ["b.zt", "new"])
        process = self.expect(DONE, "convert", "--each", first, second, "-no", "none", "--json")
        self.assertEqual([json.loads(line)["output"]["path"] for line in process.stdout.splitlines()], ["none/a.zt", "none/b.zt"])
        self.assertNotIn(b"warning", process.stderr)
        self.expect(DONE, "convert", "--each", first, "-no", "out/b.zt/none", says="without --dry-run this fails: out/b.zt/none: ")
        self.assertFalse(self.path("none").exists())
        for words, says in (([first, self.safetensors("x/a.safetensors", ONE)], "o/a.zt: two inputs would be written there"),
                            ([first, "-"], "give -o OUT/, and no pipes"), ([first, "--shards", "2"], "--each writes one file an input")):
            self.fail_with(USAGE, "convert", "--each", *words, "-o", "o/", says=says)

    def test_each_and_other_inputs(self):
        """No run of --each writes over what another reads."""
        first = self.safetensors("w.safetensors", {"w": ("U8", [1], b"1")})
        self.path("d").mkdir()
        self.succeed("convert", self.safetensors("other.safetensors", {"x": ("U8", [1], b"2")}), "-qo", "d/w.zt")
        self.path("link.zt").symlink_to("d/w.zt")
        before = self.path("d/w.zt").read_bytes()
        for second in ("link.zt", "d"):
            self.fail_with(USAGE, "convert", first, second, "--each", "-fo", "d/", says="d/w.zt: it is, or lies in, an input")
            self.assertEqual(self.path("d/w.zt").read_bytes(), before)
        self.fail_with(USAGE, "convert", first, "--each", "-o", "-", says="give -o OUT/")

    def test_a_signal_between_outputs(self):
        """After the first of --each is complete, a signal ends the run, and says so."""
        first, second = (self.safetensors(f"{name}.safetensors", ONE) for name in "ab")
        os.mkfifo(self.path("lines"))
        full = os.open(self.path("lines"), os.O_RDWR | os.O_NONBLOCK)
        with self.assertRaises(BlockingIOError):  # so that the line of the first output waits for its reader
            while True:
                os.write(full, b"x" * 4096)
        process = subprocess.Popen([PROGRAM, "convert", first, second, "--each", "--json", "-o", "out/"], cwd=self.folder, stderr=subprocess.PIPE,
                                   stdout=os.open(self.path("lines"), os.O_RDWR))
        until = time.monotonic() + 30
        while not self.path("out/a.zt").exists() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        threading.Thread(target=lambda: [os.read(full, 1 << 20) for _ in range(2)], daemon=True).start()
        process.communicate(timeout=30)
        self.assertEqual((process.returncode, self.entries(self.path("out"))), (INTERRUPTED, ["a.zt"]))

    def test_extract_prints_its_plan(self):
        source = self.safetensors("a.safetensors", {"w": ("F32", [2, 1], bytes(8)), "b": ("I64", [1], bytes(8))})
        self.safetensors("m/model.safetensors", ONE)
        self.put("m/config.json", b"{}")
        self.succeed("convert", "m", "-qo", "m.zt")
        before = self.entries()
        for words, says in (([source, "-o", "x.npz"], "w  f32 [2, 1]  8 B\nb  i64 [1]  8 B\nx.npz: 2 tensors, 16 B in, "),
                            ([source, "w", "-o", "x.npz", "--dtype", "f16"], "w  f16 [2, 1]  4 B\nx.npz: 1 tensor, 4 B in, "),
                            ([source, "-o", "x/"], "x/: 2 tensors, 16 B in, "), (["m.zt", "config.json", "-o", "c"], "c: 0 tensors, 1 file, "),
                            (["m.zt", "-o", "x/", "--to", "safetensors"], "x/: 1 tensor, 1 file, ")):
            self.assertIn(says, self.succeed("extract", "-n", *words).decode())
            self.assertIs(self.json("extract", "-n", "--json", *words)["dry_run"], True)
        self.fail_with(EXISTS, "extract", "-n", source, "-o", source, says="exists already")
        self.fail_with(USAGE, "extract", "-n", source, says="-o OUT is missing")
        self.assertEqual(self.entries(), before)


class Inputs(support.EndToEnd):
    """Standard input and named pipes where files are."""

    def given(self, how, path, *words):
        """(exit status, standard output with the file's name as INPUT) of a command to which "INPUT" is given in this way."""
        self.runs = getattr(self, "runs", 0) + 1
        pipe, stdin = self.path(f"pipe{self.runs}"), None
        name = {"file": str(path), "fifo": str(pipe)}.get(how, "-")
        if how == "fifo":
            os.mkfifo(pipe)
            writer = subprocess.Popen(["dd", f"if={path}", f"of={pipe}", "status=none"], stderr=subprocess.DEVNULL)
        if how == "pipe":
            stdin = path.read_bytes()
        words = [name if word == "INPUT" else word for word in words]
        if how == "redirected":
            with open(path, "rb") as opened:
                process = subprocess.run([PROGRAM, *map(str, words)], stdin=opened, capture_output=True, cwd=self.folder)
        else:
            process = self.run_program(*words, stdin=stdin)
        if how == "fifo":
            writer.terminate()  # where nobody has opened the pipe
            writer.wait()
        said = re.sub(rb"[0-9.]+ (s|[KMG]?i?B/s)\b", b"", process.stdout + process.stderr).decode()
        said = re.sub(r"p.html: 2 tensors, .*", "p.html", said.replace(name if name != "-" else "standard input", "INPUT"))
        return process.returncode, re.sub(r"(^|ztstream: )-: ", r"\1INPUT: ", said, flags=re.M)

    def test_every_form_in_every_command(self):
        source = self.safetensors("a.safetensors", {"w": ("F32", [2], struct.pack("<2f", 1, 2)), "b.qweight": ("I32", [1, 1], bytes(4))}, {"k": "v"})
        self.succeed("convert", source, "-o", "a.zt")
        self.succeed("convert", source, "-o", "b.zt", "--spec", "2.0")
        commands = [["convert", "INPUT", "-fo", "o.zt"], ["convert", "-n", "INPUT"], ["inspect", "INPUT"], ["inspect", "--stats", "INPUT"],
                    ["inspect", "--names", "INPUT"], ["inspect", "INPUT", "-f", "--html", "p.html"], ["show", "INPUT", "w"], ["verify", "INPUT"],
                    ["verify", "a.zt", "--against", "INPUT"], ["extract", "INPUT", "-fo", "o.npz"], ["diff", "INPUT", "a.zt"],
                    ["diff", "b.zt", "INPUT"], ["id", "INPUT"]]
        for command in commands:
            for path in (source, self.path("a.zt"), self.path("b.zt")):
                want = self.given("file", path, *command)
                for how in ("redirected", "fifo", "pipe"):
                    status, said = self.given(how, path, *command)
                    with self.subTest(command=command, path=path.name, how=how):
                        if how != "redirected" and (path != source or command[:2] == ["verify", "INPUT"]):
                            self.assertEqual((status, said), (UNSUPPORTED, "ztstream: INPUT: a .zt file cannot be read from a pipe; name a file\n"))
                        else:
                            self.assertEqual((status, said), want)

    def test_what_a_pipe_is_not_for(self):
        source = self.safetensors("a.safetensors", ONE)
        os.mkfifo(self.path("p"))
        self.fail_with(USAGE, "convert", "p", "p", "-o", "o.zt", says="p can be given once")
        self.fail_with(USAGE, "convert", "-", "-", "-o", "o.zt", says="standard input can be given once")
        self.fail_with(UNSUPPORTED, "join", "p", "-o", "o.zt", says="p: a .zt file cannot be read from a pipe; name a file")
        self.succeed("convert", source, "--base", source, "-o", "d.zt")
        self.fail_with(UNSUPPORTED, "convert", source, "--base", "p", "-o", "o.zt", says="a base cannot be read from a pipe; name a file")

    def test_two_pipes_are_one_model(self):
        for name in "ab":
            os.mkfifo(self.path(name))
            content = make_safetensors.encode({name: ("U8", [1], name.encode())})
            writer = subprocess.Popen([sys.executable, "-Sc", "import sys; open(sys.argv[1], 'wb').write(bytes.fromhex(sys.argv[2]))",
                                       self.path(name), content.hex()])
            self.addCleanup(writer.wait)
        self.succeed("convert", "a", "b", "-qo", "o.zt")
        self.assertEqual(self.succeed("inspect", "--names", "o.zt"), b"a\nb\n")


# Values that are not the default's, for options whose words the table does not have, or has others first.
VALUES = {"align": "4096", "min-gain": "99", "chunk": "64KiB", "part-size": "5MiB", "shards": "2", "shard-size": "4KiB", "shard": "1/2",
          "include": "a", "exclude": "a", "rename": "s/^/new/", "atol": "1e9", "rtol": "1e9", "variant": "fp16", "threads": "2", "memory": "1MiB",
          "profile": "me", "region": "here", "header": "x-amz-a=b", "set": "k=other", "unset": "k", "files": "*.txt", "from": "npy",
          "zstd": "19", "spec": "2.0", "dtype": "f16", "sort": "size", "on-overflow": "saturate", "quant": "group", "attributes": "all",
          "npy-void": "bf16", "digest": "sha256", ("id", "digest"): "xxh3", "dequantize": "bf16", "to": "gguf", ("convert", "to"): "safetensors"}
# What has to be there for an option to change anything: others, and operands.
SETTINGS = {"chunk": ["--zstd"], "min-gain": ["--zstd"], "on-overflow": ["--dtype=f16"], "allow-loss": ["--dtype=.=i32", "--include=^big"],
            ("inspect", "force"): ["--html=out/o.zt"], ("inspect", "no-sync"): ["--html=out/p"], "null": ["--names"], "quiet": ["--exclude=nope"],
            ("convert", "verbose"): ["--include=."], ("extract", "verbose"): ["glob:n.*"]}
ON_S3 = ("header", "profile", "region", "endpoint-url", "no-sign-request")
# Options of which nothing can be seen here, of all kinds of input or of some.
TRACELESS = {
    "threads": "the output is the same: that is its promise", "memory": "the output is the same: that is its promise",
    "no-sync": "only a crash of the machine would tell", "progress": "nothing lasts a tenth of a second; Progress has it",
    "header": "a server would see it; s3_test has one",
    ("extract", "set"): "an npz has no attributes", ("extract", "unset"): "an npz has no attributes",
    ("inspect", "verbose"): "the input has no more to say",
    "region": "it is within a signature, which a server would see; identity_test has one",
    ("show", "quiet"): "what show prints is its result; warnings are those of other kinds of input",
    **{f"follow-links {kind}": "it is a permission, and a file has no link" for kind in ("safetensors", "npz", "gguf", "zt")},
    **{f"raw {kind}": "nothing is compressed, as it says" for kind in ("safetensors", "npz", "gguf", "folder")},
    **{f"no-metadata {kind}": "it has none, as it says" for kind in ("npz", "gguf")}}


class Options(support.EndToEnd):
    """ZT_COUNT triples of command, option and kind of input, drawn from the program's table of options."""

    def setUp(self):
        super().setUp()
        noise = numpy.random.default_rng(1).normal(0, 0.02, 51200).astype("<f4")

        def model(step):
            return ({"a": ("I32", [1], bytes(4)), "w": ("F32", [51200], (noise + numpy.float32(step)).tobytes()),
                     "big": ("F32", [2], struct.pack("<2f", 1e38, 0.5)), **{f"n.{i}": ("F32", [1], struct.pack("<f", i + step)) for i in range(24)}})
        self.other = self.safetensors("b.safetensors", model(1), {"k": "other"})
        plain = self.safetensors("a.safetensors", model(0), {"k": "v"})
        folder = self.safetensors("f/model.safetensors", model(0), {"k": "v"}).parent
        self.put("f/config.json", b"{}")
        linked = self.path("l/model.safetensors")
        linked.parent.mkdir()
        linked.symlink_to(plain)
        self.succeed("convert", "-q", folder, "-o", "a.zt", "--zstd")
        for suffix in ("npz", "gguf"):
            self.succeed("extract", "-q", "a.zt", "-o", f"a.{suffix}")
        numpy.savez(self.path("void.npz"), w=numpy.zeros(2, "V2"))
        self.path("s").mkdir()
        self.succeed("convert", "-q", plain, "-o", "s/x.zt", "--shards", "2")
        self.path("s/x.zt.index.json").unlink()
        self.kinds = {"safetensors": plain, "folder": folder, "zt": self.path("a.zt"), "npz": self.path("a.npz"), "gguf": self.path("a.gguf")}
        self.servers = [http.server.HTTPServer(("127.0.0.1", 0), type("Says", (http.server.BaseHTTPRequestHandler,), {
            "do_GET": lambda asked, status=status: asked.send_error(status), "do_HEAD": lambda asked, status=status: asked.send_error(status),
            "log_message": lambda *_: None})) for status in (403, 404)]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
        self.sources = {("follow-links", "folder"): linked.parent, ("npy-void", "npz"): self.path("void.npz")}

    def at(self, server):
        return f"http://127.0.0.1:{self.servers[server].server_port}"

    def run_in(self, *words, there=False, keys=None):
        """Exit status, texts and files of a run beside a folder of its own, out, which has the shards of x.zt and may have its outputs."""
        shutil.rmtree(self.path("out"), ignore_errors=True)
        shutil.copytree(self.path("s"), self.path("out"))
        for name in ("o.zt", "o.npz", "x.zt.index.json") if there else ():
            self.put("out/" + name, b"older")
        done = self.run_program(*words, env={
            "AWS_ENDPOINT_URL": self.at(0), "AWS_CONFIG_FILE": "/dev/null", "AWS_REGION": "there", "AWS_EC2_METADATA_DISABLED": "true", **(keys or {})})
        texts = [re.sub(rb"[0-9.]+ (s|[KMG]?i?B/s)\b|\"wall_s\":[^}]*", b"", text) for text in (done.stdout, done.stderr)]
        return done.returncode, texts, {str(each): each.read_bytes() for each in sorted(self.path("out").rglob("*")) if each.is_file()}

    def test_none_is_ignored_in_silence(self):
        table = self.json("--help", "--json")["options"]
        rows = [(command, row) for row in table for command in row["commands"] if not row["operand"] and row["name"] != "output"
                and command != "apply"]  # tried in a test of its own: it changes its input
        rng, tried, silent = random.Random(int(os.environ.get("ZT_SEED", 1))), 0, []
        while tried < int(os.environ.get("ZT_COUNT", 60)):
            (command, row), kind = rng.choice(rows), rng.choice([*self.kinds])
            name = row["name"]
            source = "s3://bucket/key" if name in ON_S3 else self.sources.get((name, kind), self.kinds[kind])
            words = {"convert": [source, "-o", "out/o.zt"], "extract": [source, "-o", "out/o.npz"], "diff": [source, self.other],
                     "show": [source, "w[:1]"], "verify": [self.path("a.zt"), "--against", source],
                     "join": [self.path("out/x-00001-of-00002.zt"), self.path("out/x-00002-of-00002.zt"), "-o", "out/x.zt"]}.get(command, [source])
            words += SETTINGS.get((command, name), SETTINGS.get(name, []) if command not in ("show", "join") else [])
            if (command, name) in (("verify", "against"), ("verify", "canonical")):
                words = words[:1]
            option = "--" + name
            if row["value"]:
                value = VALUES.get((command, name)) or VALUES.get(name) or (
                    self.at(1) if name == "endpoint-url" else self.put("list", b"w\n") if name == "include-from" else "out/p" if name == "html" else
                    self.kinds["zt"] if "@files" in row["words"] else row["words"][-1])
                option += f"={value}"
            more = {"there": name == "force", "keys": {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"} if name == "endpoint-url" else {}}
            before = self.run_in(command, *words, **more)
            excused = any(TRACELESS.get(each) for each in (name, (command, name), f"{name} {kind}"))
            tried += 1
            if not excused and self.run_in(command, *words, option, **more) == before:
                silent.append((command, option, kind))
            self.assertTrue(excused or before[0] != USAGE or name in ("dry-run", "quiet", "json", "help"), (command, words, before[1]))
        self.assertEqual(silent, [])


class CommandLine(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.source = self.safetensors("a.safetensors", ONE)

    def test_words_that_are_wrong_are_named(self):
        cases = [(["conver", "a"], "'conver' is not a command; did you mean 'convert'? See ztstream --help"),
                 (["bench", "a", "--for", "70GB"], "'bench' is not a command; commands are convert, join"),
                 (["help", "--ztsd"], "'--ztsd' is not an option; did you mean --zstd?"),
                 (["frobnicate"], "commands are convert, join, inspect, show, verify"),
                 (["convert", "--ztsd", "a", "-o", "b"], "'--ztsd' is not an option of convert; did you mean --zstd? "
                  "See ztstream convert --help"),
                 (["extract", "a", "--ouput", "b"], "did you mean --output?"),
                 (["inspect", "a", "--zzz"], "'--zzz' is not an option of inspect; see ztstream inspect --help"),
                 (["convert", "a", "--zstd", "5", "-o", "b"], "--zstd takes its level after '=': --zstd=5"),
                 (["convert", "a", "-o", "b", "--digest", "md5"], "--digest: 'md5' is not none, crc32c, sha256 or xxh3; see"),
                 (["convert", "a", "-o", "b", "--chunk", "3 apples"], "--chunk"),
                 (["convert", "a", "-o", "b", "--zstd", "--min-gain", "101"], "--min-gain"),
                 (["convert", "a", "-o", "b", "--threads", "5000"], "--threads"),
                 (["convert", "a"], "-o OUT is missing: the .zt file, or - for standard output; see"), (["verify"], "FILE is missing: the file, or a folder of shards; see ztstream verify --help"),
                 (["convert", "-o"], "-o needs a value, OUT; see ztstream convert --help"),
                 (["convert", "a", "--out", "b"], "'--out' is not an option of convert; did you mean --output?"),
                 (["convert", "a", "--zstd", "-o", "b", "--zstd=3"], "--zstd is given twice for all tensors"),
                 (["convert", "a", "--force=1"], "--force takes no value; see"),
                 (["inspect", "a", "--memory", "1"], "--memory: '1' is too small; the least is 64.00 KiB; see"),
                 (["convert", "a", "-o", "a.safetensors", "--dtype", "fp8"], "did you mean f8_e4m3fn?"),
                 (["inspect", "a", "--npy-void", "fp8"], "--npy-void: 'fp8' is not a type; types are f64, f32"),
                 *((["convert", "a", "-o", "b", "--dtype", name], "complex128; ztstream does not quantize")
                   for name in ("int4", "Q4_0", "nf4")),
                 (["join", self.folder, "-o", "m.zt"], f"{self.folder}: it is a folder; name the shards in it: {self.folder}/*-of-*.zt"),
                 (["convert", self.folder, "-o", "b", "--from", "PyTorch"], "the folder holds no checkpoint of format torch: no *.bin file"),
                 (["inspect", self.put("t/m.pt", b"x").parent], "or *.zt.index.json file; name the files in it"),
                 (["inspect", self.put("z/m.zt", b"x").parent], "file; name the files in it"),
                 (["inspect", self.put("s/snapshots/0123/config.json", b"{}").parents[2]], "s: the folder holds no checkpoint"),
                 (["inspect", [self.put(f"models--x--y/{name}", b"{}") for name in ("snapshots/0123/config.json", "refs/main")][1].parents[1]],
                  "the folder is a model's in a hub's cache; name one of its revisions: "),
                 (["convert", "a", "-o", "b", "--zstd=30"], "ztstream: --zstd: zstd level 30"),
                 (["convert", "a", "-o", "b", "--zstd", "--chunk", "1"], "ztstream: --chunk: "),
                 (["convert", "a", "-o", "b", "--zstd=30", "--chunk", "64KiB"], "ztstream: --zstd: "),
                 (["convert", "a", "--on-overflow", "eror", "-n"], "'eror' is not error, inf or saturate; did you mean error?"),
                 ([], "a command is missing: convert, join, inspect"), (["inspect", "a", "--from", "csv"], "--from: 'csv' is not safetensors, npy, npz, gguf, torch, onnx, hdf5 or zt; see"),
                 (["convert", "a.safetensors", "-o", "q.npz"], "'ztstream extract' writes those"),
                 # as other programs have it
                 (["convert", "a", "-19", "-o", "b"], "'-19' is not an option of convert; levels are --zstd=19"),
                 (["convert", "-d", "a"], "'-d' is not an option of convert; 'ztstream extract' writes tensors back"),
                 (["-t", "a.zt"], "'-t' is not an option; 'ztstream verify' checks a file"),
                 (["-l", "a.zt"], "'ztstream inspect' lists a file"), (["convert", "-c", "a"], "-o - is standard output"),
                 # what does nothing there
                 (["convert", "a", "-o", "b", "--chunk", "1MiB"], "ztstream: --chunk does nothing without --zstd; see ztstream convert --help"),
                 (["convert", "a", "-o", "b", "--min-gain", "5"], "--min-gain does nothing without --zstd;"),
                 *(([command, "a", *more, "--on-overflow", "inf"], "--on-overflow does nothing without --dtype or --dequantize; see")
                   for command, *more in (("convert", "-o", "b"), ("extract", "-o", "b.npz"), ("verify", "--against", "a"))),
                 (["extract", "a", "-o", "b.npz", "--dequantize", "f32", "--allow-loss"], "--allow-loss does nothing without --dtype;"),
                 (["inspect", "a", "-f"], "--force does nothing without --html;"), (["inspect", "a", "--no-sync"], "--no-sync does nothing without --html;"),
                 (["convert", "a", "-o", "b", "--part-size", "5MiB"], "--part-size does nothing: the output is not on s3://"),
                 (["extract", "a", "-o", "b.npz", "--resume"], "--resume does nothing: the output is not on s3://"),
                 (["verify", "a", "-v"], "'-v' is not an option of verify; convert, inspect, extract and diff have it"),
                 *((["join", "a", "-o", "b.zt", *words], f"'{words[0]}' is not an option of join;")
                   for words in (["-T", "2"], ["--memory", "1MiB"], ["--progress", "never"])),
                 # "$UNSET" means nothing, and not all
                 (["extract", "a", "", "-o", "b"], "ztstream: NAME: the word is empty; see ztstream extract --help"),
                 (["inspect", "a", ""], "FILE: the word is empty"), (["diff", "", "a"], "A: the word is empty"), (["convert", "a", "-o", ""], "--output: the word is empty"),
                 *((["convert", "a", "-o", "b", option, ""], f"{option}: the word is empty; see ztstream convert --help")
                   for option in ("--include", "--exclude", "--dtype", "--rename", "--shard", "--files", "--from", "--variant", "--profile", "--base")),
                 (["convert", self.source, "-o", "b", "--dtype", "=f16"], "--dtype '=f16': no word is before '='"),
                 (["extract", self.source, "-o", "b.npz", "--rename", "s//x/"], "REGEX is empty; ^ is the start of a name"),
                 (["verify", "a", "--against", ""], "--against: the word is empty"),
                 (["-V"], "--version tells the versions"), (["convert", "--keep", "a"], "inputs are always kept; see"),
                 (["ls", "a"], "did you mean 'inspect'?"), (["test", "a"], "did you mean 'verify'?"),
                 (["extract", "a", "-o", "b", "--quant", "keep"], "'--quant' is not an option of extract; convert and verify have it"),
                 (["verify", "a", "b"], "unexpected argument 'b': verify takes one FILE; see ztstream verify --help"),
                 (["diff", "a", "b", "c"], "unexpected argument 'c': diff takes A and B"),
                 (["diff", "a"], "B is missing: what A is compared with; see ztstream diff --help"),
                 (["convert", "a", "-o", "b", "--spec", "2"],
                  "--spec: '2' is not 2.0, 1.2, 1.1 or 0.1; see"),
                 (["convert", "a.safetensors", "-o", "b.pt"], "PyTorch files are not written; write .safetensors"),
                 (["extract", "a.safetensors", "-o", "b.pth"], "PyTorch files are not written; write .safetensors")]
        for arguments, says in cases:
            self.fail_with(USAGE, *arguments, says=says)

    def test_numbers_are_decimal_and_whole_words(self):
        names = [f"t{n}" for n in range(12)]
        source = self.safetensors("b.safetensors", {name: ("U8", [1], b"x") for name in names})
        listed = self.json("convert", source, "-n", "--json", "--shards", "010")  # ten, not eight
        self.assertEqual(listed["shards"], 10)
        self.assertEqual(self.json("convert", source, "-n", "--json", "--shard", "03/010")["shards"], 10)
        wrong = {"--shards": ("0", "-1", "+3", "0x10", "3.0", "1e2", "3 ", " 3", "3apples", "", "100000", "99999999999999999999"),
                 "--threads": ("+1", "0x2", "-1", "1025", "1.5"),
                 "--shard-size": ("0", "+1", "-1", "0x10", "1e3", "1.2.3", ".", "MiB", "0KiB", "1 MiBs", "99999999999T"),
                 "--align": ("0", "+64"), "--chunk": ("0",), "--memory": ("0", "-1"),
                 "--shard": ("+1/2", "1/2/3", "1/", "/2", "0x1/2"), "--min-gain": ("+1", "0x1", "nan", "inf", "1 ", "1e1"),
                 "--zstd": ("+3", "3.0", "0x3", "3 ", "", "Huffman", "99999999999", "20")}
        for option, texts in wrong.items():
            for text in texts:
                with self.subTest(option=option, text=text):
                    line = self.fail_with(USAGE, "convert", source, "-o", self.path("o.zt"), f"{option}={text}")
                    self.assertIn(option, line)
        self.assertFalse(self.path("o.zt").exists())
        self.fail_with(USAGE, "convert", source, "-o", "o.zt", "--shards=0x10",
                       says="--shards: '0x10' is not a number from 1 to 99999; see ztstream convert --help")
        self.fail_with(USAGE, "convert", source, "-o", "o.zt", "--shard-size=0", says="--shard-size: '0' is not a size")
        self.fail_with(USAGE, "convert", source, "-o", "o.zt", "--zstd=+3",
                       says="--zstd: '+3' is not a level, huffman or planes")
        for words in (("--zstd=-5",), ("--zstd=019",), ("--min-gain=-2.5", "--zstd"), ("--shard-size=1.5K", "-n"), ("--threads=0",)):
            self.succeed("convert", "-q", "-f", source, "-o", self.path("o.zt"), *words)

    def test_options_are_checked_before_the_output(self):
        source = self.safetensors("o.safetensors")
        for words in (("-o", self.put("there.zt", b"")), ("-o", self.path("s.zt"), "--shards", "2"), ("-n",)):
            self.fail_with(USAGE, "convert", source, *words, "--align", "100",
                           says="the alignment 100 is not a multiple of 64 up to 16 MiB, as version 1.2.0 needs")

    def test_what_happens_to_outputs_is_said(self):
        self.fail_with(IO, "convert", self.source, "-o", self.path("no/o.zt"), says="make the folder first")
        self.fail_with(IO, "extract", self.source, "-o", self.path("no/way") / "_", "--to", "npy", says="make the folder first")
        self.fail_with(IO, "extract", self.source, "-o", f"{self.folder}/no/way/", says="is missing; make that first")
        for name in "model3", "model3.bin", "m.zt", "/dev/null":
            said = self.expect(DONE, "convert", self.source, "-o", name).stderr
            warned = f"ztstream: warning: {name}: a .zt file is written, and its name does not end in .zt\n"
            self.assertEqual([line for line in said.decode().splitlines(True) if "warning" in line], [warned] * ("model3" in name))

    def test_verify_of_another_kind_of_file(self):
        for status, file, says in ((UNSUPPORTED, self.source, "it is safetensors, not .zt; 'ztstream inspect' lists it, "
                                    "'ztstream diff' compares it"),
                                   (UNSUPPORTED, DATA / "torch/tied.pt", "it is a zip archive, not .zt"),
                                   (UNSUPPORTED, self.put("g.zt", gzip.compress(b"x" * 99)), "gzip"),
                                   (INVALID, self.put("x", b"no format at all"), "its format is not recognised"),
                                   (INVALID, self.put("y", b""), "it is empty"), (DIFFERS, self.put("y.zt", b""), "y.zt: "),
                                   (IO, "gone", "gone: cannot open"), (USAGE, self.folder, "no .zt.index.json")):
            self.fail_with(status, "verify", file, says=says)

    def test_id_takes_its_inputs_as_one_model(self):
        self.fail_with(INVALID, "id", self.source, self.source, says="inputs are taken as one model: run id once for each")

    def test_id_says_which_names_it_cannot_take(self):
        byte = ("U8", [1], b"x")
        for name, why in ("", "is empty"), ("n" * 1025, "has more than 1024 bytes"), ("a\0", "holds U+0000"):
            source = self.safetensors("n.safetensors", {name: byte, "w": byte})
            self.assertTrue(self.fail_with(UNSUPPORTED, "id", source, says=why).endswith("; --exclude leaves it out\n"))
        self.succeed("id", source, "--exclude", "^a")

    def test_help_names_what_is_read(self):
        self.assertIn(b"Streams safetensors, npy, npz, GGUF, PyTorch, ONNX, HDF5, Keras and .zt to .zt.\n", self.succeed("--help"))

    def test_words_may_come_in_any_order(self):
        help_text = self.succeed("convert", "--help")
        self.assertEqual(self.succeed("help", "convert"), help_text)
        self.assertEqual(self.succeed("help"), self.succeed("--help"))
        self.assertEqual(self.succeed("inspect", "--version"), self.succeed("--version"))
        self.assertNotIn("\\n", self.succeed("--version", "--json").decode().rstrip("\n"))
        self.assertEqual(self.succeed("--help", "convert"), help_text)
        for words in (["-qfo", "oo.zt", "convert", self.source], ["convert", "-qf", "-o", "oo.zt", "--", self.source],
                      ["convert", "-T1", self.source, "-fqo", "oo.zt"]):
            self.succeed(*words)
        self.put("-x", self.source.read_bytes())
        self.succeed("inspect", "--", "-x")
        self.succeed("-q", "--threads", "1", "--progress", "never", "convert", self.source, "-f", "-o", self.path("o.zt"))
        self.assertEqual(self.json("--json", "inspect", self.path("o.zt"))["cmd"], "inspect")

    def test_other_names_of_formats(self):
        for name in ("pt", "pth", "pytorch"):
            self.succeed("inspect", "--from", name, DATA / "torch/tied.pt")
        self.succeed("extract", self.source, "-o", "x", "--to", "st")

    def test_help_fits_the_terminal(self):
        for columns in (60, 80, 200):
            for command in ([], ["convert"], ["extract"]):
                lines = in_terminal(columns, [*command, "--help"], self.folder).splitlines()
                self.assertLessEqual(max(map(len, lines)), min(columns, 100), (columns, command))
                rows = [line for line in lines if re.match(r"  -", line)]
                self.assertEqual(len(rows) > 5, True, lines)
                # every description begins in one column
                self.assertEqual({len(re.match(r"  .*?  +", row)[0]) for row in rows}, {24}, rows)

    def test_the_table_as_json(self):
        table = self.json("--help", "--json")
        self.assertEqual([each["name"] for each in table["commands"]][:2], ["convert", "join"])
        row = next(each for each in table["options"] if each["name"] == "sort")
        self.assertEqual((row["commands"], row["words"], row["group"]), (["inspect"], ["name", "size", "offset"], "Output"))
        self.assertEqual({each["name"] for each in table["options"] if each["repeatable"]}, {
            "FILE...", "INPUT...", "SHARD...", "[NAME...]", "[WORD...]", "against", "base", "dtype", "exclude", "files", "include", "header", "rename", "set",
            "unset", "zstd"})

    def test_sizes(self):
        for size in ("1000000", "64M", "64MiB", "2gb", "64 KiB", "512kb", "1.5G", "0.5 MiB", "65536b"):
            self.succeed("inspect", "--memory", size, self.source)
        for size in ("", "G", "-1M", "1.5.2G", "1e3", "64 MB iB", "16777216T", "1e", ".", "0x10", "nan"):
            self.fail_with(USAGE, "inspect", f"--memory={size}", self.source, says="--memory")
        def converted(chunk):  # the frames show what a size comes to
            self.succeed("convert", DATA / "real/ppocr-cls.safetensors", "-f", "-o", self.path("c.zt"), "--zstd",
                         "--chunk", chunk)
            return self.path("c.zt").read_bytes()
        self.assertEqual(converted("2.5 KiB"), converted("2560"))
        self.assertEqual(converted("2.5kB"), converted("2500"))
        self.assertNotEqual(converted("2560"), converted("2500"))

    def test_one_is_not_plural(self):
        self.assertIn(b": 1 tensor, ", self.run_program("convert", self.source, "-o", self.path("o.zt")).stderr)
        self.assertIn(b"good: 1 object, 1 component, 1 digest matches", self.succeed("verify", self.path("o.zt")))
        self.assertIn(b"1 tensor, 1 parameter, 4 B\n", self.succeed("inspect", self.source))


class Inspect(support.EndToEnd):

    def setUp(self):
        super().setUp()
        tensors = {}
        for layer in range(12):
            tensors[f"model.layers.{layer}.attn.weight"] = ("F32", [2, 3], bytes(24))
            tensors[f"model.layers.{layer}.mlp.bias"] = ("BF16", [4], bytes(8))
        tensors["head"] = ("F32", [100], bytes(400))
        self.source = self.safetensors("m.safetensors", tensors)
        self.output = self.path("m.zt")
        self.succeed("convert", self.source, "-o", self.output, "-q")

    def names(self, *options):
        lines = self.succeed("inspect", *options, self.output).decode().splitlines()
        return [line.split()[0] for line in lines if " dense " in line]

    def test_totals(self):
        for file in (self.source, self.output):
            text = self.succeed("inspect", file).decode()
            self.assertIn("25 tensors, 220 parameters, 784 B", text)
            self.assertRegex(text, r"\n  bf16 +12 tensors +48 parameters +96 B\n")
            self.assertRegex(text, r"\n  f32 +13 tensors +172 parameters +688 B\n")
        self.succeed("convert", self.source, "-o", self.path("z.zt"), "--zstd", "--min-gain", "-1000", "-q")
        self.assertRegex(self.succeed("inspect", self.path("z.zt")).decode(), r" of 784 B \(\d+\.\d%\)")

    def test_orders(self):
        in_file = self.names()
        self.assertEqual(in_file, self.names("--sort", "offset"))
        self.assertEqual(self.names("--sort", "name"), sorted(in_file))
        self.assertEqual(self.names("--sort", "size")[0], "head")

    def test_tree(self):
        text = self.succeed("inspect", "--tree", self.output).decode()
        self.assertRegex(text, r"\nmodel\.layers +24 tensors, 120 parameters, 384 B\n")
        self.assertRegex(text, r"\n  0-11 +12 alike, each 2 tensors, 10 parameters, 32 B\n")
        self.assertRegex(text, r"\n    attn\.weight +f32 \[2, 3\]  24 B\n")
        self.assertRegex(text, r"\nhead +f32 \[100\]  400 B\n")
        sizes = {"b.1.w": 2, "b.0.w": 3, "a": 4, "c.w": 6, "b.2.x": 3}
        source = self.safetensors("sizes.safetensors", {name: ("U8", [n], bytes(n)) for name, n in sizes.items()})
        tree = self.succeed("inspect", "--tree", "--sort", "size", source).decode().splitlines()[1:]
        self.assertEqual([line.split()[0] for line in tree], ["b", "0.w", "2.x", "1.w", "c.w", "a"])
        deep = self.safetensors("d.safetensors", {"." * 60_000: ("U8", [1], b"x"), "a.b.": ("U8", [1], b"x")})
        self.succeed("inspect", "--tree", deep)

    def test_attributes_and_shapes_of_components(self):
        text = self.succeed("inspect", "-v", DATA / "scipy/csr.npz").decode()
        self.assertRegex(text, r"/indptr +u64 +\[\d+\] +sparse_csr \[\d+, \d+\]")
        self.succeed("convert", DATA / "gguf/little.gguf", "-o", self.path("g.zt"), "-q")
        self.assertRegex(self.succeed("inspect", "-v", self.path("g.zt")).decode(), r"\n    \w+: \d+, \w+: \d+\n")

    def test_shared_bytes_are_said(self):
        tied = self.safetensors("t.safetensors", {"a": ("F32", [1], bytes(4))}, ties={"b": "a"})
        self.assertRegex(self.succeed("inspect", tied).decode(), r"\n[ab] .*= [ab]\n")
        plan = self.succeed("convert", "-n", tied).decode()
        self.assertRegex(plan, r"\n[ab]  f32 \[1\]  4 B  = [ab]\n")
        self.assertIn("plan: zTensor 1.2, 2 of 2 tensors, 4 B in, 4 B out, 1 shared with others\n", plan)

    def test_files_are_as_large_as_they_are_stored(self):
        self.put("m/model.safetensors", make_safetensors.encode(ONE))
        self.put("m/tokenizer.json", b"[" + b"1, " * 4096 + b"1]")
        self.succeed("convert", self.path("m"), "-o", self.path("f.zt"), "--zstd", "-q")
        self.assertRegex(self.succeed("inspect", self.path("f.zt")).decode(), r"\n  tokenizer\.json  \d\d B  zstd of 12\.00 KiB  crc32c\n")

    def test_columns_under_wide_names(self):
        """Letters of two columns, and marks of none, move nothing."""
        names = ["a", "層.重み", "모델", "e\u0301te\u0301", "\uff57"]
        source = self.safetensors("wide.safetensors", {name: ("F32", [2], bytes(8)) for name in names})
        rows = [line for line in self.succeed("inspect", source).decode().splitlines() if " dense " in line]
        self.assertEqual(sorted(row.split()[0] for row in rows), sorted(names))
        self.assertEqual({sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
                              for each in row.partition("  f32")[0]) for row in rows}, {7}, rows)

    def test_what_is_left_out_on_a_narrow_terminal(self):
        """Columns of less worth, while lines are too long; never a part of a name."""
        parts = ("q_proj", "k_proj", "v_proj", "o_proj")
        names = [f"model.layers.{layer}.self_attn.{part}.weight" for layer in range(12) for part in parts]
        tensors = {name: ("BF16", [64, 64], struct.pack("<H", 16000 + i) * 4096) for i, name in enumerate(names)}
        source = self.safetensors("l.safetensors", tensors, ties={"head": names[0]})
        self.succeed("convert", source, "-o", self.path("l.zt"), "--zstd=planes")
        names.insert(0, "head")
        self.assertRegex(self.succeed("inspect", self.path("l.zt")).decode(), r"byte planes of 8\.00 KiB \(-\d+ %\)  = head  crc32c\n")
        for columns in (40, 80, 100, 140):
            lines = in_terminal(columns, ["inspect", "l.zt"], self.folder).splitlines()[1:]
            self.assertEqual([line.split()[0] for line in lines], names)
            self.assertTrue(max(map(len, lines)) <= columns or columns == 40, lines[:3])
            self.assertEqual("byte planes" in lines[0], columns == 140)
            self.assertEqual("  = head" in lines[1], columns > 40, lines[1])
            self.assertEqual(lines[1].endswith("  crc32c"), columns == 140, lines[1])
        tree = in_terminal(40, ["inspect", "--tree", "l.zt"], self.folder).splitlines()
        self.assertRegex("".join(tree), r"  1-11\.self_attn +11 alike, each 4 tensors, ")

    def test_the_tree_folds_slashes_too(self):
        names = ("net/a", "net/b.w", "net/b/w", "x.0/w", "x.1/w")
        source = self.safetensors("n.safetensors", {name: ("F32", [1], bytes(4)) for name in names})
        self.assertEqual(self.succeed("inspect", "--tree", source).decode().splitlines()[1:], [
            "net      3 tensors, 3 parameters, 12 B",
            "  a      f32 [1]  4 B",
            "  b      2 tensors, 2 parameters, 8 B",
            "    w    f32 [1]  4 B",
            "    w    f32 [1]  4 B",
            "x        2 tensors, 2 parameters, 8 B",
            "  0-1/w  2 alike, each 1 tensor, 1 parameter, 4 B"])

    def test_tied_tensors_count_once(self):
        text = self.succeed("inspect", DATA / "torch/tied.pt").decode()
        self.assertIn(": torch, 4 tensors, 36 parameters (84 with tied ones), 144 B\n", text)
        text = self.succeed("inspect", "--tree", DATA / "torch/tied.pt").decode()
        self.assertRegex(text, r"\nembed +f32 \[6, 4\]  96 B\nhead +f32 \[6, 4\]  tied: embed\n")
        tied = self.safetensors("t.safetensors", {"m.a": ("F32", [2, 1000], bytes(8000))}, ties={"m.b": "m.a"})
        self.assertRegex(self.succeed("inspect", "--tree", tied).decode(),
                         r"\nm +2 tensors, 2,000 parameters \(4,000 with tied ones\), 7\.81 KiB\n")

    def test_the_tree_sorts_layers_by_number_and_folds_those_that_are_alike(self):
        def tree(numbers, odd=(), shuffled=()):
            tensors = {}
            for number in numbers:
                rows = [(f"m.{number}.w", ("F32", [2], bytes(8))), (f"m.{number}.b", ("F32", [3 if number in odd else 1],
                                                                   bytes(12 if number in odd else 4)))]
                tensors.update(reversed(rows) if number in shuffled else rows)
            source = self.safetensors("n.safetensors", tensors)
            lines = self.succeed("inspect", "--tree", source).decode().splitlines()
            return [line.split("  ")[1] for line in lines if re.match(r"  \d", line)]
        self.assertEqual(tree([0, 3, 4, 5, 1, 2]), ["0-5"])
        self.assertEqual(tree([0, 3, 4, 5, 1, 2], shuffled=(3, 5)), ["0-5"])
        self.assertEqual(tree([0, 3, 4, 5, 1, 2], odd=(0, 3)), ["0, 3", "1-2, 4-5"])
        self.assertEqual(tree([10, 9, 2, 1, 0, 30]), ["0-2, 9-10, 30"])
        self.assertEqual(tree(range(0, 30, 2)), ["0, 2, 4, 6, 8, 10, ... 28"])


def in_terminal(columns, arguments, folder, stdin=None, env=None):
    """Runs the program with its output on a terminal so wide; what it has written there."""
    import fcntl
    import termios
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=stdin or subprocess.DEVNULL, stdout=theirs,
                               stderr=theirs, cwd=folder, env={**os.environ, "TERM": "xterm", **(env or {})})
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(ours)
    process.wait()
    return text.decode().replace("\r\n", "\n")


class Progress(support.EndToEnd):

    def slow_run(self, run):
        """`run` with a pipe as its standard input through which a checkpoint comes slowly."""
        data = make_safetensors.encode({f"t{i}": ("F32", [1 << 16], bytes(1 << 18)) for i in range(8)})
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            step = len(data) // 8 + 1
            for at in range(0, len(data), step):
                os.write(write, data[at:at + step])
                time.sleep(0.15)
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as stdin:
            text = run(stdin)
        os.waitpid(child, 0)
        return text

    def test_the_line_fits_the_terminal(self):
        for columns in (20, 40, 80, 100, 120):
            text = self.slow_run(lambda stdin: in_terminal(columns, ["convert", "-", "-o", "o.zt", "-f"], self.folder, stdin))
            lines = [line.removesuffix("\x1b[K") for line in text.split("\r")]
            drawn = [line for line in lines if line.startswith("convert ")]
            self.assertGreater(len(drawn), 2, text)
            self.assertLess(max(map(len, drawn)), columns, text)
            for line in drawn:
                self.assertRegex(line, r"\d+%")
                self.assertNotIn("0/0", line)
                self.assertEqual("tensors" in line, columns >= 80, line)
                self.assertEqual("left" in line, columns >= 40, line)

    def test_a_terminal_without_escapes_gets_no_line(self):
        text = self.slow_run(lambda stdin: in_terminal(80, ["convert", "-", "-o", "o.zt", "-f"], self.folder, stdin,
                                                       {"TERM": "dumb"}))
        self.assertRegex(text, r"\Aztstream: o\.zt: 8 tensors[^\r\x1b]*\n\Z")

    def test_elsewhere(self):
        def run(*options):
            return lambda stdin: subprocess.run([PROGRAM, "convert", "-", "-o", "o.zt", "-f", *options], stdin=stdin,
                                                cwd=self.folder, capture_output=True).stderr
        self.assertEqual(self.slow_run(run()).count(b"\n"), 1)  # the summary: the run took less than ten seconds
        self.assertGreater(self.slow_run(run("--progress", "always")).count(b"\rconvert "), 2)
        self.assertEqual(self.slow_run(run("--progress", "always", "--quiet")), b"")
        self.assertNotIn(b"\r", self.slow_run(run("--progress", "never")))
