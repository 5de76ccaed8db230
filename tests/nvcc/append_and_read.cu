// SPDX-License-Identifier: Apache-2.0
// A kernel that stores rows and reads them back through the view, as an engine's own kernel does. Every machine with
// nvcc compiles it; on a machine with a GPU the program also runs and compares each element.

#include <kvcache/view.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr float position_weight = 4096.0F;  // above every sum of rows

/// One warp per (token, layer): appends the token's K and V, then sums `key * value` over all it may see, and adds
/// its position.
template <class Layout>
__global__ void append_and_read(
  kvcache::BatchView<Layout> kv, std::int32_t kv_heads, float const* k, float const* v, float* sums)
{
  std::int32_t const layer = static_cast<std::int32_t>(blockIdx.x);
  kvcache::Lanes const warp{static_cast<std::int32_t>(threadIdx.x), 32};
  std::int32_t const dim = kv.map.dim.get();
  for (kvcache::Index token = 0; token < kv.num_tokens(); ++token) {
    for (std::int32_t head = 0; head < kv_heads; ++head) {
      kv.append(warp, layer, head, token, k + token * dim, v + token * dim);
    }
  }
  __syncwarp();
  for (kvcache::Index token = 0; token < kv.num_tokens(); ++token) {
    for (std::int32_t head = 0; head < kv_heads; ++head) {
      float sum = 0.0F;
      for (auto const tile : kv.tiles(layer, head, token)) {
        auto const raw = tile.raw();
        for (kvcache::Index r = 0; r < tile.rows(); ++r) {
          bool const hidden = (tile.hidden(r) & 1) != 0;
          if (hidden == tile.sees(r) || hidden != (tile.bias(r) < 0.0F)) {
            sum += -1e9F;
          }
          for (std::int32_t d = warp.rank(); d < dim && !hidden; d += warp.size()) {
            using Traits = kvcache::ElementTraits<typename Layout::element>;
            std::size_t const at =
              static_cast<std::size_t>(r) * raw.row_elements + static_cast<std::size_t>(d);
            bool const same = Traits::to_float(raw.k[at]) == tile.key(r, d);
            sum += same ? tile.key(r, d) * tile.value(r, d) + tile.bias(r) : -1e9F;
          }
        }
      }
      for (int lane = 16; lane > 0; lane /= 2) {
        sum += __shfl_xor_sync(0xffffffffU, sum, lane);
      }
      if (warp.rank() == 0) {
        sums[(layer * kv.num_tokens() + token) * kv_heads + head] =
          sum + position_weight * static_cast<float>(kv.position(token));
      }
    }
  }
}

template <class T>
T* to_device(std::vector<T> const& values)
{
  void* out = nullptr;
  if (cudaMalloc(&out, values.size() * sizeof(T)) != cudaSuccess ||
      cudaMemcpy(out, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice) !=
        cudaSuccess) {
    return nullptr;
  }
  return static_cast<T*>(out);
}

/// Five tokens of one sequence in pages 3 and 1, as a plain chunk or as a tree. Small whole numbers are exact in
/// every element type.
template <class Layout>
bool try_layout(char const* name, bool tree)
{
  kvcache::Error error;
  kvcache::Geometry const g =
    Layout::complete({.layers = 2, .kv_heads = 3, .head_dim = 64, .page_tokens = 4}, error);
  kvcache::Footprint const footprint = Layout::footprint(g);
  constexpr std::uint32_t pages = 4;
  constexpr std::int32_t tokens = 5;

  std::vector<float> k(static_cast<std::size_t>(tokens * g.head_dim));
  std::vector<float> v(k.size());
  for (std::size_t i = 0; i < k.size(); ++i) {
    k[i] = static_cast<float>(i % 7);
    v[i] = static_cast<float>(i % 3) - 1.0F;
  }
  // A root, its children 1 and 2, and a child of each of these.
  std::vector<std::uint64_t> const masks{0b00001, 0b00011, 0b00101, 0b01011, 0b10101};
  constexpr float depth[tokens] = {0, 1, 1, 2, 2};
  std::vector<float> want(static_cast<std::size_t>(tokens));
  for (std::size_t token = 0; token < want.size(); ++token) {
    want[token] = position_weight * (tree ? depth[token] : static_cast<float>(token));
    for (std::size_t i = 0; i < k.size(); ++i) {
      std::size_t const row = i / static_cast<std::size_t>(g.head_dim);
      bool const sees = tree ? (masks[token] >> row & 1) != 0 : row <= token;
      want[token] += sees ? k[i] * v[i] : 0.0F;
    }
  }

  auto const heads = static_cast<std::uint32_t>(g.kv_heads);
  std::vector<std::byte> const pool(footprint.pool_bytes(pages));
  std::vector<float> sums(static_cast<std::size_t>(g.layers * tokens * g.kv_heads));
  kvcache::BatchView<Layout> const view{
    .segment = {.base = to_device(pool),
                .table = to_device(std::vector<std::int32_t>{3, 1}),
                .layer_offset =
                  to_device(std::vector<std::uint32_t>{0, footprint.layer_stride(pages)}),
                .num_pages = pages + 1,
                .row_stride = 2,
                .layer_stride = 0,
                .seq_rows = 1,
                .head_rows = 0,
                .page_scale = footprint.page_units(),
                .head_scale = footprint.head_units,
                .unit_bytes = footprint.unit_bytes},
    .map = Layout::map(g),
    .counts = to_device(std::vector<kvcache::Index>{tokens, 1}),
    .token_row = to_device(std::vector<std::uint32_t>(tokens, 0)),
    .token_index = to_device(std::vector<kvcache::Index>{0, 1, 2, 3, 4}),
    .chunk_first = to_device(std::vector<kvcache::Index>{0, tokens}),
    .token_mask = tree ? to_device(masks) : nullptr};
  float* const device_sums = to_device(sums);
  append_and_read<<<static_cast<unsigned>(g.layers), 32>>>(
    view, g.kv_heads, to_device(k), to_device(v), device_sums);
  cudaError_t const status =
    cudaMemcpy(sums.data(), device_sums, sums.size() * sizeof(float), cudaMemcpyDeviceToHost);
  if (status != cudaSuccess) {
    std::printf("%s: %s\n", name, cudaGetErrorString(status));
    return false;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::size_t const token = i / heads % static_cast<std::size_t>(tokens);
    if (sums[i] != want[token]) {
      std::printf("%s: sum %zu is %g, %g is right\n",
                  name,
                  i,
                  static_cast<double>(sums[i]),
                  static_cast<double>(want[token]));
      return false;
    }
  }
  std::printf("%s, %s: %zu sums are right\n", name, tree ? "tree" : "chain", sums.size());
  return true;
}

}  // namespace

int main()
{
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no GPU here: compiled, not run\n");
    return 77;
  }
  bool good = true;
  for (bool const tree : {false, true}) {
    good = try_layout<kvcache::PagedHeads<kvcache::half, 64, 4>>("f16, static", tree) && good;
    good = try_layout<kvcache::PagedHeads<kvcache::bfloat16>>("bf16, dynamic", tree) && good;
    good = try_layout<kvcache::PagedHeads<float, 64>>("f32, page_tokens dynamic", tree) && good;
    using TokensFirst =
      kvcache::PagedHeads<kvcache::half, kvcache::dynamic, 4, kvcache::RowOrder::nhd>;
    good = try_layout<TokensFirst>("f16, tokens first", tree) && good;
  }
  return good ? 0 : 1;
}
