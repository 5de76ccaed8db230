// SPDX-License-Identifier: Apache-2.0

// A toy Llama decoder whose K and V live in a kvcache::KVCache. Read engine.hpp first, then paged_engine.hpp:
// the wiring of an engine into the library is in these two; the rest is files, tokens and arithmetic.

#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>

#include "args.hpp"
#include "bench.hpp"
#include "demo.hpp"
#include "error.hpp"
#include "run.hpp"

int main(int argc, char** argv)
{
  try {
    std::span<char const* const> const arguments(argv, static_cast<std::size_t>(argc));
    llama::Args const args = llama::parse_args(arguments.subspan(arguments.empty() ? 0 : 1));
    if (args.help) {
      std::fputs(llama::usage().c_str(), stdout);
      return 0;
    }
    if (args.bench) {
      return llama::bench(args);
    }
    return args.demo ? llama::demo(args) : llama::run(args);
  } catch (llama::UsageError const& error) {
    std::fprintf(stderr, "llama: %s\n", error.what());
    return 2;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "llama: %s\n", error.what());
    return 1;
  }
}
