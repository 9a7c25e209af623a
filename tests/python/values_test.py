"""Every file of tests/data, and random ones, through the package: the values are those of numpy and of independent readers."""
import json
import os
import random
import unittest
from unittest import mock

import numpy
from package_support import (DATA, JUDGES_REFUSE, TYPES, Case, little, of_safetensors, of_zt, parts_of, random_tensors, sha,
                     ztstream)
from ztstream import _types
from ztstream.safetensors_compat import numpy as compat_numpy
from ztstream.safetensors_compat import safe_open

COUNT = int(os.environ.get("ZT_COUNT", "60"))


def look(path):
    """What the package says of a file: (its parts, its shapes), or the exception; a file with problems is one."""
    with ztstream.open(path) as file:
        report = file.verify()
        if not report.good:
            raise ztstream.FormatError(str(report.problems))
        return parts_of(file), {name: tensor.shape for name, tensor in file.items()}


class Judged(Case):
    def test_zt(self):
        """.zt files of all versions, good and bad, beside the readers that were written from the specifications."""
        good = bad = 0
        for path in sorted(DATA.rglob("*.zt")):
            with self.subTest(path.name):
                try:
                    wanted = of_zt(path)
                except JUDGES_REFUSE as refused:
                    bad += 1
                    try:
                        parts, _ = look(path)
                        self.fail(f"it is read, and {refused} is wrong with it: {list(parts)[:3]}")
                    except (ztstream.FormatError, ztstream.UnsupportedError):
                        continue
                good += 1
                parts, shapes = look(path)
                self.assertEqual(shapes, wanted[1])
                self.assertEqual({key: sha(part) for key, part in parts.items()},
                                 {key: sha(bytes(part)) for key, part in wanted[0].items()})
        self.assertGreater(min(good, bad), 50)

    def test_safetensors(self):
        for path in sorted(DATA.rglob("*.safetensors")):
            with self.subTest(path.name):
                wanted = of_safetensors(path)
                with ztstream.open(path) as file:
                    self.assertEqual(file.format, "safetensors")
                    if "ranks" in path.parts:  # one rank's parts, which alone are no tensors
                        for tensor in file.values():
                            self.assertRaises(ztstream.UnsupportedError, tensor.tobytes)
                        continue
                    self.assertEqual({name: (list(t.shape), t.tobytes()) for name, t in file.items()},
                                     {name: (shape, data) for name, (_, shape, data) in wanted.items()})

    def test_npy(self):
        for path in sorted(DATA.glob("npy/*.npy")):
            with self.subTest(path.name), ztstream.open(path) as file:
                wanted = numpy.load(path)
                found = file[path.stem].numpy()
                self.assertEqual((found.shape, found.dtype), (wanted.shape, wanted.dtype.newbyteorder("<")))
                self.assertEqual(found.tobytes(), little(wanted))
        for path in sorted(DATA.glob("npy-reject/*.npy")):
            with self.subTest(path.name), self.assertRaises(ztstream.UnsupportedError):
                with ztstream.open(path) as file:
                    file.numpy()

    def test_npz(self):
        for path in sorted(DATA.glob("npz/*.npz")):
            with self.subTest(path.name), ztstream.open(path) as file, numpy.load(path) as wanted:
                self.assertEqual(set(file), set(wanted.files))
                for name in wanted.files:
                    self.assertEqual(file[name].tobytes(), little(wanted[name]))

    def test_expected(self):
        """Formats whose own writers said what is in the files: PyTorch, ONNX, checkpoints in several files."""
        seen = 0
        for folder in ("torch", "onnx"):
            for name, tensors in json.loads((DATA / folder / "expected.json").read_text()).items():
                if tensors is None:
                    with self.subTest(name), self.assertRaises(ztstream.UnsupportedError):
                        ztstream.load_file(DATA / folder / name)
                    continue
                with self.subTest(name), ztstream.open(DATA / folder / name) as file:
                    for tensor, wanted in tensors.items():
                        if not isinstance(wanted, list):  # sparse: its parts have tests of their own
                            continue
                        held = file[tensor]
                        self.assertEqual([held.dtype, list(held.shape), sha(held.tobytes())], wanted, tensor)
                        seen += 1
        for folder in ("hf-sharded", "dcp"):
            with ztstream.open(DATA / folder) as file:
                for tensor, wanted in json.loads((DATA / folder / "expected.json").read_text()).items():
                    dtype, shape, digest = wanted if isinstance(wanted, list) else (
                        wanted["dtype"], wanted["shape"], wanted["sha256"])
                    held = file[tensor]
                    self.assertEqual((held.dtype, list(held.shape), sha(held.tobytes())), (dtype, shape, digest))
                    seen += 1
        self.assertGreater(seen, 80)

    def test_gguf(self):
        """Blocks are the bytes of the part "data"."""
        wanted = json.loads((DATA / "gguf/expected.json").read_text())
        for name, tensors in wanted.items():
            if not (DATA / "gguf" / name).exists():
                continue
            with self.subTest(name), ztstream.open(DATA / "gguf" / name) as file:
                for tensor, each in tensors.items():
                    self.assertEqual(sha(file[tensor].parts["data"].tobytes()), each.get("stored_sha256") or each["sha256"], tensor)

    def test_hdf5(self):
        with self.assertRaisesRegex(ztstream.UnsupportedError, "it is HDF5, which the program alone reads; convert the file with "
                                                               "that first$"):
            ztstream.open(DATA / "hdf5/a.h5")


