// SPDX-License-Identifier: Apache-2.0
#include <kvcache/alloc/page_allocator.hpp>

#include <csignal>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/child.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;

namespace {

std::vector<std::uint32_t> take(PageAllocator& pages, std::size_t count)
{
  std::vector<PageId> out(count);
  REQUIRE(pages.take(out));
  std::vector<std::uint32_t> ids;
  for (PageId const page : out) {
    ids.push_back(page.value);
  }
  return ids;
}

using Ids = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("PageAllocator: fresh pages come in order, returned ones first and latest first",
          "[alloc][page_allocator]")
{
  PageAllocator pages(6);
  CHECK(pages.capacity() == 6);
  CHECK(take(pages, 3) == Ids{1, 2, 3});
  CHECK(pages.release(PageId{1}) == 0);
  CHECK(pages.release(PageId{3}) == 0);
  CHECK(pages.num_free() == 5);
  CHECK(take(pages, 3) == Ids{3, 1, 4});
  CHECK(pages.check_invariants());
}

TEST_CASE("PageAllocator: take is all or nothing", "[alloc][page_allocator]")
{
  PageAllocator pages(3);
  std::vector<PageId> out(4, PageId{77});
  std::uint64_t const before = pages.digest();
  CHECK_FALSE(pages.take(out));
  CHECK(out[0] == PageId{77});
  CHECK(pages.digest() == before);
  CHECK(pages.num_free() == 3);
  CHECK(pages.take({}));
  CHECK(take(pages, 3) == Ids{1, 2, 3});
  CHECK(pages.num_free() == 0);
}

TEST_CASE("PageAllocator: a page is free when its last holder goes", "[alloc][page_allocator]")
{
  PageAllocator pages(2);
  take(pages, 1);
  pages.share(PageId{1});
  pages.share(PageId{1});
  CHECK(pages.count(PageId{1}) == 3);
  CHECK(pages.release(PageId{1}) == 2);
  CHECK(pages.release(PageId{1}) == 1);
  CHECK(pages.num_free() == 1);
  CHECK(pages.release(PageId{1}) == 0);
  CHECK(pages.num_free() == 2);
  CHECK(pages.count(PageId{1}) == 0);
  CHECK(pages.count(PageId{99}) == 0);
}

TEST_CASE("PageAllocator: many released at once are as many released one after the other",
          "[alloc][page_allocator]")
{
  constexpr std::uint64_t seed = 20261130;
  CAPTURE(seed);
  kvcache_test::Random random(seed);
  PageAllocator batch(40);
  PageAllocator single(40);
  std::vector<PageId> held;  // a page as often as it has holders
  for (int round = 0; round < 300; ++round) {
    std::vector<PageId> got(random.below(batch.num_free() + 1));
    std::vector<PageId> same(got.size());
    REQUIRE(batch.take(got));
    REQUIRE(single.take(same));
    REQUIRE(got == same);
    for (PageId const page : got) {
      for (std::uint32_t holders = random.between(1, 3); holders > 0; --holders) {
        held.push_back(page);
        if (holders > 1) {
          batch.share(page);
          single.share(page);
        }
      }
    }
    for (std::size_t i = held.size(); i > 1; --i) {
      std::swap(held[i - 1], held[random.below(static_cast<std::uint32_t>(i))]);
    }
    std::size_t const gone = random.below(static_cast<std::uint32_t>(held.size()) + 1);
    std::span<PageId const> const last(held.data() + held.size() - gone, gone);
    batch.release(last);
    for (PageId const page : last) {
      single.release(page);
    }
    held.resize(held.size() - gone);
    REQUIRE(batch.digest() == single.digest());
    REQUIRE(batch.num_free() == single.num_free());
    REQUIRE(batch.check_invariants());
  }
  batch.release(std::span<PageId const>{});
  CHECK(batch.digest() == single.digest());
}

TEST_CASE("PageAllocator: giving back what nobody holds ends the program, wherever it stands",
          "[alloc][page_allocator]")
{
  for (std::uint32_t const wrong : {0U, 7U, 40U, 41U, 1'000'000'000U}) {
    for (std::size_t at = 0; at < 9; ++at) {
      CAPTURE(wrong, at);
      std::string const told = kvcache_test::in_child([&](auto const& tell) {
        PageAllocator pages(40);
        std::vector<PageId> held(39);
        (void)pages.take(held);
        pages.release(held);
        (void)pages.take(held);  // all but 40, which is fresh
        pages.release(PageId{7});
        std::vector<PageId> gone(held.begin() + 7, held.begin() + 16);
        gone[at] = PageId{wrong};
        tell("alive");
        pages.release(gone);
        tell(" after");
      });
      CHECK(told == "alive BREAKS: signal " + std::to_string(SIGABRT) + "\n");
    }
  }
}

TEST_CASE("PageAllocator: untake restores the order of what comes next", "[alloc][page_allocator]")
{
  PageAllocator pages(8);
  take(pages, 5);
  pages.release(PageId{3});
  pages.release(PageId{5});
  std::uint64_t const before = pages.digest();

  std::vector<PageId> first(1);
  std::vector<PageId> second(3);
  REQUIRE(pages.take(first));   // 5, from the stack
  REQUIRE(pages.take(second));  // 3, then fresh 6 and 7
  CHECK(second == std::vector<PageId>{{3}, {6}, {7}});
  pages.untake(second);
  pages.untake(first);
  CHECK(pages.digest() == before);
  CHECK(pages.check_invariants());
  CHECK(take(pages, 4) == Ids{5, 3, 6, 7});
}

TEST_CASE("PageAllocator: a pool of 16 million pages, and one of none", "[alloc][page_allocator]")
{
  PageAllocator pages(16'000'000);
  CHECK(take(pages, 2) == Ids{1, 2});
  CHECK(pages.num_free() == 15'999'998);
  PageAllocator none(0);
  PageId page{};
  CHECK_FALSE(none.take({&page, 1}));
  CHECK(none.check_invariants());
}

TEST_CASE("PageAllocator: equals a naive model over random calls", "[alloc][page_allocator]")
{
  for (PageCount const capacity : {2U, 3U, 8U, 100U}) {
    std::uint64_t const seed = 1000 + capacity;
    CAPTURE(seed, capacity);
    kvcache_test::Random random(seed);
    PageAllocator pages(capacity);
    PageAllocator twin(capacity);
    std::vector<std::uint32_t> order;  // free pages, the next one last
    for (std::uint32_t page = capacity; page >= 1; --page) {
      order.push_back(page);
    }
    std::map<std::uint32_t, std::uint32_t> counts;
    bool equal = true;
    for (int step = 0; step < 50'000 && equal; ++step) {
      std::uint32_t const what = random.below(10);
      if (what < 4) {
        std::vector<PageId> out(random.between(0, capacity / 2 + 1));
        bool const fits = out.size() <= order.size();
        equal = pages.take(out) == fits;
        std::vector<PageId> same(out.size());
        equal = twin.take(same) == fits && equal && same == out;
        if (fits) {
          std::vector<std::uint32_t> const rest(
            order.begin(), order.end() - static_cast<std::ptrdiff_t>(out.size()));
          bool const undo = random.below(3) == 0;
          for (std::size_t i = 0; i < out.size(); ++i) {
            equal = equal && out[i].value == order[order.size() - 1 - i];
          }
          if (undo) {
            pages.untake(out);
            twin.untake(out);
          } else {
            order = rest;
            for (PageId const page : out) {
              counts[page.value] = 1;
            }
          }
        }
      } else if (!counts.empty()) {
        auto at = counts.begin();
        std::advance(at, random.below(static_cast<std::uint32_t>(counts.size())));
        PageId const page{at->first};
        if (what < 6) {
          pages.share(page);
          twin.share(page);
          ++at->second;
        } else {
          std::uint32_t const left = pages.release(page);
          twin.release(page);
          equal = left == --at->second;
          if (left == 0) {
            order.push_back(page.value);
            counts.erase(at);
          }
        }
      }
      equal = equal && pages.num_free() == order.size() && pages.digest() == twin.digest();
      for (auto const& [page, count] : counts) {
        equal = equal && pages.count(PageId{page}) == count;
      }
      equal = equal && pages.check_invariants();
    }
    CHECK(equal);
  }
}

TEST_CASE("PageAllocator: a page may have any number of holders", "[alloc][page_allocator]")
{
  constexpr std::uint64_t seed = 127;
  CAPTURE(seed);
  kvcache_test::Random random(seed);
  PageAllocator pages(4);
  take(pages, 3);
  pages.release(PageId{2});
  REQUIRE(take(pages, 1) == Ids{2});  // 1 and 3 were never given back, 2 was
  std::map<std::uint32_t, std::uint32_t> counts{{1, 1}, {2, 1}, {3, 1}};
  std::uint32_t most = 0;
  for (int round = 0; round < 400; ++round) {
    PageId const page{random.between(1, 3)};
    std::uint32_t& count = counts[page.value];
    std::uint32_t const goal = random.below(3) == 0 ? 1 : random.between(1, 300);
    for (; count < goal; ++count) {
      pages.share(page);
      REQUIRE(pages.count(page) == count + 1);
    }
    if (count > goal && random.below(2) == 0) {
      std::vector<PageId> const gone(count - goal, page);
      pages.release(gone);
      count = goal;
    }
    for (; count > goal; --count) {
      REQUIRE(pages.release(page) == count - 1);
    }
    for (auto const& [id, holders] : counts) {
      REQUIRE(pages.count(PageId{id}) == holders);
    }
    REQUIRE(pages.num_free() == 1);
    REQUIRE(pages.check_invariants());
    most = goal > most ? goal : most;
  }
  REQUIRE(most > 250);
  for (auto const& [id, holders] : counts) {
    std::vector<PageId> const gone(holders, PageId{id});
    pages.release(gone);
    CHECK(pages.count(PageId{id}) == 0);
  }
  CHECK(take(pages, 4) == Ids{3, 2, 1, 4});
}

TEST_CASE("PageAllocator: calls for thousands of pages are as calls for one page each",
          "[alloc][page_allocator]")
{
  constexpr std::uint64_t seed = 4096;
  CAPTURE(seed);
  kvcache_test::Random random(seed);
  constexpr PageCount capacity = 5000;
  PageAllocator batch(capacity);
  PageAllocator single(capacity);
  for (int round = 0; round < 12; ++round) {
    std::vector<PageId> got(random.between(450, capacity));
    REQUIRE(batch.take(got));
    for (PageId const page : got) {
      PageId same{};
      REQUIRE(single.take({&same, 1}));
      REQUIRE(same == page);
    }
    for (std::size_t i = got.size(); i > 1; --i) {
      std::swap(got[i - 1], got[random.below(static_cast<std::uint32_t>(i))]);
    }
    batch.release(got);
    for (PageId const page : got) {
      single.release(page);
    }
    REQUIRE(batch.digest() == single.digest());
    REQUIRE(batch.check_invariants());
  }
}

TEST_CASE("PageAllocator: the digest shows counts and order", "[alloc][page_allocator]")
{
  PageAllocator a(4);
  PageAllocator b(4);
  take(a, 3);
  take(b, 3);
  CHECK(a.digest() == b.digest());
  a.share(PageId{2});
  CHECK(a.digest() != b.digest());
  a.release(PageId{2});
  CHECK(a.digest() == b.digest());
  a.release(PageId{1});
  a.release(PageId{2});
  b.release(PageId{2});
  b.release(PageId{1});
  CHECK(a.num_free() == b.num_free());
  CHECK(a.digest() != b.digest());  // the next page differs
}
