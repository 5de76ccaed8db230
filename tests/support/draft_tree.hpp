// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Shapes of token trees, as the parent of each token: a place before it, or -1.

#include <kvcache/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace kvcache_test {

using Parents = std::vector<kvcache::Index>;

/// Each follows the one before it.
inline Parents chain(std::size_t tokens)
{
  Parents out(tokens);
  for (std::size_t i = 0; i < tokens; ++i) {
    out[i] = static_cast<kvcache::Index>(i) - 1;
  }
  return out;
}

/// Each alone behind the prefix.
inline Parents siblings(std::size_t tokens)
{
  return Parents(tokens, -1);
}

/// A root and its children.
inline Parents star(std::size_t tokens)
{
  Parents out(tokens, 0);
  out.front() = -1;
  return out;
}

/// Parents at random; `near`: among the last three tokens, so that paths are long.
inline Parents random_tree(std::mt19937_64& random, std::size_t tokens, bool near)
{
  Parents out(tokens, -1);
  for (std::size_t i = 1; i < tokens; ++i) {
    auto const last = static_cast<kvcache::Index>(i) - 1;
    out[i] = std::uniform_int_distribution<kvcache::Index>(near ? std::max(last - 2, 0) : -1,
                                                           last)(random);
  }
  return out;
}

/// The places from the root to `token`.
inline std::vector<kvcache::Index> path_to(Parents const& parents, kvcache::Index token)
{
  std::vector<kvcache::Index> out;
  for (; token >= 0; token = parents[static_cast<std::size_t>(token)]) {
    out.insert(out.begin(), token);
  }
  return out;
}

/// The tokens that are nobody's parent.
inline std::vector<kvcache::Index> leaves(Parents const& parents)
{
  std::vector<kvcache::Index> out;
  for (std::size_t i = 0; i < parents.size(); ++i) {
    auto const token = static_cast<kvcache::Index>(i);
    if (std::find(parents.begin(), parents.end(), token) == parents.end()) {
      out.push_back(token);
    }
  }
  return out;
}

}  // namespace kvcache_test
