// SPDX-License-Identifier: Apache-2.0
#include "demo.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "demo_stage.hpp"
#include "embedded_model.hpp"
#include "error.hpp"
#include "page_map.hpp"
#include "recall_text.hpp"
#include "sampler.hpp"
#include "terminal.hpp"

namespace llama {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t num_questions = 16;
constexpr std::size_t text_tokens = 2048;
constexpr std::size_t digits = 4;
constexpr std::size_t num_forks = 4;

/// What sixteen requests over one text cost.
struct Session {
  std::vector<kvcache::Sequence> sequences;  // all open
  std::uint64_t prefill_tokens = 0;
  double first_token_seconds = 0;  // sum
  std::uint32_t pages = 0;
  std::vector<std::string> answers;
  std::size_t right = 0;
};

Session ask(Stage const& stage, Engine& engine, RecallText const& text, bool share)
{
  Session session;
  auto const vocab = static_cast<std::size_t>(stage.model.config.vocab);
  Progress progress(
    share ? "with the tree" : "without the tree", text.questions.size(), stage.args.progress);
  for (RecallQuestion const& question : text.questions) {
    Tokens const prompt = stage.tokenizer.encode(text.context + " " + question.text);
    std::string const salt = std::to_string(session.sequences.size());
    // A domain of its own shares with nobody: the same program without a prefix tree.
    kvcache::DomainFields fields{};
    fields.salt = salt;
    kvcache::Domain const domain = share ? kvcache::Domain{} : kvcache::Domain(fields);
    auto const start = Clock::now();
    session.sequences.push_back(engine.open({.tokens = prompt, .domain = &domain}));
    kvcache::Sequence const& sequence = session.sequences.back();
    session.prefill_tokens += prompt.size() - static_cast<std::size_t>(sequence.length());
    auto logits =
      prefill(engine,
              sequence,
              prompt,
              static_cast<std::size_t>(stage.chunk()),
              false,
              [](std::size_t, std::span<float const>) { return !Interrupt::requested(); });
    session.first_token_seconds += std::chrono::duration<double>(Clock::now() - start).count();
    Tokens answer;
    while (answer.size() < digits) {
      if (logits.size() != vocab) {
        throw Stopped{};
      }
      answer.push_back(greedy(logits));
      if (answer.size() < digits) {
        Work const work{&sequence, {&answer.back(), 1}};
        logits = engine.step({&work, 1});
      }
    }
    session.answers.push_back(stage.tokenizer.decode(answer));
    if (session.answers.back() == question.answer) {
      ++session.right;
    }
    progress.update(session.sequences.size());
  }
  session.pages = engine.stats().held;
  return session;
}

std::string mean_milliseconds(Session const& session)
{
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", session.first_token_seconds / num_questions * 1e3);
  return text;
}

/// Part 1. Returns the session with the tree, its sequences open in `engine`.
Session show_session(Stage const& stage, Engine& engine, RecallText const& text)
{
  std::size_t const context = stage.tokenizer.encode(text.context).size();
  heading("1",
          "Sixteen questions about one text of " + grouped(context) + " tokens with " +
            std::to_string(text.facts) + " facts");
  std::printf(
    "   Each question is a request of its own: the whole text, then for example\n"
    "   \"%s\". All requests stay open.\n\n",
    text.questions[0].text.c_str());
  std::fflush(stdout);
  Session plain;
  {
    auto const alone = stage.engine(num_questions * stage.pages(text_tokens));
    plain = ask(stage, *alone, text, false);
    plain.sequences.clear();
  }
  Session shared = ask(stage, engine, text, true);
  table_row("", "without the tree", "with the tree");
  table_row("prefill tokens", grouped(plain.prefill_tokens), grouped(shared.prefill_tokens));
  table_row("time to first token, mean", mean_milliseconds(plain), mean_milliseconds(shared));
  table_row("pages held by the requests", grouped(plain.pages), grouped(shared.pages));
  auto const of_all = [](std::size_t right) {
    return std::to_string(right) + " of " + std::to_string(num_questions);
  };
  table_row("answers right", of_all(plain.right), of_all(shared.right));
  std::printf("\n");
  for (std::size_t i = 0; i < 3; ++i) {
    bool const right = shared.answers[i] == text.questions[i].answer;
    std::printf("   %-32s %s  %s\n",
                text.questions[i].text.c_str(),
                shared.answers[i].c_str(),
                right ? "right" : "wrong");
  }
  return shared;
}

/// Pages of `sequences` that more than one of them holds, and the others.
struct Shared {
  std::size_t by_several = 0;
  std::size_t by_one = 0;
};

Shared count_shared(Engine const& engine, std::vector<kvcache::Sequence> const& sequences)
{
  std::vector<std::uint32_t> all;
  for (auto const& sequence : sequences) {
    for (kvcache::PageId const page : engine.pages(sequence)) {
      all.push_back(page.value);
    }
  }
  std::sort(all.begin(), all.end());
  Shared shared;
  for (std::size_t i = 0; i < all.size();) {
    auto const end = std::upper_bound(all.begin(), all.end(), all[i]) - all.begin();
    (static_cast<std::size_t>(end) - i > 1 ? shared.by_several : shared.by_one) += 1;
    i = static_cast<std::size_t>(end);
  }
  return shared;
}

void print_shared(char const* when,
                  Engine const& engine,
                  std::vector<kvcache::Sequence> const& sequences)
{
  Shared const pages = count_shared(engine, sequences);
  std::printf("   %-34s %3zu pages shared, %3zu private\n", when, pages.by_several, pages.by_one);
}

/// Part 2. Returns the prompt's sequence and its forks, open in `engine`.
std::vector<kvcache::Sequence> show_forks(Stage const& stage, Engine& engine)
{
  heading("2", "Four continuations of one prompt: fork, copy-on-write");
  Tokens prompt = stage.tokenizer.encode(make_recall_text(256, 0, 5).context);
  // A prompt that ends inside a page, so that there is something to copy.
  std::size_t const per_page = static_cast<std::size_t>(stage.args.page_tokens);
  std::size_t const length = std::min(prompt.size(), 5 * per_page + (per_page + 1) / 2);
  prompt.resize(length);
  std::vector<kvcache::Sequence> sequences;
  sequences.push_back(engine.open({.tokens = prompt}));
  auto const first = prefill(engine, sequences[0], prompt, static_cast<std::size_t>(stage.chunk()));
  std::vector<Sampler> samplers;
  std::vector<Tokens> texts(num_forks);
  for (std::size_t i = 0; i < num_forks; ++i) {
    samplers.emplace_back(SamplerOptions{
      .temperature = 1.0F, .top_p = 0.95F, .seed = stage.args.seed, .stream = i + 1});
    texts[i].push_back(samplers[i].pick(first));
    sequences.push_back(engine.fork(sequences[0]));
  }
  std::printf("   The prompt has %zu tokens: %zu whole pages and %zu rows of one more.\n\n",
              length,
              length / per_page,
              length % per_page);
  print_shared("after four forks", engine, sequences);
  auto const vocab = static_cast<std::size_t>(stage.model.config.vocab);
  for (std::size_t step = 0; step < 22; ++step) {
    std::vector<Work> works;
    for (std::size_t i = 0; i < num_forks; ++i) {
      works.push_back({&sequences[i + 1], {&texts[i].back(), 1}});
    }
    auto const logits = engine.step(works);
    if (step == 0) {
      print_shared("after the first token of each", engine, sequences);
      for (kvcache::PageCopy const& copy : engine.copies()) {
        std::printf("      the plan copied %d rows of page %u to page %u\n",
                    static_cast<int>(copy.rows),
                    copy.source.value,
                    copy.target.value);
      }
    }
    for (std::size_t i = 0; i < num_forks; ++i) {
      texts[i].push_back(samplers[i].pick(logits.subspan(i * vocab, vocab)));
    }
  }
  print_shared("after 22 tokens of each", engine, sequences);
  std::string const all = stage.tokenizer.decode(prompt);
  std::printf("\n   prompt    ...%s\n",
              all.substr(all.size() - std::min<std::size_t>(all.size(), 60)).c_str());
  for (std::size_t i = 0; i < num_forks; ++i) {
    std::string const text = stage.tokenizer.decode(texts[i]);
    std::printf("   %c         %.62s...\n", static_cast<char>('a' + i), text.c_str());
  }
  return sequences;
}

/// Part 3. Closes most of what is open, so that there is something to see.
void show_pages(Engine const& engine,
                Session& session,
                std::vector<kvcache::Sequence>& forks,
                RecallText const& text)
{
  heading("3", "The pool, a character for a page");
  session.sequences.resize(3);
  forks.pop_back();
  std::vector<Lettered> sequences;
  for (std::size_t i = 0; i < session.sequences.size(); ++i) {
    std::string name = text.questions[i].text.substr(std::string("what is the ").size());
    name.pop_back();  // the question mark
    sequences.push_back({static_cast<char>('r' + i), name, &session.sequences[i]});
  }
  sequences.push_back({'p', "prompt of part 2", &forks[0]});
  for (std::size_t i = 1; i < forks.size(); ++i) {
    char const letter = static_cast<char>('a' + i - 1);
    sequences.push_back({letter, std::string("continuation ") + letter, &forks[i]});
  }
  std::printf(
    "   Thirteen requests and continuation %c have closed: their whole pages stay in\n"
    "   the tree until the room is needed.\n\n%s\n",
    static_cast<char>('a' + num_forks - 1),
    page_map(engine, sequences).c_str());
  std::printf(
    "      .    free                       +    cached: only the tree holds it\n"
    "      a-z  private to that sequence   2-9  shared by so many (*: ten or more)\n\n%s",
    page_lists(engine, sequences).c_str());
  kvcache::Stats const stats = engine.stats();
  std::printf("\n   %u pages of %s bytes = %u free + %u held + %u cached; %s\n",
              stats.capacity,
              grouped(engine.footprint().page_bytes()).c_str(),
              stats.free,
              stats.held,
              stats.cached,
              engine.check_invariants() ? "counts agree" : "COUNTS DISAGREE");
}

char const* name(KvType kv)
{
  return kv == KvType::f32 ? "f32" : kv == KvType::f16 ? "f16" : "bf16";
}

}  // namespace

