"""libztstream by ctypes: the structs and functions of ztstream/c.h, statuses as exceptions, what is freed."""
import ctypes
import functools
import operator
import os
import pathlib
import sys
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_ubyte, c_uint,
                    c_uint64, c_void_p, sizeof)

from . import _errors
from ._interrupt import interruptibly

ABI = 1
FILE = c_size_t(-1).value
UNKNOWN = c_uint64(-1).value
UNVERIFIED = 8

Progress = CFUNCTYPE(c_int, c_uint64, c_uint64, c_void_p)
Release = CFUNCTYPE(None, c_void_p)
ReadAt = CFUNCTYPE(c_int, c_uint64, c_void_p, c_size_t, c_void_p)
Append = CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)
Finish = CFUNCTYPE(c_int, c_uint64, c_void_p)
Problem = CFUNCTYPE(None, c_void_p, c_size_t, c_char_p, c_char_p, c_void_p)


class Call(Structure):
    _fields_ = [("size", c_size_t), ("threads", c_uint), ("progress", Progress), ("user", c_void_p)]


# What options say of servers.
_REMOTE = [("profile", c_char_p), ("region", c_char_p), ("endpoint_url", c_char_p), ("no_sign_request", c_int)]


_HEADERS = [("s3_headers", POINTER(c_char_p)), ("s3_header_count", c_size_t)]


