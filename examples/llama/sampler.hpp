// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace llama {

/// PCG32 (O'Neill 2014): small, and the same numbers on every platform.
class Pcg32 {
 public:
  /// Different `stream`s of one `seed` are independent.
  explicit Pcg32(std::uint64_t seed, std::uint64_t stream = 0);
  [[nodiscard]] std::uint32_t next();
  /// Uniform in [0, 1), 24 bits.
  [[nodiscard]] float uniform();

 private:
  std::uint64_t state_ = 0;
  std::uint64_t increment_ = 0;
};

struct SamplerOptions {
  float temperature = 0.0F;  // 0: greedy
  float top_p = 1.0F;        // the smallest set of tokens that reaches this probability
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // one per fork
};

/// Chooses the next token.
class Sampler {
 public:
  explicit Sampler(SamplerOptions options)
      : options_(options), random_(options.seed, options.stream)
  {
  }
  /// **Pre** `logits` is not empty. NaN is never chosen while a number is there.
  [[nodiscard]] std::int32_t pick(std::span<float const> logits);

 private:
  SamplerOptions options_;
  Pcg32 random_;
  std::vector<std::pair<float, std::int32_t>> order_;  // kept between calls to save its memory
};

/// The id of the largest logit; the lowest id among equals. **Pre** not empty.
[[nodiscard]] std::int32_t greedy(std::span<float const> logits);

}  // namespace llama
