// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/replace/concept.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
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
  std::vector<std::uint32_t> parents(num_ids, kvcache::nil);
  auto const facts = [&](std::uint32_t id) {
    return kvcache::SpanFacts{.parent = SpanId{parents[id]},
                              .domain = id % 3,
                              .first_token = static_cast<kvcache::Index>(id),
                              .pages = 1 + id % 5};
  };
  auto const remove = [&](std::uint32_t id) {
    if (std::find(parents.begin(), parents.end(), id) == parents.end()) {
      policy.on_remove(SpanId{id});
      used[id] = false;
      parents[id] = kvcache::nil;
    }
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
          if (random.below(2) == 0) {
            remove(id);
          }
        }
        break;
      case 3:
        if (used[id]) {
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
          idle[victim->value] = false;
          kvcache::SpanFacts const before = facts(victim->value);
          if (random.below(2) == 0) {
            remove(victim->value);
          }
          if (random.below(2) == 0) {
            parents[victim->value] = before.parent.value;
            policy.restore(*victim, before);
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
          parents[head] = parents[id];
          parents[id] = head;
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

/// Uses a forest as control does: a path is taken from its root on and given back from its end on, victims are
/// removed, steps that are dropped put theirs back under new ids. Returns what broke, or nothing.
template <kvcache::Replacement R>
std::optional<int> first_breach_in_forest(std::uint64_t seed, int steps)
{
  using kvcache::nil;
  using kvcache::SpanId;
  constexpr std::uint32_t num_ids = 64;
  Random random(seed);
  R policy;
  if (!policy.reserve(num_ids)) {
    return -1;
  }
  struct Span {
    bool exists = false;
    std::uint32_t parent = nil;
    std::uint32_t kids = 0;
    std::uint32_t users = 0;
  };
  std::vector<Span> spans(num_ids);
  std::vector<std::uint32_t> held;  // the last span of each user's path
  auto const facts = [&](std::uint32_t id) {
    return kvcache::SpanFacts{.parent = SpanId{spans[id].parent}};
  };
  auto const fresh = [&] {
    std::uint32_t const from = random.below(num_ids);
    for (std::uint32_t i = 0; i < num_ids; ++i) {
      if (std::uint32_t const id = (from + i) % num_ids; !spans[id].exists) {
        return id;
      }
    }
    return nil;
  };
  auto const make = [&](std::uint32_t id, std::uint32_t parent) {
    spans[id] = Span{.exists = true, .parent = parent, .kids = 0, .users = 0};
    if (parent != nil) {
      ++spans[parent].kids;
    }
  };
  auto const take_out = [&](std::uint32_t id) {
    policy.on_busy(SpanId{id});
    policy.on_remove(SpanId{id});
    if (spans[id].parent != nil) {
      --spans[spans[id].parent].kids;
    }
    spans[id].exists = false;
  };
  for (int step = 0; step < steps; ++step) {
    std::uint32_t const id = random.below(num_ids);
    std::uint32_t const what = random.below(8);
    if (what < 3 &&
        spans[id].exists) {  // a user of the path to it, perhaps with something new below
      std::vector<std::uint32_t> path;
      for (std::uint32_t at = id; at != nil; at = spans[at].parent) {
        path.insert(path.begin(), at);
      }
      for (std::uint32_t const at : path) {
        spans[at].users++ == 0 ? policy.on_busy(SpanId{at}) : policy.on_hit(SpanId{at});
      }
      std::uint32_t const below = random.below(2) == 0 ? fresh() : nil;
      if (below != nil) {
        make(below, id);
        spans[below].users = 1;
      }
      held.push_back(below != nil ? below : id);
    } else if (what == 3 && !spans[id].exists) {
      make(id, nil);
      spans[id].users = 1;
      held.push_back(id);
    } else if (what < 6 && !held.empty()) {
      std::swap(held[random.below(static_cast<std::uint32_t>(held.size()))], held.back());
      for (std::uint32_t at = held.back(); at != nil; at = spans[at].parent) {
        if (--spans[at].users == 0) {
          policy.on_idle(SpanId{at}, facts(at));
        }
      }
      held.pop_back();
    } else if (what == 6) {  // victims leave, and come back if the step is dropped
      bool const drops = random.below(2) == 0;
      std::vector<std::uint32_t> const before = candidates(policy);
      std::vector<std::uint32_t> renamed(num_ids);
      for (std::uint32_t i = 0; i < num_ids; ++i) {
        renamed[i] = i;
      }
      std::vector<std::pair<std::uint32_t, std::uint32_t>> gone;  // and its parent
      for (std::uint32_t n = random.below(5); n > 0 && policy.size() > 0; --n) {
        std::uint32_t const victim = policy.victim()->value;
        if (spans[victim].kids != 0) {
          return step;  // axiom 2; all below a candidate are candidates
        }
        gone.emplace_back(victim, spans[victim].parent);
        take_out(victim);
      }
      if (drops) {
        while (!gone.empty()) {
          auto const [old, parent] = gone.back();
          gone.pop_back();
          std::uint32_t const now = fresh();
          make(now, parent == nil ? nil : renamed[parent]);
          renamed[old] = now;
          policy.restore(SpanId{now}, facts(now));
          if (policy.victim() != SpanId{now}) {
            return step;
          }
        }
        std::vector<std::uint32_t> expected;
        for (std::uint32_t const old : before) {
          expected.push_back(renamed[old]);
        }
        if (candidates(policy) != expected) {
          return step;
        }
      }
    } else if (what == 7 && spans[id].exists) {
      if (std::uint32_t const head = fresh(); head != nil) {
        spans[head] = spans[id];
        spans[head].kids = 1;
        spans[id].parent = head;
        policy.on_split(SpanId{head}, SpanId{id});
      }
    }
    if (!policy.check_invariants()) {
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
  CHECK(first_breach_in_forest<R>(seed, 100'000) == std::nullopt);

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
