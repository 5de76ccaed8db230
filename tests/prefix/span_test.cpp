// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/span.hpp>

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;
using detail::SpanBuffer;

namespace {

constexpr std::size_t page_tokens = 3;

struct Text {
  std::vector<Token> tokens;
  std::vector<PageId> pages;

  void add(std::uint32_t page)
  {
    pages.push_back(PageId{page});
    for (std::uint32_t i = 0; i < page_tokens; ++i) {
      tokens.push_back(static_cast<Token>(page * 10 + i));
    }
  }
};

bool holds(SpanBuffer const& buffer, Text const& text, std::size_t first, std::size_t count)
{
  bool same = buffer.size() == count;
  for (std::size_t i = 0; i < count && same; ++i) {
    same = buffer.pages(page_tokens)[i] == text.pages[first + i];
  }
  for (std::size_t i = 0; i < count * page_tokens && same; ++i) {
    same = buffer.tokens(page_tokens)[i] == text.tokens[first * page_tokens + i];
  }
  return same;
}

SpanBuffer filled(Text const& text)
{
  auto const count = static_cast<PageCount>(text.pages.size());
  SpanBuffer buffer(count, page_tokens);
  buffer.append(text.tokens.data(), text.pages.data(), count, page_tokens);
  return buffer;
}

}  // namespace

TEST_CASE("SpanBuffer: grows page by page without a copy each time", "[prefix][span]")
{
  Text text;
  SpanBuffer buffer;
  int moves = 0;
  for (std::uint32_t page = 1; page <= 1000; ++page) {
    text.add(page);
    PageCount const before = buffer.capacity();
    buffer.make_room(1, page_tokens);
    moves += buffer.capacity() != before ? 1 : 0;
    buffer.append(&text.tokens[(page - 1) * page_tokens], &text.pages[page - 1], 1, page_tokens);
  }
  CHECK(holds(buffer, text, 0, 1000));
  CHECK(moves < 40);
  CHECK(buffer.capacity() <= 1251);
}

TEST_CASE("SpanBuffer: split and pop_back keep what they should and give memory back",
          "[prefix][span]")
{
  Text text;
  for (std::uint32_t page = 1; page <= 40; ++page) {
    text.add(page);
  }
  for (PageCount cut = 1; cut < 40; ++cut) {
    CAPTURE(cut);
    SpanBuffer tail = filled(text);
    SpanBuffer head = tail.split(cut, page_tokens);
    CHECK(holds(head, text, 0, cut));
    CHECK(holds(tail, text, cut, 40 - cut));
    CHECK(head.capacity() <= 2 * head.size());
    CHECK(tail.capacity() <= 2 * tail.size() + 1);
    tail.pop_back(1, page_tokens);
    CHECK(holds(tail, text, cut, 1));
    CHECK(tail.capacity() <= 4);
  }
}

TEST_CASE("SpanBuffer: random cuts and growth never hold more than four times their use",
          "[prefix][span]")
{
  kvcache_test::Random random(3);
  Text text;
  for (std::uint32_t page = 1; page <= 30; ++page) {
    text.add(page);
  }
  SpanBuffer buffer = filled(text);
  std::size_t first = 0;
  bool right = true;
  for (int step = 0; step < 20'000 && right; ++step) {
    std::size_t const size = buffer.size();
    std::size_t const end = first + size;
    switch (random.below(3)) {
      case 0:
        if (size > 1) {
          PageCount const cut = random.between(1, static_cast<std::uint32_t>(size - 1));
          SpanBuffer head = buffer.split(cut, page_tokens);
          right = holds(head, text, first, cut) && holds(buffer, text, first + cut, size - cut);
          if (random.below(2) == 0) {
            buffer = std::move(head);
          } else {
            first += cut;
          }
        }
        break;
      case 1:
        if (size > 1) {
          buffer.pop_back(random.between(1, static_cast<std::uint32_t>(size)), page_tokens);
        }
        break;
      default: {
        std::size_t const count = random.below(8);
        if (end + count <= text.pages.size()) {
          buffer.make_room(static_cast<PageCount>(count), page_tokens);
          buffer.append(&text.tokens[0] + end * page_tokens,
                        &text.pages[0] + end,
                        static_cast<PageCount>(count),
                        page_tokens);
        } else if (end == text.pages.size() && size == 1) {
          buffer = filled(text);  // at the end of the text: start again
          first = 0;
        }
      }
    }
    right =
      right && holds(buffer, text, first, buffer.size()) && buffer.capacity() <= 4 * buffer.size();
  }
  CHECK(right);
}
