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


def node(kind, output, *attributes, domain=None):
    return (field(2, output) + field(4, kind) + b"".join(field(5, one) for one in attributes) +
            (field(7, domain) if domain is not None else b""))


def graph(*nodes, tensors=(), sparse=()):
    return (b"".join(field(1, one) for one in nodes) + b"".join(field(5, one) for one in tensors) +
            b"".join(field(15, one) for one in sparse))


def attribute(name, kind, value=b""):
    """An AttributeProto: its type by number, and its value as fields."""
    return field(1, name) + value + field(20, kind)


def constant(output, of, domain=None):
    """A node Constant whose attribute `value` is a tensor."""
    return node("Constant", output, field(1, "value") + field(5, of) + field(20, 4), domain=domain)


def within(*graphs):
    """A node with graphs of its own, as If has two."""
    return node("If", "", *(field(1, "branch") + field(6, one) + field(20, 5) for one in graphs))


def whole(main, more=b""):
    return field(1, 8) + field(2, "test") + field(7, main) + more
