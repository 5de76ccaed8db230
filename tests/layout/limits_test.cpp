// SPDX-License-Identifier: Apache-2.0
// The limits that docs/layouts.md promises, each tried; what 32-bit units cannot name; and that static costs nothing.

#include <kvcache/control/options.hpp>
#include <kvcache/control/plan.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/layout/slab_map.hpp>
#include <kvcache/view/segment_view.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/engine_types.hpp"

namespace {

using namespace kvcache;

constexpr RowOrder planes = RowOrder::planes;
constexpr RowOrder nhd = RowOrder::nhd;

struct Range {
  std::int64_t least;
  std::int64_t most;
};

/// Rows "| `field` | least | most | ... |" of the document.
std::map<std::string, Range> promised()
{
  std::ifstream file(KVCACHE_SOURCE_DIR "/docs/layouts.md");
  std::map<std::string, Range> out;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    std::string bar, name, least, most;
    if (in >> bar >> name >> bar >> least >> bar >> most && name.front() == '`' &&
        least.find_first_not_of("0123456789") == std::string::npos &&
        most.find_first_not_of("0123456789") == std::string::npos) {
      out[name.substr(1, name.size() - 2)] = {std::stoll(least), std::stoll(most)};
    }
  }
  return out;
}

/// What a cache would answer with `value` in one field and all others small.
Error answer(std::string const& field, std::int64_t value)
{
  Geometry g{.layers = 1, .kv_heads = 1, .head_dim = 8, .page_tokens = 1};
  ControlOptions options{.pages = 1, .page_tokens = 1};
  auto const small = static_cast<std::int32_t>(value);
  auto const unsigned_small = static_cast<std::uint32_t>(value);
  std::map<std::string, std::int32_t*> const signed_fields{
    {"layers", &g.layers},
    {"kv_heads", &g.kv_heads},
    {"head_dim", &g.head_dim},
    {"page_tokens", &g.page_tokens},
    {"max_step_tokens", &options.max_step_tokens}};
  std::map<std::string, std::uint32_t*> const unsigned_fields{
    {"pages", &options.pages},
    {"max_sequences", &options.max_sequences},
    {"event_capacity", &options.event_capacity}};
  if (auto const at = signed_fields.find(field); at != signed_fields.end()) {
    *at->second = small;
  } else {
    *unsigned_fields.at(field) = unsigned_small;
  }
  Error error{};
  g = PagedHeads<half>::complete(g, error);
  options.page_tokens = g.page_tokens;
  error = error.why == Why::ok ? options.complete() : error;
  return error.why == Why::ok ? PagedHeads<half>::footprint(g).validate(options.pages) : error;
}

template <class Layout>
std::string refusal(Geometry const& asked, PageCount pages)
{
  Error error{};
  Geometry const g = Layout::complete(asked, error);
  error = error.why == Why::ok ? Layout::footprint(g).validate(pages) : error;
  return error.message().text;
}

/// The offset of the last tile of the last page, through a view.
template <class Layout>
std::uint64_t last_tile(Geometry const& g, PageCount pages)
{
  Footprint const f = Layout::footprint(g);
  std::vector<std::uint32_t> offsets(f.layers);
  for (std::uint32_t layer = 0; layer < f.layers; ++layer) {
    offsets[layer] = layer * f.layer_stride(pages);
  }
  constexpr std::uintptr_t origin = 4096;  // never read
  SegmentView const segment{.base = reinterpret_cast<std::byte*>(origin),
                            .table = nullptr,
                            .layer_offset = offsets.data(),
                            .num_pages = pages + 1,
                            .row_stride = 0,
                            .layer_stride = 0,
                            .seq_rows = 1,
                            .head_rows = 0,
                            .page_scale = f.page_units(),
                            .head_scale = f.head_units,
                            .unit_bytes = f.unit_bytes};
  return reinterpret_cast<std::uintptr_t>(
           segment.tile(f.layers - 1, static_cast<std::uint32_t>(g.kv_heads) - 1, pages)) -
         origin;
}

