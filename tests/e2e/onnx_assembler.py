"""Assembles ONNX models field by field, right ones and wrong ones."""


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field: of an int a varint, of bytes or text what is between its length and its end."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name="w", kind=1, dims=(2,), *fields):
    return b"".join(field(1, dim) for dim in dims) + field(2, kind) + field(8, name) + b"".join(fields)


def model(*tensors, more=b""):
    return field(1, 8) + field(2, "test") + more + field(7, b"".join(field(5, one) for one in tensors))


def external(**entries):
    return b"".join(field(13, field(1, key) + field(2, str(value))) for key, value in entries.items()) + field(14, 1)
