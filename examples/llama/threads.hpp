// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A small pool of threads for loops over independent items.
///
/// A decoder asks for a few hundred short loops per token, so a loop must start in about a microsecond.
/// One 64-bit word, the ticket, says all of it: {loop number, items, next item}. A thread takes an item by
/// raising the ticket with a compare-and-swap; a stale thread fails that, because the loop number is part
/// of the word. Threads spin for a while after a loop and then sleep.
///
/// The library starts no thread; an engine brings its own, and this is the toy engine's.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace llama {

/// Runs loops over `size()` threads, the caller's own being one of them.
/// **Threads** one thread at a time may call `run`; an item may not call `run` itself.
class Threads {
 public:
  /// Starts `size - 1` threads; 0 counts as 1.
  explicit Threads(unsigned size)
  {
    for (unsigned i = 1; i < size; ++i) {
      workers_.emplace_back([this] { work(); });
    }
  }

  Threads(Threads const&) = delete;
  Threads& operator=(Threads const&) = delete;

  ~Threads()
  {
    stop_.store(true);
    wake();
    for (auto& worker : workers_) {
      worker.join();
    }
  }

  [[nodiscard]] unsigned size() const { return static_cast<unsigned>(workers_.size()) + 1; }

  /// Calls `fn(item)` once for each item in [0, items), in any order, on any of the threads.
  /// **Pre** `fn` does not throw. **Post** all items are done, their writes visible to the caller.
  template <class Fn>
  void run(std::size_t items, Fn&& fn)
  {
    if (workers_.empty() || items < 2) {
      for (std::size_t item = 0; item < items; ++item) {
        fn(item);
      }
      return;
    }
    using Function = std::remove_reference_t<Fn>;
    for (std::size_t base = 0; base < items; base += max_items) {
      Loop loop{[](void const* context, std::size_t item) {
                  (*static_cast<Function*>(const_cast<void*>(context)))(item);
                },
                &fn,
                base};
      share(loop, items - base < max_items ? items - base : max_items);
    }
  }

  /// The same for short items: sixteen neighbours at a time go to one thread, which keeps them off each other's
  /// cache lines.
  template <class Fn>
  void run_short(std::size_t items, Fn&& fn)
  {
    constexpr std::size_t group = 16;
    run((items + group - 1) / group, [&](std::size_t g) {
      std::size_t const left = items - g * group;
      for (std::size_t i = 0; i < (left < group ? left : group); ++i) {
        fn(g * group + i);
      }
    });
  }

 private:
  struct Loop {
    void (*call)(void const*, std::size_t);
    void const* context;
    std::size_t base;
  };
  static constexpr unsigned item_bits = 20;
  static constexpr std::size_t max_items = (std::size_t{1} << item_bits) - 1;
  static constexpr std::uint64_t item_mask = max_items;
  static constexpr int spins = 20'000;  // tens of microseconds: longer than a gap inside one token

  static void pause()
  {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }

  void share(Loop const& loop, std::size_t items)
  {
    // Nobody reads these now: every item of the loop before is done, and its ticket is used up.
    loop_.store(&loop, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    number_ = (number_ + 1) & ((std::uint64_t{1} << (64 - 2 * item_bits)) - 1);
    ticket_.store(number_ << (2 * item_bits) | std::uint64_t{items} << item_bits);
    if (sleepers_.load() > 0) {
      wake();
    }
    take_items();
    for (int spin = 0; done_.load(std::memory_order_acquire) < items; ++spin) {
      spin < spins ? pause() : std::this_thread::yield();
    }
  }

  [[nodiscard]] static bool has_item(std::uint64_t ticket)
  {
    return (ticket & item_mask) < (ticket >> item_bits & item_mask);
  }

  void take_items()
  {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (has_item(ticket)) {
      Loop const* loop = loop_.load(std::memory_order_relaxed);
      if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) {
        // The ticket had not moved on, so `loop` is its loop and lives until this item is done.
        loop->call(loop->context, loop->base + (ticket & item_mask));
        done_.fetch_add(1, std::memory_order_release);
        ticket = ticket_.load(std::memory_order_acquire);
      }
    }
  }

  void work()
  {
    for (int idle = 0; !stop_.load(std::memory_order_relaxed);) {
      if (has_item(ticket_.load(std::memory_order_acquire))) {
        take_items();
        idle = 0;
      } else if (++idle < spins) {
        pause();
      } else {
        std::uint32_t const seen = wakes_.load();
        sleepers_.fetch_add(1);
        if (!has_item(ticket_.load()) && !stop_.load()) {
          wakes_.wait(seen);
        }
        sleepers_.fetch_sub(1);
        idle = 0;
      }
    }
  }

  void wake()
  {
    wakes_.fetch_add(1);
    wakes_.notify_all();
  }

  std::vector<std::thread> workers_;
  std::uint64_t number_ = 0;  // of the loop under way
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  std::atomic<Loop const*> loop_{nullptr};
  alignas(64) std::atomic<std::size_t> done_{0};
  std::atomic<std::uint32_t> wakes_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace llama
