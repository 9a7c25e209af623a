#!/usr/bin/env bash
# Builds the reference of exported names into build/docs/html. Any warning of doxygen is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v doxygen >/dev/null || { echo "docs.sh: doxygen is missing: scripts/setup.sh --lint" >&2; exit 1; }
mkdir -p build/docs
doxygen docs/Doxyfile 2>build/docs/warnings
if [ -s build/docs/warnings ]; then
  cat build/docs/warnings >&2
  exit 1
fi
echo "docs: build/docs/html/index.html"
