"""load.py FILE NAME: a tensor of a .zt file in numpy, by libztstream.so and ctypes alone; raw ones without a copy."""
import ctypes
import sys

import numpy

lib = ctypes.CDLL("libztstream.so.0")
lib.zts_last_error.restype = ctypes.c_char_p

class Object(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("name_bytes", ctypes.c_size_t), ("format", ctypes.c_char_p),
                ("type", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_uint64)), ("rank", ctypes.c_size_t),
                ("components", ctypes.c_size_t), ("first_component", ctypes.c_size_t)]

class Component(ctypes.Structure):
    _fields_ = [("object", ctypes.c_size_t)] + [
        (text, ctypes.c_char_p) for text in ("role", "dtype", "storage", "encoding", "digest", "file")] + [
        (number, ctypes.c_uint64) for number in ("offset", "length", "bytes")] + [
        ("unreadable", ctypes.c_char_p), ("mappable", ctypes.c_int)]

def check(status):
    if status != 0:
        raise RuntimeError(lib.zts_last_error().decode())

def load(path, name):
    """The tensor. A raw one stays in the pages of the file, which is open as long as the process."""
    reader, index, data, size = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p(), ctypes.c_uint64()
    entry, component, zero, one = Object(), Component(), ctypes.c_size_t(0), ctypes.c_size_t(1)
    called = name.encode()
    check(lib.zts_reader_open(path.encode(), None, ctypes.byref(reader)))
    check(lib.zts_reader_find(reader, called, ctypes.c_size_t(len(called)), ctypes.byref(index)))
    check(lib.zts_reader_objects(reader, index, one, ctypes.byref(entry), ctypes.c_size_t(ctypes.sizeof(entry))))
    check(lib.zts_reader_components(reader, ctypes.c_size_t(entry.first_component), one, ctypes.byref(component),
                                    ctypes.c_size_t(ctypes.sizeof(component))))
    array = ctypes.c_ubyte * component.bytes
    if component.mappable:
        check(lib.zts_reader_map(reader, index, zero, ctypes.byref(data), ctypes.byref(size)))
        values = array.from_address(data.value)
    else:
        values = array()
        check(lib.zts_reader_read(reader, index, zero, ctypes.c_uint64(0), values, ctypes.c_uint64(component.bytes)))
    kind = component.storage.decode().replace("bf", "u")  # numpy has no bf16: its bits
    dtype = "?" if kind == "bool" else f"<{kind[0]}{int(kind[1:]) // 8}"
    return numpy.frombuffer(values, dtype).reshape([entry.shape[i] for i in range(entry.rank)])

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tensor = load(*sys.argv[1:])
    print(tensor.dtype, tensor.shape, tensor.tolist())
