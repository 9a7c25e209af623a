"""Hostile PyTorch files: pickles, archives and legacy streams that no torch would write, one a row of a table.

Each must end with the right exit status and one line on standard error, leave no output, stay within bounded memory,
and execute nothing.
"""
import io
import pathlib
import resource
import struct
import subprocess
import zipfile

from pickle_assembler import (FLOATS, MAGIC, ORDERED, PROTOCOL, SYSTEM, archive, call, dictionary, glob, number,
                              numbers, pickled, raw_tensor, storage, stream, stream_storage, tensor, text, tup, u32, u64)
from support import DONE, INVALID, PATIENCE, PROGRAM, UNSUPPORTED, EndToEnd

MEMORY = 256 << 20  # bytes that any of these may take

def edit(data, find, offset, new, last=False):
    """`data` with bytes replaced at `offset` from where `find` is."""
    place = (data.rindex(find) if last else data.index(find)) + offset
    return data[:place] + new + data[place + len(new):]


GOOD = archive(dictionary(w=tensor()))
CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


def forged_zip64():
    """The storage's sizes move to a zip64 field that says 2^62."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("a/data.pkl", pickled(dictionary(w=tensor())))
        entry = zipfile.ZipInfo("a/data/0")
        entry.extra = struct.pack("<HHQQ", 1, 16, 1 << 62, 1 << 62)
        file.writestr(entry, FLOATS)
    data = out.getvalue()
    place = data.rindex(CENTRAL)
    return data[:place + 20] + b"\xff" * 8 + data[place + 28:]


def overlapping():
    """Both storages lie in the same place."""
    data = archive(dictionary(a=tensor(), b=tensor(key="1")), {"0": FLOATS, "1": FLOATS})
    first = data.rindex(CENTRAL, 0, data.rindex(CENTRAL))
    where = data[first + 42:first + 46]
    return edit(data, CENTRAL, 42, where, last=True)


def large_pickle():
    """A data.pkl of 300 MiB, deflated; never in memory here, for that would count as the program's."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        with file.open("a/data.pkl", "w") as entry:
            for _ in range(300):
                entry.write(bytes(1 << 20))
    return out.getvalue()


# ---- the table ---------------------------------------------------------------------------------------------------

SENTINEL = "executed"
TOUCH = text(f"touch {SENTINEL}")


