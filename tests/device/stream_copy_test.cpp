// SPDX-License-Identifier: Apache-2.0

#include <kvcache/device/stream_copy.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

namespace {

using Sizes = std::initializer_list<std::size_t>;

std::vector<std::byte> random_bytes(std::size_t n, std::uint64_t seed)
{
  kvcache_test::Random random(seed);
  std::vector<std::byte> out(n);
  for (std::byte& byte : out) {
    byte = static_cast<std::byte>(random.next());
  }
  return out;
}

}  // namespace

TEST_CASE("stream_copy: any number of bytes, from anywhere to anywhere, and no byte beside them",
          "[device][stream_copy]")
{
  constexpr std::size_t room = 100000;  // three stretches of 32 KiB
  std::vector<std::byte> const source = random_bytes(room, 20261130);
  std::vector<std::byte> const before = random_bytes(room, 7);
  for (std::size_t const bytes : Sizes{0,
                                       1,
                                       15,
                                       63,
                                       64,
                                       65,
                                       127,
                                       128,
                                       200,
                                       1024,
                                       1088,
                                       4096,
                                       4222,
                                       32767,
                                       32768,
                                       32900,
                                       65536,
                                       98304,
                                       99900}) {
    for (std::size_t const from : Sizes{0, 1, 16, 63}) {
      for (std::size_t const to : Sizes{0, 1, 17, 48, 63, 64}) {
        CAPTURE(bytes, from, to);
        std::vector<std::byte> want = before;
        for (std::size_t i = 0; i < bytes; ++i) {
          want[to + i] = source[from + i];
        }
        std::vector<std::byte> got = before;
        kvcache::detail::stream_copy(
          got.data() + to, source.data() + from, bytes, source.data() + from);
        kvcache::detail::stream_fence();
        CHECK(got == want);
      }
    }
  }
}
