// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Catch2, version 2 (Debian 12) or 3: tests include this file and never Catch2's own.
///
/// Tests use the macros that both have, and from `kvcache_test::` what moved between them: `Approx`, `Contains`,
/// `StartsWith`, `EndsWith`, as in `CHECK_THAT(text, kvcache_test::Contains("row"))`.

#if defined(KVCACHE_CATCH2_V3)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <string>

namespace kvcache_test {

#if defined(KVCACHE_CATCH2_V3)
using Catch::Approx;
#else
using Catch::Detail::Approx;
#endif

inline auto Contains(std::string const& part)
{
#if defined(KVCACHE_CATCH2_V3)
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

inline auto StartsWith(std::string const& part)
{
  return Catch::Matchers::StartsWith(part);
}
inline auto EndsWith(std::string const& part)
{
  return Catch::Matchers::EndsWith(part);
}

}  // namespace kvcache_test
