// SPDX-License-Identifier: Apache-2.0
#include "llama/terminal.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/catch.hpp"

using llama::Interrupt;

TEST_CASE("Interrupt: Ctrl-C raises a flag, and the old handler comes back", "[llama][terminal]")
{
  REQUIRE(std::signal(SIGINT, SIG_IGN) != SIG_ERR);
  {
    Interrupt const interrupt;
    CHECK_FALSE(Interrupt::requested());
    REQUIRE(std::raise(SIGINT) == 0);
    CHECK(Interrupt::requested());
  }
  CHECK(std::signal(SIGINT, SIG_DFL) == SIG_IGN);
  Interrupt const again;
  CHECK_FALSE(Interrupt::requested());
}

TEST_CASE("Interrupt: a second Ctrl-C kills a program that does not stop", "[llama][terminal]")
{
  pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Interrupt const interrupt;
    (void)std::raise(SIGINT);
    (void)std::raise(SIGINT);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}

TEST_CASE("Progress: silent where stderr is no terminal", "[llama][terminal]")
{
  int pipe_ends[2] = {};
  REQUIRE(::pipe(pipe_ends) == 0);
  int const saved = ::dup(STDERR_FILENO);
  REQUIRE(::dup2(pipe_ends[1], STDERR_FILENO) >= 0);
  {
    llama::Progress progress("prompt", 10, true);
    ::usleep(600'000);
    progress.update(5);
    progress.update(10);
  }
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::close(pipe_ends[1]);
  char byte = 0;
  CHECK(::read(pipe_ends[0], &byte, 1) == 0);
  ::close(pipe_ends[0]);
}
