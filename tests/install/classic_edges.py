"""classic_edges.py: what C callers may get wrong, and what the examples do not use, by libztstream.so and ctypes."""
import ctypes
import os
import sys

import numpy

sys.path.insert(0, ".")
import load

lib, size_t = load.lib, ctypes.c_size_t
TERMINATED = size_t(-1)

class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("spec", ctypes.c_char_p), ("digest", ctypes.c_char_p),
                ("compress", ctypes.c_int), ("level", ctypes.c_int), ("min_gain", ctypes.c_double),
                ("threads", ctypes.c_uint), ("memory_bytes", ctypes.c_uint64), ("overwrite", ctypes.c_int),
                ("sync", ctypes.c_int), ("progress", ctypes.c_void_p), ("user", ctypes.c_void_p)]

def expect(status, said, wanted, message=""):
    text = lib.zts_last_error().decode() if status else ""
    assert (status, text) == (wanted, message), f"{said}: {status} {text!r}"

def open_writer(path, **members):
    options, writer = Options(), ctypes.c_void_p()
    lib.zts_writer_options_init(ctypes.byref(options), size_t(ctypes.sizeof(options)))
    for name, value in members.items():
        setattr(options, name, value)
    return lib.zts_writer_open(path, ctypes.byref(options), ctypes.byref(writer)), writer

def add(writer, name, dtype, values):
    shape = (ctypes.c_uint64 * values.ndim)(*values.shape)
    return lib.zts_writer_add(writer, name, TERMINATED, dtype, shape, ctypes.c_size_t(values.ndim),
                              values.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(values.nbytes))

values = numpy.random.default_rng(1).standard_normal((1200, 500)).astype("<f4")
for spec in (b"1.2", b"2.0"):
    if os.path.exists("edge.zt"):
        os.remove("edge.zt")
    status, writer = open_writer(b"edge.zt", spec=spec, compress=2)
    expect(status, "open", 0)
    expect(lib.zts_writer_set_text(writer, b"who", b"me"), "text", 0)
    expect(lib.zts_writer_set_int(writer, b"step", ctypes.c_int64(-7)), "int", 0)
    expect(lib.zts_writer_set_double(writer, b"loss", ctypes.c_double(0.5)), "double", 0)
    expect(lib.zts_writer_set_bool(writer, b"ema", 1), "bool", 0)
    expect(add(writer, None, b"f32", values), "no name", 2, "edge.zt: the tensor's name must not be null")
    expect(add(writer, b"w", b"f33", values), "no dtype", 2, "edge.zt: tensor 'w': 'f33' is not a type; types are f64, f32, f16, bf16, f8_e4m3fn, f8_e5m2, f8_e4m3fnuz, f8_e5m2fnuz, i64, i32, i16, i8, u64, u32, u16, u8, bool, complex64 and complex128")
    expect(lib.zts_writer_end(writer), "end", 70, "edge.zt: no tensor was begun")
    expect(add(writer, b"w", b"f32", values), "add", 0)
    expect(lib.zts_writer_finish(writer), "finish", 0)
    expect(lib.zts_writer_set_text(writer, b"late", b"x"), "late", 70, "edge.zt: the writer is finished")
    lib.zts_writer_free(writer)
    assert (load.load("edge.zt", "w") == values).all()
    assert os.path.getsize("edge.zt") < 0.9 * values.nbytes

    reader, text, number = ctypes.c_void_p(), ctypes.c_char_p(), ctypes.c_int64()
    real, flag, data, size = ctypes.c_double(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    expect(lib.zts_reader_open(b"edge.zt", None, ctypes.byref(reader)), "open", 0)
    expect(lib.zts_reader_get_text(reader, b"who", ctypes.byref(text), None), "text", 0)
    expect(lib.zts_reader_get_int(reader, b"step", ctypes.byref(number)), "int", 0)
    expect(lib.zts_reader_get_double(reader, b"loss", ctypes.byref(real)), "double", 0)
    expect(lib.zts_reader_get_bool(reader, b"ema", ctypes.byref(flag)), "bool", 0)
    assert (text.value, number.value, real.value, flag.value) == (b"me", -7, 0.5, 1)
    expect(lib.zts_reader_get_int(reader, b"who", ctypes.byref(number)), "kind", 2,
           "edge.zt: attribute 'who' is not an integer of 64 bits")
    expect(lib.zts_reader_get_int(reader, b"none", ctypes.byref(number)), "key", 9,
           "edge.zt: there is no attribute 'none'")
    none = ctypes.c_size_t(0)
    assert lib.zts_reader_map(reader, none, none, ctypes.byref(data), ctypes.byref(size)) == 70
    lib.zts_reader_free(reader)

# A file is good without digests; what was checked of it is told.
for digest, status_of, wanted in ((b"none", 8, (1, 1, 0, 1, 0, 0, 0)), (b"sha256", 0, (1, 1, 1, 0, 0, 0, 0))):
    status, writer = open_writer(b"edge.zt", digest=digest, overwrite=1)
    expect(status, "open", 0)
    expect(add(writer, b"w", b"f32", values), "add", 0)
    expect(lib.zts_writer_finish(writer), "finish", 0)
    lib.zts_writer_free(writer)
    report = (ctypes.c_uint64 * 7)()  # objects, components, digests, unhashed, undecodable, unchecked, problems
    expect(lib.zts_reader_open(b"edge.zt", None, ctypes.byref(reader)), "open", 0)
    verified = lib.zts_reader_verify(reader, size_t(-1), None, None, report, size_t(ctypes.sizeof(report)), None)
    assert (verified, tuple(report)) == (status_of, wanted), (digest, verified, tuple(report))
    lib.zts_reader_free(reader)

status, writer = open_writer(b"edge.zt")
expect(status, "exists", 3, "edge.zt: the output exists already; zts_writer_options.overwrite replaces it")
assert not writer
expect(open_writer(None)[0], "no path", 2, "path must not be null")
expect(open_writer(b"x.zt", compress=3)[0], "compress", 2, "no such compression: 3")
expect(open_writer(b"x.zt", spec=b"3")[0], "spec", 2, "no such version of the format: '3'")
status, writer = open_writer(b"spent.zt")
shape = (ctypes.c_uint64 * 1)(5)
wrong = [lib.zts_writer_add(writer, name, TERMINATED, b"f32", shape, ctypes.c_size_t(1), shape, ctypes.c_uint64(8))
         for name in (b"a", b"b")]
first = lib.zts_last_error().decode()
assert wrong == [2, 2] and first.startswith("spent.zt: tensor 'a'"), (wrong, first)
lib.zts_writer_free(writer)
assert not os.path.exists("spent.zt")
