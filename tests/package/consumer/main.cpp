// SPDX-License-Identifier: Apache-2.0
// A user's program: two translation units that use the same cache, which must link.

#include <cstdio>

#include "consumer.hpp"

int main()
{
  std::printf(
    "kvcache %d.%d.%d\n", KVCACHE_VERSION_MAJOR, KVCACHE_VERSION_MINOR, KVCACHE_VERSION_PATCH);
  auto cache = make_cache();
  return cache && rows_after_one_step(*cache) == 3 ? 0 : 1;
}
