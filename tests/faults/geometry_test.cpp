// SPDX-License-Identifier: Apache-2.0
// Faults of sections 9 and 10 that need no attention kernel: what a page held before, offsets, bounds. The others
// are in tests/attention.

#include <kvcache/kvcache.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "faults/subject.hpp"
#include "support/catch.hpp"
#include "support/hand_plan.hpp"

using namespace kvcache_test;
using kvcache::Index;
using kvcache::PageId;

// ---- B-086: a page that was another tenant's

namespace {

using Layout = kvcache::PagedHeads<kvcache::half, 8, 4>;
using View = kvcache::BatchView<Layout>;

/// All elements that an attention loop of the step's token can read, through the library's own tiles.
struct OwnTiles {
  static std::vector<float> read(View const& view, Index token)
  {
    std::vector<float> all;
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      for (std::int32_t head = 0; head < 2; ++head) {
        for (auto const tile : view.tiles(layer, head, token)) {
          for (Index r = 0; r < tile.rows(); ++r) {
            for (std::int32_t d = 0; d < 8; ++d) {
              all.push_back(tile.key(r, d));
              all.push_back(tile.value(r, d));
            }
          }
        }
      }
    }
    return all;
  }
};
/// The fault: whole pages are read.
struct WholePages {
  static std::vector<float> read(View const& view, Index token)
  {
    std::vector<Index> index(view.token_index, view.token_index + view.num_tokens());
    index[static_cast<std::size_t>(token)] |= 3;
    View whole = view;
    whole.token_index = index.data();
    return OwnTiles::read(whole, token);
  }
};

/// Tenant 0 leaves its rows in every page, and NaN in one; tenant 1 then stores one row, and reads.
template <class Reader>
bool reads_only_its_own(std::uint16_t poison)
{
  RealCache cache(2);
  int const before = cache.open(range(1, 8), 0);
  cache.append(before, range(1, 8));
  cache.close(before);
  cache.forget(0);
  auto opened = cache.cache().open({.tokens = {}});
  Text const one{9};
  auto step = cache.cache().prepare({{*opened, one}});
  View const view = step->view();
  PageId const page = cache.cache().pages(*opened)[0];
  auto* const rows = reinterpret_cast<std::uint16_t*>(
    view.segment.base + cache.cache().footprint().page_bytes() * page.value);
  for (std::size_t i = 0; poison != 0 && i < cache.cache().footprint().page_bytes() / 2; ++i) {
    rows[i] = poison;
  }
  Stamp const stamp = stamps_of(1, 0, one)[0];
  std::vector<float> want;
  for (std::int32_t lh = 0; lh < 4; ++lh) {
    append_stamp(view, lh / 2, lh % 2, 0, stamp);
    std::uint64_t k = stamp_bytes(stamp, lh / 2, lh % 2, Part::key, 0);
    std::uint64_t v = stamp_bytes(stamp, lh / 2, lh % 2, Part::value, 0);
    for (int d = 0; d < 8; ++d, k >>= 8, v >>= 8) {
      want.push_back(static_cast<float>(k & 0xffU));
      want.push_back(static_cast<float>(v & 0xffU));
    }
  }
  return Reader::read(view, 0) == want;
}

}  // namespace

TEST_CASE("B-086 the bytes of a page's former owner are never read", "[faults][numbers]")
{
  // Nothing clears a page between two users of one class: what bars the old bytes is that no tile covers them.
  for (std::uint16_t const poison : {std::uint16_t{0},       // as the other tenant left it
                                     std::uint16_t{0x7e00},  // NaN
                                     std::uint16_t{0x7c00},  // infinity
                                     std::uint16_t{0xffff}}) {
    CHECK(reads_only_its_own<OwnTiles>(poison));
    CHECK_FALSE(reads_only_its_own<WholePages>(poison));
  }
}

// ---- B-095: offsets

