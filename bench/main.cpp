// SPDX-License-Identifier: Apache-2.0
// kvcache_bench [--only P1,P6] [--json FILE] [--rounds N] [--list]: runs the bars and prints one table.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <optional>
#include <string_view>

#include "harness.hpp"
#include "pace.hpp"

namespace {

using kvcache_bench::Bar;
using kvcache_bench::Round;

constexpr double least_cpu_share = 0.95;  // below it another process had one of our cores
constexpr double least_steadiness =
  0.95;                              // of a core's paces around a round, the lower by the higher
constexpr double least_pace = 0.9;   // of the best seen: below it the core's other thread had work
constexpr int tries_per_round = 12;  // then the machine is too busy to say anything

struct Arguments {
  std::vector<std::string> only;
  std::string json;
  int rounds = 7;
  bool list = false;
};

struct Outcome {
  Bar const* bar = nullptr;
  double value = 0;
  double raw = 0;   // the value before it is brought to `goal_pace`
  double pace = 0;  // of the core, in core time
  double lowest = 0;
  double highest = 0;
  double reference = 0;  // median seconds
  double subject = 0;
  int kept = 0;
  int discarded = 0;
  bool pass = false;
  bool built = true;
  std::string note;
  std::string trouble;
};

double process_cpu_seconds()
{
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values)
{
  std::sort(values.begin(), values.end());
  std::size_t const half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

/// A round, and the pace of the core beside it.
struct Sample {
  Round times;
  double pace = kvcache_bench::goal_pace;  // stays where the bar is not in core time
};

/// Runs one round. Returns whether the machine left it alone.
bool sample(Bar const& bar, std::function<Round()> const& round, Sample& out)
{
  double const before = bar.core_time ? kvcache_bench::core_pace() : out.pace;
  double const cpu_before = process_cpu_seconds();
  double const wall = kvcache_bench::seconds([&] { out.times = round(); });
  double const share = (process_cpu_seconds() - cpu_before) / (wall * bar.threads);
  double const after = bar.core_time ? kvcache_bench::core_pace() : before;
  out.pace = 0.5 * (before + after);
  if (bar.once) {
    return true;
  }
  return (!bar.wall || share >= least_cpu_share) && out.times.reference > 0 &&
         out.times.subject > 0 &&
         std::min(before, after) >= least_steadiness * std::max(before, after);
}

/// Leaves the samples in which the core was at its best, if ever it was.
std::vector<Sample> at_best(std::vector<Sample> samples)
{
  double best = 0;
  for (Sample const& s : samples) {
    best = std::max(best, s.pace);
  }
  std::erase_if(samples, [&](Sample const& s) { return s.pace < least_pace * best; });
  return samples;
}

void summarise(Bar const& bar, std::vector<Sample> const& samples, Outcome& outcome)
{
  std::vector<double> raw;
  std::vector<double> ratios;
  std::vector<double> paces;
  std::vector<double> reference;
  std::vector<double> subject;
  for (auto const& [times, pace] : samples) {
    outcome.note = times.note;
    raw.push_back(bar.higher_is_better ? times.reference / times.subject
                                       : times.subject / times.reference);
    ratios.push_back(raw.back() * pace / kvcache_bench::goal_pace);
    paces.push_back(pace);
    reference.push_back(times.reference);
    subject.push_back(times.subject);
  }
  outcome.value = median(ratios);
  outcome.raw = median(raw);
  outcome.pace = median(paces);
  outcome.lowest = *std::min_element(ratios.begin(), ratios.end());
  outcome.highest = *std::max_element(ratios.begin(), ratios.end());
  outcome.reference = median(reference);
  outcome.subject = median(subject);
}

void measure(Bar const& bar, int rounds, Outcome& outcome)
{
  std::optional<kvcache_bench::OneCore> stays;
  if (bar.core_time) {
    stays.emplace();
  }
  std::function<Round()> const round = bar.prepare();
  if (bar.once) {
    rounds = 1;
  } else {
    round();  // warm: pages touched, threads started
  }
  std::vector<Sample> quiet;
  std::vector<Sample> kept;
  int tries = 0;
  while (static_cast<int>(kept.size()) < rounds && tries < rounds * tries_per_round) {
    ++tries;
    Sample next;
    if (sample(bar, round, next)) {
      quiet.push_back(next);
    }
    std::size_t const before = kept.size();
    kept = at_best(quiet);
    if (kept.size() <= before) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  outcome.kept = static_cast<int>(kept.size());
  outcome.discarded = tries - outcome.kept;
  if (!kept.empty()) {
    summarise(bar, kept, outcome);
  }
  if (outcome.kept < rounds) {
    outcome.trouble = "too few quiet rounds: " + std::to_string(outcome.kept) + " of " +
                      std::to_string(rounds) + " had a cpu share of 0.95" +
                      (bar.core_time ? " and a steady pace" : "") + "; stop other work and rerun";
    return;
  }
  outcome.pass = bar.higher_is_better ? outcome.value >= bar.goal : outcome.value <= bar.goal;
}

void print(Outcome const& outcome)
{
  Bar const& bar = *outcome.bar;
  if (!outcome.built) {
    std::printf("%-5s %-66s not built\n", bar.bar.c_str(), bar.what.c_str());
    return;
  }
  std::printf("%-5s %-66s %7.3f  %s %-6.4g %-4s  %2d kept %2d out  %.3f..%.3f",
              bar.bar.c_str(),
              bar.what.c_str(),
              outcome.value,
              bar.higher_is_better ? ">=" : "<=",
              bar.goal,
              outcome.pass ? "pass" : "FAIL",
              outcome.kept,
              outcome.discarded,
              outcome.lowest,
              outcome.highest);
  if (bar.core_time && outcome.kept > 0) {
    std::printf("  raw %.3g, pace %.2f GHz", outcome.raw, 1e-9 * outcome.pace);
  }
  if (bar.bytes > 0 && outcome.kept > 0) {
    std::printf("  reference %.1f GB/s, ours %.1f",
                1e-9 * bar.bytes / outcome.reference,
                1e-9 * bar.bytes / outcome.subject);
  }
  std::printf("\n");
  if (!outcome.note.empty()) {
    std::printf("      %s\n", outcome.note.c_str());
  }
  if (!outcome.trouble.empty()) {
    std::printf("      %s\n", outcome.trouble.c_str());
  }
  std::fflush(stdout);
}

std::string quoted(std::string_view text)
{
  std::string out = "\"";
  for (char const c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

bool write_json(std::string const& path, std::vector<Outcome> const& outcomes)
{
  std::ofstream file(path);
  file << "[";
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    Bar const& bar = *outcomes[i].bar;
    char value[64];
    std::snprintf(value, sizeof value, "%.4f, \"goal\": %.4f", outcomes[i].value, bar.goal);
    char core[64] = "";
    if (bar.core_time) {
      std::snprintf(core,
                    sizeof core,
                    ", \"raw\": %.4f, \"pace_ghz\": %.3f",
                    outcomes[i].raw,
                    1e-9 * outcomes[i].pace);
    }
    file << (i == 0 ? "\n" : ",\n") << "  {\"bar\": " << quoted(bar.bar)
         << ", \"what\": " << quoted(bar.what) << ", \"value\": " << value << core
         << ", \"better\": " << (bar.higher_is_better ? "\"higher\"" : "\"lower\"")
         << ", \"pass\": "
         << (!outcomes[i].built ? "null"
             : outcomes[i].pass ? "true"
                                : "false")
         << "}";
  }
  file << "\n]\n";
  file.close();
  return !file.fail();
}

int usage(std::string const& wrong)
{
  std::fprintf(
    stderr,
    "kvcache_bench: %s\nusage: kvcache_bench [--only P1,P6] [--json FILE] [--rounds N, at "
    "least 5] [--list]\n",
    wrong.c_str());
  return 2;
}

/// Empty when the arguments are good, else what is wrong with them.
std::string parse(int argc, char** argv, Arguments& out)
{
  for (int i = 1; i < argc; ++i) {
    std::string const flag = argv[i];
    if (flag == "--list") {
      out.list = true;
      continue;
    }
    if (flag != "--only" && flag != "--json" && flag != "--rounds") {
      return "unknown argument " + flag;
    }
    if (i + 1 == argc) {
      return flag + " needs a value";
    }
    std::string_view const value = argv[++i];
    if (flag == "--json") {
      out.json = value;
    } else if (flag == "--rounds") {
      auto const [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), out.rounds);
      if (error != std::errc{} || end != value.data() + value.size() || out.rounds < 5) {
        return "--rounds is " + std::string(value) + ", at least 5 is right";
      }
    } else {
      for (std::size_t at = 0; at <= value.size();) {
        std::size_t const comma = std::min(value.find(',', at), value.size());
        std::string const name(value.substr(at, comma - at));
        auto const known = [&](Bar const& bar) { return bar.bar == name; };
        if (std::none_of(kvcache_bench::bars().begin(), kvcache_bench::bars().end(), known)) {
          return "--only names no bar " + name + "; --list shows them";
        }
        out.only.push_back(name);
        at = comma + 1;
      }
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv)
{
  // Bars register in link order; the table is easier to read by number.
  std::vector<Bar>& bars = kvcache_bench::bars();
  std::stable_sort(bars.begin(), bars.end(), [](Bar const& a, Bar const& b) {
    return a.bar.size() != b.bar.size() ? a.bar.size() < b.bar.size() : a.bar < b.bar;
  });
  Arguments arguments;
  if (std::string const wrong = parse(argc, argv, arguments); !wrong.empty()) {
    return usage(wrong);
  }
  if (bars.empty()) {
    return usage("no bar is built in");
  }
  auto const selected = [&](Bar const& bar) {
    return arguments.only.empty() ||
           std::find(arguments.only.begin(), arguments.only.end(), bar.bar) != arguments.only.end();
  };

  if (!arguments.list) {
    std::printf("%-5s %-66s %7s  %-14s  %-15s  %s\n",
                "bar",
                "what",
                "value",
                "goal",
                "rounds",
                "lowest..highest");
  }
  std::vector<Outcome> outcomes;
  for (Bar const& bar : bars) {
    if (!selected(bar)) {
      continue;
    }
    if (arguments.list) {
      std::printf("%-5s %s\n", bar.bar.c_str(), bar.what.c_str());
      continue;
    }
    Outcome outcome;
    outcome.bar = &bar;
    try {
      measure(bar, arguments.rounds, outcome);
    } catch (kvcache_bench::NotBuilt const&) {
      outcome.built = false;
    } catch (std::exception const& error) {
      outcome.trouble = error.what();
    }
    print(outcome);
    outcomes.push_back(std::move(outcome));
  }
  if (arguments.list) {
    return 0;
  }
  if (!arguments.json.empty() && !write_json(arguments.json, outcomes)) {
    std::fprintf(stderr, "kvcache_bench: cannot write --json %s\n", arguments.json.c_str());
    return 2;
  }
  auto const failed = std::count_if(
    outcomes.begin(), outcomes.end(), [](Outcome const& o) { return o.built && !o.pass; });
  std::printf("%zu bars, %zu failed\n", outcomes.size(), static_cast<std::size_t>(failed));
  return failed == 0 ? 0 : 1;
}
