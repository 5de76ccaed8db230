// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A small cache, and an engine that stores rows which name their token and place.

#include <kvcache/kvcache.hpp>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace kvcache_test {

using Layout = kvcache::PagedHeads<float, 8, 4>;
using Cache = kvcache::KVCache<Layout>;
using Tokens = std::vector<kvcache::Token>;

inline constexpr kvcache::Geometry small_model{.layers = 2, .kv_heads = 2};

template <class C = Cache>
C make_cache(kvcache::PageCount pages)
{
  auto made = C::create(small_model, {.pages = pages, .max_sequences = 8, .max_step_tokens = 64});
  REQUIRE(made);
  return std::move(*made);
}

inline float stamp(kvcache::Token token,
                   kvcache::Index index,
                   std::int32_t layer,
                   std::int32_t head)
{
  return static_cast<float>(token) + static_cast<float>(index) / 64.0F +
         static_cast<float>(layer * 2 + head) / 1024.0F;
}

/// What the engine's kernels do: stores the rows of `tokens`, the step's tokens in order.
template <class View>
void run_kernels(View const& kv, Tokens const& tokens)
{
  REQUIRE(kv.num_tokens() == static_cast<kvcache::Index>(tokens.size()));
  for (kvcache::Index token = 0; token < kv.num_tokens(); ++token) {
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      for (std::int32_t head = 0; head < 2; ++head) {
        float const x =
          stamp(tokens[static_cast<std::size_t>(token)], kv.index(token), layer, head);
        float const k[8] = {x, x, x, x, x, x, x, x};
        float const v[8] = {-x, -x, -x, -x, -x, -x, -x, -x};
        kv.append(kvcache::Solo{}, layer, head, token, k, v);
      }
    }
  }
}

/// Rows that the last token of the step reads and that are not those of `history`.
template <class View>
int count_wrong(View const& kv, kvcache::Index token, Tokens const& history)
{
  int wrong = 0;
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    for (std::int32_t head = 0; head < 2; ++head) {
      std::size_t seen = 0;
      for (auto const tile : kv.tiles(layer, head, token)) {
        for (kvcache::Index r = 0; r < tile.rows(); ++r, ++seen) {
          float const want =
            seen < history.size() ? stamp(history[seen], tile.first() + r, layer, head) : -1.0F;
          for (std::int32_t d = 0; d < 8; ++d) {
            wrong += tile.key(r, d) == want && tile.value(r, d) == -want ? 0 : 1;
          }
        }
      }
      wrong += seen == history.size() ? 0 : 1;
    }
  }
  return wrong;
}

/// A whole step of one sequence. `history` gains the tokens; the rows read are those of all of it.
template <class C>
void append(C& cache, kvcache::Sequence const& sequence, Tokens const& tokens, Tokens& history)
{
  auto step = cache.prepare({{sequence, tokens}});
  REQUIRE(step);
  auto const kv = step->view();
  run_kernels(kv, tokens);
  history.insert(history.end(), tokens.begin(), tokens.end());
  CHECK(count_wrong(kv, kv.num_tokens() - 1, history) == 0);
  REQUIRE(step->commit());
}

/// Opens `prompt` and computes what is not cached.
template <class C>
  requires requires { typename C::View; }  // a plane has its own, in plane.hpp
kvcache::Sequence prefilled(C& cache, Tokens const& prompt)
{
  auto sequence = cache.open({.tokens = prompt});
  REQUIRE(sequence);
  auto const cached = static_cast<std::ptrdiff_t>(sequence->cached());
  Tokens history(prompt.begin(), prompt.begin() + cached);
  append(cache, *sequence, Tokens(prompt.begin() + cached, prompt.end()), history);
  CHECK(history == prompt);
  return std::move(*sequence);
}

}  // namespace kvcache_test
