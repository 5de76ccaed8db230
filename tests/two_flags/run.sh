#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/two_flags/run.sh COMPILER INCLUDE BUILD: a program whose files have different -march. A linker keeps one copy of each inline function, so
# none that two of them have may hold instructions that one of them must not: the fallback of attention has no AVX, whoever else has.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
compiler=$1 include=$2 build=$3
rm -rf "$build"
mkdir -p "$build"
cd "$build"
compile()
{
  local name=$1
  shift
  "$compiler" -std=c++20 -O1 "-I$include" "-DKVCACHE_TEST_FILE=$name" "$@" -c "$here/file.cpp" -o "$name.o"
  nm "$name.o" | awk '$2 == "W" || $2 == "V" { print $3 }' | LC_ALL=C sort >"$name.names"
  objdump -d --no-show-raw-insn "$name.o" >"$name.txt"
}
compile plain -DKVCACHE_TEST_MAIN
compile wider -march=haswell
compile widest -march=skylake-avx512

# none_in NAME OTHER WHAT PATTERN: no function of NAME that OTHER has too holds an instruction like PATTERN.
none_in()
{
  LC_ALL=C comm -12 "$1.names" "$2.names" >both.names
  awk -v pattern="$4" -v what="$3" '
    NR == FNR { both[$1] = 1; next }
    /^[0-9a-f]+ <.*>:$/ { name = $2; gsub(/[<>:]/, "", name); next }
    name in both && $0 ~ pattern { print "two_flags: " name " has " what ", and is in both files: " $0; bad = 1; name = "" }
    END { exit bad }' both.names "$1.txt" >found.txt || { c++filt <found.txt >&2; exit 1; }
}
none_in wider plain AVX '\tv[a-z0-9]+ .*%[xy]mm'
none_in widest plain AVX '\tv[a-z0-9]+ .*%[xyz]mm'
none_in widest wider AVX-512 '%zmm|%[xyz]mm(1[6-9]|2[0-9]|3[01])|%k[0-7]'
for name in plain wider widest; do
  grep -q portable "$name.names" || { echo "two_flags: $name has no fallback" >&2; exit 1; }
done
grep -q '%zmm' widest.txt || { echo "two_flags: -march=skylake-avx512 gave no AVX-512" >&2; exit 1; }
"$compiler" widest.o wider.o plain.o -o program
./program
