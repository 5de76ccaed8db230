// SPDX-License-Identifier: Apache-2.0

#include <kvcache/layout/geometry.hpp>
#include <kvcache/layout/paged_heads.hpp>

#include <string>

#include "support/catch.hpp"

namespace {

using namespace kvcache;

constexpr Geometry good{.layers = 2, .kv_heads = 3, .head_dim = 64, .page_tokens = 16};

template <class Layout>
Error refusal(Geometry const& g)
{
  Error error{};
  (void)Layout::complete(g, error);
  return error;
}

void check_refused(Geometry const& g, char const* field, std::int64_t value, std::int64_t limit)
{
  for (Error const& error : {g.validate(), refusal<PagedHeads<half>>(g)}) {
    CHECK(error.why == Why::bad_config);
    CHECK(std::string(error.field) == field);
    CHECK(error.value == value);
    CHECK(error.limit == limit);
  }
}

}  // namespace

TEST_CASE("Geometry: each field has a range, and a refusal names field, value and limit",
          "[layout][geometry]")
{
  CHECK(good.validate().why == Why::ok);
  for (std::int32_t const bad : {0, -1, 4097}) {
    Geometry g = good;
    g.layers = bad;
    check_refused(g, "layers", bad, 4096);
    g = good;
    g.kv_heads = bad;
    check_refused(g, "kv_heads", bad, 4096);
  }
  for (std::int32_t const bad : {0, -8, 4, 7, 12, 100, 257, 264}) {
    Geometry g = good;
    g.head_dim = bad;
    check_refused(g, "head_dim", bad, 256);
  }
  for (std::int32_t const bad : {0, -1, 257}) {
    Geometry g = good;
    g.page_tokens = bad;
    check_refused(g, "page_tokens", bad, 256);
  }
}

TEST_CASE("Geometry: the ends of each range are in it", "[layout][geometry]")
{
  for (std::int32_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    CHECK(Geometry{1, 1, head_dim, 1}.validate().why == Why::ok);
  }
  for (std::int32_t page_tokens = 1; page_tokens <= 256; ++page_tokens) {
    CHECK(Geometry{4096, 4096, 8, page_tokens}.validate().why == Why::ok);
  }
}

TEST_CASE("PagedHeads: fills in what the type fixes, and refuses a contradiction",
          "[layout][paged_heads]")
{
  using Fixed = PagedHeads<half, 64, 16>;
  Error error{};
  Geometry const g = Fixed::complete({.layers = 2, .kv_heads = 3}, error);
  CHECK(error.why == Why::ok);
  CHECK(g.head_dim == 64);
  CHECK(g.page_tokens == 16);
  CHECK(refusal<Fixed>(good).why == Why::ok);

  Geometry other = good;
  other.head_dim = 128;
  error = refusal<Fixed>(other);
  CHECK(std::string(error.message().text) ==
        "head_dim = 128 (bad configuration): must be 0 or what the layout fixes, 64");
  other = good;
  other.page_tokens = 32;
  error = refusal<Fixed>(other);
  CHECK(std::string(error.message().text) ==
        "page_tokens = 32 (bad configuration): must be 0 or what the layout fixes, 16");

  error = refusal<PagedHeads<half>>({.layers = 2, .kv_heads = 3});
  CHECK(std::string(error.field) == "head_dim");
  error = refusal<PagedHeads<half, 64>>({.layers = 2, .kv_heads = 3});
  CHECK(std::string(error.field) == "page_tokens");
}
