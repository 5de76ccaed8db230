// SPDX-License-Identifier: Apache-2.0
// What the executor reports as an error, with the thread, the barrier and the block; in every order, and on threads too.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "simt/kernels.hpp"
#include "support/catch.hpp"
#include "support/simt/simt.hpp"

using namespace simt_kernels;
using kvcache_test::Contains;
using simt::Fault;

namespace {

std::vector<simt::Options> all_ways()
{
  std::vector<simt::Options> out = simt::schedules();
  if (!simt::has_tsan) {
    out.push_back({.threads = true});
  }
  return out;
}

struct Found {
  Fault fault;
  int32_t barrier;
  char const* text;
};

/// Runs 3 blocks; the kernel is to break in block 1 only, whichever runs first.
template <class Kernel>
void expect_fault(Kernel const& kernel, Found const& found, int32_t threads = 64)
{
  for (simt::Options const& options : all_ways()) {
    INFO(to_string(options));
    try {
      simt::launch(3, threads, 1024, kernel, options);
      FAIL("nothing was found");
    } catch (simt::KernelError const& error) {
      CHECK(error.fault == found.fault);
      CHECK(error.block == 1);
      CHECK(error.barrier == found.barrier);
      CHECK((error.thread >= 0 && error.thread < threads));
      CHECK_THAT(error.what(),
                 kvcache_test::StartsWith("block 1: thread " + std::to_string(error.thread) + " "));
      CHECK_THAT(error.what(), Contains(found.text));
    }
  }
}

alignas(16) std::byte const source[32] = {};

/// 16 bytes of the thread's own.
template <class B>
std::byte* place(B& block)
{
  return block.shared() + 16 * block.thread();
}
template <class B>
bool broken(B const& block)
{
  return block.index() == 1;
}

}  // namespace

TEST_CASE("Simt: a barrier that some threads do not reach, because they left", "[simt]")
{
  expect_fault(
    [](auto& block) {
      if (!broken(block) || block.thread() < 40) {
        block.sync();
      }
    },
    {Fault::divergent_barrier, 0, "left the kernel"});
  // They leave late, when others have passed a barrier already.
  expect_fault(
    [](auto& block) {
      block.sync();
      if (broken(block) && block.warp().index() == 1) {
        return;
      }
      block.sync();
    },
    {Fault::divergent_barrier, 0, "left the kernel"});
}

TEST_CASE("Simt: a barrier that some threads do not reach, because they wait elsewhere", "[simt]")
{
  expect_fault(
    [](auto& block) {
      if (broken(block) && block.warp().index() == 1) {
        block.sync(3, 64);
      } else {
        block.sync();
      }
    },
    {Fault::divergent_barrier, 0, "thread 32 to 63 at barrier 3, where 32 of 64 came"});
  expect_fault(
    [](auto& block) { block.sync(broken(block) && block.warp().index() == 0 ? 2 : 1, 64); },
    {Fault::divergent_barrier, 2, "thread 32 to 63 at barrier 1, where 32 of 64 came"});
  // A half of a warp waits for the block, the other half for its warp.
  expect_fault(
    [](auto& block) {
      if (broken(block) && block.warp().lane() < 16) {
        block.sync();
      }
      block.warp().sync();
      if (!broken(block) || block.warp().lane() >= 16) {
        block.sync();
      }
    },
    {Fault::absent_lane, -1, "thread 0 to 15 at barrier 0, where 32 of 64 came"});
}

TEST_CASE("Simt: a named barrier with a wrong count", "[simt]")
{
  expect_fault([](auto& block) { block.sync(1, broken(block) ? 96 : 64); },
               {Fault::barrier_count, -1, "for whole warps of the block"});
  expect_fault([](auto& block) { block.sync(1, broken(block) ? 40 : 64); },
               {Fault::barrier_count, -1, "asks for barrier 1 with 40 threads"});
  expect_fault([](auto& block) { block.sync(broken(block) ? 16 : 15, 64); },
               {Fault::barrier_count, -1, "named barriers are 1 to 15"});
  // Two threads with two counts.
  expect_fault(
    [](auto& block) { block.sync(1, broken(block) && block.warp().index() == 1 ? 64 : 96); },
    {Fault::barrier_count, 1, "others wait there"},
    96);
  // Too many: nobody else comes.
  expect_fault(
    [](auto& block) {
      if (block.warp().index() < 2) {
        block.sync(1, broken(block) ? 96 : 64);
      }
    },
    {Fault::divergent_barrier, 1, "at barrier 1, where 64 of 96 came"},
    96);
  // Too few: 64 threads of three warps have come, of some a part only.
  expect_fault(
    [](auto& block) {
      if (!broken(block) || block.warp().lane() < 16) {
        block.sync(1, broken(block) ? 32 : 64);
      }
    },
    {Fault::barrier_count, 1, "barriers count whole warps"});
}

