// SPDX-License-Identifier: Apache-2.0
// PARSE: what including a header costs a user's build: CPU seconds of the compiler that built this program, checking the syntax
// of one #include, the best of five. Absolute bars: the reference of a round is one second.

#include <sys/resource.h>

#include <algorithm>
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
          .what = header + ", CPU seconds, best of 5, -std=c++20 -fsyntax-only",
          .goal = goal,
          .higher_is_better = false,
          .wall = false,
          .prepare = [header] {
            auto const source =
              std::filesystem::temp_directory_path() / ("kvcache_parse_" + header + ".cpp");
            std::ofstream(source) << "#include <kvcache/" << header << ">\n";
            std::string const command = std::string("'") + KVCACHE_BENCH_CXX +
                                        "' -std=c++20 -fsyntax-only '-I" + KVCACHE_BENCH_INCLUDE +
                                        "' '" + source.string() + "'";
            return [command]() -> kvcache_bench::Round {
              double best = 1e9;
              for (int i = 0; i < 5; ++i) {
                double const before = children_seconds();
                if (std::system(command.c_str()) != 0) {
                  throw std::runtime_error("PARSE: failed: " + command);
                }
                best = std::min(best, children_seconds() - before);
              }
              return {.reference = 1, .subject = best};
            };
          }};
}

bool const registered =
  kvcache_bench::add(parse("kvcache.hpp", 0.5)) && kvcache_bench::add(parse("view.hpp", 0.15));

}  // namespace
