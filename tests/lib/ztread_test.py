#!/usr/bin/python3
"""ztread_test.py - the independent reader itself: the corpus by its verdicts, the reference files by their hashes.

usage: ztread_test.py DATA    DATA is tests/data
"""
import hashlib
import json
import os
import sys

import ztread


def main(data):
    failures = []
    with open(os.path.join(data, "corpus", "corpus.json")) as f:
        corpus = json.load(f)
    for name, expected in corpus.items():
        try:
            ztread.read(os.path.join(data, "corpus", name))
            verdict, why = "accept", ""
        except ztread.Broken as error:
            verdict, why = "reject", str(error)
        if verdict != expected["verdict"]:
            failures.append(f"corpus/{name}: {verdict} {why}, expected {expected}")
    with open(os.path.join(data, "zt", "expected.json")) as f:
        reference = json.load(f)
    components = 0
    for name, objects in reference.items():
        found = ztread.read(os.path.join(data, "zt", name))
        for key, expected in objects.items():
            got = found[key]
            if got["shape"] != expected["shape"] or got["format"] != expected["format"]:
                failures.append(f"zt/{name}: {key} is {got['format']} {got['shape']}")
            for role, want in expected["components"].items():
                components += 1
                have = got["components"][role]["bytes"]
                if hashlib.sha256(have).hexdigest() != want["sha256"]:
                    failures.append(f"zt/{name}: {key}/{role} has other bytes")
    print(f"{len(corpus)} corpus files, {components} components, {len(failures)} failures")
    print("\n".join(failures), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
