// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: a part of Policies<...> has a role that this version does not know

#include <kvcache/kvcache.hpp>

struct MyRouter {
  struct role {};
};

using Layout = kvcache::PagedHeads<float, 64, 16>;
using Cache = kvcache::KVCache<Layout, kvcache::Policies<MyRouter>>;
int const size = sizeof(Cache);
