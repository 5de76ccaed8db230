// SPDX-License-Identifier: Apache-2.0

// The rules of a row's life from 9 to 17; see rules_test.cpp.

#include <algorithm>

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

constexpr StreamId other{1};

}  // namespace

TEST_CASE("Rule 9: a pending page depends on every step that writes rows of it", "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, numbers(1, 9));
  StepId const first = begin(plane);
  add(plane, first, a, numbers(1, 3));
  REQUIRE(plane.submit(first));
  StepId const second = begin(plane);
  add(plane, second, a, numbers(4, 9));
  REQUIRE(plane.submit(second));
  SequenceId const b = open(plane, numbers(1, 9));
  CHECK(length_of(plane, b) == 8);
  e.rows.run(plane.plan(first), {{51, 52, 53}});
  REQUIRE(plane.fail(first));
  CHECK(plane.cuts().size() == 2);
  e.check(a, 0);
  e.check(b, 0);
  e.finish(second, {numbers(4, 9)});
  e.check(a, 0);
  CHECK(cached_rows(plane, numbers(1, 9)) == 0);
  e.append(b, numbers(1, 9));
  e.check(b, 9);
}

TEST_CASE("Rule 10: part of a page is kept only over rows that are written", "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, numbers(1, 5));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 5));
  REQUIRE(plane.submit(step));
  SequenceId const b = open(plane, numbers(1, 5));
  CHECK(length_of(plane, b) == 4);
  REQUIRE(*plane.truncate(b, 3) == 0);
  StepId const next = begin(plane);
  add(plane, next, b, {70, 71});
  REQUIRE(plane.submit(next));
  REQUIRE(plane.fail(step));
  e.finish(next, {{70, 71}});
  e.check(a, 0);
  e.check(b, 2);
}

TEST_CASE("Rule 10: a cut below the planned end voids all rows in flight", "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const first = begin(plane);
  add(plane, first, a, {7});
  REQUIRE(plane.submit(first));
  StepId const second = begin(plane);
  add(plane, second, a, {8});
  REQUIRE(plane.submit(second));
  CHECK(*plane.truncate(a, 7) == 6);  // row 6 is not real yet
  e.finish(first, {{7}});
  e.finish(second, {{8}});
  e.check(a, 6);
  e.append(a, {70});
  e.check(a, 7);
}

TEST_CASE("Rule 11: a copy reads the original, never a page that the same plan fills",
          "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  SequenceId const f = fork(plane, a);
  StepId const step = begin(plane);
  add(plane, step, f, {70});
  SequenceId const g = fork(plane, f);  // shares the page that the plan fills
  REQUIRE(plane.close(f));
  add(plane, step, g, {80});
  REQUIRE(plane.submit(step));
  Plan const& plan = plane.plan(step);
  REQUIRE_FALSE(plan.copies.empty());
  for (PageCopy const& copy : plan.copies) {
    CHECK(std::none_of(plan.copies.begin(), plan.copies.end(), [&](PageCopy const& filled) {
      return filled.target == copy.source;
    }));
  }
  e.finish(step, {{80}});
  e.check(a, 6);
  e.check(g, 7);
}

TEST_CASE("Rule 12: a page that a step in flight copies is not published before it",
          "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const first = begin(plane);
  add_draft(plane, first, a, {7, 8});
  REQUIRE(plane.submit(first));
  SequenceId const f = fork(plane, a);
  StepId const second = begin(plane);
  add(plane, second, a, {9});  // may begin inside the page, if a draft is rejected: it is copied
  REQUIRE(plane.submit(second));
  REQUIRE(plane.plan(second).copies.size() == 1);
  CHECK(plane.plan(second).copies[0].rows == 4);
  CHECK(plane.plan(second).chunks[0].slack == 2);
  e.finish(first, {{7, 8}});
  CHECK(length_of(plane, a) == 8);
  CHECK(cached_rows(plane, numbers(1, 9)) == 4);  // the copy has no bytes yet
  check_sound(plane);
  e.finish(second, {{9}});
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  e.check(a, 9);
  e.check(f, 6);
}

TEST_CASE("Rule 14: cuts and suspension leave the id good, and late results count for nobody",
          "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  SequenceId const b = e.prefilled(numbers(101, 108));
  StepId const step = begin(plane);
  add(plane, step, a, {7});
  add(plane, step, b, {109});
  REQUIRE(plane.submit(step));
  REQUIRE(*plane.truncate(a, 5) == 5);
  REQUIRE(plane.suspend(b));
  CHECK(plane.info(b)->suspended);
  CHECK(plane.info(b)->pages == 0);
  CHECK(plane.resume(b)->rows == 8);  // while the step that had it is still in flight
  StepId const next = begin(plane);
  add(plane, next, a, {60});
  add(plane, next, b, {110});
  REQUIRE(plane.submit(next));
  e.finish(step, {{7}, {109}});
  e.check(a, 5);
  e.check(b, 8);
  e.finish(next, {{60}, {110}});
  e.check(a, 6);
  e.check(b, 9);
  CHECK(plane.tokens(a)[5] == 60);
  CHECK(plane.tokens(b)[8] == 110);
}

