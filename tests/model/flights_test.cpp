// SPDX-License-Identifier: Apache-2.0
// Random calls on two control planes with two steps in flight on each of two streams, beside a pool of stamps on a device
// whose streams run late, early and between each other.
// KVCACHE_MODEL_OPS sets how many operations, KVCACHE_MODEL_FIRST the first seed, KVCACHE_FLIGHT_SEED replays one seed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "model/child.hpp"
#include "model/flights_operation.hpp"
#include "model/flights_steps.hpp"
#include "model/flights_world.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace kvcache_test;

namespace {

constexpr std::size_t script_length = 400;
constexpr std::uint64_t default_operations = 2'000'000;

/// What broke, or nothing.
std::string verdict_of(FlightSetting const& setting,
                       FlightScript const& script,
                       FlightTally& tally,
                       Listener const& tell = {})
{
  return verdict_on([&] {
    FlightWorld world(setting, tally);
    for (FlightOperation const& o : script) {
      world.said.clear();
      if (tell) {
        tell(print(o) + "  # ");
      }
      perform(world, o);
      world.check();
      tally.operations += 1;
      if (tell) {
        tell(world.said + "\n");
      }
    }
    finish(world);
  });
}

std::string listing_of(FlightSetting const& setting, FlightScript const& script)
{
  return in_child([&](Listener const& tell) {
    FlightTally tally;
    std::string const verdict = verdict_of(setting, script, tally, tell);
    tell(verdict.empty() ? verdict : " BREAKS: " + verdict + "\n");
  });
}

/// Leaves out as many operations as it can while something still breaks.
FlightScript shrunk(FlightSetting const& setting, FlightScript script, int budget = 3000)
{
  for (std::size_t part = (script.size() + 1) / 2; part >= 1 && budget > 0;) {
    bool cut = false;
    for (std::size_t at = 0; at < script.size() && budget > 0; --budget) {
      FlightScript tried = script;
      auto const from = tried.begin() + static_cast<std::ptrdiff_t>(at);
      tried.erase(from, from + static_cast<std::ptrdiff_t>(std::min(part, script.size() - at)));
      if (listing_of(setting, tried).find(" BREAKS: ") != std::string::npos) {
        script = std::move(tried);
        cut = true;
      } else {
        at += part;
      }
    }
    part = cut && part == 1 ? 1 : part / 2;
  }
  return script;
}

std::string report(std::uint64_t seed)
{
  FlightSetting const s = flight_setting_of(seed);
  FlightScript const small = shrunk(s, flight_script_of(seed, script_length));
  return "KVCACHE_FLIGHT_SEED=" + std::to_string(seed) + " breaks: pool of " +
         std::to_string(s.pages) + " pages of " + std::to_string(s.page_tokens) + " tokens" +
         (s.sieve ? " under SIEVE" : "") + (s.chains ? ", chains" : "") + "; shrunk to " +
         std::to_string(small.size()) + " operations:\n" + listing_of(s, small);
}

/// A seed in a child process, where it may crash.
bool breaks(std::uint64_t seed)
{
  return listing_of(flight_setting_of(seed), flight_script_of(seed, script_length))
           .find(" BREAKS: ") != std::string::npos;
}

/// Runs `seeds` seeds from `first` on in a child, which tells a dot for each, and then the tally. Returns nothing, or
/// the dots up to the first seed that breaks and what broke.
std::string run_seeds(std::uint64_t first, std::uint64_t seeds, FlightTally& tally)
{
  std::string told = in_child([&](Listener const& tell) {
    FlightTally own;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
      tell(".");
      std::string const verdict =
        verdict_of(flight_setting_of(seed), flight_script_of(seed, script_length), own);
      if (!verdict.empty()) {
        return tell(" BREAKS: " + verdict);
      }
    }
    tell("\n" + std::string(reinterpret_cast<char const*>(&own), sizeof own));
  });
  if (told.size() != seeds + 1 + sizeof tally || told[seeds] != '\n') {
    return told;
  }
  std::memcpy(&tally, told.data() + seeds + 1, sizeof tally);
  return {};
}

}  // namespace

TEST_CASE("Control: random calls with steps in flight keep every row", "[model][control]")
{
  if (auto const seed = number_from("KVCACHE_FLIGHT_SEED")) {
    bool const broken = breaks(*seed);
    INFO((broken ? report(*seed) : std::string()));
    REQUIRE_FALSE(broken);
    return;
  }
  std::uint64_t const wanted = number_from("KVCACHE_MODEL_OPS").value_or(default_operations);
  std::uint64_t const seeds = (wanted + script_length - 1) / script_length;
  std::uint64_t const first = number_from("KVCACHE_MODEL_FIRST").value_or(1);
  FlightTally tally;
  std::string const verdict = run_seeds(first, seeds, tally);
  std::uint64_t const ran = verdict.empty() ? seeds : verdict.find(' ');
  std::uint64_t const seed = first + ran - 1;
  auto const n = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf(
    "flights: seeds %llu to %llu, %llu operations: %llu adds (%llu refused), %llu rows attached "
    "(%llu "
    "adds "
    "planned none), %llu rows hit (%llu hits on pending pages), %llu copies, %llu commits, %llu "
    "fails, %llu "
    "cuts, %llu trees, %llu rows moved, %llu plans lost, %llu pins, %llu chunks died, %llu steps "
    "ended with "
    "an older one, %llu "
    "resumes, %llu reorders, %llu media declared (%llu turns), %llu hits with media, %llu torn "
    "chunks refused, %llu refused names, %llu copies of copies, %llu "
    "steps given up whose kernels ran later, %llu steps with another one's between their kernels\n",
    n(first),
    n(seed),
    n(tally.operations),
    n(tally.adds),
    n(tally.refused),
    n(tally.attached_rows),
    n(tally.attach_only),
    n(tally.hit_rows),
    n(tally.pending_hits),
    n(tally.copies),
    n(tally.commits),
    n(tally.fails),
    n(tally.cuts),
    n(tally.trees),
    n(tally.moves),
    n(tally.lost),
    n(tally.pins),
    n(tally.dead_chunks),
    n(tally.doomed),
    n(tally.resumes),
    n(tally.reorders),
    n(tally.media),
    n(tally.turns),
    n(tally.media_hits),
    n(tally.torn),
    n(tally.crowded),
    n(tally.links),
    n(tally.ghosts),
    n(tally.between));
  INFO((verdict.empty() ? verdict : verdict.substr(ran) + "\n" + report(seed)));
  REQUIRE(verdict.empty());
  CHECK(tally.operations >= wanted);
  if (wanted >= default_operations) {  // the run was not idle
    for (std::uint64_t const count :
         {tally.refused,  tally.attached_rows, tally.attach_only, tally.pending_hits, tally.copies,
          tally.commits,  tally.fails,         tally.cuts,        tally.trees,        tally.moves,
          tally.lost,     tally.pins,          tally.dead_chunks, tally.doomed,       tally.resumes,
          tally.reorders, tally.media,         tally.turns,       tally.media_hits,   tally.torn,
          tally.crowded,  tally.links,         tally.ghosts,      tally.between}) {
      CHECK(count >= 100);
    }
  }
}
