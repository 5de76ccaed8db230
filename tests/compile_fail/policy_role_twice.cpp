// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: two parts of Policies<...> play the same role

#include <kvcache/kvcache.hpp>

using Layout = kvcache::PagedHeads<float, 64, 16>;
using Cache = kvcache::KVCache<Layout, kvcache::Policies<kvcache::Lru, kvcache::Lru>>;
int const size = sizeof(Cache);
