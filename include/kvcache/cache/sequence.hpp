// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/cache/handle.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/match.hpp>

/// \file A sequence in the hands of a caller.

namespace kvcache::inline v0_1 {

template <class State>
class Step;

/// Closes its sequence at the end of its life; move-only. Harmless after the cache is gone: every figure is 0 then.
/// **Threads** as the cache's.
class Sequence : private detail::Handle<SequenceId, &detail::Anchor::close> {
 public:
  Sequence() = default;
  using Handle::id;
  /// Committed rows.
  [[nodiscard]] Index length() const noexcept { return info().length; }
  /// Rows that it started with: those that the prefix tree, or the sequence it was forked from, gave it.
  [[nodiscard]] Index cached() const noexcept { return info().cached; }
  /// Why the hit was not longer.
  [[nodiscard]] Miss miss() const noexcept { return info().miss; }
  [[nodiscard]] SequenceInfo info() const noexcept
  {
    return anchor_ != nullptr && anchor_->cache != nullptr ? anchor_->info(anchor_->cache, id_)
                                                           : SequenceInfo{};
  }

  /// Ends the sequence now. What it published stays cached. **Cost** O(pages).
  void close() noexcept { end(); }

 private:
  template <class Layout, class Policy>
  friend class KVCache;
  template <class State>
  friend class Step;

  /// Its id as `cache` knows it: a handle of another cache names no sequence there.
  [[nodiscard]] SequenceId id_in(void const* cache) const noexcept
  {
    return anchor_ != nullptr && anchor_->cache == cache ? id_ : SequenceId{};
  }

  using Handle::Handle;
};

}  // namespace kvcache::inline v0_1
