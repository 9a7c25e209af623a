"""What the element types of files are in numpy and torch."""
import ctypes
import functools

from ._errors import ArgumentError, UnsupportedError

# Types that numpy has itself.
_NUMPY = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "i16": "<i2", "i8": "|i1", "u64": "<u8",
          "u32": "<u4", "u16": "<u2", "u8": "|u1", "bool": "|b1", "complex64": "<c8", "complex128": "<c16"}
# Types that ml_dtypes has.
_ML_DTYPES = {"bf16": "bfloat16", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2", "f8_e4m3fnuz": "float8_e4m3fnuz",
              "f8_e5m2fnuz": "float8_e5m2fnuz", "f8_e8m0": "float8_e8m0fnu"}
_TORCH = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
          "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
          "complex64": "complex64", "complex128": "complex128", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2",
          "f8_e4m3fnuz": "float8_e4m3fnuz", "f8_e5m2fnuz": "float8_e5m2fnuz", "f8_e8m0": "float8_e8m0fnu",
          "f4_e2m1": "float4_e2m1fn_x2"}


def encoded(name):
    """A name as a file has it, or None if no file can."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def count(value, what, most):
    """A number of the caller's that C takes."""
    if not isinstance(value, int) or not 0 <= value <= most:
        raise ArgumentError(f"{what} is a number from 0 to {most}, not {value!r}")
    return value


@functools.lru_cache(None)
def ml_dtypes():
    """The module, or None."""
    try:
        import ml_dtypes as module
    except ImportError:
        return None
    return module


@functools.lru_cache(None)
def numpy_dtype(dtype):
    """The numpy.dtype for a type of a file, bf16 and f8 by ml_dtypes. UnsupportedError where there is none of the same meaning."""
    import numpy
    if dtype in _NUMPY:
        return numpy.dtype(_NUMPY[dtype])
    wanted = getattr(ml_dtypes(), _ML_DTYPES.get(dtype, ""), None)
    if wanted is not None:
        return numpy.dtype(wanted)
    raise UnsupportedError(f"numpy has no type for {dtype}; view_bits() gives its bits as unsigned integers"
                           + (", torch() its numbers, and numpy() too where ml_dtypes is installed" if dtype in _ML_DTYPES else ""))


def read_only(pages):
    """Memory of a ctypes array that nobody can write to by what is made of it."""
    return memoryview(pages).cast("B").toreadonly()


def bits_dtype(width):
    """The numpy.dtype of the bits of elements of so many bytes."""
    import numpy
    return numpy.dtype(f"<u{width}" if width <= 8 else f"V{width}")


@functools.lru_cache(None)
def width_of(dtype, storage):
    """Bytes of an element of a shape."""
    return (find(dtype) or find(storage))[1]


@functools.lru_cache(None)
def torch_dtype(dtype):
    """The torch.dtype for a type of a file. UnsupportedError where this torch has none of the same meaning."""
    import torch
    found = getattr(torch, _TORCH.get(dtype, ""), None)
    if found is None:
        raise UnsupportedError(f"this version of torch has no type for {dtype}; view_bits() gives its bits as unsigned integers of numpy")
    return found


def _inverse(table):
    return {name: dtype for dtype, name in table.items()}


_FROM_ML = _inverse(_ML_DTYPES)
_FROM_TORCH = _inverse(_TORCH)


@functools.lru_cache(None)
def of_numpy(dtype):
    """The type of a file for a numpy.dtype of little-endian order, or None."""
    if dtype.name in _FROM_ML:
        return _FROM_ML[dtype.name]
    for name, spelled in _NUMPY.items():
        if dtype.str == spelled:
            return name
    return None


@functools.lru_cache(None)
def of_torch(dtype):
    """The type of a file for a torch.dtype, or None."""
    return _FROM_TORCH.get(str(dtype).rpartition(".")[2])


