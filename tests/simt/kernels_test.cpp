// SPDX-License-Identifier: Apache-2.0
// Correct kernels, in every order that the executor has, against loops.

#include "simt/kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/simt/simt.hpp"

using namespace simt_kernels;

namespace {

std::vector<int32_t> numbers(std::size_t n, uint32_t bound, std::uint64_t seed)
{
  kvcache_test::Random random(seed);
  std::vector<int32_t> out(n);
  for (int32_t& x : out) {
    x = static_cast<int32_t>(random.below(bound));
  }
  return out;
}

struct Size {
  int32_t blocks;
  int32_t threads;
};
std::vector<Size> const sizes =
  simt::has_tsan ? std::vector<Size>{{3, 64}} : std::vector<Size>{{1, 32}, {3, 64}, {5, 160}};

}  // namespace

TEST_CASE("Simt: a sum and a scan of each block", "[simt]")
{
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    for (auto const [blocks, threads] : sizes) {
      auto const n = static_cast<std::size_t>(blocks * threads);
      std::vector<int32_t> const in = numbers(n, 1000, 7);
      std::vector<int32_t> sums(2 * static_cast<std::size_t>(blocks));
      std::vector<int32_t> scan(n);
      std::size_t const bytes = static_cast<std::size_t>(threads) / 32 * 4;
      simt::launch(blocks, threads, bytes, BlockSum{in.data(), sums.data()}, options);
      simt::launch(blocks, threads, bytes, BlockScan{in.data(), scan.data()}, options);
      std::vector<int32_t> sums_right;
      std::vector<int32_t> scan_right;
      for (int32_t b = 0; b < blocks; ++b) {
        int32_t sum = 0;
        for (int32_t i = 0; i < threads; ++i) {
          sum += in[static_cast<std::size_t>(b * threads + i)];
          scan_right.push_back(sum);
        }
        sums_right.push_back(sum);
        sums_right.push_back(sum);
      }
      CHECK(sums == sums_right);
      CHECK(scan == scan_right);
    }
  }
}

TEST_CASE("Simt: lanes exchange through shared memory, with a warp sync between", "[simt]")
{
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    for (auto const [blocks, threads] : sizes) {
      auto const n = static_cast<std::size_t>(blocks * threads);
      std::vector<int32_t> const in = numbers(n, 1000000, 8);
      std::vector<int32_t> out(n);
      simt::launch(blocks,
                   threads,
                   static_cast<std::size_t>(threads) * 4,
                   WarpReverse{in.data(), out.data()},
                   options);
      std::vector<int32_t> right = in;
      for (std::size_t i = 0; i < n; i += 32) {
        auto const at = right.begin() + static_cast<std::ptrdiff_t>(i);
        std::reverse(at, at + 32);
      }
      CHECK(out == right);
    }
  }
}

TEST_CASE("Simt: a histogram with atomics in shared and in global memory", "[simt]")
{
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    for (auto const [blocks, threads] : sizes) {
      std::vector<int32_t> const in = numbers(1000, 70, 9);
      std::vector<int32_t> counts(70);
      simt::launch(blocks, threads, 70 * 4, Histogram{in.data(), 1000, counts.data(), 70}, options);
      std::vector<int32_t> right(70);
      for (int32_t const x : in) {
        ++right[static_cast<std::size_t>(x)];
      }
      CHECK(counts == right);
    }
  }
}

TEST_CASE("Simt: a copy through two buffers with asynchronous copies", "[simt]")
{
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    for (int32_t const tiles : {1, 2, 7}) {
      for (int32_t const threads : {32, 96}) {
        auto const pieces = static_cast<std::size_t>(tiles * threads);
        std::vector<int32_t> const in = numbers(4 * pieces, 1000000, 10);
        std::vector<DoubleBuffer::Piece> from(pieces);
        std::copy(in.begin(), in.end(), from[0].x);
        std::vector<DoubleBuffer::Piece> to(pieces);
        simt::launch(1,
                     threads,
                     static_cast<std::size_t>(threads) * 32,
                     DoubleBuffer{from.data(), to.data(), tiles},
                     options);
        CHECK(std::equal(in.begin(), in.end(), to[0].x));
      }
    }
  }
}

