"""The C interface as a careless caller uses it: null everywhere, structs of other sizes, random calls; and that it stays.

tests/data/abi.txt has the symbols with their versions, and the members of all structs with their places. What is there stays:
a release adds lines, and `capi_test.py --write` writes them.
"""
import ctypes
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import unittest
from ctypes import byref, c_size_t, c_uint64, c_void_p, sizeof

import numpy
from package_support import DATA, ROOT, Case, ztstream
from ztstream import _c

c, lib = _c.c, _c.lib
ABI = pathlib.Path(__file__).parents[1] / "data/abi.txt"
# A program that prints sizes and places as the compiler has them; {} are the structs.
STRUCTS = {"zts_call": _c.Call, "zts_reader_options": _c.ReaderOptions, "zts_source": _c.Source, "zts_object": _c.Object,
           "zts_component": _c.Component, "zts_range": _c.Range, "zts_verify_report": _c.VerifyReport,
           "zts_writer_options": _c.WriterOptions, "zts_sink": _c.Sink, "zts_part": _c.Part,
           "zts_declaration": _c.Declaration}


def symbols():
    """The functions that the library exports: "name@version"."""
    out = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", os.environ["ZTSTREAM_LIBRARY"]],
                         check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1].replace("@@", "@") for line in out.splitlines()]
    return sorted(name for name in names if name.startswith("zts_"))


def members():
    """A line for each member of each struct, as the package has them: "struct.member at OFFSET, SIZE bytes"."""
    for name, struct in STRUCTS.items():
        for member, _ in struct._fields_:
            field = getattr(struct, member)
            yield f"{name}.{member} at {field.offset}, {field.size} bytes"
        yield f"{name} has {sizeof(struct)} bytes"


def abi():
    return "\n".join([*symbols(), *members()]) + "\n"


class Stays(Case):
    def test_recorded(self):
        """All that was ever released is as it was, and what is new is recorded."""
        self.assertEqual(abi().splitlines(), ABI.read_text().splitlines())

    def test_header(self):
        """The package's structs are those of c.h, by the system's own compiler."""
        compiler = next((each for each in ("gcc", "cc", "clang-19") if subprocess.run(
            ["which", each], capture_output=True, check=False).returncode == 0), None)
        if compiler is None:
            self.skipTest("no C compiler")
        lines = ["#include <stdio.h>", "#include <stddef.h>", "#include <ztstream/c.h>", "int main(void) {"]
        for name, struct in STRUCTS.items():
            for member, _ in struct._fields_:
                lines.append(f'  printf("{name}.{member} at %zu, %zu bytes\\n", offsetof({name}, {member}), '
                             f'sizeof((({name}*)0)->{member}));')
            lines.append(f'  printf("{name} has %zu bytes\\n", sizeof({name}));')
        lines.append("  return ZTS_ABI;\n}")
        program = self.path("a.out")
        subprocess.run([compiler, "-x", "c", "-Wall", "-Wextra", "-pedantic", "-Werror", "-std=c99", f"-I{ROOT}/capi/include",
                        "-o", program, "-"], input="\n".join(lines) + "\n", check=True, text=True)
        done = subprocess.run([program], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout.splitlines(), list(members()))
        self.assertEqual(done.returncode, c.abi())


