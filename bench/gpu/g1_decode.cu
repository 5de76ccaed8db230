// SPDX-License-Identifier: Apache-2.0
// G1 to G4: paged decode in bfloat16 over 32 layers (64 of the smallest batch), 32 query heads on 8 KV heads of 128.
//
//   G1  64 sequences of 8k rows, pages of 16: the rate of a copy inside the device, for the K and V that are read
//   G2  one sequence of 32k rows, and of 4k: microseconds a layer; eight of 32k: the rate of a copy
//   G3  pages of 64, of 16 and of 1 in random order against pages of 256 in order
//   G4  lengths far apart against equal ones, bytes a second

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../harness.hpp"
#include "decode.cuh"

namespace {

using namespace kvcache_bench;
using Index = kvcache::Index;
using Prepare = std::function<std::function<Round()>()>;

bool add_bar(char const* bar, std::string what, double goal, bool higher, Prepare prepare)
{
  return add({.bar = bar,
              .what = std::move(what),
              .goal = goal,
              .higher_is_better = higher,
              .wall = false,
              .prepare = std::move(prepare)});
}

/// Bytes a second of K and V against those of a copy.
Prepare against_copy(BatchShape const& shape)
{
  return [shape]() -> std::function<Round()> {
    auto const rate = std::make_shared<CopyRate>();
    auto const step = std::make_shared<DecodeStep>(shape);
    return [=]() -> Round {
      return {.reference = rate->seconds_for(step->batch().bytes()), .subject = step->seconds()};
    };
  };
}
/// Microseconds a layer.
Prepare absolute(BatchShape const& shape)
{
  return [shape]() -> std::function<Round()> {
    auto const step = std::make_shared<DecodeStep>(shape);
    return [=]() -> Round {
      return {.reference = 1e-6, .subject = step->seconds() / step->batch().shape().layers};
    };
  };
}
/// Time a byte of one step against that of another.
Prepare against(BatchShape const& reference, BatchShape const& subject)
{
  return [=]() -> std::function<Round()> {
    auto const one = std::make_shared<DecodeStep>(reference);
    auto const two = std::make_shared<DecodeStep>(subject);
    return [=]() -> Round {
      return {.reference = one->seconds() / one->batch().bytes(),
              .subject = two->seconds() / two->batch().bytes()};
    };
  };
}

BatchShape with(BatchShape shape,
                std::int32_t layers,
                std::int32_t page_tokens = 16,
                bool random = true)
{
  shape.layers = layers;
  shape.page_tokens = page_tokens;
  shape.random = random;
  return shape;
}

std::vector<Index> log_normal()
{
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> length(8.0, 1.0);
  std::vector<Index> rows(64);
  for (Index& each : rows) {
    each = static_cast<Index>(std::fmin(std::fmax(length(random), 64.0), 60000.0));
  }
  return rows;
}

BatchShape const many = BatchShape::uniform(64, 8192);
BatchShape const few = BatchShape::uniform(16, 8192);
BatchShape const in_order = with(few, 32, 256, false);

bool const registered =
  add_bar("G1", "64 x 8k rows, page 16 / device copy", 0.85, true, against_copy(many)) &&
  add_bar("G2", "1 x 32k rows, us a layer", 45.0, false, absolute(BatchShape::uniform(1, 32768))) &&
  add_bar("G2",
          "1 x 4k rows, us a layer",
          15.0,
          false,
          absolute(with(BatchShape::uniform(1, 4096), 64))) &&
  add_bar(
    "G2", "8 x 32k rows / device copy", 0.90, true, against_copy(BatchShape::uniform(8, 32768))) &&
  add_bar("G3",
          "16 x 8k: page 64, random / 256, in order",
          1.04,
          false,
          against(in_order, with(few, 32, 64))) &&
  add_bar("G3", "16 x 8k: page 16, random / 256, in order", 1.04, false, against(in_order, few)) &&
  add_bar("G3",
          "16 x 8k: page 1, random / 256, in order",
          1.12,
          false,
          against(in_order, with(few, 32, 1))) &&
  add_bar("G4",
          "rows 4641, 45118, 1730, 1696 / 16 x 8k, bytes a second",
          0.70,
          true,
          against(few, {.rows = {4641, 45118, 1730, 1696}})) &&
  add_bar("G4",
          "64 log-normal lengths / 16 x 8k, bytes a second",
          0.70,
          true,
          against(few, {.rows = log_normal()}));

}  // namespace
