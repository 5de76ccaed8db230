// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Catch2, version 2 (Debian 12) or 3: tests include this file and never Catch2's own.
///
/// Both give the macros of version 2, `Catch::Approx` and the matchers under one name each:
/// `REQUIRE_THAT(text, Contains("row"))` after `using kvcache_test::Contains;`.

#if defined(KVCACHE_CATCH2_V3)

#include <catch2/catch_all.hpp>

namespace kvcache_test {

inline auto Contains(std::string const& part)
{
  return Catch::Matchers::ContainsSubstring(part);
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

#else

#include <catch2/catch.hpp>

#include <string>

namespace kvcache_test {

inline auto Contains(std::string const& part)
{
  return Catch::Matchers::Contains(part);
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

#endif
