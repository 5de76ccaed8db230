// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "engine.hpp"
#include "error.hpp"
#include "half.hpp"
#include "model.hpp"
#include "model_file.hpp"
#include "ops.hpp"
#include "sampler.hpp"
#include "terminal.hpp"

namespace llama {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t contexts[] = {512, 2048, 7900};
constexpr std::size_t decoded = 33;  // tokens; the middle one of their times counts
constexpr std::size_t widest_chunk = 512;

struct Figures {
  std::size_t context;
  double prefill;  // tokens a second from nothing to `context`
  double decode;   // tokens a second at `context`
};

double seconds_since(Clock::time_point start)
{
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double middle(std::vector<double> values)
{
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::uint64_t sum_of(std::byte const* from, std::size_t bytes)
{
  std::uint64_t sum[8] = {};
  for (std::size_t at = 0; at + 64 <= bytes; at += 64) {
    for (std::size_t i = 0; i < 8; ++i) {
      sum[i] += load<std::uint64_t>(from + at + 8 * i);
    }
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/// Seconds to add up every byte of every tensor once: what a token costs at least.
double read_weights(Gguf const& file, Threads& threads)
{
  constexpr std::size_t piece = std::size_t{1} << 18U;
  static std::atomic<std::uint64_t> kept{0};  // so that the reads happen
  auto const start = Clock::now();
  std::vector<std::span<std::byte const>> pieces;
  for (Tensor const& tensor : file.tensors()) {
    for (std::size_t at = 0; at < tensor.bytes; at += piece) {
      pieces.emplace_back(tensor.data + at, std::min(piece, tensor.bytes - at));
    }
  }
  threads.run(pieces.size(), [&](std::size_t i) {
    kept.fetch_add(sum_of(pieces[i].data(), pieces[i].size()), std::memory_order_relaxed);
  });
  return seconds_since(start);
}

/// Ids that repeat nothing: no prefix is found.
std::vector<std::int32_t> some_text(std::size_t tokens, std::int32_t vocab)
{
  std::vector<std::int32_t> out(tokens);
  std::uint32_t state = 1;
  for (std::int32_t& id : out) {
    state = state * 1664525U + 1013904223U;
    id = static_cast<std::int32_t>((state >> 8U) % static_cast<std::uint32_t>(vocab));
  }
  return out;
}

/// Seconds a token takes that is computed alone behind what `sequence` holds; the sequence is left as it was.
double time_decode(Engine& engine, kvcache::Sequence const& sequence, std::int32_t token)
{
  int const length = sequence.length();
  std::vector<double> times;
  while (times.size() < decoded) {
    auto const start = Clock::now();
    Work const work{&sequence, {&token, 1}};
    token = greedy(engine.step({&work, 1}));
    times.push_back(seconds_since(start));
  }
  engine.truncate(sequence, length);
  return middle(times);
}

void write_json(std::vector<Figures> const& all, std::string const& path)
{
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  char const* between = "[";
  for (Figures const& figures : all) {
    char line[128];
    std::snprintf(line,
                  sizeof line,
                  "%s{\"context\": %zu, \"prefill\": %.2f, \"decode\": %.2f}",
                  between,
                  figures.context,
                  figures.prefill,
                  figures.decode);
    file << line;
    between = ",\n ";
  }
  file << (all.empty() ? "[]\n" : "]\n") << std::flush;
  if (!file) {
    throw Error("--json '" + path +
                "': the file cannot be written; a path in a folder that exists and has room is "
                "right");
  }
}

}  // namespace

int bench(Args const& args)
{
  Model const model = load_model(open_model(args.model, args.tokenizer));
  auto const most = static_cast<std::size_t>(model.config.context);
  std::size_t bytes = 0;
  for (Tensor const& tensor : model.file.tensors()) {
    bytes += tensor.bytes;
  }
  std::vector<std::int32_t> const text = some_text(std::min(most, contexts[2]), model.config.vocab);
  auto const chunk = std::min(static_cast<std::size_t>(args.chunk), widest_chunk);
  Threads threads(static_cast<unsigned>(args.threads));
  auto const engine = make_engine(model,
                                  threads,
                                  {.kv = args.kv,
                                   .page_tokens = args.page_tokens,
                                   .pages = pages_for(text.size() + decoded, args.page_tokens) + 1,
                                   .max_sequences = 1,
                                   .max_step_tokens = static_cast<int>(chunk)});
  kvcache::Sequence const sequence = engine->open({.tokens = text});
  std::printf(
    "%u threads, %s kernels, %zu bytes of weights\n", threads.size(), kernels_in_use(), bytes);
  std::printf("%8s %14s %13s %20s %17s\n",
              "context",
              "prefill tok/s",
              "decode tok/s",
              "weights read, GB/s",
              "decode of a read");
  (void)read_weights(model.file, threads);  // brings the file into memory
  Interrupt const interrupt;
  std::vector<Figures> all;
  double prefill_seconds = 0;
  for (std::size_t const context : contexts) {
    if (context > text.size() || context + decoded > most) {
      std::printf("%8zu: longer than the model was made for\n", context);
      continue;
    }
    auto const start = Clock::now();
    bool whole = true;
    prefill(*engine, sequence, std::span(text).first(context), chunk, false, [&](auto, auto) {
      whole = !Interrupt::requested();
      return whole;
    });
    prefill_seconds += seconds_since(start);
    if (!whole) {
      return Interrupt::exit_code;
    }
    std::vector<double> reads;
    for (int i = 0; i < 5; ++i) {
      reads.push_back(read_weights(model.file, threads));
    }
    double const seconds = time_decode(*engine, sequence, text[context - 1]);
    for (int i = 0; i < 5; ++i) {
      reads.push_back(read_weights(model.file, threads));
    }
    double const read = middle(reads);
    all.push_back({context, static_cast<double>(context) / prefill_seconds, 1.0 / seconds});
    std::printf("%8zu %14.1f %13.1f %20.1f %17.2f\n",
                context,
                all.back().prefill,
                all.back().decode,
                static_cast<double>(bytes) / read / 1e9,
                read / seconds);
    std::fflush(stdout);
  }
  if (!args.json.empty()) {
    write_json(all, args.json);
  }
  return 0;
}

}  // namespace llama
