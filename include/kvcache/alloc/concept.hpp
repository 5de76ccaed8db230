// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>
#include <kvcache/core/roles.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

/// \file What control asks of an allocator of page ids.
///
/// Axioms, beyond the syntax below:
/// 1. Ids are 1 to `capacity()`; page 0 is never given out, and no id is out twice.
/// 2. `num_free()` plus the number of pages with `count() > 0` equals `capacity()` after every call.
/// 3. `take` gives all that was asked, each with count 1, or changes nothing and says false.
/// 4. `untake` right after a `take` restores the state before it, the order of later gifts included;
///    a row of takes is undone in reverse.
/// 5. `release` returns the count that is left; at 0 the page is free at once.
/// 6. Deterministic: the same calls give the same ids and the same `digest()` on every machine.
/// 7. Nothing allocates after construction; `take` is O(pages asked), everything else O(1) a page.
/// 8. The page that was released last is the next to be taken, so that a step that is dropped gets back the very pages
///    that it evicted. Where it is not, they are lost from the cache, and nothing else is.

namespace kvcache::inline v0_1 {

template <class A>
concept PlaysAllocator = std::same_as<typename A::role, role::allocator>;

template <class A>
concept StartsWithPages = std::constructible_from<A, PageCount> && std::movable<A>;

template <class A>
concept CountsPages = requires(A const& a, PageId page) {
  { a.capacity() } noexcept -> std::same_as<PageCount>;
  { a.num_free() } noexcept -> std::same_as<PageCount>;
  { a.count(page) } noexcept -> std::same_as<std::uint32_t>;
};

template <class A>
concept TakesPages = requires(A& a, std::span<PageId> out) {
  { a.take(out) } noexcept -> std::same_as<bool>;
};

template <class A>
concept UndoesTake = requires(A& a, std::span<PageId const> pages) {
  { a.untake(pages) } noexcept -> std::same_as<void>;
};

template <class A>
concept SharesPages = requires(A& a, PageId page) {
  { a.share(page) } noexcept -> std::same_as<void>;
};

template <class A>
concept ReleasesPages = requires(A& a, PageId page) {
  { a.release(page) } noexcept -> std::same_as<std::uint32_t>;
};

template <class A>
concept ProvesPages = requires(A const& a) {
  { a.digest() } noexcept -> std::same_as<std::uint64_t>;
  { a.check_invariants() } -> std::same_as<bool>;
};

/// An allocator of page ids with counts of holders.
template <class A>
concept Allocator = PlaysAllocator<A> && StartsWithPages<A> && CountsPages<A> && TakesPages<A> &&
                    UndoesTake<A> && SharesPages<A> && ReleasesPages<A> && ProvesPages<A>;

/// Stops the build at the first requirement that `A` lacks, with a sentence that says which.
template <class A>
consteval bool explain_allocator()
{
  static_assert(PlaysAllocator<A>,
                "kvcache: an allocator says `using role = kvcache::role::allocator;`");
  static_assert(StartsWithPages<A>,
                "kvcache: an allocator is made from a PageCount and can be moved");
  static_assert(CountsPages<A>,
                "kvcache: an allocator has noexcept `capacity() const`, `num_free() const` and "
                "`count(PageId) const`");
  static_assert(
    TakesPages<A>,
    "kvcache: an allocator has `bool take(std::span<PageId>) noexcept`, all or nothing");
  static_assert(UndoesTake<A>,
                "kvcache: an allocator has `void untake(std::span<PageId const>) noexcept`, the "
                "exact undo of the latest take");
  static_assert(SharesPages<A>, "kvcache: an allocator has `void share(PageId) noexcept`");
  static_assert(ReleasesPages<A>,
                "kvcache: an allocator has `std::uint32_t release(PageId) noexcept`, which returns "
                "the count that is left");
  static_assert(ProvesPages<A>,
                "kvcache: an allocator has `std::uint64_t digest() const noexcept` and `bool "
                "check_invariants() const`");
  return Allocator<A>;
}

}  // namespace kvcache::inline v0_1
