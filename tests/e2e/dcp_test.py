"""Distributed checkpoints through the program: tensors put together from chunks of rows, of columns and of both."""
import hashlib
import json
import shutil
import struct
import zipfile

import make_safetensors
from dcp_assembler import METADATA, Checkpoint, floats, grid, instance, listed, members
from pickle_assembler import (FLOATS, call, dictionary, glob, number, numbers, pickled, tensor, text, tup)
from support import DATA, INVALID, UNSUPPORTED, EndToEnd, read_zt

class Dcp(EndToEnd):

    def test_the_fixture(self):
        expected = json.loads((DATA / "dcp/expected.json").read_text())
        objects = self.converted(DATA / "dcp")["objects"]
        self.assertEqual(sorted(objects), sorted(expected))
        for name, (element, shape, sha256) in expected.items():
            got = objects[name]["components"]["data"]
            self.assertEqual([got["dtype"], list(objects[name]["shape"])], [element, shape])
            self.assertEqual(hashlib.sha256(got["bytes"]).hexdigest(), sha256)

    def test_rows_columns_and_boxes(self):
        checkpoint = Checkpoint(self.path("dcp"))
        for name, shape, cuts in [
                ("rows", (7, 9), [(0, 3, 7), (0, 9)]), ("columns", (7, 9), [(0, 7), (0, 2, 6, 9)]),
                ("boxes", (7, 9), [(0, 3, 7), (0, 2, 6, 9)]), ("deep", (4, 5, 6), [(0, 1, 4), (0, 2, 5), (0, 6)]),
                ("inner", (4, 5, 6), [(0, 4), (0, 3, 5), (0, 1, 6)]), ("line", (10,), [(0, 4, 5, 10)]),
                ("large", (700, 600), [(0, 350, 700), (0, 100, 600)]), ("wide", (3, 200000), [(0, 3), (0, 7, 200000)])]:
            count = 1
            for size in shape:
                count *= size
            checkpoint.add(name, shape, grid(cuts), floats(count), file=f"__{name}.distcp")
        checkpoint.add("scalar", (), [((), ())], floats(1))
        checkpoint.add("empty", (0, 3), [], b"")
        objects = self.converted(checkpoint.write())["objects"]
        self.assertEqual(len(objects), 10)
        for name, entry in objects.items():
            data = entry["components"]["data"]["bytes"]
            self.assertEqual(data, floats(len(data) // 4), name)

    def refuse(self, status, says, boxes=(((0, 0), (2, 3)),), shape=(2, 3), change=None, **options):
        shutil.rmtree(self.path("bad"), ignore_errors=True)
        checkpoint = Checkpoint(self.path("bad"))
        checkpoint.add("w", shape, list(boxes), floats(10000), **options)
        folder = checkpoint.write()
        if change:
            change(folder)
        self.fail_with(status, "convert", folder, "-o", self.path("x.zt"), says=says)

    def test_hostile_checkpoints(self):
        self.put("outside.distcp", b"x")
        self.refuse(INVALID, "of 6 elements", boxes=[((0, 0), (1, 3))])
        self.refuse(INVALID, "overlap", boxes=[((0, 0), (2, 3)), ((0, 1), (1, 1))])
        self.refuse(INVALID, "overlap", boxes=[((0, 0), (1, 2)), ((0, 1), (1, 2)), ((1, 0), (1, 2))])
        self.refuse(INVALID, "outside shape", boxes=[((0, 0), (2, 4))])
        self.refuse(INVALID, "outside shape", boxes=[((1, 0), (2, 3))])
        self.refuse(INVALID, "another rank", boxes=[((0,), (2,))])
        self.refuse(INVALID, "was expected", element="float64")
        self.refuse(UNSUPPORTED, "not supported", element="qint8")
        self.refuse(INVALID, "only files of the folder", path="../outside.distcp")
        self.refuse(INVALID, "only files of the folder", path=str(self.path("outside.distcp")))
        self.refuse(INVALID, "is missing", path="missing.distcp")
        self.refuse(INVALID, "truncated", shift=1 << 40)
        self.refuse(INVALID, "zip", shift=-0 + 8, change=lambda folder: (folder / "__0_0.distcp").write_bytes(
            (folder / "__0_0.distcp").read_bytes() + bytes(8)))
        self.refuse(UNSUPPORTED, "transformed", descriptors=listed([number(1), number(2)]))
        self.refuse(INVALID, "link", change=lambda folder: (
            (folder / "__0_0.distcp").rename(self.path("moved")),
            (folder / "__0_0.distcp").symlink_to(self.path("moved"))))
        self.refuse(UNSUPPORTED, "not metadata of torch.distributed", change=lambda folder: (folder / ".metadata").write_bytes(pickled(b"}")))
        self.refuse(INVALID, "pickle", change=lambda folder: (folder / ".metadata").write_bytes(b"\x80\x02}"))
        self.refuse(INVALID, "bytes follow the pickle", change=lambda folder: (folder / ".metadata").write_bytes(
            (folder / ".metadata").read_bytes() + b"x"))

    def test_links_out_of_the_folder_are_followed_when_asked(self):
        for name in (".metadata", "__0_0.distcp"):
            checkpoint = Checkpoint(self.path("linked" + name))
            checkpoint.add("w", (2, 3), [((0, 0), (2, 3))], floats(6))
            folder = checkpoint.write()
            (folder / name).rename(self.path("moved" + name))
            (folder / name).symlink_to(self.path("moved" + name))
            self.fail_with(INVALID, "convert", folder, "-o", self.path("x.zt"), says=(name, "--follow-links"))
            self.succeed("convert", "--follow-links", folder, "-o", self.path(f"x{name}.zt"))

    def test_chunks_that_are_deflated(self):
        """A deflated archive is read by one thread at a time, front to back."""
        checkpoint = Checkpoint(self.path("deflated"))
        data = floats(3 << 18)
        checkpoint.add("whole", (3, 1 << 18), [((0, 0), (3, 1 << 18))], data, method=zipfile.ZIP_DEFLATED)
        checkpoint.add("stored", (700, 600), grid([(0, 350, 700), (0, 100, 600)]), floats(420000), file="__1_0.distcp")
        checkpoint.add("cut", (700, 600), grid([(0, 350, 700), (0, 100, 600)]), floats(420000), file="__2_0.distcp",
                       method=zipfile.ZIP_DEFLATED)
        checkpoint.write()
        for options in (["-T", "1"], ["-T", "4"], ["-T", "7", "--memory", "16M"], ["--spec", "2.0", "--canonical"]):
            self.succeed("convert", "-f", *options, checkpoint.folder, "-o", self.path("out.zt"))
            self.succeed("convert", "-f", self.path("out.zt"), "-o", self.path("plain.zt"))
            objects = read_zt(self.path("plain.zt"))["objects"]
            self.assertEqual(len(objects), 3)
            for name, entry in objects.items():
                got = entry["components"]["data"]["bytes"]
                self.assertTrue(got == data[:len(got)], (options, name))

    def test_chunks_that_are_held_share_the_memory(self):
        """Deflated and transposed, so that each is held: one after the other, and all for each row."""
        box = (1024, 1024)
        for name, shape, at in (("rows", (16 * box[0], box[1]), lambda i: (i * box[0], 0)),
                                ("columns", (box[0], 4 * box[1]), lambda i: (0, i * box[1]))):
            checkpoint = Checkpoint(self.path(name))
            count = shape[0] * shape[1] >> 20
            data = bytes(count * 4 << 20)
            for i in range(count):
                checkpoint.add("w", shape, [(at(i), box)], data, file=f"__{i}_0.distcp",
                               method=zipfile.ZIP_DEFLATED, describe=False, transposed=True)
            checkpoint.describe("w", shape, [(at(i), box) for i in range(count)])
            status, _, memory = self.costs("convert", "--memory", "16M", checkpoint.write(), "-o", self.path(f"{name}.zt"))
            self.assertEqual(status, 0 if name == "rows" else UNSUPPORTED)
            if not self.sanitized():
                self.assertLess(memory, 70)

    def test_errors_name_the_file_of_the_chunk(self):
        checkpoint = Checkpoint(self.path("damaged"))
        for i in range(2):
            checkpoint.add("w", (2, 1000), [((i, 0), (1, 1000))], floats(2000), file=f"__{i}_0.distcp", describe=False)
        checkpoint.describe("w", (2, 1000), [((0, 0), (1, 1000)), ((1, 0), (1, 1000))])
        damaged = bytearray(checkpoint.files["__1_0.distcp"])
        damaged[damaged.index(floats(2000)[4000:4040])] ^= 1
        checkpoint.files["__1_0.distcp"] = bytes(damaged)
        self.fail_with(INVALID, "convert", checkpoint.write(), "-o", self.path("x.zt"),
                       says=("tensor 'w': the part in __1_0.distcp: ", "CRC"))

    def test_a_tensor_that_cannot_be_converted_is_listed_and_can_be_excluded(self):
        for options in (dict(element="qint8"), dict(descriptors=listed([number(1), number(2)]))):
            shutil.rmtree(self.path("mixed"), ignore_errors=True)
            checkpoint = Checkpoint(self.path("mixed"))
            checkpoint.add("bad", (2, 3), [((0, 0), (2, 3))], floats(6), file="__1_0.distcp", **options)
            checkpoint.add("good", (2, 3), [((0, 0), (2, 3))], floats(6))
            listing = self.succeed("inspect", checkpoint.write()).decode()
            self.assertIn("bad", listing)
            self.assertIn("good", listing)
            self.fail_with(UNSUPPORTED, "convert", checkpoint.folder, "-o", self.path("x.zt"), says="tensor 'bad'")
            self.succeed("convert", "-f", checkpoint.folder, "--exclude", "bad", "-o", self.path("y.zt"))
            self.assertEqual(list(read_zt(self.path("y.zt"))["objects"]), ["good"])
            # Nobody can say whether it is equal to itself.
            self.fail_with(UNSUPPORTED, "diff", checkpoint.folder, checkpoint.folder, says="tensor 'bad'")

    def test_values_that_are_no_tensors(self):
        """Each is an archive of torch.save, and what it holds is named below the value's name."""
        checkpoint = Checkpoint(self.path("values"))
        checkpoint.add("w", (2, 3), [((0, 0), (2, 3))], floats(6))
        checkpoint.value("epoch", number(3))
        checkpoint.value("o.lr", b"G" + struct.pack(">d", 0.25), file="__1_0.distcp")
        checkpoint.value("pair", tup(tensor(), tensor(size=(2,), offset=1)), storages={"0": FLOATS})
        checkpoint.value("tree", dictionary(a=dictionary(w=tensor(size=(1,)), n=text("x")), b=b"C\1z"), storages={"0": FLOATS})
        checkpoint.value("none", b"N")
        checkpoint.value("blob", b"C\1z")
        process = self.expect(0, "convert", checkpoint.write(), "-o", self.path("out.zt"))
        file = read_zt(self.path("out.zt"))
        self.assertEqual({name: entry["components"]["data"]["bytes"] for name, entry in file["objects"].items()},
                         {"w": floats(6), "pair.0": FLOATS, "pair.1": FLOATS[4:12], "tree.a.w": FLOATS[:4]})
        self.assertEqual(file["attributes"], {"epoch": 3, "o.lr": 0.25, "tree.a.n": "x", "none": None})
        said = process.stderr.decode()
        self.assertIn("left out: 'tree.b', 'blob'\n", said)
        self.assertEqual(said.count("left out"), 1)

    def test_values_whose_paths_meet(self):
        checkpoint = Checkpoint(self.path("tensors"))
        checkpoint.add("a.b", (4,), [((0,), (4,))], FLOATS)
        checkpoint.value("a", dictionary(b=tensor()), file="__1_0.distcp", storages={"0": FLOATS})
        self.assertIn("a.b (2)", self.succeed("inspect", checkpoint.write()).decode())
        self.fail_with(UNSUPPORTED, "convert", checkpoint.folder, "-o", self.path("x.zt"),
                       says=("__1_0.distcp", "tensor 'a.b (2)': another tensor is named 'a.b'"))
        self.assertEqual(list(self.converted(checkpoint.folder, "--exclude", r"a\.b \(2\)")["objects"]), ["a.b"])
        for name, more in (("attributes", {}), ("both", {"w": tensor()})):
            checkpoint = Checkpoint(self.path(name))
            checkpoint.add("v", (4,), [((0,), (4,))], FLOATS)
            checkpoint.value("a.b", number(1))
            checkpoint.value("a", dictionary(b=number(2), **more), storages={"0": FLOATS})
            said = self.expect(0, "convert", "-f", checkpoint.write(), "-o", self.path("out.zt")).stderr.decode()
            self.assertEqual(read_zt(self.path("out.zt"))["attributes"], {"a.b": 1})
            self.assertIn("attribute 'a.b' differs" if more else "'a.b' (a second value has the same path)", said)

    def test_damage_in_a_value(self):
        """Also where the value holds bytes that are not read."""
        for blob in (b"", bytes(200_000)):
            checkpoint = Checkpoint(self.path(f"damage{len(blob)}"))
            checkpoint.value("v", dictionary(n=number(123456789), b=b"B" + struct.pack("<I", len(blob)) + blob))
            source = checkpoint.write()
            file = source / "__0_0.distcp"
            file.write_bytes(file.read_bytes().replace(struct.pack("<I", 123456789), struct.pack("<I", 123456788)))
            self.fail_with(INVALID, "convert", source, "-o", self.path("x.zt"), says=("tensor 'v'", "__0_0.distcp", "CRC-32"))

    def test_a_value_that_cannot_be_read_can_be_excluded(self):
        for name, says, body, info in [
                ("class", "'__main__.Net' and holds tensors", glob("__main__", "Net") + tup(tensor()) + b"\x81", {}),
                ("packed", "transformed", tensor(), dict(transform_descriptors=listed([number(1)])))]:
            checkpoint = Checkpoint(self.path(name))
            checkpoint.add("w", (2, 3), [((0, 0), (2, 3))], floats(6))
            checkpoint.value("bad", body, storages={"0": FLOATS}, **info)
            folder = checkpoint.write()
            self.assertIn("bad", self.succeed("inspect", folder).decode())
            self.fail_with(UNSUPPORTED, "convert", folder, "-o", self.path("x.zt"), says=("tensor 'bad'", says))
            self.assertEqual(list(self.converted(folder, "--exclude", "bad")["objects"]), ["w"])
        # What is missing or damaged is the problem of what lies there, whole or in part.
        checkpoint = Checkpoint(self.path("missing"))
        checkpoint.add("w", (2, 3), [((0, 0), (2, 3))], floats(6))
        checkpoint.add("bad", (4,), [((0,), (2,))], floats(4), describe=False)
        checkpoint.add("bad", (4,), [((2,), (2,))], floats(4), file="__1_0.distcp", describe=False)
        checkpoint.describe("bad", (4,), [((0,), (2,)), ((2,), (2,))])
        checkpoint.value("bad.value", number(1), file="__1_0.distcp")
        checkpoint.value("bad.pickle", b"\x80")
        del checkpoint.files["__1_0.distcp"]
        folder = checkpoint.write()
        listing = self.succeed("inspect", folder).decode()
        self.assertEqual(listing.count("'__1_0.distcp' is missing; get it"), 2)
        for target in "nowhere", "__1_0.distcp":
            (folder / "__1_0.distcp").symlink_to(target)
            self.assertEqual(self.succeed("inspect", folder).decode(), listing)
            (folder / "__1_0.distcp").unlink()
        self.assertIn("bad.pickle", listing)
        for name, says in (("bad", "is missing"), ("bad.value", "is missing"), ("bad.pickle", "the pickle is damaged")):
            self.fail_with(INVALID, "convert", folder, "--include", f"^{name}$|w", "-o", self.path("x.zt"), says=(f"tensor '{name}'", says))
        self.assertEqual(list(self.converted(folder, "--exclude", "^bad")["objects"]), ["w"])
        checkpoint = Checkpoint(self.path("damaged"))
        checkpoint.value("v", call("collections", "OrderedDict"))
        checkpoint.files["__0_0.distcp"] = checkpoint.files["__0_0.distcp"][:-4] + b"    "
        self.fail_with(INVALID, "convert", checkpoint.write(), "-o", self.path("x.zt"), says=("tensor 'v'", "__0_0.distcp"))

    def test_chunks_in_the_format_of_safetensors_are_called_so(self):
        checkpoint = Checkpoint(self.path("dcp"))
        checkpoint.value("epoch", number(3))
        epoch = len(checkpoint.files["__0_0.distcp"])
        checkpoint.add("w", (2, 3), [((0, 0), (2, 3))], floats(6))
        archive = checkpoint.files["__0_0.distcp"]
        header = make_safetensors.raw(b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}', floats(6))
        checkpoint.files["__0_0.distcp"] = archive[:epoch] + header.ljust(len(archive) - epoch, b" ")
        self.fail_with(UNSUPPORTED, "convert", checkpoint.write(), "-o", self.path("x.zt"), says=("tensor 'w'", "name its files instead, each is a safetensors file"))

    def metadata(self, tensors, places):
        folder = self.path("hostile")
        folder.mkdir(exist_ok=True)
        (folder / ".metadata").write_bytes(pickled(instance(METADATA, "Metadata", members(
            storage_data=places, state_dict_metadata=tensors))))
        return folder

    def test_what_is_shared_is_looked_at_once(self):
        """Texts and states that the pickle has once, and mentions thousands of times."""
        count, long = 12000, text("n" * 250000)
        info = instance("torch.distributed.checkpoint.filesystem", "_StorageInfo", members(
            relative_path=text("f" * 250000), offset=number(0), length=number(0)))
        place = glob(METADATA, "MetadataIndex") + b"q\x010" + text("fqn") + b"q\x020" + long + b"q\x030" + \
            text("offset") + b"q\x040" + info + b"q\x050"
        places = place + b"}(" + b"".join(
            b"h\x01)\x81}(h\x02h\x03h\x04" + numbers((i,)) + b"ubh\x05" for i in range(count)) + b"u"
        others = b"}(" + long + b"q\x06Nu0}(" + b"h\x06N" * 100000 + b"u"
        states = b"}(" + b"".join(text(str(i)) + b"N" for i in range(30000)) + text("fqn") + text("w") + b"uq\x020"
        shared = glob(METADATA, "MetadataIndex") + b"q\x010" + states + b"}(" + b"h\x01)\x81h\x02bN" * 30000 + b"u"
        for tensors, where, status in ((b"}", places, 0), (others, b"}", INVALID), (b"}", shared, INVALID)):
            folder = self.metadata(tensors, where)
            got, seconds, memory = self.costs("inspect", folder)
            self.assertEqual(got, status)
            self.assertLess(seconds, 5)
            if not self.sanitized():
                self.assertLess(memory, 300)

    def test_chunks_do_not_share_their_bytes(self):
        """Each chunk's archive is read: one of many entries that stands for many chunks would take for ever."""
        checkpoint = Checkpoint(self.path("shared"))
        for i in range(10):
            before = len(checkpoint.files.get("__0_0.distcp", b""))
            checkpoint.add(f"w{i}", (2, 3), [((0, 0), (2, 3))], floats(6), shift=-before)
        checkpoint.files["__0_0.distcp"] = checkpoint.files["__0_0.distcp"][:before // 9]
        self.fail_with(INVALID, "convert", checkpoint.write(), "-o", self.path("x.zt"), says="chunks share the bytes")
