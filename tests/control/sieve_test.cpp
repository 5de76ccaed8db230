// SPDX-License-Identifier: Apache-2.0
// What a policy sees of real traffic: prompts through a control plane, under LRU and under SIEVE.

#include <kvcache/replace/sieve.hpp>

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/either_policy.hpp"
#include "support/plane.hpp"
#include "support/random.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

/// Counts how often control put a span back that was in the way, or that a dropped step had evicted.
class CountingPolicy : public EitherPolicy {
 public:
  struct Options {
    bool sieve = false;
    std::uint64_t* victims = nullptr;
    std::uint64_t* restored = nullptr;
  };
  CountingPolicy() = default;
  explicit CountingPolicy(Options options) noexcept
      : EitherPolicy(EitherPolicy::Options{options.sieve}), options_(options)
  {
  }
  std::optional<SpanId> victim() noexcept
  {
    *options_.victims += 1;
    return EitherPolicy::victim();
  }
  void restore(SpanId span, SpanFacts const& facts) noexcept
  {
    *options_.restored += 1;
    EitherPolicy::restore(span, facts);
  }

 private:
  Options options_;
};

using Counted = Control<PageAllocator, RadixTree, CountingPolicy>;

struct Replay {
  double hit_rate = 0;
  std::uint64_t evicted = 0, victims = 0, restored = 0;
};

/// Each prompt is opened, computed and closed before the next one.
Replay replay(std::vector<Tokens> const& prompts, PageCount pool, bool sieve)
{
  Replay result;
  auto made = Counted::create(
    {.pages = pool, .page_tokens = 4, .max_sequences = 8, .max_step_tokens = 256},
    {.prefix = {},
     .replacement = {.sieve = sieve, .victims = &result.victims, .restored = &result.restored}});
  REQUIRE(made);
  Counted plane = std::move(*made);
  for (Tokens const& prompt : prompts) {
    auto const id = plane.open({.tokens = prompt});
    REQUIRE(id);
    auto const step = plane.begin();
    REQUIRE(step);
    Tokens const rest(prompt.begin() + plane.info(*id)->length, prompt.end());
    REQUIRE(plane.add(*step, *id, {rest}));
    REQUIRE(plane.submit(*step));
    REQUIRE(plane.commit(*step));
    REQUIRE(plane.close(*id));
  }
  CHECK(plane.check_invariants());
  Stats const stats = plane.stats();
  result.hit_rate =
    static_cast<double>(stats.hit_tokens) / static_cast<double>(stats.prompt_tokens);
  result.evicted = stats.evicted_pages;
  return result;
}

void print(char const* trace, Replay const& lru, Replay const& sieve)
{
  auto const n = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf(
    "%s: hit rate LRU %.3f, SIEVE %.3f; pages evicted %llu, %llu; spans in the way %llu "
    "of %llu, %llu of %llu\n",
    trace,
    lru.hit_rate,
    sieve.hit_rate,
    n(lru.evicted),
    n(sieve.evicted),
    n(lru.restored),
    n(lru.victims),
    n(sieve.restored),
    n(sieve.victims));
}

}  // namespace

TEST_CASE("Sieve: one-time prompts do not push out what is used again", "[control][sieve]")
{
  Random random(5);
  std::vector<Tokens> prompts;
  for (Token scan = 100'000; prompts.size() < 6000; scan += 2000) {
    Token const hot = static_cast<Token>(random.below(8)) * 1000;  // 8 prompts of 4 pages
    prompts.push_back(numbers(hot, hot + 16));
    prompts.push_back(numbers(scan, scan + 16));
    prompts.push_back(numbers(scan + 1000, scan + 1016));
  }
  Replay const lru = replay(prompts, 56, false);
  Replay const sieve = replay(prompts, 56, true);
  print("hot prompts among scans", lru, sieve);
  CHECK(sieve.hit_rate > 0.30);  // of at most 0.314: 16 of 17 tokens of a third of the prompts
  CHECK(sieve.hit_rate > 1.5 * lru.hit_rate);
  CHECK(sieve.evicted < lru.evicted);
}

TEST_CASE("Sieve: in a tree of conversations no span is named before what hangs below it",
          "[control][sieve]")
{
  Random random(6);
  std::vector<Tokens> prompts;
  std::vector<Tokens> talks(24);
  Token fresh = 1'000'000;
  while (prompts.size() < 6000) {
    Tokens& talk = talks[random.below(24)];
    if (talk.empty() || talk.size() > 100) {  // one of 6 system prompts of 5 pages
      Token const system = static_cast<Token>(random.below(6)) * 1000;
      talk = numbers(system, system + 19);
    }
    for (std::uint32_t n = random.between(1, 12); n > 0; --n) {
      talk.push_back(fresh++);
    }
    prompts.push_back(talk);
  }
  Replay const lru = replay(prompts, 200, false);
  Replay const sieve = replay(prompts, 200, true);
  print("conversations", lru, sieve);
  CHECK(lru.evicted > 1000);
  CHECK(sieve.evicted > 1000);
  CHECK(lru.restored == 0);
  CHECK(sieve.restored == 0);
}

TEST_CASE("Sieve: a dropped step leaves the order as it was", "[control][sieve]")
{
  using SievePlane = Control<PageAllocator, RadixTree, Sieve>;
  auto made =
    SievePlane::create({.pages = 24, .page_tokens = 4, .max_sequences = 8, .max_step_tokens = 256});
  REQUIRE(made);
  SievePlane plane = std::move(*made);
  Random random(7);
  std::uint64_t evicted = 0;
  for (int round = 0; round < 2000; ++round) {
    Token const base = static_cast<Token>(random.below(7)) * 1000;
    Tokens const prompt = numbers(base, base + static_cast<Token>(random.between(4, 30)));
    auto const id = plane.open({.tokens = prompt});
    REQUIRE(id);
    auto const before = plane.digest();
    std::uint64_t const gone = plane.stats().evicted_pages;
    auto const dropped = plane.begin();
    REQUIRE(dropped);
    REQUIRE(plane.add(*dropped, *id, {numbers(90'000, 90'000 + 39)}));
    evicted += plane.stats().evicted_pages - gone;
    REQUIRE(plane.drop(*dropped));
    REQUIRE(plane.digest() == before);
    auto const step = plane.begin();
    REQUIRE(step);
    Tokens const rest(prompt.begin() + plane.info(*id)->length, prompt.end());
    REQUIRE(plane.add(*step, *id, {rest}));
    REQUIRE(plane.submit(*step));
    REQUIRE(plane.commit(*step));
    REQUIRE(plane.close(*id));
    REQUIRE(plane.check_invariants());
  }
  CHECK(evicted > 1000);
}
