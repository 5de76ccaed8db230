// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstdint>

namespace kvcache::inline v0_1 {

/// What a replacement policy may know of a span of cached pages.
struct SpanFacts {
  std::uint32_t domain = 0;  ///< which domain it belongs to; equal numbers share
  Index first_token = 0;     ///< the place of its first row: what lies deeper costs more to compute
  PageCount pages = 0;       ///< how many pages it would give
  std::uint8_t priority = 0;  ///< larger stays longer, where the policy looks at it
};

}  // namespace kvcache::inline v0_1
