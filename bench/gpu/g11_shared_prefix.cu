// SPDX-License-Identifier: Apache-2.0
// G11: decode of 64 sequences that begin with the same 8k rows and have 256 of their own, bfloat16, 32 layers, 32 query heads on
// 8 KV heads of 128: the time where each goes alone over the time where shared rows are found and loaded once. Finding them is in
// the time. Both are checked against double precision.

#include <functional>
#include <memory>

#include "../harness.hpp"
#include "decode.cuh"

namespace {

using namespace kvcache_bench;

BatchShape requests()
{
  BatchShape shape = BatchShape::uniform(64, 8192 + 256);
  shape.shared = 8192;
  return shape;
}

bool const registered =
  add({.bar = "G11",
       .what = "64 requests over 8k common rows: alone / shared",
       .goal = 6.0,
       .higher_is_better = true,
       .wall = false,
       .prepare = []() -> std::function<Round()> {
         auto const alone = std::make_shared<DecodeStep>(requests());
         auto const shared = std::make_shared<DecodeStep>(requests(), 256);
         return
           [=]() -> Round { return {.reference = alone->seconds(), .subject = shared->seconds()}; };
       }});

}  // namespace
