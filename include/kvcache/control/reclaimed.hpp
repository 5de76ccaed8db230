// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// \file The journal of an open step's evictions.

namespace kvcache::inline v0_1 {

/// What an open step evicted, so that dropping the step can put it back.
class Reclaimed {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
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
    PageId parent;  // the page before the first one, zero_page at the root
    PageCount pages;
    bool whole_span;
  };
  std::vector<Entry> entries_;
  std::vector<PageId> pages_;  // of each entry, last page first
  std::vector<Token> tokens_;  // of each entry, in the order of the sequence
};

}  // namespace kvcache::inline v0_1
