// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// The slots of sequences that are open or suspended, in no order: who looks at all of them walks these and not all slots.
/// **Cost** O(1) a call; 8 bytes a slot.
class OpenSlots {
 public:
  /// **Errors** `std::bad_alloc`.
  explicit OpenSlots(std::size_t slots) : places_(slots) { slots_.reserve(slots); }

  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
  [[nodiscard]] std::uint32_t operator[](std::size_t i) const noexcept { return slots_[i]; }
  [[nodiscard]] std::uint32_t const* begin() const noexcept { return slots_.begin(); }
  [[nodiscard]] std::uint32_t const* end() const noexcept { return slots_.end(); }
  [[nodiscard]] bool contains(std::uint32_t slot) const noexcept
  {
    return places_[slot] < slots_.size() && slots_[places_[slot]] == slot;
  }

  /// **Pre** it is not listed.
  void enter(std::uint32_t slot) noexcept
  {
    places_[slot] = static_cast<std::uint32_t>(slots_.size());
    slots_.push_reserved(slot);
  }
  /// **Pre** it is listed.
  void leave(std::uint32_t slot) noexcept
  {
    std::uint32_t const last = slots_.back();  // takes its place
    slots_[places_[slot]] = last;
    places_[last] = places_[slot];
    slots_.pop_back();
  }

 private:
  List<std::uint32_t> slots_;
  List<std::uint32_t> places_;  // by slot: where it stands there, if it does
};

}  // namespace kvcache::inline v0_1::detail
