// SPDX-License-Identifier: Apache-2.0
#include "recall_text.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "sampler.hpp"

namespace llama {
namespace {

using Words = std::span<std::string_view const>;

constexpr std::array<std::string_view, 64> names{
  "alice", "bob",    "carol",  "david",  "emma",  "frank",  "grace", "henry",  "iris",  "jack",
  "kate",  "liam",   "mary",   "noah",   "olive", "peter",  "quinn", "rose",   "sam",   "tina",
  "uma",   "victor", "wendy",  "xander", "yara",  "zoe",    "adam",  "bella",  "carl",  "diana",
  "eric",  "fiona",  "george", "hanna",  "ivan",  "julia",  "kevin", "laura",  "mark",  "nina",
  "oscar", "paula",  "ralph",  "sara",   "tom",   "ursula", "vera",  "walter", "yuri",  "anna",
  "ben",   "clara",  "dan",    "ella",   "felix", "gina",   "hugo",  "irene",  "jonas", "karen",
  "leo",   "mia",    "nick",   "opal"};
constexpr std::array<std::string_view, 12> places{"river",
                                                  "market",
                                                  "garden",
                                                  "station",
                                                  "library",
                                                  "harbor",
                                                  "kitchen",
                                                  "forest",
                                                  "school",
                                                  "tower",
                                                  "bridge",
                                                  "museum"};
constexpr std::array<std::string_view, 12> nouns{"dog",
                                                 "cat",
                                                 "horse",
                                                 "lamp",
                                                 "letter",
                                                 "basket",
                                                 "clock",
                                                 "boat",
                                                 "piano",
                                                 "apple",
                                                 "kettle",
                                                 "chair"};
constexpr std::array<std::string_view, 8> adjectives{
  "old", "small", "quiet", "bright", "heavy", "green", "cold", "happy"};
constexpr std::array<std::string_view, 6> moves{
  "walked", "ran", "drove", "returned", "hurried", "came"};
constexpr std::array<std::string_view, 8> deeds{
  "found", "lost", "bought", "painted", "carried", "cleaned", "sold", "watched"};
constexpr std::array<std::string_view, 6> times{
  "morning", "evening", "night", "winter", "summer", "spring"};
constexpr std::array<std::string_view, 4> attributes{"code", "room", "badge", "phone"};

constexpr std::size_t fact_tokens = 10;
constexpr std::size_t question_tokens = 12;

class Writer {
 public:
  explicit Writer(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] std::size_t below(std::size_t bound)
  {
    return static_cast<std::size_t>(std::uint64_t{random_.next()} * bound >> 32);
  }
  [[nodiscard]] std::string one_of(Words words) { return std::string(words[below(words.size())]); }

  template <class T>
  void shuffle(std::vector<T>& items)
  {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[below(i)]);
    }
  }

  /// A sentence without a fact, and its tokens.
  [[nodiscard]] std::pair<std::string, std::size_t> filler()
  {
    switch (below(6)) {
      case 0:
        return {one_of(names) + " " + one_of(moves) + " to the " + one_of(places) + ".", 6};
      case 1:
        return {"the " + one_of(adjectives) + " " + one_of(nouns) + " was near the " +
                  one_of(places) + ".",
                8};
      case 2:
        return {"in the " + one_of(times) + ", " + one_of(names) + " and " + one_of(names) + " " +
                  one_of(deeds) + " the " + one_of(adjectives) + " " + one_of(nouns) + ".",
                12};
      case 3:
        return {"it was a " + one_of(adjectives) + " " + one_of(times) + " in the " +
                  one_of(places) + ".",
                9};
      case 4:
        return {one_of(names) + " " + one_of(deeds) + " a " + one_of(nouns) + " with " +
                  one_of(names) + ".",
                7};
      default:
        return {"then " + one_of(names) + " " + one_of(moves) + " to the " + one_of(places) +
                  " and " + one_of(deeds) + " the " + one_of(nouns) + ".",
                11};
    }
  }

  [[nodiscard]] std::string digits()
  {
    std::string out;
    for (int i = 0; i < 4; ++i) {
      out += static_cast<char>('0' + below(10));
    }
    return out;
  }

  /// `count` different (attribute, name) pairs; names come back with other attributes.
  [[nodiscard]] std::vector<std::string> keys(std::size_t count)
  {
    std::vector<std::string> people(names.begin(), names.end());
    shuffle(people);
    std::size_t const least = (count + attributes.size() - 1) / attributes.size();
    std::size_t const share = 1 + count * (30 + below(71)) / 100;
    people.resize(std::min(people.size(), std::max(least, share)));
    std::vector<std::string> all;
    for (std::string const& person : people) {
      for (std::string_view attribute : attributes) {
        all.push_back(std::string(attribute) + " of " + person);
      }
    }
    shuffle(all);
    all.resize(count);
    return all;
  }

 private:
  Pcg32 random_;
};

}  // namespace

RecallText make_recall_text(std::size_t tokens, std::size_t questions, std::uint64_t seed)
{
  Writer writer(seed);
  RecallText text;
  text.facts = std::max<std::size_t>(1, tokens * 3 / 128);
  std::vector<std::string> sentences;
  for (std::string const& key : writer.keys(text.facts)) {
    std::string const answer = writer.digits();
    sentences.push_back("the " + key + " is " + answer + ".");
    text.questions.push_back({"what is the " + key + "?", answer});
  }
  std::size_t left = tokens - question_tokens * questions - fact_tokens * text.facts - 1;
  for (auto next = writer.filler(); next.second <= left; next = writer.filler()) {
    left -= next.second;
    sentences.push_back(next.first);
  }
  writer.shuffle(sentences);
  text.context = "<s>";
  for (std::string const& sentence : sentences) {
    text.context += " " + sentence;
  }
  writer.shuffle(text.questions);
  for (std::size_t i = text.facts; i < questions; ++i) {
    text.questions.push_back(text.questions[i % text.facts]);
  }
  text.questions.resize(questions);
  return text;
}

}  // namespace llama
