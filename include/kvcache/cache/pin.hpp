// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/cache/sequence.hpp>
#include <kvcache/control/pins.hpp>

#include <utility>

/// \file A pinned prefix in the hands of a caller.

namespace kvcache::inline v0_1 {

/// Keeps the pages of a prefix in the cache for as long as it lives; move-only. Harmless after the cache is gone.
/// **Threads** as the cache's.
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept
      : anchor_(std::exchange(other.anchor_, nullptr)), id_(std::exchange(other.id_, PinId{}))
  {
  }
  Pin& operator=(Pin&& other) noexcept
  {
    if (this != &other) {
      let_go();
      anchor_ = std::exchange(other.anchor_, nullptr);
      id_ = std::exchange(other.id_, PinId{});
    }
    return *this;
  }
  Pin(Pin const&) = delete;
  Pin& operator=(Pin const&) = delete;
  ~Pin() { let_go(); }

  [[nodiscard]] PinId id() const noexcept { return id_; }

  /// Its pages may be evicted again. **Cost** O(pages).
  void let_go() noexcept
  {
    if (anchor_ == nullptr) {
      return;
    }
    if (anchor_->cache != nullptr) {
      anchor_->unpin(anchor_->cache, id_);
    }
    detail::Anchor::leave(anchor_);
    anchor_ = nullptr;
    id_ = {};
  }

 private:
  template <class Layout, class Policy>
  friend class KVCache;

  Pin(detail::Anchor* anchor, PinId id) noexcept : anchor_(anchor), id_(id) { ++anchor_->handles; }

  detail::Anchor* anchor_ = nullptr;
  PinId id_{};
};

}  // namespace kvcache::inline v0_1
