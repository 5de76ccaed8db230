// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

/// \file The one failure hook: what happens when a caller breaks a precondition.
///
/// Expected outcomes (no room, no hit, a stale handle) are values, see `result.hpp`. What lands here is a
/// mistake in the calling program, which no value could repair. With exceptions the hook throws
/// `LogicError`; without them it prints the sentence and aborts. Device code never comes here.

namespace kvcache::inline v0_1 {

/// A broken precondition. `what()` is one sentence that says what the caller must do instead.
class LogicError : public std::exception {
 public:
  explicit LogicError(char const* sentence) noexcept : sentence_(sentence) {}
  [[nodiscard]] char const* what() const noexcept override { return sentence_; }

 private:
  char const* sentence_;  // a string literal: never freed
};

namespace detail {

/// The end of the program, for callers that may not throw: destructors, and builds without exceptions.
[[noreturn]] inline void fail_hard(char const* sentence) noexcept
{
  std::fputs(sentence, stderr);
  std::fputc('\n', stderr);
  std::abort();
}
[[noreturn]] inline void fail(char const* sentence)
{
#if defined(__cpp_exceptions)
  throw LogicError(sentence);
#else
  fail_hard(sentence);
#endif
}

/// Says that memory ran out, as `new` does.
[[noreturn]] inline void out_of_memory()
{
#if defined(__cpp_exceptions)
  throw std::bad_alloc();
#else
  fail("kvcache: the host has no memory left");
#endif
}

/// Runs `work`; false if memory ran out on the way. **Pre** `work` gives the strong guarantee.
/// Without exceptions memory that runs out ends the program, as the language has it.
template <class Work>
[[nodiscard]] bool memory_sufficed_for(Work&& work)
{
#if defined(__cpp_exceptions)
  try {
    work();
  } catch (std::bad_alloc const&) {
    return false;
  }
#else
  work();
#endif
  return true;
}

}  // namespace detail
}  // namespace kvcache::inline v0_1

/// Checks a precondition of a public function in every build; `sentence` is a string literal.
#define KVCACHE_EXPECTS(condition, sentence) \
  do {                                       \
    if (!(condition)) [[unlikely]] {         \
      ::kvcache::detail::fail(sentence);     \
    }                                        \
  } while (false)
