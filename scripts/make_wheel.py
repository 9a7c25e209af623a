"""make_wheel.py BUILD_FOLDER OUT_FOLDER: writes ztstream-VERSION-py3-none-manylinux_X_Y_MACHINE.whl, and prints its path.

The wheel holds the package, libztstream, the program, and the libraries that both need beyond libc, libm and libstdc++, all of
which look for each other beside themselves ($ORIGIN). A wheel is a zip archive with a table of its files' digests: nothing but
Python's own library is needed to write one, and strip(1).
"""
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What every system has (PEP 600).
SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so\.\d+$|ld(-linux|64\.)|linux-vdso")
# Debian packages of which headers alone are used.
HEADERS = ("libhwy-dev", "nlohmann-json3-dev")


def output(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def needed(binary, system=SYSTEM):
    """{name: path} of all libraries that a binary loads and not every system has."""
    found = dict(re.findall(r"^\s*(\S+) => (\S+)", output("ldd", str(binary)), re.M))
    missing = [name for name, path in found.items() if path == "not"]
    if missing:
        sys.exit(f"{binary} needs {', '.join(missing)}, which is not there")
    return {name: pathlib.Path(path).resolve() for name, path in found.items() if not system.search(name)}


def looks_beside_itself(data):
    """A binary with the run path $ORIGIN alone: CMake leaves room behind it, which would stand for the current folder, or
    adds where a library of the system lies outside of the usual folders."""
    data = re.sub(rb"\0\$ORIGIN:[^\0]*\0", lambda found: b"\0$ORIGIN" + b"\0" * (len(found[0]) - 8), data)
    if b"\0$ORIGIN\0" not in data:
        sys.exit("the binaries were not built with the run path $ORIGIN")
    return data


def stripped(path, folder):
    copy = pathlib.Path(folder) / path.name
    shutil.copyfile(path, copy)
    strip = shutil.which("strip") or shutil.which("llvm-strip-19")
    if strip:
        subprocess.run([strip, "--strip-unneeded", copy], check=True)
    return copy.read_bytes()


def owners(paths):
    """{path: the Debian package that it is of}, of those that one has."""
    if not shutil.which("dpkg-query"):
        return {}
    names = {name: str(path) for path in map(str, paths) for name in (path, path.replace("/usr/lib/", "/lib/", 1))}
    said = subprocess.run(["dpkg-query", "-S", *sorted(names)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout
    return {names[path]: package.partition(":")[0] for package, path in re.findall(r"^(.+?): (/.*)$", said, re.M)}


def linked(build):
    """The archives and libraries of the system that the linker took for the program and for the library."""
    said = output("ninja", "-C", str(build), "-t", "deps", "bin/ztstream", str((build / "capi/libztstream.so").resolve().relative_to(build)))
    return {os.path.realpath(file) for file in re.findall(r"^ +(/.*\.(?:a|so[.\d]*))$", said, re.M)}


def licenses(build, libraries):
    """{name in the wheel: text} of the copyright files that Debian has for what is inside."""
    out = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    archives = [file for file in linked(build) if file.endswith(".a")]
    for package in sorted({*HEADERS, *owners([*archives, *libraries]).values()}):
        text = pathlib.Path("/usr/share/doc") / package / "copyright"
        if text.is_file():
            out[package] = text.read_bytes()
    return out


def contents(build, folder):
    """{name: (bytes, whether it can be run)} of all that is installed."""
    files = {}
    for path in sorted((ROOT / "python/ztstream").rglob("*")):
        if path.is_file() and (path.suffix == ".py" or path.name == "py.typed"):
            files[str(path.relative_to(ROOT / "python"))] = path.read_bytes(), False
    library, program = build / "capi/libztstream.so.0", build / "bin/ztstream"
    libraries = {**needed(library), **needed(program)}
    files["ztstream/_lib/libztstream.so.0"] = looks_beside_itself(stripped(library.resolve(), folder)), True
    files["ztstream/_lib/ztstream"] = looks_beside_itself(stripped(program, folder)), True
    for name, path in sorted(libraries.items()):
        files["ztstream/_lib/" + name] = stripped(path, folder), True
    return files, libraries.values()


def metadata(version):
    return {
        "METADATA": f"""Metadata-Version: 2.1
Name: ztstream
Version: {version}
Summary: Checkpoints in numpy and torch: reads zTensor, safetensors, GGUF, PyTorch, npy, npz and ONNX; writes zTensor
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Description-Content-Type: text/markdown

""".encode() + (ROOT / "docs/PYTHON.md").read_bytes(),
        "entry_points.txt": b"[console_scripts]\nztstream = ztstream._program:main\n",
    }


def write(path, files, info):
    """Writes the archive; the same files give the same bytes."""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def put(name, data, runs=False):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            archive.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")

        for name, (data, runs) in files.items():
            put(name, data, runs)
        record.append(f"{info}/RECORD,,")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", (1980, 1, 1, 0, 0, 0)), "\n".join(record) + "\n")


def main(build, out):
    version = re.search(r"project\(ztstream VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
    tag = f"py3-none-manylinux_{libc}_{platform.machine()}"
    info = f"ztstream-{version}.dist-info"
    with tempfile.TemporaryDirectory() as folder:
        files, libraries = contents(build, folder)
    for name, text in metadata(version).items():
        files[f"{info}/{name}"] = text, False
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: make_wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
                              False)
    for name, text in licenses(build, libraries).items():
        files[f"{info}/licenses/{name}"] = text, False
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("ztstream-*.whl"):
        old.unlink()
    path = out / f"ztstream-{version}-{tag}.whl"
    write(path, files, info)
    print(path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
