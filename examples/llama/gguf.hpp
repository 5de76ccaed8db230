// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A reader of GGUF, the file format of llama.cpp's models.
///
///   "GGUF" version | counts | key = value ... | name, shape, type, offset ... | pad | tensor bytes ...
///                                                                                   ^ data, aligned
///
/// Nothing is copied: strings, arrays and tensors point into the mapped file. The file is not
/// trusted: each count and length is compared with the bytes that are left before anything of that
/// size is allocated, and each tensor is known to lie inside the file before anyone sees its
/// address.
///
/// Source: the GGUF specification in the ggml repository (docs/gguf.md), versions 2 and 3.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "error.hpp"

namespace llama {

/// How the numbers of a tensor are stored; the values are ggml's.
enum class TensorType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q8_0 = 8,
  q4_k = 12,
  q6_k = 14,
  bf16 = 30
};

/// Elements in one block of `type` (1 for plain floats).
[[nodiscard]] std::uint64_t block_elements(TensorType type);
/// Bytes of one block of `type`.
[[nodiscard]] std::uint64_t block_bytes(TensorType type);

/// One tensor in the file. **Shape** `dims[0]` runs fastest: a matrix y = W x has dims {in, out}
/// and is stored row by row, one row per output.
struct Tensor {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::uint64_t> dims;  // 1 to 4 of them, dims[0] a multiple of the block
  std::byte const* data = nullptr;  // at least 8-byte aligned
  std::size_t bytes = 0;

  [[nodiscard]] std::uint64_t elements() const;
};

/// An opened GGUF file: metadata by key, tensors by name. Movable; addresses survive a move.
class Gguf {
 public:
  /// Maps `path`. **Errors** `Error` naming file, field, value and what would be right.
  [[nodiscard]] static Gguf open(std::string const& path);
  /// As `from_bytes`, and keeps the bytes.
  [[nodiscard]] static Gguf from_owned(std::vector<std::byte> bytes, std::string name);
  /// Reads `bytes`, called `name` in errors. **Pre** the bytes outlive the result.
  /// **Errors** as `open`; also bytes that do not start at an 8-byte boundary.
  [[nodiscard]] static Gguf from_bytes(std::span<std::byte const> bytes, std::string name);

  [[nodiscard]] Tensor const* find(std::string_view name) const;
  /// As `find`. **Errors** the tensor is absent, or `dims` is given and its shape is another.
  [[nodiscard]] Tensor const& need(std::string_view name,
                                   std::initializer_list<std::uint64_t> dims = {}) const;
  [[nodiscard]] std::span<Tensor const> tensors() const { return tensors_; }

  /// The metadata value of `key`, or nothing when the file has no such key.
  /// **Errors** the key is there with a value of another type (or a negative integer).
  [[nodiscard]] std::optional<std::uint64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> real(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string_view> text(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<float>> reals(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<std::int32_t>> integers(std::string_view key) const;

  /// The file's path, or the name given to `from_bytes`.
  [[nodiscard]] std::string const& name() const { return name_; }

 private:
  struct Value {
    std::uint32_t type = 0;  // GGUF's number; for an array that of its elements
    bool array = false;
    std::uint64_t count = 1;          // elements of an array
    std::byte const* data = nullptr;  // the value, or the first element
    std::size_t bytes = 0;
  };
  class Parser;

  explicit Gguf(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] Value const* value(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key,
                               Value const& found,
                               std::string_view want) const;

  std::string name_;
  std::shared_ptr<void const> mapping_;  // unmaps or frees; empty for bytes of the caller
  std::unordered_map<std::string_view, Value> values_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  // by name; keys point into the file
};

}  // namespace llama
