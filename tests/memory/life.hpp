// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A small engine on a cache whose memory fails once, at an allocation that the test names.
///
/// Each call of the facade goes through `Life::call`. If it says `no_memory`, the cache must be what it was before, and
/// the same call, made again, must go through. Rows are stamps, so that at the end every row of every sequence is checked.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/starving.hpp"
#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/stamp.hpp"

namespace kvcache_test {

using Text = std::vector<kvcache::Token>;

inline Text range(kvcache::Token first, kvcache::Token last)
{
  Text text;
  for (kvcache::Token token = first; token <= last; ++token) {
    text.push_back(token);
  }
  return text;
}

/// The length of the name of a domain that would show in the index's bytes.
inline constexpr std::size_t long_salt = 20'000;

/// Which allocation fails, counted over all calls of a life; what happened.
struct Starvation {
  std::int64_t strike = -1;  ///< negative: none
  bool once = true;          ///< else memory stays out until the call is over
  std::int64_t seen = 0;
  int refused = 0;
  char const* call = "";  ///< the one that was struck
};

class Life {
 public:
  using Layout = kvcache::PagedHeads<float, 8, 4>;
  using Cache = kvcache::KVCache<Layout>;

  Life(kvcache::PageCount pages, Starvation& starvation) : starvation_(starvation)
  {
    auto made = call("create", [&] {
      kvcache::Options<kvcache::Policies<>> options;
      options.pages = pages;
      options.max_sequences = 8;
      options.max_step_tokens = 64;
      options.device = &device_;
      options.event_capacity = 64;
      return Cache::create({.layers = 2, .kv_heads = 2}, options);
    });
    cache_.emplace(std::move(*made));
  }
  Life(Life const&) = delete;
  Life& operator=(Life const&) = delete;
  ~Life() = default;

  // ---- sequences, by number

  int open(Text const& prompt, std::string const& salt = {}, std::uint32_t stream = 0)
  {
    kvcache::Domain const domain({.model = {}, .weights = {}, .salt = salt, .adapters = {}});
    auto opened = call("open", [&] {
      return cache_->open(
        {.tokens = prompt, .domain = &domain, .stream = kvcache::StreamId{stream}});
    });
    Text rows(prompt.begin(), prompt.begin() + opened->length());
    return enter({std::move(*opened), hash(salt), rows, rows, prompt});
  }
  int fork(int parent)
  {
    auto forked = call("fork", [&] { return cache_->fork(at(parent).handle); });
    auto const length = static_cast<std::size_t>(forked->length());
    Text rows(at(parent).rows.begin(),
              at(parent).rows.begin() + static_cast<std::ptrdiff_t>(length));
    return enter({std::move(*forked), at(parent).domain, rows, rows, {}});
  }
  void truncate(int s, kvcache::Index length)
  {
    auto const kept = call("truncate", [&] { return cache_->truncate(at(s).handle, length); });
    cut(at(s), *kept);
  }
  void suspend(int s)
  {
    (void)call("suspend", [&] { return cache_->suspend(at(s).handle); });
    at(s).kept = at(s).rows;
    cut(at(s), 0);
  }
  void resume(int s)
  {
    auto const hit = call("resume", [&] { return cache_->resume(at(s).handle); });
    at(s).rows = Text(at(s).kept.begin(), at(s).kept.begin() + hit->rows);
    at(s).device = at(s).rows;
    at(s).prompt = at(s).kept;
  }
  /// **Pre** all sequences are open and idle.
  void reorder(std::vector<kvcache::Index> const& parents)
  {
    std::vector<kvcache::Sequence> handles;
    for (Known& known : known_) {
      handles.push_back(std::move(known.handle));
    }
    (void)call("reorder", [&] { return cache_->reorder(handles, parents); });
    std::deque<Known> next;
    for (std::size_t i = 0; i < parents.size(); ++i) {
      Known const& parent = at(parents[i]);
      next.push_back({std::move(handles[i]), parent.domain, parent.rows, parent.rows, {}});
    }
    known_ = std::move(next);
  }
  void pin(Text const& prefix)
  {
    kvcache::Domain const domain({.model = {}, .weights = {}, .salt = "", .adapters = {}});
    auto pinned = call("pin", [&] { return cache_->pin({.tokens = prefix, .domain = &domain}); });
    pins_.push_back(std::move(*pinned));
  }
  void unpin()
  {
    quietly([&] { pins_.back().let_go(); });
    pins_.pop_back();
  }
  void close(int s)
  {
    quietly([&] { at(s).handle.close(); });
    cut(at(s), 0);
  }
  void forget(std::string const& salt = {})
  {
    kvcache::Domain const domain({.model = {}, .weights = {}, .salt = salt, .adapters = {}});
    quietly([&] { cache_->forget(domain); });
  }
  /// What its prompt still lacks.
  [[nodiscard]] Text rest(int s)
  {
    Text const& prompt = at(s).prompt;
    return {prompt.begin() + static_cast<std::ptrdiff_t>(at(s).rows.size()), prompt.end()};
  }
  [[nodiscard]] Text const& rows(int s) { return at(s).rows; }

