// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>

#include "support/simt/fibers.hpp"
#include "support/simt/sanitizers.hpp"

/// \file Which thread of which block touched memory that is not there.

namespace simt {

/// While it lives, a touch of a guard page, or of the page under a fiber's stack, prints a sentence before the program ends
/// as it would have. Under a sanitizer nothing: that prints its own report.
class LastWord {
 public:
  LastWord()
  {
    if (has_asan || has_tsan) {
      return;
    }
    // The stack of a fiber may be what has run out.
    stack_t own{};
    own.ss_sp = stack_.data();
    own.ss_size = stack_.size();
    ::sigaltstack(&own, &old_stack_);
    struct sigaction action{};
    action.sa_sigaction = tell;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGSEGV, &action, &old_);
  }
  ~LastWord()
  {
    if (!has_asan && !has_tsan) {
      ::sigaction(SIGSEGV, &old_, nullptr);
      ::sigaltstack(&old_stack_, nullptr);
    }
  }
  LastWord(LastWord const&) = delete;
  LastWord& operator=(LastWord const&) = delete;

 private:
  static void tell(int /*signal*/, siginfo_t* info, void* /*context*/)
  {
    char text[160];
    int const n =
      std::snprintf(text,
                    sizeof text,
                    "simt: block %d, thread %d touched %p, outside its memory or its stack\n",
                    Fibers::mine().block(),
                    Fibers::mine().thread(),
                    info->si_addr);
    // Returning does it again, and then nobody listens.
    [[maybe_unused]] ssize_t const written =
      ::write(STDERR_FILENO, text, static_cast<std::size_t>(n));
  }

  std::array<std::byte, 16384> stack_{};
  stack_t old_stack_{};
  struct sigaction old_{};
};

}  // namespace simt
