"""Hostile PyTorch files: pickles, archives and legacy streams that no torch would write: rows of agreement.py.

Nothing in them is executed: what would be leaves a file named SENTINEL.
"""
import io
import struct
import zipfile

from agreement import BAD, GOOD, UNKNOWN
from pickle_assembler import (FLOATS, MAGIC, ORDERED, PROTOCOL, SYSTEM, archive, call, dictionary, glob, number,
                              numbers, pickled, raw_tensor, storage, stream, stream_storage, tensor, text, tup, u32, u64)


def edit(data, find, offset, new, last=False):
    """`data` with bytes replaced at `offset` from where `find` is."""
    place = (data.rindex(find) if last else data.index(find)) + offset
    return data[:place] + new + data[place + len(new):]


GOOD_ARCHIVE = archive(dictionary(w=tensor()))
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

SENTINEL = "executed"  # a file that none leaves
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
        "lists of shared lists": (GOOD, shared),
        "dicts of shared dicts": (UNKNOWN, dicts),
        "lists of a shared tensor": (UNKNOWN, tensors),
        "a long text shared a hundred thousand times": ("", big + b"](" + b"h\x00" * 100000 + b"e"),
        "a long key shared": (UNKNOWN, big + b"}(h\x00}(h\x00" * 90 + tensor() + b"uu" * 90),
        "a list that holds itself": (GOOD, b"]q\x00h\x00a"),
        "a list that holds itself twice": (GOOD, b"]q\x00(h\x00h\x00e"),
        "a list that holds itself and a tensor": (GOOD, b"]q\x00(h\x00" + tensor() + b"e"),
        "a dict that holds itself": (GOOD, b"}q\x00" + text("k") + b"h\x00s"),
        "a call whose state is itself": (GOOD, call("a", "B") + b"q\x00h\x00b"),
        "lists nested a hundred thousand deep": (GOOD, b"]" * 100000 + b"a" * 99999),
        "tuples nested a hundred thousand deep": (GOOD, b")" + b"\x85" * 100000),
        "tuples nested deep around a tensor": (UNKNOWN, tensor() + b"\x85" * 100000),
        "sparse tensors twenty thousand deep": (UNKNOWN, dictionary(w=sparse * 20000 + tensor() + b"NNttR" * 20000)),
        "sizes of sizes of sizes": (GOOD, dictionary(w=tensor(), s=b"ctorch\nSize\n(" * 200000 + b")" + b"tR" * 200000)),
        "a million marks": (BAD, b"(" * 1000000),
        "a million values": (BAD, b"N" * 1000000),
        "a million empty dicts": ("", b"](" + b"}" * 1000000 + b"e"),
    }


def opcodes():
    rows = {}
    for opcode in (0x00, 0x01, 0x20, 0x7f, 0x99, 0xa0, 0xfe, 0xff, ord("z"), ord("Z")):
        rows[f"unknown opcode {opcode:#x}"] = (BAD, bytes([opcode]))
    for opcode in b"LFSVPpgio":
        rows[f"protocol 0's opcode {chr(opcode)}"] = (UNKNOWN, bytes([opcode]) + b"0\n")
    for opcode in (0x82, 0x83, 0x84, 0x97, 0x98):
        rows[f"opcode {opcode:#x}"] = (UNKNOWN, bytes([opcode]) + b"\x01\x00\x00\x00")
    for opcode in b"KMJGXUTBChjqrc\x8a\x8b\x8c\x8d\x8e\x95\x96":
        rows[f"opcode {opcode:#x} cut off"] = (BAD, (b"\x80\x02N" + bytes([opcode]),))
    for opcode in b"\x85\x86\x87tldasue01\x90\x91RbQ\x81\x92\x93q":
        rows[f"opcode {opcode:#x} on an empty stack"] = (BAD, bytes([opcode]) + b"\x00")
    return rows


