// SPDX-License-Identifier: Apache-2.0
// A whole cache over each order of rows: dimensions given at run time, rows named by stamps, pages shared, copied, evicted.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/engine_types.hpp"
#include "support/random.hpp"
#include "support/stamp.hpp"

namespace {

using namespace kvcache;
using kvcache_test::Random;
using kvcache_test::Stamp;

struct Text {
  Sequence sequence;
  std::vector<Token> tokens;
};

std::vector<Token> random_tokens(Random& random, std::uint32_t most)
{
  std::vector<Token> out(random.between(1, most));
  for (Token& token : out) {
    token = static_cast<Token>(random.below(2));  // few, so that prefixes are shared
  }
  return out;
}

/// What a run did, so that it can be compared with another's.
struct Story {
  int wrong = 0;
  Index cached = 0;
  int steps = 0;
  std::uint64_t digest = 0;
  friend bool operator==(Story const&, Story const&) = default;
};

/// Stores the stamps of the new tokens, and reads back all that the last of them sees.
template <class Cache>
void append(
  Cache& cache, Text& text, std::vector<Token> const& more, Geometry const& g, Story& story)
{
  auto step = cache.prepare({{text.sequence, more}});
  if (!step) {
    return;  // no room: the sequence stays as it is
  }
  text.tokens.insert(text.tokens.end(), more.begin(), more.end());
  auto const stamps = kvcache_test::stamps_of(0, 0, text.tokens);
  auto const view = step->view();
  Index const last = view.num_tokens() - 1;
  for (std::int32_t layer = 0; layer < g.layers; ++layer) {
    for (std::int32_t head = 0; head < g.kv_heads; ++head) {
      for (Index token = 0; token <= last; ++token) {
        auto const at = static_cast<std::size_t>(view.index(token));
        kvcache_test::append_stamp(view, layer, head, token, stamps[at]);
      }
      auto const rows = static_cast<Index>(stamps.size());
      story.wrong += kvcache_test::first_wrong_row(view, layer, head, last, stamps, rows) ==
                         kvcache_test::all_rows_right
                       ? 0
                       : 1;
    }
  }
  story.wrong += step->commit().has_value() ? 0 : 1;
  story.steps += 1;
}

template <class Layout>
Story tell(Geometry const& g, std::uint64_t seed)
{
  using Cache = KVCache<Layout>;
  auto made =
    Cache::create(g, {.pages = 12, .max_sequences = 6, .max_step_tokens = 64, .vocabulary = 8});
  REQUIRE(made);
  Cache cache = std::move(*made);
  Random random(seed);
  Story story;
  std::vector<Text> texts;
  for (int i = 0; i < 120; ++i) {
    auto const what = random.below(6);
    if (what < 2 && texts.size() < 5) {
      auto prompt = random_tokens(random, 14);
      prompt.push_back(static_cast<Token>(random.below(8)));
      if (auto opened = cache.open({.tokens = prompt})) {
        Index const cached = opened->cached();
        story.cached += cached;
        auto const rest = prompt.begin() + cached;
        texts.push_back({std::move(*opened), {prompt.begin(), rest}});
        append(cache, texts.back(), {rest, prompt.end()}, g, story);
      }
    } else if (!texts.empty()) {
      Text& text = texts[random.below(static_cast<std::uint32_t>(texts.size()))];
      if (what == 2) {
        texts.erase(texts.begin() + (&text - texts.data()));
      } else if (what == 3 && texts.size() < 5) {
        if (auto forked = cache.fork(text.sequence)) {
          texts.push_back({std::move(*forked), text.tokens});
        }
      } else if (what == 4 && !text.tokens.empty()) {
        auto const length =
          static_cast<Index>(random.below(static_cast<std::uint32_t>(text.tokens.size())));
        if (auto const kept = cache.truncate(text.sequence, length)) {
          text.tokens.resize(static_cast<std::size_t>(*kept));
        }
      } else {
        append(cache, text, random_tokens(random, 7), g, story);
      }
    }
  }
  CHECK(cache.check_invariants());
  story.digest = cache.digest();
  return story;
}

constexpr Geometry model{.layers = 3, .kv_heads = 2, .head_dim = 16, .page_tokens = 4};

}  // namespace

TEST_CASE("Layouts: a cache keeps its rows and decides the same under every layout",
          "[layout][facade]")
{
  for (std::uint64_t const seed : {21U, 22U}) {
    CAPTURE(seed);
    Geometry g = model;
    Story const want = tell<PagedHeads<half>>(g, seed);
    CHECK(want.wrong == 0);
    CHECK(want.steps > 30);
    CHECK(want.cached > 30);
    CHECK(tell<PagedHeads<engine::Bf16, dynamic, dynamic, RowOrder::nhd>>(g, seed) == want);
    g.arrangement = Arrangement::layer_first;
    CHECK(tell<PagedHeads<half>>(g, seed) == want);
    CHECK(tell<PagedHeads<engine::Bf16, dynamic, dynamic, RowOrder::nhd>>(g, seed) == want);
  }
}

TEST_CASE("Layouts: a cache with dynamic dimensions says which of them is missing or wrong",
          "[layout][facade]")
{
  auto const refusal = [](Geometry const& g, PageCount pages) {
    auto const made = KVCache<PagedHeads<half>>::create(g, {.pages = pages});
    REQUIRE_FALSE(made);
    return std::string(made.error().message().text);
  };
  CHECK(refusal({.layers = 3, .kv_heads = 2, .page_tokens = 4}, 8) ==
        "head_dim = 0 (bad configuration): must be a multiple of 8, from 8 to 256");
  CHECK(refusal({.layers = 3, .kv_heads = 2, .head_dim = 16}, 8) ==
        "page_tokens = 0 (bad configuration): must be 1 to 256");
  Geometry g = model;
  g.arrangement = static_cast<Arrangement>(2);
  CHECK(refusal(g, 8) == "arrangement = 2 (bad configuration): must be page_first or layer_first");
  CHECK(refusal({4096, 4096, 8, 1}, 300) ==
        "pages = 300 (bad configuration): pages x layers x kv_heads must fit 32 bits, so at most "
        "254");
}
