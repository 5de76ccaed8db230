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
// F is at most 32 a cycle with AVX-512 and 16 with AVX2; B is half of the column `reference` GB/s. The bound is twice as far for
// f32 as for bf16, and four times as far with one query head as with four: six times is the goal where it leaves room for that,
// the others guard what there is. The last line measures how near to the bound f32 comes with AVX-512: the time that its products
// alone take in registers, on the same threads, over the time of all of it. So the bound here and now is the first line's value
// over the last one's: far above six. What lies between is the memory that even shared rows come from, a load for each product,
// sums kept in the order of plain decode, and the softmax.

#include <kvcache/host.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "harness.hpp"
#include "paged_decode.hpp"

namespace {

using namespace kvcache_bench;
constexpr int threads = 2;

DecodeShape shape_of(std::int32_t kv_heads, std::int32_t group)
{
  return {.rows = 8192 + 64, .sequences = 16, .shared = 8192, .kv_heads = kv_heads, .group = group};
}

template <class T>
bool add_cascade(char const* type, std::int32_t kv_heads, std::int32_t group, double goal)
{
  DecodeShape const shape = shape_of(kv_heads, group);
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

#if defined(__x86_64__)
/// `n` products of floats in registers, each added to a sum: what a core can do at most.
__attribute__((target("avx512f"))) float multiply(std::size_t n)
{
  __m512 sum[12] = {};
  __m512 const a = _mm512_set1_ps(0.5F);
  for (std::size_t i = 0; i < n; i += 12 * 16) {
#pragma GCC unroll 12
    for (__m512& x : sum) {
      x = _mm512_fmadd_ps(x, a, a);
      asm volatile("" : "+v"(x));
    }
  }
  return _mm512_cvtss_f32(sum[0]);
}
bool add_limit()
{
  return add({.bar = "cascade",
              .what = "f32 16 x (8k common + 64), 8:8x128, 2T: products alone / shared",
              .goal = 0.2,
              .threads = threads,
              .prepare = []() -> std::function<Round()> {
                if (kvcache::best_instruction_set() != kvcache::InstructionSet::avx512) {
                  throw NotBuilt();
                }
                DecodeShape const shape = shape_of(8, 1);
                auto const team = std::make_shared<Team>(threads);
                auto const data = std::make_shared<Decode<float>>(shape);
                auto const shared =
                  std::make_shared<kvcache::AttentionPlan>(data->plan(threads, 512));
                auto const products =
                  static_cast<std::size_t>(Decode<float>::bytes(shape) / sizeof(float));
                return [=]() -> Round {
                  double const limit = team->run([&](int) { keep(multiply(products / threads)); });
                  return {.reference = limit, .subject = data->attend(*team, *shared)};
                };
              }});
}
#else
bool add_limit()
{
  return true;
}
#endif

bool const registered = add_cascade<float>("f32", 8, 1, 6.0) &&
                        add_cascade<kvcache::bfloat16>("bf16", 8, 1, 2.2) &&
                        add_cascade<kvcache::bfloat16>("bf16", 8, 4, 1.1) && add_limit();

}  // namespace
