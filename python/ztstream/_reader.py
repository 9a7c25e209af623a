"""Opening: a zts_reader, of paths, of bytes in memory, of a file object."""
import contextlib
import ctypes
import os
import re
import threading
from ctypes import byref, c_char_p, c_void_p, sizeof

from . import _c, _types
from ._errors import ArgumentError, Error

_PIECE = 1 << 24  # bytes that a file object is asked for at once


class Reader:
    """A zts_reader, closed when nothing refers to it any more: a file, a handle, an array in its pages, a call."""

    def __init__(self, pointer, kept=(), raised=()):
        self._as_parameter_, self.kept = pointer, kept  # functions of the library take a Reader, and keep it for the call
        self.raised = raised  # exceptions of the caller's file object
        self._free = _c.c.reader_free  # modules may be gone first when the interpreter ends

    def __del__(self):
        self._free(self._as_parameter_)


@contextlib.contextmanager
def own_errors(raised):
    """Raises what a file object has raised in place of the library's error. An OSError is the library's, which names the tensor."""
    try:
        yield
    except Error:
        if raised:
            raise raised.pop() from None
        raise


def options_of(format, npy_void, follow_links, keep_sparse):
    options = _c.ReaderOptions()
    _c.c.reader_options_init(byref(options), sizeof(options))
    options.format = format.encode() if format else None
    options.npy_void = npy_void.encode() if npy_void else None
    options.follow_links, options.keep_sparse = bool(follow_links), bool(keep_sparse)
    return byref(options)


def is_url(path):
    """As IsUrl of the library."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def shown(path):
    """A path for messages: the query of a URL may hold a signature."""
    return path.partition("?")[0] if is_url(path) else str(path)


def open_paths(paths, options):
    encoded = [os.fsencode(path) for path in paths]
    for path in encoded:
        if b"\0" in path:
            raise ArgumentError("a path holds a zero byte")

    def opened():
        out = c_void_p()
        _c.check(_c.c.reader_open_all((c_char_p * len(encoded))(*encoded), len(encoded), options, byref(out)))
        return Reader(out)

    return _c.interruptibly(opened) if any(map(is_url, paths)) else opened()


def open_buffer(data, options):
    if memoryview(data).readonly and not isinstance(data, bytes):  # ctypes takes the address of others alone
        data = bytes(data)
    address, size, holder = _types.memory_of(data)
    out = c_void_p()
    _c.check(_c.c.reader_open_memory(address, size, b"memory", _c.Release(), None, options, byref(out)))
    return Reader(out, (holder,))


def open_object(file, options):
    """From an object with seek and read."""
    lock, raised = threading.Lock(), []
    size = file.seek(0, os.SEEK_END)

    def read_at(offset, out, count, _):
        try:
            with lock:
                file.seek(offset)
                done = 0
                while done < count:
                    piece = file.read(min(count - done, _PIECE))
                    if not piece or len(piece) > count - done:
                        return 5  # EIO
                    ctypes.memmove(out + done, bytes(piece), len(piece))
                    done += len(piece)
            return 0
        except BaseException as error:  # nothing passes through C
            if not isinstance(error, OSError):
                raised[:] = raised or [error]
            return _c.errno_of(error)

    source = _c.Source(size=sizeof(_c.Source), name=os.fsencode(str(getattr(file, "name", "file object"))), bytes=size,
                       read_at=_c.ReadAt(read_at))
    out = c_void_p()
    with own_errors(raised):
        _c.check(_c.c.reader_open_source(byref(source), options, byref(out)))
    return Reader(out, (source, file), raised)
