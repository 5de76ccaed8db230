// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

}  // namespace

TEST_CASE("fork: pages are shared, the first to write into the part page gets a copy",
          "[control][copy_on_write]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  SequenceId const f = fork(plane, a);
  CHECK(pages(plane, f) == pages(plane, a));
  CHECK(plane.info(f)->length == 6);
  CHECK(plane.stats().free == 6);
  auto const shared = pages(plane, a);
  CHECK(plane.holders(PageId{shared[0]}) == 3);  // two tables and the tree
  CHECK(plane.holders(PageId{shared[1]}) == 2);

  StepId const step = begin(plane);
  add(plane, step, f, {70});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).copies.size() == 1);
  PageCopy const copy = plane.plan(step).copies[0];
  CHECK(copy.source.value == shared[1]);
  CHECK(copy.target.value == pages(plane, f)[1]);
  CHECK(copy.rows == 2);
  REQUIRE(plane.commit(step));
  CHECK(pages(plane, f)[0] == shared[0]);
  CHECK(plane.holders(PageId{shared[1]}) == 1);

  StepId const next = begin(plane);  // the other one is alone now, and writes in place
  add(plane, next, a, {7});
  REQUIRE(plane.submit(next));
  CHECK(plane.plan(step).copies.empty());
  REQUIRE(plane.commit(next));
  CHECK(pages(plane, a) == shared);
  CHECK(plane.stats().copied_pages == 1);
  check_sound(plane);
}

TEST_CASE("fork: at the end of a page nothing is copied", "[control][copy_on_write]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 8));
  SequenceId const f = fork(plane, a);
  StepId const step = begin(plane);
  add(plane, step, a, {9});
  add(plane, step, f, {90});
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).copies.empty());
  REQUIRE(plane.commit(step));
  CHECK(pages(plane, a)[2] != pages(plane, f)[2]);
  CHECK(plane.stats().free == 4);
}

TEST_CASE("fork: all of a family in one step: as many copies as siblings less one",
          "[control][copy_on_write]")
{
  Plane plane = make_plane(12);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  std::vector<SequenceId> family{a, fork(plane, a), fork(plane, a), fork(plane, a)};
  PageId const source{pages(plane, a)[1]};
  StepId const step = begin(plane);
  for (SequenceId const id : family) {
    add(plane, step, id, {70 + static_cast<Token>(id.slot)});
  }
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).copies.size() == 3);
  for (PageCopy const& copy : plane.plan(step).copies) {
    CHECK(copy.source == source);  // never a page that the same plan fills
    CHECK(copy.rows == 2);
  }
  REQUIRE(plane.commit(step));
  std::vector<std::uint32_t> last;
  for (SequenceId const id : family) {
    last.push_back(pages(plane, id)[1]);
  }
  std::sort(last.begin(), last.end());
  CHECK(std::adjacent_find(last.begin(), last.end()) == last.end());
  CHECK(plane.stats().held == 5);
  check_sound(plane);
}

TEST_CASE("fork: who is cut below the rows that a step copies gets a copy too",
          "[control][copy_on_write]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 7));
  SequenceId const f = fork(plane, a);
  StepId const step = begin(plane);
  add(plane, step, f, {70});  // reads rows 4 to 6 of the shared page
  REQUIRE(*plane.truncate(a, 5) ==
          5);  // its own next row is 5: in place it would be read by that copy
  add(plane, step, a, {80});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).copies.size() == 2);
  CHECK(plane.plan(step).copies[1].rows == 1);
  REQUIRE(plane.commit(step));
  check_sound(plane);
}

TEST_CASE("fork: a source that everybody left is held until the copying step ends",
          "[control][copy_on_write]")
{
  for (bool const succeeds : {true, false}) {
    CAPTURE(succeeds);
    Plane plane = make_plane(8);
    SequenceId const a = prefilled(plane, numbers(1, 6));
    SequenceId const f = fork(plane, a);
    PageId const source{pages(plane, a)[1]};
    StepId const step = begin(plane);
    add(plane, step, f, {70});
    REQUIRE(plane.close(a));
    CHECK(plane.holders(source) == 1);
    CHECK(plane.stats().fenced == 1);
    REQUIRE(plane.submit(step));
    CHECK(plane.holders(source) == 1);
    REQUIRE((succeeds ? plane.commit(step) : plane.fail(step)));
    CHECK(plane.holders(source) == (succeeds ? 0 : 1));
    CHECK(plane.info(f)->length == (succeeds ? 7 : 6));
    CHECK(plane.stats().fenced == 0);
    check_sound(plane);
  }
}

