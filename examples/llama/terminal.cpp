// SPDX-License-Identifier: Apache-2.0
#include "terminal.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <utility>

namespace llama {

namespace {

// A signal handler reaches nothing but globals.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

extern "C" void on_interrupt(int)
{
  interrupted.store(true, std::memory_order_relaxed);
}

}  // namespace

bool stdout_is_terminal()
{
  return ::isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal()
{
  return ::isatty(STDERR_FILENO) == 1;
}

Interrupt::Interrupt()
{
  interrupted = false;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  // RESETHAND: a second Ctrl-C kills, should the program be stuck. RESTART: output is not cut in
  // the middle.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigaction(SIGINT, &action, &old_);
}

Interrupt::~Interrupt()
{
  ::sigaction(SIGINT, &old_, nullptr);
}

bool Interrupt::requested() noexcept
{
  return interrupted.load(std::memory_order_relaxed);
}

Progress::Progress(std::string label, std::size_t total, bool enabled)
    : label_(std::move(label)),
      total_(total),
      enabled_(enabled && total != 0 && stderr_is_terminal())
{
}

void Progress::update(std::size_t done)
{
  if (!enabled_) {
    return;
  }
  using std::chrono::milliseconds;
  auto const now = Clock::now();
  if (now - start_ < milliseconds(500) || (now - last_ < milliseconds(100) && done != total_)) {
    return;
  }
  last_ = now;
  shown_ = true;
  double const seconds = std::chrono::duration<double>(now - start_).count();
  std::fprintf(stderr,
               "\r\x1b[2m%s %zu of %zu tokens, %zu%%, %.0f tokens/s\x1b[0m\x1b[K",
               label_.c_str(),
               done,
               total_,
               done * 100 / total_,
               static_cast<double>(done) / seconds);
  std::fflush(stderr);
}

void Progress::clear()
{
  if (std::exchange(shown_, false)) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  }
}

Colour::Colour(std::string_view code) : active_(stdout_is_terminal())
{
  if (active_) {
    std::printf("\x1b[%.*sm", static_cast<int>(code.size()), code.data());
  }
}

Colour::~Colour()
{
  if (active_) {
    std::fputs("\x1b[0m", stdout);
    std::fflush(stdout);
  }
}

}  // namespace llama
