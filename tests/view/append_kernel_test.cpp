// SPDX-License-Identifier: Apache-2.0
// A step's K, V and Q by one launch: the bytes that `append` stores one row after the other, turned by the definition.

#include <kvcache/core/error.hpp>
#include <kvcache/view/append_kernel.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "interop/ragged_batch.hpp"
#include "support/catch.hpp"
#include "support/engine_types.hpp"
#include "support/random.hpp"
#include "support/simt/simt.hpp"

using namespace kvcache_test;
using kvcache::AppendKernel;
using kvcache::HeadRows;
using kvcache::Index;
using kvcache::Rope;
using kvcache::RopeStyle;
using kvcache::RowOrder;

namespace {

constexpr std::uint64_t first_seed = 20261130;

/// What a projection leaves for one step: q, k and v of each token in one row, with room between rows.
template <class U>
struct Fused {
  std::int32_t q_heads, kv_heads, dim;
  std::int64_t stride;
  std::vector<U> data;

  Fused(Index tokens,
        std::int32_t q_heads_,
        std::int32_t kv_heads_,
        std::int32_t dim_,
        std::int32_t gap,
        Random& random)
      : q_heads(q_heads_),
        kv_heads(kv_heads_),
        dim(dim_),
        stride((q_heads_ + 2 * kv_heads_) * dim_ + gap),
        data(static_cast<std::size_t>(tokens * stride) + 16)
  {
    for (U& x : data) {
      x = kvcache::ElementTraits<U>::from_float(static_cast<float>(random.below(4097)) / 1024.0F -
                                                2.0F);
    }
  }
  template <class V>
  [[nodiscard]] HeadRows<V> part(V* at, std::int32_t first_head, std::int32_t heads) const
  {
    return {at + std::int64_t{first_head} * dim, stride, heads};
  }
};

/// A row turned by the definition, in the arithmetic of float.
std::vector<float> turned(std::vector<float> x, Rope const& rope, float theta, Index position)
{
  auto const dims = static_cast<std::size_t>(rope.dims);
  for (std::size_t i = 0; i < dims / 2; ++i) {
    float c = 0.0F;
    float s = 0.0F;
    if (rope.table != nullptr) {
      float const* const row = rope.table + static_cast<std::size_t>(position) * dims;
      c = row[i];
      s = row[dims / 2 + i];
    } else {
      float const power = -2.0F * static_cast<float>(i) / static_cast<float>(dims);
      float const angle = static_cast<float>(position) * exp2f(power * log2f(theta));
      c = cosf(angle);
      s = sinf(angle);
    }
    bool const halves = rope.style == RopeStyle::halves;
    float& a = x[halves ? i : 2 * i];
    float& b = x[halves ? i + dims / 2 : 2 * i + 1];
    float const before = a;
    a = before * c - b * s;
    b = b * c + before * s;
  }
  return x;
}

/// cos and sin of every position up to the longest sequence.
std::vector<float> table_of(std::int32_t dims)
{
  std::vector<float> out;
  for (Index position = 0; position <= RaggedBatch<>::longest; ++position) {
    for (std::int32_t half = 0; half < 2; ++half) {
      for (std::int32_t i = 0; i < dims / 2; ++i) {
        double const angle = position * std::pow(500000.0, -2.0 * i / dims);
        out.push_back(static_cast<float>(half == 0 ? std::cos(angle) : std::sin(angle)));
      }
    }
  }
  return out;
}

struct Case {
  std::int32_t page_tokens, q_heads, gap;
  std::int32_t blocks, threads;
  RopeStyle style;
  std::int32_t dims;
  bool from_table, in_place;
};

/// Runs one case; true where pool and q are what the definition says, to the last bit.
template <RowOrder Order, class T, std::int32_t Dim, class U>
void check(Case const& c, std::uint64_t seed, simt::Options const& schedule)
{
  CAPTURE(seed,
          c.page_tokens,
          c.q_heads,
          c.gap,
          c.blocks,
          c.threads,
          static_cast<int>(c.style),
          c.dims,
          c.from_table,
          c.in_place,
          simt::to_string(schedule));
  constexpr std::int32_t layer = 1;
  RaggedBatch<Order, T, Dim> const batch(c.page_tokens, seed);
  auto view = batch.view();
  std::int32_t const kv_heads = batch.geometry().kv_heads;
  simt::GuardedMemory by_kernel(batch.arena_bytes());
  simt::GuardedMemory by_definition(batch.arena_bytes());
  std::memset(by_kernel.data(), 0x5a, by_kernel.size());
  std::memset(by_definition.data(), 0x5a, by_definition.size());

  constexpr float theta = 10000.0F;
  Rope rope = Rope::of(c.style, c.dims, theta);
  std::vector<float> const table = table_of(c.dims);
  if (c.from_table) {
    rope.table = table.data();
    rope.table_rows = RaggedBatch<>::longest + 1;
  }
  Random random(seed);
  Index const tokens = view.num_tokens();
  Fused<U> const input(tokens + 3, c.q_heads, kv_heads, Dim, c.gap, random);
  std::vector<U> output = c.in_place ? input.data : std::vector<U>(input.data.size());
  std::vector<U> wanted = output;

  view.segment.base = by_definition.data();
  using Traits = kvcache::ElementTraits<U>;
  for (Index token = 0; token < tokens; ++token) {
    if (view.index(token) < 0) {
      continue;
    }
    U const* const row = input.data.data() + token * input.stride;
    auto const floats = [&](std::int32_t head) {
      std::vector<float> x;
      for (std::int32_t d = 0; d < Dim; ++d) {
        x.push_back(Traits::to_float(row[head * Dim + d]));
      }
      return x;
    };
    for (std::int32_t h = 0; h < kv_heads; ++h) {
      auto const k = turned(floats(c.q_heads + h), rope, theta, view.position(token));
      auto const v = floats(c.q_heads + kv_heads + h);
      view.append(kvcache::Solo{}, layer, h, token, k.data(), v.data());
    }
    for (std::int32_t h = 0; h < c.q_heads; ++h) {
      auto const q = turned(floats(h), rope, theta, view.position(token));
      for (std::int32_t d = 0; d < Dim; ++d) {
        wanted[static_cast<std::size_t>(token * input.stride + h * Dim + d)] =
          Traits::from_float(q[static_cast<std::size_t>(d)]);
      }
    }
  }

  view.segment.base = by_kernel.data();
  U const* const in = c.in_place ? output.data() : input.data.data();
  AppendKernel<typename RaggedBatch<Order, T, Dim>::Layout, U> const kernel{
    .kv = view,
    .layer = layer,
    .k = input.part(in, c.q_heads, kv_heads),
    .v = input.part(in, c.q_heads + kv_heads, kv_heads),
    .rope = rope,
    .q = input.part(in, 0, c.q_heads),
    .q_out = input.part(output.data(), 0, c.q_heads)};
  simt::launch(c.blocks, c.threads, kernel.shared_bytes(c.threads), kernel, schedule);
  CHECK(std::memcmp(by_kernel.data(), by_definition.data(), by_kernel.size()) == 0);
  CHECK(std::memcmp(output.data(), wanted.data(), output.size() * sizeof(U)) == 0);
  CHECK(by_kernel.intact());
}

template <RowOrder Order, class T, std::int32_t Dim, class U>
struct Types {
  static void verify(std::uint64_t seed)
  {
    constexpr RopeStyle halves = RopeStyle::halves;
    constexpr RopeStyle pairs = RopeStyle::pairs;
    Case const cases[] = {
      {16, 4, 0, 7, 64, halves, Dim, true, false},
      {1, 0, 0, 3, 32, pairs, Dim, true, false},
      {64, 6, 16, 90, 32, halves, Dim / 2, false, true},
      {16, 3, 1, 2, 96, pairs, Dim / 2, false, true},  // rows at odd addresses
      {16, 2, 0, 5, 64, RopeStyle::none, 0, false, false},
      {64, 2, 8, 4, 64, halves, 6, true, true},  // no runs of 16 bytes
      {1, 1, 3, 6, 32, pairs, 2, true, false},
    };
    auto const schedules = simt::schedules(seed, 2);
    std::size_t at = seed;
    for (Case const& c : cases) {
      check<Order, T, Dim, U>(c, ++seed, schedules[++at % schedules.size()]);
    }
  }
};

}  // namespace

