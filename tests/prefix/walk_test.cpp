// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/prefix/walk.hpp>

#include <cstdint>
#include <vector>

#include "support/catch.hpp"

using namespace kvcache;
using Text = std::vector<Token>;

namespace {

constexpr Index page_tokens = 8;

Match match(RadixTree const& tree, Text const& text)
{
  return tree.match(DomainId{0}, text, static_cast<Index>(text.size()));
}

void add(RadixTree& tree, PageId parent, Text const& text, std::uint32_t page)
{
  PageId const id{page};
  tree.insert(DomainId{0}, parent, text, {&id, 1}, false);
}

}  // namespace

TEST_CASE("walk: a partial hit takes the sibling with most rows in common", "[prefix][walk]")
{
  RadixTree tree(page_tokens, 16);
  tree.intern(Domain());
  add(tree, zero_page, {1, 2, 3, 4, 5, 6, 7, 8}, 1);
  add(tree, zero_page, {1, 2, 3, 4, 9, 9, 9, 9}, 2);
  add(tree, zero_page, {1, 9, 9, 9, 9, 9, 9, 9}, 3);
  Match found = match(tree, {1, 2, 3, 4, 5, 0, 0, 0, 0});
  CHECK(found.full_pages == 0);
  CHECK(found.partial_page == PageId{1});
  CHECK(found.partial_rows == 5);
  found = match(tree, {1, 2, 3, 4, 9});  // ends inside page 2
  CHECK(found.partial_page == PageId{2});
  CHECK(found.partial_rows == 5);
  CHECK(found.miss == Miss::none);
  found = match(tree, {1, 2, 3, 4, 7});  // as good in two pages: the newer one
  CHECK(found.partial_page == PageId{2});
  found = match(tree, {2, 2, 3});
  CHECK(found.partial_rows == 0);
  CHECK(found.partial_page == zero_page);
}

TEST_CASE("walk: a partial hit below a full page, and inside a span", "[prefix][walk]")
{
  RadixTree tree(page_tokens, 16);
  tree.intern(Domain());
  add(tree, zero_page, Text(8, 1), 1);
  add(tree, PageId{1}, {5, 6, 7, 8, 9, 10, 11, 12}, 2);
  Text prompt(8, 1);
  prompt.insert(prompt.end(), {5, 6, 7, 0});
  Match found = match(tree, prompt);
  CHECK(found.full_pages == 1);
  CHECK(found.partial_page == PageId{2});
  CHECK(found.rows(page_tokens) == 11);
  prompt[8] = 1;
  found = match(tree, prompt);
  CHECK(found.rows(page_tokens) == 8);

  RadixTree one(page_tokens, 16);
  one.intern(Domain());
  Text both(8, 1);
  both.insert(both.end(), {5, 6, 7, 8, 9, 10, 11, 12});
  std::vector<PageId> const pages = {{3}, {4}};
  one.insert(DomainId{0}, zero_page, both, pages, false);
  prompt[8] = 5;
  found = match(one, prompt);
  CHECK(found.partial_page == PageId{4});
  CHECK(found.partial_rows == 3);
  CHECK(found.span_pages == 1);
}

TEST_CASE("walk: the limit cuts whole pages and partial hits alike", "[prefix][walk]")
{
  RadixTree tree(page_tokens, 16);
  tree.intern(Domain());
  add(tree, zero_page, {1, 2, 3, 4, 5, 6, 7, 8}, 1);
  Text const prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  for (Index limit = 0; limit <= 8; ++limit) {
    CAPTURE(limit);
    Match const found = tree.match(DomainId{0}, prompt, limit);
    CHECK(found.rows(page_tokens) == limit);
    CHECK(found.full_pages == limit / 8);
    CHECK(found.miss == (limit < 8 ? Miss::last_token : Miss::none));
  }
}

TEST_CASE("walk: looks at a fixed number of siblings, the newest", "[prefix][walk]")
{
  RadixTree tree(page_tokens, 64);
  tree.intern(Domain());
  for (std::uint32_t i = 0; i < 40; ++i) {
    add(tree, zero_page, {1, static_cast<Token>(100 + i), 3, 4, 5, 6, 7, 8}, i + 1);
  }
  auto const rows = [&](Token second) { return match(tree, {1, second, 3, 0}).partial_rows; };
  CHECK(rows(139) == 3);
  CHECK(rows(140 - detail::max_siblings) == 3);
  CHECK(rows(139 - detail::max_siblings) == 1);  // older: one of the newest serves
  // Whole pages are found whatever their age.
  CHECK(match(tree, {1, 100, 3, 4, 5, 6, 7, 8}).full_pages == 1);
}

TEST_CASE("walk: pages of one token have no partial hits", "[prefix][walk]")
{
  RadixTree tree(1, 16);
  tree.intern(Domain());
  add(tree, zero_page, {1}, 1);
  add(tree, PageId{1}, {2}, 2);
  Match const found = match(tree, {1, 2, 3});
  CHECK(found.full_pages == 2);
  CHECK(found.partial_rows == 0);
  CHECK(found.miss == Miss::never_seen);
}
