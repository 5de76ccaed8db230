// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/pins.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>
#include <utility>

/// \file What the handles of a cache have in common: they may outlive it, and end once.

namespace kvcache::inline v0_1::detail {

/// What handles and their cache share: it outlives both, and knows whether the cache is still there.
struct Anchor {
  void* cache = nullptr;  // null once the cache is gone
  void (*close)(void* cache, SequenceId) noexcept = nullptr;
  SequenceInfo (*info)(void const* cache, SequenceId) noexcept = nullptr;
  void (*unpin)(void* cache, PinId) noexcept = nullptr;
  std::uint64_t handles = 0;
};

/// Ends what `Id` names by `End` at the end of its life; move-only, harmless after the cache is gone.
template <class Id, void (*Anchor::*End)(void*, Id) noexcept>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept
      : anchor_(std::exchange(other.anchor_, nullptr)), id_(std::exchange(other.id_, Id{}))
  {
  }
  Handle& operator=(Handle&& other) noexcept
  {
    if (this != &other) {
      end();
      anchor_ = std::exchange(other.anchor_, nullptr);
      id_ = std::exchange(other.id_, Id{});
    }
    return *this;
  }
  Handle(Handle const&) = delete;
  Handle& operator=(Handle const&) = delete;
  ~Handle() { end(); }

  [[nodiscard]] Id id() const noexcept { return id_; }

 protected:
  Handle(Anchor* anchor, Id id) noexcept : anchor_(anchor), id_(id) { ++anchor_->handles; }

  void end() noexcept
  {
    if (anchor_ == nullptr) {
      return;
    }
    if (anchor_->cache != nullptr) {
      (anchor_->*End)(anchor_->cache, id_);
    }
    if (--anchor_->handles == 0 && anchor_->cache == nullptr) {
      delete anchor_;  // the last one of a cache that is gone
    }
    anchor_ = nullptr;
    id_ = {};
  }

  Anchor* anchor_ = nullptr;
  Id id_{};
};

}  // namespace kvcache::inline v0_1::detail
