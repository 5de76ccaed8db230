// SPDX-License-Identifier: Apache-2.0

// The rules of a row's life about shortages and failed steps; see rules_test.cpp.

#include <algorithm>
#include <vector>

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

constexpr StreamId other{1};

}  // namespace

TEST_CASE("Rule 18: a Shortage counts what its own stream may have, and what waits for others",
          "[control][rules]")
{
  Engine e(6);
  Plane& plane = e.plane;
  cache_only(plane, numbers(101, 104));
  SequenceId const a = open(plane, {1});
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 16));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.truncate(a, 0));  // its pages wait for the step; pending ones may still commit
  auto const b = plane.open({.tokens = Tokens{60}, .stream = other});
  REQUIRE(b);
  auto const foreign = plane.begin(other);
  REQUIRE(foreign);
  auto const refused = plane.add(*foreign, *b, {numbers(60, 71)});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().why == Why::no_pages);
  CHECK(refused.error().need == 3);
  CHECK(refused.error().free == 1);
  CHECK(refused.error().evictable == 1);
  CHECK(refused.error().fenced == 4);
  REQUIRE(plane.commit(step));
  CHECK(*plane.add(*foreign, *b, {numbers(60, 71)}) == 12);
  check_sound(plane);
}

TEST_CASE("Rule 18: a stream has its own waiting pages at once", "[control][rules]")
{
  Engine e(4);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, {1});
  StepId const step = begin(plane);
  add_draft(plane, step, a, numbers(1, 16));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.close(a));
  CHECK(plane.stats().free == 0);
  auto const foreign = plane.begin(other);
  auto const b = plane.open({.tokens = Tokens{60}, .stream = other});
  REQUIRE((foreign && b));
  CHECK(plane.add(*foreign, *b, {Tokens{60}}).error().fenced == 4);
  SequenceId const c = open(plane, {50});
  StepId const next = begin(plane);
  CHECK(*plane.add(next, c, {numbers(50, 65)}) == 16);
  REQUIRE(plane.submit(next));
  e.finish(step, {numbers(1, 16)});
  e.finish(next, {numbers(50, 65)});
  e.check(c, 16);
}

TEST_CASE("Rule 18: leaf first is always possible", "[control][rules]")
{
  Engine e(6);
  Plane& plane = e.plane;
  REQUIRE(plane.close(e.prefilled(numbers(1, 21))));  // five pages in a row
  SequenceId const holder = open(plane, numbers(1, 9));
  CHECK(length_of(plane, holder) == 8);
  SequenceId const a = open(plane, {50});
  StepId const step = begin(plane);
  add(plane, step, a, numbers(50, 65));  // four: the free one, and the three behind the holder's
  REQUIRE(plane.submit(step));
  e.finish(step, {numbers(50, 65)});
  e.check(a, 16);
  e.check(holder, 8);
}

TEST_CASE("Rules 13 and 19: a failed step takes its dependents out of the steps after it",
          "[control][rules]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  SequenceId const b = e.prefilled(numbers(101, 103));
  StepId const first = begin(plane);
  add(plane, first, a, {7});
  REQUIRE(plane.submit(first));
  StepId const built = begin(plane);
  add(plane, built, b, {104});
  add(plane, built, a, {8});
  e.rows.run(plane.plan(first), {{57}});
  REQUIRE(plane.fail(first));
  REQUIRE(plane.cuts().size() == 1);
  CHECK(plane.cuts()[0] == Cut{a, 6});
  check_sound(plane);
  CHECK(plane.add(built, a, {Tokens{70}}).error().why == Why::busy);
  REQUIRE(plane.submit(built));
  REQUIRE(plane.plan(built).chunks.size() == 1);
  CHECK(plane.plan(built).chunks[0].sequence == b);
  e.finish(built, {{104}});
  e.check(a, 6);
  e.check(b, 4);
  e.append(a, {7});
  e.check(a, 7);
}

TEST_CASE("Rules 13 and 19: a failed step takes its dependents out of a submitted step",
          "[control][rules]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  SequenceId const b = e.prefilled(numbers(101, 103));
  SequenceId const c = open(plane, numbers(201, 209));
  StepId const first = begin(plane);
  add(plane, first, a, {7});
  add(plane, first, c, numbers(201, 208));
  REQUIRE(plane.submit(first));
  SequenceId const d = open(plane, numbers(201, 209));  // reads what c will write
  StepId const second = begin(plane);
  add(plane, second, d, {209});
  add(plane, second, b, {104});
  add(plane, second, a, {8});
  REQUIRE(plane.submit(second));
  CHECK(plane.commit(second).error().why == Why::busy);  // steps retire in order
  REQUIRE(plane.fail(first));
  CHECK(plane.cuts().size() == 3);
  e.finish(second, {{209}, {104}, {8}});  // its kernels run all the same
  e.check(a, 6);
  e.check(b, 4);
  e.check(c, 0);
  e.check(d, 0);
  CHECK(cached_rows(plane, numbers(201, 209)) == 0);
  e.append(d, numbers(201, 209));
  e.append(c, numbers(201, 209));
  e.check(d, 9);
  e.check(c, 9);
}

