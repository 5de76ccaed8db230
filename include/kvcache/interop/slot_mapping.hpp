// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/interop/check_source.hpp>
#include <kvcache/interop/table_source.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

/// \file Where each token of a step is stored, as vLLM's `reshape_and_cache` kernels take it: `slot_mapping`.
///
///   pages of 4, a = [ 7 3 5 ]       tokens   a:9  a:10  b:2  padding
///                b = [ 1 ]          slots     21    22    6       -1
///
/// The body of a kernel is `TableSource::slot`: a token each.

namespace kvcache::inline v0_1 {

/// What other engines number slots with: vLLM int64, FlashInfer's quantising append either.
template <class T>
concept SlotNumber = std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

namespace detail {

/// Whether `T` can number the slots of the pool.
template <SlotNumber T>
[[nodiscard]] Error check_slots(TableSource const& source) noexcept
{
  std::int64_t const last = std::int64_t{source.segment.num_pages} * source.page_tokens - 1;
  if (last > std::numeric_limits<T>::max()) {
    return {Why::bad_config,
            "last slot of the pool",
            last,
            "an int32 slot_mapping numbers slots up to",
            std::int64_t{std::numeric_limits<T>::max()}};
  }
  return {};
}

}  // namespace detail

/// Fills one slot a token: page * page_tokens + offset, or -1 where nothing is to be stored, as behind the step's last
/// token. The tokens of a tree have the slots of their own rows, in order; a slot has nothing to do with a position.
/// **Shape** `slots[tokens]`. **Pre** the view's memory can be read from here. **Cost** O(slots). Allocates nothing.
/// **Errors** a span that is too small, or a pool of more slots than the type can number, with the figure; nothing is
/// written.
template <SlotNumber T>
[[nodiscard]] Result<Done> fill_slots(std::span<T> slots, TableSource const& source)
{
  if (Error const error = detail::check(source); error.why != Why::ok) {
    return error;
  }
  auto const tokens = static_cast<std::size_t>(source.counts[0]);
  if (slots.size() < tokens) {
    return detail::too_small("slot_mapping", slots.size(), tokens);
  }
  if (Error const error = detail::check_slots<T>(source); error.why != Why::ok) {
    return error;
  }
  for (std::size_t token = 0; token < slots.size(); ++token) {
    slots[token] = static_cast<T>(source.slot(static_cast<Index>(token)));
  }
  return Done{};
}

}  // namespace kvcache::inline v0_1
