#!/usr/bin/env bash
# Runs every fuzz target in turn and prints how many inputs each has executed.
#
#   scripts/fuzz.sh SECONDS [TARGET...]      e.g. scripts/fuzz.sh 1800 gguf npz; all targets where none is named
#
# What the targets learn stays in build/fuzz/bin/*.corpus; a finding is build/fuzz/bin/*.finding-*, and exit status 1.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ ${1:-} =~ ^[0-9]+$ ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
seconds=$1
shift
cmake --preset fuzz --log-level=WARNING >/dev/null
if [ $# = 0 ]; then
  mapfile -t targets < <(sed -n 's/^ *zt_fuzz(\([a-z_]*\) SEEDS.*/\1/p' tests/fuzz/CMakeLists.txt)
else
  targets=("$@")
fi
cmake --build --preset fuzz --target "${targets[@]/%/_fuzz}" >/dev/null

status=0
printf '%-14s %14s %9s  %s\n' target executions seconds result
for target in "${targets[@]}"; do
  program=build/fuzz/bin/${target}_fuzz
  mapfile -t seeds < <(sed -n "s/^ *zt_fuzz($target SEEDS \(.*\) DEPS.*/\1/p" tests/fuzz/CMakeLists.txt | tr ' ' '\n' |
    sed 's|^|tests/data/|')
  begin=$SECONDS
  result=good
  ZT_FUZZ_SECONDS=$seconds tests/fuzz/run.sh "$PWD/$program" "${seeds[@]}" >"$program.log" 2>&1 || result="FINDING, see $program.log"
  [ "$result" = good ] || status=1
  count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$program.log")
  printf '%-14s %14s %9s  %s\n' "$target" "${count:-?}" "$((SECONDS - begin))" "$result"
done
exit $status
