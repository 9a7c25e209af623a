"""safetensors.paddle's names: save, save_file, load, load_file."""
from .. import _types
from ._over_numpy import functions

__all__ = ["load", "load_file", "save", "save_file"]


def _as_numpy(tensor):
    """paddle gives types that numpy lacks as integers; ml_dtypes has them."""
    array, dtype = tensor.detach().cpu().numpy(), _types.of_torch(tensor.dtype)
    return array if dtype is None else array.view(_types.numpy_dtype(dtype))


save, save_file, load, load_file = functions("paddle", _as_numpy)
