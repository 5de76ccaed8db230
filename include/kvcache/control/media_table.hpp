// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/media.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/keyed_hash.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/zero_array.hpp>
#include <kvcache/prefix/id_table.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

/// \file Names for the rows of media: numbers that no token is.
///
///   tokens    0 ...  2^31-1        rows of items   -1 - (base + index), base of (item, rows, atomic)
///
///   names     | picture A, 4 rows |  free  | picture B, 3 rows | ...
///             0                   4        9                  12          limit
///
/// So the prefix tree compares integers and knows nothing of media, and text before a picture is shared as any
/// other. Who says other things of the same item, another number of rows or no atomic span, gets other names.
///
/// Names that nobody uses any more go in a *sweep*, when there are twice as many items as the one before left: O(1) a
/// new item over time, and a function of the calls alone, so ranks agree on names. Numbers are given out in a ring:
/// a name comes back as late as it can.

namespace kvcache::inline v0_1::detail {

/// See the file comment.
class MediaTable {
 public:
  /// As many names as negative tokens can be, but one.
  static constexpr Index most_names = 0x7fffffff;
  static constexpr std::size_t fewest_items = 64;

  /// **Pre** `names >= 1`. **Errors** `std::bad_alloc`.
  explicit MediaTable(Index names = most_names,
                      std::size_t sweep_at = fewest_items,
                      std::uint64_t seed = 0)
      : hash_(seed), limit_(names), least_(sweep_at), sweep_at_(sweep_at)
  {
  }

  [[nodiscard]] static Token name_of(Index base, Index index) noexcept
  {
    return -1 - (base + index);
  }

  /// The first name's number of these rows, if they have names. **Cost** O(bytes).
  [[nodiscard]] std::optional<Index> find(Media const& item, Index rows, bool atomic) const noexcept
  {
    std::uint32_t const known = look_up(item, rows, atomic, hash_of(item, rows, atomic));
    return known == nil ? std::nullopt : std::optional(records_[known].base);
  }

  /// As `find`, or new ones; nothing where no `rows` numbers in a row are free.
  /// **Pre** `rows >= 1`. **Cost** O(bytes), O(items) once the numbers went round.
  /// **Errors** `std::bad_alloc`, nothing changed.
  [[nodiscard]] std::optional<Index> intern(Media const& item, Index rows, bool atomic)
  {
    std::uint32_t const hash = hash_of(item, rows, atomic);
    std::uint32_t const known = look_up(item, rows, atomic, hash);
    if (known != nil) {
      return records_[known].base;
    }
    std::optional<Gap> gap = find_gap(rows, next_);
    gap = gap ? gap : find_gap(rows, 0);
    if (!gap) {
      return std::nullopt;
    }
    Record made{.item = item, .rows = rows, .base = gap->base, .hash = hash, .atomic = atomic};
    ids_.reserve(std::size_t{ids_.size()} + 1);
    if (free_ids_.empty() && records_.size() == records_.capacity()) {
      records_.reserve(2 * records_.size() + 8);
    }
    order_.reserve(records_.capacity());
    free_ids_.reserve(records_.capacity());  // for the sweep that frees them all
    auto id = static_cast<std::uint32_t>(records_.size());
    if (free_ids_.empty()) {
      records_.push_back(std::move(made));
    } else {
      id = free_ids_.back();
      free_ids_.pop_back();
      records_[id] = std::move(made);
    }
    order_.insert(gap->place, id);
    ids_.insert(hash, id);
    next_ = gap->base + rows;
    return gap->base;
  }

  /// What a name stands for. **Pre** `token` is a name of this table. **Cost** O(log items).
  [[nodiscard]] MediaRow look_up(Token token) const noexcept
  {
    Record const& record = records_[order_[place_of(token)]];
    return {&record.item, -1 - token - record.base, record.rows, record.atomic};
  }

  /// The token of a row of text that attends both ways. **Pre** `name` is a name of such a row.
  [[nodiscard]] Token text_token(Token name) const noexcept
  {
    MediaRow const named = look_up(name);
    std::uint32_t token = 0;
    for (std::size_t byte = 4; byte-- > 0;) {
      std::size_t const at = 9 + 4 * static_cast<std::size_t>(named.row) + byte;  // tag, length
      token = token << 8 | static_cast<unsigned char>(named.item->bytes()[at]);
    }
    return static_cast<Token>(token);
  }
  [[nodiscard]] bool knows(Token name) const noexcept
  {
    return name < 0 && !order_.empty() && holds(place_of(name), name);
  }