/// The largest pool that is let in: its last tile lies where 64 bits say, and one page more is refused.
template <class Layout>
void check_largest(Geometry g, std::uint64_t head_bytes)
{
  for (auto const arrangement : {Arrangement::page_first, Arrangement::layer_first}) {
    g.arrangement = arrangement;
    Footprint const f = Layout::footprint(g);
    PageCount const most = f.max_pages();
    CAPTURE(most, f.unit_bytes, static_cast<int>(arrangement));
    CHECK(f.validate(most).why == Why::ok);
    CHECK(f.validate(most + 1).why == Why::bad_config);
    CHECK(std::string(f.validate(most + 1).field) == "pages");
    CHECK(f.validate(most + 1).limit == most);
    CHECK((std::uint64_t{most} + 1) * f.layers * f.layer_units <= Footprint::max_units);
    auto const heads = static_cast<std::uint64_t>(g.kv_heads);
    CHECK(last_tile<Layout>(g, most) ==
          f.pool_bytes(most) - f.layer_bytes() + (heads - 1) * head_bytes);
  }
}

constexpr Geometry large{.layers = 80, .kv_heads = 8, .head_dim = 128, .page_tokens = 16};

}  // namespace

TEST_CASE("Limits: docs/layouts.md says what is refused, no more and no less", "[layout][limits]")
{
  auto const ranges = promised();
  CHECK(ranges.size() == 8);
  for (auto const& [field, range] : ranges) {
    CAPTURE(field, range.least, range.most);
    CHECK(answer(field, range.least).why == Why::ok);
    CHECK(answer(field, range.most).why == Why::ok);
    Error const above = answer(field, range.most + 1);
    CHECK(above.why == Why::bad_config);
    CHECK(std::string(above.field) == field);
    CHECK(above.value == range.most + 1);
    CHECK(above.limit == range.most);
    Error const below = answer(field, range.least - 1);
    CHECK(below.why == Why::bad_config);
    CHECK(std::string(below.field) == field);
  }
  CHECK(max_streams == 4);
  CHECK(Plan::num_slots == 12);
  CHECK(Plan::max_tree_tokens == 64);
  CHECK(SlabMap::max_classes == 8);
}

TEST_CASE("Limits: rows of one-byte elements keep to 16 bytes", "[layout][limits]")
{
  using Bytes = PagedHeads<engine::Fp8>;
  Geometry g = large;
  for (std::int32_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    g.head_dim = head_dim;
    std::string const text = refusal<Bytes>(g, 1);
    CAPTURE(text);
    CHECK((text == " = 0 (ok): ") == (head_dim % 16 == 0));
    CHECK(refusal<PagedHeads<half>>(g, 1) == " = 0 (ok): ");
  }
  g.head_dim = 72;
  CHECK(refusal<Bytes>(g, 1) ==
        "head_dim = 72 (bad configuration): must be a multiple of 16 where an element is one byte");
}

