"""The functions of a module for a framework whose arrays are numpy's or next to them: save, save_file, load, load_file."""
from . import numpy as _numpy
from ._open import safe_open


def functions(framework, as_numpy):
    """as_numpy: makes an array of numpy of one of the framework."""

    def save(tensors, metadata=None):
        """The bytes of a safetensors file."""
        return _numpy.save({name: as_numpy(value) for name, value in tensors.items()}, metadata)

    def save_file(tensors, filename, metadata=None):
        """Writes tensors, in place of a file that is there: as a .zt file where the name ends so, else as safetensors."""
        _numpy.save_file({name: as_numpy(value) for name, value in tensors.items()}, filename, metadata)

    def load(data, device="cpu"):
        """All tensors of a file in memory."""
        return load_file(data, device)

    def load_file(filename, device="cpu", *, backend="mmap"):
        """All tensors of a file."""
        with safe_open(filename, framework, device, backend=backend) as file:
            return file.get_tensors()

    return save, save_file, load, load_file
