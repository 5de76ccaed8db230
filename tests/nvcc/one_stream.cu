// SPDX-License-Identifier: Apache-2.0
// A step that is planned on one stream and attended on another: refused before anything is launched, so no GPU is needed. Where
// there is none, launches fail and what they return is not looked at.

#include <kvcache/attention/device.cuh>
#include <kvcache/layout/paged_heads.hpp>

#include <cstdio>

int main()
{
  using Layout = kvcache::PagedHeads<__half, 64, 16>;
  kvcache::BatchView<Layout> const view{};
  kvcache::DeviceWork work{};
  work.limits.head_dim = 1;  // no kernel, so that nothing runs where there is a GPU
  int places[2] = {};
  auto const stream = [&](int i) { return reinterpret_cast<cudaStream_t>(&places[i]); };
  kvcache::DeviceTensors<__half, __half> const io{};
  (void)kvcache::attend(view, work, 0, io, stream(1));  // nobody planned
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    work.plan_on(stream(0));  // as a plan does; the places are no streams to a GPU
  } else {
    (void)kvcache::plan_attention(view, work, stream(0));
  }
  (void)kvcache::attend(view, work, 0, io, stream(0));
  try {
    (void)kvcache::attend(view, work, 0, io, stream(1));
  } catch (kvcache::LogicError const& error) {
    std::printf("nvcc: a work on two streams is refused: %s\n", error.what());
    return 0;
  }
  std::printf("nvcc: a work on two streams is not refused\n");
  return 1;
}
