// SPDX-License-Identifier: Apache-2.0
// What every layout must keep, one suite over a list: static and dynamic dimensions, each order of rows, pages first and
// layers first, our element types and an engine's.

#include <kvcache/core/hash.hpp>
#include <kvcache/layout/paged_heads.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "support/any_pool.hpp"
#include "support/catch.hpp"
#include "support/counting_device.hpp"
#include "support/engine_types.hpp"
#include "support/hand_plan.hpp"
#include "support/random.hpp"
#include "support/random_plan.hpp"

namespace {

using namespace kvcache;
using kvcache_test::AnyPool;
using kvcache_test::layout_case;
using kvcache_test::LayoutCase;
using kvcache_test::Places;

constexpr RowOrder hnd = RowOrder::hnd;
constexpr RowOrder planes = RowOrder::planes;
constexpr RowOrder nhd = RowOrder::nhd;
constexpr std::int32_t dim = 48;
constexpr std::int32_t page_tokens = 5;
constexpr PageCount pages = 4;

std::vector<LayoutCase> layouts()
{
  return {layout_case<PagedHeads<half, 48, 5>>("half 48 5 hnd"),
          layout_case<PagedHeads<half>>("half dynamic hnd"),
          layout_case<PagedHeads<half, 48, 5, nhd>>("half 48 5 nhd"),
          layout_case<PagedHeads<half, dynamic, dynamic, nhd>>("half dynamic nhd"),
          layout_case<PagedHeads<float, 48, dynamic, planes>>("float 48 dynamic planes"),
          layout_case<PagedHeads<engine::Bf16, dynamic, 5, planes>>("Bf16 dynamic 5 planes"),
          layout_case<PagedHeads<engine::Fp8, 48, 5>>("Fp8 48 5 hnd"),
          layout_case<PagedHeads<engine::Fp8, dynamic, dynamic, nhd>>("Fp8 dynamic nhd")};
}

/// Runs `check(pool, name)` for each layout, arrangement and shape of the model.
template <class Check>
void for_each_layout(Device* device, Check check)
{
  for (LayoutCase const& each : layouts()) {
    for (auto const arrangement : {Arrangement::page_first, Arrangement::layer_first}) {
      for (auto const& [layers, heads] :
           {std::pair{3, 2}, std::pair{2, 3}, std::pair{1, 4}, std::pair{4, 1}}) {
        CAPTURE(each.name, static_cast<int>(arrangement), layers, heads);
        auto const pool = each.make({.layers = layers,
                                     .kv_heads = heads,
                                     .head_dim = dim,
                                     .page_tokens = page_tokens,
                                     .arrangement = arrangement},
                                    pages,
                                    device,
                                    {});
        check(*pool);
      }
    }
  }
}

/// Elements of a row: whole numbers that are exact in every element type.
std::vector<float> numbers(std::uint64_t row, std::size_t layer, std::size_t head, std::size_t part)
{
  std::vector<float> out;
  std::uint64_t h = mix(mix(row + 1, layer), head * 2 + part);
  for (std::int32_t d = 0; d < dim; ++d) {
    h = mix(h, static_cast<std::uint64_t>(d));
    out.push_back(static_cast<float>(h % 16));
  }
  return out;
}

/// The bytes that the pool should have, kept beside it.
class Image {
 public:
  explicit Image(AnyPool& pool)
      : pool_(pool), places_(pool.places), bytes_(places_.bytes(), std::byte{0})
  {
    kvcache_test::Random random(5);
    for (std::size_t page = 1; page < places_.pages; ++page) {
      for (std::size_t layer = 0; layer < places_.layers; ++layer) {  // padding is anything
        for (std::size_t i = 0; i < places_.layer_bytes(); ++i) {
          bytes_[places_.part_at(page, layer) + i] = static_cast<std::byte>(random.next());
        }
      }
      places_.for_each_row([&](auto layer, auto head, auto row, auto part) {
        write(page, layer, head, row, part, numbers(page * 100 + row, layer, head, part));
      });
    }
    std::memcpy(pool.arena(), bytes_.data(), bytes_.size());
  }
  void write(std::size_t page,
             std::size_t layer,
             std::size_t head,
             std::size_t row,
             std::size_t part,
             std::vector<float> const& x)
  {
    pool_.encode(x.data(), x.size(), &bytes_[places_.at(page, layer, head, row, part)]);
  }
  void move(std::size_t source, std::size_t source_row, std::size_t target, std::size_t target_row)
  {
    places_.for_each_row([&](auto layer, auto head, auto row, auto part) {
      if (row == 0) {
        std::memmove(&bytes_[places_.at(target, layer, head, target_row, part)],
                     &bytes_[places_.at(source, layer, head, source_row, part)],
                     places_.vector_bytes);
      }
    });
  }
  void apply(Plan const& plan)
  {
    for (RowMove const& m : plan.moves) {
      move(m.source.value,
           static_cast<std::size_t>(m.source_row),
           m.target.value,
           static_cast<std::size_t>(m.target_row));
    }
    for (PageCopy const& c : plan.copies) {
      for (std::size_t row = 0; row < static_cast<std::size_t>(c.rows); ++row) {
        move(c.source.value, row, c.target.value, row);
      }
    }
  }
  [[nodiscard]] bool is_right() const
  {
    return std::memcmp(pool_.arena(), bytes_.data(), bytes_.size()) == 0;
  }

