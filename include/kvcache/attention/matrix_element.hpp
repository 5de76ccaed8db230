// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/dtype.hpp>

/// \file Which of the types that tensor cores multiply has the bits of an element.
///
///   template <> struct kvcache::MatrixElement<engine::bf16> { using type = kvcache::bfloat16; };

namespace kvcache::inline v0_1 {

/// `type` is half or bfloat16. Specialise it for an engine's own type with the bits of one of these.
template <class T>
struct MatrixElement {
  static_assert(sizeof(T) == 0,
                "kvcache: the device attention multiplies on tensor cores, so the layout's element "
                "must be half or bfloat16, or a type of the same bits for which "
                "kvcache::MatrixElement names it; f32 layouts have the host attention only");
};

template <>
struct MatrixElement<half> {
  using type = half;
};

template <>
struct MatrixElement<bfloat16> {
  using type = bfloat16;
};

}  // namespace kvcache::inline v0_1
