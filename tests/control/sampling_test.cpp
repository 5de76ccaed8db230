// SPDX-License-Identifier: Apache-2.0

// Several answers to one prompt: samples with tails of their own, beams that are reordered, best-of that ends early.

#include <string>

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

/// One token each, in one step.
void step_of(Engine& e, std::vector<SequenceId> const& ids, Tokens const& tokens)
{
  StepId const step = begin(e.plane);
  std::vector<Tokens> computed;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    add(e.plane, step, ids[i], {tokens[i]});
    computed.push_back({tokens[i]});
  }
  REQUIRE(e.plane.submit(step));
  e.finish(step, computed);
}

Tokens text_of(Plane const& plane, SequenceId id)
{
  auto const tokens = plane.tokens(id);
  return {tokens.begin(), tokens.end()};
}

}  // namespace

TEST_CASE("Sampling: four samples of one prompt share it, and each keeps its own tail",
          "[control][sampling]")
{
  Engine e(32);
  std::vector<SequenceId> ids = {e.prefilled(numbers(1, 10))};
  for (int i = 0; i < 3; ++i) {
    ids.push_back(fork(e.plane, ids[0]));
  }
  CHECK(e.plane.stats().held == 3);
  for (Token t = 0; t < 9; ++t) {
    step_of(e, ids, {100 + t, 200 + t, 300 + t, 400 + t});
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    e.check(ids[i], 19);
    CHECK(text_of(e.plane, ids[i])[18] == static_cast<Token>(100 * (i + 1) + 8));
  }
  CHECK(e.plane.stats().held == 2 + 4 * 3);  // two pages of prompt are shared, three a tail
  CHECK(e.plane.stats().copied_pages == 3);  // of the part page: the last to write has it alone
}

TEST_CASE("Sampling: best-of ends early, and gives back all but what is shared",
          "[control][sampling]")
{
  Engine e(32);
  std::vector<SequenceId> ids = {e.prefilled(numbers(1, 10))};
  for (int i = 0; i < 7; ++i) {
    ids.push_back(fork(e.plane, ids[0]));
  }
  Token next = 100;
  while (ids.size() > 1) {  // the worst one stops after each step, the first among them
    Tokens tokens;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      tokens.push_back(next++);
    }
    step_of(e, ids, tokens);
    REQUIRE(e.plane.close(ids.front()));
    ids.erase(ids.begin());
    for (SequenceId const id : ids) {
      CHECK(e.rows.count_wrong(e.plane, id) == 0);
    }
    check_sound(e.plane);
  }
  e.check(ids[0], 17);
  CHECK(e.plane.stats().held == 5);
  REQUIRE(e.plane.close(ids[0]));
  CHECK(e.plane.stats().held == 0);
}

TEST_CASE("Sampling: one that stops while its step is in flight takes nothing from the others",
          "[control][sampling]")
{
  Engine e(32);
  std::vector<SequenceId> const ids = {e.prefilled(numbers(1, 10)), fork(e.plane, {0, 1})};
  StepId const step = begin(e.plane);
  add(e.plane, step, ids[0], {50});
  add(e.plane, step, ids[1], {60});
  REQUIRE(e.plane.submit(step));
  REQUIRE(e.plane.close(ids[0]));
  e.finish(step, {{50}, {60}});
  e.check(ids[1], 11);
  CHECK(text_of(e.plane, ids[1])[10] == 60);
}

TEST_CASE("Sampling: beams are reordered all at once, and losers give their pages back",
          "[control][sampling]")
{
  Engine e(32);
  std::vector<SequenceId> ids = {e.prefilled(numbers(1, 10))};
  ids.push_back(fork(e.plane, ids[0]));
  ids.push_back(fork(e.plane, ids[0]));
  step_of(e, ids, {50, 60, 70});
  std::vector<Index> const parents = {1, 1, 0};
  REQUIRE(e.plane.reorder(ids, parents));
  step_of(e, ids, {51, 61, 71});
  Tokens const tails[] = {{60, 51}, {60, 61}, {50, 71}};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    e.check(ids[i], 12);
    Tokens const text = text_of(e.plane, ids[i]);
    CHECK(Tokens(text.begin() + 10, text.end()) == tails[i]);
  }
}
