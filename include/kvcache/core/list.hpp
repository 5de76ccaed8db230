// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

/// \file A list of plain data: `std::vector` as a decode step needs it.
///
/// It is 16 bytes and not 24, so that a sequence's two lists and what else a step touches share a cache line; its size is
/// read and not computed; and where room was reserved before, `push_reserved` is a store and an addition. It parses in a
/// fraction of the time. Names and rules are those of `std::vector`; it holds fewer than 2^32 elements.

namespace kvcache::inline v0_1::detail {

/// See the file comment. Growing may throw `std::bad_alloc`, and then nothing changed.
template <class T>
class List {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> &&
                  alignof(T) <= alignof(std::max_align_t),
                "kvcache: a List holds plain data");

 public:
  using value_type = T;

  List() = default;
  List(List const& other) { append(other.begin(), other.size()); }
  List(List&& other) noexcept { swap(other); }
  List& operator=(List const& other)
  {
    if (this != &other) {
      reserve(other.size());
      clear();
      append(other.begin(), other.size());
    }
    return *this;
  }
  List& operator=(List&& other) noexcept
  {
    swap(other);
    return *this;
  }
  ~List() { free(); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] T const* data() const noexcept { return data_; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T const* begin() const noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  [[nodiscard]] T const* end() const noexcept { return data_ + size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] T const& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] T& back() noexcept { return data_[size_ - 1]; }
  [[nodiscard]] T const& back() const noexcept { return data_[size_ - 1]; }

  /// Room for `most` elements, and no more. **Errors** `std::bad_alloc`.
  void reserve(std::size_t most)
  {
    if (most > capacity_) {
      move_to(most);
    }
  }
  /// Room for `most` elements; where it has less, at least twice what it has. **Errors** `std::bad_alloc`.
  void reserve_grown(std::size_t most)
  {
    if (most > capacity_) {
      std::size_t const twice = 2 * std::size_t{capacity_};
      move_to(most > twice ? most : twice);
    }
  }

  /// **Pre** it has room for one more.
  T& push_reserved(T const& x) noexcept
  {
    return *::new (static_cast<void*>(data_ + size_++)) T(x);
  }
  T& push_reserved() noexcept { return *::new (static_cast<void*>(data_ + size_++)) T; }
  void push_back(T const& x)
  {
    T const copy = x;  // it may lie in here
    reserve_grown(size_ + std::size_t{1});
    push_reserved(copy);
  }
  void pop_back() noexcept { --size_; }
  /// **Pre** `from` lies elsewhere.
  void append(T const* from, std::size_t count)
  {
    reserve_grown(size_ + count);
    if (count != 0) {
      std::memcpy(static_cast<void*>(end()), from, count * sizeof(T));
      size_ += static_cast<std::uint32_t>(count);
    }
  }
  template <class Range>
  void append(Range const& range)
  {
    append(range.data(), range.size());
  }
  /// **Pre** `range` lies elsewhere.
  template <class Range>
  void assign(Range const& range)
  {
    clear();
    append(range.data(), range.size());
  }
  void resize(std::size_t size)
  {
    reserve_grown(size);
    while (size_ < size) {
      push_reserved(T{});
    }
    size_ = static_cast<std::uint32_t>(size);
  }
  void clear() noexcept { size_ = 0; }
  /// Forgets all elements, and their memory.
  void free() noexcept
  {
    delete[] reinterpret_cast<std::byte*>(data_);
    data_ = nullptr;
    size_ = 0;
    capacity_ = 0;
  }
  void swap(List& other) noexcept
  {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  void move_to(std::size_t capacity)
  {
    constexpr std::size_t most =
      PTRDIFF_MAX / sizeof(T) < UINT32_MAX ? PTRDIFF_MAX / sizeof(T) : std::size_t{UINT32_MAX};
    std::byte* const memory =
      capacity <= most ? new (std::nothrow) std::byte[capacity * sizeof(T)] : nullptr;
    if (memory == nullptr) {
      out_of_memory();
    }
    if (size_ != 0) {
      std::memcpy(memory, static_cast<void const*>(data_), size_ * sizeof(T));
    }
    delete[] reinterpret_cast<std::byte*>(data_);
    data_ = reinterpret_cast<T*>(memory);
    capacity_ = static_cast<std::uint32_t>(capacity);
  }

  T* data_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
