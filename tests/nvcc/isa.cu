// SPDX-License-Identifier: Apache-2.0
// Every function of core/isa.hpp in one kernel, so that ptxas sees each instruction for each target. Where there is a GPU the
// program runs it and compares with what the twins give on the host: the same bits, but for tensor cores that add floats.

#include <kvcache/core/cuda_block.hpp>

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../support/random.hpp"
#include "every_instruction.hpp"

namespace {

using namespace kvcache_test;

__global__ void on_device(std::uint32_t const* in,
                          std::uint32_t* exact,
                          std::uint32_t* close,
                          std::uint32_t* counters)
{
  kvcache::CudaBlock block;
  auto& warp = block.warp();
  std::int32_t const lane = warp.lane();
  block.sync();
  block.sync(1, 32);
  every_instruction(
    warp,
    block.shared(),
    Lane{in + words_in * lane, exact + words_exact * lane, close + words_close * lane},
    counters);
  // What a kernel may ask of a block and a warp besides.
  if (block.index() == 1 && block.blocks() + block.threads() + block.thread() + warp.index() > 0) {
    double const wide = warp.shuffle(static_cast<double>(lane), 3) + warp.shuffle_up(1.0, 1);
    float const thin = warp.shuffle_down(2.0F, 1) + warp.shuffle_xor(2.0F, 1);
    exact[lane] =
      warp.ballot(lane > 3) + (warp.any(wide > 1.0) ? 1U : 0U) + (warp.all(thin > 1.0F) ? 1U : 0U);
  }
}

/// Copies there and, once `out` is filled, back.
class OnDevice {
 public:
  explicit OnDevice(std::vector<std::uint32_t>& words) : words_(words)
  {
    if (cudaMalloc(&data_, words.size() * 4) != cudaSuccess ||
        cudaMemcpy(data_, words.data(), words.size() * 4, cudaMemcpyHostToDevice) != cudaSuccess) {
      data_ = nullptr;
    }
  }
  [[nodiscard]] std::uint32_t* data() const { return static_cast<std::uint32_t*>(data_); }
  [[nodiscard]] bool fetch()
  {
    return cudaMemcpy(words_.data(), data_, words_.size() * 4, cudaMemcpyDeviceToHost) ==
           cudaSuccess;
  }

 private:
  std::vector<std::uint32_t>& words_;
  void* data_ = nullptr;
};

float as_float(std::uint32_t word)
{
  float x = 0.0F;
  std::memcpy(&x, &word, sizeof(x));
  return x;
}

bool compare(Results const& device, Results const& host)
{
  bool good = device.exact == host.exact && device.counters == host.counters;
  for (std::size_t i = 0; i < host.exact.size() && !good; ++i) {
    if (device.exact[i] != host.exact[i]) {
      std::printf("isa: lane %zu, result %zu is %08x, %08x is right\n",
                  i / words_exact,
                  i % words_exact,
                  device.exact[i],
                  host.exact[i]);
    }
  }
  for (std::size_t i = 0; i < host.close.size(); ++i) {
    float const is = as_float(device.close[i]);
    float const right = as_float(host.close[i]);
    // Sums of at most 32 products below 4.
    if (!(std::fabs(is - right) <= 132.0F * 0x1p-12F)) {
      std::printf("isa: lane %zu, sum %zu is %g, %g is right\n",
                  i / words_close,
                  i % words_close,
                  static_cast<double>(is),
                  static_cast<double>(right));
      good = false;
    }
  }
  return good;
}

}  // namespace

int main()
{
  kvcache_test::Random random(1);
  std::vector<std::uint32_t> in(32 * words_in);
  int devices = 0;
  bool const has_device = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  for (int round = 0; round < (has_device ? 100 : 1); ++round) {
    for (std::uint32_t& word : in) {
      word = static_cast<std::uint32_t>(random.next());
    }
    Results const host = on_host(in);
    if (!has_device) {
      std::printf("isa: no GPU here: compiled, and run by the twins alone\n");
      return 77;
    }
    Results device;
    OnDevice const words(in);
    OnDevice exact(device.exact);
    OnDevice close(device.close);
    OnDevice counters(device.counters);
    on_device<<<1, 32, shared_bytes>>>(words.data(), exact.data(), close.data(), counters.data());
    if (!exact.fetch() || !close.fetch() || !counters.fetch()) {
      std::printf("isa: %s\n", cudaGetErrorString(cudaGetLastError()));
      return 1;
    }
    if (!compare(device, host)) {
      return 1;
    }
  }
  std::printf("isa: the device agrees with the twins\n");
  return 0;
}
