// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "support/simt/block.hpp"

/// \file The engine that runs a block with a std::thread for each GPU thread, for ThreadSanitizer.

namespace simt {

/// What the lock and the waking order is hidden from the sanitizer; it learns of `release` and `acquire`, which barriers
/// and a warp's sync call, and of nothing else. So a race that a shuffle happens to order is one.
class Threads final : public Engine {
 public:
  Threads(BlockRun& block, KernelRef kernel)
      : Engine(true),
        block_(block),
        kernel_(kernel),
        warps_(static_cast<std::size_t>(block.threads()) / 32),
        running_(block.threads())
  {
  }

  /// Begins the block of `block`; join ends it.
  void start()
  {
    for (std::int32_t thread = 0; thread < block_.threads(); ++thread) {
      threads_.emplace_back([this, thread] {
        run_thread(block_, thread, kernel_);
        leave();
      });
    }
  }
  void join()
  {
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  void wait(std::int32_t thread) override
  {
    Warp& warp = warps_[static_cast<std::size_t>(thread) / 32];
    std::uint32_t const bit = 1U << (thread % 32);
    stop_one();
    std::unique_lock held(mutex_, std::adopt_lock);
    warp.changed.wait(held, [&] { return (warp.awake & bit) != 0; });
    held.release();
    warp.awake &= ~bit;
  }
  void wake(std::int32_t warp, std::uint32_t lanes) override
  {
    Warp& one = warps_[static_cast<std::size_t>(warp)];
    one.awake |= lanes;
    running_ += std::popcount(lanes);
    one.changed.notify_all();
  }

 private:
  struct Warp {
    std::uint32_t awake = 0;
    std::condition_variable changed{};
  };

  void do_lock() override
  {
    begin_unseen();
    mutex_.lock();
  }
  void do_unlock() override
  {
    mutex_.unlock();
    end_unseen();
  }
  void do_release(void* key) override
  {
    end_unseen();
    release_order(key);
    begin_unseen();
  }
  void do_acquire(void* key) override
  {
    end_unseen();
    acquire_order(key);
    begin_unseen();
  }

  void stop_one()
  {
    if (--running_ == 0 && !block_.finished()) {
      block_.stuck();
    }
  }
  void leave()
  {
    lock();
    stop_one();
    unlock();
  }

  BlockRun& block_;
  KernelRef kernel_;
  std::mutex mutex_{};
  std::vector<Warp> warps_;
  std::int32_t running_;  // threads that neither wait nor left
  std::vector<std::thread> threads_{};
};

}  // namespace simt
