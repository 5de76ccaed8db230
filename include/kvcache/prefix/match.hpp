// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstdint>

/// \file What a look into the prefix tree answers.

namespace kvcache::inline v0_1 {

/// Why a match did not reach further.
enum class Miss : std::uint8_t {
  none,          ///< everything that was asked for matched
  never_seen,    ///< no trace of what follows
  evicted,       ///< what follows was cached, and left to make room
  other_domain,  ///< the same start is cached where this prompt may not share
  last_token,    ///< the match reached its limit: the rest is always left to compute
  partial,       ///< the prompt leaves the cached text inside a page
};

/// A sentence for the operator.
[[nodiscard]] constexpr char const* name(Miss miss) noexcept
{
  switch (miss) {
    case Miss::none:
      return "everything matched";
    case Miss::never_seen:
      return "what follows was never cached here";
    case Miss::evicted:
      return "what follows was cached, and has been evicted since";
    case Miss::other_domain:
      return "the same start is cached in another domain, which this prompt may not share";
    case Miss::last_token:
      return "all that may be reused matched: the last token is always computed";
    case Miss::partial:
      return "the prompt leaves the cached text inside a page";
  }
  return "unknown";
}

/// The longest cached prefix of a prompt; valid until the tree changes.
struct Match {
  DomainId domain{};
  Index full_pages = 0;      ///< whole pages from the first token on
  SpanId span{nil};          ///< the deepest span with a matched page; nil: none
  PageCount span_pages = 0;  ///< how many of its pages matched
  PageId partial_page = {};  ///< a cached page whose first rows come next; `zero_page`: none
  Index partial_rows = 0;    ///< how many of its rows: 0 to page_tokens - 1
  Miss miss = Miss::none;    ///< why not more

  /// How many rows of the prompt are cached.
  [[nodiscard]] constexpr Index rows(Index page_tokens) const noexcept
  {
    return full_pages * page_tokens + partial_rows;
  }
};

/// What `RadixTree::pop_tail` took.
struct Popped {
  DomainId domain{};
  PageId parent{};            ///< the page before the first popped one; `zero_page` at the root
  PageCount pages = 0;        ///< how many pages went
  bool removed_span = false;  ///< the span is empty and gone
};

}  // namespace kvcache::inline v0_1
