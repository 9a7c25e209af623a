"""Assembles pickles opcode by opcode, and torch's archives and legacy streams around them, right ones and wrong ones."""
import io
import struct
import zipfile

# ---- a pickle assembler ------------------------------------------------------------------------------------------


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


def number(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return b"X" + u32(len(data)) + data


def tup(*items):
    return b"(" + b"".join(items) + b"t"


def numbers(values):
    return tup(*map(number, values))


def dictionary(**members):
    return b"}(" + b"".join(text(key) + value for key, value in members.items()) + b"u"


def glob(module, name):
    return f"c{module}\n{name}\n".encode()


def call(module, name, *args):
    return glob(module, name) + tup(*args) + b"R"


def pickled(body, protocol=2):
    return b"\x80" + bytes([protocol]) + body + b"."


ORDERED = call("collections", "OrderedDict")


def storage(key="0", kind="FloatStorage", count=4, module="torch"):
    return tup(text("storage"), glob(module, kind), text(key), text("cpu"), number(count)) + b"Q"


def tensor(size=(4,), stride=(1,), offset=0, hooks=ORDERED, rebuild="_rebuild_tensor_v2", more=(), of=None, **where):
    return call("torch._utils", rebuild, of if of is not None else storage(**where), number(offset), numbers(size),
                numbers(stride), b"\x89", hooks, *more)


def raw_tensor(*args, rebuild="_rebuild_tensor_v2"):
    return call("torch._utils", rebuild, *args)


FLOATS = struct.pack("<4f", 1, 2, 3, 4)
COUNT = {"0": FLOATS}

# ---- archives ----------------------------------------------------------------------------------------------------


def archive(body, storages=None, root="a/", entries=(), method=zipfile.ZIP_STORED, protocol=2):
    """A checkpoint whose data.pkl is `body` between PROTO and STOP, or `body` itself where it is a pair (bytes,)."""
    data = body[0] if isinstance(body, tuple) else pickled(body, protocol)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        file.writestr(root + "data.pkl", data)
        for name, value in entries:
            file.writestr(name, value)
        for key, value in (COUNT if storages is None else storages).items():
            file.writestr(f"{root}data/{key}", value)
    return out.getvalue()



def checkpoint(tensors):
    """The archive that torch.save makes of a state_dict: name -> (dtype, shape, bytes), as of make_safetensors. Equal byte strings
    that are one object are one storage."""
    kinds = {"F32": ("FloatStorage", 4), "BF16": ("BFloat16Storage", 2), "F16": ("HalfStorage", 2), "I64": ("LongStorage", 8)}
    keys, storages, body = {}, {}, b""
    for name, (dtype, shape, data) in tensors.items():
        kind, width = kinds[dtype]
        key = keys.setdefault(id(data), str(len(keys)))
        storages[key] = data
        stride = [1]
        for size in reversed(shape[1:]):
            stride.insert(0, stride[0] * size)
        body += text(name) + tensor(shape, stride[:len(shape)], key=key, kind=kind, count=len(data) // width)
    return archive(b"}(" + body + b"u", storages)


# ---- legacy streams ----------------------------------------------------------------------------------------------

MAGIC = pickled(number(0x1950a86a20f9469cfc6c))
PROTOCOL = pickled(number(1001))
SYSTEM = pickled(dictionary(protocol_version=number(1001), little_endian=b"\x88"))


def stream_storage(key="0", kind="FloatStorage", count=4, view=b"N", module="torch"):
    return tup(text("storage"), glob(module, kind), text(key), text("cpu"), number(count), view) + b"Q"


def stream(body=None, keys=None, data=None, magic=MAGIC, protocol=PROTOCOL, system=SYSTEM):
    body = dictionary(w=tensor(of=stream_storage())) if body is None else body
    keys = b"](" + text("0") + b"e" if keys is None else keys
    return magic + protocol + system + pickled(body) + pickled(keys) + (u64(4) + FLOATS if data is None else data)
