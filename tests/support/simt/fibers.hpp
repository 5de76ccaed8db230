// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/random.hpp"
#include "support/simt/block.hpp"
#include "support/simt/context.hpp"
#include "support/simt/options.hpp"

/// \file The engine that runs a block on one thread of the CPU, a fiber for each GPU thread.

namespace simt {

/// A thread runs until it waits or leaves; then the order chooses among those that can go on: the first thread, the last,
/// or any. So one warp gets as far ahead of another as the barriers let it. Stacks are kept from block to block and from
/// launch to launch.
class Fibers final : public Engine {
 public:
  /// Those of the calling thread.
  static Fibers& mine()
  {
    static thread_local Fibers fibers;
    return fibers;
  }

  void start(Order order, std::uint64_t seed)
  {
    order_ = order;
    random_ = kvcache_test::Random(seed);
  }

  /// Runs one block to its end.
  void run(BlockRun& block, KernelRef kernel)
  {
    block_ = &block;
    kernel_ = kernel;
    auto const threads = static_cast<std::size_t>(block.threads());
    while (fibers_.size() < threads) {
      fibers_.push_back(std::make_unique<Fiber>(*this, static_cast<std::int32_t>(fibers_.size())));
    }
    for (std::size_t w = 0; w < threads / 32; ++w) {
      wake(static_cast<std::int32_t>(w), all_lanes);
    }
    caller_.switch_to(fibers_[next()]->context);
  }

  /// For a last word.
  [[nodiscard]] std::int32_t block() const { return block_->index(); }
  [[nodiscard]] std::int32_t thread() const { return running_; }

  void wait(std::int32_t thread) override
  {
    if (awake_ == 0) {
      block_->stuck();
    }
    std::size_t const to = next();
    if (to != static_cast<std::size_t>(thread)) {
      fibers_[static_cast<std::size_t>(thread)]->context.switch_to(fibers_[to]->context);
    }
  }
  void wake(std::int32_t warp, std::uint32_t lanes) override
  {
    lanes_[static_cast<std::size_t>(warp)] |= lanes;
    awake_ |= 1U << warp;
  }

 private:
  Fibers() : Engine(false) {}

  struct Fiber {
    Fiber(Fibers& all, std::int32_t number)
        : fibers(all), thread(number), context(live, this, static_cast<std::size_t>(number))
    {
    }

    static void live(void* self)
    {
      auto& fiber = *static_cast<Fiber*>(self);
      while (true) {
        run_thread(*fiber.fibers.block_, fiber.thread, fiber.fibers.kernel_);
        fiber.fibers.leave(fiber.context);
      }
    }

    Fibers& fibers;
    std::int32_t thread;
    Context context;
  };

  /// The thread has left the kernel; returns when another block begins.
  void leave(Context& context)
  {
    if (awake_ == 0 && !block_->finished()) {
      block_->stuck();
    }
    context.switch_to(awake_ == 0 ? caller_ : fibers_[next()]->context);
  }

  /// Takes one thread from those that can go on.
  std::size_t next()
  {
    int warp = 0;
    int lane = 0;
    if (order_ == Order::descending) {
      warp = 31 - std::countl_zero(awake_);
      lane = 31 - std::countl_zero(lanes_[static_cast<std::size_t>(warp)]);
    } else if (order_ == Order::ascending) {
      warp = std::countr_zero(awake_);
      lane = std::countr_zero(lanes_[static_cast<std::size_t>(warp)]);
    } else {
      std::uint64_t const bits = random_.next();
      warp = first_from(awake_, static_cast<int>(bits & 31));
      lane = first_from(lanes_[static_cast<std::size_t>(warp)], static_cast<int>(bits >> 5 & 31));
    }
    std::uint32_t& lanes = lanes_[static_cast<std::size_t>(warp)];
    lanes &= ~(1U << lane);
    if (lanes == 0) {
      awake_ &= ~(1U << warp);
    }
    running_ = warp * 32 + lane;
    return static_cast<std::size_t>(running_);
  }
  /// The first set bit at `start` or, going round, behind it.
  static int first_from(std::uint32_t bits, int start)
  {
    return (std::countr_zero(std::rotr(bits, start)) + start) & 31;
  }

  BlockRun* block_ = nullptr;
  KernelRef kernel_{};
  Order order_ = Order::ascending;
  kvcache_test::Random random_{0};
  // Threads that can go on and do not run: a bit for each warp that has any, and its lanes.
  std::uint32_t awake_ = 0;
  std::array<std::uint32_t, 32> lanes_{};
  std::int32_t running_ = 0;
  Context caller_;
  std::vector<std::unique_ptr<Fiber>> fibers_{};
};

}  // namespace simt
