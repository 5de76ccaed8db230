// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <type_traits>

/// \file The parts of a cache, each put in its place by the role that it names.

namespace kvcache::inline v0_1 {

namespace detail {

template <class Part>
concept NamesRole = requires { typename Part::role; };

template <class Part, class Role>
inline constexpr bool plays = false;
template <NamesRole Part, class Role>
inline constexpr bool plays<Part, Role> = std::is_same_v<typename Part::role, Role>;

/// The first of `Parts` that plays `Role`, else `Default`.
template <class Role, class Default, class... Parts>
struct Pick {
  using type = Default;
};
template <class Role, class Default, class Part, class... Parts>
struct Pick<Role, Default, Part, Parts...> {
  using type = typename std::
    conditional_t<plays<Part, Role>, Pick<Role, Part>, Pick<Role, Default, Parts...>>::type;
};

template <class Role, class... Parts>
inline constexpr int num_playing = (0 + ... + (plays<Parts, Role> ? 1 : 0));

}  // namespace detail

/// The policies of a cache, in any order; what is not named takes its default. A user's own policy is a
/// struct with `using role = kvcache::role::replacement;` (or another role) and what its concept asks for.
template <class... Parts>
struct Policies {
  using allocator = typename detail::Pick<role::allocator, PageAllocator, Parts...>::type;
  using prefix = typename detail::Pick<role::prefix, RadixTree, Parts...>::type;
  using replacement = typename detail::Pick<role::replacement, Lru, Parts...>::type;
};

}  // namespace kvcache::inline v0_1
