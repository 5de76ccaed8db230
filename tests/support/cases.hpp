// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file How many random cases a test tries: all of them, or fewer where each is slow.

#include <algorithm>
#include <cstdlib>

namespace kvcache_test {

/// `all`, or one in KVCACHE_FEWER_CASES of them where that is set, but never none.
inline int cases_of(int all)
{
  char const* const text = std::getenv("KVCACHE_FEWER_CASES");
  int const fewer = text == nullptr ? 1 : std::atoi(text);
  return fewer > 1 ? std::max(1, all / fewer) : all;
}

}  // namespace kvcache_test
