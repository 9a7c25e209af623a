"""safetensors files and folders of them, each with one rule broken: rows of agreement.py."""
import json

import make_safetensors
from agreement import GOOD, MALFORMED, REFUSED

OF_ANY_KIND = ""  # INVALID or UNSUPPORTED, as what is left of it looks
TOP = (1 << 64) - 1


def entry(dtype="U8", shape=(4,), begin=0, end=4, **fields):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **fields}


def headers():
    """(name, kind, header, data, what must be said)."""
    one = json.dumps(entry())
    for text in ("", "{", "}", "[]", "null", "1", '"a"', "{]", '{"a"}', '{"a":}', '{"a":1}', '{"a":[]}', '{"a":{}}', "{'a':{}}", "{,}",
                 f'{{"a":{one},}}', f'{{"a":{one}}} {{}}', f'{{"a":{one}}}x'):
        yield f"no JSON, or of another form: {text}", OF_ANY_KIND, text, b"abcd", ""
    # Whatever else is wrong before it.
    for text in ('{"a":1,"b"}', '{"a":{"dtype":"F99","shape":[4],"data_offsets":[0,4]},"b":tru}', '{"a":{}} {}',
                 '{"a":{"shape":[4],"shape":[4]},"\\q":1}'):
        yield f"no JSON behind something else: {text}", MALFORMED, text, b"abcd", "the header is not JSON"
    yield "no UTF-8", MALFORMED, b'{"\xff":' + one.encode() + b"}", b"abcd", ""
    yield "half a pair of surrogates", MALFORMED, '{"\\ud800":' + one + "}", b"abcd", ""
    for depth in (100, 100_000, 5_000_000):
        yield f"{depth} lists", OF_ANY_KIND, "[" * depth, b"", ""
        yield f"{depth} maps", MALFORMED, '{"a":' * depth, b"", ""
    twice = {"a": f'{{"a":{one},"a":{one}}}', "'a'": f'{{"a":{one},"\\u0061":{one}}}', "'k'": f'{{"__metadata__":{{"k":"1","k":"2"}},"a":{one}}}',
             "__metadata__": f'{{"__metadata__":{{}},"__metadata__":{{}},"a":{one}}}'}
    for key, value in entry().items():
        twice[key] = f'{{"a":{one[:-1]},{json.dumps(key)}:{json.dumps(value)}}}}}'
    for says, text in twice.items():
        yield f"{says} twice", MALFORMED, text, b"abcd", says
    for key, values in {"dtype": [None, 1, [], {}, ["U8"]], "shape": [None, 4, "4", {}, [4.0], ["4"], [-4], [[4]], [True], [1e3]],
                        "data_offsets": [None, 4, "0,4", {}, [], [4], [0, 2, 4], [0.0, 4.0], [-4, 0], ["0", "4"]]}.items():
        yield f"no {key}", MALFORMED, {"a": {name: value for name, value in entry().items() if name != key}}, b"abcd", ("'a'", key)
        for value in values:
            yield f"{key} {value}", MALFORMED, {"a": entry(**{}) | {key: value}}, b"abcd", "'a'"
    yield "no metadata", GOOD, {"__metadata__": None, "a": entry()}, b"abcd", ""
    yield "a field of its own", GOOD, {"a": entry(note={"x": [1]})}, b"abcd", ""
    yield "null metadata, and then some", MALFORMED, '{"__metadata__":null,"__metadata__":{"a":"b"},"a":%s}' % one, b"abcd", "'__metadata__' occurs twice"
    for text in ("[1,{\"b\":tru}]", "01", "nul", "\"\\x\"", "{\"a\" 1}", "[1,]", "[" * 2000 + "]" * 2000):
        yield f"a field of its own that is no JSON: {text[:20]}", MALFORMED, '{"a":{"note":%s,%s}}' % (text, one[1:-1]), b"abcd", "the header is not JSON"
    yield "a field of its own that is no JSON", MALFORMED, '{"a":{"note":[1 2],%s}}' % one[1:-1], b"abcd", "the header is not JSON"
    for metadata in (1, "x", [], {"k": 1}, {"k": None}, {"k": ["v"]}, {"k": {"a": "b"}}):
        yield f"metadata {metadata}", MALFORMED, {"__metadata__": metadata, "a": entry()}, b"abcd", "__metadata__"
    for name, (a, b) in {"a hole between": ((0, 4), (5, 9)), "a hole before": ((1, 5), (5, 9)), "an overlap": ((0, 4), (3, 7)),
                         "the same bytes twice": ((0, 4), (0, 4)), "a byte more": ((0, 4), (4, 8))}.items():
        yield name, MALFORMED, {"a": entry(begin=a[0], end=a[1]), "b": entry(begin=b[0], end=b[1])}, bytes(9), ""
    for begin, end in ((0, 5), (4, 0), (2, 6), (4, 8), (TOP - 3, TOP), (TOP, 3), (0, TOP), (0, 1 << 63)):
        yield (f"offsets {begin} to {end}", MALFORMED, {"a": entry(begin=begin, end=end)}, b"abcd",
               "data_offsets run backwards" if end < begin else "'a'")
    for number in (1 << 64, 1 << 70, 1 << 200):
        for made in (entry(shape=[number]), entry(begin=number, end=number + 4)):
            yield f"{number}", MALFORMED, {"a": made}, b"abcd", "the header is not JSON"
    for dtype, shape in (("U8", [3]), ("U8", [5]), ("F32", [4]), ("F64", []), ("U8", []), ("U8", [0]), ("U8", [4, 0]), ("F4", [7]),
                         ("F6_E2M3", [4]), *(("F32", shape) for shape in ([1 << 32, 1 << 32], [1 << 63, 2], [TOP] * 8, [1 << 62, 4, 4])),
                         ("U8", [1 << 50]), ("F64", [1 << 58])):
        yield f"{dtype} {shape} of four bytes", MALFORMED, {"a": entry(dtype, shape)}, b"abcd", "'a'"
    yield "a scalar", GOOD, {"a": entry("F32", ())}, b"abcd", ""
    yield "2^50 bytes that are not there", MALFORMED, {"a": entry(shape=[1 << 50], end=1 << 50)}, b"abcd", "the file has 4 of them"
    for dtype, shape, data in (("F4", [3], b"a"), ("F6_E2M3", [3], b"ab")):
        yield f"half a byte of {dtype}", MALFORMED, {"a": entry(dtype, shape, 0, len(data))}, data, "'a'"
    for rank in (65, 1_000_000):
        yield f"{rank} dimensions", OF_ANY_KIND, {"a": entry("U8", [1] * rank, 0, 1)}, b"a", "'a'"
    for dtype in ("F7", "f32", "BF8", "", "F32 "):
        yield f"dtype '{dtype}'", REFUSED, {"a": entry(dtype)}, b"abcd", ("'a'", dtype)
    yield "control characters", MALFORMED, {"x\n\x1b[2Jy": entry("U8", [5])}, b"abcd", r"x\n\x1b[2Jy"


