#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/demo.sh [llama arguments]: installs what is missing, builds the toy Llama decoder into build/demo and runs
# its demo, or the program with the arguments given. Needs a C++20 compiler and CMake, nothing else.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/demo
# shellcheck source=cmake/need_packages.sh
. "$root/cmake/need_packages.sh"
if command -v clang++ >/dev/null 2>&1 && ! command -v g++ >/dev/null 2>&1; then
  export CXX=${CXX:-clang++}
else
  need_packages g++=g++
fi
need_packages cmake=cmake make=make

llama=$build/examples/llama/llama
log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ -x "$llama" ] || echo "== building $llama (the first time takes about a minute)"
if ! { cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVCACHE_BUILD_TESTS=OFF -DKVCACHE_BUILD_BENCH=OFF \
  -DKVCACHE_BUILD_EXAMPLES=ON && cmake --build "$build" --target llama --parallel "$(nproc)"; } >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  exit 1
fi
[ $# -gt 0 ] || set -- --demo
"$llama" "$@"
