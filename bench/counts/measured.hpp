// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What `kvcache_counts` counts of one piece of work: instructions under callgrind, bytes of `operator new`, seconds.

#include <chrono>
#include <cstddef>
#include <cstdint>

#if defined(__has_include) && __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else  // no valgrind here: the bar says so, and nothing counts
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#endif

namespace kvcache_counts {

/// Bytes that `operator new` gave out and nobody gave back.
std::size_t live_bytes();

/// What one row at one n is.
struct Count {
  double seconds = 0;
  std::size_t bytes = 0;         // that the work left allocated
  std::uint64_t operations = 1;  // that the instructions are divided by
};

/// Tells the compiler that `value` is used.
template <class T>
void keep(T const& value)
{
  asm volatile("" : : "r,m"(&value) : "memory");
}

/// Runs `work()`, which callgrind sees and nothing else.
template <class Work>
Count measured(Work&& work)
{
  std::size_t const before = live_bytes();
  auto const start = std::chrono::steady_clock::now();
  CALLGRIND_START_INSTRUMENTATION;
  work();
  CALLGRIND_STOP_INSTRUMENTATION;
  Count count;
  count.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::size_t const after = live_bytes();
  count.bytes = after > before ? after - before : 0;
  return count;
}

}  // namespace kvcache_counts
