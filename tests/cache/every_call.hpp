// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A policy that counts how often it is recounted and can lie, and a run through every call of the facade.
/// Each file of tests names its own `Tag`, so that its cache is a type of its own: whether calls are checked is
/// said file by file here.

#include <kvcache/kvcache.hpp>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/facade.hpp"

namespace kvcache_test {

template <class Tag>
class WatchedLru : public kvcache::Lru {
 public:
  using role = kvcache::role::replacement;
  struct Options {
    std::uint64_t* recounts = nullptr;
    bool* lies = nullptr;
  };

  WatchedLru() = default;
  explicit WatchedLru(Options options) noexcept : options_(options) {}

  /// One candidate too many, where it lies: evictable pages are miscounted.
  [[nodiscard]] std::uint32_t size() const noexcept
  {
    return Lru::size() + (options_.lies != nullptr && *options_.lies ? 1U : 0U);
  }
  [[nodiscard]] bool check_invariants() const
  {
    *options_.recounts += 1;
    return Lru::check_invariants();
  }

 private:
  Options options_{};
};

template <class Tag>
using WatchedCache = kvcache::KVCache<Layout, kvcache::Policies<WatchedLru<Tag>>>;

/// What a test holds beside its cache; the cache goes first.
struct Watch {
  std::uint64_t recounts = 0;
  bool lies = false;

  template <class Tag>
  [[nodiscard]] WatchedCache<Tag> make(kvcache::PageCount pages)
  {
    auto made = WatchedCache<Tag>::create(small_model,
                                          {.pages = pages,
                                           .max_sequences = 8,
                                           .max_step_tokens = 64,
                                           .replacement = {.recounts = &recounts, .lies = &lies}});
    REQUIRE(made);
    return std::move(*made);
  }
  /// Recounts since the last time.
  [[nodiscard]] std::uint64_t take() { return std::exchange(recounts, 0); }
};

/// Makes every call of the facade; `seen(name, changes)` is told after each whether it may have changed anything.
template <class Cache, class Seen>
void every_call(Cache& cache, Seen const& seen)
{
  using namespace kvcache;
  Tokens const text{1, 2, 3, 4, 5, 6};
  (void)cache.probe({.tokens = text});
  seen("probe", false);
  auto a = cache.open({.tokens = text});
  REQUIRE(a);
  seen("open", true);
  auto step = cache.begin();
  REQUIRE(step);
  seen("begin", true);
  REQUIRE(step->add(*a, {text}));
  seen("add", true);
  REQUIRE(step->submit());
  seen("submit", true);
  run_kernels(step->view(), text);
  (void)step->plan();
  seen("view and plan", false);
  REQUIRE(step->commit());
  seen("commit", true);
  {
    auto pin = cache.pin({.tokens = text});
    REQUIRE(pin);
    seen("pin", true);
    pin->let_go();
    seen("let go of a pin", true);
    auto again = cache.pin({.tokens = text});
    REQUIRE(again);
    seen("pin again", true);
  }
  seen("a pin out of scope", true);
  (void)cache.admit({.tokens = text});
  (void)cache.events();
  seen("admit and events", false);
  auto b = cache.fork(*a);
  REQUIRE(b);
  seen("fork", true);
  Tokens const more{7, 8};
  auto drafts = cache.prepare({{*b, more, 0, true}});
  REQUIRE(drafts);
  seen("prepare", true);
  REQUIRE(drafts->commit(std::vector<Index>{1}));
  seen("commit in part", true);
  REQUIRE(*cache.truncate(*b, 5) == 5);
  seen("truncate", true);
  REQUIRE(cache.suspend(*b));
  seen("suspend", true);
  REQUIRE(cache.resume(*b));
  seen("resume", true);
  std::vector<Sequence> beams;
  beams.push_back(std::move(*a));
  beams.push_back(std::move(*b));
  (void)cache.suspend(beams[1]);
  (void)cache.resume(beams[1]);
  seen("suspend and resume", true);
  REQUIRE(cache.reorder(beams, std::vector<Index>{0, 0}));
  seen("reorder", true);
  {
    auto dropped = cache.begin();
    REQUIRE(dropped);
    REQUIRE(dropped->add(beams[0], {more}));
    seen("begin and add", true);
  }
  seen("a step out of scope", true);
  {
    auto failed = cache.prepare({{beams[0], more}});
    REQUIRE(failed);
    seen("prepare again", true);
  }
  seen("a submitted step out of scope", true);
  (void)cache.cuts();
  (void)cache.stats();
  (void)cache.digest();
  (void)cache.pages(beams[0]);
  (void)cache.holders(PageId{1});
  (void)beams[0].info();
  seen("what is const", false);
  cache.forget(Domain{});
  seen("forget", true);
  CHECK_FALSE(cache.truncate(beams[0], -1).has_value());
  seen("a call that is refused", true);
  beams[0].close();
  seen("close", true);
  beams.clear();
  seen("a sequence out of scope", true);
}

}  // namespace kvcache_test
