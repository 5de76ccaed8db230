// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/error.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/thread_block.hpp>
#include <kvcache/view/batch_view.hpp>
#include <kvcache/view/rope.hpp>
#include <kvcache/view/row_units.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file Stores a layer's K and V of all tokens and KV heads of a step in one launch, K turned by RoPE, Q too if asked.
///
/// How many tokens there are, where their rows lie and which positions they have is read on the device: a captured launch
/// serves every later step of its slot, ragged batches, drafts and trees of drafts included. Padding is skipped, and so is
/// what `BatchView::append` would not store. A block a token at a time, on any grid: it puts the cosines and sines of the
/// token's position into shared memory, once for all heads; then its threads have the rows' parts of 16 bytes in turns, head
/// after head, as they lie in the projections' output.

namespace kvcache::inline v0_1 {

/// What a projection leaves: head h of token t begins at `data + t * token_stride + h * head_dim`. A part of a fused
/// output of q, k and v is one too.
template <class U>
struct HeadRows {
  U* data = nullptr;
  std::int64_t token_stride = 0;  ///< elements
  std::int32_t heads = 0;

  KVCACHE_HOST_DEVICE U* row(Index token, std::int32_t head, std::int32_t head_dim) const
  {
    return data + token * token_stride + static_cast<std::int64_t>(head) * head_dim;
  }
};

/// See the file comment. **Units** `U` is float, `half`, `bfloat16`, or any type with `ElementTraits`; turning is done in
/// float, and what is not turned and not converted is copied bit for bit.
/// **Pre** `k.heads == v.heads`, the KV heads of the view; `q_out` is `q` itself or does not overlap it.
/// `rope` knows every position of the step: `validate` says so for all steps, once.
/// **Cost** reads and writes each element once, in pieces of 16 bytes where the addresses allow it; angles once a token.
template <class Layout, class U>
struct AppendKernel {
  using element = typename Layout::element;
  static constexpr std::int32_t run = detail::Packed<element>::size;

  BatchView<Layout> kv;
  std::int32_t layer;
  HeadRows<U const> k;
  HeadRows<U const> v;
  Rope rope{};
  HeadRows<U const> q{};  ///< turned into `q_out`; without heads: no Q
  HeadRows<U> q_out{};

  static constexpr std::int32_t max_threads = 256;  ///< of a block
  /// Registers for the angle beside the table: unasked, ptxas spills on sm_100, where it aims at six blocks.
  static constexpr std::int32_t blocks_beside = 4;

  /// What of `rope` cannot work for as many rows as the view's tables have room for, or `Why::ok`. Nothing is read.
  [[nodiscard]] Error validate() const
  {
    std::int64_t const rows = std::int64_t{kv.segment.row_stride} * kv.map.tokens.get();
    constexpr Index most = 0x7fffffff;
    return rope.validate(kv.map.dim.get(), rows < most ? static_cast<Index>(rows) : most);
  }
  [[nodiscard]] std::size_t shared_bytes(std::int32_t) const
  {
    return static_cast<std::size_t>(rope.dims) * sizeof(float);
  }
  template <ThreadBlock B>
  KVCACHE_HOST_DEVICE void operator()(B& block) const
  {
    std::int32_t const dim = kv.map.dim.get();
    detail::RowUnits const turned(dim, rope, run);
    detail::RowUnits const plain(dim, {}, run);
    std::int32_t const of_k = k.heads * turned.count;
    std::int32_t const of_kv = of_k + v.heads * plain.count;
    std::int32_t const of_all = of_kv + q.heads * turned.count;
    auto* const turns = reinterpret_cast<float*>(block.shared());
    Index const tokens = kv.num_tokens();
    for (Index token = block.index(); token < tokens; token += block.blocks()) {
      if (kv.index(token) < 0) {
        continue;  // the whole block
      }
      if (rope.dims != 0) {
        block.sync();  // the token before has been turned
        Index const position = kv.position(token);
        for (std::int32_t pair = block.thread(); pair < rope.dims / 2; pair += block.threads()) {
          Rope::Turn const turn = rope.turn(position, pair);
          turns[pair] = turn.cos;
          turns[rope.dims / 2 + pair] = turn.sin;
        }
        block.sync();
      }
      for (std::int32_t i = block.thread(); i < of_all; i += block.threads()) {
        if (i < of_k) {
          std::int32_t const head = i / turned.count;
          if (element* const to = kv.row_of(layer, head, token)) {
            store(k.row(token, head, dim), to, rope, turned, turns, i - head * turned.count);
          }
        } else if (i < of_kv) {
          std::int32_t const head = (i - of_k) / plain.count;
          if (element* const to = kv.row_of(layer, head, token)) {
            std::int32_t const u = i - of_k - head * plain.count;
            store(v.row(token, head, dim), to + kv.map.value_elements(), {}, plain, turns, u);
          }
        } else {
          std::int32_t const head = (i - of_kv) / turned.count;
          std::int32_t const u = i - of_kv - head * turned.count;
          store(q.row(token, head, dim), q_out.row(token, head, dim), rope, turned, turns, u);
        }
      }
    }
  }

 private:
  template <class Out>
  static KVCACHE_HOST_DEVICE void store(U const* in,
                                        Out* out,
                                        Rope const& rope,
                                        detail::RowUnits const& units,
                                        float const* turns,
                                        std::int32_t u)
  {
    if (units.wide) {
      detail::store_unit<run>(in, out, rope, units, turns, u);
    } else {
      detail::store_unit<1>(in, out, rope, units, turns, u);
    }
  }
};

}  // namespace kvcache::inline v0_1
