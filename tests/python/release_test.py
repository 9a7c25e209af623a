"""What scripts/make_release.py adds to a release: the archive of the program, which runs by itself, and the list of what is in it."""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import unittest

from package_support import DATA, ROOT, SYSTEM, Case, newest_symbols

BUILD = pathlib.Path(os.environ.get("ZT_BUILD") or ROOT / "build/release")
EPOCH = 1_700_000_000


class Packages(unittest.TestCase):
    def test_each_has_a_description_of_its_own(self):
        settings = dict(re.findall(r'^set\((CPACK_\w+) "(.*?)"\)$', (BUILD / "CPackConfig.cmake").read_text(), re.M | re.S))
        self.assertEqual(settings["CPACK_PACKAGE_DESCRIPTION_SUMMARY"], "")  # it would be the first line of all
        parts = settings["CPACK_COMPONENTS_ALL"].upper().split(";")
        self.assertEqual(sorted(parts), ["C", "CDEV", "DEV", "PROGRAM", "PYTHON"])
        summaries = {settings[f"CPACK_DEBIAN_{part}_DESCRIPTION"].splitlines()[0] for part in parts}
        self.assertEqual(len(summaries), 5, summaries)
        for part in ("PROGRAM", "C"):
            self.assertEqual(settings[f"CPACK_DEBIAN_{part}_PACKAGE_RECOMMENDS"], "libcurl4")


@unittest.skipUnless(all(map(shutil.which, ("readelf", "ninja", "dpkg-query", "git"))) and (ROOT / ".git").exists(),
                     "needs a clone, git, ninja, readelf and dpkg-query")
class Release(Case):

    def make(self, name):
        out = self.folder / name
        out.mkdir()
        subprocess.run([sys.executable, "-B", ROOT / "scripts/make_release.py", BUILD, out], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)})
        return {path.name: path for path in out.iterdir()}

    def test_release(self):
        first, second = self.make("first"), self.make("second")
        self.assertEqual({name: path.read_bytes() for name, path in first.items()},
                         {name: path.read_bytes() for name, path in second.items()})
        sbom, program = sorted(first.values(), key=lambda path: path.suffix, reverse=True)
        self.assertEqual(sbom.name.removesuffix(".spdx.json"), program.name.removesuffix(".tar.gz"))
        self.check_program(program)
        self.check_sbom(json.loads(sbom.read_text()))

    def check_program(self, archive):
        self.assertRegex(archive.name, rf"^ztstream-[0-9.]+-linux-{platform.machine()}\.tar\.gz$")
        with tarfile.open(archive) as tar:
            entries = tar.getmembers()
            tar.extractall(self.folder)
        self.assertEqual([entry.name for entry in entries], sorted(entry.name for entry in entries))
        self.assertEqual({(entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries},
                         {(EPOCH, 0, 0, "root", "root")})
        prefix = self.folder / archive.name.removesuffix(".tar.gz")
        beside = {path.name for path in (prefix / "lib/ztstream").iterdir()}
        for path in (prefix / "lib/ztstream").iterdir():
            said = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
            self.assertLessEqual(set(re.findall(r"\(NEEDED\).*\[(.*)\]", said)), beside | SYSTEM, path.name)
        # What lies beside the program needs no later glibc: libstdc++ of Debian 12 would.
        self.assertEqual(newest_symbols((prefix / "lib/ztstream").iterdir()), newest_symbols([BUILD / "bin/ztstream"]))
        link = self.folder / "ztstream"  # found through a link, as ~/bin may have it
        link.symlink_to(prefix / "bin/ztstream")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
        subprocess.run([link, "convert", "-q", DATA / "real/ppocr-cls.safetensors", "-o", self.folder / "x.zt"], check=True,
                       env=environment)
        said = subprocess.run([link], check=True, capture_output=True, text=True,
                              env={**environment, "LD_TRACE_LOADED_OBJECTS": "1"}).stdout
        for name in beside - {"ztstream"}:
            self.assertRegex(said, rf"{re.escape(name)} => \S*/lib/ztstream/", name)
        self.assertTrue((prefix / "share/doc/ztstream/licenses/libzstd-dev").stat().st_size)

    def check_sbom(self, document):
        self.assertEqual((document["spdxVersion"], document["SPDXID"]), ("SPDX-2.3", "SPDXRef-DOCUMENT"))
        self.assertEqual(document["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        identities = [package["SPDXID"] for package in document["packages"]]
        self.assertEqual(len(identities), len(set(identities)))
        for identity in identities:
            self.assertRegex(identity, r"^SPDXRef-[A-Za-z0-9.-]+$")
        relations = {(each["relationshipType"], each["relatedSpdxElement"]) for each in document["relationships"]}
        self.assertEqual({identity for _, identity in relations}, set(identities))
        self.assertLessEqual({("DESCRIBES", "SPDXRef-ztstream"), ("STATIC_LINK", "SPDXRef-libzstd-dev"),
                              ("STATIC_LINK", "SPDXRef-nlohmann-json3-dev"), ("DYNAMIC_LINK", "SPDXRef-zlib1g")}, relations)
        for package in document["packages"][1:]:
            said = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\n", package["name"]], check=True, capture_output=True,
                                  text=True).stdout
            self.assertEqual(package["versionInfo"], said.splitlines()[0])


if __name__ == "__main__":
    unittest.main()
