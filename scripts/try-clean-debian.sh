#!/usr/bin/env bash
# Tries README's two commands in a clean Debian root, as a stranger's first five minutes would go.
#
#   scripts/try-clean-debian.sh FOLDER [--suite bookworm|trixie|sid] [--arch arm64|s390x] [--sources list|deb822]
#                               [--copy FILE]... [--run COMMAND]... [--keep] [--cache]
#
# Makes FOLDER (new or empty) with debootstrap from the mirror this machine's own apt uses, clones the last commit
# into it, runs each COMMAND there (default: scripts/quickstart.sh, then scripts/test.sh) and prints how long each
# step took. --suite is Debian 12 (bookworm, the default), 13 (trixie) or unstable (sid). --arch is another host than this
# machine, whose programs qemu-user runs (the kernel is told so meanwhile). --sources picks the form of the
# root's apt sources: one-line (default, as debootstrap leaves it) or deb822 (as the container images have it). --copy
# puts a file into the root user's home, one above the clone. --cache keeps the root as it is once scripts/setup.sh has
# run, for a week, in ${XDG_CACHE_HOME:-~/.cache}/ztstream, and begins with such a root where there is one.
# FOLDER is removed when all went well, unless --keep. What is mounted in it is seen by this script alone.
#
# Needs root and about 6 GB; installs debootstrap where apt has it. Exit status: that of the first step that failed; 77
# where no root can be made here, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh

given=("$@")
root= suite=bookworm arch= form=list keep=false cache=false
commands=() copies=()
while [ $# -gt 0 ]; do
  case "$1" in
    --suite) suite=${2:?bookworm, trixie or sid}; shift ;;
    --arch) arch=${2:?arm64 or s390x}; shift ;;
    --sources) form=${2:?list or deb822}; shift ;;
    --copy) copies+=("${2:?a file}"); shift ;;
    --run) commands+=("${2:?a command}"); shift ;;
    --keep) keep=true ;;
    --cache) cache=true ;;
    -h|--help) usage 2 19; exit 0 ;;
    -*) code=2 die "unknown option $1" ;;
    *) root=$1 ;;
  esac
  shift
done
[ -n "$root" ] || code=2 die "name a folder for the root"
case "$form" in list|deb822) ;; *) code=2 die "--sources is list or deb822" ;; esac
case "$arch" in  # of ELF: its bytes 4 and 5, and 18 and 19
  '') ;;
  arm64) qemu=qemu-aarch64-static ident='\x02\x01' machine='\xb7\x00' ;;
  s390x) qemu=qemu-s390x-static ident='\x02\x02' machine='\x00\x16' ;;
  *) code=2 die "--arch is arm64 or s390x" ;;
