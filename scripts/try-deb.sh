#!/usr/bin/env bash
# Makes the Debian packages of a build, installs ztstream in a clean Debian 12 root and converts a checkpoint there.
#
#   scripts/try-deb.sh ROOT [BUILD_FOLDER]     default build folder: build/release
#
# ROOT is a folder made by debootstrap; one that is empty or missing is made with the mirror of this machine's own apt.
# Needs root and debootstrap. Exit status: that of the first step that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
[ "$(id -u)" = 0 ] || { echo "try-deb.sh: needs root (debootstrap, chroot)" >&2; exit 1; }
mkdir -p "$1"
root=$(realpath "$1")
build=$(realpath "${2:-build/release}")

if [ -z "$(ls -A "$root")" ]; then
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
  include=()
  case "$mirror" in https:*) include=(--include=ca-certificates) ;; esac
  debootstrap --variant=minbase "${include[@]}" bookworm "$root" "$mirror" >/dev/null
fi
# What the machine's own apt needs to reach its mirror holds inside as well.
apt-config dump | grep -E '^Acquire::(http|https|Check-)[^ ]* "[^"]' >"$root/etc/apt/apt.conf.d/90outer" || true
[ ! -e /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"

packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
(cd "$build" && cpack -G DEB -B "$packages" >/dev/null)
for package in "$packages"/*.deb; do
  echo "$(basename "$package") $(stat -c %s "$package") bytes; needs $(dpkg-deb -f "$package" Depends)"
done
rm -rf "$root/tmp/ztstream"
mkdir -p "$root/tmp/ztstream"
cp "$packages"/ztstream_*.deb tests/data/real/ppocr-cls.safetensors "$root/tmp/ztstream"

inside() {
  chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euc "cd /tmp/ztstream && $1"
}
start=$SECONDS
inside 'apt-get -qq update && apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends ./ztstream_*.deb >/dev/null'
echo "installed in $((SECONDS - start)) s"
inside 'dpkg -L ztstream | xargs -d "\n" ls -ld | grep -v ^d | awk "{ print \$NF }"'
inside 'ztstream --version'
inside 'ztstream convert -f --zstd ppocr-cls.safetensors -o ppocr-cls.zt && ztstream verify ppocr-cls.zt'