def pickles():
    return {
        **opcodes(), **bombs(),
        "nothing": (BAD, (b"",)),
        "a protocol and no more": (BAD, (b"\x80\x02",)),
        "protocol 0": (UNKNOWN, (b"(dp0\n.",)),
        "protocol 1": (UNKNOWN, (b"\x80\x01}.",)),
        "protocol 6": (UNKNOWN, (b"\x80\x06}.",)),
        "no STOP": (BAD, (b"\x80\x02}",)),
        "STOP without a value": (BAD, b""),
        "STOP with two values": (BAD, b"NN"),
        "STOP above a mark": (BAD, b"N("),
        "bytes after STOP": (BAD, (pickled(b"}") + b"x",)),
        "a text of 4 GiB": (BAD, b"X" + u32(0xffffffff)),
        "a text of 2^63 bytes": (BAD, b"\x8d" + u64(1 << 63)),
        "bytes of 2^64 - 1": (BAD, b"\x8e" + u64((1 << 64) - 1)),
        "a bytearray of 2^40": (BAD, b"\x96" + u64(1 << 40)),
        "a number of 4 GiB": (BAD, b"\x8b" + u32(0xffffffff)),
        "a memo number never set": (BAD, b"h\x07"),
        "a large memo number never set": (BAD, b"j" + u32(1 << 31)),
        "a memo number of 4 billion": (BAD, b"Nr" + u32(0xffffffff)),
        "MEMOIZE without a value": (BAD, b"\x94"),
        "append to a number": (BAD, b"K\x01K\x02a"),
        "appends to a dict": (BAD, b"}(K\x01e"),
        "setitems of three": (BAD, b"}(K\x01K\x02K\x03u"),
        "setitem on a list": (BAD, b"]K\x01K\x02s"),
        "additems to a tuple": (BAD, b")(K\x01\x90"),
        "a state for a number": (BAD, b"K\x01}b"),
        "two states": (BAD, call("a", "B") + b"}b}b"),
        "a dict and a list at once": (BAD, call("a", "B") + b"(K\x01e(K\x01K\x02u"),
        "arguments that are no tuple": (BAD, glob("a", "B") + b"]R"),
        "a class named by numbers": (BAD, b"K\x01K\x02\x93"),
        "a name without an end": (BAD, (b"\x80\x02c" + b"a" * 100,)),
        "a name of 10,000 bytes": (BAD, glob("a" * 10000, "b")),
        "an ordered dict of no pairs": (BAD, call("collections", "OrderedDict", b"](" + tensor() + b"e")),
        "a list added to an ordered dict": (BAD, ORDERED + b"(" + tensor() + b"e"),
        # What would run, were it run.
        "os.system": (GOOD, call("os", "system", TOUCH)),
        "posix.system among values": (GOOD, dictionary(w=tensor(), x=call("posix", "system", TOUCH))),
        "builtins.eval": (GOOD, dictionary(x=call("builtins", "eval", text(f"open('{SENTINEL}', 'w')")))),
        "builtins.exec by STACK_GLOBAL": (GOOD, text("builtins") + text("exec") + b"\x93" +
                                          tup(text(f"open('{SENTINEL}', 'w')")) + b"R"),
        "subprocess.Popen by NEWOBJ": (GOOD, glob("subprocess", "Popen") + tup(TOUCH) + b"\x81"),
        "os.system given a storage": (UNKNOWN, dictionary(x=call("os", "system", TOUCH, storage()))),
        "an object whose state holds a tensor": (UNKNOWN, call("my", "Model") + dictionary(w=tensor()) + b"b"),
        "an object to which tensors are added": (GOOD, call("my", "List") + b"(" + tensor() + b"e"),
        "an object made of keywords with a tensor": (
            UNKNOWN, glob("my", "Model") + b")" + dictionary(w=tensor()) + b"\x92"),
        "a function that makes the function": (
            UNKNOWN, call("functools", "partial", glob("os", "system")) + tup(TOUCH, storage()) + b"R"),
        "an ordered dict with tensors in its state": (
            UNKNOWN, ORDERED + dictionary(hidden=tensor()) + b"b"),
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
        "a negative offset": (BAD, tensor(offset=-1)),
        "a negative size": (BAD, tensor(size=(-4,))),
        "a negative stride": (BAD, tensor(stride=(-1,))),
        "an offset past the end": (BAD, tensor(offset=1)),
        "a far offset": (BAD, tensor(offset=huge)),
        "a size past the end": (BAD, tensor(size=(5,))),
        "a huge size": (BAD, tensor(size=(huge,))),
        "sizes that overflow": (BAD, tensor(size=(1 << 40, 1 << 40), stride=(1, 1))),
        "a stride past the end": (BAD, tensor(stride=(2,))),
        "a huge stride": (BAD, tensor(stride=(huge,))),
        "sizes and strides of two lengths": (BAD, tensor(stride=(1, 1))),
        "more than 64 dimensions": (UNKNOWN, tensor(size=(1,) * 65, stride=(1,) * 65)),
        "an expanded tensor of 2^60 bytes": (UNKNOWN, tensor(size=(1 << 58,), stride=(0,))),
        "an expanded tensor of 2^66 bytes": (BAD, tensor(size=(1 << 32, 1 << 32), stride=(0, 0))),
        "an empty tensor with huge others": (GOOD, tensor(size=(0, 4), stride=(huge, 1))),
        "a size that is text": (BAD, raw_tensor(storage(), number(0), text("4"), numbers((1,)), b"\x89", ORDERED)),
        "a size of texts": (BAD, raw_tensor(storage(), number(0), tup(text("4")), numbers((1,)), b"\x89", ORDERED)),
        "an offset that is text": (BAD, raw_tensor(storage(), text("0"), numbers((4,)), numbers((1,)), b"\x89", ORDERED)),
        "a size above 64 bits": (BAD, tensor(size=(1 << 64,))),
        "arguments missing": (BAD, raw_tensor(storage(), number(0))),
        "no arguments": (BAD, raw_tensor()),
        "no storage": (BAD, tensor(of=b"N")),
        "a storage made by a call": (UNKNOWN, tensor(of=call("torch.storage", "_load_from_bytes", TOUCH))),
        "a persistent id that is text": (BAD, tensor(of=text("storage") + b"Q")),
        "a persistent id of another kind": (BAD, tensor(of=tup(text("module"), b"N", b"N", b"N", b"N") + b"Q")),
        "a persistent id that is short": (BAD, tensor(of=tup(text("storage")) + b"Q")),
        "a storage of an unknown class": (UNKNOWN, tensor(kind="Storage2")),
        "a storage of another's class": (UNKNOWN, tensor(module="evil")),
        "a storage of no known type": (UNKNOWN, tensor(kind="ComplexHalfStorage")),
        "a key that is a number": (BAD, tensor(of=tup(text("storage"), glob("torch", "FloatStorage"), number(0),
                                                         text("cpu"), number(4)) + b"Q")),
        "a key with ..": (BAD, tensor(key="../data.pkl")),
        "a key that is a path": (BAD, tensor(key="/etc/passwd")),
        "a storage that is not there": (BAD, tensor(key="7")),
        "two elements, one of them beyond the storage": (BAD, tensor(size=(2,), stride=(4,))),
        "a storage smaller than said": (BAD, tensor(count=5)),
        "a storage larger than said": (BAD, tensor(count=3, size=(3,))),
        "a storage of a negative size": (BAD, tensor(count=-4)),
        "a storage of 2^63 - 1": (BAD, tensor(count=huge)),
        "a storage with two sizes": (BAD, dictionary(a=tensor(), b=tensor(count=2, size=(2,)))),
        "an untyped storage without a dtype": (BAD, tensor(kind="UntypedStorage", module="torch.storage", count=16)),
        "a dtype that is none": (UNKNOWN, tensor(rebuild="_rebuild_tensor_v3", kind="UntypedStorage", count=16,
                                                    more=[glob("torch", "float7")])),
        "a dtype that is text": (BAD, tensor(rebuild="_rebuild_tensor_v3", kind="UntypedStorage", count=16,
                                                more=[text("float32")])),
        "a quantized dtype": (UNKNOWN, tensor(rebuild="_rebuild_tensor_v3", kind="UntypedStorage", count=16,
                                                 more=[glob("torch", "qint8")])),
        "a conj bit": (UNKNOWN, tensor(more=[dictionary(conj=b"\x88")])),
        "a neg bit": (UNKNOWN, tensor(more=[dictionary(neg=b"\x88")])),
        "a quantized tensor": (UNKNOWN, raw_tensor(
            storage(kind="QInt8Storage", count=16), number(0), numbers((16,)), numbers((1,)),
            tup(glob("torch", "per_tensor_affine"), b"G" + b"\0" * 8, number(0)), b"\x89", ORDERED,
            rebuild="_rebuild_qtensor")),
        "a meta tensor": (UNKNOWN, raw_tensor(glob("torch", "float32"), numbers((4,)), numbers((1,)), b"\x89",
                                                 rebuild="_rebuild_meta_tensor_no_storage")),
        "a nested tensor": (UNKNOWN, raw_tensor(tensor(), rebuild="_rebuild_nested_tensor")),
        "a wrapper of a tensor": (UNKNOWN, raw_tensor(tensor(), rebuild="_rebuild_wrapper_subclass")),
        "a tensor from numpy": (UNKNOWN, raw_tensor(b"N", rebuild="_rebuild_device_tensor_from_numpy")),
        "hooks that hold a tensor": (UNKNOWN, tensor(hooks=b"](" + tensor() + b"e")),
        "a parameter's hooks that hold a tensor": (UNKNOWN, raw_tensor(
            tensor(), b"\x89", dictionary(h=tensor()), rebuild="_rebuild_parameter")),
        "a parameter's state that holds a tensor": (UNKNOWN, raw_tensor(
            tensor(), b"\x89", ORDERED, dictionary(h=tensor()), rebuild="_rebuild_parameter_with_state")),
        "a parameter of a number": (UNKNOWN, raw_tensor(number(1), b"\x89", ORDERED, rebuild="_rebuild_parameter")),
        "a parameter that is its own": (UNKNOWN, glob("torch._utils", "_rebuild_parameter") + b"(" + b"]q\x00" +
                                        b"h\x00a" + b"\x89" + ORDERED + b"tR"),
        "ten parameters around a tensor": (
            UNKNOWN, b"".join(glob("torch._utils", "_rebuild_parameter") + b"(" for _ in range(10)) + tensor() +
            (b"\x89" + ORDERED + b"tR") * 10),
        "a subclass of somebody's own": (GOOD, call(
            "torch._tensor", "_rebuild_from_type_v2", glob("torch._utils", "_rebuild_tensor_v2"), glob("my", "Tensor"),
            tup(storage(), number(0), numbers((4,)), numbers((1,)), b"\x89", ORDERED), b"}")),
        "a storage alone": (UNKNOWN, dictionary(s=storage())),
        "a storage as a key": (UNKNOWN, b"}" + storage() + b"K\x01s"),
        "a tensor under a tuple": (UNKNOWN, b"}" + tup(number(1)) + tensor() + b"s"),
        "two tensors of one name": (UNKNOWN, b"}(" + text("a.b") + tensor() + text("a") +
                                    dictionary(b=tensor()) + b"u"),
        "a tensor without a name": (GOOD, dictionary(**{"": tensor()})),
        "a name that is not UTF-8": (UNKNOWN, b"}" + text(b"\xff\xfe") + tensor() + b"s"),
        "a sparse layout that is unknown": (UNKNOWN, *sparse("torch.sparse_bsc", number(1), storages=two)),
        "a sparse tensor without parts": (BAD, *sparse("torch.sparse_coo", storages=two)),
        "coo indices of the wrong shape": (BAD, *sparse("torch.sparse_coo", long_tensor("1", 4), tensor(), size,
                                                          storages=two)),
        "coo indices that are floats": (BAD, *sparse("torch.sparse_coo", tensor((2, 2), (2, 1)), tensor((2,)), size,
                                                       storages=two)),
        "a coo index out of range": (BAD, *sparse(
            "torch.sparse_coo", long_tensor("1", 2, 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, 1, 1, 2)})),
        "a negative coo index": (BAD, *sparse(
            "torch.sparse_coo", long_tensor("1", 2, 2), tensor((2,)), size,
            storages={"0": FLOATS, "1": longs(0, -1, 1, 0)})),
        "hybrid values": (UNKNOWN, *sparse("torch.sparse_coo", long_tensor("1", 2, 2), tensor((2, 2), (2, 1)), size,
                                             storages=two)),
        "values that are no tensor": (BAD, *sparse("torch.sparse_coo", long_tensor("1", 2, 2), number(1), size,
                                                     storages=two)),
        **{f"{kind} {name}": (of, *sparse(f"torch.sparse_{kind}", long_tensor("1", *pointers), long_tensor("2", indices), tensor((indices,)),
                                          shape, storages={"0": FLOATS, "1": one, "2": other}))
           for kind in ("csr", "csc") for name, of, pointers, one, indices, other, shape in (
               ("pointers of the wrong length", BAD, (4,), two["1"], 2, longs(0, 1), size),
               ("pointers that fall", BAD, (3,), longs(0, 2, 1), 2, longs(0, 1), size),
               ("pointers that begin late", BAD, (3,), longs(1, 1, 2), 2, longs(0, 1), size),
               ("pointers that end late", BAD, (3,), longs(0, 1, 3), 2, longs(0, 1), size),
               ("pointers to no values", BAD, (3,), longs(9, -1, 5), 0, b"", size),
               ("index out of range", BAD, (3,), longs(0, 1, 2), 2, longs(0, 2), size),
               ("tensor of three dimensions", UNKNOWN, (3,), longs(0, 1, 2), 2, longs(0, 1), numbers((2, 2, 2))))},
    }


