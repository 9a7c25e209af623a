#!/bin/sh
# Kills every command at every of its system calls and prints what was found: as it was or complete, never partial; then N
# from a bucket to a bucket, whole and in shards, N of uploads that are continued (--resume), and N over eight shards, which
# are run again: shards that are there are whole, and the end is that of an undisturbed run.
#   scripts/kill-trial.sh [N] [SEED]      N: 300; the program of build/release, or ZTSTREAM
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export ZTSTREAM="${ZTSTREAM:-$root/build/release/bin/ztstream}" ZT_TEST_DATA="$root/tests/data"
export ZT_FAULT_SHIM="$root/build/release/tests/e2e/libfault_shim.so"
export ZT_KILLS="${1:-300}" ZT_SHARD_KILLS="${1:-300}" ZT_SEED="${2:-1}"
ZT_SIGNALS=all /usr/bin/python3 -B "$root/tests/e2e/run.py" signal_test Signals.test_every_step_of_every_command
/usr/bin/python3 -B "$root/tests/e2e/run.py" s3_test Kills
/usr/bin/python3 -B "$root/tests/e2e/run.py" resume_test Resume.test_kills_at_random_moments
exec /usr/bin/python3 -B "$root/tests/e2e/run.py" shards_test Again.test_kills_at_random_moments
