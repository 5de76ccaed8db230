// SPDX-License-Identifier: Apache-2.0

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

}  // namespace

TEST_CASE("close: what was published stays cached, the rest is free", "[control][close]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 10));
  REQUIRE(plane.close(a));
  CHECK(plane.stats().cached == 2);
  CHECK(plane.stats().free == 6);
  CHECK(plane.stats().sequences == 0);
  CHECK(cached_rows(plane, numbers(1, 10)) == 8);
  CHECK(plane.close(a).error().why == Why::stale_sequence);
  check_sound(plane);
}

TEST_CASE("close: in an open step the chunk is not planned", "[control][close]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  SequenceId const b = open(plane, {50});
  StepId const step = begin(plane);
  add(plane, step, a, {7});
  add(plane, step, b, {50, 51});
  REQUIRE(plane.close(a));
  SequenceId const c = open(plane, {60});  // gets a's slot and table row, in the same step
  CHECK(c.slot == a.slot);
  add(plane, step, c, {60});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).chunks.size() == 2);
  CHECK(plane.plan(step).chunks[0].sequence == b);
  CHECK(plane.plan(step).chunks[1].sequence == c);
  CHECK(plane.plan(step).num_tokens() == 3);
  REQUIRE(plane.commit(step, std::vector<Index>{0, 2, 1}));
  CHECK(plane.info(b)->length == 2);
  CHECK(plane.info(c)->length == 1);
  CHECK(plane.stats().cached == 1);
  CHECK(plane.stats().held == 2);
  check_sound(plane);
}

TEST_CASE("close: in a submitted step the pages wait for its end", "[control][close]")
{
  for (bool const succeeds : {true, false}) {
    CAPTURE(succeeds);
    Plane plane = make_plane(4);
    SequenceId const a = prefilled(plane, numbers(1, 6));
    SequenceId const b = open(plane, {50});
    StepId const step = begin(plane);
    add(plane, step, a, {7, 8, 9});
    add(plane, step, b, {50});
    REQUIRE(plane.submit(step));
    REQUIRE(plane.close(a));
    CHECK(plane.info(a).error().why == Why::stale_sequence);
    CHECK(plane.stats().fenced == 2);
    CHECK(plane.stats().cached == 1);  // steps of the same stream may have it at once
    CHECK(plane.stats().free == 0);
    CHECK(plane.plan(step).chunks.size() == 2);
    REQUIRE((succeeds ? plane.commit(step, std::vector<Index>{3, 1}) : plane.fail(step)));
    CHECK(plane.stats().fenced == 0);
    CHECK(plane.stats().cached == 1);  // what a had published before
    CHECK(cached_rows(plane, numbers(1, 9)) == 4);
    CHECK(plane.info(b)->length == (succeeds ? 1 : 0));
    check_sound(plane);
  }
}

TEST_CASE("close: with a copy in the step, before and after submit", "[control][close]")
{
  for (bool const submitted : {false, true}) {
    CAPTURE(submitted);
    Plane plane = make_plane(6);
    SequenceId const a = prefilled(plane, numbers(1, 6));
    SequenceId const f = fork(plane, a);
    StepId const step = begin(plane);
    add(plane, step, f, {70});
    if (submitted) {
      REQUIRE(plane.submit(step));
    }
    REQUIRE(plane.close(f));
    check_sound(plane);
    if (!submitted) {
      REQUIRE(plane.submit(step));
      CHECK(plane.plan(step).chunks.empty());
    }
    // Made all the same, into a page that nobody holds: had f been cut, it would have kept the copy.
    CHECK(plane.plan(step).copies.size() == 1);
    REQUIRE(plane.commit(step));
    CHECK(plane.stats().held == 2);
    CHECK(plane.info(a)->length == 6);
    check_sound(plane);
    append(plane, a, {7});  // alone again: in place
    CHECK(plane.stats().copied_pages == 1);
  }
}

TEST_CASE("close: a slot that is used again is another sequence", "[control][close]")
{
  Plane plane = make_plane(4);
  SequenceId first = open(plane, {1});
  for (int i = 0; i < 100; ++i) {
    REQUIRE(plane.close(first));
    SequenceId const next = open(plane, {1});
    CHECK(next.slot == first.slot);
    CHECK(next.generation > first.generation);
    CHECK_FALSE(plane.info(first));
    first = next;
  }
}
