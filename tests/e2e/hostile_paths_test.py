"""What is written of a model's files: all of it below the folder that was named. lib/forged_paths.py has what no file may be."""
import subprocess

import forged_paths
import make_safetensors
import make_zt
import support
from forged_paths import version_1, version_2
from support import EXISTS, INVALID, IO

GOOD = ["a", "a/b/c", ".hidden", "..a", "a..b", "console", "com", "com10", "com1x", "lpt", "nulls.txt", "e\u0301".encode().decode().replace("e\u0301", "\u00e9"),
        "x" * 255, "/".join("a" * 16), "\u65e5\u672c/\u8a9e.txt", " leading", "a b", "-rf", "~", "$HOME", "%2e%2e", "#", "'", "aux-1", "CONIN"]


class HostilePaths(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.inner = self.path("inner")
        self.inner.mkdir()

    def test_weights_that_no_reader_takes_are_not_written(self):
        """What ztstream.folder says of them: forged_paths.weights() has what every command refuses."""
        source = self.safetensors("inner/a.safetensors", {"a": ("U8", [1], b"a")}, {"ztstream.folder": "x"})
        for spec in ("1.2", "2.0"):
            self.fail_with(INVALID, "convert", source, "-o", self.inner / "o.zt", "--spec", spec, says=["it is not an array", "--no-metadata"])
        self.assertEqual(self.entries(self.inner), ["a.safetensors"])
        self.succeed("convert", source, "-o", self.inner / "o.zt", "--no-metadata")

    def test_good_paths_come_out(self):
        for make in (version_1, version_2):
            model = self.put("inner/m.zt", make(*[f"{i}/{path}" if path.count("/") < 15 and len(path) < 900 else path
                                                  for i, path in enumerate(GOOD)]))
            self.succeed("verify", model)
            self.succeed("extract", model, "-o", f"{self.inner}/{make.__name__}/", "--to", "safetensors")
            for i, path in enumerate(GOOD):
                path = f"{i}/{path}" if path.count("/") < 15 and len(path) < 900 else path
                self.assertEqual((self.inner / make.__name__ / path).read_bytes(), b"owned", path)

    def test_a_planted_link_changes_nothing(self):
        """Names that the run could use are links to somewhere else: they are not followed."""
        target = self.path("target")
        target.mkdir()
        (self.inner / "out").symlink_to(target)
        model = self.put("m.zt", version_1("config.json", "sub/x"))
        process = self.run_program("extract", model, "-o", f"{self.inner}/out/", "--to", "safetensors")
        self.assertEqual(process.returncode, EXISTS)
        (self.inner / "out").unlink()
        last = subprocess.Popen(["true"])
        last.wait()
        planted = [f".out.{last.pid + i}-0.ztstream-tmp" for i in range(2000)]
        for name in planted:
            (self.inner / name).symlink_to(target)
        self.succeed("extract", model, "-o", f"{self.inner}/out/", "--to", "safetensors")
        self.assertEqual(self.entries(target), [])
        self.assertEqual(self.entries(self.inner / "out"), ["config.json", "model.safetensors", "sub"])
        self.assertEqual(self.entries(self.inner), sorted([*planted, "out"]))
        self.assertFalse((self.inner / "out").is_symlink())

    def test_more_than_the_disk_holds(self):
        """A file of a few MB that names one tensor of a GiB fifty thousand times: nothing is written."""
        count, size = 50_000, 1 << 30
        whole = make_safetensors.raw({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
        data = make_zt.zstd(bytes(size // 16)) * 16
        objects = {"t": {"format": "dense", "shape": [size],
                         "components": {"data": {"dtype": "u8", "data": data, "encoding": "zstd", "uncompressed_length": size}}}}
        entries = [{"path": f"{i}.safetensors", "kind": "safetensors", "header": whole} for i in range(count)]
        model = self.put("inner/m.zt", make_zt.encode_1(objects, attributes={"ztstream.folder": entries}))
        self.fail_with(IO, "extract", model, "-o", f"{self.inner}/out/", "--to", "safetensors", says="bytes are needed")
        self.assertEqual(self.entries(self.inner), ["m.zt"])
