// SPDX-License-Identifier: Apache-2.0
#include <kvcache/core/check.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/prefix/child_index.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "prefix/small_cache.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"

/// \file Faults that other systems had, as scenarios for the tree. Each is tried on a broken twin too.

using namespace kvcache;
using kvcache_test::Bug;
using kvcache_test::NaiveCache;
using kvcache_test::Text;
using kvcache_test::TreeCache;

namespace {

Text range(Token first, Token last)
{
  Text text(static_cast<std::size_t>(last - first + 1));
  std::iota(text.begin(), text.end(), first);
  return text;
}

/// The scenario holds for the real rooms and for a naive cache, and the twin with the fault fails it.
template <class Scenario>
void verify(Scenario scenario, Bug bug, PageCount pages = 8)
{
  TreeCache real(4, pages);
  CHECK(scenario(real));
  CHECK(real.check());
  NaiveCache naive(4, pages, Bug::none);
  CHECK(scenario(naive));
  NaiveCache twin(4, pages, bug);
  CHECK_FALSE(scenario(twin));
}

}  // namespace

TEST_CASE("fault B-016: the whole prompt is cached", "[prefix][faults]")
{
  verify(
    [](auto& cache) {
      cache.add(range(1, 8));
      return cache.hit(range(1, 8), 7) == 4 && cache.hit(range(1, 9), 8) == 8 &&
             cache.hit(range(1, 4), 3) == 0 && cache.hit(range(1, 1), 0) == 0 &&
             cache.cached() == 2;
    },
    Bug::ignores_limit);
}

TEST_CASE("fault B-018: pages counted after a hole", "[prefix][faults]")
{
  verify(
    [](auto& cache) {
      cache.add(range(1, 12));
      bool right = true;
      for (Index left = 3; left-- > 0;) {
        right = right && cache.evict(1) == 1;
        // What is still cached is exactly what can be hit: there never is a hole.
        right = right && cache.hit(range(1, 12)) == 4 * left &&
                cache.cached() == static_cast<PageCount>(left);
        right = right && cache.hit(range(1, 4)) == (left > 0 ? 4 : 0);
      }
      return right && cache.check();
    },
    Bug::counts_after_hole);
}

TEST_CASE("fault B-021: keys shorter than a page", "[prefix][faults]")
{
  verify(
    [](auto& cache) {
      bool right = true;
      for (Token k = 0; k < 1000 && right; ++k) {
        right = cache.add(range(k, k + 2)) && cache.hit(range(k, k + 2)) == 0 &&
                cache.nodes() == 0 && cache.evictable() == 0 && cache.check();
      }
      return right;
    },
    Bug::keeps_short_keys);
}

TEST_CASE("fault B-023: a child filed under the wrong key after a split", "[prefix][faults]")
{
  verify(
    [](auto& cache) {
      std::vector<Text> const prompts = {
        range(1, 8), {1, 2, 3, 4, 9, 10, 11, 12}, {1, 2, 9, 9, 9, 9, 9, 9}, range(1, 16)};
      std::vector<std::size_t> order = {0, 1, 2, 3};
      bool right = true;
      do {
        for (std::size_t const i : order) {
          right = right && cache.add(prompts[i]) && cache.check();
        }
        for (Text const& prompt : prompts) {
          right = right && cache.hit(prompt) == static_cast<Index>(prompt.size());
        }
        right = right && cache.cached() == 7;  // the early branch is a sibling, not part of a page
        for (PageCount left = 7; left-- > 0 && right;) {
          right = cache.evict(1) == 1 && cache.cached() == left && cache.check();
        }
        right = right && cache.nodes() == 0;
      } while (right && std::next_permutation(order.begin(), order.end()));
      return right;
    },
    Bug::files_under_old_key,
    16);
}

