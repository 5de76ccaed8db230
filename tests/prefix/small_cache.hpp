// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

/// \file The smallest cache that the faults of the prefix tree can happen in, twice: over the real rooms,
/// and as a naive one with a switch for each fault. A scenario is true of the first, and of the second
/// only while its switch is off.

namespace kvcache_test {

using kvcache::DomainId;
using kvcache::Index;
using kvcache::PageCount;
using kvcache::PageId;
using kvcache::SpanId;
using Text = std::vector<kvcache::Token>;

/// Allocator, tree and LRU, as control puts them together.
class TreeCache {
 public:
  TreeCache(std::int32_t page_tokens, PageCount pages)
      : page_tokens_(static_cast<std::size_t>(page_tokens)),
        tree_(page_tokens, pages),
        ids_(pages),
        users_(4096, 0)
  {
    kvcache::Domain const plain;
    tree_.intern(plain);
    (void)lru_.reserve(4096);
  }

  struct Hold {
    SpanId span{kvcache::nil};
  };

  /// A sequence with this prompt: attaches what is cached.
  Hold hold(Text const& text)
  {
    kvcache::Match const match = tree_.match(DomainId{0}, text, static_cast<Index>(text.size()));
    SpanId span = match.span;
    if (span.value != kvcache::nil && match.span_pages < tree_.size(span)) {
      SpanId const head = tree_.split(span, match.span_pages);
      users_[head.value] = users_[span.value];
      lru_.on_split(head, span);
      span = head;
    }
    for (SpanId at = span; at.value != kvcache::nil; at = tree_.parent(at)) {
      if (users_[at.value]++ == 0) {
        lru_.on_busy(at);
      }
    }
    return {span};
  }

  void close(Hold hold)
  {
    for (SpanId at = hold.span; at.value != kvcache::nil; at = tree_.parent(at)) {
      if (--users_[at.value] == 0) {
        lru_.on_idle(at, {});
      }
    }
  }

  /// A sequence that computes this prompt in pages of its own, publishes them and closes. False: no room.
  bool add(Text const& text)
  {
    std::size_t const want = text.size() / page_tokens_;
    std::vector<PageId> own(want);
    if (!ids_.take(own)) {
      return false;
    }
    Hold const held = hold(text);
    std::size_t const have =
      held.span.value == kvcache::nil
        ? 0
        : static_cast<std::size_t>(tree_.first_token(held.span)) / page_tokens_ +
            tree_.size(held.span);
    for (std::size_t i = 0; i < have; ++i) {
      ids_.release(own[i]);  // a duplicate of what is cached
    }
    if (have < want) {
      std::span<kvcache::Token const> const tokens(text);
      SpanId const leaf =
        tree_.insert(DomainId{0},
                     have == 0 ? kvcache::zero_page : tree_.last_page(held.span),
                     tokens.subspan(have * page_tokens_, (want - have) * page_tokens_),
                     std::span<PageId const>(own).subspan(have),
                     false);
      users_[leaf.value] = 0;
      lru_.on_idle(leaf, {});
    }
    close(held);
    return true;
  }

  Index hit(Text const& text, std::size_t limit) const
  {
    kvcache::Match const match = tree_.match(DomainId{0}, text, static_cast<Index>(limit));
    return match.full_pages * static_cast<Index>(page_tokens_);
  }
  Index hit(Text const& text) const { return hit(text, text.size()); }

  PageCount evict(PageCount count)
  {
    PageCount done = 0;
    while (done < count) {
      auto const victim = lru_.victim();
      if (!victim || tree_.children(*victim) != 0) {
        break;
      }
      PageId page{};
      kvcache::Popped const popped = tree_.pop_tail(*victim, 1, &page, nullptr);
      if (popped.removed_span) {
        lru_.on_busy(*victim);
      }
      ids_.release(page);
      ++done;
    }
    return done;
  }

  PageCount evictable() const
  {
    PageCount sum = 0;
    lru_.for_each_oldest_first([&](SpanId span) { sum += tree_.size(span); });
    return sum;
  }
  PageCount cached() const { return tree_.num_pages(); }
  PageCount free() const { return ids_.num_free(); }
  std::uint32_t nodes() const { return tree_.num_spans(); }
  bool check() const
  {
    return tree_.check_invariants() && lru_.check_invariants() && ids_.check_invariants() &&
           ids_.num_free() + tree_.num_pages() == ids_.capacity();
  }

 private:
  std::size_t page_tokens_;
  kvcache::RadixTree tree_;
  kvcache::PageAllocator ids_;
  kvcache::Lru lru_;
  std::vector<std::uint32_t> users_;
};

/// What can be wrong with the naive cache.
enum class Bug {
  none,
  ignores_limit,      // B-016: a full hit leaves nothing to compute
  counts_after_hole,  // B-018: pages found by their own key, whether or not the ones before are there
  keeps_short_keys,     // B-021: a prompt shorter than a page becomes an entry
  files_under_old_key,  // B-023: after a branch the tail stays under its old key
  counts_by_path,       // B-025: a shared page counts once for each path
  locks_too_much,       // B-026: a hold locks the whole entry and unlocks what matched
  root_first,           // B-028: the oldest page leaves, whoever stands on it
  loses_duplicates,     // B-046: pages that were cached already go nowhere
};

/// A map from all tokens so far to a count of users, in order of age.
class NaiveCache {
 public:
  NaiveCache(std::int32_t page_tokens, PageCount pages, Bug bug)
      : page_tokens_(static_cast<std::size_t>(page_tokens)), free_(pages), pages_(pages), bug_(bug)
  {
  }

