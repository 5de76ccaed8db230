// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/stats.hpp>
#include <kvcache/core/check.hpp>
#include <kvcache/core/config.hpp>

#include <exception>

/// \file The recount after each call of the facade, in builds that ask for it; see `KVCACHE_CHECK_CALLS`.
///
/// A policy of the user's that corrupts what it keeps, or a bug of ours, is then reported by the call that did it and not
/// by some later one. A recount that finds no memory for itself says nothing.

namespace kvcache::inline v0_1::detail {

/// What is broken, or null. **Cost** O(all state), allocates; nothing where `KVCACHE_CHECK_CALLS` is 0.
template <class ControlPlane>
[[nodiscard]] char const* broken_invariant([[maybe_unused]] ControlPlane const& control)
{
  [[maybe_unused]] Report report{};
  if constexpr (KVCACHE_CHECK_CALLS != 0) {
    (void)memory_sufficed_for([&] { report = control.check_invariants(); });
  }
  return report.broken;
}

/// After a call that may throw. **Errors** the failure hook, with the broken invariant's sentence.
template <class ControlPlane>
void check_call(ControlPlane const& control)
{
  if (char const* const broken = broken_invariant(control); broken != nullptr) {
    fail(broken);
  }
}
/// After one that may not: prints the sentence and aborts. Not while an exception is on its way, which may be
/// this very report: handles that it ends would turn it into an abort.
template <class ControlPlane>
void check_call_or_abort(ControlPlane const& control) noexcept
{
  if constexpr (KVCACHE_CHECK_CALLS != 0) {
    if (std::uncaught_exceptions() != 0) {
      return;
    }
  }
  if (char const* const broken = broken_invariant(control); broken != nullptr) {
    fail_hard(broken);
  }
}

}  // namespace kvcache::inline v0_1::detail
