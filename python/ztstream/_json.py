"""Attributes as JSON: byte strings are {"$bytes": "hexadecimal"}, numbers that JSON lacks {"$double": "nan"}, and a map within
that only looks so has one more "$"."""
import json
import math
import re

from ._errors import ArgumentError

_LOOKS = re.compile(r"\$+(bytes|double)")


def _special(pairs):
    if len(pairs) == 1:
        (key, value), = pairs
        try:
            if key == "$bytes" and isinstance(value, str):
                return bytes.fromhex(value)
            if key == "$double" and isinstance(value, str):
                return float(value)
        except ValueError:  # of the file itself, which has no such values
            pass
        if key.startswith("$$") and _LOOKS.fullmatch(key):
            return {key[1:]: value}
    return dict(pairs)


def loads(text):
    """The attributes that a text of the library stands for."""
    found = json.loads(text, object_pairs_hook=_special)
    if isinstance(found, dict) and len(found) != 1:
        return found
    (key, value), = json.loads(text).items()  # the attributes themselves are a map, however they look
    return {key: json.loads(json.dumps(value), object_pairs_hook=_special)}


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
        looks = len(value) == 1 and _LOOKS.fullmatch(*value)
        return {"$" + key if looks else key: _plain(each) for key, each in value.items()}
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
        if not all(isinstance(key, str) for key in attributes):
            raise ArgumentError("the keys of attributes are texts")
        plain = {key: _plain(value) for key, value in attributes.items()}
        return json.dumps(plain, ensure_ascii=True, allow_nan=False).encode()
    except RecursionError:
        raise ArgumentError("attributes are nested too deeply") from None