def bombs():
    shared = b"](K\x07K\x07eq\x00"
    for level in range(40):
        shared += b"0](h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    dicts = b"}(" + text("x") + b"K\x01" + text("y") + b"K\x02uq\x00"
    for level in range(40):
        dicts += (b"0}(" + text("x") + b"h" + bytes([level]) + text("y") + b"h" + bytes([level]) + b"uq" +
                  bytes([level + 1]))
    tensors = tensor() + b"q\x00"
    for level in range(40):
        tensors += b"0](h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    big = text("t" * 1000000) + b"q\x000"
    sparse = glob("torch._utils", "_rebuild_sparse_tensor") + b"(" + text("torch.sparse_coo") + b"("
    return {
        "lists of shared lists": (DONE, shared),
        "dicts of shared dicts": (UNSUPPORTED, dicts),
        "lists of a shared tensor": (UNSUPPORTED, tensors),
        "a long text shared a hundred thousand times": ((DONE, UNSUPPORTED), big + b"](" + b"h\x00" * 100000 + b"e"),
        "a long key shared": (UNSUPPORTED, big + b"}(h\x00}(h\x00" * 90 + tensor() + b"uu" * 90),
        "a list that holds itself": (DONE, b"]q\x00h\x00a"),
        "a list that holds itself twice": (DONE, b"]q\x00(h\x00h\x00e"),
        "a list that holds itself and a tensor": (DONE, b"]q\x00(h\x00" + tensor() + b"e"),
        "a dict that holds itself": (DONE, b"}q\x00" + text("k") + b"h\x00s"),
        "a call whose state is itself": (DONE, call("a", "B") + b"q\x00h\x00b"),
        "lists nested a hundred thousand deep": (DONE, b"]" * 100000 + b"a" * 99999),
        "tuples nested a hundred thousand deep": (DONE, b")" + b"\x85" * 100000),
        "tuples nested deep around a tensor": (UNSUPPORTED, tensor() + b"\x85" * 100000),
        "sparse tensors twenty thousand deep": (UNSUPPORTED, dictionary(w=sparse * 20000 + tensor() + b"NNttR" * 20000)),
        "sizes of sizes of sizes": (DONE, dictionary(w=tensor(), s=b"ctorch\nSize\n(" * 200000 + b")" + b"tR" * 200000)),
        "a million marks": (INVALID, b"(" * 1000000),
        "a million values": (INVALID, b"N" * 1000000),
        "a million empty dicts": ((DONE, UNSUPPORTED), b"](" + b"}" * 1000000 + b"e"),
    }


def opcodes():
    rows = {}
    for opcode in (0x00, 0x01, 0x20, 0x7f, 0x99, 0xa0, 0xfe, 0xff, ord("z"), ord("Z")):
        rows[f"unknown opcode {opcode:#x}"] = (INVALID, bytes([opcode]))
    for opcode in b"LFSVPpgio":
        rows[f"protocol 0's opcode {chr(opcode)}"] = (UNSUPPORTED, bytes([opcode]) + b"0\n")
    for opcode in (0x82, 0x83, 0x84, 0x97, 0x98):
        rows[f"opcode {opcode:#x}"] = (UNSUPPORTED, bytes([opcode]) + b"\x01\x00\x00\x00")
    for opcode in b"KMJGXUTBChjqrc\x8a\x8b\x8c\x8d\x8e\x95\x96":
        rows[f"opcode {opcode:#x} cut off"] = (INVALID, (b"\x80\x02N" + bytes([opcode]),))
    for opcode in b"\x85\x86\x87tldasue01\x90\x91RbQ\x81\x92\x93q":
        rows[f"opcode {opcode:#x} on an empty stack"] = (INVALID, bytes([opcode]) + b"\x00")
    return rows


def pickles():
    return {
        **opcodes(), **bombs(),
        "nothing": (INVALID, (b"",)),
        "a protocol and no more": (INVALID, (b"\x80\x02",)),
        "protocol 0": (UNSUPPORTED, (b"(dp0\n.",)),
        "protocol 1": (UNSUPPORTED, (b"\x80\x01}.",)),
        "protocol 6": (UNSUPPORTED, (b"\x80\x06}.",)),
        "no STOP": (INVALID, (b"\x80\x02}",)),
        "STOP without a value": (INVALID, b""),
        "STOP with two values": (INVALID, b"NN"),
        "STOP above a mark": (INVALID, b"N("),
        "bytes after STOP": (INVALID, (pickled(b"}") + b"x",)),
        "a text of 4 GiB": (INVALID, b"X" + u32(0xffffffff)),
        "a text of 2^63 bytes": (INVALID, b"\x8d" + u64(1 << 63)),
        "bytes of 2^64 - 1": (INVALID, b"\x8e" + u64((1 << 64) - 1)),
        "a bytearray of 2^40": (INVALID, b"\x96" + u64(1 << 40)),
        "a number of 4 GiB": (INVALID, b"\x8b" + u32(0xffffffff)),
        "a memo number never set": (INVALID, b"h\x07"),
        "a large memo number never set": (INVALID, b"j" + u32(1 << 31)),
        "a memo number of 4 billion": (INVALID, b"Nr" + u32(0xffffffff)),
        "MEMOIZE without a value": (INVALID, b"\x94"),
        "append to a number": (INVALID, b"K\x01K\x02a"),
        "appends to a dict": (INVALID, b"}(K\x01e"),
        "setitems of three": (INVALID, b"}(K\x01K\x02K\x03u"),
        "setitem on a list": (INVALID, b"]K\x01K\x02s"),
        "additems to a tuple": (INVALID, b")(K\x01\x90"),
        "a state for a number": (INVALID, b"K\x01}b"),
        "two states": (INVALID, call("a", "B") + b"}b}b"),
        "a dict and a list at once": (INVALID, call("a", "B") + b"(K\x01e(K\x01K\x02u"),
        "arguments that are no tuple": (INVALID, glob("a", "B") + b"]R"),
        "a class named by numbers": (INVALID, b"K\x01K\x02\x93"),
        "a name without an end": (INVALID, (b"\x80\x02c" + b"a" * 100,)),
        "a name of 10,000 bytes": (INVALID, glob("a" * 10000, "b")),
        "an ordered dict of no pairs": (INVALID, call("collections", "OrderedDict", b"](" + tensor() + b"e")),
        "a list added to an ordered dict": (INVALID, ORDERED + b"(" + tensor() + b"e"),
        # What would run, were it run.
        "os.system": (DONE, call("os", "system", TOUCH)),
        "posix.system among values": (DONE, dictionary(w=tensor(), x=call("posix", "system", TOUCH))),
        "builtins.eval": (DONE, dictionary(x=call("builtins", "eval", text(f"open('{SENTINEL}', 'w')")))),
        "builtins.exec by STACK_GLOBAL": (DONE, text("builtins") + text("exec") + b"\x93" +
                                          tup(text(f"open('{SENTINEL}', 'w')")) + b"R"),
        "subprocess.Popen by NEWOBJ": (DONE, glob("subprocess", "Popen") + tup(TOUCH) + b"\x81"),
        "os.system given a storage": (UNSUPPORTED, dictionary(x=call("os", "system", TOUCH, storage()))),
        "an object whose state holds a tensor": (UNSUPPORTED, call("my", "Model") + dictionary(w=tensor()) + b"b"),
        "an object to which tensors are added": (DONE, call("my", "List") + b"(" + tensor() + b"e"),
        "an object made of keywords with a tensor": (
            UNSUPPORTED, glob("my", "Model") + b")" + dictionary(w=tensor()) + b"\x92"),
        "a function that makes the function": (
            UNSUPPORTED, call("functools", "partial", glob("os", "system")) + tup(TOUCH, storage()) + b"R"),
        "an ordered dict with tensors in its state": (
            UNSUPPORTED, ORDERED + dictionary(hidden=tensor()) + b"b"),
    }


def tensors():
    huge = (1 << 63) - 1
    two = {"0": FLOATS, "1": struct.pack("<4q", 0, 1, 2, 3)}

    def longs(*values):
        return struct.pack(f"<{len(values)}q", *values)

    def long_tensor(key, *shape):
        stride, strides = 1, []
        for dim in reversed(shape):
            strides.insert(0, stride)
            stride *= dim
        return tensor(shape, strides, key=key, kind="LongStorage", count=stride)

    def sparse(layout, *parts, storages):
        return call("torch._utils", "_rebuild_sparse_tensor", text(layout), tup(*parts)), storages

    size = call("torch", "Size", numbers((2, 2)))
    return {
        "a negative offset": (INVALID, tensor(offset=-1)),
        "a negative size": (INVALID, tensor(size=(-4,))),
        "a negative stride": (INVALID, tensor(stride=(-1,))),
        "an offset past the end": (INVALID, tensor(offset=1)),
        "a far offset": (INVALID, tensor(offset=huge)),
        "a size past the end": (INVALID, tensor(size=(5,))),
        "a huge size": (INVALID, tensor(size=(huge,))),
        "sizes that overflow": (INVALID, tensor(size=(1 << 40, 1 << 40), stride=(1, 1))),
        "a stride past the end": (INVALID, tensor(stride=(2,))),
        "a huge stride": (INVALID, tensor(stride=(huge,))),
        "sizes and strides of two lengths": (INVALID, tensor(stride=(1, 1))),
        "more than 64 dimensions": (UNSUPPORTED, tensor(size=(1,) * 65, stride=(1,) * 65)),
        "an expanded tensor of 2^60 bytes": (UNSUPPORTED, tensor(size=(1 << 58,), stride=(0,))),
        "an expanded tensor of 2^66 bytes": (INVALID, tensor(size=(1 << 32, 1 << 32), stride=(0, 0))),
        "an empty tensor with huge others": (DONE, tensor(size=(0, 4), stride=(huge, 1))),
        "a size that is text": (INVALID, raw_tensor(storage(), number(0), text("4"), numbers((1,)), b"\x89", ORDERED)),
        "a size of texts": (INVALID, raw_tensor(storage(), number(0), tup(text("4")), numbers((1,)), b"\x89", ORDERED)),
        "an offset that is text": (INVALID, raw_tensor(storage(), text("0"), numbers((4,)), numbers((1,)), b"\x89", ORDERED)),
        "a size above 64 bits": (INVALID, tensor(size=(1 << 64,))),
        "arguments missing": (INVALID, raw_tensor(storage(), number(0))),
        "no arguments": (INVALID, raw_tensor()),
        "no storage": (INVALID, tensor(of=b"N")),
        "a storage made by a call": (UNSUPPORTED, tensor(of=call("torch.storage", "_load_from_bytes", TOUCH))),
        "a persistent id that is text": (INVALID, tensor(of=text("storage") + b"Q")),
        "a persistent id of another kind": (INVALID, tensor(of=tup(text("module"), b"N", b"N", b"N", b"N") + b"Q")),
        "a persistent id that is short": (INVALID, tensor(of=tup(text("storage")) + b"Q")),
        "a storage of an unknown class": (UNSUPPORTED, tensor(kind="Storage2")),
        "a storage of another's class": (UNSUPPORTED, tensor(module="evil")),
        "a storage of no known type": (UNSUPPORTED, tensor(kind="ComplexHalfStorage")),
        "a key that is a number": (INVALID, tensor(of=tup(text("storage"), glob("torch", "FloatStorage"), number(0),
                                                         text("cpu"), number(4)) + b"Q")),
        "a key with ..": (INVALID, tensor(key="../data.pkl")),
        "a key that is a path": (INVALID, tensor(key="/etc/passwd")),
        "a storage that is not there": (INVALID, tensor(key="7")),
        "two elements, one of them beyond the storage": (INVALID, tensor(size=(2,), stride=(4,))),
        "a storage smaller than said": (INVALID, tensor(count=5)),
        "a storage larger than said": (INVALID, tensor(count=3, size=(3,))),
        "a storage of a negative size": (INVALID, tensor(count=-4)),
        "a storage of 2^63 - 1": (INVALID, tensor(count=huge)),
        "a storage with two sizes": (INVALID, dictionary(a=tensor(), b=tensor(count=2, size=(2,)))),
        "an untyped storage without a dtype": (INVALID, tensor(kind="UntypedStorage", module="torch.storage", count=16)),
        "a dtype that is none": (UNSUPPORTED, tensor(rebuild="_rebuild_tensor_v3", kind="UntypedStorage", count=16,
                                                    more=[glob("torch", "float7")])),
        "a dtype that is text": (INVALID, tensor(rebuild="_rebuild_tensor_v3", kind="UntypedStorage", count=16,
                                                more=[text("float32")])),
        "a quantized dtype": (UNSUPPORTED, tensor(rebuild="_rebuild_tensor_v3", kind="UntypedStorage", count=16,
                                                 more=[glob("torch", "qint8")])),
        "a conj bit": (UNSUPPORTED, tensor(more=[dictionary(conj=b"\x88")])),
        "a neg bit": (UNSUPPORTED, tensor(more=[dictionary(neg=b"\x88")])),
        "a quantized tensor": (UNSUPPORTED, raw_tensor(
            storage(kind="QInt8Storage", count=16), number(0), numbers((16,)), numbers((1,)),
            tup(glob("torch", "per_tensor_affine"), b"G" + b"\0" * 8, number(0)), b"\x89", ORDERED,
            rebuild="_rebuild_qtensor")),
        "a meta tensor": (UNSUPPORTED, raw_tensor(glob("torch", "float32"), numbers((4,)), numbers((1,)), b"\x89",
                                                 rebuild="_rebuild_meta_tensor_no_storage")),
        "a nested tensor": (UNSUPPORTED, raw_tensor(tensor(), rebuild="_rebuild_nested_tensor")),
        "a wrapper of a tensor": (UNSUPPORTED, raw_tensor(tensor(), rebuild="_rebuild_wrapper_subclass")),
        "a tensor from numpy": (UNSUPPORTED, raw_tensor(b"N", rebuild="_rebuild_device_tensor_from_numpy")),
        "hooks that hold a tensor": (UNSUPPORTED, tensor(hooks=b"](" + tensor() + b"e")),
        "a parameter's hooks that hold a tensor": (UNSUPPORTED, raw_tensor(
            tensor(), b"\x89", dictionary(h=tensor()), rebuild="_rebuild_parameter")),
        "a parameter's state that holds a tensor": (UNSUPPORTED, raw_tensor(
            tensor(), b"\x89", ORDERED, dictionary(h=tensor()), rebuild="_rebuild_parameter_with_state")),
        "a parameter of a number": (UNSUPPORTED, raw_tensor(number(1), b"\x89", ORDERED, rebuild="_rebuild_parameter")),
        "a parameter that is its own": (UNSUPPORTED, glob("torch._utils", "_rebuild_parameter") + b"(" + b"]q\x00" +
                                        b"h\x00a" + b"\x89" + ORDERED + b"tR"),
        "ten parameters around a tensor": (
            UNSUPPORTED, b"".join(glob("torch._utils", "_rebuild_parameter") + b"(" for _ in range(10)) + tensor() +
            (b"\x89" + ORDERED + b"tR") * 10),
        "a subclass of somebody's own": (UNSUPPORTED, call(
            "torch._tensor", "_rebuild_from_type_v2", glob("torch._utils", "_rebuild_tensor_v2"), glob("my", "Tensor"),
            tup(storage(), number(0), numbers((4,)), numbers((1,)), b"\x89", ORDERED), b"}")),
        "a storage alone": (UNSUPPORTED, dictionary(s=storage())),
        "a storage as a key": (UNSUPPORTED, b"}" + storage() + b"K\x01s"),
        "a tensor under a tuple": (UNSUPPORTED, b"}" + tup(number(1)) + tensor() + b"s"),
        "two tensors of one name": (UNSUPPORTED, b"}(" + text("a.b") + tensor() + text("a") +
                                    dictionary(b=tensor()) + b"u"),
        "a tensor without a name": (DONE, dictionary(**{"": tensor()})),
        "a name that is not UTF-8": (UNSUPPORTED, b"}" + text(b"\xff\xfe") + tensor() + b"s"),
        "a sparse layout that is unknown": (UNSUPPORTED, *sparse("torch.sparse_bsc", number(1), storages=two)),
        "a sparse tensor without parts": (INVALID, *sparse("torch.sparse_coo", storages=two)),
        "coo indices of the wrong shape": (INVALID, *sparse("torch.sparse_coo", long_tensor("1", 4), tensor(), size,
                                                          storages=two)),
        "coo indices that are floats": (INVALID, *sparse("torch.sparse_coo", tensor((2, 2), (2, 1)), tensor((2,)), size,
                                                       storages=two)),
        "a coo index out of range": (INVALID, *sparse(
            "torch.sparse_coo", long_tensor("1", 2, 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, 1, 1, 2)})),
        "a negative coo index": (INVALID, *sparse(
            "torch.sparse_coo", long_tensor("1", 2, 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, -1, 1, 0)})),
        "hybrid values": (UNSUPPORTED, *sparse("torch.sparse_coo", long_tensor("1", 2, 2), tensor((2, 2), (2, 1)), size,
                                             storages=two)),
        "values that are no tensor": (INVALID, *sparse("torch.sparse_coo", long_tensor("1", 2, 2), number(1), size,
                                                     storages=two)),
        "csr pointers of the wrong length": (INVALID, *sparse(
            "torch.sparse_csr", long_tensor("1", 4), long_tensor("2", 2), tensor((2,)), size,
            storages={**two, "2": longs(0, 1)})),
        "csr pointers that fall": (INVALID, *sparse(
            "torch.sparse_csr", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, 2, 1), "2": longs(0, 1)})),
        "csr pointers that begin late": (INVALID, *sparse(
            "torch.sparse_csr", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(1, 1, 2), "2": longs(0, 1)})),
        "csr pointers that end late": (INVALID, *sparse(
            "torch.sparse_csr", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, 1, 3), "2": longs(0, 1)})),
        "a csr index out of range": (INVALID, *sparse(
            "torch.sparse_csr", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, 1, 2), "2": longs(0, 2)})),
        "a csr tensor of three dimensions": (UNSUPPORTED, *sparse(
            "torch.sparse_csr", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), numbers((2, 2, 2)),
            storages={"0": FLOATS, "1": longs(0, 1, 2), "2": longs(0, 1)})),
        "csc pointers of the wrong length": (INVALID, *sparse(
            "torch.sparse_csc", long_tensor("1", 4), long_tensor("2", 2), tensor((2,)), size,
            storages={**two, "2": longs(0, 1)})),
        "csc pointers that fall": (INVALID, *sparse(
            "torch.sparse_csc", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, 2, 1), "2": longs(0, 1)})),
        "csc pointers that begin late": (INVALID, *sparse(
            "torch.sparse_csc", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(1, 1, 2), "2": longs(0, 1)})),
        "csc pointers that end late": (INVALID, *sparse(
            "torch.sparse_csc", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, 1, 3), "2": longs(0, 1)})),
        "csr pointers to no values": (INVALID, *sparse(
            "torch.sparse_csr", long_tensor("1", 3), long_tensor("2", 0), tensor((0,)), size,
            storages={"0": FLOATS, "1": longs(9, -1, 5), "2": b""})),
        "csc pointers to no values": (INVALID, *sparse(
            "torch.sparse_csc", long_tensor("1", 3), long_tensor("2", 0), tensor((0,)), size,
            storages={"0": FLOATS, "1": longs(9, -1, 5), "2": b""})),
        "a csc index out of range": (INVALID, *sparse(
            "torch.sparse_csc", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, 1, 2), "2": longs(0, 2)})),
        "a csc tensor of three dimensions": (UNSUPPORTED, *sparse(
            "torch.sparse_csc", long_tensor("1", 3), long_tensor("2", 2), tensor((2,)), numbers((2, 2, 2)),
            storages={"0": FLOATS, "1": longs(0, 1, 2), "2": longs(0, 1)})),
    }


