// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The model's books: what every page is used for, recounted from what the control plane shows.
///
/// Beside the cache under test a second control plane, without memory, gets the same calls. The books read the
/// second one, and both must have the same digest after every call.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/naive.hpp"

namespace kvcache_test {

using Twin = kvcache::Control<kvcache::PageAllocator, kvcache::RadixTree, kvcache::Lru>;

class Books {
 public:
  explicit Books(Setting const& s)
      : setting(s), twin(make_twin(s)), tree(s.pages, s.page_tokens), epochs(s.domains, 0)
  {
    tables.resize(std::size_t{s.pages} + 1);
    copies = tables;
    held = tables;
    let_go = tables;
    fenced = tables;
  }

  Setting setting;
  Twin twin;
  std::vector<NaiveSequence> live;
  NaiveStep step;
  NaiveTree tree;
  std::vector<std::uint32_t> epochs;  // by domain: how often it was forgotten
  std::uint64_t clock = 1;
  bool flew_before = false;        // a step was open or in flight at the last look ...
  std::uint64_t flying_since = 0;  // ... and since when
  // By page: sequences that hold it, copies that read it, and whether anyone does.
  std::vector<std::uint32_t> tables;
  std::vector<std::uint32_t> copies;
  std::vector<std::uint32_t> held;
  // By page: how often closed sequences of the open step let go of it, and whether the submitted step may touch it.
  std::vector<std::uint32_t> let_go;
  std::vector<std::uint32_t> fenced;
  std::uint32_t rows_kept = 0;  // table rows of sequences that were closed in the step
  struct Lost {
    std::uint32_t page;
    CachedPage entry;
    bool was_held;  // not evicted: its one user took it out to write in place
  };
  std::vector<Lost> lost;  // what left the tree during the open step

  [[nodiscard]] kvcache::PageCount pages_of(std::size_t rows) const
  {
    auto const p = static_cast<std::size_t>(setting.page_tokens);
    return static_cast<kvcache::PageCount>((rows + p - 1) / p);
  }
  [[nodiscard]] NaiveSequence* find(kvcache::SequenceId id)
  {
    auto const at =
      std::find_if(live.begin(), live.end(), [&](NaiveSequence const& s) { return s.id == id; });
    return at == live.end() ? nullptr : &*at;
  }
  [[nodiscard]] NaiveChunk const* chunk_of(kvcache::SequenceId id) const
  {
    for (NaiveChunk const& chunk : step.chunks) {
      if (chunk.sequence == id && !chunk.orphan) {
        return &chunk;
      }
    }
    return nullptr;
  }

  /// A sequence of the step is closed: the step keeps the pages while it is open, and fences them after.
  void leave(std::span<kvcache::PageId const> table)
  {
    for (kvcache::PageId const page : table) {
      (step.stage == NaiveStep::Stage::open ? let_go : fenced)[page.value] += 1;
    }
    rows_kept += 1;
  }
  void step_was_submitted()
  {
    for (std::size_t page = 0; page < let_go.size(); ++page) {
      fenced[page] += let_go[page];
      let_go[page] = 0;
    }
    recount({});
  }
  void step_is_over()
  {
    std::fill(let_go.begin(), let_go.end(), 0);
    std::fill(fenced.begin(), fenced.end(), 0);
    rows_kept = 0;
  }
  /// Nobody holds the page, but the step in flight may still touch it: it waits.
  [[nodiscard]] bool waits(std::size_t page) const
  {
    return fenced[page] != 0 && tables[page] + copies[page] + let_go[page] == 0 && !tree.at(page);
  }
  /// Pages of a forgotten domain that wait now look like cached ones from outside.
  void forget_waiting(std::uint32_t domain)
  {
    for (std::size_t page = 1; page < held.size(); ++page) {
      if (fenced[page] != 0 && held[page] == 0 && tree.at(page) &&
          tree.at(page)->domain == domain) {
        tree.at(page).reset();
      }
    }
  }

