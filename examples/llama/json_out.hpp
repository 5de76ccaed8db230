// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace llama {

/// The (id, logit) pairs of the five largest logits, best first, the lower id first among equals.
[[nodiscard]] std::vector<std::pair<std::int32_t, float>> top_five(std::span<float const> logits);

/// What `--dump FILE` writes.
struct Dump {
  std::vector<std::int32_t> prompt_tokens;
  std::vector<std::vector<std::pair<std::int32_t, float>>> top5;  // one entry per prompt position
  std::vector<std::int32_t> generated;
};

/// `{"prompt_tokens": [...], "top5": [[[id, logit], ...], ...], "generated": [...]}`. Logits have
/// nine digits, so they read back as the same float; a logit that is no number is written `null`.
[[nodiscard]] std::string to_json(Dump const& dump);
/// **Errors** `Error` naming the file when it cannot be written whole.
void write_dump(Dump const& dump, std::string const& path);

}  // namespace llama
