// SPDX-License-Identifier: Apache-2.0
// Faults of section 13 about cost: what a call looks at, counted.

// Tens of thousands of calls on a pool of as many pages: a recount after each of them would take minutes.
#undef KVCACHE_CHECK_CALLS
#define KVCACHE_CHECK_CALLS 0

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "faults/subject.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

/// Lru that counts how many candidates a call looks at; with `scans` it looks for its victim as some engines did.
class CountingLru : public kvcache::Lru {
 public:
  using role = kvcache::role::replacement;
  struct Options {
    std::uint64_t* visits = nullptr;
    bool scans = false;
  };
  CountingLru() = default;
  explicit CountingLru(Options options) noexcept : options_(options) {}
  void on_idle(kvcache::SpanId span, kvcache::SpanFacts const& facts) noexcept
  {
    count(1);
    Lru::on_idle(span, facts);
  }
  void on_busy(kvcache::SpanId span) noexcept
  {
    count(1);
    Lru::on_busy(span);
  }
  [[nodiscard]] std::optional<kvcache::SpanId> victim() noexcept
  {
    count(options_.scans ? size() : 1);
    return Lru::victim();
  }

 private:
  void count(std::uint64_t n) noexcept
  {
    if (options_.visits != nullptr) {
      *options_.visits += n;
    }
  }
  Options options_{};
};

/// Visits for each of 1,000 pages that must be evicted from `cached` ones, of which one in ten is not in use.
std::uint64_t visits_per_eviction(kvcache::PageCount cached, bool pinned, bool scans)
{
  using Cache =
    kvcache::KVCache<kvcache::PagedHeads<kvcache::half, 8, 4>, kvcache::Policies<CountingLru>>;
  std::uint64_t visits = 0;
  kvcache::Options<kvcache::Policies<CountingLru>> options;
  options.pages = cached;
  options.max_sequences = cached;
  options.max_step_tokens = 1 << 20;
  options.replacement = {.visits = &visits, .scans = scans};
  auto cache = Cache::create({.layers = 1, .kv_heads = 1}, options);
  std::vector<kvcache::Sequence> open;
  std::vector<Text> texts;
  std::vector<Cache::SequenceChunk> chunks;
  texts.reserve(cached);
  open.reserve(cached);
  for (kvcache::PageCount i = 0; i < cached; ++i) {
    auto const first = static_cast<kvcache::Token>(4 * i);
    texts.push_back(range(first, first + 3));
    auto opened = cache->open({.tokens = texts.back()});
    open.push_back(std::move(*opened));
    chunks.push_back({open.back(), texts.back()});
  }
  (void)cache->prepare(chunks)->commit();
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (!pinned || i % 5 == 0) {
      open[i].close();
    }
  }
  auto taker = cache->open({.tokens = {}});
  Text const text = range(1 << 20, (1 << 20) + 3999);
  visits = 0;
  auto step = cache->prepare({{*taker, text}});
  CHECK(step.has_value());
  CHECK(cache->stats().evicted_pages == 1000);
  return visits / 1000;
}

}  // namespace

TEST_CASE("B-136 eviction cost does not grow with the cache", "[faults][cost]")
{
  std::uint64_t const small = visits_per_eviction(10'000, false, false);
  CHECK(small <= 20);
  CHECK(visits_per_eviction(20'000, false, false) <= small + 1);
  CHECK(visits_per_eviction(10'000, true, false) <= 20);
  CHECK_FALSE(visits_per_eviction(10'000, false, true) <= 20);
}
