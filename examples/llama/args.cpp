// SPDX-License-Identifier: Apache-2.0
#include "args.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>
#include <thread>

#include "error.hpp"
#include "printable.hpp"

namespace llama {

namespace {

constexpr int max_int = std::numeric_limits<int>::max();
constexpr int max_threads = 1024;

/// Walks over the arguments; each call takes the value of the option that was read last.
class Reader {
 public:
  explicit Reader(std::span<char const* const> arguments) : arguments_(arguments) {}

  [[nodiscard]] bool next_option()
  {
    if (at_ == arguments_.size()) {
      return false;
    }
    option_ = arguments_[at_++];
    return true;
  }
  [[nodiscard]] std::string_view option() const { return option_; }

  [[nodiscard]] std::string text(std::string_view right)
  {
    if (at_ == arguments_.size()) {
      throw UsageError(std::string(option_) + " has no value; " + std::string(right) + " is right");
    }
    return arguments_[at_++];
  }

  template <class T>
  [[nodiscard]] T number(T least, T most, std::string const& right)
  {
    std::string const value = text(right);
    T number{};
    auto const [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() ||
        !(number >= least && number <= most)) {
      refuse(value, right);
    }
    return number;
  }

  [[nodiscard]] int integer(int least, int most)
  {
    return number(least,
                  most,
                  "a whole number from " + std::to_string(least) +
                    (most == max_int ? " up" : " to " + std::to_string(most)));
  }

  [[noreturn]] void refuse(std::string_view value, std::string_view right) const
  {
    throw UsageError(std::string(option_) + " is " + quoted(value) + "; " + std::string(right) +
                     " is right");
  }

 private:
  std::span<char const* const> arguments_;
  std::size_t at_ = 0;
  std::string_view option_;
};

KvType read_kv(Reader& reader)
{
  constexpr std::string_view right = "f32, f16 or bf16";
  std::string const value = reader.text(right);
  if (value == "f32") {
    return KvType::f32;
  }
  if (value == "f16") {
    return KvType::f16;
  }
  if (value != "bf16") {
    reader.refuse(value, right);
  }
  return KvType::bf16;
}

/// Reads one option. Returns false when there is none of that name.
bool read_option(Reader& reader, Args& args)
{
  std::string_view const option = reader.option();
  if (option == "--model") {
    args.model = reader.text("the path of a GGUF file");
    if (args.model.empty()) {
      reader.refuse(args.model, "the path of a GGUF file");
    }
  } else if (option == "--tokenizer") {
    args.tokenizer = reader.text("the path of a llama2.c tokenizer");
    if (args.tokenizer.empty()) {
      reader.refuse(args.tokenizer, "the path of a llama2.c tokenizer");
    }
  } else if (option == "--prompt") {
    args.prompt = reader.text("a text");
  } else if (option == "--dump") {
    args.dump = reader.text("the path of a file to write");
    if (args.dump.empty()) {
      reader.refuse(args.dump, "the path of a file to write");
    }
  } else if (option == "--json") {
    args.json = reader.text("the path of a file to write");
    if (args.json.empty()) {
      reader.refuse(args.json, "the path of a file to write");
    }
  } else if (option == "--n") {
    args.n = reader.integer(0, max_int);
  } else if (option == "--temp") {
    args.temperature =
      reader.number(0.0F, 100.0F, "a number from 0 (the best token each time) to 100");
  } else if (option == "--top-p") {
    args.top_p =
      reader.number(std::numeric_limits<float>::min(), 1.0F, "a number above 0 and at most 1");
  } else if (option == "--seed") {
    args.seed = reader.number(
      std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(), "a whole number from 0 up");
  } else if (option == "--kv") {
    args.kv = read_kv(reader);
  } else if (option == "--threads") {
    args.threads = reader.integer(1, max_threads);
  } else if (option == "--chunk") {
    args.chunk = reader.integer(1, max_int);
  } else if (option == "--page-tokens") {
    args.page_tokens = reader.integer(1, 256);
  } else if (option == "--pages") {
    args.pages = reader.integer(1, max_int);
  } else if (option == "--chat") {
    args.chat = true;
  } else if (option == "--demo") {
    args.demo = true;
  } else if (option == "--bench") {
    args.bench = true;
  } else if (option == "--no-progress") {
    args.progress = false;
  } else if (option == "--help" || option == "-h") {
    args.help = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace

Args parse_args(std::span<char const* const> arguments)
{
  Args args;
  args.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, max_threads);
  Reader reader(arguments);
  while (reader.next_option()) {
    if (!read_option(reader, args)) {
      throw UsageError(
        "there is no argument " + quoted(reader.option()) +
        "; llama --help lists those there are (a prompt of several words needs quotes)");
    }
  }
  if (args.prompt.empty() && !args.demo && !args.bench && !args.help) {
    throw UsageError(
      "--prompt is missing or empty; a text, or --demo or --bench in its place, is right (llama "
      "--help lists all)");
  }
  return args;
}

std::string usage()
{
  return R"(usage: llama --prompt TEXT [options]     continues TEXT
       llama --demo [options]            shows what the cache does
       llama --bench [options]           measures tokens a second at 512, 2,048 and 7,900 tokens

  --model FILE     a GGUF file of a Llama with tokenizer gpt2 (smollm), llama or words
                   (without it: the recall model inside this program)
  --tokenizer FILE of llama2.c: then --model is a checkpoint of llama2.c, such as stories260K.bin
  --prompt TEXT    raw text; special tokens in it count, nothing is added in front
  --chat           takes TEXT as a user's turn and applies the chat form
  --n N            tokens to generate (64)
  --temp T         0 takes the best token each time (0)
  --top-p P        samples from the smallest set of tokens that reaches probability P (1)
  --seed S         of the sampling (1)
  --kv TYPE        how K and V are stored: f32, f16 or bf16 (f16); with f32 products are float32's
                   too, else activations are rounded to 16 bits: faster, logits within 0.02
  --threads N      (all cores)
  --chunk N        prompt tokens per step (256)
  --page-tokens N  tokens per page, 1 to 256 (16)
  --pages N        pages in the pool (as many as the work needs)
  --dump FILE      writes prompt tokens, top five logits per position and generated ids as JSON;
                   runs past the end of text
  --json FILE      writes the figures of --bench: a list of {context, prefill, decode}
  --no-progress    no progress line on long prompts
  --help           this text
)";
}

}  // namespace llama
