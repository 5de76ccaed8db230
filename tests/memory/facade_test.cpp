// SPDX-License-Identifier: Apache-2.0
// A dozen ways to use a cache, each run once for every allocation in it, which fails: control, pool, tables, handles, `create`
// and the device. A call that says `no_memory` changed nothing, made again it goes through, and every row ends right.
//
// Calls that cannot fail do with less where memory is short: a commit publishes fewer pages, an add makes fewer
// pending, a step that is dropped puts fewer evicted pages back.

#undef KVCACHE_CHECK_CALLS
#define KVCACHE_CHECK_CALLS 0  // recounts allocate, and are not what fails here

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "memory/life.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

/// Runs `live(life)` without a failure, then with each allocation of its calls failing in turn: once, or until the
/// call is over.
template <class Live>
void expect_all_or_nothing(char const* name, kvcache::PageCount pages, Live const& live)
{
  auto const run = [&](Starvation& starvation) {
    INFO("strike " << starvation.strike << (starvation.once ? ", once" : ""));
    Life life(pages, starvation);
    live(life);
    life.end();
  };
  Starvation plenty;
  run(plenty);
  REQUIRE(plenty.refused == 0);
  int refused = 0;
  for (std::int64_t strike = 0; strike < plenty.seen; ++strike) {
    for (bool const once : {true, false}) {
      Starvation starvation{.strike = strike, .once = once};
      run(starvation);
      REQUIRE(starvation.refused <= 1);
      refused += starvation.refused;
    }
  }
  std::printf("memory: %s: %lld allocations, each failed once and for good: %d calls refused\n",
              name,
              static_cast<long long>(plenty.seen),
              refused);
  CHECK(refused > plenty.seen);  // most allocations are of calls that say so
}

}  // namespace

TEST_CASE("KVCache without memory: prefill and decode", "[memory][kv_cache]")
{
  expect_all_or_nothing("prefill and decode", 8, [](Life& life) {
    int const s = life.open(range(1, 10));
    life.prefill(s);
    for (kvcache::Token token = 11; token <= 19; ++token) {
      life.plan({{.sequence = s, .tokens = {token}}});
      life.finish();
    }
    REQUIRE(life.rows(s) == range(1, 19));
  });
}

TEST_CASE("KVCache without memory: a burst of equal prompts", "[memory][kv_cache]")
{
  expect_all_or_nothing("burst of equal prompts", 24, [](Life& life) {
    Text const prompt = range(1, 14);
    std::vector<Life::Piece> pieces;
    life.begin();
    for (int i = 0; i < 4; ++i) {
      int const s = life.open(prompt);
      life.add({.sequence = s, .tokens = life.rest(s)});
    }
    life.submit();
    int const late = life.open(prompt);  // finds what the step in flight writes
    life.begin();
    life.add({.sequence = late, .tokens = life.rest(late)});
    life.submit();
    life.finish();
    life.finish();
    life.check_rows();
    int const other = life.open(prompt, std::string(long_salt, 'b'));
    life.prefill(other);
  });
}

TEST_CASE("KVCache without memory: forks and copy on write", "[memory][kv_cache]")
{
  expect_all_or_nothing("forks and copy on write", 16, [](Life& life) {
    int const a = life.open(range(1, 6));
    life.prefill(a);
    int const b = life.fork(a);
    int const c = life.fork(a);
    life.plan({{.sequence = a, .tokens = {7}},
               {.sequence = b, .tokens = {8, 9, 10}},
               {.sequence = c, .tokens = {11}}});
    int const d = life.fork(b);  // of a sequence in flight
    life.finish();
    life.truncate(b, 7);
    life.plan({{.sequence = b, .tokens = {20, 21}}, {.sequence = d, .tokens = {22, 23}}});
    life.finish();
    life.close(a);
    int const again = life.open(range(1, 9));  // ends inside a cached page
    life.prefill(again);
  });
}

TEST_CASE("KVCache without memory: drafts accepted in part", "[memory][kv_cache]")
{
  expect_all_or_nothing("drafts accepted in part", 12, [](Life& life) {
    int const s = life.open(range(1, 7));
    int const t = life.open(range(101, 103));
    life.prefill(s);
    life.prefill(t);
    for (kvcache::Index accepted = 0; accepted <= 5; ++accepted) {
      life.plan(
        {{.sequence = s, .tokens = range(50, 54), .draft = true, .accepted = accepted},
         {.sequence = t, .tokens = range(60, 62), .draft = true, .accepted = accepted / 2}});
      life.finish();
    }
    REQUIRE(life.rows(s).size() == 7 + 15);
  });
}

TEST_CASE("KVCache without memory: two steps in flight with counts", "[memory][kv_cache]")
{
  expect_all_or_nothing("two steps in flight with counts", 16, [](Life& life) {
    int const s = life.open(range(1, 6));
    int const t = life.open(range(1, 3), "b");
    life.plan({{.sequence = s, .tokens = life.rest(s)}, {.sequence = t, .tokens = life.rest(t)}});
    for (int i = 0; i < 6; ++i) {
      life.plan(
        {{.sequence = s, .tokens = {}, .count = 2}, {.sequence = t, .tokens = {}, .count = 1}});
      life.finish();
    }
    life.finish();
    REQUIRE(life.rows(s).size() == 6 + 12);
  });
}

TEST_CASE("KVCache without memory: suspend and resume", "[memory][kv_cache]")
{
  expect_all_or_nothing("suspend and resume", 12, [](Life& life) {
    int const s = life.open(range(1, 11));
    int const t = life.open(range(1, 9));
    life.prefill(s);
    life.suspend(s);
    life.prefill(t);
    life.resume(s);
    life.prefill(s);
    life.plan({{.sequence = s, .tokens = {12, 13}}, {.sequence = t, .tokens = {10}}});
    life.suspend(s);  // while the step runs
    life.finish();
    life.resume(s);
    life.prefill(s);
  });
}

