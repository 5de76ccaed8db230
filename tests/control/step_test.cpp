// SPDX-License-Identifier: Apache-2.0

#include <string>

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

}  // namespace

TEST_CASE("info: tells what is committed, and what is planned behind it", "[control][step]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 5));
  StepId const step = begin(plane);
  REQUIRE(plane.add(step, a, {.count = 3}));
  CHECK(plane.info(a)->length == 5);
  CHECK(plane.info(a)->planned == 8);
  REQUIRE(plane.drop(step));
  CHECK(plane.info(a)->planned == 5);
}

TEST_CASE("Step: each call has its stage, and others are stale and change nothing",
          "[control][step]")
{
  Plane plane = make_plane(8);
  SequenceId const a = open(plane, {1});
  auto const stale = [&](StepId id, bool submit, bool drop, bool commit, bool fail, bool add_) {
    std::uint64_t const before = plane.digest();
    CHECK((!submit || plane.submit(id).error().why == Why::stale_step));
    CHECK((!drop || plane.drop(id).error().why == Why::stale_step));
    CHECK((!commit || plane.commit(id).error().why == Why::stale_step));
    CHECK((!fail || plane.fail(id).error().why == Why::stale_step));
    CHECK((!add_ || plane.add(id, a, {Tokens{1}}).error().why == Why::stale_step));
    CHECK(plane.digest() == before);
  };
  stale(StepId{}, true, true, true, true, true);
  StepId const step = begin(plane);
  stale(StepId{step.value + 1}, true, true, true, true, true);
  stale(step, false, false, true, true, false);
  add(plane, step, a, {1});
  REQUIRE(plane.submit(step));
  stale(step, true, true, false, false, true);
  REQUIRE(plane.commit(step));
  stale(step, true, true, true, true, true);
  CHECK(std::string(plane.commit(step).error().message().text) ==
        "step = 1 (stale step): is not at this stage: begin, add, submit, then commit or fail");

  StepId const dropped = begin(plane);
  REQUIRE(plane.drop(dropped));
  stale(dropped, true, true, true, true, true);
  StepId const failed = begin(plane);
  CHECK(failed.value > dropped.value);
  REQUIRE(plane.submit(failed));
  REQUIRE(plane.fail(failed));
  stale(failed, true, true, true, true, true);
}

TEST_CASE("Step: of each stream one that is built, and two in flight", "[control][step]")
{
  Plane plane = make_plane(8);
  STATIC_REQUIRE(Plane::max_steps_in_flight == 2);
  StepId const first = begin(plane);
  auto const refused = plane.begin();
  REQUIRE_FALSE(refused);
  CHECK(std::string(refused.error().message().text) ==
        "step = 1 (busy): is not over; commit, fail or drop it first");
  REQUIRE(plane.submit(first));
  StepId const second = begin(plane);
  CHECK(plane.begin().error().why == Why::busy);
  REQUIRE(plane.submit(second));
  CHECK(plane.begin().error().value == static_cast<std::int64_t>(first.value));  // the oldest
  CHECK(plane.plan(first).step == first);
  CHECK(plane.plan(second).step == second);
  CHECK(plane.plan(first).slot != plane.plan(second).slot);
  auto const elsewhere = plane.begin(StreamId{1});
  REQUIRE(elsewhere);
  CHECK(plane.commit(second).error().value == static_cast<std::int64_t>(first.value));
  REQUIRE(plane.commit(first));
  StepId const third = begin(plane);
  REQUIRE(plane.submit(third));
  CHECK(plane.plan(third).slot != plane.plan(second).slot);
  REQUIRE(plane.commit(second));
  REQUIRE(plane.commit(third));
  REQUIRE(plane.drop(*elsewhere));
}

