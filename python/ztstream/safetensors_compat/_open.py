"""Reads by safetensors' names."""
import importlib
import json
import os
import pathlib

from .._errors import ArgumentError, Error, MissingError, NotFoundError
from .._file import open as _open

_FRAMEWORKS = {"np": "numpy", "numpy": "numpy", "pt": "torch", "torch": "torch", "pytorch": "torch", "tf": "tensorflow",
               "tensorflow": "tensorflow", "flax": "flax", "jax": "flax", "mlx": "mlx", "paddle": "paddle"}
# What makes an array of a framework of one of numpy.
_MADE = {"tensorflow": ("tensorflow", "convert_to_tensor"), "flax": ("jax.numpy", "array"), "mlx": ("mlx.core", "array"),
         "paddle": ("paddle", "to_tensor")}
# safetensors' names of types that are not just in capitals.
_SPELLED = {"f8_e4m3fn": "F8_E4M3", "f4_e2m1": "F4", "complex64": "C64"}


def _dtype(tensor):
    return _SPELLED.get(tensor.dtype, tensor.dtype.upper())


def _shape(tensor):
    """In elements: types of 4 and 6 bits count bytes here."""
    bits = int(tensor.dtype[1]) if tensor.dtype[:3] in ("f4_", "f6_") else 8
    shape = list(tensor.shape)
    return [*shape[:-1], shape[-1] * 8 // bits] if bits < 8 and shape else shape


def _in_order(file):
    """The names in the order in which their bytes lie."""
    def place(name):
        tensor = file[name]
        return (tensor.location or ("", 0, 0))[:2] if tensor.is_dense else ("", 0)

    return sorted(file, key=place)


class _Slice:
    """A tensor of which parts are read: slice[0:2, :]."""

    def __init__(self, tensor, opened):
        self._tensor, self._opened = tensor, opened

    def get_shape(self):
        """In elements."""
        return _shape(self._tensor)

    def get_dtype(self):
        """As safetensors spells it: "F32"."""
        return _dtype(self._tensor)

    def _checked(self, index):
        """The index, which is within the tensor; indices of numpy and torch are not all so strict."""
        if isinstance(index, list):
            if index:
                raise Error("Non empty lists are not implemented")
            return slice(0, 0)
        given, shape = index if isinstance(index, tuple) else (index,), self._tensor.shape
        if any(each is None or each is Ellipsis or isinstance(each, bool) for each in given):
            return index

        def words(each):
            if not isinstance(each, slice):
                return str(each)
            return ":".join("" if end is None else str(end) for end in (each.start, each.stop))

        def wrong(why):
            return Error(f"Error during slicing [{', '.join(map(words, given))}] with shape {list(shape)}: {why}")

        if len(given) > len(shape):
            raise wrong("more slicing indexes than dimensions in tensor")
        for number, (each, size) in enumerate(zip(given, shape)):
            if isinstance(each, slice):
                if each.step is not None and each.step < 1:
                    raise Error(f"Slice step must be a positive integer, got {each.step}")
                last = max(each.start or 0, (each.stop or 0) - 1)
            elif not hasattr(each, "__index__"):
                raise Error(f"Unsupported slice index at position {number}: expected slice, int, or ellipsis")
            elif each < -size:
                raise Error(f"Invalid index {each} for dimension {number} of size {size}")
            else:
                last = each
            if last >= size and (size or not isinstance(each, slice)):
                raise wrong(f"index {last} out of bounds for tensor dimension #{number} of size {size}")
        return index

    def __getitem__(self, index):
        tensor, opened = self._tensor, self._opened
        index = self._checked(index)
        if opened._framework != "torch":
            return opened._made(tensor[index])
        return tensor.torch(index=index).to(opened._device)


class safe_open:  # the name that users know
    """safetensors.safe_open: a context manager.

    filename: a file of any format that ztstream reads. framework: "np", "pt", "tf", "flax", "mlx" or "paddle". device: of tensors
    of torch and paddle. backend: "mmap", or "pread": memory of one's own.
    """

    def __init__(self, filename, framework, device="cpu", *, backend="mmap"):
        if framework not in _FRAMEWORKS:
            raise ArgumentError(f"framework {framework} is invalid")
        if backend not in ("mmap", "pread"):
            raise ArgumentError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
        self._framework, self._copy = _FRAMEWORKS[framework], backend == "pread"
        self._device = "cpu" if device is None else device
        if self._framework not in ("torch", "paddle") and str(self._device) != "cpu":
            raise ArgumentError(f"Device {device} is not supported for framework {self._framework}")
        if self._framework == "torch" and not isinstance(device, int):
            import torch
            try:
                torch.device(self._device)
            except RuntimeError:
                raise ArgumentError(f"device {device} is invalid") from None
        try:
            self._file = _open(filename)
        except MissingError as error:
            raise MissingError(f"No such file or directory: {os.fsdecode(filename)}", error.file) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def keys(self):
        """The names, sorted."""
        return sorted(self._file)

    def offset_keys(self):
        """The names in the order in which their bytes lie in the file."""
        return _in_order(self._file)

    def metadata(self):
        """The attributes of the file that are texts, or None."""
        texts = {key: value for key, value in self._file.attributes.items() if isinstance(value, str)}
        if texts or self._file.format != "safetensors":
            return texts or None
        path = pathlib.Path(os.fsdecode(self._file._sources[0]))
        if not path.is_file() or path.suffix == ".json":
            return None
        with path.open("rb") as file:  # whether it has none, or no entries in them
            return json.loads(file.read(int.from_bytes(file.read(8), "little"))).get("__metadata__")

    def _made(self, array):
        """An array of the framework, of one of numpy."""
        if self._framework == "numpy":
            return array
        module, function = _MADE[self._framework]
        where = {"place": str(self._device).replace("cuda", "gpu")} if self._framework == "paddle" else {}
        return getattr(importlib.import_module(module), function)(array, **where)

    def _tensor(self, name):
        try:
            return self._file[name]
        except NotFoundError as error:
            raise NotFoundError(f"File does not contain tensor {name}", error.file, name) from None

    def get_tensor(self, name):
        """All of a tensor."""
        tensor = self._tensor(name)
        if self._framework == "torch":
            return tensor.torch(self._device, copy=self._copy)
        return self._made(tensor.numpy(copy=True))

    def get_tensors(self, names=None):
        """All tensors by name, or several, with one call."""
        names = self.offset_keys() if names is None else names
        if self._framework == "torch":
            return self._file.torch(names, device=self._device, copy=self._copy)
        return {name: self._made(array) for name, array in self._file.numpy(names, copy=True).items()}

    def get_slice(self, name):
        """A tensor of which parts are read."""
        return _Slice(self._tensor(name), self)


class _safe_open_handle(safe_open):  # likewise
    """safe_open of an open file, by its name."""

    def __init__(self, f, framework, device="cpu", *, backend="mmap"):
        f.fileno()
        super().__init__(f.name, framework, device, backend=backend)


def deserialize(bytes):
    """[(name, {"dtype": ..., "shape": ..., "data": ...}), ...] of the bytes of a file."""
    with _open(bytes) as file:
        return [(name, {"dtype": _dtype(file[name]), "shape": _shape(file[name]), "data": bytearray(file[name].buffer())})
                for name in _in_order(file)]
