// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: PagedHeads needs page_tokens from 1 to 256

#include <kvcache/layout/paged_heads.hpp>

using Layout = kvcache::PagedHeads<float, 64, 512>;
Layout layout;
