// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The cache under test, the model's books beside it, and the check of every byte.

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/books.hpp"
#include "model/naive.hpp"
#include "model/operation.hpp"
#include "support/stamp.hpp"

namespace kvcache_test {

/// What happened, so that a test can tell that it was not idle.
struct Tally {
  std::uint64_t operations = 0;
  std::uint64_t opens = 0;
  std::uint64_t hit_rows = 0;
  std::uint64_t part_hits = 0;  // hits that end inside a page
  std::uint64_t planned_rows = 0;
  std::uint64_t commits = 0;
  std::uint64_t copies = 0;
  std::uint64_t evicted = 0;
  std::uint64_t merged = 0;
  std::uint64_t unpublished = 0;
  std::uint64_t shortages = 0;
  std::uint64_t drops = 0;
  std::uint64_t fails = 0;
  std::uint64_t orphans = 0;
};

/// Memory for a pool that starts as garbage.
class Arena {
 public:
  explicit Arena(std::size_t bytes)
      : data_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{128}))), bytes_(bytes)
  {
    std::memset(data_, 0xa5, bytes);
  }
  Arena(Arena const&) = delete;
  Arena& operator=(Arena const&) = delete;
  ~Arena() { ::operator delete(data_, std::align_val_t{128}); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

template <class T>
struct World {
  using Layout = kvcache::PagedHeads<T, 8>;
  using Cache = kvcache::KVCache<Layout>;

  World(Setting const& s, Tally& t)
      : setting(s),
        books(s),
        tally(t),
        arena(static_cast<std::size_t>(Layout::footprint(geometry()).pool_bytes(s.pages))),
        cache(make()),
        rows{.base = arena.data(),
             .layers = s.layers,
             .heads = s.heads,
             .dim = 8,
             .page_tokens = s.page_tokens},
        seen((std::size_t{s.pages} + 1) * static_cast<std::size_t>(s.page_tokens), 0)
  {
    for (std::uint32_t i = 0; i < s.domains; ++i) {
      std::string const salt = "tenant " + std::to_string(i);
      domains.push_back(
        i == 0 ? kvcache::Domain{}
               : kvcache::Domain({.model = {}, .weights = {}, .salt = salt, .adapters = {}}));
    }
  }

  Setting setting;
  Books books;
  Tally& tally;
  Arena arena;
  Cache cache;
  RawRows<T> rows;
  std::vector<Stamp> seen;  // by slot: the stamp that this check found there
  std::vector<kvcache::Domain> domains;
  std::vector<kvcache::Sequence> handles;  // beside books.live
  std::optional<typename Cache::Step> step;
  std::vector<kvcache::SequenceId> stale;
  std::string said;  // what the last operation did, for listings
  bool talks = false;

  void say(std::string const& text) { said += talks ? text : std::string(); }

  /// Every committed row of every sequence, and every row of the tree, holds its stamp; page 0 holds zeros.
  void check_rows()
  {
    std::fill(seen.begin(), seen.end(), 0);
    auto const p = static_cast<std::size_t>(setting.page_tokens);
    for (std::size_t i = 0; i < books.live.size(); ++i) {
      NaiveSequence const& s = books.live[i];
      auto const table = cache.pages(handles[i]);
      auto const twin = books.twin.table(s.id);
      require(std::equal(table.begin(), table.end(), twin.begin(), twin.end()),
              "the two instances have different tables");
      require_equal(handles[i].length(), s.tokens.size(), "length of a sequence");
      auto const tokens = books.twin.tokens(s.id);
      require(std::equal(tokens.begin(), tokens.end(), s.tokens.begin(), s.tokens.end()),
              "tokens of a sequence");
      // A copy happens at submit: until then the rows before the chunk lie in the page that it copies.
      NaiveChunk const* const chunk = books.chunk_of(s.id);
      bool const waits = chunk != nullptr && books.step.stage == NaiveStep::Stage::open &&
                         chunk->copy_source != kvcache::zero_page;
      for (std::size_t row = 0; row < s.tokens.size(); ++row) {
        kvcache::PageId const page =
          waits && row / p == s.tokens.size() / p ? chunk->copy_source : table[row / p];
        check_row(page, row % p, s.stamps[row], "STAMP: a committed row of a sequence is wrong");
      }
    }
    for (std::uint32_t page = 1; page <= setting.pages; ++page) {
      for (std::size_t row = 0; row < p && books.tree.at(page); ++row) {
        check_row(kvcache::PageId{page},
                  row,
                  books.tree.at(page)->stamps[row],
                  "STAMP: the tree holds a wrong row (I4)");
      }
    }
    std::byte const* const zeros = arena.data();
    std::size_t const size = rows.page_bytes();
    require(zeros[0] == std::byte{0} && std::memcmp(zeros, zeros + 1, size - 1) == 0,
            "page 0 is no longer zero");
  }

 private:
  void check_row(kvcache::PageId page, std::size_t row, Stamp stamp, char const* what)
  {
    Stamp& found = seen[page.value * static_cast<std::size_t>(setting.page_tokens) + row];
    if (found != stamp) {
      require(rows.row_is(page, static_cast<std::int32_t>(row), stamp), what);
      found = stamp;
    }
  }
  [[nodiscard]] kvcache::Geometry geometry() const
  {
    return {.layers = setting.layers,
            .kv_heads = setting.heads,
            .head_dim = 8,
            .page_tokens = setting.page_tokens};
  }
  [[nodiscard]] Cache make()
  {
    kvcache::Options<kvcache::Policies<>> options;
    options.pages = setting.pages;
    options.max_sequences = setting.max_sequences;
    options.max_sequence_tokens = setting.max_sequence_tokens;
    options.max_step_tokens = setting.max_step_tokens;
    options.vocabulary = static_cast<kvcache::Token>(setting.alphabet);
    options.seed = one_secret;
    options.storage = {.data = arena.data(), .bytes = arena.bytes()};
    auto made = Cache::create(geometry(), options);
    return std::move(*made);
  }
};

}  // namespace kvcache_test
