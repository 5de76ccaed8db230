#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/nvcc/run.sh [BUILD]: the library under nvcc, warnings as errors.
#   - a unit for each room of include/kvcache with all of its headers, and one for the umbrella headers with attention's launches: for sm_80, sm_90,
#     sm_90a and sm_100;
#   - the same headers beside the toolkit's, by the host compiler alone; the twins of the converts agree with the toolkit's own;
#   - with -use_fast_math a turn of RoPE has an exact quotient and whole turns taken off;
#   - with --extended-lambda a bias that is a __device__ lambda; one that gives no number is refused by our sentence;
#   - every instruction of core/isa in one kernel, also for targets that have what those four lack, and that they use it;
#   - every kernel that is shipped: tests/kernels/run.sh, and the roofline in docs/gpu.md;
#   - the bars of bench/gpu compile and link;
#   - what cuda.cuh with one layout costs the compiler for the first and the last of these, and what view.hpp adds to a file (printed, no bar);
#   - the programs here, those of tests/gpu and examples/01 in CUDA, which also run where there is a GPU.
# Without nvcc it says so; that is a failure when CI is set.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${1:-$root/build/nvcc}

nvcc=$(command -v nvcc || true)
if [ -z "$nvcc" ] && [ -x /usr/local/cuda/bin/nvcc ]; then
  nvcc=/usr/local/cuda/bin/nvcc
fi
if [ -z "$nvcc" ]; then
  echo "nvcc: NOT CHECKED, there is no nvcc on PATH or in /usr/local/cuda/bin"
  [ -z "${CI:-}" ] || exit 1
  exit 0
fi

rm -rf "$build/units"
mkdir -p "$build/units"
# No --expt flag: a user's build does not have it either.
flags=(-std=c++20 -Werror all-warnings "-I$root/include" -Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow,-Werror)
architectures=(80 90 90a 100)
gencode=()
for architecture in "${architectures[@]}"; do
  gencode+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done

# later CMD...: one more command for all_at_once, which runs them as many at a time as there are cores and fails when one does.
later()
{
  printf '%q ' "$@" >>"$build/commands"
  echo >>"$build/commands"
}
all_at_once()
{
  xargs -d '\n' -P "$(nproc)" -I{} bash -c '{} || exit 255' <"$build/commands"
  : >"$build/commands"
}
: >"$build/commands"

"$root/bench/gpu/run.sh" --list >"$build/bench_gpu.txt" 2>&1 &
bench_gpu=$!

cd "$root/include"
for room in kvcache/*/; do
  find "$room" -name '*.hpp' -o -name '*.cuh' | LC_ALL=C sort | sed 's/.*/#include <&>/' >"$build/units/$(basename "$room").cu"
