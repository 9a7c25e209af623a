#!/usr/bin/env bash
# Cross-builds ztstream for another kind of host, runs its tests under qemu-user, and compares the files written
# there with the ones that the release build writes here, byte for byte.
#
#   scripts/try-host.sh s390x|arm64 [FOLDER] [--short]     default folder: build/host-ARCH
#
# s390x is big-endian. --short builds the program and the tests of kernels alone, and compares each tenth job of every
# format. FOLDER gets a sysroot, Debian's packages for ARCH unpacked (this machine's packages and apt
# state are left alone), and the build. Needs qemu-user-static, what scripts/setup.sh installs, and build/release.
# Exit status: 0 only where everything was there, was built, passed and came out equal.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/try-common.sh
targets=(module_tests fuzz_targets ztstream) select=(-L "module|seeds") every=1 words=()
for word in "$@"; do
  case "$word" in
    --short)
      kernels=(planes_test compress_test digest_test transform_bytes_test transform_convert_test stats_test dequant_test)
      targets=(ztstream "${kernels[@]}") select=(-R "^($(IFS='|' && echo "${kernels[*]}"))\$") every=10
      ;;
    *) words+=("$word") ;;
  esac
done
set -- "${words[@]}"
case "${1:-}" in
  s390x) arch=$1 processor=s390x qemu=qemu-s390x-static ;;
  arm64) arch=$1 processor=aarch64 qemu=qemu-aarch64-static ;;
  *) usage 2 10; exit 2 ;;
esac
triple=$processor-linux-gnu
folder=${2:-build/host-$arch}
native=build/release/bin/ztstream
command -v "$qemu" >/dev/null || die "$qemu is missing: apt-get install qemu-user-static"
[ -x "$native" ] || die "build the release preset first: $native is what the files are compared with"
mkdir -p "$folder"
folder=$(realpath "$folder")
sysroot=$folder/sysroot

# The libraries of scripts/setup.sh, as ARCH has them.
packages=(
  libstdc++-12-dev libzstd-dev libhwy-dev libabsl-dev libcbor-dev libsimdjson-dev libssl-dev libxxhash-dev libutf8proc-dev zlib1g-dev
  libdeflate-dev libhdf5-dev libaec-dev libcurl4-openssl-dev
  nlohmann-json3-dev libre2-dev libgtest-dev libgmock-dev libbenchmark-dev
)

# An apt of its own below FOLDER, which believes that it is on ARCH and that nothing is installed.
make_sysroot() {
  local apt=$folder/apt mirror suite=bookworm
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  mirror=$(debian_mirror "$suite")
  [ -n "$mirror" ] || die "this machine's apt has no source for $suite"
  echo "deb [arch=$arch signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
  : >"$apt/status"
  local options=(
    -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o APT::Sandbox::User=root -o Acquire::Languages=none
    -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt"
    -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
  )
  apt-get "${options[@]}" -qq update
  local package missing=()
  for package in "${packages[@]}"; do
    apt-cache "${options[@]}" show "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] || die "Debian has no such package for $arch, so nothing is built or tested there: ${missing[*]}"
  apt-get "${options[@]}" -qq -y --no-install-recommends --download-only install "${packages[@]}" >/dev/null

  rm -rf "$sysroot"
  mkdir -p "$sysroot/usr/lib"
  ln -s usr/lib "$sysroot/lib"
  local deb link target
  for deb in "$apt"/archives/*.deb; do dpkg -x "$deb" "$sysroot"; done
  # Absolute links would lead out of the sysroot.
  find "$sysroot" -type l -lname '/*' -print | while read -r link; do
    target=$(readlink "$link")
    ln -sfn "$(realpath -m -s --relative-to "$(dirname "$link")" "$sysroot$target")" "$link"
  done
  touch "$folder/sysroot.done"
}
[ -e "$folder/sysroot.done" ] || make_sysroot

start=$SECONDS
export PKG_CONFIG_SYSROOT_DIR=$sysroot PKG_CONFIG_PATH=
export PKG_CONFIG_LIBDIR=$sysroot/usr/lib/$triple/pkgconfig:$sysroot/usr/share/pkgconfig:$sysroot/usr/lib/pkgconfig
cmake --preset release -B "$folder/build" --log-level=WARNING \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$processor -DCMAKE_SYSROOT="$sysroot" \
  -DCMAKE_C_COMPILER_TARGET=$triple -DCMAKE_CXX_COMPILER_TARGET=$triple \
  -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY \
  -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY \
  -DCMAKE_CROSSCOMPILING_EMULATOR="$qemu;-L;$sysroot"
cmake --build "$folder/build" --target "${targets[@]}"
built=$SECONDS

status=0
ctest --test-dir "$folder/build" --output-on-failure --no-tests=error "${select[@]}" -j "$(nproc)" || status=1
tested=$SECONDS
foreign=$folder/ztstream
printf '#!/bin/sh\nexec %s -L "%s" "%s" "$@"\n' "$qemu" "$sysroot" "$folder/build/bin/ztstream" >"$foreign"
chmod +x "$foreign"
file -b "$folder/build/bin/ztstream" 2>/dev/null | cut -d, -f1-2 || true
/usr/bin/python3 -B tests/lib/worker_calls.py "$folder/build/bin/ztstream" "$qemu" -L "$sysroot" || status=1
/usr/bin/python3 -B tests/lib/compare_hosts.py "$native" "$foreign" --every "$every" || status=1
echo "try-host.sh: $arch: built in $((built - start)) s, tested in $((tested - built)) s, compared in $((SECONDS - tested)) s:" \
  "$([ $status = 0 ] && echo "all good" || echo FAILED)"
exit $status
