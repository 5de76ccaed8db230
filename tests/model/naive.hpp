// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The naive model: sequences are vectors of tokens, the prefix tree is a list of whole texts.

#include <kvcache/control/prompt.hpp>
#include <kvcache/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/operation.hpp"
#include "support/stamp.hpp"

namespace kvcache_test {

/// Thrown when the library and the model disagree.
struct Broken {
  std::string what;
};

/// Without exceptions the child process that runs the script dies, which is a result too.
[[noreturn]] inline void breaks_off(std::string const& what)
{
#if defined(__cpp_exceptions)
  throw Broken{what};
#else
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
#endif
}

/// What broke in `body`, or nothing.
template <class Body>
std::string verdict_on(Body const& body)
{
#if defined(__cpp_exceptions)
  try {
    body();
  } catch (Broken const& broken) {
    return broken.what;
  } catch (std::exception const& error) {
    return std::string("exception: ") + error.what();
  }
#else
  body();
#endif
  return {};
}

inline void require(bool holds, char const* what)
{
  if (!holds) [[unlikely]] {
    breaks_off(what);
  }
}
inline void require(bool holds, char const* what, std::int64_t have, std::int64_t want)
{
  if (!holds) [[unlikely]] {
    breaks_off(std::string(what) + ": have " + std::to_string(have) + ", want " +
               std::to_string(want));
  }
}
template <class A, class B>
void require_equal(A have, B want, char const* what)
{
  require(static_cast<std::int64_t>(have) == static_cast<std::int64_t>(want),
          what,
          static_cast<std::int64_t>(have),
          static_cast<std::int64_t>(want));
}

struct NaiveSequence {
  kvcache::SequenceId id{};
  std::uint32_t domain = 0;
  std::uint32_t epoch = 0;  // of the domain's weights when it was opened
  std::vector<kvcache::Token> tokens;
  std::vector<Stamp> stamps;         // of the tokens
  std::vector<kvcache::Token> rest;  // of its prompt
  kvcache::Index cached = 0;
  bool in_step = false;

  [[nodiscard]] Stamp last_stamp() const
  {
    return stamps.empty() ? stamp_start(domain, epoch) : stamps.back();
  }
};

/// One step at a time, and drafts only: so nothing is pending and any number may be accepted. What is left out
/// here, `flights_test.cpp` has.
[[nodiscard]] inline kvcache::Chunk draft_of(std::vector<kvcache::Token> const& tokens)
{
  return {.tokens = tokens, .draft = true};
}

/// One chunk of the step in flight.
struct NaiveChunk {
  kvcache::SequenceId sequence{};
  kvcache::Index first = 0;
  std::vector<kvcache::Token> tokens;
  std::vector<Stamp> stamps;  // of all rows up to the chunk's end
  std::vector<kvcache::PageId> table;
  kvcache::PageId copy_source = kvcache::zero_page;
  bool orphan = false;   // its sequence was closed
  bool planned = false;  // it was in the plan, so the engine runs it
};

struct NaiveStep {
  enum class Stage : std::uint8_t { none, open, submitted, ran };
  Stage stage = Stage::none;
  kvcache::StepId id{};
  std::vector<NaiveChunk> chunks;
  std::uint64_t digest_at_begin = 0;
  bool disturbed = false;  // something happened since `begin` that is not of the step

  [[nodiscard]] std::size_t num_tokens() const
  {
    std::size_t n = 0;
    for (NaiveChunk const& chunk : chunks) {
      n += chunk.tokens.size();
    }
    return n;
  }
};

/// A page that the prefix tree holds: the whole text up to its end.
struct CachedPage {
  std::uint32_t domain = 0;
  std::vector<kvcache::Token> text;
  std::vector<Stamp> stamps;     // of its own rows
  std::uint64_t idle_since = 0;  // when its last user let go
  std::uint64_t idle_latest =
    0;  // its recency may begin when the step that its user was in is over

  [[nodiscard]] bool continues(CachedPage const& other, std::size_t page_tokens) const
  {
    return domain == other.domain && text.size() == other.text.size() + page_tokens &&
           std::equal(other.text.begin(), other.text.end(), text.begin());
  }
};

/// What is cached, by page id.
class NaiveTree {
 public:
  NaiveTree(kvcache::PageCount pages, std::int32_t page_tokens)
      : pages_(std::size_t{pages} + 1), page_tokens_(static_cast<std::size_t>(page_tokens))
  {
  }

  [[nodiscard]] std::optional<CachedPage>& at(std::size_t page) { return pages_[page]; }
  [[nodiscard]] std::optional<CachedPage> const& at(std::size_t page) const { return pages_[page]; }
  [[nodiscard]] std::size_t size() const { return pages_.size(); }

  /// The longest text that `tokens` and any cached page of the domain have in common.
  [[nodiscard]] kvcache::Index longest(std::uint32_t domain,
                                       std::span<kvcache::Token const> tokens) const
  {
    std::size_t best = 0;
    for (std::optional<CachedPage> const& page : pages_) {
      if (page && page->domain == domain) {
        std::size_t common = 0;
        while (common < tokens.size() && common < page->text.size() &&
               tokens[common] == page->text[common]) {
          ++common;
        }
        best = common > best ? common : best;
      }
    }
    return static_cast<kvcache::Index>(best);
  }

  /// I7 and I4: every page continues exactly one cached page or starts a text, and no text is there twice.
  void check() const
  {
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      if (!pages_[i]) {
        continue;
      }
      bool has_parent = pages_[i]->text.size() == page_tokens_;
      for (std::size_t j = 0; j < pages_.size(); ++j) {
        if (j == i || !pages_[j] || pages_[j]->domain != pages_[i]->domain) {
          continue;
        }
        require(pages_[j]->text != pages_[i]->text, "the tree holds one text twice");
        has_parent = has_parent || pages_[i]->continues(*pages_[j], page_tokens_);
      }
      require(has_parent, "I7: a cached page has lost the page before it");
    }
  }

  [[nodiscard]] bool is_leaf(std::size_t page) const
  {
    return std::none_of(pages_.begin(), pages_.end(), [&](std::optional<CachedPage> const& other) {
      return other && other->continues(*pages_[page], page_tokens_);
    });
  }

 private:
  std::vector<std::optional<CachedPage>> pages_;
  std::size_t page_tokens_;
};

}  // namespace kvcache_test
