// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <utility>

/// \file A large array that starts as zeros and costs nothing until it is touched.
///
/// Tables with an entry for each page of a pool of 16 million would take tens of milliseconds to clear.
/// The operating system hands out fresh memory as zeros already, one small page at the first touch;
/// `calloc` passes that on, `std::vector` does not.

namespace kvcache::inline v0_1 {

/// Owns `size()` elements that start as zero bytes.
/// **Cost** construction O(1) above the allocator's threshold for fresh memory.
template <class T>
class ZeroArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                "kvcache: a ZeroArray holds plain data");

 public:
  ZeroArray() = default;

  /// **Errors** `std::bad_alloc`.
  explicit ZeroArray(std::size_t size) : size_(size)
  {
    if (size <= static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T)) {
      data_ = static_cast<T*>(std::calloc(size, sizeof(T)));
    }
    if (data_ == nullptr && size != 0) {
      detail::out_of_memory();
    }
  }
  ZeroArray(ZeroArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0))
  {
  }
  ZeroArray& operator=(ZeroArray&& other) noexcept
  {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ZeroArray(ZeroArray const&) = delete;
  ZeroArray& operator=(ZeroArray const&) = delete;
  ~ZeroArray() { std::free(data_); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] T const* data() const noexcept { return data_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] T const& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kvcache::inline v0_1
