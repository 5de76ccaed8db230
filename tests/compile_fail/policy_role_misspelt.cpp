// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: a part of Policies<...> names no role

#include <kvcache/kvcache.hpp>

struct MyReplacement {
  using rolle = kvcache::role::replacement;
};

using Layout = kvcache::PagedHeads<float, 64, 16>;
using Cache = kvcache::KVCache<Layout, kvcache::Policies<MyReplacement>>;
int const size = sizeof(Cache);