def archives():
    good = dictionary(w=tensor())
    deflated = archive(good, {"0": FLOATS}, method=zipfile.ZIP_DEFLATED)
    bomb = archive(dictionary(w=tensor(size=(1 << 20,), count=1 << 20)), {"0": bytes(1 << 22)},
                   method=zipfile.ZIP_DEFLATED)
    return {
        "no data.pkl": (BAD, archive(good, root="a/", entries=[("constants.txt", b"")]).replace(b"data.pkl", b"data.pkx")),
        "a data.pkl that was deflated to little": (UNKNOWN, archive(b"](" + b"]Na" * 3000000 + b"e", method=zipfile.ZIP_DEFLATED)),
        "data.pkl twice": (BAD, archive(good, entries=[("b/data.pkl", pickled(good))])),
        "a frozen TorchScript": (UNKNOWN, archive(dictionary(a=number(1)), entries=[("a/constants.pkl", pickled(b")"))])),
        "a frozen mobile TorchScript": (UNKNOWN, archive(dictionary(a=number(1)), entries=[("a/bytecode.pkl", pickled(b")"))])),
        "an exported program": (UNKNOWN, archive(good, entries=[("a/archive_format", b"pt2")])),
        "an unknown byte order": (UNKNOWN, archive(good, entries=[("a/byteorder", b"middle")])),
        "a storage twice": (BAD, archive(good, {"0": FLOATS, "1": FLOATS}).replace(b"a/data/1", b"a/data/0")),
        "a wrong CRC of a storage": (BAD, edit(edit(GOOD_ARCHIVE, CENTRAL, 16, b"\1\2\3\4", last=True), LOCAL, 14,
                                                  b"\1\2\3\4", last=True)),
        "a wrong CRC of data.pkl": (BAD, edit(edit(GOOD_ARCHIVE, CENTRAL, 16, b"\1\2\3\4"), LOCAL, 14, b"\1\2\3\4")),
        "changed bytes in a storage": (BAD, GOOD_ARCHIVE.replace(FLOATS, FLOATS[:-1] + b"\x41")),
        "storages that overlap": (BAD, overlapping()),
        "zip64 sizes that are forged": (BAD, forged_zip64()),
        "a stored entry of two sizes": (BAD, edit(GOOD_ARCHIVE, CENTRAL, 24, u32(1 << 20), last=True)),
        "an entry past the end": (BAD, edit(GOOD_ARCHIVE, CENTRAL, 42, u32(1 << 30), last=True)),
        "an entry of another name": (BAD, edit(GOOD_ARCHIVE, b"a/data/0", 7, b"1")),
        "an encrypted storage": (UNKNOWN, edit(edit(GOOD_ARCHIVE, CENTRAL, 8, b"\1\0", last=True), LOCAL, 6, b"\1\0", last=True)),
        "a storage in bzip2": (UNKNOWN, archive(good, method=zipfile.ZIP_BZIP2)),
        "a directory cut off": (BAD, GOOD_ARCHIVE[:-30]),
        "no end record": (BAD, GOOD_ARCHIVE[:-22]),
        "a directory past the end": (BAD, edit(GOOD_ARCHIVE, END, 16, u32(1 << 30))),
        "more entries than there are": (BAD, edit(GOOD_ARCHIVE, END, 10, b"\x09\0")),
        "a deflated storage that is cut": (BAD, edit(edit(deflated, CENTRAL, 20, u32(3), last=True), LOCAL, 18, u32(3), last=True)),
        "a deflated entry that claims too much": (BAD, edit(edit(bomb, CENTRAL, 24, u32(0xfffffff0), last=True), LOCAL, 22,
                                                              u32(0xfffffff0), last=True)),
        "data.pkl of 300 MiB in 300 KiB": (UNKNOWN, large_pickle()),
    }


