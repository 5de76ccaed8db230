// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Two control planes fed the same calls, a device beside them, and the check of every row.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/domain.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/flights_device.hpp"
#include "model/flights_media.hpp"
#include "model/flights_mirror.hpp"
#include "model/flights_operation.hpp"
#include "model/naive.hpp"
#include "support/either_policy.hpp"

namespace kvcache_test {

/// What happened, so that a test can tell that it was not idle.
struct FlightTally {
  std::uint64_t operations = 0, adds = 0, refused = 0, attached_rows = 0, hit_rows = 0, copies = 0;
  std::uint64_t commits = 0, fails = 0, cuts = 0, resumes = 0, reorders = 0;
  std::uint64_t trees = 0, moves = 0, lost = 0, pins = 0;
  std::uint64_t dead_chunks = 0, doomed = 0, attach_only = 0, pending_hits = 0;
  std::uint64_t media = 0, turns = 0, media_hits = 0, torn = 0, crowded = 0, links = 0;
  std::uint64_t ghosts = 0, between = 0;
};

/// A control plane that a test may look into.
class FlightControl
    : public kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, EitherPolicy> {
  using Plane = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, EitherPolicy>;
  using Calls = kvcache::SequenceCalls<kvcache::PageAllocator, kvcache::RadixTree, EitherPolicy>;

  struct Inside : Calls {
    static auto const& of(Calls const& calls) { return calls.*(&Inside::state_); }
    static auto& of(Calls& calls) { return calls.*(&Inside::state_); }
  };

 public:
  static constexpr std::uint32_t max_sequences = 16;

  /// So few names that they are swept, come back and run out.
  explicit FlightControl(FlightSetting const& s) : Plane(make(s))
  {
    Inside::of(*this).media = kvcache::detail::MediaTable(3 * s.page_tokens + 10, 4);
  }
  [[nodiscard]] kvcache::detail::MediaTable const& media() const { return Inside::of(*this).media; }
  [[nodiscard]] std::span<kvcache::detail::NamedSpan const> spans(kvcache::SequenceId id) const
  {
    return Inside::of(*this).find(id)->media;
  }
  [[nodiscard]] kvcache::Index planned_end(kvcache::SequenceId id) const
  {
    return Inside::of(*this).planned_end(*Inside::of(*this).find(id));
  }

  [[nodiscard]] kvcache::RadixTree const& tree() const { return Inside::of(*this).book.tree(); }
  /// A step that has not retired is to write the page.
  [[nodiscard]] bool pending(kvcache::PageId page) const
  {
    return Inside::of(*this).book.pending(page);
  }
  /// The step before the open one that has the sequence, or 0.
  [[nodiscard]] std::uint64_t step_before(kvcache::SequenceId id) const
  {
    auto const* const s = Inside::of(*this).find(id);
    return s->num_flights > 1 ? s->flights[s->num_flights - 2].step->id.value : 0;
  }
  /// Of the sequence's last rows: page and row where their bytes lie until a plan moves them.
  [[nodiscard]] std::vector<std::pair<kvcache::PageId, std::size_t>> strays(
    kvcache::SequenceId id) const
  {
    auto const& s = *Inside::of(*this).find(id);
    std::vector<std::pair<kvcache::PageId, std::size_t>> out;
    for (kvcache::Index const row : s.strays) {
      auto const at = static_cast<kvcache::PageCount>(row / options().page_tokens);
      kvcache::PageId page = s.table[at];
      for (auto const& flight : s.in_flight()) {  // a step that is being built copies the page
        auto const& c = Inside::of(*this).chunk_of(flight);
        page = c.copies() && c.copy_at == at ? c.copy_source : page;
      }
      out.emplace_back(page, static_cast<std::size_t>(row));
    }
    return out;
  }
  /// The first row that a step in flight moves, and the step; -1 where none does.
  [[nodiscard]] std::pair<kvcache::Index, kvcache::StepId> first_moved(kvcache::SequenceId id) const
  {
    for (auto const& flight : Inside::of(*this).find(id)->in_flight()) {
      auto const& chunk = Inside::of(*this).chunk_of(flight);
      if (chunk.first_moved >= 0) {
        return {chunk.first_moved, flight.step->id};
      }
    }
    return {-1, {}};
  }
  /// A step that failed took the chunk with it.
  [[nodiscard]] bool dead(kvcache::StepId step, kvcache::SequenceId id) const
  {
    for (auto const& t : Inside::of(*this).steps) {
      for (auto const& c : t.chunks) {
        if (t.id == step && c.sequence == id) {
          return c.dead;
        }
      }
    }
    return true;
  }

  /// What the plane and the pool beside it are made with.
  static kvcache::ControlOptions options_of(FlightSetting const& s)
  {
    kvcache::ControlOptions options{.pages = s.pages,
                                    .page_tokens = s.page_tokens,
                                    .max_sequences = max_sequences,
                                    .max_step_tokens = 1024,
                                    .event_capacity = 64,
                                    .seed = 1};  // so that what breaks breaks again
    require(options.complete().why == kvcache::Why::ok, "options");
    return options;
  }

 private:
  static Plane make(FlightSetting const& s)
  {
    auto made = Plane::create(options_of(s), {.prefix = {}, .replacement = {.sieve = s.sieve}});
    return std::move(*made);
  }
};

struct FlightSequence {
  kvcache::SequenceId id{};
  std::uint32_t domain = 0;
  std::uint32_t epoch = 0;  // of the domain's weights
  FlightText rest;          // of its prompt
  bool suspended = false;
  FlightText before;  // its tokens when it was suspended
  FlightSpans media;
};

/// A chunk as it was added.
struct FlightChunk {
  FlightSequence who;
  bool draft = false;
  FlightText base;  // committed rows then, unless a step before has the sequence
  std::uint64_t step_before = 0;
  FlightText attached;
  FlightText named;                     // the planned rows, where they have names
  std::vector<kvcache::Index> parents;  // of a tree
  kvcache::Index planned = 0;
  std::vector<kvcache::PageId> table;
  kvcache::PageId copy_source = kvcache::zero_page;  // what stood in the table
  kvcache::PageId copy_target = kvcache::zero_page;
};

/// What attention reads for a chunk, and what must be there.
struct FlightReads {
  std::vector<std::size_t> slots;
  std::vector<Stamp> want;
};

struct FlightStep {
  enum class Stage : std::uint8_t { open, submitted, ran };
  kvcache::StepId id{};
  std::uint32_t stream = 0;
  Stage stage = Stage::open;
  bool doomed = false;  // given up while an older one was in flight: it ends with that one
  bool lost = false;    // its plan was never applied
  std::vector<FlightChunk> chunks;
  kvcache::Plan plan;
  FlightSlots to_write;            // slots of the plan: chunks, moves, copies ...
  FlightSlots to_read;             // ... and what they read
  StreamWorld::Mark end;           // of its kernels
  std::vector<FlightReads> reads;  // once the rows are stored
  std::vector<kvcache::Outcome> outcomes;
  std::vector<FlightText> names;                   // what the outcomes point to
  std::vector<std::vector<kvcache::Index>> paths;  // likewise
  std::vector<bool> dead;                          // chunks of the plan that were, then

