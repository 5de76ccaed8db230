// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A device of stamps: a row is one number, a function of its domain and all tokens up to it.

#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/flights_operation.hpp"
#include "support/stamp.hpp"

namespace kvcache_test {

/// Applies plans in the order in which it gets them, as a stream does.
class FlightDevice {
 public:
  FlightDevice(FlightSetting const& s, std::uint32_t rows)
      : page_tokens_(static_cast<std::size_t>(s.page_tokens)),
        slots_((std::size_t{s.pages} + 1) * page_tokens_, 0),
        tables_(rows, std::vector<kvcache::PageId>(std::size_t{s.pages} + 1))
  {
  }

  void apply(kvcache::Plan const& plan)
  {
    for (kvcache::TableDelta const& delta : plan.tables) {
      for (std::uint32_t i = 0; i < delta.count; ++i) {
        tables_[delta.row.value][delta.first + i] = plan.ids[delta.ids_at + i];
      }
    }
    for (kvcache::RowMove const& move : plan.moves) {
      slots_[slot(move.target, static_cast<std::size_t>(move.target_row))] =
        slots_[slot(move.source, static_cast<std::size_t>(move.source_row))];
    }
    std::vector<Stamp> const before = slots_;  // copies of one plan do not see each other
    for (kvcache::PageCopy const& copy : plan.copies) {
      for (std::size_t row = 0; row < static_cast<std::size_t>(copy.rows); ++row) {
        slots_[slot(copy.target, row)] = before[slot(copy.source, row)];
      }
    }
  }

  [[nodiscard]] std::vector<kvcache::PageId> const& table(kvcache::RowId row) const
  {
    return tables_[row.value];
  }
  [[nodiscard]] std::size_t slot(kvcache::PageId page, std::size_t row) const
  {
    return page.value * page_tokens_ + row % page_tokens_;
  }
  /// The slot of row `row` of a sequence with these pages.
  [[nodiscard]] std::size_t slot_of(std::span<kvcache::PageId const> table, std::size_t row) const
  {
    return slot(table[row / page_tokens_], row);
  }
  [[nodiscard]] Stamp& at(std::size_t slot) { return slots_[slot]; }
  [[nodiscard]] std::size_t page_tokens() const { return page_tokens_; }

 private:
  std::size_t page_tokens_;
  std::vector<Stamp> slots_;
  std::vector<std::vector<kvcache::PageId>> tables_;
};

}  // namespace kvcache_test
