// SPDX-License-Identifier: Apache-2.0
// Chunks of several tokens that share a prefix go together only as far as their query rows fit the state of an item.

#include <kvcache/attention/plan.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstddef>
#include <cstdint>

#include "support/catch.hpp"

using namespace kvcache;

TEST_CASE("AttentionPlan: chunks that share a prefix go together as far as the state has room",
          "[attention]")
{
  std::int32_t const room = detail::AttentionState::rows(32);
  Index const tokens =
    room * 7 / 16;  // two fit, three do not, and a fair share would be more than two
  constexpr std::uint32_t chunks = 16;
  ControlOptions options{
    .pages = 256, .page_tokens = 16, .max_sequences = chunks, .max_step_tokens = 4096};
  options.max_sequence_tokens = 1024;
  REQUIRE(options.complete().why == Why::ok);
  auto pool = Pool<PagedHeads<half>>::create(
    {.layers = 1, .kv_heads = 1, .head_dim = 32, .page_tokens = 16}, options);
  REQUIRE(pool);
  Plan plan;
  plan.step = StepId{1};
  for (std::uint32_t page = 1; page <= 64; ++page) {
    plan.ids.push_back(PageId{page});
  }
  for (std::uint32_t c = 0; c < chunks; ++c) {
    plan.tables.push_back({RowId{c}, 0, 64, 0});
    plan.chunks.push_back({SequenceId{c, 1}, RowId{c}, 512, tokens});
  }
  REQUIRE(pool->apply(plan));

  AttentionPlan work;
  REQUIRE(work.make(pool->view(), {.query_heads = 1, .kv_heads = 1}, {.shared_rows = 256}));

  std::size_t shared = 0;
  for (std::size_t i = 0; i < work.num_items(); ++i) {
    CHECK(work.item(i).rows() <= static_cast<std::size_t>(room));
    shared += work.item(i).shared ? 1U : 0U;
  }
  CHECK(shared > 0);
}
