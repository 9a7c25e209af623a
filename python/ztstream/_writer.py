"""Writing .zt files: save_file for a dict of tensors, Writer for tensors that come one after the other."""
import collections
import copy
import ctypes
import mmap
import operator
import os
import sys
import threading
import time
import warnings
import weakref
from ctypes import byref, c_uint64, c_void_p, sizeof
from typing import Any, Dict, Mapping, Optional, Sequence

from . import _c, _json, _types
from ._errors import ArgumentError, MisuseError
from ._interrupt import begun
from ._output import Output
from ._state import Flat

_COMPRESS = {None: 0, "none": 0, "raw": 0, "zstd": 1, "planes": 2}
_OTHERS = (".safetensors", ".npy", ".npz", ".gguf", ".pt", ".pth", ".ckpt")  # names of files that are not written
_LONG = 4 << 20  # takes long
_SMALL = 1 << 20  # what is copied rather than waited for
_KEPT = 64 << 20  # copies of small tensors that may wait to be written


class _Bytes:
    """The bytes of a tensor that is written: their address, type and shape, and what holds them."""

    def __init__(self, address, nbytes, dtype, shape, holder, identity=None, owner=None, fresh=False, own=False):
        if nbytes and not address:
            raise MisuseError(f"{nbytes} bytes that lie nowhere")
        self.address, self.nbytes, self.dtype, self.shape = address, nbytes, dtype, tuple(shape)
        self.holder = holder
        self.identity = identity  # of memory that the caller holds
        self.owner = owner  # as long as this lives, no other tensor gets that memory
        self.fresh = fresh  # memory that counts as this tensor's alone
        self.own = own  # a copy: nothing that the caller does changes it

    def copied(self):
        """The same with a copy of the bytes. A large one is in pages of its own, which go back to the system when it is freed."""
        if self.nbytes >= _LONG:
            pages = mmap.mmap(-1, self.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            made = (ctypes.c_char * 1).from_buffer(pages)  # which keeps them
            ctypes.memmove(made, self.address, self.nbytes)
            return _Bytes(ctypes.addressof(made), self.nbytes, self.dtype, self.shape, made, fresh=True, own=True)
        made = ctypes.create_string_buffer(ctypes.string_at(self.address, self.nbytes) if self.nbytes else b"", self.nbytes or 1)
        return _Bytes(ctypes.addressof(made), self.nbytes, self.dtype, self.shape, made, fresh=True, own=True)


def _encoded(name):
    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor is a text, not {name!r}")
    encoded = _types.encoded(name)
    if encoded is None:
        raise ArgumentError(f"tensor {name!r}: half of a surrogate pair is no text", None, name)
    return encoded


def _dims(name, shape):
    """A shape as the library takes it."""
    try:
        sizes = [operator.index(each) for each in shape]
        if any(not 0 <= each < 1 << 64 for each in sizes):
            raise ValueError
    except Exception:  # of torch's symbolic and nested sizes, each has its own
        raise ArgumentError(f"tensor {name!r}: {list(shape)} is no shape", None, name) from None
    return (c_uint64 * len(sizes))(*sizes)


def _stored_as(name, dtype, given, itemsize):
    """`dtype`, or the type `given` of what is in memory where that is None. Unsigned integers are the bits of any type of their
    width; nothing else becomes another type."""
    if dtype is None:
        return given
    found = _types.find(dtype)
    if found is None or found[0] == given:
        return dtype
    if found[1] != itemsize:
        raise ArgumentError(f"tensor {name!r}: elements of {given} have {itemsize} bytes, those of {dtype} {found[1]}", None, name)
    if given not in ("u8", "u16", "u32", "u64"):
        raise ArgumentError(f"tensor {name!r}: {given} is not {dtype}; convert it, or give its bits as unsigned integers", None, name)
    return dtype


def _of_torch(name, tensor, dtype):
    given, why = tensor, _types.without_values(tensor)
    if why is not None and not hasattr(tensor, "materialize") and getattr(tensor, "_is_zerotensor", bool)():
        tensor, why = tensor.clone(), None  # zeros that had no memory
    if why is None:
        tensor = tensor.detach()
        identity = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), str(tensor.device),
                    tensor.is_conj(), tensor.is_neg())
        held = tensor.resolve_conj().resolve_neg().cpu().contiguous()
        why = _types.without_values(held)
    if why is None and _types.of_torch(held.dtype) is None:
        why = f"{held.dtype} has no type in a file"
    if why is not None:
        raise ArgumentError(f"tensor {name!r}: {why}", None, name)
    dtype = _stored_as(name, dtype, _types.of_torch(held.dtype), held.element_size())
    nbytes = held.numel() * held.element_size()
    fresh = held.data_ptr() != identity[0]
    return _Bytes(held.data_ptr(), nbytes, dtype, held.shape, held, identity if nbytes else None, given, fresh, fresh)


