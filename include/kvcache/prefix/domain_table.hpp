// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/keyed_hash.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/text.hpp>
#include <kvcache/prefix/domain.hpp>
#include <kvcache/prefix/id_table.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvcache::inline v0_1::detail {

/// Numbers the domains in the order in which they are first named, so that the rest compares integers.
/// A domain stays until the table goes; all its bytes are compared, never a hash alone.
class DomainTable {
 public:
  /// **Errors** `std::bad_alloc`.
  explicit DomainTable(std::uint64_t seed = 0) : hash_(seed) {}

  /// The id of `domain`, new or known.
  /// **Cost** O(bytes). **Errors** `std::bad_alloc`, nothing changed.
  DomainId intern(Domain const& domain)
  {
    auto const hash = static_cast<std::uint32_t>(hash_(domain.bytes()));
    std::uint32_t const known = look_up(domain, hash);
    if (known != nil) {
      return DomainId{known};
    }
    auto const id = static_cast<std::uint32_t>(records_.size());
    ids_.reserve(std::size_t{id} + 1);
    records_.push_back(Record{.domain = domain, .digest = digest_of(domain), .generation = 0});
    ids_.insert(hash, id);
    text_bytes_ += domain.bytes().size();
    return DomainId{id};
  }

  [[nodiscard]] std::optional<DomainId> find(Domain const& domain) const noexcept
  {
    std::uint32_t const known = look_up(domain, static_cast<std::uint32_t>(hash_(domain.bytes())));
    return known == nil ? std::nullopt : std::optional<DomainId>{DomainId{known}};
  }

  [[nodiscard]] std::uint32_t size() const noexcept
  {
    return static_cast<std::uint32_t>(records_.size());
  }

  [[nodiscard]] std::uint32_t generation(DomainId id) const noexcept
  {
    return records_[id.value].generation;
  }

  void raise_generation(DomainId id) noexcept { ++records_[id.value].generation; }

  /// One number for what the domain is and how often it was forgotten, the same in every process; 0 for an
  /// id that `intern` never gave, since a probe may ask for a domain that nobody opened.
  [[nodiscard]] std::uint64_t digest(DomainId id) const noexcept
  {
    return id.value < records_.size()
             ? mix(records_[id.value].digest, records_[id.value].generation)
             : 0;
  }

  [[nodiscard]] std::size_t bytes() const noexcept
  {
    return records_.capacity() * sizeof(Record) + text_bytes_ + ids_.bytes();
  }

 private:
  struct Record {
    Domain domain;
    std::uint64_t digest;
    std::uint32_t generation;
  };

  /// Not for look-ups: it has no secret.
  static std::uint64_t digest_of(Domain const& domain) noexcept
  {
    Text const bytes = domain.bytes();
    std::uint64_t h = mix(0, bytes.size());
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      word = word << 8 | static_cast<unsigned char>(bytes[i]);
      if (i % 8 == 7) {
        h = mix(h, word);
        word = 0;
      }
    }
    return mix(h, word);
  }

  [[nodiscard]] std::uint32_t look_up(Domain const& domain, std::uint32_t hash) const noexcept
  {
    return ids_.find(hash, [&](std::uint32_t id) { return records_[id].domain == domain; });
  }

  List<Record> records_;  // by domain id
  IdTable ids_;
  ByteHash hash_;
  std::size_t text_bytes_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
