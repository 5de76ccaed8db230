// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: the second argument of KVCache must be Policies<...>

#include <kvcache/kvcache.hpp>

int main()
{
  using Cache = kvcache::KVCache<kvcache::PagedHeads<float, 64, 16>, kvcache::Lru>;
  auto cache = Cache::create({.layers = 1, .kv_heads = 1}, {.pages = 4});
  return cache ? 0 : 1;
}
