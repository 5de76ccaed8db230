// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/thread_block.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "support/simt/async_copies.hpp"
#include "support/simt/block_run.hpp"

/// \file The block and the warp that a kernel gets on a CPU: `kvcache::ThreadBlock` and `kvcache::ThreadWarp`, and what the
/// host twins of instructions need besides.

namespace simt {

inline constexpr std::uint32_t all_lanes = kvcache::all_lanes;

/// See the file comment; one object for each GPU thread.
class Warp {
 public:
  Warp(BlockRun& run, std::int32_t thread) : run_(run), thread_(thread), copies_(run, thread) {}

  [[nodiscard]] std::int32_t lane() const { return thread_ % 32; }
  [[nodiscard]] std::int32_t index() const { return thread_ / 32; }

  void sync(std::uint32_t mask = all_lanes)
  {
    run_.meet(thread_, {Call::sync, mask, 0, 0, nullptr, nullptr});
  }

  template <class T>
  T shuffle(T x, std::int32_t from, std::uint32_t mask = all_lanes)
  {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
    T out = x;
    run_.meet(thread_, {Call::shuffle, mask, sizeof(T), from, &x, &out});
    return out;
  }
  template <class T>
  T shuffle_xor(T x, std::int32_t with, std::uint32_t mask = all_lanes)
  {
    return shuffle(x, lane() ^ with, mask);
  }
  template <class T>
  T shuffle_up(T x, std::int32_t by, std::uint32_t mask = all_lanes)
  {
    return shuffle(x, lane() - by < 0 ? lane() : lane() - by, mask);
  }
  template <class T>
  T shuffle_down(T x, std::int32_t by, std::uint32_t mask = all_lanes)
  {
    return shuffle(x, lane() + by > 31 ? lane() : lane() + by, mask);
  }

  std::uint32_t ballot(bool said, std::uint32_t mask = all_lanes)
  {
    std::uint32_t out = 0;
    run_.meet(thread_, {Call::vote, mask, 0, 0, &said, &out});
    return out;
  }
  bool any(bool said, std::uint32_t mask = all_lanes) { return ballot(said, mask) != 0; }
  bool all(bool said, std::uint32_t mask = all_lanes) { return ballot(said, mask) == mask; }

  /// `all[l]` becomes what lane l of the mask gave as `mine`; the other places stay as they were.
  template <class T>
  void exchange(std::uint32_t mask, T const& mine, T* all)
  {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64);
    run_.meet(thread_, {Call::exchange, mask, sizeof(T), 0, &mine, all});
  }

  /// cp.async: `real_bytes` of `bytes` (4, 8 or 16) from `global`, then zeros. See `AsyncCopies`.
  void async_copy(void* shared, void const* global, std::int32_t bytes, std::int32_t real_bytes)
  {
    copies_.copy(shared, global, bytes, real_bytes);
  }
  void async_commit() { copies_.commit(); }
  void async_wait(std::int32_t groups_left) { copies_.wait(groups_left); }

 private:
  BlockRun& run_;
  std::int32_t thread_;
  AsyncCopies copies_;
};

/// See the file comment; one object for each GPU thread.
class Block {
 public:
  Block(BlockRun& run, std::int32_t thread) : run_(run), thread_(thread), warp_(run, thread) {}

  [[nodiscard]] std::int32_t thread() const { return thread_; }
  [[nodiscard]] std::int32_t threads() const { return run_.threads(); }
  [[nodiscard]] std::int32_t index() const { return run_.index(); }
  [[nodiscard]] std::int32_t blocks() const { return run_.blocks(); }
  [[nodiscard]] std::byte* shared() const { return run_.shared().data(); }
  Warp& warp() { return warp_; }

  void sync() { run_.arrive(thread_, 0, run_.threads()); }
  void sync(std::int32_t barrier, std::int32_t threads)
  {
    run_.arrive_named(thread_, barrier, threads);
  }

 private:
  BlockRun& run_;
  std::int32_t thread_;
  Warp warp_;
};

static_assert(kvcache::ThreadBlock<Block>);

/// A kernel of any type.
struct KernelRef {
  void const* kernel;
  void (*call)(void const* kernel, Block& block);
};

/// Runs the kernel as one thread of the block, from its first line to its end.
inline void run_thread(BlockRun& run, std::int32_t thread, KernelRef kernel)
{
  if (!run.failed()) {
    try {
      Block block(run, thread);
      kernel.call(kernel.kernel, block);
    } catch (Unwind const&) {
    } catch (...) {
      run.threw(std::current_exception());
    }
  }
  run.leave(thread);
}

}  // namespace simt
