#!/bin/bash
# scripts/try-safetensors-suite.sh — safetensors' own tests, unmodified, against ztstream.safetensors_compat: each passes, or is
# left out with a reason.
#
#   scripts/try-safetensors-suite.sh FOLDER    FOLDER: bindings/python of a checkout of safetensors 0.8
#
# Needs python3 with numpy and torch (Debian: python3-numpy, python3-torch, python3-fsspec), and the release build, or
# ZTSTREAM_LIBRARY. Modules whose framework is not installed (flax, mlx, paddle, tensorflow) are left out.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
suite=$(cd "${1:?the folder bindings/python of a checkout of safetensors}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$suite/tests" "$work/tests"
mkdir -p "$work/tests/data"
cd "$work"
export PYTHONPATH=$root/python ZTSTREAM_LIBRARY=${ZTSTREAM_LIBRARY:-$root/build/release/capi/libztstream.so.0}
exec python3 -B - <<'END'
import importlib, pathlib, sys, traceback, types, unittest

from ztstream import safetensors_compat


class Ours:
    """`import safetensors` and what is in it are the names of ztstream."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "safetensors":
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        return importlib.import_module("ztstream.safetensors_compat" + spec.name[len("safetensors"):])

    def exec_module(self, module):
        assert module.__file__.startswith(safetensors_compat.__path__[0])


sys.meta_path.insert(0, Ours())
sys.path.insert(0, "tests")
suite, left_out = unittest.TestSuite(), []
for path in sorted(pathlib.Path("tests").glob("test_*.py")):
    try:
        module = importlib.import_module(path.stem)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] in ("safetensors", "ztstream"):
            raise
        left_out.append(f"{path.name}: {error.name} is not installed")
        continue
    suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    for name, function in vars(module).items():  # pytest's kind
        if name.startswith("test_") and isinstance(function, types.FunctionType):
            suite.addTest(unittest.FunctionTestCase(function, description=f"{path.stem}.{name}"))
result = unittest.TextTestRunner(verbosity=1).run(suite)
for test, why in result.skipped:
    left_out.append(f"{test.id()}: {why}")
print(f"{result.testsRun - len(result.skipped)} tests ran, {len(result.failures) + len(result.errors)} failed; left out:")
print(*left_out, sep="\n")
sys.exit(not result.wasSuccessful())
END
