// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/plan.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

/// \file A plan as bytes, for a worker in another process or on another machine.
///
///   [ magic | version | step (8) | stream | slot | six counts ]   48 bytes; a number has 4 bytes, the least first
///   [ table deltas: row, first, count, ids_at ]                   16 each
///   [ ids ]                                                       4 each
///   [ row moves: source, target, source_row, target_row ]         16 each
///   [ page copies: source, target, rows ]                         12 each
///   [ parents ]                                                   4 each
///   [ chunks: slot, generation, row, first_index, tokens, slack, parents_at ]   28 each
///
/// The bytes say how long they are, so a pipe needs no frame but their length. `parse_plan` believes no count
/// that the bytes cannot hold, and judges nothing else: whether the plan fits a pool is what the pool checks.
///
/// No part of `kvcache.hpp`: a program that sends plans includes it.

namespace kvcache::inline v0_1 {
namespace detail {

/// Writes numbers one after the other. **Pre** there is room.
struct ByteWriter {
  std::byte* at;

  void u32(std::uint32_t x) noexcept
  {
    for (std::uint32_t shift = 0; shift < 32; shift += 8) {
      *at++ = static_cast<std::byte>(x >> shift & 0xffU);
    }
  }
  void u64(std::uint64_t x) noexcept
  {
    u32(static_cast<std::uint32_t>(x));
    u32(static_cast<std::uint32_t>(x >> 32));
  }
  void index(Index x) noexcept { u32(static_cast<std::uint32_t>(x)); }
};

/// Reads numbers one after the other. **Pre** they are there.
struct ByteReader {
  std::byte const* at;

