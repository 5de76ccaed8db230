// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: a part of Policies<...> names no role

#include <kvcache/kvcache.hpp>

struct MyReplacement {
  using roll = kvcache::role::replacement;
};

// As a user meets it: not `sizeof`, but a call.
int main()
{
  using Cache =
    kvcache::KVCache<kvcache::PagedHeads<float, 64, 16>, kvcache::Policies<MyReplacement>>;
  auto cache = Cache::create({.layers = 1, .kv_heads = 1}, {.pages = 4});
  return cache ? 0 : 1;
}
