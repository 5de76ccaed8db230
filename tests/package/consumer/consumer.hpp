// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/kvcache.hpp>
#include <kvcache/version.hpp>

using Cache = kvcache::KVCache<kvcache::PagedHeads<float, 8, 4>>;

inline kvcache::Result<Cache> make_cache()
{
  return Cache::create({.layers = 1, .kv_heads = 1}, {.pages = 4});
}

int rows_after_one_step(Cache& cache);
