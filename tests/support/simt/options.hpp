// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/simt/sanitizers.hpp"

/// \file How a kernel is run.

namespace simt {

/// Which thread goes on, of those that can; and in which order the blocks of a grid run.
enum class Order : std::uint8_t { ascending, descending, random };

struct Options {
  Order order = Order::ascending;
  std::uint64_t seed = 0;  // of Order::random
  bool threads =
    has_tsan;  // a std::thread for each GPU thread: under ThreadSanitizer there is nothing else
  std::int32_t blocks_at_once = 2;  // with threads; races between blocks are seen among these
};

/// For messages.
inline std::string to_string(Options const& options)
{
  if (options.threads) {
    return "a thread for each";
  }
  switch (options.order) {
    case Order::ascending:
      return "ascending";
    case Order::descending:
      return "descending";
    case Order::random:
      break;
  }
  return "random, seed " + std::to_string(options.seed);
}

/// Every way to run a kernel that this build has: on fibers ascending, descending and by `seeds` random orders; or, under
/// ThreadSanitizer, on threads.
inline std::vector<Options> schedules(std::uint64_t first_seed = 1, std::uint64_t seeds = 4)
{
  if (has_tsan) {
    return {Options{}};
  }
  std::vector<Options> out{{.order = Order::ascending}, {.order = Order::descending}};
  for (std::uint64_t i = 0; i < seeds; ++i) {
    out.push_back({.order = Order::random, .seed = first_seed + i});
  }
  return out;
}

}  // namespace simt
