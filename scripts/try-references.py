#!/usr/bin/python3
"""Whole models, with their files, in other programs that read zTensor: they must list, check and identify them as ztstream does.

  scripts/try-references.py [--reference PROGRAM] [--reference-2 PROGRAM] [--program ZTSTREAM]

PROGRAM reads 1.2: `info FILE` prints the name of each object, `decompress FILE -o OUT` reads all and checks the digests.
PROGRAM of --reference-2 reads 2.0: `ls FILE` prints the names with their layouts, `verify FILE [--deep] [--canonical]` checks the
digests, `id FILE` prints the content digest. A damaged file of the model must make either fail.
The folders are those of tests/lib/make_folders.py. Exit status 1 where a program finds something else.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/lib"))

import make_folders  # noqa: E402, found there

WAYS = {"1.2": ([], ["--zstd"], ["--zstd=planes"]),
        "2.0": ([], ["--zstd"], ["--zstd=planes"], ["--canonical"], ["--shards", "2"])}
COMMANDS = {"1.2": (["info"], ["decompress"]), "2.0": (["ls"], ["verify", "--deep"])}


class Wrong(Exception):
    pass


def run(*words, good=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, errors="replace", check=False)
    if (done.returncode == 0) != good:
        raise Wrong(f"{' '.join(map(str, words))}: status {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
    return done.stdout


def check(options, version, folder, needed, words, work):
    """One model of one version; how many objects the other program has listed and checked."""
    other = options.reference if version == "1.2" else options.reference_2
    model = work / "m.zt"
    for old in work.iterdir():
        old.unlink()
    run(options.program, "convert", folder, "-o", model, "-q", "--spec", version, *needed, *words)
    listed = json.loads(run(options.program, "inspect", "--json", model))
    entries = [*listed["objects"], *listed["files"]]
    ls, verify = COMMANDS[version]
    verify = [other, verify[0], model, *verify[1:], *(["-o", work / "out"] if version == "1.2" else [])]
    text = run(other, *ls, model)
    for entry in entries:
        if entry["name"] not in text:
            raise Wrong(f"{entry['name']!r} is not listed")
    if "--files" not in words and text.count("ztstream.file/1") != len(listed["files"]):
        raise Wrong("the profile is not listed with each file")
    told = run(*verify, *["--canonical"] * ("--canonical" in words))
    if version == "2.0":
        if "--canonical" in words and "canonical form: yes" not in told:
            raise Wrong(f"not canonical: {told}")
        ours, theirs = (run(program, "id", model).split()[0] for program in (options.program, other))
        if ours != theirs:
            raise Wrong(f"id: {ours}, the other program says {theirs}")
    if "--shards" not in words:
        largest = max((entry["components"][0] for entry in listed["files"]), key=lambda part: part["length"])
        content = bytearray(model.read_bytes())
        content[largest["offset"] + largest["length"] // 2] ^= 8
        model.write_bytes(content)
        run(*verify, good=False)
    return len(entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=pathlib.Path)
    parser.add_argument("--reference-2", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build/release/bin/ztstream")
    options = parser.parse_args()
    versions = ["1.2"] * bool(options.reference) + ["2.0"] * bool(options.reference_2)
    if not versions:
        parser.error("name a program: --reference or --reference-2")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="ztstream-references-") as temporary:
        work = pathlib.Path(temporary, "work")
        work.mkdir()
        for name, make in make_folders.FOLDERS.items():
            folder = pathlib.Path(temporary, name)
            folder.mkdir()
            make(folder)
            for version in versions:
                for words in WAYS[version]:
                    what = f"{name:14} {version} {' '.join(words):16}"
                    try:
                        count = check(options, version, folder, ["--follow-links"] * (name == "hub"), words, work)
                        print(f"{what} {count:4} objects")
                    except Wrong as error:
                        wrong += 1
                        print(f"{what} WRONG: {error}")
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
