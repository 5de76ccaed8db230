// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What the naive cache keeps of a page and of a sequence.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "faults/subject.hpp"
#include "support/stamp.hpp"

namespace kvcache_test {

/// One stamp a row.
struct NaivePage {
  int holders = 0;
  bool cached = false;
  int tenant = 0;
  Text text;  // up to its end, where it is cached
  std::uint64_t used = 0;
  std::vector<Stamp> rows = std::vector<Stamp>(4, 0);

  /// It is the page after `parent` in some text.
  [[nodiscard]] bool continues(NaivePage const& parent) const
  {
    return cached && tenant == parent.tenant && text.size() == parent.text.size() + 4 &&
           std::equal(parent.text.begin(), parent.text.end(), text.begin());
  }
};
/// Its text and its pages.
struct NaiveSequence {
  bool live;
  int tenant;
  std::size_t epoch;
  Text tokens;
  std::vector<std::uint32_t> table;
};

}  // namespace kvcache_test
