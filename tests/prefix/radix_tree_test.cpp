// SPDX-License-Identifier: Apache-2.0
#include <kvcache/core/check.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace kvcache;
using Text = std::vector<Token>;
using Pages = std::vector<PageId>;

namespace {

/// first, first + 1, ..., last.
Text range(Token first, Token last)
{
  Text text(static_cast<std::size_t>(last - first + 1));
  std::iota(text.begin(), text.end(), first);
  return text;
}

Match match(RadixTree const& tree, DomainId domain, Text const& text)
{
  return tree.match(domain, text, static_cast<Index>(text.size()));
}

}  // namespace

TEST_CASE("RadixTree: an empty tree matches nothing", "[prefix][radix_tree]")
{
  RadixTree tree(4, 8);
  DomainId const domain = tree.intern(Domain());
  Match const found = match(tree, domain, range(1, 8));
  CHECK(found.full_pages == 0);
  CHECK(found.partial_rows == 0);
  CHECK(found.span.value == nil);
  CHECK(found.miss == Miss::never_seen);
  CHECK(match(tree, domain, {}).miss == Miss::none);
  CHECK(tree.match(domain, range(1, 8), -5).miss == Miss::last_token);
  CHECK(tree.find(Domain()) == domain);
  CHECK(tree.num_spans() == 0);
  CHECK(tree.check_invariants());
}

TEST_CASE("RadixTree: match returns the longest run of whole pages", "[prefix][radix_tree]")
{
  RadixTree tree(4, 8);
  DomainId const domain = tree.intern(Domain());
  SpanId const span = tree.insert(domain, zero_page, range(1, 12), Pages{{5}, {2}, {7}}, false);
  CHECK(tree.pages(span).size() == 3);
  CHECK(tree.first_page(span) == PageId{5});
  CHECK(tree.last_page(span) == PageId{7});
  CHECK(tree.tokens(span).size() == 12);

  Match const all = match(tree, domain, range(1, 14));
  CHECK(all.full_pages == 3);
  CHECK(all.span == span);
  CHECK(all.span_pages == 3);
  Pages pages(3);
  tree.copy_pages(all, pages.data());
  CHECK(pages == Pages{{5}, {2}, {7}});

  Match const two = match(tree, domain, range(1, 11));
  CHECK(two.full_pages == 2);
  CHECK(two.span_pages == 2);
  CHECK(two.partial_page == PageId{7});
  CHECK(two.partial_rows == 3);
  CHECK(two.rows(4) == 11);
  CHECK(two.miss == Miss::none);
}

TEST_CASE("RadixTree: split puts a new span above, the rest keeps id and children",
          "[prefix][radix_tree]")
{
  RadixTree tree(4, 16);
  DomainId const domain = tree.intern(Domain());
  SpanId const span = tree.insert(domain, zero_page, range(1, 12), Pages{{1}, {2}, {3}}, false);
  SpanId const child = tree.insert(domain, PageId{3}, range(13, 16), Pages{{4}}, false);
  SpanId const head = tree.split(span, 1);
  CHECK(head != span);
  CHECK(tree.parent(span) == head);
  CHECK(tree.parent(child) == span);
  CHECK(tree.parent(head).value == nil);
  CHECK(tree.children(head) == 1);
  CHECK(tree.children(span) == 1);
  CHECK(tree.first_token(child) == 12);
  CHECK(tree.span_of(PageId{1}) == head);
  CHECK(tree.span_of(PageId{2}) == span);
  CHECK(tree.previous_page(PageId{2}) == PageId{1});
  CHECK(tree.previous_page(PageId{4}) == PageId{3});
  CHECK(tree.previous_page(PageId{1}) == zero_page);
  CHECK(tree.previous_page(PageId{9}) == zero_page);
  CHECK(match(tree, domain, range(1, 16)).full_pages == 4);
  CHECK(tree.check_invariants());
  CHECK_THROWS_AS(tree.split(child, 1), LogicError);
  CHECK_THROWS_AS(tree.split(span, 0), LogicError);
}

TEST_CASE("RadixTree: extend grows a childless span, else a child is made", "[prefix][radix_tree]")
{
  RadixTree tree(2, 16);
  DomainId const domain = tree.intern(Domain());
  SpanId const span = tree.insert(domain, zero_page, range(1, 2), Pages{{1}}, true);
  CHECK(tree.insert(domain, PageId{1}, range(3, 4), Pages{{2}}, true) == span);
  CHECK(tree.insert(domain, PageId{2}, range(5, 8), Pages{{3}, {4}}, true) == span);
  CHECK(tree.size(span) == 4);
  SpanId const child = tree.insert(domain, PageId{4}, range(9, 10), Pages{{5}}, false);
  CHECK(child != span);
  SpanId const other = tree.insert(domain, PageId{4}, range(20, 21), Pages{{6}}, true);
  CHECK(other != span);
  CHECK(tree.children(span) == 2);
  CHECK(match(tree, domain, range(1, 10)).full_pages == 5);
  CHECK(tree.check_invariants());
}

