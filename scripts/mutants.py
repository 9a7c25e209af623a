#!/usr/bin/env python3
"""Changes operators of modules/, converters/ and cli/ at random, one at a time, and says which changes no test notices.

  scripts/mutants.py FOLDER [--count N] [--seed N] [--only REGEX] [--tests REGEX] [--refresh] [--report] [-j N]

One build holds all changes: each place becomes (zt_mutant(K) ? changed : as it was), and the environment variable ZT_MUTANT
says which K is on. In FOLDER (a new one, on a disk with 2 GB) lie a copy of HEAD with the N changes (120), its build, and
state.json. Each test runs once, and what it reaches is recorded; then each mutant meets the tests that reach it, until one
fails or takes too long. Run again with the same FOLDER to go on after an interruption.

--only REGEX   places in files whose path matches
--tests REGEX  no tests but those whose name matches
--refresh      takes tests/ from the working tree, and gives the mutants that were not noticed another chance
--report       prints what is known, and runs nothing

A mutant that no test reaches is not noticed. Exit status 1 where some are not.
"""
import argparse
import bisect
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+"}
# How often each kind is drawn.
KINDS = {"comparison": 35, "logic": 15, "arithmetic": 15, "condition": 10, "guard": 15, "constant": 10}
# Tests that look at the text of the tree, build things of their own, or measure.
APART = "^(lint.*|docs_test|completion_test|install|classic|reference|cluster|ci_.*|python_(wheel|release|plain)_test|.*_fuzz.*|e2e_(cost|compare)_test)$"
# Lines in which the compiler needs a constant, or a change alters no result.
NOT_HERE = re.compile(r"\b(constexpr|consteval|static_assert|template|case|enum|assert|reserve|operator|using|alignas|DCHECK)\b")
ERRORS = (r"(?:InvalidArgument|AlreadyExists|InvalidData|Unsupported|NumericError|FailedPrecondition|MakeStatus|IoError|With\w+"
          r"|Annotate|\w*(?:Error|error|Damaged|Refuse\w*|EndsEarly)\w*|nullptr|std::nullopt|false|absl::\w+Error)\b")
FUNCTION = r"""// Which of the changes of scripts/mutants.py is on.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

int chosen = -1;
unsigned char* reached;

// Before all other initialisation, and before a process gives up the right to open files.
__attribute__((constructor(101))) void Begin() {
  if (const char* number = getenv("ZT_MUTANT")) chosen = atoi(number);
  if (const char* name = getenv("ZT_MUTANTS_REACHED")) {
    const int file = open(name, O_RDWR);
    void* map = mmap(nullptr, COUNT, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) reached = static_cast<unsigned char*>(map);
    close(file);
  }
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) bool zt_mutant(int mutant) noexcept {
  if (reached != nullptr) reached[mutant] = 1;
  return mutant == chosen;
}
"""


# ---- places --------------------------------------------------------------------------------------------------------


def masked(text):
    """The text with comments and preprocessor lines replaced by blanks, literals by quotes, of the same length."""
    blank = lambda match: re.sub(r"[^\n]", '"' if match[0][0] in "R\"'" else " ", match[0])
    return re.sub(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
                  r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.S | re.M)


