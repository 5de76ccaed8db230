// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A scheduler under load, whose every call into the control plane is watched for heap allocations.
///
/// More text than the pool holds: prompts of all lengths, some with a common start, decoded over many pages, one token a
/// step or a draft that is accepted in part; forks, cuts, preemptions, steps that are dropped, and two steps in flight.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/counting_new.hpp"
#include "support/plane.hpp"
#include "support/random.hpp"

namespace kvcache_test {

/// See the file comment.
class SteadyLoad {
 public:
  static constexpr kvcache::Index longest = 1024;  // rows of a sequence
  static constexpr std::size_t max_running = 24;
  enum Call : std::uint8_t {
    open_,
    fork_,
    cut_,
    close_,
    swap_,
    begin_,
    add_,
    submit_,
    end_,
    calls
  };
  static constexpr std::array<char const*, calls> names = {"open",
                                                           "fork",
                                                           "truncate",
                                                           "close",
                                                           "suspend, resume",
                                                           "begin",
                                                           "add",
                                                           "submit",
                                                           "commit, drop"};

  /// Calls `f`, and counts what it allocates.
  template <class F>
  auto watched(Call call, F&& f)
  {
    Allocations const during;
    auto result = f();
    counts_[call] += during.count();
    return result;
  }

  SteadyLoad(Plane& plane, std::uint64_t seed) : plane_(plane), random_(seed)
  {
    running_.reserve(max_running + 1);
    parked_.reserve(max_running + 1);
    accepted_.reserve(4 * max_running);
    for (Running& r : spare_) {
      r.text.reserve(longest);
      spares_.push_back(&r);
    }
  }

  /// Each slot has had a sequence of the greatest length.
  void use_all_slots()
  {
    std::vector<kvcache::Token> const text = numbers(1, longest);
    std::vector<kvcache::SequenceId> ids;
    while (ids.size() < plane_.options().max_sequences) {
      ids.push_back(kvcache_test::open(plane_, text));
    }
    for (kvcache::SequenceId const id : ids) {
      REQUIRE(plane_.close(id));
    }
  }

  void step()
  {
    arrive();
    change();
    bool const overlaps = random_.below(3) == 0;
    bool const drops = random_.below(16) == 0;
    kvcache::StepId const first = watched(begin_, [&] { return *plane_.begin(); });
    fill(first);
    if (drops) {
      watched(end_, [&] { return plane_.drop(first).has_value(); });
      settle();
      return;
    }
    std::size_t const chunks = submit(first);
    if (overlaps) {
      for (Running* r : running_) {
        r->planned = plane_.info(r->id)->planned;
      }
      kvcache::StepId const second = watched(begin_, [&] { return *plane_.begin(); });
      fill(second);
      std::size_t const more = submit(second);
      commit(first, chunks, false);
      commit(second, more, true);
    } else {
      commit(first, chunks, true);
    }
    settle();
  }

  [[nodiscard]] std::uint64_t count(Call call) const { return counts_[call]; }
  void forget_counts() { counts_ = {}; }
  std::uint64_t shortages = 0;
  std::uint64_t opened = 0;
  std::uint64_t forked = 0;
  std::uint64_t suspended = 0;

 private:
  struct Running {
    kvcache::SequenceId id{};
    std::vector<kvcache::Token> text;  // what it will say, more of it than it has said
    kvcache::Index end = 0;            // rows that it wants
    kvcache::Index planned = 0;
  };

