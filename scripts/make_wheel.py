"""make_wheel.py [--host FOLDER] BUILD_FOLDER OUT_FOLDER: writes ztstream-VERSION-py3-none-manylinux_X_Y_MACHINE.whl, prints its path.

--host: the build is for another host, with the sysroot that scripts/try-host.sh made in FOLDER. MACHINE is what the binaries are
for, X.Y the oldest glibc that has every symbol of theirs. The wheel holds the package, libztstream, the program, and the libraries that both need beyond libc, libm and libstdc++, all of
which look for each other beside themselves ($ORIGIN). A wheel is a zip archive with a table of its files' digests: nothing but
Python's own library is needed to write one, and strip(1).
"""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What every system has (PEP 600). libstdc++ and libgcc_s of the one that builds would need its glibc.
SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so\.\d+$|ld(-linux|64\.)|linux-vdso")
MACHINES = {22: "s390x", 62: "x86_64", 183: "aarch64"}  # by e_machine of ELF
# The root that the build was made with, and the options by which dpkg-query knows its packages.
HOST, DPKG = pathlib.Path("/"), ()
# Debian packages of which headers alone are used.
HEADERS = ("libhwy-dev", "nlohmann-json3-dev")


def output(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def set_host(words):
    """Takes `--host FOLDER` from the front of the arguments."""
    global HOST, DPKG
    if words[:1] == ["--host"] and len(words) > 1:
        folder = pathlib.Path(words[1]).resolve()
        HOST, DPKG = folder / "sysroot", ("--admindir", folder / "dpkg")
        del words[:2]
    return words


def machine(binary):
    """What `uname -m` says where a binary runs."""
    head = pathlib.Path(binary).read_bytes()[:20]
    return MACHINES[int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")]


def needed(binary):
    """{name: path} of all libraries that a binary loads and not every system has. Nothing is run: it may be of another host."""
    places = [HOST / place for place in (f"usr/lib/{machine(binary)}-linux-gnu", f"lib/{machine(binary)}-linux-gnu", "usr/lib64", "usr/lib")]
    found, look_into = {}, [binary]
    while look_into:
        said = output("readelf", "-d", look_into.pop())
        own = [HOST / place[1:] for path in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", said) for place in path.split(":") if place[:1] == "/"]
        for name in set(re.findall(r"\(NEEDED\).*\[(.*)\]", said)) - found.keys():
            if SYSTEM.search(name):
                continue
            path = next((place / name for place in (*own, *places) if (place / name).exists()), None)
            if not path:
                sys.exit(f"{binary} needs {name}, which is not there")
            found[name] = path.resolve()
            look_into.append(path)
    return found


def libc_of(binaries):
    """The oldest glibc, as (2, minor), that has every symbol of these."""
    said = "".join(output("readelf", "--wide", "--version-info", path) for path in binaries)
    return max((int(major), int(minor)) for major, minor in re.findall(r"\bGLIBC_(\d+)\.(\d+)", said))


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
    names = ["strip", "llvm-strip-19"] if HOST == pathlib.Path("/") else ["llvm-strip-19"]  # which knows every machine
    strip = next(filter(None, map(shutil.which, names)), None)
    if strip:
        subprocess.run([strip, "--strip-unneeded", copy], check=True)
    return copy.read_bytes()


def owners(paths):
    """{path: the Debian package that it is of}, of those that one has."""
    if not shutil.which("dpkg-query"):
        return {}
    there = {f"/{pathlib.Path(path).relative_to(HOST)}": str(path) for path in paths}
    names = {name: path for place, path in there.items() for name in (place, place.replace("/usr/lib/", "/lib/", 1))}
    said = subprocess.run(["dpkg-query", *DPKG, "-S", *sorted(names)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
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
        text = HOST / "usr/share/doc" / package / "copyright"
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
    return files, libraries.values(), libc_of([library, program, *libraries.values()])


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
    info = f"ztstream-{version}.dist-info"
    with tempfile.TemporaryDirectory() as folder:
        files, libraries, (major, minor) = contents(build, folder)
    tag = f"py3-none-manylinux_{major}_{minor}_{machine(build / 'bin/ztstream')}"
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
    arguments = set_host(sys.argv[1:])
    if len(arguments) != 2:
        sys.exit(__doc__.strip())
    main(pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1]))
