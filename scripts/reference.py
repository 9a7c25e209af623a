#!/usr/bin/env python3
"""Writes the man page and the completions from the program's table of options.

  scripts/reference.py [PROGRAM]            writes docs/man/ztstream.1 and completions/ (build/release/bin/ztstream by default)
  scripts/reference.py --check [PROGRAM]    names those that are not current, and exits with 1 if any is

The table is `ztstream --help --json` (cli/args/options.cc). The text around the options of the man page is in
docs/man/ztstream.1.in: "@options COMMAND GROUP" stands for the rows of a group, and the lines behind "@about --NAME", up
to the next line that begins with @, are added to a row. "@end" ends the block.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MANUAL = "docs/man/ztstream.1"


def flags(row):
    """["-o", "--output"]."""
    return [f"-{row['letter']}"] * bool(row["letter"]) + ["--" + row["name"]]


def optional_value(row):
    return row["value"].startswith("[=")


class Table:

    def __init__(self, program):
        table = json.loads(subprocess.run([program, "--help", "--json"], capture_output=True, text=True, check=True).stdout)
        self.commands = table["commands"]
        self.names = [command["name"] for command in self.commands]
        for row in table["options"]:  # words of one that begins with @ say what else completes it
            row["completion"] = row["words"].pop()[1:] if row["words"][:1] and row["words"][0].startswith("@") else ""
        self.rows = [row for row in table["options"] if not row["operand"]]
        self.operands = [row for row in table["options"] if row["operand"]]

    def options(self, command, group=None):
        return [row for row in self.rows if command in row["commands"] and group in (None, row["group"])]

    def operands_of(self, command):
        return [row for row in self.operands if command in row["commands"]]

    def own(self):
        """Options of the program itself."""
        return [row for row in self.rows if not row["commands"]]


# ---- the man page ----------------------------------------------------------------------------------------------------

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def paragraph(row, about):
    head = ", ".join(f"\\fB{roff(flag)}\\fP" for flag in flags(row))
    value = re.sub(r"[A-Z]{2,}|\b[A-Z]\b", lambda word: f"\\fI{word[0]}\\fP", roff(row["value"]))
    head += value if optional_value(row) else f" {value}" if value else ""
    default = f" (default: {roff(row['default'])})" if row["default"] else ""
    return [".TP", head, roff(row["help"]) + default + ".", *about]


def manual(table):
    lines, block, about, used = [], None, None, {}
    for line in (ROOT / f"{MANUAL}.in").read_text().splitlines():
        word, *rest = line.split(" ", 2) if line.startswith("@") else [""]
        if word == "@options":
            block, used, about = rest, {}, None
        elif word == "@about":
            about = used.setdefault(rest[0].removeprefix("--"), [])
        elif word == "@end":
            command, group = block
            rows = table.options(command, group) + (table.own() if group == "Every command" else [])
            unknown = used.keys() - {row["name"] for row in rows}
            assert rows and not unknown, f"{MANUAL}.in: {block} {sorted(unknown)}"
            for row in rows:
                lines += paragraph(row, used.get(row["name"], []))
            block = about = None
        else:
            (lines if block is None else about).append(line)
    return "\n".join(lines) + "\n"


# ---- completions -----------------------------------------------------------------------------------------------------

NAMES = r"""'\{"name":"[^"\\]*","shape"'"""  # a tensor of `inspect --json`

BASH = r"""# bash completion for ztstream; scripts/reference.py writes it

# The names of a file's tensors, one a line: those a line can hold.
_ztstream_tensors() {
  ztstream inspect --quiet --json -- "$1" 2>/dev/null |
    grep -oE @NAMES@ | cut -d '"' -f 4
}

_ztstream() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local options values=
  COMPREPLY=()
  case $command in
@OPTIONS@
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    values='@COMMANDS@'
    [[ $cur != -* ]] || values='@OWN@'
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    return
  fi
  # With '=' among the characters that end a word, as usual, --zstd=9 comes as three words.
  if [[ $cur == --zstd=* || $prev == --zstd && $cur == = || $prev == = && ${COMP_WORDS[COMP_CWORD - 2]} == --zstd ]]; then
    local whole=; [[ $cur != --zstd=* ]] || whole=--zstd=
    COMPREPLY=($(compgen -P "$whole" -W '@LEVELS@' -- "${cur##*=}"))
    return
  fi
  case $command:$prev in
@VALUES@
  esac
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    return
  fi
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
    return
  fi
  # Behind extract's file come names of its tensors.
  if [[ $command == extract && $prev != -o && $prev != --output && $prev != --to && $prev != extract ]]; then
    local word file=
    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do [[ $word == -* || ! -e $word ]] || { file=$word; break; }; done
    if [ -n "$file" ]; then
      local IFS=$'\n'
      COMPREPLY=($(compgen -W "$(_ztstream_tensors "$file")" -- "$cur"))
      return
    fi
  fi
  compopt -o filenames 2>/dev/null
  local IFS=$'\n'
  COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _ztstream ztstream
