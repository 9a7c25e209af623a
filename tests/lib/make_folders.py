"""Writes folders as model hubs have them, with the writers' habits: shards and indices, a pipeline, links, odd names.

FOLDERS names them: each is a function that fills an empty folder, and may return what `convert` leaves out of it, path -> words
of the reason. `scale` multiplies the sizes of the weights.
"""
import functools
import json
import os
import pathlib
import shutil

import numpy

import make_safetensors
import pickle_assembler

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
COPY = "it holds tensors of the weights again, with their names, shapes and types"
INDEX = "it is the index of weights that are not taken"
HIDDEN = "its name begins with a dot"
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 100, "model_type": "llama", "torch_dtype": "bfloat16"}
TOKENIZER = {"version": "1.0", "model": {"type": "BPE", "vocab": {f"token{i}": i for i in range(5000)}, "merges": []}}


def put(folder, name, content=b"{}"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def put_json(folder, name, value):
    put(folder, name, json.dumps(value, indent=2) + "\n")


def tensors(seed, names, scale=1):
    """bf16 weights of 60,000 bytes each, or `scale` times as many."""
    values = numpy.random.default_rng(seed).normal(0, 0.02, 30_000 * scale).astype("<f4")
    half = (values.view("<u4") >> 16).astype("<u2")
    return {name: ("BF16", [300 * scale, 100], numpy.roll(half, i).tobytes()) for i, name in enumerate(names)}


def transformers_file(data, metadata={"format": "pt"}):
    """As save_file writes it: the header padded with blanks to a multiple of 8."""
    header, content = make_safetensors.layout(data, metadata)
    text = json.dumps(header, separators=(",", ":")).encode()
    return make_safetensors.raw(text + b" " * (-len(text) % 8), content)


def odd_file(data):
    """As others write it: keys out of order, spaces, unusual escapes, no metadata."""
    header, content = make_safetensors.layout(data)
    text = "{\n" + ",\n ".join(json.dumps(key)[:-1].replace("m", "\\u006d") + '" :  ' + json.dumps(dict(reversed(entry.items())))
                              for key, entry in reversed(header.items())) + "\n}\t "
    return make_safetensors.raw(text.encode(), content)


def put_shards(folder, stem, parts, encode=transformers_file, index=True):
    weight_map = {}
    for number, part in enumerate(parts, 1):
        file = f"{stem}-{number:05}-of-{len(parts):05}.safetensors"
        put(folder, file, encode(part))
        weight_map |= {tensor: pathlib.PurePath(file).name for tensor in part}
    total = sum(len(data) for part in parts for _, _, data in part.values())
    if index:
        put_json(folder, f"{stem}.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def common(folder):
    put_json(folder, "config.json", CONFIG)
    put_json(folder, "generation_config.json", {"eos_token_id": 2})
    put(folder, "tokenizer.json", json.dumps(TOKENIZER))
    put_json(folder, "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    put(folder, "special_tokens_map.json")
    put(folder, "LICENSE", "no rights\r\nat all")
    put(folder, "README.md", "# Modèle\n")


def sharded(folder, scale=1, encode=transformers_file):
    common(folder)
    put_shards(folder, "model", [tensors(1, ["model.a", "model.b"], scale), tensors(2, ["model.c", "lm_head.weight"], scale)], encode)


def single(folder, scale=1):
    common(folder)
    put(folder, "model.safetensors", transformers_file(tensors(3, ["w", "v"], scale)))


# ---- the table -----------------------------------------------------------------------------------------------------

def llama(folder, scale=1):
    sharded(folder, scale)
    put(folder, "chat_template.jinja", "{% for m in messages %}{{ m }}{% endfor %}")
    put(folder, ".gitattributes", "*.safetensors filter=lfs\n")
    put(folder, ".cache/huggingface/download/config.json.metadata", "0")
    put(folder, "original/params.json")
    put(folder, "original/consolidated.00.pth", b"\0" * 100)
    return {".gitattributes": HIDDEN, ".cache/": HIDDEN}


def every_format(folder, scale=1):
    """The same weights once more in each format that hubs have, of which torch's have the same names."""
    single(folder, scale)
    put(folder, "pytorch_model.bin", pickle_assembler.checkpoint(tensors(3, ["w", "v"], scale)))
    put_json(folder, "pytorch_model.bin.index.json", {"weight_map": {"w": "pytorch_model.bin", "v": "pytorch_model.bin"}})
    for name in ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "model.tflite", "onnx/model.onnx", "onnx/model_quantized.onnx",
                 "onnx/model.onnx_data", "gguf/model-q4_k.gguf"):
        put(folder, name, b"other")
    for name in ("onnx/config.json", "coreml/info.json", "openvino/openvino_model.xml", "vocab.txt"):
        put(folder, name)
    return {"pytorch_model.bin": COPY, "pytorch_model.bin.index.json": INDEX}


def torch_only(folder, scale=1):
    common(folder)
    shutil.copy(DATA / "torch/proto2.bin", folder / "pytorch_model.bin")


def pipeline(folder, scale=1):
    """A diffusers pipeline: each model in a folder of its own, their tensors' names alike."""
    put_json(folder, "model_index.json", {"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet2DConditionModel"]})
    put(folder, "README.md", "# A pipeline\n")
    names = ["conv_in.weight", "conv_out.weight"]
    put_json(folder, "unet/config.json", {"sample_size": 64})
    put_shards(folder, "unet/diffusion_pytorch_model", [tensors(4, names[:1], scale), tensors(5, names[1:], scale)])
    put_json(folder, "vae/config.json", {"latent_channels": 4})
    put(folder, "vae/diffusion_pytorch_model.safetensors", transformers_file(tensors(6, names, scale)))
    put_json(folder, "text_encoder/config.json", CONFIG)
    put(folder, "text_encoder/model.safetensors", odd_file(tensors(7, ["model.embed"], scale)))
    put(folder, "text_encoder/pytorch_model.bin", pickle_assembler.checkpoint(tensors(7, ["model.embed"], scale)))
    put(folder, "scheduler/scheduler_config.json")
    put(folder, "tokenizer/vocab.json", json.dumps(TOKENIZER["model"]["vocab"]))
    put(folder, "tokenizer/merges.txt", "a b\n")
    put(folder, "feature_extractor/preprocessor_config.json")
    return {"text_encoder/pytorch_model.bin": COPY}


def gptq(folder, scale=1):
    shutil.copytree(DATA / "gptq", folder, dirs_exist_ok=True)
    put_json(folder, "quantize_config.json", {"bits": 4, "group_size": 32})


def tokenizers(folder, scale=1):
    """What goes with the tokenizers of different models, in folders too."""
    single(folder, scale)
    for name in ("vocab.json", "merges.txt", "added_tokens.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
                 "tokenizer.model.v3", "qwen.tiktoken", "tokenization_qwen.py", "preprocessor_config.json", "chat_template.json",
                 "tokenizer_2/tekken.json", "tokenizer_2/vocab.txt", "tokenizer/normalizer.json"):
        put(folder, name, os.urandom(3000))
    put(folder, "download.sh", "#!/bin/sh\n").chmod(0o755)


def sentences(folder, scale=1):
    """sentence-transformers: modules in folders, one with small weights of its own, which are a file like others."""
    single(folder, scale)
    put_json(folder, "modules.json", [{"idx": 0, "path": ""}, {"idx": 1, "path": "1_Pooling"}, {"idx": 2, "path": "2_Dense"}])
    put_json(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    put(folder, "2_Dense/model.safetensors", transformers_file(tensors(8, ["linear.weight"])))


def adapter(folder, scale=1):
    put_json(folder, "adapter_config.json", {"peft_type": "LORA", "r": 8})
    put(folder, "adapter_model.safetensors", transformers_file(tensors(9, ["base_model.lora_A", "base_model.lora_B"], scale)))
    put(folder, "training_args.bin", b"PK\x03\x04 no weights")
    put(folder, "README.md", "---\nbase_model: x\n---\n")


def no_index(folder, scale=1):
    """As mlx writes it: shards that no index lists, a tied tensor, a scalar, an empty tensor."""
    common(folder)
    data = tensors(10, ["model.embed"], scale) | {"scale": ("F32", [], b"\0\0\x80\x3f"), "none": ("F16", [0, 4], b"")}
    file = functools.partial(make_safetensors.encode, metadata={"format": "mlx"}, ties={"lm_head": "model.embed"})
    put(folder, "model-00001-of-00002.safetensors", file(data))
    put(folder, "model-00002-of-00002.safetensors", odd_file(tensors(11, ["model.norm"], scale)))


def sizes(folder, scale=1):
    """0 bytes, and 64 MiB, the most of a file."""
    single(folder, scale)
    put(folder, "empty", b"")
    put(folder, "sub/empty.txt", b"")
    put(folder, "vocab.big", (os.urandom(1 << 20) + bytes(1 << 20)) * 32)
    with open(folder / "larger.txt", "wb") as larger:
        larger.truncate((64 << 20) + 1)
    return {"larger.txt": "it has 64.00 MiB, more than 64 MiB"}


def odd_names(folder, scale=1):
    single(folder, scale)
    for name in ("name with blanks (1) & 'quotes' #%~$.txt", "日本語/Ünïcode.txt", "x" * 255, "-rf", "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p",
                 "~", "$HOME", "%2e%2e", "a..double", "config.json.bak", "MODEL.txt"):
        put(folder, name, name)
    out = {"CON.txt": "the name of a device on Windows", "a\\b": "it holds '\\\\'", "x:y": "it holds ':'", "end.": "ends in a dot or a blank",
           "Config.json": None, "e\u0301.txt": "Normalization Form C", ".hidden": HIDDEN, "sub/.git/": HIDDEN}
    for name in out:
        put(folder, name + "HEAD" if name.endswith("/") else name, b"x")
    del out["Config.json"]  # it comes first, and so it stays
    return out | {"config.json": "differs from 'Config.json' only in case"}


def hub(folder, scale=1):
    """A snapshot in the hub's cache: every file is a link to a blob outside of it."""
    blobs = folder.parent / (folder.name + ".blobs")
    blobs.mkdir()
    plain = blobs / "plain"
    plain.mkdir()
    sharded(plain, scale)
    put(plain, "sub/vocab.txt", "a\n")
    for number, file in enumerate(sorted(path for path in plain.rglob("*") if path.is_file())):
        link = folder / file.relative_to(plain)
        link.parent.mkdir(exist_ok=True)
        file.rename(blobs / str(number))
        link.symlink_to(os.path.relpath(blobs / str(number), link.parent))
    shutil.rmtree(plain)


# ---- twenty more: one way there and back each ------------------------------------------------------------------------

def trainer(folder, scale=1):
    """checkpoint-500 of transformers' Trainer: the state that a run goes on from is no second copy of the weights."""
    single(folder, scale)
    put_json(folder, "trainer_state.json", {"global_step": 500})
    state = {"state.exp_avg": ("F32", [10, 10], bytes(400))}
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        put(folder, name, pickle_assembler.checkpoint(state))
    put(folder, "training_args.bin", b"PK\x03\x04 no weights")


def accelerate(folder, scale=1):
    single(folder, scale)
    for name in ("optimizer.bin", "scheduler.bin", "sampler.bin"):
        put(folder, name, pickle_assembler.checkpoint({"step": ("F32", [4], bytes(16))}))
    put(folder, "random_states_0.pkl", b"\x80\x04}.")
    put(folder, "custom_checkpoint_0.pkl", b"\x80\x04}.")


def many_shards(folder, scale=1):
    common(folder)
    put_shards(folder, "model", [tensors(20 + i, [f"layers.{i}.experts.{j}" for j in range(2)], scale) for i in range(9)])


def mistral(folder, scale=1):
    put(folder, "consolidated.safetensors", transformers_file(tensors(30, ["tok_embeddings.weight", "norm.weight"], scale)))
    put_json(folder, "params.json", {"dim": 100})
    put(folder, "tekken.json", json.dumps(TOKENIZER))
    put(folder, "SYSTEM_PROMPT.txt", "You are\n")


def adapters(folder, scale=1):
    """A model with small adapters in folders of their own."""
    single(folder, scale)
    for number, name in enumerate(("lora-sql", "lora-chat/v2")):
        put_json(folder, f"{name}/adapter_config.json", {"r": 8})
        put(folder, f"{name}/adapter_model.safetensors", transformers_file(tensors(31 + number, ["lora_A", "lora_B"])))


def exports(folder, scale=1):
    """sentence-transformers with exports for other engines, which are files."""
    sentences(folder, scale)
    for name in ("onnx/model_O2.onnx", "openvino/openvino_model.bin", "openvino/openvino_model.xml", "coreml/model.mlpackage/Data/weight.bin"):
        put(folder, name, b"\x08\x07 of another engine" * 50)


def mlx_quantized(folder, scale=1):
    put_json(folder, "config.json", CONFIG | {"quantization": {"group_size": 64, "bits": 4}})
    made = tensors(33, ["embed"], scale) | {"l.weight": ("U32", [64, 32], bytes(range(256)) * 32),
                                                      "l.scales": ("BF16", [64, 4], bytes(512)), "l.biases": ("BF16", [64, 4], bytes(512))}
    put(folder, "model.safetensors", make_safetensors.encode(made, metadata={"format": "mlx"}))
    put_json(folder, "model.safetensors.index.json", {"metadata": {"total_size": 0}, "weight_map": dict.fromkeys(sorted(made), "model.safetensors")})


def fp8(folder, scale=1):
    put_json(folder, "config.json", CONFIG | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}})
    parts = [{f"l.{i}.weight": ("F8_E4M3", [256, 128], bytes(range(128)) * 256), f"l.{i}.weight_scale_inv": ("F32", [2, 1], b"\0\0\x80?" * 2)}
             for i in range(3)]
    put_shards(folder, "model", parts)
    put(folder, "modeling_deepseek.py", "class Model: pass\n")
    put(folder, "inference/configs/config_671B.json")
    put(folder, "inference/kernel.py", "import nothing\n")
    put(folder, "figures/benchmark.png", bytes(range(256)) * 300)


