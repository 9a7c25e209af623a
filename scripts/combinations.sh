#!/usr/bin/env bash
# Random inputs of every format with random options of every command; every value is compared with an independent computation.
#
#   scripts/combinations.sh N [SEED] [--program PROGRAM] [--keep FOLDER]
#
# Tries N seeds, beginning with SEED (1), on the release build or PROGRAM. Exit status 1 if any is wrong; it prints the
# commands of those, and --keep leaves their files.
exec /usr/bin/python3 -B "$(dirname "$0")/../tests/lib/combinations.py" "$@"