def closing(code, at):
    """Where the parenthesis at `at` is closed."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth == 0:
            return i
    return None


def expression(code, at):
    """(begin, end) of the whole expression around an operator, up to what encloses it; None where that is not clear."""
    depth, begin = 0, at
    while begin > 0:
        c = code[begin - 1]
        if c in ")]":
            depth += 1
        elif c in "([":
            if depth == 0:
                break
            depth -= 1
        elif c in "{}" and depth:
            return None
        elif depth == 0 and (c in ";,{}?" or c == ":" and "::" not in code[begin - 2:begin + 1] or
                             c == "=" and code[begin - 2] not in "=<>!" and code[begin] != "=" or
                             re.search(r"\b(?:return|else|do)$", code[max(0, begin - 7):begin]) and code[begin].isspace()):
            break
        begin -= 1
    depth, end = 0, at
    while end < len(code):
        c = code[end]
        if c in "([":
            depth += 1
        elif c in ")]":
            if depth == 0:
                break
            depth -= 1
        elif c in "{}":
            return None
        elif depth == 0 and (c in ";,?" or c == ":" and "::" not in code[end - 1:end + 2]):
            break
        elif c == ";":
            return None
        end += 1
    while begin < end and code[begin].isspace():
        begin += 1
    word = re.search(r"(\w+)\s*\($", code[max(0, begin - 24):begin])
    if word and word[1] in ("decltype", "noexcept", "sizeof", "alignof", "requires"):
        return None
    return begin, end


def places(text):
    """Each (kind, begin, end, change, what it is in words) of a file: change is code with K for the number."""
    code, found = masked(text), []
    lines = [match.end() for match in re.finditer("\n", code)]
    line_of = lambda at: code[([0] + lines)[bisect.bisect(lines, at)]:][:200].split("\n")[0]

    def add(kind, begin, end, change, words):
        if "{" not in code[begin:end] and "//" not in text[begin:end] and not NOT_HERE.search(line_of(begin)) and not NOT_HERE.search(line_of(end)):
            found.append((kind, begin, end, change, " ".join(words.split())))

    for match in re.finditer(r"(?<=[^\s(,=?:{;] )([<>]=?|[=!]=|&&|\|\||[+-])(?=\s)", code):
        op, where = match[1], expression(code, match.start())
        if where is None:
            continue
        begin, end = where
        old = text[begin:end]
        new = text[begin:match.start()] + SWAPS[op] + text[match.end():end]
        if op in "+-" and '"' in code[begin:end]:
            continue  # texts cannot be subtracted
        kind = "logic" if op in ("&&", "||") else "arithmetic" if op in "+-" else "comparison"
        add(kind, begin, end, f"(zt_mutant(K) ? ({new}) : ({old}))", f"{op} to {SWAPS[op]} in: {old}")
    for match in re.finditer(r"\bif (\()", code):
        end = closing(code, match.start(1))
        begin = match.start(1) + 1
        if end is None:
            continue
        begin += code[begin:end].rfind(";") + 1
        if re.search(r"(?<![=!<>])=(?!=)", code[begin:end]):
            continue
        old = text[begin:end].strip()
        add("condition", begin, end, f" ({old}) ? !zt_mutant(K) : zt_mutant(K)", f"negated: {old}")
        if re.match(r"\)\s*\{?\s*return " + ERRORS, code[end:]):
            add("guard", begin, end, f" !zt_mutant(K) && ({old})", f"guard taken away: {old}")
    for match in re.finditer(r"ZT_RETURN_IF_ERROR(\()", code):
        end = closing(code, match.start(1))
        if end is not None and code[end + 1:end + 2] == ";":
            old = text[match.start():end + 2]
            add("guard", match.start(), end + 2, f"if (!zt_mutant(K)) {{ {old} }}", f"taken away: {old}")
    for match in re.finditer(r"(?<![\w.'<\[])(\d+)(u?l{0,2})(?![\w.'>\]])", code, re.I):
        value = f"{int(match[1], 8 if match[1].startswith('0') else 10) + 1}{match[2]}" if match[1].isdigit() else None
        add("constant", match.start(), match.end(), f"(zt_mutant(K) ? {value} : {match[0]})",
            f"{match[0]} to {value} in: {line_of(match.start())}")
    return found


def choose(tree, count, seed, only):
    """`count` places, spread over files and kinds, none inside another."""
    files = sorted(path.relative_to(tree).as_posix() for room in ("modules", "converters", "cli") for path in (tree / room).rglob("*.cc"))
    by_kind = collections.defaultdict(list)
    for file in files:
        if re.search(only, file):
            for kind, *place in places((tree / file).read_text()):
                by_kind[kind].append((file, kind, *place))
    dice, taken, chosen = random.Random(seed), collections.defaultdict(list), []
    while len(chosen) < count and any(by_kind.values()):
        kinds = [kind for kind in KINDS if by_kind[kind]]
        kind = dice.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        file, kind, begin, end, change, words = by_kind[kind].pop(dice.randrange(len(by_kind[kind])))
        if all(end <= first or last <= begin for first, last in taken[file]):
            taken[file].append((begin, end))
            line = (tree / file).read_text()[:begin].count("\n") + 1
            chosen.append({"file": file, "line": line, "kind": kind, "begin": begin, "end": end, "change": change, "words": words})
    return chosen


def rewrite(tree, originals, mutants):
    """Writes every file that holds a place, with the changes that are not dropped."""
    for file in sorted({mutant["file"] for mutant in mutants}):
        text = (originals / file).read_text()
        here = [(number, mutant) for number, mutant in enumerate(mutants) if mutant["file"] == file and not mutant.get("dropped")]
        for number, mutant in sorted(here, key=lambda each: -each[1]["begin"]):
            change = mutant["change"].replace("zt_mutant(K)", f"zt_mutant({number})").replace("\n", " ")
            lost = text[mutant["begin"]:mutant["end"]].count("\n")  # the numbers of lines stay
            text = text[:mutant["begin"]] + change + "\n" * lost + text[mutant["end"]:]
        declared = 'extern "C" bool zt_mutant(int) noexcept;'
        imports = list(re.finditer(r"^(?:module [\w.:]+|import [\w.:]+);", text, re.M))
        at = imports[-1].end() if imports else 0
        text = text[:at] + (" " if at else "") + declared + ("" if at else " ") + text[at:] if at else f"{declared}\n#line 1\n{text}"
        if not (tree / file).exists() or (tree / file).read_text() != text:
            (tree / file).write_text(text)


# ---- the build -----------------------------------------------------------------------------------------------------


def run(command, **options):
    return subprocess.run([str(word) for word in command], text=True, **options)


def prepare(tree, originals, count):
    """A copy of HEAD, with the function that says which mutant is on."""
    for folder in (tree, originals):
        folder.mkdir(parents=True)
        archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    (tree / "modules/core/mutant.cc").write_text(FUNCTION.replace("COUNT", str(max(count, 1))))
    lists = tree / "modules/CMakeLists.txt"
    text, times = re.subn(r"(zt_module\(core\n(?:.*\n)*?)(  SOURCES )", r"\1  PLAIN core/mutant.cc\n\2", lists.read_text(), count=1)
    assert times == 1, "modules/CMakeLists.txt lists zt_core otherwise than this expects"
    lists.write_text(text)


def build(state, tree, originals, jobs):
    """Builds; changes that do not compile are dropped."""
    folder = tree / "build/release"
    run(["cmake", "--preset", "release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG", "--log-level=WARNING"], cwd=tree, check=True)
    while True:
        rewrite(tree, originals, state["mutants"])
        done = run(["ninja", "-C", folder, "-k", "0", f"-j{jobs}", "ztstream", "test_programs"], stdout=subprocess.PIPE)
        if done.returncode == 0:
            return
        wrong = collections.defaultdict(set)
        for file, line in re.findall(r"([\w/.-]+\.cc):(\d+):\d+: (?:fatal )?error:", done.stdout):
            for mutant in state["mutants"]:
                if file.endswith("/" + mutant["file"]):
                    wrong[mutant["file"]].add(int(line))
        dropped = 0
        for file, lines in wrong.items():
            here = [each for each in state["mutants"] if each["file"] == file and not each.get("dropped")]
            guilty = [each for each in here if any(-1 <= line - each["line"] <= 6 for line in lines)] or here
            for each in guilty:
                each["dropped"] = "does not compile"
                dropped += 1
        if dropped == 0:
            sys.exit(done.stdout[-4000:] + "\nmutants.py: the copy does not build")


# ---- the tests -----------------------------------------------------------------------------------------------------


def list_tests(tree, wanted):
    listed = run(["ctest", "--test-dir", tree / "build/release", "--show-only=json-v1"], check=True, capture_output=True).stdout
    tests = {}
    for test in json.loads(listed)["tests"]:
        properties = {each["name"]: each["value"] for each in test["properties"]}
        if "command" in test and not re.search(APART, test["name"]) and re.search(wanted, test["name"]):
            tests[test["name"]] = {"command": test["command"], "at": properties.get("WORKING_DIRECTORY", str(tree)),
                                   "environment": dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))}
    return tests


running = set()  # process groups
changing = threading.Lock()  # the state, by threads that try mutants


def end(*_):
    for group in list(running):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(1)


def run_test(test, limit, **more):
    """(what went wrong or "", seconds)."""
    began = time.monotonic()
    process = subprocess.Popen(test["command"], cwd=test["at"], env={**os.environ, **test["environment"], **more},
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    running.add(process.pid)
    wrong = f"more than {limit:.0f} s"
    try:
        for _ in range(int(limit)):  # not at once: a second in which all of this was stopped counts as one
            try:
                status = process.wait(1)
            except subprocess.TimeoutExpired:
                continue
            wrong = f"status {status}" if status else ""
            break
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        running.discard(process.pid)
    return wrong, time.monotonic() - began


def reach(state, name, test, folder):
    """What a test reaches without a change."""
    file = folder / f"reached-{name}"
    file.write_bytes(bytes(max(len(state["mutants"]), 1)))
    wrong, seconds = run_test(test, 1800, ZT_MUTANTS_REACHED=str(file))
    numbers = [number for number, byte in enumerate(file.read_bytes()) if byte]
    file.unlink()
    return {"seconds": seconds, "wrong": wrong, "reaches": numbers}


def unmet(state, number, tests):
    """The tests that reach a mutant and that it has not met yet, first the short ones that reach few others."""
    met = state["mutants"][number].get("met", [])
    names = [name for name in reached_by(state, number) if name in tests and name not in met]
    return sorted(names, key=lambda name: state["tests"][name]["seconds"] * len(state["tests"][name]["reaches"]))


def meet(state, number, tests):
    """Tries one mutant with the tests that it has not met, until one notices it."""
    mutant = state["mutants"][number]
    for name in unmet(state, number, tests):
        wrong, _ = run_test(tests[name], 5 * state["tests"][name]["seconds"] + 30, ZT_MUTANT=str(number))
        if wrong:
            with changing:
                mutant["noticed"], mutant["how"] = name, wrong
            print(f"{number:3} {mutant['file']}:{mutant['line']} {name} {wrong}", flush=True)
            return
        with changing:
            mutant["met"] = [*mutant.get("met", []), name]


# ---- the whole -----------------------------------------------------------------------------------------------------


def reached_by(state, number):
    return [name for name, test in state["tests"].items() if number in test["reaches"] and not test["wrong"]]


def report(state):
    """Prints what is known; the number of mutants that are not noticed."""
    mutants = [(number, each) for number, each in enumerate(state["mutants"]) if not each.get("dropped")]
    for name, test in sorted(state["tests"].items()):
        if test["wrong"]:
            print(f"left out, fails without a change: {name} ({test['wrong']})")
    missed = [(number, each) for number, each in mutants if not each.get("noticed")]
    reached = [number for number, _ in mutants if reached_by(state, number)]
    print(f"{len(state['mutants'])} mutants of {state['commit'][:8]} (seed {state['seed']}), {len(mutants)} compile, "
          f"{len(reached)} reached by {len(state['tests'])} tests, {len(mutants) - len(missed)} noticed, {len(missed)} not")
    for number, each in missed:
        print(f"  {number:3} {each['file']}:{each['line']} passed {len(each.get('met', []))} of the "
              f"{len(reached_by(state, number))} tests that reach it: {each['words']}")
    return len(missed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--tests", default="")
    parser.add_argument("--refresh", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("-j", type=int, default=os.cpu_count())
    args = parser.parse_args()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, end)
    folder = args.folder.resolve()
    tree, originals, file = folder / "tree", folder / "originals", folder / "state.json"

    def save():
        with changing:
            (folder / "state.new").write_text(json.dumps(state, indent=1))
        os.replace(folder / "state.new", file)

    if not file.exists():
        prepare(tree, originals, args.count)
        commit = run(["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True).stdout.strip()
        state = {"commit": commit, "seed": args.seed, "built": False, "tests": {},
                 "mutants": choose(originals, args.count, args.seed, args.only)}
        save()
    state = json.loads(file.read_text())
    if args.report:
        return bool(report(state))
    if args.refresh:
        shutil.copytree(ROOT / "tests", tree / "tests", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        state["tests"], state["built"] = {}, False
        for mutant in state["mutants"]:
            mutant.pop("met", None)
    if not state["built"]:
        build(state, tree, originals, args.j)
        state["built"] = True
        save()
    tests = list_tests(tree, args.tests)
    fresh = [name for name in tests if name not in state["tests"]]
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for name, found in zip(fresh, pool.map(lambda name: reach(state, name, tests[name], folder), fresh)):
            state["tests"][name] = found
            save()
            print(f"{name}: {found['seconds']:.1f} s, reaches {len(found['reaches'])} {found['wrong']}", flush=True)
        left = [number for number, each in enumerate(state["mutants"])
                if not each.get("dropped") and not each.get("noticed") and unmet(state, number, tests)]
        for future in [pool.submit(meet, state, number, tests) for number in left]:
            while not future.done():
                concurrent.futures.wait([future], 10)
                save()
            future.result()
        save()
    return bool(report(state))


if __name__ == "__main__":
    sys.exit(main())
