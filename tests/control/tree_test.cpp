// SPDX-License-Identifier: Apache-2.0

// Trees of drafts: which paths commit takes, where the rows end up, and who may rely on them meanwhile.

#include <utility>

#include "support/plane.hpp"
#include "support/rows.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

using Places = std::vector<Index>;

//   10 -+- 11 --- 13
//       +- 12 -+- 14 -- 16
//              +- 15
Tokens const tree = {10, 11, 12, 13, 14, 15, 16};
Places const parents = {-1, 0, 0, 1, 2, 2, 4};

StepId submit_tree(Engine& e, SequenceId id)
{
  StepId const step = begin(e.plane);
  REQUIRE(*e.plane.add(step, id, {.tokens = tree, .parents = parents}) == 7);
  REQUIRE(e.plane.submit(step));
  e.rows.run(e.plane.plan(step), {tree});
  return step;
}

void accept(Engine& e, StepId step, Places const& path)
{
  Outcome const outcome{.accepted = static_cast<Index>(path.size()), .tokens = {}, .path = path};
  REQUIRE(e.plane.commit(step, std::span(&outcome, 1)));
}

/// A sequence of 6 rows and an accepted path 0 2 4 6, of which rows 7 to 9 lie at 8, 10 and 12.
std::pair<Engine, SequenceId> with_strays(PageCount pages = 16)
{
  Engine e(pages);
  SequenceId const id = e.prefilled(numbers(1, 6));
  accept(e, submit_tree(e, id), {0, 2, 4, 6});
  return {std::move(e), id};
}

}  // namespace

TEST_CASE("Tree: the plan names parents, and the next one moves the accepted path",
          "[control][tree]")
{
  auto [e, id] = with_strays();
  Plane& plane = e.plane;
  CHECK(Tokens(plane.tokens(id).begin() + 6, plane.tokens(id).end()) == Tokens{10, 12, 14, 16});
  CHECK(plane.info(id)->pages == 4);  // rows 6 to 12 stay until they are moved
  check_sound(plane);

  StepId const step = begin(plane);
  add(plane, step, id, {20});
  REQUIRE(plane.submit(step));
  auto const table = plane.table(id);
  decltype(Plan::moves) const want = {
    {table[2], table[1], 0, 3}, {table[2], table[2], 2, 0}, {table[3], table[2], 0, 1}};
  CHECK(plane.plan(step).moves == want);
  CHECK(plane.plan(step).parents.empty());
  CHECK(plane.stats().moved_rows == 3);
  e.finish(step, {{20}});
  e.check(id, 11);
  CHECK(plane.info(id)->pages == 3);
  CHECK(cached_rows(plane, {1, 2, 3, 4, 5, 6, 10, 12, 14}) == 8);
}

TEST_CASE("Tree: the plan's chunk names its parents", "[control][tree]")
{
  Engine e(16);
  SequenceId const a = e.prefilled(numbers(1, 6));
  SequenceId const b = open(e.plane, numbers(30, 33));
  StepId const step = begin(e.plane);
  add(e.plane, step, b, numbers(30, 33));
  REQUIRE(e.plane.add(step, a, {.tokens = tree, .parents = parents}));
  REQUIRE(e.plane.submit(step));
  Plan const& plan = e.plane.plan(step);
  REQUIRE(plan.chunks.size() == 2);
  CHECK(plan.chunks[0].parents_at == nil);
  CHECK(plan.chunks[1].parents_at == 0);
  CHECK(plan.chunks[1].first_index == 6);
  CHECK(std::vector<Index>(plan.parents.begin(), plan.parents.end()) == parents);
  CHECK(plan.moves.empty());
}

TEST_CASE("B-116 Tree: a path that lies in a row needs no move, and rejected pages go back",
          "[control][tree]")
{
  for (Places const& path : {Places{}, Places{0}, Places{0, 1}}) {
    Engine e(16);
    SequenceId const id = e.prefilled(numbers(1, 6));
    accept(e, submit_tree(e, id), path);
    auto const length = 6 + static_cast<Index>(path.size());
    e.check(id, length);
    CHECK(e.plane.info(id)->pages == 2);
    e.append(id, {20});
    e.check(id, length + 1);
    CHECK(e.plane.stats().moved_rows == 0);
  }
}

