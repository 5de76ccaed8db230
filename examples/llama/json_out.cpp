// SPDX-License-Identifier: Apache-2.0
#include "json_out.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <limits>
#include <numeric>

#include "error.hpp"

namespace llama {

namespace {

void append(std::string& out, std::int32_t id)
{
  out += std::to_string(id);
}

void append(std::string& out, float logit)
{
  if (!std::isfinite(logit)) {
    out += "null";  // JSON knows no infinity
    return;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", static_cast<double>(logit));
  out += text.data();
}

/// Appends `[x, y, ...]`, each element through `write`.
template <class List, class Write>
void append_list(std::string& out, List const& list, Write write)
{
  out += '[';
  bool first = true;
  for (auto const& element : list) {
    out += first ? "" : ", ";
    first = false;
    write(element);
  }
  out += ']';
}

}  // namespace

std::vector<std::pair<std::int32_t, float>> top_five(std::span<float const> logits)
{
  constexpr std::size_t wanted = 5;
  auto const rank = [&](std::int32_t id) {
    float const logit = logits[static_cast<std::size_t>(id)];
    return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
  };
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::size_t const count = std::min(wanted, ids.size());
  std::partial_sort(
    ids.begin(),
    ids.begin() + static_cast<std::ptrdiff_t>(count),
    ids.end(),
    [&](std::int32_t a, std::int32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
  std::vector<std::pair<std::int32_t, float>> out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    out.emplace_back(ids[i], logits[static_cast<std::size_t>(ids[i])]);
  }
  return out;
}

std::string to_json(Dump const& dump)
{
  std::string out = "{\"prompt_tokens\": ";
  auto const write_id = [&](std::int32_t id) { append(out, id); };
  append_list(out, dump.prompt_tokens, write_id);
  out += ",\n \"top5\": ";
  append_list(out, dump.top5, [&](auto const& position) {
    append_list(out, position, [&](std::pair<std::int32_t, float> const& entry) {
      out += '[';
      append(out, entry.first);
      out += ", ";
      append(out, entry.second);
      out += ']';
    });
  });
  out += ",\n \"generated\": ";
  append_list(out, dump.generated, write_id);
  return out + "}\n";
}

void write_dump(Dump const& dump, std::string const& path)
{
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << to_json(dump) << std::flush;
  if (!file) {
    throw Error(
      "--dump '" + path +
      "': the file cannot be written; a path in a folder that exists and has room is right");
  }
}

}  // namespace llama