TEMPLATE_TEST_CASE("Append kernel: a step's rows, turned by the definition, bit for bit",
                   "[view][append][simt]",
                   (Types<RowOrder::hnd, kvcache::half, 32, float>),
                   (Types<RowOrder::hnd, kvcache::bfloat16, 16, kvcache::bfloat16>),
                   (Types<RowOrder::nhd, kvcache::half, 16, kvcache::bfloat16>),
                   (Types<RowOrder::planes, float, 16, kvcache::half>),
                   (Types<RowOrder::hnd, engine::Fp8, 32, kvcache::half>),
                   (Types<RowOrder::nhd, kvcache::half, 24, kvcache::half>))
{
  for (std::uint64_t seed = first_seed; seed < first_seed + 300; seed += 100) {
    TestType::verify(seed);
  }
}

TEST_CASE("Append kernel: one batch in every schedule", "[view][append][simt]")
{
  Case const c{16, 4, 0, 9, 96, RopeStyle::halves, 32, true, true};
  for (simt::Options const& schedule : simt::schedules(first_seed)) {
    check<RowOrder::hnd, kvcache::half, 32, kvcache::half>(c, first_seed + 5, schedule);
  }
}

TEST_CASE("Rope: angles are those of the definition, and no position leads out of a table",
          "[view][append]")
{
  for (std::int32_t const dims : {2, 64, 128}) {
    Rope const rope = Rope::of(RopeStyle::halves, dims, 10000.0F);
    for (Index const position : {0, 1, 17, 1000}) {
      for (std::int32_t i = 0; i < dims / 2; ++i) {
        double const angle = position * std::pow(10000.0, -2.0 * i / dims);
        Rope::Turn const turn = rope.turn(position, i);
        CHECK(std::fabs(static_cast<double>(turn.cos) - std::cos(angle)) < 5e-4);
        CHECK(std::fabs(static_cast<double>(turn.sin) - std::sin(angle)) < 5e-4);
      }
    }
  }
  std::vector<float> const table{1.0F, 0.0F, 0.5F, 0.25F};  // two positions of two dims
  Rope const rope{RopeStyle::pairs, 2, table.data(), 2, 0.0F};
  CHECK(rope.turn(0, 0).cos == 1.0F);
  CHECK(rope.turn(1, 0).sin == 0.25F);
  for (Index const position : {2, 3, 0x7fffffff}) {  // no row is taken for another's
    CHECK(std::isnan(rope.turn(position, 0).cos));
    CHECK(std::isnan(rope.turn(position, 0).sin));
  }
  Rope empty = rope;
  empty.table_rows = 0;  // forgotten
  CHECK(std::isnan(empty.turn(0, 0).cos));

  Rope far = Rope::of(RopeStyle::pairs, 2, 10000.0F);
  Rope const computed = far;
  far.table = table.data();
  far.table_rows = 2;
  CHECK(far.turn(1, 0).sin == 0.25F);
  for (Index const position : {2, 3, 100000}) {
    CHECK(far.turn(position, 0).cos == computed.turn(position, 0).cos);
    CHECK(far.turn(position, 0).sin == computed.turn(position, 0).sin);
  }
}

