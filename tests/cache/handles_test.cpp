// SPDX-License-Identifier: Apache-2.0

#include <kvcache/kvcache.hpp>

#include <optional>
#include <type_traits>
#include <utility>

#include "support/catch.hpp"
#include "support/facade.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

static_assert(!std::is_copy_constructible_v<Sequence> && !std::is_copy_assignable_v<Sequence>);
static_assert(std::is_nothrow_move_constructible_v<Sequence>);
static_assert(!std::is_copy_constructible_v<Cache> && std::is_nothrow_move_constructible_v<Cache>);

}  // namespace

TEST_CASE("Sequence: closes at the end of its life, once", "[cache][handles]")
{
  Cache cache = make_cache(8);
  {
    Sequence a = prefilled(cache, {1, 2, 3, 4, 5});
    CHECK(cache.stats().sequences == 1);
    a.close();
    CHECK(cache.stats().sequences == 0);
    CHECK(a.length() == 0);
    CHECK(a.id() == SequenceId{});
    a.close();
    Sequence const b = prefilled(cache, {1, 2});  // takes the slot of a
    CHECK(cache.stats().sequences == 1);
  }
  CHECK(cache.stats().sequences == 0);
  CHECK(cache.check_invariants());
}

TEST_CASE("Sequence: moves carry the sequence, what was moved from is empty", "[cache][handles]")
{
  Cache cache = make_cache(8);
  Sequence a = prefilled(cache, {1, 2, 3});
  SequenceId const id = a.id();
  Sequence b(std::move(a));
  CHECK(b.id() == id);
  CHECK(b.length() == 3);
  CHECK(a.length() == 0);  // NOLINT: the state after a move is promised
  CHECK(cache.fork(a).error().why == Why::stale_sequence);
  Sequence c = prefilled(cache, {7});
  c = std::move(b);  // closes what c was
  CHECK(c.id() == id);
  CHECK(cache.stats().sequences == 1);
  Sequence& self = c;
  c = std::move(self);
  CHECK(c.length() == 3);
}

TEST_CASE("Sequence: an empty one is refused by every call", "[cache][handles]")
{
  Cache cache = make_cache(8);
  Sequence const none;
  CHECK(none.length() == 0);
  CHECK(cache.fork(none).error().why == Why::stale_sequence);
  CHECK(cache.truncate(none, 0).error().why == Why::stale_sequence);
  CHECK(cache.pages(none).empty());
  auto step = cache.begin();
  REQUIRE(step);
  CHECK(step->add(none, {Tokens{1}}).error().why == Why::stale_sequence);
}

TEST_CASE("Sequence: of another cache is stale here, though its id is in use here too",
          "[cache][handles]")
{
  Cache target = make_cache(8);
  Cache draft = make_cache(8);
  Sequence const a = prefilled(target, {1, 2, 3});
  Sequence const b = prefilled(draft, {7, 8, 9, 10});
  REQUIRE(a.id() == b.id());
  CHECK(target.fork(b).error().why == Why::stale_sequence);
  CHECK(target.truncate(b, 1).error().why == Why::stale_sequence);
  CHECK(target.pages(b).empty());
  {
    auto step = target.begin();
    REQUIRE(step);
    CHECK(step->add(b, {Tokens{1}}).error().why == Why::stale_sequence);
    CHECK(step->add(a, {Tokens{4}}));
  }
  CHECK(a.length() == 3);
  CHECK(b.length() == 4);
}

TEST_CASE("Sequence: harmless after its cache is gone", "[cache][handles]")
{
  std::optional<Cache> cache(make_cache(8));
  Sequence a = prefilled(*cache, {1, 2, 3, 4, 5});
  Sequence b = prefilled(*cache, {1, 2, 3, 4, 6});
  Sequence c = prefilled(*cache, {9});
  cache.reset();
  CHECK(a.length() == 0);
  CHECK(a.cached() == 0);
  CHECK(a.info().pages == 0);
  CHECK(a.miss() == Miss::none);
  Sequence moved(std::move(b));
  CHECK(moved.length() == 0);
  c.close();
  c = std::move(moved);
  Cache next = make_cache(8);
  CHECK(next.fork(a).error().why == Why::stale_sequence);
  a = prefilled(next, {1});
  CHECK(a.length() == 1);
}

TEST_CASE("KVCache: a moved cache keeps its handles, both ways of moving", "[cache][handles]")
{
  Cache first = make_cache(8);
  Tokens history{1, 2, 3};
  Sequence const a = prefilled(first, history);
  Cache second(std::move(first));
  CHECK(a.length() == 3);
  append(second, a, {4, 5}, history);

  Cache third = make_cache(4);
  Sequence const b = prefilled(third, {9});
  third = std::move(second);
  append(third, a, {6}, history);
  CHECK(a.length() == 6);
  CHECK(b.length() <= 1);  // its cache may be gone: harmless
  CHECK(third.check_invariants());
}

TEST_CASE("Pin: keeps a prefix while it lives, and is harmless after the cache", "[cache][handles]")
{
  std::optional<Cache> cache(make_cache(4));
  Tokens const prompt = {1, 2, 3, 4, 5};
  prefilled(*cache, prompt).close();
  CHECK(cache->pin({.tokens = Tokens{9, 9, 9, 9}}).error().why == Why::bad_config);
  Pin kept;
  {
    auto pin = cache->pin({.tokens = prompt});
    REQUIRE(pin);
    kept = *std::move(pin);
  }
  CHECK(kept.id() != PinId{});
  for (Token t = 10; t < 40; t += 10) {
    prefilled(*cache, {t, t, t, t, t, t, t, t, t}).close();
  }
  CHECK(cache->probe({.tokens = prompt}).rows == 4);
  CHECK(cache->admit({.tokens = prompt, .max_tokens = 17}).error().why == Why::too_large);
  CHECK(cache->admit({.tokens = prompt, .max_tokens = 16})->full == 3);
  kept.let_go();
  kept.let_go();
  CHECK(cache->stats().cached == 3);
  prefilled(*cache, prompt).close();
  Pin const last = *cache->pin({.tokens = prompt});
  cache.reset();
  CHECK(last.id() != PinId{});
}

TEST_CASE("KVCache: handles of a cache that was moved over know when it is gone",
          "[cache][handles]")
{
  Cache a = make_cache(8);
  Sequence const first = prefilled(a, {1, 2, 3});
  Sequence second;
  {
    Cache b = make_cache(8);
    second = prefilled(b, {1, 2});
    a = std::move(b);
    CHECK(second.length() == 2);
  }
  Cache c = make_cache(8);  // perhaps where the other one was
  Sequence const third = prefilled(c, {1, 2, 3});
  CHECK(first.length() == 0);  // its cache is gone
  CHECK(second.length() == 2);
  CHECK(third.length() == 3);
  CHECK(a.stats().sequences == 1);
  CHECK(a.check_invariants());
}
