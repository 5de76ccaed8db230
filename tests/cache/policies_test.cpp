// SPDX-License-Identifier: Apache-2.0

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/facade.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

/// A user's own policy: a queue in order of arrival, from either end.
class MyQueue {
 public:
  using role = role::replacement;
  struct Options {
    bool newest_leaves = false;
  };

  MyQueue() = default;
  explicit MyQueue(Options options) : options_(options) {}

  [[nodiscard]] bool reserve(std::uint32_t spans) noexcept
  {
#if defined(__cpp_exceptions)
    try {
      queue_.reserve(spans);
    } catch (std::bad_alloc const&) {
      return false;
    }
#else
    queue_.reserve(spans);
#endif
    return true;
  }
  void on_idle(SpanId span, SpanFacts const&) noexcept { queue_.push_back(span); }
  void on_busy(SpanId span) noexcept
  {
    queue_.erase(std::find(queue_.begin(), queue_.end(), span));
  }
  void on_hit(SpanId) noexcept {}
  void on_remove(SpanId) noexcept {}
  [[nodiscard]] std::optional<SpanId> victim() noexcept
  {
    if (queue_.empty()) {
      return std::nullopt;
    }
    return options_.newest_leaves ? queue_.back() : queue_.front();
  }
  void restore(SpanId span, SpanFacts const&) noexcept
  {
    queue_.insert(options_.newest_leaves ? queue_.end() : queue_.begin(), span);
  }
  void on_split(SpanId head, SpanId tail) noexcept
  {
    auto const at = std::find(queue_.begin(), queue_.end(), tail);
    if (at != queue_.end()) {
      queue_.insert(at + 1, head);
    }
  }
  [[nodiscard]] bool is_candidate(SpanId span) const noexcept
  {
    return std::find(queue_.begin(), queue_.end(), span) != queue_.end();
  }
  [[nodiscard]] std::uint32_t size() const noexcept
  {
    return static_cast<std::uint32_t>(queue_.size());
  }
  template <class F>
  void for_each_oldest_first(F&& f) const
  {
    std::for_each(queue_.begin(), queue_.end(), f);
  }
  [[nodiscard]] bool check_invariants() const { return true; }

 private:
  std::vector<SpanId> queue_;
  Options options_;
};

using MyCache = KVCache<Layout, Policies<MyQueue>>;

/// Three unrelated prompts are cached, then one page is missing: which prompt is gone?
template <class C>
int evicted_first(C cache)
{
  std::vector<Tokens> const prompts{{1, 2, 3, 4, 5}, {11, 12, 13, 14, 15}, {21, 22, 23, 24, 25}};
  for (Tokens const& prompt : prompts) {
    (void)prefilled(cache, prompt);
  }
  (void)prefilled(cache, {31, 32, 33, 34, 35});
  CHECK(cache.check_invariants());
  CHECK(cache.stats().evicted_pages == 1);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (cache.probe({.tokens = prompts[i]}).rows == 0) {
      CHECK(cache.probe({.tokens = prompts[i]}).miss == Miss::evicted);
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("Policies: what is not named takes its default, in any order", "[cache][policies]")
{
  static_assert(std::is_same_v<Policies<>::replacement, Lru>);
  static_assert(std::is_same_v<Policies<>::prefix, RadixTree>);
  static_assert(std::is_same_v<Policies<>::allocator, PageAllocator>);
  static_assert(std::is_same_v<Policies<MyQueue>::replacement, MyQueue>);
  static_assert(std::is_same_v<Policies<RadixTree, MyQueue, PageAllocator>::replacement, MyQueue>);
  static_assert(std::is_same_v<Policies<MyQueue, RadixTree>::prefix, RadixTree>);
  CHECK(std::is_same_v<Policies<MyQueue, RadixTree>::allocator, PageAllocator>);
}

TEST_CASE("Policies: a user's replacement decides which cached page leaves", "[cache][policies]")
{
  CHECK(evicted_first(make_cache(4)) == 0);
  CHECK(evicted_first(make_cache<MyCache>(4)) == 0);
  auto newest = MyCache::create(
    small_model, {.pages = 4, .max_sequences = 8, .replacement = {.newest_leaves = true}});
  REQUIRE(newest);
  CHECK(evicted_first(std::move(*newest)) == 2);
}

TEST_CASE("Policies: with a user's replacement a dropped step still leaves no trace",
          "[cache][policies]")
{
  auto cache = make_cache<MyCache>(4);
  (void)prefilled(cache, {1, 2, 3, 4, 5});
  (void)prefilled(cache, {11, 12, 13, 14, 15});
  auto a = cache.open({.tokens = Tokens{7}});
  REQUIRE(a);
  auto const before = cache.digest();
  {
    auto step = cache.begin();
    REQUIRE(step);
    REQUIRE(step->add(*a, {Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}));
    CHECK(cache.stats().evicted_pages == 1);
  }
  CHECK(cache.digest() == before);
  CHECK(cache.check_invariants());
}
