"""The programs in examples/ write what they say, and the independent reader and the program agree."""
import hashlib
import os
import pathlib
import subprocess

import numpy

import support
from support import INVALID, IO, PATIENCE, PROGRAM, UNSUPPORTED, read_zt

EXAMPLES = pathlib.Path(os.environ.get("ZT_EXAMPLES") or pathlib.Path(PROGRAM).parent)


class Examples(support.EndToEnd):

    def test_custom_exporter_through_a_pipe(self):
        process = subprocess.run([EXAMPLES / "custom_exporter"], capture_output=True, timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, process.stderr)
        path = self.put("out.zt", process.stdout)
        self.succeed("verify", path)
        objects = read_zt(path)["objects"]
        self.assertEqual(list(objects), ["graph", "layer", "stream"])

        graph = objects["graph"]
        self.assertEqual((graph["format"], list(graph["shape"])), ("sparse_csr", [2, 3]))
        parts = {role: numpy.frombuffer(part["bytes"], {"f32": "<f4", "u64": "<u8"}[part["dtype"]]).tolist()
                 for role, part in graph["components"].items()}
        self.assertEqual(parts, {"values": [7, 9], "indices": [1, 2], "indptr": [0, 1, 2]})
        self.assertEqual({role: (part["encoding"], part["digest"].split(":")[0])
                          for role, part in graph["components"].items()},
                         {"values": ("raw", "crc32c"), "indices": ("zstd", "sha256"), "indptr": ("zstd", "sha256")})

        layer = objects["layer"]
        self.assertEqual((layer["format"], list(layer["shape"])), ("quantized_group", [2, 8]))
        self.assertEqual(layer["attributes"], {"bits": 4, "group_size": 8, "packing": "8_per_u32_lsb_first"})
        self.assertEqual(layer["components"]["packed_weight"]["bytes"].hex(), "1032547698badcfe")

        stream = objects["stream"]["components"]["data"]
        rows = numpy.frombuffer(stream["bytes"], "<f4").reshape(1000, 1024)
        self.assertTrue((rows == numpy.arange(1000, dtype=numpy.float32)[:, None]).all())
        self.assertEqual(stream["encoding"], "zstd")
        self.assertLess(stream["length"], len(stream["bytes"]) // 50)

    def test_custom_exporter_says_that_the_pipe_is_gone(self):
        with open("/dev/full", "wb") as full:
            process = subprocess.run([EXAMPLES / "custom_exporter"], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE)
        self.assertEqual(process.returncode, IO)
        self.assertRegex(process.stderr.decode(), r"\A[^\n]*standard output[^\n]*No space left on device\n\Z")

    def test_write_checkpoint(self):
        path = self.path("model.zt")
        subprocess.run([EXAMPLES / "write_checkpoint", path], check=True, timeout=PATIENCE)
        self.succeed("verify", path)
        objects = read_zt(path)["objects"]
        self.assertEqual(sorted(objects), ["lm_head.weight", "model.embed_tokens.weight"])
        head, embedding = (objects[name]["components"]["data"] for name in sorted(objects))
        self.assertEqual(head, embedding)
        self.assertEqual(numpy.frombuffer(head["bytes"], "<f4").tolist(), list(range(12)))

    def run_example(self, name, *arguments):
        return subprocess.run([EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=PATIENCE)

    def test_read_checkpoint(self):
        path = self.path("model.zt")
        subprocess.run([EXAMPLES / "write_checkpoint", path], check=True, timeout=PATIENCE)
        process = self.run_example("read_checkpoint", path)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        self.assertEqual(process.stdout,
                         "lm_head.weight dense [4, 3] sum 66\nmodel.embed_tokens.weight dense [4, 3] sum 66\n")
        process = self.run_example("read_checkpoint", path, "lm_head.weight")
        self.assertEqual((process.returncode, process.stdout.split()), (0, [str(i) for i in range(12)]))
        process = self.run_example("read_checkpoint", path, "lm_head.weight", "4", "3")
        self.assertEqual((process.returncode, process.stdout.split()), (0, ["4", "5", "6"]))
        process = self.run_example("read_checkpoint", path, "lm_head.weight", "11", "2")
        self.assertEqual((process.returncode, process.stderr),
                         (2, f"{path}: tensor 'lm_head.weight': the range lies beyond the component\n"))
        process = self.run_example("read_checkpoint", path, "none")
        self.assertEqual((process.returncode, process.stderr),
                         (2, f"{path}: tensor 'none': there is no tensor of this name\n"))
        process = self.run_example("read_checkpoint", self.path("none.zt"))
        self.assertEqual((process.returncode, process.stderr),
                         (IO, f"{self.path('none.zt')}: cannot open: No such file or directory\n"))
        content = bytearray(path.read_bytes())
        content[64] ^= 1
        path.write_bytes(content)
        process = self.run_example("read_checkpoint", path)
        self.assertEqual(process.returncode, INVALID)
        self.assertEqual(process.stderr, f"{path}: the file is damaged\n")

    def test_optimizer_state_of_unknown_size(self):
        path = self.path("state.zt")
        process = self.run_example("optimizer_state", path)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        self.assertEqual(process.stdout, f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n")
        self.succeed("verify", path)
        read = read_zt(path)
        steps = read["attributes"]["steps"]
        history = read["objects"]["adam.history"]
        self.assertEqual(history["attributes"], {"columns": ["weight", "mean", "variance"]})
        self.assertEqual((history["format"], list(history["shape"])), ("dense", [steps, 3]))
        rows = numpy.frombuffer(history["components"]["data"]["bytes"], "<f4").reshape(-1, 3)
        self.assertEqual(len(rows), steps)
        self.assertGreater(steps, 10)
        self.assertAlmostEqual(rows[-1, 0], 3, delta=1e-3)
        self.assertEqual(read["objects"]["adam.weight"]["components"]["data"]["bytes"], rows[-1, :1].tobytes())

    # Sizes for llama2.c: dim, hidden_dim, layers, heads, kv_heads, vocabulary, context.
    SIZES = (8, 12, 2, 2, 1, 5, 6)

    def llama2c(self, name, tied=True):
        dim, hidden, layers, heads, kv_heads, vocabulary, context = self.SIZES
        kv, head = dim // heads * kv_heads, dim // heads
        shapes = {"token_embedding": (vocabulary, dim), "rms_att": (layers, dim), "wq": (layers, dim, dim),
                  "wk": (layers, kv, dim), "wv": (layers, kv, dim), "wo": (layers, dim, dim),
                  "rms_ffn": (layers, dim), "w1": (layers, hidden, dim), "w2": (layers, dim, hidden),
                  "w3": (layers, hidden, dim), "rms_final": (dim,), "freq_cos": (context, head // 2),
                  "freq_sin": (context, head // 2)}
        if not tied:
            shapes["wcls"] = (vocabulary, dim)
        random = numpy.random.default_rng(7)
        arrays = {key: random.standard_normal(shape).astype("<f4") for key, shape in shapes.items()}
        header = numpy.array([*self.SIZES[:5], vocabulary if tied else -vocabulary, context], "<i4").tobytes()
        return self.put(name, header + b"".join(array.tobytes() for array in arrays.values())), arrays

    @staticmethod
    def rounded(array):
        """To 11 significant bits, ties to even."""
        bits = array.view("<u4").astype("<u8")
        return ((bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000).astype("<u4").tobytes()

    def test_transcoder_of_a_format_of_its_own(self):
        for tied in (True, False):
            source, arrays = self.llama2c("model.bin", tied)
            path = self.path("model.zt")
            process = self.run_example("transcoder", source, path)
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            self.succeed("verify", path)
            read = read_zt(path)
            self.assertEqual(read["attributes"], {"heads": 2, "kv_heads": 1, "context": 6})
            parts = {name: object["components"]["data"] for name, object in read["objects"].items()}
            if tied:
                self.assertEqual(parts.pop("wcls"), parts["token_embedding"])
            self.assertEqual(sorted(parts), sorted(arrays))
            for name, array in arrays.items():
                self.assertEqual(list(read["objects"][name]["shape"]), list(array.shape))
                self.assertEqual(parts[name]["bytes"], self.rounded(array), name)
                self.assertRegex(parts[name]["digest"], "^sha256:")

    def test_transcoder_reads_what_the_program_reads(self):
        values = numpy.array([1.0001, -3], "<f4")
        header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
        source = self.put("folder/model.safetensors", len(header).to_bytes(8, "little") + header + values.tobytes())
        numpy.save(self.path("a.npy"), values)
        self.succeed("convert", source, "-o", self.path("made.zt"))
        for given in (source, source.parent, self.path("a.npy"), self.path("made.zt")):
            process = self.run_example("transcoder", given, self.path("a.zt"))
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            self.assertEqual(read_zt(self.path("a.zt"))["objects"]["a"]["components"]["data"]["bytes"], self.rounded(values))

    def test_transcoder_starts_no_process_for_hdf5(self):
        path = support.DATA / "hdf5/a.h5"
        process = self.run_example("transcoder", path, self.path("a.zt"))
        self.assertEqual((process.returncode, process.stderr),
                         (UNSUPPORTED, f"{path}: it is HDF5, which the program alone reads; convert the file with that first\n"))

    def test_transcoder_refuses_bad_input_and_leaves_nothing(self):
        good, _ = self.llama2c("model.bin")
        content = good.read_bytes()
        nan = bytearray(content)
        nan[28:32] = b"\0\0\xc0\x7f"
        for broken, says in ((content[:-1], "broken.bin: the header asks"), (content + b"\0", "broken.bin: the header"),
                             (b"\xff" * 40, "broken.bin: no llama2.c header: a size"), (content[:10], "broken.bin: "),
                             (bytes(nan), "tensor 'token_embedding': a value is NaN or infinite")):
            source = self.put("broken.bin", broken)
            process = self.run_example("transcoder", source, self.path("out.zt"))
            self.assertEqual(process.returncode, INVALID, process.stderr)
            self.assertRegex(process.stderr, r"\A[^\n]+\n\Z")
            self.assertIn(says, process.stderr)
            self.assertEqual(self.entries(), ["broken.bin", "model.bin"])
