// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Attention in double precision over the model rows of a `PagedPool`, and ways to run ours beside it.

#include <kvcache/host.hpp>
#include <kvcache/layout/paged_heads.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/engine_types.hpp"
#include "support/paged_pool.hpp"

namespace kvcache_test {

/// How a test runs the kernel. `wide` is the portable vector at the width of AVX-512.
enum class Path { portable, wide, avx2, avx512 };

constexpr char const* name(Path path)
{
  return path == Path::portable ? "portable"
         : path == Path::wide   ? "portable16"
         : path == Path::avx2   ? "avx2"
                                : "avx512";
}

/// The paths that this processor has.
inline std::vector<Path> paths()
{
  std::vector<Path> out{Path::portable, Path::wide};
  if (kvcache::supported(kvcache::InstructionSet::avx2)) {
    out.push_back(Path::avx2);
  }
  if (kvcache::supported(kvcache::InstructionSet::avx512)) {
    out.push_back(Path::avx512);
  }
  return out;
}

constexpr kvcache::InstructionSet set_of(Path path)
{
  return path == Path::avx2     ? kvcache::InstructionSet::avx2
         : path == Path::avx512 ? kvcache::InstructionSet::avx512
                                : kvcache::InstructionSet::portable;
}

struct Attended {
  std::vector<float> out;
  std::vector<float> lse;
};

/// Query rows whose elements are exact in bfloat16 and half.
inline std::vector<float> random_queries(std::size_t count, std::uint64_t seed)
{
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> uniform(-128, 128);
  std::vector<float> q(count);
  std::generate(q.begin(), q.end(), [&] { return static_cast<float>(uniform(random)) / 64.0F; });
  return q;
}

template <class Layout>
std::size_t query_floats(PagedPool<Layout> const& pool, kvcache::AttentionShape const& shape)
{
  return static_cast<std::size_t>(pool.num_tokens()) * static_cast<std::size_t>(shape.query_heads) *
         static_cast<std::size_t>(pool.geometry().head_dim);
}

/// Runs a plan; `order` (may be empty) is the order of its items.
template <class Layout>
Attended run_plan(PagedPool<Layout>& pool,
                  kvcache::AttentionPlan const& plan,
                  std::int32_t layer,
                  std::vector<float> const& q,
                  Path path,
                  std::vector<std::size_t> order = {})
{
  constexpr float unset = 77.0F;
  Attended result{std::vector<float>(q.size(), unset),
                  std::vector<float>(q.size() / static_cast<std::size_t>(plan.head_dim()), unset)};
  std::vector<float> scratch(plan.scratch_floats(), std::numeric_limits<float>::quiet_NaN());
  kvcache::AttentionTensors const io{
    .q = q.data(), .out = result.out.data(), .lse = result.lse.data(), .scratch = scratch.data()};
  kvcache::BatchView<Layout> const view = pool.view();
  if (order.empty()) {
    order.resize(plan.num_items());
    std::iota(order.begin(), order.end(), std::size_t{0});
  }
  for (std::size_t const i : order) {
    if (path == Path::wide) {
      using Wide = kvcache::detail::portable::Kernel<kvcache::detail::portable::Vector<16>>;
      Wide::run(view, plan, layer, io, plan.item(i), kvcache::NoBias{});
    } else {
      kvcache::attend(view, plan, layer, io, i);
    }
  }
  for (std::size_t i = 0; i < plan.num_merges(); ++i) {
    kvcache::merge(plan, io, i);
  }
  return result;
}

// Sixteen kernels take a minute to compile, so the tests share them: instances_*.cpp.
extern template Attended run_plan(PagedPool<kvcache::PagedHeads<float>>&,
                                  kvcache::AttentionPlan const&,
                                  std::int32_t,
                                  std::vector<float> const&,
                                  Path,
                                  std::vector<std::size_t>);
extern template Attended run_plan(PagedPool<kvcache::PagedHeads<kvcache::half>>&,
                                  kvcache::AttentionPlan const&,
                                  std::int32_t,
                                  std::vector<float> const&,
                                  Path,
                                  std::vector<std::size_t>);
extern template Attended run_plan(PagedPool<kvcache::PagedHeads<kvcache::bfloat16>>&,
                                  kvcache::AttentionPlan const&,
                                  std::int32_t,
                                  std::vector<float> const&,
                                  Path,
                                  std::vector<std::size_t>);

extern template Attended run_plan(PagedPool<kvcache::PagedHeads<engine::Bf16>>&,
                                  kvcache::AttentionPlan const&,
                                  std::int32_t,
                                  std::vector<float> const&,
                                  Path,
                                  std::vector<std::size_t>);

template <class Layout>
Attended run(PagedPool<Layout>& pool,
             kvcache::AttentionShape shape,
             kvcache::AttentionOptions options,
             std::int32_t layer,
             std::vector<float> const& q,
             Path path)
{
  options.instructions = set_of(path);
  kvcache::AttentionPlan plan;
  REQUIRE(plan.make(pool.view(), shape, options).has_value());
  return run_plan(pool, plan, layer, q, path);
}

/// What the model is told besides the shape.
struct Rules {
  std::vector<kvcache::TwoWaySpan> two_way = {};
  std::function<double(kvcache::ScoreAt)> bias = {};          // null: none
  std::function<std::int32_t(std::int32_t)> kv_head_of = {};  // null: by groups, as it should be
};

/// Whether `token` sees row `i` of its sequence: row by row, as a mask would say it.
template <class Layout>
bool model_sees(PagedPool<Layout> const& pool,
                kvcache::Index window,
                std::vector<kvcache::TwoWaySpan> const& two_way,
                kvcache::Index token,
                kvcache::Index i)
{
  for (kvcache::TwoWaySpan const& span : two_way) {
    if (token >= span.first_token && token < span.first_token + span.tokens) {
      kvcache::Index const first = pool.sees(span.first_token) - 1;
      if (i >= first && i < first + span.tokens) {
        return true;
      }
    }
  }
  return pool.visible(token, i) && (window == 0 || pool.back(token, i) < window);
}

/// The worst error of each path over the cases of a test.
class WorstErrors {
 public:
  void add(Path path, double error) { worst_[path] = std::max(worst_[path], error); }
  /// Prints them; false where a path of this processor had no case.
  [[nodiscard]] bool report(char const* cases, int count, std::uint64_t seed) const
  {
    std::printf("attend: %d %s from seed %llu, worst error against double:",
                count,
                cases,
                static_cast<unsigned long long>(seed));
    for (auto const& [path, error] : worst_) {
      std::printf(" %s %.1e", name(path), error);
    }
    std::printf(
      "%s\n", worst_.count(Path::avx512) == 1 ? "" : " (avx512 not run: this processor has none)");
    return worst_.size() == paths().size();
  }

