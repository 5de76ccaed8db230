// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "support/simt/sanitizers.hpp"

/// \file Memory whose neighbours no one may touch: shared memory of a block, or the pool that a kernel is tried on.

namespace simt {

/// Which side of the memory lies right at a page that no one may touch. The other side has up to a page of slack, which
/// ASan watches; without it, what is written there is found by `intact`, and what is read is not.
enum class Guard : std::uint8_t { behind, before };

/// Bytes at a multiple of 128, between pages without access. Behind them the page begins at the next multiple of 128.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes, Guard guard = Guard::behind) : bytes_(bytes)
  {
    auto const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    room_ = std::max((bytes + page - 1) / page, std::size_t{1}) * page;
    mapped_ = room_ + 2 * page;
    void* const at = ::mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      throw std::bad_alloc();
    }
    mapping_ = static_cast<std::byte*>(at);
    begin_ = mapping_ + page;
    if (::mprotect(begin_, room_, PROT_READ | PROT_WRITE) != 0) {
      ::munmap(mapping_, mapped_);
      throw std::bad_alloc();
    }
    data_ = guard == Guard::before ? begin_ : begin_ + room_ - (bytes + 127) / 128 * 128;
    std::memset(begin_, canary, room_);
    forbid(mapping_, page + before());
    forbid(data_ + bytes_, behind() + page);
  }
  ~GuardedMemory()
  {
    permit(mapping_, mapped_);
    ::munmap(mapping_, mapped_);
  }
  GuardedMemory(GuardedMemory const&) = delete;
  GuardedMemory& operator=(GuardedMemory const&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  /// Fills it with 0xff, which every float type reads as not a number; any part that was forbidden is permitted again.
  void forget()
  {
    permit(data_, bytes_);
    std::memset(data_, 0xff, bytes_);
  }
  /// Whether the slack on both sides is as it was. Under ASan it could not change.
  [[nodiscard]] bool intact() const
  {
    auto const same = [](std::byte const* at, std::size_t n) {
      return std::all_of(at, at + n, [](std::byte x) { return x == std::byte{canary}; });
    };
    return has_asan || (same(begin_, before()) && same(data_ + bytes_, behind()));
  }

 private:
  static constexpr unsigned char canary = 0xc5;

  [[nodiscard]] std::size_t before() const { return static_cast<std::size_t>(data_ - begin_); }
  [[nodiscard]] std::size_t behind() const { return room_ - before() - bytes_; }

  std::size_t bytes_;
  std::size_t room_ = 0;
  std::size_t mapped_ = 0;
  std::byte* mapping_ = nullptr;
  std::byte* begin_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace simt
