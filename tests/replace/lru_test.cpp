// SPDX-License-Identifier: Apache-2.0
#include <kvcache/replace/lru.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "conformance/replacement.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;
using kvcache_test::candidates;
using Ids = std::vector<std::uint32_t>;

namespace {

/// A policy that breaks one axiom, to show that the suite sees it.
struct SplitsBackwards : Lru {
  using Lru::Lru;
  void on_split(SpanId head, SpanId tail) noexcept
  {
    if (is_candidate(tail)) {
      restore(head, {});  // older than its tail: the parent would leave before its child
    }
  }
};
struct ForgetsRestore : Lru {
  using Lru::Lru;
  void restore(SpanId span, SpanFacts const& facts) noexcept { on_idle(span, facts); }
};

}  // namespace

TEST_CASE("Lru: conforms to Replacement", "[replace][lru]")
{
  kvcache_test::verify_replacement<Lru>(17);
  kvcache_test::verify_replacement<Lru>(18);
}

TEST_CASE("Lru: the conformance suite catches a policy that forgets to restore", "[replace][lru]")
{
  CHECK(kvcache_test::first_breach<ForgetsRestore>(17, 1000).has_value());
}

TEST_CASE("Lru: spans leave in the order in which they fell idle", "[replace][lru]")
{
  Lru lru;
  REQUIRE(lru.reserve(10));
  for (std::uint32_t id : {4U, 2U, 9U}) {
    lru.on_idle(SpanId{id}, {});
  }
  CHECK(candidates(lru) == Ids{4, 2, 9});
  lru.on_hit(SpanId{4});  // a look alone is no use
  CHECK(lru.victim() == SpanId{4});
  lru.on_busy(SpanId{2});  // used, and given back
  lru.on_idle(SpanId{2}, {});
  CHECK(candidates(lru) == Ids{4, 9, 2});
  lru.on_busy(SpanId{4});
  CHECK(lru.victim() == SpanId{9});
  lru.restore(SpanId{4}, {});
  CHECK(candidates(lru) == Ids{4, 9, 2});
}

TEST_CASE("Lru: the head of a split span stands right behind its tail", "[replace][lru]")
{
  Lru lru;
  REQUIRE(lru.reserve(10));
  lru.on_idle(SpanId{1}, {});
  lru.on_idle(SpanId{2}, {});
  lru.on_split(SpanId{5}, SpanId{1});
  CHECK(candidates(lru) == Ids{1, 5, 2});
  lru.on_split(SpanId{6}, SpanId{2});
  CHECK(candidates(lru) == Ids{1, 5, 2, 6});
  lru.on_split(SpanId{7}, SpanId{8});  // in use: nothing to place
  CHECK(candidates(lru) == Ids{1, 5, 2, 6});
  CHECK(lru.check_invariants());

  SplitsBackwards twin;  // what a parent before its child looks like
  REQUIRE(twin.reserve(10));
  twin.on_idle(SpanId{1}, {});
  twin.on_split(SpanId{5}, SpanId{1});
  CHECK(candidates(twin) != Ids{1, 5});
}

TEST_CASE("Lru: equals a list over random calls", "[replace][lru]")
{
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    kvcache_test::Random random(seed);
    Lru lru;
    REQUIRE(lru.reserve(30));
    Ids list;
    bool equal = true;
    for (int step = 0; step < 30'000 && equal; ++step) {
      std::uint32_t const id = random.below(30);
      auto const at = std::find(list.begin(), list.end(), id);
      std::uint32_t const what = random.below(4);
      if (at == list.end()) {
        if (what == 0) {
          list.insert(list.begin(), id);
          lru.restore(SpanId{id}, {});
        } else {
          list.push_back(id);
          lru.on_idle(SpanId{id}, {});
        }
      } else if (what < 2) {
        list.erase(at);
        lru.on_busy(SpanId{id});
      } else if (what == 2) {
        std::uint32_t const head = random.below(30);
        if (std::find(list.begin(), list.end(), head) == list.end()) {
          list.insert(at + 1, head);
          lru.on_split(SpanId{head}, SpanId{id});
        }
      } else {
        lru.on_hit(SpanId{id});
      }
      equal = candidates(lru) == list && lru.check_invariants() && lru.size() == list.size() &&
              lru.victim() == (list.empty() ? std::nullopt : std::optional{SpanId{list[0]}});
    }
    CHECK(equal);
  }
}
