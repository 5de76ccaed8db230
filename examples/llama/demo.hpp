// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "args.hpp"

namespace llama {

/// `--demo`: what the cache does, in three parts, every figure computed on the spot: one context for many
/// questions, four continuations of one prompt, and the pages they lie in. Returns the exit code.
/// **Errors** `UsageError` with `--model`: the questions are in the language of the recall model.
[[nodiscard]] int demo(Args const& args);

}  // namespace llama
