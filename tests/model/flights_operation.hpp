// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Random calls with steps in flight, as plain data.
///
/// An operation is a kind, a stream and a number from which everything else is drawn, modulo what exists when it
/// runs. So every part of a script is a valid script, and a failing one is cut down by leaving operations out.

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/random.hpp"

namespace kvcache_test {

enum class FlightKind : std::uint8_t {
  open,
  begin,
  add,
  submit,
  drop,
  run,
  commit,
  fail,
  fork,
  truncate,
  close,
  suspend,
  resume,
  forget,
  pure_drop,  // begin, adds and drop in one: nothing may have happened
  reorder,
  pin,
  unpin
};

/// How often a kind is drawn: in most seeds, and in those of chains.
struct FlightWeight {
  FlightKind kind;
  std::uint32_t weight;
  std::uint32_t in_chains;
  char const* name;
};
inline constexpr FlightWeight flight_weights[] = {{FlightKind::open, 12, 4, "open"},
                                                  {FlightKind::begin, 12, 1, "begin"},
                                                  {FlightKind::add, 30, 34, "add"},
                                                  {FlightKind::submit, 12, 14, "submit"},
                                                  {FlightKind::drop, 3, 3, "drop"},
                                                  {FlightKind::run, 12, 4, "run"},
                                                  {FlightKind::commit, 12, 12, "commit"},
                                                  {FlightKind::fail, 3, 4, "fail"},
                                                  {FlightKind::fork, 4, 16, "fork"},
                                                  {FlightKind::truncate, 6, 2, "truncate"},
                                                  {FlightKind::close, 8, 4, "close"},
                                                  {FlightKind::suspend, 3, 4, "suspend"},
                                                  {FlightKind::resume, 6, 6, "resume"},
                                                  {FlightKind::forget, 1, 1, "forget"},
                                                  {FlightKind::pure_drop, 2, 1, "pure_drop"},
                                                  {FlightKind::reorder, 2, 2, "reorder"},
                                                  {FlightKind::pin, 2, 1, "pin"},
                                                  {FlightKind::unpin, 3, 2, "unpin"}};

struct FlightOperation {
  FlightKind kind = FlightKind::open;
  std::uint32_t stream = 0;
  std::uint32_t seed = 0;
};
using FlightScript = std::vector<FlightOperation>;

struct FlightSetting {
  kvcache::PageCount pages = 2;
  std::int32_t page_tokens = 4;
  bool sieve = false;   // instead of LRU
  bool attach = false;  // adds take pages that are there already
  bool chains =
    false;  // few and short sequences: copies of copies, in steps that fail one after the other
};

/// What a seed stands for: every pool with every page size and every policy; of each 96 seeds 48 chains, which need part
/// pages and room for some copies.
[[nodiscard]] inline FlightSetting flight_setting_of(std::uint64_t seed)
{
  constexpr kvcache::PageCount pools[] = {2, 3, 8, 16};
  constexpr kvcache::PageCount chain_pools[] = {6, 8, 12, 16};
  constexpr std::int32_t sizes[] = {1, 4, 16};
  constexpr std::int32_t chain_sizes[] = {2, 4, 8};
  bool const chains = seed / 48 % 2 != 0;
  return {(chains ? chain_pools : pools)[seed % 4],
          (chains ? chain_sizes : sizes)[seed / 4 % 3],
          seed / 12 % 2 != 0,
          seed / 24 % 2 != 0,
          chains};
}

[[nodiscard]] inline FlightScript flight_script_of(std::uint64_t seed, std::size_t length)
{
  Random random(Random(seed).next() ^ 0xf1197ULL);
  bool const chains = flight_setting_of(seed).chains;
  auto const weight = [&](FlightWeight const& w) { return chains ? w.in_chains : w.weight; };
  std::uint32_t total = 0;
  for (FlightWeight const& w : flight_weights) {
    total += weight(w);
  }
  FlightScript script;
  for (std::size_t i = 0; i < length; ++i) {
    std::uint32_t draw = random.below(total);
    FlightWeight const* w = flight_weights;
    while (draw >= weight(*w)) {
      draw -= weight(*w++);
    }
    script.push_back(
      {w->kind, random.below(chains ? 10 : 6) == 0 ? 1U : 0U, random.below(1U << 30)});
  }
  return script;
}

[[nodiscard]] inline std::string print(FlightOperation const& o)
{
  std::string name;
  for (FlightWeight const& w : flight_weights) {
    name = w.kind == o.kind ? w.name : name;
  }
  return name + " stream " + std::to_string(o.stream) + " seed " + std::to_string(o.seed);
}

}  // namespace kvcache_test
