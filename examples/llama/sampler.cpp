// SPDX-License-Identifier: Apache-2.0
#include "sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace llama {

namespace {

constexpr std::uint64_t multiplier = 6364136223846793005U;

/// NaN counts as minus infinity: it loses against every number.
float ranked(float logit)
{
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

}  // namespace

Pcg32::Pcg32(std::uint64_t seed, std::uint64_t stream) : increment_((stream << 1U) | 1U)
{
  (void)next();
  state_ += seed;
  (void)next();
}

std::uint32_t Pcg32::next()
{
  std::uint64_t const old = state_;
  state_ = old * multiplier + increment_;
  auto const mixed = static_cast<std::uint32_t>(((old >> 18U) ^ old) >> 27U);
  auto const turn = static_cast<std::uint32_t>(old >> 59U);
  return (mixed >> turn) | (mixed << ((32U - turn) & 31U));
}

float Pcg32::uniform()
{
  return static_cast<float>(next() >> 8U) * 0x1p-24F;
}

std::int32_t greedy(std::span<float const> logits)
{
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (ranked(logits[i]) > ranked(logits[best])) {
      best = i;
    }
  }
  return static_cast<std::int32_t>(best);
}

std::int32_t Sampler::pick(std::span<float const> logits)
{
  std::int32_t const best = greedy(logits);
  float const top = logits[static_cast<std::size_t>(best)];
  if (options_.temperature <= 0.0F || !std::isfinite(top)) {
    return best;
  }
  order_.clear();
  double total = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    float const weight = std::exp((ranked(logits[i]) - top) / options_.temperature);
    if (weight > 0.0F) {
      order_.emplace_back(weight, static_cast<std::int32_t>(i));
      total += static_cast<double>(weight);
    }
  }
  double kept = total;
  std::size_t count = order_.size();
  if (options_.top_p < 1.0F) {
    std::ranges::sort(order_, [](auto const& a, auto const& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    kept = 0.0;
    count = 0;
    while (count < order_.size() &&
           (count == 0 || kept < static_cast<double>(options_.top_p) * total)) {
      kept += static_cast<double>(order_[count++].first);
    }
  }
  double point = static_cast<double>(random_.uniform()) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    point -= static_cast<double>(order_[i].first);
    if (point < 0.0) {
      return order_[i].second;
    }
  }
  return order_[count - 1].second;
}

}  // namespace llama
