// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A pool of any layout behind one face, so that one suite runs over a list of them and is compiled once; and a
/// second statement of where its bytes lie.

#include <kvcache/layout/paged_heads.hpp>
#include <kvcache/pool/pool.hpp>
#include <kvcache/view/gather.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/hand_plan.hpp"

namespace kvcache_test {

/// What `PagedHeads` promises, said again in other words: nested arrays and their padding.
struct Places {
  kvcache::RowOrder order;
  kvcache::Arrangement arrangement;
  std::size_t pages, layers, heads, tokens;  // the page of zeros among them
  std::size_t vector_bytes;

  [[nodiscard]] static std::size_t padded(std::size_t bytes) { return (bytes + 127) & ~127UL; }
  [[nodiscard]] std::size_t tile_bytes() const { return padded(2 * tokens * vector_bytes); }
  [[nodiscard]] std::size_t layer_bytes() const
  {
    return order == kvcache::RowOrder::hnd ? heads * tile_bytes()
                                           : padded(2 * heads * tokens * vector_bytes);
  }
  [[nodiscard]] std::size_t bytes() const { return pages * layers * layer_bytes(); }
  [[nodiscard]] std::size_t part_at(std::size_t page, std::size_t layer) const
  {
    return layer_bytes() * (arrangement == kvcache::Arrangement::page_first ? page * layers + layer
                                                                            : layer * pages + page);
  }
  /// The first byte of a row's K (`part` 0) or V (1).
  [[nodiscard]] std::size_t at(
    std::size_t page, std::size_t layer, std::size_t head, std::size_t row, std::size_t part) const
  {
    std::size_t const begin = part_at(page, layer);
    switch (order) {
      case kvcache::RowOrder::hnd:
        return begin + head * tile_bytes() + (part * tokens + row) * vector_bytes;
      case kvcache::RowOrder::planes:
        return begin + ((part * heads + head) * tokens + row) * vector_bytes;
      case kvcache::RowOrder::nhd:
        return begin + ((part * tokens + row) * heads + head) * vector_bytes;
    }
    return 0;
  }
  template <class Visit>
  void for_each_row(Visit visit) const
  {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      for (std::size_t head = 0; head < heads; ++head) {
        for (std::size_t row = 0; row < tokens; ++row) {
          for (std::size_t part = 0; part < 2; ++part) {
            visit(layer, head, row, part);
          }
        }
      }
    }
  }
};

/// See the file comment.
class AnyPool {
 public:
  virtual ~AnyPool() = default;
  [[nodiscard]] virtual kvcache::Footprint const& footprint() const = 0;
  [[nodiscard]] virtual kvcache::BatchView<kvcache::PagedHeads<float>> tables() const = 0;
  [[nodiscard]] virtual std::uint64_t arena_bytes() const = 0;
  [[nodiscard]] virtual std::byte* part(std::uint32_t page, std::int32_t layer) const = 0;
  virtual bool apply(kvcache::Plan const& plan) = 0;
  /// Rounds to the layout's element.
  virtual void encode(float const* from, std::size_t n, std::byte* to) const = 0;
  virtual void append(kvcache::Index token,
                      std::int32_t layer,
                      std::int32_t head,
                      float const* k,
                      float const* v) const = 0;
  /// K and V of every row that `token` sees, one after the other.
  virtual void read(kvcache::Index token,
                    std::int32_t layer,
                    std::int32_t head,
                    std::vector<float>& out) const = 0;
  /// K, then V, of rows `first ..` of a table row, each with a fragment of something else behind it.
  virtual void gather(std::int32_t layer,
                      std::int32_t head,
                      std::uint32_t row,
                      kvcache::Index first,
                      kvcache::Index rows,
                      std::vector<std::byte>& out) const = 0;
  /// Where a kernel that loads by itself finds a row.
  [[nodiscard]] virtual std::byte const* row(std::uint32_t page,
                                             std::uint32_t layer,
                                             std::uint32_t head,
                                             kvcache::Index row,
                                             bool value) const = 0;

  [[nodiscard]] std::byte* arena() const { return part(0, 0); }

  Places places{};
  kvcache::Geometry geometry{};
  kvcache::ControlOptions sizes{};
};

template <class Layout>
class PoolOf final : public AnyPool {
 public:
  using T = typename Layout::element;

