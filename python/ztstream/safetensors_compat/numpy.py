"""safetensors.numpy's names: save, save_file, load, load_file."""
from .._file import open as _open
from .._writer import save as _save
from .._writer import write_file as _write_file

__all__ = ["load", "load_file", "save", "save_file"]


def save_file(tensor_dict, filename, metadata=None):
    """Writes arrays as a .zt file, in place of one that is there."""
    _write_file(tensor_dict, filename, metadata, {"overwrite": True})


def save(tensor_dict, metadata=None):
    """The bytes of that file."""
    return _save(tensor_dict, attributes=metadata)


def load_file(filename):
    """All tensors as arrays of one's own."""
    with _open(filename) as file:
        return file.numpy(copy=True)


def load(data):
    """The same of a file in memory."""
    with _open(data) as file:
        return file.numpy(copy=True)