def files():
    for name, kind, header, data, says in headers():
        yield name, kind, make_safetensors.raw(header, data), says
    sample = make_safetensors.encode(make_safetensors.sample())
    yield "a byte more", MALFORMED, sample + b"\0", ""
    good = json.dumps({"a": entry()})
    for length in (0, 1, len(good) - 1, len(good) + 1, len(good) + 5, 100_000_000, 100_000_001, 1 << 32, (1 << 63) - 1, 1 << 63,
                   (1 << 64) - 8, TOP):
        yield f"length {length}", OF_ANY_KIND, make_safetensors.raw(good, b"abcd", length), ""
    content = make_safetensors.encode(make_safetensors.sample(("a", "b"), "U8", (5,)))
    for length in (0, 1, 7, 8, 20, len(content) - 1):
        yield f"the first {length} bytes", MALFORMED, content[:length], ""
    for name, data in (("one zero", b"\0"), ("a text", b"hello, world; this is no tensor file of any kind\n"), ("noise", bytes(range(7, 251)) * 16)):
        yield name, OF_ANY_KIND, data, ""


SHARDS = {"model-1.safetensors": ("a", "b"), "model-2.safetensors": ("c",)}


def checkpoint(index=None, shards=None, more=None, given="m"):
    """A folder m of shards, {name: names of tensors}, with an index: a text, or {tensor: shard}."""
    shards = SHARDS if shards is None else shards
    if not isinstance(index, str):
        index = json.dumps({"metadata": {"total_size": 768}, "weight_map": index or {name: shard for shard, names in SHARDS.items()
                                                                                   for name in names}})
    files = {f"m/{shard}": make_safetensors.encode(make_safetensors.sample(names)) for shard, names in shards.items()}
    return {given: None} | files | {"m/model.safetensors.index.json": index.encode()} | (more or {})