def archives():
    good = dictionary(w=tensor())
    deflated = archive(good, {"0": FLOATS}, method=zipfile.ZIP_DEFLATED)
    bomb = archive(dictionary(w=tensor(size=(1 << 20,), count=1 << 20)), {"0": bytes(1 << 22)},
                   method=zipfile.ZIP_DEFLATED)
    return {
        "no data.pkl": (INVALID, archive(good, root="a/", entries=[("constants.txt", b"")]).replace(b"data.pkl", b"data.pkx")),
        "a data.pkl that was deflated to little": (UNSUPPORTED, archive(b"](" + b"]Na" * 3000000 + b"e", method=zipfile.ZIP_DEFLATED)),
        "data.pkl twice": (INVALID, archive(good, entries=[("b/data.pkl", pickled(good))])),
        "TorchScript": (UNSUPPORTED, archive(good, entries=[("a/constants.pkl", pickled(b")"))])),
        "a mobile TorchScript": (UNSUPPORTED, archive(good, entries=[("a/bytecode.pkl", pickled(b")"))])),
        "an exported program": (UNSUPPORTED, archive(good, entries=[("a/archive_format", b"pt2")])),
        "an unknown byte order": (UNSUPPORTED, archive(good, entries=[("a/byteorder", b"middle")])),
        "a storage twice": (INVALID, archive(good, {"0": FLOATS, "1": FLOATS}).replace(b"a/data/1", b"a/data/0")),
        "a wrong CRC of a storage": (INVALID, edit(edit(GOOD, CENTRAL, 16, b"\1\2\3\4", last=True), LOCAL, 14,
                                                  b"\1\2\3\4", last=True)),
        "a wrong CRC of data.pkl": (INVALID, edit(edit(GOOD, CENTRAL, 16, b"\1\2\3\4"), LOCAL, 14, b"\1\2\3\4")),
        "changed bytes in a storage": (INVALID, GOOD.replace(FLOATS, FLOATS[:-1] + b"\x41")),
        "storages that overlap": (INVALID, overlapping()),
        "zip64 sizes that are forged": (INVALID, forged_zip64()),
        "a stored entry of two sizes": (INVALID, edit(GOOD, CENTRAL, 24, u32(1 << 20), last=True)),
        "an entry past the end": (INVALID, edit(GOOD, CENTRAL, 42, u32(1 << 30), last=True)),
        "an entry of another name": (INVALID, edit(GOOD, b"a/data/0", 7, b"1")),
        "an encrypted storage": (UNSUPPORTED, edit(edit(GOOD, CENTRAL, 8, b"\1\0", last=True), LOCAL, 6, b"\1\0", last=True)),
        "a storage in bzip2": (UNSUPPORTED, archive(good, method=zipfile.ZIP_BZIP2)),
        "a directory cut off": (INVALID, GOOD[:-30]),
        "no end record": (INVALID, GOOD[:-22]),
        "a directory past the end": (INVALID, edit(GOOD, END, 16, u32(1 << 30))),
        "more entries than there are": (INVALID, edit(GOOD, END, 10, b"\x09\0")),
        "a deflated storage that is cut": (INVALID, edit(edit(deflated, CENTRAL, 20, u32(3), last=True), LOCAL, 18, u32(3), last=True)),
        "a deflated entry that claims too much": (INVALID, edit(edit(bomb, CENTRAL, 24, u32(0xfffffff0), last=True), LOCAL, 22,
                                                              u32(0xfffffff0), last=True)),
        "data.pkl of 300 MiB in 300 KiB": (UNSUPPORTED, large_pickle()),
    }


