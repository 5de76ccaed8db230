#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/run.sh [ctest arguments]: installs what is missing, builds every test into build/tests and runs them all.
# Its last lines are ctest's own; the exit status is not 0 when a build or a test fails.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/tests
# shellcheck source=cmake/need_packages.sh
. "$root/cmake/need_packages.sh"
need_packages g++=g++ cmake=cmake make=make catch2=/usr/include/catch2 \
  libboost-context-dev=/usr/include/boost/context/detail/fcontext.hpp

jobs=$(nproc)
echo "== configuring $build"
cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVCACHE_WERROR=ON -DKVCACHE_BUILD_TESTS=ON \
  -DKVCACHE_BUILD_EXAMPLES=ON -DKVCACHE_BUILD_BENCH=ON </dev/null
echo "== building the tests with $jobs jobs"
cmake --build "$build" --parallel "$jobs" </dev/null
echo "== running the tests"
cd "$build"
exec ctest --output-on-failure --parallel "$jobs" "$@" </dev/null
