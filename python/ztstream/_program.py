"""The program ztstream, which comes with the package: convert, extract, verify, diff, inspect, join, id and show, with what it says as JSON."""
import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any, Dict

from . import _types
from ._errors import OF_THE_PROGRAM, MisuseError, make
from ._interrupt import interruptibly


@functools.lru_cache(None)
def program() -> str:
    """The path of the program: what ZTSTREAM_PROGRAM names, that beside the package, or the first in PATH."""
    beside = pathlib.Path(__file__).parent / "_lib" / "ztstream"
    found = os.environ.get("ZTSTREAM_PROGRAM") or (str(beside) if beside.exists() else shutil.which("ztstream"))
    if not found:
        raise MisuseError("the program ztstream is not beside the package and not in PATH; ZTSTREAM_PROGRAM names it")
    return found


def _words(options):
    """Options of the program: digest="sha256" is --digest=sha256, force=True is --force, a list repeats the option."""
    for key, value in options.items():
        option = "--" + key.rstrip("_").replace("_", "-")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is True:
                yield option
            elif each is not None and each is not False:
                if isinstance(each, (bytes, os.PathLike)):
                    each = os.fsdecode(each)
                elif not isinstance(each, (str, int, float)):  # a type of numpy or torch
                    each = _types.named(each)
                yield f"{option}={each}"


def _path(path):
    path = os.fsdecode(path)
    return "./" + path if path.startswith("-") else path


def _outcome(words):
    """(exit status, standard output, standard error) of a program. What interrupts it ends it, and waits until it has cleaned up."""
    begun, stopped = [], []

    def work():
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        begun.append(process)
        if stopped:
            stop()
        out, error = process.communicate()
        return process.returncode, out, error

    def stop():
        stopped.append(True)
        for process in begun:  # none of its methods, whose lock is lost where another interrupt comes
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)

    return interruptibly(work, stop)


def _run(command, paths, options, names=()):
    """Runs a command with --json. 0 and 1 are answers; another status is the exception for it."""
    words = [program(), command, "--json", *_words(options), "--", *map(_path, paths), *names]
    status, out, said = _outcome(words)
    said = said.decode("utf-8", "replace").strip()
    try:
        result = json.loads(out.decode("utf-8") or "null")
    except ValueError:
        result = None
    if status in (0, 1) and isinstance(result, dict):
        return result
    error = (result or {}).get("error") or {}
    message = error.get("message") or said.rpartition("ztstream: ")[2] or f"the program ended with status {status}"
    if status in (130, -2):
        raise KeyboardInterrupt
    advice = error.get("advice") or {}
    message = message.removesuffix("".join("; " + words for words in advice.values()))
    raise make(status, message, error.get("file"), error.get("tensor"), advice, OF_THE_PROGRAM)


def convert(source, out, **options) -> Dict[str, Any]:
    """Converts a checkpoint, or several given as a list, to a .zt file. Options are those of `ztstream convert`:

        convert("model.safetensors", "model.zt", zstd="planes", dtype=["norm=f32", "bf16"], force=True)
    """
    sources = source if isinstance(source, (list, tuple)) else [source]
    return _run("convert", sources, {**options, "output": _path(out)})


def extract(source, out, names=(), **options) -> Dict[str, Any]:
    """Writes tensors of a checkpoint as safetensors, npz, npy or GGUF, by the suffix of `out` or to="safetensors":

        extract("model.zt", "back.safetensors")
        extract("model.zt", "norms.npz", ["glob:*norm*"], dtype="f32")
        extract("model.zt", "folder/", to="safetensors")  # weights and files, as they were

    names: which tensors, or patterns; all without it. Options are those of `ztstream extract`.
    """
    chosen = [names] if isinstance(names, str) else list(names)
    return _run("extract", [source], {**options, "output": _path(out)}, chosen)


def verify(path, against=None, **options) -> Dict[str, Any]:
    """Reads every byte of a .zt file and checks rules and digests; with `against`, compares it with what it was made of.
    "ok" in the result is whether it is good."""
    return _run("verify", [path], {**options, "against": against})


def diff(first, second, **options) -> Dict[str, Any]:
    """Compares two checkpoints of any format by name, shape, type and values. "ok" is whether they are equal."""
    return _run("diff", [first, second], options)


def inspect(path, **options) -> Dict[str, Any]:
    """What a checkpoint of any format holds, from its headers."""
    return _run("inspect", [path], options)


def join(shards, out, **options) -> Dict[str, Any]:
    """Writes the index that makes the shards of one conversion one input: join(glob.glob("model-*-of-*.zt"), "model.zt")."""
    return _run("join", [shards] if isinstance(shards, (str, bytes, os.PathLike)) else shards, {**options, "output": _path(out)})


def id(source, **options) -> str:
    """The content digest, "sha256:...", of a checkpoint or of several given as a list: the same for the same tensors and attributes,
    whatever holds them."""
    return _run("id", source if isinstance(source, (list, tuple)) else [source], options)["id"]


def show(path, name=None, **options) -> Dict[str, Any]:
    """The values of a tensor or of a slice of it, of any type and format: show("model.gguf", "blk.0.attn_q.weight[0, :8]")["values"]."""
    return _run("show", [path], options, [] if name is None else [name])


def main():
    """The command `ztstream` that installing the package brings."""
    path = program()
    os.execv(path, ["ztstream", *sys.argv[1:]])
