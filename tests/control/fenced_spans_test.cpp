// SPDX-License-Identifier: Apache-2.0
#include <kvcache/control/fenced_spans.hpp>
#include <kvcache/replace/sieve.hpp>

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "support/fenced_victims.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

template <class Policy>
using PlaneOf = Control<PageAllocator, RadixTree, Policy>;

/// Three texts of a page, cached, of which the second was used again; a step of stream 1 may read them still, and there is
/// no other page. Returns which of them are left once two had to leave.
template <class Policy>
std::vector<Index> left_after(bool refused_add)
{
  auto plane = make_plane<PlaneOf<Policy>>(6);
  Tokens const texts[] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}};
  StreamId const other{1};
  std::vector<SequenceId> ids;
  StepId step = *plane.begin(other);
  for (Tokens const& text : texts) {
    ids.push_back(*plane.open({.tokens = text, .stream = other}));
    REQUIRE(plane.add(step, ids.back(), {.tokens = text}));
  }
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
  StepId const flight = *plane.begin(other);
  for (SequenceId const id : ids) {
    REQUIRE(plane.add(flight, id, {.tokens = Tokens{9}}));
  }
  REQUIRE(plane.submit(flight));
  REQUIRE(plane.close(ids[0]));
  REQUIRE(plane.close(ids[1]));
  REQUIRE(plane.close(*plane.open({.tokens = Tokens{2, 2, 2, 2, 7}, .stream = other})));
  REQUIRE(plane.close(ids[2]));
  SequenceId const x = open(plane, {5});
  step = begin(plane);
  if (refused_add) {
    auto const before = plane.digest();
    auto const added = plane.add(step, x, {.tokens = Tokens{5, 5, 5, 5}});
    REQUIRE_FALSE(added);
    CHECK(added.error().evictable == 0);
    CHECK(plane.digest() == before);
  }
  REQUIRE(plane.commit(flight));
  SequenceId const y = open(plane, {6});
  REQUIRE(plane.add(step, y, {.tokens = Tokens(20, 6)}));
  check_sound(plane);
  std::vector<Index> left;
  for (Tokens text : texts) {
    text.push_back(8);
    left.push_back(cached_rows(plane, text));
  }
  return left;
}

}  // namespace

TEST_CASE("FencedSpans: lists of streams, in order", "[control][fenced]")
{
  detail::FencedSpans fenced;
  fenced.reserve(8);
  fenced.put({1}, 0, 2);
  fenced.put({2}, 0, 3);
  fenced.put({3}, 0, 1, {2});
  fenced.split({4}, {1});
  fenced.put({5}, 1, 7);
  CHECK(fenced.size() == 5);
  CHECK(fenced.pages() == 13);
  CHECK(fenced.pages(0) == 6);
  std::vector<std::uint32_t> order;
  for (SpanId at = fenced.oldest(0); at.value != nil; at = fenced.newer(at)) {
    order.push_back(at.value);
  }
  CHECK(order == std::vector<std::uint32_t>{1, 4, 3, 2});
  fenced.shrink({2}, 1);
  fenced.grow({2}, 2);
  fenced.remove({2}, 4);
  fenced.remove({1}, 1);
  CHECK(fenced.pages(0) == 2);  // of the two halves, one page each, and the third
  CHECK_FALSE(fenced.contains({2}));
  CHECK(fenced.list_of({5}) == 1);
  CHECK(fenced.newer({3}).value == nil);
  CHECK(fenced.oldest(0) == SpanId{4});
}

TEST_CASE("Policy: a refused add does not change what leaves next", "[control][fenced][sieve]")
{
  CHECK(left_after<Lru>(true) == std::vector<Index>{0, 0, 4});
  CHECK(left_after<Lru>(false) == std::vector<Index>{0, 0, 4});
  CHECK(left_after<Sieve>(true) == std::vector<Index>{0, 4, 0});
  CHECK(left_after<Sieve>(false) == std::vector<Index>{0, 4, 0});
}

TEST_CASE("Policy: refused adds and dropped steps beside another stream leave the order",
          "[control][fenced][sieve]")
{
  std::printf("fenced victims: seeds 1 to 40\n");
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CHECK(refused_and_dropped_leave_the_order<Lru>(seed, true));
    CHECK(refused_and_dropped_leave_the_order<Sieve>(seed, true));
  }
}

TEST_CASE("Policy: a chunk that is dropped was no hit on what it attached to", "[control][fenced]")
{
  // SIEVE: who attaches to a page in use marks it. `b` is used by two, and leaves last; but not if the second was dropped.
  for (bool const dropped : {false, true}) {
    auto plane = make_plane<PlaneOf<Sieve>>(6);
    SequenceId const reader = open(plane, {1, 1, 1, 1, 9});
    SequenceId const a = open(plane, {1, 1, 1, 1, 9});
    append(plane, a, {1, 1, 1, 1, 9});
    StepId const step = *plane.begin({}, {.attach = true});
    auto const added = plane.add(step, reader, {.tokens = Tokens{1, 1, 1, 1, 9}});
    REQUIRE(added);
    REQUIRE(*added == 1);  // the page is found
    if (dropped) {
      REQUIRE(plane.drop(step));
    } else {
      REQUIRE(plane.submit(step));
      REQUIRE(plane.commit(step));
    }
    REQUIRE(plane.close(reader));
    REQUIRE(plane.close(a));
    cache_only(plane, {2, 2, 2, 2});
    append(plane, open(plane, {3}), Tokens(20, 3));  // all pages but one
    CHECK(cached_rows(plane, {1, 1, 1, 1, 8}) == (dropped ? 0 : 4));
    CHECK(cached_rows(plane, {2, 2, 2, 2, 8}) == (dropped ? 4 : 0));
    check_sound(plane);
  }
}

TEST_CASE(
  "Evict: a step has the cached pages that only its stream may still read, after all others",
  "[control][fenced]")
{
  Plane plane = make_plane(6);
  SequenceId const a = prefilled(plane, numbers(1, 8));
  cache_only(plane, numbers(101, 104));
  StepId const flight = begin(plane);
  add(plane, flight, a, {9});
  REQUIRE(plane.submit(flight));
  REQUIRE(plane.close(a));  // two cached pages, fenced; a third waits
  CHECK(plane.stats().cached == 3);
  CHECK(plane.admit({.tokens = Tokens{5}})->available == 6);
  CHECK(plane.admit({.tokens = Tokens{5}, .stream = {1}})->available == 3);

  SequenceId const x = open(plane, {5});
  SequenceId const y = open(plane, {5});
  auto const before = plane.digest();
  StepId const next = begin(plane);
  add(plane, next, x, Tokens(16, 6));  // two free, one waited, one evicted
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  CHECK(cached_rows(plane, numbers(101, 105)) == 0);
  check_sound(plane);
  add(plane, next, y, Tokens{7});
  CHECK(cached_rows(plane, numbers(1, 9)) == 4);
  check_sound(plane);
  REQUIRE(plane.drop(next));
  CHECK(plane.digest() == before);
  CHECK(cached_rows(plane, numbers(101, 105)) == 4);
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  check_sound(plane);
  REQUIRE(plane.commit(flight));
  CHECK(plane.admit({.tokens = Tokens{5}, .stream = {1}})->available == 6);
  check_sound(plane);
}
