"""What combinations.py asks of whole models: the files beside the weights, encodings that stay, and what extract changes."""
import fnmatch
import json

import make_safetensors
import number_formats
from support import DONE, NUMERIC, UNSUPPORTED, USAGE

PROFILE = "ztstream.file/1"
NO_FILES = ("0.1", "1.1")  # versions that have none


class Files:
    """Which files of the inputs a conversion is to take."""

    def __init__(self, rng, inputs, spec):
        choice = rng.choice([[], [], [], ["all"], ["none"], ["*.json"], ["LICENSE", "sub/*"]])
        choice = choice if len(inputs) == 1 else []
        self.words = [word for each in choice for word in ("--files", each)]
        self.expected = inputs[0].files if len(inputs) == 1 and spec not in NO_FILES and choice != ["none"] else {}
        patterns = [each for each in choice if each not in ("all", "none")]
        if patterns:
            self.expected = {path: content for path, content in self.expected.items()
                             if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)}
        # For comparisons of the output with its inputs.
        self.compared = ["--files", "none"] if spec in NO_FILES else self.words if patterns or choice == ["none"] else []

    def forget_quantization(self, kind):
        """config.json is that of a model of such numbers."""
        if "config.json" in self.expected:
            kind = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[kind]
            self.expected = self.expected | {"config.json": b'{"torch_dtype": "%s"}' % kind.encode()}


def split(objects):
    """(tensors, {path: bytes} of the files) among the objects of a .zt file."""
    tensors, files = {}, {}
    for name, entry in objects.items():
        attributes = entry["attributes"] or {}
        if entry["format"] != PROFILE and attributes.get("ztstream.file") != 1:
            tensors[name] = entry
            continue
        content, path = entry["components"]["data"]["bytes"], attributes["path"]
        assert name == "__meta__/files/" + path and list(entry["shape"]) == [len(content)], name
        files[path] = bytes(content)
    return tensors, files


def stored(trial, name):
    """{(object, role): (encoding, bytes as they are stored)} of a file, or of the shards in a folder."""
    path, found = trial.folder / name, {}
    for part in sorted(path.glob("m-*.zt")) if path.is_dir() else [path]:
        trial.run("inspect", "--json", part.relative_to(trial.folder))
        listed, content = json.loads(trial.last.stdout), part.read_bytes()
        for entry in [*listed["objects"], *listed.get("files", [])]:
            for each in entry["components"]:
                found[entry["name"], each["role"]] = each["encoding"], content[each["offset"]:each["offset"] + each["length"]]
    return found


def check_kept(trial, check, spec, second, out):
    """A conversion of the output to `out`: every frame is as it was unless options say otherwise."""
    after = stored(trial, out)
    if second.canonical or "--raw" in second.storage:
        check(all(encoding == "raw" for encoding, _ in after.values()), "something stays compressed")
    elif spec == second.spec and not any(word.startswith("--zstd") for word in second.storage):
        before = stored(trial, trial.out)
        changed = [name for name in before if before[name] != after.get(name)]
        check(not changed, "not kept as it is stored:", changed)


# ---- extract with rules --------------------------------------------------------------------------------------------

def expected_of(rules, model):
    """(what the rules make of the tensors, how many values they lose, whether two get one name)."""
    kept = {name: tensor for name, tensor in model.items() if rules.keeps(name)}
    made, lost = {}, 0
    for name, tensor in kept.items():
        made[rules.rename(name)], count = rules.apply(name, tensor)
        lost += count
    return made, lost, len(made) != len(kept)


def statuses(rules, model, made, lost, clash, types):
    known = all(tensor.format == "dense" and tensor.parts["data"][:2] in types for tensor in made.values())
    if model and not made:
        return (USAGE,)
    if clash:
        return (USAGE, 4, UNSUPPORTED)
    if not known:
        return (UNSUPPORTED, NUMERIC) if lost and rules.policy == "error" else (UNSUPPORTED,)
    return (NUMERIC,) if lost and rules.policy == "error" else (DONE,)


def check_extract(trial, check, rules, model, types, files):
    """A folder of safetensors of what the rules make of the output, with its files."""
    rng = trial.rng
    rules.no_metadata = False
    words = [word for word in rules.words if word != "--no-metadata"]
    cut = rng.choice([[], [], ["--shard-size", rng.choice(["1", "4KiB", "100KiB"])]])
    made, lost, clash = expected_of(rules, model)
    out = trial.folder / "rules"
    status = trial.run("extract", trial.out, "-o", "rules/", "--to", "safetensors", "--no-sync", *words, *cut, *trial.threads(),
                       status=statuses(rules, model, made, lost, clash, types))
    if status != DONE:
        check(not out.exists(), "a folder after a failure")
        return
    found, names = {}, {}
    for path in sorted(out.rglob("*.safetensors")):
        tensors, _ = make_safetensors.read(path)
        inside = path.relative_to(out).as_posix()
        prefix = "" if "/" not in inside else inside.split("/")[0] + "/"
        for name, held in tensors.items():
            name = name if name in made and prefix + name not in made else prefix + name
            check(name not in found, "twice:", name)
            found[name], names[name] = held, path
    check(sorted(found) == sorted(made), "other names:", sorted(set(found) ^ set(made)))
    for name, tensor in made.items():
        dtype, kind, data = tensor.parts["data"]
        check(found[name][:2] == (types[dtype, kind], list(tensor.shape)), f"{name}: {found[name][:2]}")
        check(number_formats.same(kind or dtype, found[name][2], data), f"{name}: other values")
    for index in out.rglob("*.safetensors.index.json"):
        for name, file in json.loads(index.read_text())["weight_map"].items():
            check((index.parent / file).exists(), f"{index}: {name}")
    beside = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file() and path.suffix != ".safetensors"}
    indices = {path for path in {*beside, *files} if path.endswith(".safetensors.index.json")}
    check({path: held for path, held in beside.items() if path not in indices} ==
          {path: held for path, held in files.items() if path not in indices}, "other files:", sorted(beside))
