// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/item.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/attention/sight.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvcache::inline v0_1::detail {

/// What a plan holds: `planner.hpp` fills it, `plan.hpp` shows it.
struct AttentionWork {
  std::vector<AttentionItem> items;
  std::vector<AttentionMerge> merges;
  std::vector<std::size_t> parts;    // items, as merges join them
  std::vector<std::size_t> shares;   // of worker w: items [shares[w], shares[w + 1])
  std::vector<Sight> sights;         // of the step's tokens
  std::vector<Index> shared_tokens;  // of shared items
  std::size_t scratch_floats = 0;
  AttentionShape shape{};
  std::int32_t head_dim = 0;
  InstructionSet instructions = InstructionSet::portable;

  void clear() noexcept
  {
    items.clear();
    merges.clear();
    parts.clear();
    shares.clear();
    sights.clear();
    shared_tokens.clear();
    scratch_floats = 0;
  }
  [[nodiscard]] Sight sight(Index token) const noexcept
  {
    return sights[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] Index token(AttentionItem const& item, Index t) const noexcept
  {
    Index const at = item.first_token + t;
    return item.shared ? shared_tokens[static_cast<std::size_t>(at)] : at;
  }
  /// **Units** query rows that meet a KV row of one head.
  [[nodiscard]] std::int64_t cost(AttentionItem const& item) const noexcept
  {
    constexpr std::int64_t load = 4;  // a KV row from memory, in query rows that meet it
    std::int64_t pairs = 0;
    for (Index t = 0; t < item.tokens; ++t) {
      Sight const sees = sight(token(item, t));
      Index const first = sees.first > item.begin ? sees.first : item.begin;
      Index const last = sees.last < item.end ? sees.last : item.end;
      pairs += last > first ? last - first : 0;
    }
    return item.heads * (item.queries * pairs + load * (item.end - item.begin));
  }
};

}  // namespace kvcache::inline v0_1::detail
