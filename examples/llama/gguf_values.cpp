// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "gguf.hpp"
#include "gguf_cursor.hpp"
#include "gguf_format.hpp"
#include "printable.hpp"

namespace llama {

using namespace gguf_format;

namespace {

template <class T>
T load(std::byte const* at)
{
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// `value` when it can be a count, nothing when it is negative.
template <class T>
std::optional<std::uint64_t> not_negative(T value)
{
  return std::in_range<std::uint64_t>(value) ? std::optional(static_cast<std::uint64_t>(value))
                                             : std::nullopt;
}

std::optional<std::uint64_t> load_integer(std::uint32_t kind, std::byte const* at)
{
  switch (kind) {
    case kind_u8:
      return not_negative(load<std::uint8_t>(at));
    case kind_i8:
      return not_negative(load<std::int8_t>(at));
    case kind_u16:
      return not_negative(load<std::uint16_t>(at));
    case kind_i16:
      return not_negative(load<std::int16_t>(at));
    case kind_u32:
      return not_negative(load<std::uint32_t>(at));
    case kind_i32:
      return not_negative(load<std::int32_t>(at));
    case kind_u64:
      return not_negative(load<std::uint64_t>(at));
    case kind_i64:
      return not_negative(load<std::int64_t>(at));
    default:
      return std::nullopt;
  }
}

}  // namespace

Gguf::Value const* Gguf::value(std::string_view key) const
{
  auto const at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

void Gguf::wrong_type(std::string_view key, Value const& found, std::string_view want) const
{
  throw Error(name_ + ": metadata " + quoted(key) + " is " + (found.array ? "an array of " : "") +
              std::string(kind_names[found.type]) + "; " + std::string(want) + " is right");
}

std::optional<std::uint64_t> Gguf::integer(std::string_view key) const
{
  Value const* const v = value(key);
  if (v == nullptr) {
    return std::nullopt;
  }
  auto const number = v->array ? std::nullopt : load_integer(v->type, v->data);
  if (!number) {
    wrong_type(key, *v, "one integer of at least 0");
  }
  return number;
}

std::optional<double> Gguf::real(std::string_view key) const
{
  Value const* const v = value(key);
  if (v == nullptr) {
    return std::nullopt;
  }
  if (v->array || (v->type != kind_f32 && v->type != kind_f64)) {
    wrong_type(key, *v, "one f32 or f64");
  }
  return v->type == kind_f32 ? static_cast<double>(load<float>(v->data)) : load<double>(v->data);
}

std::optional<bool> Gguf::boolean(std::string_view key) const
{
  Value const* const v = value(key);
  if (v == nullptr) {
    return std::nullopt;
  }
  if (v->array || v->type != kind_bool) {
    wrong_type(key, *v, "one bool");
  }
  return load<std::uint8_t>(v->data) != 0;
}

std::optional<std::string_view> Gguf::text(std::string_view key) const
{
  Value const* const v = value(key);
  if (v == nullptr) {
    return std::nullopt;
  }
  if (v->array || v->type != kind_string) {
    wrong_type(key, *v, "one string");
  }
  return GgufCursor({v->data, v->bytes}, name_).string(key);
}

std::optional<std::vector<std::string_view>> Gguf::texts(std::string_view key) const
{
  Value const* const v = value(key);
  if (v == nullptr) {
    return std::nullopt;
  }
  if (!v->array || v->type != kind_string) {
    wrong_type(key, *v, "an array of strings");
  }
  std::vector<std::string_view> out;
  out.reserve(v->count);
  GgufCursor cursor({v->data, v->bytes}, name_);
  for (std::uint64_t i = 0; i < v->count; ++i) {
    out.push_back(cursor.string(key));
  }
  return out;
}

std::optional<std::vector<float>> Gguf::reals(std::string_view key) const
{
  Value const* const v = value(key);
  if (v == nullptr) {
    return std::nullopt;
  }
  if (!v->array || v->type != kind_f32) {
    wrong_type(key, *v, "an array of f32");
  }
  std::vector<float> out(v->count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = load<float>(v->data + i * sizeof(float));
  }
  return out;
}

std::optional<std::vector<std::int32_t>> Gguf::integers(std::string_view key) const
{
  Value const* const v = value(key);
  if (v == nullptr) {
    return std::nullopt;
  }
  if (!v->array || (v->type != kind_i32 && v->type != kind_u32)) {
    wrong_type(key, *v, "an array of i32");
  }
  std::vector<std::int32_t> out(v->count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = load<std::int32_t>(v->data + i * sizeof(std::int32_t));
    if (v->type == kind_u32 && out[i] < 0) {
      wrong_type(key, *v, "an array of numbers below 2147483648");
    }
  }
  return out;
}

}  // namespace llama
