// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

/// \file Where the tables of a pool lie in its meta block.
///
///   [ masks, cell, counts, firsts, rows, indices of slot 0 | of slot 1 | ... | table | layer offsets | lengths ]

namespace kvcache::inline v0_1::detail {

/// What a slot has in the meta block. Counts and firsts are neighbours: one run of words fills both.
struct SlotArrays {
  std::uint64_t* masks;  ///< `[max tokens]`
  std::byte** cell;      ///< what the slot's launches are told: where its block is
  Index* counts;         ///< {tokens, chunks, the step's number}
  Index* firsts;         ///< `[max chunks + 1]`
  std::uint32_t* rows;   ///< `[max tokens]`
  Index* indices;        ///< `[max tokens]`
};

/// Bytes from the start of the meta block. A value.
struct MetaMap {
  static constexpr std::size_t num_counts = 3;

  std::size_t table_entries;
  std::size_t layers;
  std::size_t max_sequences;
  std::size_t max_tokens;

  MetaMap(ControlOptions const& options, std::int32_t num_layers) noexcept
      : table_entries(std::size_t{options.max_sequences} * options.row_pages()),
        layers(static_cast<std::size_t>(num_layers)),
        max_sequences(options.max_sequences),
        max_tokens(static_cast<std::size_t>(options.max_step_tokens))
  {
  }

  [[nodiscard]] std::size_t counts_at() const noexcept { return 8 * max_tokens + 8; }
  [[nodiscard]] std::size_t rows_at() const noexcept
  {
    return counts_at() + 4 * (num_counts + max_sequences + 1);
  }
  /// Bytes from one slot to the next: a multiple of 8, as masks and cells need.
  [[nodiscard]] std::size_t slot_bytes() const noexcept
  {
    return (rows_at() + 4 * (2 * max_tokens) + 7) / 8 * 8;
  }
  [[nodiscard]] std::size_t table_at() const noexcept { return Plan::num_slots * slot_bytes(); }
  [[nodiscard]] std::size_t offsets_at() const noexcept { return table_at() + 4 * table_entries; }
  [[nodiscard]] std::size_t lengths_at() const noexcept { return offsets_at() + 4 * layers; }
  [[nodiscard]] std::size_t bytes() const noexcept { return lengths_at() + 4 * max_sequences; }

  [[nodiscard]] SlotArrays slot(std::byte* meta, std::uint32_t slot) const noexcept
  {
    std::byte* const first = meta + slot * slot_bytes();
    auto* const counts = reinterpret_cast<Index*>(first + counts_at());
    auto* const rows = reinterpret_cast<std::uint32_t*>(first + rows_at());
    return {reinterpret_cast<std::uint64_t*>(first),
            reinterpret_cast<std::byte**>(first + 8 * max_tokens),
            counts,
            counts + num_counts,
            rows,
            reinterpret_cast<Index*>(rows) + max_tokens};
  }
};

static_assert(sizeof(Index) == 4 && sizeof(PageId) == 4 && sizeof(std::byte*) <= 8);

}  // namespace kvcache::inline v0_1::detail
