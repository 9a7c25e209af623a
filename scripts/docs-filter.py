#!/usr/bin/python3
"""Shows an interface unit (.cppm) to doxygen as the plain header it would have been, and a page without links.

Drops the lines of the module system and turns comments, before a declaration and behind a member, into those that
doxygen reads. Declarations that follow each other without a blank line share the comment of the first. Line numbers
stay. Of partitions that are internal to their module nothing is shown. Links of pages within the repository lead
nowhere in what doxygen makes: only their words are left.
"""
import re
import sys


def escaped(text):
    return re.sub(r"([@\\<>&%#])", r"\\\1", text).replace("std::", "std::%")


text = open(sys.argv[1], encoding="utf-8").read()
if sys.argv[1].endswith(".md"):
    text = re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    print(re.sub(r'`([^`"\n]*)"([^`"\n]*)`', r"`\1&quot;\2`", text), end="")  # doxygen looks for a second one
    sys.exit()
if re.search(r"^module [a-z]", text, re.M):
    sys.exit()
said, before = [], ""  # the comment of the last declaration, and the line before
for number, line in enumerate(text.splitlines()):
    line = re.sub(r"^export (?!module|import)", "", line)
    shared = said and re.match(r"[A-Za-z].*", line) and before.endswith((";", "}")) and not line.startswith(("namespace", "using namespace"))
    if before == "":
        said = []
    own = f"/** {' '.join(said)} */ " if shared else ""
    line = re.sub(r"^(inline constexpr \S+ )(\w+ = [^,;{]+), (\w+ = [^,;{]+);$",
                  lambda parts: f"{parts[1]}{parts[2]}; /** {' '.join(said)} */ {parts[1]}{parts[3]};", line)
    if re.match(r"(module;|(export )?(module|import) )", line) or re.match(r"\s*// ----", line):
        print()
    elif number == 0:
        print("/// @file")
    elif comment := re.match(r"(\s*)// ?(.*)", line):
        print(f"{comment[1]}/// {escaped(comment[2])}")
        if comment[1] == "":
            said = said * before.startswith("//") + [escaped(comment[2])]
    elif behind := re.match(r"(.*\S\s+)// (.*)", line):
        print(f"{own}{behind[1]}///< {escaped(behind[2])}")
    else:
        print(own + line)
    before = line
