// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/thread_block.hpp>

#include <cstdint>
#include <type_traits>

/// \file Sums and maxima over the lanes of a warp, known to all of them afterwards.
///
/// `Lanes`, a power of two, splits the warp into groups of so many neighbours, each with a result of its own: 4 for the lanes
/// that hold a row of `mma`'s d. Floats meet in a butterfly, the farthest lanes first, so all lanes of a group get the same
/// bits, on both sides; they differ from a sum taken in order. Integers wrap.
/// **Cost** log2(Lanes) shuffles; one `redux.sync` for 32-bit integers over a whole warp.

namespace kvcache::inline v0_1::isa {

/// `max.f32`: a number beats NaN, +0 beats -0.
[[nodiscard]] KVCACHE_HOST_DEVICE inline float max_float(float a, float b)
{
#if defined(__CUDA_ARCH__)
  float d = 0.0F;
  asm("max.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
#else
  if (a != a) {
    return b != b ? __builtin_bit_cast(float, 0x7fffffffU) : b;
  }
  if (a == b) {  // which may be zeros of either sign
    return __builtin_bit_cast(
      float, __builtin_bit_cast(std::uint32_t, a) & __builtin_bit_cast(std::uint32_t, b));
  }
  return b > a ? b : a;  // also where b is NaN
#endif
}

namespace detail {

template <class T>
inline constexpr bool is_redux =
  std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::uint32_t>;

/// Combines what the lanes of a group hold. **Pre** `combine` is commutative.
template <int Lanes, class Warp, class T, class Combine>
[[nodiscard]] KVCACHE_HOST_DEVICE inline T reduce(Warp& warp, T x, Combine combine)
{
  static_assert(Lanes >= 1 && Lanes <= 32 && (Lanes & (Lanes - 1)) == 0,
                "kvcache: a warp reduces over 1, 2, 4, 8, 16 or 32 lanes");
  for (std::int32_t with = Lanes / 2; with > 0; with /= 2) {
    x = combine(x, warp.shuffle_xor(x, with, all_lanes));
  }
  return x;
}

struct Add {
  template <class T>
  KVCACHE_HOST_DEVICE T operator()(T a, T b) const
  {
    if constexpr (std::is_same_v<T, std::int32_t>) {
      return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <class T>
  KVCACHE_HOST_DEVICE T operator()(T a, T b) const
  {
    if constexpr (std::is_same_v<T, float>) {
      return max_float(a, b);
    } else {
      return a < b ? b : a;
    }
  }
};

}  // namespace detail

/// The sum of `x` over each group of `Lanes` lanes. `T` float, std::int32_t or std::uint32_t.
template <int Lanes = 32, class Warp, class T>
[[nodiscard]] KVCACHE_HOST_DEVICE inline T reduce_sum(Warp& warp, T x)
{
#if defined(__CUDA_ARCH__)
  if constexpr (Lanes == 32 && detail::is_redux<T>) {
    T d{};
    asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(d) : "r"(x));
    return d;
  } else
#endif
  {
    return detail::reduce<Lanes>(warp, x, detail::Add{});
  }
}

/// The maximum of `x` over each group of `Lanes` lanes. `T` float, std::int32_t or std::uint32_t.
template <int Lanes = 32, class Warp, class T>
[[nodiscard]] KVCACHE_HOST_DEVICE inline T reduce_max(Warp& warp, T x)
{
#if defined(__CUDA_ARCH__)
  if constexpr (Lanes == 32 && std::is_same_v<T, std::int32_t>) {
    T d{};
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(d) : "r"(x));
    return d;
  } else if constexpr (Lanes == 32 && std::is_same_v<T, std::uint32_t>) {
    T d{};
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(d) : "r"(x));
    return d;
  } else
#endif
  {
    return detail::reduce<Lanes>(warp, x, detail::Max{});
  }
}

}  // namespace kvcache::inline v0_1::isa
