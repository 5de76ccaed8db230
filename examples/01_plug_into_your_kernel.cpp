// SPDX-License-Identifier: Apache-2.0
// Your attention kernel over the cache's pages: prefill in chunks, then decode, with grouped query heads. The
// kernel is in 01_your_kernel.hpp; here its results are compared with attention over plain arrays (01_textbook.hpp).
// 01_plug_into_your_kernel.cu is the same on a GPU.
// Read first: include/kvcache/view/batch_view.hpp. Next: 02_prefix.cpp.

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "01_textbook.hpp"
#include "01_your_kernel.hpp"

namespace {

using namespace example_01;

/// One forward pass: per layer, store the step's rows, then attend. Returns the largest difference.
double run(kvcache::BatchView<Layout> const& kv)
{
  double worst = 0.0;
  for (int layer = 0; layer < layers; ++layer) {
    for (Index token = 0; token < kv.num_tokens(); ++token) {
      for (int head = 0; head < kv_heads; ++head) {
        Index const index = kv.index(token);  // RoPE would turn k by kv.position(token)
        Vector const k = row('k', layer, head, index);
        Vector const v = row('v', layer, head, index);
        kv.append(kvcache::Solo{}, layer, head, token, k.data(), v.data());
      }
    }
    for (Index token = 0; token < kv.num_tokens(); ++token) {
      for (int head = 0; head < heads; ++head) {
        Index const index = kv.index(token);
        Vector const query = row('q', layer, head, index);
        Vector out(dim);
        attend(kv, layer, head / (heads / kv_heads), token, query.data(), out.data());
        std::vector<double> const want = plain_attention(layer, head, index);
        for (std::size_t d = 0; d < dim; ++d) {
          worst = std::max(worst, std::fabs(static_cast<double>(out[d]) - want[d]));
        }
      }
    }
  }
  return worst;
}

}  // namespace

int main()
{
  using Cache = kvcache::KVCache<Layout>;
  auto cache = Cache::create({.layers = layers, .kv_heads = kv_heads}, {.pages = 32});
  std::vector<kvcache::Token> const prompt(45, 1);
  auto sequence = cache->open({.tokens = prompt});
  double worst = 0.0;
  for (unsigned const tokens : {20U, 25U, 1U, 1U, 1U}) {  // two chunks of prefill, then decode
    std::vector<kvcache::Token> const chunk(tokens, 1);
    auto step = cache->prepare({{*sequence, chunk}});
    double const difference = run(step->view());
    step->commit();
    worst = std::max(worst, difference);
    std::printf(
      "%2u tokens more, %d rows: differs by %.1e\n", tokens, sequence->length(), difference);
  }
  std::printf("largest difference to plain attention: %.1e\n", worst);
  return worst < 1e-5 ? 0 : 1;
}
