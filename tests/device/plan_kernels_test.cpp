// SPDX-License-Identifier: Apache-2.0
// The kernels of a plan's launches against HostDevice, byte for byte, on lists of any lengths and records of any sizes.

#include <kvcache/device/host_device.hpp>
#include <kvcache/device/launch_lists.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/simt/guarded_memory.hpp"
#include "support/simt_device.hpp"

namespace {

using kvcache::IndexRun;
using kvcache::LaunchList;
using kvcache::LaunchLists;
using kvcache::StridedCopy;
using kvcache::WordRun;
using kvcache_test::Random;
using kvcache_test::SimtGrid;
using SimtDevice = kvcache_test::SimtDeviceOver<kvcache::HostDevice>;

/// Lists and what they work on, in memory whose neighbours no one may touch. Two of the same seed hold the same, each at
/// its own place.
class World {
 public:
  static constexpr std::size_t bytes = std::size_t{160} << 10;

  explicit World(std::uint64_t seed) : random_(seed), memory_(bytes), block_(std::size_t{96} << 10)
  {
    for (std::size_t i = 0; i < bytes; i += 8) {
      std::uint64_t const word = random_.next();
      std::memcpy(memory_.data() + i, &word, sizeof word);
    }
    end_ = sizeof(LaunchLists);
  }

  Random& random() { return random_; }
  std::byte* at(std::size_t byte) { return memory_.data() + byte; }
  template <class Record>
  LaunchList add(std::vector<Record> const& records)
  {
    LaunchList const list{end_, records.size()};
    if (!records.empty()) {
      std::memcpy(block_.data() + end_, records.data(), records.size() * sizeof(Record));
    }
    end_ += (records.size() * sizeof(Record) + 7) / 8 * 8;
    return list;
  }
  kvcache::LaunchCell ready(LaunchLists const& lists)
  {
    std::memcpy(block_.data(), &lists, sizeof lists);
    cell_ = block_.data();
    return &cell_;
  }
  std::vector<std::byte> content() { return {memory_.data(), memory_.data() + bytes}; }

 private:
  Random random_;
  simt::GuardedMemory memory_;
  simt::GuardedMemory block_;
  std::size_t end_;
  std::byte* cell_ = nullptr;
};

std::vector<SimtGrid> grids(std::uint64_t seed)
{
  std::vector<SimtGrid> out;
  for (simt::Options const& options : simt::schedules(seed, 1)) {
    out.push_back({2, 32, options});
    if (!simt::has_tsan) {  // where each GPU thread is one of the machine
      out.push_back({3, 64, options});
      out.push_back({1, 256, options});
    }
  }
  return out;
}

constexpr std::uint64_t seeds = simt::has_tsan ? 4 : 30;

/// Makes one world for the host and one for each grid, and runs `launch` on all.
template <class Make, class Launch>
void check_same(std::uint64_t seed, Make make, Launch launch)
{
  kvcache::HostDevice host;
  World right(seed);
  auto const before = right.content();
  launch(host, right.ready(make(right)));
  auto const want = right.content();
  for (SimtGrid const& grid : grids(seed)) {
    CAPTURE(seed, grid.blocks, grid.threads, simt::to_string(grid.options));
    SimtDevice device(grid);
    World world(seed);
    REQUIRE(world.content() == before);
    launch(device, world.ready(make(world)));
    REQUIRE((world.content() == want));
  }
}

/// How many records a list has: none, a few, more than a warp has lanes.
std::uint32_t some_count(Random& random)
{
  constexpr std::uint32_t most[] = {1, 4, 33, 100};
  return random.below(most[random.below(4)] + 1);
}

void words(kvcache::Device& device, kvcache::LaunchCell cell)
{
  device.write_words(cell, {});
}
void moves(kvcache::Device& device, kvcache::LaunchCell cell)
{
  device.move_rows(cell, {});
}
void copies(kvcache::Device& device, kvcache::LaunchCell cell)
{
  device.copy_pages(cell, {});
}
void runs(kvcache::Device& device, kvcache::LaunchCell cell)
{
  device.count_up(cell, {});
}

/// Runs of words next to each other, some empty, some of thousands.
LaunchLists word_runs(World& world)
{
  Random& random = world.random();
  std::vector<std::int32_t> source(6000);
  for (auto& word : source) {
    word = static_cast<std::int32_t>(random.next());
  }
  LaunchLists lists;
  std::uint64_t const source_at = world.add(source).at;
  std::vector<WordRun> out(some_count(random));
  std::size_t to = 0;
  for (WordRun& run : out) {
    constexpr std::uint32_t most[] = {1, 3, 300, 6000};
    std::uint32_t const n = random.below(most[random.below(4)] + 1);
    bool const fits = to + 4 * n <= World::bytes;
    run = {reinterpret_cast<std::int32_t*>(world.at(to)),
           source_at + 4 * random.below(6001 - n),
           fits ? n : 0};
    to += 4 * run.words;
  }
  lists.words = world.add(out);
  return lists;
}

/// Copies from the first half of the memory to the second: what one writes no other reads or writes.
LaunchLists page_copies(World& world)
{
  Random& random = world.random();
  LaunchLists lists;
  std::vector<StridedCopy> out(some_count(random));
  std::size_t to = World::bytes / 2;
  for (StridedCopy& copy : out) {
    constexpr std::uint32_t most[] = {0, 1, 40, 700};
    std::uint64_t const bytes = 16 * std::uint64_t{random.below(most[random.below(4)] + 1)};
    std::uint64_t const stride = bytes + 16 * std::uint64_t{random.below(3)};
    auto blocks = random.below(random.below(2) == 0 ? 3 : 80);
    while (to + stride * blocks > World::bytes || stride * blocks > World::bytes / 2) {
      blocks /= 2;
    }
    std::uint64_t const free = World::bytes / 2 - stride * blocks;
    copy = {world.at(16 * random.below(static_cast<std::uint32_t>(free / 16 + 1))),
            world.at(to),
            bytes,
            stride,
            blocks};
    to += stride * blocks;
  }
  lists.copies = world.add(out);
  return lists;
}

/// Rows that move between few places in tiles of 32 rows: most lists hold chains.
LaunchLists row_moves(World& world)
{
  Random& random = world.random();
  constexpr std::uint32_t rows = 32;
  std::uint32_t const row_bytes = 16 * random.between(1, random.below(2) == 0 ? 2 : 20);
  std::uint32_t const tile = rows * row_bytes;
  std::uint32_t const tiles = random.between(1, random.below(8) == 0 ? 15 : 6);
  std::uint32_t const places = random.between(2, rows);
  LaunchLists lists;
  std::vector<StridedCopy> out(some_count(random));
  for (StridedCopy& move : out) {
    std::uint32_t const from = random.below(places);
    std::uint32_t const to = random.below(places);
    bool const stays = from == to || random.below(5) == 0;
    move = {world.at(std::size_t{from} * row_bytes),
            world.at(std::size_t{to} * row_bytes),
            stays ? 0U : row_bytes,
            tile,
            random.below(9) == 0 ? random.below(tiles + 1) : tiles};
  }
  lists.moves = world.add(out);
  return lists;
}

/// Chunks whose lengths the device may hold lower, or not know yet.
LaunchLists index_runs(World& world)
{
  Random& random = world.random();
  LaunchLists lists;
  std::vector<IndexRun> out(some_count(random));
  std::size_t to = 4 * out.size();
  std::size_t length = 0;
  for (IndexRun& run : out) {
    auto const first = static_cast<std::int32_t>(random.below(1000));
    auto const n = static_cast<std::int32_t>(random.below(random.below(9) == 0 ? 3000 : 70));
    auto const slack = static_cast<std::int32_t>(random.below(9));
    auto const held = static_cast<std::int32_t>(random.below(1010));
    std::memcpy(world.at(length), &held, 4);
    run = {reinterpret_cast<std::int32_t*>(world.at(length)),
           reinterpret_cast<std::int32_t*>(world.at(to)),
           first,
           slack < first ? slack : first,
           to + 4 * static_cast<std::size_t>(n) <= World::bytes ? n : 0};
    to += 4 * static_cast<std::size_t>(run.count);
    length += 4;
  }
  lists.runs = world.add(out);
  return lists;
}

}  // namespace

