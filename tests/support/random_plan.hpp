// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Plans with something of everything, drawn at random, that a pool of the same sizes takes.

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>

#include <cstdint>

#include "support/hand_plan.hpp"
#include "support/random.hpp"

namespace kvcache_test {

inline kvcache::Plan random_plan(Random& random, kvcache::ControlOptions const& sizes)
{
  using kvcache::Index;
  kvcache::Plan plan;
  plan.step = kvcache::StepId{random.next()};
  plan.slot = random.below(kvcache::Plan::num_slots);
  plan.stream = kvcache::StreamId{plan.slot / 3};
  auto const page = [&] { return kvcache::PageId{random.between(1, sizes.pages)}; };
  auto const page_tokens = static_cast<std::uint32_t>(sizes.page_tokens);
  auto const row_of_page = [&] { return static_cast<Index>(random.below(page_tokens)); };
  for (std::uint32_t row = 0; row < sizes.max_sequences; ++row) {
    if (random.below(2) ==
        0) {  // no two deltas of one row: the order of entries is nobody's promise
      std::uint32_t const first = random.below(sizes.row_pages());
      std::uint32_t const count = random.below(sizes.row_pages() - first + 1);
      plan.tables.push_back(
        {kvcache::RowId{row}, first, count, static_cast<std::uint32_t>(plan.ids.size())});
      for (std::uint32_t i = 0; i < count; ++i) {
        plan.ids.push_back(page());
      }
    }
  }
  for (std::uint32_t i = random.below(5); i > 0; --i) {
    plan.moves.push_back({page(), page(), row_of_page(), row_of_page()});
  }
  for (std::uint32_t target = 2; target <= sizes.pages; ++target) {
    if (random.below(4) == 0) {
      plan.copies.push_back({kvcache::PageId{1},
                             kvcache::PageId{target},
                             static_cast<Index>(random.below(page_tokens + 1))});
    }
  }
  Index left = sizes.max_step_tokens;
  for (std::uint32_t row = 0; row < sizes.max_sequences; ++row) {
    auto const tokens = static_cast<Index>(random.between(1, 9));
    if (random.below(3) == 0 || tokens > left || tokens > sizes.max_sequence_tokens) {
      continue;
    }
    left -= tokens;
    auto const first = static_cast<Index>(
      random.below(static_cast<std::uint32_t>(sizes.max_sequence_tokens - tokens + 1)));
    add_chunk(plan, row, first, tokens);
    if (random.below(3) == 0) {
      plan.chunks.back().parents_at = static_cast<std::uint32_t>(plan.parents.size());
      for (Index i = 0; i < tokens; ++i) {
        plan.parents.push_back(static_cast<Index>(random.below(static_cast<std::uint32_t>(i) + 1)) -
                               1);
      }
    }
    if (first > 0 && random.below(2) == 0) {
      plan.chunks.back().slack =
        static_cast<Index>(random.below(static_cast<std::uint32_t>(first) + 1));
    }
  }
  return plan;
}

}  // namespace kvcache_test
