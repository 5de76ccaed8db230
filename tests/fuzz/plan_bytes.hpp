// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Any bytes as a plan: parsed, printed, applied, and its tokens stored and read. The entry is libFuzzer's; the
/// ordinary test calls it with a fixed number of mutations. For as long as you like, with clang:
///
///   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Itests tests/fuzz/plan_bytes_fuzz.cpp
///   ./a.out -max_len=2048
///
/// Memory of the pool has guards around it, so a write outside is seen without a sanitizer too.

#include <kvcache/control/plan_bytes.hpp>
#include <kvcache/control/plan_text.hpp>
#include <kvcache/device/host_device.hpp>
#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "support/hand_plan.hpp"

namespace kvcache_test {

/// The host, with bytes around each block that nobody may write.
class GuardingDevice final : public kvcache::Device {
 public:
  static constexpr std::size_t guard_bytes = 4096;

  ~GuardingDevice() override
  {
    for (auto const& [memory, bytes] : blocks_) {
      host_.deallocate(memory - guard_bytes, bytes + 2 * guard_bytes);
    }
  }
  [[nodiscard]] bool whole() const
  {
    auto const intact = [](std::byte const* first) {
      return std::all_of(first, first + guard_bytes, [](std::byte b) { return b == guard; });
    };
    return std::all_of(blocks_.begin(), blocks_.end(), [&](auto const& block) {
      return intact(block.first - guard_bytes) && intact(block.first + block.second);
    });
  }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept override
  {
    std::byte* const memory = host_.allocate(bytes + 2 * guard_bytes);
    std::fill_n(memory, bytes + 2 * guard_bytes, guard);
    blocks_[memory + guard_bytes] = bytes;
    return memory + guard_bytes;
  }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override
  {
    blocks_.erase(memory);
    host_.deallocate(memory - guard_bytes, bytes + 2 * guard_bytes);
  }
  [[nodiscard]] std::byte* allocate_staging(std::size_t bytes) noexcept override
  {
    return allocate(bytes);
  }
  void deallocate_staging(std::byte* memory, std::size_t bytes) noexcept override
  {
    deallocate(memory, bytes);
  }
  void upload(std::byte* target,
              void const* source,
              std::size_t bytes,
              kvcache::StreamRef stream) noexcept override
  {
    host_.upload(target, source, bytes, stream);
  }
  void fill(std::byte* target,
            std::byte value,
            std::size_t bytes,
            kvcache::StreamRef stream) noexcept override
  {
    host_.fill(target, value, bytes, stream);
  }
  void write_words(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    host_.write_words(cell, stream);
  }
  void move_rows(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    host_.move_rows(cell, stream);
  }
  void copy_pages(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    host_.copy_pages(cell, stream);
  }
  void count_up(kvcache::LaunchCell cell, kvcache::StreamRef stream) noexcept override
  {
    host_.count_up(cell, stream);
  }

 private:
  static constexpr std::byte guard{0xa5};
  kvcache::HostDevice host_;
  std::map<std::byte*, std::size_t> blocks_;
};

/// What became of some bytes.
enum class Fate { refused_by_parse, refused_by_pool, applied };

struct PlanFuzz {
  using Layout = kvcache::PagedHeads<float>;
  static constexpr kvcache::Geometry geometry{
    .layers = 1, .kv_heads = 2, .head_dim = 8, .page_tokens = 4};

  kvcache::ControlOptions sizes = pool_sizes(geometry, 12, 6, 80);
  Fate fate = Fate::refused_by_parse;

  /// Null, or what is wrong.
  [[nodiscard]] char const* run(std::span<std::byte const> bytes)
  {
    fate = Fate::refused_by_parse;
    auto const plan = kvcache::parse_plan(bytes);
    if (!plan) {
      return plan.error().field[0] != '\0' ? nullptr : "a refusal names no field";
    }
    std::vector<std::byte> again;
    if (!kvcache::serialise(plan.value(), again) ||
        !std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) {
      return "a plan that was parsed has other bytes";
    }
    std::string text;
    kvcache::print(plan.value(), text);
    return text.empty() ? "a plan prints nothing" : apply(plan.value());
  }

 private:
  [[nodiscard]] char const* apply(kvcache::Plan plan)
  {
    GuardingDevice device;
    auto pool = kvcache::Pool<Layout>::create(geometry, sizes, {}, &device);
    if (!pool) {
      return "no pool";
    }
    // Twice: what the first leaves behind is what the second starts from.
    for (int round = 0; round < 2; ++round) {
      auto const before = bytes_of(*pool);
      if (auto const applied = pool->apply(plan); !applied) {
        fate = Fate::refused_by_pool;
        return bytes_of(*pool) != before          ? "a refused plan changed bytes"
               : applied.error().field[0] == '\0' ? "a refusal names no field"
                                                  : nullptr;
      }
      fate = Fate::applied;
      if (auto const again = pool->apply(plan); again && plan.step.value != 0) {
        return "a plan was taken twice";
      }
      plan.step.value += 1;
      pool->abandon(plan.slot, {});  // where the numbers went round
      auto const view = pool->view();
      std::vector<float> const row(8, 1.0F);
      float sum = 0.0F;
      for (kvcache::Index token = 0; token < sizes.max_step_tokens; ++token) {
        if (view.index(token) >= sizes.max_sequence_tokens) {
          return "a token lies behind its table row";
        }
        view.append(kvcache::Solo{}, 0, 1, token, row.data(), row.data());
        for (auto const tile : view.tiles(0, 1, token)) {
          sum += tile.key(tile.rows() - 1, 7) * 0.0F;
        }
      }
      if (sum > 0.0F || !device.whole()) {
        return "something was written outside the pool's memory";
      }
      auto const zeros = bytes_of(*pool);
      if (!std::all_of(zeros.begin(),
                       zeros.begin() + static_cast<std::ptrdiff_t>(pool->footprint().page_bytes()),
                       [](std::byte b) { return b == std::byte{0}; })) {
        return "the page of zeros was written";
      }
    }
    return nullptr;
  }
};

}  // namespace kvcache_test

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size)
{
  kvcache_test::PlanFuzz fuzz;
  if (char const* const wrong = fuzz.run(std::as_bytes(std::span(data, size)))) {
    std::fprintf(stderr, "%s\n", wrong);
    std::abort();
  }
  return 0;
}
