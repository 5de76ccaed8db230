// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: PagedHeads needs a head_dim that is a multiple of 8

#include <kvcache/layout/paged_heads.hpp>

using Layout = kvcache::PagedHeads<float, 12, 16>;
Layout layout;