  /// Counts the holders of every page anew (I1, I2, I5) and brings the naive tree up to date: a page that has one
  /// holder more than sequences and copies explain is in the tree. What may come and go, the call says.
  struct Expected {
    bool leave = false;    // pages may leave the tree
    bool come = false;     // pages of `live` sequences may enter it
    bool return_ = false;  // pages lost during the open step may come back
  };
  struct Moved {
    std::vector<std::uint32_t> left;
    std::uint32_t back = 0;
  };
  Moved recount(Expected expected)
  {
    std::vector<std::uint32_t> const held_before = held;
    count();
    Moved moved;
    bool const flying = twin.use_of(kvcache::StreamId{}).steps != 0;
    flying_since = flying && !flew_before ? clock : flying_since;
    for (std::uint32_t page = 1; page <= setting.pages; ++page) {
      std::uint32_t const holders = twin.holders(kvcache::PageId{page});
      std::uint32_t const known = held[page];
      require(holders == known || holders == known + 1,
              "I2: holders of a page that no table, copy or tree explains",
              holders,
              known);
      bool const cached = holders == known + 1;
      if (cached && !tree.at(page)) {
        enter(page, expected, moved);
        continue;  // what comes back is as old as it was
      }
      if (!cached && tree.at(page)) {
        require(expected.leave, "a page left the tree though nothing made it");
        moved.left.push_back(page);
        lost.push_back({page, std::move(*tree.at(page)), held_before[page] != 0});
        tree.at(page).reset();
      }
      if (tree.at(page) && held_before[page] != 0 && held[page] == 0) {
        tree.at(page)->idle_since = clock;
      }
      if (tree.at(page) && held[page] == 0) {
        bool const flew = (flying || flew_before) && tree.at(page)->idle_since >= flying_since;
        tree.at(page)->idle_latest =
          flew ? clock : std::max(tree.at(page)->idle_latest, tree.at(page)->idle_since);
      }
    }
    flew_before = flying;
    tree.check();
    check_stats();
    return moved;
  }

  /// The `free + held + cached` figures against a count of one's own.
  void check_stats() const
  {
    kvcache::Stats const stats = twin.stats();
    kvcache::PageCount free = 0;
    kvcache::PageCount cached = 0;
    kvcache::PageCount waiting = 0;
    for (std::uint32_t page = 1; page <= setting.pages; ++page) {
      free += held[page] == 0 && !tree.at(page) ? 1U : 0U;
      cached += held[page] == 0 && tree.at(page) ? 1U : 0U;
      waiting += held[page] != 0 && held_by_live(page) == 0 ? 1U : 0U;
    }
    require_equal(stats.capacity, setting.pages, "stats: capacity");
    require_equal(stats.free, free, "I1: stats.free");
    require_equal(stats.cached, cached, "I6: stats.cached");
    require_equal(stats.free + stats.held + stats.cached, setting.pages, "I1: sum of pages");
    require_equal(stats.fenced, waiting, "stats.fenced");
    require_equal(stats.sequences, live.size(), "stats.sequences");
  }

  // ---- add

  /// What `add` must answer, from the rules alone.
  struct Prediction {
    kvcache::Why why = kvcache::Why::ok;
    kvcache::PageCount need = 0;
    kvcache::PageCount room = 0;
    bool copies = false;
    bool unpublishes = false;
  };
  [[nodiscard]] Prediction predict(NaiveSequence const& s, std::size_t tokens) const
  {
    Prediction p;
    if (s.in_step) {
      p.why = kvcache::Why::busy;
      return p;
    }
    if (step.num_tokens() + tokens > static_cast<std::size_t>(setting.max_step_tokens) ||
        s.tokens.size() + tokens > static_cast<std::size_t>(setting.longest())) {
      p.why = kvcache::Why::too_large;
      return p;
    }
    auto const table = twin.table(s.id);
    auto const offset = static_cast<kvcache::Index>(s.tokens.size()) %
                        static_cast<kvcache::Index>(setting.page_tokens);
    p.need = pages_of(s.tokens.size() + tokens) - static_cast<kvcache::PageCount>(table.size());
    if (offset != 0) {
      std::uint32_t const part = table.back().value;
      kvcache::Index read = 0;  // rows of it that copies of this step read before it may be written
      for (NaiveChunk const& chunk : step.chunks) {
        if (chunk.copy_source.value == part) {
          read = std::max(read, chunk.first % static_cast<kvcache::Index>(setting.page_tokens));
        }
      }
      p.copies = tree.at(part).has_value() || tables[part] + let_go[part] > 1 || read > offset;
      p.need += p.copies ? 1U : 0U;
      kvcache::Stats const stats = twin.stats();
      p.room = stats.free + stats.cached;
      // Rule 6: where no page can be had, a sole holder takes its page out of the tree and writes in place.
      if (p.copies && p.need == p.room + 1 && tree.at(part) && tables[part] == 1 &&
          copies[part] + let_go[part] == 0) {
        p.unpublishes = true;
        p.copies = false;
        p.need -= 1;
      }
    } else {
      kvcache::Stats const stats = twin.stats();
      p.room = stats.free + stats.cached;
    }
    p.why = p.need > p.room ? kvcache::Why::no_pages : kvcache::Why::ok;
    return p;
  }

