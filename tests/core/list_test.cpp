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

using List = kvcache::List<std::int32_t>;
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

/// Lies on lines of its own, may only be moved, and knows how many of it there are and whether it is where it was made.
struct alignas(64) Guest {
  static inline int present = 0;

  Guest() noexcept : here(this) { ++present; }
  explicit Guest(int n) noexcept : Guest() { number = n; }
  Guest(Guest&& other) noexcept : Guest() { number = std::exchange(other.number, -1); }
  Guest& operator=(Guest&& other) noexcept
  {
    number = std::exchange(other.number, -1);
    return *this;
  }
  Guest(Guest const&) = delete;
  Guest& operator=(Guest const&) = delete;
  ~Guest() { --present; }

  Guest* here;
  int number = 0;
};

}  // namespace

TEST_CASE("List: random calls leave what they leave of a vector", "[core][list]")
{
  kvcache_test::Random random(7);
  List list;
  Vector model;
  for (int n = 0; n < 20000; ++n) {
    auto const value = static_cast<std::int32_t>(random.below(1000));
    std::size_t const size = random.below(40);
    switch (random.below(13)) {
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
      case 11: {
        std::size_t const at = random.below(static_cast<std::uint32_t>(model.size()) + 1);
        list.insert(at, value);
        model.insert(model.begin() + static_cast<std::ptrdiff_t>(at), value);
        break;
      }
      default:
        list.push_back(value);
        model.push_back(value);
    }
    REQUIRE(same(list, model));
  }
}

TEST_CASE("List: what is no plain data is moved, and gone when it leaves", "[core][list]")
{
  kvcache_test::Random random(8);
  {
    kvcache::List<Guest> list(3);
    Vector model(3, 0);
    REQUIRE(Guest::present == 3);
    for (int n = 0; n < 5000; ++n) {
      switch (random.below(8)) {
        case 0:
          if (!model.empty()) {
            list.pop_back();
            model.pop_back();
          }
          break;
        case 1: {
          std::size_t const size = random.below(30);
          list.resize(size);
          model.resize(size);
          break;
        }
        case 2: {
          kvcache::List<Guest> moved = std::move(list);
          list = std::move(moved);
          break;
        }
        case 3:
          if (n % 64 == 0) {
            list.free();
            model.clear();
          }
          break;
        case 4: {
          std::size_t const at = random.below(static_cast<std::uint32_t>(model.size()) + 1);
          list.insert(at, Guest(n));
          model.insert(model.begin() + static_cast<std::ptrdiff_t>(at), n);
          break;
        }
        case 5:
          list.reserve_grown(model.size() + 1);
          list.push_reserved();
          model.push_back(0);
          break;
        default:
          list.push_back(Guest(n));
          model.push_back(n);
      }
      REQUIRE(list.size() == model.size());
      REQUIRE(Guest::present == static_cast<int>(model.size()));
      for (std::size_t i = 0; i < model.size(); ++i) {
        REQUIRE(list[i].number == model[i]);
        REQUIRE(list[i].here == &list[i]);
        REQUIRE(reinterpret_cast<std::uintptr_t>(&list[i]) % alignof(Guest) == 0);
      }
    }
  }
  CHECK(Guest::present == 0);
}

TEST_CASE("List: equal are lists of equal elements", "[core][list]")
{
  List const list{3, 1, 2};
  CHECK(same(list, {3, 1, 2}));
  CHECK(list == List{3, 1, 2});
  CHECK(list != List{3, 1});
  CHECK(list != List{3, 1, 2, 0});
  CHECK(list != List{3, 1, 4});
  CHECK(List{} == List());
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
