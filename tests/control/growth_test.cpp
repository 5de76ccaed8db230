// SPDX-License-Identifier: Apache-2.0
// Figures and lists that are kept beside the state so that no call walks all of it: they must agree with it. That the calls
// do not grow with what they do not look at is counted by the bar GROWTH.

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/plane.hpp"
#include "support/random.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

/// The pages of a table.
std::vector<PageId> pages_of(Plane const& p, SequenceId id)
{
  auto const table = p.table(id);
  return {table.begin(), table.end()};
}

/// The length that `truncate` kept.
Index truncated(Plane& p, SequenceId id, Index length)
{
  auto const kept = p.truncate(id, length);
  REQUIRE(kept);
  return *kept;
}

TEST_CASE("Stats: a page that steps alone hold is fenced, once, however many holds they have")
{
  Plane p = make_plane(16);
  SequenceId const a = open(p, numbers(1, 6));
  append(p, a, numbers(1, 6));
  SequenceId const b = fork(p, a);
  SequenceId const c = fork(p, a);
  StepId const step = begin(p);
  add(p, step, b, {7});
  add(p, step, c, {8});
  REQUIRE(p.stats().fenced == 0);  // two copies read the part page, and `a` holds it
  REQUIRE(p.close(a));
  REQUIRE(p.stats().fenced == 1);  // now they alone do
  REQUIRE(p.check_invariants());
  SECTION("the step is dropped")
  {
    REQUIRE(p.drop(step));
    REQUIRE(p.stats().fenced == 0);
    REQUIRE(p.table(b).back() == p.table(c).back());
  }
  SECTION("the step is committed")
  {
    REQUIRE(p.submit(step));
    REQUIRE(p.stats().fenced == 1);
    REQUIRE(p.commit(step));
    REQUIRE(p.stats().fenced == 0);
  }
  SECTION("the step fails")
  {
    REQUIRE(p.submit(step));
    REQUIRE(p.fail(step));
    REQUIRE(p.stats().fenced == 0);
    REQUIRE(p.table(b).back() == p.table(c).back());
  }
  REQUIRE(p.check_invariants());
}

TEST_CASE("Stats: pending pages of a sequence that left are fenced until somebody attaches")
{
  Plane p = make_plane(16);
  SequenceId const a = open(p, numbers(1, 12));
  StepId const step = begin(p);
  add(p, step, a, numbers(1, 12));
  REQUIRE(p.submit(step));
  REQUIRE(p.stats().fenced == 0);
  REQUIRE(p.close(a));
  REQUIRE(p.stats().fenced == 3);
  SequenceId const b = open(p, numbers(1, 12));
  REQUIRE(p.info(b)->length == 8);
  REQUIRE(p.stats().fenced == 1);
  REQUIRE(p.check_invariants());
  SECTION("the step is committed")
  {
    REQUIRE(p.commit(step));
    REQUIRE(p.stats().fenced == 0);
  }
  SECTION("the step fails")
  {
    REQUIRE(p.fail(step));
    REQUIRE(p.stats().fenced == 0);
    REQUIRE(p.info(b)->length == 0);
  }
  SECTION("the domain is forgotten first")
  {
    p.forget(Domain{});
    REQUIRE(p.stats().fenced == 1);
    REQUIRE(p.check_invariants());
    REQUIRE(p.commit(step));
    REQUIRE(p.stats().fenced == 0);
  }
  REQUIRE(p.check_invariants());
}

TEST_CASE("Pins: the place that was left last is used next, and no two pins have one")
{
  Plane p = make_plane(16);
  Tokens const text = numbers(1, 8);
  append(p, open(p, text), text);
  std::vector<PinId> pins;
  Random random(7);
  for (int i = 0; i < 400; ++i) {
    if (pins.empty() || random.below(3) != 0) {
      auto const pin = p.pin({.tokens = text});
      REQUIRE(pin);
      for (PinId const other : pins) {
        REQUIRE(other.slot != pin->slot);
      }
      pins.push_back(*pin);
    } else {
      std::size_t const at = random.below(static_cast<std::uint32_t>(pins.size()));
      PinId const left = pins[at];
      pins[at] = pins.back();
      pins.pop_back();
      REQUIRE(p.unpin(left));
      REQUIRE_FALSE(p.unpin(left));
      auto const next = p.pin({.tokens = text});
      REQUIRE(next);
      REQUIRE(next->slot == left.slot);
      REQUIRE(next->generation != left.generation);
      REQUIRE(p.unpin(*next));
    }
    REQUIRE(p.check_invariants());
  }
}