TEST_CASE("Rope: a table shorter than the context is refused, with the rows that it needs",
          "[view][append][errors]")
{
  auto const refused = [](Rope const& rope, std::int32_t head_dim, Index positions) {
    kvcache::Error const error = rope.validate(head_dim, positions);
    return error.why == kvcache::Why::ok ? std::string("ok") : std::string(error.message().text);
  };
  std::vector<float> const table(std::size_t{100} * 64);
  Rope rope{RopeStyle::halves, 64, table.data(), 100, 0.0F};
  CHECK(refused(rope, 128, 100) == "ok");
  CHECK(refused(rope, 128, 101) ==
        "table_rows = 100 (bad configuration): without log2_theta a table has a row for each "
        "position of the longest context, 101");
  rope.table_rows = 0;
  CHECK(refused(rope, 64, 1).find("table_rows = 0 ") == 0);
  rope.log2_theta = 13.0F;
  CHECK(refused(rope, 64, 0x7fffffff) == "ok");
  CHECK(refused(Rope::of(RopeStyle::pairs, 64, 10000.0F), 64, 0x7fffffff) == "ok");
  CHECK(refused(Rope{}, 64, 0x7fffffff) == "ok");
  CHECK(refused(Rope::of(RopeStyle::pairs, 66, 10000.0F), 64, 9).find("dims = 66 ") == 0);
  CHECK(refused(Rope::of(RopeStyle::pairs, 3, 10000.0F), 64, 9).find("dims = 3 ") == 0);
  CHECK(refused(Rope::of(RopeStyle::none, 2, 10000.0F), 64, 9).find("dims = 2 ") == 0);
  CHECK(refused(rope, 64, -1).find("positions = -1 ") == 0);

  // The kernel asks for the rows that its tables have room for.
  RaggedBatch<> const batch(16, first_seed);
  AppendKernel<RaggedBatch<>::Layout, float> kernel{};
  kernel.kv = batch.view();
  auto const room = static_cast<Index>(kernel.kv.segment.row_stride * 16);
  kernel.rope = {RopeStyle::halves, 8, table.data(), room, 0.0F};
  CHECK(kernel.validate().why == kvcache::Why::ok);
  --kernel.rope.table_rows;
  CHECK(std::string(kernel.validate().field) == "table_rows");
  CHECK(kernel.validate().limit == room);
}

