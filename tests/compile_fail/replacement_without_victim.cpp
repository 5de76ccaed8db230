// SPDX-License-Identifier: Apache-2.0
// expect: kvcache: a replacement policy has `std::optional<SpanId> victim() noexcept`

#include <kvcache/kvcache.hpp>

#include <cstdint>
#include <optional>

struct MyReplacement {
  using role = kvcache::role::replacement;
  struct Options {};
  MyReplacement() = default;
  explicit MyReplacement(Options) {}
  bool reserve(std::uint32_t) noexcept { return true; }
  void on_idle(kvcache::SpanId, kvcache::SpanFacts const&) noexcept {}
  void on_busy(kvcache::SpanId) noexcept {}
  void on_hit(kvcache::SpanId) noexcept {}
  void on_remove(kvcache::SpanId) noexcept {}
  std::optional<kvcache::SpanId> victim() { return std::nullopt; }  // may throw, as it stands
  void restore(kvcache::SpanId, kvcache::SpanFacts const&) noexcept {}
  void on_split(kvcache::SpanId, kvcache::SpanId) noexcept {}
  bool is_candidate(kvcache::SpanId) const noexcept { return false; }
  std::uint32_t size() const noexcept { return 0; }
  template <class F>
  void for_each_oldest_first(F&&) const
  {
  }
  bool check_invariants() const { return true; }
};

using Layout = kvcache::PagedHeads<float, 64, 16>;
using Cache = kvcache::KVCache<Layout, kvcache::Policies<MyReplacement>>;
int const size = sizeof(Cache);
