// SPDX-License-Identifier: Apache-2.0
// B-001. Ranks whose look-ups have different secrets agree on everything but the reasons for misses: on ids, plans, digests and events.
// KVCACHE_SEEDS_OPS sets how many random operations (default 30,000; before a release 1,000,000).
#include <kvcache/control/plan_bytes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/plane.hpp"
#include "support/random.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

/// Draws calls and makes each on both planes; any answer that differs ends it.
class Ranks {
 public:
  Ranks(std::uint64_t seed, std::optional<std::uint64_t> one, std::optional<std::uint64_t> other)
      : random_(seed), a_(make(one)), b_(make(other))
  {
  }

  bool run(std::uint64_t operations)
  {
    for (std::uint64_t i = 0; i < operations && same_; ++i) {
      step();
      if (i % 64 == 0) {
        look();
      }
    }
    look();
    return same_;
  }
  [[nodiscard]] Stats stats() const { return a_.stats(); }
  [[nodiscard]] std::uint64_t num_events() const { return next_event_; }
  [[nodiscard]] bool healthy() const { return a_.check_invariants() && b_.check_invariants(); }

 private:
  static Plane make(std::optional<std::uint64_t> seed)
  {
    return make_plane({.pages = 48,
                       .page_tokens = 4,
                       .max_sequences = 8,
                       .max_step_tokens = 64,
                       .event_capacity = 128,
                       .seed = seed});
  }

  template <class F>
  auto both(F&& f)
  {
    auto x = f(a_);
    auto y = f(b_);
    same_ = same_ && static_cast<bool>(x) == static_cast<bool>(y);
    return x;
  }
  template <class F>
  auto both_equal(F&& f)
  {
    auto x = f(a_);
    auto y = f(b_);
    same_ = same_ && static_cast<bool>(x) == static_cast<bool>(y) && (!x || *x == *y);
    return x;
  }

