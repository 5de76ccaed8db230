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

TEST_CASE("HostDevice: upload and fill write what they say and nothing beside",
          "[device][host_device]")
{
  kvcache::HostDevice host;
  std::vector<std::byte> memory(64, std::byte{0xaa});
  std::vector<std::byte> const source = counted_up(8);
  host.upload(memory.data() + 8, source.data(), 8, {});
  host.fill(memory.data() + 32, std::byte{7}, 16, {});
  for (std::size_t i = 0; i < memory.size(); ++i) {
    std::byte const want = i >= 8 && i < 16    ? static_cast<std::byte>(i - 8)
                           : i >= 32 && i < 48 ? std::byte{7}
                                               : std::byte{0xaa};
    CHECK(memory[i] == want);
  }
}

namespace {

/// A block with one list of each kind, as a pool would upload it, and its cell.
struct Block {
  alignas(8) std::byte bytes[2048]{};
  std::byte* cell = bytes;
  kvcache::LaunchLists lists;
  std::size_t end = sizeof(kvcache::LaunchLists);

  template <class Record>
  kvcache::LaunchList add(std::vector<Record> const& records)
  {
    kvcache::LaunchList const list{end, records.size()};
    if (!records.empty()) {
      std::memcpy(bytes + end, records.data(), records.size() * sizeof(Record));
    }
    end += records.size() * sizeof(Record);
    return list;
  }
  kvcache::LaunchCell ready()
  {
    std::memcpy(bytes, &lists, sizeof lists);
    return &cell;
  }
};

}  // namespace

TEST_CASE("HostDevice: words go from the block to where each run says", "[device][host_device]")
{
  kvcache::HostDevice host;
  std::vector<std::int32_t> target(10, -5);
  Block block;
  std::size_t const words = block.add<std::int32_t>({10, 11, 12, 13}).at;
  block.lists.words = block.add<kvcache::WordRun>(
    {{target.data() + 1, words + 4, 3}, {target.data() + 6, words, 2}, {target.data(), words, 0}});
  host.write_words(block.ready(), {});
  CHECK(target == std::vector<std::int32_t>{-5, 11, 12, 13, -5, -5, 10, 11, -5, -5});
  host.move_rows(block.ready(), {});  // empty lists
  host.copy_pages(block.ready(), {});
  host.count_up(block.ready(), {});
}

TEST_CASE("HostDevice: a strided copy moves each block and skips what lies between",
          "[device][host_device]")
{
  kvcache::HostDevice host;
  std::vector<std::byte> const source = counted_up(96);
  std::vector<std::byte> target(96, std::byte{0xff});
  Block block;
  block.lists.copies =
    block.add<kvcache::StridedCopy>({{source.data(), target.data(), 4, 32, 3},
                                     {source.data() + 10, target.data() + 10, 2, 50, 2},
                                     {source.data(), target.data() + 20, 0, 8, 5}});
  host.copy_pages(block.ready(), {});
  for (std::size_t i = 0; i < target.size(); ++i) {
    bool const first = i % 32 < 4;
    bool const second = (i >= 10 && i < 12) || (i >= 60 && i < 62);
    CHECK(target[i] == (first || second ? source[i] : std::byte{0xff}));
  }
}

TEST_CASE(
  "HostDevice: copies of more than a cache keeps, with and without gaps between their pieces",
  "[device][host_device]")
{
  constexpr std::size_t tile = 24576;
  constexpr std::uint32_t tiles = 150;  // of K, of V, and of what lies behind them
  constexpr std::size_t all = tile * tiles;
  kvcache::HostDevice host;
  std::vector<std::byte> source(all);
  for (std::size_t i = 0; i < all; ++i) {
    source[i] = static_cast<std::byte>(i * 0x9e3779b97f4a7c15ULL >> 56);
  }
  struct Shape {
    std::uint64_t keys, values;
  };
  // Whole tiles are one piece; rows of a page that is not full leave gaps; so does padding behind a tile.
  for (Shape const shape :
       {Shape{tile / 2, tile / 2}, {tile / 3, tile / 3}, {tile / 2, tile / 2 - 64}, {tile, 0}}) {
    CAPTURE(shape.keys, shape.values);
    std::vector<std::byte> const before(all, std::byte{0x5a});
    std::vector<std::byte> want = before;
    for (std::size_t at = 0; at < all; at += tile) {
      std::memcpy(&want[at], &source[at], shape.keys);
      std::memcpy(&want[at + tile / 2], &source[at + tile / 2], shape.values);
    }
    for (std::size_t const count :
         {std::size_t{1}, std::size_t{4}}) {  // one is copied plainly, four go past the caches
      std::vector<std::vector<std::byte>> targets(count, before);
      std::vector<kvcache::StridedCopy> copies;
      for (auto& target : targets) {
        copies.push_back({source.data(), target.data(), shape.keys, tile, tiles});
        if (shape.values != 0) {
          copies.push_back(
            {source.data() + tile / 2, target.data() + tile / 2, shape.values, tile, tiles});
        }
      }
      Block block;
      block.lists.copies = block.add(copies);
      host.copy_pages(block.ready(), {});
      for (auto const& target : targets) {
        CHECK((target == want));
      }
    }
  }
}

TEST_CASE("HostDevice: moves run in the order of the list", "[device][host_device]")
{
  kvcache::HostDevice host;
  std::vector<std::byte> memory = counted_up(64);  // two tiles of 32, rows of 4
  std::byte* const row = memory.data();
  Block block;
  block.lists.moves = block.add<kvcache::StridedCopy>(
    {{row + 8, row, 4, 32, 2}, {row + 16, row + 8, 4, 32, 2}, {row + 8, row + 28, 4, 32, 2}});
  host.move_rows(block.ready(), {});
  for (std::size_t tile = 0; tile < 64; tile += 32) {
    CHECK(memory[tile] == static_cast<std::byte>(tile + 8));
    CHECK(memory[tile + 8] == static_cast<std::byte>(tile + 16));
    CHECK(memory[tile + 28] == static_cast<std::byte>(tile + 16));
    CHECK(memory[tile + 16] == static_cast<std::byte>(tile + 16));
  }
}

TEST_CASE("HostDevice: places are counted up from the length, inside the slack",
          "[device][host_device]")
{
  kvcache::HostDevice host;
  std::int32_t lengths[5] = {7, 7, 2, 90, 1 << 30};
  std::vector<std::int32_t> target(12, -9);
  Block block;
  block.lists.runs = block.add<kvcache::IndexRun>({{lengths, target.data(), 8, 3, 2},
                                                   {lengths + 1, target.data() + 2, 4, 0, 3},
                                                   {lengths + 2, target.data() + 5, 9, 3, 2},
                                                   {lengths + 3, target.data() + 7, 9, 3, 1},
                                                   {lengths + 4, target.data() + 8, 0, 0, 3}});
  host.count_up(block.ready(), {});
  CHECK(target == std::vector<std::int32_t>{7, 8, 4, 5, 6, 6, 7, 9, 0, 1, 2, -9});
  CHECK(std::vector<std::int32_t>(lengths, lengths + 5) ==
        std::vector<std::int32_t>{9, 7, 8, 10, 3});
}
