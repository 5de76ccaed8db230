// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace llama {

/// Several guesses at how a text goes on, for one step to compute all of: what they begin with alike is there once.
///
///   root the       add code of zoe, code of bob, room         the - code - of - zoe
///                                                                |          +- bob
///                                                                +- room
struct DraftTree {
  std::vector<std::int32_t> tokens;     // the root first
  std::vector<kvcache::Index> parents;  // of each token: where its parent stands, before it

  /// `root` is no guess: it is the text's last token, whose row the step computes too.
  explicit DraftTree(std::int32_t root) : tokens{root}, parents{-1} {}

  /// Adds what is new of `guess`, as long as the tree has no more than `most` tokens.
  void add(std::span<std::int32_t const> guess, std::size_t most)
  {
    kvcache::Index at = 0;
    for (std::int32_t const token : guess) {
      kvcache::Index next = child(at, token);
      if (next < 0) {
        if (tokens.size() >= most) {
          return;
        }
        next = static_cast<kvcache::Index>(tokens.size());
        tokens.push_back(token);
        parents.push_back(at);
      }
      at = next;
    }
  }

  /// Where the guess that `token` follows the one at `parent` stands, or -1: nobody guessed that.
  [[nodiscard]] kvcache::Index child(kvcache::Index parent, std::int32_t token) const
  {
    for (auto i = static_cast<std::size_t>(parent) + 1; i < tokens.size(); ++i) {
      if (parents[i] == parent && tokens[i] == token) {
        return static_cast<kvcache::Index>(i);
      }
    }
    return -1;
  }
};

}  // namespace llama