def gpt_oss(folder, scale=1):
    put_json(folder, "config.json", CONFIG | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}})
    made = {"m.blocks": ("U8", [2, 64, 2, 16], bytes(range(256)) * 16), "m.scales": ("U8", [2, 64, 2], b"\x7f" * 256)}
    put_shards(folder, "model", [made, tensors(34, ["lm_head.weight"], scale)])
    put(folder, "chat_template.jinja", "{{ x }}")
    put(folder, "USAGE_POLICY", "be good\n")


def timm(folder, scale=1):
    put_json(folder, "config.json", {"architecture": "resnet50", "pretrained_cfg": {"tag": "a1"}})
    made = tensors(35, ["fc.weight"], scale) | {"bn.num_batches_tracked": ("I64", [], bytes(8)), "bn.mask": ("BOOL", [3], b"\0\1\1")}
    put(folder, "model.safetensors", transformers_file(made))


def one_file(folder, scale=1):
    """A checkpoint for ComfyUI: any name, keys of several models, a config of another format."""
    put(folder, "sd_xl_base_1.0.safetensors", odd_file(tensors(36, ["model.diffusion_model.w", "first_stage_model.v"], scale)))
    put(folder, "sd_xl_base.yaml", "model:\n  target: x\n")


def images(folder, scale=1):
    single(folder, scale)
    for name in ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"):
        put(folder, name)
    for name in ("assets/teaser.png", "assets/demo.mp4", "assets/deep/er/a.webp", "thumbnail.jpg"):
        put(folder, name, os.urandom(50_000))


