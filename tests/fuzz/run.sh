#!/usr/bin/env bash
# Runs one libFuzzer program for ZT_FUZZ_SECONDS (default 20) from seeds, keeping what it learns beside the program.
#
#   tests/fuzz/run.sh PROGRAM SEED_FOLDER...      exit status 1 on a finding, which lies beside the program
set -euo pipefail
program=$1
shift
learned=$program.corpus
mkdir -p "$learned"
exec "$program" -max_total_time="${ZT_FUZZ_SECONDS:-20}" -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512 \
  -max_len=65536 -print_final_stats=1 -verbosity=0 -artifact_prefix="$program.finding-" "$learned" "$@"
