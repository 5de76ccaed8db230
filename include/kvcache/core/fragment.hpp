// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file Sixteen bytes, the most that one load of a GPU thread brings.

namespace kvcache::inline v0_1::detail {

/// What one load brings, whatever the elements are. **Pre** of a pointer to one: a multiple of 16.
struct [[gnu::may_alias]] alignas(16) Fragment {
  std::uint32_t words[4];
};

}  // namespace kvcache::inline v0_1::detail
