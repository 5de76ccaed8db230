// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/match.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

/// \file The prefix tree without any idea in it: a map from (domain, all tokens so far) to a page.

namespace kvcache_test {

class NaiveTree {
 public:
  using Text = std::vector<kvcache::Token>;
  using Key = std::pair<std::uint32_t, Text>;  // domain, tokens up to the end of the page

  explicit NaiveTree(std::size_t page_tokens) : page_tokens_(page_tokens) {}

  static Text first(std::span<kvcache::Token const> tokens, std::size_t count)
  {
    return Text(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// The page that ends after `count` tokens, or the page of zeros.
  kvcache::PageId page(std::uint32_t domain,
                       std::span<kvcache::Token const> tokens,
                       std::size_t count) const
  {
    auto const at = pages_.find(Key{domain, first(tokens, count)});
    return at == pages_.end() ? kvcache::zero_page : at->second;
  }

  /// The pages of the longest cached prefix of at most `rows` tokens.
  std::vector<kvcache::PageId> match(std::uint32_t domain,
                                     std::span<kvcache::Token const> tokens,
                                     std::size_t rows) const
  {
    std::vector<kvcache::PageId> found;
    for (std::size_t at = page_tokens_; at <= std::min(rows, tokens.size()); at += page_tokens_) {
      kvcache::PageId const next = page(domain, tokens, at);
      if (next == kvcache::zero_page) {
        break;
      }
      found.push_back(next);
    }
    return found;
  }

  /// How many rows a page right below `before` has in common with what follows there, and how many such
  /// pages share at least the first token.
  std::pair<std::size_t, std::size_t> partial(std::uint32_t domain,
                                              Text const& before,
                                              std::span<kvcache::Token const> ahead) const
  {
    std::size_t best = 0;
    std::size_t siblings = 0;
    for (auto at = pages_.lower_bound(Key{domain, before}); at != pages_.end(); ++at) {
      Text const& text = at->first.second;
      if (at->first.first != domain ||
          !std::equal(
            before.begin(),
            before.end(),
            text.begin(),
            text.begin() + static_cast<std::ptrdiff_t>(std::min(before.size(), text.size())))) {
        break;
      }
      if (text.size() != before.size() + page_tokens_) {
        continue;
      }
      std::size_t common = 0;
      while (common < std::min(ahead.size(), page_tokens_) &&
             text[before.size() + common] == ahead[common]) {
        ++common;
      }
      best = std::max(best, common);
      siblings += common != 0 ? 1U : 0U;
    }
    return {best, siblings};
  }

  void put(std::uint32_t domain, Text text, kvcache::PageId page)
  {
    keys_[page.value] = Key{domain, text};
    pages_[Key{domain, std::move(text)}] = page;
  }

  void erase(kvcache::PageId page)
  {
    auto const at = keys_.find(page.value);
    pages_.erase(at->second);
    keys_.erase(at);
  }

  bool contains(kvcache::PageId page) const { return keys_.count(page.value) != 0; }
  Key const& key(kvcache::PageId page) const { return keys_.at(page.value); }
  std::map<Key, kvcache::PageId> const& pages() const { return pages_; }
  std::size_t size() const { return pages_.size(); }

 private:
  std::size_t page_tokens_;
  std::map<Key, kvcache::PageId> pages_;
  std::map<std::uint32_t, Key> keys_;  // by page id
};

}  // namespace kvcache_test
