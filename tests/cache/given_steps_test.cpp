// SPDX-License-Identifier: Apache-2.0

// README's loop, read literally: an engine that runs its kernels over the tokens that it gave, and never asks the step.
// What it stores must be right where it has not asked for a step that attaches; where it has, the mistake must show.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace {

using namespace kvcache;

using Layout = PagedHeads<float, 8, 16>;
using Cache = KVCache<Layout>;
using Tokens = std::vector<Token>;
using Values = std::vector<float>;

/// A prompt, and what K of each of its rows is: a number of its own for each token, and for each row of each picture.
struct Asked {
  Tokens tokens;
  Values values;
  std::vector<MediaSpan> media{};

  void append(Token token, float value)
  {
    tokens.push_back(token);
    values.push_back(value);
  }
  void append(Token first, Token last)
  {
    for (Token token = first; token <= last; ++token) {
      append(token, static_cast<float>(token));
    }
  }
};

float key_of(float value, Index index)
{
  return value + static_cast<float>(index) / 1024.0F;
}

/// The engine's kernels: a row for each token that it gave.
void forward(BatchView<Layout> const& kv, Values const& given)
{
  for (std::size_t t = 0; t < given.size(); ++t) {
    auto const token = static_cast<Index>(t);
    Values const row(8, key_of(given[t], kv.index(token)));
    kv.append(Solo{}, 0, 0, token, row.data(), row.data());
  }
}

int count_wrong(BatchView<Layout> const& kv, Index token, Values const& want)
{
  int wrong = 0;
  std::size_t at = 0;
  for (auto const tile : kv.tiles(0, 0, token)) {
    for (Index r = 0; r < tile.rows(); ++r, ++at) {
      bool const right =
        at < want.size() && tile.key(r, 0) == key_of(want[at], static_cast<Index>(at));
      wrong += right ? 0 : 1;
    }
  }
  return wrong + (at == want.size() ? 0 : 1);
}

/// Requests that come together and are computed `chunk` tokens a step, with `depth` steps in flight. Returns how many rows
/// are wrong, those of a request that comes later included; -1: the engine was told.
int run(std::vector<Asked> const& texts, std::size_t chunk, std::size_t depth, bool attach)
{
  auto cache = Cache::create({.layers = 1, .kv_heads = 1}, {.pages = 64}).value();
  std::vector<Sequence> sequences;
  std::vector<std::size_t> planned;
  for (Asked const& text : texts) {
    sequences.push_back(cache.open({.tokens = text.tokens, .media = text.media}).value());
    planned.push_back(0);
  }
  auto const plan = [&](std::vector<Index>& accepted) {
    std::vector<Cache::SequenceChunk> chunks;
    Values given;
    accepted.clear();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::size_t const left = texts[i].tokens.size() - planned[i];
      std::size_t const n = left < chunk ? left : chunk;
      if (n == 0) {
        continue;
      }
      auto const from = static_cast<std::ptrdiff_t>(planned[i]);
      chunks.push_back({sequences[i], std::span(texts[i].tokens).subspan(planned[i], n)});
      given.insert(given.end(),
                   texts[i].values.begin() + from,
                   texts[i].values.begin() + from + static_cast<std::ptrdiff_t>(n));
      accepted.push_back(static_cast<Index>(n));
      planned[i] += n;
    }
    auto step = cache.prepare(chunks, {}, {.attach = attach});
    REQUIRE(step);
    forward(step->view(), given);
    return std::move(*step);
  };
  std::size_t longest = 0;
  for (Asked const& text : texts) {
    longest = text.tokens.size() > longest ? text.tokens.size() : longest;
  }
  try {
    std::vector<std::pair<Cache::Step, std::vector<Index>>> flights;
    for (std::size_t at = 0; at < longest; at += chunk) {
      std::vector<Index> accepted;
      auto step = plan(accepted);
      flights.emplace_back(std::move(step), std::move(accepted));
      while (flights.size() >= depth || (at + chunk >= longest && !flights.empty())) {
        if (auto const done = flights.front().first.commit(flights.front().second); !done) {
          return -1;  // one number for each chunk, but not of what was computed
        }
        flights.erase(flights.begin());
      }
    }
  } catch (LogicError const&) {
    return -1;
  }
  int wrong = 0;
  auto const check = [&](Sequence const& sequence, Asked const& text) {
    auto const cached = static_cast<std::size_t>(sequence.length());
    Tokens rest(text.tokens.begin() + static_cast<std::ptrdiff_t>(cached), text.tokens.end());
    Values given(text.values.begin() + static_cast<std::ptrdiff_t>(cached), text.values.end());
    Values all = text.values;
    rest.push_back(7);
    given.push_back(7);
    all.push_back(7);
    auto step = cache.prepare({{sequence, rest}});
    REQUIRE(step);
    auto const kv = step->view();
    forward(kv, given);
    wrong += count_wrong(kv, static_cast<Index>(given.size()) - 1, all);
    REQUIRE(step->commit());
  };
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(sequences[i].length() == static_cast<Index>(texts[i].tokens.size()));
    Sequence const later = cache.open({.tokens = texts[i].tokens, .media = texts[i].media}).value();
    CHECK(later.cached() >= 16);
    check(later, texts[i]);
    check(sequences[i], texts[i]);
  }
  CHECK(cache.check_invariants());
  return wrong;
}

/// 49 equal tokens, then 17 of its own.
std::vector<Asked> equal_prompts()
{
  Asked shorter;
  shorter.append(1, 49);
  Asked longer = shorter;
  longer.append(80, 95);
  longer.append(9, 9);
  return {shorter, longer, shorter};
}

}  // namespace

TEST_CASE("README's loop: equal prompts in one step", "[cache][given]")
{
  CHECK(run(equal_prompts(), 1000, 1, false) == 0);
  CHECK(run(equal_prompts(), 1000, 1, true) != 0);
}

TEST_CASE("README's loop: equal prompts in chunks of 16", "[cache][given]")
{
  CHECK(run(equal_prompts(), 16, 1, false) == 0);
  CHECK(run(equal_prompts(), 16, 1, true) != 0);
}

TEST_CASE("README's loop: equal prompts over two steps in flight", "[cache][given]")
{
  for (std::size_t const chunk : {16U, 20U, 32U}) {
    CAPTURE(chunk);
    CHECK(run(equal_prompts(), chunk, 2, false) == 0);
    CHECK(run(equal_prompts(), chunk, 2, true) != 0);
  }
}

TEST_CASE("README's loop: equal prompts with pictures", "[cache][given]")
{
  Media const cat({.digest = "cat", .kind = "image", .dtype = {}, .dims = {}, .options = {}});
  Media const dog({.digest = "dog", .kind = "image", .dtype = {}, .dims = {}, .options = {}});
  std::vector<Asked> texts(3);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    texts[i].append(1, 12);
    texts[i].media = {{.item = i == 2 ? &dog : &cat, .first = 12, .rows = 20, .atomic = true}};
    for (int row = 0; row < 20; ++row) {
      texts[i].append(99, static_cast<float>((i == 2 ? 2000 : 1000) + row));
    }
    texts[i].append(30, 60);
  }
  for (std::size_t const chunk : {32U, 1000U}) {
    for (std::size_t const depth : {std::size_t{1}, std::size_t{2}}) {
      CAPTURE(chunk, depth);
      CHECK(run(texts, chunk, depth, false) == 0);
      CHECK(run(texts, chunk, depth, true) != 0);
    }
  }
}