TEST_CASE("RadixTree: find_child sees inside spans and below them", "[prefix][radix_tree]")
{
  RadixTree tree(2, 16);
  DomainId const domain = tree.intern(Domain());
  tree.insert(domain, zero_page, range(1, 4), Pages{{1}, {2}}, false);
  tree.insert(domain, PageId{2}, range(5, 6), Pages{{3}}, false);
  CHECK(tree.find_child(domain, zero_page, range(1, 2)) == PageId{1});
  CHECK(tree.find_child(domain, PageId{1}, range(3, 4)) == PageId{2});
  CHECK(tree.find_child(domain, PageId{2}, range(5, 6)) == PageId{3});
  CHECK(tree.find_child(domain, PageId{1}, range(5, 6)) == zero_page);
  CHECK(tree.find_child(domain, PageId{3}, range(7, 8)) == zero_page);
  CHECK(tree.find_child(domain, zero_page, range(3, 4)) == zero_page);
  CHECK(tree.find_child(domain, PageId{9}, range(1, 2)) == zero_page);
}

TEST_CASE("RadixTree: pop_tail gives pages last first and tokens in order", "[prefix][radix_tree]")
{
  RadixTree tree(4, 8);
  DomainId const domain = tree.intern(Domain());
  SpanId const span = tree.insert(domain, zero_page, range(1, 12), Pages{{3}, {1}, {2}}, false);
  Pages out(3);
  Text tokens(12);
  Popped popped = tree.pop_tail(span, 2, out.data(), tokens.data());
  CHECK(out[0] == PageId{2});
  CHECK(out[1] == PageId{1});
  CHECK(Text(tokens.begin(), tokens.begin() + 8) == range(5, 12));
  CHECK(popped.parent == PageId{3});
  CHECK(popped.pages == 2);
  CHECK_FALSE(popped.removed_span);
  CHECK(tree.size(span) == 1);
  popped = tree.pop_tail(span, 1, out.data(), nullptr);
  CHECK(popped.parent == zero_page);
  CHECK(popped.removed_span);
  CHECK(tree.num_spans() == 0);
  CHECK(tree.num_pages() == 0);
  CHECK(tree.check_invariants());
}

TEST_CASE("RadixTree: each miss has its reason", "[prefix][radix_tree]")
{
  RadixTree tree(4, 16);
  DomainId const a = tree.intern(Domain());
  DomainId const b = tree.intern(Domain({.model = {}, .weights = {}, .salt = "b", .adapters = {}}));
  SpanId const span = tree.insert(a, zero_page, range(1, 12), Pages{{1}, {2}, {3}}, false);
  CHECK(match(tree, a, range(1, 12)).miss == Miss::none);
  CHECK(tree.match(a, range(1, 12), 11).miss == Miss::last_token);
  CHECK(tree.match(a, range(1, 12), 8).miss == Miss::last_token);
  CHECK(match(tree, a, {1, 2, 3, 4, 5, 9, 9, 9}).miss == Miss::partial);
  CHECK(match(tree, a, {1, 2, 9, 9, 9}).miss == Miss::partial);
  CHECK(match(tree, a, {1, 2, 3, 4, 9, 9, 9, 9}).miss == Miss::never_seen);
  CHECK(match(tree, b, range(1, 12)).miss == Miss::other_domain);
  CHECK(match(tree, b, range(2, 12)).miss == Miss::never_seen);
  CHECK(match(tree, b, range(1, 3)).miss == Miss::never_seen);  // less than a page: nothing to name
  Pages out(3);
  tree.pop_tail(span, 1, out.data(), nullptr);
  CHECK(match(tree, a, range(1, 12)).miss == Miss::evicted);
  CHECK(match(tree, a, range(1, 12)).full_pages == 2);
  CHECK(tree.match(a, range(1, 12), 11).miss == Miss::evicted);
  tree.pop_tail(span, 2, out.data(), nullptr);
  CHECK(match(tree, a, range(1, 12)).miss == Miss::evicted);
  CHECK(match(tree, b, range(1, 12)).miss == Miss::other_domain);
  tree.forget(a, [](SpanId) {}, [](PageId) {});
  CHECK(match(tree, a, range(1, 12)).miss == Miss::never_seen);  // that was under other weights
}

