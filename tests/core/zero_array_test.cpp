// SPDX-License-Identifier: Apache-2.0
#include <kvcache/core/zero_array.hpp>

#include <cstdint>
#include <limits>
#include <new>
#include <utility>

#include "support/catch.hpp"

using kvcache::ZeroArray;

TEST_CASE("ZeroArray: starts as zeros and keeps what is written", "[core][zero_array]")
{
  ZeroArray<std::uint32_t> array(1000);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < array.size(); ++i) {
    sum |= array[i];
    array[i] = static_cast<std::uint32_t>(i);
  }
  CHECK(sum == 0);
  CHECK(array[999] == 999);
  CHECK(array.bytes() == 4000);
}

TEST_CASE("ZeroArray: moves, and may be empty", "[core][zero_array]")
{
  ZeroArray<int> array(3);
  array[2] = 7;
  ZeroArray<int> const moved = std::move(array);
  CHECK(moved.size() == 3);
  CHECK(moved[2] == 7);
  CHECK(ZeroArray<int>().size() == 0);
  CHECK(ZeroArray<int>(0).bytes() == 0);
}

TEST_CASE("ZeroArray: too much memory is refused with bad_alloc", "[core][zero_array]")
{
  std::size_t const too_many = std::numeric_limits<std::size_t>::max() / 4;
  CHECK_THROWS_AS(ZeroArray<std::uint64_t>(too_many), std::bad_alloc);
}
