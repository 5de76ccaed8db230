// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/attention/device_shared_work.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/config.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/result.hpp>
#include <kvcache/view/batch_view.hpp>

#include <cstddef>
#include <cstdint>

/// \file The work of a step's attention on a device, and how a fixed grid shares it.
///
///   tile    up to 16 query rows of a chunk, or 64 where it has more; or of several chunks, over rows that these share.
///           Query row r of a chunk and KV head is token r / group, query head r % group of the KV head's.
///   item    a tile and one KV head: `units` pieces of 64 KV rows, whose borders are multiples of 64 in the sequence
///   line    all units of all items: tile after tile, in each head after head, in each unit after unit
///
///   line    |--- item ---|--- item ---|- item -|------ item ------|        total units
///   blocks  |  0    |  1    |  2    |  3    |  4    |  5    |  6  |        equal shares, cut anywhere
///
/// A block goes through its share from left to right. It ends an item that lies inside its share; of an item that was begun
/// by another or is left to another it keeps the state in a slot: slot 2 b for the one that it enters midway, slot 2 b + 1
/// for the one that it leaves. So there are two slots a block, whatever the batch, and all a merge needs is arithmetic.
/// Items of chunks that share rows end in a state of `SharedWork` instead, one for each span that a query row sees and one for
/// the rest; a second merge joins these.
/// Source: Osama et al., "Stream-K", PPoPP 2023; for attention, Ye et al., "FlashInfer", MLSys 2025.

namespace kvcache::inline v0_1 {

/// What the steps of a captured graph have at most, and what is the same in all of them.
struct DeviceLimits {
  Index tokens = 0;
  Index chunks = 0;
  std::int32_t head_dim = 0;
  std::int32_t blocks = 0;  ///< of the grid: as many as the device holds at once is a good number
  /// Chunks of few query rows that begin with so many rows in the same pages go over them together, in multiples of it: each
  /// page is loaded once for all of them. A multiple of 64, 256 is a good start; 0 means never.
  Index shared_rows = 0;
};

namespace detail {

/// The units that one block has, and who has which.
struct WorkShares {
  std::int64_t total;
  std::int64_t blocks;  ///< that have a share; never more than units

  static KVCACHE_HOST_DEVICE WorkShares of(std::int64_t total, std::int32_t grid)
  {
    return {total, total < grid ? total : grid};
  }
  /// The first unit of block `b`; of `blocks`: the total.
  [[nodiscard]] KVCACHE_HOST_DEVICE std::int64_t first(std::int64_t b) const
  {
    return b * total / blocks;
  }
  /// The block that has unit `x`. **Pre** `0 <= x < total`.
  [[nodiscard]] KVCACHE_HOST_DEVICE std::int64_t block_of(std::int64_t x) const
  {
    return ((x + 1) * blocks - 1) / total;
  }
};

/// See the file comment.
struct WorkTile {
  static constexpr Index unit_rows = 64;
  static constexpr Index narrow_rows = 16;
  static constexpr Index wide_rows = 64;

  std::int64_t start;  ///< place on the line of its first head's first unit
  Index chunk;         ///< whose table is read
  Index first;         ///< query rows [first, first + rows) of the chunk, or of those that share
  Index rows;
  Index
    begin;  ///< KV rows [begin, end): those that any of its tokens sees, without what spans have
  Index end;
  Index level;  ///< of the state of `SharedWork` where its items end; negative: in no state

