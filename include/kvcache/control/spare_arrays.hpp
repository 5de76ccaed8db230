// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/named_span.hpp>
#include <kvcache/control/sequence_state.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>

#include <cstddef>
#include <utility>

namespace kvcache::inline v0_1::detail {

/// The arrays of sequences that were closed, for those that open next: the last to close first. All of them together are
/// bounded, whatever was open at once; what a burst left beyond that goes back.
class SpareArrays {
 public:
  static constexpr std::size_t most_bytes = std::size_t{1} << 19;
  static constexpr std::size_t most_sequences = 256;

  /// **Errors** `std::bad_alloc`.
  explicit SpareArrays(std::size_t sequences)
  {
    spares_.reserve(sequences < most_sequences ? sequences : most_sequences);
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Recounts them.
  [[nodiscard]] bool check_invariants() const noexcept
  {
    std::size_t sum = 0;
    for (Arrays const& spare : spares_) {
      sum += bytes_of(spare);
    }
    return sum == bytes_ && sum <= most_bytes;
  }

  /// The sequence is closed: its arrays are kept, or freed. **Post** it has none.
  void keep(SequenceState& s) noexcept
  {
    Arrays arrays;
    swap(arrays, s);
    std::size_t const bytes = bytes_of(arrays);
    if (bytes != 0 && bytes <= most_bytes - bytes_ && spares_.size() < spares_.capacity()) {
      arrays.tokens.clear();
      arrays.table.clear();
      arrays.strays.clear();
      arrays.media.clear();
      spares_.push_reserved(std::move(arrays));
      bytes_ += bytes;
    }
  }
  /// The sequence is about to open. It has none, but what an open that was refused made.
  void give(SequenceState& s) noexcept
  {
    if (s.tokens.capacity() == 0 && !spares_.empty()) {
      bytes_ -= bytes_of(spares_.back());
      swap(spares_.back(), s);
      spares_.pop_back();
    }
  }

 private:
  struct Arrays {
    List<Token> tokens;
    List<PageId> table;
    List<Index> strays;
    List<NamedSpan> media;
  };
  static void swap(Arrays& arrays, SequenceState& s) noexcept
  {
    arrays.tokens.swap(s.tokens);
    arrays.table.swap(s.table);
    arrays.strays.swap(s.strays);
    arrays.media.swap(s.media);
  }
  [[nodiscard]] static std::size_t bytes_of(Arrays const& arrays) noexcept
  {
    return arrays.tokens.capacity() * sizeof(Token) + arrays.table.capacity() * sizeof(PageId) +
           arrays.strays.capacity() * sizeof(Index) + arrays.media.capacity() * sizeof(NamedSpan);
  }

  List<Arrays> spares_;
  std::size_t bytes_ = 0;  // of all of them
};

}  // namespace kvcache::inline v0_1::detail
