"""What the element types of files are in numpy and torch."""
import functools

from ._errors import ArgumentError, UnsupportedError

# Types that numpy has itself.
_NUMPY = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "i16": "<i2", "i8": "|i1", "u64": "<u8",
          "u32": "<u4", "u16": "<u2", "u8": "|u1", "bool": "|b1", "complex64": "<c8", "complex128": "<c16"}
# Types that ml_dtypes has. Without it: unsigned integers of their width.
_ML_DTYPES = {"bf16": "bfloat16", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2", "f8_e4m3fnuz": "float8_e4m3fnuz",
              "f8_e5m2fnuz": "float8_e5m2fnuz", "f8_e8m0": "float8_e8m0fnu"}
_TORCH = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
          "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
          "complex64": "complex64", "complex128": "complex128", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2",
          "f8_e4m3fnuz": "float8_e4m3fnuz", "f8_e5m2fnuz": "float8_e5m2fnuz", "f8_e8m0": "float8_e8m0fnu"}
_WIDTH = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u64": 8, "u32": 4, "u16": 2,
          "u8": 1, "bool": 1}


@functools.lru_cache(None)
def ml_dtypes():
    """The module, or None."""
    try:
        import ml_dtypes as module
    except ImportError:
        return None
    return module


@functools.lru_cache(None)
def numpy_dtype(dtype, storage):
    """The numpy.dtype for a type of a file.

    bf16 and the f8 types are those of ml_dtypes, or unsigned integers of the same width where that is not installed. A
    type that is not known is what it is stored as.
    """
    import numpy
    if dtype in _NUMPY:
        return numpy.dtype(_NUMPY[dtype])
    wanted = getattr(ml_dtypes(), _ML_DTYPES.get(dtype, ""), None)
    if wanted is not None:
        return numpy.dtype(wanted)
    return numpy.dtype(_NUMPY.get(storage, "<u2"))  # bf16 is the one storage type that numpy lacks


@functools.lru_cache(None)
def torch_dtype(dtype, storage):
    """The torch.dtype for a type of a file. UnsupportedError where this torch has none of the same meaning."""
    import torch
    found = getattr(torch, _TORCH.get(dtype, ""), None)
    if found is None and dtype not in _TORCH:
        found = getattr(torch, _TORCH[storage], None)  # not known: what it is stored as
    if found is None and _WIDTH[storage] == 1:
        found = torch.uint8  # as in numpy
    if found is None:
        raise UnsupportedError(f"this version of torch has no type for {dtype}; numpy() has")
    return found


def _inverse(table):
    return {name: dtype for dtype, name in table.items()}


_FROM_ML = _inverse(_ML_DTYPES)
_FROM_TORCH = _inverse(_TORCH)


@functools.lru_cache(None)
def of_numpy(dtype):
    """The type of a file for a numpy.dtype of little-endian order."""
    if dtype.name in _FROM_ML:
        return _FROM_ML[dtype.name]
    for name, spelled in _NUMPY.items():
        if dtype.str == spelled:
            return name
    raise ArgumentError(f"numpy's {dtype} has no type in a file")


@functools.lru_cache(None)
def of_torch(dtype):
    """The type of a file for a torch.dtype."""
    name = str(dtype).rpartition(".")[2]
    if name not in _FROM_TORCH:
        raise ArgumentError(f"{dtype} has no type in a file")
    return _FROM_TORCH[name]


def width(storage):
    """Bytes of an element of a storage type."""
    return _WIDTH[storage]