  [[nodiscard]] KVCACHE_HOST_DEVICE Index first_unit() const { return begin / unit_rows; }
  /// At least one, so that a tile that sees nothing is written, too.
  [[nodiscard]] KVCACHE_HOST_DEVICE Index units() const
  {
    Index const n = (end + unit_rows - 1) / unit_rows - first_unit();
    return n < 1 ? 1 : n;
  }
  /// How a chunk of `rows` query rows is tiled.
  static KVCACHE_HOST_DEVICE Index rows_of(Index rows)
  {
    return rows <= narrow_rows ? narrow_rows : wide_rows;
  }
  static KVCACHE_HOST_DEVICE Index tiles_of(Index rows)
  {
    return (rows + rows_of(rows) - 1) / rows_of(rows);
  }
};

/// The largest `i` in [0, count) with `start(i) <= x`. **Pre** `start` never falls, `start(0) <= x`, `count > 0`.
template <class Start, class X>
KVCACHE_HOST_DEVICE Index last_not_above(Start const& start, Index count, X x)
{
  Index low = 0;
  for (Index high = count; high - low > 1;) {
    Index const middle = low + (high - low) / 2;
    (start(middle) <= x ? low : high) = middle;
  }
  return low;
}

}  // namespace detail

/// The work list of a step and the room for states of cut items, in device memory. Trivially copyable: kernels take it by
/// value. Valid for all layers of one shape; layers that run beside each other need a work each, for the states.
/// **Stream** a step's plan and all its layers go to one stream: on another they would meet its list and states half made. What
/// `device.cuh` launches with the object that planned is checked; launches of your own and copies made before are not.
struct DeviceWork {
  AttentionShape shape;
  DeviceLimits limits;
  std::int64_t* total;      ///< units on the line
  Index* chunk_tiles;       ///< `[limits.chunks + 1]` tiles before each chunk
  detail::WorkTile* tiles;  ///< `[max_tiles]`
  Index* first_tile;        ///< `[limits.blocks]` the tile of each block's first unit
  float* part_out;          ///< `[2 * limits.blocks]` slots of 64 rows, each of `head_dim`
  float* part_lse;          ///< `[2 * limits.blocks]` slots of 64 rows
  SharedWork shared;
  mutable void const* planned_on = nullptr;  ///< the host's: the stream of the last plan

  /// Says which stream a step is planned on.
  void plan_on(void const* stream) const noexcept { planned_on = stream; }
  /// **Pre** `stream` is that of the plan.
  void expect_on(void const* stream) const
  {
    KVCACHE_EXPECTS(planned_on == nullptr || planned_on == stream,
                    "kvcache: a DeviceWork is for one stream at a time; attend on the stream that "
                    "its step was planned on, or plan on this one");
  }

  /// Tiles that a step can have; 0 of heads that `make` refuses.
  static KVCACHE_HOST_DEVICE constexpr Index max_tiles(AttentionShape const& shape,
                                                       DeviceLimits const& limits) noexcept
  {
    if (shape.kv_heads < 1) {
      return 0;
    }
    std::int64_t const rows = std::int64_t{limits.tokens} * shape.group();
    std::int64_t const own = rows / detail::WorkTile::wide_rows + limits.chunks;
    std::int64_t const of_spans =
      limits.shared_rows == 0
        ? 0
        : SharedWork::levels * (max_shared_rows(shape, limits) / detail::WorkTile::wide_rows) +
            limits.chunks;
    return static_cast<Index>(own + of_spans);
  }
  /// Query rows of a KV head, of chunks that may share; 0 of heads that `make` refuses.
  static KVCACHE_HOST_DEVICE constexpr std::int64_t max_shared_rows(
    AttentionShape const& shape, DeviceLimits const& limits) noexcept
  {
    if (shape.kv_heads < 1) {
      return 0;
    }
    std::int64_t const rows = std::int64_t{limits.tokens} * shape.group();
    std::int64_t const narrow = std::int64_t{limits.chunks} * detail::WorkTile::narrow_rows;
    return rows < narrow ? rows : narrow;
  }

