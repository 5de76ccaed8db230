// SPDX-License-Identifier: Apache-2.0

// Copies of part pages by steps in flight, when steps fail one after the other: nobody is ever put on a page that is not
// held for him, and no row is kept of which only a copy that was never made is left. A failed step's plan is not applied
// here, so that such rows show.

#include <cstdint>
#include <optional>

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

constexpr StreamId other{1};

/// A sequence of 6 rows was forked twice: `b` copied its part page in step 1, which was submitted, `c` shares that copy and
/// copied it once more in step 2. Only the steps hold what was copied.
struct CopyOfCopy {
  Engine e{16};
  Plane& plane = e.plane;
  SequenceId b{};
  SequenceId c{};
  StepId first{};
  StepId second{};
  PageId original{};
  PageId copy{};

  CopyOfCopy()
  {
    SequenceId const a = e.prefilled(numbers(1, 6));
    original = plane.table(a)[1];
    b = fork(plane, a);
    first = begin(plane);
    add(plane, first, b, {7});
    REQUIRE(plane.close(a));
    c = fork(plane, b);
    REQUIRE(plane.submit(first));
    second = begin(plane);
    add(plane, second, c, {7});
    copy = plane.table(b)[1];
    REQUIRE(plane.close(b));
    REQUIRE(plane.table(c)[1] != copy);
    check_sound(plane);
  }
  /// Somebody of another tenant takes all pages that are free to step `number`'s stream.
  SequenceId stranger(StepId step)
  {
    Domain const domain({.salt = "another tenant"});
    auto const x = plane.open({.tokens = numbers(201, 209), .domain = &domain});
    REQUIRE(x);
    add(plane, step, *x, numbers(201, 209));
    return *x;
  }
};

}  // namespace

TEST_CASE(
  "Rule 4: the copy of a copy dies with the step that made the copy, and all go back to the "
  "original",
  "[control][rules][copies]")
{
  CopyOfCopy t;
  REQUIRE(t.plane.fail(t.first));
  REQUIRE(t.plane.cuts().size() == 1);
  CHECK(t.plane.cuts()[0] == Cut{t.c, 6});
  CHECK(t.plane.table(t.c)[1] == t.original);
  t.e.check(t.c, 6);
  REQUIRE(t.plane.submit(t.second));
  CHECK(t.plane.plan(t.second).copies.empty());
  CHECK(t.plane.plan(t.second).chunks.empty());

  SECTION("the second step fails too")
  {
    StepId const third = begin(t.plane);
    SequenceId const x = t.stranger(third);
    REQUIRE(t.plane.fail(t.second));
    CHECK(t.plane.cuts().empty());
    t.e.check(t.c, 6);
    REQUIRE(t.plane.submit(third));
    t.e.finish(third, {numbers(201, 209)});
    CHECK(t.plane.table(x)[1] != t.plane.table(t.c)[1]);
    t.e.check(t.c, 6);
  }
  SECTION("the second step is committed")
  {
    t.e.finish(t.second, {});
    t.e.check(t.c, 6);
  }
  t.e.append(t.c, {8});
  t.e.check(t.c, 7);
}

TEST_CASE("Rule 4: two submitted steps fail, one after the other", "[control][rules][copies]")
{
  CopyOfCopy t;
  REQUIRE(t.plane.submit(t.second));
  REQUIRE(t.plane.fail(t.first));
  t.e.check(t.c, 6);
  StepId const third = begin(t.plane);
  SequenceId const x = t.stranger(third);
  REQUIRE(t.plane.submit(third));
  REQUIRE(t.plane.fail(t.second));
  t.e.check(t.c, 6);
  t.e.finish(third, {numbers(201, 209)});
  t.e.check(x, 9);
  t.e.append(t.c, {8});
  t.e.check(t.c, 7);
}

TEST_CASE("Rule 4: a step fails, and the open one behind it is dropped", "[control][rules][copies]")
{
  CopyOfCopy t;
  bool const taken = GENERATE(false, true);
  REQUIRE(t.plane.fail(t.first));
  std::optional<SequenceId> x;
  if (taken) {  // what was given back is another's by now, if it was free
    auto const foreign = t.plane.begin(other);
    auto const opened = t.plane.open({.tokens = numbers(301, 348), .stream = other});
    REQUIRE((foreign && opened));
    add(t.plane, *foreign, *opened, numbers(301, 348));
    REQUIRE(t.plane.submit(*foreign));
    t.e.finish(*foreign, {numbers(301, 348)});
    x = *opened;
  }
  REQUIRE(t.plane.drop(t.second));
  t.e.check(t.c, 6);
  if (x) {
    t.e.check(*x, 48);
    REQUIRE(t.plane.close(*x));
  }
  t.e.append(t.c, {8});
  t.e.check(t.c, 7);
}

