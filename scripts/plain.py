#!/usr/bin/env python3
"""Counts how plain the pages are: words, long sentences, long lines.

  scripts/plain.py [--long] [PAGE...]    README.md, CONTRIBUTING.md, docs/*.md and the man page, unless pages are named

words: all but code. tables: those of them that stand in tables. long: sentences of prose of more than 25 words; cells:
those in cells of tables; --long prints both. lines: of more than 120 columns, but rows of tables and single links.
"""
import pathlib
import re
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


def main(arguments):
    pages = [pathlib.Path(name) for name in arguments if name != "--long"] or [
        ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs/man/ztstream.1.in"]
    print(f"{'page':24}{'words':>7}{'tables':>8}{'long':>6}{'cells':>7}{'lines':>7}")
    for page in pages:
        text = page.read_text()
        prose, rows = split(of_roff(text) if page.suffix == ".in" else text)
        long = [sentence for sentence in sentences(prose) if len(words(sentence)) > MOST]
        cells = [sentence for sentence in sentences(re.split(r"\s*(?<!\\)\|\s*", rows)) if len(words(sentence)) > MOST]
        lines = [line for line in text.splitlines() if len(line) > COLUMNS and not line.startswith("|")]
        print(f"{page.name:24}{len(words(' '.join(prose) + ' ' + rows)):7}{len(words(rows)):8}{len(long):6}{len(cells):7}{len(lines):7}")
        for sentence in long + cells if "--long" in arguments else []:
            print(f"    {len(words(sentence))}: {sentence}")


main(sys.argv[1:])
