// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file Random numbers that are the same everywhere: a failing seed replays on any machine.

namespace kvcache_test {

/// SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next()
  {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  /// 0 to `bound - 1`.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(next() % bound); }

  /// `first` to `last`.
  std::uint32_t between(std::uint32_t first, std::uint32_t last)
  {
    return first + below(last - first + 1);
  }

 private:
  std::uint64_t state_;
};

}  // namespace kvcache_test
