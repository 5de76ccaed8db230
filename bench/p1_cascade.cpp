// SPDX-License-Identifier: Apache-2.0
// cascade: sixteen sequences over a common prefix of 8,192 rows, each with 64 rows of its own, against the same plan with
// nothing shared.
//
// What sharing saves is loads; the products stay, and bound the gain. A query row takes 256 products a KV row of a head of
// 128, which a core does F of a second in float. Unshared, the `group` query heads of a sequence need 256 elements of e bytes
// from memory, of which a core reads B bytes a second. So
//
//   unshared / shared  <=  F e / (B group)
//
// F is 32 a cycle with AVX-512 and 16 with AVX2; B is half of the column `reference` GB/s. The bound is twice as far for f32 as
// for bf16, and four times as far with one query head as with four: six times is the goal where it leaves room for that, the
// others guard what there is.

#include <kvcache/host.hpp>

#include <memory>
#include <string>

#include "harness.hpp"
#include "paged_decode.hpp"

namespace {

using namespace kvcache_bench;
constexpr int threads = 2;

template <class T>
bool add_cascade(char const* type, std::int32_t kv_heads, std::int32_t group, double goal)
{
  DecodeShape const shape{
    .rows = 8192 + 64, .sequences = 16, .shared = 8192, .kv_heads = kv_heads, .group = group};
  return add(
    {.bar = "cascade",
     .what = std::string(type) + " 16 x (8k common + 64), " + std::to_string(kv_heads * group) +
             ":" + std::to_string(kv_heads) + "x128, 2T: shared / unshared",
     .goal = goal,
     .threads = threads,
     .bytes = Decode<T>::bytes(shape),
     .prepare = [shape]() -> std::function<Round()> {
       auto const team = std::make_shared<Team>(threads);
       auto const data = std::make_shared<Decode<T>>(shape);
       auto const apart = std::make_shared<kvcache::AttentionPlan>(data->plan(threads));
       auto const shared = std::make_shared<kvcache::AttentionPlan>(data->plan(threads, 512));
       return [=]() -> Round {
         double const reference = data->attend(*team, *apart);
         return {.reference = reference, .subject = data->attend(*team, *shared)};
       };
     }});
}

bool const registered = add_cascade<float>("f32", 8, 1, 6.0) &&
                        add_cascade<kvcache::bfloat16>("bf16", 8, 1, 2.2) &&
                        add_cascade<kvcache::bfloat16>("bf16", 8, 4, 1.1);

}  // namespace
