"""docs/PYTHON.md and GUIDE.md: their blocks run as they stand, one after the other; and so do the examples."""
import importlib.util
import re
import shutil
import subprocess
import sys
import unittest

import numpy
from package_support import DATA, ROOT, Case, torch_or_skip, ztstream


class Page(Case):
    def run_script(self, *words):
        return subprocess.run([sys.executable, "-B", *map(str, words)], cwd=self.folder, capture_output=True, text=True, check=False)

    def test_blocks(self):
        for name, least, said in (("PYTHON", 10, "there is no tensor 'emed'"), ("GUIDE", 2, "")):
            page = (ROOT / f"docs/{name}.md").read_text()
            blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
            self.assertGreater(len(blocks), least)
            # Lines keep their numbers, so that what is wrong is found.
            self.assertNotIn("\t", page)
            script = self.folder / "page.py"
            script.write_text("\n".join(blocks))
            (self.folder / "model.zt").unlink(missing_ok=True)
            done = self.run_script(script)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(said, done.stdout)

    def test_names(self):
        """What the package exports is explained on the page, but for what others return."""
        page = (ROOT / "docs/PYTHON.md").read_text()
        for name in set(ztstream.__all__) - {"File", "Tensor", "Part", "Pending", "Report", "Stream", "load_file", "save", "program",
                                             "library_version"}:
            self.assertIn(name, page)

    def test_documented(self):
        """Every exported name, and every public method, has a docstring."""
        for name in ztstream.__all__:
            value = getattr(ztstream, name)
            self.assertTrue(value.__doc__, name)
            for member, what in vars(value).items() if isinstance(value, type) else ():
                if not member.startswith("_"):
                    self.assertTrue(what.__doc__, f"{name}.{member}")

    def test_stream_checkpoints(self):
        example = ROOT / "examples/python/stream_checkpoints.py"
        first = self.run_script(example, "run", "20").stdout.splitlines()
        second = self.run_script(example, "run", "20").stdout.splitlines()
        self.assertEqual([line.partition(":")[0] for line in first + second], ["step 10", "step 20", "step 30", "step 40"])
        whole = self.run_script(example, "other", "40").stdout.splitlines()
        self.assertEqual(first + second, whole)

    def test_deltas_of_a_training_run(self):
        """A receiver that follows has what one that begins anew has, and one that was published in full."""
        sys.path.insert(0, str(ROOT / "examples/python"))
        self.addCleanup(sys.path.remove, str(ROOT / "examples/python"))
        import receive_deltas
        folder, seen, receiver, kept = self.folder / "run", self.folder / "seen", receive_deltas.Receiver(), None
        seen.mkdir()
        wanted = [line.partition(": ")[2] for line in self.run_script(ROOT / "examples/python/publish_deltas.py", folder, 12).stdout.splitlines()]
        for steps in (3, 12):
            for path in sorted(folder.glob("step-*"))[:steps]:
                shutil.copy(path, seen)
            receiver.follow(seen)
            self.assertEqual((receiver.step, f"norm {float(numpy.linalg.norm(receiver.state['weight'])):.6f}"), (steps, wanted[steps - 1]))
            kept = kept or receiver.state["weight"].ctypes.data
        self.assertEqual((receiver.state["weight"].ctypes.data, receiver.follow(seen)), (kept, 0))
        done = self.run_script(ROOT / "examples/python/receive_deltas.py", seen)
        self.assertEqual(done.stdout, f"step 12: {wanted[-1]}\n")
        sizes = {path.name: path.stat().st_size for path in folder.glob("step-*")}
        self.assertLess(sizes["step-000012.zt"], sizes["step-000011.zt"] / 4)
        for name in ("publish_deltas", "receive_deltas"):
            self.assertLess((ROOT / f"examples/python/{name}.py").read_text().count("\n"), 41, name)

    def test_compare_finetunes(self):
        """Numbers, never bits: f8 is compared where ml_dtypes is installed."""
        types = {"bf": "bf16", "f8": "f8_e4m3fn", "x": "f16"}
        base = {"a": numpy.ones(4, "f4"), "b": numpy.arange(3.0), "c": numpy.zeros(2), "bf": numpy.array([0x3f80], "u2"),
                "f8": numpy.array([0x38], "u1"), "x": numpy.array([1], "f2")}
        tuned = {"a": base["a"] * 1.5, "b": base["b"], "d": numpy.zeros(2), "bf": numpy.array([0x4000], "u2"),
                 "f8": numpy.array([0x43], "u1"), "x": numpy.array([1.5], "f2")}
        for name, tensors in (("x.zt", base), ("y.zt", tuned)):
            with ztstream.Writer(self.folder / name) as out:
                for tensor, value in tensors.items():
                    out.add(tensor, value, dtype=types.get(tensor))
        f8 = ("f8: changed by 1.75 of its norm, at most 1.75" if importlib.util.find_spec("ml_dtypes") else
              "f8: differs; x.zt: tensor 'f8': numpy has no type for f8_e4m3fn; view_bits() gives its bits as unsigned integers, torch() "
              "its numbers, and numpy() too where ml_dtypes is installed")
        done = self.run_script(ROOT / "examples/python/compare_finetunes.py", "x.zt", "y.zt")
        self.assertEqual((done.stdout, done.stderr), (f"""a: changed by 0.5 of its norm, at most 0.5
bf: changed by 1 of its norm, at most 1
c: in x.zt alone
d: in y.zt alone
{f8}
x: changed by 0.5 of its norm, at most 0.5
""", ""))

    def test_convert_shards(self):
        """Tasks write what one `convert --shards` writes. Run again, they keep it."""
        source = DATA / "real/ppocr-cls.safetensors"
        for folder in ("many", "one"):
            (self.folder / folder).mkdir()
        ztstream.convert(source, self.folder / "one/model.zt", shards=6, zstd="planes")
        for _ in range(2):
            done = self.run_script(ROOT / "examples/python/convert_shards.py", source, "many/model.zt", 6)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "many/model.zt: 6 shards\n", ""))
            many, one = ({path.name: path.read_bytes() for path in (self.folder / folder).iterdir()} for folder in ("many", "one"))
            self.assertEqual(len(many), 13)  # six shards, their digests, the index
            self.assertEqual(many, one)

    def test_examples_say_what_they_take(self):
        for name, words in (("stream_checkpoints", "FOLDER [STEPS]"), ("compare_finetunes", "A B"),
                            ("convert_shards", "CHECKPOINT OUT.zt COUNT"), ("publish_deltas", "FOLDER [STEPS]"), ("receive_deltas", "FOLDER"), ("load_module", "CHECKPOINT"), ("train_module", "FILE.zt [STEPS]"),
                            ("from_pretrained", "FOLDER"), ("tensor_parallel", "CHECKPOINT RANK COUNT"), ("notebook", "CHECKPOINT")):
            source = (ROOT / f"examples/python/{name}.py").read_text()
            if name in ("train_module", "from_pretrained", "tensor_parallel", "notebook"):
                self.assertLess(source.count("\n"), 25, name)
            self.assertIn(f"[{name}.py]", (ROOT / "docs/PYTHON.md").read_text())
            if "import torch" in source and importlib.util.find_spec("torch") is None:
                continue
            done = self.run_script(ROOT / f"examples/python/{name}.py")
            self.assertEqual((done.returncode, done.stderr), (1, f"usage: {name}.py {words}\n"))

    def test_tensor_parallel(self):
        """Ranks hold all of each matrix together, rows or columns."""
        tensors = {"q_proj.weight": numpy.arange(24.0).reshape(4, 6), "o_proj.weight": numpy.arange(24.0).reshape(6, 4), "norm": numpy.ones(3)}
        ztstream.save_file(tensors, self.folder / "m.zt", compress="planes", min_gain=-1)
        sys.path.insert(0, str(ROOT / "examples/python"))
        self.addCleanup(sys.path.remove, str(ROOT / "examples/python"))
        import tensor_parallel
        parts = [tensor_parallel.mine(self.folder / "m.zt", rank, 2) for rank in range(2)]
        for name, array in tensors.items():
            held = [part[name] for part in parts]
            whole = held[0] if name == "norm" else numpy.concatenate(held, axis=int(name[0] == "o"))
            self.assertTrue(numpy.array_equal(whole, array), name)
        done = self.run_script(ROOT / "examples/python/tensor_parallel.py", "m.zt", 1, 2)
        self.assertEqual((done.stdout, done.stderr), ("q_proj.weight (2, 6)\no_proj.weight (6, 2)\nnorm (3,)\n", ""))

    def test_notebook(self):
        ztstream.save_file({"layers.0.w": numpy.ones((2, 3)), "b": numpy.ones(2)}, self.folder / "m.zt")
        done = self.run_script(ROOT / "examples/python/notebook.py", "m.zt")
        self.assertEqual((done.stdout, done.stderr), ("<File 'm.zt' zt 1.2.0, 2 tensors>\n<Tensor 'layers.0.w' f64 2x3 raw> 1.0\n"
                                                      "m.zt: there is no tensor 'layers.0.'; near it: 'layers.0.w'\n", ""))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_train_module(self):
        """Twice ten steps are twenty steps."""
        example = ROOT / "examples/python/train_module.py"
        runs = [self.run_script(example, *words) for words in (("a.zt", 10), ("a.zt", 10), ("b.zt", 20))]
        self.assertEqual([done.stderr for done in runs if "Error" in done.stderr], [])
        self.assertTrue(runs[0].stdout.startswith("step 10: "))
        self.assertEqual(runs[1].stdout, runs[2].stdout)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_from_pretrained(self):
        (self.folder / "hub").mkdir()
        from ztstream.safetensors_compat import numpy as compat
        compat.save_file({"0.weight": numpy.ones((5, 4), "f4"), "0.bias": numpy.ones(5, "f4")}, self.folder / "hub/model.safetensors",
                         {"format": "pt"})
        (self.folder / "hub/config.json").write_text('{"sizes": [4, 5]}')
        ztstream.convert(self.folder / "hub", self.folder / "m.zt")
        for source in ("hub", "m.zt"):
            done = self.run_script(ROOT / "examples/python/from_pretrained.py", source)
            self.assertIn("Linear(in_features=4, out_features=5, bias=True)", done.stdout)

    def test_load_module(self):
        torch_or_skip()
        done = self.run_script(ROOT / "examples/python/load_module.py", DATA / "real/ppocr-cls.safetensors")
        self.assertRegex(done.stdout, r"^\d+ tensors, \d+ parameters\n$")


if __name__ == "__main__":
    unittest.main()
