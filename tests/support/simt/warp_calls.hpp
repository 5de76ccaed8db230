// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// \file What the lanes of one warp do together: who has come to which call, and what each takes from it.

namespace simt {

enum class Call : std::uint8_t { sync, shuffle, vote, exchange };

/// A lane's part in a call of its warp.
struct Offer {
  Call call;
  std::uint32_t mask;
  std::uint32_t bytes;  // of a value
  std::int32_t from;    // shuffle: whose value this lane takes
  void const* mine;     // shuffle, exchange: a value; vote: a bool
  void* out;            // shuffle: a value; vote: uint32; exchange: 32 values
};

/// A call that some of its lanes have come to.
struct Meeting {
  std::uint32_t mask = 0;
  std::uint32_t arrived = 0;
  std::uint32_t bytes = 0;
  Call call = Call::sync;
  void* key = nullptr;  // of a sync, for `Engine::release`
};

/// See the file comment. Calls of one warp with different masks may be open at a time.
class WarpCalls {
 public:
  /// The warp starts anew.
  void begin() { left_ = 0; }
  void leave(std::uint32_t lane_bit) { left_ |= lane_bit; }

  [[nodiscard]] std::uint32_t left() const { return left_; }

  /// The open call of the offer's mask, or a new one; null if the lanes that have come make another call.
  [[nodiscard]] Meeting* join(Offer const& offer)
  {
    for (std::uint32_t i = 0; i < open_; ++i) {
      Meeting& meeting = meetings_[i];
      if (meeting.mask == offer.mask) {
        bool const same = meeting.call == offer.call && meeting.bytes == offer.bytes;
        return same ? &meeting : nullptr;
      }
    }
    Meeting& meeting = meetings_[open_++];
    meeting = {offer.mask, 0, offer.bytes, offer.call, nullptr};
    if (offer.call == Call::sync) {
      meeting.key = &keys_[syncs_++ % keys_.size()];
    }
    return &meeting;
  }
  /// The lane has come to the call that `join` gave. True if it was the last: all have what they take, the call is over.
  bool arrive(Meeting& meeting, std::size_t lane, Offer const& offer)
  {
    offers_[lane] = offer;
    meeting.arrived |= 1U << lane;
    if (meeting.arrived != meeting.mask) {
      return false;
    }
    hand_out(meeting);
    meeting = meetings_[--open_];
    return true;
  }

 private:
  template <class Visit>
  static void for_each_lane(std::uint32_t mask, Visit visit)
  {
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      visit(static_cast<std::size_t>(std::countr_zero(rest)));
    }
  }
  static void copy_value(void* to, void const* from, std::uint32_t bytes)
  {
    if (bytes == 4) {  // most are
      std::memcpy(to, from, 4);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  void hand_out(Meeting const& meeting)
  {
    switch (meeting.call) {
      case Call::sync:
        break;
      case Call::vote: {
        std::uint32_t ballot = 0;
        for_each_lane(meeting.mask, [&](std::size_t lane) {
          ballot |= (*static_cast<bool const*>(offers_[lane].mine) ? 1U : 0U) << lane;
        });
        for_each_lane(meeting.mask,
                      [&](std::size_t lane) { copy_value(offers_[lane].out, &ballot, 4); });
        break;
      }
      case Call::shuffle:
        for_each_lane(meeting.mask, [&](std::size_t lane) {
          Offer const& to = offers_[lane];
          copy_value(to.out, offers_[static_cast<std::size_t>(to.from)].mine, to.bytes);
        });
        break;
      case Call::exchange:
        for_each_lane(meeting.mask, [&](std::size_t lane) {
          Offer const& to = offers_[lane];
          for_each_lane(meeting.mask, [&](std::size_t from) {
            copy_value(
              static_cast<std::byte*>(to.out) + from * to.bytes, offers_[from].mine, to.bytes);
          });
        });
        break;
    }
  }

  std::array<Offer, 32> offers_{};
  std::array<Meeting, 32> meetings_{};  // the first `open_` have begun
  std::uint32_t open_ = 0;
  std::uint32_t left_ = 0;  // lanes that have left the kernel
  // A key for each of the last syncs: a lane may be slow to leave one while others come to the next, and must not be taken
  // to know what they did in between.
  std::array<std::byte, 64> keys_{};
  std::uint32_t syncs_ = 0;
};

}  // namespace simt
