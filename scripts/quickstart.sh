#!/usr/bin/env bash
# Sets up, builds the program, converts the trained checkpoint that the repository carries and shows the result.
set -euo pipefail
cd "$(dirname "$0")/.."

checkpoint=tests/data/real/ppocr-cls.safetensors
output=build/quickstart/ppocr-cls.zt
program=build/release/bin/ztstream

scripts/setup.sh
cmake --preset release --log-level=WARNING
cmake --build --preset release --target ztstream

mkdir -p "$(dirname "$output")"
show() { echo; echo "\$ $*"; "$@"; }
show $program convert $checkpoint -f -o $output
show $program inspect $output conv2d_1
show $program verify $output