  PoolOf(kvcache::Geometry const& asked,
         kvcache::PageCount pages,
         kvcache::Device* device,
         kvcache::Storage storage)
      : pool_(make(asked, pages, device, storage, *this))
  {
    auto const n = [](auto x) { return static_cast<std::size_t>(x); };
    places = {.order = Layout::order,
              .arrangement = geometry.arrangement,
              .pages = std::size_t{pages} + 1,
              .layers = n(geometry.layers),
              .heads = n(geometry.kv_heads),
              .tokens = n(geometry.page_tokens),
              .vector_bytes = n(geometry.head_dim) * sizeof(T)};
  }
  [[nodiscard]] kvcache::Footprint const& footprint() const override { return pool_.footprint(); }
  [[nodiscard]] kvcache::BatchView<kvcache::PagedHeads<float>> tables() const override
  {
    auto const v = pool_.view();
    return {v.segment, {}, v.counts, v.token_row, v.token_index, v.chunk_first, v.lengths};
  }
  [[nodiscard]] std::uint64_t arena_bytes() const override { return pool_.arena_bytes(); }
  [[nodiscard]] std::byte* part(std::uint32_t page, std::int32_t layer) const override
  {
    return pool_.page(kvcache::PageId{page}, layer);
  }
  bool apply(kvcache::Plan const& plan) override { return pool_.apply(plan).has_value(); }
  void encode(float const* from, std::size_t n, std::byte* to) const override
  {
    for (std::size_t i = 0; i < n; ++i) {
      T const x = kvcache::ElementTraits<T>::from_float(from[i]);
      std::memcpy(to + i * sizeof x, &x, sizeof x);
    }
  }
  void append(kvcache::Index token,
              std::int32_t layer,
              std::int32_t head,
              float const* k,
              float const* v) const override
  {
    for (std::int32_t lane = 0; lane < 3; ++lane) {
      pool_.view().append(kvcache::Lanes{lane, 3}, layer, head, token, k, v);
    }
  }
  void read(kvcache::Index token,
            std::int32_t layer,
            std::int32_t head,
            std::vector<float>& out) const override
  {
    auto const view = pool_.view();
    for (auto const tile : view.tiles(layer, head, token)) {
      for (kvcache::Index r = 0; r < tile.rows(); ++r) {
        for (std::int32_t d = 0; d < geometry.head_dim; ++d) {
          out.push_back(tile.key(r, d));
          out.push_back(tile.value(r, d));
        }
      }
    }
  }
  void gather(std::int32_t layer,
              std::int32_t head,
              std::uint32_t row,
              kvcache::Index first,
              kvcache::Index rows,
              std::vector<std::byte>& out) const override
  {
    std::size_t const bytes = static_cast<std::size_t>(rows) * places.vector_bytes + 16;
    out.assign(2 * bytes, std::byte{0xee});
    for (std::int32_t lane = 0; lane < 3; ++lane) {
      kvcache::gather(kvcache::Lanes{lane, 3},
                      pool_.view(),
                      layer,
                      head,
                      row,
                      first,
                      rows,
                      reinterpret_cast<T*>(out.data()),
                      reinterpret_cast<T*>(out.data() + bytes));
    }
  }
  [[nodiscard]] std::byte const* row(std::uint32_t page,
                                     std::uint32_t layer,
                                     std::uint32_t head,
                                     kvcache::Index row,
                                     bool value) const override
  {
    auto const view = pool_.view();
    auto const raw = kvcache::TileView<Layout>(
                       view.segment.tile(layer, head, page), view.map, 0, geometry.page_tokens)
                       .raw();
    return reinterpret_cast<std::byte const*>((value ? raw.v : raw.k) +
                                              static_cast<std::size_t>(row) * raw.row_elements);
  }

 private:
  static kvcache::Pool<Layout> make(kvcache::Geometry const& asked,
                                    kvcache::PageCount pages,
                                    kvcache::Device* device,
                                    kvcache::Storage storage,
                                    AnyPool& self)
  {
    kvcache::Error error{};
    self.geometry = Layout::complete(asked, error);
    REQUIRE(error.why == kvcache::Why::ok);
    self.sizes = pool_sizes(self.geometry, pages);
    auto made = kvcache::Pool<Layout>::create(self.geometry, self.sizes, storage, device);
    REQUIRE(made);
    return std::move(*made);
  }

  kvcache::Pool<Layout> pool_;
};

/// A layout to try: its name, and how to make a pool of it.
struct LayoutCase {
  char const* name;
  std::unique_ptr<AnyPool> (*make)(kvcache::Geometry const&,
                                   kvcache::PageCount,
                                   kvcache::Device*,
                                   kvcache::Storage);
};

template <class Layout>
[[nodiscard]] LayoutCase layout_case(char const* name)
{
  return {name,
          [](kvcache::Geometry const& g,
             kvcache::PageCount pages,
             kvcache::Device* device,
             kvcache::Storage storage) -> std::unique_ptr<AnyPool> {
            return std::make_unique<PoolOf<Layout>>(g, pages, device, storage);
          }};
}

}  // namespace kvcache_test