  // ---- steps, oldest first

  struct Piece {
    int sequence;
    Text tokens;
    kvcache::Index count = 0;
    bool draft = false;
    kvcache::Index accepted = -1;           ///< of a draft
    std::vector<kvcache::Index> parents{};  ///< of a tree
    std::vector<kvcache::Index> path{};     ///< of it: what is accepted
  };

  /// One step, added piece by piece. Returns its place among the steps in flight.
  void plan(std::vector<Piece> const& pieces, std::uint32_t stream = 0)
  {
    begin(stream);
    for (Piece const& piece : pieces) {
      add(piece);
    }
    submit();
  }
  void begin(std::uint32_t stream = 0)
  {
    auto begun = call("begin", [&] { return cache_->begin({.number = stream}, {.attach = true}); });
    steps_.push_back({std::move(*begun), {}});
  }
  void add(Piece const& piece)
  {
    Flight& flight = steps_.back();
    auto const added = call("add", [&] {
      return flight.step.add(at(piece.sequence).handle,
                             {piece.tokens, piece.count, piece.draft, piece.parents});
    });
    flight.pieces.push_back(
      {piece, at(piece.sequence).handle.id(), at(piece.sequence).epoch, *added, {}});
  }
  void submit()
  {
    (void)call("submit", [&] { return steps_.back().step.submit(); });
  }
  /// All pieces in one call.
  void prepare(std::vector<Piece> const& pieces)
  {
    std::vector<Cache::SequenceChunk> chunks;
    for (Piece const& piece : pieces) {
      chunks.push_back(
        {at(piece.sequence).handle, piece.tokens, piece.count, piece.draft, piece.parents});
    }
    auto step = call("prepare", [&] { return cache_->prepare(chunks, {}, {.attach = true}); });
    std::vector<Planned> planned;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Known const& known = at(pieces[i].sequence);
      planned.push_back({pieces[i], known.handle.id(), known.epoch, 0, {}});
      for (kvcache::PlannedChunk const& chunk : step->plan().chunks) {
        planned[i].rows = chunk.sequence == planned[i].id ? chunk.tokens : planned[i].rows;
      }
    }
    steps_.push_back({std::move(*step), std::move(planned)});
  }
  /// Takes the newest step back, or fails it where it was submitted.
  void drop()
  {
    quietly([&] { Cache::Step const gone(std::move(steps_.back().step)); });
    steps_.pop_back();
    after_failure();
  }
  /// Fails the oldest step.
  void fail()
  {
    quietly([&] { Cache::Step const gone(std::move(steps_.front().step)); });
    steps_.pop_front();
    after_failure();
  }
  /// The kernels of the `i`-th step in flight.
  void run(std::size_t i = 0)
  {
    Flight& flight = steps_[i];
    auto const view = flight.step.view();
    base_ = view.segment.base;
    kvcache::Index c = 0;
    for (Planned& planned : flight.pieces) {
      Known& known = at(planned.piece.sequence);
      bool const live = known.epoch == planned.epoch;
      Text& device = known.device;
      Text tokens = planned.piece.tokens;
      for (kvcache::Index k = 0; k < planned.piece.count; ++k) {
        tokens.push_back(static_cast<kvcache::Token>(device.size()) + k);
      }
      auto const attached = tokens.size() - static_cast<std::size_t>(planned.rows);
      Text text = device;
      text.insert(text.end(), tokens.begin(), tokens.end());
      auto stamps = stamps_of(known.domain, 0, text);
      auto const first = device.size() + attached;
      for (std::size_t k = 0; k < planned.piece.parents.size(); ++k) {
        kvcache::Index const parent = planned.piece.parents[k];
        Stamp const before = parent >= 0 ? stamps[first + static_cast<std::size_t>(parent)]
                             : first > 0 ? stamps[first - 1]
                                         : stamp_start(known.domain);
        stamps[first + k] = stamp_next(before, tokens[k]);
      }
      bool const in_plan =
        planned.rows > 0 && c < view.num_chunks() &&
        flight.step.plan().chunks[static_cast<std::size_t>(c)].sequence == planned.id;
      if (in_plan) {
        kvcache::ChunkView const chunk = view.chunk(c);
        for (kvcache::Index k = 0; k < chunk.tokens; ++k) {
          if (live) {
            REQUIRE(view.index(chunk.first_token + k) == static_cast<kvcache::Index>(first) + k);
          }
          for (std::int32_t lh = 0; lh < 4; ++lh) {
            append_stamp(view,
                         lh / 2,
                         lh % 2,
                         chunk.first_token + k,
                         live ? stamps[first + static_cast<std::size_t>(k)] : 0);
          }
        }
        planned.in_plan = true;
        ++c;
      }
      kvcache::Index const accepted = planned.piece.accepted < 0 ? planned.rows
                                      : planned.piece.accepted < planned.rows
                                        ? planned.piece.accepted
                                        : planned.rows;
      planned.names.assign(text.begin() + static_cast<std::ptrdiff_t>(first),
                           text.begin() + static_cast<std::ptrdiff_t>(first) + accepted);
      if (!planned.piece.parents.empty()) {
        planned.names.clear();
        for (kvcache::Index const k : planned.piece.path) {
          planned.names.push_back(tokens[static_cast<std::size_t>(k)]);
        }
        text.resize(first);
        text.insert(text.end(), planned.names.begin(), planned.names.end());
        if (live) {
          device = text;
        }
        continue;
      }
      if (live) {
        text.resize(first + static_cast<std::size_t>(accepted));
        device = text;
      }
    }
  }
  /// The oldest step is over.
  void commit()
  {
    Flight& flight = steps_.front();
    std::vector<kvcache::Outcome> outcomes;
    for (Planned const& planned : flight.pieces) {
      kvcache::Outcome outcome;
      if (planned.in_plan) {
        outcome.accepted = static_cast<kvcache::Index>(planned.names.size());
        if (planned.piece.count > 0) {
          outcome.tokens = planned.names;
        }
        outcome.path = planned.piece.path;
      }
      outcomes.push_back(outcome);
    }
    (void)call("commit", [&] { return flight.step.commit(outcomes); });
    for (Planned const& planned : flight.pieces) {
      Known& known = at(planned.piece.sequence);
      if (known.epoch == planned.epoch) {
        auto const length = static_cast<std::size_t>(known.handle.length());
        REQUIRE(length <= known.device.size());
        known.rows =
          Text(known.device.begin(), known.device.begin() + static_cast<std::ptrdiff_t>(length));
      }
    }
    steps_.pop_front();
  }
  void finish()
  {
    run();
    commit();
  }
  /// Computes what the prompt lacks.
  void prefill(int s)
  {
    plan({{.sequence = s, .tokens = rest(s)}});
    finish();
    REQUIRE(rows(s) == at(s).prompt);
  }

