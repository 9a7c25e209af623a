"""make_release.py [--host FOLDER] BUILD_FOLDER OUT_FOLDER: the part of scripts/release.sh that needs more than a shell.

Writes ztstream-VERSION-linux-MACHINE.tar.gz, the program with the libraries beside it that not every system has, man page, completions and
licences, to be unpacked into any prefix; and ztstream-VERSION-linux-MACHINE.spdx.json, which lists what program and library are
linked with. --host is make_wheel.py's.
SOURCE_DATE_EPOCH is the time of all that is in them: the same build gives the same bytes.
"""
import datetime
import gzip
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import make_wheel
from make_wheel import ROOT

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
VERSION = re.search(r"project\(ztstream VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
# Where `cmake --install` puts them below a prefix (cmake/Install.cmake).
SHARED = {"docs/man/ztstream.1": "share/man/man1/ztstream.1", "completions/ztstream.bash": "share/bash-completion/completions/ztstream",
          "completions/_ztstream": "share/zsh/vendor-completions/_ztstream",
          "completions/ztstream.fish": "share/fish/vendor_completions.d/ztstream.fish"}


def program_files(build, folder):
    """{name: (bytes, whether it can be run)} below the prefix."""
    program = build / "bin/ztstream"
    libraries = make_wheel.needed(program)
    files = {"lib/ztstream/ztstream": (make_wheel.looks_beside_itself(make_wheel.stripped(program, folder)), True)}
    for name, path in libraries.items():
        files["lib/ztstream/" + name] = make_wheel.stripped(path, folder), True
    for source, name in SHARED.items():
        files[name] = (ROOT / source).read_bytes(), False
    for name, text in make_wheel.licenses(build, libraries.values()).items():
        files["share/doc/ztstream/licenses/" + name] = text, False
    return files


def write_program(build, path):
    """The archive: sorted, owned by root, of one time."""
    root = path.name.removesuffix(".tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        files = program_files(build, folder)
    files["bin/ztstream"] = "../lib/ztstream/ztstream", True
    with gzip.GzipFile(path, "wb", mtime=EPOCH) as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, (content, runs) in sorted(files.items()):
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.mtime, entry.mode = EPOCH, 0o755 if runs else 0o644
            entry.uname = entry.gname = "root"
            if isinstance(content, str):
                entry.type, entry.linkname, content = tarfile.SYMTYPE, content, b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def package(name, kind):
    """A Debian package, as SPDX has it, and what the program has to do with it."""
    asked = ["dpkg-query", *make_wheel.DPKG, "-W", "-f", "${Version} ${Architecture} ${source:Package} ${source:Version}\n", name]
    version, machine, source, source_version = make_wheel.output(*asked).splitlines()[0].split()
    identity = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)
    return {"SPDXID": identity, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "supplier": "Organization: Debian", "sourceInfo": f"built from the Debian source {source} {source_version}",
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={machine}"}]}, \
           {"spdxElementId": "SPDXRef-ztstream", "relationshipType": kind, "relatedSpdxElement": identity}


def write_sbom(build, path):
    """What the linker took, by the Debian packages that it is of."""
    kinds = {name: "DYNAMIC_LINK" for name in make_wheel.owners(make_wheel.linked(build)).values()}
    archives = [file for file in make_wheel.linked(build) if file.endswith(".a")]
    kinds |= {name: "STATIC_LINK" for name in make_wheel.owners(archives).values()}
    kinds |= {name: "STATIC_LINK" for name in make_wheel.HEADERS}
    packages, relations = zip(*(package(name, kind) for name, kind in sorted(kinds.items())))
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    own = {"SPDXID": "SPDXRef-ztstream", "name": "ztstream", "versionInfo": VERSION, "downloadLocation": "NOASSERTION",
           "filesAnalyzed": False, "sourceInfo": f"commit {commit}", "licenseConcluded": "Apache-2.0",
           "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION"}
    time = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"ztstream-{VERSION}",
                "documentNamespace": f"urn:ztstream:{VERSION}:{commit}:{make_wheel.machine(build / 'bin/ztstream')}",
                "creationInfo": {"created": time, "creators": ["Tool: make_release.py"]},
                "packages": [own, *packages],
                "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                                   "relatedSpdxElement": "SPDXRef-ztstream"}, *relations]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def main(build, out):
    name = f"ztstream-{VERSION}-linux-{make_wheel.machine(build / 'bin/ztstream')}"
    for path, write in ((out / f"{name}.tar.gz", write_program), (out / f"{name}.spdx.json", write_sbom)):
        write(build, path)
        print(path)


if __name__ == "__main__":
    arguments = make_wheel.set_host(sys.argv[1:])
    if len(arguments) != 2:
        sys.exit(__doc__.strip())
    main(pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1]))