TEST_CASE("Rules 13 and 19: a step that is not the oldest fails as soon as it is",
          "[control][rules]")
{
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const first = begin(plane);
  add(plane, first, a, {7});
  REQUIRE(plane.submit(first));
  StepId const second = begin(plane);
  add(plane, second, a, {8});
  REQUIRE(plane.submit(second));
  REQUIRE(plane.fail(second));
  CHECK(plane.cuts().empty());
  e.finish(first, {{7}});
  CHECK(plane.cuts().size() == 1);
  e.check(a, 7);
  CHECK(plane.commit(second).error().why == Why::stale_step);
}

TEST_CASE("64 sequences with one prompt of 8192 tokens, added in one step, compute it once",
          "[control][rules]")
{
  constexpr Index p = 16;
  Engine e(ControlOptions{
    .pages = 1024, .page_tokens = p, .max_sequences = 64, .max_step_tokens = 1 << 19});
  Plane& plane = e.plane;
  Tokens const prompt = numbers(1, 8192);
  std::vector<SequenceId> ids;
  StepId step = begin_attaching(plane);
  Index planned = 0;
  for (int i = 0; i < 64; ++i) {
    ids.push_back(open(plane, prompt));
    CHECK(length_of(plane, ids.back()) == 0);  // the step is not submitted
    auto const added = plane.add(step, ids.back(), {prompt});
    REQUIRE(added);
    planned += *added;
  }
  CHECK(planned == 8192 + 63 * p);  // each has its last page for itself
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).num_tokens() == planned);
  CHECK(plane.stats().held == 511 + 64);
  check_sound(plane);

  e.rows.run(plane.plan(step), std::vector<Tokens>(64, numbers(2, 8193)));
  REQUIRE(plane.fail(step));
  CHECK(plane.cuts().size() == 64);
  CHECK(plane.stats().free == 1024);
  check_sound(plane);
  step = begin_attaching(plane);
  planned = 0;
  for (SequenceId const id : ids) {
    CHECK(length_of(plane, id) == 0);
    auto const added = plane.add(step, id, {prompt});
    REQUIRE(added);
    planned += *added;
  }
  CHECK(planned == 8192 + 63 * p);
  REQUIRE(plane.submit(step));
  std::vector<Index> said(64, 0);  // tokens by chunk: 8k of the first, of the others the last page
  for (StepToken const token : plane.tokens(step)) {
    said[token.chunk] += token.token == prompt[static_cast<std::size_t>(token.place)] ? 1 : 0;
  }
  CHECK(said[0] == 8192);
  CHECK(std::all_of(said.begin() + 1, said.end(), [](Index n) { return n == p; }));
  e.finish(step, std::vector<Tokens>(64, prompt));
  int wrong = 0;
  for (SequenceId const id : ids) {
    CHECK(length_of(plane, id) == 8192);
    wrong += e.rows.count_wrong(plane, id);
  }
  CHECK(wrong == 0);
  CHECK(plane.stats().committed_rows == static_cast<std::uint64_t>(planned));
  check_sound(plane);
}

TEST_CASE("Rule 4: a chunk that is undone does not go back to a copy that was never made",
          "[control][rules]")
{
  // F and its fork G both copy A's page in a step that is being built. F leaves, an older step fails and takes F's copy
  // with it, and the step is dropped: G must find itself on A's page, not on F's.
  Engine e(16);
  Plane& plane = e.plane;
  SequenceId const a = e.prefilled(numbers(1, 6));
  StepId const older = begin(plane);
  REQUIRE(plane.submit(older));
  SequenceId const f = fork(plane, a);
  StepId const step = begin(plane);
  add_draft(plane, step, f, {20, 21});
  SequenceId const g = fork(plane, f);
  add_draft(plane, step, g, {30});
  REQUIRE(*plane.truncate(f, 4) == 4);
  REQUIRE(plane.fail(older));
  REQUIRE(plane.drop(step));
  e.check(g, 6);
  CHECK(pages(plane, g) == pages(plane, a));
}
