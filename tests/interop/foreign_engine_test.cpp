// SPDX-License-Identifier: Apache-2.0
// An engine whose kernels know nothing of our views: it stores rows through slots and reads them through page lists,
// while the cache shares prefixes, copies on write and rejects drafts.

#include <kvcache/interop/tables.hpp>
#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "interop/foreign.hpp"
#include "support/catch.hpp"
#include "support/facade.hpp"
#include "support/random.hpp"

using namespace kvcache_test;
using kvcache::Index;

namespace {

constexpr std::size_t max_lines = 8;

/// What the engine was given when it started: the memory of the pool, layer by layer.
struct Engine {
  std::vector<std::int32_t> indptr = std::vector<std::int32_t>(max_lines + 1);
  std::vector<std::int32_t> indices;
  std::vector<std::int32_t> last_page_len = std::vector<std::int32_t>(max_lines);
  std::vector<std::int64_t> slots = std::vector<std::int64_t>(64);

  template <class View>
  static ForeignLayer<float> layer_of(View const& kv, std::int32_t layer)
  {
    std::size_t const tile = 8 * 4 * 2;  // elements: K and V of 4 rows
    auto const* const k =
      reinterpret_cast<float const*>(kv.segment.base) + static_cast<std::size_t>(layer) * 2 * tile;
    return {k, k + tile / 2, 4 * tile, tile, 8, 4};
  }

  template <class View>
  void plan(View const& kv)
  {
    auto const source = kvcache::TableSource::of(kv);
    indices.resize(max_lines * static_cast<std::size_t>(source.most_pages()));
    REQUIRE(kvcache::fill({.indptr = indptr, .indices = indices, .last_page_len = last_page_len},
                          source));
    REQUIRE(kvcache::fill_slots(std::span(slots), source));
  }
  /// `rows` are the tokens of the step and their places.
  template <class View>
  void store(View const& kv, std::vector<std::pair<kvcache::Token, Index>> const& rows)
  {
    for (std::size_t t = 0; t < slots.size(); ++t) {
      REQUIRE((slots[t] >= 0) == (t < rows.size()));
      for (std::int32_t layer = 0; slots[t] >= 0 && layer < 2; ++layer) {
        for (std::int32_t head = 0; head < 2; ++head) {
          auto const foreign = layer_of(kv, layer);
          std::size_t const at = slot_at(foreign, slots[t], head);
          float const x = stamp(rows[t].first, rows[t].second, layer, head);
          const_cast<float&>(foreign.k[at]) = x;
          const_cast<float&>(foreign.v[at + 7]) = -x;
        }
      }
    }
  }
  /// Rows of `history` that line `i` does not read.
  template <class View>
  [[nodiscard]] std::size_t count_wrong(View const& kv, std::size_t i, Tokens const& history) const
  {
    std::size_t wrong = 0;
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      FlashInferPages<float> const pages{
        layer_of(kv, layer), indptr.data(), indices.data(), last_page_len.data()};
      wrong += pages.length(i) == history.size() ? 0U : 1U;
      for (std::uint32_t row = 0; row < history.size(); ++row) {
        for (std::int32_t head = 0; head < 2; ++head) {
          float const x = stamp(history[row], static_cast<Index>(row), layer, head);
          std::size_t const at = pages.at(i, head, row);
          bool const same = pages.layer.k[at] == x && pages.layer.v[at + 7] == -x;
          wrong += same ? 0U : 1U;
        }
      }
    }
    return wrong;
  }
};

}  // namespace

TEST_CASE("Tables: an engine of other kernels stores by slot and reads by page list",
          "[interop][tables]")
{
  constexpr std::uint64_t seed = 20261130;
  CAPTURE(seed);
  Random random(seed);
  Cache cache = make_cache(60);
  Engine engine;
  std::vector<kvcache::Sequence> open;
  std::vector<Tokens> texts;
  std::uint32_t shared_lines = 0;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    if (open.size() == 4 || (!open.empty() && random.below(6) == 0)) {
      std::size_t const gone = random.below(static_cast<std::uint32_t>(open.size()));
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(gone));
      texts.erase(texts.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    auto step = std::move(*cache.begin());
    std::vector<std::pair<kvcache::Token, Index>> rows;
    std::vector<Index> accepted;
    std::vector<std::size_t> lines;  // sequence of each
    auto const add = [&](std::size_t s, Index first, Tokens const& tokens, bool draft) {
      REQUIRE(step.add(open[s], {.tokens = tokens, .draft = draft}));
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        rows.emplace_back(tokens[i], first + static_cast<Index>(i));
        texts[s].push_back(tokens[i]);
      }
      accepted.push_back(static_cast<Index>(
        draft ? random.between(1, static_cast<std::uint32_t>(tokens.size())) : tokens.size()));
      lines.push_back(s);
    };
    for (std::size_t s = open.size(); s-- > 0;) {
      Tokens draft(random.between(1, 4));
      for (auto& token : draft) {
        token = static_cast<kvcache::Token>(random.below(500));
      }
      add(s, static_cast<Index>(texts[s].size()), draft, draft.size() > 1);
    }
    if (open.size() < 4) {  // half of the prompts begin alike
      Tokens prompt(random.between(5, 14), 7);
      prompt.back() = static_cast<kvcache::Token>(random.below(2));
      auto sequence = cache.open({.tokens = prompt});
      REQUIRE(sequence);
      Index const cached = sequence->info().cached;
      shared_lines += cached > 0 ? 1U : 0U;
      open.push_back(std::move(*sequence));
      texts.emplace_back(prompt.begin(), prompt.begin() + cached);
      add(open.size() - 1, cached, Tokens(prompt.begin() + cached, prompt.end()), false);
    }
    REQUIRE(step.submit());
    auto const kv = step.view();
    engine.plan(kv);
    engine.store(kv, rows);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      CHECK(engine.count_wrong(kv, i, texts[lines[i]]) == 0);
    }
    REQUIRE(step.commit(accepted));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      texts[lines[i]].resize(static_cast<std::size_t>(open[lines[i]].info().length));
    }
  }
  CHECK(shared_lines > 20);
}
