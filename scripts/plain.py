#!/usr/bin/env python3
"""Counts how plain the pages are: words, long sentences, long lines.

  scripts/plain.py [--long] [--since COMMIT] [PAGE...]    README.md, CONTRIBUTING.md, docs/*.md and the man page, unless pages are named

words: all but code. tables: those of them that stand in tables. long: sentences of prose of more than 25 words; cells:
those in cells of tables; --long prints both. lines: of more than 120 columns, but rows of tables and single links.
--since COMMIT prints each number as it was then, too.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST = 25
COLUMNS = 120


def of_roff(text):
    """The man page's source as Markdown would have it."""
    text = re.sub(r"^\.EX\n.*?^\.EE$", "", text, flags=re.M | re.S)
    text = re.sub(r"^\.TS\n(.*?)^\.TE$", lambda table: re.sub("^", "| ", table[1], flags=re.M), text, flags=re.M | re.S)
    text = re.sub(r"^(\.(SH|SS|TP|IP|PP|TH|EX|br)\b|@|'|\.\\\").*$", "", text, flags=re.M)
    return re.sub(r"\\f.|^\.[A-Z]+ ", "", text, flags=re.M).replace("\\-", "-")


def split(text):
    """(prose, tables): paragraphs without code, and the words of rows."""
    text = re.sub(r"^( *)```.*?^\1```$", "\n", text, flags=re.M | re.S)
    rows = re.findall(r"^\|.*$", text, flags=re.M)
    text = re.sub(r"^\|.*$|^#.*$|^!\[.*$|^ *(?=[-*] |\d+\. )", "\n", text, flags=re.M)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()], " ".join(rows)


def words(text):
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return [word for word in text.split() if re.search(r"\w", word)]


def sentences(prose):
    for part in prose:
        yield from re.split(r"(?<=[.!?])[)\"*]*\s+(?=[A-Z`*\"\[(]|ztstream )", part)


def counts(text, page):
    """(the numbers of a page, its long sentences)."""
    prose, rows = split(of_roff(text) if page.suffix == ".in" else text)
    long = [sentence for sentence in sentences(prose) if len(words(sentence)) > MOST]
    cells = [sentence for sentence in sentences(re.split(r"\s*(?<!\\)\|\s*", rows)) if len(words(sentence)) > MOST]
    lines = [line for line in text.splitlines() if len(line) > COLUMNS and not line.startswith("|")]
    return [len(words(" ".join(prose) + " " + rows)), len(words(rows)), len(long), len(cells), len(lines)], long + cells


def main(arguments):
    show = "--long" in arguments
    since = arguments[arguments.index("--since") + 1] if "--since" in arguments else None
    pages = [pathlib.Path(name).resolve() for name in arguments if name not in ("--long", "--since", since)] or [
        ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs/man/ztstream.1.in"]
    print(f"{'page':20}" + "".join(f"{title:>14}" for title in ("words", "in tables", "long", "long cells", "long lines")))
    sums = [[0] * 5, [0] * 5]
    for page in pages:
        now, long = counts(page.read_text(), page)
        both = [now, now]
        if since:
            old = subprocess.run(["git", "-C", ROOT, "show", f"{since}:{page.relative_to(ROOT)}"], capture_output=True, text=True, check=False)
            both[0] = counts(old.stdout, page)[0]
        for which in (0, 1):
            sums[which] = [total + number for total, number in zip(sums[which], both[which])]
        print_row(page.name, both, since)
        for sentence in long if show else []:
            print(f"    {len(words(sentence))}: {sentence}")
    print_row("all", sums, since)


def print_row(name, both, since):
    print(f"{name:20}" + "".join(f"{f'{then} -> {now}' if since else now:>14}" for then, now in zip(*both)))


main(sys.argv[1:])
