// SPDX-License-Identifier: Apache-2.0
// mma against a scalar product. The fragment maps are written here a second time, as CuTe's layouts state them
// (cute/atom/mma_traits_sm80.hpp, mma_traits_sm89.hpp): strides into column-major matrices.

#include <kvcache/core/isa/mma.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/naive_float.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

/// m + 16 k: ((4, 8), (2, 2, 2)):((32, 1), (16, 8, 128)), or with bytes ((4, 8), (4, 2, 2)):((64, 1), (16, 8, 256)).
std::size_t index_in_a(int parts, int lane, int reg, int part)
{
  int const of_lane = lane % 4 * 16 * parts + lane / 4;
  return static_cast<std::size_t>(of_lane + 16 * part + 8 * (reg & 1) + 64 * parts * (reg >> 1));
}
/// n + 8 k: ((4, 8), (2, 2)):((16, 1), (8, 64)), or ((4, 8), (4, 2)):((32, 1), (8, 128)).
std::size_t index_in_b(int parts, int lane, int reg, int part)
{
  return static_cast<std::size_t>(lane % 4 * 8 * parts + lane / 4 + 8 * part + 32 * parts * reg);
}
/// m + 16 n: ((4, 8), (2, 2)):((32, 1), (16, 8)).
std::size_t index_in_d(int lane, int i)
{
  return static_cast<std::size_t>(lane % 4 * 32 + lane / 4 + 16 * (i & 1) + 8 * (i >> 1));
}

template <class Element>
double value(std::uint32_t code)
{
  if constexpr (std::is_same_v<Element, half>) {
    return value_of(code, half_format);
  } else if constexpr (std::is_same_v<Element, bfloat16>) {
    return value_of(code, bfloat16_format);
  } else if constexpr (std::is_same_v<Element, isa::E4M3>) {
    return value_of(code, e4m3_format);
  } else if constexpr (std::is_same_v<Element, isa::E5M2>) {
    return value_of(code, e5m2_format);
  } else {
    return static_cast<double>(static_cast<Element>(code));
  }
}

/// Matrices of codes, column-major in a (m + 16 k), n + 8 k in b, m + 16 n in d.
template <class A, class B, class Sum>
struct Problem {
  static constexpr int parts = sizeof(A) == 2 ? 2 : 4;
  static constexpr int depth = 8 * parts;
  std::vector<std::uint32_t> a = std::vector<std::uint32_t>(16 * depth);
  std::vector<std::uint32_t> b = std::vector<std::uint32_t>(8 * depth);
  std::vector<Sum> d = std::vector<Sum>(16 * 8);

  [[nodiscard]] double product(std::size_t m, std::size_t n, std::size_t k) const
  {
    return value<A>(a[m + 16 * k]) * value<B>(b[n + 8 * k]);
  }

  /// What `multiply(warp, d, a, b)` makes of d.
  template <class Multiply>
  [[nodiscard]] std::vector<Sum> run(Multiply const& multiply) const
  {
    std::vector<Sum> out(d.size());
    simt::launch(1, 32, 0, [&](simt::Block& block) {
      int const lane = block.thread();
      std::uint32_t a_reg[4] = {};
      std::uint32_t b_reg[2] = {};
      Sum d_reg[4] = {};
      for (int part = 0; part < parts; ++part) {
        for (int reg = 0; reg < 4; ++reg) {
          a_reg[reg] |= a[index_in_a(parts, lane, reg, part)] << (32 / parts * part);
        }
        for (int reg = 0; reg < 2; ++reg) {
          b_reg[reg] |= b[index_in_b(parts, lane, reg, part)] << (32 / parts * part);
        }
      }
      for (int i = 0; i < 4; ++i) {
        d_reg[i] = d[index_in_d(lane, i)];
      }
      multiply(block.warp(), d_reg, a_reg, b_reg);
      for (int i = 0; i < 4; ++i) {
        out[index_in_d(lane, i)] = d_reg[i];
      }
    });
    return out;
  }
};

template <class A, class B>
constexpr auto one_instruction()
{
  return [](auto& warp, auto& d, auto const& a, auto const& b) {
    if constexpr (sizeof(A) == 2) {
      isa::mma_m16n8k16<A>(warp, d, a, b);
    } else {
      isa::mma_m16n8k32<A, B>(warp, d, a, b);
    }
  };
}

/// A code of a number in (-4, 4) of any exponent below, zero and subnormal ones among them.
template <class Element>
std::uint32_t moderate(Random& random)
{
  std::uint32_t const bits = sizeof(Element) == 2 ? 16 : 8;
  for (;;) {
    std::uint32_t const code = random.below(1U << bits);
    if (std::fabs(value<Element>(code)) < 4.0) {
      return code;
    }
  }
}

/// Every result is what a loop over ascending k gives in float, to the bit, and close to the exact value.
template <class A, class B>
void check_floats(std::uint64_t seed)
{
  Random random(seed);
  Problem<A, B, float> problem;
  for (int round = 0; round < 20; ++round) {
    for (std::uint32_t& code : problem.a) {
      code = moderate<A>(random);
    }
    for (std::uint32_t& code : problem.b) {
      code = moderate<B>(random);
    }
    for (float& x : problem.d) {
      x = static_cast<float>(random.between(0, 2000)) * 0.01F - 10.0F;
    }
    std::vector<float> const got = problem.run(one_instruction<A, B>());
    std::size_t wrong = 0;
    std::size_t far = 0;
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < 8; ++n) {
        float in_order = problem.d[m + 16 * n];
        double exact = static_cast<double>(in_order);
        double magnitudes = std::fabs(exact);
        for (std::size_t k = 0; k < static_cast<std::size_t>(problem.depth); ++k) {
          double const product = problem.product(m, n, k);
          in_order += static_cast<float>(product);
          exact += product;
          magnitudes += std::fabs(product);
        }
        float const is = got[m + 16 * n];
        wrong += is == in_order ? 0U : 1U;
        bool const near =
          std::fabs(static_cast<double>(is) - exact) <= (problem.depth + 1) * 0x1p-22 * magnitudes;
        far += near ? 0U : 1U;
      }
    }
    CAPTURE(seed, round);
    CHECK(wrong == 0);
    CHECK(far == 0);
  }
}

