// SPDX-License-Identifier: Apache-2.0

// A step computes what it was given, unless it is asked to attach; then it says what it computes.

#include <kvcache/control/step_tokens.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

using Kind = StepToken::Kind;

struct Said {
  Token token;
  std::uint32_t chunk;
  Index place;
  Kind kind = Kind::named;
  friend bool operator==(Said const&, Said const&) = default;
};

std::vector<Said> said(Plane const& plane, StepId step)
{
  std::vector<Said> out;
  StepTokens const tokens = plane.tokens(step);
  for (StepToken const token : tokens) {
    out.push_back({token.token, token.chunk, token.place, token.kind});
  }
  CHECK(out.size() == tokens.size());
  CHECK(out.size() == static_cast<std::size_t>(plane.plan(step).num_tokens()));
  CHECK(tokens.empty() == out.empty());
  return out;
}

}  // namespace

TEST_CASE("Step: it plans all that it was given, whoever has the same rows", "[control][attach]")
{
  Engine e(24);
  Plane& plane = e.plane;
  Tokens const prompt = numbers(1, 9);
  SequenceId const a = open(plane, prompt);
  SequenceId const b = open(plane, prompt);
  SequenceId const c = open(plane, prompt);
  StepId const first = begin(plane);
  CHECK(*plane.add(first, a, {prompt}) == 9);
  CHECK(*plane.add(first, b, {prompt}) == 9);  // of the same step
  REQUIRE(plane.submit(first));
  StepId const second = begin(plane);
  CHECK(*plane.add(second, c, {prompt}) == 9);  // of a step before it
  REQUIRE(plane.submit(second));
  e.finish(first, {prompt, prompt});
  CHECK(plane.table(a)[1] == plane.table(b)[1]);  // duplicates merge at commit
  e.finish(second, {prompt});
  CHECK(plane.table(a)[1] == plane.table(c)[1]);
  SequenceId const d = open(plane, {50});
  SequenceId const late = open(plane, numbers(50, 58));
  append(plane, d, numbers(50, 58));
  StepId const third = begin(plane);
  CHECK(*plane.add(third, late, {numbers(50, 58)}) == 9);  // committed since `open`
  REQUIRE(plane.drop(third));
  for (SequenceId const id : {a, b, c}) {
    e.check(id, 9);
  }
}

TEST_CASE("Step: what it computes is said in the order of its views", "[control][attach]")
{
  Engine e(24);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, numbers(1, 9));
  SequenceId const b = open(plane, numbers(1, 10));
  SequenceId const c = open(plane, numbers(1, 20));
  SequenceId const d = open(plane, {30});
  StepId const step = begin_attaching(plane);
  CHECK(*plane.add(step, a, {numbers(1, 9)}) == 9);
  CHECK(*plane.add(step, c, {numbers(1, 8)}) == 0);  // found whole
  CHECK(*plane.add(step, b, {numbers(1, 10)}) == 2);
  CHECK(*plane.add(step, d, {.tokens = {}, .count = 2}) == 2);
  CHECK(plane.tokens(step).empty());  // of an open step nobody knows yet
  REQUIRE(plane.submit(step));
  std::vector<Said> want;
  for (Token token = 1; token <= 9; ++token) {
    want.push_back({token, 0, token - 1});
  }
  want.push_back({9, 2, 8});
  want.push_back({10, 2, 9});
  want.push_back({-1, 3, 0, Kind::counted});
  want.push_back({-1, 3, 1, Kind::counted});
  CHECK(said(plane, step) == want);

  e.rows.run(plane.plan(step), {numbers(1, 9), numbers(1, 10), {70, 71}});
  Tokens const names = {70, 71};
  std::uint64_t const before = plane.digest();
  auto const refusal = [&](std::vector<Outcome> const& outcomes) {
    auto const done = plane.commit(step, outcomes);
    REQUIRE_FALSE(done);
    CHECK(plane.digest() == before);
    return std::string(done.error().message().text);
  };
  Outcome const counted{.accepted = 2, .tokens = names};
  CHECK(refusal({{.accepted = 9}, {.accepted = 2}, counted}) ==
        "outcomes = 3 (bad configuration): must be none (all accepted), or one for each chunk that "
        "was added: 4");
  CHECK_THAT(
    refusal({{.accepted = 9}, {.accepted = 8}, {.accepted = 2}, counted}),
    StartsWith(
      "outcome.accepted = 8 (bad configuration): must be 0 to the tokens computed of its chunk,"));
  CHECK(refusal({{.accepted = 9}, {.accepted = 0}, {.accepted = 10}, counted}) ==
        "outcome.accepted = 10 (bad configuration): must be 0 to the tokens computed of its "
        "chunk, 2");
  REQUIRE(plane.commit(
    step, std::vector<Outcome>{{.accepted = 9}, {.accepted = 0}, {.accepted = 2}, counted}));
  CHECK(plane.tokens(step).empty());
  e.check(a, 9);
  e.check(b, 10);
  e.check(c, 8);
  e.check(d, 2);
}

