// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A layer of our pool as TensorRT-LLM's `KVBlockArray` (kernels/kvCacheUtils.h): planes of K and of V behind an
/// offset table.

#include <kvcache/core/result.hpp>
#include <kvcache/interop/layer_tensor.hpp>
#include <kvcache/interop/offset_table.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorrt_llm {

/// The fields of `KVBlockArray` that address memory, and how its kernels do it.
struct KvBlockArray {
  std::int32_t mMaxSeqs;
  std::int32_t mMaxBlocksPerSeq;
  std::int32_t mTokensPerBlock;
  std::int32_t mTokensPerBlockLog2;
  std::int32_t mBytesPerBlock;
  void* mPrimaryPoolPtr;
  std::int32_t const* data;

  /// `kv` is 0 for K, 1 for V.
  [[nodiscard]] std::byte* block_ptr(std::int32_t sequence, std::int32_t row, std::int32_t kv) const
  {
    std::int32_t const line = sequence * mMaxBlocksPerSeq * 2 + kv * mMaxBlocksPerSeq;
    std::int32_t const offset = data[line + (row >> mTokensPerBlockLog2)];
    return static_cast<std::byte*>(mPrimaryPoolPtr) +
           static_cast<std::uint64_t>(offset) * static_cast<std::uint64_t>(mBytesPerBlock);
  }
  /// Elements from the block on.
  [[nodiscard]] std::int32_t local_index(std::int32_t row,
                                         std::int32_t head,
                                         std::int32_t dim) const
  {
    std::int32_t const inside = row & ((1 << mTokensPerBlockLog2) - 1);
    return head * mTokensPerBlock * dim + inside * dim;
  }
};

/// `table` went through `kvcache::fill`, with the planes of `kvcache::plane_numbers(t)`.
/// **Errors** what `plane_numbers` refuses.
template <class T>
[[nodiscard]] kvcache::Result<KvBlockArray> block_array(kvcache::LayerTensor<T> const& t,
                                                        kvcache::OffsetTable const& table)
{
  auto const planes = kvcache::plane_numbers(t);
  if (!planes) {
    return planes.error();
  }
  std::int32_t log2 = 0;
  while ((std::int64_t{1} << log2) < t.page_tokens) {
    ++log2;
  }
  return KvBlockArray{.mMaxSeqs = static_cast<std::int32_t>(table.seq_lens.size()),
                      .mMaxBlocksPerSeq = static_cast<std::int32_t>(table.width),
                      .mTokensPerBlock = static_cast<std::int32_t>(t.page_tokens),
                      .mTokensPerBlockLog2 = log2,
                      .mBytesPerBlock = planes->plane_bytes,
                      .mPrimaryPoolPtr = t.k,
                      .data = table.offsets.data()};
}

}  // namespace tensorrt_llm
