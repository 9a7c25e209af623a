"""lint_comments.py [--fix] FILE...: finds comments of C++ files that are badly broken into lines.

An orphan is a word alone on a line below a long one; a ragged line stops early though the next word would fit; a torn
bullet goes on at the bullet's own indentation. Prints "file:line: what"; tests/lint.sh calls it. --fix joins or balances
orphans; the others want a human.
"""
import re
import sys

WIDTH = 120     # of comments
FULL = 60       # a line this long was broken because it was full
RAGGED = 70     # a line that the next word would leave below this was broken for another reason
COMMENT = re.compile(r"^(\s*)//( *)(\S.*)$")
BULLET = re.compile(r"(?:[-*+|]|\d+\.) ")


def orphan(previous, this):
    """Two lines of a comment, matched."""
    return (previous[1] == this[1] and " " not in this[3] and " " in previous[3] and len(previous[0]) > FULL
            and not this[3].startswith(("---", "===")))


def ragged(previous, this, following):
    return (previous[1] == this[1] == following[1] and previous[2] == this[2] == following[2] and len(previous[0]) >= 80
            and len(this[0]) + 1 + len(following[3].split()[0]) <= RAGGED and this[3][-1] not in ".:;?,|"
            and "  " not in this[3] and not BULLET.match(following[3]) and not BULLET.match(this[3]))


def torn(previous, this):
    return (bool(BULLET.match(previous[3])) and previous[3][:2] == "- " and previous[1] == this[1]
            and len(this[2]) <= len(previous[2]) and this[3][0].islower())


def departures(lines):
    """(index, kind) of each."""
    matched = [COMMENT.match(line) for line in lines]
    for at, this in enumerate(matched):
        previous = matched[at - 1] if at else None
        if not previous or not this:
            continue
        following = matched[at + 1] if at + 1 < len(matched) else None
        if orphan(previous, this) and not (following and following[2] == this[2] and BULLET.match(this[3])):
            yield at, "orphan"
        elif following and ragged(previous, this, following):
            yield at, "ragged line"
        elif torn(previous, this):
            yield at, "torn bullet"


def mended(previous, this):
    """The two lines as one, or broken where both have several words."""
    whole = previous.rstrip() + " " + COMMENT.match(this)[3]
    if len(whole) <= WIDTH:
        return [whole]
    start = COMMENT.match(previous)
    head, words = start[1] + "//" + start[2], whole[start.start(3):].split(" ")
    breaks = []
    for at in range(2, len(words) - 2):
        first = " ".join(words[:at])
        share = len(first) / len(whole)
        if 0.4 <= share <= 0.85 and len(head + first) <= 100:
            breaks.append((words[at - 1][-1] in ".;:" and 2 or words[at - 1][-1] == "," and 1 or 0, share, at))
    at = max(breaks)[2]
    return [head + " ".join(words[:at]), head + " ".join(words[at:])]


def main(arguments):
    fix = "--fix" in arguments
    for name in arguments:
        if name == "--fix":
            continue
        with open(name, encoding="utf-8") as file:
            lines = file.read().split("\n")
        for at, kind in reversed(list(departures(lines))):
            if fix and kind == "orphan":
                lines[at - 1:at + 1] = mended(lines[at - 1], lines[at])
            else:
                print(f"{name}:{at + 1}: {kind}: {lines[at].strip()}")
        if fix:
            with open(name, "w", encoding="utf-8") as file:
                file.write("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
