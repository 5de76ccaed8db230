// SPDX-License-Identifier: Apache-2.0
// What a fork takes over from its parent, and a resumed or reordered sequence from before: never what the slot's last user left.

#include "support/catch.hpp"
#include "support/plane.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

/// The slot that the next fork gets was used before, by a sequence of another kind.
void use_slot(Plane& p, Prompt const& prompt)
{
  auto const id = p.open(prompt);
  REQUIRE(id);
  REQUIRE(p.close(*id));
}

}  // namespace

TEST_CASE("Fork: it grows to its parent's max_tokens", "[control]")
{
  Plane p = make_plane(64);
  Tokens const prompt = numbers(1, 8);
  auto const x = p.open({.tokens = prompt, .max_tokens = 64});
  REQUIRE(x);
  append(p, *x, prompt);
  use_slot(p, {.tokens = prompt});
  fork(p, *x);
  auto const asked = p.admit({.tokens = prompt, .max_tokens = 8});
  REQUIRE(asked);
  CHECK(asked->growth >= 28);  // 2 * (16 - 2); the mends of part pages may add to it
}

TEST_CASE("Fork: it leaves as much of the prompt to compute as its parent", "[control]")
{
  Plane p = make_plane(64);
  Tokens const prompt = numbers(1, 8);
  SequenceId const holder = prefilled(p, prompt);  // both pages are found, and held
  SequenceId const a = open(p, prompt);            // three rows of the second page by a partial hit
  REQUIRE(*p.truncate(a, 4) == 4);
  use_slot(p, {.tokens = numbers(100, 140)});
  SequenceId const f = fork(p, a);
  auto const step = p.begin({}, {.attach = true});
  REQUIRE(step);
  auto const planned = p.add(*step, f, {.tokens = std::span(prompt).subspan(4)});
  REQUIRE(planned);
  CHECK(*planned == 4);  // the last token is always computed, and so its page
  REQUIRE(p.drop(*step));
  REQUIRE(p.close(holder));
}

TEST_CASE("Fork: of a sequence with old weights it publishes no more than that", "[control]")
{
  Plane p = make_plane(64);
  SequenceId const a = prefilled(p, numbers(1, 6));
  p.forget(Domain{});
  use_slot(p, {.tokens = numbers(100, 104)});
  SequenceId const f = fork(p, a);
  append(p, f, numbers(7, 12));
  REQUIRE(p.close(f));
  CHECK(cached_rows(p, numbers(1, 13)) == 0);
  check_sound(p);
}

TEST_CASE("Fork: with a copy in flight it stays on the stream of its parent", "[control]")
{
  Plane p = make_plane(64);
  SequenceId const x = prefilled(p, numbers(1, 6));
  SequenceId const y = fork(p, x);
  StepId const one = begin(p);
  add(p, one, y, {9});  // copies the part page
  REQUIRE(p.submit(one));
  SequenceId const f = fork(p, y);
  REQUIRE(p.table(f)[1] == p.table(y)[1]);

  auto const other = p.begin(StreamId{1});
  REQUIRE(other);
  Tokens const next{10};
  auto const early = p.add(*other, f, {.tokens = next});
  REQUIRE_FALSE(early);  // the copy has not been made
  CHECK(early.error().why == Why::busy);
  REQUIRE(p.commit(one));
  CHECK(p.add(*other, f, {.tokens = next}));
  check_sound(p);
}

TEST_CASE("Resume: after a forget it publishes what it computes with the new weights", "[control]")
{
  Plane p = make_plane(64);
  SequenceId const s = prefilled(p, numbers(1, 6));
  REQUIRE(p.suspend(s));
  p.forget(Domain{});
  REQUIRE(p.resume(s));
  REQUIRE(p.info(s)->length == 0);
  append(p, s, numbers(1, 8));
  CHECK(cached_rows(p, numbers(1, 9)) == 8);
  check_sound(p);
}

TEST_CASE("Reorder: a sequence whose rows a plan has yet to move is refused", "[control]")
{
  Plane p = make_plane(64);
  SequenceId const s = prefilled(p, numbers(1, 5));
  StepId const step = begin(p);
  Tokens const drafts{21, 22, 23};
  std::vector<Index> const parents{-1, -1, 1};
  REQUIRE(p.add(step, s, {.tokens = drafts, .parents = parents}));
  REQUIRE(p.submit(step));
  std::vector<Index> const path{1, 2};
  Outcome const outcome{.accepted = 2, .path = path};
  REQUIRE(p.commit(step, std::span(&outcome, 1)));

  std::vector<SequenceId> const ids{s};
  std::vector<Index> const itself{0};
  CHECK_FALSE(p.reorder(ids, itself));
  append(p, s, {24});  // its plan moves them
  CHECK(p.reorder(ids, itself));
  check_sound(p);
}

TEST_CASE("Media: what a failed step declared is forgotten, whoever committed before", "[control]")
{
  Plane p = make_plane(64);
  Media const cat({.digest = Text("cat", 3)});
  Media const dog({.digest = Text("dog", 3)});
  Media const cow({.digest = Text("cow", 3)});
  SequenceId const s = prefilled(p, {1, 2});
  Tokens const rows{0, 0};
  auto const fly = [&](Media const& item, Index first) {
    MediaSpan const span{.item = &item, .first = first, .rows = 2};
    StepId const step = begin(p);
    REQUIRE(p.add(step, s, {.tokens = rows, .media = std::span(&span, 1)}));
    REQUIRE(p.submit(step));
    return step;
  };
  StepId const one = fly(cat, 2);
  StepId const two = fly(dog, 4);
  REQUIRE(p.commit(one));
  REQUIRE(p.fail(two));
  REQUIRE(p.info(s)->length == 4);
  REQUIRE(p.commit(fly(cow, 4)));  // not dog: that was never there
  CHECK(p.media_row(p.tokens(s)[4])->item->bytes() == cow.bytes());
  check_sound(p);
}

TEST_CASE("Resume: rows that were lost add up over all times", "[control]")
{
  Plane p = make_plane(64);
  SequenceId const s = prefilled(p, numbers(1, 6));
  for (Index const lost : {2, 4}) {  // two of six; then two of the six that were computed again
    REQUIRE(p.suspend(s));
    REQUIRE(p.resume(s));
    REQUIRE(p.info(s)->length == 4);
    CHECK(p.info(s)->lost == lost);
    append(p, s, {5, 6});
  }
}

TEST_CASE("A sequence is in a step once, over suspensions and another stream", "[control]")
{
  Plane p = make_plane(64);
  SequenceId const s = prefilled(p, numbers(1, 4));
  StepId const here = begin(p);
  add(p, here, s, {5});
  REQUIRE(p.suspend(s));
  REQUIRE(p.resume(s, StreamId{1}));
  auto const there = p.begin(StreamId{1});
  REQUIRE(there);
  Tokens const next{6};
  REQUIRE(p.add(*there, s, {.tokens = next}));
  REQUIRE(p.suspend(s));
  REQUIRE(p.resume(s));

  auto const again = p.add(here, s, {.tokens = next});
  REQUIRE_FALSE(again);
  CHECK(again.error().why == Why::busy);
  check_sound(p);
}
