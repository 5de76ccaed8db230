// SPDX-License-Identifier: Apache-2.0
// expect: compiles

#include <kvcache/layout/paged_heads.hpp>

using Layout = kvcache::PagedHeads<float, 16, 16>;
Layout layout;
