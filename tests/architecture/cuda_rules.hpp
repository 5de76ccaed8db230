// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Rules for what is asked of CUDA: always of a stream, and never to wait.

#include <algorithm>
#include <array>
#include <string>

#include "architecture/rules.hpp"
#include "architecture/source_text.hpp"

namespace kvcache_test {

/// No default stream and no wait in a public header, but the one of `Device::wait`; no flag of nvcc that a user's build would need too.
inline Breaches cuda_is_asked_in_order(Tree const& tree)
{
  static std::array<char const*, 18> const words = {"cudaMemcpy",
                                                    "cudaMemset",
                                                    "cudaMemcpy2D",
                                                    "cudaMemcpy3D",
                                                    "cudaMemcpyToSymbol",
                                                    "cudaMemcpyFromSymbol",
                                                    "cudaDeviceSynchronize",
                                                    "cudaStreamSynchronize",
                                                    "cudaEventSynchronize",
                                                    "cudaThreadSynchronize",
                                                    "cudaStreamLegacy",
                                                    "cudaStreamPerThread",
                                                    "cudaStreamDefault",
                                                    "cudaDeviceReset",
                                                    "cuStreamSynchronize",
                                                    "cuEventSynchronize",
                                                    "cuCtxSynchronize",
                                                    "cuMemcpy"};
  std::string const flag = std::string("--expt-") + "relaxed-constexpr";
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!ends_with(path, ".md") && text.find(flag) != std::string::npos) {
      out.push_back(where(path, line_of(text, text.find(flag))) + flag +
                    " would be needed of every user");
    }
    if (!is_public_header(path)) {
      continue;
    }
    std::string const code = code_only(text);
    std::size_t line = 0;
    for (std::string const& each : lines_of(code)) {
      ++line;
      for (char const* const word : words) {
        bool const is_wait = path == "include/kvcache/device/cuda_memory.hpp" &&
                             word == std::string("cudaEventSynchronize");
        if (has_word(each, word) && !is_wait) {
          out.push_back(where(path, line) + word + " waits, or uses the default stream");
        }
      }
    }
    for (std::size_t at = code.find("<<<"); at != std::string::npos;
         at = code.find("<<<", at + 1)) {
      std::string const inside = code.substr(at, code.find(">>>", at) - at);
      if (std::count(inside.begin(), inside.end(), ',') < 3) {
        out.push_back(where(path, line_of(code, at)) + "a launch names its stream");
      }
    }
  }
  return out;
}

}  // namespace kvcache_test
