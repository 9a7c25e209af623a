#!/usr/bin/env bash
# Runs the tests in the coverage preset's build and prints which share of the lines of modules/ they execute.
#
#   scripts/coverage.sh [--report] [FOLDER]    FOLDER: modules (default) or another below the root
#
# --report prints the table again without building or running. The uncovered lines go to build/coverage/uncovered.txt.
# Exit status 1 where a test fails, or where less than 90 % of the lines are covered.
set -euo pipefail
cd "$(dirname "$0")/.."

least=90 run=true folder=modules
for arg in "$@"; do
  case "$arg" in
    --report) run=false ;;
    -*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
    *) folder=$arg ;;
  esac
done
build=build/coverage
profiles=$PWD/$build/profiles

if $run; then
  cmake --preset coverage --log-level=WARNING
  cmake --build --preset coverage --target test_programs
  rm -rf "$profiles"
  # %m: one file a program, merged as its processes end. The faults of e2e_fault_test would hit the writing of it.
  LLVM_PROFILE_FILE="$profiles/%m.profraw" ctest --preset coverage --no-tests=error -LE 'style|ci' -E e2e_fault_test \
    -j "$(nproc)"
  llvm-profdata-19 merge -sparse "$profiles"/*.profraw -o $build/all.profdata
fi

programs=()
for program in $build/bin/*; do
  [ -f "$program" ] && [ -x "$program" ] && programs+=(-object "$program")
done
llvm-cov-19 report "${programs[@]}" -instr-profile=$build/all.profdata -show-region-summary=false \
  -show-branch-summary=false -sources "$folder" | awk '
    /^Filename/ { $0 = sprintf("%-42s %7s %7s %8s", "file", "lines", "missed", "covered") ; print; next }
    /^(---|$)/ { next }
    /^[^ ]/ && NF >= 7 { printf "%-42s %7d %7d %8s\n", $1, $(NF - 2), $(NF - 1), $NF; total = $NF }'
llvm-cov-19 show "${programs[@]}" -instr-profile=$build/all.profdata -show-instantiations=false -sources "$folder" |
  awk '/^\// { file = $0 } /^ *[0-9]+\| *0\|/ { print file $0 }' >$build/uncovered.txt
llvm-cov-19 export "${programs[@]}" -instr-profile=$build/all.profdata -summary-only -sources "$folder" |
  python3 -c '
import json, sys
lines = json.load(sys.stdin)["data"][0]["totals"]["lines"]
print("%d of %d lines of %s covered: %.2f %%; at least %s %% wanted"
      % (lines["covered"], lines["count"], sys.argv[1], lines["percent"], sys.argv[2]))
sys.exit(lines["percent"] < float(sys.argv[2]))' "$folder" "$least"
