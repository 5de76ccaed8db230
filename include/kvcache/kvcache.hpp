// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The library for a host program: the facade and all that it stands on. Plain C++20; kernels include
/// `view.hpp` alone, vectorised host attention is in `host.hpp`.

#include <kvcache/cache/kv_cache.hpp>
#include <kvcache/view.hpp>