def streams():
    part = tup(text("v"), number(2), number(4))
    def view(*items):
        return dictionary(w=tensor((1,), of=stream_storage(view=tup(*items))))
    return {
        "another magic": (UNSUPPORTED, stream(magic=pickled(number(0x1950a86a20f9469cfc6d)))),
        "a pickle and no more": ((INVALID, UNSUPPORTED), pickled(dictionary(a=number(1)))),
        "another protocol number": (UNSUPPORTED, stream(protocol=pickled(number(1002)))),
        "a protocol that is text": (UNSUPPORTED, stream(protocol=pickled(text("1001")))),
        "keys that are a dict": (INVALID, stream(keys=b"}")),
        "keys that are numbers": (INVALID, stream(keys=b"](K\x00e")),
        "a key listed twice": (INVALID, stream(keys=b"](" + text("0") * 2 + b"e", data=(u64(4) + FLOATS) * 2)),
        "a key nobody mentions": (INVALID, stream(keys=b"](" + text("0") + text("9") + b"e")),
        "no key": (INVALID, stream(keys=b"]", data=b"")),
        "a count too small": (INVALID, stream(data=u64(3) + FLOATS)),
        "a count of 2^64 - 1": (INVALID, stream(data=u64((1 << 64) - 1) + FLOATS)),
        "a storage of 2^60": (INVALID, stream(body=dictionary(w=tensor(of=stream_storage(count=1 << 60))),
                                              data=u64(1 << 60) + FLOATS)),
        "bytes after the last storage": (INVALID, stream(data=u64(4) + FLOATS + b"x")),
        "a storage cut off": (INVALID, stream(data=u64(4) + FLOATS[:-1])),
        "a count cut off": (INVALID, stream(data=b"\4\0\0")),
        "no storages": (INVALID, stream(data=b"")),
        "no list of keys": (INVALID, MAGIC + PROTOCOL + SYSTEM + pickled(dictionary(w=tensor(of=stream_storage())))),
        "the magic and no more": (INVALID, MAGIC),
        "a part outside the whole": (INVALID, stream(body=dictionary(w=tensor(of=stream_storage(view=part))))),
        "a part with a negative offset": (INVALID, stream(body=view(text("v"), number(-1), number(1)))),
        "a part that is short": (INVALID, stream(body=view(text("v")))),
        "a tensor beyond its part": (INVALID, stream(body=dictionary(
            w=tensor((3,), of=stream_storage(view=tup(text("v"), number(1), number(2))))))),
        "a tar file": (UNSUPPORTED, b"storages".ljust(257, b"\0") + b"ustar\0" + bytes(1000)),
    }


