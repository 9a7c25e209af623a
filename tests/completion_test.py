"""The completions of bash, zsh and fish, asked as the shells themselves would ask them.

What each offers is compared with --help of the program in ZTSTREAM. A shell that is not installed is skipped, and the
skip says so.
"""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/lib"))
import make_safetensors

PROGRAM = os.environ.get("ZTSTREAM") or str(ROOT / "build/release/bin/ztstream")
COMPLETIONS = ROOT / "completions"
COMMANDS = ["convert", "join", "inspect", "show", "verify", "extract", "apply", "diff", "id"]


def options(*command):
    """The long options of a --help."""
    text = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M))


class Completion:
    """The same questions for every shell; `offers(line)` is the set of words that pressing tab behind `line` gives."""

    def setUp(self):
        if shutil.which(self.shell) is None:
            self.skipTest(f"{self.shell} is not installed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "home").mkdir()
        (self.folder / "files").mkdir()
        for name in ("model.zt", "model.safetensors", "other.npz"):
            (self.folder / "files" / name).touch()
        tensors = {name: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for name in ("layer.weight", "layer.bias", "head")}
        (self.folder / "files/real.safetensors").write_bytes(make_safetensors.raw(tensors))
        path = f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}"
        self.environment = {"HOME": str(self.folder / "home"), "PATH": path, "TERM": "dumb",
                            "LC_ALL": "C.UTF-8"}

    def run_shell(self, *arguments):
        return subprocess.run([self.shell, *arguments], capture_output=True, text=True, check=True, timeout=60,
                              cwd=self.folder / "files", env=self.environment, stdin=subprocess.DEVNULL)

    def test_commands(self):
        self.assertEqual(self.offers("ztstream "), set(COMMANDS))
        self.assertEqual(self.offers("ztstream con"), {"convert"})
        self.assertEqual(self.offers("ztstream --"), {"--help", "--version"})

    def test_every_option_of_every_command_and_no_other(self):
        table = json.loads(subprocess.run([PROGRAM, "--help", "--json"], capture_output=True, check=True, timeout=60).stdout)
        for command in COMMANDS:
            common = {"--" + row["name"] for row in table["options"] if row["group"] == "Every command" and command in row["commands"]}
            self.assertEqual(self.offers(f"ztstream {command} --"), options(command) | common, command)

    def test_values(self):
        for line, values in (("convert --spec ", "2.0 1.2 1.1 0.1"), ("convert --digest ", "none crc32c sha256 xxh3"),
                             ("convert --on-overflow ", "error inf saturate"), ("convert --quant ", "keep group"),
                             ("convert a.safetensors --quant ", "keep group"), ("convert --dequantize ", "f32 f16 bf16"),
                             ("inspect --from ", "safetensors npy npz gguf torch onnx hdf5 zt"),
                             ("extract a.zt --to ", "safetensors npz npy gguf"),
                             ("id --progress ", "auto always never"), ("inspect --sort ", "name size offset"), ("convert --digest s", "sha256")):
            self.assertEqual(self.offers(f"ztstream {line}"), set(values.split()), line)

    def test_levels_of_zstd(self):
        offered = {word.removeprefix("--zstd=") for word in self.offers("ztstream convert --zstd=")}
        self.assertEqual(offered, set("1 3 9 19 huffman planes".split()))

    def test_names_of_tensors(self):
        self.assertEqual(self.offers("ztstream extract real.safetensors lay"), {"layer.weight", "layer.bias"})
        self.assertEqual(self.offers("ztstream extract real.safetensors head lay"), {"layer.weight", "layer.bias"})

    def test_files(self):
        self.assertEqual(self.offers("ztstream inspect mod"), {"model.zt", "model.safetensors"})
        self.assertEqual(self.offers("ztstream convert other.npz mod"), {"model.zt", "model.safetensors"})
        self.assertEqual(self.offers("ztstream convert -o oth"), {"other.npz"})
        self.assertEqual(self.offers("ztstream verify model.zt --against oth"), {"other.npz"})


class Bash(Completion, unittest.TestCase):
    shell = "bash"

    def offers(self, line):
        words = line.split(" ")
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ztstream; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        out = self.run_shell("--norc", "-c", script, "bash", COMPLETIONS / "ztstream.bash", *words).stdout
        return set(out.split())


class Fish(Completion, unittest.TestCase):
    shell = "fish"

    def offers(self, line):
        out = self.run_shell("--no-config", "-c", f"source '{COMPLETIONS / 'ztstream.fish'}'; complete -C '{line}'").stdout
        return {row.split("\t")[0] for row in out.splitlines() if not re.match(r"-\w(\t|$)", row)}


class Zsh(Completion, unittest.TestCase):
    shell = "zsh"

    # Runs in an interactive zsh, one for each test: tab prints, between two zero bytes, what the completion hands to compadd.
    SETUP = r"""
PROMPT=
unsetopt auto_list auto_menu
fpath=(FOLDER $fpath)
autoload -Uz compinit
compinit -u -D
zstyle ':completion:*' insert-tab false
mark() { print -rn -- $'\0'; compprefuncs=(mark) comppostfuncs=(mark) }
mark
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
    builtin compadd "$@"
    return
  fi
  local -a hits
  builtin compadd -A hits "$@"
  (( $#hits )) && print -rl -- "" $hits
  builtin compadd "$@"
}
bindkey '^I' complete-word
bindkey '^U' kill-whole-line
print -rn -- R''EADY
"""

    def setUp(self):
        super().setUp()
        script = self.folder / "setup.zsh"
        script.write_text(self.SETUP.replace("FOLDER", str(COMPLETIONS)))
        process, self.terminal = pty.fork()
        if process == 0:
            os.chdir(self.folder / "files")
            os.execvpe("zsh", ["zsh", "-f", "-i"], self.environment)
        self.addCleanup(os.waitpid, process, 0)
        self.addCleanup(os.close, self.terminal)
        os.write(self.terminal, f"source {script}\n".encode())
        self.read_until(self.terminal, lambda text: b"READY" in text)

    def offers(self, line):
        os.write(self.terminal, f"\x15{line}\t".encode())
        text = self.read_until(self.terminal, lambda text: text.count(b"\0") >= 2)
        return set(text.split(b"\0")[1].decode().split())

    @staticmethod
    def read_until(terminal, done):
        text = b""
        while not done(text):
            try:
                part = os.read(terminal, 4096)
            except OSError:  # the shell has ended
                part = b""
            if not part:
                raise AssertionError(f"zsh ended: {text!r}")
            text += part
        return text


if __name__ == "__main__":
    unittest.main()
