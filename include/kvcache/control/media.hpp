// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/hash.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/core/list.hpp>
#include <kvcache/core/text.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// \file What a row is that no token names: a row of a picture, of a sound, of text that attends both ways.
///
/// Every row of a picture has the same placeholder token, so tokens alone would answer one picture with the rows of
/// another. Such rows are named by (item, index) instead. An item is a string of bytes, as a `Domain` is: each field is
/// written as {tag, length, bytes}, numbers little endian, so no two sets of fields run into the same string and the
/// bytes are the same on every machine. Two items are equal when all their bytes are; a hash of them only finds.

namespace kvcache::inline v0_1 {

/// The parts of an item. A field without data (`{}`) is absent; `""` is there and empty.
struct MediaFields {
  Text digest{};  ///< of the content, which the engine hashed; at least 1 byte
  Text kind{};    ///< "image", "audio"
  Text dtype{};   ///< of the content
  std::span<std::uint64_t const> dims{};  ///< its shape: (30, 150) is neither (150, 30) nor (4500)
  Text options{};  ///< of the processor: all that changes what the model sees
};

/// One picture, sound or film. Default: no item.
class Media {
 public:
  Media() = default;

  /// **Cost** O(bytes). **Errors** `std::bad_alloc`.
  explicit Media(MediaFields const& fields) : has_digest_(!fields.digest.empty())
  {
    put_text(Tag::digest, fields.digest);
    put_text(Tag::kind, fields.kind);
    put_text(Tag::dtype, fields.dtype);
    if (fields.dims.data() != nullptr) {
      put_header(Tag::dims, fields.dims.size() * 8);
      for (std::uint64_t const dim : fields.dims) {
        put_number(dim, 8);
      }
    }
    put_text(Tag::options, fields.options);
  }

  /// Text whose rows see each other both ways: each of them depends on all of it.
  /// **Cost** O(tokens). **Errors** `std::bad_alloc`.
  [[nodiscard]] static Media text(std::span<Token const> tokens)
  {
    Media made;
    made.has_digest_ = true;
    made.put_header(Tag::text, tokens.size() * 4);
    for (Token const token : tokens) {
      made.put_number(static_cast<std::uint32_t>(token), 4);
    }
    return made;
  }

  /// The canonical form: equal items have equal bytes, in every process.
  [[nodiscard]] Text bytes() const noexcept { return {bytes_.data(), bytes_.size()}; }
  /// False: two contents may be taken for one; control refuses it.
  [[nodiscard]] bool has_digest() const noexcept { return has_digest_; }
  /// Made by `text`.
  [[nodiscard]] bool is_text() const noexcept
  {
    return !bytes_.empty() && bytes_[0] == static_cast<char>(Tag::text);
  }
  /// A number for logs and tables, the same in every process. Others may have it too. **Cost** O(bytes).
  [[nodiscard]] std::uint64_t digest() const noexcept
  {
    std::uint64_t h = mix(0, bytes_.size());
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      word = word << 8 | static_cast<unsigned char>(bytes_[i]);
      if (i % 8 == 7) {
        h = mix(h, word);
        word = 0;
      }
    }
    return mix(h, word);
  }

  friend bool operator==(Media const&, Media const&) = default;

 private:
  enum class Tag : std::uint8_t {
    digest = 1,
    kind = 2,
    dtype = 3,
    dims = 4,
    options = 5,
    text = 6
  };

  void put_text(Tag tag, Text text)
  {
    if (text.data() != nullptr) {
      put_header(tag, text.size());
      bytes_.append(text);
    }
  }
  void put_header(Tag tag, std::size_t length)
  {
    bytes_.push_back(static_cast<char>(tag));
    put_number(length, 8);
  }
  void put_number(std::uint64_t number, int size)
  {
    for (int byte = 0; byte < size; ++byte, number >>= 8) {
      bytes_.push_back(static_cast<char>(number & 0xffU));
    }
  }

  List<char> bytes_;  // <string> costs more to parse than all of prefix/
  bool has_digest_ = false;
};

/// Rows `first .. first + rows - 1` of a sequence are those of `item`, the first of them its row 0. What tokens stand
/// there is of no account.
///
/// An *atomic* span is computed as a whole, since its rows see each other: no prefix hit, no chunk and no cut ends inside
/// it. Without an item it is text that attends both ways; its tokens count, and must be there when it is declared.
struct MediaSpan {
  Media const* item = nullptr;
  Index first = 0;
  Index rows = 0;
  bool atomic = false;
};

/// What a name stands for: row `row` of an item that was declared with `rows` rows.
struct MediaRow {
  Media const* item = nullptr;
  Index row = 0;
  Index rows = 0;
  bool atomic = false;
};

}  // namespace kvcache::inline v0_1
