// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "engine.hpp"
#include "error.hpp"
#include "json_out.hpp"
#include "model.hpp"
#include "model_file.hpp"
#include "sampler.hpp"
#include "terminal.hpp"
#include "text_stream.hpp"
#include "tokenizer.hpp"

namespace llama {
namespace {

/// More tokens than this in one step compute no faster, and their logits would take much memory.
constexpr std::size_t widest_chunk = 512;

void show(std::string const& text)
{
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// What the run must hold, checked before the first token is computed.
std::uint32_t choose_pages(Args const& args, Config const& config, std::size_t tokens)
{
  if (tokens > static_cast<std::size_t>(config.context)) {
    throw Error("prompt and answer have " + std::to_string(tokens) +
                " tokens; the model was made for at most " + std::to_string(config.context) +
                ": shorten the prompt or --n");
  }
  std::uint32_t const need = std::max(1U, pages_for(tokens, args.page_tokens));
  if (args.pages != 0 && static_cast<std::uint32_t>(args.pages) < need) {
    throw Error("--pages is " + std::to_string(args.pages) + "; " + std::to_string(tokens) +
                " tokens of prompt and answer take " + std::to_string(need) + " pages of " +
                std::to_string(args.page_tokens) + " tokens");
  }
  return args.pages != 0 ? static_cast<std::uint32_t>(args.pages) : need;
}

void note_top_five(std::span<float const> logits, std::size_t vocab, Dump& dump)
{
  for (std::size_t at = 0; at < logits.size(); at += vocab) {
    dump.top5.push_back(top_five(logits.subspan(at, vocab)));
  }
}

double seconds_since(std::chrono::steady_clock::time_point start)
{
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int run(Args const& args)
{
  Model const model = load_model(open_model(args.model, args.tokenizer));
  Tokenizer const tokenizer(model.file);
  bool const dumps = !args.dump.empty();
  Dump dump;
  dump.prompt_tokens = tokenizer.encode(args.chat ? tokenizer.chat_turn(args.prompt) : args.prompt);
  auto const& prompt = dump.prompt_tokens;
  if (prompt.empty()) {
    throw Error("the prompt has no tokens; at least one is right");
  }
  if (dumps) {
    write_dump({}, args.dump);  // a path that cannot be written shows now, not after the work
  }

  auto const answer = static_cast<std::size_t>(args.n);
  // The last token of the answer is chosen and never computed, so it takes no row.
  std::size_t const rows = prompt.size() + (answer > 0 ? answer - 1 : 0);
  std::size_t const chunk =
    std::min({static_cast<std::size_t>(args.chunk), widest_chunk, prompt.size()});
  Threads threads(static_cast<unsigned>(args.threads));
  auto const engine = make_engine(model,
                                  threads,
                                  {.kv = args.kv,
                                   .page_tokens = args.page_tokens,
                                   .pages = choose_pages(args, model.config, rows),
                                   .max_sequences = 1,
                                   .max_step_tokens = static_cast<int>(chunk)});
  Interrupt const interrupt;
  auto const start = std::chrono::steady_clock::now();
  auto const vocab = static_cast<std::size_t>(model.config.vocab);
  kvcache::Sequence const sequence = engine->open({.tokens = prompt});
  std::span<float const> logits;
  {
    Progress progress("prompt", prompt.size(), args.progress);
    logits = prefill(*engine,
                     sequence,
                     prompt,
                     chunk,
                     dumps,
                     [&](std::size_t first, std::span<float const> chunk_logits) {
                       if (dumps) {
                         note_top_five(chunk_logits, vocab, dump);
                       }
                       progress.update(std::min(first + chunk, prompt.size()));
                       return !Interrupt::requested();
                     });
  }
  double const prompt_seconds = seconds_since(start);

  if (stdout_is_terminal() && !args.chat && !logits.empty()) {
    Colour const dim("2");
    show(args.prompt);
  }
  Sampler sampler({.temperature = args.temperature, .top_p = args.top_p, .seed = args.seed});
  TextStream text(tokenizer, args.chat ? -1 : prompt.back());
  while (dump.generated.size() < answer && !logits.empty() && !Interrupt::requested()) {
    std::int32_t const next = sampler.pick(logits);
    if (!dumps && tokenizer.is_eos(next)) {
      break;
    }
    dump.generated.push_back(next);
    show(text.push(next));
    if (dump.generated.size() < answer) {
      Work const work{&sequence, {&dump.generated.back(), 1}};
      logits = engine->step({&work, 1});
    }
  }
  show(text.finish() + "\n");

  if (Interrupt::requested()) {
    return Interrupt::exit_code;
  }
  if (dumps) {
    write_dump(dump, args.dump);
  }
  if (stderr_is_terminal()) {
    double const all = seconds_since(start);
    std::fprintf(stderr,
                 "%zu prompt tokens in %.2f s, %zu tokens in %.2f s, %u of %u pages\n",
                 prompt.size(),
                 prompt_seconds,
                 dump.generated.size(),
                 all - prompt_seconds,
                 engine->stats().held,
                 engine->stats().capacity);
  }
  return 0;
}

}  // namespace llama
