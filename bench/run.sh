#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/run.sh [--only P1,P6] [--json FILE] [--rounds N] [--list]: builds the bars in Release and runs them.
# Exit 0: every selected bar holds. 1: one does not, or the machine was too busy to say. 2: bad arguments.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/bench
# shellcheck source=cmake/need_packages.sh
. "$root/cmake/need_packages.sh"
need_packages g++=g++ cmake=cmake make=make

log=$(mktemp)
if ! { cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVCACHE_BUILD_BENCH=ON -DKVCACHE_BUILD_TESTS=OFF -DKVCACHE_BUILD_EXAMPLES=OFF &&
  cmake --build "$build" --target kvcache_bench --parallel "$(nproc)"; } >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$log"
  exit 2
fi
rm -f "$log"
exec "$build/bench/kvcache_bench" "$@"
