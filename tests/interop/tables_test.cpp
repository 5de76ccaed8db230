// SPDX-License-Identifier: Apache-2.0
// Derived tables against the native one, on random ragged batches: for every row of every sequence, the address that
// another engine computes is the address that our view computes.

#include <kvcache/interop/tables.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interop/ragged_batch.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;
using kvcache::Index;
using kvcache::TableSource;

namespace {

constexpr std::uint64_t first_seed = 20261130;
constexpr std::uint64_t rounds = 24;

template <class T>
std::span<T> span_of(std::vector<T>& v)
{
  return v;
}

/// The tables of one source, with `dummies` lines and tokens more than it has, in memory of exactly the right size
/// that is full of other numbers.
struct Derived {
  std::vector<std::int32_t> indptr, indices, last_page_len, blocks, seq_lens;
  std::size_t width;
  std::vector<std::int64_t> slots;

  Derived(TableSource const& source, std::size_t dummies)
  {
    std::size_t const lines = static_cast<std::size_t>(source.num_lines()) + dummies;
    width = kvcache::least_width(source, lines);
    indptr.assign(lines + 1, -7);
    indices.assign(kvcache::num_indices(source, lines), -7);
    last_page_len.assign(lines, -7);
    blocks.assign(lines * width, -7);
    seq_lens.assign(lines, -7);
    slots.assign(static_cast<std::size_t>(source.counts[0]) + dummies, -7);
    REQUIRE(kvcache::fill({.indptr = indptr, .indices = indices, .last_page_len = last_page_len},
                          source));
    REQUIRE(kvcache::fill({.pages = blocks, .seq_lens = seq_lens, .width = width}, source));
    REQUIRE(kvcache::fill_slots(span_of(slots), source));
  }
};

/// Rows of K or V whose address differs between us and them, over the lines that name `sequences`.
template <class Batch>
std::size_t count_wrong_rows(Batch const& batch,
                             Derived const& d,
                             std::vector<RaggedSequence> const& sequences)
{
  std::size_t wrong = 0;
  auto const kv = batch.view();
  for (std::int32_t layer = 0; layer < batch.geometry().layers; ++layer) {
    auto const foreign = batch.foreign(layer);
    FlashInferPages<kvcache::half> const lists{
      foreign, d.indptr.data(), d.indices.data(), d.last_page_len.data()};
    BlockTablePages<kvcache::half> const blocks{foreign, d.blocks.data(), d.width};
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      RaggedSequence const& s = sequences[i];
      for (std::int32_t head = 0; head < batch.geometry().kv_heads; ++head) {
        for (Index p = 0; p < kv.tiles_of(s.length); ++p) {
          auto const tile = kv.tile(layer, head, s.row, p, s.length).raw();
          for (Index r = 0; r < tile.rows; ++r) {
            auto const row = static_cast<std::uint32_t>(p * batch.geometry().page_tokens + r);
            std::size_t const inside = static_cast<std::size_t>(r) * tile.row_elements;
            std::size_t const by_list = lists.at(i, head, row);
            std::size_t const by_block = blocks.at(i, head, row);
            bool const same =
              foreign.k + by_list == tile.k + inside && foreign.v + by_list == tile.v + inside &&
              foreign.k + by_block == tile.k + inside && foreign.v + by_block == tile.v + inside;
            wrong += same ? 0U : 1U;
          }
        }
      }
    }
  }
  return wrong;
}

