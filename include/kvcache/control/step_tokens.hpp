// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/control/media_table.hpp>
#include <kvcache/control/step_state.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>

/// \file What a submitted step computes, token by token, in the order of its views.
///
///   given      a: 1 2 3 4 5      b: 1 2 3 4 9       two chunks of a step that attaches
///   planned    1 2 3 4 5         9                  the first four of b lie in a's page already
///   tokens()   a0 a1 a2 a3 a4    b4                 token t of the view is the t-th of these
///
/// A step that attaches plans fewer tokens than it was given. So does any step of which a sequence was closed, cut or
/// suspended before `submit`, or lost an older step that it follows. An engine that reads its tokens here need not know.

namespace kvcache::inline v0_1 {

/// One token that a step computes.
struct StepToken {
  enum class Kind : std::uint8_t {
    named,    ///< `token` is what the chunk said
    counted,  ///< planned by count: `token` is -1, who it is says the step before, or a draft
    media     ///< a row of media: `token` is its name, see `Control::media_row`
  };

  Token token = -1;
  Kind kind = Kind::named;
  std::uint32_t chunk = 0;  ///< which of the step's chunks, in the order of the adds
  Index place = 0;          ///< in what the chunk gave
};

/// A range over the tokens of a step, which makes each when it is asked for: it holds nothing and allocates nothing.
/// Valid until the step is over.
class StepTokens {
 public:
  StepTokens() = default;
  StepTokens(detail::StepState const& step, detail::MediaTable const& media) noexcept
      : step_(&step), media_(&media)
  {
  }

  class Iterator {
   public:
    Iterator(StepTokens const& tokens, std::uint32_t chunk) noexcept
        : tokens_(&tokens), chunk_(chunk)
    {
      skip();
    }
    [[nodiscard]] StepToken operator*() const noexcept { return tokens_->at(chunk_, place_); }
    Iterator& operator++() noexcept
    {
      if (++place_ == tokens_->step_->chunks[chunk_].tokens) {
        place_ = 0;
        chunk_ += 1;
        skip();
      }
      return *this;
    }
    [[nodiscard]] bool operator!=(Iterator const& other) const noexcept
    {
      return chunk_ != other.chunk_ || place_ != other.place_;
    }

   private:
    /// Past chunks that are not in the plan.
    void skip() noexcept
    {
      while (chunk_ < tokens_->num_chunks() && !tokens_->step_->chunks[chunk_].planned) {
        chunk_ += 1;
      }
    }

    StepTokens const* tokens_;
    std::uint32_t chunk_;
    Index place_ = 0;  // among the planned tokens of the chunk
  };

  [[nodiscard]] Iterator begin() const noexcept { return {*this, 0}; }
  [[nodiscard]] Iterator end() const noexcept { return {*this, num_chunks()}; }
  /// **Cost** O(chunks).
  [[nodiscard]] std::size_t size() const noexcept
  {
    return step_ == nullptr ? 0 : static_cast<std::size_t>(step_->plan.num_tokens());
  }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

 private:
  [[nodiscard]] std::uint32_t num_chunks() const noexcept
  {
    return step_ == nullptr ? 0 : static_cast<std::uint32_t>(step_->chunks.size());
  }
  [[nodiscard]] StepToken at(std::uint32_t chunk, Index place) const noexcept
  {
    detail::ChunkState const& c = step_->chunks[chunk];
    StepToken made{.chunk = chunk, .place = c.attached + place};
    if (!c.named) {
      made.kind = StepToken::Kind::counted;
      return made;
    }
    made.token = step_->tokens[c.first_token + static_cast<std::size_t>(made.place)];
    if (made.token < 0 && media_->look_up(made.token).item->is_text()) {
      made.token = media_->text_token(made.token);
    } else if (made.token < 0) {
      made.kind = StepToken::Kind::media;
    }
    return made;
  }

  detail::StepState const* step_ = nullptr;
  detail::MediaTable const* media_ = nullptr;
};

}  // namespace kvcache::inline v0_1