TEST_CASE("fault B-025: shared pages counted twice as evictable", "[prefix][faults]")
{
  verify(
    [](auto& cache) {
      cache.add(range(1, 8));
      cache.add({1, 2, 3, 4, 9, 10, 11, 12});
      bool right = cache.evictable() == 3 && cache.free() == 5;
      auto const held = cache.hold({1, 2, 3, 4, 50});
      right = right && cache.evictable() == 2;
      cache.close(held);
      return right && cache.evictable() == 3;
    },
    Bug::counts_by_path);
}

TEST_CASE("fault B-026: a partial match locks too much", "[prefix][faults]")
{
  verify(
    [](auto& cache) {
      cache.add(range(1, 16));
      auto const held = cache.hold(range(1, 8));
      Text other = range(1, 16);
      std::iota(other.begin() + 8, other.end(), 31);
      cache.add(other);
      cache.close(held);
      return cache.evict(100) == 6 && cache.free() == 8;
    },
    Bug::locks_too_much);
}

TEST_CASE("fault B-028: a prefix evicted before its suffix", "[prefix][faults]")
{
  verify(
    [](auto& cache) {
      cache.add(range(1, 12));
      bool right = cache.evict(1) == 1 && cache.hit(range(1, 12)) == 8;
      return right && cache.evict(1) == 1 && cache.hit(range(1, 12)) == 4;
    },
    Bug::root_first);
}

TEST_CASE("fault B-046: pages that are cached already are neither lost nor leaked",
          "[prefix][faults]")
{
  verify(
    [](auto& cache) {
      cache.add(range(1, 4));
      cache.add(range(1, 8));
      bool const right = cache.free() == 6 && cache.cached() == 2;
      return right && cache.evict(2) == 2 && cache.free() == 8 && cache.check();
    },
    Bug::loses_duplicates);
}

TEST_CASE("fault B-001: the secret seed of the tables changes no answer", "[prefix][faults]")
{
  RadixTree a(4, 8, {.seed = 1});
  RadixTree b(4, 8, {.seed = 2});
  std::vector<PageId> const pages = {{1}, {2}};
  for (RadixTree* tree : {&a, &b}) {
    tree->insert(tree->intern(Domain()), zero_page, range(1, 8), pages, false);
  }
  CHECK(a.digest() == b.digest());
  detail::Place const root{.parent = nil, .domain = DomainId{0}};
  Text const page = range(1, 4);
  CHECK(detail::ChildIndex(4, 1, 8).hash(root, page.data()) !=
        detail::ChildIndex(4, 2, 8).hash(root, page.data()));
}

TEST_CASE("fault B-001: pages with equal hashes are told apart by their tokens", "[prefix][faults]")
{
  // Find two pages of one place whose 32-bit hashes are equal, and cache the first.
  detail::ChildIndex const index(1, 0, 8);
  detail::Place const root{.parent = nil, .domain = DomainId{0}};
  std::vector<std::pair<std::uint32_t, Token>> hashes;
  for (Token token = 0; token < 200'000; ++token) {
    hashes.emplace_back(index.hash(root, &token), token);
  }
  std::sort(hashes.begin(), hashes.end());
  auto const twins = std::adjacent_find(
    hashes.begin(), hashes.end(), [](auto const& a, auto const& b) { return a.first == b.first; });
  REQUIRE(twins != hashes.end());
  RadixTree tree(1, 4);
  DomainId const domain = tree.intern(Domain());
  Text const first = {twins->second};
  Text const second = {(twins + 1)->second};
  std::vector<PageId> const pages = {{1}};
  tree.insert(domain, zero_page, first, pages, false);
  CHECK(tree.match(domain, first, 1).full_pages == 1);
  CHECK(tree.match(domain, second, 1).full_pages == 0);  // a twin that trusts the hash says 1
}

