"""The ring by which tensors come onto devices: the same bytes by buffers of every size, in bounded memory, interrupted, of any input.

The code that reads, cuts and takes turns is that of CUDA; the device is a double that copies as late as it may. With torch, what
lies above it is tried on the CPU.
"""
import io
import json
import os
import pathlib
import random
import re
import types
import unittest
from unittest import mock

import numpy
from package_support import SLOW, Case, little, random_tensors, run, torch_or_skip, ztstream
from late_device import LateDevice
import make_safetensors
import quantized
import remote_server
from ztstream import _ring


def filled(file, size=None, grain=None, names=None, progress=None):
    """({name: bytes}, the device), by buffers of so many bytes, of tensors that are cut at multiples of `grain`."""
    device = LateDevice()
    out = {tensor.name: bytearray(tensor.nbytes) for tensor in file.values() if names is None or tensor.name in names}
    wanted = [(file[name], ztstream._types.width_of(file[name].dtype, file[name].storage), target) for name, target in out.items()]
    with mock.patch.object(_ring, "SIZE", size or _ring.SIZE), mock.patch.object(_ring, "_GRAIN", grain or _ring._GRAIN):
        _ring.fill(file, wanted, device, progress)
    return out, device


def write_quantized(folder):
    """A folder with a tensor of fp8 and its scales."""
    config, add = quantized.SCHEMES["fp8_blocks"](numpy.random.default_rng(9))
    tensors = {}
    add(tensors, "a")
    folder.mkdir()
    (folder / "config.json").write_text('{"quantization_config": %s}' % json.dumps(config))
    make_safetensors.write(folder / "model.safetensors", tensors)


