"""Handles: Tensor, a named tensor of an open file, and Part, the bytes of one or of several parts of one."""
import ctypes
import operator
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

from . import _c, _ring, _types
from ._errors import ArgumentError, InputOutputError, MisuseError, UnsupportedError
from ._slices import Numpy, Torch, sliced

if TYPE_CHECKING:
    from ._file import File

_WORTH_PAGES = 1 << 20  # bytes from which a mapping costs less than a copy

# Arrays of so many dimensions.
SHAPES = [ctypes.c_uint64 * rank for rank in range(65)]


class Report(NamedTuple):
    """What verification found.

    problems: a line for each thing that is wrong, with (tensor, component) before it.
    objects, components: how many were looked at.
    digests: how many digests were compared; unhashed: components whose content no digest was compared with.
    undecodable: objects or components of an unknown layout, type or encoding; unchecked: objects with a rule that takes too much
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

    def __init__(self, file: "File", object: int, component: int, row=None):
        self._file, self._object, self._number = file, object, component
        fields = file._component((row or file._object(object))[7] + component)
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
        """The numpy.dtype that numpy() gives. UnsupportedError for bf16 and f8 where ml_dtypes is not installed."""
        return self._named(_types.numpy_dtype)

    def _named(self, of):
        """A type of numpy or torch for that of the file. An error has names."""
        try:
            return of(self.dtype)
        except UnsupportedError as error:
            raise self._unsupported(error) from None

    def _unsupported(self, why):
        return UnsupportedError(f"{self._file._name}: tensor {self._name!r}: {why}", self._file._name, self._name)

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
        path = self._file._text(self._path)
        root, of, shard = path.rpartition(": shard ")  # of zTensor 2.0, which is looked for beside its root by this name first
        beside = f"{os.path.splitext(root)[0]}-{shard}.zt"
        return beside if of and os.path.exists(beside) else path, self._offset, self._length

    @property
    def shape(self) -> Tuple[int, ...]:
        """In elements."""
        return (self.nbytes // _types.width_of(self.dtype, self.storage),)

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
            raise self._unsupported(self._file._text(self._unreadable))

    @property
    def _name(self):
        return self._file._object_name(self._object)

    def _pages(self, places=None):
        """(array of bytes of the mapped file, offset in it), or None where the bytes have to be read. places: see File._mapped."""
        self._check()
        return self._file._mapped(self, self._file._places if places is None else places) if self._mappable and self._bytes else None

    def read_into(self, out, offset: int = 0, threads: Optional[int] = None) -> None:
        """Fills a writable buffer, an array of numpy or a tensor of torch with decoded bytes from byte `offset` on, by many
        threads. Its elements are those of the tensor, or bytes."""
        wanted = self._filled(out, offset)
        if wanted[3]:
            self._file._read([wanted], threads)

    def _filled(self, out, offset):
        """What File._read takes to fill `out`."""
        self._check()
        offset = operator.index(offset)

        def wrong(fact):
            return ArgumentError(fact, self._file._name, self._name)

        try:
            address, nbytes, holder = _types.memory_of(out, True)
        except ArgumentError as error:
            raise wrong(f"what is filled with {self._name!r}: {error}") from None
        given = _types.type_in(out)
        if not _types.holds(given, self.dtype):
            raise wrong(f"what is filled with {self._name!r} has elements of {given}, and the tensor those of {self.dtype}; give such, or "
                        "bytes")
        if offset < 0 or offset + nbytes > self._bytes:
            raise wrong(f"bytes {offset} to {offset + nbytes} are none of {self._name!r}, which has {self._bytes}")
        if given != "u8" and offset % _types.find(self.dtype)[1]:
            raise wrong(f"no element of {self._name!r} begins at byte {offset}")
        return self._object, self._number, offset, nbytes, address, holder

    def buffer(self) -> memoryview:
        """The decoded bytes: of a raw tensor those in the file's pages, without a copy and read-only; else decoded here."""
        pages = self._pages()
        if pages is not None:
            array, at = pages
            return _types.read_only(array)[at:at + self._bytes]
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
        self._check()
        return self._array(self.numpy_dtype, copy)

    def view_bits(self, copy: bool = False):
        """The same with the bits of each element as an unsigned integer, whatever its type is: uint16 for bf16."""
        self._check()
        return self._array(_types.bits_dtype(_types.width_of(self.dtype, self.storage)), copy)

    def _array(self, dtype, copy):
        import numpy
        shape, pages = self.shape, None if copy else self._pages()
        if pages is not None:
            array, at = pages
            return numpy.frombuffer(_types.read_only(array), dtype, self._bytes // dtype.itemsize, at).reshape(shape)
        out = numpy.empty(shape, dtype)
        if self._bytes:
            self._file._read([(self._object, self._number, 0, self._bytes, out.ctypes.data, out)], None)
        return out

    def torch(self, device="cpu", copy: bool = False, *, index=...):
        """All of it as a torch tensor on a device, or the part that an index asks for: index=numpy.s_[:, 0:64].

        On the CPU a large raw tensor is not read but lies in pages of the file, which are copied when they are written to: neither
        the file changes nor what another call has given. copy=True: memory of one's own.
        """
        self._check()
        if index is not Ellipsis:
            return sliced(self._file, {None: (self, index)}, Torch(), copy)[None].to(device)
        return self._torch({}, copy) if str(device) == "cpu" else _ring.one(self, device)

    def _torch(self, places, copy):
        import torch
        shape, dtype = self.shape, self._named(_types.torch_dtype)
        pages = None
        if not copy and self._bytes >= _WORTH_PAGES:
            try:
                pages = self._pages(places)
            except InputOutputError:  # there are no more mappings to be had
                pass
        if pages is not None and (pages[1] + ctypes.addressof(pages[0])) % dtype.itemsize == 0:
            return torch.frombuffer(pages[0], dtype=dtype, count=self._bytes // dtype.itemsize, offset=pages[1]).reshape(shape)
        out = torch.empty(shape, dtype=dtype, device="cpu")
        if self._bytes:
            self._file._read([(self._object, self._number, 0, self._bytes, out.data_ptr(), out)], None)
        return out

    def advise(self, needed: bool = True) -> None:
        """Tells the kernel that the bytes will be read soon, or not again."""
        self._check()
        _c.check(_c.c.reader_advise(self._file._pointer(), self._object, self._number, bool(needed)))

    def __getitem__(self, index):
        """A part of it as a numpy array, by numpy's rules. Of what is compressed only those rows are decoded that are asked for; a
        raw tensor is not read at all but lies in the file's pages."""
        self._check()
        return sliced(self._file, {None: (self, index)}, Numpy())[None]

    def __iter__(self):
        if not self.shape:
            raise TypeError("a scalar has no rows")
        return iter(self.numpy())

    def __dlpack__(self, **options):
        torch = sys.modules.get("torch")
        return (self.numpy(copy=True) if torch is None else self.torch()).__dlpack__(**options)

    def __dlpack_device__(self):
        return 1, 0  # memory of the CPU

    def item(self):
        """The one element, as a number of Python."""
        return self.numpy().item()

    def tolist(self):
        """All of it, as lists of numbers of Python."""
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return len(self) > 0 if self.shape else bool(self.item())

    def __array__(self, dtype=None, copy=None):
        out = self.numpy(copy=bool(copy))
        return out if dtype is None else out.astype(dtype, copy=False)

    def __reduce__(self):
        raise TypeError("a part is not pickled; its tensor is, and its file")

    def __repr__(self):
        return f"<{type(self).__name__} {self._name!r} {self.role} {self.dtype} {self.encoding}>"


class Tensor(Part):
    """A named tensor of a file. A handle: nothing is read before it is asked for.

    What is not dense (sparse, quantized, blocks of GGUF) has its bytes in `parts`.
    """

    def __init__(self, file: "File", object: int, row=None):
        row = row or file._object(object)
        self._format, self._type, self._shape_at, self._rank, self._components = row[2:7]
        if self._components:
            super().__init__(file, object, 0, row)
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
        shape = tuple(SHAPES[self._rank].from_address(self._shape_at)) if self._rank else ()
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
        """The numpy.dtype that numpy() gives. UnsupportedError for bf16 and f8 where ml_dtypes is not installed."""
        self._check_dense()
        return super().numpy_dtype

    def _check_dense(self):
        if not self.is_dense:
            raise self._unsupported(f"it is not a dense tensor but {self.format}; its bytes are in .parts: {', '.join(self.parts)}"
                                    + ("; convert(..., dequantize='f32') makes numbers of it"
                                       if self.format.startswith("gguf.") else ""))

    def _check(self):
        super()._check()
        self._check_dense()

    def __reduce__(self):
        return operator.getitem, (self._file, self.name)  # the rest are places in memory

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
