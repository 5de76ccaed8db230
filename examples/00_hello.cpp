// SPDX-License-Identifier: Apache-2.0
// The smallest use: store the rows of a prompt, open the same prompt again, and find them.
// Read first: include/kvcache/core/ids.hpp, for the words. Next: 01_plug_into_your_kernel.cpp.

#include <kvcache/kvcache.hpp>

#include <cstdio>
#include <numeric>
#include <vector>

int main()
{
  using Cache = kvcache::KVCache<kvcache::PagedHeads<kvcache::half, 64, 16>>;
  auto cache = Cache::create({.layers = 2, .kv_heads = 4}, {.pages = 100});
  std::vector<kvcache::Token> prompt(40);
  std::iota(prompt.begin(), prompt.end(), 1);
  std::vector<float> const k(64, 1.0F), v(64, 2.0F);  // an engine computes these

  auto first = cache->open({.tokens = prompt});
  auto step = cache->prepare({{*first, prompt}});
  auto const kv = step->view();
  for (kvcache::Index token = 0; token < kv.num_tokens(); ++token) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < 4; ++head) {
        kv.append(kvcache::Solo{}, layer, head, token, k.data(), v.data());
      }
    }
  }
  step->commit();

  auto second = cache->open({.tokens = prompt});
  std::printf(
    "%d of %zu rows are cached: two whole pages of 16\n", second->cached(), prompt.size());
  return second->cached() == 32 ? 0 : 1;
}