def remote_code(folder, scale=1):
    sharded(folder, scale)
    for name in ("modeling_x.py", "configuration_x.py", "x/__init__.py", "x/layers/attention.py", "x/layers/__init__.py", "setup.cfg"):
        put(folder, name, f"# {name}\n")
    put(folder, "run.sh", "#!/bin/sh\n").chmod(0o755)


def underscores(folder, scale=1):
    """Shards with another form of numbers, which no index lists."""
    common(folder)
    for number in (1, 2):
        put(folder, f"model_{number:05}-of-00002.safetensors", transformers_file(tensors(36 + number, [f"w{number}"], scale)))


def rich_index(folder, scale=1):
    """An index with more in it, in one line and in another order, and a shard without a tensor."""
    common(folder)
    parts = [tensors(40, ["b", "a"], scale), tensors(41, ["c"], scale)]
    for number, part in enumerate([*parts, {}], 1):
        put(folder, f"model-{number:05}-of-00003.safetensors", transformers_file(part))
    names = {name: f"model-{number:05}-of-00003.safetensors" for number, part in enumerate(parts, 1) for name in part}
    put(folder, "model.safetensors.index.json", json.dumps({"weight_map": names, "metadata": {"total_size": 7, "total_parameters": 90_000, "by": "me"}}))