 private:
  std::map<Path, double> worst_;
};

/// The largest difference from attention in double precision: of outputs, and of logs of sums.
template <class Layout>
double error_against_double(PagedPool<Layout> const& pool,
                            kvcache::AttentionShape shape,
                            std::int32_t layer,
                            std::vector<float> const& q,
                            Attended const& got,
                            Rules const& rules = {})
{
  auto const dim = static_cast<std::size_t>(pool.geometry().head_dim);
  double const scale =
    shape.scale > 0 ? static_cast<double>(shape.scale) : 1.0 / std::sqrt(static_cast<double>(dim));
  auto const cap = static_cast<double>(shape.soft_cap);
  double const nothing = -std::numeric_limits<double>::infinity();
  double worst = 0.0;
  std::vector<double> logits;
  std::vector<double> out(dim);
  for (kvcache::Index token = 0; token < pool.num_tokens(); ++token) {
    for (std::int32_t head = 0; head < shape.query_heads; ++head) {
      std::int32_t const kv_head = rules.kv_head_of ? rules.kv_head_of(head) : head / shape.group();
      std::size_t const row =
        static_cast<std::size_t>(token) * static_cast<std::size_t>(shape.query_heads) +
        static_cast<std::size_t>(head);
      float const* const query = q.data() + row * dim;
      kvcache::Index const rows = pool.sees(token) == 0 ? 0 : pool.length_of(token);
      logits.assign(static_cast<std::size_t>(rows), nothing);
      double most = nothing;
      for (kvcache::Index i = 0; i < rows; ++i) {
        if (!model_sees(pool, shape.window, rules.two_way, token, i)) {
          continue;
        }
        float const* const k = pool.key(token, layer, kv_head, i);
        double x = 0.0;
        for (std::size_t d = 0; d < dim; ++d) {
          x += static_cast<double>(query[d]) * static_cast<double>(k[d]);
        }
        x *= scale;
        x = cap > 0.0 ? cap * std::tanh(x / cap) : x;
        x += rules.bias ? rules.bias({token, head, i}) : 0.0;
        logits[static_cast<std::size_t>(i)] = x;
        most = std::max(most, x);
      }
      std::fill(out.begin(), out.end(), 0.0);
      double sum = 0.0;
      for (kvcache::Index i = 0; i < rows; ++i) {
        double const x = logits[static_cast<std::size_t>(i)];
        double const p = x == nothing ? 0.0 : std::exp(x - most);
        float const* const v = pool.value(token, layer, kv_head, i);
        sum += p;
        for (std::size_t d = 0; d < dim && p > 0.0; ++d) {
          out[d] += p * static_cast<double>(v[d]);
        }
      }
      for (std::size_t d = 0; d < dim; ++d) {
        double const right = sum == 0.0 ? 0.0 : out[d] / sum;
        double const error = std::abs(right - static_cast<double>(got.out[row * dim + d]));
        worst = error <= worst ? worst : error;  // NaN is worse than anything
      }
      auto const got_lse = static_cast<double>(got.lse[row]);
      double const error =
        sum == 0.0 ? (got_lse == nothing ? 0.0 : 1.0) : std::abs(most + std::log(sum) - got_lse);
      worst = error <= worst ? worst : error;
    }
  }
  return worst;
}

inline bool same_bits(Attended const& a, Attended const& b)
{
  return a.out == b.out && a.lse == b.lse;  // no NaN here: what holds a NaN is not equal, and fails
}

inline double largest_difference(std::vector<float> const& a, std::vector<float> const& b)
{
  double worst = a.size() == b.size() ? 0.0 : 1e30;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    double const error = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = a[i] == b[i] || error <= worst ? worst : error;
  }
  return worst;
}

}  // namespace kvcache_test

// What a test also calls by itself.
extern template void kvcache::attend(
  kvcache::BatchView<kvcache::PagedHeads<kvcache::bfloat16>> const&,
  kvcache::AttentionPlan const&,
  std::int32_t,
  kvcache::AttentionTensors const&,
  std::size_t,
  kvcache::NoBias const&) noexcept;
