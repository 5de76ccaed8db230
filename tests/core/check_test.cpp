// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/box.hpp>
#include <kvcache/core/check.hpp>

#include <memory>
#include <new>
#include <utility>

#include "support/catch.hpp"

TEST_CASE("KVCACHE_EXPECTS: a broken precondition throws its sentence, in every build",
          "[core][check]")
{
  auto const needs_positive = [](int n) { KVCACHE_EXPECTS(n > 0, "kvcache: n must be above 0"); };
  CHECK_NOTHROW(needs_positive(1));
  CHECK_THROWS_AS(needs_positive(0), kvcache::LogicError);
  CHECK_THROWS_WITH(needs_positive(0), "kvcache: n must be above 0");
}

TEST_CASE("memory_sufficed_for: false for bad_alloc alone", "[core][check]")
{
  int runs = 0;
  CHECK(kvcache::detail::memory_sufficed_for([&] { ++runs; }));
  CHECK_FALSE(kvcache::detail::memory_sufficed_for([&] {
    ++runs;
    kvcache::detail::out_of_memory();
  }));
  CHECK_FALSE(kvcache::detail::memory_sufficed_for([] { throw std::bad_array_new_length(); }));
  CHECK(runs == 2);
  CHECK_THROWS_AS(kvcache::detail::memory_sufficed_for([] { throw 5; }), int);
}

TEST_CASE("Box: one owner, one destruction", "[core][box]")
{
  using kvcache::detail::Box;
  auto const count = std::make_shared<int>(3);
  {
    auto first = Box<std::shared_ptr<int>>::make(count);
    CHECK(count.use_count() == 2);
    CHECK(**first == 3);
    CHECK(first.get() == &*first);
    CHECK(first->get() == count.get());
    Box<std::shared_ptr<int>> second(std::move(first));
    CHECK(first.get() == nullptr);  // NOLINT: the state after a move is promised
    CHECK(count.use_count() == 2);
    auto third = Box<std::shared_ptr<int>>::make(count);
    CHECK(count.use_count() == 3);
    third = std::move(second);
    CHECK(third.get() != nullptr);
  }
  CHECK(count.use_count() == 1);
  CHECK(Box<int>().get() == nullptr);
}