def embeddings(folder, scale=1):
    put(folder, "learned_embeds.safetensors", transformers_file(tensors(42, ["<concept>"], scale), metadata=None))
    put(folder, "token_identifier.txt", "<concept>")
    put(folder, "concept_images/0.jpeg", os.urandom(9000))


def speech(folder, scale=1):
    single(folder, scale)
    for name in ("alphabet.json", "language_model/attrs.json", "vocab.json"):
        put(folder, name)
    put(folder, "language_model/5gram.bin", b"mmap lm http://kheafield.com/code format version 5\n\0" + os.urandom(70_000))
    put(folder, "language_model/unigrams.txt", "a\nb\n")


def controlnet(folder, scale=1):
    """A part of a pipeline by itself, under the name that diffusers gives it."""
    put_json(folder, "config.json", {"_class_name": "ControlNetModel"})
    put(folder, "diffusion_pytorch_model.safetensors", transformers_file(tensors(43, ["controlnet.w", "controlnet.b"], scale)))


def video(folder, scale=1):
    """A pipeline with two transformers, one of them in shards, and a scheduler that has no weights."""
    parts = {"transformer": 44, "transformer_2": 46, "vae": 48, "text_encoder": 50}
    put_json(folder, "model_index.json", {"_class_name": "WanPipeline"} | {part: ["diffusers", "X"] for part in parts})
    for part, seed in parts.items():
        put_json(folder, f"{part}/config.json", {"part": part})
        stem = f"{part}/model" if part == "text_encoder" else f"{part}/diffusion_pytorch_model"
        if part.startswith("transformer"):
            put_shards(folder, stem, [tensors(seed, ["blocks.0.w"], scale), tensors(seed + 1, ["blocks.1.w"], scale)])
        else:
            put(folder, f"{stem}.safetensors", transformers_file(tensors(seed, ["w"], scale)))
    put_json(folder, "scheduler/scheduler_config.json", {})
    put(folder, "tokenizer/spiece.model", os.urandom(2000))