CPP = r"""
#include <cstdio>
#include <cstring>
#include <string>
#include <ztstream/ztstream.h>
using namespace std::string_literals;

template <typename Call>
void Says(Call call) {
  try {
    call();
    std::puts("nothing");
  } catch (const ztstream::Error& error) {
    std::printf("%d %s\n", static_cast<int>(error.code()), error.what());
  }
}

struct Memory : ztstream::Sink {
  std::string bytes;
  std::uint64_t total = 0, most = UINT64_MAX;
  bool aborted = false;
  void Append(const void* data, std::size_t size) override {
    if (bytes.size() + size > most) throw std::string("it is full");
    bytes.append(static_cast<const char*>(data), size);
  }
  void Finish(std::uint64_t size) override { total = size; }
  void Abort() noexcept override { aborted = true; }
};

int More() {
  Memory memory;
  ztstream::Writer writer(memory, "my bytes");
  writer.Set("int", 1); writer.Set("long", 2L); writer.Set("long long", 3LL); writer.Set("unsigned", 4u);
  writer.Set("size_t", sizeof(int)); writer.Set("unsigned long long", ~0ULL); writer.Set("short", short{-5});
  writer.Set("char", 'A'); writer.Set("float", 0.5f); writer.Set("bool", false); writer.Set("view", std::string_view("text", 2));
  writer.Set("whole", 1.0);
  writer.SetJson("{\"list\": [1, {\"a\": null}]}");
  writer.Add("flags", {3}, std::vector<bool>{true, false, true});
  writer.Add("long longs", {2}, std::vector<long long>{1, -2});
  writer.Add("unsigned long longs", {1}, std::vector<unsigned long long>{~0ULL});
  writer.Begin("grows", "i16", {0, 2}, "{\"unit\": \"m\"}");
  for (std::int16_t row[2] = {0, 1}; row[0] < 3; ++row[0]) writer.Append(row, sizeof row);
  writer.SetLeadingDimension(3);
  writer.End();
  const float values[2] = {1, 2};
  const std::uint64_t at[4] = {0, 1, 2, 0};
  writer.AddObject("sparse", "sparse_coo", {4, 3}, {{"values", "f32", values, 8}, {"coords", "u64", at, 32}});
  writer.BeginObject("pair", "example.pair/1", {2}, {{"first", "u8"}, {"second", "f32"}}, "{\"n\": 1}");
  writer.Append("ab", 2);
  writer.Next();
  writer.Append(values, sizeof values);
  writer.End();
  std::printf("%d\n", zts_writer_flush(writer.native()));
  writer.Finish();
  std::printf("%d %d\n", memory.total == memory.bytes.size(), memory.aborted);

  const ztstream::Reader reader(memory.bytes.data(), memory.bytes.size());
  std::puts(reader.Attributes().c_str());
  std::printf("%zu %s\n", zts_reader_count(reader.native()), reader.Attributes(reader.Find("grows")).c_str());
  const auto flags = reader.Read<bool>("flags");
  std::printf("%d%d%d %lld %llu\n", int(flags[0]), int(flags[1]), int(flags[2]), reader.Read<long long>("long longs")[1],
              reader.Read<unsigned long long>("unsigned long longs")[0]);
  const auto shape = reader.Object(reader.Find("grows")).shape;
  std::printf("%d %d %d\n", int(shape[0]), int(shape[1]), reader.Read<std::int16_t>("grows")[4]);
  std::printf("%zu %s\n", reader.Object(reader.Find("pair")).components, reader.Component(reader.Find("pair"), 1).role);
  Says([&] { reader.Int("whole"); });
  Says([&] { reader.Read<float>("pair"); });
  Says([] { ztstream::Reader("nothing", 7); });

  Memory small;
  small.most = 100;
  try {
    ztstream::Writer full(small);
    full.Add("w", {1000}, std::vector<double>(1000));
    full.Finish();
    std::puts("nothing");
  } catch (const std::string& thrown) {
    std::printf("%s %d\n", thrown.c_str(), small.aborted);
  }
  ztstream::Writer moved = ztstream::Writer(small), other(memory);
  other = std::move(moved);
  return 0;
}

int main(int, char** argv) {
  const std::string path = argv[1];
  ztstream::WriterOptions options;
  options.sync = 0;
  ztstream::Writer moved(path, options);
  ztstream::Writer writer(std::move(moved));
  for (int i = 0; i < 90; ++i) {  // temporaries; of 90 MB
    writer.Add("t" + std::to_string(i), {1 << 18}, std::vector<float>(1 << 18, float(i)));
  }
  std::vector<std::int16_t> kept(300, 7), given(5, 8);
  writer.Add("kept", {300}, kept);
  writer.Add("given", {5}, std::move(given));
  writer.Set("text", "a\0b\1\"\\\x1f\u00e4"s);
  writer.Set("k\0y"s, "v");
  writer.Set("plain", "x");
  writer.Set("n", 3);
  Says([&] { writer.Set("n\0n"s, 4); });
  Says([&] { writer.AddBytes("q", "f32\0x"s, {}, "0123", 4); });
  Says([&] { ztstream::Writer("x\0y"s, options); });
  Says([&] { ztstream::Reader(path + "\0y"s); });
  writer.Finish();
  const ztstream::Reader reader(path);
  int wrong = 0;
  for (int i = 0; i < 90; ++i) {
    for (const float each : reader.Read<float>("t" + std::to_string(i))) wrong += each != float(i);
  }
  std::printf("%d wrong, %d, %d\n", wrong, reader.Read<std::int16_t>("kept")[299], reader.Read<std::int16_t>("given")[4]);
  std::printf("%d %d\n", reader.Text("text") == "a\0b\1\"\\\x1f\u00e4"s, int(reader.Int("n")));
  Says([&] { reader.Text("k\0y"s); });
  std::puts(reader.Attributes().c_str());
  const ztstream::Reader odd(argv[2]);
  Says([&] { odd.Map<float>("w"); });
  std::printf("%g\n", double(odd.Read<float>("w")[1]));
  return More();
}
"""


