// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace llama_test {

/// What `fn` writes to stdout.
template <class Fn>
[[nodiscard]] std::string captured(Fn&& fn)
{
  std::FILE* const file = std::tmpfile();
  std::fflush(stdout);
  int const kept = ::dup(STDOUT_FILENO);
  if (file == nullptr || kept < 0) {
    throw std::runtime_error("no temporary file to capture stdout");
  }
  ::dup2(::fileno(file), STDOUT_FILENO);
  auto const restore = [&] {
    std::fflush(stdout);
    ::dup2(kept, STDOUT_FILENO);
    ::close(kept);
  };
  try {
    fn();
  } catch (...) {
    restore();
    std::fclose(file);
    throw;
  }
  restore();
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    text += static_cast<char>(c);
  }
  std::fclose(file);
  return text;
}

}  // namespace llama_test