  // ---- truth

  /// Every row of every sequence holds its stamp.
  void check_rows()
  {
    RawRows<float> const raw{.base = base_, .layers = 2, .heads = 2, .dim = 8, .page_tokens = 4};
    for (Known const& known : known_) {
      auto const stamps = stamps_of(known.domain, 0, known.rows);
      auto const pages = cache_->pages(known.handle);
      REQUIRE(known.handle.length() == static_cast<kvcache::Index>(known.rows.size()));
      for (std::size_t i = 0; i < stamps.size(); ++i) {
        REQUIRE(i / 4 < pages.size());
        REQUIRE(raw.row_is(pages[i / 4], static_cast<std::int32_t>(i % 4), stamps[i]));
      }
    }
  }
  /// Rows right, everything closed, every page and every byte given back.
  void end()
  {
    REQUIRE(steps_.empty());
    check_rows();
    for (std::size_t s = 0; s < known_.size(); ++s) {
      close(static_cast<int>(s));
    }
    check_sound();
    REQUIRE(cache_->stats().held == 0);
    known_.clear();
    pins_.clear();
    arm();
    cache_.reset();
    disarm();
    REQUIRE(blocks_ == 0);
    REQUIRE(device_.live_blocks() + device_.staging_blocks() == 0);
    REQUIRE(device_.wrong_frees == 0);
  }
  [[nodiscard]] kvcache::Stats stats() const { return cache_->stats(); }
  [[nodiscard]] Cache& cache() { return *cache_; }

