// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/zero_array.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// Remembers, as fingerprints, what once was in the tree: only to tell an operator why a prompt missed.
///
/// Two direct-mapped tables, a later entry overwrites an earlier one: it forgets, it never grows, and a
/// wrong answer (odds 2^-32 a look-up, or a page id that came back with other rows) costs a sentence.
/// **Cost** one line of memory a call.
class Ghosts {
 public:
  /// **Errors** `std::bad_alloc`.
  explicit Ghosts(PageCount pages) : evicted_(slots_for(pages)), starts_(slots_for(pages)) {}

  /// `hash` names a page by what came before it and its tokens.
  void record_evicted(std::uint64_t hash) noexcept
  {
    evicted_[hash & (evicted_.size() - 1)] = print(hash);
  }
  [[nodiscard]] bool was_evicted(std::uint64_t hash) const noexcept
  {
    return evicted_[hash & (evicted_.size() - 1)] == print(hash);
  }

  /// `hash` names the first page of a prompt by its tokens alone.
  void record_start(std::uint64_t hash, DomainId domain) noexcept
  {
    starts_[hash & (starts_.size() - 1)] = Start{.print = print(hash), .domain = domain.slot};
  }
  [[nodiscard]] bool starts_elsewhere(std::uint64_t hash, DomainId domain) const noexcept
  {
    Start const& start = starts_[hash & (starts_.size() - 1)];
    return start.print == print(hash) && start.domain != domain.slot;
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return evicted_.bytes() + starts_.bytes(); }

 private:
  struct Start {
    std::uint32_t print;
    std::uint32_t domain;
  };

  static std::uint32_t print(std::uint64_t hash) noexcept
  {
    auto const high = static_cast<std::uint32_t>(hash >> 32);
    return high == 0 ? 1 : high;  // 0 marks a slot that was never written
  }

  /// A span leaves whole or by its tail, so there are far fewer entries than pages.
  static std::size_t slots_for(PageCount pages) noexcept
  {
    std::size_t slots = 64;
    while (slots < pages / 4 && slots < (std::size_t{1} << 20)) {
      slots *= 2;
    }
    return slots;
  }

  ZeroArray<std::uint32_t> evicted_;
  ZeroArray<Start> starts_;
};

}  // namespace kvcache::inline v0_1::detail