def words(value, what):
    """A text of the caller's as C takes it; None and "" are none."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or "\0" in value:
        raise _errors.ArgumentError(f"{what} is a text without zero bytes, not {value!r}")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _errors.ArgumentError(f"{what}: half of a surrogate pair is no text") from None


def set_remote(options, profile, region, endpoint_url, no_sign_request, s3_headers):
    if s3_headers is not None and not hasattr(s3_headers, "items"):
        raise _errors.ArgumentError(f"s3_headers is a dict of texts, not {s3_headers!r}")
    texts = [words(f"{name}={value}", "s3_headers") for name, value in (s3_headers or {}).items()]
    options.s3_headers, options.s3_header_count = (c_char_p * len(texts))(*texts), len(texts)
    options.profile, options.region = words(profile, "profile"), words(region, "region")
    options.endpoint_url = words(endpoint_url, "endpoint_url")
    options.no_sign_request = bool(no_sign_request)


class ReaderOptions(Structure):
    _fields_ = [("size", c_size_t), ("format", c_char_p), ("npy_void", c_char_p), ("follow_links", c_int),
                ("keep_sparse", c_int), ("memory_bytes", c_uint64), *_REMOTE, ("dequantize", c_char_p), ("variant", c_char_p),
                ("base", POINTER(c_char_p)), ("bases", c_size_t), *_HEADERS, ("base_in_memory", c_int)]


class Source(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("bytes", c_uint64), ("read_at", ReadAt), ("release", Release),
                ("user", c_void_p)]


class Object(Structure):
    _fields_ = [("name", c_void_p), ("name_bytes", c_size_t), ("format", c_void_p), ("type", c_void_p), ("shape", c_void_p),
                ("rank", c_size_t), ("components", c_size_t), ("first_component", c_size_t), ("path", c_void_p)]


class Component(Structure):
    _fields_ = [("object", c_size_t), ("role", c_void_p), ("dtype", c_void_p), ("storage", c_void_p), ("encoding", c_void_p),
                ("digest", c_void_p), ("file", c_void_p), ("offset", c_uint64), ("length", c_uint64), ("bytes", c_uint64),
                ("unreadable", c_void_p), ("mappable", c_int)]


class Range(Structure):
    _fields_ = [("object", c_size_t), ("component", c_size_t), ("offset", c_uint64), ("bytes", c_uint64), ("out", c_void_p)]


class VerifyReport(Structure):
    _fields_ = [(name, c_uint64) for name in ("objects", "components", "digests", "unhashed", "undecodable", "unchecked",
                                              "problems")]


class WriterOptions(Structure):
    _fields_ = [("size", c_size_t), ("spec", c_char_p), ("digest", c_char_p), ("compress", c_int), ("level", c_int),
                ("min_gain", c_double), ("threads", c_uint), ("memory_bytes", c_uint64), ("overwrite", c_int),
                ("sync", c_int), ("progress", Progress), ("user", c_void_p), *_REMOTE, ("resume", c_int), *_HEADERS]


class Sink(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("append", Append), ("finish", Finish), ("abort", Release),
                ("user", c_void_p)]


class Part(Structure):
    _fields_ = [("role", c_char_p), ("dtype", c_char_p), ("data", c_void_p), ("bytes", c_uint64)]


class Declaration(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("name_bytes", c_size_t), ("format", c_char_p), ("shape", c_void_p),
                ("rank", c_size_t), ("attributes", c_char_p), ("parts", POINTER(Part)), ("part_count", c_size_t),
                ("part_size", c_size_t)]


# What each function returns, "s" for a status, and takes.
_FUNCTIONS = {
    "abi": (c_uint, []),
    "version": (c_char_p, []),
    "last_error": (c_char_p, []),
    "last_error_place": (None, [POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)]),
    "last_error_advice": (c_char_p, [POINTER(c_size_t)]),
    "free": (None, [c_void_p]),
    "type": ("s", [c_char_p, POINTER(c_char_p), POINTER(c_size_t)]),
    "call_init": (None, [POINTER(Call), c_size_t]),
    "reader_options_init": (None, [POINTER(ReaderOptions), c_size_t]),
    "reader_open_all": ("s", [POINTER(c_char_p), c_size_t, POINTER(ReaderOptions), POINTER(c_void_p)]),
    "reader_open_memory": ("s", [c_void_p, c_uint64, c_char_p, Release, c_void_p, POINTER(ReaderOptions),
                                 POINTER(c_void_p)]),
    "reader_open_source": ("s", [POINTER(Source), POINTER(ReaderOptions), POINTER(c_void_p)]),
    "reader_free": (None, [c_void_p]),
    "reader_format": (c_char_p, [c_void_p]),
    "reader_version": (c_char_p, [c_void_p]),
    "reader_warning": (c_char_p, [c_void_p, c_size_t]),
    "reader_count": (c_size_t, [c_void_p]),
    "reader_component_count": (c_size_t, [c_void_p]),
    "reader_objects": ("s", [c_void_p, c_size_t, c_size_t, c_void_p, c_size_t]),
    "reader_components": ("s", [c_void_p, c_size_t, c_size_t, c_void_p, c_size_t]),
    "reader_find": ("s", [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
    "reader_attributes": ("s", [c_void_p, c_size_t, POINTER(c_void_p)]),
    "reader_read_many": ("s", [c_void_p, c_void_p, c_size_t, c_size_t, POINTER(Call)]),
    "reader_update_many": ("s", [c_void_p, c_void_p, c_size_t, c_size_t, POINTER(Call)]),
    "reader_map": ("s", [c_void_p, c_size_t, c_size_t, POINTER(c_void_p), POINTER(c_uint64)]),
    "reader_map_pages": ("s", [c_void_p, c_size_t, c_size_t, c_void_p, POINTER(c_void_p), POINTER(c_uint64)]),
    "pages_free": (None, [c_void_p]),
    "reader_advise": ("s", [c_void_p, c_size_t, c_size_t, c_int]),
    "reader_verify": ("s", [c_void_p, c_size_t, Problem, c_void_p, POINTER(VerifyReport), c_size_t, POINTER(Call)]),
    "writer_options_init": (None, [POINTER(WriterOptions), c_size_t]),
    "writer_open": ("s", [c_char_p, POINTER(WriterOptions), POINTER(c_void_p)]),
    "writer_open_sink": ("s", [POINTER(Sink), POINTER(WriterOptions), POINTER(c_void_p)]),
    "writer_free": (None, [c_void_p]),
    "writer_set_json": ("s", [c_void_p, c_char_p]),
    "writer_add": ("s", [c_void_p, c_char_p, c_size_t, c_char_p, c_void_p, c_size_t, c_void_p, c_uint64]),
    "writer_alias": ("s", [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t]),
    "writer_add_object": ("s", [c_void_p, POINTER(Declaration)]),
    "writer_begin": ("s", [c_void_p, POINTER(Declaration)]),
    "writer_append": ("s", [c_void_p, c_void_p, c_uint64]),
    "writer_next": ("s", [c_void_p]),
    "writer_set_leading_dimension": ("s", [c_void_p, c_uint64]),
    "writer_end": ("s", [c_void_p]),
    "writer_flush": ("s", [c_void_p]),
    "writer_finish": ("s", [c_void_p]),
    "writer_cancel": ("s", [c_void_p]),
}

_HERE = pathlib.Path(__file__).parent


def _load():
    """The library: that which ZTSTREAM_LIBRARY names, that beside the package, or the system's."""
    beside = _HERE / "_lib" / "libztstream.so.0"
    path = os.environ.get("ZTSTREAM_LIBRARY") or (str(beside) if beside.exists() else "libztstream.so.0")
    try:
        library = ctypes.CDLL(path)
        library.zts_abi.restype, library.zts_abi.argtypes = c_uint, []
        abi = library.zts_abi()
    except (OSError, AttributeError) as error:
        raise ImportError(f"libztstream cannot be used: {error}; ZTSTREAM_LIBRARY may name it", path=path) from error
    if abi < ABI:
        raise ImportError(f"{path} is too old: its interface is number {abi}, and {ABI} is needed", path=path)
    return library


