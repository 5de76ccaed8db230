// SPDX-License-Identifier: Apache-2.0

#include <limits>
#include <string>

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

std::string text(Error const& error)
{
  return error.message().text;
}

constexpr ControlOptions good{
  .pages = 4, .page_tokens = 4, .max_sequences = 2, .max_step_tokens = 8, .vocabulary = 100};

}  // namespace

TEST_CASE("Control: create refuses what cannot work, by field and value", "[control][errors]")
{
  auto const refusal = [](auto change) {
    ControlOptions options = good;
    change(options);
    auto const made = Plane::create(options);
    REQUIRE_FALSE(made);
    CHECK(made.error().why == Why::bad_config);
    return text(made.error());
  };
  CHECK(refusal([](auto& o) { o.pages = 0; }) ==
        "pages = 0 (bad configuration): must be at least 1");
  CHECK_THAT(refusal([](auto& o) { o.pages = ~0U; }), StartsWith("pages = 4294967295 (bad"));
  CHECK(refusal([](auto& o) { o.page_tokens = 0; }) ==
        "page_tokens = 0 (bad configuration): must be 1 to 256");
  CHECK(refusal([](auto& o) { o.page_tokens = 257; }) ==
        "page_tokens = 257 (bad configuration): must be 1 to 256");
  CHECK(refusal([](auto& o) { o.max_sequences = 0; }) ==
        "max_sequences = 0 (bad configuration): must be 1 to 1048576");
  CHECK(refusal([](auto& o) { o.max_sequences = 1048577; }) ==
        "max_sequences = 1048577 (bad configuration): must be 1 to 1048576");
  CHECK(refusal([](auto& o) { o.max_step_tokens = 0; }) ==
        "max_step_tokens = 0 (bad configuration): must be 1 to 16777216");
  CHECK(refusal([](auto& o) { o.max_sequence_tokens = -1; }) ==
        "max_sequence_tokens = -1 (bad configuration): must be 0 (the whole pool) or at least 1");
  CHECK(refusal([](auto& o) { o.vocabulary = -5; }) ==
        "vocabulary = -5 (bad configuration): must be 0 (any) or the number of tokens");
}

TEST_CASE("Control: the longest sequence is what the pool holds, or less by wish",
          "[control][errors]")
{
  CHECK(make_plane(good).options().max_sequence_tokens == 16);
  ControlOptions options = good;
  options.max_sequence_tokens = 7;
  CHECK(make_plane(options).options().max_sequence_tokens == 7);
  CHECK(make_plane(options).options().row_pages() == 2);
  options.max_sequence_tokens = 1000;
  CHECK(make_plane(options).options().max_sequence_tokens == 16);
}

TEST_CASE("Control: open refuses bad prompts, and a probe of them hits nothing",
          "[control][errors]")
{
  Plane plane = make_plane(good);
  cache_only(plane, numbers(1, 8));
  std::uint64_t const before = plane.digest();
  auto const refusal = [&](Tokens const& tokens, Index fresh_tail, Why why) {
    Prompt const prompt{.tokens = tokens, .fresh_tail = fresh_tail};
    auto const opened = plane.open(prompt);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().why == why);
    CHECK(plane.probe(prompt).rows == 0);
    CHECK(plane.digest() == before);
    return text(opened.error());
  };
  CHECK(refusal({1, 2, -3}, 1, Why::bad_token) ==
        "token = -3 (token out of range): must not be negative");
  CHECK(refusal({1, 2, 3, 4, 100}, 1, Why::bad_token) ==
        "token = 100 (token out of range): must be below the vocabulary, which is 100");
  CHECK(
    refusal(numbers(1, 17), 1, Why::too_large) ==
    "prompt.tokens = 17 (too large): must be at most max_sequence_tokens, which the pool bounds, "
    "here 16");
  CHECK(refusal({1, 2}, 0, Why::bad_config) ==
        "fresh_tail = 0 (bad configuration): must be at least 1");

  (void)open(plane, {1});
  (void)open(plane, {2});
  auto const third = plane.open({.tokens = numbers(1, 3)});
  REQUIRE_FALSE(third);
  CHECK(third.error().why == Why::no_rows);
  CHECK(text(third.error()) ==
        "sequences = 2 (no table rows): close one, or create with max_sequences above 2");
}

TEST_CASE("Control: without a vocabulary every token that is not negative is one",
          "[control][errors]")
{
  Plane plane = make_plane(4);
  CHECK(plane.open({.tokens = Tokens{0, std::numeric_limits<Token>::max()}}));
  CHECK_FALSE(plane.open({.tokens = Tokens{-1}}));
}

