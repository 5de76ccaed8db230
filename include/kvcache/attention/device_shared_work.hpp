// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstdint>

/// \file What a device knows of rows that several chunks of a step begin with; `device_share.hpp` finds it.

namespace kvcache::inline v0_1 {

namespace detail {

/// KV rows `[begin, end)` that some chunks share, and their query rows `[first, first + rows)`.
struct SharedSpan {
  Index chunk;  ///< whose table is read, one of them
  Index first;
  Index rows;
  Index begin;
  Index end;
  Index level;  ///< spans before it that all of them are in
};

/// A query row of a chunk that is in a span.
struct SharedRow {
  Index query;   ///< token * group + query head of the KV head
  Index states;  ///< that are joined for it: one of each of its spans, and its own last
};

struct SharedCounts {
  Index spans;
  Index tiles;  ///< of spans
  Index rows;
};

/// A chunk while families are split. Afterwards `spans`, `known` and `row` hold.
struct SharingChunk {
  Index most;  ///< rows that it may share; 0: it may not
  Index
    family;  ///< chunks of the same number share `known` rows; negative: it has found all that it shares
  Index first;  ///< place of the family's first chunk in the order of chunks
  Index known;  ///< rows of its table that are in spans
  Index spans;  ///< that it is in
  Index place;
  Index row;  ///< its first query row among those that share
  std::uint32_t table_row;
  // Of a round.
  std::uint32_t key;  ///< the page where the next step ends
  Index leader;
  Index common;  ///< rows in common with the leader
  Index end;     ///< of the last span that it is in with the leader
  Index rank;    ///< spans of the leader that end no later
  bool goes_on;  ///< it may share another step
  bool ends_span;
  Index next_family;
  Index next_first;
  Index next_known;
  Index next_spans;
};

}  // namespace detail

/// The part of a `DeviceWork` that is there where `DeviceLimits::shared_rows` is not 0.
struct SharedWork {
  /// Spans that a chunk can be in, one inside the other: a system prompt, a conversation, its branches, theirs.
  static constexpr Index levels = 4;

  detail::SharedCounts* counts;
  detail::SharingChunk* chunks;  ///< `[limits.chunks]`
  detail::SharedSpan* spans;     ///< `[limits.chunks]`
  Index* span_tiles;             ///< `[limits.chunks]` tiles before each span
  Index* order;                  ///< `[limits.chunks]` chunks, those of a span side by side
  detail::SharedRow* rows;       ///< `[max_rows]`
  float* out;                    ///< `[levels + 1][kv_heads][max_rows][head_dim]`
  float* lse;                    ///< `[levels + 1][kv_heads][max_rows]`
  Index max_rows;
};

}  // namespace kvcache::inline v0_1