def nothing_else(folder, scale=1):
    put(folder, "model.safetensors", odd_file(tensors(52, ["alone"], scale)))


def types(folder, scale=1):
    """Every element type, scalars and empty tensors among them."""
    width = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
             "U64": 8, "U32": 4, "U16": 2, "U8": 1}
    rng = numpy.random.default_rng(53)
    made = {f"{kind}.{i}": (kind, shape, rng.bytes(size * int(numpy.prod(shape)))) for kind, size in width.items()
            for i, shape in enumerate(([], [0, 7], [5, 9]))}
    put(folder, "model.safetensors", transformers_file(made | {"bool": ("BOOL", [4], b"\1\0\0\1")}))
    put_json(folder, "config.json", CONFIG)


MORE = {each.__name__: each for each in (
    trainer, accelerate, many_shards, mistral, adapters, exports, mlx_quantized, fp8, gpt_oss, timm, one_file, images, remote_code,
    underscores, rich_index, embeddings, speech, controlnet, video, nothing_else, types)}
FOLDERS = {"llama": llama, "every_format": every_format, "torch_only": torch_only, "pipeline": pipeline, "gptq": gptq,
           "tokenizers": tokenizers, "sentences": sentences, "adapter": adapter, "no_index": no_index, "sizes": sizes,
           "odd_names": odd_names, "hub": hub}
