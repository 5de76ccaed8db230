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

struct FlightWeight {
  FlightKind kind;
  std::uint32_t weight;
  char const* name;
};
inline constexpr FlightWeight flight_weights[] = {{FlightKind::open, 12, "open"},
                                                  {FlightKind::begin, 12, "begin"},
                                                  {FlightKind::add, 30, "add"},
                                                  {FlightKind::submit, 12, "submit"},
                                                  {FlightKind::drop, 3, "drop"},
                                                  {FlightKind::run, 12, "run"},
                                                  {FlightKind::commit, 12, "commit"},
                                                  {FlightKind::fail, 3, "fail"},
                                                  {FlightKind::fork, 4, "fork"},
                                                  {FlightKind::truncate, 6, "truncate"},
                                                  {FlightKind::close, 8, "close"},
                                                  {FlightKind::suspend, 3, "suspend"},
                                                  {FlightKind::resume, 6, "resume"},
                                                  {FlightKind::forget, 1, "forget"},
                                                  {FlightKind::pure_drop, 2, "pure_drop"},
                                                  {FlightKind::reorder, 2, "reorder"},
                                                  {FlightKind::pin, 2, "pin"},
                                                  {FlightKind::unpin, 3, "unpin"}};

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
};

/// What a seed stands for: every pool with every page size and every policy.
[[nodiscard]] inline FlightSetting flight_setting_of(std::uint64_t seed)
{
  constexpr kvcache::PageCount pools[] = {2, 3, 8, 16};
  constexpr std::int32_t sizes[] = {1, 4, 16};
  return {pools[seed % 4], sizes[seed / 4 % 3], seed / 12 % 2 != 0, seed / 24 % 2 != 0};
}

[[nodiscard]] inline FlightScript flight_script_of(std::uint64_t seed, std::size_t length)
{
  Random random(Random(seed).next() ^ 0xf1197ULL);
  std::uint32_t total = 0;
  for (FlightWeight const& w : flight_weights) {
    total += w.weight;
  }
  FlightScript script;
  for (std::size_t i = 0; i < length; ++i) {
    std::uint32_t draw = random.below(total);
    FlightWeight const* w = flight_weights;
    while (draw >= w->weight) {
      draw -= (w++)->weight;
    }
    script.push_back({w->kind, random.below(6) == 0 ? 1U : 0U, random.below(1U << 30)});
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
