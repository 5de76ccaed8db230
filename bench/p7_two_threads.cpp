// SPDX-License-Identifier: Apache-2.0
// P7: the second thread. 1.85 times the speed of one, or 0.65 of what two threads read where memory is full before that.

#include <kvcache/host.hpp>

#include <algorithm>
#include <memory>

#include "harness.hpp"
#include "paged_decode.hpp"

namespace {

using namespace kvcache_bench;
using Data = Decode<kvcache::bfloat16>;

bool const registered =
  add({.bar = "P7",
       .what = "bf16 decode 16k, 2T: speed / (1.85 x of 1T, or 0.65 of a 2T read if less)",
       .goal = 1.0,
       .threads = 2,
       .prepare = []() -> std::function<Round()> {
         auto const one = std::make_shared<Team>(1);
         auto const two = std::make_shared<Team>(2);
         auto const data = std::make_shared<Data>(DecodeShape{.rows = 16384});
         auto const alone = std::make_shared<kvcache::AttentionPlan>(data->plan(1));
         auto const together = std::make_shared<kvcache::AttentionPlan>(data->plan(2));
         return [=]() -> Round {
           double const single = data->attend(*one, *alone);
           double const read = data->read(*two);
           return {.reference = std::max(single / 1.85, read / 0.65),
                   .subject = data->attend(*two, *together)};
         };
       }});

}  // namespace
