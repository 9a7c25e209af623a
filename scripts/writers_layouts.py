"""Repositories and files as they lie on disks, written by torch and safetensors themselves; see writers.py for the form, and
docs/INPUTS.md for the table of layouts."""
import io
import json
import os
import pickle
import sys
import types
import warnings

import numpy

from writers import flatten, host, weights


def state(torch, *layers):
    """The state_dict of a small model."""
    torch.manual_seed(len(layers))
    return torch.nn.Sequential(*(torch.nn.Linear(*layer) for layer in layers)).state_dict()


def expected(tensors, prefix=""):
    return {prefix + name: host(tensor) for name, tensor in tensors.items()}


def put(folder, tensors, name="model.safetensors", **texts):
    """A folder with weights, in the format that the name says, and texts beside them."""
    import safetensors.torch
    import torch
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".safetensors"):
        safetensors.torch.save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path, metadata={"format": "pt"})
    else:
        torch.save(tensors, path)
    for text, value in texts.items():
        (folder / text.replace("_json", ".json")).write_text(json.dumps(value))
    return folder


def shards(folder, tensors, stem="model", suffix="safetensors", variant="", form=0):
    """Shards of one tensor each with their index, in one of the forms of names with a variant."""
    names, index = list(tensors), {}
    middle = f".{variant}" if variant else ""
    for place, name in enumerate(names):
        number = f"{place + 1:05d}-of-{len(names):05d}"
        index[name] = f"{stem}{middle}-{number}.{suffix}" if form else f"{stem}-{number}{middle}.{suffix}"
        put(folder, {name: tensors[name]}, index[name])
    path = f"{stem}.{suffix}.index{middle}.json" if form < 2 else f"{stem}{middle}.{suffix}.index.json"
    (folder / path).write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": index}))
    return folder


