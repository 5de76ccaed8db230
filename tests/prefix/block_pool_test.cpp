// SPDX-License-Identifier: Apache-2.0
#include <kvcache/prefix/block_pool.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

using kvcache::detail::BlockPool;
using kvcache_test::Random;

namespace {

void nobody_moves(std::uint32_t, std::byte*)
{
  FAIL("a block moved");
}

/// A block that somebody holds: all its bytes are `stamp`.
struct Held {
  std::byte* memory;
  std::size_t bytes;
  unsigned char stamp;

  void fill() const { std::memset(memory, stamp, bytes); }
  [[nodiscard]] bool intact(std::size_t first, std::size_t end) const
  {
    for (std::size_t i = first; i < end; ++i) {
      if (memory[i] != std::byte{stamp}) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool intact() const { return intact(0, bytes); }
};

/// The naive model: a list of blocks that must keep what was written to them.
class Model {
 public:
  Model(std::uint64_t seed, std::size_t most) : random_(seed), most_(most) {}

  bool step()
  {
    switch (held_.empty() ? 0 : random_.below(held_.size() < 200 ? 6 : 8)) {
      case 0:
      case 1:
        take();
        return true;
      case 2:
        return extend(any());
      case 3:
        return trim(any());
      case 4:
        return trim_front(any());
      default:
        return give();
    }
  }
  bool sound() const
  {
    bool right = pool_.check_invariants() && pool_.num_blocks() == held_.size();
    for (std::size_t i = 0; i < held_.size(); ++i) {
      right = right && held_[i].intact() && BlockPool::owner(held_[i].memory) == i;
    }
    return right;
  }
  bool give_all()
  {
    bool right = true;
    while (!held_.empty()) {
      right = give() && right;
    }
    return right;
  }
  [[nodiscard]] BlockPool const& pool() const { return pool_; }
  int extended = 0;
  int cut_in_front = 0;

 private:
  std::size_t size()
  {
    std::size_t const bound = random_.below(16) == 0 ? most_ : most_ / 16;
    return 4 * (1 + random_.below(static_cast<std::uint32_t>(bound)));
  }
  std::size_t any() { return random_.below(static_cast<std::uint32_t>(held_.size())); }

  void take()
  {
    std::size_t const bytes = size();
    pool_.reserve(bytes, [this](std::uint32_t owner, std::byte* memory) {
      std::byte*& at = held_[owner].memory;
      at = memory + reinterpret_cast<std::uintptr_t>(at) % 16;
    });
    held_.push_back({pool_.take(bytes), bytes, ++stamp_});
    BlockPool::set_owner(held_.back().memory, static_cast<std::uint32_t>(held_.size() - 1));
    held_.back().fill();
  }
  bool give()
  {
    std::size_t const i = any();
    bool const right = held_[i].intact();
    pool_.give(held_[i].memory);
    held_[i] = held_.back();
    held_.pop_back();
    if (i < held_.size()) {
      BlockPool::set_owner(held_[i].memory, static_cast<std::uint32_t>(i));
    }
    return right;
  }
  bool extend(std::size_t i)
  {
    Held& block = held_[i];
    std::size_t const before = block.bytes;
    std::size_t const wanted = before + size() / 16 * 4;
    if (pool_.extend(block.memory, wanted)) {
      ++extended;
      block.bytes = wanted;
    }
    bool const right = block.intact(0, before);
    block.fill();
    return right;
  }
  bool trim(std::size_t i)
  {
    held_[i].bytes = 4 + random_.below(static_cast<std::uint32_t>(held_[i].bytes)) / 4 * 4;
    pool_.trim(held_[i].memory, held_[i].bytes);
    return held_[i].intact();
  }
  bool trim_front(std::size_t i)
  {
    std::size_t const gone = random_.below(static_cast<std::uint32_t>(held_[i].bytes)) / 4 * 4;
    std::byte* const rest = pool_.trim_front(held_[i].memory, gone);
    if (rest != nullptr) {
      ++cut_in_front;
      if (rest != held_[i].memory + gone) {
        return false;
      }
      held_[i].memory = rest;
      held_[i].bytes -= gone;
    }
    return held_[i].intact();
  }

  BlockPool pool_;
  std::vector<Held> held_;
  Random random_;
  std::size_t most_;  // words of a block
  unsigned char stamp_ = 0;
};

}  // namespace

TEST_CASE("BlockPool: random blocks keep their bytes, and everything adds up",
          "[prefix][block_pool]")
{
  for (std::uint64_t const seed : {1U, 2U, 3U, 4U}) {
    INFO("seed " << seed);
    Model model(seed, seed % 2 == 0 ? 40 : 4000);
    bool right = true;
    for (int call = 0; call < 40'000 && right; ++call) {
      right = model.step() && (call % 16 != 0 || model.sound());
    }
    CHECK(right);
    CHECK(model.extended > 100);
    CHECK(model.cut_in_front > 40);
    CHECK(model.pool().num_moves() > 40);
    CHECK(model.give_all());
    CHECK(model.sound());
    CHECK(model.pool().num_blocks() == 0);
    CHECK(model.pool().bytes_free() > model.pool().bytes() * 9 / 10);
  }
}

TEST_CASE("BlockPool: what was given back is one piece again", "[prefix][block_pool]")
{
  BlockPool pool;
  std::vector<std::byte*> blocks;
  pool.reserve(1 << 20, nobody_moves);
  std::size_t const bytes = pool.bytes();
  for (std::size_t i = 0; i < 4096; ++i) {
    pool.reserve(100, nobody_moves);
    blocks.push_back(pool.take(100));
  }
  CHECK(pool.bytes() == bytes);
  for (std::size_t i = 0; i < 4096; ++i) {  // in an order that leaves holes first
    pool.give(blocks[i * 1021 % 4096]);
  }
  CHECK(pool.check_invariants());
  pool.reserve(1 << 20, nobody_moves);
  std::byte* const whole = pool.take(1 << 20);
  CHECK(pool.bytes() == bytes);
  pool.give(whole);
}

TEST_CASE("BlockPool: a block grows where it lies if it can", "[prefix][block_pool]")
{
  BlockPool pool;
  pool.reserve(1000, nobody_moves);
  std::byte* const a = pool.take(40);
  pool.reserve(40, nobody_moves);
  std::byte* const b = pool.take(40);
  CHECK(pool.extend(a, 48));
  CHECK_FALSE(pool.extend(a, 49));
  CHECK(pool.extend(b, 900));
  pool.trim(b, 8);
  pool.give(b);
  CHECK(pool.extend(a, 900));
  CHECK_FALSE(pool.extend(a, 1 << 20));
  CHECK(pool.check_invariants());
  CHECK(pool.num_blocks() == 1);
  BlockPool moved(std::move(pool));
  moved.give(a);
  CHECK(moved.check_invariants());
}

TEST_CASE("BlockPool: a front that is too short stays", "[prefix][block_pool]")
{
  BlockPool pool;
  pool.reserve(400, nobody_moves);
  std::byte* const block = pool.take(400);
  CHECK(pool.trim_front(block, 0) == nullptr);
  CHECK(pool.trim_front(block, 28) == nullptr);
  std::byte* const rest = pool.trim_front(block, 36);
  CHECK(rest == block + 36);  // not a multiple of 16
  CHECK(pool.check_invariants());
  pool.trim(rest, 100);
  CHECK(pool.extend(rest, 364));
  std::byte* const last = pool.trim_front(rest, 36);
  CHECK(last == block + 72);
  CHECK(pool.check_invariants());
  pool.give(last);
  CHECK(pool.bytes() - pool.bytes_free() < 64);  // the end of the arena
}

TEST_CASE("BlockPool: gaps are gathered before the heap is asked", "[prefix][block_pool]")
{
  constexpr std::size_t each = 112;  // eight units with the header
  BlockPool pool(64 * 128);
  std::vector<std::byte*> blocks(64);
  for (std::uint32_t i = 0; i < 64; ++i) {
    pool.reserve(each, nobody_moves);
    blocks[i] = pool.take(each);
    BlockPool::set_owner(blocks[i], i);
    std::memset(blocks[i], static_cast<int>(i), each);
  }
  std::size_t const bytes = pool.bytes();
  CHECK(pool.bytes_free() == 0);
  for (std::size_t i = 0; i < 64; i += 2) {
    pool.give(blocks[i]);
  }
  pool.reserve(10 * 128 - 16, [&](std::uint32_t owner, std::byte* memory) {
    CHECK(owner % 2 == 1);
    CHECK(memory < blocks[owner]);
    blocks[owner] = memory;
  });
  CHECK(pool.num_moves() == 9);
  CHECK(pool.bytes() == bytes);
  std::byte* const large = pool.take(10 * 128 - 16);
  BlockPool::set_owner(large, 64);
  CHECK(pool.check_invariants());
  bool intact = true;
  for (std::size_t i = 1; i < 64; i += 2) {
    for (std::size_t k = 0; k < each; ++k) {
      intact = intact && blocks[i][k] == static_cast<std::byte>(i);
    }
  }
  CHECK(intact);
  pool.reserve(17 * 128, [&](std::uint32_t owner, std::byte* memory) { blocks[owner] = memory; });
  CHECK(pool.bytes() == bytes);  // 22 are free, and two of them stay so
  pool.give(pool.take(17 * 128));
  pool.reserve(22 * 128, [&](std::uint32_t owner, std::byte* memory) { blocks[owner] = memory; });
  CHECK(pool.bytes() > bytes);  // all of them
  CHECK(pool.check_invariants());
}

TEST_CASE("BlockPool: in the long run nothing asks the heap", "[prefix][block_pool]")
{
  // As many bytes as fit a budget, in blocks of 68 to 34,816 bytes that die in the order of their birth or at random.
  for (bool const in_turn : {true, false}) {
    CAPTURE(in_turn);
    Random random(7);
    BlockPool pool;
    std::vector<std::pair<std::byte*, std::size_t>> held;
    std::vector<std::uint32_t> empty;
    std::size_t live = 0;
    std::size_t at = 0;
    std::size_t warm = 0;
    std::size_t taken = 0;
    std::size_t moved = 0;
    for (int call = 0; call < 200'000; ++call) {
      std::size_t const bytes = std::size_t{68} << random.below(8) << random.below(3);
      while (live + bytes > 4'000'000) {
        std::size_t const i =
          in_turn ? at++ % held.size() : random.below(static_cast<std::uint32_t>(held.size()));
        if (held[i].first != nullptr) {
          pool.give(held[i].first);
          live -= held[i].second;
          held[i] = {nullptr, 0};
          empty.push_back(static_cast<std::uint32_t>(i));
        }
      }
      pool.reserve(bytes, [&](std::uint32_t owner, std::byte* memory) {
        held[owner].first = memory;
        moved += held[owner].second;
      });
      if (empty.empty()) {
        empty.push_back(static_cast<std::uint32_t>(held.size()));
        held.emplace_back();
      }
      std::uint32_t const i = empty.back();
      empty.pop_back();
      held[i] = {pool.take(bytes), bytes};
      BlockPool::set_owner(held[i].first, i);
      live += bytes;
      taken += bytes;
      warm = call == 20'000 ? pool.bytes() : warm;
    }
    std::printf("block pool: %.3f bytes a byte in use; %.2f bytes moved for each that was taken\n",
                static_cast<double>(pool.bytes()) / 4e6,
                static_cast<double>(moved) / static_cast<double>(taken));
    CHECK(pool.check_invariants());
    CHECK(pool.bytes() == warm);
    CHECK(pool.bytes() < 4'600'000);
    CHECK(moved < 16 * taken);
  }
}

TEST_CASE("BlockPool: more than there can be is refused, and nothing changed",
          "[prefix][block_pool]")
{
#if defined(__cpp_exceptions)
  BlockPool pool;
  pool.reserve(64, nobody_moves);
  std::size_t const before = pool.bytes();
  CHECK_THROWS_AS(pool.reserve(~std::size_t{0} / 2, nobody_moves), std::bad_alloc);
  CHECK(pool.bytes() == before);
  CHECK(pool.check_invariants());
#else
  CHECK(BlockPool().bytes() == 0);  // there memory that runs out ends the program
#endif
}
