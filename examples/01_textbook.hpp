// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What both programs of example 01 compare with: a small model's numbers, and attention by the textbook.

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace example_01 {

using kvcache::Index;
using Layout = kvcache::PagedHeads<kvcache::half, 64, 16>;
using Vector = std::vector<float>;

constexpr int layers = 2;
constexpr int kv_heads = 2;
constexpr int heads = 8;  // four query heads read one KV head
constexpr int dim = 64;

/// What a model would compute as q, k or v; exact in half, so that both sides see the same.
inline Vector row(char what, int layer, int head, Index index)
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
inline std::vector<double> plain_attention(int layer, int head, Index index)
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

}  // namespace example_01
