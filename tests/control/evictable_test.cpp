// SPDX-License-Identifier: Apache-2.0
#include <kvcache/control/evictable.hpp>

#include "support/plane.hpp"

using namespace kvcache;
using namespace kvcache_test;

TEST_CASE(
  "count_evictable: what lies above a page that a step copies from stays, and is not promised",
  "[control][evictable]")
{
  // A step holds the page that it copies from until it retires; its sequence, which held the page before that, is closed.
  Plane plane = make_plane(3);
  cache_only(plane, numbers(1, 8));
  SequenceId const b = open(plane, {1, 2, 3, 4, 5, 6, 7, 9});
  REQUIRE(plane.info(b)->length == 7);
  StepId const step = begin(plane);
  add_draft(plane, step, b, {50});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).copies.size() == 1);
  REQUIRE(plane.close(b));

  SequenceId const c = open(plane, numbers(101, 108));
  StepId const next = begin(plane);
  auto const added = plane.add(next, c, {.tokens = numbers(101, 108)});
  REQUIRE_FALSE(added.has_value());
  Shortage const& shortage = added.error();
  CHECK(shortage.why == Why::no_pages);
  CHECK(shortage.need == 2);
  CHECK(shortage.free == 1);  // what the copy would have filled: its stream may have it
  CHECK(shortage.evictable == 0);
  check_sound(plane);

  REQUIRE(plane.commit(step));
  CHECK(plane.add(next, c, {.tokens = numbers(101, 108)}).has_value());
  check_sound(plane);
}
