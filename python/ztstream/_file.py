"""Open inputs: File, a mapping of names to Tensors, which are handles: nothing is read before it is asked for."""
import ctypes
import difflib
import fnmatch
import itertools
import os
import re
import struct
from ctypes import byref, c_size_t, c_ubyte, c_uint64, c_void_p, sizeof
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _c, _json, _ring, _types
from ._errors import ArgumentError, MisuseError, NotFoundError
from ._notebook import page_of
from ._part import SHAPES, Part, Report, Tensor
from ._reader import as_written, columns, is_url, open_buffer, open_object, open_paths, opened_by_fsspec, options_of, shown
from ._slices import Numpy, Torch, sliced
from ._state import restored

_OBJECT = struct.Struct("@PNPPPNNNP")
_COMPONENT = struct.Struct("@N6P3QPi4x")
_RANGE = struct.Struct("@NNQQP")
_PATH = 8  # in a row of objects: of a file of the model
_LONG = 4 << 20  # bytes from which a read is one that Ctrl-C should end
_FEW = 100000  # names among which near ones are looked for
_MANY = 64  # handles after which those of all tensors are asked for at once


def open(path, *more, threads: int = 0, format: Optional[str] = None, npy_void=None,
         follow_links: bool = False, keep_sparse: bool = False, profile: Optional[str] = None, region: Optional[str] = None,
         endpoint_url: Optional[str] = None, no_sign_request: bool = False, s3_headers: Optional[Mapping[str, str]] = None,
         dequantize: Optional[str] = None,
         variant: Optional[str] = None, base: Optional[Sequence] = ()) -> "File":
    """Opens a checkpoint of any format for reading. Headers are read and checked, and no data.

    path: a file (.zt, .safetensors, .gguf, .pt, .npy, .npz, .onnx, ...), the index or the folder of a checkpoint in several
        files, a URL of one ("https://...", "s3://bucket/key", "hf://owner/name"; needs libcurl), a bytes-like object, which is the
        content of a file, or a binary file object that can seek. fsspec's files, and URLs of other kinds where fsspec is installed.
        Several paths are one name space; a name in two of them is a FormatError.
    threads: how many read and decode; 0 is all that can run at once.
    format: "zt", "safetensors", ...; by content where it is not given.
    variant: of a folder with several, the one that is read ("fp16"); without it the files that have none.
    npy_void: what the elements of numpy's void arrays are ("bf16"); without it they are refused.
    follow_links: files of a folder may be symbolic links that lead out of it; those of the Hugging Face cache may anyway.
    keep_sparse: a scipy sparse archive as the arrays that it holds.
    profile, region, endpoint_url, no_sign_request: who asks s3://, and where it is; what is not given is as the environment says.
    s3_headers: what a bucket demands, {"x-amz-request-payer": "requester"}.
    dequantize: "f32", "f16" or "bf16": quantized tensors (FP8, FP4, GPTQ, AWQ, bitsandbytes, ...) are numbers of that type, and their
        scales are left out. GGUF blocks stay.
    base: the bases of a delta, as paths, and of the deltas on which it stands; those that lie beside it are found.
        None: it is in memory alone, for File.update_.
    """
    options = {"threads": threads, "format": format, "variant": variant, "npy_void": _types.named(npy_void), "follow_links": follow_links,
               "keep_sparse": keep_sparse, "profile": profile, "region": region, "endpoint_url": endpoint_url,
               "no_sign_request": no_sign_request, "s3_headers": s3_headers, "dequantize": _types.named(dequantize),
               "base": [base] if isinstance(base, (str, os.PathLike)) else base if base is None else list(base)}
    return File((path, *more), options)


