// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file LRU or SIEVE, chosen when it is made, so that one test runs over both.

#include <kvcache/core/ids.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/replace/concept.hpp>
#include <kvcache/replace/lru.hpp>
#include <kvcache/replace/sieve.hpp>

#include <cstdint>
#include <optional>
#include <variant>

namespace kvcache_test {

class EitherPolicy {
 public:
  using role = kvcache::role::replacement;
  struct Options {
    bool sieve = false;
  };

  EitherPolicy() = default;
  explicit EitherPolicy(Options options) noexcept
  {
    if (options.sieve) {
      policy_.emplace<kvcache::Sieve>();
    }
  }

  [[nodiscard]] bool reserve(std::uint32_t spans) noexcept
  {
    return std::visit([&](auto& p) { return p.reserve(spans); }, policy_);
  }
  void on_idle(kvcache::SpanId span, kvcache::SpanFacts const& facts) noexcept
  {
    std::visit([&](auto& p) { p.on_idle(span, facts); }, policy_);
  }
  void on_busy(kvcache::SpanId span) noexcept
  {
    std::visit([&](auto& p) { p.on_busy(span); }, policy_);
  }
  void on_hit(kvcache::SpanId span) noexcept
  {
    std::visit([&](auto& p) { p.on_hit(span); }, policy_);
  }
  void on_remove(kvcache::SpanId span) noexcept
  {
    std::visit([&](auto& p) { p.on_remove(span); }, policy_);
  }
  [[nodiscard]] std::optional<kvcache::SpanId> victim() noexcept
  {
    return std::visit([](auto& p) { return p.victim(); }, policy_);
  }
  void restore(kvcache::SpanId span, kvcache::SpanFacts const& facts) noexcept
  {
    std::visit([&](auto& p) { p.restore(span, facts); }, policy_);
  }
  void on_shrink(kvcache::SpanId span) noexcept
  {
    if (auto* const sieve = std::get_if<kvcache::Sieve>(&policy_)) {
      sieve->on_shrink(span);
    }
  }
  void on_grow(kvcache::SpanId span) noexcept
  {
    if (auto* const sieve = std::get_if<kvcache::Sieve>(&policy_)) {
      sieve->on_grow(span);
    }
  }
  void set_aside(kvcache::SpanId span) noexcept
  {
    if (auto* const sieve = std::get_if<kvcache::Sieve>(&policy_)) {
      sieve->set_aside(span);
    } else {
      on_remove(span);
    }
  }
  [[nodiscard]] bool take_back(kvcache::SpanId span) noexcept
  {
    auto* const sieve = std::get_if<kvcache::Sieve>(&policy_);
    return sieve != nullptr && sieve->take_back(span);
  }
  void on_split(kvcache::SpanId head, kvcache::SpanId tail) noexcept
  {
    std::visit([&](auto& p) { p.on_split(head, tail); }, policy_);
  }
  [[nodiscard]] bool is_candidate(kvcache::SpanId span) const noexcept
  {
    return std::visit([&](auto const& p) { return p.is_candidate(span); }, policy_);
  }
  [[nodiscard]] std::uint32_t size() const noexcept
  {
    return std::visit([](auto const& p) { return p.size(); }, policy_);
  }
  template <class F>
  void for_each_oldest_first(F visit) const
  {
    std::visit([&](auto const& p) { p.for_each_oldest_first(visit); }, policy_);
  }
  [[nodiscard]] bool check_invariants() const
  {
    return std::visit([](auto const& p) { return p.check_invariants(); }, policy_);
  }

 private:
  std::variant<kvcache::Lru, kvcache::Sieve> policy_;
};

static_assert(kvcache::explain_replacement<EitherPolicy>());

}  // namespace kvcache_test