TEST_CASE("Step: a sequence is in it at most once; forking and cutting it go on", "[control][step]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  StepId const step = begin(plane);
  add(plane, step, a, {7});
  std::uint64_t const before = plane.digest();
  auto const again = plane.add(step, a, {Tokens{8}});
  REQUIRE_FALSE(again);
  CHECK(again.error().why == Why::busy);
  CHECK(std::string(again.error().detail.message().text) ==
        "sequence = 0 (busy): is in the step in flight; commit, fail or drop it first");
  CHECK(plane.digest() == before);
  CHECK(plane.info(a)->length == 6);
  SequenceId const built = fork(plane, a);  // takes the rows that are real
  CHECK(plane.info(built)->length == 6);
  REQUIRE(plane.submit(step));
  SequenceId const flying = fork(plane, a);
  CHECK(plane.info(flying)->length == 6);
  CHECK(*plane.truncate(built, 2) == 2);
  check_sound(plane);
  REQUIRE(plane.commit(step));
  CHECK(plane.info(a)->length == 7);
  CHECK(plane.info(built)->length == 2);
  CHECK(plane.info(flying)->length == 6);
  check_sound(plane);
}

TEST_CASE("Step: a cut below its chunk voids the rows in flight, a longer one none",
          "[control][step]")
{
  for (bool const submitted : {false, true}) {
    CAPTURE(submitted);
    Plane plane = make_plane(8);
    SequenceId const a = prefilled(plane, numbers(1, 6));
    SequenceId const b = open(plane, {50});
    StepId const step = begin(plane);
    add(plane, step, a, {7, 8, 9});
    add(plane, step, b, {50});
    if (submitted) {
      REQUIRE(plane.submit(step));
    }
    CHECK(*plane.truncate(a, 9) == 6);  // all that is planned
    CHECK(plane.info(a)->pages == 3);
    CHECK(*plane.truncate(a, 5) == 5);
    CHECK(plane.add(step, a, {Tokens{70}}).error().why ==
          (submitted ? Why::stale_step : Why::busy));
    check_sound(plane);
    if (!submitted) {
      REQUIRE(plane.submit(step));
    }
    CHECK(plane.plan(step).chunks.size() == (submitted ? 2 : 1));
    REQUIRE(plane.commit(step));
    CHECK(plane.info(a)->length == 5);
    CHECK(plane.info(b)->length == 1);
    CHECK(plane.info(a)->pages == 2);
    check_sound(plane);
  }
}

TEST_CASE("Step: rows are real from commit on, their pages are reserved from add on",
          "[control][step]")
{
  Plane plane = make_plane(8);
  SequenceId const a = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 9));
  CHECK(plane.info(a)->length == 0);
  CHECK(plane.info(a)->pages == 3);
  CHECK(plane.plan(step).chunks.empty());
  CHECK(cached_rows(plane, numbers(1, 9)) == 0);
  REQUIRE(plane.submit(step));
  CHECK(plane.info(a)->length == 0);
  Tokens const prompt = numbers(1, 9);
  CHECK(cached_rows(plane, prompt) == 8);  // later steps of the stream run after this one
  CHECK(plane.probe({.tokens = prompt, .stream = StreamId{1}}).rows == 0);
  REQUIRE(plane.commit(step));
  CHECK(plane.info(a)->length == 9);
  CHECK(std::vector<Token>(plane.tokens(a).begin(), plane.tokens(a).end()) == numbers(1, 9));
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  CHECK(plane.stats().committed_rows == 9);
  CHECK(plane.stats().planned_rows == 9);
  check_sound(plane);
}

TEST_CASE("Step: rows that are not accepted never existed, and their pages come back",
          "[control][step]")
{
  Plane plane = make_plane(8);
  for (Index accepted = 0; accepted <= 9; ++accepted) {
    CAPTURE(accepted);
    SequenceId const a = prefilled(plane, {1, 2, 3});
    StepId const step = begin(plane);
    add_draft(plane, step, a, numbers(10, 18));
    CHECK(plane.info(a)->pages == 3);
    REQUIRE(plane.submit(step));
    REQUIRE(plane.commit(step, std::vector<Index>{accepted}));
    CHECK(plane.info(a)->length == 3 + accepted);
    CHECK(plane.info(a)->pages == (3U + static_cast<PageCount>(accepted) + 3) / 4);
    check_sound(plane);
    Tokens drafted{1, 2, 3};
    Tokens const draft = numbers(10, 18);
    drafted.insert(drafted.end(), draft.begin(), draft.end());
    drafted.push_back(99);  // the last token of a prompt is never a hit
    CHECK(plane.probe({.tokens = drafted}).shared_rows == (3 + accepted) / 4 * 4);
    REQUIRE(plane.close(a));
    plane.forget({});
    CHECK(plane.stats().free == 8);
  }
}