class Hostile(EndToEnd):

    def attempt(self, name, status, data, pipe=False):
        source, output = self.put("hostile.pt", data), self.path("out.zt")
        output.unlink(missing_ok=True)
        arguments = [PROGRAM, "convert", "-f", "--from", "torch", "-" if pipe else source, "-o", output]

        def limited():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   cwd=self.folder, preexec_fn=limited)
        try:
            _, errors = process.communicate(data if pipe else b"", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        statuses = status if isinstance(status, tuple) else (status,)
        self.assertIn(process.returncode, statuses, f"{name}: {errors.decode(errors='replace')}")
        if process.returncode != DONE:
            self.assertRegex(errors.decode(errors="replace"), r"\Aztstream: [^\n]+\n\Z", name)
            self.assertFalse(output.exists(), name)
        self.assertFalse(self.path(SENTINEL).exists(), name)

    def test_a_good_one_is_good(self):
        self.attempt("archive", DONE, GOOD)
        self.attempt("stream", DONE, stream())
        self.attempt("stream from a pipe", DONE, stream(), pipe=True)

    def test_pickles(self):
        for name, (status, body) in pickles().items():
            with self.subTest(name):
                self.attempt(name, status, archive(body))

    def test_tensors(self):
        for name, (status, body, *storages) in tensors().items():
            with self.subTest(name):
                self.attempt(name, status, archive(body if body.startswith(b"}") else dictionary(w=body), *storages))

    def test_archives(self):
        for name, (status, data) in archives().items():
            with self.subTest(name):
                self.attempt(name, status, data)

    def test_streams(self):
        for name, (status, data) in streams().items():
            for pipe in (False, True):
                with self.subTest(name, pipe=pipe):
                    self.attempt(name, status, data, pipe)

    def test_there_are_many(self):
        self.assertGreaterEqual(len(pickles()) + len(tensors()) + len(archives()) + 2 * len(streams()), 150)

    @classmethod
    def tearDownClass(cls):
        """No run above took more memory than it may; the largest of them is known at the end."""
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        sanitized = b"__asan_init" in pathlib.Path(PROGRAM).read_bytes()
        if not sanitized and most > MEMORY:
            raise AssertionError(f"a run took {most >> 20} MiB, {MEMORY >> 20} are allowed")
