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
. scripts/try-common.sh
try_packages '*.deb' 2 8 "$@"
"${clean[@]}" \
  --run "apt-get -qq update && $apt_install ../ztstream_*.deb" \
  --run 'dpkg -L ztstream | xargs -d "\n" ls -ld | grep -v ^d | awk "{ print \$NF }" && ztstream --version' \
  --run 'ztstream convert --zstd tests/data/real/ppocr-cls.safetensors -o /tmp/model.zt && ztstream verify /tmp/model.zt' \
  --run "$apt_install ../ztstream-dev_*.deb" \
  --run scripts/setup.sh \
  --run 'scripts/walk.sh --installed'
