"""Reading zTensor 2.0: the public corpus by verdict and rule, hostile files of our own, and what good files hold."""
import json
import os
import random
import struct
import subprocess
import sys

import make_zt2
import support
import zt2read
import ztread
from make_zt2 import FLOOR, File
from support import DATA, DIFFERS, DONE, INVALID, IO, PROGRAM, UNSUPPORTED

CORPUS = DATA / "zt2-corpus"

# What a message must say where a file breaks a rule: mostly the section that has the rule.
SAYS = {
    "FileTooSmall": "§2.1|not a .zt file", "HeaderMagic": "not a .zt file", "FooterMagic": "§2.3", "Version": "§2.3",
    "ManifestTooLarge": "§3.1", "ManifestBounds": "§2.[34]", "BlobAlignment": "§2.4", "ManifestHash": "XXH3",
    "CborSyntax": "§3.1", "CborDeterminism": "§3.1", "CborDuplicateKey": "second time.*§3.1", "CborDepth": "32 levels.*§3.1",
    "Schema": "§3|§4|§7.1", "Name": "§3.5", "Shape": "§3.3", "ShardName": "§7.1", "ShardRef": "§3.4",
    "BlobBounds": "§2.4", "BlobOverlap": "§2.4", "DenseSize": "§5.1", "LayoutRule": "§5", "Digest": "the digest is",
    "Encoding": "§5.3|frame|zstd|seek table|stream",
    "LayoutData": "neither 0 nor 1|high half|row pointer|beyond the dimension|§5.2"}
# What shows in the data alone, so that a file may be listed.
DATA_RULES = {"LayoutData", "Digest", "Encoding"}


class Reading(support.EndToEnd):

    def refused(self, path, rule):
        """verify refuses the file by the rule; inspect does so where the manifest shows it."""
        process = self.run_program("verify", path)
        errors = process.stderr.decode()
        wanted = UNSUPPORTED if rule == "Version" else DIFFERS
        self.assertEqual(process.returncode, wanted, errors)
        self.assertRegex(errors, SAYS[rule])
        self.assertIn(path.name, errors)
        if rule not in DATA_RULES:
            self.fail_with((INVALID, UNSUPPORTED), "inspect", path, says=path.name)


class Corpus(Reading):

    def test_verdict_and_rule_of_every_file(self):
        rows = [line.split("\t") for line in (CORPUS / "expect.tsv").read_text().splitlines()[1:]]
        self.assertEqual(len(rows), 76)
        for name, operation, expected in rows:
            path = CORPUS / name
            with self.subTest(name, expected=expected):
                if expected == "DataShard":
                    self.fail_with(UNSUPPORTED, "inspect", path, says="data shard")
                elif expected.startswith("Reject"):
                    self.refused(path, expected[7:-1])
                elif expected == "Unsupported":
                    self.json("inspect", "--json", path)
                    self.fail_with(UNSUPPORTED, "convert", path, "-o", self.path("o.zt"), says="'x.z/1' is not known")
                elif operation == "Open":
                    self.json("inspect", "--json", path)
                else:
                    self.succeed("verify", path)


class Hostile(Reading):

    def test_each_breaks_one_rule_which_the_message_names(self):
        files = list(make_zt2.hostile())
        self.assertGreater(len(files), 200)
        for name, rule, content in files:
            with self.subTest(name, rule=rule):
                path = self.put("hostile.zt", content)
                with self.assertRaises(zt2read.Broken) as broken:
                    zt2read.open_file(path).verify()
                self.assertEqual(broken.exception.rule, rule)
                self.refused(path, rule)

    def test_padding_that_is_not_zero_is_counted(self):
        file = File()
        file.add("t", [5], data=file.part(b"abcde"))
        content = bytearray(file.finish())
        content[8], content[10], content[FLOOR + 5] = 1, 1, 1
        report = self.json("verify", "--json", self.put("p.zt", content))
        self.assertEqual((report["ok"], report["bytes_unreferenced"]), (True, 4))

    def test_every_cut_is_refused(self):
        file = File()
        file.add("t", [5], data=file.part(b"abcde"))
        content = file.finish()
        for length in (*range(0, 64), *range(FLOOR - 2, FLOOR + 8), *range(len(content) - 60, len(content))):
            path = self.put("cut.zt", content[:length])
            self.assertIn(self.run_program("verify", path).returncode, (DIFFERS, INVALID, UNSUPPORTED), length)

    def test_no_byte_of_the_manifest_or_footer_changes_unseen(self):
        file = File()
        file.add("t", [5], data=file.part(b"abcde"))
        content = file.finish()
        for at in range(2 * FLOOR, len(content)):
            if len(content) - 12 <= at < len(content) - 8:
                continue  # reserved
            changed = bytearray(content)
            changed[at] ^= 0x10
            path = self.put("changed.zt", changed)
            self.assertIn(self.run_program("verify", path).returncode, (DIFFERS, UNSUPPORTED), at)


