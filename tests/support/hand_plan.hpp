// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Plans written by hand, for tests of what applies and reads them without a control plane.

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/layout/geometry.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "support/random.hpp"

namespace kvcache_test {

inline kvcache::ControlOptions pool_sizes(kvcache::Geometry const& g,
                                          kvcache::PageCount pages,
                                          std::uint32_t max_sequences = 4,
                                          kvcache::Index max_step_tokens = 64)
{
  kvcache::ControlOptions options{.pages = pages,
                                  .page_tokens = g.page_tokens,
                                  .max_sequences = max_sequences,
                                  .max_step_tokens = max_step_tokens};
  (void)options.complete();
  return options;
}

/// The plan with a number behind all before, and the stream that its slot is of, as control would number it.
[[nodiscard]] inline kvcache::Plan in_order(kvcache::Plan plan)
{
  static std::uint64_t steps = 0;
  plan.step = kvcache::StepId{++steps};
  plan.stream = kvcache::StreamId{plan.slot / 3};
  return plan;
}

/// Entries of `row` from `first` on become `pages`.
inline void set_table(kvcache::Plan& plan,
                      std::uint32_t row,
                      std::uint32_t first,
                      std::initializer_list<std::uint32_t> pages)
{
  plan.tables.push_back({kvcache::RowId{row},
                         first,
                         static_cast<std::uint32_t>(pages.size()),
                         static_cast<std::uint32_t>(plan.ids.size())});
  for (std::uint32_t const page : pages) {
    plan.ids.push_back(kvcache::PageId{page});
  }
}

inline void add_chunk(kvcache::Plan& plan,
                      std::uint32_t row,
                      kvcache::Index first_index,
                      kvcache::Index tokens)
{
  plan.chunks.push_back({kvcache::SequenceId{row, 1}, kvcache::RowId{row}, first_index, tokens});
}

/// Bytes that differ from place to place, in the first `pages` pages behind the page of zeros.
template <class Layout>
void fill(kvcache::Pool<Layout>& pool, std::uint64_t seed, kvcache::PageCount pages)
{
  Random random(seed);
  std::byte* const first = pool.page(kvcache::PageId{1});
  for (std::size_t i = 0; i < pool.footprint().page_bytes() * pages; ++i) {
    first[i] = static_cast<std::byte>(random.next());
  }
}

/// All bytes of the pages, to compare before and after.
template <class Layout>
std::vector<std::byte> bytes_of(kvcache::Pool<Layout> const& pool)
{
  std::byte const* const first = pool.page(kvcache::zero_page);
  return {first, first + pool.arena_bytes()};
}

}  // namespace kvcache_test
