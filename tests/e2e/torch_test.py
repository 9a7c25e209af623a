"""PyTorch checkpoints through the program: every tensor has the bytes that torch has, and what cannot be is refused.

Fixtures of torch 2.14 are in tests/data/torch; a Python that has torch writes the others (make_torch.py).
"""
import array
import hashlib
import itertools
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import zipfile

import dcp_assembler as dcp
import make_safetensors
import pickle_assembler as pickles
import zt2read
from support import DATA, DONE, HERE, INVALID, UNSUPPORTED, EndToEnd, read_zt

TORCH = DATA / "torch"
EXPECTED = json.loads((TORCH / "expected.json").read_text())


def python_with_torch():
    """A Python that imports torch, or nothing."""
    for python in dict.fromkeys([sys.executable, "/usr/bin/python3"]):
        found = subprocess.run([python, "-c", "import torch, numpy"], capture_output=True)
        if found.returncode == 0:
            return python
    return None


class Torch(EndToEnd):

    def check(self, objects, expected):
        self.assertEqual(sorted(objects), sorted(expected))
        for name, (element, shape, sha256) in expected.items():
            got, data = objects[name], objects[name]["components"]["data"]
            self.assertEqual([got["format"], data.get("type") or data["dtype"], list(got["shape"])],
                             ["dense", element, shape], name)
            self.assertEqual(hashlib.sha256(data["bytes"]).hexdigest(), sha256, name)

    def test_every_fixture(self):
        for name, expected in EXPECTED.items():
            if expected is None or name == "sparse.pt":
                continue
            with self.subTest(name):
                self.check(self.converted(TORCH / name)["objects"], expected)

    def test_a_legacy_stream_may_come_from_a_pipe(self):
        for name in ("views_legacy.pt", "dtypes_legacy.pt"):
            with self.subTest(name):
                self.check(self.converted("-", stdin=(TORCH / name).read_bytes())["objects"], EXPECTED[name])
        self.fail_with(UNSUPPORTED, "convert", "-", "-o", self.path("x.zt"), stdin=(TORCH / "views.pt").read_bytes(),
                       says="standard input")

    def test_numbers_and_texts_become_attributes(self):
        attributes = self.converted(TORCH / "training.pth")["attributes"]
        self.assertEqual(attributes["epoch"], 3)
        self.assertEqual(attributes["optimizer.param_groups.0.params"], [0, 1, 2, 3])

    def test_sparse_tensors(self):
        objects = self.converted(TORCH / "sparse.pt")["objects"]
        dense = objects.pop("dense")["components"]["data"]["bytes"]
        self.assertEqual(hashlib.sha256(dense).hexdigest(), EXPECTED["sparse.pt"]["dense"][2])
        self.assertEqual({name: entry["format"] for name, entry in objects.items()},
                         {"coo": "sparse_coo", "csr": "sparse_csr"})
        want = list(struct.unpack("<35f", dense))
        for name, entry in objects.items():
            parts = {role: part["bytes"] for role, part in entry["components"].items()}
            values = struct.unpack(f"<{len(parts['values']) // 4}f", parts["values"])
            numbers = {role: struct.unpack(f"<{len(data) // 8}Q", data)
                       for role, data in parts.items() if role != "values"}
            got = [0.0] * 35
            if name == "coo":
                for place, value in enumerate(values):
                    got[numbers["coords"][place] * 7 + numbers["coords"][len(values) + place]] += value
            else:
                for row in range(5):
                    for place in range(numbers["indptr"][row], numbers["indptr"][row + 1]):
                        got[row * 7 + numbers["indices"][place]] = values[place]
            self.assertEqual(got, want, name)

    def test_tied_tensors_share_a_blob(self):
        objects = self.converted(TORCH / "tied.pt")["objects"]
        offsets = {name: entry["components"]["data"]["offset"] for name, entry in objects.items()}
        self.assertEqual(offsets["embed"], offsets["head"])
        self.assertEqual(len(set(offsets.values())), 2)

    def test_what_cannot_be_is_refused_by_name(self):
        for name, says in {
                "refuse_quantized.pt": "quantized",
                "refuse_conj.pt": "resolve_conj()",
                "refuse_object.pt": "save its state_dict()"}.items():
            with self.subTest(name):
                self.fail_with(UNSUPPORTED, "convert", TORCH / name, "-o", self.path("x.zt"), says=says)
                self.assertEqual(self.entries(), [])

    def test_an_unsupported_tensor_can_be_excluded(self):
        listing = self.succeed("inspect", TORCH / "refuse_conj.pt").decode()
        self.assertIn("torch", listing)

    def test_a_big_endian_archive(self):
        source, swapped = TORCH / "views.pt", self.path("big.pt")
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(swapped, "w") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if entry.filename.endswith("/byteorder"):
                    data = b"big"
                elif "/data/" in entry.filename:
                    width = 2 if entry.filename.endswith("/5") else 4  # bf16t alone has other elements
                    data = b"".join(data[i:i + width][::-1] for i in range(0, len(data), width))
                new.writestr(entry.filename, data)
        self.check(self.converted(swapped)["objects"], EXPECTED["views.pt"])

    def test_deflated_archives(self):
        for name in ("views.pt", "tied.pt", "training.pth", "dtypes.pt"):
            with self.subTest(name):
                deflated = self.path(name)
                with zipfile.ZipFile(TORCH / name) as old, \
                        zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as new:
                    for entry in old.infolist():
                        new.writestr(entry.filename, old.read(entry))
                self.check(self.converted(deflated)["objects"], EXPECTED[name])

    def test_an_archive_without_crcs_is_read_with_a_warning(self):
        data = bytearray((TORCH / "views.pt").read_bytes())
        place = data.find(b"PK\x01\x02")
        while place >= 0:
            data[place + 16:place + 20] = bytes(4)
            place = data.find(b"PK\x01\x02", place + 4)
        bare = self.put("bare.pt", bytes(data))
        self.expect(DONE, "convert", bare, "-o", self.path("bare.zt"), says="no CRCs")
        self.check(read_zt(self.path("bare.zt"))["objects"], EXPECTED["views.pt"])

    def test_memory_limits_hold_for_views(self):
        for limit in ("64KiB", "1MiB"):
            process = self.run_program("convert", "-f", "--memory", limit, TORCH / "views.pt", "-o", self.path("m.zt"))
            if process.returncode == 0:
                self.check(read_zt(self.path("m.zt"))["objects"], EXPECTED["views.pt"])

    def test_memory_is_bounded_for_what_is_held(self):
        """Deflated files of one checkpoint hold their storages together; what was freed goes back to the system."""
        from pickle_assembler import dictionary, tensor
        folder = pathlib.Path(self.path("shards"))
        folder.mkdir()
        rows, columns = 6 << 10, 1 << 10
        for i in range(1, 9):
            body = dictionary(**{f"w{i}": tensor(size=(rows, columns), stride=(1, rows), count=rows * columns)})
            content = pickles.archive(body, {"0": bytes([i, 0, 0, 0]) * (rows * columns)}, method=zipfile.ZIP_DEFLATED)
            (folder / f"pytorch_model-{i:05}-of-00008.bin").write_bytes(content)
        for threads in "1", "4":
            with self.subTest(threads=threads):
                status, _, memory = self.costs("convert", "-f", "--no-sync", "--memory", "64MiB", "-T", threads, folder,
                                               "-o", self.path("held.zt"))
                self.assertEqual(status, 0)
                if not self.sanitized():
                    self.assertLess(memory, 112)

    def test_memory_is_bounded_for_transposed_tensors(self):
        """Whatever is under way, with one thread and with two: 64 MiB each that are read column by column."""
        from pickle_assembler import dictionary, tensor
        from pickle_assembler import pickled
        rows = columns = 4096
        source, output = self.path("large.pt"), self.path("large.zt")
        members = {name: tensor(size=(rows, columns), stride=(1, rows), key=name, count=rows * columns) for name in "ab"}
        storage = array.array("I", range(rows * columns))
        with zipfile.ZipFile(source, "w") as archive:
            archive.writestr("a/data.pkl", pickled(dictionary(**members)))
            for name in members:
                archive.writestr(f"a/data/{name}", memoryview(storage).cast("B"))
        del storage
        for options in (["-T1"], ["-T2"], ["-T8", "--memory=64MiB"], ["-T2", "--zstd"]):
            with self.subTest(options):
                status, _, memory = self.costs("convert", "-f", *options, source, "-o", output)
                self.assertEqual(status, 0)
                if not self.sanitized():
                    self.assertLess(memory, 96)
                if "--zstd" not in options:
                    self.check_rows(output, rows, columns)
        self.assertEqual(self.run_program("verify", "--against", source, output).returncode, 0)

    def check_rows(self, output, rows, columns):
        """Of two tensors whose element (r, c) is r + c * rows: the first row, the last, and some between."""
        placed = json.loads(self.succeed("inspect", "--json", output))["objects"]
        with open(output, "rb") as file:
            for each in placed:
                for row in (0, 1, 959, 960, 2000, rows - 1):
                    file.seek(each["components"][0]["offset"] + row * columns * 4)
                    got = array.array("I", file.read(columns * 4))
                    self.assertEqual(got, array.array("I", range(row, rows * columns, rows)), (each["name"], row))

    def test_indices_of_two_widths_in_one_storage(self):
        """The same bytes are other numbers, and the same numbers may be wrong for another shape."""
        storages = {"0": struct.pack("<2q", 1, 3), "1": struct.pack("<2f", 5, 6)}

        def coo(size, **where):
            values = pickles.tensor((2,), (1,), key="1", count=2)
            return pickles.call("torch._utils", "_rebuild_sparse_tensor", pickles.text("torch.sparse_coo"), pickles.tup(
                pickles.tensor((1, 2), (2, 1), key="0", **where), values, pickles.numbers((size,))))

        long, short = coo(5, kind="LongStorage", count=2), coo(5, kind="IntStorage", count=4)
        self.put("two.pt", pickles.archive(pickles.dictionary(a=long, b=short, c=long), storages))
        objects = self.converted(self.path("two.pt"))["objects"]
        got = {name: struct.unpack("<2Q", entry["components"]["coords"]["bytes"]) for name, entry in objects.items()}
        self.assertEqual(got, {"a": (1, 3), "b": (1, 0), "c": (1, 3)})
        self.put("small.pt", pickles.archive(pickles.dictionary(a=long, c=coo(2, kind="LongStorage", count=2)), storages))
        self.fail_with(INVALID, "convert", self.path("small.pt"), "-o", self.path("x.zt"),
                       says=("tensor 'c'", "index 1 is 3, beyond the dimension of 2"))

    def test_entries_by_columns(self):
        """A csc tensor becomes coo: its rows, then the column of each entry; more of them than are read at once."""
        rows, columns, rng = 50, 30000, random.Random(1)
        sizes = [rng.choice((0, 0, 1, 2, 9)) for _ in range(columns)]
        places = [row for size in sizes for row in sorted(rng.sample(range(rows), size))]
        pointers, count = [0, *itertools.accumulate(sizes)], len(places)
        expected = struct.pack(f"<{2 * count}Q", *places, *(column for column, size in enumerate(sizes) for _ in range(size)))
        values = struct.pack(f"<{count}f", *range(count))
        for kind, letter in (("LongStorage", "q"), ("IntStorage", "i")):
            def tensor(columns, count, first=0, shape=None, kind=kind):
                return pickles.call("torch._utils", "_rebuild_sparse_tensor", pickles.text("torch.sparse_csc"), pickles.tup(
                    pickles.tensor((columns + 1,), (1,), first, key="0", kind=kind, count=len(pointers)),
                    pickles.tensor((count,), (1,), key="1", kind=kind, count=len(places)),
                    pickles.tensor((count,), (1,), key="2", count=len(places)), pickles.numbers(shape or (rows, columns))))
            members = {"whole": tensor(columns, count), "begin": tensor(7, pointers[7]), "none": tensor(0, 0)}
            storages = {"0": struct.pack(f"<{len(pointers)}{letter}", *pointers), "1": struct.pack(f"<{count}{letter}", *places), "2": values}
            for method in zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED:
                source = self.put("c.pt", pickles.archive(pickles.dictionary(**members), storages, method=method))
                for threads in "1", "8":
                    objects = self.converted(source, "-T", threads, "--memory", "4M")["objects"]
                    self.assertEqual({(entry["format"], tuple(entry["shape"])) for entry in objects.values()},
                                     {("sparse_coo", (rows, columns)), ("sparse_coo", (rows, 7)), ("sparse_coo", (rows, 0))})
                    self.assertEqual(objects["whole"]["components"]["coords"]["bytes"], expected)
                    self.assertEqual(objects["whole"]["components"]["values"]["bytes"], values)
                    self.assertEqual(objects["begin"]["components"]["coords"]["bytes"],
                                     b"".join(expected[at * count * 8:][:pointers[7] * 8] for at in (0, 1)))
            self.assertEqual(self.succeed("show", source, "whole/coords[-1]"), f"{struct.unpack('<Q', expected[-8:])[0]}\n".encode())
            self.fail_with(INVALID, "convert", self.put("bad.pt", pickles.archive(pickles.dictionary(w=tensor(columns, count - 1)), storages)),
                           "-o", self.path("x.zt"), says=("tensor 'w'", f"its pointers end with {count}, there are {count - 1} values"))
            falling = [*pointers[:-9], 0, *pointers[-8:]]
            storages["0"] = struct.pack(f"<{len(falling)}{letter}", *falling)
            self.put("bad.pt", pickles.archive(pickles.dictionary(w=tensor(columns, count)), storages))
            self.fail_with(INVALID, "show", self.path("bad.pt"), "w/coords[-1]", says=("w/coords", "its pointers fall"))

    def test_pointers_to_columns_from_a_pipe(self):
        """Two csc tensors share pointers, which are kept for the second where the memory suffices."""
        columns, count = 1000, 262000
        def part(key, size, kind="LongStorage"):
            return pickles.tensor((size,), (1,), of=pickles.stream_storage(key, kind, size))
        def tensor(values, rows):
            return pickles.call("torch._utils", "_rebuild_sparse_tensor", pickles.text("torch.sparse_csc"), pickles.tup(
                part("2", columns + 1), part(rows, count), part(values, count, "FloatStorage"), pickles.numbers((1, columns))))
        data = {"0": bytes(4 * count), "1": bytes(8 * count), "2": struct.pack(f"<{columns + 1}q", *(262 * i for i in range(columns + 1))),
                "3": bytes(4 * count), "4": bytes(8 * count)}
        sizes = {key: columns + 1 if key == "2" else count for key in data}
        stream = pickles.stream(pickles.dictionary(a=tensor("0", "1"), b=tensor("3", "4")),
                                b"](" + b"".join(map(pickles.text, data)) + b"e",
                                b"".join(pickles.u64(sizes[key]) + each for key, each in data.items()))
        self.converted("-", stdin=stream)
        self.fail_with(UNSUPPORTED, "convert", "-", "-o", self.path("x.zt"), "--memory", "4M", stdin=stream,
                       says=("tensor 'b'", "its parts are not in the order in which they are read"))

    def test_floats_of_four_bits_have_a_logical_shape(self):
        """As those of safetensors: torch counts pairs of them. Also in a distributed checkpoint."""
        data = bytes(range(32))
        tensor = pickles.tensor((2, 4), (4, 1), kind="UntypedStorage", module="torch.storage", count=32, rebuild="_rebuild_tensor_v3",
                                more=[pickles.glob("torch", "float4_e2m1fn_x2")])
        self.put("f.pt", pickles.archive(pickles.dictionary(w=tensor), {"0": data}))
        make_safetensors.write(self.path("f.safetensors"), {"w": ("F4", [2, 8], data[:8])})
        checkpoint = dcp.Checkpoint(self.path("f"))
        checkpoint.add("w", (2, 4), [((0, 0), (2, 4))], data, element="float4_e2m1fn_x2", body=tensor)
        for source in self.path("f.pt"), checkpoint.write():
            entry = self.converted(source)["objects"]["w"]
            self.assertEqual((entry["shape"], entry["attributes"]), ([2, 4], {"logical_shape": [2, 8]}))
            self.succeed("diff", source, self.path("f.safetensors"))
            self.succeed("extract", "-f", source, "-o", self.path("back.safetensors"))
            self.assertIn(b'"dtype":"F4","shape":[2,8]', self.path("back.safetensors").read_bytes())
            self.succeed("convert", "-f", "--spec", "2.0", source, "-o", self.path("2.zt"))
            file = zt2read.open_file(self.path("2.zt"))
            self.assertEqual((file.verify(), file.objects["w"].layout, file.objects["w"].shape), ([], "dense", [2, 8]))

    def test_numbers_and_flags_in_one_storage(self):
        """What is tied to another tensor's bytes has rules of its own."""
        members = {"a": pickles.tensor((4,), kind="ByteStorage"), "b": pickles.tensor((4,), kind="BoolStorage")}
        for data, good in ((b"\0\1\1\0", True), (b"\0\1\2\0", False)):
            self.put("m.pt", pickles.archive(pickles.dictionary(**members), {"0": data}))
            for options in ([], ["--spec", "2.0"], ["--spec", "2.0", "--canonical"]):
                words = ["convert", "-f", *options, self.path("m.pt"), "-o", self.path("x.zt")]
                if good:
                    self.succeed(*words)
                    self.succeed("verify", self.path("x.zt"))
                else:
                    self.fail_with(INVALID, *words, says="tensor 'b'")
        whole = {"of": pickles.stream_storage(kind="ByteStorage")}, {"of": pickles.stream_storage(kind="BoolStorage")}
        stream = pickles.stream(pickles.dictionary(**{name: pickles.tensor((4,), **of) for name, of in zip("ab", whole)}),
                                data=pickles.u64(4) + b"\0\1\1\0")
        objects = self.converted("-", stdin=stream)["objects"]
        self.assertEqual([objects[name]["components"]["data"]["bytes"] for name in "ab"], [b"\0\1\1\0"] * 2)

    def test_deflated_storages_in_another_order(self):
        """Slices of one storage, named from the last to the first; then two storages that take turns by name."""
        count, size = 100, 40000
        data = b"".join(struct.pack("<I", i) * size for i in range(count))
        one = {f"t{count - i:03}": pickles.tensor((size,), (1,), i * size, count=count * size) for i in range(count)}
        self.put("one.pt", pickles.archive(pickles.dictionary(**one), {"0": data}, method=zipfile.ZIP_DEFLATED))
        rows = size // 4
        two = {f"t{i:03}": pickles.tensor((rows, 40), (1, rows), key=str(i % 2), count=40 * rows) for i in range(12)}
        self.put("two.pt", pickles.archive(pickles.dictionary(**two), {"0": data[:160 * rows], "1": data[-160 * rows:]},
                                           method=zipfile.ZIP_DEFLATED))
        for name, tensors in (("one.pt", count), ("two.pt", 2)):
            output = self.path("out.zt")
            got, seconds, _ = self.costs("convert", "-f", "--memory", "256M", "--spec", "2.0", "--canonical",
                                         self.path(name), "-o", output)
            self.assertEqual(got, 0)
            self.assertLess(seconds, 3)
            self.succeed("convert", "-f", output, "-o", self.path("plain.zt"))
            objects = read_zt(self.path("plain.zt"))["objects"]
            self.assertEqual(len({entry["components"]["data"]["bytes"] for entry in objects.values()}), tensors)
            if name == "one.pt":
                for at in range(count):
                    self.assertEqual(objects[f"t{count - at:03}"]["components"]["data"]["bytes"], struct.pack("<I", at) * size)
        self.fail_with(UNSUPPORTED, "convert", "-f", "--memory", "8M", "--spec", "2.0", "--canonical", self.path("one.pt"),
                       "-o", self.path("x.zt"), says=("not read in the order in which they are stored", "--memory"))
        self.succeed("convert", "-f", "--memory", "8M", self.path("one.pt"), "-o", self.path("out.zt"))

    def test_what_is_held_stays_as_long_as_it_is_used(self):
        """Indices that all share, and values of each: there is room for the indices and for one of the others."""
        count, size = 40, 40000
        members = {str(at): pickles.call("torch._utils", "_rebuild_sparse_tensor", pickles.text("torch.sparse_coo"), pickles.tup(
            pickles.tensor((1, size), (size, 1), at, key="i", kind="LongStorage", count=size + count),
            pickles.tensor((size,), (2,), key=str(at), count=2 * size), pickles.numbers((size + count,)))) for at in range(count)}
        storages = {"i": struct.pack(f"<{size + count}q", *range(size + count))}
        storages |= {str(at): struct.pack("<I", at) * 2 * size for at in range(count)}
        self.put("m.pt", pickles.archive(pickles.dictionary(**members), storages, method=zipfile.ZIP_DEFLATED))
        objects = self.converted(self.path("m.pt"), "--memory", "1600KiB")["objects"]
        for at in range(count):
            self.assertEqual(objects[str(at)]["components"]["values"]["bytes"], struct.pack("<I", at) * size)
            self.assertEqual(objects[str(at)]["components"]["coords"]["bytes"], storages["i"][8 * at:8 * (at + size)])

    def test_what_is_shared_is_looked_at_once(self):
        """A long key that every tensor shares; as many storages as tensors, none of which fits the memory."""
        each = pickles.glob("torch._utils", "_rebuild_tensor_v2") + b"q\x010" + pickles.tup(
            pickles.text("storage"), pickles.glob("torch", "FloatStorage"), pickles.text("k" * 1000000), pickles.text("cpu"),
            pickles.number(4), b"N") + b"q\x020" + pickles.ORDERED + b"q\x030"
        tensors = b"".join(pickles.text(str(i)) + b"h\x01(h\x02QK\x00K\x01\x85K\x01\x85\x89h\x03tR" for i in range(8000))
        self.put("key.pt", pickles.stream(each + b"}(" + tensors + b"u", b"](" + pickles.text("k" * 1000000) + b"e"))
        status, seconds, _ = self.costs("inspect", self.path("key.pt"))
        self.assertEqual(status, 0)
        self.assertLess(seconds, 2.5)
        count = 6000
        members = {str(i): pickles.tensor((2, 2), (1, 2), of=pickles.stream_storage(str(i), count=1 << 40)) for i in range(count)}
        self.put("many.pt", pickles.stream(pickles.dictionary(**members),
                                           b"](" + b"".join(pickles.text(str(i)) for i in range(count)) + b"e", b""))
        with open(self.path("many.pt"), "rb") as stream, subprocess.Popen(["cat"], stdin=stream, stdout=subprocess.PIPE) as pipe:
            status, seconds, _ = self.costs("inspect", "--from", "torch", "-", stdin=pipe.stdout)
        self.assertLess(seconds, 2.5)

    def test_a_folder_may_hold_other_files_of_that_name(self):
        self.put("model/pytorch_model.bin", pickles.archive(pickles.dictionary(w=pickles.tensor())))
        self.put("model/tok.bin", b"tokens and tokens")
        self.expect(DONE, "convert", self.path("model"), "-o", self.path("m.zt"),
                    says="tok.bin is not a checkpoint, so no tensors are read from it")
        self.assertEqual(list(read_zt(self.path("m.zt"))["objects"]), ["w"])
        # What has a checkpoint's name is one, and a damaged one is no reason to leave it out.
        self.put("model/extra.bin", pickles.archive(pickles.dictionary(e=pickles.tensor())))
        whole = self.path("model/pytorch_model.bin").read_bytes()
        for damaged in (b"", bytes(4) + whole[4:]):
            self.put("model/pytorch_model.bin", damaged)
            self.fail_with((INVALID, UNSUPPORTED), "convert", self.path("model"), "-o", self.path("x.zt"),
                           says="pytorch_model.bin: ")
        for name in ("pytorch_model.bin", "extra.bin"):
            (self.path("model") / name).unlink()
        self.fail_with(UNSUPPORTED, "convert", self.path("model"), "-o", self.path("x.zt"), says="tok.bin: ")

    def test_damage_is_found(self):
        whole = (TORCH / "views.pt").read_bytes()
        place = whole.index(b"views/data/0") + 200
        damaged = self.put("damaged.pt", whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
        self.fail_with(INVALID, "convert", damaged, "-o", self.path("x.zt"), says="CRC")
        legacy = (TORCH / "views_legacy.pt").read_bytes()
        for cut in (30, 200, len(legacy) - 1):
            self.fail_with(INVALID, "convert", self.put("cut.pt", legacy[:cut]), "-o", self.path("x.zt"))
        self.fail_with(INVALID, "convert", self.put("more.pt", legacy + b"x"), "-o", self.path("x.zt"), says="follow")

    def test_a_folder_of_shards_is_checked_against_its_index_both_ways(self):
        from pickle_assembler import archive, dictionary, tensor
        first, second = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"
        folder, index = self.path("shards"), "pytorch_model.bin.index.json"

        def write(map_, files=(first, second)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name, tensors in ((first, ("a", "b")), (second, ("c",))):
                if name in files:
                    (folder / name).write_bytes(archive(dictionary(**{tensor_: tensor() for tensor_ in tensors})))
            if map_ is not None:
                (folder / index).write_text(json.dumps({"weight_map": map_}))

        good = {"a": first, "b": first, "c": second}
        write(good)
        for path in (folder, folder / index):
            self.assertEqual(sorted(self.converted(path)["objects"]), ["a", "b", "c"])
        write(None)
        self.assertEqual(sorted(self.converted(folder)["objects"]), ["a", "b", "c"])
        for says, map_, files in [
                ("is missing", good, (first,)), ("not whole", None, (first,)), ("but not in", {"a": first, "c": second}, (first, second)),
                ("says it is in", {**good, "b": second}, (first, second)), ("is not in", {**good, "d": second}, (first, second)),
                *(("only files of the folder", {**good, "c": name}, (first, second))
                  for name in ("../" + second, "", ".", "..", "a\\b", "a\0b"))]:
            with self.subTest(says):
                write(map_, files)
                self.fail_with(INVALID, "convert", folder, "-o", self.path("x.zt"), says=says)

    def test_every_dtype_layout_protocol_and_container_of_a_real_torch(self):
        python = python_with_torch()
        if python is None:
            self.skipTest("no Python here imports torch (Debian: apt-get install python3-torch)")
        folder = self.path("made")
        folder.mkdir()
        subprocess.run([python, "-B", HERE / "make_torch.py", folder], check=True, capture_output=True)
        expected = json.loads((folder / "expected.json").read_text())
        for name, tensors in expected.items():
            with self.subTest(name):
                self.check(self.converted(folder / name)["objects"], tensors)
                if "_stream_" in name:
                    with open(folder / name, "rb") as stream:
                        self.check(self.converted("-", stdin=stream.read())["objects"], tensors)
