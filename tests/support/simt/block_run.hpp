// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "support/simt/engine.hpp"
#include "support/simt/faults.hpp"
#include "support/simt/guarded_memory.hpp"
#include "support/simt/warp_calls.hpp"

/// \file One block while it runs: who waits where, whom a call completes, and what is wrong.

namespace simt {

/// See the file comment. Every member that takes a thread is called by that thread.
class BlockRun {
 public:
  BlockRun(std::int32_t threads, std::int32_t blocks, std::size_t shared_bytes, Guard guard)
      : threads_(threads),
        blocks_(blocks),
        shared_(shared_bytes, guard),
        places_(static_cast<std::size_t>(threads)),
        warps_(static_cast<std::size_t>(threads) / 32)
  {
    for (Barrier& barrier : barriers_) {
      barrier.came.resize(warps_.size());
    }
  }

  /// The block starts anew, as another of the grid.
  void begin(Engine& engine, std::int32_t index)
  {
    engine_ = &engine;
    index_ = index;
    left_ = 0;
    shared_.forget();
    for (Place& place : places_) {
      place = {};
    }
    for (WarpCalls& warp : warps_) {
      warp.begin();
    }
  }

  [[nodiscard]] std::int32_t threads() const { return threads_; }
  [[nodiscard]] std::int32_t blocks() const { return blocks_; }
  [[nodiscard]] std::int32_t index() const { return index_; }
  [[nodiscard]] GuardedMemory& shared() { return shared_; }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool finished() const { return left_ == threads_; }
  [[nodiscard]] std::exception_ptr failure() const { return failure_; }

  /// Waits at barrier 1 to 15 until `count` threads have come.
  void arrive_named(std::int32_t thread, std::int32_t number, std::int32_t count)
  {
    if (number < 1 || number > 15 || count < 32 || count % 32 != 0 || count > threads_) {
      report(Fault::barrier_count,
             thread,
             "asks for barrier " + std::to_string(number) + " with " + std::to_string(count) +
               " threads: named barriers are 1 to 15, for whole warps of the block");
    }
    arrive(thread, number, count);
  }
  /// The same, and barrier 0 is the block's.
  void arrive(std::int32_t thread, std::int32_t number, std::int32_t count)
  {
    Locked const locked(*engine_);
    give_up_if_failed();
    Barrier& barrier = barriers_[static_cast<std::size_t>(number)];
    if (barrier.arrived == 0) {
      barrier.count = count;
    } else if (barrier.count != count) {
      fail(Fault::barrier_count,
           thread,
           number,
           "comes to barrier " + std::to_string(number) + " for " + std::to_string(count) +
             " threads, others wait there for " + std::to_string(barrier.count));
    }
    if (number == 0 && left_ > 0) {
      fail(Fault::divergent_barrier,
           thread,
           number,
           "comes to the block's barrier, but threads have left the kernel");
    }
    void* const key = &barrier.keys[barrier.generation % barrier.keys.size()];
    engine_->release(key);
    barrier.came[warp_of(thread)] |= lane_bit(thread);
    ++barrier.arrived;
    if (barrier.arrived == barrier.count) {
      complete(thread, number);
    }
    wait(thread, {State::barrier, number, 0, {}});
    engine_->acquire(key);
  }

  /// Makes a call of the warp together with the other lanes of its mask.
  void meet(std::int32_t thread, Offer const& offer)
  {
    Locked const locked(*engine_);
    give_up_if_failed();
    WarpCalls& warp = warps_[warp_of(thread)];
    check(thread, offer, warp);
    Meeting* const meeting = warp.join(offer);
    if (meeting == nullptr) {
      fail(Fault::lanes_disagree,
           thread,
           -1,
           "makes another call than the lanes of its mask that have come");
    }
    void* const key = meeting->key;
    if (key != nullptr) {
      engine_->release(key);
    }
    if (warp.arrive(*meeting, lane_of(thread), offer)) {
      engine_->wake(thread / 32, offer.mask);
    }
    wait(thread, {State::meeting, -1, offer.mask, offer.call});
    if (key != nullptr) {
      engine_->acquire(key);
    }
  }

