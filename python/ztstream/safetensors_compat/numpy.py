"""safetensors.numpy's names: save, save_file, load, load_file."""
import os

import numpy as np

from .._file import open as _open
from .._writer import write_file as _write_file
from ._open import safe_open
from ._write import TensorSpec, serialize, serialize_file, texts

__all__ = ["load", "load_file", "save", "save_file"]


def _flatten(tensor_dict):
    """{name: TensorSpec}, and what holds their memory."""
    held = {name: np.require(tensor, tensor.dtype.newbyteorder("<"), "C").reshape(tensor.shape)
            for name, tensor in tensor_dict.items()}
    return {name: TensorSpec(dtype=array.dtype.name, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
            for name, array in held.items()}, held


def writes_zt(filename):
    """Whether a .zt file is written under that name."""
    return str(os.fsdecode(filename)).endswith(".zt")


def save_file(tensor_dict, filename, metadata=None):
    """Writes arrays, in place of a file that is there: as a .zt file where the name ends so, else as safetensors."""
    if writes_zt(filename):
        return _write_file(tensor_dict, filename, texts(metadata), {"overwrite": True})
    specs, _held = _flatten(tensor_dict)
    return serialize_file(specs, filename, metadata)


def save(tensor_dict, metadata=None):
    """The bytes of a safetensors file."""
    specs, _held = _flatten(tensor_dict)
    return serialize(specs, metadata)


def load_file(filename, *, backend="mmap"):
    """All tensors as arrays of one's own."""
    with safe_open(filename, "np", backend=backend) as file:
        return file.get_tensors()


def load(data):
    """The same of a file in memory."""
    with _open(data) as file:
        return file.numpy(copy=True)
