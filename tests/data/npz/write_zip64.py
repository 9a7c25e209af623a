"""Writes zip64.npz: two arrays as numpy's savez writes them, with every size and offset in zip64 fields.

Python's zipfile uses those fields in the directory beyond 2 GiB only, so its limit is lowered here.
"""
import zipfile

import numpy as np

zipfile.ZIP64_LIMIT = 16
zipfile.ZIP_FILECOUNT_LIMIT = 1
np.savez(
    "zip64.npz",
    weight=np.arange(12, dtype="<f4").reshape(3, 4),
    bias=np.arange(5, dtype=">i8"),
)
