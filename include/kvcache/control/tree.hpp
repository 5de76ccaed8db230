// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/plan.hpp>
#include <kvcache/control/prompt.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file Trees of drafts: several continuations verified in one step, of which one path is accepted.
///
///   chunk   tokens 0 1 2 3 4     parents -1 0 0 1 2          accepted path 0 2 4
///           0 -+- 1 -- 3
///              +- 2 -- 4
///
///   rows    [ committed | 0 1 2 3 4 ]   the step writes them side by side, masks say who sees whom
///   commit  [ committed | 0 . 2 . 4 ]   the length grows by 3; rows 2 and 4 are *strays*: their bytes lie elsewhere
///   next    [ committed | 0 2 4     ]   the plan of the sequence's next chunk moves them before its kernels run
///
/// Until that step retires nobody else gets stray rows: they are not published, a fork or a cut that would need them keeps
/// what lies before them, and if the moving step fails its sequence falls back to that. The pages that strays lie in
/// stay in the table. A tree is the last thing of its sequence in flight: what comes after it depends on the path.
///
/// Sources: Miao et al., "SpecInfer", ASPLOS 2024; Cai et al., "Medusa", 2024; Li et al., "EAGLE-2", 2024.

namespace kvcache::inline v0_1::detail {

/// The first parent of the chunk that cannot be, or `Why::ok`.
[[nodiscard]] inline Error check_parents(Chunk const& chunk) noexcept
{
  std::size_t const tokens = chunk.tokens.size();
  if (chunk.parents.size() != tokens) {
    return {Why::bad_config,
            "chunk.parents",
            static_cast<std::int64_t>(chunk.parents.size()),
            "must be none, or one for each of the tokens, of which there are",
            static_cast<std::int64_t>(tokens)};
  }
  if (tokens > static_cast<std::size_t>(Plan::max_tree_tokens)) {
    return {Why::too_large,
            "chunk.parents",
            static_cast<std::int64_t>(tokens),
            "a tree has at most this many tokens:",
            Plan::max_tree_tokens};
  }
  for (std::size_t i = 0; i < tokens; ++i) {
    if (chunk.parents[i] < -1 || chunk.parents[i] >= static_cast<Index>(i)) {
      return {Why::bad_config,
              "chunk.parents",
              chunk.parents[i],
              "must be -1, or the place of a token before this one, which stands at",
              static_cast<std::int64_t>(i)};
    }
  }
  return {};
}

/// The outcome of a tree with these parents names no path down from its root.
[[nodiscard]] inline Error check_path(Outcome const& outcome,
                                      std::span<Index const> parents) noexcept
{
  if (outcome.path.size() != static_cast<std::size_t>(outcome.accepted)) {
    return {Why::bad_config,
            "outcome.path",
            static_cast<std::int64_t>(outcome.path.size()),
            "must name each accepted token of the tree; accepted is",
            outcome.accepted};
  }
  Index before = -1;
  for (Index const place : outcome.path) {
    if (place < 0 || place >= static_cast<Index>(parents.size()) ||
        parents[static_cast<std::size_t>(place)] != before) {
      return {Why::bad_config,
              "outcome.path",
              place,
              "must be a token of the tree whose parent is the one before it in the path,",
              before};
    }
    before = place;
  }
  return {};
}

/// Notes where the bytes of an accepted path lie. **Pre** its tokens are the sequence's last, the chunk began at row
/// `first`, and `strays` has room.
inline void find_strays(SequenceState& s, std::span<Index const> path, Index first) noexcept
{
  s.strays.clear();
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (!s.strays.empty() || path[i] != static_cast<Index>(i)) {
      s.strays.push_back(first + path[i]);
    }
  }
}
/// The sequence keeps its first `length` rows.
inline void cut_strays(SequenceState& s, Index length) noexcept
{
  Index const kept = length - s.in_place();
  s.strays.resize(kept > 0 ? static_cast<std::size_t>(kept) : 0);
}

/// Adds the moves that chunk `c` of sequence `s` makes to the plan; they read and write the pages of before the chunk.
/// **Errors** `std::bad_alloc`.
inline void plan_moves(SequenceState const& s, ChunkState const& c, Index page_tokens, Plan& plan)
{
  auto const page = [&](Index row) {
    auto const at = static_cast<PageCount>(row / page_tokens);
    return c.copies() && at == c.copy_at ? c.copy_source : s.table[at];
  };
  Index target = s.in_place();
  for (Index const source : s.strays) {
    plan.moves.push_back({page(source), page(target), source % page_tokens, target % page_tokens});
    ++target;
  }
}

}  // namespace kvcache::inline v0_1::detail
