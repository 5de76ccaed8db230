// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstdint>

namespace kvcache::inline v0_1 {

/// What a replacement policy may know of a span of cached pages.
struct SpanFacts {
  SpanId parent{nil};        ///< the span before it in its prompt, or none
  std::uint32_t domain = 0;  ///< which domain it belongs to; equal numbers share
  Index first_token = 0;     ///< the place of its first row: what lies deeper costs more to compute
  PageCount pages = 0;       ///< how many pages it would give
};

}  // namespace kvcache::inline v0_1
