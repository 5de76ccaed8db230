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

/// \file Runs kernels on a CPU.

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
