"""diff and verify --against, compared with a computation of their own: random models, and the same with other values, shapes,
types, formats, components or attributes, each written in a random format."""
import copy
import dataclasses
import json
import math
import os
import random
import re
import struct
import zipfile

import numpy

import make_safetensors
import make_zt2
import number_formats
import random_inputs
import support

from random_inputs import dense
from support import DIFFERS, DONE, UNSUPPORTED

SAFETENSORS = {(dtype, kind): name for name, (dtype, kind) in make_safetensors.ZTENSOR.items() if name[:2] not in ("F4", "F6")}
NUMPY = {types: code for code, types in random_inputs.NPY.items()}
GGUF = {name: code for name, code in random_inputs.GGUF_TYPES.items() if name[0] != "q"}
KINDS = [*SAFETENSORS, ("f64", "complex128")]


def elements(rng, name, count):
    """Bytes of `count` elements, floats with NaN, infinities and zeros of both signs."""
    data = random_inputs.random_data(rng, name, count)
    part = number_formats.COMPLEX.get(name, name)
    if part in number_formats.FLOATS and data:
        wide = number_formats.width(part)
        data = bytearray(data)
        for _ in range(rng.choice((0, 0, 2))):
            at = rng.randrange(len(data) // wide) * wide
            special = rng.choice((math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0))
            bits, _ = number_formats.encode(part, numpy.array([special]), False) if part != "f64" else (
                numpy.array([special]).view("<u8"), 0)
            data[at:at + wide] = int(bits[0]).to_bytes(8, "little")[:wide]
    return bytes(data)


def random_tensor(rng):
    if rng.random() < 0.15:
        while True:
            tensor = random_inputs.random_sparse(rng)
            if random_inputs.zt2_says("x", tensor):
                return tensor
    shape = random_inputs.random_shape(rng, 300_000 if rng.random() < 0.01 else 200)
    dtype, kind = rng.choice(KINDS)
    return dense(shape, dtype, elements(rng, kind or dtype, math.prod(shape)), kind)


# ---- what is changed ------------------------------------------------------------------------------------------

def other_values(rng, tensor):
    role = "data" if "data" in tensor.parts else "values"
    dtype, kind, data = tensor.parts[role]
    wide, data = number_formats.width(kind or dtype), bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20)) if data else 0):
        at = rng.randrange(len(data) // wide) * wide
        data[at:at + wide] = elements(rng, kind or dtype, 1)
    tensor.parts[role] = (dtype, kind, bytes(data))


def other_type(rng, tensor):
    if tensor.format == "dense":
        dtype, kind = rng.choice(KINDS)
        tensor.parts = {"data": (dtype, kind, elements(rng, kind or dtype, math.prod(tensor.shape)))}


def other_shape(rng, tensor):
    if tensor.format == "dense":
        tensor.shape = rng.choice(([1, *tensor.shape], [math.prod(tensor.shape)], tensor.shape[::-1]))


def other_attributes(rng, tensor):
    tensor.attributes = rng.choice(({}, {"scale": 3.0}, {"scale": 2}, {"scale": 2.0, "more": None}, {"scale": "2.0"}))


def other_tensor(rng, tensor):
    new = random_tensor(rng)
    tensor.shape, tensor.parts, tensor.format = new.shape, new.parts, new.format


CHANGES = (other_values, other_values, other_values, other_type, other_shape, other_attributes, other_tensor)


# ---- the computation ------------------------------------------------------------------------------------------

def numbers(name, data):
    """Elements as whole numbers, doubles, or lists of two doubles; None where they are no numbers."""
    if name == "bool":
        return list(data)
    if name in number_formats.INTEGERS:
        return numpy.frombuffer(data, number_formats.INTEGERS[name]).tolist()
    if name in number_formats.FLOATS:
        return number_formats.decode(name, data).tolist()
    if name in number_formats.COMPLEX:
        return number_formats.decode(number_formats.COMPLEX[name], data).reshape(-1, 2).tolist()
    return None


def bits(value):
    return struct.pack("<d", value)


def in_json(value):
    if isinstance(value, list):
        return [in_json(part) for part in value]
    return value if isinstance(value, int) or math.isfinite(value) else {"nan": "nan", "inf": "inf", "-inf": "-inf"}[str(value)]


def parts_that_differ(u, v, x, y):
    """The numbers of two elements that are not alike: by the bytes x and y where types are equal, else as doubles."""
    if not isinstance(u, list):
        unlike = x != y if x is not None else u != v if isinstance(u, int) else bits(u) != bits(v) and not (u != u and v != v)
        return [(u, v)] if unlike else []
    half = len(x) // 2 if x is not None else 0
    cut = lambda data, part: None if data is None else data[part * half:(part + 1) * half]
    return [pair for part in (0, 1) for pair in parts_that_differ(u[part], v[part], cut(x, part), cut(y, part))]


def error_of(unlike, v):
    """(distance, size) of the parts that differ and are numbers; distance is None where there are none."""
    known = [(float(abs(u - w)) if u != w else 0.0) for u, w in unlike if u == u and w == w]
    sizes = [0.0 if part != part else float(abs(part)) for part in (v if isinstance(v, list) else [v])]
    return math.hypot(*known) if len(known) > 1 else known[0] if known else None, math.hypot(*sizes)


def values_row(a, b, role, tolerance):
    """How elements differ: a row, or "equal"; None where they cannot be compared."""
    (x_type, x_kind, x), (y_type, y_kind, y) = a.parts[role], b.parts[role]
    x_name, y_name = x_kind or x_type, y_kind or y_type
    same, wide = x_name == y_name, number_formats.width(x_name)
    u, v = numbers(x_name, x), numbers(y_name, y)
    if same and (u is None or x_name == "bool"):
        u, v, tolerance = list(x), list(y), None
    if u is None or v is None or len(u) != len(v) or ((x_name in number_formats.COMPLEX) != (y_name in number_formats.COMPLEX)):
        return None
    if not same and {x_name, y_name} & set(number_formats.FLOATS):
        u, v = ([float(each) for each in side] if side and isinstance(side[0], int) else side for side in (u, v))
    row, squares, errors, relatives = {"differing": 0, "nan": 0, "both_nan": 0, "zeros": 0}, 0.0, [], []
    for at in range(len(u)):
        left, right = (x[at * wide:(at + 1) * wide], y[at * wide:(at + 1) * wide]) if same else (None, None)
        if same and left == right:
            continue
        unlike = parts_that_differ(u[at], v[at], left, right)
        if not unlike:
            continue
        distance, size = error_of(unlike, v[at])
        if distance is not None:
            errors.append(distance)
            squares += distance * distance
            if size > 0 and distance / size > 0:
                relatives.append(distance / size)
        one_nan = any((p != p) != (q != q) for p, q in unlike)
        both_nan = any(p != p and q != q for p, q in unlike)
        if tolerance and not one_nan and (not distance or distance <= tolerance[0] + tolerance[1] * size and size < math.inf):
            continue
        row["nan"] += one_nan or both_nan
        row["both_nan"] += both_nan and not one_nan
        row["zeros"] += not one_nan and not both_nan and distance == 0
        if not row["differing"]:
            shape = a.shape if math.prod(a.shape) == len(u) and a.format == "dense" else [len(u)]
            row["at"] = [int(place) for place in numpy.unravel_index(at, shape)] if shape else []
            if x_name == "bool" and same:
                row |= {"first": bool(u[at]), "second": bool(v[at])}
            elif numbers(x_name, b"") is not None:
                row |= {"first": in_json(u[at]), "second": in_json(v[at])}
        row["differing"] += 1
    if not row["differing"]:
        return "equal"
    if errors and not (x_name == y_name and (x_name == "bool" or numbers(x_name, b"") is None)):
        row |= {"largest": in_json(max(errors)), "rms": in_json(math.sqrt(squares / len(u)))}
        row |= {"relative": in_json(max(relatives))} if relatives else {}
    return {"elements": len(u)} | {key: value for key, value in row.items() if value or key not in ("nan", "both_nan", "zeros")}


def expected(first, second, tolerance=None):
    rows = [{"tensor": name, "kind": "only_first"} for name in first if name not in second]
    rows += [{"tensor": name, "kind": "only_second"} for name in second if name not in first]
    for name, a in first.items():
        if name in second:
            rows += [{"tensor": name} | row for row in rows_of(a, second[name], tolerance)]
    return sorted(rows, key=row_key)


def rows_of(a, b, tolerance):
    if a.format != b.format:
        return [{"kind": "format", "first": a.format, "second": b.format}]
    rows = [{"kind": "shape", "first": str(a.shape), "second": str(b.shape)}] if a.shape != b.shape else []
    for key in sorted(a.attributes.keys() | b.attributes.keys()):
        first, second = ({side: json.dumps(each.attributes[key])} if key in each.attributes else {}
                         for side, each in (("first", a), ("second", b)))
        if list(first.values()) != list(second.values()):
            rows.append({"kind": "attribute", "attribute": key} | first | second)
    dtypes = {}
    for role, (dtype, kind, data) in a.parts.items():
        other = b.parts[role]
        if (dtype, kind) != other[:2]:
            dtypes[role] = {"kind": "dtype", "component": role, "first": kind or dtype, "second": other[1] or other[0]}
        elif len(data) != len(other[2]) and a.shape == b.shape:
            rows.append({"kind": "components", "component": role, "first": f"{len(data)} bytes", "second": f"{len(other[2])} bytes"})
    if not [row for row in rows if row["kind"] != "attribute"]:
        found = {role: values_row(a, b, role, tolerance) for role in a.parts}
        rows += [{"kind": "values", "component": role} | row for role, row in found.items() if row and row != "equal"]
        for role, row in dtypes.items():
            row |= {"equal_values": True} if found[role] == "equal" else {}
    return rows + list(dtypes.values())


def row_key(row):
    return row["tensor"], row["kind"], row.get("component", ""), row.get("attribute", "")


# ---- how a model is written -----------------------------------------------------------------------------------

def write_zt(rng, folder, name, model, ties):
    objects = {key: random_inputs.entry_1(rng, "1.2", tensor, [None, "crc32c", "sha256", "xxh3"])
               for key, tensor in model.items() if key not in ties}
    content = random_inputs.encode_1(objects, "1.2", {}, {tie: (of, None) for tie, of in ties.items()})
    (folder / (name + ".zt")).write_bytes(content)
    return name + ".zt"


def write_zt2(rng, folder, name, model, ties):
    file = make_zt2.File()
    for key, tensor in model.items():
        parts = {}
        for role, (dtype, kind, data) in tensor.parts.items():
            dtype, kind = ("u8", "bool") if dtype == "bool" else (dtype, kind)
            fields = {"type": kind} if kind else {}
            parts[role] = (file.zstd(data, dtype, max(len(data) // 2, 1), **fields) if rng.random() < 0.4 and data else
                           file.part(data, dtype, rng.choice(("xxh3", "sha256", None)), **fields))
        if key in ties:
            parts = file.root["objects"][ties[key]]["parts"]
        file.add(key, tensor.shape, "dense" if tensor.format == "dense" else f"zt.{tensor.format}/1", tensor.attributes or None, **parts)
    (folder / (name + ".zt")).write_bytes(file.finish())
    return name + ".zt"


def write_safetensors(rng, folder, name, model, ties):
    header, data = make_safetensors.layout({key: (SAFETENSORS[tensor.parts["data"][:2]], tensor.shape, tensor.parts["data"][2])
                                            for key, tensor in model.items() if key not in ties})
    header = {key: header[ties.get(key, key)] | {"shape": tensor.shape} for key, tensor in model.items()}
    (folder / (name + ".safetensors")).write_bytes(make_safetensors.raw(header, data))
    return name + ".safetensors"


def write_npz(rng, folder, name, model, ties):
    with zipfile.ZipFile(folder / (name + ".npz"), "w") as archive:
        for key, tensor in model.items():
            dtype, kind, data = tensor.parts["data"]
            array = numpy.frombuffer(data, "<" + NUMPY[dtype, kind] if NUMPY[dtype, kind] != "?" else "?").reshape(tensor.shape)
            random_inputs.put_entry(rng, archive, key, array, rng.random() < 0.5)
    return name + ".npz"


def write_gguf(rng, folder, name, model, ties):
    text = lambda value: random_inputs.gguf_text(value, "<")
    infos, data = b"", b""
    for key, tensor in model.items():
        infos += text(key) + struct.pack(f"<I{len(tensor.shape)}QIQ", len(tensor.shape), *reversed(tensor.shape),
                                         GGUF[tensor.element()], len(data))
        data += tensor.parts["data"][2]
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(model), 0) + infos
    (folder / (name + ".gguf")).write_bytes(head + bytes(-len(head) % 32) + data)
    return name + ".gguf"


def able(types, ranks=range(9)):
    return lambda tensor: (tensor.format == "dense" and not tensor.attributes and tensor.parts["data"][:2] in types and
                           len(tensor.shape) in ranks)


# What writes a model, which tensors it can write, and whether it can be read from a pipe.
FORMATS = ((write_zt, lambda tensor: True, False), (write_zt2, lambda tensor: True, False),
           (write_safetensors, able(SAFETENSORS), True), (write_npz, able(NUMPY), False),
           (write_gguf, lambda tensor: able({(name, None) for name in GGUF}, (1, 2, 3, 4))(tensor) and math.prod(tensor.shape), True))


class Random(support.EndToEnd):

    def model(self, rng):
        model = {f"t{at}.{rng.choice(('weight', 'b', 'é'))}": random_tensor(rng) for at in range(rng.randint(0, 6))}
        if rng.random() < 0.5:  # for formats that hold little
            model = {key: tensor for key, tensor in model.items() if FORMATS[rng.choice((2, 3, 4))][1](tensor)}
        for tensor in model.values():
            if rng.random() < 0.3:
                tensor.attributes = {"scale": 2.0}
        return model

    def changed(self, rng, model):
        other = copy.deepcopy(model)
        for key in list(other):
            if rng.random() < 0.4:
                rng.choice(CHANGES)(rng, other[key])
            elif rng.random() < 0.1:
                del other[key]
        if rng.random() < 0.2:
            other["new"] = random_tensor(rng)
        return dict(rng.sample(list(other.items()), len(other))) if rng.random() < 0.3 else other

    def write(self, rng, name, model):
        """(file name, whether it can be piped)."""
        writers = [each for each in FORMATS if all(each[1](tensor) for tensor in model.values())]
        writer, _, pipe = rng.choice(writers)
        ties = {}
        if writer in (write_zt, write_zt2, write_safetensors):
            for key, tensor in model.items():
                of = [other for other in model if other < key and other not in ties and model[other].parts == tensor.parts and
                      json.dumps(model[other].attributes) == json.dumps(tensor.attributes) and
                      (writer is not write_zt or model[other] == tensor) and list(model).index(other) < list(model).index(key)]
                if of and rng.random() < 0.7:
                    ties[key] = of[0]
        return writer(rng, self.folder, name, model, ties), pipe

    def differences(self, *words, stdin=None):
        """The rows of a comparison; none at all where a pipe has one range for two tensors, and the other side two."""
        process = self.run_program(*words, stdin=stdin)
        if stdin is not None and process.returncode == UNSUPPORTED:
            self.assertRegex(process.stderr, rb"\.tied'.*pipe")
            return None
        self.assertIn(process.returncode, (DONE, DIFFERS), process.stderr.decode())
        report = json.loads(process.stdout)
        rows = report["differences"]
        self.assertEqual(process.returncode, DIFFERS if rows else DONE)
        if words[0] == "verify":  # which compares the attributes of the files, too: GGUF's header is one
            rows = [row for row in rows if row["kind"] != "file_attribute" or row["attribute"] != "gguf"]
        return sorted(rows, key=row_key)

    ERRORS = ("largest", "relative", "rms")

    def same(self, got, want):
        """Equal rows; errors to the last digits, for hypot() and sums may round."""
        if got is None:
            return
        self.assertEqual([{key: value for key, value in row.items() if key not in self.ERRORS} for row in got],
                         [{key: value for key, value in row.items() if key not in self.ERRORS} for row in want])
        for mine, theirs in zip(got, want):
            self.assertEqual(*({key for key in row if key in self.ERRORS} for row in (mine, theirs)), (mine, theirs))
            for key in self.ERRORS:
                a, b = mine.get(key, 0), theirs.get(key, 0)
                self.assertTrue(a == b or math.isclose(a, b, rel_tol=1e-9 if key == "rms" else 1e-15), (key, mine, theirs))

    def selection(self, rng, first, second):
        """Words that select and rename, and the two models that are compared with them."""
        words = []
        if rng.random() < 0.3:
            words += ["--rename", r"s/^t(\d)/n\1/"]
            first = {re.sub(r"^t(\d)", r"n\1", key): tensor for key, tensor in first.items()}
        known = first.keys() | second.keys()
        for option, keep in (("--include", True), ("--exclude", False)):
            if rng.random() > 0.3 or not known:
                continue
            word, selects = rng.choice((
                (rng.choice(sorted(known)), None), (r"weight$", lambda name: name.endswith("weight")),
                ("glob:*.b", lambda name: name.endswith(".b")), ("[0-2]", lambda name: re.search("[0-2]", name))))
            selects = selects or (lambda name, word=word: name == word)
            first, second = ({key: tensor for key, tensor in model.items() if bool(selects(key)) == keep} for model in (first, second))
            words += [option, word]
        return words, first, second

    def try_seed(self, seed):
        rng = random.Random(seed)
        first = self.model(rng)
        for key in list(first):
            if rng.random() < 0.2:
                first[key + ".tied"] = copy.deepcopy(first[key])
        second = self.changed(rng, first)
        if rng.random() < 0.5:  # attributes are of .zt alone
            for tensor in (*first.values(), *second.values()):
                tensor.attributes = {}
        (a, a_pipe), (b, b_pipe) = self.write(rng, "a", first), self.write(rng, "b", second)
        options = ["--json", "-T", rng.choice("123"), *rng.choice(([], ["--memory", "1MiB"]))]
        words, stdin = [a, b], None
        if (a_pipe or b_pipe) and rng.random() < 0.5:
            at = rng.choice([number for number, pipe in enumerate((a_pipe, b_pipe)) if pipe])
            stdin, words[at] = self.path(words[at]).read_bytes(), "-"
        full = expected(first, second)
        if not (a.endswith(".zt") and b.endswith(".zt")):  # attributes count where both sides have them
            first, second = ({key: dataclasses.replace(tensor, attributes={}) for key, tensor in model.items()}
                             for model in (first, second))
        want = expected(first, second)
        self.same(self.differences("diff", *options, *words, stdin=stdin), want)
        self.same(self.differences("diff", *options, b, a), expected(second, first))
        tolerance = rng.choice((0, 1e-3, 0.5, 20)), rng.choice((0, 1e-2, 0.3))
        near = ["--atol", tolerance[0], "--rtol", tolerance[1]]
        self.same(self.differences("diff", *options, *near, *words, stdin=stdin), expected(first, second, tolerance))
        selecting, mine, theirs = self.selection(rng, first, second)
        if mine or theirs:
            self.same(self.differences("diff", *options, *selecting, *words, stdin=stdin), expected(mine, theirs))
        if a.endswith(".zt"):
            self.same(self.differences("verify", *options, a, "--against", words[1], stdin=stdin if words[1] == "-" else None), want)
        else:
            self.succeed("convert", "-q", a, "-o", "c.zt", "--no-sync", *rng.choice(([], ["--zstd"], ["--spec", "2.0"])))
            self.same(self.differences("verify", *options, "c.zt", "--against", b), full if b.endswith(".zt") else want)
        return len(want)

    def test_random_models(self):
        seed, count, found = int(os.environ.get("ZT_SEED", 1)), int(os.environ.get("ZT_COUNT", 100)), 0
        for number in range(seed, seed + count):
            with self.subTest(seed=number):
                found += self.try_seed(number)
            for path in self.folder.iterdir():
                path.unlink()
        self.assertGreater(found, count // 2)
