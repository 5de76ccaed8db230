// SPDX-License-Identifier: Apache-2.0
// The kernel of 01_your_kernel.hpp, the same text as in 01_plug_into_your_kernel.cpp, in CUDA: a step's rows are stored
// by a warp each, then attended with one thread a query head. nvcc -std=c++20 -arch=native -Iinclude
// examples/01_plug_into_your_kernel.cu; where there is no GPU it says "skipped" and ends with 77.

#include <kvcache/cuda.cuh>
#include <kvcache/kvcache.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "01_textbook.hpp"
#include "01_your_kernel.hpp"

/// Stores one row of K and V. **Shape** k, v `(tokens, kv_heads, head_dim)`; a block a token and head, 32 threads.
template <class Layout>
__global__ void append_all(kvcache::BatchView<Layout> kv,
                           std::int32_t layer,
                           float const* k,
                           float const* v)
{
  kvcache::Index const token = static_cast<kvcache::Index>(blockIdx.x);
  auto const head = static_cast<std::int32_t>(blockIdx.y);
  auto const kv_heads = static_cast<std::int32_t>(gridDim.y);
  std::size_t const at =
    static_cast<std::size_t>(token * kv_heads + head) * static_cast<std::size_t>(kv.map.dim.get());
  kvcache::Lanes const warp{static_cast<std::int32_t>(threadIdx.x), 32};
  kv.append(warp, layer, head, token, k + at, v + at);
}

/// **Shape** q, out `(tokens, heads, head_dim)`; a block a token, a thread a query head.
template <class Layout>
__global__ void attend_all(kvcache::BatchView<Layout> kv,
                           std::int32_t layer,
                           std::int32_t heads,
                           std::int32_t kv_heads,
                           float const* q,
                           float* out)
{
  kvcache::Index const token = static_cast<kvcache::Index>(blockIdx.x);
  auto const head = static_cast<std::int32_t>(threadIdx.x);
  std::size_t const at =
    static_cast<std::size_t>(token * heads + head) * static_cast<std::size_t>(kv.map.dim.get());
  attend(kv, layer, head / (heads / kv_heads), token, q + at, out + at);
}

/// One layer of a step whose view lies in the device's memory. Nothing in the grid depends on the step: `tokens` is the
/// most that a step may have, and padding writes nothing and gets zeros, so a captured graph replays with every step.
template <class Layout>
void layer_of_step(cudaStream_t stream,
                   kvcache::BatchView<Layout> const& kv,
                   std::int32_t layer,
                   unsigned tokens,
                   unsigned heads,
                   unsigned kv_heads,
                   float const* q,
                   float const* k,
                   float const* v,
                   float* out)
{
  append_all<<<dim3(tokens, kv_heads), 32, 0, stream>>>(kv, layer, k, v);
  attend_all<<<tokens, heads, 0, stream>>>(
    kv, layer, static_cast<std::int32_t>(heads), static_cast<std::int32_t>(kv_heads), q, out);
}

namespace {

using namespace example_01;

void check(cudaError_t status, char const* what)
{
  if (status != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
  }
}

/// Floats of the device, written by the host before a step and read after it.
class DeviceFloats {
 public:
  explicit DeviceFloats(std::size_t n) : host(n)
  {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(float)), "memory");
  }
  DeviceFloats(DeviceFloats const&) = delete;
  DeviceFloats& operator=(DeviceFloats const&) = delete;
  ~DeviceFloats() { cudaFree(data_); }
  [[nodiscard]] float* data() const { return data_; }
  void send(cudaStream_t stream) const
  {
    check(cudaMemcpyAsync(
            data_, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice, stream),
          "copy");
  }
  void fetch(cudaStream_t stream)
  {
    check(cudaMemcpyAsync(
            host.data(), data_, host.size() * sizeof(float), cudaMemcpyDeviceToHost, stream),
          "copy");
  }

  std::vector<float> host;

 private:
  float* data_ = nullptr;
};

/// What a model's projections would leave for one layer of `tokens` tokens from `first` on. **Shape** `(tokens, n, dim)`.
void fill(DeviceFloats& to, char what, int layer, int n, Index first, Index tokens)
{
  auto at = to.host.begin();
  for (Index i = first; i < first + tokens; ++i) {
    for (int head = 0; head < n; ++head) {
      Vector const from = row(what, layer, head, i);
      at = std::copy(from.begin(), from.end(), at);
    }
  }
}

}  // namespace

int main()
{
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: there is no GPU here\n");
    return 77;
  }
  constexpr Index most = 32;  // tokens of a step
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  kvcache::CudaDevice gpu;
  auto cache =
    kvcache::KVCache<Layout>::create({.layers = layers, .kv_heads = kv_heads},
                                     {.pages = 32, .max_step_tokens = most, .device = &gpu});
  std::vector<kvcache::Token> const prompt(45, 1);
  auto sequence = cache->open({.tokens = prompt});
  DeviceFloats q(most * heads * dim);
  DeviceFloats out(most * heads * dim);
  DeviceFloats k(most * kv_heads * dim);
  DeviceFloats v(most * kv_heads * dim);
  double worst = 0.0;
  for (Index const tokens : {20, 25, 1, 1, 1}) {  // two chunks of prefill, then decode
    Index const first = sequence->length();
    std::vector<kvcache::Token> const chunk(static_cast<std::size_t>(tokens), 1);
    auto step = cache->prepare({{*sequence, chunk}}, {.handle = stream});
    for (int layer = 0; layer < layers; ++layer) {
      fill(q, 'q', layer, heads, first, tokens);
      fill(k, 'k', layer, kv_heads, first, tokens);
      fill(v, 'v', layer, kv_heads, first, tokens);
      q.send(stream);
      k.send(stream);
      v.send(stream);
      layer_of_step(stream,
                    step->view(),
                    layer,
                    most,
                    heads,
                    kv_heads,
                    q.data(),
                    k.data(),
                    v.data(),
                    out.data());
      out.fetch(stream);
      check(cudaStreamSynchronize(stream), "step");
      for (Index i = 0; i < tokens; ++i) {
        for (int head = 0; head < heads; ++head) {
          std::vector<double> const want = plain_attention(layer, head, first + i);
          std::size_t const at = static_cast<std::size_t>((i * heads + head) * dim);
          for (std::size_t d = 0; d < want.size(); ++d) {
            worst = std::max(worst, std::fabs(static_cast<double>(out.host[at + d]) - want[d]));
          }
        }
      }
    }
    step->commit();
    std::printf("%2d tokens more, %d rows\n", tokens, sequence->length());
  }
  std::printf("largest difference to plain attention: %.1e\n", worst);
  check(cudaStreamDestroy(stream), "stream");
  return worst < 1e-5 ? 0 : 1;
}
