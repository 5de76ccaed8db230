// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/ids.hpp>

#include <cstdint>
#include <cstdio>
#include <type_traits>

/// \file Outcomes that a caller must expect, as values an operator can read.

namespace kvcache::inline v0_1 {

/// Why a call did nothing.
enum class Why : std::uint8_t {
  ok,
  bad_config,      ///< a field of the configuration has a value that cannot work
  bad_token,       ///< a token lies outside the vocabulary
  stale_sequence,  ///< the sequence was closed, or never opened here
  stale_step,      ///< the step was committed, dropped or failed
  stale_pin,       ///< the pin was let go, or never made here
  busy,            ///< the sequence or the stream is in a step that must end first
  suspended,       ///< the sequence gave its pages back; resume it first
  no_pages,        ///< not enough pages now; closing, committing or evicting can free some
  no_rows,         ///< every table row is held by a sequence
  too_large,       ///< can never fit, whatever is freed
  no_memory,       ///< the host or the device gave no memory
  device_failed,   ///< a call of the device failed: what its memory holds is not known
};

[[nodiscard]] constexpr char const* name(Why why) noexcept
{
  switch (why) {
    case Why::ok:
      return "ok";
    case Why::bad_config:
      return "bad configuration";
    case Why::bad_token:
      return "token out of range";
    case Why::stale_sequence:
      return "stale sequence";
    case Why::stale_step:
      return "stale step";
    case Why::stale_pin:
      return "stale pin";
    case Why::busy:
      return "busy";
    case Why::suspended:
      return "suspended";
    case Why::no_pages:
      return "no pages";
    case Why::no_rows:
      return "no table rows";
    case Why::too_large:
      return "too large";
    case Why::no_memory:
      return "no memory";
    case Why::device_failed:
      return "device failed";
  }
  return "unknown";
}

/// The figure that a refusal ends with, 0 included; or none.
struct Limit {
  std::int64_t value = 0;
  bool given = false;

  constexpr Limit() = default;
  template <class T>
    requires(std::is_integral_v<T>)
  // NOLINTNEXTLINE(google-explicit-constructor): a number is one
  constexpr Limit(T figure) noexcept : value(static_cast<std::int64_t>(figure)), given(true)
  {
  }
  // NOLINTNEXTLINE(google-explicit-constructor): and may be read as one, 0 where there is none
  constexpr operator std::int64_t() const noexcept { return value; }
};

/// A refusal: the field, the value that was given, and what would be right.
struct Error {
  Why why = Why::ok;
  char const* field = "";  ///< string literal
  std::int64_t value = 0;  ///< what was given
  char const* right = "";  ///< string literal: what would be right
  Limit limit{};           ///< the figure that `right` speaks of, where it has one

  /// One sentence in a buffer of its own, such as "page_tokens = 300 (bad configuration): must be 1 to 256".
  struct Message {
    char text[256];
  };
  [[nodiscard]] Message message() const noexcept
  {
    Message m{};
    if (limit.given) {
      std::snprintf(m.text,
                    sizeof m.text,
                    "%s = %lld (%s): %s %lld",
                    field,
                    static_cast<long long>(value),
                    name(why),
                    right,
                    static_cast<long long>(limit.value));
    } else {
      std::snprintf(m.text,
                    sizeof m.text,
                    "%s = %lld (%s): %s",
                    field,
                    static_cast<long long>(value),
                    name(why),
                    right);
    }
    return m;
  }
};

/// Why a step cannot take a chunk, in pages.
/// `free + evictable >= need` would have been enough. The three figures are all pages but those that sequences and pins have.
struct Shortage {
  Why why = Why::ok;
  PageCount need = 0;
  PageCount free = 0;       ///< or let go of, and waiting for steps of the same stream alone
  PageCount evictable = 0;  ///< cached, and a step of this stream could have them
  PageCount fenced = 0;  ///< come back when steps end, in flight or being built: cached or let go
  Error detail{};        ///< for reasons that are not about pages: the field and the right value

  /// One sentence, such as "no pages: 6 are needed, 4 are free, 1 can be evicted, 3 come back when steps in flight end".
  [[nodiscard]] Error::Message message() const noexcept
  {
    if (why != Why::no_pages) {
      return detail.message();
    }
    Error::Message m{};
    std::snprintf(m.text,
                  sizeof m.text,
                  "%s: %lu are needed, %lu are free, %lu can be evicted, %lu come back when steps "
                  "in flight end",
                  name(why),
                  static_cast<unsigned long>(need),
                  static_cast<unsigned long>(free),
                  static_cast<unsigned long>(evictable),
                  static_cast<unsigned long>(fenced));
    return m;
  }
};

}  // namespace kvcache::inline v0_1