/// Lines whose length, or whose place in a table, is not right; `sequences` first, then dummies of `empty` rows.
std::size_t count_wrong_lines(Derived const& d,
                              Index page_tokens,
                              std::vector<RaggedSequence> const& sequences,
                              Index empty)
{
  std::size_t wrong = d.indptr[0] == 0 ? 0U : 1U;
  FlashInferPages<kvcache::half> lists{
    {}, d.indptr.data(), d.indices.data(), d.last_page_len.data()};
  lists.layer.page_tokens = page_tokens;
  for (std::size_t i = 0; i < d.seq_lens.size(); ++i) {
    bool const has_rows = i < sequences.size() && sequences[i].length > 0;
    Index const length = has_rows ? sequences[i].length : empty;
    Index const pages = d.indptr[i + 1] - d.indptr[i];
    bool right = d.seq_lens[i] == length && lists.length(i) == static_cast<std::uint32_t>(length) &&
                 pages == (length + page_tokens - 1) / page_tokens && d.last_page_len[i] >= 1 &&
                 d.last_page_len[i] <= page_tokens;
    for (std::size_t p = 0; p < d.width; ++p) {
      bool const inside = p < static_cast<std::size_t>(pages);
      std::int32_t const block = d.blocks[i * d.width + p];
      std::int32_t const listed = inside ? d.indices[static_cast<std::size_t>(d.indptr[i]) + p] : 0;
      right = right && block == listed && (listed != 0) == (inside && has_rows);
    }
    wrong += right ? 0U : 1U;
  }
  wrong += static_cast<std::size_t>(d.indptr.back()) == d.indices.size() ? 0U : 1U;
  return wrong;
}

/// Tokens that another engine would store elsewhere than `append` does.
template <class Batch>
std::size_t count_wrong_slots(Batch const& batch, Derived const& d)
{
  std::size_t wrong = 0;
  auto const kv = batch.view();
  std::size_t token = 0;
  for (RaggedSequence const& s : batch.chunks()) {
    for (Index index = s.length - s.tokens; index < s.length; ++index, ++token) {
      Index const tokens = batch.geometry().page_tokens;
      for (std::int32_t layer = 0; layer < batch.geometry().layers; ++layer) {
        auto const foreign = batch.foreign(layer);
        for (std::int32_t head = 0; head < batch.geometry().kv_heads; ++head) {
          auto const tile = kv.tile(layer, head, s.row, index / tokens, index + 1).raw();
          std::size_t const inside = static_cast<std::size_t>(index % tokens) * tile.row_elements;
          bool const same = d.slots[token] > 0 &&
                            foreign.k + slot_at(foreign, d.slots[token], head) == tile.k + inside &&
                            foreign.v + slot_at(foreign, d.slots[token], head) == tile.v + inside;
          wrong += same ? 0U : 1U;
        }
      }
    }
  }
  wrong += static_cast<Index>(token) == kv.num_tokens() ? 0U : 1U;
  for (; token < d.slots.size(); ++token) {
    wrong += d.slots[token] == -1 ? 0U : 1U;
  }
  return wrong;
}

}  // namespace

TEST_CASE("Tables: each row of a step's chunks has the address that our view gives it",
          "[interop][tables]")
{
  for (std::int32_t const page_tokens : {1, 16, 64}) {
    for (std::uint64_t seed = first_seed; seed < first_seed + rounds; ++seed) {
      CAPTURE(page_tokens, seed);
      RaggedBatch<> const batch(page_tokens, seed);
      for (Index const empty : {0, 1}) {
        TableSource source = TableSource::of(batch.view());
        source.empty_rows = empty;
        REQUIRE(source.num_lines() == static_cast<Index>(batch.chunks().size()));
        Derived const d(source, seed % 3);
        CHECK(count_wrong_rows(batch, d, batch.chunks()) == 0);
        CHECK(count_wrong_lines(d, page_tokens, batch.chunks(), empty) == 0);
        CHECK(count_wrong_slots(batch, d) == 0);
      }
    }
  }
}

TEMPLATE_TEST_CASE_SIG(
  "Tables: the same page ids and slots in every order of rows, pages or layers first",
  "[interop][tables]",
  ((kvcache::RowOrder Order), Order),
  kvcache::RowOrder::hnd,
  kvcache::RowOrder::planes,
  kvcache::RowOrder::nhd)
{
  for (auto const arrangement :
       {kvcache::Arrangement::page_first, kvcache::Arrangement::layer_first}) {
    for (std::int32_t const page_tokens : {1, 16, 64}) {
      for (std::uint64_t seed = first_seed + 100; seed < first_seed + 105; ++seed) {
        CAPTURE(page_tokens, seed);
        RaggedBatch<Order> const batch(page_tokens, seed, arrangement);
        Derived const d(TableSource::of(batch.view()), seed % 3);
        CHECK(count_wrong_rows(batch, d, batch.chunks()) == 0);
        CHECK(count_wrong_lines(d, page_tokens, batch.chunks(), 0) == 0);
        CHECK(count_wrong_slots(batch, d) == 0);
      }
    }
  }
}