class Random(Case):
    def test_files(self):
        """Random tensors, written and read by the package in every way, and by the independent readers."""
        for seed in range(COUNT):
            chosen = random.Random(seed)
            tensors = random_tensors(chosen, chosen.randrange(0, 12))
            spec = chosen.choice(["1.2", "1.2", "1.2", "2.0"])
            compress = chosen.choice([None, "zstd", "planes"])
            if spec == "2.0" and compress == "planes":
                compress = "zstd"
            path = self.folder / f"{seed}.zt"
            with self.subTest(seed=seed, spec=spec, compress=compress):
                with ztstream.Writer(path, spec=spec, compress=compress, min_gain=-1, threads=chosen.randrange(1, 4),
                                     attributes={"seed": seed}) as out:
                    for name, (dtype, array) in tensors.items():
                        out.add(name, array, dtype=dtype)
                wanted = {name: little(array) for name, (_, array) in tensors.items()}
                parts, shapes = of_zt(path)
                self.assertEqual({name: bytes(part) for (name, _), part in parts.items()}, wanted)
                with ztstream.open(path) as file:
                    self.assertEqual(file.attributes, {"seed": seed})
                    self.assertEqual({name: t.tobytes() for name, t in file.items()}, wanted)
                    self.check_arrays(file, tensors)
                    self.check_slices(file, tensors, chosen)

    def check_arrays(self, file, tensors):
        for copy in (False, True):
            arrays = file.numpy([name for name, (dtype, _) in tensors.items() if numpy_takes(dtype)], copy=copy)
            for name, (dtype, array) in tensors.items():
                self.assertEqual(file[name].dtype, dtype)
                bits = file[name].view_bits(copy=copy)
                self.assertEqual((bits.shape, bits.dtype.itemsize, bits.tobytes()), (array.shape, array.itemsize, little(array)))
                if numpy_takes(dtype):
                    self.assertEqual(arrays[name].shape, array.shape)
                    self.assertEqual(arrays[name].tobytes(), little(array))
                    self.assertEqual(file[name].numpy(copy=copy).tobytes(), little(array))
        out = {name: bytearray(len(little(array))) for name, (_, array) in tensors.items()}
        file.read(out=out)
        self.assertEqual(out, {name: little(array) for name, (_, array) in tensors.items()})

    def check_slices(self, file, tensors, chosen):
        for name, (dtype, array) in tensors.items():
            bits = f"u{array.dtype.itemsize}" if array.dtype.itemsize < 16 else "V16"  # NaN equals nothing
            wanted = numpy.frombuffer(little(array), bits).reshape(array.shape)
            for _ in range(4 if numpy_takes(dtype) else 0):
                index = random_index(chosen, array.shape)
                found = numpy.asarray(file[name][index])
                self.assertEqual((found.shape, found.tobytes()), (wanted[index].shape, wanted[index].tobytes()),
                                 (name, dtype, array.shape, index))

    def test_types_without_ml_dtypes(self):
        """Numbers are never taken for others: bf16 and f8 are those of ml_dtypes, or none of numpy; their bits can be had."""
        path, again = self.path("t.zt"), self.path("again.zt")
        with ztstream.Writer(path) as out:
            for dtype, spelled in TYPES.items():
                out.add(dtype, numpy.arange(6).astype(spelled).reshape(2, 3), dtype=dtype)
        with ztstream.open(path) as file, mock.patch.object(_types, "ml_dtypes", lambda: None):
            _types.numpy_dtype.cache_clear()
            self.addCleanup(_types.numpy_dtype.cache_clear)
            ztstream.save_file(file, again)
            for dtype, spelled in TYPES.items():
                tensor = file[dtype]
                with self.subTest(dtype):
                    self.assertEqual((tensor.dtype, tensor.shape), (dtype, (2, 3)))
                    self.assertEqual(tensor.view_bits().tobytes(), numpy.arange(6).astype(spelled).tobytes())
                    if dtype != "bf16" and not dtype.startswith("f8"):
                        self.assertEqual((tensor.numpy_dtype, tensor.numpy().dtype), (numpy.dtype(spelled),) * 2)
                        continue
                    self.assertEqual(tensor.view_bits().dtype, numpy.dtype(spelled))
                    said = (f"^{path}: tensor '{dtype}': numpy has no type for {dtype}; view_bits\\(\\) gives its bits as unsigned integers, "
                            "torch\\(\\) its numbers, and numpy\\(\\) too where ml_dtypes is installed$")
                    for call in (tensor.numpy, lambda: tensor.numpy_dtype, lambda: tensor[0], lambda: numpy.asarray(tensor),
                                 lambda: file.numpy([dtype]), lambda: ztstream.load_file(path, [dtype]),
                                 lambda: safe_open(path, "np").get_slice(dtype)[:1]):
                        with self.assertRaisesRegex(ztstream.UnsupportedError, said):
                            call()
            for call in (file.numpy, lambda: ztstream.load_file(path), lambda: compat_numpy.load_file(path)):
                with self.assertRaisesRegex(ztstream.UnsupportedError, "tensor 'bf16': numpy has no type for bf16; "):
                    call()
        with ztstream.open(again) as file:
            self.assertEqual({name: tensor.dtype for name, tensor in file.items()}, {dtype: dtype for dtype in TYPES})


