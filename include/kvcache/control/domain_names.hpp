// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1::detail {

/// Who names each domain: pages in the tree, and sequences (open or suspended), pins, entries of journals and events that can still be
/// read. A domain that nobody names ends, so that a salt a request costs what a salt does.
class DomainNames {
 public:
  /// Room for one domain more. **Errors** `std::bad_alloc`.
  void reserve_one()
  {
    if (records_.size() == records_.capacity()) {
      records_.reserve(2 * records_.size() + 1);
    }
  }
  /// `id` may be new. **Pre** `reserve_one` went before; its slot is one that was there, or the next.
  void enter(DomainId id) noexcept
  {
    if (id.slot == records_.size()) {
      records_.resize(records_.size() + 1);
    }
  }

  void add_pages(DomainId id, PageCount count) noexcept { records_[id.slot].pages += count; }
  void remove_pages(DomainId id, PageCount count) noexcept { records_[id.slot].pages -= count; }
  void name(DomainId id) noexcept { ++records_[id.slot].others; }
  void unname(DomainId id) noexcept { --records_[id.slot].others; }

  [[nodiscard]] bool unnamed(DomainId id) const noexcept
  {
    return records_[id.slot].pages == 0 && records_[id.slot].others == 0;
  }
  [[nodiscard]] PageCount pages(DomainId id) const noexcept
  {
    return id.slot < records_.size() ? records_[id.slot].pages : 0;
  }
  /// As many slots, all without a name: for a recount. **Errors** `std::bad_alloc`.
  [[nodiscard]] DomainNames blank() const
  {
    DomainNames made;
    made.records_.resize(records_.size());
    return made;
  }
  friend bool operator==(DomainNames const&, DomainNames const&) = default;

 private:
  struct Record {
    PageCount pages = 0;
    std::uint32_t others = 0;
    friend bool operator==(Record const&, Record const&) = default;
  };
  List<Record> records_;  // by slot
};

}  // namespace kvcache::inline v0_1::detail
