// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/replace/concept.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

/// \file What every replacement policy must do, whatever its order: the axioms of `replace/concept.hpp`.
///
/// A test file of a policy calls `verify_replacement<Policy>(seed)`; a policy whose order is known adds
/// its own model.

namespace kvcache_test {

/// The candidates of a policy, the next victim first as far as the policy says so.
template <class R>
std::vector<std::uint32_t> candidates(R const& policy)
{
  std::vector<std::uint32_t> ids;
  policy.for_each_oldest_first([&](kvcache::SpanId span) { ids.push_back(span.value); });
  return ids;
}

/// Tries random calls against a model that knows which spans are candidates, and nothing of their order.
/// Returns the number of the step that broke an axiom, or nothing.
template <kvcache::Replacement R>
std::optional<int> first_breach(std::uint64_t seed, int steps)
{
  using kvcache::SpanId;
  constexpr std::uint32_t num_ids = 40;
  Random random(seed);
  R policy;
  if (!policy.reserve(num_ids)) {
    return -1;
  }
  std::vector<bool> idle(num_ids, false);
  std::vector<bool> used(num_ids, false);  // ids that exist; a split needs a new one
  auto const facts = [](std::uint32_t id) {
    return kvcache::SpanFacts{.domain = id % 3,
                              .first_token = static_cast<kvcache::Index>(id),
                              .pages = 1 + id % 5,
                              .priority = static_cast<std::uint8_t>(id % 2)};
  };
  for (int step = 0; step < steps; ++step) {
    std::uint32_t const id = random.below(num_ids);
    bool good = true;
    switch (random.below(6)) {
      case 0:
      case 1:
        if (!idle[id]) {
          policy.on_idle(SpanId{id}, facts(id));
          idle[id] = used[id] = true;
        }
        break;
      case 2:
        if (idle[id]) {
          policy.on_busy(SpanId{id});
          idle[id] = false;
          used[id] = random.below(2) == 0;
        }
        break;
      case 3:
        if (idle[id]) {
          policy.on_hit(SpanId{id});
        }
        break;
      case 4: {
        auto const victim = policy.victim();
        good = victim.has_value() == (policy.size() != 0) && victim == policy.victim();
        if (victim && good) {
          good = idle[victim->value] && policy.is_candidate(*victim);
          policy.on_busy(*victim);
          good = good && !policy.is_candidate(*victim);
          idle[victim->value] = used[victim->value] = false;
          if (random.below(2) == 0) {
            policy.restore(*victim, facts(victim->value));
            good = good && policy.victim() == victim;
            idle[victim->value] = used[victim->value] = true;
          }
        }
        break;
      }
      default: {
        std::uint32_t const head = random.below(num_ids);
        if (used[id] && !used[head]) {
          policy.on_split(SpanId{head}, SpanId{id});
          used[head] = true;
          idle[head] = idle[id];
        }
      }
    }
    std::vector<std::uint32_t> listed = candidates(policy);
    std::sort(listed.begin(), listed.end());
    std::vector<std::uint32_t> expected;
    for (std::uint32_t i = 0; i < num_ids; ++i) {
      if (idle[i]) {
        expected.push_back(i);
      }
      good = good && policy.is_candidate(SpanId{i}) == idle[i];
    }
    good = good && listed == expected && policy.size() == expected.size();
    if (!good || !policy.check_invariants()) {
      return step;
    }
  }
  return std::nullopt;
}

/// The suite: each `CHECK` names an axiom.
template <kvcache::Replacement R>
void verify_replacement(std::uint64_t seed)
{
  using kvcache::SpanId;
  CAPTURE(seed);
  CHECK(first_breach<R>(seed, 100'000) == std::nullopt);

  R a;
  R b;
  REQUIRE(a.reserve(100));
  REQUIRE(b.reserve(10));
  REQUIRE(b.reserve(100));
  CHECK(a.victim() == std::nullopt);
  for (std::uint32_t id : {7U, 3U, 50U, 99U}) {
    a.on_idle(SpanId{id}, {});
    b.on_idle(SpanId{id}, {});
  }
  CHECK(candidates(a) == candidates(b));  // the same calls, the same order
  REQUIRE(a.reserve(1000));               // growth moves nothing
  CHECK(candidates(a) == candidates(b));
  CHECK_FALSE(a.is_candidate(SpanId{999}));
  CHECK_FALSE(a.is_candidate(SpanId{1'000'000}));

  // A split span leaves after its tail: children before parents.
  a.on_split(SpanId{500}, SpanId{7});
  std::vector<std::uint32_t> left;
  while (auto const victim = a.victim()) {
    left.push_back(victim->value);
    a.on_busy(*victim);
  }
  auto const tail = std::find(left.begin(), left.end(), 7U);
  auto const head = std::find(left.begin(), left.end(), 500U);
  CHECK(left.size() == 5);
  CHECK(tail < head);
  CHECK(head != left.end());
}

}  // namespace kvcache_test
