// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/add_moves.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

/// \file The short way for what most chunks of an engine are: the next token of a sequence, in a page that it has.
///
/// Fifteen of sixteen decoded tokens (pages of 16) need no page, no copy, no look into the tree and no memory. For them
/// `AddMoves` finds out in four steps that there is nothing to do; here one test says so. Everything else takes the long
/// way, and what both note of a chunk is the same.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
struct DecodeMoves : AddMoves<Allocator, Prefix, Replacement> {
  using Base = AddMoves<Allocator, Prefix, Replacement>;
  using Base::Base;
  using Base::options;

  /// Plans the chunk behind `end` planned rows if it fits the sequence's last page, which it alone may write. False, and
  /// nothing changed, where it needs more, be it room in an array. **Pre** `Control::add` found no fault in it.
  [[nodiscard, gnu::flatten]] bool add_in_place(
    StepState& t, SequenceId id, SequenceState& s, Chunk const& chunk, Index end) noexcept
  {
    std::size_t const names = chunk.tokens.size();
    Index const n = names != 0 ? static_cast<Index>(names) : chunk.count;
    Index slack = 0;
    for (Flight const& flight : s.in_flight()) {
      slack += this->chunk_of(flight).draft ? this->chunk_of(flight).tokens : 0;
    }
    Index const begin = static_cast<Index>(s.table.size() - 1) * options.page_tokens;
    if (s.table.empty() ||
        n >= options.page_tokens ||  // a whole page may be found, or made pending
        end + n > begin + options.page_tokens || end - slack < begin || !chunk.parents.empty() ||
        !this->writable(s.table.back(), end - slack - begin, t.stream) ||
        !has_room(t, s, names, end + n)) {
      return false;
    }
    t.orphan_room += s.table.size() + 1;
    ChunkState& c = push_reserved(t.chunks, blank);
    c.sequence = id;
    c.first_token = t.tokens.size();
    c.tokens = n;
    c.first_index = end;
    c.slack = slack;
    c.named = names != 0;
    c.draft = chunk.draft;
    c.parents_at = static_cast<std::uint32_t>(t.parents.size());
    c.pages_before = static_cast<PageCount>(s.table.size());
    c.reclaimed = t.reclaimed.size();
    c.bound_before = s.bound_until;
    for (Token const token : chunk.tokens) {
      push_reserved(t.tokens, token);
    }
    return true;
  }

  // Copied: g++ would clear a new one with `rep stos`, a tenth of a decode step.
  static constexpr ChunkState blank{};

 private:
  /// The arrays have room for the chunk as `AddMoves::reserve` would make it.
  [[nodiscard]] static bool has_room(StepState const& t,
                                     SequenceState const& s,
                                     std::size_t names,
                                     Index end) noexcept
  {
    return t.chunks.size() < t.chunks.capacity() &&
           t.tokens.size() + names <= t.tokens.capacity() &&
           t.orphan_room + s.table.size() + 1 <= t.orphans.capacity() &&
           static_cast<std::size_t>(end) <= s.tokens.capacity();
  }
};

}  // namespace kvcache::inline v0_1::detail