TEST_CASE("KVCache without memory: beams are reordered", "[memory][kv_cache]")
{
  expect_all_or_nothing("beams reorder", 24, [](Life& life) {
    int const a = life.open(range(1, 6));
    life.prefill(a);
    life.fork(a);
    life.fork(a);
    for (kvcache::Token round = 0; round < 3; ++round) {
      life.plan({{.sequence = 0, .tokens = {10 + round}},
                 {.sequence = 1, .tokens = {20 + round}},
                 {.sequence = 2, .tokens = {30 + round}}});
      life.finish();
      life.reorder({1, 1, 0});
      life.check_rows();
    }
  });
}

TEST_CASE("KVCache without memory: forget while a step is in flight", "[memory][kv_cache]")
{
  expect_all_or_nothing("forget in flight", 16, [](Life& life) {
    int const s = life.open(range(1, 9), "a");
    life.plan({{.sequence = s, .tokens = life.rest(s)}});
    int const t = life.open(range(1, 9), "a");  // attached to what is pending
    life.forget("a");
    life.plan({{.sequence = t, .tokens = life.rest(t)}});
    life.finish();
    life.finish();
    life.forget("a");
    int const u = life.open(range(1, 9), "a");
    life.prefill(u);
    life.forget("never named");
    life.plan({{.sequence = s, .tokens = {10, 11, 12, 13}}});
    life.finish();
  });
}

TEST_CASE("KVCache without memory: eviction under pressure, and steps that are dropped",
          "[memory][kv_cache]")
{
  expect_all_or_nothing("eviction under pressure with drop", 6, [](Life& life) {
    for (kvcache::Token base : {100, 200, 300}) {
      int const s = life.open(range(base, base + 7));
      life.prefill(s);
      life.close(s);
    }
    REQUIRE(life.stats().free == 0);
    int const a = life.open(range(1, 6));
    int const b = life.open(range(11, 16));
    life.begin();
    life.add({.sequence = a, .tokens = life.rest(a)});
    life.add({.sequence = b, .tokens = life.rest(b)});
    life.drop();
    life.prepare(
      {{.sequence = a, .tokens = life.rest(a)}, {.sequence = b, .tokens = life.rest(b)}});
    life.finish();
    life.begin();
    life.add({.sequence = a, .tokens = range(7, 9)});
    life.close(a);
    life.drop();
    int const c = life.open(range(200, 207));  // perhaps still cached
    life.prefill(c);
  });
}

TEST_CASE("KVCache without memory: a step fails, and those that depend on it", "[memory][kv_cache]")
{
  expect_all_or_nothing("failing step with dependents", 16, [](Life& life) {
    Text const prompt = range(1, 9);
    int const a = life.open(prompt);
    life.plan({{.sequence = a, .tokens = life.rest(a)}});
    int const b = life.open(prompt);
    int const c = life.fork(a);
    life.begin();
    life.add({.sequence = a, .tokens = {10, 11}});
    life.add({.sequence = b, .tokens = life.rest(b)});
    life.submit();
    life.run(0);
    life.fail();
    life.drop();
    REQUIRE(life.rows(a).empty());
    for (int const s : {a, b}) {
      life.prefill(s);
    }
    life.plan({{.sequence = c, .tokens = {5, 6, 7, 8, 9}}});
    life.run();
    life.close(c);
    life.commit();
    life
      .begin();  // closed in a step that is being built: what it would have written is wanted by nobody
    int const d = life.open(range(41, 49));
    life.add({.sequence = d, .tokens = life.rest(d)});
    life.close(d);
    life.add({.sequence = a, .tokens = {10}});
    life.submit();
    life.finish();
  });
}

TEST_CASE("KVCache without memory: trees of drafts", "[memory][kv_cache]")
{
  expect_all_or_nothing("trees of drafts", 16, [](Life& life) {
    int const s = life.open(range(1, 6));
    life.prefill(s);
    int const t = life.fork(s);
    std::vector<kvcache::Index> const parents{-1, 0, 0, 2, 2};
    for (std::vector<kvcache::Index> const& path :
         {std::vector<kvcache::Index>{0, 2, 4}, {0, 1}, {}, {0, 2}}) {
      life.plan({{.sequence = s, .tokens = range(10, 14), .parents = parents, .path = path},
                 {.sequence = t, .tokens = {30}}});
      life.finish();
      life.plan({{.sequence = s, .tokens = {20}}, {.sequence = t, .tokens = {31, 32}}});
      life.finish();
      life.check_rows();
    }
    REQUIRE(life.rows(s).size() == 6 + 7 + 4);
  });
}

TEST_CASE("KVCache without memory: pinned prefixes and events", "[memory][kv_cache]")
{
  expect_all_or_nothing("pinned prefixes and events", 6, [](Life& life) {
    int const s = life.open(range(1, 9));
    life.prefill(s);
    life.close(s);
    life.pin(range(1, 6));  // ends inside a span
    int const t = life.open(range(101, 112));
    life.prefill(t);
    life.close(t);
    int const u = life.open(range(201, 212));  // evicts, but not what is pinned
    life.prefill(u);
    life.pin(range(201, 212));
    life.unpin();
    life.unpin();
    life.close(u);
    int const v = life.open(range(1, 9));
    life.prefill(v);
    REQUIRE(life.cache().events().next() > 6);
  });
}
