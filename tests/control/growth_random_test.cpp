// SPDX-License-Identifier: Apache-2.0
// `fits_beside_growth` over random states: after a yes the growth that was promised is made, in any order, and no add
// is refused; a no is right only if some order runs short. KVCACHE_GROWTH_SCHEDULES sets how many states (default 20,000;
// before a release 1,000,000), KVCACHE_GROWTH_SEED the first seed.

#include <algorithm>
#include <cstdio>
#include <string>

#include "control/random_world.hpp"

namespace {

using namespace kvcache;
using namespace kvcache_test;
using Live = RandomWorld::Live;

constexpr std::uint32_t here = 0;  // the stream of the request, and of all growth

/// A state, and who asks for room in it.
struct Case {
  explicit Case(std::uint64_t seed) : world(seed, seed % 4 == 0 ? 2 : 1, seed % 3 == 0), more(~seed)
  {
    world.run(more.below(120));
    for (std::uint32_t s = 0; s < world.streams; ++s) {
      if (more.below(8) == 0) {
        continue;
      }
      if (!world.steps[s].empty() && !world.steps[s].back().submitted) {
        world.submit(s);
      }
      std::size_t const flying = more.below(2);  // one more step can be begun
      while (world.steps[s].size() > flying) {
        world.commit(s, more);
      }
    }
    if (more.below(4) == 0) {
      for (Live const& one : world.live) {
        if (world.plane.info(one.id)->suspended) {
          suspended = one;
        }
      }
    }
    text = world.prompt();
  }

  [[nodiscard]] Admission ask(Index most) const
  {
    auto const answer =
      suspended ? world.plane.admit(suspended->id, StreamId{here})
                : world.plane.admit({.tokens = text, .stream = {here}, .max_tokens = most});
    REQUIRE(answer);
    return *answer;
  }
  /// Opens or resumes it. False: there is no slot for it.
  bool enter(Index most)
  {
    if (suspended) {
      for (Live& one : world.live) {
        if (one.id == suspended->id && one.most == 0) {
          one.most = world.plane.info(one.id)->length;  // what room was asked for
        }
      }
      return world.plane.resume(suspended->id, {here}).has_value();
    }
    auto const id = world.plane.open({.tokens = text, .stream = {here}, .max_tokens = most});
    if (id) {
      world.live.push_back({*id, most});
    }
    return id.has_value();
  }
  /// Pages that those that run may take, with a copy for each that begins in a page with another holder.
  [[nodiscard]] std::uint64_t most_growth() const
  {
    auto const p = world.plane.options().page_tokens;
    std::uint64_t pages = 1;  // the request's part page, kept while it is copied
    for (Live const& one : world.live) {
      SequenceInfo const info = *world.plane.info(one.id);
      if (info.suspended || one.most <= info.length) {
        continue;
      }
      auto const end = static_cast<PageCount>((one.most + p - 1) / p);
      pages += end > info.pages ? end - info.pages : 0;
      bool shared = false;
      for (PageId const page :
           world.plane.table(one.id).subspan(static_cast<std::size_t>(info.length / p))) {
        shared = shared || world.plane.holders(page) > 1;
      }
      pages += shared ? 1 : 0;
    }
    return pages;
  }

