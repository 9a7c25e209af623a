"""safetensors.torch's names: save, save_file, load, load_file, save_model, load_model."""
from .._file import open as _open
from .._writer import save as _save
from .._writer import write_file as _write_file

__all__ = ["load", "load_file", "load_model", "save", "save_file", "save_model"]


def save_file(tensors, filename, metadata=None):
    """Writes tensors as a .zt file, in place of one that is there. Tied tensors share their bytes."""
    _write_file(tensors, filename, metadata, {"overwrite": True})


def save(tensors, metadata=None):
    """The bytes of that file."""
    return _save(tensors, attributes=metadata)


def load_file(filename, device="cpu"):
    """All tensors on a device."""
    with _open(filename) as file:
        return file.torch(device=device)


def load(data):
    """The same of a file in memory."""
    with _open(data) as file:
        return file.torch()


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Writes the state_dict of a module."""
    del force_contiguous  # every tensor is written in C order
    save_file(model.state_dict(), filename, metadata)


def load_model(model, filename, strict=True, device="cpu"):
    """Loads a module's state_dict; (missing, unexpected) names."""
    found = model.load_state_dict(load_file(filename, device), strict=strict)
    return found.missing_keys, found.unexpected_keys
