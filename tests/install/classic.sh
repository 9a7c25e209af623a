#!/usr/bin/env bash
# Installs libztstream of a build into an empty prefix, builds examples/classic against it with the system's own g++ and
# gcc, by make and by CMake, and runs what it built, and examples/classic/load.py.
#
#   tests/install/classic.sh BUILD_FOLDER [ZTSTREAM]     ZTSTREAM: a program to verify the exporters' files with
set -euo pipefail
. "$(dirname "$0")/common.sh"

# The program's target does not build the library; README must, before it installs both.
[ "$(grep -B1 '^cmake --install' "$tree/README.md" | grep -c -- '--target ztstream ztstream_c ')" = 1 ] ||
  { echo "README installs libztstream without building it" >&2; exit 1; }
install_into_prefix c cdev
library=$(dirname "$(find "$scratch/prefix" -name libztstream.so.0)")
foreign=$(nm -D --defined-only "$library/libztstream.so.0" | awk '{ print $3 }' | grep -v '^zts_' | grep -v '^ZTSTREAM_0$' || true)
[ -z "$foreign" ] || { printf 'exported, and no part of the C interface:\n%s\n' "$foreign" >&2; exit 1; }
cp -r "$tree/examples/classic" "$scratch/classic"
cd "$scratch/classic"
exec "$here/classic_run.sh" "$library" "${program:-}"