TEST_CASE("Step: numbers, too, are one for each chunk that was added", "[control][attach]")
{
  Engine e(24);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, numbers(1, 9));
  SequenceId const b = open(plane, numbers(1, 9));
  SequenceId const c = open(plane, {40});
  StepId const step = begin_attaching(plane);
  add(plane, step, a, numbers(1, 8));
  CHECK(*plane.add(step, b, {numbers(1, 8)}) == 0);
  add_draft(plane, step, c, {40, 41, 42});
  REQUIRE(plane.submit(step));
  e.rows.run(plane.plan(step), {numbers(1, 8), {40, 41, 42}});
  CHECK(plane.commit(step, std::vector<Index>{8, 1}).error().why == Why::bad_config);
  REQUIRE(plane.commit(step, std::vector<Index>{8, 0, 1}));
  e.check(a, 8);
  e.check(b, 8);
  e.check(c, 1);
}

TEST_CASE("Step: all of it found, with an outcome for each chunk", "[control][attach]")
{
  Engine e(24);
  Plane& plane = e.plane;
  SequenceId const b = open(plane, numbers(1, 9));
  SequenceId const a = e.prefilled(numbers(1, 9));
  StepId const step = begin_attaching(plane);
  CHECK(*plane.add(step, b, {numbers(1, 8)}) == 0);
  REQUIRE(plane.submit(step));
  CHECK(said(plane, step).empty());
  CHECK_FALSE(plane.commit(step, std::vector<Index>{8}));
  REQUIRE(plane.commit(step, std::vector<Index>{0}));
  e.check(a, 9);
  e.check(b, 8);
}

TEST_CASE("Step: a sequence that left before submit has no tokens, but an outcome",
          "[control][attach]")
{
  Engine e(24);
  Plane& plane = e.plane;
  SequenceId const a = open(plane, {1});
  SequenceId const b = open(plane, {10});
  SequenceId const c = open(plane, {20});
  StepId const step = begin(plane);
  add(plane, step, a, {1, 2});
  add(plane, step, b, {10, 11});
  add(plane, step, c, {20});
  REQUIRE(plane.close(b));
  REQUIRE(plane.submit(step));
  CHECK(said(plane, step) == std::vector<Said>{{1, 0, 0}, {2, 0, 1}, {20, 2, 0}});
  e.rows.run(plane.plan(step), {{1, 2}, {20}});
  REQUIRE(plane.commit(step, std::vector<Index>{2, 2, 1}));
  e.check(a, 2);
  e.check(c, 1);
}

TEST_CASE("Step: rows of media are marked, text that attends both ways has its tokens",
          "[control][attach][media]")
{
  Plane plane = make_plane(24);
  Media const cat({.digest = "cat", .kind = "image", .dtype = {}, .dims = {}, .options = {}});
  std::vector<MediaSpan> const media = {{.item = &cat, .first = 1, .rows = 2},
                                        {.first = 4, .rows = 2, .atomic = true}};
  Tokens const text = {1, 99, 99, 4, 5, 6, 7};
  auto const a = plane.open({.tokens = text, .media = media});
  REQUIRE(a);
  StepId const step = begin(plane);
  add(plane, step, *a, text);
  REQUIRE(plane.submit(step));
  std::vector<Said> const got = said(plane, step);
  REQUIRE(got.size() == 7);
  for (Index i = 0; i < 7; ++i) {
    Said const& token = got[static_cast<std::size_t>(i)];
    CHECK(token.place == i);
    bool const pictured = i == 1 || i == 2;
    CHECK(token.kind == (pictured ? Kind::media : Kind::named));
    if (pictured) {
      auto const row = plane.media_row(token.token);
      REQUIRE(row);
      CHECK(*row->item == cat);
      CHECK(row->row == i - 1);
    } else {
      CHECK(token.token == text[static_cast<std::size_t>(i)]);
    }
  }
}
