// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The stamp oracle: what a row must hold, as a fixed function of everything that makes it that row.
///
///   stamp(row i) = mix(stamp(row i - 1), token i)       stamp(before row 0) = mix(domain, weights)
///   K, V of (layer, head) = bytes of mix(stamp, layer, head, K or V), as small whole numbers
///
/// Tests store these rows instead of a model's. Whatever later reads a row computes the stamp again and
/// compares, so one check notices reuse under the wrong prefix, another tenant's row, a row shifted by one,
/// stale pages, torn copies and swapped layers. The numbers 0 to 255 are exact in f32, f16 and bf16.

#include <kvcache/core/dtype.hpp>
#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/layout/footprint.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/team.hpp>
#include <kvcache/view/tile_view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace kvcache_test {

using Stamp = std::uint64_t;

/// The stamp before the first row. `epoch` counts how often the weights of the domain changed.
[[nodiscard]] constexpr Stamp stamp_start(std::uint64_t domain, std::uint64_t epoch = 0) noexcept
{
  return kvcache::mix(domain + 1, epoch + 77);
}
[[nodiscard]] constexpr Stamp stamp_next(Stamp before, kvcache::Token token) noexcept
{
  return kvcache::mix(before, static_cast<std::uint64_t>(token) + 1);
}
/// The stamps of all rows of a text.
[[nodiscard]] inline std::vector<Stamp> stamps_of(std::uint64_t domain,
                                                  std::uint64_t epoch,
                                                  std::span<kvcache::Token const> tokens)
{
  std::vector<Stamp> stamps;
  stamps.reserve(tokens.size());
  Stamp stamp = stamp_start(domain, epoch);
  for (kvcache::Token const token : tokens) {
    stamp = stamp_next(stamp, token);
    stamps.push_back(stamp);
  }
  return stamps;
}

enum class Part : std::uint8_t { key, value };

/// Elements `first .. first + 7` of a stamped vector, one in each byte.
[[nodiscard]] constexpr std::uint64_t stamp_bytes(
  Stamp stamp, std::int32_t layer, std::int32_t head, Part part, std::int32_t first) noexcept
{
  auto const place = static_cast<std::uint64_t>(layer) << 40 |
                     static_cast<std::uint64_t>(head) << 20 | static_cast<std::uint64_t>(first) |
                     static_cast<std::uint64_t>(part);
  return kvcache::mix(stamp, place);
}

/// The row of (layer, head) that `stamp` stands for. **Shape** `(dim)`, a multiple of 8.
template <class T>
void write_vector(
  T* out, std::int32_t dim, Stamp stamp, std::int32_t layer, std::int32_t head, Part part)
{
  for (std::int32_t first = 0; first < dim; first += 8) {
    std::uint64_t bytes = stamp_bytes(stamp, layer, head, part, first);
    for (std::int32_t d = first; d < first + 8; ++d, bytes >>= 8) {
      out[d] = kvcache::ElementTraits<T>::from_float(static_cast<float>(bytes & 0xffU));
    }
  }
}

/// Whether the vector at `in` is the stamped one.
template <class T>
[[nodiscard]] bool vector_is(
  T const* in, std::int32_t dim, Stamp stamp, std::int32_t layer, std::int32_t head, Part part)
{
  for (std::int32_t first = 0; first < dim; first += 8) {
    T want[8];
    std::uint64_t bytes = stamp_bytes(stamp, layer, head, part, first);
    for (T& element : want) {
      element = kvcache::ElementTraits<T>::from_float(static_cast<float>(bytes & 0xffU));
      bytes >>= 8;
    }
    if (std::memcmp(in + first, want, sizeof want) != 0) {
      return false;
    }
  }
  return true;
}

