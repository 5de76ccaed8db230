// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/child_index.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace kvcache;
using detail::ChildIndex;
using detail::Place;
using detail::SpanBuffer;
using detail::SpanStore;
using Text = std::vector<Token>;

namespace {

constexpr std::size_t page_tokens = 2;
constexpr Place root{.parent = nil, .domain = DomainId{0}};

std::uint32_t add(SpanStore& spans, ChildIndex& index, Place place, Text const& page)
{
  PageId const id{1};
  spans.reserve_buffer(1);
  SpanBuffer buffer = spans.make_buffer(1);
  buffer.append(page.data(), &id, 1, page_tokens);
  std::uint32_t const span = spans.reserve_one();
  index.reserve(spans.size() + 1U);
  detail::Span& node = spans.use(span, std::move(buffer));
  node.parent = place.parent;
  node.domain = place.domain;
  node.hash = index.hash(place, page.data());
  index.link(spans, span);
  return span;
}

std::uint32_t find(SpanStore const& spans, ChildIndex const& index, Place place, Text const& page)
{
  return index.find(spans, place, page.data(), index.hash(place, page.data()));
}

std::vector<std::uint32_t> list(SpanStore const& spans,
                                ChildIndex const& index,
                                Place place,
                                Token token)
{
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = index.newest(spans, place, token); id != nil; id = spans[id].next) {
    ids.push_back(id);
  }
  return ids;
}

using Ids = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("ChildIndex: a page is found below its own place only", "[prefix][child_index]")
{
  SpanStore spans(8, page_tokens);
  ChildIndex index(page_tokens, 0, 8);
  std::uint32_t const a = add(spans, index, root, {1, 2});
  Place const below{.parent = a, .domain = DomainId{0}};
  Place const other{.parent = nil, .domain = DomainId{1}};
  std::uint32_t const b = add(spans, index, below, {1, 2});
  std::uint32_t const c = add(spans, index, other, {1, 2});
  CHECK(find(spans, index, root, {1, 2}) == a);
  CHECK(find(spans, index, below, {1, 2}) == b);
  CHECK(find(spans, index, other, {1, 2}) == c);
  CHECK(find(spans, index, root, {1, 3}) == nil);
  CHECK(find(spans, index, {.parent = b, .domain = DomainId{0}}, {1, 2}) == nil);
}

TEST_CASE("ChildIndex: places whose hashes meet stay apart", "[prefix][child_index]")
{
  // Two domains in which the same page has the same 32-bit hash: a twin that compares tokens alone would
  // give one tenant the page of the other.
  SpanStore spans(8, page_tokens);
  ChildIndex index(page_tokens, 0, 8);
  Text const page = {1, 2};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> hashes;
  for (std::uint32_t d = 0; d < 200'000; ++d) {
    hashes.emplace_back(index.hash({.parent = nil, .domain = DomainId{d}}, page.data()), d);
  }
  std::sort(hashes.begin(), hashes.end());
  auto const twins = std::adjacent_find(
    hashes.begin(), hashes.end(), [](auto const& a, auto const& b) { return a.first == b.first; });
  REQUIRE(twins != hashes.end());
  Place const one{.parent = nil, .domain = DomainId{twins->second}};
  Place const other{.parent = nil, .domain = DomainId{(twins + 1)->second}};
  REQUIRE(index.hash(one, page.data()) == index.hash(other, page.data()));
  CHECK(add(spans, index, one, page) == 0);
  CHECK(find(spans, index, one, page) == 0);
  CHECK(find(spans, index, other, page) == nil);
}

TEST_CASE("ChildIndex: siblings of one first token, newest first", "[prefix][child_index]")
{
  SpanStore spans(8, page_tokens);
  ChildIndex index(page_tokens, 0, 8);
  for (Token second = 0; second < 5; ++second) {
    add(spans, index, root, {7, second});
    add(spans, index, root, {8, second});
  }
  CHECK(list(spans, index, root, 7) == Ids{8, 6, 4, 2, 0});
  CHECK(list(spans, index, root, 9).empty());
  index.unlink(spans, 4);  // in the middle, at the front, at the back
  spans.release(4);
  index.unlink(spans, 8);
  spans.release(8);
  index.unlink(spans, 0);
  spans.release(0);
  CHECK(list(spans, index, root, 7) == Ids{6, 2});
  CHECK(find(spans, index, root, {7, 1}) == 2);
  CHECK(find(spans, index, root, {7, 2}) == nil);
  CHECK(list(spans, index, root, 8) == Ids{9, 7, 5, 3, 1});
  index.unlink(spans, 6);
  spans.release(6);
  index.unlink(spans, 2);
  spans.release(2);
  CHECK(list(spans, index, root, 7).empty());
  CHECK(index.size() == 5);
}

TEST_CASE("ChildIndex: replace keeps the place in the list", "[prefix][child_index]")
{
  for (std::uint32_t const old : {0U, 1U, 2U}) {
    CAPTURE(old);
    SpanStore spans(8, page_tokens);
    ChildIndex index(page_tokens, 0, 8);
    for (Token second = 0; second < 3; ++second) {
      add(spans, index, root, {7, second});
    }
    std::uint32_t const head = spans.reserve_one();
    spans.reserve_buffer(1);
    SpanBuffer copy = spans.make_buffer(1);
    copy.append(spans[old].buffer.tokens(), spans[old].buffer.pages(page_tokens), 1, page_tokens);
    spans.use(head, std::move(copy));
    spans[head].domain = root.domain;
    spans[head].hash = spans[old].hash;
    index.replace(spans, old, head);
    Ids expected = {2, 1, 0};
    expected[2 - old] = head;
    CHECK(list(spans, index, root, 7) == expected);
    CHECK(find(spans, index, root, {7, static_cast<Token>(old)}) == head);
  }
}
