// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/dtype.hpp>

#include <concepts>
#include <type_traits>

/// \file What the type of an element must be: ours, or an engine's own.
///
///   template <> struct kvcache::ElementTraits<engine::bf16> {
///     KVCACHE_HOST_DEVICE static float to_float(engine::bf16 x) { return engine::widen(x); }
///     KVCACHE_HOST_DEVICE static engine::bf16 from_float(float x) { return engine::narrow(x); }
///   };
///   using Layout = kvcache::PagedHeads<engine::bf16, 128, 16>;
///
/// Rows then have the engine's type in every view. Axiom: `from_float(to_float(x))` is `x` for all that is no NaN.

namespace kvcache::inline v0_1 {

/// A type that rows can be made of: plain bytes, 1, 2, 4 or 8 of them, with `ElementTraits`.
template <class T>
concept Element =
  std::is_trivially_copyable_v<T> &&
  (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8) && requires(T x, float f) {
    { ElementTraits<T>::to_float(x) } -> std::same_as<float>;
    { ElementTraits<T>::from_float(f) } -> std::same_as<T>;
  };

static_assert(Element<float> && Element<half> && Element<bfloat16> && !Element<int>);

}  // namespace kvcache::inline v0_1
