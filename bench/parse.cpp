// SPDX-License-Identifier: Apache-2.0
// PARSE: what including a header costs a user's build: CPU seconds of the compiler that built this program, checking the syntax
// of one #include. Bars in core time: the reference of a round is one second, the value is seconds of a core at 2.6 GHz.

#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "harness.hpp"

namespace {

double children_seconds()
{
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  auto const seconds = [](timeval const& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

kvcache_bench::Bar parse(std::string const& header, double goal)
{
  return {.bar = "PARSE",
          .what = header + ", CPU s at 2.6 GHz, -std=c++20 -fsyntax-only",
          .goal = goal,
          .higher_is_better = false,
          .wall = false,
          .core_time = true,
          .prepare = [header] {
            auto const source =
              std::filesystem::temp_directory_path() / ("kvcache_parse_" + header + ".cpp");
            std::ofstream(source) << "#include <kvcache/" << header << ">\n";
            std::string const command = std::string("'") + KVCACHE_BENCH_CXX +
                                        "' -std=c++20 -fsyntax-only '-I" + KVCACHE_BENCH_INCLUDE +
                                        "' '" + source.string() + "'";
            return [command]() -> kvcache_bench::Round {
              double const before = children_seconds();
              if (std::system(command.c_str()) != 0) {
                throw std::runtime_error("PARSE: failed: " + command);
              }
              return {.reference = 1, .subject = children_seconds() - before};
            };
          }};
}

bool const registered =
  kvcache_bench::add(parse("kvcache.hpp", 0.5)) && kvcache_bench::add(parse("view.hpp", 0.15));

}  // namespace
