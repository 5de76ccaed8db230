// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A warp of 32 threads for the twins of core/isa: all lanes take part in every exchange, and copies land as late as they may.

#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace kvcache_test {

class LockstepWarp {
 public:
  static constexpr std::int32_t lanes = 32;
  static constexpr int poison = 0xdd;

  /// Runs `work(lane)` on 32 threads, one a lane.
  template <class Work>
  static void run(Work const& work)
  {
    Shared shared;
    std::vector<std::thread> threads;
    for (std::int32_t lane = 0; lane < lanes; ++lane) {
      threads.emplace_back([&shared, &work, lane] {
        LockstepWarp warp(shared, lane);
        work(warp);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  [[nodiscard]] std::int32_t lane() const { return lane_; }
  void sync(std::uint32_t = 0xffffffffU) { shared_.barrier.arrive_and_wait(); }

  template <class T>
  void exchange(std::uint32_t, T const& mine, T* all)
  {
    static_assert(sizeof(T) <= slot_bytes);
    std::memcpy(slot(lane_), &mine, sizeof(T));
    sync();
    for (std::int32_t l = 0; l < lanes; ++l) {
      std::memcpy(all + l, slot(l), sizeof(T));
    }
    sync();
  }
  template <class T>
  T shuffle_xor(T x, std::int32_t with, std::uint32_t mask = 0xffffffffU)
  {
    std::array<T, lanes> all{};
    exchange(mask, x, all.data());
    return all[static_cast<std::size_t>(lane_ ^ with)];
  }

  void async_copy(void* to, void const* from, std::int32_t bytes, std::int32_t real_bytes)
  {
    std::memset(to, poison, static_cast<std::size_t>(bytes));
    open_.push_back({to, from, bytes, real_bytes});
  }
  void async_commit()
  {
    groups_.push_back(open_);
    open_.clear();
  }
  void async_wait(std::int32_t groups_left)
  {
    while (groups_.size() > static_cast<std::size_t>(groups_left)) {
      for (Copy const& copy : groups_.front()) {
        std::memset(copy.to, 0, static_cast<std::size_t>(copy.bytes));
        if (copy.real_bytes > 0) {
          std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.real_bytes));
        }
      }
      groups_.erase(groups_.begin());
    }
  }

 private:
  static constexpr std::size_t slot_bytes = 64;
  struct Shared {
    std::barrier<> barrier{lanes};
    std::array<std::byte, slot_bytes * lanes> slots{};
  };
  struct Copy {
    void* to;
    void const* from;
    std::int32_t bytes;
    std::int32_t real_bytes;
  };

  LockstepWarp(Shared& shared, std::int32_t lane) : shared_(shared), lane_(lane) {}
  std::byte* slot(std::int32_t lane)
  {
    return shared_.slots.data() + slot_bytes * static_cast<std::size_t>(lane);
  }

  Shared& shared_;
  std::int32_t lane_;
  std::vector<Copy> open_;
  std::vector<std::vector<Copy>> groups_;
};

}  // namespace kvcache_test
