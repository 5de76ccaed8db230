// SPDX-License-Identifier: Apache-2.0
// Joining parts: empty ones are neutral (faults B-093).

#include <kvcache/attention/merge.hpp>
#include <kvcache/view/team.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.hpp"

namespace {

constexpr float empty = -std::numeric_limits<float>::infinity();
constexpr std::size_t dim = 3;

struct State {
  std::vector<float> o;
  float lse;
};

State const nothing{{0.0F, 0.0F, 0.0F}, empty};
State const x{{1.0F, -2.0F, 0.5F}, 1.25F};
State const y{{3.0F, 4.0F, -1.0F}, 1.25F + std::log(3.0F)};

template <class Join>
State join(std::vector<State> const& parts, Join how)
{
  std::vector<float> o;
  std::vector<float> lse;
  for (State const& part : parts) {
    o.insert(o.end(), part.o.begin(), part.o.end());
    lse.push_back(part.lse);
  }
  State out{std::vector<float>(dim, 77.0F), 77.0F};
  out.lse = how(o.data(), lse.data(), parts.size(), out.o.data());
  return out;
}

State join(std::vector<State> const& parts)
{
  return join(parts, [](float const* o, float const* lse, std::size_t n, float* out) {
    return kvcache::merge_states(kvcache::Solo{}, o, dim, lse, 1, n, dim, out);
  });
}

/// The broken twin: the formula without a neutral element.
State join_without_neutral(std::vector<State> const& parts)
{
  return join(parts, [](float const* o, float const* lse, std::size_t n, float* out) {
    float most = lse[0];
    for (std::size_t i = 1; i < n; ++i) {
      most = std::max(most, lse[i]);
    }
    float sum = 0.0F;
    std::fill_n(out, dim, 0.0F);
    for (std::size_t i = 0; i < n; ++i) {
      float const weight = std::exp(lse[i] - most);
      sum += weight;
      for (std::size_t d = 0; d < dim; ++d) {
        out[d] += weight * o[i * dim + d];
      }
    }
    for (std::size_t d = 0; d < dim; ++d) {
      out[d] /= sum;
    }
    return most + std::log(sum);
  });
}

bool equal(State const& a, State const& b)
{
  return a.o == b.o && a.lse == b.lse;
}

}  // namespace

TEST_CASE("merge_states: an empty part is neutral, and empty parts join to an empty one",
          "[attention][merge][B-093]")
{
  CHECK(equal(join({nothing}), nothing));
  CHECK(equal(join({nothing, nothing}), nothing));
  CHECK(equal(join({nothing, nothing, nothing}), nothing));
  CHECK(equal(join({nothing, x}), x));
  CHECK(equal(join({x, nothing}), x));
  CHECK(equal(join({nothing, x, nothing}), x));
  State const garbage{{std::numeric_limits<float>::quiet_NaN(), empty, -empty}, empty};
  CHECK(equal(join({garbage, x}), x));
  CHECK(equal(join({garbage}), nothing));
  // The twin fails the first check and the last.
  CHECK_FALSE(equal(join_without_neutral({nothing, nothing}), nothing));
  CHECK_FALSE(equal(join_without_neutral({garbage, x}), x));
  CHECK(equal(join_without_neutral({nothing, x}), x));
}

TEST_CASE("merge_states: a log of -3e38 is a small weight, not an empty part",
          "[attention][merge][B-093]")
{
  State const tiny{{5.0F, 6.0F, 7.0F}, -3.0e38F};
  CHECK(equal(join({tiny}), tiny));
  CHECK(equal(join({tiny, x}), x));
  CHECK(equal(join({nothing, tiny}), tiny));
  State const twice = join({tiny, tiny});
  CHECK(twice.o == tiny.o);
  CHECK(std::isfinite(twice.lse));
}

TEST_CASE("merge_states: weights are natural exponentials, in any order of the parts",
          "[attention][merge]")
{
  State const both = join({x, y});  // weights 1/4 and 3/4
  CHECK(both.o[0] == kvcache_test::Approx(2.5));
  CHECK(both.o[1] == kvcache_test::Approx(2.5));
  CHECK(both.o[2] == kvcache_test::Approx(-0.625));
  CHECK(both.lse == kvcache_test::Approx(1.25 + std::log(4.0)));
  State const other = join({y, x});
  CHECK(other.o[0] == kvcache_test::Approx(2.5));
  State const nested = join({join({x, y}), nothing, x});
  State const flat = join({x, y, x});
  CHECK(nested.o[0] == kvcache_test::Approx(flat.o[0]));
  CHECK(nested.lse == kvcache_test::Approx(flat.lse));
}

TEST_CASE("merge_states: members of a team write the parts of one result", "[attention][merge]")
{
  std::vector<float> const o{1, -2, 0.5F, 3, 4, -1};
  std::vector<float> const lse{1.25F, 2.0F};
  std::vector<float> alone(dim);
  std::vector<float> shared(dim);
  float const right =
    kvcache::merge_states(kvcache::Solo{}, o.data(), dim, lse.data(), 1, 2, dim, alone.data());
  for (int lane = 0; lane < 2; ++lane) {
    float const l = kvcache::merge_states(
      kvcache::Lanes{lane, 2}, o.data(), dim, lse.data(), 1, 2, dim, shared.data());
    CHECK(l == right);
  }
  CHECK(alone == shared);
}
