// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What a policy may not notice, for any policy: an `add` that is refused, and a step that is dropped, while steps of
/// another stream keep cached pages.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <cstdint>

#include "support/catch.hpp"
#include "support/plane.hpp"
#include "support/plane_pair.hpp"
#include "support/random.hpp"

namespace kvcache_test {

/// Two planes hear the same calls; one also adds what is refused, and, with `drops`, builds steps that are dropped. Both must
/// go on alike, page for page. False where nothing was refused, or nothing dropped.
template <class Policy>
[[nodiscard]] bool refused_and_dropped_leave_the_order(std::uint64_t seed, bool drops)
{
  using namespace kvcache;
  using P = Control<PageAllocator, RadixTree, Policy>;
  CAPTURE(seed);
  PlanePair<P> pair({.pages = 24, .page_tokens = 4, .max_sequences = 8, .max_step_tokens = 256});
  P& plain = pair.planes[0];
  P& tried = pair.planes[1];
  Random random(seed);
  auto const alike = [&] {
    REQUIRE(plain.digest() == tried.digest());
    REQUIRE(plain.stats().evicted_pages == tried.stats().evicted_pages);
    REQUIRE(tried.check_invariants());
  };
  std::uint32_t refused = 0;
  std::uint32_t dropped = 0;
  for (int round = 0; round < 400; ++round) {
    StreamId const stream{random.below(2)};
    switch (random.below(4)) {
      case 0:
        pair.compute(stream, random);
        break;
      case 1:  // what they leave now is fenced
        pair.leave_in_flight(stream);
        break;
      case 2:
        pair.commit(stream);
        break;
      default: {  // what one of them alone hears; an empty step keeps the numbers of steps alike
        PageCount const most = tried.admit({.tokens = Tokens{9}, .stream = stream})->available;
        std::uint32_t const pages = drops ? random.between(1, 24) : most + random.between(1, 4);
        SequenceId ids_of[2];
        for (int i = 0; i < 2; ++i) {
          P& p = pair.planes[i];
          ids_of[i] = *p.open({.tokens = Tokens{9}, .stream = stream});
          StepId const step = *p.begin(stream);
          if (i == 1) {
            Tokens const fresh = numbers(10'000, 10'000 + static_cast<Token>(4 * pages) - 1);
            auto const before = p.digest();
            bool const took = p.add(step, ids_of[i], {.tokens = fresh}).has_value();
            refused += took ? 0 : 1;
            dropped += took ? 1 : 0;
            if (!took) {
              REQUIRE(p.digest() == before);
            }
          }
          REQUIRE(p.drop(step));
          REQUIRE(p.close(ids_of[i]));
        }
      }
    }
    alike();
  }
  return refused > 0 && (dropped > 0) == drops;
}

}  // namespace kvcache_test
