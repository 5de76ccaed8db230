#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/gpu/run.sh [--only G1,G7] [--json FILE] [--rounds N] [--list]: builds the bars of the GPU for the one here, checks each
# result, and times them: meant to take under five minutes on an H200, whose memory holds the largest (80 GiB).
# Exit 0: every selected bar holds or is not built, or there is no GPU, which is said. 1: one does not hold. 2: bad arguments.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build/bench-gpu
nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || nvcc=/usr/local/cuda/bin/nvcc
if [ ! -x "$nvcc" ]; then
  echo "bench/gpu: skipped, there is no nvcc"
  exit 0
fi
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d . || true)
compile_only=false
if [ -z "$capability" ]; then
  compile_only=true
  capability=90
fi

mkdir -p "$build"
rm -f "$build"/*.o
printf '%s\n' "$root"/bench/gpu/*.cu "$root/bench/main.cpp" |
  xargs -P "$(nproc)" -I{} sh -c '"$1" -std=c++20 -O3 -DNDEBUG -Werror all-warnings "-arch=sm_$2" "-I$3/include" "-I$3/bench" \
    -c "$5" -o "$4/$(basename "$5").o" || exit 255' sh "$nvcc" "$capability" "$root" "$build" {} || exit 2
"$nvcc" "-arch=sm_$capability" "$build"/*.o -o "$build/kvcache_bench_gpu" || exit 2
if $compile_only; then
  echo "bench/gpu: skipped, there is no GPU; the bars compile"
  exit 0
fi
exec "$build/kvcache_bench_gpu" "$@"
