// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file The journal of an open step's evictions.

namespace kvcache::inline v0_1 {

/// What an open step evicted, so that dropping the step can put it back.
class Reclaimed {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// The last of the pages that the first `entries` entries name.
  [[nodiscard]] PageId last_page(std::size_t entries) const noexcept
  {
    std::size_t pages = 0;
    for (std::size_t i = 0; i < entries; ++i) {
      pages += entries_[i].pages;
    }
    return pages != 0 ? pages_[pages - 1] : zero_page;
  }
  /// Of all evicted pages.
  [[nodiscard]] std::span<Token const> tokens() const noexcept { return tokens_; }
  /// Calls `visit(DomainId)` for each entry: it may bring pages back to the domain.
  template <class Visit>
  void for_each_domain(Visit&& visit) const
  {
    for (Entry const& entry : entries_) {
      visit(entry.domain);
    }
  }
  void clear() noexcept
  {
    entries_.clear();
    pages_.clear();
    tokens_.clear();
  }

 private:
  template <class, class, class>
  friend class PageBook;

  struct Entry {
    DomainId domain;
    std::uint32_t generation;
    PageId parent;             // the page before the first one, zero_page at the root
    std::uint32_t parent_use;  // which use of that page it was
    PageCount pages;
    bool whole_span;
    bool used;     // it was no victim of the policy
    PageId newer;  // of a fenced span: the last page of the one that stood right behind it
  };
  List<Entry> entries_;
  List<PageId> pages_;  // of each entry, last page first
  List<Token> tokens_;  // of each entry, in the order of the sequence
};

}  // namespace kvcache::inline v0_1
