// SPDX-License-Identifier: Apache-2.0
// The oracle itself: what it must notice, on rows that went through a real cache.

#include "support/stamp.hpp"

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

template <class T>
void check_wrong_rows()
{
  using Cache = kvcache::KVCache<kvcache::PagedHeads<T, 8>>;
  auto cache =
    Cache::create({.layers = 2, .kv_heads = 2, .head_dim = 8, .page_tokens = 4}, {.pages = 4});
  REQUIRE(cache.has_value());
  std::vector<kvcache::Token> const text{5, 6, 7, 8, 5, 6, 7};
  auto const stamps = stamps_of(1, 0, text);
  auto sequence = cache->open({.tokens = text});
  REQUIRE(sequence.has_value());
  auto step = cache->prepare({{*sequence, text}});
  REQUIRE(step.has_value());
  auto const view = step->view();
  auto const write = [&](kvcache::Index token, Stamp stamp) {
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      for (std::int32_t head = 0; head < 2; ++head) {
        append_stamp(view, layer, head, token, stamp);
      }
    }
  };
  auto const wrong = [&] { return first_wrong_row(view, 1, 1, 6, std::span(stamps), 7); };
  for (kvcache::Index i = 0; i < 7; ++i) {
    write(i, stamps[static_cast<std::size_t>(i)]);
  }
  REQUIRE(wrong() == all_rows_right);
  REQUIRE(first_wrong_row(view, 0, 0, 3, std::span(stamps), 4) == all_rows_right);

  SECTION("a row of the token before it")
  {
    write(3, stamps[2]);
    CHECK(wrong() == 3);
  }
  SECTION("a row of the same token at another place: rows 0 and 4 both store token 5")
  {
    write(4, stamps[0]);
    CHECK(wrong() == 4);
  }
  SECTION("a row of another tenant, and one of older weights")
  {
    write(6, stamps_of(2, 0, text)[6]);
    CHECK(wrong() == 6);
    write(6, stamps_of(1, 1, text)[6]);
    CHECK(wrong() == 6);
  }
  SECTION("a row after another prefix")
  {
    std::vector<kvcache::Token> const other{9, 6, 7, 8, 5, 6, 7};
    write(6, stamps_of(1, 0, other)[6]);
    CHECK(wrong() == 6);
  }
  SECTION("another layer's or head's row, and V in the place of K")
  {
    T k[8];
    T v[8];
    for (auto const& [layer, head] : {std::pair{0, 1}, std::pair{1, 0}}) {
      write_vector(k, 8, stamps[5], layer, head, Part::key);
      write_vector(v, 8, stamps[5], layer, head, Part::value);
      view.append(kvcache::Solo{}, 1, 1, 5, k, v);
      CHECK(wrong() == 5);
    }
    write_vector(k, 8, stamps[5], 1, 1, Part::key);
    write_vector(v, 8, stamps[5], 1, 1, Part::value);
    view.append(kvcache::Solo{}, 1, 1, 5, v, k);
    CHECK(wrong() == 5);
    view.append(kvcache::Solo{}, 1, 1, 5, k, v);
    CHECK(wrong() == all_rows_right);
  }
  SECTION("one element")
  {
    T k[8];
    T v[8];
    write_vector(k, 8, stamps[1], 1, 1, Part::key);
    write_vector(v, 8, stamps[1], 1, 1, Part::value);
    v[7] = kvcache::ElementTraits<T>::from_float(kvcache::ElementTraits<T>::to_float(v[7]) + 1.0F);
    view.append(kvcache::Solo{}, 1, 1, 1, k, v);
    CHECK(wrong() == 1);
  }
  SECTION("rows that were never written: pages of zeros, and what the memory held")
  {
    CHECK_FALSE(vector_is(std::vector<T>(8).data(), 8, stamps[0], 0, 0, Part::key));
    auto const longer = stamps_of(1, 0, std::vector<kvcache::Token>{5, 6, 7, 8, 5, 6, 7, 8});
    CHECK(first_wrong_row(view, 1, 1, 6, std::span(longer), 8) == rows_missing);
  }
  SECTION("a table that names another page")
  {
    auto other = view;
    std::vector<std::int32_t> table(static_cast<std::size_t>(other.segment.row_stride), 0);
    table[0] = view.segment.table[1];
    table[1] = view.segment.table[0];
    other.segment.table = table.data();
    CHECK(first_wrong_row(other, 0, 0, 6, std::span(stamps), 7) == 0);
  }
  SECTION("bytes read beside the library agree")
  {
    RawRows<T> const raw{
      .base = view.segment.base, .layers = 2, .heads = 2, .dim = 8, .page_tokens = 4};
    auto const pages = cache->pages(*sequence);
    for (std::size_t i = 0; i < stamps.size(); ++i) {
      CHECK(raw.row_is(pages[i / 4], static_cast<std::int32_t>(i % 4), stamps[i]));
      CHECK_FALSE(raw.row_is(pages[i / 4], static_cast<std::int32_t>((i + 1) % 4), stamps[i]));
    }
    CHECK(raw.page_bytes() == cache->footprint().page_bytes());
  }
}

}  // namespace

TEST_CASE("Stamp: wrong rows are noticed in f32", "[model][stamp]")
{
  check_wrong_rows<float>();
}

TEST_CASE("Stamp: wrong rows are noticed in f16", "[model][stamp]")
{
  check_wrong_rows<kvcache::half>();
}

TEST_CASE("Stamp: each row of each text is another one", "[model][stamp]")
{
  // All texts of up to 6 tokens over 3 tokens, in 2 domains: no two rows have the same stamp or bytes.
  std::vector<Stamp> all;
  for (std::uint64_t domain = 0; domain < 2; ++domain) {
    std::vector<Stamp> layer{stamp_start(domain)};
    for (int length = 1; length <= 6; ++length) {
      std::vector<Stamp> next;
      for (Stamp const stamp : layer) {
        for (kvcache::Token token = 0; token < 3; ++token) {
          next.push_back(stamp_next(stamp, token));
        }
      }
      all.insert(all.end(), next.begin(), next.end());
      layer = next;
    }
  }
  std::vector<std::uint64_t> bytes;
  for (Stamp const stamp : all) {
    for (Part const part : {Part::key, Part::value}) {
      bytes.push_back(stamp_bytes(stamp, 0, 0, part, 0));
      bytes.push_back(stamp_bytes(stamp, 0, 1, part, 0));
      bytes.push_back(stamp_bytes(stamp, 1, 0, part, 0));
    }
  }
  std::sort(bytes.begin(), bytes.end());
  CHECK(std::adjacent_find(bytes.begin(), bytes.end()) == bytes.end());
}
