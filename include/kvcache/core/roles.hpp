// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The places a policy can take. A policy says `using role = kvcache::role::replacement;`, and
/// `Policies<...>` puts it there, in whatever order the parts are written.

namespace kvcache::inline v0_1::role {

struct allocator;    ///< gives out page ids and counts their holders
struct prefix;       ///< knows which cached pages continue which tokens
struct replacement;  ///< names the cached span that leaves next
struct quantizer;    ///< the codec of a tile
struct eviction;     ///< which rows of a live sequence stay

}  // namespace kvcache::inline v0_1::role
