// SPDX-License-Identifier: Apache-2.0
// Uploads that read their source late, while the host plans on.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/hand_plan.hpp"
#include "support/streams_device.hpp"

namespace {

using kvcache::Index;
using kvcache::Plan;
using kvcache_test::StreamsDevice;
using Layout = kvcache::PagedHeads<float>;

constexpr kvcache::Geometry geometry{.layers = 2, .kv_heads = 1, .head_dim = 8, .page_tokens = 4};

/// The fault, once it is switched on: one staging buffer for every step in flight.
class Stalled final : public StreamsDevice {
 public:
  bool one_buffer = false;

  void upload(std::byte* target,
              void const* source,
              std::size_t bytes,
              kvcache::StreamRef stream) noexcept override
  {
    if (one_buffer) {
      std::memcpy(buffer_.data(), source, bytes);
      source = buffer_.data();
    }
    StreamsDevice::upload(target, source, bytes, stream);
  }

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(1 << 16);
};

/// What the kernels of a step saw.
struct Seen {
  std::uint32_t pages[2];
  Index tokens;
  Index first;
  friend bool operator==(Seen const&, Seen const&) = default;
};

Index tokens_of(std::uint32_t step)
{
  return static_cast<Index>(1 + step % 5);
}

/// Applies step after step while the stream stands still, then lets it go. Step i has pages 2i + 1 and 2i + 2.
/// Of a faulty device only the plans share the buffer, not what makes the slots ready.
std::vector<Seen> run_steps(std::uint32_t steps, bool faulty)
{
  Stalled device;
  std::vector<Seen> seen(steps);
  auto made = kvcache::Pool<Layout>::create(
    geometry, kvcache_test::pool_sizes(geometry, 2 * steps, 1, 8), {}, &device);
  REQUIRE(made);
  // What the pool's beginning uploads counts too: the pool moves meanwhile.
  kvcache::Pool<Layout> pool(std::move(*made));
  for (std::uint32_t i = 0; faulty && i < steps; ++i) {
    Plan ready;
    ready.slot = i;
    ready.stream = kvcache::StreamId{i / 3};
    REQUIRE(pool.apply(ready));
  }
  if (faulty) {
    device.sync();
    device.one_buffer = true;
  }
  for (std::uint32_t i = 0; i < steps; ++i) {
    Plan plan;
    plan.step = kvcache::StepId{i + 1};
    plan.slot = i;
    plan.stream = kvcache::StreamId{i / 3};
    kvcache_test::set_table(plan, 0, 0, {2 * i + 1, 2 * i + 2});
    kvcache_test::add_chunk(plan, 0, static_cast<Index>(i), tokens_of(i));
    REQUIRE(pool.apply(plan));
    device.launch([view = pool.view(i), &out = seen[i]] {
      out = {{view.segment.entry(1, 0, 0, 0), view.segment.entry(1, 0, 0, 1)},
             view.num_tokens(),
             view.index(0)};
    });
  }
  device.sync();
  return seen;
}

std::vector<Seen> right(std::uint32_t steps)
{
  std::vector<Seen> out;
  for (std::uint32_t i = 0; i < steps; ++i) {
    out.push_back({{2 * i + 1, 2 * i + 2}, tokens_of(i), static_cast<Index>(i)});
  }
  return out;
}

}  // namespace

TEST_CASE("B-060 table upload from a reused staging buffer", "[faults][staging]")
{
  CHECK(run_steps(2, false) == right(2));
  CHECK(run_steps(Plan::num_slots, false) == right(Plan::num_slots));
  CHECK(run_steps(1, true) == right(1));
  CHECK_FALSE(run_steps(2, true) == right(2));
}

TEST_CASE("B-060 through the facade: two steps in flight, the stream stands still",
          "[faults][staging]")
{
  using Cache = kvcache::KVCache<Layout>;
  StreamsDevice device;
  auto cache = Cache::create(geometry, {.pages = 16, .max_step_tokens = 16, .device = &device});
  REQUIRE(cache);
  std::vector<kvcache::Token> const prompt{1, 2, 3, 4, 5, 6, 7};
  auto const a = cache->open({.tokens = prompt});
  REQUIRE(a);
  std::vector<Seen> seen(2);
  auto const watch = [&](auto& step, Seen& out) {
    device.launch([view = step.view(), &out] {
      auto const row = view.chunk(0).row;
      out = {{view.segment.entry(0, 0, row, 0), view.segment.entry(0, 0, row, 1)},
             view.num_tokens(),
             view.index(0)};
    });
  };
  auto first = cache->prepare({{*a, prompt}});
  REQUIRE(first);
  watch(*first, seen[0]);
  auto const pages = cache->pages(*a);
  std::vector<std::uint32_t> const held{pages[0].value, pages[1].value};
  std::vector<kvcache::Token> const more{8, 9, 10};
  auto second = cache->prepare({{*a, more}});
  REQUIRE(second);
  watch(*second, seen[1]);
  device.sync();
  CHECK(seen[0] == Seen{{held[0], held[1]}, 7, 0});
  CHECK(seen[1] == Seen{{held[0], held[1]}, 3, 7});
  REQUIRE(first->commit());
  REQUIRE(second->commit());
}
