// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: PagedHeads needs a head_dim that is a multiple of 16 where an element is one byte

#include <kvcache/view.hpp>

struct Byte {
  unsigned char bits;
};
template <>
struct kvcache::ElementTraits<Byte> {
  static float to_float(Byte x) { return x.bits; }
  static Byte from_float(float x) { return {static_cast<unsigned char>(x)}; }
};
int const size = sizeof(kvcache::PagedHeads<Byte, 72, 16>);
