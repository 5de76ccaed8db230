#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/demo.sh [llama arguments]: installs what is missing, builds the toy Llama decoder into build/demo and runs
# its demo, or the program with the arguments given. Needs a C++20 compiler and CMake, nothing else. KVCACHE_DEMO_BUILD
# names another folder, such as one that holds the same build already.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${KVCACHE_DEMO_BUILD:-$root/build/demo}
llama=$build/examples/llama/llama
# shellcheck source=cmake/need_packages.sh
. "$root/cmake/need_packages.sh"

packages=(cmake=cmake make=make)
if command -v clang++ >/dev/null 2>&1 && ! command -v g++ >/dev/null 2>&1; then
  export CXX=${CXX:-clang++}
else
  packages+=(g++=g++)
fi
need_packages "${packages[@]}"

build_llama()
{
  cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVCACHE_BUILD_TESTS=OFF -DKVCACHE_BUILD_BENCH=OFF \
    -DKVCACHE_BUILD_EXAMPLES=ON </dev/null &&
    cmake --build "$build" --target llama --parallel "$(nproc)" </dev/null
}
if [ -x "$llama" ]; then
  # Built before: bring it up to date, and speak only if that fails.
  log=$(mktemp)
  build_llama >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; exit 1; }
  rm -f "$log"
else
  echo "== building $llama, once"
  build_llama
fi

[ $# -gt 0 ] || set -- --demo
exec "$llama" "$@"
