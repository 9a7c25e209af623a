# common.sh — what the tests of an installed build begin with. Sourced with the arguments BUILD_FOLDER [ZTSTREAM]: sets
# `build`, `program`, `here`, `tree`, and `scratch`, a folder that goes away at the end.
build=$(realpath "$1")
program=${2:+$(realpath "$2")}
here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$(dirname "$here")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# install_into_prefix [COMPONENT...]: into $scratch/prefix. Nothing installed may point back to the tree it was built from.
install_into_prefix() {
  local component
  [ $# -gt 0 ] || cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
  for component in "$@"; do
    cmake --install "$build" --component "$component" --prefix "$scratch/prefix" >>"$scratch/install.log"
  done
  if grep -rIlE "$tree/(modules|converters|capi|cli|build)" "$scratch/prefix"; then
    echo "the files above name the build or source folder" >&2
    exit 1
  fi
}
