// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What whoever runs a test asks of it.

#include <cstdint>
#include <cstdlib>
#include <optional>

namespace kvcache_test {

/// The number in an environment variable; nothing where it is not set, or empty.
inline std::optional<std::uint64_t> number_from(char const* variable)
{
  char const* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? std::nullopt
                                          : std::optional(std::strtoull(text, nullptr, 10));
}

}  // namespace kvcache_test