TEST_CASE("Limits: what 32-bit units cannot name is refused with the figure", "[layout][limits]")
{
  CHECK(refusal<PagedHeads<half>>(large, 6'710'886) ==
        "pages = 6710886 (bad configuration): pages x layers x kv_heads must fit 32 bits, so at "
        "most 6710885");
  CHECK(refusal<PagedHeads<half, 128, 16, nhd>>(large, 209'715) ==
        "pages = 209715 (bad configuration): pages x units of a page (layers x kv_heads x rows in "
        "token order) must fit 32 bits, so at most 209714");
  // Where not even two pages fit, the model is too large and not the pool.
  CHECK(refusal<PagedHeads<half, 8, 256, nhd>>({.layers = 4096, .kv_heads = 4096}, 1) ==
        "layers = 4096 (bad configuration): with so many kv_heads and page_tokens must leave two "
        "pages in 32-bit units, so at most 1023");
  CHECK(refusal<PagedHeads<half, 8, 256, nhd>>({.layers = 1023, .kv_heads = 4096}, 1) ==
        " = 0 (ok): ");

  check_largest<PagedHeads<half, 128, 16>>(large, 8192);
  check_largest<PagedHeads<half, 128, 16, planes>>(large, 4096);
  check_largest<PagedHeads<half, 128, 16, nhd>>(large, 256);
  check_largest<PagedHeads<float>>({7, 3, 72, 5}, 2944);  // a tile of 2,880 bytes and its padding
  check_largest<PagedHeads<float, 72, 5, planes>>({7, 3, 72, 5}, 1440);
  check_largest<PagedHeads<half, 72, 5, nhd>>({7, 3, 72, 5}, 144);
}

TEST_CASE("Limits: how far 32 bits reach in each order", "[layout][limits]")
{
  Geometry const one{.layers = 1, .kv_heads = 8, .head_dim = 128, .page_tokens = 16};
  auto const reach = [&](Footprint const& f) { return (std::uint64_t{f.unit_bytes} << 32) >> 40; };
  CHECK(reach(PagedHeads<half>::footprint(one)) == 32);  // TiB
  CHECK(reach(PagedHeads<half, 128, 16, planes>::footprint(one)) == 16);
  CHECK(reach(PagedHeads<half, 128, 16, nhd>::footprint(one)) == 1);
  for (std::int32_t heads = 1; heads < 12; ++heads) {
    for (std::int32_t tokens = 1; tokens < 20; ++tokens) {
      for (std::int32_t head_dim = 8; head_dim <= 256; head_dim += 8) {
        Geometry const g{1, heads, head_dim, tokens};
        for (Footprint const& f : {PagedHeads<half>::footprint(g),
                                   PagedHeads<half, dynamic, dynamic, planes>::footprint(g),
                                   PagedHeads<half, dynamic, dynamic, nhd>::footprint(g)}) {
          REQUIRE(f.unit_bytes % 16 == 0);
          REQUIRE(f.layer_bytes() % 128 == 0);
          std::uint64_t const rows = std::uint64_t{f.row_bytes} *
                                     static_cast<std::uint32_t>(heads) *
                                     static_cast<std::uint32_t>(tokens);
          REQUIRE(f.layer_bytes() >= rows);
        }
        Footprint const f = PagedHeads<half, dynamic, dynamic, nhd>::footprint(g);
        REQUIRE(f.layer_bytes() < std::uint64_t{f.row_bytes} * static_cast<std::uint32_t>(heads) *
                                      static_cast<std::uint32_t>(tokens) +
                                    128);
      }
    }
  }
}

TEST_CASE("Limits: static dimensions are constants of the compiler and take no room",
          "[layout][limits]")
{
  using Map = PagedHeads<half, 72, 5>::Map;
  static_assert(Map{}.row_elements() == 72 && Map{}.value_elements() == 360 &&
                Map{}.tile_bytes() == 1536);
  static_assert(sizeof(Map) <= 2 && std::is_empty_v<Extent<72>>);
  // Of the other orders the dimensions still are; the number of heads is read.
  using Planes = PagedHeads<half, 72, 5, planes>::Map;
  static_assert(Planes{}.row_elements() == 72);
  static_assert(PagedHeads<half, 72, 5, nhd>::map({1, 3, 72, 5}).row_elements() == 216);
  CHECK(sizeof(Planes) <= 8);

  Geometry const g{2, 3, 72, 5};
  auto const same = [&]<class A, class B>() {
    auto const a = A::map(g);
    auto const b = B::map(g);
    return a.row_elements() == b.row_elements() && a.value_elements() == b.value_elements() &&
           a.tile_bytes() == b.tile_bytes() &&
           A::footprint(g).unit_bytes == B::footprint(g).unit_bytes &&
           A::footprint(g).page_bytes() == B::footprint(g).page_bytes();
  };
  CHECK(same.operator()<PagedHeads<half, 72, 5>, PagedHeads<half>>());
  CHECK(
    same.operator()<PagedHeads<half, 72, 5, planes>, PagedHeads<half, dynamic, dynamic, planes>>());
  CHECK(same.operator()<PagedHeads<half, 72, 5, nhd>, PagedHeads<half, dynamic, 5, nhd>>());
}