def named(dtype):
    """The name of a type that is given as a text, a dtype of torch or of numpy, or what numpy makes one of: numpy.float32, float."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype)
    import numpy
    try:
        return numpy.dtype(dtype).name
    except TypeError:
        raise ArgumentError(f"a type is a text such as 'f32' or a dtype of numpy or torch, not {dtype!r}") from None


@functools.lru_cache(None)
def find(name):
    """(the file's name for a type, bytes of an element of a shape), of any name that the program takes; None of others."""
    from . import _c
    return _c.type_of(named(name))


def without_values(tensor):
    """Why this process does not have the values of a tensor of torch, and what to do; None where it does."""
    kind = type(tensor).__name__
    if hasattr(tensor, "full_tensor"):
        return f"it is a {kind}, of which each process has a part: full_tensor() gives the whole, to_local() this part"
    if hasattr(tensor, "materialize"):
        return f"it is an {kind}: a forward pass gives it a shape and values"
    if tensor.is_nested or str(tensor.layout) != "torch.strided" or tensor.is_quantized:
        return "only dense tensors are added so; add_object takes the parts of others"
    if hasattr(tensor, "fake_mode"):
        return f"it is a {kind}, which has a shape and no values"
    if tensor.device.type == "meta":
        return "it is on the device 'meta', where tensors have no values"
    if not tensor.numel():
        return None
    try:
        there = tensor.data_ptr() != 0
        if there and tensor.device.type in ("cpu", "cuda"):
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
            storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
            there = (tensor.storage_offset() + last + 1) * tensor.element_size() <= storage.nbytes()
    except (RuntimeError, NotImplementedError) as error:
        return f"it is a {kind}, of which torch does not give the memory: {str(error).splitlines()[0]}"
    if not there and tensor.device.type in ("cpu", "cuda"):
        return (f"it is a {kind} without memory of its own: its storage was freed, or it stands for other tensors; add what has the "
                "values")
    return None


_FORMATS = {"f": "f{}", "d": "f{}", "e": "f{}", "?": "bool", **dict.fromkeys("bhilqn", "i{}"), **dict.fromkeys("BHILQN", "u{}")}


def type_in(data):
    """The type of a file that the elements of a buffer, of an array of numpy or of a tensor of torch have; what Python calls it where
    files have none."""
    if hasattr(data, "untyped_storage") or type(data).__module__ == "torch":
        return of_torch(data.dtype) or str(data.dtype)
    if hasattr(data, "__array_interface__"):
        bits = data.dtype.kind == "V" and data.dtype.names is None
        return of_numpy(data.dtype) or (f"u{8 * data.dtype.itemsize}" if bits else data.dtype.str)
    view = memoryview(data)
    format = view.format.lstrip("@=<")
    return "u8" if format == "c" else _FORMATS.get(format, repr(view.format)).format(8 * view.itemsize)


def holds(given, dtype):
    """Whether elements of a type in memory take those of a file: of the same type, as bytes, or as the bits of a type that numpy
    lacks."""
    return given in (dtype, "u8") or dtype not in _NUMPY and given == f"u{8 * (find(dtype) or (dtype, 0))[1]}"


def memory_of(data, writable=False):
    """(address, bytes, what holds them) of a contiguous buffer, of an array of numpy, of a tensor of torch on the CPU. Read-only
    memory is that of `bytes` alone."""
    if hasattr(data, "untyped_storage") or type(data).__module__ == "torch":
        why = without_values(data)
        if why is not None or data.device.type != "cpu" or not data.is_contiguous() or data.is_conj() or data.is_neg():
            raise ArgumentError(f"the tensor is not a contiguous one on the CPU{': ' * bool(why)}{why or ''}")
        return data.data_ptr(), data.numel() * data.element_size(), data
    if hasattr(data, "__array_interface__"):  # numpy's, of types too that have no buffer
        if not data.flags.c_contiguous or not data.flags.writeable:
            raise ArgumentError("the array is not contiguous, or cannot be written to")
        return data.ctypes.data, data.nbytes, data
    if isinstance(data, bytes) and not writable:
        return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data), data
    view = memoryview(data)
    if view.readonly or not view.c_contiguous:
        raise ArgumentError("the buffer is not contiguous, or cannot be written to")
    if not view.nbytes:
        return None, 0, view
    holder = ctypes.c_ubyte.from_buffer(view.cast("B"))
    return ctypes.addressof(holder), view.nbytes, (holder, data)
