"""figures.py: numbers of tensors as numpy arrays, and the figures of them, which `inspect --stats` and `show` must give.

Shares nothing with the program: number_formats decodes what numpy has no type for.
"""
import math

import numpy

import number_formats
import random_inputs

# What numpy has a type for.
NUMPY = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bool": "?", "complex64": "<c8", "complex128": "<c16"} | {
    name: dtype.str for name, dtype in number_formats.INTEGERS.items()}


def numbers(name, data):
    """An array of one dimension of elements of a type, by its zTensor name; float32 where numpy has no type."""
    if name in NUMPY:
        return numpy.frombuffer(data, NUMPY[name])
    if name == "f8_e8m0":
        bits = numpy.frombuffer(data, "u1").astype(int)
        return numpy.where(bits == 255, numpy.nan, numpy.ldexp(1.0, bits - 127)).astype("<f4")
    if name == "f4_e2m1":
        halves = numpy.frombuffer(data, "u1")
        codes = numpy.stack([halves & 15, halves >> 4], -1).ravel()
        return numpy.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6], "<f4")[codes]
    if name in random_inputs.BLOCK_BYTES:
        return random_inputs.dequantized(name, data)
    with numpy.errstate(over="ignore"):
        return number_formats.decode(name, data).astype("<f4")


def figures(array):
    """What `stats` holds in JSON; mean and std exactly rounded."""
    finite = array[numpy.isfinite(array)] if array.dtype.kind == "f" else array
    out = {"count": int(array.size), "zeros": int((finite == 0).sum()), "nan": int(numpy.isnan(array).sum()),
           "inf": int(numpy.isinf(array).sum()), "min": None, "max": None, "mean": None, "std": None}
    if not finite.size:
        return out
    out |= {"min": finite.min().item() + 0, "max": finite.max().item() + 0}
    doubles = finite.astype("<f8")
    try:
        mean = math.fsum(doubles) / len(doubles)
        return out | {"mean": mean, "std": math.sqrt(math.fsum((x - mean) ** 2 for x in doubles.tolist()) / len(doubles))}
    except OverflowError:  # beyond f64: the program says so in its way
        return out | {"mean": math.inf, "std": math.inf}


def number(value):
    """A number as JSON has it, or "inf"."""
    return float(value)


def differs(found, wanted):
    """What of `found` is not as wanted: means and deviations within 1e-12 of the larger of the two, all else exactly."""
    wrong = [key for key in ("count", "zeros", "nan", "inf", "min", "max") if found[key] != wanted[key]]
    if wanted["mean"] is None:
        return wrong + [key for key in ("mean", "std") if found[key] is not None]
    mean, std = number(found["mean"]), number(found["std"])
    if not math.isfinite(wanted["std"]):
        return wrong + (["std"] if math.isfinite(std) else [])
    near = 1e-12 * max(abs(wanted["mean"]), wanted["std"])
    return wrong + [key for key, value in (("mean", mean), ("std", std)) if not abs(value - wanted[key]) <= near]