  /// Query rows of a chunk and KV head; none of one that ends beyond the work's tokens, whose outputs may have no room.
  template <class Layout>
  [[nodiscard]] KVCACHE_HOST_DEVICE Index query_rows(BatchView<Layout> const& view,
                                                     Index chunk) const
  {
    Index const end = view.chunk_first[chunk + 1];
    return end > limits.tokens ? 0 : (end - view.chunk_first[chunk]) * shape.group();
  }
  /// A tile's query row `r`: token * group + query head of the KV head.
  template <class Layout>
  [[nodiscard]] KVCACHE_HOST_DEVICE Index query(BatchView<Layout> const& view,
                                                detail::WorkTile const& tile,
                                                Index r) const
  {
    return tile.level >= 0 ? shared.rows[tile.first + r].query
                           : view.chunk_first[tile.chunk] * shape.group() + tile.first + r;
  }
  /// The row of `shared.out` and `shared.lse` for a query row that shares. **Pre** `level >= 0`.
  [[nodiscard]] KVCACHE_HOST_DEVICE std::size_t state(Index level,
                                                      std::int32_t kv_head,
                                                      Index row) const
  {
    std::int32_t const plane = level * shape.kv_heads + kv_head;
    return static_cast<std::size_t>(plane) * static_cast<std::size_t>(shared.max_rows) +
           static_cast<std::size_t>(row);
  }

  /// Device memory that a work takes; 0 for what `make` refuses, whose error says why.
  static constexpr std::size_t bytes(AttentionShape const& shape,
                                     DeviceLimits const& limits) noexcept
  {
    return check(shape, limits).why == Why::ok ? offsets(shape, limits).end : 0;
  }

  /// A work in `memory`, which may hold anything. Nothing is read or written there.
  /// **Pre** `memory` is a multiple of 256 bytes, and `bytes` of them are the work's alone.
  /// **Errors** `bad_config` names the field of `shape` or `limits`.
  static Result<DeviceWork> make(std::byte* memory, AttentionShape shape, DeviceLimits limits)
  {
    Error const error = check(shape, limits);
    if (error.why != Why::ok) {
      return error;
    }
    Offsets const at = offsets(shape, limits);
    return DeviceWork{.shape = shape,
                      .limits = limits,
                      .total = reinterpret_cast<std::int64_t*>(memory),
                      .chunk_tiles = reinterpret_cast<Index*>(memory + at.chunk_tiles),
                      .tiles = reinterpret_cast<detail::WorkTile*>(memory + at.tiles),
                      .first_tile = reinterpret_cast<Index*>(memory + at.first_tile),
                      .part_out = reinterpret_cast<float*>(memory + at.part_out),
                      .part_lse = reinterpret_cast<float*>(memory + at.part_lse),
                      .shared = shared_in(memory, at, shape, limits)};
  }

  /// The head sizes that kernels are made for.
  static constexpr std::int32_t head_dims[] = {64, 80, 96, 112, 128, 160, 192, 256};

  static constexpr Error check(AttentionShape const& shape, DeviceLimits const& limits) noexcept
  {
    Error const error = shape.validate();
    if (error.why != Why::ok) {
      return error;
    }
    bool known = false;
    for (std::int32_t const dim : head_dims) {
      known |= dim == limits.head_dim;
    }
    if (!known) {
      return {Why::bad_config,
              "head_dim",
              limits.head_dim,
              "must be 64, 80, 96, 112, 128, 160, 192 or 256 on a device"};
    }
    if (limits.tokens < 1 || std::int64_t{limits.tokens} * shape.group() > max_rows) {
      return {Why::bad_config,
              "tokens",
              limits.tokens,
              "must be at least 1, and with the query heads of a KV head no more rows than",
              max_rows};
    }
    if (limits.chunks < 1 || limits.chunks > max_chunks) {
      return {Why::bad_config, "chunks", limits.chunks, "must be 1 to", max_chunks};
    }
    if (limits.blocks < 1 || limits.blocks > max_blocks) {
      return {Why::bad_config, "blocks", limits.blocks, "must be 1 to", max_blocks};
    }
    if (limits.shared_rows < 0 || limits.shared_rows % detail::WorkTile::unit_rows != 0) {
      return {Why::bad_config,
              "shared_rows",
              limits.shared_rows,
              "must be 0 or a multiple of",
              detail::WorkTile::unit_rows};
    }
    if (limits.shared_rows > max_shared_step) {
      return {
        Why::bad_config, "shared_rows", limits.shared_rows, "must be at most", max_shared_step};
    }
    return {};
  }

