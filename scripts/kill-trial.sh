#!/bin/sh
# Kills N real conversions at random moments and prints what was found: absent, old or complete, never partial.
#   scripts/kill-trial.sh [N] [SEED]      N: 300; the program of build/release, or ZTSTREAM
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export ZTSTREAM="${ZTSTREAM:-$root/build/release/bin/ztstream}" ZT_TEST_DATA="$root/tests/data"
export ZT_KILLS="${1:-300}" ZT_SEED="${2:-1}"
exec /usr/bin/python3 -B "$root/tests/e2e/kill_test.py"