TEST_CASE("Simt: a call of a warp that names a lane which does not take part", "[simt]")
{
  expect_fault(
    [](auto& block) {
      if (broken(block) && block.warp().lane() == 5) {
        return;
      }
      block.warp().shuffle(1, 0, kvcache::all_lanes);
    },
    {Fault::absent_lane, -1, "left the kernel"},
    32);
  expect_fault(
    [](auto& block) {
      if (!broken(block) || block.warp().lane() != 5) {
        block.warp().shuffle(1, 0, kvcache::all_lanes);
      }
      block.sync();
      if (broken(block) && block.warp().lane() == 5) {
        block.warp().shuffle(1, 0, kvcache::all_lanes);
      }
    },
    {Fault::absent_lane, -1, "no thread can go on"});
  // Each lane with its own idea of who takes part.
  expect_fault(
    [](auto& block) {
      block.warp().sync(broken(block) && block.warp().lane() < 8 ? 0xffU : kvcache::all_lanes);
      block.sync();
    },
    {Fault::absent_lane, -1, "lanes 0xffffffff"});
}

TEST_CASE("Simt: lanes of one mask that make different calls", "[simt]")
{
  expect_fault(
    [](auto& block) {
      if (broken(block) && block.warp().lane() % 2 == 1) {
        block.warp().sync();
      } else {
        block.warp().shuffle(1, 0, kvcache::all_lanes);
      }
    },
    {Fault::lanes_disagree, -1, "makes another call"});
  expect_fault(
    [](auto& block) {
      if (broken(block) && block.warp().lane() % 2 == 1) {
        block.warp().shuffle(1.0, 0, kvcache::all_lanes);
      } else {
        block.warp().shuffle(1.0F, 0, kvcache::all_lanes);
      }
    },
    {Fault::lanes_disagree, -1, "makes another call"});
}

TEST_CASE("Simt: arguments that no GPU takes", "[simt]")
{
  expect_fault(
    [](auto& block) { block.warp().sync(broken(block) ? 0xfffffffeU : kvcache::all_lanes); },
    {Fault::bad_argument, -1, "leaves out the caller"});
  expect_fault(
    [](auto& block) {
      if (block.warp().lane() < 16) {
        block.warp().shuffle_xor(1, broken(block) ? 16 : 8, 0xffffU);
      }
    },
    {Fault::bad_argument, -1, "which the mask leaves out"});
  expect_fault(
    [](auto& block) {
      block.warp().async_copy(place(block), source + (broken(block) ? 8 : 0), 16, 16);
    },
    {Fault::bad_argument, -1, "no multiple of the bytes"});
  expect_fault(
    [](auto& block) {
      block.warp().async_copy(place(block) + (broken(block) ? 1024 : 0), source, 16, 16);
    },
    {Fault::bad_argument, -1, "outside the shared memory"});
  expect_fault(
    [](auto& block) { block.warp().async_copy(place(block), source, broken(block) ? 12 : 8, 8); },
    {Fault::bad_argument, -1, "4, 8 or 16 bytes"});
  CHECK_THROWS_AS(simt::launch(1, 40, 0, [](auto&) {}), std::invalid_argument);
  CHECK_THROWS_AS(simt::launch(1, 2048, 0, [](auto&) {}), std::invalid_argument);
}

TEST_CASE("Simt: what a kernel throws comes out, and the next launch runs", "[simt]")
{
  for (simt::Options const& options : all_ways()) {
    INFO(to_string(options));
    auto const kernel = [](auto& block) {
      block.sync();
      if (block.thread() == 33) {
        throw std::out_of_range("thirty-three");
      }
      block.sync();
    };
    CHECK_THROWS_WITH(simt::launch(2, 64, 0, kernel, options), "thirty-three");
    std::vector<int32_t> out(2);
    std::vector<int32_t> const in(64, 1);
    simt::launch(1, 64, 8, BlockSum{in.data(), out.data()}, options);
    CHECK(out == std::vector<int32_t>{64, 64});
  }
}
