// SPDX-License-Identifier: Apache-2.0
// B-030: what a follower of the tree does with events that come twice, swapped, or not at all.

#include <kvcache/control/events.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "faults/serving.hpp"
#include "faults/subject.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

/// A router's picture of the pages that a cache has.
class Follower {
 public:
  struct Habits {
    bool applies_what_comes = false;          // in whatever order, however often
    bool starts_anew_after_snapshot = false;  // with numbers of its own
    bool stops_at_the_absent = false;         // the rest of a batch of removals is lost
  };

  explicit Follower(Habits habits) : habits_(habits) {}

  void take(Plane const& plane, std::uint64_t number)
  {
    kvcache::Event const event = plane.events().at(number);
    if (habits_.applies_what_comes) {
      (void)apply({event});
      return;
    }
    switch (cursor_.take(number)) {
      case kvcache::EventCursor::Verdict::apply:
        (void)apply({event});
        return;
      case kvcache::EventCursor::Verdict::known:
        return;
      case kvcache::EventCursor::Verdict::waiting:
        recover(plane);
        return;
    }
  }
  /// A batch of removals.
  void remove(std::vector<std::uint32_t> const& pages)
  {
    for (std::uint32_t const page : pages) {
      if (pages_.erase(page) == 0 && habits_.stops_at_the_absent) {
        return;
      }
    }
  }
  [[nodiscard]] std::set<std::uint32_t> const& pages() const { return pages_; }
  [[nodiscard]] int recoveries() const { return recoveries_; }

 private:
  void apply(std::vector<kvcache::Event> const& events)
  {
    for (kvcache::Event const& event : events) {
      switch (event.kind) {
        case kvcache::EventKind::stored:
          pages_.insert(event.page.value);
          break;
        case kvcache::EventKind::removed:
          remove({event.page.value});
          break;
        case kvcache::EventKind::cleared:
          pages_.clear();
          break;
      }
    }
  }
  void recover(Plane const& plane)
  {
    ++recoveries_;
    pages_.clear();
    std::uint64_t number = 0;
    plane.for_each_stored([&](kvcache::Event const& event) {
      pages_.insert(event.page.value);
      number = event.number;
    });
    cursor_.jump(habits_.starts_anew_after_snapshot ? 0 : number);
  }

  Habits habits_;
  kvcache::EventCursor cursor_;
  std::set<std::uint32_t> pages_;
  int recoveries_ = 0;
};

std::set<std::uint32_t> pages_of(Plane const& plane)
{
  std::set<std::uint32_t> pages;
  plane.for_each_stored([&](kvcache::Event const& event) { pages.insert(event.page.value); });
  return pages;
}

/// The follower ends with what the cache has, after one recovery.
bool follows(Follower::Habits habits)
{
  auto plane = *Plane::create({.pages = 3, .page_tokens = 4, .event_capacity = 64});
  auto const compute = [&](Text const& text) {
    auto const s = *plane.open({.tokens = text});
    auto const step = *plane.begin();
    REQUIRE(plane.add(step, s, {.tokens = text}).has_value());
    REQUIRE(plane.submit(step).has_value());
    REQUIRE(plane.commit(step).has_value());
    REQUIRE(plane.close(s).has_value());
  };
  compute(range(1, 8));      // events 1 and 2: two pages come
  compute(range(101, 108));  // 3: one of them goes; 4 and 5: two come
  REQUIRE(plane.events().next() == 6);
  Follower follower(habits);
  for (std::uint64_t const number : {1U, 2U, 4U, 4U, 5U, 3U}) {
    follower.take(plane, number);
  }
  bool right = follower.pages() == pages_of(plane) && follower.recoveries() == 1;
  plane.forget(kvcache::Domain{});  // 6
  follower.take(plane, 6);
  right = right && follower.pages() == pages_of(plane) && follower.recoveries() == 1;
  compute(range(201, 204));  // 7
  follower.take(plane, 7);
  right = right && follower.recoveries() == 1 && follower.pages().size() == 1;
  std::uint32_t const there = *follower.pages().begin();
  follower.remove({there + 1, there});  // one that it never had, and one that it has
  return right && follower.pages().empty();
}

}  // namespace

TEST_CASE("B-030 an event stream with gaps, repeats and reordering", "[faults][events]")
{
  CHECK(follows({}));
  CHECK_FALSE(follows({.applies_what_comes = true}));
  CHECK_FALSE(follows({.starts_anew_after_snapshot = true}));
  CHECK_FALSE(follows({.stops_at_the_absent = true}));
}
