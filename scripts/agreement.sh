#!/usr/bin/env bash
# Random and mutated .zt files of every version through every command and the C interface, which must agree on each.
#
#   scripts/agreement.sh N [SEED] [--program PROGRAM] [--library LIBRARY] [--keep FOLDER] [--files FILE...]
#
# Tries N random and N mutated files of each version, beginning with SEED (1), on the release build or PROGRAM. Exit status 1
# if any is disputed; it prints what was said of those, by cause, and --keep leaves them. The library is that of the release
# build, which `cmake --build --preset release --target ztstream_c` makes, or LIBRARY.
exec /usr/bin/python3 -B "$(dirname "$0")/../tests/lib/agreement.py" "$@"