def folders():
    """(name, kind, files, what must be said)."""
    by_name = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
    both, first = SHARDS, {"model-1.safetensors": ("a", "b")}
    yield "a checkpoint", GOOD, checkpoint(), ""
    yield "all shards missing", MALFORMED, checkpoint(shards={}), "shards model-1.safetensors, model-2.safetensors are missing"
    yield "a shard missing", MALFORMED, checkpoint(shards=first), "model-2.safetensors"
    yield "a name in two shards", MALFORMED, checkpoint(shards=first | {"model-2.safetensors": ("c", "a")}), "'a'"
    yield "a tensor that its shard lacks", MALFORMED, checkpoint(by_name | {"d": "model-2.safetensors"}), ("'d'", "model-2.safetensors")
    yield "a tensor in the wrong shard", MALFORMED, checkpoint(by_name | {"a": "model-2.safetensors"}), "'a'"
    yield "a tensor that the index lacks", MALFORMED, checkpoint({"a": by_name["a"], "c": by_name["c"]}), ("'b'", "model-1.safetensors")
    yield "a name twice", MALFORMED, checkpoint('{"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors",'
                                                '"c":"model-2.safetensors","c":"model-2.safetensors"}}'), "c"
    for text in ("", "{", "[]", "{}", '{"weight_map":1}', '{"weight_map":[]}', '{"weight_map":{"a":1}}', '{"weight_map":{"a":null}}',
                 '{"weight_map":{}}x'):
        yield f"the index {text}", MALFORMED, checkpoint(text), ""
    outside = {"outside.safetensors": make_safetensors.encode(make_safetensors.sample(("c",)))}
    for name in ("../outside.safetensors", "/outside.safetensors", "./../outside.safetensors", "x/../../outside.safetensors", "..", "", ".",
                 "a\0b"):
        yield (f"a shard {name!r}", MALFORMED, checkpoint(by_name | {"c": name}, more=outside),
               "only files of the folder itself are read")
    cut = {"m/model-2.safetensors": make_safetensors.encode(make_safetensors.sample(("c",)))[:-1]}
    yield "a shard that is cut", MALFORMED, checkpoint(more=cut), "model-2.safetensors"
    consolidated = make_safetensors.encode(make_safetensors.sample(("a", "z")))
    yield "a file that the index does not name", GOOD, checkpoint(shards=both, more={"m/consolidated.safetensors": consolidated}), ""


def rows():
    for name, kind, content, says in files():
        # From a pipe, that there is no room for 2^50 bytes is noticed first.
        yield f"safetensors: {name}"[:100], "safetensors-file" if name.startswith("2^50") else "safetensors", content, kind, says
    for name, kind, content, says in folders():
        index = {"m/model.safetensors.index.json": content["m/model.safetensors.index.json"]}
        yield f"folder: {name}", "folder", content, kind, says
        yield f"index: {name}", "folder", index | {path: each for path, each in content.items() if path != "m"}, kind, says
