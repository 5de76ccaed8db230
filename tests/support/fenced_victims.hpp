// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What a policy may not notice, for any policy: an `add` that is refused, and a step that is dropped, while steps of
/// another stream keep cached pages.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/plane.hpp"
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
  P planes[2] = {make_plane<P>(24), make_plane<P>(24)};
  P& plain = planes[0];
  P& tried = planes[1];
  Random random(seed);
  std::vector<SequenceId> open_ids[2];  // of the stream
  StepId flights[2]{};
  auto const alike = [&] {
    REQUIRE(plain.digest() == tried.digest());
    REQUIRE(plain.stats().evicted_pages == tried.stats().evicted_pages);
    REQUIRE(tried.check_invariants());
  };
  std::uint32_t refused = 0;
  std::uint32_t dropped = 0;
  for (int round = 0; round < 400; ++round) {
    StreamId const stream{random.below(2)};
    auto& ids = open_ids[stream.value];
    switch (random.below(4)) {
      case 0: {  // a text of one, two or three pages, opened and computed
        if (flights[stream.value].value != 0 || ids.size() == 3) {
          break;
        }
        Token const name = static_cast<Token>(random.below(9)) * 100;
        Tokens const text = numbers(name, name + static_cast<Token>(4 * random.between(1, 3)));
        Tokens rest;
        SequenceId id{};
        for (P& p : planes) {
          id = *p.open({.tokens = text, .stream = stream});
          rest.assign(text.begin() + p.info(id)->length, text.end());
        }
        bool took = true;
        for (P& p : planes) {
          StepId const step = *p.begin(stream);
          took = p.add(step, id, {.tokens = rest}).has_value();
          if (took) {
            REQUIRE(p.submit(step));
            REQUIRE(p.commit(step));
          } else {
            REQUIRE(p.drop(step));
            REQUIRE(p.close(id));
          }
        }
        if (took) {
          ids.push_back(id);
        }
        break;
      }
      case 1: {  // a step goes on its way, with all that is open: what they leave now is fenced
        if (flights[stream.value].value != 0 || ids.empty()) {
          break;
        }
        for (P& p : planes) {
          StepId const step = *p.begin(stream);
          for (SequenceId const id : ids) {
            (void)p.add(step, id, {.tokens = Tokens{7}});
          }
          REQUIRE(p.submit(step));
          flights[stream.value] = step;
        }
        for (SequenceId const id : ids) {
          for (P& p : planes) {
            REQUIRE(p.close(id));
          }
        }
        ids.clear();
        break;
      }
      case 2: {
        for (P& p : planes) {
          if (flights[stream.value].value != 0) {
            REQUIRE(p.commit(flights[stream.value]));
          }
        }
        flights[stream.value] = {};
        break;
      }
      default: {  // what one of them alone hears; an empty step keeps the numbers of steps alike
        PageCount const most = tried.admit({.tokens = Tokens{9}, .stream = stream})->available;
        std::uint32_t const pages = drops ? random.between(1, 24) : most + random.between(1, 4);
        SequenceId ids_of[2];
        for (int i = 0; i < 2; ++i) {
          P& p = planes[i];
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
