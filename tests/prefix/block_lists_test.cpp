// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/block_lists.hpp>

#include <vector>

#include "support/catch.hpp"

using namespace kvcache;
using detail::BlockHeader;

TEST_CASE("BlockLists: find takes a block that suffices, of the nearest class",
          "[prefix][block_lists]")
{
  // Blocks of these sizes, in memory that holds a header and links for each.
  std::vector<std::uint32_t> const sizes = {2, 5, 16, 17, 40, 44, 200};
  std::vector<BlockHeader> memory(2 * sizes.size());
  detail::BlockLists lists;
  std::size_t sum = 0;
  CHECK(lists.find(2) == nullptr);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    memory[2 * i].size = sizes[i];
    lists.insert(&memory[2 * i]);
    CHECK(memory[2 * i].is_free());
    sum += sizes[i];
  }
  CHECK(lists.units() == sum);
  CHECK(lists.check(sizes.size()));
  auto const found = [&](std::size_t units) {
    BlockHeader const* const block = lists.find(units);
    return block == nullptr ? 0 : block->units();
  };
  CHECK(found(2) == 2);
  CHECK(found(3) == 5);
  CHECK(found(17) == 17);
  CHECK(found(18) == 40);
  CHECK(found(44) == 44);  // not the other one of its class
  CHECK(found(201) == 0);
  CHECK(found(~std::size_t{0}) == 0);
  lists.erase(&memory[2 * 3]);
  CHECK_FALSE(memory[2 * 3].is_free());
  CHECK(found(17) == 40);
  lists.erase(&memory[2 * 6]);
  CHECK(found(45) == 0);
  CHECK(lists.check(sizes.size() - 2));
  CHECK_FALSE(lists.check(sizes.size()));
}
