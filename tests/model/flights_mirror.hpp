// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A follower of events: it keeps what it hears, and knows nothing else of the tree.

#include <kvcache/control/events.hpp>
#include <kvcache/core/ids.hpp>

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "model/naive.hpp"

namespace kvcache_test {

struct FlightMirror {
  using Text = std::vector<kvcache::Token>;

  std::map<std::uint32_t, std::tuple<kvcache::DomainId, std::uint32_t, Text>>
    pages;  // page: domain, parent, tokens
  kvcache::EventCursor cursor;

  void apply(kvcache::Event const& event)
  {
    switch (event.kind) {
      case kvcache::EventKind::stored: {
        auto const parent = pages.find(event.parent.value);
        require(event.parent == kvcache::zero_page ||
                  (parent != pages.end() && std::get<0>(parent->second) == event.domain),
                "an event stores a page below one that is not there");
        bool const fresh = pages
                             .emplace(event.page.value,
                                      std::tuple(event.domain,
                                                 event.parent.value,
                                                 Text(event.tokens.begin(), event.tokens.end())))
                             .second;
        require(fresh, "an event stores a page that is stored");
        return;
      }
      case kvcache::EventKind::removed:
        require(pages.erase(event.page.value) == 1, "an event removes a page that is not there");
        return;
      case kvcache::EventKind::cleared:
        std::erase_if(pages,
                      [&](auto const& page) { return std::get<0>(page.second) == event.domain; });
        return;
    }
  }
  void follow(kvcache::EventLog const& log)
  {
    require(log.oldest() <= cursor.applied() + 1, "more events in one call than the ring holds");
    for (std::uint64_t n = cursor.applied() + 1; n < log.next(); ++n) {
      require(cursor.take(n) == kvcache::EventCursor::Verdict::apply, "numbers have gaps");
      apply(log.at(n));
    }
  }
};

}  // namespace kvcache_test