  /// Adds to the second control plane and holds it to the prediction. Returns what was answered.
  kvcache::Shortage add(NaiveSequence& s, std::vector<kvcache::Token> const& tokens)
  {
    Prediction const want = predict(s, tokens.size());
    std::uint64_t const digest = twin.digest();
    kvcache::Stats const before = twin.stats();
    std::vector<kvcache::PageId> const table(twin.table(s.id).begin(), twin.table(s.id).end());
    bool const lone = live.size() == 1 && step.chunks.empty();
    auto const added = twin.add(step.id, s.id, draft_of(tokens));
    if (!added) {
      kvcache::Shortage const& no = added.error();
      require(!lone || no.why != kvcache::Why::no_pages ||
                pages_of(s.tokens.size() + tokens.size()) > setting.pages,
              "liveness: the only sequence was refused pages though it fits the pool");
      require_equal(no.why, want.why, "add was refused for another reason");
      require(twin.digest() == digest, "I9: a refused add changed something");
      if (no.why == kvcache::Why::no_pages) {
        require_equal(no.need, want.need, "Shortage.need");
        require_equal(no.free, before.free, "Shortage.free");
        require_equal(no.evictable, before.cached, "Shortage.evictable");
        require_equal(no.fenced, before.fenced, "Shortage.fenced");
      }
      return no;
    }
    require(want.why == kvcache::Why::ok, "add was accepted though it must be refused");
    require_equal(*added, tokens.size(), "rows planned");
    NaiveChunk chunk;
    chunk.sequence = s.id;
    chunk.first = static_cast<kvcache::Index>(s.tokens.size());
    chunk.tokens = tokens;
    chunk.stamps = s.stamps;
    Stamp stamp = s.last_stamp();
    for (kvcache::Token const token : tokens) {
      stamp = stamp_next(stamp, token);
      chunk.stamps.push_back(stamp);
    }
    chunk.table.assign(twin.table(s.id).begin(), twin.table(s.id).end());
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (chunk.table[i] != table[i]) {
        require(want.copies && i + 1 == table.size(), "add replaced a page that it need not copy");
        chunk.copy_source = table[i];
      }
    }
    require(want.copies == (chunk.copy_source != kvcache::zero_page),
            "copy-on-write: a shared page would be written in place");
    s.in_step = true;
    step.chunks.push_back(std::move(chunk));
    check_evictions(want, before, recount({.leave = true}));
    return {};
  }

 private:
  static Twin make_twin(Setting const& s)
  {
    auto made = Twin::create({.pages = s.pages,
                              .page_tokens = s.page_tokens,
                              .max_sequences = s.max_sequences,
                              .max_sequence_tokens = s.max_sequence_tokens,
                              .max_step_tokens = s.max_step_tokens,
                              .vocabulary = static_cast<kvcache::Token>(s.alphabet),
                              .seed = one_secret});
    return std::move(*made);
  }

