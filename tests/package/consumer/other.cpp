// SPDX-License-Identifier: Apache-2.0

#include <kvcache/kvcache.hpp>
#include <kvcache/version.hpp>

int version_seen_by_the_other_file()
{
  return KVCACHE_VERSION_MAJOR * 10000 + KVCACHE_VERSION_MINOR * 100 + KVCACHE_VERSION_PATCH;
}
