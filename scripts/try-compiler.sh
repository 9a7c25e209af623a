#!/usr/bin/env bash
# Builds ztstream with another compiler, in build/NAME, and runs the tests: with clang all of them, with GCC those of the
# framework (`zt`) and of what is written with it.
#
#   scripts/try-compiler.sh clang-21|gcc-16
#
# Installs what scripts/setup.sh does, and the compiler; for Debian sid, as
# `scripts/try-clean-debian.sh FOLDER --suite sid --run 'scripts/try-compiler.sh gcc-16'` runs it.
# Exit status: 0 only if everything was built and passed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh

name=${1:-}
version=${name##*-}
case "$name" in
  clang-[0-9]*) packages=("clang-$version" "clang-tools-$version" "lld-$version") compilers=("clang-$version" "clang++-$version") ;;
  gcc-[0-9]*) packages=("g++-$version" "lld") compilers=("gcc-$version" "g++-$version") ;;
  *) usage 2 10; exit 2 ;;
esac
scripts/setup.sh
apt-get install -y -qq make "${packages[@]}" >/dev/null
options=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_LINKER_TYPE=LLD -DZT_DEVELOPER=ON
         -DCMAKE_C_COMPILER="${compilers[0]}" -DCMAKE_CXX_COMPILER="${compilers[1]}")
[[ $name == gcc-* ]] || options+=(-DCMAKE_CXX_COMPILER_CLANG_SCAN_DEPS="clang-scan-deps-$version")
cmake -B "build/$name" "${options[@]}" >/dev/null
if [[ $name == clang-* ]]; then
  cmake --build "build/$name"
  ctest --test-dir "build/$name" -j "$(nproc)" --output-on-failure
  exit
fi
tests=(core sink pipeline numbered source fault reader digest compress codec planes transform_bytes transform_convert stats format
       dequant quant_kernel writer random_writer export library out_of_memory)
examples=(write_checkpoint custom_exporter optimizer_state read_checkpoint)
cmake --build "build/$name" --target "${tests[@]/%/_test}" "${examples[@]}"
for test in "${tests[@]}"; do
  "build/$name/bin/${test}_test" --gtest_brief=1
done
"build/$name/bin/custom_exporter" > "build/$name/exported.zt"
"build/$name/bin/write_checkpoint" "build/$name/written.zt"
"build/$name/bin/read_checkpoint" "build/$name/written.zt"
echo "$name: ${#tests[@]} programs of tests, ${#examples[@]} examples"
