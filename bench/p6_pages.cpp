// SPDX-License-Identifier: Apache-2.0
// P6: what random pages and pages of one token cost.
//
// Random pages against the same pages one after the other; and pages of one token, 4 KiB of a layer, against pages of 64 in
// order: that may cost little more than what a plain read loses that jumps in the same fragments.

#include <kvcache/host.hpp>

#include <memory>
#include <string>

#include "harness.hpp"
#include "paged_decode.hpp"

namespace {

using namespace kvcache_bench;
using Data = Decode<kvcache::bfloat16>;
constexpr int threads = 2;
constexpr kvcache::Index rows = 16384;

bool add_random(std::int32_t page_tokens)
{
  DecodeShape const shape{.rows = rows, .page_tokens = page_tokens};
  return add(
    {.bar = "P6",
     .what = "bf16 decode 16k, 2T: random pages of " + std::to_string(page_tokens) + " / in order",
     .goal = 1.05,
     .higher_is_better = false,
     .threads = threads,
     .bytes = Data::bytes(shape),
     .prepare = [shape]() -> std::function<Round()> {
       auto const team = std::make_shared<Team>(threads);
       DecodeShape in_order = shape;
       in_order.random = false;
       auto const straight = std::make_shared<Data>(in_order);
       auto const jumping = std::make_shared<Data>(shape);
       auto const plan = std::make_shared<kvcache::AttentionPlan>(jumping->plan(threads));
       auto const other = std::make_shared<kvcache::AttentionPlan>(straight->plan(threads));
       return [=]() -> Round {
         double const reference = straight->attend(*team, *other);
         return {.reference = reference, .subject = jumping->attend(*team, *plan)};
       };
     }});
}

bool add_single()
{
  DecodeShape const shape{.rows = rows, .page_tokens = 1};
  return add({.bar = "P6",
              .what = "bf16 decode 16k, 2T: pages of 1 / (64 in order x what a read loses)",
              .goal = 1.05,
              .higher_is_better = false,
              .threads = threads,
              .prepare = [shape]() -> std::function<Round()> {
                auto const team = std::make_shared<Team>(threads);
                DecodeShape in_order = shape;
                in_order.page_tokens = 64;
                in_order.random = false;
                auto const straight = std::make_shared<Data>(in_order);
                auto const jumping = std::make_shared<Data>(shape);
                auto const plan = std::make_shared<kvcache::AttentionPlan>(jumping->plan(threads));
                auto const other =
                  std::make_shared<kvcache::AttentionPlan>(straight->plan(threads));
                return [=]() -> Round {
                  double const lost =
                    jumping->read_fragments(*team) / straight->read_fragments(*team);
                  double const reference = straight->attend(*team, *other);
                  return {.reference = reference * lost, .subject = jumping->attend(*team, *plan)};
                };
              }});
}

bool const registered = add_random(16) && add_random(64) && add_single();

}  // namespace