TEST_CASE("Control: a stale sequence is refused by every call, and nothing changes",
          "[control][errors]")
{
  Plane plane = make_plane(good);
  SequenceId const closed = prefilled(plane, numbers(1, 5));
  REQUIRE(plane.close(closed));
  SequenceId const live = open(plane, {7});  // in the slot of the closed one
  CHECK(live.slot == closed.slot);
  StepId const step = begin(plane);
  std::uint64_t const before = plane.digest();
  for (SequenceId const id : {closed,
                              SequenceId{},
                              SequenceId{1, 1},
                              SequenceId{2, 1},
                              SequenceId{0, 2},
                              SequenceId{live.slot, live.generation + 2},
                              SequenceId{~0U, ~0U}}) {
    CAPTURE(id.slot, id.generation);
    CHECK(plane.fork(id).error().why == Why::stale_sequence);
    CHECK(plane.truncate(id, 0).error().why == Why::stale_sequence);
    CHECK(plane.close(id).error().why == Why::stale_sequence);
    CHECK(plane.info(id).error().why == Why::stale_sequence);
    CHECK(plane.table(id).empty());
    CHECK(plane.tokens(id).empty());
    auto const added = plane.add(step, id, {Tokens{1}});
    REQUIRE_FALSE(added);
    CHECK(added.error().why == Why::stale_sequence);
    CHECK(std::string(added.error().detail.field) == "sequence");
    CHECK(plane.digest() == before);
  }
  CHECK(text(plane.fork(closed).error()) ==
        "sequence = 0 (stale sequence): was closed, or never opened here; open a new one");
}

TEST_CASE("Control: fork and truncate refuse by field and value", "[control][errors]")
{
  Plane plane = make_plane(good);
  SequenceId const id = prefilled(plane, numbers(1, 5));
  CHECK(text(plane.truncate(id, -1).error()) ==
        "length = -1 (bad configuration): must not be negative");
  CHECK(*plane.truncate(id, 100) == 5);
  (void)fork(plane, id);
  CHECK(plane.fork(id).error().why == Why::no_rows);
  check_sound(plane);
}

TEST_CASE("Control: add refuses bad chunks, and the step goes on without them", "[control][errors]")
{
  Plane plane = make_plane(good);
  SequenceId const a = open(plane, numbers(1, 12));
  append(plane, a, numbers(1, 8));
  SequenceId const b = open(plane, {50});
  StepId const step = begin(plane);
  std::uint64_t const before = plane.digest();
  auto const refusal = [&](SequenceId id, Tokens const& tokens, Why why) {
    auto const added = plane.add(step, id, {tokens});
    REQUIRE_FALSE(added);
    CHECK(added.error().why == why);
    CHECK(added.error().detail.why == why);
    CHECK(plane.digest() == before);
    return text(added.error().detail);
  };
  CHECK(refusal(a, {}, Why::bad_config) ==
        "chunk.tokens = 0 (bad configuration): must be at least 1");
  CHECK(refusal(a, {9, -1}, Why::bad_token) ==
        "token = -1 (token out of range): must not be negative");
  CHECK(refusal(a, {9, 100}, Why::bad_token) ==
        "token = 100 (token out of range): must be below the vocabulary, which is 100");
  CHECK(refusal(b, numbers(1, 9), Why::too_large) ==
        "tokens of the step = 9 (too large): must be at most max_step_tokens, which is 8");
  CHECK(*plane.add(step, a, {numbers(9, 12)}) == 4);
  auto const fifth = plane.add(step, b, {numbers(1, 5)});
  REQUIRE_FALSE(fifth);
  CHECK(text(fifth.error().detail) ==
        "tokens of the step = 9 (too large): must be at most max_step_tokens, which is 8");
  CHECK(plane.add(step, b, {numbers(1, 4)}));
  CHECK(plane.submit(step));
  CHECK(plane.plan(step).num_tokens() == 8);
  CHECK(plane.commit(step));
  check_sound(plane);
}

TEST_CASE("Control: a sequence never grows beyond max_sequence_tokens", "[control][errors]")
{
  ControlOptions options = good;
  options.max_sequence_tokens = 10;
  Plane plane = make_plane(options);
  SequenceId const id = prefilled(plane, numbers(1, 8));
  StepId const step = begin(plane);
  auto const added = plane.add(step, id, {numbers(9, 11)});
  REQUIRE_FALSE(added);
  CHECK(
    text(added.error().detail) ==
    "tokens of the sequence = 11 (too large): must be at most max_sequence_tokens, which the pool "
    "bounds, here 10");
  CHECK(plane.add(step, id, {numbers(9, 10)}));
}

