// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file How the threads of a block take turns: what `BlockRun` asks of fibers and of threads alike.

namespace simt {

class Engine {
 public:
  explicit Engine(bool concurrent) : concurrent_(concurrent) {}
  virtual ~Engine() = default;
  Engine(Engine const&) = delete;
  Engine& operator=(Engine const&) = delete;

  /// Around all that touches the state of a block. Orders nothing for the kernel.
  void lock()
  {
    if (concurrent_) {
      do_lock();
    }
  }
  void unlock()
  {
    if (concurrent_) {
      do_unlock();
    }
  }
  /// What the caller did so far is ordered before what a thread does after `acquire` of the key. Called between the two.
  void release(void* key)
  {
    if (concurrent_) {
      do_release(key);
    }
  }
  void acquire(void* key)
  {
    if (concurrent_) {
      do_acquire(key);
    }
  }
  /// Called between the two. Lets others go on; returns, still locked, after a `wake` of the caller, which may come first.
  virtual void wait(std::int32_t thread) = 0;
  /// Lets lanes of one warp go on, the caller or others.
  virtual void wake(std::int32_t warp, std::uint32_t lanes) = 0;

 private:
  virtual void do_lock() {}
  virtual void do_unlock() {}
  virtual void do_release(void* /*key*/) {}
  virtual void do_acquire(void* /*key*/) {}

  bool concurrent_;
};

}  // namespace simt
