// SPDX-License-Identifier: Apache-2.0
// examples/06_*: each address of our view, over random models, is the address that FlashInfer, FlashAttention-3, vLLM and
// TensorRT-LLM compute from their own structs; and what their arithmetic cannot express is refused with a reason.

#include <kvcache/interop/tables.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "06_flash_attention.hpp"
#include "06_flashinfer.hpp"
#include "06_same_rows.hpp"
#include "06_tensorrt_llm.hpp"
#include "06_vllm.hpp"
#include "support/catch.hpp"
#include "support/engine_types.hpp"
#include "support/hand_plan.hpp"
#include "support/random.hpp"

using namespace kvcache_test;
using kvcache::Arrangement;
using kvcache::Geometry;
using kvcache::Index;
using kvcache::PageCount;
using kvcache::RowOrder;

namespace {

constexpr std::uint64_t first_seed = 20261130;

/// A random model and a pool for it, in which table row `row` has every page in random order and all rows full but the last.
template <class Layout>
struct Subject {
  Geometry geometry;
  PageCount pages;
  std::uint32_t row;
  Index length;
  kvcache::Pool<Layout> pool;

  static Geometry random_geometry(Random& random)
  {
    constexpr std::int32_t dims[] = {16, 32, 64, 80, 128};
    constexpr std::int32_t tokens[] = {1, 2, 3, 8, 16, 17, 32, 64};
    return {
      .layers = static_cast<std::int32_t>(random.between(1, 5)),
      .kv_heads = static_cast<std::int32_t>(random.between(1, 6)),
      .head_dim = dims[random.below(5)],
      .page_tokens = tokens[random.below(8)],
      .arrangement = random.below(2) == 0 ? Arrangement::page_first : Arrangement::layer_first};
  }
  explicit Subject(Random& random)
      : geometry(random_geometry(random)),
        pages(random.between(1, 9)),
        row(random.below(4)),
        length(static_cast<Index>(pages) * geometry.page_tokens -
               static_cast<Index>(random.below(static_cast<std::uint32_t>(geometry.page_tokens)))),
        pool(std::move(kvcache::Pool<Layout>::create(
                         geometry, pool_sizes(geometry, pages, 4, static_cast<Index>(pages) * 64))
                         .value()))
  {
    kvcache::Plan plan;
    plan.tables.push_back({kvcache::RowId{row}, 0, pages, 0});
    for (std::uint32_t page = 1; page <= pages; ++page) {
      plan.ids.push_back(kvcache::PageId{page});
      std::swap(plan.ids.back(), plan.ids[random.below(page)]);
    }
    add_chunk(plan, row, 0, length);
    (void)pool.apply(kvcache_test::in_order(plan)).value();
  }
  [[nodiscard]] kvcache::LayerTensor<typename Layout::element> tensor(std::int32_t layer) const
  {
    return kvcache::layer_tensor<Layout>(geometry, pages, pool.page(kvcache::zero_page), layer);
  }
};

/// Every table of the step's one chunk, and one empty line more.
struct Tables {
  std::size_t width;
  std::vector<std::int32_t> indptr = std::vector<std::int32_t>(3);
  std::vector<std::int32_t> indices, blocks, offsets;
  std::vector<std::int32_t> last_page_len = std::vector<std::int32_t>(2);
  std::vector<std::int32_t> seq_lens = std::vector<std::int32_t>(2);
  std::vector<std::int64_t> slots;
  kvcache::PageLists lists;
  kvcache::BlockTable table;

  explicit Tables(kvcache::TableSource const& source)
      : width(static_cast<std::size_t>(source.most_pages())),
        indices(2 * width),
        blocks(2 * width),
        offsets(4 * width),
        slots(static_cast<std::size_t>(source.counts[0])),
        lists{.indptr = indptr, .indices = indices, .last_page_len = last_page_len},
        table{.pages = blocks, .seq_lens = seq_lens, .width = width}
  {
    REQUIRE(kvcache::fill(lists, source));
    REQUIRE(kvcache::fill(table, source));
    REQUIRE(kvcache::fill_slots(std::span(slots), source));
  }
};

/// What TensorRT-LLM's arithmetic needs, from the layout's names alone.
bool has_planes(Geometry const& g, RowOrder order, std::size_t element)
{
  bool const heads_follow =
    order == RowOrder::planes || g.kv_heads == 1 || (order == RowOrder::nhd && g.page_tokens == 1);
  bool const rows_follow = order != RowOrder::nhd || g.kv_heads == 1 || g.page_tokens == 1;
  auto const plane = static_cast<std::size_t>(g.kv_heads * g.page_tokens * g.head_dim) * element;
  std::size_t const layer = (2 * plane + 127) / 128 * 128;
  std::size_t const page =
    g.arrangement == Arrangement::page_first ? layer * static_cast<std::size_t>(g.layers) : layer;
  bool const power = (g.page_tokens & (g.page_tokens - 1)) == 0;
  return heads_follow && rows_follow && power && page % plane == 0;
}

template <class T>
using Row = RowAddress<T>;

}  // namespace

