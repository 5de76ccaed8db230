// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file llama.cpp's own test of a vocabulary: texts in `MODEL.inp`, their ids in `MODEL.out`.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "llama/tokenizer.hpp"
#include "support/catch.hpp"
#include "support/read_file.hpp"

namespace llama_test {

/// Asserts that every text gets its ids, and with `decodes` that these give the text. Where the files are not there it
/// says so, and asserts that a model which is not there is refused.
inline void check_ggml_vocab(char const* file, bool decodes)
{
  auto const model = std::filesystem::path(KVCACHE_TEST_DATA_DIR) / "vectors/gguf-vocab" / file;
  if (!std::filesystem::exists(model)) {
    std::cout << "not run: llama.cpp's token ids (needs " << model << ")\n";
    CHECK_THROWS(llama::Gguf::open((model / "absent").string()));
    return;
  }
  llama::Tokenizer const t(llama::Gguf::open(model.string()));
  std::string const texts = kvcache_test::read_file(model.string() + ".inp");
  std::istringstream expected(kvcache_test::read_file(model.string() + ".out"));
  std::string const separator = "\n__ggml_vocab_test__\n";
  std::size_t count = 0;
  for (std::size_t from = 0; from < texts.size(); ++count) {
    std::size_t const to = std::min(texts.find(separator, from), texts.size());
    std::string const text = texts.substr(from, to - from);
    std::string line;
    std::getline(expected, line);
    std::istringstream numbers(line);
    std::vector<std::int32_t> const ids{std::istream_iterator<std::int32_t>(numbers), {}};
    INFO("'" << text << "'");
    CHECK(t.encode(text) == ids);
    if (decodes) {
      CHECK(t.decode(ids) == text);
    }
    from = to + separator.size();
  }
  CHECK(count > 40);
}

}  // namespace llama_test
