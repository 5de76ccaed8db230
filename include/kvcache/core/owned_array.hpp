// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

/// \file An array on the heap with one owner. `<memory>` would say the same and costs a quarter of a second of parsing.

namespace kvcache::inline v0_1::detail {

/// Owns what `new T[n]` gave, or nothing.
template <class T>
class OwnedArray {
 public:
  OwnedArray() = default;
  explicit OwnedArray(T* made) noexcept : data_(made) {}
  OwnedArray(OwnedArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  OwnedArray& operator=(OwnedArray&& other) noexcept
  {
    std::swap(data_, other.data_);
    return *this;
  }
  OwnedArray(OwnedArray const&) = delete;
  OwnedArray& operator=(OwnedArray const&) = delete;
  ~OwnedArray() { delete[] data_; }

  [[nodiscard]] T* get() const noexcept { return data_; }
  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  T* data_ = nullptr;
};

}  // namespace kvcache::inline v0_1::detail
