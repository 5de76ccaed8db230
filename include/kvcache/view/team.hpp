// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <concepts>
#include <cstdint>

/// \file The set of threads that run one functor.

namespace kvcache::inline v0_1 {

/// What a functor needs of its threads: who am I, out of how many.
template <class T>
concept Team = requires(T const team) {
  { team.rank() } -> std::convertible_to<std::int32_t>;
  { team.size() } -> std::convertible_to<std::int32_t>;
};

/// One thread alone: a CPU engine, or one GPU thread per row.
struct Solo {
  KVCACHE_HOST_DEVICE constexpr std::int32_t rank() const { return 0; }
  KVCACHE_HOST_DEVICE constexpr std::int32_t size() const { return 1; }
};

/// `count` threads of which this is number `lane`, such as `Lanes{threadIdx.x % 32, 32}` for a warp.
struct Lanes {
  std::int32_t lane;
  std::int32_t count;
  KVCACHE_HOST_DEVICE constexpr std::int32_t rank() const { return lane; }
  KVCACHE_HOST_DEVICE constexpr std::int32_t size() const { return count; }
};

static_assert(Team<Solo> && Team<Lanes>);

}  // namespace kvcache::inline v0_1
