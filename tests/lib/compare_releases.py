"""Compares what scripts/make_wheel.py and make_release.py made for two hosts: the same form, whatever the machine.

    compare_releases.py HERE THERE      two folders, each with a wheel, an archive of the program and an SBOM

Names, tags, what is inside, which libraries and loader the binaries need and where they look for them, licences, and the
packages of the SBOM. Prints what differs; exit status 1 if anything does. scripts/try-host.sh runs it.
"""
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1", "s390x": "/lib/ld64.so.1"}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}


def binary(path, machine):
    said = subprocess.run(["readelf", "--wide", "-d", "-l", path], check=True, capture_output=True, text=True).stdout
    # Highway chooses among kernels, of which a host may have one alone; what libm rounds may be an instruction.
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said)) - {pathlib.PurePath(LOADERS[machine]).name, "libhwy.so.1", "libm.so.6"}
    loader = re.findall(r"program interpreter: (.*)\]", said)
    return {"needs": sorted(needed), "loads": ["its host's" if each == LOADERS[machine] else each for each in loader],
            "looks in": re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", said)}


def form(folder):
    """What is in a folder, by names in which the machine is M."""
    paths = sorted(folder.iterdir())
    machine = re.search(r"-linux-(\w+)\.tar\.gz$", next(path.name for path in paths if path.suffix == ".gz"))[1]
    found = {}
    for path in paths:
        name = path.name.replace(machine, "M")
        if path.suffix == ".json":
            document = json.loads(path.read_text())
            found[name] = sorted(package["name"] for package in document["packages"])  # a mirror may have newer versions of one host
            found[name + " of"] = {reference["referenceLocator"].rpartition("?arch=")[2] in (ARCHITECTURES[machine], "all")
                                   for package in document["packages"] for reference in package.get("externalRefs", ())}
            found[name + " relations"] = sorted((each["relationshipType"], each["relatedSpdxElement"]) for each in document["relationships"])
            continue
        with tempfile.TemporaryDirectory() as place:
            with (zipfile.ZipFile if path.suffix == ".whl" else tarfile.open)(path) as archive:
                archive.extractall(place)
            for file in sorted(pathlib.Path(place).rglob("*")):
                inside = f"{name}: {str(file.relative_to(place)).replace(machine, 'M')}"
                if file.name == "WHEEL":
                    found[inside] = file.read_text().replace(machine, "M")
                elif not file.is_file():
                    found[inside] = "a folder"
                elif file.read_bytes()[:4] != b"\x7fELF":
                    found[inside] = "a file"
                else:
                    found[inside] = binary(file, machine) if "ztstream" in file.name else "a library of others"
    return found


def main(here, there):
    here, there = form(pathlib.Path(here)), form(pathlib.Path(there))
    different = [f"  {name}: here {here.get(name)}, there {there.get(name)}"
                 for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)]
    print(*different, f"compared the form of {len(here)} parts of releases: {len(different)} differences", sep="\n")
    return 1 if different or not here else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
