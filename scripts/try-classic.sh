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
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
root=$1 build=build/release keep=()
shift
for arg in "$@"; do
  case "$arg" in --keep) keep=(--keep) ;; *) build=$arg ;; esac
done

packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
(cd "$build" && cpack -G DEB -B "$packages" >/dev/null)
copies=()
for package in "$packages"/libztstream*.deb; do
  echo "$(basename "$package") $(stat -c %s "$package") bytes; needs $(dpkg-deb -f "$package" Depends)"
  copies+=(--copy "$package")
done

install='DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends'
scripts/try-clean-debian.sh "$root" "${copies[@]}" "${keep[@]}" \
  --run "apt-get -qq update && $install g++ make cmake pkg-config python3-numpy ../libztstream*.deb >/dev/null" \
  --run 'g++ --version | head -n 1; cmake --version | head -n 1; ! command -v clang' \
  --run 'cp -r examples/classic /tmp && cd /tmp/classic && ~/ztstream/tests/install/classic_run.sh "$(dirname "$(dpkg -L libztstream0 | grep so.0$)")"'
