"""safetensors' names over ztstream, so that a script changes one import; what is read may be .zt or of any other format.

    from ztstream.safetensors_compat import safe_open                # for: from safetensors import safe_open
    from ztstream.safetensors_compat.torch import load_file          # for: from safetensors.torch import load_file

All names of safetensors 0.8 are here, with the bytes, results and errors that it has. save_file writes a .zt file where the name
ends so, and safetensors elsewhere. flax, mlx, paddle and tensorflow have modules like numpy's and torch's.
"""
from .._errors import Error as SafetensorError
from ._open import _safe_open_handle, deserialize, safe_open
from ._write import TensorSpec, serialize, serialize_file

__version__ = "0.8.0"  # of safetensors, whose interface this is
__all__ = ["SafetensorError", "TensorSpec", "deserialize", "safe_open", "serialize", "serialize_file"]
