// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A scenario on the real cache, on the naive one, and on its broken twin.

#include <cstdint>

#include "faults/bug.hpp"
#include "faults/naive_cache.hpp"
#include "faults/subject.hpp"
#include "support/catch.hpp"

namespace kvcache_test {

/// The scenario holds for the real cache and the naive one, and not with the fault.
template <class Scenario>
void verify(Scenario const& scenario, Bug bug, std::uint32_t pages = 8)
{
  RealCache real(pages);
  CHECK(scenario(real));
  CHECK(real.check());
  NaiveCache naive(pages);
  CHECK(scenario(naive));
  NaiveCache twin(pages, bug);
  CHECK_FALSE(scenario(twin));
}

}  // namespace kvcache_test
