// SPDX-License-Identifier: Apache-2.0

#include <kvcache/prefix/domain.hpp>

#include <algorithm>

#include "support/plane.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;

}  // namespace

TEST_CASE("commit: whole pages are published, the part page is not", "[control][publish]")
{
  Plane plane = make_plane(8);
  SequenceId const a = prefilled(plane, numbers(1, 7));
  CHECK(plane.holders(PageId{pages(plane, a)[0]}) == 2);
  CHECK(plane.holders(PageId{pages(plane, a)[1]}) == 1);
  append(plane, a, {8});
  CHECK(plane.holders(PageId{pages(plane, a)[1]}) == 2);
  CHECK(plane.stats().tree_spans == 1);  // the sequence's own span grew
  check_sound(plane);
}

TEST_CASE("commit: one prompt drafted four times in one step is held once from then on",
          "[control][publish]")
{
  Plane plane = make_plane(24);
  Tokens const prompt = numbers(1, 17);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(open(plane, prompt));
  }
  StepId step = begin(plane);
  for (SequenceId const id : ids) {
    add_draft(plane, step, id, numbers(1, 8));
  }
  REQUIRE(plane.submit(step));
  CHECK(plane.stats().held == 8);
  REQUIRE(plane.commit(step));
  CHECK(plane.stats().held == 2);
  CHECK(plane.stats().merged_pages == 6);
  check_sound(plane);

  step = begin(plane);
  for (SequenceId const id : ids) {
    add_draft(plane, step, id, numbers(9, 17));
  }
  REQUIRE(plane.submit(step));
  // The pools learn of the pages that replaced the sequences' own: the whole table of all but the first.
  REQUIRE(plane.plan(step).tables.size() == 4);
  CHECK(plane.plan(step).tables[0].first == 2);
  for (std::size_t i = 1; i < 4; ++i) {
    TableDelta const delta = plane.plan(step).tables[i];
    CHECK(delta.first == 0);
    CHECK(delta.count == 5);
    for (std::uint32_t p = 0; p < delta.count; ++p) {
      CHECK(plane.plan(step).ids[delta.ids_at + p] == plane.table(ids[i])[p]);
    }
  }
  REQUIRE(plane.commit(step));
  CHECK(plane.stats().held == 4 + 4);  // four whole pages, and a part page each
  for (SequenceId const id : ids) {
    CHECK(std::equal(
      plane.table(id).begin(), plane.table(id).begin() + 4, plane.table(ids[0]).begin()));
  }
  check_sound(plane);
}

TEST_CASE("commit: a page that is cached already replaces the one that was computed again",
          "[control][publish]")
{
  Plane plane = make_plane(12);
  SequenceId const late = open(plane, numbers(1, 9));  // opened before anything is cached
  SequenceId const early = prefilled(plane, numbers(1, 9));
  CHECK(plane.info(late)->miss == Miss::never_seen);
  append_draft(plane, late, numbers(1, 6));
  CHECK(pages(plane, late)[0] == pages(plane, early)[0]);
  CHECK(pages(plane, late)[1] != pages(plane, early)[1]);
  append_draft(plane, late, {7, 8});
  CHECK(pages(plane, late)[1] == pages(plane, early)[1]);
  CHECK(plane.stats().merged_pages == 2);
  check_sound(plane);
  REQUIRE(plane.close(early));
  check_sound(plane);
  REQUIRE(plane.close(late));
  check_sound(plane);
  CHECK(plane.stats().cached == 2);
}

TEST_CASE("commit: forks that go the same way end up sharing again", "[control][publish]")
{
  Plane plane = make_plane(12);
  SequenceId const a = prefilled(plane, numbers(1, 6));
  SequenceId const f = fork(plane, a);
  StepId const step = begin(plane);
  add(plane, step, a, {7, 8, 9});
  add(plane, step, f, {7, 8, 10});
  REQUIRE(plane.submit(step));
  REQUIRE(plane.commit(step));
  CHECK(pages(plane, a)[1] == pages(plane, f)[1]);
  CHECK(pages(plane, a)[2] != pages(plane, f)[2]);
  check_sound(plane);
}