TEMPLATE_TEST_CASE(
  "examples/06: every row is where other engines' structs have it",
  "[examples][interop]",
  (kvcache::PagedHeads<kvcache::half>),
  (kvcache::PagedHeads<engine::Fp8, kvcache::dynamic, kvcache::dynamic>),
  (kvcache::PagedHeads<float, kvcache::dynamic, kvcache::dynamic, RowOrder::planes>),
  (kvcache::PagedHeads<kvcache::bfloat16, kvcache::dynamic, kvcache::dynamic, RowOrder::planes>),
  (kvcache::PagedHeads<kvcache::half, kvcache::dynamic, kvcache::dynamic, RowOrder::nhd>),
  (kvcache::PagedHeads<engine::Fp8, kvcache::dynamic, kvcache::dynamic, RowOrder::nhd>))
{
  using Layout = TestType;
  using T = typename Layout::element;
  int blocks_taken = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + 60; ++seed) {
    Random random(seed);
    Subject<Layout> const s(random);
    Geometry const& g = s.geometry;
    CAPTURE(seed, g.layers, g.kv_heads, g.head_dim, g.page_tokens, static_cast<int>(g.arrangement));
    auto const kv = s.pool.view();
    auto const source = kvcache::TableSource::of(kv);
    Tables tables(source);
    Index const b = g.page_tokens;
    for (std::int32_t layer = 0; layer < g.layers; ++layer) {
      auto const tensor = s.tensor(layer);
      auto const elsewhere = [&](auto const& theirs) {
        return rows_elsewhere(kv, layer, g.kv_heads, s.row, s.length, theirs);
      };
      auto const page_of = [&](Index row) {
        return std::int64_t{tables.blocks[static_cast<std::size_t>(row / b)]};
      };

      auto const flashinfer = flashinfer::paged_kv(tensor, tables.lists);
      REQUIRE(flashinfer);
      CHECK(flashinfer->batch_size == 2);
      CHECK(elsewhere([&](std::int32_t head, Index row) {
              auto const p = static_cast<std::size_t>(tables.indptr[0] + row / b);
              auto const h = static_cast<std::size_t>(head);
              auto const r = static_cast<std::size_t>(row % b);
              return Row<T>{flashinfer->k_at(p, h, r), flashinfer->v_at(p, h, r)};
            }) == 0);

      auto const fa3 = flash_attention::fwd_params(tensor, tables.table);
      REQUIRE(fa3.has_value() == (sizeof(T) <= 2));
      if (fa3) {
        CHECK(fa3->seqused_k[0] == s.length);
        CHECK(fa3->num_pages == static_cast<int>(s.pages) + 1);
        CHECK(elsewhere([&](std::int32_t head, Index row) {
                std::int64_t const at = flash_attention::offset_of(*fa3, 0, head, row);
                return Row<T>{static_cast<T*>(fa3->k_ptr) + at, static_cast<T*>(fa3->v_ptr) + at};
              }) == 0);
        // The view's own table, where lines are table rows.
        auto native = *fa3;
        native.page_table = const_cast<std::int32_t*>(kv.segment.table);
        native.page_table_batch_stride = kv.segment.row_stride;
        CHECK(elsewhere([&](std::int32_t head, Index row) {
                std::int64_t const at = flash_attention::offset_of(native, s.row, head, row);
                return Row<T>{static_cast<T*>(fa3->k_ptr) + at, static_cast<T*>(fa3->v_ptr) + at};
              }) == 0);
      }

      auto const kv_first = vllm::kv_then_pages(tensor);
      auto const pages_first = vllm::pages_then_kv(tensor);
      CHECK(elsewhere([&](std::int32_t head, Index row) {
              return Row<T>{kv_first.at({0, page_of(row), row % b, head, 0}),
                            kv_first.at({1, page_of(row), row % b, head, 0})};
            }) == 0);
      CHECK(elsewhere([&](std::int32_t head, Index row) {
              return Row<T>{pages_first.at({page_of(row), 0, row % b, head, 0}),
                            pages_first.at({page_of(row), 1, row % b, head, 0})};
            }) == 0);
      CHECK(elsewhere([&](std::int32_t head, Index row) {  // where the step's own tokens are stored
              std::int64_t const at =
                vllm::slot_offset(tensor, tables.slots[static_cast<std::size_t>(row)], head);
              return Row<T>{tensor.k + at, tensor.v + at};
            }) == 0);
      auto const cross = vllm::cross_layer(s.tensor(0), g.layers);
      REQUIRE(cross.has_value() == (g.arrangement == Arrangement::page_first || g.layers == 1));
      if (cross) {
        CHECK(elsewhere([&](std::int32_t head, Index row) {
                return Row<T>{cross->at({page_of(row), layer, 0, row % b, head, 0}),
                              cross->at({page_of(row), layer, 1, row % b, head, 0})};
              }) == 0);
      }

      auto const planes = kvcache::plane_numbers(tensor);
      REQUIRE(planes.has_value() == has_planes(g, Layout::order, sizeof(T)));
      if (planes) {
        ++blocks_taken;
        kvcache::OffsetTable const out{.offsets = tables.offsets,
                                       .seq_lens = tables.seq_lens,
                                       .width = tables.width,
                                       .planes = *planes};
        REQUIRE(kvcache::fill(out, source));
        auto const trt = tensorrt_llm::block_array(tensor, out);
        REQUIRE(trt);
        CHECK(elsewhere([&](std::int32_t head, Index row) {
                std::int32_t const at = trt->local_index(row, head, g.head_dim);
                return Row<T>{reinterpret_cast<T const*>(trt->block_ptr(0, row, 0)) + at,
                              reinterpret_cast<T const*>(trt->block_ptr(0, row, 1)) + at};
              }) == 0);
        CHECK(tables.seq_lens[1] == 0);  // the empty line reads the page of zeros
        CHECK(trt->block_ptr(1, 0, 0) == reinterpret_cast<std::byte*>(tensor.k));
        CHECK(trt->block_ptr(1, 0, 1) == reinterpret_cast<std::byte*>(tensor.v));
      }
    }
  }
  CHECK(blocks_taken > 10);
}