class Good(Reading):

    def same_in_1_2(self, path):
        """The file converts to 1.2 with every value, which the independent readers of both versions find."""
        out = self.path("as12.zt")
        self.succeed("convert", path, "-o", out, "--force")
        self.succeed("verify", out)
        file, converted = zt2read.open_file(path), ztread.read(str(out))
        self.assertEqual(set(converted), set(file.objects))
        for name, o in file.objects.items():
            for role, part in o.parts.items():
                got = converted[name]["components"][role]["bytes"]
                want = file.decode(name, role)
                if part.dtype == "u32" and role in ("indices", "indptr", "coords"):
                    want = make_zt2.u64s(*zt2read.uints(want, "u32"))
                self.assertEqual(got, want, (name, role))
        self.assertEqual(self.run_program("diff", path, out).returncode, DONE)
        return converted

    def test_every_layout_and_type(self):
        file = File()
        file.add("scalar", [], data=file.part(b"\0\0\x80\x3f", "f32"))
        file.add("empty", [0, 5], data=file.part(b"", "f64"))
        file.add("bool", [3], data=file.part(b"\0\1\1", type="bool"))
        file.add("complex", [2], data=file.part(bytes(range(16)), "f32", type="complex64"))
        file.add("f4 even", [3, 4], data=file.part(bytes(range(6)), type="f4_e2m1"))
        file.add("f4 odd", [3, 3], data=file.part(b"\x12\x34\x56\x78\x09", type="f4_e2m1"))
        for kind in ("f8_e4m3fn", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0"):
            file.add(kind, [4], data=file.part(bytes(range(4)), type=kind))
        for dtype, width in zt2read.WIDTHS.items():
            file.add(dtype, [2, 3], "dense", {"note": dtype}, data=file.part(bytes(range(6 * width)), dtype))
            file.add("named " + dtype, [2], data=file.part(bytes(range(2 * width)), dtype, type=dtype))
        parts = file.root["objects"]
        parts["tied"] = parts["f32"]
        file.root["attributes"] = {"a": [1, -1, 0.5, None, True, b"x", {"b": {}}]}
        path = self.put("all.zt", file.finish())
        self.succeed("verify", path)
        converted = self.same_in_1_2(path)
        self.assertEqual((converted["bool"]["components"]["data"]["dtype"], converted["bool"]["shape"]), ("bool", [3]))
        self.assertEqual(converted["complex"]["components"]["data"]["type"], "complex64")
        self.assertEqual(converted["f4 even"]["shape"], [3, 2])
        listed = self.json("inspect", "--json", path)
        self.assertEqual(listed["version"], "2.0")
        self.assertEqual(listed["attributes"]["a"][:5], [1, -1, 0.5, None, True])

    def test_sparse_quantized_and_block_layouts(self):
        for name, file in (("csr", make_zt2.csr()), ("csr32", make_zt2.csr(index="u32")), ("coo", make_zt2.coo()),
                           ("coo32", make_zt2.coo(index="u32")), ("unordered", make_zt2.coo((2, 0, 1, 3), values=8)),
                           ("mx", make_zt2.mx()), ("gguf", make_zt2.gguf()), ("quant", make_zt2.quant()),
                           ("signed", make_zt2.quant(dtype="i32")),
                           ("zeros", make_zt2.quant(zero={"form": "tensor", "packing": "plain"}, zeros=64)),
                           ("implied", make_zt2.quant(zero={"form": "implied", "value": -8}))):
            with self.subTest(name):
                path = self.put(f"{name}.zt", file.finish())
                self.succeed("verify", path)
                self.same_in_1_2(path)

    def test_compressed_parts_and_digests_over_decoded_bytes(self):
        content = bytes(range(256)) * 40
        for digest in ("xxh3", "sha256"):
            for frame in (None, 1024, 3000):
                file = File()
                file.add("z", [len(content)], data=file.zstd(content, frame=frame, digest=zt2read.digest_of(digest, content)))
                indices = make_zt2.u64s(0, 2, 1)
                file.add("m", [2, 3], "zt.sparse_csr/1", values=file.zstd(bytes(range(12)), "f32"),
                         indices=file.zstd(indices, "u64", frame=16),
                         indptr=file.zstd(make_zt2.u64s(0, 2, 3), "u64", frame=8))
                narrow = b"".join(n.to_bytes(4, "little") for n in (0, 1, 2, 0))
                file.add("c", [3, 4], "zt.sparse_coo/1", values=file.zstd(bytes(range(8)), "f32"),
                         coords=file.zstd(narrow, "u32", frame=8))
                path = self.put("z.zt", file.finish())
                report = self.json("verify", "--json", path)
                self.assertEqual((report["digests"], report["unverified"]), (6, []))
                self.same_in_1_2(path)
        part = file.root["objects"]["c"]["parts"]["coords"]
        part["digest"] = "xxh3:0123456789abcdef"
        path = self.put("wrong.zt", file.finish())
        self.fail_with(INVALID, "convert", path, "-o", self.path("o.zt"), says=("tensor 'c'", "the digest is"))
        file = File()
        file.add("none", [0], data=file.zstd(b""))
        self.succeed("verify", self.put("none.zt", file.finish()))
        self.same_in_1_2(self.path("none.zt"))

    def elements(self, cells, shape, frame=None, width=4):
        """A file of the elements in these cells, which are numbers in C order."""
        columns = [[cell // shape[1] for cell in cells], [cell % shape[1] for cell in cells]]
        coords = b"".join(struct.pack(f"<{len(cells)}{'IQ'[width // 8]}", *each) for each in columns)
        file = File()
        dtype = {4: "u32", 8: "u64"}[width]
        file.add("c", list(shape), "zt.sparse_coo/1", values=file.zstd(bytes(len(cells)), "u8", frame=4096),
                 coords=file.zstd(coords, dtype, frame=frame) if frame else file.part(coords, dtype))
        return self.put("c.zt", file.finish())

    def test_elements_in_any_order_name_a_cell_once(self):
        """The cells are kept, eight bytes for each; what would take more is not looked at."""
        for shape in ((300, 300), (2000, 1000), (1 << 20, 1 << 20)):
            for count, memory in ((20_000, "64MiB"), (60_000, "481KB")):
                cells = random.Random(count).sample(range(shape[0] * shape[1]), count)
                for frame in (None, 40_000):
                    with self.subTest(shape=shape, memory=memory, frame=frame):
                        arguments = "verify", "--json", "--memory", memory
                        self.assertNotIn("unchecked", self.json(*arguments, self.elements(cells, shape, frame)))
                        twice = cells[count // 3]
                        self.expect(DIFFERS, *arguments, self.elements([*cells, twice], shape, frame),
                                    says=f"two elements name cell {twice} in C order")
        report = self.json("verify", "--json", "--memory", "64KiB",
                           self.elements(random.Random(2).sample(range(1 << 40), 200_000), (1 << 20, 1 << 20)))
        self.assertRegex(report["unchecked"][0], "^c: its 200000 elements are not in C order: finding whether two name "
                         "the same cell takes more than 65536 bytes of memory; allow more$")

    def test_indices_of_several_tensors_are_looked_at_once_and_told_of_each(self):
        file = File()
        coords, values = file.part(struct.pack("<4I", 1, 1, 2, 2), "u32"), file.part(bytes(2))
        for name, shape in (("a", [3, 4]), ("b", [2, 9]), ("c", [5])):
            file.add(name, shape, "zt.sparse_coo/1", coords=coords, values=values if len(shape) == 2 else file.part(bytes(4)))
        process = self.expect(DIFFERS, "verify", self.put("twice.zt", file.finish()))
        for name, cell in (("a", 6), ("b", 11), ("c", 1)):
            self.assertRegex(process.stderr.decode(), f"'{name}'.*two elements name cell {cell} in C order")

    def test_unknown_fields_are_passed_over(self):
        file = File()
        entry = file.add("t", [3], data=file.part(b"abc", later={"x": [1, {1: b"k"}]}))
        entry["later"] = 1
        entry["zzz"] = None
        file.root["later"] = [{}]
        file.root["shards"] = {"s": {"size": 1 << 20, "digest": "blake3:00ff", "where": None}}
        root = zt2read.encode_cbor(file.root)
        pairs = {b"\x01": b"\xf6", b"\x82\x01\x02": b"\x41x", b"\xf4": b"\xf5"}  # keys that are no text
        body = sorted([(zt2read.encode_cbor(k), zt2read.encode_cbor(v)) for k, v in file.root.items()] + list(pairs.items()))
        root = bytes([0xa0 + len(body)]) + b"".join(k + v for k, v in body)
        path = self.put("u.zt", file.finish(root, reserved=7))
        self.assertEqual([o["name"] for o in self.json("inspect", "--json", path)["objects"]], ["t"])
        self.same_in_1_2(path)

    def test_what_is_not_known_is_listed_and_refused(self):
        file = File()
        file.add("good", [3], data=file.part(b"abc"))
        file.add("layout", [9], "x.y/1", {"k": 1}, a=file.part(b"ab", "u16"), b=file.part(b"c"))
        file.add("type", [9], data=file.part(b"abcd", type="x.future/1"))
        file.add("encoding", [9], data=file.part(b"abcd", digest=None, encoding="x.z/1", decoded_length=9))
        file.add("gguf", [9], "gguf.q9_9/1", data=file.part(b"abcd"))
        path = self.put("u.zt", file.finish())
        listed = {o["name"]: o for o in self.json("inspect", "--json", path)["objects"]}
        self.assertEqual(listed["layout"]["format"], "x.y/1")
        self.assertEqual(listed["encoding"]["components"][0]["encoding"], "x.z/1")
        self.assertNotIn("undecodable", listed["good"]["components"][0])
        for name, says in (("layout", "layout 'x.y/1'"), ("type", "type 'x.future/1'"), ("encoding", "encoding 'x.z/1'"),
                           ("gguf", "layout 'gguf.q9_9/1'")):
            self.assertIn(says, listed[name]["components"][0]["undecodable"])
            self.fail_with(UNSUPPORTED, "convert", path, "-o", self.path("o.zt"), "--include", f"^{name}$",
                           says=(f"tensor '{name}'", says))
        self.succeed("convert", path, "-o", self.path("good.zt"), "--include", "^good$")
        report = self.json("verify", "--json", path)
        self.assertEqual((report["ok"], report["digests"]), (True, 5))
        # both components of 'layout' in one line
        self.assertEqual([line.split(":")[0] for line in report["undecodable"]], ["gguf/data", "type/data", "layout", "encoding/data"])
        entry = file.root["objects"]["layout"]["parts"]["b"]
        entry["digest"] = "xxh3:0123456789abcdef"
        self.assertEqual(self.run_program("verify", self.put("d.zt", file.finish())).returncode, DIFFERS)


class Generations(Reading):

    def test_the_last_one_counts_and_the_rest_is_reported(self):
        file = File()
        kept = file.add("kept", [4], data=file.part(b"kept"))
        file.add("old", [3], data=file.part(b"old"))
        first = file.finish()
        self.put("g.zt", first)
        self.assertNotIn("bytes_unreferenced", self.json("verify", "--json", self.path("g.zt")))
        again = File()
        again.heap = bytearray(first)
        again.root["objects"]["kept"] = kept
        again.add("new", [3], data=again.part(b"new"))
        path = self.put("g.zt", again.finish())
        listed = self.json("inspect", "--json", path)
        self.assertEqual({o["name"] for o in listed["objects"]}, {"kept", "new"})
        report = self.json("verify", "--json", path)
        # The blob `old` and what follows it, up to the first generation's footer.
        self.assertEqual(report["bytes_unreferenced"], len(first) - 2 * FLOOR)
        self.assertTrue(report["ok"])
        self.assertIn("earlier generations", self.succeed("verify", path).decode())
        self.assertEqual(zt2read.open_file(path).unreferenced(), len(first) - 2 * FLOOR)
        out = self.path("o.zt")
        self.succeed("convert", path, "-o", out)
        found = ztread.read(str(out))
        self.assertEqual({name: o["components"]["data"]["bytes"] for name, o in found.items()},
                         {"kept": b"kept", "new": b"new"})


class Canonical(Reading):

    def canonical(self, change=lambda file: None, names=("a", "b", "empty", "z")):
        """A canonical file, unless `change` gets in the way before it is finished."""
        file = File()
        for name, content in zip(names, (b"aaaa", bytes(70000), b"", b"zz")):
            file.heap += bytes(-len(file.heap) % zt2read.CANONICAL)
            file.add(name, [len(content)], data=file.part(content))
        file.root["objects"]["tied"] = file.root["objects"].get("a") or file.root["objects"][names[0]]
        change(file)
        file.heap += bytes(-len(file.heap) % zt2read.CANONICAL)
        return self.put("c.zt", file.finish())

    def test_what_the_reference_wrote_is_canonical(self):
        files = sorted((DATA / "zt2").glob("*.zt"))
        self.assertGreater(len(files), 10)
        for path in files:
            with self.subTest(path.name):
                self.succeed("verify", "--canonical", path)

    def test_each_rule(self):
        path = self.canonical()
        zt2read.open_file(path).check_canonical()
        self.succeed("verify", "--canonical", path)

        def again(file):
            file.heap += bytes(-len(file.heap) % zt2read.CANONICAL)
            file.add("zz", [4], data=file.part(b"aaaa"))

        def empty(file):
            file.heap += bytes(-len(file.heap) % zt2read.CANONICAL)
            file.add("zz", [0], data=file.part(b""))

        def encoded(file):
            file.heap += bytes(-len(file.heap) % zt2read.CANONICAL)
            file.add("zz", [5], data=file.zstd(b"zzzzz"))

        def floor(file):
            file.add("zz", [5], data=file.part(b"zzzzz"))

        def digest(file):
            file.root["objects"]["z"]["parts"]["data"]["digest"] = zt2read.digest_of("sha256", b"zz")

        def padding(file):
            file.heap.append(1)

        def shards(file):
            file.root["shards"] = {}
            file.root["shards"]["s"] = {"size": 1 << 20, "digest": "blake3:00"}

        def attribute(file):
            file.root["attributes"] = {"e\u0301": 1}

        for change, says in ((again, "tensor 'zz': its blob lies at 327680, in canonical form at 65536"),
                             (empty, "tensor 'zz': its blob lies at 327680, in canonical form at 262144"),
                             (encoded, "tensor 'zz': the manifest encodes it differently from the canonical form"),
                             (floor, "tensor 'zz': its blob lies at"), (digest, "tensor 'z': it has no xxh3 digest"),
                             (padding, "not zero"), (attribute, "Normalization Form C"),
                             (shards, "byte 0 of the manifest is not that of the canonical form")):
            with self.subTest(says):
                path = self.canonical(change)
                with self.assertRaisesRegex(zt2read.Broken, "Canonical" if change is not attribute else "."):
                    zt2read.open_file(path).check_canonical()
                    if change is attribute:
                        raise zt2read.Broken("Canonical", "the reader looks at names of objects and parts alone")
                self.expect(DIFFERS, "verify", "--canonical", path, says=(says, "§6.3"))
                if change is not shards:
                    self.succeed("verify", path)
        for names, says in ((("b", "a", "empty", "z"), "its blob lies at"), (("e\u0301", "f", "g", "z"), "Normalization Form C")):
            self.expect(DIFFERS, "verify", "--canonical", self.canonical(names=names), says=says)
        file = File()
        file.add("t", [3], data=file.part(b"abc"))
        self.fail_with(DIFFERS, "verify", "--canonical", self.put("floor.zt", file.finish()), says="in canonical form at 65536")
        self.succeed("convert", self.path("floor.zt"), "-o", self.path("old.zt"))
        self.fail_with(DIFFERS, "verify", "--canonical", self.path("old.zt"), says="version 1.2.0 has no canonical form")


class Shards(Reading):

    def model(self, algorithm="sha256"):
        """A root with two shards, one part of its own, and one blob named by two tensors."""
        one, (a, b) = make_zt2.shard_file(b"aaaa", bytes(range(200)))
        two, (c,) = make_zt2.shard_file(b"cccccccc")
        file = File()
        table = {name: {"size": len(data), "digest": zt2read.digest_of(algorithm, data)}
                 for name, data in (("00001-of-00002", one), ("00002-of-00002", two))}
        file.root["shards"] = table
        def part(blob, content, shard, dtype="u8"):
            return {"dtype": dtype, "blob": blob, "shard": shard, "digest": zt2read.digest_of("xxh3", content)}
        file.add("own", [3], data=file.part(b"own"))
        file.add("a", [4], data=part(a, b"aaaa", "00001-of-00002"))
        file.add("b", [200], data=part(b, bytes(range(200)), "00001-of-00002"))
        file.add("c", [2], data=part(c, b"cccccccc", "00002-of-00002", "f32"))
        file.add("tied", [8], data=part(c, b"cccccccc", "00002-of-00002"))
        return file, one, two

    def check(self, root):
        out = self.path("out.zt")
        self.succeed("convert", root, "-o", out, "--force")
        file, found = zt2read.open_file(root), ztread.read(str(out))
        self.assertEqual({name: o["components"]["data"]["bytes"] for name, o in found.items()},
                         {name: file.decode(name, "data") for name in file.objects})
        out.unlink()

    def test_by_name_then_by_size_and_digest(self):
        file, one, two = self.model()
        root = self.put("m/model.zt", file.finish())
        self.put("m/model-00001-of-00002.zt", one)
        self.put("m/model-00002-of-00002.zt", two)
        report = self.json("verify", "--json", root)
        self.assertEqual((report["ok"], report["digests"], report["components_checked"]), (True, 7, 5))
        self.check(root)
        listed = self.json("inspect", "--json", root)
        self.assertEqual([s["path"] for s in listed["shard_files"]], ["00001-of-00002", "00002-of-00002"])
        where = {o["name"]: (o["components"][0].get("file"), o["components"][0]["offset"]) for o in listed["objects"]}
        self.assertEqual(where["b"], ("00001-of-00002", 2 * FLOOR))
        self.assertEqual(where["own"], (None, FLOOR))
        root.with_name("model-00001-of-00002.zt").rename(root.with_name("anything"))
        root.with_name("model-00002-of-00002.zt").rename(root.with_name("other.bin"))
        self.succeed("verify", root)
        self.check(root)
        root.rename(root.with_name("renamed.zt"))
        self.succeed("verify", root.with_name("renamed.zt"))

    def test_a_missing_shard(self):
        file, one, two = self.model("xxh3")
        root = self.put("m/model.zt", file.finish())
        self.put("m/model-00001-of-00002.zt", one)
        process = self.expect(DONE, "inspect", "--json", root)
        listed = json.loads(process.stdout)
        self.assertEqual((len(listed["objects"]), len(listed["warnings"])), (5, 1))
        for text in (listed["warnings"][0], process.stderr.decode()):
            self.assertRegex(text, "m/model.zt: shard '00002-of-00002': '.*/m/model-00002-of-00002.zt' is missing")
        process = self.expect(DIFFERS, "verify", root)
        self.assertRegex(process.stderr.decode(), "shard '00002-of-00002': '.*/m/model-00002-of-00002.zt' is missing; .*size and digest")
        self.fail_with(INVALID, "convert", root, "-o", self.path("o.zt"),
                       says=("shard '00002-of-00002'", "/m/model-00002-of-00002.zt' is missing"))
        self.assertFalse(self.path("o.zt").exists())
        self.succeed("convert", root, "-o", self.path("o.zt"), "--include", "^(own|a|b)$")

    def test_what_was_searched_for_a_missing_shard_is_said(self):
        file, one, _ = self.model("xxh3")
        root = self.put("m/model.zt", file.finish())
        self.put("m/model-00001-of-00002.zt", one)
        self.expect(DIFFERS, "verify", root, says="is missing; no other file beside the root has its size and digest")
        for number in range(1 << 16):
            os.mknod(root.with_name(f"x{number}"))
        self.expect(DIFFERS, "verify", root, says="is missing; none of the first 65536 files beside the root (there are more) has its size and digest")
        file.root["shards"]["00002-of-00002"]["digest"] = "blake3:00ff"
        self.put("n/model-00001-of-00002.zt", one)
        self.expect(DIFFERS, "verify", self.put("n/model.zt", file.finish()),
                    says="is missing; its digest is of no kind that is known here, so no other file can be it")

    def test_a_shard_that_is_not_what_the_root_says(self):
        file, one, two = self.model()
        root = self.put("m/model.zt", file.finish())
        self.put("m/model-00001-of-00002.zt", one)
        for name, content, says in (("digest", two[:FLOOR] + b"\1" + two[FLOOR + 1:], "the digest is sha256:"),
                                    ("size", two + b"\0", "bytes, the shard table says"),
                                    ("footer", two[:-1] + b"x", "§2.3"),
                                    ("magic", b"x" + two[1:], "not a .zt file")):
            with self.subTest(name):
                self.put("m/model-00002-of-00002.zt", content)
                self.expect(DIFFERS, "verify", root, says=says)

    def limited(self, files, *arguments):
        """Runs the program with so many descriptors at most."""
        return subprocess.run(["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", PROGRAM, *map(str, arguments)],
                              capture_output=True, timeout=support.PATIENCE, stdin=subprocess.DEVNULL)

    def test_a_file_that_is_many_shards_is_opened_once(self):
        """And read once: the digests of its name's entries cost nothing."""
        shard, _ = make_zt2.shard_file(bytes(8 << 20))
        table = {f"s{i:04}": {"size": len(shard), "digest": zt2read.digest_of("xxh3", shard)} for i in range(2000)}
        file = File()
        file.root["shards"] = table
        file.add("t", [1], data=file.part(b"t"))
        root = self.put("m/model.zt", file.finish())
        self.put("m/other", shard)
        done = subprocess.run([sys.executable, "-SEc", support.STARTER, "bash", "-c", 'ulimit -n 40; exec "$@"', "bash",
                               PROGRAM, "verify", "--json", root], capture_output=True, stdin=subprocess.DEVNULL)
        status, seconds, _ = done.stdout.split()
        self.assertEqual(int(status), DONE, done.stderr)
        self.assertLess(float(seconds), 0.5 if not self.sanitized() else 10)  # 16 GB take longer than a second
        self.assertEqual(self.json("verify", "--json", root)["digests"], 2001)

    def test_what_the_system_refuses_is_not_the_files_fault(self):
        if self.sanitized():
            self.skipTest("the sanitizer opens a pipe to look at an address, and finds no descriptor left for it")
        file, shards = File(), [make_zt2.shard_file(bytes([i]) * 100)[0] for i in range(60)]
        file.root["shards"] = {f"s{i:02}": {"size": len(each), "digest": zt2read.digest_of("xxh3", each)}
                               for i, each in enumerate(shards)}
        file.add("t", [1], data=file.part(b"t"))
        root = self.put("m/model.zt", file.finish())
        for name in ("m/model-s{:02}.zt", "m/other-{:02}"):  # found by name, then by size and digest
            for i, each in enumerate(shards):
                self.put(name.format(i), each)
            self.succeed("verify", root)
            process = self.limited(30, "verify", root)
            self.assertEqual(process.returncode, IO, process.stderr)
            self.assertIn(b"Too many open files", process.stderr)
            self.assertNotIn(b"missing", process.stderr)
            for i in range(len(shards)):
                self.path(name.format(i)).unlink()

    def test_a_root_over_the_blobs_of_another_model(self):
        base = File()
        base.add("w", [6], data=base.part(b"weight"))
        content = base.finish()
        self.put("base.zt", content)
        delta = File()
        delta.root["shards"] = {"base": {"size": len(content), "digest": zt2read.digest_of("sha256", content)}}
        delta.add("lora", [2], data=delta.part(b"ab"))
        delta.add("w", [6], data={"dtype": "u8", "shard": "base", **{k: base.root["objects"]["w"]["parts"]["data"][k]
                                                                    for k in ("blob", "digest")}})
        root = self.put("delta.zt", delta.finish())
        self.succeed("verify", root)
        self.check(root)
