"""The wheel: what it holds and needs, and that it works where it is installed, with nothing of this tree."""
import base64
import csv
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

from package_support import DATA, ROOT, SYSTEM, Case, newest_symbols

BUILD = pathlib.Path(os.environ.get("ZT_BUILD") or ROOT / "build/release")


class Import(Case):
    def test_time(self):
        """Processor time of the fastest of ten tries: of the package alone, and with the library and all that reading needs."""
        for code, most in (("import ztstream", 0.05), ("import ztstream; ztstream.open", 0.1)):
            timed = f"import time; begin = time.process_time(); {code}; print(time.process_time() - begin)"
            seconds = min(float(subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True).stdout)
                          for _ in range(10))
            self.assertLess(seconds, most, code)


class RunPath(unittest.TestCase):
    def test_is_the_binarys_own_folder_alone(self):
        """Room for another, and a folder of the system that CMake added, are taken out; the binary keeps its size."""
        sys.path.insert(0, str(ROOT / "scripts"))
        import make_wheel
        for more in (b"", b":", b":::::::", b":/usr/lib/x86_64-linux-gnu/hdf5/serial:", b":/opt/lib:/opt/hdf5/lib"):
            made = make_wheel.looks_beside_itself(b"libz.so.1\0$ORIGIN" + more + b"\0$ORIGINAL\0libm.so.6\0")
            self.assertEqual(made, b"libz.so.1\0$ORIGIN" + bytes(len(more)) + b"\0$ORIGINAL\0libm.so.6\0")
        with self.assertRaises(SystemExit):
            make_wheel.looks_beside_itself(b"libz.so.1\0/usr/lib:$ORIGIN\0")


class Host(Case):
    def test_is_the_one_that_the_binary_is_for(self):
        """By the header of ELF: its byte 5 says in which order the machine's number is."""
        sys.path.insert(0, str(ROOT / "scripts"))
        import make_wheel
        for order, number, name in ((1, b"\x3e\0", "x86_64"), (1, b"\xb7\0", "aarch64"), (2, b"\0\x16", "s390x")):
            path = self.folder / name
            path.write_bytes(b"\x7fELF\2" + bytes([order]) + bytes(12) + number + bytes(44))
            self.assertEqual(make_wheel.machine(path), name)
        self.assertEqual(make_wheel.machine(sys.executable), platform.machine())


class Wheel(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which("readelf"):
            raise unittest.SkipTest("needs readelf")

    def setUp(self):
        super().setUp()
        done = subprocess.run([sys.executable, "-B", ROOT / "scripts/make_wheel.py", BUILD, self.folder], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.stderr, "")
        self.wheel = pathlib.Path(done.stdout.strip())

    def test_contents(self):
        self.assertRegex(self.wheel.name, r"^ztstream-[0-9.]+-py3-none-manylinux_\d+_\d+_\w+\.whl$")
        self.assertLess(self.wheel.stat().st_size, 16 << 20)  # 10 MB on Debian 13, whose Highway knows more processors; 14 of clang 21
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            record, = (name for name in names if name.endswith(".dist-info/RECORD"))
            rows = {name: (digest, size) for name, digest, size in csv.reader(archive.read(record).decode().splitlines())}
            self.assertEqual(set(rows), set(names))
            for name in set(names) - {record}:
                digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
                self.assertEqual(rows[name], ("sha256=" + digest, str(archive.getinfo(name).file_size)))
            package = {str(path.relative_to(ROOT / "python")) for path in (ROOT / "python/ztstream").rglob("*.py")}
            self.assertLessEqual(package | {"ztstream/py.typed", "ztstream/_lib/libztstream.so.0", "ztstream/_lib/ztstream"},
                                 set(names))
            about, = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
            self.assertIn("\nLicense: Apache-2.0\n", about.partition("\n\n")[0])
            archive.extractall(self.folder / "x")
        self.check_needs(self.folder / "x/ztstream/_lib")
        self.check_symbols(self.folder / "x/ztstream/_lib")

    def check_needs(self, folder):
        """Every library that is needed lies beside, or is every system's; nothing is looked for elsewhere."""
        beside = {path.name for path in folder.iterdir()}
        for path in folder.iterdir():
            said = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
            self.assertLessEqual(needed, beside | SYSTEM, path.name)
            # Torch may have loaded libstdc++ before: what needs a place in the static block then cannot be loaded.
            if path.name != "ztstream":
                self.assertNotIn("STATIC_TLS", said, path.name)
            if path.name in ("ztstream", "libztstream.so.0"):
                self.assertEqual(re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", said), ["$ORIGIN"])

    def check_symbols(self, folder):
        """The tag names the oldest glibc that has every symbol of all binaries, and where they run."""
        newest = newest_symbols(folder.iterdir())
        major, minor = newest["GLIBC"][:2]
        self.assertTrue(self.wheel.name.endswith(f"-manylinux_{major}_{minor}_{platform.machine()}.whl"), (self.wheel.name, newest))
        if 'PRETTY_NAME="Debian GNU/Linux 12 ' in pathlib.Path("/etc/os-release").read_text():
            # Where releases are made: RHEL 9 and Amazon Linux 2023 have this glibc, and the libstdc++ of GCC 11.
            self.assertLessEqual(newest["GLIBC"], (2, 34))
            self.assertLessEqual(newest["GLIBCXX"], (3, 4, 29))

    def test_installed(self):
        """Into a virtual environment without a network; then the library, the program and its command are the wheel's own."""
        done = subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", self.folder / "env"],
                              capture_output=True, check=False)
        if done.returncode:
            self.skipTest("this Python makes no virtual environments")
        python = self.folder / "env/bin/python"
        subprocess.run([python, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index", "--no-deps",
                        self.wheel], check=True, cwd=self.folder)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("ZTSTREAM", "PYTHON", "LD_"))}
        code = """
import pathlib, sys, ztstream
with ztstream.open(sys.argv[1]) as f:
    ztstream.save_file({name: t.tobytes() and t.numpy() for name, t in f.items()}, "x.zt", compress="planes")
assert ztstream.diff(sys.argv[1], "x.zt")["ok"]
own = pathlib.Path(ztstream.__file__).parent
assert own.is_relative_to(sys.prefix) and pathlib.Path(ztstream.program()).parent == own / "_lib"
maps = pathlib.Path("/proc/self/maps").read_text()
assert str(own / "_lib/libztstream.so.0") in maps
assert "-linux-gnu/libabsl" not in maps and "-linux-gnu/libhwy" not in maps
print("works")
"""
        done = subprocess.run([python, "-c", code, DATA / "real/ppocr-cls.safetensors"], cwd=self.folder, env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.stdout, done.stderr), ("works\n", ""))
        done = subprocess.run([self.folder / "env/bin/ztstream", "verify", "x.zt"], cwd=self.folder, env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