class File(Mapping[str, Tensor]):
    """An open checkpoint: a mapping of names to Tensors, in the order of the file. Made by open(); a context manager.

    Files that go with a model, such as config.json, are no tensors: see files().
    Closing it, or leaving the context, ends the handles; arrays that were made stay. Any thread may use it, and so may a
    forked child. It pickles as its paths and is opened again where it is unpickled.
    """

    def __init__(self, sources: Sequence, options: Dict[str, Any]):
        options = dict(options)
        self._threads = _types.count(options.pop("threads", 0) or 0, "threads", 1024)
        self._sources, self._given = tuple(sources), options
        opened = [opened_by_fsspec(source) for source in sources]
        self._held = self._open(opened, options_of(**options) if any(options.values()) or options.get("base", ()) is None else None)
        self._dequantized: Dict[str, "File"] = {}
        self._texts: Dict[int, str] = {}
        self._names: Optional[List[str]] = None
        self._order: Optional[Sequence[int]] = None
        self._places: Dict[int, Any] = {}  # of a mapped file, by the address of its path
        self._table: Optional[bytearray] = None  # of all objects, once many were asked for
        self._parts: Optional[bytearray] = None  # of all components, likewise
        self._asked = 0

    def _open(self, sources, options):
        if all(isinstance(source, (str, os.PathLike)) for source in sources):
            self._name = shown(os.fspath(sources[0]))
            return open_paths(sources, options)
        if len(sources) != 1:
            raise ArgumentError("several inputs are given as paths")
        source = sources[0]
        self._name = "memory"
        if isinstance(source, bytes) and len(source) < 4096 and b"\0" not in source and os.path.exists(source):
            raise ArgumentError(f"bytes are the content of a file; the path is {os.fsdecode(source)!r}")
        if hasattr(source, "read") and hasattr(source, "seek"):
            self._name = str(getattr(source, "name", "file object"))
            return open_object(source, options)
        try:
            memoryview(source)
        except TypeError:
            raise TypeError(f"what is opened is a path, a buffer or a file object, not {type(source).__name__}") from None
        return open_buffer(source, options)

    # ---- tables ----

    def _objects_table(self):
        if self._table is None:
            self._table = self._filled(_c.c.reader_objects, _c.c.reader_count(self._pointer()), _OBJECT.size)
        return self._table

    def _components_table(self):
        if self._parts is None:
            self._parts = self._filled(_c.c.reader_components, _c.c.reader_component_count(self._pointer()), _COMPONENT.size)
        return self._parts

    def _filled(self, function, count, size):
        """`count` structs. No array of ctypes: a type would be made for each size."""
        table = bytearray(count * size)
        if count:
            held = self._pointer()
            held.ask(function, held, 0, count, byref(c_ubyte.from_buffer(table)), size)
        return table

    def _object(self, index):
        if self._table is None and self._asked < _MANY:
            self._asked += 1
            row, held = _c.Object(), self._pointer()
            held.ask(_c.c.reader_objects, held, index, 1, byref(row), _OBJECT.size)
            return _OBJECT.unpack(row)
        return _OBJECT.unpack_from(self._objects_table(), index * _OBJECT.size)

    def _component(self, index):
        held = self._pointer()
        if self._parts is None and self._asked < _MANY:
            row = _c.Component()
            held.ask(_c.c.reader_components, held, index, 1, byref(row), _COMPONENT.size)
            fields = list(_COMPONENT.unpack(row))
        else:
            fields = list(_COMPONENT.unpack_from(self._components_table(), index * _COMPONENT.size))
        if held.raised:  # the library has taken it for a tensor that cannot be read
            raise held.raised.pop()
        if fields[10] and not _c.text(fields[10]):
            fields[10] = None
        del held
        return fields

    def _object_name(self, index):
        held = self._pointer()  # another thread may close the file: what lies in the reader stays until this returns
        fields = self._object(index)
        name = _c.name_at(fields[0], fields[1])
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
        text = _c.Handle(_c.c.free)
        _c.check(_c.c.reader_attributes(self._pointer(), object, text.out))
        return _json.loads(ctypes.string_at(text._as_parameter_).decode("utf-8"))

    # ---- bytes ----

    def _mapped(self, part, places):
        """The pages of the file in which a part lies, as an array of bytes, and where the part begins in it.

        places: those of files that are mapped already: self._places, which are written to by nobody, or those of one call, which
        share their pages with no other.
        """
        place = places.get(part._path)
        if place is None:
            data, size, held = c_void_p(), c_uint64(), self._pointer()
            where = held, part._object, part._number
            if places is not self._places:
                held = _c.Handle(_c.c.pages_free)
                _c.check(_c.c.reader_map_pages(*where, held.out, byref(data), byref(size)))
            else:
                _c.check(_c.c.reader_map(*where, byref(data), byref(size)))
            place = places[part._path] = _c.pages_at(data.value - part._offset, held)
        return place, part._offset

    def _read(self, wanted, threads, function="reader_read_many"):
        """Reads (object, component, offset, bytes, address, what has the memory) with one call."""
        ranges = b"".join(_RANGE.pack(*each[:5]) for each in wanted)
        total = sum(each[3] for each in wanted)
        watched = _c.Watched() if total >= _LONG else None
        call = _c.new_call(self._threads if threads is None else _types.count(threads, "threads", 1024), watched)
        held = self._pointer()
        held.ask(getattr(_c.c, function), held, ranges, len(wanted), _RANGE.size, byref(call), watched=watched,
                 long=watched is not None, kept=wanted)

    def _verify(self, object, threads):
        problems = []
        watched = _c.Watched()

        def add(name, size, component, message, _):
            called = ctypes.string_at(name, size).decode("utf-8", "replace")
            problems.append((called, (component or b"").decode("utf-8", "replace"), message.decode("utf-8", "replace")))

        report, call = _c.VerifyReport(), _c.new_call(_types.count(threads, "threads", 1024), watched)

        def verify(*arguments):
            status = _c.c.reader_verify(*arguments)
            return 0 if problems or status == _c.UNVERIFIED else status

        held = self._pointer()
        held.ask(verify, held, object, _c.Problem(add), None, byref(report), sizeof(report), byref(call), watched=watched,
                 long=True)
        return Report(problems, report.objects, report.components, report.digests, report.unhashed, report.undecodable,
                      report.unchecked)

    # ---- the mapping ----

    def __getitem__(self, name: str) -> Tensor:
        index, row = self._find(name)
        if index is None:
            raise self._missing(name)
        return Tensor(self, index, row)

    def _missing(self, name):
        """The error for a name that is not there, with names that may be meant."""
        near: List[str] = []
        if isinstance(name, str) and name and len(self) <= _FEW:
            begin = (each for each in self if each.startswith(name))
            near = list(itertools.islice(begin, 3)) or difflib.get_close_matches(name, list(self), 1)
        words = f"; near it: {', '.join(map(repr, near))}" if near else ""
        return NotFoundError(f"{self._name}: there is no tensor {name!r}{words}", self._name, name)

    def _find(self, name):
        """(number, row) of a tensor, or None twice."""
        self._check()
        if not isinstance(name, str):
            return None, None
        encoded, index = _types.encoded(name), c_size_t()
        if encoded is None:
            return None, None
        status = _c.c.reader_find(self._pointer(), encoded, len(encoded), byref(index))
        if status == 9:
            return None, None
        _c.check(status)
        row = self._object(index.value)
        return (None, None) if row[_PATH] else (index.value, row)

    def __contains__(self, name) -> bool:
        return self._find(name)[0] is not None

    def _in_order(self):
        """The numbers of all objects. Manifests of .zt files are sorted by name; here they are as written, as their bytes lie."""
        if self._order is None:
            first, = columns(self._objects_table(), _OBJECT, 7)
            files, offsets = columns(self._components_table(), _COMPONENT, 6, 7)
            self._order = range(len(first)) if self.format != "zt" else as_written(
                first, files, offsets, self._text if len(self._sources) == 1 else None)
        return self._order

    def _all(self):
        """(number, row) of each object: of files of the model too."""
        self._check()
        rows = list(_OBJECT.iter_unpack(self._objects_table()))
        return [(i, rows[i]) for i in self._in_order()]

    def _all_names(self):
        held = self._pointer()
        if self._names is None:
            name_at = _c.name_at
            names, sizes, paths = columns(self._objects_table(), _OBJECT, 0, 1, _PATH)
            self._names = [name_at(names[i], sizes[i]) for i in self._in_order() if not paths[i]]
        del held
        return self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_names())

    def __len__(self) -> int:
        return len(self._all_names())

    def values(self) -> List[Tensor]:  # by their numbers, which takes no search
        """All tensors, as handles."""
        return [Tensor(self, i, row) for i, row in self._all() if not row[_PATH]]

    def items(self) -> List[Tuple[str, Tensor]]:
        """All names with their tensors."""
        return list(zip(self._all_names(), self.values()))

    def files(self) -> Dict[str, Part]:
        """The files that go with the model, by their paths: files()["config.json"].tobytes(). Of a folder those in it, of a
        .zt file those that were converted with the weights."""
        held = self._pointer()
        found = {_c.text(row[_PATH]): Part(self, i, 0, row) for i, row in self._all() if row[_PATH]}
        del held
        return found

    # ---- what the file says of itself ----

    @property
    def attributes(self) -> Dict[str, Any]:
        """Of the file: safetensors' metadata, GGUF's keys, what a training state holds beside tensors."""
        held = self._attributes(_c.FILE)
        held.pop("ztstream.folder", None)  # headers of a folder's files, for the way back to it
        return held

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

    def _numbers(self, dequantize):
        """The same inputs with numbers in place of quantized tensors."""
        self._check()
        if dequantize not in self._dequantized:
            self._dequantized[dequantize] = File(self._sources, {**self._given, "threads": self._threads, "dequantize": dequantize})
        return self._dequantized[dequantize]

    def _matched(self, names):
        """The names that are meant, each once: names, "glob:" and shell patterns, and what re.compile makes; all for None."""
        if names is None:
            return self._all_names()
        if isinstance(names, (str, re.Pattern)):  # the letters of a text would be taken for names
            raise ArgumentError(f"names are a list: [{names!r}]" + f"; one tensor is file[{names!r}]" * isinstance(names, str))
        found: Dict[str, None] = {}
        for name in names:
            if isinstance(name, re.Pattern):
                matching = list(filter(name.search, self._all_names()))
            elif isinstance(name, str) and name.startswith("glob:") and name not in self:
                matching = fnmatch.filter(self._all_names(), name[5:])
            else:
                matching = [name]
            if not matching:
                raise NotFoundError(f"{self._name}: no tensor has a name that {name!r} matches", self._name)
            found.update(dict.fromkeys(matching))
        return list(found)

    def _chosen(self, names):
        if names is None:
            return self.values()
        return [self[name] for name in self._matched(names)]

    def _entries(self, names):
        """(name, row of the object, its number) of each; many names take no search for each."""
        if names is None:
            rows = ((i, row) for i, row in self._all() if not row[_PATH])
            return [(name, row, i) for name, (i, row) in zip(self._all_names(), rows)]
        found = [(name, *self._find(name)) for name in self._matched(names)]
        missing = [name for name, index, _ in found if index is None]
        if missing:
            raise self._missing(missing[0])
        return [(name, row, index) for name, index, row in found]

    def _many(self, names, copy, types, mapped, made, places):
        """{name: array} with one read of all that has to be read; parts of what is not dense as {role: array}.

        types(dtype) is (the array's type, bytes of an element), mapped(pages, type, count, offset, shape) an array in
        pages, made(shape, type) one with memory and the address of that. places: see _mapped.
        """
        out: Dict[str, Any] = {}
        wanted: List[Any] = []
        known: Dict[Any, Any] = {}  # types, by the addresses of their names
        shared: Dict[Any, Any] = {}  # memory for names that share their bytes in the file
        held = self._pointer()
        unpack, table = _COMPONENT.unpack_from, self._components_table()

        def array(part, shape):
            """Of a part by its handle."""
            part._check()
            kind, width = part._named(types)
            pages = None if copy else part._pages(places)
            if pages is not None and (ctypes.addressof(pages[0]) + pages[1]) % width == 0:
                return mapped(pages[0], kind, part._bytes // width, pages[1], shape)
            place = part._path, part._offset, part._length, kind, shape
            tied = not copy and part._bytes and part._offset != _c.UNKNOWN
            if tied and place in shared:
                return shared[place]
            memory, address = made(shape, kind)
            if tied:
                shared[place] = memory
            if part._bytes:
                wanted.append((part._object, part._number, 0, part._bytes, address, memory))
            return memory

        for name, (_, _, form, _, shape_at, rank, parts, first, _), index in self._entries(names):
            if self._text(form) != "dense" or parts != 1:
                out[name] = {role: array(part, part.shape) for role, part in Tensor(self, index).parts.items()}
                continue
            (_, _, dtype, _, _, _, path, offset, _, size, unreadable, mappable) = unpack(table, first * _COMPONENT.size)
            place = places.get(path) if mappable and size and not copy else None
            if place is None or unreadable and _c.text(unreadable):
                tensor = Tensor(self, index)
                out[name] = array(tensor, tensor.shape)
                continue
            # The same for what most tensors are, a million times: dense, raw, in a file that is mapped.
            kind = known.get(dtype)
            if kind is None:
                kind = known[dtype] = Tensor(self, index)._named(types)
            shape = tuple(SHAPES[rank].from_address(shape_at)) if rank else ()
            if offset % kind[1]:
                out[name] = array(Tensor(self, index), shape)
            else:
                out[name] = mapped(place, kind[0], size // kind[1], offset, shape)
        if wanted:
            self._read(wanted, None)
        del held
        return out

    def numpy(self, names: Union[Iterable[Any], Mapping[str, Any], None] = None, *, copy: bool = False,
              dequantize: Optional[str] = None) -> Dict[str, Any]:
        """Tensors as numpy arrays, decoded by all threads with one call.

        names: which; all without it. "glob:layers.0.*" and re.compile("norm|bias") are those whose names match. {name: index} gives
            parts: {"w": numpy.s_[:, 0:64]}, of which little more is read.
        copy=False: raw tensors lie in the file's pages and are read-only, see Part.numpy.
        A tensor that is not dense is a dict of its parts by their roles. dequantize: as of open().
        """
        if dequantize:
            return self._numbers(dequantize).numpy(names, copy=copy)
        import numpy
        if isinstance(names, Mapping):
            return sliced(self, {name: (self[name], index) for name, index in names.items()}, Numpy(), copy)

        def types(dtype):
            kind = _types.numpy_dtype(dtype)
            return kind, kind.itemsize

        def mapped(pages, kind, count, offset, shape):
            return numpy.frombuffer(_types.read_only(pages), kind, count, offset).reshape(shape)

        def made(shape, kind):
            out = numpy.empty(shape, kind)
            return out, out.ctypes.data

        return self._many(names, copy, types, mapped, made, self._places)

    def torch(self, names: Union[Iterable[Any], Mapping[str, Any], None] = None, *, device="cpu", dtype=None,
              out: Optional[Mapping[str, Any]] = None, slab: bool = False, copy: bool = False, pin: bool = False,
              dequantize: Optional[str] = None, progress: Optional[Callable[[int, int], Any]] = None) -> Dict[str, Any]:
        """Tensors as torch tensors on a device: the state_dict of a model. Decoded by all threads.

        names: which; all, or those of `out`, without it. See numpy(). copy=False: on the CPU raw tensors lie in the file's pages, see
            Part.torch. pin=True: what is on the CPU lies in pinned memory.
        device: to others than the CPU it goes through three pinned buffers of 64 MiB, whatever the model has.
        dtype: of what is f64, f32, f16 or bf16 in the file, as Tensor.to makes it. f8 is refused: see dequantize. Others stay.
        out: tensors that are filled, by name, on any devices: model.state_dict(). Shapes have to agree.
        slab: all lie in one allocation, which stays while one of them does.
        dequantize: as of open(). progress: a function of the bytes that were read and of those of all; what it raises ends this.
        A tensor that is not dense is a dict of its parts by their roles.
        """
        if dequantize:
            return self._numbers(dequantize).torch(names, device=device, dtype=dtype, out=out, slab=slab, copy=copy, pin=pin,
                                                   progress=progress)
        import torch
        if str(device) != "cpu" or slab or any(each is not None for each in (dtype, out, progress)):
            return _ring.load(self, names, device, dtype, out, slab, progress)

        def types(dtype):
            kind = _types.torch_dtype(dtype)
            return kind, torch.empty(0, dtype=kind).element_size()

        def mapped(pages, kind, count, offset, shape):
            out = torch.frombuffer(pages, dtype=kind, count=count, offset=offset)
            return out if len(shape) == 1 else out.reshape(shape)

        def made(shape, kind):
            out = torch.empty(shape, dtype=kind, device="cpu", pin_memory=pin)
            return out, out.data_ptr()

        if isinstance(names, Mapping):
            return sliced(self, {name: (self[name], index) for name, index in names.items()}, Torch(), copy)
        return self._many(names, copy or pin, types, mapped, made, {})

    def read(self, names: Optional[Iterable[str]] = None, *, out: Mapping[str, Any],
             threads: Optional[int] = None, dequantize: Optional[str] = None) -> None:
        """Decodes dense tensors into buffers of the caller, with one call by all threads.

        out: a writable contiguous buffer, an array of numpy or a CPU tensor of torch for each name, of the tensor's nbytes. Its
            elements are those of the tensor, or bytes; unsigned integers take the bits of a type that numpy lacks.
        names: those of `out` without it. dequantize: as of open().
        """
        if dequantize:
            return self._numbers(dequantize).read(names, out=out, threads=threads)
        wanted = []
        for name in self._matched(out if names is None else names):
            tensor = self[name]
            if name not in out:
                raise ArgumentError(f"nothing is there for {name!r}", None, name)
            wanted.append(tensor._filled(out[name], 0))
            if wanted[-1][3] != tensor._bytes:
                raise ArgumentError(f"what is filled with {name!r} has {wanted[-1][3]} bytes, not {tensor._bytes}", None, name)
        wanted = [each for each in wanted if each[3]]
        if wanted:
            self._read(wanted, threads)

    def update_(self, tensors: Mapping[str, Any], *, threads: Optional[int] = None) -> None:
        """Changes a state_dict in place that holds the base of this delta (docs/DELTA.md), or another version of the model, to it.

        tensors: for each name of the file a writable contiguous array of numpy or CPU tensor of torch, of its type and shape; names
            that share their memory too. Names, types and shapes are compared before anything is changed.
        Only what changed is decoded, and every value is compared by the digest of its chunk. What is neither the base's nor the
        new is read from the files; of one that was opened with base=None it is an ArgumentError, and nothing is changed. But of
        tensors that the delta ties it is enough that one holds either.
        """
        missing = [name for name in self if name not in tensors]
        if missing:
            raise ArgumentError(f"{self._name}: there is no {missing[0]!r} among what is to be changed", self._name, missing[0])
        first, again = {}, []
        for name, out in tensors.items():
            tensor = self[name]
            part = tensor._filled(out, 0)
            if part[3] != tensor._bytes or tuple(getattr(out, "shape", tensor.shape)) != tensor.shape:
                raise ArgumentError(f"{name!r} has another shape in the file: {list(tensor.shape)}", self._name, name)
            if part[3] and first.setdefault(part[4], part) is not part:
                again.append((name, part))
        ordered = sorted(first.values(), key=lambda part: part[4])
        for one, other in zip(ordered, ordered[1:]):
            if one[4] + one[3] > other[4]:
                raise ArgumentError("what is to be changed shares a part of its memory with another tensor", self._name)

        def changed(part):  # a copy of what it would be
            copy = bytearray((ctypes.c_char * part[3]).from_address(part[4]))
            self._read([(*part[:4], ctypes.addressof(ctypes.c_char.from_buffer(copy)), copy)], threads, "reader_update_many")
            return copy

        for name, part in again:  # names of one memory
            if part[3] != first[part[4]][3] or changed(part) != changed(first[part[4]]):
                raise ArgumentError(f"{name!r} shares its memory with another tensor, and not its values in the file", self._name, name)
        if first:
            self._read(list(first.values()), threads, "reader_update_many")

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
        for each in self._dequantized.values():
            each.close()

    def __enter__(self) -> "File":
        self._check()
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __reduce__(self):
        if not all(isinstance(source, (str, os.PathLike)) for source in self._sources):
            raise TypeError("a file that was opened from memory or a file object cannot be pickled")
        paths = tuple(source if is_url(source) else os.path.abspath(source) for source in self._sources)
        return _reopen, (paths, {"threads": self._threads, **self._given})

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other

    def __repr__(self):
        if self._held is None:
            return f"<File {self._name!r} closed>"
        return f"<File {self._name!r} {self.format}{' ' * bool(self.version)}{self.version}, {len(self)} tensors>"

    def _repr_html_(self) -> str:
        """A table of the tensors, for notebooks."""
        return page_of(self)

    def _ipython_key_completions_(self) -> List[str]:
        """The names, for the key that is completed after file["."""
        return list(self)


def _reopen(paths, options):
    return File(paths, options)


def load_file(path, names: Optional[Iterable[str]] = None, *, framework: str = "numpy", device="cpu",
              **options) -> Dict[str, Any]:
    """All tensors of a checkpoint, or those named, as {name: array}.

    framework: "numpy" or "torch"; device: of torch tensors. The rest are options of open().
    """
    with open(path, **options) as file:
        return _loaded(file, names, framework, device)


def _loaded(file, names, framework, device):
    if framework not in ("numpy", "torch"):
        raise ArgumentError(f"framework is 'numpy' or 'torch', not {framework!r}")
    return file.numpy(names) if framework == "numpy" else file.torch(names, device=device)


def load(source, *, framework: str = "numpy", device="cpu", **options) -> Any:
    """What save_file or save was given, of a path, of bytes or of a file object: a dict of arrays, or a nested state as it was.

    That of torch.save is nested likewise: what holds neither tensors nor plain values is left out of it, as File.warnings says.
    framework, device, options: as of load_file.
    """
    with open(source, **options) as file:
        return restored(_loaded(file, None, framework, device), file.attributes)
