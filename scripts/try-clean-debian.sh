#!/usr/bin/env bash
# Tries README's two commands in a clean Debian root, as a stranger's first five minutes would go.
#
#   scripts/try-clean-debian.sh FOLDER [--suite bookworm|trixie|sid] [--sources list|deb822] [--copy FILE]...
#                               [--run COMMAND]... [--keep]
#
# Makes FOLDER (new or empty) with debootstrap from the mirror this machine's own apt uses, clones the last commit
# into it, runs each COMMAND there (default: scripts/quickstart.sh, then scripts/test.sh) and prints how long each
# step took. --suite is Debian 12 (bookworm, the default), 13 (trixie) or unstable (sid). --sources picks the form of the root's apt sources: one-line (default, as debootstrap leaves
# it) or deb822 (as the container images have it). --copy puts a file into the root user's home, one above the clone.
# FOLDER is removed when all went well, unless --keep.
#
# Needs root, debootstrap and about 4 GB. Exit status: that of the first step that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh

root= suite=bookworm form=list keep=false
commands=() copies=()
while [ $# -gt 0 ]; do
  case "$1" in
    --suite) suite=${2:?bookworm, trixie or sid}; shift ;;
    --sources) form=${2:?list or deb822}; shift ;;
    --copy) copies+=("${2:?a file}"); shift ;;
    --run) commands+=("${2:?a command}"); shift ;;
    --keep) keep=true ;;
    -h|--help) usage 2 14; exit 0 ;;
    -*) code=2 die "unknown option $1" ;;
    *) root=$1 ;;
  esac
  shift
done
[ -n "$root" ] || code=2 die "name a folder for the root"
case "$form" in list|deb822) ;; *) code=2 die "--sources is list or deb822" ;; esac
case "$suite" in bookworm) release='Debian 12' ;; trixie) release='Debian 13' ;; sid) release='Debian sid' ;; *) code=2 die "--suite is bookworm, trixie or sid" ;; esac
[ ${#commands[@]} -gt 0 ] || commands=(scripts/quickstart.sh scripts/test.sh)
[ "$(id -u)" = 0 ] || die "needs root (debootstrap, chroot)"
command -v debootstrap >/dev/null || die "please install debootstrap"
[ ! -d "$root" ] || [ -z "$(ls -A "$root")" ] || code=2 die "$root is not empty"
mkdir -p "$root"
root=$(realpath "$root")

mirror=$(debian_mirror "$suite")
security=$(debian_mirror "$suite-security")
[ -n "$mirror" ] || die "this machine's apt has no source for $suite"

report=$(mktemp)
cleanup() {
  umount "$root/proc" "$root/dev/shm" "$root/dev/pts" "$root/dev" 2>/dev/null || true
  rm -f "$report"
}
trap cleanup EXIT

step() {  # step NAME COMMAND...: runs it and notes how long it took
  local name=$1 start=$SECONDS status=0
  shift
  echo "=== $name" >&2
  "$@" || status=$?
  printf '%6d s  %s%s\n' $((SECONDS - start)) "$name" "$([ $status = 0 ] || echo "  FAILED ($status)")" >>"$report"
  if [ $status != 0 ]; then
    echo "--- $form sources" && cat "$report"
    exit $status
  fi
}

inside() {
  chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd /root/ztstream && $1"
}

include=()
case "$mirror" in https:*) include=(--include=ca-certificates) ;; esac
step "debootstrap $suite (minimal)" debootstrap --variant=minbase "${include[@]}" "$suite" "$root" "$mirror" >/dev/null

# What the machine's own apt needs to reach its mirror (a proxy, a frozen archive's dates) holds inside as well.
apt-config dump | grep -E '^Acquire::(http|https|Check-)[^ ]* "[^"]' >"$root/etc/apt/apt.conf.d/90outer" || true
[ ! -e /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
if [ "$form" = deb822 ]; then
  rm -f "$root/etc/apt/sources.list"
  entry() { printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n' "$1" "$2"; }
  {
    entry "$mirror" "$suite $suite-updates"
    [ -z "$security" ] || entry "$security" "$suite-security"
  } >"$root/etc/apt/sources.list.d/debian.sources"
fi
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
for part in shm pts; do  # the tests use both
  [ ! -d /dev/$part ] || mount --bind /dev/$part "$root/dev/$part" 2>/dev/null || true
done

[ ${#copies[@]} = 0 ] || cp "${copies[@]}" "$root/root/"
step "git clone" git clone -q --no-hardlinks "$PWD" "$root/root/ztstream"
for command in "${commands[@]}"; do
  step "$command" inside "$command"
done

echo "--- a clean $release root, $form sources, $(nproc) cores"
cat "$report"
if ! $keep; then
  cleanup
  trap - EXIT
  rm -rf --one-file-system "$root"
fi
