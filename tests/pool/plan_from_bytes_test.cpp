// SPDX-License-Identifier: Apache-2.0
// A worker that gets its plans as bytes holds what one holds that got the plans themselves.

#include <kvcache/control/plan_bytes.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/random_plan.hpp"

namespace {

using namespace kvcache;
using kvcache_test::bytes_of;

using Layout = PagedHeads<bfloat16>;
constexpr Geometry geometry{.layers = 2, .kv_heads = 2, .head_dim = 8, .page_tokens = 4};

/// Tables, lengths and the arrays of every slot.
std::vector<std::uint64_t> tables_of(Pool<Layout> const& pool, ControlOptions const& sizes)
{
  std::vector<std::uint64_t> out;
  auto const add = [&out](auto const* first, std::size_t n) {
    out.insert(out.end(), first, first + n);
  };
  auto const tokens = static_cast<std::size_t>(sizes.max_step_tokens);
  for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
    auto const view = pool.view(slot);
    add(view.counts, 2);
    add(view.token_row, tokens);
    add(view.token_index, tokens);
    add(view.token_mask, tokens);
    add(view.chunk_first, static_cast<std::size_t>(view.num_chunks()) + 1);
  }
  add(pool.view().segment.table, std::size_t{sizes.max_sequences} * sizes.row_pages());
  add(pool.view().lengths, sizes.max_sequences);
  return out;
}

}  // namespace

TEST_CASE("Pool: plans that went through bytes give the same bytes and tables",
          "[pool][plan_bytes]")
{
  constexpr std::uint64_t seed = 404;
  CAPTURE(seed);
  kvcache_test::Random random(seed);
  ControlOptions const sizes = kvcache_test::pool_sizes(geometry, 12, 6, 40);
  kvcache_test::CountingDevice devices[2];  // their memory starts the same
  auto first = Pool<Layout>::create(geometry, sizes, {}, &devices[0]);
  auto second = Pool<Layout>::create(geometry, sizes, {}, &devices[1]);
  REQUIRE(first);
  REQUIRE(second);
  std::vector<std::byte> bytes;
  Plan received;
  for (int step = 0; step < 200; ++step) {
    CAPTURE(step);
    Plan plan = kvcache_test::random_plan(random, sizes);
    plan.step = StepId{static_cast<std::uint64_t>(step + 1) << 40 | (plan.step.value & 0xffffffU)};
    REQUIRE(serialise(plan, bytes));
    REQUIRE(parse_plan(bytes, received));
    REQUIRE(first->apply(plan));
    REQUIRE(second->apply(received));
    auto const number = static_cast<float>(random.below(200));
    std::vector<float> const row(8, number);
    for (auto const* const pool : {&*first, &*second}) {
      auto const view = pool->view();
      for (Index token = 0; token < view.num_tokens(); ++token) {
        view.append(Solo{}, 1, 0, token, row.data(), row.data());
      }
    }
    REQUIRE(bytes_of(*first) == bytes_of(*second));
    REQUIRE(tables_of(*first, sizes) == tables_of(*second, sizes));
  }
  auto const all = bytes_of(*first);
  CHECK(std::count(all.begin(), all.end(), std::byte{0xcd}) <
        static_cast<std::ptrdiff_t>(all.size() - first->footprint().page_bytes()));
}
