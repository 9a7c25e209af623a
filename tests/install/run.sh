#!/usr/bin/env bash
# Installs a build into an empty prefix, builds examples/exporter against it, and runs what it built.
#
#   tests/install/run.sh BUILD_FOLDER [ZTSTREAM]     ZTSTREAM: a program to verify the exporter's file with
set -euo pipefail
build=$(realpath "$1")
program=${2:+$(realpath "$2")}
here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$(dirname "$here")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
# Nothing installed may point back to the tree it was built from.
if grep -rIl -e "$build/" -e "$tree/" "$scratch/prefix"; then
  echo "the files above name the build or source folder" >&2
  exit 1
fi
cp -r "$tree/examples/exporter" "$scratch/exporter"
cache() { sed -n "s|^$1:[A-Z]*=||p" "$build/CMakeCache.txt"; }
cmake -S "$scratch/exporter" -B "$scratch/build" -G Ninja --log-level=WARNING -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_CXX_COMPILER="$(cache CMAKE_CXX_COMPILER)" -DCMAKE_BUILD_TYPE="$(cache CMAKE_BUILD_TYPE)" \
  -DCMAKE_CXX_FLAGS="$(cache CMAKE_CXX_FLAGS)"
cmake --build "$scratch/build"

cd "$scratch"
exporter=$scratch/build/exporter
vectors() { /usr/bin/python3 -B "$here/vectors.py" "$@"; }
vectors make good.fvecs
"$exporter" good.fvecs good.zt
vectors check good.zt
[ -z "$program" ] || "$program" verify good.zt

refuses() {  # refuses FILE MESSAGE: exits 4 with exactly that line and leaves no output
  local said status=0
  said=$("$exporter" "$1" bad.zt 2>&1) || status=$?
  [ "$status $said" = "4 $2" ] || { printf 'expected: 4 %s\nsaid:     %s %s\n' "$2" "$status" "$said" >&2; exit 1; }
  [ -z "$(find . -name '*bad.zt*')" ] || { echo "an output was left" >&2; exit 1; }
}
cp good.fvecs nan.fvecs
printf '\0\0\300\177' | dd of=nan.fvecs bs=1 seek=50004 conv=notrunc status=none
refuses nan.fvecs "nan.fvecs: tensor 'vectors': a value is NaN"
head -c 99999 good.fvecs >short.fvecs
refuses short.fvecs "short.fvecs: no whole number of rows"
cp good.fvecs mixed.fvecs
printf '\27' | dd of=mixed.fvecs bs=1 seek=50000 conv=notrunc status=none
refuses mixed.fvecs "mixed.fvecs: tensor 'vectors': row 500 has another dimension"
echo "install: the exporter was built against the installed package and wrote what it must"