class Classic(Case):
    def test_cpp(self):
        """The C++17 header: temporaries are kept, no text is cut at U+0000, no pointer is misaligned."""
        compiler = next(filter(None, map(shutil.which, ("g++", "c++", "clang++-19"))), None)
        if compiler is None:
            self.skipTest("no C++ compiler")
        subprocess.run([compiler, "-x", "c", "-Wall", "-Wextra", "-Werror", "-std=c89", f"-I{ROOT}/capi/include", "-fsyntax-only", "-"],
                       input="#include <ztstream/ztstream.h>\n", check=True, text=True)
        library = os.environ["ZTSTREAM_LIBRARY"]
        subprocess.run([compiler, "-x", "c++", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wold-style-cast", "-std=c++17", "-O1",
                        f"-I{ROOT}/capi/include", "-o", self.path("a.out"), "-", "-x", "none", library,
                        f"-Wl,-rpath,{os.path.dirname(library)}"], input=CPP, check=True, text=True)
        odd = self.path("odd.safetensors")
        header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   '
        pathlib.Path(odd).write_bytes(len(header).to_bytes(8, "little") + header + numpy.arange(2, dtype="f4").tobytes())
        done = subprocess.run([self.path("a.out"), self.path("x.zt"), odd], capture_output=True, text=True, check=True)
        cut = "2 a key, path or type holds a zero byte, which ends texts of C"
        self.assertEqual(done.stdout.splitlines(), [
            cut, cut, cut, cut, "0 wrong, 7, 8", "1 3", cut,
            '{"n":3,"k\\u0000y":"v","text":"a\\u0000b\\u0001\\"\\\\\\u001f\u00e4","plain":"x"}',
            "5 tensor 'w': its values lie at an odd address of the file; Read copies them", "1",
            "0", "1 0",
            '{"int":1,"bool":false,"char":65,"list":[1,{"a":null}],"long":2,"view":"te","float":0.5,"short":-5,"whole":1.0,"size_t":4,'
            '"unsigned":4,"long long":3,"unsigned long long":18446744073709551615}',
            '6 {"unit":"m"}', "101 -2 18446744073709551615", "3 2 2", "2 second", "2 memory: attribute 'whole' is not an integer of 64 bits",
            "2 tensor 'pair': it is not a dense tensor but example.pair/1",
            "4 memory: its format is not recognised (safetensors, npy, npz, gguf, torch, onnx, hdf5 and zt are); it may be damaged, or its "
            "format has to be named; zts_reader_options.format chooses a format", "it is full 1"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.out", "odd.safetensors", "x.zt"])


class Careless(Case):
    def setUp(self):
        super().setUp()
        self.file = self.path("x.zt")
        ztstream.save_file({"w": numpy.arange(12.0).reshape(3, 4), "z": numpy.zeros((0, 2))}, self.file)

    def reader(self, file=None):
        out = c_void_p()
        paths = (ctypes.c_char_p * 1)((file or self.file).encode())
        self.assertEqual(c.reader_open_all(paths, 1, None, byref(out)), 0)
        self.addCleanup(c.reader_free, out)
        return out

    def refuses(self, status, message, wanted=2):
        self.assertEqual((status, c.last_error().decode()), (wanted, message))

    def test_null(self):
        """Each pointer in turn; nothing ends the process."""
        reader, out, size = self.reader(), c_void_p(), c_uint64()
        self.refuses(lib.zts_reader_open(None, None, byref(out)), "path must not be null")
        self.refuses(lib.zts_reader_open(self.file.encode(), None, None), "reader must not be null")
        self.refuses(c.reader_open_all(None, 1, None, byref(out)), "paths must not be null")
        self.refuses(c.reader_open_all(None, 0, None, byref(out)), "paths must not be null")
        self.refuses(c.reader_open_all((ctypes.c_char_p * 1)(None), 1, None, byref(out)), "path must not be null")
        self.refuses(c.reader_open_memory(None, 5, None, _c.Release(), None, None, byref(out)), "data must not be null")
        self.refuses(c.reader_open_source(None, None, byref(out)), "source must not be null")
        self.refuses(c.reader_objects(None, 0, 1, None, 64), "reader must not be null")
        self.refuses(c.reader_objects(reader, 0, 1, None, 64), "objects must not be null")
        self.assertEqual(c.reader_objects(reader, 0, 0, None, 64), 0)
        self.refuses(c.reader_components(reader, 0, 1, None, 64), "components must not be null")
        self.refuses(c.reader_find(reader, None, 1, byref(c_size_t())), "name must not be null")
        self.refuses(c.reader_find(reader, b"w", 1, None), "object must not be null")
        self.refuses(c.reader_attributes(reader, 0, None), "json must not be null")
        self.refuses(c.reader_read_many(reader, None, 1, 40, None), "ranges must not be null")
        self.refuses(c.reader_read_many(reader, byref(_c.Range(bytes=8)), 1, sizeof(_c.Range), None), "out must not be null")
        self.refuses(c.reader_map(reader, 0, 0, None, byref(size)), "data must not be null")
        self.refuses(c.reader_map(reader, 0, 0, byref(out), None), "bytes must not be null")
        self.refuses(c.reader_map_pages(reader, 0, 0, None, byref(out), byref(size)), "pages must not be null")
        for wrong in (None, byref(out), byref(size)), (byref(out), None, byref(size)), (byref(out), byref(out), None):
            pages = c_void_p(1)
            self.assertEqual(c.reader_map_pages(reader if wrong[0] else None, 0, 0, byref(pages), *wrong[1:]), 2)
            self.assertIsNone(pages.value)
        self.refuses(c.reader_verify(None, 0, _c.Problem(), None, None, 0, None), "reader must not be null")
        self.refuses(c.writer_open(None, None, byref(out)), "path must not be null")
        self.refuses(c.writer_open(b"y", None, None), "writer must not be null")
        self.refuses(c.writer_open_sink(None, None, byref(out)), "sink must not be null")
        self.refuses(c.writer_open_sink(byref(_c.Sink(size=sizeof(_c.Sink))), None, byref(out)), "append must not be null")
        for call in (c.writer_flush, c.writer_finish, c.writer_cancel, c.writer_end, c.writer_next):
            self.refuses(call(None), "writer must not be null")
        for call in (c.reader_free, c.writer_free, c.pages_free, c.free, lib.zts_reader_retain):
            call(None)
        c.last_error_place(None, None, None)
        c.call_init(None, 32)
        c.reader_options_init(None, 32)
        c.writer_options_init(None, 32)
        self.assertEqual((c.reader_count(None), c.reader_component_count(None), c.reader_format(None), c.reader_warning(None, 0)),
                         (0, 0, b"", None))
        lib.zts_reader_read.argtypes = [c_void_p, c_size_t, c_size_t, c_uint64, c_void_p, c_uint64]
        self.refuses(lib.zts_reader_read(reader, 0, 0, 0, None, 8), "out must not be null")
        for get in (lib.zts_reader_get_int, lib.zts_reader_get_double, lib.zts_reader_get_bool):
            self.refuses(get(reader, b"k", None), "value must not be null")
            self.refuses(get(reader, None, byref(size)), "key must not be null")
            self.assertEqual(get(reader, b"k", byref(size)), 9)

    def test_pages(self):
        """What is written to pages is seen in no others; they stay when the reader is gone."""
        reader, pages, data, size, floats = c_void_p(), [c_void_p(), c_void_p()], c_void_p(), c_uint64(), []
        self.assertEqual(c.reader_open_all((ctypes.c_char_p * 1)(self.file.encode()), 1, None, byref(reader)), 0)
        for each in pages:
            self.assertEqual(c.reader_map_pages(reader, 0, 0, byref(each), byref(data), byref(size)), 0)
            self.assertEqual(size.value, 96)
            floats.append((ctypes.c_double * 12).from_address(data.value))
        self.assertEqual(c.reader_map(reader, 0, 0, byref(data), byref(size)), 0)
        floats[0][5] = 1000
        self.assertEqual([each[5] for each in floats] + [(ctypes.c_double * 12).from_address(data.value)[5]], [1000, 5, 5])
        self.assertEqual(c.reader_map_pages(reader, 0, 1, byref(c_void_p()), byref(data), byref(size)), 2)
        c.reader_free(reader)
        self.assertEqual((floats[0][5], floats[1][5]), (1000, 5))
        for each in pages:
            c.pages_free(each)

    def test_writer_null(self):
        path, out = self.path("y.zt").encode(), c_void_p()
        self.assertEqual(c.writer_open(path, None, byref(out)), 0)
        self.addCleanup(c.writer_free, out)
        name, shape = path.decode() + ": ", (c_uint64 * 1)(2)
        self.refuses(c.writer_add(out, None, 1, b"f32", shape, 1, shape, 8), name + "the tensor's name must not be null")
        self.refuses(c.writer_add(out, b"w", 1, None, shape, 1, shape, 8), name + "tensor 'w': dtype must not be null")
        self.refuses(c.writer_add(out, b"w", 1, b"f32", None, 1, shape, 8), name + "shape must not be null")
        self.refuses(c.writer_add(out, b"w", 1, b"f32", shape, 1, None, 8), name + "data must not be null")
        self.refuses(c.writer_alias(out, None, 0, b"w", 1), name + "a name must not be null")
        self.refuses(c.writer_set_json(out, None), name + "json must not be null")
        self.refuses(c.writer_set_json(out, b"[]"), name + "attributes are not a JSON object")
        self.refuses(c.writer_set_json(out, b'{"a": {"$bytes": "0g"}}'), name + "$bytes is not hexadecimal")
        self.refuses(c.writer_set_json(out, b'{"a":' * 70 + b"1" + b"}" * 70), name + "attributes are nested too deeply")
        self.refuses(c.writer_add_object(out, None), name + "declaration must not be null")
        self.refuses(c.writer_add_object(out, byref(_c.Declaration())), name + "zts_declaration.size is not set")
        for key, value, what in ((b"k", b"\xff", "value"), (b"\xc3", b"v", "key"), (b"k", b"\xed\xa0\x80", "value")):
            self.refuses(lib.zts_writer_set_text(out, key, value), f"{name}the {what} of an attribute is not UTF-8")
        self.refuses(lib.zts_writer_set_int(out, b"\xc3", ctypes.c_int64(1)), f"{name}the key of an attribute is not UTF-8")
        self.refuses(c.writer_append(out, b"x", 1), name + "no tensor was begun", 70)
        # What was refused has left the writer as it was; types go by all names that the program takes.
        self.assertEqual(c.writer_add(out, b"w\0x", 3, b"torch.float32", shape, 1, shape, 8), 0)
        self.assertEqual(c.writer_finish(out), 0)
        with ztstream.open(path.decode()) as file:
            self.assertEqual([(t.name, t.dtype) for t in file.values()], [("w\0x", "f32")])

    def test_names(self):
        """A name that cannot be added spends the writer: it was asked for another file than it can write."""
        shape, data = (c_uint64 * 1)(2), ctypes.create_string_buffer(8)
        for name, spec in ((b"w", b"1.2"), (b"", b"2.0"), (b"\xff", b"1.2"), (b"a\xed\xa0\x80", b"0.1")):
            out, options = c_void_p(), _c.WriterOptions()
            c.writer_options_init(byref(options), sizeof(options))
            options.spec = spec
            self.assertEqual(c.writer_open(self.path("n.zt").encode(), byref(options), byref(out)), 0)
            add = lambda name: c.writer_add(out, name, len(name), b"f32", shape, 1, data, 8)
            self.assertEqual([add(b"w"), add(name)], [0, 2])
            first = c.last_error()
            for call in (lambda: add(b"x"), lambda: c.writer_flush(out), lambda: c.writer_finish(out)):
                self.assertEqual((call(), c.last_error()), (2, first))
            c.writer_free(out)
        self.assertFalse(os.path.exists(self.path("n.zt")))

    def test_sizes(self):
        """A caller of an older header has shorter structs, one of a newer header longer ones."""
        whole = _c.WriterOptions()
        c.writer_options_init(byref(whole), sizeof(whole))
        for size in range(0, sizeof(whole) + 24):
            room = (ctypes.c_ubyte * 200)(*[0xAA] * 200)
            c.writer_options_init(ctypes.cast(room, ctypes.POINTER(_c.WriterOptions)), size)
            self.assertEqual(bytes(room[size:]), b"\xaa" * (200 - size))
            self.assertEqual(bytes(room[8:size]), (bytes(whole) + bytes(24))[8:size])
        older = _c.WriterOptions()
        c.writer_options_init(byref(older), sizeof(older))
        older.size, older.compress = 24, 77  # `compress` lies behind what this caller has
        out = c_void_p()
        self.assertEqual(c.writer_open(self.path("y.zt").encode(), byref(older), byref(out)), 0)
        c.writer_free(out)
        older.size = 0
        self.refuses(c.writer_open(b"y.zt", byref(older), byref(out)),
                     "the options were not filled by zts_writer_options_init")
        reader = self.reader()
        for size in (8, 72, 100):
            table = ctypes.create_string_buffer(b"\xaa" * 300, 300)
            self.assertEqual(c.reader_objects(reader, 0, 2, table, size), 0)
            self.assertEqual(ctypes.string_at(c_void_p.from_buffer(table, size).value), b"z")
            self.assertEqual(table.raw[2 * size:300], b"\xaa" * (300 - 2 * size))
            self.assertEqual(table.raw[72:size], bytes(max(0, size - 72)))

    def test_out_of_range(self):
        reader, huge = self.reader(), c_size_t(-1).value
        where = self.file + ": "
        table = ctypes.create_string_buffer(1000)
        for first, count in ((0, 3), (3, 0), (2, 1), (huge, 1), (1, huge)):
            self.refuses(c.reader_objects(reader, first, count, table, 8), where + "there are 2 objects")
        self.refuses(c.reader_components(reader, 1, 2, table, 8), where + "there are 2 components")
        self.refuses(c.reader_advise(reader, 2, 0, 1), where + "there is no object number 2")
        self.refuses(c.reader_advise(reader, 0, 1, 1), where + "tensor 'w': there is no component number 1")
        header = b'{"w":{"dtype":"F64","shape":[3,4],"data_offsets":[0,96]},"z":{"dtype":"U8","shape":[64],"data_offsets":[96,160]}}'
        other = self.path("x.safetensors")
        pathlib.Path(other).write_bytes(len(header).to_bytes(8, "little") + header + bytes(160))
        for file in (self.file, other):
            for function in (c.reader_read_many, c.reader_update_many):
                for offset, size in ((96, 1), (90, 8), (huge, 1), (1, huge)):
                    each = _c.Range(0, 0, offset, size, ctypes.addressof(table))
                    self.refuses(function(self.reader(file), byref(each), 1, sizeof(each), None),
                                 file + ": tensor 'w': the range lies beyond the component")
        self.assertEqual(c.reader_read_many(reader, byref(_c.Range(0, 0, 96, 0, None)), 1, sizeof(_c.Range), None), 0)
        self.refuses(c.reader_map(reader, 5, 0, byref(c_void_p()), byref(c_uint64())), where + "there is no object number 5")
        self.assertEqual(c.reader_find(reader, b"w\0", 2, byref(c_size_t())), 9)
        self.assertEqual(c.reader_find(reader, b"w", huge, byref(c_size_t())), 0)

    def test_progress(self):
        """Never beyond the total, which stays; memory is looked at before it is changed."""
        header = json.dumps({f"w{i}": {"dtype": "U8", "shape": [64], "data_offsets": [i * 64, i * 64 + 64]} for i in range(4)}).encode()
        content, slow, said, out = len(header).to_bytes(8, "little") + header + bytes(range(256)), [], [], c_void_p()

        @_c.ReadAt
        def read_at(offset, to, size, user):
            time.sleep(0.12 if slow else 0)
            ctypes.memmove(to, content[offset:offset + size], size)
            return 0

        @_c.Progress
        def progress(done, total, user):
            said.append((done, total))
            return 0

        source = _c.Source(sizeof(_c.Source), b"x.safetensors", len(content), read_at)
        self.assertEqual(c.reader_open_source(byref(source), None, byref(out)), 0)
        slow.append(True)
        call = _c.Call(sizeof(_c.Call), 1, progress)
        for function, total in ((c.reader_read_many, 256), (c.reader_update_many, 512)):
            memory = ctypes.create_string_buffer(256)
            ranges = (_c.Range * 4)(*(_c.Range(i, 0, 0, 64, ctypes.addressof(memory) + i * 64) for i in range(4)))
            said.clear()
            self.assertEqual(function(out, byref(ranges), 4, sizeof(_c.Range), byref(call)), 0)
            self.assertEqual(memory.raw, bytes(range(256)))
            self.assertEqual({each[1] for each in said}, {total})
            self.assertLessEqual(sorted(said)[-1][0], total)
            self.assertEqual(said, sorted(said))
        c.reader_free(out)

    def test_type(self):
        for given, wanted in (("float32", ("f32", 4)), ("torch.bfloat16", ("bf16", 2)), ("numpy.int8", ("i8", 1)),
                              ("f8_e4m3fn", ("f8_e4m3fn", 1)), ("f4_e2m1", ("f4_e2m1", 1)), ("complex128", ("complex128", 16))):
            self.assertEqual(_c.type_of(given), wanted)
        self.refuses(c.type(b"x", None, None), "'x' is not a type; types are f64, f32, f16, bf16, f8_e4m3fn, f8_e5m2, "
                     "f8_e4m3fnuz, f8_e5m2fnuz, i64, i32, i16, i8, u64, u32, u16, u8, bool, complex64 and complex128")
        self.refuses(c.type(None, None, None), "dtype must not be null")
        self.assertEqual(c.type(b"f32", None, None), 0)

    def test_null_on_failure(self):
        """What could not be opened is null."""
        for source in (None, byref(_c.Source()), byref(_c.Source(size=sizeof(_c.Source), bytes=100))):
            out = c_void_p(1)
            self.assertEqual((c.reader_open_source(source, None, byref(out)), out.value), (2, None))
        for paths, count in ((None, 1), ((ctypes.c_char_p * 1)(None), 1), ((ctypes.c_char_p * 1)(b"/none"), 1)):
            out = c_void_p(1)
            self.assertNotEqual(c.reader_open_all(paths, count, None, byref(out)), 0)
            self.assertIsNone(out.value)
        for fd in (-1, 999):
            for call in (lib.zts_writer_open_fd, lib.zts_reader_open_fd):
                out = c_void_p(1)
                self.assertEqual((call(fd, b"d", None, byref(out)), out.value), (6, None))
                self.assertIn("Bad file descriptor", c.last_error().decode())
        out = c_void_p(1)
        self.assertEqual((c.reader_open_memory(None, 5, None, _c.Release(), None, None, byref(out)), out.value), (2, None))

    def test_release(self):
        """The caller's memory is given back once, whatever happens."""
        calls = []
        release = _c.Release(lambda user: calls.append(user))
        data, out = pathlib.Path(self.file).read_bytes(), c_void_p()
        address = ctypes.cast(ctypes.c_char_p(data), c_void_p)
        self.assertEqual(c.reader_open_memory(address, len(data), b"m", release, 7, None, byref(out)), 0)
        lib.zts_reader_retain(out)
        c.reader_free(out)
        self.assertEqual(calls, [])
        c.reader_free(out)
        self.assertEqual(calls, [7])
        self.assertEqual(c.reader_open_memory(address, 3, b"m", release, 8, None, byref(out)), 4)
        self.assertEqual(c.reader_open_memory(address, 3, b"m", release, 9, None, None), 2)
        self.assertEqual(c.reader_open_memory(None, 3, b"m", release, 10, None, byref(out)), 2)
        bad = _c.ReaderOptions()
        self.assertEqual(c.reader_open_memory(address, len(data), b"m", release, 11, byref(bad), byref(out)), 2)
        self.assertEqual(calls, [7, 8, 9, 10, 11])

    def test_random_calls(self):
        """Random calls with random arguments, none of which points to nowhere: the process lives."""
        for seed in range(int(os.environ.get("ZT_COUNT", "3"))):
            done = subprocess.run([sys.executable, "-B", __file__, "--random", str(seed), self.file, str(self.folder)],
                                  capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual((done.returncode, done.stderr[-500:]), (0, ""), f"seed {seed}")


def random_calls(seed, path, folder):
    """Two thousand calls of a seed."""
    chosen, keep = random.Random(seed), []
    files = [path.encode(), *(str(each).encode() for each in sorted(DATA.rglob("*")) if each.is_file()),
             str(DATA / "hf-sharded").encode(), b"/none", b"", folder.encode()]
    readers, writers = [None], [None]
    room = ctypes.create_string_buffer(1 << 16)
    ctypes.memset(room, 0, len(room))

    def number():
        return chosen.choice([0, 0, 0, 1, 1, 2, 3, 7, 8, 64, 100, 1 << 16, (1 << 63) - 1, (1 << 64) - 1])

    def small():
        return chosen.choice([0, 1, 1, 2, 3, 8])

    def name():
        return chosen.choice([None, b"w", b"z", b"a", b"data", b"", b"x\0y"])

    def reader():
        return chosen.choice(readers)

    def writer():
        return chosen.choice(writers)

    def options(kind, init):
        if chosen.random() < 0.3:
            return None
        made = kind()
        if chosen.random() < 0.9:
            init(byref(made), sizeof(made))
        keep.append(made)
        return byref(made)

    def open_reader():
        out = c_void_p()
        if chosen.random() < 0.7:
            paths = (ctypes.c_char_p * 3)(*(chosen.choice(files) for _ in range(3)))
            status = c.reader_open_all(paths, chosen.choice([1, 1, 1, 1, 2, 3]), options(_c.ReaderOptions, c.reader_options_init),
                                       byref(out))
        else:
            data = pathlib.Path(os.fsdecode(chosen.choice([each for each in files if os.path.isfile(each)]))).read_bytes()
            data = bytearray(data)
            for _ in range(chosen.randrange(3)):
                if data:
                    data[chosen.randrange(len(data))] = chosen.randrange(256)
            keep.append(bytes(data))
            status = c.reader_open_memory(ctypes.cast(ctypes.c_char_p(keep[-1]), c_void_p), len(keep[-1]), name(),
                                          _c.Release(), None, None, byref(out))
        if status == 0:
            readers.append(out)
        elif out.value:
            raise AssertionError("a reader and an error")

    def open_writer():
        out = c_void_p()
        target = chosen.choice([f"{folder}/{chosen.randrange(5)}.zt", "/none/x.zt", ""]).encode()
        if c.writer_open(target, options(_c.WriterOptions, c.writer_options_init), byref(out)) == 0:
            writers.append(out)

    def close(handles, free):
        if len(handles) > 1:
            free(handles.pop(chosen.randrange(1, len(handles))))

    def add():
        shape, size = (c_uint64 * 8)(*(small() for _ in range(8))), chosen.choice([0, 4, 8, 32, 1 << 16])
        keep.append(shape)
        c.writer_add(writer(), name(), chosen.choice([0, 1, 3, c_size_t(-1).value]),
                     chosen.choice([None, b"f32", b"bf16", b"u8", b"f4_e2m1", b"x", b""]), chosen.choice([None, shape]),
                     chosen.randrange(9), chosen.choice([None, room]), size)

    def declare(function):
        parts = (_c.Part * 3)(*(_c.Part(name(), chosen.choice([None, b"f32", b"u64"]), ctypes.addressof(room),
                                        chosen.choice([0, 8, 24, 1 << 64 - 1])) for _ in range(3)))
        for part in parts:
            part.bytes = min(part.bytes, len(room)) if function is c.writer_add_object else part.bytes
        shape = (c_uint64 * 4)(*(small() for _ in range(4)))
        made = _c.Declaration(chosen.choice([0, sizeof(_c.Declaration)]), name(), small() if chosen.random() < 0.5 else 1,
                              chosen.choice([None, b"dense", b"sparse_csr", b"own/1", b""]), ctypes.cast(shape, c_void_p),
                              chosen.randrange(5), chosen.choice([None, b"{}", b'{"a":[1,{}]}', b"x"]), parts, chosen.randrange(4),
                              sizeof(_c.Part))
        if made.name is None or made.name_bytes > len(made.name):
            made.name_bytes = c_size_t(-1).value
        keep.extend((parts, shape, made))
        function(writer(), byref(made))

    def read():
        count = chosen.randrange(4)
        ranges = (_c.Range * 4)(*(_c.Range(number(), small(), number(), chosen.choice([0, 8, 96, 1 << 14]),
                                           ctypes.addressof(room)) for _ in range(4)))
        call = _c.new_call(chosen.choice([0, 1, 2, 5000]), None)
        c.reader_read_many(reader(), ranges, count, sizeof(_c.Range), chosen.choice([None, byref(call)]))

    def attributes():
        out = c_void_p()
        if c.reader_attributes(reader(), chosen.choice([0, 1, c_size_t(-1).value]), byref(out)) == 0:
            c.free(out)

    actions = [
        open_reader, open_reader, open_writer, add, add, read, read, attributes,
        lambda: close(readers, c.reader_free), lambda: close(writers, c.writer_free),
        lambda: c.reader_objects(reader(), number(), small(), room, chosen.choice([0, 1, 8, 64, 200])),
        lambda: c.reader_components(reader(), number(), small(), room, chosen.choice([0, 1, 8, 96, 200])),
        lambda: c.reader_find(reader(), name(), chosen.choice([0, 1, c_size_t(-1).value]), byref(c_size_t())),
        lambda: c.reader_map(reader(), small(), small(), byref(c_void_p()), byref(c_uint64())),
        lambda: c.reader_advise(reader(), small(), small(), chosen.randrange(2)),
        lambda: c.reader_verify(reader(), chosen.choice([0, 1, c_size_t(-1).value]), _c.Problem(), None, None, 0, None),
        lambda: c.writer_set_json(writer(), chosen.choice([None, b"{}", b'{"k": 1.5}', b"{", b"null"])),
        lambda: c.writer_alias(writer(), name(), 1, name(), 1), lambda: declare(c.writer_add_object),
        lambda: declare(c.writer_begin), lambda: c.writer_append(writer(), room, chosen.choice([0, 4, 96])),
        lambda: c.writer_next(writer()), lambda: c.writer_end(writer()), lambda: c.writer_flush(writer()),
        lambda: c.writer_set_leading_dimension(writer(), number()), lambda: c.writer_finish(writer()),
        lambda: c.writer_cancel(writer()) if chosen.random() < 0.1 else None, lambda: c.last_error().decode("utf-8", "replace"),
        lambda: c.reader_warning(reader(), small()), lambda: c.reader_format(reader()),
    ]
    for _ in range(2000):
        chosen.choice(actions)()
    while len(readers) > 1:
        close(readers, c.reader_free)
    while len(writers) > 1:
        close(writers, c.writer_free)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--random"]:
        random_calls(int(sys.argv[2]), *sys.argv[3:])
    elif sys.argv[1:2] == ["--write"]:
        ABI.write_text(abi())
    else:
        unittest.main()
