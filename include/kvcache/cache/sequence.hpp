// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/pins.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/match.hpp>

#include <cstdint>
#include <utility>

/// \file A sequence in the hands of a caller.

namespace kvcache::inline v0_1 {

template <class State>
class Step;

namespace detail {

/// What handles and their cache share: it outlives both, and knows whether the cache is still there.
struct Anchor {
  void* cache = nullptr;  // null once the cache is gone
  void (*close)(void* cache, SequenceId) noexcept = nullptr;
  SequenceInfo (*info)(void const* cache, SequenceId) noexcept = nullptr;
  void (*unpin)(void* cache, PinId) noexcept = nullptr;
  std::uint64_t handles = 0;

  /// A handle goes; the last one of a cache that is gone takes the anchor with it.
  static void leave(Anchor* anchor) noexcept
  {
    if (--anchor->handles == 0 && anchor->cache == nullptr) {
      delete anchor;
    }
  }
};

}  // namespace detail

/// Closes its sequence at the end of its life; move-only. Harmless after the cache is gone: every figure is 0 then.
/// **Threads** as the cache's.
class Sequence {
 public:
  Sequence() = default;
  Sequence(Sequence&& other) noexcept
      : anchor_(std::exchange(other.anchor_, nullptr)), id_(std::exchange(other.id_, SequenceId{}))
  {
  }
  Sequence& operator=(Sequence&& other) noexcept
  {
    if (this != &other) {
      close();
      anchor_ = std::exchange(other.anchor_, nullptr);
      id_ = std::exchange(other.id_, SequenceId{});
    }
    return *this;
  }
  Sequence(Sequence const&) = delete;
  Sequence& operator=(Sequence const&) = delete;
  ~Sequence() { close(); }

  [[nodiscard]] SequenceId id() const noexcept { return id_; }
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
  void close() noexcept
  {
    if (anchor_ == nullptr) {
      return;
    }
    if (anchor_->cache != nullptr) {
      anchor_->close(anchor_->cache, id_);
    }
    detail::Anchor::leave(anchor_);
    anchor_ = nullptr;
    id_ = {};
  }

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

  Sequence(detail::Anchor* anchor, SequenceId id) noexcept : anchor_(anchor), id_(id)
  {
    ++anchor_->handles;
  }

  detail::Anchor* anchor_ = nullptr;
  SequenceId id_{};
};

}  // namespace kvcache::inline v0_1
