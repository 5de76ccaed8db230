// SPDX-License-Identifier: Apache-2.0
// What moves bytes: ldmatrix, cp.async, loads and stores, atomics.

#include <kvcache/core/isa/async_copy.hpp>
#include <kvcache/core/isa/atomic.hpp>
#include <kvcache/core/isa/ldmatrix.hpp>
#include <kvcache/core/isa/once.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache;
using namespace kvcache_test;

namespace {

using Words = std::vector<std::uint32_t>;

/// Rows of 16 bytes lie at shuffled places of shared memory. Every element goes where the tables of the PTX ISA say.
template <std::size_t Matrices>
void check_ldmatrix(std::uint64_t seed)
{
  Random random(seed);
  constexpr std::size_t rows = 8 * Matrices;
  std::vector<std::uint16_t> elements(rows * 8);
  for (std::uint16_t& element : elements) {
    element = static_cast<std::uint16_t>(random.next());
  }
  std::array<std::size_t, rows> place{};
  std::iota(place.begin(), place.end(), std::size_t{0});
  for (std::size_t i = rows; i > 1; --i) {
    std::swap(place[i - 1], place[random.below(static_cast<std::uint32_t>(i))]);
  }
  Words plain(32 * Matrices);
  Words transposed(32 * Matrices);
  for (simt::Options const& options : simt::schedules(seed)) {
    simt::launch(
      1,
      32,
      rows * 16,
      [&](simt::Block& block) {
        auto const lane = static_cast<std::size_t>(block.thread());
        // Past the rows a lane gives an address that no one may read.
        std::byte* const row = lane < rows ? block.shared() + 16 * place[lane] : nullptr;
        if (row != nullptr) {
          std::memcpy(row, elements.data() + 8 * lane, 16);
        }
        block.sync();
        std::uint32_t d[Matrices];
        isa::ldmatrix(block.warp(), d, row);
        std::copy_n(d, Matrices, plain.begin() + static_cast<std::ptrdiff_t>(Matrices * lane));
        isa::ldmatrix_transposed(block.warp(), d, row);
        // What is loaded stays what it is when the lane writes its row at once.
        if (row != nullptr) {
          std::memset(row, 0, 16);
        }
        std::copy_n(d, Matrices, transposed.begin() + static_cast<std::ptrdiff_t>(Matrices * lane));
      },
      options);
    std::size_t wrong = 0;
    for (std::size_t m = 0; m < Matrices; ++m) {
      for (std::size_t r = 0; r < 8; ++r) {
        for (std::size_t c = 0; c < 8; ++c) {
          std::uint32_t const element = elements[64 * m + 8 * r + c];
          std::size_t const holder = 4 * r + c / 2;
          wrong += (plain[Matrices * holder + m] >> (16 * (c % 2)) & 0xffffU) == element ? 0U : 1U;
          std::size_t const other = 4 * c + r / 2;
          wrong +=
            (transposed[Matrices * other + m] >> (16 * (r % 2)) & 0xffffU) == element ? 0U : 1U;
        }
      }
    }
    CAPTURE(seed, Matrices, simt::to_string(options));
    CHECK(wrong == 0);
  }
}

/// The first `real` of `bytes` bytes are those of `text`, the others zero. Not instrumented: it looks too early on purpose, and
/// the executor poisons what a copy has not brought yet.
__attribute__((no_sanitize("address"))) bool is_text(std::byte const* at,
                                                     char const* text,
                                                     std::size_t real,
                                                     std::size_t bytes)
{
  bool same = true;
  for (std::size_t i = 0; i < bytes; ++i) {
    same = same && at[i] == (i < real ? static_cast<std::byte>(text[i]) : std::byte{0});
  }
  return same;
}

}  // namespace

TEST_CASE("isa: ldmatrix brings each element to its lane", "[core][isa]")
{
  check_ldmatrix<1>(1);
  check_ldmatrix<2>(2);
  check_ldmatrix<4>(3);
}

