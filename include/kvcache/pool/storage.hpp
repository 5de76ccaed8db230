// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/error.hpp>
#include <kvcache/layout/footprint.hpp>

#include <cstddef>
#include <cstdint>

/// \file Where a pool's bytes come from.

namespace kvcache::inline v0_1 {

/// The caller's memory for the pages, attached and never freed; empty: the pool allocates its own.
struct Storage {
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  /// **Errors** memory that is too small, or not at a multiple of 128 bytes.
  [[nodiscard]] Error validate(Footprint const& footprint, PageCount pages) const noexcept
  {
    if (data == nullptr) {
      return {};
    }
    if (bytes < footprint.pool_bytes(pages)) {
      return {Why::bad_config,
              "storage.bytes",
              static_cast<std::int64_t>(bytes),
              "must be at least",
              static_cast<std::int64_t>(footprint.pool_bytes(pages))};
    }
    if (reinterpret_cast<std::uintptr_t>(data) % 128 != 0) {
      return {Why::bad_config,
              "storage.data",
              static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % 128),
              "is the address modulo 128, and must be 0"};
    }
    return {};
  }
};

}  // namespace kvcache::inline v0_1
