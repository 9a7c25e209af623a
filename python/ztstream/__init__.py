"""ztstream: checkpoints in numpy and torch. Reads zTensor (.zt), safetensors, GGUF, PyTorch, npy, npz and ONNX; writes .zt.

    with ztstream.open("model.zt") as f:      # or a folder of shards, a .safetensors, a .gguf, a .pt
        rows = f["model.norm.weight"][0:128]  # numpy; only these rows are read and decoded
        state = f.torch()                     # the whole model, by all cores
    ztstream.save_file({"w": rows}, "out.zt", compress="planes")

numpy and torch are imported when they are first needed, and neither is required.
"""
import importlib
from typing import TYPE_CHECKING

from ._errors import (ArgumentError, Error, ExistsError, FormatError, InputOutputError, MisuseError, NotFoundError,
                      NumericError, UnsupportedError)

if TYPE_CHECKING:
    from ._c import library_version
    from ._file import File, load, load_file, open
    from ._part import Part, Report, Tensor
    from ._program import convert, diff, extract, id, inspect, join, program, show, verify
    from ._writer import Pending, Stream, Writer, save, save_file

__all__ = ["ArgumentError", "Error", "ExistsError", "File", "FormatError", "InputOutputError", "MisuseError",
           "NotFoundError", "NumericError", "Part", "Pending", "Report", "Stream", "Tensor", "UnsupportedError", "Writer", "convert",
           "diff", "extract", "id", "inspect", "join", "library_version", "load", "load_file", "open", "program", "save", "save_file", "show",
           "verify"]

# What is imported when it is first asked for: importing the package takes next to nothing.
_LAZY = {"File": "_file", "Part": "_part", "Report": "_part", "Tensor": "_part", "load": "_file", "load_file": "_file", "open": "_file",
         "Pending": "_writer", "Stream": "_writer", "Writer": "_writer", "save": "_writer", "save_file": "_writer", "library_version": "_c",
         "safetensors_compat": "safetensors_compat",
         **dict.fromkeys(("convert", "diff", "extract", "id", "inspect", "join", "program", "show", "verify"), "_program")}


def __getattr__(name):
    if name == "__version__":  # that of the library
        return importlib.import_module("._c", __name__).library_version()
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'ztstream' has no attribute {name!r}")
    loaded = importlib.import_module("." + module, __name__)
    value = loaded if module == name else getattr(loaded, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*__all__, "safetensors_compat", *(name for name in globals() if name.startswith("__"))})
