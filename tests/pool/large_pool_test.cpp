// SPDX-License-Identifier: Apache-2.0
// A pool of 6 GiB in addresses, of which a few MiB are ever touched: offsets beyond 2 and 4 GiB on a small machine.

#include <kvcache/layout/paged_heads.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "support/any_pool.hpp"
#include "support/catch.hpp"
#include "support/hand_plan.hpp"

namespace {

using namespace kvcache;
using kvcache_test::layout_case;
using kvcache_test::LayoutCase;
using kvcache_test::Places;

constexpr std::size_t total = std::size_t{6} << 30;
constexpr std::size_t machine_page = 4096;

/// Addresses without memory behind them, until they are written.
class Reserved {
 public:
  Reserved()
      : data_(mmap(nullptr,
                   total,
                   PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1,
                   0))
  {
    if (there()) {
      (void)madvise(data_, total, MADV_NOHUGEPAGE);  // a row takes 4 KiB, not 2 MiB
    }
  }
  ~Reserved()
  {
    if (there()) {
      munmap(data_, total);
    }
  }
  Reserved(Reserved const&) = delete;
  Reserved& operator=(Reserved const&) = delete;

  [[nodiscard]] bool there() const { return data_ != MAP_FAILED; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t touched_bytes() const
  {
    std::vector<unsigned char> present(total / machine_page);
    REQUIRE(mincore(data_, total, present.data()) == 0);
    return machine_page * static_cast<std::size_t>(std::count_if(
                            present.begin(), present.end(), [](auto p) { return (p & 1) != 0; }));
  }

 private:
  void* data_;
};

constexpr std::int32_t dim = 128;
constexpr Geometry model{.layers = 8, .kv_heads = 8, .head_dim = dim, .page_tokens = 16};
constexpr std::size_t page_bytes = std::size_t{2} * 8 * 8 * 16 * dim * 2;
constexpr auto pages = static_cast<PageCount>(total / page_bytes - 1);
// Around 2 and 4 GiB, page-first, and the last; layer-first all layers but the first lie beyond.
constexpr std::uint32_t far_pages[] = {1, 4095, 4096, 8191, 8192, pages};

std::vector<float> numbers(std::uint32_t page, std::int32_t layer, std::int32_t head, bool value)
{
  std::vector<float> out(dim);
  for (std::size_t d = 0; d < out.size(); ++d) {
    out[d] =
      static_cast<float>((page * 7 + static_cast<std::uint32_t>(layer * 8 + head) * 3 + d) % 251 +
                         (value ? 256U : 0U));
  }
  return out;
}

}  // namespace

TEST_CASE("Pool: 6 GiB of addresses are exact in every layout, and few are touched",
          "[pool][large]")
{
  static_assert(pages == 12287);
  for (LayoutCase const& each :
       {layout_case<PagedHeads<half, dim, 16>>("hnd"),
        layout_case<PagedHeads<half, dynamic, dynamic, RowOrder::planes>>("planes"),
        layout_case<PagedHeads<half, dim, dynamic, RowOrder::nhd>>("nhd")}) {
    for (auto const arrangement : {Arrangement::page_first, Arrangement::layer_first}) {
      CAPTURE(each.name, static_cast<int>(arrangement));
      Geometry g = model;
      g.arrangement = arrangement;
      Reserved const memory;
      if (!memory.there()) {
        std::printf(
          "no 6 GiB of addresses here: the rows of %s were not stored and read, "
          "tests/layout checks such addresses by arithmetic\n",
          each.name);
        CHECK(page_bytes * (std::size_t{pages} + 1) == total);
        continue;
      }
      auto const pool = each.make(g, pages, nullptr, {memory.data(), total});
      Places const& p = pool->places;
      REQUIRE(p.bytes() == total);
      REQUIRE(pool->arena_bytes() == total);

      Plan plan;
      kvcache_test::set_table(
        plan, 0, 0, {far_pages[0], far_pages[1], far_pages[2], far_pages[3], far_pages[4], pages});
      REQUIRE(pool->apply(kvcache_test::in_order(plan)));
      std::size_t wrong = 0;
      for (std::uint32_t i = 0; i < 6; ++i) {
        Plan step;
        kvcache_test::add_chunk(step, 0, static_cast<Index>(i * 16 + 15), 1);  // a page's last row
        REQUIRE(pool->apply(kvcache_test::in_order(step)));
        for (std::int32_t layer = 0; layer < g.layers; ++layer) {
          for (std::int32_t head = 0; head < g.kv_heads; ++head) {
            pool->append(0,
                         layer,
                         head,
                         numbers(far_pages[i], layer, head, false).data(),
                         numbers(far_pages[i], layer, head, true).data());
          }
        }
      }
      // All that was stored lies where 64 bits say, after all of it was stored: nothing fell on anything else.
      auto const count_wrong = [&](std::uint32_t page, std::uint32_t as, std::size_t row) {
        for (std::size_t layer = 0; layer < p.layers; ++layer) {
          for (std::size_t head = 0; head < p.heads; ++head) {
            for (std::size_t part = 0; part < 2; ++part) {
              auto const x = numbers(
                as, static_cast<std::int32_t>(layer), static_cast<std::int32_t>(head), part == 1);
              std::vector<std::byte> want(p.vector_bytes);
              pool->encode(x.data(), x.size(), want.data());
              std::byte const* const at = memory.data() + p.at(page, layer, head, row, part);
              wrong += std::memcmp(at, want.data(), want.size()) == 0 ? 0U : 1U;
              wrong += at == pool->row(page,
                                       static_cast<std::uint32_t>(layer),
                                       static_cast<std::uint32_t>(head),
                                       static_cast<Index>(row),
                                       part == 1)
                         ? 0U
                         : 1U;
            }
          }
        }
      };
      for (std::uint32_t const page : far_pages) {
        count_wrong(page, page, 15);
      }
      CHECK(wrong == 0);

      Plan moves;  // from one end to the other, and back
      moves.moves = {{PageId{pages}, PageId{2}, 15, 0}};
      moves.copies = {{PageId{1}, PageId{pages - 1}, 16}};
      REQUIRE(pool->apply(kvcache_test::in_order(moves)));
      count_wrong(2, pages, 0);
      count_wrong(pages - 1, 1, 15);
      CHECK(wrong == 0);
      CHECK(memory.touched_bytes() < (std::size_t{64} << 20));
    }
  }
}