TEST_CASE("domains: the same tokens in two of them share nothing", "[control][publish]")
{
  Plane plane = make_plane(12);
  Domain const llama({.model = "llama"});
  Domain const other({.model = "llama", .salt = "tenant 7"});
  Tokens const prompt = numbers(1, 9);
  auto const a = plane.open({.tokens = prompt, .domain = &llama});
  REQUIRE(a);
  append(plane, *a, prompt);
  Hit const hit = plane.probe({.tokens = prompt, .domain = &other});
  CHECK(hit.rows == 0);
  CHECK(hit.miss == Miss::other_domain);
  CHECK(plane.probe({.tokens = prompt, .domain = &llama}).rows == 8);
  CHECK(plane.probe({.tokens = prompt}).rows == 0);
  auto const b = plane.open({.tokens = prompt, .domain = &other});
  REQUIRE(b);
  append(plane, *b, prompt);
  CHECK(plane.stats().merged_pages == 0);
  CHECK(plane.stats().held == 6);
  check_sound(plane);

  plane.forget(llama);
  CHECK(plane.probe({.tokens = prompt, .domain = &llama}).rows == 0);
  CHECK(plane.probe({.tokens = prompt, .domain = &other}).rows == 8);
  check_sound(plane);
}

TEST_CASE("probe: a domain that nobody opened yet hits nothing", "[control][publish]")
{
  Plane plane = make_plane(12);
  Domain const llama({.model = "llama"});
  CHECK(plane.probe({.tokens = numbers(1, 9), .domain = &llama}).miss == Miss::never_seen);
  CHECK(plane.probe({.tokens = numbers(1, 9)}).miss == Miss::never_seen);
  cache_only(plane, numbers(1, 9));
  Hit const hit = plane.probe({.tokens = numbers(1, 9), .domain = &llama});
  CHECK(hit.rows == 0);
  CHECK(hit.new_pages == 3);
  CHECK(hit.miss == Miss::other_domain);
}

TEST_CASE("forget: nothing of the domain is found, live readers keep their pages",
          "[control][publish]")
{
  Plane plane = make_plane(12);
  SequenceId const reader = prefilled(plane, numbers(1, 10));
  cache_only(plane, numbers(101, 108));
  SequenceId const f = fork(plane, reader);
  auto const table = pages(plane, reader);
  CHECK(plane.stats().cached == 2);
  plane.forget({});
  CHECK(plane.stats().cached == 0);
  CHECK(plane.stats().held == 3);
  CHECK(cached_rows(plane, numbers(1, 10)) == 0);
  CHECK(pages(plane, reader) == table);
  CHECK(plane.info(reader)->length == 10);
  check_sound(plane);

  append(plane, reader, numbers(11, 16));  // of the old weights: never published
  append(plane, f, numbers(11, 16));
  CHECK(cached_rows(plane, numbers(1, 17)) == 0);
  CHECK(plane.stats().tree_spans == 0);
  check_sound(plane);
  SequenceId const late = fork(plane, reader);
  append(plane, late, numbers(17, 20));
  CHECK(cached_rows(plane, numbers(1, 17)) == 0);

  SequenceId const fresh = prefilled(plane, numbers(1, 5));  // opened after it: publishes
  CHECK(cached_rows(plane, numbers(1, 5)) == 4);
  for (SequenceId const id : {reader, f, late, fresh}) {
    REQUIRE(plane.close(id));
    check_sound(plane);
  }
  CHECK(plane.stats().free == 11);
  CHECK(plane.stats().cached == 1);
}

TEST_CASE("forget: in a step, what the step computes is not published", "[control][publish]")
{
  Plane plane = make_plane(8);
  SequenceId const a = open(plane, numbers(1, 8));
  StepId const step = begin(plane);
  add(plane, step, a, numbers(1, 8));
  REQUIRE(plane.submit(step));
  plane.forget({});
  REQUIRE(plane.commit(step));
  CHECK(plane.info(a)->length == 8);
  CHECK(plane.stats().tree_spans == 0);
  check_sound(plane);
}

TEST_CASE("forget: a domain that nobody named changes nothing", "[control][publish]")
{
  Plane plane = make_plane(8);
  cache_only(plane, numbers(1, 8));
  auto const before = plane.digest();
  plane.forget(Domain({.model = "unheard of"}));
  CHECK(plane.digest() == before);
}
