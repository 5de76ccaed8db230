// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: the first argument of KVCache must be a layout

#include <kvcache/kvcache.hpp>

using Cache = kvcache::KVCache<float, kvcache::Policies<>>;
int const size = sizeof(Cache);
