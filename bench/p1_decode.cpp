// SPDX-License-Identifier: Apache-2.0
// P1: paged decode in bfloat16 against a plain read of the same bytes, two threads each.
//
// One sequence, pages of 16 tokens in random order, 32 query heads on 8 KV heads of 128.

#include <kvcache/host.hpp>

#include <memory>
#include <string>

#include "harness.hpp"
#include "paged_decode.hpp"

namespace kvcache_bench {

void attend_item(kvcache::BatchView<DecodeLayout<kvcache::bfloat16>> const& view,
                 kvcache::AttentionPlan const& plan,
                 std::int32_t layer,
                 kvcache::AttentionTensors const& io,
                 std::size_t item)
{
  kvcache::attend(view, plan, layer, io, item);
}
void attend_item(kvcache::BatchView<DecodeLayout<float>> const& view,
                 kvcache::AttentionPlan const& plan,
                 std::int32_t layer,
                 kvcache::AttentionTensors const& io,
                 std::size_t item)
{
  kvcache::attend(view, plan, layer, io, item);
}

}  // namespace kvcache_bench

namespace {

using namespace kvcache_bench;
constexpr int threads = 2;

bool add_decode(kvcache::Index rows, double goal)
{
  DecodeShape const shape{.rows = rows};
  std::string const set = name(kvcache::best_instruction_set());
  return add({.bar = "P1",
              .what = "bf16 decode " + std::to_string(rows / 1024) +
                      "k, page 16, random, 32:8x128, 2T " + set + " / plain read",
              .goal = goal,
              .threads = threads,
              .bytes = Decode<kvcache::bfloat16>::bytes(shape),
              .prepare = [shape]() -> std::function<Round()> {
                auto const team = std::make_shared<Team>(threads);
                auto const data = std::make_shared<Decode<kvcache::bfloat16>>(shape);
                auto const plan = std::make_shared<kvcache::AttentionPlan>(data->plan(threads));
                return [=]() -> Round {
                  double const reference = data->read(*team);
                  return {.reference = reference, .subject = data->attend(*team, *plan)};
                };
              }});
}

bool const registered =
  add_decode(4096, 0.60) && add_decode(16384, 0.60) && add_decode(65536, 0.55);

}  // namespace
