#!/usr/bin/env bash
# Boots a Debian kernel of another kind of host in qemu-system, and converts HDF5 files there: qemu-user runs no filters of
# system calls, so that it cannot show what a kernel refuses to the process of libhdf5.
#
#   scripts/try-kernel.sh s390x|arm64 [FOLDER]      FOLDER: what scripts/try-host.sh made; default: build/host-ARCH
#
# Each file of tests/data/hdf5 and one of 32 MB must become what it becomes under qemu-user, and the process must have its filter.
# arm64 boots twice, with pages of 4 and of 16 KiB (Debian 13's kernel). FOLDER/kernel keeps the kernels.
# Needs qemu-system-arm or qemu-system-misc, cpio and python3-h5py.
# Exit status: 0 only where every kernel was booted and all files came out equal; 77 where none can be, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/try-common.sh

case "${1:-}" in
  s390x)
    arch=$1 processor=s390x kernels=("bookworm linux-image-s390x")
    machine=(qemu-system-s390x -M s390-ccw-virtio -cpu max) console=ttysclp0
    ;;
  arm64)
    arch=$1 processor=aarch64 kernels=("bookworm linux-image-arm64" "trixie linux-image-arm64-16k")
    machine=(qemu-system-aarch64 -M virt -cpu "max,pauth-impdef=on") console=ttyAMA0
    ;;
  *) usage 2 11; exit 2 ;;
esac
folder=${2:-build/host-$arch}
[ -x "$folder/ztstream" ] && [ -x "$folder/build/bin/ztstream" ] || code=2 die "scripts/try-host.sh $arch $folder first"
for tool in "${machine[0]}" cpio; do command -v "$tool" >/dev/null || code=77 die "$tool is missing"; done
folder=$(realpath "$folder")
triple=$processor-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,dev,proc,tmp,hdf5} "$folder/kernel"

# fetch SUITE PACKAGE: that package, or the one that it names first, unpacked in FOLDER/kernel/PACKAGE.
fetch() {
  local into=$folder/kernel/$2 suite=$1 package=$2 apt real options mirror
  [ ! -e "$into/done" ] || return 0
  rm -rf "$into"
  apt=$into/apt
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  mirror=$(debian_mirror "$suite")
  foreign_apt "$apt" "$arch" "$suite" "$mirror"
  apt-get "${options[@]}" -qq -o APT::Update::Error-Mode=any update || code=77 die "$mirror does not answer"
  real=$(apt-cache "${options[@]}" depends "$package" | sed -n 's/^  Depends: \(linux-image-.*\)/\1/p' | head -n 1)
  (cd "$into" && apt-get "${options[@]}" -qq download "${real:-$package}")
  dpkg -x "$into"/*.deb "$into/files"
  rm -rf "$apt" "$into"/*.deb "$into/files/lib/modules" "$into/files/usr/lib/modules"
  touch "$into/done"
}

# A root of the program, what it links, the files and a shell.
fetch bookworm busybox-static
cp "$folder"/kernel/busybox-static/files/bin/busybox "$root/bin/"
cp "$folder/build/bin/ztstream" "$root/bin/"
link() {
  local name path
  readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while read -r name; do
    for path in "$folder/sysroot"/{usr/,}lib/"$triple/$name"; do
      [ ! -e "$path" ] || [ -e "$root/lib/$triple/$name" ] || { install -D "$path" "$root/lib/$triple/$name" && link "$path"; }
    done
  done
}
link "$folder/build/bin/ztstream"
loader=$(readelf -p .interp "$folder/build/bin/ztstream" | grep -o '/lib[^ ]*')
install -D "$folder/sysroot/lib/$triple/$(basename "$loader")" "$root$loader"
cp tests/data/hdf5/*.h5 "$root/hdf5/"
/usr/bin/python3 -c '
import h5py, numpy, sys
with h5py.File(sys.argv[1], "w") as file:
    file.create_dataset("w", data=numpy.arange(1 << 23, dtype="i4") % 1000, chunks=(1 << 16,), compression="gzip", shuffle=True)
' "$root/hdf5/large.h5" || code=77 die "python3-h5py is missing"

# convert PROGRAM FOLDER: a line for each file, which must be the same everywhere.
cat >"$work/convert" <<'EOF'
convert() {
  for file in "$2"/*.h5; do
    name=${file##*/} status=0
    "$1" convert -q -f --exclude text "$file" -o "$tmp/x.zt" 2>"$tmp/said" || status=$?
    echo "FILE $name $status $([ $status != 0 ] || sha256sum <"$tmp/x.zt") $(head -n 1 "$tmp/said" | sed 's,/[^ ]*/,,g')"
  done
}
EOF
{
  echo '#!/bin/busybox sh'
  cat "$work/convert"
  cat <<'EOF'
/bin/busybox --install -s /bin
export PATH=/bin tmp=/tmp
mount -t proc proc /proc && mount -t devtmpfs dev /dev && mount -t tmpfs tmp /tmp
echo "KERNEL $(uname -srm), pages of $(awk '/KernelPageSize/ { print $2; exit }' /proc/self/smaps) KiB"
convert ztstream /hdf5
ztstream convert -q -f /hdf5/large.h5 -o /tmp/x.zt &
filter=0
while kill -0 $! 2>/dev/null; do
  for child in $(cat /proc/$!/task/$!/children 2>/dev/null); do
    ! grep -qs '^Seccomp:.*2' /proc/$child/status || filter=2
  done
done
echo "FILTER $filter"
poweroff -f
EOF
} >"$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"

tmp=$work
. "$work/convert"
{ convert "$folder/ztstream" "$root/hdf5" && echo 'FILTER 2'; } >"$work/expected"
status=0
for kernel in "${kernels[@]}"; do
  fetch $kernel
  image=$(echo "$folder/kernel/${kernel#* }/files/boot"/vmlinu*)
  start=$SECONDS
  timeout 300 "${machine[@]}" -m 3072 -smp "$(nproc)" -nographic -nic none -kernel "$image" -initrd "$work/initrd" \
    -append "console=$console quiet panic=-1 rdinit=/init" </dev/null 2>&1 | tr -d '\r' >"$work/console" || true
  grep -a '^KERNEL' "$work/console" || { tail -n 20 "$work/console" && status=1; }
  grep -aE '^(FILE|FILTER)' "$work/console" >"$work/said-there" || true
  diff "$work/expected" "$work/said-there" || status=1
  echo "try-kernel.sh: $arch: $(grep -c '^FILE' "$work/said-there") files in $((SECONDS - start)) s: $([ $status = 0 ] && echo "all good" || echo FAILED)"
done
exit $status
