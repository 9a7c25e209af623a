"""One input, one verdict: all commands and the C interface accept it, or refuse it in one line, and leave nothing: see agreement.py.

The rows are the files of the data folder, forged ones (lib/forged*.py) and random ones. Below them is what is said of some. Each
row meets two of the conversions, and one of a bad header two of the commands, in turn; ZT_CONVERSIONS=5 tries all.
"""
import collections
import itertools
import json
import lzma
import os
import struct

import cbor2
import numpy

import agreement
import forged
import forged_paths
import forged_safetensors
import forged_torch
import make_safetensors
import make_zt
import random_manifests
import support
import zt2read
from make_zt2 import File
from support import DATA, DIFFERS, DONE, INVALID, PROGRAM, UNSUPPORTED


class OneVerdict(support.EndToEnd):

    def agree(self, rows):
        """{label: verdict} of the rows."""
        verdicts, disputes = {}, []
        each = int(os.environ.get("ZT_CONVERSIONS", 2))
        for label, verdict, wrong in agreement.run_files(PROGRAM, agreement.LIBRARY, rows, each=each):
            verdicts[label] = verdict
            disputes += [f"{label}: {rule}: {said}" for rule, said in wrong]
        if disputes:
            self.fail(f"{len(disputes)} disputes:\n" + "\n".join(disputes))
        return verdicts

    def test_files_of_the_data_folder(self):
        """Of those in corpus/ each keeps or breaks one rule of the specification."""
        rows = []
        for path in sorted(DATA.rglob("*.zt*")):
            content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
            if path.suffix in (".zt", ".xz") and len(content) < 1 << 22:
                rows.append((str(path.relative_to(DATA)), None, content))
        verdicts = self.agree(rows)
        self.assertGreater(len(verdicts), 200)
        corpus = json.loads((DATA / "corpus/corpus.json").read_text())
        self.assertEqual({f"corpus/{name}" for name in corpus}, {label for label in verdicts if label.startswith("corpus/")})
        for name, entry in corpus.items():
            good = verdicts[f"corpus/{name}"] in (agreement.GOOD, agreement.OPAQUE)
            self.assertEqual(good, entry["verdict"] == "accept", (name, entry.get("rule")))

    def test_forged_files(self):
        self.assertGreater(len(self.agree(list(forged.rows()))), 150)

    def test_forged_torch_files(self):
        self.assertGreater(len(self.agree(list(forged_torch.rows()))), 250)

    def test_forged_safetensors_files(self):
        self.assertGreater(len(self.agree(list(forged_safetensors.rows()))), 180)

    def test_a_large_safetensors_header_is_read_as_a_small_one(self):
        """It is parsed in parts, on several threads. Some names and fields look like the end of an entry."""
        looks_like_an_end = ['"fill %d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}', '"fill %d},":{"note":{"a":{},"b":1},"dtype":"U8",'
                             '"shape":[0],"data_offsets":[0,0]}', '"fill more %d" : {"data_offsets":[0,0],"dtype":"U8","shape":[0]}\n']
        fill = [",".join(one % i for i in range(4000)).encode() for one in looks_like_an_end]

        def listed(header, data):
            path = self.folder / "x.safetensors"
            path.write_bytes(make_safetensors.raw(header, data))
            done = self.run_program("inspect", "--json", path)
            if done.returncode != 0:
                return done.returncode, done.stderr
            said = json.loads(done.stdout)
            for each in said["objects"]:
                for component in each["components"]:
                    component["offset"] -= len(header)
            return [each for each in said["objects"] if not each["name"].startswith("fill")], said.get("attributes")

        tried = 0
        for number, (name, _, header, data, _) in enumerate(forged_safetensors.headers()):
            header = header if isinstance(header, (bytes, str)) else json.dumps(header)
            header = header if isinstance(header, bytes) else header.encode()
            if not header.startswith(b'{"') or len(header) > 1 << 20:
                continue
            more = fill[number % len(fill)]
            small = listed(header, data)
            with self.subTest(name):
                self.assertEqual(listed(b"{" + more + b"," + header[1:], data), small)
                if header.endswith(b"}}"):
                    self.assertEqual(listed(header[:-1] + b"," + more + b"}", data), small)
            tried += 1
        self.assertGreater(tried, 100)
        metadata = b'"__metadata__":{"k":"v"}'
        for first, second in itertools.product((metadata, b'"__metadata__":null', b'"__metadata__":{}'), repeat=2):
            said = listed(b"{" + first + b"," + fill[0] + b"," + second + b"}", b"")
            self.assertEqual(said[0], INVALID)
            self.assertIn(b"key '__metadata__' occurs twice", said[1])
        for where in ([metadata, *fill], [fill[0], metadata, fill[1]], [*fill, metadata]):
            self.assertEqual(listed(b"{" + b",".join(where) + b"}", b""), ([], {"k": "v"}))

    def test_paths_that_no_file_may_have(self):
        self.assertGreater(len(self.agree(list(forged_paths.rows()))), 200)
        self.assertFalse(os.path.exists(forged_paths.OUTSIDE))

    def test_random_files(self):
        """30 random and 30 mutated files of each version; scripts/agreement.sh tries more."""
        count = int(os.environ.get("ZT_COUNT", 30))
        verdicts = self.agree(agreement.random_files(count, int(os.environ.get("ZT_SEED", 1))))
        for version in random_manifests.VERSIONS:
            found = collections.Counter(verdict.split()[0] for label, verdict in verdicts.items() if label.startswith(version))
            self.assertGreater(min(found[agreement.GOOD], found[agreement.BAD]), count // 2, version)

    def test_a_safetensors_file_cut_at_every_byte(self):
        content = make_safetensors.encode(make_safetensors.sample(("a", "b"), "U8", (5,)), {"k": "v"})
        for length in range(len(content)):
            source = self.put("bad.safetensors", content[:length])
            self.fail_with(INVALID, "convert", source, "-o", self.path("o.zt"), says="bad.safetensors")
            self.assertEqual(self.entries(), ["bad.safetensors"])

    def test_planes_that_say_nothing_of_how(self):
        """2.0: without the map, or a member, a part of planes is rotated, in groups of 128 KiB of each width and chunks of 4 MiB."""
        values = numpy.random.default_rng(1).normal(0, 0.02, 1_200_000).astype("<f4")
        source = self.safetensors("in.safetensors", {"t": ("F32", [1_200_000], values.tobytes())})
        usual, other = self.path("usual.zt"), self.path("other.zt")
        self.succeed("convert", source, "-o", usual, "--spec", "2.0", "--zstd=planes")
        self.succeed("convert", source, "-o", other, "--spec", "2.0", "--zstd=planes", "--chunk", "1MiB")
        files = [zt2read.open_file(path) for path in (usual, other)]
        self.assertEqual([file.objects["t"].parts["data"].planes for file in files], [None, {"chunk": 1 << 20}])
        self.assertEqual([file.decode("t", "data") for file in files], [values.tobytes()] * 2)
        content = usual.read_bytes()
        offset, length, *_ = zt2read.FOOTER.unpack(content[-40:])
        rows, map_of = [], {"rotate": 1, "group": 4 << 17, "chunk": 4 << 20}
        for planes, kind, says in ((None, agreement.GOOD, ""), ({}, agreement.GOOD, ""), ({"rotate": 1}, agreement.GOOD, ""),
                                   ({**map_of, "more": None}, agreement.GOOD, ""), ({"chunk": 0}, agreement.MALFORMED, "'chunk' is 0"),
                                   *(({key: map_of[key] for key in pair}, agreement.GOOD, "") for pair in itertools.combinations(map_of, 2)),
                                   ({"rotate": 2}, agreement.MALFORMED, "'rotate' is 2"), ([], agreement.MALFORMED, "'planes' is not a map")):
            root = cbor2.loads(content[offset:offset + length])
            part = root["objects"]["t"]["parts"]["data"]
            part.pop("planes", None)
            if planes is not None:
                part["planes"] = planes
            file = File()
            file.heap[:] = content[:offset]
            path = self.put(f"{len(rows)}-{planes}.zt", file.finish(zt2read.encode_cbor(root)))
            if kind == agreement.GOOD:
                self.succeed("verify", path, "--against", source)
            if kind != agreement.GOOD or not rows:
                rows.append((str(planes), "2.0", path, kind, says))
        self.agree(rows)

    def test_a_root_whose_shard_is_missing(self):
        source = self.safetensors("in.safetensors", make_safetensors.sample(dtype="F32"))
        for spec in ("1.2", "2.0"):
            self.path(spec).mkdir()
            self.succeed("convert", source, "-o", self.path(spec) / "m.zt", "--spec", spec, "--shards", 2)
            (self.path(spec) / "m-00002-of-00002.zt").unlink()
            # of 2.0 the id is that of the root, which is there
            root = self.run_program("id", self.path(spec) / "m.zt")
            self.assertEqual(self.run_program("id", self.path(spec)).stdout, root.stdout)
            for command in ("inspect", "verify", *["id"] * (spec == "1.2"), "diff", "convert", "extract"):
                words = {"diff": (self.path(spec),), "convert": ("-o", self.path("o.zt")), "extract": ("-o", self.path("o.npz"))}
                with self.subTest(spec, command=command):
                    process = self.run_program(command, self.path(spec), *words.get(command, ()))
                    self.assertIn("m-00002-of-00002.zt", process.stderr.decode())
                    failed = process.returncode in (DIFFERS, INVALID, support.IO)  # a listing may warn instead
                    self.assertTrue(failed or (spec, command, process.returncode) == ("2.0", "inspect", DONE), process)

    def test_bytes_that_are_not_canonical(self):
        """One tensor has one canonical file; what else holds it is not in canonical form."""
        written, held, made = self.path("written.zt"), {}, list(forged.canonical_and_not())
        self.assertEqual(set(self.agree([(name, "2.0", content) for name, _, content in made]).values()), {agreement.GOOD})
        for name, says, content in made:
            path = self.put("in.zt", content)
            with self.subTest(name):
                self.succeed("convert", "-f", "--canonical", path, "-o", written)
                held[written.read_bytes()] = name
                self.assertEqual(content == written.read_bytes(), name == "canonical")
                if says:
                    self.fail_with(DIFFERS, "verify", "--canonical", path, says=says)
                else:
                    self.succeed("verify", "--canonical", path)
        self.assertEqual(len(held), 1)


class WhatIsSaid(support.EndToEnd):
    """And what becomes of what 0.1 and 2.0 leave open."""

    def one(self, name="t", **fields):
        file = File()
        file.add(name, [8], data=file.part(b"abcdefgh", **fields))
        return file

    def test_bools_of_0_1_are_true_where_they_are_not_zero(self):
        bools = {"name": "t", "dtype": "bool", "shape": [4], "data": b"\0\1\2\xff"}
        numbers = {"name": "u", "dtype": "uint8", "shape": [4], "data": b"", "offset": 64, "size": 4}
        sparse = {"name": "t", "dtype": "bool", "shape": [2, 2], "layout": "sparsecoo", "data": struct.pack("<QQB", 1, 0, 2)}
        for entries, want in (([bools], {"t": b"\0\1\1\1"}), ([bools, numbers], {"t": b"\0\1\1\1", "u": b"\0\1\2\xff"}), ([sparse], {"t": b"\1"})):
            found = self.converted(self.put("in.zt", make_zt.encode_01(entries)), "--no-sync")["objects"]
            self.assertEqual({name: each["components"].get("values", each["components"].get("data"))["bytes"] for name, each in found.items()},
                             want)

    def test_padding_of_0_1_is_not_defined(self):
        content = bytearray(make_zt.encode_01([{"name": "t", "dtype": "uint8", "shape": [3], "data": b"abc"}]))
        content[20] = 0xaa
        self.assertEqual(self.json("verify", "--json", self.put("in.zt", bytes(content)))["bytes_unreferenced"], 1)

    def test_custom_fields_that_no_attribute_can_hold(self):
        for value, says in ((cbor2.CBORTag(1, 5), "a value with CBOR tag 1 cannot be kept"),
                            ({1: 2}, "a map key is an integer, only text can be a key"), (cbor2.undefined, "the CBOR value 'undefined' cannot be kept")):
            path = self.put("in.zt", make_zt.encode_01([{"name": "t", "dtype": "float32", "shape": [2, 2], "data": bytes(16), "when": value,
                                                         "kept": "yes"}]))
            for command in (("inspect", path), ("convert", path, "-o", self.path("out.zt"), "-f", "--no-sync")):
                self.expect(DONE, *command, says=f"tensor 't': a custom field is ignored: 'when': {says}")
            self.assertEqual(support.read_zt(self.path("out.zt"))["objects"]["t"]["attributes"], {"kept": "yes"})

    def test_what_a_type_forbids_is_not_shown(self):
        made = {row[0]: (row[2], row[4]) for row in forged.rows() if len(row) > 4}
        for name in ("2.0 a bool of 2", "1.2 a bool of 2", "2.0 f4 of odd count, high nibble"):
            content, says = made[name]
            self.fail_with(INVALID, "show", self.put("in.zt", content), "a", says=says)
        self.assertEqual(self.succeed("show", self.put("b.zt", made["2.0 a bool of 2"][0]), "a[:2]"), b"[False  True]\n")

    def test_rows_that_do_not_ascend_in_any_memory(self):
        """One row of equal columns, far more of them than memory would keep."""
        file, count = File(), 3_000_000
        file.add("m", [1, 4], "zt.sparse_csr/1", values=file.zstd(bytes(count), "u8", frame=1 << 20),
                 indices=file.zstd(bytes(4 * count), "u32", frame=1 << 20), indptr=file.part(forged.u32s(0, count), "u32"))
        path, says = self.put("in.zt", file.finish()), "index 1 is not more than the one before in its row"
        for memory in ((), ("--memory", "2MiB", "-T", "1")):
            self.expect(DIFFERS, "verify", path, *memory, says=says)
            self.fail_with(INVALID, "diff", path, path, *memory, says=says)
            for spec in ("1.2", "2.0"):
                self.fail_with(INVALID, "convert", path, "-o", self.path("o.zt"), "-f", "--spec", spec, *memory, says=says)
            self.fail_with(INVALID, "extract", path, "-o", self.path("o.npz"), "-f", *memory, says=says)

    def test_vendor_names_are_kept(self):
        file = File()
        file.add("t", [8], "ztstream.foo/1", data=file.part(b"abcdefgh", type="ztstream.bar/1"))
        path = self.put("in.zt", file.finish())
        self.succeed("convert", path, "-o", self.path("again.zt"), "--spec", "2.0", "--no-sync")
        self.assertEqual(self.succeed("id", path), self.succeed("id", self.path("again.zt")))

    def test_unknown_types_of_2_0_concern_their_tensor_alone(self):
        file = self.one("known")
        file.add("f6", [4], data=file.part(b"abc", "i8", type="f6_e2m3"))
        path = self.put("in.zt", file.finish())
        self.fail_with(UNSUPPORTED, "convert", path, "-o", self.path("some.zt"), says="type 'f6_e2m3' is not known")
        self.succeed("convert", path, "-o", self.path("some.zt"), "--include", "^known$")

    def test_content_without_a_digest(self):
        none = self.one(digest=None)
        self.assertIn(b"good: 1 object, 1 component, no digests: content not checked, 8 B", self.succeed("verify", self.put("n.zt", none.finish())))
        none.add("u", [3], data=none.part(b"abd"))
        said = self.succeed("verify", self.put("n.zt", none.finish()))
        self.assertIn(b"2 components, 1 digest matches, content of 1 component not checked, 11 B", said)
        self.assertEqual(self.json("verify", "--json", self.path("n.zt"))["unhashed"], 1)
        self.assertIn(b"no digests: content not checked", self.succeed("verify", self.put("u.zt", forged.only_digest("md5:00"))))
        empty = File()
        empty.add("t", [0], data=empty.part(b"", digest=None))
        self.assertIn(b"0 digests match, 0 B", self.succeed("verify", self.put("e.zt", empty.finish())))

    def test_json_names_object_and_component_of_a_file_that_does_not_open(self):
        process = self.run_program("verify", "--json", DATA / "corpus/csr_i64.zt")
        self.assertEqual(process.returncode, DIFFERS)
        self.assertEqual(json.loads(process.stdout)["problems"],
                         [{"object": "s", "component": "indices", "message": "it is of dtype i64, indices are u64"}])
