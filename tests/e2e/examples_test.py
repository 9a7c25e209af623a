"""The programs in examples/ write what they say, and the independent reader and the program agree."""
import os
import pathlib
import subprocess
import unittest

import numpy

import support
from support import IO, PROGRAM, read_zt

EXAMPLES = pathlib.Path(os.environ.get("ZT_EXAMPLES") or pathlib.Path(PROGRAM).parent)


class Examples(support.EndToEnd):

    def test_custom_exporter_through_a_pipe(self):
        process = subprocess.run([EXAMPLES / "custom_exporter"], capture_output=True, timeout=120)
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
            process = subprocess.run([EXAMPLES / "custom_exporter"], stdout=full, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(process.returncode, IO)
        self.assertRegex(process.stderr.decode(), r"\A[^\n]*standard output[^\n]*No space left on device\n\Z")

    def test_write_checkpoint(self):
        path = self.path("model.zt")
        subprocess.run([EXAMPLES / "write_checkpoint", path], check=True, timeout=120)
        self.succeed("verify", path)
        objects = read_zt(path)["objects"]
        self.assertEqual(sorted(objects), ["lm_head.weight", "model.embed_tokens.weight"])
        head, embedding = (objects[name]["components"]["data"] for name in sorted(objects))
        self.assertEqual(head, embedding)
        self.assertEqual(numpy.frombuffer(head["bytes"], "<f4").tolist(), list(range(12)))


if __name__ == "__main__":
    unittest.main()
