// SPDX-License-Identifier: Apache-2.0
// Faults of sections 3, 12 and 13 that need steps in flight, suspension or beams.

#include <kvcache/control/prompt.hpp>
#include <kvcache/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "faults/serving.hpp"
#include "faults/subject.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

void append(Plane& plane, kvcache::SequenceId s, Text const& text)
{
  auto const step = *plane.begin();
  REQUIRE(plane.add(step, s, {.tokens = text}).has_value());
  REQUIRE(plane.submit(step).has_value());
  REQUIRE(plane.commit(step).has_value());
}
Text text_of(Plane const& plane, kvcache::SequenceId s)
{
  auto const tokens = plane.tokens(s);
  return {tokens.begin(), tokens.end()};
}

/// All rows at once, as the library does it, or one after another, as views of one table would.
void permute(Plane& plane,
             std::vector<kvcache::SequenceId> const& ids,
             std::vector<kvcache::Index> const& parents,
             bool one_by_one)
{
  if (!one_by_one) {
    REQUIRE(plane.reorder(ids, parents).has_value());
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto const parent = static_cast<std::size_t>(parents[i]);
    if (parent != i) {
      std::vector<kvcache::SequenceId> const pair{ids[i], ids[parent]};
      std::vector<kvcache::Index> const both{1, 1};
      REQUIRE(plane.reorder(pair, both).has_value());
    }
  }
}

/// A swap, a cycle of three, and a row that moves into a hole; the hole is clean for its next owner.
bool moves_rows(bool one_by_one)
{
  Plane plane = plane_of(16);
  Text const texts[3] = {range(1, 9), range(101, 106), range(201, 203)};
  std::vector<kvcache::SequenceId> ids;
  for (Text const& text : texts) {
    ids.push_back(*plane.open({.tokens = text}));
    append(plane, ids.back(), text);
  }
  permute(plane, {ids[0], ids[1]}, {1, 0}, one_by_one);
  bool right = text_of(plane, ids[0]) == texts[1] && text_of(plane, ids[1]) == texts[0];
  permute(plane, ids, {1, 2, 0}, one_by_one);
  right = right && text_of(plane, ids[0]) == texts[0] && text_of(plane, ids[1]) == texts[2] &&
          text_of(plane, ids[2]) == texts[1];
  permute(plane, {ids[0], ids[2]}, {1, 1}, one_by_one);
  (void)plane.close(ids[2]);
  auto const next = *plane.open({.tokens = {}});
  auto const info = *plane.info(next);
  right = right && text_of(plane, ids[0]) == texts[1] && plane.info(ids[0])->pages == 2;
  right = right && info.length == 0 && info.pages == 0 && info.cached == 0 && !info.suspended;
  return right && plane.check_invariants();
}

}  // namespace

TEST_CASE("B-031 who attached to rows that were never written is cut back", "[faults][flights]")
{
  Plane plane = plane_of(8);
  Text const text = range(1, 8);
  auto const writer = *plane.open({.tokens = text});
  auto const step = *plane.begin();
  REQUIRE(*plane.add(step, writer, {.tokens = text}) == 8);
  Text const longer = range(1, 9);
  CHECK(plane.probe({.tokens = longer}).rows == 0);  // not before `submit`
  REQUIRE(plane.submit(step).has_value());
  auto const reader = *plane.open({.tokens = longer});
  CHECK(plane.info(reader)->length == 8);  // of the same stream: its kernels run after
  CHECK(plane.probe({.tokens = longer, .stream = kvcache::StreamId{1}}).rows == 0);
  REQUIRE(plane.close(writer).has_value());
  REQUIRE(plane.fail(step).has_value());
  REQUIRE(plane.cuts().size() == 1);
  CHECK(plane.cuts()[0] == kvcache::Cut{reader, 0});
  CHECK(plane.info(reader)->length == 0);
  CHECK(plane.probe({.tokens = longer}).rows == 0);
  CHECK(plane.stats().free == 8);
  CHECK(plane.check_invariants());
}

TEST_CASE("B-033 a hit on pages that nobody holds is not counted as free", "[faults][flights]")
{
  Plane plane = plane_of(3);
  Text const head = range(1, 4);
  auto const first = *plane.open({.tokens = head});
  append(plane, first, head);
  REQUIRE(plane.close(first).has_value());
  auto const other = *plane.open({.tokens = {}});
  append(plane, other, range(50, 50));
  auto const s = *plane.open({.tokens = joined(head, range(21, 28))});
  REQUIRE(plane.info(s)->length == 4);
  auto const step = *plane.begin();
  auto const no = plane.add(step, s, {.tokens = range(21, 28)});
  REQUIRE_FALSE(no.has_value());
  CHECK(no.error().need == 2);
  CHECK(no.error().free == 1);
  CHECK(no.error().evictable == 0);  // the hit's page is in use now
  CHECK(*plane.add(step, s, {.tokens = range(21, 24)}) == 4);
}

TEST_CASE("B-118 swapping two rows through views", "[faults][flights]")
{
  CHECK(moves_rows(false));
  CHECK_FALSE(moves_rows(true));
}

