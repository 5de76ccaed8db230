// SPDX-License-Identifier: Apache-2.0
// Random plans on a GPU's pool and on a host's: the same bytes of pages, tables and step arrays, also where a graph replays
// the launches. Where there is no GPU it says "skipped" and ends with 77.

#include <kvcache/cuda.cuh>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "support/random.hpp"
#include "support/random_plan.hpp"

namespace {

using kvcache::Plan;
using kvcache_test::Random;

/// One call of the test's own, which may wait: the device is under test, not this.
bool worked(cudaError_t code, char const* what)
{
  if (code != cudaSuccess) {
    std::printf("%s: %s\n", what, cudaGetErrorString(code));
  }
  return code == cudaSuccess;
}

template <class T>
std::vector<T> read(T const* from, std::size_t n, cudaStream_t stream)
{
  std::vector<T> out(n);
  bool const good =
    worked(cudaMemcpyAsync(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost, stream),
           "read") &&
    worked(cudaStreamSynchronize(stream), "read");
  return good ? out : std::vector<T>{};
}

template <class T>
bool same(char const* what, T const* host, T const* device, std::size_t n, cudaStream_t stream)
{
  std::vector<T> const got = read(device, n, stream);
  bool const equal = got.size() == n && std::memcmp(got.data(), host, n * sizeof(T)) == 0;
  if (!equal) {
    std::printf("%s differ\n", what);
  }
  return equal;
}

template <class Layout>
bool try_layout(char const* name,
                kvcache::Arrangement arrangement,
                std::uint64_t seed,
                kvcache::CudaDevice& gpu,
                cudaStream_t stream)
{
  kvcache::Error error;
  kvcache::Geometry const g = Layout::complete(
    {.layers = 5, .kv_heads = 3, .head_dim = 128, .page_tokens = 16, .arrangement = arrangement},
    error);
  auto const sizes = kvcache_test::pool_sizes(g, 40, 16, 200);
  auto host = kvcache::Pool<Layout>::create(g, sizes);
  auto device = kvcache::Pool<Layout>::create(g, sizes, {}, &gpu);
  kvcache::StreamRef const on{stream, 0};
  if (!host || !device || !device->reserve(on, std::size_t{1} << 18)) {
    std::printf("%s: %s\n", name, device ? "no pool" : device.error().message().text);
    return false;
  }
  kvcache_test::fill(*host, seed, 40);
  gpu.upload(
    device->page(kvcache::zero_page), host->page(kvcache::zero_page), host->arena_bytes(), on);
  // Entries that no plan has written are unspecified: the device's are those of the host.
  std::size_t const table = std::size_t{sizes.max_sequences} * sizes.row_pages();
  auto const* const entries = host->view().segment.table;
  auto* const target = const_cast<std::int32_t*>(device->view().segment.table);
  gpu.upload(reinterpret_cast<std::byte*>(target), entries, table * sizeof *entries, on);
  // The launches of each slot, captured once and replayed for every other plan.
  cudaGraphExec_t graphs[Plan::num_slots] = {};
  for (std::uint32_t slot = 0; slot < Plan::num_slots; ++slot) {
    cudaGraph_t graph = nullptr;
    bool const captured =
      worked(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    device->launch(slot, on);
    if (!captured || !worked(cudaStreamEndCapture(stream, &graph), "capture") ||
        !worked(cudaGraphInstantiate(&graphs[slot], graph, 0), "capture") ||
        !worked(cudaGraphDestroy(graph), "capture")) {
      return false;
    }
  }
  Random random(seed);
  bool good = true;
  for (int round = 0; round < 40 && good; ++round) {
    Plan plan = kvcache_test::random_plan(random, sizes);
    plan.step = kvcache::StepId{static_cast<std::uint64_t>(round) + 1};
    good = host->apply(plan).has_value();
    if (round % 2 == 0) {
      good = good && device->apply(plan, on).has_value();
    } else {
      good = good && device->upload(plan, on).has_value() &&
             worked(cudaGraphLaunch(graphs[plan.slot], stream), "replay");
    }
    auto const want = host->view(plan.slot);
    auto const got = device->view(plan.slot);
    auto const tokens = static_cast<std::size_t>(sizes.max_step_tokens);
    good = good && same("table entries", want.segment.table, got.segment.table, table, stream) &&
           same("counts", want.counts, got.counts, 2, stream) &&
           same("rows", want.token_row, got.token_row, tokens, stream) &&
           same("places", want.token_index, got.token_index, tokens, stream) &&
           same("masks", want.token_mask, got.token_mask, tokens, stream) &&
           same("lengths", want.lengths, got.lengths, sizes.max_sequences, stream) &&
           same("pages",
                host->page(kvcache::zero_page),
                device->page(kvcache::zero_page),
                host->arena_bytes(),
                stream);
    if (!good) {
      std::printf(
        "%s: round %d of seed %llu\n", name, round, static_cast<unsigned long long>(seed));
    }
  }
  for (cudaGraphExec_t const graph : graphs) {
    good = worked(cudaGraphExecDestroy(graph), "destroy") && good;
  }
  kvcache::Error const status = gpu.status();
  if (status.why != kvcache::Why::ok) {
    std::printf("%s: %s\n", name, status.message().text);
    return false;
  }
  std::printf("%s: %s\n", name, good ? "40 plans, the same bytes" : "WRONG");
  return good;
}

}  // namespace

int main()
{
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: there is no GPU here\n");
    return 77;
  }
  using kvcache::Arrangement;
  using kvcache::dynamic;
  using Heads = kvcache::PagedHeads<__half, 128, 16>;
  using Tokens = kvcache::PagedHeads<__nv_bfloat16, dynamic, dynamic, kvcache::RowOrder::nhd>;
  using Planes = kvcache::PagedHeads<float, 128, 16, kvcache::RowOrder::planes>;
  kvcache::CudaDevice gpu;
  cudaStream_t stream = nullptr;
  bool good = worked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  good = good && try_layout<Heads>("hnd, page first", Arrangement::page_first, 1, gpu, stream);
  good = good && try_layout<Heads>("hnd, layer first", Arrangement::layer_first, 2, gpu, stream);
  good = good && try_layout<Tokens>("nhd, page first", Arrangement::page_first, 3, gpu, stream);
  good =
    good && try_layout<Planes>("planes, layer first", Arrangement::layer_first, 4, gpu, stream);
  good = worked(cudaStreamDestroy(stream), "stream") && good;
  return good ? 0 : 1;
}
