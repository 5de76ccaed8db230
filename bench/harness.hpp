// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The bench harness: bars, and honest rounds.
///
/// A *bar* is a goal for one ratio: the time of a reference (a plain read, a memcpy, a textbook version)
/// against the time of the subject, our code. Both run interleaved in one process, because the same machine
/// reads memory at 20 GB/s now and at 30 a minute later; only the ratio inside one round means anything.
///
///   round 1:  reference, subject   cpu share 0.99   ratio 0.66   kept
///   round 2:  reference, subject   cpu share 0.71   (another process took a core)  discarded
///   ...       until `--rounds` are kept; the value of the bar is the median of their ratios
///
/// A bar file looks like this (see bench/README.md):
///
///   namespace {
///   bool const registered = kvcache_bench::add({
///     .bar = "P9", .what = "page copy, 64 KiB pages, against memcpy", .goal = 0.90, .threads = 1,
///     .prepare = [] {
///       auto data = std::make_shared<Data>();      // big buffers live as long as the bar runs
///       return [data]() -> kvcache_bench::Round {
///         return {.reference = kvcache_bench::seconds([&] { plain_copy(*data); }),
///                 .subject = kvcache_bench::seconds([&] { our_copy(*data); })};
///       };
///     }});
///   }

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kvcache_bench {

/// What one round measured, in seconds or in counts.
struct Round {
  double reference = 0;
  double subject = 0;
  std::string note{};  // printed below the line of the bar
};

/// One goal. Several bars may share a name (`P1` at 4k, 16k, 64k): each is a line of the table.
struct Bar {
  std::string bar;   // "P1": what `--only` selects
  std::string what;  // one line: shape, type, threads, and what it is compared with
  double goal = 0;   // higher: reference / subject must reach it; lower: subject / reference
  bool higher_is_better =
    true;                  // "0.60 of a plain read" is higher; "at most 1.05 of in order" is lower
  int threads = 1;         // how many threads a round keeps busy, for the cpu share
  bool wall = true;        // false: CPU seconds or counts, of which every round is kept
  bool once = false;       // a count: one round is all, and the ratio may be 0 or less
  bool core_time = false;  // the goal is a time, that of one core at `goal_pace`: see pace.hpp
  double bytes = 0;        // bytes one side moves in a round; when set the table shows GB/s

  /// Builds the data and returns the function that runs one round. Untimed. A check that fails (a wrong
  /// result, no memory) throws `std::runtime_error`: the bar then fails with that sentence.
  std::function<std::function<Round()>()> prepare;
};

/// What `prepare` throws where the library has not yet what the bar measures: neither a pass nor a failure.
struct NotBuilt {};

/// The registry, in the order of registration.
inline std::vector<Bar>& bars()
{
  static std::vector<Bar> all;
  return all;
}

/// Registers a bar; the result only gives a namespace-scope constant something to hold.
inline bool add(Bar bar)
{
  bars().push_back(std::move(bar));
  return true;
}

/// Wall seconds that `work()` takes.
template <class Work>
double seconds(Work&& work)
{
  auto const start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Tells the compiler that `value` is used.
template <class T>
void keep(T const& value)
{
  asm volatile("" : : "r,m"(value) : "memory");
}

/// A fixed set of threads that spin between runs, so that starting one costs well under a microsecond and
/// the process's cpu time falls short of the wall only when somebody else took a core.
class Team {
 public:
  explicit Team(int size) : size_(size < 1 ? 1 : size)
  {
    for (int rank = 1; rank < size_; ++rank) {
      threads_.emplace_back([this, rank] { serve(rank); });
    }
  }
  Team(Team const&) = delete;
  Team& operator=(Team const&) = delete;
  ~Team()
  {
    stop_.store(true);
    round_.fetch_add(1);
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  [[nodiscard]] int size() const { return size_; }

  /// Calls `work(rank)` on every thread, rank 0 being the caller, and returns the wall seconds until the
  /// last one is done.
  template <class Work>
  double run(Work&& work)
  {
    work_ = [&work](int rank) { work(rank); };
    done_.store(0);
    return seconds([&] {
      round_.fetch_add(1, std::memory_order_release);
      work(0);
      while (done_.load(std::memory_order_acquire) != size_ - 1) {
        relax();
      }
    });
  }

 private:
  static void relax()
  {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  void serve(int rank)
  {
    std::size_t seen = 0;
    for (;;) {
      while (round_.load(std::memory_order_acquire) == seen) {
        relax();
      }
      ++seen;
      if (stop_.load()) {
        return;
      }
      work_(rank);
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  int size_;
  std::function<void(int)> work_;
  std::atomic<std::size_t> round_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace kvcache_bench