TEST_CASE("open: a prompt that leaves the cached text inside a page copies its first rows",
          "[control][copy_on_write]")
{
  Plane plane = make_plane(8);
  cache_only(plane, numbers(1, 9));
  Tokens const prompt{1, 2, 3, 4, 5, 6, 70, 80, 90};
  Hit const hit = plane.probe({.tokens = prompt});
  CHECK(hit.rows == 6);
  CHECK(hit.shared_rows == 4);
  CHECK(hit.new_pages == 2);
  CHECK(hit.miss == Miss::partial);
  SequenceId const a = open(plane, prompt);
  CHECK(plane.info(a)->cached == 6);
  CHECK(plane.info(a)->miss == Miss::partial);
  PageId const source{pages(plane, a)[1]};
  StepId const step = begin(plane);
  add(plane, step, a, {70, 80, 90});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).copies.size() == 1);
  CHECK(plane.plan(step).copies[0] == PageCopy{source, PageId{pages(plane, a)[1]}, 2});
  REQUIRE(plane.commit(step));
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);  // the source is as it was
  CHECK(cached_rows(plane, prompt) == 8);
  check_sound(plane);
}

TEST_CASE("open: the last token is always left to compute", "[control][copy_on_write]")
{
  Plane plane = make_plane(8);
  cache_only(plane, numbers(1, 8));
  CHECK(plane.probe({.tokens = numbers(1, 8)}).miss == Miss::last_token);
  for (Index fresh_tail = 1; fresh_tail <= 9; ++fresh_tail) {
    Tokens const prompt = numbers(1, 8);
    CHECK(plane.probe({.tokens = prompt, .fresh_tail = fresh_tail}).rows ==
          (fresh_tail > 8 ? 0 : 8 - fresh_tail));
  }
  SequenceId const a = open(plane, numbers(1, 8));
  CHECK(plane.info(a)->cached == 7);
  append(plane, a, {8});
  CHECK(plane.stats().merged_pages == 1);  // the recomputed page equals the cached one, which stays
  CHECK(plane.stats().held == 2);
  CHECK(plane.stats().free == 6);
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);
  check_sound(plane);
}

TEST_CASE("truncate: into a shared page, the next write copies what is kept",
          "[control][copy_on_write]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 12));
  SequenceId const f = fork(plane, a);
  REQUIRE(*plane.truncate(f, 7) == 7);
  CHECK(plane.info(f)->pages == 2);
  CHECK(plane.info(a)->pages == 3);
  StepId const step = begin(plane);
  add(plane, step, f, {70});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.plan(step).copies.size() == 1);
  CHECK(plane.plan(step).copies[0].rows == 3);
  REQUIRE(plane.commit(step));
  CHECK(pages(plane, a)[0] == pages(plane, f)[0]);
  CHECK(pages(plane, a)[1] != pages(plane, f)[1]);
  CHECK(cached_rows(plane, numbers(1, 13)) == 12);
  check_sound(plane);
}

TEST_CASE("truncate: at a page's end, inside, to nothing, and to more than there is",
          "[control][copy_on_write]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 10));
  CHECK(*plane.truncate(a, 10) == 10);
  CHECK(*plane.truncate(a, 9) == 9);
  CHECK(plane.info(a)->pages == 3);
  CHECK(*plane.truncate(a, 8) == 8);
  CHECK(plane.info(a)->pages == 2);
  check_sound(plane);
  CHECK(*plane.truncate(a, 1) == 1);
  CHECK(plane.info(a)->pages == 1);
  check_sound(plane);
  CHECK(*plane.truncate(a, 0) == 0);
  CHECK(plane.info(a)->pages == 0);
  CHECK(plane.tokens(a).empty());
  check_sound(plane);
  CHECK(cached_rows(plane, numbers(1, 9)) == 8);  // what was published stays
  append(plane, a, numbers(1, 4));
  CHECK(plane.stats().merged_pages == 1);
  check_sound(plane);
}

TEST_CASE("add: at a full pool a sole holder takes its page out of the index and writes in place",
          "[control][copy_on_write]")
{
  Plane plane = make_plane(2);
  SequenceId const a = prefilled(plane, numbers(1, 8));
  REQUIRE(*plane.truncate(a, 6) == 6);
  auto const before = pages(plane, a);
  StepId const step = begin(plane);
  add(plane, step, a, {70});
  REQUIRE(plane.submit(step));
  CHECK(plane.plan(step).copies.empty());
  REQUIRE(plane.commit(step));
  CHECK(pages(plane, a) == before);
  CHECK(plane.info(a)->length == 7);
  CHECK(cached_rows(plane, numbers(1, 8)) == 4);
  append(plane, a, {80});
  CHECK(cached_rows(plane, {1, 2, 3, 4, 5, 6, 70, 80}) == 7);
  check_sound(plane);
}

TEST_CASE("add: with a second holder a full pool is a shortage", "[control][copy_on_write]")
{
  Plane plane = make_plane(2);
  SequenceId const a = prefilled(plane, numbers(1, 8));
  SequenceId const f = fork(plane, a);
  REQUIRE(*plane.truncate(a, 6) == 6);
  StepId const step = begin(plane);
  auto const before = plane.digest();
  auto const added = plane.add(step, a, {Tokens{70}});
  REQUIRE_FALSE(added);
  CHECK(added.error().why == Why::no_pages);
  CHECK(added.error().need == 1);
  CHECK(plane.digest() == before);
  REQUIRE(plane.close(f));
  add(plane, step, a, {70});
  check_sound(plane);
}