done
printf '#include <%s>\n' kvcache/*.hpp kvcache/*.cuh kvcache/attention/device.cuh >"$build/units/umbrellas.cu"
cd "$build/units"
headers=$(cat ./*.cu | wc -l)
for unit in *.cu; do
  later "$nvcc" "${flags[@]}" "${gencode[@]}" -c "$unit" -o "${unit%.cu}.o"
done
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include
host=(-std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror "-I$root/include")
compilers=()
for cxx in g++ clang++; do
  command -v "$cxx" >/dev/null || continue
  compilers+=("$cxx")
  for order in -UOURS_FIRST -DOURS_FIRST; do
    later "$cxx" "${host[@]}" -fsyntax-only $order -isystem "$toolkit" "$root/tests/nvcc/toolkit_headers.cpp"
  done
  later "$cxx" "${host[@]}" -O1 -isystem "$toolkit" "$root/tests/nvcc/toolkit_converts.cpp" -o "$build/toolkit_converts_$cxx"
done
for target in 89 100a 100f 120f; do
  later "$nvcc" "${flags[@]}" -gencode "arch=compute_$target,code=sm_$target" -c "$root/tests/nvcc/isa.cu" -o "$build/isa_$target.o"
done
for target in 80 90 100 100f; do
  later "$nvcc" "${flags[@]}" -ptx "-arch=compute_$target" "$root/tests/nvcc/isa.cu" -o "$build/isa_$target.ptx"
done
later "$nvcc" "${flags[@]}" -use_fast_math -ptx -arch=compute_90 "$root/tests/nvcc/fast_math.cu" -o "$build/fast_math.ptx"
later "$nvcc" "${flags[@]}" --extended-lambda -arch=sm_90 -c "$root/tests/nvcc/lambda_bias.cu" -o "$build/lambda_bias.o"
later g++ "${host[@]}" -O1 "-I$root/tests" -c "$root/tests/nvcc/isa_twins.cpp" -o "$build/isa_twins.o"
later g++ "${host[@]}" "$root/tests/kernels/roofline.cpp" -o "$build/roofline"
all_at_once

for unit in *.cu; do
  [ -s "${unit%.cu}.o" ] || { echo "nvcc: $unit gave no object" >&2; exit 1; }
done
echo "nvcc: $headers headers in $(ls ./*.cu | wc -l) units compile for" \
  "$(printf 'sm_%s ' "${architectures[@]}")"
for cxx in "${compilers[@]}"; do
  "$build/toolkit_converts_$cxx"
  echo "nvcc: the headers go with the toolkit's under $cxx, in either order"
done
for want in 80,e4m3x2,0 90,e4m3x2,3 90,m16n8k32.row.col.f32.e4m3,2 90,rn.bf16x2.f32,1 100,e2m1x2,0 100f,e2m1x2,2; do
  IFS=, read -r target instruction count <<<"$want"
  found=$(grep -c "$instruction" "$build/isa_$target.ptx" || true)
  [ "$found" = "$count" ] || { echo "nvcc: core/isa uses $instruction $found times on sm_$target, not $count" >&2; exit 1; }
done
echo "nvcc: every instruction of core/isa assembles, also for sm_89, sm_100a, sm_100f and sm_120f"

if grep -E 'div\.(approx|full)' "$build/fast_math.ptx" || ! grep -q 'div\.rn' "$build/fast_math.ptx" ||
  ! grep -q 'cvt\.rni' "$build/fast_math.ptx"; then
  echo "nvcc: with -use_fast_math a turn has an approximate quotient, or the sine of an angle with its whole turns" >&2
  exit 1
fi
echo "nvcc: with -use_fast_math a turn has an exact quotient, and the sine of an angle less its whole turns"

if "$nvcc" "${flags[@]}" --extended-lambda -arch=sm_90 -DKVCACHE_NO_NUMBER -c "$root/tests/nvcc/lambda_bias.cu" -o "$build/no_number.o" \
  >"$build/no_number.txt" 2>&1 || ! grep -q 'kvcache: a bias is called with a ScoreAt and gives a number' "$build/no_number.txt"; then
  cat "$build/no_number.txt" >&2
  echo "nvcc: a __device__ lambda that gives no number is not refused by our sentence" >&2
  exit 1
fi
echo "nvcc: a __device__ lambda is a bias where it gives a number"

"$root/tests/kernels/run.sh" "$nvcc" "$build/kernels" "${architectures[@]}"
"$build/roofline" "$build/kernels/used.txt" >"$build/roofline.txt"
while IFS= read -r line; do
  grep -qxF "$line" "$root/docs/gpu.md" || { echo "nvcc: docs/gpu.md lacks this line of the roofline: $line" >&2; exit 1; }
done <"$build/roofline.txt"

rc=0
wait "$bench_gpu" || rc=$?
cat "$build/bench_gpu.txt"
[ $rc = 0 ] || exit 1

# CPU seconds of one compilation.
seconds_of()
{
  local TIMEFORMAT='%U %S'
  { time "$nvcc" -std=c++20 "-I$root/include" "$@" -c -o "$build/timed.o"; } 2>&1 | awk 'END { printf "%.1f\n", $1 + $2 }'
}
for architecture in "${architectures[0]}" "${architectures[-1]}"; do  # the others take as long
  echo "nvcc: cuda.cuh with one layout takes" \
    "$(seconds_of "-gencode=arch=compute_$architecture,code=sm_$architecture" "$root/tests/nvcc/one_layout.cu") s of CPU for sm_$architecture"
done
echo '__global__ void nothing() {}' >"$build/without.cu"
{ echo '#include <kvcache/view.hpp>'; cat "$build/without.cu"; } >"$build/with.cu"
for file in without with; do
  echo "nvcc: a file $file view.hpp takes" \
    "$(for i in 1 2 3; do seconds_of -arch=sm_90 "$build/$file.cu"; done | sort -n | head -1) s of CPU, the least of three"
done

programs=(tests/gpu/plans examples/01_plug_into_your_kernel tests/nvcc/append_and_read tests/nvcc/isa tests/nvcc/one_stream tests/gpu/attention)
for source in "${programs[@]}"; do
  program=$(basename "$source")
  objects=()
  [ "$program" != isa ] || objects=("$build/isa_twins.o")
  targets=("${gencode[@]}")
  case $program in attention | one_stream) targets=(-gencode arch=compute_90,code=sm_90) ;; esac  # tests/kernels has its kernels for all
  later "$nvcc" "${flags[@]}" "-I$root/tests" "${targets[@]}" "$root/$source.cu" "${objects[@]}" -o "$build/$program"
done
all_at_once
for source in "${programs[@]}"; do
  rc=0
  "$build/$(basename "$source")" || rc=$?
  [ $rc = 0 ] || [ $rc = 77 ] || exit 1
done
