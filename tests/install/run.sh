#!/usr/bin/env bash
# Installs a build into an empty prefix, builds the project in this folder against it, and runs what it built.
#
#   tests/install/run.sh BUILD_FOLDER [ZTSTREAM]     ZTSTREAM: a program to verify the exporter's file with
set -euo pipefail
build=$(realpath "$1")
program=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
# Nothing installed may point back to the tree it was built from.
if grep -rIl -e "$build" -e "$(dirname "$(dirname "$here")")" "$scratch/prefix"; then
  echo "the files above name the build or source folder" >&2
  exit 1
fi
cache() { sed -n "s|^$1:[A-Z]*=||p" "$build/CMakeCache.txt"; }
cmake -S "$here" -B "$scratch/build" -G Ninja --log-level=WARNING -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_CXX_COMPILER="$(cache CMAKE_CXX_COMPILER)" -DCMAKE_BUILD_TYPE="$(cache CMAKE_BUILD_TYPE)" \
  -DCMAKE_CXX_FLAGS="$(cache CMAKE_CXX_FLAGS)"
cmake --build "$scratch/build"
"$scratch/build/exporter" "$scratch/tied.zt"
/usr/bin/python3 -B "$here/../ztread.py" "$scratch/tied.zt"
[ -z "$program" ] || "$program" verify "$scratch/tied.zt"
