// SPDX-License-Identifier: Apache-2.0
#include "model_file.hpp"

#include <fstream>
#include <iterator>
#include <vector>

#include "embedded_model.hpp"
#include "error.hpp"
#include "llama2c.hpp"

namespace llama {
namespace {

std::vector<char> read_whole(std::string const& path, char const* what)
{
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in || bytes.empty()) {
    throw Error(path + ": the " + what + " cannot be read; the path of a file is right");
  }
  return bytes;
}

}  // namespace

Gguf open_model(std::string const& path, std::string const& tokenizer)
{
  if (path.empty()) {
    return Gguf::from_bytes(embedded_model(), "the recall model");
  }
  if (tokenizer.empty()) {
    return Gguf::open(path);
  }
  auto const checkpoint = read_whole(path, "checkpoint");
  auto const pieces = read_whole(tokenizer, "tokenizer");
  return Gguf::from_owned(
    gguf_of_llama2c(std::as_bytes(std::span(checkpoint)), std::as_bytes(std::span(pieces)), path),
    path);
}

}  // namespace llama
