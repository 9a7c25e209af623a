"""ztstream.safetensors_compat beside safetensors: the bytes it writes, what it gives and what it refuses.

scripts/try-safetensors-suite.sh runs safetensors' own tests.
"""
import os
import pathlib
import sys
import types
import unittest

import numpy
from package_support import DATA, Case, run, ztstream
from ztstream import safetensors_compat as compat
from ztstream.safetensors_compat import numpy as compat_numpy
from ztstream.safetensors_compat import safe_open

try:
    import torch
except ImportError:
    torch = None


def file_of(header, data=b""):
    """The bytes of a safetensors file with that header, in a text."""
    text = header.encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


class Writing(Case):
    def test_bytes(self):
        """Those of safetensors 0.8: wide types first, then by name; a header of whole words."""
        a, b = numpy.arange(4, dtype="i4").reshape(2, 2), numpy.ones(3, "f2")
        wanted = file_of('{"z":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]},"a":{"dtype":"F16","shape":[3],"data_offsets":[16,22]}}',
                         a.tobytes() + b.tobytes())
        for given in ({"a": b, "z": a}, {"z": a, "a": b}, {"z": a.astype(">i4"), "a": numpy.array([1, 0, 1, 0, 1], "f2")[::2]}):
            self.assertEqual(compat_numpy.save(given), wanted)
        for given, header in (
                ({"k": 'v"\n\x01é\u2028'}, '{"__metadata__":{"k":"v\\"\\n\\u0001é\u2028"},"s":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}'),
                ({}, '{"__metadata__":{},"s":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}')):
            self.assertEqual(compat_numpy.save({"s": numpy.array(True)}, given), file_of(header, b"\1"))
        order = ["u8", "i8", "f8", "f4", "u4", "i4", "f2", "u2", "i2", "i1", "u1", "?"]
        path = self.path("order.safetensors")
        compat_numpy.save_file({f"{i:02}": numpy.ones(1, kind) for i, kind in enumerate(order)}, path)
        with safe_open(path, "np") as file:
            self.assertEqual(file.offset_keys(), file.keys())

    def test_names(self):
        """.zt is written where the name ends so, and safetensors elsewhere, as one whole file."""
        tensors = {"z": numpy.arange(6.0).reshape(2, 3), "b": numpy.arange(3)}
        for name, format in (("m.safetensors", "safetensors"), ("m", "safetensors"), ("m.zt", "zt")):
            path = pathlib.Path(self.path(name))
            for _ in range(2):
                compat_numpy.save_file(tensors, path, {"format": "np"})
            with ztstream.open(path) as file:
                self.assertEqual((file.format, file.attributes), (format, {"format": "np"}))
            with safe_open(path, "np") as file:
                self.assertEqual(file.offset_keys(), ["b", "z"] if format != "zt" else ["z", "b"])
            loaded = compat_numpy.load_file(path)
            self.assertEqual({name: array.tolist() for name, array in loaded.items()},
                             {name: array.tolist() for name, array in tensors.items()})
            loaded["z"][0] = 7
            self.assertEqual(path.stat().st_mode & 0o777, 0o666 & ~self.umask())
        self.assertEqual(sorted(os.listdir(self.folder)), ["m", "m.safetensors", "m.zt"])

    @staticmethod
    def umask():
        mask = os.umask(0)
        os.umask(mask)
        return mask

    def test_failures(self):
        """Nothing is left, and what was there stays."""
        path = self.path("m.safetensors")
        compat_numpy.save_file({"a": numpy.ones(2)}, path)
        before = pathlib.Path(path).read_bytes()
        spec = compat.TensorSpec(dtype="float32", shape=[2], data_ptr=0, data_len=8)
        for call, kind, words in (
                (lambda: compat.serialize_file({"a": spec}, path), compat.SafetensorError, "Error while serializing: invalid shape"),
                (lambda: compat_numpy.save_file({"a": numpy.ones(2)}, self.path("no/x")), OSError, "/no/x: No such file or directory"),
                (lambda: compat_numpy.save_file({"a": numpy.ones(2, "c16")}, path), compat.SafetensorError, 'Unknown dtype "complex128"'),
                (lambda: compat_numpy.save_file({"a": numpy.array(["x"])}, path), compat.SafetensorError, 'Unknown dtype "str32"'),
                (lambda: compat_numpy.save({"a": numpy.ones(2)}, {"step": 5}), TypeError, "'metadata': 'int' object is not an instance of 's"),
                (lambda: compat_numpy.save_file({"a": numpy.ones(2)}, self.path("m.zt"), {"step": 5}), TypeError, "'int' object"),
                (lambda: compat_numpy.save({5: numpy.ones(2)}), TypeError, "'int' object is not an instance of 'str'"),
                (lambda: compat_numpy.save({"\ud800": numpy.ones(2)}), compat.SafetensorError, "is no text"),
                (lambda: compat.serialize({"a": {"dtype": "float32"}}), TypeError, "'dict' object is not an instance of 'TensorSpec'"),
                (lambda: compat.TensorSpec(dtype="F32", shape=[2], data_ptr=0, data_len=8), compat.SafetensorError, "Supported dtypes: bool"),
                (lambda: compat.TensorSpec(dtype="float32", shape=[-2], data_ptr=0, data_len=8), OverflowError, "negative"),
                (lambda: compat_numpy.save_file({"a": numpy.ones(2)}, "s3://bucket/m.safetensors"), compat.SafetensorError, "to files")):
            with self.subTest(words), self.assertRaises(kind) as raised:
                call()
            self.assertIn(words, str(raised.exception))
        self.assertEqual(repr(spec), "TensorSpec(dtype='F32', shape=[2], data_ptr=0, data_len=8)")
        self.assertEqual((os.listdir(self.folder), pathlib.Path(path).read_bytes()), (["m.safetensors"], before))

    def test_interrupted(self):
        """Ctrl-C while it is written leaves what was there."""
        code = '''
import os, signal, time
from ztstream.safetensors_compat import numpy as compat
os.chdir(sys.argv[1])
compat.save_file({"a": numpy.ones(2)}, "m.safetensors")
before = os.path.getsize("m.safetensors")
signal.signal(signal.SIGALRM, signal.default_int_handler)
real, count = os.write, 0
def slow(file, data):
    global count
    count += 1
    if count == 3:
        os.kill(os.getpid(), signal.SIGALRM)
    if count >= 3:
        time.sleep(0.005)
    return real(file, data[:1000])
os.write = slow
try:
    compat.save_file({"a": numpy.ones(1 << 20)}, "m.safetensors")
except KeyboardInterrupt:
    print(sorted(os.listdir(".")), os.path.getsize("m.safetensors") == before)
'''
        self.assertEqual(run(code, self.folder).stdout, "['m.safetensors'] True\n")