TEST_CASE("Tree: strays are not published, and a fork keeps what lies before them",
          "[control][tree]")
{
  auto [e, id] = with_strays();
  Tokens const text = {1, 2, 3, 4, 5, 6, 10, 12, 14, 16};
  CHECK(cached_rows(e.plane, text) == 4);
  SequenceId const f = fork(e.plane, id);
  e.check(f, 7);
  e.append(id, {20});
  e.append(f, {12, 14});
  e.check(id, 11);
  e.check(f, 9);
}

TEST_CASE("Tree: a cut keeps strays up to its length, and suspending keeps the tokens",
          "[control][tree]")
{
  {
    auto [e, id] = with_strays();
    CHECK(*e.plane.truncate(id, 9) == 9);
    check_sound(e.plane);
    e.append(id, {20});
    e.check(id, 10);
  }
  {
    auto [e, id] = with_strays();
    CHECK(*e.plane.truncate(id, 7) == 7);
    e.check(id, 7);
    CHECK(e.plane.info(id)->pages == 2);
  }
  {
    auto [e, id] = with_strays();
    REQUIRE(e.plane.suspend(id));
    CHECK(e.plane.tokens(id).size() == 10);
    CHECK(e.plane.stats().held == 0);
    REQUIRE(e.plane.resume(id));
    e.check(id, 4);
  }
}

TEST_CASE("Tree: what a step in flight is to move goes if the step fails, and is not kept by a cut",
          "[control][tree]")
{
  {
    auto [e, id] = with_strays();
    StepId const step = begin(e.plane);
    add(e.plane, step, id, {20});
    REQUIRE(e.plane.submit(step));
    REQUIRE(e.plane.fail(step));  // no pool has applied the plan
    REQUIRE(e.plane.cuts().size() == 1);
    CHECK(e.plane.cuts()[0].length == 7);
    e.check(id, 7);
  }
  for (bool const submitted : {false, true}) {
    CAPTURE(submitted);
    auto [e, id] = with_strays();
    SequenceId const f = fork(e.plane, id);  // so that the chunk copies the part page
    StepId const step = begin(e.plane);
    add(e.plane, step, id, {20});
    if (submitted) {
      REQUIRE(e.plane.submit(step));
    }
    CHECK(*e.plane.truncate(id, 9) == 7);
    REQUIRE((submitted ? e.plane.fail(step) : e.plane.drop(step)));
    e.check(id, 7);
    e.check(f, 7);
  }
}

TEST_CASE("Tree: a dropped step leaves the strays for the next one", "[control][tree]")
{
  auto [e, id] = with_strays();
  std::uint64_t const before = e.plane.digest();
  StepId const step = begin(e.plane);
  add(e.plane, step, id, {20, 21, 22});
  REQUIRE(e.plane.drop(step));
  CHECK(e.plane.digest() == before);
  e.append(id, {20});
  e.check(id, 11);
}

TEST_CASE("Tree: nothing follows a tree in flight, and beams wait until strays are moved",
          "[control][tree]")
{
  Engine e(16);
  SequenceId const id = e.prefilled(numbers(1, 6));
  StepId const step = submit_tree(e, id);
  StepId const next = begin(e.plane);
  CHECK(e.plane.add(next, id, {Tokens{20}}).error().why == Why::busy);
  REQUIRE(e.plane.drop(next));
  accept(e, step, {0, 2});
  Index const self = 0;
  CHECK(e.plane.reorder(std::span(&id, 1), std::span(&self, 1)).error().why == Why::busy);
  e.append(id, {20});
  CHECK(e.plane.reorder(std::span(&id, 1), std::span(&self, 1)));
  e.check(id, 9);
}

