// SPDX-License-Identifier: Apache-2.0
// The device's attention on a GPU against the host's reference, as launches and as replays of a graph that captured them for
// a larger step. Where there is no GPU it says "skipped" and ends with 77.

#include <kvcache/attention/device.cuh>
#include <kvcache/attention/reference.hpp>
#include <kvcache/layout/paged_heads.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "support/draft_tree.hpp"
#include "support/paged_pool.hpp"

namespace {

using kvcache::Index;
using kvcache_test::PagedPool;
using kvcache_test::Poison;
using kvcache_test::StepChunk;

/// Memory of the device on one stream, filled from the host. The test itself may wait: what is under test is not this.
class Memory {
 public:
  explicit Memory(cudaStream_t stream) : stream_(stream) {}
  Memory(Memory const&) = delete;
  Memory& operator=(Memory const&) = delete;
  ~Memory()
  {
    for (void* const block : blocks_) {
      (void)cudaFreeAsync(block, stream_);
    }
  }

  std::byte* take(std::size_t bytes)
  {
    void* block = nullptr;
    good_ = good_ && cudaMallocAsync(&block, bytes + 256, stream_) == cudaSuccess;
    blocks_.push_back(block);
    return static_cast<std::byte*>(block);
  }
  template <class T>
  T* copy(T const* from, std::size_t n)
  {
    auto* const to = reinterpret_cast<T*>(take(n * sizeof(T)));
    good_ = good_ && cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, stream_) ==
                       cudaSuccess;
    return to;
  }
  template <class T>
  std::vector<T> read(T const* from, std::size_t n)
  {
    std::vector<T> out(n);
    good_ = good_ &&
            cudaMemcpyAsync(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost, stream_) ==
              cudaSuccess &&
            cudaStreamSynchronize(stream_) == cudaSuccess;
    return out;
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  cudaStream_t stream_;
  std::vector<void*> blocks_{};
  bool good_ = true;
};

template <class T, int HeadDim>
bool try_batch(char const* name,
               kvcache::AttentionShape shape,
               std::int32_t page_tokens,
               Index shared_rows,
               std::uint64_t seed,
               cudaStream_t stream)
{
  using Layout = kvcache::PagedHeads<T, HeadDim>;
  using Traits = kvcache::ElementTraits<T>;
  std::mt19937_64 random(seed);
  std::vector<Index> lengths{5000, 0, 300, 90, 1};
  std::vector<StepChunk> chunks{{0, 1}, {1, 0}, {2, 40}, {3, 9}, {4, 1}, {-1, 2}};
  for (int s = 5; s < 40; ++s) {
    lengths.push_back(static_cast<Index>(1 + random() % 700));
    chunks.push_back({s, 1});
  }
  kvcache::Geometry const geometry{
    .layers = 1, .kv_heads = shape.kv_heads, .head_dim = HeadDim, .page_tokens = page_tokens};
  PagedPool<Layout> pool(geometry, lengths, chunks, Poison::nan, seed);
  for (std::size_t s = 6; s < 40; ++s) {  // prefixes of any length, forks of forks among them
    std::size_t const of = s - 1 - random() % 2;
    auto const pages = static_cast<std::uint32_t>(std::min(lengths[s], lengths[of]) / page_tokens);
    pool.share(s, of, pages - pages / 4 * static_cast<std::uint32_t>(random() % 3));
  }
  pool.plant(3, kvcache_test::random_tree(random, 9, false));

  auto const host = pool.view();
  auto const tokens = static_cast<std::size_t>(pool.num_tokens());
  std::size_t const rows = tokens * static_cast<std::size_t>(shape.query_heads);
  Memory memory(stream);
  auto view = host;
  view.segment.base = memory.copy(
    host.segment.base, Layout::footprint(geometry).pool_bytes(host.segment.num_pages - 1));
  view.segment.table = memory.copy(host.segment.table, lengths.size() * host.segment.row_stride);
  view.segment.layer_offset = memory.copy(host.segment.layer_offset, 1);
  Index const none[2] = {0, 0};
  Index* const counts = memory.copy(none, 2);  // as they stand when the graph is captured
  view.counts = counts;
  view.token_row = memory.copy(host.token_row, tokens);
  view.token_index = memory.copy(host.token_index, tokens);
  view.token_mask = memory.copy(host.token_mask, tokens);
  view.chunk_first = memory.copy(host.chunk_first, chunks.size() + 1);

  std::vector<T> q(rows * HeadDim);
  std::vector<float> exact(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    exact[i] = static_cast<float>(static_cast<int>(random() % 257) - 128) / 64.0F;
    q[i] = Traits::from_float(exact[i]);
  }
  auto const blocks = kvcache::attention_blocks<Layout, T, float>(HeadDim);
  if (!blocks.has_value()) {
    bool const small = blocks.error().why == kvcache::Why::bad_config;  // no room for the head size
    std::printf("%s%s: %s\n", small ? "skipped: " : "", name, blocks.error().message().text);
    return small;
  }
  kvcache::DeviceLimits const limits{.tokens = pool.num_tokens() + 20,
                                     .chunks = static_cast<Index>(chunks.size()) + 5,
                                     .head_dim = HeadDim,
                                     .blocks = blocks.value(),
                                     .shared_rows = shared_rows};
  auto const work = kvcache::DeviceWork::make(
    memory.take(kvcache::DeviceWork::bytes(shape, limits)), shape, limits);
  if (!work.has_value()) {
    std::printf("%s: %s\n", name, work.error().message().text);
    return false;
  }
  std::vector<float> const unset(q.size(), 77.0F);
  float* const out = memory.copy(unset.data(), unset.size());
  float* const lse = memory.copy(unset.data(), rows);
  kvcache::DeviceTensors<T, float> const io{memory.copy(q.data(), q.size()), out, lse};

  cudaGraph_t graph{};
  cudaGraphExec_t replay{};
  bool good = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess &&
              kvcache::plan_attention(view, work.value(), stream).has_value() &&
              kvcache::attend(view, work.value(), 0, io, stream).has_value();
  good = cudaStreamEndCapture(stream, &graph) == cudaSuccess && good &&
         cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess;
  good = good &&
         cudaMemcpyAsync(counts, host.counts, 2 * sizeof(Index), cudaMemcpyHostToDevice, stream) ==
           cudaSuccess;
  std::vector<float> first;
  for (int i = 0; i < 2 && good; ++i) {
    good = cudaGraphLaunch(replay, stream) == cudaSuccess;
    std::vector<float> const got = memory.read(out, q.size());
    good = good && memory.good() && (first.empty() || got == first);
    first = got;
  }
  std::vector<float> const logs = memory.read(lse, rows);
  (void)cudaGraphExecDestroy(replay);
  (void)cudaGraphDestroy(graph);
  if (!good || !memory.good()) {
    std::printf("%s: a call failed, or two replays differ: %s\n",
                name,
                cudaGetErrorString(cudaGetLastError()));
    return false;
  }
  float worst = 0.0F;
  std::vector<float> want(HeadDim);
  for (std::size_t row = 0; row < rows; ++row) {
    auto const heads = static_cast<std::size_t>(shape.query_heads);
    float const log = kvcache::reference_attention(kvcache::Solo{},
                                                   host,
                                                   shape,
                                                   0,
                                                   static_cast<std::int32_t>(row % heads),
                                                   static_cast<Index>(row / heads),
                                                   exact.data() + row * HeadDim,
                                                   want.data());
    for (std::size_t d = 0; d < HeadDim; ++d) {
      float const error = std::fabs(want[d] - first[row * HeadDim + d]);
      worst = error <= worst ? worst : error;  // NaN is worse than anything
    }
    float const error = log == logs[row] ? 0.0F : std::fabs(log - logs[row]);
    worst = error <= worst ? worst : error;
  }
  std::printf(
    "attention, %s, page %d, shared rows %d: %zu rows of output on %d blocks, worst error %.1e\n",
    name,
    page_tokens,
    shared_rows,
    rows,
    blocks.value(),
    static_cast<double>(worst));
  return worst <= 1e-3F;
}

}  // namespace

int main()
{
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: there is no GPU here\n");
    return 77;
  }
  cudaStream_t stream{};
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    return 1;
  }
  bool good = true;
  for (std::int32_t const page_tokens : {1, 16, 64}) {
    auto const seed = static_cast<std::uint64_t>(20261130 + page_tokens);
    for (Index const shared_rows : {0, 64}) {
      good = try_batch<kvcache::half, 64>("f16, head_dim 64",
                                          {.query_heads = 14, .kv_heads = 2},
                                          page_tokens,
                                          shared_rows,
                                          seed,
                                          stream) &&
             good;
      good =
        try_batch<kvcache::bfloat16, 128>("bf16, head_dim 128",
                                          {.query_heads = 16, .kv_heads = 4, .soft_cap = 30.0F},
                                          page_tokens,
                                          shared_rows,
                                          seed,
                                          stream) &&
        good;
      good = try_batch<kvcache::bfloat16, 256>("bf16, head_dim 256",
                                               {.query_heads = 8, .kv_heads = 1, .window = 1000},
                                               page_tokens,
                                               shared_rows,
                                               seed,
                                               stream) &&
             good;
    }
  }
  (void)cudaStreamDestroy(stream);
  return good ? 0 : 1;
}
