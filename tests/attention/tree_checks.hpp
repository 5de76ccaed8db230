// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Ways to run a tree beside the same tokens as plain chunks, and beside kernels that mask by bias.

#include <kvcache/attention/reference.hpp>
#include <kvcache/host.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../examples/01_your_kernel.hpp"
#include "attention/attention_checks.hpp"
#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

namespace kvcache_test {

/// A step in which every path from a root to a leaf is a plain chunk in a sequence of its own, with the tree's rows.
template <class Layout>
struct Paths {
  std::vector<std::vector<kvcache::Index>> rows;   // of each sequence: which of the tree's
  std::vector<std::vector<kvcache::Index>> nodes;  // of each chunk: which token of the tree
  std::vector<kvcache::Index> lengths;
  std::vector<StepChunk> chunks;

  Paths(Parents const& tree, kvcache::Index prefix)
  {
    for (kvcache::Index const leaf : leaves(tree)) {
      nodes.push_back(path_to(tree, leaf));
      rows.emplace_back();
      for (kvcache::Index i = 0; i < prefix; ++i) {
        rows.back().push_back(i);
      }
      for (kvcache::Index const node : nodes.back()) {
        rows.back().push_back(prefix + node);
      }
      chunks.push_back(
        {static_cast<int>(lengths.size()), static_cast<kvcache::Index>(nodes.back().size())});
      lengths.push_back(static_cast<kvcache::Index>(rows.back().size()));
    }
  }

  void copy_rows(PagedPool<Layout> const& from, PagedPool<Layout>& to, std::int32_t layer) const
  {
    for (std::uint32_t s = 0; s < rows.size(); ++s) {
      for (kvcache::Index i = 0; i < lengths[s]; ++i) {
        auto view = to.view();
        view.token_row = &s;
        view.token_index = &i;
        for (std::int32_t h = 0; h < from.geometry().kv_heads; ++h) {
          kvcache::Index const source = rows[s][static_cast<std::size_t>(i)];
          view.append(kvcache::Solo{},
                      layer,
                      h,
                      0,
                      from.key(0, layer, h, source),
                      from.value(0, layer, h, source));
        }
      }
    }
  }
};

/// The largest difference between a tree and its paths run one by one.
template <class Layout>
double error_against_paths(Parents const& tree,
                           kvcache::Index prefix,
                           kvcache::Geometry geometry,
                           kvcache::AttentionShape shape,
                           Path path,
                           std::uint64_t seed)
{
  auto const tokens = static_cast<kvcache::Index>(tree.size());
  PagedPool<Layout> pool(geometry, {prefix + tokens}, {{0, tokens}}, Poison::nan, seed);
  pool.plant(0, tree);
  std::vector<float> const q = random_queries(query_floats(pool, shape), seed);
  Attended const together = run(pool, shape, {}, 0, q, path);

  Paths<Layout> const alone(tree, prefix);
  PagedPool<Layout> pages(geometry, alone.lengths, alone.chunks, Poison::nan, seed + 1);
  alone.copy_rows(pool, pages, 0);
  auto const row =
    static_cast<std::ptrdiff_t>(shape.query_heads) * static_cast<std::ptrdiff_t>(geometry.head_dim);
  std::vector<float> path_q;
  std::vector<float> want;
  std::vector<float> want_lse;
  for (auto const& nodes : alone.nodes) {
    for (kvcache::Index const node : nodes) {
      path_q.insert(path_q.end(), q.begin() + node * row, q.begin() + (node + 1) * row);
      want.insert(
        want.end(), together.out.begin() + node * row, together.out.begin() + (node + 1) * row);
      want_lse.insert(want_lse.end(),
                      together.lse.begin() + node * shape.query_heads,
                      together.lse.begin() + (node + 1) * shape.query_heads);
    }
  }
  Attended const one_by_one = run(pages, shape, {}, 0, path_q, path);
  return std::max(largest_difference(want, one_by_one.out),
                  largest_difference(want_lse, one_by_one.lse));
}

/// Every query row by a kernel that reads tiles: the reference, or the example's online softmax.
template <class Layout>
Attended run_tiles(PagedPool<Layout>& pool,
                   kvcache::AttentionShape shape,
                   std::vector<float> const& q,
                   bool example)
{
  auto const view = pool.view();
  auto const dim = static_cast<std::size_t>(pool.geometry().head_dim);
  Attended got{std::vector<float>(q.size(), 77.0F), std::vector<float>(q.size() / dim, 77.0F)};
  for (kvcache::Index token = 0; token < pool.num_tokens(); ++token) {
    for (std::int32_t head = 0; head < shape.query_heads; ++head) {
      auto const row = static_cast<std::size_t>(token * shape.query_heads + head);
      float const* const from = q.data() + row * dim;
      float* const out = got.out.data() + row * dim;
      if (example) {
        ::attend(view, 0, head / shape.group(), token, from, out);
      } else {
        got.lse[row] =
          kvcache::reference_attention(kvcache::Solo{}, view, shape, 0, head, token, from, out);
      }
    }
  }
  return got;
}

/// Writes `value` over every row that `token` may not see, in all heads of layer 0.
template <class Layout>
int spoil_hidden(PagedPool<Layout>& pool, kvcache::Index token, float value)
{
  int rows = 0;
  for (kvcache::Index i = 0; i < pool.sees(token); ++i) {
    for (std::int32_t h = 0; h < pool.geometry().kv_heads && !pool.visible(token, i); ++h, ++rows) {
      pool.put(token, 0, h, i, value, value);
    }
  }
  return rows;
}

/// The results of one token.
inline bool same_token(Attended const& a,
                       Attended const& b,
                       kvcache::Index token,
                       kvcache::AttentionShape shape,
                       int dim)
{
  auto const lse = static_cast<std::ptrdiff_t>(token) * shape.query_heads;
  return std::equal(
           a.lse.begin() + lse, a.lse.begin() + lse + shape.query_heads, b.lse.begin() + lse) &&
         std::equal(a.out.begin() + lse * dim,
                    a.out.begin() + (lse + shape.query_heads) * dim,
                    b.out.begin() + lse * dim);
}

}  // namespace kvcache_test
