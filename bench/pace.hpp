// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file How fast this core works now, for goals in nanoseconds.
///
/// A goal such as "2 ns a page" was set on one machine. On a slower core, or beside work on the core's other hardware thread
/// (a stranger's, on a rented machine), the same instructions take longer, and the figure says nothing about the code. So
/// the core's pace is measured beside each round, and times are told as those of a core at `goal_pace`:
///
///   six chains of additions, each of which waits for the one before: more than the core has adders for
///   10.0 G/s on a core of 2.6 GHz alone, 6.2 G/s when its other thread has work
///
///   raw 2.96 ns, pace 1.56 GHz   ->   2.96 * 1.56 / 2.6 = 1.77
///   raw 1.74 ns, pace 2.51 GHz   ->   1.74 * 2.51 / 2.6 = 1.69     the same work, alone
///
/// One chain would show the clock only: it runs at the same 2.6 GHz in both cases. Right for work that keeps the core busy.
/// Work that waits for memory follows neither: it belongs into a bar with a reference.

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace kvcache_bench {

/// Goals that are times are those of a core at 2.6 GHz that starts four additions a cycle: the machine on which they were set.
inline constexpr double goal_pace = 2.6e9;

/// Additions a second of this core by four: hertz, if it starts four a cycle.
/// **Cost** about 5 ms. CPU time, because a chain that another process interrupts is not a slower one.
inline double core_pace()
{
  constexpr int chains = 6;
  constexpr int blocks = 1 << 20;
  constexpr int block = 8;
  auto const cpu_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  double const start = cpu_seconds();
  std::uint64_t sum[chains] = {};
  std::uint64_t summand = 1;
  for (int i = 0; i < blocks; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < block; ++j) {
#pragma GCC unroll 8
      for (std::uint64_t& each : sum) {
        each += summand;
        // Nobody knows `summand`: processors add a constant while they rename registers, several in one cycle.
        asm volatile("" : "+r"(each), "+r"(summand));
      }
    }
  }
  return 0.25 * chains * block * blocks / (cpu_seconds() - start);
}

/// Keeps the calling thread, and the processes it starts, on the core it is on, so that the pace is that of the core that works.
class OneCore {
 public:
  OneCore()
  {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &here);
    sched_setaffinity(0, sizeof here, &here);
  }
  OneCore(OneCore const&) = delete;
  OneCore& operator=(OneCore const&) = delete;
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

}  // namespace kvcache_bench
