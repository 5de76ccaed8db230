// SPDX-License-Identifier: Apache-2.0

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

}  // namespace

TEST_CASE("Plan: rows, indices and tokens are those of the chunks, in the order of add",
          "[control][plan]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  SequenceId const b = open(plane, {50});
  StepId const step = begin(plane);
  add(plane, step, b, {50, 51, 52});
  add(plane, step, a, {7});
  REQUIRE(plane.submit(step));
  Plan const& plan = plane.plan(step);
  CHECK(plan.version == Plan::format_version);
  CHECK(plan.step == step);
  CHECK(plan.num_tokens() == 4);
  REQUIRE(plan.chunks.size() == 2);
  CHECK(plan.chunks[0] == PlannedChunk{b, plane.info(b)->row, 0, 3});
  CHECK(plan.chunks[1] == PlannedChunk{a, plane.info(a)->row, 6, 1});
}

TEST_CASE("Plan: a table entry is sent once", "[control][plan]")
{
  Plane plane = make_plane(8);
  SequenceId const a = open(plane, {1});
  std::vector<std::uint32_t> sent;
  for (Token token = 1; token <= 20; ++token) {
    StepId const step = begin(plane);
    add(plane, step, a, {token});
    REQUIRE(plane.submit(step));
    bool const crosses = (token - 1) % 4 == 0;
    REQUIRE(plane.plan(step).tables.size() == (crosses ? 1 : 0));
    for (TableDelta const& delta : plane.plan(step).tables) {
      CHECK(delta.row == plane.info(a)->row);
      CHECK(delta.first == sent.size());
      CHECK(delta.count == 1);
      sent.push_back(plane.plan(step).ids[delta.ids_at].value);
    }
    REQUIRE(plane.commit(step));
  }
  CHECK(sent == pages(plane, a));
}

TEST_CASE("Plan: a new sequence's pages are sent whole, cached ones included", "[control][plan]")
{
  Plane plane = make_plane(8);
  cache_only(plane, numbers(1, 8));
  SequenceId const a = open(plane, numbers(1, 9));
  StepId const step = begin(plane);
  add(plane, step, a, {9});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).tables.size() == 1);
  CHECK(plane.plan(step).tables[0].first == 0);
  CHECK(plane.plan(step).tables[0].count == 3);
  REQUIRE(plane.commit(step));
}

TEST_CASE("Plan: after a failed step or a cut the entries are sent again", "[control][plan]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  StepId step = begin(plane);
  add(plane, step, a, numbers(7, 10));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.fail(step));
  step = begin(plane);
  add(plane, step, a, numbers(7, 10));
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).tables.size() == 1);
  CHECK(plane.plan(step).tables[0].first <= 2);
  CHECK(plane.plan(step).ids.back() == plane.table(a).back());
  REQUIRE(plane.commit(step));

  REQUIRE(*plane.truncate(a, 4) == 4);
  step = begin(plane);
  add(plane, step, a, {50});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).tables.size() == 1);
  CHECK(plane.plan(step).tables[0].first == 1);
  CHECK(plane.plan(step).tables[0].count == 1);
}

TEST_CASE("digest and plans: two ranks that make the same calls agree, others do not",
          "[control][plan]")
{
  Plane first = make_plane(10);
  Plane second = make_plane(10);
  StepId step{};
  auto const both = [&](auto const& call) {
    call(first);
    call(second);
    REQUIRE(first.digest() == second.digest());
    REQUIRE(first.plan(step) == second.plan(step));
  };
  SequenceId a{};
  SequenceId f{};
  both([&](Plane& p) { cache_only(p, numbers(1, 9)); });
  both([&](Plane& p) { a = prefilled(p, numbers(1, 14)); });
  both([&](Plane& p) { f = fork(p, a); });
  both([&](Plane& p) { step = begin(p); });
  both([&](Plane& p) { add_draft(p, step, f, numbers(60, 70)); });
  both([&](Plane& p) { add(p, step, a, {15}); });
  both([&](Plane& p) { REQUIRE(p.submit(step)); });
  both([&](Plane& p) { REQUIRE(p.commit(step, std::vector<Index>{5, 1})); });
  both([&](Plane& p) { REQUIRE(p.truncate(f, 3)); });
  both([&](Plane& p) { REQUIRE(p.close(a)); });

  std::uint64_t const before = second.digest();
  (void)second.probe({.tokens = numbers(1, 9)});
  CHECK(second.digest() == before);  // a look moves nothing
  append(first, f, {1});
  append(second, f, {2});
  CHECK(first.digest() != second.digest());
}
