#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/soak.sh MINUTES [FIRST_SEED]: the model tests over and over, each time with seeds that were not used before, until
# the minutes are up or something breaks. Prints the operations done and the seeds used; after a breach, the shrunk script
# and a line that replays it, and the exit status is 1. KVCACHE_SOAK_BINARY: a model_tests that is built already.
set -euo pipefail
minutes=${1:-}
if ! [[ $minutes =~ ^[0-9]+$ ]] || ((minutes == 0)); then
  echo "usage: tests/soak.sh MINUTES [FIRST_SEED]" >&2
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
binary=${KVCACHE_SOAK_BINARY:-}
if [[ -z $binary ]]; then
  build=$root/build/tests
  # shellcheck source=cmake/need_packages.sh
  . "$root/cmake/need_packages.sh"
  need_packages g++=g++ cmake=cmake make=make catch2=/usr/include/catch2
  echo "== building the model tests in $build"
  cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVCACHE_WERROR=ON -DKVCACHE_BUILD_TESTS=ON \
    -DKVCACHE_BUILD_EXAMPLES=ON -DKVCACHE_BUILD_BENCH=ON </dev/null >/dev/null
  cmake --build "$build" --target model_tests --parallel "$(nproc)" </dev/null
  binary=$build/tests/model_tests
fi

facade="KVCache: random calls agree with the naive model"
flights="Control: random calls with steps in flight keep every row"
operations_a_round=200000
script_length=400
seeds_a_round=$((operations_a_round / script_length))
first=${2:-$(od -An -N5 -tu8 /dev/urandom | tr -d ' ')}
next=$first
total=0
deadline=$((SECONDS + minutes * 60))

# Of one model test, with the seeds from $next on.
round()
{
  local test=$1 said status=0
  said=$(KVCACHE_MODEL_FIRST=$next KVCACHE_MODEL_OPS=$operations_a_round timeout 1800 "$binary" "$test" 2>&1 </dev/null) ||
    status=$?
  local done_now
  done_now=$(grep -oE '[0-9]+ operations' <<<"$said" | head -n 1 | cut -d ' ' -f 1 || true)
  if ((status != 0)) || [[ -z $done_now ]]; then
    echo "$said"
    echo
    echo "== breach after $total operations without one, seeds from $first on"
    local seed
    seed=$(grep -oE 'KVCACHE_(MODEL|FLIGHT)_SEED=[0-9]+' <<<"$said" | head -n 1 || true)
    if [[ -n $seed ]]; then
      echo "replay: $seed '$binary' '$test'"
    else # it hung, or died before it could name a seed
      echo "replay: KVCACHE_MODEL_FIRST=$next KVCACHE_MODEL_OPS=$operations_a_round '$binary' '$test'"
    fi
    exit 1
  fi
  total=$((total + done_now))
}

echo "== soaking for $minutes minutes, seeds from $first on"
while ((SECONDS < deadline)); do
  round "$facade"
  round "$flights"
  next=$((next + seeds_a_round))
  printf '%s s: %s operations, seeds %s to %s\n' "$SECONDS" "$total" "$first" "$((next - 1))"
done
echo "== no breach: $total operations, seeds $first to $((next - 1)) in both models"
