#!/usr/bin/python3
"""Shows an interface unit (.cppm) to doxygen as the plain header it would have been.

Drops the lines of the module system and turns comments, before a declaration and behind a member, into those that
doxygen reads. Line numbers stay. Of partitions that are internal to their module nothing is shown.
"""
import re
import sys


def escaped(text):
    return re.sub(r"([@\\<>&%#])", r"\\\1", text)


text = open(sys.argv[1], encoding="utf-8").read()
if re.search(r"^module [a-z]", text, re.M):
    sys.exit()
for number, line in enumerate(text.splitlines()):
    line = re.sub(r"^export (?!module|import)", "", line)
    if re.match(r"(module;|(export )?(module|import) )", line) or re.match(r"\s*// ----", line):
        print()
    elif number == 0:
        print("/// @file")
    elif comment := re.match(r"(\s*)// ?(.*)", line):
        print(f"{comment[1]}/// {escaped(comment[2])}")
    elif behind := re.match(r"(.*\S\s+)// (.*)", line):
        print(f"{behind[1]}///< {escaped(behind[2])}")
    else:
        print(line)