  [[nodiscard]] FlightChunk const* find(kvcache::SequenceId id_) const
  {
    for (FlightChunk const& chunk : chunks) {
      if (chunk.who.id == id_) {
        return &chunk;
      }
    }
    return nullptr;
  }
};

struct FlightWorld {
  FlightWorld(FlightSetting const& s, FlightTally& t)
      : setting(s), tally(t), device(FlightControl::options_of(s)), control(s), twin(s)
  {
    domains[1] = kvcache::Domain({.model = {}, .weights = {}, .salt = "x", .adapters = {}});
  }

  FlightWorld(FlightWorld const&) = delete;
  FlightWorld& operator=(FlightWorld const&) = delete;
  ~FlightWorld() { over = true; }

  FlightSetting setting;
  FlightTally& tally;
  std::string broken;           // by a kernel; what calls the device must not throw
  bool over = false;            // kernels that have not run will not
  kvcache::StepId stored_by{};  // the step whose rows were stored last
  FlightDevice device;
  FlightControl control;
  FlightControl twin;
  kvcache::Domain domains[2];
  FlightItems items;
  std::uint32_t epochs[2] = {0, 0};
  std::vector<FlightSequence> live;
  std::vector<FlightStep> steps;  // of one stream in the order of their ids
  // The rows that a sequence has after a step that ran.
  std::map<std::pair<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>>, FlightText> results;
  bool failing[2] = {false, false};  // the step of the stream that retired last failed
  std::string said;
  std::vector<kvcache::PinId> pins;
  FlightMirror mirror;

