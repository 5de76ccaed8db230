// SPDX-License-Identifier: Apache-2.0
// Plans of a sender that lies, or of a transport that repeats itself, on a device that runs late.

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/hand_plan.hpp"
#include "support/random.hpp"
#include "support/random_plan.hpp"
#include "support/streams_device.hpp"

namespace {

using namespace kvcache;
using kvcache_test::add_chunk;
using kvcache_test::pool_sizes;
using kvcache_test::Random;
using kvcache_test::set_table;
using kvcache_test::StartsWith;
using kvcache_test::StreamsDevice;

using Layout = PagedHeads<float, 8, 4>;
constexpr Geometry geometry{.layers = 1, .kv_heads = 1, .head_dim = 8, .page_tokens = 4};

Plan plan_of(std::uint64_t step, std::uint32_t slot, std::uint32_t row = 0, std::uint32_t page = 1)
{
  Plan plan;
  plan.step = StepId{step};
  plan.slot = slot;
  plan.stream = StreamId{slot / 3};
  set_table(plan, row, 0, {page});
  add_chunk(plan, row, 0, 1);
  return plan;
}

template <class P>
std::string refusal(P& pool, Plan const& plan)
{
  auto const applied = pool.apply(plan);
  return applied ? "applied" : applied.error().message().text;
}

/// What the kernels of a step see of its first token: page and place, behind the plan on the device.
struct Seen {
  Index tokens = -1;
  std::uint32_t page = 0;
  friend bool operator==(Seen const&, Seen const&) = default;
};

}  // namespace

TEST_CASE("Pool: plans of a stream come in order, each in a slot of its stream", "[pool][order]")
{
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 8));
  REQUIRE(pool);
  REQUIRE(pool->apply(plan_of(7, 0)));
  CHECK(refusal(*pool, plan_of(7, 0)) ==
        "plan.step = 7 (bad configuration): must be after the stream's last one, which was 7");
  CHECK(refusal(*pool, plan_of(6, 1)) ==
        "plan.step = 6 (bad configuration): must be after the stream's last one, which was 7");
  CHECK(pool->apply(plan_of(3, 4)));  // another stream's
  Plan plan = plan_of(8, 3);
  plan.stream = StreamId{0};
  CHECK_THAT(refusal(*pool, plan),
             StartsWith("plan.slot = 3 (bad configuration): must be one of its stream's"));
  plan.stream = StreamId{max_streams};
  CHECK(refusal(*pool, plan) == "plan.stream = 4 (bad configuration): must be below 4");
  CHECK(pool->apply(plan_of(8, 1)));
  // By hand, without a number: once a slot, until it is abandoned.
  CHECK_THAT(refusal(*pool, plan_of(0, 1)),
             StartsWith("plan.step = 0 (bad configuration): must be the number of a step"));
  CHECK(pool->apply(plan_of(0, 2)));
  CHECK(refusal(*pool, plan_of(0, 2)) != "applied");
  pool->abandon(2, {});
  CHECK(pool->apply(plan_of(0, 2)));
}

TEST_CASE("Pool: a plan says one thing of a row, and of a page that it copies", "[pool][order]")
{
  kvcache_test::CountingDevice device;
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 8), {}, &device);
  REQUIRE(pool);
  auto const calls = device.calls();
  Plan tables = plan_of(1, 0);
  set_table(tables, 0, 1, {2});
  CHECK(refusal(*pool, tables) == "plan.tables.row = 0 (bad configuration): must be named once");
  Plan chunks = plan_of(1, 0, 3);
  add_chunk(chunks, 3, 1, 1);
  CHECK(refusal(*pool, chunks) == "plan.chunks.row = 3 (bad configuration): must be named once");
  auto const copies = [](std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> pairs) {
    Plan plan = plan_of(1, 0);
    for (auto const& [source, target] : pairs) {
      plan.copies.push_back({PageId{source}, PageId{target}, 4});
    }
    return plan;
  };
  CHECK(refusal(*pool, copies({{1, 2}, {3, 2}})) ==
        "plan.copies.target = 2 (bad configuration): must be no page that another copy reads or "
        "writes");
  CHECK(refusal(*pool, copies({{1, 2}, {3, 1}})) ==
        "plan.copies.target = 1 (bad configuration): must be no page that another copy reads or "
        "writes");
  CHECK(refusal(*pool, copies({{1, 2}, {2, 3}})) ==
        "plan.copies.source = 2 (bad configuration): must be no page that another copy writes");
  CHECK(device.calls() == calls);  // refused whole
  CHECK(pool->apply(copies({{1, 2}, {1, 3}, {4, 5}})));
}

TEST_CASE("Pool: a slot that the device has yet to read is not written", "[pool][order]")
{
  auto const run = [](bool waits) {
    StreamsDevice device;
    device.waits_for_nothing = !waits;
    int tag = 0;
    StreamRef const stream{&tag, 0};
    auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 8), {}, &device);
    REQUIRE(pool);
    REQUIRE(pool->reserve(stream));
    std::vector<Seen> seen(2);
    for (std::uint32_t i = 0; i < 2; ++i) {  // the sender says that the first step is over
      REQUIRE(pool->apply(plan_of(i + 1, 0, 0, i + 5), stream));
      device.world.ask(&tag, [view = pool->view(0), &out = seen[i]] {
        out = {view.num_tokens(), view.segment.entry(0, 0, 0, 0)};
      });
    }
    device.world.finish(&tag);
    return seen;
  };
  CHECK(run(true) == std::vector<Seen>{{1, 5}, {1, 6}});
  CHECK_FALSE(run(false) == std::vector<Seen>{{1, 5}, {1, 6}});
}