TEST_CASE("Rule 4: rows written into a copy, which was copied on by a third step, die with it",
          "[control][rules][copies]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  PageId const original = plane.table(a)[1];
  SequenceId const b = fork(plane, a);
  StepId const first = begin(plane);
  add(plane, first, b, {7});
  SequenceId const c = fork(plane, b);
  REQUIRE(plane.submit(first));
  REQUIRE(plane.suspend(b));
  StepId const second = begin(plane);
  add(plane, second, c, {70});  // in place: `c` alone has the copy
  REQUIRE(plane.submit(second));
  REQUIRE(plane.plan(second).copies.empty());
  SequenceId const d = fork(plane, c);
  REQUIRE(plane.fail(first));  // neither is there a third step yet
  REQUIRE(plane.cuts().size() == 1);
  CHECK(plane.cuts()[0] == Cut{c, 6});
  e.check(c, 6);
  e.check(d, 6);
  CHECK(plane.table(d)[1] == original);
  REQUIRE(plane.close(d));
  REQUIRE(plane.close(a));

  SequenceId const f =
    fork(plane, c);  // once more, with the third step built before the first one fails
  StepId const third = begin(plane);
  REQUIRE(plane.fail(second));
  add(plane, third, f, {71});
  SequenceId const g = fork(plane, f);
  REQUIRE(plane.submit(third));
  REQUIRE(plane.close(f));
  StepId const fourth = begin(plane);
  add(plane, fourth, g, {72});
  REQUIRE(plane.submit(fourth));
  REQUIRE(plane.plan(fourth).copies.empty());
  SequenceId const h = fork(plane, g);
  REQUIRE_FALSE(plane.begin());  // two are in flight
  REQUIRE(plane.fail(third));
  REQUIRE(plane.cuts().size() == 1);
  CHECK(plane.cuts()[0] == Cut{g, 6});
  CHECK(plane.table(g)[1] == original);
  CHECK(plane.table(h)[1] == original);
  e.check(g, 6);
  e.check(h, 6);
  e.check(c, 6);
}

TEST_CASE(
  "Rule 4: a writer into a copy that moved on to a copy of its own falls back to the original",
  "[control][rules][copies]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 5));
  PageId const original = plane.table(a)[1];
  SequenceId const b = fork(plane, a);
  StepId const first = begin(plane);
  add(plane, first, b, {6});  // copies
  REQUIRE(plane.submit(first));
  StepId const second = begin(plane);
  add(plane, second, b, {7});  // in place, in the copy
  SequenceId const c = fork(plane, b);
  REQUIRE(plane.fail(first));  // takes both
  CHECK(plane.table(b)[1] == original);
  CHECK(plane.table(c)[1] == original);
  e.check(b, 5);
  e.check(c, 5);
  add(plane, second, c, {60});
  REQUIRE(plane.submit(second));
  StepId const third = begin(plane);
  add(plane, third, c, {61});
  SequenceId const d = fork(plane, c);
  REQUIRE(plane.fail(second));
  REQUIRE(plane.cuts().size() == 1);
  CHECK(plane.cuts()[0] == Cut{c, 5});
  e.check(c, 5);
  e.check(d, 5);
  REQUIRE(plane.drop(third));
  e.check(c, 5);
  e.check(d, 5);
}

TEST_CASE("Rule 4: in one step a copy of a copy names the original, and goes back to it",
          "[control][rules][copies]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  PageId const original = plane.table(a)[1];
  SequenceId const b = fork(plane, a);
  StepId const step = begin(plane);
  add(plane, step, b, {7});
  SequenceId const c = fork(plane, b);
  add(plane, step, c, {8});
  SequenceId const d = fork(plane, c);
  REQUIRE(plane.close(b));
  bool const fails = GENERATE(false, true);
  if (fails) {
    REQUIRE(plane.submit(step));
    REQUIRE(plane.close(a));  // from here on only the step holds the original
    REQUIRE(plane.fail(step));
  } else {
    REQUIRE(plane.close(a));
    REQUIRE(plane.drop(step));
  }
  for (SequenceId const id : {c, d}) {
    CHECK(plane.table(id)[1] == original);
    e.check(id, 6);
  }
  CHECK(plane.holders(original) == 2);
  CHECK(plane.stats().held == 2);
  e.append(c, {9});
  e.check(c, 7);
  e.check(d, 6);
}

TEST_CASE("A copy's page that was let go and given out again binds nobody to the step that copied",
          "[control][rules][copies]")
{
  Engine e(4);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  SequenceId const b = fork(plane, a);
  StepId const first = begin(plane);
  add(plane, first, b, {7});
  PageId const copy = plane.table(b)[1];
  REQUIRE(plane.submit(first));
  REQUIRE(plane.close(b));
  SequenceId const x = open(plane, {50});
  StepId const second = begin(plane);
  add_draft(plane, second, x, numbers(50, 54));  // the free page and the waiting one
  REQUIRE(plane.table(x)[1] == copy);            // where the copy stood
  REQUIRE(plane.submit(second));
  REQUIRE(plane.fail(first));
  CHECK(plane.cuts().empty());
  e.finish(second, {numbers(50, 54)});
  e.check(x, 5);
  e.check(a, 6);
}

TEST_CASE("What a dead chunk of a submitted step reads and writes waits until that step retires",
          "[control][rules][copies]")
{
  CopyOfCopy t;
  bool const closed = GENERATE(false, true);
  REQUIRE(t.plane.submit(t.second));
  PageId const target = t.plane.table(t.c)[1];
  if (closed) {
    REQUIRE(t.plane.close(t.c));
  }
  REQUIRE(t.plane.fail(t.first));
  auto const waits =
    [&](PageId page) {  // it has the count of its stack, and nobody else may have it
      return t.plane.holders(page) == 1;
    };
  CHECK(waits(t.copy));
  CHECK(waits(target));
  t.e.finish(t.second, {{7}});
  CHECK(t.plane.holders(t.copy) == 0);
  CHECK(t.plane.holders(target) == 0);
  check_sound(t.plane);
  if (!closed) {
    t.e.check(t.c, 6);
  }
}
