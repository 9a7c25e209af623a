"""The code in README.md and docs/ is code that tests run: each ```cpp and ```c block, and each ```python block of CLUSTER, is,
word for word, part of a program in examples/. (tests/python/page_test.py runs those of PYTHON and GUIDE.)

With the program in ZTSTREAM also: the man page and the completions are those that scripts/reference.py makes of its table
of options, and each --help fits a screen.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import reference

PROGRAM = os.environ.get("ZTSTREAM") or str(ROOT / "build/release/bin/ztstream")
COMMANDS = ["convert", "join", "inspect", "show", "verify", "extract", "apply", "diff", "id"]


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


class Pages(unittest.TestCase):

    def test_blocks_are_parts_of_examples(self):
        listed = (ROOT / "examples/CMakeLists.txt").read_text()
        for path in (ROOT / "examples").glob("*.cc"):
            self.assertRegex(listed, rf"\b{path.stem}\b", "an example that is not built")
        for language, folders, suffix, pages, least in (("cpp", (".", "classic"), ".cc", "*", 15), ("c", ("classic",), ".c", "*", 3),
                                                        ("python", ("python",), ".py", "CLUSTER", 1)):
            programs = [path.read_text().splitlines() for folder in folders for path in (ROOT / "examples" / folder).glob("*" + suffix)]
            blocks = 0
            for page in [*ROOT.glob(pages + ".md"), *sorted((ROOT / "docs").glob(pages + ".md"))]:
                for block in re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S):
                    self.assertTrue(any(self.holds(program, block.splitlines()) for program in programs),
                                    f"{page.name}: not part of any program in examples/:\n{block}")
                    blocks += 1
            self.assertGreaterEqual(blocks, least)

    @staticmethod
    def holds(program, lines):
        return any(textwrap.dedent("\n".join(program[at:at + len(lines)])).splitlines() == lines
                   for at in range(len(program) - len(lines) + 1))

    def test_the_transcript_of_readme_is_what_the_program_says(self):
        said = re.search(r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)[1]
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(ROOT / "tests", pathlib.Path(folder) / "tests")
            bash = "ztstream() { \"$ZTSTREAM\" \"$@\"; }\n" + "".join(
                f"echo '$ {command}'\n{command}\n" for command in re.findall(r"^\$ (.*)$", said, re.M))
            done = subprocess.run(["bash", "-ec", bash], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                  env={**os.environ, "ZTSTREAM": os.path.abspath(PROGRAM)}, timeout=60)
        self.assertEqual(*(re.sub(r"\d+\.\d+", "N", text) for text in (done.stdout, said)))

    @unittest.skipIf(importlib.util.find_spec("yaml") is None, "PyYAML is not installed")
    def test_blocks_of_yaml_are_whole(self):
        import yaml
        jobs = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/CLUSTER.md").read_text(), re.M | re.S)]
        self.assertEqual([(job["kind"], job["metadata"]["name"]) for job in jobs], [("Job", "convert"), ("Job", "join")])
        for job in jobs:
            pod = job["spec"]["template"]["spec"]
            mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
            self.assertEqual(mounted, {volume["name"] for volume in pod["volumes"]})

    def test_pages_of_users_are_plain(self):
        """No sentence of more than 25 words, no line of more than 120 columns, but what scripts/plain.py excuses."""
        pages = {"README.md": ROOT, **dict.fromkeys(("GUIDE.md", "PYTHON.md", "CLUSTER.md", "REMOTE.md", "FORMAT.md", "SECURITY.md", "OPTIONS.md",
                                                      "INPUTS.md", "QUANTIZED.md", "DELTA.md", "PLANES.md", "GLOSSARY.md", "BENCHMARKS.md",
                                                      "ARCHITECTURE.md"),
                                                     ROOT / "docs")}
        said = subprocess.run([sys.executable, "-B", ROOT / "scripts/plain.py", "--long", *(folder / name for name, folder in pages.items())],
                              capture_output=True, text=True, check=True).stdout
        rows = {line.split()[0]: [int(number) for number in line.split()[1:]] for line in said.splitlines()[1:] if not line.startswith(" ")}
        self.assertEqual(len(rows), len(pages) + 1)
        for name in pages:
            _, _, sentences, cells, lines = rows[name]
            self.assertEqual((sentences, cells), (0, 0), said)
            if name != "ARCHITECTURE.md":  # which is wide, to be short
                self.assertLessEqual(lines, name == "CLUSTER.md", (name, said))  # a block of its is wide
        most = 8590  # half of what they had, when that took too long to read
        self.assertLessEqual(sum(rows[name][0] for name in ("README.md", "GUIDE.md", "CLUSTER.md", "SECURITY.md", "BENCHMARKS.md", "FORMAT.md", "REMOTE.md",
                                                            "PYTHON.md")), most, "words: say something else shorter, or on one page alone")

    def test_the_architecture_is_short_and_names_what_is_there(self):
        page = (ROOT / "docs/ARCHITECTURE.md").read_text()
        self.assertLessEqual(page.count("\n"), 150)
        said = set(re.findall(r"`([\w./-]+(?:\.(?:cc|cppm|py|sh|h|in)|/))`", re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)))
        self.assertGreater(len(said), 50)
        tree = [str(path.relative_to(ROOT)) + "/" * path.is_dir() for folder in ("modules", "converters", "cli", "capi", "python", "tests", "scripts", "docs")
                for path in (ROOT / folder).rglob("*")]
        self.assertEqual([name for name in said if not any(("/" + path).endswith("/" + name) or path.startswith(name) for path in tree)], [])
        names = set(re.findall(r"`([A-Z]\w*[a-z]\w*(?:::\w+)?)`", page))
        code = "".join(path.read_text() for folder in ("modules", "converters", "cli", "capi", "tests") for path in (ROOT / folder).rglob("*")
                       if path.suffix in (".cppm", ".cc", ".h", ".py"))
        self.assertEqual([name for name in names if name.split("::")[-1] not in code], [])

    def test_the_first_page_says_what_is_one_way(self):
        declared = (ROOT / "converters/open/open-formats.cppm").read_text()
        read, written = (set(re.search(rf'{name} = "(.*?)"', declared)[1].split()) for name in ("kReadFormats", "kWrittenFormats"))
        one_way = read - written - {"zt"}
        self.assertEqual(one_way, {"torch", "onnx", "hdf5"}, "another format is one way: say so on the first page, and here")
        rows = dict(re.findall(r"^\| (PyTorch[^|]*) \| yes \| \*\*(no: one way)\*\*.*safetensors or npz \|$", (ROOT / "README.md").read_text(), re.M))
        self.assertEqual(rows, {"PyTorch, ONNX, HDF5, Keras": "no: one way"})
        backs = dict(re.findall(r"^\| ([^|]*?) \|[^|]*\|[^|]*\| (yes|no) \|$", (ROOT / "docs/INPUTS.md").read_text(), re.M))
        self.assertEqual({name for name, back in backs.items() if back == "no"}, {"PyTorch", "ONNX", "HDF5, Keras"})

    def test_options_says_the_rates_that_were_measured(self):
        steps = json.loads((ROOT / "docs/benchmarks/results.json").read_text())["steps"]
        page = (ROOT / "docs/OPTIONS.md").read_text()

        def rate(step, threads):
            row = next(row for row in steps[f"threads/{step}"]["rows"] if row["name"] == threads)
            return steps["threads/raw"]["rows"][0]["input"] / row["median"] / 1e9  # of the decoded bytes

        for option, way, back in (("uncompressed", "raw", "raw"), ("`--zstd`", "--zstd", "zstd"), ("`--zstd=planes`", "--zstd=planes", "planes")):
            said = re.search(rf"^\| {re.escape(option)} \| ([\d.]+) GB/s \| ([\d.]+) GB/s \|$", page, re.M)
            self.assertTrue(said, option)
            for text, measured in zip(said.groups(), (rate(way, "1"), rate(f"extract of {back}", "2"))):
                self.assertAlmostEqual(float(text) / measured, 1, delta=0.05, msg=(option, measured))

    def test_guide_shows_each_thing_in_each_language(self):
        page = (ROOT / "docs/GUIDE.md").read_text()
        for title in ("How do I write a file?", "How do I read a file?", "How do I write what comes in pieces?"):
            part = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
            shown = re.findall(r"^\*\*(C\+\+20|C\+\+17|C|Python)\*\*", part, re.M)
            self.assertEqual({shown.count(language) for language in ("C++20", "C++17", "C", "Python")}, {shown.count("C++20")}, (title, shown))

    def test_links_lead_to_headings(self):
        def anchors(page):
            titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)
            return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

        for page in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]:
            for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
                self.assertIn(anchor, anchors(page.parent / target if target else page), f"{page.name}: {target}#{anchor}")

    def test_links_lead_to_files(self):
        for page in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs/benchmarks/details.md"]:
            for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")


class Help(unittest.TestCase):

    def test_fits_a_screen(self):
        for command in [[], *([name] for name in COMMANDS)]:
            lines = run(*command, "--help").splitlines()
            self.assertLessEqual(len(lines), {"": 26, "convert": 57, "extract": 44, "verify": 38, "inspect": 37, "diff": 34, "id": 27}.get("".join(command), 25), command)
            self.assertLessEqual(max(map(len, lines)), 80, (command, max(lines, key=len)))

    def test_the_man_page_and_the_completions_are_current(self):
        for path, text in reference.pages(PROGRAM).items():
            self.assertEqual(path.read_text(), text, "not current: run scripts/reference.py")

    def test_pages_and_completions_know_every_option(self):
        manual = (ROOT / "docs/man/ztstream.1").read_text().replace("\\-", "-")
        shells = {path.name: path.read_text() for path in (ROOT / "completions").iterdir()}
        self.assertEqual(sorted(shells), ["_ztstream", "ztstream.bash", "ztstream.fish"])
        options = {option for name in [None, *COMMANDS]
                   for option in re.findall(r"^  (?:-\w,)?--([a-z-]+)", run(*[name] * bool(name), "--help"), re.M)}
        self.assertGreater(len(options), 40)
        for option in options:
            self.assertRegex(manual, rf"\\fB--{option}\\fP")
            self.assertRegex(shells["ztstream.bash"], rf"--{option}\b")
            self.assertRegex(shells["_ztstream"], rf"--{option}\b")
            self.assertRegex(shells["ztstream.fish"], rf"-l {option}\b")

    @unittest.skipIf(shutil.which("groff") is None, "groff is not installed")
    def test_the_man_page_has_no_fault_that_groff_finds(self):
        page = subprocess.run(["groff", "-t", "-man", "-Tutf8", "-ww", ROOT / "docs/man/ztstream.1"], capture_output=True,
                              check=True, timeout=60)
        self.assertEqual(page.stderr.decode(), "")
        text = re.sub(r".\x08|\x1b\[[0-9;]*m", "", page.stdout.decode())
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_version_names_formats_packages_and_instructions(self):
        self.assertRegex(run("--version"), r"\Aztstream \d+\.\d+\.\d+\nwrites   zTensor 2\.0, 1\.2\.0, 1\.1\.0, 0\.1\.0\n"
                         r"reads    zTensor 2\.0, 1\.x, 0\.1; safetensors, npy 1 to 3, npz, GGUF 1 to 3, PyTorch, ONNX, HDF5, Keras( \(not in this build\))?\n"
                         r"packages zstd \d+\.\d+\.\d+, Highway \d+\.\d+\.\d+\n"
                         r"built on Abseil \d+, JSON [\d.]+, libcbor [\d.]+,\n"
                         r"         OpenSSL [\d.]+, simdjson [\d.]+, utf8proc [\d.]+, xxHash [\d.]+, zlib [\d.]+(, HDF5 [\d.]+)?\n"
                         r"SIMD     [A-Z0-9_]+( [A-Z0-9_]+)*\n\Z")


if __name__ == "__main__":
    unittest.main()
