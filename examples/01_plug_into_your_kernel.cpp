// SPDX-License-Identifier: Apache-2.0
// Your attention kernel over the cache's pages: prefill in chunks, then decode, with grouped query heads. The
// kernel is in 01_your_kernel.hpp; here its results are compared with attention over plain arrays.
// Read first: include/kvcache/view/batch_view.hpp. Next: 02_prefix.cpp.

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "01_your_kernel.hpp"

namespace {

using kvcache::Index;
using Layout = kvcache::PagedHeads<kvcache::half, 64, 16>;
using Vector = std::vector<float>;

constexpr int layers = 2;
constexpr int kv_heads = 2;
constexpr int heads = 8;  // four query heads read one KV head
constexpr int dim = 64;

/// What a model would compute as q, k or v; exact in half, so that both sides see the same.
Vector row(char what, int layer, int head, Index index)
{
  std::uint64_t h = 0;
  for (int const part : {int{what}, layer, head, int{index}}) {
    h = kvcache::mix(h, static_cast<std::uint64_t>(part));
  }
  Vector out(dim);
  for (float& x : out) {
    h = kvcache::mix(h, 1);
    x = static_cast<float>(static_cast<int>(h % 257) - 128) / 64.0F;
  }
  return out;
}

/// The same by the textbook: all logits, softmax, weighted sum, in double.
std::vector<double> plain_attention(int layer, int head, Index index)
{
  int const kv_head = head / (heads / kv_heads);
  Vector const query = row('q', layer, head, index);
  std::vector<double> weights;
  for (Index i = 0; i <= index; ++i) {
    Vector const key = row('k', layer, kv_head, i);
    double dot = 0.0;
    for (std::size_t d = 0; d < dim; ++d) {
      dot += static_cast<double>(query[d]) * static_cast<double>(key[d]);
    }
    weights.push_back(dot / std::sqrt(static_cast<double>(dim)));
  }
  double const largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0.0;
  for (double& weight : weights) {
    sum += weight = std::exp(weight - largest);
  }
  std::vector<double> out(dim, 0.0);
  for (Index i = 0; i <= index; ++i) {
    Vector const value = row('v', layer, kv_head, i);
    for (std::size_t d = 0; d < dim; ++d) {
      out[d] += weights[static_cast<std::size_t>(i)] / sum * static_cast<double>(value[d]);
    }
  }
  return out;
}

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
