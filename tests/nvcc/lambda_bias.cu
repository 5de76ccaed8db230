// SPDX-License-Identifier: Apache-2.0
// A bias that is a lambda, for nvcc --extended-lambda: a `__device__` one, whose call host code does not see, and one of both sides.
// With -DKVCACHE_NO_NUMBER it gives no number, and our sentence must say so.

#include <kvcache/attention/device.cuh>
#include <kvcache/layout/paged_heads.hpp>

namespace {

using Layout = kvcache::PagedHeads<__half, 64, 16>;
using Tensors = kvcache::DeviceTensors<__half, __half>;
#if defined(KVCACHE_NO_NUMBER)
struct Nothing {};
#endif

}  // namespace

kvcache::Result<kvcache::Done> alibi(kvcache::BatchView<Layout> const& view,
                                     kvcache::DeviceWork const& work,
                                     Tensors const& io,
                                     [[maybe_unused]] float const* slopes,
                                     cudaStream_t stream)
{
#if defined(KVCACHE_NO_NUMBER)
  auto const bias = [] __device__(kvcache::ScoreAt) { return Nothing{}; };
#else
  auto const bias = [=] __device__(kvcache::ScoreAt at) {
    return slopes[at.query_head] * static_cast<float>(at.row - view.index(at.token));
  };
#endif
  static_assert(kvcache::DeviceScoreBias<decltype(bias)>);
  return kvcache::attend(view, work, 0, io, stream, bias);
}

kvcache::Result<kvcache::Done> recent(kvcache::BatchView<Layout> const& view,
                                      kvcache::DeviceWork const& work,
                                      Tensors const& io,
                                      cudaStream_t stream)
{
  return kvcache::attend(view, work, 0, io, stream, [] __host__ __device__(kvcache::ScoreAt at) {
    return at.row > 100 ? -__builtin_huge_valf() : 0.0F;
  });
}
