#!/usr/bin/env bash
# Installs what a fresh Debian 12 or 13 lacks to build and test ztstream; does nothing where all is there.
#
#   scripts/setup.sh            compiler, build tools, libraries, the tests' Python readers
#   scripts/setup.sh --lint     also clang-format, clang-tidy, doxygen and the shells whose completions are tested: for CI
#   scripts/setup.sh --tools    also those, and what profiling and the benchmarks' pictures need
#   scripts/setup.sh --check    installs nothing; says what is missing and exits 1 if anything is
#
# Runs as root or through sudo. CMake comes from the suite's backports, whose apt source is derived from the
# machine's own. On a system without apt it names what is missing and stops.
set -euo pipefail

packages=(
  # compiler, linker and build tools (g++ is never called: its libstdc++ headers are used)
  clang-19 clang-tools-19 libclang-rt-19-dev lld-19 llvm-19 libstdc++-12-dev ninja-build pkg-config
  # libraries
  libzstd-dev libhwy-dev libabsl-dev libcbor-dev libsimdjson-dev libssl-dev libxxhash-dev libutf8proc-dev
  zlib1g-dev libdeflate-dev libhdf5-dev libaec-dev libcurl4-openssl-dev nlohmann-json3-dev libre2-dev
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev
  python3 python3-cbor2 python3-zstandard python3-numpy python3-xxhash python3-h5py python3-botocore python3-jsonschema zstd openssl
  # `cpack -G DEB`
  dpkg-dev file
)
lint=(clang-format-19 clang-tidy-19 doxygen zsh fish)
tools=(linux-perf valgrind python3-matplotlib)
cmake_needed=3.28

mode=install
for arg in "$@"; do
  case "$arg" in
    --lint) packages+=("${lint[@]}") ;;
    --tools) packages+=("${lint[@]}" "${tools[@]}") ;;
    --check) mode=check ;;
    -h|--help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "setup.sh: unknown option $arg" >&2; exit 2 ;;
  esac
done

say() { echo "setup: $*" >&2; }

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

cmake_new_enough() {
  command -v cmake >/dev/null || return 1
  local have
  have=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  [ "$(printf '%s\n%s\n' "$cmake_needed" "$have" | sort -V | head -n 1)" = "$cmake_needed" ]
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  missing=()
  for tool in clang++-19 clang-scan-deps-19 ld.lld-19 ninja pkg-config python3 zstd; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  cmake_new_enough || missing+=("cmake >= $cmake_needed")
  [ ${#missing[@]} -eq 0 ] && exit 0
  say "this system has no apt; please install: ${missing[*]}"
  say "and the development files of: zstd highway abseil libcbor simdjson openssl xxhash utf8proc zlib libdeflate hdf5 nlohmann-json re2 googletest benchmark"
  exit 1
fi

lacking=()
for package in "${packages[@]}"; do
  installed "$package" || lacking+=("$package")
done
new_cmake=false
cmake_new_enough || new_cmake=true

if [ ${#lacking[@]} -eq 0 ] && ! $new_cmake; then
  exit 0
fi
if [ "$mode" = check ]; then
  say "missing: ${lacking[*]}$($new_cmake && echo " cmake>=$cmake_needed")"
  exit 1
fi

if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
  say "needs root or sudo to install: ${lacking[*]}$($new_cmake && echo " cmake>=$cmake_needed")"
  exit 1
fi
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
apt() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=3 "$@"
}

# The backports source is the machine's own Debian source with the suite's name changed.
backports_source() {
  local suite=$1 file
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    awk -v suite="$suite" '
      BEGIN { RS = ""; FS = "\n" }
      {
        types = uris = signed = ""; has = 0
        for (i = 1; i <= NF; i++) {
          if ($i ~ /^Types:/) types = $i
          if ($i ~ /^URIs:/) uris = $i
          if ($i ~ /^Signed-By:/) signed = $i
          if ($i ~ /^Suites:/) { n = split($i, words, /[ \t]+/); for (j = 2; j <= n; j++) if (words[j] == suite) has = 1 }
        }
        if (has && types ~ /deb/) {
          print "Types: deb"; print uris; print "Suites: " suite "-backports"; print "Components: main"
          if (signed != "") print signed
          exit
        }
      }' "$file" | grep . && return 0
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] || continue
    awk -v suite="$suite" '
      $1 == "deb" {
        options = ""; at = 2
        if ($2 ~ /^\[/) { while (at <= NF) { options = options " " $at; if ($at ~ /\]$/) { at++; break }; at++ } }
        if ($(at + 1) == suite) { print "deb" options " " $at " " suite "-backports main"; exit }
      }' "$file" | grep . && return 0
  done
  return 1
}

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
if $new_cmake && [ "$codename" = bookworm ] &&
  ! grep -rqsE "^[^#]*$codename-backports" /etc/apt/sources.list /etc/apt/sources.list.d --include='*.list' --include='*.sources'; then
  entry=$(backports_source "$codename") ||
    { say "found no apt source for $codename to derive backports from; please provide cmake >= $cmake_needed"; exit 1; }
  case "$entry" in
    Types:*) target=/etc/apt/sources.list.d/ztstream-backports.sources ;;
    *) target=/etc/apt/sources.list.d/ztstream-backports.list ;;
  esac
  say "adding $codename-backports ($target) for cmake >= $cmake_needed"
  printf '%s\n' "$entry" | as_root tee "$target" >/dev/null
fi

say "installing: ${lacking[*]}$($new_cmake && echo " cmake")"
apt update >/dev/null || say "apt could not refresh every source; going on with what it has"
[ ${#lacking[@]} -eq 0 ] || apt install --no-install-recommends "${lacking[@]}" >/dev/null
if $new_cmake; then
  release=()
  [ "$codename" != bookworm ] || release=(-t "$codename-backports")
  apt install --no-install-recommends "${release[@]}" cmake >/dev/null
fi
cmake_new_enough || { say "$(command -v cmake || echo cmake) is older than $cmake_needed"; exit 1; }