  [[nodiscard]] std::size_t size() const noexcept { return order_.size(); }
  /// A sweep is worth its cost.
  [[nodiscard]] bool due() const noexcept { return order_.size() >= sweep_at_; }

  /// Forgets the items of which no name is used. `uses(mark)` calls `mark(token)` with a name of each used one at least once;
  /// it may call it with any token. **Cost** O(items + log items a run of names). **Errors** `std::bad_alloc`, nothing changed.
  template <class Uses>
  void sweep(Uses&& uses)
  {
    ZeroArray<bool> used(order_.size());
    std::size_t last = 0;
    uses([&](Token token) {
      if (token < 0 && !order_.empty()) {
        last = holds(last, token) ? last : place_of(token);  // neighbours are of one item
        used[last] = true;
      }
    });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      std::uint32_t const id = order_[i];
      if (used[i]) {
        order_[kept++] = id;
        continue;
      }
      ids_.erase(records_[id].hash, id);
      records_[id].item = Media{};
      free_ids_.push_back(id);  // within the reserve of `intern`
    }
    order_.resize(kept);
    sweep_at_ = kept * 2 > least_ ? kept * 2 : least_;
  }

  /// Names do not overlap, and each item is found. **Cost** O(items).
  [[nodiscard]] bool check_invariants() const noexcept
  {
    Index end = 0;
    bool right =
      ids_.size() == order_.size() && order_.size() + free_ids_.size() == records_.size();
    for (std::uint32_t const id : order_) {
      Record const& record = records_[id];
      right = right && record.base >= end && record.rows <= limit_ - record.base &&
              find(record.item, record.rows, record.atomic) == record.base;
      end = record.base + record.rows;
    }
    return right;
  }

 private:
  struct Record {
    Media item;
    Index rows;
    Index base;
    std::uint32_t hash;
    bool atomic;
  };

  [[nodiscard]] std::uint32_t hash_of(Media const& item, Index rows, bool atomic) const noexcept
  {
    std::uint64_t const more = static_cast<std::uint64_t>(rows) << 1 | (atomic ? 1U : 0U);
    return static_cast<std::uint32_t>(hash_(item.bytes(), more));
  }
  [[nodiscard]] std::uint32_t look_up(Media const& item,
                                      Index rows,
                                      bool atomic,
                                      std::uint32_t hash) const noexcept
  {
    return ids_.find(hash, [&](std::uint32_t id) {
      Record const& record = records_[id];
      return record.rows == rows && record.atomic == atomic && record.item == item;
    });
  }

  /// The last item in the order of names that begins at `token` or before; the first one where there is none.
  [[nodiscard]] std::size_t place_of(Token token) const noexcept
  {
    Index const number = -1 - token;
    std::size_t low = 0;
    std::size_t high = order_.size();
    while (high - low > 1) {
      std::size_t const middle = (low + high) / 2;
      (records_[order_[middle]].base <= number ? low : high) = middle;
    }
    return low;
  }
  [[nodiscard]] bool holds(std::size_t place, Token token) const noexcept
  {
    Record const& record = records_[order_[place]];
    return -1 - token >= record.base && -1 - token - record.base < record.rows;
  }

  /// Free numbers from `base` on, right before the `place`-th item of the order.
  struct Gap {
    std::size_t place;
    Index base;
  };
  /// The first gap of `rows` numbers at `from` or after it.
  [[nodiscard]] std::optional<Gap> find_gap(Index rows, Index from) const noexcept
  {
    std::size_t place = order_.empty() ? 0 : place_of(name_of(from, 0));
    for (; place <= order_.size(); ++place) {
      Record const* const before = place == 0 ? nullptr : &records_[order_[place - 1]];
      Index const end = before == nullptr ? 0 : before->base + before->rows;
      Index const base = end < from ? from : end;
      Index const until = place == order_.size() ? limit_ : records_[order_[place]].base;
      if (base <= until && rows <= until - base) {
        return Gap{place, base};
      }
    }
    return std::nullopt;
  }

  List<Record> records_;       // by id; some are free
  List<std::uint32_t> order_;  // ids, in the order of their names
  List<std::uint32_t> free_ids_;
  IdTable ids_;
  ByteHash hash_;
  Index limit_;
  Index next_ = 0;  // where the ring goes on
  std::size_t least_;
  std::size_t sweep_at_;
};

}  // namespace kvcache::inline v0_1::detail
