// SPDX-License-Identifier: Apache-2.0
// Our pool in the hands of kernels that came with other caches, without a copy: which order of rows and which
// arrangement each of them takes, and what it would need where it does not. Each header 06_*.hpp has one engine's form.
// Read first: 06_same_rows.hpp, include/kvcache/interop/tables.hpp.

#include <kvcache/interop/tables.hpp>
#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "06_flash_attention.hpp"
#include "06_flashinfer.hpp"
#include "06_same_rows.hpp"
#include "06_tensorrt_llm.hpp"
#include "06_vllm.hpp"

namespace {

using kvcache::Index;
using Element = kvcache::half;
using Row = RowAddress<Element>;

constexpr kvcache::PageCount pages = 12;
constexpr Index length = 45;
constexpr std::int32_t layer = 1;
constexpr std::int32_t kv_heads = 2;

bool all_the_same = true;

/// One line of the table that this program prints.
void report(char const* who, kvcache::Error const& refusal, std::size_t elsewhere)
{
  bool const taken = refusal.why == kvcache::Why::ok;
  std::printf("  %-16s %s\n", who, taken ? "reads it in place" : refusal.message().text);
  all_the_same = all_the_same && elsewhere == 0;
}

template <kvcache::RowOrder Order>
void try_layout(char const* name, kvcache::Arrangement arrangement)
{
  using Layout = kvcache::PagedHeads<Element, 64, 16, Order>;
  kvcache::Geometry const geometry{.layers = 3,
                                   .kv_heads = kv_heads,
                                   .head_dim = 64,
                                   .page_tokens = 16,
                                   .arrangement = arrangement};
  std::printf("%s\n", name);
  auto cache = kvcache::KVCache<Layout>::create(geometry, {.pages = pages});
  std::vector<kvcache::Token> const prompt(length, 7);
  auto sequence = cache->open({.tokens = prompt});
  auto step = cache->prepare({{*sequence, prompt}});
  auto const kv = step->view();
  auto const tensor = kvcache::layer_tensor<Layout>(geometry, pages, kv.segment.base, layer);
  auto const source = kvcache::TableSource::of(kv);
  auto const width = static_cast<std::size_t>(source.most_pages());
  auto const compare = [&](auto const& theirs) {
    return rows_elsewhere(kv, layer, kv_heads, kv.chunk(0).row, length, theirs);
  };

  std::vector<std::int32_t> indptr(2), indices(width), last(1), lens(1), block(width),
    offset(2 * width);
  kvcache::PageLists const lists{.indptr = indptr, .indices = indices, .last_page_len = last};
  kvcache::BlockTable const table{.pages = block, .seq_lens = lens, .width = width};
  all_the_same = all_the_same && kvcache::fill(lists, source) && kvcache::fill(table, source);

  auto const flashinfer = flashinfer::paged_kv(tensor, lists);
  report("FlashInfer", {}, compare([&](std::int32_t head, Index row) {
           auto const h = static_cast<std::size_t>(head);
           auto const r = static_cast<std::size_t>(row);
           return Row{flashinfer->k_at(r / 16, h, r % 16), flashinfer->v_at(r / 16, h, r % 16)};
         }));
  auto const fa3 = flash_attention::fwd_params(tensor, table);
  report("FlashAttention-3", {}, compare([&](std::int32_t head, Index row) {
           std::int64_t const at = flash_attention::offset_of(*fa3, 0, head, row);
           return Row{static_cast<Element*>(fa3->k_ptr) + at,
                      static_cast<Element*>(fa3->v_ptr) + at};
         }));
  auto const per_layer = vllm::pages_then_kv(tensor);
  report("vLLM, strides", vllm::check_pages(tensor), compare([&](std::int32_t head, Index row) {
           std::int64_t const page = block[static_cast<std::size_t>(row / 16)];
           return Row{per_layer.at({page, 0, row % 16, head, 0}),
                      per_layer.at({page, 1, row % 16, head, 0})};
         }));
  report("vLLM, contiguous", vllm::check_contiguous(tensor), 0);
  auto const cross =
    vllm::cross_layer(kvcache::layer_tensor<Layout>(geometry, pages, kv.segment.base, 0), 3);
  report("vLLM, all layers", cross ? kvcache::Error{} : cross.error(), 0);

  auto const planes = kvcache::plane_numbers(tensor);
  if (!planes) {
    report("TensorRT-LLM", planes.error(), 0);
    return;
  }
  kvcache::OffsetTable const offsets{
    .offsets = offset, .seq_lens = lens, .width = width, .planes = *planes};
  all_the_same = all_the_same && kvcache::fill(offsets, source);
  auto const blocks = tensorrt_llm::block_array(tensor, offsets);
  report("TensorRT-LLM", {}, compare([&](std::int32_t head, Index row) {
           std::int32_t const at = blocks->local_index(row, head, 64);
           return Row{reinterpret_cast<Element const*>(blocks->block_ptr(0, row, 0)) + at,
                      reinterpret_cast<Element const*>(blocks->block_ptr(0, row, 1)) + at};
         }));
}

}  // namespace

int main()
{
  using kvcache::Arrangement;
  using kvcache::RowOrder;
  try_layout<RowOrder::hnd>("hnd, pages first", Arrangement::page_first);
  try_layout<RowOrder::planes>("planes, pages first", Arrangement::page_first);
  try_layout<RowOrder::nhd>("nhd, pages first", Arrangement::page_first);
  try_layout<RowOrder::nhd>("nhd, layers first", Arrangement::layer_first);
  std::printf("every row is where the view has it: %s\n", all_the_same ? "yes" : "NO");
  return all_the_same ? 0 : 1;
}
