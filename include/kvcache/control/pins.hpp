// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstdint>

/// \file Prefixes that must not leave, such as the system prompt that every request begins with.
///
/// A pin holds the pages of a cached prefix as a sequence would, without a row of the page table and without steps.
/// Forgetting the domain takes them out of the index all the same; the pin then holds pages that nobody finds.

namespace kvcache::inline v0_1 {

/// A pin: `slot` is used again after an unpin, `generation` tells the users apart.
struct PinId {
  std::uint32_t slot{};
  std::uint32_t generation{};  // 0 names no pin
  friend constexpr auto operator<=>(PinId, PinId) = default;
};

/// What a pin holds.
struct PinInfo {
  PinId pin{};
  DomainId domain{};
  Index rows = 0;  ///< of the prefix: whole pages
  PageCount pages = 0;
  std::uint64_t age = 0;  ///< steps that were begun since it was made
};

namespace detail {

struct PinState {
  std::uint32_t generation = 0;  // even: the slot is empty
  DomainId domain{};
  StepId since{};      // the step that was to be begun next
  List<PageId> table;  // in the order of the prefix

  [[nodiscard]] bool live() const noexcept { return generation % 2 != 0; }
};

}  // namespace detail
}  // namespace kvcache::inline v0_1
