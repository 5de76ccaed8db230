// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace kvcache_bench {

/// Anonymous memory on huge pages where the system has them, for both sides.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
  {
    if (data_ == MAP_FAILED) {
      throw std::runtime_error("no memory for " + std::to_string(bytes >> 20) + " MiB");
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);
  }
  Memory(Memory const&) = delete;
  Memory& operator=(Memory const&) = delete;
  ~Memory() { ::munmap(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace kvcache_bench
