// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/span.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;
using detail::BlockPool;
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
    same = buffer.tokens()[i] == text.tokens[first * page_tokens + i];
  }
  return same;
}

void nobody_moves(std::uint32_t, std::byte*) {}  // large arenas: nothing is gathered

void reserve(BlockPool& pool, PageCount pages)
{
  pool.reserve(SpanBuffer::bytes_for(pages, page_tokens), nobody_moves);
}
/// As `SpanStore` does.
void make_room(BlockPool& pool, SpanBuffer& buffer, PageCount count)
{
  if (PageCount const wanted = buffer.wanted(pool, count, page_tokens); wanted != 0) {
    reserve(pool, wanted);
    buffer.move(pool, wanted, page_tokens);
  }
}
SpanBuffer split(BlockPool& pool, SpanBuffer& buffer, PageCount count)
{
  PageCount const rest = buffer.size() - count;
  reserve(pool, count < rest ? count : rest);
  return buffer.split(pool, count, page_tokens);
}

SpanBuffer filled(BlockPool& pool, Text const& text)
{
  auto const count = static_cast<PageCount>(text.pages.size());
  reserve(pool, count);
  SpanBuffer buffer(pool, count, page_tokens);
  buffer.append(text.tokens.data(), text.pages.data(), count, page_tokens);
  return buffer;
}

}  // namespace

TEST_CASE("SpanBuffer: grows page by page without a copy each time", "[prefix][span]")
{
  Text text;
  BlockPool pool(1 << 20);
  SpanBuffer buffer;
  int moves = 0;
  for (std::uint32_t page = 1; page <= 1000; ++page) {
    text.add(page);
    PageCount const before = buffer.capacity();
    make_room(pool, buffer, 1);
    moves += buffer.capacity() != before ? 1 : 0;
    buffer.append(&text.tokens[(page - 1) * page_tokens], &text.pages[page - 1], 1, page_tokens);
  }
  CHECK(holds(buffer, text, 0, 1000));
  CHECK(moves < 40);
  CHECK(buffer.capacity() <= 1251);
  buffer.give_back(pool);
  CHECK(pool.num_blocks() == 0);
}

TEST_CASE("SpanBuffer: grows in place where nothing lies behind it", "[prefix][span]")
{
  Text text;
  for (std::uint32_t page = 1; page <= 100; ++page) {
    text.add(page);
  }
  BlockPool pool(1 << 20);
  SpanBuffer buffer = filled(pool, text);
  Token const* const before = buffer.tokens();
  make_room(pool, buffer, 1);
  CHECK(buffer.tokens() == before);
  CHECK(buffer.capacity() == 127);
  CHECK(holds(buffer, text, 0, 100));
  pool.reserve(8, nobody_moves);
  std::byte* const wall = pool.take(8);
  make_room(pool, buffer, 28);
  CHECK(buffer.tokens() != before);
  CHECK(holds(buffer, text, 0, 100));
  pool.give(wall);
  buffer.give_back(pool);
  CHECK(pool.check_invariants());
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
    BlockPool pool(1 << 20);
    SpanBuffer tail = filled(pool, text);
    SpanBuffer head = split(pool, tail, cut);
    CHECK(holds(head, text, 0, cut));
    CHECK(holds(tail, text, cut, 40 - cut));
    CHECK(head.capacity() == head.size());
    CHECK(tail.capacity() == tail.size());
    CHECK(pool.check_invariants());
    tail.pop_back(pool, 1, page_tokens);
    CHECK(holds(tail, text, cut, 1));
    CHECK(tail.capacity() == 1);
    CHECK(holds(head, text, 0, cut));
    CHECK(pool.num_blocks() == 2);
    std::size_t const used = SpanBuffer::bytes_for(cut + 1, page_tokens);
    CHECK(pool.bytes() - pool.bytes_free() <= used + 40 + 2 * 48);  // the end, headers and rounding
    head.give_back(pool);
    tail.give_back(pool);
    CHECK(pool.check_invariants());
    CHECK(pool.num_blocks() == 0);
  }
}

TEST_CASE("SpanBuffer: random cuts and growth never hold more than half as much again",
          "[prefix][span]")
{
  kvcache_test::Random random(3);
  Text text;
  for (std::uint32_t page = 1; page <= 30; ++page) {
    text.add(page);
  }
  BlockPool pool(1 << 20);
  SpanBuffer buffer = filled(pool, text);
  std::size_t first = 0;
  bool right = true;
  for (int step = 0; step < 20'000 && right; ++step) {
    std::size_t const size = buffer.size();
    std::size_t const end = first + size;
    switch (random.below(3)) {
      case 0:
        if (size > 1) {
          PageCount const cut = random.between(1, static_cast<std::uint32_t>(size - 1));
          SpanBuffer head = split(pool, buffer, cut);
          right = holds(head, text, first, cut) && holds(buffer, text, first + cut, size - cut);
          if (random.below(2) == 0) {
            std::swap(buffer, head);
          } else {
            first += cut;
          }
          head.give_back(pool);
        }
        break;
      case 1:
        if (size > 1) {
          buffer.pop_back(pool, random.between(1, static_cast<std::uint32_t>(size)), page_tokens);
        }
        break;
      default: {
        std::size_t const count = random.below(8);
        if (end + count <= text.pages.size()) {
          make_room(pool, buffer, static_cast<PageCount>(count));
          buffer.append(&text.tokens[0] + end * page_tokens,
                        &text.pages[0] + end,
                        static_cast<PageCount>(count),
                        page_tokens);
        } else if (end == text.pages.size() && size == 1) {
          buffer.give_back(pool);
          buffer = filled(pool, text);  // at the end of the text: start again
          first = 0;
        }
      }
    }
    right = right && holds(buffer, text, first, buffer.size()) &&
            buffer.capacity() <= buffer.size() + buffer.size() / 2 + 1 && pool.check_invariants() &&
            pool.num_blocks() == 1;
  }
  CHECK(right);
}