  [[nodiscard]] std::uint32_t u32() noexcept
  {
    std::uint32_t x = 0;
    for (std::uint32_t shift = 0; shift < 32; shift += 8) {
      x |= static_cast<std::uint32_t>(*at++) << shift;
    }
    return x;
  }
  [[nodiscard]] std::uint64_t u64() noexcept
  {
    std::uint64_t const low = u32();
    return low | std::uint64_t{u32()} << 32;
  }
  [[nodiscard]] Index index() noexcept { return static_cast<Index>(u32()); }
};

/// The lists of a plan in the order of their bytes, with the bytes of one element.
struct PlanList {
  char const* field;
  std::uint32_t element_bytes;
};
inline constexpr PlanList plan_lists[] = {{"plan.tables", 16},
                                          {"plan.ids", 4},
                                          {"plan.moves", 16},
                                          {"plan.copies", 12},
                                          {"plan.parents", 4},
                                          {"plan.chunks", 28}};
inline constexpr std::uint32_t num_plan_lists = 6;

inline constexpr std::uint32_t plan_magic = 0x4c50564b;  // "KVPL" in the bytes
inline constexpr std::size_t plan_head_bytes = 4 + 4 + 8 + 4 + 4 + 4 * num_plan_lists;

}  // namespace detail

/// How many bytes `serialise` makes of `plan`. **Cost** O(1).
[[nodiscard]] inline std::size_t plan_bytes(Plan const& plan) noexcept
{
  std::size_t const counts[] = {plan.tables.size(),
                                plan.ids.size(),
                                plan.moves.size(),
                                plan.copies.size(),
                                plan.parents.size(),
                                plan.chunks.size()};
  std::size_t bytes = detail::plan_head_bytes;
  for (std::uint32_t i = 0; i < detail::num_plan_lists; ++i) {
    bytes += counts[i] * detail::plan_lists[i].element_bytes;
  }
  return bytes;
}

/// Makes `out` the bytes of `plan`; its memory is used again. **Pre** no list has 2^32 elements or more.
/// **Cost** O(plan). **Errors** `no_memory`, `out` unchanged.
[[nodiscard]] inline Result<Done> serialise(Plan const& plan, std::vector<std::byte>& out)
{
  std::size_t const bytes = plan_bytes(plan);
  if (!detail::memory_sufficed_for([&] { out.resize(bytes); })) {
    return Error{Why::no_memory,
                 "plan bytes",
                 static_cast<std::int64_t>(bytes),
                 "the host has no memory for so many"};
  }
  detail::ByteWriter to{out.data()};
  to.u32(detail::plan_magic);
  to.u32(plan.version);
  to.u64(plan.step.value);
  to.u32(plan.stream.value);
  to.u32(plan.slot);
  for (std::size_t const count : {plan.tables.size(),
                                  plan.ids.size(),
                                  plan.moves.size(),
                                  plan.copies.size(),
                                  plan.parents.size(),
                                  plan.chunks.size()}) {
    to.u32(static_cast<std::uint32_t>(count));
  }
  for (TableDelta const& delta : plan.tables) {
    to.u32(delta.row.value);
    to.u32(delta.first);
    to.u32(delta.count);
    to.u32(delta.ids_at);
  }
  for (PageId const page : plan.ids) {
    to.u32(page.value);
  }
  for (RowMove const& move : plan.moves) {
    to.u32(move.source.value);
    to.u32(move.target.value);
    to.index(move.source_row);
    to.index(move.target_row);
  }
  for (PageCopy const& copy : plan.copies) {
    to.u32(copy.source.value);
    to.u32(copy.target.value);
    to.index(copy.rows);
  }
  for (Index const parent : plan.parents) {
    to.index(parent);
  }
  for (PlannedChunk const& chunk : plan.chunks) {
    to.u32(chunk.sequence.slot);
    to.u32(chunk.sequence.generation);
    to.u32(chunk.row.value);
    to.index(chunk.first_index);
    to.index(chunk.tokens);
    to.index(chunk.slack);
    to.u32(chunk.parents_at);
  }
  return Done{};
}

/// Makes `plan` what the bytes say; its memory is used again. **Cost** O(bytes); never more memory than a plan of so
/// many bytes has.
/// **Errors** bytes that are no plan: the field, and what would be right; `no_memory`. `plan` is then unchanged.
[[nodiscard]] inline Result<Done> parse_plan(std::span<std::byte const> bytes, Plan& plan)
{
  auto const size = static_cast<std::int64_t>(bytes.size());
  if (bytes.size() < detail::plan_head_bytes) {
    return Error{Why::bad_config,
                 "plan bytes",
                 size,
                 "must be at least those of the head, which are",
                 static_cast<std::int64_t>(detail::plan_head_bytes)};
  }
  detail::ByteReader from{bytes.data()};
  if (std::uint32_t const magic = from.u32(); magic != detail::plan_magic) {
    return Error{Why::bad_config, "plan.magic", magic, "must be", detail::plan_magic};
  }
  std::uint32_t const version = from.u32();
  if (version != Plan::format_version) {
    return Error{Why::bad_config, "plan.version", version, "must be", Plan::format_version};
  }
  StepId const step{from.u64()};
  StreamId const stream{from.u32()};
  std::uint32_t const slot = from.u32();
  std::uint32_t counts[detail::num_plan_lists];
  std::uint64_t left = bytes.size() - detail::plan_head_bytes;
  for (std::uint32_t i = 0; i < detail::num_plan_lists; ++i) {
    counts[i] = from.u32();
    std::uint64_t const most = left / detail::plan_lists[i].element_bytes;
    if (counts[i] > most) {
      return Error{Why::bad_config,
                   detail::plan_lists[i].field,
                   counts[i],
                   "is more than the bytes hold, which is at most",
                   static_cast<std::int64_t>(most)};
    }
    left -= std::uint64_t{counts[i]} * detail::plan_lists[i].element_bytes;
  }
  if (left != 0) {
    return Error{Why::bad_config,
                 "plan bytes",
                 size,
                 "must end behind the last chunk, at",
                 size - static_cast<std::int64_t>(left)};
  }
  if (!detail::memory_sufficed_for([&] {
        plan.tables.reserve(counts[0]);
        plan.ids.reserve(counts[1]);
        plan.moves.reserve(counts[2]);
        plan.copies.reserve(counts[3]);
        plan.parents.reserve(counts[4]);
        plan.chunks.reserve(counts[5]);
      })) {
    return Error{Why::no_memory, "plan bytes", size, "the host has no memory for so many"};
  }
  plan.version = version;
  plan.step = step;
  plan.stream = stream;
  plan.slot = slot;
  plan.tables.resize(counts[0]);
  plan.ids.resize(counts[1]);
  plan.moves.resize(counts[2]);
  plan.copies.resize(counts[3]);
  plan.parents.resize(counts[4]);
  plan.chunks.resize(counts[5]);
  for (TableDelta& delta : plan.tables) {
    delta.row = RowId{from.u32()};
    delta.first = from.u32();
    delta.count = from.u32();
    delta.ids_at = from.u32();
  }
  for (PageId& page : plan.ids) {
    page = PageId{from.u32()};
  }
  for (RowMove& move : plan.moves) {
    move.source = PageId{from.u32()};
    move.target = PageId{from.u32()};
    move.source_row = from.index();
    move.target_row = from.index();
  }
  for (PageCopy& copy : plan.copies) {
    copy.source = PageId{from.u32()};
    copy.target = PageId{from.u32()};
    copy.rows = from.index();
  }
  for (Index& parent : plan.parents) {
    parent = from.index();
  }
  for (PlannedChunk& chunk : plan.chunks) {
    chunk.sequence.slot = from.u32();
    chunk.sequence.generation = from.u32();
    chunk.row = RowId{from.u32()};
    chunk.first_index = from.index();
    chunk.tokens = from.index();
    chunk.slack = from.index();
    chunk.parents_at = from.u32();
  }
  return Done{};
}

/// As above, into a plan of its own.
[[nodiscard]] inline Result<Plan> parse_plan(std::span<std::byte const> bytes)
{
  Plan plan;
  if (auto parsed = parse_plan(bytes, plan); !parsed) {
    return parsed.error();
  }
  return plan;
}

}  // namespace kvcache::inline v0_1