TEST_CASE("fault B-003 and B-005: domains that differ share nothing", "[prefix][faults]")
{
  RadixTree tree(4, 8);
  std::vector<Adapter> const one = {{"X", 1.0F}};
  std::vector<Adapter> const half = {{"X", 0.5F}};
  auto const domain = [](std::vector<Adapter> const& adapters, std::string_view salt) {
    return Domain({.model = {}, .weights = {}, .salt = salt, .adapters = adapters});
  };
  std::vector<PageId> const pages = {{1}, {2}};
  DomainId const own = tree.intern(domain(one, {}));
  tree.insert(own, zero_page, range(1, 8), pages, false);
  for (Domain const& other : {domain({}, "X"), domain(half, {}), domain({}, {})}) {
    CHECK(tree.match(tree.intern(other), range(1, 8), 8).full_pages == 0);
    CHECK(tree.match(tree.intern(other), range(1, 8), 8).partial_rows == 0);
  }
  CHECK(tree.match(tree.intern(domain(one, {})), range(1, 8), 8).full_pages == 2);
}

TEST_CASE("fault B-010: what others cached is never visited", "[prefix][faults]")
{
  // A look-up visits an entry only if all 32 bits of the hash agree (IdTable's tests), and the hash holds
  // the place. So the tokens of a foreign domain are compared with odds of 2^-32, cached or not: of
  // 100,000 pages that A caches, none is visited when B asks for the same ones.
  detail::ChildIndex const index(4, 0, 8);
  kvcache_test::Random random(9);
  std::uint32_t equal = 0;
  std::uint32_t own = 0;
  for (int i = 0; i < 100'000; ++i) {
    Text page(4);
    for (Token& token : page) {
      token = static_cast<Token>(random.below(128'000));
    }
    std::uint32_t const a = index.hash({.parent = nil, .domain = DomainId{0}}, page.data());
    std::uint32_t const b = index.hash({.parent = nil, .domain = DomainId{1}}, page.data());
    equal += a == b ? 1U : 0U;
    own += a == index.hash({.parent = nil, .domain = DomainId{0}}, page.data()) ? 1U : 0U;
  }
  CHECK(equal <= 1);
  CHECK(own == 100'000);  // the control: A finds its own

  RadixTree tree(4, 8);
  DomainId const a = tree.intern(Domain());
  DomainId const b = tree.intern(Domain({.model = {}, .weights = {}, .salt = "b", .adapters = {}}));
  std::vector<PageId> const pages = {{1}, {2}};
  tree.insert(a, zero_page, range(1, 8), pages, false);
  CHECK(tree.match(a, range(1, 8), 8).full_pages == 2);
  CHECK(tree.match(b, range(1, 8), 8).full_pages == 0);
  CHECK(tree.match(b, range(21, 28), 8).full_pages == 0);
}

TEST_CASE("fault B-014: after forget nothing of the domain is promised", "[prefix][faults]")
{
  RadixTree tree(4, 8);
  DomainId const domain = tree.intern(Domain());
  std::vector<PageId> const pages = {{1}, {2}};
  tree.insert(domain, zero_page, range(1, 8), pages, false);
  PageCount dropped = 0;
  tree.forget(domain, [](SpanId) {}, [&](PageId) { ++dropped; });
  CHECK(dropped == 2);
  CHECK(tree.match(domain, range(1, 8), 8).rows(4) == 0);
  CHECK(tree.generation(domain) == 1);  // who was opened before must not publish again
  CHECK(tree.check_invariants());
}

TEST_CASE("fault B-027: what a split leaves behind is given back", "[prefix][faults]")
{
  constexpr PageCount length = 1000;
  RadixTree tree(4, 2 * length);
  DomainId const domain = tree.intern(Domain());
  std::vector<PageId> pages(length);
  for (std::uint32_t i = 0; i < length; ++i) {
    pages[i] = PageId{i + 1};
  }
  Text const text = range(1, 4 * length);
  SpanId const span = tree.insert(
    domain, zero_page, std::span(text).first(4), std::span<PageId const>(pages).first(1), true);
  std::size_t const one_page = tree.bytes();
  tree.insert(
    domain, PageId{1}, std::span(text).subspan(4), std::span<PageId const>(pages).subspan(1), true);
  CHECK(tree.size(span) == length);

  // A sibling branches off behind every page, from the end or from the front.
  bool const from_front = GENERATE(false, true);
  std::size_t twin_bytes = 0;  // both halves of a split keep the whole block
  std::size_t most = 0;
  for (std::uint32_t i = 1; i < length; ++i) {
    std::uint32_t const at = from_front ? i : length - i;  // pages before the branch
    PageId const parent{at};
    SpanId const whole = tree.span_of(parent);
    twin_bytes += tree.size(whole) * (4 * sizeof(Token) + sizeof(PageId));
    std::uint32_t const keep = at - static_cast<std::uint32_t>(tree.first_token(whole)) / 4;
    tree.split(whole, keep);
    PageId const page{length + i};
    tree.insert(domain, parent, Text(4, -static_cast<Token>(i)), {&page, 1}, false);
    most = tree.bytes() > most ? tree.bytes() : most;
  }
  CHECK(tree.num_spans() == 2 * length - 1);
  CHECK(tree.check_invariants());
  for (std::uint32_t i = 1; i < length; ++i) {  // the siblings, then the tails
    PageId out{};
    tree.pop_tail(tree.span_of(PageId{length + i}), 1, &out, nullptr);
  }
  for (std::uint32_t page = length; page > 1; --page) {
    PageId out{};
    tree.pop_tail(tree.span_of(PageId{page}), 1, &out, nullptr);
  }
  CHECK(tree.num_pages() == 1);
  INFO(most << " bytes at most, " << one_page << " with one page");
  CHECK(most <= 3 * one_page);
  CHECK(tree.bytes() == most);  // ready for what comes
  CHECK(twin_bytes > 30 * one_page);
}

TEST_CASE("fault B-027: spans that were popped to one page give memory back", "[prefix][faults]")
{
  RadixTree tree(16, 4000);
  DomainId const domain = tree.intern(Domain());
  std::vector<PageId> out(100);
  std::size_t first_round = 0;
  for (Token k = 0; k < 40; ++k) {  // forty spans of a hundred pages, each popped to its first page
    std::vector<PageId> pages(100);
    for (std::uint32_t i = 0; i < 100; ++i) {
      pages[i] = PageId{static_cast<std::uint32_t>(k) * 100 + i + 1};
    }
    SpanId const span =
      tree.insert(domain, zero_page, range(k * 10'000, k * 10'000 + 1599), pages, false);
    tree.pop_tail(span, 99, out.data(), nullptr);
    first_round = k == 0 ? tree.bytes() : first_round;
  }
  // 40 pages of 68 bytes, room for one span more, nodes and tables; the twin keeps 40 * 100 * 68 bytes.
  CHECK(tree.bytes() - first_round < 40 * 68 * 2 + 2 * 6800 + 64 * 64 + 64 * 16);
  CHECK(tree.check_invariants());
}

TEST_CASE("fault B-049: the same page twice in one publish", "[prefix][faults]")
{
  RadixTree tree(4, 8);
  DomainId const domain = tree.intern(Domain());
  std::uint64_t const before = tree.digest();
  for (std::vector<PageId> const& pages :
       {std::vector<PageId>{{2}, {5}, {2}}, std::vector<PageId>{{2}, {2}}}) {
    Text const text = range(1, static_cast<Token>(4 * pages.size()));
    CHECK_THROWS_AS(tree.insert(domain, zero_page, text, pages, false), LogicError);
    CHECK(tree.digest() == before);
    CHECK(tree.num_pages() == 0);
    CHECK(tree.check_invariants());
  }
  std::vector<PageId> const pages = {{2}, {5}};  // cut before the repeat: good
  tree.insert(domain, zero_page, range(1, 8), pages, false);
  CHECK(tree.match(domain, range(1, 8), 8).full_pages == 2);
}
