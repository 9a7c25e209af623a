"""safetensors.flax's names: save, save_file, load, load_file."""
import numpy

from ._over_numpy import functions

__all__ = ["load", "load_file", "save", "save_file"]

save, save_file, load, load_file = functions("flax", numpy.asarray)