 private:
  AnyPool& pool_;
  Places places_;
  std::vector<std::byte> bytes_;
};

}  // namespace

TEST_CASE("Layouts: each row of each page has its own bytes, where the picture says, and aligned",
          "[layout][conformance]")
{
  for_each_layout(nullptr, [](AnyPool& pool) {
    Places const& p = pool.places;
    REQUIRE(pool.arena_bytes() == p.bytes());
    CHECK(pool.footprint().layer_bytes() == p.layer_bytes());
    std::vector<std::uint8_t> taken(p.bytes() / 16, 0);
    std::size_t elsewhere = 0;
    std::size_t unaligned = 0;
    std::size_t twice = 0;
    std::size_t marked = 0;
    for (std::uint32_t page = 0; page <= pages; ++page) {
      p.for_each_row([&](auto layer, auto head, auto row, auto part) {
        std::byte const* const at = pool.row(page,
                                             static_cast<std::uint32_t>(layer),
                                             static_cast<std::uint32_t>(head),
                                             static_cast<Index>(row),
                                             part == 1);
        auto const offset = static_cast<std::size_t>(at - pool.arena());
        if (offset != p.at(page, layer, head, row, part)) {
          ++elsewhere;
          return;
        }
        bool const first = p.order == hnd && row == 0 && part == 0;
        unaligned += reinterpret_cast<std::uintptr_t>(at) % (first ? 128 : 16) == 0 ? 0U : 1U;
        for (std::size_t i = 0; i < p.vector_bytes; i += 16, ++marked) {
          std::uint8_t& mark = taken[(offset + i) / 16];
          twice += mark;
          mark = 1;
        }
      });
      for (std::size_t layer = 0; layer < p.layers; ++layer) {
        auto const* const part = pool.part(page, static_cast<std::int32_t>(layer));
        elsewhere += part == pool.arena() + p.part_at(page, layer) ? 0U : 1U;
        unaligned += reinterpret_cast<std::uintptr_t>(part) % 128 == 0 ? 0U : 1U;
      }
    }
    CHECK(elsewhere == 0);
    CHECK(unaligned == 0);
    CHECK(twice == 0);
    CHECK(marked * 16 ==
          std::size_t{pool.footprint().row_bytes} * p.layers * p.heads * p.tokens * p.pages);
  });
}

