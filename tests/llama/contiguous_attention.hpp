// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "llama/forward.hpp"

namespace llama_test {

/// What paged attention must equal: one sequence, K and V in plain arrays, softmax in double precision.
class ContiguousAttention final : public llama::Attention {
 public:
  explicit ContiguousAttention(llama::Config const& config)
      : config_(config),
        k_(static_cast<std::size_t>(config.layers)),
        v_(static_cast<std::size_t>(config.layers))
  {
  }

  /// Tokens of the next step.
  void begin(std::size_t tokens) { tokens_ = tokens; }

  void attend(int layer, float const* q, float const* k, float const* v, float* out) override
  {
    auto const dim = static_cast<std::size_t>(config_.head_dim);
    auto const heads = static_cast<std::size_t>(config_.heads);
    auto const kv_heads = static_cast<std::size_t>(config_.kv_heads);
    std::size_t const width = kv_heads * dim;
    auto& keys = k_[static_cast<std::size_t>(layer)];
    auto& values = v_[static_cast<std::size_t>(layer)];
    std::size_t const before = keys.size() / width;
    keys.insert(keys.end(), k, k + tokens_ * width);
    values.insert(values.end(), v, v + tokens_ * width);
    double const scale = 1.0 / std::sqrt(static_cast<double>(dim));
    std::vector<double> weights;
    std::vector<double> sum(dim);
    for (std::size_t t = 0; t < tokens_; ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        std::size_t const at = h / (heads / kv_heads) * dim;
        float const* query = q + (t * heads + h) * dim;
        weights.assign(before + t + 1, 0.0);
        for (std::size_t r = 0; r < weights.size(); ++r) {
          for (std::size_t d = 0; d < dim; ++d) {
            weights[r] +=
              static_cast<double>(query[d]) * static_cast<double>(keys[r * width + at + d]) * scale;
          }
        }
        double const most = *std::max_element(weights.begin(), weights.end());
        double total = 0;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (std::size_t r = 0; r < weights.size(); ++r) {
          double const weight = std::exp(weights[r] - most);
          total += weight;
          for (std::size_t d = 0; d < dim; ++d) {
            sum[d] += weight * static_cast<double>(values[r * width + at + d]);
          }
        }
        for (std::size_t d = 0; d < dim; ++d) {
          out[(t * heads + h) * dim + d] = static_cast<float>(sum[d] / total);
        }
      }
    }
  }

 private:
  llama::Config config_;
  std::size_t tokens_ = 0;
  std::vector<std::vector<float>> k_;  // by layer, (rows, kv_heads, head_dim)
  std::vector<std::vector<float>> v_;
};

}  // namespace llama_test