class Reading(Case):
    def test_every_name(self):
        self.assertEqual(set(compat.__all__), {"SafetensorError", "TensorSpec", "deserialize", "safe_open", "serialize", "serialize_file"})
        path = self.path("m.safetensors")
        compat_numpy.save_file({"b": numpy.arange(6, dtype="f4").reshape(2, 3), "a": numpy.ones(2, "i8")}, path)
        data = pathlib.Path(path).read_bytes()
        self.assertEqual([(name, entry["dtype"], entry["shape"], len(entry["data"]), type(entry["data"]))
                          for name, entry in compat.deserialize(data)], [("a", "I64", [2], 16, bytearray), ("b", "F32", [2, 3], 24, bytearray)])
        for backend in ("mmap", "pread"):
            with safe_open(path, "np", backend=backend) as file:
                self.assertEqual((file.keys(), file.metadata(), list(file.get_tensors())), (["a", "b"], None, ["a", "b"]))
                file.get_tensor("a")[0] = 5
            self.assertEqual(compat_numpy.load_file(path, backend=backend)["b"].sum(), 15)
        with open(path, "rb") as opened, compat._safe_open_handle(opened, framework="np") as file:
            self.assertEqual(file.get_slice("b")[1, 1:].tolist(), [4, 5])
        with safe_open(DATA / "real/ppocr-cls.safetensors", "np") as file:
            self.assertEqual(sorted(file.offset_keys()), file.keys())
            name = file.keys()[0]
            self.assertEqual(file.get_slice(name)[:1].tolist(), file.get_tensor(name)[:1].tolist())
        for given in ({}, {"a": "b"}):
            compat_numpy.save_file({"a": numpy.ones(2)}, path, given)
            with safe_open(path, "np") as file:
                self.assertEqual(file.metadata(), given)

    def test_refused(self):
        path = self.path("m.safetensors")
        compat_numpy.save_file({"a": numpy.arange(50.0).reshape(10, 5), "s": numpy.array(2.0)}, path)
        for call, kind, words in (
                (lambda: safe_open(path), TypeError, "framework"),
                (lambda: safe_open(path, "np", typo=1), TypeError, "typo"),
                (lambda: safe_open(path, "xx"), compat.SafetensorError, "framework xx is invalid"),
                (lambda: safe_open(path, "np", backend="x"), compat.SafetensorError, 'backend "x" is invalid (expected one of: "mmap", "pread")'),
                (lambda: safe_open(path, "np", device="cuda:0"), compat.SafetensorError, "Device cuda:0 is not supported for framework numpy"),
                (lambda: safe_open("notafile", "np"), FileNotFoundError, "No such file or directory: notafile"),
                (lambda: compat_numpy.load(b"abc"), compat.SafetensorError, "")):
            with self.subTest(words), self.assertRaises(kind) as raised:
                call()
            self.assertIn(words, str(raised.exception))
        ztstream.save_file(compat_numpy.load_file(path), self.path("m.zt"), compress="planes", min_gain=-1)
        for source in (path, self.path("m.zt")):
            with safe_open(source, "np") as file:
                part, scalar = file.get_slice("a"), file.get_slice("s")
                whole = file.get_tensor("a")
                for index in (slice(None), (), slice(2), (0, slice(2)), (slice(2, None), -1), ..., (..., 0), slice(None, None, 3), -10,
                              (slice(None), slice(1, 5, 2))):
                    self.assertEqual(part[index].tolist(), whole[index].tolist(), index)
                self.assertEqual((part[[]].shape, scalar[()], scalar.get_shape()), ((0, 5), 2.0, []))
                for index, words in (((slice(2, None), -6), "Invalid index -6 for dimension 1 of size 5"),
                                     ([0, 1], "Non empty lists are not implemented"), (1.5, "expected slice, int, or ellipsis"),
                                     (slice(20), "[:20] with shape [10, 5]: index 19 out of bounds for tensor dimension #0 of size 10"),
                                     ((slice(2, None), 20), "[2:, 20] with shape [10, 5]: index 20 out of bounds for tensor dimension #1 of"),
                                     ((0, 0, 0), "more slicing indexes than dimensions"), (slice(None, None, -1), "positive integer")):
                    with self.subTest(words), self.assertRaises(compat.SafetensorError) as raised:
                        part[index]
                    self.assertIn(words, str(raised.exception))
                for name in (file.get_tensor, file.get_slice):
                    with self.assertRaisesRegex(compat.SafetensorError, "^File does not contain tensor nope$"):
                        name("nope")
            with self.assertRaises(compat.SafetensorError):
                file.keys()

    def test_other_frameworks(self):
        """They get arrays of numpy, and give such."""
        class Array(numpy.ndarray):
            def numpy(self):
                return numpy.asarray(self)

            detach = cpu = lambda self: self

        def made(array, place="cpu"):
            self.assertEqual(place, "cpu")
            return array.view(Array)

        modules = {"jax": {}, "jax.numpy": {"array": made}, "mlx": {}, "mlx.core": {"array": made},
                   "tensorflow": {"convert_to_tensor": made}, "paddle": {"to_tensor": made}}
        for name, members in modules.items():
            module = types.ModuleType(name)
            vars(module).update(members)
            sys.modules[name] = module
        self.addCleanup(lambda: [sys.modules.pop(name) for name in modules])
        import importlib
        for name in ("flax", "mlx", "tensorflow", "paddle"):
            module = importlib.import_module(f"ztstream.safetensors_compat.{name}")
            path = self.path(f"{name}.safetensors")
            tensors = {"w": numpy.arange(6, dtype="f4").reshape(2, 3).view(Array)}
            module.save_file(tensors, path)
            self.assertEqual(module.save(tensors), pathlib.Path(path).read_bytes())
            for loaded in (module.load_file(path), module.load_file(path, backend="pread"), module.load(module.save(tensors))):
                self.assertEqual((type(loaded["w"]), loaded["w"].tolist()), (Array, tensors["w"].tolist()), name)


