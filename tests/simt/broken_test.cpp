// SPDX-License-Identifier: Apache-2.0
// Kernels that lack a barrier, a wait or an atomic, or that touch what is not theirs. On fibers some order gives a wrong
// result; ThreadSanitizer sees the race in whatever order it runs; what must not be touched ends a child process.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "simt/kernels.hpp"
#include "support/catch.hpp"
#include "support/last_words.hpp"
#include "support/simt/simt.hpp"

using namespace simt_kernels;
using kvcache_test::Contains;
using kvcache_test::last_words;

namespace {

alignas(16) std::byte const source[16] = {};

struct Launch {
  int32_t blocks;
  int32_t threads;
  std::size_t shared_bytes;
};

/// `out` is what the kernel writes. Right in every order, for `kernel`; not so for `twin`.
template <class Kernel>
void expect_twin_found(Launch const& size,
                       Kernel const& kernel,
                       Kernel const& twin,
                       std::vector<int32_t>& out)
{
  auto const run = [&](Kernel const& one, simt::Options const& options) {
    std::fill(out.begin(), out.end(), 0);
    simt::launch(size.blocks, size.threads, size.shared_bytes, one, options);
    return out;
  };
  std::vector<int32_t> const right = run(kernel, {});
  if (simt::has_tsan) {
    CHECK_THAT(last_words([&] { run(twin, {}); }), Contains("data race"));
    return;
  }
  std::vector<std::string> found;
  for (simt::Options const& options : simt::schedules()) {
    INFO(to_string(options));
    CHECK(run(kernel, options) == right);
    if (run(twin, options) != right) {
      found.push_back(to_string(options));
    }
  }
  CHECK_FALSE(found.empty());
}

/// What a touch of forbidden memory says, by build.
std::string forbidden()
{
  return simt::has_asan ? "AddressSanitizer" : "outside its memory";
}

}  // namespace

TEST_CASE("Simt: a missing block barrier is found", "[simt]")
{
  std::vector<int32_t> const in(256, 3);
  std::vector<int32_t> out(8);
  expect_twin_found(
    {4, 64, 8}, BlockSum{in.data(), out.data()}, BlockSum{in.data(), out.data(), false}, out);
  std::vector<int32_t> scan(256);
  expect_twin_found(
    {4, 64, 8}, BlockScan{in.data(), scan.data()}, BlockScan{in.data(), scan.data(), false}, scan);
}

TEST_CASE("Simt: a missing warp sync is found", "[simt]")
{
  std::vector<int32_t> in(128);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<int32_t>(i);
  }
  std::vector<int32_t> out(128);
  expect_twin_found({2, 64, 256},
                    WarpReverse{in.data(), out.data()},
                    WarpReverse{in.data(), out.data(), false},
                    out);
  // Lanes that wait for each other in a shuffle are in step on any engine; only the sanitizer knows that no memory is ordered.
  if (simt::has_tsan) {
    expect_twin_found({2, 64, 256},
                      WarpReverse{in.data(), out.data(), true, true},
                      WarpReverse{in.data(), out.data(), false, true},
                      out);
  }
}

TEST_CASE("Simt: a race in shared memory is found", "[simt]")
{
  std::vector<int32_t> in(512);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<int32_t>(i * i % 7);
  }
  std::vector<int32_t> out(7);
  Histogram const kernel{in.data(), 512, out.data(), 7};
  Histogram twin = kernel;
  twin.atomic = false;
  expect_twin_found({2, 64, 28}, kernel, twin, out);
}

TEST_CASE("Simt: a slot that is filled before it is used up is found", "[simt]")
{
  std::vector<int32_t> out(32);
  ProducerConsumer const kernel{out.data(), 6};
  ProducerConsumer twin = kernel;
  twin.slots = 1;
  expect_twin_found({1, 64, 256}, kernel, twin, out);
}

TEST_CASE("Simt: what is read of an asynchronous copy before its wait, or its barrier, is found",
          "[simt]")
{
  using Without = DoubleBuffer::Without;
  int32_t const tiles = 5;
  std::vector<int32_t> in(4 * 64 * tiles);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<int32_t>(i + 1);
  }
  std::vector<DoubleBuffer::Piece> from(64 * tiles);
  std::memcpy(from.data(), in.data(), in.size() * 4);
  std::vector<DoubleBuffer::Piece> to(64 * tiles);
  for (Without const without :
       {Without::wait, Without::commit, Without::barrier_after_wait, Without::barrier_after_use}) {
    CAPTURE(static_cast<int>(without));
    DoubleBuffer const twin{from.data(), to.data(), tiles, without};
    auto const run = [&](simt::Options const& options) {
      simt::launch(1, 64, 2048, twin, options);
    };
    if (simt::has_tsan) {
      if (without == Without::wait || without == Without::commit) {
        // No race, or none before the wrong bytes: a thread's own copy writes when it is issued.
        run({});
        CHECK(std::memcmp(to.data(), from.data(), in.size() * 4) != 0);
      } else {
        CHECK_THAT(last_words([&] { run({}); }), Contains("data race"));
      }
      continue;
    }
    bool found = false;
    for (simt::Options const& options : simt::schedules()) {
      if (simt::has_asan) {
        found =
          found || last_words([&] { run(options); }).find("use-after-poison") != std::string::npos;
        continue;
      }
      try {
        run(options);
        found = found || std::memcmp(to.data(), from.data(), in.size() * 4) != 0;
      } catch (simt::KernelError const& error) {
        CHECK(error.fault == simt::Fault::async_target);
        found = true;
      }
    }
    CHECK(found);
  }
}

