"""Attributes as JSON: byte strings are {"$bytes": "hexadecimal"}, numbers that JSON lacks {"$double": "nan"}."""
import json
import math

from ._errors import ArgumentError


def _special(pairs):
    if len(pairs) == 1:
        (key, value), = pairs
        try:
            if key == "$bytes" and isinstance(value, str):
                return bytes.fromhex(value)
            if key == "$double" and isinstance(value, str):
                return float(value)
        except ValueError:  # a map that a file has, which only looks so
            pass
    return dict(pairs)


def loads(text):
    """The attributes that a text of the library stands for."""
    found = json.loads(text, object_pairs_hook=_special)
    return found if isinstance(found, dict) else json.loads(text)


def _plain(value):
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$double": str(value)}
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise ArgumentError(f"attribute {value} does not fit 64 bits")
        return int(value)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ArgumentError("the keys of attributes are texts")
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a scalar of numpy or torch
        return _plain(value.item())
    raise ArgumentError(f"an attribute cannot be of the type {type(value).__name__}")


def dumps(attributes):
    """The opposite of loads, as bytes."""
    if not isinstance(attributes, dict):
        raise ArgumentError("attributes are a dict")
    try:
        return json.dumps(_plain(attributes), ensure_ascii=True, allow_nan=False).encode()
    except RecursionError:
        raise ArgumentError("attributes are nested too deeply") from None
