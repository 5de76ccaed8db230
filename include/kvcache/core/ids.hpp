// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <compare>
#include <cstdint>

/// \file The names of things. Ids of different kinds never convert into each other or into integers.

namespace kvcache::inline v0_1 {

/// A token of the model's vocabulary.
using Token = std::int32_t;

/// The place of a token in a cached sequence, or a number of such places (rows).
using Index = std::int32_t;

/// A number of pages.
using PageCount = std::uint32_t;

/// An id: a number that only equals numbers of its own kind.
template <class Tag, class Rep = std::uint32_t>
struct Id {
  using rep = Rep;
  Rep value{};
  friend constexpr auto operator<=>(Id, Id) = default;
};

/// A page of the pool. Page 0 is read-only zeros and never given out; usable pages are 1 to N.
using PageId = Id<struct PageIdTag>;

/// A span of the prefix tree.
using SpanId = Id<struct SpanIdTag>;

/// A domain of sharing, interned by one prefix tree: `slot` is used again after its end, `generation` tells the users apart.
struct DomainId {
  std::uint32_t slot{};
  std::uint32_t generation{};
  friend constexpr auto operator<=>(DomainId, DomainId) = default;
  // In words: nvcc's front end loses the body of a defaulted one that other defaulted ones call.
  friend constexpr bool operator==(DomainId a, DomainId b) noexcept
  {
    return a.slot == b.slot && a.generation == b.generation;
  }
};

/// A row of the page table, held by one sequence from `open` to its close.
using RowId = Id<struct RowIdTag>;

/// A step of the engine, numbered from 1 in the order of `begin`.
using StepId = Id<struct StepIdTag, std::uint64_t>;

/// A stream of steps, in the order in which the device runs them.
using StreamId = Id<struct StreamIdTag>;

/// Streams are numbered from 0; this many can have steps at the same time.
inline constexpr std::uint32_t max_streams = 4;

/// A sequence: `slot` is used again after a close, `generation` tells the users apart.
struct SequenceId {
  std::uint32_t slot{};
  std::uint32_t generation{};  // 0 names no sequence
  friend constexpr auto operator<=>(SequenceId, SequenceId) = default;
};

/// The read-only page of zeros.
inline constexpr PageId zero_page{0};

/// No page, no span.
inline constexpr std::uint32_t nil = ~std::uint32_t{0};

}  // namespace kvcache::inline v0_1