 private:
  struct Known {
    kvcache::Sequence handle;
    std::uint64_t domain;
    Text rows;    // committed
    Text device;  // and those that the steps in flight wrote and accept
    Text prompt;
    Text kept{};    // while it is suspended
    int epoch = 0;  // rises when what it has in flight counts for nobody any more
  };
  struct Planned {
    Piece piece;
    kvcache::SequenceId id;
    int epoch;
    kvcache::Index rows;
    Text names;
    bool in_plan = false;
  };
  struct Flight {
    Cache::Step step;
    std::vector<Planned> pieces;
  };
  struct Picture {
    std::uint64_t digest = 0;
    kvcache::Stats stats;
  };

  [[nodiscard]] static std::uint64_t hash(std::string const& salt) { return salt.size(); }
  [[nodiscard]] Known& at(int s) { return known_[static_cast<std::size_t>(s)]; }
  int enter(Known known)
  {
    known_.push_back(std::move(known));
    return static_cast<int>(known_.size()) - 1;
  }
  static void cut(Known& known, kvcache::Index length)
  {
    auto const n = static_cast<std::size_t>(length);
    known.rows.resize(n < known.rows.size() ? n : known.rows.size());
    known.device = known.rows;
    known.epoch += 1;
  }
  /// Rows in flight of those that fell back are gone.
  void after_failure()
  {
    for (kvcache::Cut const& fallen : cache_->cuts()) {
      for (Known& known : known_) {
        if (known.handle.id() == fallen.sequence) {
          cut(known, fallen.length);
        }
      }
    }
    check_sound();
  }

  [[nodiscard]] Picture picture() const
  {
    return cache_ ? Picture{cache_->digest(), cache_->stats()} : Picture{};
  }
  void check_sound() const
  {
    kvcache::Report const report = cache_->check_invariants();
    INFO((report ? "" : report.broken));
    REQUIRE(static_cast<bool>(report));
  }
  void check_same(char const* name, Picture const& before, std::int64_t kept_blocks) const
  {
    if (!cache_) {
      REQUIRE(device_.live_blocks() + device_.staging_blocks() == 0);
      REQUIRE(kept_blocks == 0);
      return;
    }
    check_sound();
    Picture now = picture();
    // A span may have been split where the call would have ended one, and an array of the index may have grown: same
    // pages, same order, and the next call needs less. A domain that was named stays out.
    REQUIRE(now.stats.index_bytes < before.stats.index_bytes + long_salt);
    now.stats.tree_spans = before.stats.tree_spans;
    now.stats.index_bytes = before.stats.index_bytes;
    if (!starvation_.once && std::string(name) == "prepare") {
      // Its step is dropped without any memory: what was evicted for it may stay free.
      REQUIRE(now.stats.free + now.stats.cached == before.stats.free + before.stats.cached);
      return;
    }
    REQUIRE(now.digest == before.digest);
    REQUIRE(now.stats == before.stats);
  }

  void arm()
  {
    std::int64_t const left = starvation_.strike - starvation_.seen;
    counted_ = allocations;
    blocks_ -= blocks_in_use;
    ran_out = false;
    stays_out = !starvation_.once;
    allocations_left = starvation_.strike >= 0 && left >= 0 ? left : -1;
  }
  void disarm()
  {
    allocations_left = -1;
    blocks_ += blocks_in_use;
    starvation_.seen += static_cast<std::int64_t>(allocations - counted_);
  }
  /// A call that cannot fail.
  template <class Call>
  void quietly(Call const& body)
  {
    arm();
    body();
    disarm();
    check_sound();
  }
  template <class Call>
  std::invoke_result_t<Call const&> call(char const* name, Call const& body)
  {
    for (int attempt = 0;; ++attempt) {
      Picture const before = picture();
      arm();
      auto result = body();
      disarm();
      if (ran_out) {
        starvation_.call = name;
      }
      CAPTURE(name, starvation_.strike, starvation_.once);
      if (result.has_value() || result.error().why != kvcache::Why::no_memory) {
        std::string const said = result.has_value() ? "" : kvcache::name(result.error().why);
        CAPTURE(said);
        REQUIRE(result.has_value());
        if (cache_) {
          check_sound();
        }
        return result;
      }
      REQUIRE(ran_out);
      REQUIRE(attempt == 0);
      starvation_.refused += 1;
      check_same(name, before, blocks_);
    }
  }

  Starvation& starvation_;
  CountingDevice device_;
  std::optional<Cache> cache_;
  std::deque<Known> known_;
  std::deque<Flight> steps_;
  std::vector<kvcache::Pin> pins_;
  std::byte const* base_ = nullptr;
  std::uint64_t counted_ = 0;  // of all allocations, when the call began
  std::int64_t blocks_ = 0;    // that the cache has and not given back
};

}  // namespace kvcache_test