"""


def bash(table):
    names = [row["name"] for row in table.rows]
    options, values, nothing = [], [], []
    for command in table.names:
        words = " ".join(flag for row in table.options(command) for flag in flags(row))
        options.append(f"    {command}) options='{words}' ;;")
    for row in table.rows:
        if not row["value"] or optional_value(row):
            continue
        commands = row["commands"] if names.count(row["name"]) > 1 else ["*"]
        patterns = [f"{command}:{flag}" for command in commands for flag in flags(row)]
        if row["words"]:
            values.append(f"    {'|'.join(patterns)}) values='{' '.join(row['words'])}' ;;")
        elif not row["completion"]:
            nothing += patterns
    values.append(f"    {'|'.join(nothing)}) return ;;")
    own = [flag for row in table.rows if row["name"] in ("help", "version") for flag in flags(row)]
    return fill(BASH, table, OPTIONS="\n".join(options), VALUES="\n".join(values), OWN=" ".join(own),
                COMMANDS=" ".join(table.names))


def fill(text, table, **parts):
    parts["NAMES"] = NAMES
    parts["LEVELS"] = " ".join(next(row["words"] for row in table.rows if optional_value(row)))
    return re.sub(r"@([A-Z]+)@", lambda name: parts[name[1]], text)


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


ZSH = r"""#compdef ztstream
# scripts/reference.py writes this

# The names of the tensors of the file on the line.
_ztstream_tensors() {
  local -a names
  local file
  for file in $words[2,CURRENT-1]; do [[ $file != -* && -e $file ]] && break; done
  names=(${(f)"$(ztstream inspect --quiet --json -- $file 2>/dev/null |
    grep -oE @NAMES@ | cut -d '"' -f 4)"})
  compadd -a names
}

local -a commands
commands=(
@COMMANDS@
)
if (( CURRENT == 2 )); then
  if [[ $PREFIX == -* ]]; then
    _arguments @OWN@
  else
    _describe command commands
  fi
  return
fi
local command=$words[2]
shift words
(( CURRENT-- ))
case $command in
@CASES@
esac
"""
ZSH_ACTIONS = {"files": "_files", "tensors": "_ztstream_tensors", "": ""}


def zsh_action(row):
    return f"({' '.join(row['words'])})" if row["words"] else ZSH_ACTIONS[row["completion"]]


def zsh_option(row):
    names, text = flags(row), "[" + re.sub(r"([\[\]:])", r"\\\1", row["help"]) + "]"
    if row["value"]:
        separator = "::" if optional_value(row) else ":"
        text += separator + re.sub(r"[^a-z/]", "", row["value"].lower()) + ":" + zsh_action(row)
    if row["repeatable"] or optional_value(row):
        return quoted("*" * row["repeatable"] + names[-1] + "=-" * optional_value(row) + text)
    if len(names) == 1:
        return quoted(names[0] + text)
    return f"'({' '.join(names)})'{{{','.join(names)}}}{quoted(text)}"


def zsh(table):
    cases = []
    for command in table.names:
        specs = [zsh_option(row) for row in table.options(command)]
        for place, row in enumerate(table.operands_of(command), 1):
            where = "*" if row["repeatable"] else place
            if any(each.startswith("'*:") for each in specs[-1:]):
                break  # _arguments has one rest: inspect's files stand for its words
            specs.append(quoted(f"{where}:{re.sub('[^a-z]', '', row['name'].lower())}:{zsh_action(row)}"))
        cases.append(f"  {command})\n    _arguments -s " + " \\\n      ".join(specs) + " ;;")
    own = " ".join(zsh_option(row) for row in table.rows if row["name"] in ("help", "version"))
    commands = "\n".join("  " + quoted(f"{each['name']}:{each['does']}") for each in table.commands)
    return fill(ZSH, table, COMMANDS=commands, OWN=own, CASES="\n".join(cases))


FISH = r"""# fish completion for ztstream; scripts/reference.py writes it

set -l commands @COMMANDS@
complete -c ztstream -n "not __fish_seen_subcommand_from $commands" -f -a "$commands"

# The names of the tensors of the file on the line.
function __ztstream_tensors
    for file in (commandline -opc)[3..]
        string match -q -- '-*' $file; or test ! -e $file; or break
    end
    ztstream inspect --quiet --json -- $file 2>/dev/null | string match -rga '\{"name":"([^"\\\\]*)","shape"'
end
complete -c ztstream -n "__fish_seen_subcommand_from extract" -a '(__ztstream_tensors)' -d tensor

@ROWS@
"""


def fish(table):
    rows = []
    for row in table.rows:
        seen = f"'__fish_seen_subcommand_from {' '.join(row['commands'])}'"
        if not row["commands"]:
            seen = '"not __fish_seen_subcommand_from $commands"'
        elif row["name"] == "help":
            seen = ""
        line = f"complete -c ztstream{' -n ' * bool(seen)}{seen}" + f" -s {row['letter']}" * bool(row["letter"]) + f" -l {row['name']}"
        if row["words"] and not optional_value(row):
            line += f" -x -a '{' '.join(row['words'])}'"
        elif row["value"] and not optional_value(row):
            line += " -r" if row["completion"] else " -x"
        rows.append(f"{line} -d {quoted(row['help'])}")
        if optional_value(row):
            name = "--" + row["name"]
            words = " ".join(f"{name}={word}" for word in row["words"])
            rows.append(f"complete -c ztstream -n \"{seen[1:-1]}; and string match -q -- '{name}=*' (commandline -ct)\" -f -a '{words}'")
    return fill(FISH, table, COMMANDS=" ".join(table.names), ROWS="\n".join(rows))


def pages(program):
    """{path: text} of all that is written."""
    table = Table(program)
    return {ROOT / MANUAL: manual(table), ROOT / "completions/ztstream.bash": bash(table),
            ROOT / "completions/_ztstream": zsh(table), ROOT / "completions/ztstream.fish": fish(table)}


def main(arguments):
    check = "--check" in arguments
    programs = [each for each in arguments if not each.startswith("--")] or [ROOT / "build/release/bin/ztstream"]
    stale = [(path, text) for path, text in pages(programs[0]).items() if path.read_text() != text]
    for path, text in stale:
        print(f"{path.relative_to(ROOT)}{': not current; scripts/reference.py writes it' if check else ''}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