TEST_CASE("Layouts: the page of zeros is zeros in every layer, and nothing else is touched",
          "[layout][conformance]")
{
  kvcache_test::CountingDevice device;  // hands out 0xcd
  for_each_layout(&device, [](AnyPool& pool) {
    Places const& p = pool.places;
    std::size_t wrong = 0;
    for (std::size_t page = 0; page < p.pages; ++page) {
      for (std::size_t layer = 0; layer < p.layers; ++layer) {
        std::byte const want{page == 0 ? std::uint8_t{0} : std::uint8_t{0xcd}};
        for (std::size_t i = 0; i < p.layer_bytes(); ++i) {
          wrong += pool.arena()[p.part_at(page, layer) + i] == want ? 0U : 1U;
        }
      }
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Layouts: moves and copies take all bytes of their rows and no other",
          "[layout][conformance]")
{
  constexpr std::uint64_t seed = 91;
  CAPTURE(seed);
  for_each_layout(nullptr, [](AnyPool& pool) {
    Image image(pool);
    kvcache_test::Random random(seed);
    std::size_t wrong = 0;
    for (int round = 0; round < 12; ++round) {
      Plan const plan = kvcache_test::random_plan(random, pool.sizes);
      REQUIRE(pool.apply(kvcache_test::in_order(plan)));
      image.apply(plan);
      wrong += image.is_right() ? 0U : 1U;
    }
    Plan whole;  // each number of rows
    for (Index rows = 0; rows <= page_tokens; ++rows) {
      whole.copies = {{PageId{1 + static_cast<std::uint32_t>(rows) % 2}, PageId{3}, rows}};
      REQUIRE(pool.apply(kvcache_test::in_order(whole)));
      image.apply(whole);
      wrong += image.is_right() ? 0U : 1U;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Layouts: the same plans give the same rows under every layout", "[layout][conformance]")
{
  constexpr std::uint64_t seed = 92;
  CAPTURE(seed);
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::uint64_t>> wanted;
  for_each_layout(nullptr, [&](AnyPool& pool) {
    Image image(pool);
    kvcache_test::Random random(seed);
    std::vector<std::uint64_t> seen;
    std::size_t wrong = 0;
    Plan tables;  // entries that no plan wrote are anything
    for (std::uint32_t row = 0; row < pool.sizes.max_sequences; ++row) {
      kvcache_test::set_table(tables, row, 0, {1, 2, 3, 4});
    }
    REQUIRE(pool.apply(kvcache_test::in_order(tables)));
    for (int round = 0; round < 8; ++round) {
      Plan plan = kvcache_test::random_plan(random, pool.sizes);
      plan.slot = 0;
      REQUIRE(pool.apply(kvcache_test::in_order(plan)));
      image.apply(plan);
      auto const view = pool.tables();
      for (Index token = 0; token < view.num_tokens(); ++token) {
        Index const index = view.index(token);
        std::uint32_t const page = view.segment.entry(
          0, 0, view.token_row[token], static_cast<std::uint32_t>(index / page_tokens));
        std::uint64_t const name = mix(static_cast<std::uint64_t>(round), view.token_row[token]);
        for (std::size_t layer = 0; layer < pool.places.layers; ++layer) {
          for (std::size_t head = 0; head < pool.places.heads; ++head) {
            auto const k = numbers(mix(name, static_cast<std::uint64_t>(index)), layer, head, 0);
            auto const v = numbers(mix(name, static_cast<std::uint64_t>(index)), layer, head, 1);
            pool.append(token,
                        static_cast<std::int32_t>(layer),
                        static_cast<std::int32_t>(head),
                        k.data(),
                        v.data());
            if (page != 0) {
              auto const row = static_cast<std::size_t>(index % page_tokens);
              image.write(page, layer, head, row, 0, k);
              image.write(page, layer, head, row, 1, v);
            }
          }
        }
      }
      wrong += image.is_right() ? 0U : 1U;
      std::vector<float> rows;
      for (Index token = 0; token < view.num_tokens(); ++token) {
        for (std::int32_t layer = 0; layer < pool.geometry.layers; ++layer) {
          for (std::int32_t head = 0; head < pool.geometry.kv_heads; ++head) {
            pool.read(token, layer, head, rows);
          }
        }
      }
      std::uint64_t digest = rows.size();
      for (float const x : rows) {
        digest = mix(digest, static_cast<std::uint64_t>(x));
      }
      seen.push_back(digest);
    }
    CHECK(wrong == 0);
    auto const& want =
      wanted.try_emplace(std::pair{pool.places.layers, pool.places.heads}, seen).first->second;
    CHECK(seen == want);
  });
}

TEST_CASE("Layouts: gathered rows are those of the pages, all bytes and no other",
          "[layout][conformance][gather]")
{
  for_each_layout(nullptr, [](AnyPool& pool) {
    Image const image(pool);
    Plan plan;
    kvcache_test::set_table(plan, 1, 0, {3, 1, 2, 4});
    REQUIRE(pool.apply(kvcache_test::in_order(plan)));
    std::size_t const pages_of_row[] = {3, 1, 2, 4};
    Places const& p = pool.places;
    std::vector<std::byte> got;
    std::size_t wrong = 0;
    for (Index first = 0; first < 4 * page_tokens; ++first) {
      for (Index const rows : {0, 1, 4, 5, 11}) {
        if (first + rows > 4 * page_tokens) {
          continue;
        }
        auto const layer = static_cast<std::size_t>(first) % p.layers;
        auto const head = static_cast<std::size_t>(rows) % p.heads;
        pool.gather(
          static_cast<std::int32_t>(layer), static_cast<std::int32_t>(head), 1, first, rows, got);
        std::vector<std::byte> want;
        for (std::size_t part = 0; part < 2; ++part) {
          for (Index at = first; at < first + rows; ++at) {
            auto const page = pages_of_row[static_cast<std::size_t>(at / page_tokens)];
            std::byte const* const from =
              pool.arena() +
              p.at(page, layer, head, static_cast<std::size_t>(at % page_tokens), part);
            want.insert(want.end(), from, from + p.vector_bytes);
          }
          want.insert(want.end(), 16, std::byte{0xee});
        }
        wrong += got == want ? 0U : 1U;
      }
    }
    CHECK(wrong == 0);
    CHECK(image.is_right());
  });
}
