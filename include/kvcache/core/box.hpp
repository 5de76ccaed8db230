// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <utility>

/// \file One object on the heap with one owner. `<memory>` would say the same and costs a quarter of a second of parsing.

namespace kvcache::inline v0_1::detail {

/// Owns a `T`, or nothing after a move.
template <class T>
class Box {
 public:
  Box() = default;
  /// Makes the object in place. **Errors** `std::bad_alloc`.
  template <class... Args>
  [[nodiscard]] static Box make(Args&&... args)
  {
    Box box;
    box.object_ = new T{std::forward<Args>(args)...};  // clang 14 fills no aggregate by parentheses
    return box;
  }
  Box(Box&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Box& operator=(Box&& other) noexcept
  {
    std::swap(object_, other.object_);
    return *this;
  }
  Box(Box const&) = delete;
  Box& operator=(Box const&) = delete;
  ~Box() { delete object_; }

  [[nodiscard]] T* get() const noexcept { return object_; }
  [[nodiscard]] T& operator*() const noexcept { return *object_; }
  [[nodiscard]] T* operator->() const noexcept { return object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace kvcache::inline v0_1::detail
