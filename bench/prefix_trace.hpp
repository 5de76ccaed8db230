// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Requests for bars about the prefix tree: token texts, of which the first part is the prompt.
///
/// `ChatTrace` is made here, the same on every machine (seed 42: 20,000 requests, prompts of 2,584 tokens on average, 2,838
/// with the answer): 64 system prompts of 256 to 2,048 tokens, picked by Zipf's law; 500 conversations at a time, of
/// which each request continues one at random with 16 to 304 tokens, answered by 16 to 496; a conversation ends after a
/// turn with probability 0.2. `BlockTrace` reads a published trace of lengths and block hashes, one JSON object a line.

#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcache_bench {

/// A request: what is looked up, and what its sequence holds at the end.
struct Request {
  std::span<kvcache::Token const> prompt;
  std::span<kvcache::Token const> text;  // the prompt and its answer
};

class ChatTrace {
 public:
  explicit ChatTrace(std::uint64_t seed = 42) : state_(seed * 0x9e3779b97f4a7c15ULL + 1)
  {
    for (auto& prompt : system_) {
      extend(prompt, 256 + below(1793));
    }
    double total = 0;
    for (std::size_t i = 0; i < num_system; ++i) {
      total += 1.0 / static_cast<double>(i + 1);
    }
    double sum = 0;
    for (std::size_t i = 0; i < num_system; ++i) {
      sum += 1.0 / static_cast<double>(i + 1) / total;
      cumulated_[i] = sum;
    }
    for (auto& talk : talks_) {
      talk = system_[pick()];
    }
  }

  static constexpr std::size_t num_requests = 20000;

  /// Calls `use(request)` for the next one.
  template <class Use>
  void next(Use&& use)
  {
    std::vector<kvcache::Token>& talk = talks_[below(num_talks)];
    extend(talk, 16 + below(289));
    std::size_t const prompt = talk.size();
    extend(talk, 16 + below(481));
    use(Request{std::span(talk).first(prompt), talk});
    if (unit() < 0.2) {
      talk = system_[pick()];
    }
  }

 private:
  static constexpr std::size_t num_system = 64;
  static constexpr std::size_t num_talks = 500;

  std::uint64_t random()
  {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1dULL;
  }
  std::uint64_t below(std::uint64_t n) { return (random() >> 11) % n; }
  double unit() { return static_cast<double>(random() >> 11) / 9007199254740992.0; }
  void extend(std::vector<kvcache::Token>& text, std::uint64_t n)
  {
    for (std::uint64_t i = 0; i < n; ++i) {
      text.push_back(static_cast<kvcache::Token>(below(128000)));
    }
  }
  std::size_t pick()
  {
    double const u = unit();
    for (std::size_t i = 0; i < num_system; ++i) {
      if (u <= cumulated_[i]) {
        return i;
      }
    }
    return num_system - 1;
  }

  std::uint64_t state_;
  std::vector<kvcache::Token> system_[num_system];
  double cumulated_[num_system];
  std::vector<kvcache::Token> talks_[num_talks];
};

class BlockTrace {
 public:
  /// Empty where there is no such file.
  explicit BlockTrace(std::string const& path) : file_(path) {}
  [[nodiscard]] bool is_open() const { return file_.is_open(); }

  /// Calls `use(request)` for the next one; false at the end. Tokens are made of the block hashes, answers of numbers
  /// that no other text has.
  template <class Use>
  bool next(Use&& use)
  {
    std::string line;
    if (!std::getline(file_, line)) {
      return false;
    }
    auto const input = static_cast<std::size_t>(number_after(line, "\"input_length\": "));
    auto const output = static_cast<std::size_t>(number_after(line, "\"output_length\": "));
    text_.clear();
    std::size_t at = line.find('[');
    while (at != std::string::npos && text_.size() < input) {
      char* end = nullptr;
      auto const hash = std::strtoul(line.c_str() + at + 1, &end, 10);
      for (std::size_t i = 0; i < block_tokens && text_.size() < input; ++i) {
        text_.push_back(
          static_cast<kvcache::Token>((hash * 2654435761U + i * 40503U) & 0x3fffffffU));
      }
      at = line.find(',', static_cast<std::size_t>(end - line.c_str()));
    }
    std::size_t const prompt = text_.size();
    for (std::size_t i = 0; i < output; ++i) {
      text_.push_back(static_cast<kvcache::Token>(0x40000000U | (answers_++ & 0x3fffffffU)));
    }
    if (prompt != 0) {
      use(Request{std::span(text_).first(prompt), text_});
    }
    return true;
  }

 private:
  static constexpr std::size_t block_tokens = 512;

  static unsigned long number_after(std::string const& line, std::string_view key)
  {
    std::size_t const at = line.find(key);
    return at == std::string::npos ? 0 : std::strtoul(line.c_str() + at + key.size(), nullptr, 10);
  }

  std::ifstream file_;
  std::vector<kvcache::Token> text_;
  std::uint32_t answers_ = 0;
};

}  // namespace kvcache_bench
