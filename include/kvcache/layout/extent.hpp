// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdint>

/// \file A dimension that is either part of the type or a run-time number.

namespace kvcache::inline v0_1 {

/// Marks a dimension that is known only at run time.
inline constexpr std::int32_t dynamic = -1;

/// A dimension of `N`. **Cost** none: the compiler sees the number.
template <std::int32_t N>
struct Extent {
  static constexpr bool is_static = true;
  constexpr Extent() = default;
  KVCACHE_HOST_DEVICE constexpr explicit Extent(std::int32_t) {}
  KVCACHE_HOST_DEVICE constexpr std::int32_t get() const { return N; }
};

template <>
struct Extent<dynamic> {
  static constexpr bool is_static = false;
  std::int32_t value = 0;
  constexpr Extent() = default;
  KVCACHE_HOST_DEVICE constexpr explicit Extent(std::int32_t n) : value(n) {}
  KVCACHE_HOST_DEVICE constexpr std::int32_t get() const { return value; }
};

}  // namespace kvcache::inline v0_1
