// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file The order of rows inside the part of a page that belongs to one layer.
///
///   hnd     [head][K | V][token][dim]    a tile of contiguous bytes per head; ours, codecs and splitting need it
///   planes  [K | V][head][token][dim]    HND of FlashInfer and MLC (`[2, H, b, D]`), TensorRT-LLM's blocks
///   nhd     [K | V][token][head][dim]    NHD of FlashInfer (`[2, b, H, D]`), vLLM, SGLang
///
/// It is part of the type, because loops over rows are compiled for it.

namespace kvcache::inline v0_1 {

/// See the file comment.
enum class RowOrder : std::uint8_t { hnd, planes, nhd };

}  // namespace kvcache::inline v0_1
