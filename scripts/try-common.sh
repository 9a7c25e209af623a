# try-common.sh — what the scripts that try ztstream elsewhere share. Sourced, not run: $0 is the script.

die() { echo "$(basename "$0"): $*" >&2; exit "${code:-1}"; }

# usage FIRST LAST: prints those lines of the script, which are its description.
usage() { sed -n "$1,$2s/^# \{0,1\}//p" "$0"; }

# debian_mirror SUITE: where this machine's own apt has the main component of a Debian suite from; of a suite that it has
# not, where it has another one from, since a mirror carries all.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' | awk -v suite="$1" '
    $3 != "main" { next }
    $2 == suite { exact = $1; exit }
    any == "" && ($2 ~ /-security$/) == (suite ~ /-security$/) { any = $1 }
    END { print exact != "" ? exact : any }'
}

# foreign_apt FOLDER ARCH SUITE MIRROR: leaves in `options` what makes apt-get and apt-cache believe that they are on ARCH and that
# nothing is installed, with FOLDER as their own.
foreign_apt() {
  echo "deb [arch=$2 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $4 $3 main" >"$1/sources.list"
  : >"$1/status"
  options=(
    -o "APT::Architecture=$2" -o "APT::Architectures=$2" -o APT::Sandbox::User=root -o Acquire::Languages=none
    -o "Dir::State=$1" -o "Dir::State::status=$1/status" -o "Dir::Cache=$1"
    -o "Dir::Etc::SourceList=$1/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
  )
}

# try_packages PATTERN FIRST LAST ARGUMENT...: takes FOLDER [BUILD_FOLDER] [--keep] from the arguments (where there are
# none, lines FIRST to LAST are the usage), builds the program and the library there, makes the Debian packages of the
# build, names those that match PATTERN, and leaves in `clean` the command that tries them in a clean root, to which
# --run COMMAND is added.
try_packages() {
  local pattern=$1 build=build/release keep=() root package
  [ $# -ge 4 ] || { usage "$2" "$3"; exit 2; }
  root=$4
  shift 4
  for package in "$@"; do
    case "$package" in --keep) keep=(--keep) ;; *) build=$package ;; esac
  done
  cmake --build "$build" --target ztstream ztstream_c >/dev/null
  packages=$(mktemp -d)
  trap 'rm -rf "$packages"' EXIT
  (cd "$build" && cpack -G DEB -B "$packages" >/dev/null)
  clean=(scripts/try-clean-debian.sh "$root" "${keep[@]}")
  for package in "$packages"/$pattern; do
    echo "$(basename "$package") $(stat -c %s "$package") bytes; needs $(dpkg-deb -f "$package" Depends)"
    clean+=(--copy "$package")
  done
}
apt_install='DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends >/dev/null'
