// SPDX-License-Identifier: Apache-2.0
// The figures of a refused `add` over random states: counted anew from what everybody can see, and tried out.
// KVCACHE_SHORTAGE_STATES sets how many states (default 20,000), KVCACHE_SHORTAGE_SEED the first seed.

#include <cstdio>
#include <set>
#include <string>

#include "control/random_world.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;
using Live = RandomWorld::Live;

/// A state with a step that can be added to, and a sequence that has nothing.
struct Case {
  explicit Case(std::uint64_t seed)
      : world(seed, seed % 2 == 0 ? 2 : 1, seed % 3 == 0),
        more(~seed),
        here(more.below(world.streams))
  {
    world.run(more.below(120));
    auto& own = world.steps[here];
    if (more.below(2) == 0 && !own.empty() && !own.back().submitted) {
      world.submit(here);
    }
    if (own.size() > 1 && own.back().submitted) {
      world.commit(here, more);
    }
    if (own.empty() || own.back().submitted) {
      auto const id = world.plane.begin({here});
      REQUIRE(id);
      own.push_back({.id = *id, .chunks = {}});
    }
    auto const id = world.plane.open({.tokens = {}, .stream = {here}});
    if (id) {
      fresh = *id;
    }
  }

  /// `pages` for the fresh sequence.
  [[nodiscard]] Result<Index, Shortage> take(PageCount pages)
  {
    auto const p = static_cast<PageCount>(world.plane.options().page_tokens);
    return world.plane.add(
      world.steps[here].back().id, *fresh, {.count = static_cast<Index>(pages * p)});
  }
  /// Pages that sequences and pins have.
  [[nodiscard]] std::set<std::uint32_t> used() const
  {
    std::set<std::uint32_t> pages;
    for (Live const& one : world.live) {
      for (PageId const page : world.plane.table(one.id)) {
        pages.insert(page.value);
      }
    }
    for (RandomWorld::Pin const& pin : world.pins) {
      for (PageId const page : pin.pages) {
        pages.insert(page.value);
      }
    }
    return pages;
  }
  /// Whole steps: all that was added is real.
  void end_steps()
  {
    for (std::uint32_t s = 0; s < world.streams; ++s) {
      while (!world.steps[s].empty()) {
        if (!world.steps[s].back().submitted) {
          world.submit(s);
        }
        world.commit(s, more, true);
      }
    }
  }

  RandomWorld world;
  Random more;
  std::uint32_t here;
  std::optional<SequenceId> fresh;
};

struct Counts {
  std::uint64_t refused = 0, evictable = 0, fenced = 0, waiting = 0, stuck = 0, came_back = 0,
                others = 0;
};

std::string differ(char const* what, std::uint64_t is, std::uint64_t should)
{
  return is == should ? ""
                      : std::string(what) + " is " + std::to_string(is) + " and should be " +
                          std::to_string(should);
}

/// Empty, or what is wrong with what sequences that run are refused.
std::string verdict_of_others(Case& that, Shortage const& first, Counts& counts)
{
  RandomWorld& world = that.world;
  Index const p = world.plane.options().page_tokens;
  for (Live const& one : world.live) {
    SequenceInfo const info = *world.plane.info(one.id);
    auto const room =
      static_cast<std::uint32_t>(world.plane.options().max_sequence_tokens - info.planned);
    if (info.suspended || room == 0) {
      continue;
    }
    bool shared = world.streams > 1;  // or what another stream reads
    for (PageId const page :
         world.plane.table(one.id).subspan(static_cast<std::size_t>(info.length / p))) {
      shared = shared || world.plane.holders(page) > 1;
    }
    auto const tokens = static_cast<Index>(that.more.between(1, room));
    auto const no = world.add(that.here, one, tokens, that.more);
    if (!no && world.plane.info(one.id)->planned != info.planned) {
      break;  // the state is another
    }
    if (!no) {
      continue;  // it may not be added to this step
    }
    counts.others += 1;
    auto const end = static_cast<PageCount>((info.planned + tokens + p - 1) / p);
    PageCount const more = end > info.pages ? end - info.pages : 0;
    bool const fewer = world.steps[that.here].back().attach && no->need < more;  // some are there
    if (no->need != more && !fewer && !(shared && no->need == more + 1)) {
      return "need is " + std::to_string(no->need) + " where the table lacks " +
             std::to_string(more);
    }
    if (no->need <= no->free + no->evictable) {
      return std::string("refused though there was enough: ") + no->message().text;
    }
    if (no->free != first.free || no->evictable != first.evictable || no->fenced != first.fenced) {
      return std::string("other figures for another sequence: ") + no->message().text;
    }
  }
  return {};
}