  RandomWorld world;
  Random more;
  std::optional<Live> suspended;  // who asks, or ...
  RandomWorld::Text text;         // ... a prompt
};

/// How a schedule is drawn.
struct Manner {
  bool patient = false;  // a step is over before the next add
  bool whole = false;    // a sequence grows to its end in one chunk
};

/// Everything that runs grows to its end, in random steps; or what an add is refused for.
std::optional<Shortage> grow(RandomWorld& world, Random& by, Manner how)
{
  std::vector<Live> who;
  for (int round = 0;; ++round) {
    REQUIRE(round < 2000);
    who.clear();
    for (Live const& one : world.live) {
      SequenceInfo const info = *world.plane.info(one.id);
      if (!info.suspended && info.planned < one.most) {
        who.push_back(one);
      }
    }
    auto const& own = world.steps[here];
    std::uint32_t const what = by.below(8);
    if (world.streams > 1 && what == 0 && !world.steps[1].empty()) {
      if (!world.steps[1].back().submitted) {
        world.submit(1);
      }
      world.commit(1, by);
    } else if (!who.empty() && what < (how.whole ? 7U : 5U) && !(how.patient && !own.empty())) {
      Live const& one = who[by.below(static_cast<std::uint32_t>(who.size()))];
      auto const left = static_cast<std::uint32_t>(one.most - world.plane.info(one.id)->planned);
      std::uint32_t const part = by.below(3) == 0   ? left
                                 : by.below(2) == 0 ? 1
                                                    : by.between(1, left);
      if (auto const shortage =
            world.add(here, one, static_cast<Index>(how.whole ? left : part), by)) {
        return shortage;
      }
    } else if (!own.empty() && !own.back().submitted) {
      world.submit(here);
    } else if (!own.empty()) {
      world.commit(here, by, round > 300);
    } else if (who.empty() && world.steps.back().empty()) {
      return std::nullopt;
    }
  }
}

struct Counts {
  std::uint64_t yes = 0, tight = 0, copies = 0, no = 0;
};

/// Empty, or what came of a yes at `most` tokens.
std::string after_yes(std::uint64_t seed, Index most, Counts& counts)
{
  Case that(seed);
  RandomWorld& world = that.world;
  Admission const a = that.ask(most);
  Random by(seed ^ 77);
  if (!that.enter(most)) {
    return {};
  }
  counts.yes += 1;
  counts.tight += a.full + a.growth == a.available ? 1U : 0U;
  std::uint64_t const before = world.plane.stats().copied_pages;
  // Who grows beside nobody may have to wait for a step of its own.
  auto const shortage = grow(world, by, {.patient = a.growth == 0, .whole = by.below(2) == 0});
  counts.copies += world.plane.stats().copied_pages - before;
  Report const report = world.plane.check_invariants();
  return shortage ? shortage->message().text : report ? "" : report.broken;
}

/// Empty, or why a no at `most` tokens was too careful.
std::string after_no(std::uint64_t seed, Index most, Counts& counts)
{
  Case const that(seed);
  Admission const a = that.ask(most);
  if (that.world.streams > 1) {  // what their steps keep comes back
    return {};
  }
  counts.no += 1;
  if (a.growth > that.most_growth()) {
    return "more growth than copies can make";
  }
  // A commit puts equal pages together, which nobody foresees. And a copy into the last page that there is never happens.
  for (std::uint64_t way = 0; that.world.steps[here].empty() && a.full != 0; ++way) {
    if (way == 2000) {
      return "no order runs short";
    }
    Case again(seed);
    Random by(way);
    if (!again.enter(most) || grow(again.world, by, {.patient = false, .whole = way % 4 < 2})) {
      break;
    }
  }
  return {};
}

/// Empty, or what is wrong.
std::string verdict(std::uint64_t seed, Counts& counts)
{
  Case const first(seed);
  ControlOptions const& options = first.world.plane.options();
  auto const rows = static_cast<Index>(options.pages) * options.page_tokens;
  // The longest that is let in, and the shortest that is not.
  Index most = first.suspended ? first.suspended->most : static_cast<Index>(first.text.size());
  bool fits = first.ask(most).fits_beside_growth;
  while (fits && !first.suspended && most < rows && first.ask(most + 1).fits_beside_growth) {
    most += 1;
  }
  std::string wrong = fits ? after_yes(seed, most, counts) : "";
  if (wrong.empty() && (!fits || (!first.suspended && most < rows))) {
    most += fits ? 1 : 0;
    fits = false;
    wrong = after_no(seed, most, counts);
  }
  Admission const a = first.ask(most);
  return wrong.empty() ? wrong
                       : "KVCACHE_GROWTH_SEED=" + std::to_string(seed) + ": max_tokens " +
                           std::to_string(most) + ", full " + std::to_string(a.full) + ", growth " +
                           std::to_string(a.growth) + ", available " + std::to_string(a.available) +
                           (fits ? ", a yes: " : ", a no: ") + wrong;
}

}  // namespace

TEST_CASE("admit: after a yes beside growth no order runs short, and after a no one does",
          "[control][admission]")
{
  Counts counts;
  std::uint64_t const wanted =
    check_states("KVCACHE_GROWTH_SCHEDULES", "KVCACHE_GROWTH_SEED", [&](std::uint64_t seed) {
      return verdict(seed, counts);
    });
  auto const n = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf("growth: %llu yes, of them %llu without a page to spare, then %llu copies; %llu no\n",
              n(counts.yes),
              n(counts.tight),
              n(counts.copies),
              n(counts.no));
  if (wanted >= 20'000) {  // the run was not idle
    CHECK(counts.tight > 1000);
    CHECK(counts.copies > 100);
    CHECK(counts.no > 1000);
  }
}