/// Stores the stamped row of `token` for (layer, head), as a model's kernel would store its own.
template <class Layout>
void append_stamp(kvcache::BatchView<Layout> const& view,
                  std::int32_t layer,
                  std::int32_t head,
                  kvcache::Index token,
                  Stamp stamp)
{
  typename Layout::element k[256];
  typename Layout::element v[256];
  std::int32_t const dim = view.map.dim.get();
  write_vector(k, dim, stamp, layer, head, Part::key);
  write_vector(v, dim, stamp, layer, head, Part::value);
  view.append(kvcache::Solo{}, layer, head, token, k, v);
}

/// Whether row `r` of `tile` is the stamped one, read element by element as an attention loop does.
template <class Layout>
[[nodiscard]] bool tile_row_is(kvcache::TileView<Layout> const& tile,
                               kvcache::Index r,
                               std::int32_t dim,
                               std::int32_t layer,
                               std::int32_t head,
                               Stamp stamp)
{
  for (std::int32_t first = 0; first < dim; first += 8) {
    std::uint64_t k = stamp_bytes(stamp, layer, head, Part::key, first);
    std::uint64_t v = stamp_bytes(stamp, layer, head, Part::value, first);
    for (std::int32_t d = first; d < first + 8; ++d, k >>= 8, v >>= 8) {
      if (tile.key(r, d) != static_cast<float>(k & 0xffU) ||
          tile.value(r, d) != static_cast<float>(v & 0xffU)) {
        return false;
      }
    }
  }
  return true;
}

inline constexpr kvcache::Index all_rows_right = -1;
inline constexpr kvcache::Index rows_missing = -2;  // the tiles do not cover what the token may see

/// The first of rows `0 .. rows - 1` that `token` reads and that is not the stamped one. The tiles must cover
/// exactly the rows up to the token's own.
template <class Layout>
[[nodiscard]] kvcache::Index first_wrong_row(kvcache::BatchView<Layout> const& view,
                                             std::int32_t layer,
                                             std::int32_t head,
                                             kvcache::Index token,
                                             std::span<Stamp const> stamps,
                                             kvcache::Index rows)
{
  kvcache::Index at = 0;
  for (auto const tile : view.tiles(layer, head, token)) {
    if (tile.first() != at || tile.rows() < 1) {
      return rows_missing;
    }
    for (kvcache::Index r = 0; r < tile.rows(); ++r, ++at) {
      if (at < rows &&
          !tile_row_is(
            tile, r, view.map.dim.get(), layer, head, stamps[static_cast<std::size_t>(at)])) {
        return at;
      }
    }
  }
  return at == view.index(token) + 1 && rows <= at ? all_rows_right : rows_missing;
}

/// Reads the bytes of a pool beside the library: a second statement of where a row of `PagedHeads` lies.
template <class T>
struct RawRows {
  std::byte const* base = nullptr;  // page 0
  std::int32_t layers = 0;
  std::int32_t heads = 0;
  std::int32_t dim = 0;
  std::int32_t page_tokens = 0;

  [[nodiscard]] std::size_t tile_bytes() const noexcept
  {
    std::size_t const exact = 2 * static_cast<std::size_t>(dim * page_tokens) * sizeof(T);
    return (exact + 127) / 128 * 128;
  }
  [[nodiscard]] std::size_t page_bytes() const noexcept
  {
    return tile_bytes() * static_cast<std::size_t>(layers * heads);
  }
  [[nodiscard]] bool row_is(kvcache::PageId page, std::int32_t offset, Stamp stamp) const
  {
    std::byte const* tile = base + page_bytes() * page.value;
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      for (std::int32_t head = 0; head < heads; ++head, tile += tile_bytes()) {
        auto const* const k = reinterpret_cast<T const*>(tile) + offset * dim;
        auto const* const v = k + page_tokens * dim;
        if (!vector_is(k, dim, stamp, layer, head, Part::key) ||
            !vector_is(v, dim, stamp, layer, head, Part::value)) {
          return false;
        }
      }
    }
    return true;
  }
};

}  // namespace kvcache_test