  /// The thread has left the kernel.
  void leave(std::int32_t thread)
  {
    Locked const locked(*engine_);
    places_[static_cast<std::size_t>(thread)] = {State::left, -1, 0, {}};
    warps_[warp_of(thread)].leave(lane_bit(thread));
    ++left_;
    if (failed()) {
      return;
    }
    if (barriers_[0].arrived > 0) {
      note(Fault::divergent_barrier,
           thread,
           0,
           "leaves the kernel, but threads wait at the block's barrier");
    }
  }

  /// No thread can go on. Fails the block, so that all can leave. Where a warp's call lacks a lane, that is the fault, even
  /// if the lane waits at a barrier.
  void stuck()
  {
    Fault fault = Fault::divergent_barrier;
    std::int32_t first = -1;
    for (std::int32_t thread = 0; thread < threads_; ++thread) {
      Place const& place = places_[static_cast<std::size_t>(thread)];
      if (place.state == State::barrier && first < 0) {
        first = thread;
      }
    }
    for (std::int32_t thread = threads_ - 1; thread >= 0; --thread) {
      if (places_[static_cast<std::size_t>(thread)].state == State::meeting) {
        fault = Fault::absent_lane;
        first = thread;
      }
    }
    note(fault,
         first,
         places_[static_cast<std::size_t>(first)].barrier,
         "waits, and no thread can go on");
  }

  /// The kernel threw. The first error stays.
  void threw(std::exception_ptr const& error)
  {
    Locked const locked(*engine_);
    if (!failed()) {
      failure_ = error;
      failed_.store(true, std::memory_order_relaxed);
      wake_all();
    }
  }
  /// For faults that a thread finds outside any call above.
  [[noreturn]] void report(Fault fault, std::int32_t thread, std::string const& text)
  {
    Locked const locked(*engine_);
    give_up_if_failed();
    fail(fault, thread, -1, text);
  }
  /// After the last thread left.
  void check_memory()
  {
    if (!failed() && !shared_.intact()) {
      note(Fault::overrun, -1, -1, "somebody wrote before or behind the shared memory");
    }
  }

 private:
  enum class State : std::uint8_t { runs, barrier, meeting, left };
  struct Place {
    State state = State::runs;
    std::int32_t barrier = -1;
    std::uint32_t mask = 0;
    Call call = Call::sync;
    friend bool operator==(Place const&, Place const&) = default;
  };
  // What orders memory has a key for each use. A thread may be slow to leave one use while another comes to a later one: it
  // must not see what that one did in between, hence several.
  struct Barrier {
    std::int32_t count = 0;
    std::int32_t arrived = 0;
    std::uint32_t generation = 0;
    std::vector<std::uint32_t> came{};  // a word of lanes for each warp
    std::array<std::byte, 8> keys{};
  };
  class Locked {
   public:
    explicit Locked(Engine& engine) : engine_(engine) { engine_.lock(); }
    ~Locked() { engine_.unlock(); }
    Locked(Locked const&) = delete;
    Locked& operator=(Locked const&) = delete;

   private:
    Engine& engine_;
  };

  static std::size_t warp_of(std::int32_t thread) { return static_cast<std::size_t>(thread) / 32; }
  static std::size_t lane_of(std::int32_t thread) { return static_cast<std::size_t>(thread) % 32; }
  static std::uint32_t lane_bit(std::int32_t thread) { return 1U << lane_of(thread); }

  void wait(std::int32_t thread, Place const& place)
  {
    Place& mine = places_[static_cast<std::size_t>(thread)];
    mine = place;
    engine_->wait(thread);
    mine.state = State::runs;
    give_up_if_failed();
  }

  void complete(std::int32_t thread, std::int32_t number)
  {
    Barrier& barrier = barriers_[static_cast<std::size_t>(number)];
    for (std::size_t w = 0; w < warps_.size(); ++w) {
      if (barrier.came[w] != 0 && barrier.came[w] != all) {
        fail(Fault::barrier_count,
             thread,
             number,
             "completes barrier " + std::to_string(number) + ", but of warp " + std::to_string(w) +
               " only a part has come: barriers count whole warps");
      }
    }
    ++barrier.generation;
    barrier.arrived = 0;
    for (std::size_t w = 0; w < warps_.size(); ++w) {
      if (barrier.came[w] != 0) {
        engine_->wake(static_cast<std::int32_t>(w), barrier.came[w]);
        barrier.came[w] = 0;
      }
    }
  }

