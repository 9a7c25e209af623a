#!/usr/bin/env bash
# Installs a build into an empty prefix, builds examples/exporter against it, and runs what it built.
#
#   tests/install/run.sh BUILD_FOLDER [ZTSTREAM]     ZTSTREAM: a program to verify the exporter's file with
set -euo pipefail
. "$(dirname "$0")/common.sh"

install_into_prefix
cp -r "$tree/examples/exporter" "$scratch/exporter"
cache() { sed -n "s|^$1:[A-Z]*=||p" "$build/CMakeCache.txt"; }
configure() {  # configure SOURCE BUILD [OPTION...]
  cmake -S "$1" -B "$2" --log-level=WARNING -DCMAKE_PREFIX_PATH="$scratch/prefix" \
    -DCMAKE_BUILD_TYPE="$(cache CMAKE_BUILD_TYPE)" -DCMAKE_CXX_FLAGS="$(cache CMAKE_CXX_FLAGS)" "${@:3}"
}
clang=-DCMAKE_CXX_COMPILER=$(cache CMAKE_CXX_COMPILER)
configure "$scratch/exporter" "$scratch/build" -G Ninja "$clang"
cmake --build "$scratch/build"

# C++23 and GNU extensions, in a consumer that opens any file.
mkdir "$scratch/cxx23"
cat >"$scratch/cxx23/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.28)
project(consumer LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 23)
find_package(ztstream REQUIRED)
add_executable(consumer consumer.cc)
target_link_libraries(consumer PRIVATE ztstream::zt_open)
END
cat >"$scratch/cxx23/consumer.cc" <<'END'
import zt.open;
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const auto source = zt::Open(argv[i]);
    if (!source.ok() || (*source)->objects().empty()) return i;
  }
}
END
configure "$scratch/cxx23" "$scratch/cxx23/build" -G Ninja "$clang"
cmake --build "$scratch/cxx23/build"
"$scratch/cxx23/build/consumer" "$tree"/tests/data/gguf/*-00001-of-*.gguf "$tree/tests/data/npy"

# What cannot work is said by find_package, in a sentence that names it.
cannot() {  # cannot WORDS [OPTION...]
  local words=$1 said
  shift
  said=$(configure "$scratch/exporter" "$scratch/refused" "$@" 2>&1) && { echo "configured: $*" >&2; exit 1; }
  tr -s ' \n' ' ' <<<"$said" | grep -qF "ztstream's modules need $words" || { echo "$said" >&2; exit 1; }
  rm -rf "$scratch/refused"
}
cannot 'the generator Ninja (this is Unix Makefiles' -G 'Unix Makefiles' "$clang"
[ "$(g++ -dumpversion 2>/dev/null || echo 16)" -ge 16 ] || cannot 'clang 18 or newer, or GCC 16 or newer (this is GNU' -G Ninja -DCMAKE_CXX_COMPILER=g++ -DCMAKE_CXX_FLAGS=
cannot 'libstdc++ (CMAKE_CXX_FLAGS has -stdlib=libc++' -G Ninja "$clang" -DCMAKE_CXX_FLAGS=-stdlib=libc++ -DCMAKE_CXX_COMPILER_WORKS=ON

cd "$scratch"
exporter=$scratch/build/exporter
vectors() { /usr/bin/python3 -B "$here/vectors.py" "$@"; }
vectors make good.fvecs
"$exporter" good.fvecs good.zt
vectors check good.zt
[ -z "$program" ] || "$program" verify good.zt

refuses() {  # refuses FILE MESSAGE: exits 4 with exactly that line and leaves no output
  local said status=0
  said=$("$exporter" "$1" bad.zt 2>&1) || status=$?
  [ "$status $said" = "4 $2" ] || { printf 'expected: 4 %s\nsaid:     %s %s\n' "$2" "$status" "$said" >&2; exit 1; }
  [ -z "$(find . -name '*bad.zt*')" ] || { echo "an output was left" >&2; exit 1; }
}
cp good.fvecs nan.fvecs
printf '\0\0\300\177' | dd of=nan.fvecs bs=1 seek=50004 conv=notrunc status=none
refuses nan.fvecs "nan.fvecs: tensor 'vectors': a value is NaN"
head -c 99999 good.fvecs >short.fvecs
refuses short.fvecs "short.fvecs: no whole number of rows"
cp good.fvecs mixed.fvecs
printf '\27' | dd of=mixed.fvecs bs=1 seek=50000 conv=notrunc status=none
refuses mixed.fvecs "mixed.fvecs: tensor 'vectors': row 500 has another dimension"
echo "install: the exporter was built against the installed package and wrote what it must"