int demo(Args const& args)
{
  if (!args.model.empty()) {
    throw UsageError(
      "--demo asks in the language of the recall model inside this program; leave out --model");
  }
  Model const model = load_model(Gguf::from_bytes(embedded_model(), "the recall model"));
  Tokenizer const tokenizer(model.file);
  Threads threads(static_cast<unsigned>(args.threads));
  Stage const stage{args, model, tokenizer, threads};
  Interrupt const interrupt;
  std::uint64_t parameters = 0;
  for (Tensor const& tensor : model.file.tensors()) {
    parameters += tensor.elements();
  }
  std::printf("A Llama of %s parameters; K and V in %s, pages of %d; %u threads, %s\n",
              grouped(parameters).c_str(),
              name(args.kv),
              args.page_tokens,
              threads.size(),
              kernels_in_use());
  bool same = true;
  try {
    RecallText const text = make_recall_text(text_tokens, num_questions, args.seed);
    auto const engine = stage.engine(stage.pages(text_tokens) + num_questions * stage.pages(32));
    Session session = show_session(stage, *engine, text);
    std::vector<kvcache::Sequence> forks = show_forks(stage, *engine);
    show_pages(*engine, session, forks, text);
    same = show_drafts(stage) && same;
    same = show_small_pool(stage) && same;
  } catch (Stopped const&) {
    std::printf("\nstopped\n");
    return Interrupt::exit_code;
  }
  return same ? 0 : 1;
}

}  // namespace llama
