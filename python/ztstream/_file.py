"""Open inputs: File, a mapping of names to Tensors, which are handles: nothing is read before it is asked for."""
import collections.abc
import contextlib
import ctypes
import dataclasses
import os
import struct
import threading
from ctypes import byref, c_char_p, c_size_t, c_uint64, c_void_p, sizeof
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _c, _json, _types
from ._errors import ArgumentError, Error, MisuseError, NotFoundError, UnsupportedError

_OBJECT = struct.Struct("@PNPPPNNN")
_COMPONENT = struct.Struct("@N6P3QPi4x")
_RANGE = struct.Struct("@NNQQP")
_LONG = 4 << 20  # bytes from which a read is one that Ctrl-C should end
_PIECE = 1 << 24
_MANY = 64  # handles after which those of all tensors are asked for at once


class _Reader:
    """A zts_reader, closed when nothing refers to it any more: a file, a handle, an array in its pages, a call."""

    def __init__(self, pointer, kept=(), raised=()):
        self._as_parameter_, self.kept = pointer, kept  # functions of the library take a _Reader, and keep it for the call
        self.raised = raised  # exceptions of the caller's file object
        self._free = _c.c.reader_free  # modules may be gone first when the interpreter ends

    def __del__(self):
        self._free(self._as_parameter_)


@contextlib.contextmanager
def _own_errors(raised):
    """Raises what a file object has raised in place of the library's error. An OSError is the library's, which names the tensor."""
    try:
        yield
    except Error:
        if raised:
            raise raised.pop() from None
        raise


# Arrays of so many dimensions.
_SHAPES = [ctypes.c_uint64 * rank for rank in range(65)]


def _options(format, npy_void, follow_links, keep_sparse):
    options = _c.ReaderOptions()
    _c.c.reader_options_init(byref(options), sizeof(options))
    options.format = format.encode() if format else None
    options.npy_void = npy_void.encode() if npy_void else None
    options.follow_links, options.keep_sparse = bool(follow_links), bool(keep_sparse)
    return options


def _open_paths(paths, options):
    out, encoded = c_void_p(), [os.fsencode(path) for path in paths]
    for path in encoded:
        if b"\0" in path:
            raise ArgumentError("a path holds a zero byte")
    _c.check(_c.c.reader_open_all((c_char_p * len(encoded))(*encoded), len(encoded), byref(options), byref(out)))
    return _Reader(out)


def _open_buffer(data, options):
    view = memoryview(data).cast("B")
    keep = view if not view.readonly else None
    if view.readonly:  # ctypes takes the address of writable buffers alone, and of bytes
        keep = data if isinstance(data, bytes) else bytes(view)
    address = (ctypes.cast(c_char_p(keep), c_void_p).value if isinstance(keep, bytes) else
               ctypes.addressof(ctypes.c_ubyte.from_buffer(keep)) if len(view) else None)
    out = c_void_p()
    _c.check(_c.c.reader_open_memory(address, len(view), b"memory", _c.Release(), None, byref(options), byref(out)))
    return _Reader(out, (keep,))


def _open_object(file, options):
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
    with _own_errors(raised):
        _c.check(_c.c.reader_open_source(byref(source), byref(options), byref(out)))
    return _Reader(out, (source, file), raised)


def open(path, *more, threads: int = 0, format: Optional[str] = None, npy_void: Optional[str] = None,
         follow_links: bool = False, keep_sparse: bool = False) -> "File":
    """Opens a checkpoint of any format for reading. Headers are read and checked, and no data.

    path: a file (.zt, .safetensors, .gguf, .pt, .npy, .npz, .onnx, ...), the index or the folder of a checkpoint in several
        files, a bytes-like object, or a binary file object that can seek. Several paths are one name space; a name in two
        of them is a FormatError.
    threads: how many read and decode; 0 is all that can run at once.
    format: "zt", "safetensors", ...; by content where it is not given.
    npy_void: what the elements of numpy's void arrays are ("bf16"); without it they are refused.
    follow_links: files of a folder may be symbolic links that lead out of it, as in the Hugging Face cache.
    keep_sparse: a scipy sparse archive as the arrays that it holds.
    """
    options = {"threads": threads, "format": format, "npy_void": npy_void, "follow_links": follow_links,
               "keep_sparse": keep_sparse}
    return File((path, *more), options)


