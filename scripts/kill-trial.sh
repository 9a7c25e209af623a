#!/bin/sh
# Kills N real conversions at random moments and prints what was found: absent, old or complete, never partial; then N
# from a bucket to a bucket, whole and in shards, and N over eight shards, which are run again: shards that are there are
# whole, and the end is that of an undisturbed run.
#   scripts/kill-trial.sh [N] [SEED]      N: 300; the program of build/release, or ZTSTREAM
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export ZTSTREAM="${ZTSTREAM:-$root/build/release/bin/ztstream}" ZT_TEST_DATA="$root/tests/data"
export ZT_KILLS="${1:-300}" ZT_SHARD_KILLS="${1:-300}" ZT_SEED="${2:-1}"
/usr/bin/python3 -B "$root/tests/e2e/run.py" kill_test
/usr/bin/python3 -B "$root/tests/e2e/run.py" s3_test Kills
exec /usr/bin/python3 -B "$root/tests/e2e/run.py" shards_test Again.test_kills_at_random_moments
