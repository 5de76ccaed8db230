// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file Where the layers of a page lie.
///
///   page_first    [ page 0: layer 0 | 1 | .. ][ page 1: layer 0 | 1 | .. ] ..    a page is one extent to copy and send
///   layer_first   [ layer 0: page 0 | 1 | .. ][ layer 1: page 0 | 1 | .. ] ..    a tensor per layer, dense in its pages
///
/// It is a number and not a type: a view holds strides and offsets either way, so kernels are the same code.

namespace kvcache::inline v0_1 {

/// See the file comment.
enum class Arrangement : std::uint8_t { page_first, layer_first };

}  // namespace kvcache::inline v0_1
