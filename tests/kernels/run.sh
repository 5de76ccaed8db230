#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/kernels/run.sh NVCC BUILD ARCHITECTURE...: compiles all.cu for each architecture with warnings as errors, reads what
# ptxas says of each kernel, and compares it with ceilings.txt: no spill, no more registers, shared memory or stack than stated,
# no kernel without a line and no line without a kernel. Embeds PTX for what comes after the last one. Prints a table.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
nvcc=$1 build=$2
shift 2
mkdir -p "$build"
# Each target by itself, so that what ptxas says of one is not torn apart by another.
jobs=()
for architecture in "$@"; do
  gencode=(-gencode "arch=compute_$architecture,code=sm_$architecture")
  if [ "$architecture" = "${!#}" ]; then
    newest=${architecture%[a-z]}
    gencode+=(-gencode "arch=compute_$newest,code=compute_$newest")
  fi
  "$nvcc" -std=c++20 -Werror all-warnings "-I$here/../../include" -Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow,-Werror \
    "${gencode[@]}" -Xptxas -v -c "$here/all.cu" -o "$build/all_$architecture.o" 2>"$build/ptxas_$architecture.txt" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do
  wait "$job" || { cat "$build"/ptxas_*.txt >&2; exit 1; }
done

# A line a kernel and target: name, target, registers, shared, stack, spilled bytes.
cat "$build"/ptxas_*.txt | c++filt | awk '
  /Compiling entry function/ {
    name = $0
    sub(/.*entry function .(void )?/, "", name); target = name
    sub(/.*for .sm_/, "sm_", target); sub(/[^0-9a-z_].*/, "", target)
    sub(/. for .sm_.*/, "", name)
    gsub(/kvcache::(v0_1::)?|detail::| /, "", name)
    if (name ~ /^run_kernel</) {        # run_kernel<NAME>(NAME)
      name = substr(name, 12); name = substr(name, 1, (length(name) - 3) / 2)
    }
    next
  }
  /bytes stack frame/ { stack = $1; spilled = $5 + $9; next }
  /Used [0-9]+ registers/ {
    registers = $5; shared = 0
    if (match($0, /[0-9]+ bytes smem/)) { shared = substr($0, RSTART) + 0 }
    print name, target, registers, shared, stack, spilled
  }' >"$build/used.txt"

awk -v ceilings="$here/ceilings.txt" '
  function complain(what) { print "kernels: " what > "/dev/stderr"; bad = 1 }
  BEGIN {
    while ((getline line < ceilings) > 0) {
      if (line !~ /^#/ && split(line, f, " ") == 4) { registers[f[1]] = f[2]; shared[f[1]] = f[3]; stack[f[1]] = f[4] }
    }
    printf "%-62s %-8s %9s %7s %6s\n", "kernel", "target", "registers", "shared", "stack"
  }
  {
    printf "%-62s %-8s %9d %7d %6d\n", $1, $2, $3, $4, $5
    seen[$1] = 1; n++
    if (!($1 in registers)) { complain($1 " has no line in ceilings.txt"); next }
    if ($6 != 0) complain($1 " spills " $6 " bytes on " $2)
    if ($3 > registers[$1]) complain($1 " takes " $3 " registers on " $2 ", " registers[$1] " are stated")
    if ($4 > shared[$1]) complain($1 " takes " $4 " bytes of shared memory on " $2 ", " shared[$1] " are stated")
    if ($5 > stack[$1]) complain($1 " takes " $5 " bytes of stack on " $2 ", " stack[$1] " are stated")
  }
  END {
    for (name in registers) if (!(name in seen)) complain(name " is in ceilings.txt and was not compiled")
    if (n == 0) complain("ptxas said nothing of any kernel")
    exit bad
  }' "$build/used.txt"
