// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/owned_array.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

/// \file What SIEVE's hand did, newest last, so that a dropped step can take it back.

namespace kvcache::inline v0_1::detail {

/// What happened to a slot. A victim is noted as: moved, cleared ..., and left or kept.
enum class SieveDid : std::uint32_t {
  moved,    ///< the hand left it for the next victim
  cleared,  ///< the hand took its mark
  left,     ///< its span was the next victim and left, or was used
  kept,     ///< its span was the next victim and lost its last pages only
  aside,    ///< its span left while it was in use, and had no mark ...
  aside_marked
};

/// A ring: a full one forgets its oldest entry. It holds more than one step can do to all spans.
class SieveLog {
 public:
  static constexpr std::uint32_t nowhere = nil / 8;  ///< the slot of a span that has none

  struct Entry {
    std::uint32_t slot;
    SieveDid did;
  };

  /// Room for twice as many entries as there are slots, which are fewer than `nowhere`. False: no memory, nothing changed.
  [[nodiscard]] bool reserve(std::uint32_t slots) noexcept
  {
    OwnedArray<std::uint32_t> entries(new (std::nothrow) std::uint32_t[std::size_t{slots} * 2]);
    if (!entries) {
      return false;
    }
    for (std::uint32_t i = size_; i > 0; --i) {
      end_ = before(end_);
      entries[i - 1] = entries_[end_];
    }
    entries_ = std::move(entries);
    room_ = slots * 2;
    end_ = size_;
    return true;
  }
  void push(std::uint32_t slot, SieveDid did) noexcept
  {
    entries_[end_] = slot * 8 + static_cast<std::uint32_t>(did);
    end_ = end_ + 1 == room_ ? 0 : end_ + 1;
    size_ += size_ < room_ ? 1U : 0U;
  }
  /// As `push`, unless the newest entry says it already.
  void push_once(std::uint32_t slot, SieveDid did) noexcept
  {
    if (size_ == 0 || top().did != did || top().slot != slot) {
      push(slot, did);
    }
  }
  void clear() noexcept { size_ = 0; }

  /// Takes entries off up to the newest of these kinds, and returns it; slot nil: there was none. Calls `mark` for each slot whose
  /// mark the hand took since.
  template <class Mark>
  Entry undo_to(SieveDid first, SieveDid last, Mark&& mark) noexcept
  {
    while (size_ != 0) {
      Entry const entry = top();
      pop();
      if (entry.did >= first && entry.did <= last) {
        return entry;
      }
      if (entry.did == SieveDid::cleared) {
        mark(entry.slot);
      }
    }
    return {.slot = nil, .did = first};
  }
  /// Takes off how the hand came to slot `at`, and returns where it stood.
  template <class Mark>
  std::uint32_t undo_sweep(std::uint32_t at, Mark&& mark) noexcept
  {
    for (; size_ != 0 && top().did == SieveDid::cleared; pop()) {
      mark(top().slot);
    }
    if (size_ != 0 && top().did == SieveDid::moved) {
      at = top().slot;
      pop();
    }
    return at;
  }

 private:
  /// The newest. **Pre** there is one.
  [[nodiscard]] Entry top() const noexcept
  {
    std::uint32_t const entry = entries_[before(end_)];
    return {.slot = entry / 8, .did = static_cast<SieveDid>(entry % 8)};
  }
  void pop() noexcept
  {
    end_ = before(end_);
    --size_;
  }
  [[nodiscard]] std::uint32_t before(std::uint32_t at) const noexcept
  {
    return (at == 0 ? room_ : at) - 1;
  }

  OwnedArray<std::uint32_t> entries_;
  std::uint32_t room_ = 0;
  std::uint32_t end_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