TEST_CASE("RadixTree: forget drops one domain and raises its generation", "[prefix][radix_tree]")
{
  RadixTree tree(4, 16);
  DomainId const a = tree.intern(Domain());
  DomainId const b = tree.intern(Domain({.model = {}, .weights = {}, .salt = "b", .adapters = {}}));
  SpanId const first = tree.insert(a, zero_page, range(1, 8), Pages{{1}, {2}}, false);
  SpanId const child = tree.insert(a, PageId{2}, range(9, 12), Pages{{3}}, false);
  tree.insert(b, zero_page, range(1, 8), Pages{{4}, {5}}, false);
  std::vector<SpanId> spans;
  Pages pages;
  tree.forget(
    a,
    [&](SpanId span) {
      CHECK(tree.size(span) != 0);
      spans.push_back(span);
    },
    [&](PageId page) { pages.push_back(page); });
  CHECK(spans == std::vector<SpanId>{first, child});
  CHECK(pages == Pages{{1}, {2}, {3}});
  CHECK(match(tree, a, range(1, 12)).full_pages == 0);
  CHECK(match(tree, b, range(1, 12)).full_pages == 2);
  CHECK(tree.generation(a) == 1);
  CHECK(tree.generation(b) == 0);
  CHECK(tree.check_invariants());
  tree.insert(a, zero_page, range(1, 4), Pages{{1}}, false);
  CHECK(match(tree, a, range(1, 12)).full_pages == 1);
}

TEST_CASE("RadixTree: broken preconditions are refused and change nothing", "[prefix][radix_tree]")
{
  CHECK_THROWS_AS(RadixTree(0, 8), LogicError);
  CHECK_THROWS_AS(RadixTree(-1, 8), LogicError);
  RadixTree tree(4, 8);
  DomainId const domain = tree.intern(Domain());
  DomainId const other =
    tree.intern(Domain({.model = "m", .weights = {}, .salt = {}, .adapters = {}}));
  tree.insert(domain, zero_page, range(1, 8), Pages{{1}, {2}}, false);
  std::uint64_t const before = tree.digest();
  auto const refused = [&](DomainId where, PageId parent, Text const& text, Pages const& pages) {
    CHECK_THROWS_AS(tree.insert(where, parent, text, pages, false), LogicError);
    CHECK_THROWS_AS(tree.insert(where, parent, text, pages, true), LogicError);
    CHECK(tree.digest() == before);
    CHECK(tree.check_invariants());
  };
  refused(domain, zero_page, range(20, 23), {});               // no page
  refused(domain, zero_page, range(20, 22), Pages{{3}});       // too few tokens
  refused(domain, zero_page, range(1, 4), Pages{{3}});         // there already
  refused(domain, PageId{1}, range(20, 23), Pages{{3}});       // in the middle of a span
  refused(domain, PageId{4}, range(20, 23), Pages{{3}});       // parent not cached
  refused(other, PageId{2}, range(20, 23), Pages{{3}});        // parent of another domain
  refused(domain, PageId{2}, range(20, 23), Pages{{1}});       // page in the tree
  refused(domain, PageId{2}, range(20, 27), Pages{{3}, {3}});  // page twice
  refused(domain, PageId{2}, range(20, 23), Pages{{9}});       // no page of the pool
  refused(domain, PageId{2}, range(20, 23), Pages{{0}});       // the page of zeros
}

TEST_CASE("RadixTree: moves", "[prefix][radix_tree]")
{
  RadixTree tree(4, 8);
  DomainId const domain = tree.intern(Domain());
  tree.insert(domain, zero_page, range(1, 8), Pages{{1}, {2}}, false);
  RadixTree const moved = std::move(tree);
  CHECK(match(moved, domain, range(1, 8)).full_pages == 2);
  CHECK(moved.check_invariants());
}

TEST_CASE("RadixTree: the digest is the same in every process", "[prefix][radix_tree]")
{
  RadixTree tree(4, 8);
  DomainId const domain =
    tree.intern(Domain({.model = "m", .weights = {}, .salt = {}, .adapters = {}}));
  std::uint64_t const empty = tree.digest();
  tree.insert(domain, zero_page, range(1, 8), Pages{{1}, {2}}, false);
  CHECK(tree.digest() != empty);
  CHECK(tree.digest() == 1021459548003695096ULL);
}

TEST_CASE("RadixTree: memory is what the parts take", "[prefix][radix_tree]")
{
  RadixTree tree(16, 5000);
  DomainId const domain = tree.intern(Domain());
  tree.insert(domain, zero_page, range(1, 16), Pages{{1}}, false);
  std::size_t const one = tree.bytes();
  CHECK(one > 2 * 1024 * (16 * 4 + 4));  // the first room
  Pages pages(4000);
  for (std::uint32_t i = 0; i < 4000; ++i) {
    pages[i] = PageId{i + 2};
  }
  tree.insert(domain, zero_page, range(101, 100 + 16 * 4000), pages, false);
  constexpr std::size_t exact = 4000 * (16 * 4 + 4);
  CHECK(tree.bytes() > one + exact);
  CHECK(tree.bytes() < one + 2 * exact + 100);  // an arena holds two of what it is made for
}
