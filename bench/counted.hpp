// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Instructions instead of seconds: `kvcache_counts` under callgrind.
///
/// The same binary and input give the same count, whatever else the machine does, so a bar of counts needs one round and
/// says what a clock cannot: that a cost does not grow. Seconds are printed beside the counts and judged by nobody.

#include <sys/wait.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "harness.hpp"

namespace kvcache_bench {

struct Counted {
  double instructions = 0;
  double operations = 0;
  double bytes = 0;    // that the work left allocated
  double seconds = 0;  // without callgrind
};

/// What `command` prints within a minute. **Errors** `std::runtime_error` where it takes longer, or its status is not 0.
inline std::string output_of(std::string const& command)
{
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
    ::popen(("timeout 60 " + command + " 2>&1").c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 4096> part{};
  while (pipe != nullptr &&
         std::fgets(part.data(), static_cast<int>(part.size()), pipe.get()) != nullptr) {
    text += part.data();
  }
  int const status = pipe != nullptr ? ::pclose(pipe.release()) : -1;
  if (status != 0) {
    bool const late = WIFEXITED(status) && WEXITSTATUS(status) == 124;
    throw std::runtime_error((late ? "more than 60 s: " : "failed: ") + command +
                             (late ? std::string() : "\n" + text));
  }
  return text;
}

/// The number that stands behind `label` in `text`.
inline double number_behind(std::string const& text, std::string const& label)
{
  std::size_t const at = text.find(label);
  if (at == std::string::npos) {
    throw std::runtime_error("no '" + label + "' in: " + text);
  }
  return std::stod(text.substr(at + label.size()));
}

/// The command that does row `row` of `kvcache_counts` at `n`.
inline std::string command_of(std::string const& row, std::size_t n)
{
  return std::string("'") + KVCACHE_BENCH_COUNTS + "' " + row + " " + std::to_string(n);
}

/// Does row `row` at `n`, and counts no instructions. **Errors** `std::runtime_error` as above.
inline Counted done(std::string const& row, std::size_t n)
{
  std::string const text = output_of(command_of(row, n));
  Counted c;
  c.operations = number_behind(text, "counted ");
  c.bytes = number_behind(text, "operations, ");
  c.seconds = number_behind(text, "bytes, ");
  return c;
}
/// And counts them. **Errors** `NotBuilt` where there is no valgrind; `std::runtime_error` as above.
inline Counted counted(std::string const& row, std::size_t n)
{
  if (std::system("command -v valgrind >/dev/null 2>&1") != 0) {
    throw NotBuilt{};
  }
  Counted c = done(row, n);
  c.instructions = number_behind(
    output_of("valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file=/dev/null " +
              command_of(row, n)),
    "Collected : ");
  return c;
}

}  // namespace kvcache_bench