  Running* fresh()
  {
    Running* const r = spares_.back();
    spares_.pop_back();
    return r;
  }
  void write(Running& r, std::size_t from, std::uint32_t family)
  {
    r.text.resize(from);
    while (r.text.size() < static_cast<std::size_t>(longest)) {
      auto const i = static_cast<kvcache::Token>(r.text.size());
      bool const common = family < 4 && i < static_cast<kvcache::Token>(100 * (family + 1));
      r.text.push_back(common ? static_cast<kvcache::Token>(family) * 1000 + i
                              : static_cast<kvcache::Token>(random_.below(50'000)));
    }
  }

  void arrive()
  {
    while (running_.size() + parked_.size() < max_running && random_.below(2) == 0) {
      Running* const r = fresh();
      write(*r, 0, random_.below(8));
      std::size_t const prompt = random_.between(1, random_.below(4) == 0 ? 800 : 200);
      r->end =
        static_cast<kvcache::Index>(prompt) + static_cast<kvcache::Index>(random_.below(200));
      std::span<kvcache::Token const> const tokens(r->text.data(), prompt);
      r->id = watched(open_, [&] { return *plane_.open({.tokens = tokens}); });
      running_.push_back(r);
      ++opened;
    }
  }

  /// Sometimes a fork, a cut, a return of one that was preempted.
  void change()
  {
    if (!running_.empty() && running_.size() + parked_.size() < max_running &&
        random_.below(8) == 0) {
      Running const& from = *any();
      Running* const r = fresh();
      r->text = from.text;  // within its reserve
      r->end = from.end;
      r->id = watched(fork_, [&] { return *plane_.fork(from.id); });
      write(*r, static_cast<std::size_t>(plane_.info(r->id)->length), 9);
      running_.push_back(r);
      ++forked;
    }
    if (!running_.empty() && random_.below(8) == 0) {
      Running& r = *any();
      auto const to = static_cast<kvcache::Index>(
        random_.below(static_cast<std::uint32_t>(plane_.info(r.id)->length) + 1));
      kvcache::Index const kept = watched(cut_, [&] { return *plane_.truncate(r.id, to); });
      write(r, static_cast<std::size_t>(kept), 9);
    }
    if (!parked_.empty() && random_.below(4) == 0) {
      Running* const r = parked_.back();
      parked_.pop_back();
      watched(swap_, [&] { return plane_.resume(r->id).has_value(); });
      running_.push_back(r);
    }
    for (Running* r : running_) {
      r->planned = plane_.info(r->id)->length;
    }
  }
  Running* any() { return running_[random_.below(static_cast<std::uint32_t>(running_.size()))]; }

  void fill(kvcache::StepId step)
  {
    kvcache::Index budget = 512;
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      Running& r = *running_[i];
      kvcache::Index const left = r.end - r.planned;
      if (left <= 0) {
        continue;
      }
      bool const draft = left < 100 && random_.below(4) == 0;
      kvcache::Index const n = draft ? (left < 4 ? left : 4) : left > 100 ? left - 100 : 1;
      kvcache::Index const rows = n < budget ? n : budget;
      std::span<kvcache::Token const> const tokens(r.text.data() + r.planned,
                                                   static_cast<std::size_t>(rows));
      bool const added = watched(add_, [&] {
        return plane_.add(step, r.id, {.tokens = tokens, .draft = draft}).has_value();
      });
      if (added) {
        budget -= rows;
      } else {
        ++shortages;
        preempt_later_ = i;
      }
    }
  }

  std::size_t submit(kvcache::StepId step)
  {
    watched(submit_, [&] { return plane_.submit(step).has_value(); });
    return plane_.plan(step).chunks.size();
  }
  void commit(kvcache::StepId step, std::size_t chunks, bool last)
  {
    accepted_.clear();
    for (std::size_t i = 0; i < chunks; ++i) {
      kvcache::Index const n = plane_.plan(step).chunks[i].tokens;
      bool const whole = !last || n != 4;
      accepted_.push_back(
        whole ? n : static_cast<kvcache::Index>(random_.below(static_cast<std::uint32_t>(n) + 1)));
    }
    bool const good = watched(end_, [&] {
      return plane_.commit(step, accepted_).has_value() || plane_.commit(step).has_value();
    });
    REQUIRE(good);
  }

  /// Who is done closes; where pages ran short the youngest is preempted.
  void settle()
  {
    for (std::size_t i = running_.size(); i-- > 0;) {
      Running* const r = running_[i];
      if (plane_.info(r->id)->length >= r->end) {
        watched(close_, [&] { return plane_.close(r->id).has_value(); });
        spares_.push_back(r);
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (preempt_later_ != none && !running_.empty()) {
      Running* const r = running_.back();
      running_.pop_back();
      watched(swap_, [&] { return plane_.suspend(r->id).has_value(); });
      parked_.push_back(r);
      ++suspended;
    }
    preempt_later_ = none;
  }

  static constexpr std::size_t none = ~std::size_t{0};

  Plane& plane_;
  Random random_;
  std::array<Running, max_running> spare_;
  std::vector<Running*> spares_;
  std::vector<Running*> running_;
  std::vector<Running*> parked_;
  std::vector<kvcache::Index> accepted_;
  std::array<std::uint64_t, calls> counts_{};
  std::size_t preempt_later_ = none;
};

}  // namespace kvcache_test
