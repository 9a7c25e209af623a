#!/usr/bin/env bash
# Prints one line for each of forty-eight thousand runs of a program over tests/data: status and digests of all it wrote.
#
#   scripts/golden.sh PROGRAM [--only REGEX] [--keep FOLDER] > LINES
#
# Two programs that behave the same give the same lines; see golden.py.
exec python3 -B "$(dirname "$0")/golden.py" "$@"