TEST_CASE("isa: the bytes of cp.async appear at the wait that covers them, with zeros behind",
          "[core][isa]")
{
  alignas(16) static constexpr char text[] = "0123456789abcdefghijklmnopqrstuvwxyz+-*";
  std::array<bool, 6> early{};
  std::array<bool, 6> landed{};
  simt::launch(1, 32, 64, [&](simt::Block& block) {
    auto& warp = block.warp();
    if (block.thread() == 5) {
      std::byte* const to = block.shared();
      isa::cp_async<16>(warp, to, text);
      isa::cp_async_commit(warp);
      isa::cp_async<16, isa::Cache::all>(warp, to + 16, text + 16, 7);
      isa::cp_async<8>(warp, to + 32, text, 5);
      isa::cp_async<8>(warp, to + 40, text + 8);
      isa::cp_async_commit(warp);
      isa::cp_async<4>(warp, to + 48, text + 4, 0);
      isa::cp_async<4>(warp, to + 52, text + 8);
      isa::cp_async_commit(warp);
      auto const look = [&](std::array<bool, 6>& seen) {
        seen = {is_text(to, text, 16, 16),
                is_text(to + 16, text + 16, 7, 16),
                is_text(to + 32, text, 5, 8),
                is_text(to + 40, text + 8, 8, 8),
                is_text(to + 48, text, 0, 4),
                is_text(to + 52, text + 8, 4, 4)};
      };
      look(early);
      isa::cp_async_wait<1>(warp);
      look(landed);
      std::array<bool, 6> const middle = landed;
      isa::cp_async_wait<0>(warp);
      look(landed);
      for (std::size_t i = 0; i < landed.size(); ++i) {  // of the last group only now
        landed[i] = landed[i] && middle[i] == (i < 4);
      }
    }
  });
  CHECK(std::none_of(early.begin(), early.end(), [](bool seen) { return seen; }));
  CHECK(std::all_of(landed.begin(), landed.end(), [](bool seen) { return seen; }));
}

TEST_CASE("isa: what passes by L1 is what was there", "[core][isa]")
{
  alignas(16) std::uint32_t from[4] = {1, 2, 3, 4};
  alignas(16) std::uint32_t to[7] = {};
  std::uint32_t one[1];
  std::uint32_t two[2];
  std::uint32_t four[4];
  isa::load_once(one, from + 3);
  isa::load_once(two, from + 2);
  isa::load_once(four, from);
  isa::store_once(to, four);
  isa::store_once(to + 4, two);
  isa::store_once(to + 6, one);
  CHECK(std::vector<std::uint32_t>(to, to + 7) == std::vector<std::uint32_t>{1, 2, 3, 4, 3, 4, 4});
}

TEST_CASE("isa: atomics return what was there, and lose nothing between threads", "[core][isa]")
{
  std::int32_t n = -3;
  CHECK(isa::atomic_add(&n, 5) == -3);
  CHECK(isa::atomic_max(&n, 1) == 2);
  CHECK(isa::atomic_max<isa::Order::acq_rel>(&n, 7) == 2);
  CHECK(isa::atomic_cas(&n, 6, 9) == 7);
  CHECK(n == 7);
  CHECK(isa::atomic_cas<isa::Order::acq_rel>(&n, 7, 9) == 7);
  CHECK(n == 9);
  std::uint32_t large = 0x80000000U;
  CHECK(isa::atomic_max(&large, 1U) == 0x80000000U);
  CHECK(large == 0x80000000U);
  std::uint64_t wide = 1ULL << 40;
  CHECK(isa::atomic_cas(&wide, 1ULL << 40, 3ULL) == 1ULL << 40);
  CHECK(wide == 3);

  float sum = 0.5F;
  CHECK(isa::atomic_add<isa::Order::acq_rel>(&sum, 1.0F) == 0.5F);
  std::uint32_t count = 0;
  std::int32_t highest = -1;
  std::vector<std::thread> threads;
  for (std::int32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int32_t i = 0; i < 10000; ++i) {
        isa::atomic_add(&sum, 1.0F);
        isa::atomic_add<isa::Order::acq_rel>(&count, 1U);
        isa::atomic_max(&highest, 4 * i + t);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(sum == 40001.5F);
  CHECK(count == 40000);
  CHECK(highest == 39999);
}
