// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/cache/handle.hpp>
#include <kvcache/control/pins.hpp>

/// \file A pinned prefix in the hands of a caller.

namespace kvcache::inline v0_1 {

/// Keeps the pages of a prefix in the cache for as long as it lives; move-only. Harmless after the cache is gone.
/// **Threads** as the cache's.
class Pin : private detail::Handle<PinId, &detail::Anchor::unpin> {
 public:
  Pin() = default;
  using Handle::id;

  /// Its pages may be evicted again. **Cost** O(pages).
  void let_go() noexcept { end(); }

 private:
  template <class Layout, class Policy>
  friend class KVCache;

  using Handle::Handle;
};

}  // namespace kvcache::inline v0_1
