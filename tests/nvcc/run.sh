#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/nvcc/run.sh [BUILD]: the library under nvcc, warnings as errors.
#   - a unit for each room of include/kvcache with all of its headers, one for the umbrella headers, and examples/01 in CUDA:
#     for sm_80, sm_90, sm_90a and sm_100, in one call;
#   - the same headers beside the toolkit's, by the host compiler alone;
#   - the small kernel, which also runs where there is a GPU.
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

cd "$root/include"
for room in kvcache/*/; do
  find "$room" -name '*.hpp' | LC_ALL=C sort | sed 's/.*/#include <&>/' >"$build/units/$(basename "$room").cu"
done
printf '#include <%s>\n' kvcache/*.hpp >"$build/units/umbrellas.cu"
cd "$build/units"
headers=$(cat ./*.cu | wc -l)
cp "$root/examples/01_plug_into_your_kernel.cu" .
"$nvcc" "${flags[@]}" "${gencode[@]}" "-I$root/examples" --threads "$(nproc)" -c ./*.cu
for unit in *.cu; do
  [ -s "${unit%.cu}.o" ] || { echo "nvcc: $unit gave no object" >&2; exit 1; }
done
echo "nvcc: $headers headers in $(ls ./*.cu | wc -l) units compile for" \
  "$(printf 'sm_%s ' "${architectures[@]}")"

toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include
for cxx in g++ clang++; do
  command -v "$cxx" >/dev/null || continue
  for order in -UOURS_FIRST -DOURS_FIRST; do
    "$cxx" -std=c++20 -fsyntax-only -Wall -Wextra -Wconversion -Wshadow -Werror $order "-I$root/include" -isystem "$toolkit" \
      "$root/tests/nvcc/toolkit_headers.cpp"
  done
  echo "nvcc: the headers go with the toolkit's under $cxx, in either order"
done

"$nvcc" "${flags[@]}" -gencode arch=compute_90,code=sm_90 "$root/tests/nvcc/append_and_read.cu" -o "$build/append_and_read"
rc=0
"$build/append_and_read" || rc=$?
[ $rc = 0 ] || [ $rc = 77 ]
