#!/usr/bin/env bash
# Tries the Python wheel in clean Debian roots: builds it in Debian 12 by the commands of docs/PYTHON.md, installs that file into
# a virtual environment without a network in Debian 12, 13 and sid, and runs the page, the examples and the package's tests
# there. Debian 12 tries PyPy and CPython 3.9 as well; sid, which has torch and safetensors, compares 2,000 random files with
# both. Prints how long each step took.
#
#   scripts/try-wheel.sh FOLDER [--wheel FILE] [--suite bookworm|trixie|sid]... [--arch arm64] [--keep]
#
# --wheel tries this one and builds none; --suite tries it there alone; --arch tries one that was built for another host, under
# qemu-user, without what takes clocks there. FOLDER gets a root for each, which are made and removed
# as by scripts/try-clean-debian.sh; that says what is needed. Exit status: that of the first step that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh

folder= wheel= keep=() suites=() arch=()
while [ $# -gt 0 ]; do
  case "$1" in
    --wheel) wheel=$(realpath "${2:?a file}"); shift ;;
    --suite) suites+=("${2:?bookworm, trixie or sid}"); shift ;;
    --arch) arch=(--arch "${2:?arm64 or s390x}"); shift ;;
    --keep) keep=(--keep) ;;
    -h|--help) usage 2 11; exit 0 ;;
    -*) code=2 die "unknown option $1" ;;
    *) folder=$1 ;;
  esac
  shift
done
[ -n "$folder" ] || code=2 die "name a folder for the roots"
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie sid)
[ ${#arch[@]} = 0 ] || [ -n "$wheel" ] || code=2 die "--arch needs --wheel FILE: scripts/try-host.sh builds for it"
mkdir -p "$folder"

if [ -z "$wheel" ]; then
  scripts/try-clean-debian.sh "$folder/build" --keep --run scripts/setup.sh --run scripts/wheel.sh
  cp "$folder"/build/root/ztstream/build/wheel/ztstream-*.whl "$folder"
  wheel=$(realpath "$folder"/ztstream-*.whl)
  rm -rf --one-file-system "$folder/build"
fi
echo "$(basename "$wheel") $(stat -c %s "$wheel") bytes"

# What judges need: they read .zt files by Python's own libraries, and URLs need libcurl.
judges='python3-numpy python3-cbor2 python3-zstandard python3-xxhash libcurl4'
tests='for name in page plain package writing ring remote values interrupt; do echo "--- $name" && '
tests+='ZT_INSTALLED=1 ../env/bin/python -B tests/python/${name}_test.py || exit; done'
plain='PYTHONPATH=$(echo ../env/lib/python3*/site-packages) ZT_INSTALLED=1 %s -B tests/python/plain_test.py'
for suite in "${suites[@]}"; do
  more= count=60 runs=()
  [ ${#arch[@]} = 0 ] || count=20
  case $suite${arch:+-foreign} in
    bookworm)
      more=pypy3
      runs=(--run "$(printf "$plain" pypy3)"
        --run "echo 'deb $(debian_mirror bullseye) bullseye main' >/etc/apt/sources.list.d/11.list && apt-get -qq update && \
          $apt_install python3.9-minimal libpython3.9-stdlib && $(printf "$plain" python3.9)") ;;
    sid) more='python3-torch python3-safetensors' count=2000 ;;
  esac
  scripts/try-clean-debian.sh "$folder/$suite" --suite "$suite" "${arch[@]}" "${keep[@]}" --copy "$wheel" \
    --run "apt-get -qq update && $apt_install python3-venv $judges $more" \
    --run 'python3 -m venv --system-site-packages ../env && unshare -n ../env/bin/pip -q install --no-index ../ztstream-*.whl' \
    --run "../env/bin/python -V && ZT_COUNT=$count && export ZT_COUNT ${arch:+ZT_SLOW=1} && $tests" \
    "${runs[@]}"
done
