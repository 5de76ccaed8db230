#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/headers/run.sh CXX INCLUDE [FLAGS...]: every header under INCLUDE/kvcache compiles alone, twice in a row (a missing
# include guard shows), and all of them together without exceptions, which is about what they say and not about order. Of
# these only the syntax is checked: nothing of it runs. Two files that include everything link: whatever is defined in a
# header may be defined twice. device/cuda*.hpp needs the toolkit's headers: tests/nvcc compiles it.
set -euo pipefail
cxx=$1 include=$2
shift 2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

headers=$(cd "$include" && find kvcache -name '*.hpp' ! -path 'kvcache/device/cuda*' | LC_ALL=C sort)
units=0
for header in $headers; do
  unit=$out/${header//\//_}.cpp
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" >"$unit"
  units=$((units + 1))
done
[ "$units" -ge 50 ] || { echo "only $units headers under $include/kvcache: is that the right folder?" >&2; exit 1; }

flags=(-std=c++20 -fsyntax-only "-I$include" "$@")
# xargs ends with 123 when any of them failed.
find "$out" -name '*.cpp' -print0 | xargs -0 -n1 -P "$(nproc)" "$cxx" "${flags[@]}"
printf '#include <%s>\n' $headers >"$out/all.cpp"
"$cxx" "${flags[@]}" -fno-exceptions "$out/all.cpp"
echo 'int main() {}' | cat "$out/all.cpp" - >"$out/main.cpp"
printf '%s\0' all main | xargs -0 -I{} -P "$(nproc)" "$cxx" -std=c++20 -O0 "-I$include" "$@" -c "$out/{}.cpp" -o "$out/{}.o"
"$cxx" "$out/all.o" "$out/main.o" -o "$out/linked"
"$out/linked"
echo "headers: $units compile alone, and together without exceptions; two files with all of them link"
