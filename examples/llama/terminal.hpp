// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace llama {

[[nodiscard]] bool stdout_is_terminal();
[[nodiscard]] bool stderr_is_terminal();

/// Ctrl-C asks the program to stop; it does not kill it. While one of these lives, the first SIGINT
/// only raises a flag; a second one kills as usual. The old handler comes back at the end.
class Interrupt {
 public:
  static constexpr int exit_code = 130;

  Interrupt();
  ~Interrupt();
  Interrupt(Interrupt const&) = delete;
  Interrupt& operator=(Interrupt const&) = delete;

  /// Whether Ctrl-C was pressed. **Threads** any.
  [[nodiscard]] static bool requested() noexcept;

 private:
  struct sigaction old_ = {};
};

/// One line on stderr that says how far a long prompt is; silent where stderr is no terminal.
/// The line is wiped at the end, so nothing of it stays among the output.
class Progress {
 public:
  /// `enabled` is `--no-progress` turned around.
  Progress(std::string label, std::size_t total, bool enabled);
  ~Progress() { clear(); }
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;

  /// **Cost** nothing for the first half second, then a line at most ten times a second.
  void update(std::size_t done);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  std::size_t total_;
  bool enabled_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

/// Colours what is written to stdout until the end of the scope, where stdout is a terminal.
class Colour {
 public:
  /// `code` is an ANSI SGR code: "2" dim, "1" bold, "32" green.
  explicit Colour(std::string_view code);
  ~Colour();
  Colour(Colour const&) = delete;
  Colour& operator=(Colour const&) = delete;

 private:
  bool active_;
};

}  // namespace llama
