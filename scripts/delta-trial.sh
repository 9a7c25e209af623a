#!/bin/sh
# Tries deltas (docs/DELTA.md) for long: N random pairs, each by conversions, chains, pipes and ranks; M mutated deltas and bases of
# both versions; `apply` killed at each of its system calls, in every form; conversions to a delta, of one, and applies of larger ones,
# 500 of each killed at random moments. Prints what was counted.
#   scripts/delta-trial.sh [N] [M]      N: 2000, M: 3000; the program of build/release, or ZTSTREAM. ZT_SEED: the first pair
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export ZTSTREAM="${ZTSTREAM:-$root/build/release/bin/ztstream}" ZT_TEST_DATA="$root/tests/data"
export ZT_FAULT_SHIM="$root/build/release/tests/e2e/libfault_shim.so"
run() {
  ZT_COUNT=$1 /usr/bin/python3 -B "$root/tests/e2e/run.py" "$2" "$3" && echo "$3: $1"
}
run "${1:-2000}" delta_test Delta.test_random_pairs
run "${1:-2000}" apply_test Apply.test_random_pairs
run "$(( ${2:-3000} / 2 ))" delta_test Delta.test_damage
ZT_KILLS=0 run 0 apply_test Apply.test_kills
run 500 apply_test Apply.test_kills_at_random_moments
