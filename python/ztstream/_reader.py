"""Opening: a zts_reader, of paths, of bytes in memory, of a file object."""
import contextlib
import ctypes
import os
import re
import threading
from ctypes import byref, c_char_p, sizeof

from . import _c, _types
from ._errors import ArgumentError, Error, InputOutputError
from ._interrupt import interruptibly

_OWN = ("http", "https", "s3", "hf")  # kinds of URLs that the library reads
_PIECE = 1 << 24  # bytes that a file object is asked for at once


class Reader(_c.Handle):
    """A zts_reader, closed when nothing refers to it any more: a file, a handle, an array in its pages, a call."""

    def __init__(self, kept=(), raised=None):
        super().__init__(_c.c.reader_free)
        self.kept = kept
        self.raised = raised  # exceptions of the caller's file object; None where there is none

    def ask(self, function, *arguments, watched=None, long=False, kept=()):
        """Calls a function of the library that returns a status and uses what is `kept`. One that takes long, or may read a file
        object, is one that Ctrl-C ends: what interrupts a function that the library calls would be lost."""
        def work(_=(self, kept)):
            _c.check(function(*arguments))

        if not long and self.raised is None:
            return work()
        with own_errors(self.raised):
            return interruptibly(work, None if watched is None else watched.cancel, leave=True,
                                 foreign=self.raised is not None or (False if watched is None else watched))


@contextlib.contextmanager
def own_errors(raised):
    """Raises what a file object has raised in place of the library's error. An OSError is the library's, which names the tensor."""
    try:
        yield
    except Error:
        if raised:
            raise raised.pop() from None
        raise


def options_of(format, npy_void, follow_links, keep_sparse, dequantize=None, variant=None, base=(), **remote):
    options = _c.ReaderOptions()
    _c.c.reader_options_init(byref(options), sizeof(options))
    options.format = _c.words(format, "format")
    options.variant = _c.words(variant, "variant")
    options.npy_void = _c.words(npy_void, "npy_void")
    options.dequantize = _c.words(dequantize, "dequantize")
    options.follow_links, options.keep_sparse = bool(follow_links), bool(keep_sparse)
    paths = [os.fsencode(path) for path in base or ()]
    options.base_in_memory = base is None
    options.base, options.bases = (c_char_p * len(paths))(*paths), len(paths)
    _c.set_remote(options, **remote)
    return byref(options)


def is_url(path):
    """As IsUrl of the library."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def opened_by_fsspec(source):
    """What is opened for a file of fsspec, or for a URL of a kind that the library does not read; else the same."""
    if hasattr(source, "fs") and hasattr(source, "open") and not hasattr(source, "read"):
        return source.open()
    if is_url(source) and source.partition(":")[0].lower() not in _OWN:
        try:
            import fsspec
            opened = fsspec.open(source, "rb")
        except (ImportError, ValueError):
            return source  # of which the library says what it reads
        return opened.open()
    return source


def shown(path):
    """A path for messages: the query of a URL may hold a signature."""
    return path.partition("?")[0] if is_url(path) else str(path)


def open_paths(paths, options):
    encoded = [os.fsencode(path) for path in paths]
    for path in encoded:
        if b"\0" in path:
            raise ArgumentError("a path holds a zero byte")

    reader = Reader()
    reader.ask(_c.c.reader_open_all, (c_char_p * len(encoded))(*encoded), len(encoded), options, reader.out,
               long=any(map(is_url, paths)))
    return reader


def open_buffer(data, options):
    if memoryview(data).readonly and not isinstance(data, bytes):  # ctypes takes the address of others alone
        data = bytes(data)
    address, size, holder = _types.memory_of(data)
    reader = Reader((holder,))
    reader.ask(_c.c.reader_open_memory, address, size, b"memory", _c.Release(), None, options, reader.out)
    return reader


def _piece_of(file, name, count):
    """Bytes that a file object reads, at least one and no more than that."""
    piece = file.read(count)
    if piece is None or not 0 < len(piece) <= count:
        raise InputOutputError(f"{name}: read({count}) has returned {'None' if piece is None else len(piece)}"
                               + (" bytes" if piece is not None else "") + "; a file object that is opened returns what there is,"
                               " at least one byte before its end", name)
    return bytes(piece)


def open_object(file, options):
    """From an object with seek and read."""
    lock, raised, name = threading.Lock(), [], str(getattr(file, "name", "file object"))
    file.seek(0, os.SEEK_END)
    size = file.tell()  # an mmap's seek does not say it

    def read_at(offset, out, count, _):
        try:
            with lock:
                file.seek(offset)
                done = 0
                while done < count:
                    piece = _piece_of(file, name, min(count - done, _PIECE))
                    ctypes.memmove(out + done, piece, len(piece))
                    done += len(piece)
            return 0
        except BaseException as error:  # nothing passes through C
            if isinstance(error, InputOutputError) or not isinstance(error, OSError):
                raised[:] = raised or [error]
            return _c.errno_of(error)

    source = _c.Source(size=sizeof(_c.Source), name=os.fsencode(name), bytes=size, read_at=_c.ReadAt(read_at))
    reader = Reader((source, file), raised)
    reader.ask(_c.c.reader_open_source, byref(source), options, reader.out)
    return reader


def columns(table, row, *at):
    """Words of each row, as lists."""
    words = memoryview(table).cast("N")
    return [words[i::row.size // words.itemsize].tolist() for i in at]


def as_written(first, files, offsets, text):
    """The numbers of objects, of which the first components are given, in the order in which their bytes lie.

    files, offsets: of each component. text(file): by which shards are sorted; None leaves several inputs in their order.
    """
    names = dict.fromkeys(files)
    ranks = {each: i for i, each in enumerate(sorted(names, key=text) if text else names)}
    keys = offsets if len(ranks) < 2 else [(ranks[file], offset) for file, offset in zip(files, offsets)]
    if first != list(range(len(keys))):  # one that has none lies nowhere
        last = max(keys, default=0)
        keys = [keys[each] if each < len(keys) else last for each in first]
    return sorted(range(len(first)), key=keys.__getitem__)