TEST_CASE("Append kernel: positions behind a RoPE table are turned by its theta",
          "[view][append][simt]")
{
  for (Index const rows : {0, 1, 700}) {
    constexpr std::int32_t dim = 32;
    RaggedBatch<RowOrder::hnd, float, dim> const batch(16, first_seed);
    auto view = batch.view();
    std::int32_t const heads = batch.geometry().kv_heads;
    std::vector<float> const table = table_of(dim);
    Rope const computed = Rope::of(RopeStyle::halves, dim, 500000.0F);
    Rope whole = computed;
    whole.table = table.data();
    whole.table_rows = RaggedBatch<>::longest + 1;
    Rope cut = whole;
    cut.table_rows = rows;
    Random random(first_seed);
    Fused<float> const input(view.num_tokens(), 0, heads, dim, 0, random);
    simt::GuardedMemory with_whole(batch.arena_bytes());
    simt::GuardedMemory with_cut(batch.arena_bytes());
    auto const run = [&](Rope const& rope, simt::GuardedMemory& arena) {
      std::memset(arena.data(), 0, arena.size());
      view.segment.base = arena.data();
      AppendKernel<RaggedBatch<RowOrder::hnd, float, dim>::Layout, float> const kernel{
        .kv = view,
        .layer = 0,
        .k = input.part(input.data.data(), 0, heads),
        .v = input.part(input.data.data(), heads, heads),
        .rope = rope};
      simt::launch(3, 64, kernel.shared_bytes(64), kernel);
    };
    run(whole, with_whole);
    run(cut, with_cut);
    auto const* const a = reinterpret_cast<float const*>(with_whole.data());
    auto const* const b = reinterpret_cast<float const*>(with_cut.data());
    double worst = 0.0;  // the table is of double precision, what is computed of float
    for (std::size_t i = 0; i < batch.arena_bytes() / sizeof(float); ++i) {
      double const off = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      worst = off <= worst ? worst : off;
    }
    CAPTURE(rows);
    CHECK(worst < 5e-3);
    CHECK(worst > 0.0);
  }
}
