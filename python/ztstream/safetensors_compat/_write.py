"""Writes safetensors files, with the bytes that safetensors writes."""
import contextlib
import fcntl
import json
import math
import os
import secrets
from typing import NamedTuple, Tuple

from .. import _c
from .._errors import Error, InputOutputError
from .._interrupt import interruptibly
from .._reader import is_url

# safetensors' names of types by those of numpy and torch, in the order in which tensors lie in a file: the last first.
CODES = {"bool": "BOOL", "float4_e2m1fn_x2": "F4", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
         "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "int16": "I16",
         "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "complex64": "C64",
         "float64": "F64", "int64": "I64", "uint64": "U64"}
_ORDER = {code: number for number, code in enumerate(CODES.values())}
_BITS = {"BOOL": 8, "F4": 4, "BF16": 16, "C64": 64}
_PIECE = 1 << 24  # bytes between two looks at whether it is interrupted


class _Spec(NamedTuple):
    dtype: str
    shape: Tuple[int, ...]
    data_ptr: int
    data_len: int


class TensorSpec(_Spec):
    """A tensor in memory that serialize and serialize_file write. The memory must stay until they return.

    dtype: as numpy and torch name it, "float32"; it reads as safetensors' "F32". shape: in elements; that of packed types
    (float4_e2m1fn_x2) is given in bytes. data_ptr, data_len: where the bytes lie, and how many.
    """

    __slots__ = ()

    def __new__(cls, *, dtype, shape, data_ptr, data_len):
        if dtype not in CODES:
            raise Error(f'Unknown dtype "{dtype}". Supported dtypes: {", ".join(CODES)}')
        shape = [int(each) for each in shape]
        if min([*shape, data_ptr, data_len], default=0) < 0:
            raise OverflowError("can't convert negative int to unsigned")
        if dtype == "float4_e2m1fn_x2" and shape:
            shape[-1] *= 2
        return super().__new__(cls, CODES[dtype], shape, data_ptr, data_len)

    def __repr__(self):
        return f"TensorSpec(dtype='{self.dtype}', shape={self.shape}, data_ptr={self.data_ptr}, data_len={self.data_len})"


def texts(metadata):
    """Metadata, which are texts by texts."""
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise TypeError(f"argument 'metadata': '{type(metadata).__name__}' object is not an instance of 'dict'")
    for each in (*metadata, *metadata.values()):
        if not isinstance(each, str):
            raise TypeError(f"argument 'metadata': '{type(each).__name__}' object is not an instance of 'str'")
    return metadata


def _pieces(tensors, metadata):
    """What is written, one after the other: the header, then the bytes of tensors."""
    header = {} if texts(metadata) is None else {"__metadata__": metadata}
    for name, spec in tensors.items():
        for each, kind in ((name, str), (spec, TensorSpec)):
            if not isinstance(each, kind):
                raise TypeError(f"argument 'tensor_dict': '{type(each).__name__}' object is not an instance of '{kind.__name__}'")
    at, pieces = 0, []
    for name, spec in sorted(tensors.items(), key=lambda each: (-_ORDER[each[1].dtype], each[0])):
        bits = _BITS.get(spec.dtype) or int(spec.dtype[1:].partition("_")[0])
        if spec.data_len * 8 != math.prod(spec.shape) * bits or spec.data_len and not spec.data_ptr:
            raise Error(f"Error while serializing: invalid shape, data type, or offset for tensor {name!r}", None, name)
        header[name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": [at, at + spec.data_len]}
        at += spec.data_len
        if spec.data_len:
            pieces.append(memoryview(_c.pages_at(spec.data_ptr, spec)).cast("B")[:spec.data_len])
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise Error(f"Error while serializing: {error.object[error.start:error.end]!r} is no text") from None
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *pieces]


def serialize(tensor_dict, metadata=None):
    """The bytes of a safetensors file of {name: TensorSpec}."""
    return b"".join(_pieces(tensor_dict, metadata))


def serialize_file(tensor_dict, filename, metadata=None):
    """Writes a safetensors file of {name: TensorSpec}, which appears under its name when it is whole and on the disk."""
    path = os.fsdecode(filename)
    if is_url(path):
        raise InputOutputError(f"{path}: safetensors are written to files; a .zt file can be written there", path)
    pieces, stopped = _pieces(tensor_dict, metadata), []
    try:
        interruptibly(lambda: _publish(path, pieces, stopped), lambda: stopped.append(True))
    except OSError as error:
        raise InputOutputError(f"Error while serializing: {path}: {error.strerror}", path) from None


def _publish(path, pieces, stopped):
    folder, name = os.path.split(os.path.abspath(path))
    # A name of the library's kind, which it removes where a killed run has left it.
    hidden = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(6)}.ztstream-tmp")
    file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        for piece in map(memoryview, pieces):
            while piece and not stopped:
                piece = piece[os.write(file, piece[:_PIECE]):]
        if not stopped:
            os.fsync(file)
            os.rename(hidden, path)
    finally:
        os.close(file)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(hidden)
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # a folder that cannot be synced; the file is there
        os.fsync(file)
    os.close(file)