def streams():
    part = tup(text("v"), number(2), number(4))
    def view(*items):
        return dictionary(w=tensor((1,), of=stream_storage(view=tup(*items))))
    return {
        "another magic": (UNKNOWN, stream(magic=pickled(number(0x1950a86a20f9469cfc6d)))),
        "a pickle and no more": ("", pickled(dictionary(a=number(1)))),
        "another protocol number": (UNKNOWN, stream(protocol=pickled(number(1002)))),
        "a protocol that is text": (UNKNOWN, stream(protocol=pickled(text("1001")))),
        "keys that are a dict": (BAD, stream(keys=b"}")),
        "keys that are numbers": (BAD, stream(keys=b"](K\x00e")),
        "a key listed twice": (BAD, stream(keys=b"](" + text("0") * 2 + b"e", data=(u64(4) + FLOATS) * 2)),
        "a key nobody mentions": (BAD, stream(keys=b"](" + text("0") + text("9") + b"e")),
        "no key": (BAD, stream(keys=b"]", data=b"")),
        "a count too small": (BAD, stream(data=u64(3) + FLOATS)),
        "a count of 2^64 - 1": (BAD, stream(data=u64((1 << 64) - 1) + FLOATS)),
        "a storage of 2^60": (BAD, stream(body=dictionary(w=tensor(of=stream_storage(count=1 << 60))),
                                              data=u64(1 << 60) + FLOATS)),
        "bytes after the last storage": (BAD, stream(data=u64(4) + FLOATS + b"x")),
        "a storage cut off": (BAD, stream(data=u64(4) + FLOATS[:-1])),
        "a count cut off": (BAD, stream(data=b"\4\0\0")),
        "no storages": (BAD, stream(data=b"")),
        "no list of keys": (BAD, MAGIC + PROTOCOL + SYSTEM + pickled(dictionary(w=tensor(of=stream_storage())))),
        "the magic and no more": (BAD, MAGIC),
        "a part outside the whole": (BAD, stream(body=dictionary(w=tensor(of=stream_storage(view=part))))),
        "a part with a negative offset": (BAD, stream(body=view(text("v"), number(-1), number(1)))),
        "a part that is short": (BAD, stream(body=view(text("v")))),
        "a tensor beyond its part": (BAD, stream(body=dictionary(
            w=tensor((3,), of=stream_storage(view=tup(text("v"), number(1), number(2))))))),
        "a tar file": (UNKNOWN, b"storages".ljust(257, b"\0") + b"ustar\0" + bytes(1000)),
    }


def rows():
    yield "torch: a good archive", "torch", GOOD_ARCHIVE, GOOD
    yield "torch: a good stream", "torch-stream", stream(), GOOD
    for name, (kind, body) in pickles().items():
        yield f"torch: {name}", "torch", archive(body), kind
    for name, (kind, body, *storages) in tensors().items():
        yield f"torch: {name}", "torch", archive(body if body.startswith(b"}") else dictionary(w=body), *storages), kind
    for name, (kind, data) in archives().items():
        yield f"torch: {name}", "torch", data, kind
    for name, (kind, data) in streams().items():
        yield f"torch stream: {name}", "torch-stream", data, kind
