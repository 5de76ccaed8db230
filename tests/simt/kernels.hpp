// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/thread_block.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

/// \file Kernels whose results a loop can tell. Each has twins that lack one thing they need, or have one thing too much.

namespace simt_kernels {

using std::int32_t;
using std::uint32_t;

template <class T, kvcache::ThreadBlock B>
T* shared(B& block)
{
  return reinterpret_cast<T*>(block.shared());
}

/// out[block] = the sum of in over the block's part, one element a thread.
struct BlockSum {
  int32_t const* in;
  int32_t* out;
  bool barrier = true;

  template <kvcache::ThreadBlock B>
  void operator()(B& block) const
  {
    auto& warp = block.warp();
    int32_t x = in[block.index() * block.threads() + block.thread()];
    for (int32_t d = 16; d > 0; d /= 2) {
      x += warp.shuffle_xor(x, d, kvcache::all_lanes);
    }
    auto* const sums = shared<int32_t>(block);
    if (warp.lane() == 0) {
      sums[warp.index()] = x;
    }
    if (barrier) {
      block.sync();
    }
    if (block.thread() == block.threads() - 1 || block.thread() == 0) {
      int32_t sum = 0;
      for (int32_t w = 0; w < block.threads() / 32; ++w) {
        sum += sums[w];
      }
      out[2 * block.index() + (block.thread() == 0 ? 0 : 1)] = sum;
    }
  }
};

/// out[i] = in[0] + ... + in[i] within each block.
struct BlockScan {
  int32_t const* in;
  int32_t* out;
  bool barrier = true;

  template <kvcache::ThreadBlock B>
  void operator()(B& block) const
  {
    auto& warp = block.warp();
    int32_t const at = block.index() * block.threads() + block.thread();
    int32_t x = in[at];
    for (int32_t d = 1; d < 32; d *= 2) {
      int32_t const before = warp.shuffle_up(x, d, kvcache::all_lanes);
      x += warp.lane() >= d ? before : 0;
    }
    auto* const totals = shared<int32_t>(block);
    if (warp.lane() == 31) {
      totals[warp.index()] = x;
    }
    if (barrier) {
      block.sync();
    }
    for (int32_t w = 0; w < warp.index(); ++w) {
      x += totals[w];
    }
    out[at] = x;
  }
};

/// Each warp turns its 32 elements round, through shared memory.
struct WarpReverse {
  int32_t const* in;
  int32_t* out;
  bool sync = true;
  bool shuffle =
    false;  // a shuffle where the sync should be: lets lanes wait for each other, and orders no memory

  template <kvcache::ThreadBlock B>
  void operator()(B& block) const
  {
    auto& warp = block.warp();
    int32_t const at = block.index() * block.threads() + block.thread();
    auto* const mine = shared<int32_t>(block) + warp.index() * 32;
    mine[warp.lane()] = in[at];
    if (sync) {
      warp.sync();
    }
    if (shuffle) {
      warp.shuffle(0, 0, kvcache::all_lanes);
    }
    out[at] = mine[31 - warp.lane()];
  }
};

/// counts[x] = how often x stands in `in`; first in shared memory, then in all.
struct Histogram {
  int32_t const* in;
  int32_t n;
  int32_t* counts;
  int32_t bins;
  bool atomic = true;

  static void add(int32_t& to, int32_t x)
  {
    std::atomic_ref<int32_t>(to).fetch_add(x, std::memory_order_relaxed);
  }
  template <kvcache::ThreadBlock B>
  void operator()(B& block) const
  {
    auto* const mine = shared<int32_t>(block);
    for (int32_t i = block.thread(); i < bins; i += block.threads()) {
      mine[i] = 0;
    }
    block.sync();
    for (int32_t i = block.index() * block.threads() + block.thread(); i < n;
         i += block.blocks() * block.threads()) {
      if (atomic) {
        add(mine[in[i]], 1);
      } else {
        int32_t const before = mine[in[i]];
        block.warp().sync();  // another lane's turn
        mine[in[i]] = before + 1;
      }
    }
    block.sync();
    for (int32_t i = block.thread(); i < bins; i += block.threads()) {
      add(counts[i], mine[i]);
    }
  }
};

/// Copies tiles of one 16-byte piece a thread through two buffers of shared memory; a thread stores what its neighbour's
/// copy brought.
struct DoubleBuffer {
  struct Piece {
    int32_t x[4];
  };
  enum class Without { nothing, wait, commit, barrier_after_wait, barrier_after_use };

