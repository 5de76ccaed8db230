// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/thread_block.hpp>

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

/// A whole warp, of which this is number `lane`; the compiler knows its size.
struct WarpLanes {
  std::int32_t lane;
  KVCACHE_HOST_DEVICE constexpr std::int32_t rank() const { return lane; }
  KVCACHE_HOST_DEVICE static constexpr std::int32_t size() { return warp_lanes; }
};

static_assert(Team<Solo> && Team<Lanes> && Team<WarpLanes>);

/// The team of all threads of a block, as in `kv.append(team_of(block), layer, head, token, k, v)`.
template <ThreadBlock B>
KVCACHE_HOST_DEVICE constexpr Lanes team_of(B const& block)
{
  return {block.thread(), block.threads()};
}
/// The team of all lanes of a warp: `team_of(block.warp())`.
template <ThreadWarp W>
KVCACHE_HOST_DEVICE constexpr WarpLanes team_of(W const& warp)
{
  return {warp.lane()};
}

}  // namespace kvcache::inline v0_1
