#!/usr/bin/env bash
# Makes the Debian packages of a build and tries both in a clean Debian 12 root: the program alone converts a checkpoint,
# then the library builds an exporter. Prints how long each step took.
#
#   scripts/try-deb.sh FOLDER [BUILD_FOLDER] [--keep]     default build folder: build/release
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
for package in "$packages"/*.deb; do
  echo "$(basename "$package") $(stat -c %s "$package") bytes; needs $(dpkg-deb -f "$package" Depends)"
  copies+=(--copy "$package")
done

install='DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends >/dev/null'
scripts/try-clean-debian.sh "$root" "${copies[@]}" "${keep[@]}" \
  --run "apt-get -qq update && $install ../ztstream_*.deb" \
  --run 'dpkg -L ztstream | xargs -d "\n" ls -ld | grep -v ^d | awk "{ print \$NF }" && ztstream --version' \
  --run 'ztstream convert --zstd tests/data/real/ppocr-cls.safetensors -o /tmp/model.zt && ztstream verify /tmp/model.zt' \
  --run "$install ../ztstream-dev_*.deb" \
  --run scripts/setup.sh \
  --run 'scripts/walk.sh --installed'
