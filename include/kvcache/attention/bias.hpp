// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

/// \file A number of the caller's to add to a score.
///
///   auto const alibi = [&](kvcache::ScoreAt at) {
///     return slope[at.query_head] * static_cast<float>(at.row - view.index(at.token));
///   };
///   attend(view, plan, layer, io, item, alibi);
///
/// For `device.cuh` the functor's call is KVCACHE_HOST_DEVICE or `__device__`; with nvcc's --extended-lambda a lambda will do.
///
/// The library knows no bias by name. Without a functor no code for one is made.

namespace kvcache::inline v0_1 {

/// One score: a query head of a token of the step, and a row of the token's sequence that it sees.
struct ScoreAt {
  Index token;
  std::int32_t query_head;
  Index row;
};

/// What adds nothing.
struct NoBias {
  KVCACHE_HOST_DEVICE constexpr float operator()(ScoreAt) const { return 0.0F; }
};

/// A functor that says what to add to a score, after scale and soft cap. -infinity leaves the row out, and so does whatever is as
/// low as floats go, or bfloat16 (below -2.34e38): nothing of the row reaches the query, whatever its K and V are, and a query of
/// which no row is left gives 0 and -infinity. With -ffinite-math-only return the lowest float: an infinity in your own
/// arithmetic is then anything.
/// **Post** the same number for the same score, on any thread: a score may be asked for more than once.
/// **Threads** called from all threads that run items.
template <class B>
concept ScoreBias = requires(B const& bias, ScoreAt at) {
  { bias(at) } -> std::convertible_to<float>;
};

static_assert(ScoreBias<NoBias>);

/// What a kernel takes for a `ScoreBias`: nvcc gives host code a `__device__` lambda without its call, so nothing is asked of it
/// until the kernel calls it.
template <class B>
concept DeviceScoreBias = std::copy_constructible<B>;

}  // namespace kvcache::inline v0_1
