// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

/// \file What the executor finds wrong with a kernel.

namespace simt {

enum class Fault : std::uint8_t {
  divergent_barrier,  // some threads wait at a barrier that others left the kernel without, or never reach
  barrier_count,  // a named barrier with a count that is no multiple of a warp, or that its threads disagree about
  absent_lane,  // a warp's call names a lane that left the kernel, or waits where it needs this call's lanes
  lanes_disagree,  // the lanes of one mask make different calls
  bad_argument,  // a mask without its caller, a shuffle from outside the mask, a misplaced asynchronous copy
  async_target,  // the target of an asynchronous copy was written between the copy and its wait
  overrun        // the bytes around the block's shared memory were written
};

/// What `launch` throws, once no thread of the kernel runs any more. `what()` tells where every thread was.
class KernelError : public std::runtime_error {
 public:
  KernelError(Fault what_fault,
              std::int32_t in_block,
              std::int32_t by_thread,
              std::int32_t at_barrier,
              std::string const& text)
      : std::runtime_error(text),
        fault(what_fault),
        block(in_block),
        thread(by_thread),
        barrier(at_barrier)
  {
  }

  Fault fault;
  std::int32_t block;
  std::int32_t thread;   // the one that gave it away, or the first that waits
  std::int32_t barrier;  // 0: the block's; 1..15: named; -1: no barrier
};

/// Takes a thread out of a kernel that another has failed; the engines catch it. A kernel is therefore not `noexcept`.
struct Unwind {};

}  // namespace simt
