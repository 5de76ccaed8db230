// SPDX-License-Identifier: Apache-2.0

#include <kvcache/device/host_device.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/catch.hpp"

namespace {

std::vector<std::byte> counted_up(std::size_t bytes)
{
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>(i);
  }
  return out;
}

}  // namespace

TEST_CASE("HostDevice: memory is aligned and can be written", "[device][host_device]")
{
  kvcache::HostDevice host;
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{100}, std::size_t{1} << 20}) {
    std::byte* const memory = host.allocate(bytes);
    REQUIRE(memory != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % 128 == 0);
    std::memset(memory, 1, bytes);
    host.deallocate(memory, bytes);
  }
}

TEST_CASE("HostDevice: upload and zero write what they say and nothing beside",
          "[device][host_device]")
{
  kvcache::HostDevice host;
  std::vector<std::byte> memory(64, std::byte{0xaa});
  std::vector<std::byte> const source = counted_up(8);
  host.upload(memory.data() + 8, source.data(), 8, {});
  host.zero(memory.data() + 32, 16, {});
  for (std::size_t i = 0; i < memory.size(); ++i) {
    std::byte const want = i >= 8 && i < 16    ? static_cast<std::byte>(i - 8)
                           : i >= 32 && i < 48 ? std::byte{0}
                                               : std::byte{0xaa};
    CHECK(memory[i] == want);
  }
}

TEST_CASE("HostDevice: a strided copy moves each block and skips what lies between",
          "[device][host_device]")
{
  kvcache::HostDevice host;
  std::vector<std::byte> const source = counted_up(96);
  std::vector<std::byte> target(96, std::byte{0xff});
  kvcache::StridedCopy const copies[] = {{source.data(), target.data(), 4, 32, 3},
                                         {source.data() + 10, target.data() + 10, 2, 50, 2},
                                         {source.data(), target.data() + 20, 0, 8, 5}};
  host.copy(copies, 3, {});
  for (std::size_t i = 0; i < target.size(); ++i) {
    bool const first = i % 32 < 4;
    bool const second = (i >= 10 && i < 12) || (i >= 60 && i < 62);
    CHECK(target[i] == (first || second ? source[i] : std::byte{0xff}));
  }
  host.copy(nullptr, 0, {});
}
