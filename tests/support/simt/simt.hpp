// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/random.hpp"
#include "support/simt/block.hpp"
#include "support/simt/fibers.hpp"
#include "support/simt/guarded_memory.hpp"
#include "support/simt/last_word.hpp"
#include "support/simt/options.hpp"
#include "support/simt/threads.hpp"

/// \file Runs a kernel (`core/thread_block.hpp`) on a CPU, thread by thread, and finds what a GPU hides.
///
///   struct Scale { float* x;  template <kvcache::ThreadBlock B> void operator()(B& block) const {...} };
///   for (simt::Options const& options : simt::schedules()) {
///     simt::launch(blocks, threads, shared_bytes, Scale{x}, options);   // then compare x with a loop
///   }
///
/// **Two engines behind one `simt::Block`.** Fibers on one thread of the CPU: a GPU thread runs until it waits or leaves, and
/// an order (ascending, descending, random by a seed) says who goes on, so that a warp gets as far ahead of another, and a lane
/// of another, as the kernel lets it. Or a std::thread for each GPU thread, under ThreadSanitizer; every launch is one there.
///
/// **Modelled.** A grid and blocks of one dimension, 32 to 1024 threads in whole warps. Shared memory, which holds 0xff when a
/// block begins. The block's barrier, named barriers, a warp's sync, shuffles, votes and `exchange` with masks. Only barriers
/// and a warp's sync order memory. cp.async in groups: the bytes are read and arrive at the wait, not before. Atomics are those
/// of the CPU. Blocks run one after another on fibers, `blocks_at_once` together on threads.
///
/// **Found**, as a `KernelError` with block, thread and barrier, once no thread runs any more; never as a hang: a barrier that
/// some threads left or wait elsewhere, its wrong count, a warp's call with an absent lane or among lanes that disagree, a
/// misplaced copy, a copy's target that was written too soon, a write beside the shared memory. What the kernel throws comes
/// out as it is, and a kernel may not be `noexcept`.
/// **Found as a wrong result** in some order: a missing block barrier or warp sync, a slot that is filled too early, what is
/// read of a copy before its wait (0xff).
/// **Found by ASan**, or as a fault that names block and thread: an access outside the shared memory, or outside a
/// `GuardedMemory` that holds the pool; ASan also sees a touch of a copy's target of 8 or 16 bytes before its wait.
/// **Found by TSan** on threads, in any order: every race in shared or global memory, between the lanes that only a shuffle
/// holds together and between `blocks_at_once` blocks too.
///
/// **Not found.** A thread that waits for another by reading memory in a loop hangs: nothing but the calls above gives way.
/// Weak memory beyond races, fences, and what several grids do. Registers, occupancy, bank conflicts, alignment of vector
/// loads. On fibers a read and a write without a call between them are never torn apart, and a shuffle keeps lanes in step, so
/// that a sync missing beside one shows only under TSan. Without ASan, reads on the side of the slack (see `Guard`) pass:
/// ascending and random orders guard what is behind, descending what is before. TSan takes the target of a copy as written at
/// the copy and again at the wait, by the thread that makes them.
///
/// **Threads** One launch at a time on a thread, not from inside a kernel. **Cost** a call of a warp or a barrier is a switch of
/// stacks for each thread that takes part; nothing is allocated for a thread or a block, except by copies.

namespace simt {

namespace detail {

inline void run_on_fibers(BlockRun& block,
                          std::int32_t blocks,
                          KernelRef kernel,
                          Options const& options)
{
  std::vector<std::int32_t> order(static_cast<std::size_t>(blocks));
  kvcache_test::Random random(options.seed);
  for (std::int32_t i = 0; i < blocks; ++i) {
    order[static_cast<std::size_t>(i)] = options.order == Order::descending ? blocks - 1 - i : i;
  }
  for (auto i = static_cast<std::uint32_t>(blocks); options.order == Order::random && i > 1; --i) {
    std::swap(order[i - 1], order[random.below(i)]);
  }
  LastWord const last_word;
  Fibers& fibers = Fibers::mine();
  fibers.start(options.order, random.next());
  for (std::int32_t const index : order) {
    block.begin(fibers, index);
    fibers.run(block, kernel);
    block.check_memory();
    if (block.failed()) {
      std::rethrow_exception(block.failure());
    }
  }
}

}  // namespace detail

/// See the file comment.
template <class Kernel>
void launch(std::int32_t blocks,
            std::int32_t threads,
            std::size_t shared_bytes,
            Kernel const& kernel,
            Options const& options = {})
{
  if (blocks < 0 || threads < 32 || threads > 1024 || threads % 32 != 0) {
    throw std::invalid_argument("simt: a block has 32 to 1024 threads, a multiple of 32");
  }
  Guard const guard = options.order == Order::descending ? Guard::before : Guard::behind;
  KernelRef const ref{&kernel,
                      [](void const* k, Block& block) { (*static_cast<Kernel const*>(k))(block); }};
  if (!options.threads) {
    BlockRun block(threads, blocks, shared_bytes, guard);
    detail::run_on_fibers(block, blocks, ref, options);
    return;
  }
  for (std::int32_t first = 0; first < blocks; first += options.blocks_at_once) {
    struct Running {
      Running(std::int32_t n, std::int32_t of, std::size_t bytes, Guard side, KernelRef k)
          : block(n, of, bytes, side), threads(block, k)
      {
      }
      BlockRun block;
      Threads threads;
    };
    std::vector<std::unique_ptr<Running>> running;
    for (std::int32_t i = first; i < std::min(blocks, first + options.blocks_at_once); ++i) {
      running.push_back(std::make_unique<Running>(threads, blocks, shared_bytes, guard, ref));
      running.back()->block.begin(running.back()->threads, i);
    }
    for (auto const& one : running) {
      one->threads.start();
    }
    for (auto const& one : running) {
      one->threads.join();
      one->block.check_memory();
    }
    for (auto const& one : running) {
      if (one->block.failed()) {
        std::rethrow_exception(one->block.failure());
      }
    }
  }
}

}  // namespace simt