def numpy_takes(dtype):
    """Whether numpy() gives this type."""
    return _types.ml_dtypes() is not None or dtype != "bf16" and not dtype.startswith("f8")


class Readers(Case):
    """Beside torch and safetensors' own reader, where they are installed."""

    def setUp(self):
        super().setUp()
        try:
            import safetensors.numpy
            import safetensors.torch
            import torch
        except ImportError:
            self.skipTest("torch and safetensors are not installed")
        self.torch, self.safetensors = torch, safetensors

    def bits(self, tensor):
        """Type, shape and bytes."""
        flat = tensor.detach().contiguous().reshape(-1)
        return tensor.dtype, tuple(tensor.shape), bytes(flat.view(self.torch.uint8).numpy()) if flat.numel() else b""

    def compare(self, found, wanted, path):
        self.assertEqual(set(found), set(wanted), path)
        for name, tensor in wanted.items():
            self.assertEqual(self.bits(found[name]), self.bits(tensor), (path, name))

    def test_safetensors(self):
        seen = 0
        for path in sorted(path for path in DATA.rglob("*.safetensors") if "ranks" not in path.parts):
            try:
                wanted = self.safetensors.torch.load_file(path)
            except Exception:  # types that this version does not know
                continue
            with self.subTest(path.name), ztstream.open(path) as file:
                self.compare(file.torch(), wanted, path)
                self.compare(file.torch(copy=True), wanted, path)
                self.compare({name: tensor.torch() for name, tensor in file.items()}, wanted, path)
            seen += 1
        self.assertGreater(seen, 15)

    def test_torch(self):
        """Flat dicts of dense tensors, by torch.load."""
        seen = 0
        for path in sorted(DATA.rglob("*.pt")):
            if path.name.startswith("refuse_"):
                continue
            try:
                state = self.torch.load(path, weights_only=True)
            except Exception:  # what is refused there, and what is no checkpoint
                continue
            if not isinstance(state, dict) or not all(isinstance(name, str) and self.is_plain(t) for name, t in state.items()):
                continue
            with self.subTest(path.name), ztstream.open(path) as file:
                self.compare(file.torch(), state, path)
            seen += 1
        self.assertGreater(seen, 3)

    def is_plain(self, value):
        return isinstance(value, self.torch.Tensor) and value.layout == self.torch.strided and not value.is_quantized

    def test_random(self):
        """The same tensors, saved by safetensors, by torch and by the package in every way, are the same again."""
        torch = self.torch
        kinds = [kind for kind in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16",
                                   "uint32", "uint64", "bool", "float8_e4m3fn", "float8_e5m2", "complex64") if hasattr(torch, kind)]
        path, other, third = (self.path(name) for name in ("a.safetensors", "a.zt", "a.pt"))
        for seed in range(COUNT):
            chosen, state = random.Random(seed), {}
            for i in range(chosen.randrange(1, 8)):
                kind = getattr(torch, chosen.choice(kinds))
                shape = [chosen.choice([0, 1, 2, 3, 17]) for _ in range(chosen.randrange(4))]
                size = torch.empty(shape, dtype=kind).numel() * torch.empty(0, dtype=kind).element_size()
                data = bytearray(chosen.randbytes(size) if kind != torch.bool else bytes(chosen.choices((0, 1), k=size)))
                flat = torch.frombuffer(data, dtype=kind) if size else torch.empty(0, dtype=kind)
                state[f"{chosen.choice('abä.')}{i}"] = flat.reshape(shape)
            self.safetensors.torch.save_file(state, path)
            torch.save(state, third)
            ztstream.save_file(state, other, compress=chosen.choice([None, "zstd", "planes"]), min_gain=-1, overwrite=True)
            with self.subTest(seed=seed):
                for each in (path, other, third):
                    with ztstream.open(each) as file:
                        self.compare(file.torch(), state, each)
                with self.safetensors.safe_open(path, "pt") as judge, ztstream.open(path) as file:
                    for name in judge.keys():
                        self.assertEqual(self.bits(file[name].torch()), self.bits(judge.get_tensor(name)))


def random_index(chosen, shape):
    """What numpy takes as an index of a shape."""
    words = []
    for size in shape[:chosen.randrange(0, len(shape) + 1)]:
        if size and chosen.random() < 0.3:
            words.append(chosen.randrange(-size, size))
        else:
            ends = [chosen.choice([None, *range(-size - 2, size + 3)]) for _ in range(2)]
            words.append(slice(*ends, chosen.choice([None, 1, 2, -1, -3])))
    if len(words) < len(shape) and chosen.random() < 0.3:
        words.append(Ellipsis)
    return words[0] if len(words) == 1 and chosen.random() < 0.5 else tuple(words)


if __name__ == "__main__":
    unittest.main()
