// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Catch2, version 2 (Debian 12) or 3: tests include this file and never Catch2's own.
///
/// Tests use the macros that both have, and from `kvcache_test::` what moved between them: `Approx`, `Contains`,
/// `StartsWith`, `EndsWith`, as in `CHECK_THAT(text, kvcache_test::Contains("row"))`. The core of the suite also runs
/// without exceptions (`no_exceptions_tests`): what throws by itself stays behind `#if defined(__cpp_exceptions)`.

#if defined(KVCACHE_CATCH2_V3)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <string>

#include "support/last_words.hpp"

// Without exceptions a broken precondition prints its sentence and ends the program: the same checks, of a child process.
#if !defined(__cpp_exceptions)
#undef CHECK_THROWS_AS
#undef CHECK_THROWS_WITH
#define CHECK_THROWS_AS(expression, type)                           \
  CHECK_THAT(kvcache_test::last_words([&] { (void)(expression); }), \
             kvcache_test::EndsWith("aborted"))
#define CHECK_THROWS_WITH(expression, sentence)                  \
  CHECK(kvcache_test::last_words([&] { (void)(expression); }) == \
        std::string(sentence) + "\naborted")
#endif

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