  using Hold = Text;

  Hold hold(Text const& text)
  {
    Text held = cut(text, static_cast<std::size_t>(hit(text)));
    for (auto& [key, users] : entries_) {
      users += starts(held, key) ? 1 : 0;
      users += bug_ == Bug::locks_too_much && starts(key, held) && key != held ? 1 : 0;
    }
    return held;
  }

  void close(Hold const& held)
  {
    for (auto& [key, users] : entries_) {
      users -= starts(held, key) ? 1 : 0;
    }
  }

  bool add(Text const& text)
  {
    std::size_t const want = text.size() / page_tokens_;
    if (want > free_) {
      return false;
    }
    if (want == 0 && bug_ == Bug::keeps_short_keys) {
      entries_.emplace_back(text, 0);
    }
    for (std::size_t i = want; i >= 1; --i) {  // deepest first: children are older than parents
      Text const key = cut(text, i * page_tokens_);
      if (find(key) == nullptr) {
        --free_;
        entries_.emplace_back(key, 0);
        if (bug_ == Bug::root_first) {
          std::rotate(entries_.begin(), entries_.end() - 1, entries_.end());
        }
      } else {
        free_ -= bug_ == Bug::loses_duplicates ? 1 : 0;
        if (bug_ == Bug::files_under_old_key && i < want) {
          find(key)->first.back() += 1000;
        }
      }
    }
    return true;
  }

  Index hit(Text const& text, std::size_t limit) const
  {
    std::size_t const rows =
      bug_ == Bug::ignores_limit ? text.size() : std::min(limit, text.size());
    std::size_t found = 0;
    for (std::size_t at = page_tokens_; at <= rows; at += page_tokens_) {
      if (find(cut(text, at)) != nullptr) {
        found += page_tokens_;
      } else if (bug_ != Bug::counts_after_hole) {
        break;
      }
    }
    return static_cast<Index>(found);
  }
  Index hit(Text const& text) const { return hit(text, text.size()); }

  PageCount evict(PageCount count)
  {
    PageCount done = 0;
    while (done < count) {
      auto const victim = std::find_if(entries_.begin(), entries_.end(), [&](auto const& entry) {
        bool const leaf = std::none_of(entries_.begin(), entries_.end(), [&](auto const& other) {
          return other.first != entry.first && starts(other.first, entry.first);
        });
        bool const any = bug_ == Bug::root_first || bug_ == Bug::counts_after_hole;
        return entry.second == 0 && (leaf || any);
      });
      auto const chosen = bug_ == Bug::counts_after_hole && !entries_.empty()
                            ? entries_.end() - 1  // the root of the latest prompt
                            : victim;
      if (chosen == entries_.end()) {
        break;
      }
      entries_.erase(chosen);
      ++free_;
      ++done;
    }
    return done;
  }

  PageCount evictable() const
  {
    PageCount sum = 0;
    for (auto const& [key, users] : entries_) {
      PageCount paths = 0;
      for (auto const& [other, unused] : entries_) {
        paths += starts(other, key) && is_leaf(other) ? 1U : 0U;
      }
      sum += users != 0 ? 0 : bug_ == Bug::counts_by_path ? paths : 1U;
    }
    return sum;
  }
  PageCount cached() const { return static_cast<PageCount>(entries_.size()); }
  PageCount free() const { return free_; }
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(entries_.size()); }
  bool check() const { return free_ + entries_.size() == pages_; }

 private:
  using Entry = std::pair<Text, int>;

  static Text cut(Text const& text, std::size_t count)
  {
    return Text(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count));
  }
  static bool starts(Text const& text, Text const& with)
  {
    return with.size() <= text.size() && std::equal(with.begin(), with.end(), text.begin());
  }
  bool is_leaf(Text const& key) const
  {
    return std::none_of(entries_.begin(), entries_.end(), [&](Entry const& other) {
      return other.first != key && starts(other.first, key);
    });
  }
  Entry const* find(Text const& key) const
  {
    auto const at = std::find_if(
      entries_.begin(), entries_.end(), [&](Entry const& entry) { return entry.first == key; });
    return at == entries_.end() ? nullptr : &*at;
  }
  Entry* find(Text const& key)
  {
    return const_cast<Entry*>(static_cast<NaiveCache const*>(this)->find(key));
  }

  std::size_t page_tokens_;
  std::vector<Entry> entries_;  // the oldest first
  PageCount free_;
  PageCount pages_;
  Bug bug_;
};

}  // namespace kvcache_test