namespace {

/// The offset of an element as the library computes it, from addresses that are never read.
std::uint64_t own_offset(
  std::uint32_t page, std::int32_t head, Index row, std::int32_t d, bool value)
{
  using Large = kvcache::PagedHeads<kvcache::half, 128, 16>;
  std::uint32_t const layer_offset = 0;
  auto const id = static_cast<std::int32_t>(page);
  auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  kvcache::Footprint const footprint =
    Large::footprint({.layers = 1, .kv_heads = 32, .head_dim = 128, .page_tokens = 16});
  kvcache::BatchView<Large> const view{.segment = {.base = base,
                                                   .table = &id,
                                                   .layer_offset = &layer_offset,
                                                   .num_pages = 600'000,
                                                   .row_stride = 1,
                                                   .layer_stride = 0,
                                                   .seq_rows = 1,
                                                   .head_rows = 0,
                                                   .page_scale = footprint.tiles_per_page,
                                                   .head_scale = 1,
                                                   .unit_bytes = footprint.tile_bytes},
                                       .map = {},
                                       .counts = nullptr,
                                       .token_row = nullptr,
                                       .token_index = nullptr,
                                       .chunk_first = nullptr};
  auto const raw = view.tile(0, head, 0, 0, 16).raw();
  auto const* const start = value ? raw.v : raw.k;
  auto const at = reinterpret_cast<std::uintptr_t>(start + row * 128 + d);
  return (at - reinterpret_cast<std::uintptr_t>(base)) / sizeof(kvcache::half);
}

/// The fault: the same sum in 32 bits.
std::uint64_t narrow_offset(
  std::uint32_t page, std::int32_t head, Index row, std::int32_t d, bool value)
{
  auto const h = static_cast<std::uint32_t>(head);
  std::uint32_t const unit = page * 32U + h;
  return unit * 4096U + (value ? 2048U : 0U) + static_cast<std::uint32_t>(row) * 128U +
         static_cast<std::uint32_t>(d);
}

template <class Offset>
bool is_exact(Offset const& offset)
{
  bool exact = true;
  constexpr std::uint64_t page_elements = 2ULL * 32 * 16 * 128;
  std::uint64_t const limit = std::uint64_t{1} << 31;
  for (std::uint64_t const page : {std::uint64_t{1},
                                   limit / page_elements - 1,  // the last one below 2^31 elements
                                   limit / page_elements,
                                   2 * limit / page_elements - 1,  // and below 2^32
                                   2 * limit / page_elements,
                                   std::uint64_t{63'999},
                                   std::uint64_t{524'288}}) {
    for (std::int32_t const head : {0, 31}) {
      for (bool const value : {false, true}) {
        std::uint64_t const want = page * page_elements + static_cast<std::uint64_t>(head) * 4096 +
                                   (value ? 2048U : 0U) + 15 * 128 + 127;
        exact = exact && offset(static_cast<std::uint32_t>(page), head, 15, 127, value) == want;
      }
    }
  }
  return exact;
}

}  // namespace

TEST_CASE("B-095 a 32-bit offset", "[faults][geometry]")
{
  CHECK(is_exact(own_offset));
  CHECK_FALSE(is_exact(narrow_offset));
  // 64,000 pages x 32 heads x 16 rows x 128: the last element of K and V, and half of it for K alone.
  CHECK(own_offset(63'999, 31, 15, 127, true) == 2 * 4'194'304'000ULL - 1);
  // Units, pages x layers x heads, are what must fit 32 bits; a pool for which they do not is refused.
  kvcache::Footprint const footprint =
    kvcache::PagedHeads<kvcache::half>::footprint({256, 256, 8, 4});
  CHECK(footprint.page_units() == 1U << 16);
  CHECK(footprint.validate(65'534).why == kvcache::Why::ok);
  CHECK(footprint.validate(65'536).why == kvcache::Why::bad_config);
}

// ---- B-096: slots and entries that are no page

namespace {

struct Storing {
  std::vector<std::int32_t> table{1, 2};
  std::vector<Index> index{0};
  std::vector<std::uint32_t> row{0};
  std::uint32_t layer_offset[1] = {0};
  std::vector<std::byte> pool = std::vector<std::byte>(3 * 128 + 128, std::byte{0x11});

  using One = kvcache::PagedHeads<kvcache::half, 8, 4>;
  [[nodiscard]] kvcache::BatchView<One> view()
  {
    return {.segment = {.base = pool.data(),
                        .table = table.data(),
                        .layer_offset = layer_offset,
                        .num_pages = 3,
                        .row_stride = 2,
                        .layer_stride = 0,
                        .seq_rows = 1,
                        .head_rows = 0,
                        .page_scale = 1,
                        .head_scale = 1,
                        .unit_bytes = 128},
            .map = {},
            .counts = nullptr,
            .token_row = row.data(),
            .token_index = index.data(),
            .chunk_first = nullptr};
  }
};

void own_append(kvcache::BatchView<Storing::One> const& view, float const* k)
{
  view.append(kvcache::Solo{}, 0, 0, 0, k, k);
}
/// The fault: an entry or a slot is used as it is. It is kept inside the test's memory by its low bits.
void trusting_append(kvcache::BatchView<Storing::One> const& view, float const* k)
{
  Index const index = view.token_index[0];
  auto const page = static_cast<std::uint32_t>(view.segment.table[(index / 4) & 1]) % 4U;
  auto* const row =
    reinterpret_cast<kvcache::half*>(view.segment.base + page * 128U) + (index & 3) * 8;
  row[0] = kvcache::ElementTraits<kvcache::half>::from_float(k[0]);
}

template <class Append>
bool stores_only_in_pages(Append const& append)
{
  float const k[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  bool right = true;
  Storing fresh;
  for (Index const index : {-1, -5, std::numeric_limits<Index>::min()}) {  // padding
    Storing s;
    s.index[0] = index;
    s.row[0] = index == -1 ? kvcache::nil : 0;
    append(s.view(), k);
    right = right && s.pool == fresh.pool;
  }
  for (std::int32_t const entry : {-1,
                                   0,
                                   3,
                                   4,
                                   17,
                                   std::numeric_limits<std::int32_t>::max(),
                                   std::numeric_limits<std::int32_t>::min()}) {
    Storing s;
    s.table[1] = entry;
    s.index[0] = 5;
    append(s.view(), k);
    right = right && s.pool == fresh.pool;
  }
  Storing last;  // the last slot of the last page is a slot
  last.index[0] = 7;
  append(last.view(), k);
  for (std::size_t i = 0; i < last.pool.size(); ++i) {
    std::size_t const in_page = i - 2 * 128;
    bool const of_row = i >= 2 * 128 && in_page < 128 && in_page % 64 >= 48;
    right = right && (of_row || last.pool[i] == fresh.pool[i]);
  }
  return right && last.pool != fresh.pool;
}

}  // namespace

TEST_CASE("B-096 sentinel and out-of-range slots", "[faults][geometry]")
{
  CHECK(stores_only_in_pages(own_append));
  CHECK_FALSE(stores_only_in_pages(trusting_append));
  // A reader that meets such an entry reads the page of zeros.
  Storing s;
  s.table[0] = -1;
  std::memset(s.pool.data(), 0, 128);
  CHECK(s.view().tile(0, 0, 0, 0, 1).key(0, 0) == 0.0F);
  s.table[0] = 3;
  CHECK(s.view().tile(0, 0, 0, 0, 1).key(0, 0) == 0.0F);
}

// ---- B-101: impossible fills

namespace {

kvcache::ControlOptions sizes()
{
  kvcache::ControlOptions options{.pages = 4, .page_tokens = 4, .max_sequences = 2};
  options.max_step_tokens = 16;
  (void)options.complete();
  return options;
}

kvcache::Plan good_plan()
{
  kvcache::Plan plan;
  plan.tables = {{kvcache::RowId{1}, 0, 2, 0}};
  plan.ids = {PageId{3}, PageId{1}};
  plan.copies = {{PageId{2}, PageId{1}, 1}};
  plan.chunks = {{{1, 1}, kvcache::RowId{1}, 5, 2}};
  return plan;
}

/// Plans that no control plane makes, each wrong in one figure.
std::vector<kvcache::Plan> impossible_plans()
{
  std::vector<kvcache::Plan> plans;
  auto const with = [&](auto const& change) {
    plans.push_back(good_plan());
    change(plans.back());
  };
  for (Index const rows : {-1, 5, std::numeric_limits<Index>::max()}) {  // of a page of 4
    with([&](auto& p) { p.copies[0].rows = rows; });
  }
  for (Index const tokens : {0, -1, 17, std::numeric_limits<Index>::max()}) {
    with([&](auto& p) { p.chunks[0].tokens = tokens; });
  }
  for (Index const first : {-1, 15, 16, std::numeric_limits<Index>::max()}) {  // of 16 in all
    with([&](auto& p) { p.chunks[0].first_index = first; });
  }
  for (std::uint32_t const row : {2U, kvcache::nil}) {
    with([&](auto& p) { p.chunks[0].row = kvcache::RowId{row}; });
    with([&](auto& p) { p.tables[0].row = kvcache::RowId{row}; });
  }
  for (std::uint32_t const page : {0U, 5U, kvcache::nil}) {
    with([&](auto& p) { p.ids[1] = PageId{page}; });
    with([&](auto& p) { p.copies[0].source = PageId{page}; });
    with([&](auto& p) { p.copies[0].target = PageId{page}; });
  }
  for (std::uint32_t const count : {3U, kvcache::nil}) {  // more than ids has
    with([&](auto& p) { p.tables[0].count = count; });
  }
  for (std::uint32_t const first : {3U, kvcache::nil}) {  // past a table row of 4
    with([&](auto& p) { p.tables[0].first = first; });
  }
  with([](auto& p) { p.tables[0].ids_at = kvcache::nil; });
  with([](auto& p) { p.version += 1; });
  return plans;
}

/// The plans that `accepts` lets through, or a good one that it does not.
template <class Accepts>
std::size_t wrong_answers(Accepts const& accepts)
{
  std::size_t wrong = accepts(good_plan()) ? 0 : 1;
  for (kvcache::Plan const& plan : impossible_plans()) {
    wrong += accepts(plan) ? 1U : 0U;
  }
  return wrong;
}

}  // namespace

TEST_CASE("B-101 the fill of the last page is not checked", "[faults][geometry]")
{
  kvcache::Geometry const geometry{.layers = 1, .kv_heads = 1, .head_dim = 8, .page_tokens = 4};
  auto pool = kvcache::Pool<Layout>::create(geometry, sizes());
  REQUIRE(pool.has_value());
  auto const own = [&](kvcache::Plan const& plan) {
    return pool->apply(kvcache_test::in_order(plan)).has_value();
  };
  CHECK(wrong_answers(own) == 0);
  // The fault: pages and copies are looked at, fills are not.
  auto const lax = [](kvcache::Plan const& plan) {
    bool right = true;
    for (PageId const page : plan.ids) {
      right = right && page != kvcache::zero_page && page.value <= 4;
    }
    return right;
  };
  CHECK(wrong_answers(lax) > 0);

  // A refused plan leaves the pool as it was.
  REQUIRE(pool->apply(kvcache_test::in_order(good_plan())).has_value());
  auto const view = pool->view();
  for (kvcache::Plan const& plan : impossible_plans()) {
    auto const refused = pool->apply(kvcache_test::in_order(plan));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().field[0] != '\0');
    CHECK(view.segment.table[4] == 3);
    CHECK(view.segment.table[5] == 1);
    CHECK(view.num_tokens() == 2);
    CHECK(view.index(0) == 5);
  }
  // And no tile that the library makes is fuller than a page, or empty.
  for (Index rows = 1; rows <= 8; ++rows) {
    for (Index p = 0; p < view.tiles_of(rows); ++p) {
      Index const fill = view.tile(0, 0, 1, p, rows).rows();
      CHECK((fill >= 1 && fill <= 4));
    }
  }
}
