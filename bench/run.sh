#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/run.sh [--only P1,P6] [--json FILE] [--rounds N] [--list]: builds the bars in Release and runs them.
# Exit 0: every selected bar holds. 1: one does not, or the machine was too busy to say. 2: bad arguments.
#
# bench/run.sh --against COMMIT [--only P1,P6] [--json FILE] [--rounds N]: is this tree slower than that commit? The bars of this
# tree are built with the headers of both, both programs run in turn for N rounds (15 at least), and each bar gets the median
# of the rounds' ratios and an interval that holds the true one with 95 percent. Exit 0: no interval ends above 1.03.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/bench
# shellcheck source=cmake/need_packages.sh
. "$root/cmake/need_packages.sh"
need_packages g++=g++ cmake=cmake make=make valgrind=/usr/include/valgrind/callgrind.h

# build_bars TREE BUILD: what the compiler says is printed where it fails.
build_bars()
{
  local log
  log=$(mktemp)
  if ! { cmake -S "$1" -B "$2" -DCMAKE_BUILD_TYPE=Release -DKVCACHE_BUILD_BENCH=ON -DKVCACHE_BUILD_TESTS=OFF -DKVCACHE_BUILD_EXAMPLES=OFF &&
    cmake --build "$2" --target kvcache_bench --parallel "$(nproc)"; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

build_bars "$root" "$build" || exit 2
if [[ ${1:-} != --against ]]; then
  exec "$build/bench/kvcache_bench" "$@"
fi

need_packages git=git python3=python3
commit=$(git -C "$root" rev-parse --verify --quiet "${2:-}^{commit}") || {
  echo "bench/run.sh: --against ${2:-} names no commit" >&2
  exit 2
}
shift 2
old=$root/build/against/$commit
rm -rf "$old/tree"
mkdir -p "$old/tree"
git -C "$root" archive "$commit" | tar -x -C "$old/tree"
rm -r "$old/tree/bench"
cp -rp "$root/bench" "$old/tree/bench" # the same work, with the headers of then
if ! build_bars "$old/tree" "$old/build"; then
  echo "bench/run.sh: the bars of this tree do not build with the headers of ${commit:0:12}; the messages are above" >&2
  exit 2
fi
exec python3 "$root/bench/against.py" "$build/bench/kvcache_bench" "$old/build/bench/kvcache_bench" "$@"
