// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tables of the GGUF format; included by the reader's own files only.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace llama::gguf_format {

/// GGUF's numbers of value types.
enum Kind : std::uint32_t {
  kind_u8,
  kind_i8,
  kind_u16,
  kind_i16,
  kind_u32,
  kind_i32,
  kind_f32,
  kind_bool,
  kind_string,
  kind_array,
  kind_u64,
  kind_i64,
  kind_f64,
  num_kinds
};
inline constexpr std::array<std::string_view, num_kinds> kind_names = {
  "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
inline constexpr std::array<std::uint64_t, num_kinds> kind_bytes = {
  1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/// One of ggml's tensor types.
struct TypeFacts {
  std::uint32_t number;
  std::string_view name;
  std::uint64_t elements;  // of a block; 0: this program cannot read it
  std::uint64_t bytes;
};
inline constexpr TypeFacts type_facts[] = {
  {0, "F32", 1, 4},       {1, "F16", 1, 2},     {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},
  {6, "Q5_0", 32, 22},    {7, "Q5_1", 0, 0},    {8, "Q8_0", 32, 34},    {9, "Q8_1", 0, 0},
  {10, "Q2_K", 0, 0},     {11, "Q3_K", 0, 0},   {12, "Q4_K", 256, 144}, {13, "Q5_K", 0, 0},
  {14, "Q6_K", 256, 210}, {15, "Q8_K", 0, 0},   {16, "IQ2_XXS", 0, 0},  {17, "IQ2_XS", 0, 0},
  {18, "IQ3_XXS", 0, 0},  {19, "IQ1_S", 0, 0},  {20, "IQ4_NL", 0, 0},   {21, "IQ3_S", 0, 0},
  {22, "IQ2_S", 0, 0},    {23, "IQ4_XS", 0, 0}, {24, "I8", 0, 0},       {25, "I16", 0, 0},
  {26, "I32", 0, 0},      {27, "I64", 0, 0},    {28, "F64", 0, 0},      {29, "IQ1_M", 0, 0},
  {30, "BF16", 1, 2},     {34, "TQ1_0", 0, 0},  {35, "TQ2_0", 0, 0},    {39, "MXFP4", 0, 0}};
inline constexpr std::string_view readable_types =
  "F32, F16, BF16, Q8_0, Q6_K, Q5_0, Q4_K, Q4_1 and Q4_0";

/// The facts of tensor type `number`, null when it is unknown.
[[nodiscard]] constexpr TypeFacts const* facts_of(std::uint32_t number)
{
  auto const* const found =
    std::ranges::find_if(type_facts, [&](TypeFacts const& f) { return f.number == number; });
  return found == std::ranges::end(type_facts) ? nullptr : found;
}

}  // namespace llama::gguf_format