TEST_CASE("Tree: behind open drafts it begins where the device says", "[control][tree]")
{
  Engine e(16);
  SequenceId const id = e.prefilled(numbers(1, 6));
  StepId const draft = begin(e.plane);
  add_draft(e.plane, draft, id, {7, 8, 9});
  REQUIRE(e.plane.submit(draft));
  StepId const step = begin(e.plane);
  REQUIRE(e.plane.add(step, id, {.tokens = tree, .parents = parents}));
  REQUIRE(e.plane.submit(step));
  CHECK(e.plane.plan(step).chunks[0].slack == 3);
  Index const one = 1;
  REQUIRE(e.plane.commit(draft, std::span(&one, 1)));
  accept(e, step, {0, 2});
  CHECK(e.plane.info(id)->length == 9);
  StepId const last = begin(e.plane);
  add(e.plane, last, id, {20});
  REQUIRE(e.plane.submit(last));
  auto const table = e.plane.table(id);
  CHECK(e.plane.plan(last).moves == decltype(Plan::moves){{table[2], table[2], 1, 0}});
}

TEST_CASE("Tree: what cannot be is refused, and nothing changes", "[control][tree]")
{
  Engine e(64);
  Plane& plane = e.plane;
  SequenceId const id = e.prefilled(numbers(1, 6));
  StepId const step = begin(plane);
  std::uint64_t const before = plane.digest();
  auto const refused = [&](Tokens const& tokens, Places const& p) {
    auto const added = plane.add(step, id, {.tokens = tokens, .parents = p});
    REQUIRE_FALSE(added);
    CHECK(std::string(added.error().detail.field) == "chunk.parents");
    CHECK(plane.digest() == before);
    return added.error().why;
  };
  CHECK(refused({1, 2}, {-1}) == Why::bad_config);
  CHECK(refused({1, 2}, {-1, 1}) == Why::bad_config);  // its own parent
  CHECK(refused({1, 2}, {-2, 0}) == Why::bad_config);
  CHECK(refused({1, 2, 3}, {-1, 2, 0}) == Why::bad_config);
  CHECK(refused(numbers(1, 65), Places(65, -1)) == Why::too_large);
  CHECK_FALSE(plane.add(step, id, {.count = 2, .parents = parents}));

  REQUIRE(plane.add(step, id, {.tokens = tree, .parents = parents}));
  REQUIRE(plane.submit(step));
  std::uint64_t const submitted = plane.digest();
  auto const wrong = [&](Index accepted, Places const& path) {
    Outcome const outcome{.accepted = accepted, .tokens = {}, .path = path};
    auto const done = plane.commit(step, std::span(&outcome, 1));
    REQUIRE_FALSE(done);
    CHECK(std::string(done.error().field) == "outcome.path");
    CHECK(plane.digest() == submitted);
  };
  wrong(2, {});  // which two?
  wrong(2, {0});
  wrong(1, {1});        // not at the root
  wrong(3, {0, 1, 4});  // 4 does not follow 1
  wrong(1, {7});
  wrong(1, {-1});
  CHECK(plane.commit(step).error().why == Why::bad_config);  // "all of it" is no path
  Index const none = 0;
  REQUIRE(plane.commit(step, std::span(&none, 1)));
  CHECK(plane.info(id)->length == 6);
  check_sound(plane);
}

TEST_CASE("Tree: a chunk that moves rows makes nothing pending, since its sequence may leave",
          "[control][tree]")
{
  auto [e, id] = with_strays();
  Plane& plane = e.plane;
  Tokens const text = {1, 2, 3, 4, 5, 6, 10, 12, 14, 16, 20, 21, 22, 23, 24, 25};
  SequenceId const b = open(plane, text);
  StepId const step = begin(plane);
  REQUIRE(plane.add(step, id, {numbers(20, 25)}));
  Tokens const rest(text.begin() + 4, text.end());
  CHECK(*plane.add(step, b, {rest}) == 12);
  REQUIRE(plane.close(id));
  REQUIRE(plane.submit(step));
  e.finish(step, {rest});
  e.check(b, 16);
}