  void check(std::int32_t thread, Offer const& offer, WarpCalls const& warp)
  {
    if ((offer.mask & lane_bit(thread)) == 0) {
      fail(Fault::bad_argument, thread, -1, "makes a call whose mask leaves out the caller");
    }
    if ((offer.mask & warp.left()) != 0) {
      fail(Fault::absent_lane,
           thread,
           -1,
           "names lane " + std::to_string(std::countr_zero(offer.mask & warp.left())) +
             ", which has left the kernel");
    }
    if (offer.call == Call::shuffle &&
        (offer.from < 0 || offer.from > 31 || (offer.mask >> offer.from & 1) == 0)) {
      fail(Fault::bad_argument,
           thread,
           -1,
           "shuffles from lane " + std::to_string(offer.from) + ", which the mask leaves out");
    }
  }

  void give_up_if_failed() const
  {
    if (failed()) {
      throw Unwind{};
    }
  }
  [[noreturn]] void fail(Fault fault,
                         std::int32_t thread,
                         std::int32_t barrier,
                         std::string const& text)
  {
    note(fault, thread, barrier, text);
    throw Unwind{};
  }
  void note(Fault fault, std::int32_t thread, std::int32_t barrier, std::string const& text)
  {
    if (failed()) {
      return;
    }
    std::string all_text = "block " + std::to_string(index_) + ": ";
    if (thread >= 0) {
      all_text += "thread " + std::to_string(thread) + " ";
    }
    all_text += text + where_all_are();
    failure_ = std::make_exception_ptr(KernelError(fault, index_, thread, barrier, all_text));
    failed_.store(true, std::memory_order_relaxed);
    wake_all();
  }
  /// Every thread that waits will find the failure.
  void wake_all()
  {
    for (std::size_t w = 0; w < warps_.size(); ++w) {
      std::uint32_t lanes = 0;
      for (std::size_t lane = 0; lane < 32; ++lane) {
        State const state = places_[w * 32 + lane].state;
        lanes |= (state == State::barrier || state == State::meeting ? 1U : 0U) << lane;
      }
      if (lanes != 0) {
        engine_->wake(static_cast<std::int32_t>(w), lanes);
      }
    }
  }

  /// "; threads 0-31 wait at barrier 0, 32 of 64 came; ..."
  [[nodiscard]] std::string where_all_are() const
  {
    std::string out;
    for (std::int32_t first = 0; first < threads_;) {
      Place const& place = places_[static_cast<std::size_t>(first)];
      std::int32_t last = first;
      while (last + 1 < threads_ && places_[static_cast<std::size_t>(last) + 1] == place) {
        ++last;
      }
      out += "; thread " + std::to_string(first);
      if (last > first) {
        out += " to " + std::to_string(last);
      }
      out += describe(place);
      first = last + 1;
    }
    return out;
  }
  [[nodiscard]] std::string describe(Place const& place) const
  {
    static constexpr char const* calls[] = {"sync", "shuffle", "vote", "exchange"};
    switch (place.state) {
      case State::runs:
        return " on the way";
      case State::left:
        return " left the kernel";
      case State::meeting: {
        char mask[16];
        std::snprintf(mask, sizeof mask, "%#010x", place.mask);
        return std::string(" in a warp's ") + calls[static_cast<std::size_t>(place.call)] +
               " of lanes " + mask;
      }
      case State::barrier:
        break;
    }
    Barrier const& barrier = barriers_[static_cast<std::size_t>(place.barrier)];
    return " at barrier " + std::to_string(place.barrier) + ", where " +
           std::to_string(barrier.arrived) + " of " + std::to_string(barrier.count) + " came";
  }

  static constexpr std::uint32_t all = 0xffffffffU;

  std::int32_t threads_;
  std::int32_t blocks_;
  std::int32_t index_ = 0;
  std::int32_t left_ = 0;
  GuardedMemory shared_;
  std::vector<Place> places_;
  std::vector<WarpCalls> warps_;
  std::array<Barrier, 16> barriers_{};
  Engine* engine_ = nullptr;
  std::atomic<bool> failed_{false};  // threads ask without the lock
  std::exception_ptr failure_{};
};

}  // namespace simt
