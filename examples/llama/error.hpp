// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace llama {

/// Bad input of any kind: the sentence names the field, its value and what would be right.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A bad command line. `main` prints the sentence and exits with code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace llama
