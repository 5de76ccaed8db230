// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/list.hpp>
#include <kvcache/core/text.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file What may share with what.
///
/// Two prompts with the same tokens have the same K and V only under the same model, weights, adapters
/// and scales; and a tenant may ask not to share at all. All of that is one string of bytes, and domains
/// are equal when the bytes are. Each field is written as {tag, length, bytes}, so no two sets of fields
/// run into the same string: ("ab", "c") differs from ("a", "bc"), an adapter named X from a salt X, an
/// absent field from an empty one. Numbers are little endian, so the bytes are the same on every machine.
///
/// A cache keeps a domain as long as a cached page, a sequence, a pin, a step that may be dropped or an event that can still
/// be read names it: a salt a request is fine.

namespace kvcache::inline v0_1 {

/// An adapter in use, such as a LoRA, and how strongly.
struct Adapter {
  Text name{};
  float scale = 1.0F;
};

/// The parts of a domain. A text without data (`{}`) is absent; `""` is there and empty.
struct DomainFields {
  Text model{};                         ///< which model
  Text weights{};                       ///< which weights: a digest or revision
  Text salt{};                          ///< tenant or session that shares with nobody else
  std::span<Adapter const> adapters{};  ///< in any order
};

/// An identity within which pages may be shared. Default: the domain of those who name nothing.
class Domain {
 public:
  Domain() = default;

  /// **Cost** O(bytes), and O(n^2) in the number of adapters. **Errors** `std::bad_alloc`.
  explicit Domain(DomainFields const& fields)
  {
    put_text(Tag::model, fields.model);
    put_text(Tag::weights, fields.weights);
    put_text(Tag::salt, fields.salt);
    List<Adapter const*> sorted;
    sorted.reserve(fields.adapters.size());
    for (Adapter const& adapter : fields.adapters) {
      std::size_t at = sorted.size();
      while (at > 0 && before(adapter, *sorted[at - 1])) {
        --at;
      }
      sorted.insert(at, &adapter);
    }
    for (Adapter const* adapter : sorted) {
      put(Tag::adapter, adapter->name);
      put_number(scale_bits(adapter->scale));
    }
  }

  /// The canonical form: equal domains have equal bytes, in every process.
  [[nodiscard]] Text bytes() const noexcept { return {bytes_.data(), bytes_.size()}; }

  friend bool operator==(Domain const&, Domain const&) = default;

 private:
  enum class Tag : std::uint8_t { model = 1, weights = 2, salt = 3, adapter = 4 };

  static std::uint32_t scale_bits(float scale) noexcept
  {
    return scale == 0.0F ? 0U : __builtin_bit_cast(std::uint32_t, scale);  // -0 is 0
  }

  static bool before(Adapter const& a, Adapter const& b) noexcept
  {
    int const order = a.name.compare(b.name);
    return order != 0 ? order < 0 : scale_bits(a.scale) < scale_bits(b.scale);
  }

  void put_text(Tag tag, Text text)
  {
    if (text.data() != nullptr) {
      put(tag, text);
    }
  }

  void put(Tag tag, Text text)
  {
    bytes_.push_back(static_cast<char>(tag));
    put_number(text.size());
    bytes_.append(text);
  }

  void put_number(std::uint64_t number)
  {
    for (int byte = 0; byte < 8; ++byte, number >>= 8) {
      bytes_.push_back(static_cast<char>(number & 0xffU));
    }
  }

  List<char> bytes_;  // <string> costs more to parse than all of prefix/
};

}  // namespace kvcache::inline v0_1
