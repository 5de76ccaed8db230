// SPDX-License-Identifier: Apache-2.0
// Built by run.cmake with flags that let a compiler reorder sums and forget infinities: what attention gives must stay right.

#include <kvcache/attention/attend.hpp>
#include <kvcache/attention/reference.hpp>
#include <kvcache/kvcache.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace kvcache;

namespace {

constexpr int rows = 50;
constexpr int dim = 64;
constexpr int query_heads = 20;  // sixteen are a group
using Layout = PagedHeads<float, dim, 16>;
using View = BatchView<Layout>;

int failed = 0;

/// Written so that a NaN fails, and by bits, since these flags make comparisons with one true.
void check(char const* what, double error, double most)
{
  bool const number = (__builtin_bit_cast(std::uint64_t, error) >> 52 & 0x7ff) != 0x7ff;
  bool const good = number && error <= most;
  std::printf("%s: error %.2g, at most %.2g%s\n", what, error, most, good ? "" : "  WRONG");
  failed += good ? 0 : 1;
}

bool minus_infinity(float x)
{
  return __builtin_bit_cast(std::uint32_t, x) == 0xff800000U;
}

/// Rows 7, 14, .. count for nobody, and for head 2 none does.
struct LeftOut {
  std::uint32_t
    bits;  // of a float: flags as these forbid an infinity in arithmetic, not one that comes from outside
  float operator()(ScoreAt at) const
  {
    return at.query_head == 2 || at.row % 7 == 6 ? __builtin_bit_cast(float, bits) : 0.25F;
  }
};

struct Data {
  std::vector<float> k = std::vector<float>(std::size_t{rows} * dim);
  std::vector<float> v = std::vector<float>(std::size_t{rows} * dim);
  std::vector<float> q = std::vector<float>(std::size_t{rows} * query_heads * dim);
};

template <class Run>
void compare(char const* what, Data const& data, double cap, bool masked, Run const& run)
{
  std::vector<float> out(data.q.size(), 77.0F);
  std::vector<float> lse(data.q.size() / dim, 77.0F);
  run(out, lse);
  double worst = 0;
  int not_empty = 0;
  for (int t = 0; t < rows; ++t) {
    for (int h = 0; h < query_heads; ++h) {
      std::size_t const at = static_cast<std::size_t>(t * query_heads + h);
      double sum = 0;
      double o[dim] = {};
      for (int r = 0; r <= t; ++r) {
        if (masked && (h == 2 || r % 7 == 6)) {
          continue;
        }
        double x = 0;
        for (std::size_t d = 0; d < dim; ++d) {
          x += double{data.q[at * dim + d]} * double{data.k[static_cast<std::size_t>(r) * dim + d]};
        }
        x /= 8;
        x = cap > 0 ? cap * std::tanh(x / cap) : x;
        double const w = std::exp(x + (masked ? 0.25 : 0.0));
        sum += w;
        for (std::size_t d = 0; d < dim; ++d) {
          o[d] += w * double{data.v[static_cast<std::size_t>(r) * dim + d]};
        }
      }
      for (std::size_t d = 0; d < dim; ++d) {
        double const right = sum > 0 ? o[d] / sum : 0;
        double const error = std::fabs(right - double{out[at * dim + d]});
        worst = error <= worst ? worst : error;
      }
      if (sum > 0) {
        double const error = std::fabs(std::log(sum) - double{lse[at]});
        worst = error <= worst ? worst : error;
      } else {
        not_empty += minus_infinity(lse[at]) ? 0 : 1;
      }
    }
  }
  check(what, worst, 5e-6);
  check("  queries that see nothing and have a log", not_empty, 0);
}

template <class Bias>
void attend_with(
  char const* what, View const& view, Data const& data, float cap, std::int32_t workers, Bias bias)
{
  AttentionPlan plan;
  if (!plan.make(view,
                 {.query_heads = query_heads, .kv_heads = 1, .soft_cap = cap},
                 {.workers = workers,
                  .split_rows = workers > 1 ? 32 : 0,
                  .instructions = InstructionSet::portable})) {
    check("no plan", 1, 0);
    return;
  }
  std::vector<float> scratch(plan.scratch_floats());
  compare(what, data, double{cap}, !std::is_same_v<Bias, NoBias>, [&](auto& out, auto& lse) {
    AttentionTensors const io{data.q.data(), out.data(), lse.data(), scratch.data()};
    for (std::size_t i = 0; i < plan.num_items(); ++i) {
      using Vector = detail::portable::Vector<KVCACHE_TEST_WIDTH>;
      detail::portable::Kernel<Vector>::run(view, plan, 0, io, plan.item(i), bias);
    }
    for (std::size_t i = 0; i < plan.num_merges(); ++i) {
      merge(plan, io, i);
    }
  });
}

void exponentials()
{
  using Vector = detail::portable::Vector<8>;
  double worst = 0;
  double worst_less_1 = 0;
  for (int i = 0; i < 40000; ++i) {
    float const x = -static_cast<float>(i) * 0.003F;
    float const small = static_cast<float>(i - 20000) * 0.0005F;
    float out[8];
    Vector::store(out, Vector::exp2(Vector::all(x)));
    double const right = std::exp2(double{x});
    double const error = std::fabs(double{out[3]} / right - 1);
    worst = error <= worst ? worst : error;
    Vector::store(out, Vector::exp2_less_1(Vector::all(small)));
    double const less_1 = std::expm1(double{small} * 0.69314718055994530942);
    double const other =
      small == 0.0F ? std::fabs(double{out[3]}) : std::fabs(double{out[3]} / less_1 - 1);
    worst_less_1 = other <= worst_less_1 ? worst_less_1 : other;
  }
  check("2^x", worst, 3e-7);
  check("2^x - 1", worst_less_1, 5e-7);
}

}  // namespace

