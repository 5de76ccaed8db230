// SPDX-License-Identifier: Apache-2.0
// The goals that wait for what they measure: a line each, so that the table says what is missing.

#include <stdexcept>
#include <string>

#include "../harness.hpp"

namespace {

bool add_missing(char const* bar, char const* what)
{
  return kvcache_bench::add({.bar = bar,
                             .what = what,
                             .wall = false,
                             .prepare = []() -> std::function<kvcache_bench::Round()> {
                               throw kvcache_bench::NotBuilt();
                             }});
}

bool const registered =
  add_missing("G5", "decode over fp8, int8 and int4 against bfloat16: no codecs yet") &&
  add_missing("G8", "offload of pages, one way: no tiers yet") &&
  add_missing("G9", "offload both ways, and beside decode: no tiers yet") &&
  add_missing("G12", "eviction by scores, with compaction: no evictors yet");

}  // namespace