TEST_CASE(
  "Merge: every holder of a duplicate gets the indexed page, whatever slots lie between them")
{
  Plane p =
    make_plane({.pages = 64, .page_tokens = 4, .max_sequences = 16, .max_step_tokens = 256});
  Tokens const text = numbers(1, 8);
  SequenceId const other = *p.open({.tokens = text, .stream = {1}});
  SequenceId const a = open(p, text);
  StepId const theirs = *p.begin({1});
  add(p, theirs, other, text);
  REQUIRE(p.submit(theirs));
  SequenceId const gap = open(p, {});
  // Rows of `a` are there before its text is: two forks share pages that are not published yet.
  StepId const step = begin(p);
  add(p, step, a, text);  // not pending: the same text is, in the other stream
  REQUIRE(p.submit(step));
  REQUIRE(p.commit(step));
  SequenceId const b = fork(p, a);
  REQUIRE(p.close(gap));
  SequenceId const c = fork(p, b);
  SequenceId const d = open(p, {});
  REQUIRE(pages_of(p, a) == pages_of(p, c));
  REQUIRE(pages_of(p, a) != pages_of(p, other));
  REQUIRE(p.commit(theirs));
  append(p, a, {9});  // publishes, and merges
  REQUIRE(p.stats().merged_pages == 2);
  for (SequenceId const id : {a, b, c}) {
    REQUIRE(p.table(id)[0] == p.table(other)[0]);
    REQUIRE(p.table(id)[1] == p.table(other)[1]);
  }
  REQUIRE(p.table(d).empty());
  REQUIRE(p.check_invariants());
}

TEST_CASE("Drop: a fork of the step's sequence belongs to the step before, wherever its slot is")
{
  Plane p = make_plane(16);
  SequenceId const gap = open(p, {});
  SequenceId const a = open(p, numbers(1, 6));
  append(p, a, numbers(1, 6));
  StepId const before = begin(p);
  add(p, before, a, {7});
  REQUIRE(p.submit(before));
  StepId const step = begin(p);
  add(p, step, a, {8});
  REQUIRE(p.close(gap));
  SequenceId const b = fork(p, a);
  REQUIRE(p.drop(step));
  REQUIRE(p.check_invariants());
  StepId const there = *p.begin({1});
  REQUIRE_FALSE(p.add(there, b, {numbers(9, 9)}));
  REQUIRE(p.commit(before));
  add(p, there, b, {9});  // neither is bound any more
  add(p, there, a, {9});
  REQUIRE(p.drop(there));
  REQUIRE(p.check_invariants());
}

TEST_CASE(
  "Truncate: page by page, and by some, from a published sequence that others follow in part")
{
  Random random(11);
  for (int round = 0; round < 40; ++round) {
    Plane p =
      make_plane({.pages = 400, .page_tokens = 4, .max_sequences = 8, .max_step_tokens = 1024});
    Tokens const text = numbers(1, 800);
    SequenceId const a = prefilled(p, text);
    SequenceId const other = open(p, Tokens(text.begin(), text.begin() + 400 + random.below(300)));
    std::vector<PageId> const pages = pages_of(p, a);
    Index length = 800;
    while (length > 0) {
      Index const by = random.below(3) == 0 ? static_cast<Index>(1 + random.below(90)) : 4;
      length = length > by ? length - by : 0;
      REQUIRE(truncated(p, a, length) == length);
      REQUIRE(p.info(a)->length == length);
      std::vector<PageId> const left = pages_of(p, a);
      REQUIRE(left == std::vector<PageId>(pages.begin(), pages.begin() + (length + 3) / 4));
      REQUIRE(p.check_invariants());
    }
    REQUIRE(p.stats().tree_spans < 200);
    // All of it is still found, and the one that was cut finds it again.
    REQUIRE(p.probe({.tokens = numbers(1, 801)}).rows == 800);
    REQUIRE(p.close(other));
    REQUIRE(p.close(a));
    REQUIRE(p.stats().cached == 200);
    REQUIRE(p.check_invariants());
  }
}

TEST_CASE("Truncate: the rows of a page are kept only where no step in flight will write it")
{
  Plane p = make_plane(16);
  SequenceId const a = open(p, numbers(1, 14));
  StepId const step = begin(p);
  add(p, step, a, numbers(1, 14));
  REQUIRE(p.submit(step));
  SequenceId const b = open(p, numbers(1, 14));  // attaches to three pending pages
  REQUIRE(p.info(b)->length == 12);
  SECTION("whole pages stay")
  {
    REQUIRE(truncated(p, b, 8) == 8);
  }
  SECTION("of a part page nothing")
  {
    REQUIRE(truncated(p, b, 7) == 4);
  }
  SECTION("once it is written it does")
  {
    REQUIRE(p.commit(step));
    REQUIRE(truncated(p, b, 7) == 7);
  }
  SECTION("what a failed step was to write falls, behind rows of another step too")
  {
    StepId const next = begin(p);
    add(p, next, b, {90, 91});
    REQUIRE(p.submit(next));
    REQUIRE(p.fail(step));
    REQUIRE(p.info(b)->length == 0);
    REQUIRE(p.commit(next, std::vector<Outcome>{{.accepted = 2}}));
    REQUIRE(p.info(b)->length == 0);
  }
  SECTION("what a failed step was to write falls, page by page or all at once")
  {
    SequenceId const c = open(p, numbers(1, 9));
    REQUIRE(p.info(c)->length == 8);
    REQUIRE(p.fail(step));
    REQUIRE(p.cuts().size() == 3);
    for (SequenceId const id : {a, b, c}) {
      REQUIRE(p.info(id)->length == 0);
    }
  }
  REQUIRE(p.check_invariants());
}

}  // namespace
