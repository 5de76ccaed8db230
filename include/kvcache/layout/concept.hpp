// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/layout/footprint.hpp>
#include <kvcache/layout/geometry.hpp>
#include <kvcache/layout/paged_heads.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

/// \file What a layout must say: where a row lies, and what a page costs.
///
/// Axioms: `complete(g, e)` either names an error or gives a geometry for which `footprint` is exact; the
/// rows of a tile do not overlap; `tile_bytes` is a multiple of 128.

namespace kvcache::inline v0_1 {

template <class L>
concept HasElement = requires { typename L::element; };
template <class L>
concept HasMap = requires { typename L::Map; } && std::is_trivially_copyable_v<typename L::Map>;
template <class L>
concept CompletesGeometry = requires(Geometry g, Error& e) {
  { L::complete(g, e) } -> std::same_as<Geometry>;
};
template <class L>
concept KnowsFootprint = requires(Geometry const& g) {
  { L::footprint(g) } -> std::same_as<Footprint>;
};

/// A layout of pages; see the file comment.
template <class L>
concept PagedLayout = HasElement<L> && HasMap<L> && CompletesGeometry<L> && KnowsFootprint<L>;

static_assert(PagedLayout<PagedHeads<half, 64, 16>> && PagedLayout<PagedHeads<float>> &&
              PagedLayout<PagedHeads<half, 64, 16, RowOrder::nhd>>);

}  // namespace kvcache::inline v0_1