TEST_CASE("WriteWordsKernel: as on the host", "[device][plan_kernels]")
{
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    check_same(seed, word_runs, words);
  }
}

TEST_CASE("CopyPagesKernel: as on the host, from no bytes to pieces of many shares",
          "[device][plan_kernels]")
{
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    check_same(seed, page_copies, copies);
  }
}

TEST_CASE("MoveRowsKernel: as on the host, chains in the order of the list",
          "[device][plan_kernels]")
{
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    check_same(seed, row_moves, moves);
  }
}

TEST_CASE("CountUpKernel: as on the host, inside the slack", "[device][plan_kernels]")
{
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    check_same(seed, index_runs, runs);
  }
}

TEST_CASE("for_each_share: every share once, and no warp has two more than another",
          "[device][plan_kernels]")
{
  struct Count {
    std::uint64_t const* sizes;
    std::uint64_t records;
    std::vector<std::vector<std::int32_t>>* by;  // [record][share]: the warp that did it
    std::vector<std::uint64_t>* done;            // by warp

    void operator()(simt::Block& block) const
    {
      kvcache::detail::for_each_share(
        block,
        sizes,
        records,
        [](std::uint64_t size) { return size; },
        [&](std::uint64_t const& size, std::uint64_t share) {
          if (block.warp().lane() == 0) {
            auto const warp = kvcache::detail::GridWarps::of(block).rank;
            auto& who = (*by)[static_cast<std::size_t>(&size - sizes)][share];
            CHECK(who == -1);
            who = static_cast<std::int32_t>(warp);
            (*done)[warp] += 1;
          }
        });
    }
  };
  Random random(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> sizes(some_count(random));
    std::vector<std::vector<std::int32_t>> by;
    std::uint64_t all = 0;
    for (auto& size : sizes) {
      size = random.below(random.below(6) == 0 ? 200 : 3);
      all += size;
      by.emplace_back(size, -1);
    }
    std::vector<std::uint64_t> done(9, 0);
    simt::launch(3, 96, 0, Count{sizes.data(), sizes.size(), &by, &done}, {.threads = false});
    for (std::size_t warp = 0; warp < done.size(); ++warp) {
      CAPTURE(round, warp, all);
      CHECK(done[warp] == all / 9 + (warp < all % 9 ? 1 : 0));
    }
  }
}