namespace {

using Planes =
  kvcache::PagedHeads<kvcache::half, kvcache::dynamic, kvcache::dynamic, RowOrder::planes>;
using Tokens =
  kvcache::PagedHeads<kvcache::half, kvcache::dynamic, kvcache::dynamic, RowOrder::nhd>;
using Tiles = kvcache::PagedHeads<kvcache::half>;

/// A layer of a pool that is never made: addresses are numbers.
template <class Layout>
kvcache::LayerTensor<typename Layout::element> tensor_of(Geometry const& g, PageCount pages = 8)
{
  alignas(128) static std::byte origin[128];
  return kvcache::layer_tensor<Layout>(g, pages, origin, 0);
}

template <class T>
std::string refusal(kvcache::Result<T> const& result)
{
  return result ? std::string() : std::string(result.error().message().text);
}

}  // namespace

TEST_CASE("examples/06: what TensorRT-LLM's planes cannot be is refused by name",
          "[examples][interop]")
{
  Geometry g{.layers = 2, .kv_heads = 4, .head_dim = 64, .page_tokens = 16};
  CHECK(refusal(kvcache::plane_numbers(tensor_of<Planes>(g))).empty());
  CHECK(refusal(kvcache::plane_numbers(tensor_of<Tiles>(g))) ==
        "head stride = 2048 (bad configuration): must be page_tokens * head_dim elements, as in "
        "RowOrder::planes: 1024");
  CHECK(refusal(kvcache::plane_numbers(tensor_of<Tokens>(g))) ==
        "token stride = 256 (bad configuration): must be head_dim elements, as in "
        "RowOrder::planes: 64");
  g.page_tokens = 12;
  CHECK(refusal(kvcache::plane_numbers(tensor_of<Planes>(g))) ==
        "page_tokens = 12 (bad configuration): must be a power of two for TensorRT-LLM");
  g = {.layers = 1, .kv_heads = 3, .head_dim = 8, .page_tokens = 1};  // 96 bytes, padded to 128
  CHECK(refusal(kvcache::plane_numbers(tensor_of<Planes>(g))) ==
        "page stride = 64 (bad configuration): must be a multiple of kv_heads * page_tokens * "
        "head_dim elements, without padding: 24");
  g = {.layers = 4096, .kv_heads = 1, .head_dim = 8, .page_tokens = 8};
  CHECK(refusal(kvcache::plane_numbers(tensor_of<Planes>(g, 262143))).empty());
  CHECK(refusal(kvcache::plane_numbers(tensor_of<Planes>(g, 262144))) ==
        "pages = 262144 (bad configuration): must leave offsets of 31 bits, so at most 262143");
  kvcache::LayerTensor<std::uint64_t> const huge{
    .k = nullptr,
    .v = nullptr,
    .pages = 2,
    .page_tokens = 256,
    .kv_heads = 4096,
    .head_dim = 256,
    .page_stride = std::int64_t{2} * 4096 * 256 * 256,
    .token_stride = 256,
    .head_stride = 256 * 256,
    .layer_stride = std::int64_t{2} * 4096 * 256 * 256};
  CHECK(refusal(kvcache::plane_numbers(huge)) ==
        "bytes of a plane = 2147483648 (bad configuration): must fit an int32, so at most "
        "2147483647");
}

