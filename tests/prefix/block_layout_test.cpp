// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/block_layout.hpp>

#include "support/catch.hpp"

using namespace kvcache;

TEST_CASE("block_class: larger sizes have no smaller class, and an eighth more is another",
          "[prefix][block_layout]")
{
  std::size_t last = 0;
  bool right = true;
  for (std::size_t units = 1; units < 100'000; ++units) {
    std::size_t const c = detail::block_class(units);
    right = right && (c == last || c == last + 1);
    right = right && detail::block_class(units + (units + 7) / 8) > c;
    last = c;
  }
  CHECK(right);
  CHECK(detail::block_class(15) == 15);
  CHECK(detail::block_class(16) == detail::block_class(17));
  CHECK(detail::block_class(detail::most_units) == detail::num_block_classes - 1);
}

TEST_CASE("units_for: the header, and enough for the links of a free block",
          "[prefix][block_layout]")
{
  CHECK(detail::units_for(0) == detail::fewest_units);
  CHECK(detail::units_for(16) == 2);
  CHECK(detail::units_for(17) == 3);
  CHECK(detail::units_for(68) == 6);
}

TEST_CASE("header_of: found from where the memory begins, also behind a cut",
          "[prefix][block_layout]")
{
  detail::BlockHeader headers[4]{};
  std::byte* const memory = detail::memory_of(&headers[1]);
  for (std::size_t cut : {0U, 4U, 8U, 12U}) {
    CHECK(detail::header_of(memory + cut) == &headers[1]);
    CHECK(detail::offset_of(memory + cut) == cut);
  }
}