  static constexpr std::int64_t max_rows = 1 << 28;
  static constexpr Index max_chunks = 1 << 20;
  static constexpr std::int32_t max_blocks = 16384;
  static constexpr Index max_shared_step = 1 << 20;

 private:
  struct Offsets {
    std::size_t chunk_tiles;
    std::size_t tiles;
    std::size_t first_tile;
    std::size_t part_out;
    std::size_t part_lse;
    std::size_t counts;
    std::size_t sharing;
    std::size_t spans;
    std::size_t span_tiles;
    std::size_t order;
    std::size_t rows;
    std::size_t out;
    std::size_t lse;
    std::size_t end;
  };
  static SharedWork shared_in(std::byte* memory,
                              Offsets const& at,
                              AttentionShape const& shape,
                              DeviceLimits const& limits)
  {
    if (limits.shared_rows == 0) {
      return {};
    }
    return {.counts = reinterpret_cast<detail::SharedCounts*>(memory + at.counts),
            .chunks = reinterpret_cast<detail::SharingChunk*>(memory + at.sharing),
            .spans = reinterpret_cast<detail::SharedSpan*>(memory + at.spans),
            .span_tiles = reinterpret_cast<Index*>(memory + at.span_tiles),
            .order = reinterpret_cast<Index*>(memory + at.order),
            .rows = reinterpret_cast<detail::SharedRow*>(memory + at.rows),
            .out = reinterpret_cast<float*>(memory + at.out),
            .lse = reinterpret_cast<float*>(memory + at.lse),
            .max_rows = static_cast<Index>(max_shared_rows(shape, limits))};
  }
  static constexpr Offsets offsets(AttentionShape const& shape, DeviceLimits const& limits) noexcept
  {
    auto const up = [](std::size_t n) { return (n + 255) / 256 * 256; };
    auto const chunks = static_cast<std::size_t>(limits.chunks);
    auto const blocks = static_cast<std::size_t>(limits.blocks);
    std::size_t const part_rows = 2 * blocks * detail::WorkTile::wide_rows;
    Offsets at{};
    at.chunk_tiles = up(sizeof(std::int64_t));
    at.tiles = at.chunk_tiles + up((chunks + 1) * sizeof(Index));
    at.first_tile =
      at.tiles + up(static_cast<std::size_t>(max_tiles(shape, limits)) * sizeof(detail::WorkTile));
    at.part_out = at.first_tile + up(blocks * sizeof(Index));
    at.part_lse =
      at.part_out + up(part_rows * static_cast<std::size_t>(limits.head_dim) * sizeof(float));
    at.counts = at.part_lse + up(part_rows * sizeof(float));
    bool const shares = limits.shared_rows > 0;
    std::size_t const sharing = shares ? chunks : 0;
    std::size_t const rows = shares ? static_cast<std::size_t>(max_shared_rows(shape, limits)) : 0;
    std::size_t const states = static_cast<std::size_t>(SharedWork::levels + 1) *
                               static_cast<std::size_t>(shape.kv_heads) * rows;
    at.sharing = at.counts + (shares ? up(sizeof(detail::SharedCounts)) : 0);
    at.spans = at.sharing + up(sharing * sizeof(detail::SharingChunk));
    at.span_tiles = at.spans + up(sharing * sizeof(detail::SharedSpan));
    at.order = at.span_tiles + up(sharing * sizeof(Index));
    at.rows = at.order + up(sharing * sizeof(Index));
    at.out = at.rows + up(rows * sizeof(detail::SharedRow));
    at.lse = at.out + up(states * static_cast<std::size_t>(limits.head_dim) * sizeof(float));
    at.end = at.lse + up(states * sizeof(float));
    return at;
  }
};

static_assert(std::is_trivially_copyable_v<DeviceWork>);

}  // namespace kvcache::inline v0_1
