// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: PagedHeads needs an element type of 1, 2, 4 or 8 plain bytes for which kvcache::ElementTraits has

#include <kvcache/view.hpp>

struct Mine {
  unsigned short bits;
};
int const size = sizeof(kvcache::PagedHeads<Mine, 64, 16>);
