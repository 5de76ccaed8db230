// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/id_table.hpp>

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

using kvcache::nil;
using kvcache::detail::IdTable;

TEST_CASE("IdTable: tells ids of one hash apart by the caller's word", "[prefix][id_table]")
{
  IdTable table;
  table.reserve(3);
  for (std::uint32_t id : {5U, 6U, 7U}) {
    table.insert(42, id);
  }
  for (std::uint32_t id : {5U, 6U, 7U}) {
    CHECK(table.find(42, [&](std::uint32_t other) { return other == id; }) == id);
  }
  CHECK(table.find(42, [](std::uint32_t) { return false; }) == nil);
  CHECK(table.find(58, [](std::uint32_t) { return true; }) == nil);  // the same slot, another hash
  table.replace(42, 6, 9);
  CHECK(table.find(42, [](std::uint32_t id) { return id == 6; }) == nil);
  CHECK(table.find(42, [](std::uint32_t id) { return id == 9; }) == 9);
  CHECK(table.size() == 3);
}

TEST_CASE("IdTable: equals a list over random calls, crowded slots included", "[prefix][id_table]")
{
  for (std::uint32_t const spread : {1U, 3U, 20U, 1'000'000U}) {
    CAPTURE(spread);
    kvcache_test::Random random(spread);
    IdTable table;
    std::vector<std::uint32_t> hash_of(200, 0);
    std::vector<bool> in(200, false);
    std::uint32_t size = 0;
    bool equal = true;
    for (int step = 0; step < 20'000 && equal; ++step) {
      std::uint32_t const id = random.below(200);
      if (in[id]) {
        table.erase(hash_of[id], id);
        --size;
      } else {
        // Hashes near the top of the slots wrap around; small spreads pile up.
        hash_of[id] = ~std::uint32_t{0} - random.below(spread);
        table.reserve(size + 1);
        table.insert(hash_of[id], id);
        ++size;
      }
      in[id] = !in[id];
      equal = table.size() == size;
      for (std::uint32_t i = 0; i < 200 && step % 16 == 0; ++i) {
        std::uint32_t const found =
          table.find(hash_of[i], [&](std::uint32_t other) { return other == i; });
        equal = equal && found == (in[i] ? i : nil);
      }
    }
    CHECK(equal);
  }
}
