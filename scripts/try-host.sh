#!/usr/bin/env bash
# Cross-builds ztstream for another kind of host, runs its tests under qemu-user, and compares the files written
# there with the ones that the release build writes here, byte for byte.
#
#   scripts/try-host.sh s390x|arm64 [FOLDER] [--short|--sve]     default folder: build/host-ARCH
#
# s390x is big-endian. --short builds the program and the tests of kernels alone, and compares each tenth job of every
# format. --sve (arm64) runs the tests of kernels alone, with the Highway of Debian 13, whose kernels use SVE and SVE2: once on
# a processor without, and with vectors of 128, 256 and 512 bits. FOLDER gets a sysroot, Debian's packages for ARCH unpacked (this machine's packages and apt
# state are left alone), the build, and in dist the wheel and the archive for that host, which have the form of this one's.
# Needs qemu-user-static, what scripts/setup.sh installs, and build/release.
# Exit status: 0 only where everything was there, was built, passed and came out equal; 77 where it cannot be tried, and why.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/try-common.sh
kernels=(planes_test delta_test compress_test digest_test transform_bytes_test transform_convert_test stats_test dequant_test quant_kernel_test)
targets=(module_tests fuzz_targets ztstream ztstream_c) every=1 suite=bookworm words=()
for word in "$@"; do
  case "$word" in
    --short) targets=(ztstream ztstream_c "${kernels[@]}") every=10 ;;
    --sve) targets=("${kernels[@]}") suite=trixie ;;
    *) words+=("$word") ;;
  esac
done
set -- "${words[@]}"
case "${1:-}" in
  s390x) arch=$1 processor=s390x qemu=qemu-s390x-static ;;
  arm64) arch=$1 processor=aarch64 qemu=qemu-aarch64-static ;;
  *) usage 2 13; exit 2 ;;
esac
triple=$processor-linux-gnu
folder=${2:-build/host-$arch$([ $suite = bookworm ] || echo -sve)}
native=build/release/bin/ztstream
command -v "$qemu" >/dev/null || code=77 die "$qemu is missing: apt-get install qemu-user-static"
[ $suite = bookworm ] || [ $arch = arm64 ] || code=2 die "--sve is of arm64"
[ $suite = trixie ] || [ -x "$native" ] || die "build the release preset first: $native is what the files are compared with"
mkdir -p "$folder"
folder=$(realpath "$folder")
sysroot=$folder/sysroot

# The libraries of scripts/setup.sh, as ARCH has them.
packages=(
  libstdc++-$([ $suite = trixie ] && echo 14 || echo 12)-dev libzstd-dev libhwy-dev libabsl-dev libcbor-dev libsimdjson-dev libssl-dev libxxhash-dev libutf8proc-dev zlib1g-dev
  libdeflate-dev libhdf5-dev libaec-dev libcurl4-openssl-dev
  nlohmann-json3-dev libre2-dev libgtest-dev libgmock-dev libbenchmark-dev
)