esac
case "$suite" in bookworm) release='Debian 12' ;; trixie) release='Debian 13' ;; sid) release='Debian sid' ;; *) code=2 die "--suite is bookworm, trixie or sid" ;; esac
[ ${#commands[@]} -gt 0 ] || commands=(scripts/quickstart.sh scripts/test.sh)
[ ! -d "$root" ] || [ -z "$(ls -A "$root")" ] || code=2 die "$root is not empty"

unable() { code=77 die "no clean root of $release can be made here: $*"; }

[ ! -e /etc/ztstream-clean-root ] || unable "this is one"
[ "$(id -u)" = 0 ] || unable "that needs root (debootstrap, mount, chroot)"
command -v apt-get >/dev/null || unable "this system has no apt, whose mirror would be used"
git rev-parse --git-dir >/dev/null 2>&1 || unable "this folder is no clone of the repository"
if [ -z "${ZT_OWN_MOUNTS:-}" ]; then  # mounts and processes that end with this script, however it ends
  own=(unshare --mount --propagation private --pid --fork --kill-child)
  "${own[@]}" true || unable "mounting is not allowed"
  ZT_OWN_MOUNTS=1 exec "${own[@]}" "$0" "${given[@]}"
fi

mirror=$(debian_mirror "$suite")
security=$(debian_mirror "$suite-security")
[ -n "$mirror" ] || unable "this machine's apt has no source of Debian"
reachable() {
  timeout 60 /usr/lib/apt/apt-helper -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 \
    -o APT::Sandbox::User=root download-file "${mirror%/}/dists/$suite/InRelease" "$report.mirror" >/dev/null 2>&1
}
report=$(mktemp) registered=
cleanup() {
  umount -l "$root/proc" "$root/dev/shm" "$root/dev/pts" "$root/dev" 2>/dev/null || true
  rm -f "$report" "$report.mirror" "${saving:-}"
  [ -z "$registered" ] || echo -1 >"$registered"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

step() {  # step NAME COMMAND...: runs it and notes how long it took
  local name=$1 start=$SECONDS status=0
  shift
  echo "=== $name" >&2
  "$@" || status=$?
  printf '%6d s  %s%s\n' $((SECONDS - start)) "$name" "$([ $status = 0 ] || echo "  FAILED ($status)")" >>"$report"
  if [ $status != 0 ]; then
    echo "--- $form sources" && cat "$report"
    ! $making || unable "$name failed"
    [ "$name" != scripts/setup.sh ] || reachable || unable "$mirror does not answer"  # so setup.sh is not at fault
    exit $status
  fi
}

inside() {
  chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd /root/ztstream && $1"
}

kept=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ztstream
saved=$kept/${arch:+$arch-}$suite-$form-$({ cat scripts/setup.sh && echo "$mirror $security"; } | sha256sum | cut -c 1-16).tar.zst
save() {
  inside 'apt-get clean' && mkdir -p "$kept" && saving=$(mktemp -p "$kept") &&
    tar -C "$root" --one-file-system --exclude ./root/ztstream -I 'zstd -1 -T0' -cf "$saving" . &&
    rm -f "${saved%-*}"-* && mv "$saving" "$saved" || echo "the root is not kept" >&2
}

# The kernel runs programs of --arch by qemu: in every root, so until this script ends, and no longer.
binfmt=/proc/sys/fs/binfmt_misc
if [ -n "$arch" ]; then
  command -v "$qemu" >/dev/null || unable "$qemu is missing: apt-get install qemu-user-static"
  [ -e "$binfmt/register" ] || mount -t binfmt_misc binfmt_misc "$binfmt" 2>/dev/null || unable "the kernel has no binfmt_misc"
  if ! grep -qs "^interpreter .*/${qemu%-static}" "$binfmt"/*; then
    others=$(printf '\\x00%.0s' {6..17})
    printf '%s' ":ztstream-$arch:M::\x7fELF$ident$others$machine:\xff\xff\xff\xff\xff\xff$others\xff\xff:$(command -v "$qemu"):F" \
      >"$binfmt/register" || unable "the kernel takes no interpreter"
    registered=$binfmt/ztstream-$arch
  fi
fi

mkdir -p "$root"
root=$(realpath "$root")
[ "$(df --output=avail -k "$root" | tail -n 1)" -gt 6000000 ] || unable "$root has less than 6 GB of room"
making=true
if $cache && [ -e "$saved" ] && { [ -n "$(find "$saved" -mtime -7)" ] || ! reachable; }; then
  step "the root of $(date -r "$saved" +%F)" tar -C "$root" -I zstd -xf "$saved"
  cache=false
else
  reachable || unable "$mirror does not answer"
  if ! command -v debootstrap >/dev/null; then
    timeout 300 apt-get -qq update >/dev/null || true
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends debootstrap >/dev/null ||
      unable "debootstrap cannot be installed"
  fi
  include=()
  case "$mirror" in https:*) include=(--include=ca-certificates) ;; esac
  eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
  export ${http_proxy+http_proxy} ${https_proxy+https_proxy} >/dev/null  # names none where none is set
  step "debootstrap $suite (minimal)" timeout 1800 debootstrap ${arch:+--arch="$arch"} --variant=minbase "${include[@]}" "$suite" "$root" "$mirror" >/dev/null
  : >"$root/etc/ztstream-clean-root"
fi

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
mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc" || unable "mounting is not allowed"
mount --bind /dev "$root/dev"
for part in shm pts; do  # the tests use both
  [ ! -d /dev/$part ] || mount --bind /dev/$part "$root/dev/$part" 2>/dev/null || true
done

[ ${#copies[@]} = 0 ] || cp "${copies[@]}" "$root/root/"
step "git clone" git clone -q --no-hardlinks "$PWD" "$root/root/ztstream"
making=false
if $cache; then
  step scripts/setup.sh inside 'timeout 1800 scripts/setup.sh'
  step "keep the root" save
fi
for command in "${commands[@]}"; do
  step "$command" inside "$command"
done

echo "--- a clean $release root${arch:+ of $arch}, $form sources, $(nproc) cores"
cat "$report"
if ! $keep; then
  cleanup
  trap - EXIT
  rm -rf --one-file-system "$root"
fi
