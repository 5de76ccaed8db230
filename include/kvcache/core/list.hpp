// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

/// \file A growing array: `std::vector` as a decode step needs it.
///
/// It is 16 bytes and not 24, so that a sequence's two lists and what else a step touches share a cache line; its size is
/// read and not computed; and where room was reserved before, `push_reserved` is a store and an addition. `kvcache.hpp`
/// with it and without `<vector>` parses a quarter faster. Names and rules are those of `std::vector`; it holds fewer than
/// 2^32 elements, and none but those that move without throwing.

namespace kvcache::inline v0_1 {

/// See the file comment. Growing may throw `std::bad_alloc`, and then nothing changed.
template <class T>
class List {
 public:
  using value_type = T;

  List() = default;
  explicit List(std::size_t size) { resize(size); }
  List(std::initializer_list<T> from) { append(from.begin(), from.size()); }
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
  friend bool operator==(List const& a, List const& b) noexcept
  {
    bool same = a.size_ == b.size_;
    for (std::size_t i = 0; same && i < a.size_; ++i) {
      same = a.data_[i] == b.data_[i];
    }
    return same;
  }

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
  T& push_reserved(T&& x) noexcept
  {
    return *::new (static_cast<void*>(data_ + size_++)) T(std::move(x));
  }
  T& push_reserved() noexcept { return *::new (static_cast<void*>(data_ + size_++)) T; }
  void push_back(T x)
  {
    reserve_grown(size_ + std::size_t{1});
    push_reserved(std::move(x));
  }
  void pop_back() noexcept { data_[--size_].~T(); }
  /// `x` becomes the `at`-th element. **Pre** `at <= size()`. **Cost** O(elements behind it).
  void insert(std::size_t at, T x)
  {
    push_back(std::move(x));
    for (std::size_t i = size_ - 1; i > at; --i) {
      std::swap(data_[i], data_[i - 1]);
    }
  }
  /// **Pre** `from` lies elsewhere.
  void append(T const* from, std::size_t count)
  {
    static_assert(plain, "kvcache: a List of what is no plain data is moved, never copied");
    reserve_grown(size_ + count);
    if (count != 0) {
      std::memcpy(static_cast<void*>(end()), from, count * element_bytes);
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
    if (size <= size_) {
      cut(size);
      return;
    }
    reserve_grown(size);
    T* const last = data_ + size;
    for (T* at = end(); at != last; ++at) {
      ::new (static_cast<void*>(at)) T{};
    }
    size_ = static_cast<std::uint32_t>(size);
  }
  void clear() noexcept { cut(0); }
  /// Forgets all elements, and their memory.
  void free() noexcept
  {
    clear();
    give_back(data_);
    data_ = nullptr;
    capacity_ = 0;
  }
  void swap(List& other) noexcept
  {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  static constexpr std::size_t element_bytes =
    sizeof(T);  // NOLINT(bugprone-sizeof-expression): of pointers too
  static constexpr bool plain =
    std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>;
  static constexpr bool wide = alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__;

  /// Forgets all but the first `size` elements.
  void cut(std::size_t size) noexcept
  {
    if constexpr (!plain) {
      for (std::size_t i = size_; i > size; --i) {
        data_[i - 1].~T();
      }
    }
    size_ = static_cast<std::uint32_t>(size);
  }
  [[nodiscard]] static void* memory_for(std::size_t capacity) noexcept
  {
    if constexpr (wide) {
      return ::operator new(capacity * element_bytes, std::align_val_t{alignof(T)}, std::nothrow);
    } else {
      return ::operator new(capacity * element_bytes, std::nothrow);
    }
  }
  static void give_back(T* memory) noexcept
  {
    if constexpr (wide) {
      ::operator delete(static_cast<void*>(memory), std::align_val_t{alignof(T)});
    } else {
      ::operator delete(static_cast<void*>(memory));
    }
  }
  void move_to(std::size_t capacity)
  {
    static_assert(std::is_nothrow_move_constructible_v<T>,
                  "kvcache: what a List holds moves without throwing");
    constexpr std::size_t most = PTRDIFF_MAX / element_bytes < UINT32_MAX
                                   ? PTRDIFF_MAX / element_bytes
                                   : std::size_t{UINT32_MAX};
    void* const memory = capacity <= most ? memory_for(capacity) : nullptr;
    if (memory == nullptr) {
      detail::out_of_memory();
    }
    auto* const moved = static_cast<T*>(memory);
    if constexpr (plain) {
      if (size_ != 0) {
        std::memcpy(memory, static_cast<void const*>(data_), size_ * element_bytes);
      }
    } else {
      for (std::size_t i = 0; i < size_; ++i) {
        ::new (static_cast<void*>(moved + i)) T(std::move(data_[i]));
        data_[i].~T();
      }
    }
    give_back(data_);
    data_ = moved;
    capacity_ = static_cast<std::uint32_t>(capacity);
  }

  T* data_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
};

}  // namespace kvcache::inline v0_1
