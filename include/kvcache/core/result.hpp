// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>
#include <kvcache/core/error.hpp>

#include <new>
#include <type_traits>
#include <utility>

/// \file A value, or the reason why there is none.

namespace kvcache::inline v0_1 {

/// Nothing, as the value of a call that only succeeds.
struct Done {};

/// A `T`, or an `E` that says why not. Asking for the one that is absent breaks a precondition.
template <class T, class E = Error>
class Result {
  static_assert(!std::is_same_v<T, E>,
                "kvcache: a Result's value and its error are different types");
  static_assert(std::is_trivially_copyable_v<E>, "kvcache: a Result's error is plain data");

 public:
  using value_type = T;
  using error_type = E;

  Result(T value) noexcept(
    std::is_nothrow_move_constructible_v<T>)  // NOLINT: implicit, so `return x;` works
      : has_(true)
  {
    ::new (static_cast<void*>(&value_)) T(std::move(value));
  }
  Result(E error) noexcept : error_(error), has_(false) {}  // NOLINT: implicit
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) : has_(other.has_)
  {
    if (has_) {
      ::new (static_cast<void*>(&value_)) T(std::move(other.value_));
    } else {
      ::new (static_cast<void*>(&error_)) E(other.error_);
    }
  }
  Result(Result const&) = delete;
  Result& operator=(Result const&) = delete;
  Result& operator=(Result&&) = delete;
  ~Result()
  {
    if (has_) {
      value_.~T();
    }
  }

  [[nodiscard]] bool has_value() const noexcept { return has_; }
  [[nodiscard]] explicit operator bool() const noexcept { return has_; }

  [[nodiscard]] T& value() &
  {
    KVCACHE_EXPECTS(has_, "kvcache: Result::value() was called on an error; test the result first");
    return value_;
  }
  [[nodiscard]] T const& value() const&
  {
    KVCACHE_EXPECTS(has_, "kvcache: Result::value() was called on an error; test the result first");
    return value_;
  }
  [[nodiscard]] T&& value() &&
  {
    KVCACHE_EXPECTS(has_, "kvcache: Result::value() was called on an error; test the result first");
    return std::move(value_);
  }
  [[nodiscard]] E const& error() const
  {
    KVCACHE_EXPECTS(!has_, "kvcache: Result::error() was called on a value; test the result first");
    return error_;
  }
  [[nodiscard]] T* operator->() { return &value(); }
  [[nodiscard]] T const* operator->() const { return &value(); }
  [[nodiscard]] T& operator*() & { return value(); }
  [[nodiscard]] T const& operator*() const& { return value(); }
  [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }

 private:
  union {
    T value_;
    E error_;
  };
  bool has_;
};

}  // namespace kvcache::inline v0_1
