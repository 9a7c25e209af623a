"""safetensors.torch's names: save, save_file, load, load_file, save_model, load_model, and what others import of it."""
import torch

from .. import _types
from .._errors import ArgumentError, Error, MisuseError, UnsupportedError
from .._file import open as _open
from .._writer import write_file as _write_file
from ._open import safe_open
from ._write import CODES, TensorSpec, serialize, serialize_file, texts
from .numpy import writes_zt

__all__ = ["load", "load_file", "load_model", "save", "save_file", "save_model", "storage_ptr", "storage_size"]

_TYPES = {code: getattr(torch, name) for name, code in CODES.items() if hasattr(torch, name)}
_SIZE = {dtype: torch.empty(0, dtype=dtype, device="cpu").element_size() for dtype in _TYPES.values()}


def storage_ptr(tensor):
    """Where the storage of a tensor begins."""
    return _storage(tensor).data_ptr()


def storage_size(tensor):
    """The bytes of its storage."""
    return _storage(tensor).nbytes()


def _storage(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _end_ptr(tensor):
    """Where the last element of a tensor ends."""
    if not tensor.numel():
        return tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _is_complete(tensor):
    """Whether a tensor is all of its storage."""
    return tensor.data_ptr() == storage_ptr(tensor) and tensor.numel() * tensor.element_size() == storage_size(tensor)


def _find_shared_tensors(state_dict):
    """The names of tensors as sets: those of one set lie in one storage, and each overlaps another."""
    storages = {}
    for name, tensor in state_dict.items():
        if tensor.device.type != "meta" and storage_ptr(tensor) and storage_size(tensor):
            storages.setdefault((tensor.device, storage_ptr(tensor), storage_size(tensor)), []).append(name)
    shared = []
    for names in storages.values():
        end = None
        for name in sorted(names, key=lambda name: (state_dict[name].data_ptr(), _end_ptr(state_dict[name]), name)):
            tensor = state_dict[name]
            if end is not None and tensor.data_ptr() < end:
                shared[-1].add(name)
            else:
                shared.append({name})
            end = max(end or 0, _end_ptr(tensor))
    return shared


def _remove_duplicate_names(state_dict, *, preferred_names=None, discard_names=None):
    """{name that is kept: [names that are not]} of tensors that share memory. What is kept has all of it."""
    dropped = {}
    for names in _find_shared_tensors(state_dict):
        complete = {name for name in names if _is_complete(state_dict[name])}
        if not complete:
            raise MisuseError(f"{sorted(names)} share memory of which none of them has all, so that much more would be stored than is "
                              "needed, or less. Refusing to save/load the model; clone() gives each its own")
        kept = min(complete & set(preferred_names or ()) or complete - set(discard_names or ()) or complete)
        if len(names) > 1:
            dropped[kept] = sorted(names - {kept})
    return dropped


def _refuse_what_is_no_tensor(tensors):
    if not isinstance(tensors, dict):
        raise ArgumentError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}", None, name)
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ArgumentError(f"You are trying to save a sparse tensors: `{sparse}` which this library does not support. You can make it a "
                            "dense tensor before saving with `.to_dense()` but be aware this might make a much larger file than needed.",
                            None, sparse[0])


def _flatten(tensors):
    """{name: TensorSpec}, and what holds their memory."""
    _refuse_what_is_no_tensor(tensors)
    for name, tensor in tensors.items():
        if tensor.device.type == "meta":
            raise UnsupportedError(f"tensor {name!r}: Cannot copy out of meta tensor; no data!", None, name)
        why = _types.without_values(tensor)
        if why is not None:
            raise ArgumentError(f"tensor {name!r}: {why}", None, name)
    shared = [names for names in _find_shared_tensors(tensors) if len(names) > 1]
    if shared:
        raise MisuseError(f"Some tensors share memory, which would be stored twice and not be shared when it is loaded: {shared}. "
                          "save_model stores it once, and so does a .zt file")
    specs, held = {}, []
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ArgumentError(f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. `.contiguous()` packs it",
                                None, name)
        held.append(tensor.detach().resolve_conj().resolve_neg().cpu())
        try:
            specs[name] = TensorSpec(dtype=str(tensor.dtype).rpartition(".")[2], shape=tensor.shape, data_ptr=held[-1].data_ptr(),
                                     data_len=tensor.numel() * tensor.element_size())
        except Error as error:
            raise Error(f"tensor {name!r}: {error}", None, name) from None
    return specs, held


def save_file(tensors, filename, metadata=None):
    """Writes tensors, in place of a file that is there: as safetensors, or as a .zt file where the name ends so. There tied
    tensors share their bytes."""
    if writes_zt(filename):
        _refuse_what_is_no_tensor(tensors)
        return _write_file(tensors, filename, texts(metadata), {"overwrite": True})
    specs, _held = _flatten(tensors)
    return serialize_file(specs, filename, metadata)


def save(tensors, metadata=None):
    """The bytes of a safetensors file."""
    specs, _held = _flatten(tensors)
    return serialize(specs, metadata)


def load_file(filename, device="cpu", *, backend="mmap"):
    """All tensors on a device."""
    with safe_open(filename, "pt", device, backend=backend) as file:
        return file.get_tensors()


def load(data):
    """The same of a file in memory."""
    with _open(data) as file:
        return file.torch(copy=True)


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Writes the state_dict of a module. Of names that share memory one is kept; the metadata have {other name: that one}."""
    state = model.state_dict()
    dropped = {name: kept for kept, names in _remove_duplicate_names(state).items() for name in names}
    if dropped:
        metadata = {**dropped, **(metadata or {})}
    state = {name: tensor.contiguous() if force_contiguous else tensor for name, tensor in state.items() if name not in dropped}
    try:
        save_file(state, filename, metadata)
    except ValueError as error:
        raise ArgumentError(f"{error} Or use save_model(..., force_contiguous=True).") from None


def load_model(model, filename, strict=True, device="cpu", *, backend="mmap"):
    """Loads a module's state_dict; (missing, unexpected) names. Of names that share memory in the module the file has one."""
    found = load_file(filename, device, backend=backend)
    dropped = _remove_duplicate_names(model.state_dict(), preferred_names=found)
    missing, unexpected = model.load_state_dict(found, strict=False)
    missing, unexpected = set(missing), list(unexpected)
    for name in (name for names in dropped.values() for name in names):
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"{which} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(names))
                 for which, names in (("Missing", missing), ("Unexpected", unexpected)) if names]
        raise RuntimeError("\n    ".join([f"Error(s) in loading state_dict for {type(model).__name__}:", *lines]))
    return missing, unexpected
