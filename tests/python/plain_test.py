"""The package without numpy and torch, in any Python: scripts/try-wheel.sh runs it in CPython 3.9 and PyPy. It imports nothing else
of tests/."""
import ast
import gc
import json
import os
import pathlib
import pickle
import random
import shutil
import struct
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if not os.environ.get("ZT_INSTALLED"):
    sys.path[:0] = [str(ROOT / "python")]
    os.environ.setdefault("ZTSTREAM_LIBRARY", str(ROOT / "build/release/capi/libztstream.so.0"))
DATA = pathlib.Path(os.environ.get("ZT_TEST_DATA") or HERE.parent / "data")

import ztstream


class Plain(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "x.zt")

    def test_old_syntax(self):
        """What Python 3.9 cannot read is in no file of the package."""
        files = sorted(pathlib.Path(ztstream.__file__).parent.rglob("*.py"))
        self.assertGreater(len(files), 10)
        for path in files:
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))

    def test_safetensors(self):
        seen = 0
        for path in sorted(DATA.rglob("*.safetensors")):
            if "ranks" in path.parts:  # parts of tensors, which values_test looks at
                continue
            data = path.read_bytes()
            size, = struct.unpack("<Q", data[:8])
            header = json.loads(data[8:8 + size].decode("utf-8"))
            header.pop("__metadata__", None)
            with ztstream.open(path) as file:
                self.assertEqual(sorted(file), sorted(header))
                for name, entry in header.items():
                    begin, end = entry["data_offsets"]
                    self.assertEqual(file[name].tobytes(), data[8 + size:][begin:end])
                    self.assertEqual(list(file[name].shape), entry["shape"])
                    seen += 1
        self.assertGreater(seen, 100)

    def test_every_file(self):
        """Opened, listed, read and verified, or an exception of the package."""
        good = bad = 0
        for path in sorted(DATA.rglob("*")):
            if path.is_dir():
                continue
            try:
                with ztstream.open(path) as file:
                    read = {name: [part.tobytes() for part in tensor.parts.values()] for name, tensor in file.items()}
                    self.assertEqual(len(read), len(file))
                    report = file.verify()
                good += report.good
            except ztstream.Error as error:
                self.assertTrue(str(error))
                self.assertEqual(str(pickle.loads(pickle.dumps(error))), str(error))
                bad += 1
        self.assertGreater(min(good, bad), 100)

    def test_round_trip(self):
        """Bytes that are written come back whole, in parts, by threads, from memory, and from a pickled file."""
        chosen = random.Random(1)
        values = bytes(chosen.getrandbits(8) for _ in range(1 << 16)) * 4
        for options in ({}, {"compress": "zstd"}, {"compress": "planes"}, {"spec": "2.0", "compress": "zstd"}):
            with ztstream.Writer(self.path, overwrite=True, min_gain=-1, attributes={"k": [1, None, b"x"]}, **options) as out:
                out.add("w", values, dtype="bf16", shape=(256, 512))
                out.add("text", bytearray(b"abc"), dtype="uint8")
                with out.begin("rows", "torch.float32", (None, 4)) as stream:
                    stream.write(values[:160])
                    stream.write(memoryview(values)[160:320])
            with ztstream.open(self.path) as file:
                self.assertEqual({name: (t.dtype, t.shape) for name, t in file.items()},
                                 {"w": ("bf16", (256, 512)), "text": ("u8", (3,)), "rows": ("f32", (20, 4))})
                self.assertEqual((file["w"].tobytes(), file["rows"].tobytes()), (values, values[:320]))
                self.assertEqual(file.attributes, {"k": [1, None, b"x"]})
                out = bytearray(1000)
                file["w"].read_into(out, 4096)
                self.assertEqual(out, values[4096:5096])
                whole = {"w": bytearray(len(values))}
                file.read(out=whole)
                self.assertEqual(whole["w"], values)
                self.assertEqual(pickle.loads(pickle.dumps(file))["text"].tobytes(), b"abc")
                self.assertTrue(file.verify().verified)
            with open(self.path, "rb") as opened, ztstream.open(opened) as file:
                self.assertEqual(file["w"].tobytes(), values)
            view = ztstream.open(pathlib.Path(self.path).read_bytes())["w"].buffer()
            gc.collect()
            self.assertEqual(bytes(view), values)

    def test_threads(self):
        values, wrong = bytes(range(256)) * 256, []
        ztstream.Writer(self.path, compress="zstd").__exit__(None)
        with ztstream.Writer(self.path, compress="zstd", overwrite=True) as out:
            for i in range(20):
                out.add(str(i), values, dtype="u8")

        def work(file):
            wrong.extend(name for name in file for _ in range(5) if file[name].tobytes() != values)

        with ztstream.open(self.path) as file:
            threads = [threading.Thread(target=work, args=(file,)) for _ in range(6)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        self.assertEqual(wrong, [])

    def test_errors(self):
        with self.assertRaises(FileNotFoundError):
            ztstream.open(self.path)
        ztstream.Writer(self.path).__exit__(None)
        with self.assertRaises(FileExistsError), ztstream.Writer(self.path):
            pass
        with ztstream.open(self.path) as file, self.assertRaises(KeyError):
            file["none"]
        with self.assertRaises(ztstream.MisuseError):
            file.attributes


if __name__ == "__main__":
    unittest.main()
