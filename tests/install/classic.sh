#!/usr/bin/env bash
# Installs libztstream of a build into an empty prefix, builds examples/classic against it with the system's own g++ and
# gcc, by make and by CMake, and runs what it built, and examples/classic/load.py.
#
#   tests/install/classic.sh BUILD_FOLDER [ZTSTREAM]     ZTSTREAM: a program to verify the exporters' files with
set -euo pipefail
. "$(dirname "$0")/common.sh"

# README builds the target ztstream and installs, so that target has to bring the library along.
ninja -C "$build" -t commands ztstream | grep -- '-o capi/libztstream\.so' >/dev/null ||
  { echo "building the target ztstream does not build libztstream, which is installed" >&2; exit 1; }
install_into_prefix c cdev
library=$(dirname "$(find "$scratch/prefix" -name libztstream.so.0)")
foreign=$(nm -D --defined-only "$library/libztstream.so.0" | awk '{ print $3 }' | grep -v '^zts_' | grep -v '^ZTSTREAM_0$' || true)
[ -z "$foreign" ] || { printf 'exported, and no part of the C interface:\n%s\n' "$foreign" >&2; exit 1; }
cp -r "$tree/examples/classic" "$scratch/classic"
cd "$scratch/classic"
exec "$here/classic_run.sh" "$library" "${program:-}"
