// SPDX-License-Identifier: Apache-2.0
#include <kvcache/replace/sieve.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "conformance/replacement.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;
using kvcache_test::candidates;
using Ids = std::vector<std::uint32_t>;

namespace {

/// Algorithm 1 of the paper over a plain vector, with spans in use that stay in the queue and are stepped over.
class NaiveSieve {
 public:
  void idle(std::uint32_t id)
  {
    if (Item* const item = find(id)) {
      item->idle = item->marked = true;
    } else {
      queue_.push_back({.id = id, .idle = true, .marked = false});
    }
  }
  void busy(std::uint32_t id) { find(id)->idle = false; }
  void remove(std::uint32_t id)
  {
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      if (queue_[i].id == id) {
        queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
        hand_ -= i < hand_ ? 1U : 0U;
        return;
      }
    }
  }
  std::optional<std::uint32_t> victim()
  {
    if (std::none_of(queue_.begin(), queue_.end(), [](Item const& item) { return item.idle; })) {
      return std::nullopt;
    }
    for (;; ++hand_) {
      hand_ = hand_ >= queue_.size() ? 0 : hand_;
      Item& item = queue_[hand_];
      if (item.idle && !item.marked) {
        return item.id;
      }
      item.marked = item.marked && !item.idle;
    }
  }

 private:
  struct Item {
    std::uint32_t id;
    bool idle;
    bool marked;
  };
  Item* find(std::uint32_t id)
  {
    auto const at =
      std::find_if(queue_.begin(), queue_.end(), [&](Item const& item) { return item.id == id; });
    return at == queue_.end() ? nullptr : &*at;
  }
  std::vector<Item> queue_;
  std::size_t hand_ = 0;
};

/// Breaks one axiom each, to show that the suite sees it.
struct KeepsMarks : Sieve {
  using Sieve::Sieve;
  void restore(SpanId span, SpanFacts const& facts) noexcept { on_idle(span, facts); }
};
struct BlindToParents : Sieve {
  using Sieve::Sieve;
  void on_idle(SpanId span, SpanFacts const&) noexcept { Sieve::on_idle(span, {}); }
};

}  // namespace

TEST_CASE("Sieve: conforms to Replacement", "[replace][sieve]")
{
  kvcache_test::verify_replacement<Sieve>(17);
  kvcache_test::verify_replacement<Sieve>(18);
}

TEST_CASE("Sieve: the conformance suite catches what breaks an axiom", "[replace][sieve]")
{
  CHECK(kvcache_test::first_breach<KeepsMarks>(17, 1000).has_value());
  CHECK(kvcache_test::first_breach_in_forest<BlindToParents>(17, 1000).has_value());
}

TEST_CASE("Sieve: a span that is used again keeps its place and gets one more round",
          "[replace][sieve]")
{
  Sieve sieve;
  REQUIRE(sieve.reserve(10));
  for (std::uint32_t id : {4U, 2U, 9U}) {
    sieve.on_idle(SpanId{id}, {});
  }
  CHECK(candidates(sieve) == Ids{4, 2, 9});
  sieve.on_busy(SpanId{4});
  CHECK(candidates(sieve) == Ids{2, 9});
  sieve.on_idle(SpanId{4}, {});
  CHECK(candidates(sieve) == Ids{2, 9, 4});
  CHECK(sieve.victim() == SpanId{2});  // the hand took the mark of 4
  sieve.on_busy(SpanId{2});
  sieve.on_remove(SpanId{2});
  CHECK(sieve.victim() == SpanId{9});
  sieve.on_idle(SpanId{2}, {});  // another span of that id: new, at the young end
  CHECK(candidates(sieve) == Ids{9, 2, 4});
  sieve.on_busy(SpanId{9});
  sieve.on_hit(SpanId{9});
  sieve.on_idle(SpanId{9}, {});
  CHECK(candidates(sieve) == Ids{2, 4, 9});
}

TEST_CASE("Sieve: a span with candidates below it waits for them, in its place", "[replace][sieve]")
{
  Sieve sieve;
  REQUIRE(sieve.reserve(10));
  SpanFacts const below{.parent = SpanId{0}};
  sieve.on_idle(SpanId{0}, {});
  sieve.on_idle(SpanId{5}, {});
  sieve.on_busy(SpanId{0});
  sieve.on_idle(SpanId{1}, below);
  sieve.on_idle(SpanId{0}, {});
  CHECK(candidates(sieve) == Ids{5, 1, 0});
  for (std::uint32_t const expected : {5U, 1U, 0U}) {
    CHECK(sieve.victim() == SpanId{expected});
    sieve.on_busy(SpanId{expected});
    sieve.on_remove(SpanId{expected});
  }
  CHECK(sieve.victim() == std::nullopt);
}

TEST_CASE("Sieve: restore gives hand and marks back", "[replace][sieve]")
{
  Sieve sieve;
  REQUIRE(sieve.reserve(20));
  for (std::uint32_t id = 0; id < 8; ++id) {
    sieve.on_idle(SpanId{id}, {});
  }
  for (std::uint32_t id : {1U, 3U, 4U}) {
    sieve.on_busy(SpanId{id});
    sieve.on_idle(SpanId{id}, {});
  }
  Ids const before{0, 2, 5, 6, 7, 1, 3, 4};
  CHECK(candidates(sieve) == before);
  for (std::uint32_t n = 1; n <= 8; ++n) {  // n victims leave, and come back
    for (std::uint32_t k = 0; k < n; ++k) {
      CAPTURE(n, k, sieve.victim()->value);
      REQUIRE(sieve.victim() == SpanId{before[k]});
      sieve.on_busy(SpanId{before[k]});
      sieve.on_remove(SpanId{before[k]});
    }
    for (std::uint32_t k = n; k-- > 0;) {
      sieve.restore(SpanId{before[k]}, {});
    }
    CHECK(candidates(sieve) == before);
    CHECK(sieve.check_invariants());
  }
}

TEST_CASE("Sieve: equals the paper's queue over random calls", "[replace][sieve]")
{
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    kvcache_test::Random random(seed);
    Sieve sieve;
    NaiveSieve naive;
    REQUIRE(sieve.reserve(8));
    REQUIRE(sieve.reserve(30));
    bool equal = true;
    for (int step = 0; step < 30'000 && equal; ++step) {
      SpanId const id{random.below(30)};
      std::uint32_t const what = random.below(4);
      if (what == 0) {
        auto const victim = sieve.victim();
        auto const expected = naive.victim();
        equal =
          victim.has_value() == expected.has_value() && (!victim || victim->value == *expected);
        if (victim && random.below(2) == 0) {
          sieve.on_busy(*victim);
          sieve.on_remove(*victim);
          naive.remove(victim->value);
        }
      } else if (sieve.is_candidate(id)) {
        sieve.on_busy(id);
        naive.busy(id.value);
        if (random.below(8) == 0) {
          sieve.on_remove(id);
          naive.remove(id.value);
        }
      } else {
        sieve.on_idle(id, {});
        naive.idle(id.value);
      }
      equal = equal && sieve.check_invariants();
    }
    CHECK(equal);
  }
}
