#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/nvcc/run.sh [BUILD]: compiles view.hpp, layout/ and kvcache.hpp with nvcc for sm_90, warnings as errors, and runs the small
# kernel where there is a GPU. Without nvcc it says so; that is a failure when CI is set.
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

mkdir -p "$build"
# No --expt flag: a user's build does not have it either.
flags=(-std=c++20 -gencode "arch=compute_90,code=sm_90" -Werror all-warnings "-I$root/include"
  -Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow,-Werror)

(
  echo "// Every header of layout/ and view/, and the whole library for a host program."
  cd "$root/include"
  find kvcache/layout kvcache/view kvcache/kvcache.hpp -name '*.hpp' | LC_ALL=C sort | sed 's/.*/#include <&>/'
) >"$build/headers.cu"
"$nvcc" "${flags[@]}" -c "$build/headers.cu" -o "$build/headers.o"
"$nvcc" "${flags[@]}" -c "$root/tests/nvcc/attend.cu" -o "$build/attend.o"
"$nvcc" "${flags[@]}" "$root/tests/nvcc/append_and_read.cu" -o "$build/append_and_read"
echo "nvcc: $(grep -c include "$build/headers.cu") headers, attend.cu and append_and_read.cu compile for sm_90"

rc=0
"$build/append_and_read" || rc=$?
[ $rc = 0 ] || [ $rc = 77 ]
