"""The lints find what they are for: an edge added to the graph of modules, and comments that are badly broken."""
import contextlib
import io
import pathlib
import shutil
import tempfile
import unittest

import lint_comments
import lint_modules

ROOT = pathlib.Path(__file__).resolve().parents[1]


def said(function, *arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        function(*arguments)
    return out.getvalue().splitlines()


class Modules(unittest.TestCase):

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for folder in "modules", "converters", "docs":
            shutil.copytree(ROOT / folder, self.root / folder)
        self.assertEqual(said(lint_modules.main, self.root), [])

    def change(self, name, old, new):
        path = self.root / name
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))

    def test_an_import_that_deps_lack(self):
        self.change("modules/pipeline/threads.cc", "module zt.pipeline;", "module zt.pipeline;\nimport zt.digest;")
        self.assertEqual(said(lint_modules.main, self.root),
                         ["modules/pipeline/threads.cc: it imports zt.digest, which is not among the DEPS of zt_pipeline"])

    def test_a_dep_that_nothing_imports(self):
        self.change("docs/ARCHITECTURE.md", "| `zt.pipeline` | `zt.core` |", "| `zt.pipeline` | `zt.core`, `zt.digest` |")
        self.assertEqual(said(lint_modules.main, self.root), ["docs/ARCHITECTURE.md: zt.pipeline differs from its DEPS in zt.digest"])
        path = self.root / "modules/CMakeLists.txt"
        text = path.read_text()
        at = text.index("DEPS zt_core", text.index("zt_module(pipeline"))
        path.write_text(text[:at] + "DEPS zt_core zt_digest" + text[at + len("DEPS zt_core"):])
        self.assertEqual(said(lint_modules.main, self.root),
                         ["modules/CMakeLists.txt: zt_pipeline has zt_digest among its DEPS, and no file of it imports zt.digest"])

    def test_a_module_that_the_page_does_not_know(self):
        self.change("docs/ARCHITECTURE.md", "| `zt.pipeline` | `zt.core` |\n", "")
        self.assertEqual(said(lint_modules.main, self.root), ["docs/ARCHITECTURE.md: the table of imports lacks zt.pipeline"])


class Comments(unittest.TestCase):

    def kinds(self, *lines):
        return [(at, kind) for at, kind in lint_comments.departures(list(lines))]

    def test_what_is_found(self):
        full = "// " + "a line of words that goes on until it is full and is then broken, as here at its end"
        self.assertEqual(self.kinds(full, "// once."), [(1, "orphan")])
        self.assertEqual(self.kinds(full, "// twice, at", "// last it is done"), [(1, "ragged line")])
        self.assertEqual(self.kinds("//   - NaN stays NaN, with its sign and the top of its payload", "//   becomes quiet, except"),
                         [(1, "torn bullet")])

    def test_what_is_not(self):
        full = "// " + "a line of words that goes on until it is full and is then broken, as here at its end"
        self.assertEqual(self.kinds(full, "// and goes on."), [])
        self.assertEqual(self.kinds("// A heading", "// word"), [])
        self.assertEqual(self.kinds("//   - one thing", "//     that goes on", "//   - another"), [])

    def test_mending(self):
        full = "// " + "x " * 20 + "and a sentence that ends; " + "y " * 22 + "and"
        self.assertEqual(lint_comments.mended("// a line that is a little too long for its", "// words"),
                         ["// a line that is a little too long for its words"])
        first, second = lint_comments.mended(full, "// more.......")
        self.assertTrue(first.endswith("that ends;") and second.endswith("and more......."), (first, second))


if __name__ == "__main__":
    unittest.main()
