// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/alloc/concept.hpp>
#include <kvcache/cache/policies.hpp>
#include <kvcache/core/roles.hpp>
#include <kvcache/layout/concept.hpp>
#include <kvcache/prefix/concept.hpp>
#include <kvcache/replace/concept.hpp>

/// \file What a combination of layout and policies gets wrong, in a sentence that compilers print first.

namespace kvcache::inline v0_1 {

namespace detail {

template <class Policy>
struct ExplainPolicies {
  static constexpr bool is_policies = false;
  static constexpr bool all_named = true;
  static constexpr bool all_known = true;
  static constexpr bool no_twins = true;
};

template <class... Parts>
struct ExplainPolicies<Policies<Parts...>> {
  static constexpr bool is_policies = true;
  static constexpr bool all_named = (... && NamesRole<Parts>);
  static constexpr bool all_known =
    (... && (!NamesRole<Parts> || plays<Parts, role::allocator> || plays<Parts, role::prefix> ||
             plays<Parts, role::replacement>));
  static constexpr bool no_twins = num_playing<role::allocator, Parts...> <= 1 &&
                                   num_playing<role::prefix, Parts...> <= 1 &&
                                   num_playing<role::replacement, Parts...> <= 1;
};

}  // namespace detail

/// True, or a compile error whose first line says what to change.
template <class Layout, class Policy>
consteval bool explain()
{
  using Parts = detail::ExplainPolicies<Policy>;
  static_assert(
    PagedLayout<Layout>,
    "kvcache: the first argument of KVCache must be a layout, such as PagedHeads<half, 64, 16>");
  static_assert(
    Parts::is_policies,
    "kvcache: the second argument of KVCache must be Policies<...>, with any parts in any order");
  static_assert(Parts::all_named,
                "kvcache: a part of Policies<...> names no role; write `using role = "
                "kvcache::role::replacement;` (or another role) in it");
  static_assert(Parts::all_known,
                "kvcache: a part of Policies<...> has a role that this version does not know");
  static_assert(Parts::no_twins,
                "kvcache: two parts of Policies<...> play the same role; keep one of them");
  if constexpr (Parts::is_policies && Parts::all_named && Parts::all_known && Parts::no_twins) {
    static_assert(explain_allocator<typename Policy::allocator>());
    static_assert(explain_prefix<typename Policy::prefix>());
    static_assert(explain_replacement<typename Policy::replacement>());
  }
  return true;
}

}  // namespace kvcache::inline v0_1
