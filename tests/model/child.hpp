// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Child processes, so that a crash of the library is a result like any other.

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>

namespace kvcache_test {

/// Told each line of a listing as it comes, so that a crash loses nothing. Empty: nobody listens.
using Listener = std::function<void(std::string const&)>;

/// A child process of a test dies of a crash silently: what the test framework would print is not wanted.
inline void be_a_child()
{
  for (int const signal : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS}) {
    std::signal(signal, SIG_DFL);
  }
  if (std::freopen("/dev/null", "w", stderr) == nullptr ||
      std::freopen("/dev/null", "w", stdout) == nullptr) {
    ::_exit(2);
  }
}

/// Runs `body(tell)` in a child process and returns what it told, so that a crash is a result too.
template <class Body>
std::string in_child(Body const& body)
{
  int ends[2];
  if (::pipe(ends) != 0) {
    return "no pipe";
  }
  std::fflush(nullptr);
  pid_t const child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    be_a_child();
    body([&](std::string const& text) {
      if (::write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
        ::_exit(2);
      }
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string told;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
    told.append(part, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? told + " BREAKS: signal " + std::to_string(WTERMSIG(status)) + "\n"
                             : told;
}

}  // namespace kvcache_test