TEST_CASE("examples/06: what the other forms cannot hold is refused by name", "[examples][interop]")
{
  Geometry g{.layers = 4096, .kv_heads = 32, .head_dim = 256, .page_tokens = 128};
  CHECK(refusal(flashinfer::paged_kv(tensor_of<Tiles>(g), {})) ==
        "stride in elements = 8589934592 (bad configuration): FlashInfer keeps strides in 32 bits "
        "(layers first has smaller ones), up to 4294967295");
  g.arrangement = Arrangement::layer_first;
  CHECK(refusal(flashinfer::paged_kv(tensor_of<Tiles>(g), {})).empty());
  CHECK(refusal(vllm::cross_layer(tensor_of<Tiles>(g), 4096)) ==
        "layer stride = 18874368 (bad configuration): must leave a page of all layers in one "
        "extent: Arrangement::page_first");

  CHECK(
    refusal(
      flash_attention::fwd_params(tensor_of<kvcache::PagedHeads<float>>(
                                    {.layers = 1, .kv_heads = 1, .head_dim = 8, .page_tokens = 4}),
                                  {})) ==
    "element bytes = 4 (bad configuration): FlashAttention-3 reads f16, bf16 or fp8, so at most 2");

  g = {.layers = 2, .kv_heads = 4, .head_dim = 64, .page_tokens = 24};
  CHECK(
    vllm::check_pages(tensor_of<Tokens>(g)).message().text ==
    std::string("page_tokens = 24 (bad configuration): vLLM's FlashAttention and Triton backends "
                "need a multiple of 16"));
  g.page_tokens = 16;
  CHECK(vllm::check_pages(tensor_of<Tokens>(g)).why == kvcache::Why::ok);

  std::string const pages_first = vllm::check_contiguous(tensor_of<Tokens>(g)).message().text;
  CHECK_THAT(pages_first,
             StartsWith("page stride = 16384 (bad configuration): must be 2 * page_tokens"));
  CHECK_THAT(
    std::string(vllm::check_contiguous(tensor_of<Planes>(g)).message().text),
    StartsWith(
      "head stride = 1024 (bad configuration): must be head_dim, as in RowOrder::nhd: 64"));
  g.arrangement = Arrangement::layer_first;
  CHECK(vllm::check_contiguous(tensor_of<Tokens>(g)).why == kvcache::Why::ok);
  g.kv_heads = 1;
  CHECK(vllm::check_contiguous(tensor_of<Planes>(g)).why == kvcache::Why::ok);
  g.page_tokens = 1;  // one row a page, in 256 bytes
  CHECK(vllm::check_contiguous(tensor_of<Tokens>(g)).why == kvcache::Why::ok);
  g.head_dim = 8;  // 32 bytes, padded to 128
  CHECK_THAT(std::string(vllm::check_contiguous(tensor_of<Tokens>(g)).message().text),
             StartsWith("page stride = 64 "));
}

TEST_CASE("OffsetTable: memory that is too small is refused, and nothing is written", "[interop]")
{
  Random random(first_seed);
  Subject<Planes> const s(random);
  auto const source = kvcache::TableSource::of(s.pool.view());
  std::size_t const least = kvcache::least_width(source, 1);
  std::vector<std::int32_t> offsets(2 * least, -7);
  std::vector<std::int32_t> lens(1, -7);
  using kvcache::fill;
  CHECK_THAT(refusal(fill({.offsets = offsets, .seq_lens = lens, .width = least - 1}, source)),
             StartsWith("width = " + std::to_string(least - 1)));
  CHECK_THAT(
    refusal(
      fill({.offsets = std::span(offsets).first(2 * least - 1), .seq_lens = lens, .width = least},
           source)),
    StartsWith("offsets = " + std::to_string(2 * least - 1)));
  CHECK_THAT(refusal(fill({.offsets = offsets, .seq_lens = {}, .width = least}, source)),
             StartsWith("seq_lens = 0"));
  CHECK(std::count(offsets.begin(), offsets.end(), -7) == static_cast<std::ptrdiff_t>(2 * least));
  CHECK(lens[0] == -7);
}