TEST_CASE("Simt: a target that is written before its copy has landed is found", "[simt]")
{
  auto const kernel = [](auto& block) {
    if (block.thread() == 3) {
      block.warp().async_copy(block.shared(), source, 4, 4);  // of 4 bytes: ASan cannot forbid them
      *shared<int32_t>(block) = 1;
      block.warp().async_commit();
      block.warp().async_wait(0);
    }
  };
  try {
    simt::launch(1, 32, 16, kernel);
    FAIL("nothing was found");
  } catch (simt::KernelError const& error) {
    CHECK(error.fault == simt::Fault::async_target);
    CHECK(error.thread == 3);
  }
}

TEST_CASE("Simt: an access outside shared memory is found", "[simt]")
{
  if (simt::has_tsan) {
    SUCCEED("the other builds look at addresses");
    return;
  }
  // 128 bytes and more behind, or right before with the guard on that side, is a page that is not there.
  auto const touch = [](std::ptrdiff_t at, bool write, simt::Order order) {
    return [=] {
      int32_t sink = 0;
      auto const kernel = [&](auto& block) {
        if (block.index() == 1 && block.thread() == 37) {
          auto* const bytes = reinterpret_cast<std::byte volatile*>(block.shared());
          if (write) {
            bytes[at] = std::byte{1};
          } else {
            sink += static_cast<int32_t>(bytes[at]);
          }
        }
      };
      simt::launch(2, 64, 256, kernel, {.order = order});
    };
  };
  for (bool const write : {false, true}) {
    CHECK_THAT(last_words(touch(256, write, simt::Order::ascending)), Contains(forbidden()));
    CHECK_THAT(last_words(touch(-1, write, simt::Order::descending)), Contains(forbidden()));
    CHECK(last_words(touch(255, write, simt::Order::ascending)) == "lived on");
    CHECK(last_words(touch(0, write, simt::Order::descending)) == "lived on");
  }
  if (!simt::has_asan) {
    CHECK_THAT(last_words(touch(256, false, simt::Order::ascending)),
               Contains("block 1, thread 37"));
    // The side with slack: found once the block ends.
    for (auto const& [at, order] : {std::pair(std::ptrdiff_t{-1}, simt::Order::ascending),
                                    std::pair(std::ptrdiff_t{256}, simt::Order::descending)}) {
      try {
        touch(at, true, order)();
        FAIL("nothing was found");
      } catch (simt::KernelError const& error) {
        CHECK(error.fault == simt::Fault::overrun);
        CHECK(error.block == 1);
      }
    }
  }
}

TEST_CASE("Simt: an access outside the pool is found", "[simt]")
{
  if (simt::has_tsan) {
    SUCCEED("the other builds look at addresses");
    return;
  }
  for (simt::Guard const guard : {simt::Guard::behind, simt::Guard::before}) {
    simt::GuardedMemory const pool(4096, guard);
    auto const touch = [&](std::ptrdiff_t at) {
      simt::launch(1, 32, 0, [&](auto& block) {
        if (block.thread() == 0) {
          *(reinterpret_cast<int32_t volatile*>(pool.data()) + at / 4) = 1;
        }
      });
    };
    CHECK_THAT(last_words([&] { touch(4096); }), Contains(forbidden()));
    CHECK_THAT(last_words([&] { touch(-4); }), Contains(forbidden()));
    touch(0);
    touch(4092);
    CHECK(pool.intact());
  }
  // Slack that is written, without ASan.
  simt::GuardedMemory const odd(100);
  if (!simt::has_asan) {
    odd.data()[100] = std::byte{1};
    CHECK_FALSE(odd.intact());
  }
}

TEST_CASE("Simt: a race between blocks is found", "[simt]")
{
  std::vector<int32_t> out(1);
  auto const kernel = [&](auto& block) {
    if (block.thread() == 0) {
      out[0] = block.index();
    }
  };
  if (simt::has_tsan) {
    CHECK_THAT(last_words([&] { simt::launch(2, 32, 0, kernel); }), Contains("data race"));
  } else {
    // The last block's value stays, whichever that is.
    simt::launch(3, 32, 0, kernel);
    CHECK(out[0] == 2);
    simt::launch(3, 32, 0, kernel, {.order = simt::Order::descending});
    CHECK(out[0] == 0);
  }
}
