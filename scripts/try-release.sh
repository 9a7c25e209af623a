#!/usr/bin/env bash
# Makes a release of what is built, twice, and compares the bytes; then, in a clean Debian 12 root without a compiler, converts
# a checkpoint by each way that README has for that: the archive of the program, the package, the wheel.
#
#   scripts/try-release.sh FOLDER [BUILD_FOLDER]     default build folder: build/release
#
# FOLDER is made and removed as by scripts/try-clean-debian.sh, which says what is needed. Exit status: that of the first
# step that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh
[ $# -ge 1 ] || { usage 2 8; exit 2; }

first=$(mktemp)
trap 'rm -f "$first"' EXIT
scripts/release.sh --no-build "${@:2}" >"$first"
scripts/release.sh --no-build "${@:2}" | diff "$first" - || die "two runs gave different bytes"
cat "$first"

try() { echo "rm -f /tmp/m.zt && $1 convert --zstd=planes tests/data/real/ppocr-cls.safetensors -o /tmp/m.zt && $1 verify /tmp/m.zt"; }
dist=build/dist
scripts/try-clean-debian.sh "$1" --copy "$dist"/ztstream-*-linux-*.tar.gz --copy "$dist"/ztstream_*.deb --copy "$dist"/*.whl \
  --run "mkdir /opt/zt && tar -xzf ../ztstream-*-linux-*.tar.gz --strip-components=1 -C /opt/zt && $(try /opt/zt/bin/ztstream)" \
  --run "apt-get -qq update && $apt_install python3-venv ../ztstream_*.deb && $(try ztstream)" \
  --run "python3 -m venv /opt/env && /opt/env/bin/pip -q install --no-index ../*.whl && $(try /opt/env/bin/ztstream)"