  Domain domain()
  {
    std::uint32_t const kind = random_.below(8);
    if (kind == 0) {
      return {};
    }
    salt_ = kind < 6 ? "tenant " + std::to_string(random_.below(4))
                     : "request " + std::to_string(++requests_);
    return Domain({.model = {}, .weights = {}, .salt = salt_, .adapters = {}});
  }
  /// One of three texts, from its `from`-th token on, with a slip here and there.
  Tokens text(Index from = 0)
  {
    Tokens out(random_.between(1, 40));
    Token const start = static_cast<Token>(random_.below(3)) + from;
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = random_.below(60) == 0 ? static_cast<Token>(random_.below(50))
                                      : start + static_cast<Token>(i);
    }
    return out;
  }
  std::size_t any(std::size_t size) { return random_.below(static_cast<std::uint32_t>(size)); }

  void step()
  {
    std::uint32_t const call = random_.below(100);
    if (call < 18) {
      open();
    } else if (call < 34) {
      close();
    } else if (call < 64) {
      add();
    } else if (call < 84) {
      end();
    } else {
      rest(call);
    }
  }
  void open()
  {
    Domain const in = domain();
    Tokens const prompt = text();
    Media const picture({.digest = "p" + std::to_string(random_.below(9))});
    bool const sees = prompt.size() > 12 && random_.below(4) == 0;
    MediaSpan const span{.item = &picture, .first = 3, .rows = 6, .atomic = random_.below(2) == 0};
    Prompt const p{.tokens = prompt,
                   .domain = &in,
                   .media = sees ? std::span(&span, 1) : std::span<MediaSpan const>{}};
    Hit const x = a_.probe(p);
    Hit const y = b_.probe(p);
    same_ = same_ && x.rows == y.rows && x.new_pages == y.new_pages;
    if (auto const id = both_equal([&](Plane& plane) { return plane.open(p); })) {
      ids_.push_back(*id);
    }
    same_ = same_ && a_.domain_id(in) == b_.domain_id(in);
  }
  void close()
  {
    if (!ids_.empty()) {
      std::size_t const at = any(ids_.size());
      (void)both([&](Plane& plane) { return plane.close(ids_[at]); });
      ids_.erase(ids_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  void add()
  {
    if (!open_) {
      if (auto const id = both_equal([](Plane& plane) { return plane.begin(); })) {
        open_ = *id;
      }
    }
    if (open_ && !ids_.empty()) {
      SequenceId const id = ids_[any(ids_.size())];
      auto const info = a_.info(id);
      Tokens tokens = text(info ? info->planned : 0);
      tokens.resize(std::min<std::size_t>(tokens.size(), random_.between(1, 12)));
      bool const draft = random_.below(4) == 0;
      (void)both_equal(
        [&](Plane& plane) { return plane.add(*open_, id, {.tokens = tokens, .draft = draft}); });
    }
  }
  void end()
  {
    std::uint32_t const how = random_.below(8);
    if (open_ && how == 0) {
      (void)both([&](Plane& plane) { return plane.drop(*open_); });
      open_.reset();
    } else if (open_) {
      bool const submitted = static_cast<bool>(both([&](Plane& p) { return p.submit(*open_); }));
      if (submitted) {
        std::vector<std::byte> x;
        std::vector<std::byte> y;
        same_ = same_ && serialise(a_.plan(*open_), x) && serialise(b_.plan(*open_), y) && x == y;
        flying_.push_back(*open_);
        open_.reset();
      }
    }
    if (!flying_.empty() && (how > 3 || flying_.size() == 2)) {
      StepId const id = flying_.front();
      flying_.erase(flying_.begin());
      if (how == 5) {
        (void)both([&](Plane& plane) { return plane.fail(id); });
        flying_.clear();  // what ran after it is gone too, or is failed by itself below
        for (std::uint64_t later = id.value + 1; later < id.value + 4; ++later) {
          if (!open_ || open_->value != later) {
            (void)both([&](Plane& plane) { return plane.fail(StepId{later}); });
          }
        }
      } else {
        (void)both([&](Plane& plane) { return plane.commit(id); });
      }
    }
  }
  void rest(std::uint32_t call)
  {
    if (call == 99) {
      Domain const in = domain();
      a_.forget(in);
      b_.forget(in);
      return;
    }
    if (call > 95) {
      Domain const in = domain();
      Tokens const prefix = text();
      if (auto const pin = both_equal(
            [&](Plane& plane) { return plane.pin({.tokens = prefix, .domain = &in}); })) {
        pins_.push_back(*pin);
      }
      if (pins_.size() > 2) {
        (void)both([&](Plane& plane) { return plane.unpin(pins_.front()); });
        pins_.erase(pins_.begin());
      }
      return;
    }
    if (ids_.empty()) {
      return;
    }
    SequenceId const id = ids_[any(ids_.size())];
    if (call < 88) {
      if (auto const made = both_equal([&](Plane& plane) { return plane.fork(id); })) {
        ids_.push_back(*made);
      }
    } else if (call < 90) {
      Index const length = static_cast<Index>(random_.below(40));
      (void)both_equal([&](Plane& plane) { return plane.truncate(id, length); });
    } else if (call < 93) {
      (void)both([&](Plane& plane) { return plane.suspend(id); });
    } else {
      (void)both([&](Plane& plane) { return plane.resume(id); });
    }
  }

  /// Digests, tables and the events since the last look.
  void look()
  {
    same_ = same_ && a_.digest() == b_.digest() && a_.events().next() == b_.events().next();
    std::uint64_t number = std::max(next_event_, a_.events().oldest());
    for (; same_ && number < a_.events().next(); ++number) {
      Event const x = a_.events().at(number);
      Event const y = b_.events().at(number);
      same_ = x.kind == y.kind && x.domain == y.domain && x.page == y.page &&
              x.parent == y.parent &&
              std::equal(x.tokens.begin(), x.tokens.end(), y.tokens.begin(), y.tokens.end());
    }
    next_event_ = number;
    for (SequenceId const id : ids_) {
      auto const x = a_.table(id);
      auto const y = b_.table(id);
      same_ = same_ && std::equal(x.begin(), x.end(), y.begin(), y.end());
    }
  }

  Random random_;
  Plane a_;
  Plane b_;
  std::vector<SequenceId> ids_;
  std::vector<PinId> pins_;
  std::optional<StepId> open_;
  std::vector<StepId> flying_;
  std::uint64_t next_event_ = 1;
  std::uint64_t requests_ = 0;
  std::string salt_;
  bool same_ = true;
};

}  // namespace

TEST_CASE("Seeds: ranks with different secrets, given or drawn, agree over random calls",
          "[control][seeds]")
{
  std::uint64_t const wanted = number_from("KVCACHE_SEEDS_OPS").value_or(30'000);
  std::uint64_t const seed = 20261130;
  CAPTURE(seed, wanted);
  Ranks given(seed, 1, 0x123456789abcdefULL);
  CHECK(given.run(wanted / 2));
  CHECK(given.healthy());
  Ranks drawn(seed + 1, std::nullopt, std::nullopt);
  CHECK(drawn.run(wanted / 2));
  CHECK(drawn.healthy());
  if (wanted >= 20'000) {  // the run was not idle
    CHECK(given.stats().evicted_pages > 100);
    CHECK(given.stats().hit_tokens > 2000);
    CHECK(given.num_events() > 1000);
  }
}
