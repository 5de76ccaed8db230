// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Stands before the library's file of this name: the host's device as it is, but launches run the kernels of a GPU on
/// the executor. Tests of the pool and the cache that know nothing of it are tests of the kernels then.

#define HostDevice PlainHostDevice
#include "../../../../../include/kvcache/device/host_device.hpp"
#undef HostDevice

#include "support/simt_device.hpp"

namespace kvcache::inline v0_1 {

class HostDevice final : public kvcache_test::SimtDeviceOver<PlainHostDevice> {};

}  // namespace kvcache::inline v0_1