class Ring(Case):
    def setUp(self):
        super().setUp()
        self.tensors = random_tensors(random.Random(3), 12, 300)
        self.tensors["most"] = "f64", numpy.arange(129.0)
        self.wanted = {name: little(array) for name, (_, array) in self.tensors.items()}

    def write(self, path, **options):
        with ztstream.Writer(path, **options) as out:
            for name, (dtype, array) in self.tensors.items():
                out.add(name, array, dtype=dtype)
            out.alias("tied", "most")
        self.wanted["tied"] = self.wanted["most"]
        return path

    def test_every_size(self):
        """From one element to all of it, in three buffers at most, of which none is filled before it was copied."""
        total = sum(map(len, self.wanted.values()))
        for compress in (None, "zstd", "planes"):
            path = self.write(self.path(f"{compress}.zt"), compress=compress, min_gain=-1)
            with ztstream.open(path) as file:
                for size in [*range(1, 70), *range(70, 2 * total, 11 if compress == "zstd" and not SLOW else 97)]:
                    out, device = filled(file, size, grain=64 if size % 2 else None)
                    self.assertEqual(out, self.wanted, size)
                    self.assertLessEqual((len(device.buffers), max(device.buffers)), (3, max(size, 16)))
                    self.assertEqual(device.finished, 1)

    def test_frames_are_decoded_once(self):
        """Tensors are cut where their frames end, wherever they begin in a buffer."""
        values = numpy.arange(5 << 20, dtype="f4")
        ztstream.save_file({"first": values[:1001], "w": values}, self.path("m.zt"), compress="zstd", min_gain=-1)
        with ztstream.open(self.path("m.zt")) as file:
            ranges = []
            read = file._read
            file._read = lambda wanted, threads: (ranges.extend(wanted), read(wanted, threads))
            out, _ = filled(file, 9 << 20)
        self.assertEqual(out["w"], values.tobytes())
        self.assertEqual({each[2] % (4 << 20) for each in ranges}, {0})
        self.assertEqual(sum(each[3] for each in ranges), values.nbytes + 4004)

    def test_progress(self):
        path, said = self.write(self.path("m.zt")), []
        with ztstream.open(path) as file:
            filled(file, 512, progress=lambda done, total: said.append((done, total)))
            total = sum(map(len, self.wanted.values()))
            self.assertEqual(said[-1], (total, total))
            self.assertEqual(said, sorted(set(said)))

            class Stop(Exception):
                pass

            def stop(done, total):
                raise Stop

            device = LateDevice()
            with self.assertRaises(Stop), mock.patch.object(_ring, "SIZE", 64):
                _ring.fill(file, [(file["most"], 8, bytearray(1032))], device, stop)
            self.assertEqual((device.finished, device.buffers), (1, [64]))
            self.assertEqual(filled(file)[0], self.wanted)

    def test_sources(self):
        """Bytes, file objects, servers; safetensors; what differs from a base."""
        path = self.write(self.path("m.zt"), compress="planes", min_gain=-1)
        data = pathlib.Path(path).read_bytes()
        plain = {name: array for name, (dtype, array) in self.tensors.items() if dtype in ("f32", "i64", "f64")}
        with remote_server.Server() as server, mock.patch.dict(os.environ, server.environment()):
            server.files["m.zt"] = data
            for source in (data, io.BytesIO(data), server.url("m.zt")):
                with ztstream.open(source) as file:
                    self.assertEqual(filled(file, 300, 64)[0], self.wanted)
        numpy.savez_compressed(self.path("m.npz"), **{f"a{i}": array for i, array in enumerate(plain.values())})
        with ztstream.open(self.path("m.npz")) as file:
            self.assertEqual(list(filled(file, 100)[0].values()), list(map(little, plain.values())))
        changed = {"w": numpy.arange(3000, dtype="f4")}
        ztstream.save_file(changed, self.path("base.zt"))
        changed["w"] = changed["w"] + (numpy.arange(3000) % 50 == 0)
        ztstream.save_file({"w": changed["w"].astype("f4")}, self.path("new.zt"))
        ztstream.convert(self.path("new.zt"), self.path("delta.zt"), base=self.path("base.zt"))
        with ztstream.open(self.path("delta.zt")) as file:
            self.assertEqual(filled(file, 1000)[0], {"w": changed["w"].astype("<f4").tobytes()})

    def test_numbers_of_quantized_tensors(self):
        write_quantized(self.folder / "q")
        with ztstream.open(self.path("q"), dequantize="f32") as file:
            whole = {name: tensor.tobytes() for name, tensor in file.items()}
            for size in (4, 100, 4096):
                self.assertEqual(filled(file, size, names=whole)[0], whole)

    def test_patterns(self):
        """Names, shell patterns and regular expressions, each tensor once."""
        ztstream.save_file({name: numpy.ones(2) for name in ("layers.0.w", "layers.0.b", "layers.1.w", "glob:x", "norm")}, self.path("m.zt"))
        with ztstream.open(self.path("m.zt")) as file:
            self.assertEqual(list(file.numpy(["norm", "glob:layers.*.w", "layers.0.w"])), ["norm", "layers.0.w", "layers.1.w"])
            self.assertEqual(list(file.numpy([re.compile(r"\.0\.")])), ["layers.0.w", "layers.0.b"])
            self.assertEqual(list(file.numpy(["glob:x"])), ["glob:x"])
            file.prefetch(["glob:*"])
            for names, said in ((["glob:z*"], "no tensor has a name that 'glob:z\\*' matches"), ("glob:*", r"names are a list: \['glob:\*'\]"),
                                (re.compile("x"), "names are a list"), (["norms"], "there is no tensor 'norms'; near it: 'norm'")):
                with self.assertRaisesRegex(ztstream.Error, said):
                    file.numpy(names)

    def test_memory(self):
        """Three buffers and what decodes, whatever the model has: not the model."""
        values = numpy.tile(numpy.arange(1 << 20, dtype="f4"), 24)  # 96 MiB
        for compress in (None, "planes"):
            path = self.path(f"{compress}.zt")
            ztstream.save_file({"w": values, "x": values[:-1], "y": values[1:]}, path, compress=compress, sync=False)
            done = run('''
from ztstream import _ring
class Nowhere:
    def buffer(self, size):
        self.memory = bytearray(size)
        import ctypes
        return self.memory, ctypes.addressof((ctypes.c_ubyte * size).from_buffer(self.memory))
    def direct(self, *_): pass
    def put(self, *_): pass
    def mark(self): return 1
    def wait(self, _): pass
    def finish(self): pass
def peak(): return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
_ring.SIZE = 8 << 20
with ztstream.open(sys.argv[1], threads=2) as file:
    file["x"][:1]
    before = peak()
    _ring.fill(file, [(tensor, 4, None) for tensor in file.values()], Nowhere())
print(peak() - before)
''', path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertLess(int(done.stdout), 64 << 10, compress)  # KiB: 24 MiB are the buffers', 288 MiB the model's


class Torch(Case):
    """Where torch is installed."""

    def setUp(self):
        super().setUp()
        self.torch = torch = torch_or_skip()
        torch.manual_seed(1)
        self.tensors = {
            "a": torch.randn(300, 70).bfloat16(), "b": torch.rand(5, 8) > 0.5, "s": torch.tensor(2), "f": torch.randn(600, 70),
            "e": torch.empty(0, 3), "c": torch.randn(7, 3).to(torch.complex64), "d": torch.randn(11).double(),
            "u": torch.arange(100).to(torch.uint8)}
        for kind in ("float8_e4m3fn", "float8_e5m2"):
            if hasattr(torch, kind):
                self.tensors[kind] = torch.randn(33, 5).to(getattr(torch, kind))
        self.tensors["tied"] = self.tensors["f"]

    def same(self, found, wanted, what=None):
        def bits(tensor):
            flat = tensor.detach().contiguous().reshape(-1)
            return tensor.dtype, tensor.shape, bytes(flat.view(self.torch.uint8).numpy()) if flat.numel() else b""
        self.assertEqual(bits(found), bits(wanted), what)

    def test_loading(self):
        torch, path = self.torch, self.path("m.zt")
        for compress in (None, "zstd", "planes"):
            ztstream.save_file(self.tensors, path, compress=compress, min_gain=-1, overwrite=True)
            with ztstream.open(path) as file:
                for size in (16, 17, 100, 4096, 1 << 16, 1 << 26):  # through buffers, as devices need it, and straight
                    by_buffers = mock.patch.object(_ring._Devices, "direct", (lambda *_: None) if size != 4096 else _ring._Devices.direct)
                    with mock.patch.object(_ring, "SIZE", size), by_buffers:
                        for slab in (False, True):
                            state = file.torch(slab=slab, progress=lambda *_: None)
                            self.assertEqual(list(state), list(file))
                            for name, tensor in self.tensors.items():
                                self.same(state[name], tensor, (name, size))
                            self.assertIs(state["tied"], state["f"])
                            storages = {each.untyped_storage().data_ptr() for each in state.values() if each.numel()}
                            self.assertEqual(len(storages) == 1, slab)
                        self.into(file)
                for name, tensor in file.torch(device="meta").items():
                    self.assertEqual((tensor.device.type, tensor.dtype, tensor.shape),
                                     ("meta", self.tensors[name].dtype, self.tensors[name].shape))
                self.same(file["a"].torch("cpu:0"), self.tensors["a"])
                self.assertEqual(file["a"].torch("meta").shape, (300, 70))

    def into(self, file):
        """Tensors that are there: parameters, transposed ones, of other types."""
        torch = self.torch
        out = {name: torch.zeros_like(tensor) for name, tensor in self.tensors.items()}
        out["a"] = torch.zeros(70, 300, dtype=torch.float32).t()
        out["f"] = torch.nn.Parameter(torch.zeros(600, 70, dtype=torch.float64))
        out["c"] = torch.zeros(7, 3, dtype=torch.complex64).conj()
        for name, tensor in file.torch(out=out).items():
            self.assertIs(tensor, out[name])
            self.same(tensor.resolve_conj(), self.tensors[name].to(tensor.dtype), name)
        some = {"a": torch.zeros(300, 70), "d": torch.zeros(11)}
        self.assertEqual(list(file.torch(["glob:d"], out=some)), ["d"])
        self.assertEqual((float(some["a"].sum()), bool(some["d"].any())), (0.0, True))

    def test_memory(self):
        """Numbers that become others on the way take one buffer on the CPU, where nothing is copied later, and what decodes."""
        torch, path = self.torch, self.path("m.zt")
        ztstream.save_file({str(i): torch.randn(17 << 20) for i in range(5)}, path, compress="planes", sync=False)  # 340 MiB
        done = run('''
import torch
def peak(): return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
with ztstream.open(sys.argv[1], threads=2) as file:
    out = {name: torch.ones(17 << 20, dtype=torch.bfloat16) for name in file}
    torch.ones(5).bfloat16()
    file["0"][:1]
    before = peak()
    file.torch(out=out)
print(peak() - before)
''', path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLess(int(done.stdout), 112 << 10)  # KiB: 64 MiB are the buffer's

    def test_module(self):
        """A module that is there gets its weights, of another type than its own."""
        torch, path = self.torch, self.path("m.zt")
        model, other = (torch.nn.Sequential(torch.nn.Linear(30, 7), torch.nn.BatchNorm1d(7)) for _ in range(2))
        ztstream.save_file(model.state_dict(), path, compress="planes")
        with ztstream.open(path) as file:
            other.half()
            file.torch(out=other.state_dict())
        for name, tensor in model.state_dict().items():
            self.same(other.state_dict()[name], tensor.half() if tensor.is_floating_point() else tensor, name)

    def test_dequantize_and_base(self):
        """The numbers of quantized tensors, and a delta, as numpy has them: mapped, read, by the ring, into tensors that are there."""
        torch = self.torch
        write_quantized(self.folder / "q")
        ztstream.save_file({"w": torch.arange(90000.0)}, self.path("0.zt"))
        ztstream.save_file({"w": torch.arange(90000.0) + (torch.arange(90000) % 500 == 0)}, self.path("whole.zt"))
        ztstream.convert(self.path("whole.zt"), self.path("1.zt"), base=self.path("0.zt"))
        os.rename(self.path("0.zt"), self.path("elsewhere"))
        for path, open_with, asked in (("q", {}, {"dequantize": "f32"}), ("q", {"dequantize": "f32"}, {}), ("1.zt", {"base": self.path("elsewhere")}, {})):
            with ztstream.open(self.path(path), **open_with) as file:
                wanted = {name: torch.from_numpy(array) for name, array in file.numpy(copy=True, **asked).items()}
                out = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
                for found in (file.torch(**asked), file.torch(copy=True, **asked), file.torch(slab=True, **asked), file.torch(out=out, **asked)):
                    self.assertEqual(list(found), list(wanted))
                    for name, tensor in wanted.items():
                        self.same(found[name], tensor, (path, name))
                for name, tensor in file.torch(dtype="bf16", **asked).items():
                    self.same(tensor, wanted[name].bfloat16(), (path, name))

    def test_types(self):
        torch, path = self.torch, self.path("m.zt")
        ztstream.save_file(self.tensors, path)
        with ztstream.open(path) as file:
            plain = [name for name in self.tensors if not name.startswith("float8")]
            for dtype in ("f16", "bfloat16", torch.float64, numpy.float32):
                for name, tensor in file.torch(plain, dtype=dtype).items():
                    kind = getattr(torch, {"f16": "float16"}.get(dtype, str(dtype).rpartition(".")[2].rstrip("'>")))
                    self.same(tensor, self.tensors[name].to(kind) if tensor.is_floating_point() else self.tensors[name], name)
            part = file.torch({"a": numpy.s_[:, :3], "u": numpy.s_[2:]}, dtype="f32")
            self.assertEqual((part["a"].dtype, part["u"].dtype), (torch.float32, torch.uint8))
            there = lambda **kind: {"a": torch.zeros(300, 70, **kind)}
            for call, said in (
                    (lambda: file.torch(dtype="f16"), r"m.zt: tensor 'float8_e\dm\d\w*': f8_e\dm\d\w* does not become f16; dequantize= makes numbers "
                     "of quantized tensors$"),
                    (lambda: file.torch(dtype="i8"), "dtype is a type of floating-point numbers, f64, f32, f16 or bf16, not i8$"),
                    (lambda: file.torch(out={"a": torch.zeros(3)}), r"what is filled with 'a': it has the shape \[3\], and the tensor \[300, 70\]$"),
                    (lambda: file.torch(out=there(dtype=torch.int8)), "m.zt: tensor 'a': bf16 does not become i8$"),
                    (lambda: file.torch(out={"b": torch.zeros(5, 8)}), "m.zt: tensor 'b': bool does not become f32$"),
                    (lambda: file.torch(out=there(device="meta")), "what is filled with 'a': it is on the device 'meta', where tensors have "
                     "no values$"),
                    (lambda: file.torch(out={"a": numpy.zeros((300, 70))}), "what is filled with 'a': it is no tensor of torch$"),
                    (lambda: file.torch(out={"z": torch.zeros(1)}), "there is no tensor 'z'"),
                    (lambda: file.torch(["a"], out={}), "nothing is there for 'a'$"),
                    (lambda: file.torch({"a": numpy.s_[1:]}, out=there()), "parts of tensors are not read into tensors that are there"),
                    (lambda: file.torch(device="nope"), "torch has no device 'nope' here: Expected one of cpu, cuda")):
                with self.assertRaisesRegex(ztstream.Error, said):
                    call()

    def test_cuda(self):
        """What is asked of CUDA, of which a double keeps count: nothing is filled before the event after it was waited for."""
        torch, asked = self.torch, []

        class Stream:
            def synchronize(self):
                asked.append("finish")

        class Event:
            def record(self, stream):
                self.number = sum(word.startswith("record") for word in asked)
                asked.append(f"record {self.number}")

            def synchronize(self):
                asked.append(f"wait {self.number}")

        class Double:
            uint8, cuda = torch.uint8, types.SimpleNamespace(Event=Event, current_stream=lambda device: Stream())

            @staticmethod
            def empty(size, dtype, device, pin_memory):
                asked.append(f"buffer {size} {device} {pin_memory}")
                return torch.empty(size, dtype=dtype)

        ztstream.save_file({"w": torch.arange(100, dtype=torch.float32)}, self.path("m.zt"))
        out = torch.zeros(100)
        device = _ring._Devices(Double, [])
        device._cuda, device.direct = {torch.device("cuda", 0)}, lambda *_: None
        with ztstream.open(self.path("m.zt")) as file, mock.patch.object(_ring, "SIZE", 100):
            _ring.fill(file, [(file["w"], 4, (out.view(torch.uint8), torch.float32))], device)
        self.same(out, torch.arange(100, dtype=torch.float32))
        self.assertEqual(asked, ["buffer 100 cpu True", "record 0", "buffer 100 cpu True", "record 1", "buffer 100 cpu True", "record 2",
                                 "wait 0", "record 3", "finish"])


if __name__ == "__main__":
    unittest.main()
