// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/simt/block_run.hpp"

/// \file The asynchronous copies (cp.async) of one thread.

namespace simt {

/// The bytes arrive, and the source is read, no earlier than in a `wait` that covers their group. Until then the target
/// holds 0xff (not a number), under ASan it may not be touched if it has 8 or 16 bytes, and it must not change.
class AsyncCopies {
 public:
  AsyncCopies(BlockRun& run, std::int32_t thread) : run_(run), thread_(thread) {}

  void copy(void* shared, void const* global, std::int32_t bytes, std::int32_t real_bytes)
  {
    auto const to = reinterpret_cast<std::uintptr_t>(shared);
    auto const from = reinterpret_cast<std::uintptr_t>(global);
    auto const begin = reinterpret_cast<std::uintptr_t>(run_.shared().data());
    if (bytes != 4 && bytes != 8 && bytes != 16) {
      run_.report(Fault::bad_argument, thread_, "copies other than 4, 8 or 16 bytes");
    }
    auto const n = static_cast<std::size_t>(bytes);
    if (real_bytes < 0 || real_bytes > bytes || to % n != 0 || from % n != 0) {
      run_.report(Fault::bad_argument,
                  thread_,
                  "copies from or to a place that is no multiple of the bytes, or more than these");
    }
    if (to < begin || to + n > begin + run_.shared().size()) {
      run_.report(Fault::bad_argument, thread_, "copies to a place outside the shared memory");
    }
    permit(shared, n);  // a second copy to the same place shows at its wait
    std::memset(shared, unset, n);
    forbid(shared, n);
    copies_.push_back({static_cast<std::byte*>(shared),
                       static_cast<std::byte const*>(global),
                       bytes,
                       real_bytes,
                       group_});
  }
  void commit() { ++group_; }
  void wait(std::int32_t groups_left)
  {
    auto const first_left = std::find_if(copies_.begin(), copies_.end(), [&](Copy const& copy) {
      return copy.group >= group_ - groups_left;
    });
    for (auto copy = copies_.begin(); copy != first_left; ++copy) {
      land(*copy);
    }
    copies_.erase(copies_.begin(), first_left);
  }

 private:
  static constexpr unsigned char unset = 0xff;

  struct Copy {
    std::byte* to;
    std::byte const* from;
    std::int32_t bytes;
    std::int32_t real_bytes;
    std::int32_t group;
  };

  void land(Copy const& copy)
  {
    auto const n = static_cast<std::size_t>(copy.bytes);
    auto const real = static_cast<std::size_t>(copy.real_bytes);
    permit(copy.to, n);
    if (!std::all_of(copy.to, copy.to + n, [](std::byte x) { return x == std::byte{unset}; })) {
      run_.report(Fault::async_target,
                  thread_,
                  "waits for a copy whose target was written since, at byte " +
                    std::to_string(copy.to - run_.shared().data()) + " of the shared memory");
    }
    if (real > 0) {
      std::memcpy(copy.to, copy.from, real);
    }
    std::memset(copy.to + real, 0, n - real);
  }

  BlockRun& run_;
  std::int32_t thread_;
  std::int32_t group_ = 0;  // the one that the next commit closes
  std::vector<Copy> copies_{};
};

}  // namespace simt