  Piece const* in;
  Piece* out;
  int32_t tiles;
  Without without = Without::nothing;

  template <kvcache::ThreadBlock B>
  void operator()(B& block) const
  {
    auto& warp = block.warp();
    int32_t const threads = block.threads();
    auto* const buffer = shared<Piece>(block);
    auto const load = [&](int32_t tile) {
      if (tile < tiles) {
        warp.async_copy(buffer + (tile % 2) * threads + block.thread(),
                        in + tile * threads + block.thread(),
                        16,
                        16);
      }
      if (without != Without::commit) {
        warp.async_commit();
      }
    };
    load(0);
    for (int32_t tile = 0; tile < tiles; ++tile) {
      load(tile + 1);
      if (without != Without::wait) {
        warp.async_wait(1);
      }
      if (without != Without::barrier_after_wait) {
        block.sync();
      }
      int32_t const other = (block.thread() + 33) % threads;
      out[tile * threads + other] = buffer[(tile % 2) * threads + other];
      if (without != Without::barrier_after_use) {
        block.sync();
      }
    }
  }
};

/// The first half of the warps makes numbers, the second adds them up; barriers 1 and 2 in turn say that a slot is full. With
/// two slots that is enough: who comes to the next barrier is done with the slot before.
struct ProducerConsumer {
  int32_t* out;  // one for each thread of the second half
  int32_t rounds;
  int32_t slots = 2;
  int32_t threads_less = 0;  // in the count of the barriers

  template <kvcache::ThreadBlock B>
  void operator()(B& block) const
  {
    int32_t const half = block.threads() / 2;
    auto* const slot = shared<int32_t>(block);
    bool const producer = block.thread() < half;
    int32_t const lane = block.thread() % half;
    int32_t sum = 0;
    for (int32_t round = 0; round < rounds; ++round) {
      int32_t* const now = slot + round % slots * half;
      if (producer) {
        now[lane] = round * 1000 + lane;
      }
      block.sync(1 + round % 2, block.threads() - threads_less);
      if (!producer) {
        sum += now[(lane + 1) % half];
      }
    }
    if (!producer) {
      out[lane] = sum;
    }
  }
};

/// The two halves of a warp go different ways, each with its mask; then a vote of all.
struct HalfWarps {
  int32_t* sums;      // of each thread's half
  uint32_t* ballots;  // of each thread

  template <kvcache::ThreadBlock B>
  void operator()(B& block) const
  {
    auto& warp = block.warp();
    int32_t x = block.thread();
    if (warp.lane() < 16) {
      for (int32_t d = 8; d > 0; d /= 2) {
        x += warp.shuffle_xor(x, d, 0x0000ffffU);
      }
    } else {
      for (int32_t d = 1; d < 16; d *= 2) {
        x += warp.shuffle_xor(x, d, 0xffff0000U);
        warp.sync(0xffff0000U);
      }
    }
    sums[block.thread()] = x;
    uint32_t vote = warp.ballot(x % 3 == 0 || warp.lane() == 7, kvcache::all_lanes);
    vote ^= warp.any(warp.lane() == 40, kvcache::all_lanes) ? 1U : 0U;
    vote ^= warp.all(warp.lane() < 32, kvcache::all_lanes) ? 0U : 1U;
    ballots[block.thread()] = vote;
  }
};

}  // namespace simt_kernels
