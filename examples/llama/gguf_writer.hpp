// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace llama {

/// Writes a GGUF file into memory: version 3, tensors of float32. Reading is in gguf.hpp.
class GgufWriter {
 public:
  void number(std::string_view key, std::uint32_t value) { pair(key, 4, value); }
  void real(std::string_view key, float value) { pair(key, 6, value); }
  void text(std::string_view key, std::string_view value)
  {
    begin(key, 8);
    put_text(pairs_, value);
  }
  void texts(std::string_view key, std::span<std::string_view const> values)
  {
    begin_array(key, 8, values.size());
    for (std::string_view const value : values) {
      put_text(pairs_, value);
    }
  }
  void integers(std::string_view key, std::span<std::int32_t const> values)
  {
    begin_array(key, 5, values.size());
    put_all(pairs_, std::as_bytes(values));
  }
  void reals(std::string_view key, std::span<float const> values)
  {
    begin_array(key, 6, values.size());
    put_all(pairs_, std::as_bytes(values));
  }

  /// `data` holds the float32 values of all dims, the first dim fastest.
  void tensor(std::string_view name,
              std::span<std::uint64_t const> dims,
              std::span<std::byte const> data)
  {
    ++num_tensors_;
    put_text(infos_, name);
    put(infos_, static_cast<std::uint32_t>(dims.size()));
    put_all(infos_, std::as_bytes(dims));
    put(infos_, std::uint32_t{0});
    put(infos_, static_cast<std::uint64_t>(data_.size()));
    put_all(data_, data);
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
  }

  [[nodiscard]] std::vector<std::byte> bytes() const
  {
    std::vector<std::byte> out;
    put_all(out, std::as_bytes(std::span("GGUF", 4)));
    put(out, std::uint32_t{3});
    put(out, num_tensors_);
    put(out, num_pairs_);
    put_all(out, pairs_);
    put_all(out, infos_);
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    put_all(out, data_);
    return out;
  }

 private:
  using Bytes = std::vector<std::byte>;
  static constexpr std::size_t alignment = 32;

  static void put_all(Bytes& out, std::span<std::byte const> from)
  {
    out.insert(out.end(), from.begin(), from.end());
  }
  template <class T>
  static void put(Bytes& out, T value)
  {
    put_all(out, std::as_bytes(std::span(&value, 1)));
  }
  static void put_text(Bytes& out, std::string_view value)
  {
    put(out, static_cast<std::uint64_t>(value.size()));
    put_all(out, std::as_bytes(std::span(value)));
  }
  void begin(std::string_view key, std::uint32_t type)
  {
    ++num_pairs_;
    put_text(pairs_, key);
    put(pairs_, type);
  }
  template <class T>
  void pair(std::string_view key, std::uint32_t type, T value)
  {
    begin(key, type);
    put(pairs_, value);
  }
  void begin_array(std::string_view key, std::uint32_t type, std::size_t count)
  {
    begin(key, 9);
    put(pairs_, type);
    put(pairs_, static_cast<std::uint64_t>(count));
  }

  Bytes pairs_;
  Bytes infos_;
  Bytes data_;
  std::uint64_t num_pairs_ = 0;
  std::uint64_t num_tensors_ = 0;
};

}  // namespace llama