def _of_numpy(name, array, dtype, owner):
    """`owner` has the memory; None where the array was made for this call."""
    import numpy
    if numpy.ma.is_masked(array):
        raise ArgumentError(f"tensor {name!r}: it is masked, and a file has no masks; filled() gives its values", None, name)
    given, identity = array, None
    if array.nbytes and owner is not None:
        identity = array.ctypes.data, array.dtype, array.shape, array.strides
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    held = array
    if not array.flags.c_contiguous:
        held = numpy.ascontiguousarray(array).reshape(array.shape)
    bits = f"u{8 * held.itemsize}" if held.dtype.kind == "V" and dtype is not None else None
    stored = bits or _types.of_numpy(held.dtype)
    if stored is None:
        raise ArgumentError(f"tensor {name!r}: numpy's {held.dtype} has no type in a file", None, name)
    dtype = _stored_as(name, dtype, stored, held.itemsize)
    fresh = owner is None or held is not given
    return _Bytes(held.ctypes.data, held.nbytes, dtype, held.shape, held, identity, owner, fresh, held is not given)


def _of_handle(name, tensor, dtype):
    bits, owner = tensor.view_bits(), tensor._file._held
    dtype = _stored_as(name, dtype, tensor.dtype, bits.itemsize)
    place = tensor._path, tensor._offset, tensor._length
    identity = (id(owner), *place, dtype, bits.shape) if bits.nbytes and tensor._offset != _c.UNKNOWN else None
    return _Bytes(bits.ctypes.data, bits.nbytes, dtype, bits.shape, bits, identity, owner, not tensor._mappable, not tensor._mappable)