lib = _load()


class _Functions:
    """The functions of the library, without the prefix. Those that return a status raise."""

    def __init__(self):
        for name, (restype, argtypes) in _FUNCTIONS.items():
            function = getattr(lib, "zts_" + name)
            function.argtypes = argtypes
            function.restype = c_int if restype == "s" else restype
            setattr(self, name, function)


c = _Functions()


def error(status):
    """The exception of this thread's last call that failed."""
    file, tensor, size = c_char_p(), c_void_p(), c_size_t()
    c.last_error_place(byref(file), byref(tensor), byref(size))
    name = ctypes.string_at(tensor, size.value) if size.value else b""
    decoded = [os.fsdecode(file.value or b""), name.decode("utf-8", "replace")]
    fact = c_size_t()
    advice = c.last_error_advice(byref(fact)).decode().split()
    message = (c.last_error() or b"")[:fact.value].decode("utf-8", "replace")
    return _errors.make(status, message, *decoded, advice, _errors.OF_THE_LIBRARY)


def check(status):
    """Raises unless the status is 0."""
    if status:
        raise error(status)


def errno_of(raised):
    """What a callback returns for an exception."""
    number = getattr(raised, "errno", None)
    return number if isinstance(number, int) and number > 0 else 5  # EIO


def library_version():
    """The version of libztstream: "0.1.0"."""
    return c.version().decode()


def text(pointer):
    """The text at an address, up to its zero byte."""
    return ctypes.string_at(pointer).decode("utf-8", "replace") if pointer else ""


def type_of(name):
    """(the file's name for a type, bytes of an element), of any name that the program takes; None where there is no such type."""
    found, size = c_char_p(), c_size_t()
    if c.type(words(name, "a type") or b"", byref(found), byref(size)):
        return None
    return found.value.decode(), size.value


class Handle:
    """What a function of the library has made for the caller, and `free` frees: once, when it is closed or nothing refers to it.

    It is there before the library fills it, and to close it is one step of Python: Ctrl-C comes before or after, not between.
    """

    def __init__(self, free):
        self._as_parameter_ = pointer = c_void_p()  # functions of the library take a Handle, and keep it for the call
        once = map(functools.partial.__call__, iter([functools.partial(free, pointer)]))
        self.close = functools.partial(next, once, None)

    __del__ = property(operator.attrgetter("close"))  # no function, which would be a step, too

    @property
    def out(self):
        """Where the library puts it."""
        return byref(self._as_parameter_)


class Watched:
    """A long call with a progress function, by which Ctrl-C cancels it. True until the library, which calls that no more when it
    was told, calls nothing."""

    def __init__(self):
        self.cancelled = self.told = False
        self.progress = Progress(self._progress)

    def __bool__(self):
        return not self.told

    def _progress(self, done, total, user):
        self.told = self.cancelled
        return int(self.told)

    def cancel(self):
        """Makes the call end."""
        self.cancelled = True


def new_call(threads, watched):
    """A zts_call of so many threads, watched if that is not None."""
    call = Call()
    c.call_init(byref(call), sizeof(call))
    call.threads = threads
    if watched is not None:
        call.progress = watched.progress
    return call


_Pages = c_ubyte * (1 << 56)


def name_at(address, size):
    """The name of so many bytes at an address."""
    return ctypes.string_at(address, size).decode("utf-8", "surrogateescape")


if sys.implementation.name == "cpython":
    _memory = memoryview(_Pages.from_address(1)).cast("B")

    def name_at(address, size):  # the same in a third of the time, by a slice of all memory
        return str(_memory[address - 1:address - 1 + size], "utf-8", "surrogateescape")


def pages_at(address, owner):
    """Memory at an address as an array of bytes without an end, which keeps `owner` as long as anything refers to it. Whoever
    takes a part of it knows how much is there: an array type for each size would stay for good."""
    array = _Pages.from_address(address)
    array._owner = owner
    return array
