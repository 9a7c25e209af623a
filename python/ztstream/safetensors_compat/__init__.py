"""safetensors' names over ztstream, so that a script changes one import; files may be .zt or of any other format.

    from ztstream.safetensors_compat import safe_open                # for: from safetensors import safe_open
    from ztstream.safetensors_compat.torch import load_file          # for: from safetensors.torch import load_file

What save_file writes is a .zt file, whatever its name.
"""
from .. import _types
from .._errors import ArgumentError
from .._errors import Error as SafetensorError
from .._file import open as _open

__all__ = ["SafetensorError", "safe_open"]

_FRAMEWORKS = {"np": "numpy", "numpy": "numpy", "pt": "torch", "torch": "torch", "pytorch": "torch"}
# safetensors' spelling of types.
_SPELLED = {"f8_e4m3fn": "F8_E4M3", "f8_e5m2": "F8_E5M2", "f8_e8m0": "F8_E8M0", "bool": "BOOL", "complex64": "C64"}


class _Slice:
    """A tensor of which parts are read: slice[0:2, :]."""

    def __init__(self, tensor, framework, device):
        self._tensor, self._framework, self._device = tensor, framework, device

    def get_shape(self):
        """In elements."""
        return list(self._tensor.shape)

    def get_dtype(self):
        """As safetensors spells it: "F32"."""
        return _SPELLED.get(self._tensor.dtype, self._tensor.dtype.upper())

    def __getitem__(self, index):
        if self._framework == "numpy":
            return self._tensor[index]
        import torch
        tensor = self._tensor
        dtype = tensor._named(_types.torch_dtype)
        first = index[0] if isinstance(index, tuple) and index else index
        if not tensor.shape or not isinstance(first, (slice, int)) or isinstance(first, bool):
            return tensor.torch()[index].to(self._device)
        low, high, step = slice(first, first + 1 or None).indices(tensor.shape[0]) if isinstance(first, int) else (
            first.indices(tensor.shape[0]))
        if step != 1 or tensor._pages() is not None:
            return tensor.torch()[index].to(self._device)
        rows = torch.empty((max(0, high - low), *tensor.shape[1:]), dtype=dtype)
        size = rows.numel() * rows.element_size()
        if size:
            row = tensor.nbytes // tensor.shape[0]
            tensor._file._read([(tensor._object, tensor._number, low * row, size, rows.data_ptr(), rows)], None)
        rest = index[1:] if isinstance(index, tuple) else ()
        return rows[(0 if isinstance(first, int) else slice(None), *rest)].to(self._device)


class safe_open:  # the name that users know
    """safetensors.safe_open: a context manager.

    filename: a file of any format that ztstream reads. framework: "np" or "pt". device: of torch tensors.
    """

    def __init__(self, filename, framework="pt", device="cpu", **_):
        if framework not in _FRAMEWORKS:
            raise ArgumentError(f"framework is 'np' or 'pt', not {framework!r}")
        self._framework, self._device = _FRAMEWORKS[framework], device
        self._file = _open(filename)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def keys(self):
        """The names, sorted."""
        return sorted(self._file)

    def offset_keys(self):
        """The names in the order of the file."""
        return list(self._file)

    def metadata(self):
        """The attributes of the file that are texts, or None."""
        texts = {key: value for key, value in self._file.attributes.items() if isinstance(value, str)}
        return texts or None

    def get_tensor(self, name):
        """All of a tensor."""
        tensor = self._file[name]
        return tensor.numpy(copy=True) if self._framework == "numpy" else tensor.torch(self._device)

    def get_tensors(self, names):
        """Several tensors by name, with one call."""
        if self._framework == "numpy":
            return self._file.numpy(names, copy=True)
        return self._file.torch(names, device=self._device)

    def get_slice(self, name):
        """A tensor of which parts are read."""
        return _Slice(self._file[name], self._framework, self._device)


