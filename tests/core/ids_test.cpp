// SPDX-License-Identifier: Apache-2.0

#include <kvcache/core/ids.hpp>

#include <type_traits>

#include "support/catch.hpp"

namespace {

template <class A, class B>
constexpr bool unrelated = !std::is_convertible_v<A, B> && !std::is_convertible_v<B, A> &&
                           !std::is_constructible_v<A, B const&> && !std::is_assignable_v<A&, B>;

template <class A, class B>
concept Compares = requires(A a, B b) { a == b; };

}  // namespace

TEST_CASE("Id: kinds convert neither into each other nor into integers", "[core][ids]")
{
  using namespace kvcache;
  static_assert(unrelated<PageId, SpanId> && unrelated<PageId, DomainId> &&
                unrelated<PageId, RowId>);
  static_assert(unrelated<SpanId, RowId> && unrelated<StepId, StreamId>);
  static_assert(unrelated<SequenceId, PageId> && unrelated<SequenceId, StepId>);
  static_assert(!std::is_convertible_v<PageId, std::uint32_t>);
  static_assert(!std::is_convertible_v<std::uint32_t, PageId>);
  static_assert(!Compares<PageId, SpanId> && !Compares<PageId, std::uint32_t>);
  static_assert(Compares<PageId, PageId> && Compares<SequenceId, SequenceId>);
  CHECK(sizeof(PageId) == 4);
  CHECK(sizeof(StepId) == 8);
}

TEST_CASE("Id: compares by number, and is plain data", "[core][ids]")
{
  using namespace kvcache;
  static_assert(std::is_trivially_copyable_v<PageId> && std::is_standard_layout_v<PageId>);
  CHECK(PageId{3} == PageId{3});
  CHECK(PageId{3} < PageId{4});
  CHECK(PageId{} == zero_page);
}

TEST_CASE("SequenceId: the generation tells users of a slot apart", "[core][ids]")
{
  using namespace kvcache;
  CHECK(SequenceId{1, 1} != SequenceId{1, 3});
  CHECK(SequenceId{1, 1} == SequenceId{1, 1});
  CHECK(SequenceId{}.generation == 0);
}
