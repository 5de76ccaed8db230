// SPDX-License-Identifier: Apache-2.0
#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "05_your_allocator.hpp"
#include "05_your_policy.hpp"
#include "conformance/replacement.hpp"
#include "support/catch.hpp"
#include "support/fenced_victims.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;
using Ids = std::vector<std::uint32_t>;
using Tokens = std::vector<Token>;

/// So quick to forget that the suite sees spans fall out of one list into the other all the time.
struct Forgetful : KeepAskedAgain {
  using KeepAskedAgain::KeepAskedAgain;
  Forgetful() : KeepAskedAgain({.keep = 3}) {}
};

/// What is wrong about looking plausible: a victim that comes back is the youngest.
struct RestoresAsNew : KeepAskedAgain {
  using KeepAskedAgain::KeepAskedAgain;
  void restore(SpanId span, SpanFacts const& facts) noexcept { on_idle(span, facts); }
};

/// A head that forgets what its tail was: one day the parent is in the list that leaves first, the child is not.
struct ForgetsAtSplit : KeepAskedAgain {
  using KeepAskedAgain::KeepAskedAgain;
  void on_split(SpanId head, SpanId tail) noexcept
  {
    KeepAskedAgain::on_split(head, tail);
    on_remove(head);
  }
};

Tokens numbers(Token first, std::size_t count)
{
  Tokens out(count);
  for (Token& token : out) {
    token = first++;
  }
  return out;
}

}  // namespace

TEST_CASE("KeepAskedAgain: conforms to Replacement", "[examples][replace]")
{
  kvcache_test::verify_replacement<KeepAskedAgain>(17);
  kvcache_test::verify_replacement<Forgetful>(18);
  CHECK(kvcache_test::first_breach<RestoresAsNew>(17, 1000).has_value());
  CHECK(kvcache_test::first_breach_in_forest<ForgetsAtSplit>(17, 100'000).has_value());
}

TEST_CASE("KeepAskedAgain: what was asked for again leaves last, until it is old",
          "[examples][replace]")
{
  KeepAskedAgain policy({.keep = 3});
  REQUIRE(policy.reserve(20));
  policy.on_idle(SpanId{1}, {});
  policy.on_busy(SpanId{1});
  policy.on_idle(SpanId{1}, {});
  policy.on_hit(SpanId{2});  // two users at once
  policy.on_idle(SpanId{2}, {});
  policy.on_idle(SpanId{3}, {});
  policy.on_idle(SpanId{4}, {});
  CHECK(kvcache_test::candidates(policy) == Ids{3, 4, 1, 2});
  policy.on_idle(SpanId{5}, {});  // the fourth since 1 was used
  CHECK(kvcache_test::candidates(policy) == Ids{3, 4, 5, 1, 2});
  policy.on_busy(SpanId{1});
  policy.on_idle(SpanId{1}, {});
  CHECK(kvcache_test::candidates(policy) == Ids{3, 4, 5, 2, 1});
}

TEST_CASE("BothHalves: keeps the axioms of Allocator, in a pool of any size", "[examples][alloc]")
{
  for (PageCount const pages : {1U, 2U, 7U, 40U}) {
    CAPTURE(pages);
    kvcache_test::Random random(pages);
    BothHalves allocator(pages);
    std::map<std::uint32_t, std::uint32_t> held;
    Ids released;  // a row of releases, which takes get back in reverse
    bool good = true;
    for (int step = 0; step < 20'000 && good; ++step) {
      std::vector<PageId> out(random.below(5));
      std::uint32_t const what = random.below(4);
      std::uint64_t const before = allocator.digest();
      if (what < 2) {
        good = allocator.take(out) == (held.size() + out.size() <= pages);
        if (held.size() + out.size() > pages) {
          good = good && allocator.digest() == before;
        } else if (what == 0) {
          allocator.untake(out);
          good = good && allocator.digest() == before;
        } else {
          for (PageId const page : out) {
            good = good && page.value >= 1 && page.value <= pages && held.count(page.value) == 0;
            good = good && (released.empty() || page.value == released.back());
            held[page.value] = 1;
            if (!released.empty()) {
              released.pop_back();
            }
          }
        }
      } else if (!held.empty()) {
        auto const at =
          std::next(held.begin(), random.below(static_cast<std::uint32_t>(held.size())));
        PageId const page{at->first};
        if (what == 2) {
          allocator.share(page);
          ++at->second;
        } else {
          good = allocator.release(page) == --at->second;
          if (at->second == 0) {
            released.push_back(page.value);
            held.erase(at);
          }
        }
      }
      good = good && allocator.num_free() + held.size() == pages && allocator.check_invariants();
      for (std::uint32_t page = 0; page <= pages + 1; ++page) {
        good = good && allocator.count(PageId{page}) == (held.count(page) == 0 ? 0 : held[page]);
      }
    }
    CHECK(good);
  }
}

TEST_CASE("KeepAskedAgain: a refused add beside another stream does not change what leaves next",
          "[examples]")
{
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CHECK(kvcache_test::refused_and_dropped_leave_the_order<KeepAskedAgain>(seed, false));
  }
}

TEST_CASE("KeepAskedAgain, BothHalves: a dropped step that evicted leaves no trace",
          "[examples][cache]")
{
  using Cache = KVCache<PagedHeads<float, 8, 4>, Policies<BothHalves, KeepAskedAgain>>;
  auto cache = Cache::create({.layers = 1, .kv_heads = 1}, {.pages = 9});
  REQUIRE(cache);
  for (Token const first : {100, 200, 100}) {  // the first is asked for again
    Tokens const prompt = numbers(first, 16);
    auto sequence = cache->open({.tokens = prompt});
    REQUIRE(sequence);
    Tokens const rest(prompt.begin() + sequence->cached(), prompt.end());
    cache->prepare({{*sequence, rest}})->commit();
  }
  Tokens const wanted = numbers(300, 24);
  auto sequence = cache->open({.tokens = wanted});
  REQUIRE(sequence);
  std::uint64_t const before = cache->digest();
  {
    auto step = cache->begin();
    REQUIRE(step);
    REQUIRE(step->add(*sequence, {wanted}));
    CHECK(cache->probe({.tokens = numbers(200, 16)}).rows == 0);
    CHECK(cache->stats().evicted_pages == 5);
  }
  CHECK(cache->digest() == before);
  CHECK(cache->stats().evicted_pages == 0);
  CHECK(cache->probe({.tokens = numbers(200, 16)}).rows == 15);
  CHECK(cache->check_invariants());
}