TEST_CASE("Simt: an asynchronous copy fills what is not real with zeros", "[simt]")
{
  std::vector<int32_t> const in = {1, 2, 3, 4};
  std::vector<int32_t> out(4);
  auto const kernel = [&](auto& block) {
    auto* const buffer = shared<int32_t>(block);
    if (block.thread() == 0) {
      block.warp().async_copy(buffer, in.data(), 16, 8);
      block.warp().async_commit();
      block.warp().async_wait(0);
      std::copy(buffer, buffer + 4, out.data());
    }
  };
  simt::launch(1, 32, 16, kernel);
  CHECK(out == std::vector<int32_t>{1, 2, 0, 0});
}

TEST_CASE("Simt: warps that make and warps that use, with named barriers", "[simt]")
{
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    for (int32_t const threads : {64, 128}) {
      for (int32_t const rounds : {1, 2, 9}) {
        int32_t const half = threads / 2;
        std::vector<int32_t> out(static_cast<std::size_t>(half));
        simt::launch(1,
                     threads,
                     static_cast<std::size_t>(threads) * 4,
                     ProducerConsumer{out.data(), rounds},
                     options);
        std::vector<int32_t> right;
        for (int32_t lane = 0; lane < half; ++lane) {
          right.push_back(1000 * rounds * (rounds - 1) / 2 + rounds * ((lane + 1) % half));
        }
        CHECK(out == right);
      }
    }
  }
}

TEST_CASE("Simt: parts of a warp go different ways, each with its mask", "[simt]")
{
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    int32_t const threads = 96;
    std::vector<int32_t> sums(96);
    std::vector<uint32_t> ballots(96);
    simt::launch(1, threads, 0, HalfWarps{sums.data(), ballots.data()}, options);
    std::vector<int32_t> sums_right;
    std::vector<uint32_t> ballots_right;
    for (int32_t thread = 0; thread < threads; ++thread) {
      int32_t const first = thread / 16 * 16;
      sums_right.push_back(16 * first + 120);
    }
    for (int32_t thread = 0; thread < threads; ++thread) {
      uint32_t ballot = 0;
      for (int32_t lane = 0; lane < 32; ++lane) {
        bool const said =
          sums_right[static_cast<std::size_t>(thread / 32 * 32 + lane)] % 3 == 0 || lane == 7;
        ballot |= (said ? 1U : 0U) << lane;
      }
      ballots_right.push_back(ballot);
    }
    CHECK(sums == sums_right);
    CHECK(ballots == ballots_right);
  }
}

TEST_CASE("Simt: a lane sees what every lane of the mask gave, and shuffles 8 bytes", "[simt]")
{
  struct Given {
    std::uint64_t x[8];
  };
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    std::vector<std::uint64_t> wrong(64);
    auto const kernel = [&](auto& block) {
      auto& warp = block.warp();
      auto const me = static_cast<std::uint64_t>(block.thread());
      uint32_t const mask = warp.lane() % 2 == 0 ? 0x55555555U : 0xaaaaaaaaU;
      Given all[32] = {};
      for (std::uint64_t round = 1; round < 4; ++round) {
        warp.exchange(mask, Given{{me * round, 0, 0, 0, 0, 0, 0, me}}, all);
        for (std::uint64_t lane = 0; lane < 32; ++lane) {
          std::uint64_t const other = me / 32 * 32 + lane;
          bool const seen = (mask >> lane & 1) != 0;
          wrong[me] +=
            all[lane].x[0] != (seen ? other * round : 0) || all[lane].x[7] != (seen ? other : 0)
              ? 1
              : 0;
        }
        std::uint64_t const high = warp.shuffle_down(me << 40, 2, mask);
        wrong[me] += high != (me % 32 < 30 ? me + 2 : me) << 40 ? 1 : 0;
      }
    };
    simt::launch(1, 64, 0, kernel, options);
    CHECK(wrong == std::vector<std::uint64_t>(64));
  }
}

TEST_CASE(
  "Simt: blocks know their index, and shared memory is aligned and not what another block left",
  "[simt]")
{
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    std::vector<int32_t> seen(5);
    auto const kernel = [&](auto& block) {
      if (block.thread() == 0) {
        bool const aligned = reinterpret_cast<std::uintptr_t>(block.shared()) % 128 == 0;
        bool const fresh = *shared<int32_t>(block) == -1;
        *shared<int32_t>(block) = 5;
        seen[static_cast<std::size_t>(block.index())] = aligned && fresh ? block.blocks() : -1;
      }
    };
    simt::launch(5, 32, 20, kernel, options);
    CHECK(seen == std::vector<int32_t>(5, 5));
  }
}
