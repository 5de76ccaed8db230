// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file What a program says before it ends: for calls that may not throw, and for builds without exceptions.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <string>

namespace kvcache_test {

/// Does `body` in a child process. Returns what that prints to stderr, a line each, and then "aborted" or "lived on".
template <class Body>
std::string last_words(Body const& body)
{
  int ends[2];
  if (::pipe(ends) != 0) {
    return "no pipe";
  }
  std::fflush(nullptr);
  pid_t const child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // the test framework has its own
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string told;
  char part[256];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
    told.append(part, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return told + (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? "aborted" : "lived on");
}

}  // namespace kvcache_test
