#!/usr/bin/env bash
# Sets up, builds the release preset and runs every test; ends with ctest's summary and its exit status.
#
#   scripts/test.sh [--ci]      --ci runs the longer checks too: sanitizers, clang-tidy, fuzzing, the reference
set -euo pipefail
cd "$(dirname "$0")/.."

setup=() select=()
for arg in "$@"; do
  case "$arg" in
    --ci) setup=(--lint) select=(-C Ci) ;;
    -h|--help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option $arg" >&2; exit 2 ;;
  esac
done

scripts/setup.sh "${setup[@]}"
cmake --preset release --log-level=WARNING
cmake --build --preset release
exec ctest --preset release --no-tests=error -j "$(nproc)" "${select[@]}"