TEST_CASE("Rule 15: at commit a duplicate is replaced in all tables by the indexed page",
          "[control][rules]")
{
  Engine e(24);
  Plane& plane = e.plane;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(open(plane, numbers(1, 17)));
  }
  for (Tokens const& tokens : {numbers(1, 8), numbers(9, 17)}) {  // drafts attach to nothing
    StepId const step = begin(plane);
    for (SequenceId const id : ids) {
      add_draft(plane, step, id, tokens);
    }
    REQUIRE(plane.submit(step));
    e.finish(step, {tokens, tokens, tokens, tokens});
  }
  CHECK(plane.stats().held == 8);  // four whole pages and a part page each; 17 without
  CHECK(plane.stats().merged_pages == 12);
  for (SequenceId const id : ids) {
    e.check(id, 17);
  }
  StepId const step = begin(plane);  // the pools learn of the pages that took their place
  for (SequenceId const id : ids) {
    add(plane, step, id, {18});
  }
  REQUIRE(plane.submit(step));
  e.finish(step, {{18}, {18}, {18}, {18}});
  for (SequenceId const id : ids) {
    e.check(id, 18);
  }
}

TEST_CASE("Rule 15: where another's page is still pending, the sequence merges at a later commit",
          "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 9));
  REQUIRE(plane.submit(step));
  auto const b = plane.open({.tokens = numbers(1, 9), .stream = other});
  REQUIRE(b);
  auto const foreign = plane.begin(other);
  REQUIRE(foreign);
  add(plane, *foreign, *b, numbers(1, 9));
  REQUIRE(plane.submit(*foreign));
  e.finish(*foreign, {numbers(1, 9)});
  CHECK(pages(plane, *b)[0] != pages(plane, a)[0]);
  check_sound(plane);
  SECTION("which commits")
  {
    e.finish(step, {numbers(1, 9)});
  }
  SECTION("which fails")
  {
    REQUIRE(plane.fail(step));
    CHECK(length_of(plane, a) == 0);
  }
  auto const next = plane.begin(other);
  REQUIRE(next);
  add(plane, *next, *b, {10});
  REQUIRE(plane.submit(*next));
  e.finish(*next, {{10}});
  e.check(*b, 10);
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  e.append(a, length_of(plane, a) == 0 ? numbers(1, 10) : Tokens{10});
  e.check(a, 10);
  CHECK(pages(plane, *b)[0] == pages(plane, a)[0]);
  CHECK(pages(plane, *b)[1] == pages(plane, a)[1]);
}

TEST_CASE("Rule 16: an add may attach to all of its tokens and plan no row", "[control][rules]")
{
  for (bool const overlap : {false, true}) {
    CAPTURE(overlap);
    Engine e(24);
    Plane& plane = e.plane;
    std::vector<SequenceId> ids;
    for (int i = 0; i < 4; ++i) {
      ids.push_back(open(plane, numbers(1, 17)));
    }
    Index planned = 0;
    auto const submitted = [&](Tokens const& tokens) {
      StepId const step = begin_attaching(plane);
      for (SequenceId const id : ids) {
        auto const added = plane.add(step, id, {tokens});
        REQUIRE(added);
        planned += *added;
      }
      REQUIRE(plane.submit(step));
      return step;
    };
    StepId const first = submitted(numbers(1, 8));
    CHECK(plane.plan(first).chunks.size() == 1);
    if (!overlap) {
      e.finish(first, {numbers(1, 8)});
    }
    StepId const second = submitted(numbers(9, 17));
    CHECK(plane.plan(second).chunks.size() == 4);
    if (overlap) {
      e.finish(first, {numbers(1, 8)});
    }
    e.finish(second, {numbers(9, 17), numbers(9, 17), numbers(9, 17), numbers(9, 17)});
    CHECK(planned == 20);
    CHECK(plane.stats().planned_rows == 20);
    CHECK(plane.stats().held == 8);
    for (SequenceId const id : ids) {
      e.check(id, 17);
    }
  }
}

TEST_CASE("Rule 17: drafts and counts are pending for nobody", "[control][rules]")
{
  Engine e(12);
  Plane& plane = e.plane;
  Tokens const text = numbers(1, 8);
  SequenceId const a = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  bool const by_count = GENERATE(false, true);
  CAPTURE(by_count);
  if (by_count) {
    REQUIRE(*plane.add(step, a, {.tokens = {}, .count = 8}) == 8);
  } else {
    add_draft(plane, step, a, text);
  }
  REQUIRE(plane.submit(step));
  CHECK(cached_rows(plane, numbers(1, 9)) == 0);
  e.rows.run(plane.plan(step), {text});
  std::vector<Outcome> const outcomes{
    {.accepted = by_count ? 8 : 5,
     .tokens = by_count ? std::span<Token const>(text) : std::span<Token const>{}}};
  REQUIRE(plane.commit(step, outcomes));
  CHECK(cached_rows(plane, numbers(1, 9)) == (by_count ? 8 : 4));
  e.check(a, by_count ? 8 : 5);
  CHECK(plane.info(a)->pages == 2);
}
