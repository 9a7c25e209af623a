#!/usr/bin/env bash
# Builds the reference of exported names into build/docs/html. Any warning of doxygen is a failure, but of members without
# a comment of their own: their class or struct has one. Exit status: 77 without doxygen.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v doxygen >/dev/null || { echo "docs.sh: doxygen is missing: scripts/setup.sh --lint" >&2; exit 77; }
mkdir -p build/docs
doxygen docs/Doxyfile 2>build/docs/all-warnings
grep -vE 'Member .* of (struct|class) .* is not documented' build/docs/all-warnings >build/docs/warnings || true
if [ -s build/docs/warnings ]; then
  cat build/docs/warnings >&2
  exit 1
fi
echo "docs: build/docs/html/index.html"
