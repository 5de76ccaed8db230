// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/add_moves.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/refusals.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

/// \file The short way for what most chunks of an engine are: the next tokens of a sequence, in a page that it has.
///
/// Fifteen of sixteen decoded tokens (pages of 16) need no page, no copy, no look into the tree and no memory. For them
/// `AddMoves` finds out in four steps that there is nothing to do; here one test says so, and that the caller made no
/// mistake. Everything else takes the long way, which says what is wrong, and what both note of a chunk is the same.
///
/// Cost: the lines that it must write, the chunk's two and the sequence's three; no loop but over its tokens.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
template <class Allocator, class Prefix, class Replacement>
struct DecodeMoves : AddMoves<Allocator, Prefix, Replacement> {
  using Base = AddMoves<Allocator, Prefix, Replacement>;
  using Base::Base;
  using Base::options;
  using Stage = StepState::Stage;

  /// Adds the chunk to `step` if that is allowed and it fits the sequence's last page, which it alone may write. False, and
  /// nothing changed, where it is not or needs more, be it room in an array.
  [[nodiscard, gnu::flatten]] bool add_in_place(StepId step,
                                                SequenceId id,
                                                Chunk const& chunk) noexcept
  {
    StepState* const t = this->latest;
    if (t == nullptr || t->id != step || t->stage != Stage::open ||
        id.slot >= this->sequences.size() || id.generation % 2 == 0) {
      return false;
    }
    SequenceState& s = this->sequences[id.slot];
    if (s.generation != id.generation || s.suspended || s.stream != t->stream ||
        s.last_added == step || s.num_flights == SequenceState::max_flights || !s.strays.empty() ||
        !s.media.empty() || !chunk.parents.empty() || !chunk.media.empty()) {
      return false;
    }
    std::size_t const names = chunk.tokens.size();
    if (names != 0 ? !named_well(chunk) : chunk.count < 1 || chunk.count >= options.page_tokens) {
      return false;
    }
    Index const n = names != 0 ? static_cast<Index>(names) : chunk.count;
    Index end = s.length();
    Index slack = 0;
    for (Flight const& flight : s.in_flight()) {
      ChunkState const& before = this->chunk_of(flight);
      if (before.tree) {
        return false;
      }
      end = before.end();
      slack += before.draft ? before.tokens : 0;
    }
    auto const room = static_cast<Index>(s.table.size()) * options.page_tokens;
    Index const begin = room - options.page_tokens;
    if (end + n > room || end - slack < begin ||
        static_cast<std::size_t>(n) > max_step_tokens() - t->planned_tokens ||
        n > options.max_sequence_tokens - end ||
        !this->writable(s.table.back(), end - slack - begin, t->stream) ||
        !has_room(*t, s, names, end + n)) {
      return false;
    }
    t->orphan_room += s.table.size() + 1;
    ChunkState& c = t->chunks.push_reserved();
    c.in_place = true;
    c.sequence = id;
    c.first_token = t->tokens.size();
    c.tokens = n;
    c.first_index = end;
    c.slack = slack;
    c.named = names != 0;
    c.draft = chunk.draft;
    c.pages_before = static_cast<PageCount>(s.table.size());
    c.bound_before = s.bound_until;
    for (Token const token : chunk.tokens) {
      t->tokens.push_reserved(token);
    }
    enter_step(*t, s, c);
    return true;
  }

  /// The step's last chunk `c` is in flight.
  [[gnu::always_inline]] static void enter_step(StepState& t,
                                                SequenceState& s,
                                                ChunkState const& c) noexcept
  {
    s.flights[s.num_flights++] = {&t, static_cast<std::uint32_t>(t.chunks.size() - 1)};
    s.follow(t.stream);
    s.last_added = t.id;
    s.bound_until = t.id;
    t.planned_tokens += static_cast<std::size_t>(c.tokens);
  }

 private:
  [[nodiscard]] std::size_t max_step_tokens() const noexcept
  {
    return static_cast<std::size_t>(options.max_step_tokens);
  }
  /// The names are what `Control::add` takes, and fewer than a page: a whole one may be found, or made pending.
  [[nodiscard]] bool named_well(Chunk const& chunk) const noexcept
  {
    return chunk.count == 0 &&
           chunk.tokens.size() < static_cast<std::size_t>(options.page_tokens) &&
           check(chunk.tokens, options.vocabulary).why == Why::ok;
  }
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
