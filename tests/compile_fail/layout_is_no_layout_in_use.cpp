// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: the first argument of KVCache must be a layout

#include <kvcache/kvcache.hpp>

int main()
{
  auto cache = kvcache::KVCache<kvcache::half>::create({.layers = 1, .kv_heads = 1}, {.pages = 4});
  return cache ? 0 : 1;
}
