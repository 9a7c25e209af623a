"""Each kind of bad input gives one clear line and the right exit status, and leaves nothing behind."""
import json
import os
import shutil
import struct

import support
from support import DONE, INVALID, IO, UNSUPPORTED

import make_safetensors


def entry(dtype="U8", shape=(4,), begin=0, end=4):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


class BadFile(support.EndToEnd):

    def refuse(self, content, status=INVALID, says=()):
        """`content` as a file does not convert; the line names the file. Nothing but the input is left."""
        source = self.put("bad.safetensors", content)
        says = (says,) if isinstance(says, str) else tuple(says)
        line = self.fail_with(status, "convert", source, "-o", self.path("o.zt"), says=("bad.safetensors", *says))
        self.assertEqual(self.entries(), ["bad.safetensors"])
        return line

    def refuse_header(self, header, data=b"", status=INVALID, says=()):
        return self.refuse(make_safetensors.raw(header, data), status, says)

    def test_cut_at_every_byte(self):
        content = make_safetensors.encode(make_safetensors.sample(("a", "b"), "U8", (5,)), {"k": "v"})
        for length in range(len(content)):
            with self.subTest(length):
                self.refuse(content[:length])

    def test_one_byte_too_many(self):
        self.refuse(make_safetensors.encode(make_safetensors.sample()) + b"\0")

    def test_header_length_lies(self):
        good = '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
        for length in [0, 1, len(good) - 1, len(good) + 1, len(good) + 5, 100_000_000, 100_000_001, 1 << 32,
                       (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1]:
            with self.subTest(length):
                self.refuse(make_safetensors.raw(good, b"abcd", length))

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

    def test_not_json(self):
        for header in ["", "{", "}", "[]", "null", "1", '"a"', "{]", '{"a"}', '{"a":}', '{"a":1}', '{"a":[]}',
                       '{"a":{}}', "{'a':{}}", "{,}", '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},}',
                       '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}} {}',
                       '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}x']:
            with self.subTest(header):
                self.refuse(make_safetensors.raw(header, b"abcd"), (INVALID, UNSUPPORTED))

    def test_what_is_wrong_with_the_json_comes_first(self):
        """Whatever else is wrong before it."""
        for broken in ['{"a":1,"b"}', '{"a":{"dtype":"F99","shape":[4],"data_offsets":[0,4]},"b":tru}', '{"a":{}} {}',
                       '{"a":{"shape":[4],"shape":[4]},"\\q":1}']:
            with self.subTest(broken):
                self.refuse_header(broken, b"abcd", says="the header is not JSON")

    def test_escapes_are_read_wherever_a_text_stands(self):
        header = '{"\\u0061":{"dt\\u0079pe":"\\u00558","shape":[4],"data_offsets":[0,4]}}'
        source = self.put("escaped.safetensors", make_safetensors.raw(header, b"abcd"))
        self.assertRegex(self.succeed("inspect", source), rb"\na +u8 +\[4\] +dense +4 B\n")

    def test_header_is_not_utf8(self):
        header = b'{"\xff":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
        self.refuse(make_safetensors.raw(header, b"abcd"))

    def test_deep_nesting(self):
        for depth in [100, 100_000, 5_000_000]:
            with self.subTest(depth):
                self.refuse(make_safetensors.raw("[" * depth, b""), (INVALID, UNSUPPORTED))
                self.refuse(make_safetensors.raw('{"a":' * depth, b""), INVALID)

    def test_keys_given_twice(self):
        one = json.dumps(entry())
        self.refuse_header(f'{{"a":{one},"a":{one}}}', b"abcd", says="a")
        self.refuse_header(f'{{"a":{one},"\\u0061":{one}}}', b"abcd", says="a")
        self.refuse_header(f'{{"__metadata__":{{}},"__metadata__":{{}},"a":{one}}}', b"abcd", says="__metadata__")
        self.refuse_header(f'{{"__metadata__":{{"k":"1","k":"2"}},"a":{one}}}', b"abcd", says="k")
        for key, value in entry().items():
            member = f"{json.dumps(key)}:{json.dumps(value)}"
            self.refuse_header(f'{{"a":{one[:-1]},{member}}}}}', b"abcd", says=("'a'", key))

    def test_fields_missing_or_of_another_kind(self):
        for key in entry():
            broken = entry()
            del broken[key]
            self.refuse_header({"a": broken}, b"abcd", says=("'a'", key))
        for key, values in {
            "dtype": [None, 1, [], {}, ["U8"]],
            "shape": [None, 4, "4", {}, [4.0], ["4"], [-4], [[4]], [True], [1e3]],
            "data_offsets": [None, 4, "0,4", {}, [], [4], [0, 2, 4], [0.0, 4.0], [-4, 0], ["0", "4"]],
        }.items():
            for value in values:
                with self.subTest(key, value=value):
                    self.refuse_header({"a": dict(entry(), **{key: value})}, b"abcd", says="'a'")

    def test_metadata_must_be_text(self):
        for metadata in [None, 1, "x", [], {"k": 1}, {"k": None}, {"k": ["v"]}, {"k": {"a": "b"}}]:
            with self.subTest(metadata):
                self.refuse_header({"__metadata__": metadata, "a": entry()}, b"abcd", says="__metadata__")

    def test_holes_and_overlaps(self):
        for offsets in [
            [(0, 4), (5, 9)],   # a hole between
            [(1, 5), (5, 9)],   # a hole before
            [(0, 4), (3, 7)],   # overlap
            [(0, 4), (0, 4)],   # the same bytes twice
            [(0, 4), (4, 8)],   # trailing byte
        ]:
            with self.subTest(offsets):
                header = {name: entry(begin=begin, end=end) for name, (begin, end) in zip("ab", offsets)}
                self.refuse_header(header, bytes(9))

    def test_offsets_beyond_the_file_or_backwards(self):
        top = (1 << 64) - 1
        for begin, end in [(0, 5), (4, 0), (2, 6), (4, 8), (top - 3, top), (top, 3), (0, top), (0, 1 << 63)]:
            with self.subTest(begin=begin, end=end):
                self.refuse_header({"a": entry(begin=begin, end=end)}, b"abcd",
                                   says="data_offsets run backwards" if end < begin else "'a'")

    def test_numbers_beyond_64_bits(self):
        for number in [1 << 64, 1 << 70, 1 << 200]:
            with self.subTest(number):
                self.refuse_header({"a": entry(shape=[number])}, b"abcd", says="the header is not JSON")
                self.refuse_header({"a": entry(begin=number, end=number + 4)}, b"abcd", says="the header is not JSON")

    def test_size_that_does_not_follow_from_the_shape(self):
        for dtype, shape in [("U8", [3]), ("U8", [5]), ("F32", [4]), ("F32", []), ("F64", []), ("U8", []),
                             ("U8", [0]), ("U8", [4, 0]), ("F4", [7]), ("F6_E2M3", [4])]:
            accepted = dtype == "F32" and shape == []
            with self.subTest(dtype, shape=shape):
                source = self.put("bad.safetensors", make_safetensors.raw({"a": entry(dtype, shape)}, b"abcd"))
                if accepted:
                    self.succeed("convert", source, "-o", self.path("o.zt"))
                    self.path("o.zt").unlink()
                else:
                    self.fail_with(INVALID, "convert", source, "-o", self.path("o.zt"), says="'a'")

    def test_half_a_byte(self):
        """Sub-byte elements that do not fill whole bytes."""
        self.refuse_header({"a": entry("F4", [3], 0, 1)}, b"a", says="'a'")
        self.refuse_header({"a": entry("F6_E2M3", [3], 0, 2)}, b"ab", says="'a'")

    def test_shapes_that_overflow(self):
        for shape in [[1 << 32, 1 << 32], [1 << 63, 2], [(1 << 64) - 1] * 8, [1 << 62, 4, 4]]:
            with self.subTest(shape):
                self.refuse_header({"a": entry("F32", shape)}, b"abcd", says="'a'")

    def test_hostile_rank(self):
        self.refuse_header({"a": entry("U8", [1] * 65, 0, 1)}, b"a", (INVALID, UNSUPPORTED), says="'a'")
        self.refuse_header({"a": entry("U8", [1] * 1_000_000, 0, 1)}, b"a", (INVALID, UNSUPPORTED), says="'a'")

    def test_unknown_dtype_is_named(self):
        for dtype in ["F7", "f32", "BF8", "", "F32 "]:
            with self.subTest(dtype):
                self.refuse_header({"a": entry(dtype)}, b"abcd", UNSUPPORTED, says=("'a'", dtype))

    def test_names_that_a_manifest_cannot_hold(self):
        self.refuse_header('{"\\ud800":' + json.dumps(entry()) + "}", b"abcd")

    def test_control_characters_in_a_name_do_not_break_the_line(self):
        line = self.refuse_header({"x\n\x1b[2Jy": entry("U8", [5])}, b"abcd")
        self.assertNotIn("\x1b", line)

    def test_nothing_of_the_kind(self):
        self.refuse(b"")
        self.refuse(b"\0")
        self.refuse(b"hello, world; this is no tensor file of any kind\n", (INVALID, UNSUPPORTED))
        self.refuse(os.urandom(4096), (INVALID, UNSUPPORTED))

    def test_no_such_file(self):
        self.fail_with(IO, "convert", self.path("none.safetensors"), "-o", self.path("o.zt"), says="none.safetensors")
        self.fail_with(IO, "inspect", self.path("none.zt"), says="none.zt")
        self.fail_with(IO, "verify", self.path("none.zt"), says="none.zt")
        self.assertEqual(self.entries(), [])

    def test_standard_input_cut_short(self):
        content = make_safetensors.encode(make_safetensors.sample(("a", "b"), "U8", (5,)))
        for length in [0, 1, 7, 8, 20, len(content) - 1]:
            with self.subTest(length):
                self.fail_with(INVALID, "convert", "-", "-o", self.path("o.zt"), stdin=content[:length])
                self.assertEqual(self.entries(), [])
        self.fail_with(INVALID, "convert", "-", "-o", self.path("o.zt"), stdin=content + b"x")
        self.assertEqual(self.entries(), [])


class BadFolder(support.EndToEnd):
    """A checkpoint folder whose index and shards do not agree, or that reaches outside itself."""

    SHARDS = {"model-1.safetensors": ("a", "b"), "model-2.safetensors": ("c",)}

    def setUp(self):
        super().setUp()
        (self.folder / "m").mkdir()
        for shard, names in self.SHARDS.items():
            self.safetensors(f"m/{shard}", make_safetensors.sample(names))
        self.map = {name: shard for shard, names in self.SHARDS.items() for name in names}
        self.index()

    def index(self, content=None):
        if content is None:
            content = {"metadata": {"total_size": 768}, "weight_map": self.map}
        text = content if isinstance(content, str) else json.dumps(content)
        self.put("m/model.safetensors.index.json", text.encode())

    def refuse(self, status=INVALID, says=()):
        before = self.entries()
        for source in [self.path("m"), self.path("m/model.safetensors.index.json")]:
            self.fail_with(status, "convert", source, "-o", self.path("o.zt"), says=says)
            self.assertEqual(self.entries(), before)

    def test_good_folder_converts(self):
        self.succeed("convert", self.path("m"), "-o", self.path("o.zt"))
        names = [item["name"] for item in self.json("inspect", "--json", self.path("o.zt"))["objects"]]
        self.assertEqual(sorted(names), ["a", "b", "c"])

    def test_missing_shard(self):
        self.path("m/model-2.safetensors").unlink()
        self.refuse((INVALID, IO), says="model-2.safetensors")

    def test_all_missing_shards_are_named(self):
        for shard in self.SHARDS:
            self.path(f"m/{shard}").unlink()
        self.refuse(INVALID, says="shards model-1.safetensors, model-2.safetensors are missing")

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
                self.fail_with(support.USAGE, "inspect", folder / name, says="pipe")
                self.fail_with(support.USAGE, "convert", "--quant", "group", folder / name, "-o", self.path("o.zt"),
                               says="pipe")
        for command in (["inspect"], ["verify"], ["convert", "-o", self.path("o.zt")]):
            self.fail_with(support.USAGE, *command, "/dev/zero", says="it is a device")

    def test_name_in_two_shards(self):
        self.safetensors("m/model-2.safetensors", make_safetensors.sample(("c", "a")))
        self.refuse(says="'a'")

    def test_index_names_a_tensor_that_its_shard_lacks(self):
        self.map["d"] = "model-2.safetensors"
        self.index()
        self.refuse(says=("'d'", "model-2.safetensors"))

    def test_index_puts_a_tensor_in_the_wrong_shard(self):
        self.map["a"] = "model-2.safetensors"
        self.index()
        self.refuse(says="'a'")

    def test_shard_holds_a_tensor_that_the_index_lacks(self):
        del self.map["b"]
        self.index()
        self.refuse(says=("'b'", "model-1.safetensors"))

    def test_index_gives_a_name_twice(self):
        self.index('{"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors","c":"model-2.safetensors",'
                   '"c":"model-2.safetensors"}}')
        self.refuse(says="c")

    def test_index_is_malformed(self):
        for text in ["", "{", "[]", "{}", '{"weight_map":1}', '{"weight_map":[]}', '{"weight_map":{"a":1}}',
                     '{"weight_map":{"a":null}}', '{"weight_map":{}}x']:
            with self.subTest(text):
                self.index(text)
                self.refuse()

    def test_path_that_leaves_the_folder(self):
        self.safetensors("outside.safetensors", make_safetensors.sample(("c",)))
        for name in ["../outside.safetensors", str(self.path("outside.safetensors")), "./../outside.safetensors",
                     "x/../../outside.safetensors", "..", "", ".", "a\0b"]:
            with self.subTest(name):
                self.map["c"] = name
                self.index()
                self.refuse()

    def test_symbolic_link_out_of_the_folder(self):
        self.safetensors("outside.safetensors", make_safetensors.sample(("c",)))
        self.path("m/model-2.safetensors").unlink()
        self.path("m/model-2.safetensors").symlink_to(self.path("outside.safetensors"))
        self.refuse(says="model-2.safetensors")

    def test_broken_shard_is_named(self):
        content = self.path("m/model-2.safetensors").read_bytes()
        self.put("m/model-2.safetensors", content[:-1])
        self.refuse(says="model-2.safetensors")

    def test_files_that_the_index_does_not_name_are_left_alone(self):
        self.safetensors("m/consolidated.safetensors", make_safetensors.sample(("a", "z")))
        self.expect(DONE, "convert", self.path("m"), "-o", self.path("o.zt"))
        names = [item["name"] for item in self.json("inspect", "--json", self.path("o.zt"))["objects"]]
        self.assertEqual(sorted(names), ["a", "b", "c"])

    def test_wrong_total_size_is_no_error(self):
        self.index({"metadata": {"total_size": 1}, "weight_map": self.map})
        self.succeed("convert", self.path("m"), "-o", self.path("o.zt"))

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
