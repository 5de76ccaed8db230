// SPDX-License-Identifier: Apache-2.0
// A user's program: two translation units with the same headers, which must link.

#include <kvcache/kvcache.hpp>
#include <kvcache/version.hpp>

#include <cstdio>

int version_seen_by_the_other_file();

int main()
{
  int const version =
    KVCACHE_VERSION_MAJOR * 10000 + KVCACHE_VERSION_MINOR * 100 + KVCACHE_VERSION_PATCH;
  std::printf(
    "kvcache %d.%d.%d\n", KVCACHE_VERSION_MAJOR, KVCACHE_VERSION_MINOR, KVCACHE_VERSION_PATCH);
  return version_seen_by_the_other_file() == version ? 0 : 1;
}
