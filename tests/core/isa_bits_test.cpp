// SPDX-License-Identifier: Apache-2.0
// lop3 and prmt bit by bit and byte by byte, and reductions over lanes.

#include <kvcache/core/isa/bits.hpp>
#include <kvcache/core/isa/reduce.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

std::uint32_t word(Random& random)
{
  return static_cast<std::uint32_t>(random.next());
}

template <std::uint32_t Table>
std::uint32_t wrong_bits(std::uint32_t a, std::uint32_t b, std::uint32_t c)
{
  std::uint32_t const got = isa::lop3<Table>(a, b, c);
  std::uint32_t want = 0;
  for (std::uint32_t i = 0; i < 32; ++i) {
    std::uint32_t const row = (a >> i & 1U) << 2 | (b >> i & 1U) << 1 | (c >> i & 1U);
    want |= (Table >> row & 1U) << i;
  }
  return got ^ want;
}

/// What one of 32 lanes gives, and what each gets.
template <class T, class Reduce>
std::vector<T> over_lanes(std::vector<T> const& given, Reduce const& reduce)
{
  std::vector<T> got(32);
  simt::launch(1, 32, 0, [&](simt::Block& block) {
    auto const lane = static_cast<std::size_t>(block.thread());
    got[lane] = reduce(block.warp(), given[lane]);
  });
  return got;
}

template <int Lanes, class T>
void check_integers(std::vector<T> const& given)
{
  auto const sums =
    over_lanes(given, [](auto& warp, T x) { return isa::reduce_sum<Lanes>(warp, x); });
  auto const maxima =
    over_lanes(given, [](auto& warp, T x) { return isa::reduce_max<Lanes>(warp, x); });
  std::size_t wrong = 0;
  for (std::size_t lane = 0; lane < 32; ++lane) {
    std::size_t const first = lane / Lanes * Lanes;
    std::uint64_t sum = 0;
    T highest = given[first];
    for (std::size_t l = first; l < first + Lanes; ++l) {
      sum += static_cast<std::uint64_t>(given[l]);
      highest = std::max(highest, given[l]);
    }
    wrong += sums[lane] == static_cast<T>(sum) ? 0U : 1U;
    wrong += maxima[lane] == highest ? 0U : 1U;
  }
  CAPTURE(Lanes);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("isa: lop3 is its table, for every table", "[core][isa]")
{
  Random random(1);
  std::uint32_t wrong = 0;
  for (int round = 0; round < 20; ++round) {
    std::uint32_t const a = word(random);
    std::uint32_t const b = word(random);
    std::uint32_t const c = word(random);
    [&]<std::uint32_t... Tables>(std::integer_sequence<std::uint32_t, Tables...>) {
      ((wrong |= wrong_bits<Tables>(a, b, c)), ...);
    }(std::make_integer_sequence<std::uint32_t, 256>{});
    CHECK(isa::lop3<((0xf0 & 0xcc) | 0xaa)>(a, b, c) == ((a & b) | c));
  }
  CHECK(wrong == 0);
}

TEST_CASE("isa: prmt picks bytes and spreads signs, for every selector", "[core][isa]")
{
  Random random(2);
  std::uint32_t wrong = 0;
  for (std::uint32_t selector = 0; selector < 65536; ++selector) {
    std::array<std::uint32_t, 2> const from{word(random), word(random)};
    auto const bytes = std::bit_cast<std::array<std::uint8_t, 8>>(from);
    auto const got =
      std::bit_cast<std::array<std::uint8_t, 4>>(isa::prmt(from[0], from[1], selector));
    for (std::size_t i = 0; i < 4; ++i) {
      std::uint8_t const byte = bytes[selector >> (4 * i) & 7U];
      std::uint8_t const spread = byte > 127 ? 255 : 0;
      wrong += got[i] == ((selector >> (4 * i) & 8U) != 0 ? spread : byte) ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("isa: integers are summed and compared over groups of lanes", "[core][isa]")
{
  Random random(3);
  std::vector<std::uint32_t> plain(32);
  std::vector<std::int32_t> with_sign(32);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    plain[lane] = word(random);
    with_sign[lane] = static_cast<std::int32_t>(word(random));
  }
  check_integers<32>(plain);
  check_integers<32>(with_sign);
  check_integers<8>(with_sign);
  check_integers<4>(plain);
  check_integers<1>(plain);
}

TEST_CASE("isa: floats are summed from the farthest lanes inwards, the same bits in each lane",
          "[core][isa]")
{
  Random random(4);
  std::vector<float> given(32);
  for (float& x : given) {
    x = static_cast<float>(random.below(1000000)) * 1e-3F - 300.0F;
  }
  auto const sums = over_lanes(given, [](auto& warp, float x) { return isa::reduce_sum(warp, x); });
  auto const in_fours =
    over_lanes(given, [](auto& warp, float x) { return isa::reduce_sum<4>(warp, x); });
  std::vector<float> folded = given;
  for (std::size_t width = 16; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) {
      folded[i] += folded[i + width];
    }
  }
  std::size_t wrong = 0;
  for (std::size_t lane = 0; lane < 32; ++lane) {
    std::size_t const first = lane / 4 * 4;
    float const four = (given[first] + given[first + 2]) + (given[first + 1] + given[first + 3]);
    wrong += sums[lane] == folded[0] && in_fours[lane] == four ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

TEST_CASE("isa: a number beats NaN and +0 beats -0, in every lane", "[core][isa]")
{
  float const nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> given(32, nan);
  auto const reduce = [](auto& warp, float x) { return isa::reduce_max(warp, x); };
  auto const all_nan = over_lanes(given, reduce);
  CHECK(std::all_of(all_nan.begin(), all_nan.end(), [](float x) { return std::isnan(x); }));
  given[9] = -3.0F;
  given[17] = -7.0F;
  CHECK(over_lanes(given, reduce) == std::vector<float>(32, -3.0F));
  std::fill(given.begin(), given.end(), -0.0F);
  given[30] = 0.0F;
  auto const zeros = over_lanes(given, reduce);
  CHECK(std::none_of(zeros.begin(), zeros.end(), [](float x) { return std::signbit(x); }));
}