@unittest.skipUnless(torch, "torch is not installed")
class Torch(Case):
    def setUp(self):
        super().setUp()
        from ztstream.safetensors_compat import torch as module
        self.module = module

    def test_types(self):
        path = self.path("m.safetensors")
        kinds = [kind for kind in self.module._TYPES.values()]
        tensors = {str(kind): torch.arange(24, dtype=torch.uint8).view(torch.uint8)[:24].clone() for kind in kinds}
        tensors = {name: tensor.bool() if "bool" in name else tensor.view(getattr(torch, name[6:])) for name, tensor in tensors.items()}
        self.module.save_file(tensors, path, {})
        for device in (None, "meta"):  # a default device is not where a file is read to
            if device and hasattr(torch, "set_default_device"):
                torch.set_default_device(device)
                self.addCleanup(torch.set_default_device, None)
            for loaded in (self.module.load_file(path), self.module.load_file(path, backend="pread"),
                           self.module.load(pathlib.Path(path).read_bytes())):
                for name, tensor in tensors.items():
                    self.assertEqual((loaded[name].dtype, loaded[name].shape, loaded[name].device.type), (tensor.dtype, tensor.shape, "cpu"))
                    self.assertEqual(bytes(loaded[name].view(torch.uint8).numpy()), bytes(tensor.view(torch.uint8).numpy()), name)
            with safe_open(path, "pt") as file:
                self.assertEqual(file.get_slice("torch.int16")[3:5].tolist(), [1798, 2312])
                self.assertEqual(file.metadata(), {})
                if "F4" in self.module._TYPES:
                    packed = file.get_slice("torch.float4_e2m1fn_x2")
                    self.assertEqual((packed.get_dtype(), packed.get_shape()), ("F4", [48]))
                    self.assertEqual(file.get_tensor("torch.float4_e2m1fn_x2").shape, (24,))

    def test_beside_safetensors(self):
        """The same bytes, where safetensors is installed."""
        try:
            import safetensors.torch as theirs
        except ImportError:
            self.skipTest("safetensors is not installed")
        tensors = {f"{i % 7}.{kind}.{i}": torch.zeros(i % 5, 3).to(kind) for i, kind in enumerate(2 * list(theirs._TYPES.values()))
                   if kind is not None}
        if hasattr(torch, "float4_e2m1fn_x2"):
            tensors["f4"] = torch.ones(4, 6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
        for metadata in (None, {}, {"format": "pt"}):
            self.assertEqual(self.module.save(tensors, metadata), theirs.save(tensors, metadata))
        self.module.save_file(tensors, self.path("m"))
        for name, tensor in theirs.load_file(self.path("m")).items():
            self.assertEqual((tensor.dtype, tensor.shape), (tensors[name].dtype, tensors[name].shape))

    def test_tied(self):
        """A module's weights that are one: by another name in the file; in a .zt file by both."""
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Linear(4, 4)
                self.b = self.a

        path, model = self.path("m.safetensors"), Model()
        with self.assertRaisesRegex(RuntimeError, "share memory"):
            self.module.save_file(model.state_dict(), path)
        self.module.save_model(model, path)
        with safe_open(path, "pt") as file:
            self.assertEqual((file.keys(), file.metadata()), (["a.bias", "a.weight"], {"b.bias": "a.bias", "b.weight": "a.weight"}))
        self.module.save_file({name: tensor for name, tensor in model.state_dict().items() if name[0] == "b"}, self.path("b"))
        for source in (path, self.path("b")):
            other = Model()
            self.assertEqual(self.module.load_model(other, source, backend="pread"), (set(), []))
            self.assertTrue(torch.equal(other.b.weight, model.a.weight))
        self.module.save_file(model.state_dict(), self.path("m.zt"))
        with safe_open(self.path("m.zt"), "pt") as file:
            self.assertEqual(len(file.keys()), 4)
        whole = torch.zeros(3, 3)
        self.assertEqual(self.module._find_shared_tensors({"w": whole, "a": whole[:1], "c": whole[2:], "d": torch.ones(2)}),
                         [{"w", "a", "c"}, {"d"}])
        with self.assertRaisesRegex(RuntimeError, "Missing key.*\"b.bias\", \"b.weight\""):
            self.module.load_model(torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)}), path)

    def test_refused(self):
        path, whole, in_vmap = self.path("m.safetensors"), torch.ones(4), []
        torch.vmap(lambda x: (in_vmap.append(x), x)[1])(torch.ones(2, 3))
        for tensors, kind, words in (
                ("x", ValueError, "Expected a dict"), ({"a": 5}, ValueError, "expected torch.Tensor but received <class 'int'>"),
                ({"a": torch.ones(3, 3).t()[1:]}, ValueError, "non contiguous tensor: `a`"),
                ({"a": torch.ones(3).to_sparse()}, ValueError, "sparse tensors: `['a']`"),
                ({"a": torch.ones(3, device="meta")}, RuntimeError, "Cannot copy out of meta tensor"),
                ({"a": torch._to_functional_tensor(torch.ones(4))}, ValueError, "tensor 'a': it is a Tensor without memory"),
                ({"a": in_vmap[0]}, ValueError, "tensor 'a': it is a Tensor, of which torch does not give the memory"),
                ({"a": whole, "b": whole[1:]}, RuntimeError, "share memory"),
                ({"a": torch.ones(3, dtype=torch.complex128)}, compat.SafetensorError, 'Unknown dtype "complex128"')):
            with self.subTest(words), self.assertRaises(kind) as raised:
                self.module.save_file(tensors, path)
            self.assertIsInstance(raised.exception, compat.SafetensorError)
            self.assertIn(words, str(raised.exception))
        self.assertEqual(os.listdir(self.folder), [])
        self.module.save_file({"a": torch.ones(3)}, path)
        with self.assertRaisesRegex(compat.SafetensorError, "^device foo is invalid$"):
            self.module.load_file(path, "foo")


if __name__ == "__main__":
    unittest.main()
