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
/// A domain stays until it is ended, and its number is the next to be used; all its bytes are compared, never a hash alone.
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
      return id_of(known);
    }
    ids_.reserve(std::size_t{ids_.size()} + 1);
    Domain own = domain;
    if (free_ == nil) {
      records_.push_back(Record{.next = nil});
      free_ = static_cast<std::uint32_t>(records_.size() - 1);
    }
    std::uint32_t const slot = free_;
    Record& record = records_[slot];
    free_ = record.next;
    record.domain = static_cast<Domain&&>(own);
    record.digest = digest_of(domain);
    record.forgets = 0;
    record.used = true;
    ids_.insert(hash, slot);
    text_bytes_ += domain.bytes().size();
    return id_of(slot);
  }

  [[nodiscard]] std::optional<DomainId> find(Domain const& domain) const noexcept
  {
    std::uint32_t const known = look_up(domain, static_cast<std::uint32_t>(hash_(domain.bytes())));
    return known == nil ? std::nullopt : std::optional<DomainId>{id_of(known)};
  }
  /// The id names a domain that has not ended.
  [[nodiscard]] bool knows(DomainId id) const noexcept
  {
    return id.slot < records_.size() && records_[id.slot].used &&
           records_[id.slot].life == id.generation;
  }

  /// Forgets what `id` stands for; its slot will be used again, under another generation. **Pre** the table knows it.
  void end(DomainId id) noexcept
  {
    Record& record = records_[id.slot];
    ids_.erase(static_cast<std::uint32_t>(hash_(record.domain.bytes())), id.slot);
    text_bytes_ -= record.domain.bytes().size();
    record.domain = Domain{};
    record.used = false;
    record.life += 1;
    record.next = free_;
    free_ = id.slot;
  }

  [[nodiscard]] std::uint32_t size() const noexcept
  {
    return static_cast<std::uint32_t>(records_.size());
  }

  [[nodiscard]] std::uint32_t generation(DomainId id) const noexcept
  {
    return records_[id.slot].forgets;
  }

  void raise_generation(DomainId id) noexcept { ++records_[id.slot].forgets; }

  /// One number for what the domain is and how often it was forgotten, the same in every process; 0 for an
  /// id that `intern` never gave, since a probe may ask for a domain that nobody opened.
  [[nodiscard]] std::uint64_t digest(DomainId id) const noexcept
  {
    return knows(id) ? mix(records_[id.slot].digest, records_[id.slot].forgets) : 0;
  }

  [[nodiscard]] std::size_t bytes() const noexcept
  {
    return records_.capacity() * sizeof(Record) + text_bytes_ + ids_.bytes();
  }

 private:
  struct Record {
    Domain domain{};
    std::uint64_t digest = 0;
    std::uint32_t forgets = 0;  // how often it was forgotten
    std::uint32_t life = 0;     // how many domains ended in this slot
    std::uint32_t next = nil;   // free slot
    bool used = false;
  };

  [[nodiscard]] DomainId id_of(std::uint32_t slot) const noexcept
  {
    return {.slot = slot, .generation = records_[slot].life};
  }

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

  List<Record> records_;      // by slot
  std::uint32_t free_ = nil;  // the latest slot given back
  IdTable ids_;
  ByteHash hash_;
  std::size_t text_bytes_ = 0;
};

}  // namespace kvcache::inline v0_1::detail