TEST_CASE("B-120 what belongs to a row moves with it", "[faults][flights]")
{
  Plane plane = plane_of(16);
  Text const text = range(1, 8);
  auto const a = *plane.open({.tokens = text});
  append(plane, a, text);
  auto const c = *plane.open({.tokens = range(1, 9)});  // 8 rows of it come from the tree
  auto const b = *plane.open({.tokens = range(101, 102)});
  REQUIRE(plane.info(c)->cached == 8);
  std::vector<kvcache::SequenceId> const ids{a, b, c};
  std::vector<kvcache::Index> const parents{2, 1, 2};
  REQUIRE(plane.reorder(ids, parents).has_value());
  CHECK(plane.info(a)->cached == 8);
  CHECK(plane.info(b)->cached == 0);
  REQUIRE(plane.close(c).has_value());
  auto const d = *plane.open({.tokens = range(201, 202)});
  CHECK(plane.info(d)->cached == 0);
  CHECK(plane.check_invariants());
}

TEST_CASE("B-125 a request without pages in front of one that has some", "[faults][flights]")
{
  auto const ends = [](Serving::Habits habits) {
    Plane plane = plane_of(7);
    auto const b = *plane.open({.tokens = {}});
    append(plane, b, range(1, 20));  // five pages
    Text const prompt = range(101, 116);
    auto const a = *plane.open({.tokens = prompt});
    bool a_done = false;
    bool b_done = false;
    for (int i = 0; i < 20 && !(a_done && b_done); ++i) {
      auto const step = *plane.begin();
      bool went_on = true;
      auto const visit = [&](kvcache::SequenceId s, Text const& text, bool& done) {
        if (!done && went_on) {
          done = plane.add(step, s, {.tokens = text}).has_value();
          went_on = done || !habits.stops_at_a_shortage;
        }
      };
      bool const b_was_done = b_done;
      visit(a, prompt, a_done);
      visit(b, range(21, 22), b_done);
      (void)plane.submit(step);
      (void)plane.commit(step);
      if (b_done && !b_was_done) {
        (void)plane.close(b);
      }
    }
    return a_done && b_done && plane.check_invariants();
  };
  CHECK(ends({}));
  CHECK_FALSE(ends({.stops_at_a_shortage = true}));
}

TEST_CASE("B-127 livelock in preemption", "[faults][flights]")
{
  auto const ends = [](Serving::Habits habits) {
    Serving serving(4, habits);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(serving.arrive(4, 16));
    }
    bool right = serving.finishes_within(200);
    for (Serving::Request const& r : serving.requests()) {
      right = right && r.suspended <= 2;
    }
    return right;
  };
  CHECK(ends({}));
  CHECK_FALSE(ends({.returns_eagerly = true, .suspends_the_oldest = true}));

  Plane small = plane_of(3);  // no single one fits: said at once, with the figure
  auto const refused = small.open({.tokens = range(1, 16)});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().why == kvcache::Why::too_large);
  CHECK(refused.error().limit == 12);
}

TEST_CASE("B-130 thrashing", "[faults][flights]")
{
  auto const suspended = [](Serving::Habits habits, std::size_t length) {
    Serving serving(20, habits);
    for (int i = 0; i < 4; ++i) {
      REQUIRE(serving.arrive(12, length));
    }
    REQUIRE(serving.finishes_within(400));
    return serving.suspended();
  };
  CHECK(suspended({}, 24) <= 4);  // 24 pages in all
  CHECK(suspended({}, 40) <= 4);  // 40
  CHECK(suspended({.returns_eagerly = true}, 40) > 4);

  // The watermark is for those that run: it keeps a newcomer out, never the first, and is never the whole pool.
  for (kvcache::PageCount const watermark : {0U, 2U}) {
    auto plane = *Plane::create({.pages = 20, .page_tokens = 4, .watermark = watermark});
    Text const all = range(1, 80);
    CHECK(plane.admit({.tokens = all})->fits);
    auto const runs = *plane.open({.tokens = range(1, 12)});
    append(plane, runs, range(1, 12));
    CHECK(plane.admit({.tokens = range(201, 268)})->fits == (watermark == 0));
    CHECK(plane.admit({.tokens = range(201, 260)})->fits);
  }
  CHECK_FALSE(Plane::create({.pages = 20, .page_tokens = 4, .watermark = 20}).has_value());
}

TEST_CASE("B-134 the same victim every time", "[faults][flights]")
{
  auto const fair = [](Serving::Habits habits) {
    Serving serving(60, habits);
    for (int i = 0; i < 4; ++i) {
      REQUIRE(serving.arrive(4, 80));  // 20 pages each: three fit
    }
    bool right = serving.finishes_within(1000);
    std::uint64_t lost = 0;
    for (Serving::Request const& r : serving.requests()) {
      right = right && r.suspended <= 3 && (r.lost > 0) == (r.suspended > 0);
      lost += static_cast<std::uint64_t>(r.lost);
    }
    return right && serving.plane().stats().lost_tokens == lost;
  };
  CHECK(fair({}));
  CHECK_FALSE(fair({.returns_eagerly = true}));
}
