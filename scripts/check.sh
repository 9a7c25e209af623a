#!/usr/bin/env bash
# One of CI's longer checks. The release tests run them all under `ctest -C Ci` (scripts/test.sh --ci).
#
#   scripts/check.sh asan         every test but the style's under the address and undefined-behaviour sanitizers
#   scripts/check.sh tsan         the tests that use threads under the thread sanitizer
#   scripts/check.sh tidy [all]   clang-tidy over the sources of modules/, converters/ and cli/; the release build must
#                                 be up to date. all: interfaces, tests and examples too, which takes three times as long
#   scripts/check.sh fuzz [S]     each fuzz target for S seconds (default 10) from its seeds
#   scripts/check.sh asan+fuzz    both in one build: the fuzz preset has the same sanitizers
set -euo pipefail
cd "$(dirname "$0")/.."

stage=${1:-}
jobs=$(nproc)

build() {  # build PRESET [TARGET...]
  local preset=$1
  shift
  cmake --preset "$preset" --log-level=WARNING
  cmake --build --preset "$preset" ${1:+--target "$@"}
}

case "$stage" in
  asan)
    build asan test_programs
    exec ctest --preset asan --no-tests=error -LE 'style|ci' -j "$jobs"
    ;;
  tsan)
    build tsan thread_tests
    exec ctest --preset tsan --no-tests=error -L threads -j "$jobs"
    ;;
  tidy)
    command -v clang-tidy-19 >/dev/null || { echo "check.sh: clang-tidy-19 is missing: scripts/setup.sh --lint" >&2; exit 1; }
    [ -f build/release/compile_commands.json ] || { echo "check.sh: build the release preset first" >&2; exit 1; }
    # The module files they import lie in the build folder. Reading those is most of the time, some seconds a source.
    patterns=('modules/*.cc' 'converters/*.cc' 'cli/*.cc')
    [ "${2:-}" != all ] || patterns=('*.cc' '*.cppm' ':!bench/')  # bench: the macros of Google Benchmark
    git ls-files "${patterns[@]}" |
      while read -r file; do grep -q "/$file\"" build/release/compile_commands.json && echo "$file"; done |
      xargs -P "$jobs" -n 1 clang-tidy-19 -p build/release --quiet --warnings-as-errors='*' 2> >(grep -vE '^[0-9]+ warnings? (and|gen)' >&2)
    ;;
  fuzz)
    build fuzz fuzz_targets
    ZT_FUZZ_SECONDS=${2:-10} exec ctest --preset fuzz --no-tests=error -L fuzz -j "$jobs"
    ;;
  asan+fuzz)
    build fuzz test_programs
    ZT_FUZZ_SECONDS=10 exec ctest --preset fuzz --no-tests=error -LE 'style|ci' -j "$jobs"
    ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