TEST_CASE("Step: the decision is taken chunk by chunk", "[control][step]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, {1, 2, 3});
  SequenceId const b = prefilled(plane, {5, 6});
  SequenceId const c = open(plane, {9});
  StepId const step = begin(plane);
  add_draft(plane, step, b, {7, 8, 9});
  add_draft(plane, step, c, {1});
  add_draft(plane, step, a, {4, 5});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step, std::vector<Index>{2, 0, 1}));
  CHECK(plane.info(b)->length == 4);
  CHECK(plane.info(c)->length == 0);
  CHECK(plane.info(c)->pages == 0);
  CHECK(plane.info(a)->length == 4);
  check_sound(plane);
}

TEST_CASE("Step: fail after submit leaves rows and tables as before the step", "[control][step]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  SequenceId const f = fork(plane, a);
  SequenceId const b = open(plane, {9});
  auto const table_a = pages(plane, a);
  auto const table_f = pages(plane, f);
  StepId const step = begin(plane);
  add(plane, step, f, numbers(50, 55));  // copies the part page
  add(plane, step, a, {7, 8, 9});        // writes in place
  add(plane, step, b, numbers(9, 12));
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).copies.size() == 1);
  REQUIRE(plane.fail(step));
  CHECK(pages(plane, a) == table_a);
  CHECK(pages(plane, f) == table_f);
  CHECK(pages(plane, b).empty());
  CHECK(plane.info(a)->length == 6);
  CHECK(plane.info(f)->length == 6);
  CHECK(cached_rows(plane, numbers(1, 9)) == 4);
  CHECK(plane.stats().free == 6);
  check_sound(plane);

  append(plane, f, {60});  // and life goes on: the shared page is copied again
  CHECK(pages(plane, f)[1] != table_f[1]);
  append(plane, a, {7});
  CHECK(pages(plane, a) == table_a);
  check_sound(plane);
}

TEST_CASE("Step: an empty one may be submitted, committed, failed or dropped", "[control][step]")
{
  Plane plane = make_plane(2);
  std::uint64_t const before = plane.digest();
  StepId step = begin(plane);
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).step == step);
  CHECK(plane.plan(step).num_tokens() == 0);
  REQUIRE(plane.commit(step));
  step = begin(plane);
  REQUIRE(plane.drop(step));
  CHECK(plane.digest() == before);
}

TEST_CASE("Step: the stream of begin is the plan's", "[control][step]")
{
  Plane plane = make_plane(2);
  auto const step = plane.begin(StreamId{3});
  REQUIRE(step);
  REQUIRE(plane.submit(*step));
  CHECK(plane.begin(StreamId{max_streams}).error().why == Why::bad_config);
  CHECK(plane.plan(*step).stream == StreamId{3});
}

TEST_CASE("add: drafts that were looked up in the sequence's own text", "[control][step]")
{
  Plane plane = make_plane(64);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  Tokens want = numbers(1, 6);
  for (int i = 0; i < 5; ++i) {  // the array of tokens grows, and moves
    auto const own = plane.tokens(a);
    Tokens const drafts(own.begin(), own.end());
    StepId const step = begin(plane);
    REQUIRE(plane.add(step, a, {.tokens = own, .draft = true}));
    REQUIRE(plane.submit(step));
    REQUIRE(plane.commit(step));
    want.insert(want.end(), drafts.begin(), drafts.end());
    CHECK(Tokens(plane.tokens(a).begin(), plane.tokens(a).end()) == want);
  }
}
