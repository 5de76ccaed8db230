// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: the device attention multiplies on tensor cores

#include <kvcache/attention/device.hpp>
#include <kvcache/layout/paged_heads.hpp>

template struct kvcache::AttendKernel<kvcache::PagedHeads<float>, 128, float, float>;
