// SPDX-License-Identifier: Apache-2.0
// expect: deleted

#include <kvcache/kvcache.hpp>

using View = kvcache::BatchView<kvcache::PagedHeads<float, 64, 16>>;
View view();

float sum()
{
  float out = 0.0F;
  for (auto tile : view().tiles(0, 0, 0)) {  // the view would be gone when the loop starts
    out += tile.key(0, 0);
  }
  return out;
}
