// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: a replacement policy has `struct Options` with defaults

#include <kvcache/kvcache.hpp>

struct MyReplacement {
  using role = kvcache::role::replacement;
};

using Cache =
  kvcache::KVCache<kvcache::PagedHeads<float, 64, 16>, kvcache::Policies<MyReplacement>>;

int main()
{
  auto cache = Cache::create({.layers = 1, .kv_heads = 1}, {.pages = 4});
  return cache ? 0 : 1;
}