  void say(std::string const& text) { said += text; }

  /// Work of a kernel, which notes what breaks.
  template <class Work>
  void on_device(std::uint32_t stream, Work work)
  {
    device.streams.launch(
      [this, work = std::move(work)] {
        if (!over && broken.empty()) {
          broken = verdict_on([&] { work(); });
        }
      },
      device.stream(stream));
  }
  [[nodiscard]] FlightStep* find_step(kvcache::StepId id)
  {
    for (FlightStep& t : steps) {
      if (t.id == id) {
        return &t;
      }
    }
    return nullptr;
  }
  [[nodiscard]] FlightStep* open_step(std::uint32_t stream)
  {
    for (FlightStep& t : steps) {
      if (t.stream == stream && t.stage == FlightStep::Stage::open) {
        return &t;
      }
    }
    return nullptr;
  }
  [[nodiscard]] std::size_t submitted(std::uint32_t stream) const
  {
    return static_cast<std::size_t>(
      std::count_if(steps.begin(), steps.end(), [&](FlightStep const& t) {
        return t.stream == stream && t.stage != FlightStep::Stage::open;
      }));
  }
  /// The oldest step of the stream that was submitted, or null.
  [[nodiscard]] FlightStep* oldest(std::uint32_t stream)
  {
    for (FlightStep& t : steps) {
      if (t.stream == stream && t.stage != FlightStep::Stage::open) {
        return &t;
      }
    }
    return nullptr;
  }
  void erase(kvcache::StepId id)
  {
    std::erase_if(steps, [&](FlightStep const& t) { return t.id == id; });
  }
  [[nodiscard]] FlightText tokens_of(FlightSequence const& s) const
  {
    FlightText out;
    for (kvcache::Token const token : control.tokens(s.id)) {
      auto const row = static_cast<kvcache::Index>(out.size());
      out.push_back(items.symbol(control.media(), token));
      require_equal(out.back(), symbol_at(s.media, row, token), "a row has the name of another");
    }
    return out;
  }
  [[nodiscard]] FlightSequence* find(kvcache::SequenceId id)
  {
    for (FlightSequence& s : live) {
      if (s.id == id) {
        return &s;
      }
    }
    return nullptr;
  }
  /// What steps declared that took the sequences' chunks with them goes too.
  void drop_dead_spans()
  {
    for (FlightSequence& s : live) {
      drop_spans(s.media, [&](std::uint64_t step) { return control.dead({step}, s.id); });
    }
  }
  [[nodiscard]] static std::vector<Stamp> stamps(FlightSequence const& s, FlightText const& tokens)
  {
    std::vector<Stamp> out;
    Stamp stamp = stamp_start(s.domain, s.epoch);
    for (kvcache::Token const token : tokens) {
      out.push_back(stamp = stamp_next(stamp, token));
    }
    return out;
  }

