// SPDX-License-Identifier: Apache-2.0
// GROWTH: how costs grow. Each row of `kvcache_counts` is counted at n = 1,000, 8,000 and 64,000; the value is the exponent of
// the count over the whole span: 1 is proportional to n, 0 does not depend on n. The counts and the times stand below the line.

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>

#include "counted.hpp"
#include "harness.hpp"

namespace {

constexpr double linear = 1.05;
constexpr double flat = 0.05;
// Spans end in advance at pieces of pieces, so that a cut by a page moves few: n log n moves in all, beside 1,400 instructions a call.
constexpr double with_logarithm = 1.06;
constexpr std::size_t sizes[] = {1000, 8000, 64000};

enum class Of : unsigned char { instructions, bytes };

/// The exponent of `what` that `row` has. One byte and one instruction are added: nothing is no number to divide by.
kvcache_bench::Round exponent(std::string const& row, Of what)
{
  double counts[3] = {};
  std::string note;
  for (std::size_t i = 0; i < 3; ++i) {
    auto const c = what == Of::bytes ? kvcache_bench::done(row, sizes[i])
                                     : kvcache_bench::counted(row, sizes[i]);
    counts[i] = 1 + (what == Of::bytes ? c.bytes : c.instructions);
    char text[128];
    std::snprintf(text,
                  sizeof text,
                  "%sn %zu: %.0f %s, %.3g ms",
                  i == 0 ? "" : "; ",
                  sizes[i],
                  counts[i] - 1,
                  what == Of::bytes ? "bytes" : "instructions",
                  1e3 * c.seconds);
    note += text;
  }
  double const span = std::log(static_cast<double>(sizes[2]) / static_cast<double>(sizes[0]));
  return {.reference = 1, .subject = std::log(counts[2] / counts[0]) / span, .note = note};
}

bool add(std::string const& row, std::string const& what, double goal, Of of = Of::instructions)
{
  return kvcache_bench::add({.bar = "GROWTH",
                             .what = what,
                             .goal = goal,
                             .higher_is_better = false,
                             .wall = false,
                             .once = true,
                             .prepare = [=]() -> std::function<kvcache_bench::Round()> {
                               return [=] { return exponent(row, of); };
                             }});
}

bool const registered =
  add("stats_beside_prefill", "stats() beside a prefill of n pages in flight", flat) &&
  add("refused_beside_prefill", "a refused add beside a prefill of n pages in flight", flat) &&
  add("stats_beside_forks", "stats() beside n copying forks in flight", linear) &&
  add("add_forks", "n forks of a part page, added in one step", linear) &&
  add("drop_forks", "drop of that step", linear) &&
  add("fail_forks", "fail of that step", linear) &&
  add("fail_plain", "fail of a step of n plain sequences", linear) &&
  add("evict_beside_fenced", "an add that evicts one page beside n fenced spans", flat) &&
  add("evict_beside_fenced", "its journal's memory", flat, Of::bytes) &&
  add("truncate_by_pages", "truncate by one page, n times", with_logarithm) &&
  add("pins_of_one_prefix", "n pins of one prefix", linear) &&
  add("merge_among_slots", "a commit that merges 64 pages, 2 of n sequences live", flat) &&
  add("drop_among_slots", "drop of an empty step, max_sequences n", flat) &&
  add("salts", "n requests, each with a salt of its own", linear) &&
  add("salts", "memory left by n salts", flat, Of::bytes) &&
  kvcache_bench::add({.bar = "GROWTH",
                      .what = "MiB left after 1,001 sequences of 16,384 tokens were closed",
                      .goal = 1,
                      .higher_is_better = false,
                      .wall = false,
                      .once = true,
                      .prepare = []() -> std::function<kvcache_bench::Round()> {
                        return []() -> kvcache_bench::Round {
                          auto const c = kvcache_bench::done("closed_slots", 64000);
                          return {.reference = 1, .subject = c.bytes / (1 << 20)};
                        };
                      }});

}  // namespace
