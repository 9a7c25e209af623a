#!/usr/bin/env bash
# Walks README's way for somebody new (set up, build, install, convert, write an exporter) and prints how long each step took.
#
#   scripts/walk.sh [--installed]
#
# Builds in build/walk and installs into build/walk/prefix, both new. The exporter is examples/exporter, copied out of the
# tree and built against the installed package. --installed leaves out the first steps and uses the package that the
# system has, such as the two .deb files. Needs what scripts/setup.sh installs, which is its first step.
#
# `scripts/try-clean-debian.sh FOLDER --run scripts/walk.sh` walks it in a clean Debian 12 root. Exit status: that of the
# first step that failed.
set -euo pipefail
cd "$(dirname "$0")/.."

installed=false
case "${1:-}" in
  '') ;;
  --installed) installed=true ;;
  -h|--help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "walk.sh: unknown option $1" >&2; exit 2 ;;
esac
rm -rf build/walk
mkdir -p build/walk/exporter
walk=$PWD/build/walk
prefix=/usr
$installed || prefix=$walk/prefix
program=$prefix/bin/ztstream
table=$walk/times

TIMEFORMAT='%R %U'
step() {  # step NAME COMMAND...: runs it and notes how long it took, and the processor time it used
  local name=$1 status=0
  shift
  echo "=== $name" >&2
  { time "$@" 2>&3; } 3>&2 2>"$walk/time" || status=$?
  printf '%9.1f %9.1f   %s\n' $(cat "$walk/time") "$name" >>"$table"
  [ $status = 0 ] || { echo "walk.sh: failed: $name" >&2; cat "$table"; exit $status; }
}

if ! $installed; then
  step "scripts/setup.sh: packages" scripts/setup.sh
  step "configure" cmake --preset release -B build/walk/build --log-level=WARNING
  step "build program and library" cmake --build build/walk/build --target ztstream ztstream_c
  step "cmake --install" cmake --install build/walk/build --prefix "$prefix"
fi
step "convert a checkpoint" "$program" convert tests/data/real/ppocr-cls.safetensors -o "$walk/model.zt"
step "inspect it" "$program" inspect "$walk/model.zt"
step "verify it" "$program" verify "$walk/model.zt"

cp examples/exporter/* "$walk/exporter"
tests/install/vectors.py make "$walk/vectors.fvecs"
cd "$walk/exporter"
step "exporter: configure with find_package(ztstream)" cmake -G Ninja -B build --log-level=WARNING \
  -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix"
step "exporter: build" cmake --build build
touch exporter.cc
step "exporter: build after a change" cmake --build build
step "exporter: run" build/exporter "$walk/vectors.fvecs" "$walk/vectors.zt"
step "exporter: verify its file" "$program" verify "$walk/vectors.zt"
cd ../../..
step "exporter: compare with what it must be" tests/install/vectors.py check "$walk/vectors.zt"

echo "--- seconds, of them in the processors ($(nproc)), step"
cat "$table"
