#!/usr/bin/env bash
# Builds the library and the program, and writes the Python wheel, which holds both:
# build/wheel/ztstream-VERSION-py3-none-manylinux_2_34_x86_64.whl on Debian 12: the oldest glibc that has what both use. It needs
# no network to be made or installed.
#
#   scripts/wheel.sh [--no-build] [BUILD_FOLDER]      default: build/release, configured and built if need be
set -euo pipefail
cd "$(dirname "$0")/.."
build=yes
[ "${1:-}" != --no-build ] || { build=no && shift; }
folder=${1:-build/release}
if [ $build = yes ]; then
  [ -e "$folder/build.ninja" ] || cmake --preset release >&2
  cmake --build "$folder" --target ztstream ztstream_c >&2
fi
exec python3 -B scripts/make_wheel.py "$folder" build/wheel
