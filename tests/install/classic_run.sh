#!/usr/bin/env bash
# In a copy of examples/classic: builds it against an installed libztstream and checks what it writes and says.
#
#   classic_run.sh LIBRARY_FOLDER [ZTSTREAM]
set -euo pipefail
library=$1 program=${2:-}
edges=$(dirname "$(realpath "$0")")/classic_edges.py
export PKG_CONFIG_PATH=$library/pkgconfig LD_LIBRARY_PATH=$library

make -s all CC=gcc CXX=g++
if command -v cmake >/dev/null; then
  cmake -S . -B build -G 'Unix Makefiles' -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ \
    -DCMAKE_PREFIX_PATH="$(realpath "$library/..")" >configure.log
  make -s -C build >build.log
else
  echo "no cmake here: tried by make alone" >&2
fi

says() {  # says EXPECTED COMMAND...
  local expected=$1 said
  shift
  said=$("$@" 2>&1) || said+=" [exit $?]"
  [ "$said" = "$expected" ] || { printf '%s\nexpected:\n%s\nsaid:\n%s\n' "$*" "$expected" "$said" >&2; exit 1; }
}
for folder in . build; do
  [ -x "$folder/exporter" ] || continue
  rm -f a.zt b.zt
  says '' "$folder/exporter" a.zt
  says 'graph sparse_csr u64 2x3
positions dense i64 5x2
lm_head.weight dense f32 4x3 sum 66
model.embed_tokens.weight dense f32 4x3 sum 66' "$folder/reader" a.zt
  says '0
1
2
3
4
5' "$folder/c_exporter" b.zt
  says 'no/a.zt: there is no folder no; make the folder first [exit 6]' "$folder/exporter" no/a.zt
  says 'none.zt: cannot open: No such file or directory [exit 6]' "$folder/reader" none.zt
done
if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
  says 'int64 (5, 2) [[0, 0], [1, 1], [2, 4], [3, 9], [4, 16]]' /usr/bin/python3 load.py a.zt positions
  says 'float32 (2, 3) [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]' /usr/bin/python3 load.py b.zt weight
  says 'float32 (5, 3) [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [2.0, 0.0, 1.0], [3.0, 0.0, 1.0], [4.0, 0.0, 1.0]]' \
    /usr/bin/python3 load.py b.zt history
  /usr/bin/python3 -B "$edges"
fi
[ -z "$program" ] || { "$program" verify a.zt; "$program" verify b.zt; }
cp a.zt bad.zt
printf '\1' | dd of=bad.zt bs=1 seek=70 conv=notrunc status=none
./reader bad.zt >/dev/null 2>said && { echo "damage was not found" >&2; exit 1; }
grep -q 'digest' said || { cat said >&2; exit 1; }
echo "classic: C, C++17 and Python used the installed library"
