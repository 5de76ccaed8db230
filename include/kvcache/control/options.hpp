// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>
#include <optional>

/// \file The numbers of the control plane.

namespace kvcache::inline v0_1 {

/// Sizes that control and pool must agree on; every rank uses the same ones.
struct ControlOptions {
  PageCount pages = 0;  ///< usable pages; the page of zeros comes on top
  std::int32_t page_tokens = 0;
  std::uint32_t max_sequences = 256;  ///< rows of the page table
  Index max_sequence_tokens = 0;      ///< 0, or more than the pool holds: as many as that
  Index max_step_tokens = 8192;       ///< tokens of one step, over all its chunks
  Token vocabulary = 0;               ///< tokens are below this; 0: any token that is not negative
  PageCount watermark = 0;  ///< pages that `admit` leaves to the sequences that run already
  std::uint32_t event_capacity =
    0;  ///< events kept for followers, 20 + 4 * page_tokens bytes each; 0: none
  std::optional<std::uint64_t>
    seed{};  ///< secret of the look-ups' hashes; drawn where it is not given

  static constexpr std::uint32_t max_rows = 1U << 20;

  /// Entries of one table row. **Pre** validated.
  [[nodiscard]] constexpr std::uint32_t row_pages() const noexcept
  {
    std::uint64_t const tokens = static_cast<std::uint64_t>(max_sequence_tokens);
    auto const p = static_cast<std::uint64_t>(page_tokens);
    return static_cast<std::uint32_t>((tokens + p - 1) / p);
  }

  /// Fills in `max_sequence_tokens`, and names the first field that cannot work.
  [[nodiscard]] constexpr Error complete() noexcept
  {
    if (pages < 1) {
      return {Why::bad_config, "pages", pages, "must be at least", 1};
    }
    if (pages == nil) {
      return {Why::bad_config, "pages", pages, "must be below", nil};
    }
    if (page_tokens < 1 || page_tokens > 256) {
      return {Why::bad_config, "page_tokens", page_tokens, "must be 1 to", 256};
    }
    if (max_sequences < 1 || max_sequences > max_rows) {
      return {Why::bad_config, "max_sequences", max_sequences, "must be 1 to", max_rows};
    }
    if (max_step_tokens < 1 || max_step_tokens > (1 << 24)) {
      return {Why::bad_config, "max_step_tokens", max_step_tokens, "must be 1 to", 1 << 24};
    }
    if (watermark >= pages) {
      return {Why::bad_config,
              "watermark",
              watermark,
              "must be below the pages of the pool, of which there are",
              pages};
    }
    if (event_capacity > (1U << 26)) {
      return {Why::bad_config, "event_capacity", event_capacity, "must be 0 to", 1 << 26};
    }
    if (vocabulary < 0) {
      return {Why::bad_config, "vocabulary", vocabulary, "must be 0 (any) or the number of tokens"};
    }
    std::uint64_t const all =
      static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_tokens);
    std::uint64_t const most = all < 0x7fffff00U ? all : 0x7fffff00U;  // an Index names every place
    if (max_sequence_tokens < 0) {
      return {Why::bad_config,
              "max_sequence_tokens",
              max_sequence_tokens,
              "must be 0 (the whole pool) or at least",
              1};
    }
    if (max_sequence_tokens == 0 || static_cast<std::uint64_t>(max_sequence_tokens) > most) {
      max_sequence_tokens = static_cast<Index>(most);
    }
    return {};
  }
};

}  // namespace kvcache::inline v0_1