  /// A step that has not run yet is to write or to copy the row.
  [[nodiscard]] bool unwritten(kvcache::PageId page, std::size_t row) const
  {
    for (FlightStep const& t : steps) {
      if (t.stage == FlightStep::Stage::ran) {
        continue;
      }
      bool found = t.to_write.test(device.slot(page, row));
      for (FlightChunk const& chunk : t.chunks) {
        found = found || (chunk.copy_target == page && page != kvcache::zero_page);
      }
      if (found) {
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] bool has_run(kvcache::StepId id) const
  {
    return std::any_of(steps.begin(), steps.end(), [&](FlightStep const& t) {
      return t.id == id && t.stage == FlightStep::Stage::ran;
    });
  }
  /// Somebody relies on what the slot holds (I3).
  [[nodiscard]] bool settled(std::size_t slot) const
  {
    std::size_t const p = device.page_tokens();
    kvcache::PageId const page{static_cast<std::uint32_t>(slot / p)};
    for (FlightSequence const& s : live) {
      auto const table = control.table(s.id);
      auto const strays = control.strays(s.id);
      for (auto const& [page_of_row, row] : strays) {
        if (device.slot(page_of_row, row) == slot) {
          return true;
        }
      }
      std::size_t rows = control.tokens(s.id).size() - strays.size();
      if (auto const [moved, by] = control.first_moved(s.id); moved >= 0 && !has_run(by)) {
        rows = std::min(rows, static_cast<std::size_t>(moved));
      }
      for (std::size_t i = 0; i < table.size(); ++i) {
        if (table[i] == page && i * p + slot % p < rows && !unwritten(page, slot % p)) {
          return true;
        }
      }
    }
    return control.tree().contains(page) && !control.pending(page);
  }

  void check()
  {
    if (!broken.empty()) {
      breaks_off(broken);
    }
    if (kvcache::Report const report = control.check_invariants(); !report) {
      breaks_off(std::string("check_invariants: ") + report.broken + " at " +
                 std::to_string(report.where));
    }
    require(control.digest() == twin.digest(), "two instances fed the same calls differ");
    for (FlightSequence const& s : live) {
      check_rows(s);
    }
    for (std::uint32_t page = 1; page <= setting.pages; ++page) {
      check_cached(kvcache::PageId{page});
    }
    mirror.follow(control.events());
    FlightMirror stored;
    control.for_each_stored([&](kvcache::Event const& event) { stored.apply(event); });
    require(mirror.pages == stored.pages, "a follower of the events mirrors another tree");
    kvcache::Stats const stats = control.stats();
    require_equal(stats.free + stats.held + stats.cached, setting.pages, "I1: sum of pages");
  }

 private:
  void check_rows(FlightSequence const& s)
  {
    if (s.suspended) {
      require(control.table(s.id).empty(), "a suspended sequence has pages");
      return;
    }
    auto const spans = control.spans(s.id);
    require(std::equal(spans.begin(),
                       spans.end(),
                       s.media.begin(),
                       s.media.end(),
                       [](auto const& a, FlightMedia const& b) {
                         return a.first == b.first && a.rows == b.rows && a.atomic == b.atomic;
                       }),
            "a sequence has other media than were declared");
    auto const table = control.table(s.id);
    auto const want = stamps(s, tokens_of(s));
    require(torn(s.media, static_cast<kvcache::Index>(want.size())) == nullptr &&
              torn(s.media, control.planned_end(s.id)) == nullptr,
            "a sequence ends inside an atomic span");
    auto const strays = control.strays(s.id);
    std::size_t const in_place = want.size() - strays.size();
    for (std::size_t i = 0; i < strays.size(); ++i) {
      require(device.at(device.slot(strays[i].first, strays[i].second)) == want[in_place + i],
              "STAMP: a row of an accepted path is wrong before it is moved");
    }
    for (std::size_t row = 0; row < in_place; ++row) {
      kvcache::PageId const page = table[row / device.page_tokens()];
      require(unwritten(page, row) || device.at(device.slot(page, row)) == want[row],
              "STAMP: a committed row of a sequence is wrong");
    }
  }
  void check_cached(kvcache::PageId page)
  {
    auto const& tree = control.tree();
    if (!tree.contains(page) || control.pending(page)) {
      return;
    }
    kvcache::SpanId const span = tree.span_of(page);
    std::vector<kvcache::SpanId> path;
    for (kvcache::SpanId s = span; s.value != kvcache::nil; s = tree.parent(s)) {
      path.push_back(s);
    }
    FlightText text;
    std::vector<kvcache::PageId> pages;
    for (auto s = path.rbegin(); s != path.rend(); ++s) {
      for (kvcache::Token const token : tree.tokens(*s)) {
        text.push_back(items.symbol(control.media(), token));
      }
      auto const some = tree.pages(*s);
      pages.insert(pages.end(), some.begin(), some.end());
    }
    FlightSequence owner;
    for (std::uint32_t d = 0; d < 2; ++d) {
      auto const found = tree.find(domains[d]);
      owner.domain = found && *found == tree.domain(span) ? d : owner.domain;
    }
    owner.epoch = epochs[owner.domain];
    auto const want = stamps(owner, text);
    std::size_t const p = device.page_tokens();
    auto const at =
      static_cast<std::size_t>(std::find(pages.begin(), pages.end(), page) - pages.begin());
    for (std::size_t row = 0; row < p; ++row) {
      require(device.at(device.slot(page, row)) == want[at * p + row],
              "STAMP: the tree holds a wrong row (I4)");
    }
  }
};

}  // namespace kvcache_test
