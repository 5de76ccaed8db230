// SPDX-License-Identifier: Apache-2.0
#include <kvcache/alloc/concept.hpp>
#include <kvcache/alloc/page_allocator.hpp>

#include <cstdint>
#include <span>

#include "support/catch.hpp"

using namespace kvcache;

namespace {

struct NoRole : PageAllocator {
  using role = kvcache::role::prefix;
  using PageAllocator::PageAllocator;
};

struct TakesOne : PageAllocator {
  using PageAllocator::PageAllocator;
  PageId take() noexcept { return {}; }
};

struct ThrowingRelease : PageAllocator {
  using PageAllocator::PageAllocator;
  std::uint32_t release(PageId) { return 0; }
};

}  // namespace

TEST_CASE("Allocator: the shipped allocator plays the part", "[alloc][concept]")
{
  STATIC_REQUIRE(Allocator<PageAllocator>);
  STATIC_REQUIRE(explain_allocator<PageAllocator>());
}

TEST_CASE("Allocator: each kind of lack is named by one requirement", "[alloc][concept]")
{
  STATIC_REQUIRE_FALSE(PlaysAllocator<NoRole>);
  STATIC_REQUIRE_FALSE(Allocator<NoRole>);
  STATIC_REQUIRE_FALSE(TakesPages<TakesOne>);
  STATIC_REQUIRE(ReleasesPages<TakesOne>);
  STATIC_REQUIRE_FALSE(ReleasesPages<ThrowingRelease>);
  STATIC_REQUIRE_FALSE(Allocator<int>);
}
