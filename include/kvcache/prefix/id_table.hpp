// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>

/// \file An open-addressing table from 32-bit hashes to ids, for things that live elsewhere.

namespace kvcache::inline v0_1::detail {

/// Finds ids by hash; the caller says which of the ids with that hash is meant.
///
/// Linear probing, at most two thirds full; an erased slot is closed by moving later entries back, so
/// there are no tombstones and a table does not age. The hash lies beside the id: probing and erasing
/// never visit the things themselves.
/// **Cost** each call O(1) expected; only `reserve` allocates.
class IdTable {
 public:
  /// **Errors** `std::bad_alloc`.
  IdTable() : slots_(16) {}

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return slots_.size() * sizeof(Slot); }

  /// Makes room for `count` entries. **Errors** `std::bad_alloc`, nothing changed.
  void reserve(std::size_t count)
  {
    if (count * 3 <= slots_.size() * 2) {
      return;
    }
    std::size_t size = slots_.size() * 2;
    while (count * 3 > size * 2) {
      size *= 2;
    }
    List<Slot> old(size);
    old.swap(slots_);
    for (Slot const& slot : old) {
      if (slot.id != nil) {
        slots_[hole(slot.hash)] = slot;
      }
    }
  }

  /// The id with this hash of which `is_it(id)` is true, or nil.
  template <class F>
  [[nodiscard]] std::uint32_t find(std::uint32_t hash, F is_it) const noexcept
  {
    for (std::size_t at = hash & mask(); slots_[at].id != nil; at = (at + 1) & mask()) {
      if (slots_[at].hash == hash && is_it(slots_[at].id)) {
        return slots_[at].id;
      }
    }
    return nil;
  }

  /// **Pre** `reserve` made room; the id is not in the table.
  void insert(std::uint32_t hash, std::uint32_t id) noexcept
  {
    slots_[hole(hash)] = Slot{.hash = hash, .id = id};
    ++size_;
  }

  /// The entry of `old_id` now names `new_id`. **Pre** it is in the table under this hash.
  void replace(std::uint32_t hash, std::uint32_t old_id, std::uint32_t new_id) noexcept
  {
    slots_[slot_of(hash, old_id)].id = new_id;
  }

  /// **Pre** the id is in the table under this hash.
  void erase(std::uint32_t hash, std::uint32_t id) noexcept
  {
    std::size_t gap = slot_of(hash, id);
    for (std::size_t at = (gap + 1) & mask(); slots_[at].id != nil; at = (at + 1) & mask()) {
      // An entry may move back to the gap unless its home lies after the gap.
      if (((at - slots_[at].hash) & mask()) >= ((at - gap) & mask())) {
        slots_[gap] = slots_[at];
        gap = at;
      }
    }
    slots_[gap] = Slot{};
    --size_;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t id = nil;
  };

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }

  [[nodiscard]] std::size_t hole(std::uint32_t hash) const noexcept
  {
    std::size_t at = hash & mask();
    while (slots_[at].id != nil) {
      at = (at + 1) & mask();
    }
    return at;
  }

  [[nodiscard]] std::size_t slot_of(std::uint32_t hash, std::uint32_t id) const noexcept
  {
    std::size_t at = hash & mask();
    while (slots_[at].id != id) {
      at = (at + 1) & mask();
    }
    return at;
  }

  List<Slot> slots_;  // a power of two of them
  std::uint32_t size_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