# Debian's packages for ARCH, by an apt of its own below FOLDER.
make_sysroot() {
  local apt=$folder/apt mirror options
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  mirror=$(debian_mirror "$suite")
  [ -n "$mirror" ] || code=77 die "this machine's apt has no source for $suite"
  foreign_apt "$apt" "$arch" "$suite" "$mirror"
  apt-get "${options[@]}" -qq -o APT::Update::Error-Mode=any update || code=77 die "$mirror does not answer"
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

# What dpkg-query --admindir asks: who owns a file of the sysroot. scripts/make_wheel.py --host needs it.
make_database() {
  local deb name
  rm -rf "$folder/dpkg"
  mkdir -p "$folder/dpkg/info"
  echo 1 >"$folder/dpkg/info/format"
  for deb in "$folder"/apt/archives/*.deb; do
    dpkg-deb -f "$deb" >"$folder/dpkg/control"
    sed '/^Package:/a Status: install ok installed' "$folder/dpkg/control" && echo
    name=$(sed -n 's/^Package: //p' "$folder/dpkg/control")
    ! grep -q '^Multi-Arch: same' "$folder/dpkg/control" || name=$name:$arch
    dpkg-deb --fsys-tarfile "$deb" | tar -t | sed -e 's,^\.,,' -e 's,/$,,' -e 's,^$,/.,' >"$folder/dpkg/info/$name.list"
  done >"$folder/dpkg/status.new"
  mv "$folder/dpkg/status.new" "$folder/dpkg/status"
}
[ -e "$folder/dpkg/status" ] || make_database

start=$SECONDS
# summary SENTENCE: the last line. Minutes of processor tell what it costs on a machine that others use, too.
summary() {
  times >"$folder/times"
  echo "try-host.sh: $arch: built in $((built - start)) s, $1, by $(awk 'NR == 2 { gsub("[ms]", " "); printf "%.0f", $1 + $3 + ($2 + $4) / 60 }' \
    "$folder/times") minutes of processor: $([ $status = 0 ] && echo "all good" || echo FAILED)"
  exit $status
}
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
# run_kernels: the tests of kernels, each in four parts, so that no long one is the last.
run_kernels() {
  printf '%s\n' "${kernels[@]/%/ 0}" "${kernels[@]/%/ 1}" "${kernels[@]/%/ 2}" "${kernels[@]/%/ 3}" |
    GTEST_TOTAL_SHARDS=4 xargs -P "$(nproc)" -n 2 bash -c 'said=$(GTEST_SHARD_INDEX=$3 "$0" -L "$1/sysroot" "$1/build/bin/$2" --gtest_brief=1 2>&1) ||
      { printf "%s\n%s failed\n" "$said" "$2" && exit 1; }' "$qemu" "$folder"
}
if [ $suite = trixie ]; then
  for vectors in none 128 256 512; do
    # Debian 13's functions sign what they return to, which QEMU does slowly as processors do it.
    cpu=max,pauth-impdef=on,sve=off start_of=$SECONDS
    [ $vectors = none ] || cpu=max,pauth-impdef=on,sve-max-vq=$((vectors / 128))
    QEMU_CPU=$cpu run_kernels || status=1
    echo "SVE and SVE2 of $vectors bits: ${#kernels[@]} tests in $((SECONDS - start_of)) s"
  done
  summary "tested in $((SECONDS - built)) s"
elif [ $every = 10 ]; then
  run_kernels || status=1
else
  ctest --test-dir "$folder/build" --output-on-failure --no-tests=error -L "module|seeds" -j "$(nproc)" || status=1
fi
tested=$SECONDS
foreign=$folder/ztstream
printf '#!/bin/sh\nexec %s -L "%s" "%s" "$@"\n' "$qemu" "$sysroot" "$folder/build/bin/ztstream" >"$foreign"
chmod +x "$foreign"
file -b "$folder/build/bin/ztstream" 2>/dev/null | cut -d, -f1-2 || true
rm -rf "$folder/dist" "$folder/dist-here"
mkdir "$folder/dist" "$folder/dist-here"
for make in make_wheel make_release; do
  SOURCE_DATE_EPOCH=0 /usr/bin/python3 -B scripts/$make.py build/release "$folder/dist-here" >/dev/null
  SOURCE_DATE_EPOCH=0 /usr/bin/python3 -B scripts/$make.py --host "$folder" "$folder/build" "$folder/dist"
done
/usr/bin/python3 -B tests/lib/compare_releases.py "$folder/dist-here" "$folder/dist" || status=1
/usr/bin/python3 -B tests/lib/worker_calls.py "$folder/build/bin/ztstream" "$qemu" -L "$sysroot" || status=1
/usr/bin/python3 -B tests/lib/compare_hosts.py "$native" "$foreign" --every "$every" || status=1
summary "tested in $((tested - built)) s, compared in $((SECONDS - tested)) s"
