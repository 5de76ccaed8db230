#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run.sh [BUILD]: builds each program of this folder for the GPU that is here and runs it. Ends with 77, and says
# "skipped", where there is no GPU or no nvcc.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${1:-$root/build/gpu}

nvcc=$(command -v nvcc || true)
if [ -z "$nvcc" ] && [ -x /usr/local/cuda/bin/nvcc ]; then
  nvcc=/usr/local/cuda/bin/nvcc
fi
if [ -z "$nvcc" ] || ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "skipped: there is no ${nvcc:+GPU}${nvcc:-nvcc} here" | sed "s|GPU$nvcc|GPU|"
  exit 77
fi
mkdir -p "$build"
for source in "$root"/tests/gpu/*.cu; do
  program=$build/$(basename "$source" .cu)
  "$nvcc" -std=c++20 -O2 -Werror all-warnings -arch=native "-I$root/include" "-I$root/tests" "$source" -o "$program"
  "$program"
done