/// Empty, or what is wrong with the figures of a state.
std::string verdict(std::uint64_t seed, Counts& counts)
{
  Case that(seed);
  RandomWorld::Plane& plane = that.world.plane;
  if (!that.fresh) {
    return {};
  }
  PageCount const capacity = plane.options().pages;
  std::uint64_t const before = plane.stats().shortages;
  auto const refused = that.take(capacity);
  std::set<std::uint32_t> const used = that.used();
  if (refused) {
    return used.empty() ? "" : "all pages were given out, though some are used";
  }
  Shortage const no = refused.error();
  if (no.why != Why::no_pages) {  // the step has too many tokens
    return {};
  }
  counts.refused += 1;

  // Counted from what everybody can see.
  std::uint64_t cached = 0;
  plane.for_each_stored([&](Event const& event) {
    cached += plane.holders(event.page) == 1 && used.count(event.page.value) == 0 ? 1U : 0U;
  });
  std::uint64_t unheld = 0;
  for (std::uint32_t page = 1; page <= capacity; ++page) {
    unheld += plane.holders(PageId{page}) == 0 ? 1U : 0U;
  }
  std::uint64_t const waiting = plane.use_of(StreamId{that.here}).waiting;
  Stats const stats = plane.stats();
  std::string wrong = differ("need", no.need, capacity);
  auto const expect = [&](std::string const& one) { wrong = wrong.empty() ? one : wrong; };
  expect(differ("free", no.free, unheld + waiting));
  expect(differ(
    "free + evictable + fenced", no.free + no.evictable + no.fenced, capacity - used.size()));
  expect(differ("stats.free", stats.free, unheld));
  expect(differ("stats.cached", stats.cached, cached));
  expect(differ("stats.fenced", stats.fenced, capacity - unheld - used.size() - cached));
  expect(no.evictable > cached ? "more can be evicted than is cached" : "");
  expect(differ("available",
                plane.admit({.tokens = {}, .stream = {that.here}})->available,
                no.free + no.evictable));
  counts.evictable += no.evictable;
  counts.fenced += no.fenced;
  counts.waiting += waiting;
  counts.stuck += cached - no.evictable;

  // Tried out: so many can be had, by so many evictions, and no more.
  PageCount const most = no.free + no.evictable;
  if (most > 0) {
    Case again(seed);
    auto const taken = again.take(most);
    expect(taken ? "" : "free and evictable pages were refused");
    expect(differ("pages evicted",
                  again.world.plane.stats().evicted_pages - stats.evicted_pages,
                  no.evictable));
    Report const report = again.world.plane.check_invariants();
    expect(report ? "" : report.broken);
  }
  if (most < capacity) {
    Case again(seed);
    expect(again.take(most + 1) ? "more than free and evictable pages could be had" : "");
  }
  // So many can be had when the steps are over, where these put no equal pages together.
  Case later(seed);
  std::uint64_t const merged = stats.merged_pages;
  later.end_steps();
  if (later.world.plane.stats().merged_pages == merged && later.used() == used) {
    counts.came_back += 1;
    PageCount const all = no.free + no.evictable + no.fenced;
    auto const begun = later.world.plane.begin({later.here});
    REQUIRE(begun);
    later.world.steps[later.here].push_back({.id = *begun, .chunks = {}});
    expect(all == 0 || later.take(all) ? "" : "what was fenced did not come back");
  }
  expect(differ("stats.shortages", plane.stats().shortages, before + 1));
  expect(verdict_of_others(that, no, counts));
  return wrong.empty() ? wrong
                       : "KVCACHE_SHORTAGE_SEED=" + std::to_string(seed) + ": " + wrong + "; " +
                           no.message().text;
}

}  // namespace

TEST_CASE("Shortage: the figures are all pages that nobody uses, and can be had",
          "[control][shortage]")
{
  Counts counts;
  std::uint64_t const wanted =
    check_states("KVCACHE_SHORTAGE_STATES", "KVCACHE_SHORTAGE_SEED", [&](std::uint64_t seed) {
      return verdict(seed, counts);
    });
  auto const n = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf(
    "shortage: %llu refused, evictable %llu, fenced %llu, waiting %llu, cached and kept %llu, %llu "
    "came back; of "
    "sequences that run %llu\n",
    n(counts.refused),
    n(counts.evictable),
    n(counts.fenced),
    n(counts.waiting),
    n(counts.stuck),
    n(counts.came_back),
    n(counts.others));
  if (wanted >= 20'000) {  // the run was not idle
    CHECK(counts.evictable > 500);
    CHECK(counts.waiting > 500);
    CHECK(counts.stuck > 10);
    CHECK(counts.came_back > 5000);
    CHECK(counts.others > 200);
  }
}