def transformers_layouts(folder):
    import torch
    model, half = state(torch, (3, 4), (4, 2)), {key: tensor.half() for key, tensor in state(torch, (3, 4), (4, 2)).items()}
    for suffix in ("safetensors", "bin"):
        stem = "model" if suffix == "safetensors" else "pytorch_model"
        yield f"transformers {suffix}", put(folder / f"one-{suffix}", model, f"{stem}.{suffix}", config_json={}), expected(model)
        yield f"transformers {suffix} shards", shards(folder / f"shards-{suffix}", model, stem, suffix), expected(model)
        for variant in ("fp16", "bf16"):
            for form in range(3):
                below = shards(folder / f"{variant}-{form}-{suffix}", half, stem, suffix, variant, form)
                yield f"only {variant} {form} {suffix}", below, expected(half)
                yield f"{variant} {form} {suffix} beside", put(below, model, f"{stem}.{suffix}") if form == 2 else shards(
                    below, model, stem, suffix), expected(model)
    both = put(put(folder / "both", model), model, "pytorch_model.bin")
    yield "both formats", both, expected(model)
    whisper = put(put(put(folder / "whisper", half), model, "model.fp32.safetensors"), half, "pytorch_model.bin")
    yield "whisper", whisper, expected(half)
    trainer = put(folder / "checkpoint-500", model, config_json={}, trainer_state_json={"global_step": 500})
    optimizer = torch.optim.AdamW([torch.nn.Parameter(tensor) for tensor in model.values()])
    torch.save(optimizer.state_dict(), trainer / "optimizer.pt")
    torch.save({"lr": 1}, trainer / "scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, trainer / "rng_state.pth")
    torch.save(object(), trainer / "training_args.bin")
    yield "Trainer", trainer, expected(model)
    peft = put(folder / "peft", {f"base_model.model.{key}": tensor for key, tensor in model.items()}, "adapter_model.safetensors", adapter_config_json={})
    yield "PEFT", peft, expected(model, "base_model.model.")
    sentences = put(put(folder / "sentences", model, modules_json=[]), half, "2_Dense/model.safetensors")
    yield "sentence-transformers", sentences, expected(model)


def diffusers_layouts(folder):
    import torch
    parts = {"unet": state(torch, (2, 3)), "vae": state(torch, (3, 2), (2, 2)), "text_encoder": state(torch, (1, 2))}
    for suffix in ("safetensors", "bin"):
        for variant in ("", ".fp16"):
            below = folder / f"{suffix}{variant}"
            for name, tensors in parts.items():
                stem = "diffusion_pytorch_model" if name != "text_encoder" else "model" if suffix == "safetensors" else "pytorch_model"
                put(below / name, tensors, f"{stem}.{suffix}", config_json={})
                if variant:
                    put(below / name, {key: tensor.half() for key, tensor in tensors.items()}, f"{stem}{variant}.{suffix}")
            (below / "model_index.json").write_text(json.dumps({name: ["diffusers", "X"] for name in parts}))
            yield f"diffusers {suffix}{variant}", below, {
                key: array for name, tensors in parts.items() for key, array in expected(tensors, f"{name}/").items()}


def renamed_files(folder):
    """Files under the names of other formats, and names of other tools."""
    import torch
    model = state(torch, (3, 4), (4, 2))
    for wrong, right in (("model.safetensors", "a.pt"), ("pytorch_model.bin", "a.safetensors"), ("adapter_model.bin", "a.safetensors"),
                         ("diffusion_pytorch_model.safetensors", "a.bin")):
        below = folder / f"{wrong}-{right}"
        put(below, model, right)
        os.rename(below / right, below / wrong)
        yield f"{right} as {wrong}", below, expected(model)
    yield "mlx", put(folder / "mlx", model, "weights.00.safetensors"), expected(model)
    names = {key: weights(3, 2) for key in ("layers.0.w", "layers.1.w")}
    numpy.savez(folder / "weights.npz", **names)
    yield "mlx npz", folder / "weights.npz", names


def training_files(folder):
    """What trainers write with torch.save."""
    import torch
    model = state(torch, (3, 4), (4, 2))
    callback = type("ModelCheckpoint", (), {"__module__": "pytorch_lightning.callbacks"})
    for name in ("pytorch_lightning", "pytorch_lightning.callbacks"):
        sys.modules.setdefault(name, types.ModuleType(name)).ModelCheckpoint = callback
    tree = {"epoch": 3, "state_dict": model, "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3)}}}], "hyper_parameters": {"lr": .1}}
    trees = {"Lightning": (tree, flatten(tree)),
             "Lightning with callbacks": (tree | {"callbacks": {callback: {"best_model_score": torch.tensor(.5)}}}, flatten(tree) | {
                 "callbacks.pytorch_lightning.callbacks.ModelCheckpoint.best_model_score": numpy.float32(.5)}),
             "Transformer Engine": (dict(model, _extra_state=io.BytesIO(b"scales")), expected(model) | {
                 "_extra_state": numpy.frombuffer(b"scales", numpy.uint8)}),
             "ZeRO-3": ({"module": {key: torch.empty(0, dtype=torch.half) for key in model}}, {
                 f"module.{key}": numpy.empty(0, numpy.float16) for key in model})}
    for name, (value, wanted) in trees.items():
        for old in (False, True):
            for protocol in (2, 4):
                path = folder / f"{name}-{old}-{protocol}.ckpt"
                torch.save(value, path, _use_new_zipfile_serialization=not old, pickle_protocol=protocol)
                yield f"{name} {'stream' if old else 'zip'} {protocol}", path, wanted



def whole_modules(folder):
    import torch

    class Sub(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.arange(3.))
            self.register_buffer("gone", torch.ones(2), persistent=False)
            self.weight = torch.nn.Parameter(torch.ones(2))
            self.register_parameter("absent", None)

    Sub.__qualname__, globals()["Sub"] = "Sub", Sub
    tied = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    modules = {"linear": torch.nn.Linear(2, 3), "lstm": torch.nn.LSTM(2, 3, 2), "conv": torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)),
               "attention": torch.nn.MultiheadAttention(4, 2), "transformer": torch.nn.TransformerEncoderLayer(4, 2, 8), "own": Sub(), "tied": tied,
               "lists": torch.nn.ModuleDict({"a": torch.nn.ModuleList([torch.nn.Linear(1, 1)]), "b": torch.nn.ParameterList([torch.nn.Parameter(torch.ones(1))])}),
               "parallel": torch.nn.DataParallel(torch.nn.Linear(2, 2))}
    for name, module in modules.items():
        for old in (False, True):
            path = folder / f"{name}-{old}.pt"
            torch.save({"model": module, "epoch": 1} if name == "conv" else module, path, _use_new_zipfile_serialization=not old)
            yield f"module {name} {'stream' if old else 'zip'}", path, expected(module.state_dict(), "model." if name == "conv" else "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("linear", "conv", "tied"):
            scripted = torch.jit.script(modules[name])
            scripted.save(str(folder / f"{name}-script.pt"))
            yield f"TorchScript {name}", folder / f"{name}-script.pt", expected(scripted.state_dict())
    derived = type("Derived", (torch.Tensor,), {"__module__": __name__})
    globals()["Derived"] = derived
    for name, tensor in (("plain", torch.arange(6.).reshape(2, 3)), ("turned", torch.arange(6.).reshape(2, 3).t()), ("half", torch.ones(3).half())):
        torch.save({"w": tensor.as_subclass(derived)}, folder / f"derived-{name}.pt")
        yield f"class derived from Tensor {name}", folder / f"derived-{name}.pt", expected({"w": tensor})


def plain_pickles(folder):
    """detectron2's and Paddle's files."""
    tree = {"model": {"a": weights(2, 3), "b": numpy.arange(5), "f": numpy.asfortranarray(weights(3, 4))}, "__author__": "x"}
    for protocol in range(2, 6):
        path = folder / f"p{protocol}.pkl"
        path.write_bytes(pickle.dumps(tree, protocol))
        yield f"plain pickle {protocol}", path, {f"model.{key}": array for key, array in tree["model"].items()}
    (folder / "empty.pkl").write_bytes(pickle.dumps({"a": [1.0]}))
    yield "plain pickle without arrays", folder / "empty.pkl", None


WRITERS = [transformers_layouts, diffusers_layouts, renamed_files, training_files, whole_modules, plain_pickles]
