#!/usr/bin/env bash
# Presses Ctrl-C at random moments of what the Python package does (saves, writers, loads, verify, convert), once for each
# Python that is named, until so many calls were interrupted in all. Fails where one crashed, hung, or left a file behind.
#
#   scripts/try-interrupts.sh COUNT PYTHON...
#
# Needs the release build, or ZTSTREAM_LIBRARY and ZTSTREAM_PROGRAM, and no numpy. 20,000 take eight minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh
[ $# -ge 2 ] || { usage 2 8; exit 2; }

count=$1
shift
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# ZT_INTERRUPTS is that of one way. Ten are interrupted so often, six a quarter of that; some calls end before they are.
each=$(( count / $# / 11 + 1 ))
for python in "$@"; do
  "$python" -V
  ZT_INTERRUPTS=$each "$python" -B tests/python/interrupt_test.py Moments 2>&1 | tee -a "$said"
done
awk '/ interrupted, / { sub(/^\.*/, ""); all += $2; long += $(NF - 5); if ($6 > late) late = $6 }
     END { print all " calls interrupted, " late " ms late at most, " long " by more than 200 ms" }' "$said"