int main()
{
  exponentials();
  auto cache = KVCache<Layout>::create({.layers = 1, .kv_heads = 1}, {.pages = 8});
  std::vector<Token> const prompt(rows, 1);
  auto sequence = cache->open({.tokens = prompt});
  auto step = cache->prepare({{*sequence, prompt}});
  View const view = step->view();
  Data data;
  for (std::size_t i = 0; i < data.k.size(); ++i) {
    data.k[i] = std::sin(0.37F * static_cast<float>(i));
    data.v[i] = std::cos(0.11F * static_cast<float>(i));
  }
  for (std::size_t i = 0; i < data.q.size(); ++i) {
    data.q[i] = std::sin(0.7F * static_cast<float>(i));
  }
  for (std::size_t t = 0; t < rows; ++t) {
    view.append(Solo{}, 0, 0, static_cast<Index>(t), &data.k[t * dim], &data.v[t * dim]);
  }
  attend_with("attention", view, data, 0.0F, 1, NoBias{});
  attend_with("attention in parts", view, data, 0.0F, 3, NoBias{});
  attend_with("attention with a soft cap", view, data, 30.0F, 1, NoBias{});
  attend_with("attention, rows at -infinity", view, data, 0.0F, 3, LeftOut{0xff800000U});
  attend_with("attention, rows at the lowest float", view, data, 0.0F, 1, LeftOut{0xff7fffffU});
  LeftOut const left_out{0xff800000U};
  AttentionShape const shape{.query_heads = query_heads, .kv_heads = 1};
  compare("the reference", data, 0, true, [&](auto& out, auto& lse) {
    for (Index t = 0; t < rows; ++t) {
      for (std::int32_t h = 0; h < query_heads; ++h) {
        auto const at = static_cast<std::size_t>(t * query_heads + h);
        lse[at] = reference_attention(
          Solo{}, view, shape, 0, h, t, &data.q[at * dim], &out[at * dim], left_out);
      }
    }
  });
  if (!step->commit()) {
    return 2;
  }
  return failed == 0 ? 0 : 1;
}
