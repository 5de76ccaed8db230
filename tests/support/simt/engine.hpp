// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file How the threads of a block take turns: what `BlockRun` asks of fibers and of threads alike.

namespace simt {

class Engine {
 public:
  Engine() = default;
  virtual ~Engine() = default;
  Engine(Engine const&) = delete;
  Engine& operator=(Engine const&) = delete;

  /// Around all that touches the state of a block. Orders nothing for the kernel.
  virtual void lock() {}
  virtual void unlock() {}
  /// Called between the two. Lets others go on; returns, still locked, after a `wake` of the caller, which may come first.
  virtual void wait(std::int32_t thread) = 0;
  /// Lets lanes of one warp go on, the caller or others.
  virtual void wake(std::int32_t warp, std::uint32_t lanes) = 0;
  /// What the caller did so far is ordered before what a thread does after `acquire` of the key.
  virtual void release(void* /*key*/) {}
  virtual void acquire(void* /*key*/) {}
};

}  // namespace simt
