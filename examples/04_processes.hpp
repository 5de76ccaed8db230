// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Two pipes and a process: what 04_scheduler_and_worker.cpp needs of the operating system.

#include <poll.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

/// Reads all of `out`. False where the other end is gone.
inline bool read_all(int pipe, std::span<std::byte> out)
{
  while (!out.empty()) {
    ::ssize_t const got = ::read(pipe, out.data(), out.size());
    if (got > 0) {
      out = out.subspan(static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

/// Writes all of `bytes`. False where nobody reads. **Pre** SIGPIPE is ignored.
inline bool write_all(int pipe, std::span<std::byte const> bytes)
{
  while (!bytes.empty()) {
    ::ssize_t const put = ::write(pipe, bytes.data(), bytes.size());
    if (put > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    } else if (put < 0 && errno != EINTR) {
      return false;
    }
  }
  return true;
}

/// Whether something is there to read already.
inline bool has_input(int pipe)
{
  ::pollfd request{.fd = pipe, .events = POLLIN, .revents = 0};
  return ::poll(&request, 1, 0) == 1 && (request.revents & POLLIN) != 0;
}

/// A child process with a pipe to it and one back.
class Process {
 public:
  /// Starts `work(input, output)`; the child ends with what it returns.
  explicit Process(int (*work)(int input, int output))
  {
    int to[2];
    int from[2];
    if (::pipe(to) != 0 || ::pipe(from) != 0) {
      throw std::runtime_error("no pipe to be had");
    }
    std::fflush(stdout);  // or the child prints it again
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(to[1]);
      ::close(from[0]);
      int status = 1;
      try {
        status = work(to[0], from[1]);
      } catch (std::exception const& error) {  // it must not go on as a second parent
        std::fprintf(stderr, "worker: %s\n", error.what());
      }
      ::_exit(status);
    }
    // Each side keeps its own ends only: that is why the end of one is seen by the other.
    ::close(to[0]);
    ::close(from[1]);
    to_ = to[1];
    from_ = from[0];
    if (pid_ < 0) {
      throw std::runtime_error("no process to be had");
    }
  }
  Process(Process const&) = delete;
  Process& operator=(Process const&) = delete;
  ~Process() { (void)end(); }

  [[nodiscard]] ::pid_t pid() const { return pid_; }
  [[nodiscard]] int to() const { return to_; }
  [[nodiscard]] int from() const { return from_; }
  void kill() const { ::kill(pid_, SIGKILL); }

  /// Closes the pipes, waits for the child, and says how it ended.
  std::string end()
  {
    if (to_ >= 0) {
      ::close(std::exchange(to_, -1));
      ::close(std::exchange(from_, -1));
      while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
      }
    }
    return WIFSIGNALED(status_) ? "was killed by signal " + std::to_string(WTERMSIG(status_))
                                : "ended with status " + std::to_string(WEXITSTATUS(status_));
  }

 private:
  ::pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  int status_ = 0;
};