def _of_buffer(name, data, dtype, shape):
    view = memoryview(data)
    if dtype is None:
        raise ArgumentError(f"tensor {name!r}: bytes need dtype=", None, name)
    dtype = _types.named(dtype)
    address, nbytes, held = _types.memory_of(data if isinstance(data, bytes) or not view.readonly else bytes(view))
    if shape is None:
        shape = (nbytes // (_types.find(dtype) or (dtype, 1))[1],)
    return _Bytes(address, nbytes, dtype, shape, held)


def _bytes_of(name, value, dtype=None, shape=None):
    """What is written of a tensor: of numpy, of torch, a handle of this package, a buffer, what DLPack gives, or what numpy makes an
    array of."""
    dtype = _types.named(dtype)
    module = (type(value).__module__ or "").partition(".")[0]
    if module == "torch" or hasattr(value, "untyped_storage"):
        return _of_torch(name, value, dtype)
    if shape is not None or isinstance(value, (bytes, bytearray, memoryview)):
        return _of_buffer(name, value, dtype, shape)
    if module == "ztstream" and hasattr(value, "view_bits"):
        return _of_handle(name, value, dtype)
    import numpy
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        if "torch" in sys.modules:  # which has more types, and what is on other devices
            return _of_torch(name, sys.modules["torch"].from_dlpack(value), dtype)
        array = numpy.from_dlpack(value)
    else:
        try:
            array = value if isinstance(value, numpy.ma.MaskedArray) else numpy.asarray(value)
        except ValueError as error:  # lists in it differ in length
            raise ArgumentError(f"tensor {name!r}: numpy makes no array of it: {error}", None, name) from None
    if array.dtype.kind not in "biufcV":
        raise ArgumentError(f"tensor {name!r}: elements of {array.dtype} are no numbers", None, name)
    return _of_numpy(name, array, dtype, value if isinstance(value, numpy.ndarray) else None)


def _options(spec, compress, level, digest, min_gain, threads, memory, overwrite, sync, **remote):
    options = _c.WriterOptions()
    _c.c.writer_options_init(byref(options), sizeof(options))
    options.spec = _c.words("" if spec is None else spec, "spec") or b""
    options.digest = _c.words(digest, "digest")
    if compress not in _COMPRESS:
        raise ArgumentError(f"compress is None, 'zstd' or 'planes', not {compress!r}")
    options.compress, options.level, options.min_gain = _COMPRESS[compress], level, min_gain
    options.threads, options.memory_bytes = _types.count(threads, "threads", 1024), _types.count(memory, "memory", (1 << 64) - 1)
    options.overwrite, options.sync = bool(overwrite), bool(sync)
    _c.set_remote(options, **remote)
    return options


class Writer:
    """Writes one .zt file from tensors that come one after the other, in bounded memory. A context manager:

        with ztstream.Writer("big.zt", compress="planes") as out:
            for name, tensor in tensors():
                out.add(name, tensor)

    The file appears under its name when the block ends; an exception in it leaves nothing. After an error of the writer every
    call raises it again. One thread at a time uses it, of the process that made it.

    out: a path, or a binary file object with write.
    spec: "1.2", "2.0", "1.1" or "0.1". compress: None, "zstd" or "planes" (bytes of floats as planes, which compress best);
    level: of zstd; min_gain: what a tensor must shrink by, of 1, to be stored compressed.
    digest: "crc32c", "sha256", "xxh3" or "none"; the version's own where it is not given.
    threads: 0 is all that can run at once. memory: bytes for what is under way, 0 for the library's choice.
    overwrite: an existing file is replaced. sync: the file is on the disk when it is finished.
    attributes: of the file. profile, region, endpoint_url, no_sign_request, s3_headers: as of open(), for an s3:// URL.
    resume: an upload of the same content that ended early is continued, and one that fails can be.
    """

    def __init__(self, out, *, spec: str = "1.2", compress: Optional[str] = None, level: int = 1,
                 digest: Optional[str] = None, min_gain: float = 0.02, threads: int = 0, memory: int = 0,
                 overwrite: bool = False, sync: bool = True, attributes: Optional[Mapping[str, Any]] = None,
                 profile: Optional[str] = None, region: Optional[str] = None, endpoint_url: Optional[str] = None,
                 no_sign_request: bool = False, resume: bool = False, s3_headers: Optional[Mapping[str, str]] = None,
                 _any_name: bool = False):
        self._output = None
        if not _any_name and isinstance(out, (str, os.PathLike)) and str(os.fspath(out)).endswith(_OTHERS):
            raise ArgumentError(f"{os.fspath(out)}: .zt files are written, and this name ends like another format's",
                                os.fspath(out))
        options = _options(spec, compress, level, digest, min_gain, threads, memory, overwrite, sync, profile=profile,
                           region=region, endpoint_url=endpoint_url, no_sign_request=no_sign_request, s3_headers=s3_headers)
        options.resume = bool(resume)
        self._kept_bytes = 0
        self._output = Output(out)
        self._name = self._output.name
        try:
            self._output.open(options)
            if attributes:
                self.set(attributes)
        except BaseException:
            self.close()
            raise

    def _call(self, function, *arguments, nbytes=0, kept=None):
        if self._output is None:
            raise MisuseError(f"{self._name}: the writer is closed", self._name)
        self._output.call(function, *arguments, nbytes=nbytes, kept=kept)

    # ---- adding ----

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Sets attributes of the file: texts, numbers, bools, None, bytes, and lists and dicts of them."""
        self._call(_c.c.writer_set_json, _json.dumps(dict(attributes)))

    def add(self, name: str, array, *, dtype=None, shape: Optional[Sequence[int]] = None,
            attributes: Optional[Mapping[str, Any]] = None) -> None:
        """Adds a dense tensor. When this returns, the array may be changed and reused.

        array: of numpy or torch, of any strides, byte order and device; what numpy.asarray takes; a Tensor of an open file;
            or a buffer, with dtype= and shape=.
        dtype: the type in the file where it is not that of the array, of the same width: "bf16" for uint16.
        """
        data = _bytes_of(name, array, dtype, shape)
        self._put(name, data, attributes)
        if data.nbytes >= _SMALL:
            self._flush()

    def _put(self, name, data, attributes=None, hold=False):
        """Adds bytes, which are kept until they are written: copies of small ones, unless the caller holds them."""
        if attributes is not None:
            return self._add_object(name, "dense", data.shape, {"data": data}, attributes)
        if data.nbytes < _SMALL and not hold:
            data = data.copied()
        self._kept_bytes += data.nbytes if data.fresh else 0
        encoded, shape = _encoded(name), _dims(name, data.shape)
        self._call(_c.c.writer_add, encoded, len(encoded), data.dtype.encode(), shape, len(data.shape), data.address,
                   data.nbytes, nbytes=data.nbytes, kept=data)
        if self._kept_bytes > _KEPT:
            self._flush()

    def alias(self, name: str, of: str) -> None:
        """A second name for a tensor that was added before; both share their bytes."""
        encoded, first = _encoded(name), _encoded(of)
        self._call(_c.c.writer_alias, encoded, len(encoded), first, len(first))

    def _declare(self, name, format, shape, parts, attributes):
        """A zts_declaration, and what it points to."""
        table = (_c.Part * len(parts))()
        for slot, (role, dtype, address, nbytes) in zip(table, parts):
            slot.role, slot.dtype, slot.data, slot.bytes = _c.words(role, "a role"), _c.words(dtype, "a type"), address, nbytes
        dims, encoded = _dims(name, shape), _encoded(name)
        text = _json.dumps(dict(attributes)) if attributes else None
        declared = _c.Declaration(size=sizeof(_c.Declaration), name=encoded, name_bytes=len(encoded),
                                  format=_c.words(format, "a format"), shape=ctypes.cast(dims, c_void_p), rank=len(shape),
                                  attributes=text, parts=table, part_count=len(parts), part_size=sizeof(_c.Part))
        return declared, (table, dims, encoded, text)

    def add_object(self, name: str, format: str, shape: Sequence[int], parts: Mapping[str, Any], *,
                   attributes: Optional[Mapping[str, Any]] = None) -> None:
        """Adds an object of several parts: format "sparse_csr", "sparse_coo", "quantized_group", or one of your own with a
        version ("example.growing/1"). parts: arrays as of add(), by their roles, or pairs of an array and its dtype."""
        self._add_object(name, format, shape, parts, attributes)

    def _add_object(self, name, format, shape, parts, attributes):
        data = {}
        for role, value in parts.items():
            array, dtype = value if isinstance(value, tuple) else (value, None)
            data[role] = array if isinstance(array, _Bytes) else _bytes_of(name, array, dtype)
        declared, held = self._declare(name, format, tuple(shape),
                                       [(role, each.dtype, each.address, each.nbytes) for role, each in data.items()],
                                       attributes)
        self._call(_c.c.writer_add_object, byref(declared), nbytes=_LONG, kept=(data, held))
        self._flush()

    def begin(self, name: str, dtype, shape: Sequence[Optional[int]], *,
              attributes: Optional[Mapping[str, Any]] = None) -> "Stream":
        """Begins a dense tensor whose bytes come piece by piece: a Stream, which is a context manager.

        The first dimension may be None: it is what the bytes make it.
        """
        shape, dtype = tuple(shape), _types.named(dtype)
        open_end = bool(shape) and shape[0] is None
        given = ((0, *shape[1:]) if open_end else shape)
        declared, _ = self._declare(name, "dense", given, [("data", dtype, None, _c.UNKNOWN)], attributes)
        self._call(_c.c.writer_begin, byref(declared))
        return Stream(self, name, dtype, shape, open_end)

    # ---- ending ----

    def flush(self) -> None:
        """Waits until all that was added has been handed to the file."""
        self._flush()

    def _flush(self):
        self._call(_c.c.writer_flush, nbytes=_LONG)
        self._kept_bytes = 0

    def finish(self) -> None:
        """Writes the manifest and publishes the file. The writer is used up."""
        try:
            self._call(_c.c.writer_finish, nbytes=_LONG)
        finally:
            self.close()

    def close(self) -> None:
        """Drops the writer. The output of one that was not finished is removed."""
        output, self._output = self._output, None
        if output is not None:
            output.end()

    def __enter__(self) -> "Writer":
        if self._output is None:
            raise MisuseError(f"{self._name}: the writer is closed", self._name)
        return self

    def __exit__(self, kind, *_) -> None:
        if self._output is None:
            return
        if kind is None:
            self.finish()
        else:
            self.close()

    def __reduce__(self):
        raise TypeError("a writer cannot be pickled")


class Stream:
    """A tensor whose bytes come piece by piece. Made by Writer.begin."""

    def __init__(self, writer, name, dtype, shape, open_end):
        self._writer, self._name, self._dtype = writer, name, dtype
        self._shape, self._open_end, self._bytes, self._done = shape, open_end, 0, False

    def write(self, data) -> None:
        """Appends a buffer or an array, which is copied."""
        piece = _bytes_of(self._name, data, self._dtype)
        writer = self._writer
        writer._call(_c.c.writer_append, piece.address, piece.nbytes, nbytes=piece.nbytes)
        self._bytes += piece.nbytes

    def close(self) -> None:
        """Ends the tensor; its size must agree with its shape."""
        if self._done:
            return
        writer = self._writer
        if self._open_end:
            row = _types.find(self._dtype)[1]
            for each in self._shape[1:]:
                row *= each
            rows, rest = divmod(self._bytes, row) if row else (0, self._bytes)
            if rest:
                raise ArgumentError(f"tensor {self._name!r}: {self._bytes} bytes are no whole number of rows; write the rest of the last",
                                    None, self._name)
            self._done = True
            writer._call(_c.c.writer_set_leading_dimension, rows)
        self._done = True
        writer._call(_c.c.writer_end)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            self.close()


def save_file(tensors: Mapping[str, Any], path, *, attributes: Optional[Mapping[str, Any]] = None, background: bool = False,
              **options) -> Optional["Pending"]:
    """Writes a dict of tensors as a .zt file, which appears under its name when it is whole.

    tensors: arrays as of Writer.add. Of a mapping that makes each when it is asked for, few are in memory at once. A state of
        training may be nested: dicts, lists and tuples, also of numbers, texts, flags and None. load() gives it back; its tensors
        have names as "optimizer.state.0.exp_avg", and its plain values are attributes by such names.
        Names that have the same memory, type and shape share their bytes in the file: tied weights.
    attributes: of the file.
    background: returns when the tensors are copied, and writes them meanwhile; wait() of what it returns raises what went wrong.
        One file at a time is written so: another call waits, and there is one copy in memory.
    The rest are options of Writer: compress="planes", overwrite=True, ...
    """
    return write_file(tensors, path, attributes, options, any_name=False, background=background)


def _entries(flat, lazy):
    """(name, bytes, None) of each tensor, or (name, None, another name) where it has the memory of that."""
    first: Dict[Any, Any] = {}
    for name, value in flat.items():
        data = _bytes_of(name, value)
        if lazy and data.owner is value:  # which the mapping may have made for this call
            data.fresh = True
        key = data.identity and (*data.identity, data.dtype)
        known = first.get(key)
        if known is not None and known[1]() is not None:
            yield name, None, known[0]
            continue
        if key is not None:
            first[key] = name, weakref.ref(data.owner)
        yield name, data, None
        del value, data


def write_file(tensors, path, attributes, options, any_name=True, background=False):
    """save_file, also for names that end like another format's."""
    if not hasattr(tensors, "items") and not isinstance(tensors, (list, tuple)):
        raise ArgumentError("tensors are a dict of names and arrays"
                            + ("; that of a module is its state_dict()" if hasattr(tensors, "state_dict") else ""))
    attributes = dict(attributes or {})
    _json.dumps(attributes)  # refused before anything is written
    attributes = copy.deepcopy(attributes)
    flat = Flat(tensors)
    entries = _entries(flat, getattr(type(tensors), "items", None) not in (dict.items, collections.OrderedDict.items, None))

    def write(entries):
        with Writer(path, _any_name=any_name, **options) as out:
            for name, data, first in entries:
                if first is not None:
                    out.alias(name, first)
                else:
                    out._put(name, data, hold=True)
                del data
            described = flat.attributes(attributes)
            if described:
                out.set(described)

    if background:
        return Pending(path, entries, write)
    write(entries)
    return None


class _Failure:
    """Why a file was not written, which somebody has to be told. (Pending has no __del__ itself: an interrupt in one would be lost.)"""

    def __init__(self, path, error):
        self.path, self.error, self.told = path, error, False

    def __del__(self):
        if not self.told:
            warnings.warn(f"{self.path} was not written, and nobody waited for it: {self.error}", RuntimeWarning)


class Pending:
    """A file that is written in the background: see save_file."""

    _line: Dict["Pending", int] = {}  # those that have copies, or wait for that, in order, with the thread that takes them

    def __init__(self, path, entries, write):
        self.path, self._pid, self._failure, self._call = path, os.getpid(), None, None

        def taken():
            while copies:
                yield copies.popleft()

        def work():
            try:
                write(taken())
            except BaseException as error:
                self._failure = _Failure(path, error.with_traceback(None))
            Pending._line.pop(self, None)

        try:
            Pending._line[self] = threading.get_ident()
            self._wait_in_line()
            copies = collections.deque((name, data if data is None or data.own else data.copied(), first) for name, data, first in entries)
            self._call = begun(work)
        except BaseException:
            Pending._line.pop(self, None)
            raise

    def _wait_in_line(self):
        """Until those that came before have ended, of this process; one that makes this one while it copies has to go on."""
        for each, thread in list(Pending._line.items()):
            if each is self:
                return
            while each._pid == self._pid:
                if each._call is not None and not each._call.ended:
                    each._call.wait(0.1)
                elif each._call is None and each in Pending._line and thread != threading.get_ident():
                    time.sleep(0.01)
                else:
                    break

    def done(self) -> bool:
        """Whether it has ended: written, or failed."""
        if self._pid != os.getpid():
            raise MisuseError(f"{self.path}: it is being written by the process that began it, which alone can wait for it",
                              str(self.path))
        return self._call.ended

    def _joined(self, timeout):
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done() and (end is None or time.monotonic() < end):  # in steps, between which Ctrl-C is seen
            self._call.wait(0.1 if end is None else min(0.1, max(0, end - time.monotonic())))

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the file is there, or raises why it is not. False if that takes longer."""
        self._joined(timeout)
        if not self.done():
            return False
        if self._failure is not None:
            self._failure.told = True
            raise self._failure.error.with_traceback(None)
        return True

    def __enter__(self) -> "Pending":
        return self

    def __exit__(self, *_) -> None:
        self.wait()

    def __repr__(self):
        if self._pid != os.getpid():
            return f"<Pending {str(self.path)!r} of another process>"
        state = "being written" if not self.done() else "written" if self._failure is None else "failed"
        return f"<Pending {str(self.path)!r} {state}>"


def save(tensors: Mapping[str, Any], *, attributes: Optional[Mapping[str, Any]] = None, **options) -> bytes:
    """The bytes of the .zt file that save_file writes."""
    import io
    out = io.BytesIO()
    save_file(tensors, out, attributes=attributes, **options)
    return out.getvalue()
