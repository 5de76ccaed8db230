// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/list.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

namespace {

using List = kvcache::detail::List<std::int32_t>;
using Vector = std::vector<std::int32_t>;

static_assert(sizeof(List) == 16);
static_assert(std::is_nothrow_move_constructible_v<List> &&
              std::is_nothrow_move_assignable_v<List>);

bool same(List const& list, Vector const& vector)
{
  return list.size() == vector.size() && list.empty() == vector.empty() &&
         list.capacity() >= list.size() && Vector(list.begin(), list.end()) == vector &&
         (vector.empty() || (list.back() == vector.back() && list[0] == vector[0]));
}

}  // namespace

TEST_CASE("List: random calls leave what they leave of a vector", "[core][list]")
{
  kvcache_test::Random random(7);
  List list;
  Vector model;
  for (int n = 0; n < 20000; ++n) {
    auto const value = static_cast<std::int32_t>(random.below(1000));
    std::size_t const size = random.below(40);
    switch (random.below(12)) {
      case 0:
        list.clear();
        model.clear();
        break;
      case 1:
        list.resize(size);
        model.resize(size);
        break;
      case 2:
        list.reserve(size);
        REQUIRE(list.capacity() >= size);
        break;
      case 3: {
        Vector const more(size, value);
        list.append(more);
        model.insert(model.end(), more.begin(), more.end());
        break;
      }
      case 4: {
        Vector const other(size, value);
        list.assign(other);
        model = other;
        break;
      }
      case 5: {
        List const copy = list;
        list.push_back(value);  // the copy does not follow
        REQUIRE(same(copy, model));
        list = copy;
        break;
      }
      case 6: {
        List moved = std::move(list);
        list = List();
        REQUIRE(same(moved, model));
        list.swap(moved);
        break;
      }
      case 7:
        if (!model.empty()) {
          list.pop_back();
          model.pop_back();
        }
        break;
      case 8:
        if (!model.empty()) {  // what is pushed may lie in the list, which moves
          list.push_back(list[0]);
          model.push_back(Vector(model)[0]);
        }
        break;
      case 9:
        list.reserve_grown(model.size() + 1);
        list.push_reserved(value);
        model.push_back(value);
        break;
      case 10:
        if (n % 50 == 0) {
          list.free();
          model.clear();
          REQUIRE(list.capacity() == 0);
        }
        break;
      default:
        list.push_back(value);
        model.push_back(value);
    }
    REQUIRE(same(list, model));
  }
}

TEST_CASE("List: grown room at least doubles, asked room is exact", "[core][list]")
{
  List list;
  list.reserve(10);
  CHECK(list.capacity() == 10);
  list.reserve(11);
  CHECK(list.capacity() == 11);
  list.reserve_grown(12);
  CHECK(list.capacity() == 22);
  list.reserve_grown(100);
  CHECK(list.capacity() == 100);
  list.reserve(5);
  CHECK(list.capacity() == 100);
}

#if defined(__cpp_exceptions)
TEST_CASE("List: room that no machine has is refused, and nothing changed", "[core][list]")
{
  List list;
  list.push_back(3);
  for (std::size_t const most : {std::size_t{1} << 32, ~std::size_t{0}, ~std::size_t{0} / 4}) {
    CHECK_THROWS_AS(list.reserve(most), std::bad_alloc);
  }
  CHECK(same(list, {3}));
}
#endif
