"""The lint of modules finds an edge added to their graph."""
import contextlib
import io
import pathlib
import shutil
import tempfile
import unittest

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
        for folder in "modules", "converters", "capi", "cli", "docs":
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
        self.change("docs/ARCHITECTURE.md", "| `zt.pipeline` | `zt.core`", "| `zt.pipeline` | `zt.digest`, `zt.core`")
        self.assertEqual(said(lint_modules.main, self.root), ["docs/ARCHITECTURE.md: zt.pipeline differs from its DEPS in zt.digest"])
        path = self.root / "modules/CMakeLists.txt"
        text = path.read_text()
        at = text.index("DEPS zt_core", text.index("zt_module(pipeline"))
        path.write_text(text[:at] + "DEPS zt_core zt_digest" + text[at + len("DEPS zt_core"):])
        self.assertEqual(said(lint_modules.main, self.root),
                         ["modules/CMakeLists.txt: zt_pipeline has zt_digest among its DEPS, and no file of it imports zt.digest"])

    def test_a_module_that_the_page_does_not_know(self):
        self.change("docs/ARCHITECTURE.md", "| `zt.pipeline` |", "| zt.pipeline |")
        self.assertEqual(said(lint_modules.main, self.root), ["docs/ARCHITECTURE.md: the table of imports lacks zt.pipeline"])


if __name__ == "__main__":
    unittest.main()