TEST_CASE("Pool: a slot's buffer stays where it is, whatever is abandoned", "[pool][order]")
{
  /// Buffers that were given back serve again, as pinned ones do.
  struct Spy final : StreamsDevice {
    void const* source = nullptr;
    void upload(std::byte* to, void const* from, std::size_t n, StreamRef s) noexcept override
    {
      source = n > sizeof(void*) ? from : source;
      StreamsDevice::upload(to, from, n, s);
    }
  };
  Spy device;
  int tag = 0;
  StreamRef const stream{&tag, 0};
  auto pool = Pool<Layout>::create(geometry, pool_sizes(geometry, 8), {}, &device);
  REQUIRE(pool);
  REQUIRE(pool->reserve());
  REQUIRE(pool->apply(plan_of(1, 0), stream));
  void const* const captured = device.source;
  REQUIRE(pool->apply(plan_of(2, 1), stream));
  void const* const other = device.source;
  pool->abandon(0, stream);
  REQUIRE(pool->apply(plan_of(3, 0), stream));
  CHECK(device.source == captured);
  pool->abandon(1, stream);
  REQUIRE(pool->apply(plan_of(4, 1), stream));
  CHECK(device.source == other);
  CHECK(other != captured);
}

TEST_CASE("Pool: geometry and options agree, and are complete", "[pool][order]")
{
  ControlOptions options = pool_sizes(geometry, 8);
  options.page_tokens = 16;
  auto const torn = Pool<PagedHeads<float>>::create(geometry, options);
  REQUIRE_FALSE(torn);
  CHECK(std::string(torn.error().message().text) ==
        "page_tokens = 16 (bad configuration): of the options must be those of the geometry, "
        "which are 4");
  options.page_tokens = 0;
  CHECK_FALSE(Pool<PagedHeads<float>>::create(geometry, options));
  Geometry none = geometry;
  none.kv_heads = 0;
  CHECK_FALSE(Pool<PagedHeads<float>>::create(none, pool_sizes(geometry, 8)));
  // What `complete` fills in need not be there.
  ControlOptions const bare{
    .pages = 8, .page_tokens = 4, .max_sequences = 4, .max_step_tokens = 16};
  auto pool = Pool<PagedHeads<float>>::create(geometry, bare);
  REQUIRE(pool);
  CHECK(pool->apply(plan_of(1, 0)));
}

TEST_CASE("Pool: random plans of liars, on a device that runs late, write nothing else",
          "[pool][order]")
{
  std::uint64_t const seed = 20261130;
  CAPTURE(seed);
  Random random(seed);
  ControlOptions const sizes = pool_sizes(geometry, 12, 6, 40);
  std::size_t applied = 0;
  std::size_t refused = 0;
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    StreamsDevice device;
    constexpr std::size_t page_bytes = 4 * 8 * 2 * sizeof(float);
    struct alignas(128) Line {
      std::byte bytes[128];
    };
    std::vector<Line> memory((13 + 2) * page_bytes / sizeof(Line));
    std::memset(memory.data(), 0x5a, memory.size() * sizeof(Line));
    auto* const first = reinterpret_cast<std::byte*>(memory.data());
    std::byte* const arena = first + page_bytes;
    int tags[max_streams] = {};
    {
      auto pool = Pool<Layout>::create(geometry, sizes, {arena, 13 * page_bytes}, &device);
      REQUIRE(pool);
      std::uint64_t step = 0;
      for (int i = 0; i < 40; ++i) {
        Plan plan = kvcache_test::random_plan(random, sizes);
        step += random.below(3);
        plan.step = StepId{random.below(4) == 0 ? 0 : step};
        switch (random.below(12)) {  // the lies
          case 0:
            plan.slot = random.below(16);
            break;
          case 1:
            plan.stream = StreamId{random.below(6)};
            break;
          case 2:
            plan.step = StepId{random.next()};
            break;
          case 3:
            if (!plan.tables.empty()) {
              plan.tables.push_back(
                plan.tables[random.below(static_cast<std::uint32_t>(plan.tables.size()))]);
            }
            break;
          case 4:
            if (!plan.copies.empty()) {
              plan.copies.push_back(plan.copies[0]);
            }
            break;
          case 5:
            if (!plan.chunks.empty()) {
              plan.chunks.push_back(plan.chunks[0]);
            }
            break;
          case 6:
            plan.ids.resize(4000);
            break;
          default:
            break;
        }
        StreamRef const stream{&tags[random.below(max_streams)], random.below(max_streams)};
        (pool->apply(plan, stream) ? applied : refused) += 1;
        if (random.below(6) == 0) {
          device.world.finish(&tags[random.below(max_streams)]);
        }
        if (random.below(8) == 0) {
          pool->abandon(random.below(Plan::num_slots), stream);
        }
      }
      device.world.finish_all(random);
    }
    for (std::size_t i = 0; i < page_bytes; ++i) {
      REQUIRE(first[i] == std::byte{0x5a});
      REQUIRE(arena[i] == std::byte{0});  // the page of zeros
      REQUIRE(arena[13 * page_bytes + i] == std::byte{0x5a});
    }
  }
  CHECK(applied > 300);
  CHECK(refused > 300);
}