TEST_CASE("Control: commit refuses counts that are not of the plan, and nothing changes",
          "[control][errors]")
{
  Plane plane = make_plane(good);
  SequenceId const a = open(plane, {1});
  SequenceId const b = open(plane, {2});
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 3));
  add_draft(plane, step, b, numbers(1, 2));
  REQUIRE(plane.submit(step));
  std::uint64_t const before = plane.digest();
  auto const refusal = [&](std::vector<Index> const& accepted) {
    auto const done = plane.commit(step, accepted);
    REQUIRE_FALSE(done);
    CHECK(done.error().why == Why::bad_config);
    CHECK(plane.digest() == before);
    return text(done.error());
  };
  CHECK(
    refusal({3}) ==
    "outcomes = 1 (bad configuration): must be none (all accepted), or one for each chunk that was "
    "added: 2");
  CHECK_THAT(refusal({3, 2, 1}), StartsWith("outcomes = 3 (bad configuration)"));
  CHECK(refusal({4, 1}) ==
        "outcome.accepted = 4 (bad configuration): must be 0 to the tokens of its chunk, 3");
  CHECK(refusal({3, -1}) ==
        "outcome.accepted = -1 (bad configuration): must be 0 to the tokens of its chunk, 2");
  CHECK(refusal({2, 1}) ==
        "outcome.accepted = 2 (bad configuration): of a chunk that is no draft must be all its "
        "tokens, 3");
  CHECK(plane.commit(step, std::vector<Index>{3, 0}));
  CHECK(plane.info(a)->length == 3);
  CHECK(plane.info(b)->length == 0);
}

TEST_CASE("Control: a chunk has names or a count, and a count is named at commit",
          "[control][errors]")
{
  Plane plane = make_plane(good);
  SequenceId const a = open(plane, {1});
  SequenceId const b = open(plane, {2});
  StepId const step = begin(plane);
  std::uint64_t before = plane.digest();
  Tokens const one{1};
  auto const refusal = [&](Chunk const& chunk) {
    auto const added = plane.add(step, a, chunk);
    REQUIRE_FALSE(added);
    CHECK(added.error().why == Why::bad_config);
    CHECK(plane.digest() == before);
    return text(added.error().detail);
  };
  CHECK(refusal({.tokens = one, .count = 1}) ==
        "chunk.count = 1 (bad configuration): must be 0 where the tokens are named");
  CHECK(refusal({.tokens = {}, .count = -1}) ==
        "chunk.count = -1 (bad configuration): must be at least 1");
  REQUIRE(*plane.add(step, a, {.tokens = {}, .count = 2}) == 2);
  add(plane, step, b, {2});
  REQUIRE(plane.submit(step));
  before = plane.digest();
  auto const denied = [&](std::vector<Outcome> const& outcomes) {
    auto const done = plane.commit(step, outcomes);
    REQUIRE_FALSE(done);
    CHECK(done.error().why == Why::bad_config);
    CHECK(plane.digest() == before);
    return text(done.error());
  };
  CHECK_THAT(denied({}), StartsWith("outcomes = 0 (bad configuration): must name the tokens"));
  CHECK_THAT(denied({{2, one}, {1, {}}}), StartsWith("outcome.tokens = 1 (bad configuration)"));
  Tokens const two{1, 2};
  CHECK_THAT(denied({{2, two}, {1, one}}),
             StartsWith("outcome.tokens = 1 (bad configuration): must be empty"));
  Tokens const wrong{1, 100};
  auto const done = plane.commit(step, std::vector<Outcome>{{2, wrong}, {1, {}}});
  CHECK(done.error().why == Why::bad_token);
  CHECK(plane.digest() == before);
  REQUIRE(plane.commit(step, std::vector<Outcome>{{2, two}, {1, {}}}));
  CHECK(plane.tokens(a)[1] == 2);
  check_sound(plane);
}

TEST_CASE("Control: a suspended sequence says so", "[control][errors]")
{
  Plane plane = make_plane(good);
  SequenceId const a = prefilled(plane, numbers(1, 5));
  CHECK(text(plane.resume(a).error()) == "sequence = 0 (bad configuration): is not suspended");
  REQUIRE(plane.suspend(a));
  std::uint64_t const before = plane.digest();
  CHECK(text(plane.fork(a).error()) ==
        "sequence = 0 (suspended): gave its pages back; resume it first");
  CHECK(plane.truncate(a, 1).error().why == Why::suspended);
  CHECK(plane.suspend(a).error().why == Why::suspended);
  std::vector<SequenceId> const ids{a};
  CHECK(plane.reorder(ids, std::vector<Index>{0}).error().why == Why::suspended);
  CHECK(plane.digest() == before);
  StepId const step = begin(plane);
  CHECK(plane.add(step, a, {Tokens{6}}).error().why == Why::suspended);
  REQUIRE(plane.drop(step));
  REQUIRE(plane.close(a));
}
