#!/usr/bin/env bash
# Tries libztstream in a clean Debian 12 root that has g++, make and Debian's own CMake, and no clang: packages of a
# build are installed there, examples/classic is built in C++17 and C, and loaded from Python.
#
#   scripts/try-classic.sh FOLDER [BUILD_FOLDER] [--keep]     default build folder: build/release
#
# FOLDER is made and removed as by scripts/try-clean-debian.sh, which says what is needed. Exit status: that of the first
# step that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh
try_packages 'libztstream*.deb' 2 8 "$@"
"${clean[@]}" \
  --run "apt-get -qq update && $apt_install g++ make cmake pkg-config python3-numpy ../libztstream*.deb" \
  --run 'g++ --version | head -n 1; cmake --version | head -n 1; ! command -v clang' \
  --run 'cp -r examples/classic /tmp && cd /tmp/classic && ~/ztstream/tests/install/classic_run.sh "$(dirname "$(dpkg -L libztstream0 | grep so.0$)")"'
