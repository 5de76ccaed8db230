// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// \file How much room an array gets at first that doubles later.
///
/// An array that doubles stops asking the heap once it has seen its greatest need. But the need for few things varies
/// much, so the last of many doublings may come when the cache has been full for hours. With room for a thousand things
/// from the first on, or for all that there can be, few doublings are left, and small pools have none.

namespace kvcache::inline v0_1::detail {

/// Room for things of which there can be `most`.
[[nodiscard]] constexpr std::size_t first_room(std::size_t most) noexcept
{
  constexpr std::size_t many = 1024;
  return most < many ? most : many;
}

}  // namespace kvcache::inline v0_1::detail
