// SPDX-License-Identifier: Apache-2.0
// Rows that kernels take and give back by themselves, within what a plan reserved; and views that outlive their step.

#include <kvcache/kvcache.hpp>
#include <kvcache/view/reserved_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "interop/ragged_batch.hpp"
#include "support/catch.hpp"
#include "support/facade.hpp"
#include "support/random.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache_test;
using kvcache::Index;
using kvcache::ReservedRows;

namespace {

constexpr std::uint64_t first_seed = 20261130;
using Batch = RaggedBatch<>;

/// An engine that decodes in one launch: a block a chunk takes rows, stores something in them and thinks again.
struct DecodeAlone {
  kvcache::BatchView<Batch::Layout> kv;
  std::uint64_t seed;
  bool goes_on;       // from where the launch before stopped
  bool waits = true;  // before it says how far it came: a twin does not

  template <class Team, class Barrier>
  KVCACHE_HOST_DEVICE void decode(Team const& team, Index c, Barrier const& barrier) const
  {
    auto rows = goes_on ? ReservedRows<Batch::Layout>::as_left(kv, c)
                        : ReservedRows<Batch::Layout>::none_taken(kv, c);
    Random random(seed + static_cast<std::uint64_t>(c));
    for (std::uint32_t i = random.below(40); i > 0; --i) {
      if (random.below(3) == 0) {
        rows.roll_back(static_cast<Index>(random.below(5)) - 1);
        continue;
      }
      float k[8];
      float v[8];
      for (std::int32_t d = 0; d < 8; ++d) {
        k[d] = static_cast<float>(random.below(64));
        v[d] = -k[d];
      }
      if (Index const token = rows.take(); token >= 0) {
        for (std::int32_t head = 0; head < 3; ++head) {
          kv.append(team, 1, head, token, k, v);
        }
      }
    }
    if (waits) {
      barrier();
    }
    rows.publish(team);
  }
  template <kvcache::ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    for (Index c = block.index(); c < kv.num_chunks(); c += block.blocks()) {
      decode(kvcache::Lanes{block.thread(), block.threads()}, c, [&] { block.sync(); });
    }
  }
};

}  // namespace

TEST_CASE("ReservedRows: a chunk's tokens in order, never more, and back again", "[view][reserved]")
{
  for (std::uint64_t seed = first_seed; seed < first_seed + 10; ++seed) {
    CAPTURE(seed);
    Batch const batch(16, seed);
    auto const kv = batch.view();
    Random random(seed);
    for (Index c = 0; c < kv.num_chunks(); ++c) {
      auto const chunk = kv.chunk(c);
      Index const length = kv.lengths[chunk.row];
      auto rows = ReservedRows<Batch::Layout>::none_taken(kv, c);
      Index taken = 0;
      bool same = true;
      for (int i = 0; i < 60; ++i) {
        auto const n = static_cast<Index>(random.below(4)) - 1;
        if (random.below(3) == 0) {
          rows.roll_back(n);
          taken = std::max(0, taken - std::max(0, n));
        } else {
          Index const token = rows.take();
          same = same && token == (taken < chunk.tokens ? chunk.first_token + taken : -1);
          taken = std::min(chunk.tokens, taken + 1);
        }
        same = same && rows.taken() == taken && rows.left() == chunk.tokens - taken;
      }
      CHECK(same);
      CHECK(kv.lengths[chunk.row] == length);  // until it is said
      rows.publish(kvcache::Lanes{1, 2});
      CHECK(kv.lengths[chunk.row] == length);  // one member says it
      rows.publish(kvcache::Solo{});
      CHECK(kv.lengths[chunk.row] == chunk.first_index + taken);
      CHECK(ReservedRows<Batch::Layout>::as_left(kv, c).taken() == taken);
    }
  }
}

TEST_CASE("ReservedRows: no length leads out of the chunk", "[view][reserved]")
{
  Batch const batch(16, first_seed + 2);
  auto const kv = batch.view();
  REQUIRE(kv.num_chunks() > 0);
  auto const chunk = kv.chunk(0);
  constexpr Index least = -0x7fffffff - 1;
  for (Index const wrong :
       {least, -1, 0, chunk.first_index, chunk.first_index + chunk.tokens, 0x7fffffff}) {
    kv.lengths[chunk.row] = wrong;
    Index const taken = ReservedRows<Batch::Layout>::as_left(kv, 0).taken();
    CHECK(taken == (wrong > chunk.first_index ? chunk.tokens : 0));
  }
}

TEST_CASE("ReservedRows: kernels that decode alone write what a host would",
          "[view][reserved][simt]")
{
  bool twin_seen = false;
  std::uint64_t seed = first_seed;
  for (simt::Options const& schedule : simt::schedules(first_seed)) {
    CAPTURE(++seed, simt::to_string(schedule));
    Batch const batch(16, seed);
    auto kv = batch.view();
    std::vector<Index> const before(kv.lengths, kv.lengths + Batch::table_rows);
    std::vector<Index> lengths = before;
    std::vector<std::byte> want(kv.segment.base, kv.segment.base + batch.arena_bytes());
    std::vector<std::byte> got = want;
    kv.lengths = lengths.data();
    kv.segment.base = want.data();
    for (bool const goes_on : {false, true}) {
      for (Index c = 0; c < kv.num_chunks(); ++c) {
        DecodeAlone{kv, seed, goes_on}.decode(kvcache::Solo{}, c, [] {});
      }
    }
    std::vector<Index> const wanted_lengths = lengths;
    lengths = before;
    kv.segment.base = got.data();
    for (bool const goes_on : {false, true}) {
      simt::launch(5, 32, 0, DecodeAlone{kv, seed, goes_on}, schedule);
    }
    bool const same = got == want && lengths == wanted_lengths;
    CHECK(same);
    lengths = before;
    for (bool const goes_on : {false, true}) {
      if (!schedule.threads) {  // a race, which ThreadSanitizer would report
        simt::launch(5, 32, 0, DecodeAlone{kv, seed, goes_on, false}, schedule);
      }
    }
    twin_seen = twin_seen || lengths != wanted_lengths || got != want;
  }
  CHECK((twin_seen || simt::has_tsan));
}

TEST_CASE("BatchView: a view that outlives its step is stale", "[view][reserved]")
{
  auto cache = make_cache(20);
  auto sequence = prefilled(cache, {1, 2, 3});
  auto step = cache.prepare({{sequence, Tokens{4}}});
  REQUIRE(step);
  auto const old = step->view();
  auto const graph = old.of({});
  CHECK_FALSE(old.stale());
  CHECK(step->commit());
  CHECK_FALSE(old.stale());  // its arrays are as they were
  bool reused = false;
  for (int i = 0; i < 4 && !reused; ++i) {
    auto next = cache.prepare({{sequence, Tokens{5}}});
    REQUIRE(next);
    reused = next->view().counts == old.counts;
    CHECK_FALSE(next->view().stale());
    CHECK(old.stale() == reused);
    CHECK_FALSE(graph.stale());
    CHECK(next->commit());
  }
  CHECK(reused);
#if !defined(NDEBUG)
  std::string const words = last_words([&] { (void)old.row_of(0, 0, 0); });
  CHECK_THAT(words, Contains("this view is of a step that is over"));
  CHECK_THAT(words, EndsWith("aborted"));
  CHECK_THAT(last_words([&] { (void)old.tiles(0, 0, 0); }), EndsWith("aborted"));
#endif
}
