// SPDX-License-Identifier: Apache-2.0
// P14: n pages taken in one call and given back in one, hot, in nanoseconds a page. 162 pages are a mean prompt of the
// prefix trace in pages of 16; 4,096 are a prompt of 65,536 tokens.
//
// Bars in core time: the reference of a round is one nanosecond a page, so the value is nanoseconds of a core at 2.6 GHz.
// The last one compares with the least there is, a stack of ids without counts.

#include <kvcache/alloc/page_allocator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness.hpp"

namespace {

using kvcache::PageId;

constexpr kvcache::PageCount pool_pages = 1U << 16;
constexpr std::size_t pages_a_round = std::size_t{1} << 24;

/// Takes and returns, for a pool in use: half of it is held, and the free pages lie on the stack in random order.
class TakeAndReturn {
 public:
  explicit TakeAndReturn(std::size_t n) : allocator_(pool_pages), pages_(n)
  {
    std::vector<PageId> all(pool_pages);
    if (!allocator_.take(all)) {
      throw std::runtime_error("P14: a new allocator had no pages");
    }
    std::mt19937_64 random(1);
    std::shuffle(all.begin(), all.end(), random);
    for (std::size_t i = 0; i < all.size() / 2; ++i) {
      allocator_.release(all[i]);
    }
    free_ = allocator_.num_free();
  }

  double run()
  {
    std::size_t const calls = pages_a_round / pages_.size();
    double const seconds = kvcache_bench::seconds([&] {
      for (std::size_t i = 0; i < calls; ++i) {
        bool const taken = allocator_.take(pages_);
        kvcache_bench::keep(taken);
        kvcache_bench::keep(pages_.data());
        allocator_.release(pages_);
      }
    });
    if (allocator_.num_free() != free_) {
      throw std::runtime_error("P14: pages were lost");
    }
    return seconds;
  }
  [[nodiscard]] double nanoseconds() const
  {
    return 1e-9 * static_cast<double>(pages_a_round / pages_.size() * pages_.size());
  }

 private:
  kvcache::PageAllocator allocator_;
  std::vector<PageId> pages_;
  kvcache::PageCount free_ = 0;
};

/// What no pool can do without: ids from a stack and back.
class Stack {
 public:
  explicit Stack(std::size_t n) : stack_(pool_pages / 2), pages_(n), top_(stack_.size())
  {
    std::iota(stack_.begin(), stack_.end(), 1U);
    std::shuffle(stack_.begin(), stack_.end(), std::mt19937_64(1));
  }
  double run()
  {
    std::size_t const calls = pages_a_round / pages_.size();
    return kvcache_bench::seconds([&] {
      for (std::size_t i = 0; i < calls; ++i) {
        for (std::uint32_t& page : pages_) {
          page = stack_[--top_];
        }
        kvcache_bench::keep(pages_.data());
        for (std::uint32_t const page : pages_) {
          stack_[top_++] = page;
        }
        kvcache_bench::keep(stack_.data());
      }
    });
  }

 private:
  std::vector<std::uint32_t> stack_;
  std::vector<std::uint32_t> pages_;
  std::size_t top_;
};

bool add(std::size_t n)
{
  return kvcache_bench::add(
    {.bar = "P14",
     .what = "take and return " + std::to_string(n) + " pages, ns a page at 2.6 GHz, half in use",
     .goal = 2,
     .higher_is_better = false,
     .core_time = true,
     .prepare = [n]() -> std::function<kvcache_bench::Round()> {
       auto const subject = std::make_shared<TakeAndReturn>(n);
       return [subject]() -> kvcache_bench::Round {
         return {.reference = subject->nanoseconds(), .subject = subject->run()};
       };
     }});
}

bool const registered =
  add(16) && add(162) && add(4096) &&
  kvcache_bench::add({.bar = "P14",
                      .what = "take and return 162 pages, with counts / a bare stack of ids",
                      .goal = 16,
                      .higher_is_better = false,
                      .prepare = []() -> std::function<kvcache_bench::Round()> {
                        auto const stack = std::make_shared<Stack>(162);
                        auto const subject = std::make_shared<TakeAndReturn>(162);
                        return [=]() -> kvcache_bench::Round {
                          double const reference = stack->run();
                          return {.reference = reference, .subject = subject->run()};
                        };
                      }});

}  // namespace
