// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: the second argument of KVCache must be Policies<...>

#include <kvcache/kvcache.hpp>

using Layout = kvcache::PagedHeads<float, 64, 16>;
using Cache = kvcache::KVCache<Layout, kvcache::Lru>;
int const size = sizeof(Cache);