template <class A, class B>
void check_integers(std::uint64_t seed)
{
  Random random(seed);
  Problem<A, B, std::int32_t> problem;
  for (int round = 0; round < 20; ++round) {
    for (std::uint32_t& code : problem.a) {
      code = round == 0 ? 0x80U : random.below(256);
    }
    for (std::uint32_t& code : problem.b) {
      code = round == 0 ? 0xffU : random.below(256);
    }
    for (std::int32_t& x : problem.d) {  // some so large that the sum wraps
      x = static_cast<std::int32_t>(static_cast<std::uint32_t>(random.next()));
      x = random.below(2) == 0 ? x : std::numeric_limits<std::int32_t>::max() - (x & 0xffff);
    }
    std::vector<std::int32_t> const got = problem.run(one_instruction<A, B>());
    std::size_t wrong = 0;
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < 8; ++n) {
        auto sum = static_cast<std::int64_t>(problem.d[m + 16 * n]);
        for (std::size_t k = 0; k < 32; ++k) {
          sum += static_cast<std::int64_t>(problem.product(m, n, k));
        }
        wrong += got[m + 16 * n] == static_cast<std::int32_t>(sum) ? 0U : 1U;
      }
    }
    CAPTURE(seed, round);
    CHECK(wrong == 0);
  }
}

/// On a target without fp8 its mma is two of half: the same sums where floats hold them exactly.
template <class A, class B>
void check_fp8_by_half(std::uint64_t seed)
{
  Random random(seed);
  Problem<A, B, float> problem;
  FloatFormat const& a_format = std::is_same_v<A, isa::E4M3> ? e4m3_format : e5m2_format;
  FloatFormat const& b_format = std::is_same_v<B, isa::E4M3> ? e4m3_format : e5m2_format;
  for (std::uint32_t& code : problem.a) {
    code = saturate_to(static_cast<double>(random.below(9)) - 4.0, a_format);
  }
  for (std::uint32_t& code : problem.b) {
    code = saturate_to(static_cast<double>(random.below(9)) - 4.0, b_format);
  }
  for (float& x : problem.d) {
    x = static_cast<float>(random.below(1000));
  }
  auto const by_half = [](auto& warp, auto& d, auto const& a, auto const& b) {
    isa::detail::mma_fp8_by_half<A, B>(warp, d, a, b);
  };
  CAPTURE(seed);
  CHECK(problem.run(by_half) == problem.run(one_instruction<A, B>()));
}

}  // namespace

TEST_CASE("isa: mma of halves and bfloat16 is the scalar product", "[core][isa]")
{
  check_floats<half, half>(1);
  check_floats<bfloat16, bfloat16>(2);
}

TEST_CASE("isa: mma of fp8 is the scalar product", "[core][isa]")
{
  check_floats<isa::E4M3, isa::E4M3>(3);
  check_floats<isa::E4M3, isa::E5M2>(4);
  check_floats<isa::E5M2, isa::E4M3>(5);
  check_floats<isa::E5M2, isa::E5M2>(6);
}

TEST_CASE("isa: mma of fp8 by halves gives the same", "[core][isa]")
{
  check_fp8_by_half<isa::E4M3, isa::E4M3>(7);
  check_fp8_by_half<isa::E4M3, isa::E5M2>(8);
  check_fp8_by_half<isa::E5M2, isa::E4M3>(9);
  check_fp8_by_half<isa::E5M2, isa::E5M2>(10);
}

TEST_CASE("isa: mma of bytes is the scalar product and wraps", "[core][isa]")
{
  check_integers<std::int8_t, std::int8_t>(11);
  check_integers<std::int8_t, std::uint8_t>(12);
  check_integers<std::uint8_t, std::int8_t>(13);
  check_integers<std::uint8_t, std::uint8_t>(14);
}

TEST_CASE("isa: the public fragment maps are those of the instruction", "[core][isa]")
{
  std::size_t wrong = 0;
  auto const check_parts = [&]<int Parts>(std::integral_constant<int, Parts>) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int part = 0; part < Parts; ++part) {
        for (int reg = 0; reg < 4; ++reg) {
          isa::Place const in_a = isa::place_in_a<Parts>(lane, reg, part);
          auto const a_index = static_cast<std::size_t>(in_a.row + 16 * in_a.column);
          wrong += a_index == index_in_a(Parts, lane, reg, part) ? 0U : 1U;
        }
        for (int reg = 0; reg < 2; ++reg) {
          isa::Place const in_b = isa::place_in_b<Parts>(lane, reg, part);
          auto const b_index = static_cast<std::size_t>(in_b.column + 8 * in_b.row);
          wrong += b_index == index_in_b(Parts, lane, reg, part) ? 0U : 1U;
        }
      }
      for (int i = 0; i < 4; ++i) {
        isa::Place const in_d = isa::place_in_d(lane, i);
        auto const d_index = static_cast<std::size_t>(in_d.row + 16 * in_d.column);
        wrong += d_index == index_in_d(lane, i) ? 0U : 1U;
      }
    }
  };
  check_parts(std::integral_constant<int, 2>{});
  check_parts(std::integral_constant<int, 4>{});
  CHECK(wrong == 0);
}
