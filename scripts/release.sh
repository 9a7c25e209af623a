#!/usr/bin/env bash
# Makes what a release page holds for the host it runs on, in build/dist: the source, the Debian packages, the Python wheel, the
# program for any Linux with the wheel's glibc or later, an SBOM (SPDX), and SHA256SUMS. The same build of the same commit gives the same bytes.
#
#   scripts/release.sh [--no-build] [BUILD_FOLDER]      default: build/release, configured and built if need be
#
# Debian 12 is where releases are made, natively on x86-64 and on aarch64. Everything has to be committed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh

build=yes
[ "${1:-}" != --no-build ] || { build=no && shift; }
case "${1:-}" in -*) usage 2 7; exit 2 ;; esac
folder=${1:-build/release} out=$PWD/build/dist
git diff --quiet HEAD || die "the working tree differs from the last commit; commit first"
if [ $build = yes ]; then
  [ -e "$folder/build.ninja" ] || cmake --preset release >&2
  cmake --build "$folder" --target ztstream ztstream_c >&2
fi

version=$(sed -n 's/^project(ztstream VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
rm -rf "$out"
mkdir -p "$out"
git archive --format=tar --prefix="ztstream-$version/" HEAD | gzip -9n >"$out/ztstream-$version.tar.gz"
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
(cd "$folder" && cpack -G DEB -B "$packages" >/dev/null)
cp "$packages"/*.deb "$out"
python3 -B scripts/make_wheel.py "$folder" "$out" >/dev/null
python3 -B scripts/make_release.py "$folder" "$out" >/dev/null
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
