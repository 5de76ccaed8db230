// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/media.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/domain.hpp>
#include <kvcache/prefix/match.hpp>

#include <span>

/// \file What a caller asks of the control plane, and what a prefix hit answers.

namespace kvcache::inline v0_1 {

/// A request's tokens, and with whom it may share.
struct Prompt {
  std::span<Token const> tokens{};
  Domain const* domain = nullptr;  ///< null: the empty domain
  Index fresh_tail = 1;  ///< tokens at the end that are always left to compute; at least 1
  StreamId stream{};     ///< whose steps will compute the rest: their pending pages are found too
  Index max_tokens = 0;  ///< prompt and answer together, at most; 0: nobody knows
  Index promised = 0;    ///< rows that a `probe` found, for the figures of what came of it
  std::span<MediaSpan const> media{};  ///< in order, without overlap, inside the prompt
};

/// The tokens that a sequence computes in one step: named now, or a number of them that are named at commit.
/// A draft may be accepted in part; everything else is accepted whole, so other sequences may rely on it.
/// With `parents` the tokens are a tree of drafts, of which one path may be accepted.
struct Chunk {
  std::span<Token const> tokens{};
  Index count = 0;  ///< where `tokens` is empty: how many
  bool draft = false;
  /// Of each token: the place in `tokens` of the one it follows, which stands before it, or -1 for the sequence's last.
  std::span<Index const> parents{};
  /// Media that the prompt did not declare, in order, at rows of the sequence: at or past the chunk's first row, and perhaps
  /// past its end. What was declared there before may be repeated.
  std::span<MediaSpan const> media{};
};

/// How a step is built.
struct StepOptions {
  /// `add` takes whole pages that others hold, or will write in this step, in place of computing their tokens again: 64
  /// equal prompts are then computed once. The step has fewer tokens than it was given; its `tokens()` say which.
  bool attach = false;
};

/// How a chunk of a step ended.
struct Outcome {
  Index accepted =
    0;  ///< the first so many of its planned tokens are real; 0 of one that was found whole
  std::span<Token const> tokens{};  ///< their names, where the chunk gave only a count
  /// Of a tree: the places in the chunk of the accepted tokens, each a child of the one before it; `accepted` of them.
  std::span<Index const> path{};
};

/// Whether there is room for a request, now and when it has grown.
struct Admission {
  PageCount prompt = 0;     ///< pages that its tokens take of what is available
  PageCount full = 0;       ///< the same once it has grown to `max_tokens`
  PageCount available = 0;  ///< pages that are free or evictable now
  /// Pages that the sequences which run may yet take, up to their `max_tokens`: with a copy for each that may make one, and the
  /// cached part page that the request copies, as steps in flight keep what they copy from.
  std::uint64_t growth = 0;
  bool fits =
    false;  ///< `full` and the watermark fit what is available, or `full` does and nothing runs
  /// Even if all that run grow to their end, in any order, in steps of the prompt's stream that are committed: no `add` is
  /// refused for want of pages. But who grows beside nobody may have to wait for a step of its own.
  bool fits_beside_growth = false;
};

/// What a prefix hit gives.
struct Hit {
  Index rows = 0;  ///< rows that need no computing
  Index shared_rows =
    0;  ///< of these, rows in whole shared pages; the rest is copied when the sequence grows
  PageCount new_pages = 0;  ///< pages that the rest of the prompt will take
  Miss miss = Miss::none;   ///< why it is not more; for operators: it speaks of other domains
};

}  // namespace kvcache::inline v0_1
