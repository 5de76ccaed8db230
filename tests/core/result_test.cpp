// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/result.hpp>

#include <memory>
#include <utility>

#include "support/catch.hpp"

namespace {

using kvcache::Error;
using kvcache::Result;
using kvcache::Why;

/// Counts the objects that are alive, and those that were moved into being.
struct Counted {
  explicit Counted(int* alive_) : alive(alive_) { ++*alive; }
  Counted(Counted&& other) noexcept : alive(other.alive) { ++*alive; }
  Counted(Counted const&) = delete;
  Counted& operator=(Counted const&) = delete;
  Counted& operator=(Counted&&) = delete;
  ~Counted() { --*alive; }
  int* alive;
};

constexpr Error error{Why::busy, "step", 7, "commit it first"};

Result<std::unique_ptr<int>> make(bool good)
{
  if (!good) {
    return error;
  }
  return std::make_unique<int>(5);
}

}  // namespace

TEST_CASE("Result: holds a value or an error, and says which", "[core][result]")
{
  auto good = make(true);
  REQUIRE(good);
  CHECK(good.has_value());
  CHECK(**good == 5);
  CHECK(*good->get() == 5);

  auto const bad = make(false);
  REQUIRE_FALSE(bad);
  CHECK_FALSE(bad.has_value());
  CHECK(bad.error().why == Why::busy);
  CHECK(bad.error().value == 7);
}

TEST_CASE("Result: asking for what is absent is a LogicError with a sentence", "[core][result]")
{
  auto good = make(true);
  auto bad = make(false);
  CHECK_THROWS_AS(good.error(), kvcache::LogicError);
  CHECK_THROWS_AS(bad.value(), kvcache::LogicError);
  CHECK_THROWS_AS(*bad, kvcache::LogicError);
  CHECK_THROWS_AS(bad->get(), kvcache::LogicError);
  CHECK_THROWS_AS(std::move(bad).value(), kvcache::LogicError);
  CHECK_THROWS_WITH(std::as_const(bad).value(),
                    "kvcache: Result::value() was called on an error; test the result first");
  CHECK_THROWS_WITH(good.error(),
                    "kvcache: Result::error() was called on a value; test the result first");
}

TEST_CASE("Result: a value is destroyed once for each time it was made", "[core][result]")
{
  int alive = 0;
  {
    Result<Counted> first{Counted(&alive)};
    CHECK(alive == 1);
    Result<Counted> second(std::move(first));
    CHECK(alive == 2);  // the one moved from lives until its Result goes
    Counted third(std::move(second).value());
    CHECK(alive == 3);
    Result<Counted> none(error);
    Result<Counted> none_moved(std::move(none));
    CHECK(none_moved.error().why == Why::busy);
    CHECK(alive == 3);
  }
  CHECK(alive == 0);
}

TEST_CASE("Result: moves what can only be moved", "[core][result]")
{
  auto first = make(true);
  auto second(std::move(first));
  std::unique_ptr<int> const out = *std::move(second);
  CHECK(*out == 5);
  static_assert(!std::is_copy_constructible_v<Result<int>>);
  static_assert(!std::is_assignable_v<Result<int>&, Result<int>>);
  static_assert(std::is_nothrow_move_constructible_v<Result<std::unique_ptr<int>>>);
}
