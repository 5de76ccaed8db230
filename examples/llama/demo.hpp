// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "args.hpp"

namespace llama {

/// `--demo`: what the cache does, in five parts, every figure computed on the spot: one context for many
/// questions, four continuations of one prompt, the pages they lie in, drafts that are rolled back, and a pool too
/// small for all. Returns the exit code: 1 where drafts or the small pool changed a text.
/// **Errors** `UsageError` with `--model`: the questions are in the language of the recall model.
[[nodiscard]] int demo(Args const& args);

}  // namespace llama
