"""Inputs that are missing, cut, too large or no files, and folders that reach outside themselves; verdict_test.py has the rest."""
import json
import os
import shutil
import struct

import support
from support import INVALID

import make_safetensors


class BadInput(support.EndToEnd):

    def test_header_limit_is_exact(self):
        """A header of 100,000,000 bytes is read, one of a byte more is not. The file is a sparse one."""
        good = b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
        for length, accepted in [(100_000_000, True), (100_000_001, False)]:
            source = self.path("limit.safetensors")
            with open(source, "wb") as out:
                out.write(struct.pack("<Q", length) + good)
                left = length - len(good)
                while left:
                    left -= out.write(b" " * min(left, 1 << 20))
                out.write(b"abcd")
            if accepted:
                self.succeed("convert", source, "-o", self.path("o.zt"))
                self.path("o.zt").unlink()
            else:
                self.fail_with(INVALID, "convert", source, "-o", self.path("o.zt"), says="limit.safetensors")
                self.fail_with(INVALID, "convert", "--from", "safetensors", source, "-o", self.path("o.zt"),
                               says="100000000")
            source.unlink()

    def test_escapes_are_read_wherever_a_text_stands(self):
        header = '{"\\u0061":{"dt\\u0079pe":"\\u00558","shape":[4],"data_offsets":[0,4]}}'
        source = self.put("escaped.safetensors", make_safetensors.raw(header, b"abcd"))
        self.assertRegex(self.succeed("inspect", source), rb"\na +u8 +\[4\] +dense +4 B\n")

    def test_standard_input_with_a_byte_more(self):
        content = make_safetensors.encode(make_safetensors.sample(("a", "b"), "U8", (5,)))
        self.fail_with(INVALID, "convert", "-", "-o", self.path("o.zt"), stdin=content + b"x")
        self.assertEqual(self.entries(), [])

    def numbered(self, present, count, index=False):
        """A folder of the shards `present` of a set; with an index that lists them and no others, or without."""
        folder = self.path("numbered")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        names = {f"t{part}": f"model-{part:05}-of-{count:05}.safetensors" for part in present}
        for tensor, shard in names.items():
            make_safetensors.write(folder / shard, make_safetensors.sample((tensor,)))
        if index:
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        return folder

    def test_a_set_of_shards_is_whole(self):
        for present, count, missing in [((1, 3), 3, "00002"), ((1, 2, 4, 5, 9), 9, "00003, 00006 to 00008"),
                                        ((5,), 6, "00001 to 00004, 00006"), ((0, 1), 3, "00002"), ((2, 3), 3, "00001"),
                                        (range(1, 100, 2), 999, "00038, 00040 and others")]:
            for index in (False, True):
                with self.subTest(missing, index=index):
                    folder = self.numbered(present, count, index)
                    self.fail_with(INVALID, "convert", folder, "-o", self.path("o.zt"),
                                   says=(f"{missing} of 'model-*-of-{count:05}.safetensors'", "not whole"))
        for present, count in [((1, 2, 3), 3), ((0, 1, 2), 3), ((1,), 1), ((7,), 3)]:
            for index in (False, True):
                with self.subTest(present=present, index=index):
                    self.succeed("convert", "-f", self.numbered(present, count, index), "-o", self.path("o.zt"))

    def test_a_pipe_among_the_files_is_refused_at_once(self):
        for name in ["model.safetensors", "model.safetensors.index.json", "a.npy", "a.gguf", "config.json"]:
            with self.subTest(name):
                folder = self.path("pipes-" + name)
                folder.mkdir()
                os.mkfifo(folder / name)
                self.fail_with(support.USAGE, "inspect", folder, says=() if name == "config.json" else "pipe")
                self.fail_with(support.USAGE, "convert", "--quant", "group", folder, "-o", self.path("o.zt"),
                               says=() if name == "config.json" else "pipe")
        for command in (["inspect"], ["verify"], ["convert", "-o", self.path("o.zt")]):
            self.fail_with(support.USAGE, *command, "/dev/zero", says="it is a device")

    def test_empty_folder(self):
        (self.folder / "empty").mkdir()
        self.fail_with(support.USAGE, "convert", self.path("empty"), "-o", self.path("o.zt"), says="empty")

    def test_name_in_two_files_given_by_hand(self):
        for number in range(2):
            self.safetensors(f"{number}.safetensors", make_safetensors.sample(("same",)))
        before = self.entries()
        self.fail_with((INVALID, support.USAGE), "convert", self.path("0.safetensors"), self.path("1.safetensors"),
                       "-o", self.path("o.zt"), says=("'same'", "0.safetensors", "1.safetensors"))
        self.assertEqual(self.entries(), before)

    def test_what_an_index_says_beside_its_map_does_not_matter(self):
        self.safetensors("m/model.safetensors", make_safetensors.sample(("a",)))
        self.safetensors("m/consolidated.safetensors", make_safetensors.sample(("a", "z")))
        self.put("m/model.safetensors.index.json", json.dumps({"metadata": {"total_size": 1}, "weight_map": {"a": "model.safetensors"}}).encode())
        self.succeed("convert", self.path("m"), "-o", self.path("o.zt"))
        self.assertEqual([item["name"] for item in self.json("inspect", "--json", self.path("o.zt"))["objects"]], ["a"])

    def test_symbolic_link_out_of_the_folder(self):
        self.safetensors("outside.safetensors", make_safetensors.sample(("a",)))
        index = self.put("m/model.safetensors.index.json", json.dumps({"weight_map": {"a": "model.safetensors"}}).encode())
        self.path("m/model.safetensors").symlink_to(self.path("outside.safetensors"))
        for source in (self.path("m"), index):
            self.fail_with(INVALID, "convert", source, "-o", self.path("o.zt"), says="model.safetensors")