  void count()
  {
    std::fill(tables.begin(), tables.end(), 0);
    std::fill(copies.begin(), copies.end(), 0);
    for (NaiveSequence const& s : live) {
      auto const table = twin.table(s.id);
      NaiveChunk const* const chunk = chunk_of(s.id);
      std::size_t const rows = s.tokens.size() + (chunk != nullptr ? chunk->tokens.size() : 0);
      require_equal(table.size(), pages_of(rows), "I5: pages of a sequence");
      for (std::size_t i = 0; i < table.size(); ++i) {
        require(table[i].value >= 1 && table[i].value <= setting.pages, "I5: not a page");
        require(
          std::find(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(i), table[i]) ==
            table.begin() + static_cast<std::ptrdiff_t>(i),
          "I5: a table names one page twice");
        tables[table[i].value] += 1;
      }
    }
    for (NaiveChunk const& chunk : step.chunks) {
      copies[chunk.copy_source.value] += chunk.copy_source != kvcache::zero_page ? 1U : 0U;
    }
    for (std::size_t page = 0; page < held.size(); ++page) {
      held[page] = tables[page] + copies[page] + let_go[page] + (waits(page) ? 1U : 0U);
    }
  }

  [[nodiscard]] std::uint32_t held_by_live(std::uint32_t page) const
  {
    std::uint32_t n = 0;
    for (NaiveSequence const& s : live) {
      auto const table = twin.table(s.id);
      n += std::find(table.begin(), table.end(), kvcache::PageId{page}) != table.end() ? 1U : 0U;
    }
    return n;
  }

  /// `page` is in the tree now. Either a live sequence wrote and committed it, or a dropped step gave it back.
  void enter(std::uint32_t page, Expected expected, Moved& moved)
  {
    auto const p = static_cast<std::size_t>(setting.page_tokens);
    if (expected.come) {
      for (NaiveSequence const& s : live) {
        auto const table = twin.table(s.id);
        for (std::size_t i = 0; i < table.size() && (i + 1) * p <= s.tokens.size(); ++i) {
          if (table[i].value == page && s.epoch == epochs[s.domain]) {
            auto const begin = static_cast<std::ptrdiff_t>(i * p);
            auto const end = static_cast<std::ptrdiff_t>((i + 1) * p);
            tree.at(page) = CachedPage{s.domain,
                                       {s.tokens.begin(), s.tokens.begin() + end},
                                       {s.stamps.begin() + begin, s.stamps.begin() + end},
                                       clock};
            return;
          }
        }
      }
    }
    if (expected.return_) {
      for (Lost const& it : lost) {
        if (it.page == page) {
          tree.at(page) = it.entry;
          tree.at(page)->idle_since = it.was_held ? clock : it.entry.idle_since;
          moved.back += 1;
          return;
        }
      }
    }
    require(false, "I4: a page entered the tree that no committed rows explain");
  }

  /// A page that just left hung below it. It may have been unused for longer: a step held the other to copy it.
  [[nodiscard]] bool was_parent(std::uint32_t page, Moved const& moved) const
  {
    auto const p = static_cast<std::size_t>(setting.page_tokens);
    return std::any_of(lost.end() - std::ssize(moved.left), lost.end(), [&](Lost const& it) {
      return it.entry.continues(*tree.at(page), p);
    });
  }

  /// The pages that left were nobody's, as many as had to go, and the least recently used leaves.
  void check_evictions(Prediction const& want,
                       kvcache::Stats const& before,
                       Moved const& moved) const
  {
    kvcache::PageCount const missing = want.need > before.free ? want.need - before.free : 0;
    require_equal(twin.stats().evicted_pages - before.evicted_pages, missing, "pages evicted");
    require_equal(
      moved.left.size(), missing + (want.unpublishes ? 1U : 0U), "pages that left the tree");
    std::uint64_t latest = 0;
    for (std::size_t i = lost.size() - moved.left.size(); i < lost.size(); ++i) {
      latest = lost[i].was_held ? latest : std::max(latest, lost[i].entry.idle_since);
    }
    for (std::uint32_t page = 1; page <= setting.pages && missing != 0; ++page) {
      if (tree.at(page) && held[page] == 0 && tree.is_leaf(page) && !was_parent(page, moved)) {
        require(std::max(tree.at(page)->idle_latest, tree.at(page)->idle_since) >= latest,
                "LRU: a page was evicted while another was unused for longer");
      }
    }
  }
};

}  // namespace kvcache_test
