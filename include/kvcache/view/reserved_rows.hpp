// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>

#include <cassert>
#include <cstdint>

/// \file The rows that a plan reserved for one sequence, taken and given back by kernels, for engines that decode several
/// tokens without the host.
///
///   chunk of 4     | index 70 | 71 | 72 | 73 |          planned by the host: rows, pages, copies, all of them
///   take(), take()   token 0    1                       numbers of the step's tokens, for `append` and `tiles`
///   roll_back(1)     token 0                            a draft was wrong: token 1 is taken again
///   publish(team)  lengths[row] = 71                    what the next kernel, and the next step, build on
///
/// The bound is the plan's: a row is of the chunk or it is not given, and its page is in the table already, so nothing is
/// allocated on a device. The host hears how many stayed in `commit`, as with drafts.

namespace kvcache::inline v0_1 {

/// See the file comment. All members of a team hold the same copy and make the same calls; `publish` alone writes.
/// Two teams must not have the same chunk.
template <class Layout>
class ReservedRows {
 public:
  /// Of chunk `c`, none taken yet. **Pre** `c < view.num_chunks()`.
  [[nodiscard]] static KVCACHE_HOST_DEVICE ReservedRows none_taken(BatchView<Layout> const& view,
                                                                   Index c)
  {
    return ReservedRows(view, c, 0);
  }
  /// Of chunk `c`, as the launch before left them: `lengths` says how many are taken, whatever was written there.
  /// **Pre** as above.
  [[nodiscard]] static KVCACHE_HOST_DEVICE ReservedRows as_left(BatchView<Layout> const& view,
                                                                Index c)
  {
    ReservedRows rows(view, c, 0);
    Index const length = *rows.length_;
    rows.taken_ = length <= rows.first_index_                ? 0
                  : length - rows.first_index_ > rows.count_ ? rows.count_
                                                             : length - rows.first_index_;
    return rows;
  }

  [[nodiscard]] KVCACHE_HOST_DEVICE Index taken() const { return taken_; }
  [[nodiscard]] KVCACHE_HOST_DEVICE Index left() const { return count_ - taken_; }
  /// The next token of the step, whose row is the sequence's next; -1 where the plan reserved no more.
  [[nodiscard]] KVCACHE_HOST_DEVICE Index take()
  {
    return taken_ < count_ ? first_token_ + taken_++ : -1;
  }
  /// Gives the last `rows` back, at most those taken. They are written again when they are taken again.
  KVCACHE_HOST_DEVICE void roll_back(Index rows)
  {
    taken_ -= rows < 0 ? 0 : rows < taken_ ? rows : taken_;
  }
  /// Tells later kernels and steps how many rows hold tokens. **Pre** a barrier since the last member made its copy with
  /// `as_left`, which reads what this writes.
  template <Team T>
  KVCACHE_HOST_DEVICE void publish(T const& team) const
  {
    if (team.rank() == 0) {
      *length_ = first_index_ + taken_;
    }
  }

 private:
  KVCACHE_HOST_DEVICE ReservedRows(BatchView<Layout> const& view, Index c, Index taken)
      : taken_(taken)
  {
    assert(!view.stale() && "kvcache: this view is of a step that is over; take the new step's");
    ChunkView const chunk = view.chunk(c);
    length_ = view.lengths + chunk.row;
    first_token_ = chunk.first_token;
    first_index_ = chunk.first_index;
    count_ = chunk.tokens;
  }

  Index* length_ = nullptr;
  Index first_token_ = 0;
  Index first_index_ = 0;
  Index count_ = 0;
  Index taken_;
};

}  // namespace kvcache::inline v0_1