@dataclasses.dataclass
class Report:
    """What verification found.

    problems: a line for each thing that is wrong, with (tensor, component) before it.
    objects, components: how many were looked at.
    digests: how many digests were compared; unhashed: components whose content no digest was compared with.
    undecodable: components whose layout, type or encoding is not known; unchecked: objects with a rule that takes too much
        memory to be looked at.
    """

    problems: List[Tuple[str, str, str]]
    objects: int
    components: int
    digests: int
    unhashed: int
    undecodable: int
    unchecked: int

    @property
    def good(self) -> bool:
        """Nothing wrong was found. What has no digest can be damaged all the same: see verified."""
        return not self.problems

    @property
    def verified(self) -> bool:
        """Nothing is wrong, and all content was compared with digests."""
        return not self.problems and not self.unhashed and not self.undecodable and not self.unchecked


class Part:
    """The bytes of a tensor, or one of several parts of one. A handle: nothing is read before it is asked for."""

    def __init__(self, file: "File", object: int, component: int):
        self._file, self._object, self._number = file, object, component
        fields = file._component(object, component)
        self._role, self._dtype, self._storage, self._encoding, self._digest, self._path = fields[1:7]
        self._offset, self._length, self._bytes, self._unreadable, self._mappable = fields[7:]

    @property
    def role(self) -> str:
        """What it is to its tensor: "data", "values", "indices", ..."""
        return self._file._text(self._role)

    @property
    def dtype(self) -> str:
        """The element type by the name that the file has: "f32", "bf16", "f8_e4m3fn", ..."""
        return self._file._text(self._dtype)

    @property
    def storage(self) -> str:
        """What the elements are stored as: "u8" for f8_e4m3fn."""
        return self._file._text(self._storage)

    @property
    def numpy_dtype(self):
        """The numpy.dtype that numpy() gives: unsigned integers for bf16 and f8 where ml_dtypes is not installed."""
        return _types.numpy_dtype(self.dtype, self.storage)

    @property
    def encoding(self) -> str:
        """How the bytes are stored: "raw", "zstd", "ztstream.planes/1"; "" where the format does not tell."""
        return self._file._text(self._encoding)

    @property
    def digest(self) -> str:
        """As the file states it, "crc32c:0x1234ABCD"; "" where there is none."""
        return self._file._text(self._digest)

    @property
    def nbytes(self) -> int:
        """Decoded bytes."""
        self._check()
        return self._bytes

    @property
    def location(self) -> Optional[Tuple[str, int, int]]:
        """(file, offset, length) of the stored bytes; None where they do not lie there as they are."""
        if self._offset == _c.UNKNOWN:
            return None
        return self._file._text(self._path), self._offset, self._length

    @property
    def shape(self) -> Tuple[int, ...]:
        """In elements."""
        return (self.nbytes // self.numpy_dtype.itemsize,)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for each in self.shape:
            count *= each
        return count

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def _check(self):
        self._file._check()
        if self._unreadable:
            raise UnsupportedError(f"{self._file._name}: tensor {self._name!r}: {self._file._text(self._unreadable)}",
                                   self._file._name, self._name)

    @property
    def _name(self):
        return self._file._object_name(self._object)

    def _pages(self):
        """(array of bytes of the mapped file, offset in it), or None where the bytes have to be read."""
        self._check()
        return self._file._mapped(self) if self._mappable and self._bytes else None

    def read_into(self, out, offset: int = 0, threads: Optional[int] = None) -> None:
        """Fills a writable buffer with decoded bytes from byte `offset` on, by many threads."""
        view = memoryview(out).cast("B")
        if view.readonly:
            raise ArgumentError("the buffer cannot be written to")
        self._check()
        if not len(view):
            return
        holder = ctypes.c_ubyte.from_buffer(view)
        self._file._read([(self._object, self._number, offset, len(view), ctypes.addressof(holder), holder)], threads)

    def buffer(self) -> memoryview:
        """The decoded bytes: of a raw tensor those in the file's pages, without a copy and read-only; else decoded here."""
        pages = self._pages()
        if pages is not None:
            array, at = pages
            return memoryview(array).cast("B").toreadonly()[at:at + self._bytes]
        out = bytearray(self._bytes)
        self.read_into(out)
        return memoryview(out)

    def tobytes(self) -> bytes:
        """The decoded bytes, copied."""
        return bytes(self.buffer())

    def numpy(self, copy: bool = False):
        """All of it as a numpy array of `shape` and `numpy_dtype`.

        A raw tensor is not read but lies in the file's pages: such an array is read-only, and keeps the pages when the file
        is closed. copy=True: an array of one's own.
        """
        import numpy
        self._check()
        shape, dtype = self.shape, self.numpy_dtype
        pages = None if copy else self._pages()
        if pages is not None:
            array, at = pages
            out = numpy.frombuffer(array, dtype, self._bytes // dtype.itemsize, at).reshape(shape)
            out.flags.writeable = False
            return out
        out = numpy.empty(shape, dtype)
        if self._bytes:
            self._file._read([(self._object, self._number, 0, self._bytes, out.ctypes.data, out)], None)
        return out

    def torch(self, device="cpu", copy: bool = False):
        """All of it as a torch tensor on a device.

        On the CPU a raw tensor is not read but lies in the file's pages, copied when it is written to: the file never
        changes, another tensor() of the same File does. copy=True: memory of one's own.
        """
        import torch
        self._check()
        shape, dtype = self.shape, _types.torch_dtype(self.dtype, self.storage)
        pages = None if copy else self._pages()
        if pages is not None and (pages[1] + ctypes.addressof(pages[0])) % dtype.itemsize == 0:
            out = torch.frombuffer(pages[0], dtype=dtype, count=self._bytes // dtype.itemsize, offset=pages[1])
            return out.reshape(shape).to(device)
        out = torch.empty(shape, dtype=dtype)
        if self._bytes:
            self._file._read([(self._object, self._number, 0, self._bytes, out.data_ptr(), out)], None)
        return out.to(device)

    def advise(self, needed: bool = True) -> None:
        """Tells the kernel that the bytes will be read soon, or not again."""
        self._check()
        _c.check(_c.c.reader_advise(self._file._pointer(), self._object, self._number, bool(needed)))

    def _rows(self, first, last):
        """Rows [first, last) of the first dimension as a numpy array."""
        import numpy
        pages = self._pages()
        if pages is not None:
            return self.numpy()[first:last]
        shape = (last - first, *self.shape[1:])
        out = numpy.empty(shape, self.numpy_dtype)
        row = self._bytes // self.shape[0] if self.shape[0] else 0
        if out.nbytes:
            self._file._read([(self._object, self._number, first * row, out.nbytes, out.ctypes.data, out)], None)
        return out

    def __getitem__(self, index):
        """A part of it as a numpy array, by numpy's rules. Of the first dimension only those rows are read that are asked
        for; a raw tensor is not read at all but lies in the file's pages."""
        import operator
        first = index[0] if isinstance(index, tuple) and index else index
        rest = index[1:] if isinstance(index, tuple) else ()
        shape = self.shape
        if not shape or isinstance(first, (tuple, list, bool)) or first is None or first is Ellipsis:
            return self.numpy()[index]
        if isinstance(first, slice):
            begin, end, step = first.indices(shape[0])
            count = len(range(begin, end, step))
            if count == 0:
                return self._rows(0, 0)[(slice(None), *rest)]
            low, high = min(begin, begin + (count - 1) * step), max(begin, begin + (count - 1) * step)
            return self._rows(low, high + 1)[(slice(None, None, step), *rest)]
        try:
            row = operator.index(first)
        except TypeError:  # an array of indices, a mask
            return self.numpy()[index]
        if not -shape[0] <= row < shape[0]:
            raise IndexError(f"index {row} is out of range of a first dimension of {shape[0]}")
        row %= shape[0]
        return self._rows(row, row + 1)[(0, *rest)]

    def __array__(self, dtype=None, copy=None):
        out = self.numpy(copy=bool(copy))
        return out if dtype is None else out.astype(dtype, copy=False)

    def __repr__(self):
        return f"<{type(self).__name__} {self._name!r} {self.role} {self.dtype} {self.encoding}>"


class Tensor(Part):
    """A named tensor of a file. A handle: nothing is read before it is asked for.

    What is not dense (sparse, quantized, blocks of GGUF) has its bytes in `parts`.
    """

    def __init__(self, file: "File", object: int):
        (self._name_at, self._name_bytes, self._format, self._type, self._shape_at, self._rank, self._components,
         _) = file._object(object)
        if self._components:
            super().__init__(file, object, 0)
        else:
            self._file, self._object, self._unreadable = file, object, None

    @property
    def name(self) -> str:
        """Unique in the file."""
        return self._name

    @property
    def format(self) -> str:
        """How the parts combine: "dense", "sparse_csr", "gguf.q4_k/1", ..."""
        return self._file._text(self._format)

    @property
    def type(self) -> str:
        """What people call its type: "bf16", "q4_k", "sparse_csr"."""
        return self._file._text(self._type)

    @property
    def shape(self) -> Tuple[int, ...]:
        """Logical, in elements. Types of 4 and 6 bits count packed bytes in the last dimension."""
        held = self._file._pointer()
        shape = tuple(_SHAPES[self._rank].from_address(self._shape_at)) if self._rank else ()
        del held
        return shape

    @property
    def attributes(self) -> Dict[str, Any]:
        """Of this tensor."""
        return self._file._attributes(self._object)

    @property
    def parts(self) -> Dict[str, Part]:
        """The parts by their role, each one-dimensional; a dense tensor has one, "data"."""
        parts = (Part(self._file, self._object, i) for i in range(self._components))
        return {part.role: part for part in parts}

    @property
    def is_dense(self) -> bool:
        """Whether it is one array; numpy() and torch() are for these."""
        return self.format == "dense" and self._components == 1

    @property
    def numpy_dtype(self):
        """The numpy.dtype that numpy() gives: unsigned integers for bf16 and f8 where ml_dtypes is not installed."""
        self._check_dense()
        return super().numpy_dtype

    def _check_dense(self):
        if not self.is_dense:
            raise UnsupportedError(f"{self._file._name}: tensor {self._name!r}: it is no dense tensor but {self.format}; "
                                   f"its bytes are in .parts: {', '.join(self.parts)}", self._file._name, self._name)

    def _check(self):
        super()._check()
        self._check_dense()

    def verify(self) -> Report:
        """Reads every byte and compares the digests."""
        return self._file._verify(self._object, 0)

    def __repr__(self):
        try:
            shape = "x".join(map(str, self.shape)) or "scalar"
        except MisuseError:
            return "<Tensor of a closed file>"
        encoding = f" {self.encoding}" if self._components and self.encoding else ""
        return f"<Tensor {self._name!r} {self.type} {shape}{encoding}>"


class File(Mapping[str, Tensor]):
    """An open checkpoint: a mapping of names to Tensors, in the order of the file. Made by open(); a context manager.

    Closing it, or leaving the context, ends the handles; arrays that were made stay. Any thread may use it, and so may a
    forked child. It pickles as its paths and is opened again where it is unpickled.
    """

    def __init__(self, sources: Sequence, options: Dict[str, Any]):
        options = dict(options)
        self._threads = options.pop("threads", 0)
        self._sources, self._given = tuple(sources), options
        self._held = self._open(_options(**options))
        self._count = _c.c.reader_count(self._held)
        self._texts: Dict[int, str] = {}
        self._names: Optional[List[str]] = None
        self._places: Dict[int, Any] = {}  # of a mapped file, by the address of its path
        self._table: Optional[ctypes.Array] = None  # of all objects, once many were asked for
        self._parts: Optional[ctypes.Array] = None  # of all components, likewise
        self._asked = 0

    def _open(self, options):
        if all(isinstance(source, (str, os.PathLike)) for source in self._sources):
            self._name = os.fspath(self._sources[0])
            return _open_paths(self._sources, options)
        if len(self._sources) != 1:
            raise ArgumentError("several inputs are given as paths")
        source = self._sources[0]
        self._name = "memory"
        if hasattr(source, "read") and hasattr(source, "seek"):
            self._name = str(getattr(source, "name", "file object"))
            return _open_object(source, options)
        if isinstance(source, (bytes, bytearray, memoryview)) or hasattr(source, "__buffer__"):
            return _open_buffer(source, options)
        raise TypeError(f"what is opened is a path, a buffer or a file object, not {type(source).__name__}")

    # ---- tables ----

    def _objects_table(self):
        if self._table is None:
            table = ctypes.create_string_buffer(max(1, self._count * _OBJECT.size))
            _c.check(_c.c.reader_objects(self._pointer(), 0, self._count, table, _OBJECT.size))
            self._table = table
        return self._table

    def _components_table(self):
        if self._parts is None:
            count = _c.c.reader_component_count(self._pointer())
            table = ctypes.create_string_buffer(max(1, count * _COMPONENT.size))
            _c.check(_c.c.reader_components(self._pointer(), 0, count, table, _COMPONENT.size))
            self._parts = table
        return self._parts

    def _object(self, index):
        if self._table is None and self._asked < _MANY:
            self._asked += 1
            row = ctypes.create_string_buffer(_OBJECT.size)
            _c.check(_c.c.reader_objects(self._pointer(), index, 1, row, _OBJECT.size))
            return _OBJECT.unpack(row)
        return _OBJECT.unpack_from(self._objects_table(), index * _OBJECT.size)

    def _component(self, object, component):
        held = self._pointer()
        first = self._object(object)[7] + component
        if self._parts is None and self._asked < _MANY:
            row = ctypes.create_string_buffer(_COMPONENT.size)
            _c.check(_c.c.reader_components(held, first, 1, row, _COMPONENT.size))
            fields = list(_COMPONENT.unpack(row))
        else:
            fields = list(_COMPONENT.unpack_from(self._components_table(), first * _COMPONENT.size))
        if held.raised:  # the library has taken it for a tensor that cannot be read
            raise held.raised.pop()
        if fields[10] and not _c.text(fields[10]):
            fields[10] = None
        del held
        return fields

    def _object_name(self, index):
        held = self._pointer()  # another thread may close the file: what lies in the reader stays until this returns
        fields = self._object(index)
        name = ctypes.string_at(fields[0], fields[1]).decode("utf-8", "surrogateescape")
        del held
        return name

    def _text(self, pointer):
        held = self._pointer()
        text = self._texts.get(pointer)
        if text is None:
            text = self._texts[pointer] = _c.text(pointer)
        del held
        return text

    def _check(self):
        self._pointer()

    def _pointer(self):
        """The reader, which stays open as long as what this returns is held."""
        held = self._held
        if held is None:
            raise MisuseError(f"{self._name}: the file is closed", self._name)
        return held

    def _attributes(self, object):
        out = c_void_p()
        _c.check(_c.c.reader_attributes(self._pointer(), object, byref(out)))
        try:
            return _json.loads(ctypes.string_at(out).decode("utf-8"))
        finally:
            _c.c.free(out)

    # ---- bytes ----

    def _mapped(self, part):
        """The pages of the file in which a part lies, as an array of bytes, and where the part begins in it."""
        place = self._places.get(part._path)
        if place is None:
            data, size, held = c_void_p(), c_uint64(), self._pointer()
            _c.check(_c.c.reader_map(held, part._object, part._number, byref(data), byref(size)))
            place = self._places[part._path] = _c.pages_at(data.value - part._offset, held)
        return place, part._offset

    def _read(self, wanted, threads):
        """Reads (object, component, offset, bytes, address, what has the memory) with one call."""
        ranges = b"".join(_RANGE.pack(*each[:5]) for each in wanted)
        total = sum(each[3] for each in wanted)
        watched = _c.Watched() if total >= _LONG else None
        call = _c.new_call(self._threads if threads is None else threads, watched)
        held = self._pointer()
        arguments = held, ranges, len(wanted), _RANGE.size, byref(call)
        with _own_errors(held.raised):
            if watched is None:
                _c.check(_c.c.reader_read_many(*arguments))
            else:
                watched.run(_c.c.reader_read_many, *arguments, keep=wanted)

    def _verify(self, object, threads):
        problems = []
        watched = _c.Watched()

        def add(name, size, component, message, _):
            called = ctypes.string_at(name, size).decode("utf-8", "replace")
            problems.append((called, (component or b"").decode("utf-8", "replace"), message.decode("utf-8", "replace")))

        report, call = _c.VerifyReport(), _c.new_call(threads, watched)

        def verify(*arguments):
            status = _c.c.reader_verify(*arguments)
            return 0 if problems or status == _c.UNVERIFIED else status

        held = self._pointer()
        with _own_errors(held.raised):
            watched.run(verify, held, object, _c.Problem(add), None, byref(report), sizeof(report), byref(call))
        return Report(problems, report.objects, report.components, report.digests, report.unhashed, report.undecodable,
                      report.unchecked)

    # ---- the mapping ----

    def __getitem__(self, name: str) -> Tensor:
        index = self._find(name)
        if index is None:
            raise NotFoundError(f"{self._name}: there is no tensor {name!r}", self._name, name)
        return Tensor(self, index)

    def _find(self, name):
        self._check()
        if not isinstance(name, str):
            return None
        encoded, index = name.encode("utf-8", "surrogateescape"), c_size_t()
        status = _c.c.reader_find(self._pointer(), encoded, len(encoded), byref(index))
        if status == 9:
            return None
        _c.check(status)
        return index.value

    def __contains__(self, name) -> bool:
        return self._find(name) is not None

    def _all_names(self):
        held = self._pointer()
        if self._names is None:
            at, table = ctypes.string_at, memoryview(self._objects_table())[:self._count * _OBJECT.size]
            self._names = [at(fields[0], fields[1]).decode("utf-8", "surrogateescape") for fields in
                           _OBJECT.iter_unpack(table)]
        del held
        return self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_names())

    def __len__(self) -> int:
        return self._count

    def values(self) -> List[Tensor]:  # by their numbers, which takes no search
        """All tensors, as handles."""
        return [Tensor(self, i) for i in range(self._count)]

    def items(self) -> List[Tuple[str, Tensor]]:
        """All names with their tensors."""
        return list(zip(self._all_names(), self.values()))

    # ---- what the file says of itself ----

    @property
    def attributes(self) -> Dict[str, Any]:
        """Of the file: safetensors' metadata, GGUF's keys, what a training state holds beside tensors."""
        return self._attributes(_c.FILE)

    @property
    def format(self) -> str:
        """The format that was opened: "zt", "safetensors", ..."""
        return _c.c.reader_format(self._pointer()).decode()

    @property
    def version(self) -> str:
        """Of a .zt file: "1.2.0"."""
        return _c.c.reader_version(self._pointer()).decode()

    @property
    def warnings(self) -> List[str]:
        """What was passed over or looks wrong and does no harm, a line each."""
        lines: List[str] = []
        while True:
            line = _c.c.reader_warning(self._pointer(), len(lines))
            if line is None:
                return lines
            lines.append(line.decode("utf-8", "replace"))

    @property
    def path(self) -> str:
        """What was opened."""
        return self._name

    # ---- many tensors at once ----

    def _chosen(self, names):
        if names is None:
            return self.values()
        return [self[name] for name in names]

    def _entries(self, names):
        """(name, fields of the object, its number) of each; many names take no search for each."""
        at, unpack = ctypes.string_at, _OBJECT.unpack_from
        if names is None:
            table = memoryview(self._objects_table())[:self._count * _OBJECT.size]
            return [(name, fields, i) for i, (name, fields) in enumerate(zip(self._all_names(), _OBJECT.iter_unpack(table)))]
        indices = [(name, self._find(name)) for name in names]
        missing = [name for name, index in indices if index is None]
        if missing:
            raise NotFoundError(f"{self._name}: there is no tensor {missing[0]!r}", self._name, missing[0])
        table = self._objects_table()
        return [(name, unpack(table, index * _OBJECT.size), index) for name, index in indices]

    def _many(self, names, copy, types, mapped, made):
        """{name: array} with one read of all that has to be read; parts of what is not dense as {role: array}.

        types(dtype, storage) is (the array's type, bytes of an element), mapped(pages, type, count, offset, shape) an array in
        pages, made(shape, type) one with memory and the address of that.
        """
        out: Dict[str, Any] = {}
        wanted: List[Any] = []
        known: Dict[Any, Any] = {}  # types, by the addresses of their names
        held = self._pointer()
        unpack, table = _COMPONENT.unpack_from, self._components_table()

        def array(part, shape):
            """Of a part by its handle."""
            part._check()
            kind, width = types(part.dtype, part.storage)
            pages = None if copy else part._pages()
            if pages is not None and (ctypes.addressof(pages[0]) + pages[1]) % width == 0:
                return mapped(pages[0], kind, part._bytes // width, pages[1], shape)
            memory, address = made(shape, kind)
            if part._bytes:
                wanted.append((part._object, part._number, 0, part._bytes, address, memory))
            return memory

        for name, (_, _, form, _, shape_at, rank, parts, first), index in self._entries(names):
            if self._text(form) != "dense" or parts != 1:
                out[name] = {role: array(part, part.shape) for role, part in Tensor(self, index).parts.items()}
                continue
            (_, _, dtype, storage, _, _, path, offset, _, size, unreadable, mappable) = unpack(table, first * _COMPONENT.size)
            place = self._places.get(path) if mappable and size and not copy else None
            if place is None or unreadable and _c.text(unreadable):
                tensor = Tensor(self, index)
                out[name] = array(tensor, tensor.shape)
                continue
            # The same for what most tensors are, a million times: dense, raw, in a file that is mapped.
            kind = known.get((dtype, storage))
            if kind is None:
                kind = known[dtype, storage] = types(self._text(dtype), self._text(storage))
            shape = tuple(_SHAPES[rank].from_address(shape_at)) if rank else ()
            if offset % kind[1]:
                out[name] = array(Tensor(self, index), shape)
            else:
                out[name] = mapped(place, kind[0], size // kind[1], offset, shape)
        if wanted:
            self._read(wanted, None)
        del held
        return out

    def numpy(self, names: Optional[Iterable[str]] = None, *, copy: bool = False) -> Dict[str, Any]:
        """Tensors as numpy arrays, decoded by all threads with one call.

        names: which; all without it. copy=False: raw tensors lie in the file's pages and are read-only, see Part.numpy.
        A tensor that is not dense is a dict of its parts by their roles.
        """
        import numpy

        def types(dtype, storage):
            kind = _types.numpy_dtype(dtype, storage)
            return kind, kind.itemsize

        def mapped(pages, kind, count, offset, shape):
            out = numpy.frombuffer(pages, kind, count, offset).reshape(shape)
            out.flags.writeable = False
            return out

        def made(shape, kind):
            out = numpy.empty(shape, kind)
            return out, out.ctypes.data

        return self._many(names, copy, types, mapped, made)

    def torch(self, names: Optional[Iterable[str]] = None, *, device="cpu", copy: bool = False,
              pin: bool = False) -> Dict[str, Any]:
        """Tensors as torch tensors on a device: the state_dict of a model. Decoded by all threads with one call.

        names: which; all without it. copy=False: on the CPU raw tensors lie in the file's pages, see Part.torch.
        pin=True: through pinned memory, from which devices copy faster.
        A tensor that is not dense is a dict of its parts by their roles.
        """
        import torch

        def types(dtype, storage):
            kind = _types.torch_dtype(dtype, storage)
            return kind, torch.empty(0, dtype=kind).element_size()

        def mapped(pages, kind, count, offset, shape):
            out = torch.frombuffer(pages, dtype=kind, count=count, offset=offset)
            return out if len(shape) == 1 else out.reshape(shape)

        def made(shape, kind):
            out = torch.empty(shape, dtype=kind, pin_memory=pin)
            return out, out.data_ptr()

        state = self._many(names, copy or pin, types, mapped, made)
        if str(device) == "cpu":
            return state
        return {name: ({role: part.to(device) for role, part in value.items()} if isinstance(value, dict)
                       else value.to(device)) for name, value in state.items()}

    def read(self, names: Optional[Iterable[str]] = None, *, out: Mapping[str, Any],
             threads: Optional[int] = None) -> None:
        """Decodes dense tensors into buffers of the caller, with one call by all threads.

        out: a writable contiguous buffer for each name, of the tensor's nbytes. names: those of `out` without it.
        """
        wanted = []
        for name in out if names is None else names:
            tensor = self[name]
            view = memoryview(out[name]).cast("B")
            tensor._check()
            if view.readonly or len(view) != tensor._bytes:
                raise ArgumentError(f"the buffer for {name!r} must be writable and have {tensor._bytes} bytes", None, name)
            if len(view):
                holder = ctypes.c_ubyte.from_buffer(view)
                wanted.append((tensor._object, tensor._number, 0, len(view), ctypes.addressof(holder), holder))
        if wanted:
            self._read(wanted, threads)

    def prefetch(self, names: Optional[Iterable[str]] = None) -> None:
        """Tells the kernel that tensors will be read soon."""
        for tensor in self._chosen(names):
            for part in tensor.parts.values():
                _c.check(_c.c.reader_advise(self._pointer(), part._object, part._number, 1))

    def verify(self, *, threads: int = 0) -> Report:
        """Reads every byte, checks the rules of the format and compares all digests."""
        return self._verify(_c.FILE, threads)

    # ---- lifetime ----

    def close(self) -> None:
        """Ends the handles. Arrays that were made stay: they keep the pages that they lie in."""
        self._held = None
        self._places = {}

    def __enter__(self) -> "File":
        self._check()
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __reduce__(self):
        if not all(isinstance(source, (str, os.PathLike)) for source in self._sources):
            raise TypeError("a file that was opened from memory or a file object cannot be pickled")
        paths = tuple(os.path.abspath(source) for source in self._sources)
        return _reopen, (paths, {"threads": self._threads, **self._given})

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other

    def __repr__(self):
        state = "closed" if self._held is None else f"{self._count} tensors"
        return f"<File {self._name!r} {state}>"


def _reopen(paths, options):
    return File(paths, options)


def load_file(path, names: Optional[Iterable[str]] = None, *, framework: str = "numpy", device="cpu",
              **options) -> Dict[str, Any]:
    """All tensors of a checkpoint, or those named, as {name: array}.

    framework: "numpy" or "torch"; device: of torch tensors. The rest are options of open().
    """
    if framework not in ("numpy", "torch"):
        raise ArgumentError(f"framework is 'numpy' or 'torch', not {framework!r}")
    with open(path, **options) as file:
        return file.numpy(names) if framework == "numpy" else file.torch(names, device=device)