TEST_CASE("Tables: each row of sequences named by table row, those without rows among them",
          "[interop][tables]")
{
  for (std::int32_t const page_tokens : {1, 16, 64}) {
    for (std::uint64_t seed = first_seed; seed < first_seed + rounds; ++seed) {
      CAPTURE(page_tokens, seed);
      RaggedBatch<> const batch(page_tokens, seed);
      std::vector<std::uint32_t> rows;
      for (RaggedSequence const& s : batch.sequences()) {
        rows.push_back(s.row);
      }
      TableSource source =
        TableSource::of(batch.view(), rows.data(), static_cast<Index>(rows.size()));
      source.empty_rows = static_cast<Index>(seed % 2);
      Derived const d(source, seed % 3);
      CHECK(count_wrong_rows(batch, d, batch.sequences()) == 0);
      CHECK(count_wrong_lines(d, page_tokens, batch.sequences(), source.empty_rows) == 0);
    }
  }
}

TEST_CASE("Tables: a kernel that rejects drafts shortens rows by name, not the step's own chunks",
          "[interop][tables]")
{
  RaggedBatch<> const batch(16, first_seed + 3);
  REQUIRE(batch.chunks().size() > 1);
  auto const kv = batch.view();
  std::vector<RaggedSequence> accepted = batch.chunks();
  std::vector<std::uint32_t> rows;
  for (std::size_t c = 0; c < accepted.size(); ++c) {
    accepted[c].length -= static_cast<Index>(c) % (accepted[c].tokens + 1);
    kv.set_length(static_cast<Index>(c), accepted[c].length);
    rows.push_back(accepted[c].row);
  }
  Derived const step(TableSource::of(kv), 0);
  CHECK(count_wrong_lines(step, 16, batch.chunks(), 0) == 0);
  Derived const after(TableSource::of(kv, rows.data(), static_cast<Index>(rows.size())), 0);
  CHECK(count_wrong_lines(after, 16, accepted, 0) == 0);
  CHECK(count_wrong_rows(batch, after, accepted) == 0);
}

TEST_CASE("Tables: any team writes the same", "[interop][tables]")
{
  RaggedBatch<> const batch(16, first_seed + 4);
  TableSource const source = TableSource::of(batch.view());
  Derived const want(source, 2);
  for (std::int32_t const lanes : {2, 32}) {
    CAPTURE(lanes);
    Derived got(source, 2);
    got.indptr.assign(got.indptr.size(), -7);
    got.indices.assign(got.indices.size(), -7);
    got.last_page_len.assign(got.last_page_len.size(), -7);
    got.blocks.assign(got.blocks.size(), -7);
    got.seq_lens.assign(got.seq_lens.size(), -7);
    std::int32_t first = 0;
    for (std::size_t i = 0; i < got.seq_lens.size(); ++i) {
      auto const line = static_cast<Index>(i);
      for (std::int32_t lane = 0; lane < lanes; ++lane) {
        kvcache::Lanes const team{lane, lanes};
        kvcache::write_page_list(team,
                                 source,
                                 line,
                                 first,
                                 got.indptr.data(),
                                 got.indices.data(),
                                 got.last_page_len.data());
        kvcache::write_block_table(team,
                                   source,
                                   line,
                                   got.blocks.data() + i * got.width,
                                   static_cast<Index>(got.width),
                                   0,
                                   &got.seq_lens[i]);
      }
      first += source.line(line).pages;
    }
    CHECK(got.indptr == want.indptr);
    CHECK(got.indices == want.indices);
    CHECK(got.last_page_len == want.last_page_len);
    CHECK(got.blocks == want.blocks);
    CHECK(got.seq_lens == want.seq_lens);
  }
}
