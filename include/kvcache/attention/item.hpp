// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

namespace kvcache::inline v0_1 {

/// One piece of work: some query rows against a range of KV rows. Its query rows go by KV head, then token, then
/// query head: what reads the same K lies together.
struct AttentionItem {
  Index first_token;  ///< of the step; of the plan's list of tokens where `shared`
  Index tokens;
  std::uint32_t row;        ///< table row of the sequence, of any of them where `shared`
  std::int32_t first_head;  ///< KV heads
  std::int32_t heads;
  std::int32_t first_query;  ///< inside the group of a KV head
  std::int32_t queries;
  Index begin;  ///< KV rows [begin, end), begin a multiple of 32
  Index end;
  bool shared;  ///< tokens of several sequences, over rows that all of them see
  /// Where the part's state lies in the scratch, in floats; `whole`: straight to `out`.
  std::size_t partial;

  static constexpr std::size_t whole = ~std::size_t{0};
  /// Query rows, over all tokens, heads and queries.
  [[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::size_t rows() const noexcept
  {
    return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads) *
           static_cast<std::size_t>(queries);
  }
  /// The query row of a token (counted from `first_token`), a KV head and a query head of its group.
  [[nodiscard]] KVCACHE_HOST_DEVICE constexpr std::size_t row_of(Index token,
                                                                 std::int32_t head,
                                                                 std::int32_t query) const noexcept
  {
    return (static_cast<std::size_t>(head - first_head) * static_cast<std::size_t>(tokens) +
            static_cast<std::size_t>(token)) *
             static_cast<std::size_t>(queries) +
           static_cast<std::size_t>(query - first_query);
  }
};

/// Joins the states of some query rows, each in parts of a range of KV rows.
struct AttentionMerge {
  Index first_token;  ///< of the step
  Index tokens;
  Index shared_at;  ///< place of `first_token` in the list of tokens, for parts that are `shared`
  std::int32_t first_head;
  std::int32_t heads;
  std::int32_t first_query;
  std::int32_t queries;
  std::size_t first_part;  ///< in the plan's list of parts, in order of their KV rows
  std::size_t parts;
};

namespace detail {

/// Query rows that fit the state of one item, which lives on the stack of the thread that runs it.
struct AttentionState {
  static constexpr std::int32_t floats = 8192;  // of the queries, and of the outputs
  static constexpr std::int32_t max_rows = 128;
  static constexpr std::int32_t widest_step = 32;  // dimensions are padded to this at most

  [[nodiscard]] static constexpr std::int32_t rows(std::int32_t head_dim) noexcept
  {
    std::int32_t const fit = floats / ((head_dim + widest_step - 1) / widest_step * widest_step);
    return fit < max_rows ? fit : max_rows;
  }
};

}  // namespace detail

}  // namespace kvcache::inline v0_1
